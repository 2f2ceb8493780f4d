"""Tests of the suites do not read the whole package for the hash of its source; those of the hash do, by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gnnsample_lab.bench import source
from gnnsample_lab.bench.session import Session

MADE_UP = {"layers": {"bench": "0" * 16}, "hash": source.total({"bench": "0" * 16})}


@pytest.fixture(scope="module", autouse=True)
def _source_that_costs_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of a whole module: its own fixtures may run a suite before the first test."""
    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__.rpartition(".")[2] != "test_source":
            patch.setattr(source, "of_function", lambda path: MADE_UP)
        yield


@pytest.fixture
def training_on_ranks(monkeypatch: pytest.MonkeyPatch, pair: Any) -> Session:
    """A quick session on a small graph and two Gloo ranks, for suites that train as ``pipelines`` does."""
    from gnnsample_lab.bench.suites.dsp import crew, pipelines

    monkeypatch.setenv("LAB_DEVICE", "cpu")
    for name, value in {"HIDDEN": 8, "QUICK_STEPS": 2, "EPOCHS": 2, "CACHED": (0.3,)}.items():
        monkeypatch.setattr(pipelines, name, value)
    monkeypatch.setattr(crew, "FANOUTS", (4, 3))
    monkeypatch.setattr(crew, "BATCH", 64)
    session = Session(True, ["arxiv-like@0.01"])
    session.kept(("dsp", "ranks"), lambda: pair)
    return session
