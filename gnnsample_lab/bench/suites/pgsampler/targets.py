"""Targets of PGSampler's suites: the queue against DGL's execution, mini-batches, several in a launch, scratch."""

from __future__ import annotations

import itertools
from typing import Any

from gnnsample_lab.bench import peers
from gnnsample_lab.bench.noise import over_noise
from gnnsample_lab.bench.suite import Record
from gnnsample_lab.bench.targets import (
    Point,
    Target,
    at_least,
    at_most,
    of_card,
    on_each_graph,
    points_of,
    task,
)


def figure8(record: Record) -> list[Target]:
    """Kernels of the queue strategies over the baseline's, on each graph; on the paper's, beside its averages."""
    rows = record["rows"]

    def speedups(strategy: str, most: int = 1 << 40) -> list[Point]:
        return [(row["speedup"][strategy], task(row)) for row in rows if row["batch_size"] <= most]

    found = [
        *on_each_graph(at_least, "persistent over block-bsp, kernels, up to 2 048 seeds", 1.0, "x",
                       speedups("persistent", 2048)),
        *on_each_graph(at_least, "persistent over block-bsp, kernels, everywhere", 0.9, "x", speedups("persistent")),
        *on_each_graph(at_least, "persistent-tile over block-bsp, kernels, everywhere", 2.0, "x",
                       speedups("persistent-tile")),
    ]  # fmt: skip
    for mean in record.get("averages", []):
        where = f"{mean['graph']}, mean of {mean['settings']} settings"
        for form, prefix in (("the queue as published", "published_"), ("ours, teams of threads,", "")):
            for baseline, of in (
                ("of 128 threads", "over_dgl_threads"),
                ("at its best threads", "over_swept"),
            ):
                value = mean.get(prefix + of)
                points = [] if value is None else [(value, where)]
                what = f"{form} over block-bsp {baseline}, kernels, the paper's average, {mean['graph']}"
                found += at_least(what, mean["paper"], "x", points)
    return [
        *found,
        *_against_dgl_like(record, "block-bsp, kernels, over a DGL-like sampler's", 1, "kernel_us"),
    ]


def unsteady(record: Record) -> str:
    """Words for a record of figure 9 whose host was not quiet, else none.

    Fewer seeds took DGL's side longer than more of them did, which no sampler does.
    """
    times: dict[Any, list[tuple[int, float]]] = {}
    for row in record["rows"]:
        setting = row["graph"], row["fanout"], row["hops"]
        times.setdefault(setting, []).append((row["batch_size"], row["wall_us"]["block-bsp"]))
    pairs = [
        (less, more)
        for found in times.values()
        for (few, less), (many, more) in itertools.combinations(sorted(found), 2)
        if few < many
    ]
    wrong = sum(less > 1.1 * more for less, more in pairs)
    if wrong <= 0.02 * len(pairs):
        return ""
    return (
        f"DGL's side on a host that was not quiet: fewer seeds took longer in {wrong} of {len(pairs)} pairs"
    )


def figure9(record: Record) -> list[Target]:
    """Whole mini-batches over the baseline's, on each graph: with the same pick on both sides first, then mixed."""
    found, host = [], ", on a host that was not quiet" if unsteady(record) else ""
    for key, what in (
        ("best same pick, floyd", "both floyd"), ("best same pick", "both reservoir"),
        ("best", "mixed: floyd over reservoir"),
    ):  # fmt: skip
        for limit, words, low, high in ((10.0, "up to 1 024", 0, 1024), (5.0, "above 1 024", 1025, 1 << 40)):
            rows = [r for r in record["rows"] if low <= r["batch_size"] <= high and key in r["speedup"]]
            points = [(r["speedup"][key], task(r)) for r in rows]
            label = f"best over block-bsp, whole process, {what}, {words} seeds{host}"
            found += on_each_graph(at_least, label, limit, "x", points)
    return [
        *found,
        *_against_dgl_like(record, "block-bsp, whole process, over a DGL-like sampler's", 0, "wall_us"),
    ]


def _against_dgl_like(record: Record, what: str, which: int, times: str) -> list[Target]:
    """The baseline over a DGL-like sampler; only on the card on which that sampler was measured."""
    gpu = (record["environment"]["gpu"] or {}).get("name", "")
    points = []
    for row in record["rows"]:
        known = peers.DGL_LIKE_US.get((row["batch_size"], row["fanout"]))
        if peers.CARD in gpu and row["graph"] == peers.GRAPH and row["hops"] == 3 and known:
            points.append((row[times]["block-bsp"] / known[which], task(row)))
    return at_most(what, 1.1, "x", points)


def whole_process(record: Record) -> list[Target]:
    """Wall times on the task of cuGraph's measurement, on its card."""
    wanted = (peers.GRAPH, 1024, 10)
    rows = [r for r in record["rows"] if (r["graph"], r["batch_size"], r["fanout"]) == wanted]
    fused = [(r["fused32_us"], task(r)) for r in rows]
    alone = [(r["alone_us"], task(r)) for r in rows]
    found = at_most("R-MAT, 1 024 x (10, 10, 10), alone", 120.0, "us", alone)
    found += at_most("R-MAT, 1 024 x (10, 10, 10), 32 together, each", 50.0, "us", fused)
    return of_card(peers.CARD, record, found)


def figure11(record: Record) -> list[Target]:
    """The same accuracy; what the published completion rule does to it is shown, and no aim of ours."""
    differences = over_noise(record["rows"], "final_accuracy")
    rows = [row for row in differences if row["system"] == "pgsampler"]
    what = "difference of final accuracy from DGL's sampler's, over what its seeds differ by"
    return at_most(what, 1.0, "x", points_of(rows, "over_noise", "graph", "model"))


def fusing(record: Record) -> list[Target]:
    """What is chosen is not slower than one by one, on each graph."""
    points = [(row["ratio"], f"{task(row)}, {row['in_a_call']} in a call") for row in record["rows"]]
    return on_each_graph(at_most, "several mini-batches in a call over one by one", 1.0, "x", points)


def papers100m(record: Record) -> list[Target]:
    """Scratch memory keeps its limit."""
    shares = [(row["scratch_bytes"] / row["scratch_limit_bytes"], task(row)) for row in record["rows"]]
    return at_most("papers100M-sized graph: scratch memory over its limit", 1.0, "x", shares)
