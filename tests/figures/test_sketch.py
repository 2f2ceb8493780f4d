"""A sketch says what plotly's own figure says after the same calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.subplots import make_subplots

from gnnsample_lab.figures.sketch import Sketch, drawn, grid
from gnnsample_lab.figures.style import finish


def draw(fig: Any) -> Any:
    """All that figures ask for."""
    fig.add_scatter(
        x=np.arange(3), y=[1.0, 2.0, 3.0], name="a", mode="lines", line_color="red", line={"width": 2},
        hovertemplate="%{x}<extra></extra>", error_x={"array": [1, 2, 3]},
    )  # fmt: skip
    fig.add_bar(x=["a", "b"], y=[0, 1], marker={"color": "blue", "line_width": 0}, customdata=[["u"], ["v"]])
    fig.add_heatmap(z=np.eye(2), colorbar={"title": "share"}, colorscale=[[0, "#000000"], [1, "#ffffff"]])
    fig.add_scattergl(x=[1], y=[2])
    fig.add_annotation(x=1, y=2, text="word", showarrow=False, font_size=9)
    fig.add_shape(type="rect", x0=0, x1=1, y0=0, y1=1, line={"width": 0})
    fig.add_vline(x=1, line={"color": "red"}, layer="below")
    fig.add_hline(y=2, line={"color": "red"})
    finish(
        fig,
        "Title",
        "small",
        height=300,
        margin={"l": 1},
        meta={"end_us": 3},
        showlegend=False,
        yaxis2={"side": "right"},
    )
    fig.update_layout({"yaxis_title": "other", "legend_title_text": "of"}, margin_r=3, legend={"y": -0.2})
    fig.update_xaxes(title_text="x", range=[0, 1])
    fig.update_yaxes(title="y", showgrid=False)
    fig.update_annotations(font={"color": "red"})
    fig.update_annotations(selector={"text": "nobody"}, x=9)
    return fig


def plain(figure: go.Figure) -> dict[str, Any]:
    return go.Figure(figure.to_dict()).to_dict()


def test_a_sketch_is_the_figure_that_plotly_makes() -> None:
    assert plain(draw(Sketch()).figure()) == plain(draw(go.Figure()))


def test_a_grid_is_that_of_plotly() -> None:
    def both(fig: Any) -> Any:
        fig.add_bar(x=[1], y=[2], row=1, col=1)
        fig.add_scatter(x=[1], y=[2], row=2, col=2)
        fig.add_vline(x=1, line_width=1)
        finish(fig, "Title", "")
        fig.update_yaxes(title_text="all")
        fig.update_xaxes(title_text="one", row=2, col=1)
        fig.update_annotations(selector={"text": "b"}, xanchor="left")
        return fig

    options = {"shared_xaxes": True, "subplot_titles": ["a", "b", "c", "d"]}
    sketched = both(grid(2, 2, **options)).figure()
    assert plain(sketched) == plain(both(make_subplots(2, 2, **options)))
    assert plain(both(grid(2, 2, **options)).figure()) == plain(sketched), (
        "a grid is not changed by what is drawn on it"
    )


def test_drawn_functions_hand_plotlys_figures_through() -> None:
    made = go.Figure()
    assert drawn(lambda: made)() is made
    assert isinstance(drawn(Sketch)(), go.Figure)


def test_whoever_changes_a_figure_has_that_checked() -> None:
    figure = draw(Sketch()).figure()
    figure.update_layout(title="changed")
    assert figure.layout.title.text == "changed"
    for part in (figure.layout, figure.data[0]):
        with pytest.raises(ValueError):
            part.update(nonsense=1)
