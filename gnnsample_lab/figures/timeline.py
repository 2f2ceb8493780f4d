"""Who ran what when: tasks on the lanes of SMs over time, and the activity of all SMs at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab.figures import palette
from gnnsample_lab.figures.activity import (
    first_start,
    host_spans,
    no_queue,
    thinned,
    time_axis,
    when_complete,
)
from gnnsample_lab.figures.sketch import Sketch, drawn
from gnnsample_lab.figures.style import describe, finish, set_cursor, time_range, whole_ticks
from gnnsample_lab.figures.untimed import with_times_only_if_known
from gnnsample_lab.readable import noun
from gnnsample_lab.traces import (
    SampleTrace,
    SlotTable,
    assign_lanes,
    busy_us_per_sm,
    busy_workers,
    queue_stats,
    resident_workers,
    waiting_tasks,
)
from gnnsample_lab.traces.analysis import SHARING_STRATEGIES

# Rows that fit a figure with lanes still apart, and bars that a browser draws at once; beyond it, WebGL
# lines.
_MAX_ROWS = 112
_MAX_BARS = 6000


def _choose_sms(
    trace: SampleTrace, lanes: np.ndarray, sms: Sequence[int] | str | None, most: int = _MAX_ROWS
) -> np.ndarray:
    if isinstance(sms, str):
        if sms != "all":
            raise ValueError(f"sms must be a list of SM numbers, 'all' or None (got {sms!r})")
        return np.arange(trace.num_sms)
    if sms is not None:
        chosen = np.unique(np.asarray(sms, dtype=np.int64))
        if len(chosen) == 0 or chosen[0] < 0 or chosen[-1] >= trace.num_sms:
            raise ValueError(f"sms must name SMs in 0..{trace.num_sms - 1} (got {list(sms)})")
        return chosen
    busy = busy_us_per_sm(trace)
    used = np.flatnonzero(busy > 0)
    if len(used) == 0:
        return np.arange(1)
    per_sm = int(lanes.max()) + 1
    count = min(len(used), max(1, most // per_sm))
    by_load = used[np.argsort(busy[used], kind="stable")]
    # From the busiest to the least busy in equal steps, so that imbalance is in the picture.
    return np.sort(by_load[np.unique(np.linspace(len(by_load) - 1, 0, count).round().astype(np.int64))])


class _Rows:
    """Rows of a timeline: the multiprocessors shown from top to bottom, with a row for each of their lanes.

    Attributes:
        sms: multiprocessors shown. number: of rows, gaps between multiprocessors (``gap``) included.
        row: of each task, meaningful where ``shown``.
    """

    def __init__(self, trace: SampleTrace, sms: Sequence[int] | str | None, most: int) -> None:
        tasks, lanes = trace.tasks, assign_lanes(trace)
        self.sms = _choose_sms(trace, lanes, sms, most)
        self._height = np.zeros(trace.num_sms, dtype=np.int64)
        if len(tasks):
            np.maximum.at(self._height, tasks.sm.astype(np.int64), lanes + 1)
        # A gap of one row sets multiprocessors with several lanes apart; number 0 is at the top.
        self.gap = 1 if len(self.sms) > 1 else 0
        self._first = np.full(trace.num_sms, -1, dtype=np.int64)
        self._first[self.sms] = np.concatenate([[0], np.cumsum(self._height[self.sms] + self.gap)[:-1]])
        self.number = int((self._height[self.sms] + self.gap).sum())
        self.shown = self._first[tasks.sm] >= 0 if len(tasks) else np.zeros(0, dtype=bool)
        self.row = self._first[tasks.sm] + lanes

    def labels(self, most: int) -> tuple[list[float], list[str]]:
        """Places and names of at most about ``most`` multiprocessors."""
        middle = self._first[self.sms] + (self._height[self.sms] - 1) / 2
        keep = slice(None, None, max(1, -(-len(self.sms) // max(most, 1))))
        return middle[keep].tolist(), [f"SM {sm}" for sm in self.sms[keep]]


def _rows(trace: SampleTrace, sms: Sequence[int] | str | None, most: int = _MAX_ROWS) -> _Rows:
    return _Rows(trace, sms, most)


def _sms_note(trace: SampleTrace, rows: _Rows) -> list[str]:
    """How many multiprocessors a timeline leaves out, or, where it leaves out those without a task, how many work."""
    shown, used = len(rows.sms), int((busy_us_per_sm(trace) > 0).sum())
    if shown < used:
        return [f"{shown} of {trace.num_sms} SMs shown"]
    return [f"{used} of {trace.num_sms} SMs have work"] if shown < trace.num_sms else []


def boxes(x0: np.ndarray, x1: np.ndarray, y0: np.ndarray, y1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rectangles as one polygon with gaps, float32[6 n] each: thousands of them are one path in the page."""
    nan = np.full(len(x0), np.nan)
    x = np.stack([x0, x1, x1, x0, x0, nan], axis=1).astype(np.float32)
    y = np.stack([y0, y0, y1, y1, y0, nan], axis=1).astype(np.float32)
    return x.ravel(), y.ravel()


# The rows of subplots of `run_timeline` from top to bottom, as shares of the height.
_LANES, _SLOTS, _DEPTH, _RUNNING = (0.63, 1.0), (0.365, 0.56), (0.185, 0.295), (0.0, 0.115)
_FEW = 3000
"""Tasks up to which a timeline tells about each when it is pointed at."""


@drawn
@with_times_only_if_known
def run_timeline(
    trace: SampleTrace, *, until_us: float | None = None, sms: Sequence[int] | str | None = None
) -> go.Figure:
    """A run on one axis of time: multiprocessors, slots of the queue, its depth, and tasks at work.

    A slot is a thin bar at the height of its number: pale from the time at which its task was written until a block
    began with it, in the colour of the hop until it was done, and before that grey where a block had claimed the slot
    and waited for it. A task that was lost stays in its slot to the end. A strategy without a queue has neither slots
    nor a depth, and the figure says why.

    Args:
        trace: the trace. until_us: draws a time cursor there and veils what comes later (see ``set_cursor``).
        sms: as for :func:`gantt`.

    Raises:
        ValueError: for SM numbers that the device does not have.
    """
    fig = Sketch()
    rows = _rows(trace, sms, most=56)
    end = time_range(trace)[1]
    for hop in range(len(trace.fanouts)):
        _work(fig, trace, rows, np.flatnonzero(rows.shown & (trace.tasks.hop == hop)), hop)
    slots = trace.queue_slots()
    axis = {"showgrid": False, "automargin": True, "anchor": "x", "ticks": "outside"}
    ticks, names = rows.labels(6)
    axes: dict[str, dict[str, Any]] = {
        "yaxis": {
            "domain": _LANES, "range": [rows.number - rows.gap - 0.4, -0.6], "tickvals": ticks, "ticktext": names,
            **axis,
        },
        "yaxis2": {"domain": _SLOTS, "nticks": 4, **axis},
        "yaxis3": {"domain": _DEPTH, "nticks": 3, **axis},
        "yaxis4": {"domain": _RUNNING, "nticks": 3, **axis},
    }  # fmt: skip
    if len(trace.queue):
        _slots(fig, trace, end)
        axes["yaxis2"]["range"] = [-0.5, max(len(slots) + int((~trace.lost.abandoned).sum()), 1) - 0.5]
        waiting = waiting_tasks(trace)
        time, depth = thinned(waiting.time_us, waiting.depth)
        # Ranges are given, never left to the page: it would keep that of a run without a queue.
        axes["yaxis3"]["range"] = [0, 1.05 * max(queue_stats(trace).peak, 1)]
        fig.add_scatter(
            name="queue depth", x=np.append(time, end), y=np.append(depth, depth[-1]), yaxis="y3", mode="lines",
            line={"shape": "hv", "color": palette.INK, "width": 1.4}, fill="tozeroy",
            fillcolor=palette.translucent(palette.MUTED, 0.25), showlegend=False,
            hovertemplate="%{y:,} tasks waiting at %{x:,.1f} µs<extra></extra>",
        )  # fmt: skip
    else:
        for domain, name in ((_SLOTS, "yaxis2"), (_DEPTH, "yaxis3")):
            axes[name] |= {"range": [0, 1], "showticklabels": False, "ticks": "", "showline": False}
            fig.add_annotation(
                text=no_queue(trace) if name == "yaxis2" else "no queue, no depth", x=0.5, y=sum(domain) / 2,
                xref="paper", yref="paper", showarrow=False, font={"color": palette.MUTED, "size": 12},
            )  # fmt: skip
        fig.add_scatter(x=[0], y=[0], yaxis="y2", mode="none", showlegend=False, hoverinfo="skip")
        fig.add_scatter(x=[0], y=[0], yaxis="y3", mode="none", showlegend=False, hoverinfo="skip")
    axes["yaxis4"]["range"] = [0, 1.05 * max(_running(fig, trace), 1.0)]
    for name in ("yaxis2", "yaxis3", "yaxis4"):
        low, high = axes[name]["range"]
        axes[name] |= whole_ticks(high - low, few=2.2)  # with room for three labels, not for ten
    host_spans(fig, trace)
    parts = {
        "multiprocessors": _LANES,
        _slots_heading(trace, slots): _SLOTS,
        _depth_heading(trace): _DEPTH,
        _running_heading(trace): _RUNNING,
    }
    for text, (_, top) in parts.items():
        fig.add_annotation(
            text=text, x=0, y=top, xref="paper", yref="paper", xanchor="left", yanchor="bottom", showarrow=False,
            font={"size": 12},
        )  # fmt: skip
    notes = _sms_note(trace, rows)
    if end < trace.total_us:
        notes.append(when_complete(trace))
    title = f"One run of {trace.strategy}"
    if trace.origin == "measured" and len(trace.lost):
        title = "Recorded counterexample"
        notes = [trace.strategy, *notes]
    if trace.completion == "paper":
        notes.append("completion as published")
    finish(
        fig, title, describe(trace, *notes), height=540, meta={"end_us": trace.total_us}, hovermode="closest",
        margin={"t": 96, "b": 84}, legend={"y": 0, "yref": "container", "yanchor": "bottom", "font": {"size": 12}},
        **axes,
    )  # fmt: skip
    fig.update_xaxes(title_text=time_axis(trace), range=time_range(trace), anchor="y4")
    return fig if until_us is None else set_cursor(fig, until_us)


def _slots_heading(trace: SampleTrace, slots: SlotTable) -> str:
    if not len(trace.queue):
        return "slots of the queue"
    left = int(slots.lost.sum())
    never = int((~trace.lost.abandoned).sum())
    if not len(trace.lost):
        return f"{len(slots):,} {noun(len(slots), 'slot')} of the queue, by number"
    lost = f"{left:,} lost" + (f", {never:,} never queued" if never else "")
    return f'{len(slots):,} slots: <span style="color:{palette.LOST}"><b>{lost}</b></span>'


def _depth_heading(trace: SampleTrace) -> str:
    if not len(trace.queue):
        return "queue depth"
    stats = queue_stats(trace)
    kept = " besides the lost ones" if trace.lost.abandoned.any() else ""
    return f"queue depth: tasks waiting{kept}, at most {stats.peak:,}"


def _running_heading(trace: SampleTrace) -> str:
    if trace.strategy in SHARING_STRATEGIES:
        return "tasks at work (they share warps: no limit to their number)"
    return f"tasks at work (at most {resident_workers(trace):,} at once)"


def _work(fig: Sketch, trace: SampleTrace, rows: _Rows, some: np.ndarray, hop: int) -> None:
    tasks = trace.tasks
    x, y = boxes(tasks.start_us[some], tasks.end_us[some], rows.row[some] - 0.45, rows.row[some] + 0.45)
    told: dict[str, Any] = {"hoverinfo": "skip"}
    if len(tasks) <= _FEW:
        columns = (
            tasks.vertex,
            tasks.degree,
            np.round(tasks.start_us - tasks.enqueue_us, 2),
            np.round(tasks.duration_us, 2),
        )
        told = {
            "customdata": np.repeat(np.stack([c[some] for c in columns], axis=1), 6, axis=0),
            "hovertemplate": f"<b>{palette.hop_name(hop)}</b>, vertex %{{customdata[0]:d}}, in-degree "
            "%{customdata[1]:,d}<br>waited %{customdata[2]:,.1f} µs, ran %{customdata[3]:,.2f} µs<extra></extra>",
        }
    fig.add_scatter(
        name=palette.hop_name(hop), legendgroup=palette.hop_name(hop), x=x, y=y, mode="none", fill="toself",
        fillcolor=palette.hop_color(hop), hoveron="points", **told,
    )  # fmt: skip


def slot_raster(trace: SampleTrace, end_us: float, *, rows: int = 150, columns: int = 320) -> np.ndarray:
    """int64[at most rows, columns]: what the slots of the queue are at, over time; however many slots there are.

    A row is a slot, or, where there are more slots than rows, the one in the middle of as many. A row with a lost slot
    is lost from the time at which that was written. Tasks that were never queued come after the slots.

    Returns:
        -1 for a slot that nobody has touched, 0 claimed and still empty, 1 lost, 2 never queued, and of hop h
        ``3 + 2 h`` written and waiting, ``4 + 2 h`` being worked on.
    """
    slots = trace.queue_slots()
    total = len(slots) + int((~trace.lost.abandoned).sum())
    number = min(rows, total)
    place = np.arange(total) * number // max(total, 1)
    middle = (
        np.searchsorted(place, np.arange(number)) + np.searchsorted(place, np.arange(number), "right")
    ) // 2
    shown = middle[middle < len(slots)]
    at = (np.arange(columns) + 0.5) * end_us / columns
    grid = np.full((number, columns), 2)
    written = np.where(np.isnan(slots.write_us), first_start(trace), slots.write_us)
    upper = grid[: len(shown)]
    with np.errstate(invalid="ignore"):
        upper[:] = np.where(slots.claim_us[shown, None] <= at, 0, -1)
        for since, state in ((written, 3), (slots.read_us, 4)):
            column = (state + 2 * slots.hop[shown].astype(np.int64))[:, None]
            upper[:] = np.where(since[shown, None] <= at, column, upper)
        upper[:] = np.where(slots.end_us[shown, None] <= at, -1, upper)
    lost = np.flatnonzero(slots.lost)
    since = np.full(number, np.inf)
    np.minimum.at(since, place[lost], np.minimum(written[lost], 0.99 * end_us))
    return np.where(since[:, None] <= at, 1, grid)


def _slots(fig: Sketch, trace: SampleTrace, end: float) -> None:
    grid = slot_raster(trace, end)
    total = len(trace.queue_slots()) + int((~trace.lost.abandoned).sum())
    claimed, never = (
        palette.SLOTS["claimed, still empty"],
        palette.translucent(palette.SLOTS["never queued"], 0.6),
    )
    colors = [palette.translucent(claimed, 0.5), palette.LOST, never]
    for hop in range(len(trace.fanouts)):
        colors += [palette.translucent(palette.hop_color(hop), 0.35), palette.hop_color(hop)]
    fig.add_heatmap(
        name="slots",
        z=np.where(grid < 0, np.nan, grid).astype(np.float32),
        x0=end / grid.shape[1] / 2, dx=end / grid.shape[1], y0=total / len(grid) / 2 - 0.5, dy=total / len(grid),
        yaxis="y2", zmin=-0.5, zmax=len(colors) - 0.5, showscale=False, hoverinfo="skip", ygap=1 if total <= 48 else 0,
        colorscale=[[edge / len(colors), color] for i, color in enumerate(colors) for edge in (i, i + 1)],
    )  # fmt: skip
    if ((grid >= 3) & (grid % 2 == 1)).any():
        marker = {"symbol": "square", "size": 11, "color": colors[3]}
        fig.add_scatter(name="pale: waiting in its slot", x=[None], y=[None], mode="markers", marker=marker)
    for state, (name, color) in enumerate(zip(("claimed", "lost", "never queued"), colors, strict=False)):
        if (grid == state).any():
            marker = {"symbol": "square", "size": 11, "color": color}
            fig.add_scatter(name=name, x=[None], y=[None], mode="markers", marker=marker)


def _running(fig: Sketch, trace: SampleTrace) -> float:
    """Draws the tasks at work; returns how many there are at most."""
    total = np.zeros(200)
    for hop in range(len(trace.fanouts)):
        edges, running = busy_workers(trace, bins=200, hop=hop)
        total += running
        fig.add_scatter(
            name=palette.hop_name(hop), legendgroup=palette.hop_name(hop), showlegend=False,
            x=(edges[:-1] + edges[1:]) / 2, y=running.astype(np.float32), yaxis="y4", mode="lines", stackgroup="hops",
            line={"width": 0, "color": palette.hop_color(hop), "shape": "hvh"}, fillcolor=palette.hop_color(hop),
            hovertemplate="%{y:,.0f} tasks of " + palette.hop_name(hop) + "<extra></extra>",
        )  # fmt: skip
    return float(total.max())


@drawn
@with_times_only_if_known
def gantt(
    trace: SampleTrace, *, until_us: float | None = None, sms: Sequence[int] | str | None = None
) -> go.Figure:
    """Tasks as bars on the lanes of their SM, coloured by hop; lost tasks in a row of their own.

    Args:
        trace: the trace. until_us: draws a time cursor there and veils what comes later (see ``set_cursor``).
        sms: SM numbers, "all", or None for as many as stay readable, from the busiest to the least busy.

    Raises:
        ValueError: for SM numbers that the device does not have.
    """
    tasks = trace.tasks
    rows = _rows(trace, sms)
    chosen, row, shown, num_rows, gap = rows.sms, rows.row, rows.shown, rows.number, rows.gap
    fig = Sketch()
    draw = _bars if int(shown.sum()) <= _MAX_BARS else _lines
    for hop in range(len(trace.fanouts)):
        draw(fig, trace, row, np.flatnonzero(shown & (tasks.hop == hop)), hop, num_rows)
    has_lost = len(trace.lost) > 0
    # A row for each lost task as far as there is room; more share it.
    lost_row, lost_rows = num_rows + max(1, num_rows // 24), min(len(trace.lost), max(4, num_rows // 3))
    _lost_bars(fig, trace, lost_row, lost_rows)
    rule = ", completion as published" if trace.completion == "paper" else ""
    height = int(np.clip(200 + 5.5 * (num_rows + lost_rows), 360, 860))
    notes = _sms_note(trace, rows)
    if time_range(trace)[1] < trace.total_us:
        notes.append(when_complete(trace))
    if has_lost:
        notes.append(_lost_note(trace))
    finish(
        fig,
        f"Who runs what when: {trace.strategy}{rule}",
        describe(trace, *notes),
        height=height,
        barmode="overlay",
        bargap=0.0,
        meta={"end_us": trace.total_us},
        showlegend=True,
        hovermode="closest",
    )
    # Every label of more than 40 would overlap the next one.
    ticks, names = rows.labels(len(chosen) if len(chosen) <= 40 else 24)
    if has_lost:
        ticks, names = [*ticks, lost_row + (lost_rows - 1) / 2], [*names, f"<b>{len(trace.lost):,} lost</b>"]
    bottom = lost_row + lost_rows if has_lost else num_rows - gap - 0.5
    fig.update_yaxes(
        tickvals=ticks, ticktext=names, range=[bottom, -0.6], showgrid=False, ticks="", title_text=None
    )
    fig.update_xaxes(title_text=time_axis(trace), range=time_range(trace))
    host_spans(fig, trace)
    return fig if until_us is None else set_cursor(fig, until_us)


def _details(trace: SampleTrace, rows: np.ndarray) -> np.ndarray:
    tasks = trace.tasks
    return np.column_stack(
        [
            tasks.vertex[rows],
            tasks.degree[rows],
            tasks.num_picks[rows],
            tasks.block[rows],
            np.round(tasks.start_us[rows] - tasks.enqueue_us[rows], 2),
            np.round(tasks.start_us[rows], 2),
            np.round(tasks.duration_us[rows], 2),
        ]
    ).astype(np.float64)


def _hover(hop: int) -> str:
    return (
        f"<b>{palette.hop_name(hop)}</b>, vertex %{{customdata[0]:d}}<br>in-degree %{{customdata[1]:,d}}, "
        "%{customdata[2]} picks<br>block %{customdata[3]:d}, waited %{customdata[4]:,.1f} µs<br>"
        "starts at %{customdata[5]:,.1f} µs, runs %{customdata[6]:,.2f} µs<extra></extra>"
    )


def _bars(
    fig: Sketch, trace: SampleTrace, row: np.ndarray, rows: np.ndarray, hop: int, num_rows: int
) -> None:
    tasks = trace.tasks
    fig.add_bar(
        name=palette.hop_name(hop),
        orientation="h",
        y=row[rows],
        base=tasks.start_us[rows],
        x=tasks.duration_us[rows],
        width=0.86,
        customdata=_details(trace, rows),
        hovertemplate=_hover(hop),
        marker={"color": palette.hop_color(hop), "line": {"width": 0.4, "color": "white"}},
    )


def _lines(
    fig: Sketch, trace: SampleTrace, row: np.ndarray, rows: np.ndarray, hop: int, num_rows: int
) -> None:
    """One WebGL line per hop, broken by NaN between tasks: tens of thousands of tasks stay quick."""
    tasks = trace.tasks
    x = np.full((len(rows), 3), np.nan, dtype=np.float32)
    y = np.full((len(rows), 3), np.nan, dtype=np.float32)
    x[:, 0], x[:, 1] = tasks.start_us[rows], tasks.end_us[rows]
    y[:, 0] = y[:, 1] = row[rows]
    fig.add_scattergl(
        name=palette.hop_name(hop),
        x=x.ravel(),
        y=y.ravel(),
        mode="lines",
        connectgaps=False,
        line={"color": palette.hop_color(hop), "width": float(np.clip(560 / max(num_rows, 1), 1.0, 5.0))},
        hovertemplate=palette.hop_name(hop) + " at %{x:,.1f} µs<extra></extra>",
    )


def _lost_note(trace: SampleTrace) -> str:
    abandoned = int(trace.lost.abandoned.sum())
    total = len(trace.lost) + len(trace.tasks)
    note = f"{len(trace.lost):,} of {total:,} tasks lost"
    unreached = len(trace.lost) - abandoned
    return note + (f" ({abandoned:,} abandoned, {unreached:,} never queued)" if unreached else "")


def _lost_bars(fig: Sketch, trace: SampleTrace, row: float, rows: int) -> None:
    """A bar for each lost task, from the time at which it was queued to the end, for it was never taken.

    Where that time was not recorded, it is that of the first task: none is lost before. Tasks that were never queued
    are paler bars over the whole run.
    """
    lost = trace.lost
    timed = np.isfinite(lost.enqueue_us)
    each = rows / max(len(lost), 1)
    order = np.lexsort((np.arange(len(lost)), np.where(timed, lost.enqueue_us, np.inf), ~lost.abandoned))
    place = np.empty(len(lost))
    place[order] = row - 0.5 + each * np.arange(len(lost))
    end = time_range(trace)[1]
    names = [
        f"<b>lost</b>: {palette.hop_name(int(lost.hop[i]))}, vertex {lost.vertex[i]}<br>"
        + (
            "never queued"
            if lost.slot[i] < 0
            else f"slot {lost.slot[i]}"
            if timed[i]
            else "slot not recorded"
        )
        + (f", claimed too early by block {lost.block[i]}" if lost.block[i] >= 0 else "")
        for i in range(len(lost))
    ]
    for name, some, alpha in (
        ("lost in its slot", lost.abandoned, 0.9),
        ("never queued", ~lost.abandoned, 0.35),
    ):
        chosen = np.flatnonzero(some)
        start = np.where(timed[chosen], lost.enqueue_us[chosen], first_start(trace) * lost.abandoned[chosen])
        x, y = boxes(
            np.minimum(start, 0.97 * end),
            np.full(len(chosen), end),
            place[chosen],
            place[chosen] + 0.85 * each,
        )
        fig.add_scatter(
            name=f"{name}: {len(chosen):,}",
            x=x,
            y=y,
            text=np.repeat(np.array([names[i] for i in chosen], dtype=object), 6),
            hoveron="points",
            mode="none",
            fill="toself",
            fillcolor=palette.translucent(palette.LOST, alpha),
            hovertemplate="%{text}<extra></extra>",
            showlegend=len(chosen) > 0,
        )


@drawn
@with_times_only_if_known
def sm_activity(trace: SampleTrace, *, bins: int = 240, until_us: float | None = None) -> go.Figure:
    """Tasks running on every SM over time as a heat map: all SMs at a glance, idle ones pale.

    Args:
        bins: time bins. until_us: draws a time cursor there.
    """
    tasks, edges = trace.tasks, np.linspace(0.0, max(trace.total_us, 1e-9), bins + 1)
    width = edges[1] - edges[0]
    grid = np.zeros((trace.num_sms, bins + 1))
    sm = tasks.sm.astype(np.int64)
    # The overlap of a task with a bin is the difference of two ramps; each ramp touches two cells before a
    # running sum.
    for time, sign in ((tasks.start_us, 1.0), (tasks.end_us, -1.0)):
        position = np.clip(time / width, 0, bins)
        cell = np.minimum(position.astype(np.int64), bins - 1)
        part = position - cell
        np.add.at(grid, (sm, cell), sign * (1.0 - part))
        np.add.at(grid, (sm, cell + 1), sign * part)
    running = np.maximum(np.cumsum(grid, axis=1)[:, :bins], 0.0)
    fig = Sketch(
        go.Heatmap(
            x=(edges[:-1] + edges[1:]) / 2,
            y=np.arange(trace.num_sms),
            z=np.round(running, 2).astype(np.float32),
            colorscale=[[i / (len(palette.ACTIVITY) - 1), c] for i, c in enumerate(palette.ACTIVITY)],
            zmin=0,
            colorbar={"title": {"text": "tasks<br>running"}, "thickness": 14, "outlinewidth": 0},
            hovertemplate="SM %{y}<br>%{x:,.1f} µs<br>%{z:.1f} tasks running<extra></extra>",
        )
    )
    finish(
        fig,
        f"All SMs over time: {trace.strategy}",
        describe(trace),
        height=420,
        meta={"end_us": trace.total_us},
        margin={"t": 86},
    )
    fig.update_xaxes(title_text=time_axis(trace), range=[0, max(trace.total_us, 1e-9)], showgrid=False)
    fig.update_yaxes(title_text="streaming multiprocessor", autorange="reversed", showgrid=False)
    return fig if until_us is None else set_cursor(fig, until_us)
