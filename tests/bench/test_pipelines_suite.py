"""The suite of training end to end: rows on CPU ranks, the ceiling of stages that overlap, and its targets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnsample_lab.bench import report, runner
from gnnsample_lab.bench.pieces import Pieces
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites.dsp import crew, pipelines, targets
from gnnsample_lab.pipeline.overlap import STAGES, overlap
from gnnsample_lab.pipeline.records import EpochRecord, StageEvent, TrainResult

pytest.importorskip("torch")


@pytest.mark.slow
def test_rows_on_cpu_ranks(training_on_ranks: Session) -> None:
    record = runner.run("pipelines", session=training_on_ranks)
    rows = record["rows"]
    assert not [row["error"] for row in rows if "error" in row]
    by = {
        part: [row for row in rows if row["part"] == part]
        for part in (
            "overlap",
            "scaling",
            "handover",
            "swap",
            "workers",
            "merged",
            "systems",
            "systems, modelled",
        )
    }
    assert [row["system"] for row in by["systems"]] == list(pipelines.SYSTEMS)
    alone, gained = by["overlap"]
    assert (alone["executor"], gained["executor"]) == ("serial", "overlapped") and "ceiling" not in alone
    assert gained["ceiling"] >= 1 and gained["share_percent"] > 0 and set(gained["alone_ms"]) == set(STAGES)
    assert {row["step"] for row in by["overlap"]} == {"plain"}, "a CPU captures nothing"
    (trace,) = [row for row in rows if row["part"] == "trace"]
    assert "ms" not in trace and "train_ms" not in trace, "the profiler was on"
    assert {(row["gpus"], row["executor"]) for row in by["scaling"]} == {
        (gpus, executor) for gpus in (1, 2) for executor in ("streams", "overlapped")
    }
    for part, ways in {
        "handover": ["host", "peer"], "swap": ["side by side", "in turns"], "workers": ["1", "2"],
    }.items():  # fmt: skip
        first, other = by[part]
        assert [first["way"], other["way"]] == ways and first["x_first"] == 1
        assert other["x_first"] == pytest.approx(first["epoch_ms"] / other["epoch_ms"], rel=1e-2)
        assert first["steps"] == other["steps"]
    merged = by["merged"]
    assert [row["way"] for row in merged] == ["1", "2", "4"] and merged[0]["x_first"] == 1
    assert len({row["steps"] for row in merged}) == 1 and {row["executor"] for row in merged} == {
        "overlapped"
    }
    assert by["handover"][0]["executor"] == "factored" and by["workers"][1]["executor"] == "overlapped"
    more = by["systems, modelled"]
    assert [row["system"] for row in more] == list(pipelines.SYSTEMS) and {row["gpus"] for row in more} == {8}
    for here, there in zip(by["systems"], more, strict=True):
        assert there["steps"] == -(-here["steps"] * 2 // 8) and there["over_dsp"] > 0
        assert there["ms"] > 0 and there["rows_per_batch"] == here["rows_per_batch"]
        longest = max(there[f"{stage}_ms"] for stage in STAGES)
        assert longest * 0.99 <= there["ms"], "no step is shorter than its longest stage"
    assert all(row["transfer"] for row in rows if "ms" in row and row not in more), (
        "a reader sees where missing rows came from"
    )
    assert rows[0]["p10"] <= rows[0]["ms"] <= rows[0]["p90"]
    assert record["verification"]["runs_with_the_losses_of_another"] >= 6
    assert record["targets"] == []  # times of CPU ranks say nothing about GPUs
    json.dumps(record, allow_nan=False)
    assert "of ceiling %" in report.text(record)


@pytest.mark.slow
def test_fewer_gpus_have_what_the_paper_has_there(
    training_on_ranks: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "several", lambda session: [1, 2])
    monkeypatch.setattr(pipelines, "PARTS", (pipelines._systems_on_fewer,))
    rows = runner.run("pipelines", session=training_on_ranks)["rows"]
    assert [(row["part"], row["system"], row["gpus"]) for row in rows] == [
        ("systems", system, 1) for system in ("pyg-cpu", "dgl-uva", "quiver", "dsp")
    ]
    assert all((row["model"], row["step"]) == ("sage", "plain") and row["ms"] > 0 for row in rows)
    assert rows[-1]["over_dsp"] == 1 and rows[0]["epoch_s"] > 0


def test_a_part_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Losses that differ, or a cache of no rows, are said in the record, and cost no other part's times. A run that
    goes on has the parts that were measured, and tries the others again."""
    times = {"part": "scaling", "ms": 1.0}

    def _swap(runs: Any) -> list[dict[str, Any]]:
        raise VerificationError("other losses\nand more")

    def _trace(runs: Any) -> list[dict[str, Any]]:
        raise KeyError("lost")

    measured = []

    def _scaling(runs: Any) -> list[dict[str, Any]]:
        measured.append("scaling")
        runs.verified += 3
        return [times]

    class Runs:
        graph, size, verified = None, 64, 0

        def __init__(self, *_: Any) -> None: ...

    said: list[str] = []
    monkeypatch.setattr(pipelines, "PARTS", (_swap, _scaling, _trace))
    monkeypatch.setattr(pipelines, "Runs", Runs)
    monkeypatch.setattr(pipelines, "graph_facts", lambda graph: {})
    monkeypatch.setattr(crew, "most_ranks", lambda: 2)
    session = Session(True, ["g"], said.append)
    session.pieces = Pieces(tmp_path / "pipelines.pieces", {}, {})
    record = pipelines.pipelines(session)
    assert record["rows"] == [
        {"graph": "g", "seeds_a_gpu": 64, "part": "swap", "error": "VerificationError: other losses"},
        {"graph": "g", "seeds_a_gpu": 64, **times},
        {"graph": "g", "seeds_a_gpu": 64, "part": "trace", "error": "KeyError: 'lost'"},
    ]
    assert record["verification"] == {"runs_with_the_losses_of_another": 3, "parts_that_failed": 2}
    assert record["notes"][0] == "g, swap: no times, for it failed: VerificationError: other losses"
    assert any(line.endswith("g: swap failed, VerificationError: other losses") for line in said)
    session.pieces = Pieces(tmp_path / "pipelines.pieces", {}, {})
    assert pipelines.pipelines(session) == record and measured == ["scaling"]


def test_shares_are_the_same_work_when_each_batch_was_trained_on_once() -> None:
    runs: Any = object.__new__(pipelines.Runs)
    runs.verified = 0
    one = replace(made_up((1, 1, 1, 1)), batch_ids=[0, 1], losses=[1.0, 2.0], update_sizes=[1, 1])
    one.settings["executor"] = "factored"
    runs.verify_shares(replace(one, batch_ids=[1, 0], losses=[9.0, 9.0]), one)
    runs.verify_shares(replace(one, losses=[1.0, 2.001]), one)
    assert runs.verified == 2
    for wrong in (
        {"batch_ids": [1, 1]},
        {"losses": [1.0, 2.1]},
        {"batch_ids": [1, 0], "losses": [1.0, np.nan]},
    ):
        with pytest.raises(VerificationError):
            runs.verify_shares(replace(one, **wrong), one)


def made_up(*epochs: tuple[float, float, float, float]) -> TrainResult:
    records = [
        EpochRecord(s * 2e3, e * 2e3, t * 2e3, w * 2e3, num_batches=2, tasks=2) for s, e, t, w in epochs
    ]
    return TrainResult("x", "gcn", "g", "cpu", "made up", [1.0], list(range(4)), [], "", records)


def test_both_of_the_papers_tables_stand_beside_the_rows_of_their_models() -> None:
    """Table 4 has GraphSAGE by the number of GPUs, table 5 GCN on 8 alone."""
    record = report.load()["pipelines"]
    table, gpus = report.tables(record)[0], record["settings"]["ranks"]
    at = {name: table.header.index(name) for name in ("part", "system", "model", "GPUs")}
    sage, gcn = (table.header.index(name) for name in ("paper epoch s", "paper epoch s (GCN, 8 GPUs)"))
    shown = {
        (row[at["system"]], row[at["model"]]): (row[sage], row[gcn])
        for row in table.rows
        if row[at["part"]] == "systems" and row[at["GPUs"]] == str(gpus)
    }
    seconds = {2: "1.75", 4: "0.99"}[gpus]
    assert shown["dsp", "gcn"] == ("-", "0.55") and shown["dsp", "sage"] == (seconds, "-")
    assert shown["pyg-cpu", "gcn"] == ("-", "15.50") and shown["lab", "gcn"] == ("-", "-")
    assert all(row[gcn] == "-" for row in table.rows if not row[at["part"]].startswith("systems"))
    eight = {row[at["system"]]: row[sage] for row in table.rows if row[at["part"]] == "systems, modelled"}
    assert set(eight) == set(pipelines.SYSTEMS)


def test_hand_overs_are_means_of_what_a_mini_batch_takes() -> None:
    events = [
        StageEvent(0, "sampler", "put", 0, 1000, 3000), StageEvent(0, "sampler", "put", 1, 5000, 9000),
        StageEvent(0, "sampler", "sample", 1, 0, 9000), StageEvent(1, "loader", "get", 0, 4000, 4500),
    ]  # fmt: skip
    assert pipelines.hand_over_ms(events) == {"put_ms": 3.0, "get_ms": 0.5}
    assert pipelines.hand_over_ms(events[2:3]) == {}


def test_the_ceiling_is_that_of_the_serial_stages() -> None:
    serial = made_up((9, 9, 9, 99), (1, 2, 5, 9), (1, 2, 5, 10))  # the first epoch compiles
    found = overlap(serial, made_up((9, 9, 9, 99), (2, 3, 5.2, 5), (2, 3, 5.4, 7.5)))
    assert found.stage_ms == {"sample": 1, "extract": 2, "train": 5} and found.ceiling == 8 / 5
    assert (found.serial_ms, found.overlapped_ms) == (9.5, 6.25)
    assert found.gained == 8 / 6.25 and found.share == pytest.approx(5 / 6.25)
    other = made_up((1, 1, 1, 1))
    other.batch_ids.append(9)
    with pytest.raises(ValueError, match="the same mini-batches"):
        overlap(serial, other)


def test_captured_steps_stand_beside_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of step with a serial run of its own, whose losses are those of the plain one."""
    monkeypatch.setattr(crew, "on_gpu", lambda: True)
    monkeypatch.setattr(pipelines, "CACHED", (0.3,))
    given: list[dict[str, Any]] = []

    class Runs:
        size, compared = 64, list[tuple[str, str]]()

        def run(self, system: str, **options: Any) -> TrainResult:
            given.append(options)
            serial = options["executor"] == "serial"
            captured = options.get("captured", False)
            stages = (1, 2, 3 if captured else 5)
            wall = sum(stages) if serial else max(stages)
            result = made_up((*stages, wall), (*stages, wall))
            settings = {"kernel": options.get("kernel", "library"), "executor": options["executor"]}
            return replace(result, system="captured" if captured else "plain", settings=settings)

        def try_row(self, row: dict[str, Any], run: Any) -> tuple[dict[str, Any], TrainResult]:
            result = run()
            return dict(row), result

        def verify(self, result: TrainResult, reference: TrainResult | None) -> None:
            if reference is not None:
                self.compared.append((result.system, reference.system))

    runs: Any = Runs()
    rows = [row for row in pipelines._overlap(runs) if row["seeds_a_gpu"] == 64]
    assert [(row["step"], row["executor"]) for row in rows] == [
        (step, executor) for step in ("plain", "captured") for executor in ("serial", "overlapped", "streams")
    ]
    assert [row.get("ceiling") for row in rows] == [None, 8 / 5, 8 / 5, None, 2.0, 2.0]
    assert [row["kernel"] for row in rows] == ["library"] * 3 + ["auto"] * 3
    assert all(
        options["captured"] and options["kernel"] == "auto" for options in given if "captured" in options
    )
    own = [("plain", "plain")] * 2 + [("captured", "plain")] + [("captured", "captured")] * 2
    assert runs.compared == own * 2, "the two sizes of mini-batches"


def test_kernels_are_known_by_their_sources() -> None:
    names = pipelines.sampling_kernels()
    assert {"draw_blocks", "grid_barrier"} <= names and all(name.isidentifier() for name in names)


def test_targets() -> None:
    row = {"graph": "g", "gpus": 2, "executor": "streams", "seeds_a_gpu": 1024}
    rows = [
        {**row, "part": "overlap", "ceiling": 1.05, "share_percent": 50.0, "miss_percent": 0.0},
        {**row, "part": "overlap", "ceiling": 1.5, "share_percent": 92.0, "miss_percent": 40.0},
        {**row, "part": "scaling", "x_one": 1.7}, {**row, "part": "scaling", "x_one": 1.9},
        {**row, "part": "trace", "traced": True, "sampler_kernels": 5, "trainer_kernels": 0},
        {**row, "part": "systems", "system": "quiver", "model": "sage", "step": "plain", "over_dsp": 0.8},
        {"part": "systems", "error": "it failed"},
    ]  # fmt: skip
    record = {"settings": {"device": "cuda"}, "rows": rows}
    assert [(t.measured, t.met) for t in targets.pipelines(record)] == [
        (92.0, True), (1.9, True), (0.0, True), (0.8, False),
    ]  # fmt: skip
    assert targets.pipelines(record | {"settings": {"device": "CPU: no NVLink"}}) == []
