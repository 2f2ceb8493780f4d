"""Every exercise has a worked solution and a key, and the solutions are right on the default twin and on ogbl-ddi."""

from __future__ import annotations

import re
from typing import Any

import pytest
from gnnsample_widgets import exercises

from tests.notebooks import solved

NUMBERS = sorted(exercises.ALL)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_exercise_has_a_solution_and_a_key(number: str) -> None:
    found = solved.solutions(number)
    assert [one.checker for one in found] == [checker.__name__ for checker in exercises.ALL[number]]
    assert [one.number for one in found] == list(range(1, len(found) + 1))
    for one in found:
        assert f"exercises.{one.checker}(" in one.code.splitlines()[-1]
        assert re.search(r"^Teaches ", one.text, flags=re.M), f"{one.checker}: what does it teach?"
        rows = re.findall(r"^\| (?!wrong answer|-)(.+) \| (.+) \|$", one.text, flags=re.M)
        assert len(rows) >= 2, f"{one.checker}: what do typical wrong answers tell?"


def test_the_overview_counts_right() -> None:
    text = (solved.FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"\]\((\d\d)_\w+\.md\) \| (\d+) \| (\d+) \|", text)
    counted = [
        (
            number,
            str(len(solved.solutions(number))),
            str(sum(one.minutes for one in solved.solutions(number))),
        )
        for number in NUMBERS
    ]
    assert rows == counted


@pytest.mark.slow  # explorers and samplers are compiled
@pytest.mark.parametrize("number", NUMBERS)
def test_solutions_are_right(number: str, graph: Any) -> None:
    if number == "08":
        pytest.importorskip("torch")
    names = solved.reader(number, graph)
    for one in solved.solutions(number):
        reply = solved.run(one.code, names)
        assert reply.state == "right" and len(reply.text) > 20, f"{one.checker}: {reply}"
