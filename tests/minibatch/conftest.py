"""What the mini-batch tests share."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from gnnsample_lab import Graph


def random_graph(seed: int, num_nodes: int = 120, num_edges: int = 700, **data: Any) -> Graph:
    """Skewed degrees, dead ends, self-loops, parallel edges, zero weights."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, num_nodes, num_edges)
    dst = (rng.random(num_edges) ** 2 * num_nodes * 0.9).astype(int)
    src[:20], dst[:20] = dst[:20], dst[:20]
    src[20:40], dst[20:40] = src[40], dst[40]
    weight = rng.integers(0, 4, num_edges) * np.where(rng.random(num_edges) < 0.5, 1.0, 0.7)
    return Graph.from_edges(src, dst, num_nodes, edge_weight=weight, name="random", **data)


def with_wide_ids(g: Graph) -> Graph:
    """The same graph with 64-bit ids, as graphs of 2**31 vertices and more have them."""
    wide = copy.copy(g)
    wide._set("indices", g.indices.astype(np.int64))
    return wide


@pytest.fixture(scope="session")
def graph() -> Graph:
    return random_graph(1)


@pytest.fixture(scope="session")
def wide_graph(graph: Graph) -> Graph:
    return with_wide_ids(graph)
