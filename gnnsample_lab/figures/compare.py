"""Figures that set traces side by side: strategies, model against measurement, a table of figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from gnnsample_lab.figures import palette
from gnnsample_lab.figures.activity import thinned
from gnnsample_lab.figures.sketch import Sketch, drawn
from gnnsample_lab.figures.style import as_list, describe, finish, microseconds, trace_name, write_beside
from gnnsample_lab.gpu_model.run_error import NO_SCALE, has_times, interval_us, run_error, tell_apart
from gnnsample_lab.readable import percent
from gnnsample_lab.traces import SampleTrace, busy_workers, compare_traces, summarise, waiting_tasks
from gnnsample_lab.traces.analysis import hop_kernel_times


@drawn
def strategy_comparison(traces: SampleTrace | Sequence[SampleTrace]) -> go.Figure:
    """Total time of each trace as one bar: preprocessing, kernels, and the rest of the run where there is one.

    The rest lies behind the kernels, until the last result is written. Measured times are set against the first trace
    as ratios. Modelled ones have the model's error as a bar from their end to where recorded runs lie, and are called
    faster or slower than the first only where the two differ by more than that; a ratio of modelled times is not
    printed, and where the model is off by more than a quarter bars have no scale of time.

    Raises:
        ValueError: if there is no trace.
    """
    found = as_list(traces)
    names = [trace_name(t, found) for t in found]
    totals = [t.total_us for t in found]
    rest = [max(0.0, t.total_us - t.preprocess_us - t.kernel_us) for t in found]
    stages = {
        "preprocessing": ("preprocess", [t.preprocess_us for t in found]),
        "sampling kernels": ("kernel", [t.kernel_us for t in found]),
    }
    if max(rest) > 1e-3 * max(totals):  # less is not to be seen
        stages["rest of the run"] = ("rest", rest)
    timed = all(map(has_times, found))
    fig = Sketch()
    for name, (stage, values) in stages.items():
        fig.add_bar(
            name=name,
            orientation="h",
            y=names,
            x=values,
            marker={"color": palette.STAGES[stage], "line": {"width": 0}},
            hovertemplate="%{y}<br>" + name + (" %{x:,.1f} µs" if timed else "") + "<extra></extra>",
        )
    ends = list(totals)
    modelled = [i for i, t in enumerate(found) if run_error(t) is not None]
    if modelled:
        spans = [interval_us(found[i]) for i in modelled]
        fig.add_scatter(
            name="model's error", y=[names[i] for i in modelled], x=[found[i].total_us for i in modelled],
            mode="markers",
            marker={"symbol": "line-ns-open", "size": 9, "color": palette.MODELLED, "line": {"width": 2}},
            error_x={
                "type": "data", "symmetric": False, "thickness": 2, "width": 5, "color": palette.MODELLED,
                "array": [high - found[i].total_us for i, (_, high) in zip(modelled, spans, strict=True)],
                "arrayminus": [found[i].total_us - low for i, (low, _) in zip(modelled, spans, strict=True)],
            },
            customdata=spans,
            hovertemplate="%{y}<br>"
            + ("between %{customdata[0]:,.0f} and %{customdata[1]:,.0f} µs" if timed else "the model's error")
            + "<extra></extra>",
        )  # fmt: skip
        for i, (_, high) in zip(modelled, spans, strict=True):
            ends[i] = max(ends[i], high)
    labels = [
        (microseconds(t.total_us) if has_times(t) else "") + _against(found[0], t) + _lost(t) for t in found
    ]
    write_beside(fig, names, ends, [f" {label}" for label in labels])
    subtitle = describe(found, f"against {names[0]}" if len(found) > 1 else "")
    finish(fig, "Strategies side by side", subtitle, height=170 + 44 * len(found), barmode="stack")
    # Room on the right for the longest label.
    scale = {"title_text": "time (µs)"} if timed else {"title_text": NO_SCALE, "showticklabels": False}
    fig.update_xaxes(**scale, range=[0, max(ends) * (1.7 if modelled else 1.45) or 1.0])
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig


def _against(base: SampleTrace, trace: SampleTrace) -> str:
    """How a trace compares with the base: measured ones by their ratio, others by no more than the order."""
    if trace is base:
        return ""
    if base.origin == trace.origin == "measured":
        return _ratio(base.total_us, trace.total_us)
    if not tell_apart(base, trace):
        return "  (within the error)"
    return "  (faster)" if trace.total_us < base.total_us else "  (slower)"


def _ratio(base_us: float, total_us: float) -> str:
    """How a total compares with the base; nothing within five percent of it."""
    if min(base_us, total_us) <= 0 or abs(total_us / base_us - 1) < 0.05:
        return ""
    factor, word = (base_us / total_us, "faster") if total_us < base_us else (total_us / base_us, "slower")
    return f"  ({factor:.1f}× {word})"


def _lost(trace: SampleTrace) -> str:
    return f"  {len(trace.lost):,} tasks lost" if len(trace.lost) else ""


def model_vs_measurement(model: SampleTrace, measured: SampleTrace) -> go.Figure:
    """A modelled trace over the measured one: kernel time per hop by the GPU's clock, and the queue (or the running
    tasks) over time from the first task on.

    Events around a short kernel also time the host that launches it, which is no statement on the kernel: hence the
    time from the first start to the last end of a hop's tasks.

    Raises:
        ValueError: if ``model`` is not modelled or ``measured`` not measured, or the numbers of hops differ.
    """
    if model.origin != "modelled":
        raise ValueError(f"model must be a modelled trace (got origin {model.origin!r})")
    if measured.origin != "measured":
        raise ValueError(f"measured must be a measured trace (got origin {measured.origin!r})")
    if len(model.fanouts) != len(measured.fanouts):
        raise ValueError(
            f"both traces must have as many hops (got {len(model.fanouts)}, {len(measured.fanouts)})"
        )
    queued = len(measured.queue) > 0 and len(model.queue) > 0
    error = compare_traces(model, measured)
    left = "Kernel time per hop"
    right = f"Queue depth: peak off by {percent(error['queue_peak'])}" if queued else "Tasks running"
    fig = make_subplots(
        rows=1,
        cols=2,
        column_widths=[0.42, 0.58],
        horizontal_spacing=0.13,
        subplot_titles=(left, right),
    )
    lasts = [1e-9]
    hops = [palette.hop_name(h).capitalize() for h in range(len(measured.fanouts))]
    for trace, name, color in (
        (measured, "measured", palette.MEASURED),
        (model, "modelled", palette.MODELLED),
    ):
        fig.add_bar(
            name=name,
            legendgroup=name,
            x=hops,
            y=hop_kernel_times(trace.tasks, len(hops), trace.is_fused),
            marker={"color": color, "line": {"width": 0}},
            hovertemplate="%{x}<br>" + name + " %{y:,.1f} µs<extra></extra>",
            row=1,
            col=1,
        )
        first = trace.tasks.start_us.min(initial=np.inf)
        lasts.append(float(trace.tasks.end_us.max(initial=-np.inf) - first))
        if queued:
            waiting = waiting_tasks(trace)
            x, y = thinned(waiting.time_us, waiting.depth)
        else:
            edges, running = busy_workers(trace, bins=240)
            x, y = edges[:-1], running
        fig.add_scatter(
            name=name,
            legendgroup=name,
            showlegend=False,
            x=x - (first if len(trace.tasks) else 0.0),
            y=y,
            mode="lines",
            line={
                "color": color,
                "width": 2,
                "shape": "hv",
                "dash": "solid" if trace is measured else "dash",
            },
            hovertemplate="%{x:,.1f} µs<br>" + name + " %{y:,.0f}<extra></extra>",
            row=1,
            col=2,
        )
    # How far the model is off in this run stands there; how far it is off in others would contradict it.
    finish(
        fig,
        f"Model against measurement: {measured.strategy}",
        describe(
            [measured, model],
            f"whole run recorded {microseconds(measured.total_us)}, modelled {microseconds(model.total_us)} "
            f"({measured.total_us / max(model.total_us, 1e-9):.1f} times)",
            timed=False,
        ),
        height=420,
        barmode="group",
        legend={"y": -0.16, "yanchor": "top"},
    )
    fig.update_annotations(font_size=14)
    fig.update_yaxes(title_text="kernel time (µs)", rangemode="tozero", row=1, col=1)
    fig.update_xaxes(
        title_text="time since the first task began (µs)", range=[0, 1.02 * max(lasts)], row=1, col=2
    )
    fig.update_yaxes(
        title_text="tasks waiting" if queued else "tasks running", rangemode="tozero", row=1, col=2
    )
    return fig


def summary_table(traces: SampleTrace | Sequence[SampleTrace]) -> go.Figure:
    """The figures of each trace as a table, one row per trace; times of a model that is too far off are left out."""
    found = as_list(traces)
    frame = summarise(found)
    columns = [
        ("strategy", [trace_name(t, found) for t in found]),
        ("tasks", [f"{v:,}" for v in frame["tasks"]]),
        ("picks", [f"{v:,}" for v in frame["picks"]]),
        *(
            (name, [f"{v:,.1f}" if has_times(t) else "–" for t, v in zip(found, frame[column], strict=True)])
            for name, column in (
                ("preprocess (µs)", "preprocess_us"),
                ("kernels (µs)", "kernel_us"),
                ("total (µs)", "total_us"),
            )
        ),
        ("SM max / mean", [f"{v:.2f}" for v in frame["sm_imbalance"]]),
        ("queue peak", [f"{v:,}" if v else "–" for v in frame["queue_peak"]]),
        ("lost", [f"{v:,}" if v else "–" for v in frame["lost_tasks"]]),
    ]
    stripes = [palette.PAPER if row % 2 else "#F5F7FA" for row in range(len(found))]
    fig = go.Figure(
        go.Table(
            columnwidth=[2.0, 1.0, 1.0, 1.5, 1.15, 1.1, 1.4, 1.2, 0.8],
            header={
                "values": [f"<b>{name}</b>" for name, _ in columns],
                "align": ["left", "right"],
                "height": 32,
                "fill": {"color": palette.STAGES["kernel"]},
                "font": {"color": "white", "size": 13},
            },
            cells={
                "values": [values for _, values in columns],
                "align": ["left", "right"],
                "height": 28,
                "fill": {"color": [stripes]},
                "font": {"color": palette.INK, "size": 13},
            },
        )
    )
    finish(
        fig,
        "Summary",
        describe(found),
        height=160 + 29 * len(found),
        margin={"l": 16, "r": 16, "t": 86, "b": 12},
    )
    return fig
