"""The stepper in a real browser: keys, buttons and the choice of a broken line, at every width, light and dark.

A plain page and a store of its own stand for JupyterLab and the kernel, so that every step can be looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from gnnsample_widgets import Stepper

from gnnsample_lab import steps

pytestmark = pytest.mark.browser

STEPPER = ".gnnsample-stepper"
WIDTHS = (390, 560, 800, 1100)
LECTURED, ROOM = 1100, 780
"""Width of a cell and height of a notebook, where JupyterLab has 1280 x 900 px."""
BROKEN = {
    "claim a slot": "give up a ticket whose slot is empty",
    "insert into Fused-Map": "insert without compare-and-swap",
    "gather a transit's list": "shuffle over the whole warp",
    "grow a frontier": "mark without an atomic",
}

SHOWN = """(root) => ({
  at: Number(root.dataset.at),
  steps: Number(root.dataset.steps),
  line: root.querySelector('.gs-step-now .gs-step-text')?.textContent ?? '',
  active: root.querySelectorAll('.gs-step-grid')[0].querySelectorAll('.gs-active').length,
  cells: [...root.querySelectorAll('.gs-step-cell')].map((cell) => [cell.title, cell.textContent]),
  verdict: root.querySelector('.gs-step-verdict').textContent,
  access: root.querySelector('.gs-step-access').textContent,
})"""
# Steps through the whole run at a width: every height that was met, and what sticks out.
WALK = """(root, width) => {
  root.style.width = `${width}px`;
  const heights = new Set(), wide = new Set();
  root.querySelector("[aria-label='To the beginning']").click();
  const forward = root.querySelector("[aria-label='One line forward']");
  while (true) {
    heights.add(root.offsetHeight);
    if (root.scrollWidth > root.clientWidth) wide.add('root');
    const parts = '.gs-step-verdict, .gs-step-who, .gs-step-said, .gs-step-code, .gs-step-lane';
    for (const part of root.querySelectorAll(parts))
      if (part.scrollWidth > part.clientWidth + 1
          || (!part.matches('.gs-step-code') && part.scrollHeight > part.clientHeight + 2))
        wide.add(`${part.className}: ${part.textContent}`);
    if (forward.disabled) break;
    forward.click();
  }
  root.style.width = '';
  return [[...heights], [...wide]];
}"""
COLOURS = """(root) => ['.gs-step-code', '.gs-step-lane', '.gs-step-cell', '.gs-step-bar'].map((part) => {
  const style = getComputedStyle(root.querySelector(part));
  return style.backgroundColor.match(/[0-9.]+/g).slice(0, 3).map(Number);
})"""

# The ground of a lane that is idle, then of one that is active.
LANES = """(root) => [false, true].map((active) => {
  const lane = root.querySelector('.gs-step-lane');
  lane.classList.toggle('gs-active', active);
  const [r, g, b] = getComputedStyle(lane).backgroundColor.match(/[0-9.]+/g).map(Number);
  // color-mix() is told in shares of one.
  return Math.max(r, g, b) > 1 ? [r, g, b] : [255 * r, 255 * g, 255 * b];
})"""

PAGE = """<!doctype html><meta charset="utf-8"><style id="theme"></style><style>%(css)s</style>
<body style="margin:0"><div id="at"></div><script type="module">
const state = %(state)s, heard = {};
const store = {
  get: (name) => state[name],
  set(name, value) { state[name] = value; },
  save_changes() { window.sent = { ...state, data: undefined }; },
  on(event, call) { heard[event] = call; },
  off() {},
};
window.fromKernel = (given) => {
  Object.assign(state, given);
  for (const name of Object.keys(given)) heard[`change:${name}`]();
};
const model = { get: () => "IPY_MODEL_store", widget_manager: { get_model: async () => store } };
const script = await import("data:text/javascript;charset=utf-8," + encodeURIComponent(%(script)s));
await script.default.render({ model, el: document.getElementById("at") });
</script>"""
DARK = (
    ":root{--jp-ui-font-color1:#fff;--jp-ui-font-color2:#bbb;--jp-border-color2:#424242;"
    "--jp-layout-color1:#111;--jp-layout-color2:#212121}"
)


@pytest.fixture
def browser_page(context: Any) -> Iterator[Any]:
    # A page for each test: what an earlier stepper sends late (120 ms after a step) would reach the next one's window.
    page = context.new_page()
    page.set_viewport_size({"width": 1500, "height": 1000})
    yield page
    page.close()


@pytest.fixture(params=steps.MECHANISMS)
def stepped(request: Any, browser_page: Any) -> Iterator[tuple[Any, Stepper, Any]]:
    """The page, the stepper that it shows, and its element; a store stands for the kernel's."""
    twin = Stepper(request.param)
    state = json.dumps({"data": twin.data, "at": 0, "choice": twin.choice}).replace("</", "<\\/")
    browser_page.set_content(PAGE % {"css": twin._css, "state": state, "script": json.dumps(twin._esm)})
    browser_page.wait_for_selector(f"{STEPPER}[data-at]")
    yield browser_page, twin, browser_page.locator(STEPPER)
    twin.close()


def agrees(shown: dict[str, Any], twin: Stepper) -> None:
    """The page says what the same stepper says here."""
    assert shown["at"] == twin.at
    run, memory = twin.run, twin.memory
    assert run.source[twin.step.line][1] in shown["line"] if twin.step else not shown["line"]
    assert shown["active"] == (twin.step.active.bit_count() if twin.step else 0)
    for title, text in shown["cells"]:
        name, cell = title.rstrip("]").rsplit("[", 1)
        assert text == run.arrays[name].show(memory[name][int(cell)]), (title, twin.at)
    assert " ".join(shown["verdict"].split()) == " ".join(twin.verdict().split())


def test_forwards_and_backwards_by_keys_and_buttons(stepped: tuple[Any, Stepper, Any]) -> None:
    page, twin, root = stepped
    slider = root.locator("input[type=range]")
    slider.focus()
    last = len(twin.run.steps)
    for key, at in [("End", last), ("Home", 0), ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)]:
        slider.press(key)
        twin.at = at
        agrees(root.evaluate(SHOWN), twin)
    forward = root.get_by_role("button", name="One line forward")
    for _ in range(7):
        forward.press("Enter")
    twin.forward(7)
    agrees(root.evaluate(SHOWN), twin)
    root.get_by_role("button", name="One line back").press("Space")
    twin.back()
    agrees(root.evaluate(SHOWN), twin)
    page.wait_for_function(f"() => window.sent.at === {twin.at}")
    focusable = root.locator("button, input, select, [tabindex]")
    assert focusable.evaluate_all("(all) => all.every((e) => e.dataset.lmSuppressShortcuts)"), (
        "the notebook would take the keys for itself"
    )


def test_a_broken_line_fails_where_the_twin_says(stepped: tuple[Any, Stepper, Any]) -> None:
    page, twin, root = stepped
    broken = BROKEN[twin.mechanism]
    root.get_by_label("Break a line").select_option(broken)
    assert page.evaluate("() => window.sent.choice") == broken
    twin.broken = broken
    page.evaluate("(given) => window.fromKernel(given)", {"at": twin.at, "data": twin.data})
    assert root.locator(".gs-step-broken").count() == 1
    agrees(root.evaluate(SHOWN), twin)
    root.get_by_role("button", name="To the failure, or to the end").click()
    assert twin.to_failure()
    shown = root.evaluate(SHOWN)
    agrees(shown, twin)
    assert "no longer" in shown["verdict"]


def test_nothing_jumps_or_is_cut_off(stepped: tuple[Any, Stepper, Any]) -> None:
    for width in WIDTHS:
        heights, wide = stepped[2].evaluate(f"(root) => ({WALK})(root, {width})")
        assert len(heights) == 1, (width, heights)
        assert not wide, (width, wide[:3])
        assert width < LECTURED or max(heights) <= ROOM, f"{max(heights)} px do not fit into a notebook"


def test_the_dark_theme_has_no_white_cards(stepped: tuple[Any, Stepper, Any]) -> None:
    page, _, root = stepped
    assert all(min(colour) > 150 for colour in root.evaluate(COLOURS))
    page.evaluate("(text) => { document.getElementById('theme').textContent = text; }", DARK)
    page.evaluate("() => { document.body.dataset.jpThemeLight = 'false'; }")
    assert all(max(colour) < 110 for colour in root.evaluate(COLOURS))
    idle, active = root.evaluate(LANES)
    assert max(active) > max(idle) + 60, "what is active stands out"
