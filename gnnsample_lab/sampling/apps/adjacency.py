# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""Norms of the graph's adjacency matrix, which importance sampling draws by.

``A[v, u]`` is the weight of the edge u -> v, 1 without weights, and the sum of parallel edges. All on the host and in
one order, so that every device draws by the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device.arrays import array_module, to_host
from gnnsample_lab.device.jit import njit

_NONE = np.empty(0, dtype=np.float64)


def _arrays(graph: Any, weight: Any) -> tuple[Any, Any, Any]:
    given = _NONE if weight is None else np.asarray(to_host(weight), dtype=np.float64)
    return to_host(graph.indptr), to_host(graph.indices), given


@njit(cache=True)
def _sums(indptr, indices, weight, rows, columns):
    for v in range(rows.size):
        for e in range(indptr[v], indptr[v + 1]):
            w = weight[e] if weight.size else 1.0
            rows[v] += w
            columns[indices[e]] += w


@njit(cache=True)
def _entries(indptr, indices, weight, squares):
    """Square of each entry at the first of its parallel edges, 0 at the others."""
    for v in range(indptr.size - 1):
        first, entry = indptr[v], 0.0
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] != indices[first]:
                first, entry = e, 0.0
            entry += weight[e] if weight.size else 1.0
            squares[e] = 0.0
            squares[first] = entry * entry


@njit(cache=True)
def _column_norms(indptr, indices, squares, rows, columns, norms):
    for v in range(rows.size):
        for e in range(indptr[v], indptr[v + 1]):
            if squares[e] > 0:
                norms[indices[e]] += squares[e] / (rows[v] * columns[indices[e]])


@njit(cache=True)
def _row_norms(indptr, squares, rows, norms):
    for v in range(rows.size):
        for e in range(indptr[v], indptr[v + 1]):
            if squares[e] > 0:
                norms[v] += squares[e] / (rows[v] * rows[v])


@njit(cache=True)
def _scale_rows(indptr, squares):
    for v in range(indptr.size - 1):
        top = 0.0
        for e in range(indptr[v], indptr[v + 1]):
            top = max(top, squares[e])
        for e in range(indptr[v], indptr[v + 1]):
            squares[e] = squares[e] / top if top > 0 else 0.0


@njit(cache=True)
def _has_parallel(indptr, indices):
    for v in range(indptr.size - 1):
        for e in range(indptr[v] + 1, indptr[v + 1]):
            if indices[e] == indices[e - 1]:
                return True
    return False


def column_norms(graph: Any, weight: Any) -> np.ndarray:
    """Squared norms of the columns of ``D_in^-1/2 A D_out^-1/2``, ``float64[N]``; 0 for a vertex without out-edges."""
    indptr, indices, given = _arrays(graph, weight)
    rows, columns, norms = (np.zeros(graph.num_nodes) for _ in range(3))
    squares = np.empty(len(indices))
    _sums(indptr, indices, given, rows, columns)
    _entries(indptr, indices, given, squares)
    _column_norms(indptr, indices, squares, rows, columns, norms)
    return norms


def entries_alike(graph: Any) -> bool:
    """Whether all entries of A are 0 or 1."""
    return graph.edge_weight is None and not _has_parallel(to_host(graph.indptr), to_host(graph.indices))


def row_norms(graph: Any) -> np.ndarray:
    """Squared norms of the rows of ``D_in^-1 A``, ``float64[N]``; 0 for a vertex without in-edges."""
    indptr, indices, given = _arrays(graph, graph.edge_weight)
    if entries_alike(graph):
        degrees = np.diff(indptr)
        return (degrees > 0) / np.maximum(degrees, 1)
    rows, columns, norms = (np.zeros(graph.num_nodes) for _ in range(3))
    squares = np.empty(len(indices))
    _sums(indptr, indices, given, rows, columns)
    _entries(indptr, indices, given, squares)
    _row_norms(indptr, squares, rows, norms)
    return norms


def squared_entries(graph: Any) -> np.ndarray:
    """Squared entries of A, each row scaled to a largest of 1, ``float64[E]``.

    Parallel edges are one entry, which stands at the first of them; the others are 0.
    """
    indptr, indices, given = _arrays(graph, graph.edge_weight)
    squares = np.empty(len(indices))
    _entries(indptr, indices, given, squares)
    _scale_rows(indptr, squares)
    return squares


def column_shares(result: Any, step: int, row_norm: Any, squares: Any) -> np.ndarray:
    """Share of each sampled vertex's column in the squares of its transits' rows, ``float64[S, width]``.

    Rows of the adjacency count with ``row_norm`` (``float[N]``), their entries in proportion to ``squares``
    (``float[E]``, None for all alike). The host does it, for results of either device.
    """
    links, transits = result.adjacency(step), to_host(result.transits(step))
    sample, row, column, position = (
        to_host(a) for a in (links.sample, links.row, links.column, links.position)
    )
    own, indptr = transits[sample, row], result.graph.indptr
    # Where their lists begin and end alone, and not those of all vertices.
    begin, end = (to_host(indptr[array_module(indptr).asarray(own + side)]) for side in (0, 1))
    if squares is None:
        entry = row_norm[own] / np.maximum(end - begin, 1)
    else:
        sums = np.concatenate([[0.0], np.cumsum(squares)])
        total = sums[end] - sums[begin]
        entry = row_norm[own] * squares[position] / np.where(total > 0, total, 1)  # all of a list may weigh 0
    samples, _, width = links.shape
    shares = np.bincount(sample * width + column, weights=entry, minlength=samples * width).reshape(
        samples, width
    )
    totals = np.where(transits >= 0, row_norm[transits], 0).sum(axis=1, keepdims=True)
    return shares / np.maximum(totals, 1)
