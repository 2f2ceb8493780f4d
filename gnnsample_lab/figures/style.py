"""The look that all figures share, and updating a figure that is already on a page."""

from __future__ import annotations

import functools
import html
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab.checks import host_array, numbers
from gnnsample_lab.figures import palette
from gnnsample_lab.figures.sketch import Sketch, drawn
from gnnsample_lab.traces import SampleTrace

FONT = "Inter, 'Segoe UI', 'Helvetica Neue', Helvetica, Arial, sans-serif"

#: Pixels of a panel of an explorer with its title, whatever it shows: nothing moves when a control does.
PANEL_HEIGHT = 400

#: A legend that leaves a narrow panel room for its plot.
COMPACT = {"font": {"size": 12}, "tracegroupgap": 0}

#: Names of the two shapes that make the time cursor.
CURSOR, VEIL = "cursor", "cursor-veil"


@functools.lru_cache(maxsize=1)
def template() -> go.layout.Template:
    """Plain white ground, thin grid, readable type; small, since it travels with every figure."""
    axis = {
        "automargin": True,
        # One way to write thousands on every axis: 4,096 and 100,000, not 4096 here and 100k there.
        "exponentformat": "none",
        "gridcolor": palette.GRID,
        "linecolor": palette.FAINT,
        "separatethousands": True,
        "showline": True,
        "tickcolor": palette.FAINT,
        "ticks": "outside",
        "ticklen": 4,
        "title": {"font": {"size": 13}, "standoff": 8},
        "zeroline": False,
    }
    return go.layout.Template(
        layout={
            "font": {"family": FONT, "size": 12, "color": palette.INK},
            "title": {
                "x": 0.0,
                "xanchor": "left",
                "xref": "container",
                "y": 1.0,
                "yanchor": "top",
                "yref": "container",
                "pad": {"l": 16, "t": 28},
                "font": {"size": 20},
            },
            "paper_bgcolor": palette.PAPER,
            "plot_bgcolor": palette.PAPER,
            "colorway": list(palette.HOPS),
            "hoverlabel": {
                "bgcolor": palette.PAPER,
                "bordercolor": palette.FAINT,
                "font": {"family": FONT, "size": 13},
            },
            "legend": {
                "orientation": "h",
                "x": 0,
                "xanchor": "left",
                "y": 1.0,
                "yanchor": "bottom",
                "traceorder": "normal",
            },
            "margin": {"l": 64, "r": 24, "t": 106, "b": 56},
            "bargap": 0.28,
            "bargroupgap": 0.06,
            "xaxis": axis,
            "yaxis": axis,
        }
    )


def finite(name: str, value: Any) -> np.ndarray:
    """An argument as an array of floats.

    Raises:
        TypeError: not numbers.
        ValueError: one of them is not finite: it has no place on an axis.
    """
    found = np.asarray(host_array(name, numbers(name, value)), dtype=np.float64)
    wrong = found[~np.isfinite(found)]
    if wrong.size:
        raise ValueError(f"{name} must be finite (got {wrong[0]})")
    return found


def as_list(traces: SampleTrace | Sequence[SampleTrace]) -> list[SampleTrace]:
    """One or several traces as a list.

    Raises:
        ValueError: if there is none.
    """
    found = [traces] if isinstance(traces, SampleTrace) else list(traces)
    if not found:
        raise ValueError("traces must hold at least one trace (got none)")
    return found


def _distinct(values: list[str]) -> str:
    return "; ".join(dict.fromkeys(values))


def describe(traces: SampleTrace | Sequence[SampleTrace], *extra: str, timed: bool = True) -> str:
    """The line under a title: graph, batch, fanouts and origin, each named once; if ``timed``, the model's error."""
    from gnnsample_lab.gpu_model.run_error import in_short

    found = as_list(traces)
    parts = [
        _distinct([t.title for t in found]),
        "batch " + _distinct([f"{t.batch_size:,}" for t in found]),
        "fanouts " + _distinct([", ".join("all" if k < 0 else str(k) for k in t.fanouts) for t in found]),
        *extra,
        _distinct([t.label for t in found]),
        in_short(found) if timed else "",
    ]
    return " · ".join(part for part in parts if part)


def heading(title: str, subtitle: str) -> str:
    """Title text with a smaller second line, from plain text: names of graphs come from files, and are no markup."""
    return f"{html.escape(title, quote=False)}<br><sub>{html.escape(subtitle, quote=False)}</sub>"


@functools.lru_cache(maxsize=1)
def _plain_template() -> dict[str, Any]:
    """The template for sketches, which nobody checks a second time."""
    return dict(template().to_plotly_json())


def finish(fig: Any, title: str, subtitle: str, *, height: int = 400, **layout: Any) -> Any:
    """Apply the shared look; ``uirevision`` keeps the reader's zoom when new data arrive."""
    if isinstance(fig, Sketch):
        shared = {"template": _plain_template(), "height": height, "uirevision": "keep"}
        fig.update_layout(**shared, title_text=heading(title, subtitle), **layout)
        if fig.layout.get("showlegend") is False and "t" not in fig.layout.get("margin", {}):
            fig.update_layout(margin_t=86)
        return fig
    fig.update_layout(template=template(), height=height, uirevision="keep")
    fig.update_layout(title_text=heading(title, subtitle), **layout)
    if fig.layout.showlegend is False and fig.layout.margin.t is None:
        fig.update_layout(margin_t=86)
    return fig


def write_beside(
    fig: Sketch, names: Sequence[str], ends: Any, labels: Sequence[str], *, font_size: int | None = 13
) -> None:
    """Write a label to the right of each horizontal bar.

    Args:
        names: rows of the bars. ends: where each bar ends on the x axis. labels: one per bar.
        font_size: in pixels; None leaves it to the template.
    """
    fig.add_scatter(
        y=names, x=ends, mode="text", text=labels, textposition="middle right", textfont={"size": font_size},
        cliponaxis=False, showlegend=False, hoverinfo="skip",
    )  # fmt: skip


def time_range(traces: SampleTrace | Sequence[SampleTrace]) -> list[float]:
    """Range of a time axis: to the end of the run, or not far beyond the last task where long nothing follows."""
    end = 1e-9
    for t in as_list(traces):
        last = float(t.tasks.end_us.max()) if len(t.tasks) else 0.0
        end = max(end, t.total_us if last > 0.7 * t.total_us else 1.1 * last)
    return [0, end]


def whole_ticks(span: float, few: float = 10) -> dict[str, Any]:
    """Settings of an axis of counts whose labels are whole numbers: so are its ticks where it spans at most ``few``.

    Left to itself the page would put ticks at halves there, and label two of them alike.
    """
    return {"tickformat": ",~d", **({"dtick": 1} if span <= few else {})}


def microseconds(value: float) -> str:
    """A time for labels, with the digits that matter: "8.4 µs", "433 µs", "1,394 µs"."""
    return f"{value:,.1f} µs" if abs(value) < 10 else f"{value:,.0f} µs"


def trace_name(trace: SampleTrace, among: Sequence[SampleTrace]) -> str:
    """Strategy name, with whatever else tells the trace from the others."""
    name = trace.strategy
    if len({t.completion for t in among if t.strategy == trace.strategy}) > 1:
        name += f", {trace.completion}"
    if len({t.fetch_size for t in among if t.strategy == trace.strategy}) > 1:
        name += f", fetch {trace.fetch_size}"
    if len({t.pick for t in among}) > 1:
        name += f", {trace.pick}"
    if len({t.batch_size for t in among}) > 1:
        name += f", batch {trace.batch_size:,}"
    if len({t.origin for t in among}) > 1:
        name += f" ({trace.origin})"
    return name


@drawn
def empty_figure(title: str, message: str, *, height: int = 320) -> go.Figure:
    """A figure that says why there is nothing to draw."""
    fig = Sketch()
    fig.add_annotation(text=message, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)
    finish(fig, title, "", height=height)
    fig.update_xaxes(visible=False)
    fig.update_yaxes(visible=False)
    return fig


def cursor_shapes(until_us: float, end_us: float) -> list[dict[str, Any]]:
    """A line at ``until_us`` and a veil over what comes after: cheap to move, whatever lies beneath."""
    across = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1}
    veil = {
        "name": VEIL,
        "type": "rect",
        "x0": min(until_us, end_us),
        "x1": end_us,
        "line": {"width": 0},
        "fillcolor": "rgba(255, 255, 255, 0.86)",
        "layer": "above",
        **across,
    }
    line = {
        "name": CURSOR,
        "type": "line",
        "x0": until_us,
        "x1": until_us,
        "line": {"color": palette.INK, "width": 1.5},
        "layer": "above",
        **across,
    }
    return [veil, line]


def set_cursor(fig: Any, until_us: float | None) -> Any:
    """Move the time cursor of a figure with a time axis, in place; None removes it.

    Works on a ``Figure``, on a ``FigureWidget``, where only the shapes are sent to the page, and on a sketch.
    """
    if isinstance(fig, Sketch):
        if until_us is not None:
            end = fig.layout.get("meta", {}).get("end_us", until_us)
            fig.layout["shapes"] += cursor_shapes(float(until_us), float(end))
        return fig
    others = [shape for shape in fig.layout.shapes if shape.name not in (CURSOR, VEIL)]
    if until_us is None:
        fig.layout.shapes = others
        return fig
    end = fig.layout.meta["end_us"] if fig.layout.meta and "end_us" in fig.layout.meta else until_us
    fig.layout.shapes = [*others, *cursor_shapes(float(until_us), float(end))]
    return fig


def update_figure(widget: go.Figure, new: go.Figure) -> None:
    """Make ``widget`` (a ``FigureWidget`` on a page, or any figure) show ``new``, in one batch of messages.

    Traces of the same type are updated in place, so the page animates instead of flashing; if number or types
    of the traces differ, they are replaced. The template is only sent when it differs.
    """
    same = len(widget.data) == len(new.data) and all(
        old.type == fresh.type for old, fresh in zip(widget.data, new.data, strict=True)
    )
    layout = new.layout.to_plotly_json()
    if widget.layout.template.to_plotly_json() == new.layout.template.to_plotly_json():
        layout.pop("template", None)
    with widget.batch_update():
        if same:
            for old, fresh in zip(widget.data, new.data, strict=True):
                wanted = fresh.to_plotly_json()
                wanted.pop("type", None)
                stale = set(old.to_plotly_json()) - set(wanted) - {"type", "uid"}
                old.update({**dict.fromkeys(stale), **wanted}, overwrite=True)
        else:
            widget.data = []
            widget.add_traces(list(new.data))
        stale = set(widget.layout.to_plotly_json()) - set(layout) - {"template", "autosize", "width"}
        widget.layout.update({**dict.fromkeys(stale), **layout}, overwrite=True)
