"""Figure 2: speed of sampling and loading over the number of threads; few of them fill a link, more fill the memory.

Grids of our kernels are made smaller; the work stays the same. Sampling and loading read GPU memory, and pinned host
memory as Quiver's do; on two GPUs a kernel copies its peer's memory over NVLink as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import Unavailable, VerificationError
from gnnsample_lab.device import runtime
from gnnsample_lab.device.arrays import to_host

from . import crew, running
from .ladder import checksum

THREADS_OF_A_BLOCK = 256
BLOCKS = (1, 2, 4, 8, 16, 33, 66, 132, 264, 528)
QUICK_BLOCKS = (1, 4, 16, 66, 132, 528)
ENOUGH = 0.9
"""Share of the best speed that counts as reached."""
FEATURES, ROWS = 100, 300_000
MB = 4 * ROWS * FEATURES / 1e6
_COPY_BYTES = 1 << 27


def threads(session: Session) -> dict[str, Any]:
    """The suite's function."""
    session.require_gpu("dsp-threads")
    name = common.names(session, "products-like@0.1" if session.quick else "products-like")[0]
    blocks = QUICK_BLOCKS if session.quick else BLOCKS
    rows: list[dict[str, Any]] = []
    for kernel, memory, work, points in (
        *_sampling(session, name, blocks), *_loading(blocks), *_copying(session, blocks),
    ):  # fmt: skip
        rows += summed_up([
            {
                "kernel": kernel, "memory": memory, "blocks": n, "threads": n * THREADS_OF_A_BLOCK, **work,
                "us": us, "p10": p10, "p90": p90,
            }
            for n, (p10, us, p90) in points
        ])  # fmt: skip
        session.say(
            f"{kernel}, {memory}: "
            + ", ".join(f"{r['threads']}: {r['of_best_percent']:.0f} %" for r in rows[-len(points) :])
        )
    return {
        "settings": {
            "graph": name, "fanouts": crew.FANOUTS, "batch_size": crew.BATCH, "rows": ROWS, "num_features": FEATURES,
            "threads_of_gpu": 2048 * runtime.num_sms(), "us": "GPU time between two events, median",
            "work": "of a call: rows and picks of a sampled mini-batch; rows that are loaded, at random and "
            "after no picks; MB loaded or copied",
            "enough": f"threads from which on the speed is at least {ENOUGH:.0%} of the best",
        },
        "verification": {"points_equal_to_the_full_grid": len(rows)}, "graphs": common.facts(session, [name]),
        "rows": rows,
    }  # fmt: skip


def summed_up(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of one kernel and memory with their share of the best speed, and the threads that suffice."""
    best = min(row["us"] for row in rows)
    for row in rows:
        row["of_best_percent"] = 100 * best / row["us"]
    enough = min(row["threads"] for row in rows if best / row["us"] >= ENOUGH)
    return [row | {"enough": enough} for row in rows]


Curve = tuple[str, str, dict[str, float], list[tuple[int, list[float]]]]
"""Kernel, memory, the work of a call, and times (10th percentile, median, 90th) by blocks."""


def _curve(
    kernel: str,
    memory: str,
    size: dict[str, float],
    blocks: tuple[int, ...],
    work: Callable[[int], Callable[[], Any]],
) -> Curve:
    alone = SimpleNamespace(device="cuda")
    return kernel, memory, size, [(n, crew.event_times(alone, work(n))) for n in blocks]


def _sampling(session: Session, name: str, blocks: tuple[int, ...]) -> Iterator[Curve]:
    """The strategy ``captured``, whose kernel of a hop has blocks of 256 threads."""
    from gnnsample_lab.device import pinned
    from gnnsample_lab.distributed.sampling.gpu.direct import lists_engine
    from gnnsample_lab.distributed.sampling.gpu.lists import graph_by_local_records
    from gnnsample_lab.sampling.neighbors.lists import Place
    from gnnsample_lab.sampling.neighbors.spec import make_spec

    found, spec = common.graph(session, name), make_spec(crew.FANOUTS, "floyd", False, False, "frontier", 0)
    if found.indices.dtype.itemsize != 4:
        raise Unavailable("blocks have 256 threads for ids of 4 bytes alone")
    indptr, indices = to_host(found.indptr), to_host(found.indices)
    cut: Any = SimpleNamespace(owner=np.zeros(found.num_nodes, np.int8), num_nodes=found.num_nodes,
                          traffic=np.array([[found.num_edges]]))  # fmt: skip
    records = np.stack([indptr[:-1], np.diff(indptr)], 1)
    held = pinned.locked(indices)
    addresses = {"GPU": found.indices.data.ptr, "host": pinned.device_address(held)}
    (seeds,) = crew.on_device(
        SimpleNamespace(device="cuda"), crew.seeds_of(found, 1, 1, crew.batch_size(found))[0]
    )
    wanted = None
    for memory, address in addresses.items():
        lists = graph_by_local_records(
            cut, records, [Place(address)], np.dtype(np.int32), None, keep=(held, indices)
        )
        engines = {}
        for n in blocks:
            engine = lists_engine(lists, spec)
            # Grids are multiples of blocks an SM: one block on each of so many.
            engine.knobs.blocks_per_sm |= {"hop": 1, "emit": 1}
            engine.launcher.sms = n
            sums = checksum(running.drawn(engine, seeds, 0), None)
            wanted = wanted or sums
            if sums != wanted:
                raise VerificationError(f"{n} blocks, {memory}: another sample than with {blocks[0]} blocks")
            engines[n] = engine
        size = crew.mean_work([running.drawn(engines[blocks[-1]], seeds, 1)])
        yield _curve("sampling", memory, dict(size), blocks, partial(_drawing, engines, seeds))


def _drawing(engines: dict[int, Any], seeds: Any, blocks: int) -> Callable[[], Any]:
    return partial(running.drawn, engines[blocks], seeds, 1)


def _loading(blocks: tuple[int, ...]) -> Iterator[Curve]:
    """Random rows of a table."""
    import cupy

    from gnnsample_lab.features.caching.cache import FeatureCache
    from gnnsample_lab.features.caching.gather import ExtractKnobs

    table = np.arange((1 << 20) * FEATURES, dtype=np.float32).reshape(1 << 20, FEATURES)
    ids = cupy.random.RandomState(0).randint(0, len(table), ROWS).astype(np.int64)
    wanted = cupy.asarray(table)[ids]
    for memory, ratio in (("GPU", 1.0), ("host", 0.0)):

        def work(n: int, ratio: float = ratio, memory: str = memory) -> Callable[[], Any]:
            # A little more than n blocks: the grid is rounded down.
            each = (n + 0.5) / runtime.num_sms()
            knobs = ExtractKnobs(
                blocks_per_sm=each, host_blocks_per_sm=each, block_threads=THREADS_OF_A_BLOCK
            )
            cache = FeatureCache(table, ratio=ratio, device="cuda", transfer="uva", knobs=knobs)
            marks, out = cache.mark(ids), cupy.empty((ROWS, FEATURES), np.float32)
            cache.extract(ids, marks, out)
            if not bool((out == wanted).all()):
                raise VerificationError(f"{n} blocks, {memory}: other rows than the table's")
            return lambda: cache.extract(ids, marks, out)

        yield _curve("loading", memory, {"rows": ROWS, "edges": 0, "mb": MB}, blocks, work)


def _copying(session: Session, blocks: tuple[int, ...]) -> Iterator[Curve]:
    """A peer's memory in order, all ranks at once; only where there are two GPUs."""
    if crew.gpus() < 2:
        return
    by_rank = crew.ranks(session).run(copied, blocks, world=2)
    slowest = [
        max((found[i] for found in by_rank), key=lambda times: float(times[1])) for i in range(len(blocks))
    ]
    yield "copying", "peer", {"mb": _COPY_BYTES / 1e6}, list(zip(blocks, slowest, strict=True))


def copied(rank: Any, blocks: tuple[int, ...]) -> list[list[float]]:
    """On a rank: GPU microseconds of copying its peer's memory with so many blocks: 10th percentile, median, 90th."""
    import cupy

    from gnnsample_lab.distributed.features import gpu
    from gnnsample_lab.distributed.peer_memory import PeerMemory

    peers = PeerMemory(rank, _COPY_BYTES)
    peers.array(np.uint8, _COPY_BYTES)[...] = rank.index + 1
    peers.barrier()
    peer = (rank.index + 1) % rank.world_size
    target, kernel, times = cupy.zeros(_COPY_BYTES, np.uint8), gpu._kernel("copy", "int"), []
    for n in blocks:
        target[...] = 0
        rank.barrier()
        args = (np.uint64(peers.pointers[peer]), np.uint64(_COPY_BYTES // 16), target)
        times.append(crew.event_times(rank, partial(kernel, (n,), (THREADS_OF_A_BLOCK,), args)))
        if not bool((target == peer + 1).all()):
            raise VerificationError(
                f"{n} blocks: the copy of a peer's memory is not what the peer has written"
            )
    peers.close()
    return times
