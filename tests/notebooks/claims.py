"""Checks of what a notebook's prompts say one will see: each names its sentences, and fails where they are not there.

A check performs in the library what the prompt tells the reader to do in an explorer, and asserts what the prompt says
of it. ``test_claims.py`` finds the prompts that nobody checks.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from gnnsample_widgets import Explorer
from gnnsample_widgets.shell.recipe import LAST, follow

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
GRAPHS = ("arxiv-like", "ogbl-ddi")

CHECKED: dict[str, list[str]] = {}
"""Number of a notebook -> the sentences that have a check."""


def plain(text: str) -> str:
    """Text with all white space, line breaks included, as single spaces."""
    return " ".join(text.split())


@functools.lru_cache
def cells(number: str) -> list[Any]:
    """The cells of the notebook whose file name begins with ``number``."""
    (path,) = FOLDER.glob(f"{number}_*.ipynb")
    found: list[Any] = nbformat.read(path, as_version=4).cells
    return found


def run_cells(number: str, scope: dict[str, Any], *ids: str) -> str:
    """Run these code cells of the notebook in ``scope``, one after the other; returns what they print."""
    sources = {cell.id: cell.source for cell in cells(number)}
    said = io.StringIO()
    scope.setdefault("__name__", "__main__")  # as in a notebook: ranks get its functions by value
    with contextlib.redirect_stdout(said):
        for name in ids:
            exec(compile(sources[name], name, "exec"), scope)
    return said.getvalue()


def says(number: str, sentence: str) -> bool:
    """Whether a Markdown cell of the notebook holds the sentence."""
    prose = (cell.source for cell in cells(number) if cell.cell_type == "markdown")
    return any(plain(sentence) in plain(text) for text in prose)


def claim(number: str, *sentences: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a test as the check of these sentences; it fails where the notebook does not have one of them."""

    def mark(check: Callable[..., None]) -> Callable[..., None]:
        CHECKED.setdefault(number, []).extend(sentences)

        @functools.wraps(check)
        def checked(*args: Any, **kwargs: Any) -> None:
            for sentence in sentences:
                assert says(number, sentence), f"notebook {number} does not say: {sentence}"
            check(*args, **kwargs)

        return checked

    return mark


class Opened:
    """An explorer as a reader opens it, and what its recipe makes when some controls are moved from there."""

    def __init__(self, kind: type[Explorer], graph: Any, **given: Any) -> None:
        self.explorer = kind(graph, device="cpu", raise_errors=True, **given)
        self.start = self.explorer.state

    def __call__(self, **moved: Any) -> dict[str, Any]:
        """The results of the recipe's steps by name, without the figures; controls not named are where they began."""
        self.explorer.set(**{**self.start, **moved})
        steps = {name: step for name, step in self.explorer.recipe.items() if name != LAST}
        return follow(steps, self.explorer._given(self.explorer.state), self.explorer.remember)

    def options(self, name: str) -> list[Any]:
        """What the control allows, from its lower to its upper end."""
        control = self.explorer.controls[name]
        return list(control.options) or list(range(control.min, control.max + 1))
