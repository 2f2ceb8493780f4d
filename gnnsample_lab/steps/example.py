"""The small example of the mechanisms: Zachary's karate club, or any graph that it is given."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

_KARATE = """
0:1,2,3,4,5,6,7,8,10,11,12,13,17,19,21,31 1:2,3,7,13,17,19,21,30 2:3,7,8,9,13,27,28,32 3:7,12,13 4:6,10 5:6,10,16 6:16
8:30,32,33 9:33 13:33 14:32,33 15:32,33 18:32,33 19:33 20:32,33 22:32,33 23:25,27,29,32,33 24:25,27,31 25:31 26:29,33
27:33 28:31,33 29:32,33 30:32,33 31:32,33 32:33
"""


@functools.lru_cache(maxsize=1)
def karate_club() -> Any:
    """Zachary's karate club (1977) as an undirected graph: 34 vertices, 78 edges."""
    from gnnsample_lab.graph.graph import Graph

    pairs = []
    for row in _KARATE.split():
        vertex, others = row.split(":")
        pairs += [(int(vertex), int(other)) for other in others.split(",")]
    src, dst = np.array(pairs).T
    return Graph.from_edges(src, dst, 34, undirected=True, name="karate club")


def seeds_of(graph: Any, count: int, least: int = 1) -> np.ndarray:
    """``count`` distinct vertices with ``least`` in-neighbours or more, spread over the ids: int64."""
    degrees = np.diff(np.asarray(graph.indptr))
    fit = np.flatnonzero(degrees >= least)
    if fit.size == 0:
        raise ValueError(
            f"graph must have a vertex with {least} in-neighbours or more, to be stepped through"
        )
    return fit[np.unique(np.linspace(0, fit.size - 1, min(count, fit.size)).astype(np.int64))]
