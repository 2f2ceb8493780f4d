"""Several workers of a rank: samplers and caches that share a part, each with collectives of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks.run import Ranks

pytest.importorskip("torch")

COLLECTIVE = ("pull", "csp", "csp-async", "csp-fixed")
BATCHES = 8
N = 150


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(1)
    src, dst = (rng.random(1200) ** 2 * N).astype(np.int64), rng.integers(0, N, 1200)
    graph = lab.Graph.from_edges(src, dst, N, feat=rng.random((N, 5), np.float32), name="two workers")
    cut = lab.distributed.partition(graph, 2, "random", tolerance=2, use_cache=False)
    return lab.distributed.save_parts(graph, cut, tmp_path_factory.mktemp("workers") / "parts")


def side_by_side(rank: Any, works: list[Callable[[], Any]]) -> list[Any]:
    """Each in a thread of its own; ranks start them in opposite orders."""
    found: list[Any] = [None] * len(works)

    def run(number: int) -> None:
        try:
            found[number] = works[number]()
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads[:: -1 if rank.index else 1]:
        thread.start()
    for thread in threads:
        thread.join()
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found


def plain(batch: Any) -> list[list[int]]:
    hops = [(picks.frontier, picks.counts, picks.neighbors, picks.positions) for picks in batch.picks]
    return [batch.node_ids.tolist(), *(array.tolist() for hop in hops for array in hop)]


def two_samplers(rank: Any, folder: Path, method: str) -> tuple[Any, Any, bool, int]:
    first = lab.distributed.Sampler(folder, [3, 2], method, rank=rank, seed=4)
    second = first.another()
    seeds = np.random.default_rng(0).integers(0, N, (BATCHES, 20))

    def sampled(sampler: Any, numbers: range) -> list[Any]:
        return [plain(sampler.sample(sampler.slice(seeds[n]), n)) for n in numbers]

    shared = [(first, range(0, BATCHES, 2)), (second, range(1, BATCHES, 2))]
    even, odd = side_by_side(rank, [lambda s=s, n=n: sampled(s, n) for s, n in shared])  # type: ignore[misc]
    apart = first._layout.exchange.group is not second._layout.exchange.group
    moved = second.total.volume
    alone = sampled(first, range(BATCHES))
    second.close()
    assert second._layout.own_groups[0] in rank._groups._left  # else its threads would go on in warm ranks
    with pytest.raises(RuntimeError, match="the sampler was closed"):
        second.sample(seeds[0])
    sampled(first, range(1))
    first.close()
    return [one for both in zip(even, odd) for one in both], alone, apart and second.part is first.part, moved


@pytest.mark.parametrize("method", COLLECTIVE)
def test_another_sampler_draws_the_same_beside_the_first(
    four_ranks: Ranks, folder: Path, method: str
) -> None:
    for together, alone, apart, moved in four_ranks.run(two_samplers, folder, method, world=2):
        assert together == alone and apart and moved > 0


def another_direct(rank: Any, folder: Path) -> str:
    sampler = lab.distributed.Sampler(folder, [3, 2], "direct", rank=rank)
    try:
        sampler.another()
    except ValueError as error:
        return str(error)
    finally:
        sampler.close()
    return ""


def test_methods_that_meet_nobody_need_no_other(four_ranks: Ranks, folder: Path) -> None:
    for said in four_ranks.run(another_direct, folder, world=2):
        assert said.startswith("method='direct'")


def two_caches(rank: Any, folder: Path, transport: str) -> tuple[Any, Any, bool]:
    first = lab.distributed.FeatureCache(folder, ratio=0.3, rank=rank, transport=transport)
    second = first.another()
    ids = np.random.default_rng(rank.index).integers(0, N, (BATCHES, 30))

    def rows(cache: Any, numbers: range) -> list[Any]:
        return [cache.extract(ids[n], cache.mark(ids[n]))[0].tolist() for n in numbers]

    shared = [(first, range(0, BATCHES, 2)), (second, range(1, BATCHES, 2))]
    even, odd = side_by_side(rank, [lambda c=c, n=n: rows(c, n) for c, n in shared])  # type: ignore[misc]
    alone = rows(first, range(BATCHES))
    same = second._engine.mine is first._engine.mine
    second.close()
    rows(first, range(1))
    first.close()
    return [one for both in zip(even, odd) for one in both], alone, same


@pytest.mark.parametrize("transport", ["all-to-all", "all-to-all-unordered", "direct"])
def test_another_cache_has_the_same_rows(four_ranks: Ranks, folder: Path, transport: str) -> None:
    for together, alone, same in four_ranks.run(two_caches, folder, transport, world=2):
        assert together == alone and same


def one_sampler_of_several_threads(rank: Any, folder: Path, method: str) -> list[Any]:
    sampler = lab.distributed.Sampler(folder, [3, 2], method, rank=rank, seed=4, cache_bytes=500)
    seeds = np.random.default_rng(0).integers(0, N, (BATCHES, 20))
    sample_many = sampler.engine.sample_many

    def slow(*args: Any) -> Any:  # the other threads come in between
        time.sleep(0.01)
        found = sample_many(*args)
        time.sleep(0.01)
        return found

    def sampled(numbers: range) -> list[Any]:
        return [(plain(sampler.sample(seeds[n], n)), sampler.total.volume >= 0) for n in numbers]

    alone = sampled(range(BATCHES))
    before = sampler.total.volume
    with mock.patch.object(sampler.engine, "sample_many", slow):
        threads = side_by_side(rank, [lambda i=i: sampled(range(i, BATCHES, 4)) for i in range(4)])  # type: ignore[misc]
    together = [threads[n % 4][n // 4] for n in range(BATCHES)]
    moved = sampler.total.volume - before
    sampler.close()
    return [together == alone, before, moved]


@pytest.mark.parametrize("method", ["uva", "direct", "direct-cached"])
def test_threads_that_share_a_sampler_are_counted_once(four_ranks: Ranks, folder: Path, method: str) -> None:
    for same, alone, together in four_ranks.run(one_sampler_of_several_threads, folder, method, world=2):
        assert same and together == alone > 0
