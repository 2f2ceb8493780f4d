"""On several GPUs: executors over ranks train as one GPU does, and a trainer's GPU has no sampling."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks.errors import RankError
from tests.conftest import num_gpus
from tests.distributed.conftest import left_after
from tests.pipeline import ranked

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(60)]

QUICK: dict[str, Any] = {
    "system": "gnnlab", "fanouts": (3, 4), "hidden": 16, "batch_size": 32, "lr": 0.01, "device": "cuda",
    "progress": False, "cache_ratio": 0.5, "epochs": 2,
}  # fmt: skip


@pytest.fixture(autouse=True)
def late_ranks_show_their_stacks(monkeypatch):
    """Training has no time limit of its own; here the ranks are ended with their stacks before the test is."""
    monkeypatch.setattr(importlib.import_module("gnnsample_lab.systems.train"), "RUN_S", 50.0)


def barrier(rank: Any) -> None:
    rank.barrier()


@pytest.mark.parametrize("executor", ["serial", "streams", "overlapped"])
def test_two_gpus_make_the_steps_of_one(graph, gpu_ranks, executor):
    expected = lab.train(graph, **QUICK)
    found = lab.train(graph, ranks=gpu_ranks, executor=executor, **QUICK)
    assert found.batch_ids == expected.batch_ids
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-4)
    assert {e.rank for e in found.epochs[0].events} == {0, 1}


@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize(("samplers", "switching"), [(1, False), (1, True), (2, True)])
def test_samplers_and_trainers_on_gpus_of_their_own(graph, gpu_ranks, samplers, switching, staleness):
    found = lab.train(
        graph,
        ranks=gpu_ranks,
        executor="factored",
        samplers=samplers,
        switching=switching,
        staleness=staleness,
        **QUICK,
    )
    assert sorted(found.batch_ids) == list(range(20))
    assert np.isfinite(found.losses).all() and found.accuracy[-1] > 0.4
    if samplers == 1:
        assert {e.rank for e in found.epochs[0].events if e.stage == "sample"} == {0}
    if samplers == 1 and not switching and not staleness:
        expected = lab.train(graph, **QUICK)
        np.testing.assert_allclose(found.losses, expected.losses, atol=1e-4)


@pytest.mark.parametrize("executor", ["overlapped", "factored"])
def test_one_gpu(graph, executor):
    expected = lab.train(graph, executor="serial", **QUICK)
    found = lab.train(graph, executor=executor, **QUICK)
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-4)
    with pytest.raises(MemoryError, match="budget_gb"):
        lab.train(graph, executor=executor, **{**QUICK, "budget_gb": 1e-6})


def test_samples_that_stay_in_the_samplers_memory(graph, gpu_ranks):
    given = {**QUICK, "ranks": gpu_ranks, "executor": "factored", "samplers": 1}
    host, peer = (lab.train(graph, handover=way, **given) for way in ("host", "peer"))
    assert peer.batch_ids == host.batch_ids and peer.settings["handover"] == "peer"
    np.testing.assert_allclose(peer.losses, host.losses, atol=1e-5)
    for mine, theirs in zip(peer.epochs, host.epochs, strict=True):
        assert (mine.hit_rate, mine.bytes_moved) == (theirs.hit_rate, theirs.bytes_moved)
    switching = lab.train(graph, handover="peer", switching=True, **given)
    assert sorted(switching.batch_ids) == list(range(20)) and np.isfinite(switching.losses).all()


def test_topology_and_cache_take_turns(graph, gpu_ranks):
    found = lab.train(graph, ranks=gpu_ranks, executor="factored", swap=True, **QUICK)
    assert sorted(found.batch_ids) == list(range(20)) and found.accuracy[-1] > 0.4
    stages = {e.stage for e in found.epochs[1].events}
    assert {"load topology", "load cache", "sample", "train"} <= stages
    assert all(m.topology > 0 and m.cache > 0 for m in found.memory)


@pytest.mark.parametrize("gpus", [2, 4])
def test_a_killed_sampler_ends_the_run_with_its_name_and_leaves_no_gpu_busy(
    graph, gpus, tmp_path, monkeypatch
):
    """A process that has gone holds neither memory nor time of its GPU, and new ranks go on from the checkpoint."""
    if num_gpus() < gpus:
        pytest.skip(f"needs {gpus} GPUs")
    options = {**QUICK, "executor": "factored", "samplers": 1, "evaluate": False}
    file = tmp_path / "checkpoint.pt"
    with lab.distributed.Ranks(gpus, device="cuda", timeout_s=50, collective_timeout_s=20) as ranks:
        ranks.run(barrier)
        pids = list(ranks.pids)
        with monkeypatch.context() as patch:
            patch.setattr("gnnsample_lab.systems.train.train_factored", ranked.kill_sampler_in_second_epoch)
            with pytest.raises(RankError, match="rank 0 failed in stage 'sample'.*SIGKILL"):
                lab.train(graph, ranks=ranks, checkpoint=file, checkpoint_steps=1, **options)
        assert not left_after(pids)
        found = lab.train(graph, ranks=ranks, resume=file, **options)
    assert 0 < found.resumed < 20 and sorted(found.batch_ids) == list(range(20))
