"""Recorded suites as tables, the paper's value beside the measured one, and which targets are met."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnsample_lab.files import read_json, reading
from gnnsample_lab.resources import resource_path

from .record import FORMAT, card_of, scaled, state
from .suite import Row, capacity, markdown_table
from .suite import number as _number
from .suites import SUITES, targets_of
from .suites.twins import claims
from .targets import Target

Cell = Callable[[Row], Any]
FAILED = "failed"
"""Column of what went wrong, left out where nothing did."""


@dataclass(frozen=True)
class Table:
    """A title, the columns' names, rows of cells (text already), and lines to print below."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Aligned columns for a terminal."""
        widths = [max(len(row[i]) for row in (self.header, *self.rows)) for i in range(len(self.header))]
        lines = [
            "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True))
            for row in (self.header, *self.rows)
        ]
        return "\n".join([self.title, lines[0], "-" * len(lines[0]), *lines[1:], *self.notes])

    def markdown(self) -> str:
        """A Markdown table under its title."""
        table = markdown_table(self.header, self.rows, numbers=True)
        return "\n".join([f"**{self.title}**", "", *table, *(f"\n{note}" for note in self.notes)])


def load(folder: Path | str | None = None) -> dict[str, dict[str, Any]]:
    """Records by file name without ending, from ``folder`` or the ``data/measured`` that was shipped.

    Raises:
        CorruptDataError: (a ValueError) a file is damaged, lacks what its tables show, or is from a newer version; the
            message names it.
    """
    if folder is None:
        try:
            folder = resource_path("data/measured")
        except FileNotFoundError:
            return {}
    found = {}
    for path in sorted(Path(folder).glob("*.json")):
        record = read_json(path, object)
        if not isinstance(record, dict) or "suite" not in record:
            continue
        with reading(path, "a benchmark record"):
            if record.get("format", 0) > FORMAT:
                raise ValueError(f"it has format {record['format']}, this library reads up to {FORMAT}")
            text(record)  # whoever shows it later would not know the file
        found[path.stem] = record
    return found


def title_of(record: dict[str, Any], name: str) -> str:
    """The graph's title, which says when it is synthetic and not comparable with its original, and its scale."""
    facts = record.get("graphs", {}).get(name, {})
    title, scale = facts.get("title", name), name.partition("@")[2]
    title = f"{title} x {scale}" if scale else title
    for quantity in SUITES[record["suite"]].rests_on:
        said = claims.said(title, name, facts.get("is_synthetic", False), quantity, facts.get("version"))
        if said != title:
            return said
    return title


def _field(path: str) -> Cell:
    first, _, rest = path.partition(".")

    def cell(row: Row) -> Any:
        value = row.get(first)
        if rest:
            value = value.get(rest) if isinstance(value, dict) else None
        return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value

    return cell


def _key(row: Row, keys: Sequence[str]) -> tuple[Any, ...]:
    """What identifies a row among the paper's: a scaled graph counts as its original, and what is in the style of a
    published system stands beside it.
    """

    def part(key: str) -> Any:
        value = row.get(key)
        if key == "graph":
            return scaled(str(value))[0]
        return value.removesuffix("-style") if key == "system" and isinstance(value, str) else value

    return tuple(part(key) for key in keys)


def _published(record: dict[str, Any]) -> dict[str, Cell]:
    """Header -> the paper's value of the row that has the same key."""
    paper = record.get("paper", {})
    if "key" not in paper:
        return {}
    known = {_key(row, paper["key"]): row for row in paper["rows"]}

    def cell(name: str) -> Cell:
        return lambda row: known.get(_key(row, paper["key"]), {}).get(name)

    return {header: cell(name) for header, name in paper["show"].items()}


def _columns(record: dict[str, Any], rows: Sequence[Row]) -> dict[str, Cell]:
    chosen = SUITES[record["suite"]].columns
    found: dict[str, Cell] = {}
    if "graph" in rows[0]:
        found["graph"] = lambda row: title_of(record, row["graph"])
    old = "source" not in record  # such a record may be older than a column of its suite
    for header, cell in (chosen(record) if callable(chosen) else chosen).items():
        if old and isinstance(cell, str) and not any(cell.partition(".")[0] in row for row in rows):
            continue
        found[header] = _field(cell) if isinstance(cell, str) else cell
    if SUITES[record["suite"]].l2 and any("l2" in row for row in rows):
        found["L2"] = _field("l2")
    return found | _published(record)


def origin(record: dict[str, Any]) -> str:
    """Where, with what and from which commit a record comes."""
    at = record["environment"]
    gpu = at["gpu"]
    where = (
        f"{gpu['name']}, driver {gpu['driver']}, CuPy {gpu['cupy']}"
        if gpu
        else f"{at['cpu']}, {at['cpu_cores']} cores"
    )
    quick = ", quick run" if record["settings"].get("quick") else ""
    count = 1 + len(record.get("resumed", ()))
    quick += f", in {count} runs, no ratio between two of them" if count > 1 else ""
    return (
        f"measured on {where}{_host(at)}, Python {at['python']}, recorded at {state(record)}, "
        f"{at['date'][:10]}{quick}"
    )


def _host(at: dict[str, Any]) -> str:
    """How quick the host was, before and after the suite, of records that say it."""
    found, after = at.get("host"), at.get("host_after")
    if found is None:
        return ""
    launch = "" if found["launch_us"] is None else f" a launch and its wait {found['launch_us']:.1f} us,"
    then = "" if after is None else f" ({after['python_us']:.0f} after the suite)"
    quick = (
        f", {found['quick_python_us']:.0f} on the quickest of {found['cores']} cores"
        if found.get("cores")
        else ""
    )
    passes = (after or {}).get("taken_again", 0) - found.get("taken_again", 0)
    again = f", {passes} passes taken again" if passes else ""
    return f", on its host{launch} 10 000 turns of a loop {found['python_us']:.0f} us{then}{quick}{again}"


def tables(record: dict[str, Any]) -> list[Table]:
    """The results, and the targets where the suite has any."""
    found, suite = [], SUITES.get(record["suite"])
    if record["rows"] and suite and suite.columns:
        shown = suite.shown(record) if suite.shown else record["rows"]
        columns = _columns(record, shown)
        if all(row.get("error") is None for row in shown):
            columns.pop(FAILED, None)
        rows = tuple(tuple(_number(cell(row)) for cell in columns.values()) for row in shown)
        notes = (*record.get("notes", []), *suite.notes(record))
        kept = f" ({capacity(record)})" if capacity(record) else ""
        found.append(Table(f"{record['suite']}: {record['about']}{kept}", tuple(columns), rows, notes))
    wanted = targets_of(record)
    if wanted:
        found.append(targets_table(f"{record['suite']}: targets", wanted))
    return found


def targets_table(title: str, wanted: Iterable[Target]) -> Table:
    """Targets, what was measured where, and whether they are met."""
    return Table(title, _TARGET, tuple(_cells(target) for target in wanted))


_TARGET = ("", "target", "measured", "met", "where")


def _cells(t: Target) -> tuple[str, ...]:
    return (
        t.what,
        f"{t.target} {t.unit}",
        f"{_measured(t)} {t.unit}",
        _met(t),
        t.where,
    )


def _measured(t: Target) -> str:
    """The measured value, with more digits where it would read as the limit that it missed."""
    shown = _number(t.measured)
    limit = _number(float(t.target.rpartition(" ")[2]))
    return shown if t.met or shown != limit else f"{t.measured:.6g}"


def _met(t: Target) -> str:
    """Whether a target is met; of another card's it is no failure where it is not."""
    if t.card:
        return f"{'yes' if t.met else 'no'}: an {t.card}'s"
    return "yes" if t.met else "NO"


def _all_targets(chosen: Sequence[dict[str, Any]]) -> Table:
    """The targets of several records, each with the card and where it was recorded: they are of several states."""
    rows = tuple(
        (*_cells(target), card_of(record), state(record))
        for record in chosen
        for target in targets_of(record)
    )
    return Table("Targets", (*_TARGET, "GPU", "recorded at"), rows)


def text(record: dict[str, Any]) -> str:
    """One record for a terminal."""
    verified = ", ".join(
        f"{key} {value}" for key, value in record["verification"].items() if isinstance(value, int)
    )
    return "\n\n".join(
        [*(table.text() for table in tables(record)), f"{origin(record)}; verified: {verified}"]
    )


def markdown(records: dict[str, dict[str, Any]], suites: Sequence[str] | None = None) -> str:
    """Records as Markdown: first the targets of all, then a table per suite with its origin.

    Args:
        records: as :func:`load` has them.
        suites: of these alone; None: of all.
    """
    chosen = [record for record in records.values() if suites is None or record["suite"] in suites]
    if not chosen:
        return "Nothing is recorded yet."
    targets = _all_targets(chosen)
    parts = [targets.markdown()] if targets.rows else []
    for record in chosen:
        results = [table for table in tables(record) if not table.title.endswith(": targets")]
        parts += [f"{table.markdown()}\n\n*{origin(record)}*" for table in results]
    return "\n\n".join(parts)
