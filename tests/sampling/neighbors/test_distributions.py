"""The distribution of the draws, over many batches of one vertex and over many vertices.

Every test has a fixed seed, so it gives the same p-value every time; the bound only says how unlucky that seed may
have been. That the statistics see a bias is tested with biased draws.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from gnnsample_lab import Graph
from gnnsample_lab.sampling.neighbors.cpu import draw_hop
from gnnsample_lab.sampling.neighbors.spec import SampleSpec
from gnnsample_lab.sampling.weights import integer_weights
from tests.sampling.neighbors.pick_oracle import subset_probabilities

ENOUGH = 1e-3
COPIES = 400  # vertices with the same adjacency, drawn at once


def many(
    degree: int, k: int, draws: int, weights: list[float] | None = None, seed: int = 5, **rule
) -> np.ndarray:
    """``int64[draws, k]``: positions drawn within an adjacency of ``degree``, over vertices and batch ids."""
    dst = np.repeat(np.arange(COPIES), degree)
    g = Graph.from_edges(
        COPIES + np.tile(np.arange(degree), COPIES), dst, COPIES + degree,
        edge_weight=None if weights is None else np.tile(weights, COPIES),
    )  # fmt: skip
    spec = SampleSpec((k,), seed=seed, weighted=weights is not None, **rule)
    integers = integer_weights(g.indptr, g.edge_weight) if weights is not None else None
    frontier = np.arange(COPIES, dtype=np.int32)
    rows = [
        draw_hop(frontier, g.indptr, g.indices, integers, spec, batch, 0).positions.reshape(COPIES, k)
        for batch in range(draws // COPIES)
    ]
    return (np.stack(rows) - g.indptr[:COPIES, None]).reshape(-1, k)


def p_of_sets(drawn: np.ndarray, expected: Mapping[frozenset[int], float | Fraction]) -> float:
    """p-value of how often each set was drawn (a multinomial, so the plain chi-square)."""
    counts = dict.fromkeys(expected, 0)
    for row in drawn.tolist():
        counts[frozenset(row)] += 1  # a KeyError here is a set that cannot be drawn
    share = np.array([float(expected[s]) for s in counts])
    return float(stats.chisquare(list(counts.values()), share / share.sum() * len(drawn)).pvalue)


def p_of_groups(
    drawn: np.ndarray, expected: Mapping[frozenset[int], float | Fraction], groups: Iterable[tuple[int, ...]]
) -> float:
    """p-value of how often each group (an edge, a pair of edges) is inside the set drawn.

    These counts hang together, as each draw holds several groups: so the statistic takes their exact covariance.
    """
    groups = [frozenset(g) for g in groups]
    inside = np.array([[group <= s for group in groups] for s in expected], dtype=float)
    share = np.array([float(p) for p in expected.values()])
    mean = share @ inside
    covariance = (inside * share[:, None]).T @ inside - np.outer(mean, mean)
    rows = np.zeros((len(drawn), int(drawn.max()) + 1), dtype=bool)
    rows[np.arange(len(drawn))[:, None], drawn] = True
    counts = np.array([rows[:, list(group)].all(axis=1).sum() for group in groups])
    off = counts - len(drawn) * mean
    rank = int(np.linalg.matrix_rank(covariance, tol=1e-9))
    statistic = off @ np.linalg.pinv(covariance, rcond=1e-9, hermitian=True) @ off / len(drawn)
    return float(stats.chi2.sf(statistic, rank))


def uniform_sets(degree: int, k: int) -> dict[frozenset[int], float]:
    return {frozenset(c): 1 / math.comb(degree, k) for c in itertools.combinations(range(degree), k)}


UNIFORM_CASES = [(2, 1), (5, 2), (9, 4), (9, 8), (11, 5)]


@pytest.mark.parametrize("pick", ["floyd", "reservoir", "fisher-yates"])
@pytest.mark.parametrize(("degree", "k"), UNIFORM_CASES)
def test_every_set_single_and_pair_is_equally_likely(pick, degree, k):
    drawn = many(degree, k, 40_000, pick=pick)
    expected = uniform_sets(degree, k)
    assert p_of_sets(drawn, expected) > ENOUGH
    assert p_of_groups(drawn, expected, itertools.combinations(range(degree), 1)) > ENOUGH
    if k > 1:
        assert p_of_groups(drawn, expected, itertools.combinations(range(degree), 2)) > ENOUGH


@pytest.mark.parametrize("pick", ["floyd", "reservoir", "fisher-yates"])
def test_many_batches_of_one_vertex(pick):
    degree, k, draws = 7, 3, 3000
    g = Graph.from_edges(np.arange(1, degree + 1), np.zeros(degree, int), degree + 1)
    spec = SampleSpec((k,), pick=pick, seed=3)
    frontier = np.zeros(1, dtype=np.int32)
    drawn = np.stack(
        [draw_hop(frontier, g.indptr, g.indices, None, spec, batch, 0).positions for batch in range(draws)]
    )
    assert p_of_sets(drawn, uniform_sets(degree, k)) > ENOUGH
    # Successive batch ids are independent: the lowest pick tells nothing of the next one's.
    now, following = (np.minimum(drawn[half::2].min(axis=1), 2) for half in (0, 1))
    table = np.zeros((3, 3))
    np.add.at(table, (now, following), 1)
    assert stats.chi2_contingency(table).pvalue > ENOUGH


@pytest.mark.parametrize("pick", ["floyd", "reservoir", "fisher-yates"])
def test_hops_are_independent(pick):
    degree = 6
    g = Graph.from_edges(
        COPIES + np.tile(np.arange(degree), COPIES), np.repeat(np.arange(COPIES), degree), COPIES + degree
    )
    spec = SampleSpec((1, 1), pick=pick, seed=4)
    frontier = np.arange(COPIES, dtype=np.int32)
    table = np.zeros((degree, degree))
    for batch in range(50):
        first, second = (
            draw_hop(frontier, g.indptr, g.indices, None, spec, batch, hop).positions % degree
            for hop in (0, 1)
        )
        np.add.at(table, (first, second), 1)
    assert stats.chisquare(table.ravel()).pvalue > ENOUGH


def test_neighbouring_vertices_are_independent():
    drawn = many(8, 1, 40_000)[:, 0]
    table = np.zeros((8, 8))
    np.add.at(table, (drawn[0::2], drawn[1::2]), 1)
    assert stats.chisquare(table.ravel()).pvalue > ENOUGH


@pytest.mark.parametrize(("degree", "k"), [(3, 2), (7, 3)])
def test_with_replacement_every_sequence_is_equally_likely(degree, k):
    drawn = many(degree, k, 40_000, replace=True)
    code = drawn @ degree ** np.arange(k)
    assert stats.chisquare(np.bincount(code, minlength=degree**k)).pvalue > ENOUGH


WEIGHTED_CASES = [
    ([1, 2, 3, 4, 5], 2),
    ([1, 2, 3, 4, 5], 4),
    ([1, 1, 1, 1, 1, 1], 3),
    ([8, 0, 1, 0, 1, 3], 2),
    ([100, 1, 1, 1, 1, 1], 3),
]


@pytest.mark.parametrize(("weights", "k"), WEIGHTED_CASES, ids=str)
def test_weighted_inclusion_is_that_of_successive_sampling(weights, k):
    drawn = many(len(weights), k, 40_000, weights=[float(w) for w in weights])
    expected = subset_probabilities(weights, k)
    assert sum(expected.values()) == 1
    assert p_of_sets(drawn, expected) > ENOUGH
    singles = [(i,) for i, w in enumerate(weights) if w]
    assert p_of_groups(drawn, expected, singles) > ENOUGH
    assert p_of_groups(drawn, expected, itertools.combinations([i for (i,) in singles], 2)) > ENOUGH


def test_fractional_weights_have_the_same_probabilities():
    whole = [3, 1, 4, 1, 5]
    drawn = many(5, 2, 40_000, weights=[w * 0.37 for w in whole])
    assert p_of_sets(drawn, subset_probabilities(whole, 2)) > ENOUGH


@pytest.mark.parametrize("weights", [[1, 2, 3, 4], [0, 5, 0, 1, 1], [1000, 1, 1]], ids=str)
def test_weighted_with_replacement_draws_in_proportion(weights):
    drawn = many(len(weights), 3, 40_000, weights=[float(w) for w in weights], replace=True)
    positive = np.flatnonzero(weights)
    share = np.array(weights)[positive] / sum(weights)
    for slot in range(3):
        counts = np.bincount(drawn[:, slot], minlength=len(weights))
        assert counts.sum() == counts[positive].sum()
        assert stats.chisquare(counts[positive], share * len(drawn)).pvalue > ENOUGH
    pairs = np.bincount(drawn[:, 0] * len(weights) + drawn[:, 1], minlength=len(weights) ** 2)
    joint = np.outer(share, share) * len(drawn)
    seen = pairs.reshape(len(weights), -1)[np.ix_(positive, positive)]
    often = joint > 5  # the chi-square needs a few expected in each cell
    observed, wanted = [*seen[often], seen[~often].sum()], [*joint[often], joint[~often].sum()]
    keep = np.array(wanted) > 0
    assert stats.chisquare(np.array(observed)[keep], np.array(wanted)[keep]).pvalue > ENOUGH


def test_the_statistics_see_a_bias():
    """A draw that is wrong in its singles, one that is wrong in its pairs alone, and one that ignores weights."""
    rng = np.random.default_rng(0)
    degree, k, n = 9, 4, 40_000
    expected = uniform_sets(degree, k)
    fair = rng.permuted(np.tile(np.arange(degree), (n, 1)), axis=1)[:, :k]
    assert p_of_sets(fair, expected) > ENOUGH
    # Now and then an edge is exchanged for the lowest that is left out, as a modulo would prefer low results.
    skewed = fair.copy()
    swap = rng.random(n) < 0.1
    skewed[swap, 0] = [min(set(range(degree)) - set(row)) for row in fair[swap].tolist()]
    singles, pairs = ([*itertools.combinations(range(degree), size)] for size in (1, 2))
    assert p_of_sets(skewed, expected) < 1e-6
    assert p_of_groups(skewed, expected, singles) < 1e-6
    # Right singles, wrong pairs: neighbours on a ring.
    start = rng.integers(0, degree, n)
    ring = (start[:, None] + np.arange(k)) % degree
    assert p_of_groups(ring, expected, singles) > ENOUGH
    assert p_of_groups(ring, expected, pairs) < 1e-6
    weights = [1, 2, 3, 4, 5]
    uniform = rng.permuted(np.tile(np.arange(5), (n, 1)), axis=1)[:, :2]
    assert p_of_sets(uniform, subset_probabilities(weights, 2)) < 1e-6
