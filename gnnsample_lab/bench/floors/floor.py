"""The replay floor and the computed bound: how fast any sampler could return a given sample on this GPU."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.bench.timing import capture_all, replay_us
from gnnsample_lab.device import kernels, runtime

BLOCKS_PER_SM = (1, 2, 4, 6, 8, 16, 0)
"""The committed sweep of the floor's grid: resident blocks per multiprocessor; 0 for a thread per pick."""
UNROLLS = (1, 2, 4, 8)
_THREADS = 256


@dataclass(frozen=True)
class Recorded:
    """One batch's sample as the floor replays it: per hop the frontier and positions, ``int32[n, k]``, -1 for none."""

    frontiers: list[Any]
    positions: list[Any]
    fanouts: tuple[int, ...]
    num_rows: int
    num_picks: int
    distinct_sectors: int

    @property
    def touched_bytes(self) -> int:
        return 32 * self.distinct_sectors


def record(graph: Any, fanouts: list[int], seeds: Any, batch_id: int, sampler: Any) -> Recorded:
    """Sample once by ``sampler``, whose fanouts are ``fanouts``; keep every hop's frontier and positions on the GPU."""
    import cupy

    batch = sampler.sample(seeds, batch_id)
    frontiers, positions = [], []
    sectors = 0
    id_bytes = graph.indices.dtype.itemsize
    for picks, k in zip(batch.picks, fanouts, strict=True):
        slots = cupy.full((picks.frontier.size, k), -1, np.int32)
        pick = cupy.arange(picks.num_picks)
        row = cupy.searchsorted(picks.offsets[1:], pick, side="right")
        column = pick - picks.offsets[:-1][row]
        slots[row, column] = (picks.positions - graph.indptr[picks.frontier][row]).astype(np.int32)
        frontiers.append(picks.frontier.copy())
        positions.append(slots)
        sectors += int(cupy.unique(picks.positions * id_bytes // 32).size)
        sectors += int(cupy.unique(picks.frontier.astype(np.int64) * 8 // 32).size)
    rows = sum(int(f.size) for f in frontiers)
    return Recorded(frontiers, positions, tuple(fanouts), rows, batch.num_edges, sectors)


def replay_floor(graph: Any, recorded: list[Recorded]) -> dict[str, Any]:
    """Best time of the replay kernel over the committed sweep.

    Returns:
        ``us`` of the best, and ``sweep``: (blocks per SM, unroll) -> us.
    """
    import cupy

    id_type = "int" if graph.indices.dtype.itemsize == 4 else "long"
    most = max(max(p.size for p in r.positions) for r in recorded)
    most_rows = max(max(f.size for f in r.frontiers) for r in recorded)
    neighbors, positions = cupy.empty(most, graph.indices.dtype), cupy.empty(most, np.int32)
    counts = cupy.empty(most_rows, np.int32)
    times: dict[str, float] = {}
    for unroll in UNROLLS:
        module = kernels.load_module("bench/floors/floor.cu", {"ID_T": id_type, "UNROLL": unroll})
        kernel = module.get_function("replay")
        for blocks in BLOCKS_PER_SM:

            def work(one: Recorded, kernel: Any = kernel, blocks: int = blocks, unroll: int = unroll) -> None:
                for frontier, slots, k in zip(one.frontiers, one.positions, one.fanouts, strict=True):
                    need = -(-slots.size // (_THREADS * unroll))
                    grid = min(need, blocks * runtime.num_sms()) if blocks else need
                    args = (frontier, np.uint64(frontier.size), np.int32(k), graph.indptr, graph.indices, slots,
                            neighbors, positions, counts)  # fmt: skip
                    kernel((max(1, grid),), (_THREADS,), args)

            graphs = capture_all([functools.partial(work, one) for one in recorded])
            times[f"{blocks}x{unroll}"] = replay_us(graphs, passes=3)
    best = min(times, key=times.__getitem__)
    return {"us": times[best], "best": best, "sweep": times}


def machine_constants() -> dict[str, float]:
    """Latency of dependent accesses and rate of random sectors, from microbenchmarks on this GPU.

    Returns:
        ``dram_latency_ns``, ``l2_latency_ns``, ``random_sector_gbps`` (32 bytes counted per access).
    """
    import cupy

    module = kernels.load_module("bench/floors/floor.cu", {"ID_T": "int", "UNROLL": 8})
    out = cupy.zeros(1, np.uint32)

    def latency_ns(num_bytes: int) -> float:
        stride = 64  # words: every step lands in a line of its own
        n = num_bytes // (4 * stride)
        order = np.random.Generator(np.random.PCG64(0)).permutation(n - 1) + 1
        following = np.zeros(n, np.uint32)
        path = np.concatenate([[0], order])
        following[path] = np.roll(path, -1) * stride
        chain = cupy.zeros(n * stride, np.uint32)
        chain[::stride] = cupy.asarray(following)
        out.fill(0)
        steps = 10_000
        graphs = capture_all(
            [lambda: module.get_function("chase")((1,), (1,), (chain, np.uint32(steps), out))]
        )
        return replay_us(graphs, passes=3) * 1e3 / steps

    dram, l2 = latency_ns(1 << 30), latency_ns(1 << 23)
    data = cupy.zeros(1 << 29, np.uint32)  # 2 GiB
    n = 1 << 24
    where = (cupy.random.default_rng(0).integers(0, data.size // 8, n, dtype=np.uint32) * 8).astype(np.uint32)
    grid = 16 * runtime.num_sms()
    graphs = capture_all(
        [lambda: module.get_function("gather")((grid,), (256,), (data, where, np.uint64(n), out))]
    )
    gather_us = replay_us(graphs, passes=3)
    return {"dram_latency_ns": dram, "l2_latency_ns": l2, "random_sector_gbps": n * 32 / gather_us / 1e3}


def computed_bound_us(recorded: list[Recorded], constants: dict[str, float]) -> float:
    """Larger of the chain of dependent accesses (vertex, indptr, neighbour per hop) and the distinct sectors' time."""
    hops = len(recorded[0].fanouts)
    latency_us = hops * (2 * constants["dram_latency_ns"] + constants["l2_latency_ns"]) / 1e3
    sectors = float(np.mean([r.distinct_sectors for r in recorded]))
    return max(latency_us, sectors * 32 / constants["random_sector_gbps"] / 1e3)
