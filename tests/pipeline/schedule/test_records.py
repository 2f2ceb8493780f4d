"""Recorded runs as inputs of the model, and how far it is from them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gnnsample_lab.pipeline.records import EpochRecord, StageEvent, TrainResult
from gnnsample_lab.pipeline.schedule import (
    Costs,
    fit_host_share,
    model_error,
    recorded_runs,
    run_of,
    simulate,
    stage_times,
    times_of,
)
from gnnsample_lab.pipeline.schedule.records import SYSTEM_EXECUTORS, RecordedRun
from gnnsample_lab.resources import resource_path
from gnnsample_lab.systems.table import find


def test_executors_of_systems_are_those_of_the_table() -> None:
    assert {name: find(name).executor for name in SYSTEM_EXECUTORS} == SYSTEM_EXECUTORS
    assert set(SYSTEM_EXECUTORS) >= {"dgl", "tsota", "gnnlab", "fastgl", "lab"}


def test_shipped_records_are_read() -> None:
    runs = recorded_runs()
    assert len(runs) >= 100
    assert all(run.origin.startswith("measured on ") and run.epoch_s > 0 for run in runs)
    one = next(
        run for run in runs if "fastgl-fig9" in run.times.source and run.name == "pyg-cpu, gcn, reddit-like"
    )
    record = json.loads(resource_path("data/measured/fastgl-fig9.json").read_text())
    wanted = {"graph": "reddit-like", "system": "pyg-cpu", "model": "gcn"}
    (row,) = [row for row in record["rows"] if wanted.items() <= row.items()]
    # An epoch that was cut is one of the steps that were measured.
    assert one.executor == "overlapped" and one.times.batches == row["steps"] < row["steps_of_an_epoch"]
    assert one.options == {"workers": 4}, "each stage of it has four, whose times overlap"
    assert one.times.mean("sample") == pytest.approx(row["sample_ms"] / 1e3, rel=1e-4)
    assert one.epoch_s == pytest.approx(row["step_ms"] / 1e3 * row["steps"], rel=1e-4)
    suites = {run.times.source.split(":")[0] for run in runs}
    assert {"nextdoor-table1", "fastgl-fig9"} <= suites


def test_the_model_against_what_was_measured_on_one_gpu() -> None:
    """Error by executor. Streams are the worst: the model knows nothing of the host that launches their kernels."""
    runs = recorded_runs()
    executors = ("serial", "thread", "streams", "overlapped")
    error = {ex: model_error([r for r in runs if r.executor == ex]) for ex in executors}
    assert error["serial"].mean < 0.015 and abs(error["serial"].worst.error) < 0.08
    # The worst is one row on a busy host: two threads wait for one interpreter, of which the model knows nothing.
    assert error["thread"].mean < 0.025 and abs(error["thread"].worst.error) < 0.35
    assert error["streams"].mean < 0.15 and -0.5 < error["streams"].worst.error < 0
    assert error["overlapped"].mean < 0.08 and abs(error["overlapped"].worst.error) < 0.35
    overall = model_error(runs)
    assert overall.left_out == sum(run.executor is None for run in runs)
    assert len(overall.rows) == len(runs) - overall.left_out


def write(folder: Path, **change: Any) -> Path:
    row = {"graph": "toy", "system": "lab", "model": "gcn", "steps_of_an_epoch": 10, "epoch_s": 0.05,
           "sample_ms": 1.0, "reorder_ms": 0.5, "extract_ms": 2.0, "train_ms": 3.0}  # fmt: skip
    record = {
        "suite": "made-up",
        "origin": "measured",
        "environment": {"gpu": {"name": "a GPU"}},
        "rows": [row],
    }
    record.update(change)
    path = folder / "made-up.json"
    path.write_text(json.dumps(record))
    return path


def test_reordering_counts_as_sampling(tmp_path: Path) -> None:
    write(tmp_path)
    (run,) = recorded_runs(tmp_path)
    assert [run.times.mean(s) for s in ("sample", "extract", "train")] == pytest.approx([1.5e-3, 2e-3, 3e-3])
    assert (run.executor, run.times.batches, run.origin) == ("streams", 10, "measured on a GPU")
    assert "made-up" in run.times.source and "lab, gcn, toy" in run.times.source


def test_rows_of_several_gpus_say_how_they_ran(tmp_path: Path) -> None:
    row = {"graph": "toy", "system": "gnnlab", "steps_of_an_epoch": 5, "batches": 10, "epoch_s": 0.03,
           "sample_ms": 1.0, "extract_ms": 2.0, "train_ms": 6.0, "gpus": 3, "executor": "factored", "samplers": 1,
           "switching": True, "staleness": None}  # fmt: skip
    write(tmp_path, rows=[row])
    (run,) = recorded_runs(tmp_path)
    assert (run.executor, run.gpus, run.times.batches) == ("factored", 3, 10)
    expected = simulate(run.times, "factored", gpus=3, samplers=1, switching=True, staleness=None).epoch_s
    assert model_error([run]).rows[0].modelled_s == expected


def test_what_was_not_measured_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, origin="modelled")
    assert recorded_runs(tmp_path) == []
    write(tmp_path, rows=[{"graph": "toy", "sample_ms": 1.0}])
    assert recorded_runs(tmp_path) == []


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ValueError, match="made-up.json"):
        recorded_runs(tmp_path)
    write(tmp_path, rows=3)
    with pytest.raises(ValueError, match="made-up.json"):
        recorded_runs(tmp_path)
    write(tmp_path, environment=None)
    with pytest.raises(ValueError, match="made-up.json"):
        recorded_runs(tmp_path)
    with pytest.raises(FileNotFoundError, match="folder"):
        recorded_runs(tmp_path / "gone")


def test_stage_times_of_a_training_run() -> None:
    slow = EpochRecord(9e6, 9e6, 9e6, 3e7, num_batches=4)
    epoch = EpochRecord(4e6, 8e6, 12e6, 2.4e7, reorder_us=4e6, num_batches=4)
    result = TrainResult("lab", "gcn", "toy", "cpu", "measured on a CPU", [], [], [], "valid", [slow, epoch])
    times = times_of(result)
    assert times.batches == 4
    assert [times.mean(s) for s in ("sample", "extract", "train")] == pytest.approx([2.0, 2.0, 3.0])
    assert simulate(times, "serial").epoch_s == pytest.approx(28.0)
    assert times_of(result, batches=40).batches == 40
    assert times.source == "lab, gcn, toy; measured on a CPU"
    empty = SimpleNamespace(epochs=[1], steady=EpochRecord(0, 0, 0, 0))
    with pytest.raises(ValueError, match="result must have trained"):
        times_of(empty)


def test_the_error_by_hand() -> None:
    times = stage_times(0.1, 0.2, 0.3, batches=10)
    runs: list[Any] = [
        {"name": "a", "executor": "serial", "times": times, "epoch_s": 5.0},
        RecordedRun("b", "serial", times, 6.0, "measured on a GPU"),
        {"name": "c", "executor": None, "times": times, "epoch_s": 6.0},
    ]
    error = model_error(runs)
    assert [row.error for row in error.rows] == pytest.approx([0.2, 0.0]) and error.left_out == 1
    assert error.mean == pytest.approx(0.1) and error.bias == pytest.approx(0.1) and error.worst.name == "a"
    assert "2 runs are off by 10.0% on average" in str(error) and "worst +20.0%: serial, a" in str(error)
    assert list(error.to_frame().measured_s) == [5.0, 6.0]


def test_the_share_of_the_link_is_found_again() -> None:
    times = stage_times(0.1, 0.6, 0.3, batches=64)
    truth = Costs(host_share=0.4)
    runs = [
        {"executor": "timeshared", "times": times, "gpus": n,
         "epoch_s": simulate(times, "timeshared", gpus=n, costs=truth).epoch_s}
        for n in (2, 4, 8)
    ]  # fmt: skip
    assert fit_host_share(runs, steps=20) == pytest.approx(0.4)
    assert model_error(runs, costs=truth).mean < 1e-12 < model_error(runs).mean


def test_a_run_of_no_time_cannot_be_fitted() -> None:
    run = {"name": "idle", "executor": "serial", "times": stage_times(0, 0, 0, batches=3), "epoch_s": 1.0}
    with pytest.raises(
        ValueError, match="runs must have stages that take time: .* cannot be fitted .*'idle'"
    ):
        fit_host_share([run], steps=2)


def trained(executor: str, events: list[StageEvent], tasks: int, **settings: Any) -> TrainResult:
    sums = {
        f"{stage}_us": sum(e.end_us - e.start_us for e in events if e.stage == stage)
        for stage in ("sample", "extract", "train")
    }
    epoch = EpochRecord(
        **sums, total_us=max(e.end_us for e in events), num_batches=2, tasks=tasks, events=tuple(events)
    )
    return TrainResult(
        "lab", "gcn", "toy", "cpu", "measured on 2 CPU processes", [1.0, 1.0], [0, 1], [], "", [epoch],
        settings={"executor": executor, **settings}, ranks=2,
    )  # fmt: skip


def test_a_run_of_two_ranks_gives_the_times_of_every_slice() -> None:
    """Slice s of rank r is mini-batch 2 s + r of the model, whoever was first in the run."""
    events = [
        StageEvent(rank, "worker", stage, step, 1e6 * at, 1e6 * (at + took))
        for rank in (1, 0)
        for step in (0, 1)
        for stage, at, took in (
            ("sample", 0.0, 1.0 + rank + 2 * step),
            ("extract", 5, 0.5),
            ("train", 6, 3.0),
        )
    ]
    run = run_of(trained("serial", events, tasks=4))
    assert (run.executor, run.gpus, run.epoch_s, run.options) == ("serial", 2, 9.0, {})
    assert run.times.sample_s.tolist() == pytest.approx([1, 2, 3, 4])
    assert run.times.extract_s.tolist() == pytest.approx([0.5] * 4)
    assert run.times.source.endswith("measured on 2 CPU processes")


def test_a_factored_run_brings_its_split_and_its_hand_overs() -> None:
    events = [
        StageEvent(rank, worker, stage, batch, 1e6 * (10 * batch), 1e6 * (10 * batch + took + batch))
        for batch in (0, 1)
        for rank, worker, stage, took in (
            (0, "sampler", "sample", 1.0), (0, "sampler", "put", 0.25), (1, "loader", "get", 0.5),
            (1, "loader", "extract", 2.0), (1, "trainer", "train", 3.0),
        )
    ]  # fmt: skip
    settings = {"samplers": 1, "switching": False, "staleness": None, "pipelined": True, "capacity": 2}
    run = run_of(trained("factored", events, tasks=2, workers=1, **settings))
    assert run.options == {**settings, "costs": Costs(put_s=0.75, get_s=1.0)}
    assert run.times.train_s.tolist() == pytest.approx([3, 4])
    model = simulate(run.times, run.executor, gpus=run.gpus, **run.options)
    assert model_error([run]).rows[0].modelled_s == model.epoch_s and model.roles == ("sampler", "trainer")


def test_a_run_that_swaps_is_batch_mode_with_its_loads() -> None:
    """AGL's batch mode: the topology makes room for the cache in every epoch."""
    stages = (
        ("sampler", "load topology", 0.0, 1.0), ("sampler", "sample", 1.0, 0.5), ("sampler", "put", 1.5, 0.25),
        ("sampler", "load cache", 2.0, 3.0), ("loader", "get", 5.0, 0.125), ("loader", "extract", 6.0, 0.5),
        ("trainer", "train", 7.0, 1.0),
    )  # fmt: skip
    events = [
        StageEvent(rank, worker, stage, rank, 1e6 * at, 1e6 * (at + took))
        for rank in (0, 1)
        for worker, stage, at, took in stages
    ]
    settings = {"samplers": 2, "switching": True, "staleness": 0, "pipelined": True, "capacity": None}
    run = run_of(trained("factored", events, tasks=2, swap=True, **settings))
    costs = Costs(put_s=0.25, get_s=0.125, load_topology_s=1.0, load_cache_s=3.0)
    assert (run.executor, run.options) == (
        "batch-mode",
        {"staleness": 0, "pipelined": True, "costs": costs},
    )
    assert run.times.sample_s.tolist() == [0.5, 0.5], "loads are no stage of a mini-batch"
    (row,) = model_error([run]).rows
    assert row.modelled_s > 4.0


def test_means_stand_in_where_several_mini_batches_were_timed_together() -> None:
    events = [
        StageEvent(0, "sampler", "sample", 0, 0.0, 4e6),
        *(StageEvent(0, "loader", "extract", batch, 0.0, 1e6) for batch in (0, 1)),
        *(StageEvent(0, "trainer", "train", batch, 0.0, 2e6) for batch in (0, 1)),
    ]
    run = run_of(trained("overlapped", events, tasks=2, workers=1, capacity=3, transfer="none"))
    assert run.times.sample_s.tolist() == pytest.approx([2, 2]) and run.options == {
        "workers": 1,
        "capacity": 3,
    }
    with pytest.raises(TypeError, match="result must be a training run"):
        run_of(3)


def test_of_a_part_of_an_epoch_the_part_is_the_run(tmp_path: Path) -> None:
    """Seconds of a record are of a whole epoch, multiplied from the steps that ran."""
    path = write(tmp_path)
    record = json.loads(path.read_text())
    record["rows"][0] |= {"steps": 4, "system": "dgl"}
    path.write_text(json.dumps(record))
    (run,) = recorded_runs(tmp_path)
    assert run.times.batches == 4 and run.epoch_s == pytest.approx(0.05 * 4 / 10)
    # A second thread samples and extracts while the first trains: the first mini-batch waits for both.
    assert model_error([run]).rows[0].modelled_s == pytest.approx(3.5e-3 + 3 * 3.5e-3 + 3e-3)


@pytest.mark.parametrize(
    ("executor", "settings"),
    [
        ("serial", {}),
        ("overlapped", {"workers": 3, "capacity": 5}),
        (
            "factored",
            {"samplers": 1, "switching": False, "staleness": None, "pipelined": False, "capacity": 2},
        ),
        ("factored", {"samplers": 2, "switching": True, "staleness": 0, "pipelined": True, "swap": True}),
    ],
)
def test_a_row_of_a_run_is_read_as_the_run(tmp_path: Path, executor: str, settings: dict[str, Any]) -> None:
    stages = (
        ("sample", 1.0),
        ("put", 0.25),
        ("load cache", 3.0),
        ("get", 0.125),
        ("extract", 2.0),
        ("train", 3.0),
    )
    events = [
        StageEvent(rank, "worker", stage, batch, 0.0, 1e6 * took)
        for rank, batch in ((0, 0), (1, 1))
        for stage, took in stages
        if executor == "factored" or stage in ("sample", "extract", "train")
    ]
    result = trained(executor, events, tasks=2, **settings)
    write(tmp_path, rows=[json.loads(json.dumps(result.row()))])
    (read,), made = recorded_runs(tmp_path), run_of(result)
    assert (read.executor, read.gpus, read.options) == (made.executor, made.gpus, made.options)
    assert model_error([read]).rows[0].modelled_s == pytest.approx(model_error([made]).rows[0].modelled_s)
