"""Samplers and trainers as ranks of their own: every mini-batch once, the updates of one device, failures."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks.errors import RankError
from gnnsample_lab.distributed.ranks.run import Ranks
from gnnsample_lab.features.caching.sizing import hottest_first, rows_in
from gnnsample_lab.features.caching.slots import table_bytes
from gnnsample_lab.features.ranking.hotness import hotness
from gnnsample_lab.pipeline.exchange import RoundExchange
from gnnsample_lab.pipeline.factored.service import Client, QueueService
from gnnsample_lab.pipeline.schedule.allocation import num_samplers, trainer_time
from gnnsample_lab.systems import factored
from gnnsample_lab.systems import train as factored_setup
from gnnsample_lab.systems.features import topology_bytes
from gnnsample_lab.systems.table import SYSTEMS
from tests.distributed.conftest import left_after
from tests.pipeline import ranked

torch = pytest.importorskip("torch")

QUICK: dict[str, Any] = {
    "system": "gnnlab", "fanouts": (3, 4), "hidden": 16, "batch_size": 32, "lr": 0.01, "device": "cpu",
    "progress": False,
}  # fmt: skip
LONG_S = 60.0


def workers(record: Any, stage: str) -> Counter[tuple[int, str]]:
    return Counter((e.rank, e.worker) for e in record.events if e.stage == stage)


# ---- the queue ------------------------------------------------------------------------------------------


def test_the_queue_holds_samplers_up_and_ends():
    with QueueService() as service:
        sampler, trainer = Client(service.address, 0), Client(service.address, 1)
        for client in (sampler, trainer):
            client.begin("epoch 0", 3, 1, 1)

        def sample() -> None:
            while places := sampler.task():
                sampler.put(places.start, sampler.room(), [])

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        seen = []
        while (item := trainer.get()) is not None:
            thread.join(0.05)
            assert service.phases["epoch 0"].slots == 1
            seen.append(item["place"])
            trainer.free(item["slot"])
        thread.join(LONG_S)
        assert seen == [0, 1, 2] and max(d for _, d in service.phases["epoch 0"].depths) == 1
        sampler.put(0, 0, [])  # which waits for no answer
        with pytest.raises(RuntimeError, match="refused 'put'.*sampled twice"):
            sampler.task()
        assert not sampler.task()  # and the line goes on


def test_a_standby_trainer_takes_what_pays():
    with QueueService() as service:
        line = Client(service.address, 0)
        line.begin("epoch 0", 10, None, 2)
        line.task(10)
        for place in range(10):
            line.put(place, line.room(), [])
        now = service.phases["epoch 0"]
        assert line.get_if_worth(sampling=False) == {}  # nobody knows how long training takes
        now.busy[1] = [2.0, 2]  # T_t = 1 s; T_t' is taken for 2 s: worth it beyond 4 samples
        assert line.get_if_worth(sampling=True) == {}
        taken = []
        while item := line.get_if_worth(sampling=False):
            taken.append(item["place"])
            now.standby_busy, line._since = {0: [6.0, 2]}, None  # T_t' = 3 s: beyond 6 samples
        assert taken == [0, 1, 2, 3] and now.switched == 4
        now.trainers = 0
        assert line.get_if_worth(sampling=False)["place"] == 4


def test_who_waits_for_a_sampler_that_stands_still_hears_of_it():
    """Its process lives, and a standby trainer asks again and again."""
    with QueueService(still_s=0.3) as service:
        sampler, trainer, standby = (Client(service.address, rank) for rank in range(3))
        for line in (sampler, trainer, standby):
            line.begin("epoch 0", 4, None, 1)
        place = sampler.task().start
        sampler.put(place, sampler.room(), [])
        over = threading.Event()

        def ask() -> None:
            while not over.wait(0.01):
                standby.get_if_worth(sampling=True)

        threading.Thread(target=ask, daemon=True).start()
        assert trainer.get()["place"] == sampler.task().start - 1 == 0
        with pytest.raises(
            RuntimeError, match="'get'.* got on for 0.3 s; .*mini-batch 1 by rank 0; 1 of 4 .* 1 of them"
        ):
            trainer.get()
        over.set()


def test_slots_in_a_samplers_memory_bound_no_queue():
    """A sampler has as many slots as are trained on at the same time, and the queue is full before all are taken."""
    with QueueService() as service:
        sampler, trainer = (Client(service.address, rank) for rank in (0, 1))
        for line in (sampler, trainer):
            line.begin("epoch 0", 9, 2, 1)
        done = threading.Event()

        def sample() -> None:
            while places := sampler.task():
                sampler.put(places.start, sampler.room(4), [], own=True)
            done.set()

        threading.Thread(target=sample, daemon=True).start()
        seen = []
        while (item := trainer.get()) is not None:
            seen.append(item["place"])
            trainer.free(item["slot"], item["owner"])
        assert done.wait(LONG_S) and seen == list(range(9))
        assert max(depth for _, depth in service.phases["epoch 0"].depths) <= 2


def test_a_service_leaves_no_thread_behind():
    before = threading.active_count()
    for _ in range(3):
        with QueueService() as service:
            line = Client(service.address, 0)
            line.begin("epoch 0", 1, None, 1)
            line.close()
            accepting = service._accepting
        assert not accepting.is_alive()
    assert threading.active_count() <= before + 1, "one that serves may just be ending"


@pytest.mark.parametrize("length", [0, 120])
def test_a_service_needs_no_short_temporary_folder_and_leaves_none_behind(tmp_path, monkeypatch, length):
    folder = tmp_path / ("x" * length)
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with QueueService() as service:
        line = Client(service.address, 0)
        line.begin("epoch 0", 1, None, 1)
        assert list(line.task()) == [0]
        line.close()
    assert not list(folder.iterdir())


def test_strangers_are_not_served():
    with QueueService() as service:
        with pytest.raises(Exception, match="digest"):
            Client((service.address[0], b"another key"), 0)
        line = Client(service.address, 0)  # the service goes on
        line.begin("epoch 0", 1, None, 1)
        assert line.task() == range(1)


# ---- one device ---------------------------------------------------------------------------------------------------


class Collectives:
    """Stands for ``torch.distributed``: notes which group starts to add, and which is waited for."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def all_reduce(self, values, group, async_op):
        self.log.append(group)

        class Work:
            def wait(work):
                self.log.append(f"{group} waited")

            def is_completed(work):
                return False

        return Work()


def test_gradients_of_nothing_wait_until_all_have_joined(monkeypatch):
    """Else a collective would wait on a sampler's GPU for what that sampler has yet to sample."""
    network, found = torch.nn.Linear(2, 1), Collectives()
    monkeypatch.setattr(torch.distributed, "all_reduce", found.all_reduce)
    exchange = RoundExchange(
        network, torch.optim.SGD(network.parameters(), lr=0.1), "gradients", "hosts", 0, 2, staleness=1
    )
    exchange.idle(ended=False)
    assert found.log[:3] == ["hosts", "hosts waited", "gradients"]
    # A trainer with gradients waits for nobody; it tells the others before its GPU connects with theirs.
    found.log.clear()
    exchange.step(7, network.weight.sum(), torch.tensor(3))
    assert found.log == ["hosts", "gradients"]


@pytest.mark.parametrize("model", ["gcn", "pinsage"])
def test_on_one_device_the_epoch_is_sampled_first(graph, model):
    expected = lab.train(graph, model, epochs=2, **QUICK)
    found = lab.train(graph, model, epochs=2, executor="factored", **QUICK)
    assert found.batch_ids == expected.batch_ids and found.losses == expected.losses
    record = found.epochs[1]
    assert record.hit_rate == pytest.approx(expected.epochs[1].hit_rate)
    sampled = max(e.end_us for e in record.events if e.stage == "sample")
    assert sampled <= min(e.start_us for e in record.events if e.stage in ("get", "extract", "train"))
    assert max(d for _, d in record.queues["global queue"]) == 10


# ---- ranks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_ids", [[0, 1, 2], [4, 9], [3]])
def test_an_update_has_the_gradients_of_one_device(graph, three_ranks, batch_ids):
    loss, expected = ranked.gradient_of(ranked.double_trainer(graph), batch_ids)
    for gradients, told in three_ranks.run(ranked.round_on_rank, graph, batch_ids):
        for mine, theirs in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-10)
        [(ids, sums)] = told
        assert ids == batch_ids
        assert np.sum(sums, axis=0)[0] / np.sum(sums, axis=0)[1] == pytest.approx(loss, abs=1e-10)


@pytest.mark.parametrize(("staleness", "ahead"), [(0, 0), (2, 2), (None, 100)])
def test_updates_are_the_same_everywhere_and_as_stale_as_allowed(three_ranks, staleness, ahead):
    steps = [4, 7, 9]
    found = three_ranks.run(ranked.race_on_rank, staleness, steps)
    weights, updates, _ = found[0]
    assert all(w == weights and u == updates for w, u, _ in found)
    assert sorted(i for ids in updates for i in ids) == sorted(
        10 * n + r for r, count in enumerate(steps) for n in range(count)
    )
    assert max(most for _, _, most in found) <= ahead
    if staleness != 0:
        assert max(most for _, _, most in found) > 0


def replayed(graph: Any, batch_ids: list[int], update_sizes: list[int]) -> list[float]:
    """Losses of mini-batches when one device makes the same updates."""
    trainer = ranked.double_trainer(graph)
    torch.manual_seed(0)
    model = lab.make_model("gcn", 10, 16, 4, num_layers=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sampler = lab.NeighborSampler(
        graph, [3, 4], device="cpu", seed=0, pick="fisher-yates", strategy="block-bsp"
    )  # as GNNLab draws
    losses, at = [], 0
    for size in update_sizes:
        total: Any = 0
        weight = 0
        for batch_id in batch_ids[at : at + size]:
            epoch, number = divmod(batch_id, 10)
            seeds = sampler.epoch(trainer.seeds, 32, epoch=epoch).batch_seeds(number)
            batch = sampler.sample(seeds, batch_id)
            logits = model(batch.blocks, torch.from_numpy(graph.feat[batch.node_ids]))
            labels = torch.from_numpy(graph.label[batch.seeds])
            loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
            losses.append(float(loss.detach()) / len(seeds))
            total, weight = total + loss, weight + len(seeds)
        optimizer.zero_grad()
        (total / weight).backward()
        optimizer.step()
        at += size
    return losses


@pytest.mark.parametrize(
    ("options", "sampled", "trained"),
    [
        ({"samplers": 1, "capacity": 1}, {0}, {1, 2}),
        ({"samplers": 2, "pipelined": False}, {0, 1}, {2}),
        ({"samplers": 3}, {0, 1, 2}, {0, 1, 2}),
    ],
)
def test_ranks_make_the_updates_of_one_device(graph, three_ranks, options, sampled, trained):
    found = lab.train(graph, epochs=2, executor="factored", ranks=three_ranks, **options, **QUICK)
    assert sorted(found.batch_ids[:10]) == list(range(10))
    assert sorted(found.batch_ids[10:]) == list(range(10, 20))
    assert sum(found.update_sizes) == 20 and max(found.update_sizes) <= len(trained)
    np.testing.assert_allclose(found.losses, replayed(graph, found.batch_ids, found.update_sizes), atol=1e-4)
    record = found.epochs[1]
    assert (record.num_batches, record.tasks) == (10, 10)
    assert {rank for rank, _ in workers(record, "sample")} <= sampled
    assert {rank for rank, _ in workers(record, "train")} <= trained
    assert sum(workers(record, "sample").values()) == sum(workers(record, "train").values()) == 10
    once = {stage: Counter(e.batch for e in record.events if e.stage == stage) for stage in ("put", "get")}
    assert all(count == Counter(range(10, 20)) for count in once.values())
    depths = [d for _, d in record.queues["global queue"]]
    assert depths[0] == depths[-1] == 0 and max(depths) <= (options.get("capacity") or 10)
    model, graph_ = found.network, lab.train(graph, **QUICK)
    assert found.accuracy[-1] > 0.5 and len(found.accuracy) == 2 and graph_.accuracy
    assert found.settings["samplers"] == options["samplers"] and not any(
        p.isnan().any() for p in model.parameters()
    )
    # Rows were marked for the caches of those who train: a quarter of the vertices, also where all ranks sample.
    assert 0.2 < record.hit_rate < 0.6


@pytest.mark.exhaustive
@pytest.mark.parametrize("staleness", [0, 1])
def test_a_sampler_switches_while_that_pays(graph, three_ranks, staleness):
    found = lab.train(
        graph, ranked.Slow(0.05), executor="factored", ranks=three_ranks, samplers=1, switching=True,
        staleness=staleness, **{**QUICK, "batch_size": 10},
    )  # fmt: skip
    assert sorted(found.batch_ids) == list(range(30))
    record = found.epochs[0]
    trained = workers(record, "train")
    assert set(trained) == {(0, "standby"), (1, "trainer"), (2, "trainer")}
    last = max(e.end_us for e in record.events if e.worker == "sampler")
    assert all(e.start_us >= last for e in record.events if e.worker == "standby" and e.stage == "get")
    assert found.settings["capacity"] is None and max(d for _, d in record.queues["global queue"]) > 6


@pytest.mark.exhaustive
def test_the_number_of_samplers_follows_the_stage_times(graph, three_ranks):
    found = lab.train(
        graph, ranked.Slow(0.1), executor="factored", ranks=three_ranks, evaluate=False, **QUICK
    )
    times = {stage: us / 1e6 for stage, us in found.settings["trial_us"].items()}
    assert times["train"] > 0.1 and min(times.values()) > 0
    trainer_s = trainer_time(times["get"] + times["extract"], times["train"] + times["update"])
    rule = num_samplers(3, times["sample"] + times["put"], trainer_s, keep_trainer=True)
    assert found.settings["samplers"] == rule


@pytest.mark.exhaustive
def test_a_stall_loses_nothing(graph, three_ranks, monkeypatch):
    monkeypatch.setattr("gnnsample_lab.systems.train.train_factored", ranked.stall)
    found = lab.train(graph, executor="factored", ranks=three_ranks, samplers=1, evaluate=False, **QUICK)
    assert sorted(found.batch_ids) == list(range(10))


def test_what_cannot_be_split_is_named(graph):
    for options, message in (
        ({"samplers": 2, "ranks": 2, "switching": False}, r"samplers must leave a rank to train"),
        ({"samplers": 3, "ranks": 2}, r"samplers must leave a rank to train"),
        ({"samplers": 2, "ranks": 2, "capacity": 9}, r"capacity must hold all 10 mini-batches"),
    ):
        with pytest.raises(ValueError, match=message):
            lab.train(graph, executor="factored", **options, **QUICK)


class Lonely:
    """A rank whose collectives nobody may wait in: warm ranks end them after a minute or less."""

    device = "cpu"

    def __init__(self, index: int) -> None:
        self.index = index

    def barrier(self) -> None:
        raise TimeoutError("collective")

    @property
    def group(self) -> None:
        raise TimeoutError("collective")


@pytest.mark.parametrize("what", ["trial", "hottest"])
def test_ranks_wait_for_what_rank_0_finds_out_as_long_as_it_takes(graph, tmp_path, monkeypatch, what):
    def late(*_: Any) -> Any:
        assert not list(tmp_path.glob(f"{what}.npy"))
        time.sleep(0.5)
        return [0.1, 0.2, 0.3, 0.4, 0.5] if what == "trial" else hotness(graph, "degree")

    monkeypatch.setattr(factored, "trial_times", late)
    monkeypatch.setattr(factored, "ranked", late)
    found: dict[int, Any] = {}

    def run(index: int) -> None:
        if what == "trial":
            found[index] = factored._measured(Lonely(index), graph, {}, "cpu", None, tmp_path)
        else:
            found[index] = factored._hottest(Lonely(index), SYSTEMS["tsota"], graph, None, 8, 0, tmp_path)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in (1, 2)]
    for thread in threads:
        thread.start()
    run(0)
    for thread in threads:
        thread.join(LONG_S)
    expected = (
        [0.1, 0.2, 0.3, 0.4, 0.5]
        if what == "trial"
        else hottest_first(hotness(graph, "degree"), graph.num_nodes)
    )
    for index in range(3):
        assert list(found[index]) == list(expected)


# ---- hand-over through the samplers' memory, and AGL's batch mode --------------------------------------------------


@pytest.mark.parametrize(
    ("options", "pipelined"),
    [
        ({"samplers": 1}, True),
        pytest.param({"samplers": 2, "capacity": 1}, False, marks=pytest.mark.exhaustive),
    ],
)
def test_samples_that_stay_where_they_are_train_alike(graph, three_ranks, options, pipelined):
    given = {
        **QUICK,
        **options,
        "pipelined": pipelined,
        "epochs": 2,
        "executor": "factored",
        "ranks": three_ranks,
    }
    found = lab.train(graph, handover="peer", **given)
    assert found.settings["handover"] == "peer" and sorted(found.batch_ids[:10]) == list(range(10))
    np.testing.assert_allclose(found.losses, replayed(graph, found.batch_ids, found.update_sizes), atol=1e-4)
    assert len(found.accuracy) == 2 and found.accuracy[-1] > 0.5


def test_one_trainer_gets_the_same_bits_both_ways(graph, pair):
    given = {**QUICK, "samplers": 1, "epochs": 2, "executor": "factored", "ranks": pair}
    peer, host = (lab.train(graph, handover=way, **given) for way in ("peer", "host"))
    assert peer.batch_ids == host.batch_ids and peer.losses == host.losses and peer.accuracy == host.accuracy
    for mine, theirs in zip(peer.epochs, host.epochs, strict=True):
        assert (mine.hit_rate, mine.bytes_moved) == (theirs.hit_rate, theirs.bytes_moved)


def test_what_does_not_fit_a_slot_goes_through_the_host(graph, pair, monkeypatch):
    monkeypatch.setattr("gnnsample_lab.systems.train.train_factored", ranked.small_slots)
    given = {**QUICK, "samplers": 1, "executor": "factored", "ranks": pair, "evaluate": False}
    peer = lab.train(graph, handover="peer", **given)
    ways = Counter(note.split()[-1] for note in peer.notes if note.startswith("through"))
    assert ways["host"] > 0 and ways["peer"] > 0 and sum(ways.values()) == 10
    monkeypatch.undo()
    assert peer.losses == lab.train(graph, **given).losses


def test_slots_of_a_sampler_are_bounded():
    with QueueService() as service:
        sampler, trainer = Client(service.address, 0), Client(service.address, 1)
        for client in (sampler, trainer):
            client.begin("epoch 0", 4, None, 1)
        for _ in range(2):
            [place] = sampler.task()
            sampler.put(place, sampler.room(own=2), [], own=True)
        waited = threading.Event()

        def third() -> None:
            [place] = sampler.task()
            sampler.put(place, sampler.room(own=2), [], own=True)
            waited.set()

        threading.Thread(target=third, daemon=True).start()
        assert not waited.wait(0.2)
        item = trainer.get()
        assert item is not None and item["owner"] == 0 and not waited.wait(0.2)
        trainer.free(item["slot"], item["owner"])
        assert waited.wait(LONG_S)


def test_all_sample_then_all_train_and_memory_is_swapped(graph, three_ranks):
    topology = graph.indptr.nbytes + graph.indices.nbytes + graph.edge_weight.nbytes
    budget = {"budget_gb": (topology + table_bytes(600) + 40) / 1e9}
    given = {**QUICK, **budget, "epochs": 2, "executor": "factored", "ranks": three_ranks}
    found = lab.train(graph, swap=True, **given)
    assert sorted(found.batch_ids[:10]) == list(range(10)) and found.settings["swap"]
    np.testing.assert_allclose(found.losses, replayed(graph, found.batch_ids, found.update_sizes), atol=1e-4)
    beside = lab.train(graph, samplers=3, **given)
    assert found.cache_ratio == 1.0 > beside.cache_ratio  # the cache comes when the topology has gone
    run = lab.schedule.run_of(found)
    assert run.executor == "batch-mode" and run.options["costs"].load_cache_s > 0
    with pytest.raises(lab.distributed.RankError, match="is less than the topology and the cache"):
        lab.train(graph, samplers=3, **{**given, "cache_ratio": 1.0, "epochs": 1})
    assert all(m.topology == topology and m.cache > 0 for m in found.memory)
    record = found.epochs[1]
    for rank in range(3):
        mine = [e for e in record.events if e.rank == rank]
        by = {stage: [e for e in mine if e.stage == stage] for stage in {e.stage for e in mine}}
        [topology_in], [cache_in] = by["load topology"], by["load cache"]
        assert all(topology_in.end_us <= e.start_us for e in by.get("sample", []))
        assert all(e.end_us <= cache_in.start_us for e in by.get("sample", []))
        assert all(cache_in.end_us <= e.start_us for e in by.get("train", []))
    with pytest.raises(ValueError, match="swap=True is for executor='factored'"):
        lab.train(graph, swap=True, **{**given, "samplers": 1})
    with pytest.raises(ValueError, match="an epoch waits in host memory"):
        lab.train(graph, handover="peer", samplers=3, **given)


def test_the_topology_has_gone_when_the_cache_comes(graph, three_ranks, monkeypatch):
    monkeypatch.setattr("gnnsample_lab.systems.train.train_factored", ranked.watch_swaps)
    found = lab.train(graph, swap=True, executor="factored", ranks=three_ranks, epochs=2, **QUICK)
    notes = [note for note in found.notes if note.startswith("beside the cache")]
    # Two epochs, each with an evaluation, on three ranks.
    assert notes == [f"beside the cache: 0 of {n}" for n in (1, 2, 3, 4)] * 3


def test_a_standby_trainer_begins_after_the_first_sample(graph, three_ranks):
    found = lab.train(
        graph,
        executor="factored",
        ranks=three_ranks,
        samplers=1,
        switching=True,
        **{**QUICK, "evaluate": False},
    )
    record = found.epochs[0]
    first = min(e.end_us for e in record.events if e.stage == "put")
    assert all(e.start_us >= first for e in record.events if e.worker == "standby")
    assert sorted(found.batch_ids) == list(range(10))


@pytest.mark.parametrize("handover", ["host", "peer"])
def test_a_queue_of_one_and_two_samplers_that_may_switch(graph, three_ranks, handover):
    """A sampler that waits for room must not keep its standby trainer out of the round that the others wait in."""
    given = {
        **QUICK,
        "evaluate": False,
        "batch_size": 40,
        "epochs": 2,
        "executor": "factored",
        "ranks": three_ranks,
    }
    found = lab.train(graph, samplers=2, switching=True, capacity=1, handover=handover, **given)
    assert sorted(found.batch_ids) == list(range(len(found.batch_ids))) and len(found.batch_ids) > 10
    for record in found.epochs:
        assert max(depth for _, depth in record.queues["global queue"]) <= 1


# ---- a lost sampler -------------------------------------------------------------------------------------------------


def test_others_take_over_what_a_lost_sampler_had(graph, three_ranks, monkeypatch):
    """Rank 0 fails at its third mini-batch, and has failed in the second epoch, too."""
    given = {**QUICK, "epochs": 2, "executor": "factored", "ranks": three_ranks, "samplers": 2}
    with monkeypatch.context() as patch:
        patch.setattr("gnnsample_lab.systems.train.train_factored", ranked.lose_sampler)
        found = lab.train(graph, **given)
    assert sorted(found.batch_ids[:10]) == list(range(10)) and sorted(found.batch_ids[10:]) == list(
        range(10, 20)
    )
    np.testing.assert_allclose(found.losses, replayed(graph, found.batch_ids, found.update_sizes), atol=1e-4)
    assert any(
        "rank 0 samples no more (ArithmeticError: no luck); 1 other samplers took over 1" in n
        for n in found.notes
    )
    assert set(workers(found.epochs[1], "sample")) == {(1, "sampler")}
    assert len(found.accuracy) == 2
    with monkeypatch.context() as patch:
        patch.setattr("gnnsample_lab.systems.train.train_factored", ranked.lose_sampler)
        with pytest.raises(RankError, match="rank 0 failed in stage 'sample'.*no luck"):
            lab.train(graph, **{**given, "samplers": 1})


def test_a_run_on_one_device_says_what_its_queues_hold(graph):
    """The global queue an epoch, the trainer's what is prepared ahead; the model takes such a run."""
    found = lab.train(graph, executor="factored", **QUICK)
    assert found.settings["capacity"] is None
    queues = found.timeline().queues
    assert {name: queue.capacity for name, queue in queues.items()} == {
        "global queue": None,
        "trainer queue": 1,
    }
    assert queues["global queue"].most == 10
    assert lab.schedule.model_error([lab.schedule.run_of(found)]).rows[0].modelled_s > 0


# ---- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kill", "rank", "stage"),
    [
        pytest.param(ranked.kill_sampler, 0, "sample", marks=pytest.mark.exhaustive),
        (ranked.kill_trainer, 1, "train"),
    ],
)
def test_a_lost_rank_ends_the_run_and_another_goes_on(
    graph, pair: Ranks, tmp_path: Path, monkeypatch, kill, rank, stage
):
    options = {**QUICK, "evaluate": False, "executor": "factored", "samplers": 1}
    file = tmp_path / "checkpoint.pt"
    pair.run(_ready)
    pids = list(pair.pids)
    with monkeypatch.context() as patch:
        patch.setattr("gnnsample_lab.systems.train.train_factored", kill)
        with pytest.raises(RankError, match=f"rank {rank} failed in stage '{stage}'.*SIGKILL") as caught:
            lab.train(graph, ranks=pair, checkpoint=file, checkpoint_steps=2, **options)
    assert (caught.value.rank, caught.value.stage) == (rank, stage)
    assert not left_after(pids)
    assert time.monotonic() - float((tmp_path / "died").read_text()) < 30
    found = lab.train(graph, ranks=pair, resume=file, **options)
    expected = lab.train(graph, **{**options, "executor": "serial", "samplers": None})
    assert 2 <= found.resumed < 10 and found.resumed % 2 == 0
    assert found.batch_ids == expected.batch_ids  # one sampler, one trainer: in order, each once
    assert found.update_sizes == [1] * 10, "of those before the loss, too"
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-4)


@pytest.mark.exhaustive
def test_an_interrupt_ends_all_ranks_and_another_run_goes_on(graph, pair: Ranks, tmp_path: Path, monkeypatch):
    options = {**QUICK, "evaluate": False, "executor": "factored", "samplers": 1}
    file = tmp_path / "checkpoint.pt"
    pair.run(_ready)
    pids = list(pair.pids)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with monkeypatch.context() as patch:
            patch.setattr("gnnsample_lab.systems.train.train_factored", ranked.interrupt)
            with pytest.raises(KeyboardInterrupt):
                lab.train(graph, ranks=pair, checkpoint=file, checkpoint_steps=2, **options)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not left_after(pids) and pair.pids == ()
    found = lab.train(graph, ranks=pair, resume=file, **options)
    assert found.batch_ids == list(range(10)) and found.resumed % 2 == 0


def _ready(rank: Any) -> None:
    rank.barrier()


def test_a_standby_trainer_that_fails_ends_the_run_while_its_rank_waits_for_room(
    graph, three_ranks, tmp_path, monkeypatch
):
    """The trainers wait for it in their round and take nothing from the queue, which stays full."""
    monkeypatch.setattr("gnnsample_lab.systems.train.train_factored", ranked.full_disk)
    given = {**QUICK, "checkpoint": tmp_path / "checkpoint.pt", "checkpoint_steps": 1, "batch_size": 8}
    with pytest.raises(RankError, match="rank 0 .*no space left") as caught:
        lab.train(
            graph, executor="factored", ranks=three_ranks, samplers=1, switching=True, capacity=1, **given
        )
    assert (caught.value.rank, caught.value.stage) == (0, "standby")


def test_the_trial_extracts_from_a_cache_as_large_as_a_trainers(graph):
    """A budget leaves a trainer the topology's room as well; by the smaller cache too few ranks would sample."""
    row_bytes = graph.feat.shape[1] * graph.feat.itemsize
    budget = topology_bytes(graph) + 20 * row_bytes
    given = {name: value for name, value in QUICK.items() if name != "device"} | {"model": "gcn"}
    trial = factored.on_one_device(graph, {**given, "budget_gb": budget / 1e9}, "cpu")
    beside = factored_setup.prepare(graph, device="cpu", executor="serial", budget_gb=budget / 1e9, **given)
    expected = min(1.0, rows_in(budget, graph.num_nodes, row_bytes) / graph.num_nodes)
    assert beside.cache_ratio < 0.5 * expected
    assert trial.cache_ratio == pytest.approx(expected, abs=0.02)
    sized = factored.on_one_device(
        graph, {**given, "budget_gb": 2 * budget / 1e9, "cache_ratio": 0.01}, "cpu"
    )
    assert sized.cache_ratio == pytest.approx(0.01, abs=0.01), "what was asked for stays"


@pytest.mark.parametrize("captured", [False, True])
def test_the_trial_times_steps_as_they_will_run(graph, monkeypatch, captured):
    """Neither the step that compiles nor, where steps are replayed, the one that captures is in the times."""
    slow, calls = (1, 2) if captured else (1,), []
    prepare = factored_setup.prepare

    def prepared(*args: Any, **options: Any) -> Any:
        ready = prepare(*args, **options)
        step = ready.trainer.step

        def timed(batch: Any, x: Any) -> Any:
            calls.append(int(batch.batch_id))
            time.sleep(1.0 if len(calls) in slow else 0.0)
            return step(batch, x)

        ready.trainer.step, ready.trainer.captured = timed, step if captured else None
        return ready

    monkeypatch.setattr(factored_setup, "prepare", prepared)
    given = {name: value for name, value in QUICK.items() if name != "device"}
    *_, put_s, get_s, _, train_s = factored.trial_times(
        graph, {"model": "gcn", "executor": None, **given}, "cpu"
    )
    assert train_s < 0.2 and len(calls) > factored.TRIAL_STEPS
    assert 0 < put_s < 0.2 and 0 < get_s < 0.2, "what is handed over, once a mini-batch"
