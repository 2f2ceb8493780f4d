"""Explorers for JupyterLab, Voila and plain scripts: sliders that rerun the real sampler and redraw what
happened.

No algorithm lives here. The explorers turn the state of their controls into calls of :mod:`gnnsample_lab` and
show the figures of :mod:`gnnsample_lab.figures`.
"""

from __future__ import annotations

from gnnsample_lab.lazy import exports

_EXPORTS = {
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
    "PipelineExplorer": "pipelines",
    "RanksExplorer": "many_gpus",
    "Guess": "guess",
    "Stepper": "stepper",
    "show": "panel",
    "show_code": "listing",
}
_MODULES = ("exercises", "recorded")
__all__ = [
    "AggregationExplorer",
    "CacheExplorer",
    "Explorer",
    "Guess",
    "IdMapExplorer",
    "IndexExplorer",
    "KernelExplorer",
    "MatchExplorer",
    "PipelineExplorer",
    "QueueExplorer",
    "RanksExplorer",
    "SampleExplorer",
    "SecondOrderExplorer",
    "Stepper",
    "ThreadsExplorer",
    "TrainingExplorer",
    "WorkloadExplorer",
    "exercises",
    "recorded",
    "show",
    "show_code",
]

__getattr__, __dir__ = exports(__name__, _EXPORTS, _MODULES)
