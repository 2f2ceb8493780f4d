"""Applications whose ``next`` is written in CUDA by hand: what user-defined ones are measured against.

The engine's own kernels are compiled together with a ``lab_next`` from ``native/``, by one compiler in one piece: only
the origin of the operator differs. Hand-written and linked operators draw the same words and return the same samples.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Any

from gnnsample_lab.device import kernels
from gnnsample_lab.sampling import apps
from gnnsample_lab.sampling.apps.choices import weighted_edge
from gnnsample_lab.sampling.engine.language import link
from gnnsample_lab.sampling.engine.language.compile import compile_operator

_FOLDER = Path(__file__).resolve().parent / "native"
_ENGINE = kernels.PACKAGE_ROOT / "sampling" / "engine"


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
