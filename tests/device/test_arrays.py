"""Helpers for arrays of any library, on the host and on a GPU."""

from __future__ import annotations

import types

import numpy as np
import pytest

from gnnsample_lab.device import runtime
from gnnsample_lab.device.arrays import array_module, is_memory_mapped, merge_duplicates, offsets_of, to_host


def test_what_lies_on_the_host_is_not_copied(tmp_path):
    array = np.arange(5)
    assert to_host(array) is array
    mapped = np.memmap(tmp_path / "ids", np.int64, "w+", shape=(4,))
    assert to_host(mapped) is mapped  # who keeps something by the array finds it again
    assert is_memory_mapped(mapped) and is_memory_mapped(mapped[1:]) and not is_memory_mapped(array)
    assert to_host([1, 2]).tolist() == [1, 2]
    assert array_module(array) is np


def test_tensors_become_arrays_also_those_with_gradients():
    torch = pytest.importorskip("torch")
    weights = torch.ones(3, requires_grad=True)
    host = to_host(weights)
    assert isinstance(host, np.ndarray) and host.tolist() == [1, 1, 1]
    tensor = torch.arange(3)
    to_host(tensor)[0] = 7  # shared memory
    assert tensor[0] == 7


def test_runs_begin_where_the_ones_before_them_end():
    found = offsets_of(np.array([3, 0, 2], np.int32))
    assert found.tolist() == [0, 3, 3, 5] and found.dtype == np.int64
    assert offsets_of(np.empty(0, np.int32)).tolist() == [0]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("seed", range(20))
def test_duplicates_merge_in_first_seen_order(seed, dtype):
    rng = np.random.default_rng(seed)
    given = rng.integers(0, rng.integers(1, 50), rng.integers(0, 60)).astype(dtype)
    distinct, places, first = merge_duplicates(given)
    assert distinct.tolist() == list(dict.fromkeys(given.tolist())) and distinct.dtype == dtype
    assert np.array_equal(distinct[places], given) and places.dtype == np.int64
    assert first.tolist() == [given.tolist().index(v) for v in distinct.tolist()]


def test_distinct_ids_pass_as_they_are():
    given = np.array([4, 1, 3])
    distinct, places, first = merge_duplicates(given)
    assert distinct is given and places.tolist() == first.tolist() == [0, 1, 2]


@pytest.mark.gpu
@pytest.mark.parametrize("high", [5, 10_000])
def test_gpu_arrays_are_merged_and_copied_alike(high):
    import cupy

    given = np.random.default_rng(1).integers(0, high, 1000)
    there = cupy.asarray(given)
    assert array_module(there) is cupy
    for found, wanted in zip(merge_duplicates(there), merge_duplicates(given), strict=True):
        assert isinstance(found, cupy.ndarray) and np.array_equal(to_host(found), wanted)
    assert np.array_equal(to_host(offsets_of(there)), offsets_of(given))


@pytest.mark.parametrize(("given", "expected"), [(None, 50), (7, 7), (0, 0)])
def test_scratch_memory_is_a_share_of_what_is_free_unless_it_is_given(monkeypatch, given, expected):
    monkeypatch.setattr(runtime, "gpu_memory", lambda: (1000, 4000))
    assert runtime.scratch_bytes(given) == expected


class Driver(types.SimpleNamespace):
    """As much of the CUDA runtime as page locking calls; ``full`` makes it refuse to lock, ``no_room`` to allocate."""

    class CUDARuntimeError(Exception):
        pass

    def hostRegister(self, address, size, flags):
        if self.full:
            raise self.CUDARuntimeError("out of memory")
        self.locked[address] = (size, flags)

    def hostUnregister(self, address):
        del self.locked[address]

    def malloc(self, size):
        if self.no_room:
            raise self.CUDARuntimeError("out of memory")
        return 7

    def free(self, address):
        assert address == 7
        self.waits += 1

    def deviceSynchronize(self):
        self.waits += 1


@pytest.fixture
def driver(monkeypatch):
    import sys

    driver = Driver(full=False, no_room=False, locked={}, waits=0)
    cuda = types.SimpleNamespace(
        runtime=driver,
        PinnedMemory=lambda size, flags: bytearray(size),
        PinnedMemoryPointer=lambda memory, at: memory,
    )
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda))
    return driver


def test_an_array_stays_page_locked_while_it_lives(driver):
    from gnnsample_lab.device import pinned

    array = np.arange(100)
    assert pinned.locked(array) is array and pinned.locked(array) is array
    assert driver.locked == {array.ctypes.data: (800, 1 | 2)}
    del array
    assert not driver.locked and driver.waits == 1 and not pinned._locked


def test_an_array_that_cannot_be_locked_is_copied_once(driver):
    from gnnsample_lab.device import pinned

    driver.full = True
    array = np.arange(100, dtype=np.int32)
    copy = pinned.locked(array)
    assert copy is not array and np.array_equal(copy, array) and copy.dtype == np.int32
    assert pinned.locked(array) is copy
    del array
    assert not pinned._locked and driver.waits == 1
    assert copy[99] == 99
    assert pinned.locked(np.empty(0, np.int64)).size == 0


def test_a_file_mapped_read_only_is_locked_read_only(driver, tmp_path):
    from gnnsample_lab.device import pinned

    np.save(tmp_path / "ids.npy", np.arange(10))
    mapped = np.load(tmp_path / "ids.npy", mmap_mode="r")
    assert pinned.locked(mapped) is mapped
    assert driver.locked[mapped.ctypes.data] == (80, 1 | 2 | 8)
    frozen = np.arange(10)
    frozen.flags.writeable = False
    pinned.locked(frozen)
    assert driver.locked[frozen.ctypes.data] == (80, 1 | 2)  # its pages can be written


def test_memory_is_locked_while_its_owner_lives(driver):
    from gnnsample_lab.device import pinned

    table = np.zeros(16)
    for driver.no_room in (False, True):  # where no byte is left, the wait is the plain one
        owner = Driver()
        pinned.lock(table, owner=owner)
        assert len(driver.locked) == 1
        del owner
        assert not driver.locked and driver.waits == 1 + driver.no_room
    driver.full = True
    with pytest.raises(MemoryError, match="128 bytes could not be page-locked where they lie"):
        pinned.lock(table)
