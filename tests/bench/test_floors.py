"""The floors: their bounds against brute force, what a rotation touches, and (on a GPU) that they replay the sample."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnsample_lab import Graph, NeighborSampler
from gnnsample_lab.bench.floors import bound, floor
from gnnsample_lab.bench.floors.bound import Touched
from gnnsample_lab.device.kernels import PACKAGE_ROOT
from tests.conftest import absent

FANOUTS = (4, 3, 2)


@functools.cache
def small(seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, 300, 2500), rng.integers(0, 300, 2500) * rng.integers(0, 300, 2500) // 300
    return Graph.from_edges(src, dst, 300, name="small")


def samples(graph: Graph, count: int, seeds: int = 6, fanouts: tuple[int, ...] = FANOUTS) -> floor.Recordings:
    """Mini-batches of random seeds on the CPU."""
    rng = np.random.default_rng(seeds)
    sampler, union = NeighborSampler(graph, list(fanouts), device="cpu"), floor.Sectors(graph)
    found = floor.Recordings()
    for i in range(count):
        found.append(floor.record(graph, fanouts, rng.integers(0, graph.num_nodes, seeds), i, sampler, union))
        found.union.append(union.count)
    return found


def reads(graph: Graph, one: floor.Recorded) -> list[list[tuple[str, int]]]:
    """The sectors that a mini-batch reads, access by access, a list for each hop."""
    found = []
    for rows, slots in zip(one.frontiers, one.positions, strict=True):
        accesses = []
        for v, places in zip(rows.tolist(), slots.tolist(), strict=True):
            accesses += [("indptr", 8 * v // 32), ("indptr", 8 * (v + 1) // 32)]
            begin = int(graph.indptr[v])
            size = graph.indices.dtype.itemsize
            accesses += [("indices", (begin + at) * size // 32) for at in places if at >= 0]
        found.append(accesses)
    return found


def test_sectors_are_those_of_a_count_by_hand() -> None:
    graph, recorded = small(), samples(small(), 5)
    together: set[tuple[str, int]] = set()
    for one, union in zip(recorded, recorded.union, strict=True):
        hops = [set(hop) for hop in reads(graph, one)]
        assert one.touched.hop_sectors == tuple(map(len, hops))
        assert one.touched.sectors == len(set.union(*hops)) < sum(map(len, hops)), "hops share rows"
        together |= set.union(*hops)
        assert union == len(together)
        picks = sum(int((slots >= 0).sum()) for slots in one.positions)
        rows = sum(len(rows) for rows in one.frontiers)
        assert one.num_picks == picks
        assert one.touched.written_bytes == picks * (graph.indices.dtype.itemsize + 4) + 4 * rows
    assert recorded.touched_bytes == 32 * len(together)


def fetched(accesses: list[Any], cache: int, held: list[Any]) -> tuple[int, list[Any]]:
    """Fewest fetches for ``accesses`` with room for ``cache`` sectors, which holds ``held`` at first.

    Belady's rule: what is needed last, or never again, leaves, and that may be the sector that comes. No other rule
    fetches less. Also returns what the cache holds in the end.
    """
    uses: dict[Any, list[int]] = {}
    for at, sector in enumerate(accesses):
        uses.setdefault(sector, []).append(at)

    def next_use(sector: Any, now: int) -> float:
        return next((at for at in uses.get(sector, ()) if at > now), float("inf"))

    inside, count = set(held[:cache]), 0
    for now, sector in enumerate(accesses):
        if sector in inside:
            continue
        count += 1
        inside.add(sector)
        if len(inside) > cache:
            inside.remove(max(inside, key=lambda s: next_use(s, now)))
    return count, sorted(inside)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cache", [0, 1, 7, 30, 60, 120, 200, 1000])
def test_no_cache_of_that_size_fetches_less_than_the_bound(cache: int, seed: int) -> None:
    graph = small(seed)
    recorded = samples(graph, 4, 6 + seed)
    accesses = [sector for one in recorded for hop in reads(graph, one) for sector in hop]
    # The second of two passes, as it is timed: the cache holds what the first has left, here the best that it could.
    _, held = fetched(accesses + accesses, cache, [])
    least = min(fetched(accesses, cache, held)[0], fetched(accesses, cache, sorted(set(accesses))[:cache])[0])
    unwritten = [Touched(one.touched.hop_sectors, one.touched.sectors, 0) for one in recorded]
    for counted in (bound.moved_in_order, bound.moved_together):
        assert counted(unwritten, recorded.union[-1], 32 * cache) <= 32 * least
    if cache == 0:
        hops = sum(hop for one in recorded for hop in one.touched.hop_sectors)
        assert bound.moved_in_order(unwritten, recorded.union[-1], 0) == 32 * hops
    if cache >= recorded.union[-1]:
        assert bound.moved_in_order(unwritten, recorded.union[-1], 32 * cache) == 0


def test_rows_of_later_hops_count_once_where_the_cache_holds_a_batch() -> None:
    """Each hop reads the 100 sectors of the hop before, and 100 more."""
    batches = [Touched((100, 200, 300), 300, 0)] * 4
    assert bound.moved_in_order(batches, 1200, 32 * 300) == 32 * 900, "once, less what the cache held"
    assert bound.moved_in_order(batches, 1200, 32 * 10) == 32 * 4 * (90 + 190 + 290), (
        "a small cache holds no hop"
    )
    assert bound.moved_together(batches, 1200, 32 * 300) == 32 * 900
    assert bound.moved_in_order(batches, 300, 32 * 300) == 0, (
        "batches that read the same, and the cache holds it"
    )


def test_written_bytes_leave_the_cache_only_where_it_cannot_hold_them() -> None:
    batches = [Touched((1,), 1, 5000), Touched((1,), 1, 3000)]
    assert bound.moved_in_order(batches, 2, 4000) == 1000, "buffers are reused: the second batch fits"
    assert bound.moved_together(batches, 2, 4000) == 4000, "all results are kept"


def test_the_bound_of_a_run_is_per_batch_and_never_less_than_its_chain() -> None:
    recorded = samples(small(), 4)
    constants = {"l2_latency_ns": 100.0, "read_gbps": 1e-3}
    found = floor.bounds_us(recorded, constants, 640)
    touched = [one.touched for one in recorded]
    assert found["latency"] == pytest.approx(bound.moved_in_order(touched, recorded.union[-1], 640) / 4)
    assert found["throughput"] == pytest.approx(bound.moved_together(touched, recorded.union[-1], 640) / 4)
    assert floor.bounds_us(recorded, {**constants, "read_gbps": 1e9}, 640)["latency"] == pytest.approx(
        9 * 0.1
    )


def test_blocks_have_whole_warps_where_they_fit() -> None:
    for k in range(1, 1025):
        rows = floor.rows_of_block(k)
        assert 0 < k * rows <= 1024
        assert k * rows % 32 == 0 or k > 16, k
    for k in (0, 1025):
        with pytest.raises(ValueError, match="fanouts of 1 to 1024"):
            floor.rows_of_block(k)


_HOST = """
#include <algorithm>
#define __device__
#define __forceinline__ inline
#define ID_T int
#define UNROLL 4
using std::min;
struct Dim { unsigned x, y; };
static Dim gridDim, blockDim, blockIdx, threadIdx;
template <class T> T __ldg(const T* at) { return *at; }
template <class T> T __ldcs(const T* at) { return *at; }
#include "replay.cuh"
extern "C" void replay(unsigned grid, unsigned wide, unsigned high, const int* frontier, unsigned rows, unsigned k,
                       const i64* indptr, const int* indices, const int* recorded, int* neighbors, int* positions,
                       int* counts) {
    gridDim = {grid, 1};
    blockDim = {wide, high};
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x)
        for (threadIdx.y = 0; threadIdx.y < high; ++threadIdx.y)
            for (threadIdx.x = 0; threadIdx.x < wide; ++threadIdx.x)
                lab_replay(frontier, rows, k, indptr, indices, recorded, neighbors, positions, counts);
}
"""


@pytest.fixture(scope="module")
def replayed_on_the_host(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The floor's kernel, thread after thread."""
    compiler = shutil.which("g++")
    if compiler is None:
        absent("THE FLOOR WAS NOT COMPILED FOR THE HOST: install g++")
    folder = tmp_path_factory.mktemp("replay")
    shutil.copy(PACKAGE_ROOT / "bench/floors/replay.cuh", folder / "replay.cuh")
    (folder / "replay.cpp").write_text(_HOST)
    flags = ["-std=c++17", "-O1", "-fwrapv", "-shared", "-fPIC"]
    subprocess.run(
        [compiler, *flags, str(folder / "replay.cpp"), "-o", str(folder / "replay.so")], check=True
    )
    return ctypes.CDLL(str(folder / "replay.so"))


@pytest.mark.parametrize("grid", [1, 3, 40])
@pytest.mark.parametrize("wider", [0, 5], ids=["columns of the fanout", "more columns than picks"])
def test_the_floor_reads_and_writes_the_recorded_sample(replayed_on_the_host, grid: int, wider: int) -> None:
    graph = small()
    (one,) = samples(graph, 1, 40)
    assert (one.positions[0] < 0).any(), "some rows have fewer picks"
    total = 0
    for rows, slots in zip(one.frontiers, one.positions, strict=True):
        n, k = slots.shape
        neighbors, positions, counts = (np.full(size, -7, np.int32) for size in (n * k, n * k, n))
        at = [ctypes.c_void_p(array.ctypes.data) for array in (graph.indptr, graph.indices, slots)]
        out = [ctypes.c_void_p(array.ctypes.data) for array in (neighbors, positions, counts)]
        frontier = ctypes.c_void_p(rows.ctypes.data)
        replayed_on_the_host.replay(grid, k + wider, floor.rows_of_block(k) // 8, frontier, n, k, *at, *out)
        valid = (slots >= 0).ravel()
        assert np.array_equal(positions, np.where(valid, slots.ravel(), -7)), "and nothing else is written"
        edges = (graph.indptr[rows][:, None] + slots).ravel()
        assert np.array_equal(neighbors, np.where(valid, graph.indices[np.where(valid, edges, 0)], -7))
        assert np.array_equal(counts, np.minimum(graph.in_degrees()[rows], k))
        total += int(neighbors[valid].sum()) + int(positions[valid].sum())
    assert total == floor.checksum_of(graph, [one])


@pytest.fixture
def on_the_host(replayed_on_the_host, monkeypatch) -> list[tuple[int, ...]]:
    """NumPy in CuPy's place and the host's floor in the kernel's; collects grids and shapes of blocks."""
    launches: list[tuple[int, ...]] = []

    def kernel(grid: tuple[int], block: tuple[int, int], args: tuple[Any, ...]) -> None:
        launches.append((*grid, *block))
        at = [ctypes.c_void_p(x.ctypes.data) if x.shape else ctypes.c_uint(int(x)) for x in args]
        replayed_on_the_host.replay(*grid, *block, *at)

    arrays = {name: getattr(np, name) for name in ("full", "concatenate", "asarray", "zeros", "empty")}
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(**arrays))
    module = SimpleNamespace(get_function=lambda name: kernel)
    monkeypatch.setattr(floor.kernels, "load_module", lambda source, macros: module)
    monkeypatch.setattr(floor.runtime, "num_sms", lambda: 2)
    return launches


@pytest.mark.parametrize("fanouts", [(4, 4, 4), (4, 3, 4), (40,)], ids=str)
def test_a_replay_covers_all_hops_of_all_batches_in_turn_and_together(on_the_host, fanouts) -> None:
    graph = small()
    recorded = samples(graph, 3, 9, fanouts)
    replay = floor.Replay(graph, recorded)
    for way, launch, expected, count in (
        ("in turn", replay.in_turn, recorded[-1:], 3 * len(fanouts)),
        ("together", replay.together, recorded, len(set(fanouts))),
    ):
        for blocks in (0, 1):
            on_the_host.clear()
            replay.forget()
            assert replay.check(way) is not None, "nothing is written yet"
            launch(4, blocks)
            assert len(on_the_host) == count
            assert all(grid <= 2 for grid, *_ in on_the_host) or not blocks
            assert replay.check(way) is None
            assert replay.checksum(way) == floor.checksum_of(graph, expected)
    neighbors = replay.merged[0].out[0]
    neighbors[np.flatnonzero(replay.merged[0].positions.ravel() >= 0)[5]] += 1
    assert replay.check("together") == "neighbors of part 0, replayed together, differ from the recording"


def test_one_mini_batch_of_a_launch_that_overflows_is_seen_in_the_last_ones_counters() -> None:
    from gnnsample_lab.bench.floors.candidates import Rotation
    from gnnsample_lab.sampling.neighbors.plan import COUNTERS

    words = np.arange(3 * COUNTERS, dtype=np.uint32)
    words[::COUNTERS] = 0, 1, 0
    launch: Any = SimpleNamespace(ws=SimpleNamespace(counters=SimpleNamespace(get=lambda: words)))
    found = Rotation.counters(launch)
    assert found[0] == 1 and found[1] == 2 * COUNTERS + 1 and len(found) == COUNTERS


@pytest.mark.gpu
@pytest.mark.parametrize("fanouts", [(10, 10, 10), (5, 3, 33), (4,)], ids=str)
@pytest.mark.parametrize("wide", [False, True], ids=["32-bit", "64-bit"])
def test_floors_read_and_write_every_entry_of_the_recorded_sample(fanouts, wide) -> None:
    from gnnsample_lab.bench.configurations import test_graph as graph_named
    from tests.sampling.neighbors.test_gpu_parity import with_wide_ids

    graph = graph_named("hubs").to("cuda")
    if wide:
        graph = with_wide_ids(graph)
    sampler = NeighborSampler(graph, list(fanouts), device="cuda")
    rng = np.random.default_rng(0)
    recorded = [
        floor.record(graph, fanouts, rng.integers(0, graph.num_nodes, 200), i, sampler) for i in range(3)
    ]
    replay = floor.Replay(graph, recorded)
    last, every = floor.checksum_of(graph, recorded[-1:]), floor.checksum_of(graph, recorded)
    for way, launch, blocks, expected in (
        ("in turn", replay.in_turn, (1, 4, 0), last), ("by barrier", replay.by_barrier, (1, 2), last),
        ("together", replay.together, (1, 8, 0), every),
    ):  # fmt: skip
        for unroll in floor.UNROLLS:
            for each in blocks:
                replay.forget()
                assert replay.check(way) is not None, "nothing is written yet"
                replay.prepare()
                launch(unroll, each)
                assert replay.check(way) is None, (way, unroll, each)
                assert replay.checksum(way) == expected, (way, unroll, each)


@pytest.mark.gpu
@pytest.mark.parametrize("together", [1, 4])
@pytest.mark.parametrize("strategy", ["captured", "grid-barrier", "persistent-tile"])
def test_what_is_timed_beside_the_floors_is_the_recorded_sample(strategy, together, monkeypatch) -> None:
    from gnnsample_lab.bench.session import Session
    from tests.bench.test_verify import _scaled

    session = Session(quick=True)
    monkeypatch.setattr("gnnsample_lab.bench.session.load", functools.partial(_scaled, scale=0.02))
    if together == 1:
        found = session.kernel_us("rmat", 64, (5, 4), strategy, "floyd", chained=True)
    else:
        found = session.together_us("rmat", 64, (5, 4), strategy, "floyd", [together])
    assert 0 < found["p10_us"] <= found["us"] <= found["p90_us"] and found["passes"] >= 5
    assert all(isinstance(us, float) for us in found["sweep"].values()), found["sweep"]


@pytest.mark.gpu
def test_the_suite_runs_and_no_floor_is_below_its_bound(monkeypatch) -> None:
    from gnnsample_lab.bench import runner
    from gnnsample_lab.bench.floors import sampling_floor

    monkeypatch.setattr(sampling_floor, "pairs", lambda quick: [(256, 10)])
    monkeypatch.setattr(sampling_floor, "LADDER", ("captured",))
    monkeypatch.setattr(sampling_floor, "DRAWS_ALONE", ("block-bsp",))
    monkeypatch.setattr(sampling_floor, "TOGETHER", ("captured",))
    record = runner.run("sampling-floor", quick=True, graphs=["rmat@0.1"])
    assert {row["what"].split(",")[0] for row in record["rows"]} == {"latency", "throughput", "host"}
    for row in record["rows"]:
        assert row["p10_us"] <= row["us"] <= row["p90_us"] and row["passes"] >= 5 and row["l2"]
        if "ratio" in row:
            assert row["bound_us"] <= row["floor_p10_us"]
        else:
            assert row["gpu_us"] > 0, "PyTorch's profiler sees the kernels"
