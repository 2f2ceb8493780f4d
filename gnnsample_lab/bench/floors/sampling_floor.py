"""Our sampling against two floors, in turn and together, and what the host adds: ``bench sampling-floor``."""

from __future__ import annotations

import functools
from typing import Any

from gnnsample_lab.bench import timing
from gnnsample_lab.bench.session import FUSED, Session, call_together, settle, workload

from . import floor
from .bound import refuse_undercut

PICK = "floyd"
LADDER = ("captured", "grid-barrier", "persistent-tile", "persistent")
"""Up to deduplicated picks in global ids. `captured` runs the kernels of `bsp`; only its launch differs."""
DRAWS_ALONE = ("block-bsp", "edge-bsp", "turbo-bsp")
"""Timed without counts, scans and deduplication, so their ratio flatters them."""
TOGETHER = ("captured", "persistent-tile")
"""Strategies that are timed with several mini-batches in a launch."""
SIZES = {True: (4, 8, 32), False: (2, 4, 8, 16, 32)}
"""Mini-batches in a launch, of a quick and of a full run."""
MORE, FEW_SEEDS = (64, 128), 256
"""Of a full run, too, where a mini-batch has so few seeds that 32 of them are too little work for a launch."""
_ALONE = 8
"""Mini-batches that the host samples one by one."""
MUCH = 1_000_000
"""Picks of a mini-batch from which its work, and not its launches and their latency, takes most of the time."""


def pairs(quick: bool) -> list[tuple[int, int]]:
    """(batch, fanout), 3 hops."""
    if quick:
        return [
            (256, 10),
            (1024, 10),
            (2048, 5),
            (2048, 10),
            (2048, 20),
            (8192, 15),
            (10240, 10),
            (10240, 20),
        ]
    return [(batch, fanout) for batch in (256, 1024, 2048, 8192, 10240) for fanout in (5, 10, 15, 20)]


def limit(what: str, batch_size: int, picks: int) -> float | None:
    """The target for a row: how many times its floor a mini-batch may take. None where there is none."""
    if what == "throughput":
        return 1.6
    if what != "latency":
        return None
    return 1.4 if batch_size >= 2048 and picks >= MUCH else 2.0


def run(session: Session) -> dict[str, Any]:
    """Three rows for every configuration: in turn, together, and the host."""
    names = session.graphs()
    verification = session.verify(names, [*LADDER, *DRAWS_ALONE], [PICK])
    constants = session.piece(("constants",), lambda: session.constants or floor.machine_constants())
    session.constants = constants
    session.say(", ".join(f"{name} {value:.1f}" for name, value in constants.items()))
    rows: list[dict[str, Any]] = []
    for name in names:
        for batch_size, fanout in pairs(session.quick):
            make = functools.partial(_rows, session, name, batch_size, (fanout,) * 3, constants)
            rows += session.piece((name, batch_size, fanout), make)
    return {
        "settings": {
            "pick": PICK, "hops": 3, "constants": constants, "unrolls": floor.UNROLLS,
            "blocks_per_sm": floor.BLOCKS_PER_SM, "passes": session.passes, "much_work_picks": MUCH,
            "latency": "mini-batches one after another in one CUDA graph, hops in order; floor and strategies alike",
            "throughput": "mini-batches together, all hops in one launch, against launches of sample_many in one graph",
            "host": "wall time of sample() and sample_many(), with local ids, less the time that the GPU is busy",
            "l2": "cold: what all mini-batches of a pass read, counted once, is more than 4 x L2",
            "bound": "bytes that memory moves at least at the rate of a sequential read, or the dependent accesses",
            "ladder": "up to deduplicated frontiers and picks in global ids; no local ids",
            "draws_alone": "per-hop baselines: draw kernels only, on recorded frontiers, no deduplication",
        },
        "verification": verification, "graphs": session.facts(names), "rows": rows,
    }  # fmt: skip


def _rows(
    session: Session, name: str, batch_size: int, fanouts: tuple[int, ...], constants: dict[str, float]
) -> list[dict[str, Any]]:
    recorded = session.recorded(name, batch_size, fanouts, PICK)
    base = {
        "graph": name, "batch_size": batch_size, "fanout": fanouts[0], "hops": len(fanouts), **workload(recorded),
        "l2": session.l2_state(name, batch_size, fanouts, PICK),
    }  # fmt: skip
    bounds = floor.bounds_us(recorded, constants, session.l2_bytes())
    lead_in = session.kept("lead-in", floor.lead_in)
    replay = floor.Replay(session.graph(name), recorded)
    floors = {
        "latency": floor.latency_floor(replay, lead_in, session.passes, session.quick),
        "throughput": floor.throughput_floor(replay, lead_in, session.passes, session.quick),
    }
    del replay
    alone = {
        s: session.kernel_us(name, batch_size, fanouts, s, PICK, chained=True)
        for s in (*LADDER, *DRAWS_ALONE)
    }
    sizes = SIZES[session.quick] + (MORE if batch_size <= FEW_SEEDS and not session.quick else ())
    together = {s: session.together_us(name, batch_size, fanouts, s, PICK, sizes) for s in TOGETHER}
    rows = [
        _against(base, "latency", floors["latency"], bounds["latency"], alone, LADDER),
        _against(base, "throughput", floors["throughput"], bounds["throughput"], together, TOGETHER),
    ]
    for row in rows:
        session.say(
            f"{name} {batch_size} x {list(fanouts)}, {row['what']}: floor {row['floor_us']:.1f} us "
            f"({row['floor_best']}), bound {row['bound_us']:.1f} us, {row['best_strategy']} {row['ratio']:.2f} x"
        )
    return [*rows, *host_rows(session, base, name, batch_size, fanouts)]


def _against(
    base: dict[str, Any], what: str, floor_: dict[str, Any], bound_us: float, timed: dict[str, dict[str, Any]],
    ladder: tuple[str, ...],
) -> dict[str, Any]:  # fmt: skip
    """One row: the floor, and every strategy's time and ratio; the best of ``ladder`` is the row's."""
    row = {
        **base, "what": what, "floor_us": floor_["us"], "floor_p10_us": floor_["p10_us"],
        "floor_p90_us": floor_["p90_us"], "floor_best": floor_["best"], "floor_sweep": floor_["sweep"],
        "passes": floor_["passes"], "bound_us": bound_us,
        "kernel_us": {s: found["us"] for s, found in timed.items()},
        "ratios": {s: found["us"] / floor_["us"] for s, found in timed.items()},
        "best": {s: found["best"] for s, found in timed.items()},
        "sweep": {s: found["sweep"] for s, found in timed.items()},
    }  # fmt: skip
    where = f"{base['graph']}, {base['batch_size']} seeds x {base['fanout']}, {what}"
    refuse_undercut(where, bound_us, [floor_["p10_us"], *(found["p10_us"] for found in timed.values())])
    best = min(ladder, key=lambda s: timed[s]["us"])
    row |= {
        "best_strategy": best, "us": timed[best]["us"], "p10_us": timed[best]["p10_us"],
        "p90_us": timed[best]["p90_us"], "ratio": row["ratios"][best],
    }  # fmt: skip
    row["target"] = limit(what, base["batch_size"], base["picks"])
    row["met"] = "yes" if row["ratio"] <= row["target"] else "NO"
    return row


def host_rows(
    session: Session, base: dict[str, Any], name: str, batch_size: int, fanouts: tuple[int, ...]
) -> list[dict[str, Any]]:
    """What the host adds to the GPU's work for a mini-batch with local ids: alone, and :data:`FUSED` in a call."""
    rows = []
    for count in (1, FUSED):
        total = max(_ALONE, 2 * count)
        seeds = session.batches(name, batch_size, total)
        groups = [seeds[i : i + count] for i in range(0, total, count)]
        sampler = session.sampler(name, fanouts, "captured", PICK)
        settle(sampler, groups)
        call = functools.partial(call_together, sampler, groups)
        wall = timing.spread([us / count for us in timing.wall_times(call, len(groups), session.passes)])
        busy = timing.busy_us(call, len(groups))
        rows.append({
            **base, "what": f"host, {count} in a call", "best_strategy": "captured", **wall,
            "gpu_us": None if busy is None else busy / count,
            "host_us": None if busy is None else wall["us"] - busy / count,
            "l2": session.l2_state(name, batch_size, fanouts, PICK, total),
        })  # fmt: skip
    return rows
