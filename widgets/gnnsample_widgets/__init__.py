"""Explorers for JupyterLab, Voila and plain scripts: sliders that rerun the real sampler and redraw what
happened.

No algorithm lives here. The explorers turn the state of their controls into calls of :mod:`gnnsample_lab` and
show the figures of :mod:`gnnsample_lab.figures`. Each explorer is a module of ``explorers``, put together from the
parts in ``shell``; ``lesson`` and ``exercises`` have what surrounds them in a notebook.
"""

from __future__ import annotations

from gnnsample_lab.lazy import exports

_EXPORTS = {
    "Explorer": "shell.explorer",
    "SampleExplorer": "explorers.sampling.sample",
    "WorkloadExplorer": "explorers.sampling.workload",
    "QueueExplorer": "explorers.sampling.queue",
    "IdMapExplorer": "explorers.sampling.id_map",
    "CacheExplorer": "explorers.features.caching",
    "MatchExplorer": "explorers.features.matching",
    "AggregationExplorer": "explorers.training.aggregation",
    "TrainingExplorer": "explorers.training.training",
    "ThreadsExplorer": "explorers.transit.threads",
    "KernelExplorer": "explorers.transit.kernels",
    "IndexExplorer": "explorers.transit.index",
    "SecondOrderExplorer": "explorers.walks.own_sampler",
    "PipelineExplorer": "explorers.training.pipelines",
    "RanksExplorer": "explorers.training.many_gpus",
    "Guess": "lesson.guess",
    "Stepper": "lesson.stepper",
    "show": "shell.panel",
    "show_code": "lesson.listing",
}
# Modules whose functions the notebooks call, by the short names under which they import them.
_MODULES = {
    "batches": "batches",
    "caching": "caching",
    "exercises": "exercises",
    "graphs": "graphs",
    "id_map": "explorers.sampling.id_map",
    "many_gpus": "explorers.training.many_gpus",
    "pipelines": "explorers.training.pipelines",
    "recorded": "recorded",
    "second_order": "explorers.walks.second_order",
    "training": "explorers.training.training",
    "transit": "explorers.transit.threads",
    "twins": "twins",
}
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
