"""Random walks: every transition against its exact probability."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from gnnsample_lab import Graph
from gnnsample_lab.sampling import apps
from gnnsample_lab.sampling.apps import choices
from gnnsample_lab.sampling.engine.language.app import NULL, SamplingAppError
from gnnsample_lab.sampling.engine.shape import MAX_STEPS
from tests.sampling.apps.statistics import (
    ENOUGH,
    IMPOSSIBLE,
    chi_square,
    dense,
    p_of_all,
    p_value,
    sample,
    tangled_graph,
)


def transitions(result):
    """(v, u) of every step of every walk that went on."""
    path = result.samples
    pairs = np.stack([path[:, :-1].ravel(), path[:, 1:].ravel()], axis=1)
    return pairs[(pairs >= 0).all(axis=1)]


def row(matrix, v):
    return {u: float(share) for u, share in enumerate(matrix[v]) if share > 0}


def p_of_rows(pairs, matrix):
    by_vertex = defaultdict(list)
    for v, u in pairs.tolist():
        by_vertex[v].append(u)
    return p_of_all(chi_square(drawn, row(matrix, v)) for v, drawn in by_vertex.items())


@pytest.mark.parametrize("app", [apps.DeepWalk(10), apps.PPR(0.1)], ids=["deepwalk", "ppr"])
@pytest.mark.parametrize("weighted", [True, False])
def test_steps_go_by_weight(app, weighted):
    graph = tangled_graph(weighted)
    pairs = transitions(sample(graph, app, np.arange(800) % 8, seed=3))
    assert p_of_rows(pairs, dense(graph, graph.edge_weight)) > ENOUGH
    if weighted:  # and the test would see it if they did not
        assert p_of_rows(pairs, dense(graph)) < IMPOSSIBLE


def test_weights_can_be_left_alone():
    graph = tangled_graph(True)
    pairs = transitions(sample(graph, apps.DeepWalk(10, weighted=False), np.arange(800) % 8, seed=3))
    assert p_of_rows(pairs, dense(graph)) > ENOUGH


def test_one_weight_that_outdoes_a_hub():
    """Hardly any trial is accepted here: most draws add the weights up."""
    heavy, leaves = 2**20, 2000
    weight = np.full(leaves, 2.0**10)
    weight[700] = heavy
    graph = Graph.from_edges(np.arange(1, leaves + 1), np.zeros(leaves, int), edge_weight=weight)
    drawn = sample(graph, apps.DeepWalk(1), np.zeros(4000, int), seed=1).steps[0].ravel() - 1
    groups = np.where(drawn == 700, -1, drawn // 100)
    share = {group: 2.0**10 * (100 - (group == 7)) for group in range(20)}
    assert p_value(groups.tolist(), {**share, -1: heavy}) > ENOUGH


@pytest.mark.parametrize("trials", [0, 1])
def test_the_rest_after_the_trials_goes_by_weight_too(trials, monkeypatch):
    monkeypatch.setattr(choices, "TRIALS", trials)
    graph = Graph.from_edges([1, 2, 3, 4, 5], [0] * 5, edge_weight=[1, 0, 9, 2, 1])
    drawn = sample(graph, apps.DeepWalk(1), np.zeros(4000, int), seed=1).steps[0].ravel().tolist()
    assert p_value(drawn, {1: 1, 3: 9, 4: 2, 5: 1}) > ENOUGH


def test_weights_of_nothing_end_a_walk():
    graph = Graph.from_edges([1, 2], [0, 1], 3, edge_weight=[1, 0])
    for app in (apps.DeepWalk(4), apps.Node2Vec(4)):
        assert sample(graph, app, [0]).samples.tolist() == [[0, 1, -1, -1, -1]]


def test_a_walk_of_chance_is_geometric():
    graph = tangled_graph(True)
    result = sample(graph, apps.PPR(0.25), np.arange(4000) % 8, seed=5)
    steps = np.minimum(result.lengths - 1, 12)
    share = {k: 0.25 * 0.75**k for k in range(12)}
    assert p_value(steps.tolist(), {**share, 12: 0.75**12}) > ENOUGH
    assert result.num_steps > 12 and (result.steps[-1] == NULL).all()


def test_where_walks_of_chance_end_is_pagerank():
    graph = tangled_graph(True)
    result = sample(graph, apps.PPR(0.25), np.zeros(4000, int), seed=6)
    ends = result.samples[np.arange(4000), result.lengths - 1]
    step = dense(graph, graph.edge_weight)[:8, :8]
    step /= step.sum(axis=1, keepdims=True)
    pagerank = 0.25 * np.linalg.inv(np.eye(8) - 0.75 * step)[0]
    assert p_value(ends.tolist(), dict(enumerate(pagerank))) > ENOUGH


def test_a_walk_of_chance_is_a_hundred_vertices_long_by_default():
    cycle = Graph.from_edges([1, 2, 0], [0, 1, 2])
    lengths = sample(cycle, apps.PPR(), num_samples=2000, seed=1).lengths
    assert abs(lengths.mean() - 100) < 4 * 100 / np.sqrt(2000)


def second_order(graph, p, q, weight, returns=None, near=None, away=None):
    """{(t, v): {u: share}} by Grover and Leskovec's definition, or with other factors."""
    returns, near, away = returns or 1 / p, near or 1.0, away or 1 / q
    matrix = dense(graph, weight)
    linked = dense(graph) > 0
    return {
        (t, v): {
            u: matrix[v, u] * (returns if u == t else near if linked[t, u] else away)
            for u in range(graph.num_nodes)
            if matrix[v, u] > 0
        }
        for t in range(graph.num_nodes)
        for v in range(graph.num_nodes)
        if linked[t, v]
    }


def p_of_second_order(result, expected):
    drawn = defaultdict(list)
    path = result.samples
    for i in range(path.shape[1] - 2):
        for t, v, u in path[:, i : i + 3].tolist():
            if u >= 0:
                drawn[t, v].append(u)
    often = {key: us for key, us in drawn.items() if len(us) > 400}
    assert len(often) > 10
    return p_of_all(chi_square(us, expected[key]) for key, us in often.items())


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(("p", "q"), [(2.0, 0.5), (0.25, 3.0), (1.0, 1.0)])
def test_node2vec_remembers_where_it_comes_from(p, q, weighted):
    graph = tangled_graph(weighted)
    result = sample(graph, apps.Node2Vec(40, p, q), np.arange(1600) % 8, seed=7)
    weight = graph.edge_weight
    assert p_of_second_order(result, second_order(graph, p, q, weight)) > ENOUGH
    if p != 1:
        forgetful = second_order(graph, p, q, weight, 1, 1, 1)
        as_nextdoor_writes = second_order(graph, p, q, weight, p, 1 / q, 1)
        assert p_of_second_order(result, forgetful) < IMPOSSIBLE
        assert p_of_second_order(result, as_nextdoor_writes) < IMPOSSIBLE


def test_the_first_step_remembers_nothing():
    graph = tangled_graph(True)
    drawn = sample(graph, apps.Node2Vec(1, 4.0, 4.0), np.zeros(2000, int), seed=2).steps[0].ravel()
    assert p_value(drawn.tolist(), row(dense(graph, graph.edge_weight), 0)) > ENOUGH


def fans(degrees):
    """Vertex i has ``degrees[i]`` in-neighbours of its own; which fan a leaf belongs to."""
    dst = np.repeat(np.arange(len(degrees)), degrees)
    src = len(degrees) + np.arange(dst.size)
    fan = np.concatenate([np.arange(len(degrees)), dst])
    return Graph.from_edges(src, dst, fan.size), fan


@pytest.mark.parametrize("select", ["degree", "uniform"])
def test_which_walker_moves(select):
    degrees = [1, 6, 0, 3]
    graph, fan = fans(degrees)
    result = sample(graph, apps.MultiRW(1, 4, select), np.tile(np.arange(4), (3000, 1)), seed=4)
    moved = result.steps[0].ravel()
    stuck = int((moved == NULL).sum())
    drawn = fan[moved[moved >= 0]].tolist() + [2] * stuck
    by_degree, alike = dict(enumerate(degrees)), dict.fromkeys(range(4), 1)
    assert p_value(drawn, by_degree if select == "degree" else alike) > ENOUGH
    if select == "degree":
        assert stuck == 0
        assert p_value(drawn, alike) < IMPOSSIBLE


def test_a_walker_that_moves_is_replaced():
    """Two chains: a walker on each can move down its own only, once per vertex."""
    graph = Graph.from_edges([1, 2, 3, 11, 12, 13], [0, 1, 2, 10, 11, 12], 14)
    for select in ("degree", "uniform"):
        result = sample(graph, apps.MultiRW(60, 2, select), np.tile([0, 10], (50, 1)))
        for steps in np.concatenate(result.steps, axis=1).tolist():
            assert [v for v in steps if 0 <= v < 10] == [1, 2, 3]
            assert [v for v in steps if v >= 10] == [11, 12, 13]


def test_walkers_without_edges_stay():
    graph = Graph.from_edges([0], [1], 4)
    result = sample(graph, apps.MultiRW(3, 2), [[0, 3]])
    assert [s.tolist() for s in result.steps] == [[[-1]]] * 3


def test_walkers_start_anywhere():
    graph = tangled_graph(False)
    result = sample(graph, apps.MultiRW(1), num_samples=60, seed=1)
    assert result.roots.shape == (60, 100)
    assert p_value(result.roots.ravel().tolist(), dict.fromkeys(range(9), 1)) > ENOUGH


def test_pinsage_walks_stand_side_by_side():
    graph = tangled_graph(False)
    result = sample(graph, apps.PinSAGEWalk(6, 3), np.arange(800) % 8, seed=1)
    assert [s.shape for s in result.steps] == [(800, 6)] * 3
    before = np.repeat(result.roots, 6, axis=1)
    pairs = []
    for step in result.steps:
        pairs += np.stack([before.ravel(), step.ravel()], axis=1).tolist()
        before = step
    pairs = np.array(pairs)
    assert p_of_rows(pairs[(pairs >= 0).all(axis=1)], dense(graph)) > ENOUGH


def test_pinsage_walks_restart():
    """On a chain a walk's distance from the root says how long ago it restarted."""
    chain = Graph.from_edges(np.arange(1, 9), np.arange(8), 9)
    result = sample(chain, apps.PinSAGEWalk(5, 4, 0.3), np.zeros(1000, int), seed=3)
    for step, layer in enumerate(result.steps, 1):
        share = {d: 0.3 * 0.7 ** (d - 1) for d in range(1, step)}
        assert p_value(layer.ravel().tolist(), {**share, step: 0.7 ** (step - 1)}) > ENOUGH
    always = sample(chain, apps.PinSAGEWalk(2, 4, 1.0), [0, 8])
    assert np.concatenate(always.steps, axis=1).tolist() == [[1] * 8, [-1] * 8]


def test_a_walk_that_has_ended_restarts_by_chance_only():
    path = Graph.from_edges([1, 2], [0, 1], 3)
    assert sample(path, apps.PinSAGEWalk(1, 4), [0]).samples.tolist() == [[0, 1, 2, -1, -1]]
    again = sample(path, apps.PinSAGEWalk(1, 12, 0.5), np.zeros(50, int), seed=1)
    assert (again.steps[-1] >= 0).any()


def test_parameters_for_which_rejection_does_not_end_are_named():
    pair = Graph.from_edges([0, 1], [1, 0], 2)
    with pytest.raises(
        SamplingAppError, match="1,048,576 rounds; of p and q, 1/p, 1 and 1/q lie too far apart"
    ):
        sample(pair, apps.Node2Vec(100, 1000, 0.001), [0])


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: apps.DeepWalk(0), "length must be between 1"),
        (lambda: apps.PPR(0), "termination must be between"),
        (lambda: apps.PPR("1"), "termination must be a number"),
        (lambda: apps.Node2Vec(p=0), "p must be between"),
        (lambda: apps.Node2Vec(q=float("nan")), "q must be between"),
        (lambda: apps.MultiRW(select="both"), "select must be"),
        (lambda: apps.MultiRW(num_roots=0), "num_roots must be between"),
        (lambda: apps.PinSAGEWalk(restart=1.5), "restart must be between"),
    ],
)
def test_arguments_are_checked(build, words):
    with pytest.raises((TypeError, ValueError), match=words):
        build()


@pytest.mark.parametrize("app", [apps.Node2Vec(3), apps.PinSAGEWalk(2, 2)], ids=lambda app: app.name)
def test_what_remembers_one_walk_takes_one_root_a_sample(app):
    """Of several roots all but the first would walk by the first one's memory, or not at all."""
    graph = Graph.from_edges([0, 1, 2], [1, 2, 0], 3)
    for roots in ([[0, 1]], [[0, -1], [1, 2]]):
        with pytest.raises(ValueError, match=f"roots of {app.name} must be one a sample.*got .*2"):
            sample(graph, app, roots)
    for roots in ([0, 1], [[0], [1]]):
        assert sample(graph, app, roots).roots.shape == (2, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: apps.DeepWalk(n), lambda n: apps.Node2Vec(length=n), lambda n: apps.MultiRW(length=n),
        lambda n: apps.PinSAGEWalk(walk_length=n), lambda n: apps.FastGCN(layers=n),
    ],
)  # fmt: skip
def test_more_steps_than_a_run_may_have_are_refused_at_once(make):
    make(MAX_STEPS)
    with pytest.raises(ValueError, match=f"(length|layers) must be between 1 and {MAX_STEPS}"):
        make(MAX_STEPS + 1)
