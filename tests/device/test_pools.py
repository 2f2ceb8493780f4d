"""CuPy's pools under a budget: few sizes, a pool for each octave of large arrays, and one bound for all of them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnsample_lab.device import pools

MB = 1 << 20


class OutOfMemoryError(MemoryError):
    def __init__(self, size: int, total: int, limit: int) -> None:
        super().__init__(f"{size} bytes beside {total} of {limit}")


class Pool:
    """A pool as CuPy's are: of blocks that it keeps it gives the smallest that suffices, cut up, or a new one, whose
    bytes it counts before it asks for them."""

    def __init__(self, new_block: Callable[[int], Any] | None = None) -> None:
        self.used: list[tuple[int, int]] = []  # block and bytes of it
        self.kept: list[tuple[int, int]] = []
        self.blocks: dict[int, int] = {}
        self.new_block, self.asked, self.limit = new_block, 0, 0

    def malloc(self, size: int) -> int:
        fits = [each for each in self.kept if each[1] >= size]
        if fits:
            block, room = min(fits, key=lambda each: each[1])
            self.kept.remove((block, room))
            self.kept += [(block, room - size)] if room > size else []
        else:
            self.asked = size
            try:
                if self.new_block is not None:
                    assert self.new_block(size).mem.size == size
            finally:
                self.asked = 0
            block = len(self.blocks)
            self.blocks[block] = size
        self.used.append((block, size))
        return size

    def drop(self, size: int) -> None:
        """As when an array of ``size`` bytes ends; what lies side by side of a block is one again."""
        block, _ = next(each for each in self.used if each[1] == size)
        self.used.remove((block, size))
        room = size + sum(n for b, n in self.kept if b == block)
        self.kept = [each for each in self.kept if each[0] != block] + [(block, room)]

    def total_bytes(self) -> int:
        return sum(self.blocks.values()) + self.asked

    def free_bytes(self) -> int:
        return sum(room for _, room in self.kept)

    def free_all_blocks(self) -> None:
        for block, room in list(self.kept):
            if room == self.blocks[block]:
                self.kept.remove((block, room))
                self.blocks[block] = 0

    def get_limit(self) -> int:
        return self.limit


@pytest.fixture
def cupy(monkeypatch) -> Any:
    usual, said = Pool(), SimpleNamespace()
    said.allocate = usual.malloc
    module: Any = ModuleType("cupy")
    module.get_default_memory_pool = lambda: usual
    module.cuda = SimpleNamespace(
        MemoryPool=Pool, get_allocator=lambda: said.allocate,
        set_allocator=lambda allocate: setattr(said, "allocate", allocate),
        Memory=lambda size: SimpleNamespace(size=size), MemoryPointer=lambda mem, at: SimpleNamespace(mem=mem),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setitem(sys.modules, "cupy.cuda", ModuleType("cupy.cuda"))
    monkeypatch.setitem(sys.modules, "cupy.cuda.memory", SimpleNamespace(OutOfMemoryError=OutOfMemoryError))
    monkeypatch.setattr(pools, "_of_budgets", {})
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
        of = pools._of_budgets
        cupy.alloc(168 * MB)
        of[28].drop(168 * MB)
        for size in (100, 300_000, 900_000, 12 * MB, 33 * MB):
            cupy.alloc(size)
        cupy.alloc(166 * MB)  # where the larger ones were
        assert of[28].total_bytes() == 168 * MB
        assert sorted(of) == [0, 24, 26, 28] and len(of[0].used) == 3 and not cupy.usual.used
        assert pools.total_bytes() == (168 + 12 + 34) * MB + of[0].total_bytes()
        of[26].drop(34 * MB)
    assert pools.free_bytes() == 0
    assert cupy.cuda.get_allocator() == cupy.usual.malloc


def test_all_pools_have_one_bound(cupy):
    cupy.usual.limit = 7
    cupy.usual.malloc(10 * MB)  # the graph
    given_back = pools.GivenBack()
    with pools.rounding(110 * MB, given_back):
        of = pools._of_budgets
        assert pools.get_limit() == 110 * MB
        for size in (40 * MB, 20 * MB, 24 * MB):
            cupy.alloc(size)
        of[26].drop(40 * MB)
        cupy.alloc(38 * MB)
        of[26].drop(38 * MB)
        assert given_back.times == 0
        cupy.alloc(44 * MB)  # too large for that block, and for what is left beside it
        assert given_back.times == 1 and pools.total_bytes() == (10 + 44 + 20 + 24) * MB
        with pytest.raises(OutOfMemoryError, match=f"{14 * MB} bytes beside {98 * MB} of {110 * MB}"):
            cupy.alloc(14 * MB)
        cupy.alloc(12 * MB)
        assert pools.total_bytes() == 110 * MB
    assert given_back.total_bytes == 110 * MB and pools.get_limit() == 7
    cupy.usual.malloc(100 * MB)  # nothing bounds what comes afterwards


def test_of_what_is_unused_the_least_that_suffices_is_given_back(cupy):
    given_back = pools.GivenBack()
    with pools.rounding(208 * MB, given_back):
        of = pools._of_budgets
        for size in (104 * MB, 32 * MB, 16 * MB, 8 * MB):
            cupy.alloc(size)
        for octave, size in ((27, 104 * MB), (25, 32 * MB), (24, 16 * MB), (23, 8 * MB)):
            of[octave].drop(size)
        cupy.alloc(56 * MB)  # 8 MB too many
        assert [of[octave].total_bytes() // MB for octave in (27, 25, 24, 23)] == [104, 32, 16, 0]
        cupy.alloc(12 * MB)  # in a block
        cupy.alloc(52 * MB)
        assert [of[octave].total_bytes() // MB for octave in (27, 25, 24)] == [0, 32, 16]
        of[24].drop(12 * MB)
        cupy.alloc(96 * MB)  # no pool alone has enough
        assert [of[octave].total_bytes() // MB for octave in (27, 25, 24)] == [96, 0, 0]
        assert given_back.times == 3
        with pytest.raises(OutOfMemoryError):
            cupy.alloc(240 * MB)


def test_arrays_that_nobody_reaches_are_looked_for_before_memory_is_refused(cupy, monkeypatch):
    with pools.rounding(64 * MB):
        cupy.alloc(40 * MB)
        found = []

        def collect() -> None:
            found.append(1)
            pools._of_budgets[26].drop(40 * MB)

        monkeypatch.setattr(pools.gc, "collect", collect)
        cupy.alloc(60 * MB)
        assert found == [1] and pools.total_bytes() == 60 * MB


def test_an_interrupt_leaves_the_usual_allocator(cupy):
    with pytest.raises(KeyboardInterrupt), pools.rounding(MB):
        raise KeyboardInterrupt
    assert cupy.cuda.get_allocator() == cupy.usual.malloc and pools.get_limit() == 0


@pytest.mark.gpu
def test_mini_batches_of_bounded_pools_are_those_of_others():
    """Rows of three quarters of a megabyte and of more, with what else a mini-batch has, again and again."""
    import cupy

    import gnnsample_lab as lab

    rng = np.random.default_rng(0)
    graph = lab.Graph.from_edges(
        rng.integers(0, 4000, 40_000),
        rng.integers(0, 4000, 40_000),
        4000,
        feat=rng.random((4000, 96), np.float32),
    )
    sampler = lab.NeighborSampler(graph.to("cuda", features=False), [4, 4], device="cuda")
    cache = lab.FeatureCache(graph.feat, graph.out_degrees(), ratio=0.4, device="cuda")

    def epoch() -> list[Any]:
        found = []
        for number in range(12):
            batch = sampler.sample(rng.permutation(4000)[: 100 + 40 * (number % 5)], number)
            x, stats = cache.extract(batch.node_ids, cache.mark(batch.node_ids))
            np.testing.assert_array_equal(x.get(), graph.feat[batch.node_ids.get()])
            found.append(stats)
        return found

    given_back = pools.GivenBack()
    with pools.rounding():
        epoch()
        need = pools.total_bytes()
    with pools.rounding(need, given_back):
        assert all(one.misses for one in epoch())
        assert pools.total_bytes() <= need
    assert given_back.total_bytes <= need
    gc.collect()  # a refused array has Python look for others that nobody uses
    pools.free_all_blocks()
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError), pools.rounding(pools.total_bytes() + MB):
        cupy.empty(4 * MB, np.uint8)


@pytest.mark.gpu
@pytest.mark.real_gpu
def test_pools_at_their_bound_give_unused_blocks_back():
    import cupy

    gc.collect()
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
    assert 140 * MB <= given_back.total_bytes <= held + 150 * MB  # `held` may have shrunk meanwhile
    assert pools.total_bytes() >= 140 * MB
    del first, second, small
    pools.free_all_blocks()
    assert pools.total_bytes() <= held
    assert pools.get_limit() == 0


@pytest.mark.gpu
@pytest.mark.real_gpu
def test_rows_find_their_block_again_whatever_lay_beside_them(monkeypatch):
    """Of one pool alone arrays of kilobytes take what is free of the rows, and the next rows another block."""
    import cupy

    usual, allocate = cupy.cuda.MemoryPool(), cupy.cuda.get_allocator()
    monkeypatch.setattr(pools, "_usual", lambda: usual)  # a free block of another test would do for the rows
    monkeypatch.setattr(pools, "_of_budgets", {})

    def grown() -> int:
        before, small = pools.total_bytes(), []
        for _ in range(4):
            rows = cupy.empty(64 * MB, cupy.int8)
            del rows
            small.append(cupy.empty(200_000, cupy.int8))
        return pools.total_bytes() - before

    cupy.cuda.set_allocator(usual.malloc)
    try:
        assert grown() >= 128 * MB
        with pools.rounding():
            assert grown() < 70 * MB
    finally:
        cupy.cuda.set_allocator(allocate)
