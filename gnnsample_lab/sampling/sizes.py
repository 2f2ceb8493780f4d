"""How much memory a launch gets: capacities per hop, and which vertex table suits the graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gnnsample_lab.device import runtime

from .plan import NARROW, TABLES
from .types import SampleSpec


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
        self,
        graph: Any,
        spec: SampleSpec,
        scratch_bytes: int,
        queued: bool,
        traced: bool,
        table: str | None = None,
    ) -> None:
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
        shape = Shape(
            num_batches, seed_cap, tuple(row_caps), tuple(pick_caps), self.strides, known, queue_cap, 0
        )
        return replace(shape, table=self._table(shape))

    def _table(self, shape: Shape) -> int:
        if self.forced_table is not None:
            return self.forced_table
        sizes = [shape.num_batches * self.table_bytes(shape, kind) for kind in range(3)]
        # A direct table is one access per look-up while it stays in the L2 cache. Beyond that a bitmap, 32 times
        # smaller, pays as soon as the batch fills more entries than there are words to scan for its ranks.
        fits = sizes[0] <= self.scratch_bytes // 2
        if fits and (sizes[0] <= self.l2_bytes or shape.node_cap < self.num_nodes // 32):
            return 0
        return 1 if sizes[1] <= max(sizes[2], self.l2_bytes) else 2

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
        per_batch = (
            self.table_bytes(shape, shape.table) + shape.node_cap * self.id_bytes + 8 * shape.row_total
        )
        for rows, picks, stride in zip(shape.row_caps, shape.pick_caps, shape.strides, strict=True):
            per_batch += rows * (12 + (0 if stride else 8) + (self.id_bytes + 4 if self.queued else 0))
            per_batch += picks * (self.id_bytes + 4) + (32 * rows if self.traced else 0)
        per_batch += shape.queue_cap * (16 if self.traced else 8) + 4 * shape.seed_cap
        per_batch += 8 * power_of_two(shape.seed_cap * 4 // 3 + 1)
        return per_batch * shape.num_batches
