"""The overlapped executor on a CPU: workers of its own, the same training, and its record."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.features.caching.slots import table_bytes
from gnnsample_lab.figures.schedule import schedule_gantt
from gnnsample_lab.pipeline import executors
from gnnsample_lab.pipeline.executors import Sampled, Stages
from gnnsample_lab.pipeline.plan import EpochPlan, NoBatch, equal_slice
from gnnsample_lab.pipeline.schedule.records import _run

torch = pytest.importorskip("torch")

QUICK: dict[str, Any] = {
    "system": "gnnlab", "fanouts": (3, 4), "hidden": 16, "batch_size": 32, "lr": 0.01, "device": "cpu",
    "progress": False, "evaluate": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def serial(graph):
    return lab.train(graph, epochs=2, **QUICK)


@pytest.mark.parametrize("workers", [1, 3])
def test_it_trains_as_the_serial_one_does(graph, serial, workers):
    before = threading.active_count()
    found = lab.train(graph, epochs=2, executor="overlapped", workers=workers, **QUICK)
    assert found.batch_ids == serial.batch_ids == list(range(20))
    assert found.losses == serial.losses
    assert found.epochs[1].rows == serial.epochs[1].rows
    assert found.settings["executor"] == "overlapped" and found.settings["workers"] == workers
    assert threading.active_count() == before
    names = Counter((e.stage, e.worker, e.batch % workers) for e in found.epochs[0].events)
    assert len(names) == 2 * workers + workers  # the same mini-batches for a worker, whoever is free


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["sampler 0", "loader 0"])
def test_an_interrupt_while_workers_start_leaves_none_behind(graph, monkeypatch, name, when):
    start, before, usual = threading.Thread.start, set(threading.enumerate()), sys.getswitchinterval()

    def interrupted(thread: threading.Thread) -> None:
        if thread.name != name:
            return start(thread)
        if when == "after":  # as where the interrupt comes before the new thread has said that it runs
            start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lab.train(graph, executor="overlapped", **QUICK)
    left = [t.name for t in threading.enumerate() if t not in before and t.name != "tqdm_monitor"]
    assert not left and sys.getswitchinterval() == usual


def test_runs_in_several_threads_give_the_switch_interval_back():
    usual = sys.getswitchinterval()
    first, second = executors._switching_often(), executors._switching_often()
    first.__enter__()
    assert sys.getswitchinterval() == pytest.approx(executors.SWITCH_S)
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(executors.SWITCH_S), "one goes on"
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == usual


def test_a_system_that_reuses_rows_keeps_one_loader(graph):
    options = {**QUICK, "system": "lab", "window": 3}
    reference = lab.train(graph, **options)
    found = lab.train(graph, executor="overlapped", workers=2, **options)
    assert found.losses == reference.losses and found.batch_ids == reference.batch_ids
    assert found.epochs[0].reused_rows == reference.epochs[0].reused_rows > 0
    assert found.settings["workers"] == 1 and any("one loader" in note for note in found.notes)


def test_its_record_says_who_did_what_when(graph):
    record = lab.train(graph, executor="overlapped", capacity=1, **QUICK).epochs[0]
    ids = list(range(10))
    for stage, worker in (("sample", "sampler"), ("extract", "loader"), ("train", "trainer")):
        mine = [e for e in record.events if e.stage == stage]
        assert [e.batch for e in mine] == ids and {e.worker for e in mine} == {worker}
        assert all(a.end_us <= b.start_us for a, b in itertools.pairwise(mine))
        assert sum(e.end_us - e.start_us for e in mine) == pytest.approx(record.stage_us[stage])
    begins = {(e.stage, e.batch): e for e in record.events}
    for i in ids:
        assert begins["sample", i].end_us <= begins["extract", i].start_us
        assert begins["extract", i].end_us <= begins["train", i].start_us
    assert max(e.end_us for e in record.events) <= record.total_us
    assert set(record.queues) == {"loader queue", "trainer queue"}
    for depths in record.queues.values():
        assert max(d for _, d in depths) == 1 and depths[-1][1] == 0
    assert lab.schedule.times_of(lab.train(graph, **QUICK)).batches == 10


def test_stages_do_overlap(graph, monkeypatch):
    """The loader of a mini-batch is at work while the mini-batch before is trained on, and waits for its end."""
    training, extracting = threading.Event(), threading.Event()
    extract = Stages.extract

    def watched(self: Stages, marked: Sampled, *loader: int) -> Any:
        if marked.place == 1:
            extracting.set()
            assert training.wait(60), "training did not begin while the next mini-batch was extracted"
        return extract(self, marked, *loader)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = lab.make_model("gcn", 10, 8, 4, num_layers=2)

        def forward(self, blocks: Any, x: Any) -> Any:
            assert extracting.wait(60)
            training.set()
            return self.inner(blocks, x)

    monkeypatch.setattr(Stages, "extract", watched)
    assert len(lab.train(graph, Model(), executor="overlapped", **QUICK).losses) == 10


@pytest.mark.parametrize("stage", ["sample", "extract", "train"])
def test_an_error_ends_all_workers(graph, monkeypatch, stage):
    before = threading.active_count()
    calls = []

    def fail(*_: Any, **__: Any) -> Any:
        calls.append(1)
        raise ArithmeticError(f"in {stage}")

    target = {
        "sample": (EpochPlan, "sample"), "extract": (lab.FeatureCache, "extract"),
        "train": (torch.optim.Adam, "step"),
    }[stage]  # fmt: skip
    monkeypatch.setattr(*target, fail)
    with pytest.raises(ArithmeticError, match=f"in {stage}"):
        lab.train(graph, executor="overlapped", **QUICK)
    assert calls
    assert threading.active_count() == before


def test_slices_are_all_of_a_mini_batch():
    seeds = np.array([5, 3, 5, 9, 1, 3, 7])
    for count in (1, 2, 3, 8):
        slices = [equal_slice(seeds, i, count) for i in range(count)]
        assert np.concatenate(slices).tolist() == [5, 3, 9, 1, 7]
        assert max(map(len, slices)) - min(map(len, slices)) <= 1


def test_a_plan_leaves_out_and_goes_along(graph):
    sampler = lab.NeighborSampler(graph, [3], device="cpu", seed=1)
    epoch = sampler.epoch(graph.splits["train"][:10], 2, epoch=1)
    plan = EpochPlan(epoch, [sampler], 0, 3, without=[6, 8])
    assert plan.batch_ids == [5, 7, 9]
    found = plan.sample(plan.take(2)) + plan.sample(plan.take(2))
    assert [b.batch_id for b in found] == [5, 7, 9] and plan.take(2) == range(3, 3)
    assert all(isinstance(b, NoBatch) for b in found)  # two seeds for three ranks: none for the first
    whole = EpochPlan(epoch, [sampler], without=[6])
    windows = [whole.take(1, worker, 2) for worker in (1, 0, 0, 1, 0)]
    assert windows == [range(1, 2), range(1), range(2, 3), range(3, 4), range(4, 4)]
    whole = EpochPlan(epoch, [sampler], without=[6])
    batches = whole.sample(whole.take(4))
    for batch in batches:
        again = sampler.sample(epoch.batch_seeds(batch.batch_id - 5), batch.batch_id)
        assert batch.canonical() == again.canonical()


def test_a_budget_sizes_the_cache_or_names_what_does_not_fit(graph):
    topology = graph.indptr.nbytes + graph.indices.nbytes + graph.edge_weight.nbytes
    found = lab.train(graph, budget_gb=(topology + table_bytes(600) + 100 * 40) / 1e9, **QUICK)
    assert found.cache_ratio == pytest.approx(100 / 600, abs=0.002)
    assert any("budget_gb sizes the cache" in note for note in found.notes)
    with pytest.raises(MemoryError, match="less than the topology: "):
        lab.train(graph, budget_gb=(topology - 1) / 1e9, **QUICK)
    with pytest.raises(MemoryError, match="less than the topology and the cache"):
        lab.train(graph, budget_gb=(topology + table_bytes(600)) / 1e9, cache_ratio=0.5, **QUICK)


def test_a_run_is_drawn_and_compared_with_the_model(graph):
    found = lab.train(graph, executor="overlapped", **QUICK)
    timeline = found.timeline()
    assert len(timeline.events) == 30 and timeline.origin == "measured on the CPU"
    figure = schedule_gantt(timeline)
    assert {"sample", "extract", "train"} <= {trace.name for trace in figure.data}
    record = {"suite": "none", "environment": {"cpu": "a CPU"}}
    [compared] = lab.schedule.model_error([_run(record, found.row())]).rows
    assert (compared.executor, compared.gpus) == ("overlapped", 1)
    assert compared.measured_s == pytest.approx(found.epochs[0].total_us / 1e6)
