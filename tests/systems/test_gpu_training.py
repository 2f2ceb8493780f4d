"""On a GPU: every system and executor trains to the losses of the CPU."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.pipeline.executors import EXECUTORS
from gnnsample_lab.systems.table import SYSTEMS
from gnnsample_lab.systems.train import prepare

pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

QUICK = {"fanouts": (3, 4), "hidden": 16, "batch_size": 32, "lr": 0.01, "progress": False, "window": 4}
MODELS = ["gcn", "sage", "gin", "gat", "pinsage"]
NEAR = {"rtol": 2e-3, "atol": 2e-4}


def picked(model="gcn", system=""):
    """The rule of draws, where there is a choice: walks and trees have none."""
    return {} if model == "pinsage" or system == "nextdoor" else {"pick": "floyd"}


@pytest.fixture(scope="module")
def expected(graph):
    """Losses on the CPU, batches in the order of their ids."""
    return {
        model: lab.train(
            graph, model, "dgl", epochs=2, evaluate=False, device="cpu", **picked(model), **QUICK
        ).losses
        for model in MODELS
    }


@pytest.mark.parametrize("ratio", [None, 0.0, 0.3, 1.0])
@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_has_the_losses_of_the_cpu(graph, expected, name, ratio):
    result = lab.train(
        graph, system=name, epochs=2, reorder="none", cache_ratio=ratio, device="cuda",
        **picked(system=name), **QUICK,
    )  # fmt: skip
    losses = expected["gcn"]
    if name == "nextdoor":  # which draws trees of its own
        losses = lab.train(graph, system=name, epochs=2, evaluate=False, device="cpu", **QUICK).losses
    np.testing.assert_allclose(result.losses, losses, **NEAR)
    assert result.batch_ids == list(range(20)) and result.origin.startswith("measured on ")
    record = result.epochs[1]
    assert record.rows > 0
    assert min(record.sample_us, record.extract_us, record.train_us) > 0
    if SYSTEMS[name].cache is None:
        assert math.isnan(record.hit_rate) and record.bytes_moved == record.rows * 40
    else:
        held = 1.0 if ratio is None else ratio  # a trial step leaves more than this table
        assert result.cache_ratio == pytest.approx(held, abs=1e-3)
        assert (record.bytes_moved == 0) == (held == 1.0)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["dgl", "fastgl", "lab"])
def test_every_model_has_the_losses_of_the_cpu(graph, expected, name, model):
    result = lab.train(
        graph, model, name, epochs=2, reorder="none", evaluate=False, device="cuda", **picked(model), **QUICK
    )
    np.testing.assert_allclose(result.losses, expected[model], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("match", ["never", "always"])
@pytest.mark.parametrize("transfer", ["staged", "uva"])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_executor_moves_the_same_rows(graph, expected, executor, transfer, match):
    system = replace(SYSTEMS["lab"], executor=executor, transfer=transfer, match=match, reorder=None)
    result = lab.train(
        graph, system=system, epochs=2, cache_ratio=0.2, evaluate=False, device="cuda", **QUICK
    )
    np.testing.assert_allclose(result.losses, expected["gcn"], **NEAR)
    on_cpu = lab.train(graph, system=system, epochs=2, cache_ratio=0.2, evaluate=False, device="cpu", **QUICK)
    for ours, theirs in zip(result.epochs, on_cpu.epochs):
        assert (ours.rows, ours.bytes_moved, ours.reused_rows) == (
            theirs.rows, theirs.bytes_moved, theirs.reused_rows
        )  # fmt: skip
        assert ours.hit_rate == pytest.approx(theirs.hit_rate)


def test_reordered_windows_are_those_of_the_cpu(graph):
    for name in ("fastgl", "lab"):
        runs = [
            lab.train(
                graph, system=name, cache_ratio=0.2, pick="floyd", evaluate=False, device=device, **QUICK
            )
            for device in ("cpu", "cuda")
        ]
        assert runs[0].batch_ids == runs[1].batch_ids
        np.testing.assert_allclose(runs[0].losses, runs[1].losses, **NEAR)


def test_accuracy_is_that_of_the_cpu(graph):
    options = {"epochs": 4, "pick": "floyd", "reorder": "none", "cache_ratio": 1.0, **QUICK}
    here, there = (lab.train(graph, device=device, **options) for device in ("cpu", "cuda"))
    assert there.accuracy == pytest.approx(here.accuracy, abs=0.05)


def test_multi_label_data(multi_label_graph):
    result = lab.train(multi_label_graph, epochs=4, device="cuda", **QUICK)
    assert result.losses[-1] < result.losses[0] and result.accuracy[-1] > 0.5


def test_features_and_graph_may_lie_on_the_gpu(graph, expected):
    import cupy

    on_gpu = graph.to("cuda")
    for name in ("dgl", "lab"):
        result = lab.train(
            on_gpu,
            system=name,
            epochs=2,
            pick="floyd",
            reorder="none",
            device="cuda",
            evaluate=False,
            **QUICK,
        )
        np.testing.assert_allclose(result.losses, expected["gcn"], **NEAR)
    assert isinstance(on_gpu.feat, cupy.ndarray)


def test_training_under_memory_pressure_stays_right(graph, expected):
    """Fresh pools, many small windows: what a stream frees too early, another overwrites at once."""
    ready = prepare(
        graph, "gcn", replace(SYSTEMS["lab"], reorder=None), cache_ratio=0.2, device="cuda", pick="floyd",
        **{k: v for k, v in QUICK.items() if k != "progress"},
    )  # fmt: skip
    ready.trainer.ahead = 2
    for epoch in range(2):
        ready.trainer.epoch(epoch)
    np.testing.assert_allclose(ready.trainer.losses, expected["gcn"], **NEAR)
    for epoch in range(2, 12):
        ready.trainer.epoch(epoch)
    assert np.isfinite(ready.trainer.losses).all()
    assert np.mean(ready.trainer.losses[-10:]) < ready.trainer.losses[0]


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("captured", [False, True])
def test_dropout_is_seen_at_the_first_step_and_steps_are_captured_after_it(graph, captured, share):
    trainer = prepare(graph, system="lab", device="cuda", captured=captured, dropout=share, **QUICK).trainer
    trainer.model.train()
    source = trainer.plain_features
    for batch in trainer.plan(0).sample(range(6)):
        trainer.gradients(batch, source.extract(batch, source.mark(batch))[0])
    assert trainer.draws is (share > 0)
    assert not captured or trainer.captured.captures > 0
