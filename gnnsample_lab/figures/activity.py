"""Figures over time and over SMs: the queue, the tasks at work, the balance, the price of a task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab.figures import palette
from gnnsample_lab.figures.sketch import Sketch, drawn
from gnnsample_lab.figures.style import (
    as_list,
    describe,
    finish,
    microseconds,
    set_cursor,
    time_range,
    trace_name,
    whole_ticks,
)
from gnnsample_lab.figures.untimed import with_times_only_if_known
from gnnsample_lab.traces import (
    SampleTrace,
    SlotTable,
    busy_us_per_sm,
    busy_workers,
    load_imbalance,
    queue_stats,
    resident_workers,
)
from gnnsample_lab.traces.analysis import SHARING_STRATEGIES

_MAX_POINTS = 4000


def time_axis(traces: SampleTrace | Sequence[SampleTrace]) -> str:
    """Title of an axis of times of a run."""
    begin = "time since the first launch" if all(t.begins_at_launch for t in as_list(traces)) else "time"
    return f"{begin} (µs)"


def when_complete(trace: SampleTrace) -> str:
    """When the last result of a run was there, for a subtitle."""
    return f"{'result complete at' if trace.begins_at_launch else 'whole run'} {microseconds(trace.total_us)}"


def thinned(time: np.ndarray, depth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A long step function by the extremes of equal stretches, so that no peak disappears."""
    if len(time) <= _MAX_POINTS:
        return time, depth
    groups = np.array_split(np.arange(len(time)), _MAX_POINTS // 4)
    keep = [i for g in groups for i in sorted({g[0], g[depth[g].argmax()], g[depth[g].argmin()], g[-1]})]
    return time[keep], depth[keep]


@drawn
@with_times_only_if_known
def queue_depth(traces: SampleTrace | Sequence[SampleTrace], *, until_us: float | None = None) -> go.Figure:
    """Tasks published and not yet started, over time; with a time cursor at ``until_us``.

    A depth that stays above zero at the end is work that was lost. Strategies without a queue are said to
    have none.
    """
    found = as_list(traces)
    with_queue = [t for t in found if len(t.queue)]
    fig = Sketch()
    notes = []
    for trace in with_queue:
        color = palette.strategy_color(trace.strategy)
        name = trace_name(trace, found)
        time, depth = thinned(trace.queue.time_us, trace.queue.depth)
        end = max(trace.total_us, float(time[-1]))
        fig.add_scatter(
            name=name,
            x=np.append(time, end),
            y=np.append(depth, depth[-1]),
            mode="lines",
            line={
                "shape": "hv",
                "color": color,
                "width": 1.8,
                "dash": "solid" if trace.origin == "measured" else None,
            },
            fill="tozeroy" if len(with_queue) == 1 else None,
            fillcolor=palette.translucent(color, 0.14),
            hovertemplate="%{x:,.1f} µs<br>%{y:,} tasks waiting<extra>" + name + "</extra>",
        )
        stats = queue_stats(trace)
        if len(with_queue) == 1:
            kept = " besides lost tasks" if trace.lost.abandoned.any() else ""
            notes.append(f"peak {stats.peak:,}{kept} at {stats.peak_time_us:,.0f} µs")
            left = int(trace.lost.abandoned.sum())
            if left:
                fig.add_annotation(
                    x=end,
                    y=int(depth[-1]),
                    text=f"{left:,} lost tasks stay in the queue",
                    showarrow=True,
                    ax=-10,
                    ay=-34,
                    xanchor="right",
                    font={"color": palette.LOST},
                    arrowcolor=palette.LOST,
                )
    if not with_queue:
        fig.add_annotation(
            text=f"{trace_name(found[0], found)} has no queue: a barrier separates its hops",
            showarrow=False,
            x=0.5,
            y=0.5,
            xref="paper",
            yref="paper",
            font={"color": palette.MUTED, "size": 15},
        )
    end = max(t.total_us for t in found)
    strategy = found[0].strategy if len(found) == 1 else ""
    finish(
        fig,
        "Queue depth",
        describe(found, strategy, *notes),
        height=340,
        showlegend=len(with_queue) > 1,
        meta={"end_us": end},
        hovermode="x",
    )
    fig.update_xaxes(title_text=time_axis(found), range=time_range(found))
    deepest = max((queue_stats(t).peak for t in with_queue), default=0)
    fig.update_yaxes(title_text="tasks waiting", rangemode="tozero", **whole_ticks(deepest))
    return fig if until_us is None else set_cursor(fig, until_us)


def no_queue(trace: SampleTrace) -> str:
    """Why there is no queue to be seen in a trace."""
    return f"{trace.strategy} has no queue:<br>a barrier separates its hops, no task waits in a slot"


def first_start(trace: SampleTrace) -> float:
    """When the first task began, in microseconds; 0 without tasks. No task is lost before."""
    return float(trace.tasks.start_us.min()) if len(trace.tasks) else 0.0


def slot_states(trace: SampleTrace, at_us: float) -> np.ndarray:
    """int64[tasks]: the state of each slot at an instant, as a position in ``palette.SLOTS``.

    Tasks that were never queued come last; before the end of the run they count as empty.
    """
    slots = trace.queue_slots()
    names = list(palette.SLOTS)
    over = at_us >= trace.total_us
    # A block may leave while the slots that it leaves behind are still being written.
    at_us = np.inf if over else at_us
    state = np.full(len(slots), names.index("empty"))
    with np.errstate(invalid="ignore"):
        state[slots.claim_us <= at_us] = names.index("claimed, still empty")
        written = np.where(np.isnan(slots.write_us), first_start(trace), slots.write_us) <= at_us
        state[written] = names.index("written, waiting")
        # Whoever claimed the slot had looked before: from the moment that it is written, no one will come.
        state[written & slots.lost] = names.index("lost")
        state[slots.read_us <= at_us] = names.index("being worked on")
        state[slots.end_us <= at_us] = names.index("done")
    never = np.full(int((~trace.lost.abandoned).sum()), names.index("never queued" if over else "empty"))
    return np.concatenate([state, never])


@drawn
@with_times_only_if_known
def queue_slots(trace: SampleTrace, *, until_us: float | None = None) -> go.Figure:
    """The queue as an array: a cell per slot, coloured by what has happened to it.

    Slots fill from the top left, row by row. Under the published completion rule, tasks that no one ran are cells as
    well, so that they can be counted: those left in a slot, and behind all slots those that were never queued.

    Args:
        trace: the trace. until_us: the instant to show; None for the end of the run.
    """
    at_us = trace.total_us if until_us is None else until_us
    found = slot_states(trace, at_us) if len(trace.queue) else np.empty(0, dtype=np.int64)
    fig = Sketch()
    if len(found):
        columns = int(np.clip(np.ceil(np.sqrt(2.2 * len(found)) / 8) * 8, 8, 512))
        rows = -(-len(found) // columns)
        grid = np.full(rows * columns, np.nan)
        grid[: len(found)] = found
        colors = list(palette.SLOTS.values())
        steps = [[edge / len(colors), c] for i, c in enumerate(colors) for edge in (i, i + 1)]
        gap = 1 if len(found) <= 2000 else 0
        slots = trace.queue_slots()
        fig.add_heatmap(
            z=grid.reshape(rows, columns),
            x0=0, dx=1, y0=0, dy=columns,
            zmin=-0.5, zmax=len(colors) - 0.5,
            colorscale=steps, showscale=False, xgap=gap, ygap=gap,
            text=_slot_texts(slots, rows, columns) if len(found) <= _MAX_POINTS else None,
            hovertemplate="%{text}<extra></extra>" if len(found) <= _MAX_POINTS else None,
            hoverinfo=None if len(found) <= _MAX_POINTS else "skip",
        )  # fmt: skip
        counts = np.bincount(found, minlength=len(colors))
        for (name, color), count in zip(palette.SLOTS.items(), counts, strict=True):
            fig.add_scatter(
                name=f"{name}: {count:,}", x=[None], y=[None], mode="markers", showlegend=bool(count),
                marker={"symbol": "square", "size": 11, "color": color},
            )  # fmt: skip
    else:
        _say(fig, no_queue(trace) if len(trace.tasks) else "nothing was sampled", 0.5)
    last = "" if trace.origin == "modelled" else "when a slot was claimed is not recorded"
    finish(
        fig, "Slots of the queue", describe(trace, trace.strategy, f"at {at_us:,.1f} µs", last), height=380,
        margin={"t": 76, "b": 84}, hovermode="closest",
        legend={"y": 0, "yref": "container", "yanchor": "bottom", "font": {"size": 12}},
    )  # fmt: skip
    there = bool(len(found))
    fig.update_xaxes(
        visible=there, showgrid=False, title_text="tasks, by slot", showticklabels=False, ticks=""
    )
    fig.update_yaxes(visible=there, showgrid=False, autorange="reversed", title_text="first slot of the row")
    if there:
        fig.update_yaxes(
            tickvals=list(range(0, rows * columns, columns * max(1, rows // 5))), tickformat=",d"
        )
    return fig


def _slot_texts(slots: SlotTable, rows: int, columns: int) -> np.ndarray:
    def time(value: float, word: str) -> str:
        return "" if np.isnan(value) else f"<br>{word} at {value:,.1f} µs"

    texts = [
        f"<b>slot {i:,}</b>: {palette.hop_name(int(slots.hop[i]))}, vertex {slots.vertex[i]:,}"
        + time(slots.claim_us[i], "claimed" + (f" by block {slots.block[i]}" if slots.block[i] >= 0 else ""))
        + time(slots.write_us[i], "written")
        + time(slots.read_us[i], "read")
        + (time(slots.end_us[i], "done") or "<br>lost")
        for i in range(len(slots))
    ]
    return np.array(texts + ["never queued"] * (rows * columns - len(texts)), dtype=object).reshape(
        rows, columns
    )


def _say(fig: Sketch, text: str, y: float) -> None:
    fig.add_annotation(
        text=text,
        x=0.5,
        y=y,
        xref="paper",
        yref="paper",
        showarrow=False,
        font={"color": palette.MUTED, "size": 13},
    )


def host_spans(fig: Sketch, trace: SampleTrace) -> None:
    """Shade the time before each hop's kernel, where the GPU waits for the host."""
    hops = [0] if trace.is_fused else list(range(len(trace.fanouts)))
    shown = False
    for hop in hops:
        rows = trace.tasks.hop == hop
        if not rows.any() or trace.hops.preprocess_us[hop] <= 0:
            continue
        until = float(trace.hops.preprocess_us[hop])
        if not trace.is_fused:
            # Tasks may be recorded of the last of a hop's kernels alone: what is before the first one ends earlier.
            before_kernels = trace.tasks.end_us[rows].max() - trace.hops.kernel_us[hop]
            until = float(min(trace.tasks.enqueue_us[rows].min(), before_kernels))
        shown = True
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
        showlegend=shown,
    )


@drawn
@with_times_only_if_known
def running_tasks(trace: SampleTrace, *, bins: int = 240, until_us: float | None = None) -> go.Figure:
    """Tasks at work over time, stacked by hop, against what the GPU can hold: where a barrier leaves it
    empty. The time before a kernel, in which the GPU waits for the host, is shaded. Tasks that share warps have no
    such limit: the subtitle says so.

    Args:
        bins: time bins. until_us: draws a time cursor there.
    """
    fig = Sketch()
    curves = [busy_workers(trace, bins=bins, hop=hop) for hop in range(len(trace.fanouts))]
    for hop, (edges, running) in enumerate(curves):
        color = palette.hop_color(hop)
        fig.add_scatter(
            name=palette.hop_name(hop),
            x=(edges[:-1] + edges[1:]) / 2,
            y=running,
            mode="lines",
            stackgroup="hops",
            line={"width": 0, "color": color, "shape": "hvh"},
            fillcolor=palette.translucent(color, 0.85),
            hovertemplate="%{y:,.0f} tasks<extra>" + palette.hop_name(hop) + "</extra>",
        )
    shared = trace.strategy in SHARING_STRATEGIES
    most = (
        float(np.sum([running for _, running in curves], axis=0).max()) if shared else resident_workers(trace)
    )
    if not shared:
        fig.add_scatter(
            name=f"at most {most:,} at once",
            x=[0, trace.total_us],
            y=[most, most],
            mode="lines",
            line={"color": palette.MUTED, "width": 1.5, "dash": "dot"},
            hoverinfo="skip",
        )
    finish(
        fig,
        f"Tasks running: {trace.strategy}",
        describe(trace, "tasks share warps: no limit to their number" if shared else ""),
        height=340,
        hovermode="x unified",
        meta={"end_us": trace.total_us},
    )
    fig.update_xaxes(title_text=time_axis(trace), range=time_range(trace), hoverformat=",.1f")
    fig.update_yaxes(title_text="tasks at work", rangemode="tozero", **whole_ticks(most))
    host_spans(fig, trace)
    return fig if until_us is None else set_cursor(fig, until_us)


@drawn
@with_times_only_if_known
def sm_load(trace: SampleTrace) -> go.Figure:
    """Task time per SM, stacked by hop, with the mean: everyone waits for the tallest bar."""
    fig = Sketch()
    sms = np.arange(trace.num_sms)
    for hop in range(len(trace.fanouts)):
        rows = trace.tasks.hop == hop
        busy = np.bincount(
            trace.tasks.sm[rows], weights=trace.tasks.duration_us[rows], minlength=trace.num_sms
        )
        fig.add_bar(
            name=palette.hop_name(hop),
            x=sms,
            y=busy,
            marker={"color": palette.hop_color(hop), "line": {"width": 0}},
            hovertemplate="SM %{x}<br>" + palette.hop_name(hop) + " %{y:,.1f} µs<extra></extra>",
        )
    mean = float(busy_us_per_sm(trace).mean())
    fig.add_hline(y=mean, line={"color": palette.INK, "dash": "dot", "width": 1.5})
    fig.add_annotation(
        x=0, xref="x domain", xanchor="left", y=mean, yanchor="bottom", text="mean", showarrow=False
    )
    subtitle = describe(trace, trace.strategy, f"busiest SM {load_imbalance(trace):.2f}× the mean")
    finish(fig, "Balance across SMs", subtitle, height=340, barmode="stack", bargap=0.12)
    fig.update_xaxes(title_text="streaming multiprocessor", showgrid=False)
    fig.update_yaxes(title_text="task time (µs)", rangemode="tozero")
    return fig


def _decades(values: np.ndarray) -> list[float]:
    """Whole powers of ten around positive values, as a logarithmic axis wants its ends."""
    positive = values[values > 0]
    if not len(positive):
        return [0.0, 1.0]
    low, high = np.floor(np.log10(positive.min())), np.ceil(np.log10(positive.max()))
    return [float(low), float(max(high, low + 1)) + 0.05]


@drawn
@with_times_only_if_known
def task_cost(trace: SampleTrace, *, max_points: int = 4000) -> go.Figure:
    """Duration of a task against the in-degree of its vertex, on logarithmic axes: what a hub costs.

    Tasks in whose time the GPU's clock did not move have no place on the axis; the subtitle counts them.

    Args:
        max_points: beyond this many tasks, evenly spaced ones in order of degree are shown, the largest
            included.
    """
    tasks = trace.tasks
    order = np.argsort(tasks.degree, kind="stable")
    order = order[tasks.duration_us[order] > 0]
    timed = len(order)
    if len(order) > max_points:
        order = order[np.unique(np.linspace(0, len(order) - 1, max_points).astype(np.int64))]
    fig = Sketch()
    # The last hop first: its many marks would lie on those of the first hops, which often cost the same.
    for hop in reversed(range(len(trace.fanouts))):
        rows = order[tasks.hop[order] == hop]
        fig.add_scatter(
            name=palette.hop_name(hop),
            legendrank=hop + 1,
            mode="markers",
            x=np.maximum(tasks.degree[rows], 0.5),
            y=tasks.duration_us[rows],
            customdata=tasks.vertex[rows],
            text=[f"{degree:,}" for degree in tasks.degree[rows].tolist()],
            marker={"color": palette.hop_color(hop), "size": 6, "opacity": 0.55},
            hovertemplate="vertex %{customdata}<br>in-degree %{text}<br>%{y:,.2f} µs<extra></extra>",
        )
    total = len(tasks)
    shown = f"{len(order):,} of {total:,} tasks" if len(order) < timed else ""
    left_out = f"{total - timed:,} of {total:,} tasks took no time that was recorded, not drawn"
    title = f"What a task costs: {trace.strategy}, {trace.pick}"
    finish(fig, title, describe(trace, shown, left_out if timed < total else ""), height=400)
    # Whole decades, so that two charts side by side can be compared.
    fig.update_xaxes(
        title_text="in-degree of the vertex (0 drawn at 0.5)", type="log", dtick=1, tickformat=",d",
        range=[-0.5, _decades(tasks.degree)[1]],
    )  # fmt: skip
    fig.update_yaxes(
        title_text="duration of the task (µs)", type="log", dtick=1, range=_decades(tasks.duration_us)
    )
    return fig
