"""How vertices find their parts: METIS, streaming, random, ranges of ids. Each returns ``int16[N]``."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device.splitmix import GOLDEN, finalise
from gnnsample_lab.graph.csc import indptr_of, rows_of, undirected_union

from .balance import limits_of, loads_of, refine, repair
from .moving import assign, count_distinct

MAX_METIS_ENTRIES = 150_000_000
"""Most entries of the symmetric adjacency for METIS, which takes 100 bytes for each (13.5 million: 1.3 GB): 15 GB."""
METHODS = {
    "metis": "multilevel, fewest cut edges (Karypis and Kumar, SISC'98); parts that came out uneven are repaired",
    "streaming": "one greedy pass (Fennel, WSDM'14), then label propagation, within the limits; any size of graph",
    "random": "equal numbers of vertices at random: the floor",
    "range": "consecutive ids, cut where vertices and edges together are even",
}
_FENNEL = 0.75
"""Fennel's penalty at its exponent 1.5, in mean in-degrees: 1.5 x (undirected edges a vertex, half the in-degree)."""


def random_order(num_nodes: int, seed: int) -> np.ndarray:
    """Vertices in an order that is a function of ``seed`` alone, ``int64[N]``."""
    # A hash of the ids; a stable sort makes ties follow the ids.
    key = np.arange(num_nodes, dtype=np.uint64)
    key += np.uint64((seed * GOLDEN + GOLDEN) & (2**64 - 1))
    key *= np.uint64(GOLDEN)
    return np.argsort(finalise(key), kind="stable")


def random_parts(num_nodes: int, num_parts: int, seed: int) -> np.ndarray:
    owner = np.empty(num_nodes, dtype=np.int16)
    order = random_order(num_nodes, seed)
    for part in range(num_parts):
        owner[order[part * num_nodes // num_parts : (part + 1) * num_nodes // num_parts]] = part
    return owner


def range_parts(indptr: np.ndarray, num_parts: int) -> np.ndarray:
    num_nodes, num_edges = len(indptr) - 1, int(indptr[-1])
    before = np.arange(num_nodes) / num_nodes
    if num_edges:  # half by the share of the vertices that lie before, half by the share of the edges
        before = (before + indptr[:-1] / num_edges) / 2
    return np.minimum(before * num_parts, num_parts - 1).astype(np.int16)


def metis_parts(
    indptr: np.ndarray, indices: np.ndarray, is_seed: np.ndarray, num_parts: int, seed: int, tolerance: float
) -> np.ndarray:
    pymetis = _pymetis()
    entries = count_distinct(indptr, indices)
    if entries <= MAX_METIS_ENTRIES:
        begins, lists = skeleton(indptr, indices)
        entries = len(lists)
    if entries > MAX_METIS_ENTRIES:
        raise ValueError(
            f"method must be 'streaming' for this graph: its symmetric adjacency has {entries:,} entries or more, and "
            f"'metis' takes up to {MAX_METIS_ENTRIES:,} (got 'metis')"
        )
    degree = np.diff(indptr)
    # A training vertex weighs as much as an average one beside its edges; 1 keeps isolated vertices from piling up.
    weight = degree + 1 + is_seed.astype(np.int64) * max(1, round(len(indices) / len(degree)))
    found = pymetis.part_graph(
        num_parts,
        pymetis.CSRAdjacency(begins, lists),
        vweights=weight,
        options=pymetis.Options(seed=seed % 2**31),  # METIS's is a C int
    )
    owner = np.asarray(found.vertex_part).astype(np.int16)
    loads = loads_of(indptr, is_seed, owner, num_parts)
    limits = limits_of(indptr, is_seed, num_parts, tolerance)
    if (loads > limits).any():
        repair(begins, lists, indptr, is_seed, tolerance, owner, loads)
        refine(begins, lists, indptr, is_seed, limits, owner, loads, np.arange(len(owner)))
    return owner


def _pymetis() -> Any:
    try:
        import pymetis
    except ImportError:
        raise ImportError(
            "method='metis' needs pymetis: pip install 'gnnsample-lab[distributed]'; or give method='streaming'"
        ) from None
    return pymetis


def skeleton(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The undirected graph without self-loops and parallel edges, as METIS wants it: ``int64[N + 1]``, ``int64``."""
    num_nodes = len(indptr) - 1
    src, dst = undirected_union(indices, rows_of(indptr), num_nodes)
    between = src != dst
    return indptr_of(dst[between], num_nodes), src[between]


def streaming_parts(
    indptr: np.ndarray, indices: np.ndarray, is_seed: np.ndarray, num_parts: int, seed: int, tolerance: float
) -> np.ndarray:
    """Reads the in-neighbour lists where they lie and makes no second graph: 30 bytes a vertex beside it."""
    num_nodes = len(indptr) - 1
    owner = np.full(num_nodes, -1, dtype=np.int16)
    loads = np.zeros((num_parts, 3), dtype=np.int64)
    limits = limits_of(indptr, is_seed, num_parts, tolerance)
    order = random_order(num_nodes, seed)
    penalty = _FENNEL * len(indices) / num_nodes
    assign(indptr, indices, order, indptr, is_seed, limits, penalty, owner, loads)
    repair(indptr, indices, indptr, is_seed, tolerance, owner, loads)
    refine(indptr, indices, indptr, is_seed, limits, owner, loads, order)
    return owner
