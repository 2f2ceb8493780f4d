"""A k-hop sampler in plain Python: dictionaries, lists and the pick rules of ``pick_oracle``. Slow and obvious."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.sampling.neighbors import pick_oracle


@dataclass
class ReferenceHop:
    """One hop: who was expanded, and the edge positions drawn for each."""

    frontier: list[int] = field(default_factory=list)
    positions: list[list[int]] = field(default_factory=list)


@dataclass
class ReferenceSample:
    """All vertices in the order in which they were reached, their number per level, and the hops."""

    nodes: list[int]
    inverse: list[int]
    levels: list[int]
    hops: list[ReferenceHop]


def rule_of(pick: str = "floyd", replace: bool = False, weighted: bool = False) -> str:
    if weighted:
        return "weighted-replace" if replace else "weighted"
    return "replace" if replace else pick


def sample(
    graph: Any, seeds: Sequence[int], fanouts: Sequence[int], batch_id: int = 0, *, expand: str = "frontier",
    seed: int = 0, **rule: Any,
) -> ReferenceSample:  # fmt: skip
    """Vertices are expanded hop by hop; a vertex reached again keeps its place."""
    name = rule_of(**rule)
    indptr, sources = graph.indptr.tolist(), graph.indices.tolist()
    weights = [1] * len(sources)
    if name.startswith("weighted"):
        weights = pick_oracle.integer_weights(graph.edge_weight.tolist())
    place: dict[int, int] = {}
    inverse = [place.setdefault(v, len(place)) for v in seeds]
    levels, hops = [len(place)], []
    for number, fanout in enumerate(fanouts):
        nodes = list(place)
        begin = levels[-2] if expand == "new" and number else 0
        hop = ReferenceHop(frontier=nodes[begin:])
        for v in hop.frontier:
            start, end = indptr[v], indptr[v + 1]
            drawn = pick_oracle.pick(name, weights[start:end], fanout, v, batch_id, number, seed)
            hop.positions.append([start + at for at in drawn])
            for at in hop.positions[-1]:
                place.setdefault(sources[at], len(place))
        levels.append(len(place))
        hops.append(hop)
    return ReferenceSample(list(place), inverse, levels, hops)
