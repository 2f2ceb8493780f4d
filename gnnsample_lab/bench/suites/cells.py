"""Cells and columns that tables of several papers' suites have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gnnsample_lab.bench.suite import Columns, Row, number

SEEDS_A_BATCH: dict[str, str | Callable[[Row], Any]] = {"seeds a batch": "batch_size"}
"""Of a rank where there are several."""
WORK_A_BATCH: dict[str, str | Callable[[Row], Any]] = {
    "rows a batch": "rows_per_batch",
    "picks a batch": "picks_per_batch",
}
"""What rows have to share before their times compare, as ``common.work_per_batch`` writes it."""


def milliseconds(field: str) -> Callable[[Row], Any]:
    """Seconds of a row as milliseconds: epochs of graphs that are scaled down are short."""
    return lambda row: None if row.get(field) is None else 1e3 * row[field]


EPOCH_MS: dict[str, str | Callable[[Row], Any]] = {
    "epoch ms": milliseconds("epoch_s"), "p10": milliseconds("p10_s"), "p90": milliseconds("p90_s"),
}  # fmt: skip
"""A run's median epoch and its spread, as ``common.epoch_seconds`` writes them."""


def between(middle: str, low: str, high: str, factor: float = 1) -> Callable[[Row], Any]:
    """A cell with a median and, where they are recorded, p10 and p90 behind it: ``"57.6 (55.0-60.1)"``.

    Args:
        middle, low, high: fields of the row. factor: what they are multiplied by.
    """

    def cell(row: Row) -> Any:
        found = [None if row.get(name) is None else factor * row[name] for name in (middle, low, high)]
        if None in found:
            return found[0]
        return f"{number(found[0])} ({number(found[1])}-{number(found[2])})"

    return cell


GRAPHS: Columns = {
    "nodes": "num_nodes", "edges": "num_edges", "features": "num_features", "classes": "num_classes",
}  # fmt: skip
"""A paper's table of graphs."""
GRAPHS_IN_PRINT = {
    "paper nodes": "num_nodes", "paper edges": "num_edges", "paper features": "num_features",
    "paper classes": "num_classes",
}  # fmt: skip
"""What the paper itself says of them."""
