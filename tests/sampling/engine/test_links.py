"""Edges between layers and inside samples against a look at every pair."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.sampling.engine.results import links, votes
from gnnsample_lab.sampling.engine.results.result import AppResult
from gnnsample_lab.sampling.engine.shape import StepShape


class Given(lab.SamplingApp):
    """For results made by hand."""

    def layer_probability(self, result, step):
        return np.full(result.steps[step].shape, 0.125) + np.arange(result.steps[step].shape[1]) / 100


def made_up(draw, graph, samples=5, roots=3, widths=(4, 30)):
    """A result of random vertices, NULL and repeated ones among them."""
    layers, shape, before = [], [], roots
    for width in (roots, *widths):
        layers.append(draw.integers(-1, graph.num_nodes, (samples, width)).astype(graph.indices.dtype))
    for width in widths:
        shape.append(StepShape(before, width, width, False))
        before = width
    return AppResult(graph, Given(), layers[0], layers[1:], shape, "transit", "cpu")


def skewed_graph(draw, num_nodes=30, num_edges=400, weighted=False):
    dst = (draw.integers(0, num_nodes, num_edges) * draw.random(num_edges) ** 3).astype(int)
    weight = draw.random(num_edges).astype(np.float32) + 0.5 if weighted else None
    return lab.Graph.from_edges(draw.integers(0, num_nodes, num_edges), dst, num_nodes, edge_weight=weight)


def in_neighbours(graph, v):
    return graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()


def expected_links(result, step):
    graph, found = result.graph, []
    for sample, (transits, vertices) in enumerate(
        zip(result.transits(step), result.steps[step], strict=True)
    ):
        for row, transit in enumerate(transits):
            for column, v in enumerate(vertices):
                if transit >= 0 and v >= 0 and v in (neighbours := in_neighbours(graph, transit)):
                    found.append((sample, row, column, int(graph.indptr[transit]) + neighbours.index(v)))
    return found


def rows_of(adjacency):
    return list(
        zip(*(getattr(adjacency, n).tolist() for n in ("sample", "row", "column", "position")), strict=True)
    )


@pytest.mark.parametrize("seed", range(4))
def test_layers(seed):
    draw = np.random.default_rng(seed)
    result = made_up(draw, skewed_graph(draw))
    for step in (0, 1):
        found = links.adjacency(result, step)
        assert rows_of(found) == expected_links(result, step)
        assert found.num_edges and found.weight is None
        dense = found.matrix(2)
        assert dense.shape == found.shape[1:] and dense.sum() == (found.sample == 2).sum()


def test_long_lists_and_short_ones_give_the_same(monkeypatch):
    draw = np.random.default_rng(9)
    graph = lab.Graph.from_edges(draw.integers(0, 500, 9000), draw.integers(0, 2, 9000), 500)
    few, many = made_up(draw, graph, widths=(2, 3)), made_up(draw, graph, widths=(2, 400))
    for result in (few, many):  # vertices are looked up in the list; the list in the vertices
        result.roots[:, 0] = 0
        assert rows_of(links.adjacency(result, 0)) == expected_links(result, 0)
        one = dataclasses.replace(result, steps=[result.steps[1]], shape=[StepShape(3, 3, 3, False)])
        assert rows_of(links.adjacency(one, 0)) == expected_links(one, 0)


def summed(result, found):
    """Weight of every entry, all its parallel edges together."""
    graph, transits = result.graph, result.transits(1)
    weight = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight.astype(np.float64)
    sums = []
    for sample, row, position in zip(found.sample, found.row, found.position, strict=True):
        v = transits[sample, row]
        own = slice(graph.indptr[v], graph.indptr[v + 1])
        sums.append(weight[own][graph.indices[own] == graph.indices[position]].sum())
    return np.array(sums)


@pytest.mark.parametrize("weighted", [True, False])
def test_weights_of_edges(weighted):
    draw = np.random.default_rng(2)
    result = made_up(draw, skewed_graph(draw, weighted=weighted))
    for normalise in ("row", "importance", "importance-row"):
        found = links.adjacency(result, 1, normalise)
        expected = summed(result, found)
        if normalise.startswith("importance"):
            expected /= 30 * (0.125 + found.column / 100)
        if normalise.endswith("row"):
            for sample, row in {(int(s), int(r)) for s, r in zip(found.sample, found.row, strict=True)}:
                own = (found.sample == sample) & (found.row == row)
                expected[own] /= expected[own].sum()
        assert np.allclose(found.weight, expected)
        assert found.matrix(0).sum() == pytest.approx(found.weight[found.sample == 0].sum())


def test_a_row_of_weights_that_are_all_zero_stays_zero():
    """Divided by its sum it was no number, and so was all that a layer made of it."""
    graph = lab.Graph.from_edges([1, 2, 2, 0], [0, 0, 1, 2], 3, edge_weight=[0, 0, 2, 3])
    result = lab.run_app(graph, lab.apps.KHop((8,)), [[0, 1, 2]], device="cpu")
    dense = result.adjacency(0, "row").matrix(0)
    assert np.isfinite(dense).all() and not dense[0].any()
    assert dense[1].sum() == pytest.approx(1) and dense[2].sum() == pytest.approx(1)


def test_parallel_edges_of_importance_add_up():
    """Four parallel edges at the end of a list, beside the next list's of the same source."""
    graph = lab.Graph.from_edges(
        [2, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 2], 3, edge_weight=[8, 1, 2, 4, 0.5, 100]
    )
    result = lab.run_app(graph, lab.apps.FastGCN(1, 2, 60), [[0, 2]], device="cpu", seed=1)
    found = result.adjacency(0, "row")
    ones = int((result.steps[0] == 1).sum())
    others = 60 - ones
    assert ones and others
    dense = found.matrix(0)
    np.testing.assert_allclose(dense[0][result.steps[0][0] == 1], 7.5 / (7.5 * ones + 8 * others))
    np.testing.assert_allclose(dense[1][result.steps[0][0] == 1], 1 / ones)


def test_importance_estimates_the_whole_neighbourhood():
    """FastGCN's weights: summed over a layer and averaged over samples, a row's edges weigh its in-degree."""
    draw = np.random.default_rng(4)
    graph = skewed_graph(draw)

    class Uniform(Given):
        def layer_probability(self, result, step):
            return np.full(result.steps[step].shape, 1 / 30)

    roots = np.tile(np.arange(30), (400, 1)).astype(graph.indices.dtype)
    layer = draw.integers(0, 30, (400, 50)).astype(graph.indices.dtype)
    result = AppResult(graph, Uniform(), roots, [layer], [StepShape(30, 50, 50, False)], "transit", "cpu")
    found = links.adjacency(result, 0, "importance")
    mean = np.bincount(found.row, found.weight, minlength=30) / 400
    degrees = np.diff(graph.indptr)
    entries = np.bincount(np.repeat(np.arange(30), degrees) * 30 + graph.indices, minlength=900).reshape(
        30, 30
    )
    # Each of 400 * 50 draws adds 30 / 50 for each edge of its vertex, which is one of 30.
    spread = 0.6 * np.sqrt(50 * (entries**2).sum(axis=1) / 30 / 400)
    assert (np.abs(mean - degrees) <= 5 * spread).all()


@pytest.mark.parametrize("seed", range(4))
def test_induced_graphs(seed):
    draw = np.random.default_rng(seed)
    graph = skewed_graph(draw)
    result = made_up(draw, graph)
    found = links.induced(result)
    assert found.begins.tolist()[0] == 0 and found.begins[-1] == found.vertices.size
    total = 0
    for sample in range(result.num_samples):
        own = sorted({int(v) for v in result.samples[sample] if v >= 0})
        vertices, indptr, indices = found.sample(sample)
        assert vertices.tolist() == own
        for i, v in enumerate(own):
            neighbours = [u for u in in_neighbours(graph, v) if u in own]
            assert vertices[indices[indptr[i] : indptr[i + 1]]].tolist() == neighbours
            total += len(neighbours)
    assert found.num_edges == total > 0
    rows = np.repeat(np.arange(found.vertices.size), np.diff(found.indptr))
    destinations = np.searchsorted(graph.indptr, found.positions, side="right") - 1
    assert (found.vertices[rows] == destinations).all() and len(
        set(zip(rows.tolist(), found.positions.tolist()))
    ) == total


def test_nothing_to_link(drawn_graphs):
    draw = np.random.default_rng(0)
    star = drawn_graphs["star"]
    leaves = made_up(draw, star)
    for layer in (leaves.roots, *leaves.steps):
        layer[layer == 0] = 1
    assert links.adjacency(leaves, 1, "row").num_edges == links.induced(leaves).num_edges == 0
    empty = made_up(draw, star, samples=0)
    assert links.adjacency(empty, 0).num_edges == links.induced(empty).vertices.size == 0


def test_parallel_edges(drawn_graphs):
    clumsy = drawn_graphs["clumsy"]  # 0 -> 0 and three times 1 -> 0
    result = made_up(np.random.default_rng(0), clumsy, samples=1, roots=1, widths=(3,))
    result.roots[:], result.steps[0][:] = 0, [[1, 0, 1]]
    assert rows_of(links.adjacency(result, 0)) == [(0, 0, 0, 1), (0, 0, 1, 0), (0, 0, 2, 1)]
    assert links.induced(result).positions.tolist() == [0, 1, 2, 3]
    ids = clumsy.indices.dtype
    where = links.locate(clumsy, np.array([0, 0, 1, 4], ids), np.array([1, 0, 2, 4], ids))
    assert where.tolist() == [1, 0, 4, -1]


def test_bad_input():
    draw = np.random.default_rng(1)
    result = made_up(draw, skewed_graph(draw))
    with pytest.raises(ValueError, match="step"):
        links.adjacency(result, 2)
    with pytest.raises(ValueError, match="normalise must be one of"):
        links.adjacency(result, 0, "column")
    other = dataclasses.replace(result, app=lab.SamplingApp())
    with pytest.raises(ValueError, match="layer_probability"):
        links.adjacency(other, 0, "importance")

    class Own(lab.SamplingApp):
        def step_transits(self, step, s, transit_idx, rng):
            return s.roots[0]

    with pytest.raises(ValueError, match="transits"):
        links.adjacency(dataclasses.replace(result, app=Own()), 0)


def expected_votes(result, k):
    tally = {}
    for sample, (root,) in enumerate(result.roots.tolist()):
        if root >= 0:
            own = tally.setdefault(root, {})
            for step in result.steps:
                for v in step[sample].tolist():
                    if v not in (-1, root):
                        own[v] = own.get(v, 0) + 1
    return {
        root: sorted(own.items(), key=lambda item: (-item[1], item[0]))[:k] for root, own in tally.items()
    }


@pytest.mark.parametrize("k", [1, 3, 100])
def test_votes(k):
    draw = np.random.default_rng(k)
    result = made_up(draw, skewed_graph(draw), samples=60, roots=1)
    found, expected = votes.top(result, k), expected_votes(result, k)
    assert found.roots.tolist() == list(expected)
    assert found.offsets[-1] == found.neighbors.size
    for i, (begin, end) in enumerate(zip(found.offsets[:-1], found.offsets[1:], strict=True)):
        pairs = list(zip(found.neighbors[begin:end].tolist(), found.visits[begin:end].tolist(), strict=True))
        assert pairs == expected[int(found.roots[i])]


def test_visits():
    draw = np.random.default_rng(3)
    result = made_up(draw, skewed_graph(draw))
    flat = result.samples[result.samples >= 0]
    assert votes.visits(result).tolist() == np.bincount(flat, minlength=30).tolist()
    apart = votes.visits(result) - votes.visits(result, roots=False)
    assert apart.sum() == (result.roots >= 0).sum() > 0
    with pytest.raises(ValueError, match="one root each"):
        votes.top(result, 2)


def moved(result, wide):
    """The same result on the GPU."""
    import cupy

    graph = result.graph
    if wide:
        graph = lab.Graph(graph.indptr, graph.indices, graph.edge_weight)
        object.__setattr__(graph, "indices", graph.indices.astype(np.int64))
    graph = graph.to("cuda")
    ids = graph.indices.dtype
    steps = [cupy.asarray(s.astype(ids)) for s in result.steps]
    return dataclasses.replace(
        result, graph=graph, roots=cupy.asarray(result.roots.astype(ids)), steps=steps, device="cuda"
    )


@pytest.mark.gpu
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_gpu_finds_the_same(seed, wide):
    draw = np.random.default_rng(seed)
    graph = skewed_graph(draw, num_nodes=300, num_edges=20_000, weighted=seed == 1)
    host = made_up(draw, graph, samples=40, roots=1, widths=(7, (30, 700, 9000)[seed]))
    there = moved(host, wide)
    for step in (0, 1):
        a, b = links.adjacency(host, step, "row"), links.adjacency(there, step, "row")
        for name in ("sample", "row", "column", "position"):
            assert (getattr(a, name) == getattr(b, name).get()).all()
        assert np.allclose(a.weight, b.weight.get())
    a, b = links.induced(host), links.induced(there)
    for name in ("vertices", "begins", "indptr", "indices", "positions"):
        assert (getattr(a, name) == getattr(b, name).get()).all()
    assert (votes.visits(host) == votes.visits(there).get()).all()
    a, b = votes.top(host, 5), votes.top(there, 5)
    for name in ("roots", "counts", "neighbors", "visits"):
        assert (getattr(a, name) == getattr(b, name).get()).all()
