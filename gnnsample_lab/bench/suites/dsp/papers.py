"""DSP's published numbers (PPoPP'23): its tables, and of its figures what the text gives in numbers."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench.suite import Paper

Rows = tuple[dict[str, Any], ...]

GRAPHS = ("products-like", "papers100M-like", "friendster-like")
GPUS = (1, 2, 4, 8)

TABLE1: Rows = tuple(
    {"link": link, "gpus": gpus, "gbps": gbps}
    for link, values in {"pcie": (32.0, 32.0, 64.0, 128.0), "nvlink": (0.0, 100.0, 400.0, 1200.0)}.items()
    for gpus, gbps in zip(GPUS, values, strict=True)
)
"""Table 1: aggregate bandwidth of a DGX-1's links, GB/s."""

TABLE2: Rows = (
    {"parameter": "Seed", "type": "integer array", "about": "set of seed nodes for a GPU"},
    {"parameter": "Scheme", "type": "string", "about": "neighbour-wise or layer-wise sampling"},
    {"parameter": "Layer", "type": "integer", "about": "number of layers to sample"},
    {"parameter": "IsBiased", "type": "boolean", "about": "biased or unbiased sampling"},
    {"parameter": "FanOut", "type": "list of integers", "about": "number of neighbour nodes to sample"},
)
"""Table 2: some of the configurable parameters of CSP."""

TABLE3: Rows = (
    {"graph": "products-like", "num_nodes": 2_000_000, "num_edges": 123_000_000, "average_degree": 50.5,
     "num_features": 100, "topology_gb": 0.984, "feature_gb": 0.8},
    {"graph": "papers100M-like", "num_nodes": 111_000_000, "num_edges": 3_200_000_000, "average_degree": 28.8,
     "num_features": 128, "topology_gb": 25.6, "feature_gb": 56.8},
    {"graph": "friendster-like", "num_nodes": 66_000_000, "num_edges": 3_600_000_000, "average_degree": 54.5,
     "num_features": 256, "topology_gb": 28.8, "feature_gb": 67.6},
)  # fmt: skip
"""Table 3, as printed. Its Papers has each citation in both directions; the twin has one."""

TABLE4: Rows = tuple(
    {"graph": graph, "system": system, "gpus": gpus, "epoch_s": seconds}
    for system, values in {
        "pyg-cpu": (28.8, 20.4, 17.1, 16.1, 131, 89.0, 68.3, 49.2, 1110, 828, 575, 477),
        "dgl-cpu": (14.7, 9.29, 6.43, 5.45, 111, 76.0, 62.3, 45.1, 1080, 781, 537, 470),
        "quiver": (5.71, 4.06, 2.82, 2.51, 70.9, 42.3, 23.8, 17.2, 449, 249, 145, 118),
        "dgl-uva": (6.87, 6.03, 3.17, 1.61, 47.5, 39.6, 30.2, 18.3, 432, 410, 207, 107),
        "dsp": (3.11, 1.75, 0.992, 0.613, 39.1, 24.5, 15.3, 4.62, 270, 116, 64.6, 44.8),
    }.items()
    for (graph, gpus), seconds in zip([(g, n) for g in GRAPHS for n in GPUS], values, strict=True)
)  # fmt: skip
"""Table 4: seconds of an epoch of training GraphSAGE."""

TABLE5: Rows = tuple(
    {"graph": graph, "system": system, "gpus": 8, "epoch_s": seconds}
    for system, values in {
        "pyg-cpu": (15.5, 41.4, 501), "dgl-cpu": (8.32, 48.7, 478), "quiver": (3.97, 23.7, 172),
        "dgl-uva": (4.91, 13.6, 137), "dsp": (0.552, 5.97, 29.9),
    }.items()
    for graph, seconds in zip(GRAPHS, values, strict=True)
)  # fmt: skip
"""Table 5: seconds of an epoch of training GCN, 8 GPUs."""

TABLE6: Rows = tuple(
    {"part": "table 6", "graph": graph, "system": system, "paper_gpus": gpus, "epoch_s": seconds}
    for system, values in {
        "pyg-cpu": (5.03, 4.41, 4.26, 4.21, 30.0, 31.0, 35.0, 29.1, 134, 140, 145, 152),
        "dgl-cpu": (4.96, 3.89, 2.86, 2.57, 30.3, 21.8, 19.4, 16.1, 189, 176, 141, 137),
        "quiver": (3.72, 2.94, 2.19, 1.98, 24.1, 18.1, 15.1, 11.3, 108, 78.9, 54.4, 41.2),
        "dgl-uva": (2.39, 1.97, 1.12, 0.613, 14.2, 11.5, 4.91, 2.61, 95.3, 71.2, 30.0, 15.2),
        "dsp": (1.60, 0.834, 0.461, 0.323, 12.1, 6.91, 2.47, 1.40, 61.3, 33.2, 13.4, 7.09),
    }.items()
    for (graph, gpus), seconds in zip([(g, n) for g in GRAPHS for n in GPUS], values, strict=True)
)  # fmt: skip
"""Table 6: seconds of sampling an epoch, unbiased, 1 024 seeds, fanouts 15, 10, 5."""

TABLE7: Rows = tuple(
    {"part": "table 7", "graph": graph, "system": system, "paper_gpus": gpus, "epoch_s": seconds}
    for system, gpus, values in (("fastgcn-cpu", 0, (37.5, 489, 252_000)), ("dsp", 8, (0.12, 8.96, 52.8)))
    for graph, seconds in zip(GRAPHS, values, strict=True)
)
"""Table 7: seconds of sampling an epoch layer by layer without replacement, 1 000 vertices in both layers."""

FIGURE9: Rows = (
    {"system": "dsp", "converged_s": 183.0},
    {"system": "dgl-uva", "converged_s": 698.0},
    {"system": "quiver", "converged_s": 629.0},
)
"""Section 7.1: seconds until GraphSAGE on Papers has converged, 8 GPUs."""

PAPER = Paper(
    "DSP, 8 NVIDIA V100 16 GB of a DGX-1-like server, 64-core Xeon E5-2686",
    {
        "figure 1": "on 8 GPUs UVA moves much more than Ideal, which reads the picks alone from elsewhere; CSP moves "
        "less than Ideal, because some lists are local; the text has no numbers",
        "table 1": "NVLink has a multiple of PCIe's bandwidth from 2 GPUs on",
        "figure 2": "Quiver's sampling and loading stop getting faster before all 5 120 threads of a GPU are used",
        "figure 6": "DSP-Seq uses less of the GPUs the more of them there are; the pipeline uses more",
        "figure 8": "all-to-all kernels that start in different orders wait for each other for ever",
        "figure 9": "accuracy over mini-batches is the same for all systems",
        "figure 10": "with 6 GB a GPU for both, 2 GB of features are best: the whole topology first",
        "table 6": "DSP is faster than all baselines, by up to 20 x over UVA and CPU sampling",
        "table 7": "FastGCN is on a CPU: not apple to apple",
        "figure 11": "4 GPUs, biased: CSP takes at most 64 % off the sampling time of Pull Data",
        "figure 12": "over 1.5 x with 8 GPUs on all graphs, little with 1",
        "section 4.1": "without barriers, requests served one by one: observed to be slower",
    },
)  # fmt: skip
