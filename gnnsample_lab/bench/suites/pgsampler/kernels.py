"""PGSampler's tables and figures of kernel time: table I, figure 8, table III, figure 10.

All strategies of a comparison use the same pick, ``reservoir``, and so the same number of generator calls. Kernel
time of the per-hop baselines is that of their draw kernels alone; that of the queue strategies includes
deduplication and the merging of duplicate seeds.
"""

from __future__ import annotations

import statistics
from typing import Any

from gnnsample_lab.bench.floors.candidates_per_hop import PerHopRotation
from gnnsample_lab.bench.session import PASSES, Session, knob_points, workload
from gnnsample_lab.bench.suite import Unavailable
from gnnsample_lab.minibatch.gpu.run import copy_bandwidth_gbps
from gnnsample_lab.minibatch.sampler import NeighborSampler

from .papers import TABLE3

PICK = "reservoir"
TIMING = f"CUDA graphs over rotating batches that touch more than 4 x L2, median of {PASSES} passes, best of the sweep"


def table1(session: Session) -> dict[str, Any]:
    """Per hop: workload, preprocessing, kernel time and share of the copy bandwidth of ``block-bsp``."""
    batch_size, fanouts = 2048, (10, 10, 10)
    names = session.graphs("products-like")
    verification = session.verify(names, ["block-bsp"], [PICK])
    rows: list[dict[str, Any]] = []
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
        gbps = copy_bandwidth_gbps()
        for hop in range(len(fanouts)):
            sweep = {label: _cold_us(rotation, hop) for label, rotation in rotations.items()}
            best = min(sweep, key=sweep.__getitem__)
            moved = statistics.mean(int(trace.hops.bytes_moved[hop]) for trace in traces)
            rows.append({
                "graph": name, "hop": hop + 1,
                "workload": round(statistics.mean(int(trace.hops.workload[hop]) for trace in traces)),
                "picks": round(statistics.mean(int(trace.hops.num_picks[hop]) for trace in traces)),
                "pre_us": statistics.median(float(trace.hops.preprocess_us[hop]) for trace in traces),
                "kernel_us": sweep[best], "best": best, "sweep": sweep,
                "traced_kernel_us": statistics.median(float(trace.hops.kernel_us[hop]) for trace in traces),
                "bytes_moved": moved, "copy_percent": 100 * moved / (sweep[best] * 1e3) / gbps,
            })  # fmt: skip
    return {
        "settings": {
            "strategy": "block-bsp", "pick": PICK, "batch_size": batch_size, "fanouts": fanouts,
            "copy_bandwidth_gbps": copy_bandwidth_gbps(),
            "pre_us": "measured trace: counts, scan, host synchronisation, allocation, up to the launch of the draw",
            "kernel_us": "the draw kernel between two events, L2 flushed before; median of batches, best of the sweep",
            "copy_percent": "bytes that the hop must move over kernel time, as a share of the copy bandwidth",
        },
        "verification": verification, "graphs": session.facts(names), "rows": rows,
    }  # fmt: skip


def _cold_us(rotation: PerHopRotation, hop: int) -> float:
    """Median time of one hop's draw over the batches, each with a flushed L2.

    The flush also keeps the GPU busy while the host launches, so the events enclose the kernel and nothing else.
    """
    import cupy

    flush = cupy.empty(1 << 29, cupy.uint8)
    times: list[float] = []
    for warm in (True, False):
        marks = []
        for batch in range(len(rotation.recorded)):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            flush.data.memset_async(0, flush.nbytes)
            begin.record()
            rotation.draw(batch, hop)
            end.record()
            marks.append((begin, end))
        cupy.cuda.get_current_stream().synchronize()
        if not warm:
            times = [cupy.cuda.get_elapsed_time(begin, end) * 1e3 for begin, end in marks]
    return statistics.median(times)


def _compare(
    session: Session, name: str, batch_size: int, fanouts: tuple[int, ...], strategies: tuple[str, ...]
) -> dict[str, Any]:
    """Kernel times of ``strategies`` on the same recorded batches."""
    row: dict[str, Any] = {
        "graph": name, "batch_size": batch_size, "fanout": fanouts[0], "hops": len(fanouts),
        **workload(session.recorded(name, batch_size, fanouts, PICK)), "kernel_us": {}, "best": {}, "sweep": {},
    }  # fmt: skip
    for strategy in strategies:
        found = session.kernel_us(name, batch_size, fanouts, strategy, PICK)
        row["kernel_us"][strategy] = found["us"]
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
    shapes = [(fanout,) * hops for hops in (3, 2) for fanout in (5, 10, 15, 20)]
    return [(batch, shape) for shape in shapes for batch in (256, 512, 1024, 2048, 4096, 8192, 10240)]


def figure8(session: Session) -> dict[str, Any]:
    """Kernel speed-up of the queue strategies over ``block-bsp``, and where it ends."""
    names, rivals = session.graphs(), ("persistent", "persistent-tile")
    verification = session.verify(names, ["block-bsp", *rivals], [PICK])
    rows = []
    for name in names:
        for batch_size, fanouts in grid(session.quick):
            row = _compare(session, name, batch_size, fanouts, ("block-bsp", *rivals))
            row["speedup"] = {
                rival: row["kernel_us"]["block-bsp"] / row["kernel_us"][rival] for rival in rivals
            }
            rows.append(row)
    return {
        "settings": {"pick": PICK, "baseline": "block-bsp", "fetch_size": 5, "timing": TIMING},
        "verification": verification, "graphs": session.facts(names), "rows": rows, "crossovers": crossovers(rows),
    }  # fmt: skip


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
    rivals = ("persistent", "persistent-tile", "turbo-bsp")
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
        "settings": {"pick": PICK, "baseline": "block-bsp", "fetch_size": 5, "timing": TIMING},
        "verification": verification, "graphs": session.facts(names), "rows": rows,
        "notes": [
            "The paper's figures are from a Tesla P40 (PGSampler) and a Tesla P100 (TurboGNN, by its own paper).",
            "Batches larger than the training split are drawn from all vertices.",
        ],
    }  # fmt: skip


def figure10(session: Session) -> dict[str, Any]:
    """Kernel time of fusion without balancing (``fused-static``) against ``persistent``."""
    names, pair = session.graphs(), ("fused-static", "persistent")
    verification = session.verify(names, pair, [PICK])
    rows = []
    for name in names:
        for hops in (2, 3):
            for batch_size in (2048, 10240) if session.quick else (2048, 4096, 8192, 10240):
                for fanout in (10,) if session.quick else (10, 15, 20):
                    row = _compare(session, name, batch_size, (fanout,) * hops, pair)
                    row["speedup"] = {
                        "persistent": row["kernel_us"]["fused-static"] / row["kernel_us"]["persistent"]
                    }
                    rows.append(row)
    return {
        "settings": {"pick": PICK, "baseline": "fused-static", "fetch_size": 5, "timing": TIMING},
        "verification": verification, "graphs": session.facts(names), "rows": rows,
    }  # fmt: skip
