"""How far vertices are from a set of others."""

from __future__ import annotations

from typing import Any

import numpy as np


def hops_from(graph: Any, roots: Any, most: int) -> np.ndarray:
    """Hops from the nearest root along in-edges, as samplers go, int8[num_nodes]; ``most + 1`` where it takes more.

    Args:
        graph: on the CPU.
        roots: global ids.
        most: hops to go, below 127.
    """
    found = np.full(graph.num_nodes, most + 1, dtype=np.int8)
    found[roots] = 0
    reached = np.unique(roots)
    for hop in range(1, most + 1):
        first = graph.indptr[reached].astype(np.int64)
        counts = graph.indptr[reached + 1].astype(np.int64) - first
        edges = np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts)
        new = np.zeros(graph.num_nodes, dtype=bool)
        new[graph.indices[edges]] = True
        new &= found > most
        found[new], reached = hop, np.flatnonzero(new)
    return found
