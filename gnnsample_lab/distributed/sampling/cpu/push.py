"""``csp``: vertices go to the owners of their lists, who draw, and picks come back (DSP, section 4.1).

Each hop has the paper's three stages. *Shuffle*: who will send how many (8 bytes a peer), then the ids. *Sample*: each
rank draws for all that it received. *Reshuffle*: degrees, then picked ids. From the degrees the asker knows how many
picks follow and, because draws are keyed, their slots as well: nobody sends them. Weighted draws depend on weights that
only the owner has, so their counts and slots are sent.
"""

from __future__ import annotations

import numpy as np

from gnnsample_lab.sampling.neighbors.spec import HopPicks

from ..engines import Setup
from .base import ByOwner, CpuEngine, Rows, in_order, slots_of, totals


class Push(CpuEngine):
    """Exact sizes, synchronous stages."""

    def hop(self, frontier: np.ndarray, batch_id: int, hop: int) -> HopPicks:
        asked = self.sort(frontier)
        counts, neighbors, slots = self.ask(asked, batch_id, hop)
        return in_order(frontier, asked.order, counts, neighbors, slots)

    def ask(self, asked: ByOwner, batch_id: int, hop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Counts, neighbours and slots of ``asked.vertices``."""
        exchange, send = self.exchange, asked.counts
        receive = exchange.sizes(send)
        answer = self.draw_own(exchange.all_to_all("ids", asked.vertices, send, receive), batch_id, hop)
        heads = exchange.all_to_all("records", self.head(answer), receive, send)
        counts, slots = self.read_heads(asked.vertices, heads, batch_id, hop)
        back, mine = totals(answer.counts, receive), totals(counts, send)
        neighbors = exchange.all_to_all("picks", answer.neighbors, back, mine)
        if self.spec.weighted:
            slots = exchange.all_to_all("picks", answer.slots.astype(np.int32), back, mine).astype(np.int64)
        return counts, neighbors, slots

    def head(self, answer: Rows) -> np.ndarray:
        """What the asker is told of each list, ``int32[n]``: its length, or the picks of a weighted draw."""
        return answer.counts if self.spec.weighted else answer.degrees

    def read_heads(
        self, vertices: np.ndarray, heads: np.ndarray, batch_id: int, hop: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Counts and slots of vertices from what the owners told of their lists; no slots where these are sent."""
        if self.spec.weighted:
            return heads, np.empty(0, np.int64)
        return slots_of(vertices, heads, self.spec, batch_id, hop)


def engine(setup: Setup) -> Push:
    return Push(setup)
