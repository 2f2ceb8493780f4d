"""Every figure that a test of this folder has drawn is one that plotly accepts."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from gnnsample_lab.figures.sketch import Sketch


@pytest.fixture(autouse=True)
def _valid_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sketches are handed to plotly unchecked; here it checks them all."""
    unchecked = Sketch.figure

    def checked(self: Sketch) -> go.Figure:
        figure = unchecked(self)
        go.Figure(figure.to_dict())
        return figure

    monkeypatch.setattr(Sketch, "figure", checked)
