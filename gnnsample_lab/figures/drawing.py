"""A k-hop sample drawn as a graph: small neighbourhoods, hop by hop."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from gnnsample_lab.figures import palette
from gnnsample_lab.figures.sketch import Sketch, drawn
from gnnsample_lab.figures.style import finish
from gnnsample_lab.readable import noun

Positions = dict[int, tuple[float, float]]

#: Beyond this many vertices a drawing explains nothing; surplus unsampled neighbours are left out first.
MAX_VERTICES = 400
# Up to this many vertices are large enough to carry their id.
_NAMED = 70
# Pixels of a vertex that holds its id, and how many digits fit.
_WIDE, _FITTING_DIGITS = 25, 3
_DRAWN_PX = np.array([460.0, 250.0])
"""About the pixels that a drawing has from its first to its last vertex, in a panel of least width."""


def _first_reached(picks: Sequence[Any]) -> dict[int, int]:
    """Vertex -> 0 for seeds, h + 1 for a vertex first picked in hop h (ids global)."""
    reached = {int(v): 0 for v in picks[0].frontier}
    for hop, p in enumerate(picks):
        for v in np.asarray(p.neighbors).tolist():
            reached.setdefault(v, hop + 1)
    return reached


def _edges(picks: Sequence[Any]) -> dict[tuple[int, int], int]:
    """(source, target) -> the first hop that sampled it."""
    edges: dict[tuple[int, int], int] = {}
    for hop, p in enumerate(picks):
        targets = np.repeat(np.asarray(p.frontier), np.asarray(p.counts)).tolist()
        for u, v in zip(np.asarray(p.neighbors).tolist(), targets, strict=True):
            edges.setdefault((int(u), int(v)), hop)
    return edges


def _unsampled(graph: Any, picks: Sequence[Any], room: int) -> list[tuple[int, int]]:
    """Unsampled in-edges of expanded vertices, as (source, target), dealt out evenly up to ``room``."""
    taken = _edges(picks)
    per_target: list[list[tuple[int, int]]] = []
    for v in dict.fromkeys(int(v) for p in picks for v in np.asarray(p.frontier).tolist()):
        start, end = int(graph.indptr[v]), int(graph.indptr[v + 1])
        sources = np.asarray(graph.indices[start : min(end, start + room + len(taken))])
        left = [(int(u), v) for u in dict.fromkeys(sources.tolist()) if (int(u), v) not in taken and u != v]
        if left:
            per_target.append(left)
    edges: list[tuple[int, int]] = []
    depth = 0
    while len(edges) < room and any(depth < len(left) for left in per_target):
        edges += [left[depth] for left in per_target if depth < len(left)]
        depth += 1
    return edges[:room]


def sample_layout(
    picks: Sequence[Any], graph: Any = None, *, max_unsampled: int = 60, seed: int = 0
) -> Positions:
    """Positions of all vertices of a sample, the same for every hop that is shown of it.

    Vertices start on rings by the hop that reached them, seeds in the middle, and NetworkX's force-directed
    layout lets neighbours pull together.

    Args:
        picks: the hops of a sample (``frontier``, ``counts``, ``neighbors``; ids global).
        graph: with ``indptr`` and ``indices``, also places neighbours that were not sampled. max_unsampled:
            at most that many of them. seed: of the layout.

    Returns:
        vertex id -> (x, y).

    Raises:
        ValueError: if the sample is too large to draw.
    """
    import networkx as nx

    reached, edges = _first_reached(picks), _edges(picks)
    if len(reached) > MAX_VERTICES:
        raise ValueError(
            f"picks must reach at most {MAX_VERTICES} vertices to be drawn (got {len(reached):,}): "
            "take fewer seeds, hops or a smaller fanout"
        )
    net = nx.Graph()
    net.add_nodes_from(reached)
    net.add_edges_from((u, v) for u, v in edges if u != v)
    faint = _unsampled(graph, picks, max_unsampled) if graph is not None else []
    net.add_edges_from(faint)
    anchor = _rings(net, reached)
    if len(net) < 3:
        return anchor
    placed = nx.spring_layout(net, pos=anchor, k=2.6 / np.sqrt(len(net)), iterations=120, seed=seed)
    vertices = list(placed)
    xy = _apart(np.array([placed[v] for v in vertices]))
    return {int(v): (float(x), float(y)) for v, (x, y) in zip(vertices, xy, strict=True)}


# Pixels of a narrow panel's plot, wider than high, and how far apart the centres of two vertices lie in it: a disc, and
# its id above it.
_PLOT, _APART = (500.0, 260.0), 34.0


def _apart(xy: npt.NDArray[np.float64], *, rounds: int = 150) -> npt.NDArray[np.float64]:
    """Push apart vertices that would lie on each other in a panel: the layout knows neither its shape nor markers."""
    low, high = xy.min(axis=0), xy.max(axis=0)
    unit = (xy - low) / np.maximum(high - low, 1e-9) * _PLOT
    least = min(_APART, 0.6 * float(np.sqrt(_PLOT[0] * _PLOT[1] / len(xy))))
    for _ in range(rounds):
        # What was pushed beyond the panel is drawn in again with all the rest.
        unit = (unit - unit.min(axis=0)) / np.maximum(np.ptp(unit, axis=0), 1e-9) * _PLOT
        # A matrix for each coordinate: sums over an axis of two are what takes longest.
        across, up = (unit[:, None, i] - unit[None, :, i] for i in (0, 1))
        distance = np.sqrt(across**2 + up**2)
        near = (distance < least) & (distance > 0)
        if not near.any():
            break
        push = np.where(near, (least - distance) / np.maximum(distance, 1e-9) / 2, 0.0)
        unit = unit + np.stack([(across * push).sum(axis=1), (up * push).sum(axis=1)], axis=1)
    return unit / _PLOT * (high - low) + low


def _rings(net: Any, reached: Mapping[int, int]) -> Positions:
    """Start positions: rings by hop, each vertex at the mean angle of whoever reached it."""
    angle: dict[int, float] = {}
    seeds = [v for v, ring in reached.items() if ring == 0]
    position: Positions = {}
    for i, v in enumerate(seeds):
        angle[v] = 2 * np.pi * i / len(seeds)
        radius = 0.0 if len(seeds) == 1 else 0.25
        position[v] = (radius * np.cos(angle[v]), radius * np.sin(angle[v]))
    rings: dict[int, list[int]] = {}
    outer = max(reached.values(), default=0) + 1
    for v in net:
        ring = reached.get(v, outer)
        if ring:
            rings.setdefault(ring, []).append(v)
    for ring in sorted(rings):
        members = sorted(
            rings[ring], key=lambda v: (min((angle[u] for u in net[v] if u in angle), default=0.0), v)
        )
        for i, v in enumerate(members):
            angle[v] = 2 * np.pi * (i + 0.5 * (ring % 2)) / len(members)
            position[v] = (ring * np.cos(angle[v]), ring * np.sin(angle[v]))
    return position


@drawn
def sample_drawing(
    picks: Sequence[Any],
    hop: int | None = None,
    *,
    graph: Any = None,
    graph_title: str = "",
    label: str = "",
    positions: Mapping[int, tuple[float, float]] | None = None,
    lost: Sequence[tuple[int, int]] = (),
    max_unsampled: int = 60,
) -> go.Figure:
    """A sample as a drawing: seeds, sampled edges pointing to the vertex that asked, the rest of the sample
    hidden.

    Args:
        picks: the hops of a sample, or a mini-batch with ``picks``; ids global, arrays on the CPU.
        hop: show hops up to this one (counted from 0; -1 shows the seeds alone); None shows all.
        graph: with ``indptr`` and ``indices``, neighbours that were not sampled are drawn faintly.
        graph_title: for the title, ``graph.title`` by default. label: origin label of the sample, e.g.
            "sampled on CPU".
        positions: from :func:`sample_layout`, so that vertices stay where they are while ``hop`` changes.
        lost: (hop, vertex) tasks that were lost, ringed in vermilion.
        max_unsampled: at most that many faint neighbours.

    Raises:
        ValueError: if ``hop`` is out of range or the sample is too large to draw.
    """
    picks = list(getattr(picks, "picks", picks))
    last = len(picks) - 1 if hop is None else hop
    if not -1 <= last < len(picks):
        raise ValueError(f"hop must lie in -1..{len(picks) - 1} (got {hop})")
    where = (
        dict(positions) if positions is not None else sample_layout(picks, graph, max_unsampled=max_unsampled)
    )
    reached = {v: ring for v, ring in _first_reached(picks).items() if ring <= last + 1}
    sampled = {edge: h for edge, h in _edges(picks).items() if h <= last}
    size = _size(reached)
    fig = Sketch()
    expanded = {int(v) for p in picks[: last + 1] for v in np.asarray(p.frontier).tolist()}
    faint = _unsampled(graph, picks, max_unsampled) if graph is not None else []
    faint = [(u, v) for u, v in faint if v in expanded and u in where and v in where]
    _faint_edges(fig, faint, reached, where)
    for h in range(len(picks)):
        _arrows(fig, [edge for edge, at in sampled.items() if at == h], where, h, size / 2)
    degrees = _degree_text(graph)
    # Of the whole sample, so that no id moves while the drawing grows.
    sides = _sides(where, list(_first_reached(picks))) if where and len(reached) <= _NAMED else {}
    for ring in range(len(picks) + 1):
        members = [v for v, r in reached.items() if r == ring]
        _vertices(fig, members, where, ring, len(reached), size, degrees, sides)
    ringed = [v for h, v in lost if v in where and h <= last + 1]
    fig.add_scatter(
        name="lost task",
        mode="markers",
        x=[where[v][0] for v in ringed],
        y=[where[v][1] for v in ringed],
        marker={
            "symbol": "circle-open",
            "size": 1.5 * size,
            "color": palette.LOST,
            "line": {"width": 3},
        },
        hoverinfo="skip",
        showlegend=bool(ringed),
    )
    title = graph_title or getattr(graph, "title", "")
    vertices, edges = noun(len(reached), "vertex", "vertices"), noun(len(sampled), "edge")
    count = f"{len(reached):,} {vertices}, {len(sampled):,} distinct {edges} sampled"
    shown = "seeds" if last < 0 else f"after {palette.hop_name(last)} of {len(picks)}"
    subtitle = " · ".join(part for part in (title, count, label) if part)
    finish(
        fig,
        f"The sample, {shown}",
        subtitle,
        height=560,
        hovermode="closest",
        margin={"l": 12, "r": 12, "b": 12},
    )
    xy = np.array(list(where.values())) if where else np.zeros((1, 2))
    low, high = xy.min(axis=0), xy.max(axis=0)
    pad = np.array([0.06, 0.1]) * np.maximum(high - low, 0.5)  # above, there may be an id
    fig.update_xaxes(visible=False, range=[low[0] - pad[0], high[0] + pad[0]])
    fig.update_yaxes(visible=False, range=[low[1] - pad[1], high[1] + pad[1]])
    return fig


def _sides(where: Mapping[int, tuple[float, float]], named: Sequence[int]) -> dict[int, str]:
    """Above or below: on which side of its vertex each id covers least of other vertices and ids."""
    xy = np.array([where[v] for v in where])
    span = np.maximum(xy.max(axis=0) - xy.min(axis=0), 0.5)
    place = {v: np.array(at) / span * _DRAWN_PX for v, at in where.items()}
    # Boxes in the way: all vertices, then the ids as they are placed. A box: centre, half of its size.
    count = len(named)
    centres, halves = np.full((2 * count, 2), np.inf), np.full((2 * count, 2), 9.0)
    centres[:count] = [place[v] for v in named]
    found = {}
    for number, v in enumerate(named):
        half = np.array([3.1 * len(str(v)), 6.0])
        sides = centres[number] + np.array([[0.0, 16.0], [0.0, -16.0]])
        with np.errstate(invalid="ignore"):
            overlaps = np.maximum(half + halves - np.abs(centres - sides[:, None]), 0).prod(axis=2)
        overlaps[:, number] = 0
        best = int(np.argmin(overlaps.sum(axis=1)))
        found[v] = ("top center", "bottom center")[best]
        centres[count + number], halves[count + number] = sides[best], half
    return found


def _degree_text(graph: Any) -> Any:
    if graph is None:
        return lambda v: ""
    return lambda v: f"<br>in-degree {int(graph.indptr[v + 1] - graph.indptr[v]):,}"


def _segments(
    edges: Sequence[tuple[int, int]], where: Mapping[int, tuple[float, float]]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Lines from source to target, broken by NaN between edges; three points per edge."""
    points = np.full((len(edges), 3, 2), np.nan)
    for i, (u, v) in enumerate(edges):
        points[i, 0], points[i, 1] = where[u], where[v]
    return points[:, :, 0].ravel(), points[:, :, 1].ravel()


def _faint_edges(
    fig: Sketch,
    edges: Sequence[tuple[int, int]],
    reached: Mapping[int, int],
    where: Mapping[int, tuple[float, float]],
) -> None:
    x, y = _segments(edges, where)
    fig.add_scatter(
        name="not sampled",
        legendgroup="not sampled",
        x=x,
        y=y,
        mode="lines",
        line={"color": palette.GRID, "width": 1},
        hoverinfo="skip",
        showlegend=False,
    )
    others = list(dict.fromkeys(u for u, _ in edges if u not in reached))
    fig.add_scatter(
        name="neighbour, not sampled",
        legendgroup="not sampled",
        x=[where[v][0] for v in others],
        y=[where[v][1] for v in others],
        mode="markers",
        marker={"size": 6, "color": palette.FAINT},
        text=[str(v) for v in others],
        hovertemplate="vertex %{text}, not sampled<extra></extra>",
        showlegend=bool(others),
    )


def _arrows(
    fig: Sketch,
    edges: Sequence[tuple[int, int]],
    where: Mapping[int, tuple[float, float]],
    hop: int,
    standoff: float,
) -> None:
    x, y = _segments(edges, where)
    fig.add_scatter(
        name=f"sampled in {palette.hop_name(hop)}",
        x=x,
        y=y,
        mode="lines+markers",
        line={"color": palette.hop_color(hop), "width": 1.6},
        opacity=0.75,
        marker={
            "symbol": "arrow",
            "angleref": "previous",
            "size": np.tile([0, 11, 0], len(edges)),
            "standoff": standoff,
            "color": palette.hop_color(hop),
            "line": {"width": 0},
        },
        hoverinfo="skip",
        showlegend=False,
    )


def _size(shown: Collection[int]) -> int:
    """Marker size in pixels: room for the id while vertices are few and ids short."""
    total = len(shown)
    if total > _NAMED:
        return 13 if total <= 160 else 9
    return _WIDE if len(str(max(shown, default=0))) <= _FITTING_DIGITS else 16


def _vertices(
    fig: Sketch,
    members: Sequence[int],
    where: Mapping[int, tuple[float, float]],
    ring: int,
    total: int,
    size: int,
    degrees: Any,
    sides: Mapping[int, str],
) -> None:
    seed = ring == 0
    color = palette.INK if seed else palette.hop_color(ring - 1)
    named = total <= _NAMED
    # Ids that vertices do not hold stand above them, in ink, or below them where there is less in the way.
    inside = [size >= _WIDE and len(str(v)) <= _FITTING_DIGITS for v in members]
    ink = palette.text_on(color)
    fig.add_scatter(
        name="seed" if seed else f"reached in {palette.hop_name(ring - 1)}",
        x=[where[v][0] for v in members],
        y=[where[v][1] for v in members],
        mode="markers+text" if named else "markers",
        text=[str(v) for v in members],
        textposition=[
            "middle center" if fits else sides.get(v, "top center")
            for v, fits in zip(members, inside, strict=True)
        ],
        textfont={"size": 9.5, "color": [ink if fits else palette.INK for fits in inside]},
        customdata=[degrees(v) for v in members],
        marker={
            "symbol": "square" if seed else "circle",
            "size": size + 2 if seed else size,
            "color": color,
            "line": {"width": 1.5, "color": "white"},
        },
        hovertemplate="<b>vertex %{text}</b>%{customdata}<extra></extra>",
        showlegend=bool(members),
    )
