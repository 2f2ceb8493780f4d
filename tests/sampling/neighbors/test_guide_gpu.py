"""Weighted draws with and without their guide are the same, and both are the CPU's."""

from __future__ import annotations

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.sampling.neighbors import guide

pytestmark = pytest.mark.gpu


def graph_of(kind: str) -> lab.Graph:
    draw = np.random.default_rng(5)
    src, dst = draw.integers(0, 3000, 60_000), np.minimum(draw.zipf(1.6, 60_000), 3000) - 1  # hubs
    weight = {
        "alike": draw.random(60_000),
        "heavy-tailed": draw.pareto(1.1, 60_000),
        "zeros": draw.integers(0, 2, 60_000) * draw.random(60_000),
        "vast": draw.integers(1, 2**45, 60_000).astype(np.float64),
    }[kind]
    return lab.Graph.from_edges(src, dst, 3000, edge_weight=weight.astype(np.float32))


@pytest.mark.parametrize(
    "strategy", ["captured", "bsp", "persistent", "grid-barrier", "block-bsp", "edge-bsp"]
)
@pytest.mark.parametrize("kind", ["alike", "heavy-tailed", "zeros", "vast"])
@pytest.mark.parametrize("replace", [False, True])
def test_samples_do_not_depend_on_the_guide(kind, strategy, replace, monkeypatch):
    graph, options = graph_of(kind), {"weighted": True, "replace": replace, "seed": 4}
    seeds = np.arange(0, 3000, 7)
    wanted = lab.NeighborSampler(graph, [12, 5], device="cpu", **options).sample(seeds, 3).canonical()
    on_gpu = graph.to("cuda")
    guided = lab.NeighborSampler(on_gpu, [12, 5], strategy=strategy, device="cuda", **options)
    assert guided._weights.guide is not None
    assert guided.sample(seeds, 3).canonical() == wanted
    monkeypatch.setattr(guide, "RECORD_BYTES", 2**60)  # fits nowhere
    plain = lab.NeighborSampler(on_gpu, [12, 5], strategy=strategy, device="cuda", **options)
    assert plain._weights.guide is None
    assert plain.sample(seeds, 3).canonical() == wanted
