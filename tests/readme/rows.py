"""What the coverage tables of the README say of records, worked out from the records.

A row of a table or figure tells what was found, in prose. So each row that names a suite with a record has an entry:
a function from records to the phrases that must stand in the row's state. ``test_coverage.py`` finds rows without an
entry, phrases that are missing, verdicts that a record no longer bears out, and numbers that come from no record. After
a new record it prints the phrases; they are written into the row by hand, since a verdict may need other words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gnnsample_lab.bench.measured import card_of
from gnnsample_lab.bench.record import most
from tests.notebooks.recorded import NAMES, Passage, Record, Said, counted, problems, strays

README = Path(__file__).resolve().parents[2] / "README.md"
PAPERS = ("PGSampler", "FastGL", "GNNLab", "NextDoor", "DSP")
VERDICT = re.compile(r"reproduced|smaller|larger|reversed|missed")
Phrases = Sequence[Said | str]


@dataclass(frozen=True)
class Row:
    """A row of a coverage table.

    Args:
        paper: whose table.
        what: the first cell.
        state: the second, with the third behind it: what was found, and where it is.
    """

    paper: str
    what: str
    state: str

    @property
    def records(self) -> set[str]:
        """Recorded suites that the row names as ``bench NAME``, or by the end of a name behind one."""
        found, before = set(), ""
        for code in re.findall(r"`([^`]+)`", self.state):
            name = code.removeprefix("bench ")
            if name.startswith("-") and before:
                name = before.partition("-")[0] + name
            if name in NAMES and ("-" in name or code.startswith("bench ")):
                found.add(name)
                before = name
        return found

    @property
    def tells(self) -> bool:
        """Whether the row tells what a record holds: a number, or what became of a paper's claim."""
        return bool(self.records) and bool(strays(self.found, []) or VERDICT.search(self.found))

    @property
    def found(self) -> str:
        """The state without code: commands and names of arguments hold no measurement."""
        return without_code(self.state)


NAMED = r"(?:notebook|figure|table|section|equation|algorithm)s?"
NO_MEASUREMENT = re.compile(rf"`[^`]*`|(?i:\b{NAMED}) [\d.]+[ab]?\b(?:(?:,| and| to) \d+\b(?! x| %))*")


def without_code(text: str) -> str:
    """The text with a mark for each piece of code, and for numbers of notebooks, figures and the like."""
    return NO_MEASUREMENT.sub(" ; ", text)


def coverage(text: str) -> list[Row]:
    """The rows of all coverage tables of a README."""
    rows = []
    for paper in PAPERS:
        section = text.partition(f"\n### {paper}\n")[2].partition("\n#")[0]
        for line in section.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if line.startswith("| ") and len(cells) > 1 and cells[1] != "state":
                rows.append(Row(paper, cells[0], " | ".join(cells[1:]).strip(" |")))
    return rows


ENTRIES: dict[tuple[str, str], Passage] = {}
"""Paper and how the row's first cell begins -> what its state must say."""


def row(
    paper: str, begins: str, *records: str, given: Iterable[str] = ()
) -> Callable[[Callable[..., Phrases]], Callable[..., Phrases]]:
    """Enter the function as that of the row of ``paper`` whose first cell begins so."""

    def enter(says: Callable[..., Phrases]) -> Callable[..., Phrases]:
        assert (paper, begins) not in ENTRIES, (paper, begins)
        ENTRIES[paper, begins] = Passage(records, says, tuple(given))
        return says

    return enter


def wrong(of: Row, entry: Passage) -> list[str]:
    """What is wrong with a row, a line for each."""
    names = set(entry.records) ^ of.records
    found = [f"its entry and its text do not name the same records: {name}" for name in sorted(names)]
    said = [replace(each, text=without_code(each.text)) for each in entry.phrases()]
    return found + problems(of.found, said, [without_code(phrase) for phrase in entry.given])


def cards(of: Record, count: int = 1) -> str:
    """ "one H200", "two H200": on what a record was made."""
    return f"{counted(count)} {card_of(of)}"


def all_cards(of: Record) -> str:
    """:func:`cards` with the most of them that a row of the record was measured on."""
    ranks = of["settings"].get("ranks")
    return cards(of, ranks if isinstance(ranks, int) else most(of, "gpus"))
