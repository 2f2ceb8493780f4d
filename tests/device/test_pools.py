"""CuPy's pools under a budget: few sizes, a pool for each octave of large arrays, and one bound for all of them."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnsample_lab.device import pools

MB = 1 << 20


class OutOfMemoryError(Exception):
    pass


class Pool:
    """A pool as CuPy's are, with blocks that it keeps; ``tells`` whether it refuses before it gives them back."""

    def __init__(self, tells: bool = True) -> None:
        self.used: list[int] = []
        self.kept: list[int] = []
        self.limit, self.tells = 0, tells

    def malloc(self, size: int) -> int:
        for block in sorted(self.kept):
            if block >= size:
                self.kept.remove(block)
                self.kept += [block - size] if block > size else []
                self.used.append(size)
                return size
        if self.limit and self.total_bytes() + size > self.limit:
            if not self.tells:
                self.free_all_blocks()
            if self.total_bytes() + size > self.limit:
                raise OutOfMemoryError
        self.used.append(size)
        return size

    def drop(self, size: int) -> None:
        self.used.remove(size)
        self.kept.append(size)

    def total_bytes(self) -> int:
        return sum(self.used) + sum(self.kept)

    def free_bytes(self) -> int:
        return sum(self.kept)

    def free_all_blocks(self) -> None:
        self.kept.clear()

    def set_limit(self, size: int) -> None:
        self.limit = size

    def get_limit(self) -> int:
        return self.limit


@pytest.fixture(params=[True, False], ids=["refuses", "gives back by itself"])
def cupy(request, monkeypatch) -> Any:
    usual, said = Pool(request.param), SimpleNamespace()
    said.allocate = usual.malloc
    module: Any = ModuleType("cupy")
    module.get_default_memory_pool = lambda: usual
    module.cuda = SimpleNamespace(
        MemoryPool=lambda: Pool(request.param), get_allocator=lambda: said.allocate,
        set_allocator=lambda allocate: setattr(said, "allocate", allocate),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setitem(sys.modules, "cupy.cuda", ModuleType("cupy.cuda"))
    monkeypatch.setitem(sys.modules, "cupy.cuda.memory", SimpleNamespace(OutOfMemoryError=OutOfMemoryError))
    monkeypatch.setattr(pools, "_octaves", {})
    module.usual, module.alloc = usual, lambda size: said.allocate(size)
    return module


def test_sizes_are_rounded_to_sixteen_an_octave():
    given = (1, 512, 4095, 4096, 4097, 8192)
    assert [pools.rounded(size) for size in given] == [1, 512, 4095, 4096, 4352, 8192]
    of_octave = {pools.rounded(size) for size in range(MB + 1, 2 * MB + 1, 999)}
    assert len(of_octave) == 16
    for size in np.random.default_rng(0).integers(4096, 10**9, 1000).tolist():
        assert size <= pools.rounded(size) <= size * 17 / 16 + 1


def test_small_arrays_do_not_lie_where_rows_were(cupy):
    with pools.rounding():
        cupy.alloc(168 * MB)
        pools._octaves[28].drop(168 * MB)
        for size in (100, 300_000, 900_000, 12 * MB, 33 * MB):
            cupy.alloc(size)
        cupy.alloc(166 * MB)  # where the larger ones were
        assert pools._octaves[28].total_bytes() == 168 * MB
        assert sorted(pools._octaves) == [24, 26, 28] and len(cupy.usual.used) == 3
        assert pools.total_bytes() == (168 + 12 + 34) * MB + sum(cupy.usual.used)
    assert pools.free_bytes() == 0  # the large pools are a budget's alone
    assert cupy.cuda.get_allocator() == cupy.usual.malloc


def test_all_pools_have_one_bound_and_try_again_once(cupy):
    cupy.usual.set_limit(7)
    given_back = pools.GivenBack()
    with pools.rounding(100 * MB, given_back):
        for size in (40 * MB, 20 * MB, 24 * MB):  # of two octaves
            cupy.alloc(size)
        pools._octaves[26].drop(40 * MB)
        assert given_back.times == 0
        cupy.alloc(30 * MB)  # not where 40 MB were: there is room for neither beside the other
        assert given_back.times == 1 and pools._octaves[26].total_bytes() == 0
        with pytest.raises(OutOfMemoryError):
            cupy.alloc(28 * MB)
        cupy.alloc(26 * MB)
        assert pools.total_bytes() == 100 * MB
    assert given_back.total_bytes == 100 * MB and cupy.usual.get_limit() == 7
    assert {pool.limit for pool in pools._octaves.values()} == {0}


def test_an_interrupt_leaves_the_usual_allocator(cupy):
    with pytest.raises(KeyboardInterrupt), pools.rounding(MB):
        raise KeyboardInterrupt
    assert cupy.cuda.get_allocator() == cupy.usual.malloc and cupy.usual.get_limit() == 0


@pytest.mark.gpu
@pytest.mark.real_gpu
def test_pools_at_their_bound_give_unused_blocks_back():
    import cupy

    pools.free_all_blocks()
    held, given_back = pools.total_bytes(), pools.GivenBack()
    with pools.rounding(held + 150 * MB, given_back):
        kept = cupy.empty(96 * MB, cupy.int8)
        small = cupy.empty(1000, cupy.int8)
        del kept  # its pool keeps the block
        first = cupy.empty(40 * MB, cupy.int8)
        assert given_back.times == 0
        second = cupy.empty(100 * MB, cupy.int8)  # more than the block, and than what is left beside it
        assert given_back.times == 1 and pools.total_bytes() <= held + 150 * MB
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
            cupy.empty(20 * MB, cupy.int8)
    assert held + 140 * MB <= given_back.total_bytes <= held + 150 * MB
    assert pools.total_bytes() >= held + 140 * MB
    del first, second, small
    pools.free_all_blocks()
    assert pools.total_bytes() <= held
    assert cupy.get_default_memory_pool().get_limit() == 0


@pytest.mark.gpu
@pytest.mark.real_gpu
def test_rows_find_their_block_again_whatever_lay_beside_them():
    """Of one pool alone arrays of kilobytes take what is free of the rows, and the next rows another block."""
    import cupy

    def grown() -> int:
        cupy.get_default_memory_pool().free_all_blocks()
        before, small = pools.total_bytes(), []
        for _ in range(4):
            rows = cupy.empty(64 * MB, cupy.int8)
            del rows
            small.append(cupy.empty(200_000, cupy.int8))
        return pools.total_bytes() - before

    assert grown() > 250 * MB
    with pools.rounding():
        assert grown() < 70 * MB
