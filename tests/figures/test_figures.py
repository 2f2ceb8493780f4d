from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import types

import numpy as np
import plotly.graph_objects as go
import pytest

import gnnsample_lab as lab
from gnnsample_lab import figures
from gnnsample_lab.figures import palette, style, untimed
from gnnsample_lab.figures.activity import slot_states
from gnnsample_lab.figures.timeline import slot_raster
from gnnsample_lab.gpu_model import run_error as run_errors
from gnnsample_lab.gpu_model.run_error import run_error
from gnnsample_lab.resources import resource_path
from gnnsample_lab.traces import LostTable, SampleTrace, SlotTable, hop_utilisation, waiting_tasks
from gnnsample_lab.traces.analysis import hop_kernel_times
from tests.handmade_trace import make_trace
from tests.sampling.neighbors.schedule_samples import random_toy

PERSISTENT = make_trace()
BLOCK = make_trace("block-bsp", origin="modelled", fetch_size=None, completion=None, lost=None)
MODEL = dataclasses.replace(
    PERSISTENT, origin="modelled", hops=dataclasses.replace(PERSISTENT.hops, kernel_us=np.array([4.0, 6.0]))
)
TOY = random_toy(5, 80, 300)
PICKS = TOY.sample([3, 40], (3, 2), seed=1)

ONE = {
    "work_per_hop": figures.work_per_hop(PERSISTENT),
    "hop_times": figures.hop_times(PERSISTENT),
    "utilisation": figures.utilisation(PERSISTENT),
    "strategy_comparison": figures.strategy_comparison(PERSISTENT),
    "gantt": figures.gantt(PERSISTENT),
    "run_timeline": figures.run_timeline(PERSISTENT),
    "queue_slots": figures.queue_slots(PERSISTENT),
    "sm_activity": figures.sm_activity(PERSISTENT),
    "queue_depth": figures.queue_depth(PERSISTENT),
    "running_tasks": figures.running_tasks(PERSISTENT),
    "sm_load": figures.sm_load(PERSISTENT),
    "task_cost": figures.task_cost(PERSISTENT),
    "summary_table": figures.summary_table(PERSISTENT),
    "model_vs_measurement": figures.model_vs_measurement(MODEL, PERSISTENT),
}


def by_name(fig: go.Figure) -> dict[str, go.Figure]:
    return {trace.name: trace for trace in fig.data}


@pytest.mark.parametrize("name", ONE)
def test_every_figure_names_graph_and_origin(name):
    title = ONE[name].layout.title.text
    assert "toy (synthetic)" in title
    assert "measured on NVIDIA H200" in title


@pytest.mark.parametrize("name", [n for n in ONE if n != "summary_table"])
def test_value_axes_have_titles_with_units(name):
    fig = ONE[name]
    axes = [a for a in (*fig.select_xaxes(), *fig.select_yaxes()) if a.title.text]
    titles = " ".join(a.title.text for a in axes)
    assert any(unit in titles for unit in ("µs", "%", "count", "tasks")), titles
    for axis in axes:
        assert "time" not in axis.title.text or "(µs)" in axis.title.text


@pytest.mark.parametrize("name", ONE)
def test_figures_survive_json(name):
    assert json.loads(go.Figure(ONE[name].to_dict()).to_json()) == json.loads(ONE[name].to_json())


@pytest.mark.parametrize(
    "name",
    [
        "gantt",
        "run_timeline",
        "queue_slots",
        "sm_activity",
        "queue_depth",
        "running_tasks",
        "sm_load",
        "task_cost",
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_times_that_the_model_does_not_know_are_not_shown(name, known, monkeypatch):
    """Neither on axes nor in words that appear; the picture itself is the same."""
    monkeypatch.setattr("gnnsample_lab.figures.untimed.has_times", lambda trace: known)
    draw = getattr(figures, name)
    until = {} if name in ("sm_load", "task_cost") else {"until_us": 3.0}
    fig = draw(MODEL, **until)
    seen = json.dumps(fig.to_dict(), default=np.ndarray.tolist, ensure_ascii=False)
    assert ("µs" in seen) is known
    scales = ("without a scale", ", no scale")
    assert any(words in seen for words in scales) is (not known and name != "queue_slots")
    assert " ·  · " not in fig.layout.title.text and "<br><br>" not in seen
    if known:
        return
    shown = [
        a for a in (*fig.select_xaxes(), *fig.select_yaxes()) if "without a scale" in (a.title.text or "")
    ]
    assert all(axis.showticklabels is False for axis in shown)
    assert not (shown and str(fig.layout.hovermode).startswith("x")), "a shared label has the time in it"
    for trace in fig.data:
        if trace.type == "heatmap" and trace.text is not None:
            assert np.shape(trace.text) == np.shape(trace.z), "each cell has its own"
            assert any("hop" in words for row in trace.text for words in row)
    monkeypatch.setattr("gnnsample_lab.figures.untimed.has_times", lambda trace: True)
    for bare, timed in zip(fig.data, draw(MODEL, **until).data, strict=True):
        np.testing.assert_array_equal(bare.x, timed.x)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("%{x:,.1f} µs<br>%{y:,} tasks waiting<extra>a</extra>", "%{y:,} tasks waiting<extra>a</extra>"),
        (
            "block %{a[3]:d}, waited %{a[4]:,.1f} µs<br>starts at %{a[5]} µs, runs %{a[6]} µs<extra></extra>",
            "block %{a[3]:d}<extra></extra>",
        ),
        (
            "<b>slot 3</b>: hop 1<br>claimed at 1.5 µs by block 2",
            "<b>slot 3</b>: hop 1<br>claimed by block 2",
        ),
        (
            "<sub>toy · at 1,234.5 µs · peak 12 at 3 µs · result complete at 9 µs</sub>",
            "<sub>toy · peak 12</sub>",
        ),
        ("batch 1,024 · fanouts 15, 10", "batch 1,024 · fanouts 15, 10"),
    ],
)
def test_texts_without_times(text, left):
    assert untimed.words(text) == left


@pytest.mark.parametrize(
    "function", ["work_per_hop", "hop_times", "utilisation", "strategy_comparison", "queue_depth"]
)
def test_no_trace_is_an_error(function):
    with pytest.raises(ValueError, match="traces must hold at least one"):
        getattr(figures, function)([])


def test_a_mixed_figure_names_both_origins():
    title = figures.strategy_comparison([PERSISTENT, BLOCK]).layout.title.text
    assert "measured on NVIDIA H200; modelled as NVIDIA H200" in title


def test_work_per_hop_shows_the_counts_in_hop_colours():
    tasks, picks = ONE["work_per_hop"].data
    assert tasks.y.tolist() == [2, 3]
    assert picks.y.tolist() == [3, 4]
    assert tasks.marker.color == tuple(palette.translucent(palette.HOPS[h], 1.0) for h in (0, 1))
    two = figures.work_per_hop([PERSISTENT, BLOCK])
    assert two.data[0].y.tolist() == [2, 3, 2, 3]
    assert list(two.data[0].x[0]) == ["persistent (measured)"] * 2 + ["block-bsp (modelled)"] * 2


def test_counts_are_never_called_modelled():
    for traces in (BLOCK, [PERSISTENT, BLOCK]):
        title = figures.work_per_hop(traces).layout.title.text
        assert "modelled" not in title and "counted in the sample" in title


COUNTS = {1: [1, 3, 7], 16: [16, 40, 70], 64: [64, 80, 99]}


def test_means_of_several_batches_stand_beside_the_batch_that_is_marked():
    fig = by_name(growth(17, here=[17, 41, 71]))
    assert list(fig["hop 2"].x) == [1, 16, 64] and set(fig["hop 2"].marker.size) == {5}
    marks = [fig[f"{name}, this batch"] for name in ("hop 1", "hop 2", "mini-batch")]
    assert [(mark.x, mark.y) for mark in marks] == [((17,), (n,)) for n in (17, 41, 71)]


def growth(batch_size: int = 16, **changes) -> go.Figure:
    given = {
        "fanouts": (2, 3), "batch_size": batch_size, "largest_batch": 64, "num_nodes": 100, "title": "toy",
        "label": "counted, sampled on the CPU", **changes,
    }  # fmt: skip
    return figures.frontier_growth(COUNTS, **given)


def test_frontiers_are_drawn_as_counted_beside_their_bound():
    lines = by_name(growth())
    for level, name in enumerate(("hop 1", "hop 2", "mini-batch")):
        assert list(lines[name].x) == [1, 16, 64]
        assert list(lines[name].y) == [counts[level] for counts in COUNTS.values()]
    assert list(lines["bound of hop 2"].y) == [3, 3 * 64]
    assert list(lines["bound of mini-batch"].y) == [3 * 4, 3 * 4 * 64]
    assert "bound of hop 1" not in lines
    assert list(lines["all vertices"].y) == [100, 100]
    assert "bound of mini-batch" not in by_name(growth(fanouts=(2, -1))), "all neighbours have no bound"


def test_axes_of_frontiers_follow_from_graph_and_limits_alone():
    axes = [
        (fig.layout.xaxis.range, fig.layout.yaxis.range) for fig in (growth(1), growth(64, fanouts=(9, 9)))
    ]
    assert axes[0] == axes[1]
    (low, high), (floor, ceiling) = axes[0]
    assert low < 0 and high > np.log10(64) and floor < 0 and ceiling > np.log10(100)


def test_the_batch_and_the_setting_before_are_marked():
    before = {1: [1, 2], 64: [64, 90]}
    fig = growth(64, before=((1,), 4, before))
    assert by_name(fig)["this batch"].x == (64, 64)
    assert by_name(fig)["hop 1"].marker.size == (5, 5, 11)
    ghost = [t for t in fig.data if t.legendgroup == "before"]
    assert [list(t.y) for t in ghost] == [[1, 64], [2, 90]]
    assert "pale: batch 4, fanouts 1" in fig.layout.title.text and "pale" not in growth(64).layout.title.text
    assert by_name(fig)["the batch before"].x == (4, 4)
    with pytest.raises(ValueError, match="batch_size must be one of"):
        growth(17)


def test_a_bound_of_many_hops_is_not_negative():
    """1,001 to the seventh is beyond 64 bits, and np.prod would go round."""
    fig = figures.frontier_growth(
        {1: [1] * 9}, fanouts=[1000] * 8, batch_size=1, largest_batch=1, num_nodes=10**9, title="t", label="l"
    )
    assert list(by_name(fig)["bound of mini-batch"].y) == pytest.approx([1001**8] * 2)
    assert fig.to_json()


def test_hop_times_stack_to_the_total():
    bars = by_name(ONE["hop_times"])
    assert bars["preprocessing"].y.tolist() == [1.0, 0.0]
    assert bars["sampling kernel"].y == pytest.approx(PERSISTENT.hops.kernel_us)
    assert ONE["hop_times"].layout.barmode == "stack"


def test_utilisation_is_in_percent():
    bars = by_name(ONE["utilisation"])
    assert bars["workers busy"].y == pytest.approx(hop_utilisation(PERSISTENT) * 100)
    assert bars["copy bandwidth in use"].y == pytest.approx(PERSISTENT.hops.copy_share * 100)


@pytest.mark.parametrize("origin", ["modelled", "measured"])
def test_tasks_that_share_warps_are_no_share_of_the_workers(origin):
    """Two workers, and three tasks at once: no limit is drawn that the curve exceeds, and no 100 % that hides it."""
    edges = make_trace("edge-bsp", origin=origin, fetch_size=None, completion=None, lost=None)
    edges = dataclasses.replace(edges, meta={"resident_workers": 2} if origin == "modelled" else {})
    tasks, line, shares = (
        figures.running_tasks(edges),
        figures.run_timeline(edges),
        figures.utilisation(edges),
    )
    assert not any("at most" in (trace.name or "") for trace in tasks.data)
    assert not any("at most" in note.text for note in line.layout.annotations if "at work" in note.text)
    assert np.isnan(by_name(shares)["workers busy"].y).all() and np.isnan(hop_utilisation(edges)).all()
    assert by_name(shares)["copy bandwidth in use"].y == pytest.approx(edges.hops.copy_share * 100)
    for said in (
        tasks.layout.title.text,
        shares.layout.title.text,
        *(a.text for a in line.layout.annotations if "at work" in a.text),
    ):
        assert "share warps" in said
    both = figures.utilisation([BLOCK, edges])
    assert "edge-bsp: tasks share warps" in both.layout.title.text
    assert np.isnan(by_name(both)["workers busy"].y).tolist() == [False, False, True, True]
    assert "share warps" not in figures.utilisation(BLOCK).layout.title.text


def taking(strategy: str, us: float, origin: str = "modelled") -> SampleTrace:
    trace = make_trace(strategy, origin=origin, fetch_size=None, completion=None, lost=None)
    return dataclasses.replace(trace, total_us=us)


def test_modelled_times_have_the_models_error_and_no_order_within_it():
    base, near, far = taking("block-bsp", 400), taking("edge-bsp", 300), taking("persistent", 20)
    fig = figures.strategy_comparison([base, near, far])
    bars = by_name(fig)["model's error"]
    for i, trace in enumerate((base, near, far)):
        low, high = run_errors.interval_us(trace)
        assert bars.x[i] - bars.error_x.arrayminus[i] == pytest.approx(low)
        assert bars.x[i] + bars.error_x.array[i] == pytest.approx(high)
        assert bars.x[i] + bars.error_x.array[i] < fig.layout.xaxis.range[1]
    # Drawn over a bar's dark end, it has to be another colour than both that and the page's ground.
    assert bars.error_x.color == palette.MODELLED
    lights = [
        palette.luminance(color) for color in (palette.MODELLED, palette.STAGES["kernel"], palette.PAPER)
    ]
    assert all((max(a, lights[0]) + 0.05) / (min(a, lights[0]) + 0.05) > 2.5 for a in lights[1:])
    labels = fig.data[-1].text
    assert "faster" not in labels[1] and labels[1].endswith("(within the error)")
    assert labels[2].endswith("(faster)") and "×" not in labels[2]
    factors = [run_error(trace).factor for trace in (base, near, far)]
    words = f"time within a factor of {min(factors):.1f} to {max(factors):.1f} of recorded runs"
    assert min(factors) < max(factors) and words in fig.layout.title.text
    assert not fig.layout.xaxis.showticklabels and "µs" not in "".join([*labels, fig.layout.xaxis.title.text])
    measured = figures.strategy_comparison(
        [taking("bsp", 9, "measured"), taking("persistent", 3, "measured")]
    )
    assert "model's error" not in by_name(measured) and "recorded" not in measured.layout.title.text
    assert "3.0× faster" in measured.data[-1].text[1]


def test_a_strategy_is_shown_with_times_only_where_the_model_is_within_a_quarter(monkeypatch):
    ratios = {"bsp": [0.81, 1.24], "block-bsp": [1.26], "persistent": [0.79]}
    monkeypatch.setattr(run_errors, "_recorded", lambda: {"NVIDIA H200": ratios})
    near, slow, fast = (taking(name, 100) for name in ratios)
    unknown = dataclasses.replace(near, device_name="another GPU")
    never = taking("captured", 100)
    assert [run_errors.has_times(t) for t in (near, slow, fast, unknown, never)] == [True] + 4 * [False]
    assert run_errors.has_times(taking("captured", 100, "measured"))
    for shown, timed in (([near], True), ([slow], False), ([near, fast], False), ([unknown], False)):
        compared, hops = figures.strategy_comparison(shown), figures.hop_times(shown)
        for axis in (compared.layout.xaxis, hops.layout.yaxis):
            assert (axis.showticklabels is not False) == timed and ("µs" in axis.title.text) == timed
        drawn = [trace for fig in (compared, hops) for trace in fig.data if trace.type == "bar"]
        assert all(("µs" in bar.hovertemplate) == timed for bar in drawn)
        assert any("µs" in text for text in compared.data[-1].text) == (near in shown)
        assert any("µs" in text for text in hops.data[-1].text) == timed
        cells = figures.summary_table(shown).data[0].cells.values
        assert [cell == "–" for cell in cells[5]] == [t is not near for t in shown]


def test_every_figure_of_modelled_times_says_how_far_they_are_off():
    trace = taking("persistent", 20)
    for figure in (
        figures.hop_times, figures.utilisation, figures.strategy_comparison, figures.gantt, figures.run_timeline,
        figures.sm_activity, figures.queue_depth, figures.queue_slots, figures.running_tasks, figures.sm_load,
        figures.task_cost, figures.summary_table,
    ):  # fmt: skip
        words = f"time within a factor of {run_error(trace).factor:.1f} of recorded runs"
        assert words in figure(trace).layout.title.text, figure.__name__
    assert "factor" not in figures.work_per_hop(trace).layout.title.text


def test_comparison_gives_ratios_and_lost_tasks():
    slow = dataclasses.replace(BLOCK, origin="measured", total_us=2 * PERSISTENT.total_us)
    fig = figures.strategy_comparison([slow, PERSISTENT])
    bars = by_name(fig)
    assert bars["sampling kernels"].x == pytest.approx([slow.kernel_us, PERSISTENT.kernel_us])
    labels = fig.data[-1].text
    assert "2.0× faster" in labels[1]
    assert "2 tasks lost" in labels[1]
    assert "×" not in labels[0]


def test_gantt_draws_every_task_once_in_its_hop():
    fig = ONE["gantt"]
    bars = by_name(fig)
    for hop in (0, 1):
        rows = PERSISTENT.tasks.hop == hop
        bar = bars[palette.hop_name(hop)]
        assert bar.base.tolist() == PERSISTENT.tasks.start_us[rows].tolist()
        assert bar.x.tolist() == PERSISTENT.tasks.duration_us[rows].tolist()
        assert bar.customdata[:, 0].tolist() == PERSISTENT.tasks.vertex[rows].tolist()
        assert bar.marker.color == palette.HOPS[hop]
    drawn = np.concatenate(
        [np.column_stack([b.y, b.base, b.base + b.x]) for b in fig.data if b.type == "bar"]
    )
    drawn = drawn[np.lexsort((drawn[:, 1], drawn[:, 0]))]
    same = np.diff(drawn[:, 0]) == 0
    assert (drawn[1:, 1] >= drawn[:-1, 2])[same].all()
    assert {"SM 0", "SM 1"} <= set(fig.layout.yaxis.ticktext)


def polygons(trace) -> np.ndarray:
    """float[n, 4]: x0, x1, y0, y1 of the rectangles in a trace of them."""
    x, y = np.reshape(trace.x, (-1, 6))[:, :4], np.reshape(trace.y, (-1, 6))[:, :4]
    return np.stack([x.min(1), x.max(1), y.min(1), y.max(1)], axis=1)


def test_gantt_draws_every_lost_task():
    fig = ONE["gantt"]
    left, never = by_name(fig)["lost in its slot: 1"], by_name(fig)["never queued: 1"]
    end = fig.layout.xaxis.range[1]
    assert polygons(left)[:, :2].tolist() == [[4.5, pytest.approx(end)]]
    assert polygons(never)[:, :2].tolist() == [[0, pytest.approx(end)]]
    assert "vertex 22" in left.text[0] and "claimed too early by block 1" in left.text[0]
    assert "vertex 23" in never.text[0] and "never queued" in never.text[0]
    assert "2 of 7 tasks lost (1 abandoned, 1 never queued)" in fig.layout.title.text
    assert fig.layout.yaxis.ticktext[-1] == "<b>2 lost</b>"
    assert "lost" not in figures.gantt(BLOCK).layout.title.text
    # All of them lie within the axes, none above another.
    drawn = np.concatenate([polygons(left), polygons(never)])
    bottom, top = fig.layout.yaxis.range
    assert drawn[:, 2].min() > top and drawn[:, 3].max() < bottom
    assert (np.diff(np.sort(drawn[:, 2])) > 0).all()


def losing(count: int, timed: int) -> SampleTrace:
    """``count`` lost tasks, the first ``timed`` of them in slots."""
    slot = np.where(np.arange(count) < timed, np.arange(count), -1)
    when = np.where(slot >= 0, 5 + slot / count, np.nan)
    lost = LostTable(np.ones(count), np.arange(100, 100 + count), slot, np.full(count, 1), when)
    return make_trace(lost=lost)


def test_what_was_lost_at_an_unknown_time_was_not_lost_before_the_first_task():
    """A GPU records which tasks are lost, and neither when nor in which slot."""
    trace = SampleTrace.load(resource_path("data/measured/traces/counterexample_persistent_paper.npz"))
    first = trace.tasks.start_us.min()
    assert first > 0 and np.isnan(trace.lost.enqueue_us).all()
    left = by_name(figures.gantt(trace))["lost in its slot: 5"]
    assert polygons(left)[:, 0] == pytest.approx(first)
    assert "slot not recorded" in left.text[0]
    said = [a.text for a in figures.run_timeline(trace).layout.annotations]
    assert "queue depth: tasks waiting besides the lost ones, at most 5" in said
    assert "peak 5 besides lost tasks" in figures.queue_depth(trace).layout.title.text
    exact = make_trace(completion="exact", lost=None)
    assert "besides" not in figures.queue_depth(exact).layout.title.text
    # Two seeds, then the five that the leaf's block had claimed before the hub's block filled them.
    slots = trace.queue_slots()
    assert np.flatnonzero(slots.lost).tolist() == [2, 3, 4, 5, 6] and slots.vertex[2:7].tolist() == [
        2,
        3,
        4,
        5,
        6,
    ]
    names = list(palette.SLOTS)
    assert names.index("lost") not in slot_states(trace, first / 2)
    assert (slot_states(trace, first) == names.index("lost")).sum() == 5
    grid, end = slot_raster(trace, trace.total_us, columns=100), trace.total_us
    assert ((grid == 1).sum(axis=0) == 5 * ((np.arange(100) + 0.5) * end / 100 >= first)).all()


def test_preprocessing_ends_before_the_first_kernel_of_a_hop():
    """Tasks of edge-bsp are recorded of the last of three kernels."""
    trace = SampleTrace.load(resource_path("data/measured/traces/arxiv-like_edge-bsp_reservoir.npz"))
    shapes = [s for s in figures.gantt(trace).layout.shapes if s.layer == "below"]
    for hop, shape in enumerate(shapes):
        last = trace.tasks.end_us[trace.tasks.hop == hop].max()
        assert shape.x1 == pytest.approx(last - trace.hops.kernel_us[hop])
    assert shapes[0].x0 == 0


def test_a_thousand_lost_tasks_are_a_thousand_bars():
    fig = figures.gantt(losing(1220, 700))
    assert len(polygons(by_name(fig)["lost in its slot: 700"])) == 700
    assert len(polygons(by_name(fig)["never queued: 520"])) == 520


def test_the_timeline_has_one_axis_of_time():
    fig = ONE["run_timeline"]
    assert [axis for axis in fig.layout if axis.startswith("xaxis")] == ["xaxis"]
    assert {t.xaxis for t in fig.data} <= {None, "x"}
    assert {t.yaxis for t in fig.data} == {None, "y2", "y3", "y4"}
    work = np.concatenate([polygons(t) for t in fig.data if t.type == "scatter" and t.fill == "toself"])
    tasks = PERSISTENT.tasks
    assert sorted(map(tuple, work[:, :2].tolist())) == sorted(zip(tasks.start_us, tasks.end_us, strict=True))
    depth = by_name(fig)["queue depth"]
    assert depth.y[:-1].tolist() == waiting_tasks(PERSISTENT).depth.tolist() and max(depth.y) == 3
    text = " ".join(a.text for a in fig.layout.annotations)
    assert "6 slots" in text and "1 lost, 1 never queued" in text
    assert fig.layout.title.text.startswith("Recorded counterexample<br>")
    exact = make_trace(completion="exact", lost=None)
    assert "counterexample" not in figures.run_timeline(exact).layout.title.text
    assert "5 slots of the queue" in " ".join(a.text for a in figures.run_timeline(exact).layout.annotations)


def test_a_timeline_without_a_queue_says_why():
    for fig in (figures.run_timeline(BLOCK), figures.queue_slots(BLOCK)):
        assert any("block-bsp has no queue:<br>a barrier" in a.text for a in fig.layout.annotations)
        assert not any(t.type == "heatmap" for t in fig.data)


SLOTS = SlotTable(
    hop=[0, 0, 1, 1], vertex=[10, 11, 20, 21], block=[0, 1, 0, 1], claim_us=[0, 1, 2, 3], write_us=[0, 0, 4, 4.5],
    read_us=[1, 1, 5, np.nan], end_us=[4, 6, 7, np.nan],
)  # fmt: skip


def test_slots_pass_through_their_states():
    trace = dataclasses.replace(PERSISTENT, slots=SLOTS)

    def states(at_us: float) -> list[str]:
        names = list(palette.SLOTS)
        return [names[state] for state in slot_states(trace, at_us)]

    assert states(0.5) == ["written, waiting", "written, waiting", "empty", "empty", "empty"]
    assert states(3.5) == ["being worked on"] * 2 + ["claimed, still empty"] * 2 + ["empty"]
    assert states(4.7) == ["done", "being worked on", "written, waiting", "lost", "empty"]
    assert states(trace.total_us) == ["done", "done", "done", "lost", "never queued"]
    names = [t.name for t in figures.queue_slots(trace, until_us=4.7).data if t.showlegend]
    assert names == ["empty: 1", "written, waiting: 1", "being worked on: 1", "done: 1", "lost: 1"]


def test_slots_over_time_agree_with_slots_at_a_time():
    trace = dataclasses.replace(PERSISTENT, slots=SLOTS)
    grid = slot_raster(trace, 10.0, columns=100)
    assert grid.shape == (5, 100)
    assert (grid[4] == 2).all(), "never queued"
    names = {
        -1: ("empty", "done"),
        0: ("claimed, still empty",),
        1: ("lost",),
        3: ("written, waiting",),
        4: ("being worked on",),
    }
    for column in range(100):
        states = slot_states(trace, (column + 0.5) / 10)[:4]
        for found, state in zip(grid[:4, column].tolist(), states, strict=True):
            found = found if found < 3 else 3 + (found - 3) % 2
            assert list(palette.SLOTS)[state] in names[found]


def test_lost_slots_show_however_many_there_are():
    grid = slot_raster(losing(1220, 700), 10.0, rows=50)
    assert grid.shape[0] == 50
    rows = (grid[:, -1] == 1).sum()
    assert abs(rows - 50 * 700 / 1225) <= 2
    assert (grid == 2).all(axis=1).sum() in (20, 21, 22)


def many_tasks(n: int = 20_000) -> SampleTrace:
    rng = np.random.default_rng(0)
    columns = {name: np.resize(c, n) for name, c in PERSISTENT.tasks.columns().items()}
    start = rng.random(n) * 100
    columns |= {"start_us": start, "end_us": start + 0.01, "enqueue_us": start, "sm": rng.integers(0, 132, n)}
    return dataclasses.replace(
        PERSISTENT, tasks=type(PERSISTENT.tasks)(**columns), num_sms=132, lost=LostTable(), total_us=101.0
    )


def test_gantt_of_many_tasks_uses_few_broken_lines():
    trace = many_tasks()
    fig = figures.gantt(trace, sms="all")
    lines = [t for t in fig.data if t.type == "scattergl"]
    assert len(lines) == 2
    assert sum(len(t.x) for t in lines) == 3 * 20_000
    assert all(np.isnan(t.x[2::3]).all() for t in lines)
    assert len(fig.data) <= 6


def test_gantt_chooses_busiest_and_least_busy_sm():
    trace = many_tasks()
    busy = np.bincount(trace.tasks.sm, weights=trace.tasks.duration_us, minlength=132)
    fig = figures.gantt(trace)
    shown = {int(label.split()[1]) for label in fig.layout.yaxis.ticktext}
    assert {int(busy.argmax()), int(busy.argmin())} <= shown
    assert "of 132 SMs shown" in fig.layout.title.text
    # Nothing is left out where the others have no work.
    quiet = dataclasses.replace(PERSISTENT, num_sms=9)
    assert "2 of 9 SMs have work" in figures.run_timeline(quiet).layout.title.text
    some = figures.gantt(trace, sms=[3, 7])
    assert some.layout.yaxis.ticktext == ("SM 3", "SM 7")
    assert sum(len(b.y) for b in some.data if b.type == "bar") == np.isin(trace.tasks.sm, [3, 7]).sum()


@pytest.mark.parametrize("sms", [[], [-1], [132], "most"])
def test_gantt_refuses_sms_that_are_not_there(sms):
    with pytest.raises(ValueError, match="sms must"):
        figures.gantt(many_tasks(50), sms=sms)


def test_sm_activity_conserves_task_time():
    heat = ONE["sm_activity"].data[0]
    width = heat.x[1] - heat.x[0]
    assert heat.z.shape == (2, 240)
    assert heat.z.sum(axis=1) * width == pytest.approx([9.0, 9.0], rel=0.01)


def test_queue_depth_shows_the_series_and_what_stays():
    line = ONE["queue_depth"].data[0]
    assert line.x[:-1].tolist() == PERSISTENT.queue.time_us.tolist()
    assert line.y[:-1].tolist() == PERSISTENT.queue.depth.tolist()
    assert line.line.shape == "hv"
    assert "peak 3 besides lost tasks" in ONE["queue_depth"].layout.title.text
    assert ONE["queue_depth"].layout.annotations[0].text == "1 lost tasks stay in the queue"


def test_long_queue_series_are_thinned_without_losing_the_peak():
    trace = many_tasks()
    depth = np.random.default_rng(1).integers(0, 50, 30_000)
    depth[12_345] = 999
    trace = dataclasses.replace(trace, queue=type(trace.queue)(np.linspace(0, 100, 30_000), depth))
    line = figures.queue_depth(trace).data[0]
    assert len(line.x) < 5_000
    assert line.y.max() == 999


def test_queue_depth_says_when_there_is_no_queue():
    fig = figures.queue_depth(BLOCK)
    assert len(fig.data) == 0
    assert "has no queue" in fig.layout.annotations[0].text


def test_running_tasks_stack_to_the_number_running():
    fig = ONE["running_tasks"]
    hops = [t for t in fig.data if t.stackgroup]
    assert len(hops) == 2
    width = PERSISTENT.total_us / 240
    assert sum(t.y.sum() for t in hops) * width == pytest.approx(PERSISTENT.tasks.duration_us.sum())
    assert by_name(fig)["at most 4 at once"].y == (4, 4)


def test_running_tasks_shade_the_time_in_which_the_host_is_at_work():
    shaded = [
        [(shape.x0, shape.x1) for shape in draw(BLOCK).layout.shapes if shape.layer == "below"]
        for draw in (figures.running_tasks, figures.run_timeline)
    ]
    assert shaded[0] == shaded[1] != []


def test_sm_load_and_task_cost_show_the_tasks():
    assert np.sum([b.y for b in ONE["sm_load"].data], axis=0).tolist() == [9.0, 9.0]
    points = [p for t in ONE["task_cost"].data for p in zip(t.customdata, t.x, t.y, strict=True)]
    assert sorted(points) == sorted([(10, 3, 3), (11, 1, 5), (20, 0.5, 2), (21, 5, 4), (10, 3, 4)])


def test_tasks_that_a_logarithmic_axis_cannot_show_are_counted():
    """A clock that did not move leaves a duration of 0, which the page drops without a word."""
    assert "no time" not in ONE["task_cost"].layout.title.text
    tasks = PERSISTENT.tasks
    ends = np.where(tasks.degree == 0, tasks.start_us, tasks.end_us)
    short = dataclasses.replace(PERSISTENT, tasks=dataclasses.replace(tasks, end_us=ends))
    fig = figures.task_cost(short)
    assert all((trace.y > 0).all() for trace in fig.data)
    assert "1 of 5 tasks took no time that was recorded, not drawn" in fig.layout.title.text
    recorded = lab.SampleTrace.load(resource_path("data/measured/traces/arxiv-like_edge-bsp_reservoir.npz"))
    assert "took no time that was recorded" in figures.task_cost(recorded).layout.title.text


def test_pointing_at_a_task_tells_its_own_degree():
    """Not the place at which a degree of 0 is drawn, which would be written as 1."""
    told = {(v, text) for t in ONE["task_cost"].data for v, text in zip(t.customdata, t.text, strict=True)}
    assert told == {(10, "3"), (11, "1"), (20, "0"), (21, "5")}
    assert all("in-degree %{text}<br>" in t.hovertemplate for t in ONE["task_cost"].data)


def test_summary_table_has_the_numbers():
    cells = figures.summary_table([PERSISTENT, BLOCK]).data[0].cells.values
    assert list(cells[0]) == ["persistent (measured)", "block-bsp (modelled)"]
    assert list(cells[1]) == ["5", "5"]
    assert list(cells[-1]) == ["2", "–"]


def test_model_over_measurement():
    fig = ONE["model_vs_measurement"]
    bars = {t.name: t for t in fig.data if t.type == "bar"}
    # By the tasks alone, on both sides: MODEL's hops say 4 and 6 us, as events around its kernels might.
    assert bars["modelled"].y == pytest.approx(hop_kernel_times(MODEL.tasks, 2, fused=True))
    assert bars["measured"].y == pytest.approx(hop_kernel_times(PERSISTENT.tasks, 2, fused=True))
    assert bars["modelled"].y.tolist() != [4.0, 6.0]
    begin = next(t for t in fig.data if t.type == "scatter").x
    assert begin[0] == pytest.approx(PERSISTENT.queue.time_us[0] - PERSISTENT.tasks.start_us.min())
    assert fig.layout.xaxis2.title.text == "time since the first task began (µs)"
    assert "whole run recorded 10 µs, modelled 10 µs (1.0 times)" in fig.layout.title.text
    assert "off by" not in fig.layout.annotations[0].text, "one definition of the model's error"
    assert "peak off by 0\u00a0%" in fig.layout.annotations[1].text
    with pytest.raises(ValueError, match="model must be a modelled"):
        figures.model_vs_measurement(PERSISTENT, PERSISTENT)
    with pytest.raises(ValueError, match="measured must be a measured"):
        figures.model_vs_measurement(MODEL, MODEL)


SHIPPED = sorted(resource_path("data/measured/traces").glob("*.npz"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_bar_of_a_measured_run_is_as_long_as_its_label_says(path):
    trace = SampleTrace.load(path)
    fig = figures.strategy_comparison(trace)
    bars = [t for t in fig.data if t.type == "bar"]
    assert sum(float(bar.x[0]) for bar in bars) == pytest.approx(trace.total_us)
    assert bars[-1].name == "rest of the run" and trace.total_us < fig.layout.xaxis.range[1]
    assert style.microseconds(trace.total_us) in fig.data[-1].text[0]
    modelled = by_name(figures.strategy_comparison(taking("bsp", BLOCK.preprocess_us + BLOCK.kernel_us)))
    assert "rest of the run" not in modelled


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_an_overlay_begins_with_the_first_task_and_names_one_error(path):
    trace = SampleTrace.load(path)
    fig = figures.model_vs_measurement(dataclasses.replace(trace, origin="modelled"), trace)
    span = trace.tasks.end_us.max() - trace.tasks.start_us.min()
    assert fig.layout.xaxis2.range == pytest.approx((0, 1.02 * span))
    assert "(1.0 times)" in fig.layout.title.text and "within a factor" not in fig.layout.title.text


def test_a_measured_trace_says_when_its_time_begins():
    launched = dataclasses.replace(PERSISTENT, meta={"times_since": "first launch"})
    assert launched.begins_at_launch and MODEL.begins_at_launch and not PERSISTENT.begins_at_launch
    assert figures.gantt(launched).layout.xaxis.title.text == "time since the first launch (µs)"
    assert figures.gantt(PERSISTENT).layout.xaxis.title.text == "time (µs)"


def drawn_ids(fig: go.Figure, prefix: str) -> set[int]:
    return {int(v) for t in fig.data if t.name.startswith(prefix) for v in (t.text or ())}


def test_drawing_grows_hop_by_hop_with_fixed_positions():
    where = figures.sample_layout(PICKS, TOY)
    seeds = figures.sample_drawing(PICKS, -1, graph=TOY, positions=where)
    first = figures.sample_drawing(PICKS, 0, graph=TOY, positions=where)
    whole = figures.sample_drawing(PICKS, graph=TOY, positions=where, label="sampled on CPU")
    assert drawn_ids(seeds, "seed") == drawn_ids(whole, "seed") == {3, 40}
    assert drawn_ids(first, "reached") == set(PICKS[0].neighbors.tolist()) - {3, 40}
    everything = {v for p in PICKS for v in (*p.frontier.tolist(), *p.neighbors.tolist())}
    assert drawn_ids(whole, "seed") | drawn_ids(whole, "reached") == everything
    assert "toy" in whole.layout.title.text
    assert "sampled on CPU" in whole.layout.title.text
    for fig in (seeds, first, whole):
        marks = by_name(fig)["seed"]
        assert list(zip(marks.x, marks.y, strict=True)) == [where[int(v)] for v in marks.text]
    assert len(seeds.data) == len(first.data) == len(whole.data)


def test_drawn_edges_are_the_sampled_ones_and_point_to_the_target():
    where = figures.sample_layout(PICKS)
    fig = figures.sample_drawing(PICKS, positions=where)
    at = {position: v for v, position in where.items()}
    edges = set()
    for t in fig.data:
        if t.name.startswith("sampled in"):
            for i in range(0, len(t.x), 3):
                edges.add((at[t.x[i], t.y[i]], at[t.x[i + 1], t.y[i + 1]]))
                assert t.marker.size[i + 1] > t.marker.size[i]
    expected = {
        (int(u), int(v))
        for p in PICKS
        for u, v in zip(p.neighbors, np.repeat(p.frontier, p.counts), strict=True)
    }
    assert edges == expected


def test_unsampled_neighbours_are_faint_and_not_part_of_the_sample():
    fig = figures.sample_drawing(PICKS, graph=TOY, max_unsampled=20)
    faint = drawn_ids(fig, "neighbour, not sampled")
    assert faint
    assert not faint & (drawn_ids(fig, "seed") | drawn_ids(fig, "reached"))
    assert len(by_name(fig)["not sampled"].x) <= 3 * 20


def test_lost_tasks_are_ringed():
    fig = figures.sample_drawing(PICKS, graph=TOY, lost=[(1, 40)])
    assert len(by_name(fig)["lost task"].x) == 1
    assert by_name(fig)["lost task"].marker.color == palette.LOST


def test_layout_is_deterministic_and_keeps_vertices_apart():
    one, two = figures.sample_layout(PICKS, TOY), figures.sample_layout(PICKS, TOY)
    assert one == two
    assert len(set(one.values())) == len(one)


def test_drawing_refuses_what_it_cannot_show():
    with pytest.raises(ValueError, match=r"hop must lie in -1\.\.1"):
        figures.sample_drawing(PICKS, 2)
    big = random_toy(0, 5000, 50_000).sample(range(300), (10,))
    with pytest.raises(ValueError, match="at most 400 vertices"):
        figures.sample_drawing(big)


def test_a_minibatch_can_be_drawn():
    fig = figures.sample_drawing(types.SimpleNamespace(picks=PICKS), graph=TOY)
    assert drawn_ids(fig, "seed") == {3, 40}


@pytest.mark.parametrize("name", ["gantt", "run_timeline", "queue_depth", "running_tasks", "sm_activity"])
def test_cursor_moves_without_touching_data(name):
    fig = getattr(figures, name)(PERSISTENT, until_us=3.0)
    before = fig.to_dict()["data"]
    others = [s for s in fig.layout.shapes if not (s.name or "").startswith("cursor")]
    figures.set_cursor(fig, 7.5)
    shapes = {s.name: s for s in fig.layout.shapes if (s.name or "").startswith("cursor")}
    assert (shapes["cursor"].x0, shapes["cursor"].x1) == (7.5, 7.5)
    assert (shapes["cursor-veil"].x0, shapes["cursor-veil"].x1) == (7.5, PERSISTENT.total_us)
    assert str(fig.to_dict()["data"]) == str(before)
    figures.set_cursor(fig, None)
    assert list(fig.layout.shapes) == others


@pytest.mark.parametrize("kind", [go.Figure, go.FigureWidget])
@pytest.mark.parametrize(
    "first, second", [("work_per_hop", "hop_times"), ("queue_depth", "gantt"), ("gantt", "sm_load")]
)
def test_update_makes_a_figure_equal_to_the_new_one(kind, first, second):
    widget = kind(ONE[first])
    for target in (
        ONE[second],
        ONE[first],
        figures.work_per_hop([PERSISTENT, BLOCK]),
        figures.work_per_hop(BLOCK),
    ):
        figures.update_figure(widget, target)
        shown, wanted = go.Figure(widget.to_dict()).to_plotly_json(), go.Figure(target).to_plotly_json()
        for trace in shown["data"]:
            trace.pop("uid", None)
        assert len(shown["data"]) == len(wanted["data"])
        assert str(shown["layout"]) == str(wanted["layout"]) or clean(shown["layout"]) == clean(
            wanted["layout"]
        )
        for one, two in zip(shown["data"], wanted["data"], strict=True):
            assert clean(one) == clean(two)


def clean(value):
    """Nested plain data without empty parts, so that an unset property equals a missing one."""
    if isinstance(value, dict):
        parts = {k: clean(v) for k, v in value.items()}
        return {k: v for k, v in sorted(parts.items()) if v not in (None, {}, [])}
    if isinstance(value, (list, tuple)):
        return [clean(v) for v in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def test_update_in_place_keeps_the_trace_objects():
    widget = go.FigureWidget(figures.work_per_hop(BLOCK))
    before = [trace.uid for trace in widget.data]
    figures.update_figure(widget, figures.work_per_hop(PERSISTENT))
    assert [trace.uid for trace in widget.data] == before


def test_empty_figure_says_why():
    fig = figures.empty_figure("Queue", "nothing was traced")
    assert fig.layout.annotations[0].text == "nothing was traced"


def test_colours():
    assert len(set(palette.HOPS)) == len(palette.HOPS)
    assert palette.LOST not in palette.HOPS
    assert palette.hop_color(0) == palette.hop_color(len(palette.HOPS))
    assert len({palette.sm_color(sm, 132) for sm in range(132)}) > 100
    assert palette.translucent("#0072B2", 0.5) == "rgba(0, 114, 178, 0.5)"
    assert palette.strategy_color("unheard of") == palette.MUTED


def test_plotly_is_loaded_by_the_first_figure_only():
    import subprocess
    import sys

    code = (
        "import sys, gnnsample_lab.traces, gnnsample_lab.figures as f; assert 'plotly' not in sys.modules; "
        "assert 'pandas' not in sys.modules; f.gantt; assert 'plotly' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_long_ids_stand_above_their_vertices():
    from types import SimpleNamespace

    for ids in ([7, 123], [7, 1234]):
        picks = [
            SimpleNamespace(frontier=np.array(ids), counts=np.array([1, 1]), neighbors=np.array([99, 8]))
        ]
        inside = max(ids) < 1000
        for trace in figures.sample_drawing(picks).data:
            if trace.mode == "markers+text" and trace.text:
                # Of one look: where one id is too long for its vertex, vertices are small and all ids stand above.
                assert set(trace.textposition) <= (
                    {"middle center"} if inside else {"top center", "bottom center"}
                )
                assert inside or set(trace.textfont.color) == {palette.INK}
                assert trace.marker.size == pytest.approx(25 if inside else 16, abs=2)


def test_an_id_stands_where_no_other_vertex_is():
    from types import SimpleNamespace

    # Vertex 5000 lies close above 4000, and 6000 far below.
    picks = [
        SimpleNamespace(
            frontier=np.array([4000]), counts=np.array([2]), neighbors=np.array([5000, 6000]), num_edges=2
        )
    ]
    where = {4000: (0.0, 0.0), 5000: (0.0, 0.08), 6000: (0.0, -1.0)}
    side = {}
    for trace in figures.sample_drawing(picks, positions=where).data:
        if trace.mode == "markers+text":
            side |= dict(zip(trace.text, trace.textposition, strict=True))
    assert side == {"4000": "bottom center", "5000": "top center", "6000": "top center"}


def test_time_axes_end_soon_after_the_last_task():
    long = dataclasses.replace(PERSISTENT, total_us=10 * PERSISTENT.total_us)
    last = float(PERSISTENT.tasks.end_us.max())
    for draw in (figures.gantt, figures.queue_depth, figures.running_tasks):
        assert draw(PERSISTENT).layout.xaxis.range[1] == PERSISTENT.total_us
        assert draw(long).layout.xaxis.range[1] == pytest.approx(1.1 * last)
    assert "whole run 100 µs" in figures.gantt(long).layout.title.text


def test_vertices_of_a_drawing_do_not_lie_on_each_other():
    where = np.array(list(figures.sample_layout(PICKS, TOY, max_unsampled=30).values()))
    # As a narrow panel shows them, in pixels; a disc with a long id above it is 16 wide.
    at = (where - where.min(axis=0)) / np.ptp(where, axis=0) * (500, 260)
    distance = np.hypot(*(at[:, None] - at).transpose(2, 0, 1)) + 1e9 * np.eye(len(at))
    assert distance.min() > 16


def test_costs_of_two_rules_stand_on_the_same_axes():
    quick = dataclasses.replace(PERSISTENT, pick="floyd")
    quick.tasks.end_us[:] = quick.tasks.start_us + 0.9 * quick.tasks.duration_us
    one, two = figures.task_cost(PERSISTENT), figures.task_cost(quick)
    assert one.layout.yaxis.range == two.layout.yaxis.range and one.layout.yaxis.dtick == 1
    assert "floyd" in two.layout.title.text.split("<br>")[0]


def test_no_axis_of_a_timeline_is_left_to_the_page():
    # A page keeps the range of an axis that is not given: of a run without a queue, for the depth of the next one's.
    for trace in (PERSISTENT, BLOCK):
        fig = figures.run_timeline(trace)
        assert all(axis.range is not None for axis in (*fig.select_xaxes(), *fig.select_yaxes()))
    deep = figures.run_timeline(PERSISTENT).layout.yaxis3.range
    assert deep[0] == 0 and deep[1] > waiting_tasks(PERSISTENT).depth.max()


def test_few_tasks_are_counted_by_whole_ticks():
    """A tick at a half would be labelled as its neighbour is: 0, 1, 1."""
    alone = lab.Graph.from_edges([], [], num_nodes=1, name="alone")
    trace = lab.NeighborSampler(alone, [1], strategy="persistent", device="cpu", trace=True).sample([0]).trace
    layout = figures.run_timeline(trace).layout
    for axis in (layout.yaxis2, layout.yaxis3, layout.yaxis4):
        assert np.ptp(axis.range) <= 1.05 and axis.dtick == 1 and axis.tickformat == ",~d"
    few = dataclasses.replace(trace, meta={**trace.meta, "resident_workers": 4})
    for one in (figures.queue_depth(few), figures.running_tasks(few)):
        assert one.layout.yaxis.dtick == 1 and one.layout.yaxis.tickformat == ",~d"
    # With many the page chooses.
    assert figures.run_timeline(PERSISTENT).layout.yaxis3.dtick is None
    assert "dtick" not in style.whole_ticks(500)


def test_the_first_hops_are_not_hidden_by_the_last():
    points = figures.task_cost(PERSISTENT).data
    assert [trace.name for trace in points] == ["hop 2", "hop 1"], "what is drawn last lies on top"
    assert [trace.name for trace in sorted(points, key=lambda t: t.legendrank)] == ["hop 1", "hop 2"]


def test_every_axis_writes_thousands_in_the_same_way():
    """4,096 and 100,000; not 4096 on one axis and 100k on another."""
    axes = style.template().layout.xaxis, style.template().layout.yaxis
    assert all(axis.separatethousands and axis.exponentformat == "none" for axis in axes)
    for path in sorted(pathlib.Path(style.__file__).parent.glob("*.py")):
        for found in re.findall(r'tickformat"?[=:] ?"([^"]*)"', path.read_text(encoding="utf-8")):
            assert found.startswith(",") and "s" not in found, f"{path.name}: {found}"
