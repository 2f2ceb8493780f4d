"""Match: what batches share, what the next one loads, and extraction that loads exactly that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.checks import is_cuda_array
from gnnsample_lab.features.reuse import match as match_module
from gnnsample_lab.features.reuse.matched import MatchedFeatures
from tests.minibatch import reference

DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))


def to_device(ids: Any, device: str) -> Any:
    ids = np.asarray(ids, dtype=np.int64)
    if device == "cpu":
        return ids
    import cupy

    return cupy.asarray(ids)


def on_host(x: Any) -> np.ndarray:
    return x.get() if is_cuda_array(x) else x


def distinct(seed: int, size: int, limit: int = 1000) -> np.ndarray:
    return np.random.default_rng(seed).permutation(limit)[:size]


@pytest.mark.parametrize("device", DEVICES)
def test_match_by_hand(device):
    plan = lab.match(to_device([5, 3, 9, 1], device), to_device([1, 2, 5, 8], device))
    assert on_host(plan.reuse).tolist() == [[3, 0], [0, 2]]
    assert on_host(plan.load).tolist() == [2, 8]
    assert on_host(plan.load_positions).tolist() == [1, 3]
    assert (plan.num_reused, plan.num_loaded) == (2, 2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (0, 0), (1, 1), (400, 300), (3000, 2500)])
def test_a_plan_covers_the_batch_once(sizes, device):
    before, now = distinct(1, sizes[0], 5000), distinct(2, sizes[1], 5000)
    plan = lab.match(to_device(before, device), to_device(now, device))
    reuse, load, positions = (on_host(a) for a in (plan.reuse, plan.load, plan.load_positions))
    assert np.array_equal(before[reuse[0]], now[reuse[1]])
    assert np.array_equal(np.sort(np.concatenate([reuse[1], positions])), np.arange(sizes[1]))
    assert np.array_equal(now[positions], load)
    assert not np.isin(load, before).any()
    assert (np.diff(reuse[1]) > 0).all() and (np.diff(positions) > 0).all()


@pytest.mark.parametrize("device", DEVICES)
def test_repeated_ids_match_their_first_position(device):
    plan = lab.match(to_device([4, 7, 7, 4], device), to_device([7, 1, 7, 4], device))
    assert on_host(plan.reuse).tolist() == [[1, 1, 0], [0, 2, 3]]
    assert on_host(plan.load).tolist() == [1]


@pytest.mark.parametrize("device", DEVICES)
def test_degrees_by_hand(device):
    batches = [to_device(b, device) for b in ([0, 1, 2, 3], [3, 4], [9, 8, 7, 3, 2, 63, 64, 1000])]
    assert lab.overlaps(batches).tolist() == [[4, 1, 2], [1, 2, 1], [2, 1, 8]]
    degrees = lab.match_degrees(batches)
    assert degrees.dtype == np.float64
    assert degrees.tolist() == [[1, 0.5, 0.5], [0.5, 1, 0.5], [0.5, 0.5, 1]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("scratch", [None, 200, 4000])
@pytest.mark.parametrize("count", [1, 2, 17, 40])
@pytest.mark.parametrize("apart", [1, 2**30])
def test_overlaps_are_those_of_sets(apart, count, scratch, device, monkeypatch):
    if scratch is not None:  # the graph is then counted in ranges
        monkeypatch.setattr(match_module, "_BITMAP_BYTES", scratch * count)
    batches = [apart * distinct(i, 5 + 37 * i % 400, 9000) for i in range(count)]
    batches[0] = np.concatenate([batches[0], batches[0][:3]])  # duplicates count once
    expected = [
        [len(set(a) & set(b)) for b in map(np.ndarray.tolist, batches)]
        for a in map(np.ndarray.tolist, batches)
    ]
    shared = lab.overlaps([to_device(b, device) for b in batches])
    assert shared.dtype == np.int64
    assert shared.tolist() == expected
    sizes = [len(set(batch.tolist())) for batch in batches]
    degrees = [[expected[i][j] / min(sizes[i], sizes[j]) for j in range(count)] for i in range(count)]
    assert lab.match_degrees([to_device(b, device) for b in batches]).tolist() == degrees


@pytest.mark.parametrize("narrow", [np.uint8, np.int16, np.uint64])
@pytest.mark.parametrize("bytes_per_id", [1 << 20, 0])
def test_ids_of_any_type_are_counted_in_ranges_or_numbered(narrow, bytes_per_id, monkeypatch):
    """A range begins beyond what the narrow type holds, where that list has nothing."""
    monkeypatch.setattr(match_module, "_BITMAP_BYTES", 2 * 64)
    monkeypatch.setattr(match_module, "_BYTES_PER_ID", bytes_per_id)
    batches = [np.array([1, 2, 100], narrow), np.array([100, 99_999, 2, 10**6])]
    assert lab.overlaps(batches).tolist() == [[3, 2], [2, 4]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("far", [2**34, 2**62])
def test_time_and_memory_are_those_of_the_ids_however_high(far, device):
    """A bitmap of all vertices up to the highest took 10 s for 2^34 of them, and did not end for more."""
    batches = [to_device(b, device) for b in ([far], [far, 3, far], [], [far - 1, 3, far - 2**20])]
    assert lab.overlaps(batches).tolist() == [[1, 1, 0, 0], [1, 2, 0, 1], [0, 0, 0, 0], [0, 1, 0, 3]]
    assert lab.match_degrees(batches[:2]).tolist() == [[1, 1], [1, 1]]


def test_ids_beyond_63_bits_are_kept_apart():
    batches = [
        np.array([2**64 - 1, 1], np.uint64),
        np.array([1, 2**63 - 1]),
        np.array([2**64 - 2], np.uint64),
    ]
    assert lab.overlaps(batches).tolist() == [[2, 1, 0], [1, 2, 0], [0, 0, 1]]


@pytest.mark.parametrize("count", [2, 40])
def test_ids_that_are_not_far_apart_have_bitmaps_as_they_are(count, monkeypatch):
    monkeypatch.setattr(match_module, "_numbered", None)
    batches = [distinct(i, 500, 50_000) for i in range(count)]
    assert np.diag(lab.overlaps(batches)).tolist() == [500] * count
    monkeypatch.setattr(match_module, "_BITMAP_BYTES", 2000 * count)  # and in ranges
    monkeypatch.setattr(match_module, "_BYTES_PER_ID", 0)
    every = [np.arange(i, 9000, count) for i in range(count)]  # there are no more vertices than ids
    assert np.diag(lab.overlaps(every)).sum() == 9000


def test_mini_batches_are_taken_by_their_vertices():
    """FastGL's match degree and its match with sets and dictionaries, on samples of the plain reference."""
    graph = lab.load("arxiv-like", scale=0.01)
    sampler = lab.NeighborSampler(graph, [3, 3], device="cpu")
    seeds = [list(range(10 * i + 20, 10 * i, -1)) for i in range(3)]  # the first of one is a seed of the next
    batches = [sampler.sample(each, batch_id=i) for i, each in enumerate(seeds)]
    nodes = [reference.sample(graph, each, [3, 3], i).nodes for i, each in enumerate(seeds)]
    sets = [set(each) for each in nodes]
    degrees = [[len(a & b) / min(len(a), len(b)) for b in sets] for a in sets]
    assert lab.match_degrees(batches).tolist() == degrees and 0 < degrees[0][1] < 1
    plan, place = lab.match(batches[0], batches[1]), {v: at for at, v in enumerate(nodes[0])}
    assert plan.reuse.T.tolist() == [[place[v], at] for at, v in enumerate(nodes[1]) if v in place]
    assert plan.load.tolist() == [v for v in nodes[1] if v not in place]
    assert plan.load_positions.tolist() == [at for at, v in enumerate(nodes[1]) if v not in place]


def test_batches_without_vertices_are_errors():
    for function in (lab.match_degrees, lab.overlaps):
        with pytest.raises(ValueError, match=r"batches must name at least one batch \(got none\)"):
            function([])
    with pytest.raises(ValueError, match="got batch 1 without any"):
        lab.match_degrees([[1, 2], [], [3]])
    assert lab.overlaps([[], [1]]).tolist() == [[0, 0], [0, 1]]
    with pytest.raises(TypeError, match="integers"):
        lab.overlaps([[0.5]])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_negative_ids_are_errors(dtype, device):
    with pytest.raises(ValueError, match=r"batches must hold vertex ids \(got a negative one"):
        lab.overlaps([to_device([3], device).astype(dtype), to_device([-1, 2], device).astype(dtype)])


FEAT = np.random.default_rng(0).standard_normal((1000, 11)).astype(np.float32)


def expected_counts(previous: np.ndarray, ids: np.ndarray, cached: np.ndarray) -> tuple[int, int, int]:
    reused = np.isin(ids, previous)
    hits = np.isin(ids, cached) & ~reused
    return int(reused.sum()), int(hits.sum()), int((~reused & ~hits).sum())


@pytest.mark.parametrize(
    ("transfer", "device"),
    [("auto", "cpu"), *(pytest.param(how, "cuda", marks=pytest.mark.gpu) for how in ("uva", "staged"))],
)
@pytest.mark.parametrize("ratio", [0, 0.2, 1])
def test_only_rows_that_are_nowhere_are_loaded(ratio, transfer, device):
    score = np.random.default_rng(3).random(1000)
    cache = lab.FeatureCache(FEAT, score, ratio=ratio, device=device, transfer=transfer)
    features, previous = lab.MatchedFeatures(cache), np.empty(0, np.int64)
    for step, size in enumerate([300, 500, 0, 200, 400, 400]):
        ids = distinct(step, size)
        if step == 5:
            ids = np.concatenate([ids, ids[:50]])  # duplicates too
        x, stats = features.extract(ids)
        assert on_host(x).tobytes() == FEAT[ids].tobytes()
        counts = expected_counts(previous, ids, cache.cached_ids)
        assert (stats.reused, stats.hits, stats.misses) == counts
        assert stats.bytes_moved == counts[2] * 44 and stats.bytes_reused == counts[0] * 44
        previous = ids
    features.reset()
    _, stats = features.extract(previous)
    assert stats.reused == 0


@pytest.mark.parametrize("device", DEVICES)
def test_a_table_matches_without_a_cache(device):
    features = lab.MatchedFeatures(FEAT, device=device)
    before, now = distinct(1, 300), distinct(2, 300)
    features.extract(before)
    x, stats = features.extract(now)
    assert on_host(x).tobytes() == FEAT[now].tobytes()
    assert stats.bytes_moved == lab.match(before, now).num_loaded * 44
    assert (stats.hits, stats.hit_rate) == (0, 0.0)


@pytest.mark.parametrize("device", DEVICES)
def test_entries_that_wrap_are_cleared(device):
    features = MatchedFeatures(FEAT, device=device)
    features._next = 2**32 - 500
    previous = np.empty(0, np.int64)
    for step in range(4):
        ids = distinct(step, 300)
        x, stats = features.extract(ids)
        assert on_host(x).tobytes() == FEAT[ids].tobytes()
        assert stats.reused == np.isin(ids, previous).sum()
        previous = ids
    assert features._next < 2000


@pytest.mark.gpu
def test_the_gpu_plans_as_the_cpu_does():
    before, now = distinct(1, 3000, 9000).astype(np.int32), distinct(2, 4000, 9000).astype(np.int32)
    expected = lab.match(before, now)
    import cupy

    plan = lab.match(cupy.asarray(before), cupy.asarray(now))
    for name in ("reuse", "load", "load_positions"):
        assert np.array_equal(getattr(plan, name).get(), getattr(expected, name))
        assert getattr(plan, name).dtype == getattr(expected, name).dtype


def test_large_ids_of_two_types_match():
    """NumPy compares int64 with uint64 as floats, which hold 53 bits."""
    before, now = np.array([2**60 + 1, 2**60 + 3]), np.array([2**60 + 3], np.uint64)
    assert lab.match(before, now).reuse.tolist() == [[1], [0]]
    assert lab.match(now, before).reuse.tolist() == [[0], [1]]
