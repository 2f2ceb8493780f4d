"""Feature rows between GPUs: what each transport reaches, beside the copy that a kernel makes of a peer's memory.

:func:`measure` makes its own graph, checks every transport's rows, and returns one record for each measurement. All
ranks read at once; a rate is one rank's, the slowest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import gnnsample_lab as lab
from gnnsample_lab.bench.session import Session

from .on_ranks import device_of_ranks, num_gpus, on_device

ROWS = 300_000
"""Rows that a rank asks for at once."""
VERTICES = 1 << 20
"""Vertices of each part: their rows exceed the L2 cache several times."""
COPY_BYTES = 1 << 29
PEER_COPY = "peer copy"
WIDTHS = (100, 128)
"""Floats of a row: 400 bytes, and 512."""
ON_CPU = {"vertices": 2_000, "rows": 1_000}
"""Sizes on CPU ranks, whose times mean nothing: the suite runs there to see that it runs."""
_WARM, _TIMED, _TOGETHER = 2, 12, 8


def features(session: Session) -> dict[str, Any]:
    """The suite's function."""
    device = device_of_ranks()
    worlds = [n for n in (2, 4) if n <= num_gpus()] or [1] if device == "cuda" else [2]
    sizes = ON_CPU if device == "cpu" else {"vertices": VERTICES, "rows": ROWS}
    widths = WIDTHS[-1:] if session.quick else WIDTHS
    rows = []
    for ranks in worlds:
        some = widths if ranks == worlds[0] else widths[-1:]
        found = measure(ranks, device, some, sizes["vertices"], sizes["rows"])
        rows += [{"ranks": ranks, **row} for row in found]
    checked = {(row["ranks"], row["transport"], row["row_bytes"]) for row in rows if row["what"] != PEER_COPY}
    return {
        "settings": {
            "ranks": worlds, "device": "cuda" if device == "cuda" else "CPU: no NVLink", **sizes,
            "what": "remote: rows of peers alone; any: of all vertices alike; hot and cold: a sixth of the rows from "
            "pinned host memory; marked: without the look-up of where rows lie",
            "gbps": "bytes of the rows asked for, or copied, by one rank, the slowest of all at once",
            "us": f"of a call, {_TOGETHER} calls one after another without waiting; median, p10 and p90 of {_TIMED} "
            "such passes of the slowest rank",
            "asked": "rows that a rank asks for in a call",
            "rows": "the same: they stand for those of a mini-batch; edges: nothing is sampled, so that there are none",
        },
        "verification": {"transports_equal_to_parts": len(checked)},
        "graphs": {}, "rows": rows,
    }  # fmt: skip


def measure(
    ranks: int = 2,
    device: str = "cuda",
    widths: tuple[int, ...] = WIDTHS,
    vertices: int = VERTICES,
    rows: int = ROWS,
    sweep: bool = False,
) -> list[dict[str, Any]]:
    """Measure all transports.

    Args:
        ranks: number of GPUs.
        device: ``"cuda"``; ``"cpu"`` runs the same code on mapped files, to see that it runs.
        widths: floats of a row.
        vertices: of each part.
        rows: asked for by each rank at once.
        sweep: try launch shapes of the direct kernel.

    Returns:
        Records with ``what``, ``transport``, ``row_bytes``, ``asked`` (rows of a call), ``us`` with ``p10`` and
        ``p90``, ``nbytes`` asked for, or copied, by one rank, ``gbps`` of it, and ``of_copy``, the share of the peer
        copy of the same run.
    """
    found: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        lab.distributed.Ranks(ranks, device=device, timeout_s=600) as crew,
    ):
        for width in widths:
            rng = np.random.default_rng(width)
            n = vertices * ranks
            v = np.arange(n)
            graph = lab.Graph.from_edges(
                v, (v + 1) % n, n, feat=rng.random((n, width), dtype=np.float32), name=f"ring-{width}"
            )
            partition = lab.distributed.partition(graph, ranks, "random", use_cache=False)
            place = lab.distributed.save_parts(graph, partition, Path(folder) / str(width))
            found += merged(crew.run(_on_rank, place, width, rows, sweep))
    copies = [record["gbps"] for record in found if record["what"] == PEER_COPY]
    return [{**r, "of_copy": r["gbps"] / max(copies) if copies else float("nan")} for r in found]


def merged(by_rank: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The slowest rank's record of each measurement."""
    return [max(same, key=lambda record: record["us"]) for same in zip(*by_rank, strict=True)]


def _on_rank(rank: Any, folder: Path, width: int, rows: int, sweep: bool) -> list[dict[str, Any]]:
    return list(_records(rank, folder, width, rows, sweep))


def _records(rank: Any, folder: Path, width: int, rows: int, sweep: bool) -> Iterator[dict[str, Any]]:
    partition = lab.distributed.open_partition(folder)
    rng = np.random.default_rng(rank.index)
    there = np.flatnonzero(partition.owner != rank.index)
    row_bytes = 4 * width
    wanted = {"any": rng.integers(0, partition.num_nodes, rows)}
    if there.size:
        yield _peer_copy(rank)
        wanted = {"remote": rng.choice(there, rows), **wanted}

    def record(what: str, transport: str, times: list[float], nbytes: int, **more: Any) -> dict[str, Any]:
        return {
            "what": what, "transport": transport, "row_bytes": row_bytes, "asked": nbytes // row_bytes,
            "rows": nbytes // row_bytes, "edges": 0,
            **_spread(times, nbytes), **more,
        }  # fmt: skip

    for transport in ("direct", "all-to-all", "all-to-all-unordered"):
        cache = lab.distributed.FeatureCache(
            folder, ratio=1.0, rank=rank, transport=transport, positions="everywhere"
        )
        for what, ids in wanted.items():
            given = on_device(rank, ids)
            _check(cache, folder, ids)
            marks = cache.mark(given)
            out = cache.extract(given)[0]
            nbytes = rows * row_bytes
            # Look-up and rows, then rows alone.
            yield record(what, transport, _timed(rank, cache.extract_arrived, given), nbytes)
            if transport == "direct":
                times = _timed(rank, cache.extract, given, marks, out)
                yield record(f"{what}, marked", transport, times, nbytes)
        cache.close()
    if sweep and rank.device != "cpu":
        yield from _sweep(rank, folder, wanted, record)
    # Half of the rows cold: PCIe alone, NVLink and HBM alone, both at once.
    cache = lab.distributed.FeatureCache(folder, ratio=0.5 / rank.world_size, rank=rank, transport="direct")
    hot = cache.placement.place_of >= 0
    some = rng.choice(np.flatnonzero(hot), rows // 2), rng.choice(np.flatnonzero(~hot), rows // 10)
    for what, ids in (("hot", some[0]), ("cold", some[1]), ("hot and cold", np.concatenate(some))):
        given = on_device(rank, rng.permutation(ids))
        _check(cache, folder, ids)
        marks = cache.mark(given)
        out = cache.extract(given)[0]
        times = _timed(rank, cache.extract, given, marks, out)
        yield record(what, "direct", times, ids.size * row_bytes)
    cache.close()


def _sweep(rank: Any, folder: Path, wanted: Any, record: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    from gnnsample_lab.features.caching.gather import ExtractKnobs

    ids = wanted.get("remote", wanted["any"])
    for per_warp in (1, 2, 4, 8):
        for load in (0, 2):
            for blocks in (2, 4, 8):
                knobs = ExtractKnobs(
                    rows_per_warp=per_warp, load=load, blocks_per_sm=blocks, block_threads=256
                )
                cache = lab.distributed.FeatureCache(
                    folder, ratio=1.0, rank=rank, transport="direct", knobs=knobs
                )
                given = on_device(rank, ids)
                marks, out = cache.mark(given), cache.extract(given)[0]
                times = _timed(rank, cache.extract, given, marks, out)
                shape = {"rows_per_warp": per_warp, "load": load, "blocks_per_sm": blocks}
                yield record("sweep", "direct", times, out.nbytes, **shape)
                cache.close()


def _peer_copy(rank: Any) -> dict[str, Any]:
    """A kernel copies a peer's block in order, all ranks at once."""
    from gnnsample_lab.distributed.peer_memory import PeerMemory

    nbytes = COPY_BYTES if rank.device != "cpu" else 1 << 16
    peers = PeerMemory(rank, nbytes)
    peers.array(np.uint8, nbytes)[...] = rank.index
    peers.barrier()
    peer = (rank.index + 1) % rank.world_size
    source = peers.array_of(peer, np.uint8, nbytes)
    if rank.device == "cpu":
        target = np.empty(nbytes, np.uint8)

        def copy() -> None:
            target[...] = source
    else:
        import cupy

        from gnnsample_lab.device import runtime
        from gnnsample_lab.distributed.features import gpu

        target, kernel = cupy.empty(nbytes, np.uint8), gpu._kernel("copy", "int")
        grid = (8 * runtime.num_sms(),)

        def copy() -> None:
            kernel(grid, (256,), (np.uint64(peers.pointers[peer]), np.uint64(nbytes // 16), target))

    times = _timed(rank, copy)
    if not bool((target == peer).all()):
        raise RuntimeError("the copy of a peer's memory is not what the peer has written")
    peers.close()
    return {"what": PEER_COPY, "transport": "kernel", "row_bytes": 0, **_spread(times, nbytes)}


def _spread(times: list[float], nbytes: int) -> dict[str, float]:
    """Times of moving so many bytes, and their rate, as fields of a record."""
    p10, us, p90 = times
    return {"us": us, "p10": p10, "p90": p90, "nbytes": nbytes, "gbps": nbytes / us / 1e3}


def _check(cache: Any, folder: Path, ids: np.ndarray) -> None:
    """Rows of some of the ids are those of the parts, bit for bit; all ranks call it."""
    few = ids[:4096]
    x, _ = cache.extract(few)
    partition = lab.distributed.open_partition(folder)
    part, position = partition.place(few)
    for p in range(partition.num_parts):
        own = lab.distributed.open_part(folder, p).feat[position[part == p]]
        got = x[part == p] if isinstance(x, np.ndarray) else x.get()[part == p]
        if not np.array_equal(own.view(np.uint32), got.view(np.uint32)):
            raise RuntimeError(f"{cache!r} gives rows that are not the features of part {p}")


def _timed(rank: Any, call: Callable[..., Any], *arguments: Any) -> list[float]:
    """Microseconds of a call, all ranks at work at once: 10th percentile, median, 90th.

    Calls follow one another without waiting, as a loader's do: the host prepares one while the GPU works on another.
    """
    import time

    if rank.device != "cpu":
        import cupy
    times = []
    for number in range(_WARM + _TIMED):
        rank.barrier()
        if rank.device == "cpu":
            began = time.perf_counter()
            call(*arguments)
            us = (time.perf_counter() - began) * 1e6
        else:
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            for _ in range(_TOGETHER):
                call(*arguments)
            end.record()
            end.synchronize()
            us = cupy.cuda.get_elapsed_time(begin, end) * 1e3 / _TOGETHER
        if number >= _WARM:
            times.append(us)
    return [float(value) for value in np.percentile(times, [10, 50, 90])]
