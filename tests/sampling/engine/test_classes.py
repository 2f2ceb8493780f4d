"""The published scheduling index against section 6.1.2 in plain Python: a map of transits to pairs, and three sets.

A CPU runs no index: it counts what one finds out, for the explorers. The kernels that build it run on a GPU or, in its
place, on a host (``make on-host``).
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from gnnsample_lab.sampling.engine.grouping import classes
from gnnsample_lab.sampling.engine.grouping.classes import ClassIndex, ClassKnobs
from gnnsample_lab.sampling.explain import threads


def scheduling_index(transits, size, few, many):
    """Per kernel, ``{transit: its pairs}``: by how many neighbours are to be sampled of it."""
    pairs_of = defaultdict(set)
    for pair, v in enumerate(transits.tolist()):
        if v >= 0:
            pairs_of[v].add(pair)
    kernels = {"sub-warp": {}, "block": {}, "grid": {}}
    for v, pairs in pairs_of.items():
        draws = len(pairs) * size
        kernels["sub-warp" if draws < few else "block" if draws <= many else "grid"][v] = pairs
    return kernels


def test_table_2():
    transits = np.repeat([4, 1, 6, -1, 9], [103, 4, 3, 5, 102])
    found = scheduling_index(transits, 10, 32, 1024)
    assert {k: sorted(v) for k, v in found.items()} == {"sub-warp": [6], "block": [1, 9], "grid": [4]}
    assert found["block"][1] == {103, 104, 105, 106}
    assert (ClassKnobs().few, ClassKnobs().many) == (threads.WARP, threads.BLOCK) == (32, 1024)


def shuffled(kind):
    draw = np.random.default_rng(7)
    if kind == "skewed":
        transits = np.concatenate([np.zeros(9000), np.full(300, 5000), draw.integers(-1, 6000, 30_000)])
    elif kind == "empty":
        transits = np.full(40, -1)
    elif kind == "borders":  # of the classes, where one is drawn for a pair
        transits = np.repeat([4, 0, 9, 2, 7, 3, -1], [31, 32, 33, 1023, 1024, 1025, 2])
    else:
        transits = draw.integers(0, 3, 70)
    return draw.permutation(transits)


@pytest.mark.parametrize("size", [1, 2, 10, 31, 32, 40, 2000])
@pytest.mark.parametrize("kind", ["skewed", "empty", "few", "borders"])
def test_what_explorers_show_of_the_index_is_that_of_plain_python(kind, size):
    transits = shuffled(kind).astype(np.int64)
    wanted = scheduling_index(transits, size, threads.WARP, threads.BLOCK)
    samples_of = defaultdict(set)
    for pair, v in enumerate(transits.tolist()):
        samples_of[v].add(pair // 10)  # ten transits a sample
    load = threads.transit_load(transits.reshape(-1, 10), size)
    found = zip(load.vertex.tolist(), load.pairs.tolist(), load.samples.tolist(), load.kernel.tolist())
    assert {v: (pairs, samples, threads.KERNELS[kernel]) for v, pairs, samples, kernel in found} == {
        v: (len(pairs), len(samples_of[v]), name) for name, of in wanted.items() for v, pairs in of.items()
    }
    assert load.by_kernel()[0].tolist() == [len(wanted[name]) for name in threads.KERNELS]
    draws = [size * sum(map(len, wanted[name].values())) for name in threads.KERNELS]
    assert load.by_kernel()[1].tolist() == draws


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("size", [1, 10, 40, 2000])
@pytest.mark.parametrize("kind", ["skewed", "empty", "few", "borders"])
def test_the_index_is_that_of_plain_python(kind, size, dtype):
    import cupy

    transits, knobs = shuffled(kind).astype(dtype), ClassKnobs()
    wanted = scheduling_index(transits, size, knobs.few, knobs.many)
    totals = cupy.zeros((2, classes.TOTALS), np.uint64)
    scratch: dict = {}
    for turn in range(2):  # the second finds the counters that the first has left
        index = ClassIndex(6000, transits.size, size, dtype, scratch, knobs)
        classes.build(index, totals.data.ptr + 64 * turn, cupy.asarray(transits))
        counts = totals[turn].get().astype(np.int64)
        entries = index.sorted.get().reshape(transits.size, -1)
        vertex, pair = entries.view(dtype)[:, 0], entries[:, entries.shape[1] // 2]
        assert not index.counts.get().any()
        assert counts[classes.SUBWARP : classes.GRID + 1].tolist() == [len(wanted[k]) for k in wanted]
        front = defaultdict(set)
        for at in range(counts[classes.SUBWARP_PAIRS]):
            front[int(vertex[at])].add(int(pair[at]))
        assert front == wanted["sub-warp"]
        for kernel, jobs, number in (
            ("block", index.blocks, counts[classes.BLOCK]), ("grid", index.items, counts[classes.ITEMS]),
        ):  # fmt: skip
            served, words = defaultdict(set), jobs.get().reshape(-1, 4)[:number]
            for row in words:
                v, (first, count) = int(row.view(dtype)[0]), row[1:3] if dtype == np.int32 else row[2:4]
                assert kernel == "block" or count <= max(1, knobs.job_draws // size)
                mine = set(pair[first : first + count].tolist())
                assert (
                    len(mine) == count and not mine & served[v] and (vertex[first : first + count] == v).all()
                )
                served[v] |= mine
            assert served == wanted[kernel]
