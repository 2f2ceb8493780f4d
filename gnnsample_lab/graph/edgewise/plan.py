"""Plans of synthetic graphs: the integers that, with a seed, decide every draw on every device."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.graph.csc import key_bits

TAG_CENTROID = 0xA0000000
TAG_BIJECTION = 0xC0000000
RANKS, ORDER = 0, 1
"""Streams of bijections: rank -> vertex, and the random order that the splits are cut from."""
MOST_DRAWS_PER_EDGE = 64
"""Draws for each distinct edge of an R-MAT graph, before it is given up."""
LEAST_LIMIT = 1 << 22
"""Draws that every graph may take: a second's work, with which small graphs get almost all edges that there are."""


@dataclass(frozen=True)
class CommunityPlan:
    """A graph with communities and hubs.

    Vertices get ranks; each class is a run of ranks, and a bijection scatters ranks over vertex ids. A draw
    takes a class in proportion to its size and a destination in it; the source comes from the same class with
    probability ``same / 2**32``, else from any. Inside a class, a member at relative rank x is drawn with
    density proportional to ``x**(1/power - 1)``, so a few members become hubs, except that a share of
    ``*_flat / 2**32`` of the draws is uniform, which keeps most vertices connected.
    """

    num_nodes: int
    num_edges: int
    symmetric: bool
    seed: int
    starts: tuple[int, ...]
    same: int
    dst_power: int
    src_power: int
    dst_flat: int
    src_flat: int
    oversample: float = 1.05

    @property
    def num_classes(self) -> int:
        return len(self.starts) - 1


@dataclass(frozen=True)
class RmatPlan:
    """An R-MAT graph: every bit of an edge's two ends picks a quadrant, thresholds in 1/65536."""

    num_nodes: int
    num_edges: int | None
    symmetric: bool
    seed: int
    thresholds: tuple[int, int, int]
    num_draws: int = 0
    oversample: float = 1.12

    @property
    def levels(self) -> int:
        return key_bits(self.num_nodes)


Plan = CommunityPlan | RmatPlan


def seed_words(seed: int) -> tuple[np.uint64, np.uint64]:
    """The two 32-bit key words of a seed, as the CPU twin takes them."""
    return np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)


def class_starts(num_nodes: int, num_classes: int) -> tuple[int, ...]:
    """First rank of each class, and ``num_nodes``: sizes fall about fivefold from first to last."""
    num_classes = max(1, min(num_classes, num_nodes // 4))
    weights = [2**40 // (4 * c + num_classes + 4) for c in range(num_classes)]
    total = sum(weights)
    starts, before = [], 0
    for weight in weights:
        starts.append(num_nodes * before // total)
        before += weight
    return (*starts, num_nodes)


def bijection(num_nodes: int, seed: int, stream: int) -> np.ndarray:
    """uint64[9]: size, mask, shift and six constants of a seeded bijection on ``[0, num_nodes)``."""
    from gnnsample_lab.device.philox import philox4x32

    bits = key_bits(num_nodes)
    mask = (1 << bits) - 1
    values = [num_nodes, mask, (bits + 1) // 2]
    k0, k1 = seed_words(seed)
    for round_ in range(3):
        w: Any = philox4x32(
            np.uint64(stream), np.uint64(round_), np.uint64(0), np.uint64(TAG_BIJECTION), k0, k1
        )
        values.append(((int(w[0]) | int(w[1]) << 32) | 1) & mask)
        values.append((int(w[2]) | int(w[3]) << 32) & mask)
    return np.array(values, dtype=np.uint64)


def scatter_ids(constants: np.ndarray, ranks: Any) -> Any:
    """int64 images of ``ranks`` under a :func:`bijection`; on the device where ``ranks`` lie.

    Three rounds of xor-shift and odd multiplication on the next power of two, repeated until the result is
    inside: the same walk as ``scatter_id`` of ``synthetic.cu``.
    """
    n, mask, shift, *rounds = (np.uint64(c) for c in constants)
    x = ranks.astype(np.uint64)
    outside = slice(None)
    while True:
        part = x[outside]
        for multiplier, offset in zip(rounds[::2], rounds[1::2]):
            part ^= part >> shift
            part *= multiplier
            part += offset
            part &= mask
        part ^= part >> shift
        x[outside] = part
        outside = (x >= n).nonzero()[0]
        if not len(outside):
            return x.astype(np.int64)


def centroid_signs(num_classes: int, num_features: int, seed: int) -> np.ndarray:
    """int8[C, F] of +1 and -1: the class centroids of the features."""
    from gnnsample_lab.device.philox import philox4x32

    k0, k1 = seed_words(seed)
    zero, tag = np.uint64(0), np.uint64(TAG_CENTROID)
    signs = np.empty((num_classes, -(-num_features // 4), 4), dtype=np.int8)
    for label in range(num_classes):
        for group in range(signs.shape[1]):
            words: Any = philox4x32(np.uint64(label), zero, np.uint64(group), tag, k0, k1)
            signs[label, group] = [1 if int(w) & 1 else -1 for w in words]
    return np.ascontiguousarray(signs.reshape(num_classes, -1)[:, :num_features])


def feature_signal(num_features: int) -> int:
    """Distance of a class centroid from 0 in units of 1/128, per feature.

    Chosen so that two centroids lie about 2.5 standard deviations of the noise apart: features alone classify
    some vertices, and averaging over neighbours classifies most.
    """
    return max(1, math.isqrt(68_500 // max(1, num_features)))


def first_draws(plan: Plan) -> int:
    """Draws to begin with: enough, by the plan's calibration, to have ``num_edges`` distinct edges."""
    if isinstance(plan, RmatPlan) and plan.num_edges is None:
        return plan.num_draws
    assert plan.num_edges is not None
    target = plan.num_edges // 2 if plan.symmetric else plan.num_edges
    return math.ceil(target * plan.oversample) + 64


def most_draws(plan: Plan) -> int | None:
    """Draws after which an R-MAT graph that was asked for so many edges is given up; None: there is no such number.

    Where a quadrant is hardly ever drawn, new edges become so rare that neither memory nor time would be enough.
    """
    if not isinstance(plan, RmatPlan) or plan.num_edges is None:
        return None
    return max(MOST_DRAWS_PER_EDGE * (plan.num_edges // 2 if plan.symmetric else plan.num_edges), LEAST_LIMIT)


def most_edges(plan: RmatPlan) -> int:
    """Distinct edges that the quadrants of an R-MAT graph can give; exact where the vertices are a power of two."""
    ends = [0, *(min(t, 65536) for t in plan.thresholds), 65536]
    drawn = [high > low for low, high in itertools.pairwise(ends)]
    edges = sum(drawn) ** plan.levels
    if not plan.symmetric:
        return edges
    both = drawn[0] + drawn[3] + 2 * (drawn[1] and drawn[2])  # quadrants whose reverse is drawn, too
    return int(2 * edges - both**plan.levels)


def more_draws(draws: int, found: int, wanted: int) -> int:
    """Draws for another attempt when ``draws`` gave ``found < wanted`` distinct edges."""
    return draws + math.ceil((wanted - found) * 1.5 * draws / max(found, 1)) + 64
