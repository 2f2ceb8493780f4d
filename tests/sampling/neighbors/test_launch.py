"""One sequence of launches: plain runs, timed runs and benchmarks launch the same kernels in the same order."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnsample_lab.device import runtime
from gnnsample_lab.minibatch.gpu.run import GpuEngine
from gnnsample_lab.minibatch.gpu.trace import timed_launch
from gnnsample_lab.sampling.neighbors import schedule
from gnnsample_lab.sampling.neighbors.launch import Knobs, Launcher
from gnnsample_lab.sampling.neighbors.sizes import Shape, Sizer, seed_capacity
from gnnsample_lab.sampling.neighbors.spec import SampleSpec
from gnnsample_lab.sampling.neighbors.strategies import PER_HOP_STRATEGIES, QUEUE_STRATEGIES, STRATEGIES

ONE_LAUNCH = tuple(name for name in STRATEGIES if name not in (*PER_HOP_STRATEGIES, "auto"))
HOPS = 3


class Recorder(Launcher):
    """A launcher without a GPU: kernels write down their names."""

    def __init__(self, strategy: str) -> None:
        self.strategy, self.knobs = strategy, Knobs(delay_ns=5, relabel_last=False, self_reuse=False)
        self.sorts_last, self.merges = False, True
        self.spec, self.wide_ids, self.sms, self.calls = (
            SimpleNamespace(num_hops=HOPS, rule=0),
            False,
            100,
            [],
        )

    def kernel(self, source, name, table, kmax, **more):
        return lambda grid, block, args, **_: self.calls.append(
            (name, *(a for a in args[1:] if isinstance(a, np.int32)))
        )

    def _resident(self, *_):
        return 8


def workspace(calls: list) -> SimpleNamespace:
    shape = SimpleNamespace(
        seed_cap=100, table=0, num_batches=1, strides=(5, 5, 5), row_caps=(10, 10, 10), queue_cap=50, hub_cap=0
    )  # fmt: skip
    arrived = SimpleNamespace(
        nbytes=8, data=SimpleNamespace(memset_async=lambda *_: calls.append(("reset",)))
    )
    return SimpleNamespace(
        shape=shape, plan={"fetch_size": [5], "paper": [0]}, fetch_size=5, args=None, seed_slots=128, arrived=arrived,
        clear_tables=lambda: calls.append(("clear",)),
    )  # fmt: skip


@pytest.fixture
def engine_of(monkeypatch):
    """An engine of recorders; events write down that they were recorded."""
    calls: list[tuple] = []

    class Event:
        def record(self):
            calls.append(("event",))

    def cooperative(kernel, grid, block, args):
        kernel(grid, block, args)

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(Event=Event)))
    monkeypatch.setattr("gnnsample_lab.sampling.neighbors.launch.kernels.launch_cooperative", cooperative)

    def made(strategy: str) -> tuple[GpuEngine, SimpleNamespace, list]:
        calls.clear()
        engine = GpuEngine.__new__(GpuEngine)
        engine.launcher = Recorder(strategy)
        engine.launcher.calls = calls
        engine.finisher = SimpleNamespace(
            scan=lambda ws: calls.append(("scan",)), emit=lambda ws, rows: calls.append(("emit",))
        )
        return engine, workspace(calls), calls

    return made


@pytest.mark.parametrize("strategy", ONE_LAUNCH)
def test_a_timed_run_launches_what_a_plain_run_does(strategy, engine_of):
    told = {
        "fetch_size": 32 if strategy == "persistent" else [5],  # up to eight times as many, at most 32
        "paper": [0],
        "delay": 5,
        "relabel_last": False,
        "self_reuse": False,
        "sorted_last": False,
    }
    engine, ws, calls = engine_of(strategy)
    engine._work(ws)
    # A timed run has no memory for results before their sizes are known: they are written after the last event.
    *plain, emitted = calls
    assert plain[0] == ("clear",) and plain[-1] == ("scan",) and emitted == ("emit",)
    assert ws.plan == told

    engine, ws, calls = engine_of(strategy)
    timing = timed_launch(engine, ws)
    assert [call for call in calls if call != ("event",)] == plain
    assert ws.plan == told
    assert calls[0] == ("event",) == calls[-1]
    assert len(timing.events) == calls.count(("event",))


@pytest.mark.parametrize("strategy", ONE_LAUNCH)
def test_phases_are_named_as_traces_name_them(strategy, engine_of):
    engine, ws, _ = engine_of(strategy)
    phases = [(phase.name, phase.hop) for phase in engine.phases(ws)]
    if strategy in ("bsp", "captured"):
        assert phases == [("prepared", 0), *(("drawn", hop) for hop in range(HOPS)), ("scanned", 0)]
    else:
        assert phases == [("sampled", 0), ("scanned", 0)]


def test_each_phase_holds_its_kernels(engine_of):
    engine, ws, calls = engine_of("bsp")
    for phase in engine.phases(ws):
        phase.launch()
        calls.append((phase.name,))
    assert calls == [
        ("clear",), ("begin",), ("prepared",), ("hop", np.int32(0)), ("drawn",), ("hop", np.int32(1)), ("drawn",),
        ("hop", np.int32(2)), ("drawn",), ("scan",), ("scanned",),
    ]  # fmt: skip


@pytest.mark.parametrize("strategy", ["bsp", "captured"])
def test_hubs_of_a_hop_are_drawn_behind_it(strategy, engine_of):
    engine, ws, calls = engine_of(strategy)
    ws.shape.hub_cap = 7
    engine._work(ws)
    hops = [(name, np.int32(hop)) for hop in range(HOPS) for name in ("hop", "hop_hubs")]
    assert calls == [("clear",), ("begin",), *hops, ("scan",), ("emit",)]


@pytest.mark.parametrize("strategy", QUEUE_STRATEGIES)
def test_a_queue_is_one_kernel_after_the_seeds(strategy, engine_of):
    engine, ws, calls = engine_of(strategy)
    engine._work(ws)
    kernel = "serve_teams" if strategy == "persistent" else strategy.replace("-", "_")
    assert calls == [("clear",), ("begin",), (kernel,), ("scan",), ("emit",)]


@pytest.mark.parametrize("seeds", [100, 5000])
def test_seeds_that_are_distinct_need_one_kernel(seeds, engine_of):
    engine, ws, calls = engine_of("captured")
    ws.shape.seed_cap, ws.seed_sums, engine.launcher.merges = seeds, None, False
    next(engine.phases(ws)).launch()
    assert calls == [("clear",), ("begin_distinct",)]


@pytest.mark.parametrize("seeds", [100, 5000])
def test_a_grid_barrier_merges_many_seeds_first(seeds, engine_of):
    engine, ws, calls = engine_of("grid-barrier")
    ws.shape.seed_cap, ws.seed_sums = seeds, None
    engine._work(ws)
    many = [("begin_insert",), ("begin_number",)] if seeds > 1024 else []
    assert calls == [
        ("clear",),
        ("reset",),
        *many,
        ("grid_barrier", np.int32(seeds > 1024)),
        ("scan",),
        ("emit",),
    ]


# ---- grids and the queue's room ------------------------------------------------------------------------------------

FANOUTS, TASKS = (10, 5), 2048 * 12


@pytest.fixture
def no_gpu(monkeypatch) -> None:
    monkeypatch.setattr(runtime, "device_properties", lambda: {"l2CacheSize": 50 << 20})
    monkeypatch.setattr(runtime, "num_sms", lambda: 132)


def made(strategy: str, pick: str = "reservoir", hub: int = 100_000, **knobs: Any) -> tuple[Launcher, Shape]:
    """A launcher, and the capacities of 2 048 seeds on a graph whose largest vertex has ``hub`` in-edges."""
    graph = SimpleNamespace(
        num_nodes=2_000_000, num_edges=60_000_000, max_in_degree=hub, indices=np.empty(0, np.int32)
    )
    spec = SampleSpec(FANOUTS, pick=pick)
    launcher = Launcher(graph, spec, strategy, False, Knobs(**knobs))
    sizer = Sizer(graph, spec, 1 << 30, queued=True, traced=False, chunked=launcher.teams)
    return launcher, sizer._shape(1, seed_capacity(2048), 1.0, 1 << 30)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("pick", ["reservoir", "floyd"])
@pytest.mark.parametrize("hub", [50, 100_000])
def test_one_shot_blocks_are_as_many_as_tasks_may_exist(monkeypatch, pick, hub) -> None:
    """Idle blocks would count as its time. Fewer than the queue has room for would leave tasks without a block."""
    launcher, shape = made("fused-static", pick, hub)
    grids: list[Any] = []
    monkeypatch.setattr(launcher, "_begin", lambda ws: None)
    monkeypatch.setattr(launcher, "_resident", lambda *of: 100)
    monkeypatch.setattr(launcher, "kernel", lambda *of: lambda grid, *rest, **more: grids.append(grid))
    launcher._queue(SimpleNamespace(shape=shape, plan=None, args=None))
    assert grids == [(schedule._most_tasks(2048, FANOUTS, 2_000_000), 1)] == [(TASKS, 1)]
    assert shape.queue_cap == shape.row_total == TASKS


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("strategy", "pick", "knobs", "chunks"),
    [
        ("persistent", "reservoir", {}, True),
        ("persistent", "reservoir", {"queue_teams": False}, False),
        ("persistent", "floyd", {}, False),
        ("persistent-tile", "reservoir", {}, True),
        ("persistent-tile", "floyd", {}, False),
    ],
)
def test_a_queue_has_room_for_chunks_of_hubs_where_teams_serve_it(strategy, pick, knobs, chunks) -> None:
    assert (made(strategy, pick, **knobs)[1].queue_cap > TASKS) == chunks
    assert made(strategy, pick, hub=50, **knobs)[1].queue_cap == TASKS
