"""How hard the labels of twins are: what sampled GraphSAGE reaches on the originals, beside what it reached here."""

from __future__ import annotations

from .suite import Record, usual_notes

ORIGINALS = {
    "arxiv-like": 0.7149, "products-like": 0.785, "papers100M-like": 0.6706, "reddit-like": 0.953, "flickr-like": 0.501,
}  # fmt: skip
"""Published accuracy (flickr, reddit: F1) of sampled GraphSAGE on the originals, to which the twins' labels are made:
see ``labels.told`` among the sources of their statistics."""
NEAR = 0.05
"""A best accuracy within so much of the published one shows that the labels are as hard."""


def hardness(record: Record) -> list[str]:
    """For the lines below a table: how the best accuracy on each twin compares with the published one."""
    best: dict[str, tuple[float, float]] = {}
    for row in record["rows"]:
        if row.get("original") is not None:
            accuracy = row.get("best_accuracy", row["accuracy"])
            before = best.get(row["graph"], (0.0, 0.0))[0]
            best[row["graph"]] = max(accuracy, before), row["original"]
    found = []
    for graph, (accuracy, original) in best.items():
        apart = accuracy - original
        how = "as hard as" if abs(apart) <= NEAR else "easier than" if apart > 0 else "not learnt as far as"
        found.append(
            f"{graph}: best accuracy {accuracy:.1%}, labels {how} the original's "
            f"({original:.1%}, GraphSAGE, published)."
        )
    return found


def curve_notes(record: Record) -> list[str]:
    """:func:`usual_notes`, and how hard the labels are."""
    return [*hardness(record), *usual_notes(record)]
