"""On a GPU: every strategy, table and launch shape returns the sample of the CPU twin, bit for bit.

``gnnsample-lab bench verify`` compares all configurations; here are some of them, and what it does not vary.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from gnnsample_lab import Graph, NeighborSampler
from gnnsample_lab.bench.configurations import Configuration, configurations
from gnnsample_lab.bench.configurations import test_graph as graph_named
from gnnsample_lab.bench.verify import GPU_STRATEGIES, cpu_hash, gpu_hash, gpu_sampler, strategies_for
from gnnsample_lab.minibatch.gpu.per_hop import PER_HOP_STRATEGIES
from gnnsample_lab.minibatch.gpu.run import GpuEngine
from gnnsample_lab.sampling.neighbors.launch import Knobs
from gnnsample_lab.sampling.neighbors.plan import ONE_BLOCK_SEEDS, TABLES
from gnnsample_lab.sampling.neighbors.spec import MAX_FANOUT
from gnnsample_lab.sampling.neighbors.strategies import QUEUE_STRATEGIES

pytestmark = pytest.mark.gpu

ALL = [config for config in configurations() if not config.for_blocks]
# Every 19th of 240: all graphs, rules, fanout lists and both ways to expand.
CHOSEN = ALL[::19]
FOR_BLOCKS = [config for config in configurations() if config.for_blocks][::5]
expected = functools.cache(cpu_hash)


def with_tables(strategy: str) -> tuple[str | None, ...]:
    return (None,) if strategy in PER_HOP_STRATEGIES else (None, *TABLES)


def test_the_chosen_configurations_cover_what_matters():
    options = [dict(c.options) for c in CHOSEN]
    assert {c.graph for c in CHOSEN} == {"dead-ends", "hubs", "multi"}
    assert {o["expand"] for o in options} == {"frontier", "new"}
    assert {o.get("pick") for o in map(dict, (c.options for c in FRONTIER))} >= {"floyd", "reservoir"}
    assert len({(o.get("pick"), o.get("replace"), o.get("weighted")) for o in options}) == 5


@pytest.mark.parametrize("strategy", GPU_STRATEGIES)
@pytest.mark.parametrize("config", CHOSEN, ids=lambda c: c.key)
def test_every_strategy_and_table_gives_the_sample_of_the_cpu(config, strategy):
    if strategy not in strategies_for(config):
        with pytest.raises(ValueError, match="expand='new'"):
            gpu_hash(config, strategy)
        return
    for table in with_tables(strategy):
        assert gpu_hash(config, strategy, table) == expected(config), table


@pytest.mark.parametrize("config", FOR_BLOCKS, ids=lambda c: c.key)
def test_a_block_draws_by_fisher_and_yates(config):
    for threads in (32, 64, 256):
        knobs = Knobs(block_threads=threads)
        assert gpu_hash(config, "block-bsp", None, knobs) == expected(config), threads


FRONTIER = [c for c in CHOSEN if dict(c.options)["expand"] == "frontier" and c.num_seeds > 1]


def random_knobs(rng: np.random.Generator, strategy: str) -> Knobs:
    knobs = Knobs(
        block_threads=32 * int(rng.integers(1, 9)),
        delay_ns=int(rng.choice([0, 200, 3000])),
        hub_limit=(None, 0, 16, 500)[int(rng.integers(4))],
    )
    for name in knobs.blocks_per_sm:
        knobs.blocks_per_sm[name] = int(rng.integers(1, 9))
    if strategy in QUEUE_STRATEGIES and strategy != "fused-static":
        knobs.num_blocks = int(rng.choice([1, 2, 3, 17, 132]))
    if strategy == "grid-barrier":
        knobs.num_blocks = int(rng.choice([1, 2, 33]))
    return knobs


@pytest.mark.parametrize("config", FRONTIER, ids=lambda c: c.key)
def test_a_block_that_serves_one_task_at_a_time_gives_the_sample_of_the_cpu(config):
    rng = np.random.default_rng(len(config.key))
    for _ in range(4):
        knobs = replace(random_knobs(rng, "persistent"), queue_teams=False)
        # A block begins with the ticket of its own number, so all have to run at once; a host runs fewer than 132.
        knobs.num_blocks = min(knobs.num_blocks, 60)
        assert gpu_hash(config, "persistent", None, knobs) == expected(config), knobs


def test_the_queue_as_published_is_asked_for_by_name():
    config = FRONTIER[0]
    given = {"strategy": "persistent", "device": "cuda", "seed": 3}
    blocks, teams = (
        NeighborSampler(graph_named(config.graph), [4, 3], queue=queue, **given)
        for queue in ("blocks", "teams")
    )
    assert not blocks._engine.knobs.queue_teams and teams._engine.knobs.queue_teams
    assert blocks.sample(config.seeds()).canonical() == teams.sample(config.seeds()).canonical()


@pytest.mark.parametrize("strategy", GPU_STRATEGIES)
@pytest.mark.parametrize("config", FRONTIER, ids=lambda c: c.key)
def test_launch_shapes_and_delays_change_nothing(config, strategy):
    rng = np.random.default_rng(len(config.key) + len(strategy))
    for _ in range(8):
        knobs = random_knobs(rng, strategy)
        assert gpu_hash(config, strategy, None, knobs) == expected(config), knobs


@pytest.mark.parametrize("strategy", GPU_STRATEGIES)
def test_the_same_call_again_gives_the_same_sample(strategy):
    """Whatever earlier launches left in tables, queues and counters."""
    config = FRONTIER[0]
    sampler = gpu_sampler(config, strategy)
    for i in range(5):
        assert sampler.sample(config.seeds(), config.batch_id).canonical().sha256() == expected(config), i
        sampler.sample(config.seeds()[: 1 + i], i)


@pytest.mark.parametrize("expand", ["frontier", "new"])
@pytest.mark.parametrize("strategy", GPU_STRATEGIES)
def test_many_seeds_with_duplicates(strategy, expand):
    """More seeds than one block merges."""
    if expand == "new" and strategy in QUEUE_STRATEGIES:
        pytest.skip("queue strategies expand frontiers only")
    g = graph_named("hubs")
    rng = np.random.default_rng(0)
    for count in (ONE_BLOCK_SEEDS, ONE_BLOCK_SEEDS + 1, 3 * ONE_BLOCK_SEEDS + 5):
        seeds = rng.integers(0, g.num_nodes, count)
        cpu = NeighborSampler(g, [4, 3], expand=expand, device="cpu")
        gpu = NeighborSampler(g, [4, 3], expand=expand, strategy=strategy, device="cuda")
        for batch_id in range(4):  # launches take turns with their scratch memory
            found, wanted = gpu.sample(seeds, batch_id), cpu.sample(seeds, batch_id)
            assert found.seeds.get().tolist() == wanted.seeds.tolist()
            assert found.seed_inverse.get().tolist() == wanted.seed_inverse.tolist()
            assert found.canonical() == wanted.canonical()
            seeds = rng.permutation(seeds)


def merges(sampler: NeighborSampler) -> bool:
    engine = sampler._engine
    return engine._merges if engine.per_hop is None else engine.per_hop.merges


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("strategy", GPU_STRATEGIES)
def test_seeds_are_merged_from_the_first_duplicate_on(strategy, table):
    """Distinct seeds are numbered by their places; others are found out, and the launch is repeated."""
    g = graph_named("hubs")
    rng = np.random.default_rng(4)
    cpu = NeighborSampler(g, [4, 3], device="cpu")
    for count in (7, ONE_BLOCK_SEEDS, ONE_BLOCK_SEEDS + 400, 2 * g.num_nodes):
        few = min(count, g.num_nodes)
        distinct = rng.permutation(g.num_nodes)[:few]
        twice = np.append(distinct, distinct[few // 2])
        many = rng.integers(0, g.num_nodes, count)
        gpu = NeighborSampler(g, [4, 3], strategy=strategy, device="cuda")
        gpu._engine = GpuEngine(gpu.graph, gpu.spec, None, strategy, "exact", 5, False, None, table)
        assert not merges(gpu)
        for batch_id, seeds in enumerate((distinct, distinct[::-1].copy(), twice, many, distinct)):
            found, wanted = gpu.sample(seeds, batch_id), cpu.sample(seeds, batch_id)
            assert found.canonical() == wanted.canonical(), (count, batch_id)
            assert found.seed_inverse.get().tolist() == wanted.seed_inverse.tolist()
            # Strategy `grid-barrier` merges few seeds itself.
            if strategy != "grid-barrier" or count > ONE_BLOCK_SEEDS:
                assert merges(gpu) == (batch_id >= 2)


@pytest.mark.parametrize("strategy", ["captured", "bsp", "persistent", "persistent-tile"])
def test_one_duplicate_among_many_mini_batches_in_a_launch(strategy):
    g = graph_named("hubs")
    rng = np.random.default_rng(5)
    batches = [rng.permutation(g.num_nodes)[:90] for _ in range(6)]
    batches[4][17] = batches[4][60]
    cpu = NeighborSampler(g, [4, 3], device="cpu")
    gpu = NeighborSampler(g, [4, 3], strategy=strategy, device="cuda")
    for _ in range(2):
        for found, wanted in zip(gpu.sample_many(batches, 3), cpu.sample_many(batches, 3), strict=True):
            assert found.canonical() == wanted.canonical()
    assert gpu._engine._merges


@pytest.mark.parametrize(
    "strategy", ["captured", "bsp", "persistent", "persistent-tile", "fused-static", *PER_HOP_STRATEGIES]
)
@pytest.mark.parametrize("count", [50, ONE_BLOCK_SEEDS + 50])
def test_a_seed_outside_of_the_graph_is_refused_and_forgotten(strategy, count):
    import cupy

    g = graph_named("hubs")
    gpu = NeighborSampler(g, [4, 3], strategy=strategy, device="cuda")
    seeds = cupy.arange(count)
    for bad in (g.num_nodes, -1, 2**40):
        wrong = seeds.copy()
        wrong[count // 3] = bad
        with pytest.raises(ValueError, match="seeds must be vertex ids"):
            gpu.sample(wrong)
    wanted = NeighborSampler(g, [4, 3], device="cpu").sample(np.arange(count), 9)
    assert gpu.sample(seeds, 9).canonical() == wanted.canonical()
    assert not merges(gpu)  # distinct seeds are not merged because others were wrong


@pytest.mark.parametrize("strategy", PER_HOP_STRATEGIES)
@pytest.mark.parametrize("fanouts", [[4, 3], [4, -1]], ids=str)
def test_a_hop_is_drawn_before_the_host_waits_for_its_size(monkeypatch, strategy, fanouts):
    """As in DGL. All neighbours have to be counted first."""
    from gnnsample_lab.minibatch.gpu.per_hop import HopWork, PerHopSampler

    order: list[str] = []
    wait, launch = HopWork.total.func, PerHopSampler.launch_draw
    monkeypatch.setattr(HopWork, "total", property(lambda work: (order.append("wait"), wait(work))[1]))
    monkeypatch.setattr(
        PerHopSampler, "launch_draw", lambda *given: (order.append("draw"), launch(*given))[1]
    )
    g = graph_named("hubs")
    gpu = NeighborSampler(g, fanouts, strategy=strategy, device="cuda")
    seeds = np.arange(50)
    found = gpu.sample(seeds, 3).canonical()
    assert found == NeighborSampler(g, fanouts, device="cpu").sample(seeds, 3).canonical()
    assert order[:2] == ["draw", "wait"]
    assert order[2:] == (["draw", "wait"] if fanouts[1] > 0 else ["wait", "draw", "wait"])


def test_seeds_are_met_anew_once_their_stamps_run_out():
    g = graph_named("hubs")
    cpu = NeighborSampler(g, [4, 3], device="cpu")
    gpu = NeighborSampler(g, [4, 3], strategy="block-bsp", device="cuda")
    gpu._engine.per_hop.met._stamps = 3
    for batch_id in range(7):
        seeds = np.arange(20) + batch_id % 2
        assert gpu.sample(seeds, batch_id).canonical() == cpu.sample(seeds, batch_id).canonical()
        assert not merges(gpu)
    seeds[3] = seeds[9]
    assert gpu.sample(seeds, 7).canonical() == cpu.sample(seeds, 7).canonical()
    assert merges(gpu)


def with_wide_ids(g: Graph) -> Graph:
    """The same graph with 64-bit ids, as graphs of 2**31 vertices have them; not through ``to``, which narrows."""
    import copy

    wide = copy.copy(g)
    wide._set("indices", g.indices.astype(np.int64))
    return wide


@pytest.mark.parametrize("strategy", GPU_STRATEGIES)
def test_wide_ids(strategy):
    g = graph_named("multi")
    wide = with_wide_ids(g.to("cuda"))
    for options in ({}, {"weighted": True}):
        cpu = NeighborSampler(g, [5, 4], device="cpu", **options).sample(range(0, 500, 9), 3)
        gpu = NeighborSampler(wide, [5, 4], strategy=strategy, device="cuda", **options).sample(
            range(0, 500, 9), 3
        )
        assert (gpu.node_ids.dtype, gpu.picks[0].neighbors.dtype) == (np.int64, np.int64)
        assert gpu.canonical() == cpu.canonical()


def test_auto_measures_and_says_so():
    config = FRONTIER[0]
    sampler = gpu_sampler(config, "auto")
    assert "not measured yet" in sampler.reason
    assert sampler.sample(config.seeds(), config.batch_id).canonical().sha256() == expected(config)
    assert "was the fastest on" in sampler.reason and " us" in sampler.reason
    assert sampler.sample(config.seeds(), config.batch_id).canonical().sha256() == expected(config)


def test_the_gpu_moves_a_graph_and_weights_are_the_same():
    from gnnsample_lab.sampling.weights import integer_weights

    g = graph_named("hubs")
    on_gpu = g.to("cuda")
    here, there = integer_weights(g.indptr, g.edge_weight), integer_weights(on_gpu.indptr, on_gpu.edge_weight)
    assert np.array_equal(here.prefix, there.prefix.get())
    assert np.array_equal(here.available, there.available.get())
    sampler = NeighborSampler(g, [3], device="cuda")
    assert sampler.graph.device == "cuda" and sampler.device == "cuda"


@pytest.mark.parametrize("strategy", GPU_STRATEGIES)
def test_arrays_of_a_batch_fit_together(strategy):
    """What the canonical form does not look at: offsets, levels, dtypes, and where arrays lie."""
    config: Configuration = FRONTIER[1]
    batch = gpu_sampler(config, strategy).sample(config.seeds(), config.batch_id)
    host = batch.to_cpu()
    assert host.level_sizes == tuple(batch.level_sizes) and len(host.node_ids) == host.level_sizes[-1]
    assert len(np.unique(host.node_ids)) == len(host.node_ids)
    for hop, (on_gpu, picks) in enumerate(zip(batch.picks, host.picks, strict=True)):
        assert np.array_equal(on_gpu.offsets.get(), picks.offsets)
        for mine, theirs in zip(on_gpu.coo(), picks.coo(), strict=True):
            assert mine.dtype == theirs.dtype and np.array_equal(mine.get(), theirs)
        assert (picks.counts.dtype, picks.positions.dtype) == (np.int32, np.int64)
        assert np.array_equal(picks.frontier, host.node_ids[: host.level_sizes[hop]])
        assert np.array_equal(host.node_ids[host.local_neighbors[hop]], picks.neighbors)
        assert host.local_neighbors[hop].max(initial=-1) < host.level_sizes[hop + 1]
    assert type(batch.blocks[0].indices).__module__.startswith("cupy")
    assert batch.canonical() == host.canonical()


FANOUTS = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    13,
    16,
    20,
    31,
    32,
    33,
    40,
    63,
    64,
    65,
    128,
    129,
    255,
    256,
    257,
    300,
    1000,
    MAX_FANOUT,
)


def hubs_of(fanout: int) -> Graph:
    """Vertices of degrees from 0 to far above ``fanout``, most of them little above it, where most draws repeat one
    another; every edge is there twice."""
    few = 40 if fanout < 300 else 4
    near = [fanout + extra for extra in (1, 2, 3, 5, 9) for _ in range(few)]
    degrees = [0, 1, max(1, fanout - 1), fanout, fanout, 2 * fanout, 10 * fanout + 1, *near]
    dst = np.repeat(np.arange(len(degrees)), degrees)
    src = np.arange(dst.size) // 2
    return Graph.from_edges(src, dst, max(len(degrees), int(src.max()) + 1))


@pytest.mark.parametrize("pick", ["reservoir", "fisher-yates"])
def test_a_hop_in_coo_arrays_has_each_picks_vertex(pick):
    import cupy

    from gnnsample_lab.minibatch.gpu.per_hop import PerHopSampler
    from gnnsample_lab.sampling.neighbors.launch import Launcher
    from gnnsample_lab.sampling.neighbors.spec import make_spec

    g = graph_named("hubs").to("cuda")
    spec = make_spec([7], pick, False, False, "frontier", 3)
    per_hop = PerHopSampler(g, spec, None, Launcher(g, spec, "block-bsp", False, Knobs()))
    vertices = cupy.arange(0, g.num_nodes, 3, dtype=g.indices.dtype)
    plain = per_hop.draw(vertices, 0, 5)
    work = per_hop.prepare(vertices, 0)
    rows, columns = (cupy.full(work.total, -1, g.indices.dtype) for _ in range(2))
    out = (cupy.empty(work.total, np.int32), columns, cupy.empty(work.total, np.int64))
    per_hop.launch_draw(work, 0, 5, out, coo_rows=rows)
    assert (rows.get() == np.repeat(vertices.get(), work.counts.get())).all()
    assert (columns == plain.neighbors).all() and (out[2] == plain.positions).all()


@pytest.mark.parametrize("fanout", FANOUTS)
def test_groups_draw_what_the_serial_rule_draws_by_fisher_and_yates(fanout):
    g = hubs_of(fanout)
    seeds, on_gpu = np.r_[np.flatnonzero(g.in_degrees()), 0, 7, 7], g.to("cuda")
    how = {"pick": "fisher-yates", "strategy": "block-bsp"}
    serial = NeighborSampler(g, [fanout], device="cpu", **how)
    before = on_gpu.indices.copy()
    for threads in (32, 128, 256):
        parallel = NeighborSampler(on_gpu, [fanout], device="cuda", **how)
        knobs = Knobs(block_threads=threads)
        parallel._engine = GpuEngine(
            on_gpu, parallel.spec, None, "block-bsp", "exact", 5, False, None, None, knobs
        )
        for batch_id in range(3):
            found, wanted = parallel.sample(seeds, batch_id), serial.sample(seeds, batch_id)
            assert found.canonical() == wanted.canonical(), (threads, batch_id)
    assert (on_gpu.indices == before).all(), (
        "the release permutes the graph's own array; no draw here writes it"
    )


@pytest.mark.parametrize("fanout", FANOUTS)
def test_floyd_by_a_warp_or_a_block_draws_what_the_serial_rule_draws(fanout):
    g = hubs_of(fanout)
    seeds = np.r_[np.flatnonzero(g.in_degrees()), 0, 7, 7]
    serial = NeighborSampler(g, [fanout], pick="floyd", device="cpu")
    on_gpu = g.to("cuda")
    for strategy in ("block-bsp", "turbo-bsp", "persistent", "bsp"):
        for threads in (32, 128, 256) if strategy == "block-bsp" else (None,):
            parallel = NeighborSampler(on_gpu, [fanout], pick="floyd", strategy=strategy, device="cuda")
            if threads is not None:
                knobs = Knobs(block_threads=threads)
                parallel._engine = GpuEngine(
                    on_gpu, parallel.spec, None, strategy, "exact", 5, False, None, None, knobs
                )
            for batch_id in range(3):
                found, wanted = parallel.sample(seeds, batch_id), serial.sample(seeds, batch_id)
                assert found.canonical() == wanted.canonical(), (strategy, threads, batch_id)
