"""Where samples wait for trainers: files, host memory, and the way between them and a GPU."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.pipeline.factored import staging
from gnnsample_lab.pipeline.factored.slots import HostSlots, OwnSlots, pack, unpack

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SEEDS = (3, 90, 5)


@pytest.fixture(scope="module")
def graph() -> Any:
    return lab.load("arxiv-like", scale=0.01)


def made(graph: Any, device: str) -> tuple[Any, Any]:
    cache = lab.FeatureCache(graph.feat, graph.out_degrees(), ratio=0.3, device=device)
    return lab.NeighborSampler(graph.to(device, features=False), [3, 4], device=device, seed=1), cache


def slots_of(kind: str, folder: Path, device: str) -> tuple[Any, Any]:
    """Where samples are written and where they are read, which for files are two ranks."""
    if kind == "files":
        return HostSlots(folder, device), HostSlots(folder, device)
    own = OwnSlots(device)
    return own, own


def check(graph: Any, cache: Any, read: Any, batch: Any) -> None:
    found, marks = read
    assert (found.batch_id, found.num_edges) == (batch.batch_id, batch.num_edges)
    np.testing.assert_array_equal(to_host(found.seeds), to_host(batch.seeds))
    for mine, theirs in zip(found.blocks, batch.blocks, strict=True):
        for name in ("src", "dst", "indptr", "indices"):
            np.testing.assert_array_equal(to_host(getattr(mine, name)), to_host(getattr(theirs, name)))
    x, stats = cache.extract(found.node_ids, marks)
    np.testing.assert_array_equal(to_host(x), graph.feat[to_host(batch.node_ids)])
    assert stats.misses == cache.extract(batch.node_ids)[1].misses > 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["files", "own memory"])
def test_a_sample_survives_its_slot(graph, tmp_path, kind, device):
    sampler, cache = made(graph, device)
    write, read = slots_of(kind, tmp_path, device)
    for seeds in SEEDS:
        batch = sampler.sample(graph.splits["train"][:seeds], 8)
        header = write.write(0, pack(batch, cache.mark(batch.node_ids)))
        check(graph, cache, read.read(0, header), batch)


def test_marks_from_a_slot_are_of_their_cache(graph):
    sampler, cache = made(graph, "cpu")
    batch = sampler.sample(graph.splits["train"][:9], 8)
    slots = OwnSlots("cpu")
    found, marks = slots.read(0, slots.write(0, pack(batch, cache.mark(batch.node_ids))))
    other = lab.FeatureCache(graph.feat, graph.out_degrees(), ratio=0.2, device="cpu")
    with pytest.raises(ValueError, match="marks must be of a cache with the same cached_ids"):
        other.extract(found.node_ids, marks)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["files", "own memory"])
def test_samples_do_not_mix(graph, tmp_path, kind, device):
    """Several are read before the first is used, and the slots have other samples by then."""
    sampler, cache = made(graph, device)
    write, read = slots_of(kind, tmp_path, device)
    batches = [sampler.sample(graph.splits["train"][50 * i : 50 * i + 40 + i], i) for i in range(5)]
    headers = [write.write(i, pack(b, cache.mark(b.node_ids))) for i, b in enumerate(batches)]
    found = [read.read(i, header) for i, header in enumerate(headers)]
    for slot in range(5):
        write.write(slot, pack(batches[0], None))
    for read_back, batch in zip(found, batches, strict=True):
        check(graph, cache, read_back, batch)


def test_memory_of_an_epoch_is_used_again(graph):
    sampler, _ = made(graph, "cpu")
    slots = OwnSlots("cpu")
    large = pack(sampler.sample(graph.splits["train"][:90], 0), None)
    slots.write(0, large)
    first = slots._memory[0]
    slots.write(0, pack(sampler.sample(graph.splits["train"][:20], 1), None))
    slots.write(0, large)
    assert slots._memory[0] is first


@pytest.mark.parametrize("device", DEVICES)
def test_counts_of_a_sample_in_place_outlive_its_slot(graph, device):
    """What a cache had is asked at the end of an epoch, when the slot has held other samples."""
    sampler, cache = made(graph, device)
    batch = sampler.sample(graph.splits["train"][:90], 8)
    slot = {name: array.copy() for name, array in pack(batch, cache.mark(batch.node_ids)).items()}
    _, marks = unpack(slot)
    expected = cache.mark(batch.node_ids)
    slot["counts"][:] = 10**9
    assert (marks.num_misses, marks.num_reused) == (expected.num_misses, expected.num_reused)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["files", "own memory"])
def test_statistics_do_not_keep_the_samples_of_an_epoch(graph, tmp_path, kind):
    import cupy

    sampler, cache = made(graph, "cuda")
    write, read = slots_of(kind, tmp_path, "cuda")
    pool, used, stats = cupy.get_default_memory_pool(), [], []
    for number in range(6):
        batch = sampler.sample(graph.splits["train"][:90], number)
        header = write.write(0, pack(batch, cache.mark(batch.node_ids)))
        found, marks = read.read(0, header)
        stats.append(cache.extract(found.node_ids, marks)[1])
        del batch, found, marks
        used.append(pool.used_bytes())
    assert used[-1] - used[1] <= 4 * 1024  # of each mini-batch its counts alone, and not its 20 kB
    assert all(one.misses > 0 for one in stats)


@pytest.mark.parametrize("kind", ["files", "own memory"])
@pytest.mark.parametrize(
    "wrong", [["a", "object", [2], 0], ["a", "int64", [10**9], 0], ["a", "int64", [-1], 0]]
)
def test_a_header_that_does_not_fit_is_refused(tmp_path, kind, wrong):
    write, read = slots_of(kind, tmp_path, "cpu")
    write.write(0, {"a": np.arange(4)})
    with pytest.raises(ValueError, match="slot 0"):
        read.read(0, [wrong])


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system cannot reserve room on a disk")
def test_a_slot_has_all_its_bytes_on_the_disk_or_is_refused(tmp_path, monkeypatch):
    """A hole in a mapped file, on a full disk, would end the process that writes to it."""
    slots = HostSlots(tmp_path)
    for size in (1000, 5000, 5100):
        slots.write(0, {"a": np.arange(size)})
        file = (tmp_path / "slot-0").stat()
        assert file.st_blocks * 512 >= file.st_size >= 8 * size

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="slot-1 cannot have 128 bytes: No space left"):
        slots.write(1, {"a": np.arange(10)})
    slots.write(0, {"a": np.arange(5000)})  # what is there needs nothing


@pytest.mark.parametrize("size", [0, 8, staging._CHUNK_BYTES * 2, staging._CHUNK_BYTES * 5 + 72])
def test_all_bytes_are_copied_and_no_others(size):
    source = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    target = np.zeros(size + 16, np.uint8)
    staging.copy(source, target[8:-8])
    np.testing.assert_array_equal(target[8:-8], source)
    assert not target[:8].any() and not target[-8:].any()
