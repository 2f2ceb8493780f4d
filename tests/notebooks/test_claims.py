"""Every prompt of every notebook is checked, and every sentence that has a check is still there."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.notebooks.claims import CHECKED, FOLDER, cells, plain, says

NUMBERS = sorted(path.name[:2] for path in FOLDER.glob("*.ipynb"))
MODULES = sorted(path.stem for path in (FOLDER.parent / "tests" / "notebooks").glob("test_claims_*.py"))

UNCHECKED = {
    # A GPU is needed to see it; who runs the notebook there measures it.
    "08": ["With a GPU, *Memory of* **this GPU** takes its measured bandwidths"],
}
"""Prompts without a check, by their first words."""

for module in MODULES:
    importlib.import_module(f"tests.notebooks.{module}")


def prompts(number: str) -> list[str]:
    """The points of the lists before (or right after) an explorer: what to move there, and what to look at."""
    found, every = [], cells(number)
    for index, cell in enumerate(every):
        if cell.cell_type != "code" or not re.search(r"^(?:\w+ = )?\w*Explorer\(", cell.source, re.M):
            continue
        before = [c for c in every[max(0, index - 3) : index] if c.cell_type == "markdown"]
        after = [c for c in every[index + 1 : index + 2] if c.source.startswith("- ")]
        for text in [c.source for c in before] + [c.source.split("\n## ")[0] for c in after]:
            found += [plain(point) for point in re.findall(r"^- (.*(?:\n  .*)*)", text, re.M)]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("number", NUMBERS)
def test_every_prompt_has_a_check(number: str) -> None:
    assert prompts(number)
    sentences = [plain(sentence) for sentence in CHECKED.get(number, [])]
    bare = [
        prompt
        for prompt in prompts(number)
        if not any(sentence in prompt for sentence in sentences)
        and not any(prompt.startswith(known) for known in UNCHECKED.get(number, []))
    ]
    assert bare == [], "add a check to tests/notebooks/test_claims_*.py, or do not offer the prompt"


@pytest.mark.parametrize("number", NUMBERS)
def test_every_checked_sentence_is_in_its_notebook(number: str) -> None:
    assert [sentence for sentence in CHECKED.get(number, []) if not says(number, sentence)] == []
    assert all(any(p.startswith(known) for p in prompts(number)) for known in UNCHECKED.get(number, []))
