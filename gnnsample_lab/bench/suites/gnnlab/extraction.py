"""Feature extraction measured: bandwidth of misses by every transfer, and GNNLab's figures 4 and 12."""

from __future__ import annotations

import functools
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.record import scaled
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError, kept_to
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.features.caching import host
from gnnsample_lab.features.caching.cache import FeatureCache
from gnnsample_lab.features.caching.gather import ExtractKnobs

from . import caching, papers
from .targets import TAILS

TABLE_LIMIT_BYTES = 24 << 30
"""Largest made-up feature table: it lies in host memory, page-locked."""
_LINE = 128
_L2 = f"{common.AS_LEFT}: never flushed; mini-batches take turns, and find what the others left"
TRANSFERS = ("staged", "uva")
TAIL_KNOBS = ExtractKnobs(pinning="copy", tail_bytes=32)
"""Of the rung :data:`.targets.TAILS`, for the row sizes of which they put some bytes into device memory."""
DISK_FEATURES = 100
"""Feature dimension at which the table is read from a memory-mapped file as well."""
MODELS: dict[str, tuple[str, tuple[int, ...]]] = {
    "gcn": ("k-hop", common.FANOUTS), "sage": ("k-hop", (10, 25)), "pinsage": ("walks", common.FANOUTS),
    "gcn weighted": ("weighted", common.FANOUTS),
}  # fmt: skip
"""GNNLab's models as samplers: 3-hop 15, 10, 5; 2-hop 10, 25; random walks; 3-hop weighted."""


def table5_ratio(name: str, model: str) -> float:
    """Share of the vertices that GNNLab caches in its table 5 for that graph and model of :data:`MODELS`.

    Of a graph that is not there, or whose rows are all cached there, so that policies decide nothing, a tenth.
    """
    network = model.split()[0]  # weights change what is drawn, not what a GPU holds
    known = {
        (r["graph"], r["model"]): r["cache_percent"] / 100 for r in papers.TABLE5 if r["system"] == "gnnlab"
    }
    ratio = known.get((scaled(name)[0], network), 1.0)
    return ratio if ratio < 1 else caching.RATIO


def feature_table(session: Session, num_rows: int, dimension: int) -> Any:
    """Made-up features in host memory, ``float32[num_rows, dimension]``, kept, and page-locked where there is a GPU.

    Returns:
        The table, or None where it would exceed :data:`TABLE_LIMIT_BYTES`.
    """
    if 4 * num_rows * dimension > (TABLE_LIMIT_BYTES if not session.quick else TABLE_LIMIT_BYTES // 3):
        return None

    def make() -> Any:
        # One table at a time: a table is large, and page-locked memory cannot be swapped out.
        for key in [key for key in session._kept if key[0] == "feature table"]:
            del session._kept[key]
        # Rows begin cache lines where their length allows it, as an allocator's large blocks do.
        memory = np.empty(4 * num_rows * dimension + _LINE, np.uint8)
        at = -memory.ctypes.data % _LINE
        table = memory[at : at + 4 * num_rows * dimension].view(np.float32).reshape(num_rows, dimension)
        columns = np.arange(dimension, dtype=np.float32)
        for begin in range(0, num_rows, 1 << 20):
            part = table[begin : begin + (1 << 20)]
            # A hash of the row of 22 bits plus the column: whole numbers that float32 holds exactly.
            row = np.arange(begin, begin + len(part), dtype=np.uint32) * np.uint32(0x9E3779B1) >> np.uint32(
                10
            )
            np.add.outer(row.astype(np.float32), columns, out=part)
        if common.device() == "cpu":
            return table, None
        from gnnsample_lab.features.caching.host import pin

        return table, pin(table, "register")  # as long as it is held here, every cache finds it page-locked

    return session.kept(("feature table", num_rows, dimension), make)[0]


def check(cache: Any, feat: Any, ids: Any, what: str) -> None:
    """Does the extraction return the plain gather's rows, bit for bit?

    Raises:
        VerificationError: it does not.
    """
    x, stats = cache.extract(ids)
    wanted = np.take(np.asarray(feat), to_host(ids), axis=0)
    if not np.array_equal(to_host(x), wanted):
        raise VerificationError(f"{what}: extraction differs from a plain gather; nothing is timed")
    if stats.hits + stats.misses + stats.reused != stats.rows or stats.rows != len(wanted):
        raise VerificationError(f"{what}: hits and misses do not add up to the rows; nothing is timed")


def extract_times(cache: Any, ids: list[Any]) -> tuple[list[float], list[Any]]:
    """Wall microseconds of one extraction, a number a pass, and the statistics of each."""
    return timing.wall_times(lambda i: cache.extract(ids[i])[0], len(ids)), [
        cache.extract(one)[1] for one in ids
    ]


def extraction(session: Session) -> dict[str, Any]:
    """Miss bandwidth of every transfer against a pinned copy."""
    names = common.names(session, "products-like")
    gbps, checked = host.pinned_copy_gbps(), 0
    rows: list[dict[str, Any]] = []
    for name in names:
        for dimension in (100, 128, 256) if session.quick else (32, 64, 100, 128, 256, 602, 1024):
            found = session.piece(
                (name, dimension), functools.partial(_of_dimension, session, name, dimension, gbps)
            )
            rows += found["rows"]
            checked += found["checked"]
    return {
        "settings": {
            "batch_size": common.BATCH, "fanouts": common.FANOUTS, "policy": "degree", "pinned_copy_gbps": gbps,
            "extract_us": "median wall time of FeatureCache.extract of a mini-batch, the GPU idle before and "
            "finished after",
            "miss_gbps": "bytes of missed rows over the time of the whole extraction, hits included; of rows whose "
            "tails lie on the GPU all bytes, though tail_bytes of each do not cross the bus",
            "l2": _L2,
            TAILS: "what rows have over whole lines of 128 bytes, 32 bytes at most, lies in device memory for all "
            "vertices; row sizes with none or more have no such row",
        },
        "verification": {"extractions_equal_to_plain_gather": checked},
        "graphs": common.facts(session, names), "rows": rows, "notes": [f"Pinned copy: {gbps:.1f} GB/s."],
    }  # fmt: skip


def _of_dimension(session: Session, name: str, dimension: int, gbps: float) -> dict[str, Any]:
    """``rows`` of one length of rows, and how many extractions were ``checked``; none where the table is too large.

    Args:
        gbps: of the pinned copy, which rows are divided by.
    """
    ids = [batch.node_ids for batch in common.batches(session, name, 4)]
    num_nodes = common.graph(session, name).num_nodes
    score = to_host(common.graph(session, name).out_degrees()).astype(np.float64)
    rows, checked = list[dict[str, Any]](), 0
    feat = feature_table(session, num_nodes, dimension)
    if feat is None:
        return {"rows": rows, "checked": checked}
    tail = host.tail_of(feat, TAIL_KNOBS.pinning, TAIL_KNOBS.tail_bytes)
    ways = (
        *TRANSFERS, *(("disk",) if dimension == DISK_FEATURES else ()), *((TAILS,) if tail else ()), "auto",
    )  # fmt: skip
    for ratio in (0.0, 0.1) if session.quick else (0.0, 0.05, 0.1, 0.3):
        found = (
            []
            if ratio
            else [("plain", "NumPy gather, pageable copy", _plain_times(feat, ids), ids_sizes(ids))]
        )
        with tempfile.TemporaryDirectory() as folder:
            for transfer in ways:
                table = _mapped(feat, Path(folder)) if transfer == "disk" else feat
                cache = FeatureCache(
                    table, score, ratio=ratio, device="cuda", transfer="uva" if transfer == TAILS else transfer,
                    knobs=TAIL_KNOBS if transfer == TAILS else None,
                )  # fmt: skip
                check(cache, feat, ids[0], f"{transfer}, ratio {ratio}")
                checked += 1
                times, stats = extract_times(cache, ids)
                found.append((transfer, cache.transfer, times, [s.misses for s in stats]))
                del cache, table
        for transfer, resolved, times, missed in found:
            wall = timing.spread(times)
            us = wall["us"]
            moved = float(np.mean(missed)) * dimension * 4
            rows.append({
                "graph": name, "num_features": dimension, "cache_percent": 100 * ratio, "transfer": transfer,
                "resolved": resolved, "rows": round(float(np.mean(ids_sizes(ids)))),
                "misses": round(float(np.mean(missed))), "extract_us": us, "miss_gbps": moved / us / 1e3,
                "share": moved / us / 1e3 / gbps, "tail_bytes": tail if transfer == TAILS else 0,
                "pinned_copy_gbps": gbps, "l2": common.AS_LEFT, "spread": {"extract_us": timing.around(wall)},
            })  # fmt: skip
        last = ", ".join(f"{r['transfer']} {r['miss_gbps']:.1f} GB/s" for r in rows[-len(found) :])
        session.say(f"{dimension} features, {100 * ratio:.0f} % cached: {last}")
    return {"rows": rows, "checked": checked}


def ids_sizes(ids: list[Any]) -> list[int]:
    """Rows of each batch."""
    return [int(one.size) for one in ids]


def _plain_times(feat: Any, ids: list[Any]) -> list[float]:
    def work(i: int) -> Any:
        import cupy

        return cupy.asarray(feat[ids[i].get()])

    return timing.wall_times(work, len(ids))


def _mapped(feat: Any, folder: Path) -> np.ndarray:
    """The table as a memory-mapped file in the page cache: the path is measured, and no disk."""
    feat.tofile(folder / "features.bin")
    return np.memmap(folder / "features.bin", np.float32, "r", shape=feat.shape)


def _published_and_ours(
    feat: Any, hotness: Any, ratio: float, ids: list[Any], what: str
) -> tuple[dict[str, Any], list[Any]]:
    """How long a mini-batch's extraction takes as GNNLab has it (CPU threads gather misses into page-locked memory),
    and by UVA, ours; and the statistics. On a CPU both are one."""
    row: dict[str, Any] = {"l2": common.AS_LEFT, "spread": {}}
    for key, transfer in (("extract_ms", "staged"), ("uva_ms", "uva")):
        cache = FeatureCache(feat, hotness, ratio=ratio, device=common.device(), transfer=transfer)
        check(cache, feat, ids[0], f"{what}, {transfer}")
        times, stats = extract_times(cache, ids)
        wall = timing.spread([us / 1e3 for us in times], "ms")
        row[key], row["spread"][key] = wall["ms"], timing.around(wall)
        row.setdefault("transfer", cache.transfer)
        del cache
    return row, stats


def figure4(session: Session) -> dict[str, Any]:
    """Extract time and hit rate of the degree policy over (a) the cache ratio and (b) the feature dimension."""
    caching.verify(session)
    name = common.names(session, "papers100M-like@0.1" if session.quick else "papers100M-like@0.25")[0]
    found = caching.study(session, name, "k-hop")
    ids = [batch.node_ids for batch in common.batches(session, name, 3)]
    degree, num_nodes = found.policy("degree"), found.graph.num_nodes
    share = num_nodes / 111_059_956
    points = [("a", percent / 100, found.dimension) for percent in (0, 3, 7, 15, 21, 30)]
    for dimension in (128, 256, 512, 768):
        points.append(("b", min(1.0, 5e9 * share / (4 * dimension * num_nodes)), dimension))
    rows, checked = [], 0
    for part, ratio, dimension in points:
        rate = float(found.rates("degree", ratio)[0])
        row = {"part": part, **caching._bytes_row(found, "degree", 100 * ratio, rate, dimension)}
        feat = feature_table(session, num_nodes, dimension)
        if feat is not None:
            times, stats = _published_and_ours(
                feat, degree, ratio, ids, f"{dimension} features, {100 * ratio:.0f} % cached"
            )
            checked += 2
            row |= {**times, "measured_hit_percent": 100 * float(np.mean([s.hit_rate for s in stats]))}
        rows.append(row)
        session.say(f"{dimension} features, {100 * ratio:.1f} % cached: hits {100 * rate:.1f} %")
    return {
        "settings": {
            "device": common.device(), "batch_size": common.BATCH, "fanouts": common.FANOUTS, "policy": "degree",
            "cache_bytes_of_part_b": 5e9 * share,
            **kept_to(
                papers.CAPACITY_OF,
                "of 0 to 30 % of the rows, in part b of 5 GB, scaled as the graph is",
            ),
            "extract_ms": "median wall time of a mini-batch's extraction from made-up features, misses gathered by CPU "
            "threads as published; none where too large",
            "l2": _L2,
            "uva_ms": "the same, misses read by kernels in page-locked memory",
        },
        "verification": {**caching.verify(session), "extractions_equal_to_plain_gather": checked},
        "graphs": common.facts(session, [name]), "rows": rows,
    }  # fmt: skip


def figure12(session: Session) -> dict[str, Any]:
    """Extract time of an epoch by caching policy, graph and model, at the cache ratios of GNNLab's table 5."""
    caching.verify(session)
    default = (
        ("papers100M-like@0.1",)
        if session.quick
        else ("twitter-like@0.1", "papers100M-like@0.1", "uk-like@0.1")
    )
    names = common.names(session, *default)
    rows: list[dict[str, Any]] = []
    for name in names:
        for model in MODELS:
            rows += session.piece((name, model), functools.partial(_by_policy, session, name, model))
    return {
        "settings": {
            "device": common.device(), "batch_size": common.BATCH,
            **kept_to(
                papers.CAPACITY_OF,
                "as large a share of the rows as in GNNLab's table 5 (where it has none, or all: "
                f"{caching.RATIO:.0%})",
            ),
            "extract_s": "median wall time of extracting a mini-batch from made-up features, misses gathered by CPU "
            "threads as published, times those of an epoch",
            "l2": _L2,
            "uva_ms": "of a mini-batch, misses read by kernels in page-locked memory",
        },
        "verification": {**caching.verify(session), "extractions_equal_to_plain_gather": 2 * len(rows)},
        "graphs": common.facts(session, names), "rows": rows,
    }  # fmt: skip


def _by_policy(session: Session, name: str, model: str) -> list[dict[str, Any]]:
    """Rows of :func:`figure12`: of one graph and model; none where its features are no table of ours."""
    kind, fanouts = MODELS[model]
    found = caching.study(session, name, kind, fanouts)
    feat = feature_table(session, found.graph.num_nodes, found.dimension)
    if feat is None:
        session.say(f"{name}: its features exceed the table limit, left out")
        return []
    epoch = math.ceil(len(found.seeds) / found.size)
    ids = [b.node_ids for b in common.batches(session, name, 3, kind, fanouts)]
    ratio = table5_ratio(name, model)
    rows: list[dict[str, Any]] = []
    for policy in ("random", "degree", "presample", "optimal"):
        one, stats = _published_and_ours(feat, found.policy(policy), ratio, ids, f"{name}, {model}, {policy}")
        rows.append({
            "graph": name, "model": model, "policy": policy, "cache_percent": 100 * ratio,
            "hit_percent": 100 * sum(s.hits for s in stats) / sum(s.rows for s in stats),
            **one, "extract_s": one["extract_ms"] * epoch / 1e3, "num_batches": epoch,
        })  # fmt: skip
    times = {row["policy"]: row["extract_ms"] for row in rows}
    for row in rows:
        row["less_than_random"] = 1 - row["extract_ms"] / times["random"]
        row["less_than_degree"] = 1 - row["extract_ms"] / times["degree"]
    session.say(f"{name}, {model}: " + ", ".join(f"{p} {t:.2f} ms" for p, t in times.items()))
    return rows
