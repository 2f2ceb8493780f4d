"""``lab.run_app``: run a sampling application on a graph."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from gnnsample_lab.checks import array as checked_array
from gnnsample_lab.checks import choice, is_cuda_array, num_bytes, whole
from gnnsample_lab.checks import seed as checked_seed
from gnnsample_lab.device import runtime, streams
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.graph.graph import check_graph

from .cpu import walker as cpu
from .language.app import SamplingApp, check_attributes, roots_from
from .language.compile import compile_operator
from .results.edges import Recorded
from .results.result import AppResult
from .shape import MAX_STEPS, Shape

PARALLELISMS = {
    "transit": "transit-parallel: pairs grouped by transit, which go to sub-warp, block or grid kernels",
    "sample": "sample-parallel (NextDoor's SP): neighbouring threads draw for one pair of sample and transit, up to "
    "four draws each where the paper has a thread for each",
    "transit-vanilla": "vanilla transit-parallel (NextDoor's TP): grouped by transit, without load balance; up to four "
    "draws a thread, and a list is cached where it is no longer than its draws, in the paper always",
    "frontier": "Gunrock's formulation: a thread per edge of the frontier, samples one after another",
    "message": "Tigr's formulation: a thread per transit, samples one after another",
}
INDEXES = ("auto", "published", "always", "radix", "counting", "ranges")
MAX_SAMPLE_ID = 2**40 - 1


def run_app(
    graph: Any,
    app: SamplingApp,
    roots: Any = None,
    parallelism: str = "transit",
    device: str = "auto",
    seed: int = 0,
    *,
    num_samples: int | None = None,
    first_sample: int = 0,
    index: str = "auto",
    graph_bytes: int | None = None,
    max_steps: int | None = None,
) -> AppResult:
    """Grow samples by ``app`` (NextDoor, EuroSys'21). The samples depend on graph, app, roots and seed alone.

    On a GPU the call may return while the last kernel runs. The work goes on CuPy's current stream, after what torch's
    current stream has, and torch's current stream waits for it. Any other stream waits for ``result.ready``. Any
    stream and any thread may call, and an interrupt leaves everything usable.

    Args:
        graph: a :class:`~gnnsample_lab.graph.Graph`; moved to ``device`` if it is elsewhere. Walks follow
            ``graph.indices``, in-neighbours.
        app: one of :mod:`lab.apps <gnnsample_lab.sampling.apps>` or your own :class:`SamplingApp`.
        roots: initial samples, global ids ``[S]`` or ``[S, R]`` (list, NumPy, CuPy or torch); by default the
            application's choice, one uniform vertex per sample.
        parallelism: ``"transit"``, ``"sample"``, ``"transit-vanilla"``, ``"frontier"`` or ``"message"``: how the
            GPU is used. On the CPU samples are walked one by one.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        seed: 64-bit key of the draws.
        num_samples: how many samples where ``roots`` is None, default 1024.
        first_sample: id of sample 0 in the draws; a run cut in parts gives each part its own. Roots that an application
            of :mod:`lab.apps <gnnsample_lab.sampling.apps>` chooses, or the default does, are those of these samples.
        index: how ``"transit"`` groups pairs. ``"auto"``: by ranges of vertices in steps where that pays, else not at
            all, sample by sample. ``"published"``: NextDoor as published, an index in each step, walks included, three
            kernels, lists cached wherever they fit, ``unique`` by sorting. Four things are not the paper's: the index
            is counted, not sorted by radix, which gives the same groups; of walks without end the last eighth, or 2**19
            of them, go on without one; collective steps gather their combined neighbourhoods by kernels of our own; and
            lists of more than 8 KB are not cached. ``"always"``: an index in each step for our own kernels, built as is
            fastest; or by a named method: ``"radix"`` (the paper's sort), ``"counting"``, ``"ranges"``.
            ``AppResult.schedule`` says what was done. Only ``"transit"`` is grouped so; the others take ``unique`` by
            sorting from ``"published"``. On the CPU nothing is grouped, and all give the same run.
        graph_bytes: how much of the graph's edges may lie on the GPU; what exceeds it is streamed from host memory,
            sub-graph by sub-graph (section 8.4). With ``index="published"`` each step copies every sub-graph that holds
            a transit, as in the paper, and one kernel draws from it; else a step copies less. Without effect on the
            CPU.
        max_steps: stop after so many steps. An application of infinitely many steps raises after 10,000 by default.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or not allowed; the message names it. So is
            ``index="published"`` for a collective application with ``graph_bytes``, whose lists are read across the
            bus, and on a GPU for ``unique`` in graphs of 2**32 vertices or more.
        SamplingAppError: a function of ``app`` does not compile or fails in a sample; the message names its line.
        MemoryError: the samples, or their roots, do not fit into memory; take fewer samples.
        RuntimeError: ``device="cuda"`` without a usable GPU, or an application that does not end.
    """
    check_graph(graph)
    choice("parallelism", parallelism, PARALLELISMS)
    choice("index", index, INDEXES)
    seed = checked_seed(seed)
    first_sample = whole("first_sample", first_sample, 0, MAX_SAMPLE_ID)
    if num_samples is not None:
        num_samples = whole("num_samples", num_samples, 1, MAX_SAMPLE_ID)
    if graph_bytes is not None:
        num_bytes("graph_bytes", graph_bytes, 1)
    if max_steps is not None:
        max_steps = whole("max_steps", max_steps, 0, MAX_STEPS)
    if not isinstance(app, SamplingApp):
        compile_operator(app)  # raises, with the reason
    target = runtime.resolve_device(device)
    with runtime.lock, streams.call(target == "cuda"):
        # Applications look at NumPy arrays, whichever device runs.
        own = type(app).prepare is not SamplingApp.prepare or roots is None
        host = moved(graph, "cpu") if own or target == "cpu" else None
        graph = host if target == "cpu" else graph if graph_bytes is not None else moved(graph, "cuda")
        app.prepare(host)
        operator = compile_operator(app)
        check_attributes(app, graph.num_nodes)
        if (
            graph_bytes is not None
            and operator.collective
            and (parallelism, index) == ("transit", "published")
        ):
            raise ValueError(
                "index must not be 'published' with graph_bytes and a collective application: lists are read across "
                "the bus where NextDoor copies sub-graphs; take index='auto', or no graph_bytes"
            )
        if roots is None:
            with roots_from(first_sample):
                roots = app.initial_samples(host, num_samples or 1024, seed)
        elif num_samples is not None:
            raise ValueError(
                "num_samples counts samples whose roots the application chooses; give it or roots, not both"
            )
        roots = check_roots(roots, graph.num_nodes, target)
        if app.one_root and roots.shape[1] != 1:
            raise ValueError(
                f"roots of {app.name} must be one a sample, of shape [S] or [S, 1] (got {tuple(roots.shape)})"
            )
        if first_sample + len(roots) > MAX_SAMPLE_ID + 1:
            raise ValueError(
                f"first_sample must leave ids below 2**40 for {len(roots)} samples (got {first_sample})"
            )
        shape = Shape(app, int(roots.shape[1]), max_steps)
        recorded = Recorded()
        while True:
            if target == "cpu":
                roots = roots.astype(graph.indices.dtype)
                steps = cpu.run(graph, app, operator, shape, roots, seed, first_sample, recorded)
                schedule: list[dict[str, Any]] = []
                ready: Any = streams.DONE
            else:
                from . import gpu

                ready = streams.Ready()
                roots, steps, schedule = gpu.run(
                    graph, app, operator, shape, roots, seed, first_sample, parallelism=parallelism, index=index,
                    graph_bytes=graph_bytes, ready=ready, recorded=recorded,
                )  # fmt: skip
            if not recorded.overflowed():
                break  # else the same samples again, with room for their edges
        with streams.results(target == "cuda"):
            edges = recorded.sorted()
    return AppResult(
        graph, app, roots, steps, [shape[i] for i in range(len(steps))], parallelism, target, seed, first_sample,
        schedule, ready, edges,
    )  # fmt: skip


_copies: dict[str, tuple[Any, Any]] = {}


def moved(graph: Any, device: str) -> Any:
    """``graph`` on ``device``, topology and weights; the last copy to each device is kept while its source lives."""
    if graph.device == device:
        return graph
    source, copy = _copies.get(device, (lambda: None, None))
    if source() is not graph:
        copy = graph.to(device, features=False)
        _copies[device] = (weakref.ref(graph, lambda _: _copies.pop(device, None)), copy)
    return copy


def check_roots(roots: Any, num_nodes: int, device: str) -> Any:
    """``roots`` as an integer array ``[S, R]`` on ``device``.

    Raises:
        TypeError: not integers.
        ValueError: another shape, or an id out of range; NULL (-1) fills rows up.
    """
    array = checked_array("roots", roots)
    streams.order(array)
    if device == "cpu":
        array = to_host(array)
    if array.size == 0 and not hasattr(roots, "dtype"):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"roots must be integers (got {array.dtype})")
    if array.ndim == 1:
        array = array.reshape(-1, 1)
    if array.ndim != 2 or (array.shape[1] < 1 and array.shape[0]):
        raise ValueError(f"roots must have shape [S] or [S, R] (got {tuple(array.shape)})")
    if array.size and not (int(array.min()) >= -1 and int(array.max()) < num_nodes):
        bad = int(array.min()) if int(array.min()) < -1 else int(array.max())
        raise ValueError(f"roots must lie in 0..{num_nodes - 1}, or be -1 for none (got {bad})")
    if device == "cuda" and not is_cuda_array(array):
        import cupy

        array = cupy.asarray(array)
    return array
