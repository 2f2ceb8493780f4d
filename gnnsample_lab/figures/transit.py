"""Sample-parallel and transit-parallel threads, drawn: whose neighbour list each of them reads, and what a warp reads.

All functions take plain arrays; what they show is counted in :mod:`gnnsample_lab.sampling.explain.threads`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from gnnsample_lab.figures import palette
from gnnsample_lab.figures.matching import digits
from gnnsample_lab.figures.sketch import Sketch, drawn
from gnnsample_lab.figures.style import empty_figure, finish, finite

LISTS = (*palette.HOPS, "#332288", "#44AA99", "#CC6677")
"""Colours of the lists that most pairs want; the same in both schemes."""
OTHERS, IDLE = ("#DDE1E7", "#BFC6D1"), "#FFFFFF"
SCHEMES = {
    "sample-parallel": "#7F7F7F",
    "transit-parallel": "#117733",
    "lists in shared memory": "#44AA99",
    "unlimited cache": palette.FAINT,
}
_WRITTEN = 8
"""Lanes up to which a cell has room for an id that can be read; of more, pointing at the cell tells it."""


def list_ranks(transits: Any) -> dict[int, int]:
    """Vertex -> rank, for the lists that get a colour: the ten that most pairs want, of those that two or more want.

    Args:
        transits: ids of any shape, one entry per pair of sample and transit; -1 for none. Ties go to the lower id.
    """
    flat = np.asarray(transits).ravel()
    vertex, pairs = np.unique(flat[flat >= 0], return_counts=True)
    first = np.lexsort((vertex, -pairs))
    chosen = [int(vertex[i]) for i in first if pairs[i] > 1][: len(LISTS)]
    return {v: rank for rank, v in enumerate(chosen)}


@drawn
def thread_map(
    lists: Any,
    ranks: Mapping[int, int],
    columns: Mapping[str, Any],
    *,
    scheme: str,
    warps: Any = None,
    kernels: Sequence[str] = (),
    label: str = "",
) -> go.Figure:
    """Whose neighbour list each thread reads: a row per warp, a cell per thread, numbers of the warp at the right.

    Args:
        lists: int[W, width], vertex whose list a lane reads, -1 for an idle lane.
        ranks: vertex -> rank among the coloured lists, see :func:`list_ranks`; all others are grey, in two shades that
            change where the list does.
        columns: heading -> a number or text per warp.
        scheme: for the title. warps: int[W], numbers of the warps; 0, 1, ... when None.
        kernels: the kernel of each warp, written before its number; none when empty.
        label: graph, step and origin.

    Raises:
        ValueError: a column, ``warps`` or ``kernels`` of another length than ``lists``.
    """
    lists = np.asarray(lists)
    count, width = lists.shape
    numbers = np.arange(count) if warps is None else np.asarray(warps)
    for name, values in {"warps": numbers, "kernels": kernels or numbers, **columns}.items():
        if len(values) != count:
            raise ValueError(f"{name} must have one entry per warp ({count}, got {len(values)})")
    if not count:
        return empty_figure(scheme, "No thread has anything to do at this step.")
    codes = _codes(lists, ranks)
    palette_of = [IDLE, *OTHERS, *LISTS]
    n = len(palette_of)
    fig = Sketch(
        go.Heatmap(
            z=codes,
            x=np.arange(width),
            y=np.arange(count),
            zmin=-0.5,
            zmax=n - 0.5,
            colorscale=[[edge / n, c] for code, c in enumerate(palette_of) for edge in (code, code + 1)],
            showscale=False,
            xgap=1,
            ygap=3,
            customdata=np.where(lists >= 0, lists.astype(str), "none: idle"),
            hovertemplate="warp row %{y}, lane %{x}<br>list of vertex %{customdata}<extra></extra>",
        )
    )
    if width <= _WRITTEN and lists.max() < 10**5:
        y, x = np.divmod(np.arange(lists.size), width)
        ink = [palette.text_on(palette_of[c]) for c in codes.ravel()]
        fig.add_scatter(
            x=x,
            y=y,
            mode="text",
            # Never empty: plotly.js does not bring the element of an empty text back on an update.
            text=[str(v) if v >= 0 else "\u00a0" for v in lists.ravel().tolist()],
            textfont={"size": 11 if lists.max() < 1000 else 9, "color": ink},
            hoverinfo="skip",
            showlegend=False,
        )
    step = max(1.0, width * 0.26)
    for place, (name, values) in enumerate(columns.items()):
        at = width + (place + 0.45) * step
        fig.add_scatter(
            x=np.full(count, at),
            y=np.arange(count),
            mode="text",
            text=[str(v) for v in np.asarray(values).tolist()],
            textfont={"size": 12},
            hoverinfo="skip",
            showlegend=False,
        )
        fig.add_annotation(
            x=at, y=1.0, xref="x", yref="paper", yanchor="bottom", showarrow=False, text=f"<b>{name}</b>",
            font={"size": 12},
        )  # fmt: skip
    for name, color in {
        "the ten lists most wanted, a colour each": LISTS[0],
        "other lists": OTHERS[1],
    }.items():
        fig.add_scatter(
            name=name,
            x=[None],
            y=[None],
            mode="markers",
            marker={"symbol": "square", "size": 13, "color": color},
        )
    finish(fig, scheme, label, height=206 + 24 * max(6, count), hovermode="closest")
    fig.update_layout(legend={"y": -0.02, "yanchor": "top"}, margin={"t": 106, "b": 66, "r": 12})
    shown = [
        (f"{kernels[row]} · " if kernels else "") + f"{int(number):,}" for row, number in enumerate(numbers)
    ]
    fig.update_xaxes(
        range=[-0.7, width + len(columns) * step], showgrid=False, showline=False, ticks="", tickvals=[],
        title_text="",
    )  # fmt: skip
    fig.update_yaxes(
        title_text="warp (number)", tickvals=np.arange(count), ticktext=shown, autorange="reversed", showgrid=False,
        showline=False, ticks="",
    )  # fmt: skip
    return fig


def _codes(lists: np.ndarray, ranks: Mapping[int, int]) -> np.ndarray:
    """Cell codes: 0 idle, 1 and 2 the greys, then the coloured lists."""
    codes = np.zeros(lists.shape, dtype=np.int64)
    flat = lists.ravel()
    changes = np.concatenate([[0], np.cumsum(flat[1:] != flat[:-1])]).reshape(lists.shape)
    codes[lists >= 0] = 1 + changes[lists >= 0] % 2
    for vertex, rank in ranks.items():
        codes[lists == vertex] = 1 + len(OTHERS) + rank
    return codes


def warp_totals(
    lists: Mapping[str, float], sectors: Mapping[str, float], busy: Mapping[str, float], *, label: str = ""
) -> go.Figure:
    """A step under several schemes: lists per warp, sectors read, share of the lanes that read.

    Args:
        lists: scheme -> different lists per warp, mean.
        sectors: scheme -> 32-byte sectors of the step.
        busy: scheme -> share of the lanes at work, 0..1.
        label: graph, step and origin.

    Raises:
        ValueError: a number is not finite.
    """
    fig = make_subplots(
        rows=1,
        cols=3,
        horizontal_spacing=0.1,
        column_widths=[0.28, 0.44, 0.28],
        subplot_titles=["lists per warp (mean)", "32-byte sectors read", "lanes at work (%)"],
    )
    tables = {"lists": lists, "sectors": sectors, "busy": {name: 100 * share for name, share in busy.items()}}
    for column, (argument, table) in enumerate(tables.items(), start=1):
        values = finite(argument, list(table.values()))
        fig.add_bar(
            x=list(table),
            y=values,
            marker={"color": [SCHEMES.get(name, palette.MUTED) for name in table], "line": {"width": 0}},
            text=[f"{v:,.{0 if column == 2 else digits(v)}f}" for v in values],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{x}<br>%{y:,.4~g}<extra></extra>",
            showlegend=False,
            row=1,
            col=column,
        )
        # Two words a line, so that they stay level.
        fig.update_xaxes(tickvals=list(table), ticktext=[_broken(name) for name in table], row=1, col=column)
        fig.update_yaxes(range=[0, 1.18 * float(values.max(initial=0)) or 1.0], row=1, col=column)
    finish(fig, "The whole step under both schemes", label, height=380, showlegend=False)
    fig.update_layout(margin={"t": 112, "b": 74})
    fig.update_xaxes(showgrid=False, ticks="", tickangle=0, tickfont={"size": 11})
    fig.update_annotations(font={"size": 13})
    return fig


def _broken(name: str) -> str:
    """A name of two or four words on two or three lines, for narrow windows."""
    return (
        name.replace("-", "-<br>", 1)
        if "-" in name
        else name.replace(" shared ", "<br>shared<br>").replace(" c", "<br>c")
    )
