"""How explorers lie on a page: controls and the first panel in one viewport, and no words on each other.

A notebook is loaded once; width and theme are switched on the living page. At 1280 px in the light theme every control
is moved; the other settings check the opening state.
"""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from tests.browser import lab_server
from tests.browser.lab_server import ALL_DRAWN, Server
from tests.browser.test_notebooks_in_browser import EXPLORERS, SETTLED, STATE_OF_PAGE

pytestmark = pytest.mark.browser

SCRIPT = (pathlib.Path(__file__).parent / "layout.js").read_text(encoding="utf-8")
NARROW, WIDE = (1280, 900), (1920, 1080)
LEAST_WIDTH = 385
"""Of a panel; the cell of a notebook has 1112 px at 1280."""

PATIENCE_MS = 300_000
"""Training more steps or starting further ranks may take so long on two cores; speed is not what is tested here."""

# Without side bars, as a lecturer shows it.
CLOSE_SIDE_BARS = """() => {
  const { shell, commands } = window.jupyterapp;
  for (const side of ['left', 'right']) {
    if (!shell[`${side}Collapsed`]) commands.execute(`application:toggle-${side}-area`);
  }
}"""
CHANGE_THEME = "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"
IS_DARK = "(dark) => document.body.dataset.jpThemeLight === String(!dark)"


def wait_until_settled(page: Any, index: int, runs: int = 1) -> dict[str, Any]:
    try:
        handle = page.wait_for_function(SETTLED, arg=[index, runs], timeout=PATIENCE_MS, polling=50)
    except Exception as error:
        raise AssertionError(
            f"explorer {index} did not settle: {page.evaluate(STATE_OF_PAGE, index)}"
        ) from error
    found: dict[str, Any] = handle.json_value()
    return found


def faults(page: Any, index: int) -> list[str]:
    """What is wrong with how an explorer lies on the page, as it is now."""
    found = page.evaluate(SCRIPT, index)
    wrong = [f"overlap by {o['by']:.1f} px: {o['words']}" for o in found["overlaps"]]
    if found["onPlot"]:
        wrong.append(f"a legend lies on the plot: {found['onPlot']}")
    if found["beyond"]:
        wrong.append(f"the explorer sticks out of the notebook by {found['beyond']} px")
    if found["needs"] > found["viewport"]:
        wrong.append(f"controls and first panel need {found['needs']} of {found['viewport']} px")
    if min(found["widths"]) < LEAST_WIDTH:
        wrong.append(f"a panel is narrow: {found['widths']}")
    if len(set(found["heights"])) > 1 or len(set(found["tops"])) > 1:
        wrong.append(f"panels do not stand side by side: heights {found['heights']}, tops {found['tops']}")
    if found["pale"]:
        wrong.append(f"white on a dark page: {found['pale']}")
    return wrong


def move(page: Any, index: int, name: str) -> bool:
    """Set one control to another value; False where it has none or is out of use."""
    return bool(page.evaluate(MOVE, [index, name]))


MOVE = """([index, name]) => {
  const root = document.querySelectorAll('.gnnsample-explorer')[index];
  const control = root.querySelector(`.gs-control[data-name="${name}"]`);
  const field = control.querySelector('input[type=range], select, input[type=checkbox]');
  if (field.disabled) return false;
  if (field.type === 'checkbox') { field.click(); return true; }
  if (field.tagName === 'SELECT') {
    if (field.options.length < 2) return false;
    field.selectedIndex = (field.selectedIndex + 1) % field.options.length;
    field.dispatchEvent(new Event('change', { bubbles: true }));
    return true;
  }
  const [value, low, high] = [field.value, field.min, field.max].map(Number);
  if (low === high) return false;
  // To an end of the scale, where labels are longest and things are fewest or most.
  field.value = value - low > high - value ? low : Math.min(high, value + Math.ceil((high - value) / 2));
  if (Number(field.value) === value) field.value = low;
  field.dispatchEvent(new Event('input', { bubbles: true }));
  return true;
}"""

CONTROLS = """(index) => [...document.querySelectorAll('.gnnsample-explorer')[index]
  .querySelectorAll('.gs-control')].map((control) => control.dataset.name)"""

QUICK = ("05_the_id_map",)
"""Notebooks that every run of the tests opens; ``make test-all`` opens all."""


@pytest.mark.parametrize(
    ("name", "every"),
    [(name, False) for name in QUICK]
    + [pytest.param(name, True, marks=pytest.mark.exhaustive) for name in EXPLORERS],
)
def test_explorers_fit_the_screen_and_no_words_overlap(
    name: str, every: bool, lab_page: Any, server: Server
) -> None:
    page = lab_page
    page.set_viewport_size(dict(zip(("width", "height"), NARROW, strict=True)))
    lab_server.open_notebook(page, server, f"{name}.ipynb")
    page.evaluate(CLOSE_SIDE_BARS)
    page.evaluate(CHANGE_THEME, "JupyterLab Light")
    lab_server.run_all(page)
    page.wait_for_function(ALL_DRAWN)
    found: dict[str, list[str]] = {}

    def check(index: int, what: str) -> None:
        wrong = faults(page, index)
        if wrong:
            found[f"{EXPLORERS[name][index]}, {what}"] = wrong

    def check_tabs(index: int, what: str) -> None:
        tabs = page.locator(".gnnsample-explorer").nth(index).get_by_role("tab")
        titles = tabs.all_inner_texts()
        for title in [*titles[1:], *titles[:1]] or [""]:
            if title:
                page.locator(".gnnsample-explorer").nth(index).get_by_role(
                    "tab", name=title, exact=True
                ).click()
                page.wait_for_function(
                    "([i, t]) => document.querySelectorAll('.gnnsample-explorer')[i]"
                    ".querySelector('.gs-status').dataset.view === t",
                    arg=[index, title],
                )
            wait_until_settled(page, index)
            check(index, f"{what}, {title or 'the only view'}")

    for dark, size in ((False, NARROW), (True, NARROW), (True, WIDE), (False, WIDE)):
        page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
        page.evaluate(CHANGE_THEME, f"JupyterLab {'Dark' if dark else 'Light'}")
        page.wait_for_function(IS_DARK, arg=dark)
        page.wait_for_timeout(300)
        for index in range(len(EXPLORERS[name])):
            wait_until_settled(page, index)
            where = f"{size[0]} px, {'dark' if dark else 'light'}"
            check_tabs(index, where)

    for index, kind in enumerate(EXPLORERS[name]):
        top = page.evaluate(SCROLL, index)
        if abs(top) > 2:
            found[f"{kind}, scrolled"] = [f"the controls do not stay in view: {top} px from its top"]

    # Last, since it changes what is shown.
    page.set_viewport_size(dict(zip(("width", "height"), NARROW, strict=True)))
    page.wait_for_timeout(300)
    for index, kind in enumerate(EXPLORERS[name]):
        wait_until_settled(page, index)
        check_tabs(index, "made narrow again")
        runs = wait_until_settled(page, index)["runs"]
        height = page.evaluate(HEIGHT, index)
        for control in page.evaluate(CONTROLS, index):
            if not move(page, index, control):
                continue
            settled = wait_until_settled(page, index, runs + 1)
            runs = settled["runs"]
            if settled["failed"] != "0":
                continue  # a refused combination is told in the panel, and is the business of other tests
            check(index, f"after {control}")
            if page.evaluate(HEIGHT, index) != height:
                found.setdefault(f"{kind}, after {control}", []).append(
                    "the panels moved or changed their height"
                )
    assert not found, "\n".join(f"{where}: {fault}" for where, all_of in found.items() for fault in all_of)


# Where the controls are, from the top of the notebook, when the first 150 px of the explorer are scrolled out of it.
SCROLL = """async (index) => {
  const root = document.querySelectorAll('.gnnsample-explorer')[index];
  const notebook = root.closest('.jp-WindowedPanel-outer');
  const top = () => notebook.getBoundingClientRect().top;
  notebook.scrollTop += root.getBoundingClientRect().top - top() + 150;
  await new Promise((resolve) => setTimeout(resolve, 100));
  // The end of the notebook may be in the way.
  if (root.getBoundingClientRect().top > top()) return 0;
  return Math.round(root.querySelector('.gs-controls').getBoundingClientRect().top - top());
}"""

# Where the panels begin and end, from the top of their explorer.
HEIGHT = """(index) => {
  const root = document.querySelectorAll('.gnnsample-explorer')[index];
  const box = root.querySelector('.gs-figures').getBoundingClientRect();
  const top = root.getBoundingClientRect().top;
  return [Math.round(box.top - top), Math.round(box.bottom - top)].join(' ');
}"""
