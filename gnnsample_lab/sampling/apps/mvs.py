"""Mini-batches of important roots (NextDoor, section 4.2: "1-hop neighbors of all initial vertices")."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.graph.graph import check_graph
from gnnsample_lab.sampling.engine.language.app import NULL, SamplingApp, uniform_roots

from .choices import prefix_sums, shares, size


class MVS(SamplingApp):
    """Minimal variance sampling (Cong et al., KDD'20): roots by the size of their gradients, then their neighbours.

    The variance of a mini-batch's gradient is smallest when a vertex is drawn in proportion to its gradient's norm and
    counts with the inverse of its probability. Roots are drawn so, with replacement; ``app.probability(graph)`` are
    the probabilities to divide by. One step then adds their in-neighbours: all of them where ``step_size`` suffices,
    else ``step_size`` uniform ones with replacement.

    Args:
        importance: gradient norm of each vertex at the last look at them, ``float[N]``, not negative; None takes
            in-degree + 1 in place of norms that nobody has computed yet.
        batch_size: roots of a sample; 64 in NextDoor's evaluation.
        step_size: neighbours added per root; 64 there.
    """

    def __init__(self, importance: Any = None, batch_size: int = 64, step_size: int = 64) -> None:
        self.importance = None if importance is None else shares("importance", importance)
        self.batch_size, self.step_size = size("batch_size", batch_size), size("step_size", step_size)

    def probability(self, graph: Any) -> np.ndarray:
        """Probability of each vertex to be a given root, ``float64[N]``.

        Args:
            graph: what is sampled from.

        Raises:
            TypeError: ``graph`` is no Graph.
            ValueError: ``importance`` has another length than the graph, or is no importance.
        """
        prefix = self._prefix(graph)
        return np.diff(prefix) / prefix[-1]

    def _prefix(self, graph: Any) -> np.ndarray:
        if check_graph(graph).num_nodes == 0:
            raise ValueError(f"{self.name} draws vertices, and {graph.title!r} has none")
        given = graph.in_degrees() + 1 if self.importance is None else self.importance
        norms = shares("importance", given)
        if norms.shape != (graph.num_nodes,):
            raise ValueError(f"importance must have shape ({graph.num_nodes},) (got {norms.shape})")
        return prefix_sums(norms)

    def initial_samples(self, graph: Any, num_samples: int, seed: int) -> np.ndarray:
        prefix = self._prefix(graph)
        drawn = uniform_roots(num_samples, self.batch_size, int(prefix[-1]), seed)
        return np.searchsorted(prefix, drawn, side="right") - 1

    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        if len(src_edges) > self.step_size:
            return src_edges[rng.below(len(src_edges))]
        return src_edges[s.slot()] if s.slot() < len(src_edges) else NULL

    def steps(self) -> int:
        return 1

    def sample_size(self, step: int) -> int:
        return self.step_size
