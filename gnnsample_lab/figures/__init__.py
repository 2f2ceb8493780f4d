"""Traces and picks -> plotly figures; pure functions, nothing else.

Every figure carries its axis units, the graph's title and the origin label ("measured on ..." or "modelled as
...") of what it shows. plotly loads when the first figure is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "work_per_hop": "hops",
    "hop_times": "hops",
    "utilisation": "hops",
    "strategy_comparison": "compare",
    "model_vs_measurement": "compare",
    "summary_table": "compare",
    "gantt": "timeline",
    "sm_activity": "timeline",
    "queue_depth": "activity",
    "running_tasks": "activity",
    "sm_load": "activity",
    "task_cost": "activity",
    "sample_drawing": "drawing",
    "sample_layout": "drawing",
    "empty_figure": "style",
    "set_cursor": "style",
    "update_figure": "style",
}

if TYPE_CHECKING:
    from gnnsample_lab.figures.activity import queue_depth, running_tasks, sm_load, task_cost
    from gnnsample_lab.figures.compare import model_vs_measurement, strategy_comparison, summary_table
    from gnnsample_lab.figures.drawing import sample_drawing, sample_layout
    from gnnsample_lab.figures.hops import hop_times, utilisation, work_per_hop
    from gnnsample_lab.figures.style import empty_figure, set_cursor, update_figure
    from gnnsample_lab.figures.timeline import gantt, sm_activity

__all__ = [
    "empty_figure",
    "gantt",
    "hop_times",
    "model_vs_measurement",
    "queue_depth",
    "running_tasks",
    "sample_drawing",
    "sample_layout",
    "set_cursor",
    "sm_activity",
    "sm_load",
    "strategy_comparison",
    "summary_table",
    "task_cost",
    "update_figure",
    "utilisation",
    "work_per_hop",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
