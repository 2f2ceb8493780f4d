"""``csp``: vertices go to the owners of their lists, who draw, and picks come back (DSP, section 4.1).

Each hop has the paper's three stages. *Shuffle*: who will send how many (8 bytes a peer), then the ids. *Sample*: each
rank draws for all that it received. *Reshuffle*: degrees, then picked ids. From the degrees the asker knows how many
picks follow and, because draws are keyed, their slots as well: nobody sends them. Weighted draws depend on weights that
only the owner has, so their counts and slots are sent.

Lists of an owner that exceed ``topology_bytes`` count as host memory's, in sectors, as its GPU would read them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnsample_lab.sampling.neighbors.spec import HopPicks

from ..engines import Setup
from ..spill import count_host_reads, kept_bytes, spilled_rows
from .base import ByOwner, CpuEngine, Rows, in_order, slots_of, totals

HOST_LABEL = "CPU: mapped files for pinned host memory"


class Push(CpuEngine):
    """Exact sizes, synchronous stages.

    Attributes:
        spilled: own lists that a GPU would read in host memory, by row, ``bool[n]``; None without any.
        topology_bytes: where some are, bytes that a GPU would hold of the part; else empty.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.topology_bytes: dict[str, int] = {}
        if setup.beside is not None:
            self.spilled, self.topology_bytes = setup.beside.spilled, setup.beside.topology_bytes
            return
        self.spilled = spilled_rows(
            setup, lambda *seeds: Push(replace(setup, topology_bytes=None)).sampled(*seeds)
        )
        if self.spilled is not None:
            self.topology_bytes["part"] = kept_bytes(setup, self.spilled) + int(self.part.indptr.nbytes)

    def draw_own(self, vertices: np.ndarray, batch_id: int, hop: int) -> Rows:
        answer = super().draw_own(vertices, batch_id, hop)
        if self.spilled is not None:
            rows, traffic = self.layout.rows(vertices, self.part.rank), self.exchange.traffic
            count_host_reads(self.setup, self.spilled, rows, answer, hop, traffic)
            traffic.label = HOST_LABEL
        return answer

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
