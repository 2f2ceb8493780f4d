"""The suite of both designs under one budget: rows on CPU ranks, and how the budget is found."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnsample_lab.bench import report, runner
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import Unavailable, VerificationError
from gnnsample_lab.bench.suites.dsp import crew
from gnnsample_lab.bench.suites.gnnlab import budget
from gnnsample_lab.distributed import RankError
from gnnsample_lab.pipeline.records import RankMemory

pytest.importorskip("torch")


@pytest.mark.slow
def test_rows_on_cpu_ranks(training_on_ranks: Session) -> None:
    record = runner.run("gnnlab-budget", session=training_on_ranks)
    ways = ["overlapped", "1S1T", "1S1T, one after the other"]
    by = {(row["policy"], row.get("split", row["executor"])): row for row in record["rows"]}
    assert list(by) == [(policy, way) for policy in budget.POLICIES for way in ways]
    assert {row["card"] for row in by.values()} == {"overlapped"}
    assert len({row["budget_gb"] for row in by.values()}) == 1 and {row["step"] for row in by.values()} == {
        "plain"
    }
    low, high = (100 * share for share in budget.SHARED)
    for policy in budget.POLICIES:
        sharing, *trainers = (by[policy, way] for way in ways)
        factored = min(trainers, key=lambda row: row["epoch_ms"])
        assert low <= sharing["cached_percent"] <= high
        assert all(sharing["cached_percent"] < row["cached_percent"] for row in trainers)
        assert [row for row in (sharing, *trainers) if "x_sharing" in row] == [factored]
        assert factored["x_sharing"] == pytest.approx(sharing["epoch_ms"] / factored["epoch_ms"], rel=1e-2)
        assert all(
            "model_error_percent" in row and row["p10"] <= row["ms"] <= row["p90"]
            for row in (sharing, *trainers)
        )
    assert record["verification"]["runs_with_the_losses_of_another"] == 2, (
        "of each policy's way to share time"
    )
    json.dumps(record, allow_nan=False)
    assert "budget GB" in report.text(record)


class Runs:
    """Runs that end as they are told to."""

    graph = SimpleNamespace(indptr=np.zeros(10**6), indices=np.zeros(0), edge_weight=None)  # 0.008 GB
    name, world, quick = "g", 2, True
    session = Session(True, [])

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[float]()

    def run(self, system: str, world: int, **options: Any) -> Any:
        if "budget_gb" not in options:
            held = [
                RankMemory(r, "all stages", 8 * 10**6, 0, 1.0, peak)
                for r, peak in enumerate((10**6, 24 * 10**6))
            ]
            return SimpleNamespace(memory=held)
        self.asked.append(options["budget_gb"])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(cache_ratio=answer)


def test_a_card_is_found_between_the_topology_and_a_run_without_a_limit() -> None:
    """Too little memory, or nothing cached: more; nearly all rows cached: less."""
    runs: Any = Runs(
        RankError("rank 1 failed in stage 'f': MemoryError: budget_gb=1 is less than"), 0.9, 0.0, 0.3
    )
    assert budget.smaller_card(runs, "plain", "overlapped") == pytest.approx(0.019)
    assert runs.asked == pytest.approx([0.016, 0.020, 0.018, 0.019])


def test_a_card_is_looked_for_by_its_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, asked = Runs(0.3), list[str]()
    run = runs.run
    monkeypatch.setattr(
        runs, "run", lambda *args, **options: (asked.append(options["executor"]), run(*args, **options))[1]
    )
    found: Any = runs
    budget.smaller_card(found, "plain", "serial")
    assert asked == ["serial", "serial"]
    monkeypatch.setattr(crew, "device", lambda: "cuda")
    assert budget.cards(Session(False, [])) == budget.CARDS
    assert budget.cards(Session(True, [])) == budget.CARDS[:1]
    monkeypatch.setattr(crew, "device", lambda: "cpu")
    assert budget.cards(Session(False, [])) == budget.CARDS[:1]


def test_other_failures_end_the_search() -> None:
    runs: Any = Runs(RuntimeError("another"))
    with pytest.raises(RuntimeError, match="another"):
        budget.smaller_card(runs, "plain", "overlapped")
    runs = Runs(*[0.0] * budget.TRIES)
    with pytest.raises(MemoryError, match="caches 10% to 40%"):
        budget.smaller_card(runs, "plain", "overlapped")


def test_of_either_design_the_best_way_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A way that caches all rows is a way; one that failed is none."""
    monkeypatch.setattr(budget, "modelled_here", lambda result, row: {})
    runs: Any = Runs()
    runs.quick, runs.world = False, 4
    ms = {"serial": 8.0, "streams": 6.0, "overlapped": 7.0, "1S3T": 4.0, "2S2T": 3.0}

    def try_row(row: dict[str, Any], run: Any) -> tuple[dict[str, Any], Any]:
        took = ms[row.get("split", row["executor"])]
        return (
            (row | {"cached_percent": 100.0, "ms": took, "steps": 3}, "run")
            if took
            else (row | {"error": "no"}, None)
        )

    runs.try_row, runs.verify = try_row, lambda result, reference: None
    rows = budget._both_designs(runs, "plain", "degree", 1.0)
    assert [row.get("split", row["executor"]) for row in rows] == list(ms)
    assert [row.get("x_sharing") for row in rows] == [None] * 4 + [2.0]
    ms["2S2T"] = 0.0
    rows = budget._both_designs(runs, "plain", "degree", 1.0)
    assert rows[3]["x_sharing"] == 1.5 and "ms" not in rows[4]
    ms["1S3T"] = 0.0
    assert not any("x_sharing" in row for row in budget._both_designs(runs, "plain", "degree", 1.0))


@pytest.mark.parametrize(
    ("pipelined", "tried"),
    [
        ({"error": "rank 1 failed in stage 'train': MemoryError: budget_gb=1"}, True),
        ({"ms": 4.5, "steps": 2, "cached_percent": 13.0}, True),
        ({"ms": 3.0, "steps": 2, "cached_percent": 100.0}, False),
    ],
)
def test_where_memory_does_not_last_trainers_do_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, pipelined: dict[str, Any], tried: bool
) -> None:
    monkeypatch.setattr(budget, "modelled_here", lambda result, row: {})
    runs: Any = Runs()
    runs.quick, runs.world, asked = False, 2, list[Any]()
    runs.run = lambda *_, **options: asked.append((options["executor"], options.get("pipelined")))

    def try_row(row: dict[str, Any], run: Any) -> tuple[dict[str, Any], Any]:
        run()
        if row.get("split") == "1S1T":
            return row | pipelined, None if "error" in pipelined else "run"
        return row | {"ms": 6.0 if row["executor"] != "factored" else 4.0, "steps": 2}, "run"

    runs.try_row, runs.verify = try_row, lambda result, reference: None
    rows = budget._both_designs(runs, "plain", "degree", 1.0)
    also = [("factored", False)] if tried else []
    assert asked == [*((name, None) for name in budget.SHARING), ("factored", True), *also]
    assert [row["split"] for row in rows[3:]] == ["1S1T", "1S1T, one after the other"][: 1 + tried]
    assert rows[-1]["x_sharing"] == (1.5 if tried else 2.0) and sum("x_sharing" in row for row in rows) == 1


def test_what_was_measured_before_a_failure_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: Any = Runs(0.3)

    def designs(runs: Any, step: str, policy: str, budget_gb: float) -> list[dict[str, Any]]:
        if policy == "presample":
            raise VerificationError("other losses\nand more")
        return [{"policy": policy}]

    monkeypatch.setattr(budget, "_both_designs", designs)
    assert list(budget._by_policy(runs, "plain", "serial")) == [
        [{"policy": "degree", "card": "serial"}],
        [{"part": "budget", "step": "plain", "card": "serial", "error": "VerificationError: other losses"}],
    ]
    runs = Runs(*[0.0] * budget.TRIES)
    ((row,),) = budget._by_policy(runs, "captured", "overlapped")
    assert row["step"] == "captured" and row["error"].startswith("MemoryError: no card between")


def test_one_gpu_has_no_two_designs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "most_ranks", lambda: 1)
    with pytest.raises(Unavailable, match="two GPUs"):
        budget.budget(Session(True, []))
