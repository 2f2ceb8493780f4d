"""Twins: the skeleton asked for comes out, on both devices alike, whatever the graph."""

import networkx as nx
import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.graph.structure import clustering, gini, skeleton
from gnnsample_lab.graph.twins import pairs as pairs_module
from gnnsample_lab.graph.twins import twin as twin_module
from gnnsample_lab.graph.twins.edges import Edges, csc, vertex_ids
from gnnsample_lab.graph.twins.recipes import stored
from gnnsample_lab.graph.twins.statistics import plan_of
from gnnsample_lab.graph.twins.words import bits, words


def undirected(g):
    g = nx.convert_node_labels_to_integers(g)
    edges = np.array(list(g.edges), dtype=np.int64).reshape(-1, 2)
    return lab.Graph.from_edges(edges[:, 0], edges[:, 1], g.number_of_nodes(), undirected=True)


@pytest.fixture(scope="module")
def facebook():
    """A graph of hubs, cliques and two levels of communities."""
    parts = [nx.powerlaw_cluster_graph(150, 6, 0.7, seed=k) for k in range(8)]
    g = nx.disjoint_union_all(parts)
    rng = np.random.default_rng(0)
    g.add_edges_from(rng.integers(0, 1200, (900, 2)).tolist())
    g.remove_edges_from(nx.selfloop_edges(g))
    return undirected(g)


@pytest.fixture(scope="module")
def statistics(facebook):
    return lab.twin_statistics(facebook)


def test_the_degree_sequence_is_the_originals(facebook, statistics):
    made = lab.twin(statistics, device="cpu")
    assert made.num_nodes == facebook.num_nodes
    assert made.num_edges == facebook.num_edges
    assert np.array_equal(np.sort(skeleton(made).degrees), np.sort(skeleton(facebook).degrees))
    assert made.is_synthetic and made.version == 3 and made.name == "graph-twin"


@pytest.mark.parametrize(
    ("argument", "wrong"), [("seed", -1), ("scale", 0), ("features", "some"), ("device", "tpu"), ("name", 3)]
)
def test_a_wrong_argument_is_told_before_the_graph_is_measured(facebook, monkeypatch, argument, wrong):
    def measured(graph):
        raise AssertionError("measured first")

    monkeypatch.setattr(twin_module, "twin_statistics", measured)
    with pytest.raises((TypeError, ValueError), match=argument):
        lab.twin(facebook, **{argument: wrong})


def test_no_edge_twice_no_loop_and_both_directions(statistics):
    made = lab.twin(statistics, device="cpu")
    src, dst = made.edges()
    keys = dst.astype(np.int64) * made.num_nodes + src
    assert np.all(np.diff(keys) > 0)
    assert not np.any(src == dst)
    assert np.array_equal(np.sort(src.astype(np.int64) * made.num_nodes + dst), keys)


def test_clustering_and_communities_come_out(facebook, statistics):
    real, made = skeleton(facebook), skeleton(lab.twin(statistics, device="cpu"))
    assert clustering(made).mean() == pytest.approx(clustering(real).mean(), abs=0.03)
    assert gini(made.degrees) == gini(real.degrees)
    plan, _ = plan_of(statistics)
    drawn = pairs_module.skeleton(plan, np)
    low, high = drawn.pairs >> plan.bits, drawn.pairs & ((1 << plan.bits) - 1)
    inside = (plan.large[drawn.small[low]] == plan.large[drawn.small[high]]).mean()
    size = np.bincount(plan.large[drawn.small], plan.degrees.repeat(plan.counts))
    wanted = (plan.inside_large / 65536 * size).sum() / size.sum()
    assert inside == pytest.approx(wanted, abs=0.06)
    # Without the communities the share of links inside would be that of chance.
    assert inside > 3 * ((size / size.sum()) ** 2).sum()


def test_seeds_give_different_graphs_of_one_kind(statistics):
    one, two = (lab.twin(statistics, seed=s, device="cpu") for s in (0, 1))
    assert one.digest() != two.digest()
    assert np.array_equal(np.sort(one.in_degrees()), np.sort(two.in_degrees()))
    assert lab.twin(statistics, seed=1, device="cpu").digest() == two.digest()


@pytest.mark.parametrize("chunk", [1, 97, 4096])
def test_the_graph_does_not_depend_on_how_much_is_drawn_at_once(statistics, chunk):
    plan, _ = plan_of(statistics, 0.2 if chunk == 1 else 1.0)
    whole, parts = pairs_module.skeleton(plan, np), pairs_module.skeleton(plan, np, chunk=chunk)
    assert np.array_equal(whole.pairs, parts.pairs)
    assert np.array_equal(whole.small, parts.small)


def test_segments_keep_the_degrees(statistics):
    """Half-edges of a large graph are sorted part by part; the parts are cut where pairs are."""
    plan, _ = plan_of(statistics)
    parts = pairs_module.skeleton(plan, np, segment=512)
    ends = np.concatenate([parts.pairs >> plan.bits, parts.pairs & ((1 << plan.bits) - 1)])
    assert np.array_equal(np.bincount(ends, minlength=plan.num_nodes), np.repeat(plan.degrees, plan.counts))
    assert parts.unpaired == 0
    again = pairs_module.skeleton(plan, np, segment=512, chunk=333)
    assert np.array_equal(parts.pairs, again.pairs)


def test_lists_are_sorted_range_by_range_alike(statistics):
    plan, _ = plan_of(statistics)
    made = pairs_module.skeleton(plan, np)
    edges = Edges(plan, made.pairs, vertex_ids(plan, np, 1 << 20), made.group, None, 0, np, 1 << 20)
    whole, parts = csc(edges), csc(edges, sorted_at_once=700)
    assert np.array_equal(whole[0], parts[0]) and np.array_equal(whole[1], parts[1])


GRAPHS = {
    "empty": lambda: lab.Graph.from_edges([], [], 0),
    "one vertex": lambda: lab.Graph.from_edges([], [], 1),
    "no edges": lambda: lab.Graph.from_edges([], [], 50),
    "loops alone": lambda: lab.Graph.from_edges(range(9), range(9), 9),
    "one link": lambda: lab.Graph.from_edges([0], [1], 2, undirected=True),
    "parallel arcs": lambda: lab.Graph.from_edges([0] * 20 + [1], [1] * 20 + [2], 5),
    "cycle": lambda: undirected(nx.cycle_graph(300)),
    "bipartite": lambda: undirected(nx.complete_bipartite_graph(20, 30)),
    "caveman": lambda: undirected(nx.connected_caveman_graph(20, 12)),
    "tree": lambda: undirected(nx.random_labeled_tree(400, seed=1)),
    "lollipop": lambda: undirected(nx.lollipop_graph(40, 200)),
    "many components": lambda: undirected(nx.disjoint_union_all([nx.path_graph(3)] * 3000)),
    "citations": lambda: lab.Graph.from_edges(*np.array(list(nx.gn_graph(500, seed=3).edges)).T, 500),
}


@pytest.mark.parametrize("name", list(GRAPHS))
def test_graphs_of_every_kind_keep_their_degrees(name):
    real = GRAPHS[name]()
    made = lab.twin(real, device="cpu")
    assert np.array_equal(np.sort(skeleton(made).degrees), np.sort(skeleton(real).degrees))


@pytest.mark.parametrize(("name", "lost"), [("complete", 0.03), ("star", 0.01)])
def test_graphs_without_room_lose_few_links(name, lost):
    """Nothing can be swapped where nearly all pairs are linked, or one vertex is in every link."""
    real = undirected(nx.complete_graph(40) if name == "complete" else nx.star_graph(1000))
    made = lab.twin(real, device="cpu")
    assert (1 - lost) * real.num_edges <= made.num_edges <= real.num_edges


def test_a_directed_twin_has_the_originals_in_and_out_degrees():
    rng = np.random.default_rng(5)
    # Citations: the newer cites the older, and few are cited often.
    src = rng.integers(1, 4000, 30_000)
    dst = (src * rng.random(30_000) ** 3).astype(np.int64)
    both = rng.random(30_000) < 0.1
    keys = np.unique(np.r_[src * 4000 + dst, dst[both] * 4000 + src[both]])
    real = lab.Graph.from_edges(keys // 4000, keys % 4000, 4000)
    made = lab.twin(real, device="cpu")
    assert made.num_edges == lab.twin_statistics(real)["num_edges"]
    for degrees in ("in_degrees", "out_degrees"):
        a, b = (np.asarray(getattr(g, degrees)()) for g in (real, made))
        assert gini(b) == pytest.approx(gini(a), abs=0.04)
        assert np.quantile(b, 0.99) == pytest.approx(np.quantile(a, 0.99), rel=0.3)
        assert np.mean(b == 0) == pytest.approx(np.mean(a == 0), abs=0.03)
    a, b = (np.corrcoef(np.log1p(g.in_degrees()), np.log1p(g.out_degrees()))[0, 1] for g in (real, made))
    assert b == pytest.approx(a, abs=0.1)


def readers_and_read(n=20_000):
    """Half of the vertices point to others alone; of the other half's links among themselves most go both ways."""
    rng = np.random.default_rng(7)
    half = n // 2
    often = rng.pareto(3.0, half) + 1
    often /= often.sum()
    src, dst = rng.integers(half, n, 5 * n), rng.choice(half, 5 * n, p=often)
    a, b = rng.choice(half, 2 * n, p=often), rng.integers(0, half, 2 * n)
    both = rng.random(2 * n) < 0.9
    return lab.Graph.from_edges(np.r_[src, a, b[both]], np.r_[dst, b, a[both]], n)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_directed_twin_keeps_who_has_no_in_links_and_how_many_links_go_both_ways(seed):
    real = readers_and_read()
    found = lab.twin_statistics(real)
    assert found["direction"]["reciprocity"] / 65536 == pytest.approx(0.25, abs=0.02)
    made = lab.twin(found, seed=seed, device="cpu")
    assert np.mean(made.in_degrees() == 0) == pytest.approx(0.5, abs=0.02)
    assert np.mean(made.out_degrees() == 0) == pytest.approx(np.mean(real.out_degrees() == 0), abs=0.02)
    # As many links go both ways, as far as there are links between vertices that have any.
    assert made.num_edges == pytest.approx(found["num_edges"], rel=0.02)
    for degrees in ("in_degrees", "out_degrees"):
        a, b = (np.asarray(getattr(g, degrees)()) for g in (real, made))
        assert gini(b) == pytest.approx(gini(a), abs=0.05)
        assert np.quantile(b, [0.6, 0.9, 0.99]) == pytest.approx(np.quantile(a, [0.6, 0.9, 0.99]), rel=0.25)


def test_directions_do_not_depend_on_how_much_is_drawn_at_once():
    found = lab.twin_statistics(readers_and_read(2000))
    plan, _ = plan_of(found)
    made = pairs_module.skeleton(plan, np)
    links = sum(d * c for d, c in found["degrees"]) // 2
    lists = []
    for chunk in (1 << 20, 777):
        ids = vertex_ids(plan, np, chunk)
        edges = Edges(
            plan, made.pairs, ids, made.group, found["direction"], found["num_edges"] - links, np, chunk
        )
        lists.append(csc(edges, sorted_at_once=5000))
    assert np.array_equal(lists[0][0], lists[1][0]) and np.array_equal(lists[0][1], lists[1][1])


def test_statistics_without_the_newer_parameters_give_the_graph_that_they_gave():
    found = stored("arxiv-like")
    assert "mutual" not in found["direction"], "all its pairs are linked both ways alike"
    bare = {**found, "labels": None, "features": None, "training": None}
    made = lab.twin(bare, scale=0.02, device="cpu", name="a")
    assert made.digest() == "b78678ba9b26cd0326e5b58ebf79d6f51dfdb28bd0e3766d58f5b6b47814931b"


def test_a_scaled_twin_keeps_its_degrees(statistics):
    small = lab.twin(statistics, scale=0.25, device="cpu")
    large = lab.twin(statistics, scale=3, device="cpu")
    assert (small.num_nodes, large.num_nodes) == (300, 3600)
    mean = statistics["num_edges"] / statistics["num_nodes"]
    assert small.num_edges / 300 == pytest.approx(mean, rel=0.05)
    assert large.num_edges / 3600 == pytest.approx(mean, rel=0.01)
    assert clustering(skeleton(small)).mean() > 0.5 * clustering(skeleton(large)).mean()


def test_labels_features_splits_and_weights_are_like_the_originals():
    rng = np.random.default_rng(3)
    label = np.repeat(np.arange(5), 300)
    src = rng.integers(0, 1500, 12_000)
    dst = np.where(rng.random(12_000) < 0.8, label[src] * 300 + rng.integers(0, 300, 12_000), src[::-1])
    feat = rng.normal(0, 1, (1500, 32)).astype(np.float32) + 0.25 * rng.normal(0, 1, (5, 32))[label]
    real = lab.Graph.from_edges(
        src, dst, 1500, undirected=True, feat=feat, label=label, edge_weight=rng.exponential(2.0, 12_000),
        splits={"train": np.arange(300), "valid": np.arange(300, 450), "test": np.arange(450, 1500)},
    )  # fmt: skip
    found = lab.twin_statistics(real)
    made = lab.twin(found, device="cpu")
    again = lab.twin_statistics(made)
    assert again["labels"]["homophily"] == pytest.approx(found["labels"]["homophily"], abs=0.04)
    assert np.bincount(made.label) == pytest.approx([300] * 5, abs=60)
    assert again["features"]["accuracy"] == pytest.approx(found["features"]["accuracy"], abs=0.06)
    assert {k: len(v) for k, v in made.splits.items()} == {"train": 300, "valid": 150, "test": 1050}
    ids = np.concatenate([made.splits[k] for k in made.splits])
    assert np.array_equal(np.sort(ids), np.arange(1500))
    # The training set is one class, one corner of the graph, in both.
    top = np.bincount(made.label[made.splits["train"]]).max() / 300
    assert top > 0.6
    a, b = np.sort(real.edge_weight), np.sort(made.edge_weight)
    assert np.quantile(b, [0.1, 0.5, 0.9]) == pytest.approx(np.quantile(a, [0.1, 0.5, 0.9]), rel=0.05)
    s, d = made.edges()
    there = {(x, y): w for x, y, w in zip(s.tolist(), d.tolist(), made.edge_weight.tolist())}
    assert all(there[y, x] == w for (x, y), w in there.items())
    assert lab.twin(found, features=False, device="cpu").feat is None


def test_a_twin_that_does_not_fit_names_a_scale_that_does(statistics, monkeypatch):
    monkeypatch.setattr(twin_module, "free_host_bytes", lambda: 2**27)
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    with pytest.raises(MemoryError, match=r"pass scale=([\d.]+) or less") as failed:
        lab.twin(statistics, scale=100, device="cpu")
    scale = float(str(failed.value).split("scale=")[1].split()[0])
    assert 4 < scale < 100
    assert lab.twin(statistics, scale=scale, device="cpu").num_nodes == round(scale * 1200)


def test_words_are_a_function_of_seed_stream_and_position():
    whole = words(np, 7, 3, 0, 100)
    assert np.array_equal(whole[40:60], words(np, 7, 3, 40, 60))
    others = [words(np, 8, 3, 0, 100), words(np, 7, 4, 0, 100)]
    assert not any(np.any(whole == other) for other in others)
    drawn = bits(np, 1, 1, 0, 1 << 16, 4)
    assert np.bincount(drawn, minlength=16) == pytest.approx([4096] * 16, rel=0.08)
    # Words of neighbouring streams and positions are no echo of each other.
    a, b = bits(np, 1, 1, 0, 1 << 16, 16), bits(np, 1, 2, 0, 1 << 16, 16)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.02 and abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < 0.02


@pytest.mark.gpu
@pytest.mark.parametrize("directed", [False, True])
def test_the_gpu_makes_the_same_graph(statistics, directed, monkeypatch):
    if directed:
        rng = np.random.default_rng(1)
        real = lab.Graph.from_edges(
            rng.integers(0, 5000, 40_000), (rng.random(40_000) ** 2 * 5000).astype(int), 5000
        )
        statistics = lab.twin_statistics(real)
    for scale in (0.3, 1, 40):
        on_gpu = lab.twin(statistics, scale=scale, seed=5, device="cuda").to("cpu")
        with monkeypatch.context() as patch:
            patch.setenv("LAB_DEVICE", "cpu")
            on_cpu = lab.twin(statistics, scale=scale, seed=5, device="cpu")
        assert on_gpu.digest() == on_cpu.digest()


@pytest.mark.gpu
def test_segments_are_the_same_on_the_gpu(statistics):
    import cupy

    plan, _ = plan_of(statistics, 10)
    host, device = (
        pairs_module.skeleton(plan, xp, segment=5000, chunk=c) for xp, c in ((np, 999), (cupy, 7777))
    )
    assert np.array_equal(host.pairs, device.pairs.get())
    assert np.array_equal(host.small, device.small.get())
