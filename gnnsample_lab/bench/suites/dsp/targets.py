"""What sampling from a graph in parts aims at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gnnsample_lab.bench.targets import Point, Target, at_least, at_most, points_of

_CSP = ("csp", "csp-async", "csp-fixed")


def ladder(record: dict[str, Any]) -> list[Target]:
    """Lists copied that save 80 % of the remote reads, `direct` against collective sampling, other graphs, and bytes.

    Where two times could be taken, it is the wall time of each side's faster way; the other ratios stand beside it.
    """
    if record["settings"]["device"] != "cuda":
        return _pull_over_csp(record["rows"])
    rows = [r for r in record["rows"] if "us" in r and r["world"] > 1]
    random = [r for r in rows if r["graph"].startswith("rmat") and r["partition"] == "random"]
    cached = [r for r in random if r["method"] == "direct-cached" and r["saved_percent"] is not None]
    found = []
    for world, seeds, fanout, limit in (
        (2, 1024, 10, 1.85), (2, 8192, 15, 1.75), (4, 1024, 10, 3.4), (4, 8192, 15, 3.0),
    ):  # fmt: skip
        chosen = [r for r in cached if (r["world"], r["batch_size"], r["fanout"]) == (world, seeds, fanout)]
        found += at_least(
            f"{world} GPUs, random parts, 80 % of remote reads cached, {seeds} x {fanout}, over one with the whole "
            "graph: wall time, both at their best",
            limit, "x",
            [(r["x_best"], f"{_where(r)}, {r['saved_share']:.1%} saved; {_ratios(r)}") for r in chosen],
        )  # fmt: skip
    for seeds, limit in ((1024, 2.0), (8192, 1.0)):
        found += at_least(
            f"direct over the fastest collective method, {seeds} seeds: wall time, both at their best", limit, "x",
            _over_csp(rows, seeds),
        )  # fmt: skip
    csp = [
        (r["us"], f"{_where(r)}; {r['many_us']:.0f} us in sample_many") for r in random
        if r["method"] == "csp" and (r["world"], r["batch_size"], r["fanout"]) == (2, 1024, 10)
    ]  # fmt: skip
    found += at_most("csp on two GPUs, 1 024 x 10, 3 hops", 700.0, "us", csp)
    found += at_least(
        "other graphs, of the line of the first one's throughput over its remote share",
        0.9,
        "x",
        _of_line(rows),
    )
    return found + _pull_over_csp(record["rows"])


def _ratios(row: dict[str, Any]) -> str:
    gpu = "no GPU time" if row.get("x_gpu") is None else f"GPU time {row['x_gpu']:.2f} x"
    return f"one by one {row['x_one']:.2f} x, sample_many {row['x_many']:.2f} x, {gpu}"


def _work(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("world", "fanout", "hops", "replace"))


def _of_line(rows: list[dict[str, Any]]) -> list[Point]:
    """Throughput on other graphs over what the line through the first graph's points says for their remote share.

    Its points are the copies of lists in several budgets, and full replication.
    """
    points: dict[Any, list[tuple[float, float]]] = {}
    for row in rows:
        is_point = row["method"] == "each, whole graph" or row["budget_percent"] is not None
        if row["graph"] == rows[0]["graph"] and is_point and row["saved_percent"] is None:
            points.setdefault(_work(row), []).append((row["remote_share"], row["x_best"]))
    found = []
    for row in rows:
        if row["graph"] == rows[0]["graph"] or row["method"] != "direct-cached":
            continue
        known = points.get(_work(row), [])
        if len({share for share, _ in known}) < 2:
            continue
        slope, begin = np.polyfit([at for at, _ in known], [x for _, x in known], 1)
        share = row["remote_share"]
        predicted = float(begin + slope * share)
        where = (
            f"{_where(row)}, {share:.1%} of reads remote: {row['x_best']:.2f} x, the line {predicted:.2f} x"
        )
        found.append((row["x_best"] / predicted, where))
    return found


def _pull_over_csp(rows: list[dict[str, Any]]) -> list[Target]:
    """Bytes of pull over those of csp where remote lists are longer than the fanout."""
    bytes_of: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row["method"] in ("pull", "csp") and "volume" in row and row["world"] > 1:
            bytes_of.setdefault((_where(row), *_work(row)), {})[row["method"]] = row
    points = []
    for (where, *_), both in bytes_of.items():
        if len(both) == 2 and both["pull"]["remote_degree"] > both["pull"]["fanout"]:
            ratio = both["pull"]["volume"] / both["csp"]["volume"]
            points.append((ratio, f"{where}, lists of {both['pull']['remote_degree']:.0f} on average"))
    return at_least("bytes of pull over csp where lists exceed the fanout on average", 1.0, "x", points)


def features(record: dict[str, Any]) -> list[Target]:
    """Rows of peers alone, all GPUs reading: against the copy of a peer's memory in order, and against all-to-all."""
    if record["settings"]["device"] != "cuda":
        return []
    # Records of before four GPUs were tried do not say how many there were.
    remote = {(r.get("ranks", 2), r["what"], r["transport"], r["row_bytes"]): r for r in record["rows"]}
    shares, ratios = [], []
    for (ranks, what, transport, row_bytes), row in remote.items():
        if transport != "direct":
            continue
        # Records of before their rows said how many were asked for have the number in their settings.
        asked = row.get("asked", record["settings"]["rows"])
        here = f"{ranks} GPUs, {asked} rows a GPU, {row_bytes} bytes each"
        if what == "remote, marked" and row_bytes == 512:
            shares.append((row["of_copy"], here))
        if what == "remote":
            ordered = remote[ranks, what, "all-to-all", row_bytes]
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
            where = f"{row['world']} GPUs, {_where(row)}"
            groups.setdefault(where, {})[row["method"]] = min(row["us"], row["many_us"])
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


def copies(record: dict[str, Any]) -> list[Target]:
    """Lists ranked by the reads that they save per byte serve more draws than the longest ones."""
    points = [
        (row["over_degree"], f"{row['graph']}, {row['partition']} parts, {row['budget_percent']:g} %")
        for row in record["rows"] if row["over_degree"] is not None
    ]  # fmt: skip
    return at_least("remote draws served, copies by reads per byte over copies by degree", 1.0, "x", points)


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
    found: list[Target] = []
    for executor, what in (("overlapped", "a thread each"), ("streams", "one thread that runs ahead")):
        overlap = [
            row for row in rows
            if row["part"] == "overlap" and row["executor"] == executor and 1.1 <= row.get("ceiling", 0) <= 2
        ]  # fmt: skip
        found += at_least(
            f"overlapped stages, {what}, of the ceiling that the serial stages set", 90.0, "%",
            [
                (
                    row["share_percent"],
                    f"{row['graph']}, {row['seeds_a_gpu']} seeds, {row.get('step', 'plain')} steps, "
                    f"{row['miss_percent']:.0f} % missed, "
                    f"ceiling {row['ceiling']:.2f}",
                )
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
    mine = [  # records from before there were two kinds of steps hold plain ones
        {"step": "plain"} | row
        for row in rows
        if row["part"] == "systems" and row["system"] in ("pyg-cpu", "dgl-uva", "quiver")
    ]
    return found + at_least(
        "step of the baselines over dsp, table 4", 1.0, "x",
        points_of(
            [row for row in mine if row["gpus"] > 1], "over_dsp", "graph", "system", "model", "gpus", "step"
        ),
    )  # fmt: skip
