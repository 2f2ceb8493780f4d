"""Mini-batches of very many seeds: sampled right, or refused with the limit, on both devices alike; never a hang."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from gnnsample_lab import NeighborSampler, PinSAGESampler
from gnnsample_lab.bench.configurations import test_graph as graph_named  # pytest collects test_*
from gnnsample_lab.bench.verify import GPU_STRATEGIES
from gnnsample_lab.minibatch import batched
from gnnsample_lab.sampling.neighbors.plan import MANY_SEEDS, MAX_SEEDS, NUMBER_BLOCK, TABLES

SECONDS = 240
"""A run that takes longer hangs. It is in a process of its own, since nothing else ends a kernel."""


def late(count: int) -> np.ndarray:
    """``count`` seeds of "hubs" (6 000 vertices): all but the last vertex over and over, and that one at the end."""
    seeds = np.arange(count, dtype=np.int32) % 5999
    seeds[-1] = 5999
    return seeds


MAKERS = {
    "neighbours": lambda graph: NeighborSampler(graph, [2], device="cpu"),
    "walks": lambda graph: PinSAGESampler(graph, device="cpu"),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_more_than_an_index_holds_are_refused(make, monkeypatch):
    sampler = make(graph_named("hubs"))
    too_many = np.broadcast_to(np.zeros(1, np.int8), MAX_SEEDS + 1)  # a byte of memory
    message = f"seeds of one mini-batch may be at most {MAX_SEEDS} .got {MAX_SEEDS + 1}"
    for call in (sampler.sample, lambda s: sampler.sample_many([[1], s])):
        with pytest.raises(ValueError, match=message):
            call(too_many)
    monkeypatch.setattr(batched, "MAX_SEEDS", 5)
    with pytest.raises(ValueError, match="at most 5 .got 6"):
        sampler.sample(range(6))
    assert sampler.sample(range(5)).seeds.size == 5
    # An epoch's seeds are many mini-batches'.
    assert [b.seeds.size for b in sampler.epoch(range(12), 5)] == [5, 5, 2]
    with pytest.raises(ValueError, match="at most 5 .got 6"):
        list(sampler.epoch(range(12), 6))


def test_many_seeds_on_the_host():
    count = 2**24 + 1
    batch = NeighborSampler(graph_named("hubs"), [2], device="cpu").sample(late(count))
    assert np.array_equal(batch.seeds, np.arange(6000))
    assert batch.seed_inverse.size == count and batch.seed_inverse[-1] == 5999
    assert np.array_equal(batch.seed_inverse[:5999], np.arange(5999))


_RUN = """
import sys
import numpy as np
from gnnsample_lab import NeighborSampler
from gnnsample_lab.bench.configurations import test_graph
from tests.minibatch.test_many_seeds import late

count, strategy = int(sys.argv[1]), sys.argv[2]
graph, seeds = test_graph("hubs"), late(count)
found = NeighborSampler(graph, [3, 2], strategy=strategy, device="cuda").sample(seeds, 9)
expected = NeighborSampler(graph, [3, 2], device="cpu").sample(seeds, 9)
assert np.array_equal(found.seeds.get(), np.arange(6000))
assert found.canonical() == expected.canonical()
print("equal")
"""


@pytest.mark.gpu
@pytest.mark.real_gpu
@pytest.mark.parametrize(
    "strategy", ["captured", "grid-barrier", "persistent-tile", "fused-static", "block-bsp"]
)
@pytest.mark.parametrize("count", [2**24 - 1, 2**24, 2**24 + 1])
def test_about_two_to_the_24_seeds_on_the_gpu(count, strategy):
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(count), strategy],
        timeout=SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.strip() == "equal", done.stderr[-2000:]


@pytest.mark.gpu
@pytest.mark.real_gpu
@pytest.mark.parametrize("strategy", GPU_STRATEGIES)
def test_where_a_kernel_of_its_own_counts_seeds(strategy):
    graph = graph_named("hubs")
    cpu, gpu = (
        NeighborSampler(graph, [3, 2], device="cpu"),
        NeighborSampler(graph, [3, 2], strategy, device="cuda"),
    )
    rng = np.random.default_rng(0)
    for count in (MANY_SEEDS - 1, MANY_SEEDS, MANY_SEEDS + 1, MANY_SEEDS + NUMBER_BLOCK + 1, 5 * MANY_SEEDS):
        for seeds in (rng.integers(0, 6000, count), late(count), np.full(count, 17)):
            for batch_id in (3, 4):  # the hashes of even and odd launches
                assert gpu.sample(seeds, batch_id).canonical() == cpu.sample(seeds, batch_id).canonical()


@pytest.mark.gpu
@pytest.mark.real_gpu
@pytest.mark.parametrize("table", TABLES)
def test_several_mini_batches_of_many_seeds_in_a_call(table):
    graph = graph_named("hubs")
    cpu, gpu = NeighborSampler(graph, [3, 2], device="cpu"), NeighborSampler(graph, [3, 2], device="cuda")
    gpu._engine.table = table
    gpu._engine._set_up()
    rng = np.random.default_rng(1)
    groups = [rng.integers(0, 6000, n) for n in (40_000, 7, MANY_SEEDS, 100_000, 1024, 33_000)]
    expected = [cpu.sample(seeds, 50 + i).canonical() for i, seeds in enumerate(groups)]
    for _ in range(6):  # as many in a launch as are tried
        assert [b.canonical() for b in gpu.sample_many(groups, 50)] == expected


@pytest.mark.gpu
@pytest.mark.real_gpu
def test_one_bad_seed_among_very_many_on_the_gpu():
    import cupy

    graph = graph_named("hubs")
    gpu = NeighborSampler(graph, [3], device="cuda", strategy="bsp")
    seeds = cupy.asarray(late(MANY_SEEDS * 3))
    good = gpu.sample(seeds).canonical()
    seeds[MANY_SEEDS * 2 + 5] = 6000
    with pytest.raises(ValueError, match=r"seeds must be vertex ids in 0\.\.5999"):
        gpu.sample(seeds)
    seeds[MANY_SEEDS * 2 + 5] = 3
    assert gpu.sample(seeds).seeds.size == 6000 and good
