"""Figures with one group of bars per hop: how much work, how long, how well used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab.figures import palette
from gnnsample_lab.figures.style import as_list, describe, finish, microseconds, trace_name
from gnnsample_lab.traces import SampleTrace, hop_utilisation


def _hop_axis(found: list[SampleTrace], which: Sequence[SampleTrace] | None = None) -> Any:
    """Category positions: hops for one trace, hops within traces for several."""
    if len(found) == 1:
        return [palette.hop_name(h).capitalize() for h in range(len(found[0].fanouts))]
    chosen = found if which is None else which
    names = [trace_name(t, found) for t in chosen for _ in t.fanouts]
    return [names, [f"{h + 1}" for t in chosen for h in range(len(t.fanouts))]]


def _stack(traces: Sequence[SampleTrace], column: str) -> np.ndarray:
    return np.concatenate([getattr(t.hops, column) for t in traces])


def work_per_hop(traces: SampleTrace | Sequence[SampleTrace], *, log: bool = False) -> go.Figure:
    """Vertices expanded and neighbours picked per hop (workload column of PGSampler's Table I).

    Args:
        traces: one trace, or several to compare. log: logarithmic count axis.
    """
    found = as_list(traces)
    x = _hop_axis(found)
    colors = [palette.hop_color(h) for t in found for h in range(len(t.fanouts))]
    fig = go.Figure()
    for name, column, alpha in (
        ("vertices expanded (tasks)", "workload", 1.0),
        ("neighbours picked", "num_picks", 0.4),
    ):
        values = _stack(found, column)
        fig.add_bar(
            name=name,
            x=x,
            y=values,
            marker={"color": [palette.translucent(c, alpha) for c in colors], "line": {"width": 0}},
            text=[f"{v:,}" for v in values],
            textposition="outside",
            textfont={"size": 12},
            cliponaxis=False,
            hovertemplate="%{x}<br>%{y:,} " + name + "<extra></extra>",
        )
    finish(fig, "Work per hop", describe(found), barmode="group")
    fig.update_yaxes(title_text="count", type="log" if log else "linear", tickformat="~s", rangemode="tozero")
    return fig


def hop_times(traces: SampleTrace | Sequence[SampleTrace]) -> go.Figure:
    """Preprocessing and sampling-kernel time per hop, stacked (time columns of PGSampler's Table I)."""
    found = as_list(traces)
    x = _hop_axis(found)
    fig = go.Figure()
    for name, column in (("preprocessing", "preprocess_us"), ("sampling kernel", "kernel_us")):
        values = _stack(found, column)
        fig.add_bar(
            name=name,
            x=x,
            y=values,
            marker={"color": palette.STAGES[column.removesuffix("_us")], "line": {"width": 0}},
            hovertemplate="%{x}<br>" + name + " %{y:,.1f} µs<extra></extra>",
        )
    total = _stack(found, "preprocess_us") + _stack(found, "kernel_us")
    fig.add_scatter(
        x=x,
        y=total,
        mode="text",
        text=[microseconds(v) for v in total],
        textposition="top center",
        textfont={"size": 12},
        cliponaxis=False,
        showlegend=False,
        hoverinfo="skip",
    )
    note = "hops overlap: kernel time shared out" if any(t.is_fused for t in found) else ""
    strategy = found[0].strategy if len(found) == 1 else ""
    finish(fig, "Time per hop", describe(found, strategy, note), barmode="stack")
    fig.update_yaxes(title_text="time (µs)", range=[0, 1.12 * max(float(total.max()), 1e-9)])
    return fig


def utilisation(traces: SampleTrace | Sequence[SampleTrace]) -> go.Figure:
    """Per hop, the shares of the resident workers at work and of the copy bandwidth in use, in percent."""
    found = as_list(traces)
    x = _hop_axis(found)
    colors = [palette.hop_color(h) for t in found for h in range(len(t.fanouts))]
    busy = np.concatenate([hop_utilisation(t) for t in found]) * 100
    share = _stack(found, "copy_share") * 100
    fig = go.Figure()
    for name, values, alpha in (("workers busy", busy, 1.0), ("copy bandwidth in use", share, 0.4)):
        fig.add_bar(
            name=name,
            x=x,
            y=values,
            marker={"color": [palette.translucent(c, alpha) for c in colors], "line": {"width": 0}},
            text=["" if np.isnan(v) else f"{v:.0f} %" for v in values],
            textposition="outside",
            textfont={"size": 12},
            cliponaxis=False,
            hovertemplate="%{x}<br>" + name + " %{y:.1f} %<extra></extra>",
        )
    strategy = found[0].strategy if len(found) == 1 else ""
    finish(fig, "Utilisation per hop", describe(found, strategy), barmode="group")
    top = np.nanmax(np.concatenate([busy, share, [20.0]]))
    fig.update_yaxes(title_text="share of the GPU (%)", range=[0, min(112.0, float(top) * 1.2)])
    return fig
