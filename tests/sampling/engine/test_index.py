"""The scheduling index: sizes on any machine, and on a GPU every way to build it against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from gnnsample_lab.sampling.engine.grouping import index as indexing
from gnnsample_lab.sampling.engine.grouping import ranges
from gnnsample_lab.sampling.engine.grouping.index import IndexKnobs
from gnnsample_lab.sampling.engine.grouping.ranges import RangeKnobs
from gnnsample_lab.sampling.engine.steps import transit


def test_a_pass_takes_eight_bits_of_vertices_and_null():
    assert [indexing.num_passes(n) for n in (1, 255, 256, 2**16 - 1, 2**16, 5_000_000)] == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("num_nodes", [1, 2, 8192, 8193, 5_000_000, 2**33])
def test_the_table_of_ranges_holds_every_vertex(num_nodes):
    shift = ranges.block_shift(num_nodes)
    assert (num_nodes - 1) >> shift < ranges.MAX_BLOCKS
    assert shift == 0 or (num_nodes - 1) >> (shift - 1) >= ranges.MAX_BLOCKS


def test_ranges_share_the_bytes_of_lists_and_their_positions():
    assert ranges.num_ranges(0, 0, 4, 1024) == 1
    assert ranges.num_ranges(256, 1024, 4, 1024) == 5
    assert ranges.num_ranges(256, 1024, 8, 1024) == 9
    assert ranges.num_ranges(1, 2**40, 4, 1024) == ranges.MAX_RANGES
    assert ranges.fits(256, 1024, 4, 1024)
    assert not ranges.fits(1, 2**40, 4, 1024)
    assert not ranges.fits(2**32, 1, 4, 2**40)


@pytest.mark.parametrize("size", range(1, 70))
@pytest.mark.parametrize("id_bytes", [4, 8])
def test_results_of_up_to_sixteen_slots_are_staged_without_bank_conflicts(size, id_bytes):
    ids = ranges.staged_ids(size, id_bytes, 16)
    unit = next(u for u in (4, 2, 1) if size % u == 0 and u * id_bytes <= 16)
    assert ids % unit == 0 and (ids // unit % 2 == 1 or ids // unit in (2, 4, 8))
    parts = -(-size // 16)
    assert ids * parts >= size and ids <= 20


def test_sub_warps_fit_the_work():
    assert [transit.lanes_for(size, 32) for size in (1, 2, 4, 10, 25, 31, 1000)] == [8, 8, 8, 8, 8, 8, 1]
    assert transit.lanes_for(3, 8) == 2


def some_transits(num_nodes: int, pairs: int, dtype: type) -> np.ndarray:
    """Skewed, with NULLs."""
    rng = np.random.default_rng(num_nodes + pairs)
    transits = (num_nodes * rng.random(pairs) ** 4).astype(dtype)
    transits[rng.random(pairs) < 0.2] = -1
    return transits


SHAPES = [(1, 1), (1, 5000), (300, 90_001), (70_000, 12_345), (256, 4097), (2_000_000, 300_000), (5000, 0)]
WAYS = {
    "counting": ("counting", IndexKnobs()),
    "radix": ("radix", IndexKnobs(blocks_per_sm=1)),
}


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("num_nodes", "pairs"), SHAPES)
def test_pairs_transits_and_classes_are_those_of_numpy(num_nodes, pairs, dtype, way):
    import cupy

    kind, knobs = WAYS[way]
    transits, size = some_transits(num_nodes, pairs, dtype), 10
    scratch: dict[str, object] = {"index.counts": cupy.full(10, 7, np.uint32)}
    for _ in range(2):  # the second time in used scratch
        built = indexing.build(cupy.asarray(transits), num_nodes, kind, scratch, size=size, knobs=knobs)
    order = np.argsort(transits, kind="stable")
    order = order[transits[order] >= 0]
    distinct, first, counts = np.unique(transits[order], return_index=True, return_counts=True)
    begins = np.append(first, order.size)
    assert built.kind == kind and int(built.count[0]) == distinct.size
    assert built.transits.get()[: distinct.size].tolist() == distinct.tolist()
    assert built.begins.get()[: distinct.size + 1].tolist() == begins.tolist()
    found = built.pairs.get()[: order.size]
    if kind == "counting":  # any order within a transit
        found = found[np.lexsort((found, transits[found]))]
    assert np.array_equal(found, order)
    draws = counts * size
    classes = np.where(draws < 32, 0, np.where(draws <= 1024, 1, 2))
    for number, (members, count) in enumerate(built.classes):
        assert members.get()[: int(count[0])].tolist() == np.flatnonzero(classes == number).tolist()
    per_member = -(-counts[classes == 2] // built.pairs_per_item)
    items = np.repeat(np.arange(per_member.size), per_member)
    assert int(built.totals[4]) == items.size
    assert built.items.get()[: items.size].tolist() == items.tolist()
    assert built.item_begins.get()[: per_member.size + 1].tolist() == [0, *np.cumsum(per_member)]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("num_nodes", "pairs"), SHAPES)
def test_ranges_hold_their_pairs_in_any_order(num_nodes, pairs, dtype):
    import cupy

    transits, size = some_transits(num_nodes, pairs, dtype), 3
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(np.random.default_rng(3).integers(0, 20, num_nodes), out=indptr[1:])
    knobs, edges = RangeKnobs(bytes=2048, item_draws=300), int(indptr[-1])
    out = cupy.full((pairs, size), 7, dtype)
    scratch: dict[str, object] = {}
    for _ in range(2):  # the second time in used scratch
        made = ranges.group(
            cupy.asarray(transits), num_nodes, cupy.asarray(indptr), edges, scratch, size=size, out=out, knobs=knobs,
        )  # fmt: skip
    count = ranges.num_ranges(num_nodes, edges, np.dtype(dtype).itemsize, knobs.bytes)
    firsts, begins, item_begins = (a.get() for a in (made.firsts, made.begins, made.item_begins))
    valid = np.flatnonzero(transits >= 0)
    assert firsts.size == count + 1 and firsts[0] == 0 and firsts[-1] == num_nodes
    assert np.all(np.diff(firsts) >= 0)
    assert begins[0] == 0 and begins[-1] == valid.size
    keys, found = made.placed.get()[: valid.size].T
    assert np.array_equal(np.sort(found), valid)
    assert np.array_equal(keys, transits[found])
    of_place = np.repeat(np.arange(count), np.diff(begins.astype(np.int64)))
    assert np.all(keys >= firsts[of_place]) and np.all(keys < firsts[of_place + 1])
    assert np.array_equal((out.get() == -1).all(axis=1), transits < 0)
    items = -(-np.diff(begins.astype(np.int64)) // made.per_item)
    assert item_begins.tolist() == [0, *np.cumsum(items)]
    assert made.heads.get().tolist() == [items.sum(), 0]
    assert made.items.get()[: items.sum()].tolist() == np.repeat(np.arange(count), items).tolist()
