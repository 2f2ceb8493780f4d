"""A graph in parts, drawn: who owns which vertex, what travels between ranks by method, what copies of lists save.

All functions take plain numbers; partitions and traffic come from :mod:`gnnsample_lab.distributed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab.checks import host_array
from gnnsample_lab.figures import palette
from gnnsample_lab.figures.drawing import Positions, _segments
from gnnsample_lab.figures.samples import _edges, graph_layout
from gnnsample_lab.figures.sketch import Sketch, drawn, grid
from gnnsample_lab.figures.style import empty_figure, finish, write_beside
from gnnsample_lab.readable import percent

_SYMBOLS = ("circle", "square", "diamond", "hexagon2", "triangle-up", "star", "cross", "pentagon")
_SCALE = [[i / 5, color] for i, color in enumerate(palette.ACTIVITY)]
HOST = "host"


@drawn
def partition_drawing(
    graph: Any, owner: Any, *, positions: Positions | None = None, title: str = "", label: str = ""
) -> go.Figure:
    """A small undirected graph by part: edges within a part are faint, those that are cut are vermilion.

    Args:
        graph: with ``indptr`` and ``indices`` on the CPU, at most 80 vertices.
        owner: part of each vertex, integers ``[N]``.
        positions: from :func:`graph_layout`, so that two partitions of one graph can be compared.
        title: how the parts were found. label: graph and origin.

    Raises:
        ValueError: the graph is too large, or ``owner`` has another length.
    """
    where = graph_layout(graph) if positions is None else positions
    parts = host_array("owner", owner).astype(np.int64)
    if len(parts) != graph.num_nodes:
        raise ValueError(f"owner must have one entry per vertex ({graph.num_nodes}, got {len(parts)})")
    edges = _edges(graph)
    cut = [(u, v) for u, v in edges if parts[u] != parts[v]]
    inside = [(u, v) for u, v in edges if parts[u] == parts[v]]
    fig = Sketch()
    for name, some, color, width in (
        (f"inside a part: {len(inside)}", inside, palette.FAINT, 1.2),
        (f"cut: {len(cut)}", cut, palette.LOST, 1.8),
    ):
        x, y = _segments(some, where)
        fig.add_scatter(
            name=name, x=x, y=y, mode="lines", line={"color": color, "width": width}, hoverinfo="skip"
        )
    for part in range(int(parts.max(initial=0)) + 1):
        members = np.flatnonzero(parts == part).tolist()
        color = palette.hop_color(part)
        fig.add_scatter(
            name=f"part {part}: {len(members)}",
            x=[where[v][0] for v in members],
            y=[where[v][1] for v in members],
            mode="markers+text",
            text=[str(v) for v in members],
            textfont={"size": 9.5, "color": palette.text_on(color)},
            marker={
                "symbol": _SYMBOLS[part % len(_SYMBOLS)], "size": 22, "color": color,
                "line": {"width": 1.2, "color": "white"},
            },
            hovertemplate="vertex %{text}, part " + str(part) + "<extra></extra>",
        )  # fmt: skip
    share = len(cut) / max(1, len(edges))
    subtitle = " · ".join(filter(None, [label, f"{len(cut)} of {len(edges)} edges cut ({percent(share)})"]))
    finish(
        fig, title or "A graph in parts", subtitle, height=520, hovermode="closest",
        margin={"l": 12, "r": 12, "b": 12},
    )  # fmt: skip
    fig.update_xaxes(visible=False)
    fig.update_yaxes(visible=False)
    return fig


@drawn
def traffic_matrix(
    matrices: Mapping[str, Any], *, host: Mapping[str, Any] | None = None, label: str = ""
) -> go.Figure:
    """Bytes of one mini-batch by who got them (rows) and who had them (columns), a field for each method.

    Args:
        matrices: method -> numbers ``[P, P]``: bytes that came to rank i from rank j, or that i read from j.
        host: method -> numbers ``[P]``: bytes that rank i read from host memory; a further column where any are there.
        label: graph, seeds and origin.

    Raises:
        ValueError: no method, or a matrix that is not square.
    """
    if not matrices:
        raise ValueError("matrices must name at least one method (got none)")
    columns = min(4, len(matrices))
    rows = -(-len(matrices) // columns)
    fig = grid(rows, columns, subplot_titles=list(matrices), horizontal_spacing=0.06, vertical_spacing=0.24)
    fields = {}
    for method, given in matrices.items():
        matrix = np.asarray(given, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"matrices[{method!r}] must be square (got shape {matrix.shape})")
        from_host = np.asarray((host or {}).get(method, np.zeros(len(matrix))), dtype=np.float64)
        fields[method] = np.column_stack([matrix, from_host]) if from_host.any() else matrix
    top = max(float(field.max(initial=0)) for field in fields.values()) or 1.0
    for i, (method, field) in enumerate(fields.items()):
        # "from 0" has no room below four narrow columns and the host's: the axis has the word once.
        froms, tos = [str(r) for r in range(len(field))], [f"to {r}" for r in range(len(field))]
        # What a rank has itself does not travel.
        own = np.eye(*field.shape) > 0
        fig.add_heatmap(
            x=[*froms, HOST][: field.shape[1]],
            y=tos,
            z=np.where(own, np.nan, np.sqrt(field / top)),
            zmin=0,
            zmax=1,
            colorscale=_SCALE,
            showscale=False,
            xgap=2,
            ygap=2,
            customdata=field / 1e3,
            text=np.where(own, "", np.vectorize(_kilobytes)(field)),
            texttemplate="%{text}",
            hovertemplate=f"{method}: %{{y}}, from %{{x}}<br>%{{customdata:,.1f}} kB<extra></extra>",
            row=i // columns + 1,
            col=i % columns + 1,
        )
    finish(
        fig,
        "Who gets how much from whom, rank by rank (kB)",
        label,
        height=130 + 190 * rows,
        showlegend=False,
        margin_t=120,
    )
    # Categories, for plotly would take their names for numbers.
    title = {"text": "from", "standoff": 2, "font": {"size": 12}}
    fig.update_xaxes(showgrid=False, ticks="", tickangle=0, type="category", title=title)
    fig.update_yaxes(showgrid=False, ticks="", autorange="reversed")
    fig.update_annotations(font={"size": 13})
    return fig


def _kilobytes(value: float) -> str:
    if value == 0:
        return "0"
    if value < 50:
        return f"{value / 1e3:.2g}"  # a few bytes are not 0.0 kB
    return f"{value / 1e3:,.1f}" if value < 1e5 else f"{value / 1e3:,.0f}"


@drawn
def traffic_kinds(
    kinds: Mapping[str, Mapping[str, float] | None], *, ideal: float | None = None, label: str = ""
) -> go.Figure:
    """Bytes of one mini-batch over all ranks, by method and by what they are.

    Args:
        kinds: method -> kind of traffic -> bytes; None for a method that has not been counted yet.
        ideal: bytes of the picked ids that other ranks own, marked by a line.
        label: graph, seeds and origin.
    """
    fig = Sketch()
    methods, found = list(kinds), {method: of or {} for method, of in kinds.items()}
    order = [*palette.TRAFFIC, *sorted({k for of in found.values() for k in of} - set(palette.TRAFFIC))]
    totals = np.array([sum(found[m].values()) for m in methods], dtype=np.float64)
    # One bar that is many times as long as the others would leave nothing of them to see.
    rest = np.sort(totals)[:-1]
    most = float(totals.max(initial=0))
    most = 2 * float(rest[-1]) if len(rest) and most > 4 * rest[-1] > 0 else most
    cut = totals > most
    # A shorter bar keeps the shares of its kinds, and its hatching tells it from those that are drawn in full.
    drawn = np.where(cut, most / np.maximum(totals, 1), 1.0)
    for kind in order:
        values = np.array([found[m].get(kind, 0) for m in methods], dtype=np.float64)
        if values.any():
            fig.add_bar(
                name=kind, y=methods, x=values * drawn / 1e3, orientation="h", customdata=values / 1e3,
                marker={
                    "color": palette.TRAFFIC.get(kind, palette.MUTED), "line": {"width": 0},
                    "pattern": {"shape": np.where(cut, "/", "").tolist(), "fillmode": "overlay", "fgcolor": "white",
                                "solidity": 0.25, "size": 9},
                },
                hovertemplate=f"%{{y}}, {kind}: %{{customdata:,.1f}} kB<extra></extra>",
            )  # fmt: skip
    labels = [
        "  not counted yet"
        if kinds[m] is None
        else f"  {_kilobytes(t)} kB" + (", cut short here" if is_cut else "")
        for m, t, is_cut in zip(methods, totals, cut, strict=True)
    ]
    ends = np.minimum(totals, most)
    if ideal is not None:
        # A label that the line would run through stands behind the line.
        ends = np.where((ends <= ideal) & (ideal < ends + 0.2 * most), ideal, ends)
    write_beside(fig, methods, ends / 1e3, labels)
    if ideal is not None:
        fig.add_scatter(
            name=f"remote picks alone: {_kilobytes(ideal)} kB", x=[ideal / 1e3] * len(methods), y=methods, mode="lines",
            line={"color": palette.INK, "dash": "dash", "width": 1.8}, hoverinfo="skip",
        )  # fmt: skip
    finish(fig, "Bytes of one mini-batch, all ranks", label, height=460, barmode="stack")
    fig.update_xaxes(title_text="came to a rank (kB)", range=[0, most / 1e3 * 1.3 or 1.0])
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig


@drawn
def traffic_curves(
    x: Any,
    volumes: Mapping[str, Any],
    ideal: Any,
    *,
    axis: str,
    marker: float | None = None,
    title: str = "Volume by method",
    label: str = "",
) -> go.Figure:
    """Bytes of one mini-batch over what is varied, by method, above the bytes of the remote picks alone.

    Args:
        x: numbers ``[k]``, ascending. volumes: method -> bytes ``[k]``. ideal: bytes ``[k]``.
        axis: what ``x`` is. marker: a value of ``x`` to mark. label: graph and origin.

    Raises:
        ValueError: a curve of another length than ``x``.
    """
    at = np.asarray(x, dtype=np.float64)
    curves = {
        **{name: np.asarray(v, dtype=np.float64) for name, v in volumes.items()},
        "ideal": np.asarray(ideal),
    }
    fig = Sketch()
    for name, values in curves.items():
        if len(values) != len(at):
            raise ValueError(f"volumes[{name!r}] must have {len(at)} values, as x has (got {len(values)})")
        is_ideal = name == "ideal"
        fig.add_scatter(
            name="remote picks alone" if is_ideal else name, x=at, y=values / 1e3, mode="lines+markers",
            line={
                "color": palette.INK if is_ideal else palette.method_color(name), "width": 2.2,
                "dash": "dash" if is_ideal else "solid",
            },
            hovertemplate=f"{axis} %{{x:.3g}}: %{{y:,.1f}} kB<extra>{name}</extra>",
        )  # fmt: skip
    if marker is not None:
        fig.add_vline(x=marker, line={"color": palette.MUTED, "dash": "dot", "width": 1.5})
    finish(fig, title, label, height=460)
    fig.update_xaxes(title_text=axis)
    fig.update_yaxes(title_text="bytes of one mini-batch, all ranks (kB)", rangemode="tozero")
    return fig


@drawn
def saved_reads(
    budgets: Any,
    expected: Mapping[str, Any],
    counted: tuple[Any, Any] | None = None,
    *,
    marker: float | None = None,
    label: str = "",
) -> go.Figure:
    """Share of the remote reads that copies of lists save, over the bytes that they may take.

    Args:
        budgets: percent of the bytes of all lists, ``[k]``, ascending.
        expected: ranking -> shares ``[k]``, as the visits of other batches say (0..1).
        counted: ``(budgets, shares)`` of the batch that was sampled, drawn as points.
        marker: a budget to mark. label: graph, parts and origin.

    Raises:
        ValueError: a curve of another length than ``budgets``.
    """
    x = np.asarray(budgets, dtype=np.float64)
    fig = Sketch()
    styles = {"reads": (palette.METHODS["direct-cached"], "solid"), "degree": (palette.HOPS[1], "dash")}
    for name, values in expected.items():
        if len(values) != len(x):
            raise ValueError(
                f"expected[{name!r}] must have {len(x)} values, as budgets has (got {len(values)})"
            )
        color, dash = styles.get(name, (palette.MUTED, "dot"))
        fig.add_scatter(
            name=f"ranked by {name}", x=x, y=100 * np.asarray(values, dtype=float), mode="lines",
            line={"color": color, "width": 2.5, "dash": dash},
            hovertemplate="%{x:.3g} % of the lists: %{y:.1f} % saved<extra>by " + name + "</extra>",
        )  # fmt: skip
    if counted is not None:
        fig.add_scatter(
            name="counted, this batch", x=counted[0], y=100 * np.asarray(counted[1], dtype=float), mode="markers",
            marker={"size": 10, "color": palette.INK, "symbol": "diamond", "line": {"width": 1, "color": "white"}},
            cliponaxis=False,
            hovertemplate="%{x:.3g} % of the lists: %{y:.1f} % of the bytes saved<extra></extra>",
        )  # fmt: skip
    if marker is not None:
        fig.add_vline(x=marker, line={"color": palette.MUTED, "dash": "dot", "width": 1.5})
    finish(fig, "What copies of hot lists save", label, height=460)
    fig.update_xaxes(
        title_text="room for copies on each rank (% of the bytes of all lists)", rangemode="tozero"
    )
    fig.update_yaxes(title_text="remote reads saved (%)", range=[0, 102])
    return fig


def ladder_speedups(rows: Sequence[Mapping[str, Any]], *, label: str = "") -> go.Figure:
    """Measured throughput of several ranks together over one rank with the whole graph: a point for each method and
    batch, a field for each number of ranks.

    Args:
        rows: of one graph and partition in a record of the suite ``ladder``: ``method``, ``world``, ``x_one`` (and
            ``x_best``, each side by the faster of its two ways, which is drawn where it is known), ``batch_size``,
            ``fanout``, ``hops``, ``replace``, ``budget_percent``, and ``saved_percent`` where the budget was chosen
            to save so much; rows of one rank, with an error or without a ratio are left out.
        label: graph, parts and device, as recorded.
    """
    from plotly.subplots import make_subplots

    shown = [r for r in rows if r.get("x_one") is not None and "error" not in r and r["world"] > 1]
    if not shown:
        return empty_figure("Measured scaling", "The record has no row of several ranks.")
    worlds = sorted({r["world"] for r in shown})
    rungs = sorted(
        dict.fromkeys(map(_rung, shown)), key=lambda rung: max(_ratio(r) for r in shown if _rung(r) == rung)
    )
    settings = list(dict.fromkeys(_setting(r) for r in shown))
    fig = make_subplots(
        1,
        len(worlds),
        shared_yaxes=True,
        horizontal_spacing=0.04,
        subplot_titles=[f"{world} ranks" for world in worlds],
    )
    for column, world in enumerate(worlds, start=1):
        for i, setting in enumerate(settings):
            some = [r for r in shown if r["world"] == world and _setting(r) == setting]
            fig.add_scatter(
                name=setting, legendgroup=setting, mode="markers",
                y=[_rung(r) for r in some], x=[_ratio(r) for r in some],
                marker={"color": palette.hop_color(i), "symbol": _SYMBOLS[i % len(_SYMBOLS)], "size": 10},
                # A setting that the first field lacks is named where it comes.
                showlegend=bool(some) and not any(r["world"] < world and _setting(r) == setting for r in shown),
                hovertemplate="%{y}, " + f"{world} ranks" + ": %{x:.2f} times one rank<extra></extra>",
                row=1, col=column,
            )  # fmt: skip
        for at, dash in ((1, "dash"), (world, "dot")):
            fig.add_vline(x=at, line={"color": palette.INK, "dash": dash, "width": 1.5}, row=1, col=column)
    tall = 24 * len(rungs)  # pixels
    finish(
        fig, "Measured throughput, one rank with the whole graph = 1 (dotted: as many times as ranks)", label,
        height=250 + tall, hovermode="closest", legend={"y": -56 / (tall + 24), "yanchor": "top"}, margin_b=120,
    )  # fmt: skip
    most = max(1.05 * max(map(_ratio, shown)), 1.08 * worlds[-1])
    fig.update_xaxes(title_text="over one rank (times)", range=[0, most])
    # From the fastest down: rows of a list, with a line for the eye to follow.
    fig.update_yaxes(categoryorder="array", categoryarray=rungs, range=[-0.6, len(rungs) - 0.4], ticks="")
    fig.update_annotations(font={"size": 13})
    return fig


def _ratio(row: Mapping[str, Any]) -> float:
    best = row.get("x_best")
    return float(row["x_one"] if best is None else best)


def _setting(row: Mapping[str, Any]) -> str:
    """The batch of a row, for the legend."""
    how = "with" if row["replace"] else "without"
    return f"{row['batch_size']:,} seeds × {row['fanout']}, {row['hops']} hops, {how} replacement"


def _rung(row: Mapping[str, Any]) -> str:
    """The method of a row, and what it may copy."""
    percent, saved = row.get("budget_percent"), row.get("saved_percent")
    if percent is None:
        return str(row["method"])
    if saved is not None:
        # As other mini-batches had it: those that were timed save a little more or less.
        return f"{row['method']} to save {saved:.3g} % of reads"
    return f"{row['method']}, {percent:.3g} % of lists"
