"""PGSampler's tables and figures of kernel time: table I, figure 8, table III, figure 10.

All strategies of a comparison use the same pick, ``reservoir``, and so the same number of generator calls. Kernel
time of the per-hop baselines is that of their draw kernels alone; that of the queue strategies includes
deduplication and the merging of duplicate seeds.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gnnsample_lab.bench import timing
from gnnsample_lab.bench.floors import floor
from gnnsample_lab.bench.floors.candidates_per_hop import PerHopRotation
from gnnsample_lab.bench.quick_core import quick_pass
from gnnsample_lab.bench.record import scaled
from gnnsample_lab.bench.session import GRAPHS, Session, best_of, knob_points, workload
from gnnsample_lab.bench.suite import PUBLISHED_QUEUE, Unavailable
from gnnsample_lab.minibatch.gpu.run import copy_bandwidth_gbps
from gnnsample_lab.minibatch.sampler import NeighborSampler

from .papers import AVERAGES, TABLE3
from .utilisation import utilisation

PICK = "reservoir"
TIMING = "CUDA graphs over rotating batches, median, p10 and p90 of the passes, best of the sweep; L2 as the row says"
QUEUES = {
    PUBLISHED_QUEUE: "a block takes 5 tickets and serves a task at a time, as published; its samples are checked",
    "persistent": "ours: teams of threads take up to 32 tickets and serve them together, hubs in pieces of 2 048",
}
DGL_THREADS = "block_threads=128"
"""The point of the baseline's sweep that DGL's kernel has: blocks of 128 threads, whatever the graph."""


def table1(session: Session) -> dict[str, Any]:
    """Per hop: workload, preprocessing, kernel time and utilisation of ``block-bsp``.

    The kernel leaves a hop as published, in COO arrays (row, column and edge position of each pick), and as the library
    asks for it, without the rows, which follow from the offsets.
    """
    batch_size, fanouts = 2048, (10, 10, 10)
    names = session.graphs("products-like")
    verification = session.verify(names, ["block-bsp"], [PICK])
    rows: list[dict[str, Any]] = []
    origin = ""
    for name in names:
        recorded = session.recorded(name, batch_size, fanouts, PICK)
        seeds = session.batches(name, batch_size, len(recorded))
        sampler = NeighborSampler(
            session.graph(name), list(fanouts), strategy="block-bsp", pick=PICK, device="cuda", trace=True
        )
        traces = [sampler.sample(batch, i).trace for i, batch in enumerate(seeds)][1:]  # the first compiles
        rotations = {
            label: PerHopRotation(session.graph(name), fanouts, recorded, "block-bsp", PICK, knobs)
            for label, knobs in knob_points("block-bsp", session.quick).items()
        }
        gbps, of_graph = copy_bandwidth_gbps(), []
        for hop in range(len(fanouts)):
            coo, found = (
                best_of({
                    label: _timed(session, _cold_times, rotation, hop, form) for label, rotation in rotations.items()
                })
                for form in (True, False)
            )  # fmt: skip
            before = timing.spread(_preprocess_times(session, rotations[found["best"]], hop))
            moved = statistics.mean(int(trace.hops.bytes_moved[hop]) for trace in traces)
            of_graph.append({
                "graph": name, "hop": hop + 1,
                "workload": round(statistics.mean(int(trace.hops.workload[hop]) for trace in traces)),
                "picks": round(statistics.mean(int(trace.hops.num_picks[hop]) for trace in traces)),
                "pre_us": before["us"], "kernel_us": found["us"], "best": found["best"], "sweep": found["sweep"],
                "coo_us": coo["us"], "coo_best": coo["best"],
                "spread": {
                    "pre_us": timing.around(before), "kernel_us": timing.around(found),
                    "coo_us": timing.around(coo),
                },
                "l2": "cold",
                "traced_pre_us": statistics.median(float(trace.hops.preprocess_us[hop]) for trace in traces),
                "traced_kernel_us": statistics.median(float(trace.hops.kernel_us[hop]) for trace in traces),
                "bytes_moved": moved, "copy_percent": 100 * moved / (found["us"] * 1e3) / gbps,
            })  # fmt: skip
        threads = [int(str(row["coo_best"]).partition("=")[2]) for row in of_graph]
        busy, origin = utilisation(session.graph(name), recorded[0].frontiers, fanouts, PICK, threads)
        rows += [{**row, **share} for row, share in zip(of_graph, busy, strict=True)]
    return {
        "settings": {
            "strategy": "block-bsp", "pick": PICK, "batch_size": batch_size, "fanouts": fanouts,
            "copy_bandwidth_gbps": copy_bandwidth_gbps(),
            "pre_us": "host clock, GPU idle before: counts, scan, transfer of the total, allocation and launch of the "
            "draw of one hop, whose vertices are on the GPU; seeds are checked and merged before the first hop",
            "traced_pre_us": "measured trace; the first hop's holds the check and the merging of the seeds, too",
            "coo_us": "the draw kernel between two events, its results in COO arrays as published, L2 cold; median "
            "over passes, best of the sweep",
            "kernel_us": "the same without the array of rows, as this library asks for it",
            "copy_percent": "bytes that the hop must move over kernel time, as a share of the copy bandwidth",
            "compute_percent, memory_percent": f"throughput of multiprocessors and memory, share of the "
            f"peak, of the draw into COO arrays: {origin}",
        },
        "verification": verification, "graphs": session.facts(names), "rows": rows,
    }  # fmt: skip


def _timed(
    session: Session, measure: Callable[..., list[float]], *arguments: Any
) -> Callable[[], list[float]]:
    return lambda: measure(session, *arguments)


def _preprocess_times(session: Session, rotation: PerHopRotation, hop: int) -> list[float]:
    """Host microseconds from a hop's vertices until its draw is launched: median over the batches, one a pass.

    What the paper counts as preprocessing: transfers between host and device, host functions before the kernel, and
    its launch.
    """
    import cupy

    sampler, medians = rotation.sampler, []
    ids = rotation.neighbors.dtype

    def taken() -> list[float]:
        times = []
        for batch, one in enumerate(rotation.recorded):
            cupy.cuda.Device().synchronize()
            began = time.perf_counter()
            work = sampler.prepare(one.frontiers[hop], hop)
            out = (cupy.empty(max(1, work.total), np.int32), cupy.empty(work.total, ids),
                   cupy.empty(work.total, np.int64))  # fmt: skip
            sampler.launch_draw(work, hop, batch, out)
            times.append((time.perf_counter() - began) * 1e6)
        return times

    for _ in range(session.passes + 1):
        medians.append(statistics.median(quick_pass(taken, taken)))
    return medians[1:]


def _cold_times(session: Session, rotation: PerHopRotation, hop: int, coo: bool = False) -> list[float]:
    """Microseconds of one hop's draw, each with a cold L2: median over the batches, one a pass.

    What makes the L2 cold keeps the GPU busy, too, while the host launches: the events enclose the kernel alone.
    """
    import cupy

    lead_in, medians = session.kept("lead-in", floor.lead_in), []
    for _ in range(session.passes + 1):
        marks = []
        for batch in range(len(rotation.recorded)):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            lead_in()
            begin.record()
            rotation.draw(batch, hop, coo)
            end.record()
            marks.append((begin, end))
        cupy.cuda.get_current_stream().synchronize()
        medians.append(
            statistics.median(cupy.cuda.get_elapsed_time(begin, end) * 1e3 for begin, end in marks)
        )
    return medians[1:]


def _compare(
    session: Session, name: str, batch_size: int, fanouts: tuple[int, ...], strategies: tuple[str, ...]
) -> dict[str, Any]:
    """Kernel times of ``strategies`` on the same recorded batches: a piece of a suite."""
    given = name, batch_size, fanouts, strategies
    row: dict[str, Any] = session.piece(given, functools.partial(_compared, session, *given))
    return row


def _compared(
    session: Session, name: str, batch_size: int, fanouts: tuple[int, ...], strategies: tuple[str, ...]
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "graph": name, "batch_size": batch_size, "fanout": fanouts[0], "hops": len(fanouts),
        **workload(session.recorded(name, batch_size, fanouts, PICK)),
        "l2": session.l2_state(name, batch_size, fanouts, PICK), "kernel_us": {}, "spread": {}, "best": {}, "sweep": {},
    }  # fmt: skip
    for strategy in strategies:
        found = session.kernel_us(name, batch_size, fanouts, strategy, PICK)
        row["kernel_us"][strategy] = found["us"]
        row["spread"][strategy] = timing.around(found)
        row["best"][strategy], row["sweep"][strategy] = found["best"], found["sweep"]
    times = ", ".join(f"{strategy} {us:.0f}" for strategy, us in row["kernel_us"].items())
    session.say(f"{name} {batch_size} x {list(fanouts)}: {times} us")
    return row


def grid(quick: bool) -> list[tuple[int, tuple[int, ...]]]:
    """(batch, fanouts) of figures 8 and 9: the paper's 2048-10240 x 10-20 x 2-3 hops, and smaller ones."""
    if quick:
        shapes = [(10,) * 3, (20,) * 3, (10,) * 2]
        pairs = [(batch, shape) for shape in shapes for batch in (256, 1024, 2048, 10240)]
        return [*pairs, (8192, (15,) * 3)]
    smaller = [(batch, (10,) * 3) for batch in (256, 512, 1024)]
    return [*smaller, *((batch, (5,) * 3) for batch in (256, 1024, 2048, 10240)), *few(False)]


def few(quick: bool) -> list[tuple[int, tuple[int, ...]]]:
    """(batch, fanouts) of figure 8's averages; in a quick run the least and the most of them."""
    pairs = [(batch, fanout) for batch in (2048, 4096, 8192, 10240) for fanout in (10, 15, 20)]
    if quick:
        pairs = [pairs[0], pairs[-1]]
    return [(batch, (fanout,) * hops) for hops in (3, 2) for batch, fanout in pairs]


def settings_of(name: str, quick: bool) -> list[tuple[int, tuple[int, ...]]]:
    """(batch, fanouts) of a graph in figures 8 and 9: all of :func:`grid`, or on most of the paper's graphs its own."""
    whole = _twin(name) not in AVERAGES or (_twin(name) in GRAPHS and not quick)
    return grid(quick) if whole else few(quick)


def figure8(session: Session) -> dict[str, Any]:
    """Kernel speed-up of the queue strategies over ``block-bsp``, on the paper's six graphs beside its averages."""
    names, rivals = session.graphs("rmat", *AVERAGES), (PUBLISHED_QUEUE, "persistent", "persistent-tile")
    verification = session.verify(names, ["block-bsp", *rivals], [PICK])
    rows = []
    for name in names:
        for batch_size, fanouts in settings_of(name, session.quick):
            row = _compare(session, name, batch_size, fanouts, ("block-bsp", *rivals))
            fixed = row["sweep"]["block-bsp"].get(DGL_THREADS)
            row["dgl_threads_us"] = fixed if isinstance(fixed, float) else None
            row["speedup"] = {
                rival: row["kernel_us"]["block-bsp"] / row["kernel_us"][rival] for rival in rivals
            }
            if row["dgl_threads_us"] is not None:
                row["over_dgl_threads"] = {
                    rival: row["dgl_threads_us"] / row["kernel_us"][rival] for rival in rivals
                }
            rows.append(row)
    return {
        "settings": {
            "pick": PICK, "baseline": "block-bsp, best of its threads in every row", "dgl_threads": DGL_THREADS,
            **QUEUES, "timing": TIMING,
        },
        "verification": verification, "graphs": session.facts(names), "rows": rows, "crossovers": crossovers(rows),
        "averages": averages(rows),
    }  # fmt: skip


def _twin(name: str) -> str:
    """A graph's name without its scale."""
    return scaled(name)[0]


def averages(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per graph of figure 8, the mean speed-up of both queues over both baselines, and the paper's average.

    Over the settings that the paper averages: 2 048 to 10 240 seeds, fanouts 10 to 20, two and three hops.
    """
    found = []
    for name in dict.fromkeys(row["graph"] for row in rows if _twin(row["graph"]) in AVERAGES):
        of = [
            row
            for row in rows
            if row["graph"] == name and row["batch_size"] >= 2048 and 10 <= row["fanout"] <= 20
        ]
        if of:
            found.append({
                "graph": name, "settings": len(of), "paper": AVERAGES[_twin(name)], **_means(of, "persistent"),
                **{f"published_{key}": mean for key, mean in _means(of, PUBLISHED_QUEUE).items()},
            })  # fmt: skip
    return found


def _means(rows: list[dict[str, Any]], queue: str) -> dict[str, float | None]:
    """Over the baseline at its best and with DGL's threads; None where rows have no such number."""
    over: dict[str, list[float]] = {
        key: [row[of][queue] for row in rows if queue in row.get(of, {})]
        for key, of in (("over_swept", "speedup"), ("over_dgl_threads", "over_dgl_threads"))
    }
    return {key: statistics.mean(each) if len(each) == len(rows) else None for key, each in over.items()}


def crossovers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per graph and fanouts, the first batch at which ``persistent`` is slower than ``block-bsp``; None if none is."""
    series: dict[tuple[str, int, int], list[tuple[int, float]]] = {}
    for row in rows:
        key = row["graph"], row["fanout"], row["hops"]
        series.setdefault(key, []).append((row["batch_size"], row["speedup"]["persistent"]))
    return [
        {
            "graph": graph, "fanout": fanout, "hops": hops,
            "slower_from_batch": next((batch for batch, speedup in sorted(points) if speedup < 1), None),
        }
        for (graph, fanout, hops), points in series.items()
    ]  # fmt: skip


def table3(session: Session) -> dict[str, Any]:
    """Speed-up over ``block-bsp`` of PGSampler's and TurboGNN's execution, each at its paper's setting."""
    cases = [case for case in TABLE3 if session.chosen is None or case["graph"] in session.chosen]
    if not cases:
        raise Unavailable(
            f"graph must be one of table III's, {sorted({c['graph'] for c in TABLE3})} (got {session.chosen})"
        )
    names = list(dict.fromkeys(case["graph"] for case in cases))
    rivals = (PUBLISHED_QUEUE, "persistent", "persistent-tile", "turbo-bsp")
    verification = session.verify(names, ["block-bsp", *rivals], [PICK])
    rows = []
    for case in cases:
        turbo_only = case["system"] == "TurboGNN"
        strategies = ("block-bsp", "turbo-bsp") if turbo_only else ("block-bsp", *rivals)
        row = _compare(session, case["graph"], case["batch_size"], (case["fanout"],) * 3, strategies)
        base = row["kernel_us"]["block-bsp"]
        row["speedup"] = {s: base / row["kernel_us"][s] for s in strategies if s != "block-bsp"}
        rows.append({**row, "system": case["system"], "paper_speedup": case["speedup"]})
    return {
        "settings": {"pick": PICK, "baseline": "block-bsp", **QUEUES, "timing": TIMING},
        "verification": verification, "graphs": session.facts(names), "rows": rows,
        "notes": [
            "The paper's figures are from a Tesla P40 (PGSampler) and a Tesla P100 (TurboGNN, by its own paper).",
            "Batches larger than the training split are drawn from all vertices.",
        ],
    }  # fmt: skip


def figure10(session: Session) -> dict[str, Any]:
    """Kernel time of fusion without balancing (``fused-static``) against the queue, as published and ours."""
    names, queues = session.graphs("rmat", *AVERAGES), (PUBLISHED_QUEUE, "persistent")
    verification = session.verify(names, ("fused-static", *queues), [PICK])
    rows = []
    for name in names:
        for hops in (2, 3):
            for batch_size in (2048, 10240) if session.quick else (2048, 4096, 8192, 10240):
                for fanout in (10,) if session.quick else (10, 15, 20):
                    row = _compare(session, name, batch_size, (fanout,) * hops, ("fused-static", *queues))
                    us = row["kernel_us"]
                    row["speedup"] = {queue: us["fused-static"] / us[queue] for queue in queues}
                    rows.append(row)
    return {
        "settings": {
            "pick": PICK, "baseline": "fused-static", "one_shot_blocks": "as many as tasks may exist", **QUEUES,
            "timing": TIMING,
        },
        "verification": verification, "graphs": session.facts(names), "rows": rows,
    }  # fmt: skip
