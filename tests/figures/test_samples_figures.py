"""Walks, lengths, layers and the way to a GPU, as figures."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab import figures
from gnnsample_lab.figures import palette, route, samples


@pytest.fixture
def square():
    """0 - 1 - 2 - 3 - 0, and the diagonal 0 - 2."""
    return lab.Graph.from_edges([0, 1, 2, 3, 0], [1, 2, 3, 0, 2], undirected=True, name="square")


def named(figure, name):
    return next(trace for trace in figure.data if (trace.name or "").startswith(name))


def test_layout_is_of_every_vertex_and_repeatable(square):
    where = figures.graph_layout(square)
    assert sorted(where) == [0, 1, 2, 3] and where == figures.graph_layout(square)
    assert len(set(where.values())) == 4
    alone = lab.Graph.from_edges([], [], 1)
    assert list(figures.graph_layout(alone)) == [0]
    with pytest.raises(ValueError, match=r"at most 80 vertices to be drawn \(got 81\)"):
        figures.graph_layout(lab.Graph.from_edges([0], [80]))


def test_the_walk_and_its_choices(square):
    choices = {0: ("return", 0.5), 2: ("triangle", 0.3), 3: ("away", 0.2)}
    figure = figures.walk_drawing(square, [1, 0, 2], choices, [0.1, 0.2, 0.3, 0.4], label="square · sampled")
    where = figures.graph_layout(square)
    for u, (kind, share) in choices.items():
        line = next(t for t in figure.data if t.name == kind)
        # A bow ends there up to rounding.
        end = -1 if kind == "return" else 1
        assert (line.x[end], line.y[end]) == pytest.approx(where[u])
        assert (line.x[0], line.y[0]) == where[2] and line.line.color == samples.KINDS[kind]
        assert line.line.width == pytest.approx(2 + 12 * share)
        assert named(figure, f"{kind}: {100 * share:.0f}\u00a0%").showlegend
    assert (named(figure, "stands here").x[0], named(figure, "stands here").y[0]) == where[2]
    assert (named(figure, "came from").x[0], named(figure, "came from").y[0]) == where[0]
    vertices = named(figure, "vertex")
    assert vertices.text == ("0", "1", "2", "3")
    assert vertices.marker.color == pytest.approx([10, 20, 30, 40]) and vertices.marker.cmax == pytest.approx(
        40
    )
    assert "return, probability 50.0\u00a0%" in vertices.customdata[0][1] and vertices.customdata[1][1] == ""
    steps = named(figure, "last 2 steps")
    assert list(zip(steps.x, steps.y))[:2] == [where[1], where[0]] and len(steps.x) == 6
    assert "square · sampled" in figure.layout.title.text


def test_the_way_back_runs_beside_the_arrow_of_the_last_step(square):
    choices = {0: ("return", 0.5), 3: ("away", 0.5)}
    where = figures.graph_layout(square)

    def bows(walk):
        """Greatest distance of the way to 0 from the straight line, over its length."""
        figure = figures.walk_drawing(square, walk, choices, [0.25] * 4)
        line = next(t for t in figure.data if t.name == "return")
        start, end = np.array(where[2]), np.array(where[0])
        way = np.stack([line.x, line.y], axis=1)[: 13 if len(line.x) > 3 else 2] - start
        across = way @ np.array([-(end - start)[1], (end - start)[0]])
        return np.abs(across).max() / ((end - start) ** 2).sum()

    assert bows([1, 0, 2]) == pytest.approx(0.2)
    assert bows([2]) == pytest.approx(0), "no arrow is in the way of a first step"


def test_a_long_walk_shows_its_end_and_a_finished_one_no_choices(square):
    walk = [0, 1, 2, 3] * 5
    figure = figures.walk_drawing(square, walk, {}, [0.25] * 4)
    steps, where = named(figure, "last 6 steps"), figures.graph_layout(square)
    assert len(steps.x) == 3 * samples.TAIL
    drawn = [(steps.x[i], steps.x[i + 1]) for i in range(0, len(steps.x), 3)]
    assert drawn == [(where[a][0], where[b][0]) for a, b in zip(walk[-7:], walk[-6:])]
    assert not any(t.showlegend for t in figure.data if t.name and t.name.startswith("return"))
    begun = figures.walk_drawing(square, [2], {}, [0, 0, 0, 0])
    assert len(named(begun, "came from").x) == 0 and not named(begun, "last step").showlegend


def test_drawings_that_cannot_be_are_errors(square):
    with pytest.raises(ValueError, match="at least its root"):
        figures.walk_drawing(square, [], {}, [0.25] * 4)
    with pytest.raises(ValueError, match=r"one entry per vertex \(4, got 3\)"):
        figures.walk_drawing(square, [0], {}, [0.25] * 3)
    with pytest.raises(ValueError, match=r"got \['sideways'\]"):
        figures.walk_drawing(square, [0], {1: ("sideways", 1.0)}, [0.25] * 4)


def test_kinds_as_bars_with_marks():
    observed = {"return": 0.2, "triangle": 0.3, "away": 0.5}
    expected = {"return": 0.25, "triangle": 0.25, "away": 0.5}
    figure = figures.step_kinds(observed, expected, dict.fromkeys(expected, 1 / 3), label="toy")
    bars, even, exact = figure.data
    assert list(bars.x) == list(samples.KINDS) and list(bars.y) == pytest.approx([20, 30, 50])
    assert list(bars.marker.color) == list(samples.KINDS.values())
    assert list(exact.y) == pytest.approx([25, 25, 50]) and list(even.y) == pytest.approx([100 / 3] * 3)
    assert (even.name, exact.name) == ("p = q = 1", "expected") and "(%)" in figure.layout.yaxis.title.text
    assert len(figures.step_kinds(observed, expected).data) == 2
    with pytest.raises(ValueError, match="the same kinds"):
        figures.step_kinds({"away": 1.0}, expected)
    with pytest.raises(ValueError, match="out of"):
        figures.step_kinds({"up": 1.0}, {"up": 1.0})


def test_visits_are_grouped_by_distance():
    figure = figures.visit_shares(
        ["4", "1", "2"], [0.5, 0.2, 0.3], [0.4, 0.3, 0.3], distances=[0, 1, 2], label="toy"
    )
    bars, exact = figure.data
    assert [list(axis) for axis in bars.x] == [["root", "1 step", "2 steps"], ["4", "1", "2"]]
    assert list(bars.y) == pytest.approx([50, 20, 30]) and list(exact.y) == pytest.approx([40, 30, 30])
    ramp = [palette.ACTIVITY.index(color) for color in bars.marker.color]
    assert ramp == sorted(ramp, reverse=True) and ramp[0] == 5 and ramp[-1] >= 1
    plain = figures.visit_shares(["a"], [1.0], [1.0], [1.0], axis="person")
    assert (
        list(plain.data[0].x) == ["a"] and plain.layout.xaxis.title.text == "person" and len(plain.data) == 3
    )
    with pytest.raises(ValueError, match=r"one length \(got \[1, 2, 1\]\)"):
        figures.visit_shares(["a"], [0.5, 0.5], [1.0])


def test_lengths_beside_the_geometric_law():
    walks = [1, 1, 2, 3, 9]
    figure = figures.walk_lengths(walks, 0.5, longest=4, label="toy")
    bars, law = figure.data
    assert list(bars.y) == [2, 1, 1, 0] and list(bars.x) == [1, 2, 3, 4]
    assert list(law.y) == pytest.approx([2.5, 1.25, 0.625, 0.3125])
    assert "toy · mean 3.20, by the law 2.00 · 1 longer than 4" in figure.layout.title.text
    assert len(figures.walk_lengths([1, 5], 0.1).data[0].x) == 44
    assert list(figures.walk_lengths([1, 1], 1.0).data[1].y) == pytest.approx([2, 0])
    for bad in ([], [0, 3]):
        with pytest.raises(ValueError, match="at least one"):
            figures.walk_lengths(bad, 0.5)
    for stop in (0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"stop must lie in \(0, 1\]"):
            figures.walk_lengths([1], stop)


def test_links_between_layers():
    figure = figures.layer_links([[0, 2.5, 0], [0, 1, 1]], title="Drawn", label="toy")
    assert np.array(figure.data[0].z).tolist() == [[0, 1, 0], [0, 1, 1]]
    assert "toy · 3 edges, 1 of 3 sampled vertices without any" in figure.layout.title.text
    with pytest.raises(ValueError, match=r"two-dimensional \(got shape \(2,\)\)"):
        figures.layer_links([1, 0], title="")


def test_every_arrow_of_the_route_joins_two_boxes():
    figure = figures.device_route()
    boxes = [(s.x0, s.x1, s.y0, s.y1) for s in figure.layout.shapes]
    texts = [a.text for a in figure.layout.annotations if not a.showarrow]
    arrows = [a for a in figure.layout.annotations if a.showarrow]
    assert len(boxes) == len(texts) - 2 and len(arrows) == len(route._WAYS)
    for arrow in arrows:
        assert any(x0 == pytest.approx(arrow.x) and y0 < arrow.y < y1 for x0, _, y0, y1 in boxes)
        assert any(x1 == pytest.approx(arrow.ax) and y0 < arrow.ay < y1 for _, x1, y0, y1 in boxes)
    for i, (a0, a1, b0, b1) in enumerate(boxes):
        for c0, c1, d0, d1 in boxes[:i]:
            assert a1 < c0 or c1 < a0 or b1 < d0 or d1 < b0, "boxes overlap"


def test_all_can_be_written_as_json(square):
    for figure in (
        figures.walk_drawing(square, [0, 1], {2: ("triangle", 1.0)}, np.full(4, 0.25)),
        figures.step_kinds({"away": 1.0}, {"away": 1.0}),
        figures.visit_shares(["0"], [1.0], [1.0], distances=np.array([0])),
        figures.walk_lengths(np.array([1, 2]), 0.3),
        figures.layer_links(np.eye(3), title="identity"),
        figures.device_route(),
    ):
        json.loads(figure.to_json())


def test_shares_of_no_vertex_are_an_error():
    with pytest.raises(ValueError, match="names must hold at least one vertex"):
        figures.visit_shares([], [], [], distances=[])
