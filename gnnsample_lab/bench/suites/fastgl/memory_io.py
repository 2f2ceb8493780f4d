"""Match and reorder: FastGL's table 4 (match degrees), table 7 (random walks), figure 10 (IO over the cache ratio)."""

from __future__ import annotations

import functools
import statistics
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites.gnnlab.caching import study
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.features.caching.cache import FeatureCache
from gnnsample_lab.features.reuse.match import match_degrees
from gnnsample_lab.features.reuse.matched import MatchedFeatures
from gnnsample_lab.features.reuse.reorder import path_score, reorder

from .papers import columns

WINDOW = 32
"""Mini-batches that are put in order together."""
_CHECKED = 4


def _quick_or(session: Session, quick: tuple[str, ...], full: tuple[str, ...]) -> tuple[str, ...]:
    return common.names(session, *(quick if session.quick else full))


def table4(session: Session) -> dict[str, Any]:
    """Match degrees of the mini-batches of an epoch: average and spread; and what the order of a window is worth."""
    names = _quick_or(
        session, ("reddit-like", "products-like", "papers100M-like@0.1"),
        ("reddit-like", "products-like", "mag-like", "papers100M-like"),
    )  # fmt: skip
    rows = [session.piece((name,), functools.partial(_match_degree, session, name)) for name in names]
    checked = sum(few * (few + 1) // 2 for few in (min(_CHECKED, row["num_batches"]) for row in rows))
    return {
        "settings": {
            "device": common.device(), "batch_size": common.BATCH, "fanouts": common.FANOUTS, "window": WINDOW,
            "neighbours": "average match degree of a mini-batch and the next: as sampled, after greedy, after two-opt",
        },
        "verification": {"match_degrees_equal_to_sets": checked}, "graphs": common.facts(session, names), "rows": rows,
    }  # fmt: skip


def _match_degree(session: Session, name: str) -> dict[str, Any]:
    """Table 4's row of a graph.

    Raises:
        VerificationError: a match degree is not that of the sets of vertices.
    """
    found = common.graph(session, name)
    ids = [batch.node_ids for batch in common.batches(session, name, WINDOW)]
    degrees = np.asarray(match_degrees(ids))
    plain = [to_host(one) for one in ids[:_CHECKED]]
    for i, a in enumerate(plain):
        for j, b in enumerate(plain[: i + 1]):
            wanted = len(np.intersect1d(a, b)) / min(len(a), len(b))
            if abs(degrees[i, j] - wanted) > 1e-12 or degrees[i, j] != degrees[j, i]:
                raise VerificationError(
                    f"{name}: match degree of batches {i} and {j} is not that of the sets"
                )
    pairs = 100 * degrees[np.triu_indices(len(ids), 1)]
    orders = {
        "as_sampled": np.arange(len(ids)),
        "greedy": reorder(degrees, "greedy"),
        "two_opt": reorder(degrees, "two-opt"),
    }
    gains = {label: path_score(degrees, order) / max(len(ids) - 1, 1) for label, order in orders.items()}
    row = {
        "graph": name, "batch_size": common.batch_size(name, found), "num_batches": len(ids),
        "average_percent": float(pairs.mean()), "spread_percent": float(pairs.max() - pairs.min()),
        "rows_per_batch": round(float(np.mean([one.size for one in ids]))),
        **{f"neighbours_{label}_percent": 100 * float(value) for label, value in gains.items()},
    }  # fmt: skip
    session.say(f"{name}: match degree {row['average_percent']:.1f} %")
    return row


def _expected_rows(
    ids: list[np.ndarray], order: np.ndarray, cached: np.ndarray, match: bool, num_nodes: int
) -> int:
    """Rows that must move: those that neither the batch before nor the cache holds. By sets, not by the library."""
    total = 0
    in_cache, before = np.zeros(num_nodes, bool), np.zeros(num_nodes, bool)
    in_cache[cached] = True
    for i in order:
        held = in_cache[ids[i]] | before[ids[i]]
        total += int(held.size - held.sum())
        if match:
            before[:] = False
            before[ids[i]] = True
    return total


def _run_through(make: Callable[[], Iterator[Any]]) -> None:
    deque(make(), maxlen=0)


def _order_of(ids: list[Any], method: str) -> Any:
    return reorder(match_degrees(ids), method)


def _extract_in_order(source: Any, ids: list[Any], order: Any, match: bool) -> Iterator[tuple[Any, Any]]:
    if match:
        source.reset()
    for i in order:
        yield source.extract(ids[i])


def memory_io(
    session: Session, name: str, kind: str, ratio: float, modes: dict[str, tuple[str, bool, str | None]]
) -> list[dict[str, Any]]:
    """Time and bytes of the memory IO of a window of mini-batches.

    Args:
        ratio: share of the rows in the cache, by pre-sampling.
        modes: label -> (transfer, match, method of reorder or None).

    Returns:
        One row per mode; its first extraction is compared with a plain gather, its bytes with the sets.
    """
    from gnnsample_lab.bench.suites.gnnlab.extraction import feature_table

    found = study(session, name, kind)
    ids = [
        batch.node_ids for batch in common.batches(session, name, WINDOW if not session.quick else 8, kind)
    ]
    plain = [to_host(one).astype(np.int64) for one in ids]
    wide = columns(name) or found.dimension
    feat = feature_table(session, found.graph.num_nodes, wide)
    if feat is None:
        session.say(f"{name}: its features exceed the table limit, left out")
        return []
    hot = found.policy("presample") if ratio else None
    epoch = -(-len(found.seeds) // found.size)
    degrees = np.asarray(match_degrees(ids))
    rows: list[dict[str, Any]] = []
    works: list[Callable[[], None]] = []
    # Modes that differ in the order alone share a source, so that nothing else differs: not even where buffers lie.
    sources: dict[tuple[str, bool], tuple[FeatureCache, Any]] = {}
    for label, (transfer, match, method) in modes.items():
        if (transfer, match) not in sources:
            cache = FeatureCache(feat, hot, ratio=ratio, device=common.device(), transfer=transfer)
            sources[transfer, match] = cache, MatchedFeatures(cache) if match else cache
        cache, source = sources[transfer, match]
        order = reorder(degrees, method) if method else np.arange(len(ids))
        reorders = timing.pass_times(functools.partial(_order_of, ids, method)) if method else [0.0]
        for i, (x, _) in zip(order, _extract_in_order(source, ids, order[:2], match), strict=False):
            if not np.array_equal(to_host(x), np.take(feat, plain[i], axis=0)):
                raise VerificationError(f"{name}, {label}: extraction differs from a plain gather")
        stats = [stat for _, stat in _extract_in_order(source, ids, order, match)]
        moved = sum(int(stat.bytes_moved) for stat in stats)
        cached = np.asarray(cache.cached_ids)
        expected = 4 * wide * _expected_rows(plain, order, cached, match, found.graph.num_nodes)
        if moved != expected:
            raise VerificationError(
                f"{name}, {label}: {moved} bytes moved, {expected} are those of the rows that nobody holds"
            )
        in_order = functools.partial(_extract_in_order, source, ids, order, match)
        works.append(functools.partial(_run_through, in_order))
        rows.append({
            "graph": name, "sampler": kind, "cache_percent": 100 * ratio, "system": label, "transfer": cache.transfer,
            "num_features": wide,
            "reorder_ms": statistics.median(reorders) / 1e3 / len(ids),
            "mb_per_batch": moved / 1e6 / len(ids), "expected_mb": expected / 1e6 / len(ids),
            "reused_percent": 100 * sum(s.reused for s in stats) / sum(s.rows for s in stats),
            "hit_percent": 100 * sum(s.hits for s in stats) / sum(s.rows for s in stats), "num_batches": epoch,
        })  # fmt: skip
    for row, times in zip(rows, timing.turns(works), strict=True):
        io = timing.spread([us / 1e3 / len(ids) + row["reorder_ms"] for us in times], "ms")
        row |= {"io_ms": io["ms"], "spread": {"io_ms": timing.around(io)}, "io_s": io["ms"] * epoch / 1e3}
    for row in rows:
        row["speedup"] = rows[0]["io_ms"] / row["io_ms"]
        row["less_than_first"] = 1 - row["io_ms"] / rows[0]["io_ms"]
    session.say(
        f"{name}, {kind}, {100 * ratio:.0f} % cached: "
        + ", ".join(f"{r['system']} {r['io_ms']:.2f} ms" for r in rows)
    )
    return rows


def _record(session: Session, names: Any, rows: list[dict[str, Any]], **settings: Any) -> dict[str, Any]:
    return {
        "settings": {
            "device": common.device(), "batch_size": common.BATCH, "fanouts": common.FANOUTS,
            "io_ms": "median wall time a mini-batch of extracting a window of them in order, from made-up features; "
            "match degrees and reorder included where a mode reorders; modes in turns, and those that differ in the "
            "order alone by the same source",
            "io_s": "io_ms times the mini-batches of an epoch", **settings,
        },
        "verification": {"modes_with_exact_bytes": len(rows)},
        "graphs": common.facts(session, names), "rows": rows,
    }  # fmt: skip


def table7(session: Session) -> dict[str, Any]:
    """Memory IO with the random-walk sampler: all rows, Match, Match and reorder."""
    names = _quick_or(
        session, ("reddit-like", "products-like"),
        ("reddit-like", "products-like", "mag-like", "papers100M-like@0.25"),
    )  # fmt: skip
    modes = {
        "dgl": ("staged", False, None), "match": ("staged", True, None), "match + reorder": ("staged", True, "greedy"),
        "lab": ("auto", True, "two-opt"),
    }  # fmt: skip
    rows: list[dict[str, Any]] = []
    for name in names:
        rows += session.piece((name,), functools.partial(memory_io, session, name, "walks", 0.0, modes))
    return _record(
        session, names, rows, cache_percent=0,
        sampler="PinSAGE walks of 3 steps; each ends with probability 0.5 after a step, as GNNLab released them",
    )  # fmt: skip


def figure10(session: Session) -> dict[str, Any]:
    """(a) memory IO against the cache ratio, with and without Match and reorder; (b) Match with and without reorder."""
    ratios = (0.0, 0.1, 0.3) if session.quick else (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0)
    first = common.names(session, "products-like")[0]
    rows: list[dict[str, Any]] = []
    for ratio in ratios:
        modes = {"cache": ("staged", False, None), "cache + match + reorder": ("staged", True, "greedy")}
        found = session.piece(
            ("a", first, ratio), functools.partial(memory_io, session, first, "k-hop", ratio, modes)
        )
        rows += [{"part": "a", **row} for row in found]
    names = _quick_or(
        session, ("products-like",), ("reddit-like", "products-like", "mag-like", "papers100M-like@0.25")
    )  # fmt: skip
    for name in names:
        modes = {
            "dgl": ("staged", False, None), "match": ("staged", True, None),
            "match + reorder": ("staged", True, "greedy"),
        }  # fmt: skip
        found = session.piece(("b", name), functools.partial(memory_io, session, name, "k-hop", 0.0, modes))
        for row in found:
            row["reorder_gain"] = 1 - row["io_ms"] / found[1]["io_ms"]
        rows += [{"part": "b", **row} for row in found]
    return _record(session, sorted({first, *names}), rows)
