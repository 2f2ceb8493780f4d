"""The queue between two workers of a process: bounded, in the order of numbers, with its depth over time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


class Stopped(Exception):
    """The pipeline is being taken down: whoever waits at a queue goes home."""


def worker_name(kind: str, number: int, count: int) -> str:
    """What one of ``count`` workers of a kind is called, in records and in :class:`.turns.Turns`."""
    return f"{kind} {number + 1}" if count > 1 else kind


class StageQueue:
    """Numbered items between the workers of two stages; they leave in the order of their numbers.

    Number n may come in when number ``n - capacity`` has left. Several workers end out of order: those that are ahead
    do not block the one that all wait for, and who may come in is the same on all ranks, whoever is quick there.

    Args:
        capacity: items that may wait; None for no limit.
        producers: how many workers put; when each has called :meth:`close`, nothing more will come.
        now_us: the clock of :attr:`depths`.
        first: number of the first item.

    Attributes:
        depths: ``(time_us, items that wait)``, whenever that changes.
    """

    def __init__(
        self, capacity: int | None = 2, producers: int = 1, now_us: Callable[[], float] | None = None,
        first: int = 0,
    ) -> None:  # fmt: skip
        self.capacity = capacity
        self._producers, self._next = producers, first
        self._items: dict[int, Any] = {}
        self._changed = threading.Condition()
        self._stopped = False
        self._error: BaseException | None = None
        self._now_us = now_us or (lambda: time.perf_counter() * 1e6)
        self.depths: list[tuple[float, int]] = [(0.0, 0)]

    def put(self, number: int, item: Any) -> None:
        """Put item ``number``; waits while the queue is full.

        Raises:
            Stopped: the pipeline is being taken down.
        """
        # show: hand over a batch
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._has_room(number))
            if self._stopped:
                raise Stopped
            self._items[number] = item
            self._note()
        # end: hand over a batch

    def get(self, number: int | None = None, wait: bool = True) -> Any:
        """The next item, or None when there will be none.

        Args:
            number: the item that the caller wants, when its turn to leave has come; None for any.
            wait: False: None also where it would have to be waited for.

        Raises:
            Stopped: the pipeline is being taken down.
            Exception: what a producer failed with.
        """
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._stopped or self._is_due(number) or self._is_over(number))
            if self._error is not None:
                raise self._error
            if self._stopped:
                raise Stopped
            if not self._is_due(number):
                return None
            item = self._items.pop(self._next)
            self._next += 1
            self._note()
            return item

    def close(self) -> None:
        """One producer will put nothing more."""
        with self._changed:
            self._producers -= 1
            self._changed.notify_all()

    def stop(self, error: BaseException | None = None) -> None:
        """Let go of all that wait, and of the items; with an error :meth:`get` raises it."""
        with self._changed:
            self._stopped, self._error = True, self._error or error
            self._changed.notify_all()

    def clear(self) -> None:
        """Drop what is left."""
        with self._changed:
            self._items.clear()

    def _has_room(self, number: int) -> bool:
        return self.capacity is None or number < self._next + self.capacity

    def _is_due(self, number: int | None) -> bool:
        return self._next in self._items and number in (None, self._next)

    def _is_over(self, number: int | None) -> bool:
        return self._producers <= 0 and (self._next if number is None else number) not in self._items

    def _note(self) -> None:
        self.depths.append((self._now_us(), len(self._items)))
        self._changed.notify_all()
