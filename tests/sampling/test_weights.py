"""Float weights in fixed point: exact where they are whole, proportional elsewhere, never to zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    fits = np.float32(2.0**59)
    assert per_edge(convert([fits, 3])) == [2**59, 3]


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
def test_any_weights(weights):
    weights = [float(np.float32(w)) for w in weights]
    found = convert(weights)
    assert per_edge(found) == pick_oracle.integer_weights(weights)
    assert [w > 0 for w in weights] == [w > 0 for w in per_edge(found)]
    assert found.available.tolist() == [sum(w > 0 for w in weights)]
