"""How many mini-batches share a launch, on a clock that is made up: what is tried, and what is kept."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from gnnsample_lab.minibatch.waves import AGAIN, GROWING, NEEDED, Waves


class MadeUpClock:
    """Time passes only by :meth:`run`; stamps are done when ``finished`` says so."""

    def __init__(self) -> None:
        self.now, self.marks, self.finished, self.held = 0.0, 0, True, 0

    def mark(self) -> float:
        self.marks += 1
        return self.now

    def done(self, stamp: Any) -> bool:
        return self.finished

    def us(self, begin: float, end: float) -> float:
        return end - begin

    def memory(self) -> int:
        return self.held


def call(
    waves: Waves, clock: MadeUpClock, count: int, us_each: dict[int, float], cold_us: float = 1e6
) -> list[int]:
    """One call of ``sample_many``: ``us_each`` microseconds per mini-batch by size, a first launch ``cold_us`` more."""
    sizes = []
    for size in waves.timed(count):
        clock.now += us_each[size] * size + (cold_us if size not in WARM[id(waves)] else 0.0)
        WARM[id(waves)].add(size)
        sizes.append(size)
    return sizes


WARM: dict[int, set[int]] = {}


def made(begin: int, most: int) -> tuple[Waves, MadeUpClock]:
    clock = MadeUpClock()
    waves = Waves(begin, most, clock)
    WARM[id(waves)] = set()
    return waves, clock


COSTS = {
    "the more the better": {1: 100, 2: 60, 4: 40, 8: 30, 16: 25, 32: 24},
    "alone is best": {1: 739, 2: 760, 4: 900, 8: 1049, 16: 1100, 32: 1100},
    "in between": {1: 104, 2: 70, 4: 55, 8: 58, 16: 80, 32: 90},
    "all the same": {1: 50, 2: 50, 4: 50, 8: 50, 16: 50, 32: 50},
}


@pytest.mark.parametrize("begin", [1, 2, 32])
@pytest.mark.parametrize("count", [2, 8, 13, 32])
@pytest.mark.parametrize("case", COSTS)
def test_the_fastest_is_kept(case, count, begin):
    costs = COSTS[case]
    waves, clock = made(begin, 32)
    for calls in itertools.count():
        if waves.settled(count):
            break
        assert calls < 40
        assert sum(call(waves, clock, count, costs)) == count
    fits = {size: us for size, us in costs.items() if size <= count}
    assert costs[waves.settled(count)] == min(fits.values())
    assert costs[waves.settled(count)] <= costs[1]
    assert waves.us == {
        size: costs[size] for size in waves.us
    }  # the launch that compiled is not among the times
    assert call(waves, clock, count, costs)[0] == waves.settled(count)


def test_what_is_settled_is_not_timed_any_more():
    waves, clock = made(2, 8)
    while not waves.settled(8):
        call(waves, clock, 8, COSTS["in between"])
    marks = clock.marks
    for _ in range(5):
        assert call(waves, clock, 8, COSTS["in between"]) == [4, 4]
        assert call(waves, clock, 7, COSTS["in between"]) == [4, 2, 1]
    assert clock.marks == marks


def test_what_is_best_for_long_calls_is_best_for_shorter_ones_that_hold_it():
    waves, clock = made(2, 8)
    while not waves.settled(8):
        call(waves, clock, 8, COSTS["in between"])
    assert [waves.settled(count) for count in (1, 2, 3, 4, 7, 8, 30)] == [None, None, None, 4, 4, 4, 4]
    marks = clock.marks
    assert call(waves, clock, 4, COSTS["in between"]) == [4]
    assert clock.marks == marks


def test_the_first_call_follows_the_model():
    for begin in (1, 2, 4, 8):
        waves, clock = made(begin, 8)
        assert set(call(waves, clock, 8, COSTS["all the same"])) == {begin}


def test_no_launch_holds_more_than_memory_allows():
    waves, clock = made(8, 5)
    for _ in range(30):
        assert max(call(waves, clock, 21, COSTS["the more the better"])) <= 4
    assert waves.settled(21) == 4


def test_one_that_is_far_off_ends_the_search_in_its_direction():
    costs = {1: 739.0, 2: 760.0, 4: 2000.0, 8: 4000.0, 16: 1.0, 32: 1.0}
    waves, clock = made(2, 32)
    tried = {size for _ in range(30) for size in call(waves, clock, 32, costs)}
    assert tried == {1, 2, 4}


def test_one_by_one_is_always_tried():
    costs = {1: 10.0, 2: 900.0, 4: 100.0, 8: 20.0}
    waves, clock = made(8, 8)
    while not waves.settled(8):
        call(waves, clock, 8, costs)
    assert waves.settled(8) == 1


def test_times_that_are_not_in_are_not_waited_for():
    """The GPU is behind for a while: calls go on with what is known, and settle when the times have come."""
    waves, clock = made(2, 8)
    clock.finished = False
    for _ in range(30):
        assert sum(call(waves, clock, 8, COSTS["in between"])) == 8
    assert waves.settled(8) is None and not waves.us
    marks = clock.marks
    assert call(waves, clock, 8, COSTS["in between"]) == [
        2,
        2,
        2,
        2,
    ]  # nothing left to start: the model's choice
    assert clock.marks == marks
    clock.finished = True
    assert call(waves, clock, 8, COSTS["in between"]) == [4, 4]
    assert waves.settled(8) == 4


def test_one_slow_launch_does_not_decide():
    waves, clock = made(4, 8)
    hiccup = iter([0.0] * 9 + [1e5] + [0.0] * 1000)
    while not waves.settled(8):
        for size in waves.timed(8):
            clock.now += COSTS["in between"][size] * size + next(hiccup)
    assert waves.settled(8) == 4


@pytest.mark.parametrize("count", [8, 32])
@pytest.mark.parametrize("case", COSTS)
def test_a_slow_call_does_not_decide(case, count):
    """Whichever call it is: its launches take five times as long, and those of other numbers were not timed then."""
    costs = COSTS[case]
    slow = {size: 5 * us for size, us in costs.items()}
    for which in range(12):
        waves, clock = made(2, 32)
        for calls in itertools.count():
            if waves.settled(count):
                break
            call(waves, clock, count, slow if calls == which else costs)
        assert costs[waves.settled(count)] == min(us for size, us in costs.items() if size <= count), which


def test_a_host_that_was_slow_for_a_while_does_not_decide_for_good():
    """A launch costs much while numbers are tried, so that all share one; on the quick host two at a time are best."""
    waves, clock = made(4, 8)
    slow = {size: us + 2_000 / size for size, us in COSTS["in between"].items()}
    while not waves.settled(8):
        call(waves, clock, 8, slow)
    assert waves.settled(8) == 8
    quick = {1: 90, 2: 40, 4: 55, 8: 60}
    for _ in range(AGAIN + 1):
        call(waves, clock, 8, quick)
    while not waves.settled(8):
        call(waves, clock, 8, quick)
    assert waves.settled(8) == 2 and waves.us[2] == 40
    marks = clock.marks
    for _ in range(2 * AGAIN):
        call(waves, clock, 8, quick)
    assert clock.marks == marks, "it looks again once"


def test_launches_that_wait_for_memory_do_not_decide():
    """Eight together are the fastest once the memory pool has what the results take; before, they are the slowest."""
    waves, clock = made(8, 8)
    us = {1: 50.0, 2: 40.0, 4: 30.0, 8: 20.0}
    for _ in range(5):
        for size in waves.timed(8):
            clock.now += 900.0 * size
            clock.held += 1
    while not waves.settled(8):
        call(waves, clock, 8, us)
    assert waves.settled(8) == 8 and waves.us[8] == 20.0


def test_memory_that_grows_for_ever_does_not_keep_the_search_from_ending():
    waves, clock = made(8, 8)
    for _ in range(4 * (GROWING + NEEDED + 1)):
        for size in waves.timed(8):
            clock.now += 10.0 * size
            clock.held += 1
    assert waves.settled(8)


def test_a_launch_that_fails_leaves_no_time_behind():
    waves, clock = made(1, 4)
    call(waves, clock, 4, COSTS["all the same"])
    call(waves, clock, 4, COSTS["all the same"])
    known = dict(waves.us)
    sizes = waves.timed(4)
    next(sizes)
    clock.now += 1e9
    sizes.close()  # what an exception in the caller's loop does
    for _ in range(20):
        call(waves, clock, 4, COSTS["all the same"])
    assert known and set(waves.us.values()) == {50.0}


def test_nothing_is_tried_while_strategies_are_compared():
    waves, clock = made(4, 8)
    assert list(waves.untimed(11)) == [4, 4, 2, 1]
    assert clock.marks == 0
    while not waves.settled(8):
        call(waves, clock, 8, COSTS["alone is best"])
    assert list(waves.untimed(3)) == [1, 1, 1]


def test_few_calls_suffice():
    """An epoch's calls of eight: every number of them is known within a small part of an epoch."""
    waves, clock = made(2, 8)
    calls = 0
    while not waves.settled(8):
        call(waves, clock, 8, COSTS["all the same"])
        calls += 1
    assert calls <= 4 * (NEEDED + 1)


class Engine:
    """What :class:`~gnnsample_lab.minibatch.gpu.run.GpuEngine` needs of itself to split a call."""

    def __init__(self, clock: MadeUpClock, most: int) -> None:
        from gnnsample_lab.minibatch.gpu.run import GpuEngine

        self.engine = GpuEngine.__new__(GpuEngine)
        self.engine.per_hop, self.engine.traced, self.engine._undecided = None, False, False
        self.engine.waves, self.engine._started = {}, None
        self.engine._turns = SimpleNamespace(take=lambda: None, leave=lambda: None)
        self.engine.sizer = type("Sizer", (), {"batches_at_once": staticmethod(lambda cap: (2, most))})()
        self.engine.launcher = type("Launcher", (), {"sms": 132})()
        self.clock, self.launches = clock, []
        self.engine._sample_wave = self.launch

    def launch(self, seeds: Any, first_batch_id: int, most_seeds: int) -> list[tuple[int, Any]]:
        self.launches.append((len(seeds), most_seeds))
        self.clock.now += COSTS["in between"][len(seeds)] * len(seeds)
        return [(first_batch_id + i, s) for i, s in enumerate(seeds)]


def test_the_engine_gives_every_mini_batch_its_own_number_whatever_it_tries(monkeypatch):
    import numpy as np

    import gnnsample_lab.minibatch.waves as module

    clock = MadeUpClock()
    monkeypatch.setattr(module, "EventClock", lambda: clock)
    made_up = Engine(clock, 32)
    seeds = [np.arange(1 + i % 5) for i in range(13)]
    for first in range(0, 600, 13):
        found = made_up.engine.sample_many(seeds, first)
        assert [number for number, _ in found] == list(range(first, first + 13))
        assert all(mine is theirs for (_, mine), theirs in zip(found, seeds, strict=True))
    assert {size for size, _ in made_up.launches} >= {1, 2, 4, 8}  # several were tried
    assert [size for size, _ in made_up.launches[-4:]] == [4, 4, 4, 1]
    assert {most for _, most in made_up.launches} == {5}  # the buffers of a call are of one size
    assert list(made_up.engine.waves) == [64]
    marks = clock.marks
    assert made_up.engine.sample_many(seeds[:1], 7) == [(7, seeds[0])]
    assert clock.marks == marks
