"""From seeds to what a model reads: sampled, as blocks, as tensors, as PyG's ``Data``, alone and several in a call.

"mini-batch": each call alone, the GPU idle before and done after it, an average mini-batch of the call. "loader": wall
time of a batch of ``pyg.NeighborLoader`` over an epoch in which nothing is done to its batches.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.floors import bound, floor
from gnnsample_lab.bench.host_speed import launch_times
from gnnsample_lab.bench.quick_core import quick_pass
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites.fastgl import training
from gnnsample_lab.device import runtime
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.features.caching.cache import FeatureCache
from gnnsample_lab.minibatch.gpu.run import copy_bandwidth_gbps
from gnnsample_lab.minibatch.sampler import NeighborSampler

GRAPH, LOADED = "rmat", ("arxiv-like", "products-like")
CASES = ((1024, (10, 10, 10), 32), (256, (10, 10, 10), 32), (8192, (15, 15, 15), 8))
"""Seeds, fanouts, and mini-batches of a call with several."""
SETTLING = 32
"""Calls until the sampler has chosen how many mini-batches share a launch, and how much memory each gets."""
PICK = "floyd"
LOADER_SEEDS, LOADER_BATCHES, LOADER_EPOCHS = 1024, 160, 7
LOADER_SETTLING = 6
"""Epochs in which the sampler measures how many mini-batches share a launch, and starts none ahead until it knows."""

Stage = Callable[[Any], Any]
STAGES: dict[str, tuple[str, Stage]] = {
    "sampled": ("new", lambda batch: batch),
    "blocks": ("new", lambda batch: batch.blocks),
    "arrays of blocks": ("new", lambda batch: [(b.indptr, b.indices) for b in batch.blocks]),
    "blocks, frontier": ("frontier", lambda batch: batch.blocks),
    "to_torch": ("frontier", lambda batch: batch.to_torch()),
    "to_torch, read": ("frontier", lambda batch: _read(batch.to_torch())),
    "to_torch with x": ("frontier", lambda batch: _with_x(batch.to_torch())),
    "to_torch, extracted": ("frontier", lambda batch: batch.to_torch()),
    "to_pyg": ("new", lambda batch: batch.to_pyg()),
    "to_pyg with x": ("new", lambda batch: batch.to_pyg()),
}
"""Name -> the sampler's ``expand``, and what is done with a mini-batch. Blocks and tensors are made when they are read:
"arrays of blocks" and "read" do so with all that a model needs. "with x": rows of the graph's features, too.
"extracted": rows by a cache that holds all of them."""
FEATURES = 100


def _with_x(tensors: Any) -> Any:
    return tensors, tensors.x


def _read(tensors: Any) -> Any:
    return tensors.node_ids, tensors.seeds, [block.edge_index for block in tensors.blocks]


def ready(session: Session) -> dict[str, Any]:
    """The suite's function."""
    session.require_gpu("path")
    training.require_torch(session)
    rows: list[dict[str, Any]] = []
    checked, host_us = 0, statistics.median(launch_times())
    constants = session.constants = session.constants or floor.machine_constants()
    for size, fanouts, together in CASES[:1] if session.quick else CASES:
        case = functools.partial(_case, session, size, fanouts, together, host_us, constants["l2_latency_ns"])
        found = session.piece((size, fanouts), case)
        rows += found["rows"]
        checked += found["checked"]
    names = LOADED[:1] if session.quick else LOADED
    for name in names:
        for with_x in (False, True):
            loader = functools.partial(
                _loader_row, session, name, with_x, host_us, constants["l2_latency_ns"]
            )
            rows.append(session.piece((name, with_x), loader))
    return {
        "settings": {
            "us": "wall time of a mini-batch: of a call, over the mini-batches of the call",
            "busy_us": "time in which kernels or copies run, by the profiler",
            "bound_us": "a sector for each vertex and pick that is read, and the bytes of all results, at the speed "
            "of a copy on the device",
            "latency_us": "the dependent accesses of all hops, vertex, bounds and neighbour in each, where a cache "
            "serves them; host_us: to launch a CUDA graph of one kernel that reads 16 bytes, and to wait for it; both "
            "of a call, over its mini-batches. Of the loader, which samples ahead: of a launch, over the mini-batches "
            "that share it",
            "constants": constants,
            "x_over_bound": f"what {FEATURES} features take beyond the row without them, over reading and writing "
            "their rows at the speed of a copy; below 1 where they are moved while the host is what is waited for",
            "l2": "never flushed: a call finds what the one before left. Of mini-batches, which take turns: what all "
            "of them read of the graph, counted once, fits the L2 (warm), is up to 4 times as much (partly warm) or "
            "more (cold); what is written, and features, are not counted. Loader: as the epoch leaves it",
            "loader": f"fanouts {list(common.FANOUTS)}, {LOADER_SEEDS} seeds, shuffled, all features cached",
        },
        "verification": {"exports_equal_to_blocks": checked},
        "graphs": {**session.facts([GRAPH]), **common.facts(session, names)}, "rows": rows,
    }  # fmt: skip


def _case(
    session: Session, size: int, fanouts: tuple[int, ...], together: int, host_us: float, l2_latency_ns: float
) -> dict[str, Any]:
    """``rows`` of all stages of mini-batches of one kind, and how many exports were ``checked``."""
    graph = session.graph(GRAPH)
    seeds = session.batches(GRAPH, size, 8 if session.quick else 64)
    l2 = session.l2_state(GRAPH, size, fanouts, PICK, len(seeds))
    checked, rows = _verify(graph, seeds, fanouts), list[dict[str, Any]]()
    for stage in STAGES:
        for count in (1, together):
            # What a call waits for by itself is shared by its mini-batches.
            least = {
                "latency_us": bound.chain_us(len(fanouts), l2_latency_ns) / count, "host_us": host_us / count,
            }  # fmt: skip
            rows.append(_row(session, graph, seeds, fanouts, stage, count) | {"l2": l2, **least})
            if stage.endswith(" with x"):
                _beside_without_x(rows)
    return {"rows": rows, "checked": checked}


def _sampler(graph: Any, fanouts: tuple[int, ...], stage: str) -> NeighborSampler:
    if stage.endswith((" with x", ", extracted")):
        import cupy

        x = cupy.arange(graph.num_nodes * FEATURES, dtype=np.float32).reshape(-1, FEATURES)
        graph = replace(graph, feat=x, validate=False)
    return NeighborSampler(
        graph, fanouts, strategy="captured", pick=PICK, expand=STAGES[stage][0], device="cuda"
    )


def _verify(graph: Any, seeds: list[Any], fanouts: tuple[int, ...]) -> int:
    """What is exported are the edges of the blocks, and mini-batches of a call are those sampled alone."""
    for stage in ("to_torch", "to_pyg"):
        sampler = _sampler(graph, fanouts, stage)
        for i in range(3):  # the first export tells the sampler what the next are to hold
            batch = sampler.sample(seeds[i], i)
            made = STAGES[stage][1](batch)
            block = batch.blocks[0]
            edges = (made.blocks[0] if stage == "to_torch" else made).edge_index
            rows = np.repeat(np.arange(block.num_dst), np.diff(to_host(block.indptr)))
            found = to_host(edges)
            if not (np.array_equal(found[0], to_host(block.indices)) and np.array_equal(found[1], rows)):
                raise VerificationError(f"{stage}: edges differ from those of the block")
    for stage in ("to_torch with x", "to_pyg with x"):
        with_x = _sampler(graph, fanouts, stage)
        for i in range(3):
            batch = with_x.sample(seeds[i], i)
            found = STAGES[stage][1](batch)
            x = found[1] if stage == "to_torch with x" else found.x
            if not np.array_equal(to_host(x), to_host(with_x.graph.feat[batch.node_ids])):
                raise VerificationError(f"{stage}: rows are not those of the vertices")
    alone = [sampler.sample(s, i).canonical() for i, s in enumerate(seeds[:2])]
    if alone != [b.canonical() for b in sampler.sample_many(seeds[:2])]:
        raise VerificationError("mini-batches of a call differ from those sampled alone")
    return 4 * 3 + 2


def _beside_without_x(rows: list[dict[str, Any]]) -> None:
    """Adds to the last row what the features took beyond the row without them, and their bound: read and written."""
    last = rows[-1]
    plain = next(
        row for row in rows[::-1]
        if row["stage"] == last["stage"].removesuffix(" with x") and row["together"] == last["together"]
    )  # fmt: skip
    last["x_us"] = last["us"] - plain["us"]
    last["x_bound_us"] = 2 * 4 * FEATURES * last["nodes"] / copy_bandwidth_gbps() / 1e3
    last["x_over_bound"] = last["x_us"] / last["x_bound_us"]


def _row(
    session: Session, graph: Any, seeds: list[Any], fanouts: tuple[int, ...], stage: str, count: int
) -> dict[str, Any]:
    sampler, make = _sampler(graph, fanouts, stage), STAGES[stage][1]
    cache = None
    if stage == "to_torch, extracted":
        cache = FeatureCache(sampler.graph.feat, ratio=1.0, device="cuda")

    def use(batch: Any) -> Any:
        return make(batch) if cache is None else (make(batch), cache.extract(batch.node_ids)[0])

    def work(i: int) -> Any:
        groups = [seeds[(i * count + k) % len(seeds)] for k in range(count)]
        return [(batch, use(batch)) for batch in sampler.sample_many(groups, i * count)]

    for i in range(SETTLING):
        work(i)
    calls = max(4, 64 // count)
    times = [t / count for taken in timing.wall_passes(work, calls) for t in taken]
    batch = work(0)[0][0]
    read = bound.SECTOR * (sum(p.frontier.size for p in batch.picks) + batch.num_edges) + batch.arena.bytes
    found, least_us = timing.spread(times), read / copy_bandwidth_gbps() / 1e3
    bound.refuse_undercut(f"{seeds[0].size} x {fanouts}, {stage}", least_us, [found["p10_us"]])
    row = {
        "graph": GRAPH, "part": "mini-batch", "batch_size": int(seeds[0].size), "fanouts": list(fanouts),
        "stage": stage, "together": count, "edges": batch.num_edges, "nodes": batch.num_nodes,
        **found, "bound_us": least_us,
    }  # fmt: skip
    busy = timing.busy_us(work, calls)
    row["busy_us"] = None if busy is None else busy / count
    session.say(f"{row['batch_size']} x {fanouts}, {stage}, {count} in a call: {row['us']:.1f} us")
    return row


def _bytes_of(data: Any) -> int:
    """Least bytes that a mini-batch of PyG's moves: a sector for each expanded vertex and each pick, its tensors once,
    its rows twice."""
    expanded = sum(data.num_sampled_nodes[:-1])
    tensors = sum(value.nbytes for _, value in data if hasattr(value, "nbytes") and hasattr(value, "device"))
    rows = 0 if getattr(data, "x", None) is None else data.x.nbytes
    return int(bound.SECTOR * (expanded + data.edge_index.shape[1]) + tensors + rows)


def _loader_row(
    session: Session, name: str, with_x: bool, host_us: float, l2_latency_ns: float
) -> dict[str, Any]:
    import torch

    from gnnsample_lab.pyg import NeighborLoader

    host = common.graph(session, name, features=True)
    data = session.kept(("pyg", name), functools.partial(host.to_pyg))
    data = data.clone()
    if not with_x:
        del data.x
    loader = NeighborLoader(
        data, list(common.FANOUTS), input_nodes=torch.as_tensor(common.train_seeds(host)), shuffle=True,
        batch_size=LOADER_SEEDS, device="cuda", cache_ratio=1.0 if with_x else None,
    )  # fmt: skip

    batches = min(LOADER_BATCHES, len(loader))

    def epoch(_: int = 0) -> None:
        for _batch in itertools.islice(loader, batches):
            pass

    def taken() -> float:
        timing.synchronize()
        began = time.perf_counter()
        epoch()
        timing.synchronize()
        return (time.perf_counter() - began) * 1e6 / batches

    times = [quick_pass(taken) for _ in range(LOADER_EPOCHS + LOADER_SETTLING)]
    found = timing.spread(times[LOADER_SETTLING:])
    batch = next(iter(loader))
    row = {
        "graph": name, "part": "loader", "batch_size": LOADER_SEEDS, "fanouts": list(common.FANOUTS),
        "stage": "with x" if with_x else "without x", "together": 1, "edges": int(batch.edge_index.shape[1]),
        "nodes": int(batch.num_nodes), "l2": common.AS_LEFT, **found,
        # How many mini-batches share a launch was found by timing the first ones, on this host.
        "launched": loader.node_sampler.sampler.reason,
    }  # fmt: skip
    busy = timing.busy_us(epoch, 1)
    row["busy_us"] = None if busy is None else busy / batches
    waves = loader.node_sampler.sampler._engine.waves.values()
    together = max(of.settled(batches) or of.begin for of in waves)
    row |= {
        "latency_us": bound.chain_us(len(common.FANOUTS), l2_latency_ns) / together, "host_us": host_us / together,
        "bound_us": _bytes_of(batch) / copy_bandwidth_gbps() / 1e3,
    }  # fmt: skip
    bound.refuse_undercut(f"{name}, NeighborLoader {row['stage']}", row["bound_us"], [found["p10_us"]])
    session.say(
        f"{name}, NeighborLoader {row['stage']}: {row['us']:.0f} us a batch on {runtime.device_name()}"
    )
    return row
