"""Curves of accuracy and loss, which four papers' suites share: what a row holds, and how hard labels are."""

from __future__ import annotations

import functools
import math
import re
from typing import Any

import pytest

import gnnsample_lab as lab
from gnnsample_lab.bench import convergence, hardness, runner
from gnnsample_lab.bench.noise import over_noise
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites import SUITES
from gnnsample_lab.bench.suites.pgsampler import accuracy
from gnnsample_lab.graph.errors import DatasetNotFoundError
from gnnsample_lab.graph.twins.recipes import stored
from gnnsample_lab.pipeline.records import EpochRecord, TrainResult

pytest.importorskip("torch")


def result(
    times: list[float], losses: list[float], accuracy: list[float], system: str = "dgl"
) -> TrainResult:
    steps = len(losses) // len(times)
    epochs = [EpochRecord(0.0, 0.0, 0.0, total_us=1e6 * s, num_batches=steps) for s in times]
    return TrainResult(
        system, "sage", "g", "cpu", "made up", losses, list(range(len(losses))), accuracy, "valid", epochs
    )


def test_a_curve_by_hand() -> None:
    row = convergence.curve(
        "papers100M-like@0.02", result([9.0, 2.0, 4.0], [6.0, 4.0, 3.0, 2.0, 1.0, 0.0], [0.2, 0.6, 0.5]), seed=3,
        trainers=2, batch_size=7,
    )  # fmt: skip
    assert row["seconds"] == [3.0, 5.0, 9.0], (
        "the first epoch warms up and counts as the median of the others"
    )
    assert row["steps_by_epoch"] == [2, 4, 6] and row["updates"] == 1, (
        "two trainers, two mini-batches: one update"
    )
    assert row["epoch_loss"] == [5.0, 2.5, 0.5] and row["final_loss"] == 0.0
    assert (row["best_accuracy"], row["final_accuracy"], row["seed"], row["batch_size"]) == (0.6, 0.5, 3, 7)
    assert (row["original"], row["original_split"]) == (0.7032, "valid")
    assert [r["loss"] for r in convergence.by_epoch(row)] == row["epoch_loss"]
    assert [r["steps"] for r in convergence.by_epoch(row)] == [2, 4, 6]
    assert (convergence.reached(row, 0.55), convergence.reached(row, 0.61)) == (1, None)


def test_labels_that_are_easier_than_the_originals_are_named() -> None:
    def notes(*accuracies: float) -> list[str]:
        rows = [convergence.curve("arxiv-like@0.1", result([1.0], [1.0], [a])) for a in accuracies]
        return hardness.hardness(
            {"rows": [*rows, convergence.curve("musae-facebook", result([1.0], [1.0], [0.9]))]}
        )

    assert notes(0.6, 0.7) == [
        "arxiv-like@0.1: best accuracy 70.0%, labels as hard as the original's (72.8% on its valid split, GraphSAGE, "
        "published)."
    ]
    assert hardness.original("reddit-like", "valid") == {"original": 0.953, "original_split": "test"}
    assert hardness.original("musae-facebook", "valid") == {}
    assert "easier than" in notes(0.99)[0] and "not learnt as far as" in notes(0.3)[0]


@pytest.mark.parametrize("name", hardness.ORIGINALS)
def test_published_accuracies_are_those_that_the_twins_were_made_for(name: str) -> None:
    """The statistics say where the hardness of a twin's labels comes from, and the same number stands here."""
    source = stored(name)["sources"]["labels.told"]
    percent = re.search(r"([0-9.]+) %", source)
    assert percent and math.isclose(float(percent.group(1)) / 100, hardness.ORIGINALS[name]["test"]), source


def test_what_is_not_here_is_left_out_with_a_line_unless_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def graph(session: Session, name: str, features: bool = False) -> Any:
        if name == convergence.REAL:
            raise DatasetNotFoundError("no file of it")

    monkeypatch.setattr(convergence.common, "graph", graph)
    names, notes = convergence.graphs(Session(True), "reddit-like", cpu=("arxiv-like@0.1",))
    assert convergence.REAL not in names and names and "left out" in notes[0]
    with pytest.raises(DatasetNotFoundError):
        convergence.graphs(Session(True, [convergence.REAL]))


@functools.cache
def quick_run(suite: str) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_DEVICE", "cpu")
        return runner.run(suite, session=Session(True, ["arxiv-like@0.02"]))


@pytest.mark.parametrize("suite", ["fastgl-fig16", "pgsampler-fig11"])
def test_curves_of_a_tiny_twin(suite: str) -> None:
    record = quick_run(suite)
    assert not SUITES[suite].needs_gpu and len({row["seed"] for row in record["rows"]}) >= 2
    for row in record["rows"]:
        assert len(row["accuracy"]) == row["epochs"] and row["original"] == 0.7277
        assert "seconds" not in row and "epoch_s" not in row  # over steps and epochs alone
        assert row["epoch_loss"][-1] < row["epoch_loss"][0]
    differences = over_noise(record["rows"], "final_accuracy")
    assert {row["system"] for row in differences} == {row["system"] for row in record["rows"]} - {"dgl"}


def test_dgls_draws_have_a_key_of_their_own() -> None:
    """Under one key both samplers draw the same mini-batches, and their accuracies are the same by construction."""
    record = quick_run("pgsampler-fig11")
    losses = {(row["system"], row["seed"]): row["losses"] for row in record["rows"]}
    for seed in accuracy.QUICK_SEEDS:
        ours, theirs = losses["pgsampler", seed], losses["dgl", seed]
        assert len(ours) == len(theirs) and all(a != b for a, b in zip(ours[1:], theirs[1:], strict=True))
    assert record["settings"]["dgl_seed"]
    assert record["verification"]["same_key_mini_batches"] == 0, "on a CPU they would be one twin's, twice"
    assert accuracy.SAME_KEY in record["notes"]


def test_another_samplers_mini_batches_are_seen_under_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    graph = lab.load("arxiv-like", scale=0.02)
    assert accuracy.same_under_one_key(graph, 64, (5, 5)) == 2
    made = accuracy._sampler
    monkeypatch.setattr(accuracy, "_sampler", lambda g, name, f, seed: made(g, name, f, int(name == "dgl")))
    with pytest.raises(VerificationError, match="mini-batch 0 of pgsampler"):
        accuracy.same_under_one_key(graph, 64, (5, 5))
