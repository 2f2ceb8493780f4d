"""Hit rates, bytes, beliefs against visits and similarities of epochs, as figures."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gnnsample_lab import figures
from gnnsample_lab.figures import palette
from gnnsample_lab.figures.caching import policy_color

RATIOS = [0.0, 0.1, 0.5, 1.0]
RATES = {
    "Random": [0, 0.1, 0.5, 1],
    "Degree": [0, 0.3, 0.7, 1],
    "PreSC#1": [0, 0.6, 0.9, 1],
    "PreSC#1 shrunk": [0, 0.62, 0.9, 1],
    "Optimal": [0, 0.7, 1, 1],
}
VISITS = np.array([9, 0, 5, 1, 0, 2])
DEGREE = np.array([1.0, 100, 10, 10, 0, 2])
HOTTEST = np.array([1, 0, 1, 0, 0, 0], dtype=bool)
CACHED = np.array([0, 1, 1, 0, 0, 0], dtype=bool)


def against(**changed):
    given = {"score": DEGREE, "visits": VISITS, "cached": CACHED, "hottest": HOTTEST, **changed}
    return figures.hotness_against_visits(
        *given.values(), policy="Degree", score_name="out-degree (count)", label="toy · counted"
    )


def annotations(figure):
    return [a.text for a in figure.layout.annotations if a.text]


def test_hit_rates_in_percent_with_a_curve_per_policy():
    figure = figures.hit_rates(RATIOS, RATES, label="toy (synthetic) · counted")
    assert [t.name for t in figure.data] == list(RATES)
    assert figure.data[1].x == pytest.approx([0, 10, 50, 100])
    assert figure.data[1].y == pytest.approx([0, 30, 70, 100])
    assert "toy (synthetic)" in figure.layout.title.text
    assert "(%)" in figure.layout.xaxis.title.text and "(%)" in figure.layout.yaxis.title.text
    looks = {(t.line.color, t.line.dash) for t in figure.data}
    assert len(looks) == len(RATES), "no two policies look alike"


def test_the_marker_lies_on_the_curves_and_the_legend_says_how_high():
    figure = figures.hit_rates(RATIOS, RATES, marker=0.3)
    marks = figure.data[len(RATES) :]
    assert [m.x for m in marks] == [(30,)] * 5
    assert marks[1].y == pytest.approx([50]) and marks[1].marker.color == figure.data[1].line.color
    assert [t.name for t in figure.data if t.showlegend is not False] == [m.name for m in marks]
    assert marks[1].name == "Degree: 50 %" and marks[3].name == "PreSC#1 shrunk: 76 %"
    assert figure.layout.shapes[0].x0 == pytest.approx(30)
    for beyond in (-0.1, 1.1):
        with pytest.raises(ValueError, match="marker must lie within ratios"):
            figures.hit_rates(RATIOS, RATES, marker=beyond)


def test_a_curve_of_another_length_is_an_error():
    with pytest.raises(ValueError, match=r"rates\['Degree'\] must have 4 values.*got 3"):
        figures.hit_rates(RATIOS, {"Degree": [0, 0.5, 1]})


def test_policies_keep_their_colours():
    assert policy_color("degree") == policy_color("Degree")
    assert policy_color("presample") == policy_color("PreSC#2") != policy_color("PreSC#1 shrunk")
    assert policy_color("presample-shrunk") == policy_color("PreSC#3 shrunk")
    assert policy_color("by moonlight") == palette.INK


def test_cached_mask():
    order = [3, 0, 2, 1]
    assert figures.cached_mask(order, 0.5).tolist() == [True, False, False, True]
    assert not figures.cached_mask(order, 0).any() and figures.cached_mask(order, 1).all()
    for bad in (-0.1, 1.5):
        with pytest.raises(ValueError, match=f"ratio must lie in 0..1 .got {bad}"):
            figures.cached_mask(order, bad)


def test_bytes_are_megabytes_and_shares_of_no_cache():
    figure = figures.bytes_per_batch({"Degree": 3e6, "Optimal": 0.0}, uncached=4e6, label="toy")
    bars = figure.data[0]
    assert bars.y == ("no cache", "Degree", "Optimal") and bars.x == pytest.approx([4, 3, 0])
    assert bars.text == ("4 MB", "3 MB  (75\u00a0%)", "0 MB  (0\u00a0%)")
    assert "(MB)" in figure.layout.xaxis.title.text and figure.layout.xaxis.range[1] > 4


def test_few_bytes_are_not_written_as_no_megabytes():
    figure = figures.bytes_per_batch({"Random": 256.0}, uncached=512.0)
    assert figure.data[0].text == ("512 bytes", "256 bytes  (50\u00a0%)")
    assert figure.data[0].x == pytest.approx([512, 256]) and "(bytes)" in figure.layout.xaxis.title.text
    assert figures.bytes_per_batch({"Optimal": 256.0}, uncached=4e6).data[0].text[1].startswith("0.000256 MB")


def test_every_vertex_is_drawn_once_and_empty_cells_are_not():
    figure = against()
    counts = np.asarray(figure.data[0].customdata)
    assert counts.sum() == 6
    shown = np.isfinite(np.asarray(figure.data[0].z))
    assert np.array_equal(shown, counts > 0)
    assert figure.data[0].z[shown].min() == 0, "the logarithm of one vertex"
    # Rows of the map are visits: the lowest holds the vertices that are never read.
    assert counts[0].sum() == 2 and counts[1:].sum() == 4


def test_what_is_passed_over_and_what_is_cached_for_nothing():
    words = annotations(against())
    assert "<b>passed over</b><br>53\u00a0% of all reads" in words  # vertex 0: 9 of 17
    assert "<b>cached, seldom read</b><br>50\u00a0% of the cache" in words  # vertex 1
    assert "<b>cached and hot</b><br>29\u00a0% of all reads" in words  # vertex 2: 5 of 17


def test_the_words_lie_in_rooms_of_their_own():
    figure = against()
    low, high = figure.layout.yaxis.range
    edges = figure.data[0].y
    span = edges[-1] - edges[0]
    assert high - edges[-1] >= 0.19 * span and edges[0] - low >= 0.19 * span
    assert {a.y for a in figure.layout.annotations} == {0, 1}
    assert all(a.bgcolor == palette.PAPER for a in figure.layout.annotations), (
        "the lines run behind the words"
    )


def test_lines_part_what_is_cached_from_what_is_not():
    figure = against()
    across, up = (shape for shape in figure.layout.shapes)
    assert across.line.dash == "dash" and up.line.dash == "dot"
    # Vertices 1 and 2 are cached, of degrees 100 and 10; 0 and 2 are hottest, read 9 and 5 times.
    assert np.log10(2) < across.x0 <= np.log10(10)
    assert np.log10(2) < up.y0 <= np.log10(5)
    assert not against(cached=np.zeros(6, bool), hottest=np.zeros(6, bool)).layout.shapes


def test_zero_has_a_place_of_its_own_on_the_axes():
    figure = against()
    ticks = dict(zip(figure.layout.xaxis.ticktext, figure.layout.xaxis.tickvals, strict=True))
    assert ticks["0"] < ticks["1"] < ticks["10"] < ticks["100"]
    assert figure.data[0].x[0] < ticks["0"] < figure.data[0].x[1] < ticks["1"]


@pytest.mark.parametrize(
    "score", [np.zeros(6), np.full(6, 3.0), np.linspace(1e-9, 1e-3, 6), np.arange(6) * 1e9 + 0.5]
)
def test_any_scores_can_be_drawn(score):
    figure = against(score=score)
    assert np.asarray(figure.data[0].customdata).sum() == 6
    json.loads(figure.to_json())


def test_nothing_visited_can_be_drawn():
    figure = against(visits=np.zeros(6, dtype=int))
    assert any("0\u00a0% of all reads" in text for text in annotations(figure))


def test_arrays_of_different_lengths_are_errors():
    with pytest.raises(ValueError, match="must be of one length .got 6, 5, 6, 6"):
        against(visits=VISITS[:5])


SEEN = np.array([3.0, 0, 2, 1, 0, 1])
ABOVE = np.array([1, 0, 1, 0, 0, 0], dtype=bool)
WHY = {"where": np.array(["a root", *["far"] * 5], dtype=object), "out-degree": DEGREE.astype(int)}


def scatter(**changed):
    given = {"cached": (CACHED, ABOVE), "visits": VISITS, "why": WHY, **changed}
    return figures.hotness_scatter(
        given.pop("across", DEGREE), given.pop("up", SEEN), names=("Degree", "PreSC#1"),
        axes=("out-degree (count)", "reads an epoch (count)"), label="toy · counted", **given,
    )  # fmt: skip


def test_vertices_by_who_caches_them():
    figure = scatter()
    vertices = {t.name.split(":")[0]: [row[0] for row in t.customdata] for t in figure.data}
    assert vertices == {
        "neither": [3, 4, 5], "only Degree": [1], "only PreSC#1": [0], "both": [2],
    }  # fmt: skip
    # 9 of 17 reads are of vertex 0.
    assert [t.name for t in figure.data][::2] == ["neither: 18\u00a0%", "only PreSC#1: 53\u00a0%"]
    assert figure.data[2].marker.color == policy_color("PreSC#1")
    assert {t.type for t in figure.data} == {"scattergl"}, "thousands of marks are no SVG"
    assert len({(t.marker.symbol, t.marker.color) for t in figure.data}) == 4
    assert "every vertex · toy · counted" in figure.layout.title.text
    json.loads(figure.to_json())


def test_pointing_at_a_vertex_tells_why_it_is_hot():
    only = scatter().data[2]
    assert only.customdata.tolist() == [[0, 1]] and only.text == ("a root",)
    assert only.hovertemplate == (
        "<b>vertex %{customdata[0]}</b><br>out-degree: %{customdata[1]:,}<br>%{text}"
        "<extra>cached by only PreSC#1</extra>"
    )


def test_the_lines_part_the_kinds():
    figure = scatter()
    upright, level = figure.layout.shapes
    for trace in figure.data:
        for x, y in zip(trace.x, trace.y, strict=True):
            # Vertex 3 has the degree of vertex 2, which is cached: of equals the cached ones lie beyond the line.
            assert (x > upright.x0) == (trace.name.startswith(("only Degree", "both")))
            assert (y > level.y0) == (trace.name.startswith(("only PreSC", "both")))


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("share", [0.01, 0.25, 0.9])
def test_lines_lie_between_the_coldest_that_is_cached_and_the_next(whole, share):
    """Scores close together, of which many lie in one bin."""
    rng = np.random.default_rng(1)
    score = rng.permutation(1000) + 5000.0 if whole else rng.random(1000) + 0.5
    cached = figures.cached_mask(np.argsort(-score), share)
    figure = scatter(across=score, up=score, cached=(cached, cached), visits=np.ones(1000, int), why=None)
    upright = figure.layout.shapes[0].x0
    for trace in figure.data:
        assert ((np.array(trace.x) > upright) == trace.name.startswith("both")).all()
    figure = against(score=score, visits=score, cached=cached, hottest=cached)
    (heat,), (line, level) = figure.data, figure.layout.shapes
    counts, x, y = np.asarray(heat.customdata), np.asarray(heat.x), np.asarray(heat.y)
    assert (
        counts[:, x[:-1] >= line.x0 - 1e-9].sum() == counts[y[:-1] >= level.y0 - 1e-9].sum() == cached.sum()
    )


def test_many_vertices_are_thinned_where_they_are_dense():
    rng = np.random.default_rng(1)
    degree = np.floor(rng.pareto(1.0, 50_000) + 1)
    seen = rng.poisson(0.2, 50_000).astype(float)
    seen[77] = 900  # far from all others
    hot = figures.cached_mask(np.argsort(-degree), 0.1), figures.cached_mask(np.argsort(-seen), 0.1)
    figure = scatter(across=degree, up=seen, cached=hot, visits=seen, why={}, most=1500)
    drawn = [row[0] for trace in figure.data for row in trace.customdata]
    assert 500 < len(drawn) <= 2000 and len(set(drawn)) == len(drawn)
    assert 77 in drawn
    assert f"{len(drawn):,} of 50,000 vertices" in figure.layout.title.text
    shares = [int(t.name.split(": ")[1].split("%")[0]) for t in figure.data]
    assert sum(shares) == pytest.approx(100, abs=2), "the legend is of all vertices"
    assert all(min(t.x) >= figure.layout.xaxis.tickvals[0] - 1 for t in figure.data)


def test_scatter_of_bad_lengths_and_of_nothing_cached():
    with pytest.raises(ValueError, match="must be of one length"):
        scatter(visits=VISITS[:5])
    nothing = np.zeros(6, bool)
    figure = scatter(cached=(nothing, nothing), visits=np.zeros(6, int))
    assert not figure.layout.shapes and figure.data[0].name == "neither: 0\u00a0%"
    assert [len(t.x) for t in figure.data] == [6, 0, 0, 0]


def test_contents_of_the_caches_add_up():
    figure = figures.cache_contents(VISITS, HOTTEST, {"Degree": CACHED, "Optimal": HOTTEST}, label="toy")
    shares = {trace.name.split()[0]: trace.x for trace in figure.data}
    assert shares["among"] == (50, 100) and shares["read,"] == (0, 0) and shares["never"] == (50, 0)
    assert figure.layout.barmode == "stack" and "(%)" in figure.layout.xaxis.title.text
    roomy = figures.cache_contents(VISITS, np.ones(6, bool), {"Optimal": np.ones(6, bool)})
    assert [trace.x[0] for trace in roomy.data] == pytest.approx([400 / 6, 0, 200 / 6])  # nobody reads two
    empty = figures.cache_contents(VISITS, HOTTEST, {"none": np.zeros(6, bool)})
    assert [trace.x for trace in empty.data] == [(0,)] * 3


def test_similarities_with_the_mean_of_different_epochs():
    figure = figures.epoch_similarities([[1, 0.8], [0.6, 1]], top=0.1, label="toy")
    assert np.asarray(figure.data[0].z).tolist() == [[100, 80], [60, 100]]
    title = figure.layout.title.text
    assert "toy" in title and "hottest 10\u00a0%" in title and "mean of different epochs 70.0 %" in title
    assert figure.data[0].y[0] == "epoch 1" and figure.layout.yaxis.autorange == "reversed"
    assert "mean" not in figures.epoch_similarities([[1.0]]).layout.title.text
    unread = figures.epoch_similarities([[1, 0.8], [np.nan, np.nan]]).layout.title.text
    assert "mean of different epochs 80.0 %" in unread
    with pytest.raises(ValueError, match="similarity must be a square matrix"):
        figures.epoch_similarities(np.ones((2, 3)))


def test_a_policy_that_has_not_been_rated_yet_keeps_its_place_in_the_legend():
    figure = figures.hit_rates(
        [0, 0.5, 1], {"Random": [0, 0.5, 1], "PreSC#1": None, "Optimal": [0, 0.9, 1]}, marker=0.5
    )
    assert [t.name for t in figure.data if t.showlegend is not False] == [
        "Random: 50 %",
        "PreSC#1: …",
        "Optimal: 90 %",
    ]
    (curve,) = [t for t in figure.data if t.name == "PreSC#1"]
    assert np.isnan(np.asarray(curve.y, dtype=float)).all()


@pytest.mark.parametrize("policy", ["Random", "Degree", "Reverse PageRank", "PreSC#1 shrunk"])
def test_no_two_groups_of_vertices_have_one_colour(policy: str) -> None:
    n = 40
    score = np.arange(1.0, n + 1)
    masks = np.arange(n) % 4 >= 2, np.arange(n) % 2 == 1
    for other in ("PreSC#1", "Optimal"):
        fig = figures.hotness_scatter(
            score, score[::-1], masks, names=(policy, other), axes=("across", "up"), visits=np.ones(n)
        )
        colors = [trace.marker.color for trace in fig.data if trace.type == "scattergl"]
        assert len(colors) == 4 and len(set(colors)) == 4, (policy, other, colors)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_hotness_that_is_no_number_is_named(bad):
    masks = ([True, False], [True, False])
    names = {"policy": "Degree", "score_name": "degree"}
    with pytest.raises(ValueError, match="score must be finite .got"):
        figures.hotness_against_visits([bad, 1], [1, 1], *masks, **names)
    with pytest.raises(ValueError, match="visits must be finite .got"):
        figures.hotness_against_visits([1, 1], [bad, 1], *masks, **names)
    with pytest.raises(ValueError, match="up must be finite .got"):
        figures.hotness_scatter([1, 1], [bad, 1], masks, names=("a", "b"), axes=("a", "b"), visits=[1, 1])
