"""NextDoor's published numbers (EuroSys'21): its tables, and of its figures what the text gives in numbers."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench.suite import Paper

Rows = tuple[dict[str, Any], ...]

_METHODS = {
    "GraphSAGE": (51.0, 45.0), "FastGCN": (26.0, 52.0), "LADIES": (40.0, 62.0), "ClusterGCN": (4.1, 24.0),
    "GraphSAINT": (25.0, 30.0), "MVS": (24.0, 25.0),
}  # fmt: skip

TABLE1: Rows = tuple(
    {"graph": graph, "method": method, "sample_percent": percent}
    for method, values in _METHODS.items()
    for graph, percent in zip(("ppi-like", "reddit-like"), values, strict=True)
)
"""Table 1: share of an epoch's time that existing systems spend on sampling, percent; one 16-core CPU and a V100."""

TABLE2: Rows = (
    {"kernel": "sub-warp", "least": 1, "most": 31, "cache": "registers, warp shuffles"},
    {"kernel": "block", "least": 32, "most": 1024, "cache": "shared memory"},
    {"kernel": "grid", "least": 1025, "most": None, "cache": "shared memory, many blocks a transit"},
)
"""Table 2: kernel by neighbours to sample of a transit."""

TABLE3: Rows = (
    {"graph": "ppi-like", "num_nodes": 50_000, "num_edges": 1_400_000, "average_degree": 28.0},
    {"graph": "orkut-like", "num_nodes": 3_000_000, "num_edges": 117_000_000, "average_degree": 39.0},
    {"graph": "patents-like", "num_nodes": 3_770_000, "num_edges": 16_500_000, "average_degree": 4.37},
    {"graph": "livejournal-like", "num_nodes": 4_800_000, "num_edges": 68_900_000, "average_degree": 14.3},
    {"graph": "friendster-like", "num_nodes": 65_600_000, "num_edges": 1_800_000_000, "average_degree": 27.4},
)
"""Table 3, rounded as printed. The printed FriendS has each undirected edge once; the twin has both directions."""

FIGURE6: Rows = (
    {"graph": "livejournal-like", "app": "ClusterGCN", "index_percent": 5.0},
    {"graph": "orkut-like", "app": "DeepWalk", "index_percent": 40.4},
)
"""Section 8.1: the least and the largest share of the scheduling index."""

FIGURE7: dict[str, Any] = {"knightking": (26.1, 50.0), "sample": (1.09, 6.0)}
"""Section 8.2: speed-up of walks over KnightKing, of all applications over SP; the least and the most."""

TABLE4: Rows = tuple(
    {"graph": graph, "app": app, "store_percent": stores.get(app), "sm_percent": active[i]}
    for graph, stores, active in (
        ("ppi-like", {"k-hop": 98.5, "Layer": 98.5}, (67.8, 69.8, 70.1, 100.0, 100.0)),
        ("orkut-like", {"k-hop": 99.5, "Layer": 100.0}, (98.3, 98.0, 99.3, 100.0, 100.0)),
        ("patents-like", {"k-hop": 100.0, "Layer": 100.0}, (90.1, 99.0, 99.0, 100.0, 100.0)),
        ("livejournal-like", {"k-hop": 100.0, "Layer": 100.0}, (99.2, 98.2, 97.6, 100.0, 100.0)),
    )
    for i, app in enumerate(("DeepWalk", "PPR", "node2vec", "k-hop", "Layer"))
)
"""Table 4: global memory store efficiency and multiprocessor activity, percent."""

SECTION84: Rows = (
    {"graph": "friendster-like", "app": "k-hop", "samples_per_s": 3.3e6, "over_cpu": None},
    {"graph": "friendster-like", "app": "Layer", "samples_per_s": 2e6, "over_cpu": None},
    {"graph": "friendster-like", "app": "DeepWalk", "samples_per_s": None, "over_cpu": 0.5},
    {"graph": "friendster-like", "app": "PPR", "samples_per_s": None, "over_cpu": 0.5},
    {"graph": "friendster-like", "app": "node2vec", "samples_per_s": None, "over_cpu": 1.5},
)
"""Section 8.4: samples per second on FriendS, which exceeds 16 GB; walks relative to KnightKing ("about 1/2")."""

TABLE5: Rows = tuple(
    {"graph": graph, "method": method, "speedup": speedup}
    for method, values in {
        "GraphSAGE": {"livejournal-like": 1.22},
        "FastGCN": {"ppi-like": 1.25, "reddit-like": 1.52, "orkut-like": 4.75, "patents-like": 2.3,
                    "livejournal-like": 4.31},
        "LADIES": {"ppi-like": 1.07, "reddit-like": 1.37, "orkut-like": 2.27, "patents-like": 2.1,
                   "livejournal-like": 2.34},
        "ClusterGCN": {"ppi-like": 1.03, "reddit-like": 1.20, "patents-like": 1.4, "livejournal-like": 1.51},
    }.items()
    for graph, speedup in values.items()
)  # fmt: skip
"""Table 5: end-to-end speed-up over the systems with their own samplers; ClusterGCN on Orkut ran out of memory. Of
GraphSAGE's row only the value for LiveJ can be read."""

PAPER = Paper(
    "NextDoor, NVIDIA V100 16 GB, two 16-core Xeon Silver 4216, CUDA 11.2",
    {
        "table 1": "up to 62 % of an epoch goes into sampling",
        "table 2": "sub-warp below 32 neighbours to sample of a transit, a block up to 1024, a grid above",
        "figure 6": "5 % (ClusterGCN, LiveJ) to 40.4 % (DeepWalk, Orkut) of the time builds the scheduling index",
        "figure 7": "26.1 x to 50 x over KnightKing (32 cores) for walks, an order of magnitude over the samplers of "
        "GNN systems, 1.09 x to 6 x over SP",
        "figure 8": "NextDoor makes a fraction of SP's L2 read transactions",
        "figure 9": "faster than Tigr and Gunrock on all shown; the text has no number",
        "figure 10": "four V100: walks scale on all graphs but PPI, k-hop nearly fully even there; no number",
        "table 4": "by nvprof; store efficiency 98.5 % or more, activity 67.8 % or more",
        "section 8.4": "k-hop 3.3 M and layer 2 M samples a second; walks about half of KnightKing, node2vec 1.5 x",
        "table 5": "up to 4.75 x end to end",
    },
)  # fmt: skip
