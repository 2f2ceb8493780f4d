"""The schedule model: against recurrences worked out independently, and invariants of every executor."""

from __future__ import annotations

import heapq
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnsample_lab.pipeline.schedule.engine import Queue, Signal, Simulator
from gnnsample_lab.pipeline.schedule.simulate import EXECUTORS, simulate
from gnnsample_lab.pipeline.schedule.timeline import Timeline
from gnnsample_lab.pipeline.schedule.times import Costs, StageTimes, stage_times

SECONDS = st.floats(0.0, 2.0)


def drawn(batches: int, seed: int) -> StageTimes:
    rng = np.random.default_rng(seed)
    return stage_times(
        *rng.uniform(0.01, 1.0, (3, batches)), standby_extract_s=rng.uniform(0.5, 2.0, batches)
    )


@st.composite
def runs(draw: Any) -> tuple[StageTimes, dict[str, Any]]:
    """Stage times and arguments that go together, of any executor."""
    executor = draw(st.sampled_from(list(EXECUTORS)))
    gpus, batches = draw(st.integers(1, 5)), draw(st.integers(1, 24))
    options: dict[str, Any] = {
        "executor": executor,
        "gpus": gpus,
        "staleness": draw(st.sampled_from([0, 1, 3, None])),
    }
    if executor == "factored":
        options["samplers"] = samplers = draw(st.integers(1, gpus))
        options["switching"] = samplers == gpus or draw(st.booleans())
        options["pipelined"] = draw(st.booleans())
        options["capacity"] = None if samplers == gpus else draw(st.sampled_from([None, 1, 2, 5]))
    elif executor == "overlapped":
        options["workers"] = draw(st.integers(1, 3))
        options["capacity"] = draw(st.sampled_from([None, 1, 3]))
    elif executor == "batch-mode":
        options["pipelined"] = draw(st.booleans())
    divided = executor in ("serial", "thread", "streams", "overlapped")
    options["collective"] = divided and draw(st.booleans())
    if not options["collective"]:
        options["scheduler"] = draw(st.sampled_from([None, "static", "dynamic"]))
    share = st.sampled_from([0.0, 0.3, 0.8, 1.0])
    options["costs"] = Costs(
        put_s=draw(st.sampled_from([0, 0.05])), get_s=draw(st.sampled_from([0, 0.03])),
        update_s=draw(st.sampled_from([0, 0.02])), load_topology_s=0.5, load_cache_s=0.25, host_share=draw(share),
        demand={stage: draw(share) for stage in ("sample", "extract", "train")},
    )  # fmt: skip
    return drawn(batches, draw(st.integers(0, 1000))), options


@settings(deadline=None, max_examples=150)
@given(runs())
def test_invariants_of_every_executor(made: tuple[StageTimes, dict[str, Any]]) -> None:
    times, options = made
    found = simulate(times, **options)
    assert sorted(found.trained) == list(range(times.batches)), "every mini-batch trained exactly once"
    by_stage: dict[str, dict[int, Any]] = {}
    for event in found.events:
        if event.batch >= 0:
            assert event.batch not in by_stage.setdefault(event.stage, {}), "every stage once"
            by_stage[event.stage][event.batch] = event
    for batch in range(times.batches):
        sample, extract, train = (by_stage[stage][batch] for stage in ("sample", "extract", "train"))
        assert sample.end_s <= extract.start_s and extract.end_s <= train.start_s
        assert extract.gpu == train.gpu
    workers: dict[tuple[int, str], list[Any]] = {}
    for event in [*found.events, *found.waits]:
        workers.setdefault((event.gpu, event.worker), []).append(event)
    for mine in workers.values():
        mine.sort(key=lambda e: (e.start_s, e.end_s))
        assert all(a.end_s <= b.start_s + 1e-9 for a, b in pairwise(mine)), (
            "a worker does one thing at a time"
        )
    for queue in found.queues.values():
        assert queue.depth[-1] == 0 and queue.depth.min() >= 0
        if queue.capacity is not None and not options["collective"]:
            assert queue.most <= queue.capacity
    assert ((found.utilisation >= 0) & (found.utilisation <= 1 + 1e-9)).all()
    assert found.epoch_s >= times.train_s.sum() / options["gpus"] - 1e-9
    if not any(options["costs"].demand.values()) and options["costs"].host_share == 0:
        for event in found.events:
            if event.stage in ("sample", "train"):
                expected = getattr(times, f"{event.stage}_s")[event.batch]
                assert event.end_s - event.start_s == pytest.approx(expected)
    assert_staleness(found, options["staleness"])
    for share, trainers in zip(found.utilisation, found.roles, strict=True):
        assert trainers in ("sampler", "trainer", "all stages") and share >= 0


def assert_staleness(found: Timeline, bound: int | None) -> None:
    """When a trainer begins a step, no trainer that goes on afterwards is more steps behind than allowed."""
    if bound is None:
        return
    trains = [e for e in found.events if e.stage == "train"]
    ends: dict[tuple[int, str], list[float]] = {}
    for e in sorted(trains, key=lambda e: e.end_s):
        ends.setdefault((e.gpu, e.worker), []).append(e.end_s)
    if any(worker == "standby" for _, worker in ends) and "trainer" in found.roles:
        return  # standby trainers join where the others are
    for who, mine in ends.items():
        starts = sorted(e.start_s for e in trains if (e.gpu, e.worker) == who)
        assert len(starts) == len(mine)
        for step, start in enumerate(starts):
            for other in ends.values():
                done = sum(end <= start + 1e-12 for end in other)
                assert done >= min(step - bound, len(other)), "ahead by more than allowed"


def line(columns: list[np.ndarray], capacity: int) -> float:
    """End of the last mini-batch of stages in a line with buffers between them, by its recurrence."""
    batches = len(columns[0])
    start = np.zeros((len(columns), batches))
    left = np.zeros((len(columns), batches))
    for i in range(batches):
        for s, seconds in enumerate(columns):
            ready = left[s - 1, i] if s else 0.0
            start[s, i] = max(ready, left[s, i - 1] if i else 0.0)
            left[s, i] = start[s, i] + seconds[i]
            if s + 1 < len(columns) and i > capacity - 1:  # room when mini-batch i - capacity has been taken
                left[s, i] = max(left[s, i], start[s + 1, i - capacity])
    return float(left[-1, -1])


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 1000))
def test_one_gpu_overlapped_follows_the_recurrence(batches: int, capacity: int, seed: int) -> None:
    times = drawn(batches, seed)
    found = simulate(times, "overlapped", capacity=capacity).epoch_s
    assert found == pytest.approx(line([times.sample_s, times.extract_s, times.train_s], capacity))


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 30), st.integers(0, 1000))
def test_one_gpu_of_the_other_executors_by_hand(batches: int, seed: int) -> None:
    times = drawn(batches, seed)
    s, e, t, standby = times.sample_s, times.extract_s, times.train_s, times.standby_extract_s
    assert simulate(times, "serial").epoch_s == pytest.approx((s + e + t).sum())
    assert simulate(times, "timeshared").epoch_s == pytest.approx((s + e + t).sum())
    assert simulate(times, "thread").epoch_s == pytest.approx(line([s + e, t], 1))
    assert simulate(times, "streams").epoch_s == pytest.approx(line([s, e, t], 1))
    assert simulate(times, "factored").epoch_s == pytest.approx(s.sum() + line([standby, t], 1)), (
        "a whole epoch first"
    )
    plain = simulate(times, "factored", pipelined=False)
    assert plain.epoch_s == pytest.approx((s + standby + t).sum()) and plain.switched == batches
    assert plain.queues["global queue"].most == batches, "the queue holds a whole epoch"
    costs = Costs(load_topology_s=3, load_cache_s=2)
    swapped = simulate(times, "batch-mode", pipelined=False, costs=costs).epoch_s
    assert swapped == pytest.approx(5 + (s + e + t).sum())


def listed(times: StageTimes, samplers: int, trainers: int) -> float:
    """Samplers, an endless queue, trainers without a pipeline: whoever is free takes the next."""
    free = [(0.0, i) for i in range(samplers)]
    sampled = []
    for batch in range(times.batches):
        at, who = heapq.heappop(free)
        heapq.heappush(free, (at + times.sample_s[batch], who))
        sampled.append((at + times.sample_s[batch], batch))
    idle = [0.0] * trainers
    for at, batch in sorted(sampled):
        start = max(heapq.heappop(idle), at)
        heapq.heappush(idle, start + times.extract_s[batch] + times.train_s[batch])
    return max(idle)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 4), st.integers(0, 1000))
def test_the_factored_design_follows_list_scheduling(
    batches: int, samplers: int, trainers: int, seed: int
) -> None:
    times = drawn(batches, seed)
    found = simulate(
        times,
        "factored",
        gpus=samplers + trainers,
        samplers=samplers,
        capacity=batches,
        staleness=None,
        pipelined=False,
    )
    assert found.epoch_s == pytest.approx(listed(times, samplers, trainers))


def test_synchronous_steps_last_as_long_as_the_slowest_trainer() -> None:
    train = np.array([1.0, 3.0, 2.0, 1.0, 5.0, 1.0])
    times = stage_times(np.zeros(6), np.zeros(6), train)
    together = simulate(times, "serial", gpus=2, costs=Costs(update_s=0.5))
    assert together.epoch_s == pytest.approx(3 + 2 + 5 + 3 * 0.5)
    apart = simulate(times, "serial", gpus=2, staleness=None, costs=Costs(update_s=0.5))
    assert apart.epoch_s == pytest.approx(max(1 + 2 + 5, 3 + 1 + 1) + 3 * 0.5)
    between = simulate(times, "serial", gpus=2, staleness=1).epoch_s
    assert apart.epoch_s - 1.5 <= between <= together.epoch_s - 1.5
    assert together.wait_s["others"].sum() > 0


def test_collective_stages_wait_for_their_peers() -> None:
    sample = np.array([1.0, 2.0, 4.0, 1.0])
    times = stage_times(sample, np.zeros(4), np.full(4, 0.1))
    alone = simulate(times, "overlapped", gpus=2, staleness=None)
    peers = simulate(times, "overlapped", gpus=2, staleness=None, collective=True)
    assert alone.epoch_s == pytest.approx(5.1) and peers.epoch_s == pytest.approx(6.1)
    extract = stage_times(np.zeros(2), [1.0, 3.0], np.ones(2))
    peers = simulate(extract, "serial", gpus=2, staleness=None, collective=True)
    trained = {e.gpu: e.start_s for e in peers.events if e.stage == "train"}
    assert trained == {0: 3.0, 1: 3.0}, "an all-to-all ends on both at once"


def test_several_workers_help_where_stages_are_free_and_hurt_where_they_contend() -> None:
    """DSP, section 5: its rejected variant. With kernels that fill the GPU a second worker gains nothing."""
    times = stage_times(0.02, 0.01, 0.01, batches=50)
    one, two = (simulate(times, "overlapped", workers=n).epoch_s for n in (1, 2))
    assert two < 0.6 * one
    full = Costs(demand={"sample": 1.0, "extract": 1.0, "train": 1.0})
    one, two = (simulate(times, "overlapped", workers=n, costs=full).epoch_s for n in (1, 2))
    assert one == pytest.approx(two) == pytest.approx(50 * 0.04), "no faster than one stage after the other"


def test_stages_that_fill_the_gpu_gain_nothing_by_overlapping() -> None:
    times = stage_times(0.3, 0.2, 0.5, batches=20)
    full = Costs(demand={"sample": 1.0, "extract": 1.0, "train": 1.0})
    assert simulate(times, "overlapped", costs=full).epoch_s == pytest.approx(
        simulate(times, "serial").epoch_s
    )
    half = Costs(demand=dict.fromkeys(("sample", "extract", "train"), 1 / 3))
    assert simulate(times, "overlapped", costs=half).epoch_s == pytest.approx(0.5 * 20 + 0.5)


def test_extractions_share_the_link_to_the_host() -> None:
    times = stage_times(0.0, 1.0, 0.0, batches=8)
    free = simulate(times, "serial", gpus=4).epoch_s
    shared = simulate(times, "serial", gpus=4, costs=Costs(host_share=0.5)).epoch_s
    assert free == pytest.approx(2) and shared == pytest.approx(4)


def test_copies_of_samples_cost_the_sampler_and_the_trainer() -> None:
    times = stage_times(1.0, 0.5, 0.5, batches=4)
    host = Costs().with_handover("host", 2e9, 10)
    peer = Costs().with_handover("peer", 2e9, 10)
    assert (host.put_s, host.get_s, peer.put_s, peer.get_s) == (0.2, 0.2, 0.2, 0.0)
    through = [
        simulate(times, "factored", gpus=2, costs=c, pipelined=False).epoch_s for c in (host, peer, Costs())
    ]
    assert through == pytest.approx([4 * 1.2 + 1.2, 4 * 1.2 + 1.0, 5.0])


def test_a_full_queue_holds_samplers_up() -> None:
    times = stage_times(0.1, 0.0, 1.0, batches=10)
    small = simulate(times, "factored", gpus=2, capacity=1)
    large = simulate(times, "factored", gpus=2, capacity=10)
    assert small.queues["global queue"].most == 1 < large.queues["global queue"].most
    assert small.wait_s["room"][0] > 0 == large.wait_s["room"][0]
    assert small.epoch_s == pytest.approx(large.epoch_s)


def test_the_scheduler_balances_samplers() -> None:
    """Every second mini-batch is slow: a fixed division gives them all to one of two samplers."""
    times = stage_times(np.tile([1.0, 0.1], 10), np.zeros(20), np.zeros(20))
    dynamic = simulate(times, "factored", gpus=3, samplers=2, scheduler="dynamic").epoch_s
    static = simulate(times, "factored", gpus=3, samplers=2, scheduler="static").epoch_s
    assert static == pytest.approx(10.0) and dynamic < 7


def test_one_sampler_for_slow_trainers_switches() -> None:
    """GNNLab, section 7.8: one sampler, trainers ten times as slow."""
    times = stage_times(0.61, 0.33, 6.01, batches=151, per="epoch")
    gain = {}
    for trainers in (1, 3, 7):
        plain, switched = (
            simulate(times, "factored", gpus=trainers + 1, samplers=1, staleness=None, switching=on)
            for on in (False, True)
        )
        assert plain.switched == 0 < switched.switched
        gain[trainers] = plain.epoch_s / switched.epoch_s
    assert gain[1] > 1.7 and gain[1] > gain[3] > gain[7] >= 1


def test_the_default_split_follows_the_formula() -> None:
    times = stage_times(0.96, 0.49, 3.82, batches=151, per="epoch")
    assert simulate(times, "factored", gpus=8).roles.count("sampler") == 2
    slow = stage_times(10.0, 0.1, 0.1, batches=4)
    assert simulate(slow, "factored", gpus=4).roles.count("sampler") == 3, "one is left to train"
    assert simulate(slow, "factored", gpus=4, switching=True).roles.count("sampler") == 4


@pytest.mark.parametrize(("pipelined", "samplers"), [(True, 2), (False, 1)])
def test_the_default_split_counts_the_exchange_of_gradients(pipelined: bool, samplers: int) -> None:
    """A trainer exchanges gradients before it trains again: the split is that of a training as long as both."""
    times, together = stage_times(1, 1, 1, batches=64), stage_times(1, 1, 6, batches=64)
    options: dict[str, Any] = {"gpus": 8, "staleness": None, "pipelined": pipelined}
    found = simulate(times, "factored", costs=Costs(update_s=5), **options)
    longer = simulate(together, "factored", **options)
    assert found.settings["samplers"] == longer.settings["samplers"] == samplers
    assert (
        found.epoch_s
        == longer.epoch_s
        < simulate(times, "factored", costs=Costs(update_s=5), samplers=4, **options).epoch_s
    )


def test_switching_counts_the_exchange_of_gradients() -> None:
    """As many samples go to standby trainers as where training is longer by the exchange."""
    for update_s in (0, 5):
        options: dict[str, Any] = {"gpus": 4, "samplers": 1, "switching": True, "staleness": None}
        apart = simulate(
            stage_times(0.5, 1, 1, batches=16, standby_extract_s=3),
            "factored",
            costs=Costs(update_s=update_s),
            **options,
        )
        times = stage_times(0.5, 1, 1 + update_s, batches=16, standby_extract_s=3)
        assert apart.switched == simulate(times, "factored", **options).switched


def test_the_same_inputs_give_the_same_timeline() -> None:
    times = drawn(30, 3)
    a, b = (
        simulate(times, "factored", gpus=4, switching=True, costs=Costs(host_share=0.7)) for _ in range(2)
    )
    assert a.events == b.events and a.waits == b.waits


def test_a_timeline_is_labelled_as_modelled() -> None:
    found = simulate(stage_times(1, 1, 1, batches=3, source="a table"), "serial")
    assert found.origin == "modelled from stage times: a table"
    assert "modelled" in str(found) and "epoch 9 s" in str(found)
    frame = found.to_frame()
    assert list(frame.stage[:3]) == ["sample", "extract", "train"] and len(frame) == 9


def test_a_deadlock_names_who_waits_for_what() -> None:
    sim = Simulator()
    left, right = Queue(sim, 1), Queue(sim, 1)

    def taker(source: Queue, out: Queue) -> Any:
        sim.note("a mini-batch")
        item = yield source.get()
        yield out.put(item)

    sim.start("loader on GPU 0", taker(left, right))
    sim.start("loader on GPU 1", taker(right, left))
    with pytest.raises(
        RuntimeError, match="deadlocked: loader on GPU 0 waits for a mini-batch; loader on GPU 1"
    ):
        sim.run()


def test_a_queue_in_order_keeps_it() -> None:
    sim = Simulator()
    queue, out = Queue(sim, 1, order=[0, 1, 2]), []

    def put(item: int) -> Any:
        yield queue.put(item)

    def take() -> Any:
        for _ in range(3):
            out.append((yield queue.get()))

    for item in (2, 1, 0):
        sim.start(f"putter {item}", put(item))
    sim.start("taker", take())
    sim.run()
    assert out == [0, 1, 2] and isinstance(queue.watch(), Signal)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"executor": "serial", "samplers": 1}, "samplers is an argument of executor 'factored'"),
        ({"executor": "serial", "switching": True}, "switching is an argument of executor 'factored'"),
        ({"executor": "serial", "workers": 2}, "workers is an argument of executor 'overlapped'"),
        (
            {"executor": "factored", "gpus": 2, "samplers": 2, "switching": False},
            "samplers must be at most 1 of 2",
        ),
        ({"executor": "factored", "capacity": 2}, "capacity must hold all 5 mini-batches"),
        ({"executor": "factored", "gpus": 2, "collective": True}, "collective must be False"),
        ({"executor": "overlapped", "collective": True, "scheduler": "dynamic"}, "collective must be False"),
    ],
)
def test_arguments_that_do_not_go_together(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(stage_times(1, 1, 1, batches=5), **change)


def test_stage_times_are_drawn_and_repeated() -> None:
    listed = stage_times([1, 2, 3], [4, 5, 6], 7, batches=1000, seed=3)
    assert listed.batches == 1000 and set(listed.sample_s) == {1, 2, 3}
    assert (listed.extract_s == listed.sample_s + 3).all(), "stages of one mini-batch stay together"
    spread = stage_times(2.0, 3.0, 4.0, batches=20_000, spread=0.5, seed=1)
    assert spread.mean("train") == pytest.approx(4, rel=0.02)
    assert spread.train_s.std() == pytest.approx(2, rel=0.05)
    assert (spread.standby_extract_s == spread.extract_s).all()
    assert stage_times(3, 3, 3, batches=10, per="epoch").sample_s == pytest.approx(0.3)
    with pytest.raises(ValueError, match="assignment destination is read-only"):
        listed.sample_s[0] = 1


@pytest.mark.parametrize(
    ("given_times", "options", "message"),
    [
        (([1, 2], [1], 1), {}, "extract_s must have as many entries as sample_s"),
        ((1, 1, 1), {}, "batches must be given"),
        (([1, 2], [1, 2], 1), {"per": "epoch"}, "per must be 'batch' for lists"),
        ((1, -1, 1), {"batches": 2}, "extract_s must be"),
        (([1, float("nan")], 1, 1), {}, "sample_s"),
        (([], 1, 1), {}, "sample_s must be a number or hold"),
    ],
)
def test_stage_times_that_are_refused(given_times: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stage_times(*given_times, **options)
