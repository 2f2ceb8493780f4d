"""Views: which panels stand side by side, what waits behind a tab, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import gnnsample_widgets
import plotly.graph_objects as go
import pytest
import traitlets
from gnnsample_widgets.shell.panel import PlotPanel
from gnnsample_widgets.shell.recipe import Panels, Recipe

from gnnsample_lab.figures import palette
from tests.widgets.toy import Toy, tiny_graph


class Wide(Toy):
    views: ClassVar[dict[str, tuple[str, ...]]] = {"One": ("bar",), "Other": ("line",), "Never": ("absent",)}


@pytest.fixture
def wide() -> Iterator[Wide]:
    found = Wide(tiny_graph(), raise_errors=True, kind="both")
    yield found
    found.close()


def sent(panel: PlotPanel) -> list[Any]:
    """What the page of a panel has been told."""
    return [panel.store.data, panel.store.frame, panel.store.alt]


def test_a_figure_behind_a_tab_is_not_sent_until_its_tab_is_opened(wide: Wide) -> None:
    assert wide.view == "One" and list(wide.figures) == ["bar", "line"]
    assert sent(wide.panels["line"]) == ["[]", "{}", ""]
    assert wide.panels["line"] not in wide._figure_box.children
    wide.view = "Other"
    assert sent(wide.panels["line"])[0] == wide.panels["line"]._parts(wide.figures["line"], "line")["data"]
    assert [p.layout.display for p in (wide.panels["bar"], wide.panels["line"])] == ["none", "block"]
    assert wide.run_count == 1, "looking elsewhere computes nothing"


def test_a_run_sends_the_open_view_alone_and_the_rest_when_it_is_looked_at(wide: Wide) -> None:
    wide.view = "Other"
    before = sent(wide.panels["bar"])
    wide.count = 9
    assert len(wide.figures["bar"].data[0].y) == 9, "figures are those of the present state, shown or not"
    assert sent(wide.panels["bar"]) == before
    wide.view = "One"
    assert sent(wide.panels["bar"]) != before


def draw_bar(y: Any) -> go.Figure:
    DRAWN.append("bar")
    return go.Figure(go.Bar(y=y), layout_title_text="Things as <b>bars</b>")


def draw_line(y: Any) -> go.Figure:
    DRAWN.append("line")
    return go.Figure(go.Scatter(y=y), layout_title_text="Things as a line")


DRAWN: list[str] = []


class Lazy(Wide):
    recipe: ClassVar[Recipe] = {"y": Wide.recipe["y"], "shown": Panels(bar=draw_bar, line=draw_line)}


def test_a_display_draws_nothing_that_is_behind_a_tab() -> None:
    DRAWN.clear()
    lazy = Lazy(tiny_graph(), raise_errors=True)
    text = repr(lazy)
    bundle: Any = lazy._repr_mimebundle_()
    assert DRAWN == ["bar"], "text and picture are of the open view"
    assert text.splitlines()[1:] == ["  figure: Things as bars", "  behind tabs: Other"]
    assert (bundle[0] if isinstance(bundle, tuple) else bundle)["text/plain"] == text
    lazy.view = "Other"
    assert repr(lazy).splitlines()[1:] == ["  figure: Things as a line", "  behind tabs: One"]
    assert DRAWN == ["bar", "line"]
    lazy.close()


def test_tabs_are_those_views_that_have_something_to_show(wide: Wide) -> None:
    assert wide._tabs.options == ["One", "Other"]
    wide.view = "Other"
    wide.kind = "bar"
    assert wide._tabs.options == ["One"] and wide.view == "One"
    with pytest.raises(traitlets.TraitError, match="view must be one of"):
        wide.view = "Other"
    wide._tabs.value = "One"
    assert wide.view == "One" and "view" not in wide.state


def test_without_views_there_is_a_tab_for_each_pair_and_none_for_one_pair() -> None:
    toy = Toy(tiny_graph(), kind="both")
    assert toy._views_of(["a", "b"]) == {"a and b": ("a", "b")}
    assert toy._views_of(["a", "b", "c"]) == {"a and b": ("a", "b"), "c": ("c",)}
    assert toy._opened() == ("bar", "line")
    toy.close()


def test_panels_that_are_open_stay_as_they_are(wide: Wide) -> None:
    wide.view = "Other"
    first = wide._figure_box.children
    wide.view = "One"
    assert wide._figure_box.children == first, "the page would build them anew"


def test_every_panel_has_one_height() -> None:
    toy = Toy(tiny_graph(), kind="both")
    assert {panel.height for panel in toy.panels.values()} == {toy.panel_height}
    assert PlotPanel("free").height == 0
    toy.close()


@pytest.mark.parametrize(
    "kind", [name for name in gnnsample_widgets.__all__ if name.endswith("Explorer") and name != "Explorer"]
)
def test_every_explorer_says_what_stands_side_by_side(kind: str) -> None:
    views = getattr(gnnsample_widgets, kind).views
    assert views and all(1 <= len(panels) <= 2 for panels in views.values())


def test_dark_colours_can_be_told_from_a_dark_page_and_written_on() -> None:
    ground = palette.luminance("#212121") + 0.05
    groups = [
        palette.STAGES,
        palette.STRATEGIES,
        palette.SYSTEMS,
        palette.KERNELS,
        palette.METHODS,
        palette.LEVELS,
    ]
    for color in {
        *palette.HOPS,
        *(c for group in groups for c in group.values()),
        palette.INK,
        palette.MUTED,
    }:
        shade = palette.DARK.get(color.lower(), color)
        assert (palette.luminance(shade) + 0.05) / ground > 2.7, (color, shade)
    for color in {*palette.HOPS, *palette.ACTIVITY, *(c for group in groups for c in group.values())}:
        ink = palette.text_on(color)
        for table in ({}, palette.DARK):
            pair = [palette.luminance(table.get(c.lower(), c)) + 0.05 for c in (color, ink)]
            assert max(pair) / min(pair) > 2.5, (color, ink)


def test_empty_figures_are_sent_as_such() -> None:
    panel = PlotPanel("one", shown=False)
    panel.figure = go.Figure(go.Bar(y=[1]))
    assert panel.store.data == "[]"
    panel.shown = True
    assert '"y":[1]' in panel.store.data
