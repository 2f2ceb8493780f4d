"""Bytes by level, times and the roofline as figures."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gnnsample_lab import figures
from gnnsample_lab.compute.aggregation.bound import RooflinePoint
from gnnsample_lab.figures import palette

COUNTS = {
    "naive": {"global memory": 3e6},
    "memory-aware": {"global memory": 1e6, "shared memory": 2e6},
}
TIMES = {
    "naive": {"modelled": 30.0, "measured": 40.0},
    "memory-aware": {"modelled": 10.0, "measured": 20.0},
    "library": {"measured": 60.0},
}
POINTS = [
    RooflinePoint("naive", 0.2, 100.0, "modelled as RTX 3090"),
    RooflinePoint("register-tile", 0.5, 400.0, "measured on NVIDIA H200"),
]


def test_bytes_are_stacked_by_level_slowest_first():
    figure = figures.access_counts(COUNTS, subtitle="toy (synthetic) · counted")
    bars = {t.name: t for t in figure.data if t.type == "bar"}
    assert list(bars) == ["global memory", "shared memory"]
    assert bars["global memory"].x.tolist() == [3.0, 1.0]
    assert bars["shared memory"].x.tolist() == [0.0, 2.0]
    assert bars["shared memory"].marker.color == palette.LEVELS["shared memory"]
    assert figure.data[-1].text[1] == "  1 MB global"
    assert "toy (synthetic)" in figure.layout.title.text and "(MB)" in figure.layout.xaxis.title.text
    json.loads(figure.to_json())


def test_bad_counts_are_errors():
    with pytest.raises(ValueError, match="counts must hold at least one kernel"):
        figures.access_counts({})
    with pytest.raises(ValueError, match="must not be negative"):
        figures.access_counts({"naive": {"global memory": -1.0}})


def test_model_and_clock_side_by_side():
    figure = figures.aggregation_times(TIMES, subtitle="toy")
    bars = {t.name: t for t in figure.data}
    assert bars["modelled"].marker.color == palette.MODELLED
    assert bars["measured"].x.tolist() == [40.0, 20.0, 60.0]
    assert np.isnan(bars["modelled"].x[2])
    assert bars["measured"].text == ("40 µs", "20 µs (2.0×)", "60 µs (1/1.5)")
    assert bars["modelled"].text == ("30 µs", "10 µs (3.0×)", "")
    assert figure.layout.barmode == "group"
    other = figures.aggregation_times(TIMES, base="library")
    assert {t.name: t for t in other.data}["measured"].text[1] == "20 µs (3.0×)"


def test_bad_times_are_errors():
    with pytest.raises(ValueError, match="times_us must hold"):
        figures.aggregation_times({})
    with pytest.raises(ValueError, match="base must be one of"):
        figures.aggregation_times(TIMES, base="ours")


def test_roofline_bends_where_arithmetic_takes_over():
    figure = figures.roofline(
        POINTS,
        peak_gflops=2000,
        bandwidth_gbps={"global memory": 1000, "L2": 4000},
        subtitle="toy · measured",
    )
    slope = figure.data[0]
    assert slope.name == "global memory: 1,000 GB/s"
    x, y = np.array(slope.x), np.array(slope.y)
    assert y == pytest.approx(np.minimum(1000 * x, 2000))
    assert x[0] < 0.2 and y[-1] == 2000
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"


def test_the_legend_of_a_roofline_lies_above_the_plot():
    figure = figures.roofline(POINTS, peak_gflops=2000, bandwidth_gbps={"global memory": 1000})
    legend = {
        **figure.layout.template.layout.legend.to_plotly_json(),
        **figure.layout.legend.to_plotly_json(),
    }
    assert legend["orientation"] == "h" and legend["y"] >= 1 and legend["yanchor"] == "bottom"


def test_points_say_their_share_of_the_roof_and_where_they_are_from():
    figure = figures.roofline(POINTS, peak_gflops=2000, bandwidth_gbps={"global memory": 1000})
    naive, ours = figure.data[-2:]
    assert (naive.name, ours.name) == ("naive: 50\u00a0%", "register-tile: 80\u00a0%")
    assert (naive.y, ours.y) == ((100,), (400,))
    assert (naive.marker.symbol, ours.marker.symbol) == ("circle-open", "circle")
    assert "hollow: modelled" in figure.layout.title.text
    assert (
        "hollow"
        not in figures.roofline(
            POINTS[1:], peak_gflops=2000, bandwidth_gbps={"global memory": 1000}
        ).layout.title.text
    )


def test_bad_rooflines_are_errors():
    with pytest.raises(ValueError, match="must be positive"):
        figures.roofline(POINTS, peak_gflops=0, bandwidth_gbps={"global memory": 1})
    with pytest.raises(ValueError, match="must be positive"):
        figures.roofline(POINTS, peak_gflops=1, bandwidth_gbps={})
    with pytest.raises(ValueError, match="points must have a positive"):
        figures.roofline(
            [RooflinePoint("naive", 0.0, 1.0, "modelled as nothing")], peak_gflops=1, bandwidth_gbps={"L2": 1}
        )


def test_times_over_features_above_the_bound():
    figure = figures.times_over_features(
        [16, 64], {"naive": [4.0, 8.0]}, bound_us=[1.0, 3.0], marked=64, subtitle="toy · modelled"
    )
    bound, naive = figure.data
    assert bound.y == (1.0, 3.0) and bound.fill == "tozeroy"
    assert naive.y == (4.0, 8.0) and naive.line.color == palette.KERNELS["naive"]
    assert figure.layout.shapes[0].x0 == 64 and "(µs)" in figure.layout.yaxis.title.text
    with pytest.raises(ValueError, match="must have 2 times"):
        figures.times_over_features([16, 64], {"naive": [4.0]})
