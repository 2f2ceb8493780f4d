"""Layer sampling (NextDoor, section 3)."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.checks import flag
from gnnsample_lab.device.arrays import array_module
from gnnsample_lab.sampling.engine.language.app import INF, NULL, SamplingApp, SamplingType

from .choices import size


def _uniform(src_edges: Any, rng: Any) -> Any:
    return rng.below(len(src_edges)) if len(src_edges) > 0 else NULL


def _weighted(src_edges: Any, rng: Any) -> Any:
    total = src_edges.prefix(len(src_edges))
    return src_edges.search(rng.below(total)) if total > 0 else NULL


class Layer(SamplingApp):
    """Layers of bounded size (Gao et al., KDD'18): ``step_size`` neighbours of all transits together until it is full.

    A vertex that is a neighbour of several transits is as much more likely. The last layer is cut where the sample has
    ``final_size`` vertices, roots included and repeated vertices counted.

    Args:
        final_size: vertices of a sample; 2000 in NextDoor's evaluation.
        step_size: vertices that a step adds; 1000 there.
        weighted: draw edges in proportion to the graph's weights, if it has any, not each alike.
        replace: False has the vertices of a layer distinct: one that the layer has already is drawn anew.
    """

    def __init__(
        self, final_size: int = 2000, step_size: int = 1000, weighted: bool = False, replace: bool = True
    ) -> None:
        self.final_size, self.step_size = size("final_size", final_size), size("step_size", step_size)
        self.weighted, self.replace = flag("weighted", weighted), flag("replace", replace)

    def unique(self, step: int) -> bool:
        return not self.replace

    def prepare(self, graph: Any) -> None:
        self.choose = _weighted if self.weighted and self.edge_weights(graph) is not None else _uniform

    def sampling_type(self) -> SamplingType:
        return SamplingType.COLLECTIVE

    def step_transits(self, step: Any, s: Any, transit_idx: Any, rng: Any) -> Any:
        # A full sample has no transits and ends, before anyone gathers their neighbours.
        return s.prev_vertex(1, transit_idx) if s.size() < self.final_size else NULL

    def kept_transits(self, result: Any, step: int, vertices: Any) -> Any:
        """What :meth:`step_transits` chose of a run that is over: nothing where the sample was full."""
        size = sum((found >= 0).sum(axis=1) for found in (result.roots, *result.steps[:step]))
        return array_module(vertices).where((size < self.final_size)[:, None], vertices, NULL)

    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        if s.size() + s.slot() >= self.final_size:
            return NULL
        edge = self.choose(src_edges, rng)
        return src_edges[edge] if edge != NULL else NULL

    def steps(self) -> int:
        return INF

    def sample_size(self, step: int) -> int:
        return min(self.step_size, self.final_size)  # what a full sample has no room for is never drawn
