"""Controls and panels by themselves."""

from __future__ import annotations

import gzip
import json
import re

import plotly
import plotly.graph_objects as go
import pytest
import traitlets
from gnnsample_widgets import show
from gnnsample_widgets.shell.controls import STATIC, Slider
from gnnsample_widgets.shell.panel import PlotPanel, runtime


def test_limits_move_a_value_that_they_exclude() -> None:
    slider = Slider("hops_shown", "Hops shown", 3, max=3)
    slider.set_limits(0, 2)
    assert (slider.min, slider.max, slider.value) == (0, 2, 2)
    slider.set_limits(0, 5)
    assert (slider.max, slider.value) == (5, 2)
    slider.set_limits(4, 9)
    assert (slider.min, slider.max, slider.value) == (4, 9, 4)
    with pytest.raises(traitlets.TraitError):
        slider.value = 3


def test_a_control_is_born_with_its_value() -> None:
    """Not set afterwards: the page would see the default first, and might be left with it."""
    changes: list[object] = []

    class Watched(Slider):
        @traitlets.observe("comm")
        def _opened(self, change: dict[str, object]) -> None:
            changes.append(self.value)

    Watched("hops", "Hops", 3, min=1, max=5)
    assert changes == [3]
    with pytest.raises(traitlets.TraitError, match=r"Hops \(hops\) must be from 1 to 5 \(got 9\)"):
        Slider("hops", "Hops", 9, min=1, max=5)


def test_options_give_the_ends_of_the_scale() -> None:
    slider = Slider("batch_size", "Batch size", 64, options=[32, 64, 256])
    assert (slider.min, slider.max) == (32, 256)
    with pytest.raises(traitlets.TraitError, match=r"Batch size \(batch_size\) must be one of"):
        slider.value = 128


def test_only_what_differs_is_sent() -> None:
    panel = PlotPanel("one")
    sent: list[str] = []
    panel.store.observe(lambda change: sent.append(change["name"]), names=["data", "frame", "alt"])
    figure = go.Figure(go.Scatter(y=[1, 2, 3]), {"title": {"text": "<b>Times</b><br><sub>a · b</sub>"}})
    panel.figure = figure
    assert set(sent) == {"data", "frame", "alt"}
    assert panel.alt == "Times: a · b"
    assert json.loads(panel.data)[0]["y"] == [1, 2, 3]
    sent.clear()
    panel.figure = go.Figure(figure).add_vline(x=1)
    assert sent == ["frame"]
    sent.clear()
    panel.figure = panel.figure
    assert sent == []


def test_the_script_is_shared_and_whole() -> None:
    first, second = PlotPanel("one"), PlotPanel("two")
    assert first.runtime is second.runtime is runtime()
    script = gzip.decompress(runtime().packed)
    assert b"plotly.js v" in script[:200] and len(script) > 1_000_000
    assert first.plotly_version == plotly.__version__
    runtime().close()
    assert PlotPanel("three").runtime is runtime() is not first.runtime


def test_show_puts_figures_side_by_side() -> None:
    box = show(go.Figure(go.Bar(y=[1])), go.Figure(go.Bar(y=[2])))
    assert [panel.figure.data[0].y for panel in box.children] == [(1,), (2,)]


@pytest.mark.parametrize("name", ["control.js", "plot.js", "code.js", "explorer.css"])
def test_front_end_files_are_there_and_fetch_nothing(name: str) -> None:
    text = (STATIC / name).read_text()
    assert len(text) > 500
    assert not re.search(r"https?://|import\s*\(", text), "the page must not need the network"
