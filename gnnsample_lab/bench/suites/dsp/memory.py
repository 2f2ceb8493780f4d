"""Figure 10: each GPU's memory divided between topology and feature rows at one budget, and an epoch's time for it.

For each division, lists that do not fit are read from pinned host memory and rows that are not cached come from there;
both are measured. Beside that stands what the bytes alone say (:func:`lab.distributed.split_memory`), modelled.

DSP had eight GPUs. A division among eight parts needs no GPU: which lists and rows each holds, and the bytes that
mini-batches then read from peers and from the host, are counted. Times of these rows are modelled, :data:`MODELLED_AS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.record import is_modelled
from gnnsample_lab.bench.session import Session
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.minibatch.sampler import NeighborSampler

from . import crew, running
from .ladder import checksum

BATCHES, VISITED = 8, 24
SHARES = (0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0)
QUICK_SHARES = (0.0, 0.4, 0.8)
OF_ALL = 0.58
"""The budget of all GPUs, of topology and features together: DSP's eight times 6 GB are that share of Papers."""


def memory(session: Session) -> dict[str, Any]:
    """The suite's function."""
    names = crew.names(session, "products-like@0.1" if session.quick else "products-like")
    rows: list[dict[str, Any]] = []
    best: list[dict[str, Any]] = []
    for name in names:
        by_world = {world: _divisions(session, name, world) for world in crew.several(session)}
        add_errors(by_world)
        more = _on_more(session, name, by_world[max(by_world)])
        for here in by_world.values():
            rows += here
            best += _best(here)
        rows += more  # times on a line over the bytes: the best by the one is that by the other
    ran = [row for row in rows if not is_modelled(row) and "error" not in row]
    return {
        "settings": {
            "device": crew.device(), "ranks": crew.most_ranks(), "fanouts": crew.FANOUTS, "of_all": OF_ALL,
            "partition": crew.divisions(session, names, crew.most_ranks()),
            "cache": "partitioned, rows and lists ranked by visits of other mini-batches; rows over NVLink by reads",
            "us": "wall time of sampling a mini-batch plus that of loading its rows, each stage by itself, all ranks "
            "at once; medians of the slowest rank. Stages are timed apart: their sum has no percentiles of its own",
            "work": crew.WORK,
            "modelled_us": "bytes of split_memory over 300 GB/s from peers and 50 GB/s from the host",
            "modelled": MODELLED_AS,
        },
        "verification": {"samples_and_rows_equal_to_whole_graph": sum(2 if row["sample_us"] else 1 for row in ran)},
        "graphs": common.facts(session, names), "rows": rows, "best": best,
        "notes": [*crew.off_notes(rows, "times of mini-batches"), *crew.notes()],
    }  # fmt: skip


MODELLED_AS = (
    f"rows of {crew.MODELLED_GPUS} GPUs: memory, lists, rows and bytes are counted, for mini-batches of as many ranks; "
    "both us, by which epoch_s is, lies on the line through the times of all divisions on the most GPUs that ran over "
    "what the bytes alone say of them, modelled_us. What more GPUs cost each other at the host's memory beyond that is "
    "left out. error_percent of a measured row: the line of the next fewer GPUs at its bytes, over its time, less 1"
)
"""What the record says of its modelled rows."""


def line_through(rows: list[dict[str, Any]]) -> np.ndarray | None:
    """Slope and begin of the line through the times of measured rows over what bytes say of them; None of fewer than
    two."""
    timed = [row for row in rows if row.get("us")]
    by_bytes, us = ([float(row[key]) for row in timed] for key in ("modelled_us", "us"))
    return np.polyfit(by_bytes, us, 1) if len(set(by_bytes)) > 1 else None


def add_errors(by_world: dict[int, list[dict[str, Any]]]) -> None:
    """Adds ``error_percent`` to rows by number of GPUs, ascending: how far the line of fewer GPUs is off."""
    before: np.ndarray | None = None
    for rows in by_world.values():
        for row in rows:
            if before is not None and row.get("us"):
                row["error_percent"] = 100 * (float(np.polyval(before, row["modelled_us"])) / row["us"] - 1)
        before = line_through(rows)


def _on_more(session: Session, name: str, ran: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows on :data:`.crew.MODELLED_GPUS`, one for each division; see :data:`MODELLED_AS`.

    ``ran``: the graph's rows on the most GPUs.
    """
    world, found, line = crew.MODELLED_GPUS, common.graph(session, name), line_through(ran)
    divided = _divided(session, name, world)
    rows = []
    for share, split in zip(_shares(session), divided.splits, strict=True):
        row: dict[str, Any] = {
            "graph": name, "gpus": world, "origin": "modelled", "feature_share": share, **divided.facts,
            **described(split, found), **divided.work, "modelled_us": split.seconds * 1e6 / VISITED,
        }  # fmt: skip
        # Far from what ran, a line may say anything.
        us = float(np.polyval(line, row["modelled_us"])) if line is not None and line[0] > 0 else 0.0
        if us > 0:
            row["us"] = us
            row["epoch_s"] = row["us"] / 1e6 * crew.batches_of_epoch(name, found, divided.size, world)
        rows.append(row)
    session.say(
        f"{name}, {world} ranks, modelled: " + ", ".join(f"{row.get('us', 0):.0f} us" for row in rows)
    )
    return rows


def _divisions(session: Session, name: str, world: int) -> list[dict[str, Any]]:
    """The rows of a graph on so many ranks, one for each division of their memory."""
    pool, found = crew.ranks(session), common.graph(session, name)
    task, splits, facts = _plan(session, name, world)
    rows = []
    for share, split in zip(_shares(session), splits, strict=True):
        row = {
            "graph": name, "gpus": world, "origin": "measured", "feature_share": share, **facts,
            **described(split, found),
        }  # fmt: skip
        more = {
            "topology_bytes": split.topology_bytes if len(split.spilled) else None, "rows": int(split.rows.max()),
            "copy_bytes": max(0, split.topology_bytes - task["part_bytes"]) if not len(split.spilled) else 0,
        }  # fmt: skip
        results, problem = crew.attempt(partial(pool.run, measured, task | more, world=world))
        if problem:
            row["error"] = problem
        else:
            row |= _slowest(results) | crew.mean_over_ranks(results)
            row["spilled_percent"] = 100 * results[0]["spilled"] / max(1, found.num_nodes)
            if row["sample_us"]:
                row["us"] = row["sample_us"] + row["load_us"]
                row["epoch_s"] = row["us"] / 1e6 * crew.batches_of_epoch(name, found, task["size"], world)
        # The model's seconds are of the batches visited, of all ranks at once.
        row["modelled_us"] = split.seconds * 1e6 / VISITED
        session.say(f"{name}, {world} ranks, {share:.0%} for features: {row.get('error') or _times(row)}")
        rows.append(row)
    return rows


def _best(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of a graph's rows on so many ranks the best one, and the one that bytes alone favour; none without times."""
    timed = [row for row in rows if row.get("us")]
    if not timed:
        return []
    shortest = min(timed, key=lambda row: float(row["us"]))
    modelled = min(rows, key=lambda row: float(row["modelled_us"]))
    return [{
        "graph": shortest["graph"], "gpus": shortest["gpus"], "feature_share": shortest["feature_share"],
        "spilled": shortest["spilled_percent"], "modelled_share": modelled["feature_share"],
    }]  # fmt: skip


def _slowest(results: list[dict[str, Any]]) -> dict[str, Any]:
    """``sample_us`` (None where it was not timed) and ``load_us``, each the slowest rank's, with their ``spread``."""
    found: dict[str, Any] = {"spread": {}}
    for stage in ("sample", "load"):
        times = max((r[stage] for r in results if r[stage]), key=lambda each: float(each[1]), default=None)
        found[f"{stage}_us"] = None if times is None else times[1]
        if times is not None:
            found["spread"][f"{stage}_us"] = crew.around(times)
    return found


def _shares(session: Session) -> tuple[float, ...]:
    return QUICK_SHARES if session.quick else SHARES


def _times(row: dict[str, Any]) -> str:
    sample = "not measured here" if not row["sample_us"] else f"{row['sample_us']:.0f} us"
    return f"sampling {sample}, loading {row['load_us']:.0f} us, modelled {row['modelled_us']:.0f} us"


def described(split: Any, found: Any) -> dict[str, Any]:
    """A division as fields of a row."""
    n = int(found.num_nodes)
    return {
        "topology_mb": split.topology_bytes / 1e6, "feature_mb": split.feature_bytes / 1e6,
        "spilled_percent": 100 * len(split.spilled) / max(1, n),
        "cached_percent": 100 * float(split.rows.sum()) / max(1, n),
        "remote_mb": split.remote_bytes / 1e6 / VISITED, "host_mb": split.host_bytes / 1e6 / VISITED,
    }  # fmt: skip


@dataclass(frozen=True)
class Divided:
    """A graph among some ranks, and their memory between its topology and its features.

    Attributes:
        cut: who owns which vertex.
        size: seeds of a rank's mini-batch.
        splits: of :func:`lab.distributed.split_memory`, one for each share.
        visits, loads: how often lists were expanded and rows loaded, of all ranks, ``float64[N]``.
        work: ``rows`` and ``edges`` of a rank's mini-batch, means.
        facts: ``budget_mb`` of a GPU, and ``all_mb``, what it would take to hold everything.
    """

    cut: Any
    size: int
    splits: list[Any]
    visits: np.ndarray
    loads: np.ndarray
    work: dict[str, int]
    facts: dict[str, Any]


def _divided(session: Session, name: str, world: int) -> Divided:
    """How memory may be divided on so many ranks, by :data:`VISITED` mini-batches apart from those that are timed."""
    from gnnsample_lab.distributed import split_memory

    found, full = common.graph(session, name), crew.host_graph(session, name, features=True)
    size, cut = crew.batch_size(found), crew.cut_of(session, name, world)
    n, hops = int(found.num_nodes), len(crew.FANOUTS)
    lists, loads = np.zeros((hops, n)), np.zeros(n)
    sampler = NeighborSampler(found, list(crew.FANOUTS), device=common.device())
    every, edges = crew.seeds_of(found, world, BATCHES + VISITED, size, cut.owner), 0
    for i in range(BATCHES, BATCHES + VISITED):
        for given in every:
            batch = sampler.sample(given[i], i)
            for hop, picks in enumerate(batch.picks):
                lists[hop, to_host(picks.frontier)] += 1
            loads[to_host(batch.node_ids)] += 1
            edges += int(batch.num_edges)
    row_bytes = int(full.num_features) * full.feat.dtype.itemsize
    id_bytes = found.indices.dtype.itemsize
    topology, features = int(found.num_edges) * id_bytes, n * row_bytes
    budget = int(OF_ALL * (topology + features) / world)
    splits = split_memory(
        budget, cut, np.diff(to_host(found.indptr)), crew.FANOUTS, lists, loads, row_bytes,
        shares=_shares(session), entry_bytes=id_bytes,
    )  # fmt: skip
    batches = VISITED * world
    return Divided(
        cut, size, splits, lists.sum(0), loads,
        {"rows": round(float(loads.sum()) / batches), "edges": round(edges / batches)},
        {"budget_mb": budget / 1e6, "all_mb": (topology + features) / world / 1e6},
    )  # fmt: skip


def _plan(session: Session, name: str, world: int) -> tuple[dict[str, Any], list[Any], dict[str, Any]]:
    """What all divisions share: seeds, checksums, visits, parts with features; and the divisions."""
    found, divided = common.graph(session, name), _divided(session, name, world)
    task: dict[str, Any] = {
        "seconds": crew.seconds(session), "folder": crew.parts(session, name, world, features=True),
        "fanouts": crew.FANOUTS, "weighted": False, "replace": False, "size": divided.size,
        "seeds": crew.seeds_of(found, world, BATCHES, divided.size, divided.cut.owner),
        "visits": divided.visits, "loads": divided.loads,
        "part_bytes": int(divided.cut.edges.max()) * found.indices.dtype.itemsize,
    }  # fmt: skip
    task["expected"] = running.expected(found, task, common.device())
    return task, divided.splits, divided.facts


# ---- on the ranks -----------------------------------------------------------------------------------------------


def measured(rank: Any, task: dict[str, Any]) -> dict[str, Any]:
    """Times of sampling within ``topology_bytes``, None on a CPU where lists exceed them, and of loading with so many
    rows cached.

    With them ``spilled``, ``rows`` and ``edges`` of a mini-batch.
    """
    given = task["seeds"][rank.index]
    batches, sample, spilled = _sampled(rank, task, given)
    ids = [batch.node_ids for batch in batches]
    load = _loaded(rank, task, ids)
    return {"sample": sample, "load": load, "spilled": spilled, **crew.mean_work(batches)}


def _sampled(
    rank: Any, task: dict[str, Any], given: list[np.ndarray]
) -> tuple[list[Any], list[float] | None, int]:
    """Mini-batches, times, and how many lists of all parts were in host memory."""
    from gnnsample_lab.distributed import Sampler

    budget = task["topology_bytes"]
    sampler = Sampler(
        task["folder"], task["fanouts"], "direct-cached", rank=rank, cache_bytes=task["copy_bytes"],
        topology_bytes=budget, visits=task["visits"],
    )  # fmt: skip
    spilled = getattr(sampler.engine, "spill", None)
    if rank.device == "cpu" and spilled is not None:
        batches = [sampler.sample(seeds, i) for i, seeds in enumerate(given)]
        sampler.close()
        return batches, None, spilled.num_lists  # a CPU has no memory that its lists could not be in
    seeds, engine = crew.on_device(rank, given), sampler.engine

    def work(i: int) -> Any:
        at = i % len(seeds)
        return engine.sample(seeds[at], at)

    good = checksum(work(0), None) == task["expected"][rank.index]
    if not crew.together(rank, int(good), least=True):
        raise RuntimeError("the sample differs from the whole graph's")
    batches = [work(i) for i in range(len(seeds))]
    times = crew.timed(rank, work, task["seconds"], 10)
    sampler.close()
    return batches, times, 0 if spilled is None else spilled.num_lists


def _loaded(rank: Any, task: dict[str, Any], ids: list[Any]) -> list[float]:
    from gnnsample_lab.distributed import FeatureCache, open_part, open_partition

    partition = open_partition(task["folder"])
    ratio = min(1.0, max(1, task["rows"]) / partition.num_nodes)
    cache = FeatureCache(task["folder"], task["loads"], ratio=ratio, rank=rank, transport="direct")
    some = to_host(ids[0])[:4096]
    found, (part, position) = to_host(cache.extract(ids[0])[0])[: len(some)], partition.place(some)
    good = all(
        np.array_equal(open_part(task["folder"], p).feat[position[part == p]], found[part == p])
        for p in range(partition.num_parts)
    )
    if not crew.together(rank, int(good), least=True):
        raise RuntimeError("rows differ from the features")
    times = crew.timed(rank, lambda i: cache.extract(ids[i % len(ids)])[0], task["seconds"], 10)
    cache.close()
    return times
