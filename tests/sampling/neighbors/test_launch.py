"""Grids of launches, without a GPU."""

from types import SimpleNamespace

import numpy as np
import pytest

from gnnsample_lab.device import runtime
from gnnsample_lab.sampling.neighbors import launch, schedule
from gnnsample_lab.sampling.neighbors.sizes import Sizer, seed_capacity
from gnnsample_lab.sampling.neighbors.spec import SampleSpec


@pytest.mark.parametrize("pick", ["reservoir", "floyd"])
@pytest.mark.parametrize("hub", [50, 100_000])
def test_one_shot_blocks_are_as_many_as_tasks_may_exist(monkeypatch, pick, hub) -> None:
    """Idle blocks count as its time: none is there for chunks of hubs, into which the teams' queue alone cuts them."""
    monkeypatch.setattr(runtime, "device_properties", lambda: {"l2CacheSize": 50 << 20})
    graph = SimpleNamespace(
        num_nodes=2_000_000, num_edges=60_000_000, max_in_degree=hub, indices=np.empty(0, np.int32)
    )
    spec = SampleSpec((10, 5), pick=pick)
    shape = Sizer(graph, spec, 1 << 30, queued=True, traced=False)._shape(
        1, seed_capacity(2048), 1.0, 1 << 30
    )
    assert (shape.queue_cap > shape.row_total) == (pick == "reservoir" and hub > 50), (
        "a queue has room for chunks"
    )
    launcher, grids = launch.Launcher.__new__(launch.Launcher), []
    launcher.strategy, launcher.spec, launcher.knobs = "fused-static", spec, launch.Knobs()
    monkeypatch.setattr(launcher, "_begin", lambda ws: None)
    monkeypatch.setattr(launcher, "_resident", lambda *of: 100)
    monkeypatch.setattr(launcher, "kernel", lambda *of: lambda grid, *rest, **more: grids.append(grid))
    launcher._queue(SimpleNamespace(shape=shape, plan=None, args=None))
    assert grids == [(schedule._most_tasks(2048, (10, 5), graph.num_nodes), 1)] == [(2048 * 12, 1)]
