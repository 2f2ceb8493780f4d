"""Mini-batches from samples of applications: what they hold, by another way of putting it together."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.minibatch.feeds import induced_batches, minibatches, voted_batch
from tests.sampling.engine import toy_apps


class Hops(toy_apps.Hops):
    fanouts = (4, 3)


class Layers(Hops):
    fanouts = (6, 5)

    def sampling_type(self):
        return lab.SamplingType.COLLECTIVE

    def next(self, s, transits, src_edges, step, rng):
        return rng.below(s.num_nodes())


@pytest.fixture(scope="module")
def graph():
    draw = np.random.default_rng(7)
    dst = np.minimum(draw.integers(0, 90, 700), draw.integers(0, 90, 700))
    return lab.Graph.from_edges(
        draw.integers(0, 90, 700), dst, 100
    )  # with parallel edges and isolated vertices


def drawn_edges(result, rows):
    """Per step, the (transit, vertex) pairs of some samples in slot order."""
    found = []
    for step, shape in enumerate(result.shape):
        transits, vertices, pairs = result.transits(step)[rows], result.steps[step][rows], []
        for before, after in zip(transits.tolist(), vertices.tolist(), strict=True):
            if result.app.is_collective:
                pairs += [
                    (t, v) for t in before for v in after if t >= 0 and v in in_neighbours(result.graph, t)
                ]
            else:
                pairs += [(before[slot // shape.size], v) for slot, v in enumerate(after) if v >= 0]
        found.append(pairs)
    return found


def in_neighbours(graph, v):
    return graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()


def check(result, batches, per_batch):
    graph = result.graph
    assert len(batches) == -(-result.num_samples // per_batch)
    for number, batch in enumerate(batches):
        rows = slice(number * per_batch, (number + 1) * per_batch)
        roots = result.roots[rows].reshape(-1)
        roots = roots[roots >= 0]
        assert batch.batch_id == number and batch.graph is graph
        assert (batch.seeds[batch.seed_inverse] == roots).all()
        known = list(dict.fromkeys(roots.tolist()))
        assert batch.seeds.tolist() == known
        edges = []
        for hop, pairs in enumerate(drawn_edges(result, rows)):
            edges = list(dict.fromkeys(edges + pairs))
            picks, frontier = batch.picks[hop], batch.picks[hop].frontier.tolist()
            assert frontier == known and batch.level_sizes[hop] == len(known)
            by_row = [[v for t, v in edges if t == row] for row in frontier]
            assert picks.counts.tolist() == [len(row) for row in by_row]
            assert picks.neighbors.tolist() == [v for row in by_row for v in row]
            assert picks.offsets.tolist() == [0, *np.cumsum(picks.counts).tolist()]
            where = [
                int(graph.indptr[t]) + in_neighbours(graph, t).index(v)
                for t, row in zip(frontier, by_row)
                for v in row
            ]
            assert picks.positions.tolist() == where
            assert batch.node_ids[batch.local_neighbors[hop]].tolist() == picks.neighbors.tolist()
            new = result.steps[hop][rows].reshape(-1).tolist()
            known = list(dict.fromkeys([*known, *(v for v in new if v >= 0)]))
        assert batch.node_ids.tolist() == known and batch.level_sizes[-1] == len(known)
        assert batch.spec.num_hops == result.num_steps
        assert len(batch.blocks) == result.num_steps


@pytest.mark.parametrize("per_batch", [1, 8, 30, 1000])
def test_hops(graph, per_batch):
    roots = np.random.default_rng(1).integers(0, 90, 30)
    result = lab.run_app(graph, Hops(), roots, device="cpu", seed=3)
    check(result, minibatches(result, per_batch), per_batch)


def test_samples_of_several_roots_are_mini_batches(graph):
    roots = np.random.default_rng(1).integers(-1, 90, (6, 5))
    roots[:, 0] = 8
    for app in (Hops(), Layers()):
        result = lab.run_app(graph, app, roots, device="cpu", seed=3)
        check(result, minibatches(result), 1)
        check(result, minibatches(result, 4), 4)
    assert len(minibatches(lab.run_app(graph, Hops(), [1, 2, 3], device="cpu"))) == 1


def test_an_edge_that_the_graph_does_not_have(graph):
    class Anywhere(Hops):
        def next(self, s, transits, src_edges, step, rng):
            return rng.below(s.num_nodes())

    (batch,) = minibatches(lab.run_app(graph, Anywhere(), np.arange(20), device="cpu"))
    positions = batch.picks[0].positions
    assert (positions == -1).any()
    rows = np.repeat(batch.picks[0].frontier, batch.picks[0].counts)
    for row, v, at in zip(rows.tolist(), batch.picks[0].neighbors.tolist(), positions.tolist(), strict=True):
        assert (at >= 0) == (v in in_neighbours(graph, row)) and (at < 0 or graph.indices[at] == v)


def test_models_run_on_them(graph):
    (batch,) = minibatches(lab.run_app(graph, Hops(), np.arange(20), device="cpu"))
    x = np.random.default_rng(0).random((batch.num_nodes, 3))
    for block in batch.blocks:
        x = lab.aggregate(block, x)
        assert x.shape == (block.num_dst, 3)
    assert x.shape[0] == 20 and (x.sum(axis=1) > 0).sum() >= 15
    assert (
        batch.canonical()
        == minibatches(lab.run_app(graph, Hops(), np.arange(20), device="cpu"))[0].canonical()
    )


def test_whole_sub_graphs(graph):
    result = lab.run_app(graph, Layers(), np.random.default_rng(1).integers(0, 90, (6, 5)), device="cpu")
    for number, batch in enumerate(induced_batches(result, 3)):
        own = sorted(set(result.samples[number].tolist()))
        assert batch.node_ids.tolist() == batch.seeds.tolist() == own and len(batch.blocks) == 3
        for block in batch.blocks:
            edges = [(v, u) for v in own for u in in_neighbours(graph, v) if u in own]
            rows = block.dst[np.repeat(np.arange(block.num_dst), np.diff(block.indptr))]
            assert list(zip(rows.tolist(), block.src[block.indices].tolist(), strict=True)) == edges
            assert (graph.indices[block.edge_positions] == block.src[block.indices]).all()
            assert lab.aggregate(block, np.ones((len(own), 1))).shape == (len(own), 1)


def test_neighbours_by_votes(graph):
    class Walk(Hops):
        fanouts = (1,) * 6

    starts = np.array([5, 3, 5, 70, 3, 5] * 10)
    result = lab.run_app(graph, Walk(), starts, device="cpu")
    batch = voted_batch(result, 4)
    assert batch.seeds.tolist() == [5, 3, 70] and (batch.seeds[batch.seed_inverse] == starts).all()
    (block,) = batch.blocks
    assert (block.src[: block.num_dst] == batch.seeds).all() and (block.edge_positions == -1).all()
    for i, root in enumerate(batch.seeds.tolist()):
        seen = np.concatenate([s[starts == root, 0] for s in result.steps])
        seen = seen[(seen >= 0) & (seen != root)].tolist()
        expected = sorted(set(seen), key=lambda v: (-seen.count(v), v))[:4]
        edges = slice(block.indptr[i], block.indptr[i + 1])
        assert block.src[block.indices[edges]].tolist() == expected
        assert block.weight[edges].tolist() == [seen.count(v) for v in expected]
    assert batch.canonical() == voted_batch(result, 4).canonical()
    with pytest.raises(ValueError, match="no sample with a root"):
        voted_batch(lab.run_app(graph, Walk(), [-1, -1], device="cpu"), 4)


def test_bad_input(graph):
    result = lab.run_app(graph, Hops(), np.arange(4), device="cpu")
    with pytest.raises(ValueError, match="per_batch"):
        minibatches(result, 0)
    with pytest.raises(ValueError, match="1 to 15 steps"):
        minibatches(dataclasses.replace(result, steps=result.steps * 8, shape=result.shape * 8))
    with pytest.raises(ValueError, match="no samples"):
        minibatches(dataclasses.replace(result, roots=result.roots[:0], steps=[s[:0] for s in result.steps]))
    with pytest.raises(ValueError, match="mini-batch 1 has no root"):
        minibatches(lab.run_app(graph, Hops(), [1, -1, 2], device="cpu"), 1)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "app", [Hops(), Layers(), lab.apps.Layer(12, 5)], ids=["individual", "collective", "transits of its own"]
)
def test_the_gpu_makes_the_same(graph, app):
    roots = np.random.default_rng(1).integers(0, 90, (40, 3))
    a, b = (lab.run_app(graph, app, roots, device=device) for device in ("cpu", "cuda"))
    host = [*minibatches(a, 7), *induced_batches(a)]
    there = [*minibatches(b, 7), *induced_batches(b)]
    one, other = (lab.run_app(graph, app, roots[:, :1], device=device) for device in ("cpu", "cuda"))
    host.append(voted_batch(one, 5))
    there.append(voted_batch(other, 5))
    for a, b in zip(host, there, strict=True):
        assert a.canonical() == b.canonical()
        assert (a.node_ids == b.node_ids.get()).all() and (a.seed_inverse == b.seed_inverse.get()).all()
