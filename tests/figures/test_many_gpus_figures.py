"""Parts, traffic, saved reads and recorded ratios, as figures."""

from __future__ import annotations

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab import figures
from gnnsample_lab.figures import palette


@pytest.fixture
def square() -> lab.Graph:
    return lab.Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0], 4, undirected=True, name="square")


def test_cut_edges_are_vermilion_and_counted(square):
    figure = figures.partition_drawing(square, [0, 0, 1, 1], title="Parts by hand", label="square")
    inside, cut, *parts = figure.data
    assert cut.name == "cut: 2" and cut.line.color == palette.LOST and len(cut.x) == 3 * 2
    assert inside.name == "inside a part: 2"
    assert [p.name for p in parts] == ["part 0: 2", "part 1: 2"]
    assert list(parts[1].text) == ["2", "3"] and parts[0].marker.color != parts[1].marker.color
    assert "2 of 4 edges cut (50\u00a0%)" in figure.layout.title.text
    # A cut edge leads between vertices of two parts, wherever these are drawn.
    where = figures.graph_layout(square)
    ends = {(round(x, 6), round(y, 6)) for x, y in zip(cut.x, cut.y) if x is not None and np.isfinite(x)}
    assert ends == {(round(x, 6), round(y, 6)) for x, y in where.values()}


def test_owners_of_another_graph_are_refused(square):
    with pytest.raises(ValueError, match="one entry per vertex"):
        figures.partition_drawing(square, [0, 1])


def test_a_matrix_for_each_method_leaves_out_what_stays():
    figure = figures.traffic_matrix(
        {"pull": [[0, 2000], [123456, 0]], "uva": np.zeros((2, 2))},
        host={"uva": [500, 0]},
        label="toy · counted",
    )
    pull, uva = figure.data
    assert list(pull.text[0]) == ["", "2.0"] and list(pull.text[1]) == ["123", ""]
    assert list(pull.x) == ["0", "1"] and list(uva.x) == ["0", "1", "host"]
    axis = figure.layout.xaxis2
    assert (axis.title.text, axis.type) == ("from", "category"), (
        "once, for four columns and the host's are narrow"
    )
    assert list(pull.y) == ["to 0", "to 1"]
    assert list(uva.text[0]) == ["", "0", "0.5"] and list(uva.text[1]) == ["0", "", "0"]
    assert pull.z[1][0] == 1.0 and np.isnan(pull.z[0][0]) and pull.zmax == uva.zmax
    assert [a.text for a in figure.layout.annotations] == ["pull", "uva"]
    assert "kB" in figure.layout.title.text and "counted" in figure.layout.title.text


@pytest.mark.parametrize(("given", "match"), [({}, "at least one"), ({"pull": [[1, 2]]}, "square")])
def test_what_is_no_matrix_is_refused(given, match):
    with pytest.raises(ValueError, match=match):
        figures.traffic_matrix(given)


def test_kinds_are_stacked_and_totals_written():
    figure = figures.traffic_kinds(
        {"pull": {"ids": 1000, "lists": 9000}, "csp": {"ids": 1000, "picks": 2000}}, ideal=2000, label="toy"
    )
    bars = {b.name: list(b.x) for b in figure.data if b.type == "bar"}
    assert bars == {"ids": [1, 1], "picks": [0, 2], "lists": [9, 0]}
    assert figure.layout.barmode == "stack"
    totals = next(t for t in figure.data if t.type == "scatter" and t.mode == "text")
    assert [text.strip() for text in totals.text] == ["10.0 kB", "3.0 kB"]
    line = next(t for t in figure.data if t.type == "scatter" and t.mode == "lines")
    assert set(line.x) == {2.0} and "2.0 kB" in line.name


def test_a_few_bytes_are_not_none():
    figure = figures.traffic_kinds({"csp": {"sizes": 16}, "direct": {"lists": 0}})
    totals = next(t for t in figure.data if t.type == "scatter" and t.mode == "text")
    assert [text.strip() for text in totals.text] == ["0.016 kB", "0 kB"]


def test_a_method_that_has_not_been_counted_yet_has_a_row_and_no_number():
    figure = figures.traffic_kinds({"pull": {"ids": 1000}, "csp": None, "uva": {}}, label="toy")
    totals = next(t for t in figure.data if t.type == "scatter" and t.mode == "text")
    assert list(totals.y) == ["pull", "csp", "uva"]
    assert [text.strip() for text in totals.text] == ["1.0 kB", "not counted yet", "0 kB"]


def test_a_bar_beyond_all_others_is_cut_off_and_says_its_length():
    figure = figures.traffic_kinds({"pull": {"lists": 9000}, "uva": {"lists": 90000}, "csp": {"picks": 3000}})
    totals = next(t for t in figure.data if t.type == "scatter" and t.mode == "text")
    assert [text.strip() for text in totals.text] == ["9.0 kB", "90.0 kB, cut short here", "3.0 kB"]
    assert list(totals.x) == [9, 18, 3]
    bars = {b.name: b for b in figure.data if b.type == "bar"}
    # The bar ends where its label begins, and still knows its length.
    assert list(bars["lists"].x) == [9, 18, 0] and list(bars["lists"].customdata) == [9, 90, 0]
    assert 18 < figure.layout.xaxis.range[1] < 30
    assert list(bars["lists"].marker.pattern.shape) == ["", "/", ""]
    assert figures.traffic_kinds({"pull": {}, "csp": {}}).layout.xaxis.range[1] == 1


def test_a_bar_that_is_cut_off_keeps_the_shares_of_its_kinds():
    figure = figures.traffic_kinds({"csp": {"picks": 1000}, "uva": {"records": 25000, "lists": 75000}})
    bars = {b.name: b.x[1] for b in figure.data if b.type == "bar"}
    assert bars == pytest.approx({"records": 0.5, "picks": 0, "lists": 1.5})


def test_the_line_of_the_remote_picks_runs_through_no_label():
    figure = figures.traffic_kinds(
        {"pull": {"lists": 9000}, "csp": {"picks": 3000}, "direct": {}}, ideal=3500
    )
    totals = next(t for t in figure.data if t.type == "scatter" and t.mode == "text")
    assert list(totals.x) == [9, 3.5, 0], "behind the line where it is near"


def test_curves_over_what_is_varied():
    figure = figures.traffic_curves(
        [2, 10],
        {"pull": [4000, 8000], "csp": [4000, 5000]},
        [1000, 3000],
        axis="fanout",
        marker=10,
        label="toy",
    )
    assert {t.name: list(t.y) for t in figure.data} == {
        "pull": [4, 8], "csp": [4, 5], "remote picks alone": [1, 3],
    }  # fmt: skip
    assert figure.layout.xaxis.title.text == "fanout" and "kB" in figure.layout.yaxis.title.text
    assert [s.x0 for s in figure.layout.shapes] == [10]
    with pytest.raises(ValueError, match="2 values"):
        figures.traffic_curves([2, 10], {"pull": [1]}, [1, 2], axis="fanout")


def test_saved_reads_promised_and_counted():
    figure = figures.saved_reads(
        [0, 10], {"reads": [0, 0.8], "degree": [0, 0.1]}, ([0, 10], [0, 0.5]), marker=10, label="toy"
    )
    assert {t.name: list(t.y) for t in figure.data} == {
        "ranked by reads": [0, 80], "ranked by degree": [0, 10], "counted, this batch": [0, 50],
    }  # fmt: skip
    assert figure.data[2].mode == "markers"
    with pytest.raises(ValueError, match="2 values"):
        figures.saved_reads([0, 10], {"reads": [1]})


def row(**more):
    return {
        "method": "direct", "world": 2, "x_one": 1.5, "batch_size": 1024, "fanout": 10, "hops": 3, "replace": True,
        "budget_percent": None, **more,
    }  # fmt: skip


def test_recorded_ratios_of_several_ranks_alone():
    rows = [
        row(), row(method="direct-cached", budget_percent=5.0, x_one=1.9), row(batch_size=8192, x_one=1.7),
        row(world=1, x_one=1.0), row(method="csp", error="its sample differs"), row(method="pull", x_one=None),
        row(world=4, x_one=2.9, x_best=3.1),
        row(world=4, method="direct-cached", budget_percent=52.4, saved_percent=80.0, x_one=4.1),
    ]  # fmt: skip
    figure = figures.ladder_speedups(rows, label="rmat · measured")
    one, two, four, nothing = figure.data
    assert list(one.y) == ["direct", "direct-cached, 5 % of lists"] and list(one.x) == [1.5, 1.9]
    assert list(two.x) == [1.7] and "8,192 seeds" in two.name
    # A field for each number of ranks: points of two and of four never lie in one row of one field.
    assert list(four.y) == ["direct", "direct-cached to save 80 % of reads"] and list(four.x) == [3.1, 4.1]
    assert not list(nothing.x) and (one.xaxis, four.xaxis) == ("x", "x2")
    assert [trace.showlegend for trace in figure.data] == [True, True, False, False]
    assert [note.text for note in figure.layout.annotations] == ["2 ranks", "4 ranks"]
    assert list(figure.layout.yaxis.categoryarray)[-1] == "direct-cached to save 80 % of reads"
    assert "easured" in figure.layout.title.text and "measured" in figure.layout.title.text


def test_a_record_without_several_ranks_says_so():
    figure = figures.ladder_speedups([row(world=1)])
    assert not figure.data and "no row of several ranks" in figure.layout.annotations[0].text


def test_every_method_and_kind_has_a_colour_of_its_own():
    from gnnsample_lab.distributed.sampling.traffic import KINDS

    methods = [palette.method_color(m) for m in lab.distributed.methods()]
    assert len(set(methods)) == len(methods) and palette.MUTED not in methods
    assert palette.method_color("unheard of") == palette.MUTED
    assert set(palette.TRAFFIC) <= set(KINDS)
