"""KHop and Layer, and what holds of every application."""

from __future__ import annotations

import ast
import inspect
import textwrap

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab import Graph
from gnnsample_lab.sampling import apps
from gnnsample_lab.sampling.apps import choices
from gnnsample_lab.sampling.engine.language.app import INF, NULL, SamplingApp
from tests.sampling.apps.small import ANYWHERE, SMALL
from tests.sampling.apps.statistics import ENOUGH, dense, p_value, sample, tangled_graph
from tests.sampling.engine import app_oracle


def test_no_application_is_left_out():
    assert {name.split()[0] for name in SMALL} == set(apps.__all__)


def clumsy(weighted):
    """A self-loop, parallel edges, dead ends, isolated vertices, a row of weights that are all 0."""
    return Graph.from_edges(
        [0, 1, 1, 1, 2, 4, 4, 2, 0], [0, 0, 0, 0, 1, 2, 2, 4, 5], 8,
        edge_weight=[2, 1, 0, 3, 1, 2.5, 1, 1, 0] if weighted else None,
    )  # fmt: skip


class Searched(np.ndarray):
    """A table as plain Python sees it."""

    def search(self, x):
        return int(np.searchsorted(np.asarray(self), x, side="right")) - 1


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", SMALL)
def test_samples_are_those_of_plain_python(name, weighted):
    for graph in (clumsy(weighted), tangled_graph(weighted)):
        app, plain = SMALL[name](), SMALL[name]()
        plain.prepare(graph)
        if name == "FastGCN":
            plain.prefix = plain.prefix.view(Searched)
        roots = app.initial_samples(graph, 25, 3)
        result = sample(graph, app, roots, seed=2**35 + 1, first_sample=2**32)
        steps = result.num_steps if app.steps() == INF else None
        expected = app_oracle.run(graph, plain, roots, 2**35 + 1, first_sample=2**32, steps=steps)
        assert [s.tolist() for s in result.steps] == expected
        assert result.num_vertices > 0


@pytest.mark.parametrize("name", SMALL)
def test_every_vertex_is_a_neighbour_of_a_transit(name):
    for graph in (clumsy(True), tangled_graph(False)):
        app = SMALL[name]()
        result = sample(graph, app, num_samples=40, seed=1)
        linked = dense(graph) > 0
        assert all(np.isin(s, np.arange(-1, graph.num_nodes)).all() for s in result.steps)
        if name.split()[0] in ANYWHERE:
            continue
        before = result.roots
        for shape, layer in zip(result.shape, result.steps, strict=True):
            for row in range(40):
                if type(app).step_transits is SamplingApp.step_transits and not app.is_collective:
                    of = np.repeat(before[row], shape.size)
                    drawn = layer[row] != NULL
                    assert (of[drawn] >= 0).all() and linked[of[drawn], layer[row][drawn]].all()
                else:  # any of the sample's vertices so far may be the transit
                    seen = np.concatenate([result.roots[row], before[row]])
                    if name.startswith("MultiRW"):
                        seen = result.samples[row]
                    assert linked[seen[seen >= 0]][:, layer[row][layer[row] >= 0]].any(axis=0).all()
            before = layer


@pytest.mark.parametrize("name", SMALL)
def test_an_application_is_short(name):
    """At most thirty lines of code, docstrings, comments and empty lines not counted."""
    kind = type(SMALL[name]())
    text = textwrap.dedent(inspect.getsource(kind))
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node)
        for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)
    }
    code = [
        line
        for number, line in enumerate(text.splitlines(), 1)
        if number not in docstrings and line.strip() and not line.strip().startswith("#")
    ]
    assert len(code) <= 30, len(code)
    assert inspect.getdoc(kind).count("Args:") == 1


def test_khop_is_uniform_with_replacement():
    graph = tangled_graph(True)  # weights do not count
    result = sample(graph, apps.KHop(), np.full(30, 2), seed=1)
    assert [s.shape for s in result.steps] == [(30, 25), (30, 250)]
    matrix = dense(graph)
    assert p_value(result.steps[0].ravel().tolist(), dict(enumerate(matrix[2]))) > ENOUGH
    of, drawn = np.repeat(result.steps[0].ravel(), 10), result.steps[1].ravel()
    for v in np.unique(of):
        assert p_value(drawn[of == v].tolist(), dict(enumerate(matrix[v]))) > ENOUGH


def test_khop_adds_nothing_where_nothing_is(drawn_graphs):
    result = sample(drawn_graphs["clumsy"], apps.KHop((2, 2)), [3, 2, 1])
    assert [s.tolist() for s in result.steps] == [
        [[-1, -1], [-1, -1], [2, 2]],
        [[-1] * 4, [-1] * 4, [-1] * 4],
    ]
    with pytest.raises(ValueError, match="at least one hop"):
        apps.KHop(())
    with pytest.raises(TypeError, match=r"fanouts\[1\]"):
        apps.KHop((3, 2.5))


def test_a_sample_of_layers_is_as_large_as_asked_for():
    graph = tangled_graph(False)
    full = sample(graph, apps.Layer(50, 20), np.arange(8), seed=1)
    assert [s.shape for s in full.steps] == [(8, 20)] * 3
    assert full.lengths.tolist() == [50] * 8
    assert (full.steps[2][:, :9] >= 0).all() and (full.steps[2][:, 9:] == NULL).all()
    dead = sample(graph, apps.Layer(50, 20), [8])
    assert dead.lengths.tolist() == [1]
    narrow = sample(graph, apps.Layer(50, 2**31 - 1), np.arange(8), seed=1)
    assert narrow.steps[0].shape == (8, 50), "no room for what a full sample never draws"
    at_once = sample(graph, apps.Layer(2, 20), [[0, 1]])
    assert at_once.num_steps == 0 and at_once.lengths.tolist() == [2]


class Following(apps.Layer):
    """Adds its transits, and vertex 0 where there is none."""

    def next(self, s, transits, src_edges, step, rng):
        if s.size() + s.slot() >= self.final_size:
            return NULL
        return transits[s.slot()] if s.slot() < len(transits) and transits[s.slot()] != NULL else 0


def test_transits_of_layers_are_kept():
    """What `step_transits` chose: the vertices before, none where a sample is full, whose roots may be fewer."""
    graph, roots = tangled_graph(False), [[1, 2, 3], [4, NULL, NULL]]
    result = sample(graph, Following(5, 3), roots)
    assert result.transits(0).tolist() == roots
    assert result.steps[0].tolist() == [[1, 2, NULL], [4, 0, 0]]
    assert result.transits(1).tolist() == [[NULL] * 3, [4, 0, 0]]
    assert result.steps[1].tolist() == [[NULL] * 3, [4, NULL, NULL]]
    assert result.transits(1).dtype == result.steps[0].dtype


def test_mini_batches_of_layers():
    graph = tangled_graph(False)
    result = sample(graph, apps.Layer(12, 5), [[0, 1], [2, 3]], seed=1)
    for number, batch in enumerate(lab.minibatches(result)):
        assert batch.seeds.tolist() == result.roots[number].tolist()
        assert len(batch.blocks) == result.num_steps
    edges, linked = result.adjacency(0), dense(graph) > 0
    want = np.stack([linked[np.ix_(*pair)] for pair in zip(result.transits(0), result.steps[0], strict=True)])
    assert np.argwhere(want).tolist() == np.stack([edges.sample, edges.row, edges.column], axis=1).tolist()


def test_layers_have_nextdoors_sizes_by_default():
    app = apps.Layer()
    result = sample(tangled_graph(False), app, [0])
    assert result.lengths.tolist() == [2000] and [s.shape for s in result.steps] == [(1, 1000)] * 2


@pytest.mark.parametrize("weighted", [True, False])
def test_layers_are_drawn_from_the_combined_neighbourhood(weighted):
    graph = tangled_graph(True)
    result = sample(graph, apps.Layer(40, 30, weighted), np.tile([1, 2, 6], (60, 1)), seed=3)
    drawn = result.steps[0].ravel().tolist()
    by_weight, by_edge = (dense(graph, w)[[1, 2, 6]].sum(axis=0) for w in (graph.edge_weight, None))
    right, wrong = (by_weight, by_edge) if weighted else (by_edge, by_weight)
    assert p_value(drawn, dict(enumerate(right))) > ENOUGH
    keep = [u for u in drawn if wrong[u] > 0]
    assert p_value(keep, dict(enumerate(wrong))) < ENOUGH


def test_prefix_sums_keep_proportions():
    share = np.array([0.0, 1e-12, 3.0, 0.0, 1.0])
    prefix = choices.prefix_sums(share)
    assert prefix.dtype == np.int64 and prefix[0] == 0 and 2**61 < prefix[-1] < 2**62
    np.testing.assert_allclose(np.diff(prefix) / prefix[-1], share / share.sum(), rtol=1e-6)
    assert (np.diff(prefix)[[0, 3]] == 0).all()


def test_distinct_roots_are_uniform_sets():
    roots = choices.distinct_roots(6000, 2, 5, 1)
    sets = {frozenset((a, b)): 1 for a in range(5) for b in range(a)}
    assert p_value(map(frozenset, roots.tolist()), sets) > ENOUGH
    assert sorted(choices.distinct_roots(1, 7, 7, 3)[0].tolist()) == list(range(7))
    assert (choices.distinct_roots(3, 2, 50, 1) != choices.distinct_roots(3, 2, 50, 2)).any()
