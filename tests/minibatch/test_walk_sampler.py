"""``PinSAGESampler``: blocks, weights, epochs, input; on a GPU the same sample."""

from __future__ import annotations

import numpy as np
import pytest

from gnnsample_lab import Graph, NeighborSampler, PinSAGESampler
from tests.minibatch.conftest import random_graph, with_wide_ids


@pytest.fixture
def sampler(graph):
    return PinSAGESampler(graph, device="cpu", seed=3)


def test_blocks_hold_together(graph, sampler):
    batch = sampler.sample([5, 9, 5, 40], 2)
    assert batch.seeds.tolist() == [5, 9, 40] and batch.seed_inverse.tolist() == [0, 1, 0, 2]
    assert len(np.unique(batch.node_ids)) == batch.num_nodes == len(batch.node_ids)
    assert len(batch.blocks) == len(batch.pick_weights) == len(sampler.fanouts) == 3
    for hop, block in enumerate(reversed(batch.blocks)):
        picks = batch.picks[hop]
        assert (block.src[block.indices] == picks.neighbors).all()
        assert (block.dst == picks.frontier).all() and block.indptr[-1] == block.num_edges
        assert block.weight is batch.pick_weights[hop] and block.weight.shape == (block.num_edges,)
        assert (block.weight >= 1).all() and (picks.counts <= 5).all() and (block.edge_positions == -1).all()
        sums = np.add.reduceat(np.append(block.weight, 0), block.indptr[:-1]) * (picks.counts > 0)
        assert (sums <= 12).all()
        assert not (np.repeat(block.dst, picks.counts) == block.src[block.indices]).any()


def test_layers_nest(sampler):
    batch = sampler.sample(np.arange(10))
    for outer, inner in zip(batch.blocks, batch.blocks[1:], strict=False):
        assert (outer.dst == inner.src).all()


def test_neighbor_samples_have_no_weight(graph):
    batch = NeighborSampler(graph, [3, 2], device="cpu").sample([1, 2])
    assert batch.pick_weights is None and all(b.weight is None for b in batch.blocks)


def test_canonical_form_sees_the_weights(sampler):
    import dataclasses

    batch = sampler.sample(np.arange(10))
    changed = [w.copy() for w in batch.pick_weights]
    changed[1][0] += 1
    other = dataclasses.replace(batch, pick_weights=tuple(changed))
    assert batch.canonical() == sampler.sample(np.arange(10)).canonical()
    assert batch.canonical() != other.canonical()


def test_many_are_those_sampled_alone_and_an_epoch_is_many(graph, sampler):
    groups = [[1, 2, 3], [4], list(range(50))]
    for i, batch in enumerate(sampler.sample_many(groups, 7)):
        assert batch.batch_id == 7 + i
        assert batch.canonical() == sampler.sample(groups[i], 7 + i).canonical()
    train = np.arange(3, 103)
    batches = list(sampler.epoch(train, 30, epoch=2))
    assert [b.batch_id for b in batches] == [8, 9, 10, 11]
    assert sorted(np.concatenate([b.seeds for b in batches]).tolist()) == train.tolist()


def test_every_setting_counts(graph):
    def form(**options):
        return PinSAGESampler(graph, device="cpu", **options).sample(np.arange(20)).canonical()

    base = form()
    assert base == form()
    for options in ({"num_layers": 2}, {"num_neighbors": 4}, {"num_walks": 5}, {"walk_length": 2}, {"seed": 1},
                    {"restart": 0.5}, {"restart": 0.5, "restart_ends": True}):  # fmt: skip
        assert form(**options) != base


def test_wide_ids_change_nothing(graph, wide_graph, sampler):
    wide = PinSAGESampler(wide_graph, device="cpu", seed=3).sample([1, 5, 7])
    assert wide.node_ids.dtype == np.int64
    assert wide.canonical() == sampler.sample([1, 5, 7]).canonical()


@pytest.mark.parametrize("seeds", [[], [120], [-1], [0.5], [[1, 2]]])
def test_bad_seeds(sampler, seeds):
    with pytest.raises((TypeError, ValueError), match="seeds"):
        sampler.sample(seeds)


def test_bad_arguments(graph, sampler):
    with pytest.raises(TypeError, match=r"graph must be .* \(got \[1\] of type list\)"):
        PinSAGESampler([1])
    with pytest.raises(ValueError, match="seeds must hold at least one mini-batch"):
        sampler.sample_many([])
    with pytest.raises(ValueError, match="batch_id"):
        sampler.sample([1], -1)
    with pytest.raises(ValueError, match="device"):
        PinSAGESampler(graph, device="tpu")
    with pytest.raises(ValueError, match="num_walks"):
        PinSAGESampler(graph, num_walks=0, device="cpu")


def test_torch_blocks_carry_the_weight(sampler, graph):
    torch = pytest.importorskip("torch")
    batch = sampler.sample(np.arange(10))
    for block, found in zip(batch.blocks, batch.to_torch().blocks, strict=True):
        assert found.weight.dtype == torch.int32 and found.weight.tolist() == block.weight.tolist()
    plain = NeighborSampler(graph, [3], device="cpu").sample([1]).to_torch()
    assert plain.blocks[0].weight is None
    with pytest.raises(ValueError, match="expand='new'"):
        batch.to_pyg()


def star(leaves: int) -> Graph:
    """A hub, many leaves that end walks, a self-loop and parallel edges."""
    src = [*range(1, leaves + 1), 0, 1, 1, 1]
    dst = [*([0] * leaves), 0, 2, 2, 2]
    return Graph.from_edges(src, dst, leaves + 3)


GPU_GRAPHS = {
    "random": lambda: random_graph(1),
    "wide": lambda: with_wide_ids(random_graph(4)),
    "star": lambda: star(5000),
    "sparse": lambda: random_graph(6, num_nodes=60_000, num_edges=90_000),
}


@pytest.mark.gpu
@pytest.mark.parametrize("options", [
    {}, {"restart": 0.3}, {"restart": 0.5, "restart_ends": True},
    {"num_layers": 1, "num_walks": 64, "walk_length": 64, "num_neighbors": 40},
    {"num_layers": 2, "num_walks": 33, "walk_length": 2, "num_neighbors": 3}, {"num_walks": 1, "walk_length": 1},
    {"seed": 2**64 - 1, "num_walks": 10, "walk_length": 7},
])  # fmt: skip
@pytest.mark.parametrize("name", GPU_GRAPHS)
def test_the_gpu_walks_the_same_ways(name, options):
    graph = GPU_GRAPHS[name]()
    cpu, gpu = (PinSAGESampler(graph, device=d, **options) for d in ("cpu", "cuda"))
    rng = np.random.default_rng(5)
    groups = [rng.integers(0, graph.num_nodes, n) for n in (1, 64, 300, 65, 7)]
    for first in (0, 2**32 - 6):
        for i, batch in enumerate(gpu.sample_many(groups, first)):
            expected = cpu.sample(groups[i], first + i)
            assert batch.level_sizes == expected.level_sizes
            assert batch.canonical() == expected.canonical()
    assert gpu.sample(groups[2], 9).canonical() == cpu.sample(groups[2], 9).canonical()
    assert gpu.scratch_bytes > 0


@pytest.mark.gpu
@pytest.mark.parametrize("restart", [0.0, 0.5])
def test_seeds_on_the_gpu_stay_there_until_one_comes_twice(restart, monkeypatch):
    import cupy

    from gnnsample_lab.minibatch.walks import gpu as module

    graph = random_graph(1)
    cpu, gpu = (PinSAGESampler(graph, device=on, restart=restart) for on in ("cpu", "cuda"))
    merged = []
    merge = module.merge_duplicates
    monkeypatch.setattr(
        module, "merge_duplicates", lambda seeds: (merged.append(len(seeds)), merge(seeds))[1]
    )
    plain = [np.array([9, 3, 77]), cupy.asarray([119, 0], dtype=np.int32), cupy.arange(120)[::-3]]
    hosts = [s if isinstance(s, np.ndarray) else s.get() for s in plain]
    expected = [cpu.sample(seeds, 4 + i).canonical() for i, seeds in enumerate(hosts)]
    assert [b.canonical() for b in gpu.sample_many(plain, 4)] == expected
    assert gpu.sample_many(plain, 4)[1].seed_inverse.tolist() == [0, 1]
    assert merged == []
    for bad in ([5, 120], [-1], [2**40]):
        with pytest.raises(ValueError, match=r"seeds must be vertex ids in 0\.\.119"):
            gpu.sample_many([*plain, cupy.asarray(bad)])
    assert merged == []
    # Most seeds twice: walks of all of them would reach more vertices than there is room for.
    again = cupy.asarray(np.r_[np.arange(60), np.arange(60)])
    for seeds in (again, np.array([7, 7]), cupy.asarray([3] * 500), cupy.asarray([5, 6])):
        found = gpu.sample_many([*plain, seeds], 4)
        host = seeds if isinstance(seeds, np.ndarray) else seeds.get()
        assert [b.canonical() for b in found] == [*expected, cpu.sample(host, 7).canonical()]
        assert found[3].seed_inverse.tolist() == cpu.sample(host, 7).seed_inverse.tolist()
    assert merged
    with pytest.raises(ValueError, match="seeds must be vertex ids"):
        gpu.sample_many([cupy.asarray([5, 120])])


@pytest.mark.gpu
def test_gpu_waves_seeds_of_all_kinds_and_epochs():
    import cupy

    graph = random_graph(1)
    cpu = PinSAGESampler(graph, device="cpu")
    gpu = PinSAGESampler(graph, device="cuda", scratch_bytes=1 << 18)
    groups = [np.arange(i, 120, 7) for i in range(7)] * 20
    together = gpu.sample_many([cupy.asarray(g) for g in groups])
    for i, batch in enumerate(together):
        assert batch.canonical() == cpu.sample(groups[i], i).canonical()
    expected = cpu.sample([9, 3, 9], 1).canonical()
    for seeds in ([9, 3, 9], np.array([9, 3, 9], np.uint8), cupy.asarray([9, 3, 9], dtype=np.int32)):
        assert gpu.sample(seeds, 1).canonical() == expected
    for seeds in (np.arange(100), cupy.arange(100)):
        pairs = zip(gpu.epoch(seeds, 30, epoch=1), cpu.epoch(np.arange(100), 30, epoch=1), strict=True)
        assert all(a.canonical() == b.canonical() for a, b in pairs)
    with pytest.raises(ValueError, match="seeds"):
        gpu.sample(cupy.asarray([120]))


@pytest.mark.gpu
def test_arrays_come_with_the_launch_where_earlier_ones_tell_their_size(monkeypatch):
    """Else by another launch; in memory of their own, so that those of a mini-batch that is kept stay as they are."""
    import cupy

    from gnnsample_lab.minibatch.walks.gpu import WalkEngine

    graph = random_graph(6, num_nodes=20_000, num_edges=90_000)
    here, there = (PinSAGESampler(graph, device=device) for device in ("cpu", "cuda"))
    again = []
    write = WalkEngine._write_again
    monkeypatch.setattr(
        WalkEngine, "_write_again", lambda *given: (again.append(len(given[-1])), write(*given))[1]
    )
    few, many = [np.arange(i, i + 40) for i in range(6)], [np.arange(i, i + 64) for i in range(9)]
    kept = []
    for seeds, launches, written in (
        (few[:1], 1, 1), (few[1:2], 1, 1), (few[2:], 1, 1), ([few[0], many[0], few[1]], 2, 2), (many, 2, 2),
        ([np.array([5, 5, 7])], 2, 2), (few, 2, 2),
    ):  # fmt: skip
        kept.append((seeds, there.sample_many(seeds, 7)))
        assert (len(again), sum(again)) == (launches, written)
    alloc = cupy.cuda.alloc
    left = [alloc]

    def short(size):  # of memory, once
        if left:
            left.pop()
            raise cupy.cuda.memory.OutOfMemoryError(size, 0, 0)
        return alloc(size)

    monkeypatch.setattr(cupy.cuda, "alloc", short)
    kept.append((many[:2], there.sample_many(many[:2], 7)))
    assert not left and len(again) == 3
    for seeds, found in kept:
        for i, (batch, one) in enumerate(zip(found, seeds, strict=True)):
            assert batch.canonical() == here.sample(one, 7 + i).canonical()
            assert batch.seed_inverse.tolist() == here.sample(one, 7 + i).seed_inverse.tolist()
