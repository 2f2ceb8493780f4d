"""Targets of PGSampler's suites: the queue against DGL's execution, mini-batches, several in a launch, scratch."""

from __future__ import annotations

from gnnsample_lab.bench.suite import Record
from gnnsample_lab.bench.targets import Point, Target, at_least, at_most, task

from .papers import CUGRAPH, DGL_LIKE_H200


def figure8(record: Record) -> list[Target]:
    """Kernels of the queue strategies over the baseline's."""
    rows = record["rows"]

    def speedups(strategy: str, most: int = 1 << 40) -> list[Point]:
        return [(row["speedup"][strategy], task(row)) for row in rows if row["batch_size"] <= most]

    tile = speedups("persistent-tile")
    return [
        *at_least("persistent over block-bsp, kernels, up to 2 048 seeds", 1.0, "x", speedups("persistent", 2048)),
        *at_least("persistent over block-bsp, kernels, at its best", 1.57, "x", speedups("persistent"), best=True),
        *at_least("persistent over block-bsp, kernels, everywhere", 0.9, "x", speedups("persistent")),
        *at_least("persistent-tile over block-bsp, kernels, everywhere", 2.0, "x", tile),
        *_against_dgl_like(record, "block-bsp, kernels, over a DGL-like sampler's", 1, "kernel_us"),
    ]  # fmt: skip


def figure9(record: Record) -> list[Target]:
    """Whole mini-batches over the baseline's."""
    small = [(r["speedup"]["best"], task(r)) for r in record["rows"] if r["batch_size"] <= 1024]
    large = [(r["speedup"]["best"], task(r)) for r in record["rows"] if r["batch_size"] > 1024]
    return [
        *at_least("best over block-bsp, whole process, up to 1 024 seeds", 10.0, "x", small),
        *at_least("best over block-bsp, whole process, above 1 024 seeds", 5.0, "x", large),
        *_against_dgl_like(record, "block-bsp, whole process, over a DGL-like sampler's", 0, "wall_us"),
    ]  # fmt: skip


def _against_dgl_like(record: Record, what: str, which: int, times: str) -> list[Target]:
    """The baseline over a DGL-like sampler; only on the card on which that sampler was measured."""
    gpu = (record["environment"]["gpu"] or {}).get("name", "")
    points = []
    for row in record["rows"]:
        known = DGL_LIKE_H200.get((row["batch_size"], row["fanout"]))
        if "H200" in gpu and row["graph"] == CUGRAPH["graph"] and row["hops"] == 3 and known:
            points.append((row[times]["block-bsp"] / known[which], task(row)))
    return at_most(what, 1.1, "x", points)


def whole_process(record: Record) -> list[Target]:
    """Wall times on the task of cuGraph's measurement."""
    wanted = (CUGRAPH["graph"], 1024, 10)
    rows = [r for r in record["rows"] if (r["graph"], r["batch_size"], r["fanout"]) == wanted]
    fused = [(r["fused32_us"], task(r)) for r in rows]
    return [
        *at_most("R-MAT, 1 024 x (10, 10, 10), alone", 120.0, "us", [(r["alone_us"], task(r)) for r in rows]),
        *at_most("R-MAT, 1 024 x (10, 10, 10), 32 together, each", 50.0, "us", fused),
    ]  # fmt: skip


def fusing(record: Record) -> list[Target]:
    """What is chosen is not slower than one by one."""
    points = [(row["ratio"], f"{task(row)}, {row['in_a_call']} in a call") for row in record["rows"]]
    return at_most("several mini-batches in a call over one by one", 1.05, "x", points)


def papers100m(record: Record) -> list[Target]:
    """Scratch memory keeps its limit."""
    shares = [(row["scratch_bytes"] / row["scratch_limit_bytes"], task(row)) for row in record["rows"]]
    return at_most("papers100M-sized graph: scratch memory over its limit", 1.0, "x", shares)
