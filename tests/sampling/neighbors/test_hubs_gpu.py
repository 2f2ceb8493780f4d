"""On a GPU: hubs that all warps share (``hops/hubs.cuh``) have the picks that the CPU twin draws, bit for bit."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from gnnsample_lab import Graph, NeighborSampler
from gnnsample_lab.bench.timing import capture_all
from gnnsample_lab.minibatch.gpu.per_hop import PER_HOP_STRATEGIES, PerHopSampler
from gnnsample_lab.minibatch.gpu.run import GpuEngine
from gnnsample_lab.minibatch.id_map.ladder import id_maps
from gnnsample_lab.sampling.neighbors.launch import Knobs, Launcher
from gnnsample_lab.sampling.neighbors.plan import CTR_HUBS, TABLES
from gnnsample_lab.sampling.neighbors.spec import make_spec

pytestmark = pytest.mark.gpu

SHARING = ("block-bsp", "turbo-bsp", "bsp", "captured")
LIMIT = 64


def in_test_all(value: Any) -> Any:
    """A value that waits for ``make test-all`` where the host runs the kernels, which takes seconds."""
    return pytest.param(value, marks=pytest.mark.exhaustive)


@functools.cache
def star(degree: int) -> Graph:
    """Vertex 0 has ``degree`` in-neighbours, which have few, among them vertex 0."""
    rng = np.random.default_rng(degree)
    n = degree + 1
    few = rng.integers(0, n, 3 * n)
    src = np.concatenate([np.arange(1, n), few, np.zeros(n // 3, np.int64)])
    dst = np.concatenate(
        [np.zeros(degree, np.int64), rng.integers(1, n, few.size), rng.integers(1, n, n // 3)]
    )
    return Graph.from_edges(src, dst, num_nodes=n)


@functools.cache
def many_hubs() -> Graph:
    """Hubs at every border of ``LIMIT`` and of a group of four candidates, next to vertices with few or no edges."""
    rng = np.random.default_rng(3)
    n = 900
    degrees = np.zeros(n, np.int64)
    degrees[:40] = LIMIT + np.arange(-8, 32)
    degrees[40:70] = rng.integers(LIMIT + 1, 9 * LIMIT, 30)
    degrees[70], degrees[71] = 5001, 3 * 2048
    degrees[72:600] = rng.integers(0, 30, 528)
    dst = np.repeat(np.arange(n), degrees)
    src = np.where(rng.random(dst.size) < 0.3, rng.integers(0, 72, dst.size), rng.integers(0, n, dst.size))
    return Graph.from_edges(src, dst, num_nodes=n)


def make(
    g: Graph, fanouts: Any, strategy: str, limit: int | None, *, table: str | None = None, id_map: str = "auto",
    traced: bool = False, scratch_bytes: int | None = None, expand: str = "frontier", **knobs: Any,
) -> NeighborSampler:  # fmt: skip
    """A sampler of reservoirs whose hubs have more than ``limit`` candidates."""
    sampler = NeighborSampler(
        g, fanouts, pick="reservoir", strategy=strategy, device="cuda", trace=traced, seed=8, expand=expand
    )
    sampler._engine = GpuEngine(
        sampler.graph, sampler.spec, None, strategy, "exact", 5, traced, scratch_bytes, table,
        Knobs(hub_limit=limit, **knobs), id_map,
    )  # fmt: skip
    return sampler


def on_cpu(g: Graph, fanouts: Any, seeds: Any, batch_id: int = 0, expand: str = "frontier") -> Any:
    twin = NeighborSampler(g, fanouts, pick="reservoir", device="cpu", seed=8, expand=expand)
    return twin.sample(seeds, batch_id).canonical()


def listed(sampler: NeighborSampler) -> list[int]:
    """Hubs that each hop of the last launch of `bsp` has listed."""
    (workspace,) = sampler._engine._workspaces.values()
    words = workspace.counters[CTR_HUBS : CTR_HUBS + 2 * sampler.spec.num_hops].get().view(np.uint64)
    return (words >> np.uint64(40)).tolist()


@pytest.mark.parametrize("strategy", SHARING)
@pytest.mark.parametrize("degree", [LIMIT - 1, LIMIT, LIMIT + 1, 4 * LIMIT + 3, 3000])
def test_a_star_at_the_limit_and_the_hub_as_a_seed_twice(strategy, degree):
    g = star(degree)
    for seeds in ([0], [0, 5, 0], [3, 0, 0, 7], [1, 2]):
        sampler = make(g, [5, 3], strategy, LIMIT)
        for batch_id in (0, 9):
            found = sampler.sample(seeds, batch_id).canonical()
            assert found == on_cpu(g, [5, 3], seeds, batch_id), (seeds, batch_id)


def test_a_vertex_of_more_candidates_than_the_limit_is_a_hub():
    for degree, hubs in ((LIMIT - 1, 0), (LIMIT, 0), (LIMIT + 1, 1), (3000, 1)):
        g = star(degree)
        sampler = make(g, [5], "bsp", LIMIT)
        sampler.sample([0])
        assert listed(sampler) == [hubs]
        assert (sampler._engine.sizer.shape(1, 64).hub_cap > 0) == (int(g.in_degrees().max()) > LIMIT)
    sampler = make(star(3000), [5, 2], "bsp", 0)
    sampler.sample([0])
    assert listed(sampler) == [0, 0]


@pytest.mark.parametrize("strategy", SHARING)
@pytest.mark.parametrize("fanout", [1, 7, 32, 33, 65, 300, *map(in_test_all, (2, 3, 4, 16, 63, 64, 100, -1))])
def test_every_fanout(strategy, fanout):
    """Wide ones, too, and where the fanout takes all of a hub."""
    g, seeds = many_hubs(), [*range(80), 650, 71, 3]
    sampler = make(g, [fanout, 2], strategy, LIMIT)
    assert sampler.sample(seeds, 3).canonical() == on_cpu(g, [fanout, 2], seeds, 3)
    if strategy == "bsp":
        of_seeds = g.in_degrees()[np.unique(seeds)]
        hubs = int((of_seeds > max(LIMIT, fanout)).sum()) if fanout > 0 else 0
        assert listed(sampler)[0] == hubs


@pytest.mark.parametrize("expand", ["frontier", in_test_all("new")])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("strategy", [in_test_all("bsp"), "captured"])
def test_every_table_several_mini_batches_and_launches(strategy, table, expand):
    g, rng = many_hubs(), np.random.default_rng(1)
    for fanouts in ([4, 3, 2], [40, 3], [3, 70]):
        sampler = make(g, fanouts, strategy, LIMIT, table=table, expand=expand)
        for first in (0, 20):  # a captured graph is replayed
            batches = [rng.integers(0, g.num_nodes, 50) for _ in range(3)]
            for i, found in enumerate(sampler.sample_many(batches, first)):
                wanted = on_cpu(g, fanouts, batches[i], first + i, expand)
                assert found.canonical() == wanted, (fanouts, first, i)


@pytest.mark.parametrize("id_map", [name for name in id_maps() if name != "in-sampler"])
@pytest.mark.parametrize("strategy", ["block-bsp", "turbo-bsp"])
def test_every_id_map(strategy, id_map):
    g = many_hubs()
    sampler = make(g, [6, 3], strategy, LIMIT, id_map=id_map)
    for batch_id, seeds in enumerate(([0, 71, 0, 40], range(100, 300), range(60))):
        assert sampler.sample(list(seeds), batch_id).canonical() == on_cpu(g, [6, 3], list(seeds), batch_id)


@pytest.mark.parametrize("strategy", SHARING)
def test_limits_and_launch_shapes_change_nothing(strategy):
    g, seeds = many_hubs(), list(range(0, 600, 3))
    wanted = on_cpu(g, [5, 4], seeds, 2)
    for limit in (1, 3, 20, 100, 2048, 10**9):
        for sms, hubs, threads in (
            (1, 1, 32),
            (1, 2, 128),
            (16, 4, 256),
        ):  # a share of many rounds, and of one
            sampler = make(g, [5, 4], strategy, limit, block_threads=threads, delay_ns=200)
            sampler._engine.launcher.sms = sms
            sampler._engine.knobs.blocks_per_sm["hubs"] = hubs
            assert sampler.sample(seeds, 2).canonical() == wanted, (limit, sms, hubs, threads)


@pytest.mark.parametrize("strategy", SHARING)
def test_a_full_list_leaves_hubs_to_their_blocks(strategy):
    g, seeds = many_hubs(), list(range(0, 600, 2))
    for fanouts in ([5, 4], [70]):
        wanted = on_cpu(g, fanouts, seeds, 2)
        for places in (1, 2, 17):
            sampler = make(g, fanouts, strategy, LIMIT)
            engine = sampler._engine
            if strategy in PER_HOP_STRATEGIES:
                engine.per_hop.plan["hub_cap"] = places
            else:
                engine.workspace(1, len(seeds)).plan["hub_cap"] = places
            for _ in range(2):
                assert sampler.sample(seeds, 2).canonical() == wanted, (fanouts, places)


@pytest.mark.parametrize("strategy", SHARING)
def test_a_trace_has_the_hubs_times(strategy):
    g, seeds = many_hubs(), list(range(72))
    batch = make(g, [5, 3], strategy, LIMIT, traced=True).sample(seeds, 1)
    assert batch.canonical() == on_cpu(g, [5, 3], seeds, 1)
    tasks = batch.trace.tasks
    assert len(tasks) == sum(p.frontier.size for p in batch.picks)
    assert (np.asarray(tasks.end_us) >= np.asarray(tasks.start_us)).all()


@pytest.mark.parametrize("strategy", ["block-bsp", "turbo-bsp"])
def test_draws_are_replayed_and_leave_an_empty_list(strategy):
    """A captured sequence of draws holds all that it needs, as benchmarks time it."""
    import cupy

    g = many_hubs().to("cuda")
    spec = make_spec([7], "reservoir", False, False, "frontier", 3)

    def sampler(limit: int) -> PerHopSampler:
        return PerHopSampler(g, spec, None, Launcher(g, spec, strategy, False, Knobs(hub_limit=limit)))

    shared, alone = sampler(LIMIT), sampler(0)
    assert not alone._list
    rows = [cupy.arange(0, 300, dtype=g.indices.dtype), cupy.arange(20, 72, dtype=g.indices.dtype)]
    for coo in (False, True) if strategy == "block-bsp" else (False,):
        works = [shared.prepare(of, 0) for of in rows]
        outs = [
            (
                cupy.empty(w.total, np.int32),
                cupy.empty(w.total, g.indices.dtype),
                cupy.empty(w.total, np.int64),
            )
            for w in works
        ]
        columns = [cupy.empty(w.total, g.indices.dtype) for w in works]

        def draw() -> None:
            for work, out, column in zip(works, outs, columns, strict=True):  # noqa: B023
                shared.launch_draw(work, 0, 5, out, coo_rows=column if coo else None)  # noqa: B023

        (graph,) = capture_all([draw])
        for _ in range(3):
            for arrays in outs:
                for array in arrays:
                    array.fill(-1)
            graph.launch()
            for of, work, out, column in zip(rows, works, outs, columns, strict=True):
                wanted = alone.draw(of, 0, 5)
                assert (out[1] == wanted.neighbors).all() and (out[2] == wanted.positions).all()
                if coo:
                    assert (column.get() == np.repeat(of.get(), work.counts.get())).all()
            counters = shared._list[0].get()
            assert not counters.any()


@pytest.mark.parametrize("strategy", SHARING)
def test_wide_ids(strategy):
    from .test_gpu_parity import with_wide_ids

    g = many_hubs()
    sampler = make(with_wide_ids(g.to("cuda")), [5, 40], strategy, LIMIT)
    seeds = list(range(0, 200, 3))
    assert sampler.sample(seeds, 4).canonical() == on_cpu(g, [5, 40], seeds, 4)


@pytest.mark.parametrize("strategy", SHARING)
def test_scratch_stays_within_the_bound(strategy):
    g, seeds = many_hubs(), list(range(0, 300, 2))
    wanted = on_cpu(g, [5, 4], seeds)
    for scratch in (1 << 20, 1 << 18, 100_000):
        sampler = make(g, [5, 4], strategy, LIMIT, scratch_bytes=scratch)
        assert sampler.sample(seeds).canonical() == wanted
        if strategy not in PER_HOP_STRATEGIES:
            assert 0 < sampler.scratch_bytes <= scratch


def test_who_shares_and_from_which_degree():
    g = star(3000)
    spec = make_spec([5], "reservoir", False, False, "frontier", 0)
    chosen = {name: Launcher(g.to("cuda"), spec, name, False, Knobs()).hub_limit for name in SHARING}
    assert chosen == {"block-bsp": 0, "turbo-bsp": 0, "bsp": 1024, "captured": 1024}
    other = make_spec([5], "floyd", False, False, "frontier", 0)
    for strategy in (*SHARING, "edge-bsp", "persistent", "grid-barrier"):
        asked = Launcher(g.to("cuda"), spec, strategy, False, Knobs(hub_limit=77)).hub_limit
        assert asked == (77 if strategy in SHARING else 0)
        assert Launcher(g.to("cuda"), other, strategy, False, Knobs(hub_limit=77)).hub_limit == 0
