"""The suite of fused stages: a tiny run on the CPU, what its rows say, and its targets."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from gnnsample_lab.bench import report, runner
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites import SUITES
from gnnsample_lab.bench.suites.path import fused
from gnnsample_lab.bench.suites.path import targets as wanted

pytest.importorskip("torch")


@pytest.mark.slow
def test_a_run_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    monkeypatch.setattr(fused, "EPOCHS", 2)
    monkeypatch.setattr(fused, "STEPS", 2)
    monkeypatch.setattr(fused, "SEEDS", 64)
    record = runner.run("fused-step", session=Session(True, ["arxiv-like@0.01"]))
    rows = record["rows"]
    assert [(row["model"], row["part"], row["way"]) for row in rows] == [
        (model, *rest) for model in ("sage", "gin") for rest in (
            ("stages", fused.APART), ("stages", fused.WITH_ROWS), ("stages", fused.FUSED),
            ("step", fused.APART), ("step", fused.FUSED), ("step", fused.REMOVED),
        )
    ]  # fmt: skip
    best = min(rows[0]["us"], rows[1]["us"])
    assert rows[2]["x_apart"] == pytest.approx(best / rows[2]["us"], rel=1e-3) and "x_apart" not in rows[1]
    assert rows[4]["of_allowed"] == pytest.approx(rows[5]["ms"] / rows[4]["ms"], rel=1e-3)
    assert rows[10]["of_allowed"] == pytest.approx(rows[11]["ms"] / rows[10]["ms"], rel=1e-3)
    assert record["verification"] == {
        "means_equal": 6, "sums_equal": 6, "first_losses_equal": 2,
    }  # fmt: skip
    json.dumps(record, allow_nan=False)
    assert SUITES["fused-step"].about in report.text(record)
    assert wanted.fused_step(record) == []


@pytest.mark.parametrize("model", fused.MODELS)
def test_wrong_means_and_sums_are_not_timed(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    monkeypatch.setattr(fused, "MODELS", {model: fused.MODELS[model]})
    gather = fused.FusedSampler._gather

    def wrong(*args: Any) -> Any:
        table, lengths, stats = gather(*args)
        return table * np.float32(1.001), lengths, stats

    monkeypatch.setattr(fused.FusedSampler, "_gather", wrong)
    with pytest.raises(VerificationError, match=f"fused: (vertices|{fused.MODELS[model]}s) "):
        fused.fused_step(Session(True, ["arxiv-like@0.01"]))


def test_targets() -> None:
    base = {"graph": "g", "model": "gin", "fanouts": [15, 10], "way": "fused"}
    rows = [
        {**base, "part": "stages", "x_apart": 2.6, "memory_share": 0.2},
        {**base, "part": "stages", "fanouts": [15, 10, 5], "x_apart": 3.0, "memory_share": 0.4},
        {**base, "part": "step", "x_apart": 1.4, "of_allowed": 0.95},
        {**base, "part": "step", "way": fused.APART},
    ]
    found = wanted.fused_step({"settings": {"device": "cuda"}, "rows": rows})
    assert [t.met for t in found] == [True, True, True, False, True] and "gin" in found[0].where
    old = [{key: value for key, value in row.items() if key != "model"} for row in rows]
    found = wanted.fused_step({"settings": {"device": "cuda"}, "rows": old})
    assert "sage" in found[0].where, "records from before there were two models"
