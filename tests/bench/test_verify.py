"""A strategy that returns another sample than the CPU twin is refused before anything is timed."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnsample_lab import Graph, NeighborSampler
from gnnsample_lab.bench import runner, verify
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import PUBLISHED_QUEUE, Unavailable, VerificationError
from gnnsample_lab.device.runtime import cuda_available
from gnnsample_lab.sampling.neighbors.plan import TABLES
from gnnsample_lab.sampling.neighbors.spec import HopPicks


@pytest.fixture(scope="module")
def graph() -> Graph:
    rng = np.random.default_rng(3)
    return Graph.from_edges(rng.integers(0, 80, 900), rng.integers(0, 60, 900), 80, name="small")


def test_configurations_that_are_checked_cover_all_graphs_under_the_pick() -> None:
    for pick in ("floyd", "reservoir"):
        chosen = verify.chosen_configurations(pick)
        assert {config.graph for config in chosen} == {"dead-ends", "hubs", "multi"}
        assert {dict(config.options)["pick"] for config in chosen} == {pick}


def test_equal_samples_pass_and_another_one_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(verify, "gpu_hash", lambda config, strategy: verify.cpu_hash(config))
    assert verify.verify_small(["persistent"], "floyd") == len(verify.chosen_configurations("floyd"))
    wrong = verify.chosen_configurations("floyd")[2].key
    monkeypatch.setattr(
        verify, "gpu_hash", lambda c, strategy: "0" * 64 if c.key == wrong else verify.cpu_hash(c)
    )
    with pytest.raises(VerificationError, match="'persistent' is not timed") as caught:
        verify.verify_small(["persistent"], "floyd")
    assert wrong in str(caught.value)


def test_a_suite_whose_strategy_is_wrong_times_nothing(monkeypatch) -> None:
    timed: list[Any] = []
    monkeypatch.setattr(verify, "gpu_hash", lambda config, strategy: "f" * 64)
    monkeypatch.setattr(Session, "require_gpu", lambda self, suite: None)
    monkeypatch.setattr(Session, "kernel_us", lambda self, *a: timed.append(a))
    monkeypatch.setattr(Session, "recorded", lambda self, *a: timed.append(a))
    with pytest.raises(VerificationError, match="block-bsp"):
        runner.run("pgsampler-fig8")
    assert not timed


def test_the_benchmark_graph_itself_is_checked(graph, monkeypatch) -> None:
    class OnHost:
        def host_graph(self, name: str) -> Graph:
            return graph

        graph = host_graph

        def batches(self, name: str, size: int, count: int) -> list[Any]:
            return [SimpleNamespace(get=lambda: np.arange(size))]

    def sample_hash(g, fanouts, pick, seeds, strategy, device):
        # On the "GPU" the strategy `bsp` draws right, `captured` does not.
        drawn = np.arange(5) if strategy != "captured" else np.arange(1, 6)
        return NeighborSampler(g, list(fanouts), pick=pick, device="cpu").sample(drawn).canonical().sha256()

    monkeypatch.setattr(verify, "sample_hash", sample_hash)
    assert verify.verify_on_graph(OnHost(), "small", ["bsp"], "floyd", 5, (3, 2)) == 1  # type: ignore[arg-type]
    with pytest.raises(VerificationError, match="'captured' is not timed: on small, 5 seeds"):
        verify.verify_on_graph(OnHost(), "small", ["bsp", "captured"], "floyd", 5, (3, 2))  # type: ignore[arg-type]


@pytest.mark.parametrize("pick", ["floyd", "reservoir"])
def test_real_samples_obey_the_definition(graph, pick) -> None:
    verify.check_sample(NeighborSampler(graph, [4, -1, 3], pick=pick, device="cpu").sample([1, 2, 2, 70]))


def _damaged(batch: Any, hop: int, **changes: Any) -> Any:
    picks = list(batch.picks)
    old = picks[hop]
    fields = {name: getattr(old, name).copy() for name in ("frontier", "counts", "neighbors", "positions")}
    picks[hop] = HopPicks(**{**fields, **changes})
    return dataclasses.replace(batch, picks=tuple(picks))


@pytest.mark.parametrize("what", ["neighbors", "positions", "frontier", "counts"])
def test_a_damaged_sample_is_refused(graph, what) -> None:
    batch = NeighborSampler(graph, [4, 3], device="cpu").sample([1, 2, 3])
    array = getattr(batch.picks[1], what).copy()
    if what == "positions":
        array[0] = array[1]  # the same edge twice
    else:
        array[0] += 1
    with pytest.raises((VerificationError, IndexError, ValueError)):
        verify.check_sample(_damaged(batch, 1, **{what: array}))


def test_a_timed_run_that_did_other_work_is_refused() -> None:
    counters = np.zeros(256, np.uint32)
    counters[1:4] = 10, 20, 30
    counters[128:131] = 10, 30, 60
    recorded = [SimpleNamespace(frontiers=[np.zeros(n) for n in (10, 30, 60)])]

    def rotation(strategy: str) -> Any:
        return SimpleNamespace(
            counters=lambda: counters,
            engine=SimpleNamespace(launcher=SimpleNamespace(strategy=strategy)),
            level_sizes=lambda: np.cumsum(counters[1:5]).tolist(),
        )

    for strategy in ("bsp", "persistent"):
        verify.check_rotation(rotation(strategy), recorded, "it")
    counters[3] = counters[130] = 31
    for strategy in ("bsp", "persistent"):
        with pytest.raises(VerificationError, match="it: the timed run expanded"):
            verify.check_rotation(rotation(strategy), recorded, "it")
    counters[0] = 1
    with pytest.raises(VerificationError, match="status 1"):
        verify.check_rotation(rotation("bsp"), recorded, "it")


@pytest.mark.skipif(cuda_available(), reason="there is a GPU")
def test_without_a_gpu_a_gpu_suite_says_what_is_missing() -> None:
    with pytest.raises(Unavailable, match="'sampling-floor' needs a GPU"):
        runner.run("sampling-floor")


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["block-bsp", "edge-bsp", "turbo-bsp", "persistent", "captured"])
@pytest.mark.parametrize("pick", ["floyd", "reservoir"])
def test_what_is_timed_on_a_gpu_is_the_recorded_sample(strategy, pick, monkeypatch) -> None:
    import functools

    session = Session(quick=True)
    monkeypatch.setattr("gnnsample_lab.bench.session.load", functools.partial(_scaled, scale=0.02))
    found = session.kernel_us("rmat", 64, (5, 4), strategy, pick)
    assert found["us"] > 0 and set(found["sweep"]) >= {found["best"]}
    assert all(isinstance(us, float) for us in found["sweep"].values()), found["sweep"]


def _scaled(name: str, *, scale: float, device: str, features: bool) -> Graph:
    from gnnsample_lab.graph import load

    return load(name, scale=scale, device=device, features=features)


@pytest.mark.gpu
def test_the_paper_counterexample_loses_five_of_ten_tasks_on_a_gpu() -> None:
    from gnnsample_lab.bench.suites.recordings import paper_counterexample

    trace = paper_counterexample()
    assert (trace.origin, trace.completion) == ("measured", "paper")
    assert len(trace.lost) == 5


def test_hashes_are_added_and_never_changed() -> None:
    every = {config.key: config for config in verify.configurations()}
    key = next(key for key in every if "fisher-yates" in key)
    other = next(iter(every))
    found = verify.cpu_hash(every[key])
    record = {
        "settings": {"configurations": 1, "complete": True}, "hashes": {other: verify.cpu_hash(every[other])},
        "verification": {"samples_equal_to_cpu_twin": 12},
    }  # fmt: skip
    more = verify.with_added(record, {key: found}, "a GPU", "today")
    assert more["hashes"] == {**record["hashes"], key: found} and next(iter(more["hashes"])) == other
    assert more["settings"]["configurations"] == 2 and more["verification"]["samples_equal_to_cpu_twin"] == 13
    assert more["added"] == [{"configurations": 1, "gpu": "a GPU", "date": "today"}]
    for wrong in ({key: "0" * 64}, {other: "0" * 64}):
        with pytest.raises(VerificationError, match="not what was recorded"):
            verify.with_added(record, wrong, "a GPU", "today")


@pytest.mark.gpu
@pytest.mark.parametrize("pick", ["floyd", "reservoir"])
def test_both_forms_of_the_queue_are_verified(pick) -> None:
    """Suites time the published one beside ours."""
    config = verify.chosen_configurations(pick)[0]
    for table in (None, *TABLES):
        sampler = verify.gpu_sampler(config, PUBLISHED_QUEUE, table)
        assert sampler.strategy == "persistent" and not sampler._engine.knobs.queue_teams
    assert verify.gpu_hash(config, PUBLISHED_QUEUE) == verify.cpu_hash(config)
