"""Figures drawn as plain dictionaries: what makes them quick enough to follow a slider.

Plotly checks and copies every property that it is given, many times over: a figure with a template, ten traces and a
few lines takes 20 to 100 ms before anything is drawn. A :class:`Sketch` understands the calls that the figures here
make and keeps what they say; plotly gets the whole once, unchecked. That it is valid is tested, figure by figure.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

import plotly.graph_objects as go

P = ParamSpec("P")

#: Names with an underscore of their own; in all others it leads to a part, as in ``title_text``.
_WHOLE = ("error_x", "error_y", "error_z", "copy_xstyle", "copy_ystyle", "copy_zstyle")
#: Values that are handed through as they are, whatever they hold.
_OPAQUE = ("customdata", "meta", "template", "ids")


def _expand(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties as plotly.js knows them: ``title_text="a"`` and ``title="a"`` become ``{"title": {"text": "a"}}``."""
    found: dict[str, Any] = {}
    for name, value in properties.items():
        if value is None:
            continue
        path = (name,) if name in _WHOLE or "_" not in name else tuple(name.split("_"))
        if path[-1] == "title" and isinstance(value, str):
            value = {"text": value}
        elif isinstance(value, Mapping) and path[-1] not in _OPAQUE:
            value = _expand(value)
        for part in reversed(path[1:]):
            value = {part: value}
        _merge(found, {path[0]: value})
    return found


def _merge(into: dict[str, Any], new: Mapping[str, Any]) -> None:
    for name, value in new.items():
        old = into.get(name)
        if isinstance(old, dict) and isinstance(value, Mapping):
            _merge(old, value)
        else:
            into[name] = dict(value) if isinstance(value, Mapping) else value


class Sketch:
    """A figure that is being drawn, with the methods of ``plotly.graph_objects.Figure`` that our figures use.

    Args:
        *traces: the first traces, plotly's objects.
        grid: what ``plotly.subplots.make_subplots`` made; ``row`` and ``col`` then name its cells.
        rows, columns: of the grid.
    """

    def __init__(self, *traces: Any, grid: go.Figure | None = None, rows: int = 1, columns: int = 1) -> None:
        self.data: list[dict[str, Any]] = [trace.to_plotly_json() for trace in traces]
        self.layout: dict[str, Any] = {"annotations": [], "shapes": []}
        if grid is not None:
            self.layout |= copy.deepcopy(grid.layout.to_plotly_json())
            self.layout.setdefault("annotations", [])
            self.layout.pop("template", None)
        self._rows, self._columns = rows, columns

    def _number(self, row: int | None, col: int | None) -> str:
        """What the axes of a cell have behind their letter."""
        number = 1 if row is None or col is None else (row - 1) * self._columns + col
        return "" if number == 1 else str(number)

    def _add(self, kind: str, row: int | None, col: int | None, trace: Mapping[str, Any]) -> Sketch:
        number = self._number(row, col)
        axes = {} if row is None else {"xaxis": f"x{number}", "yaxis": f"y{number}"}
        self.data.append({"type": kind, **axes, **_expand(trace)})
        return self

    def add_scatter(self, *, row: Any = None, col: Any = None, **trace: Any) -> Sketch:
        return self._add("scatter", row, col, trace)

    def add_scattergl(self, *, row: Any = None, col: Any = None, **trace: Any) -> Sketch:
        return self._add("scattergl", row, col, trace)

    def add_bar(self, *, row: Any = None, col: Any = None, **trace: Any) -> Sketch:
        return self._add("bar", row, col, trace)

    def add_heatmap(self, *, row: Any = None, col: Any = None, **trace: Any) -> Sketch:
        return self._add("heatmap", row, col, trace)

    def add_annotation(self, **annotation: Any) -> Sketch:
        self.layout["annotations"].append(_expand(annotation))
        return self

    def add_shape(self, **shape: Any) -> Sketch:
        self.layout["shapes"].append(_expand(shape))
        return self

    def _cells(self) -> list[str]:
        """What the axes have behind their letter in each cell that shows something."""
        if self._rows * self._columns == 1:
            return [""]
        return sorted(
            {trace.get("xaxis", "x")[1:] for trace in self.data}, key=lambda number: int(number or 1)
        )

    def add_vline(self, *, x: Any, **shape: Any) -> Sketch:
        """A line at ``x`` from the lower end of every plot to the upper one."""
        for number in self._cells():
            ends = {"x0": x, "x1": x, "xref": f"x{number}", "y0": 0, "y1": 1, "yref": f"y{number} domain"}
            self.add_shape(type="line", **ends, **shape)
        return self

    def add_hline(self, *, y: Any, **shape: Any) -> Sketch:
        """A line at ``y`` from the left end of every plot to the right one."""
        for number in self._cells():
            ends = {"y0": y, "y1": y, "yref": f"y{number}", "x0": 0, "x1": 1, "xref": f"x{number} domain"}
            self.add_shape(type="line", **ends, **shape)
        return self

    def update_layout(self, given: Mapping[str, Any] | None = None, /, **layout: Any) -> Sketch:
        _merge(self.layout, _expand({**(given or {}), **layout}))
        return self

    def _update_axes(self, letter: str, row: int | None, col: int | None, axis: Mapping[str, Any]) -> Sketch:
        first = f"{letter}axis"
        names = {first, *(name for name in self.layout if name.startswith(first))}
        if row is not None:
            names = {first + self._number(row, col)}
        for name in names:
            _merge(self.layout, {name: _expand(axis)})
        return self

    def update_xaxes(self, *, row: Any = None, col: Any = None, **axis: Any) -> Sketch:
        """Update one x axis, or all."""
        return self._update_axes("x", row, col, axis)

    def update_yaxes(self, *, row: Any = None, col: Any = None, **axis: Any) -> Sketch:
        """Update one y axis, or all."""
        return self._update_axes("y", row, col, axis)

    def update_annotations(self, *, selector: Mapping[str, Any] | None = None, **annotation: Any) -> Sketch:
        for one in self.layout["annotations"]:
            if all(one.get(name) == value for name, value in (selector or {}).items()):
                _merge(one, _expand(annotation))
        return self

    def figure(self) -> go.Figure:
        """The figure. Whoever changes it has plotly check that, as always."""
        layout = {
            name: value
            for name, value in self.layout.items()
            if name not in ("annotations", "shapes") or value
        }
        figure = go.Figure({"data": self.data, "layout": layout}, _validate=False)
        for part in (figure, figure.layout, *figure.data):
            part._validate = True
        return figure


def drawn(draw: Callable[P, Any]) -> Callable[P, go.Figure]:
    """A function that makes a figure, of one that sketches it."""

    @functools.wraps(draw)
    def make(*args: P.args, **kwargs: P.kwargs) -> go.Figure:
        made = draw(*args, **kwargs)
        return made.figure() if isinstance(made, Sketch) else made

    return make


@functools.lru_cache(maxsize=16)
def _grid_layout(rows: int, columns: int, options: str) -> go.Figure:
    from plotly.subplots import make_subplots

    return make_subplots(rows, columns, **json.loads(options))


def grid(rows: int, columns: int, **options: Any) -> Sketch:
    """A sketch with plots in rows and columns, as ``plotly.subplots.make_subplots`` lays them out."""
    laid_out = _grid_layout(rows, columns, json.dumps(options))
    return Sketch(grid=laid_out, rows=rows, columns=columns)
