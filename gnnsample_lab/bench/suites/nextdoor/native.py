"""Applications whose ``next`` is written in CUDA by hand: what user-defined ones are measured against.

Two baselines. In the first, :func:`provider`, the engine's own kernels are compiled together with a ``lab_next`` from
``native/``, by one compiler in one piece: only where the operator comes from differs. The second,
:class:`FusedDeepWalk`, is a kernel that knows nothing of the engine. Both draw the same words and return the same
samples. And :func:`one_core_us` is the walker on one core of the CPU.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, runtime
from gnnsample_lab.sampling import apps
from gnnsample_lab.sampling.apps.choices import weighted_edge
from gnnsample_lab.sampling.engine.language import link
from gnnsample_lab.sampling.engine.language.compile import compile_operator

_FOLDER = Path(__file__).resolve().parent / "native"
_ENGINE = kernels.PACKAGE_ROOT / "sampling" / "engine"
THREADS = (128, 256)
"""Threads of a block of the fused kernel; the committed sweep."""


def operator_of(app: Any) -> tuple[str, dict[str, str]]:
    """The file in ``native/`` that defines ``next`` of ``app``, which has been prepared, and the macros it takes.

    Raises:
        LookupError: no operator was written by hand for this application.
    """
    weighted = {"BY_WEIGHT": str(int(getattr(app, "choose", None) is weighted_edge))}
    kind = type(app)
    if kind is apps.Node2Vec:
        factors = {"RETURNS": app.returns, "NEAR": app.near, "AWAY": app.away, "ALWAYS": app.always}
        words = {name: f"{ceil(Fraction(value) * 2**32)}ull" for name, value in factors.items()}
        return "node2vec.cuh", {**weighted, **words}
    if kind is apps.PPR:
        return "ppr.cuh", {**weighted, "TERMINATE": f"{floor(Fraction(app.termination) * 2**32)}ull"}
    if kind in (apps.DeepWalk, apps.KHop):
        return "walk.cuh", weighted
    raise LookupError(
        f"no hand-written next for {kind.__name__}; there is one for DeepWalk, PPR, Node2Vec, KHop"
    )


@functools.cache
def source_of(operator: str, source_name: str) -> str:
    """One translation unit: ``operator`` of ``native/`` in front of ``source_name`` of the engine, headers inlined."""
    seen: set[Path] = set()
    return "\n".join(
        kernels.inline_source(path, seen) for path in (_FOLDER / operator, _ENGINE / source_name)
    )


def module(app: Any, operator: Any, source_name: str, macros: dict[str, Any] | None = None) -> Any:
    """The engine's kernels of ``source_name`` compiled with the hand-written ``next`` of ``app``.

    Args:
        app: a prepared :class:`~gnnsample_lab.sampling.apps.DeepWalk`, ``PPR``, ``Node2Vec`` or ``KHop``.
        operator: what :func:`~gnnsample_lab.sampling.engine.language.compile.compile_operator` makes of it; the
            kernels are told of it as they are in the linked module.
        source_name: a file of ``sampling/engine`` marked ``// @operator``.
        macros: as the engine gives them to the linked module.

    Returns:
        A ``cupy.RawModule`` to use in place of the linked one; compiled once per process.

    Raises:
        LookupError: no operator was written by hand for this application.
    """
    return _compiled(*unit_of(app, operator, source_name, macros))


def unit_of(
    app: Any, operator: Any, source_name: str, macros: dict[str, Any] | None = None
) -> tuple[str, tuple[str, ...]]:
    """Source and compiler options of :func:`module`."""
    name, own = operator_of(app)
    chosen = {"ID_T": "int", **link.operator_macros(operator), **(macros or {}), **own}
    return source_of(name, source_name), (
        "-std=c++17", "--fmad=false", *(f"-D{key}={value}" for key, value in sorted(chosen.items())),
    )  # fmt: skip


@functools.cache
def _compiled(source: str, options: tuple[str, ...]) -> Any:
    import cupy

    return cupy.RawModule(code=source, options=options, backend="nvrtc")


def provider(app: Any, graph: Any) -> Callable[[str, dict[str, Any]], Any]:
    """``kernel_provider`` of the engine, ``(source_name, macros) -> RawModule``, for ``app`` on ``graph``.

    Raises:
        LookupError: no operator was written by hand for this application.
    """
    app.prepare(graph)
    operator = compile_operator(app, graph)
    operator_of(app)  # raises now, and not in the middle of a run
    return functools.partial(module, app, operator)


class FusedDeepWalk:
    """DeepWalk by the hand-fused kernel (``native/deepwalk_fused.cu``), a thread per walk.

    Args:
        graph: on the GPU, without a vertex of 2**32 or more in-neighbours.
        length: steps of a walk.
        weights: ``(weight uint32[E], max_weight uint32[N])`` on the GPU for walks in proportion to integer weights.

    Raises:
        ValueError: in-degrees of 2**32 or more.
    """

    def __init__(self, graph: Any, length: int, weights: tuple[Any, Any] | None = None) -> None:
        if graph.max_in_degree >= 2**32:
            raise ValueError(
                f"graph has a vertex of in-degree {graph.max_in_degree}; fused walks draw below 2**32"
            )
        self.graph, self.length = graph, length
        self.weights = weights or (np.uintp(0), np.uintp(0))
        self.macros = {
            "ID_T": "int" if graph.indices.dtype.itemsize == 4 else "long", "WEIGHTED": int(weights is not None),
        }  # fmt: skip

    def run(self, roots: Any, out: Any, seed: int = 0, first_sample: int = 0, threads: int = 256) -> None:
        """Walk from ``roots``, ids ``[S]`` of the graph's type, to ``out``, ids ``[length, S]``; only launches."""
        kernel = kernels.load_module(
            "bench/suites/nextdoor/native/deepwalk_fused.cu", {**self.macros, "THREADS": threads}
        ).get_function("deepwalk")
        walks = int(roots.size)
        args = (
            self.graph.indptr, self.graph.indices, *self.weights, roots, out, np.uint64(walks), np.int32(self.length),
            np.uint64(seed), np.uint64(first_sample),
        )  # fmt: skip
        kernel((max(1, -(-walks // threads)),), (threads,), args)


def one_core_us(graph: Any, app: Any, roots: Any, seed: int = 0, passes: int = 3) -> float:
    """Wall microseconds of ``run_app`` on one core of the CPU: median after a warm-up run, which compiles.

    Args:
        graph: in host memory.
        roots: initial samples, ids ``[S]`` or ``[S, R]``.
    """
    import numba

    from gnnsample_lab.sampling.engine.run import run_app

    before, times = numba.get_num_threads(), []
    with runtime.lock:  # no other run is to find one thread
        numba.set_num_threads(1)
        try:
            for _ in range(passes + 1):
                began = time.perf_counter()
                run_app(graph, app, roots, device="cpu", seed=seed)
                times.append((time.perf_counter() - began) * 1e6)
        finally:
            numba.set_num_threads(before)
    return statistics.median(times[1:])
