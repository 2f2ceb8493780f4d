"""Samples of applications as the blocks that models train on: trees, layers, induced sub-graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnsample_lab.device.arrays import array_module, to_host
from gnnsample_lab.sampling.engine.results import links

Place = Callable[[Any], Any]
"""Puts an array on the device of the model."""


@dataclass(eq=False)
class Edges:
    """What :func:`lab.aggregate` and the layers need of a block; local ids."""

    src: Any
    indptr: Any
    indices: Any
    weight: Any = None
    kept: dict[str, Any] = field(init=False, default_factory=dict, repr=False)


@dataclass(eq=False)
class Step:
    """One mini-batch: ``seeds`` and ``node_ids`` (whose features are read), global ids, and blocks input-most first."""

    seeds: Any
    node_ids: Any
    blocks: list[Edges]


class Trees:
    """Every pick is a vertex of its own; what was not picked (-1) is the vertex that did not pick it."""

    def __init__(self) -> None:
        self._shapes: dict[Any, Any] = {}

    def __call__(self, seeds: Any, hops: Sequence[Any]) -> Step:
        """``seeds``: ids ``[B]``; ``hops``: picks of each hop, in the order of those who picked, any shape."""
        xp = array_module(seeds)
        flat = [hop.reshape(-1) for hop in hops]
        sizes = (int(seeds.size), *(int(f.size) for f in flat))
        if sizes not in self._shapes:
            self._shapes[sizes] = _tree_shape(sizes, xp)
        levels = [seeds]
        for picked, before, size in zip(flat, sizes, sizes[1:], strict=False):
            levels.append(xp.where(picked >= 0, picked, xp.repeat(levels[-1], size // before)))
        nodes = xp.concatenate(levels)
        blocks = [Edges(nodes[:rows], indptr, indices) for indptr, indices, rows in self._shapes[sizes]]
        return Step(seeds, nodes, blocks[::-1])


def _tree_shape(sizes: Sequence[int], xp: Any) -> list[tuple[Any, Any, int]]:
    """Per hop: ``indptr``, ``indices`` and the number of sources, the hop next to the seeds first."""
    found, begins = [], np.concatenate([[0], np.cumsum(sizes)])
    for hop in range(1, len(sizes)):
        degrees = np.concatenate([np.full(sizes[h], sizes[h + 1] // sizes[h]) for h in range(hop)])
        indptr = np.concatenate([[0], np.cumsum(degrees)])
        # Vertices of a hop draw in order, so that their picks are the next hop, one after the other.
        indices = np.arange(sizes[0], sizes[0] + indptr[-1])
        found.append((xp.asarray(indptr), xp.asarray(indices.astype(np.int32)), int(begins[hop + 1])))
    return found


def layers(result: Any, there: Place) -> list[Step]:
    """A mini-batch per sample: between two layers a matrix whose rows are weighed as in LADIES and sum to 1."""
    xp, samples = array_module(result.roots), result.num_samples
    found: list[list[Edges]] = [[] for _ in range(samples)]
    normalise = "importance-row" if hasattr(result.app, "layer_probability") else "row"
    for number in range(result.num_steps):
        edges = links.adjacency(result, number, normalise)
        rows = edges.shape[1]
        counts = xp.bincount(edges.sample * rows + edges.row, minlength=samples * rows)
        indptr = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(counts)])
        begins = to_host(indptr[::rows])
        vertices, indptr, column, weight = map(
            there,
            (result.steps[number], indptr, edges.column.astype(np.int32), edges.weight.astype(np.float32)),
        )
        for s in range(samples):
            begin, end = int(begins[s]), int(begins[s + 1])
            own = indptr[s * rows : (s + 1) * rows + 1] - begin
            # Slots without a vertex (-1) read vertex 0; no edge leads to them.
            found[s].append(Edges(vertices[s].clip(0), own, column[begin:end], weight[begin:end]))
    seeds = there(result.roots)
    return [Step(seeds[s], blocks[-1].src, blocks[::-1]) for s, blocks in enumerate(found)]


def induced(result: Any, count: int, there: Place) -> list[Step]:
    """A mini-batch per sample: the edges among its vertices, for each of ``count`` layers."""
    whole = links.induced(result)
    begins = to_host(whole.begins)
    edges = to_host(whole.indptr[whole.begins])
    vertices, indptr, indices = map(there, (whole.vertices, whole.indptr, whole.indices))
    found = []
    for s in range(result.num_samples):
        begin, end, first, last = (int(x) for x in (*begins[s : s + 2], *edges[s : s + 2]))
        found.append(
            subgraph(vertices[begin:end], indptr[begin : end + 1] - first, indices[first:last], count)
        )
    return found


def subgraph(vertices: Any, indptr: Any, indices: Any, count: int) -> Step:
    """All vertices are seeds, and every layer has the same edges."""
    block = Edges(vertices, indptr, indices)
    return Step(vertices, vertices, [block] * count)
