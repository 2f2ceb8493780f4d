"""Transit-parallel sampling, drawn: which kernel a transit goes to, what its lists share, what the index costs.

All functions take plain arrays and tables; what they show is counted in :mod:`gnnsample_lab.sampling.explain.threads`
or timed by whoever calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab import readable
from gnnsample_lab.checks import host_integers
from gnnsample_lab.figures import palette
from gnnsample_lab.figures.matching import byte_unit
from gnnsample_lab.figures.sketch import Sketch, drawn, grid
from gnnsample_lab.figures.style import empty_figure, finish, write_beside

KERNELS = {"sub-warp": "#88CCEE", "block": "#DDAA33", "grid": "#882255"}
"""One colour per kernel of the transit-parallel scheme."""
PHASES = {"index": "#CC6677", "sampling": "#332288"}
PARTS = {
    "lists read": "#332288",
    "vertices written": "#88CCEE",
    "pairs sorted": "#CC6677",
    "counters": "#DDAA33",
    "transits found": "#882255",
}
"""Parts of :func:`index_work`: sampling's in blues, the index's in warm colours."""

# Edged in the page's ground or filled with it, so that they stand out from bars of any colour on any page.
_SHARED = (
    {"fill": palette.INK, "edge": palette.PAPER, "dash": "solid"},
    {"fill": palette.PAPER, "edge": palette.INK, "dash": "dot"},
)

_ROOM = 12
"""Percent of a bar from which on its number has room in it."""

_THRESHOLDS = {32: "32: block", 1025: "more than 1,024: grid"}
"""From how many draws on a transit goes to another kernel. Bins begin there, so that each is of one kernel."""


@drawn
def kernel_histogram(draws: Any, kernels: Any, *, label: str = "") -> go.Figure:
    """Transits by how many neighbours they have to sample, and where the draws are; the kernels' limits across.

    Bins begin at powers of two, but for the one of the grid, which begins at 1,025.

    Args:
        draws: int[D], neighbours to sample of each distinct transit, at least 1. kernels: int[D], number of its kernel
            in :data:`KERNELS`.
        label: graph, step and origin.

    Raises:
        TypeError, ValueError: not integers, not of one length, or out of range.
    """
    draws, kernels = host_integers("draws", draws), host_integers("kernels", kernels)
    if len(draws) != len(kernels):
        raise ValueError(f"draws and kernels must be of one length (got {len(draws)} and {len(kernels)})")
    if not len(draws):
        return empty_figure("Neighbours to sample per transit", "No sample has a transit at this step.")
    if draws.min() < 1:
        raise ValueError(f"draws must be at least 1 (got {draws.min()})")
    if kernels.min() < 0 or kernels.max() >= len(KERNELS):
        raise ValueError(
            f"kernels must lie in 0..{len(KERNELS) - 1} (got {kernels.min()} to {kernels.max()})"
        )
    last = max(int(draws.max()).bit_length() - 1, 10)
    begins = [(1 << power) + (power == 10) for power in range(last + 2)]
    bins = np.searchsorted(begins, draws, side="right") - 1
    names = [f"{begin:,}" for begin in begins[:-1]]
    ranges = [_range(begin, after - 1) for begin, after in pairwise(begins)]
    fig = grid(
        2, 1, shared_xaxes=True, vertical_spacing=0.12,
        subplot_titles=["distinct transits", "neighbours to sample"],
    )  # fmt: skip
    for number, (name, color) in enumerate(KERNELS.items()):
        chosen = kernels == number
        for row, weight in ((1, np.ones(len(draws))), (2, draws.astype(np.float64))):
            share = np.bincount(bins[chosen], weights=weight[chosen], minlength=last + 1) / weight.sum() * 100
            fig.add_bar(
                name=name,
                legendgroup=name,
                showlegend=row == 1,
                x=np.arange(last + 1),
                y=share,
                customdata=ranges,
                marker={"color": color, "line": {"width": 0}},
                hovertemplate="%{customdata}<br>%{y:.3~g} %<extra>" + name + "</extra>",
                row=row,
                col=1,
            )
    for limit, text in _THRESHOLDS.items():
        at = begins.index(limit) - 0.5
        fig.add_vline(x=at, line={"color": palette.MUTED, "dash": "dash", "width": 1.5})
        fig.add_annotation(
            x=at, y=1.0, xref="x", yref="y domain", text=text, showarrow=False, xanchor="center", yanchor="bottom",
            font={"size": 11, "color": palette.MUTED},
        )  # fmt: skip
    finish(fig, "Neighbours to sample per transit", label, height=500, barmode="stack", bargap=0.08)
    fig.update_layout(legend={"y": -0.16, "yanchor": "top"}, margin={"t": 108, "b": 100})
    fig.update_xaxes(tickvals=np.arange(0, last + 1, 2 if last > 12 else 1), showgrid=False)
    fig.update_xaxes(
        ticktext=names[:: 2 if last > 12 else 1],
        title_text="neighbours to sample of a transit (count: from this number to the next)",
        row=2,
        col=1,
    )
    fig.update_yaxes(title_text="share (%)")
    for title in ("distinct transits", "neighbours to sample"):
        # At the left: in the middle stand the limits.
        fig.update_annotations(selector={"text": title}, font={"size": 13}, x=0, xanchor="left")
    return fig


def _range(least: int, most: int) -> str:
    return "1 neighbour" if most == 1 else f"{least:,} to {most:,} neighbours"


@drawn
def kernel_shares(
    steps: Sequence[tuple[Any, Any]],
    shared: Mapping[str, Sequence[float]],
    *,
    marked: int | None = None,
    label: str = "",
) -> go.Figure:
    """Share of the transits and of the draws that each kernel gets, step by step.

    Args:
        steps: per step, int[3] distinct transits and int[3] draws by kernel, in the order of :data:`KERNELS`.
        shared: by whom ("several pairs") -> per step, share of the draws whose list they want, 0..1. Two at most.
        marked: step to write in bold.

    Raises:
        ValueError: no step, or ``shared`` of another length.
    """
    if not len(steps) or any(len(values) != len(steps) for values in shared.values()):
        lengths = [len(values) for values in shared.values()]
        raise ValueError(f"steps and shared must have one entry per step (got {len(steps)} and {lengths})")
    rows, names = [], []
    for number, (transits, draws) in enumerate(steps):
        bold = ("<b>", "</b>") if number == marked else ("", "")
        for what, counts in (("transits", transits), ("draws", draws)):
            rows.append(np.asarray(counts, dtype=np.float64))
            names.append(f"{bold[0]}step {number + 1}, {what}{bold[1]}")
    counts = np.array(rows)
    share = 100 * counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    fig = Sketch()
    for column, (name, color) in enumerate(KERNELS.items()):
        fig.add_bar(
            name=name,
            orientation="h",
            y=names,
            x=share[:, column],
            customdata=counts[:, column],
            marker={"color": color, "line": {"width": 0}},
            text=[f"{v:.0f} %" if v >= 6 else "" for v in share[:, column]],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": palette.text_on(color), "size": 12},
            hovertemplate="%{y}<br>" + name + ": %{customdata:,} (%{x:.3~g} %)<extra></extra>",
        )
    for look, (name, values) in zip(_SHARED, shared.items(), strict=False):
        fig.add_scatter(
            name=f"list wanted by {name}",
            y=names[1::2],
            x=100 * np.asarray(values, dtype=np.float64),
            mode="markers",
            marker=_diamond(look, 13),
            hovertemplate="%{y}<br>%{x:.1f} % of the draws: list wanted by " + name + "<extra></extra>",
        )
    height = 34 * len(names) + 48
    finish(fig, "Which kernel they go to", label, height=height + 202, barmode="stack", bargap=0.18)
    fig.update_layout(legend={"y": -68 / height, "yanchor": "top"}, margin={"t": 86, "b": 116})
    fig.update_xaxes(title_text="share (%)", range=[-1, 102])
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig


def _diamond(look: Mapping[str, str], size: int) -> dict[str, Any]:
    edge = {"color": look["edge"], "width": 2}
    return {"symbol": "diamond", "size": size, "color": look["fill"], "line": edge}


@drawn
def sharing_by_batch(
    batches: Sequence[int],
    draws: Any,
    shared: Mapping[str, Sequence[float]],
    *,
    marked: int | None = None,
    label: str = "",
) -> go.Figure:
    """What larger batches do to a step: draws by kernel, stacked, and the share whose lists are shared.

    Args:
        batches: numbers of roots, ascending. draws: int[B, 3], by kernel.
        shared: by whom ("several pairs") -> per batch, share of the draws whose list they want, 0..1. Two at most.
        marked: the number of roots to mark.
    """
    table = np.asarray(draws, dtype=np.float64).reshape(len(batches), len(KERNELS))
    share = 100 * table / np.maximum(1, table.sum(axis=1, keepdims=True))
    names = [f"{n:,}" for n in batches]
    fig = Sketch()
    for column, (name, color) in enumerate(KERNELS.items()):
        fig.add_bar(
            name=name,
            x=names,
            y=share[:, column],
            marker={
                "color": color,
                "line": {"width": 0},
                "opacity": 0.65,
            },  # the lines are what is to be seen
            hovertemplate="%{x} roots<br>" + name + ": %{y:.3~g} % of the draws<extra></extra>",
        )
    for look, (name, values) in zip(_SHARED, shared.items(), strict=False):
        fig.add_scatter(
            name=f"list wanted by {name}",
            x=names,
            y=100 * np.asarray(values, dtype=np.float64),
            mode="lines+markers",
            line={"color": palette.INK, "width": 2, "dash": look["dash"]},
            marker=_diamond(look, 11),
            cliponaxis=False,  # many are 0 or 100 %
            hovertemplate="%{x} roots<br>%{y:.1f} % of the draws: list wanted by " + name + "<extra></extra>",
        )
    finish(fig, "Kernels and sharing by batch size", label, height=500, barmode="stack", bargap=0.15)
    if marked is not None and marked in batches:
        at = list(batches).index(marked)
        fig.add_shape(
            type="rect", xref="x", yref="paper", x0=at - 0.5, x1=at + 0.5, y0=0, y1=1,
            line={"color": palette.INK, "width": 1.5, "dash": "dash"},
        )  # fmt: skip
    fig.update_layout(legend={"y": -0.26, "yanchor": "top"}, margin={"t": 86, "b": 146})
    # Numbers that turn for want of room are hard to read: rather every second one, the largest among them.
    named = names[::-2] if len(names) > 8 else names
    fig.update_xaxes(title_text="roots (count)", type="category", showgrid=False, tickvals=named, tickangle=0)
    fig.update_yaxes(title_text="share of the draws (%)", range=[0, 102])
    return fig


@drawn
def index_share(
    shares: Mapping[str, float], *, paper: Mapping[str, float] | None = None, label: str
) -> go.Figure:
    """Share of the time that building the scheduling index takes (NextDoor, figure 6).

    Args:
        shares: name of a run -> percent of its time. paper: the same names -> the paper's percent, where it gives one.
        label: graph and origin ("measured on ...").

    Raises:
        ValueError: no run.
    """
    if not shares:
        raise ValueError("shares must hold at least one run (got none)")
    names, values = list(shares), np.array(list(shares.values()), dtype=np.float64)
    fig = Sketch()
    for name, part in (("index", values), ("sampling", 100 - values)):
        fig.add_bar(
            name=name,
            orientation="h",
            y=names,
            x=part,
            marker={"color": PHASES[name], "line": {"width": 0}},
            text=[f"{v:.1f} %" if v >= _ROOM else "" for v in part] if name == "index" else None,
            textposition="inside",
            constraintext="none",  # of one size, also where a bar is thinner than its writing
            textangle=0,
            insidetextfont={"size": 11, "color": palette.text_on(PHASES[name])},
            hovertemplate="%{y}<br>" + name + " %{x:.1f} %<extra></extra>",
        )
    short = [(name, v) for name, v in shares.items() if v < _ROOM]
    if short:
        fig.add_scatter(
            y=[name for name, _ in short], x=[v for _, v in short], mode="text", textposition="middle right",
            text=[f" {v:.1f} %" if v > 0 else " no index" for _, v in short], showlegend=False, hoverinfo="skip",
            textfont={"size": 11, "color": palette.text_on(PHASES["sampling"])},
        )  # fmt: skip
    known = {name: value for name, value in (paper or {}).items() if name in shares}
    if known:
        fig.add_scatter(
            name="index in the paper (V100)",
            y=list(known),
            x=list(known.values()),
            mode="markers",
            marker={"symbol": "line-ns", "size": 20, "line": {"color": palette.INK, "width": 3}},
            hovertemplate="%{y}<br>paper %{x:.1f} %<extra></extra>",
        )
    height = max(380, 210 + 30 * len(names))
    finish(fig, "Time share of the index", label, height=height, barmode="stack")
    fig.update_xaxes(title_text="share of the time (%)", range=[0, 100])
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig


@drawn
def index_work(work: Mapping[str, Mapping[str, float]], *, label: str = "") -> go.Figure:
    """Bytes that building the index moves, beside those of sampling itself: one stacked bar per row.

    Args:
        work: row ("step 1, sampling", "step 1, radix sort", ...) -> part of it -> bytes.
        label: graph and origin of the counts.

    Raises:
        ValueError: no row.
    """
    if not work:
        raise ValueError("work must hold at least one row (got none)")
    names = list(work)
    parts = list(dict.fromkeys(part for row in work.values() for part in row))
    table = np.array([[work[name].get(part, 0.0) for part in parts] for name in names])
    unit, size = byte_unit(float(table.sum(axis=1).max()))
    fig = Sketch()
    for column, part in enumerate(parts):
        fig.add_bar(
            name=part,
            orientation="h",
            y=names,
            x=table[:, column] / size,
            marker={"color": PARTS.get(part, palette.MUTED), "line": {"width": 0}},
            hovertemplate="%{y}<br>" + part + " %{x:,.3~g} " + unit + "<extra></extra>",
        )
    totals = table.sum(axis=1) / size
    write_beside(fig, names, totals, [f"  {readable.number(v)} {unit}" for v in totals], font_size=None)
    finish(
        fig,
        "Bytes moved: index against sampling",
        label,
        height=max(400, 260 + 32 * len(names)),
        barmode="stack",
        legend={"y": -80 / max(160, 32 * len(names) + 20), "yanchor": "top"},
        margin={"t": 86, "b": 150},
    )
    fig.update_xaxes(title_text=f"bytes ({unit})", range=[0, 1.28 * float(totals.max()) or 1.0])
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig
