"""Columns of the data side's tables: what a row shows, and the paper's value of the same row beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .environment import scaled
from .suites.nextdoor.columns import COLUMNS as _NEXTDOOR

Cell = Callable[[dict[str, Any]], Any]

_STAGES = {"sample ms": "sample_ms", "extract ms": "extract_ms", "train ms": "train_ms", "step ms": "step_ms"}
_RUN = {"model": "model", "system": "system", **_STAGES, "epoch s": "epoch_s"}

COLUMNS: dict[str, dict[str, str]] = {
    "fastgl-table8": {
        "ID map": "id_map", "picks": "picks", "nodes": "nodes", "us": "map_us", "epoch s": "epoch_s", "x": "speedup",
        "GPU us": "gpu_us", "GPU x": "gpu_speedup",
    },
    "extraction": {
        "features": "num_features", "cached %": "cache_percent", "transfer": "transfer", "by": "resolved",
        "missed rows": "misses", "us": "extract_us", "GB/s": "miss_gbps", "of pinned copy": "share",
    },
    "aggregation": {
        "batch": "batch_size", "layer": "layer", "direction": "direction", "features": "num_features", "rows": "rows",
        "edges": "edges", "naive us": "us.naive", "memory-aware us": "us.memory-aware", "grouped us": "us.grouped",
        "library us": "us.library", "ours us": "ours_us", "bound us": "bound_us", "of bound": "share",
        "cuSPARSE us": "cusparse_us", "by": "cusparse_best", "over cuSPARSE": "over_cusparse",
    },
    "fastgl-table3": {"level": "level", "GB/s": "gbps", "capacity": "capacity"},
    "fastgl-table2": {
        "kernel": "kernel", "GFLOP/s": "gflops", "L1 %": "l1_percent", "L2 %": "l2_percent",
        "read before %": "repeated_percent", "hits": "hits_origin",
    },
    "fastgl-fig12": {
        "direction": "direction", "features": "num_features", "kernel": "kernel", "FLOP/byte": "flops_per_byte",
        "GFLOP/s": "gflops", "roof": "roof_gflops", "asked GB/s": "asked_gbps", "over library": "over_library",
    },
    "fastgl-table4": {
        "batches": "num_batches", "rows a batch": "rows_per_batch", "average %": "average_percent",
        "spread %": "spread_percent", "next, as sampled %": "neighbours_as_sampled_percent",
        "greedy %": "neighbours_greedy_percent", "two-opt %": "neighbours_two_opt_percent",
    },
    "fastgl-table7": {
        "system": "system", "by": "transfer", "ms a batch": "io_ms", "epoch s": "io_s", "x": "speedup",
        "MB": "mb_per_batch", "reused %": "reused_percent",
    },
    "fastgl-fig10": {
        "part": "part", "system": "system", "cached %": "cache_percent", "ms a batch": "io_ms", "x": "speedup",
        "MB": "mb_per_batch", "hit %": "hit_percent", "reused %": "reused_percent", "reorder takes off": "reorder_gain",
    },
    "fastgl-fig1": {**_RUN, "sample %": "sample_percent", "extract %": "extract_percent", "train %": "train_percent"},
    "fastgl-fig3": {
        **_RUN, "x": "speedup", "sample %": "sample_percent", "extract %": "extract_percent",
        "train %": "train_percent",
    },
    "fastgl-fig9": {**_RUN, "over dgl": "speedup", "fastgl over it": "fastgl_over_it", "lab over it": "lab_over_it"},
    "fastgl-fig11": {
        "system": "system", "kernel": "kernel", "train ms": "train_ms", "x": "speedup", "sums ms": "aggregate_ms",
        "sums x": "aggregate_speedup", "preprocessing %": "preprocess_percent",
    },
    "fastgl-fig13": {
        "system": "system", "strategy": "strategy", "ID map": "id_map", "ms a batch": "sample_ms", "epoch s": "epoch_s",
        "over dgl": "speedup",
    },
    "fastgl-fig14": {
        "part": "part", "batch": "batch_size", "features": "num_features", "fanouts": "fanouts", "system": "system",
        "sample ms": "sample_ms", "step ms": "step_ms", "epoch s": "epoch_s", "over dgl": "speedup",
    },
    "fastgl-fig15": {**_RUN, "over dgl": "speedup", "this step x": "step_gain"},
    "fastgl-table1": {
        "features GB": "feature_gb", "in use MB": "peak_mb", "left GB": "left_gb", "of 24 GB": "left_of_24_gb",
    },
    "fastgl-table9": {"system": "system", "MB": "mb", "over dgl": "over_dgl"},
    "fastgl-fig16": {
        "model": "model", "system": "system", "seed": "seed", "final loss": "final_loss",
        "final accuracy": "final_accuracy",
        "split": "split",
    },
    "gnnlab-table2": {
        "sampler": "sampler", "similarity %": "similarity_percent", "least %": "least_percent",
        "most %": "most_percent",
    },
    "gnnlab-fig4": {
        "part": "part", "features": "num_features", "cached %": "cache_percent", "hit %": "hit_percent",
        "MB": "mb_per_batch", "extract ms": "extract_ms",
    },
    "gnnlab-fig5": {
        "sampler": "sampler", "cached %": "cache_percent", "degree MB": "degree_mb", "presample MB": "presample_mb",
        "optimal MB": "optimal_mb", "degree over optimal": "degree_over_optimal",
    },
    "gnnlab-fig10": {
        "sampler": "sampler", "policy": "policy", "hit %": "hit_percent", "of optimal": "of_optimal",
        "over degree": "over_degree",
    },
    "gnnlab-fig11": {
        "part": "part", "sampler": "sampler", "policy": "policy", "features": "num_features",
        "cached %": "cache_percent", "hit %": "hit_percent", "MB": "mb_per_batch",
    },
    "gnnlab-fig12": {
        "model": "model", "policy": "policy", "cached %": "cache_percent", "hit %": "hit_percent",
        "ms a batch": "extract_ms", "epoch s": "extract_s", "less than random": "less_than_random",
    },
    **_NEXTDOOR,
}  # fmt: skip
"""Suite -> header -> field of a row (``a.b``: key ``b`` of ``a``). The graph's title comes before them."""
_NO_GRAPH = ("fastgl-table3",)


def row_key(row: dict[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    """What identifies a row among the paper's: a scaled graph counts as its original."""
    return tuple(scaled(str(row.get(key)))[0] if key == "graph" else row.get(key) for key in keys)


def _field(path: str) -> Cell:
    first, _, rest = path.partition(".")

    def cell(row: dict[str, Any]) -> Any:
        value = row.get(first)
        if rest:
            value = value.get(rest) if isinstance(value, dict) else None
        return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value

    return cell


def columns(record: dict[str, Any], title_of: Callable[[dict[str, Any], str], str]) -> dict[str, Cell]:
    """Header -> cell of a suite of the data side; empty for other suites."""
    fields = COLUMNS.get(record["suite"])
    if fields is None:
        return {}
    found: dict[str, Cell] = {}
    if record["suite"] not in _NO_GRAPH:
        found["graph"] = lambda row: _title(record, row["graph"], title_of)
    found |= {header: _field(path) for header, path in fields.items()}
    paper = record.get("paper", {})
    published = {row_key(row, paper["key"]): row for row in paper.get("rows", [])} if "key" in paper else {}
    for header, name in paper.get("show", {}).items():
        found[header] = _published(published, paper["key"], name)
    return found


def _published(published: dict[Any, dict[str, Any]], keys: Sequence[str], name: str) -> Cell:
    return lambda row: published.get(row_key(row, keys), {}).get(name)


def _title(record: dict[str, Any], name: str, title_of: Callable[[dict[str, Any], str], str]) -> str:
    scale = name.partition("@")[2]
    return f"{title_of(record, name)} x {scale}" if scale else title_of(record, name)


def notes(record: dict[str, Any]) -> list[str]:
    """What has to be known to read a table of the data side, and what the paper says in words."""
    if record["suite"] not in COLUMNS:
        return []
    rows, found = record.get("rows", []), []
    if any("@" in str(row.get("graph")) for row in rows):
        found.append("x SCALE: vertices, edges and mini-batches are scaled alike.")
    steps = {(row["steps"], row["steps_of_an_epoch"]) for row in rows if "steps_of_an_epoch" in row}
    if any(few < all_ for few, all_ in steps):
        found.append("Epoch seconds: of few steps, times the steps of an epoch.")
    paper = record.get("paper", {})
    if paper.get("source"):
        finding = f"{paper['finding']} " if paper.get("finding") else ""
        found.append(f"Paper: {finding}({paper['source']}).")
    return found
