"""Samplers as the systems before NextDoor have them (its table 1): NumPy on one core, a mini-batch at a time.

Each follows the published implementation of its system in what it does per mini-batch: padded neighbour table with
shuffled columns (GraphSAGE), a draw from a dense distribution over all vertices and a slice of the adjacency matrix
(FastGCN, LADIES), the sub-matrix of a few clusters (ClusterGCN), a frontier walk and its sub-matrix (GraphSAINT).
"""

from __future__ import annotations

from typing import Any

import numpy as np

PADDED = 128
"""Neighbours that GraphSAGE keeps of each vertex."""


class Lists:
    """In-neighbour lists in host memory with a table for looking vertices up."""

    def __init__(self, graph: Any) -> None:
        self.indptr, self.indices = np.asarray(graph.indptr), np.asarray(graph.indices)
        self.num_nodes = len(self.indptr) - 1
        self.degrees = np.diff(self.indptr)
        self._number = np.full(self.num_nodes, -1, np.int32)

    def gather(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Offsets ``[len(rows) + 1]`` and the lists of ``rows`` one behind another."""
        lengths = self.degrees[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        at = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - self.indptr[rows], lengths)
        return offsets, self.indices[at]

    def slice(self, rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``indptr`` and ``indices`` (numbers among ``columns``, distinct ones) of the rows' edges to ``columns``."""
        offsets, found = self.gather(rows)
        self._number[columns] = np.arange(len(columns), dtype=np.int32)
        local = self._number[found]
        self._number[columns] = -1
        keep = local >= 0
        return np.concatenate([[0], np.cumsum(keep)])[offsets], local[keep]


class TreeSampler:
    """GraphSAGE's and, with one hop, MVS's: ``fanouts[h]`` neighbours of every vertex of hop h, -1 without any."""

    def __init__(self, graph: Any, fanouts: tuple[int, ...], seed: int = 0) -> None:
        if max(fanouts) > PADDED:
            raise ValueError(
                f"fanouts must be at most {PADDED}, the neighbours that each list keeps (got {fanouts})"
            )
        self.fanouts, self.rng = fanouts, np.random.default_rng(seed)
        lists = Lists(graph)
        self.table = np.full((lists.num_nodes, PADDED), -1, lists.indices.dtype)
        for begin in range(0, lists.num_nodes, 1 << 18):
            rows = np.arange(begin, min(lists.num_nodes, begin + (1 << 18)))
            some = rows[lists.degrees[rows] > 0]
            picks = (self.rng.random((some.size, PADDED)) * lists.degrees[some, None]).astype(np.int64)
            self.table[some] = lists.indices[lists.indptr[some, None] + picks]

    def sample(self, seeds: np.ndarray) -> list[np.ndarray]:
        """Ids of every hop, ``[B, fanouts[0] * ... * fanouts[h]]``."""
        found, last = [], seeds
        for fanout in self.fanouts:
            columns = self.rng.permutation(PADDED)[:fanout]
            picked = np.where(last[:, None] >= 0, self.table[last][:, columns], -1)
            last = picked.reshape(-1)
            found.append(last.reshape(seeds.size, -1))
        return found


class LayerSampler:
    """FastGCN's and LADIES' layers: distinct vertices by a distribution, and the matrix between two layers.

    Args:
        dependent: draw a layer from the neighbours of the last one (LADIES), not from all vertices (FastGCN).
    """

    def __init__(self, graph: Any, layers: int, size: int, dependent: bool, seed: int = 0) -> None:
        self.lists, self.layers, self.size, self.dependent = Lists(graph), layers, size, dependent
        self.rng = np.random.default_rng(seed)
        out = np.bincount(self.lists.indices, minlength=self.lists.num_nodes)
        norms = np.zeros(self.lists.num_nodes)
        row = 1 / np.maximum(self.lists.degrees, 1)
        np.add.at(norms, self.lists.indices, np.repeat(row, self.lists.degrees))
        norms /= np.maximum(out, 1)
        self.everywhere = norms / norms.sum()

    def sample(self, seeds: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Per layer: its vertices, and ``indptr``, ``indices`` and ``weight`` (rows sum to 1) of the matrix to them."""
        found, rows = [], seeds
        for _ in range(self.layers):
            p = self._distribution(rows) if self.dependent else self.everywhere
            count = min(self.size, int((p > 0).sum()))
            vertices = self.rng.choice(self.lists.num_nodes, count, replace=False, p=p) if count else rows[:0]
            indptr, indices = self.lists.slice(rows, vertices)
            weight = 1 / p[vertices[indices]]
            sums = np.add.reduceat(np.append(weight, 0.0), np.minimum(indptr[:-1], weight.size))
            weight /= np.repeat(sums, np.diff(indptr))
            found.append((vertices, indptr, indices, weight.astype(np.float32)))
            rows = vertices
        return found

    def _distribution(self, rows: np.ndarray) -> np.ndarray:
        offsets, neighbors = self.lists.gather(rows)
        lengths = np.diff(offsets)
        each = np.repeat(1 / np.maximum(lengths, 1) ** 2.0, lengths)
        p = np.bincount(neighbors, weights=each, minlength=self.lists.num_nodes)
        total = p.sum()
        return p / total if total else p


class ClusterSampler:
    """ClusterGCN's: the sub-graph of a few clusters, taken without repetition until all have been."""

    def __init__(self, graph: Any, cluster: np.ndarray, each: int, seed: int = 0) -> None:
        self.lists, self.each, self.rng = Lists(graph), each, np.random.default_rng(seed)
        self.left = np.empty(0, np.int64)  # clusters that this round has not had
        order = np.argsort(cluster, kind="stable")
        self.members = np.split(order, np.cumsum(np.bincount(cluster))[:-1])

    def sample(self, _: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Vertices, and ``indptr`` and ``indices`` of the edges among them."""
        each = min(self.each, len(self.members))
        if len(self.left) < each:
            self.left = self.rng.permutation(len(self.members))
        chosen, self.left = self.left[:each], self.left[each:]
        vertices = np.concatenate([self.members[c] for c in chosen])
        return (vertices, *self.lists.slice(vertices, vertices))


class FrontierSampler:
    """GraphSAINT's: walkers of whom one, by degree, moves at a step; the sub-graph of all vertices seen."""

    def __init__(self, graph: Any, walkers: int, length: int, seed: int = 0) -> None:
        self.lists, self.walkers, self.length = Lists(graph), walkers, length
        self.rng = np.random.default_rng(seed)

    def sample(self, _: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Vertices, and ``indptr`` and ``indices`` of the edges among them."""
        lists, rng = self.lists, self.rng
        frontier = rng.integers(0, lists.num_nodes, self.walkers)
        seen = [frontier.copy()]
        for _ in range(self.length):
            degrees = lists.degrees[frontier].cumsum()
            if not degrees[-1]:
                break
            moved = int(np.searchsorted(degrees, rng.integers(degrees[-1]), side="right"))
            begin = lists.indptr[frontier[moved]]
            frontier[moved] = lists.indices[begin + rng.integers(lists.degrees[frontier[moved]])]
            seen.append(frontier[moved : moved + 1].copy())
        vertices = np.unique(np.concatenate(seen))
        return (vertices, *lists.slice(vertices, vertices))
