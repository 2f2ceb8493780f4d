"""Ctrl-C at a bad moment: what was interrupted raises, and everything goes on working."""

from __future__ import annotations

import concurrent.futures
import threading

import numpy as np
import pytest

from gnnsample_lab import FeatureCache, MatchedFeatures, NeighborSampler, PinSAGESampler, run_app
from gnnsample_lab.device import runtime
from gnnsample_lab.sampling.apps import DeepWalk
from gnnsample_lab.sampling.engine.cpu import walker

TRAIN = np.arange(3, 103)


def interrupted(monkeypatch, owner, name, after=0):
    """Ctrl-C hits the call of ``owner.name`` with number ``after`` when it has done its work; later calls go well."""
    real, calls = getattr(owner, name), iter(range(10**9))

    def hit(*args, **options):
        result = real(*args, **options)
        if next(calls) == after:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(owner, name, hit)


def another_thread(work, *args):
    """What ``work(*args)`` returns in a thread of its own, which must not hang."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(work, *args).result(timeout=60)


def is_free(lock) -> bool:
    def take_and_give_back():
        taken = lock.acquire(blocking=False)
        if taken:
            lock.release()
        return taken

    return another_thread(take_and_give_back)


def contents(batches) -> list[tuple[int, str]]:
    return [(b.batch_id, b.canonical().sha256()) for b in batches]


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("make", [
    lambda g: NeighborSampler(g, [4, 3], device="cpu", seed=5),
    lambda g: PinSAGESampler(g, num_layers=2, device="cpu", seed=5),
])  # fmt: skip
def test_a_sampler_goes_on(graph, monkeypatch, make, after):
    from gnnsample_lab.sampling.neighbors import cpu as twin

    sampler, fresh = make(graph), make(graph)
    with monkeypatch.context() as patch:
        interrupted(patch, twin, "insert_new" if after % 2 else "local_ids", after // 2)
        with pytest.raises(KeyboardInterrupt):
            sampler.sample(TRAIN, 1)
    assert is_free(sampler._lock)
    for batch_id in (1, 2):
        expected = fresh.sample(TRAIN, batch_id).canonical()
        assert sampler.sample(TRAIN, batch_id).canonical() == expected
        assert another_thread(sampler.sample, TRAIN, batch_id).canonical() == expected


@pytest.mark.parametrize("prefetch", [1, 2, 4])
@pytest.mark.parametrize("after", [0, 2])
def test_an_epoch_goes_on_after_an_interrupt_in_its_thread(graph, monkeypatch, after, prefetch):
    sampler = NeighborSampler(graph, [3, 2], device="cpu", seed=17)
    epoch = sampler.epoch(TRAIN, 20, prefetch=prefetch)
    expected = contents(epoch)
    with monkeypatch.context() as patch:
        interrupted(patch, sampler, "_run", after)
        seen = []
        with pytest.raises(KeyboardInterrupt):
            seen += [0 for _ in epoch]
    assert is_free(sampler._lock)
    assert contents(epoch) == expected


@pytest.mark.parametrize("after", [0, 1, 4])
def test_an_epoch_goes_on_after_an_interrupt_of_its_wait(graph, monkeypatch, after):
    before = set(threading.enumerate())  # other tests' threads may still end
    sampler = NeighborSampler(graph, [3, 2], device="cpu", seed=17)
    epoch = sampler.epoch(TRAIN, 20)
    expected = contents(epoch)
    with monkeypatch.context() as patch:
        interrupted(patch, concurrent.futures.Future, "result", after)
        found = iter(epoch)
        with pytest.raises(KeyboardInterrupt):
            list(found)
        with pytest.raises(StopIteration):
            next(found)
    assert not [t for t in set(threading.enumerate()) - before if t.name.startswith("sampler")]
    assert is_free(sampler._lock)
    assert contents(epoch) == expected


def test_an_epoch_that_is_left_in_its_middle_lets_go(graph):
    sampler = NeighborSampler(graph, [3, 2], device="cpu", seed=17)
    epoch = sampler.epoch(TRAIN, 20)
    expected = contents(epoch)
    with pytest.raises(KeyboardInterrupt):
        for _ in epoch:
            raise KeyboardInterrupt
    assert is_free(sampler._lock)
    assert contents(epoch) == expected


@pytest.mark.parametrize("name", ["locate_rows", "collect_rows"])
@pytest.mark.parametrize("matched", [False, True])
def test_a_cache_goes_on(monkeypatch, name, matched):
    from gnnsample_lab.features.caching import host

    table = np.arange(400, dtype=np.float32).reshape(100, 4)
    cache = FeatureCache(table, np.arange(100), ratio=0.3, device="cpu")
    source = MatchedFeatures(cache) if matched else cache
    ids = np.array([5, 99, 5, 0, 71])
    source.extract(ids)
    with monkeypatch.context() as patch:
        interrupted(patch, host, name)
        with pytest.raises(KeyboardInterrupt):
            source.extract(ids[::-1])
    for again in (ids, ids[1:], ids):
        np.testing.assert_array_equal(source.extract(again)[0], table[again])
        np.testing.assert_array_equal(another_thread(source.extract, again)[0], table[again])


def test_applications_go_on(graph, monkeypatch):
    expected = run_app(graph, DeepWalk(5), num_samples=50, device="cpu", seed=3).digest()
    with monkeypatch.context() as patch:
        interrupted(patch, walker, "run")
        with pytest.raises(KeyboardInterrupt):
            run_app(graph, DeepWalk(5), num_samples=50, device="cpu", seed=3)
    assert is_free(runtime.lock)
    assert run_app(graph, DeepWalk(5), num_samples=50, device="cpu", seed=3).digest() == expected
