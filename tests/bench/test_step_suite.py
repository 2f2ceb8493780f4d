"""The suite of training steps: its cases in rounds, beside one another, on a CPU, where no step is captured."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import gnnsample_lab as lab
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites.path import step

KERNELS = {"kernel_ms": 0.5, "captures": None}


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    pytest.importorskip("torch")
    graph = lab.load("arxiv-like", scale=0.02)
    monkeypatch.setattr(step, "SEEDS", 64)
    monkeypatch.setattr(step, "QUICK_STEPS", 6)
    monkeypatch.setattr(step.common, "graph", lambda *_, **__: graph)
    monkeypatch.setattr(step, "_kernels", lambda *_: KERNELS)
    return Session(True, ["arxiv-like@0.02"])


def test_cases_stand_beside_one_another(session: Session) -> None:
    rows, checked = step._steps(session, "arxiv-like@0.02")
    assert [(row["model"], row["hidden"], row["step"]) for row in rows] == [
        (*case, how) for case in step.CASES[:2] for how in ("plain", "captured")
    ]
    assert checked == 2
    for plain, captured in zip(rows[::2], rows[1::2], strict=True):
        assert captured["x_plain"] == plain["ms"] / captured["ms"] and "x_plain" not in plain
        for row in (plain, captured):
            assert 0 < row["p10"] <= row["ms"] <= row["p90"] and row["of_kernels"] == row["ms"] / 0.5
            assert row["executor"] == "serial" and row["l2"] == "as left" and row["peak_mb"] >= 0
        assert captured["first_loss_off"] <= captured["losses_off"] <= step.LATER
        assert captured["replayed_off"] <= step.FIRST and "replayed_off" not in plain


def test_a_first_loss_is_held_to_more_than_later_ones() -> None:
    """No update has made a difference grow by then."""
    assert step.compared("a", [4.0, 3.0], [4.00003, 3.001]) == pytest.approx(
        {"first_loss_off": 3e-5, "losses_off": 1e-3}, rel=1e-3
    )
    for later in ([4.00005, 3.0], [4.0, 3.003], [float("nan"), 3.0]):
        with pytest.raises(VerificationError, match="losses differ by"):
            step.compared("a", [4.0, 3.0], later)


def test_a_replay_with_another_loss_is_an_error(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    make = step.captured_step

    def worse(*given: Any) -> Any:
        found, calls = make(*given), itertools.count()
        return lambda batch: found(batch) * (1.0001 if next(calls) == step.NOT_REPLAYED else 1.0)

    monkeypatch.setattr(step, "captured_step", worse)
    with pytest.raises(VerificationError, match="a: losses of replayed steps differ by 0.0001"):
        step.replayed_off("a", step._few_steps(session, "arxiv-like@0.02"), "sage", 16)


def test_other_losses_of_captured_steps_are_an_error(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "LATER", -1.0)
    with pytest.raises(VerificationError, match="arxiv-like@0.02, sage: losses differ by"):
        step._steps(session, "arxiv-like@0.02")
