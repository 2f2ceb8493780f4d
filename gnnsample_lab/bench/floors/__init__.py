"""Floors: how fast any kernel could do the memory accesses of a given sample or walk."""

from __future__ import annotations

from gnnsample_lab.bench.suite import WORK, Columns, Record, Suite
from gnnsample_lab.bench.targets import Target, at_most, task


def columns(record: Record) -> Columns:
    """A row each for a mini-batch alone in turn, together with others, and for the host."""
    if record["rows"] and "what" not in record["rows"][0]:
        return _one_floor(record)
    ladder = list(dict.fromkeys(name for row in record["rows"] for name in row.get("ratios", {})))
    return {
        **WORK, "what": "what", "L2": "l2", "bound us": "bound_us", "floor us": "floor_us", "p10": "floor_p10_us",
        "p90": "floor_p90_us", "us": "us", "p10 ": "p10_us", "p90 ": "p90_us", "by": "best_strategy", "x": "ratio",
        "at most": "target", "met": "met", "GPU busy us": "gpu_us", "host us": "host_us",
        **{f"{name} x": f"ratios.{name}" for name in ladder},
    }  # fmt: skip


def _one_floor(record: Record) -> Columns:
    """Of records from before there were two floors."""
    ladder = list(record["rows"][0]["ratio"])
    return {
        **WORK, "floor us": "floor_us", "bound us": "bound_us", **{f"{name} x": f"ratio.{name}" for name in ladder},
        "best x": "best_ratio",
    }  # fmt: skip


def targets(record: Record) -> list[Target]:
    """The best strategy over each floor, on each graph by itself; the table has every row with its own limit."""
    found = []
    rows = [row for row in record["rows"] if row.get("target") is not None]
    for what, limit, graph in sorted({(row["what"], row["target"], row["graph"]) for row in rows}):
        of = [row for row in rows if (row["what"], row["target"], row["graph"]) == (what, limit, graph)]
        met = sum(row["ratio"] <= limit for row in of)
        label = f"best strategy over the {what} floor, {graph}, met in {met} of {len(of)} rows"
        found += at_most(label, limit, "x", [(row["ratio"], task(row)) for row in of])
    return found


SUITES = (
    Suite(
        "sampling-floor", "floors.sampling_floor.run", "sampling over the floors of latency and throughput; the host",
        columns=columns, targets=targets,
    ),
)  # fmt: skip
