# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""PinSAGE's neighbourhoods (Ying et al., KDD'18): random walks vote for a vertex's neighbours.

Every vertex starts a few short walks. The vertices that these walks visit most often become its neighbours; the number
of visits is a neighbour's weight. GNNLab (section 7: 4 walks of 3 steps, top 5, 3 layers) and FastGL (table 7) use this
random-walk workload. This file has the CPU twin; the kernels are in ``pinsage.cu``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.checks import flag, real, whole
from gnnsample_lab.device import philox
from gnnsample_lab.device.arrays import offsets_of
from gnnsample_lab.device.jit import njit, prange
from gnnsample_lab.sampling.neighbors.spec import MAX_FANOUT, HopPicks, SampleSpec, make_spec

MAX_VISITS = 4096
"""Largest number of walks times steps per vertex: a kernel keeps all visits of a vertex in shared memory."""
AS_RELEASED: dict[str, Any] = {"restart": 0.5, "restart_ends": True}
"""Walks of GNNLab's release and of its baseline in DGL: one ends after a step with probability 0.5. Its paper names no
restart."""
_CHUNK = 64
"""Rows per parallel task: enough to hide the cost of scheduling, few enough to balance the load."""


@dataclass(frozen=True)
class WalkSpec(SampleSpec):
    """The settings of a random-walk sample; ``fanouts`` has the number of neighbours kept, once per layer.

    Attributes:
        num_walks: walks that each vertex starts.
        walk_length: steps of a walk, each to an in-neighbour drawn uniformly.
        restart: probability that a step leaves from the walk's start instead of the walk's present vertex.
        restart_ends: whether a walk ends there instead. GNNLab's release and DGL do so, with probability 0.5, and call
            it restart; GNNLab's paper names no restart.
    """

    num_walks: int = 4
    walk_length: int = 3
    restart: float = 0.0
    restart_ends: bool = False

    @property
    def restart_below(self) -> int:
        """``restart`` in units of 2**-32: a step restarts when its 32-bit random word is below this number."""
        return int(self.restart * 2**32)

    @property
    def num_visits(self) -> int:
        """Steps of all walks of a vertex."""
        return self.num_walks * self.walk_length


def make_walk_spec(
    num_layers: Any, num_neighbors: Any, num_walks: Any, walk_length: Any, restart: Any, seed: Any,
    restart_ends: Any = False,
) -> WalkSpec:  # fmt: skip
    """Validate the arguments of a random-walk sampler.

    Raises:
        TypeError: an argument is not a number of the right kind.
        ValueError: out of range; more than :data:`MAX_VISITS` visits per vertex.
    """
    layers = whole("num_layers", num_layers, 1, 15)
    kept = whole("num_neighbors", num_neighbors, 1, MAX_FANOUT)
    walks = whole("num_walks", num_walks, 1, MAX_VISITS)
    length = whole("walk_length", walk_length, 1, MAX_VISITS)
    if walks * length > MAX_VISITS:
        raise ValueError(f"num_walks * walk_length must be at most {MAX_VISITS} (got {walks} * {length})")
    restart = real("restart", restart, 0, below=1)
    base = make_spec([kept] * layers, "floyd", True, False, "frontier", seed)
    ends = flag("restart_ends", restart_ends)
    return WalkSpec(base.fanouts, base.pick, True, False, "frontier", base.seed, walks, length, restart, ends)


@njit(cache=True)
def _visits(v, indptr, indices, num_walks, walk_length, restart, ends, batch, hop, seed, out):
    """Write the vertices that the walks of ``v`` visit, without ``v`` itself, to ``out``; returns their number."""
    n = 0
    for walk in range(num_walks):
        at = np.int64(v)
        for step in range(walk_length):
            i = walk * walk_length + step
            if restart > 0:
                r = philox.four(v, batch, hop, philox.RESTART, i >> 2, 0, seed)
                if philox.word(r, i) < restart:
                    if ends and step > 0:
                        break
                    at = np.int64(v)
            start = indptr[at]
            degree = indptr[at + 1] - start
            if degree == 0:
                break
            r = philox.four(v, batch, hop, philox.WALK, i >> 2, 0, seed)
            at = np.int64(
                indices[
                    start + philox.bounded(v, batch, hop, philox.WALK, i, philox.word(r, i), degree, seed)
                ]
            )
            if at != v:
                out[n] = at
                n += 1
    return n


@njit(cache=True)
def _vote(visited, n, counts, k, top, votes):
    """Find the ``k`` most frequent ids in ``visited[:n]``; of equally frequent ids the lower one comes first.

    Writes ids to ``top`` and frequencies to ``votes``; returns how many there are, at most ``k``.
    """
    if n <= 32:
        for i in range(1, n):
            x, j = visited[i], i
            while j > 0 and visited[j - 1] > x:
                visited[j] = visited[j - 1]
                j -= 1
            visited[j] = x
    else:
        visited[:n].sort()
    distinct = 0
    for i in range(n):
        x = visited[i]
        if distinct > 0 and visited[distinct - 1] == x:
            counts[distinct - 1] += 1
        else:
            visited[distinct] = x
            counts[distinct] = 1
            distinct += 1
    kept = min(k, distinct)
    for slot in range(kept):
        best = 0
        for i in range(1, distinct):
            if counts[i] > counts[best]:
                best = i
        top[slot] = visited[best]
        votes[slot] = counts[best]
        counts[best] = 0
    return kept


@njit(parallel=True, cache=True)
def _walk(
    frontier, indptr, indices, k, num_walks, walk_length, restart, ends, batch, hop, seed, counts, neighbors, votes
):  # fmt: skip
    rows = frontier.size
    for chunk in prange((rows + _CHUNK - 1) // _CHUNK):
        visited = np.empty(num_walks * walk_length, np.int64)
        tally = np.empty(num_walks * walk_length, np.int32)
        for i in range(chunk * _CHUNK, min(rows, (chunk + 1) * _CHUNK)):
            n = _visits(
                frontier[i], indptr, indices, num_walks, walk_length, restart, ends, batch, hop, seed, visited
            )
            counts[i] = _vote(visited, n, tally, k, neighbors[i], votes[i])


@njit(cache=True)
def _compact(counts, padded, padded_votes, neighbors, votes):
    at = 0
    for i in range(counts.size):
        for slot in range(counts[i]):
            neighbors[at] = padded[i, slot]
            votes[at] = padded_votes[i, slot]
            at += 1


def walk_hop(
    frontier: Any, indptr: Any, indices: Any, spec: WalkSpec, batch_id: int, hop: int
) -> tuple[HopPicks, np.ndarray]:
    """Walk from every vertex of ``frontier`` and keep the vertices that the walks visited most, on the CPU.

    A walk ends when a step leaves from a vertex without in-neighbours. The start is never its own neighbour, however
    often its walks come back. A row has ``spec.fanouts[hop]`` picks or fewer, the most visited first; of equally
    visited vertices the one with the lower id comes first.

    Args:
        frontier: vertices to expand, distinct, global ids ``[n]``.
        indptr, indices: in-neighbour CSC of the graph, ``int64[N + 1]`` and ids ``[E]``.
        spec: the walks' settings.
        batch_id: number of the mini-batch; part of the draw's counter.
        hop: number of the hop; part of the draw's counter.

    Returns:
        The picks, with all ``positions`` -1, and the number of visits of each pick, ``int32[sum(counts)]``.
    """
    k = min(spec.fanouts[hop], spec.num_visits)
    counts = np.empty(frontier.size, dtype=np.int32)
    padded = np.empty((frontier.size, k), dtype=indices.dtype)
    votes = np.empty((frontier.size, k), dtype=np.int32)
    _walk(
        frontier, indptr, indices, k, spec.num_walks, spec.walk_length, np.uint64(spec.restart_below),
        spec.restart_ends, np.uint64(batch_id), np.uint64(hop), np.uint64(spec.seed), counts, padded, votes,
    )  # fmt: skip
    offsets = offsets_of(counts)
    neighbors, weights = np.empty(offsets[-1], indices.dtype), np.empty(offsets[-1], np.int32)
    _compact(counts, padded, votes, neighbors, weights)
    return HopPicks(frontier, counts, neighbors, np.full(neighbors.size, -1, np.int64), offsets), weights
