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


def test_greedy_follows_the_largest_degree_at_each_step():
    m = degrees(20, 3)
    order = lab.reorder(m)
    for i in range(1, 20):
        left = np.setdiff1d(np.arange(20), order[:i])
        assert order[i] == left[np.argmax(m[order[i - 1], left])]


def test_sixteen_batches_are_exact_and_seventeen_too_many():
    m = degrees(16, 1)
    assert lab.path_score(m, lab.reorder(m, "exact")) >= lab.path_score(m, lab.reorder(m, "two-opt")) - 1e-12
    with pytest.raises(ValueError, match=r"method='exact' takes at most 16 batches \(got 17\)"):
        lab.reorder(degrees(17, 1), "exact")


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
