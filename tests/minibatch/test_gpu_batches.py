"""On a GPU: fused mini-batches, seeds of every kind, epochs, measured traces, export."""

from __future__ import annotations

import time

import numpy as np
import pytest

from gnnsample_lab import NeighborSampler
from gnnsample_lab.bench.configurations import test_graph as graph_named  # pytest collects test_*
from gnnsample_lab.bench.verify import GPU_STRATEGIES
from gnnsample_lab.sampling.neighbors.strategies import QUEUE_STRATEGIES
from gnnsample_lab.traces.analysis import hop_kernel_times

pytestmark = pytest.mark.gpu


def both(
    name: str, fanouts, strategy: str = "captured", **options
) -> tuple[NeighborSampler, NeighborSampler]:
    g = graph_named(name)
    return (
        NeighborSampler(g, fanouts, device="cpu", **options),
        NeighborSampler(g, fanouts, strategy=strategy, device="cuda", **options),
    )


@pytest.mark.parametrize("expand", ["frontier", "new"])
@pytest.mark.parametrize("strategy", GPU_STRATEGIES)
def test_fused_batches_are_those_sampled_alone(strategy, expand):
    if expand == "new" and strategy in QUEUE_STRATEGIES:
        pytest.skip("queue strategies expand frontiers only")
    cpu, gpu = both("hubs", [5, 4, 3], strategy, expand=expand)
    rng = np.random.default_rng(1)
    groups = [rng.integers(0, 6000, size) for size in (1, 300, 7, 64, 65, 1024, 2, 300, 40)]
    for first in (0, 1000):
        together = gpu.sample_many(groups, first)
        for i, (seeds, found) in enumerate(zip(groups, together, strict=True)):
            assert found.batch_id == first + i
            assert found.canonical() == cpu.sample(seeds, first + i).canonical()
    assert gpu.sample(groups[1], 1).canonical() == cpu.sample(groups[1], 1).canonical()


def test_more_batches_than_fit_run_in_waves():
    cpu, _ = both("hubs", [5, 4])
    gpu = NeighborSampler(graph_named("hubs"), [5, 4], strategy="bsp", device="cuda", scratch_bytes=4 << 20)
    groups = [np.arange(i, 6000, 60) for i in range(60)]
    for i, found in enumerate(gpu.sample_many(groups)):
        assert found.canonical() == cpu.sample(groups[i], i).canonical()
    assert gpu.scratch_bytes <= 4 << 20


def test_batches_stay_as_they_were():
    _, gpu = both("hubs", [5, 4])
    batch = gpu.sample(np.arange(100))
    before = batch.canonical()
    lazily = gpu.sample(np.arange(100))  # its arrays are first looked at after later launches
    for i in range(10):
        gpu.sample(np.arange(i, 3000), i + 1)
    assert batch.canonical() == before == lazily.canonical()


SEEDS = [9, 3, 9, 0, 119, 3, 9]


@pytest.mark.parametrize("strategy", GPU_STRATEGIES)
def test_seeds_of_every_kind_with_duplicates(strategy):
    import cupy

    torch = pytest.importorskip("torch")
    cpu, gpu = both("dead-ends", [4, 3], strategy)
    expected = cpu.sample(SEEDS, 2).canonical()
    kinds = [
        SEEDS, np.array(SEEDS, np.int32), np.array(SEEDS, np.uint8), torch.tensor(SEEDS),
        cupy.asarray(SEEDS), cupy.asarray(SEEDS, dtype=np.int32), cupy.asarray(SEEDS, dtype=np.uint16),
        cupy.repeat(cupy.asarray(SEEDS), 2)[::2],
    ]  # fmt: skip
    if torch.cuda.is_available():
        kinds += [torch.tensor(SEEDS, device="cuda"), torch.tensor(SEEDS, device="cuda", dtype=torch.int32)]
    for seeds in kinds:
        found = gpu.sample(seeds, 2)
        assert found.seeds.get().tolist() == [9, 3, 0, 119]
        assert found.seed_inverse.get().tolist() == [0, 1, 0, 2, 3, 1, 0]
        assert found.canonical() == expected
        assert cpu.sample(seeds, 2).canonical() == expected  # device seeds on the host sampler, too


def test_bad_host_seeds():
    _, gpu = both("dead-ends", [4])
    for bad, error in (([], ValueError), ([900], ValueError), ([-1], ValueError), ([1.5], TypeError)):
        with pytest.raises(error, match="seeds must"):
            gpu.sample(bad)


def test_bad_device_seeds_are_no_better_on_the_host_sampler():
    import cupy

    cpu, _ = both("dead-ends", [4])
    for bad in ([3, 900], [-1]):
        with pytest.raises(ValueError, match="seeds must be vertex ids"):
            cpu.sample(cupy.asarray(bad))


@pytest.mark.parametrize("prefetch", [None, 1, 3, 100])
def test_an_epoch_is_the_same_on_both_devices(prefetch):
    import cupy

    cpu, gpu = both("hubs", [5, 4], seed=5)
    train = np.arange(100, 1100)
    expected = [b.canonical() for b in cpu.epoch(train, 96, epoch=3)]
    for seeds in (train, cupy.asarray(train)):
        batches = list(gpu.epoch(seeds, 96, epoch=3, prefetch=prefetch))
        assert [b.batch_id for b in batches] == list(range(33, 44))
        assert [b.canonical() for b in batches] == expected


@pytest.mark.parametrize("pick", ["floyd", "reservoir"])
@pytest.mark.parametrize("strategy", GPU_STRATEGIES)
def test_measured_traces(strategy, pick):
    cpu, gpu = both("hubs", [5, 4, 3], strategy, pick=pick, trace=True)
    seeds = np.arange(0, 6000, 40)
    for batch_id in (4, 5):  # the second run finds the records of the first in its buffers
        began = time.perf_counter()
        batch = gpu.sample(seeds, batch_id)
        trace, host = batch.trace, batch.to_cpu()
        spent_us = (time.perf_counter() - began) * 1e6
        assert batch.canonical() == cpu.sample(seeds, batch_id).canonical()
        assert trace.origin == "measured" and trace.label == f"measured on {trace.device_name}"
        assert (trace.strategy, trace.batch_id, trace.fanouts) == (strategy, batch_id, (5, 4, 3))
        tasks = trace.tasks
        drawn = {
            (hop, int(v)): int(count)
            for hop, picks in enumerate(host.picks)
            for v, count in zip(picks.frontier, picks.counts)
        }
        found = dict(zip(zip(tasks.hop.tolist(), tasks.vertex.tolist()), tasks.num_picks.tolist()))
        assert len(tasks) == len(found)
        assert found == drawn
        degrees = np.diff(graph_named("hubs").indptr)
        assert np.array_equal(tasks.degree, degrees[tasks.vertex])
        assert (tasks.enqueue_us <= tasks.start_us).all() and (tasks.start_us <= tasks.end_us).all()
        assert (tasks.enqueue_us >= 0).all() and tasks.end_us.max() < spent_us
        assert tasks.sm.min() >= 0 and tasks.sm.max() < trace.num_sms
        assert trace.hops.num_picks.tolist() == [p.num_picks for p in host.picks]
        assert trace.total_us > 0 and trace.copy_bandwidth_gbps > 0
        assert len(trace.lost) == 0
        # Time 0 is the first launch; a hop's kernel is as long as its tasks, and what comes before is preprocessing.
        assert trace.begins_at_launch and tasks.end_us.max() <= trace.total_us + 5
        before, kernel = trace.hops.preprocess_us, trace.hops.kernel_us
        assert before[0] > 0 and before.sum() + kernel.sum() <= trace.total_us * (1 + 1e-6)
        if strategy != "edge-bsp":
            first = tasks.start_us[tasks.hop == 0] if strategy not in QUEUE_STRATEGIES else tasks.start_us
            assert before[0] == pytest.approx(first.min(), abs=1)
            assert kernel == pytest.approx(hop_kernel_times(tasks, 3, strategy in QUEUE_STRATEGIES))
        if strategy in QUEUE_STRATEGIES:
            assert len(trace.queue.depth) > 0 and trace.queue.depth[-1] == 0
            first = tasks.hop == 0
            assert tasks.enqueue_us[first].max() <= tasks.end_us.max()


def test_a_traced_run_saves_and_loads(tmp_path):
    from gnnsample_lab import SampleTrace

    _, gpu = both("dead-ends", [5, 4], "persistent", trace=True)
    trace = gpu.sample(range(0, 900, 9)).trace
    loaded = SampleTrace.load(trace.save(tmp_path / "trace.npz"))
    assert loaded.tasks == trace.tasks and loaded.label == trace.label


def test_untraced_runs_have_no_trace():
    _, gpu = both("dead-ends", [5, 4])
    assert gpu.sample([1]).trace is None


def test_torch_tensors_share_device_memory():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    cpu, gpu = both("dead-ends", [5, 4])
    here, there = cpu.sample(SEEDS).to_torch(), gpu.sample(SEEDS).to_torch()
    assert there.node_ids.is_cuda and there.blocks[0].edge_index.is_cuda
    assert sorted(there.node_ids.tolist()) == sorted(here.node_ids.tolist())
    for a, b in zip(here.blocks, there.blocks, strict=True):
        assert a.size == b.size and a.edge_index.shape == b.edge_index.shape
        assert sorted(a.edge_positions.tolist()) == sorted(b.edge_positions.tolist())


def test_pyg_data_on_the_device():
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    from torch_geometric.data import Data

    from gnnsample_lab import Graph

    rng = np.random.default_rng(0)
    edge_index = torch.from_numpy(rng.integers(0, 80, (2, 500)))
    data = Data(edge_index=edge_index, x=torch.rand(80, 4), y=torch.arange(80) % 3, num_nodes=80)
    g = Graph.from_pyg(data)
    here = NeighborSampler(g, [3, 3], expand="new", device="cpu").sample([5, 6]).to_pyg()
    for on_gpu in (g.to("cuda"), g.to("cuda", features=False)):
        there = NeighborSampler(on_gpu, [3, 3], expand="new", device="cuda").sample([5, 6]).to_pyg()
        assert there.x.is_cuda and there.edge_index.is_cuda and there.e_id.is_cuda
        n_id, e_id = there.n_id.cpu(), there.e_id.cpu()
        assert torch.equal(edge_index[:, e_id], n_id[there.edge_index.cpu()])
        assert torch.equal(there.x.cpu(), data.x[n_id])
        assert sorted(e_id.tolist()) == sorted(here.e_id.tolist())
        assert there.num_sampled_nodes == here.num_sampled_nodes
        assert there.num_sampled_edges == here.num_sampled_edges


@pytest.mark.parametrize("strategy", ["captured", "bsp", "grid-barrier", "persistent-tile"])
def test_every_number_of_batches_in_a_launch_gives_the_same_samples(strategy):
    """The first calls try 1, 2, 4, 8 in a launch and time them; the times are in and one of them is kept soon."""
    cpu, gpu = both("hubs", [5, 4, 3], strategy)
    groups = [np.arange(i, 6000, 60) for i in range(9)]
    expected = [cpu.sample(seeds, 70 + i).canonical() for i, seeds in enumerate(groups)]
    for _ in range(40):
        assert [b.canonical() for b in gpu.sample_many(groups, 70)] == expected
        (waves,) = gpu._engine.waves.values()
        if waves.settled(len(groups)):
            break
    assert waves.settled(len(groups)) in waves.us
    assert 1 in waves.us and all(us > 0 for us in waves.us.values())
    assert "share a launch: 1: " in gpu.reason
    assert [b.canonical() for b in gpu.sample_many(groups, 70)] == expected
