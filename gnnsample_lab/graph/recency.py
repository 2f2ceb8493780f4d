"""Edge weights under which newer neighbours are preferred: the weighted sampling of GNNLab's experiments."""

from __future__ import annotations

import dataclasses
from typing import Any

from gnnsample_lab.checks import seed as checked_seed
from gnnsample_lab.checks import whole
from gnnsample_lab.device import runtime
from gnnsample_lab.graph.edgewise.plan import bijection, scatter_ids
from gnnsample_lab.graph.graph import Graph, check_graph

YEARS = 2
"""Stream of the bijection that deals out years; 0 and 1 belong to the generators."""


def recency_weights(graph: Graph, *, years: int = 8, seed: int = 0) -> Graph:
    """``graph`` with weights that prefer new neighbours: every vertex has a year, and each year counts double.

    GNNLab (section 3) weights a neighbour by the year in which it registered. Here the years ``0 .. years - 1`` are
    dealt out to the vertices in equal numbers and without regard to degree, and an edge weighs ``2**year`` of its
    *source*. So the weight sits on the vertex: old ones are seldom read, however many neighbours they have. Weights
    drawn per edge, as by :func:`~gnnsample_lab.graph.edgewise.synthetic.random_weights`, would not do
    that: they average out over the edges of a vertex. All weights are powers of two, hence exact on every device.

    Args:
        graph: any graph; its own weights are replaced, everything else is shared.
        years: how many years, 1 to 24.
        seed: who gets which year.

    Raises:
        ValueError, TypeError: naming the argument.
    """
    graph = check_graph(graph)
    years, seed = whole("years", years, 1, 24), checked_seed(seed)
    n = graph.num_nodes
    with runtime.lock:
        xp: Any = _arrays(graph.device)
        if not n:
            return dataclasses.replace(graph, edge_weight=xp.zeros(0, dtype=xp.float32), validate=False)
        rank = scatter_ids(bijection(n, seed, YEARS), xp.arange(n, dtype=xp.int64))
        weight = xp.left_shift(1, rank * years // n).astype(xp.float32)
        return dataclasses.replace(graph, edge_weight=weight[graph.indices], validate=False)


def _arrays(device: str) -> Any:
    if device == "cuda":
        import cupy

        return cupy
    import numpy

    return numpy
