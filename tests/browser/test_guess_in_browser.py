"""A guess is typed, locked and revealed in a real JupyterLab; listings stand beside their pseudocode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.browser import lab_server
from tests.browser.lab_server import Server

pytestmark = pytest.mark.browser
CELLS = (
    "from gnnsample_widgets import Guess, show_code",
    'guess = Guess("How many times as many?", unit="times", low=1)\nguess',
    'choice = Guess("Which one wins?", options=["lists", "picks"])\nchoice.reveal("picks", "They are shorter.")',
    "guess.reveal(9.215 * 2, 'Counted between two ranks.')",
    'show_code("claim a slot")',
    "print(guess.value, guess.locked, choice.value, choice.locked)",
)


@pytest.fixture
def page(lab_page: Any, server: Server) -> Any:
    notebook = new_notebook(cells=[new_code_cell(source) for source in CELLS])
    notebook.metadata.kernelspec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(notebook, server.folder / "guess.ipynb")
    lab_page.set_viewport_size({"width": 1280, "height": 900})
    return lab_page


def test_a_guess_locks_and_then_shows_the_result(page: Any, server: Server, tmp_path: Path) -> None:
    lab_server.open_notebook(page, server, "guess.ipynb")
    lab_server.run_all(page)
    page.wait_for_function("() => document.querySelectorAll('.gs-guess').length === 3")
    asked, choice, again = (page.locator(".gs-guess").nth(i) for i in range(3))
    assert "18.4" not in page.content(), "the page does not know the result before the guess"
    assert choice.get_by_role("status").inner_text() == "Lock a guess to see the result."

    field, lock = asked.get_by_label("How many times as many?"), asked.get_by_role("button")
    assert lock.is_disabled()
    field.fill("0")
    lock.click()
    asked.get_by_text("Your guess must be").wait_for()
    assert asked.get_attribute("data-locked") == "false"
    field.fill("10")
    field.press("Enter")
    for shown in (asked, again):  # two views of one guess
        shown.get_by_text("18.4 times").wait_for()
        assert shown.get_by_text("10 times", exact=True).is_visible()
        assert not shown.get_by_role("button").is_visible()
    assert "Counted between two ranks." in again.inner_text()

    choice.get_by_label("Which one wins?").select_option("lists")
    choice.get_by_role("button").click()
    choice.locator(".gs-number", has_text="picks").wait_for()
    assert "They are shorter." in choice.inner_text()

    page.locator(".jp-CodeCell .cm-content").last.click()
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-cell')")
    page.get_by_text("10.0 True lists True").or_(page.get_by_text("10 True lists True")).wait_for()

    left, right = (page.locator(".gnnsample-listing pre").nth(i).bounding_box() for i in range(2))
    assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"], "side by side at 1 280 pixels"
    assert "atomicAdd(counters + CTR_HEAD" in page.locator(".gnnsample-listing").inner_text()
    page.screenshot(path=tmp_path / "guess.png")
