"""The explorer of notebook 09, and what its cells call for real runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from gnnsample_widgets import PipelineExplorer, pipelines, training

import gnnsample_lab as lab
from gnnsample_lab.pipeline.records import EpochRecord, StageEvent, TrainResult
from tests.widgets.checks import check_controls, check_figures
from tests.widgets.oracle import values
from tests.widgets.oracle_pipelines import ORACLES

MOVES: dict[str, list[Any]] = {
    "executor": ["serial", "overlapped", "timeshared", "factored"],
    "gpus": [3, 6],
    "k_tenths": [27, 2],
    "extract_percent": [50],
    "beside_tenths": [10],
    "samplers": [2, 0],
    "capacity": [1, 4],
    "spread_percent": [80],
    "demand_percent": [100],
    "host_percent": [0],
    "switching": [True],
    "synchronous": [True],
}


def check(explorer: PipelineExplorer) -> None:
    check_figures(explorer, None, ORACLES)  # type: ignore[arg-type]
    for figure in explorer.figures.values():
        assert "modelled from stage times: set by the sliders" in figure.layout.title.text
    assert explorer._summary.value.count("Modelled.") == 1


def test_every_control_redraws_what_the_model_computes() -> None:
    explorer = PipelineExplorer(device="cpu")
    assert set(MOVES) == set(explorer.controls)
    check_controls(explorer, MOVES, lambda: check(explorer))


def test_no_graph_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "load_default", None)
    explorer = PipelineExplorer(device="cpu", raise_errors=True)
    assert explorer.graph is None and "load" not in explorer.code.replace("load_", "")


def test_the_code_makes_the_same_figures() -> None:
    explorer = PipelineExplorer(device="cpu", switching=True, k_tenths=27)
    namespace: dict[str, Any] = {}
    exec(compile(explorer.code, "<handed over>", "exec"), namespace)
    assert {name: values(figure) for name, figure in namespace["shown"].items()} == {
        name: values(figure) for name, figure in explorer.figures.items()
    }


def test_fewer_gpus_leave_fewer_samplers() -> None:
    explorer = PipelineExplorer(device="cpu", samplers=6)
    explorer.gpus = 4
    assert explorer.samplers == 3 and explorer.error == ""
    explorer.gpus = 1
    assert explorer.error == "" and list(explorer.figures) == ["gantt", "executors"]
    assert explorer.controls["samplers"].disabled and "samples the whole epoch" in explorer._summary.value
    explorer.set(gpus=8, samplers=7, k_tenths=2)
    assert explorer.error == ""


def test_skew_keeps_the_mean_of_every_stage() -> None:
    even, skewed = (pipelines.stages(20, 20, 40, spread) for spread in (0, 150))
    for where in ("apart", "together"):
        assert skewed[where].train_s.std() > 0.5 * skewed[where].mean("train")
        for stage in ("sample", "extract", "train", "standby_extract"):
            assert skewed[where].mean(stage) == pytest.approx(even[where].mean(stage)), (where, stage)
    assert pipelines.stages(20, 0, 40, 150)["apart"].mean("extract") == 0

    def epoch_s(spread: int) -> float:
        explorer = PipelineExplorer(device="cpu", raise_errors=True, spread_percent=spread)
        names, lengths = (explorer.figures["executors"].data[0][axis] for axis in "yx")
        return float(lengths[list(names).index("factored")])

    assert epoch_s(0) < epoch_s(100) < epoch_s(150), "uneven times make nobody faster"


def test_the_summary_says_what_the_rule_takes_and_what_is_best() -> None:
    explorer = PipelineExplorer(device="cpu", k_tenths=27, demand_percent=0, host_percent=0)
    text = explorer._summary.value
    assert "K = 2.7: the rule takes <b>3</b> of 8 GPUs" in text and "fastest with <b>2</b>" in text
    explorer.k_tenths = 20
    assert "1 mini-batch still waits" in explorer._summary.value
    explorer.set(gpus=4, k_tenths=2, extract_percent=0, switching=True)
    assert "· 1 mini-batch on standby trainers" in explorer.figures["gantt"].layout.title.text


# ---- real runs ------------------------------------------------------------------------------------------------


def test_what_a_graph_lacks_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    bare = lab.Graph.from_edges([0, 1], [1, 0], name="bare")
    assert pipelines.real_runs(bare, object()) == []
    said = capsys.readouterr().out.splitlines()
    (line,) = said
    assert line.startswith(
        "bare has no features, no labels and no training split. Graphs with them: arxiv-like"
    )
    assert line.endswith("Nothing is trained here; the rest goes on without.")
    assert pipelines.without_a_leader(None) == []
    assert pipelines.factored_runs(bare, object()) == {} and pipelines.handed_over(bare, object()) == 0
    capsys.readouterr()
    trained = lab.load("arxiv-like", scale=0.02, use_cache=False)
    assert pipelines.factored_runs(trained, None) == {} and pipelines.handed_over(trained, None) == 0
    assert capsys.readouterr().out == ""


def test_without_pytorch_no_rank_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines.importlib.util, "find_spec", lambda name: None)
    assert pipelines.start_ranks(2, "cpu") is None
    assert "PyTorch is not installed" in capsys.readouterr().out


def test_ranks_run_on_cpus_where_gpus_are_too_few(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(number: int, device: str) -> tuple[int, str]:
        if device != "cpu":
            raise RuntimeError("one GPU alone")
        return number, device

    monkeypatch.setattr(lab.distributed, "Ranks", started)
    assert pipelines.start_ranks(3, "cpu") == (3, "cpu") and not capsys.readouterr().out
    assert pipelines.start_ranks(3) == (3, "cpu")
    assert capsys.readouterr().out == "one GPU alone: they run on CPUs.\n"


def test_a_measured_epoch_and_its_model_share_their_axis() -> None:
    events = []
    for step in range(3):
        for rank in range(2):
            at = 1e4 * step + 1e3 * rank
            for stage, start, end in (("sample", 0, 2e3), ("extract", 2e3, 3e3), ("train", 3e3, 8e3)):
                events.append(StageEvent(rank, "worker", stage, step, at + start, at + end))
    record = EpochRecord(
        12e3, 6e3, 30e3, 3e4, num_batches=3, tasks=6, events=tuple(sorted(events, key=lambda e: e.start_us))
    )
    slow = dataclasses.replace(record, total_us=9e4)
    result = TrainResult(
        "lab", "sage", "toy", "cpu", "measured on 2 CPU processes", [1.0], [0], [], "", [slow, record],
        settings={"executor": "serial"}, ranks=2,
    )  # fmt: skip
    measured, modelled = pipelines.beside_model(result)
    assert measured.layout.xaxis.range == modelled.layout.xaxis.range
    assert "measured on 2 CPU processes" in measured.layout.title.text
    assert "epoch 30 ms" in measured.layout.title.text, "the fastest epoch"
    assert "modelled from stage times" in modelled.layout.title.text
    assert "on 2 ranks" in modelled.layout.title.text and "rank 1 worker" in modelled.layout.yaxis.ticktext
    said = "6 slices of 3 mini-batches, sample 2, extract 1, train 5 ms each"
    assert pipelines.stages_of(result) == said, "not six mini-batches"
    whole = dataclasses.replace(record, events=tuple(e for e in record.events if e.rank == 0), tasks=3)
    alone = pipelines.stages_of(dataclasses.replace(result, epochs=[whole], ranks=1))
    assert alone == said.removeprefix("6 slices of ")


@pytest.mark.slow
def test_real_runs_train_on_the_same_mini_batches(pair: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    graph = lab.load("arxiv-like", scale=0.02, use_cache=False)
    capsys.readouterr()
    one, two = pipelines.real_runs(graph, pair, steps=4)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("running")]
    assert said == ["running: overlapped ...", "running: factored ..."]
    reports = pipelines.without_a_leader(pair)
    assert (one.settings["executor"], two.settings["executor"]) == ("overlapped", "factored")
    assert one.batch_ids == two.batch_ids and one.losses == pytest.approx(two.losses, abs=1e-2)
    error = lab.schedule.model_error([lab.schedule.run_of(run) for run in (one, two)])
    assert [row.gpus for row in error.rows] == [2, 2] and all(row.measured_s > 0 for row in error.rows)
    drawn = [pipelines.beside_model(run) for run in (one, two)]
    for measured, modelled in drawn:
        queues = [[t.name for t in figure.data if t.yaxis == "y2"] for figure in (measured, modelled)]
        assert queues[0] == queues[1]
    assert pipelines.stages_of(one).startswith("8 slices of 4 mini-batches")
    assert pipelines.stages_of(two).startswith("4 mini-batches")
    assert [report.passed for report in reports] == [False, True] and reports[0].cycle() == (0, 1)


@pytest.mark.slow
def test_ways_to_share_two_ranks_have_the_same_memory(pair: Any) -> None:
    pytest.importorskip("torch")
    graph = lab.load("arxiv-like", scale=0.02, use_cache=False)
    ways = pipelines.factored_runs(graph, pair, cached=0.1, steps=4)
    room = graph.indptr.nbytes + graph.indices.nbytes + 0.1 * graph.feat.nbytes
    for name, run in ways.items():
        assert sorted(run.batch_ids) == [0, 1, 2, 3], name
        for memory in run.memory:
            rows = memory.cached * graph.feat.nbytes
            held = max(memory.topology, rows) if run.settings["swap"] else memory.topology + rows
            assert held <= room + graph.feat[:1].nbytes, name
    assert ways[pipelines.BY_PEERS].losses == ways[pipelines.APART].losses
    assert ways[pipelines.TOGETHER].cache_ratio < ways[pipelines.APART].cache_ratio
    short = training.short_run(graph, 4, min(256, len(graph.splits["train"]) // 4))
    batches = list(
        lab.NeighborSampler(short, [15, 10], pick="floyd", device="cpu").epoch(
            short.splits["train"], len(short.splits["train"]) // 4
        )
    )
    blocks = [block for batch in batches for block in batch.blocks]
    needed = sum(b.node_ids.nbytes for b in batches) + sum(b.indptr.nbytes + b.indices.nbytes for b in blocks)
    assert len(batches) == 4 and needed < pipelines.handed_over(graph, pair, steps=4) < needed + 4 * 1024


def test_what_the_notebook_asks_of_busy_gpus_has_an_answer() -> None:
    """Extraction as cheap as on a trainer and a free link: sampling beside training pays until each leaves half."""
    times = pipelines.stages(20, 20, 10, 0)

    def overlapped_s(demand_percent: int) -> float:
        costs = pipelines.surround(demand_percent, 0)
        return pipelines.run_model(times, costs, 8, 0, 64, False, False)["overlapped"].epoch_s

    full, most, half, least = (overlapped_s(percent) for percent in (100, 80, 50, 10))
    assert full > most > half == pytest.approx(least)
    # As the sliders stand at first, the link to the host bounds the epoch, and the GPU's share changes nothing.
    start = pipelines.stages(20, 20, 40, 0)
    epochs = {
        pipelines.run_model(start, pipelines.surround(p, 30), 8, 0, 64, False, False)["overlapped"].epoch_s
        for p in (30, 100)
    }
    assert max(epochs) == pytest.approx(min(epochs))
