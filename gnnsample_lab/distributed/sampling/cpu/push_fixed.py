"""``csp-fixed``: collective sampling with buffers of fixed size, so that nobody has to tell or read sizes.

The first batches run with exact sizes and are counted (:mod:`..capacities`). From then on each message has the size of
its buffer, and a request says in its first entry how many ids mean something. What does not fit is left out and raises
a flag. The flag is reduced by maximum at the end of the batch, and nobody hands the batch out before reading it: where
it is up, all ranks grow their buffers to what was asked for and sample the batch again, together.

On GPUs the same steps are one CUDA graph.
"""

from __future__ import annotations

import numpy as np

from gnnsample_lab.device.arrays import offsets_of
from gnnsample_lab.minibatch.types import MiniBatch

from ..capacities import SCRATCH_BYTES, WARM_UP, Capacities, capacities_for
from ..engines import Setup
from .base import ByOwner, totals
from .push import Push


class FixedPush(Push):
    """Exact sizes for the first batches, then buffers.

    Attributes:
        capacities: None during the warm-up; the same on all ranks.
        redone: batches that were sampled again, so far.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.capacities: Capacities | None = None
        self.redone = 0
        size = self.exchange.size
        shape = (self.spec.num_hops, size, size)
        # What this rank saw: as an asker in row `index`, as an owner in column `index`.
        self._ids, self._picks = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._seen = 0
        self._over = False
        limit = SCRATCH_BYTES if setup.scratch_bytes is None else setup.scratch_bytes
        # All ranks have one bound, so that they find together that messages exceed it.
        self._limit = -int(self.exchange.max("flags", np.array([-limit]))[0])
        self._pick_bytes = self.id_bytes + 4 * setup.spec.weighted

    def sampled(self, seeds: np.ndarray, batch_id: int) -> MiniBatch:
        if self.capacities is None:
            batch = super().sampled(seeds, batch_id)
            self._seen += 1
            if self._seen >= WARM_UP:  # later ones too, where buffers exceeded their bound
                self._fix(capacities_for(*self._largest()))
            return batch
        while True:
            self._over = False
            self._ids[:], self._picks[:] = 0, 0
            batch = super().sampled(seeds, batch_id)
            if not self.exchange.max("flags", np.array([int(self._over)]))[0]:
                return batch
            self.redone += 1
            self._fix(self.capacities.grown(*self._largest()))

    def _largest(self) -> tuple[np.ndarray, np.ndarray]:
        """What any rank saw, for all ranks."""
        both = self.exchange.max("flags", np.concatenate([self._ids.ravel(), self._picks.ravel()]))
        ids, picks = both.reshape(2, *self._ids.shape)
        return ids, picks

    def _fix(self, wanted: Capacities) -> None:
        wanted.check(self._limit, self.id_bytes, self._pick_bytes)
        self.capacities = wanted

    def ask(self, asked: ByOwner, batch_id: int, hop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self.capacities is not None:
            return self._ask_fixed(self.capacities, asked, batch_id, hop)
        counts, neighbors, slots = super().ask(asked, batch_id, hop)
        self._note(hop, asked.counts, totals(counts, asked.counts))
        return counts, neighbors, slots

    def _note(self, hop: int, ids: np.ndarray, picks: np.ndarray) -> None:
        me = self.exchange.index
        self._ids[hop, me] = np.maximum(self._ids[hop, me], ids)
        self._picks[hop, me] = np.maximum(self._picks[hop, me], picks)

    def _ask_fixed(
        self, capacities: Capacities, asked: ByOwner, batch_id: int, hop: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        exchange, me = self.exchange, self.exchange.index
        to_owner, from_asker = capacities.ids[hop, me], capacities.ids[hop, :, me]
        sent = np.minimum(asked.counts, to_owner)
        request = _filled(asked.vertices, asked.counts, sent, to_owner + 1, first=sent)
        message = exchange.all_to_all(
            "ids", request, to_owner + 1, from_asker + 1, (sent + 1, lambda m: _counters(m, from_asker) + 1)
        )
        wanted_counts = _counters(message, from_asker)
        wanted = _kept(message, from_asker + 1, wanted_counts, skip=1)
        answer = self.draw_own(wanted, batch_id, hop)
        heads = exchange.all_to_all(
            "records", _filled(self.head(answer), wanted_counts, wanted_counts, from_asker), from_asker, to_owner,
            (wanted_counts, lambda _: sent),
        )  # fmt: skip
        # What was not sent has no picks; the flag is up, and nobody will see this batch.
        vertices, head = _kept(asked.vertices, asked.counts, sent), _kept(heads, to_owner, sent)
        counts, slots = self.read_heads(vertices, head, batch_id, hop)
        back, mine = totals(answer.counts, wanted_counts), totals(counts, sent)
        self._note(hop, asked.counts, mine)
        to_asker, from_owner = capacities.picks[hop, :, me], capacities.picks[hop, me]
        self._over |= bool((asked.counts > to_owner).any() or (mine > from_owner).any())
        given, taken = np.minimum(back, to_asker), np.minimum(mine, from_owner)

        def reply(values: np.ndarray) -> np.ndarray:
            buffer = _filled(values, back, given, to_asker)
            found = exchange.all_to_all("picks", buffer, to_asker, from_owner, (given, lambda _: taken))
            return _kept(found, from_owner, taken)

        neighbors = reply(answer.neighbors)
        if self.spec.weighted:
            slots = reply(answer.slots.astype(np.int32)).astype(np.int64)
        if not self._over:
            return counts, neighbors, slots
        return _cut(asked.counts, sent, counts, mine, taken), *_same_length(neighbors, slots, mine, taken)


def _filled(
    values: np.ndarray, given: np.ndarray, kept: np.ndarray, room: np.ndarray, first: np.ndarray | None = None
) -> np.ndarray:
    """A buffer with ``room[p]`` entries for each p: the first ``kept[p]`` of its ``given[p]`` values, then zeros.

    ``first``: an entry that stands before the values.
    """
    buffer = np.zeros(int(room.sum()), dtype=values.dtype)
    begins, ends = offsets_of(room), offsets_of(given)
    for p in range(room.size):
        at = begins[p]
        if first is not None:
            buffer[at] = first[p]
            at += 1
        buffer[at : at + kept[p]] = values[ends[p] : ends[p] + kept[p]]
    return buffer


def _counters(message: np.ndarray, room: np.ndarray) -> np.ndarray:
    """The first entry of each peer's request, which has ``room[p]`` entries more."""
    return message[offsets_of(room + 1)[:-1]].astype(np.int64)


def _kept(buffer: np.ndarray, room: np.ndarray, kept: np.ndarray, skip: int = 0) -> np.ndarray:
    """The first ``kept[p]`` entries of each peer's share of a buffer, after ``skip``."""
    begins = offsets_of(room) + skip
    parts = [buffer[begins[p] : begins[p] + kept[p]] for p in range(room.size)]
    return np.concatenate(parts) if parts else buffer[:0]


def _cut(
    given: np.ndarray, sent: np.ndarray, counts: np.ndarray, mine: np.ndarray, taken: np.ndarray
) -> np.ndarray:
    """Counts of a batch that overflowed, so that it can be sampled to its end: none where picks are missing."""
    whole = np.zeros(int(given.sum()), dtype=counts.dtype)
    begins, ends = offsets_of(given), offsets_of(sent)
    for p in np.flatnonzero(mine == taken):
        whole[begins[p] : begins[p] + sent[p]] = counts[ends[p] : ends[p + 1]]
    return whole


def _same_length(
    neighbors: np.ndarray, slots: np.ndarray, mine: np.ndarray, taken: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Picks of the owners whose picks all came."""
    whole = np.where(mine == taken, taken, 0)
    here = _kept(neighbors, taken, whole)
    room = taken if slots.size == neighbors.size else mine
    return here, _kept(slots, room, whole)


def engine(setup: Setup) -> FixedPush:
    return FixedPush(setup)
