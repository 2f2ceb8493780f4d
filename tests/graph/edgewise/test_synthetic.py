"""Twins of version 2 and R-MAT: sizes, degrees, labels, determinism, and the same graph on both devices."""

from __future__ import annotations

import numpy as np
import pytest

from gnnsample_lab.graph import Graph, catalogue, load, random_weights, rmat
from gnnsample_lab.graph.edgewise import synthetic
from gnnsample_lab.graph.edgewise.assemble import assemble
from gnnsample_lab.graph.edgewise.backend_cpu import CpuBackend
from gnnsample_lab.graph.edgewise.plan import bijection, class_starts, more_draws, scatter_ids

# SHA-256 of generated graphs, recorded on a CPU when version 2 was what ``load`` gave: any changed draw shows here, and
# GPUs must give the same. Records of samples and times hold for these graphs.
RECORDED = {
    ("arxiv-like", 0.02, 0): "4441fbe21b6e1575c5b5a3d58fc663cdb06647b35542a6818677182211fb86b0",
    ("arxiv-like", 0.02, 2**63 + 5): "f5fdb60d88487584fa52cb06da2f71f2974a78d37abfdbf9a93bb39b195b9135",
    ("products-like", 0.002, 0): "5104abbc66f865d8d190d62c58c2805d5fd126b300978ef8abffd56b82ce8657",
    ("reddit-like", 0.004, 1): "84e9030d5c88f073e313924827d2f293de0bebf3299615eb55fbb30a2ec0fbbf",
    ("papers100M-like", 0.0002, 0): "07ca66c624fba183cafdb8d5819b545dea3768fe63842dbbf127905753050b9d",
    ("flickr-like", 0.02, 0): "2ec723896eb36667e347ee8986d2294d423d2266440d93959a1ccadea78baaad",
    ("yelp-like", 0.02, 0): "93d1f096db7dd78b3ffae323e7cc68ff485edd47967a2d8e646361b96e28bf9b",
    ("physics-like", 0.02, 0): "0a369f11c53839ead0da9f63995cecd77a30decb155e26598b0edc1da67b3d52",
    ("ppi-like", 0.02, 0): "40eb3ec31be191b47c947cfb3f22692dac259b7088cb8f9224336b04305f86b0",
    ("orkut-like", 0.002, 0): "3037cfebc3764a7f72894948550718b96e9e12200fee507bbba4e93c3c44fce9",
    ("livejournal-like", 0.002, 0): "4a7173d4063f80af8e2d42286ab2e574fe9eabace517855372eaa336c6de8ad2",
    ("patents-like", 0.002, 0): "43bfe42803797de8779fc6a9354092a21fb95154da5adbc45efd0051570f657e",
    ("friendster-like", 0.0002, 0): "2b997105ad556943f1f8ff5fb9a1074d25477b49ecb4e2121ea580127f9312ec",
    ("twitter-like", 0.0002, 0): "585c2b03714c64663960e4907e3ceb3bda61489e54fdb4ba9ee27d1c3902aa3f",
    ("uk-like", 0.0002, 0): "7abcdb67344131ad25531f8db953f6af6cc058778d5c063bf409285151309d60",
    ("mag-like", 0.0002, 0): "6fed91adbe4bf39acaa2708552b00f5ccb3dac701654995cb58aa44462a638f5",
    ("igb-like", 0.0002, 0): "761144ce7abf12702694ff638ceb2cc8e2c4d34b161641ffa9a4335488e59abb",
    ("ddi-like", 0.02, 0): "ca8bd9b4ae66c30d34de1389020f16d8db538d791ccfd90c3743c8cac7cf7712",
    ("epinions-like", 0.02, 0): "187f57f183d171ffa35ec5feb3e48eb3295efef0703e15f92ac680abb8062a43",
}
RECORDED_RMAT = "02ef636bf549fbf8530923a04bc4d8ec4804bc3b6d02cffd041e7a910d5103cd"


@pytest.fixture(autouse=True)
def on_the_cpu(request, monkeypatch):
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setenv("LAB_DEVICE", "cpu")


def make(name: str, scale: float, seed: int = 0, **how) -> Graph:
    return load(name, scale=scale, seed=seed, use_cache=False, version=2, **how)


def has_parallel_edges(g: Graph) -> bool:
    src, dst = (x.astype(np.int64) for x in g.edges())
    return len(np.unique(dst * g.num_nodes + src)) < g.num_edges


def is_symmetric(g: Graph) -> bool:
    src, dst = (x.astype(np.int64) for x in g.edges())
    n = g.num_nodes
    return bool(np.array_equal(np.sort(dst * n + src), np.sort(src * n + dst)))


SCALED = [
    ("arxiv-like", 0.1), ("products-like", 0.003), ("flickr-like", 0.1), ("yelp-like", 0.01),
    ("physics-like", 0.05), ("patents-like", 0.005), ("ppi-like", 0.1), ("epinions-like", 0.1),
    ("igb-like", 0.0002), ("ddi-like", 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "scale"), SCALED)
def test_a_twin_has_the_scaled_counts_of_its_original(name, scale):
    entry = catalogue.entry(name)
    g = make(name, scale)
    assert g.num_nodes == round(entry["num_nodes"] * scale)
    assert abs(g.num_edges - entry["num_edges"] * scale) <= 1
    assert g.num_features == entry.get("num_features", 0)
    assert g.num_classes == entry.get("num_classes", 0)
    assert is_symmetric(g) is not entry["directed"]
    assert not has_parallel_edges(g) and not np.equal(*g.edges()).any()
    assert g.is_synthetic and g.title == f"{name} (synthetic)" and g.version == 2
    Graph(g.indptr, g.indices, g.edge_weight, g.feat, g.label, g.splits)  # passes every check
    for split in ("train", "valid", "test"):
        listed = entry.get(f"num_{split}", 0)
        if listed:
            assert abs(len(g.splits[split]) - listed * scale) <= 1
    together = np.concatenate([*g.splits.values(), np.empty(0, np.int64)])
    assert len(np.unique(together)) == len(together)
    if g.label is not None:
        assert set(np.unique(g.label)) == set(range(g.num_classes))


def test_the_whole_arxiv_twin():
    g = make("arxiv-like", 1.0)
    assert (g.num_nodes, g.num_edges, g.num_features, g.num_classes) == (169_343, 1_166_243, 128, 40)
    assert [len(g.splits[s]) for s in ("train", "valid", "test")] == [90_941, 29_799, 48_603]
    # ogbn-arxiv's most cited paper has 13 161 citations, its longest reference list 436 entries.
    assert 6_000 < g.max_in_degree < 20_000 and 200 < int(g.out_degrees().max()) < 900
    degrees = np.sort(g.in_degrees())
    assert (
        degrees[-len(degrees) // 100 :].sum() > 0.2 * g.num_edges
    )  # the top percent gets a fifth of all edges
    assert np.median(degrees) <= 4
    assert g.feat.dtype == np.float32 and abs(float(g.feat.mean())) < 0.05 and 1.0 < float(g.feat.std()) < 1.4


def centroid_accuracy(feat, label, train, test):
    centroids = np.stack([feat[train][label[train] == c].mean(0) for c in range(label.max() + 1)])
    distance = (centroids**2).sum(1) - 2 * feat[test] @ centroids.T
    return float((distance.argmin(1) == label[test]).mean())


@pytest.mark.parametrize(
    ("name", "scale"), [("arxiv-like", 0.2), ("flickr-like", 0.2), ("products-like", 0.004)]
)
def test_neighbours_help_to_tell_the_label(name, scale):
    g = make(name, scale)
    src, dst = g.edges()
    mean = np.zeros_like(g.feat)
    np.add.at(mean, dst, g.feat[src])
    mean = (mean + g.feat) / (g.in_degrees()[:, None] + 1)
    train, test = g.splits["train"], g.splits["test"]
    alone = centroid_accuracy(g.feat, g.label, train, test)
    smoothed = centroid_accuracy(mean, g.label, train, test)
    assert alone > 3 / g.num_classes * 0.7 and alone < 0.9  # features say something, and not everything
    assert smoothed > alone + 0.05, (alone, smoothed)


def test_edges_prefer_their_own_class():
    g = make("arxiv-like", 0.1)
    src, dst = g.edges()
    share = float((g.label[src] == g.label[dst]).mean())
    sizes = np.bincount(g.label) / g.num_nodes
    assert share > 0.5 > 5 * float((sizes**2).sum())


def test_a_seed_is_one_graph_and_another_seed_another():
    first = make("arxiv-like", 0.02, seed=5)
    assert make("arxiv-like", 0.02, seed=5).digest() == first.digest()
    second = make("arxiv-like", 0.02, seed=6)
    assert second.digest() != first.digest() and not np.array_equal(second.label, first.label)


@pytest.mark.parametrize("budget", [None, 20_000, 3_000])
def test_the_graph_does_not_depend_on_passes_or_threads(budget, monkeypatch):
    import gnnsample_lab.graph.edgewise.backend_cpu as backend_module

    expected = {}
    for name in ("arxiv-like", "yelp-like"):
        plan = synthetic.twin_plan(catalogue.entry(name), 0.01, 0)
        expected[name] = assemble(plan, CpuBackend())
    monkeypatch.setattr(backend_module, "_BLOCK", 1000)
    monkeypatch.setattr(backend_module.spread, "__defaults__", (1000,))
    monkeypatch.setattr(CpuBackend, "chunk", 777)
    for name, (indptr, indices) in expected.items():
        plan = synthetic.twin_plan(catalogue.entry(name), 0.01, 0)
        got = assemble(plan, CpuBackend(max_keys=budget))
        assert np.array_equal(got[0], indptr) and np.array_equal(got[1], indices)


def test_a_full_container_still_takes_few_passes(monkeypatch):
    """Each pass draws all edges: by what is free alone there would be a pass for every few of them."""
    from gnnsample_lab.graph.edgewise import backend_cpu

    plan = synthetic.twin_plan(catalogue.entry("arxiv-like"), 0.01, 0)
    monkeypatch.setattr(backend_cpu, "free_host_bytes", lambda: 0)
    assert CpuBackend().key_budget(plan) == 2**22
    monkeypatch.setattr(backend_cpu, "free_host_bytes", lambda: 2**30)
    assert CpuBackend().key_budget(plan) == 2**26


def test_tiny_and_dense_twins_stay_within_what_is_possible():
    g = make("reddit-like", 0.0001)  # 23 vertices with a mean degree of 492 are impossible
    assert g.num_nodes == 23 and 0 < g.num_edges <= 23 * 22 // 4
    assert make("arxiv-like", 1e-9).num_nodes == synthetic.MIN_NODES
    with pytest.raises(ValueError, match=r"scale must leave at most 2147483647 vertices"):
        make("papers100M-like", 100)


def test_features_can_be_left_out_and_large_ones_are_by_default():
    assert make("arxiv-like", 0.01, features=False).feat is None
    assert synthetic.wants_features(2_449_029, 100, "auto")
    assert not synthetic.wants_features(111_059_956, 128, "auto")
    assert synthetic.wants_features(111_059_956, 128, True)
    assert not synthetic.wants_features(100, 0, True)


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 17, 1000, 4096, 4097])
def test_vertex_orders_are_permutations(num_nodes):
    orders = []
    for seed in (0, 1):
        order = scatter_ids(bijection(num_nodes, seed, 0), np.arange(num_nodes))
        assert np.array_equal(np.sort(order), np.arange(num_nodes))
        orders.append(order.tolist())
    assert num_nodes < 17 or orders[0] != orders[1]
    assert num_nodes < 1000 or np.corrcoef(orders[0], np.arange(num_nodes))[0, 1] < 0.1


def test_vectors_and_single_ids_are_scattered_alike():
    from gnnsample_lab.graph.edgewise import draws_cpu

    for num_nodes in (5, 1000, 2**20 + 1):
        constants = bijection(num_nodes, 7, 0)
        ranks = np.arange(0, num_nodes, max(1, num_nodes // 50))
        single = [int(draws_cpu.scatter_id(constants, np.uint64(r))) for r in ranks]
        assert scatter_ids(constants, ranks).tolist() == single


@pytest.mark.parametrize(("num_nodes", "num_classes"), [(16, 100), (169_343, 40), (400, 100), (10**8, 172)])
def test_classes_have_members_and_cover_all_ranks(num_nodes, num_classes):
    starts = class_starts(num_nodes, num_classes)
    sizes = np.diff(starts)
    assert starts[0] == 0 and starts[-1] == num_nodes and sizes.min() >= 1
    if num_nodes > 10**5:
        assert len(sizes) == num_classes and 3 < sizes[0] / sizes[-1] < 7


def test_more_draws_always_grow():
    assert more_draws(100, 90, 91) > 100 and more_draws(100, 0, 50) > 100


def test_rmat_has_its_skew_and_symmetry():
    g = rmat(2**14, seed=3)
    assert g.num_nodes == 2**14 and is_symmetric(g) and not has_parallel_edges(g)
    draws = round(2**14 * 62_000_000 / 2**21)
    assert 1.4 * draws < g.num_edges < 2 * draws
    assert g.max_in_degree > 20 * g.num_edges / g.num_nodes
    assert rmat(2**14, seed=3).digest() == g.digest() != rmat(2**14, seed=4).digest()
    hubs = np.argsort(g.in_degrees())[-10:]
    assert hubs.std() > 1000  # ids are scattered


def test_rmat_quadrants_follow_their_probabilities():
    # One level: the four edges between two vertices, in the given shares.
    from gnnsample_lab.graph.edgewise import draws_cpu
    from gnnsample_lab.graph.edgewise.plan import seed_words

    identity = np.array([2, 1, 1, 1, 0, 1, 0, 1, 0], dtype=np.uint64)
    keys = np.empty(200_000, np.int64)
    k0, k1 = seed_words(0)
    t = [np.uint64(round(65536 * p)) for p in (0.5, 0.8, 0.95)]
    draws_cpu.rmat_keys(0, len(keys), k0, k1, identity, 1, *t, np.uint64(1), False, 0, 2, keys)
    shares = np.bincount(keys, minlength=4) / len(keys)  # key = dst << 1 | src
    assert shares == pytest.approx([0.5, 0.15, 0.3, 0.05], abs=0.005)


def test_rmat_with_a_number_of_edges_and_other_shapes():
    g = rmat(5000, num_edges=60_001, seed=1)
    assert abs(g.num_edges - 60_001) <= 1 and is_symmetric(g)
    directed = rmat(5000, num_edges=60_001, undirected=False)
    assert directed.num_edges == 60_001 and not is_symmetric(directed)
    assert rmat(100, 50).num_edges <= 100
    weighted = rmat(100, 500, weighted=True)
    assert weighted.edge_weight.shape == (weighted.num_edges,)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "match"),
    [
        ((1,), {}, ValueError, "num_nodes must be between 2 and"),
        ((2.5,), {}, TypeError, "num_nodes must be an integer"),
        ((10, 0), {}, ValueError, "num_draws must be between 1 and"),
        ((10, 5), {"num_edges": 5}, ValueError, "not both"),
        ((10,), {"num_edges": 50}, ValueError, "num_edges must be at most a quarter of all pairs, 22"),
        ((10,), {"probabilities": (0.9, 0.2, 0.1)}, ValueError, "probabilities must be three shares"),
        ((10,), {"seed": "x"}, TypeError, "seed must be an integer"),
        ((10,), {"device": "x"}, ValueError, "device must be"),
    ],
)
def test_bad_rmat_arguments(args, kwargs, error, match):
    with pytest.raises(error, match=match):
        rmat(*args, **kwargs)


@pytest.mark.parametrize(
    ("num_nodes", "num_edges", "probabilities", "undirected", "most"),
    [
        (256, 10_000, (0.6, 0.2, 0.2), True, 3**8),  # three quadrants, which are those of the reversed edges
        (256, 6562, (0.6, 0.2, 0.2), False, 3**8),
        (256, 12_867, (0.6, 0.2, 0), True, 2 * 3**8 - 2**8),
        (1000, 100_000, (0.5, 0.25, 0.25), True, 3**10),
        (1000, 3000, (1, 0, 0), True, 1),
        (1000, 3000, (0, 1, 0), True, 2),
        (1000, 3000, (0.5, 0, 0), False, 2**10),
        (1000, 3000, (0.5, 0.5, 0), True, 2**11 - 1),
        (1000, 3000, (0, 0.5, 0.5), True, 2**10),
    ],
)
def test_rmat_refuses_more_edges_than_its_quadrants_give(
    num_nodes, num_edges, probabilities, undirected, most
):
    with pytest.raises(
        ValueError, match=rf"num_edges must be at most {most} .*num_edges={num_edges}, probabilities="
    ):
        rmat(num_nodes, num_edges=num_edges, probabilities=probabilities, undirected=undirected)
    if num_nodes == 256:  # a power of two: no two ranks are one vertex, and the bound is exact
        every = rmat(num_nodes, 2**21, probabilities=probabilities, undirected=undirected)
        assert 0.95 * most < every.num_edges <= most


def test_rmat_gives_up_where_new_edges_are_too_rare():
    with pytest.raises(
        ValueError, match=r"num_edges must be fewer .*num_edges=3000, probabilities=\(0\.999, "
    ):
        rmat(1000, num_edges=3000, probabilities=(0.999, 0.0003, 0.0003))
    assert rmat(1000, num_edges=2**9, probabilities=(0.5, 0.25, 0.25)).num_edges >= 2**9


def test_the_catalogues_rmat_scales():
    g = load("rmat", scale=2**-8, use_cache=False)
    assert g.num_nodes == 2**13 and g.name == "rmat" and g.title == "rmat (synthetic)"
    assert abs(load("rmat-papers100M", scale=1e-4, use_cache=False).num_edges - 161_569) <= 1


def test_random_weights_stay_below_their_end():
    """Float32 rounds the last steps of a narrow interval of large numbers up to its end."""
    g = rmat(2**12, seed=3)
    for low, high in ((1.0, 5.0), (1000.0, 1001.0), (1e6, 1e6 + 1)):
        w = random_weights(g, low=low, high=high).edge_weight
        assert w.min() >= np.float32(low) and w.max() < np.float32(high) and w.dtype == np.float32


def test_random_weights_depend_on_the_pair_alone():
    g = Graph.from_edges([0, 0, 1, 2], [1, 1, 0, 1], 3)
    w = random_weights(g, seed=1)
    assert w.edge_weight.dtype == np.float32 and bool(((w.edge_weight >= 1) & (w.edge_weight < 5)).all())
    assert w.edge_weight[1] == w.edge_weight[2] != w.edge_weight[3]  # parallel 0 -> 1, and 2 -> 1
    alone = random_weights(Graph.from_edges([2], [1], 3), seed=1)
    assert alone.edge_weight[0] == w.edge_weight[3]
    many = random_weights(make("arxiv-like", 0.05, features=False), low=0.0, high=2.0).edge_weight
    assert abs(float(many.mean()) - 1) < 0.02 and float(many.min()) >= 0 and float(many.max()) < 2
    with pytest.raises(ValueError, match="low must be at least 0 and below 2"):
        random_weights(g, low=3, high=2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("low", "high", "match"),
    [
        (1, 1e60, r"high must be .* \(got 1e\+60\)"),
        (1, 1 + 1e-9, r"low must be below high as float32, too \(got low=1\.0, high=1\.000000001\)"),
        (0, 1e-60, "low must be below high as float32, too"),
    ],
)
def test_weights_that_float32_cannot_hold_are_refused(low, high, match):
    g = Graph.from_edges([0, 0, 1], [1, 2, 0], 3)
    with pytest.raises(ValueError, match=match):
        random_weights(g, low=low, high=high)
    assert np.isfinite(random_weights(g, low=0, high=3e38).edge_weight).all()


@pytest.mark.parametrize(("name", "scale", "seed"), RECORDED)
def test_generated_graphs_are_the_recorded_ones(name, scale, seed):
    assert make(name, scale, seed, weighted=True).digest() == RECORDED[name, scale, seed]


def test_generated_rmat_is_the_recorded_one():
    assert rmat(2**13, seed=1).digest() == RECORDED_RMAT


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "scale", "seed"), RECORDED)
def test_the_gpu_generates_the_recorded_graphs(name, scale, seed):
    g = make(name, scale, seed, weighted=True, device="cuda")
    assert g.device == "cuda" and g.digest() == RECORDED[name, scale, seed]
    on_host = make(name, scale, seed, weighted=True)
    assert on_host.device == "cpu" and on_host.digest() == g.digest()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["arxiv-like", "yelp-like"])
@pytest.mark.parametrize("budget", [None, 200_000, 30_000])
def test_the_gpu_gives_the_same_edges_in_any_number_of_passes(name, budget, monkeypatch):
    from gnnsample_lab.graph.edgewise.backend_gpu import GpuBackend

    plan = synthetic.twin_plan(catalogue.entry(name), 0.1, 0)
    expected = assemble(plan, CpuBackend())
    monkeypatch.setattr(GpuBackend, "chunk", 100_001)
    got = assemble(plan, GpuBackend(max_keys=budget))
    assert np.array_equal(got[0].get(), expected[0]) and np.array_equal(got[1].get(), expected[1])


@pytest.mark.gpu
def test_rmat_is_the_same_on_the_gpu():
    g = rmat(2**13, seed=1, device="cuda")
    assert g.device == "cuda" and g.digest() == RECORDED_RMAT


@pytest.mark.gpu
def test_whole_arxiv_twin_is_the_same_on_the_gpu():
    on_gpu = make("arxiv-like", 1.0, weighted=True, device="cuda")
    entry = catalogue.entry("arxiv-like")
    plan = synthetic.twin_plan(entry, 1.0, 0)
    indptr, indices = assemble(plan, CpuBackend())
    label = synthetic._labels(CpuBackend(), plan)
    assert np.array_equal(on_gpu.indptr.get(), indptr) and np.array_equal(on_gpu.indices.get(), indices)
    assert np.array_equal(on_gpu.label.get(), label)
    assert np.array_equal(on_gpu.feat.get(), CpuBackend().features(label, 40, 128, 0))


@pytest.mark.gpu
def test_a_graph_larger_than_the_gpu_is_refused_and_made_on_the_cpu_otherwise(monkeypatch):
    from gnnsample_lab.device import runtime

    monkeypatch.setattr(runtime, "gpu_memory", lambda: (2**20, 2**30))
    with pytest.raises(MemoryError, match=r"needs about .* on the GPU, which has 1.00 MiB free of 1.00 GiB"):
        make("arxiv-like", 0.1, device="cuda")
    assert make("arxiv-like", 0.02).device == "cpu"


@pytest.mark.gpu
@pytest.mark.slow
def test_papers100m_sized_rmat_is_generated_within_the_gpu():
    import cupy

    free, _ = cupy.cuda.Device().mem_info
    if free < 24 * 2**30:
        pytest.skip("needs 24 GiB of free GPU memory")
    g = load("rmat-papers100M", device="cuda")
    assert g.num_nodes == 111_059_956 and abs(g.num_edges - 1_615_685_872) <= 1
    assert int(g.indptr[-1]) == g.num_edges and bool((g.in_degrees() >= 0).all())
    src, dst = g.indices[:1000], int(g.indptr[1])
    assert bool((src >= 0).all()) and dst >= 0


def test_splits_may_lie_in_a_few_classes():
    g = make("papers100M-like", 0.001)
    everywhere = set(range(g.num_classes))
    for split in ("train", "valid", "test"):
        assert set(g.label[g.splits[split]]) <= set(range(g.num_classes - 16, g.num_classes))
    assert set(g.label) == everywhere
    spread = make("twitter-like", 0.001)
    assert set(spread.label[spread.splits["train"]]) > set(range(spread.num_classes // 2))
