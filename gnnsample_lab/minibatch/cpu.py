"""Sampling and relabelling on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.sampling import cpu as twin
from gnnsample_lab.sampling.types import HopPicks, SampleSpec
from gnnsample_lab.sampling.weights import IntegerWeights

from .seeds import merge_duplicates
from .types import MiniBatch


class CpuTables:
    """Scratch that outlives a batch: the vertex table with its rolling base.

    An entry at or above ``base`` belongs to the present batch; when ``base`` would overflow 32 bits the table
    is cleared once.
    """

    def __init__(self, num_nodes: int) -> None:
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


def sample_cpu(
    graph: Any,
    spec: SampleSpec,
    weights: IntegerWeights | None,
    tables: CpuTables,
    seeds: np.ndarray,
    batch_id: int,
) -> MiniBatch:
    """One mini-batch with every hop complete."""
    dtype = graph.indices.dtype
    distinct, inverse = merge_duplicates(seeds)
    base = tables.take_base()
    nodes = np.empty(min(graph.num_nodes, 1 << 16), dtype=dtype)
    nodes = _room(nodes, 0, distinct.size, graph.num_nodes)
    count = twin.insert_new(distinct.astype(dtype, copy=False), tables.table, base, nodes, 0)
    sizes, picks, local = [count], [], []
    for hop in range(spec.num_hops):
        begin = sizes[-2] if spec.expand == "new" and hop else 0
        hop_picks = twin.draw_hop(
            nodes[begin:count].copy(), graph.indptr, graph.indices, weights, spec, batch_id, hop
        )
        nodes = _room(nodes, count, hop_picks.num_picks, graph.num_nodes)
        count = twin.insert_new(hop_picks.neighbors, tables.table, base, nodes, count)
        ids = np.empty(hop_picks.num_picks, dtype=np.int32)
        twin.local_ids(hop_picks.neighbors, tables.table, base, ids)
        sizes.append(count)
        picks.append(hop_picks)
        local.append(ids)
    return MiniBatch(
        nodes[:count].copy(), tuple(sizes), tuple(picks), tuple(local), inverse, batch_id, spec, graph
    )  # fmt: skip


def keep_rows(batch: MiniBatch, masks: list[np.ndarray], tables: CpuTables) -> MiniBatch:
    """The part of ``batch`` that is left when only the tasks in ``masks`` (per hop, over its frontier) ran.

    Vertices that were reached but whose task was lost keep a row without picks, so that every block's
    destinations stay a prefix of its sources.
    """
    dtype = batch.node_ids.dtype
    base = tables.take_base()
    nodes = np.empty(batch.num_nodes, dtype=dtype)
    count = twin.insert_new(batch.seeds, tables.table, base, nodes, 0)
    sizes, picks, local = [count], [], []
    for full, mask in zip(batch.picks, masks, strict=True):
        row_of = {int(v): i for i, v in enumerate(full.frontier) if mask[i]}
        counts = np.zeros(count, dtype=np.int32)
        neighbors: list[np.ndarray] = [np.empty(0, dtype)]
        positions: list[np.ndarray] = [np.empty(0, np.int64)]
        for row in range(count):
            i = row_of.get(int(nodes[row]))
            if i is not None:
                begin, end = full.offsets[i], full.offsets[i + 1]
                counts[row] = end - begin
                neighbors.append(full.neighbors[begin:end])
                positions.append(full.positions[begin:end])
        kept = HopPicks(nodes[:count].copy(), counts, np.concatenate(neighbors), np.concatenate(positions))
        count = twin.insert_new(kept.neighbors, tables.table, base, nodes, count)
        ids = np.empty(kept.num_picks, dtype=np.int32)
        twin.local_ids(kept.neighbors, tables.table, base, ids)
        sizes.append(count)
        picks.append(kept)
        local.append(ids)
    return MiniBatch(
        nodes[:count].copy(), tuple(sizes), tuple(picks), tuple(local), batch.seed_inverse, batch.batch_id,
        batch.spec, batch.graph,
    )  # fmt: skip


def _room(nodes: np.ndarray, count: int, more: int, limit: int) -> np.ndarray:
    """``nodes`` with space for ``more`` further entries; never more than the graph has."""
    need = min(count + more, limit)
    if nodes.size >= need:
        return nodes
    grown = np.empty(min(max(need, 2 * nodes.size), limit), dtype=nodes.dtype)
    grown[:count] = nodes[:count]
    return grown
