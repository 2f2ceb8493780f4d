"""The hash table, its contention and its probes, as figures."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab import figures
from gnnsample_lab.figures import id_map, palette

IDS = np.array([3, 3, 8, 1])
EMPTY, DONE, PROBED, NEW, FOUND, WRONG = range(6)


def drawn(done, polarity="correct", wrong=()):
    """The table of figure 8 of the paper after ``done`` ids."""
    steps = lab.fill_steps(IDS, 5, polarity=polarity)[:done]
    keys = steps[-1].keys if steps else (-1,) * 5
    values = steps[-1].values if steps else (0,) * 5
    entry = dict(zip(keys, values, strict=True))
    return figures.hash_table(
        IDS,
        keys,
        values,
        done=done,
        local=[entry.get(int(v), -1) for v in IDS],
        probes=steps[-1].probes if steps else (),
        is_new=bool(steps and steps[-1].is_new),
        wrong=wrong,
        label="made-up ids",
    )


def cells(figure, number):
    """Codes and texts of the upper (0) or the lower (1) cells, top row first."""
    heat = [t for t in figure.data if t.type == "heatmap"][number]
    text = [t for t in figure.data if t.type == "scatter" and t.mode == "text"][number]
    codes = np.array(heat.z)
    return codes[::-1].tolist(), np.array([t.strip() for t in text.text]).reshape(codes.shape)[::-1].tolist()


def arrows(figure):
    return [(a.x, a.text) for a in figure.layout.annotations if a.showarrow]


def legend(figure):
    return [t.name for t in figure.data if t.showlegend is not False and t.name]


def test_the_empty_table():
    figure = drawn(0)
    codes, text = cells(figure, 1)
    assert codes == [[EMPTY] * 5] * 2 and text == [[""] * 5] * 2
    assert cells(figure, 0) == ([[EMPTY] * 4] * 2, [["3", "3", "8", "1"], [""] * 4])
    assert arrows(figure) == []
    assert "made-up ids · nothing inserted yet" in figure.layout.title.text


def test_no_text_is_empty():
    """An element that plotly.js removed for its empty text would stay away at the next step."""
    assert all(t for trace in drawn(0).data if trace.type == "scatter" and trace.text for t in trace.text)


def test_an_id_that_is_there_already():
    figure = drawn(2)
    assert cells(figure, 0)[0] == [[DONE, FOUND, EMPTY, EMPTY]] * 2
    assert cells(figure, 1)[0] == [[EMPTY, EMPTY, EMPTY, FOUND, EMPTY]] * 2
    assert arrows(figure) == [(3, "<b>home</b>")]


def test_a_collision_is_drawn_with_its_way():
    figure = drawn(3)
    codes, text = cells(figure, 0)
    assert codes == [[DONE, DONE, NEW, EMPTY]] * 2
    assert text == [["3", "3", "8", "1"], ["0", "0", "1", ""]]
    codes, text = cells(figure, 1)
    assert codes == [[EMPTY, EMPTY, EMPTY, PROBED, NEW]] * 2
    assert text == [["", "", "", "3", "8"], ["", "", "", "0", "1"]]
    assert arrows(figure) == [(3, "<b>home</b>"), (4, "<b>+1</b>")]
    assert "id 8 is number 3 of 4" in figure.layout.title.text


def test_wrong_local_ids_are_marked_and_named_in_the_legend():
    figure = drawn(4, "printed", wrong=[8, 1, 3])
    assert cells(figure, 0)[0][1] == [WRONG] * 4
    assert cells(figure, 1)[0] == [[EMPTY, NEW, EMPTY, DONE, DONE], [EMPTY, WRONG, EMPTY, WRONG, WRONG]]
    assert "wrong local id" in legend(figure)
    assert "wrong local id" not in legend(drawn(4)) and "found: there already" in legend(drawn(0))
    assert id_map.CELLS["wrong local id"] == palette.LOST


def test_a_large_table_has_two_rows_of_cells():
    ids = [3, 20, 36]
    steps = lab.fill_steps(ids, 17)
    last = steps[-1]
    figure = figures.hash_table(
        ids, last.keys, last.values, done=3, local=[0, 1, 2], probes=last.probes, is_new=True
    )
    upper, lower = [t for t in figure.data if t.type == "heatmap"][1:]
    assert (list(upper.x), list(lower.x)) == (list(range(9)), list(range(9, 17)))
    assert [len(axis.range) for axis in (figure.layout.xaxis2, figure.layout.xaxis3)] == [2, 2]
    widths = [np.ptp(axis.range) for axis in (figure.layout.xaxis2, figure.layout.xaxis3)]
    assert widths == pytest.approx([9.2, 9.2]), "cells of one width"
    assert (figure.layout.xaxis3.tickvals[-1], figure.layout.yaxis2.range) == (16, figure.layout.yaxis3.range)
    assert [cells(figure, part)[1][0].index(str(v)) for part, v in ((1, 3), (1, 20), (1, 36))] == [3, 4, 2]
    # 36 goes to slot 2; one that hashes to the last slots has its arrow in the second row.
    assert [(a.x, a.xref) for a in figure.layout.annotations] == [(2, "x2")]
    below = figures.hash_table(
        [16], (-1,) * 16 + (16,), (0,) * 17, done=1, local=[0], probes=[16], is_new=True
    )
    assert [(a.x, a.xref) for a in below.layout.annotations] == [(16, "x3")]
    assert "xaxis3" not in drawn(4).layout.to_plotly_json(), "few slots stand side by side"


def test_bad_tables_are_errors():
    with pytest.raises(ValueError, match=r"must be of one length \(got 2, 1, 3, 3\)"):
        figures.hash_table([1, 2], [-1] * 3, [0] * 3, done=0, local=[0])
    with pytest.raises(ValueError, match=r"done must lie in 0..2 \(got 3\)"):
        figures.hash_table([1, 2], [-1] * 3, [0] * 3, done=3, local=[0, 1])


def test_contention_counts_those_that_wait():
    rounds = lab.fill_rounds([3, 3, 8, 1], 5, threads=4)
    counts = np.stack([r.contention for r in rounds])
    assert counts.tolist() == [[0, 1, 0, 3, 0], [0, 0, 0, 0, 1]]
    figure = figures.slot_contention(counts, label="toy")
    assert np.array(figure.data[0].z).tolist() == counts.tolist()
    assert np.array(figure.data[0].text).tolist() == [["", "1", "", "3", ""], ["", "", "", "", "1"]]
    assert figure.data[0].zmax == 4
    assert "toy" in figure.layout.title.text
    assert "5 swaps tried in 2 rounds, 2 had to wait" in figure.layout.title.text.replace("<br>", " ")


def test_large_contention_is_drawn_without_text():
    assert figures.slot_contention(np.ones((50, 50), int)).data[0].text is None


def test_shares_of_probe_lengths():
    figure = figures.probe_lengths([0, 6, 3, 0, 1], hash_name="modulo", label="toy")
    assert figure.data[0].x == pytest.approx([1, 2, 3, 4])
    assert [None if v is None or np.isnan(v) else v for v in figure.data[0].y] == [60, 30, None, 10]
    assert figure.data[0].marker.color == id_map.HASHES["modulo"]
    assert "mean 1.60, longest 4" in figure.layout.title.text and "(%)" in figure.layout.yaxis.title.text


def test_a_long_tail_is_cut_and_told():
    lengths = np.zeros(101, int)
    lengths[1], lengths[100] = 3, 1
    figure = figures.probe_lengths(lengths)
    assert len(figure.data[0].x) == 40
    title = figure.layout.title.text.replace("<br>", " ")
    assert "longest 100" in title and "25.0\u00a0% need more than 40" in title


def test_probes_over_the_load_factor():
    figure = figures.probes_by_load([0.1, 0.5], {"modulo": [1.1, 1.6], "low-bits": [1, 9]}, marker=0.5)
    lines = {t.name: t for t in figure.data}
    assert list(lines) == ["modulo", "low-bits", "theory, random hash"]
    assert lines["low-bits"].y == pytest.approx([1, 9])
    theory = lines["theory, random hash"]
    assert (theory.x[0], theory.y[0]) == (0, 1) and (theory.x[-1], theory.y[-1]) == pytest.approx((0.5, 1.5))
    assert figure.layout.shapes[0].x0 == 0.5
    assert not figures.probes_by_load([0.1], {}).layout.shapes


def test_theory_is_what_random_ids_cost():
    ids = np.random.default_rng(0).choice(2**40, round(0.75 * 2**14), replace=False)
    mean = lab.probe_statistics(ids, slots=2**14, device="cpu").mean
    theory = figures.probes_by_load([0.75], {}).data[-1].y[-1]
    assert mean == pytest.approx(theory, rel=0.05)


def test_shares_within_less_than_a_decade_have_numbers_at_their_axis():
    for lengths in ([0, 16, 16, 15], [0, 5, 5], [0, 1], [0, 100, 3]):
        axis = figures.probe_lengths(lengths).layout.yaxis
        low, high = axis.range
        shares = 100 * np.array(lengths[1:]) / sum(lengths)
        assert 10**low < shares.min() and shares.max() <= 10**high * (1 + 1e-9), lengths
        assert sum(low - 1e-9 <= np.log10(mark) <= high + 1e-9 for mark in axis.tickvals) >= 2, lengths
    wide = figures.probe_lengths([0, 1000, 1]).layout.yaxis
    assert wide.tickvals is None and wide.dtick == 1 and wide.range is None


def test_rungs_and_ratios():
    figure = figures.id_map_rungs({"a": 900.0, "b": 300.0}, label="measured on a card")
    assert figure.data[0].x == pytest.approx([900, 300])
    assert figure.data[0].text == ("900.0 µs", "300.0 µs  (3.0×)")
    assert "measured on a card · ratios against a" in figure.layout.title.text
    assert (
        figures.id_map_rungs({"a": 900.0, "b": 300.0}, label="", baseline="b")
        .data[0]
        .text[0]
        .endswith("(0.3×)")
    )
    with pytest.raises(ValueError, match="at least one rung"):
        figures.id_map_rungs({}, label="")
    with pytest.raises(ValueError, match=r"baseline must be one of \['a'\] \(got 'c'\)"):
        figures.id_map_rungs({"a": 1.0}, label="", baseline="c")


def test_all_can_be_written_as_json():
    for figure in (
        drawn(4),
        figures.slot_contention([[1, 0]]),
        figures.probe_lengths([0, 1]),
        figures.probes_by_load([0.5], {"modulo": [1.5]}),
        figures.id_map_rungs({"a": 1.0}, label=""),
    ):
        json.loads(figure.to_json())


def test_one_swap_in_one_round_is_one():
    title = figures.slot_contention([[1, 0]]).layout.title.text.replace("<br>", " ")
    assert "1 swap tried in 1 round, 0 had to wait" in title


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]])
def test_no_id_has_no_longest_probe(lengths):
    figure = figures.probe_lengths(lengths)
    assert "no id" in figure.layout.annotations[0].text and "longest" not in figure.layout.title.text
