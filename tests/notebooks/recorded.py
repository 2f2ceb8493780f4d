"""What the notebooks say of recorded measurements, worked out from the records.

A notebook's sentence about a record is prose, and nobody runs prose. So each passage that names a record or a card has
an entry here: a function from records to the phrases that must stand in it. ``test_recorded.py`` finds passages without
an entry, phrases that are missing, statements that a record no longer bears out, and numbers that come from no record.
After a new record it says which cell to renew and prints the phrases; they are written into the cell by hand, since a
sentence may need other words where a result has changed its direction.
"""

from __future__ import annotations

import functools
import json
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gnnsample_lab.bench.measured import card_of
from gnnsample_lab.bench.record import is_modelled
from tests.notebooks.claims import FOLDER, cells, plain

MEASURED = FOLDER.parent / "data" / "measured"
NAMES = frozenset(path.stem for path in MEASURED.glob("*.json"))
CARD = re.compile(r"\b[AHBV]\d{2,3}s?\b")
ABOUT_OURS = re.compile(
    r"data/measured/\w|\b[AH][12]00s?\b|\b(?:[Rr]ecorded|[Mm]easured) on (?:an?|one|two|four|eight) [A-Z]"
)
"""What makes a paragraph one about our records: their folder, one of the cards that they are of, or the words."""
WHOLE = ("wins",)
"""Cells that are about records from end to end; of others only the paragraphs that name one."""
SMALL = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
PARTS = ("twice", "half", "thirds?", "quarters?", "fifths?", "tenths?", "dozen", "hundred", "thousand")
NUMBER = re.compile(
    rf"(?<![\w#.,])\d[\w.,]*(?: \d{{3}}\b)*|\b(?:{'|'.join((*SMALL[1:], *PARTS))})\b", re.IGNORECASE
)
Record = dict[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """A phrase that must stand in a passage, and whether the records bear it out.

    ``may_go``: a passage can do without it where they do not; it must be gone then.
    """

    text: str
    holds: bool = True
    may_go: bool = False

    @property
    def is_due(self) -> bool:
        return self.holds or not self.may_go

    def stands_in(self, words: str) -> bool:
        return bool(re.search(rf"(?<!\w){re.escape(plain(self.text))}(?!\w)", words))


@dataclass(frozen=True)
class Passage:
    """What a cell has to say.

    Args:
        records: their names, in the order of the arguments of ``says``.
        says: from the records to the phrases.
        given: phrases with numbers that come from no record: a paper's, a setting, a notebook's.
    """

    records: tuple[str, ...]
    says: Callable[..., Sequence[Said | str]]
    given: tuple[str, ...] = ()

    def phrases(self) -> list[Said]:
        """What the records of today make of it."""
        said = self.says(*(record(name) for name in self.records))
        return [Said(each) if isinstance(each, str) else each for each in said]

    def bare(self) -> list[str]:
        """Phrases that are no more than a number: it could stand anywhere, and would hide others like it."""
        every = (*(each.text for each in self.phrases()), *self.given)
        return [phrase for phrase in every if not re.search(r"[^\W\d]{2,}|\d+ ?%|\d (?:MB|GB)", phrase)]


PASSAGES: dict[tuple[str, str], Passage] = {}
"""Number of the notebook and id of the cell, or name of the page and "" -> its passage."""


def passage(
    where: str, cell: str, *records: str, given: Iterable[str] = ()
) -> Callable[[Callable[..., Sequence[Said | str]]], Callable[..., Sequence[Said | str]]]:
    """Enter the function as that of a cell's passage."""

    def enter(says: Callable[..., Sequence[Said | str]]) -> Callable[..., Sequence[Said | str]]:
        assert (where, cell) not in PASSAGES, (where, cell)
        PASSAGES[where, cell] = Passage(records, says, tuple(given))
        return says

    return enter


# ---- the check -------------------------------------------------------------------------------------------------------


@functools.lru_cache
def record(name: str) -> Record:
    """A record that is shipped."""
    found: Record = json.loads((MEASURED / f"{name}.json").read_text(encoding="utf-8"))
    return found


def paragraphs(source: str) -> list[str]:
    """Blocks between blank lines, and of tables and lists the entries; one that a colon announces belongs to what
    announces it."""
    found: list[str] = []
    for block in re.split(r"\n\s*\n", source):
        if found and found[-1].rstrip().endswith(":") and re.match(r"[|-]", block):
            found[-1] += "\n\n" + block
        else:
            found += re.split(r"\n(?=[|-])", block)
    return found


def about_ours(source: str, cell: str = "") -> str:
    """The paragraphs of a text that are about our records; "" where there are none."""
    cited = [part for part in paragraphs(source) if ABOUT_OURS.search(part) or cites(part)]
    return source if cited and cell in WHOLE else "\n\n".join(cited)


def cites(text: str) -> set[str]:
    """Records that a text names, as code: by file, or by a name with a hyphen (`path` and `step` are words, too)."""
    named = re.findall(r"`(data/measured/)?([\w-]+?)(\.json)?`", text)
    return {name for folder, name, ending in named if folder or ending or "-" in name} & NAMES


def texts() -> dict[tuple[str, str], str]:
    """Every text of the course: Markdown cells by notebook and id, and the pages beside them."""
    found = {
        (path.name[:2], cell.id): cell.source
        for path in sorted(FOLDER.glob("*.ipynb"))
        for cell in cells(path.name[:2])
        if cell.cell_type == "markdown"
    }
    pages = (*FOLDER.glob("*.md"), *FOLDER.glob("solutions/*.md"))
    return found | {(path.name, ""): path.read_text(encoding="utf-8") for path in sorted(pages)}


def strays(text: str, allowed: Iterable[str]) -> list[str]:
    """Numbers, in digits or words, that stand in no allowed phrase, nor in code, in a formula or in a name."""
    rest = plain(text)
    for phrase in sorted(map(plain, allowed), key=len, reverse=True):
        rest = re.sub(rf"(?<!\w){re.escape(phrase)}(?!\w)", " ; ", rest)
    rest = CARD.sub(" card ", re.sub(r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)", " ; ", rest))
    return [match.group().rstrip(".,") for match in NUMBER.finditer(rest)]


def problems(
    text: str, said: Sequence[Said], given: Sequence[str] = (), records: Iterable[str] = ()
) -> list[str]:
    """What is wrong with a passage, a line for each; empty where it says what its records say and no other number."""
    words, found = plain(text), []
    for name in sorted(set(records) ^ cites(text)):
        found.append(f"its entry and its text do not name the same records: {name}")
    for each in said:
        if not each.holds and (each.is_due or each.stands_in(words)):
            found.append(f"the records do not bear out: {each.text}")
        elif each.is_due and not each.stands_in(words):
            found.append(f"it must say: {each.text}")
    for phrase in given:
        if plain(phrase) not in words:
            found.append(f"its entry allows what it does not say: {phrase}")
    for number in strays(text, [each.text for each in said if each.is_due] + list(given)):
        found.append(f"no record says: {number}")
    return found


# ---- words for numbers -----------------------------------------------------------------------------------------------


def short(value: float) -> str:
    """Three digits, as people read them."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def span(values: Iterable[float], unit: str = "times", form: Callable[[float], str] = short) -> str:
    """From the least to the most; one number where they read alike."""
    found = list(values)
    low, high = form(min(found)), form(max(found))
    return f"{high} {unit}" if low == high else f"{low} to {high} {unit}"


def tenths(value: float) -> str:
    return f"{value:.1f}"


def thousands(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def change(shares: Iterable[float]) -> str:
    """From the least to the most change, with their signs."""
    return span(
        (100 * share for share in shares), "%", lambda value: f"{value:+.0f}" if round(value) else "0"
    )


def whole(value: float) -> str:
    return f"{value:.0f}"


def percent(shares: Iterable[float]) -> str:
    return span((100 * share for share in shares), "%", whole)


def median(values: Iterable[float]) -> str:
    return f"median {short(statistics.median(values))}"


def counted(number: int) -> str:
    """A small number as a word."""
    return SMALL[number - 1] if 1 <= number <= len(SMALL) else str(number)


def cards(of: Record, count: int = 1) -> str:
    """ "an H200", "two H100s": on what a record was made."""
    name = card_of(of)
    if count > 1:
        return f"{counted(count)} {name}s"
    return f"{'an' if name[0] in 'AHLR' else 'a'} {name}"


def of_card(name: str) -> dict[str, Any]:
    """What records say of a card."""
    gpus = (record(each)["environment"]["gpu"] for each in sorted(NAMES) if "environment" in record(each))
    return next(dict(gpu) for gpu in gpus if gpu and name in gpu["name"])


def rows(of: Record, **wanted: Any) -> list[Row]:
    """The measured rows whose fields are as wanted, a value or one of several."""
    return [
        row
        for row in of["rows"]
        if not is_modelled(row)
        and all(row.get(k) in v if isinstance(v, tuple) else row.get(k) == v for k, v in wanted.items())
    ]


def graphs_of(found: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row["graph"] for row in found))


def listed(words: Iterable[str]) -> str:
    """ "a, b and c"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def names(graphs: Sequence[str]) -> str:
    """`a`, `b` and `c`."""
    return listed(f"`{graph.partition('@')[0]}`" for graph in graphs)
