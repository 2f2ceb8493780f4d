"""What cells of the notebooks print, checked while nbval runs them: ``pytest -p tests.notebooks.printed --nbval-lax``.

The notebooks store no outputs, so nbval has nothing to compare. What a cell prints on every graph and device is kept
in ``printed.json`` instead, by notebook and by the cell's id; and an exercise that nobody has answered must say so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EXPECTED: dict[str, dict[str, list[str]]] = json.loads(
    Path(__file__).with_name("printed.json").read_text(encoding="utf-8")
)
BLANK = "Not answered yet"


class WrongOutputError(AssertionError):
    """A cell ran and printed something else."""


def is_exercise(source: str) -> bool:
    """Whether a cell's code asks a checker about an answer."""
    return "exercises." in source


def text_of(outputs: list[Any]) -> str:
    """What a reader of plain text sees of a cell's outputs, warnings and progress bars (stderr) left out."""
    parts = []
    for output in outputs:
        if output.output_type == "stream":
            parts.append(output.text if output.name == "stdout" else "")
        else:
            parts.append(output.get("data", {}).get("text/plain", ""))
    return "".join(parts)


def problem(notebook: str, cell: Any, outputs: list[Any]) -> str:
    """What is wrong with a cell's outputs; empty where nothing is."""
    found = text_of(outputs)
    expected = EXPECTED.get(notebook, {}).get(cell.id)
    if expected is not None and found.splitlines() != expected:
        return f"cell {cell.id} of {notebook} printed\n{found}\ninstead of\n" + "\n".join(expected)
    if is_exercise(cell.source) and BLANK not in found:
        return f"exercise {cell.id} of {notebook} is blank and does not say so:\n{found}"
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    result = yield
    if type(item).__name__ == "IPyNbCell":
        wrong = problem(item.path.stem, item.cell, item.test_outputs)  # type: ignore[attr-defined]
        if wrong:
            raise WrongOutputError(wrong)
    return result
