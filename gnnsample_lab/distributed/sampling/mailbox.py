"""Small numbers between the hosts' threads of ranks, through memory that they share: microseconds, and no collective.

A number travels in one word of 64 bits together with the turn that it belongs to, so that the word is either the old
one or complete. There are two words for each pair of ranks, used in turn: a rank tells the numbers of turn t + 2 after
it has heard all of turn t + 1, and who tells of turn t + 1 has heard all of turn t.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnsample_lab.device.polling import comes
from gnnsample_lab.distributed.shared_memory import shared_memory

_LOOK_S = 1e-3
"""How long a rank that waits looks all the time, before it sleeps between looks."""
_SLEEP_S = 20e-6
_LARGEST = 2**32 - 1
_TURNS = 2**31 - 2
"""Turns until they begin again: an even number, so that the last and the first have different words."""


class Mailbox:
    """One rank's end; all ranks must have heard all numbers of a turn before they tell those of the next.

    Args:
        words: ``int64[2 * size * size]``, zeros at first, shared by the ranks.
        index: of this rank.
        size: how many ranks there are.
        timeout_s: the longest wait in seconds.
    """

    def __init__(self, words: np.ndarray, index: int, size: int, timeout_s: float) -> None:
        self._words, self._index, self._size, self._timeout_s = words, index, size, timeout_s
        self._view: Any = memoryview(words)  # type: ignore[arg-type]
        self._turn = 0
        comes(words, 0, int(words[0]), 0.0)  # compiled now, where nobody waits

    @staticmethod
    def among(exchange: Any, timeout_s: float) -> Mailbox | None:
        """The mailbox of an exchange's ranks, which are on one host; None where they share no memory. A collective."""
        memory = shared_memory(exchange, 2 * 8 * exchange.size**2)
        if memory is None:
            return None
        return Mailbox(memory.view(np.int64), exchange.index, exchange.size, timeout_s)

    def tell(self, numbers: Sequence[int]) -> None:
        """Begin a turn: ``numbers[p]``, 0 to ``2**32 - 1``, is for rank p."""
        self._turn = turn = self._turn % _TURNS + 1
        at, view = self._at(self._index), self._view
        for to, number in enumerate(numbers):
            assert 0 <= number <= _LARGEST
            view[at + to] = turn << 32 | number

    def hear(self, source: int) -> int:
        """What a rank told this one in this turn.

        Raises:
            RuntimeError: it did not tell in time.
        """
        at, view, turn = self._at(source) + self._index, self._view, self._turn
        if view[at] >> 32 == turn or comes(self._words, at, turn, _LOOK_S, shift=32):
            return int(view[at] & _LARGEST)
        until = time.monotonic() + self._timeout_s
        while (word := view[at]) >> 32 != turn:
            if time.monotonic() > until:
                raise RuntimeError(
                    f"timed out waiting for the sizes of rank {source} for {self._timeout_s:g} s"
                )
            time.sleep(_SLEEP_S)
        return int(word & _LARGEST)

    def _at(self, rank: int) -> int:
        return ((self._turn & 1) * self._size + rank) * self._size
