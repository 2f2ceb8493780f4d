"""Aggregation as figures: bytes by memory level, times by the cost model and by the clock, the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab import readable
from gnnsample_lab.figures import palette
from gnnsample_lab.figures.matching import byte_unit
from gnnsample_lab.figures.sketch import Sketch, drawn
from gnnsample_lab.figures.style import finish, write_beside
from gnnsample_lab.figures.training import time_unit
from gnnsample_lab.readable import percent

_RISERS = ("dash", "solid", "dot", "dashdot")


class RooflinePoint(Protocol):
    """What a roofline reads of :class:`gnnsample_lab.compute.aggregation.bound.RooflinePoint`.

    ``origin`` begins with "measured" (drawn filled) or not (hollow).
    """

    @property
    def name(self) -> str: ...
    @property
    def flops_per_byte(self) -> float: ...
    @property
    def gflops(self) -> float: ...
    @property
    def origin(self) -> str: ...


@drawn
def access_counts(counts: Mapping[str, Mapping[str, float]], *, subtitle: str = "") -> go.Figure:
    """Bytes that each kernel asks of each memory level, one stacked bar per kernel (FastGL, section 4.2).

    Args:
        counts: kernel -> memory level -> bytes. Levels are drawn in the order in which they are first named,
            slowest first, so that what the slow memory serves can be compared along the axis.
        subtitle: graph, block and origin of the counts.

    Raises:
        ValueError: there is no kernel, or a count is negative.
    """
    levels = _columns(counts, "counts")
    names = list(counts)
    table = np.array([[counts[name].get(level, 0.0) for level in levels] for name in names])
    if (table < 0).any():
        raise ValueError(f"counts must not be negative (got {table.min():g})")
    unit, size = byte_unit(float(table.sum(axis=1).max()))
    fig = Sketch()
    for column, level in enumerate(levels):
        fig.add_bar(
            name=level,
            orientation="h",
            y=names,
            x=table[:, column] / size,
            marker={"color": palette.level_color(level), "line": {"width": 0}},
            hovertemplate="%{y}<br>" + level + " %{x:,.2f} " + unit + "<extra></extra>",
        )
    labels = [f"  {readable.number(row[0] / size)} {unit} {levels[0].split()[0]}" for row in table]
    write_beside(fig, names, table.sum(axis=1) / size, labels, font_size=12)
    finish(
        fig,
        "Bytes asked of each memory level",
        subtitle,
        height=max(400, 190 + 46 * len(names)),
        barmode="stack",
    )
    fig.update_xaxes(
        title_text=f"bytes ({unit})", range=[0, 1.5 * float(table.sum(axis=1).max()) / size or 1.0]
    )
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig


@drawn
def aggregation_times(
    times_us: Mapping[str, Mapping[str, float]], *, base: str = "", subtitle: str = ""
) -> go.Figure:
    """Time of an aggregation by kernel: the cost model beside the clock, ratios against ``base``.

    Args:
        times_us: kernel -> what it is ("modelled", "measured", ...) -> microseconds.
        base: kernel that the ratios refer to; the first when empty.
        subtitle: graph, block and origin of the times.

    Raises:
        ValueError: there is no kernel, or ``base`` is not one of them.
    """
    kinds = _columns(times_us, "times_us")
    names = list(times_us)
    base = base or names[0]
    if base not in times_us:
        raise ValueError(f"base must be one of {names} (got {base!r})")
    values = {kind: [times_us[name].get(kind, np.nan) for name in names] for kind in kinds}
    longest = float(np.nanmax(np.concatenate(list(values.values()))))
    unit, per_us = time_unit(longest)
    fig = Sketch()
    for kind in kinds:
        color = {"modelled": palette.MODELLED, "measured": palette.MEASURED}.get(kind, palette.MUTED)
        reference = times_us[base].get(kind, np.nan)
        fig.add_bar(
            name=kind,
            orientation="h",
            y=names,
            x=np.array(values[kind]) / per_us,
            marker={"color": color, "line": {"width": 0}},
            text=["" if np.isnan(v) else f"{readable.time(v)}{_times(reference, v)}" for v in values[kind]],
            textposition="outside",
            textfont={"size": 12},
            cliponaxis=False,
            hovertemplate="%{y}<br>" + kind + " %{x:,.3~g} " + unit + "<extra></extra>",
        )
    finish(
        fig,
        f"Time of an aggregation ({base} = 1×)",
        subtitle,
        height=max(400, 150 + 28 * len(names) * (len(kinds) + 1)),
        barmode="group",
    )
    fig.update_xaxes(title_text=f"time ({unit})", range=[0, 1.4 * longest / per_us or 1.0])
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig


@drawn
def times_over_features(
    features: Sequence[int],
    times_us: Mapping[str, Sequence[float]],
    *,
    bound_us: Sequence[float] | None = None,
    marked: int | None = None,
    subtitle: str = "",
) -> go.Figure:
    """Time of each kernel against the number of features, on logarithmic axes, over the least time possible.

    Args:
        features: feature widths. times_us: kernel -> microseconds for each width.
        bound_us: least time for each width, drawn as the edge of a shaded area that no kernel enters.
        marked: a width to mark. subtitle: graph, block and origin of the times.

    Raises:
        ValueError: there is no kernel, or as many times as widths are not given.
    """
    if not times_us or any(len(values) != len(features) for values in times_us.values()):
        raise ValueError(f"times_us must have {len(features)} times for each of at least one kernel")
    fig = Sketch()
    if bound_us is not None:
        fig.add_scatter(
            name="least time possible",
            x=list(features),
            y=list(bound_us),
            mode="lines",
            line={"color": palette.MUTED, "width": 1.5},
            fill="tozeroy",
            fillcolor=palette.GRID,
            hovertemplate="%{x} features: at least %{y:,.3~g} µs<extra></extra>",
        )
    for name, values in times_us.items():
        # Two kernels may ask for the same bytes: one of them must let the other show through, and lie above it.
        dotted = name == "library"
        fig.add_scatter(
            name=name,
            x=list(features),
            y=list(values),
            mode="lines+markers",
            zorder=1 if dotted else 0,
            marker={"size": 4 if dotted else 7},
            line={"color": palette.kernel_color(name), "width": 2, "dash": "dot" if dotted else "solid"},
            hovertemplate="%{x} features<br>" + name + " %{y:,.3~g} µs<extra></extra>",
        )
    finish(fig, "Time against the number of features", subtitle, height=480, margin_t=132)
    if marked is not None:
        fig.add_vline(x=marked, line={"color": palette.FAINT, "width": 2}, layer="below")
    fig.update_xaxes(
        title_text="features", type="log", tickmode="array", tickvals=list(features), showgrid=False
    )
    fig.update_yaxes(title_text="time (µs)", type="log", dtick=1, minor_ticks="outside")
    return fig


@drawn
def roofline(
    points: Sequence[RooflinePoint],
    *,
    peak_gflops: float,
    bandwidth_gbps: Mapping[str, float],
    level: str = "global memory",
    title: str = "Roofline",
    subtitle: str = "",
) -> go.Figure:
    """Rate against operations per byte, under the roof that bandwidth and arithmetic leave (FastGL, figure
    12).

    Args:
        points: kernels; hollow where the rate is modelled.
        peak_gflops: the flat part of the roof, GFLOP/s.
        bandwidth_gbps: memory level -> GB/s: a slope each.
        level: the level whose bytes the points' intensities count.
        subtitle: graph, block and origin of peaks and points.

    Raises:
        ValueError: a peak, an intensity or a rate is not positive.
    """
    if peak_gflops <= 0 or any(gbps <= 0 for gbps in bandwidth_gbps.values()) or not bandwidth_gbps:
        raise ValueError("peak_gflops and every bandwidth_gbps must be positive")
    for point in points:
        if point.flops_per_byte <= 0 or point.gflops <= 0:
            raise ValueError(f"points must have a positive intensity and rate (got {point.name})")
    slowest, fastest = min(bandwidth_gbps.values()), max(bandwidth_gbps.values())
    lowest = min([point.flops_per_byte for point in points] + [peak_gflops / fastest])
    x = np.geomspace(lowest / 3, 4 * peak_gflops / slowest, 80)
    fig = Sketch()
    for number, (name, gbps) in enumerate(sorted(bandwidth_gbps.items(), key=lambda item: item[1])):
        fig.add_scatter(
            name=f"{name}: {gbps:,.0f} GB/s",
            x=x,
            y=np.minimum(gbps * x, peak_gflops),
            mode="lines",
            line={
                "color": palette.level_color(name),
                "width": 3 if name == level else 2,
                "dash": "solid" if name == level else _RISERS[(number + 2) % len(_RISERS)],
            },
            hovertemplate=name + "<br>%{x:.3g} FLOP/byte: at most %{y:,.0f} GFLOP/s<extra></extra>",
        )
    for point in points:
        roof = min(bandwidth_gbps.get(level, slowest) * point.flops_per_byte, peak_gflops)
        color = palette.kernel_color(point.name)
        measured = point.origin.startswith("measured")
        fig.add_scatter(
            name=f"{point.name}: {percent(point.gflops / roof)}",
            x=[point.flops_per_byte],
            y=[point.gflops],
            mode="markers",
            cliponaxis=False,
            marker={
                "color": color,
                "size": 13,
                "symbol": "circle" if measured else "circle-open",
                "line": {"width": 2 if measured else 3, "color": color},
            },
            hovertemplate=f"{point.name}, {point.origin}"
            + "<br>%{x:.3g} FLOP/byte<br>%{y:,.0f} GFLOP/s<extra></extra>",
        )
    notes = ["%: of the roof"]
    if any(not point.origin.startswith("measured") for point in points):
        notes.append("hollow: modelled")
    title += f" ({', '.join(notes)})" if points else ""
    finish(fig, title, subtitle, height=480)
    fig.update_xaxes(
        title_text=f"operations per byte of {level} (FLOP/byte)", type="log", dtick=1, minor_ticks="outside"
    )
    fig.update_yaxes(
        title_text="rate (GFLOP/s)", type="log", dtick=1, tickformat=",.3~f", minor_ticks="outside"
    )
    return fig


def _columns(table: Mapping[str, Mapping[str, float]], name: str) -> list[str]:
    """The inner keys in the order in which they first appear."""
    found = list(dict.fromkeys(column for row in table.values() for column in row))
    if not found:
        raise ValueError(f"{name} must hold at least one kernel with one value (got none)")
    return found


def _times(base_us: float, value_us: float) -> str:
    if not (base_us > 0 and value_us > 0) or abs(value_us / base_us - 1) < 0.05:
        return ""
    return f" ({base_us / value_us:.1f}×)" if value_us < base_us else f" (1/{value_us / base_us:.1f})"
