"""Every row of the README's coverage tables says what its records say today, and no number besides."""

from __future__ import annotations

import re

import pytest

from tests.readme import dsp, fastgl, gnnlab, nextdoor, pgsampler  # noqa: F401 - each enters its rows
from tests.readme.rows import ENTRIES, README, Row, coverage, wrong

ROWS = coverage(README.read_text(encoding="utf-8"))


def rows_of(paper: str, begins: str) -> list[Row]:
    return [row for row in ROWS if row.paper == paper and row.what.startswith(begins)]


@pytest.mark.parametrize("where", ENTRIES, ids=lambda where: "-".join(where).replace(" ", "-"))
def test_a_row_says_what_its_records_say(where: tuple[str, str]) -> None:
    (row,) = rows_of(*where)
    found = wrong(row, ENTRIES[where])
    assert not found, "\n".join([f"{': '.join(where)} is not what data/measured says:", *found])


def test_every_row_that_tells_of_a_record_has_an_entry() -> None:
    entered = {id(row) for where in ENTRIES for row in rows_of(*where)}
    bare = [f"{row.paper}: {row.what}" for row in ROWS if row.tells and id(row) not in entered]
    assert not bare, f"{bare}: say in tests/readme what must stand there"


@pytest.mark.parametrize("where", ENTRIES, ids=lambda where: "-".join(where).replace(" ", "-"))
def test_a_phrase_is_more_than_a_number(where: tuple[str, str]) -> None:
    """A bare number could stand anywhere, and would hide others like it."""
    for phrase in (*(each.text for each in ENTRIES[where].phrases()), *ENTRIES[where].given):
        assert re.search(r"[^\W\d]{2,}|\d+ ?%|\d (?:MB|GB)", phrase), phrase


TABLE = """
### DSP

| | state |
|---|---|
| figure 12: the pipeline | done: 0.84 x: reversed: `bench dsp-utilisation`, `-pull` |
| queues | done |
"""


def test_rows_are_read_with_the_records_that_they_name() -> None:
    first, second = coverage(TABLE)
    assert (first.paper, first.what) == ("DSP", "figure 12: the pipeline")
    assert first.records == {"dsp-utilisation", "dsp-pull"} and second.records == set()
    assert first.tells and not second.tells
    assert "0.84 x: reversed" in first.found and "dsp" not in first.found
