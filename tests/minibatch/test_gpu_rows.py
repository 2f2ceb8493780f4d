"""On a GPU: rows of features that the launch of a mini-batch brings with it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from gnnsample_lab import NeighborSampler
from gnnsample_lab.bench.configurations import test_graph as graph_named  # pytest collects test_*
from gnnsample_lab.minibatch.gpu import rows as module
from gnnsample_lab.minibatch.gpu.rows import RowTable
from gnnsample_lab.sampling.neighbors.plan import WANTED_EDGES, WANTED_ROWS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
SIZES = (3, 300, 2, 2, 40, 1000, 1, 1000, 999)


def graph_of(columns: int = 33, dtype: Any = np.float32, wide: bool = False) -> Any:
    g = copy.copy(graph_named("hubs"))
    rng = np.random.default_rng(columns)
    g._set("feat", rng.standard_normal((g.num_nodes, columns)).astype(dtype))
    g = g.to("cuda")
    if wide:  # ids as in a graph of 2**31 vertices
        g = copy.copy(g)
        g._set("indices", g.indices.astype(np.int64))
    return g


def groups(seed: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 6000, size) for size in SIZES]


def rows_of(batch: Any) -> np.ndarray:
    """What the arena holds of features."""
    arena, feat = batch.arena, batch.graph.feat
    assert arena.holds_rows
    found = arena.view(arena.place.end, arena.levels[-1] * feat.shape[1], feat.dtype)
    return found.reshape(-1, feat.shape[1]).get()


@pytest.mark.parametrize("wanted", [WANTED_ROWS, WANTED_ROWS | WANTED_EDGES])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("strategy", "expand"),
    [("captured", "new"), ("captured", "frontier"), ("bsp", "new"), ("persistent", "frontier")],
)
def test_rows_are_those_of_the_vertices(strategy, expand, wide, wanted):
    graph = graph_of(wide=wide)
    gpu = NeighborSampler(graph, [5, 4, 3], device="cuda", expand=expand, strategy=strategy)
    gpu._engine.wishes.bits = wanted
    cpu, feat = NeighborSampler(graph_named("hubs"), [5, 4, 3], device="cpu", expand=expand), graph.feat.get()
    held = 0
    for i, seeds in enumerate(groups() + groups(4)):
        batch = gpu.sample(seeds, i)
        assert batch.canonical() == cpu.sample(seeds, i).canonical()
        if batch.arena.holds_rows:
            held += 1
            assert np.array_equal(rows_of(batch), feat[batch.node_ids.get()])
            assert batch.arena.bytes == batch.arena.place.end + gpu._engine._table.bytes_of(batch.num_nodes)
            assert batch.arena.memory.mem.size >= batch.arena.bytes
    assert held >= len(SIZES), "a size known, a launch brings rows"
    for _ in range(2):
        together = gpu.sample_many(groups(), 50)
    for i, (seeds, batch) in enumerate(zip(groups(), together, strict=True)):
        assert batch.canonical() == cpu.sample(seeds, 50 + i).canonical()
        assert np.array_equal(rows_of(batch), feat[batch.node_ids.get()])


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [(32, np.float32), (34, np.float32), (100, np.float32), (65, np.float16), (70, np.float16)],
)
def test_rows_of_every_width(columns, dtype):
    graph = graph_of(columns, dtype)
    gpu = NeighborSampler(graph, [3, 3], device="cuda", strategy="captured")
    gpu._engine.wishes.bits = WANTED_ROWS
    for i in range(3):
        batch = gpu.sample(np.arange(50), i)
    assert np.array_equal(rows_of(batch), graph.feat.get()[batch.node_ids.get()])


def test_what_no_launch_brings(monkeypatch):
    """Short rows, other types and tables that are not on the GPU; and more rows than a launch should take."""
    assert RowTable.of(graph_of(31), "int") is None
    assert RowTable.of(graph_named("hubs").to("cuda"), "int") is None
    assert RowTable.of(graph_of(31, np.float16), "int") is None
    graph = graph_of(32)
    assert RowTable.of(graph, "int").row_bytes == 128
    gpu = NeighborSampler(graph, [3, 3], device="cuda", strategy="captured")
    gpu._engine.wishes.bits = WANTED_ROWS
    gpu.sample(np.arange(50)), gpu.sample(np.arange(50))
    assert gpu.sample(np.arange(50)).arena.holds_rows
    monkeypatch.setattr(module, "_SHARE", 1 << 60)
    assert not gpu.sample(np.arange(50)).arena.holds_rows
    none = NeighborSampler(graph_of(31), [3, 3], device="cuda", strategy="captured")
    none._engine.wishes.bits = WANTED_ROWS
    assert not [none.sample(np.arange(50), i) for i in range(3)][-1].arena.holds_rows


@pytest.mark.parametrize("expand", ["frontier", "new"])
def test_x_beside_the_tensors(expand):
    """The first one read is gathered, and tells the sampler; later ones are views of the mini-batch's memory."""
    graph = graph_of(100)
    gpu = NeighborSampler(graph, [5, 4, 3], device="cuda", expand=expand, strategy="captured")
    table, brought = torch.from_dlpack(graph.feat), 0
    for i, seeds in enumerate(groups() + groups(5)):
        batch = gpu.sample(seeds, i)
        brought += batch.arena.holds_rows
        found = batch.to_torch()
        assert torch.equal(found.x, table[found.node_ids])
        assert found.x is found.x
    assert brought >= len(SIZES)
