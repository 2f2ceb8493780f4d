"""Memory that peers read: on CPU ranks files without a name, on GPUs allocations that are mapped by all."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed import peer_memory
from gnnsample_lab.distributed.peer_memory import ALIGNMENT, PeerMemory, aligned
from gnnsample_lab.distributed.ranks.errors import RankError
from gnnsample_lab.distributed.ranks.run import Ranks
from tests.distributed.conftest import left_after

torch = pytest.importorskip("torch")


def to_numpy(array: Any) -> np.ndarray:
    return array.get() if hasattr(array, "get") else np.array(array)


def in_root(function: Any) -> Any:
    """``function`` with a data root of its own, which warm ranks do not inherit."""

    def call(rank: Any, folder: str, *args: Any) -> Any:
        before, os.environ["LAB_DATA_ROOT"] = os.environ.get("LAB_DATA_ROOT"), folder
        try:
            return function(rank, *args)
        finally:
            os.environ.pop("LAB_DATA_ROOT")
            if before is not None:
                os.environ["LAB_DATA_ROOT"] = before

    return call


def read_all(rank: Any, way: str) -> dict[str, Any]:
    """Each rank writes its block and reads all of them, by arrays and by addresses."""
    count = 1000 + 10 * rank.index
    memory = PeerMemory(rank, 8 * count + 256, way)
    mine = memory.array(np.int64, (count,), 256)
    mine[:] = rank.index * 10**6 + (np.arange(count) if rank.device == "cpu" else _arange(count))
    memory.barrier()
    found = []
    for owner in range(rank.world_size):
        theirs = to_numpy(memory.array_of(owner, np.int64, 1000 + 10 * owner, 256))
        found.append(np.array_equal(theirs, owner * 10**6 + np.arange(1000 + 10 * owner)))
    sizes, pointers, way = memory.sizes.tolist(), list(memory.pointers), memory.way
    memory.barrier()
    memory.close()
    memory.close()
    return {"found": found, "sizes": sizes, "pointers": pointers, "way": way, "closed": memory.closed}


def _arange(count: int) -> Any:
    import cupy

    return cupy.arange(count)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_each_rank_reads_all_blocks(four_ranks: Ranks, world: int, tmp_path: Path) -> None:
    for index, result in enumerate(four_ranks.run(in_root(read_all), str(tmp_path), "auto", world=world)):
        assert result["found"] == [True] * world
        assert result["sizes"] == [8 * (1000 + 10 * r) + 256 for r in range(world)]
        assert result["way"] == "file" and result["closed"], index
        assert len(set(result["pointers"])) == world
    assert not list(tmp_path.rglob("*.bin"))


def test_what_a_block_refuses(four_ranks: Ranks, tmp_path: Path) -> None:
    def refused(rank: Any) -> list[str]:
        found = []
        with PeerMemory(rank, 100, "file") as memory:

            def attempt(call: Any) -> None:
                try:
                    call()
                except (ValueError, TypeError) as error:
                    found.append(str(error))

            attempt(lambda: memory.array(np.int64, 13))
            attempt(lambda: memory.array(np.int64, 1, 4))
            attempt(lambda: memory.array(np.int64, 1, -8))
            attempt(lambda: memory.array_of(rank.world_size, np.int8, 1))
            peer = memory.array_of(1 - rank.index, np.int8, (2, 3))
            attempt(lambda: peer.fill(1))
            assert memory.array(np.float32, (0,), 100).shape == (0,)
        attempt(lambda: memory.array(np.int8, 1))
        attempt(lambda: PeerMemory(rank, 100, "ipc"))
        attempt(lambda: PeerMemory(rank, -1))
        attempt(lambda: PeerMemory(rank, 100, "nvlink"))
        return found

    for found in four_ranks.run(in_root(refused), str(tmp_path), world=2):
        expected = ["shape must fit", "offset must be", "offset must be", "owner must be", "read-only", "is closed",
                    "way must be one for cpu", "nbytes must be", "way must be"]  # fmt: skip
        assert len(found) == len(expected)
        assert all(part in text for part, text in zip(expected, found)), found


def test_between_hosts_it_raises_naming_the_method(four_ranks: Ranks) -> None:
    def make(rank: Any) -> str:
        rank.local_size = 1
        try:
            PeerMemory(rank, 8, method="direct-cached")
        except ValueError as error:
            return str(error)
        finally:
            rank.local_size = rank.world_size
        return ""

    assert all(
        "method='direct-cached'" in text and "one host" in text for text in four_ranks.run(make, world=2)
    )


def test_a_group_of_some_ranks_shares_among_itself(four_ranks: Ranks, tmp_path: Path) -> None:
    def pairs(rank: Any) -> list[int]:
        group = rank.split([[0, 1], [2, 3]])
        memory = PeerMemory(rank, 8, group=group)
        memory.array(np.int64, 1)[:] = rank.index
        memory.barrier()
        found = [int(memory.array_of(owner, np.int64, 1)[0]) for owner in range(memory.size)]
        memory.close()
        return found

    assert four_ranks.run(in_root(pairs), str(tmp_path)) == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_one_rank_that_cannot_write_fails_all(four_ranks: Ranks, tmp_path: Path) -> None:
    def make(rank: Any) -> str:
        if rank.index == 1:  # a file where the cache folder should be, for this rank alone
            os.environ["LAB_DATA_ROOT"] = str(tmp_path / "other")
            (tmp_path / "other").mkdir()
            (tmp_path / "other" / ".gnnsample_lab").write_text("")
            os.environ["XDG_CACHE_HOME"] = str(tmp_path / "other" / ".gnnsample_lab")
        try:
            PeerMemory(rank, 8)
        except (OSError, RuntimeError) as error:
            return str(error)
        finally:
            os.environ.pop("XDG_CACHE_HOME", None)
        return ""

    first, second = four_ranks.run(in_root(make), str(tmp_path / "shared"), world=2)
    assert "another rank could not write" in first and "can be written to" in second
    assert not list(tmp_path.rglob("*.bin"))


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system cannot reserve room on a disk")
def test_a_full_disk_is_an_error_on_all_ranks_and_leaves_nothing(four_ranks: Ranks, tmp_path: Path) -> None:
    def make(rank: Any) -> str:
        def full(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with pytest.MonkeyPatch.context() as patch:
            if rank.index == 1:
                patch.setattr(os, "posix_fallocate", full)
            with pytest.raises((OSError, RuntimeError)) as raised:
                PeerMemory(rank, 4096)
        return str(raised.value)

    first, second = four_ranks.run(in_root(make), str(tmp_path), world=2)
    assert "another rank could not write" in first
    assert "rank-00001.bin cannot have 4,096 bytes: No space left on device" in second
    assert not list(tmp_path.rglob("*.bin"))


def test_files_of_killed_ranks_go_and_those_of_others_stay(four_ranks: Ranks, tmp_path: Path) -> None:
    def make(rank: Any) -> None:
        PeerMemory(rank, 8).close()

    for name in ("killed", "at work"):
        folder = tmp_path / ".gnnsample_lab" / f"peer-memory-{name}"
        folder.mkdir(parents=True)
        (folder / "rank-00000.bin").write_bytes(b"0")
        if name == "killed":
            os.utime(folder, (time.time() - 2 * peer_memory._LEFT_S,) * 2)
    four_ranks.run(in_root(make), str(tmp_path), world=2)
    assert [p.name for p in (tmp_path / ".gnnsample_lab").iterdir()] == ["peer-memory-at work"]


def test_a_rank_that_dies_ends_the_run() -> None:
    def die(rank: Any) -> None:
        memory = PeerMemory(rank, 1 << 20)
        if rank.index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        until = time.monotonic() + 300
        with rank.stage("reading"):
            while time.monotonic() < until:
                memory.array_of(1, np.int8, 1 << 20).sum()

    with lab.distributed.Ranks(2, device="cpu", timeout_s=240) as ranks:
        ranks.run(lambda rank: None)
        pids = list(ranks.pids)
        began = time.monotonic()
        with pytest.raises(RankError) as caught:
            ranks.run(die)
        assert caught.value.rank == 1
        assert not left_after(pids)
        assert time.monotonic() - began < 30


def test_sizes_are_rounded_up_to_whole_lines() -> None:
    assert [aligned(n) for n in (0, 1, ALIGNMENT, ALIGNMENT + 1)] == [0, ALIGNMENT, ALIGNMENT, 2 * ALIGNMENT]


@pytest.mark.parametrize(
    ("way", "index", "granules"), [("symmetric", 0, 4), ("symmetric", 1, 4), ("ipc", 0, 1), ("ipc", 1, 4)]
)
def test_symmetric_blocks_are_as_large_as_the_largest(
    monkeypatch: pytest.MonkeyPatch, way: str, index: int, granules: int
) -> None:
    sizes = np.array([100, 7 << 20])
    blocks = [
        SimpleNamespace(way=way, index=index, sizes=sizes),
        SimpleNamespace(way="file", index=0, sizes=sizes),
    ]
    monkeypatch.setattr(peer_memory, "_open", blocks)
    assert peer_memory.open_bytes() == granules << 21


# ---- GPUs -------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.timeout(60)
@pytest.mark.parametrize("way", ["auto", "symmetric", "ipc"])
def test_two_gpus_read_each_other(gpu_ranks: Ranks, way: str) -> None:
    for result in gpu_ranks.run(read_all, way):
        assert result["found"] == [True, True]
        assert result["way"] == (way if way != "auto" else "symmetric")


@pytest.mark.gpu
@pytest.mark.timeout(60)
@pytest.mark.parametrize("way", ["auto", "ipc"])
def test_one_gpu_alone(gpu_world: Ranks, way: str) -> None:
    (result,) = gpu_world.run(read_all, way, world=1)
    assert (result["found"], result["way"]) == ([True], "ipc")


def wait_for_a_dead_peer(rank: Any) -> None:
    memory = PeerMemory(rank, 1 << 20)
    if rank.index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    memory.close()


@pytest.mark.gpu
@pytest.mark.timeout(60)
def test_a_rank_that_dies_ends_the_run_on_gpus(two_gpus: None) -> None:
    began = time.monotonic()
    with pytest.raises(RankError) as caught:
        lab.distributed.run(wait_for_a_dead_peer, ranks=2, device="cuda", timeout_s=180)
    assert caught.value.rank == 1
    assert time.monotonic() - began < 120  # 30 s after the death, and the start before it
