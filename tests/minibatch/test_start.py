"""Mini-batches that are started now and collected later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gnnsample_lab import NeighborSampler, PinSAGESampler
from gnnsample_lab.bench.configurations import test_graph as graph_named  # pytest collects test_*

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
EACH = [
    ("auto", "cpu"),  # a strategy chooses no sampler there
    *(pytest.param(name, "cuda", marks=pytest.mark.gpu) for name in ("auto", "captured", "bsp", "block-bsp")),
]


def groups(count: int = 5) -> list[np.ndarray]:
    return [np.random.default_rng(i).integers(0, 6000, 3 + 80 * i) for i in range(count)]


def sampler_on(device: str, **given: Any) -> NeighborSampler:
    return NeighborSampler(graph_named("hubs").to(device), [5, 4, 3], device=device, **given)


def same(found: Any, expected: Any) -> bool:
    return [b.canonical() for b in found] == [b.canonical() for b in expected]


@pytest.mark.parametrize(("strategy", "device"), EACH)
def test_they_are_those_of_one_by_one(strategy, device):
    sampler, alone = sampler_on(device, strategy=strategy), sampler_on("cpu")
    for first in (0, 5, 10):
        finish = sampler.start_many(groups(), first)
        assert same(finish(), [alone.sample(seeds, first + i) for i, seeds in enumerate(groups())])
        assert all(a is b for a, b in zip(finish(), finish(), strict=True))


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
def test_what_is_wrong_on_the_device_is_told_who_asks():
    import cupy

    sampler, expected = sampler_on("cuda", strategy="captured"), sampler_on("cpu")
    sampler.sample(np.arange(3))
    bad = sampler.start_many([cupy.array([3, 10**6])], 1)
    assert sampler.sample(np.arange(30), 2).canonical() == expected.sample(np.arange(30), 2).canonical()
    for _ in range(2):
        with pytest.raises(ValueError, match="vertex ids"):
            bad()


@pytest.mark.gpu
def test_memory_that_was_guessed_too_small_and_another_stream():
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
def test_an_interrupt_while_they_are_collected_leaves_the_sampler_usable(monkeypatch):
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
