"""Figures of the schedule model."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

import gnnsample_lab as lab
from gnnsample_lab import figures
from gnnsample_lab.figures import palette

S = lab.schedule
TIMES = S.stage_times(0.1, 0.05, 0.4, batches=12, source="a made-up table")
SWEEPS = {
    "scaling": S.scaling(TIMES, gpus=[2, 3, 4], samplers=[1, 2], baselines={"shared": TIMES}),
    "splits": S.splits(TIMES, gpus=4, samplers=[1, 2]),
    "switching": S.switching(TIMES, trainers=[1, 2, 3]),
    "one_gpu": S.one_gpu(TIMES, baselines={"other": S.stage_times(0.3, 0.3, 0.4, batches=12)}),
    "pipelining": S.pipelining({1: TIMES, 2: TIMES}, demand={1: {"train": 1.0, "sample": 1.0}}),
}
RUNS = [
    {"name": "a", "executor": "serial", "times": TIMES, "epoch_s": 6.0, "origin": "measured on a GPU"},
    {"name": "b", "executor": "thread", "times": TIMES, "epoch_s": 8.0, "origin": "measured on a GPU"},
]


def drawn(kind: str) -> go.Figure:
    return getattr(figures, f"schedule_{kind}")(SWEEPS[kind])


@pytest.mark.parametrize("kind", SWEEPS)
def test_every_figure_says_that_it_is_modelled_and_from_what(kind: str) -> None:
    figure = drawn(kind)
    title = figure.layout.title.text
    assert "modelled from stage times: " in title and "made" in title
    values = [a.title.text for a in (*figure.select_xaxes(), *figure.select_yaxes()) if a.title.text]
    assert any("modelled" in text for text in values)
    assert all("(" in text for text in values), "units"
    assert not any("measured" in str(text) for text in (title, *values))
    json.loads(figure.to_json())


@pytest.mark.parametrize("kind", SWEEPS)
def test_another_sweep_is_refused(kind: str) -> None:
    other = next(name for name in SWEEPS if name != kind)
    with pytest.raises(ValueError, match=f"sweep must be what lab.schedule.{kind} returns .*of {other}"):
        getattr(figures, f"schedule_{kind}")(SWEEPS[other])


def test_curves_hold_the_rows() -> None:
    lines = {t.name: t for t in drawn("scaling").data}
    assert list(lines) == ["shared", "factored, 1S", "factored, 2S"]
    assert list(lines["factored, 2S"].x) == [3, 4]
    rows = [row for row in SWEEPS["scaling"].rows if row["series"] == "factored, 1S"]
    assert lines["factored, 1S"].y == pytest.approx([row["epoch_s"] for row in rows])


def test_splits_mark_what_the_formula_chooses() -> None:
    figure = drawn("splits")
    epoch = [t for t in figure.data if t.name == "epoch"]
    assert [list(t.x) for t in epoch] == [["1S1T", "1S2T", "1S3T"], ["2S1T", "2S2T"]]
    assert figure.layout.xaxis.ticktext == ("1S<br>1T", "1S<br>2T", "1S<br>3T", "2S<br>1T", "2S<br>2T")
    assert [list(t.marker.size) for t in epoch] == [[11, 11, 11], [6, 6]]
    assert {t.name for t in figure.data if t.type == "bar"} == {"sample", "extract", "train"}


def test_switching_writes_the_gain_on_its_bar() -> None:
    without, with_ = drawn("switching").data
    gains = np.asarray(without.y) / np.asarray(with_.y)
    assert list(with_.text) == [f"{g:.2f}×" for g in gains] and gains[0] > 1.2


def test_the_ceiling_stands_over_the_gain() -> None:
    bars, ceiling = drawn("pipelining").data
    assert list(bars.x) == ["1", "2"] and bars.y[0] < bars.y[1] <= ceiling.y[1] == pytest.approx(0.55 / 0.4)


def gantt(**options: Any) -> tuple[Any, go.Figure]:
    run = S.simulate(TIMES, "factored", gpus=2, samplers=1, switching=True, staleness=None)
    return run, figures.schedule_gantt(run, **options)


def test_the_gantt_shows_every_stage_on_its_worker() -> None:
    run, figure = gantt()
    assert (
        "factored on 2 GPUs" in figure.layout.title.text and "1 sample, 1 train" in figure.layout.title.text
    )
    assert run.origin in figure.layout.title.text and run.switched > 0
    assert f"{run.switched} mini-batches on standby trainers" in figure.layout.title.text
    rows = list(figure.layout.yaxis.ticktext)
    assert rows[:2] == ["GPU 0 sampler", "GPU 0 standby"] and "GPU 1 trainer" in rows
    bars = {t.name: t for t in figure.data if t.type == "bar"}
    assert len(bars["train"].x) == 12 and bars["train"].marker.color == palette.STAGES["train"]
    assert sum(bars["train"].x) == pytest.approx(12 * 0.4)
    assert "of mini-batch" in bars["train"].text[0]
    depth = next(t for t in figure.data if t.name == "global queue")
    assert max(depth.y) == run.queues["global queue"].depth.max() and depth.yaxis == "y2"
    assert figure.layout.xaxis.title.text == "time since the epoch began (s)"


def test_a_part_of_the_gantt() -> None:
    run, figure = gantt(start_s=0.5, end_s=1.0, until_s=0.8)
    assert list(figure.layout.xaxis.range) == [500, 1000], "milliseconds suit a part of half a second"
    inside = [e for e in run.events if e.end_s > 0.5 and e.start_s < 1.0 and e.stage == "train"]
    assert len(next(t for t in figure.data if t.name == "train").x) == len(inside) < 12
    assert figure.layout.shapes[1].x0 == pytest.approx(800)
    for wrong in ({"start_s": -1.0}, {"start_s": 2.0, "end_s": 1.0}, {"end_s": 1e9}):
        with pytest.raises(ValueError, match="start_s and end_s must be a part of the epoch"):
            gantt(**wrong)


def test_queues_of_all_gpus_are_added_up() -> None:
    run = S.simulate(S.stage_times(0.1, 0.3, 0.1, batches=20), "overlapped", gpus=2)
    figure = figures.schedule_gantt(run, waits=False)
    names = [t.name for t in figure.data if t.yaxis == "y2"]
    assert names == ["loader queue, all GPUs", "trainer queue, all GPUs"]
    assert max(figure.data[-2].y) == 4, "two mini-batches on either GPU"
    assert not next(t for t in figure.data if t.name == "waiting").x


def test_depths_of_queues_are_whole_numbers() -> None:
    """A queue of two has no tick at a half."""
    figure = figures.schedule_gantt(S.simulate(TIMES, "factored", gpus=2, samplers=1, capacity=2))
    depth = next(t for t in figure.data if t.yaxis == "y2")
    assert max(depth.y) <= 4 and (figure.layout.yaxis2.dtick, figure.layout.yaxis2.tickformat) == (1, ",~d")


def test_more_rows_than_labels_fit_are_named_by_gpu() -> None:
    run = S.simulate(S.stage_times(0.1, 0.3, 0.1, batches=20), "overlapped", gpus=8)
    figure = figures.schedule_gantt(run)
    axis = figure.layout.yaxis
    assert list(axis.ticktext) == [f"GPU {gpu}" for gpu in range(8)]
    assert list(axis.tickvals) == [1 + 3 * gpu for gpu in range(8)]
    words = "rows of a GPU from above: sampler, loader, trainer"
    assert words in figure.layout.title.text
    few = figures.schedule_gantt(S.simulate(TIMES, "overlapped", gpus=2))
    assert list(few.layout.yaxis.ticktext)[:2] == ["GPU 0 sampler", "GPU 0 loader"]
    assert words not in few.layout.title.text


def test_executors_without_queues_have_no_second_axis() -> None:
    figure = figures.schedule_gantt(S.simulate(TIMES, "serial"))
    assert not any(t.yaxis == "y2" for t in figure.data)
    assert list(figure.layout.yaxis.ticktext) == ["GPU 0 worker"]


def test_many_stages_become_lines() -> None:
    run = S.simulate(S.stage_times(0.1, 0.1, 0.1, batches=2500), "serial")
    kinds = {t.name: t.type for t in figures.schedule_gantt(run).data}
    assert kinds["train"] == "scattergl"


def test_measured_stands_beside_modelled() -> None:
    error = S.model_error(RUNS)
    figure = figures.schedule_error(error)
    assert figure.layout.xaxis.title.text.startswith(
        "measured"
    ) and figure.layout.yaxis.title.text.startswith("modelled")
    title = figure.layout.title.text
    assert (
        f"off by {100 * error.mean:.1f}\u00a0% on average" in title and title.count("measured on a GPU") == 1
    )
    points = {t.name: t for t in figure.data}
    assert list(points["serial"].x) == [6.0] and points["serial"].y[0] == pytest.approx(12 * 0.55)
    assert "+10.0\u00a0%" in points["serial"].text[0]


ALLOCATION = S.allocation_sweep(S.stage_times(0.1, 0.05, 0.27, batches=24, source="a made-up table"), gpus=8)


def test_the_split_of_the_rule_stands_beside_the_best_one() -> None:
    figure = figures.schedule_allocation(ALLOCATION, guess=5)
    bars = {t.name: t for t in figure.data if t.type == "bar"}
    assert list(bars) == ["without switching", "with switching"]
    rows = ALLOCATION.rows
    for key, bar in zip(("without_s", "with_s"), bars.values(), strict=True):
        assert list(bar.x) == list(range(1, 8))
        assert [row[0] for row in bar.customdata] == pytest.approx([row[key] for row in rows])
        best = min(range(7), key=lambda i: rows[i][key])
        assert bar.text[best] == "✓" and list(bar.text).count("✓") == 1
        for y, text, row in zip(bar.y, bar.text, rows, strict=True):
            assert (y < row[key] - 1e-9) == text.endswith("↑"), "what is cut off has its value written"
    rule, guess = figure.data[2:]
    assert rule.name.startswith("rule") and list(rule.x) == [3]
    assert guess.name == "your guess" and list(guess.x) == [5]
    assert "modelled from stage times: a made-up table" in figure.layout.title.text
    assert [t.name for t in figures.schedule_allocation(ALLOCATION).data][-1].startswith("rule")
    for wrong in (0, 8):
        with pytest.raises(ValueError, match="guess must be from 1 to 7"):
            figures.schedule_allocation(ALLOCATION, guess=wrong)
    with pytest.raises(ValueError, match="allocation_sweep returns"):
        figures.schedule_allocation(SWEEPS["splits"])


def test_epochs_by_executor() -> None:
    runs = {name: S.simulate(TIMES, name, gpus=2) for name in ("serial", "factored")}
    figure = figures.schedule_epochs(runs, chosen="factored")
    bar = figure.data[0]
    assert list(bar.y) == ["serial", "factored"]
    assert bar.x == pytest.approx([run.epoch_s for run in runs.values()])
    assert list(bar.marker.color) == [palette.MUTED, palette.MODELLED]
    assert "modelled" in figure.layout.xaxis.title.text and "modelled from" in figure.layout.title.text
    with pytest.raises(ValueError, match="timelines must hold at least one"):
        figures.schedule_epochs({})


def test_two_epochs_share_a_time_axis() -> None:
    run = S.simulate(TIMES, "serial", gpus=2)
    figure = figures.schedule_gantt(run, span_s=2 * run.epoch_s, place="rank")
    assert figure.layout.xaxis.range[1] == pytest.approx(2 * run.epoch_s)
    assert "on 2 ranks" in figure.layout.title.text and figure.layout.yaxis.ticktext[0] == "rank 0 worker"


def test_queues_of_ranks_are_added_up() -> None:
    run = S.simulate(TIMES, "overlapped", gpus=2)
    renamed = dataclasses.replace(run, queues={k.replace("GPU", "rank"): q for k, q in run.queues.items()})
    lines = {t.name: t for t in figures.schedule_gantt(renamed, place="rank").data if t.type == "scatter"}
    assert list(lines) == ["loader queue, all ranks", "trainer queue, all ranks"]
    assert max(lines["trainer queue, all ranks"].y) == 4


def test_a_queue_is_empty_before_its_first_record() -> None:
    run = S.simulate(TIMES, "overlapped", gpus=2)
    first, late = (
        dataclasses.replace(next(iter(run.queues.values())), time_s=np.array(times), depth=np.array(depths))
        for times, depths in (([0.0, 0.5], [1, 0]), ([0.25, 0.75], [1, 2]))
    )
    queues = {"loader queue of GPU 0": first, "loader queue of GPU 1": late}
    figure = figures.schedule_gantt(dataclasses.replace(run, queues=queues))
    line = next(t for t in figure.data if t.name == "loader queue, all GPUs")
    assert [*line.y][:4] == [1, 2, 1, 2]


def test_an_epoch_of_no_time_is_refused_by_name() -> None:
    nothing = S.stage_times(0, 0, 0, batches=3)
    with pytest.raises(ValueError, match="timeline must be of an epoch that takes time: .* cannot be drawn"):
        figures.schedule_gantt(S.simulate(nothing, "serial"))
    with pytest.raises(
        ValueError, match="sweep must hold epochs that take time: .* cannot be drawn .*1 trainers"
    ):
        figures.schedule_switching(S.switching(nothing, trainers=[1]))
