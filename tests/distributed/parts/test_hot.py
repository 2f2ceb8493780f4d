"""Which remote lists are worth their bytes, on examples that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gnnsample_lab.distributed import hottest_lists

#            0    1    2   3   4   5
DEGREES = [100, 10, 10, 4, 0, 20]
VISITS = [30, 10, 10, 1, 99, 0]
# fanout 5, 4 bytes an entry; reads: 150, 50, 50, 4, 0, 0; per byte: 0.375, 1.25, 1.25, 0.25


def chosen(budget: int, **options) -> list[int]:
    return hottest_lists(VISITS, DEGREES, 5, budget, **options).ids.tolist()


def test_reads_per_byte_decide():
    found = hottest_lists(VISITS, DEGREES, 5, 10_000)
    assert found.ids.tolist() == [1, 2, 0, 3]
    assert found.offsets.tolist() == [0, 10, 20, 120, 124] and found.nbytes == 496
    assert (found.reads_saved, found.reads_remote, found.saved_share) == (254, 254, 1.0)


def test_degree_ranks_by_degree():
    assert chosen(10_000, ranking="degree") == [0, 1, 2, 3]
    assert chosen(10_000, ranking="visits") == sorted([0, 1, 2, 3], key=lambda v: (-VISITS[v], v))
    assert hottest_lists(VISITS, DEGREES, 5, 400, ranking="degree").saved_share == pytest.approx(150 / 254)
    # For the same bytes: two short lists and what is left over, against the longest.
    assert hottest_lists(VISITS, DEGREES, 5, 80).saved_share == pytest.approx(100 / 254)
    assert chosen(80, ranking="degree") == [1, 2]


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (0, []),
        (15, []),
        (16, [3]),
        (39, [3]),
        (40, [1]),
        (56, [1, 3]),
        (80, [1, 2]),
        (96, [1, 2, 3]),
        (480, [1, 2, 0]),
    ],
)
def test_a_list_that_does_not_fit_is_passed_over(budget, expected):
    found = hottest_lists(VISITS, DEGREES, 5, budget)
    assert found.ids.tolist() == expected and found.nbytes <= budget


def test_own_lists_are_never_copied():
    owner = np.array([1, 0, 1, 1, 1, 1], dtype=np.int8)
    found = hottest_lists(VISITS, DEGREES, 5, 10_000, owner=owner, rank=0)
    assert found.ids.tolist() == [2, 0, 3] and found.reads_remote == 204
    assert hottest_lists(VISITS, DEGREES, 5, 10_000, owner=owner, rank=1).ids.tolist() == [1]
    alone = hottest_lists(VISITS, DEGREES, 5, 10_000, owner=np.zeros(6, np.int8), rank=0)
    assert alone.ids.size == 0 and alone.reads_remote == 0 and alone.saved_share == 0


def test_lists_that_nobody_reads_are_left():
    assert 4 not in chosen(10_000) and 5 not in chosen(10_000)
    assert 5 not in chosen(10_000, ranking="degree")


def test_visits_by_hop_are_read_by_their_own_fanout():
    # Two vertices of degree 10: one visited 3 times at fanout 2, one 1 time at fanout 10: 6 against 10 reads.
    visits = [[3, 0], [0, 1]]
    found = hottest_lists(visits, [10, 10], [2, 10], 40)
    assert found.ids.tolist() == [1] and (found.reads_saved, found.reads_remote) == (10, 16)
    # -1 takes all neighbours.
    assert hottest_lists([1, 1], [3, 300], -1, 1200).reads_remote == 303


def test_bytes_of_an_entry_count():
    assert chosen(79, entry_bytes=8) == [3] and chosen(80, entry_bytes=8) == [1]


def test_the_greedy_choice_is_the_best_of_equal_sizes():
    rng = np.random.default_rng(3)
    visits = rng.integers(0, 100, 50)
    found = hottest_lists(visits, np.full(50, 8), 4, 10 * 32)
    assert found.reads_saved == 4 * np.sort(visits)[-10:].sum()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"visits": [1, 2]}, r"visits must have shape \(1, 6\) or \(6,\)"),
        ({"fanouts": [1, 2]}, r"visits must have shape \(2, 6\), as"),
        ({"visits": [1, 2, 3, 4, 5, -1]}, "visits must be finite and not negative"),
        ({"owner": [0]}, "owner must have one entry per vertex, 6"),
        ({"entry_bytes": 5}, "entry_bytes must be one of"),
        ({"fanouts": 0}, "fanouts must not be 0"),
    ],
)
def test_shapes_that_do_not_fit(changed, words):
    with pytest.raises(ValueError, match=words):
        hottest_lists(**{"visits": VISITS, "degrees": DEGREES, "fanouts": 5, "budget_bytes": 9, **changed})
