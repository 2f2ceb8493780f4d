"""On a GPU: mini-batches in memory that is allocated before their sizes are known, and exports straight from it."""

from __future__ import annotations

import copy
import gc
from typing import Any

import numpy as np
import pytest

from gnnsample_lab import FeatureCache, NeighborSampler
from gnnsample_lab.bench.configurations import test_graph as graph_named  # pytest collects test_*
from gnnsample_lab.bench.verify import GPU_STRATEGIES
from gnnsample_lab.compute.aggregation.transpose import transposed
from gnnsample_lab.device import streams
from gnnsample_lab.sampling.neighbors.strategies import PER_HOP_STRATEGIES, QUEUE_STRATEGIES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
ARENA_STRATEGIES = [s for s in GPU_STRATEGIES if s not in PER_HOP_STRATEGIES]
GROWING = (3, 300, 2, 2, 40, 1000, 1, 1000, 999)


def graph_of(wide: bool) -> Any:
    g = graph_named("hubs").to("cuda")
    if wide:  # ids as in a graph of 2**31 vertices
        g = copy.copy(g)
        g._set("indices", g.indices.astype(np.int64))
    return g


def groups(seed: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 6000, size) for size in GROWING]  # with duplicates


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("expand", ["frontier", "new"])
@pytest.mark.parametrize("strategy", ARENA_STRATEGIES)
def test_small_arenas_are_replaced_and_large_ones_used(strategy, expand, wide):
    if expand == "new" and strategy in QUEUE_STRATEGIES:
        pytest.skip("queue strategies expand frontiers only")
    graph = graph_of(wide)
    cpu = NeighborSampler(graph_named("hubs"), [5, 4, 3], device="cpu", expand=expand)
    gpu = NeighborSampler(graph, [5, 4, 3], device="cuda", expand=expand, strategy=strategy)
    fitted = 0
    for i, seeds in enumerate(groups()):
        batch = gpu.sample(seeds, i)
        arena = batch.arena
        assert arena.place.end == arena.bytes  # the host and the kernels agree on the places
        fitted += arena.memory.mem.size > arena.bytes
        assert batch.num_edges == sum(p.num_picks for p in cpu.sample(seeds, i).picks)
        assert batch.canonical() == cpu.sample(seeds, i).canonical()
    assert fitted
    together = gpu.sample_many(groups(), 50)
    together = gpu.sample_many(groups(), 50)
    for i, (seeds, found) in enumerate(zip(groups(), together, strict=True)):
        assert found.canonical() == cpu.sample(seeds, 50 + i).canonical()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("expand", ["frontier", "new"])
def test_exports_from_the_arena_are_those_made_of_blocks(expand, wide):
    graph = graph_of(wide)
    gpu = NeighborSampler(graph, [5, 4, 3], device="cuda", expand=expand, strategy="captured")
    for i, seeds in enumerate(groups()):
        gpu.sample(seeds, i).to_torch()  # the first tells the sampler what later ones shall hold
    for i, seeds in enumerate(groups(4)):
        batch = gpu.sample(seeds, i)
        assert batch.arena.wanted
        found, blocks = batch.to_torch(), batch.blocks
        assert torch.equal(found.node_ids, torch.from_dlpack(batch.node_ids).long())
        assert found.node_ids.dtype == torch.int64
        assert torch.equal(found.seed_inverse, torch.from_dlpack(batch.seed_inverse))
        assert torch.equal(found.seeds, torch.from_dlpack(batch.seeds).long())
        for made, block in zip(found.blocks, blocks, strict=True):
            assert made.size == (block.num_src, block.num_dst)
            for name in ("src", "dst", "indptr", "indices", "edge_positions"):
                wanted = torch.from_dlpack(getattr(block, name))
                assert (
                    torch.equal(getattr(made, name), wanted) and getattr(made, name).dtype == wanted.dtype
                ), name
            rows = torch.arange(block.num_dst, device="cuda").repeat_interleave(made.indptr.diff())
            assert torch.equal(made.edge_index, torch.stack([made.indices.long(), rows]))


def test_one_mini_batch_that_is_kept_holds_no_other():
    import cupy

    gpu = NeighborSampler(graph_named("hubs"), [5, 4, 3], device="cuda", strategy="captured")
    seeds = [np.arange(i, 6000, 7) for i in range(32)]
    for _ in range(12):  # until the number of mini-batches a launch is settled
        gpu.sample_many(seeds)
    batches = gpu.sample_many(seeds)
    pool = cupy.get_default_memory_pool()
    each = max(b.arena.memory.mem.size for b in batches)
    kept = batches[5].node_ids
    before, expected = pool.used_bytes(), kept.copy()
    del batches
    gc.collect()
    assert before - pool.used_bytes() >= 30 * each
    for i in range(3):
        gpu.sample_many(seeds, 100 + 32 * i)
    assert bool((kept == expected).all())


@pytest.mark.parametrize("expand", ["frontier", "new"])
def test_memory_goes_without_the_collector(expand):
    """In a cycle of references it would stay until Python's collector comes, and streams may be gone by then."""
    import weakref

    gpu = NeighborSampler(graph_named("hubs"), [5, 4, 3], device="cuda", expand=expand, strategy="captured")
    gpu.sample(np.arange(50))
    gc.collect()
    gc.disable()
    try:
        batch = gpu.sample(np.arange(50), 7)
        for block in batch.blocks:
            block.src, block.indptr  # noqa: B018
        batch.picks[1], batch.local_neighbors[0], batch.node_ids, batch.to_torch()
        transposed(batch.blocks[0])  # as a backward pass does
        gone = weakref.ref(batch.arena)
        del batch, block
        assert gone() is None
    finally:
        gc.enable()


def test_a_guess_that_memory_does_not_hold(monkeypatch):
    """One large mini-batch must not make later small ones fail."""
    import cupy

    cpu = NeighborSampler(graph_named("hubs"), [5, 4], device="cpu")
    gpu = NeighborSampler(graph_named("hubs"), [5, 4], device="cuda", strategy="captured")
    gpu.sample(np.arange(60))
    allocate, refused = cupy.cuda.alloc, []

    def tight(size: int) -> Any:
        if size > 1 << 40:
            refused.append(size)
            raise cupy.cuda.memory.OutOfMemoryError(size, 0, 0)
        return allocate(size)

    monkeypatch.setattr(cupy.cuda, "alloc", tight)
    for room in gpu._engine._rooms.values():
        room.saw(1 << 41)
    assert gpu.sample(np.arange(60), 3).canonical() == cpu.sample(np.arange(60), 3).canonical()
    assert refused


def test_memory_and_streams_in_one_cycle_of_references():
    """As the traceback of an exception makes it: Python finalizes them in any order."""
    import cupy

    gpu = NeighborSampler(graph_named("hubs"), [5, 4, 3], device="cuda", strategy="captured")
    for i in range(20):
        made_on, reader = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
        with made_on:
            batch = gpu.sample(np.arange(50), i)
        batch.ready.wait(reader)
        cycle: dict[str, Any] = {"streams": (made_on, reader), "nodes": batch.node_ids, "batch": batch}
        cycle["itself"] = cycle
        del cycle, made_on, reader, batch
        gc.collect()
    cupy.cuda.Device().synchronize()


def test_scratch_and_streams_in_one_cycle_of_references():
    """Memory that calls use in turn, and streams that are theirs alone."""
    import cupy

    for _ in range(20):
        made_on, other, added = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))
        turns = streams.Turns()
        turns.add(added)
        with made_on:
            held = [streams.lease(cupy.cuda.alloc(1 << 12), turns)]
            turns.take()
        with other:
            turns.take()
            held.append(streams.lease(cupy.cuda.alloc(1 << 12), turns))
        cycle: dict[str, Any] = {"streams": (made_on, other, added), "turns": turns, "held": held}
        cycle["itself"] = cycle
        del cycle, held, made_on, other, added, turns
        gc.collect()
    cupy.cuda.Device().synchronize()


def test_a_staged_cache_in_a_cycle_of_references():
    """Its buffers are read on streams that it has for itself."""
    table = np.random.default_rng(0).random((500, 8), np.float32)
    for _ in range(5):
        cache = FeatureCache(table, ratio=0.0, device="cuda", transfer="staged")
        ids = np.arange(0, 500, 3)
        found = cache.extract(ids)[0]
        assert np.array_equal(found.get(), table[ids])
        cycle: dict[str, Any] = {"cache": cache, "found": found}
        cycle["itself"] = cycle
        del cycle, cache, found
        gc.collect()


def test_a_copy_with_another_field_is_a_whole_mini_batch():
    from dataclasses import replace

    gpu = NeighborSampler(graph_named("hubs"), [5, 4, 3], device="cuda", strategy="captured")
    gpu.sample(np.arange(50))
    batch = gpu.sample(np.arange(50), 7)
    copy = replace(batch, batch_id=9)
    assert copy.batch_id == 9 and copy.canonical() == batch.canonical()
    assert copy.num_edges == batch.num_edges
    with pytest.raises(AttributeError, match="nonsense"):
        batch.nonsense  # noqa: B018
