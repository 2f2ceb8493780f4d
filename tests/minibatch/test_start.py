"""Mini-batches that are started now and collected later."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from gnnsample_lab import NeighborSampler, PinSAGESampler
from gnnsample_lab.bench.configurations import test_graph as graph_named  # pytest collects test_*
from gnnsample_lab.minibatch.waves import Waves

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
EACH = [
    ("auto", "cpu"),  # a strategy chooses no sampler there
    *(pytest.param(name, "cuda", marks=pytest.mark.gpu) for name in ("auto", "captured", "bsp", "block-bsp")),
]


def groups(count: int = 5) -> list[np.ndarray]:
    return [np.random.default_rng(i).integers(0, 6000, 3 + 80 * i) for i in range(count)]


def sampler_on(device: str, **given: Any) -> NeighborSampler:
    return NeighborSampler(graph_named("hubs").to(device), [5, 4, 3], device=device, **given)


@pytest.fixture(params=[1, 2, 4])
def settled(request: Any, monkeypatch: Any) -> int:
    """How many mini-batches share a launch best, as if it had been measured."""
    settle(monkeypatch, request.param)
    return int(request.param)


def settle(monkeypatch: Any, size: int) -> None:
    monkeypatch.setattr(Waves, "settled", lambda self, count: min(size, self._highest(count)))


def launches_of(sampler: Any, monkeypatch: Any) -> list[tuple[int, int]]:
    """First batch id and number of the mini-batches of each launch from now on."""
    engine, found = sampler._engine, []
    launch = engine._launch_wave

    def noted(seeds: Any, first_batch_id: int, most_seeds: int) -> Any:
        found.append((first_batch_id, len(seeds)))
        return launch(seeds, first_batch_id, most_seeds)

    monkeypatch.setattr(engine, "_launch_wave", noted)
    return found


def same(found: Any, expected: Any) -> bool:
    return [b.canonical() for b in found] == [b.canonical() for b in expected]


@pytest.mark.parametrize(("strategy", "device"), EACH)
def test_they_are_those_of_one_by_one(strategy, device):
    sampler, alone = sampler_on(device, strategy=strategy), sampler_on("cpu")
    for first in (0, 5, 10):
        finish = sampler.start_many(groups(), first)
        assert same(finish(), [alone.sample(seeds, first + i) for i, seeds in enumerate(groups())])
        assert all(a is b for a, b in zip(finish(), finish(), strict=True))


@pytest.mark.gpu
def test_as_many_are_launched_as_share_a_launch_best(settled, monkeypatch):
    sampler, alone = sampler_on("cuda", strategy="captured"), sampler_on("cpu")
    sampler.sample_many(groups())
    launches = launches_of(sampler, monkeypatch)
    finish = sampler.start_many(groups(), 5)
    assert launches == [(5, settled)]
    assert same(finish(), alone.sample_many(groups(), 5))
    assert launches == {
        1: [(5, 1), (6, 1), (7, 1), (8, 1), (9, 1)], 2: [(5, 2), (7, 2), (9, 1)], 4: [(5, 4), (9, 1)]
    }[settled]  # fmt: skip


@pytest.mark.gpu
def test_the_first_ones_are_sampled_at_once_and_measured(monkeypatch):
    sampler, alone = sampler_on("cuda", strategy="captured"), sampler_on("cpu")
    launches, first = launches_of(sampler, monkeypatch), 0
    while not sampler._starts(4, 250):
        assert first < 400, str(sampler._engine.waves)
        before = len(launches)
        finish = sampler.start_many(groups(4), first)
        assert sum(size for _, size in launches[before:]) >= 4  # more where buffers were too small
        finish(), (first := first + 4)
    assert sampler.reason.count("mini-batch by how many share a launch")
    assert same(sampler.start_many(groups(4), first)(), alone.sample_many(groups(4), first))


@pytest.mark.gpu
def test_the_memory_of_those_that_nobody_asks_for_is_free(settled):
    sampler, alone = sampler_on("cuda", strategy="captured"), sampler_on("cpu")
    for first in range(3):
        sampler.sample_many(groups(4), first)
    finish = sampler.start_many(groups(4), 8)
    started = sampler._engine._started
    arena = weakref.ref(started._wave.prepared[0].arena)
    assert arena() is not None
    del finish
    assert arena() is None
    with pytest.raises(RuntimeError, match="dropped"):
        started.result()
    assert same(sampler.sample_many(groups(), 30), alone.sample_many(groups(), 30))
    assert sampler._engine._started is None


@pytest.mark.gpu
def test_dropped_ones_with_bad_seeds_are_nobodys_error(settled):
    import cupy

    sampler, alone = sampler_on("cuda", strategy="captured"), sampler_on("cpu")
    sampler.sample(np.arange(3))
    finish = sampler.start_many([cupy.array([3, 10**6]), cupy.array([3, 3])], 1)
    del finish
    assert same(sampler.sample_many(groups(), 2), alone.sample_many(groups(), 2))


@pytest.mark.gpu
@pytest.mark.parametrize("prefetch", [1, 3, 8])
def test_an_epoch_starts_the_next_ones_before_it_hands_these_out(prefetch, settled, monkeypatch):
    sampler, alone = sampler_on("cuda", strategy="captured"), sampler_on("cpu")
    sampler.sample_many(groups(4))
    expected = list(alone.epoch(np.arange(1300), 100, epoch=1))
    launches = launches_of(sampler, monkeypatch)
    found, launched = [], []
    for batch in sampler.epoch(np.arange(1300), 100, epoch=1, prefetch=prefetch):
        launched.append(sum(size for _, size in launches))
        found.append(batch)
    assert same(found, expected) and [b.batch_id for b in found] == list(range(13, 26))
    assert {size for _, size in launches} <= {1, min(settled, prefetch), 2}
    assert all(ahead > k for k, ahead in enumerate(launched, 1) if k < 13)
    assert sum(size for _, size in launches) == 13


@pytest.mark.gpu
def test_who_leaves_an_epoch_early_holds_nothing(settled):
    sampler, alone = sampler_on("cuda", strategy="captured"), sampler_on("cpu")
    for first in range(3):
        sampler.sample_many(groups(4), first)
    for batch in sampler.epoch(np.arange(1300), 100):
        arena = weakref.ref(sampler._engine._started._wave.prepared[0].arena)
        assert batch.batch_id == 0 and arena() is not None
        break
    del batch
    assert arena() is None
    assert same(sampler.sample_many(groups(), 6), alone.sample_many(groups(), 6))


@pytest.mark.gpu
def test_bad_seeds_of_an_epoch_are_told_when_it_is_their_turn(settled):
    import cupy

    sampler = sampler_on("cuda", strategy="captured")
    seeds = cupy.arange(1300)
    seeds[850] = 10**6
    batches = iter(sampler.epoch(seeds, 100, shuffle=False, prefetch=4))
    assert [next(batches).batch_id for _ in range(8)] == list(range(8))
    with pytest.raises(ValueError, match="vertex ids"):
        next(batches)


@pytest.mark.gpu
def test_what_follows_on_another_stream_waits_for_what_was_started(settled):
    import cupy

    sampler, alone = sampler_on("cuda", strategy="captured"), sampler_on("cpu")
    sampler.sample_many(groups())
    with cupy.cuda.Stream(non_blocking=True):
        finish = sampler.start_many(groups(), 5)
    with cupy.cuda.Stream(non_blocking=True):
        assert same(sampler.sample_many(groups(3), 1), alone.sample_many(groups(3), 1))
        assert same(finish(), alone.sample_many(groups(), 5))


@pytest.mark.parametrize("device", DEVICES)
def test_other_calls_may_come_in_between(device):
    sampler, expected = sampler_on(device, strategy="captured"), sampler_on("cpu")
    sampler.sample_many(groups())
    first, second = sampler.start_many(groups(), 0), sampler.start_many(groups(3), 7)
    between = sampler.sample(np.arange(900), 99)
    assert between.canonical() == expected.sample(np.arange(900), 99).canonical()
    assert same(second(), expected.sample_many(groups(3), 7))
    assert same(first(), expected.sample_many(groups(), 0))
    sampler.start_many(groups(), 20)  # nobody asks for these
    assert same(sampler.sample_many(groups(2), 3), expected.sample_many(groups(2), 3))


@pytest.mark.parametrize("device", DEVICES)
def test_a_walk_sampler_has_it_too(device):
    graph = graph_named("hubs").to(device)
    sampler, twin = (
        PinSAGESampler(g, num_layers=2, device=on)
        for g, on in ((graph, device), (graph_named("hubs"), "cpu"))
    )
    assert same(sampler.start_many(groups(3), 2)(), twin.sample_many(groups(3), 2))


@pytest.mark.parametrize("device", DEVICES)
def test_bad_arguments_are_named_at_once(device):
    sampler = sampler_on(device)
    with pytest.raises(ValueError, match="at least one mini-batch"):
        sampler.start_many([])
    with pytest.raises(ValueError, match="seeds must be"):
        sampler.start_many([np.array([10**6])])


@pytest.mark.gpu
def test_what_is_wrong_on_the_device_is_told_who_asks(settled):
    import cupy

    sampler, expected = sampler_on("cuda", strategy="captured"), sampler_on("cpu")
    sampler.sample(np.arange(3))
    bad = sampler.start_many([cupy.array([3, 10**6])], 1)
    assert sampler.sample(np.arange(30), 2).canonical() == expected.sample(np.arange(30), 2).canonical()
    for _ in range(2):
        with pytest.raises(ValueError, match="vertex ids"):
            bad()


@pytest.mark.gpu
def test_memory_that_was_guessed_too_small_and_another_stream(settled):
    import cupy

    sampler, expected = sampler_on("cuda", strategy="captured"), sampler_on("cpu")
    for _ in range(3):
        sampler.sample_many([np.arange(2)] * 3)
    started = cupy.cuda.Stream(non_blocking=True)
    large = [np.arange(i, 5000, 3) for i in range(3)]
    with started:
        finish = sampler.start_many(large, 40)
    with cupy.cuda.Stream(non_blocking=True):
        assert same(finish(), expected.sample_many(large, 40))


@pytest.mark.gpu
def test_an_interrupt_while_they_are_collected_leaves_the_sampler_usable(settled, monkeypatch):
    from gnnsample_lab.minibatch.gpu.run import GpuEngine

    sampler, expected = sampler_on("cuda", strategy="captured"), sampler_on("cpu")
    sampler.sample_many(groups())
    finish = sampler.start_many(groups(), 4)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(GpuEngine, "_await_totals", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sampler.sample(np.arange(9))
    with pytest.raises(KeyboardInterrupt):
        finish()
    assert same(sampler.sample_many(groups(), 6), expected.sample_many(groups(), 6))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("on_gpu", [False, pytest.param(True, marks=pytest.mark.gpu)])
def test_seeds_may_change_once_they_are_started(monkeypatch, device, on_gpu):
    """Buffers that are too small, duplicates, and mini-batches of a later launch: all of them read seeds again."""
    settle(monkeypatch, 2)
    sampler, alone = sampler_on(device), sampler_on("cpu")
    given = [np.array([3, 7, 7, 9]), np.arange(300), np.array([5, 5])]
    expected = [alone.sample(seeds, 4 + i) for i, seeds in enumerate(given)]
    if on_gpu:
        import cupy

        given = [cupy.asarray(seeds) for seeds in given]
    finish = sampler.start_many(given, 4)
    for seeds in given:
        seeds[:] = 100 + seeds[:1]
    assert same(finish(), expected)
