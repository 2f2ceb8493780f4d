"""Sampling and relabelling on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device.arrays import merge_duplicates
from gnnsample_lab.device.locks import Lock
from gnnsample_lab.sampling.neighbors import cpu as twin
from gnnsample_lab.sampling.neighbors.spec import HopPicks, SampleSpec
from gnnsample_lab.sampling.weights import IntegerWeights

from .types import MiniBatch


class CpuTables:
    """Scratch memory that batches share: the vertex table and its ``base``, which rises from batch to batch.

    An entry at or above ``base`` belongs to the present batch. When ``base`` would overflow 32 bits, the table is
    cleared once. A thread that samples holds ``lock``.
    """

    def __init__(self, num_nodes: int) -> None:
        self.lock = Lock()
        self.table = np.zeros(num_nodes, dtype=np.uint32)
        self.next_base = 1

    def take_base(self) -> int:
        room = self.table.size + 2
        if self.next_base + room >= 2**32:
            self.table.fill(0)
            self.next_base = 1
        base = self.next_base
        self.next_base += room
        return base

    @property
    def scratch_bytes(self) -> int:
        return self.table.nbytes


class Builder:
    """Builds a mini-batch hop by hop; its vertices are in order of discovery."""

    def __init__(self, graph: Any, tables: CpuTables, seeds: np.ndarray) -> None:
        self.limit, self.table, self.base = graph.num_nodes, tables.table, tables.take_base()
        self.nodes = np.empty(min(self.limit, 1 << 16), dtype=graph.indices.dtype)
        self.sizes: list[int] = []
        self.picks: list[HopPicks] = []
        self.local: list[np.ndarray] = []
        self._count = 0
        self._reach(seeds.astype(self.nodes.dtype, copy=False))

    def _reach(self, vertices: np.ndarray) -> None:
        need = min(self._count + vertices.size, self.limit)
        if self.nodes.size < need:
            grown = np.empty(min(max(need, 2 * self.nodes.size), self.limit), dtype=self.nodes.dtype)
            grown[: self._count] = self.nodes[: self._count]
            self.nodes = grown
        self._count = twin.insert_new(vertices, self.table, self.base, self.nodes, self._count)
        self.sizes.append(self._count)

    def frontier(self, new_only: bool) -> np.ndarray:
        """The vertices that the next hop expands."""
        begin = self.sizes[-2] if new_only and self.picks else 0
        return self.nodes[begin : self._count].copy()

    def add(self, picks: HopPicks) -> None:
        """Add one hop's picks; new vertices get the next local ids."""
        self._reach(picks.neighbors)
        ids = np.empty(picks.num_picks, dtype=np.int32)
        with twin.threads_for(picks.num_picks):
            twin.local_ids(picks.neighbors, self.table, self.base, ids)
        self.picks.append(picks)
        self.local.append(ids)

    def finish(
        self, inverse: np.ndarray, batch_id: int, spec: Any, graph: Any, pick_weights: Any = None
    ) -> MiniBatch:
        """The mini-batch; ``pick_weights`` as in :class:`~.types.MiniBatch`."""
        nodes, sizes = self.nodes[: self._count].copy(), tuple(self.sizes)
        return MiniBatch(
            nodes, sizes, tuple(self.picks), tuple(self.local), inverse, batch_id, spec, graph,
            pick_weights=pick_weights,
        )  # fmt: skip


def sample_cpu(
    graph: Any,
    spec: SampleSpec,
    weights: IntegerWeights | None,
    tables: CpuTables,
    seeds: np.ndarray,
    batch_id: int,
) -> MiniBatch:
    """One mini-batch with every hop complete."""
    distinct, inverse, _ = merge_duplicates(seeds)
    batch = Builder(graph, tables, distinct)
    for hop in range(spec.num_hops):
        frontier = batch.frontier(spec.expand == "new")
        batch.add(twin.draw_hop(frontier, graph.indptr, graph.indices, weights, spec, batch_id, hop))
    return batch.finish(inverse, batch_id, spec, graph)


def keep_rows(batch: MiniBatch, masks: list[np.ndarray], tables: CpuTables) -> MiniBatch:
    """The part of ``batch`` that remains when only the tasks in ``masks`` ran.

    A vertex that was reached but whose task was lost keeps a row without picks, so that every block's destinations
    are still a prefix of its sources.

    Args:
        batch: the complete mini-batch, on the CPU.
        masks: per hop ``bool[n]`` over the frontier: whether the task ran.
        tables: scratch memory.
    """
    kept = Builder(batch.graph, tables, batch.seeds)
    for full, mask in zip(batch.picks, masks, strict=True):
        frontier = kept.frontier(False)
        row_of = {int(v): i for i, v in enumerate(full.frontier) if mask[i]}
        rows = [row_of.get(int(v), -1) for v in frontier]
        counts = np.array([full.counts[i] if i >= 0 else 0 for i in rows], dtype=np.int32)
        taken = [np.arange(full.offsets[i], full.offsets[i + 1]) for i in rows if i >= 0]
        at = np.concatenate([np.empty(0, dtype=np.int64), *taken])
        kept.add(HopPicks(frontier, counts, full.neighbors[at], full.positions[at]))
    return kept.finish(batch.seed_inverse, batch.batch_id, batch.spec, batch.graph)
