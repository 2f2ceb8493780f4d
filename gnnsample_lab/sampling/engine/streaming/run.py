"""Graphs larger than GPU memory: edges stay in page-locked host memory and are copied in parts (NextDoor, section 8.4).

The graph is cut into sub-graphs, ranges of consecutive vertices. Every step sorts its pairs of sample and transit by
transit, which sorts them by sub-graph too. Then it copies one sub-graph after another to the GPU and samples from it;
the next copy runs while kernels sample from the present sub-graph. The paper copies every sub-graph that holds a
transit, at every step. This implementation copies less:

* Sub-graphs that are still on the GPU are not copied again; a step begins with those that the last step left there.
* If a step draws few edges from a sub-graph, kernels read these edges from host memory across the bus, and the
  sub-graph is not copied. Most steps of random walks do this, because a walk draws one edge per step.

``index="published"`` leaves both out and copies as the paper does (``across_bus=False, kept=False``).

Collective steps read all their lists across the bus.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnsample_lab.device import kernels, pinned, runtime, streams
from gnnsample_lab.sampling.neighbors.plan import as_argument

from .subgraphs import Places, cut, lay_out, plan_step

if TYPE_CHECKING:
    from gnnsample_lab.sampling.engine.gpu import GpuEngine

BUS_READ_BYTES = 96
"""Cost of reading one edge across the bus, in bytes of a long copy that take the same time.

A read moves 32 bytes, and the bus also carries the request for them.
"""
_WEIGHT = frozenset({"lab_edge_weight", "lab_neighbor_weight"})
_PREFIX = frozenset({"lab_edge_prefix", "lab_edge_search", "lab_neighbor_prefix", "lab_neighbor_search"})
_SEARCH = frozenset({"lab_edge_search", "lab_edge_has"})
_THREADS = 256
STAGED = np.dtype([(name, np.int64) for name in ("edge_begin", "indices", "weight", "prefix")])
"""``Staged`` of ``streaming.cu``."""


class StreamedGraph:
    """A graph in host memory from which the engine samples; needs CUDA.

    ``graph_bytes`` does not count ``indptr`` (8 bytes per vertex) and ``max_weight`` (4 bytes per vertex), which also
    lie on the GPU.

    Args:
        graph: a :class:`~gnnsample_lab.graph.Graph` in host memory.
        graph_bytes: most bytes of edges that may lie on the GPU: neighbours, weights or their prefix sums.
        operator: the application's compiled functions; the weights that they read are staged too.
        weights: if the operator reads weights: their sums in host memory, ``"prefix"``, as of
            :class:`~gnnsample_lab.sampling.weights.IntegerWeights`. What is made of them joins them here.
        slots: sub-graphs that lie on the GPU at once; None: chosen.
        across_bus: False stages every sub-graph that holds a transit, as the paper does.
        kept: False copies them anew in every step, as the paper does.

    Attributes:
        indptr, indices, weight, prefix, max_weight: CuPy arrays for kernels, ids ``[E]``, ``uint32[E]``,
            ``uint64[E + 1]``, ``uint32[N]``. The three edge arrays lie in host memory, which kernels read across the
            bus; the last three arrays are None where the operator does not read them.
        parts: first vertices of the sub-graphs and the number of vertices, ``int64[G + 1]``, NumPy.
        layout: :class:`~.subgraphs.Layout`.

    Raises:
        ValueError: ``graph_bytes`` is smaller than the longest list.
        MemoryError: the host refuses to page-lock the edges.
    """

    def __init__(
        self, graph: Any, graph_bytes: int, operator: Any, weights: dict[str, Any] | None = None, *,
        slots: int | None = None, across_bus: bool = True, kept: bool = True,
    ) -> None:  # fmt: skip
        import cupy

        self.graph, self.across_bus, self.kept = graph, across_bus, kept
        self.num_nodes, self.num_edges = graph.num_nodes, int(graph.indptr[-1])
        uses, made = operator.uses, {} if weights is None else weights
        prefix = made.get("prefix")
        wants_prefix = prefix is not None and bool(uses & _PREFIX or (operator.collective and uses & _WEIGHT))
        wants_weight = prefix is not None and not wants_prefix and bool(uses & _WEIGHT)
        id_bytes = graph.indices.dtype.itemsize
        self.layout = lay_out(
            graph_bytes, self.num_edges, graph.max_in_degree, id_bytes + 8 * wants_prefix + 4 * wants_weight,
            8 * wants_prefix, slots,
        )  # fmt: skip
        self.parts = cut(graph.indptr, self.layout.slot_edges)
        self._edges = graph.indptr[self.parts]  # edges before each sub-graph
        self._part_bytes = np.diff(self._edges) * self.layout.edge_bytes + 8 * wants_prefix
        self.indptr = cupy.asarray(graph.indptr)
        self._host: dict[
            str, np.ndarray
        ] = {}  # in their order in a slot: the widest type first, so that all are aligned
        if prefix is not None and wants_prefix:
            self._host["prefix"] = pinned.locked(prefix)
        self._host["indices"] = pinned.locked(graph.indices)
        if prefix is not None and wants_weight:
            if "weight" not in made:
                made["weight"] = np.diff(prefix).astype(np.uint32)
            self._host["weight"] = pinned.locked(made["weight"])
        views: dict[str, Any] = {name: pinned.mapped(array) for name, array in self._host.items()}
        self.indices, self.weight, self.prefix = views["indices"], views.get("weight"), views.get("prefix")
        self.max_weight = None
        if prefix is not None and "lab_max_weight" in uses:
            if "max_weight" not in made:
                made["max_weight"] = largest_weights(graph.indptr, prefix)
            self.max_weight = cupy.asarray(made["max_weight"])
        self._places, self._rent = Places(self.layout.slots), np.zeros(self.num_parts)
        slot_bytes = self.layout.slot_edges * self.layout.edge_bytes + 8 * wants_prefix
        self._copies = cupy.cuda.Stream(non_blocking=True)
        users = streams.Turns()
        users.add(self._copies)  # after an interrupt a copy may be under way that no step waits for
        self._buffers = [
            streams.empty(-(-slot_bytes // 8), np.int64, users) for _ in range(self.layout.slots)
        ]
        self._filled = [cupy.cuda.Event(disable_timing=True) for _ in self._buffers]
        self._read = [cupy.cuda.Event(disable_timing=True) for _ in self._buffers]
        for event in self._read:  # the first copies wait for earlier uses of the buffers' memory
            event.record()
        self._parts_device, self._bounds = cupy.asarray(self.parts), cupy.empty(self.parts.size, np.int64)
        mean = self.num_edges / max(1, self.num_nodes)
        reads = (1.0 if operator.deferred else 4.0) + (2.0 if uses & (_WEIGHT | _PREFIX) else 0.0)
        self._draw_bytes = BUS_READ_BYTES * (reads + (math.log2(mean + 2) if uses & _SEARCH else 0.0))

    @property
    def num_parts(self) -> int:
        """Sub-graphs that the graph is cut into."""
        return len(self.parts) - 1

    def stages(self, pairs: int, size: int) -> bool:
        """Whether a step should build an index and stage sub-graphs; False where reading across the bus costs less.

        ``pairs`` is the number of pairs of sample and transit, ``size`` the number of draws per pair.
        """
        if not self.across_bus:
            return True
        return self._bus_bytes(size) * pairs > int(self._part_bytes.sum()) / 8

    def run_step(self, engine: GpuEngine, number: int) -> dict[str, Any]:
        """Run step ``number`` of an individual application: ``next`` for all pairs, without redraws.

        ``engine.transits`` (ids ``[S, t]``) holds the transits. The host waits once, for the number of pairs of each
        sub-graph.

        Returns:
            What was done, for ``r.schedule``: ``index``, how pairs were sorted, and see :meth:`_serve`.
        """
        import cupy

        shape, rows = engine.shape[number], engine.num_samples
        transits = engine.transits.reshape(-1)
        nothing = rows * shape.transits * shape.size * self.indices.itemsize
        cupy.cuda.runtime.memsetAsync(
            engine.addresses[number + 1], 0xFF, nothing, cupy.cuda.get_current_stream().ptr
        )
        index, bounds = self._sort(engine, transits)
        wide = index.pairs.dtype.itemsize == 8
        kernel = engine.kernel(
            "streaming/streaming.cu", "staged_pairs", {"PAIR_T": "long" if wide else "int", "STAGED": 1}
        )
        groups, record = -(-shape.size // 4), np.zeros(1, STAGED)

        def launch(first: int, last: int, slot: int | None) -> None:
            self._describe(record, first, slot)
            if slot is None:
                engine.plan.forget_staged()
            else:
                begin, end = int(self._edges[first]), int(self._edges[last])
                engine.plan.read_staged(begin, end, int(record["indices"][0]))
            threads = int(bounds[last] - bounds[first]) * groups
            grid = max(1, min(-(-threads // _THREADS), runtime.num_sms() * 8))
            args = (
                engine.plan.argument(),
                as_argument(record),
                index.pairs,
                self._bounds,
                np.int32(first),
                np.int32(last),
            )
            kernel((grid,), (_THREADS,), args)

        try:
            return {"index": index.kind, **self._serve(bounds, self._bus_bytes(shape.size), launch)}
        finally:
            engine.plan.forget_staged()

    def _bus_bytes(self, size: int) -> float:
        """Cost of reading one pair's draws across the bus, in bytes of a copy."""
        return size * self._draw_bytes

    def _sort(self, engine: GpuEngine, transits: Any) -> tuple[Any, np.ndarray]:
        """The scheduling index of ``transits``, and how many pairs lie before each sub-graph (waits for the GPU)."""
        from gnnsample_lab.sampling.engine.grouping.index import build

        built = build(transits, self.num_nodes, engine.index, engine.scratch)
        kernel = self._kernel("boundaries", built)
        args = (transits, built.pairs, built.begins, built.count, self._parts_device, np.int32(self.num_parts),
                self._bounds)  # fmt: skip
        kernel((-(-self.parts.size // 128),), (128,), args)
        return built, self._bounds.get()

    def _kernel(self, name: str, index: Any) -> Any:
        macros: dict[str, int | str] = {
            "ID_T": "int" if self.indices.dtype.itemsize == 4 else "long",
            "PAIR_T": "int" if index.pairs.dtype.itemsize == 4 else "long",
        }
        return kernels.load_module("sampling/engine/streaming/pairs.cu", macros).get_function(name)

    def _serve(self, bounds: np.ndarray, pair_bytes: float, launch: Any) -> dict[str, Any]:
        """Call ``launch(first, last, slot)`` for every range of sub-graphs that has pairs; copy those to stage before.

        The host does not wait: events order copies and kernels.

        Returns:
            Counts ``subgraphs`` (with transits), ``subgraphs_copied``, ``subgraphs_kept`` (they were on the GPU
            already), ``subgraphs_across_bus``, and ``copied_bytes``.
        """
        import cupy

        stream = cupy.cuda.get_current_stream()
        cost = pair_bytes if self.across_bus else None
        if not self.kept:
            self._places = Places(self.layout.slots)
        held = set(self._places.parts)
        runs, order = plan_step(bounds, self._part_bytes, cost, held, self._rent, self.layout.slots)
        copied = copied_bytes = 0
        for first, last in runs:  # these come first, so that the first copies overlap with them
            launch(first, last, None)
        for part in order:
            slot, absent = self._places.take(part)
            if absent:
                self._copies.wait_event(self._read[slot])
                copied_bytes += self._copy(part, slot)
                self._filled[slot].record(self._copies)
                copied += 1
            stream.wait_event(self._filled[slot])
            launch(part, part + 1, slot)
            self._read[slot].record(stream)
        taken = int((np.diff(bounds) > 0).sum())
        return {
            "subgraphs": taken, "subgraphs_copied": copied, "subgraphs_kept": len(order) - copied,
            "subgraphs_across_bus": taken - len(order), "copied_bytes": copied_bytes,
        }  # fmt: skip

    def _copy(self, part: int, slot: int) -> int:
        """Enqueue the copy of a sub-graph's edges to ``slot``; returns the bytes copied."""
        import cupy

        runtime_api, target, total = cupy.cuda.runtime, self._buffers[slot].data.ptr, 0
        for source, offset, num_bytes in self._pieces(part):
            runtime_api.memcpyAsync(
                target + offset, source, num_bytes, runtime_api.memcpyHostToDevice, self._copies.ptr
            )
            total += num_bytes
        return total

    def _pieces(self, part: int) -> list[tuple[int, int, int]]:
        """Host address, offset in the slot and bytes of each array's part of a sub-graph."""
        begin, end = map(int, self._edges[part : part + 2])
        found, offset = [], 0
        for name, array in self._host.items():
            num_bytes = (end - begin + (name == "prefix")) * array.itemsize
            found.append((array.ctypes.data + begin * array.itemsize, offset, num_bytes))
            offset += num_bytes
        return found

    def _describe(self, record: np.ndarray, part: int, slot: int | None) -> None:
        """Fill in a :data:`STAGED` record: addresses of the sub-graph's edges in ``slot``, or 0 if that is None."""
        record[:] = 0
        if slot is None:
            return
        record["edge_begin"] = self._edges[part]
        base = self._buffers[slot].data.ptr
        for name, (_, offset, _) in zip(self._host, self._pieces(part), strict=True):
            record[name] = base + offset


def largest_weights(indptr: np.ndarray, prefix: np.ndarray) -> np.ndarray:
    """Largest weight of every adjacency list, ``uint32[N]``, 0 for empty lists; ``prefix`` is ``uint64[E + 1]``."""
    most = np.zeros(indptr.size - 1, dtype=np.uint32)
    filled = np.diff(indptr) > 0
    if filled.any():
        most[filled] = np.maximum.reduceat(np.diff(prefix), indptr[:-1][filled]).astype(np.uint32)
    return most
