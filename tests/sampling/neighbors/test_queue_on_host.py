"""The queue's kernels, compiled for the host, draw what the CPU twin draws: hubs in chunks, several blocks at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.graph import Graph
from gnnsample_lab.sampling.neighbors.plan import BATCH, COUNTERS, CTR_ROWS, CTR_TAIL, PLAN
from tests.host_gpu.sources import HostKernels

SEED, BATCH_ID, TAG, BLOCKS = 11, 3, 7, 2
_RULES = {"floyd": 0, "reservoir": 1}


class Hop(NamedTuple):
    counts: Any
    starts: Any
    offsets: Any
    vertices: Any
    neighbors: Any
    slots: Any
    trace: Any


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Degrees at the border of a hub (2 048), far above it, zero; parallel edges. Hubs are reached in every hop."""
    rng = np.random.Generator(np.random.PCG64(99))
    n = 2000
    hubs = {1: 2048, 2: 2049, 3: 4096, 4: 4097, 5: 20_000, 6: 30_001, 7: 2047}
    dst = np.concatenate([rng.integers(0, n // 2, 6000), *(np.full(d, v) for v, d in hubs.items())])
    src = rng.integers(0, n, dst.size)
    src[rng.random(dst.size) < 0.2] = 5
    src[rng.random(dst.size) < 0.05] = 6
    return Graph.from_edges(src, dst, num_nodes=n)


def run(
    graph: Graph, seeds: list[int], fanouts: list[int], pick: str, *, team: int, kmax: int, fetch: int, table: int,
    trace: int, folder: Any,
) -> list[dict[int, tuple[int, ...]]]:  # fmt: skip
    """Per hop, the positions that each vertex of the frontier drew, sorted."""
    macros = {"ID_T": "int", "RULE": _RULES[pick], "TABLE_KIND": table, "TRACE": trace, "TEAM": team}
    if kmax:
        macros["KMAX"] = kmax
    kernels = HostKernels("sampling/neighbors/queue/team.cu", "Plan", ("serve_teams",), macros, folder)
    n, edges = graph.num_nodes, graph.num_edges
    kept: list[Any] = []

    def room(count: int, dtype: Any, fill: int = 0) -> Any:
        kept.append(np.full(max(1, count), fill, dtype))
        return kept[-1]

    plan, batch = np.zeros(1, PLAN), np.zeros(1, BATCH)
    indptr, indices = (
        np.ascontiguousarray(graph.indptr, np.int64),
        np.ascontiguousarray(graph.indices, np.int32),
    )
    batch["batch_id"], batch["base"], batch["tag"] = BATCH_ID, 5, TAG
    counters = room(COUNTERS, np.uint32)
    queue_cap = len(fanouts) * (n + 2 * edges // 2048)
    queue, enqueued = room(queue_cap, np.uint64), room(queue_cap, np.uint64)
    queue[: len(seeds)] = [TAG << 48 | v for v in seeds]
    counters[CTR_TAIL] = counters[CTR_TAIL + 1] = len(seeds)
    for name, value in {
        "indptr": indptr.ctypes.data, "indices": indices.ctypes.data, "num_nodes": n, "seed": SEED,
        "batches": batch.ctypes.data, "counters": counters.ctypes.data, "num_hops": len(fanouts),
        "fetch_size": fetch, "self_reuse": 1, "queue": queue.ctypes.data, "queue_cap": queue_cap,
        "enqueued": enqueued.ctypes.data if trace else 0,
    }.items():  # fmt: skip
        plan[name] = value
    hops = []
    for h, fanout in enumerate(fanouts):
        stride = fanout if fanout <= 64 else 0
        picks = n * stride if stride else edges
        hop = Hop(
            room(n, np.int32, -9), room(n, np.int64), room(n, np.int64), room(n, np.int32), room(picks, np.int32),
            room(picks, np.int32), room(4 * n, np.uint64),
        )  # fmt: skip
        hops.append((stride, hop))
        entry = plan["hops"][0, h]
        entry["fanout"], entry["stride"], entry["row_cap"], entry["pick_cap"] = fanout, stride, n, picks
        for name, array in hop._asdict().items():
            entry[name] = array.ctypes.data
        if h:
            reached = plan["reached"][0, h]
            reached["stride"] = (n, -(-n // 32), 8192)[table]
            reached["words"] = room(int(reached["stride"]), np.uint32).ctypes.data
            reached["keys"] = room(int(reached["stride"]), np.uint64).ctypes.data
    kernels.launch("serve_teams", plan, BLOCKS, 128, seed=fetch)
    assert counters[0] == 0 and counters[CTR_TAIL + 1] == 0  # no error, nothing outstanding
    assert (queue[: counters[CTR_TAIL]] >> np.uint64(63)).all()  # every task is done
    found = []
    for h, (stride, hop) in enumerate(hops):
        drawn: dict[int, tuple[int, ...]] = {}
        for row in range(int(counters[CTR_ROWS + h])):
            vertex, count = int(hop.vertices[row]), int(hop.counts[row])
            at = row * stride if stride else int(hop.offsets[row])
            positions = hop.slots[at : at + count]
            assert hop.starts[row] == indptr[vertex] and vertex not in drawn
            assert (indices[hop.starts[row] + positions] == hop.neighbors[at : at + count]).all()
            if trace:
                assert 0 < hop.trace[4 * row + 1] <= hop.trace[4 * row + 2]
            drawn[vertex] = tuple(sorted(positions.tolist()))
        found.append(drawn)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("team", "kmax", "fetch", "table", "trace", "pick", "fanouts"),
    [
        (1, 8, 32, 0, 0, "reservoir", [4, 8, 3]),
        (4, 8, 32, 1, 0, "reservoir", [4, 8, 3]),
        (4, 8, 1, 1, 0, "reservoir", [4, 8]),
        (4, 0, 20, 0, 1, "reservoir", [100, 2]),
        (1, 0, 32, 2, 0, "reservoir", [70, 40]),
        (4, 8, 32, 2, 1, "reservoir", [1, 8]),
        (4, 16, 20, 2, 0, "floyd", [10, 5]),
    ],
)
def test_teams_draw_the_sample(graph, tmp_path, team, kmax, fetch, table, trace, pick, fanouts):
    seeds = [*range(10), 999, 1999, 500, 501]
    found = run(
        graph,
        seeds,
        fanouts,
        pick,
        team=team,
        kmax=kmax,
        fetch=fetch,
        table=table,
        trace=trace,
        folder=tmp_path,
    )
    sampler = lab.NeighborSampler(graph, fanouts, pick=pick, seed=SEED, device="cpu")
    for drawn, picks in zip(found, sampler.sample(np.array(seeds), BATCH_ID).picks, strict=True):
        wanted = {
            int(v): tuple(sorted((picks.positions[a:b] - graph.indptr[v]).tolist()))
            for v, a, b in zip(picks.frontier, picks.offsets, picks.offsets[1:], strict=False)
        }
        assert drawn == wanted


@pytest.mark.slow
@pytest.mark.parametrize(("fanout", "kmax"), [(7, 8), (32, 32)])
def test_a_hop_draws_the_reservoirs_of_its_rows(graph, tmp_path, fanout, kmax):
    macros = {"ID_T": "int", "RULE": 1, "TABLE_KIND": 1, "TRACE": 0, "KMAX": kmax, "LISTS": 0}
    source = "sampling/neighbors/hops/hop.cu"
    kernels = HostKernels(source, "Plan", ("hop",), macros, tmp_path, call="hop(*a, 0)")
    n, rows = graph.num_nodes, np.random.Generator(np.random.PCG64(3)).permutation(graph.num_nodes)[:700]
    rows[:9] = np.arange(9)
    rows = np.unique(rows)
    plan, batch = np.zeros(1, PLAN), np.zeros(1, BATCH)
    indptr, indices = (
        np.ascontiguousarray(graph.indptr, np.int64),
        np.ascontiguousarray(graph.indices, np.int32),
    )
    batch["batch_id"], batch["base"] = BATCH_ID, 1
    counters, nodes = np.zeros(COUNTERS, np.uint32), np.zeros(n, np.int32)
    counters[1], nodes[: rows.size] = rows.size, rows
    counts, starts = np.full(n, -9, np.int32), np.zeros(n, np.int64)
    neighbors, slots = np.zeros(n * fanout, np.int32), np.zeros(n * fanout, np.int32)
    words = np.zeros(-(-n // 32), np.uint32)
    for name, value in {
        "indptr": indptr.ctypes.data, "indices": indices.ctypes.data, "num_nodes": n, "seed": SEED,
        "batches": batch.ctypes.data, "counters": counters.ctypes.data, "num_hops": 1, "relabel_last": 0,
        "nodes": nodes.ctypes.data, "node_cap": n,
    }.items():  # fmt: skip
        plan[name] = value
    plan["table"]["words"], plan["table"]["stride"] = words.ctypes.data, words.size
    entry = plan["hops"][0, 0]
    entry["fanout"], entry["stride"], entry["row_cap"], entry["pick_cap"] = fanout, fanout, n, n * fanout
    for name, array in {"counts": counts, "starts": starts, "neighbors": neighbors, "slots": slots}.items():
        entry[name] = array.ctypes.data
    kernels.launch("hop", plan, BLOCKS, 256)
    sampler = lab.NeighborSampler(graph, [fanout], pick="reservoir", seed=SEED, device="cpu")
    picks = sampler.sample(rows, BATCH_ID).picks[0]
    assert counters[0] == 0 and np.array_equal(picks.frontier, rows)
    for row, v in enumerate(rows.tolist()):
        wanted = np.sort(picks.positions[picks.offsets[row] : picks.offsets[row + 1]] - graph.indptr[v])
        assert np.array_equal(np.sort(slots[row * fanout : row * fanout + counts[row]]), wanted)
