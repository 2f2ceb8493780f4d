"""On a GPU: completion, overflows, wrapping stamps, cut grids. Whatever the schedule does, no task is lost unseen."""

from __future__ import annotations

import collections
import functools

import numpy as np
import pytest

from gnnsample_lab import Graph, MiniBatch, NeighborSampler
from gnnsample_lab.bench.configurations import test_graph as graph_named  # pytest collects test_*
from gnnsample_lab.bench.verify import GPU_STRATEGIES
from gnnsample_lab.minibatch.gpu.per_hop import PER_HOP_STRATEGIES
from gnnsample_lab.minibatch.gpu.run import GpuEngine
from gnnsample_lab.sampling.neighbors.launch import Knobs
from gnnsample_lab.sampling.neighbors.plan import (
    CTR_ROWS,
    MAX_TAG,
    ONE_BLOCK_SEEDS,
    STATUS_OVERFLOW,
    TABLES,
)
from gnnsample_lab.sampling.neighbors.sizes import MAX_MARGIN
from gnnsample_lab.sampling.neighbors.strategies import QUEUE_STRATEGIES

pytestmark = pytest.mark.gpu

FUSED = [s for s in GPU_STRATEGIES if s not in PER_HOP_STRATEGIES]
SEEDS = np.arange(0, 900, 7)


def make(
    g: Graph, fanouts, strategy: str, knobs: Knobs | None = None, *, completion: str = "exact", traced: bool = False,
    scratch_bytes: int | None = None, table: str | None = None, **options,
) -> NeighborSampler:  # fmt: skip
    """A sampler with launch knobs, which the public arguments do not offer."""
    sampler = NeighborSampler(g, fanouts, strategy=strategy, device="cuda", trace=traced, **options)
    sampler._engine = GpuEngine(
        sampler.graph, sampler.spec, sampler._weights, strategy, completion, sampler.fetch_size, traced,
        scratch_bytes, table, knobs,
    )  # fmt: skip
    return sampler


@functools.cache
def on_cpu(fanouts: tuple[int, ...], batch_id: int = 0) -> MiniBatch:
    return NeighborSampler(graph_named("dead-ends"), fanouts, device="cpu").sample(SEEDS, batch_id)


# ---- completion ---------------------------------------------------------------------------------------------------


def test_the_published_rule_loses_the_third_hop_of_a_path(drawn_graphs):
    for _ in range(10):
        for self_reuse, picks in ((False, [1, 1, 0]), (True, [1, 2, 0])):
            sampler = make(
                drawn_graphs["path"], [1, 1, 1], "persistent", Knobs(num_blocks=1, self_reuse=self_reuse),
                completion="paper", traced=True,
            )  # fmt: skip
            batch = sampler.sample([0])
            assert [p.num_picks for p in batch.picks] == picks
            assert set(batch.trace.lost.hop.tolist()) == {2}
            if not self_reuse:
                assert batch.trace.lost.vertex.tolist() == [2]


def test_the_exact_rule_completes_the_path(drawn_graphs):
    for strategy in QUEUE_STRATEGIES:
        batch = make(drawn_graphs["path"], [1, 1, 1], strategy, Knobs(num_blocks=1)).sample([0])
        assert [p.num_picks for p in batch.picks] == [1, 2, 3]


@pytest.mark.real_gpu
def test_the_published_rule_loses_five_of_ten_when_a_short_task_ends_first():
    """Seed 0 has ten neighbours, which have one each; seed 1 has none, so its block ends first and claims five."""
    g = Graph.from_edges([*range(2, 12), *range(12, 22)], [0] * 10 + [*range(2, 12)], 22)
    losses: collections.Counter[int] = collections.Counter()
    for _ in range(100):
        sampler = make(
            g, [10, 1], "persistent", Knobs(num_blocks=2, self_reuse=False), completion="paper", traced=True
        )
        batch = sampler.sample([0, 1])
        assert batch.picks[0].num_picks == 10
        lost = len(batch.trace.lost)
        assert batch.picks[1].num_picks == 10 - lost
        assert lost <= 5
        losses[lost] += 1
    # Which block ends first is up to the GPU, and nothing is lost where the long one does.
    assert set(losses) <= {0, 5} and losses[5] > 0, losses


@pytest.mark.parametrize("seed", range(4))
def test_what_the_published_rule_returns_is_part_of_the_sample(seed):
    g = graph_named("dead-ends")
    seeds = np.random.default_rng(seed).integers(0, 900, 20)
    whole = NeighborSampler(g, [3, 3, 3], device="cpu").sample(seeds, seed)
    sampler = make(g, [3, 3, 3], "persistent", Knobs(num_blocks=1 + seed), completion="paper")
    part = sampler.sample(seeds, seed).to_cpu()
    assert part.seeds.tolist() == whole.seeds.tolist()
    assert set(part.node_ids.tolist()) <= set(whole.node_ids.tolist())
    for mine, theirs in zip(part.picks, whole.picks, strict=True):
        assert set(mine.positions.tolist()) <= set(theirs.positions.tolist())
        drawn = dict(zip(theirs.frontier.tolist(), theirs.counts.tolist(), strict=True))
        for v, count in zip(mine.frontier.tolist(), mine.counts.tolist(), strict=True):
            assert count in (0, drawn[v])


GRAPHS, SIZE = 10_000, 8


@pytest.mark.parametrize(
    ("strategy", "teams"), [*((strategy, True) for strategy in QUEUE_STRATEGIES), ("persistent", False)]
)
@pytest.mark.real_gpu
def test_exact_loses_none_on_ten_thousand_graphs(strategy, teams):
    """Ten thousand random graphs with dead ends lie side by side; each is a mini-batch with a queue of its own."""
    rng = np.random.default_rng(2026)
    which = np.repeat(np.arange(GRAPHS), rng.integers(0, 14, GRAPHS))
    src = which * SIZE + rng.integers(0, SIZE, which.size)
    dst = which * SIZE + (rng.random(which.size) ** 2 * SIZE).astype(int)
    g = Graph.from_edges(src, dst, GRAPHS * SIZE)
    seeds = [i * SIZE + rng.choice(SIZE, int(rng.integers(1, 5)), replace=False) for i in range(GRAPHS)]
    on_host = NeighborSampler(g, [2, 3, 2], device="cpu")
    sampler = make(g, [2, 3, 2], strategy, Knobs(num_blocks=2, queue_teams=teams))
    for begin in range(0, GRAPHS, 1000):
        group = seeds[begin : begin + 1000]
        expected = on_host.sample_many(group, begin)
        for mine, theirs in zip(sampler.sample_many(group, begin), expected, strict=True):
            assert mine.level_sizes == theirs.level_sizes
            for a, b in zip(mine.picks, theirs.picks, strict=True):
                assert np.array_equal(np.sort(a.positions.get()), np.sort(b.positions))


@pytest.mark.parametrize("teams", [True, False])
@pytest.mark.parametrize("fetch_size", [1, 2, 5, 64])
def test_fetch_size_changes_nothing(fetch_size, teams):
    knobs = Knobs(queue_teams=teams)
    sampler = make(graph_named("dead-ends"), [4, 3, 2], "persistent", knobs, fetch_size=fetch_size)
    assert sampler.sample(SEEDS).canonical() == on_cpu((4, 3, 2)).canonical()


# ---- limits -------------------------------------------------------------------------------------------------------


@pytest.mark.real_gpu  # a driver refuses such a grid; where a host stands in, blocks would wait for ever
def test_a_cut_cooperative_grid_is_an_error():
    sampler = make(graph_named("dead-ends"), [3, 3], "grid-barrier", Knobs(num_blocks=10**6))
    with pytest.raises(RuntimeError, match="cooperative launch of grid .* was cut"):
        sampler.sample(SEEDS)
    # The next one, with a grid that fits, is not disturbed.
    fits = make(graph_named("dead-ends"), [3, 3], "grid-barrier", Knobs(num_blocks=4))
    assert fits.sample(SEEDS).canonical() == on_cpu((3, 3)).canonical()


@pytest.mark.parametrize("table", [None, *TABLES])
@pytest.mark.parametrize("strategy", FUSED)
@pytest.mark.parametrize("fanouts", [(10, 10, 10), (-1, -1)], ids=str)
def test_an_overflow_gives_the_same_sample_within_the_bound(strategy, fanouts, table):
    """Half the memory each time: either the sample is made, within the bound, or the bound is named."""
    g = graph_named("dead-ends")
    roomy = make(g, fanouts, strategy, table=table)
    assert roomy.sample(SEEDS).canonical() == on_cpu(fanouts).canonical()
    limit = roomy.scratch_bytes
    assert limit > 0
    outcomes = []
    while limit > 64:
        sampler = make(g, fanouts, strategy, scratch_bytes=limit, table=table)
        try:
            assert sampler.sample(SEEDS).canonical() == on_cpu(fanouts).canonical()
            assert sampler.scratch_bytes <= limit
            outcomes.append("sample")
        except MemoryError as error:
            assert f"scratch_bytes={limit}" in str(error)
            outcomes.append("error")
            assert sampler.scratch_bytes <= limit
        limit //= 2
    # A bound of some bytes cannot be kept, one that was just enough can.
    assert outcomes[-1] == "error"
    assert "sample" in outcomes


NONSENSE, FENCE_BYTES = 0x7F, 1 << 15


class Fenced:
    """Allocates memory that holds nonsense, each piece before a fence that nothing may write.

    A pool puts arrays side by side, so a write past one changes another, or what is left of a rounded size, and
    memory that was used before often holds what a kernel expects: most wrong accesses would pass unseen.
    """

    def __init__(self) -> None:
        self.fences: list = []

    def __call__(self, num_bytes: int):
        import cupy

        memory = cupy.get_default_memory_pool().malloc(num_bytes + FENCE_BYTES)
        memory.memset_async(NONSENSE, num_bytes + FENCE_BYTES, cupy.cuda.get_current_stream())
        self.fences.append(cupy.ndarray((FENCE_BYTES,), np.uint8, memory + num_bytes))
        return memory

    def hold(self) -> bool:
        return all(bool((fence.get() == NONSENSE).all()) for fence in self.fences)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("strategy", FUSED)
@pytest.mark.parametrize("fanouts", [(10, 10, 10), (-1, -1)], ids=str)
def test_an_overflow_writes_in_its_own_buffers_only(strategy, fanouts, table):
    """Too little for rows, picks and nodes at every margin: three launches overflow, none may touch a neighbour."""
    import cupy

    fenced = Fenced()
    with cupy.cuda.using_allocator(fenced):
        sampler = make(graph_named("hubs"), fanouts, strategy, scratch_bytes=300_000, table=table)
        with pytest.raises(MemoryError, match="scratch_bytes=300000"):
            sampler.sample(SEEDS)
        cupy.cuda.Device().synchronize()
    assert sampler._engine._margin == MAX_MARGIN
    assert fenced.hold()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("strategy", QUEUE_STRATEGIES)
def test_after_an_error_rows_that_no_block_filled_are_not_read(strategy, table):
    """A block leaves with tickets unserved when it sees an error; their rows are handed out and hold nonsense."""
    import cupy

    fenced = Fenced()
    with cupy.cuda.using_allocator(fenced):
        engine = make(graph_named("dead-ends"), (10, 10, 10), strategy, table=table)._engine
        workspace = engine.workspace(1, SEEDS.size)
        workspace.clear_tables()
        workspace.counters[0] = STATUS_OVERFLOW
        workspace.counters[CTR_ROWS : CTR_ROWS + 3] = cupy.asarray(workspace.shape.row_caps, dtype=np.uint32)
        engine.finisher.scan(workspace)
        cupy.cuda.Device().synchronize()
    status, nodes, picks = np.split(workspace.host_totals[:20], [1, 17])
    assert status == STATUS_OVERFLOW
    assert not nodes.any() and not picks.any()
    assert fenced.hold()


def test_scratch_stays_within_the_bound_over_batches_of_many_sizes():
    g = graph_named("hubs")
    sampler = NeighborSampler(g, [5, 5], strategy="bsp", device="cuda", scratch_bytes=8 << 20)
    on_host = NeighborSampler(g, [5, 5], device="cpu")
    rng = np.random.default_rng(0)
    for i in range(12):
        seeds = rng.integers(0, g.num_nodes, int(rng.integers(1, 1500)))
        assert sampler.sample(seeds, i).canonical() == on_host.sample(seeds, i).canonical()
        assert 0 < sampler.scratch_bytes <= 8 << 20


@pytest.mark.parametrize("num_seeds", [100, 3 * ONE_BLOCK_SEEDS])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("strategy", FUSED)
def test_stamps_wrap(strategy, table, num_seeds):
    """Tables and queues tell batches apart by stamps; when those run out, everything is cleared and starts anew."""
    seeds = np.random.default_rng(0).integers(0, 6000, num_seeds)
    on_host = NeighborSampler(graph_named("hubs"), [4, 3], device="cpu")
    expected = [on_host.sample(seeds, i).canonical() for i in range(6)]
    sampler = make(graph_named("hubs"), [4, 3], strategy, table=table)
    assert sampler.sample(seeds, 0).canonical() == expected[0]
    (workspace,) = sampler._engine._workspaces.values()
    workspace.next_base = 2**32 - 2 * (workspace.shape.node_cap + 2) - 3
    near_the_end = MAX_TAG - 3
    workspace.next_tag = near_the_end + (workspace.next_tag - near_the_end) % 2  # launches alternate
    seen = []
    for i in range(6):
        assert sampler.sample(seeds, i).canonical() == expected[i], i
        seen.append((workspace.next_base, workspace.next_tag))
    assert min(base for base, _ in seen) < 2**31
    assert min(tag for _, tag in seen) < 10


@pytest.mark.parametrize("strategy", GPU_STRATEGIES)
def test_bad_device_seeds_are_found_by_the_kernel(strategy):
    import cupy

    g = graph_named("dead-ends")
    sampler = NeighborSampler(g, [4, 3], strategy=strategy, device="cuda")
    for dtype in (np.int32, np.int64):
        for bad in ([3, 900], [-1, 3], [2**31 - 1, 5]):
            with pytest.raises(ValueError, match=r"seeds must be vertex ids in 0\.\.899"):
                sampler.sample(cupy.asarray(bad, dtype=dtype))
    many = np.zeros(5000, np.int64)
    many[4999] = 900
    with pytest.raises(ValueError, match="seeds must be vertex ids"):
        sampler.sample(cupy.asarray(many))
    assert sampler.sample(cupy.asarray(SEEDS)).canonical() == on_cpu((4, 3)).canonical()
