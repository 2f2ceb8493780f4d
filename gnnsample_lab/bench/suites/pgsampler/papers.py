"""PGSampler's published numbers."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench.suite import Paper

PAPER = Paper(
    "PGSampler, NVIDIA RTX 3090 (table III: Tesla P40), DGL 1.0.1, CUDA 11.7",
    {
        "section V-D, figure 10": "PGSampler is faster than DGL+Fusion in all cases, most with 3 hops and large "
        "batches",
        "section V-E, figure 11": "on 2- and 3-layer GraphSAGE PGSampler converges as DGL's sampler does "
        "(ogbn-products, batch 10240, fanout 10)",
        "section V-B": "compute throughput up to 1.59 x and memory throughput up to 2.01 x of DGL's kernels",
    },
)

TABLE1: tuple[dict[str, Any], ...] = (
    {"hop": 1, "workload": 2048, "pre_us": 129.0, "kernel_us": 13.2, "comp_percent": 15.48, "mem_percent": 5.97},
    {"hop": 2, "workload": 21633, "pre_us": 127.7, "kernel_us": 92.4, "comp_percent": 48.68, "mem_percent": 19.49},
    {"hop": 3, "workload": 179709, "pre_us": 127.0, "kernel_us": 662.0, "comp_percent": 55.02, "mem_percent": 24.79},
)  # fmt: skip
"""Table I: DGL on ogbn-products, batch 2048, fanouts (10, 10, 10); utilisation in percent of the peak."""

TABLE2: tuple[dict[str, Any], ...] = (
    {"graph": "reddit-like", "num_nodes": 232_965, "num_edges": 114_615_892, "num_features": 602, "num_classes": 41},
    {"graph": "flickr-like", "num_nodes": 89_250, "num_edges": 899_759, "num_features": 500, "num_classes": 7},
    {"graph": "yelp-like", "num_nodes": 716_847, "num_edges": 13_954_819, "num_features": 300, "num_classes": 100},
    {"graph": "arxiv-like", "num_nodes": 169_343, "num_edges": 1_166_243, "num_features": 128, "num_classes": 40},
    {"graph": "products-like", "num_nodes": 2_449_029, "num_edges": 61_859_140, "num_features": 100, "num_classes": 47},
    {"graph": "physics-like", "num_nodes": 34_493, "num_edges": 495_924, "num_features": 8_415, "num_classes": 5},
)  # fmt: skip
"""Table II: the graphs. An edge of Products counts once, as in the data set's file; loaded it lies in two lists."""

FIGURE8: dict[str, Any] = {
    "best": 1.57,
    "average": {
        "reddit": 1.19, "flickr": 1.47, "yelp": 1.37, "ogbn-arxiv": 1.44, "ogbn-products": 1.23, "physics": 1.46,
    },
}  # fmt: skip
"""Figure 8 as its text gives it: kernel speed-up of PGSampler over DGL, batches 2048-10240, fanouts 10-20."""

AVERAGES: dict[str, float] = {
    "flickr-like": 1.47, "physics-like": 1.46, "arxiv-like": 1.44, "yelp-like": 1.37, "products-like": 1.23,
    "reddit-like": 1.19,
}  # fmt: skip
"""Figure 8's averages by the twins of its graphs."""

FIGURE9: dict[str, Any] = {"best": 2.22}
"""Figure 9: speed-up of the whole sampling process over DGL, at its best (3 hops, small batch and fanout)."""

TABLE3: tuple[dict[str, Any], ...] = (
    {"graph": "reddit-like", "system": "PGSampler", "batch_size": 4096, "fanout": 15, "speedup": 1.23},
    {"graph": "reddit-like", "system": "TurboGNN", "batch_size": 4096, "fanout": 30, "speedup": 1.15},
    {"graph": "products-like", "system": "PGSampler", "batch_size": 10240, "fanout": 15, "speedup": 1.36},
    {"graph": "products-like", "system": "TurboGNN", "batch_size": 200_000, "fanout": 15, "speedup": 1.30},
)
"""Table III: speed-up over DGL, 3 hops, on Reddit and ogbn-products; TurboGNN's as its own paper reports it."""
