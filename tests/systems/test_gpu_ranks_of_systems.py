"""On GPUs: systems whose graph lies in host memory or in parts train as one GPU with all of it does."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.bench.suites.dsp.pipelines import sampling_kernels
from gnnsample_lab.systems.table import SYSTEMS
from tests.capturing import capture_in_another_thread

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(60)]

QUICK: dict[str, Any] = {
    "fanouts": (3, 4), "hidden": 16, "batch_size": 32, "lr": 0.01, "device": "cuda", "progress": False, "epochs": 2,
    "pick": "floyd",
}  # fmt: skip
NEW = ("pgsampler", "nextdoor", "dgl-uva", "quiver", "dsp-seq", "dsp")


@pytest.fixture(autouse=True)
def late_ranks_show_their_stacks(monkeypatch):
    """Training has no time limit of its own; here the ranks are ended with their stacks before the test is."""
    monkeypatch.setattr(importlib.import_module("gnnsample_lab.systems.train"), "RUN_S", 50.0)


def options(name: str) -> dict[str, Any]:
    return {**QUICK, "cache_ratio": 0.3} if SYSTEMS[name].cache else QUICK


@pytest.mark.parametrize("name", NEW)
def test_one_gpu(graph, name):
    found = lab.train(graph, system=name, **options(name))
    if SYSTEMS[name].trees:
        twin = lab.train(graph, system=name, **{**options(name), "device": "cpu"})
        np.testing.assert_allclose(found.losses, twin.losses, atol=1e-4)
        return
    expected = lab.train(graph, system="dgl", **QUICK)
    assert found.batch_ids == expected.batch_ids
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-4)


@pytest.mark.parametrize("name", NEW)
def test_two_gpus(graph, gpu_ranks, name):
    reference = name if SYSTEMS[name].trees else "dgl"
    expected = lab.train(graph, system=reference, **options(reference))
    found = lab.train(graph, system=name, ranks=gpu_ranks, **options(name))
    assert found.batch_ids == expected.batch_ids
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-4)
    assert found.accuracy == pytest.approx(expected.accuracy, abs=0.02)


SPILLING = {
    "direct-cached": replace(SYSTEMS["dsp"], method="direct-cached", coordinated=False),
    "dsp": SYSTEMS["dsp"],
}  # fmt: skip
"""Systems whose lists may lie in host memory."""


def check_spill(graph, name, **ranks):
    given = {**options("dsp"), **ranks, "system": SPILLING[name], "evaluate": False}
    expected = lab.train(graph, **{**QUICK, "system": "dgl", "evaluate": False})
    whole = lab.train(graph, **given)
    for budget in (2000, 0):
        found = lab.train(graph, topology_bytes=budget, **given)
        np.testing.assert_allclose(found.losses, expected.losses, atol=1e-4)
        for held, all_of_it in zip(found.memory, whole.memory, strict=True):
            assert held.topology < all_of_it.topology


@pytest.mark.parametrize("name", SPILLING)
def test_lists_in_host_memory_of_one_gpu(graph, name):
    check_spill(graph, name)


@pytest.mark.parametrize("name", SPILLING)
def test_lists_in_host_memory_of_two_gpus(graph, gpu_ranks, name):
    check_spill(graph, name, ranks=gpu_ranks)


@pytest.mark.parametrize("policy", ["presample", "in-degree"])
@pytest.mark.parametrize("name", ["dsp", "dsp-seq"])
def test_workers_start_collectives_in_one_order(graph, gpu_ranks, name, policy):
    """Whatever the system says of it: on GPUs there is no other way."""
    given = {**options(name), "policy": policy, "ranks": gpu_ranks, "executor": "overlapped"}
    expected = lab.train(graph, system="dgl", **QUICK)
    found = lab.train(graph, system=name, **given)
    assert found.settings["coordinated"] is True
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-4)
    with pytest.raises(ValueError, match="coordinated must be True or None on GPUs"):
        lab.train(graph, system=name, coordinated=False, **given)


def test_several_samplers_and_loaders_of_a_gpu(graph, gpu_ranks):
    expected = lab.train(graph, system="dgl", **QUICK)
    given = {**options("dsp"), "ranks": gpu_ranks}
    one, two = (lab.train(graph, system="dsp", workers=workers, **given) for workers in (1, 2))
    assert two.settings["workers"] == 2 and any("one after the other" in note for note in two.notes)
    np.testing.assert_allclose(two.losses, expected.losses, atol=1e-4)
    assert [m.topology for m in two.memory] == [m.topology for m in one.memory]
    workers = {e.worker for e in two.epochs[0].events}
    assert workers == {"sampler 1", "sampler 2", "loader 1", "loader 2", "trainer"}


def test_graphs_with_collectives_take_turns(graph, gpu_ranks):
    fixed = replace(SYSTEMS["dsp"], method="csp-fixed")
    given = {**options("dsp"), "epochs": 4}
    expected = lab.train(graph, system="dgl", **{**QUICK, "epochs": 4})
    found = lab.train(graph, system=fixed, ranks=gpu_ranks, **given)
    assert found.settings["coordinated"] is True
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-4)


@pytest.mark.parametrize("name", ["quiver", "dsp"])
def test_loaders_of_gpus_merge_the_rows_of_mini_batches(graph, gpu_ranks, name):
    expected = lab.train(graph, system="dgl", **QUICK)
    given = {**options(name), "ranks": gpu_ranks, "executor": "overlapped", "capacity": 4}
    for workers in (1, 2):
        found = lab.train(graph, system=name, merged=3, workers=workers, **given)
        assert found.settings["merged"] == 3
        np.testing.assert_allclose(found.losses, expected.losses, atol=1e-4)


def number_of_groups(rank: Any) -> int:
    return len(torch.distributed.distributed_c10d._world.pg_map)


def test_training_takes_the_communicators_of_earlier_training(graph, gpu_ranks):
    given = {**options("dsp"), "system": "dsp", "ranks": gpu_ranks, "executor": "overlapped", "workers": 2}
    losses, counts = [], []
    for _ in range(3):
        losses.append(lab.train(graph, **given).losses)
        counts.append(gpu_ranks.run(number_of_groups))
    assert counts[0] == counts[1] == counts[2]
    np.testing.assert_allclose(losses[2], losses[0], atol=1e-4)


def test_graphs_with_collectives_are_captured_by_one_sampler(graph, gpu_ranks):
    fixed = replace(SYSTEMS["dsp"], method="csp-fixed", coordinated=False)
    with pytest.raises(ValueError, match="workers must be 1 for method='csp-fixed' on GPUs"):
        lab.train(graph, system=fixed, ranks=gpu_ranks, workers=2, **options("dsp"))


def test_a_trainer_has_no_sampling_kernel(graph, gpu_ranks):
    found = lab.train(
        graph, system="gnnlab", ranks=gpu_ranks, executor="factored", samplers=1, switching=False, kernels=True,
        **options("gnnlab"),
    )  # fmt: skip
    sampler, trainer = ({name for name in ran if name in sampling_kernels()} for ran in found.kernels)
    assert sampler and not trainer and found.kernels[1]
    assert len(found.gpu_busy) == 2 and all(0 < share <= 1 for share in found.gpu_busy)
    assert found.memory[1].topology == 0 < found.memory[0].topology


@pytest.mark.parametrize("executor", ["serial", "overlapped", "factored"])
def test_a_budget_sizes_caches(graph, gpu_ranks, executor):
    """A graph this small fits any budget; the cache is then whole, and the run's peak within it."""
    more = {"samplers": 1} if executor == "factored" else {}
    found = lab.train(
        graph,
        system="gnnlab",
        ranks=gpu_ranks,
        executor=executor,
        policy="degree",
        budget_gb=4.0,
        **more,
        **QUICK,
    )
    assert found.cache_ratio == 1.0 and max(m.peak for m in found.memory) < 4e9


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("executor", ["serial", "thread", "streams", "overlapped"])
def test_epochs_beside_a_capture(graph, executor, captured):
    """A user's thread may capture as long as it likes: whatever waits for the whole device leaves it alone."""
    given: dict[str, Any] = {**options("lab"), "executor": executor, "captured": captured}
    expected = lab.train(graph, **given)
    with capture_in_another_thread():
        found = lab.train(graph, **given)
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-4)


def trained_beside_a_capture(rank: Any, graph: Any, given: dict[str, Any]) -> list[float]:
    with capture_in_another_thread():
        return lab.train(graph, ranks=rank, **given).losses


@pytest.mark.parametrize("name", ["dgl", "dsp"])
def test_two_gpus_train_beside_a_capture(graph, gpu_ranks, name):
    expected = lab.train(graph, system=name, **options(name))
    for losses in gpu_ranks.run(trained_beside_a_capture, graph, {**options(name), "system": name}):
        np.testing.assert_allclose(losses, expected.losses, atol=1e-4)
