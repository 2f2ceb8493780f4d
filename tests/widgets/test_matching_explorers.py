"""The match, aggregation and training explorers: controls are moved, plotted values compared with the library's."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import traitlets
from gnnsample_widgets import AggregationExplorer, MatchExplorer, TrainingExplorer, training
from gnnsample_widgets.batches import draw_batches, feature_sources, groupings
from gnnsample_widgets.shell.explorer import Explorer

import gnnsample_lab as lab
from tests.widgets.checks import check_code, check_controls, check_figures
from tests.widgets.oracle import values
from tests.widgets.oracle_matching import ORACLES, sources

CASES: list[tuple[type[Explorer], dict[str, list[Any]]]] = [
    (
        MatchExplorer,
        {
            "batch_size": [16],
            "num_batches": [12, 8],
            "hops": [2],
            "fanout_1": [3],
            "fanout_2": [4],
            "fanout_3": [2],
            "grouping": ["by label", "by degree"],
            "method": ["two-opt", "exact"],
            "cache_percent": [20],
            "seed": [7],
            "batch_a": [8],
            "batch_b": [5, 8],
        },
    ),
    (
        AggregationExplorer,
        {
            "num_features": [16, 1024],
            "layer": [2],
            "batch_size": [64],
            "hops": [2],
            "fanout_1": [3],
            "fanout_2": [4],
            "fanout_3": [2],
            "memory": [],
            "seed": [7],
        },
    ),
]


@pytest.fixture(scope="module")
def graph() -> lab.Graph:
    return lab.load("arxiv-like", scale=0.02, use_cache=False)


def check(explorer: Explorer, graph: lab.Graph) -> None:
    check_figures(explorer, graph, ORACLES)


@pytest.mark.parametrize(("kind", "moves"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_every_control_redraws_what_the_library_computes(
    kind: type[Explorer], moves: dict[str, list[Any]], graph: lab.Graph
) -> None:
    explorer = kind(graph, device="cpu")
    assert set(moves) == set(explorer.controls)
    check_controls(explorer, moves, lambda: check(explorer, graph))


@pytest.mark.parametrize(("kind", "moves"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_the_code_reproduces_the_figures(
    kind: type[Explorer], moves: dict[str, list[Any]], graph: lab.Graph
) -> None:
    explorer = kind(graph, device="cpu")
    for _ in range(2):
        check_code(explorer, graph)
        explorer.set(**{name: wanted[0] for name, wanted in moves.items() if wanted})


def test_every_figure_names_graph_and_origin(graph: lab.Graph) -> None:
    words = {MatchExplorer: ("sampled on the CPU",), AggregationExplorer: ("modelled as RTX 3090", "counted")}
    for kind, origins in words.items():
        for name, figure in kind(graph, device="cpu").figures.items():
            title = figure.layout.title.text
            assert "arxiv-like (synthetic)" in title, name
            assert any(origin in title for origin in origins), name


@pytest.mark.parametrize("kind", [MatchExplorer, AggregationExplorer])
def test_small_graphs_without_splits_labels_and_features_work(kind: type[Explorer]) -> None:
    few = lab.Graph.from_edges([1, 2, 3, 0], [0, 0, 1, 2], num_nodes=40, name="few")
    explorer = kind(few, device="cpu")
    assert explorer.error == ""
    check(explorer, few)


@pytest.mark.parametrize("num_nodes", [1, 3, 4])
def test_a_graph_too_small_for_a_window_is_said_to_be(num_nodes: int) -> None:
    graph = lab.Graph.from_edges([0], [0], num_nodes, name="<b>tiny</b>")
    explorer = MatchExplorer(graph, device="cpu", raise_errors=True)
    explorer.hops, explorer.cache_percent = 1, 50
    if num_nodes < 4:
        assert (
            not explorer.figures
            and f"&lt;b&gt;tiny&lt;/b&gt; has {num_nodes} of them" in explorer._summary.value
        )
    else:
        assert len(explorer.figures) == 6


def test_the_exact_tour_is_kept_to_what_it_can_do(graph: lab.Graph) -> None:
    explorer = MatchExplorer(graph, device="cpu", batch_size=16, num_batches=24)
    explorer.method = "exact"
    assert explorer.error == "" and explorer.num_batches == explorer.controls["num_batches"].value == 16
    # The page does not take up a value that is set back: the slider must not go there in the first place.
    assert explorer.controls["num_batches"].max == 16
    assert explorer._summary.value.count("<b>exact</b>: at most 16 batches.") == 1
    with pytest.raises(traitlets.TraitError, match="from 4 to 16"):
        explorer.num_batches = 20
    explorer.method = "greedy"
    assert explorer.controls["num_batches"].max == 32 and "at most 16" not in explorer._summary.value
    explorer.num_batches = 20
    assert explorer.error == "" and len(explorer.figures["tour"].data[0].x) == 19
    explorer.set(method="exact", num_batches=12)
    explorer.set(method="two-opt", num_batches=24)
    assert explorer.error == "" and explorer.num_batches == 24


def click(explorer: MatchExplorer, panel: str, x: Any, y: Any) -> None:
    store = explorer.panels[panel].store
    store.clicked = {"trace": 0, "x": x, "y": y, "clicks": store.clicked.get("clicks", 0) + 1}


def test_a_click_on_a_cell_draws_its_two_batches(graph: lab.Graph) -> None:
    explorer = MatchExplorer(graph, device="cpu", batch_size=16)
    click(explorer, "degrees", 4, 2)
    assert (explorer.batch_a, explorer.batch_b, explorer.run_count) == (3, 5, 2)
    assert explorer.controls["batch_a"].value == 3
    check(explorer, graph)
    order = explorer.figures["reordered"].layout.xaxis.ticktext
    click(explorer, "reordered", 2, 0)  # every second batch has its number at the axis
    assert (explorer.batch_a, explorer.batch_b) == (1, int(order[1]))
    check(explorer, graph)
    runs = explorer.run_count
    click(explorer, "strips", 1, 5)
    click(explorer, "degrees", 99, 0)
    assert explorer.run_count == runs and explorer.error == ""


def test_a_pair_outside_the_window_moves_into_it(graph: lab.Graph) -> None:
    explorer = MatchExplorer(graph, device="cpu", batch_size=16, batch_b=16)
    explorer.num_batches = 8
    assert explorer.error == "" and explorer.batch_b == explorer.controls["batch_b"].value == 8
    with pytest.raises(traitlets.TraitError, match="from 1 to 8"):
        explorer.batch_a = 9


def test_a_tour_that_copies_more_is_called_by_its_name(graph: lab.Graph) -> None:
    explorer = MatchExplorer(graph, device="cpu")
    rows = {"each by itself": (0, 0, 100), "match": (40, 0, 60), "match, greedy": (34, 0, 66)}
    text = explorer._summary_of(
        np.array([[1, 0.2, 0.3], [0.2, 1, 0.2], [0.3, 0.2, 1]]), np.array([0, 2, 1]), rows
    )
    assert "10.0\u00a0% more" in text
    rows["match, greedy"] = (46, 0, 54)
    text = explorer._summary_of(np.eye(3) + 0.2, np.arange(3), rows)
    assert "saves <b>10.0\u00a0%</b> of what was left" in text


def test_what_match_saves_is_beside_the_cache(graph: lab.Graph) -> None:
    explorer = MatchExplorer(graph, device="cpu")
    counts = {
        "each by itself": 100,
        "match": 60,
        "match, greedy": 54,
        "cache": 50,
        "cache, match": 40,
        "all": 38,
    }
    rows = {name: (0, 0, misses) for name, misses in counts.items()}
    text = explorer._summary_of(np.eye(3) + 0.2, np.arange(3), rows)
    assert (
        "Beside the cache Match saves <b>20.0\u00a0%</b>" in text
        and "saves <b>5.0\u00a0%</b> of what" in text
    )


def test_a_tour_is_not_said_to_gain_what_it_loses(graph: lab.Graph) -> None:
    explorer = MatchExplorer(graph, device="cpu", num_batches=4, batch_size=32, hops=1, seed=57)
    sampler = lab.NeighborSampler(graph, [explorer.fanout_1], seed=57, device="cpu")
    window = sampler.sample_many(draw_batches(graph, 4, 32, seed=57))
    degrees, straight = lab.match_degrees(window), np.arange(4)
    order = lab.reorder(degrees, method="greedy")
    assert lab.path_score(degrees, order) < lab.path_score(degrees, straight), "greedy looks one step ahead"
    ids = [set(batch.node_ids.tolist()) for batch in window]
    assert sources(ids, order, set())[2] > sources(ids, straight, set())[2]
    text = explorer._summary.value
    assert "lowers the mean to" in text and "more</b>: the order as sampled was the better one" in text
    explorer.set(batch_size=1, fanout_1=1, seed=0)
    assert "leaves the mean at" in explorer._summary.value and "copies as much." in explorer._summary.value
    assert "saves" not in explorer._summary.value.split("Reordering")[1]


def test_a_block_without_edges_is_said_to_have_none(graph: lab.Graph) -> None:
    explorer = AggregationExplorer(graph, device="cpu", batch_size=1, hops=1, seed=2)
    assert "no edges: there is nothing to aggregate" in explorer._summary.value
    drawn = explorer.figures
    assert list(drawn) == ["accesses", "times", "features", "roofline"] and explorer.error == ""
    assert "no edges" in drawn["roofline"].layout.annotations[0].text
    check_code(explorer, graph)
    explorer.set(seed=0, fanout_1=1)
    assert "needed by <b>1 edge</b>" in explorer._summary.value
    assert "1 edge into 1 row of" in explorer.figures["accesses"].layout.title.text


def test_no_kernel_is_modelled_below_the_least_time(graph: lab.Graph) -> None:
    """The paper's equation of memory-aware leaves out what the bound counts: a row of one edge shows it."""
    explorer = AggregationExplorer(
        graph, device="cpu", hops=1, fanout_1=1, num_features=16, batch_size=64, seed=0
    )
    lines = {line.name: np.array(line.y) for line in explorer.figures["features"].data}
    least = lines.pop("least time possible")
    assert all((line >= least).all() for line in lines.values())
    (bars,) = explorer.figures["times"].data
    assert min(bars.x) == dict(zip(bars.y, bars.x, strict=True))["least time possible"]


def test_looking_does_not_sample_again(graph: lab.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    matching = MatchExplorer(graph, device="cpu")
    aggregating = AggregationExplorer(graph, device="cpu")
    monkeypatch.setattr(lab.NeighborSampler, "sample_many", None)
    matching.method = "two-opt"
    matching.batch_b = 7
    matching.cache_percent = 30
    aggregating.layer = 2
    aggregating.num_features = 64
    assert matching.error == aggregating.error == ""


def test_batches_are_disjoint_and_grouped(graph: lab.Graph) -> None:
    assert groupings(graph) == ["shuffled", "by label", "by degree"]
    for grouping in groupings(graph):
        seeds = draw_batches(graph, 8, 16, grouping=grouping, seed=3)
        flat = np.concatenate(seeds)
        assert len(np.unique(flat)) == 128 and np.isin(flat, graph.splits["train"]).all()
        again = draw_batches(graph, 8, 16, grouping=grouping, seed=3)
        assert all(np.array_equal(a, b) for a, b in zip(seeds, again, strict=True))

    def classes(grouping: str) -> float:
        return float(
            np.mean([len(set(graph.label[s])) for s in draw_batches(graph, 8, 16, grouping=grouping)])
        )

    assert classes("by label") < 0.5 * classes("shuffled")
    with pytest.raises(ValueError, match="num_batches of batch_size seeds must fit"):
        draw_batches(graph, 32, 4096)
    with pytest.raises(ValueError, match="grouping must be one of"):
        draw_batches(graph, 4, 4, grouping="by colour")


def test_counted_sources_are_those_of_matched_features(graph: lab.Graph) -> None:
    """The counting is held against the extraction that it stands for, with and without a cache."""
    sampler = lab.NeighborSampler(graph, [4, 4], device="cpu")
    batches = sampler.sample_many(draw_batches(graph, 4, 16))
    ids = [batch.node_ids for batch in batches]
    order = [0, 2, 1, 3]
    hot = lab.hotness(graph, "degree")
    for ratio in (0.0, 0.25):
        source = lab.MatchedFeatures(lab.FeatureCache(graph.feat, hot, ratio=ratio, device="cpu"))
        cached = np.zeros(graph.num_nodes, dtype=bool)
        cached[hot.order[: round(ratio * graph.num_nodes)]] = True
        moved = reused = 0
        for number in order:
            _, stats = source.extract(ids[number])
            moved, reused = moved + stats.bytes_moved, reused + stats.reused
        counted = feature_sources(ids, {"match": order}, cached)["match"]
        assert (counted[0], counted[2] * 4 * graph.feat.shape[1]) == (reused, moved)
        assert counted == sources([set(a.tolist()) for a in ids], order, set(np.flatnonzero(cached).tolist()))


# ---- training ----------------------------------------------------------------------------------------------


SHORT = {"steps": 3, "epochs": 2, "batch_size": 16, "fanout_1": 3, "fanout_2": 3}


@pytest.mark.slow
def test_training_shows_what_lab_train_returns(graph: lab.Graph) -> None:
    # Six batches an epoch: with three, greedy may well keep the order.
    explorer = TrainingExplorer(graph, device="cpu", raise_errors=True, **{**SHORT, "steps": 6})
    small = training.short_run(graph, 6, 16, 0)
    runs = [
        lab.train(
            small, "gcn", system, epochs=2, batch_size=16, fanouts=[3, 3], lr=0.01, seed=0, device="cpu",
            pick="floyd", progress=False,
        )
        for system in ("dgl", "fastgl")
    ]  # fmt: skip
    loss = explorer.figures["loss"].data
    assert [trace.name for trace in loss] == ["dgl", "fastgl"]
    for trace, run in zip(loss, runs, strict=True):
        assert np.asarray(trace.y) == pytest.approx(run.losses, rel=1e-4)
        assert len(trace.y) == 12
    for trace, run in zip(explorer.figures["accuracy"].data, runs, strict=True):
        assert np.asarray(trace.y) == pytest.approx(100 * np.array(run.accuracy), abs=1)
    moved = [np.mean([epoch.bytes_moved for epoch in run.epochs]) / 1e3 for run in runs]
    assert np.asarray(explorer.figures["bytes"].data[0].x) == pytest.approx(moved)
    for figure in explorer.figures.values():
        assert "arxiv-like (synthetic)" in figure.layout.title.text
        assert "measured on the CPU" in figure.layout.title.text
    assert "another order: compare the course, not single steps" in explorer._summary.value, "no claim"


def test_an_epoch_of_one_step_is_told() -> None:
    tiny = lab.load("arxiv-like", scale=0.002, use_cache=False)
    few = dataclasses.replace(tiny, splits={**tiny.splits, "train": tiny.splits["train"][:16]})
    explorer = TrainingExplorer(
        few, device="cpu", **{**SHORT, "system": "dgl", "reference": "dgl", "epochs": 1}
    )
    assert "An epoch has 1 step: there are no more" in explorer._summary.value


@pytest.mark.slow
def test_steps_that_the_training_set_does_not_have_are_told(graph: lab.Graph) -> None:
    given = {**SHORT, "system": "dgl", "reference": "dgl", "epochs": 1}
    ran = -(-len(graph.splits["train"]) // 256)
    explorer = TrainingExplorer(graph, device="cpu", **{**given, "batch_size": 256, "steps": ran + 2})
    assert f"An epoch has {ran} steps: there are no more training vertices." in explorer._summary.value


@pytest.mark.slow
def test_samples_of_another_kind_are_not_called_the_same(graph: lab.Graph) -> None:
    explorer = TrainingExplorer(graph, device="cpu", system="nextdoor", **SHORT)
    said = explorer._summary.value
    assert "Same seeds, other samples: nextdoor draws a tree" in said and "same samples" not in said


@pytest.mark.slow
def test_another_system_trains_that_one_alone(graph: lab.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = TrainingExplorer(graph, device="cpu", system="gnnlab", **SHORT)
    assert "Same batches, same order, same samples" in explorer._summary.value
    below, above = (np.asarray(trace.y) for trace in explorer.figures["loss"].data)
    assert above == pytest.approx(below, rel=1e-4)
    trained: list[str] = []
    real = lab.train

    def counted(graph: Any, model: str, system: str, **options: Any) -> Any:
        trained.append(system)
        return real(graph, model, system, **options)

    monkeypatch.setattr(lab, "train", counted)
    explorer.system = "tsota"
    explorer.system = "gnnlab"
    assert trained == ["tsota"] and explorer.error == ""
    explorer.model = "sage"
    assert trained == ["tsota", "dgl", "gnnlab"] and explorer.error == ""


def test_the_training_code_runs(graph: lab.Graph) -> None:
    explorer = TrainingExplorer(graph, device="cpu", **SHORT)
    namespace: dict[str, Any] = {"g": graph}
    exec(compile(explorer.code, "<handed over>", "exec"), namespace)
    assert list(namespace["shown"]) == list(explorer.figures)
    for name in ("loss", "accuracy"):
        for one, two in zip(namespace["shown"][name].data, explorer.figures[name].data, strict=True):
            assert np.asarray(one.y) == pytest.approx(np.asarray(two.y), rel=1e-4)


def test_a_short_run_keeps_the_graph_and_few_seeds(graph: lab.Graph) -> None:
    small = training.short_run(graph, 3, 16, seed=1, tested=20)
    assert len(small.splits["train"]) == 48 and len(small.splits["valid"]) == 20
    assert np.isin(small.splits["train"], graph.splits["train"]).all()
    assert small.indices is graph.indices and small.title == graph.title
    bare = lab.Graph.from_edges([0], [1], feat=np.ones((2, 3), np.float32))
    with pytest.raises(ValueError, match="graph must have labels"):
        training.short_run(bare, 1, 1)


def test_a_graph_that_cannot_be_trained_on_leaves_the_explorer_alive(capsys) -> None:
    bare = lab.Graph.from_edges([0], [1], name="<i>bare")
    explorer = TrainingExplorer(bare, device="cpu", raise_errors=True)
    assert "&lt;i&gt;bare has no" in explorer._summary.value, "a name is no markup"
    assert explorer.error == "" and explorer.figures == {}
    said = explorer._summary.value
    assert "bare has no features, no labels and no training split. Graphs with them: arxiv-like" in said
    explorer.steps += 1
    assert explorer.run_count == 2 and explorer.error == ""
    explorer.random_features = True
    assert explorer.figures == {} and "bare has no labels and no training split" in explorer._summary.value
    assert not training.trainable(explorer.graph) and "no features" in capsys.readouterr().out
    explorer.close()


def test_features_are_generated_on_request_only(graph: lab.Graph, capsys) -> None:
    bare = dataclasses.replace(graph, feat=None, validate=False)
    sizes = {"steps": 2, "epochs": 1, "batch_size": 16}
    explorer = TrainingExplorer(bare, device="cpu", raise_errors=True, **sizes)
    assert explorer.figures == {} and "Or tick <b>Random features</b>" in explorer._summary.value
    explorer.controls["random_features"].value = True
    assert explorer.error == "" and "loss" in explorer.figures
    for figure in explorer.figures.values():
        assert "random features" in figure.layout.title.text
    assert "random_features" not in TrainingExplorer(graph, device="cpu", **sizes).controls
    assert training.trainable(graph) and capsys.readouterr().out == ""


def test_the_number_of_threads_is_put_back() -> None:
    import torch

    before = torch.get_num_threads()
    with training.one_thread("cpu"):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [MatchExplorer, AggregationExplorer, TrainingExplorer])
def test_on_a_gpu(kind: type[Explorer], graph: lab.Graph) -> None:
    explorer = kind(graph, device="cuda", raise_errors=True)
    assert explorer.error == ""
    if kind is MatchExplorer:
        cpu = MatchExplorer(graph, device="cpu")
        for name, figure in explorer.figures.items():
            assert values(figure) == values(cpu.figures[name]), name
    else:
        panel = "times" if kind is AggregationExplorer else "stages"
        assert "measured on" in explorer.figures[panel].layout.title.text
    namespace: dict[str, Any] = {"g": graph}
    exec(compile(explorer.code, "<handed over>", "exec"), namespace)
    assert list(namespace["shown"]) == list(explorer.figures)
