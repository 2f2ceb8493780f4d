"""Figures with one group of bars per hop: how much work, how long, how well used."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab.figures import palette
from gnnsample_lab.figures.sketch import Sketch, drawn
from gnnsample_lab.figures.style import as_list, describe, finish, microseconds, trace_name
from gnnsample_lab.figures.untimed import with_times_only_if_known
from gnnsample_lab.traces import SampleTrace, hop_utilisation
from gnnsample_lab.traces.analysis import SHARING_STRATEGIES


def _hop_axis(found: list[SampleTrace], which: Sequence[SampleTrace] | None = None) -> Any:
    """Category positions: hops for one trace, hops within traces for several."""
    if len(found) == 1:
        return [palette.hop_name(h).capitalize() for h in range(len(found[0].fanouts))]
    chosen = found if which is None else which
    names = [trace_name(t, found) for t in chosen for _ in t.fanouts]
    return [names, [f"{h + 1}" for t in chosen for h in range(len(t.fanouts))]]


def _stack(traces: Sequence[SampleTrace], column: str) -> np.ndarray:
    return np.concatenate([getattr(t.hops, column) for t in traces])


def _counted(found: Sequence[SampleTrace]) -> str:
    """:func:`describe` for counts: those of a sample are facts, on whatever device its times are modelled."""
    measured = [t for t in found if t.origin == "measured"]
    subtitle = describe(found, timed=False)
    if len(measured) == len(found):
        return subtitle
    for trace in found:
        if trace.origin != "measured":
            subtitle = subtitle.replace(trace.label, "counted in the sample")
    return subtitle


@drawn
def work_per_hop(traces: SampleTrace | Sequence[SampleTrace], *, log: bool = False) -> go.Figure:
    """Vertices expanded and neighbours picked per hop (workload column of PGSampler's Table I).

    Both are counted in the sample, whether the trace's times are measured or modelled.

    Args:
        traces: one trace, or several to compare. log: logarithmic count axis.
    """
    found = as_list(traces)
    x = _hop_axis(found)
    colors = [palette.hop_color(h) for t in found for h in range(len(t.fanouts))]
    fig = Sketch()
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
    finish(fig, "Work per hop", _counted(found), barmode="group")
    fig.update_yaxes(title_text="count", type="log" if log else "linear", rangemode="tozero")
    return fig


def _bound(fanouts: Sequence[int], hops: int) -> float | None:
    """How many times as many vertices as seeds there are at most after so many hops; None where nothing bounds them."""
    if any(fanout < 0 for fanout in fanouts[:hops]):
        return None
    # A float: many hops go beyond 64 bits, which NumPy's integers and a page's JSON have.
    return math.prod(float(fanout + 1) for fanout in fanouts[:hops])


def _level_name(level: int, num_hops: int) -> str:
    return "mini-batch" if level == num_hops else palette.hop_name(level)


def _level_color(level: int, num_hops: int) -> str:
    return palette.MUTED if level == num_hops else palette.hop_color(level)


@drawn
def frontier_growth(
    counts: Mapping[int, Sequence[float]],
    *,
    fanouts: Sequence[int],
    batch_size: int,
    largest_batch: int,
    num_nodes: int,
    title: str,
    label: str,
    here: Sequence[int] | None = None,
    before: tuple[Sequence[int], int, Mapping[int, Sequence[float]]] | None = None,
) -> go.Figure:
    """Frontiers against the size of the batch, on logarithmic axes that no setting moves.

    A line per hop has the vertices that the hop expands, one more line those of the whole mini-batch. Dotted in the
    same colour is the bound ``n (f + 1)^h``; a dashed line is the whole graph. The axes follow from the graph and
    from ``largest_batch`` alone, so that two settings can be compared by eye.

    Args:
        counts: batch size -> vertices expanded by each hop, then vertices of the mini-batch (as many numbers as hops,
            and one). Counted in samples, or means of such counts, never computed.
        fanouts: one per hop, -1 for all neighbours (which has no bound).
        batch_size: the one that is marked; a key of ``counts``, unless ``here`` is given.
        here: counts of the mini-batch that is marked, where it does not stand in ``counts`` itself.
        largest_batch: end of the axis of batch sizes. num_nodes: of the graph.
        title: of the graph. label: where the samples were drawn.
        before: (fanouts, batch_size, counts) of an earlier setting, drawn faintly behind the present one.

    Raises:
        ValueError: ``batch_size`` was not counted.
    """
    if here is None and batch_size not in counts:
        raise ValueError(f"batch_size must be one of the sizes counted, {sorted(counts)} (got {batch_size})")
    fig = Sketch()
    low, high = 0.6, 6.0 * max(num_nodes, largest_batch)
    if before is not None:
        _ghost(fig, *before, low=low, high=high)
    sizes, num_hops = sorted(counts), len(fanouts)
    for level in range(1, num_hops + 1):
        factor = _bound(fanouts, level)
        if factor is not None:
            power = " × ".join(f"{fanout + 1}" for fanout in fanouts[:level])
            fig.add_scatter(
                name=f"bound of {_level_name(level, num_hops)}",
                x=[1, largest_batch],
                y=[factor, factor * largest_batch],
                mode="lines",
                line={"color": _level_color(level, num_hops), "width": 1.4, "dash": "dot"},
                showlegend=False,
                hovertemplate=f"at most n × {power}: %{{y:,}}<extra>%{{fullData.name}}</extra>",
            )
    for level in range(num_hops + 1):
        name = _level_name(level, num_hops)
        fig.add_scatter(
            name=name,
            x=sizes,
            y=[counts[size][level] for size in sizes],
            mode="lines+markers",
            line={"color": _level_color(level, num_hops), "width": 2.4},
            marker={
                "size": [11 if here is None and size == batch_size else 5 for size in sizes],
                "line": {"width": 0},
            },
            hovertemplate="%{x:,} seeds: %{y:,} vertices<extra>" + name + "</extra>",
        )
        if here is not None:
            fig.add_scatter(
                name=f"{name}, this batch", x=[batch_size], y=[here[level]], mode="markers", showlegend=False,
                marker={"size": 11, "color": _level_color(level, num_hops), "line": {"width": 0}},
                hovertemplate="this batch of %{x:,} seeds: %{y:,} vertices<extra>" + name + "</extra>",
            )  # fmt: skip
    fig.add_scatter(
        name="bound n(f+1)<sup>h</sup>", x=[None], y=[None], mode="lines",
        line={"color": palette.INK, "width": 1.4, "dash": "dot"},
    )  # fmt: skip
    fig.add_scatter(
        name="all vertices",
        x=[1, largest_batch],
        y=[num_nodes, num_nodes],
        mode="lines",
        line={"color": palette.INK, "width": 1.4, "dash": "dash"},
        showlegend=False,
        hovertemplate="the graph has %{y:,} vertices<extra></extra>",
    )
    _batch_line(fig, "this batch", batch_size, low, high, palette.INK)
    fig.add_annotation(
        x=0, y=float(np.log10(num_nodes)), text=f"all {num_nodes:,} vertices", showarrow=False,
        xanchor="left", yanchor="bottom", font={"size": 12},
    )  # fmt: skip
    drawn = "fanouts " + ", ".join("all" if fanout < 0 else str(fanout) for fanout in fanouts)
    parts = [title, f"batch {batch_size:,}", drawn, label]
    if before is not None:
        parts.append(f"pale: batch {before[1]:,}, fanouts {', '.join(map(str, before[0]))}")
    below = {"y": 0, "yref": "container", "yanchor": "bottom", "font": {"size": 12}}
    finish(
        fig, "Frontier of each hop", " · ".join(parts), height=380, margin={"t": 76, "b": 92}, legend=below
    )
    powers = range(0, int(np.log2(largest_batch)) + 1, 3)
    fig.update_xaxes(
        title_text="seeds in the batch (n)", type="log", tickvals=[1 << p for p in powers],
        ticktext=[f"{1 << p:,}" for p in powers],
        range=[-0.12, float(np.log10(largest_batch)) + 0.12],
    )  # fmt: skip
    fig.update_yaxes(
        title_text="vertices (count)", type="log", dtick=1,
        range=[float(np.log10(low)), float(np.log10(high))],
    )  # fmt: skip
    return fig


def _batch_line(fig: Sketch, name: str, size: int, low: float, high: float, color: str) -> None:
    fig.add_scatter(
        name=name, x=[size, size], y=[low, high], mode="lines", line={"color": color, "width": 1}, showlegend=False,
        hoverinfo="skip",
    )  # fmt: skip


def _ghost(
    fig: Sketch, fanouts: Sequence[int], batch_size: int, counts: Mapping[int, Sequence[float]], *, low: float,
    high: float,
) -> None:  # fmt: skip
    """The lines of an earlier setting, faint and wide, behind those to come."""
    sizes, num_hops = sorted(counts), len(fanouts)
    for level in range(num_hops + 1):
        fig.add_scatter(
            name="before",
            legendgroup="before",
            x=sizes,
            y=[counts[size][level] for size in sizes],
            mode="lines",
            line={"color": palette.translucent(_level_color(level, num_hops), 0.3), "width": 6},
            showlegend=False,
            hovertemplate=f"%{{x:,}} seeds: %{{y:,}} vertices<extra>{_level_name(level, num_hops)}, before</extra>",
        )
    _batch_line(fig, "the batch before", batch_size, low, high, palette.FAINT)


@drawn
@with_times_only_if_known
def hop_times(traces: SampleTrace | Sequence[SampleTrace]) -> go.Figure:
    """Preprocessing and sampling-kernel time per hop, stacked (time columns of PGSampler's Table I).

    Modelled times of a strategy whose recorded runs were farther off than a quarter are drawn without a scale.
    """
    found = as_list(traces)
    x = _hop_axis(found)
    fig = Sketch()
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


@drawn
def utilisation(traces: SampleTrace | Sequence[SampleTrace]) -> go.Figure:
    """Per hop, the shares of the resident workers at work and of the copy bandwidth in use, in percent.

    Where tasks share warps, tasks at work are no share of the workers: the subtitle says so.
    """
    found = as_list(traces)
    x = _hop_axis(found)
    colors = [palette.hop_color(h) for t in found for h in range(len(t.fanouts))]
    busy = np.concatenate([hop_utilisation(t) for t in found]) * 100
    share = _stack(found, "copy_share") * 100
    fig = Sketch()
    for name, values, alpha in (("workers busy", busy, 1.0), ("copy bandwidth in use", share, 0.4)):
        fig.add_bar(
            name=name,
            x=x,
            y=values,
            marker={"color": [palette.translucent(c, alpha) for c in colors], "line": {"width": 0}},
            text=["" if np.isnan(v) else f"{v:.0f} %" for v in values],
            textposition="outside",
            textfont={"size": 11},
            constraintext="none",  # else labels that are wider than their bars are smaller than the others
            cliponaxis=False,
            hovertemplate="%{x}<br>" + name + " %{y:.1f} %<extra></extra>",
        )
    strategy = found[0].strategy if len(found) == 1 else ""
    sharing = [t.strategy for t in found if t.strategy in SHARING_STRATEGIES]
    of_whom = "" if len(found) == 1 else f"{', '.join(dict.fromkeys(sharing))}: "
    note = f"{of_whom}tasks share warps, no share of workers" if sharing else ""
    finish(fig, "Utilisation per hop", describe(found, strategy, note), barmode="group")
    top = np.nanmax(np.concatenate([busy, share, [20.0]]))
    fig.update_yaxes(title_text="share of the GPU (%)", range=[0, min(112.0, float(top) * 1.2)])
    return fig
