"""Importance sampling by layers (NextDoor, figure 4b): FastGCN and LADIES with their own papers' probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.sampling.engine.language.app import NULL, SamplingApp, SamplingType

from .adjacency import column_norms, column_shares, entries_alike, row_norms, squared_entries
from .choices import (
    distinct_roots,
    length,
    once_per_graph,
    own_weights,
    prefix_sums,
    size,
    uniform_neighbor,
    weighted_neighbor,
)


class FastGCN(SamplingApp):
    """Every layer from one distribution over the whole graph (Chen et al., ICLR'18), with replacement.

    Vertex u is drawn in proportion to the squared norm of its column in the normalised adjacency
    ``D_in^-1/2 A D_out^-1/2`` (weights count; on an undirected graph this is GCN's). ``r.adjacency(step)`` has the
    edges between layers; a vertex that no transit is connected to has none. For the paper's ``A + I`` give the graph
    self-loops.

    Args:
        layers: steps; 5 in NextDoor's figure 4b, 2 in FastGCN.
        batch_size: roots of a sample, distinct; 64 in NextDoor's evaluation.
        step_size: vertices that a layer adds; 64 there.
    """

    def __init__(self, layers: int = 5, batch_size: int = 64, step_size: int = 64) -> None:
        self.layers, self.batch_size = length("layers", layers), size("batch_size", batch_size)
        self.step_size = size("step_size", step_size)

    @once_per_graph(own_weights)
    def prepare(self, graph: Any) -> None:
        if graph.num_edges == 0:
            raise ValueError(f"{self.name} draws vertices by their edges, and {graph.title!r} has none")
        norms = column_norms(graph, self.edge_weights(graph))
        if not norms.any():
            raise ValueError(
                f"edge_weight must have a positive entry: {self.name} draws vertices by their edges, and all of "
                f"{graph.title!r} weigh nothing"
            )
        self.prefix: Any = prefix_sums(norms)
        self.total = int(self.prefix[-1])

    def sampling_type(self) -> SamplingType:
        return SamplingType.COLLECTIVE

    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        return self.prefix.search(rng.below(self.total))

    def steps(self) -> int:
        return self.layers

    def sample_size(self, step: int) -> int:
        return self.step_size

    def initial_samples(self, graph: Any, num_samples: int, seed: int) -> np.ndarray:
        return distinct_roots(num_samples, self.batch_size, graph.num_nodes, seed)

    def layer_probability(self, result: Any, step: int) -> np.ndarray:
        """Probability with which one draw gives each sampled vertex, ``float64[S, width]``; 0 where there is none."""
        self.prepare(result.graph)  # it may have drawn from another one since
        drawn = to_host(result.steps[step])
        return np.where(drawn >= 0, np.diff(self.prefix)[drawn], 0) / self.total


class LADIES(FastGCN):
    """Every layer from the neighbours of the last one (Zou et al., NeurIPS'19), without replacement.

    A neighbour u of the transits is drawn in proportion to the sum over transits v of ``P[v, u]**2``, where P is the
    adjacency with rows normalised to sum 1 (NextDoor's published code draws uniformly instead). That is: a row v in
    proportion to its sum of squares, then an edge of it in proportion to its square, so that the combined
    neighbourhood need not be gathered. ``unique`` makes it successive sampling: what the layer has already is drawn
    anew. A layer is smaller where the transits have fewer neighbours, or a last one so unlikely that
    ``max_redraws`` do not find it. For the paper's ``A + I`` give the graph self-loops.

    Args:
        layers: steps; 5 in LADIES and in NextDoor's figure 4b.
        batch_size: roots of a sample, distinct; 64 in NextDoor's evaluation, 512 in LADIES.
        step_size: vertices that a layer adds; 64 in both.
    """

    max_redraws = 63

    def edge_weights(self, graph: Any) -> Any:
        return self.squares

    @once_per_graph()
    def prepare(self, graph: Any) -> None:
        # A row's sum of squares spans more orders of magnitude than edge weights have bits: a table.
        self.row_norm = (row_norms(graph) * 2**40).astype(np.int64)
        self.squares = None if entries_alike(graph) else squared_entries(graph)
        self.neighbor = uniform_neighbor if self.squares is None else weighted_neighbor

    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        total = 0
        for v in transits:
            total += self.row_norm[v] if v != NULL else 0
        left = rng.below(total) if total > 0 else 0
        for v in transits:
            left -= self.row_norm[v] if v != NULL else 0
            if left < 0:
                return self.neighbor(v, rng)
        return NULL  # no transit has a neighbour

    def unique(self, step: int) -> bool:
        return True

    def layer_probability(self, result: Any, step: int) -> np.ndarray:
        self.prepare(result.graph)
        return column_shares(result, step, self.row_norm, self.squares)
