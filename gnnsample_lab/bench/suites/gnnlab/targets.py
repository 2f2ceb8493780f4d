"""Targets of GNNLab's suites: hit rates, the bandwidth of extraction, weighted draws and walks."""

from __future__ import annotations

from gnnsample_lab.bench.record import scaled
from gnnsample_lab.bench.suite import Record, Row
from gnnsample_lab.bench.targets import Target, at_least, at_most, points_of

WELL_ABOVE = 1.2
TAILS = "uva, tails on the GPU, ours"
"""Transfer of the suite ``extraction`` by which what rows have over whole lines lies in device memory."""


def hit_rates(record: Record) -> list[Target]:
    """Of figure 10: PreSC against the optimal and against Degree."""
    rows = [row for row in record["rows"] if row["policy"] == "presample"]
    where = ("graph", "sampler")
    skewed = [row for row in rows if row["directed"]]
    above = [
        row for row in rows if scaled(row["graph"])[0] == "papers100M-like" or row["sampler"] == "weighted"
    ]
    return [
        *at_least(
            "PreSC#1 of the optimal hit rate, directed graphs", 0.9, "x", points_of(skewed, "of_optimal", *where)
        ),
        *at_least("PreSC#1 over Degree, everywhere", 1.0, "x", points_of(rows, "over_degree", *where)),
        *at_least(
            "PreSC#1 over Degree, papers100M-like and weighted", WELL_ABOVE, "x",
            points_of(above, "over_degree", *where),
        ),
    ]  # fmt: skip


def extraction(record: Record) -> list[Target]:
    """Of the transfer that is chosen, against a pinned copy; of rows of 400 bytes or more, of our best."""
    rows = [row for row in record["rows"] if row["transfer"] == "auto"]
    where = ("graph", "num_features", "cache_percent", "resolved")
    best: dict[tuple[str, int], Row] = {}
    for row in record["rows"]:
        if row["num_features"] >= 100 and not row["cache_percent"] and row["transfer"] in ("auto", TAILS):
            key = (row["graph"], row["num_features"])
            best[key] = max(best.get(key, row), row, key=lambda one: one["share"])
    return [
        *at_least(
            "missed rows of 400 bytes or more over the pinned copy bandwidth, nothing cached, our best", 0.88, "x",
            points_of(best.values(), "share", *where[:-1], "transfer"),
        ),
        *at_least(
            "missed rows over the pinned copy bandwidth, everywhere", 0.85, "x", points_of(rows, "share", *where)
        ),
    ]  # fmt: skip


def samplers(record: Record) -> list[Target]:
    """Weighted draws against alias tables; PinSAGE's mini-batch against the time of its kernels."""
    walked = [row for row in record["rows"] if row["part"] == "PinSAGE"]
    return [
        *at_least(
            "weighted draws over alias tables", 2.0, "x", points_of(record["rows"], "over_alias", "graph", "fanout")
        ),
        *at_most(
            "PinSAGE's mini-batch, alone and of 32 in a call, over its kernels", 1.5, "x",
            points_of(walked, "over_gpu", "graph", "seeds", "together"),
        ),
    ]  # fmt: skip
