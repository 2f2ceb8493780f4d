"""Match degrees, tours and where features come from, as figures."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from gnnsample_lab import figures
from gnnsample_lab.compute.aggregation.ladder import ALIASES
from gnnsample_lab.figures import palette

DEGREES = np.array(
    [
        [1.0, 0.2, 0.5, 0.1],
        [0.2, 1.0, 0.3, 0.6],
        [0.5, 0.3, 1.0, 0.4],
        [0.1, 0.6, 0.4, 1.0],
    ]
)
TOURS = {"as sampled": [0, 1, 2, 3], "greedy": [0, 2, 3, 1]}
ROWS = {"every batch by itself": (0, 0, 1000), "match": (300, 0, 700), "match, cache": (300, 200, 500)}


def cells(figure, name):
    trace = next(t for t in figure.data if t.name == name)
    return list(zip(np.array(trace.y).tolist(), np.array(trace.x).tolist(), strict=True))


def test_heatmap_shows_percentages_without_the_diagonal():
    figure = figures.match_heatmap(DEGREES, TOURS, subtitle="toy (synthetic) · batches sampled on the CPU")
    z = figure.data[0].z
    assert np.isnan(np.diag(z)).all()
    assert z[0, 2] == pytest.approx(50) and z[3, 1] == pytest.approx(60)
    assert (figure.data[0].zmin, figure.data[0].zmax) == (0, 100), "never refitted"
    title = figure.layout.title.text
    line, small = title.split("<br>")
    assert line.endswith("mean 35.0\u00a0%"), "short, for the buttons of the plot lie behind it"
    assert "from 10.0 to 60.0\u00a0% · toy (synthetic)" in small
    assert DEGREES[0, 0] == 1.0, "the caller's matrix is not changed"


def test_tours_mark_the_pairs_that_follow_each_other():
    figure = figures.match_heatmap(DEGREES, TOURS)
    assert cells(figure, "as sampled") == [(0, 1), (1, 2), (2, 3)]
    assert cells(figure, "greedy") == [(0, 2), (2, 3), (3, 1)]
    assert {t.hoverinfo for t in figure.data[1:]} == {"skip"}, "cells are clicked, not the marks in them"


def test_a_tour_in_its_own_order_runs_along_the_diagonal():
    figure = figures.match_heatmap(DEGREES, {"greedy": TOURS["greedy"]}, order=TOURS["greedy"])
    assert cells(figure, "greedy") == [(0, 1), (1, 2), (2, 3)]
    assert figure.data[0].z[0, 1] == pytest.approx(50) and figure.data[0].z[2, 3] == pytest.approx(60)
    assert figure.layout.xaxis.ticktext == ("1", "3", "4", "2")
    many = figures.match_heatmap(np.eye(32)).layout.xaxis
    assert many.ticktext == ("1", "5", "9", "13", "17", "21", "25", "29") and many.tickvals[1] == 4
    assert figure.data[0].customdata[0, 1].tolist() == [1, 3]


def test_colours_go_from_0_to_100_whatever_the_data():
    assert figures.match_limits(DEGREES) == (0.1, 0.6)
    assert figures.match_limits([[1.0]]) == (0.0, 1.0)
    for degrees in (DEGREES, 0.01 * DEGREES, [[1.0]]):
        assert figures.match_heatmap(degrees).data[0].zmin == 0
        assert figures.match_heatmap(degrees).data[0].zmax == 100
    assert figures.match_heatmap(DEGREES, limits=(0.1, 0.6)).data[0].zmax == 60


def test_the_cells_of_a_pair_are_framed():
    assert not figures.match_heatmap(DEGREES, TOURS).layout.shapes
    figure = figures.match_heatmap(DEGREES, order=TOURS["greedy"], pair=(0, 3))
    framed = {(s.x0 + 0.5, s.y0 + 0.5) for s in figure.layout.shapes}
    assert framed == {(0, 2), (2, 0)}, "batch 4 is trained third"
    assert len(figures.match_heatmap(DEGREES, pair=(1, 1)).layout.shapes) == 1


def area(trace):
    """Of a polygon, by the shoelace formula."""
    x, y = np.asarray(trace.x), np.asarray(trace.y)
    return abs(float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))) / 2


def pair(first, second, both):
    return figures.shared_vertices(
        first, second, both, names=("batch 3", "batch 7"), row_bytes=512, subtitle="toy · counted"
    )


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [(1000, 1000, 200), (1000, 400, 399), (5, 9000, 1), (400, 1000, 400), (700, 700, 700), (10, 10, 9)],
)
def test_areas_are_to_scale(first, second, both):
    one, two, common = pair(first, second, both).data
    assert [area(one), area(two), area(common)] == pytest.approx([first, second, both], rel=2e-3)
    assert max(common.x) < max(one.x) + 1e-3 and min(common.x) > min(two.x) - 1e-3


@pytest.mark.parametrize(
    ("first", "second", "both"), [(1000, 1000, 5), (900, 900, 900), (5, 9000, 1), (9000, 5, 0)]
)
def test_discs_and_words_lie_within_the_axes(first, second, both):
    figure = pair(first, second, both)
    low, high = figure.layout.xaxis.range
    at = [x for t in figure.data for x in t.x] + [a.x for a in figure.layout.annotations]
    assert low < min(at) and max(at) < high
    assert max(abs(y) for t in figure.data for y in t.y) < figure.layout.yaxis.range[1]
    left, right, middle = (a.x for a in figure.layout.annotations)
    assert left < middle < right and right - left >= 3.1 * max(abs(y) for t in figure.data for y in t.y)


def test_counts_and_what_the_second_one_loads():
    figure = pair(1000, 800, 200)
    words = [a.text.split("</span> ")[1] for a in figure.layout.annotations]
    assert words == ["<b>800</b><br>only batch 3", "<b>600</b><br>only batch 7", "<b>200</b><br>both"]
    title = figure.layout.title.text
    assert "Batch 3 and batch 7 share 200 vertices: 25.0\u00a0% of the smaller one" in title
    assert "trained after batch 3, batch 7 loads 307 of 410 kB" in title and "toy · counted" in title
    assert figure.layout.yaxis.scaleanchor == "x", "discs, not ellipses"


def test_nothing_shared_and_impossible_pairs():
    one, two, common = pair(100, 50, 0).data
    assert len(common.x) == 0 and max(one.x) == pytest.approx(min(two.x))
    for bad in ((10, 5, 6), (10, 5, -1), (0, 5, 0)):
        with pytest.raises(ValueError, match="both must be from 0 to the smaller"):
            pair(*bad)


SHARED = np.array([[10, 2, 6, 1], [2, 12, 3, 8], [6, 3, 9, 4], [1, 8, 4, 11]])


def test_what_no_order_spares():
    assert figures.least_loads(SHARED).tolist() == [10 - 6, 12 - 8, 9 - 6, 11 - 8]
    assert figures.least_loads([[5]]).tolist() == [5]


def test_strips_show_the_bytes_of_every_step():
    figure = figures.tour_strips(SHARED, TOURS, 1000, subtitle="toy · counted")
    copied = [np.asarray(t.y).tolist() for t in figure.data if t.name == "copied"]
    reused = [np.asarray(t.y).tolist() for t in figure.data if t.name == "reused"]
    # In kB: 0, 1, 2, 3 as sampled; 0, 2, 3, 1 greedily.
    assert copied == [[10, 10, 6, 7], [10, 3, 7, 4]]
    assert reused == [[0, 2, 3, 4], [0, 6, 4, 8]]
    least = [np.asarray(t.y)[::3].tolist() for t in figure.data if t.name == "least possible"]
    assert least == [[10, 4, 3, 3], [10, 3, 3, 4]]
    assert figure.layout.xaxis2.ticktext == ("1", "3", "4", "2")
    assert figure.layout.yaxis.range == figure.layout.yaxis2.range, "one scale"
    strips = [np.asarray(t.z).tolist() for t in figure.data if t.type == "heatmap"]
    assert strips == [[[1, 2, 3, 4]], [[1, 3, 4, 2]]]
    assert figure.data[0].text[1] == "step 2: batch 2 after batch 1"
    json.loads(figure.to_json())


def test_the_total_saved_is_said_in_words_beside_the_bound():
    title = figures.tour_strips(SHARED, TOURS, 1000, subtitle="toy").layout.title.text
    # 33 of 24 kB; the bound is 10 + 4 + 3 + 3.
    assert (
        title
        == "Order greedy saves 9 kB (27.3\u00a0%); no order saves more than 13 kB (39.4\u00a0%)<br><sub>toy</sub>"
    )
    worse = figures.tour_strips(SHARED, {"a": TOURS["greedy"], "b": range(4)}, 1000)
    assert worse.layout.title.text.startswith(
        "Order b copies 9 kB (37.5\u00a0%) more; no order saves more than 4 kB"
    )
    rows = [a.text for a in worse.layout.annotations]
    assert rows == ["<b>a</b>: 24 kB copied", "<b>b</b>: 33 kB copied (+37.5\u00a0%)"]


def test_no_tour_beats_the_bound():
    rng = np.random.default_rng(5)
    batches = [np.unique(rng.integers(0, 60, size)) for size in rng.integers(10, 40, 7)]
    shared = np.array([[len(np.intersect1d(a, b)) for b in batches] for a in batches])
    bound = len(batches[0]) + figures.least_loads(shared)[1:].sum()
    loads = []
    for tail in itertools.permutations(range(1, 7)):
        order = [0, *tail]
        loads.append(np.diag(shared).sum() - sum(shared[a, b] for a, b in itertools.pairwise(order)))
    assert min(loads) >= bound


def test_one_batch_is_a_strip_too():
    figure = figures.tour_strips([[7]], {"as sampled": [0]}, 4)
    assert "saves 0 bytes" in figure.layout.title.text
    with pytest.raises(ValueError, match="tours must hold at least one"):
        figures.tour_strips(SHARED, {}, 4)


def test_along_the_tour():
    figure = figures.match_tour(DEGREES, TOURS, subtitle="toy")
    lines = [t for t in figure.data if t.mode == "lines+markers"]
    assert lines[0].y == pytest.approx([20, 30, 40])
    assert lines[1].y == pytest.approx([50, 40, 60])
    assert lines[1].name == "greedy: mean 50.0 %"
    assert figure.data[3].y == pytest.approx((50, 50))
    assert "(%)" in figure.layout.yaxis.title.text


@pytest.mark.parametrize("call", [figures.match_heatmap, figures.match_tour])
def test_bad_matrices_and_tours_are_errors(call):
    with pytest.raises(ValueError, match="degrees must be a square"):
        call(np.ones((2, 3)), {})
    with pytest.raises(ValueError, match=r"tours\['greedy'\] must hold each of 0..3 once"):
        call(DEGREES, {"greedy": [0, 1, 2, 2]})


def test_one_batch_can_be_drawn():
    for figure in (
        figures.match_heatmap([[1.0]], {"as sampled": [0]}),
        figures.match_tour([[1.0]], {"as sampled": [0]}),
    ):
        json.loads(figure.to_json())


def test_feature_rows_add_up_and_name_the_saving():
    figure = figures.feature_rows(ROWS, 4000, subtitle="toy · counted")
    bars = {t.name: t.x for t in figure.data if t.type == "bar"}
    assert bars["copied from host"] == pytest.approx([4.0, 2.8, 2.0])
    assert bars["in the cache"] == pytest.approx([0, 0, 0.8])
    assert bars["reused from last batch"] == pytest.approx([0, 1.2, 1.2])
    assert sum(bars.values()) == pytest.approx([4.0, 4.0, 4.0])
    labels = figure.data[-1].text
    assert labels[0] == "  4 MB" and "(−30.0\u00a0%)" in labels[1] and "(−50.0\u00a0%)" in labels[2]
    assert figure.layout.xaxis.title.text.startswith("features (MB)")


def test_sources_that_nothing_comes_from_are_left_out():
    figure = figures.feature_rows({"plain": (0, 0, 5)}, 4)
    assert [t.name for t in figure.data if t.type == "bar"] == ["copied from host"]


def test_bad_rows_are_errors():
    with pytest.raises(ValueError, match="rows must hold at least one"):
        figures.feature_rows({}, 4)
    with pytest.raises(ValueError, match="row_bytes must be at least 1"):
        figures.feature_rows(ROWS, 0)
    with pytest.raises(ValueError, match="three counts"):
        figures.feature_rows({"plain": (1, 2)}, 4)


def test_more_copied_than_the_first_is_not_called_a_saving():
    figure = figures.feature_rows({"before": (50, 0, 50), "after": (40, 0, 60)}, 4)
    assert "(+20.0\u00a0%)" in figure.data[-1].text[1]


def test_levels_and_kernels_have_colours_of_their_own():
    own = {name: color for name, color in palette.KERNELS.items() if name not in ALIASES}
    assert len(set(own.values())) == len(own) and {palette.KERNELS[name] for name in ALIASES} < set(
        own.values()
    )
    assert palette.level_color("L2 cache") == palette.LEVELS["L2"]
    assert palette.level_color("tape") == palette.kernel_color("none") == palette.MUTED
    assert palette.system_color("none") == palette.MUTED


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_degree_that_is_no_number_is_named(bad):
    for call in (figures.match_heatmap, figures.match_tour):
        with pytest.raises(ValueError, match="degrees must be finite .got"):
            call([[1, bad], [bad, 1]], {})
    with pytest.raises(ValueError, match="shared must be finite .got"):
        figures.tour_strips([[1, bad], [bad, 1]], {"as sampled": [0, 1]}, row_bytes=4)
