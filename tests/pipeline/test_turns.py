"""Workers of several ranks with collectives of their own: one order for all, or a process group each; failures."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks.errors import RankError
from gnnsample_lab.systems.table import SYSTEMS
from tests.distributed.conftest import left_after
from tests.pipeline import collectives

torch = pytest.importorskip("torch")

QUICK: dict[str, Any] = {
    "system": "dsp", "fanouts": (3, 4), "hidden": 16, "batch_size": 32, "lr": 0.01, "device": "cpu", "pick": "floyd",
    "progress": False, "evaluate": False, "parts": "random",
}  # fmt: skip


def test_workers_that_arrive_in_opposite_orders_start_in_one(three_ranks):
    orders = three_ranks.run(collectives.opposite_orders, 40)
    assert orders[0] == orders[1] == orders[2] and sorted(orders[0]) == ["loader"] * 40 + ["sampler"] * 40


@pytest.mark.parametrize("coordinated", [True, False])
def test_both_ways_train_as_one_device_does(graph, pair, coordinated):
    expected = lab.train(graph, **{**QUICK, "system": "dgl", "epochs": 2})
    found = lab.train(graph, ranks=pair, coordinated=coordinated, epochs=2, **QUICK)
    assert found.settings["coordinated"] is coordinated and found.settings["executor"] == "overlapped"
    assert found.batch_ids == expected.batch_ids
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-5)


def test_the_system_says_which_way():
    assert SYSTEMS["dsp"].coordinated and not SYSTEMS["dsp-seq"].coordinated


def test_all_ranks_start_the_collectives_of_training_alike(graph, pair, monkeypatch):
    monkeypatch.setattr("gnnsample_lab.systems.ranks.train_slices", collectives.noted_training)
    found = lab.train(graph, ranks=pair, **QUICK)
    first, second = found.notes[-2:]
    assert first == second
    order = first.split()
    assert set(order) == {"sampler", "loader", "trainer"} and order.count("trainer") == 10
    assert order != sorted(order)  # workers took turns


@pytest.mark.parametrize("coordinated", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
@pytest.mark.slow
def test_a_worker_that_fails_ends_all_ranks(graph, pair, monkeypatch, coordinated):
    """Rank 1 fails in its loader; the sampler and the trainer of rank 0, and its own sampler, wait for it."""
    pids = list(pair.pids)
    began = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr("gnnsample_lab.systems.ranks.train_slices", collectives.failing_loader)
        with pytest.raises(RankError, match=r"rank 1 failed in stage 'extract'.*in the loader"):
            lab.train(graph, ranks=pair, coordinated=coordinated, **QUICK)
    assert time.monotonic() - began < 30 and not left_after(pids)  # test_factored.py goes on with new ranks
