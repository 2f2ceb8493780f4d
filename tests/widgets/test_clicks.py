"""A click in a figure reaches its explorer, which knows the panel and the mark."""

from __future__ import annotations

from typing import Any

from tests.widgets.toy import Toy, tiny_graph


class Clicked(Toy):
    def clicked(self, panel: str, mark: dict[str, Any]) -> None:
        self.count = int(mark["y"])
        self.kind = panel


def press(explorer: Toy, panel: str, **mark: Any) -> None:
    """As the page does it: through the model that the panel's script writes to."""
    store = explorer.panels[panel].store
    store.clicked = {"trace": 0, "clicks": store.clicked.get("clicks", 0) + 1, **mark}


def test_a_click_reaches_the_explorer() -> None:
    explorer = Clicked(tiny_graph(), kind="both")
    assert explorer.panels["line"].clicked == {}
    press(explorer, "line", x=3, y=7)
    assert explorer.panels["line"].clicked == {"trace": 0, "clicks": 1, "x": 3, "y": 7}
    assert explorer.count == 7 and explorer.kind == "line" and explorer.error == ""
    runs = explorer.run_count
    press(explorer, "line", x=3, y=7)
    assert explorer.panels["line"].clicked["clicks"] == 2 and explorer.run_count == runs


def test_a_click_means_nothing_unless_the_explorer_says_so() -> None:
    explorer = Toy(tiny_graph())
    press(explorer, "bar", x=1, y=2)
    assert explorer.run_count == 1 and explorer.error == ""


def test_a_closed_explorer_hears_no_click() -> None:
    explorer = Clicked(tiny_graph())
    panel = explorer.panels["bar"]
    explorer.close()
    panel.clicked = {"trace": 0, "x": 0, "y": 9, "clicks": 1}
    assert explorer.count == 5
