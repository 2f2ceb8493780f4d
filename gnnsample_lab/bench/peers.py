"""What other people's programs took: the only times that no command of this repository measures.

They were taken separately, beside this package at commit :data:`BESIDE`, on the kind of card that :data:`CARD` names,
every result checked, and entered by hand. A ratio to one of them is of two runs; it is shown for records of such a card
alone, and its line says "measured separately".
"""

from __future__ import annotations

from typing import Any

CARD = "H200"
"""In the name of the card."""
BESIDE = "2177376"
"""The commit of this package that was measured beside them."""
GRAPH = "rmat"
"""On which samplers ran, with the same edges and seeds: R-MAT of 2.1 M vertices and 114 M edges, 3 hops."""

CUGRAPH: dict[str, dict[str, float]] = {
    "frontier": {"alone_us": 5108.0, "fused32_us": 1250.0},
    "new": {"alone_us": 5371.0, "fused32_us": 1103.0},
}
"""By rule (``NeighborSampler(expand=)``; cuGraph's ``carry_over``, and what cugraph-pyg asks for): microseconds of a
mini-batch of 1 024 x (10, 10, 10) with local ids, alone and each of 32 in a call."""
CUGRAPH_TOLD: dict[str, Any] = {
    "graph": GRAPH, "batch_size": 1024, "fanouts": [10, 10, 10], **CUGRAPH["new"],
    "what": "cuGraph 26.10 homogeneous_uniform_neighbor_sample with renumbering, as cugraph-pyg calls it, RMM pool, "
    "the rule of expand='new'; NVIDIA H200, the same edges and seeds, R-MAT graph of 2.1 M nodes and 114 M edges; "
    "measured separately, not in this run",
}  # fmt: skip
"""As it stands beside whole mini-batches of ours."""

GRAPHBOLT_US: dict[tuple[int, int], float] = {(1024, 10): 1433.0, (8192, 10): 2438.0, (8192, 15): 2745.0}
"""(seeds, fanout of each hop) -> wall time of a mini-batch with compact ids by the CUDA sources of DGL's GraphBolt,
built for the card, whose rule is ``expand="frontier"``."""

DGL_LIKE_US: dict[tuple[int, int], tuple[float, float]] = {
    (256, 10): (1394.0, 509.0), (1024, 10): (1505.0, 605.0), (2048, 10): (1543.0, 663.0), (8192, 15): (1764.0, 861.0),
}  # fmt: skip
"""(seeds, fanout) -> whole process and kernels alone of a sampler like DGL's, taken before the others, on the same kind
of card and graph. The library's own baseline may not be slower than 1.1 times these."""

NEXTDOOR: tuple[dict[str, Any], ...] = (
    {"app": "DeepWalk", "lb_ms": 51.8, "sp_ms": 50.2}, {"app": "PPR, 100 steps", "lb_ms": 40.0, "sp_ms": None},
    {"app": "node2vec", "lb_ms": 122.0, "sp_ms": 98.0}, {"app": "k-hop", "lb_ms": 69.0, "sp_ms": 31.5},
)  # fmt: skip
"""GPU milliseconds of the kernels that NextDoor's authors released, one root per vertex of the twin of Orkut before
version 3."""
NEXTDOOR_IS = "the authors' released kernels with their index (LB) and sample-parallel (SP)"

FASTGL_GIN_US = 88.0
"""Of FastGL's released GIN layer on the smallest block that was tried, which was not written down."""
