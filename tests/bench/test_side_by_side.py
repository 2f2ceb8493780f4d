"""The suite of all systems side by side: who is in it, what is compared with what."""

from __future__ import annotations

from typing import Any

import pytest

import gnnsample_lab as lab
from gnnsample_lab.bench import report, runner
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suites import side_by_side
from gnnsample_lab.systems.table import find

pytest.importorskip("torch")


def test_every_system_is_divided_into_dgl_at_one_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    asked: list[dict[str, Any]] = []
    verified: list[str] = []

    def run(session: Session, name: str, system: str, model: str, **options: Any) -> dict[str, Any]:
        asked.append({"name": name, "system": system, "model": model, **options})
        return {"graph": name, "system": system, "step_ms": 40.0 / (1 + len(asked) % 13), "steps": 1}

    monkeypatch.setattr(side_by_side.training, "run", run)
    monkeypatch.setattr(
        side_by_side.training,
        "verify",
        lambda session, names: verified.extend(names) or {"losses": len(names)},
    )
    record = runner.run("systems", session=Session(False, ["arxiv-like@0.1"]))
    assert [row["system"] for row in record["rows"]] == list(lab.systems())
    assert {one["cache_ratio"] for one in asked} == {side_by_side.CACHED}
    assert {one["size"] for one in asked} == {side_by_side.BATCH}
    base = record["rows"][0]
    assert base["system"] == "dgl"
    for row in record["rows"]:
        assert row["speedup"] == pytest.approx(base["step_ms"] / row["step_ms"], rel=1e-5)
    # A tree for each seed is another sample, so that its losses cannot be those of the others.
    assert (
        set(lab.systems()) - set(verified)
        == {name for name in lab.systems() if find(name).trees}
        == {"nextdoor"}
    )
    assert "a tree for each seed" in report.text(record)
