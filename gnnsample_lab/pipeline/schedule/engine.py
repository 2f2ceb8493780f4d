"""Discrete events: processes that wait for signals, queues with a capacity, barriers, and GPUs that are shared.

A process is a generator that yields a :class:`Signal` wherever it waits and gets the signal's value back. Simulated
time passes only in :meth:`Machine.run`. Events of the same time run in the order in which they were made, so a run
depends on nothing but its inputs.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

Process = Generator["Signal", Any, None]


class Signal:
    """Something that happens once. One process may wait for it."""

    __slots__ = ("_resume", "_sim", "fired", "value")

    def __init__(self, sim: Simulator) -> None:
        self._sim = sim
        self._resume: Callable[[Any], None] | None = None
        self.fired, self.value = False, None

    def fire(self, value: Any = None) -> Signal:
        self.fired, self.value = True, value
        if self._resume is not None:
            self._sim.at(self._sim.now, self._resume, value)
        return self

    def then(self, resume: Callable[[Any], None]) -> None:
        if self.fired:
            self._sim.at(self._sim.now, resume, self.value)
        else:
            self._resume = resume


class Simulator:
    """The clock, the events to come, and the processes that have not ended."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._made = 0
        self._current = ""
        self.waiting: dict[str, str] = {}
        """Process that has not ended -> what it waits for."""

    def at(self, time: float, call: Callable[[Any], None], value: Any = None) -> None:
        heapq.heappush(self._events, (time, self._made, call, value))
        self._made += 1

    def start(self, name: str, process: Process) -> None:
        self.waiting[name] = "its start"

        def resume(value: Any) -> None:
            self._current = name
            try:
                signal = process.send(value)
            except StopIteration:
                del self.waiting[name]
                return
            signal.then(resume)

        self.at(self.now, resume)

    def note(self, what: str) -> None:
        """What the process that runs now is going to wait for, for the message of a deadlock."""
        self.waiting[self._current] = what

    def run(self) -> None:
        """Until nothing happens any more.

        Raises:
            RuntimeError: processes are left that wait for each other.
        """
        while self._events:
            self.now, _, call, value = heapq.heappop(self._events)
            call(value)
        if self.waiting:
            who = "; ".join(f"{name} waits for {what}" for name, what in list(self.waiting.items())[:8])
            raise RuntimeError(f"the schedule is deadlocked: {who}")


class Queue:
    """Batches between two stages. A getter of a closed and empty queue gets None.

    Args:
        capacity: batches that may wait in it; None for no limit.
        producers: how many put into it; when each has closed it, nothing more will come.
        name: of the queue.
        order: batches in the order in which they must leave, whatever order they come in; None for first in, first
            out. The next in order may come in even when the queue is full, else those behind it would block it.
    """

    def __init__(
        self,
        sim: Simulator,
        capacity: int | None = None,
        producers: int = 1,
        name: str = "",
        order: list[int] | None = None,
    ) -> None:
        self._sim, self.capacity, self._producers, self.name = sim, capacity, producers, name
        self._items: list[int] = []
        self._order = deque(order) if order is not None else None
        self._putters: list[tuple[int, Signal]] = []
        self._getters: deque[Signal] = deque()
        self._watchers: list[Signal] = []
        self.times, self.depths, self.most = [0.0], [0], 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: int) -> Signal:
        signal = Signal(self._sim)
        self._putters.append((item, signal))
        self._settle()
        return signal

    def get(self) -> Signal:
        signal = Signal(self._sim)
        self._getters.append(signal)
        self._settle()
        return signal

    def close(self) -> None:
        """One producer will put nothing more."""
        self._producers -= 1
        self._settle()

    @property
    def closed(self) -> bool:
        """Whether nothing more will be put."""
        return self._producers == 0

    def watch(self) -> Signal:
        """Fires as soon as something is put, or the queue is closed."""
        signal = Signal(self._sim)
        self._watchers.append(signal)
        return signal

    def _has_room(self, item: int) -> bool:
        if self.capacity is None or len(self._items) < self.capacity:
            return True
        return self._order is not None and self._order[0] == item

    def _next(self) -> int | None:
        """The batch that leaves next, or None while it has not come."""
        if not self._items:
            return None
        if self._order is None:
            return self._items[0]
        return self._order[0] if self._order[0] in self._items else None

    def _settle(self) -> None:
        """Serve whoever can be served. A batch that passes straight to a waiting getter takes up no room."""
        moved = True
        while moved:
            moved = False
            while self._getters and (item := self._next()) is not None:
                self._items.remove(item)
                if self._order is not None:
                    self._order.popleft()
                self._note()
                self._getters.popleft().fire(item)
                moved = True
            for index, (item, signal) in enumerate(self._putters):
                direct = bool(self._getters) and not self._items and self._order is None
                if direct or self._has_room(item):
                    del self._putters[index]
                    self._items.append(item)
                    self.most = max(self.most, len(self._items) - direct)
                    self._note()
                    signal.fire()
                    self._wake()
                    moved = True
                    break
        if self.closed:
            self._wake()
            while self._getters and not self._items and not self._putters:
                self._getters.popleft().fire(None)

    def _wake(self) -> None:
        watchers, self._watchers = self._watchers, []
        for signal in watchers:
            signal.fire()

    def _note(self) -> None:
        if self.times[-1] < self._sim.now:
            self.times.append(self._sim.now)
            self.depths.append(0)
        self.depths[-1] = len(self._items)  # what only passes through in an instant is not seen


class Barrier:
    """Where ``members`` processes wait for each other, once a key."""

    def __init__(self, sim: Simulator) -> None:
        self._sim = sim
        self._here: dict[Any, list[Signal]] = {}

    def arrive(self, key: Any, members: int) -> Signal:
        signal = Signal(self._sim)
        here = self._here.setdefault(key, [])
        here.append(signal)
        if len(here) == members:
            for waiting in self._here.pop(key):
                waiting.fire()
        return signal


class Clock:
    """Steps of trainers, none further ahead of the slowest than ``staleness`` allows (None: no limit).

    With 0 the step of all trainers is over before one begins the next: synchronous updates. A trainer that has left,
    since there is nothing more to train on, holds nobody up.
    """

    def __init__(self, sim: Simulator, staleness: int | None) -> None:
        self._sim, self.staleness = sim, staleness
        self._done: dict[str, int] = {}
        self._waiting: list[tuple[str, Signal]] = []

    def join(self, trainer: str) -> None:
        self._done[trainer] = min(self._done.values(), default=0)

    def leave(self, trainer: str) -> None:
        del self._done[trainer]
        self._settle()

    def finish(self, trainer: str) -> None:
        """``trainer`` has done a step more."""
        self._done[trainer] += 1
        self._settle()

    def turn(self, trainer: str) -> Signal:
        """Fires when ``trainer`` may begin its next step."""
        signal = Signal(self._sim)
        self._waiting.append((trainer, signal))
        self._settle()
        return signal

    def _settle(self) -> None:
        slowest = min(self._done.values(), default=0)
        late = []
        for trainer, signal in self._waiting:
            if self.staleness is None or self._done[trainer] - slowest <= self.staleness:
                signal.fire()
            else:
                late.append((trainer, signal))
        self._waiting = late


@dataclass(eq=False)
class _Activity:
    """Work on a GPU: ``left`` seconds of it, were it alone, at time ``since``; it proceeds at ``speed``."""

    gpu: int
    left: float
    demand: float
    host: float
    done: Signal
    since: float
    speed: float = 0.0
    version: int = 0


@dataclass(eq=False)
class Machine:
    """GPUs and the link to the host, which what runs at the same time shares in proportion to what it asks for.

    Where the demands on a GPU, or on the link, add up to more than 1, whatever uses it slows down by their sum.
    """

    sim: Simulator
    gpus: int
    _running: list[_Activity] = field(default_factory=list)

    def run(self, gpu: int, seconds: float, demand: float = 0.0, host: float = 0.0) -> Signal:
        """Work that takes ``seconds`` alone. ``demand`` and ``host``: its share of the GPU and of the host link."""
        activity = _Activity(gpu, seconds, demand, host, Signal(self.sim), self.sim.now)
        self._running.append(activity)
        self._share(activity)
        return activity.done

    def _share(self, changed: _Activity) -> None:
        """New speeds for all whom an activity that has begun or ended concerns: those on its GPU and on its link."""
        now, running = self.sim.now, self._running
        host = sum([a.host for a in running])
        loads = [0.0] * self.gpus
        for a in running:
            loads[a.gpu] += a.demand
        for a in running:
            if a.gpu != changed.gpu and not (changed.host > 0 and a.host > 0):
                continue
            speed = 1.0
            if a.demand > 0 and loads[a.gpu] > 1.0:
                speed = 1.0 / loads[a.gpu]
            if a.host > 0 and host > 1.0:
                speed = min(speed, 1.0 / host)
            if speed == a.speed:
                continue  # its end stays as it is, to the last bit
            a.left -= (now - a.since) * a.speed
            a.left, a.since, a.speed, a.version = max(a.left, 0.0), now, speed, a.version + 1
            self.sim.at(now + a.left / speed, self._end, (a, a.version))

    def _end(self, which: tuple[_Activity, int]) -> None:
        activity, version = which
        if activity.version != version:
            return  # its speed has changed since
        self._running.remove(activity)
        self._share(activity)
        activity.done.fire()
