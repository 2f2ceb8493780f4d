"""How hard the labels of twins are: what GraphSAGE reaches on the originals, beside what it reached here."""

from __future__ import annotations

from typing import Any

from .record import scaled
from .suite import Record, Row, usual_notes

ORIGINALS: dict[str, dict[str, float]] = {
    "arxiv-like": {"valid": 0.7277, "test": 0.7149}, "products-like": {"valid": 0.9224, "test": 0.785},
    "papers100M-like": {"valid": 0.7032, "test": 0.6706}, "reddit-like": {"test": 0.953},
    "flickr-like": {"test": 0.501},
}  # fmt: skip
"""Published accuracy (flickr, reddit: F1) of GraphSAGE on the originals by split, from where the statistics of the
twins have ``labels.told``, to which their labels are made (the test set's; OGB publishes the validation set's beside
it). Those of arxiv and products are of full batches; with sampled neighbours OGB's table has 0.917 and 0.787 for
products."""
NEAR = 0.05
"""A best accuracy within so much of the published one shows that the labels are as hard."""


def original(name: str, split: str) -> dict[str, Any]:
    """``original``, the published accuracy on what a twin stands for, and its ``original_split``; empty if unknown.

    Of the same split where that was published, else of the test set.
    """
    known = ORIGINALS.get(scaled(name)[0])
    if known is None:
        return {}
    of = split if split in known else "test"
    return {"original": known[of], "original_split": of}


def hardness(record: Record) -> list[str]:
    """For the lines below a table: how the best accuracy on each twin compares with the published one."""
    best: dict[str, Row] = {}
    for row in record["rows"]:
        if row.get("original") is not None:
            accuracy = row.get("best_accuracy", row["accuracy"])
            if row["graph"] not in best or accuracy > best[row["graph"]]["best"]:
                best[row["graph"]] = {**row, "best": accuracy}
    found = []
    for graph, row in best.items():
        apart = row["best"] - row["original"]
        how = "as hard as" if abs(apart) <= NEAR else "easier than" if apart > 0 else "not learnt as far as"
        found.append(
            f"{graph}: best accuracy {row['best']:.1%}, labels {how} the original's "
            f"({row['original']:.1%} on its {row['original_split']} split, GraphSAGE, published)."
        )
    return found


def curve_notes(record: Record) -> list[str]:
    """:func:`usual_notes`, and how hard the labels are."""
    return [*hardness(record), *usual_notes(record)]
