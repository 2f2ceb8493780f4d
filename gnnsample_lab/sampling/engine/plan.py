"""What a run tells its kernels (``AppPlan`` of ``context.cuh``), and the weights that are kept between runs."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnsample_lab.device import kernels, streams
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.sampling.neighbors.plan import as_argument
from gnnsample_lab.sampling.weights import integer_weights

from .language.compile import MAX_TABLES

if TYPE_CHECKING:
    from .gpu import GpuEngine
    from .shape import StepShape
    from .streaming.run import StreamedGraph

APP_PLAN = np.dtype([
    *((name, np.int64) for name in (
        "indptr", "indices", "weight", "prefix", "max_weight", "roots", "transits", "out", "history", "widths",
        "sizes", "status",
    )),
    ("seed", np.uint64), ("first_sample", np.uint64),
    *((name, np.int64) for name in (
        "num_nodes", "num_samples", "num_roots", "step", "num_transits", "size", "combined_begin", "combined",
        "combined_prefix", "staged_begin", "staged_end", "staged", "edges", "edge_counts", "edge_room",
    )),
    ("keys", np.uint64, 10),
    ("tables", [("data", np.int64), ("length", np.int64)], MAX_TABLES),
])  # fmt: skip
"""``AppPlan`` of ``context.cuh``."""
CLEAR = 2**64 - 1
"""The status word while nothing has failed."""
_READS_WEIGHT = frozenset({"lab_edge_weight", "lab_neighbor_weight"})
_kept: dict[int, tuple[Any, Any, dict[str, Any], Any]] = {}


class AppPlan:
    """The record that every kernel of a run takes. Nothing but these methods writes it.

    A kernel takes a copy at its launch (:meth:`argument`), so that a change holds for the launches after it. The record
    holds addresses alone: the caller keeps the arrays. A method that is given None for an array writes 0.

    Args:
        num_nodes: of the graph.
        num_samples, num_roots: S and R.
        seed: 64-bit key of the draws.
        first_sample: id of sample 0 in the draws.
    """

    def __init__(
        self, num_nodes: int, num_samples: int, num_roots: int, seed: int, first_sample: int
    ) -> None:
        self._record = np.zeros(1, APP_PLAN)
        self._write(num_nodes=num_nodes, num_samples=num_samples, num_roots=num_roots)
        self._write(seed=np.uint64(seed), first_sample=np.uint64(first_sample), keys=round_keys(seed))

    def argument(self) -> np.ndarray:
        """What a kernel takes: the bytes of the record at the moment of the launch."""
        return as_argument(self._record)

    def read_graph(self, graph: Any, prefix: Any, weight: Any, max_weight: Any) -> None:
        """Set the graph that kernels read: ``indptr``, ``indices`` and the integer weights of :func:`weights`."""
        self._write(indptr=_address(graph.indptr), indices=_address(graph.indices))
        self._write(prefix=_address(prefix), weight=_address(weight), max_weight=_address(max_weight))

    def grow_samples(self, roots: Any, sizes: Any, status: Any) -> None:
        """Samples begin with ``roots``, ids ``[S, R]``, and report their first fault in ``status``, ``uint64[1]``.

        ``sizes``: the vertices of each sample, ``uint32[S]``.
        """
        self._write(roots=_address(roots), sizes=_address(sizes), status=_address(status))

    def record_edges(self, edges: Any, counts: Any) -> None:
        """``s.add_edge`` writes to ``edges``, ``int64[S, room, 3]``, and counts in ``counts``, ``uint32[S]``."""
        self._write(edges=_address(edges), edge_counts=_address(counts), edge_room=edges.shape[1])

    def read_tables(self, tables: list[Any]) -> None:
        """``next`` reads the application's arrays, 8 bytes an element."""
        for number, table in enumerate(tables):
            self._record["tables"][0, number] = (_address(table), table.size)

    def read_history(self, words: Any) -> None:
        """Kernels read all outputs: ``int64[2 n]`` holds the addresses of n of them, then their widths."""
        self._write(history=_address(words), widths=_address(words) + 8 * (words.size // 2))

    def begin_step(self, number: int, shape: StepShape, out: int) -> None:
        """The next launches are of step ``number``, whose ids ``[S, width]`` go to the address ``out``."""
        self._write(step=number, num_transits=shape.transits, size=shape.size, out=out)

    def read_transits(self, transits: Any) -> None:
        """The step draws from ``transits``, ids ``[S, t]``."""
        self._write(transits=_address(transits))

    def read_combined(
        self, begins: Any, entries: Any = None, sums: Any = None, *, row: int = 0, before: int = 0
    ) -> None:
        """Collective ``next`` reads combined neighbourhoods: of all samples from ``row`` on.

        Args:
            begins: ``int64[S + 1]``, where the entries of every sample begin.
            entries: ids of those samples.
            sums: ``uint64``, sums of their weights, one more than entries for each sample.
            before: entries of the samples before ``row``. Kernels count from sample 0, and so get the addresses that
                the arrays would have if they began with it.
        """
        first = 0 if entries is None else _address(entries) - before * entries.itemsize
        first_sum = 0 if sums is None else _address(sums) - (before + row) * sums.itemsize
        self._write(combined_begin=_address(begins), combined=first, combined_prefix=first_sum)

    def forget_combined(self) -> None:
        """There are no combined neighbourhoods any more."""
        self.read_combined(None)

    def read_staged(self, begin: int, end: int, address: int) -> None:
        """Edges ``begin .. end - 1`` are read at ``address``, where the first of them lies."""
        self._write(staged_begin=begin, staged_end=end, staged=address)

    def forget_staged(self) -> None:
        """All edges are read where the graph has them."""
        self.read_staged(0, 0, 0)

    def _write(self, **values: Any) -> None:
        for name, value in values.items():
            self._record[name] = value


def _address(array: Any) -> int:
    return 0 if array is None else int(array.data.ptr)


def round_keys(seed: int) -> np.ndarray:
    """Keys of the generator's ten rounds (``device/philox.cuh``), ``uint64[10]``, the first word low."""
    low, high = seed & 0xFFFFFFFF, seed >> 32
    keys = [
        (low + r * 0x9E3779B9 & 0xFFFFFFFF) | (high + r * 0xBB67AE85 & 0xFFFFFFFF) << 32 for r in range(10)
    ]
    return np.array(keys, np.uint64)


def weights(engine: GpuEngine, edge_weight: Any) -> tuple[Any, Any, Any]:
    """Integer weights on the GPU: their prefix sums, the weights themselves, and the largest weight of every vertex.

    ``uint64[E + 1]``, ``uint32[E]`` and ``uint32[N]``, the last two None where ``next`` does not read them. They are
    kept while the graph lives, for runs with the same ``edge_weight``.
    """
    import cupy

    graph, uses = engine.graph, engine.operator.uses
    held = kept_sums(graph, edge_weight, f"{engine.app.name}.edge_weights()")
    if "weight" not in held and uses & _READS_WEIGHT:
        with streams.leasing():
            held["weight"] = cupy.diff(held["prefix"]).astype(np.uint32)
    if "max_weight" not in held and "lab_max_weight" in uses:
        most = streams.empty(graph.num_nodes, np.uint32, streams.Ready())
        kernel = kernels.load_module("sampling/engine/weights.cu").get_function("max_weights")
        args = (graph.indptr, held["prefix"], np.int64(graph.num_nodes), most)
        kernel(engine.grid(graph.num_nodes * 32), (256,), args)
        held["max_weight"] = most  # only now: an interrupt before would leave it unfilled
    return held["prefix"], held.get("weight"), held.get("max_weight")


def kept_sums(graph: Any, edge_weight: Any, name: str = "edge weights") -> dict[str, Any]:
    """:func:`kept_with`, with the weights' sums as ``"prefix"``, ``uint64[E + 1]``, on the graph's device.

    Raises:
        ValueError: a weight is negative or not finite; the message begins with ``name``.
    """
    held = kept_with(graph, edge_weight)
    streams.order(edge_weight, *held.values())
    if "prefix" not in held:
        if graph.device == "cpu":
            held["prefix"] = integer_weights(graph.indptr, to_host(edge_weight), name).prefix
        else:
            import cupy

            with streams.leasing():
                held["prefix"] = integer_weights(graph.indptr, cupy.asarray(edge_weight), name).prefix
    return held


def kept_with(graph: Any, edge_weight: Any) -> dict[str, Any]:
    """What is kept of a graph with these weights; a new, empty dictionary where nothing is."""
    key, own = id(graph), edge_weight is graph.edge_weight
    held = _kept.get(key)
    if not own:
        streams.order(edge_weight)
    if (
        held is None or held[0]() is not graph or held[1] is not edge_weight
        or (held[3] is not None and not bool((held[3] == edge_weight).all()))
    ):  # fmt: skip
        # An application may change its array between two runs; the graph's stays as it is.
        copy = None if own else edge_weight.copy()
        held = _kept[key] = (weakref.ref(graph, lambda _: _kept.pop(key, None)), edge_weight, {}, copy)
    return held[2]


def streamed(
    graph: Any, operator: Any, edge_weight: Any, graph_bytes: int, as_published: bool = False
) -> StreamedGraph:
    """The :class:`StreamedGraph` to sample from when at most ``graph_bytes`` of edges may lie on the GPU.

    ``as_published``: each step copies every sub-graph that holds a transit, as NextDoor's section 8.4 has it. Forms of
    weights that kernels read are made once, and stay page-locked while a graph in host memory lives.
    """
    from .streaming.run import StreamedGraph

    host = graph if graph.device == "cpu" else graph.to("cpu", features=False)
    held = None if edge_weight is None else kept_sums(host, to_host(edge_weight))
    if as_published:
        return StreamedGraph(host, graph_bytes, operator, held, across_bus=False, kept=False)
    return StreamedGraph(host, graph_bytes, operator, held)


class Timed:
    """Two events around launches; the time between them becomes an entry of a record. Does nothing without a list."""

    def __init__(self, events: list[Any] | None, record: dict[str, Any], name: str) -> None:
        self._events, self._record, self._name = events, record, name

    def __enter__(self) -> None:
        if self._events is not None:
            import cupy

            self._begin, self._end = cupy.cuda.Event(), cupy.cuda.Event()
            self._begin.record()

    def __exit__(self, *_: Any) -> None:
        if self._events is not None:
            self._end.record()
            self._events.append(self)

    def close(self) -> None:
        """Wait for the second event and add the microseconds to the record."""
        import cupy

        self._end.synchronize()
        us = 1e3 * float(cupy.cuda.get_elapsed_time(self._begin, self._end))
        self._record[self._name] = self._record.get(self._name, 0.0) + us
