"""Samples of one's own applications: walks on a small graph against their exact expectation, layers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab.checks import host_array
from gnnsample_lab.figures import palette
from gnnsample_lab.figures.drawing import Positions, _apart, _segments
from gnnsample_lab.figures.sketch import Sketch, drawn
from gnnsample_lab.figures.style import finish
from gnnsample_lab.readable import percent

#: Where a second-order step leads, seen from the vertex before: the colours of choices and bars.
KINDS = {"return": palette.HOPS[1], "triangle": palette.HOPS[2], "away": palette.HOPS[0]}

#: Steps of a walk that stay in view.
TAIL = 6
_MOST_VERTICES = 80
_BOW = 0.2
"""How far a bent edge leads away from the straight one, over its length."""
_SCALE = [[i / 5, color] for i, color in enumerate(palette.ACTIVITY)]


def graph_layout(graph: Any, *, seed: int = 0) -> Positions:
    """Positions of the vertices of a small graph, by NetworkX's force-directed layout; vertex id -> (x, y).

    Raises:
        ValueError: the graph has more than 80 vertices.
    """
    import networkx as nx

    if graph.num_nodes > _MOST_VERTICES:
        raise ValueError(
            f"graph must have at most {_MOST_VERTICES} vertices to be drawn (got {graph.num_nodes:,})"
        )
    net = nx.Graph()
    net.add_nodes_from(range(graph.num_nodes))
    net.add_edges_from(_edges(graph))
    placed = nx.spring_layout(net, k=1.8 / np.sqrt(max(1, len(net))), iterations=200, seed=seed)
    if len(net) < 2:
        return {int(v): (float(x), float(y)) for v, (x, y) in placed.items()}
    xy = _apart(np.array([placed[v] for v in range(len(net))]))
    return {v: (float(x), float(y)) for v, (x, y) in enumerate(xy)}


@drawn
def walk_drawing(
    graph: Any,
    walk: Sequence[int],
    choices: Mapping[int, tuple[str, float]],
    shares: Sequence[float],
    *,
    positions: Positions | None = None,
    title: str = "One walk, and where it may go now",
    label: str = "",
) -> go.Figure:
    """A walk on a small undirected graph: its last steps, the choices of the next one, and how often vertices are met.

    Args:
        graph: with ``indptr`` and ``indices`` on the CPU, at most 80 vertices.
        walk: global ids so far, the root first.
        choices: neighbour -> (kind of step, probability), for the step to come; empty when the walk is over.
        shares: per vertex, its share of the vertices of many walks (0..1), which fills it.
        positions: from :func:`graph_layout`. label: graph, walks, origin.

    Raises:
        ValueError: the graph is too large, ``walk`` is empty, ``shares`` is of another length, or a kind is unknown.
    """
    where = graph_layout(graph) if positions is None else positions
    if not len(walk):
        raise ValueError("walk must hold at least its root (got none)")
    if len(shares) != graph.num_nodes:
        raise ValueError(f"shares must have one entry per vertex ({graph.num_nodes}, got {len(shares)})")
    unknown = sorted({kind for kind, _ in choices.values()} - set(KINDS))
    if unknown:
        raise ValueError(f"choices must be of the kinds {list(KINDS)} (got {unknown})")
    fig = Sketch()
    x, y = _segments(_edges(graph), where)
    _lines(fig, "edge", x, y, color=palette.FAINT, width=1, legend=False)
    recent = [(int(a), int(b)) for a, b in itertools.pairwise(walk[-TAIL - 1 :]) if a != b]
    now = int(walk[-1])
    for kind, color in KINDS.items():
        for u, (of, share) in choices.items():
            if of == kind:
                # The arrow of the last step lies on the straight line back.
                back = bool(recent) and recent[-1] == (u, now)
                x, y = _bent(where[now], where[u]) if back else _segments([(now, u)], where)
                _lines(fig, kind, x, y, color=color, width=2 + 12 * share, legend=False)
        fig.add_scatter(
            name=f"{kind}: {percent(sum(c[1] for c in choices.values() if c[0] == kind))}",
            x=[None], y=[None], mode="lines", line={"color": color, "width": 6}, showlegend=bool(choices),
        )  # fmt: skip
    _steps(fig, recent, where)
    _vertices(fig, graph, where, np.asarray(shares, dtype=float), choices)
    for name, v, line in (
        ("stands here", now, 4),
        ("came from", int(walk[-2]) if len(walk) > 1 else None, 2),
    ):
        fig.add_scatter(
            name=name,
            x=[] if v is None else [where[v][0]],
            y=[] if v is None else [where[v][1]],
            mode="markers",
            marker={"symbol": "circle-open", "size": 30, "color": palette.LOST, "line": {"width": line}},
            hoverinfo="skip",
            showlegend=v is not None,
        )
    finish(fig, title, label, height=560, hovermode="closest", margin={"l": 12, "r": 12, "b": 12})
    xy = np.array(list(where.values()))
    low, high = xy.min(axis=0), xy.max(axis=0)
    pad = 0.06 * np.maximum(high - low, 0.5)
    fig.update_xaxes(visible=False, range=[low[0] - pad[0], high[0] + pad[0]])
    fig.update_yaxes(visible=False, range=[low[1] - pad[1], high[1] + pad[1]])
    return fig


def _bent(start: tuple[float, float], end: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """A bow beside the straight line between two points."""
    t = np.linspace(0.0, 1.0, 13)
    across, up = end[0] - start[0], end[1] - start[1]
    aside = 4 * _BOW * t * (1 - t)
    return start[0] + t * across - aside * up, start[1] + t * up + aside * across


@drawn
def step_kinds(
    observed: Mapping[str, float],
    expected: Mapping[str, float],
    reference: Mapping[str, float] | None = None,
    *,
    label: str = "",
) -> go.Figure:
    """Share of return, triangle and away steps: bars of what was sampled, marks of the exact expectation.

    Args:
        observed, expected: kind -> share of the steps (0..1). reference: the same for an even choice (p = q = 1).

    Raises:
        ValueError: the kinds of the three differ, or one is unknown.
    """
    kinds = list(expected)
    if set(kinds) - set(KINDS) or any(list(other) != kinds for other in (observed, reference or expected)):
        raise ValueError(f"observed, expected and reference must have the same kinds, out of {list(KINDS)}")
    fig = Sketch(
        go.Bar(
            name="sampled",
            x=kinds,
            y=[100 * observed[kind] for kind in kinds],
            marker={"color": [KINDS[kind] for kind in kinds]},
            text=[f"{percent(observed[kind], 1)}" for kind in kinds],
            textposition="inside",
            insidetextanchor="start",
            insidetextfont={"color": [palette.text_on(KINDS[kind]) for kind in kinds]},
            hovertemplate="%{x}: %{y:.2f} % sampled<extra></extra>",
        )
    )
    _marks(fig, kinds, [expected[k] for k in kinds], [reference[k] for k in kinds] if reference else None, 34)
    finish(fig, "Back, round or away", label, height=560)
    fig.update_xaxes(title_text="kind of step, seen from the vertex before")
    fig.update_yaxes(title_text="share of the steps (%)", range=[0, 105])
    return fig


@drawn
def visit_shares(
    names: Sequence[str],
    observed: Any,
    expected: Any,
    reference: Any = None,
    *,
    distances: Any = None,
    title: str = "How often each vertex is met",
    axis: str = "vertex",
    label: str = "",
) -> go.Figure:
    """Share of all sampled vertices that falls to each vertex: bars of what was sampled, marks of the expectation.

    Args:
        names: of the vertices, in the order shown. observed, expected: shares (0..1) in that order.
        reference: expectation of an even choice (p = q = 1), or None.
        distances: from the root in steps, in that order and ascending: groups, darker the nearer.
        label: graph, walks, origin.

    Raises:
        ValueError: there is no vertex, or the sequences differ in length.
    """
    if not len(names):
        raise ValueError("names must hold at least one vertex (got none)")
    given = [names, observed, expected, *(other for other in (reference, distances) if other is not None)]
    if len({len(one) for one in given}) > 1:
        raise ValueError(f"all sequences must be of one length (got {[len(one) for one in given]})")
    x: list[Any] = list(names)
    color: Any = palette.MUTED
    if distances is not None:
        x = [[f"{far} step{'s' * (far > 1)}" if far else "root" for far in map(int, distances)], list(names)]
        farthest = max(1, *map(int, distances))
        # The palest shade but one is the lightest that shows on white.
        color = [palette.ACTIVITY[5 - int(3 * far / farthest)] for far in distances]
    bars = go.Bar(
        name="sampled", x=x, y=100 * np.asarray(observed, dtype=float), marker={"color": color},
        hovertemplate="vertex %{x}: %{y:.2f} % sampled<extra></extra>",
    )  # fmt: skip
    fig = Sketch(bars)
    _marks(fig, x, expected, reference, max(6, min(26, 700 // max(1, len(names)))))
    finish(fig, title, label, height=400)
    fig.update_xaxes(title_text=axis, type="category" if distances is None else "multicategory")
    fig.update_yaxes(title_text="share of the sampled vertices (%)", rangemode="tozero")
    return fig


@drawn
def walk_lengths(
    lengths: Sequence[int], stop: float, *, longest: int | None = None, label: str = ""
) -> go.Figure:
    """How many walks have each length, and how many would if every vertex were the last with probability ``stop``.

    Args:
        lengths: vertices of each walk, its root included. stop: probability of ending at a vertex, in (0, 1].
        longest: the last length drawn; the 99th percentile of the geometric law when None.

    Raises:
        ValueError: no walk, or ``stop`` outside (0, 1].
    """
    walks = np.asarray(lengths)
    if not walks.size or walks.min() < 1:
        raise ValueError("lengths must hold at least one walk of at least one vertex")
    if not 0 < stop <= 1:
        raise ValueError(f"stop must lie in (0, 1] (got {stop})")
    if longest is None:
        longest = 2 if stop == 1 else max(2, int(np.ceil(np.log(0.01) / np.log1p(-stop))))
    x = np.arange(1, longest + 1)
    fig = Sketch()
    fig.add_bar(
        name="sampled", x=x, y=np.bincount(walks, minlength=longest + 1)[1 : longest + 1],
        marker={"color": palette.HOPS[4]}, hovertemplate="%{x} vertices: %{y:,} walks<extra></extra>",
    )  # fmt: skip
    fig.add_scatter(
        name="geometric law", x=x, y=walks.size * stop * (1 - stop) ** (x - 1.0), mode="lines+markers",
        line={"color": palette.INK, "width": 1.5}, marker={"size": 5},
        hovertemplate="%{x} vertices: %{y:,.1f} walks expected<extra></extra>",
    )  # fmt: skip
    mean = f"mean {walks.mean():.2f}, by the law {1 / stop:.2f}"
    left = f"{int((walks > longest).sum()):,} longer than {longest}"
    finish(
        fig,
        f"Lengths of walks that stop with probability {stop:g}",
        " · ".join(filter(None, [label, mean, left])),
    )
    fig.update_xaxes(title_text="vertices of the walk, root included")
    fig.update_yaxes(title_text="walks")
    return fig


@drawn
def layer_links(present: Any, *, title: str, label: str = "") -> go.Figure:
    """Which vertices of a layer are neighbours of which transits: a dark cell per edge.

    Args:
        present: [transits, vertices of the layer], NumPy or CuPy; not 0 where there is an edge.
        title: the rule. label: graph, origin.

    Raises:
        ValueError: not two-dimensional.
    """
    cells = host_array("present", present) != 0
    if cells.ndim != 2:
        raise ValueError(f"present must be two-dimensional (got shape {cells.shape})")
    fig = Sketch(
        go.Heatmap(
            z=cells.astype(np.int8), zmin=0, zmax=1, colorscale=[[0, palette.GRID], [1, palette.HOPS[0]]],
            showscale=False, xgap=1, ygap=1, hovertemplate="transit %{y}, sampled vertex %{x}<extra></extra>",
        )
    )  # fmt: skip
    alone = int((cells.sum(axis=0) == 0).sum())
    count = int(cells.sum())
    edges = (
        f"{count:,} edge{'s' * (count != 1)}, {alone:,} of {cells.shape[1]:,} sampled vertices without any"
    )
    finish(fig, title, " · ".join(part for part in (label, edges) if part), height=400, showlegend=False)
    fig.update_xaxes(title_text="sampled vertex (slot)", showgrid=False)
    fig.update_yaxes(title_text="transit (slot)", showgrid=False, autorange="reversed")
    return fig


def _edges(graph: Any) -> list[tuple[int, int]]:
    """Distinct undirected edges without self-loops, as (smaller, larger)."""
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(np.asarray(graph.indptr)))
    pairs = zip(np.asarray(graph.indices).tolist(), targets.tolist(), strict=True)
    return sorted({(min(u, v), max(u, v)) for u, v in pairs if u != v})


def _lines(fig: Sketch, name: str, x: Any, y: Any, *, color: str, width: float, legend: bool) -> None:
    fig.add_scatter(
        name=name,
        x=x,
        y=y,
        mode="lines",
        line={"color": color, "width": width},
        hoverinfo="skip",
        showlegend=legend,
    )


def _steps(fig: Sketch, steps: Sequence[tuple[int, int]], where: Positions) -> None:
    x, y = _segments(steps, where)
    fig.add_scatter(
        name=f"last {len(steps)} steps" if len(steps) > 1 else "last step", x=x, y=y, mode="lines+markers",
        line={"color": palette.INK, "width": 1.6}, hoverinfo="skip", showlegend=bool(steps),
        marker={
            "symbol": "arrow", "angleref": "previous", "size": np.tile([0, 12, 0], len(steps)), "standoff": 12,
            "color": palette.INK, "line": {"width": 0},
        },
    )  # fmt: skip


def _vertices(
    fig: Sketch, graph: Any, where: Positions, shares: Any, choices: Mapping[int, tuple[str, float]]
) -> None:
    most = max(float(shares.max()), 1e-9)
    ramp = np.minimum(5, (6 * shares / most).astype(int))
    going = {u: f"<br>{kind}, probability {percent(share, 1)}" for u, (kind, share) in choices.items()}
    fig.add_scatter(
        name="vertex",
        x=[where[v][0] for v in range(graph.num_nodes)],
        y=[where[v][1] for v in range(graph.num_nodes)],
        mode="markers+text",
        text=[str(v) for v in range(graph.num_nodes)],
        textfont={"size": 10, "color": [palette.text_on(palette.ACTIVITY[i]) for i in ramp]},
        customdata=[[100 * float(shares[v]), going.get(v, "")] for v in range(graph.num_nodes)],
        marker={
            "size": 23, "color": 100 * shares, "cmin": 0, "cmax": 100 * most, "colorscale": _SCALE,
            "line": {"width": 1, "color": palette.MUTED},
            "colorbar": {"title": {"text": "met (%)"}, "thickness": 12, "len": 0.6, "outlinewidth": 0},
        },
        hovertemplate="<b>vertex %{text}</b><br>%{customdata[0]:.2f} % of the sampled%{customdata[1]}<extra></extra>",
        showlegend=False,
    )  # fmt: skip


def _marks(fig: Sketch, x: Sequence[Any], expected: Any, reference: Any, size: float) -> None:
    """Short lines across the bars: the expectation, and that of an even choice."""
    for name, shares, color, dash in (
        ("p = q = 1", reference, palette.MUTED, 1.5),
        ("expected", expected, palette.INK, 3),
    ):
        if shares is not None:
            fig.add_scatter(
                name=name, x=x, y=[100 * float(s) for s in shares], mode="markers",
                marker={"symbol": "line-ew", "size": size, "line": {"width": dash, "color": color}},
                hovertemplate=f"{name}: %{{y:.2f}} %<extra></extra>",
            )  # fmt: skip
