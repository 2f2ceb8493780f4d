"""The look-up table of a cache, against a dictionary."""

import numpy as np
import pytest

from gnnsample_lab.features.caching import slots


@pytest.mark.parametrize("num_nodes", [1, 31, 32, 33, 64, 1000])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.98, 1.0])
def test_each_vertex_finds_its_row_or_none(num_nodes, share):
    rng = np.random.default_rng(num_nodes)
    cached = np.sort(rng.permutation(num_nodes)[: round(share * num_nodes)])
    table = slots.slot_table(cached, num_nodes)
    row = {int(v): i for i, v in enumerate(cached)}
    assert [int(slots.slot_of(table, v)) for v in range(num_nodes)] == [
        row.get(v, -1) for v in range(num_nodes)
    ]
    assert table.dtype == np.uint32 and table.nbytes == slots.table_bytes(num_nodes)


def test_a_word_says_its_vertices_and_how_many_cached_ones_lie_below_it():
    table = slots.slot_table(np.array([0, 3, 31, 32, 95]), 96)
    assert table.tolist() == [[1 | 1 << 3 | 1 << 31, 0], [1, 3], [1 << 31, 4]]
    assert slots.table_bytes(0) == 0 and slots.table_bytes(96) == 24 and slots.table_bytes(97) == 32


@pytest.mark.parametrize(("cached", "missing"), [([], 0), ([1, 2], 0), ([0, 1, 3], 2), ([0, 1], 2)])
def test_the_lowest_vertex_that_is_not_cached(cached, missing):
    assert slots.first_missing(np.array(cached, np.int64)) == missing
