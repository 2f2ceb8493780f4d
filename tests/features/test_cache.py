"""The feature cache returns the plain gather's values in every configuration, and counts what it moved."""

from __future__ import annotations

import itertools
import mmap
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.checks import is_cuda_array
from gnnsample_lab.device.polling import beside_others
from gnnsample_lab.features.caching import cache as cache_module
from gnnsample_lab.features.caching import gather, host

N = 700
LOOK_UP = 8 * -(-N // 32)  # bytes of the table that says which rows are cached
WIDTHS = (1, 7, 100, 128, 602)
DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))


def table(width: int, dtype: Any, rows: int = N) -> np.ndarray:
    """Every bit pattern may occur, NaN among them: rows have to arrive bit for bit."""
    raw = np.random.default_rng(width).integers(
        0, 2**16, rows * width * np.dtype(dtype).itemsize // 2, np.uint16
    )
    return raw.view(dtype).reshape(rows, width)


def scores(rows: int = N) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 50, rows)


def batch(size: int = 400, rows: int = N, seed: int = 0) -> np.ndarray:
    ids = np.random.default_rng(seed).integers(0, rows, size)  # with duplicates
    ids[:1] = rows - 1  # the last row: nothing lies behind it
    return ids


def on_host(x: Any) -> np.ndarray:
    return x.get() if is_cuda_array(x) else x


def same_bits(x: Any, expected: np.ndarray) -> bool:
    return x.dtype == expected.dtype and on_host(x).tobytes() == expected.tobytes()


EACH = [
    ("auto", "cpu"),  # a transfer chooses nothing there
    *(pytest.param(how, "cuda", marks=pytest.mark.gpu) for how in ("auto", "staged", "uva")),
]


def hit_mask(cache: lab.FeatureCache, ids: np.ndarray) -> np.ndarray:
    return np.isin(ids, cache.cached_ids)


@pytest.mark.parametrize(("transfer", "device"), EACH)
@pytest.mark.parametrize("ratio", [0, 0.1, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_are_those_of_the_plain_gather(width, dtype, ratio, transfer, device):
    feat, ids = table(width, dtype), batch()
    cache = lab.FeatureCache(feat, scores(), ratio=ratio, device=device, transfer=transfer)
    for marks in (None, cache.mark(ids)):
        x, stats = cache.extract(ids, marks)
        assert same_bits(x, feat[ids])
        hits = int(hit_mask(cache, ids).sum())
        assert (stats.rows, stats.hits, stats.misses, stats.reused) == (400, hits, 400 - hits, 0)
        assert stats.bytes_moved == stats.misses * feat[0].nbytes
        assert stats.bytes_hit == hits * feat[0].nbytes
        assert stats.hit_rate == hits / 400
        assert stats.time_us > 0
        assert stats.transfer == ("host" if device == "cpu" else "uva" if transfer == "auto" else transfer)
        assert stats.origin.startswith("measured on ")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_ids_of_every_kind(device, dtype):
    torch = pytest.importorskip("torch")
    feat, ids = table(5, np.float32), batch()
    cache = lab.FeatureCache(feat, scores(), ratio=0.3, device=device)
    given = [ids.astype(dtype), ids.tolist(), torch.from_numpy(ids)]
    if device == "cuda":
        import cupy

        given += [cupy.asarray(ids.astype(dtype)), torch.from_numpy(ids).cuda()]
    for each in given:
        assert same_bits(cache.extract(each)[0], feat[ids])


@pytest.mark.parametrize("transfer", ["auto", "staged", "uva"])
def test_on_a_cpu_every_transfer_is_the_hosts(transfer):
    cache = lab.FeatureCache(table(7, np.float32), scores(), ratio=0.1, device="cpu", transfer=transfer)
    assert cache.extract(batch())[1].transfer == "host"


@pytest.mark.parametrize(("transfer", "device"), EACH)
def test_an_empty_batch(device, transfer):
    cache = lab.FeatureCache(table(7, np.float32), scores(), ratio=0.1, device=device, transfer=transfer)
    for ids in ([], np.empty(0, np.int32)):
        x, stats = cache.extract(ids)
        assert x.shape == (0, 7) and x.dtype == np.float32
        assert (stats.rows, stats.hits, stats.misses, stats.bytes_moved) == (0, 0, 0, 0)
        assert cache.mark(ids).num_misses == 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", [7, 100])
def test_a_memory_mapped_table_is_read_from_disk(tmp_path: Path, device, width):
    feat, ids = table(width, np.float32), batch()
    np.save(tmp_path / "feat.npy", feat)
    mapped = np.load(tmp_path / "feat.npy", mmap_mode="r")
    cache = lab.FeatureCache(mapped, scores(), ratio=0.1, device=device)
    x, stats = cache.extract(ids)
    assert same_bits(x, feat[ids])
    assert cache.transfer == stats.transfer == "disk"
    # Also where the file's header leaves the rows at an odd address.
    (tmp_path / "odd.bin").write_bytes(b"x" + feat.tobytes())
    odd = np.memmap(tmp_path / "odd.bin", np.float32, "r", 1, feat.shape)
    assert same_bits(lab.FeatureCache(odd, scores(), ratio=0.1, device=device).extract(ids)[0], feat[ids])


@pytest.mark.parametrize("device", DEVICES)
def test_marks_tell_where_each_row_is(device):
    feat, ids = table(7, np.float32), batch()
    cache = lab.FeatureCache(feat, scores(), ratio=0.3, device=device)
    marks = cache.mark(ids)
    locations, hit = on_host(marks.locations), hit_mask(cache, ids)
    assert locations.dtype == np.int32
    assert np.array_equal(locations >= 0, hit)
    assert np.array_equal(cache.cached_ids[locations[hit]], ids[hit])
    assert (locations[~hit] == -1).all()
    assert (marks.num_hits, marks.num_misses) == (hit.sum(), (~hit).sum())
    misses = on_host(marks.misses)[: marks.num_misses]
    assert np.array_equal(np.sort(misses), np.flatnonzero(~hit))
    assert np.array_equal(on_host(marks.missing)[: marks.num_misses], ids[misses])


def test_the_hottest_rows_are_cached_and_ties_go_to_the_lower_id():
    cache = lab.FeatureCache(table(2, np.float32, 6), [3, 9, 3, 9, 1, 3], ratio=0.5, device="cpu")
    assert cache.cached_ids.tolist() == [0, 1, 3]
    assert (cache.num_cached, cache.ratio, cache.num_features, cache.num_nodes) == (3, 0.5, 2, 6)
    assert cache.nbytes == 3 * 8 + 8, "three rows, and one word of the look-up table"


def test_the_order_of_a_hotness_is_taken_as_it_is():
    class Ranked:
        order = np.array([4, 2, 0, 1, 3, 5])

    cache = lab.FeatureCache(table(2, np.float32, 6), Ranked(), ratio=1 / 3, device="cpu")
    assert cache.cached_ids.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("order", "got"),
    [
        ([4, 2, 0, 1, 3, 6], "got 6 at position 5"),
        ([4, -1, 0, 1, 3, 5], "got -1 at position 1"),
        ([4, 4, 0, 1, 3, 5], "got none that is 2"),
    ],
)
def test_an_order_that_is_no_permutation_is_refused(order, got):
    class Ranked:
        pass

    ranked = Ranked()
    ranked.order = np.array(order)
    with pytest.raises(ValueError, match=rf"hotness\.order must name each vertex in 0\.\.5 once \({got}\)"):
        lab.FeatureCache(table(2, np.float32, 6), ranked, ratio=1 / 3, device="cpu")


def test_columns_of_a_memory_map_are_not_read_from_disk(tmp_path: Path):
    np.save(tmp_path / "feat.npy", table(7, np.float32))
    mapped = np.load(tmp_path / "feat.npy", mmap_mode="r")
    with pytest.raises(
        ValueError, match=r"rows are contiguous.* \(got feat \[700, 3\] with steps of \(28, 4\) bytes"
    ):
        lab.FeatureCache(mapped[:, :3], scores(), ratio=0.1, device="cpu", transfer="disk")


@pytest.mark.parametrize(
    ("capacity", "cached"),
    [
        (0, 0),
        (LOOK_UP, 0),
        (LOOK_UP + 27, 0),
        (LOOK_UP + 28, 1),
        (LOOK_UP + 28 * 100, 100),
        (N * 28 - 1, (N * 28 - 1 - LOOK_UP) // 28),
        (N * 28, N),
    ],
)
def test_bytes_hold_what_they_can(capacity, cached):
    cache = lab.FeatureCache(table(7, np.float32), scores(), capacity_bytes=capacity, device="cpu")
    assert cache.num_cached == cached
    assert cache.nbytes <= capacity


@pytest.mark.parametrize("device", DEVICES)
def test_what_a_trial_step_leaves_free_is_filled(device):
    ran = []
    feat, ids = table(7, np.float32), batch()
    cache = lab.FeatureCache(feat, scores(), leave_free="trial", trial=lambda: ran.append(1), device=device)
    assert ran == [1]
    assert cache.num_cached == N  # there is memory for 20 kB
    assert same_bits(cache.extract(ids)[0], feat[ids])


@pytest.mark.gpu
def test_the_peak_of_the_trial_step_stays_free():
    import cupy

    from gnnsample_lab.features.caching.sizing import memory_left_by

    cupy.get_default_memory_pool().free_all_blocks()
    free = cupy.cuda.runtime.memGetInfo()[0]
    left = memory_left_by(lambda: cupy.empty(free // 2, cupy.uint8), "cuda")
    cupy.get_default_memory_pool().free_all_blocks()
    assert 0.3 * free < left <= 0.5 * free


@pytest.mark.parametrize("device", DEVICES)
def test_out_is_written_to(device):
    feat, ids = table(7, np.float32), batch()
    cache = lab.FeatureCache(feat, scores(), ratio=0.1, device=device)
    out = gather.library(device).zeros((400, 7), np.float32)
    x, _ = cache.extract(ids, out=out)
    assert x is out and same_bits(out, feat[ids])
    wide = gather.library(device).zeros((401, 7), np.float32)
    assert same_bits(cache.extract(ids, out=wide[1:])[0], feat[ids])  # rows at another alignment
    for bad in (
        wide,
        gather.library(device).zeros((400, 7), np.float16),
        gather.library(device).zeros((400, 14), np.float32)[:, ::2],
    ):
        with pytest.raises(ValueError, match="out must be"):
            cache.extract(ids, out=bad)
    with pytest.raises(TypeError, match="out must be"):
        cache.extract(ids, out=[0])


def test_torch_tables_and_columns():
    torch = pytest.importorskip("torch")
    feat, ids = table(7, np.float32), batch()
    cache = lab.FeatureCache(torch.from_numpy(feat.copy()), scores(), ratio=0.1, device="cpu")
    assert same_bits(cache.extract(ids)[0], feat[ids])
    cache = lab.FeatureCache(np.asfortranarray(feat), scores(), ratio=0.1, device="cpu")
    assert same_bits(cache.extract(ids)[0], feat[ids])


@pytest.mark.parametrize(("transfer", "device"), EACH)
@pytest.mark.parametrize("ratio", [0, 0.1, 1])
@pytest.mark.parametrize("launch_rows", [1, 500, 100_000])
def test_several_batches_get_what_each_gets_alone(monkeypatch, launch_rows, ratio, transfer, device):
    """Twenty of different sizes, empty ones among them, whatever number of them shares a launch."""
    monkeypatch.setattr(cache_module, "_LAUNCH_BYTES", launch_rows * 4 * 7)
    feat = table(7, np.float32)
    cache = lab.FeatureCache(feat, scores(), ratio=ratio, device=device, transfer=transfer)
    batches = [batch(size, seed=size) for size in (0, 1, 300, 33, *range(40, 640, 40), 64)]
    given = [cache._ids(ids) if i % 2 else ids for i, ids in enumerate(batches)]
    found = list(cache.extract_each(given))
    assert len(found) == len(batches) == 20
    for (x, stats), ids in zip(found, batches, strict=True):
        assert same_bits(x, feat[ids])
        hits = int(hit_mask(cache, ids).sum())
        assert (stats.rows, stats.hits, stats.misses) == (len(ids), hits, len(ids) - hits)
        assert stats.time_us >= 0
    assert list(cache.extract_each([])) == []
    with pytest.raises(TypeError, match="node_ids must be integers"):
        cache.extract_each([[0], [0.5]])


@pytest.mark.gpu
def test_small_batches_share_a_launch(monkeypatch):
    feat, launches = table(128, np.float32), []
    cache = lab.FeatureCache(feat, scores(), ratio=1, device="cuda")
    launch = cache._gpu.extract_parts
    monkeypatch.setattr(
        cache._gpu, "extract_parts", lambda parts, rows: (launches.append(len(parts)), launch(parts, rows))
    )
    list(cache.extract_each([batch(50, seed=i) for i in range(20)]))
    launches.clear()  # the first launch was made twice, once to compile
    list(cache.extract_each([batch(50, seed=i) for i in range(20)]))
    assert launches == [16, 4]
    rows = cache.extract_each([batch(50, seed=i).astype(kind) for i, kind in enumerate(("i4", "i8", "i4"))])
    assert all(same_bits(x, feat[batch(50, seed=i)]) for i, (x, _) in enumerate(rows))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_table_on_the_gpu_always_hits(dtype):
    import cupy

    feat, ids = table(7, dtype), batch()
    for given in (cupy.asarray(feat), pytest.importorskip("torch").from_numpy(feat.copy()).cuda()):
        cache = lab.FeatureCache(given)
        x, stats = cache.extract(ids)
        assert same_bits(x, feat[ids])
        assert (cache.transfer, cache.ratio, stats.misses, stats.hit_rate) == ("device", 1.0, 0, 1.0)
    with pytest.raises(ValueError, match="device='cpu'"):
        lab.FeatureCache(cupy.asarray(feat), device="cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("width", [4, 100, 128, 301])
def test_no_knob_changes_a_row(width):
    feat, ids = table(width, np.float32), batch(3000)
    for rows, load, aligned, pinning, pad in itertools.product(
        (1, 8), (0, 1, 2, 3), (False, True), ("register", "copy"), (0, 128)
    ):
        if pinning == "register" and pad:
            continue
        knobs = gather.ExtractKnobs(
            rows_per_warp=rows, load=load, aligned=aligned, pinning=pinning, pad_bytes=pad,
            by_page=load != 1, blocks_per_sm=1,
        )  # fmt: skip
        cache = lab.FeatureCache(feat, scores(), ratio=0.1, transfer="uva", knobs=knobs)
        x, stats = cache.extract(ids)
        assert same_bits(x, feat[ids]), knobs
        assert stats.misses == 3000 - hit_mask(cache, ids).sum(), knobs


def tails_of(cache: Any) -> int:
    """Bytes of each row that device memory keeps."""
    return 0 if cache._tails is None else int(cache._tails.shape[1])


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("width", "dtype", "tail"),
    [
        (100, np.float32, 16), (33, np.float32, 4), (39, np.float32, 28), (40, np.float32, 32), (602, np.float32, 0),
        (41, np.float32, 0), (32, np.float32, 0), (4, np.float32, 0), (65, np.float16, 2), (74, np.float16, 20),
        (129, np.float16, 2),
    ],
)  # fmt: skip
def test_what_rows_have_over_whole_lines_lies_in_device_memory(width, dtype, tail):
    feat, ids = table(width, dtype), batch(700)
    for ratio, rows, load, aligned, kind in (
        (0, 1, 0, True, np.int32), (0.1, 2, 2, True, np.int64), (0.1, 1, 2, False, np.int32),
        (0, 2, 0, False, np.int64),
    ):  # fmt: skip
        knobs = gather.ExtractKnobs(
            rows_per_warp=rows, load=load, aligned=aligned, pinning="copy", tail_bytes=32, by_page=load == 2
        )
        cache = lab.FeatureCache(feat, scores(), ratio=ratio, device="cuda", transfer="uva", knobs=knobs)
        assert tails_of(cache) == tail and cache._pinned.stride == feat.strides[0] - tail
        given = ids.astype(kind)
        for marks in (None, cache.mark(given)):
            x, stats = cache.extract(given, marks)
            assert same_bits(x, feat[ids]), knobs
            assert stats.misses == 700 - hit_mask(cache, ids).sum(), knobs
            assert stats.bytes_moved == stats.misses * (feat.strides[0] - tail)
        assert cache.nbytes == cache.num_cached * feat.strides[0] + len(feat) * tail + LOOK_UP * (ratio > 0)


@pytest.mark.gpu
def test_rows_of_the_batch_before_and_tails():
    feat = table(100, np.float32)
    knobs = gather.ExtractKnobs(pinning="copy", tail_bytes=32)
    cache = lab.FeatureCache(feat, scores(), ratio=0.1, device="cuda", transfer="uva", knobs=knobs)
    matched = lab.MatchedFeatures(cache)
    for seed in range(4):
        ids = batch(900, seed=seed)
        x, stats = matched.extract(ids)
        assert same_bits(x, feat[ids])
        assert stats.reused > 0 or seed == 0


@pytest.mark.gpu
def test_tables_that_stay_where_they_lie_have_no_tails(monkeypatch):
    feat = table(100, np.float32)

    def made(pinning: str, ratio: float = 0.1, transfer: str = "uva", **knobs: Any) -> Any:
        chosen = gather.ExtractKnobs(pinning=pinning, **knobs)
        return lab.FeatureCache(feat, scores(), ratio=ratio, device="cuda", transfer=transfer, knobs=chosen)

    assert tails_of(made("copy")) == 0  # nobody asked for them
    assert tails_of(made("register", tail_bytes=32)) == 0
    assert tails_of(made("copy", tail_bytes=15)) == 0
    assert tails_of(made("copy", tail_bytes=32, transfer="staged")) == 0
    assert tails_of(made("copy", tail_bytes=32, ratio=1)) == 0
    assert tails_of(made("auto", tail_bytes=32)) == 16
    monkeypatch.setattr(host, "free_host_bytes", lambda: feat.nbytes)
    assert tails_of(made("auto", tail_bytes=32)) == 0
    cache = made("copy", tail_bytes=32)
    with pytest.raises(ValueError, match=r"whole rows .* knobs.tail_bytes=0 \(got 32\)"):
        cache.rows_on_gpu()
    assert made("copy").rows_on_gpu().tails is None


@pytest.mark.gpu
def test_bytes_hold_tails_too():
    feat = table(100, np.float32)
    knobs = gather.ExtractKnobs(pinning="copy", tail_bytes=32)
    num_nodes, ids = len(feat), batch(500)
    beside = LOOK_UP + 16 * num_nodes
    for capacity, cached, tail in (
        (beside + 400 * 7 + 399, 7, 16), (beside, 0, 16), (beside - 1, None, 0),
        (num_nodes * 400, num_nodes, 0),
    ):  # fmt: skip
        cache = lab.FeatureCache(
            feat, scores(), capacity_bytes=capacity, device="cuda", transfer="uva", knobs=knobs
        )
        assert tails_of(cache) == tail and cache.nbytes <= capacity
        assert cached is None or cache.num_cached == cached
        assert same_bits(cache.extract(ids)[0], feat[ids])


@pytest.mark.gpu
@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_staged_chunks_of_every_size(buffers):
    feat, ids = table(25, np.float32), batch(1000)
    for chunk in (1, 100, 700, 3000, 1 << 20):
        knobs = gather.ExtractKnobs(chunk_bytes=chunk, buffers=buffers, gather_threads=1)
        cache = lab.FeatureCache(feat, scores(), ratio=0.1, transfer="staged", knobs=knobs)
        for seed in range(3):
            ids = batch(1000, seed=seed)
            x, stats = cache.extract(ids)
            assert same_bits(x, feat[ids])
            assert set(stats.stages) == {"mark_us", "gather_us", "wait_us"}


@pytest.mark.gpu
@pytest.mark.parametrize(("threads", "asked", "expected"), [(32, None, 28), (8, None, None), (32, 30, 30)])
def test_a_gather_beside_other_workers_leaves_cores_to_them(monkeypatch, threads, asked, expected):
    """All of its threads wait for the one whose core a worker has."""
    counts = []
    monkeypatch.setattr(gather.jit, "num_threads", lambda: threads)
    monkeypatch.setattr(gather.jit, "threads", lambda count: counts.append(count) or nullcontext())
    feat, knobs = table(7, np.float32), gather.ExtractKnobs(gather_threads=asked)
    cache = lab.FeatureCache(feat, scores(), ratio=0.1, device="cuda", transfer="staged", knobs=knobs)
    cache.extract(batch())
    assert set(counts) == {asked}
    counts.clear()
    with beside_others():
        assert same_bits(cache.extract(batch())[0], feat[batch()])
    assert counts == [expected]


@pytest.mark.gpu
def test_a_table_is_pinned_once_and_let_go_of():
    feat = table(64, np.float32)
    first, second = host.pin(feat, "register"), host.pin(feat, "register")
    assert first is second
    del first, second
    again = host.pin(feat, "register")  # would fail if the memory were still registered
    assert again.how == "registered"
    padded = host.pin(feat[:, :25].copy(), "copy", pad_bytes=128)
    assert padded.stride == 128 and np.array_equal(padded.rows.view(np.uint32), feat[:, :25].view(np.uint32))
    with pytest.raises(ValueError, match="how must be"):
        host.pin(feat, "magic")


@pytest.mark.gpu
def test_views_of_one_table_have_their_own_rows():
    """The pages are locked once, whatever the width of the rows."""
    page, size = mmap.PAGESIZE, 200 * 256
    memory = np.zeros(size + 2 * page, np.uint8)
    skipped = -memory.ctypes.data % page  # pages of its own: others' might be locked, and rows begin lines
    base = memory[skipped : skipped + size].view(np.float32).reshape(200, 64)
    base[:] = np.random.default_rng(0).random((200, 64), dtype=np.float32)
    ids, caches = np.arange(150), []
    for view in (base, base.reshape(400, 32), base.reshape(100, 128), base):
        caches.append(lab.FeatureCache(view, ratio=0.0, device="cuda", transfer="uva"))
        there = ids[ids < len(view)]
        assert np.array_equal(caches[-1].extract(there)[0].get(), view[there])
    first, second, _, again = (cache._pinned for cache in caches)
    assert again is first and second._locked is first


@pytest.mark.gpu
def test_pinned_bandwidth_is_a_number():
    assert host.pinned_copy_gbps(1 << 22) > 0.1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "exactly one of ratio, capacity_bytes and leave_free (got none)"),
        ({"ratio": 0.1, "capacity_bytes": 5}, ValueError, "got ratio, capacity_bytes"),
        ({"ratio": 1.5}, ValueError, "ratio must be between 0 and 1 (got 1.5)"),
        ({"ratio": float("nan")}, ValueError, "ratio must be between 0 and 1 (got nan)"),
        ({"capacity_bytes": -1}, ValueError, "capacity_bytes must be"),
        ({"capacity_bytes": 1.5}, TypeError, "capacity_bytes must be an integer"),
        ({"leave_free": "all"}, ValueError, "leave_free must be 'trial' (got 'all')"),
        ({"leave_free": "trial"}, ValueError, "needs trial"),
        ({"leave_free": "trial", "trial": 3}, TypeError, "trial must be callable"),
        ({"ratio": 0.1, "trial": print}, ValueError, "trial is for"),
        ({"ratio": 0.1, "transfer": "magic"}, ValueError, "transfer must be one of"),
        ({"ratio": 0.1, "transfer": "disk"}, ValueError, "needs a memory-mapped table"),
        ({"ratio": 0.1, "device": "tpu"}, ValueError, "device must be"),
        ({"ratio": 0.1, "hotness": None}, ValueError, "hotness must say which 70 rows"),
        ({"ratio": 0.1, "hotness": np.zeros(3)}, ValueError, "one score per vertex, 700 (got shape (3,))"),
        ({"ratio": 0.1, "hotness": np.full(N, np.nan)}, ValueError, "got NaN for vertex 0"),
        ({"ratio": 0.1, "feat": None}, TypeError, "feat must be a table of features (got None"),
        ({"ratio": 0.1, "feat": np.zeros((N, 3))}, TypeError, "float32 or float16 (got float64)"),
        ({"ratio": 0.1, "feat": np.zeros(N, np.float32)}, ValueError, "must have shape (vertices, features)"),
        ({"ratio": 0.1, "feat": np.zeros((N, 0), np.float32)}, ValueError, "must have shape"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    given = {"feat": table(7, np.float32), "hotness": scores(), "device": "cpu", **arguments}
    with pytest.raises(error) as raised:
        lab.FeatureCache(**given)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([N], ValueError, f"node_ids must be vertex ids in 0..{N - 1} (got {N}"),
        ([-1], ValueError, "(got -1 at position 0)"),
        ([[1]], ValueError, "one-dimensional"),
        ([0.5], TypeError, "node_ids must be integers"),
    ],
)
def test_bad_ids_are_named(ids, error, message):
    cache = lab.FeatureCache(table(7, np.float32), scores(), ratio=0.1, device="cpu")
    with pytest.raises(error) as raised:
        cache.extract(ids)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("row_bytes", "vector", "blocks"),
    [
        (512, 16, 8),  # two whole rows a warp
        (4096, 16, 8),  # no more of them at a time
        (400, 16, 11),
        (2408, 8, 16),  # 602 features, whose rows lie at multiples of 8 bytes
        (128, 16, 32),
        (2, 2, 2048),
    ],
)
def test_the_link_is_filled_whatever_the_rows(row_bytes, vector, blocks):
    """Bytes under way are a quarter of a MiB, or a little more, whatever a warp of 1024 threads' 32 has of them."""
    extractor = gather.GpuExtractor(row_bytes, gather.ExtractKnobs())
    assert extractor.host_blocks(vector) == blocks
    under_way = blocks * 32 * 2 * min(row_bytes, 32 * vector)
    assert gather.HOST_BYTES <= under_way < gather.HOST_BYTES + 32 * 2 * min(row_bytes, 32 * vector)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "other",
    [
        {"ratio": 0.5},
        {"ratio": 0},
        {"ratio": 1},
        {"hotness": -scores()},
        {"feat": table(7, np.float32, N + 1)},
    ],
)
def test_marks_of_another_cache_are_refused(other, device):
    """Their slots hold other vertices here, or are none at all."""
    given = {"feat": table(7, np.float32), "hotness": scores(), "ratio": 0.1, "device": device}
    if "feat" in other:
        other = {**other, "hotness": scores(N + 1)}
    cache, ids = lab.FeatureCache(**given), batch()
    with pytest.raises(ValueError, match="marks must be of a cache with the same cached_ids"):
        cache.extract(ids, lab.FeatureCache(**{**given, **other}).mark(ids))
    # Another table, whose cache holds the same vertices in the same slots.
    alike = lab.FeatureCache(table(3, np.float16), scores(), ratio=0.1, device=device)
    assert same_bits(cache.extract(ids, alike.mark(ids))[0], given["feat"][ids])


def test_marks_of_another_batch_are_refused():
    cache = lab.FeatureCache(table(7, np.float32), scores(), ratio=0.1, device="cpu")
    with pytest.raises(ValueError, match=r"marks must be of the same batch, 2 rows \(got 3\)"):
        cache.extract([1, 2], cache.mark([1, 2, 3]))
    with pytest.raises(ValueError, match="marks must be of the same batch"):
        cache.extract([3, 2], cache.mark([1, 2]))
    given = np.array([1, 2])
    marks = cache.mark(given)
    given[0] = 3  # the marks are still those of 1 and 2
    with pytest.raises(ValueError, match="marks must be of the same batch"):
        cache.extract(given, marks)


@pytest.mark.parametrize("first", [2**60, -(2**63), 2**64 - N])
def test_whole_scores_rank_exactly(first):
    """Scores such as times in nanoseconds differ by less than a float of their size tells."""
    hotness = np.array([first + i for i in range(N)], np.uint64 if first + N > 2**63 else np.int64)
    cache = lab.FeatureCache(table(7, np.float32), hotness, ratio=10 / N, device="cpu")
    assert cache.cached_ids.tolist() == [*range(N - 10, N)]


def test_an_output_that_is_read_only_is_refused():
    out = np.zeros((2, 7), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out must be"):
        lab.FeatureCache(table(7, np.float32), ratio=0.0, device="cpu").extract([1, 2], out=out)


def test_stats_can_be_read_as_text():
    cache = lab.FeatureCache(table(7, np.float32), scores(), ratio=0.1, device="cpu")
    assert "misses=1" in repr(cache.extract(np.setdiff1d(np.arange(N), cache.cached_ids)[:1])[1])


@pytest.mark.gpu
def test_statistics_do_not_keep_what_was_looked_up():
    """A training loop keeps the statistics of an epoch, mini-batch by mini-batch."""
    import cupy

    rng = np.random.default_rng(0)
    cache = lab.FeatureCache(rng.random((50_000, 4), np.float32), np.arange(50_000), ratio=0.5, device="cuda")
    ids = cupy.asarray(rng.integers(0, 50_000, 20_000))
    pool, used, stats = cupy.get_default_memory_pool(), [], []
    for _ in range(6):
        stats.append(cache.extract(ids, cache.mark(ids))[1])
        used.append(pool.used_bytes())
    assert used[-1] - used[1] <= 4 * 1024  # locations, misses and their vertices have 320 kB
    assert all(0 < one.misses < 20_000 for one in stats)


def test_a_cache_of_more_rows_than_32_bits_count_is_refused(tmp_path: Path) -> None:
    """Places are 32 bits: a later one would be read as a row of the mini-batch before."""
    table = np.memmap(tmp_path / "table", np.float16, "w+", shape=(2**31 + 1, 1))  # a hole in the file
    with pytest.raises(ValueError, match="at most 2147483647 rows can be cached.*got 2147483649"):
        lab.FeatureCache(table, ratio=1.0, device="cpu")
