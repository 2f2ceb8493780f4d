"""Many processes, one sample: parts of a graph, ranks that hold them, and what travels between them.

``lab.distributed`` loads a name on its first use, and nothing here imports torch before a rank needs it.
"""

from __future__ import annotations

from gnnsample_lab.lazy import exports

_EXPORTS: dict[str, str] = {
    "partition": "parts.partition",
    "Partition": "parts.partition",
    "UnevenPartsError": "parts.balance",
    "part_of": "parts.part",
    "Part": "parts.part",
    "vertex_records": "parts.part",
    "save_parts": "parts.storage",
    "open_partition": "parts.storage",
    "open_part": "parts.storage",
    "open_records": "parts.storage",
    "hottest_lists": "parts.hot",
    "HotLists": "parts.hot",
    "run": "ranks.run",
    "Ranks": "ranks.run",
    "RankError": "ranks.errors",
    "methods": "sampling.methods",
    "Sampler": "sampling.sampler",
    "LayerSampler": "sampling.layer",
    "Walker": "sampling.walker",
    "Traffic": "sampling.traffic",
    "traffic_of": "sampling.compare",
    "edges_of": "sampling.compare",
    "united": "sampling.compare",
    "FeatureCache": "features.cache",
    "presample": "features.ranking",
    "split_memory": "features.split",
    "MemorySplit": "features.split",
    "join": "ranks.hosts",
    "torchrun_line": "ranks.hosts",
}
"""Public names, and the modules below this one that have them."""
_MODULES = ("coordination",)

__all__ = [*_EXPORTS, *_MODULES]

__getattr__, __dir__ = exports(__name__, _EXPORTS, _MODULES)
