"""What the library set out to reach, computed from a recorded suite: one definition for runs and reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import targets_data
from .papers import CUGRAPH, DGL_LIKE_H200
from .suites.nextdoor import targets as targets_nextdoor
from .target import Target, at_least, at_most

__all__ = ["Target", "of"]


def of(record: dict[str, Any]) -> list[Target]:
    """The targets that ``record`` says something about; none for suites without any."""
    makers: dict[str, Callable[[dict[str, Any]], list[Target]]] = {
        **targets_data.MAKERS, **targets_nextdoor.MAKERS,
        "sampling-floor": _floor, "pgsampler-fig8": _figure8, "pgsampler-fig9": _figure9,
        "whole-process": _whole_process, "papers100m-rmat": _papers100m, "fusing": _fusing, "cpu": _cpu,
        "explorers": _explorers,
    }  # fmt: skip
    maker = makers.get(record["suite"])
    return maker(record) if maker else []


def _where(row: dict[str, Any]) -> str:
    return f"{row['graph']}, {row['batch_size']} seeds x {tuple([row['fanout']] * row['hops'])}"


def _floor(record: dict[str, Any]) -> list[Target]:
    found = []
    for what, limit, low, high in (
        ("best strategy over the replay floor, from 2 048 seeds", 2.0, 2048, 1 << 40),
        ("best strategy over the replay floor, 1 024 seeds", 2.5, 1024, 1024),
        ("best strategy over the replay floor, 256 seeds", 3.5, 256, 256),
    ):
        rows = [row for row in record["rows"] if low <= row["batch_size"] <= high]
        found += at_most(what, limit, "x", [(row["best_ratio"], _where(row)) for row in rows])
    return found


def _figure8(record: dict[str, Any]) -> list[Target]:
    rows = record["rows"]

    def speedups(strategy: str, most: int = 1 << 40) -> list[tuple[float, str]]:
        return [(row["speedup"][strategy], _where(row)) for row in rows if row["batch_size"] <= most]

    tile = speedups("persistent-tile")
    return [
        *at_least("persistent over block-bsp, kernels, up to 2 048 seeds", 1.0, "x", speedups("persistent", 2048)),
        *at_least("persistent over block-bsp, kernels, at its best", 1.57, "x", speedups("persistent"), best=True),
        *at_least("persistent over block-bsp, kernels, everywhere", 0.9, "x", speedups("persistent")),
        *at_least("persistent-tile over block-bsp, kernels, everywhere", 2.0, "x", tile),
        *_against_dgl_like(record, "block-bsp, kernels, over a DGL-like sampler's", 1, "kernel_us"),
    ]  # fmt: skip


def _figure9(record: dict[str, Any]) -> list[Target]:
    small = [(r["speedup"]["best"], _where(r)) for r in record["rows"] if r["batch_size"] <= 1024]
    large = [(r["speedup"]["best"], _where(r)) for r in record["rows"] if r["batch_size"] > 1024]
    return [
        *at_least("best over block-bsp, whole process, up to 1 024 seeds", 10.0, "x", small),
        *at_least("best over block-bsp, whole process, above 1 024 seeds", 5.0, "x", large),
        *_against_dgl_like(record, "block-bsp, whole process, over a DGL-like sampler's", 0, "wall_us"),
    ]  # fmt: skip


def _against_dgl_like(record: dict[str, Any], what: str, which: int, times: str) -> list[Target]:
    """A baseline is as good as its system made it: only comparable on the card where the other was measured."""
    gpu = (record["environment"]["gpu"] or {}).get("name", "")
    points = []
    for row in record["rows"]:
        known = DGL_LIKE_H200.get((row["batch_size"], row["fanout"]))
        if "H200" in gpu and row["graph"] == CUGRAPH["graph"] and row["hops"] == 3 and known:
            points.append((row[times]["block-bsp"] / known[which], _where(row)))
    return at_most(what, 1.1, "x", points)


def _whole_process(record: dict[str, Any]) -> list[Target]:
    rows = [
        r
        for r in record["rows"]
        if (r["graph"], r["batch_size"], r["fanout"]) == (CUGRAPH["graph"], 1024, 10)
    ]
    fused = [(r["fused32_us"], _where(r)) for r in rows]
    return [
        *at_most("R-MAT, 1 024 x (10, 10, 10), alone", 120.0, "us", [(r["alone_us"], _where(r)) for r in rows]),
        *at_most("R-MAT, 1 024 x (10, 10, 10), 32 together, each", 50.0, "us", fused),
    ]  # fmt: skip


def _fusing(record: dict[str, Any]) -> list[Target]:
    points = [(row["ratio"], f"{_where(row)}, {row['in_a_call']} in a call") for row in record["rows"]]
    return at_most("several mini-batches in a call over one by one", 1.05, "x", points)


def _papers100m(record: dict[str, Any]) -> list[Target]:
    shares = [(row["scratch_bytes"] / row["scratch_limit_bytes"], _where(row)) for row in record["rows"]]
    return at_most("papers100M-sized graph: scratch memory over its limit", 1.0, "x", shares)


def _cpu(record: dict[str, Any]) -> list[Target]:
    rows = [row for row in record["rows"] if row["graph"] == "arxiv-like" and row["pick"] == "floyd"]
    points = [
        (row["edges_per_s"] / 1e6, f"{row['threads']} threads of {record['environment']['cpu']}")
        for row in rows
    ]
    return at_least("two CPU cores, 1 024 seeds, 3 hops", 10.0, "million edges/s", points)


def _explorers(record: dict[str, Any]) -> list[Target]:
    points = [(row["median_ms"], f"{row['explorer']}.{row['trait']}") for row in record["rows"]]
    if record["settings"]["device"] == "cpu":
        return at_most("trait change to finished figure, without a GPU", 1000.0, "ms", points)
    sampling = [p for p in points if p[1].startswith(("SampleExplorer", "WorkloadExplorer", "QueueExplorer"))]
    return at_most("trait change to finished figure, sampling explorers, with a GPU", 150.0, "ms", sampling)
