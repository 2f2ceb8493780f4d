"""Find how many mini-batches should share a launch, by timing the launches that a program makes anyway.

More mini-batches per launch save launches and waits. But they also need more vertex tables, which may then exceed the
L2 cache or have to be of a slower kind. Which effect is larger depends on graph, fanouts, batch size and GPU, so it is
measured. The sample of a mini-batch does not depend on the launch that draws it, so measuring repeats no work.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Any, Protocol

from gnnsample_lab.device import pools

NEEDED = 3
"""Timed launches for each number of mini-batches. One launch before them is not timed: it compiles and allocates."""
LOOKS = 2
"""Calls at least in which each number is timed, in turns with the others: while a host is slow for a moment, launches
of every number take longer, and only one number's would be timed then."""
AGAIN = 1_000
"""Launches after which the numbers are timed once more: where the host was slow for a while, launches looked dearer
than they are, and too many mini-batches would share one for good."""
GROWING = 8
"""Launches of each number of mini-batches that are left out at most because the memory pool grew meanwhile: the GPU
waits for memory then, which later launches have. A caller that keeps all results would let it grow for ever."""
HOPELESS = 1.25
"""A number of mini-batches is hopeless if its time is this many times the best. The search in its direction ends there,
because times have a single minimum."""


class Clock(Protocol):
    """Time stamps in the stream of the GPU's work that can be read later."""

    def mark(self) -> Any:
        """Record a stamp after the work launched so far. Does not wait."""
        ...

    def done(self, stamp: Any) -> bool:
        """Whether the GPU has passed ``stamp``. Does not wait."""
        ...

    def us(self, begin: Any, end: Any) -> float:
        """Microseconds between two stamps that the GPU has passed."""
        ...

    def memory(self) -> int:
        """Bytes of device memory that results have been given so far, freed ones included."""
        ...


class EventClock:
    """CUDA events on CuPy's current stream."""

    def mark(self) -> Any:
        import cupy

        event = cupy.cuda.Event()
        event.record()
        return event

    def done(self, stamp: Any) -> bool:
        return bool(stamp.done)

    def us(self, begin: Any, end: Any) -> float:
        import cupy

        return float(cupy.cuda.get_elapsed_time(begin, end)) * 1e3

    def memory(self) -> int:
        return pools.total_bytes()


class Waves:
    """Splits calls into launches of 1, 2, 4, ... mini-batches, tries these numbers in turn, and keeps the fastest.

    Args:
        begin: mini-batches per launch that are tried first, a power of two.
        most: mini-batches that a launch may hold.
        clock: gives the times; :class:`EventClock` on a GPU.
    """

    def __init__(self, begin: int, most: int, clock: Clock | None = None) -> None:
        self.most = _floor(most)
        self.begin = min(_floor(begin), self.most)
        self.clock: Clock = clock or EventClock()
        self._warm: set[int] = set()
        self._timed: dict[int, int] = {}
        self._looks: dict[int, int] = {}
        self._grew: dict[int, int] = {}
        self._pending: list[tuple[int, int, Any, Any]] = []
        self._times: dict[int, dict[int, list[float]]] = {}
        self._settled: dict[int, int] = {}
        self._rounds = 1
        self._until_again = AGAIN

    @property
    def us(self) -> dict[int, float]:
        """Mini-batches per launch -> microseconds of GPU time per mini-batch, the median of the looks so far.

        A look is a call in which this number was timed, and has the median of its launches. Of an even number of looks
        the lower one in the middle counts: of two, on a host that was slow during one, the other.
        """
        return {
            size: statistics.median_low(map(statistics.median, looks.values()))
            for size, looks in sorted(self._times.items())
        }

    def settled(self, count: int) -> int | None:
        """The final number of mini-batches per launch for calls with ``count``; None while numbers are tried.

        What is best for longer calls is best for shorter ones, too, where they are as long as that.
        """
        highest = self._highest(count)
        found = self._settled.get(highest)
        if found is None:
            longer = (size for most, size in self._settled.items() if most > highest)
            found = next((size for size in longer if size <= highest), None)
        return found

    def untimed(self, count: int) -> Iterator[int]:
        """Sizes of the launches of a call with ``count`` mini-batches, from the times known so far; tries nothing."""
        us, highest = self.us, self._highest(count)
        known = [size for size in us if size <= highest]
        best = min(known, key=us.__getitem__) if known else min(self.begin, highest)
        return self._split(count, self.settled(count) or best)

    def timed(self, count: int) -> Iterator[int]:
        """Sizes of the launches of a call with ``count`` mini-batches; times the launches while sizes are tried.

        The caller makes each launch before it asks for the next size: the time between two yields is a launch's.
        """
        size = self.settled(count) or self._next(count)
        if size is None:
            yield from self.untimed(count)
            return
        if self.settled(count):
            for launched in self._split(count, size):
                self._until_again -= 1
                yield launched
            if self._until_again <= 0 and self._rounds == 1:
                self._rounds = 2
                self._settled.clear()
            return
        look = self._looks.get(size, 0)
        before, held = self.clock.mark(), self.clock.memory()
        for launched in self._split(count, size):
            yield launched
            now, holds = self.clock.mark(), self.clock.memory()
            if launched == size and size in self._warm:
                if holds > held and self._grew.get(size, 0) < GROWING:
                    self._grew[size] = self._grew.get(size, 0) + 1
                else:
                    self._timed[size], self._looks[size] = self._timed.get(size, 0) + 1, look + 1
                    self._pending.append((size, look, before, now))
            self._warm.add(launched)
            before, held = now, holds

    def _highest(self, count: int) -> int:
        return min(self.most, _floor(count))

    @staticmethod
    def _split(count: int, size: int) -> Iterator[int]:
        """Split ``count`` into powers of two of at most ``size``, so that buffers have few different sizes."""
        while count:
            size = min(size, _floor(count))
            yield size
            count -= size

    def _next(self, count: int) -> int | None:
        """The number to try in this call, None when all are tried; settles when all times are known."""
        self._read()
        highest, us = self._highest(count), self.us
        lacking = [size for size in self._candidates(highest) if self._lacks(size)]
        if lacking:
            return min(lacking, key=lambda size: self._looks.get(size, 0))
        if any(size <= highest for size, *_ in self._pending):
            return None
        self._settled[highest] = min((size for size in us if size <= highest), key=us.__getitem__)
        return self._settled[highest]

    def _lacks(self, size: int) -> bool:
        """Whether a number was not timed often enough."""
        looks, timed = self._looks.get(size, 0), self._timed.get(size, 0)
        return looks < LOOKS * self._rounds or timed < NEEDED * self._rounds

    def _candidates(self, highest: int) -> Iterator[int]:
        """Numbers worth a try, in order: the initial choice, then up and down from it until a time is hopeless, and
        always 1, which the others have to beat."""
        begin = min(self.begin, highest)
        yield from self._outwards([begin << n for n in range((highest // begin).bit_length())])
        yield from self._outwards([begin >> n for n in range(begin.bit_length())])
        yield 1

    def _outwards(self, sizes: list[int]) -> Iterator[int]:
        """``sizes`` up to the first that is hopeless compared with the best before it."""
        us, best = self.us, math.inf
        for size in sizes:
            yield size
            best = min(best, us.get(size, math.inf))
            if us.get(size, 0.0) > HOPELESS * best:
                return

    def _read(self) -> None:
        """Read the times of completed launches; later calls read the others."""
        waiting = []
        for size, look, begin, end in self._pending:
            if self.clock.done(end):
                times = self._times.setdefault(size, {}).setdefault(look, [])
                times.append(self.clock.us(begin, end) / size)
            else:
                waiting.append((size, look, begin, end))
        self._pending = waiting

    def __str__(self) -> str:
        measured = ", ".join(f"{size}: {us:.0f}" for size, us in self.us.items())
        return f"microseconds of a mini-batch by how many share a launch: {measured}"


def _floor(n: int) -> int:
    """The largest power of two that is at most ``n``, which is 1 or more."""
    return 1 << (n.bit_length() - 1)
