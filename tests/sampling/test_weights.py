"""Float weights in fixed point: exact where they are whole, proportional elsewhere, never to zero."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnsample_lab import Graph, run_app
from gnnsample_lab.sampling.apps import DeepWalk
from gnnsample_lab.sampling.weights import integer_weights
from tests.sampling.neighbors import pick_oracle


def convert(weights, indptr=None):
    weights = np.asarray(weights, dtype=np.float32)
    indptr = np.array([0, weights.size]) if indptr is None else np.asarray(indptr)
    return integer_weights(indptr, weights)


def per_edge(found) -> list[int]:
    return [int(b) - int(a) for a, b in zip(found.prefix[:-1], found.prefix[1:])]


def test_whole_weights_stay_as_they_are():
    found = convert([3, 0, 1, 2**24, 7])
    assert per_edge(found) == [3, 0, 1, 2**24, 7]
    assert found.prefix.dtype == np.uint64


def test_fractions_are_scaled_to_the_largest():
    found = per_edge(convert([0.5, 0.25, 1.0, 0.0]))
    assert found == [2**30, 2**29, 2**31, 0]


def test_ratios_survive_scaling():
    weights = np.random.default_rng(0).random(1000).astype(np.float32) + np.float32(0.01)
    found = np.array(per_edge(convert(weights)), dtype=float)
    assert found / found.sum() == pytest.approx(weights.astype(float) / weights.sum(dtype=float), rel=1e-6)


def test_a_positive_weight_never_becomes_zero():
    assert per_edge(convert([1e-38, 1.5, 0.0])) == [1, 2**31, 0]
    assert per_edge(convert([1e-45, 3e38])) == [1, 2**31]


def test_whole_weights_whose_sum_would_not_fit_are_scaled():
    huge = np.float32(2.0**62)
    assert per_edge(convert([huge, huge / 2, 1])) == [2**31, 2**30, 1]
    fits = np.float32(2.0**31)
    assert per_edge(convert([fits, 3])) == [2**31, 3]
    assert per_edge(convert([2 * fits, 4])) == [2**31, 2], "a single weight has 32 bits"


@pytest.mark.parametrize("tiny", [1e-300, 5e-324, 1e-291])
def test_weights_whose_scale_is_no_number_are_scaled_all_the_same(tiny):
    """Weights of applications have 64 bits."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = integer_weights(np.array([0, 3]), np.array([tiny, 0.0, tiny]))
    assert per_edge(found) == [1, 0, 1] and found.available.tolist() == [2]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1.0, -1e-300])
def test_what_is_no_weight_is_an_error(bad):
    with pytest.raises(ValueError, match="edge weights must be finite and not negative"):
        integer_weights(np.array([0, 3]), np.array([1.0, bad, 2.0]))


def test_zeros_and_nothing():
    found = convert([0, 0, 0])
    assert per_edge(found) == [0, 0, 0] and found.available.tolist() == [0]
    found = convert([], indptr=[0, 0, 0])
    assert found.prefix.tolist() == [0] and found.available.tolist() == [0, 0]


def test_available_counts_positive_edges_per_vertex():
    found = convert([1, 0, 2, 0, 0, 0.5], indptr=[0, 3, 3, 5, 6])
    assert found.available.tolist() == [2, 0, 0, 1]
    assert found.available.dtype == np.int32


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(st.floats(0, float(np.float32(3e38)), width=32), st.integers(0, 9).map(float)), max_size=40
    )
)
@pytest.mark.filterwarnings("ignore:edge_weight")
def test_any_weights(weights):
    weights = [float(np.float32(w)) for w in weights]
    found = convert(weights)
    assert per_edge(found) == pick_oracle.integer_weights(weights)
    assert [w > 0 for w in weights] == [w > 0 for w in per_edge(found)]
    assert found.available.tolist() == [sum(w > 0 for w in weights)]


def test_whole_weights_beyond_32_bits_are_scaled():
    """Engines compare single weights as 32 bits: what is larger would be cut."""
    for weights in ([2.0**32 + 2**20, 2.0**31, 2.0**30], [2.0**32, 2.0**33, 2.0**34], [1, 2.0**32, 1]):
        graph = Graph.from_edges([1, 2, 3], [0, 0, 0], 4, edge_weight=weights)
        found = integer_weights(graph.indptr, graph.edge_weight)
        each = np.diff(found.prefix.astype(np.float64))
        assert each.max() <= 2**31
        np.testing.assert_allclose(each / each.sum(), np.array(weights) / sum(weights), atol=1e-6)
        walks = run_app(graph, DeepWalk(1), np.zeros(4000, int), device="cpu").steps[0].ravel()
        share = np.bincount(walks, minlength=4)[1:] / 4000
        np.testing.assert_allclose(share, np.array(weights) / sum(weights), atol=0.05)


def test_where_rounding_is_coarse_a_warning_says_so():
    """Two edges of 1 and 3, and one elsewhere beside which both are nothing."""
    graph = Graph.from_edges([2, 3, 4], [0, 0, 1], 5, edge_weight=[1.5, 4.5, 3e10])
    with pytest.warns(
        UserWarning, match="weights of 1 vertices are so small that they are rounded to steps of 14"
    ):
        integer_weights(graph.indptr, graph.edge_weight)
    hidden = Graph.from_edges([2, 3, 4, 3], [0, 0, 0, 1], 5, edge_weight=[1.5, 4.5, 3e10, 2e10])
    with pytest.warns(UserWarning, match="weights of 1 vertices are so small"):
        found = integer_weights(hidden.indptr, hidden.edge_weight)
    assert per_edge(found)[:2] == [1, 1], "of 1.5 and 4.5, which are drawn once the heavy edge is taken"
    fine = Graph.from_edges([2, 3, 4], [0, 0, 1], 5, edge_weight=[1.5, 4.5, 3e5])
    lone = Graph.from_edges([2, 4], [0, 1], 5, edge_weight=[1.5, 3e10])  # nothing to choose from
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for each in (fine, lone):
            integer_weights(each.indptr, each.edge_weight)
