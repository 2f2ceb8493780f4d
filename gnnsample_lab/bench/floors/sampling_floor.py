"""Every strategy against the replay floor: the time of reading and writing the same sample."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench.session import PASSES, Session, workload

from . import floor

PICK = "floyd"
LADDER = ("captured", "grid-barrier", "persistent-tile", "persistent")
"""Up to deduplicated picks in global ids. `captured` runs the kernels of `bsp`; only its launch differs."""
DRAWS_ALONE = ("block-bsp", "edge-bsp", "turbo-bsp")
"""Timed without counts, scans and deduplication, so their ratio flatters them."""


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


def run(session: Session) -> dict[str, Any]:
    """The floor, the computed bound, and each strategy's ratio to the floor."""
    names = session.graphs()
    verification = session.verify(names, [*LADDER, *DRAWS_ALONE], [PICK])
    constants = session.constants or floor.machine_constants()
    session.constants = constants
    session.say(", ".join(f"{name} {value:.1f}" for name, value in constants.items()))
    rows = []
    for name in names:
        for batch_size, fanout in pairs(session.quick):
            rows.append(_row(session, name, batch_size, (fanout,) * 3, constants))
    return {
        "settings": {
            "pick": PICK, "hops": 3, "constants": constants, "unrolls": floor.UNROLLS,
            "blocks_per_sm": floor.BLOCKS_PER_SM, "passes": PASSES,
            "timing": "CUDA graphs over rotating batches that touch more than 4 x L2; floor and strategies alike",
            "ladder": "up to deduplicated frontiers and picks in global ids; no local ids",
            "draws_alone": "per-hop baselines: draw kernels only, on recorded frontiers, no deduplication",
        },
        "verification": verification, "graphs": session.facts(names), "rows": rows,
    }  # fmt: skip


def _row(
    session: Session, name: str, batch_size: int, fanouts: tuple[int, ...], constants: dict[str, float]
) -> dict[str, Any]:
    recorded = session.recorded(name, batch_size, fanouts, PICK)
    replayed = floor.replay_floor(session.graph(name), recorded)
    row: dict[str, Any] = {
        "graph": name, "batch_size": batch_size, "fanout": fanouts[0], "hops": len(fanouts), **workload(recorded),
        "floor_us": replayed["us"], "floor_best": replayed["best"], "floor_sweep": replayed["sweep"],
        "bound_us": floor.computed_bound_us(recorded, constants), "kernel_us": {}, "ratio": {}, "best": {}, "sweep": {},
    }  # fmt: skip
    for strategy in (*LADDER, *DRAWS_ALONE):
        found = session.kernel_us(name, batch_size, fanouts, strategy, PICK)
        row["kernel_us"][strategy], row["ratio"][strategy] = found["us"], found["us"] / replayed["us"]
        row["best"][strategy], row["sweep"][strategy] = found["best"], found["sweep"]
    row["best_strategy"] = min(LADDER, key=row["kernel_us"].__getitem__)
    row["best_ratio"] = row["ratio"][row["best_strategy"]]
    session.say(
        f"{name} {batch_size} x {list(fanouts)}: floor {replayed['us']:.1f} us ({replayed['best']}), "
        f"bound {row['bound_us']:.1f} us, {row['best_strategy']} {row['best_ratio']:.2f} x"
    )
    return row
