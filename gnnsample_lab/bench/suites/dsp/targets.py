"""What sampling from a graph in parts aims at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gnnsample_lab.bench.targets import Point, Target, at_least, at_most, points_of

_CSP = ("csp", "csp-async", "csp-fixed")


def ladder(record: dict[str, Any]) -> list[Target]:
    """On two GPUs: with lists copied that save 80 % of the remote reads, and `direct` against collective sampling."""
    if record["settings"]["device"] != "cuda":
        return []
    rows = [r for r in record["rows"] if "us" in r and r["world"] == 2]
    random = [r for r in rows if r["graph"].startswith("rmat") and r["partition"] == "random"]
    cached = [r for r in random if r["method"] == "direct-cached" and r["saved_percent"] is not None]
    found = []
    for seeds, fanout, limit in ((1024, 10, 1.85), (8192, 15, 1.75)):
        chosen = [r for r in cached if (r["batch_size"], r["fanout"]) == (seeds, fanout)]
        found += at_least(
            f"two GPUs, random parts, 80 % of remote reads cached, {seeds} x {fanout}, over one with the whole graph",
            limit, "x",
            [(max(r["x_one"], r["x_many"]), f"{_where(r)}, {r['saved_share']:.1%} saved") for r in chosen],
        )  # fmt: skip
    found += at_least(
        "direct over the fastest collective method, 1 024 seeds", 2.0, "x", _over_csp(rows, 1024)
    )
    found += at_least(
        "direct over the fastest collective method, 8 192 seeds", 1.0, "x", _over_csp(rows, 8192)
    )
    csp = [
        (r["us"], _where(r)) for r in random if r["method"] == "csp" and (r["batch_size"], r["fanout"]) == (1024, 10)
    ]  # fmt: skip
    return found + at_most("csp on two GPUs, 1 024 x 10, 3 hops", 700.0, "us", csp)


def features(record: dict[str, Any]) -> list[Target]:
    """Rows of peers alone, all GPUs reading: against the copy of a peer's memory in order, and against all-to-all."""
    if record["settings"]["device"] != "cuda":
        return []
    remote = {(r["what"], r["transport"], r["row_bytes"]): r for r in record["rows"]}
    where = f"{record['settings']['ranks']} GPUs, {record['settings']['rows']} rows a GPU"
    shares, ratios = [], []
    for (what, transport, row_bytes), row in remote.items():
        if transport != "direct":
            continue
        here = f"{where}, {row_bytes} bytes each"
        if what == "remote, marked" and row_bytes == 512:
            shares.append((row["of_copy"], here))
        if what == "remote":
            ordered = remote[what, "all-to-all", row_bytes]
            ratios.append((row["gbps"] / ordered["gbps"], here))
    return [
        *at_least("direct, rows of 512 bytes of peers, of the copy of a peer's memory", 0.85, "x", shares),
        *at_least("direct over all-to-all that restores the order, rows of peers", 1.8, "x", ratios),
    ]


def _over_csp(rows: Iterable[dict[str, Any]], seeds: int) -> list[Point]:
    """How many times as fast ``direct`` is as the fastest collective method, where both were measured."""
    groups: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["batch_size"] == seeds and row["method"] in ("direct", *_CSP):
            groups.setdefault(_where(row), {})[row["method"]] = min(row["us"], row["many_us"])
    return [
        (min(us[m] for m in _CSP if m in us) / us["direct"], where)
        for where, us in groups.items()
        if "direct" in us and any(m in us for m in _CSP)
    ]


def _where(row: dict[str, Any]) -> str:
    draws = "with replacement" if row["replace"] else "without replacement"
    return f"{row['graph']}, {row['partition']} parts, {row['batch_size']} x {row['fanout']}, {draws}"


def volume(record: dict[str, Any]) -> list[Target]:
    """CSP below pull where the mean degree exceeds the fanout."""
    rows = [
        row for row in record["rows"]
        if row["pull_over_csp"] is not None and row["mean_degree"] > max(row["fanouts"])
    ]  # fmt: skip
    points = [
        (row["pull_over_csp"], f"{row['graph']}, {row['ranks']} {row['partition']} parts, {row['draws']}")
        for row in rows
    ]
    return at_least("bytes of pull over csp, where lists exceed the fanouts", 1.0, "x", points)


def pulling(record: dict[str, Any]) -> list[Target]:
    """Of biased draws, figure 11: csp moves less than pull, and is faster."""
    rows = [row for row in record["rows"] if row["part"] == "biased" and row["system"] == "pull"]
    found = at_least(
        "bytes of pull over csp, biased draws", 1.0, "x", points_of(rows, "x_bytes", "graph", "ranks")
    )
    if record["settings"]["device"] == "cuda":
        found += at_least(
            "time of pull over csp, biased draws", 1.0, "x", points_of(rows, "x_time", "graph", "ranks")
        )
    return found


def sampling(record: dict[str, Any]) -> list[Target]:
    """Table 6: dsp faster than all systems that it was compared with."""
    if record["settings"]["device"] != "cuda":
        return []
    rows = [
        row for row in record["rows"]
        if row["part"] == "table 6" and row["gpus"] > 1 and row["system"] in ("pyg-cpu", "dgl-cpu", "quiver", "dgl-uva")
    ]  # fmt: skip
    return at_least(
        "time to sample of the other systems over dsp, 2 GPUs or more", 1.0, "x",
        points_of(rows, "over_dsp", "graph", "system", "gpus"),
    )  # fmt: skip


def pipelines(record: dict[str, Any]) -> list[Target]:
    """Overlapped stages near their ceiling, training on several GPUs over one, and trainers that do not sample."""
    if record["settings"]["device"] != "cuda":
        return []
    rows = [row for row in record["rows"] if "error" not in row]
    overlap = [row for row in rows if row["part"] == "overlap" and row["ceiling"] >= 1.1]
    found = at_least(
        "overlapped stages, of the ceiling that the serial stages set", 90.0, "%",
        [
            (row["share_percent"], f"{row['graph']}, {row['miss_percent']:.0f} % missed, ceiling {row['ceiling']:.2f}")
            for row in overlap
        ],
    )  # fmt: skip
    for gpus, limit in ((2, 1.8), (4, 3.4)):
        scaling = [row for row in rows if row["part"] == "scaling" and row["gpus"] == gpus]
        found += at_least(
            f"training on {gpus} GPUs over one, as many seeds a GPU, best executor of each", limit, "x",
            points_of(scaling, "x_one", "graph", "executor"), best=True,
        )  # fmt: skip
    trace = [row for row in rows if row["part"] == "trace" and row["traced"] and row["sampler_kernels"]]
    found += at_most(
        "sampling kernels on the GPUs of factored trainers", 0.0, "launches",
        points_of(trace, "trainer_kernels", "graph"),
    )  # fmt: skip
    mine = [
        row for row in rows if row["part"] == "systems" and row["system"] in ("pyg-cpu", "dgl-uva", "quiver")
    ]
    return found + at_least(
        "step of the baselines over dsp, table 4", 1.0, "x",
        points_of([row for row in mine if row["gpus"] > 1], "over_dsp", "graph", "system", "model", "gpus"),
    )  # fmt: skip
