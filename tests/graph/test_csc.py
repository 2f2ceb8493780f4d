"""Edges to CSC, and the positions of rows."""

from __future__ import annotations

import numpy as np

from gnnsample_lab.graph.csc import build_csc, key_bits, rows_of, undirected_union, weighted_union


def test_key_bits_hold_every_id():
    assert [key_bits(n) for n in (0, 1, 2, 3, 4, 5, 2**31)] == [1, 1, 1, 2, 2, 3, 31]


def test_ids_beyond_32_bits_take_the_path_without_keys():
    num_nodes = 2**33
    src = np.array([2**33 - 1, 5, 2**32], dtype=np.int64)
    dst = np.array([1, 0, 1], dtype=np.int64)
    import gnnsample_lab.graph.csc as csc

    original = csc.indptr_of
    csc.indptr_of = lambda d, n: original(d, 2)  # 64 GiB of prefix sums are not the point here
    try:
        indptr, indices, weight = build_csc(src, dst, num_nodes, np.array([1.0, 2.0, 3.0], np.float32))
    finally:
        csc.indptr_of = original
    assert indptr.tolist() == [0, 1, 3] and indices.dtype == np.int64
    assert indices.tolist() == [5, 2**32, 2**33 - 1] and weight.tolist() == [2.0, 3.0, 1.0]


def test_rows_of_any_range_of_positions():
    indptr = np.array([0, 0, 3, 3, 4, 9, 9])
    rows = np.repeat(np.arange(6), np.diff(indptr))
    assert rows_of(indptr).tolist() == rows.tolist()
    for start in range(10):
        for stop in range(start, 10):
            assert rows_of(indptr, start, stop).tolist() == rows[start:stop].tolist()


def test_undirected_union_has_each_edge_once():
    src, dst = undirected_union(np.array([0, 1, 1, 2, 0]), np.array([1, 0, 2, 2, 1]), 3)
    assert sorted(zip(src.tolist(), dst.tolist())) == [(0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]


def test_weighted_union_is_the_union_and_keeps_the_first_weight_that_is_given():
    src, dst = np.array([0, 1, 1, 2, 0, 3]), np.array([1, 0, 2, 2, 1, 3])
    given = weighted_union(src, dst, 4, np.array([5.0, 6.0, 7.0, 8.0, 9.0, 1.0], np.float32))
    assert [each.tolist() for each in given[:2]] == [each.tolist() for each in undirected_union(src, dst, 4)]
    edges = {(u, v): w for u, v, w in zip(*(each.tolist() for each in given))}
    assert edges == {(0, 1): 5, (1, 0): 6, (1, 2): 7, (2, 1): 7, (2, 2): 8, (3, 3): 1}
    nothing = np.array([], np.int64)
    assert all(len(each) == 0 for each in weighted_union(nothing, nothing, 0, nothing.astype(np.float32)))
