"""Figures as JSON for the page: the same as plotly writes them."""

from __future__ import annotations

import datetime
import json
import math

import numpy as np
import plotly.graph_objects as go
import pytest
from gnnsample_widgets import CacheExplorer, IdMapExplorer, MatchExplorer, QueueExplorer, SampleExplorer
from gnnsample_widgets.shell.encode import to_json
from plotly.io.json import to_json_plotly

import gnnsample_lab as lab


@pytest.fixture(scope="module")
def graph() -> lab.Graph:
    return lab.load("arxiv-like", scale=0.02, use_cache=False)


@pytest.mark.parametrize("kind", [CacheExplorer, IdMapExplorer, MatchExplorer, QueueExplorer, SampleExplorer])
def test_all_figures_of_an_explorer_are_as_plotly_writes_them(kind, graph: lab.Graph) -> None:
    explorer = kind(graph, device="cpu")
    for name, figure in explorer.figures.items():
        theirs, data, layout = figure.to_dict(), figure._data, figure._layout
        assert json.loads(to_json(data)) == json.loads(to_json_plotly(theirs["data"])), name
        assert json.loads(to_json(layout)) == json.loads(to_json_plotly(theirs["layout"])), name


@pytest.mark.parametrize(
    "values",
    [
        *(np.arange(3, dtype=t) for t in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")),
        *(np.array([-top, top - 1]) for top in (1 << 7, 1 << 15, 1 << 31, 1 << 40)),
        *(np.array([0, top], dtype="u8") for top in (255, 256, 65536, 1 << 40)),
        np.arange(6.0).reshape(2, 3), np.arange(6)[::2], np.arange(6).reshape(2, 3).T, np.array([]),
        np.array([np.nan, np.inf, 1.0]), np.array(["a", "b"]), np.array(["a", None, 1.5], dtype=object),
        np.array([True, False]), np.arange(3, dtype=">i4"),
        [1.5, math.nan, -math.inf, None, "NaN"], (np.float32(0.5), np.int64(3), np.float64("nan")),
        [datetime.date(2020, 1, 2)],
    ],
    ids=lambda values: f"{getattr(values, 'dtype', type(values).__name__)}-{np.shape(values)}",
)  # fmt: skip
def test_every_kind_of_values(values) -> None:
    figure = go.Figure({"data": [{"type": "scatter", "x": values}]}, _validate=False)
    kept = json.loads(to_json(figure._data))
    if isinstance(values, np.ndarray) and values.dtype.byteorder == ">":
        values = values.astype("i4")  # plotly.js reads what it is sent as little-endian
        figure = go.Figure({"data": [{"type": "scatter", "x": values}]}, _validate=False)
    assert kept == json.loads(to_json_plotly(figure.to_dict()["data"]))


def test_ranges_stay_lists_and_nothing_is_changed() -> None:
    layout = {"xaxis": {"range": np.array([0.0, 1.0])}, "meta": {"end_us": np.float64(2)}}
    assert json.loads(to_json(layout)) == {"xaxis": {"range": [0.0, 1.0]}, "meta": {"end_us": 2.0}}
    assert isinstance(layout["xaxis"]["range"], np.ndarray)
