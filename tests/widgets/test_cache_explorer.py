"""The cache explorer: controls are moved, plotted values compared with the library's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import CacheExplorer, caching
from gnnsample_widgets.explorers.features.distances import hops_from

import gnnsample_lab as lab
from gnnsample_lab import figures
from tests.conftest import absent
from tests.widgets.checks import check_code, check_controls, check_figures
from tests.widgets.oracle import difference, values
from tests.widgets.oracle_caching import ORACLES

MOVES: dict[str, list[Any]] = {
    "ratio_percent": [30, 1, 100],
    "num_train": [512],
    "where": ["anywhere"],
    "sampler": ["2 hops: 25, 10", "3 hops, weighted", "PinSAGE walks"],
    "batch_size": [128],
    "presampled": [3],
    "policy": ["presample-shrunk", "reverse-pagerank", "random"],
    "upright": ["reads in training (Optimal)"],
    "num_features": [512],
    "seed": [7],
}


@pytest.fixture(scope="module")
def graph() -> lab.Graph:
    return lab.load("arxiv-like", scale=0.02, use_cache=False)


def check(explorer: CacheExplorer, graph: lab.Graph) -> None:
    check_figures(explorer, graph, ORACLES)


@pytest.mark.slow
def test_every_control_redraws_what_the_library_computes(graph: lab.Graph) -> None:
    explorer = CacheExplorer(graph, device="cpu")
    assert set(MOVES) == set(explorer.controls)
    check_controls(explorer, MOVES, lambda: check(explorer, graph))


@pytest.mark.parametrize("which", [None, 0, 1, 2], ids=str)
def test_the_code_reproduces_the_figures(which: int | None, graph: lab.Graph) -> None:
    explorer = CacheExplorer(graph, device="cpu")
    if which is not None:
        explorer.set(**{name: wanted[which % len(wanted)] for name, wanted in MOVES.items()})
    check_code(explorer, graph)


def test_every_figure_names_graph_training_set_and_origin(graph: lab.Graph) -> None:
    explorer = CacheExplorer(graph, device="cpu")
    for name, figure in explorer.figures.items():
        for words in (
            "arxiv-like (synthetic)",
            "1,024 training vertices",
            "16 batches",
            "sampled on the CPU",
        ):
            assert words in figure.layout.title.text, name
    assert explorer.batch_size == 64
    explorer.batch_size = 1024
    assert "1 batch an epoch" in explorer.figures["rates"].layout.title.text


def test_small_graphs_without_splits_labels_and_features_work() -> None:
    few = lab.Graph.from_edges([1, 2, 3, 0], [0, 0, 1, 2], num_nodes=40, name="few")
    explorer = CacheExplorer(few, device="cpu")
    check(explorer, few)
    assert explorer.where == "anywhere" and explorer.num_train == explorer.batch_size == 40


@pytest.fixture(scope="module")
def whole() -> lab.Graph:
    return lab.load("arxiv-like", features=False)


def test_no_slider_asks_for_more_than_128_batches_an_epoch(whole: lab.Graph) -> None:
    explorer = CacheExplorer(whole, device="cpu")
    sizes, batches = (explorer.controls[name].options for name in ("num_train", "batch_size"))
    assert max(sizes) / min(batches) == 128


def test_a_training_set_in_a_corner_is_where_degree_fails(whole: lab.Graph) -> None:
    """What the notebook teaches must be what the explorer shows."""
    explorer = CacheExplorer(whole, device="cpu", batch_size=128)

    def at_ten_percent() -> dict[str, float]:
        return {t.name: t.y[10] for t in explorer.figures["rates"].data if len(t.y) > 1}

    corner = at_ten_percent()
    explorer.where = "anywhere"
    spread = at_ten_percent()
    for rates in (corner, spread):
        assert rates["Random"] < rates["Degree"] < rates["PreSC#1"] < rates["Optimal"]
    assert corner["Degree"] / corner["Optimal"] < spread["Degree"] / spread["Optimal"] - 0.1
    assert corner["PreSC#1"] > 0.8 * corner["Optimal"]


@pytest.mark.parametrize("name", ["arxiv-like", "ogbl-ddi", "musae-facebook"])
def test_it_opens_where_degree_and_presampling_differ(name: str) -> None:
    try:
        explorer = CacheExplorer(lab.load(name, features=False), device="cpu")
    except LookupError as error:
        absent(str(error))
    at = explorer.ratio_percent
    rates = {t.name: t.y[at] for t in explorer.figures["rates"].data if len(t.y) > 1}
    assert rates["PreSC#1"] > rates["Degree"] + 15, "points of hit rate"
    names = [t.name.split(": ") for t in explorer.figures["vertices"].data]
    share = {name: int(text.split("%")[0]) for name, text in names}
    assert share["only PreSC#1"] > share["only Degree"] + 14, "percent of the reads"


def test_a_vertex_tells_why_it_is_hot(graph: lab.Graph) -> None:
    explorer = CacheExplorer(graph, device="cpu", ratio_percent=10)
    seeds = set(caching.training_set(graph, explorer.num_train, explorer.where).tolist())
    cached = lab.hotness(graph, "degree").order[: round(0.1 * graph.num_nodes)].tolist()
    shown = 0
    for trace in explorer.figures["vertices"].data:
        for (vertex, degree, _, _), text in zip(trace.customdata, trace.text, strict=True):
            where, by = text.split("<br>")
            assert degree == int((graph.indices == vertex).sum())
            assert (where == "in the training set") == (vertex in seeds)
            assert ("Degree" in by.removeprefix("cached by ").split(", ")) == (vertex in cached)
            shown += 1
    assert 500 < shown < graph.num_nodes


def test_hops_from_the_training_set() -> None:
    # 0 <- 1 <- 2 <- 3 <- 4, and 5 by itself; sampling goes against the edges.
    line = lab.Graph.from_edges([1, 2, 3, 4], [0, 1, 2, 3], num_nodes=6)
    assert hops_from(line, np.array([0]), 3).tolist() == [0, 1, 2, 3, 4, 4]
    assert hops_from(line, np.array([0, 2]), 3).tolist() == [0, 1, 0, 1, 2, 4]
    assert hops_from(line, np.array([0, 0]), 1).tolist() == [0, 1, 2, 2, 2, 2]


def test_looking_does_not_sample_again(graph: lab.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = CacheExplorer(graph, device="cpu")
    monkeypatch.setattr(lab.NeighborSampler, "epoch", None)
    explorer.ratio_percent = 50
    explorer.num_features = 32
    explorer.policy = "random"
    explorer.policy = "reverse-pagerank"
    explorer.upright = "reads in training (Optimal)"
    assert explorer.error == "" and explorer.run_count == 6
    explorer.presampled = 2
    assert explorer.error, "more epochs ahead have to be sampled"


def test_the_summary_says_what_the_bars_show(graph: lab.Graph) -> None:
    explorer = CacheExplorer(graph, device="cpu", ratio_percent=100)
    assert "100\u00a0% of what is possible" in explorer._summary.value
    assert list(explorer.figures["bytes"].data[0].x)[1:] == [0] * 5
    explorer.ratio_percent = 10
    bars = dict(zip(explorer.figures["bytes"].data[0].y, explorer.figures["bytes"].data[0].x, strict=True))
    left = 1 - bars["Degree"] / bars["no cache"]
    assert f"<b>Degree</b> hits {100 * left:.0f}\u00a0%" in explorer._summary.value


def test_where_no_cache_can_hit_no_share_of_what_is_possible_is_named() -> None:
    few = lab.Graph.from_edges([1, 2, 3, 0], [0, 0, 1, 2], num_nodes=40, name="few")
    explorer = CacheExplorer(few, device="cpu", ratio_percent=1)
    assert explorer.error == "" and "hits 0\u00a0%; " in explorer._summary.value
    assert "of what is possible" not in explorer._summary.value


def test_training_sets(graph: lab.Graph) -> None:
    train = graph.splits["train"]
    for where in ("anywhere", "in a few classes"):
        seeds = caching.training_set(graph, 300, where, seed=3)
        assert len(np.unique(seeds)) == 300 and np.isin(seeds, train).all() and (np.diff(seeds) > 0).all()
        assert np.array_equal(seeds, caching.training_set(graph, 300, where, seed=3))
        assert not np.array_equal(seeds, caching.training_set(graph, 300, where, seed=4))
    near, spread = (
        set(graph.label[caching.training_set(graph, 300, where)].tolist())
        for where in ("in a few classes", "anywhere")
    )
    assert near == set(range(max(near) + 1)) and len(near) < len(spread) / 2
    bare = lab.Graph.from_edges([0, 1], [1, 2])
    assert caching.training_set(bare, 10, "in a few classes").tolist() == [0, 1, 2]


def test_weights_of_the_graph_are_kept(graph: lab.Graph) -> None:
    weighted = caching.with_weights(graph)
    assert weighted.edge_weight is not None and graph.edge_weight is None
    assert caching.with_weights(weighted) is weighted


def test_counted_hit_rates_are_those_of_a_feature_cache(graph: lab.Graph) -> None:
    explorer = CacheExplorer(graph, device="cpu", num_features=64, ratio_percent=10)
    seeds = caching.training_set(graph, explorer.num_train, explorer.where)
    sampler = lab.NeighborSampler(graph, [15, 10, 5], device="cpu")
    cache = lab.FeatureCache(
        np.zeros((graph.num_nodes, 64), np.float32), lab.hotness(graph, "degree"), ratio=0.1, device="cpu"
    )
    moved = [
        cache.extract(batch.node_ids)[1].bytes_moved
        for epoch in range(2)
        for batch in sampler.epoch(seeds, explorer.batch_size, epoch=epoch)
    ]
    bars = explorer.figures["bytes"].data[0]
    shown = dict(zip(bars.y, bars.x, strict=True))
    assert "(kB)" in explorer.figures["bytes"].layout.xaxis.title.text
    assert shown["Degree"] * 1e3 == pytest.approx(np.mean(moved))
    assert figures.cached_mask(lab.hotness(graph, "degree").order, 0.1).sum() == cache.num_cached


@pytest.mark.gpu
def test_on_a_gpu(graph: lab.Graph) -> None:
    cpu = CacheExplorer(graph, device="cpu")
    explorer = CacheExplorer(graph, device="cuda", raise_errors=True)
    for changed in ({}, {"sampler": "3 hops, weighted"}, {"sampler": "PinSAGE walks"}):
        cpu.set(**changed)
        explorer.set(**changed)
        for name, figure in explorer.figures.items():
            assert not difference(values(figure), values(cpu.figures[name])), name
            assert "sampled on the GPU" in figure.layout.title.text
        namespace: dict[str, Any] = {"g": graph}
        exec(compile(explorer.code, "<handed over>", "exec"), namespace)
        assert list(namespace["shown"]) == list(explorer.figures)
