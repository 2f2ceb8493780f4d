"""The memory of a launch, and the structures that tell the kernels where it is (``plan.cuh`` on this side)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from .types import MAX_HOPS, SampleSpec
from .weights import IntegerWeights

COUNTERS = 256
STATUS_OVERFLOW, STATUS_BAD_SEED, STATUS_STALLED = 1, 2, 4
CTR_TAIL, CTR_ROWS = 64, 128
TABLES = ("direct", "bitmap", "hash")
NARROW = 32
"""Fanouts up to this are drawn one thread per row (``KMAX``); wider ones by a warp per row."""
SCAN_TILE = 1024
MAX_TAG = 2047
ONE_BLOCK_SEEDS = 2048
"""Up to this many seeds are merged by one block, in shared memory."""

_pointer = np.uint64
BATCH = np.dtype(
    [("seeds", _pointer), ("num_seeds", "u4"), ("wide_seeds", "u4"), ("batch_id", "u4"), ("base", "u4"),
     ("tag", "u4"), ("unused", "u4")], align=True,
)  # fmt: skip
TABLE = np.dtype(
    [("words", _pointer), ("keys", _pointer), ("ranks", _pointer), ("order", _pointer), ("stride", "u8"),
     ("order_stride", "u8")], align=True,
)  # fmt: skip
HOP = np.dtype(
    [("fanout", "i4"), ("stride", "i4"), ("row_cap", "u8"), ("pick_cap", "u8"), ("counts", _pointer),
     ("starts", _pointer), ("offsets", _pointer), ("vertices", _pointer), ("neighbors", _pointer),
     ("slots", _pointer), ("trace", _pointer)], align=True,
)  # fmt: skip
PLAN = np.dtype(
    [("indptr", _pointer), ("indices", _pointer), ("prefix", _pointer), ("available", _pointer),
     ("num_nodes", "u8"), ("seed", "u8"), ("host_batches", _pointer), ("batches", _pointer), ("counters", _pointer), ("nodes", _pointer),
     ("node_cap", "u8"), ("inverse", _pointer), ("seed_cap", "u8"), ("seed_hash", _pointer), ("seed_slots", "u8"),
     ("queue", _pointer), ("queue_cap", "u8"), ("enqueued", _pointer), ("scan_state", _pointer),
     ("scan_tiles", "u8"), ("num_hops", "i4"), ("expand_new", "i4"), ("relabel_last", "i4"), ("fetch_size", "i4"),
     ("delay", "u4"), ("paper", "u4"), ("self_reuse", "u4"), ("unused", "u4"), ("table", TABLE), ("reached", TABLE, MAX_HOPS), ("hops", HOP, MAX_HOPS)],
    align=True,
)  # fmt: skip
FINISH = np.dtype(
    [("row_offsets", _pointer), ("row_total", "u8"), ("row_map", _pointer, MAX_HOPS), ("totals", _pointer)], align=True
)
OUT = np.dtype(
    [("nodes", _pointer), ("inverse", _pointer), ("offsets", _pointer, MAX_HOPS), ("counts", _pointer, MAX_HOPS),
     ("neighbors", _pointer, MAX_HOPS), ("positions", _pointer, MAX_HOPS), ("locals", _pointer, MAX_HOPS)], align=True,
)  # fmt: skip
JOB = np.dtype([("plan", PLAN), ("finish", FINISH), ("out", OUT)], align=True)
"""The one argument of every kernel; the kernels of this layer declare its first member only."""

OUT_WORDS = 2 + 5 * MAX_HOPS
_OUT_PACK = struct.Struct(f"={OUT_WORDS}Q").pack_into
_BATCH_PACK = struct.Struct("=QIIIIII").pack_into


def as_argument(struct_array: np.ndarray) -> np.ndarray:
    """The bytes of a one-element structured array as an opaque kernel argument (shares memory).

    CuPy describes an argument's dtype at every launch, which for a structured one takes longer than the launch.
    """
    return struct_array.view(np.dtype(("V", struct_array.dtype.itemsize)))


def power_of_two(n: int, least: int = 1) -> int:
    """The smallest power of two that is at least ``n`` and ``least``."""
    return 1 << (max(n, least) - 1).bit_length()


def seed_capacity(seeds: int) -> int:
    """Seeds that buffers are made for: few sizes, so that workspaces are reused, yet never twice the need for long."""
    return power_of_two(seeds, 64) if seeds <= 1024 else -(-seeds // 1024) * 1024


@dataclass(frozen=True)
class Shape:
    """Capacities of one launch, per mini-batch.

    Attributes:
        num_batches: mini-batches of the launch.
        seed_cap: seeds as given.
        row_caps, pick_caps: rows and picks of each hop.
        strides: picks stored per row and hop; 0 where rows take room from a cursor.
        node_cap: distinct vertices.
        queue_cap: tasks, 0 without a queue.
        table: 0 direct, 1 rank bitmap, 2 hash.
    """

    num_batches: int
    seed_cap: int
    row_caps: tuple[int, ...]
    pick_caps: tuple[int, ...]
    strides: tuple[int, ...]
    node_cap: int
    queue_cap: int
    table: int

    @property
    def row_total(self) -> int:
        return sum(self.row_caps)


class Sizer:
    """Chooses capacities and the table kind for a graph, a spec and a memory bound."""

    def __init__(
        self, graph: Any, spec: SampleSpec, scratch_bytes: int, queued: bool, traced: bool, table: str | None = None
    ) -> None:
        self.num_nodes, self.num_edges = int(graph.num_nodes), int(graph.num_edges)
        self.max_degree = max(1, int(graph.max_in_degree))
        self.spec, self.scratch_bytes, self.queued, self.traced = spec, scratch_bytes, queued, traced
        self.forced_table = None if table is None else TABLES.index(table)
        self.id_bytes = graph.indices.dtype.itemsize
        self.strides = tuple(self._stride(k) for k in spec.fanouts)

    def _stride(self, fanout: int) -> int:
        if fanout < 0:
            return 0
        stride = fanout if self.spec.replace else min(fanout, self.max_degree)
        return stride if stride <= 2 * NARROW else 0

    def shape(self, num_batches: int, seed_cap: int, margin: float = 1.0) -> Shape:
        """Capacities for mini-batches of up to ``seed_cap`` seeds.

        The start is the most that fanouts and graph allow; where that exceeds the memory bound, rows of later
        hops are cut in proportion and an overflow is found and repeated with a larger ``margin``.
        """
        shrink = 1.0
        while True:
            shape = self._shape(num_batches, seed_cap, min(1.0, shrink * margin))
            if self.num_bytes(shape) <= self.scratch_bytes * max(1.0, margin) or shrink < 1e-4:
                return shape
            shrink *= 0.7

    def _shape(self, num_batches: int, seed_cap: int, share: float) -> Shape:
        n = self.num_nodes
        fresh = known = min(seed_cap, n)
        row_caps: list[int] = []
        pick_caps: list[int] = []
        for hop, (fanout, stride) in enumerate(zip(self.spec.fanouts, self.strides, strict=True)):
            rows = known if self.spec.expand == "frontier" or hop == 0 else fresh
            row_caps.append(rows)
            per_row = stride or (self.max_degree if fanout < 0 else fanout)
            limit = rows * per_row
            if not stride and not self.spec.replace:
                limit = min(limit, self.num_edges)
            picks = limit if stride else max(1024, int(limit * share))
            pick_caps.append(max(1, picks))
            fresh = min(n, max(64, int(rows * per_row * share)))
            known = min(n, known + fresh)
        queue_cap = sum(row_caps) if self.queued else 0
        shape = Shape(num_batches, seed_cap, tuple(row_caps), tuple(pick_caps), self.strides, known, queue_cap, 0)
        return Shape(*(list(vars(shape).values())[:-1]), self._table(shape))

    def _table(self, shape: Shape) -> int:
        if self.forced_table is not None:
            return self.forced_table
        # A direct table is one access per look-up; it is worth its memory while it takes half of what there is.
        sizes = [shape.num_batches * self.table_bytes(shape, kind) for kind in range(3)]
        if sizes[0] <= self.scratch_bytes // 2:
            return 0
        return 1 if sizes[1] <= sizes[2] else 2

    def table_bytes(self, shape: Shape, kind: int) -> int:
        """Bytes of all vertex tables of one mini-batch."""
        stamps = shape.row_caps[1:] if self.queued else ()
        if kind == 0:
            return 4 * self.num_nodes * (1 + len(stamps))
        if kind == 1:
            return self.num_nodes // 8 * (2 + len(stamps)) + 4 * shape.node_cap
        return sum(12 * power_of_two(2 * cap) for cap in (shape.node_cap, *stamps))

    def num_bytes(self, shape: Shape) -> int:
        """Scratch bytes of a workspace of this shape."""
        per_batch = self.table_bytes(shape, shape.table) + shape.node_cap * self.id_bytes + 8 * shape.row_total
        for rows, picks, stride in zip(shape.row_caps, shape.pick_caps, shape.strides, strict=True):
            per_batch += rows * (12 + (0 if stride else 8) + (self.id_bytes + 4 if self.queued else 0))
            per_batch += picks * (self.id_bytes + 4) + (32 * rows if self.traced else 0)
        per_batch += shape.queue_cap * (16 if self.traced else 8) + 4 * shape.seed_cap
        per_batch += 8 * power_of_two(shape.seed_cap * 4 // 3 + 1)
        return per_batch * shape.num_batches


class Workspace:
    """Device buffers of one shape and the plan that points at them.

    ``host_batches`` and ``host_totals`` are pinned host memory: the first kernel of a launch reads the one, the
    last writes the other, so that no copy stands between.
    """

    def __init__(
        self, graph: Any, spec: SampleSpec, weights: IntegerWeights | None, shape: Shape, queued: bool, traced: bool,
        fetch_size: int, paper: bool,
    ) -> None:  # fmt: skip
        import cupy

        self.shape, self.spec, self.queued = shape, spec, queued
        self.next_base, self.next_tag, self.last_base = 1, 1, 0
        self._keep: list[Any] = []
        self.graph_exec: Any = None  # filled by the strategy `captured`
        b, ids = shape.num_batches, graph.indices.dtype
        self.job = np.zeros(1, dtype=JOB)
        self.args = as_argument(self.job)
        plan = self.plan = self.job["plan"]

        def room(count: int, dtype: Any, zero: bool = False) -> Any:
            array = (cupy.zeros if zero else cupy.empty)(max(1, count), dtype)
            self._keep.append(array)
            return array

        self.num_bytes = 0
        self.batches = room(b * BATCH.itemsize, np.uint8)
        self.counters = room(b * COUNTERS, np.uint32, zero=True)
        self.nodes = room(b * shape.node_cap, ids)
        self.inverse = room(b * shape.seed_cap, np.uint32)
        # Up to three quarters full: the capacity is itself rounded up, so it is mostly half full.
        self.seed_slots = power_of_two(shape.seed_cap * 4 // 3 + 1, 64)
        self.seed_hash = seed_hash = room(b * self.seed_slots, np.uint64)
        self.scan_tiles = -(-shape.row_total // SCAN_TILE) + 1
        self.scan_state = scan_state = room(b * self.scan_tiles, np.uint64, zero=True)
        self.queue = room(b * shape.queue_cap, np.uint64, zero=True) if queued else None
        self.enqueued = room(b * shape.queue_cap, np.uint64, zero=True) if queued and traced else None
        self.row_offsets = room(b * (shape.row_total + 1), np.int64)
        self.arrived = room(MAX_HOPS + 1, np.uint32, zero=True)

        fields: dict[str, Any] = dict(
            indptr=graph.indptr.data.ptr, indices=graph.indices.data.ptr, num_nodes=graph.num_nodes, seed=spec.seed,
            batches=self.batches.data.ptr, counters=self.counters.data.ptr, nodes=self.nodes.data.ptr,
            node_cap=shape.node_cap, inverse=self.inverse.data.ptr, seed_cap=shape.seed_cap,
            seed_hash=seed_hash.data.ptr, seed_slots=self.seed_slots, scan_state=scan_state.data.ptr,
            scan_tiles=self.scan_tiles, num_hops=spec.num_hops, expand_new=spec.expand == "new", relabel_last=1,
            fetch_size=fetch_size, paper=paper, queue_cap=shape.queue_cap,
            queue=0 if self.queue is None else self.queue.data.ptr,
            enqueued=0 if self.enqueued is None else self.enqueued.data.ptr,
            prefix=0 if weights is None else weights.prefix.data.ptr,
            available=0 if weights is None else weights.available.data.ptr,
        )  # fmt: skip
        for name, value in fields.items():
            plan[name] = value
        self.tables: list[dict[str, Any]] = [self._table(plan["table"][0], graph.num_nodes, shape.node_cap, True, room)]
        self.row_map: list[Any] = []
        self.traces: list[Any] = []
        for hop in range(spec.num_hops):
            rows, picks = shape.row_caps[hop], shape.pick_caps[hop]
            entry = plan["hops"][0, hop]
            entry["fanout"], entry["stride"] = spec.fanouts[hop], shape.strides[hop]
            entry["row_cap"], entry["pick_cap"] = rows, picks
            entry["counts"] = room(b * rows, np.int32).data.ptr
            entry["starts"] = room(b * rows, np.int64).data.ptr
            if not shape.strides[hop]:
                entry["offsets"] = room(b * rows, np.int64).data.ptr
            entry["neighbors"] = room(b * picks, ids).data.ptr
            entry["slots"] = room(b * picks, np.int32).data.ptr
            if traced:
                self.traces.append(room(b * rows * 4, np.uint64))
                entry["trace"] = self.traces[-1].data.ptr
            if queued:
                vertices = room(b * rows, ids)
                entry["vertices"] = vertices.data.ptr
                self.row_map.append(room(b * rows, np.int32))
                if hop:
                    self.tables.append(self._table(plan["reached"][0, hop], graph.num_nodes, rows, False, room))
        finish = self.job["finish"][0]
        finish["row_offsets"], finish["row_total"] = self.row_offsets.data.ptr, shape.row_total
        for hop, rows_of_hop in enumerate(self.row_map):
            finish["row_map"][hop] = rows_of_hop.data.ptr
        self.num_bytes = sum(a.nbytes for a in self._keep)

        pinned = cupy.cuda.alloc_pinned_memory(b * BATCH.itemsize)
        self.host_batches = np.frombuffer(pinned, BATCH, b)
        self._batch_bytes = np.frombuffer(pinned, np.uint8, b * BATCH.itemsize)
        plan["host_batches"] = pinned.ptr
        pinned_totals = cupy.cuda.alloc_pinned_memory(b * 64 * 8)
        self.host_totals = np.frombuffer(pinned_totals, np.int64, b * 64)
        self.host_totals[:] = 0
        self.totals_view = memoryview(self.host_totals)  # reads an item in a fraction of NumPy's time
        finish["totals"] = pinned_totals.ptr
        self._job_bytes = self.job.view(np.uint8)
        self._keep += [pinned, pinned_totals]

    def _table(self, entry: Any, num_nodes: int, expected: int, main: bool, room: Any) -> dict[str, Any]:
        b, kind = self.shape.num_batches, self.shape.table
        arrays: dict[str, Any] = {}
        if kind == 0:
            arrays["words"] = room(b * num_nodes, np.uint32, zero=True)
            entry["stride"] = num_nodes
        elif kind == 1:
            stride = -(-num_nodes // 32)
            arrays["words"] = room(b * stride, np.uint32, zero=True)
            entry["stride"] = stride
            if main:
                arrays["ranks"] = room(b * stride, np.uint32)
                arrays["order"] = room(b * self.shape.node_cap, np.uint32)
                entry["order_stride"] = self.shape.node_cap
                self.rank_tiles = -(-stride // SCAN_TILE) + 1
                self.rank_state = room(b * self.rank_tiles, np.uint64)
        else:
            slots = power_of_two(2 * expected, 64)
            arrays["keys"] = room(b * slots, np.uint64, zero=True)
            arrays["words"] = room(b * slots, np.uint32)
            entry["stride"] = slots
        for name, array in arrays.items():
            entry[name] = array.data.ptr
        return arrays

    def write_batch(self, i: int, seeds: int, count: int, wide: bool, batch_id: int, base: int, tag: int) -> None:
        """Fill host record ``i`` (struct: several times faster than field by field)."""
        _BATCH_PACK(self._batch_bytes, i * BATCH.itemsize, seeds, count, wide, batch_id, base, tag, 0)

    def write_out(self, words: list[int]) -> None:
        """Fill the ``Out`` of the argument, for a launch of one mini-batch."""
        _OUT_PACK(self._job_bytes, JOB.fields["out"][1], *words)  # type: ignore[index]

    def clear_tables(self) -> None:
        """Empty the tables that carry no stamp (asynchronous; part of a captured graph)."""
        if self.shape.table:
            for table in self.tables:
                _zero_async(table["keys" if self.shape.table == 2 else "words"])
            if self.shape.table == 1:
                _zero_async(self.rank_state)

    def clear_seeds(self) -> None:
        """What the kernel `begin` clears by itself, for launches that take its place (asynchronous)."""
        self.seed_hash.data.memset_async(0xFF, self.seed_hash.nbytes)
        _zero_async(self.counters)
        _zero_async(self.scan_state)

    def stamp(self) -> tuple[int, int]:
        """Base and tag for the next launch; wraps by clearing what the stamps protect."""
        if self.next_base + self.shape.node_cap + 2 >= 2**32:
            for table in self.tables:
                table["words"].fill(0)
            self.next_base = 1
        if self.next_tag > MAX_TAG:
            if self.queue is not None:
                self.queue.fill(0)
            self.next_tag = 1
        stamps = self.last_base, _ = self.next_base, self.next_tag
        self.next_base += self.shape.node_cap + 2
        self.next_tag += 1
        return stamps


def _zero_async(array: Any) -> None:
    import cupy

    array.data.memset_async(0, array.nbytes, cupy.cuda.get_current_stream())
