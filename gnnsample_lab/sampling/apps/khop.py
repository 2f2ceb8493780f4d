"""k-hop neighbourhoods (NextDoor, figure 4d)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnnsample_lab.checks import items
from gnnsample_lab.sampling.engine.language.app import NULL, SamplingApp

from .choices import size


class KHop(SamplingApp):
    """GraphSAGE's neighbourhoods (Hamilton et al., NeurIPS'17): ``fanouts[h]`` neighbours of every vertex of hop h.

    Uniform and with replacement, as in NextDoor; a vertex without in-neighbours adds none. Mini-batches without
    replacement and with merged vertices are :class:`lab.NeighborSampler`'s.

    Args:
        fanouts: neighbours per vertex, the hop next to the roots first; (25, 10) as in GraphSAGE and in NextDoor's
            evaluation (its section 4.2 names them the other way round).
    """

    def __init__(self, fanouts: Sequence[int] = (25, 10)) -> None:
        given = items("fanouts", fanouts, "a list of integers")
        self.fanouts = tuple(size(f"fanouts[{h}]", fanout) for h, fanout in enumerate(given))
        if not self.fanouts:
            raise ValueError("fanouts must name at least one hop")

    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        return src_edges[rng.below(len(src_edges))] if len(src_edges) > 0 else NULL

    def steps(self) -> int:
        return len(self.fanouts)

    def sample_size(self, step: int) -> int:
        return self.fanouts[step]
