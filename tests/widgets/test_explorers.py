"""The three explorers: every control is moved, and all plotted values are compared with the library's."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import traitlets
from gnnsample_widgets import QueueExplorer, SampleExplorer, WorkloadExplorer, recorded
from gnnsample_widgets.explorers.sampling.queue import SLOTS
from gnnsample_widgets.graphs import draw_seeds
from gnnsample_widgets.shell.explorer import Explorer

import gnnsample_lab as lab
from gnnsample_lab.gpu_model.model import get_model, presets
from gnnsample_lab.readable import percent
from gnnsample_lab.resources import resource_path
from gnnsample_lab.traces import waiting_tasks
from gnnsample_lab.traces.analysis import hop_kernel_times
from tests.widgets.checks import check_code, check_controls
from tests.widgets.oracle import ORACLES, values

CASES: list[tuple[type[Explorer], dict[str, list[Any]]]] = [
    (
        SampleExplorer,
        {
            "seed_vertex": [0, 77],
            "hops": [3, 1, 2],
            "fanout_1": [2, 6],
            "fanout_2": [1, 5],
            "fanout_3": [3, 1],
            "hops_shown": [0, 1],
            "seed": [5],
            "replace": [True],
        },
    ),
    (
        WorkloadExplorer,
        {
            "batch_size": [32, 128],
            "hops": [2, 3],
            "fanout_1": [4],
            "fanout_2": [20],
            "fanout_3": [1],
            "strategy": ["grid-barrier", "block-bsp"],
            "baseline": ["bsp"],
            "pick": ["floyd"],
            "seed": [9],
            "every_strategy": [False],
        },
    ),
    (
        QueueExplorer,
        {
            "time_percent": [0, 35, 36],
            "fetch_size": [1, 7],
            "num_blocks": [2, 64],
            "completion": ["paper"],
            "batch_size": [128],
            "hops": [2, 3],
            "fanout": [8],
            "pick": ["floyd"],
            "seed": [3],
            "strategy": ["persistent-tile", "fused-static", "block-bsp"],
        },
    ),
]


@pytest.fixture(scope="module")
def graph() -> lab.Graph:
    return lab.load("arxiv-like", scale=0.02, use_cache=False)


def check(explorer: Explorer, graph: lab.Graph) -> None:
    assert explorer.error == ""
    expected = ORACLES[type(explorer).__name__](graph, explorer.state)
    assert list(explorer.figures) == list(expected)
    for name, figure in expected.items():
        assert values(explorer.figures[name]) == values(figure), f"panel {name} at {explorer.state}"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "moves"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_every_control_redraws_what_the_library_computes(
    kind: type[Explorer], moves: dict[str, list[Any]], graph: lab.Graph
) -> None:
    explorer = kind(graph, device="cpu")
    assert set(moves) == set(explorer.controls) - {"source"}
    check_controls(explorer, moves, lambda: check(explorer, graph))


@pytest.mark.parametrize(("kind", "moves"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_the_code_reproduces_the_figures(
    kind: type[Explorer], moves: dict[str, list[Any]], graph: lab.Graph
) -> None:
    explorer = kind(graph, device="cpu")
    for _ in range(2):
        check_code(explorer, graph)
        explorer.set(**{name: wanted[0] for name, wanted in moves.items()})


@pytest.mark.parametrize("kind", [case[0] for case in CASES])
def test_every_figure_names_graph_and_origin(kind: type[Explorer], graph: lab.Graph) -> None:
    explorer = kind(graph, device="cpu")
    for name, figure in explorer.figures.items():
        title = figure.layout.title.text
        assert "arxiv-like (synthetic)" in title, name
        counted = name in ("drawing", "work")
        assert ("sample" if counted else "modelled as NVIDIA H200") in title, name
        # Counts are facts, whatever the times are.
        assert ("modelled" in title) is not counted, name


@pytest.mark.parametrize("kind", [case[0] for case in CASES])
def test_small_graphs_without_splits_work(kind: type[Explorer]) -> None:
    """Fewer vertices than the default batch, isolated vertices, no training split."""
    graph = lab.Graph.from_edges([1, 2, 3, 0], [0, 0, 1, 2], num_nodes=40, name="few")
    explorer = kind(graph, device="cpu")
    assert explorer.error == ""
    if "batch_size" in explorer.controls:
        assert max(explorer.controls["batch_size"].options) == 32
        check(explorer, graph)
    else:
        explorer.seed_vertex = 39
        assert explorer.error == "" and "no in-neighbours" in explorer._summary.value
        with pytest.raises(traitlets.TraitError, match="Seed vertex"):
            explorer.seed_vertex = 40


def axes_of(figure: Any) -> list[Any]:
    return [(axis.type, axis.range) for axis in (figure.layout.xaxis, figure.layout.yaxis)]


def test_the_axes_of_the_workload_stay_whatever_is_moved(graph: lab.Graph) -> None:
    explorer = WorkloadExplorer(graph, device="cpu")
    axes = axes_of(explorer.figures["work"])
    assert [kind for kind, _ in axes] == ["log", "log"]
    marked = {}
    for size in (1, 1024):
        explorer.batch_size = size
        assert axes_of(explorer.figures["work"]) == axes
        line = next(t for t in explorer.figures["work"].data if t.name == "this batch")
        marked[size] = line.x[0]
    assert marked == {1: 1, 1024: 1024}
    explorer.set(fanout_1=20, fanout_2=1, hops=2)
    assert axes_of(explorer.figures["work"]) == axes


def test_no_order_is_claimed_within_the_models_error(graph: lab.Graph) -> None:
    explorer = WorkloadExplorer(graph, device="cpu", strategy="persistent-tile", baseline="persistent")
    assert "neither is called the faster" in explorer._summary.value
    explorer.baseline = "block-bsp"
    assert "more time than" in explorer._summary.value and "beyond" not in explorer._summary.value
    recorded = get_model("h200").recorded_over_modelled
    once = f"A recorded run of block-bsp took {recorded['block-bsp'][0]:.1f} times the modelled time."
    assert once in explorer._summary.value
    player = QueueExplorer(graph, device="cpu")
    low, high = sorted(recorded["persistent"])
    often = f"Recorded runs of persistent took {low:.1f} to {high:.1f} times the modelled time."
    assert often in player._summary.value


def test_what_is_outside_the_kernels_is_all_but_the_kernels(graph: lab.Graph) -> None:
    """Of measured runs, preprocessing and kernels are not the whole time."""
    explorer = WorkloadExplorer(graph, device="cpu")
    files = recorded.measured_traces()
    slow, fast = (
        lab.SampleTrace.load(files[f"arxiv-like_{name}_reservoir"]) for name in ("block-bsp", "persistent")
    )
    assert slow.preprocess_us + slow.kernel_us < 0.9 * slow.total_us
    batch = SimpleNamespace(node_ids=np.arange(7))
    text = explorer.summary({"two": {"a": slow, "b": fast}, "batch": batch})
    outside = percent(1 - slow.kernel_us / slow.total_us)
    assert f"and spends {outside} of it outside its sampling kernels" in text


def test_one_of_a_kind_is_not_many(graph: lab.Graph) -> None:
    degrees = graph.in_degrees()
    shown = SampleExplorer(graph, device="cpu", seed_vertex=int(degrees.argmax()), hops=1, fanout_1=1)
    assert "over <b>1</b> pick;" in shown._summary.value
    shown.hops_shown = 0
    assert "1 vertex, 0 distinct edges" in shown.figures["drawing"].layout.title.text
    player = QueueExplorer(graph, device="cpu", batch_size=1, hops=1)
    assert "<b>1</b> of 1 task is done" in player._summary.value
    assert "with 1 task waiting" in player._summary.value
    assert any(a.text == "1 slot of the queue, by number" for a in player.figures["gantt"].layout.annotations)


def test_the_ghost_stays_while_one_control_is_dragged(graph: lab.Graph) -> None:
    explorer = WorkloadExplorer(graph, device="cpu")
    assert explorer.before == {}
    for fanout in (12, 14, 16):
        explorer.fanout_2 = fanout
        assert explorer.before["fanout_2"] == 10
    ghost = [t for t in explorer.figures["work"].data if t.legendgroup == "before"]
    assert len(ghost) == 4
    assert "pale: batch 256, fanouts 10, 10, 10" in explorer.figures["work"].layout.title.text
    explorer.strategy = "bsp"
    assert explorer.before["fanout_2"] == 10, "the strategy changes no count"
    explorer.batch_size = 64
    assert (explorer.before["fanout_2"], explorer.before["batch_size"]) == (16, 256)
    assert next(t for t in explorer.figures["work"].data if t.name == "the batch before").x == (256, 256)


def test_what_has_no_control_is_shown_when_it_is_set(graph: lab.Graph) -> None:
    explorer = WorkloadExplorer(graph, device="cpu")
    explorer.fanout_1 = 3
    runs, code = explorer.run_count, explorer.code
    assert "pale" in explorer.figures["work"].layout.title.text
    explorer.before = {}
    assert explorer.run_count == runs + 1 and explorer.before == {} and explorer.code != code
    assert "pale" not in explorer.figures["work"].layout.title.text
    explorer.fanout_1 = 4
    assert explorer.run_count == runs + 2, "what a run changes itself asks for no other"


def test_a_moved_batch_size_counts_no_frontier_again(
    graph: lab.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    explorer = WorkloadExplorer(graph, device="cpu")
    drawn: list[int] = []
    sample = lab.NeighborSampler.sample
    monkeypatch.setattr(
        lab.NeighborSampler,
        "sample",
        lambda self, seeds, *a: drawn.append(len(seeds)) or sample(self, seeds, *a),
    )
    explorer.batch_size = 32
    assert drawn == [32]
    explorer.fanout_1 = 3
    largest = explorer.controls["batch_size"].options[-1]
    assert sorted(drawn[1:]) == [32, largest], "all sizes of the curve come from one sample"


def test_hops_shown_follows_hops(graph: lab.Graph) -> None:
    explorer = SampleExplorer(graph, device="cpu", hops=2)
    assert (explorer.hops_shown, explorer.controls["hops_shown"].max) == (2, 2)
    explorer.hops = 3
    assert (explorer.hops_shown, explorer.controls["hops_shown"].max) == (3, 3)
    explorer.hops_shown = 1
    explorer.hops = 2
    assert (explorer.hops_shown, explorer.controls["hops_shown"].max) == (1, 2)
    assert explorer.controls["fanout_3"].disabled and not explorer.controls["fanout_2"].disabled


def test_looking_does_not_sample_again(graph: lab.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = SampleExplorer(graph, device="cpu")
    player = QueueExplorer(graph, device="cpu")
    monkeypatch.setattr(lab.NeighborSampler, "sample_many", None)
    explorer.hops_shown = 1
    player.time_percent = 20
    assert explorer.error == player.error == ""
    explorer.seed = 1
    player.seed = 1
    assert "TypeError" in explorer.error and "TypeError" in player.error


def test_the_papers_rule_belongs_to_the_persistent_kernel(graph: lab.Graph) -> None:
    explorer = QueueExplorer(graph, device="cpu", completion="paper", num_blocks=64, batch_size=64)
    assert "are lost" in explorer._summary.value
    heading = [a.text for a in explorer.figures["gantt"].layout.annotations]
    lost = [t.name for t in explorer.figures["slots"].data if t.showlegend]
    left, never = (int(name.split(": ")[1]) for name in lost if name.startswith(("lost", "never queued")))
    assert any(f"{left:,} lost, {never:,} never queued" in text for text in heading)
    assert f"{left + never:,} tasks" in explorer._summary.value
    explorer.strategy = "bsp"
    assert explorer.completion == "exact" and explorer.controls["completion"].disabled
    assert explorer.error == "" and "are lost" not in explorer._summary.value
    # Picture and summary agree that there is no queue, and say why.
    for name in ("gantt", "slots"):
        assert any("bsp has no queue" in a.text for a in explorer.figures[name].layout.annotations), name
    assert "no queue" in explorer._summary.value


def test_the_slots_open_where_the_queue_is_deepest_and_only_once(graph: lab.Graph) -> None:
    player = QueueExplorer(graph, device="cpu")
    player.view = SLOTS
    assert 0 < player.time_percent < 100 and player.controls["time_percent"].value == player.time_percent
    at_work = [t.name for t in player.figures["slots"].data if t.showlegend]
    assert len(at_work) > 1 and player.error == ""
    assert f"{player.time_percent}" in player._status.value
    player.time_percent = 100
    player.view = "Timeline"
    player.view = SLOTS
    assert player.time_percent == 100, "who has played to the end stays there"
    assert [t.name.split(":")[0] for t in player.figures["slots"].data if t.showlegend] == ["done"]


@pytest.mark.parametrize(
    "state", [{"time_percent": 20}, {"completion": "paper", "num_blocks": 64}, {"strategy": "bsp"}]
)
def test_the_slots_leave_the_time_alone_where_it_tells_something(
    graph: lab.Graph, state: dict[str, Any]
) -> None:
    player = QueueExplorer(graph, device="cpu", **state)
    before = player.time_percent
    player.view = SLOTS
    assert (player.time_percent, player.error) == (before, "")


@pytest.fixture
def shipped(graph: lab.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> lab.SampleTrace:
    """A folder of "measured" traces. The test makes one up by slowing the model down; nothing outside shows it."""
    sampler = lab.NeighborSampler(graph, [6, 4], strategy="persistent", trace=True, device="cpu", seed=4)
    trace = sampler.sample(np.arange(50), batch_id=2).trace
    measured = dataclasses.replace(trace, origin="measured", total_us=trace.total_us * 1.5)
    path = measured.save(tmp_path / "one.npz")
    monkeypatch.setattr(recorded, "measured_traces", lambda: {"one": path})
    return lab.SampleTrace.load(path)


def test_a_measured_trace_is_overlaid_with_the_model(graph: lab.Graph, shipped: lab.SampleTrace) -> None:
    explorer = QueueExplorer(graph, device="cpu")
    explorer.source = "one"
    assert explorer.error == ""
    assert list(explorer.figures) == ["gantt", "slots", "overlay"]
    assert "measured on NVIDIA H200" in explorer.figures["gantt"].layout.title.text
    overlay = explorer.figures["overlay"]
    assert np.array_equal(overlay.data[0].y, hop_kernel_times(shipped.tasks, 2, fused=True))
    assert explorer.controls["fetch_size"].disabled and not explorer.controls["time_percent"].disabled
    namespace: dict[str, Any] = {"g": graph}
    exec(explorer.code, namespace)
    assert {k: values(f) for k, f in namespace["shown"].items()} == {
        k: values(f) for k, f in explorer.figures.items()
    }
    explorer.source = "GPU model"
    assert not explorer.controls["fetch_size"].disabled
    check(explorer, graph)


def test_no_gpus_model_stands_beside_a_trace_of_another(
    graph: lab.Graph, shipped: lab.SampleTrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = dataclasses.replace(shipped, device_name="NVIDIA L4").save(tmp_path / "other.npz")
    monkeypatch.setattr(recorded, "measured_traces", lambda: {"one": path})
    explorer = QueueExplorer(graph, device="cpu", source="one")
    assert explorer.error == "" and "overlay" not in explorer.figures
    assert "There is no model of NVIDIA L4" in explorer._summary.value
    assert (
        "are of NVIDIA L4, of which there is no model" in recorded.overlay(graph).layout.annotations[0].text
    )
    v100 = dataclasses.replace(shipped, device_name=presets()["v100"].name)
    beside = recorded.modelled_as_measured(graph, v100)
    assert beside is not None and beside.device_name == v100.device_name


def test_the_recorded_counterexample_is_marked(graph: lab.Graph) -> None:
    explorer = QueueExplorer(graph, device="cpu", source="counterexample_persistent_paper")
    assert explorer.figures["gantt"].layout.title.text.startswith("Recorded counterexample<br>")
    assert explorer._summary.value.count("Recorded counterexample") == 1
    assert any("5 lost" in a.text for a in explorer.figures["gantt"].layout.annotations)
    assert "with 5 tasks waiting besides the lost ones." in explorer._summary.value
    assert "as this explorer's graph" not in explorer._summary.value, "it cannot be loaded by name"


def test_controls_out_of_use_show_what_a_record_was_made_with(graph: lab.Graph) -> None:
    explorer = QueueExplorer(graph, device="cpu", fanout=7, num_blocks=16, batch_size=4, seed=3)
    own = explorer.state
    assert all(control.instead is None for control in explorer.controls.values())
    explorer.source = "counterexample_persistent_paper"
    said = {name: control.instead for name, control in explorer.controls.items() if control.disabled}
    assert said == {
        "fetch_size": 5, "num_blocks": 2, "batch_size": 2, "hops": 2, "fanout": 10, "seed": 0,
        "strategy": "persistent", "completion": "paper", "pick": "reservoir",
    }  # fmt: skip
    assert explorer.controls["fanout"].store.instead == 10 and explorer.controls["fanout"].value == 7
    explorer.source = "arxiv-like_block-bsp_reservoir"
    said = {name: control.instead for name, control in explorer.controls.items()}
    assert said["fetch_size"] == said["completion"] == "–" and said["strategy"] == "block-bsp"
    assert said["source"] is said["time_percent"] is None
    explorer.source = own["source"]
    assert explorer.state == own and all(control.instead is None for control in explorer.controls.values())


def test_lost_tasks_do_not_wait(graph: lab.Graph) -> None:
    explorer = QueueExplorer(graph, device="cpu", completion="paper", num_blocks=512, batch_size=64)
    sampler = lab.NeighborSampler(graph, [5, 5, 5], pick="reservoir", device="cpu")
    knobs: dict[str, Any] = {"fetch_size": 5, "completion": "paper", "num_blocks": 512}
    trace = recorded.modelled(graph, sampler.sample(draw_seeds(graph, 64, 0)), "persistent", **knobs)
    assert trace.queue.depth[-1] == trace.lost.abandoned.sum() > 0
    most = int(waiting_tasks(trace).depth.max())
    assert f"with {most:,} tasks waiting besides the lost ones." in explorer._summary.value
    depth = next(t for t in explorer.figures["gantt"].data if t.name == "queue depth")
    assert max(depth.y) == most and depth.y[-1] == 0
    assert (np.diff(depth.x) >= 0).all() and depth.x[-1] <= explorer.figures["gantt"].layout.xaxis.range[1]


def test_frontiers_of_few_seeds_are_means(graph: lab.Graph) -> None:
    """The first seed of a batch may have no in-neighbours: a line through it would say that nothing grows."""
    explorer = WorkloadExplorer(graph, device="cpu", batch_size=64)
    lines = {t.name: t for t in explorer.figures["work"].data}
    start = [lines[name].y[0] for name in ("hop 1", "hop 2", "hop 3", "mini-batch")]
    assert start[0] == 1 and start == sorted(start) and start[1] > 2
    batch = lab.NeighborSampler(graph, [10, 10, 10], pick="reservoir", device="cpu").sample(
        draw_seeds(graph, 64, 0)
    )
    marked = [lines[f"{name}, this batch"].y[0] for name in ("hop 1", "hop 2", "hop 3")]
    assert marked == [picks.frontier.size for picks in batch.picks]


def test_a_ratio_of_times_is_that_of_recorded_runs_where_the_model_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traces = recorded.measured_traces()
    pair = [
        lab.SampleTrace.load(traces[f"arxiv-like_{name}_reservoir"]) for name in ("block-bsp", "persistent")
    ]
    modelled = [dataclasses.replace(t, origin="modelled", total_us=10.0, graph_name="other") for t in pair]
    ratio, text = recorded.times_as_fast(*modelled)
    assert ratio == pair[0].total_us / pair[1].total_us
    assert all(f"{t.strategy} {t.total_us:,.0f} µs" in text for t in pair)
    assert "arxiv-like (synthetic), batch 256, measured on NVIDIA H200." in text and "As recorded" in text
    ratio, text = recorded.times_as_fast(*pair)
    assert ratio == pair[0].total_us / pair[1].total_us and "As recorded" not in text
    other = [dataclasses.replace(t, batch_size=255) for t in modelled]
    ratio, text = recorded.times_as_fast(*other)
    assert ratio == 1 and text.startswith("A ratio of times modelled as") and "µs" not in text
    monkeypatch.setattr(recorded, "measured_traces", dict)
    assert recorded.times_as_fast(*modelled)[0] == 1


def test_a_trace_of_another_graph_is_not_overlaid(graph: lab.Graph, shipped: lab.SampleTrace) -> None:
    other = lab.load("arxiv-like", scale=0.02, seed=1, use_cache=False)
    assert recorded.same_sample(graph, shipped) is not None
    assert recorded.same_sample(other, shipped) is None, "the name alone must not convince it"
    explorer = QueueExplorer(other, device="cpu", source="one")
    assert "overlay" not in explorer.figures
    assert (
        "Load arxiv-like, in full size, as this explorer's graph to see the model" in explorer._summary.value
    )
    assert "No measured trace of arxiv-like" in recorded.overlay(other).layout.annotations[0].text
    assert (
        values(recorded.overlay(graph))["data"]
        == values(QueueExplorer(graph, device="cpu", source="one").figures["overlay"])["data"]
    )


def test_shipped_traces_are_of_the_version_of_the_twin_that_their_record_names() -> None:
    folder = resource_path(recorded.TRACES)
    facts = json.loads(folder.with_suffix(".json").read_text(encoding="utf-8"))["graphs"]["arxiv-like"]
    version = facts.get("version") or 2  # records that name none were made on version 2
    named = lab.load("arxiv-like", features=False, version=version)
    traces = [lab.SampleTrace.load(path) for path in recorded.measured_traces().values()]
    measured = [trace for trace in traces if trace.graph_name == "arxiv-like"]
    assert len(measured) >= 7
    for trace in measured:
        assert recorded.same_sample(named, trace) is not None, trace.strategy
    if not any(recorded.model_of(trace) for trace in measured):
        return  # of a GPU that has no model, nothing is overlaid
    assert recorded.overlay(named).data
    other = lab.load("arxiv-like", features=False, version=5 - version)
    said = recorded.overlay(other).layout.annotations[0].text
    assert "Those of arxiv-like were measured on another version" in said


def test_without_shipped_traces_it_is_said(graph: lab.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "TRACES", "data/measured/no-such-folder")
    assert recorded.measured_traces() == {}
    assert "None were shipped" in recorded.overlay(graph).layout.annotations[0].text


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [case[0] for case in CASES])
def test_on_a_gpu_times_are_measured(kind: type[Explorer], graph: lab.Graph) -> None:
    explorer = kind(graph, device="cuda")
    assert explorer.error == ""
    panel = {"SampleExplorer": "work", "WorkloadExplorer": "times", "QueueExplorer": "gantt"}[kind.__name__]
    assert "measured on" in explorer.figures[panel].layout.title.text
    explorer.seed = 3
    assert explorer.error == ""
