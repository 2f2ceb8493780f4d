"""Small samples for schedule tests, drawn with NumPy alone: they do not depend on the sampler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnsample_lab.sampling.neighbors.spec import HopPicks


class Toy:
    """In-neighbour lists of a small graph, from edges ``source -> target``."""

    def __init__(self, sources: Sequence[int], targets: Sequence[int], num_nodes: int) -> None:
        source, target = np.asarray(sources, dtype=np.int64), np.asarray(targets, dtype=np.int64)
        order = np.lexsort((source, target))
        self.indptr = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=num_nodes))]).astype(
            np.int64
        )
        self.indices = source[order].astype(np.int32)
        self.num_nodes = num_nodes
        self.title = "toy"

    def degrees(self, vertices: np.ndarray) -> np.ndarray:
        return np.diff(self.indptr)[np.asarray(vertices, dtype=np.int64)]

    def sample(
        self, seeds: Sequence[int], fanouts: Sequence[int], *, seed: int = 0, self_reuse: bool = True
    ) -> list[HopPicks]:
        """Uniform picks without replacement; ``self_reuse=False`` leaves a vertex's own next task out."""
        rng = np.random.default_rng(seed)
        frontier = np.asarray(seeds, dtype=np.int32)
        hops = []
        for fanout in fanouts:
            positions = []
            for v in frontier:
                start, degree = self.indptr[v], self.indptr[v + 1] - self.indptr[v]
                count = degree if fanout < 0 else min(fanout, degree)
                positions.append(start + np.sort(rng.choice(degree, count, replace=False)) if degree else [])
            counts = np.array([len(p) for p in positions], dtype=np.int32)
            flat = np.concatenate(positions).astype(np.int64) if positions else np.empty(0, np.int64)
            neighbors = self.indices[flat]
            hops.append(HopPicks(frontier, counts, neighbors, flat))
            reached = [*frontier.tolist(), *neighbors.tolist()] if self_reuse else neighbors.tolist()
            frontier = np.array(list(dict.fromkeys(reached)), dtype=np.int32)
        return hops


def random_toy(seed: int, num_nodes: int = 60, num_edges: int = 150) -> Toy:
    """A skewed random graph in which many vertices have no in-neighbours."""
    rng = np.random.default_rng(seed)
    sources = rng.integers(0, num_nodes, num_edges)
    targets = (rng.random(num_edges) ** 3 * num_nodes).astype(int)
    return Toy(sources, targets, num_nodes)
