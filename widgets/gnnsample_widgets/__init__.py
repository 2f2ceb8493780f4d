"""Explorers for JupyterLab, Voila and plain scripts: sliders that rerun the real sampler and redraw what
happened.

No algorithm lives here. The explorers turn the state of their controls into calls of :mod:`gnnsample_lab` and
show the figures of :mod:`gnnsample_lab.figures`.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Explorer": "explorer",
    "SampleExplorer": "sample",
    "WorkloadExplorer": "workload",
    "QueueExplorer": "queue",
    "IdMapExplorer": "id_map",
    "CacheExplorer": "caching",
    "MatchExplorer": "matching",
    "AggregationExplorer": "aggregation",
    "TrainingExplorer": "training",
    "ThreadsExplorer": "transit",
    "KernelExplorer": "transit_kernels",
    "IndexExplorer": "transit_index",
    "SecondOrderExplorer": "own_sampler",
    "exercises": "exercises",
    "recorded": "recorded",
    "show": "panel",
}
__all__ = [
    "AggregationExplorer",
    "CacheExplorer",
    "Explorer",
    "IdMapExplorer",
    "IndexExplorer",
    "KernelExplorer",
    "MatchExplorer",
    "QueueExplorer",
    "SampleExplorer",
    "SecondOrderExplorer",
    "ThreadsExplorer",
    "TrainingExplorer",
    "WorkloadExplorer",
    "exercises",
    "recorded",
    "show",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_HOME[name]}", __name__)
    return module if name in ("exercises", "recorded") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
