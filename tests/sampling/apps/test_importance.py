"""FastGCN, LADIES and MVS: what they draw against the formulas of their papers, written with dense matrices."""

from __future__ import annotations

import dataclasses
import itertools
import threading

import numpy as np
import pytest

from gnnsample_lab import Graph, rmat, run_app
from gnnsample_lab.device import runtime
from gnnsample_lab.sampling import apps
from gnnsample_lab.sampling.apps import adjacency
from gnnsample_lab.sampling.engine.language.app import NULL
from tests.sampling.apps.statistics import ENOUGH, IMPOSSIBLE, dense, p_value, sample, tangled_graph


def column_shares(graph, weight):
    """Squared column norms of D_in^-1/2 A D_out^-1/2."""
    matrix = dense(graph, weight)
    into, out = (np.maximum(matrix.sum(axis=axis), 1e-300) for axis in (1, 0))
    return ((matrix / np.sqrt(into)[:, None] / np.sqrt(out)) ** 2).sum(axis=0)


def row_shares(graph, weight):
    """Squared entries of D_in^-1 A."""
    matrix = dense(graph, weight)
    return (matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1e-300)) ** 2


@pytest.mark.parametrize("weighted", [True, False])
def test_norms_are_those_of_the_dense_matrix(weighted):
    graph = tangled_graph(weighted, 30)
    squares = row_shares(graph, graph.edge_weight)
    np.testing.assert_allclose(
        adjacency.column_norms(graph, graph.edge_weight), column_shares(graph, graph.edge_weight), rtol=1e-12
    )
    np.testing.assert_allclose(adjacency.row_norms(graph), squares.sum(axis=1), rtol=1e-12)
    entries = adjacency.squared_entries(graph)
    for v in range(30):
        own = np.bincount(
            graph.indices[graph.indptr[v] : graph.indptr[v + 1]],
            entries[graph.indptr[v] : graph.indptr[v + 1]],
            30,
        )
        np.testing.assert_allclose(own, squares[v] / max(squares[v].max(), 1e-300), rtol=1e-12)


@pytest.mark.parametrize("app", [apps.LADIES(), apps.FastGCN()], ids=lambda app: app.name)
def test_roots_of_a_small_graph_are_asked_for_by_name(app):
    graph = Graph.from_edges([0, 1, 2], [1, 2, 0], 3)
    with pytest.raises(ValueError, match="batch_size must be at most the number of vertices, 3 .got 64"):
        run_app(graph, app, device="cpu")


def test_fastgcn_needs_an_edge_that_weighs_something():
    graph = Graph.from_edges([0, 1], [1, 0], edge_weight=[0, 0])
    with pytest.raises(ValueError, match="edge_weight must have a positive entry: FastGCN draws"):
        run_app(graph, apps.FastGCN(1, 1, 1), device="cpu")


def test_entries_are_alike_only_without_weights_and_parallel_edges():
    plain = Graph.from_edges([1, 2, 1], [0, 0, 2])
    assert adjacency.entries_alike(plain)
    assert not adjacency.entries_alike(Graph.from_edges([1, 1], [0, 0]))
    assert not adjacency.entries_alike(Graph.from_edges([1], [0], edge_weight=[1]))
    np.testing.assert_allclose(adjacency.row_norms(plain), [0.5, 0, 1])


@pytest.mark.parametrize("weighted", [True, False])
def test_fastgcn_draws_by_column_norms(weighted):
    graph = tangled_graph(weighted)
    result = sample(graph, apps.FastGCN(3, 4, 16), num_samples=100, seed=2)
    assert [s.shape for s in result.steps] == [(100, 16)] * 3
    drawn = np.concatenate(result.steps, axis=1).ravel().tolist()
    assert p_value(drawn, dict(enumerate(column_shares(graph, graph.edge_weight)))) > ENOUGH
    assert p_value(drawn, dict.fromkeys(range(9), 1)) < IMPOSSIBLE


def test_fastgcn_never_draws_what_nobody_reads():
    graph = Graph.from_edges([1, 2], [0, 1], 5)
    result = sample(graph, apps.FastGCN(1, 2, 50), num_samples=20)
    assert set(result.steps[0].ravel().tolist()) == {1, 2}
    with pytest.raises(ValueError, match="has none"):
        sample(Graph.from_edges([], [], 3), apps.FastGCN(batch_size=2))


def successive(share, count):
    """{frozenset: probability} of the first ``count`` distinct values of draws in proportion to ``share``."""
    sets = {}
    for order in itertools.permutations(range(len(share)), count):
        p, left = 1.0, sum(share)
        for u in order:
            p, left = p * share[u] / left if left > 0 else 0.0, left - share[u]
        sets[frozenset(order)] = sets.get(frozenset(order), 0.0) + p
    return sets


@pytest.mark.parametrize("weighted", [True, False])
def test_ladies_draws_sets_by_successive_sampling(weighted):
    graph = tangled_graph(weighted)
    roots = np.tile([2, 5, 7], (4000, 1))
    result = sample(graph, apps.LADIES(1, 3, 2), roots, seed=3)
    shares = row_shares(graph, graph.edge_weight)[[2, 5, 7]].sum(axis=0)
    possible = {s: p for s, p in successive(shares, 2).items() if p > 2e-3}
    drawn = [s for s in map(frozenset, result.steps[0].tolist()) if s in possible]
    assert len(drawn) > 3900 and all(len(s) == 2 for s in drawn)
    assert p_value(drawn, possible) > ENOUGH
    candidates = dict.fromkeys(possible, 1.0)
    assert p_value(drawn, candidates) < IMPOSSIBLE


def test_ladies_probabilities_are_numbers_where_a_list_weighs_nothing():
    graph = Graph.from_edges([1, 1], [0, 2], num_nodes=3, edge_weight=[1.0, 0.0])
    app = apps.LADIES(1, 1, 1)
    result = run_app(graph, app, [[0, 2]], device="cpu")
    assert app.layer_probability(result, 0).tolist() == [[1.0]]


def test_ladies_next_layer_depends_on_the_last():
    graph = tangled_graph(False)
    result = sample(graph, apps.LADIES(2, 1, 1), np.full(4000, 2), seed=5)
    squares = row_shares(graph, None)
    first, second = (step.ravel() for step in result.steps)
    assert p_value(first.tolist(), dict(enumerate(squares[2] / squares[2].sum()))) > ENOUGH
    for v in set(first.tolist()):
        drawn = second[first == v].tolist()
        if len(drawn) > 300:
            assert p_value(drawn, dict(enumerate(squares[v]))) > ENOUGH


def test_ladies_tells_hubs_apart():
    """Squared entries of these two rows differ by a factor of four, and from 1 by more than 32 bits have."""
    small, large = 40_000, 80_000
    src = np.arange(2, 2 + small + large)
    dst = np.repeat([0, 1], [small, large])
    graph = Graph.from_edges(np.append(src, 0), np.append(dst, 2), 2 + small + large)
    drawn = sample(graph, apps.LADIES(1, 2, 1), np.tile([0, 1], (6000, 1)), seed=1).steps[0].ravel()
    assert p_value((drawn < 2 + small).tolist(), {True: 2, False: 1}) > ENOUGH


def test_a_layer_of_ladies_is_distinct_and_no_larger_than_the_neighbourhood():
    graph = tangled_graph(False)
    result = sample(graph, apps.LADIES(3, 8, 6), num_samples=40, seed=1)
    linked = dense(graph) > 0
    before, full = result.roots, 0
    for layer in result.steps:
        for transits, drawn in zip(before.tolist(), layer.tolist(), strict=True):
            found = [v for v in drawn if v != NULL]
            near = np.flatnonzero(linked[[t for t in transits if t != NULL]].any(axis=0)).tolist()
            assert len(set(found)) == len(found) and set(found) <= set(near)
            assert len(near) > 3
            full += len(found) == min(6, len(near))
        before = layer
    assert full > 0.95 * 120
    lonely = Graph.from_edges([1, 2], [0, 0], 4)
    assert sample(lonely, apps.LADIES(2, 2, 3), [[1, 3]]).steps[0].tolist() == [[-1, -1, -1]]
    assert sorted(sample(lonely, apps.LADIES(1, 2, 3), [[0, 3]]).steps[0][0].tolist()) == [-1, 1, 2]


def test_mini_batches_have_distinct_roots():
    graph = tangled_graph(False, 70)
    for app in (apps.FastGCN(1), apps.LADIES(1)):
        roots = sample(graph, app, num_samples=30, seed=9).roots
        assert roots.shape == (30, 64) and all(len(set(row)) == 64 for row in roots.tolist())
    with pytest.raises(ValueError, match="batch_size must be at most the number of vertices, 70"):
        sample(graph, apps.LADIES(batch_size=71), num_samples=1)


@pytest.mark.parametrize("given", [True, False])
def test_mvs_roots_are_drawn_by_their_gradients(given):
    graph = tangled_graph(False)
    norms = np.array([0, 1, 2.5, 0.5, 4, 1, 1, 3, 2]) if given else None
    app = apps.MVS(norms)
    roots = sample(graph, app, num_samples=60, seed=4).roots
    assert roots.shape == (60, 64)
    expected = norms if given else np.diff(graph.indptr) + 1
    np.testing.assert_allclose(app.probability(graph), expected / expected.sum(), rtol=1e-12)
    assert p_value(roots.ravel().tolist(), dict(enumerate(expected))) > ENOUGH
    assert p_value([v for v in roots.ravel().tolist() if v], dict.fromkeys(range(1, 9), 1)) < IMPOSSIBLE


def test_mvs_adds_all_neighbours_where_they_fit():
    graph = Graph.from_edges([*range(1, 6), 3, 4], [*[0] * 5, 1, 1], 8)
    result = sample(graph, apps.MVS(step_size=4), np.tile([0, 1, 7], (800, 1)), seed=1)
    few, none = result.steps[0][:, 4:8], result.steps[0][:, 8:]
    assert (few == [3, 4, -1, -1]).all() and (none == -1).all()
    assert p_value(result.steps[0][:, :4].ravel().tolist(), dict.fromkeys(range(1, 6), 1)) > ENOUGH


@pytest.mark.parametrize("scale", [1e-310, 1e-300, 2.0**1021])
def test_norms_of_any_size_keep_their_proportions(scale):
    graph = Graph.from_edges([1], [0], 4)
    plain = apps.MVS([1.0, 2.0, 0.0, 4.0]).probability(graph)
    np.testing.assert_allclose(plain, np.array([1, 2, 0, 4]) / 7)
    scaled = apps.MVS(np.array([1.0, 2.0, 0.0, 4.0]) * scale).probability(graph)
    np.testing.assert_allclose(scaled, plain, rtol=1e-9)


@pytest.mark.parametrize(
    ("norms", "words"),
    [
        ([1, 2], "importance must have shape"),
        ([1, -2, -1], r"importance must be finite and not negative \(got -2.0 at position 1\)"),
        ([1, float("nan"), 1], r"importance must be finite and not negative \(got nan at position 1\)"),
        ([1, 1, float("inf")], r"importance must be finite and not negative \(got inf at position 2\)"),
        ([0, 0, 0], r"importance must have a number above 0 \(got 0 at all 3 positions\)"),
        ([], r"importance must have a number above 0 \(got none\)"),
        ([[1.0, 2.0]], r"importance must be one-dimensional \(got shape \(1, 2\)\)"),
    ],
)
def test_importance_is_checked(norms, words):
    with pytest.raises(ValueError, match=words):
        sample(Graph.from_edges([1], [0], 3), apps.MVS(norms), num_samples=1)


def test_no_vertex_is_no_importance():
    with pytest.raises(ValueError, match="draws vertices, and '.*' has none"):
        run_app(Graph.from_edges([], [], 0), apps.MVS(), num_samples=1, device="cpu")


@pytest.mark.parametrize("make", [apps.FastGCN, apps.LADIES])
def test_probabilities_are_of_the_graph_that_was_drawn_from(make):
    """Weights to divide by, asked for after the application has drawn from another graph."""
    app = make(2, 2, 4)
    first, other = (rmat(64, 4, seed=seed) for seed in (1, 2))
    drawn = run_app(first, app, num_samples=2, device="cpu")
    before = app.layer_probability(drawn, 0)
    run_app(other, app, num_samples=2, device="cpu")
    assert np.array_equal(app.layer_probability(drawn, 0), before)


def test_probabilities_wait_for_a_run_of_another_thread():
    """Which has prepared the application for its own graph."""
    app, prepared = apps.FastGCN(2, 2, 4), []
    drawn = run_app(rmat(64, 4), app, num_samples=2, device="cpu")
    app.prepare = lambda graph: prepared.append(graph)
    asking = threading.Thread(target=drawn.adjacency, args=(0, "importance"))
    with runtime.lock:  # as a run holds it
        asking.start()
        asking.join(0.2)
        assert asking.is_alive() and not prepared
    asking.join()
    assert prepared == [drawn.graph]


@pytest.mark.parametrize("app", [apps.FastGCN(2, 4, 8), apps.LADIES(2, 4, 8)], ids=lambda app: app.name)
def test_copies_of_a_graph_are_prepared_once(app):
    """A GPU's samples hold the copy there: its probabilities are asked for between two samples of the graph here."""
    here = tangled_graph(True)
    there = dataclasses.replace(here)
    there._set("_identity", here._identity)  # as to() says of a copy
    first = run_app(here, app, num_samples=3)
    prepared = app._prepared, id(app.row_norm if isinstance(app, apps.LADIES) else app.prefix)
    probability = app.layer_probability(first, 0)
    elsewhere = run_app(there, app, num_samples=3)
    np.testing.assert_array_equal(app.layer_probability(elsewhere, 0), probability)
    assert prepared == (app._prepared, id(app.row_norm if isinstance(app, apps.LADIES) else app.prefix))
    run_app(dataclasses.replace(here), app, num_samples=3)  # another graph, for all that anybody knows
    assert app._prepared is not prepared[0]


class OwnWeights(apps.FastGCN):
    def edge_weights(self, graph):
        return self.own


def test_weights_of_an_application_that_change_are_drawn_by():
    graph, app = Graph.from_edges([1, 2], [0, 0], 3), OwnWeights(1, 1, 50)
    for app.own, drawn in (
        (np.array([1.0, 0.0]), {1}),
        (np.array([0.0, 1.0]), {2}),
        (None, {1, 2}),
    ):
        assert set(run_app(graph, app, [[0]], device="cpu").steps[0].ravel().tolist()) == drawn
    app.own = np.array([1.0, 0.0])
    run_app(graph, app, [[0]], device="cpu")
    prefix = app.prefix
    app.own = app.own.copy()
    run_app(graph, app, [[0]], device="cpu")
    assert app.prefix is prefix, "the same weights"
    app.own[:] = [0.0, 1.0]
    assert set(run_app(graph, app, [[0]], device="cpu").steps[0].ravel().tolist()) == {2}


@pytest.mark.gpu
def test_a_copy_on_a_gpu_is_the_same_graph():
    graph = tangled_graph(True)
    there = graph.to("cuda")
    assert there._identity is graph._identity is there.to("cpu")._identity
    assert dataclasses.replace(there)._identity is not graph._identity


@pytest.mark.parametrize("app", [apps.FastGCN(1, 2, 2), apps.LADIES(1, 2, 2)], ids=lambda app: app.name)
def test_slots_without_a_vertex_have_no_probability(app):
    """A sample of roots that are none draws nothing, and -1 is not the graph's last vertex."""
    result = run_app(tangled_graph(True), app, np.array([[0, 1], [-1, -1]]), device="cpu")
    found = app.layer_probability(result, 0)
    assert found[1].tolist() == [0.0, 0.0]
    assert np.array_equal(found > 0, result.steps[0] >= 0)
