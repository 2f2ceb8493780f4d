"""Statistics of a graph: what they hold, that they survive JSON, and that wrong ones are refused by name."""

import copy
import dataclasses
import json

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.graph.structure import clustering
from gnnsample_lab.graph.twins import measure, recipes
from gnnsample_lab.graph.twins.plan import ONE, ROLES, bin_of, octave_of, role_of, scaled_counts, scaled_sizes
from gnnsample_lab.graph.twins.statistics import check_statistics, plan_of


@pytest.fixture(scope="module")
def labelled():
    rng = np.random.default_rng(3)
    label = np.repeat(np.arange(4), 100)
    src = rng.integers(0, 400, 3000)
    near = label[src] * 100 + rng.integers(0, 100, 3000)
    dst = np.where(rng.random(3000) < 0.8, near, rng.integers(0, 400, 3000))
    feat = np.eye(4, dtype=np.float32)[label] + rng.normal(0, 0.5, (400, 4)).astype(np.float32)
    return lab.Graph.from_edges(
        src, dst, 400, undirected=True, edge_weight=rng.random(3000), feat=feat, label=label,
        splits={"train": np.arange(0, 100), "valid": np.arange(100, 150), "test": np.arange(150, 400)}, name="four",
    )  # fmt: skip


@pytest.fixture(scope="module")
def found(labelled):
    return lab.twin_statistics(labelled)


def test_statistics_count_what_the_graph_has(labelled, found):
    src, dst = labelled.edges()
    pairs = {(min(a, b), max(a, b)) for a, b in zip(src.tolist(), dst.tolist()) if a != b}
    degree = np.bincount(np.array(list(pairs)).ravel(), minlength=400)
    assert found["num_nodes"] == 400
    assert found["num_edges"] == 2 * len(pairs)
    assert not found["directed"] and found["direction"] is None
    assert dict(found["degrees"]) == {int(d): int(c) for d, c in zip(*np.unique(degree, return_counts=True))}
    group = octave_of(degree)
    mixing = np.zeros((group.max() + 1,) * 2, int)
    for a, b in pairs:
        mixing[group[a], group[b]] += 1
        mixing[group[b], group[a]] += 1
    assert np.array_equal(mixing, found["mixing"])
    assert sum(found["communities"]["size"]) == 400
    assert found["labels"]["sizes"] == [100] * 4
    same = np.mean([labelled.label[a] == labelled.label[b] for a, b in pairs])
    assert found["labels"]["homophily"] == pytest.approx(same, abs=1e-6)
    assert found["features"]["count"] == 4
    assert (found["training"]["train"], found["training"]["valid"], found["training"]["test"]) == (
        100,
        50,
        250,
    )
    assert found["weights"][0] == labelled.edge_weight.min()
    assert found["weights"][-1] == labelled.edge_weight.max()


def test_statistics_survive_json(found):
    again = json.loads(json.dumps(found))
    assert again == found
    assert lab.twin(again, device="cpu").digest() == lab.twin(found, device="cpu").digest()


def test_statistics_name_a_source_for_each_parameter(found):
    named = {key.split(".")[0] for key in found["sources"]}
    held = {k for k, v in found.items() if v is not None} - {"format", "name", "sources"}
    assert held <= named
    assert found["sources"]["cliques"].startswith("fitted to clustering")


def test_directed_graphs_state_reciprocity_and_in_shares():
    # 0 -> 1 .. 9, and 9 -> 0 back: nine links, one of them both ways.
    g = lab.Graph.from_edges([0] * 9 + [9], [*range(1, 10), 0], 10)
    found = lab.twin_statistics(g)
    assert found["directed"]
    assert found["num_edges"] == 10
    assert found["direction"]["reciprocity"] == round(ONE / 9)
    for wrong in (8, 19):  # nine links make 9 to 18 edges
        with pytest.raises(
            ValueError, match=rf"'num_edges'. must be from 9 to 18, by the degrees .got {wrong}"
        ):
            check_statistics({**found, "num_edges": wrong})
    roles = found["direction"]["roles"]
    # One points and has one link back, eight are pointed to alone, and vertex 9 does both.
    hub, leaf, mutual = octave_of(9) * ROLES + 1, ROLES - 1, 3
    assert roles["vertices"][octave_of(9)][1] == 1
    assert roles["vertices"][0][ROLES - 1] == 8 and roles["vertices"][0][mutual] == 1
    assert found["direction"]["in_share"][hub] == [round(0.1 * ONE)] * 17
    assert found["direction"]["in_share"][leaf] == [ONE] * 17
    # Of the one link to the hub, and of the two of vertex 9, all have their reverse.
    assert found["direction"]["mutual"][hub] == found["direction"]["mutual"][mutual] == [ONE] * 17
    assert roles["towards"][hub][leaf] == 8 and np.sum(roles["towards"]) == 8
    assert roles["both"][hub][mutual] == roles["both"][mutual][hub] == 1 and np.sum(roles["both"]) == 2
    assert np.sum(roles["mixing"]) == 18


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("format", 2), ("num_nodes", -1), ("num_nodes", 401), ("num_nodes", 4.5), ("num_nodes", True),
        ("num_edges", None), ("num_edges", 0), ("num_edges", 2**40), ("directed", 1), ("directed", True), ("name", 3),
        ("degrees", [[1, 2], [1, 3]]), ("degrees", [[3, 400], [2, 0]]), ("degrees", "abc"), ("degrees", [[1]]),
        ("degrees", [[400, 400]]), ("degrees", [[1, 399], [2, 1]]), ("degrees", [[1.5, 400]]), ("degrees", None),
        ("clustering", [0.5] * 63), ("clustering", [2.0] * 64), ("clustering", [float("nan")] * 64),
        ("cliques", [-1] * 64), ("cliques", None), ("clique_share", 0), ("communities", None), ("communities", {}),
        ("mixing", [[1, 2], [3, 4]]), ("mixing", [[1]]), ("mixing", [1]), ("mixing", [[-1] * 6] * 6),
        ("direction", {"reciprocity": 2, "in_share": []}), ("labels", {}), ("labels", {"sizes": [], "purity": 1}),
        ("labels", {"sizes": [0, 0], "purity": 1}), ("labels", {"sizes": [1], "purity": -1}), ("labels", 3),
        ("features", {"count": 0, "signal": 1}), ("features", {"count": 3}), ("weights", [1.0]),
        ("weights", [float("inf")] * 65), ("weights", list(range(65))[::-1]), ("training", {"train": -1}),
        ("training", {"train": 1, "valid": 1, "test": 1, "by_community": [1]}),
    ],
)  # fmt: skip
def test_wrong_statistics_are_refused_by_name(found, key, wrong):
    with pytest.raises(ValueError, match=r"statistics.*(" + key + r"|reciprocity|in_share|sizes|purity|count|signal|"
                       r"size|inside_large|train|direction|by_community|num_nodes)"):  # fmt: skip
        check_statistics({**found, key: wrong})


@pytest.mark.parametrize("part", ["size", "large", "level", "inside", "clustering", "inside_large", "spread"])
@pytest.mark.parametrize("wrong", [None, "x", [-1], [10**9], [[1]], 0.5])
def test_wrong_communities_are_refused_by_name(found, part, wrong):
    broken = copy.deepcopy(found)
    broken["communities"][part] = wrong
    with pytest.raises(ValueError, match="statistics"):
        check_statistics(broken)


@pytest.mark.parametrize(
    ("key", "wrong"),
    [("mutual", [[0] * 16]), ("mutual", [[0] * 17] * 2), ("mutual", [[5, *[0] * 16]]), ("mutual", [[-1] * 17]),
     ("mutual", "x"), ("both", [[1]]), ("both", None)],
)  # fmt: skip
def test_wrong_directions_are_refused_by_name(key, wrong):
    found = lab.twin_statistics(lab.Graph.from_edges([0] * 9 + [9], [*range(1, 10), 0], 10))
    broken = copy.deepcopy(found)
    owner = broken["direction"]["roles"] if key == "both" else broken["direction"]
    owner[key] = wrong
    if wrong is None:
        check_statistics(broken)  # may be left out
        assert lab.twin(broken, device="cpu").num_edges == 10
        owner[key] = np.triu(found["direction"]["roles"]["both"]).tolist()
    with pytest.raises(ValueError, match=key):
        check_statistics(broken)


def test_roles_tell_vertices_without_links_of_a_direction():
    assert role_of([0, 1e-9, 0.24, 0.25, 0.5, 0.75, 1 - 1e-9, 1]).tolist() == [0, 1, 1, 2, 3, 4, 4, 5]


def test_a_scaled_fit_tells_the_clustering_of_the_whole_graph():
    """Communities that shrink close triangles by chance that the whole graph leaves open."""
    n = 100_000
    whole = recipes.communities(n, recipes.KNOBS)
    sizes = [5000] * 20  # all larger than those that keep their size
    parts = {**whole, "size": sizes, "inside_large": [ONE], "large": [0] * 20, "clustering": [ONE] * 20}
    parts |= {"level": [ONE // 2] * 20, "inside": [round(0.9 * ONE)] * 20}
    table = [[40, n]]
    made = {
        "format": 3, "num_nodes": n, "num_edges": 40 * n, "directed": False, "degrees": table,
        "clustering": [0.1] * 64, "cliques": [round(0.1 * ONE)] * 64, "clique_share": ONE // 2, "communities": parts,
        "mixing": recipes.mixing(table),
    }  # fmt: skip
    seen = []
    for scale in (0.05, 1.0):
        plan, kept = plan_of(check_statistics(made), scale)
        drawn = measure.make_skeleton(plan, np)
        links = measure._as_skeleton(drawn.pairs, plan.num_nodes, plan.bits)
        local = clustering(links)
        seen.append(
            (local.mean(), measure._at_full_size(local, links.degrees, plan, drawn, sizes, kept).mean())
        )
    (small, expected), (real, same) = seen
    assert same == pytest.approx(real, abs=1e-9)
    assert small > real + 0.01
    assert abs(expected - real) < abs(small - real) / 4


def test_bins_and_groups_of_degrees():
    d = np.arange(100_000)
    expected = np.where(d < 8, d, np.floor(2 * np.log2(np.maximum(d, 1)) + 2)).astype(int)
    assert np.array_equal(bin_of(d), np.minimum(expected, 63))
    assert octave_of([0, 1, 2, 3, 4, 7, 8, 2**40, 2**40 - 1]).tolist() == [0, 0, 1, 1, 2, 2, 3, 40, 39]
    assert bin_of([2**62]).tolist() == [63]


def test_a_scaled_table_keeps_the_distribution_and_an_even_sum():
    degrees, counts = np.array([0, 1, 2, 5, 50]), np.array([7, 100, 200, 61, 3])
    for n in (16, 37, 371, 1000, 5000):
        new, number = scaled_counts(degrees, counts, n)
        assert number.sum() == n
        assert (new * number).sum() % 2 == 0
        assert new.max() <= max(1, n // 2 if n < 371 else n - 1)
        assert np.all(np.diff(new) > 0) and np.all(number > 0)
    new, number = scaled_counts(degrees, counts, 3710)
    assert (new * number).sum() / 3710 == pytest.approx((degrees * counts).sum() / 371, rel=0.01)


def test_scaled_communities_hold_all_vertices_and_keep_their_members():
    size = np.array([1000, 300, *[12] * 200, *[2] * 100])
    for n in (50, 390, 1950, 3900, 9000):
        new, kept = scaled_sizes(size, n)
        assert new.sum() == n
        assert len(new) == len(kept) == len(np.unique(kept))
        if n >= 390:
            small = (new > 0) & (size[kept] == 12)
            assert new[small].min() >= 12  # fewer of them, at their size


def test_a_plan_at_scale_has_the_mixing_of_its_size(found):
    plan, kept = plan_of(found, 0.5)
    assert plan.num_nodes == 200
    assert plan.mixing.sum() == pytest.approx(np.sum(found["mixing"]) / 2, rel=0.01)
    assert plan.size.sum() == 200
    assert len(plan.level) == len(kept)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_are_not_finite_say_nothing_of_the_features(labelled, found, value):
    feat = labelled.feat.copy()
    feat[::50, 0] = value
    graph = dataclasses.replace(labelled, feat=feat)
    accuracy = lab.twin_statistics(graph)["features"]["accuracy"]
    assert accuracy == pytest.approx(found["features"]["accuracy"], abs=0.05) and accuracy > 0.5
    feat[:, 0] = value
    assert lab.twin_statistics(dataclasses.replace(labelled, feat=feat))["features"]["accuracy"] is None
