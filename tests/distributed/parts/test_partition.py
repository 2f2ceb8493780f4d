"""Who owns which vertex: methods, balance, renumbering, errors."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.parts import balance, methods
from gnnsample_lab.distributed.parts.partition import evenest, topology_hash
from gnnsample_lab.graph import rmat
from tests.minibatch.conftest import random_graph, with_wide_ids

METHODS = ("metis", "streaming", "random", "range")


def cliques(num_cliques: int, size: int, **data) -> lab.Graph:
    """Complete graphs, ids scattered over them, joined to a ring by one undirected edge each."""
    n = num_cliques * size
    of = np.arange(n) % num_cliques
    src, dst = np.nonzero((of[:, None] == of[None, :]) & ~np.eye(n, dtype=bool))
    first = np.arange(num_cliques)
    after = (first + 1) % num_cliques
    src, dst = np.concatenate([src, first, after]), np.concatenate([dst, after, first])
    return lab.Graph.from_edges(src, dst, n, name="cliques", **data)


@pytest.fixture(scope="module")
def skewed() -> lab.Graph:
    return lab.rmat(2**12, 2**16)


@pytest.fixture
def few_hubs(tmp_path, monkeypatch) -> lab.Graph:
    """400 vertices; few of them have most edges, and the first 20 are training vertices and such hubs."""
    monkeypatch.setenv("LAB_DATA_ROOT", str(tmp_path))
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 400, 8000), (rng.random(8000) ** 6 * 400).astype(int)
    return lab.Graph.from_edges(src, dst, 400, splits={"train": np.arange(20)}, name="few hubs")


def made(graph, parts, method="metis", **options) -> lab.distributed.Partition:
    return lab.distributed.partition(graph, parts, method, use_cache=False, **options)


def seeds_of(num_nodes: int) -> np.ndarray:
    return np.arange(0, num_nodes, 3)


# ---- what a partition says ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_a_partition_agrees_with_its_graph(method, parts):
    graph = random_graph(1)
    seeds = seeds_of(graph.num_nodes)
    found = made(graph, parts, method, seeds=seeds, tolerance=parts)
    owner = found.owner.astype(int)
    assert owner.shape == (graph.num_nodes,) and set(owner) <= set(range(parts)) and found.num_parts == parts
    src, dst = graph.edges()
    traffic = np.zeros((parts, parts), int)
    np.add.at(traffic, (owner[dst], owner[src]), 1)
    assert (found.traffic == traffic).all()
    assert found.cut_share == pytest.approx(np.mean(owner[dst] != owner[src]))
    assert found.vertices.tolist() == np.bincount(owner, minlength=parts).tolist()
    assert found.edges.tolist() == np.bincount(owner[dst], minlength=parts).tolist()
    assert found.seed_counts.tolist() == np.bincount(owner[seeds], minlength=parts).tolist()
    assert found.balance["edges"] == pytest.approx(found.edges.max() / found.edges.mean())
    assert found.graph_hash == topology_hash(graph) and found.seconds > 0


@pytest.mark.parametrize("method", METHODS)
def test_new_ids_are_consecutive_and_keep_the_order(method):
    found = made(random_graph(2), 3, method, tolerance=3)
    assert sorted(found.new_of) == list(range(found.num_nodes))
    assert (found.new_of[found.old_of] == np.arange(found.num_nodes)).all()
    for part in range(3):
        mine = found.old_of[found.boundaries[part] : found.boundaries[part + 1]]
        assert mine.tolist() == np.flatnonzero(found.owner == part).tolist()
    part, position = found.place([5, 0, 119, 5])
    for v, p, at in zip([5, 0, 119, 5], part, position):
        assert p == found.owner[v] and found.old_of[found.boundaries[p] + at] == v


def test_owners_take_a_byte_or_two():
    graph = random_graph(3, 400)
    few, many = made(graph, 127, "random", tolerance=127), made(graph, 128, "random", tolerance=128)
    assert few.owner.dtype == np.int8 and many.owner.dtype == np.int16
    assert many.bytes_per_vertex == {"owner": 2, "renumbering": 4}
    assert sorted(set(many.owner)) == list(range(128))


def test_a_row_of_a_table():
    row = made(cliques(2, 10), 2).measures()
    assert row["cut_share"] == pytest.approx(4 / 184) and row["partition_s"] > 0
    assert {"graph", "method", "parts", "vertices_ratio", "edges_ratio", "seeds_ratio"} <= set(row)


# ---- methods --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["metis", "streaming"])
def test_communities_are_found(method):
    graph = cliques(4, 12)
    found = made(graph, 4, method)
    if method == "metis":
        assert all(len(set(found.owner[c::4])) == 1 for c in range(4))
        assert found.traffic.trace() == 4 * 12 * 11 and found.cut_share == pytest.approx(
            8 / (4 * 12 * 11 + 8)
        )
    assert found.cut_share < 0.4 * made(graph, 4, "random", tolerance=4).cut_share


def test_range_and_random_are_what_they_say():
    graph = cliques(2, 30)
    owner = made(graph, 3, "range").owner
    assert (np.diff(owner) >= 0).all() and np.bincount(owner).tolist() == [20, 20, 20]
    drawn = made(graph, 3, "random", seed=5)
    assert drawn.vertices.tolist() == [20, 20, 20] and (np.diff(drawn.owner) < 0).any()
    assert (drawn.owner != made(graph, 3, "random", seed=6).owner).any()


def test_ranges_weigh_vertices_and_edges():
    # All edges end in the first half of the ids: by vertices alone the first part would have all of them.
    graph = lab.Graph.from_edges(np.tile(np.arange(100), 50), np.repeat(np.arange(50), 100), 100)
    found = made(graph, 2, "range", tolerance=2)
    assert found.vertices.tolist() == [34, 66] and found.edges.tolist() == [3400, 1600]


def test_degree_weights_even_out_what_equal_weights_do_not(skewed):
    """On R-MAT one of two parts with equally many vertices has nearly all edges."""
    pymetis = pytest.importorskip("pymetis")
    begins, lists = methods.skeleton(skewed.indptr, skewed.indices)
    plain = pymetis.part_graph(2, pymetis.CSRAdjacency(begins, lists), options=pymetis.Options(seed=0))
    edges = np.bincount(plain.vertex_part, weights=skewed.in_degrees())
    assert edges.max() / edges.sum() > 0.85
    found = made(skewed, 2, tolerance=2)  # nothing is repaired
    assert found.edges.max() / found.edges.sum() < 0.55
    assert 0.3 < found.cut_share < 0.55  # METIS buys almost nothing here


def test_what_metis_leaves_uneven_is_repaired():
    graph = lab.rmat(2**14)
    with pytest.raises(lab.distributed.UnevenPartsError):
        owner = made(graph, 3, tolerance=3).owner
        none = np.zeros(graph.num_nodes, np.uint8)
        loads = balance.loads_of(graph.indptr, none, owner, 3)
        balance.check_even(loads, balance.limits_of(graph.indptr, none, 3, 1.1), 1.1, "metis")
    assert max(made(graph, 3).balance.values()) <= 1.1


@pytest.mark.parametrize("method", ["metis", "streaming"])
@pytest.mark.parametrize("parts", [2, 3, 8])
def test_all_three_quantities_keep_to_the_tolerance(skewed, method, parts):
    # Seeds all among the vertices of the highest degree, and no METIS weight can even out all three at once.
    seeds = np.argsort(-skewed.in_degrees(), kind="stable")[:400]
    for tolerance in (1.1, 1.02):
        found = made(skewed, parts, method, seeds=seeds, tolerance=tolerance)
        mean = np.array([skewed.num_nodes, skewed.num_edges, 400]) / parts
        slack = np.array([1, skewed.max_in_degree, 1])
        most = np.array([found.vertices.max(), found.edges.max(), found.seed_counts.max()])
        assert (most <= np.maximum(tolerance * mean, np.maximum(np.ceil(mean), slack))).all(), (
            found,
            tolerance,
        )


def test_the_skeleton_is_symmetric_without_loops_and_parallel_edges(drawn_graphs):
    begins, lists = methods.skeleton(drawn_graphs["clumsy"].indptr, drawn_graphs["clumsy"].indices)
    assert begins.tolist() == [0, 1, 3, 4, 4, 4] and lists.tolist() == [1, 0, 2, 1]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["path", "star", "cycle", "clumsy", "complete"])
def test_small_and_odd_graphs(drawn_graphs, method, name):
    graph = drawn_graphs[name]
    for parts in (1, 2, graph.num_nodes):
        found = made(graph, parts, method, tolerance=parts)
        assert found.vertices.sum() == graph.num_nodes and found.edges.sum() == graph.num_edges


def test_a_graph_without_edges():
    graph = lab.Graph.from_edges([], [], 10)
    for method in METHODS:
        found = made(graph, 2, method)
        assert found.vertices.tolist() == [5, 5] and found.cut_share == 0 and found.balance["edges"] == 1


def test_wide_ids_change_nothing():
    graph = random_graph(4, 200, 3000)
    for method in METHODS:
        narrow, wide = made(graph, 3, method, tolerance=3), made(with_wide_ids(graph), 3, method, tolerance=3)
        assert (narrow.owner == wide.owner).all()


def test_degrees_beyond_a_byte():
    found = made(cliques(2, 300), 2, seeds=[0, 1])
    assert found.cut_share < 1e-4 and found.seed_counts.tolist() == [1, 1]


def test_the_training_split_is_the_default():
    graph = cliques(2, 10, splits={"train": [3, 1, 7]})
    assert made(graph, 2).seeds.tolist() == [3, 1, 7] and made(cliques(2, 10), 2).seeds.size == 0
    assert made(graph, 2, seeds=[0]).seeds.tolist() == [0]


# ---- balance --------------------------------------------------------------------------------------------------


def test_an_uneven_part_is_an_error_that_says_what_and_how_much():
    graph = lab.Graph.from_edges(np.tile(np.arange(100), 50), np.repeat(np.arange(50), 100), 100)
    with pytest.raises(
        lab.distributed.UnevenPartsError, match=r"part 0 of 2 has 1\.360 times the mean of edges"
    ) as e:
        made(graph, 2, "range")
    assert (e.value.part, e.value.quantity, e.value.ratio) == (0, "edges", pytest.approx(1.36))
    assert isinstance(e.value, ValueError) and "tolerance" in str(e.value) and "metis" in str(e.value)
    assert made(graph, 2, "range", tolerance=1.37).balance["edges"] == pytest.approx(1.36)
    with pytest.raises(
        ValueError, match=r"part 0 of 2 has 2\.000 times the mean of seeds \(10 against 5\.0\)"
    ):
        made(cliques(2, 30), 2, "range", seeds=np.arange(10))


def test_where_whole_vertices_cannot_do_better_the_limit_is_what_they_can_do(drawn_graphs):
    star = made(
        drawn_graphs["star"], 2, "random"
    )  # one vertex has all ten edges, eleven vertices make 6 and 5
    assert star.balance["edges"] == 2 and star.balance["vertices"] == pytest.approx(12 / 11)
    assert made(cliques(2, 30), 4, seeds=[0]).balance["seeds"] == 4
    indptr, is_seed = np.array([0, 4, 4, 4]), np.array([1, 0, 0], np.uint8)
    assert balance.limits_of(indptr, is_seed, 2, 1.0).tolist() == [2, 4, 1]


def test_repair_exchanges_a_hub_for_leaves():
    """Part 0 has too many edges and part 1 too many vertices: no single move leaves both within their limits."""
    degree = np.array([40, 40, 40] + [1] * 5 + [1] * 20)
    indptr = np.concatenate([[0], np.cumsum(degree)])
    lists = np.zeros(indptr[-1], np.int64)
    is_seed = np.zeros(len(degree), np.uint8)
    owner = np.array([0] * 8 + [1] * 20, dtype=np.int16)
    loads = balance.loads_of(indptr, is_seed, owner, 2)
    limits = balance.limits_of(indptr, is_seed, 2, 1.25)
    assert loads.tolist() == [[8, 125, 0], [20, 20, 0]] and (loads > limits).tolist()[1][0]
    balance.repair(indptr, lists, indptr, is_seed, 1.25, owner, loads)
    assert (loads <= limits).all() and (loads == balance.loads_of(indptr, is_seed, owner, 2)).all()


def test_repair_moves_first_what_costs_least():
    # Two cliques of 6, one in each part; part 0 has six vertices without edges besides, part 1 none.
    src, dst = np.nonzero(~np.eye(6, dtype=bool))
    graph = lab.Graph.from_edges(np.append(src, src + 12), np.append(dst, dst + 12), 18)
    owner = np.array([0] * 12 + [1] * 6, dtype=np.int16)
    is_seed = np.zeros(18, np.uint8)
    loads = balance.loads_of(graph.indptr, is_seed, owner, 2)
    balance.repair(graph.indptr, graph.indices, graph.indptr, is_seed, 1.1, owner, loads)
    assert owner[:6].tolist() == [0] * 6 and owner[12:].tolist() == [1] * 6 and loads[:, 0].tolist() == [9, 9]


# ---- the same everywhere, and errors --------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_the_same_arguments_give_the_same_parts(method):
    graph = random_graph(6, 300, 4000)
    first, again = made(graph, 3, method, seed=2, tolerance=3), made(graph, 3, method, seed=2, tolerance=3)
    assert first.digest() == again.digest()
    assert first.digest() != made(graph, 3, method, seed=2, tolerance=3, seeds=[1]).digest()


def test_parts_do_not_depend_on_the_machine():
    """Recorded once; all methods but METIS, whose C library draws."""
    graph = lab.rmat(2**9, 2**12)
    recorded = {method: made(graph, 3, method, seed=7, tolerance=1.5).digest()[:16] for method in METHODS[1:]}
    assert recorded == RECORDED


RECORDED = {"streaming": "4f0a52437251c192", "random": "d9204230ba54f547", "range": "d372ecabdf54af77"}


def test_metis_buys_little_on_rmat():
    """A graph without communities: most of the edges that chance cuts are cut by METIS as well."""
    pytest.importorskip("pymetis")
    graph = rmat(2**14, 2**18, seed=1)
    metis, chance = (
        lab.distributed.partition(graph, 2, how, tolerance=1.5, use_cache=False).cut_share
        for how in ("metis", "random")
    )
    assert chance == pytest.approx(0.5, abs=0.01) and 0.4 < metis < chance


def test_graphs_beyond_metis_name_the_way_out(monkeypatch):
    pytest.importorskip("pymetis")
    graph = cliques(2, 10)  # 184 edges, two of them parallel to others
    for most, known in ((181, "182"), (100, "182")):
        monkeypatch.setattr(methods, "MAX_METIS_ENTRIES", most)
        with pytest.raises(ValueError, match=rf"method must be 'streaming' .* {known} entries") as e:
            made(graph, 2)
        assert str(most) in str(e.value)
    monkeypatch.setattr(methods, "MAX_METIS_ENTRIES", 182)
    made(graph, 2)
    # A directed path has half of its symmetric entries in its lists.
    monkeypatch.setattr(methods, "MAX_METIS_ENTRIES", 5)
    with pytest.raises(ValueError, match="6 entries"):
        made(lab.Graph.from_edges([0, 1, 2], [1, 2, 3], 4), 2)


def test_without_pymetis_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r"gnnsample-lab\[distributed\].*method='streaming'"):
        made(cliques(2, 10), 2)
    made(cliques(2, 10), 2, "streaming")


def test_bad_arguments_of_a_call_that_the_table_does_not_reach():
    with pytest.raises(ValueError, match="seeds must be distinct"):
        made(cliques(2, 10), 2, seeds=[1, 1])
    repeated = lab.Graph.from_edges([0, 1, 2], [1, 2, 0], splits={"train": [2, 0, 2]})
    with pytest.raises(ValueError, match=r"split 'train' must name each vertex once .got vertex 2 2 times"):
        made(repeated, 2, "streaming")
    with pytest.raises(ValueError, match="parts must be between 1 and 20"):
        made(cliques(2, 10), 21)
    with pytest.raises(ValueError, match="graph must have vertices"):
        made(lab.Graph.from_edges([], [], 0), 1)


def test_nothing_heavy_is_imported():
    code = (
        "import sys, gnnsample_lab as lab; assert 'partition' in dir(lab.distributed); "
        "print([m for m in ('torch', 'pymetis', 'numba') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


# ---- as even as a method gets -----------------------------------------------------------------------------------


def test_looser_tolerances_are_tried_one_after_another_and_never_all(few_hubs):
    with pytest.raises(balance.UnevenPartsError):
        made(few_hubs, 2, "streaming")
    found = evenest(few_hubs, 2, "streaming")
    assert found.tolerance == 1.25 and max(found.balance.values()) <= 1.25
    assert evenest(few_hubs, 3, "metis").tolerance == 1.5
    assert evenest(few_hubs, 2, "metis").tolerance == 1.1
    assert evenest(few_hubs, 1, "streaming").num_parts == 1


def test_a_part_with_nearly_everything_is_an_error(monkeypatch):
    """Whatever tolerance is tried: two parts are never allowed twice the mean, which is everything."""
    graph = random_graph(4)

    def lopsided(indptr, *_):
        owner = np.zeros(len(indptr) - 1, dtype=np.int16)
        owner[0] = 1
        return owner

    monkeypatch.setattr(methods, "streaming_parts", lopsided)
    for parts, tried in ((2, r"1\.1, 1\.25, 1\.5\)"), (4, r"1\.1, 1\.25, 1\.5, 2\)")):
        with pytest.raises(balance.UnevenPartsError, match=f"tried: {tried}") as caught:
            evenest(graph, parts, "streaming")
        assert caught.value.part == 0 and caught.value.ratio > 1.9


def test_baselines_are_taken_as_they_are(few_hubs):
    found = evenest(few_hubs, 4, "random")
    assert found.tolerance == 4 and max(found.balance.values()) > 1.1
    assert evenest(cliques(4, 12), 2, "random").tolerance == 1.1
