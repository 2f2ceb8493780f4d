"""What a graph looks like before anything is sampled from it: degrees, clustering, communities.

All measures take the undirected skeleton of a graph: who is linked with whom, each pair once, no self-loops. They run
on the CPU, whatever device the graph is on, in time about linear in the edges.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gnnsample_lab.checks import instance, real
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.device.jit import njit
from gnnsample_lab.graph.csc import indptr_of, rows_of, undirected_union
from gnnsample_lab.graph.graph import Graph


class Skeleton(NamedTuple):
    """Neighbour lists of the undirected simple graph: ``indptr`` int64[N+1], ``indices`` int64[2 x pairs]."""

    indptr: np.ndarray
    indices: np.ndarray

    @property
    def degrees(self) -> np.ndarray:
        """int64[N]: neighbours of each vertex."""
        return np.diff(self.indptr)


def skeleton(graph: Graph) -> Skeleton:
    """The undirected simple graph under ``graph``, on the host."""
    instance("graph", graph, Graph, "a Graph")
    indptr, src = to_host(graph.indptr), to_host(graph.indices).astype(np.int64)
    dst = rows_of(indptr)
    between = src != dst
    src, dst = undirected_union(src[between], dst[between], graph.num_nodes)
    return Skeleton(indptr_of(dst, graph.num_nodes), src)


def gini(degrees: Any) -> float:
    """Gini coefficient of ``degrees``: 0 where all are alike, towards 1 where few vertices hold all edges."""
    ordered = np.sort(to_host(degrees).astype(np.float64))
    n, total = len(ordered), ordered.sum()
    if n == 0 or total == 0:
        return 0.0
    return float(2 * (np.arange(1, n + 1) * ordered).sum() / (n * total) - (n + 1) / n)


def top_share(degrees: Any, share: float = 0.1) -> float:
    """Share of the edges that the ``share`` of vertices with the highest degrees hold."""
    share = real("share", share, 0, 1)
    ordered = np.sort(to_host(degrees).astype(np.float64))
    total = ordered.sum()
    return float(ordered[len(ordered) - round(share * len(ordered)) :].sum() / total) if total else 0.0


def clustering(links: Skeleton) -> np.ndarray:
    """float64[N]: local clustering, the share of a vertex's pairs of neighbours that are linked; 0 below degree 2."""
    degrees = links.degrees
    pairs = degrees * (degrees - 1) / 2
    corners = _triangles(*_onward(links.indptr, links.indices, degrees))
    return np.divide(corners, pairs, out=np.zeros(len(degrees)), where=pairs > 0)


def triangle_sides(links: Skeleton, large: np.ndarray, small: np.ndarray) -> tuple[int, int, int]:
    """Sides of all triangles, of those inside a small community, and of those inside a large but no small one."""
    every, in_small, in_large = _triangle_sides(*_onward(*links, links.degrees), large, small)
    return int(every), int(in_small), int(in_large)


def degree_correlation(links: Skeleton) -> float:
    """Correlation of the logarithms of the degrees at the two ends of an edge; 0 where all degrees are equal."""
    logs = np.log(np.maximum(links.degrees, 1).astype(np.float64))
    x, y = logs[links.indices], logs[rows_of(links.indptr)]
    if len(x) == 0 or x.std() < 1e-12:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def communities(links: Skeleton, seed: int = 0, levels: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Two levels of communities by Louvain's method (Blondel et al., 2008): ``(large, small)``, int64[N] labels each.

    ``small`` is the partition after the first level of moves, ``large`` the last one; every small community lies inside
    a large one. Labels count from 0 without gaps.
    """
    n = len(links.indptr) - 1
    indptr, indices = links.indptr, links.indices
    weights = np.ones(len(indices))
    loops = np.zeros(n)
    rng = np.random.default_rng([seed, 0x10CA])
    large = small = np.arange(n)
    for level in range(levels):
        moved = _local_moves(indptr, indices, weights, loops, rng.permutation(len(indptr) - 1), 8)
        names, moved = np.unique(moved, return_inverse=True)
        if len(names) == len(indptr) - 1:
            break
        large = moved[large]
        if level == 0:
            small = large
        indptr, indices, weights, loops = _merged(indptr, indices, weights, loops, moved, len(names))
    return large, small


def modularity(links: Skeleton, labels: np.ndarray) -> float:
    """Newman's modularity of a partition."""
    if len(links.indices) == 0:
        return 0.0
    inside = (labels[links.indices] == labels[rows_of(links.indptr)]).mean()
    share = np.bincount(labels, links.degrees) / len(links.indices)
    return float(inside - (share**2).sum())


@njit(cache=True)
def _onward(indptr: Any, indices: Any, degrees: Any) -> Any:
    """Neighbour lists ``(indptr, indices)`` with each edge once, at its end of lower degree: even hubs have few."""
    n = len(degrees)
    ahead = np.zeros(n + 1, np.int64)
    onward = np.empty(len(indices) // 2, np.int64)
    used = 0
    for v in range(n):
        for i in range(indptr[v], indptr[v + 1]):
            u = indices[i]
            if degrees[u] > degrees[v] or (degrees[u] == degrees[v] and u > v):
                onward[used] = u
                used += 1
        ahead[v + 1] = used
    return ahead, onward


@njit(cache=True)
def _triangles(ahead: Any, onward: Any) -> Any:
    """Triangles at each vertex, in time E ** 1.5 at most."""
    n = len(ahead) - 1
    count = np.zeros(n, np.int64)
    seen = np.full(n, -1, np.int64)
    for v in range(n):
        for i in range(ahead[v], ahead[v + 1]):
            seen[onward[i]] = v
        for i in range(ahead[v], ahead[v + 1]):
            u = onward[i]
            found = 0
            for j in range(ahead[u], ahead[u + 1]):
                w = onward[j]
                if seen[w] == v:
                    found += 1
                    count[w] += 1
            count[u] += found
            count[v] += found
    return count


@njit(cache=True)
def _triangle_sides(ahead: Any, onward: Any, large: Any, small: Any) -> Any:
    """Sides of triangles: all, inside a small community, and inside a large but no small one."""
    n = len(ahead) - 1
    seen = np.full(n, -1, np.int64)
    sides = np.zeros(3, np.int64)
    for v in range(n):
        for i in range(ahead[v], ahead[v + 1]):
            seen[onward[i]] = v
        for i in range(ahead[v], ahead[v + 1]):
            u = onward[i]
            for j in range(ahead[u], ahead[u + 1]):
                w = onward[j]
                if seen[w] == v:
                    sides[0] += 3
                    for a, b in ((v, u), (u, w), (v, w)):
                        if small[a] == small[b]:
                            sides[1] += 1
                        elif large[a] == large[b]:
                            sides[2] += 1
    return sides


@njit(cache=True)
def _local_moves(indptr: Any, indices: Any, weights: Any, loops: Any, order: Any, passes: int) -> Any:
    """Each vertex moves to the neighbouring community that raises modularity most, until a pass moves few."""
    n = len(indptr) - 1
    label = np.arange(n)
    strength = loops.copy()
    for v in range(n):
        for i in range(indptr[v], indptr[v + 1]):
            strength[v] += weights[i]
    total = max(strength.sum(), 1e-300)
    held = strength.copy()
    towards = np.zeros(n)
    for _ in range(passes):
        moves = 0
        for v in order:
            own = label[v]
            held[own] -= strength[v]
            for i in range(indptr[v], indptr[v + 1]):
                towards[label[indices[i]]] += weights[i]
            best, gain = own, towards[own] - strength[v] * held[own] / total
            for i in range(indptr[v], indptr[v + 1]):
                c = label[indices[i]]
                other = towards[c] - strength[v] * held[c] / total
                if other > gain + 1e-9:
                    best, gain = c, other
            for i in range(indptr[v], indptr[v + 1]):
                towards[label[indices[i]]] = 0.0
            towards[own] = 0.0
            label[v] = best
            held[best] += strength[v]
            moves += best != own
        if moves * 1000 <= n:
            break
    return label


def _merged(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, loops: np.ndarray, label: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The weighted graph whose vertices are communities; edges inside one become its loop."""
    keys = label[rows_of(indptr)] * n + label[indices]
    order = np.argsort(keys, kind="stable")
    keys, weights = keys[order], weights[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    sums = np.add.reduceat(weights, first) if len(keys) else weights
    dst, src = np.divmod(keys[first], n)
    own = np.bincount(label, loops, minlength=n)
    inside = src == dst
    own[dst[inside]] += sums[inside]
    return indptr_of(dst[~inside], n), src[~inside], sums[~inside], own
