"""Every passage about a recorded measurement says what its records say today, and no number besides."""

from __future__ import annotations

import re

import pytest

from tests.notebooks import passages  # noqa: F401 - enters them
from tests.notebooks.claims import FOLDER, cells
from tests.notebooks.recorded import (
    PASSAGES,
    Passage,
    Said,
    about_ours,
    cards,
    change,
    listed,
    names,
    paragraphs,
    problems,
    short,
    span,
    strays,
    texts,
)

TEXTS = texts()
NUMBERS = sorted(path.name[:2] for path in FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("where", PASSAGES, ids=lambda where: "-".join(where).strip("-"))
def test_a_passage_says_what_its_records_say(where: tuple[str, str]) -> None:
    entry = PASSAGES[where]
    assert where in TEXTS, f"{where}: no such cell or page; take its entry out of tests/notebooks/passages.py"
    found = problems(about_ours(TEXTS[where], where[1]), entry.phrases(), entry.given, entry.records)
    assert not found, "\n".join([f"{' '.join(where)} is not what data/measured says:", *found])


def test_every_passage_about_a_record_has_an_entry() -> None:
    bare = [where for where, text in TEXTS.items() if about_ours(text, where[1]) and where not in PASSAGES]
    assert not bare, f"{bare}: say in tests/notebooks/passages.py what must stand there"


@pytest.mark.parametrize("number", NUMBERS)
def test_no_code_of_a_notebook_holds_a_measurement(number: str) -> None:
    """Figures of measurements come from records, in a function of the library or the widgets."""
    for cell in cells(number):
        if cell.cell_type == "code":
            assert not re.search(r"(?i)\b(?:measured|recorded) on\b|data/measured", cell.source), cell.id


@pytest.mark.parametrize("where", PASSAGES, ids=lambda where: "-".join(where).strip("-"))
def test_a_phrase_is_more_than_a_number(where: tuple[str, str]) -> None:
    assert not PASSAGES[where].bare()


# ---- the check itself can fail ---------------------------------------------------------------------------------------

TEXT = "Recorded on an H200 (`data/measured/ladder.json`): 1.5 to 2.5 times as fast\nas `csp`, on two graphs."
SAID = [Said("an H200"), Said("1.5 to 2.5 times as fast as `csp`")]


def test_a_text_that_says_it_passes() -> None:
    assert problems(TEXT, SAID, ["two graphs"], ["ladder"]) == []


def test_another_number_is_told() -> None:
    assert problems(TEXT, [SAID[0], Said("1.6 to 2.5 times")], ["two graphs"], ["ladder"]) == [
        "it must say: 1.6 to 2.5 times", "no record says: 1.5", "no record says: 2.5",
    ]  # fmt: skip


def test_a_number_in_words_is_told() -> None:
    assert problems(TEXT, SAID, [], ["ladder"]) == ["no record says: two"]


def test_another_card_is_told() -> None:
    assert problems(TEXT, [Said("two H100s"), SAID[1]], ["two graphs"], ["ladder"]) == [
        "it must say: two H100s"
    ]


def test_a_statement_that_a_record_denies_is_told() -> None:
    said = [SAID[0], Said(SAID[1].text, holds=False)]
    assert problems(TEXT, said, ["two graphs"], ["ladder"]) == [
        f"the records do not bear out: {SAID[1].text}"
    ]


def test_another_record_is_told() -> None:
    for records in ([], ["ladder", "step"]):
        (found,) = problems(TEXT, SAID, ["two graphs"], records)
        assert found.startswith("its entry and its text do not name the same records")


def test_an_allowance_that_nobody_needs_is_told() -> None:
    (found,) = problems(TEXT, SAID, ["two graphs", "40 %"], ["ladder"])
    assert found == "its entry allows what it does not say: 40 %"


def test_a_phrase_that_may_go_must_be_gone_where_records_do_not_bear_it_out() -> None:
    kept, lost = Said("it wins", True, may_go=True), Said("it waits 5 ms", False, may_go=True)
    assert problems("it wins", [kept, lost]) == []
    assert problems("it loses", [kept]) == ["it must say: it wins"]
    assert problems("it wins, it waits 5 ms", [kept, lost]) == [
        "the records do not bear out: it waits 5 ms", "no record says: 5",
    ]  # fmt: skip
    assert problems("it wins", [Said("it wins", False)]) == ["the records do not bear out: it wins"]


def test_a_phrase_is_found_whole_only() -> None:
    assert problems("11.5 times", [Said("1.5 times")]) == ["it must say: 1.5 times", "no record says: 11.5"]


def test_numbers_in_code_names_and_formulas_are_no_numbers() -> None:
    assert strays("an H200, `range(3)`, $x^2$, PreSC#1, L2 and [a notebook](03_x.ipynb#4)", []) == []
    assert strays("3 of 4, half of 1.5 and 1 024.", []) == ["3", "4", "half", "1.5", "1 024"]


def test_only_paragraphs_about_records_count() -> None:
    text = "Three of 5.\n\nRecorded on an H200:\n\n| 4 | 5 |\n\n7."
    assert about_ours(text, "why") == "Recorded on an H200:\n\n| 4 | 5 |"
    assert about_ours(text, "wins") == text and about_ours("Three of 5.", "wins") == ""
    assert len(paragraphs(text)) == 3


def test_numbers_read_as_people_write_them() -> None:
    assert [short(value) for value in (0.123, 4.567, 45.67, 456.7)] == ["0.12", "4.57", "45.7", "457"]
    assert span([2, 1]) == "1.00 to 2.00 times" and span([1.001, 1.002]) == "1.00 times"
    assert change([0.104, -0.001]) == "0 to +10 %" and change([-0.18, 0.01]) == "-18 to +1 %"


def test_a_bare_number_is_found() -> None:
    said = ["1.5", "2 x", "two graphs", "40 %"]
    assert Passage((), lambda: said, ("3 GB", "3")).bare() == ["1.5", "2 x", "3"]


def test_a_list_reads_as_in_a_sentence() -> None:
    assert [listed("a"), listed("ab"), listed("abc")] == ["a", "a and b", "a, b and c"]
    assert names(["ppi-like", "uk-like@0.1"]) == "`ppi-like` and `uk-like`"


def test_a_card_is_named_as_in_a_sentence() -> None:
    at = {"environment": {"gpu": {"name": "NVIDIA H100 80GB HBM3"}}, "rows": []}
    assert (cards(at), cards(at, 2)) == ("an H100", "two H100s")
    assert cards({"environment": {"gpu": None}, "rows": []}) == "a CPU"
