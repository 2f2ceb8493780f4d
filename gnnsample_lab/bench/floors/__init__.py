"""Floors: how fast any kernel could do the memory accesses of a given sample or walk."""

from __future__ import annotations

from gnnsample_lab.bench.suite import WORK, Columns, Record, Suite
from gnnsample_lab.bench.targets import Target, at_most, task


def columns(record: Record) -> Columns:
    """One ratio for every strategy of the record."""
    ladder = list(record["rows"][0]["ratio"]) if record["rows"] else []
    return {
        **WORK, "floor us": "floor_us", "bound us": "bound_us", **{f"{name} x": f"ratio.{name}" for name in ladder},
        "best x": "best_ratio",
    }  # fmt: skip


def targets(record: Record) -> list[Target]:
    """The best strategy over the floor, by the number of seeds."""
    found = []
    for what, limit, low, high in (
        ("best strategy over the replay floor, from 2 048 seeds", 2.0, 2048, 1 << 40),
        ("best strategy over the replay floor, 1 024 seeds", 2.5, 1024, 1024),
        ("best strategy over the replay floor, 256 seeds", 3.5, 256, 256),
    ):
        rows = [row for row in record["rows"] if low <= row["batch_size"] <= high]
        found += at_most(what, limit, "x", [(row["best_ratio"], task(row)) for row in rows])
    return found


SUITES = (
    Suite(
        "sampling-floor", "floors.sampling_floor.run", "every strategy's ratio to the replay floor",
        columns=columns, targets=targets,
    ),
)  # fmt: skip
