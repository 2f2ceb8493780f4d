"""Hotness policies, footprints, epoch similarity, hit rates."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.features.ranking.footprint import Footprint, top_accessed
from gnnsample_lab.features.ranking.hotness import PRESAMPLE_BATCH_ID, hottest_first
from gnnsample_lab.features.ranking.pagerank import reverse_pagerank
from tests.minibatch import reference
from tests.minibatch.conftest import random_graph, with_wide_ids

TRAIN = np.arange(0, 100, 3)


@pytest.fixture(scope="module")
def graph():
    return random_graph(1, splits={"train": TRAIN})


@pytest.fixture
def sampler(graph):
    return lab.NeighborSampler(graph, [3, 2], device="cpu", seed=4)


def made_up(*visits: int) -> Footprint:
    return Footprint(np.array(visits, dtype=np.int64), 1, sum(visits))


def test_a_footprint_counts_mini_batches(graph, sampler):
    batches = list(sampler.epoch(TRAIN, 10))
    found = lab.footprint(batches)
    expected = [sum(v in b.node_ids for b in batches) for v in range(graph.num_nodes)]
    assert found.visits.tolist() == expected and found.visits.dtype == np.int64
    assert found.num_batches == len(batches) == 4
    assert found.num_rows == sum(b.num_nodes for b in batches) == found.visits.sum()
    arrays = lab.footprint([b.node_ids for b in batches], num_nodes=graph.num_nodes)
    assert (arrays.visits == found.visits).all()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.uint64])
def test_ids_that_are_repeated_in_a_batch_count_once(device, dtype):
    batches = [np.array(ids, dtype) for ids in ([1, 1, 2], [2], [], [0, 2, 0, 2])]
    if device == "cuda":
        import cupy

        batches = [cupy.asarray(ids) for ids in batches]
    found = lab.footprint(batches, num_nodes=3)
    assert found.visits.tolist() == [1, 1, 3]
    assert (found.num_batches, found.num_rows) == (4, 5)


def test_a_batch_may_be_empty(graph):
    assert repr(lab.footprint([[]], num_nodes=3)) == "Footprint(1 batches, 0 rows, 0 of 3 nodes)"
    assert lab.footprint([[], [1, 2]], num_nodes=3).visits.tolist() == [0, 1, 1]
    assert not lab.hotness(graph, "optimal", batches=[[]]).score.any()


@pytest.mark.parametrize("make", [
    lambda g: lab.NeighborSampler(g, [3, 2], device="cpu"),
    lambda g: lab.NeighborSampler(g, [3, 2], weighted=True, device="cpu"),
    lambda g: lab.PinSAGESampler(g, num_layers=2, device="cpu"),
])  # fmt: skip
def test_a_sampler_runs_its_epochs(graph, make):
    sampler = make(graph)
    found = lab.footprint(sampler, TRAIN, 10, epochs=2, first_epoch=3)
    apart = [lab.footprint(sampler.epoch(TRAIN, 10, epoch=e)) for e in (3, 4)]
    assert (found.visits == (apart[0] + apart[1]).visits).all()
    assert found.num_batches == 8 and found.num_rows == found.visits.sum()
    assert (apart[0].visits != apart[1].visits).any()
    default = lab.footprint(sampler, batch_size=10, epochs=2, first_epoch=3)
    assert (default.visits == found.visits).all()


def test_scores_of_the_policies(graph, sampler):
    degree = lab.hotness(graph, "degree")
    assert (degree.score == np.bincount(graph.indices, minlength=120)).all() and degree.label == "Degree"
    seen = lab.footprint(sampler, TRAIN, 10, epochs=2)
    for source in (seen, list(sampler.epoch(TRAIN, 10)), [np.array([1, 2]), np.array([2])]):
        optimal = lab.hotness(graph, "optimal", batches=source)
        assert (optimal.score == lab.footprint(source, num_nodes=120).visits).all()
    for epochs in (1, 2):
        first = PRESAMPLE_BATCH_ID // 4
        fresh = lab.footprint(sampler, TRAIN, 10, epochs=epochs, first_epoch=first)
        found = lab.hotness(graph, "presample", sampler, TRAIN, 10, epochs=epochs)
        assert found.label == f"PreSC#{epochs}" and (found.score == fresh.visits / epochs).all()
    assert (lab.hotness(graph, sampler=sampler, batch_size=10).score == lab.hotness(
        graph, "presample", sampler, TRAIN, 10).score).all()  # fmt: skip


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("epochs", [1, 3])
def test_presc_is_a_count_in_a_dictionary(graph, epochs, weighted):
    """GNNLab's PreSC#K: the mini-batches of K epochs that need a vertex, over K. Samples are the plain reference's.

    The cache holds the vertices with the highest counts; of equal ones those whose features more vertices read.
    """
    sampler = lab.NeighborSampler(graph, [3, 2], weighted=weighted, device="cpu", seed=5)
    found = lab.hotness(graph, "presample", sampler, TRAIN, 10, epochs=epochs)
    count: Counter[int] = Counter()
    for epoch in range(epochs):
        for batch in sampler.epoch(TRAIN, 10, epoch=PRESAMPLE_BATCH_ID // 4 + epoch):
            seeds, number = batch.seeds.tolist(), batch.batch_id
            count.update(reference.sample(graph, seeds, [3, 2], number, seed=5, weighted=weighted).nodes)
    assert found.score.tolist() == [count[v] / epochs for v in range(graph.num_nodes)]
    readers = Counter(graph.indices.tolist())
    ranked = sorted(range(graph.num_nodes), key=lambda v: (-count[v], -readers[v], v))
    assert found.order.tolist() == ranked
    cache = lab.FeatureCache(np.zeros((graph.num_nodes, 3), np.float32), found, ratio=0.25, device="cpu")
    assert sorted(cache.cached_ids.tolist()) == sorted(ranked[: graph.num_nodes // 4])


def poisson_epochs(rng, expected, count):
    """Epochs in which each vertex is visited independently of the others."""
    return [Footprint(rng.poisson(expected), 1000, 0) for _ in range(count)]


def test_shrinking_takes_out_chance_and_keeps_signal():
    from gnnsample_lab.features.ranking.hotness import shrunk_visits

    rng = np.random.default_rng(3)
    degrees = np.repeat([1, 2, 8, 0], 5000)
    truth = np.repeat([1.0, 2.0, 8.0, 0.0], 5000)
    for count in (2, 5):
        noisy = poisson_epochs(rng, truth, count)
        plain, found = sum(each.visits for each in noisy) / count, shrunk_visits(noisy, degrees) / count
        assert ((found - truth) ** 2).mean() < 0.05 * ((plain - truth) ** 2).mean()
    mixed = truth * np.where(np.arange(20_000) % 2, 0.02, 40)  # within a degree, a factor of 2000
    strong = poisson_epochs(rng, mixed, 2)
    assert np.corrcoef(shrunk_visits(strong, degrees), sum(s.visits for s in strong))[0, 1] > 0.999
    nothing = [Footprint(np.zeros(4, np.int64), 1, 0)] * 2
    assert (shrunk_visits(nothing, np.array([0, 1, 2, 3])) == 0).all()
    with pytest.raises(ValueError, match="of one graph"):
        shrunk_visits(noisy, degrees[:5])


def test_what_is_needed_once_an_epoch_is_no_chance():
    """A vertex near one seed is in the mini-batch of that seed alone, in every epoch."""
    from gnnsample_lab.features.ranking.hotness import shrunk_visits

    rng = np.random.default_rng(4)
    degrees = rng.integers(4, 64, 10_000)
    near = rng.random(10_000) < 0.1
    epochs = [Footprint((near & (rng.random(10_000) < 0.9)).astype(np.int64), 8, 0) for _ in range(2)]
    score = shrunk_visits(epochs, degrees)
    assert score[near].mean() > 0.85 * 1.8 and set(np.argsort(-score)[:900]) <= set(np.flatnonzero(near))


def test_shrunk_hotness_is_the_shrunk_presample(graph, sampler):
    from gnnsample_lab.features.ranking.hotness import shrunk_visits

    first = PRESAMPLE_BATCH_ID // 4
    seen = [lab.footprint(sampler, TRAIN, 10, first_epoch=first + epoch) for epoch in range(3)]
    for epochs, label in ((1, "PreSC#2 shrunk"), (2, "PreSC#2 shrunk"), (3, "PreSC#3 shrunk")):
        found = lab.hotness(graph, "presample-shrunk", sampler, TRAIN, 10, epochs=epochs)
        count = max(2, epochs)
        assert found.label == label
        assert (found.score == shrunk_visits(seen[:count], graph.out_degrees()) / count).all()


@pytest.mark.parametrize("seeds", [20, 80])
def test_shrinking_serves_a_small_training_set_as_counting_does(seeds):
    """It once took need for chance: no mini-batch of an epoch has the seeds of another."""
    graph = lab.load("arxiv-like", scale=0.05, features=False)
    train = np.random.default_rng(1).choice(graph.splits["train"], seeds, replace=False)
    sampler = lab.NeighborSampler(graph, [10, 5], device="cpu", seed=3)
    read = lab.footprint(sampler, train, 10, epochs=4)
    rates = {
        policy: lab.hit_rate(lab.hotness(graph, policy, sampler, train, 10, epochs=2), read, 0.05)
        for policy in ("degree", "presample", "presample-shrunk")
    }
    assert rates["presample-shrunk"] >= max(rates.values()) - 0.02
    assert rates["presample-shrunk"] > rates["degree"] + 0.05


def test_presampling_never_draws_what_training_draws(graph):
    class Spy:
        def __init__(self, sampler):
            self.sampler, self.graph, self.ids = sampler, sampler.graph, []

        def epoch(self, *args, **options):
            inner = self.sampler.epoch(*args, **options)
            if options.get("prefetch"):
                self.ids += [b.batch_id for b in inner]
            return inner

    for size in (1, 7, 1000):
        spy = Spy(lab.NeighborSampler(graph, [2], device="cpu"))
        lab.hotness(graph, "presample", spy, TRAIN, size, epochs=3)
        assert len(spy.ids) == 3 * -(-len(TRAIN) // size) == len(set(spy.ids))
        assert min(spy.ids) >= PRESAMPLE_BATCH_ID


def test_random_is_a_permutation_of_its_seed(graph):
    orders = [lab.hotness(graph, "random", seed=s).order for s in (0, 0, 1, 2**64 - 1)]
    assert (orders[0] == orders[1]).all()
    assert (orders[0] != orders[2]).any() and (orders[2] != orders[3]).any()
    assert all(sorted(o.tolist()) == list(range(120)) for o in orders)
    big = lab.hotness(lab.load("arxiv-like", scale=0.05, features=False, use_cache=False), "random")
    tenth = big.order[: len(big) // 10]
    assert abs(tenth.mean() / len(big) - 0.5) < 0.05


def test_ties_go_by_degree_then_id():
    order = hottest_first(np.array([1.0, 2.0, 1.0, 1.0, 2.0]), np.array([5, 0, 9, 5, 0]))
    assert order.tolist() == [1, 4, 2, 0, 3]


def test_degrees_are_this_graphs_wherever_the_sampler_has_another(graph):
    """Another graph of as many vertices and edges is another graph."""
    other = SimpleNamespace(
        device="cuda", num_nodes=graph.num_nodes, num_edges=graph.num_edges,
        out_degrees=lambda: pytest.fail("these are another graph's"),
    )  # fmt: skip
    found = lab.hotness(graph, "degree", sampler=SimpleNamespace(graph=other))
    assert np.array_equal(found.score, graph.out_degrees())


@pytest.mark.parametrize("highest", [1, 9, 70_000, 2**40])
@pytest.mark.parametrize("unit", [1.0, 1 / 3])
def test_any_scores_are_ordered_as_by_comparing(highest: int, unit: float) -> None:
    rng = np.random.default_rng(highest)
    score, degrees = rng.integers(-1, highest, 999) * unit, rng.integers(0, highest, 999)
    assert (hottest_first(score, degrees) == np.lexsort((-degrees, -score))).all()
    assert hottest_first(score[:0], degrees[:0]).size == 0


@pytest.mark.parametrize("n", [1, 2, 3, 2000])
@pytest.mark.parametrize("most", [1, 6, 1 << 40])  # keys of 63 bits do not hold the largest
@pytest.mark.parametrize("kind", ["distinct", "half zero", "halves", "negative"])
def test_scores_of_every_kind_are_ordered_as_documented(n, most, kind):
    rng = np.random.default_rng(n)
    score = {
        "distinct": lambda: rng.random(n),
        "half zero": lambda: np.where(rng.random(n) < 0.5, 0.0, rng.random(n)),
        "halves": lambda: rng.integers(0, 3, n) * 0.5,
        "negative": lambda: -rng.integers(0, 1 << 53, n).astype(np.float64),
    }[kind]()
    degrees = rng.integers(0, most, n)
    assert (hottest_first(score, degrees) == np.lexsort((np.arange(n), -degrees, -score))).all()


def test_a_hotness_is_an_array(graph):
    h = lab.hotness(graph, "degree")
    assert len(h) == 120 and np.asarray(h) is h.score and h[3] == h.score[3]
    assert np.asarray(h, dtype=np.float32).dtype == np.float32 and "Degree" in repr(h)
    assert h.order.dtype == np.int64 and (np.diff(h.score[h.order]) <= 0).all()


def test_reverse_pagerank_is_that_of_a_dense_matrix(graph):
    n, seeds = graph.num_nodes, np.array([3, 50, 51])
    src, dst = graph.edges()
    step = np.zeros((n, n))
    np.add.at(step, (src, dst), 1 / graph.in_degrees()[dst])
    damping = round(0.85 * 65536) / 65536
    for chosen in (None, seeds):
        start = np.full(n, 1 / n) if chosen is None else np.isin(np.arange(n), chosen) / 3
        p = start
        for _ in range(10):
            p = (1 - damping) * start + damping * step @ p
        found = reverse_pagerank(graph, chosen)
        assert np.allclose(found, p / p.sum(), rtol=1e-9, atol=1e-14)
    h = lab.hotness(graph, "reverse-pagerank", seeds=[50, 3, 51, 3])
    assert (h.score == reverse_pagerank(graph, seeds)).all()
    assert (lab.hotness(graph, "reverse-pagerank").score == reverse_pagerank(graph, TRAIN)).all()
    untrained = replace(graph, splits={"train": np.empty(0, np.int64)})
    assert (lab.hotness(untrained, "reverse-pagerank").score == reverse_pagerank(graph, None)).all()


def test_similarity_as_the_paper_defines_it():
    f = made_up(*([10, 8] + [1] * 18))  # top 10 % of 20 accessed vertices: the first two
    g = made_up(*([6, 0, 9] + [1] * 17), 0)
    g = Footprint(
        g.visits[:20], 1, int(g.visits[:20].sum())
    )  # 19 accessed: the top 10 % are vertices 2 and 0
    assert lab.epoch_similarity(f, g) == pytest.approx(6 / 18)
    assert lab.epoch_similarity(g, f) == pytest.approx(6 / 15)
    assert lab.epoch_similarity(f, f) == 1
    assert np.isnan(lab.epoch_similarity(made_up(0, 0), made_up(1, 1)))
    assert top_accessed(np.array([0, 3, 5, 3]), 0.5).tolist() == [2, 1]
    with pytest.raises(ValueError, match="top"):
        lab.epoch_similarity(f, f, top=0)
    with pytest.raises(ValueError, match="of one graph"):
        lab.epoch_similarity(f, made_up(1))


def test_hit_rates():
    f = made_up(1, 5, 0, 4)
    scores = np.array([0.0, 3.0, 9.0, 2.0])
    assert lab.hit_rate(scores, f, 0.25) == 0
    assert lab.hit_rate(scores, f, 0.5) == 0.5
    assert lab.hit_rate(scores, f, [0, 0.75, 1]).tolist() == [0, 0.9, 1]
    assert np.isnan(lab.hit_rate(scores, made_up(0, 0, 0, 0), 0.5))
    for bad in (-0.1, 1.1, [0.5, np.nan]):
        with pytest.raises(ValueError, match="ratio"):
            lab.hit_rate(scores, f, bad)
    with pytest.raises(ValueError, match="hotness must have one score per vertex"):
        lab.hit_rate(scores[:3], f, 0.5)


def test_optimal_is_the_ceiling_and_presampling_comes_near():
    """On the twin of a skewed directed graph, weighted by the year of the neighbour (GNNLab, figure 10)."""
    from gnnsample_lab.graph.recency import recency_weights

    g = recency_weights(lab.load("papers100M-like", scale=0.0005, features=False, use_cache=False))
    train = g.splits["train"]
    sampler = lab.NeighborSampler(g, [15, 10, 5], weighted=True, device="cpu")
    seen = lab.footprint(sampler, train, 8, epochs=5)
    policies = [lab.hotness(g, p, sampler, batch_size=8, batches=seen) for p in
                ("random", "degree", "presample", "optimal")]  # fmt: skip
    random, degree, presampled, optimal = (lab.hit_rate(h, seen, 0.1) for h in policies)
    assert random < degree < presampled <= optimal
    assert presampled > 0.9 * optimal and presampled > 1.15 * degree


def walks(graph, **more):
    class Walk(lab.SamplingApp):
        def next(self, s, transits, src_edges, step, rng):
            return src_edges[rng.below(len(src_edges))] if len(src_edges) else lab.NULL

        def steps(self):
            return 5

        def sample_size(self, step):
            return 1

    return lab.run_app(graph, Walk(), np.arange(3), device="cpu", **more)


def test_visits_of_walks(graph):
    result = walks(graph)
    found = lab.hotness(graph, "visits", walks=result)
    held = result.samples[result.samples >= 0]
    assert found.label == "Visits" and found.score.tolist() == np.bincount(held, minlength=120).tolist()
    assert found.order[0] in np.flatnonzero(found.score == found.score.max())


def test_bad_input(graph, sampler):
    bare = lab.Graph.from_edges([0], [1], 3)
    for arguments, error, text in [
        ({"policy": "oracle"}, ValueError, "policy must be one of"),
        ({"policy": "presample"}, ValueError, "sampler"),
        ({"policy": "optimal"}, ValueError, "batches"),
        ({"policy": "optimal", "batches": []}, ValueError, "at least one mini-batch"),
        ({"policy": "optimal", "batches": made_up(1, 2)}, ValueError, "120 nodes"),
        ({"policy": "optimal", "batches": [np.array([500])]}, ValueError, "ids in 0..119"),
        ({"policy": "presample", "sampler": sampler, "epochs": 0}, ValueError, "epochs"),
        ({"policy": "random", "seed": -1}, ValueError, "seed"),
        ({"policy": "visits"}, ValueError, "walks must be the result of run_app"),
        ({"policy": "visits", "walks": walks(bare)}, ValueError, "walks must be of graph's 120 nodes"),
        ({"policy": "reverse-pagerank", "seeds": [1000]}, ValueError, "seeds"),
    ]:
        with pytest.raises(error, match=text):
            lab.hotness(graph, **arguments)
    with pytest.raises(TypeError, match="graph"):
        lab.hotness(7)
    with pytest.raises(ValueError, match="training split"):
        lab.hotness(bare, sampler=lab.NeighborSampler(bare, [1], device="cpu"))
    with pytest.raises(ValueError, match="num_nodes"):
        lab.footprint([np.array([1])])
    with pytest.raises(TypeError, match="source"):
        lab.footprint(np.array([1]))
    with pytest.raises(TypeError, match="source must be integers"):
        lab.footprint([np.array([0.5])], num_nodes=3)


@pytest.mark.gpu
@pytest.mark.parametrize("wide", [False, True])
def test_the_gpu_counts_the_same(graph, wide):
    host = with_wide_ids(graph) if wide else graph
    for make in (
        lambda d: lab.NeighborSampler(host, [3, 2], weighted=True, device=d),
        lambda d: lab.PinSAGESampler(host, num_layers=2, device=d),
    ):
        cpu, gpu = make("cpu"), make("cuda")
        a, b = (lab.footprint(s, TRAIN, 10, epochs=3) for s in (cpu, gpu))
        assert (a.visits == b.visits).all() and (a.num_batches, a.num_rows) == (b.num_batches, b.num_rows)
        assert isinstance(b.visits, np.ndarray)
        pre = [lab.hotness(host, "presample", s, TRAIN, 10).order for s in (cpu, gpu)]
        assert (pre[0] == pre[1]).all()
    moved = host.to("cuda")
    for policy in ("random", "degree", "reverse-pagerank"):
        a, b = lab.hotness(host, policy), lab.hotness(moved, policy)
        assert (a.score == b.score).all() and (a.order == b.order).all()


@pytest.mark.gpu
def test_the_gpu_orders_the_same():
    rng = np.random.default_rng(1)
    n = (1 << 20) + 5
    score, degrees = rng.integers(0, 5, n).astype(np.float64), rng.integers(0, 9, n)
    assert (hottest_first(score, degrees) == np.lexsort((-degrees, -score))).all()


@pytest.mark.gpu
def test_counting_waits_for_mini_batches_and_graphs_of_another_stream(graph):
    """A stream that does not wait may count ids that are not written yet."""
    import cupy

    moved = graph.to("cuda")
    sampler = lab.NeighborSampler(moved, [3, 2], device="cuda", seed=4)
    batches = sampler.sample_many([TRAIN[:9], TRAIN[9:]])
    expected = lab.footprint(batches)
    other = cupy.cuda.Stream(non_blocking=True)
    with other:
        found = lab.hotness(moved, "optimal", batches=batches)
        lab.hotness(moved, "reverse-pagerank", seeds=TRAIN)
    assert (found.score == expected.visits).all()
    assert all(other.ptr in batch.ready.streams for batch in batches)


def test_visits_wait_for_the_walks(graph):
    walks = lab.run_app(graph, lab.apps.DeepWalk(4), TRAIN, device="cpu")
    orders = []
    late = replace(walks, ready=SimpleNamespace(order=lambda: orders.append(1)))
    assert lab.hotness(graph, "visits", walks=late).score.sum() and orders
