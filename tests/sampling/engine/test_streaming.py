"""Graphs larger than GPU memory: how they are cut and what a step copies; on a GPU, the same samples as in memory."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnsample_lab import Graph, apps, run_app
from gnnsample_lab.sampling.engine.plan import streamed
from gnnsample_lab.sampling.engine.streaming.run import largest_weights
from gnnsample_lab.sampling.engine.streaming.subgraphs import Places, cut, fits, lay_out, plan_step

degrees = st.lists(st.integers(0, 40), min_size=1, max_size=60)


def indptr_of(degrees):
    return np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)


def graph_with(seed=0, weighted=False, num_nodes=800, num_edges=12000):
    rng = np.random.default_rng(seed)
    src, dst = (
        rng.integers(0, num_nodes, num_edges),
        (rng.random(num_edges) ** 3 * (num_nodes - 60)).astype(np.int64),
    )
    weight = rng.integers(1, 9, num_edges).astype(np.float32)
    weight[rng.random(num_edges) < 0.002] = 1e6
    return Graph.from_edges(src, dst, num_nodes, edge_weight=weight if weighted else None)


@given(degrees, st.integers(0, 60))
def test_parts_are_ranges_that_fit_and_could_not_be_larger(degrees, room):
    indptr, most = indptr_of(degrees), max(degrees) + room
    parts = cut(indptr, most)
    assert parts[0] == 0 and parts[-1] == len(degrees) and (np.diff(parts) > 0).all()
    edges = np.diff(indptr[parts])
    assert (edges <= most).all()
    assert all(edges[g] + degrees[parts[g + 1]] > most for g in range(len(edges) - 1)), (
        "the next list would have fitted"
    )


def test_a_list_that_does_not_fit_names_both_sizes():
    with pytest.raises(ValueError, match=r"graph_bytes must hold .* 100 edges in 400 bytes \(got 399\)"):
        lay_out(399, 1000, 100, 4, 0)
    assert lay_out(400, 1000, 100, 4, 0).slots == 1


@given(
    st.integers(0, 10**7), st.integers(1, 10**6), st.sampled_from([4, 8, 12, 16]), st.sampled_from([0, 8]),
    st.sampled_from([None, 1, 2, 5]),
)  # fmt: skip
def test_slots_stay_within_the_limit_and_hold_every_list(more, longest, edge_bytes, extra, slots):
    limit, num_edges = longest * edge_bytes + extra + more, 3 * longest + more
    layout = lay_out(limit, num_edges, longest, edge_bytes, extra, slots)
    assert layout.slots * (layout.slot_edges * layout.edge_bytes + extra) <= limit
    assert layout.slot_edges >= min(longest, num_edges)
    if limit >= 2 * (longest * edge_bytes + extra) and num_edges * edge_bytes + extra > limit:
        assert layout.slots >= 2, "with one slot nothing overlaps"


def test_a_graph_that_fits_needs_no_streaming():
    graph = graph_with()
    edges, id_bytes = graph.num_edges, graph.indices.itemsize
    assert fits(graph, edges * id_bytes, False) and not fits(graph, edges * id_bytes - 1, False)
    assert fits(graph, edges * (id_bytes + 12), True) and not fits(graph, edges * (id_bytes + 12) - 1, True)


def test_a_graph_that_fits_is_one_part():
    layout = lay_out(4000, 1000, 100, 4, 0)
    assert (layout.slots, layout.slot_edges) == (1, 1000)


@given(st.integers(1, 5), st.lists(st.integers(0, 9), max_size=60))
def test_the_least_recently_used_part_gives_way(slots, asked):
    places, used, where = Places(slots), [], {}
    for part in asked:
        slot, absent = places.take(part)
        assert 0 <= slot < slots
        assert absent == (part not in used[-slots:])
        if not absent:
            assert where[part] == slot
            used.remove(part)
        used, where[part] = [*used, part], slot
        used = used[-slots:]
        assert sorted(places.parts) == sorted(used)
        assert len({where[p] for p in used}) == len(used), "two parts in one slot"


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 400)), min_size=1, max_size=12),
    st.sets(st.integers(0, 11)), st.sampled_from([None, 1.0, 17.0, 500.0]),
)  # fmt: skip
def test_a_step_serves_every_pair_once(parts, held, pair_bytes):
    pairs, sizes = np.array([p for p, _ in parts]), np.array([b for _, b in parts])
    held = {g for g in held if g < len(parts)}
    rent = np.zeros(len(parts))
    runs, order = plan_step(indptr_of(pairs), sizes, pair_bytes, held, rent, len(parts))
    served = np.zeros(len(parts), dtype=int)
    for first, last in runs:
        served[first:last] += 1
    assert not served[order].any(), "read across the bus and staged"
    served[order] += 1
    assert (served[pairs > 0] == 1).all()
    for g in order:
        assert pairs[g] > 0 and (g in held or pair_bytes is None or pairs[g] * pair_bytes >= sizes[g])
    for g in range(len(parts)):
        if pairs[g] and g not in order:
            assert g not in held and rent[g] == pairs[g] * pair_bytes < sizes[g]
    assert order == sorted(order, key=lambda g: (g not in held, g)), "what lies there comes first"


def test_steps_that_want_everything_copy_what_has_no_place():
    sizes, bounds, places = np.full(6, 100), np.arange(7), Places(2)
    copies = []
    for _ in range(3):
        _, order = plan_step(bounds, sizes, None, set(places.parts), np.zeros(6), 2)
        assert sorted(order) == list(range(6))
        copies.append(sum(places.take(g)[1] for g in order))
    assert copies == [6, 4, 4]


@pytest.mark.parametrize("slots", [4, 2, 1])
def test_what_is_read_across_the_bus_again_and_again_is_staged_at_last(slots):
    sizes, bounds, rent = np.full(4, 100), np.array([0, 1, 1, 1, 1]), np.zeros(4)
    staged = [plan_step(bounds, sizes, 30.0, set(), rent, slots)[1] for _ in range(20)]
    assert staged.index([0]) == -(-100 * 4 // slots // 30) - 1, "the less room, the later"
    assert rent[0] < 100 * 4 / slots and not rent[1:].any()


def test_largest_weights():
    indptr = np.array([0, 2, 2, 5, 5])
    prefix = np.concatenate([[0], np.cumsum([3, 7, 2**32 - 1, 1, 0])]).astype(np.uint64)
    most = largest_weights(indptr, prefix)
    assert most.tolist() == [7, 0, 2**32 - 1, 0] and most.dtype == np.uint32
    assert largest_weights(np.zeros(3, np.int64), np.zeros(1, np.uint64)).tolist() == [0, 0]


def test_forms_of_weights_are_kept_while_the_graph_lives(monkeypatch):
    given = []
    monkeypatch.setattr(
        "gnnsample_lab.sampling.engine.streaming.run.StreamedGraph",
        lambda graph, limit, operator, weights, **_: given.append((graph, weights)),
    )
    graph = graph_with(weighted=True)
    for as_published in (False, True, False):
        streamed(graph, None, graph.edge_weight, 1000, as_published)
        given[-1][1].setdefault("weight", object())  # as a streamed graph does
    assert all(weights is given[0][1] for _, weights in given) and all(found is graph for found, _ in given)
    assert np.array_equal(np.diff(given[0][1]["prefix"]), graph.edge_weight.astype(np.uint64))
    doubled = graph.edge_weight * 2
    streamed(graph, None, doubled, 1000)
    assert np.array_equal(np.diff(given[-1][1]["prefix"]), doubled) and "weight" not in given[-1][1]
    doubled[0] += 1  # an application may change its own array
    streamed(graph, None, doubled, 1000)
    assert np.array_equal(np.diff(given[-1][1]["prefix"]), doubled)
    streamed(graph, None, None, 1000)
    assert given[-1][1] is None


@pytest.mark.parametrize("limit", [1, 10**9])
def test_the_cpu_ignores_the_limit(limit):
    graph, app = graph_with(), apps.DeepWalk(5)
    assert run_app(graph, app, num_samples=20, device="cpu", graph_bytes=limit) == run_app(
        graph, app, num_samples=20, device="cpu"
    )


def test_published_streaming_is_refused_where_lists_are_read_across_the_bus():
    graph = graph_with()
    roots = np.arange(6).reshape(3, 2)
    for index, limit in (("published", None), ("auto", 10**6)):
        run_app(graph, apps.LADIES(), roots, device="cpu", index=index, graph_bytes=limit)
    with pytest.raises(ValueError, match="index must not be 'published' with graph_bytes and a collective"):
        run_app(graph, apps.LADIES(), roots, device="cpu", index="published", graph_bytes=10**6)


# ---- on a GPU ---------------------------------------------------------------------------------------------

APPS = {
    "deepwalk": lambda: apps.DeepWalk(8), "ppr": lambda: apps.PPR(1 / 8),
    "node2vec": lambda: apps.Node2Vec(8, 0.25, 4.0), "multirw": lambda: apps.MultiRW(8, 5),
    "k-hop": lambda: apps.KHop((5, 3, 2)), "layer": lambda: apps.Layer(), "fastgcn": lambda: apps.FastGCN(),
    "ladies": lambda: apps.LADIES(), "mvs": lambda: apps.MVS(), "clustergcn": lambda: apps.ClusterGCN(),
    "pinsage": lambda: apps.PinSAGEWalk(restart=0.3),
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("name", APPS)
@pytest.mark.parametrize("weighted", [False, True])
def test_streamed_samples_are_those_of_the_cpu(name, weighted):
    graph = graph_with(weighted=weighted)
    longest = graph.max_in_degree * 16 + 8
    expected = run_app(graph, APPS[name](), num_samples=40, device="cpu", seed=3)
    for limit in (longest, 2 * longest, 10**8):
        for parallelism in ("transit", "sample"):
            streamed = run_app(
                graph,
                APPS[name](),
                num_samples=40,
                device="cuda",
                seed=3,
                graph_bytes=limit,
                parallelism=parallelism,
            )
            assert streamed == expected, (limit, parallelism)


@pytest.mark.gpu
@pytest.mark.parametrize("slots", [None, 2])
@pytest.mark.parametrize("across_bus", [True, False])
def test_what_is_copied_is_counted(slots, across_bus, monkeypatch):
    from gnnsample_lab.sampling.engine.streaming import run as streaming

    graph, made = graph_with(), []

    def make(*args):
        made.append(original(*args, slots=slots, across_bus=across_bus))
        return made[-1]

    original = streaming.StreamedGraph
    monkeypatch.setattr(streaming, "StreamedGraph", make)
    limit = 2 * graph.max_in_degree * graph.indices.itemsize
    run = run_app(graph, apps.KHop((20, 10)), num_samples=500, device="cuda", graph_bytes=limit)
    assert run == run_app(graph, apps.KHop((20, 10)), num_samples=500, device="cpu")
    steps = [step for step in run.schedule if step["kernel"] == "streamed"]
    assert len(steps) == 2
    for step in steps:
        assert (
            step["subgraphs"]
            == step["subgraphs_copied"] + step["subgraphs_kept"] + step["subgraphs_across_bus"]
        )
        assert across_bus or step["subgraphs_across_bus"] == 0
        assert (step["copied_bytes"] > 0) == (step["subgraphs_copied"] > 0)
    assert made[0].num_parts > 2 and steps[0]["subgraphs_kept"] == 0
    if not across_bus:
        assert steps[1]["subgraphs_kept"] > 0, "a step begins with what the last one left"


@pytest.mark.gpu
def test_as_published_each_step_copies_every_part_that_holds_a_transit():
    graph = graph_with()
    operator = SimpleNamespace(uses=frozenset({"lab_edge"}), collective=False, deferred=True)
    limit = 2 * graph.max_in_degree * graph.indices.itemsize
    copied = {}
    for as_published in (False, True):
        held = streamed(graph, operator, None, limit, as_published)
        assert held.num_parts > 2 and held.stages(1, 1) == as_published
        held.across_bus = False
        bounds = np.arange(held.num_parts + 1)
        bounds[-1] = bounds[-2]  # the last part holds no transit
        steps = []
        for _ in range(3):
            launched = []
            steps.append(held._serve(bounds, 1.0, lambda *part, to=launched: to.append(part)))
            assert sorted(part[0] for part in launched) == list(range(held.num_parts - 1))
        copied[as_published] = [step["subgraphs_copied"] for step in steps]
        assert all(step["subgraphs_across_bus"] == 0 for step in steps)
        parts = held.num_parts - 1
    assert copied[True] == [parts] * 3
    assert copied[False][0] == parts > copied[False][1], "a step begins with what the last one left"


@pytest.mark.gpu
def test_weights_stay_page_locked_between_runs():
    graph = graph_with(weighted=True)
    limit = 2 * (graph.max_in_degree * 16 + 8)
    whole = graph.edge_weight.astype(np.uint64)
    for reads, name in (("lab_edge_prefix", "prefix"), ("lab_edge_weight", "weight")):
        operator = SimpleNamespace(uses=frozenset({reads, "lab_max_weight"}), collective=False, deferred=True)
        first, second = (streamed(graph, operator, graph.edge_weight, limit) for _ in range(2))
        assert first._host[name] is second._host[name]
        found = getattr(second, name).get()
        assert np.array_equal(np.diff(found) if name == "prefix" else found, whole)
        assert (
            second.max_weight.get().tolist()
            == largest_weights(
                graph.indptr, np.concatenate([[0], np.cumsum(whole)]).astype(np.uint64)
            ).tolist()
        )


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["deepwalk", "ppr", "node2vec", "k-hop", "mvs"])
@pytest.mark.parametrize("weighted", [False, True])
def test_streamed_as_published_samples_are_those_of_the_cpu(name, weighted):
    graph = graph_with(weighted=weighted)
    options = {"num_samples": 40, "seed": 3}
    expected = run_app(graph, APPS[name](), device="cpu", **options)
    limit = 2 * (graph.max_in_degree * 16 + 8)
    found = run_app(graph, APPS[name](), device="cuda", graph_bytes=limit, index="published", **options)
    assert found == expected
    for step in found.schedule:
        assert step["kernel"] == "streamed" and step["index"] == "counting"
        assert step["subgraphs_copied"] == step["subgraphs"]


@pytest.mark.gpu
def test_a_limit_below_the_longest_list_is_refused():
    graph = graph_with()
    with pytest.raises(ValueError, match="graph_bytes"):
        run_app(graph, apps.DeepWalk(3), num_samples=5, device="cuda", graph_bytes=graph.max_in_degree)


@pytest.mark.gpu
@settings(deadline=None, max_examples=15)
@given(degrees, st.integers(1, 30), st.integers(0, 2**63))
def test_streamed_walks_on_drawn_graphs(degrees, room, seed):
    num_nodes = len(degrees)
    rng = np.random.default_rng(seed % 2**32)
    dst = np.repeat(np.arange(num_nodes), degrees)
    graph = Graph.from_edges(rng.integers(0, num_nodes, dst.size), dst, num_nodes)
    limit = (graph.max_in_degree + room) * graph.indices.itemsize
    app = apps.KHop((3, 3))
    expected = run_app(graph, app, num_samples=17, device="cpu", seed=seed)
    assert run_app(graph, app, num_samples=17, device="cuda", seed=seed, graph_bytes=limit) == expected
