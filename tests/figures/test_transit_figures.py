"""Threads and their lists, kernels of transits, and the index, as figures."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gnnsample_lab import figures
from gnnsample_lab.figures import palette, transit, transit_kernels

LISTS = np.array([[4, 4, 1, 1], [9, 4, 4, -1]])
IDLE, LIGHT, DARK, FIRST = range(4)


def map_figure(lists=LISTS, **more):
    columns = {"lists": [2] * len(lists), "at work": ["50 %"] * len(lists)}
    return figures.thread_map(lists, figures.list_ranks([4, 4, 1, 4, 9]), columns, scheme="toy", **more)


def test_ranks_are_of_lists_that_several_want():
    assert figures.list_ranks([[4, 7], [4, -1], [7, 4], [9, 2]]) == {4: 0, 7: 1}
    assert figures.list_ranks([3, 2, 2, 3]) == {2: 0, 3: 1}
    assert len(figures.list_ranks(np.repeat(np.arange(30), 2))) == len(transit.LISTS) == 10
    assert figures.list_ranks([]) == {} == figures.list_ranks([-1, -1])


def test_a_cell_has_the_colour_of_its_list():
    figure = map_figure()
    codes = np.array(figure.data[0].z)
    assert codes.tolist() == [[FIRST, FIRST, DARK, DARK], [LIGHT, FIRST, FIRST, IDLE]]
    colours = [color for _, color in figure.data[0].colorscale][::2]
    assert colours == [transit.IDLE, *transit.OTHERS, *transit.LISTS]
    assert palette.LOST not in transit.LISTS and len(set(transit.LISTS)) == 10


def test_a_list_has_its_colour_in_both_schemes():
    ranks = figures.list_ranks(LISTS)
    other = figures.thread_map(np.array([[1, 1, 4, 4], [4, 4, 9, -1]]), ranks, {}, scheme="other")
    one = figures.thread_map(LISTS, ranks, {}, scheme="one")
    for vertex in (1, 4, 9):
        found = [
            set(np.array(f.data[0].z)[np.array(f.data[0].customdata) == str(vertex)]) for f in (one, other)
        ]
        assert vertex not in ranks or found[0] == found[1]


def test_ids_are_written_where_there_is_room():
    small = next(t for t in map_figure().data if t.type == "scatter" and t.mode == "text")
    assert [t.strip() for t in small.text] == ["4", "4", "1", "1", "9", "4", "4", ""] and all(small.text)
    wide = map_figure(np.zeros((2, 32), int))
    assert [t.text[0] for t in wide.data if t.type == "scatter" and t.mode == "text"] == ["2", "50 %"]


def test_rows_and_columns_are_labelled():
    figure = map_figure(warps=[3, 1500], kernels=["sub-warp", "grid"], label="a graph")
    assert list(figure.layout.yaxis.ticktext) == ["sub-warp · 3", "grid · 1,500"]
    assert [a.text for a in figure.layout.annotations] == ["<b>lists</b>", "<b>at work</b>"]
    assert figure.layout.title.text == "toy<br><sub>a graph</sub>"
    with pytest.raises(ValueError, match=r"warps must have one entry per warp \(2, got 1\)"):
        map_figure(warps=[1])
    with pytest.raises(ValueError, match=r"sectors must have one entry per warp"):
        figures.thread_map(LISTS, {}, {"sectors": [1]}, scheme="toy")


def test_nobody_at_work():
    figure = figures.thread_map(np.empty((0, 32), int), {}, {"lists": []}, scheme="toy")
    assert "No thread has anything to do" in figure.layout.annotations[0].text


def test_totals():
    names = ["sample-parallel", "transit-parallel"]
    sectors = dict(zip([*names, "lists in shared memory", "unlimited cache"], [12345, 400, 300, 200]))
    figure = figures.warp_totals(
        dict(zip(names, [4.0, 1.5])), sectors, dict(zip(names, [1.0, 0.5])), label="here"
    )
    assert [t.y.tolist() for t in figure.data] == [[4, 1.5], [12345, 400, 300, 200], [100, 50]]
    assert figure.data[1].text[0] == "12,345"
    assert list(figure.layout.xaxis2.ticktext) == [
        "sample-<br>parallel", "transit-<br>parallel", "lists in<br>shared<br>memory", "unlimited<br>cache",
    ]  # fmt: skip


def test_a_histogram_in_powers_of_two():
    figure = figures.kernel_histogram([1, 31, 32, 1024, 1025, 5000], [0, 0, 1, 1, 2, 2])
    bars = {(t.name, t.yaxis): t.y for t in figure.data}
    names = list(figure.data[0].customdata)
    assert names[:2] == ["1 neighbour", "2 to 3 neighbours"] and names[5] == "32 to 63 neighbours"
    assert names[9:11] == ["512 to 1,024 neighbours", "1,025 to 2,047 neighbours"]
    assert names[12] == "4,096 to 8,191 neighbours" and len(names) == 13
    share = 100 / 6
    assert bars["sub-warp", "y"][[0, 4]] == pytest.approx([share, share])
    # 1,024 needs a block and 1,025 a grid: the line is between their bins.
    assert bars["block", "y"][9] == pytest.approx(share) == bars["grid", "y"][10]
    assert bars["block", "y"][10] == 0
    assert bars["grid", "y2"][12] == pytest.approx(100 * 5000 / 7113)
    assert sum(v.sum() for v in bars.values()) == pytest.approx(200)
    assert [s.x0 for s in figure.layout.shapes] == [4.5, 4.5, 9.5, 9.5]
    assert "more than 1,024: grid" in [note.text for note in figure.layout.annotations]
    assert "from this number to the next" in figure.layout.xaxis2.title.text
    assert "No sample has a transit" in figures.kernel_histogram([], []).layout.annotations[0].text


@pytest.mark.parametrize(
    ("draws", "kernels", "said"),
    [
        ([0, 4], [0, 0], "draws must be at least 1 .got 0"),
        ([4], [3], "kernels must lie in 0..2"),
        ([4], [0, 0], "one length .got 1 and 2"),
    ],
)
def test_draws_that_no_transit_has_are_errors(draws, kernels, said):
    with pytest.raises(ValueError, match=said):
        figures.kernel_histogram(draws, kernels)


def test_shares_of_kernels():
    steps = [([4, 0, 0], [8, 0, 0]), ([2, 1, 1], [10, 90, 900])]
    figure = figures.kernel_shares(steps, {"several pairs": [0, 0.75]}, marked=1)
    bars = {t.name: t for t in figure.data}
    assert bars["grid"].x.tolist() == [0, 0, 25, 90] and bars["sub-warp"].text[0] == "100 %"
    assert list(bars["block"].y) == [
        "step 1, transits",
        "step 1, draws",
        "<b>step 2, transits</b>",
        "<b>step 2, draws</b>",
    ]
    marks = bars["list wanted by several pairs"]
    assert marks.x.tolist() == [0, 75] and list(marks.y) == ["step 1, draws", "<b>step 2, draws</b>"]
    with pytest.raises(ValueError, match="one entry per step"):
        figures.kernel_shares(steps, {"several pairs": [0]})


def test_sharing_by_batch():
    shared = {"several pairs": [0, 0.5], "several samples": [0, 0.25]}
    figure = figures.sharing_by_batch([1, 1024], [[5, 0, 0], [5, 10, 5]], shared, marked=1024)
    found = {t.name: list(t.y) for t in figure.data}
    assert found["block"] == [0, 50] and found["list wanted by several samples"] == [0, 25]
    assert list(figure.data[0].x) == ["1", "1,024"]
    assert (figure.layout.shapes[0].x0, figure.layout.shapes[0].x1) == (0.5, 1.5)


def test_index_share_and_the_papers():
    figure = figures.index_share(
        {"DeepWalk": 38.0, "k-hop": 10.0},
        paper={"DeepWalk": 40.4, "PPR": 1.0},
        label="g · measured on a card",
    )
    parts = {t.name: list(t.x) for t in figure.data if t.name}
    assert parts == {"index": [38, 10], "sampling": [62, 90], "index in the paper (V100)": [40.4]}
    # What has no room in its bar stands beside it, in letters of the same size.
    (beside,) = (t for t in figure.data if t.type == "scatter" and t.mode == "text")
    assert list(figure.data[0].text) == ["38.0 %", ""] and [t.strip() for t in beside.text] == ["10.0 %"]
    assert (
        figure.data[0].constraintext == "none" and beside.textfont.size == figure.data[0].insidetextfont.size
    )
    assert "measured on a card" in figure.layout.title.text
    with pytest.raises(ValueError, match="at least one run"):
        figures.index_share({}, label="")


def test_index_work():
    figure = figures.index_work(
        {"step 1, sampling": {"lists read": 3e6}, "step 1, radix sort": {"counters": 1e6}}
    )
    assert {t.name: list(t.x) for t in figure.data if t.name} == {"lists read": [3, 0], "counters": [0, 1]}
    assert figure.layout.xaxis.title.text == "bytes (MB)"
    assert [t.marker.color for t in figure.data if t.name] == [
        transit_kernels.PARTS[n] for n in ("lists read", "counters")
    ]
    with pytest.raises(ValueError, match="at least one row"):
        figures.index_work({})


def test_all_can_be_written_as_json():
    for figure in (
        map_figure(),
        figures.warp_totals({"a": 1}, {"a": 1}, {"a": 1}),
        figures.kernel_histogram([3], [0]),
        figures.kernel_shares([([1, 0, 0], [1, 0, 0])], {}),
        figures.sharing_by_batch([1], [[1, 0, 0]], {}),
        figures.index_share({"a": 1.0}, label=""),
        figures.index_work({"a": {"counters": 1.0}}),
    ):
        json.loads(figure.to_json())


@pytest.mark.parametrize("wrong", ["lists", "sectors", "busy"])
def test_a_total_that_is_no_number_is_named(wrong):
    tables = {name: {"a": np.nan if name == wrong else 1.0} for name in ("lists", "sectors", "busy")}
    with pytest.raises(ValueError, match=f"{wrong} must be finite .got nan"):
        figures.warp_totals(**tables)
