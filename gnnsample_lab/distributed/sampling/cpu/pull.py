"""``pull``: whole lists of remote vertices are fetched from their owners, and each rank draws for itself.

DSP's Pull Data (sections 4.1 and 7.3): a list travels however few of its neighbours are picked, with its weights where
the draw is weighted.
"""

from __future__ import annotations

import numpy as np

from gnnsample_lab.device.arrays import offsets_of
from gnnsample_lab.distributed.parts.part import gather_lists
from gnnsample_lab.sampling.neighbors.spec import HopPicks
from gnnsample_lab.sampling.weights import IntegerWeights

from ..engines import Setup
from .base import CpuEngine, draw, in_order, totals


class Pull(CpuEngine):
    """Ids go, lengths and lists come back."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.amounts = np.empty(0, np.uint32)
        if self.weights is not None:
            amounts = np.diff(self.weights.prefix)
            most = self.exchange.max("weights", np.array([int(amounts.max(initial=0))]))[0]
            # Integers of 32 bits, unless the graph's weights are whole numbers beyond.
            self.amounts = amounts.astype(np.uint32 if most < 2**32 else np.uint64)

    def hop(self, frontier: np.ndarray, batch_id: int, hop: int) -> HopPicks:
        exchange, part, asked = self.exchange, self.part, self.sort(frontier)
        receive = exchange.sizes(asked.counts)
        wanted = exchange.all_to_all("ids", asked.vertices, asked.counts, receive)
        rows = self.layout.rows(wanted, part.rank)
        begins = part.indptr[rows]
        lengths = (part.indptr[rows + 1] - begins).astype(np.int32)
        degrees = exchange.all_to_all("records", lengths, receive, asked.counts)
        back, mine = totals(lengths, receive), totals(degrees, asked.counts)
        given = offsets_of(lengths)
        lists = exchange.all_to_all("lists", gather_lists(begins, given, part.indices), back, mine)
        indptr, weights = offsets_of(degrees), None
        if self.weights is not None:
            amounts = exchange.all_to_all("lists", gather_lists(begins, given, self.amounts), back, mine)
            weights = _summed(indptr, amounts)
        found = draw(
            asked.vertices, np.arange(frontier.size), indptr, lists, weights, self.spec, batch_id, hop
        )
        return in_order(frontier, asked.order, found.counts, found.neighbors, found.slots)


def _summed(indptr: np.ndarray, amounts: np.ndarray) -> IntegerWeights:
    """Prefix sums of fetched weights, and how many of each list are positive."""
    prefix = np.zeros(amounts.size + 1, dtype=np.uint64)
    np.cumsum(amounts, out=prefix[1:], dtype=np.uint64)
    positive = offsets_of(amounts > 0)
    return IntegerWeights(prefix, np.diff(positive[indptr]).astype(np.int32))


def engine(setup: Setup) -> Pull:
    return Pull(setup)
