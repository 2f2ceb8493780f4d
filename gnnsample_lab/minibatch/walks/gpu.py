"""Random-walk mini-batches on the GPU: any number in one launch, one wait for their sizes (``pinsage.cu``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, runtime, streams
from gnnsample_lab.minibatch.gpu.arena import LazyTuple
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.minibatch.waves import Waves
from gnnsample_lab.sampling.neighbors.plan import as_argument
from gnnsample_lab.sampling.neighbors.sizes import power_of_two
from gnnsample_lab.sampling.neighbors.spec import HopPicks
from gnnsample_lab.sampling.walks.pinsage import WalkSpec

TOTALS = 40
"""64-bit counters of a batch: [0] vertices, [1 + h] vertices before hop h, [17 + h] picks of hop h, last the fault."""
MAX_AT_ONCE = 64
_SHARED_BYTES = 48 << 10
_BLOCKS_PER_SM = 16
"""Most blocks of the walk kernel per multiprocessor."""
_WALKS = np.dtype(
    [("indptr", "u8"), ("indices", "u8"), ("nodes", "u8"), ("keys", "u8"), ("locals", "u8"), ("totals", "u8"),
     ("counts", "u8"), ("picks", "u8"), ("votes", "u8"), ("node_cap", "u8"), ("slots", "u8"), ("row_stride", "u8"),
     ("seed", "u8"), ("direct", "u4"), ("keep", "u4"), ("num_walks", "u4"), ("walk_length", "u4"), ("restart", "u4"),
     ("ends", "u4")], align=True,
)  # fmt: skip
"""``struct Walks`` of ``pinsage.cu``."""


class _Shape:
    """Capacities for mini-batches of up to ``seeds`` seeds: the most that they can need, so nothing ever overflows."""

    def __init__(self, num_nodes: int, spec: WalkSpec, seeds: int, keep: int, id_bytes: int) -> None:
        self.row_caps, reached = [], min(seeds, num_nodes)
        for _ in range(spec.num_hops):
            self.row_caps.append(reached)
            reached = min(num_nodes, reached * (1 + keep))
        self.node_cap, self.rows = reached, sum(self.row_caps)
        self.slots = power_of_two(2 * reached, 64)
        self.direct = num_nodes <= self.slots
        if self.direct:
            self.slots = num_nodes
        self.num_bytes = (
            reached * id_bytes + self.slots * 12 + TOTALS * 8 + self.rows * (4 + keep * (id_bytes + 4))
        )


class _Scratch:
    """The arrays of one launch over ``count`` mini-batches, kept from launch to launch."""

    def __init__(self, graph: Any, spec: WalkSpec, shape: _Shape, count: int, keep: int) -> None:
        import cupy

        ids = graph.indices.dtype
        self.shape, self.count = shape, count
        self.nodes = cupy.empty(count * shape.node_cap, ids)
        self.keys = cupy.empty(count * shape.slots, np.uint64)
        self.locals = cupy.empty(count * shape.slots, np.uint32)
        self.totals = cupy.empty(count * TOTALS, np.uint64)
        self.counts = cupy.empty(count * shape.rows, np.int32)
        self.picks = cupy.empty(count * shape.rows * keep, ids)
        self.votes = cupy.empty(count * shape.rows * keep, np.int32)
        plan = np.zeros(1, dtype=_WALKS)
        for name in ("nodes", "keys", "locals", "totals", "counts", "picks", "votes"):
            plan[name] = getattr(self, name).data.ptr
        plan["indptr"], plan["indices"] = graph.indptr.data.ptr, graph.indices.data.ptr
        plan["node_cap"], plan["slots"], plan["row_stride"] = shape.node_cap, shape.slots, shape.rows
        plan["seed"], plan["direct"], plan["keep"] = spec.seed, shape.direct, keep
        plan["num_walks"], plan["walk_length"] = spec.num_walks, spec.walk_length
        plan["restart"], plan["ends"] = spec.restart_below, spec.restart_ends
        self.args = as_argument(plan)

    @property
    def num_bytes(self) -> int:
        return self.count * self.shape.num_bytes


class WalkEngine:
    """Samples on the GPU for one :class:`~.sampler.PinSAGESampler`."""

    def __init__(self, graph: Any, spec: WalkSpec, scratch_bytes: int | None) -> None:
        self.graph, self.spec = graph, spec
        self.keep = min(spec.fanouts[0], spec.num_visits)
        self.id_bytes = graph.indices.dtype.itemsize
        self.lanes = min(32, power_of_two(spec.num_walks, 4))
        self.scratch_limit = runtime.scratch_bytes(scratch_bytes)
        macros: dict[str, int | str] = {"ID_T": "int" if self.id_bytes == 4 else "long", "LANES": self.lanes}
        module = kernels.load_module("sampling/walks/pinsage.cu", macros)
        names = ("begin", "close_level", "walk", "gather_counts", "emit", "copy_nodes")
        self.k = {name: module.get_function(name).kernel for name in names}
        per_row = spec.num_visits * (self.id_bytes + 4)
        fitting = _SHARED_BYTES // per_row  # at least one, because of MAX_VISITS
        self.groups = max(1, min(128 // self.lanes, fitting))
        self.shared = self.groups * per_row
        self._scratch: _Scratch | None = None
        self.waves: dict[int, Waves] = {}  # by seed capacity
        self._turns = streams.Turns(graph.indptr, graph.indices)
        self._no_position: Any = None

    @property
    def scratch_bytes(self) -> int:
        return 0 if self._scratch is None else self._scratch.num_bytes

    def sample_many(
        self, seeds: Sequence[tuple[np.ndarray, np.ndarray]], first_batch_id: int
    ) -> list[MiniBatch]:
        """Sample mini-batches with consecutive batch ids; :mod:`.waves` chooses how many share a launch.

        ``seeds``: per mini-batch its distinct seeds and its ``seed_inverse``, checked, on the host.
        """
        most = power_of_two(max(s.size for s, _ in seeds), 64)
        shape = _Shape(self.graph.num_nodes, self.spec, most, self.keep, self.id_bytes)
        if len(seeds) == 1:
            return self._wave(shape, seeds, first_batch_id)
        waves = self.waves.get(most)
        if waves is None:
            at_once = max(1, min(MAX_AT_ONCE, self.scratch_limit // shape.num_bytes))
            waves = self.waves[most] = Waves(at_once, at_once)
        result: list[MiniBatch] = []
        for size in waves.timed(len(seeds)):
            begin = len(result)
            result += self._wave(shape, seeds[begin : begin + size], first_batch_id + begin)
        return result

    def _take_scratch(self, shape: _Shape, count: int) -> _Scratch:
        held = self._scratch
        if held is None or held.count < count or held.shape.row_caps[0] < shape.row_caps[0]:
            self._scratch = None  # give the memory back first
            with streams.leasing(self._turns):
                held = self._scratch = _Scratch(self.graph, self.spec, shape, count, self.keep)
        return held

    def _grid(self, items: int, per_block: int, rows: int) -> tuple[int, int]:
        most = max(1, _BLOCKS_PER_SM * runtime.num_sms() // rows)
        return max(1, min(most, -(-items // per_block))), rows

    def _wave(
        self, shape: _Shape, seeds: Sequence[tuple[np.ndarray, np.ndarray]], first_batch_id: int
    ) -> list[MiniBatch]:
        import cupy

        count, hops, k = len(seeds), self.spec.num_hops, self.k
        self._turns.take()
        ws = self._take_scratch(shape, count)
        begins = np.concatenate([[0], np.cumsum([s.size for s, _ in seeds])])
        staged = cupy.asarray(np.concatenate([begins, *(s for s, _ in seeds)]).astype(np.int64, copy=False))
        inverse = cupy.asarray(np.concatenate([i for _, i in seeds]).astype(np.int64, copy=False))
        ws.keys.data.memset_async(0, count * ws.shape.slots * 8)
        ws.totals.data.memset_async(0, ws.totals.nbytes)
        seed_grid = self._grid(int(np.diff(begins).max()), 128, count)
        k["begin"](seed_grid, (128,), (ws.args, staged[count + 1 :], staged))
        first_row = 0
        for hop, cap in enumerate(ws.shape.row_caps):
            grid = self._grid(cap, self.groups, count)
            walk_args = (ws.args, np.int32(hop), np.uint32(first_batch_id), np.uint64(first_row))
            k["walk"](grid, (self.groups * self.lanes,), walk_args, shared_mem=self.shared)
            k["close_level"]((count,), (32,), (ws.args, np.int32(hop)))
            first_row += cap
        totals = (
            ws.totals[: count * TOTALS].get().astype(np.int64).reshape(count, TOTALS)
        )  # the host waits here
        if totals[:, -1].any():
            self._scratch = None
            raise RuntimeError(
                "a random walk found no room for a vertex: other work on the GPU has overwritten its memory; "
                "no sample was made"
            )
        made = self._emit(
            ws, totals[:, 1 : 2 + hops], totals[:, 17 : 17 + hops], inverse, seeds, first_batch_id
        )
        self._turns.leave()
        return made

    def _emit(
        self,
        ws: _Scratch,
        levels: np.ndarray,
        edges: np.ndarray,
        inverse: Any,
        seeds: Sequence[Any],
        first: int,
    ) -> list[MiniBatch]:
        """Allocate arrays of exact size and write all mini-batches; asynchronous."""
        import cupy

        count, hops, k, ids = len(seeds), self.spec.num_hops, self.k, self.graph.indices.dtype
        rows = levels[:, :-1]
        row_begin = _exclusive(rows.ravel())
        edge_begin = _exclusive(edges.ravel())
        node_begin = _exclusive(levels[:, -1])
        scratch_row = np.tile(_exclusive(np.array(ws.shape.row_caps))[:-1], count)
        batch = np.repeat(np.arange(count), hops)
        segments = np.stack([row_begin[:-1], edge_begin[:-1], rows.ravel(), batch, scratch_row], axis=1)
        described = cupy.asarray(np.concatenate([node_begin, segments.ravel()]))
        segment_args = described[count + 1 :]
        num_rows, num_edges = int(row_begin[-1]), int(edge_begin[-1])
        ready = streams.Ready()
        nodes = streams.empty(int(node_begin[-1]), ids, ready)
        counts = streams.empty(num_rows, np.int32, ready)
        offsets = streams.empty(num_rows + count * hops, np.int64, ready)
        neighbors = streams.empty(num_edges, ids, ready)
        votes, local = (streams.empty(num_edges, np.int32, ready) for _ in range(2))
        inverse = streams.leased(inverse, ready)
        most_rows, block = int(rows.max()), (256,)
        grid = self._grid(int(levels[:, -1].max()), 256, count)
        k["copy_nodes"](grid, block, (ws.args, described, nodes))
        grid = self._grid(most_rows, 256, count * hops)
        k["gather_counts"](grid, block, (ws.args, segment_args, counts))
        ends = cupy.cumsum(counts, dtype=np.int64)
        grid = self._grid(most_rows * self.keep, 256, count * hops)
        k["emit"](grid, block, (ws.args, segment_args, counts, ends, offsets, neighbors, votes, local))
        longest = int(edges.max()) if edges.size else 0
        if self._no_position is None or self._no_position.size < longest:
            self._no_position = streams.leased(cupy.full(longest, -1, dtype=np.int64), self._turns)
        minus_one = streams.leased(self._no_position, ready)
        shared = _Parts(nodes, counts, offsets, neighbors, votes, local, minus_one)
        seed_begin = _exclusive(np.array([i.size for _, i in seeds]))
        batches = []
        for i in range(count):
            part = slice(i * hops, (i + 1) * hops + 1)
            view = _View(
                shared, i * hops, row_begin[part].tolist(), edge_begin[part].tolist(),
                nodes[int(node_begin[i]) : int(node_begin[i + 1])],
            )  # fmt: skip
            inverted = inverse[int(seed_begin[i]) : int(seed_begin[i + 1])]
            rows_of, local_of = LazyTuple(hops, view.picks), LazyTuple(hops, view.local)
            batches.append(
                MiniBatch(
                    view.nodes, tuple(levels[i].tolist()), rows_of, local_of, inverted, first + i, self.spec,
                    self.graph, pick_weights=LazyTuple(hops, view.votes), ready=ready,
                )
            )  # fmt: skip
        return batches


class _Parts:
    """The arrays of a launch, which concatenate all mini-batches."""

    def __init__(self, *arrays: Any) -> None:
        self.nodes, self.counts, self.offsets, self.neighbors, self.votes, self.local, self.minus_one = arrays


class _View:
    """One mini-batch's part of a :class:`_Parts`."""

    def __init__(self, parts: _Parts, segment: int, rows: list[int], edges: list[int], nodes: Any) -> None:
        self.parts, self.segment, self.rows, self.edges, self.nodes = parts, segment, rows, edges, nodes

    def picks(self, hop: int) -> HopPicks:
        p, r0, r1, at = self.parts, self.rows[hop], self.rows[hop + 1], self.segment + hop
        chosen = slice(self.edges[hop], self.edges[hop + 1])
        positions = p.minus_one[: self.edges[hop + 1] - self.edges[hop]]
        offsets = p.offsets[r0 + at : r1 + at + 1]
        return HopPicks(self.nodes[: r1 - r0], p.counts[r0:r1], p.neighbors[chosen], positions, offsets)

    def local(self, hop: int) -> Any:
        return self.parts.local[self.edges[hop] : self.edges[hop + 1]]

    def votes(self, hop: int) -> Any:
        return self.parts.votes[self.edges[hop] : self.edges[hop + 1]]


def _exclusive(sizes: np.ndarray) -> np.ndarray:
    """Exclusive prefix sums of ``sizes`` and their total: ``int64[n + 1]``."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)])
