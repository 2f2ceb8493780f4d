"""Who ran what when: tasks on the lanes of SMs over time, and the activity of all SMs at a glance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab.figures import palette
from gnnsample_lab.figures.activity import TIME_AXIS
from gnnsample_lab.figures.style import describe, finish, microseconds, set_cursor, time_range
from gnnsample_lab.traces import SampleTrace, assign_lanes, busy_us_per_sm

# Rows that fit a figure with lanes still apart, and bars that a browser draws at once; beyond it, WebGL
# lines.
_MAX_ROWS = 112
_MAX_BARS = 6000


def _choose_sms(trace: SampleTrace, lanes: np.ndarray, sms: Sequence[int] | str | None) -> np.ndarray:
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
    count = min(len(used), max(1, _MAX_ROWS // per_sm))
    by_load = used[np.argsort(busy[used], kind="stable")]
    # From the busiest to the least busy in equal steps, so that imbalance is in the picture.
    return np.sort(by_load[np.unique(np.linspace(len(by_load) - 1, 0, count).round().astype(np.int64))])


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
    tasks, lanes = trace.tasks, assign_lanes(trace)
    chosen = _choose_sms(trace, lanes, sms)
    height_of = np.zeros(trace.num_sms, dtype=np.int64)
    if len(tasks):
        np.maximum.at(height_of, tasks.sm.astype(np.int64), lanes + 1)
    # A gap of one row sets SMs apart; SM 0 is at the top.
    gap = 1 if len(chosen) > 1 else 0
    first_row = np.full(trace.num_sms, -1, dtype=np.int64)
    first_row[chosen] = np.concatenate([[0], np.cumsum(height_of[chosen] + gap)[:-1]])
    num_rows = int((height_of[chosen] + gap).sum())
    shown = first_row[tasks.sm] >= 0 if len(tasks) else np.zeros(0, dtype=bool)
    row = first_row[tasks.sm] + lanes
    fig = go.Figure()
    draw = _bars if int(shown.sum()) <= _MAX_BARS else _lines
    for hop in range(len(trace.fanouts)):
        draw(fig, trace, row, np.flatnonzero(shown & (tasks.hop == hop)), hop, num_rows)
    lost_row = num_rows + max(1, num_rows // 24)
    _lost_marks(fig, trace, lost_row)
    has_lost = len(trace.lost) > 0
    rule = ", completion as published" if trace.completion == "paper" else ""
    height = int(np.clip(200 + 5.5 * num_rows, 360, 860))
    notes = [f"{len(chosen)} of {trace.num_sms} SMs shown"] if len(chosen) < trace.num_sms else []
    if time_range(trace)[1] < trace.total_us:
        notes.append(f"result complete at {microseconds(trace.total_us)}")
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
    middle = first_row[chosen] + (height_of[chosen] - 1) / 2
    labels = [f"SM {sm}" for sm in chosen]
    if len(chosen) > 40:
        # Every label would overlap the next one.
        keep = range(0, len(chosen), -(-len(chosen) // 24))
        middle, labels = middle[list(keep)], [labels[i] for i in keep]
    ticks, names = middle.tolist(), labels
    if has_lost:
        ticks, names = [*ticks, lost_row], [*names, "<b>lost</b>"]
    bottom = lost_row + max(1.0, num_rows / 30) if has_lost else num_rows - gap - 0.5
    fig.update_yaxes(
        tickvals=ticks, ticktext=names, range=[bottom, -0.6], showgrid=False, ticks="", title_text=None
    )
    fig.update_xaxes(title_text=TIME_AXIS, range=time_range(trace))
    _host_spans(fig, trace)
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
    fig: go.Figure, trace: SampleTrace, row: np.ndarray, rows: np.ndarray, hop: int, num_rows: int
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
    fig: go.Figure, trace: SampleTrace, row: np.ndarray, rows: np.ndarray, hop: int, num_rows: int
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


def _lost_marks(fig: go.Figure, trace: SampleTrace, row: float) -> None:
    lost = trace.lost
    timed = np.flatnonzero(np.isfinite(lost.enqueue_us))
    names = [
        f"<b>lost</b>: {palette.hop_name(int(lost.hop[i]))}, vertex {lost.vertex[i]}<br>slot {lost.slot[i]}"
        + (f", claimed too early by block {lost.block[i]}" if lost.block[i] >= 0 else "")
        for i in timed
    ]
    fig.add_scatter(
        name="lost",
        mode="markers",
        x=lost.enqueue_us[timed],
        y=np.full(len(timed), float(row)),
        text=names,
        marker={"symbol": "x", "size": 9, "color": palette.LOST, "opacity": 0.7, "line": {"width": 0}},
        hovertemplate="%{text}<br>queued at %{x:,.1f} µs<extra></extra>",
        showlegend=len(lost) > 0,
    )


def _host_spans(fig: go.Figure, trace: SampleTrace) -> None:
    """Shade the time before each hop's kernel, where the GPU waits for the host."""
    hops = [0] if trace.is_fused else list(range(len(trace.fanouts)))
    for hop in hops:
        rows = trace.tasks.hop == hop
        if not rows.any() or trace.hops.preprocess_us[hop] <= 0:
            continue
        until = (
            float(trace.tasks.enqueue_us[rows].min()) if not trace.is_fused else trace.hops.preprocess_us[hop]
        )
        fig.add_shape(
            type="rect",
            xref="x",
            yref="paper",
            x0=max(0.0, until - trace.hops.preprocess_us[hop]),
            x1=until,
            y0=0,
            y1=1,
            layer="below",
            line={"width": 0},
            fillcolor=palette.translucent("#B9C3D2", 0.35),
        )
    fig.add_scatter(
        name="preprocessing",
        x=[None],
        y=[None],
        mode="markers",
        marker={"symbol": "square", "size": 12, "color": palette.translucent("#B9C3D2", 0.6)},
    )


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
    fig = go.Figure(
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
    fig.update_xaxes(title_text=TIME_AXIS, range=[0, max(trace.total_us, 1e-9)], showgrid=False)
    fig.update_yaxes(title_text="streaming multiprocessor", autorange="reversed", showgrid=False)
    return fig if until_us is None else set_cursor(fig, until_us)
