"""What a suite is: the function that runs it, what its table shows, what a paper has beside it, what it aims at."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .targets import Target

Row = dict[str, Any]
Record = dict[str, Any]
Columns = Mapping[str, str | Callable[[Row], Any]]
"""Header -> field of a row (``a.b``: key ``b`` of ``a``), or a function of the row."""

PUBLISHED_QUEUE = "persistent, published"
"""In rows: PGSampler's queue as its paper has it, a block a task; ``persistent`` is ours, teams that serve several."""


class VerificationError(RuntimeError):
    """A strategy returned another sample than the CPU twin, so nothing of it is timed."""


class Unavailable(RuntimeError):
    """The suite needs a GPU or a package that is not there."""


def no_targets(record: Record) -> list[Target]:
    """For suites that aim at nothing."""
    return []


def kept_to(card: str, caches: str, **more: str) -> dict[str, str]:
    """Settings of a suite whose caches are as large as ``card`` would have them: what :func:`capacity` and
    :func:`usual_notes` tell of.

    Args:
        caches: how large they are. more: ``budget``, what the size is of.
    """
    return {"capacity_of": card, "caches": caches, **more}


def capacity(record: Record) -> str:
    """Whose memory caches were kept to, and whose speed a table shows; empty where nothing was kept to a size."""
    card = record.get("settings", {}).get("capacity_of")
    gpu = record.get("environment", {}).get("gpu")
    return f"capacity of {card}, speed of {'an ' + gpu['name'] if gpu else 'the CPU'}" if card else ""


def usual_notes(record: Record) -> list[str]:
    """What a reader has to know of scaled graphs and extrapolated epochs, and what the paper says in words."""
    rows, found = record.get("rows", []), []
    if any("@" in str(row.get("graph")) for row in rows):
        found.append("x SCALE: vertices, edges and mini-batches are scaled alike.")
    steps = {(row["steps"], row["steps_of_an_epoch"]) for row in rows if "steps_of_an_epoch" in row}
    if any(few < all_ for few, all_ in steps):
        found.append("Epoch seconds: of few steps, times the steps of an epoch.")
    if capacity(record):
        budget = record["settings"].get("budget")
        found.append(
            f"Caches are {record['settings']['caches']}: {capacity(record)}."
            + f" Budget: {budget}." * bool(budget)
        )
    paper = record.get("paper", {})
    if paper.get("source"):
        finding = f"{paper['finding']} " if paper.get("finding") else ""
        found.append(f"Paper: {finding}({paper['source']}).")
    return found


@dataclass(frozen=True)
class Percent:
    """A cell: a share of a row's field, in percent."""

    field: str

    def __call__(self, row: Row) -> Any:
        value = row.get(self.field)
        return None if value is None else 100 * value


def as_recorded(columns: Mapping[str, str | Callable[[Row], Any]]) -> Callable[[Record], Columns]:
    """The columns of what the rows hold, with what is reduced in their headers.

    A field that no row has is left out: records from before there was such a field are shown without it. Headers of
    epoch times say of how many mini-batches these are if they are not an epoch's own: a record's ``settings["steps"]``
    is an epoch that was cut alike for all graphs; a row's ``steps`` below its ``steps_of_an_epoch`` says that few were
    timed and multiplied.
    """

    def made(record: Record) -> Columns:
        rows = record["rows"]
        few = {row["steps"] for row in rows if row.get("steps_of_an_epoch", 0) > row.get("steps", 0)}
        words = f" (from {max(few)} steps)" if few else ""
        if record["settings"].get("steps"):
            words = f" (of {record['settings']['steps']} steps)"
        return {
            f"{head}{words}" if head.startswith("epoch ") else head: cell
            for head, cell in columns.items()
            if _is_known(cell, rows)
        }

    return made


def _is_known(cell: str | Callable[[Row], Any], rows: Sequence[Row]) -> bool:
    """Whether a row has the field that a cell shows; of a cell that is worked out nobody knows which it reads."""
    field_ = cell.field if isinstance(cell, (Percent, Spread)) else cell
    return not isinstance(field_, str) or not rows or any(field_.partition(".")[0] in row for row in rows)


AS_LEFT, EMPTIED, FLUSHED = "as left", "cold", "flushed"
L2 = {
    AS_LEFT: f"{AS_LEFT}: never flushed, work finds what the work before it left",
    EMPTIED: f"{EMPTIED}: Nsight Compute empties it before each kernel",
    FLUSHED: f"{FLUSHED}: cold, something larger is written before each pass",
}
"""What a row's word for how its work finds the L2 cache means, in suites whose rows all have the same one."""


@dataclass(frozen=True)
class Suite:
    """One suite, declared in the ``__init__.py`` of the folder that holds its function.

    Args:
        name: as ``gnnsample-lab bench`` takes it.
        path: of the function that runs it, below this folder: ``"suites.host.cpu"``.
        about: one line on what it measures.
        columns: of its table, or a function of the record that makes them; the graph's title stands before them.
        paper: what was published, as :meth:`Paper.part` returns it; it is stored with every record.
        targets: from a record to the targets that it says something about.
        notes: from a record to the lines below its table.
        needs_gpu: whether it is refused on a machine without one.
        takes_graphs: whether it runs on the graphs that a session was given; one that has none, or graphs of its own
            alone, refuses them. takes_one: it runs on one graph at a time, and refuses several.
        last: it needs so much memory or time that ``bench all`` runs it after the others.
        file: name of its record, where it is not ``name.json``.
        shown: from a record to the rows of its table, where those are not the record's own.
        one_by_one: path of a function from the session to the graphs, for a suite that runs and saves them one by one.
        rests_on: quantities of a sample (as in the suite ``twins``) that its numbers follow from; a twin that is not
            like its original in them is titled as not comparable with it.
        merge: from the record on the disk and a new one to what is saved, for a suite whose graphs share a record.
        l2: how rows find the GPU's L2 cache, where all are alike: a key of :data:`L2`. Suites whose rows differ, or
            count what no cache changes, leave it empty.
        seconds: that a full run takes, where none was recorded and five times a quick one's would be wrong; 0: not
            known. A recorded full run counts in its place.
    """

    name: str
    path: str
    about: str
    columns: Columns | Callable[[Record], Columns] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)
    targets: Callable[[Record], list[Target]] = no_targets
    notes: Callable[[Record], list[str]] = usual_notes
    needs_gpu: bool = True
    takes_graphs: bool = True
    takes_one: bool = False
    last: bool = False
    file: str = ""
    shown: Callable[[Record], list[Row]] | None = None
    one_by_one: str = ""
    rests_on: tuple[str, ...] = ()
    merge: Callable[[Record, Record], Record] | None = None
    l2: str = ""
    seconds: float = 0.0

    def problem_with(self, graphs: Sequence[str]) -> str:
        """Why it cannot run on the graphs that somebody chose; empty where it can, and where nobody chose any."""
        if graphs and not self.takes_graphs:
            return "no graph can be chosen there"
        return "one graph at a time there" if self.takes_one and len(graphs) > 1 else ""

    def function(self) -> Callable[..., dict[str, Any]]:
        """The function that runs it; its module is imported now."""
        found: Callable[..., dict[str, Any]] = _imported(self.path)
        return found

    def graphs(self, session: Any) -> tuple[str, ...]:
        """The graphs that are run and saved one by one; empty for a suite that runs as a whole."""
        return tuple(_imported(self.one_by_one)(session)) if self.one_by_one else ()


def _imported(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f".{module}", __package__), name)


@dataclass(frozen=True)
class Paper:
    """Published measurements.

    Args:
        system: what was measured, and on which machine.
        findings: table or figure (``"figure 9"``) -> what the paper's text says of it.
    """

    system: str
    findings: Mapping[str, str] = field(default_factory=dict)

    def part(
        self, where: str, rows: Sequence[Row] = (), key: Sequence[str] = (), show: Mapping[str, str] | None = None,
        **more: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """What stands beside a suite that repeats one table or figure.

        Args:
            where: the table or figure.
            rows: its published rows.
            key: fields in which a measured row equals its published one; without them no column is added.
            show: header -> field of the published row, printed behind the measured columns.
            more: stored with the record.
        """
        found: dict[str, Any] = {"source": f"{self.system}, {where}", **more}
        if where in self.findings:
            found["finding"] = self.findings[where]
        if rows:
            found["rows"] = list(rows)
        if key:
            found |= {"key": list(key), "show": dict(show or {})}
        return found


def work(row: Row) -> str:
    """The size of a sampling task, as a cell."""
    return f"{row['batch_size']} x {row['fanout']}, {row['hops']} hops"


WORK: Columns = {"batch x fanout": work}


def number(value: Any) -> str:
    """A value as a cell of a table."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ")
    if value >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if value >= 20 else f"{value:.2f}"


def markdown_table(header: Sequence[str], body: Iterable[Sequence[str]], numbers: bool = False) -> list[str]:
    """The lines of a Markdown table of cells that are text already.

    Args:
        header, body: the names of the columns, and the rows.
        numbers: whether all columns but the first stand to the right.
    """
    rule = ["---", *("---:" if numbers else "---" for _ in header[1:])]
    return [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (header, rule, *body)
    ]


@dataclass(frozen=True)
class Spread:
    """A cell with a median and, where the row's ``spread`` has them, p10 and p90: ``"57.6 (55.0-60.1)"``.

    Attributes:
        field: of the median, ``a.b`` for key ``b`` of ``a``. The row's ``spread`` has p10 and p90, in the median's
            unit, under ``a.b`` or, where no other field ends alike, under the last part of it.
    """

    field: str

    def __call__(self, row: Row) -> Any:
        *above, last = self.field.split(".")
        value: Any = row
        for part in (*above, last):
            value = value.get(part) if isinstance(value, dict) else None
        around = row.get("spread", {})
        around = around.get(self.field) or around.get(last, {})
        low, high = (
            next((around[key] for key in around if key.startswith(p)), None) for p in ("p10_", "p90_")
        )
        return value if value is None or low is None else f"{number(value)} ({number(low)}-{number(high)})"
