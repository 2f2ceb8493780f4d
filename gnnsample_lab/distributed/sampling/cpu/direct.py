"""``direct``, ``direct-cached`` and ``uva``: the sampler reads lists where they lie, and nobody has to answer.

On CPU ranks the peers' parts are memory-mapped files of the cache folder, opened for reading; on a GPU they would be
peers' memory over NVLink, or pinned host memory. Bytes are those that a GPU would read, in sectors of 32 bytes, and
labelled so.

- ``direct``: the record of a remote list (where it begins and its degree) is read from its owner, then the picked
  entries.
- ``direct-cached``: records are replicated, and the hottest remote lists were copied within ``cache_bytes``; lists that
  exceed ``topology_bytes`` count as host memory's.
- ``uva``: all lists, one's own too, lie in host memory. Each sector is a request of 50 bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device.arrays import offsets_of
from gnnsample_lab.distributed.parts.hot import HotLists
from gnnsample_lab.distributed.parts.part import gather_lists
from gnnsample_lab.sampling.neighbors.spec import HopPicks
from gnnsample_lab.sampling.weights import IntegerWeights

from ..engines import Setup
from ..sectors import count_reads
from ..spill import Spill, kept_bytes, memories, spill
from ..traffic import NO_NVLINK
from ..visits import hot_lists
from .base import CpuEngine, by_owner, draw, in_order
from .push import HOST_LABEL

LABELS = {"uva": HOST_LABEL}


class Direct(CpuEngine):
    """Reads all parts.

    Attributes:
        hot: the copied lists; None without a cache.
        spill: lists that a GPU would read in host memory; None without any.
        topology_bytes: where some are, bytes that a GPU would hold of the part; else empty.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.method = setup.method
        self.hot: HotLists | None = None
        self._hot_row = np.empty(0, np.int32)
        self.spill: Spill | None = None
        self.topology_bytes: dict[str, int] = {}
        if self.method == "direct-cached":
            self.spill = spill(setup, self.sampled)
            if self.spill is not None:
                stays = kept_bytes(setup, self.spill.is_spilled[self.part.vertices])
                self.topology_bytes["part"] = stays + int(self.part.indptr.nbytes)
            self._copy_hot_lists()

    def _copy_hot_lists(self) -> None:
        setup, owner = self.setup, self.partition.owner
        hot = hot_lists(setup, self.sampled)
        self.hot, self._hot_row = hot, np.full(self.part.num_nodes, -1, dtype=np.int32)
        self._hot_row[hot.ids] = np.arange(hot.ids.size)
        lengths = np.diff(hot.offsets)
        self._lists = np.empty(int(hot.offsets[-1]), self.part.indices.dtype)
        amounts = np.zeros(self._lists.size if setup.spec.weighted else 0, dtype=np.uint64)
        available = np.zeros(hot.ids.size, dtype=np.int32)
        for p, peer in enumerate(self.layout.parts):
            at = np.flatnonzero(owner[hot.ids] == p)
            rows = self.layout.rows(hot.ids[at], p)
            into = np.repeat(hot.offsets[at], lengths[at]) + _within(lengths[at])
            self._lists[into] = gather_lists(peer.indptr[rows], offsets_of(lengths[at]), peer.indices)
            if setup.spec.weighted:
                amounts[into] = gather_lists(peer.indptr[rows], offsets_of(lengths[at]), np.diff(peer.prefix))
                available[at] = peer.available[rows]
        prefix = np.zeros(amounts.size + 1, dtype=np.uint64)
        np.cumsum(amounts, out=prefix[1:])
        self._list_weights = IntegerWeights(prefix, available) if setup.spec.weighted else None

    def hop(self, frontier: np.ndarray, batch_id: int, hop: int) -> HopPicks:
        parts = self.layout.parts
        place = self.partition.owner[frontier].astype(np.int64)
        if self.hot is not None:
            place[self._hot_row[frontier] >= 0] = len(parts)
        asked, found = by_owner(frontier, place, len(parts) + 1), []
        bounds, spec = asked.bounds, self.spec
        self.exchange.traffic.label = LABELS.get(self.method, NO_NVLINK)
        for p in range(len(parts) + 1):
            vertices = asked.vertices[bounds[p] : bounds[p + 1]]
            if p == len(parts):
                if not vertices.size:
                    continue
                rows = self._hot_row[vertices].astype(np.int64)
                indptr, indices, weights = self.hot_indptr, self._lists, self._list_weights
            else:
                rows = self.layout.rows(vertices, p)
                indptr, indices = parts[p].indptr, parts[p].indices
                weights = parts[p].weights if spec.weighted else None
            answer = draw(vertices, rows, indptr, indices, weights, spec, batch_id, hop)
            found.append(answer)
            if p < len(parts):
                self._count(p, hop, answer, vertices, indptr[rows])
        counts, neighbors, slots = (
            np.concatenate([getattr(f, name) for f in found]) for name in ("counts", "neighbors", "slots")
        )
        return in_order(frontier, asked.order, counts, neighbors, slots)

    def _count(self, p: int, hop: int, answer: Any, vertices: np.ndarray, begins: np.ndarray) -> None:
        """Add what a GPU would read of the lists of part ``p`` that lie elsewhere."""
        is_far = np.full(vertices.size, self.method == "uva")
        if self.spill is not None:
            is_far, begins = self.spill.is_spilled[vertices], self.spill.records[vertices, 0].astype(np.int64)
        for in_host in memories(self.method, self.spill):
            if p == self.part.rank and not in_host:
                continue
            rows = is_far == in_host
            count_reads(
                self.exchange.traffic, self.exchange.members[p], self.method, self.spec, hop, self.id_bytes,
                begins[rows], answer.degrees[rows].astype(np.int64), answer.counts[rows],
                answer.slots[np.repeat(rows, answer.counts)], in_host,
            )  # fmt: skip

    @property
    def hot_indptr(self) -> np.ndarray:
        assert self.hot is not None
        return self.hot.offsets


def _within(lengths: np.ndarray) -> np.ndarray:
    """0, 1, ... inside each of consecutive runs."""
    offsets = offsets_of(lengths)
    return np.asarray(np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], lengths))


def engine(setup: Setup) -> Direct:
    return Direct(setup)
