"""Workers of several ranks with collectives of their own: one order for all, or a process group each; failures."""

from __future__ import annotations

import itertools
import json
import time
from collections import defaultdict
from dataclasses import replace
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

STAGES = (("sample", "sampler"), ("extract", "loader"))


def test_workers_that_arrive_in_opposite_orders_start_in_one(three_ranks):
    orders = three_ranks.run(collectives.opposite_orders, 40)
    assert orders[0] == orders[1] == orders[2] and sorted(orders[0]) == ["loader"] * 40 + ["sampler"] * 40


@pytest.fixture(scope="module")
def expected(graph):
    return lab.train(graph, **{**QUICK, "system": "dgl", "epochs": 2})


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("coordinated", [True, False])
def test_both_ways_train_as_one_device_does(graph, expected, pair, coordinated, workers):
    found = lab.train(graph, ranks=pair, coordinated=coordinated, workers=workers, epochs=2, **QUICK)
    assert found.settings["coordinated"] is coordinated and found.settings["executor"] == "overlapped"
    assert found.settings["workers"] == workers and not any("one sampler" in note for note in found.notes)
    assert found.batch_ids == expected.batch_ids
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-5)
    mine: dict[Any, list[int]] = defaultdict(list)
    for e in found.epochs[1].events:
        mine[e.rank, e.stage, e.worker].append(e.batch)
    names = ("", "") if workers == 1 else (" 1", " 2")
    for rank, (stage, worker), i in itertools.product((0, 1), STAGES, range(workers)):
        assert mine.pop((rank, stage, worker + names[i])) == list(range(10 + i, 20, workers))
    assert set(mine) == {(0, "train", "trainer"), (1, "train", "trainer")}


@pytest.mark.parametrize("workers", [1, 2])
def test_messages_of_fixed_size_take_turns(graph, expected, pair, workers):
    """Exact sizes first, then fixed ones, of which some overflow; epochs enough that all samplers get there."""
    fixed = {
        **QUICK,
        "system": replace(SYSTEMS["dsp"], method="csp-fixed"),
        "ranks": pair,
        "epochs": 2 * workers,
    }
    found = lab.train(graph, workers=workers, **fixed)
    assert found.settings["coordinated"] is True and found.settings["workers"] == workers
    np.testing.assert_allclose(found.losses[:20], expected.losses, atol=1e-5)


def test_methods_whose_messages_come_as_they_may_take_no_turns(graph, pair):
    system = replace(SYSTEMS["dsp"], method="csp-async")
    with pytest.raises(RankError, match="coordinated must be False with method='csp-async'.*'csp-fixed' do"):
        lab.train(graph, ranks=pair, **{**QUICK, "system": system})


@pytest.mark.parametrize("coordinated", [True, False])
def test_workers_that_are_quick_in_another_order_on_each_rank_do_not_stop(
    graph, expected, pair, monkeypatch, coordinated
):
    """More of them than their queues hold."""
    monkeypatch.setattr("gnnsample_lab.systems.ranks.train_slices", collectives.delayed_training)
    options = {**QUICK, "workers": 4, "capacity": 1, "epochs": 2}
    found = lab.train(graph, ranks=pair, coordinated=coordinated, **options)
    assert found.settings["workers"] == 4 and found.batch_ids == expected.batch_ids
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-5)


@pytest.mark.parametrize("coordinated", [True, False])
def test_samplers_that_hold_one_lock_take_it_in_the_same_order_on_all_ranks(
    graph, expected, pair, monkeypatch, coordinated
):
    monkeypatch.setattr("gnnsample_lab.systems.ranks.train_slices", collectives.locked_training)
    found = lab.train(graph, ranks=pair, coordinated=coordinated, workers=3, epochs=2, **QUICK)
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-5)
    assert any("sample one after the other" in note for note in found.notes)


def test_each_worker_has_a_process_group_of_its_own(graph, pair, monkeypatch):
    monkeypatch.setattr("gnnsample_lab.systems.ranks.train_slices", collectives.grouped_training)
    found = lab.train(graph, ranks=pair, workers=2, **QUICK)
    first, second = map(json.loads, found.notes[-2:])
    workers = [f"{kind} {number}" for kind in ("sampler", "loader") for number in (0, 1)]
    groups = [first[worker] for worker in workers]
    assert groups == [second[worker] for worker in workers] and all(len(group) == 1 for group in groups)
    assert len({group for (group,) in groups}) == 4


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
@pytest.mark.parametrize("failing", ["loader", "second sampler"])
@pytest.mark.slow
def test_a_worker_that_fails_ends_all_ranks(graph, pair, monkeypatch, coordinated, failing):
    """Rank 1 fails in its loader; the sampler and the trainer of rank 0, and its own sampler, wait for it."""
    fails, stage = {
        "loader": (collectives.failing_loader, "extract"), "second sampler": (collectives.failing_sampler, "sample")
    }[failing]  # fmt: skip
    workers = {"workers": 1 if failing == "loader" else 2}
    lab.train(graph, ranks=pair, **QUICK)  # ranks are there
    pids = list(pair.pids)
    began = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr("gnnsample_lab.systems.ranks.train_slices", fails)
        with pytest.raises(RankError, match=rf"rank 1 failed in stage '{stage}'.*in the {failing}"):
            lab.train(graph, ranks=pair, coordinated=coordinated, **workers, **QUICK)
    assert time.monotonic() - began < 30 and not left_after(pids)  # test_factored.py goes on with new ranks
