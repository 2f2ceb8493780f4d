"""Grids of launches, without a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnsample_lab.device import runtime
from gnnsample_lab.sampling.neighbors import launch, schedule
from gnnsample_lab.sampling.neighbors.sizes import Shape, Sizer, seed_capacity
from gnnsample_lab.sampling.neighbors.spec import SampleSpec

FANOUTS, TASKS = (10, 5), 2048 * 12


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch) -> None:
    monkeypatch.setattr(runtime, "device_properties", lambda: {"l2CacheSize": 50 << 20})
    monkeypatch.setattr(runtime, "num_sms", lambda: 132)


def made(
    strategy: str, pick: str = "reservoir", hub: int = 100_000, **knobs: Any
) -> tuple[launch.Launcher, Shape]:
    """A launcher, and the capacities of 2 048 seeds on a graph whose largest vertex has ``hub`` in-edges."""
    graph = SimpleNamespace(
        num_nodes=2_000_000, num_edges=60_000_000, max_in_degree=hub, indices=np.empty(0, np.int32)
    )
    spec = SampleSpec(FANOUTS, pick=pick)
    launcher = launch.Launcher(graph, spec, strategy, False, launch.Knobs(**knobs))
    sizer = Sizer(graph, spec, 1 << 30, queued=True, traced=False, chunked=launcher.teams)
    return launcher, sizer._shape(1, seed_capacity(2048), 1.0, 1 << 30)


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
