"""FastGL's table 8: the ID map of the same recorded picks, by every rung of its ladder."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.session import Session, l2_state
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.timing import replay_times
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.minibatch.id_map.ladder import IdMap, id_maps, relabel

BASELINE = "insert-count-compact"
FORMS = {
    "sort": "array libraries",
    BASELINE: "baseline, DGL",
    "versioned-hash": "as GNNLab released",
    "fused-map": "published",
}
"""Whose a rung is: what papers compare with, a paper's own as published, or (all others) ours."""
_COUNT, _CHECKED = 6, 2


def rungs() -> tuple[str, ...]:
    """The rungs that relabel given picks: all but the one fused into the sampler."""
    return tuple(name for name in id_maps() if name != "in-sampler")


def _check(mapped: Any, seeds: Any, neighbors: list[Any], what: str) -> None:
    """Is ``mapped`` an ID map by definition? Independent of the code that made it."""
    ids, given = to_host(mapped.node_ids), [to_host(seeds), *map(to_host, neighbors)]
    wanted = np.unique(np.concatenate(given))
    if not np.array_equal(ids[: given[0].size], given[0]) or not np.array_equal(np.sort(ids), wanted):
        raise VerificationError(
            f"{what}: node_ids are not the distinct vertices with the seeds first; nothing is timed"
        )
    for hop, (local, picked) in enumerate(zip(mapped.local, given[1:], strict=True)):
        at = to_host(local)
        if at.size and (
            at.min() < 0 or at.max() >= mapped.level_sizes[hop + 1] or not np.array_equal(ids[at], picked)
        ):
            raise VerificationError(
                f"{what}: hop {hop} does not lead back to the global ids; nothing is timed"
            )


def _map(table: IdMap, work: list[Any], i: int) -> Any:
    return table.map_hops(*work[i])


def _map_hop_by_hop(table: IdMap, work: list[Any], i: int) -> Any:
    """As a sampler has to that draws the next hop from what the map gives."""
    seeds, neighbors = work[i]
    nodes, local = table.begin(seeds), []
    for picks in neighbors:
        nodes, ids = table.extend(picks)
        local.append(ids)
    return nodes, local


def _ratio(base: float | None, value: float | None) -> float | None:
    return base / value if base and value else None


def _gpu_times(table: IdMap, work: list[Any]) -> dict[str, float] | None:
    """The spread of GPU microseconds a mini-batch, without the host.

    None on a CPU, and for sort, whose waits no graph can hold.
    """
    if table.device != "cuda" or table.method == "sort":
        return None
    import cupy

    from gnnsample_lab.minibatch.id_map.fused import InsertingMap

    engine, stream, kept, graphs = table.engine, cupy.cuda.Stream(non_blocking=True), [], []
    allocate, held = cupy.cuda.get_allocator(), list[Any]()

    def keep(num_bytes: int) -> Any:
        held.append(allocate(num_bytes))
        return held[-1]

    cupy.cuda.get_current_stream().synchronize()
    # Graphs use the memory of their recording: arrays between hops are kept, and tables grow before the first graph.
    with stream, cupy.cuda.using_allocator(keep):
        for one in work:
            engine.map_hops(*one)
        for one in work:
            engine.report.known, engine.report.seen = None, []
            engine.map_hops(*one)
            stream.synchronize()
            engine.report.known = iter(engine.report.seen)
            stream.begin_capture()
            try:
                kept.append(engine.map_hops(*one))
            finally:
                graphs.append(stream.end_capture())
                engine.report.known = engine.report.seen = None
        stream.synchronize()
    # A replay has the stamps of its recording, so the table has to be as the recording found it.
    forget = engine.forget if isinstance(engine, InsertingMap) and engine.kind != "cleared" else None
    return timing.spread(replay_times(graphs, forget))


def _l2(session: Session, work: list[Any]) -> dict[str, str]:
    """Where a rung finds what it reads and writes of the mini-batches that take turns; nothing on a CPU."""
    if common.device() == "cpu":
        return {}
    touched = 2 * sum(int(seeds.nbytes) + sum(int(n.nbytes) for n in neighbors) for seeds, neighbors in work)
    return {"l2": l2_state(touched, session.l2_bytes())}


def _rungs_on(session: Session, name: str) -> tuple[list[dict[str, Any]], int]:
    """A row for each rung on a graph, and how many maps were checked."""
    rows: list[dict[str, Any]] = []
    checked = 0
    graph = common.graph(session, name)
    size = common.batch_size(name, graph)
    epoch = -(-len(common.train_seeds(graph)) // size)
    batches = common.batches(session, name, min(_COUNT, epoch))
    work = [(batch.seeds, [picks.neighbors for picks in batch.picks]) for batch in batches]
    twin = [relabel(to_host(s), list(map(to_host, n)), graph.num_nodes, device="cpu") for s, n in work[:1]]
    wall: dict[str, dict[str, float]] = {}
    hops: dict[str, dict[str, float]] = {}
    gpu: dict[str, dict[str, float] | None] = {}
    for rung in rungs():
        table = IdMap(rung, graph.num_nodes, graph.indices.dtype, common.device())
        for i, (seeds, neighbors) in enumerate(work[:_CHECKED]):
            mapped = table.map_hops(seeds, neighbors)
            _check(mapped, seeds, neighbors, f"{rung} on {name}, batch {i}")
            if i < len(twin) and mapped.canonical() != twin[i].canonical():
                raise VerificationError(
                    f"{rung} on {name}: another ID map than the CPU twin's; nothing is timed"
                )
            checked += 1
        wall[rung] = timing.spread(timing.wall_times(functools.partial(_map, table, work), len(work)))
        by_hop = functools.partial(_map_hop_by_hop, table, work)
        hops[rung] = timing.spread(timing.wall_times(by_hop, len(work)))
        gpu[rung] = _gpu_times(table, work)
    l2 = _l2(session, work)
    times = {rung: found["us"] for rung, found in wall.items()}
    gpu_us = {rung: found["us"] if found else None for rung, found in gpu.items()}
    for rung, us in times.items():
        rows.append({
            "graph": name, "id_map": rung, "form": FORMS.get(rung, "ours"), "batch_size": size,
            "fanouts": list(common.FANOUTS),
            "picks": round(float(np.mean([sum(n.size for n in neighbors) for _, neighbors in work]))),
            "nodes": round(float(np.mean([batch.num_nodes for batch in batches]))),
            **l2, "map_us": us, "epoch_s": us * epoch / 1e6, "num_batches": epoch, "speedup": times[BASELINE] / us,
            "hop_by_hop_us": hops[rung]["us"], "hop_by_hop_speedup": hops[BASELINE]["us"] / hops[rung]["us"],
            "gpu_us": gpu_us[rung], "gpu_speedup": _ratio(gpu_us[BASELINE], gpu_us[rung]),
            "spread": {
                "map_us": timing.around(wall[rung]), "hop_by_hop_us": timing.around(hops[rung]),
                "gpu_us": timing.around(gpu[rung] or {}),
            },
        })  # fmt: skip
    session.say(f"{name}: " + ", ".join(f"{rung} {us:.0f} us" for rung, us in times.items()))
    return rows, checked


def table8(session: Session) -> dict[str, Any]:
    """Wall time of the ID map of a mini-batch, host synchronisation included."""
    large = () if session.quick else ("mag-like", "papers100M-like")
    names = common.names(session, "reddit-like", "products-like", *large)
    found = [session.piece((name,), functools.partial(_rungs_on, session, name)) for name in names]
    rows, checked = [row for rows, _ in found for row in rows], sum(checked for _, checked in found)
    return {
        "settings": {
            "device": common.device(), "batch_size": common.BATCH, "fanouts": common.FANOUTS,
            "map_us": "wall time of IdMap.map_hops on recorded picks, the GPU idle before and finished after, host "
            "synchronisation between hops where the rung needs it; the median of a pass; median of passes",
            "hop_by_hop_us": "the same by IdMap.begin and extend, as a sampler has to that draws from what "
            "the map gives: every rung waits for each hop's size",
            "gpu_us": "the same launches as a CUDA graph, sizes known, replayed back to back; none for sort, whose "
            "host waits cannot be recorded",
            "epoch_s": "map_us times the mini-batches of an epoch",
            "l2": "never flushed: mini-batches take turns, and find what the others left. Picks and local ids of all "
            "that take turns, tables not counted, fit the L2 (warm), are up to 4 times as much (partly warm) or more "
            "(cold)",
        },
        "verification": {"maps_checked": checked}, "graphs": common.facts(session, names), "rows": rows,
    }  # fmt: skip
