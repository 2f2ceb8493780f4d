"""What consecutive mini-batches share, and what that saves: match degrees, tours over them, bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab.figures import palette
from gnnsample_lab.figures.sketch import Sketch, drawn
from gnnsample_lab.figures.style import COMPACT, finish, finite, write_beside
from gnnsample_lab.readable import noun, percent

#: Where a feature row comes from, and its colour: the better, the darker.
SOURCES = {
    "reused from last batch": "#44AA99",
    "in the cache": "#88CCEE",
    "copied from host": "#CC6677",
}

#: One per tour, in the order in which they are given.
TOURS = (palette.HOPS[1], palette.HOPS[5], palette.HOPS[0], palette.HOPS[2])

#: The two batches that are held against each other, and what they share.
PAIR = (palette.HOPS[1], palette.HOPS[2], palette.HOPS[0])

_TICKS = 8


@drawn
def match_heatmap(
    degrees: Any,
    tours: Mapping[str, Sequence[int]] | None = None,
    *,
    order: Sequence[int] | None = None,
    title: str = "Match degrees",
    limits: tuple[float, float] = (0.0, 1.0),
    pair: tuple[int, int] | None = None,
    subtitle: str = "",
) -> go.Figure:
    """Match degree of each pair of mini-batches, and tours as marks on the pairs that follow each other.

    The colours go from 0 to 100 %, whatever the data: the same colour is the same match degree in every map.

    Args:
        degrees: [n, n] shares in 0..1, as :func:`gnnsample_lab.match_degrees`; the diagonal is left blank.
        tours: name -> order of training (a permutation of 0..n-1). Its k-th mark lies in the row of the batch
            trained k-th and the column of the one after it.
        order: arrangement of rows and columns; as sampled when None. A tour laid out in its own order runs
            along the diagonal.
        limits: ends of the colour scale (shares).
        pair: two batches (counted from 0) whose cells are framed.
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
    low, high = limits
    names = [str(batch + 1) for batch in arranged]
    fig = Sketch(
        go.Heatmap(
            z=shown,
            zmin=100 * low,
            zmax=100 * high,
            colorscale=[[i / 5, color] for i, color in enumerate(palette.ACTIVITY)],
            colorbar={"ticksuffix": " %", "thickness": 12, "outlinewidth": 0, "nticks": 6},
            customdata=np.stack(np.broadcast_arrays(arranged[:, None] + 1, arranged + 1), axis=2),
            hovertemplate="batches %{customdata[0]} and %{customdata[1]}<br>%{z:.2f} %<extra></extra>",
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
            mode="markers",
            marker=_mark(number, n) if order is None else _mark(1, n),
            hoverinfo="skip",  # a cell is what is pointed at and clicked, not the mark beside it
        )
    for row, column in () if pair is None else {tuple(pair), tuple(pair)[::-1]}:
        x, y = place[column], place[row]
        fig.add_shape(
            type="rect",
            x0=x - 0.5,
            x1=x + 0.5,
            y0=y - 0.5,
            y1=y + 0.5,
            line={"color": palette.HOPS[3], "width": 3},
        )
    pairs = shown[~np.isnan(shown)]
    if n > 1:
        # A longer title would end below the buttons of the plot.
        title += f": mean {pairs.mean():.1f}\u00a0%"
        subtitle = " · ".join(filter(None, [f"from {pairs.min():.1f} to {pairs.max():.1f}\u00a0%", subtitle]))
    finish(fig, title, subtitle, height=500, showlegend=bool(tours), legend=COMPACT)
    every = -(-n // _TICKS)
    ticks = {
        "tickmode": "array",
        "tickvals": list(range(0, n, every)),
        "ticktext": names[::every],
        "tickangle": 0,
    }
    words = "as sampled" if order is None else "in the order of training"
    fig.update_xaxes(title_text=f"next batch ({words})", showgrid=False, **ticks)
    fig.update_yaxes(title_text="batch", showgrid=False, autorange="reversed", **ticks)
    return fig


@drawn
def shared_vertices(
    first: int, second: int, both: int, *, names: tuple[str, str], row_bytes: int, subtitle: str = ""
) -> go.Figure:
    """The vertices of two mini-batches as overlapping discs with areas to scale: only one, both, only the other.

    Args:
        first, second: vertices of each mini-batch. both: vertices that they share.
        names: of the batches, such as ("batch 1", "batch 2").
        row_bytes: bytes of a feature row: the second batch loads only its own, when trained after the first.
        subtitle: graph, batches and origin.

    Raises:
        ValueError: more shared than one of them has, or an empty batch.
    """
    if not 0 <= both <= min(first, second) or min(first, second) < 1:
        raise ValueError(f"both must be from 0 to the smaller of two batches (got {first}, {second}, {both})")
    radii = float(np.sqrt(first / np.pi)), float(np.sqrt(second / np.pi))
    apart = _distance(*radii, both)
    fig = Sketch()
    around = np.linspace(0, 2 * np.pi, 181)
    areas = (
        (f"only {names[0]}", first - both, PAIR[0], _arc(0.0, radii[0], around)),
        (f"only {names[1]}", second - both, PAIR[1], _arc(apart, radii[1], around)),
        ("both", both, PAIR[2], _lens(*radii, apart) if both else (np.zeros(0), np.zeros(0))),
    )
    for name, count, color, (x, y) in areas:
        fig.add_scatter(
            name=name,
            meta=count,
            x=x,
            y=y,
            mode="lines",
            fill="toself",
            fillcolor=color,
            line={"color": palette.PAPER, "width": 1.5},
            hoverinfo="skip",
        )
    # Words stand under the discs, and side by side where those are narrow.
    left, right = -radii[0], max(apart + radii[1], radii[0])
    reach = max((right - left) / 2, 1.6 * max(radii))
    left, right = (left + right) / 2 - reach, (left + right) / 2 + reach
    for (name, count, color, _), at, anchor in zip(
        areas, (left, right, (left + right) / 2), ("left", "right", "center"), strict=True
    ):
        fig.add_annotation(
            text=f'<span style="color:{color}">⬤</span> <b>{count:,}</b><br>{name}',
            x=at,
            y=0,
            yref="paper",
            xanchor=anchor,
            yanchor="top",
            align=anchor,
            yshift=-6,
            showarrow=False,
            font={"size": 14},
        )
    unit, size = byte_unit(second * row_bytes)
    whole, new = second * row_bytes / size, (second - both) * row_bytes / size
    words = f"trained after {names[0]}, {names[1]} loads {new:,.{digits(whole)}f} of {whole:,.{digits(whole)}f} {unit}"
    title = (
        f"{names[0].capitalize()} and {names[1]} share {both:,} {noun(both, 'vertex', 'vertices')}: "
        f"{percent(both / min(first, second), 1)} of the smaller one"
    )
    finish(fig, title, " · ".join(filter(None, [words, subtitle])), height=430, showlegend=False)
    fig.update_layout(margin={"l": 24, "r": 24, "b": 56})
    fig.update_xaxes(visible=False, range=[left - 0.02 * reach, right + 0.02 * reach])
    fig.update_yaxes(visible=False, range=[-1.03 * max(radii), 1.03 * max(radii)], scaleanchor="x")
    return fig


def _distance(one: float, two: float, area: float) -> float:
    """How far apart the centres of two discs are whose common area is ``area``."""
    low, high = abs(one - two), one + two
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _common_area(one, two, middle) > area else (low, middle)
    return (low + high) / 2


def _common_area(one: float, two: float, apart: float) -> float:
    if apart <= abs(one - two):
        return float(np.pi * min(one, two) ** 2)
    if apart >= one + two:
        return 0.0
    alpha, beta = _angles(one, two, apart)
    return float(one**2 * (alpha - np.sin(2 * alpha) / 2) + two**2 * (beta - np.sin(2 * beta) / 2))


def _angles(one: float, two: float, apart: float) -> tuple[float, float]:
    """Half the angle of each disc's arc that lies within the other one."""
    near = (apart**2 + one**2 - two**2) / (2 * apart * one)
    far = (apart**2 + two**2 - one**2) / (2 * apart * two)
    return float(np.arccos(np.clip(near, -1, 1))), float(np.arccos(np.clip(far, -1, 1)))


def _arc(center: float, radius: float, angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return center + radius * np.cos(angles), radius * np.sin(angles)


def _lens(one: float, two: float, apart: float) -> tuple[np.ndarray, np.ndarray]:
    """Outline of what two discs share; the smaller disc where it lies within the other."""
    if apart <= abs(one - two) * (1 + 1e-9) + 1e-12:
        return _arc(0.0 if one <= two else apart, min(one, two), np.linspace(0, 2 * np.pi, 181))
    alpha, beta = _angles(one, two, apart)
    right = _arc(0.0, one, np.linspace(-alpha, alpha, 91))
    left = _arc(apart, two, np.linspace(np.pi - beta, np.pi + beta, 91))
    return np.append(right[0], left[0]), np.append(right[1], left[1])


def least_loads(shared: Any) -> np.ndarray:
    """Rows that no order spares, int64[n]: each batch after the one that shares most with it.

    Args:
        shared: int[n, n], rows that two batches have in common; a batch's own rows on the diagonal, as
            :func:`gnnsample_lab.overlaps`.
    """
    matrix = np.array(shared, dtype=np.int64)
    rows = np.diag(matrix).copy()
    np.fill_diagonal(matrix, 0)
    return rows - matrix.max(axis=0)


@drawn
def tour_strips(
    shared: Any, tours: Mapping[str, Sequence[int]], row_bytes: int, *, subtitle: str = ""
) -> go.Figure:
    """Each tour as a strip of mini-batches in order, with the bytes that each step loads, and what no order spares.

    The mark on a batch is what it copies after the batch that shares most with it. The sum of the marks, with the
    first batch loaded whole, bounds all tours from below; no tour need reach it.

    Args:
        shared: int[n, n], rows that two batches have in common, a batch's own rows on the diagonal: as
            :func:`gnnsample_lab.overlaps`, of the rows that no cache holds.
        tours: name -> order of training; savings are against the first.
        row_bytes: bytes of a feature row.
        subtitle: graph, batches and origin.

    Raises:
        ValueError: ``shared`` is not square, there is no tour, or one is no permutation.
    """
    matrix = _square(shared, "shared")
    n, rows, least = len(matrix), np.diag(matrix), least_loads(shared)
    orders = [_permutation(tour, n, f"tours[{name!r}]") for name, tour in tours.items()]
    if not orders:
        raise ValueError("tours must hold at least one tour (got none)")
    reused = [np.append(0, matrix[order[:-1], order[1:]]) for order in orders]
    totals = [float((rows[order] - spared).sum()) for order, spared in zip(orders, reused, strict=True)]
    bound = min(float(rows[order[0]] + least[order[1:]].sum()) for order in orders)
    unit, size = byte_unit(float(rows.max()) * row_bytes)
    top = float(rows.max()) * row_bytes / size or 1.0
    steps, fig = np.arange(1, n + 1), Sketch()
    every = -(-n // 20)
    # Above each strip its name, below it the numbers of its batches.
    head = gap = 0.11
    high = (1 - len(orders) * head - (len(orders) - 1) * gap) / len(orders)
    for number, (name, order, spared) in enumerate(zip(tours, orders, reused, strict=True)):
        suffix = "" if number == 0 else str(number + 1)
        axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "showlegend": number == 0}
        lost = least[order].copy()
        lost[0] = rows[order[0]]
        after = [""] + [f" after batch {batch + 1}" for batch in order[:-1]]
        words = [
            f"step {k}: batch {batch + 1}{then}" for k, batch, then in zip(steps, order, after, strict=True)
        ]
        for source, counts in (
            ("copied from host", rows[order] - spared),
            ("reused from last batch", spared),
        ):
            fig.add_bar(
                name=source.split()[0],
                legendgroup=source,
                x=steps,
                y=counts * row_bytes / size,
                text=words,
                textposition="none",
                marker={"color": SOURCES[source], "line": {"width": 0}},
                hovertemplate="%{text}<br>%{y:,.3g} " + unit + f" {source}<extra>{name}</extra>",
                **axes,
            )
        fig.add_scatter(
            name="least possible",
            legendgroup="least",
            x=np.column_stack([steps - 0.42, steps + 0.42, np.full(n, np.nan)]).ravel(),
            y=np.repeat(lost * row_bytes / size, 3),
            mode="lines",
            line={"color": palette.INK, "width": 2.5},
            connectgaps=False,
            hoverinfo="skip",
            **axes,
        )
        fig.add_heatmap(
            x=np.arange(n + 1) + 0.5,
            y=[-0.17 * top, -0.05 * top],
            z=[order + 1],
            colorscale=[[i / 4, color] for i, color in enumerate(palette.ACTIVITY[1:])],
            zmin=1,
            zmax=max(n, 2),
            showscale=False,
            xgap=1,
            text=[words],
            hovertemplate="%{text}<extra></extra>",
            xaxis=axes["xaxis"],
            yaxis=axes["yaxis"],
        )
        above = 1 - number * (head + high + gap) - head
        fig.update_layout(
            {
                f"xaxis{suffix}": {
                    "anchor": axes["yaxis"],
                    "range": [0.5, n + 0.5],
                    "tickmode": "array",
                    "tickvals": steps[::every],
                    "ticktext": [str(batch + 1) for batch in order[::every]],
                    "tickfont": {"size": 11},
                    "tickangle": 0,
                    "ticks": "",
                    "showgrid": False,
                    "showline": False,
                },
                f"yaxis{suffix}": {
                    "anchor": axes["xaxis"],
                    "domain": [max(0.0, above - high), above],
                    "range": [-0.2 * top, 1.04 * top],
                    "nticks": 4,
                    "title": {"text": unit},
                },
            }
        )
        fig.add_annotation(
            text=f"<b>{name}</b>: {_amount(totals[number] * row_bytes)} copied"
            + (f"{_change(totals[0], totals[number])}" if number else ""),
            x=0,
            y=above,
            xref="paper",
            yref="paper",
            xanchor="left",
            yanchor="bottom",
            showarrow=False,
        )
    fig.update_layout(barmode="stack", bargap=0.16)
    last = f"xaxis{len(orders) if len(orders) > 1 else ''}"
    fig.update_layout({f"{last}_title_text": "mini-batches in the order of training, shaded by number"})
    finish(
        fig,
        _saving(list(tours)[-1], totals[0] * row_bytes, totals[-1] * row_bytes, bound * row_bytes),
        subtitle,
        height=500,
        legend=COMPACT,
    )
    return fig


def _saving(name: str, before: float, after: float, bound: float) -> str:
    """What a tour saves, and what any could, in words; all in bytes."""
    most = f"no order saves more than {_amount(before - bound)} ({percent((before - bound) / max(before, 1), 1)})"
    if after > before:
        return (
            f"Order {name} copies {_amount(after - before)} ({percent(after / before - 1, 1)}) more; {most}"
        )
    return f"Order {name} saves {_amount(before - after)} ({percent((before - after) / max(before, 1), 1)}); {most}"


def _amount(count: float) -> str:
    """Bytes for people: "4.2 MB"."""
    unit, size = byte_unit(count)
    return f"{count / size:,.{digits(count / size)}f} {unit}"


@drawn
def match_tour(degrees: Any, tours: Mapping[str, Sequence[int]], *, subtitle: str = "") -> go.Figure:
    """Match degree of each batch with the one before it, along each tour, and the tour's mean as a dashed
    line.

    Raises:
        ValueError: ``degrees`` is not square, or a tour is no permutation.
    """
    matrix = _square(degrees)
    fig = Sketch()
    for number, (name, tour) in enumerate(tours.items()):
        order = _permutation(tour, len(matrix), f"tours[{name!r}]")
        along = 100 * matrix[order[:-1], order[1:]]
        color = TOURS[number % len(TOURS)]
        mean = float(along.mean()) if along.size else 0.0
        fig.add_scatter(
            name=f"{name}: mean {mean:.1f} %",
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
    finish(fig, "Match degree with the batch before", subtitle, height=500, legend=COMPACT)
    fig.update_xaxes(title_text="step of the tour")
    fig.update_yaxes(title_text="match degree (%)", rangemode="tozero")
    return fig


@drawn
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
    fig = Sketch()
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
        f"  {copied * row_bytes / size:,.{digits(copied * row_bytes / size)}f} {unit}" + _change(base, copied)
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
        title_text=f"features ({unit}); in numbers: those copied",
        range=[0, 1.95 * float(amounts.sum(axis=1).max()) or 1.0],
    )
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig


def _change(base: float, value: float) -> str:
    """ " (−30.0%)", with a true minus sign; nothing where nothing changed."""
    if not base or value == base:
        return ""
    return f" ({'−' if value < base else '+'}{percent(abs(value / base - 1), 1)})"


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


def _mark(number: int, n: int) -> dict[str, Any]:
    """Rings for the first tour, discs for the others."""
    size, color = min(11.0, max(4.0, 190.0 / n)), TOURS[number % len(TOURS)]
    if number == 0:
        return {"symbol": "circle-open", "size": size, "line": {"color": color, "width": 2}, "color": color}
    return {
        "symbol": "circle",
        "size": 0.8 * size,
        "color": color,
        "line": {"color": palette.PAPER, "width": 1},
    }


def _square(degrees: Any, name: str = "degrees") -> np.ndarray:
    matrix = finite(name, degrees)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise ValueError(f"{name} must be a square matrix (got shape {matrix.shape})")
    return matrix


def _permutation(order: Any, n: int, name: str) -> np.ndarray:
    found = np.asarray(order, dtype=np.int64)
    if found.shape != (n,) or not np.array_equal(np.sort(found), np.arange(n)):
        raise ValueError(f"{name} must hold each of 0..{n - 1} once (got {found.tolist()})")
    return found
