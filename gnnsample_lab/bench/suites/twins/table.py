"""The record of the suite as tables, and what it says of a figure drawn on a twin."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from gnnsample_lab.bench.record import commit_of
from gnnsample_lab.bench.suite import Record, Row, markdown_table
from gnnsample_lab.bench.targets import Target, at_least, at_most

from .judge import ENOUGH, FITTED, GIVEN, PREDICTED, WORST, Cell, cell_of, label, verdict

BEGIN, END = "<!-- twins: begin -->", "<!-- twins: end -->"
"""Marks of the table in the README."""
TWIN = "-twin"
"""How names of twins end that were made of a graph at hand."""
FARTHEST = 3
"""Cells outside that are named for each graph."""


def cells(record: Record) -> dict[str, list[Cell]]:
    """Graph -> its cells, in the order of the record."""
    found: dict[str, list[Cell]] = {}
    for row in record["rows"]:
        found.setdefault(row["graph"], []).append(cell_of(row))
    return found


def verdicts(record: Record) -> list[Row]:
    """One row for each graph: the verdict, recomputed from the cells, and what was sampled."""
    rows = []
    for graph, group in cells(record).items():
        about = record.get("compared", {}).get(graph, {})
        found = verdict(group)
        rows.append({
            "graph": graph, "beside": about.get("kind", group[0].beside),
            "setting": about.get("setting", "as published"),
            "batch_share_percent": about.get("batch_share_percent"), "seeds": about.get("seeds"),
            "state": commit_of(about.get("environment", {})), **found.__dict__,
        })  # fmt: skip
    return rows


def targets(record: Record) -> list[Target]:
    """The share of cells inside, and the farthest cell, of the worst graph."""
    rows = verdicts(record)
    share = [(100 * row["inside"] / row["cells"], row["graph"]) for row in rows]
    farthest = [(row["worst_off"], f"{row['graph']}: {row['worst']}") for row in rows]
    return [
        *at_least("cells of a twin inside their tolerance", 100 * ENOUGH, "%", share),
        *at_most("farthest cell of a twin", WORST, "tolerances", farthest),
    ]


def notes(record: Record) -> list[str]:
    """How to read the table, and the cells that are farthest outside."""
    found = [
        "Inside: rows, frontiers and degrees within 10 % (degrees at least within 1), hit rates, shares, similarities "
        "and match degrees within 5 points, their spread within a half, Gini and clustering within 0.03, or twice the "
        "original's own spread over three training splits where that is more. Median of the twin's seeds. Accepted: "
        "nine cells of ten inside, none off by more than twice. Only a predicted cell inside says that a paper's claim "
        "is reproduced."
    ]
    for graph, group in cells(record).items():
        outside = sorted((cell for cell in group if not cell.inside), key=lambda cell: -cell.off)
        if outside:
            named = "; ".join(
                f"{label(cell)} {_value(cell, cell.twin)} for {_original(cell)}"
                for cell in outside[:FARTHEST]
            )
            more = f"; {len(outside) - FARTHEST} more" if len(outside) > FARTHEST else ""
            found.append(f"Outside, {graph}: {named}{more}.")
        remark = record.get("compared", {}).get(graph, {}).get("remark")
        if remark:
            found.append(f"{graph}: {remark}.")
        for cell in group:
            # The text draws uniformly, the released sampler repeats its draws, and either may count the last batch.
            if cell.beside == "published" and cell.quantity.startswith("match"):
                found.append(
                    f"{graph}, {cell.quantity} {_value(cell, cell.twin)} for {_original(cell)}: {cell.source}."
                )
    return found


def merged(old: Record, new: Record) -> Record:
    """``new`` with the graphs of ``old`` that it has not compared: graphs are measured one by one, and on several
    machines. Every graph keeps the environment in which it was compared."""
    again = set(new["compared"])
    kept = [row for row in old["rows"] if row["graph"] not in again]
    return {
        **new,
        "rows": [*kept, *new["rows"]],
        "compared": {**old.get("compared", {}), **new["compared"]},
        "graphs": {**old.get("graphs", {}), **new["graphs"]},
        "seconds": old.get("seconds", 0.0) + new["seconds"],
    }


# ---- the table of the README and of notebook 00 ----------------------------------------------------------------------

OF_THE_GRAPH = ("degree quantile", "gini", "top share", "clustering")
"""Quantities that a generator may be given: there a given cell inside is worth as much as any other."""
_Pick = tuple[str, str, str]
"""Quantity, detail, training set."""
_REAL: dict[str, _Pick] = {
    "top 10 % hold, %": ("top share", "10 %", ""),
    "Gini": ("gini", "", ""),
    "clustering": ("clustering", "", ""),
    "rows": ("rows", "", "random"),
    "rows, corner": ("rows", "", "corner"),
    "match %": ("match degree", "", "random"),
    "Degree 10 %": ("hit rate", "degree 10 %", "random"),
    "PreSC 10 %": ("hit rate", "presample 10 %", "random"),
    "PreSC 10 %, corner": ("hit rate", "presample 10 %", "corner"),
    "similarity %": ("similarity", "", "random"),
}
_KHOP = "8000 x (15, 10, 5)"
_PUBLISHED: dict[str, tuple[_Pick, str]] = {
    "clustering": (("clustering", "", ""), ""),
    "frontier 2": (("frontier", "hop 2", "train"), "2048 x (10, 10, 10)"),
    "frontier 3": (("frontier", "hop 3", "train"), "2048 x (10, 10, 10)"),
    "rows": (("rows", "", "train"), _KHOP),
    "match %": (("match degree", "", "train"), _KHOP),
    "its spread": (("match spread", "", "train"), _KHOP),
    "Degree 10 %": (("hit rate", "degree 10 %", "train"), _KHOP),
    "PreSC 10 %": (("hit rate", "presample 10 %", "train"), _KHOP),
    "similarity %": (("similarity", "", "train"), _KHOP),
}
_MARKS = {GIVEN: " g", FITTED: " f", PREDICTED: ""}


def _number(value: float, quantity: str) -> str:
    if not math.isfinite(value):
        return "-"
    if quantity in ("gini", "clustering"):
        return f"{value:.3f}"
    return f"{value:,.0f}".replace(",", " ") if value >= 1000 else f"{value:.1f}"


def _value(cell: Cell, value: float) -> str:
    return _number(value, cell.quantity)


def _original(cell: Cell) -> str:
    low, high = _value(cell, cell.low), _value(cell, cell.high)
    return low if low == high else f"{low} to {high}"


def _entry(cell: Cell | None) -> str:
    """Twin / original, with its mark; bold when outside."""
    if cell is None:
        return "-"
    text = f"{_value(cell, cell.twin)} / {_original(cell)}{_MARKS[cell.status]}"
    return text if cell.inside else f"**{text}**"


def _find(group: Iterable[Cell], pick: _Pick, setting: str | None = None) -> Cell | None:
    """The cell of a column; of a directed graph that of its out-degrees."""
    quantity, detail, training = pick
    details = (detail, f"out, {detail}" if detail else "out")
    for cell in group:
        same = (cell.quantity, cell.training) == (quantity, training) and cell.detail in details
        if same and (setting is None or cell.setting == setting):
            return cell
    return None


def _accepted(accepted: bool, predicted: int) -> str:
    return "yes" if accepted else "**no**" if predicted else "nothing predicted"


def _summary(group: list[Cell]) -> list[str]:
    found = verdict(group)
    off = f"{found.worst_off:.1f}" if math.isfinite(found.worst_off) else "-"
    return [f"{found.inside} of {found.cells}", f"{found.reproduced} of {found.predicted}", off,
            _accepted(found.accepted, found.predicted)]  # fmt: skip


_SUMMARY = ("inside", "predicted inside", "farthest", "accepted")


def markdown(record: Record) -> str:
    """The table twin / original / published, with what is outside and by how much."""
    groups = cells(record)
    states = {
        name: commit_of(record.get("compared", {}).get(name, {}).get("environment", {})) for name in groups
    }
    parts = []
    for kind, title, columns in (
        ("real", "Twins beside real graphs, twin / original", {h: (pick, None) for h, pick in _REAL.items()}),
        ("published", "Twins beside publications, twin / published", _PUBLISHED),
    ):
        mine = {name: group for name, group in groups.items() if group[0].beside == kind}
        if not mine:
            continue
        found: Mapping[str, tuple[_Pick, str | None]] = columns  # type: ignore[assignment]
        used = [
            h for h, (pick, setting) in found.items() if any(_find(g, pick, setting) for g in mine.values())
        ]
        rows = [
            [f"`{name}`", *_summary(group), *(_entry(_find(group, *found[h])) for h in used), states[name]]
            for name, group in mine.items()
        ]
        header = ("graph", *_SUMMARY, *used, "recorded at")
        parts.append("\n".join([f"**{title}**", "", *markdown_table(header, rows, numbers=True)]))
    parts.append(
        "Bold: outside its tolerance. g: given, f: fitted; the others are predicted. Farthest: in tolerances."
    )
    parts += notes(record)
    return "\n\n".join(parts)


def readme(text: str, record: Record) -> str:
    """``text`` with the table between its marks.

    Raises:
        ValueError: the marks are not there, once each and in order.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the text must have {BEGIN} and, behind it, {END}, each once")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{markdown(record)}\n{END}{rest.partition(END)[2]}"


# ---- what a figure may claim -----------------------------------------------------------------------------------------


def is_comparable(
    record: Record | None, graph: str, quantity: str, holds: Callable[[Cell], bool] | None = None
) -> bool:
    """Whether the cells that a figure of ``quantity`` on a twin rests on are inside, by ``record``.

    A twin that was never compared in this quantity, or only in cells whose answer was given, is not comparable.

    Args:
        record: of the suite; None where there is none.
        graph: name of the twin, or of the original beside which it was compared.
        quantity: a key of :data:`~.judge.TOLERANCES`.
        holds: which cells the figure rests on; all of the quantity by default.
    """
    if record is None:
        return False
    names = {graph, graph.removesuffix(TWIN), *_originals(graph)}
    # Rows are chosen before cells are made of them: a record has many, and a report asks again for every graph.
    of_figure = (
        cell_of(row) for row in record["rows"] if row["quantity"] == quantity and _base(row["graph"]) in names
    )
    rest = [cell for cell in of_figure if holds is None or holds(cell)]
    told = [cell for cell in rest if cell.status != GIVEN or quantity in OF_THE_GRAPH]
    return bool(told) and all(cell.inside for cell in told)


def _base(name: str) -> str:
    return name.partition("@")[0]


def _originals(twin: str) -> list[str]:
    """Real graphs of the catalogue that the twin stands for."""
    from gnnsample_lab.graph.catalogue import entries

    return [name for name, entry in entries().items() if entry.get("twin") == twin]
