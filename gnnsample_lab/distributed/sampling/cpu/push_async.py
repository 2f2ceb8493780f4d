"""``csp-async``: the variant that DSP rejects (section 4.1). There is no barrier between stages and no collective.

A rank sends its requests, one message to each peer, serves requests one by one in the order in which they arrive, and
goes on to the next hop as soon as its own replies are there, while others may still be at this one. On a GPU each
request would be a kernel of its own: many small messages and small kernels are why it was rejected.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engines import Setup
from .base import ByOwner, totals
from .push import Push

_MESSAGES = 5
"""Kinds of messages of a hop: number of ids, ids, heads, picked ids, slots."""
_MAX_TAG = 2**24


class AsyncPush(Push):
    """Point-to-point messages; tags keep hops apart, since a fast rank may be one hop ahead."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._tag = 0

    def ask(self, asked: ByOwner, batch_id: int, hop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        exchange, spec = self.exchange, self.spec
        me, peers = exchange.index, [p for p in range(exchange.size) if p != exchange.index]
        self._tag = (self._tag + _MESSAGES) % _MAX_TAG
        number, ids, heads, picks, places = range(self._tag, self._tag + _MESSAGES)
        bounds, sending = asked.bounds, []
        of_peer = [asked.vertices[bounds[p] : bounds[p + 1]] for p in range(exchange.size)]
        for p in peers:
            sending.append(exchange.post("sizes", p, np.array([of_peer[p].size]), number))
            sending.append(exchange.post("ids", p, of_peer[p], ids))
        found: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        own = self.draw_own(of_peer[me], batch_id, hop)
        found[me] = own.counts, own.neighbors, own.slots
        for _ in peers:
            count = np.empty(1, dtype=np.int64)
            p = exchange.receive_any("sizes", count, number)
            wanted = exchange.fetch("ids", p, np.empty(int(count[0]), of_peer[me].dtype), ids)
            answer = self.draw_own(wanted, batch_id, hop)
            sending.append(exchange.post("records", p, self.head(answer), heads))
            sending.append(exchange.post("picks", p, answer.neighbors, picks))
            if spec.weighted:
                sending.append(exchange.post("picks", p, answer.slots.astype(np.int32), places))
        for p in peers:
            head = exchange.fetch("records", p, np.empty(of_peer[p].size, np.int32), heads)
            counts, slots = self.read_heads(of_peer[p], head, batch_id, hop)
            total = int(totals(counts, np.array([counts.size]))[0])
            neighbors = exchange.fetch("picks", p, np.empty(total, self.part.indices.dtype), picks)
            if spec.weighted:
                slots = exchange.fetch("picks", p, np.empty(total, np.int32), places).astype(np.int64)
            found[p] = counts, neighbors, slots
        for work in sending:
            work.wait()
        parts: Any = [found[p] for p in range(exchange.size)]
        counts, neighbors, slots = (np.concatenate(each) for each in zip(*parts))
        return counts, neighbors, slots


def engine(setup: Setup) -> AsyncPush:
    return AsyncPush(setup)
