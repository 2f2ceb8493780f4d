"""Whole samples: against a sampler in plain Python, and what holds of every one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnsample_lab import Graph, MiniBatch, NeighborSampler
from tests.minibatch import reference

RULES = {
    "floyd": {"pick": "floyd"},
    "reservoir": {"pick": "reservoir"},
    "fisher-yates": {"pick": "fisher-yates", "strategy": "block-bsp"},
    "replace": {"replace": True},
    "weighted": {"weighted": True},
    "weighted-replace": {"weighted": True, "replace": True},
}


def draw(g, seeds, fanouts, batch_id=0, **options) -> MiniBatch:
    return NeighborSampler(g, fanouts, device="cpu", **options).sample(seeds, batch_id)


def assert_is_reference(g, seeds, fanouts, batch_id=0, **options) -> MiniBatch:
    """Every array of the mini-batch, order included, from the reference's lists."""
    batch = draw(g, seeds, fanouts, batch_id, **options)
    rule = {name: value for name, value in options.items() if name != "strategy"}
    expected = reference.sample(g, seeds, fanouts, batch_id, **rule)
    assert batch.node_ids.tolist() == expected.nodes
    assert batch.level_sizes == tuple(expected.levels)
    assert batch.seed_inverse.tolist() == expected.inverse
    sources = g.indices.tolist()
    local = {v: i for i, v in enumerate(expected.nodes)}
    for picks, ids, hop in zip(batch.picks, batch.local_neighbors, expected.hops, strict=True):
        flat = [at for row in hop.positions for at in row]
        assert picks.frontier.tolist() == hop.frontier
        assert picks.counts.tolist() == [len(row) for row in hop.positions]
        assert picks.positions.tolist() == flat
        assert picks.neighbors.tolist() == [sources[at] for at in flat]
        assert ids.tolist() == [local[sources[at]] for at in flat]
    return batch


def assert_invariants(batch: MiniBatch, g: Graph) -> None:
    spec, degrees = batch.spec, g.in_degrees()
    assert len(batch.picks) == len(batch.blocks) == spec.num_hops == len(batch.level_sizes) - 1
    assert np.array_equal(batch.node_ids[: batch.level_sizes[0]], batch.seeds)
    assert len(np.unique(batch.node_ids)) == batch.num_nodes == batch.level_sizes[-1]
    for hop, (picks, fanout) in enumerate(zip(batch.picks, spec.fanouts, strict=True)):
        owner = np.repeat(picks.frontier, picks.counts)
        assert (g.indptr[owner] <= picks.positions).all() and (picks.positions < g.indptr[owner + 1]).all()
        assert np.array_equal(g.indices[picks.positions], picks.neighbors)
        degree = degrees[picks.frontier]
        if spec.weighted:
            assert (g.edge_weight[picks.positions] > 0).all()
            degree = np.array(
                [(g.edge_weight[g.indptr[v] : g.indptr[v + 1]] > 0).sum() for v in picks.frontier]
            )
        if fanout < 0:
            expected = degree
        elif spec.replace:
            expected = np.where(degree > 0, fanout, 0)
        else:
            expected = np.minimum(degree, fanout)
        assert np.array_equal(picks.counts, expected)
        if not spec.replace:
            assert len(np.unique(picks.positions)) == len(picks.positions)
        begin = batch.level_sizes[hop - 1] if spec.expand == "new" and hop else 0
        assert np.array_equal(picks.frontier, batch.node_ids[begin : batch.level_sizes[hop]])
        reached = {*batch.node_ids[: batch.level_sizes[hop]].tolist(), *picks.neighbors.tolist()}
        assert reached == set(batch.node_ids[: batch.level_sizes[hop + 1]].tolist())
    for depth, block in enumerate(reversed(batch.blocks)):
        hops = range(depth + 1) if spec.expand == "new" else [depth]
        assert np.array_equal(block.src, batch.node_ids[: batch.level_sizes[depth + 1]])
        assert np.array_equal(block.dst, block.src[: block.num_dst])
        assert block.num_dst == batch.level_sizes[depth] == len(block.indptr) - 1
        assert block.num_edges == block.indptr[-1] == sum(batch.picks[h].num_picks for h in hops)
        into = np.repeat(block.dst, np.diff(block.indptr))
        owner = np.concatenate([np.repeat(batch.picks[h].frontier, batch.picks[h].counts) for h in hops])
        assert np.array_equal(into, owner)
        assert np.array_equal(block.src[block.indices], g.indices[block.edge_positions])
        assert np.array_equal(block.edge_positions, np.concatenate([batch.picks[h].positions for h in hops]))
    for outer, inner in itertools.pairwise(batch.blocks):
        assert np.array_equal(outer.dst, inner.src)  # one layer's output is the next one's input


@pytest.mark.parametrize("expand", ["frontier", "new"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("fanouts", [[3], [4, 2, 3], [-1, 2], [2, -1, 1], [40, 5]], ids=str)
def test_samples_of_a_random_graph(graph, fanouts, rule, expand):
    seeds = [5, 100, 5, 7, 0, 119, 100]
    batch = assert_is_reference(
        graph, seeds, fanouts, batch_id=9, expand=expand, seed=2**64 - 59, **RULES[rule]
    )
    assert_invariants(batch, graph)


@pytest.mark.parametrize("expand", ["frontier", "new"])
def test_samples_of_drawn_graphs(drawn_graphs, expand):
    for g in drawn_graphs.values():
        for fanouts in ([1], [1, 1, 1], [2, 2], [-1, -1, -1]):
            for rule in ("floyd", "reservoir", "fisher-yates", "replace"):
                for seeds in ([0], list(range(g.num_nodes))):
                    batch = assert_is_reference(g, seeds, fanouts, expand=expand, **RULES[rule])
                    assert_invariants(batch, g)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_samples_of_any_graph(data):
    n = data.draw(st.integers(1, 25))
    vertex = st.integers(0, n - 1)
    edges = data.draw(st.lists(st.tuples(vertex, vertex), max_size=80))
    weights = data.draw(
        st.lists(st.sampled_from([0.0, 1.0, 2.0, 0.3]), min_size=len(edges), max_size=len(edges))
    )
    g = Graph.from_edges([u for u, _ in edges], [v for _, v in edges], n, edge_weight=weights)
    batch = assert_is_reference(
        g,
        data.draw(st.lists(vertex, min_size=1, max_size=30)),
        data.draw(st.lists(st.sampled_from([1, 2, 3, 7, -1]), min_size=1, max_size=4)),
        data.draw(st.integers(0, 2**32 - 1)),
        expand=data.draw(st.sampled_from(["frontier", "new"])),
        seed=data.draw(st.integers(0, 2**64 - 1)),
        **RULES[data.draw(st.sampled_from(sorted(RULES)))],
    )
    assert_invariants(batch, g)


def test_the_path_by_hand(drawn_graphs):
    batch = draw(drawn_graphs["path"], [0], [1, 1, 1])
    assert [p.frontier.tolist() for p in batch.picks] == [[0], [0, 1], [0, 1, 2]]
    assert [p.neighbors.tolist() for p in batch.picks] == [[1], [1, 2], [1, 2, 3]]
    assert batch.node_ids.tolist() == [0, 1, 2, 3]
    assert [(b.num_src, b.num_dst) for b in batch.blocks] == [(4, 3), (3, 2), (2, 1)]
    new = draw(drawn_graphs["path"], [0], [1, 1, 1], expand="new")
    assert [p.frontier.tolist() for p in new.picks] == [[0], [1], [2]]
    # The union blocks of expand="new" hold the edges of all hops up to theirs.
    assert [b.num_edges for b in new.blocks] == [3, 2, 1]


def test_self_loops_parallel_edges_and_isolated_vertices(drawn_graphs):
    batch = draw(drawn_graphs["clumsy"], [0, 3], [-1, -1])
    assert batch.picks[0].neighbors.tolist() == [0, 1, 1, 1]
    assert batch.picks[0].counts.tolist() == [4, 0]
    assert batch.node_ids.tolist() == [0, 3, 1, 2]
    assert batch.blocks[-1].indptr.tolist() == [0, 4, 4]


def test_a_sample_may_reach_everything_or_nothing():
    n = 40
    complete = Graph.from_edges(np.repeat(np.arange(n), n), np.tile(np.arange(n), n), n)
    assert sorted(draw(complete, [3], [-1, -1]).node_ids.tolist()) == list(range(n))
    empty = Graph.from_edges([], [], 5)
    batch = draw(empty, [4, 2, 4], [3, -1, 2])
    assert batch.node_ids.tolist() == [4, 2] and batch.num_edges == 0
    assert [b.num_edges for b in batch.blocks] == [0, 0, 0]
    assert_invariants(batch, empty)


def test_fifteen_hops(graph):
    batch = assert_is_reference(graph, [1], [1] * 15)
    assert_invariants(batch, graph)


@pytest.mark.parametrize("expand", ["frontier", "new"])
@pytest.mark.parametrize("rule", RULES)
def test_wide_ids_give_the_same_sample(graph, wide_graph, rule, expand):
    assert wide_graph.indices.dtype == np.int64
    narrow, wide = (
        draw(g, [7, 8, 7], [4, -1, 2], 3, expand=expand, **RULES[rule]) for g in (graph, wide_graph)
    )
    assert (narrow.node_ids.dtype, wide.node_ids.dtype) == (np.int32, np.int64)
    assert wide.picks[0].neighbors.dtype == wide.picks[0].frontier.dtype == np.int64
    assert wide.local_neighbors[0].dtype == np.int32
    assert wide.canonical() == narrow.canonical()
    assert wide.canonical().sha256() == narrow.canonical().sha256()
    assert np.array_equal(wide.node_ids, narrow.node_ids)


def test_sample_many_is_sample_one_by_one(graph):
    groups = [np.arange(i, 120, 17) for i in range(6)] + [[3], [3, 3, 3], list(range(120))]
    for expand in ("frontier", "new"):
        together = NeighborSampler(graph, [4, 3], expand=expand, device="cpu").sample_many(groups, 40)
        for i, (seeds, found) in enumerate(zip(groups, together, strict=True)):
            alone = draw(graph, seeds, [4, 3], 40 + i, expand=expand)
            assert found.batch_id == 40 + i
            assert found.canonical() == alone.canonical()
            assert np.array_equal(found.node_ids, alone.node_ids)


def test_earlier_batches_leave_no_trace(graph):
    sampler = NeighborSampler(graph, [5, 5], device="cpu")
    first = sampler.sample([1, 2], 0).canonical()
    for i in range(20):
        sampler.sample(np.arange(i, 120, 3), i + 1)
    assert sampler.sample([1, 2], 0).canonical() == first


def test_a_batch_stays_as_it_was(graph):
    """Scratch memory is reused; what was handed out is not written again."""
    sampler = NeighborSampler(graph, [5, 5], device="cpu")
    batch = sampler.sample([1, 2], 0)
    before = batch.canonical().sha256(), batch.node_ids.tobytes()
    for i in range(5):
        sampler.sample(np.arange(100), i)
    assert (batch.canonical().sha256(), batch.node_ids.tobytes()) == before


def test_the_vertex_table_survives_the_wrap_of_its_base(graph):
    sampler = NeighborSampler(graph, [5, 5], device="cpu")
    expected = [sampler.sample([i, i + 1], i) for i in range(6)]
    tables = sampler._engine
    tables.next_base = 2**32 - 2 * (graph.num_nodes + 2) - 1
    bases = []
    for i, batch in enumerate(expected):
        assert np.array_equal(sampler.sample([i, i + 1], i).node_ids, batch.node_ids)
        bases.append(tables.next_base)
    assert any(b < a for a, b in itertools.pairwise(bases)), "the base did not wrap"


# SHA-256 of canonical samples of the random graph: a changed draw, order or canonical form shows here.
GOLDEN = {
    "floyd": "24372367bab6116e7a1dfba282aa59d92a7d024c6a70aff13d2e99d768670524",
    "weighted": "67f7d42a80ebf7c2f1b1edd7de15637f07c6a3864921d0f9b2f424e3ed80c1e9",
}


@pytest.mark.parametrize("rule", GOLDEN)
def test_recorded_hashes(graph, rule):
    expand = "frontier" if rule == "floyd" else "new"
    batch = draw(
        graph, list(range(0, 120, 10)), [6, 4, 2], 12345, seed=987654321, expand=expand, **RULES[rule]
    )
    assert batch.canonical().sha256() == GOLDEN[rule]


def test_renumbering_changes_the_sample_and_adding_vertices_does_not(graph):
    """The draw knows vertices by their id alone."""
    src, dst = graph.edges()
    larger = Graph.from_edges(src, dst, graph.num_nodes + 1000, edge_weight=graph.edge_weight)
    seeds = list(range(0, 120, 9))
    assert draw(larger, seeds, [3, 3]).canonical() == draw(graph, seeds, [3, 3]).canonical()
    mirrored = Graph.from_edges(119 - src, 119 - dst, 120)
    there = draw(mirrored, [119 - v for v in seeds], [3, 3])
    back = {tuple(sorted((119 - p.neighbors).tolist())) for p in there.picks}
    assert back != {tuple(sorted(p.neighbors.tolist())) for p in draw(graph, seeds, [3, 3]).picks}
    # With all neighbours there is nothing to draw, and the mirror image is exact.
    full, image = draw(graph, seeds, [-1]), draw(mirrored, [119 - v for v in seeds], [-1])
    assert sorted((119 - image.node_ids).tolist()) == sorted(full.node_ids.tolist())


def test_repr_tells_sizes(drawn_graphs):
    batch = draw(drawn_graphs["path"], [0], [1, 1])
    assert repr(batch) == "MiniBatch(batch_id=0, nodes per hop 1 -> 2 -> 3, edges=3)"
    assert repr(batch.blocks[0]) == "Block(num_src=3, num_dst=2, num_edges=2)"
    assert batch.num_edges == 3
