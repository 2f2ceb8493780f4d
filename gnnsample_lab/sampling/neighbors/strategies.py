"""The names of the execution strategies, with one line on each; the baselines come first."""

from __future__ import annotations

STRATEGIES: dict[str, str] = {
    "block-bsp": "DGL's execution: per hop degrees, scan, host sync, then one block per vertex",
    "edge-bsp": "GraphBolt's execution: per hop, threads share all candidate edges evenly",
    "turbo-bsp": "a reconstruction of TurboGNN from one sentence: per hop, shared memory, work balanced beforehand",
    "bsp": "ours, per hop: a warp draws for 32 vertices at once, no host sync between hops",
    "fused-static": "DGL+Fusion: all hops in one launch, one block per task, no balancing between blocks",
    "persistent": "PGSampler's queue of all hops' tasks, served by resident teams of threads (ours) or, as published, "
    "with queue='blocks', by a block a task",
    "persistent-tile": "ours, queue: resident warps take tasks by the dozen and draw for them lane by lane",
    "grid-barrier": "ours, one cooperative launch: a grid barrier between hops instead of a kernel boundary",
    "captured": "ours, one CUDA graph: the kernels of bsp replayed with one launch",
    "auto": "the fastest of the above for this graph, batch and fanouts, found by measuring",
}

PER_HOP_STRATEGIES = ("block-bsp", "edge-bsp", "turbo-bsp")
"""The per-hop baselines: the host waits between draw and relabelling, so they work with any ID map."""

QUEUE_STRATEGIES = ("fused-static", "persistent", "persistent-tile")
"""Strategies without a barrier between hops; they need expand="frontier"."""


def strategies() -> dict[str, str]:
    """Every strategy name with one line on how it executes. All are valid on both devices."""
    return dict(STRATEGIES)
