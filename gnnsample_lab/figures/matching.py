"""What consecutive mini-batches share, and what that saves: match degrees, tours over them, bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab.figures import palette
from gnnsample_lab.figures.style import finish, write_beside

#: Where a feature row comes from, and its colour: the better, the darker.
SOURCES = {
    "reused from last batch": "#44AA99",
    "in the cache": "#88CCEE",
    "copied from host": "#CC6677",
}

#: One per tour, in the order in which they are given.
TOURS = (palette.HOPS[1], palette.HOPS[5], palette.HOPS[0], palette.HOPS[2])

_NUMBERED = 40


def match_heatmap(
    degrees: Any,
    tours: Mapping[str, Sequence[int]] | None = None,
    *,
    order: Sequence[int] | None = None,
    title: str = "Match degrees",
    limits: tuple[float, float] | None = None,
    subtitle: str = "",
) -> go.Figure:
    """Match degree of each pair of mini-batches, and tours as marks on the pairs that follow each other.

    Args:
        degrees: [n, n] shares in 0..1, as :func:`gnnsample_lab.match_degrees`; the diagonal is left blank.
        tours: name -> order of training (a permutation of 0..n-1). Its k-th mark lies in the row of the batch
            trained k-th and the column of the one after it.
        order: arrangement of rows and columns; as sampled when None. A tour laid out in its own order runs
            along the diagonal.
        limits: ends of the colour scale (shares), to compare two maps; the range of the data when None.
        subtitle: graph, batches and origin.

    Raises:
        ValueError: ``degrees`` is not square, or a tour or ``order`` is no permutation.
    """
    matrix = _square(degrees)
    n = len(matrix)
    arranged = np.arange(n) if order is None else _permutation(order, n, "order")
    place = np.empty(n, dtype=np.int64)
    place[arranged] = np.arange(n)
    shown = 100 * matrix[np.ix_(arranged, arranged)]
    np.fill_diagonal(shown, np.nan)
    low, high = limits or match_limits(matrix)
    names = [str(batch + 1) for batch in arranged]
    fig = go.Figure(
        go.Heatmap(
            z=shown,
            zmin=100 * low,
            zmax=100 * high,
            colorscale=[[i / 5, color] for i, color in enumerate(palette.ACTIVITY)],
            colorbar={"title": {"text": "match<br>degree (%)"}, "thickness": 14, "outlinewidth": 0},
            customdata=np.array([[f"{a} and {b}" for b in names] for a in names]),
            hovertemplate="batches %{customdata}<br>%{z:.2f} %<extra></extra>",
            hoverongaps=False,
            xgap=1,
            ygap=1,
        )
    )
    for number, (name, tour) in enumerate((tours or {}).items()):
        stops = place[_permutation(tour, n, f"tours[{name!r}]")]
        fig.add_scatter(
            name=name,
            x=stops[1:],
            y=stops[:-1],
            mode="markers+text" if number and n <= _NUMBERED and order is None else "markers",
            text=[str(step) for step in range(1, n)],
            textfont={"size": 10, "color": "white"},
            marker=_mark(number, n) if order is None else _mark(0, n, TOURS[1]),
            hovertemplate=f"{name}: step " + "%{text}<extra></extra>",
        )
    pairs = shown[~np.isnan(shown)]
    if n > 1:
        title += f": mean {pairs.mean():.1f} %, from {pairs.min():.1f} to {pairs.max():.1f} %"
    finish(fig, title, subtitle, height=500, showlegend=bool(tours))
    ticks = {"tickmode": "array", "tickvals": list(range(n)), "ticktext": names} if n <= _NUMBERED else {}
    words = "as sampled" if order is None else "in the order of training"
    fig.update_xaxes(title_text=f"the batch after it ({words})", showgrid=False, **ticks)
    fig.update_yaxes(
        title_text=f"a batch ({words})", showgrid=False, autorange="reversed", scaleanchor="x", **ticks
    )
    fig.update_xaxes(constrain="domain")
    fig.update_yaxes(constrain="domain")
    return fig


def match_tour(degrees: Any, tours: Mapping[str, Sequence[int]], *, subtitle: str = "") -> go.Figure:
    """Match degree of each batch with the one before it, along each tour, and the tour's mean as a dashed
    line.

    Raises:
        ValueError: ``degrees`` is not square, or a tour is no permutation.
    """
    matrix = _square(degrees)
    fig = go.Figure()
    for number, (name, tour) in enumerate(tours.items()):
        order = _permutation(tour, len(matrix), f"tours[{name!r}]")
        along = 100 * matrix[order[:-1], order[1:]]
        color = TOURS[number % len(TOURS)]
        mean = float(along.mean()) if along.size else 0.0
        fig.add_scatter(
            name=f"{name}: mean {mean:.2f} %",
            legendgroup=name,
            x=np.arange(1, len(order)),
            y=along,
            customdata=np.column_stack([order[:-1] + 1, order[1:] + 1]),
            mode="lines+markers",
            line={"color": color, "width": 2},
            hovertemplate="step %{x}, batches %{customdata[0]} and %{customdata[1]}<br>%{y:.2f} %"
            "<extra></extra>",
        )
        fig.add_scatter(
            x=[1, max(1, len(order) - 1)],
            y=[mean, mean],
            legendgroup=name,
            showlegend=False,
            mode="lines",
            line={"color": color, "width": 1, "dash": "dash"},
            hoverinfo="skip",
        )
    finish(fig, "Match degree along the tour", subtitle, height=500)
    fig.update_xaxes(title_text="step of the tour")
    fig.update_yaxes(title_text="match degree with the batch before (%)")
    return fig


def feature_rows(
    rows: Mapping[str, Sequence[int]], row_bytes: int, *, title: str = "", subtitle: str = ""
) -> go.Figure:
    """Bytes of features that batches need, by where they come from: one stacked bar per way to load them.

    Args:
        rows: name -> rows reused from the batch before, rows found in the cache, rows copied from the host.
            The saving of each is against the first.
        row_bytes: bytes of a feature row.

    Raises:
        ValueError: there is no entry, one is not three counts, or ``row_bytes`` is below 1.
    """
    if not rows:
        raise ValueError("rows must hold at least one entry (got none)")
    if row_bytes < 1:
        raise ValueError(f"row_bytes must be at least 1 (got {row_bytes})")
    counts = np.array([list(triple) for triple in rows.values()], dtype=np.float64)
    if counts.shape != (len(rows), len(SOURCES)):
        raise ValueError("rows must have three counts per entry: reused, in the cache, copied")
    names = list(rows)
    unit, size = byte_unit(float(counts.sum(axis=1).max()) * row_bytes)
    amounts = counts * row_bytes / size
    fig = go.Figure()
    # The copied bytes first, so that they start at zero and can be compared along the axis.
    for column in (2, 1, 0):
        name = list(SOURCES)[column]
        if column != 2 and not counts[:, column].any():
            continue
        fig.add_bar(
            name=name,
            orientation="h",
            y=names,
            x=amounts[:, column],
            customdata=counts[:, column],
            marker={"color": SOURCES[name], "line": {"width": 0}},
            hovertemplate="%{y}<br>%{x:,.2f} " + unit + " " + name + " (%{customdata:,} rows)<extra></extra>",
        )
    base = counts[0, 2]
    labels = [
        f"  {copied * row_bytes / size:,.{digits(copied * row_bytes / size)}f} {unit} copied"
        + _change(base, copied)
        for copied in counts[:, 2]
    ]
    write_beside(fig, names, amounts.sum(axis=1), labels)
    finish(
        fig,
        title or "Where the features come from",
        subtitle,
        height=max(360, 170 + 48 * len(names)),
        barmode="stack",
    )
    fig.update_xaxes(
        title_text=f"features ({unit})", range=[0, 1.55 * float(amounts.sum(axis=1).max()) or 1.0]
    )
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig


def _change(base: float, value: float) -> str:
    """ " (−30.0%)", with a true minus sign; nothing where nothing changed."""
    if not base or value == base:
        return ""
    return f" ({'−' if value < base else '+'}{abs(value / base - 1):.1%})"


def match_limits(degrees: Any) -> tuple[float, float]:
    """Least and largest match degree off the diagonal: ends of a colour scale."""
    matrix = _square(degrees)
    pairs = matrix[~np.eye(len(matrix), dtype=bool)]
    return (float(pairs.min()), float(pairs.max())) if pairs.size else (0.0, 1.0)


def byte_unit(largest: float) -> tuple[str, float]:
    """Name of the (decimal) unit that suits a number of bytes, and its size."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if largest >= size:
            return unit, size
    return "bytes", 1.0


def digits(value: float) -> int:
    """Digits after the point that a number in a label deserves."""
    return 0 if value >= 100 or value == int(value) else 1 if value >= 10 else 2


def _mark(number: int, n: int, color: str = "") -> dict[str, Any]:
    """Rings for the first tour, discs with the step in them for the others."""
    size = min(22.0, max(5.0, 300.0 / n))
    color = color or TOURS[number % len(TOURS)]
    if number == 0:
        return {
            "symbol": "circle-open",
            "size": 0.8 * size,
            "line": {"color": color, "width": 2.5},
            "color": color,
        }
    return {
        "symbol": "circle",
        "size": max(size, 15.0 if n <= _NUMBERED else size),
        "color": color,
        "line": {"color": "white", "width": 1},
    }


def _square(degrees: Any) -> np.ndarray:
    matrix = np.array(degrees, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise ValueError(f"degrees must be a square matrix (got shape {matrix.shape})")
    return matrix


def _permutation(order: Any, n: int, name: str) -> np.ndarray:
    found = np.asarray(order, dtype=np.int64)
    if found.shape != (n,) or not np.array_equal(np.sort(found), np.arange(n)):
        raise ValueError(f"{name} must hold each of 0..{n - 1} once (got {found.tolist()})")
    return found
