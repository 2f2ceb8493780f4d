"""How much twins are like their originals, for a first reading: a sentence each, the numbers behind a fold."""

from __future__ import annotations

from typing import Any

from gnnsample_lab import bench
from gnnsample_lab.bench.suites.twins import table
from gnnsample_lab.bench.suites.twins.claims import NOTHING, as_shown

DEFAULT = "arxiv-like"
"""The twin that stands in for the default graph; its original was never compared with it."""
_WORDS = {
    "rows": "rows of a mini-batch", "frontier": "frontiers", "hit rate": "hit rates", "match degree": "match degrees",
    "match spread": "spread of match degrees", "similarity": "similarity of batches",
    "degree quantile": "quantiles of the degrees", "top share": "share of the largest degrees", "gini": "Gini index",
    "clustering": "clustering",
}  # fmt: skip


class TwinsAtAGlance:
    """A row for every twin: whether it was accepted, and what was found to be off; a notebook shows it as a table."""

    def __init__(self, shown: Any) -> None:
        self._numbers = shown

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """Name of the twin, the verdict, and a sentence."""
        record = self._numbers.record
        if record is None:
            return []
        cells = table.cells(record)
        found = []
        for row in table.verdicts(record):
            off = dict.fromkeys(cell.quantity for cell in cells[row["graph"]] if not cell.inside)
            words = ", ".join(_WORDS.get(quantity, quantity) for quantity in off)
            beside = "the real graph" if row["beside"] == "real" else "publications"
            sentence = f"{row['inside']} of {row['cells']} numbers agree with {beside}"
            sentence += f"; in some cases off: {words}." if off else "."
            name = f"twin of {row['graph']}" if row["beside"] == "real" else row["graph"]
            found.append((name, "accepted" if row["accepted"] else "not accepted", sentence))
        if DEFAULT not in cells:
            sentence = (
                "No record compares it with ogbn-arxiv: it explains mechanisms, and is evidence of nothing."
            )
            found.insert(0, (DEFAULT, "not compared", sentence))
        return found

    def _repr_markdown_(self) -> str:
        if not self.rows:
            return NOTHING
        lines = [
            "| twin | | in a sentence |",
            "| --- | --- | --- |",
            *(f"| `{name}` | {verdict} | {sentence} |" for name, verdict, sentence in self.rows),
        ]
        fold = "<details><summary>All numbers, and how to read them</summary>"
        # Blank lines around it, or the table in the fold would be shown as it is written.
        return f"{as_shown(chr(10).join(lines))}\n\n{fold}\n\n{self._numbers._repr_markdown_()}\n\n</details>"

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {verdict}. {sentence}" for name, verdict, sentence in self.rows) or NOTHING


def at_a_glance() -> TwinsAtAGlance:
    """Twins beside their originals, as recorded, in a sentence each."""
    return TwinsAtAGlance(bench.twins_table())
