"""gnnsample_lab: GPU graph sampling for GNN training, to teach it, analyse it and use it.

Everything public is reached from here (``import gnnsample_lab as lab``) and loaded on first use, so that the import
itself costs nothing.
"""

from __future__ import annotations

import time

from gnnsample_lab.device.openmp import sleep_soon
from gnnsample_lab.lazy import exports

__version__ = "0.1.0"
_imported_at = time.time_ns()
"""When this process began to import the package: files edited later may not be the code in memory."""
sleep_soon()

_EXPORTS = {
    "Graph": "graph",
    "load": "graph",
    "load_default": "graph",
    "load_or_twin": "graph",
    "rmat": "graph",
    "twin": "graph",
    "twin_statistics": "graph",
    "recency_weights": "graph",
    "UnknownDatasetError": "graph",
    "DatasetNotFoundError": "graph",
    "CorruptDataError": "graph",
    "DownloadError": "graph",
    "datasets": "graph",
    "strategies": "sampling.neighbors.strategies",
    "HopPicks": "sampling.neighbors.spec",
    "SamplingApp": "sampling.engine.language.app",
    "SamplingType": "sampling.engine.language.app",
    "SamplingAppError": "sampling.engine.language.app",
    "NULL": "sampling.engine.language.app",
    "INF": "sampling.engine.language.app",
    "run_app": "sampling.engine.run",
    "AppResult": "sampling.engine.results.result",
    "apps": "sampling",
    "NeighborSampler": "minibatch.sampler",
    "MiniBatch": "minibatch.types",
    "Block": "minibatch.types",
    "SampleTrace": "traces",
    "minibatches": "minibatch.feeds",
    "induced_batches": "minibatch.feeds",
    "voted_batch": "minibatch.feeds",
    "id_maps": "minibatch.id_map.ladder",
    "relabel": "minibatch.id_map.ladder",
    "probe_statistics": "minibatch.id_map.probes",
    "fill_steps": "minibatch.id_map.probes",
    "fill_rounds": "minibatch.id_map.probes",
    "PinSAGESampler": "minibatch.walks.sampler",
    "flow_walks": "sampling.walks.flow",
    "FusedSampler": "compute.fused.sampler",
    "hotness": "features.ranking.hotness",
    "Hotness": "features.ranking.hotness",
    "footprint": "features.ranking.footprint",
    "Footprint": "features.ranking.footprint",
    "epoch_similarity": "features.ranking.footprint",
    "hit_rate": "features.ranking.footprint",
    "FeatureCache": "features.caching.cache",
    "MatchedFeatures": "features.reuse.matched",
    "match": "features.reuse.match",
    "match_degrees": "features.reuse.match",
    "overlaps": "features.reuse.match",
    "reorder": "features.reuse.reorder",
    "path_score": "features.reuse.reorder",
    "aggregation_kernels": "compute.aggregation.aggregate",
    "aggregate": "compute.aggregation.aggregate",
    "attention": "compute.attention",
    "aggregation_cost": "compute.aggregation.bound",
    "make_model": "compute.models",
    "infer": "compute.inference.infer",
    "captured_step": "pipeline.captured",
    "train": "systems.train",
    "compare": "systems.compare",
    "systems": "systems.table",
    "schedule": "pipeline",
}

_MODULES = ("distributed",)

__all__ = [*_EXPORTS, *_MODULES, "__version__"]

__getattr__, __dir__ = exports(__name__, _EXPORTS, _MODULES)
