"""The smallest explorer that has every kind of control; its run can be slowed down and made to fail."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import numpy as np
import plotly.graph_objects as go
import traitlets
from gnnsample_widgets.shell.controls import Choice, Control, Slider, Switch
from gnnsample_widgets.shell.explorer import Explorer
from gnnsample_widgets.shell.recipe import Recipe

import gnnsample_lab as lab


def tiny_graph() -> lab.Graph:
    return lab.Graph.from_edges([0, 1, 2, 0], [1, 2, 0, 2], name="tiny")


def multiply(count: int, size: int, flip: bool) -> np.ndarray:
    if count == 13:
        raise ValueError("thirteen <things> are not allowed")
    y = np.arange(count) * size
    return y[::-1] if flip else y


def draw(host: Any, y: np.ndarray, kind: str) -> dict[str, Any]:
    drawn = {"bar": go.Figure(go.Bar(y=y)), "line": go.Figure(go.Scatter(y=y))}
    return {k: f.update_layout(title_text=host.title) for k, f in drawn.items() if kind in (k, "both")}


class Toy(Explorer):
    heading = "Toy"
    recipe: ClassVar[Recipe] = {"y": multiply, "shown": draw}
    count = traitlets.Int(5).tag(state=True)
    size = traitlets.Int(64).tag(state=True)
    kind = traitlets.Unicode("bar").tag(state=True)
    flip = traitlets.Bool(False).tag(state=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.seen: list[dict[str, Any]] = []
        self.gate: threading.Event | None = None
        super().__init__(*args, **kwargs)

    def build_controls(self) -> dict[str, Control]:
        controls: list[Control] = [
            Slider("count", "How many", self.count, min=1, max=50),
            Slider("size", "How large", self.size, options=[32, 64, 128]),
            Choice("kind", "Drawn as", self.kind, ["bar", "line", "both"]),
            Switch("flip", "Backwards", self.flip),
        ]
        return {control.name: control for control in controls}

    def compute(self, state: dict[str, Any]) -> Any:
        self.seen.append(state)
        if self.gate is not None:
            self.gate.wait(20)
        return super().compute(state)

    def summary(self, made: dict[str, Any]) -> str:
        return f"<b>{made['count']}</b> things"
