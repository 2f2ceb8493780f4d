"""The mini-batches of an epoch by windows, some of which are started before they are asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnsample_lab import NeighborSampler
from gnnsample_lab.device.streams import DONE
from gnnsample_lab.minibatch.epoch import EpochIterator
from gnnsample_lab.pipeline.clock import StageClock
from gnnsample_lab.pipeline.executors import Stages
from gnnsample_lab.pipeline.plan import EpochPlan, NoBatch, copies_of


class Sampler:
    """Hands out its arguments; ``most`` mini-batches are started at a time."""

    def __init__(self, graph: Any, most: int) -> None:
        self.graph, self.most, self.device, self.spec = graph, most, "cpu", SimpleNamespace(seed=3)
        self.calls: list[tuple[str, int, int]] = []

    def _starts(self, count: int, most_seeds: int) -> int:
        assert most_seeds <= 10
        return min(count, self.most)

    def _made(self, seeds: Any, first: int) -> list[Any]:
        return [
            SimpleNamespace(batch_id=first + i, seeds=s.tolist(), ready=DONE, num_edges=1)
            for i, s in enumerate(seeds)
        ]

    def sample_many(self, seeds: Any, first: int) -> list[Any]:
        self.calls.append(("sample", first, len(seeds)))
        return self._made(seeds, first)

    def start_many(self, seeds: Any, first: int) -> Any:
        self.calls.append(("start", first, len(seeds)))
        return lambda: self._made(seeds, first)


def plan_of(graph: Any, most: int, **given: Any) -> tuple[Sampler, EpochPlan]:
    sampler = Sampler(graph, most)
    epoch = EpochIterator(sampler, np.arange(95), 10, 2, True, False, None, False)
    return sampler, EpochPlan(epoch, [sampler], **given)


def contents(batches: Any) -> list[Any]:
    return [(b.batch_id, list(b.seeds)) for b in batches]


@pytest.mark.parametrize("given", [{}, {"without": (22, 23, 26)}, {"index": 1, "count": 7}], ids=str)
@pytest.mark.parametrize("most", [0, 1, 4])
def test_started_windows_are_those_of_sample(graph: Any, most: int, given: dict[str, Any]) -> None:
    _, plain = plan_of(graph, 0, **given)
    sampler, plan = plan_of(graph, most, **given)
    while places := plan.take(4):
        finish = plan.start(places)
        started = list(sampler.calls)
        assert {name for name, _, _ in started} == ({"start"} if most else set())
        assert contents(finish()) == contents(plain.sample(places))
        if most:
            assert sampler.calls[: len(started)] == started
        sampler.calls.clear()


def test_a_window_that_begins_without_seeds_is_sampled_in_turn(graph: Any) -> None:
    sampler = Sampler(graph, 4)
    epoch = EpochIterator(sampler, np.arange(41), 20, 0, False, False, None, False)
    plan = EpochPlan(epoch, [sampler], index=0, count=2)
    last = range(2, 3)  # one seed for two ranks: the second has it
    assert isinstance(plan.start(last)()[0], NoBatch) or sampler.calls == [("start", 2, 1)]
    found = EpochPlan(epoch, [sampler], index=1, count=2)
    both = [*plan.start(last)(), *found.start(last)()]
    assert sorted(type(b).__name__ for b in both) == ["NoBatch", "SimpleNamespace"]


def test_a_sampler_of_slices_is_asked_for_them_alone(graph: Any) -> None:
    class Slices(Sampler):
        def sample_slices(self, seeds: Any, first: int) -> list[Any]:
            self.calls.append(("slices", first, len(seeds)))
            return self._made(seeds, first)

    sampler = Slices(graph, 4)
    epoch = EpochIterator(sampler, np.arange(95), 10, 0, True, False, None, False)
    finish = EpochPlan(epoch, [sampler]).start(range(4))
    assert sampler.calls == []
    assert [b.batch_id for b in finish()] == [0, 1, 2, 3]
    assert sampler.calls == [("slices", 0, 4)]


def test_a_cpu_starts_nothing(graph: Any) -> None:
    sampler = NeighborSampler(graph, [3, 2], device="cpu")
    plan = EpochPlan(sampler.epoch(np.arange(95), 10), [sampler])
    assert plan.starts(4) == 0
    found = plan.start(plan.take(4))()
    assert [b.canonical() for b in found] == [b.canonical() for b in plan.sample(range(4))]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("most", [0, 1, 3])
def test_windows_in_two_halves_are_whole_windows(graph: Any, most: int, ordered: bool) -> None:
    def stages(plan: EpochPlan) -> Stages:
        features = SimpleNamespace(mark=lambda batch: batch.batch_id)
        order = (lambda window: range(len(window))[::-1]) if ordered else None
        return Stages(plan, features, StageClock("cpu"), 3, 4, order, False, "cpu")

    whole, halves = stages(plan_of(graph, 0)[1]), stages(plan_of(graph, most)[1])
    expected = [m for _ in range(5) for m in whole.sample_window()]
    found, sizes = [], []
    while window := halves.start_window()():
        sizes.append(len(window))
        found += window
    assert [(m.batch.batch_id, m.marks, m.place) for m in found] == [
        (m.batch.batch_id, m.marks, m.place) for m in expected
    ]
    assert sizes == ([4, 4, 2] if ordered else [most or 3] * (10 // (most or 3)) + ([1] if most != 1 else []))
    assert [e for e, _, _ in halves.clock._notes if e.name == "sample"]


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_what_ends_a_stage_names_it(kind: type[BaseException]) -> None:
    """In a thread there is no ``rank.stage`` around it: the error of a rank would name the function that it ran."""
    clock = StageClock("cpu")
    with pytest.raises(kind) as caught, clock.stage("train", 3):
        raise kind
    assert caught.value._rank_stage == "train"  # type: ignore[attr-defined]


def test_copies_of_a_sampler_lose_the_tasks_that_it_loses(graph: Any) -> None:
    """PGSampler's published rule loses other tasks with another ``fetch_size``, and none without it."""
    given = {"strategy": "persistent", "device": "cpu", "seed": 2}
    sampler = NeighborSampler(graph, [3, 4, 4], completion="paper", fetch_size=7, **given)
    seeds = np.arange(1)
    expected = sampler.sample(seeds, 5).canonical()
    others = [NeighborSampler(graph, [3, 4, 4], **given, **more) for more in ({}, {"completion": "paper"})]
    assert all(other.sample(seeds, 5).canonical() != expected for other in others)
    copies = copies_of(sampler, 3)
    assert len({id(copy) for copy in copies}) == 3
    assert all(copy.sample(seeds, 5).canonical() == expected for copy in copies)
