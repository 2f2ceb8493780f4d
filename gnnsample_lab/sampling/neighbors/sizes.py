"""How much memory a launch gets: capacities per hop, and which vertex table suits the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gnnsample_lab.device import runtime

from .plan import BATCH, COUNTERS, HUB, MANY_SEEDS, NARROW, NUMBER_BLOCK, SCAN_TILE, SPLIT, TABLES
from .spec import MAX_HOPS, SampleSpec

MAX_MARGIN = 4
"""An overflow doubles the margin, up to this value, at which buffers may take all of ``scratch_bytes``."""
MAX_ROWS = 2**31 - 1
"""Most vertices of a mini-batch, and most rows of all its hops together: local ids and queue slots are 32-bit."""
MAX_BATCHES = 1024
"""Most mini-batches of a launch."""


def power_of_two(n: int, least: int = 1) -> int:
    """The smallest power of two that is at least ``n`` and ``least``."""
    return 1 << (max(n, least) - 1).bit_length()


def seed_capacity(seeds: int) -> int:
    """Seeds that buffers have room for: rounded up, so that batches of similar sizes share a workspace.

    Up to 1024 seeds the size is a power of two (at least 64), above it a multiple of 1024.
    """
    return power_of_two(seeds, 64) if seeds <= 1024 else -(-seeds // 1024) * 1024


def seed_slots(seed_cap: int) -> int:
    """Slots of the hash that merges duplicate seeds, a power of two: it gets at most three quarters full."""
    return power_of_two(seed_cap * 4 // 3 + 1, 64)


def seed_blocks(seed_cap: int) -> int:
    """Blocks per mini-batch of the kernels ``begin_count`` and ``begin_number``."""
    return -(-seed_cap // NUMBER_BLOCK)


def hub_capacity(limit: int, num_edges: int, max_degree: int, rows: int, repeated: int = 0) -> int:
    """Most hubs of a hop, vertices of more than ``limit`` candidates; 0: there are none, or none are to be listed.

    Args:
        limit: 0: none are to be listed.
        num_edges, max_degree: of the graph.
        rows: vertices of a hop, at most.
        repeated: rows that may be vertices of other rows.
    """
    if not 0 < limit < max_degree:
        return 0
    distinct = num_edges // (limit + 1)
    # One word counts what is listed, in 24 bits, and their candidates by four, in 40 (hubs.cuh).
    if distinct + repeated >= 1 << 24 or num_edges + repeated * max_degree >= 1 << 40:
        return 0
    return min(rows, distinct)


@dataclass(frozen=True)
class Shape:
    """Capacities of one launch, per mini-batch.

    Attributes:
        num_batches: mini-batches of the launch.
        seed_cap: given seeds, duplicates included.
        row_caps, pick_caps: rows and picks of each hop.
        strides: pick places per row of each hop; 0 where rows reserve places through an atomic cursor.
        node_cap: distinct vertices.
        queue_cap: tasks, chunks of hubs included where teams serve the queue; 0 without one.
        table: kind of the vertex table: 0 direct, 1 rank bitmap, 2 hash.
        hub_cap: hubs of a hop that kernels can list to share them (``hops/hubs.cuh``); 0: no hop has any.
        hub_limit: vertices of more candidates are hubs.
    """

    num_batches: int
    seed_cap: int
    row_caps: tuple[int, ...]
    pick_caps: tuple[int, ...]
    strides: tuple[int, ...]
    node_cap: int
    queue_cap: int
    table: int
    hub_cap: int = 0
    hub_limit: int = 0

    @property
    def row_total(self) -> int:
        return sum(self.row_caps)


class Sizer:
    """Chooses capacities and the table kind for a graph, a spec and a memory bound."""

    def __init__(
        self,
        graph: Any,
        spec: SampleSpec,
        scratch_bytes: int,
        queued: bool,
        traced: bool,
        table: str | None = None,
        hub_limit: int = 0,
        chunked: bool = False,
    ) -> None:
        self.hub_limit, self.chunked = hub_limit, chunked
        self.num_nodes, self.num_edges = int(graph.num_nodes), int(graph.num_edges)
        self.max_degree = max(1, int(graph.max_in_degree))
        self.spec, self.scratch_bytes, self.queued, self.traced = spec, scratch_bytes, queued, traced
        self.l2_bytes = int(runtime.device_properties()["l2CacheSize"])
        self.forced_table = None if table is None else TABLES.index(table)
        self.id_bytes = graph.indices.dtype.itemsize
        self.strides = tuple(self._stride(k) for k in spec.fanouts)

    def _stride(self, fanout: int) -> int:
        if fanout < 0:
            return 0
        stride = fanout if self.spec.replace else min(fanout, self.max_degree)
        return stride if stride <= 2 * NARROW else 0

    def shape(self, num_batches: int, seed_cap: int, margin: float = 1.0) -> Shape:
        """Capacities for mini-batches of up to ``seed_cap`` seeds, within the memory bound.

        Buffers hold the most that fanouts and graph allow, if that fits a quarter of the bound. Otherwise rows of
        later hops are cut in proportion. When kernels find an overflow, the caller asks again with a larger
        ``margin``; at margin 4 buffers may take the whole bound.

        Raises:
            MemoryError: not even the smallest buffers fit ``scratch_bytes``.
        """
        while margin <= MAX_MARGIN:
            budget = int(self.scratch_bytes * margin / MAX_MARGIN)
            share = 1.0
            while share > 1e-5:
                shape = self._shape(num_batches, seed_cap, share, budget)
                if self.num_bytes(shape) <= budget and shape.row_total <= MAX_ROWS:
                    return shape
                share *= 0.7
            margin *= 2
        raise self.too_small()

    def largest_shape(self, seed_cap: int, places: Sequence[int]) -> Shape:
        """Capacities that no mini-batch of up to ``seed_cap`` seeds exceeds, for callers that cannot draw it again.

        The table is direct or a bitmap.

        Args:
            seed_cap: given seeds, duplicates included.
            places: pick places per row of each hop; 0 where the caller finds room for picks itself.

        Raises:
            MemoryError: the buffers do not fit ``scratch_bytes``.
        """
        shape = self._shape(1, seed_cap, 1.0, self.scratch_bytes)
        picks = tuple(max(1, rows * each) for rows, each in zip(shape.row_caps, places, strict=True))
        shape = replace(shape, pick_caps=picks)
        shape = replace(shape, table=min(self._table(shape, self.scratch_bytes), 1))
        if self.num_bytes(shape) > self.scratch_bytes or shape.row_total > MAX_ROWS:
            raise self.too_small()
        return shape

    def too_small(self) -> MemoryError:
        """The error that names the bound."""
        return MemoryError(
            f"a mini-batch does not fit scratch_bytes={self.scratch_bytes}: "
            "raise it, or lower fanouts or batch size"
        )

    def batches_at_once(self, seed_cap: int) -> tuple[int, int]:
        """Mini-batches of up to ``seed_cap`` seeds that share a launch, both numbers powers of two.

        Returns:
            ``(begin, most)``: the number to start with, while nothing is measured, and the largest number. ``most``
            mini-batches fit the memory bound without a cut. If the tables of one mini-batch exceed the L2 cache,
            ``most`` together also keep the kind of table that one mini-batch has alone. ``begin`` mini-batches
            always keep that kind; if the tables of one fit half of the L2 cache, so do the tables of all ``begin``
            together, because the other half serves the data that kernels stream.
        """
        budget, half = self.scratch_bytes // MAX_MARGIN, self.l2_bytes // 2
        alone = self._shape(1, seed_cap, 1.0, budget)
        one = self.table_bytes(alone, alone.table)
        begin = most = 1
        while most < MAX_BATCHES:
            shape = self._shape(2 * most, seed_cap, 1.0, budget)
            if self.num_bytes(shape) > budget:
                break
            if shape.table != alone.table and one > self.l2_bytes:
                break  # one mini-batch has this kind although it exceeds the cache, so the other kind is slower
            most *= 2
            if shape.table == alone.table and begin == most // 2 and (one > half or most * one <= half):
                begin = most
        return begin, most

    def _shape(self, num_batches: int, seed_cap: int, share: float, budget: int) -> Shape:
        n = min(self.num_nodes, MAX_ROWS)
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
        queue_cap = sum(row_caps) + self._chunks(row_caps) if self.queued else 0
        hubs = hub_capacity(self.hub_limit, self.num_edges, self.max_degree, max(row_caps), seed_cap)
        shape = Shape(
            num_batches, seed_cap, tuple(row_caps), tuple(pick_caps), self.strides, known, queue_cap, 0, hubs,
            self.hub_limit if hubs else 0,
        )  # fmt: skip
        return replace(shape, table=self._table(shape, budget))

    def _chunks(self, row_caps: Sequence[int]) -> int:
        """Most tasks that the queue holds besides a task for each row: those of hubs, ``SPLIT`` candidates each."""
        if not self.chunked or self.spec.rule != 1 or self.max_degree <= SPLIT:
            return 0
        # A hub of d candidates has at most 2 d / SPLIT chunks, because d > SPLIT.
        each, together = -(-self.max_degree // SPLIT), 2 * self.num_edges // SPLIT
        return sum(min(rows * each, together) for rows in row_caps)

    def _table(self, shape: Shape, budget: int) -> int:
        if self.forced_table is not None:
            return self.forced_table
        sizes = [shape.num_batches * self.table_bytes(shape, kind) for kind in range(3)]
        # A direct table costs one access per look-up while it stays in the L2 cache. A larger one is slower than a
        # bitmap (32 times smaller) if the batch fills more entries than the bitmap has words to scan for its ranks.
        fits = self.num_bytes(replace(shape, table=0)) <= budget
        if fits and (sizes[0] <= self.l2_bytes or shape.node_cap < self.num_nodes // 32):
            return 0
        return 1 if sizes[1] <= max(sizes[2], self.l2_bytes) else 2

    def table_bytes(self, shape: Shape, kind: int) -> int:
        """Bytes of all vertex tables of one mini-batch, as :class:`~.workspace.Workspace` allocates them."""
        stamps = shape.row_caps[1:] if self.queued else ()
        if kind == 0:
            return 4 * self.num_nodes * (1 + len(stamps))
        if kind == 1:
            words = -(-self.num_nodes // 32)
            return 4 * words * (6 + len(stamps)) + 4 * shape.node_cap + 8 * (-(-words // SCAN_TILE) + 1)
        return sum(12 * power_of_two(2 * cap, 64) for cap in (shape.node_cap, *stamps))

    def num_bytes(self, shape: Shape) -> int:
        """Scratch bytes of a :class:`~.workspace.Workspace` of this shape, to the byte."""
        ids = self.id_bytes
        per_batch = BATCH.itemsize + 4 * COUNTERS + self.table_bytes(shape, shape.table)
        per_batch += ids * shape.node_cap + 4 * shape.seed_cap + 16 * seed_slots(shape.seed_cap)
        per_batch += 4 * seed_blocks(shape.seed_cap) if shape.seed_cap > MANY_SEEDS else 0
        per_batch += 8 * (-(-shape.row_total // SCAN_TILE) + 1) + 8 * (shape.row_total + 1)
        for rows, picks, stride in zip(shape.row_caps, shape.pick_caps, shape.strides, strict=True):
            per_batch += rows * (12 + (0 if stride else 8) + (ids + 4 if self.queued else 0))
            per_batch += picks * (ids + 4) + (32 * rows if self.traced else 0)
        per_batch += shape.queue_cap * (16 if self.traced else 8) + HUB.itemsize * shape.hub_cap
        return per_batch * shape.num_batches + 4 * (MAX_HOPS + 1)
