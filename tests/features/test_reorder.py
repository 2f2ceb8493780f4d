"""Orders of mini-batches: the paper's greedy one, a better one, and the best."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gnnsample_lab as lab


def degrees(n: int, seed: int) -> np.ndarray:
    m = np.random.default_rng(seed).random((n, n))
    m = (m + m.T) / 2
    np.fill_diagonal(m, 1)
    return m


def best_by_trying(m: np.ndarray) -> float:
    rest = range(1, len(m))
    return max(lab.path_score(m, (0, *p)) for p in itertools.permutations(rest))


# The paper's figure 6(b) in spirit: batch 2 shares more with batch 0 than batch 1 does.
BY_HAND = np.array([[1, 0.2, 0.6], [0.2, 1, 0.5], [0.6, 0.5, 1]])


@pytest.mark.parametrize("method", ["greedy", "two-opt", "exact"])
def test_three_batches_by_hand(method):
    order = lab.reorder(BY_HAND, method)
    assert order.dtype == np.int64
    assert order.tolist() == [0, 2, 1]
    assert lab.path_score(BY_HAND, order) == pytest.approx(1.1)


@pytest.mark.parametrize("method", ["greedy", "two-opt", "exact"])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13])
def test_an_order_names_every_batch_once_from_the_first(n, method):
    order = lab.reorder(degrees(n, n), method)
    assert order[0] == 0
    assert sorted(order.tolist()) == list(range(n))


@pytest.mark.parametrize("seed", range(6))
def test_exact_is_the_best_and_two_opt_between(seed):
    m = degrees(7, seed)
    scores = [lab.path_score(m, lab.reorder(m, method)) for method in ("greedy", "two-opt", "exact")]
    assert scores[2] == pytest.approx(best_by_trying(m))
    assert scores[0] <= scores[1] + 1e-12 <= scores[2] + 2e-12


def test_two_opt_can_beat_greedy_and_leaves_nothing_to_reverse():
    better = 0
    for seed in range(10):
        m = degrees(9, seed)
        order = lab.reorder(m, "two-opt")
        score = lab.path_score(m, order)
        better += score > lab.path_score(m, lab.reorder(m)) + 1e-9
        for i, j in itertools.combinations(range(1, 9), 2):
            turned = order.copy()
            turned[i : j + 1] = turned[i : j + 1][::-1]
            assert lab.path_score(m, turned) <= score + 1e-9
    assert better > 0


def test_greedy_takes_the_lower_of_equals_and_never_a_visited_one():
    assert lab.reorder(np.ones((5, 5))).tolist() == [0, 1, 2, 3, 4]
    # Nothing shared at all: the paper's zeros for visited batches would return batch 0 again and again.
    assert lab.reorder(np.eye(5)).tolist() == [0, 1, 2, 3, 4]
    below_zero = np.full((4, 4), -3.0)
    assert sorted(lab.reorder(below_zero).tolist()) == [0, 1, 2, 3]


def algorithm_1(m: np.ndarray, gone: float) -> list[int]:
    """FastGL's Algorithm 1 with lists: what is not to be taken again, the last batch itself included, has ``gone``.

    Printed is 0. A batch's degree with itself is never set there before line 7 looks for the largest; it has to be, as
    that is 1.
    """
    rows = m.tolist()
    ordered, z = [0], 0  # lines 4 and 5
    for k in range(len(rows)):
        rows[k][k] = gone
    while len(ordered) < len(rows):
        h = rows[z].index(max(rows[z]))  # line 7
        ordered.append(h)
        for k in range(len(rows)):  # line 9
            rows[z][k] = rows[k][z] = gone
        z = h
    return ordered


def shared_by_sets(n: int, seed: int) -> np.ndarray:
    """Degrees of batches of few vertices each: many are equal, and many are 0."""
    rng = np.random.default_rng(seed)
    batches = [set(rng.integers(0, 60, rng.integers(1, 9)).tolist()) for _ in range(n)]
    return np.array([[len(a & b) / min(len(a), len(b)) for b in batches] for a in batches])


@pytest.mark.parametrize("make", [degrees, shared_by_sets])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 40])
def test_greedy_is_algorithm_1(n, make):
    for seed in range(8):
        m = make(n, seed)
        order = lab.reorder(m).tolist()
        assert order == algorithm_1(m, gone=-1)
        if m.all():
            assert order == algorithm_1(m, gone=0), "as printed, where every two batches share something"


def test_as_printed_a_batch_that_shares_nothing_with_the_rest_is_left_for_a_visited_one():
    assert algorithm_1(np.eye(3), gone=0) == [0, 0, 0]
    assert sum(len(set(algorithm_1(shared_by_sets(12, seed), gone=0))) < 12 for seed in range(20)) > 10


def test_sixteen_batches_are_exact_and_seventeen_too_many():
    m = degrees(16, 1)
    assert lab.path_score(m, lab.reorder(m, "exact")) >= lab.path_score(m, lab.reorder(m, "two-opt")) - 1e-12
    with pytest.raises(ValueError, match=r"method='exact' takes at most 16 batches \(got 17\)"):
        lab.reorder(degrees(17, 1), "exact")


@pytest.mark.parametrize("method", ["greedy", "two-opt", "exact"])
def test_degrees_that_rounding_makes_asymmetric_have_an_order(method):
    for n, seed in ((8, 7), (12, 5), (8, 1)):  # with two of them reversing stretches never ended
        m = 1 + np.random.default_rng(seed).uniform(-1e-6, 1e-6, (n, n))
        assert not np.array_equal(m, m.T)
        order = lab.reorder(m, method)
        assert sorted(order.tolist()) == list(range(n))
        assert lab.path_score(m, order) == pytest.approx(n - 1, rel=1e-5)


@pytest.mark.parametrize(
    ("m", "message"),
    [
        (np.zeros((2, 3)), "M must be a square matrix"),
        (np.zeros((0, 0)), "M must be a square matrix"),
        (np.array([[1, np.nan], [np.nan, 1]]), "M must hold finite numbers"),
        (np.array([[1, 0.5], [0.4, 1]]), "M must be symmetric"),
    ],
)
def test_bad_matrices_are_named(m, message):
    with pytest.raises(ValueError, match=message):
        lab.reorder(m)


def test_bad_methods_and_orders_are_named():
    with pytest.raises(
        ValueError, match="method must be one of 'greedy', 'two-opt', 'exact' \\(got 'best'\\)"
    ):
        lab.reorder(BY_HAND, "best")
    for order in ([0, 0], [0, 3], [-1, 0]):
        with pytest.raises(ValueError, match="order must name batches"):
            lab.path_score(BY_HAND, order)
    assert lab.path_score(BY_HAND, [2]) == 0


@pytest.mark.parametrize("n", [2, 3, 5, 7])
def test_of_equally_good_paths_exact_always_returns_the_same(n):
    # All paths are equally good: at each place from the end the lowest batch that is left.
    assert lab.reorder(np.ones((n, n)), "exact").tolist() == [0, *range(n - 1, 0, -1)]
