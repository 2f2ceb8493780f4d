"""Every pick rule draws exactly what its definition in plain Python draws."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnsample_lab import Graph
from gnnsample_lab.sampling.neighbors import cpu as twin
from gnnsample_lab.sampling.neighbors.cpu import draw_hop
from gnnsample_lab.sampling.neighbors.spec import HopPicks, SampleSpec
from gnnsample_lab.sampling.weights import integer_weights
from tests.sampling.neighbors import pick_oracle

RULES = {
    "floyd": {"pick": "floyd"},
    "reservoir": {"pick": "reservoir"},
    "fisher-yates": {"pick": "fisher-yates"},
    "replace": {"replace": True},
    "weighted": {"weighted": True},
    "weighted-replace": {"weighted": True, "replace": True},
}
HOP_OF_TESTS = 3


def star(degrees: list[int], weights: list[float] | None = None) -> Graph:
    """Vertex i has ``degrees[i]`` in-edges, from vertices that have none."""
    dst = np.repeat(np.arange(len(degrees)), degrees)
    src = len(degrees) + np.arange(dst.size)
    return Graph.from_edges(src, dst, len(degrees) + dst.size, edge_weight=weights)


def draw(
    g: Graph, rule: str, fanout: int, *, batch: int = 0, hop: int = 0, seed: int = 0, frontier=None
) -> HopPicks:
    spec = SampleSpec(fanouts=(fanout,) * (hop + 1), seed=seed, **RULES[rule])
    weights = integer_weights(g.indptr, g.edge_weight) if spec.weighted else None
    if frontier is None:
        frontier = np.arange(g.num_nodes)
    return draw_hop(frontier.astype(g.indices.dtype), g.indptr, g.indices, weights, spec, batch, hop)


def positions_of(picks: HopPicks, g: Graph, row: int) -> list[int]:
    """Positions within the adjacency of the row's vertex."""
    part = picks.positions[picks.offsets[row] : picks.offsets[row + 1]]
    return (part - g.indptr[picks.frontier[row]]).tolist()


def assert_is_oracle(g: Graph, rule: str, fanout: int, batch: int = 0, hop: int = 0, seed: int = 0) -> None:
    picks = draw(g, rule, fanout, batch=batch, hop=hop, seed=seed)
    whole = None if g.edge_weight is None else pick_oracle.integer_weights(g.edge_weight.tolist())
    for row, v in enumerate(picks.frontier.tolist()):
        begin, end = g.indptr[v : v + 2].tolist()
        weights = [1] * (end - begin) if whole is None else whole[begin:end]
        expected = pick_oracle.pick(rule, weights, fanout, v, batch, hop, seed)
        assert positions_of(picks, g, row) == expected, (rule, fanout, v)
        assert picks.counts[row] == len(expected)
    assert np.array_equal(picks.neighbors, g.indices[picks.positions])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("fanout", [1, 2, 3, 4, 5, 10, 33, 100, -1])
def test_every_degree_around_the_fanout(rule, fanout):
    k = abs(fanout)
    degrees = [0, 1, 2, 3, k - 1, k, k + 1, 2 * k, 5 * k + 3, 300]
    weights = np.random.default_rng(fanout + 1).integers(0, 4, sum(degrees)).astype(float)
    assert_is_oracle(star(degrees, weights), rule, fanout, batch=77, hop=HOP_OF_TESTS, seed=2**63 + 1)


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_vertex_degree_batch_hop_and_seed(rule, data):
    degrees = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=6))
    # Integers, and floats over the whole range of float32: from denormal to enormous.
    weight = st.one_of(
        st.sampled_from([0.0, 1.0, 2.0]),
        st.floats(0, float(np.float32(3e38)), width=32),
    )
    weights = data.draw(st.lists(weight, min_size=sum(degrees), max_size=sum(degrees)))
    assert_is_oracle(
        star(degrees, weights), rule, data.draw(st.sampled_from([1, 2, 5, 17, 64, -1])),
        batch=data.draw(st.integers(0, 2**32 - 1)), hop=data.draw(st.integers(0, 14)),
        seed=data.draw(st.integers(0, 2**64 - 1)),
    )  # fmt: skip


@pytest.mark.parametrize("rule", ["floyd", "reservoir", "fisher-yates", "replace"])
def test_a_hub_draws_from_all_of_its_edges(rule):
    g = star([20_000])
    picks = draw(g, rule, 500, frontier=np.array([0]))
    found = positions_of(picks, g, 0)
    expected = pick_oracle.pick(rule, range(20_000), 500, 0, 0, 0, 0)
    assert found == expected
    assert min(found) < 400 and max(found) > 19_600


@pytest.mark.parametrize("rule", ["floyd", "reservoir", "fisher-yates", "weighted"])
@pytest.mark.parametrize("fanout", [1, 7, 20, 21])
def test_without_replacement_positions_are_distinct(rule, fanout):
    g = star([20] * 50, np.arange(1, 1001) % 13 + 1.0)
    picks = draw(g, rule, fanout)
    for row in range(50):
        found = positions_of(picks, g, row)
        assert len(set(found)) == len(found) == min(20, fanout)
        assert set(found) <= set(range(20))


@pytest.mark.parametrize("rule", ["weighted", "weighted-replace"])
def test_edges_without_weight_are_never_drawn(rule):
    weights = np.tile([0.0, 3.0, 0.0, 0.0, 1.0, 0.0], 40)
    for fanout in (1, 2, 3, 6, -1):
        g = star([6] * 40, weights)
        picks = draw(g, rule, fanout)
        assert set((picks.positions % 6).tolist()) <= {1, 4}
        # Two edges can be had, and with replacement as many draws as asked for.
        every = 2 if fanout < 0 else fanout if rule == "weighted-replace" else min(2, fanout)
        assert picks.counts[:40].tolist() == [every] * 40


@pytest.mark.parametrize("rule", ["weighted", "weighted-replace"])
@pytest.mark.parametrize("fanout", [1, 5, -1])
def test_a_vertex_with_zero_weights_only_has_no_picks(rule, fanout):
    picks = draw(star([3, 2], [0.0, 0.0, 0.0, 1.0, 1.0]), rule, fanout)
    assert picks.counts[0] == 0
    assert picks.counts[1] == (2 if fanout < 0 or (rule == "weighted" and fanout > 1) else fanout)


def test_with_replacement_every_vertex_with_edges_gets_all_its_draws():
    picks = draw(star([0, 1, 5, 50]), "replace", 9)
    assert picks.counts.tolist()[:4] == [0, 9, 9, 9]
    assert positions_of(picks, star([0, 1, 5, 50]), 1) == [0] * 9


def test_all_neighbours_come_in_adjacency_order():
    for rule in ("floyd", "reservoir", "fisher-yates", "replace"):
        g = star([4, 0, 30])
        picks = draw(g, rule, -1)
        assert picks.positions.tolist() == list(range(34))


def test_a_row_does_not_depend_on_the_other_rows():
    g = star([30] * 200)
    together = draw(g, "floyd", 5)
    for v in (0, 63, 64, 199):  # the edges of a parallel chunk among them
        alone = draw(g, "floyd", 5, frontier=np.array([v]))
        assert positions_of(alone, g, 0) == positions_of(together, g, v)


@pytest.mark.parametrize("rule", RULES)
def test_batch_hop_vertex_and_seed_each_change_the_draw(rule):
    g = star([60] * 20, np.arange(1, 1201) % 7 + 1.0)

    def drawn(**how) -> list[list[int]]:
        picks = draw(g, rule, 6, **how)
        return [positions_of(picks, g, row) for row in range(20)]

    first = drawn()
    for how in ({"batch": 1}, {"hop": 1}, {"seed": 1}, {"seed": 2**32}):
        assert sum(a == b for a, b in zip(first, drawn(**how))) <= 1
    assert len({tuple(row) for row in first}) >= 19
    assert drawn() == first


def test_picks_are_compact_and_typed():
    g = star([0, 3, 9])
    picks = draw(g, "floyd", 4)
    assert (picks.frontier.dtype, picks.counts.dtype) == (np.int32, np.int32)
    assert (picks.neighbors.dtype, picks.positions.dtype, picks.offsets.dtype) == (
        np.int32,
        np.int64,
        np.int64,
    )
    assert picks.counts[:3].tolist() == [0, 3, 4]
    assert picks.offsets[:4].tolist() == [0, 0, 3, 7]
    assert picks.num_picks == 7 == len(picks.positions)
    assert HopPicks(picks.frontier, picks.counts, picks.neighbors, picks.positions).offsets.tolist() == (
        picks.offsets.tolist()
    )
    assert picks.to_cpu() is picks


def test_an_empty_frontier_has_no_picks():
    picks = draw(star([3]), "reservoir", 2, frontier=np.empty(0, np.int64))
    assert picks.num_picks == 0 and picks.offsets.tolist() == [0]
    assert [array.tolist() for array in picks.coo()] == [[], [], []]


def test_coo_arrays_name_vertex_neighbour_and_edge_of_each_pick():
    """Vertices without picks come first, in the middle and last."""
    g = star([0, 3, 0, 9, 0])
    picks = draw(g, "floyd", 4)
    row, column, edge = picks.coo()
    expected = [v for v, count in zip(picks.frontier, picks.counts, strict=True) for _ in range(count)]
    assert row.tolist() == expected and row.dtype == picks.frontier.dtype
    np.testing.assert_array_equal(column, g.indices[edge])
    assert ((g.indptr[row] <= edge) & (edge < g.indptr[row + 1])).all()


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="one core: there is nothing to choose")
@pytest.mark.parametrize("rule", ["floyd", "reservoir"])
def test_few_steps_are_drawn_by_one_thread_and_many_by_all(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of a hundred counts with all its steps where the rule goes through it, else with its picks."""
    g, seen, drawn = star([100] * 20), [], twin._draw
    monkeypatch.setattr(twin, "_draw", lambda *a: (seen.append(numba.get_num_threads()), drawn(*a)))
    few = draw(g, rule, 5)
    monkeypatch.setattr(twin, "_ALONE", 500)
    many = draw(g, rule, 5)
    monkeypatch.setattr(twin, "_ALONE", 50)
    draw(g, rule, 5)
    cores = numba.config.NUMBA_NUM_THREADS
    assert seen == [1, 1 if rule == "floyd" else cores, cores]
    assert numba.get_num_threads() == cores
    assert np.array_equal(few.positions, many.positions)
