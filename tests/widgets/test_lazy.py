"""What nobody looks at is not computed: figures behind tabs, and the steps of a recipe that they alone need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import plotly.graph_objects as go
import pytest
from gnnsample_widgets.shell.recipe import Panels, Recipe, Where, follow, hand_over

from tests.widgets.checks import check_code
from tests.widgets.toy import Toy, multiply, tiny_graph

ran: list[str] = []


def square(y: np.ndarray) -> Any:
    ran.append("square")
    return None if len(y) == 7 else y**2


def draw_bar(y: np.ndarray, flip: bool) -> Any:
    ran.append("bar")
    return go.Figure(go.Bar(y=y))


def draw_line(y: np.ndarray, squares: np.ndarray) -> Any:
    ran.append("line")
    if len(y) == 11:
        raise ValueError("eleven")
    return go.Figure(go.Scatter(y=squares))


class Lazy(Toy):
    recipe: ClassVar[Recipe] = {
        "y": multiply,
        "squares": square,
        "shown": Panels(bar=draw_bar, line=draw_line),
    }
    views: ClassVar[dict[str, tuple[str, ...]]] = {"One": ("bar",), "Other": ("line",)}


class Sometimes(Lazy):
    recipe: ClassVar[Recipe] = {
        **Lazy.recipe,
        "shown": Panels(bar=draw_bar, line=Where(draw_line, "squares")),
    }


@pytest.fixture
def lazy() -> Iterator[Lazy]:
    found = Lazy(tiny_graph(), raise_errors=True)
    ran.clear()
    yield found
    found.close()


def test_a_run_draws_what_is_open_and_runs_no_step_of_anything_else(lazy: Lazy) -> None:
    lazy.count = 9
    assert ran == ["bar"]
    lazy.view = "Other"
    assert ran == ["bar", "square", "line"] and lazy.run_count == 2
    lazy.count = 10
    assert ran[3:] == ["square", "line"]


def test_all_figures_are_those_of_the_present_state_when_they_are_asked_for(lazy: Lazy) -> None:
    lazy.set(count=3, size=32)
    assert list(lazy.figures) == ["bar", "line"] and ran == ["bar", "square", "line"]
    assert list(lazy.figures["line"].data[0].y) == [0, 32**2, 64**2]
    assert lazy.panels["line"].figure is lazy.figures["line"] and len(ran) == 3, "drawn once"
    check_code(lazy, lazy.graph)


def test_a_figure_that_does_not_depend_on_a_change_stays(lazy: Lazy) -> None:
    lazy.view = "Other"
    before = lazy.figures
    ran.clear()
    lazy.flip = True
    lazy.flip = False
    line = lazy.figures["line"]
    lazy.kind = "line"  # no step asks for it
    assert lazy.figures["line"] is line and lazy.figures["line"] is not before["line"]


def test_a_figure_that_fails_behind_a_tab_fails_when_the_tab_is_opened() -> None:
    lazy = Lazy(tiny_graph())
    lazy.count = 11
    assert lazy.error == ""
    lazy.view = "Other"
    assert lazy.error == "ValueError: eleven" and "eleven" in lazy.error_panel.value
    lazy.view = "One"
    assert lazy.error == ""
    lazy.close()
    strict = Lazy(tiny_graph(), count=11, raise_errors=True)
    with pytest.raises(ValueError, match="eleven"):
        strict.view = "Other"
    strict.close()


def test_a_panel_comes_and_goes_with_the_step_that_it_stands_for() -> None:
    there = Sometimes(tiny_graph(), raise_errors=True)
    assert list(there.figures) == ["bar", "line"] and there._tabs.options == ["One", "Other"]
    there.view = "Other"
    there.count = 7
    assert list(there.figures) == ["bar"] and there.view == "One"
    check_code(there, there.graph)
    there.count = 8
    assert list(there.figures) == ["bar", "line"]
    check_code(there, there.graph)
    there.close()


def test_steps_are_mapped_by_name_and_run_when_they_are_looked_up() -> None:
    ran.clear()
    given = {"count": 4, "size": 32, "flip": False}
    made = follow(Lazy.recipe, given, lambda key, make: make())
    assert list(made) == ["count", "size", "flip", "y", "squares", "shown"] and len(made) == 6
    assert made["count"] == 4 and ran == []
    assert list(made["shown"]) == ["bar", "line"] and len(made["shown"]) == 2 and ran == []
    assert made["shown"]["line"] is made["shown"]["line"] and ran == ["square", "line"]
    namespace: dict[str, Any] = {}
    exec(hand_over(Lazy.recipe, given, []), namespace)
    assert list(namespace["shown"]["line"].data[0].y) == [0, 32**2, 64**2, 96**2]
