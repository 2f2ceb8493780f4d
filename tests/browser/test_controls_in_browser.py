"""A control by itself in a page: what it shows instead of its value while it is out of use."""

from __future__ import annotations

from typing import Any

import pytest
from gnnsample_widgets.shell.controls import STATIC

FIXED = {
    "wait_ms": 1, "label": "L", "name": "n", "help": "", "per": 1, "unit": " tasks", "typed": False, "playable": False,
    "step": 1,
}  # fmt: skip
TRY = """
async ([fixed, live, shown]) => {
  const model = (state) => {
    const heard = {};
    return {
      get: (name) => state[name],
      on: (event, call) => (heard[event] ??= []).push(call),
      put: (name, value) => { state[name] = value; (heard[`change:${name}`] ?? []).forEach((call) => call()); },
    };
  };
  const store = model(live);
  const control = { ...model({ ...fixed, store: "IPY_MODEL_x" }), widget_manager: { get_model: async () => store } };
  const el = document.createElement("div");
  document.body.append(el);
  await window.control.render({ model: control, el });
  const seen = () => el.querySelector("output")?.textContent ?? el.querySelector("select").value;
  const found = [seen()];
  for (const value of shown) {
    store.put("instead", value);
    if (el.firstElementChild.dataset.value !== JSON.stringify(live.value)) throw new Error("another value");
    found.push(seen());
  }
  return found;
}
"""


@pytest.mark.parametrize(
    ("kind", "live", "shown", "found"),
    [
        ("range", {"value": 64, "min": 1, "max": 1024, "options": [1, 64, 1024]}, [660, "–", None],
         ["64 tasks", "660 tasks", "–", "64 tasks"]),
        ("range", {"value": 7, "min": 1, "max": 16, "options": []}, [5, "10, 5", None],
         ["7 tasks", "5 tasks", "10, 5", "7 tasks"]),
        ("select", {"value": "exact", "options": ["exact", "paper"]}, ["paper", "–", None],
         ["exact", "paper", "–", "exact"]),
    ],
)  # fmt: skip
def test_a_control_out_of_use_shows_what_it_is_told(
    context: Any, kind: str, live: dict[str, Any], shown: list[Any], found: list[str]
) -> None:
    script = (STATIC / "control.js").read_text("utf-8").replace("export default {", "window.control = {")
    page = context.new_page()
    try:
        page.set_content(f"<script>{script}</script>")
        state = {**live, "disabled": False, "instead": None}
        assert page.evaluate(TRY, [{**FIXED, "kind": kind}, state, shown]) == found
    finally:
        page.close()
