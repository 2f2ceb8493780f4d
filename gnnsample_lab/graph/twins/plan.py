"""The plan of a twin: integers alone, made on the host, that with a seed decide every edge on every device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.graph.csc import key_bits

ONE = 1 << 16
"""Shares are in units of 1 / ONE."""
BINS = 64
ROLES = 6
"""Of vertices in directed graphs: from those that point to others alone to those that are pointed to alone."""
CLIQUE_SIZES = (
    3, 4, 5, 6, 8, 10, 13, 17, 22, 29, 38, 50, 66, 87, 115, 150, 200, 260, 340, 450, 590, 780, 1030, 1360, 1800, 2400,
    3200, 4200, 5600, 7400,
)  # fmt: skip
PARTS = (205, 614, 2253)
"""A vertex of high degree spreads its cliques over three sizes: its own times these, in 1/1024.

With one size a vertex met only vertices of its own degree in cliques, and low degrees kept to themselves.
"""
ONE_PART_BELOW = 32
"""Vertices of lower degree have too few half-edges for cliques of three sizes."""
SCALED_COMMUNITY = 1000
"""A scaled graph has fewer communities of up to this size, as large as before: triangles are made in them, and a
smaller community with as many links inside would close more. Larger ones shrink, down to it."""
COMMUNITIES_LEFT = 32
"""A very small graph has no community of more than this part of it, if its communities are scaled at all."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What the skeleton of a twin looks like. Vertices are ranks: 0 has the lowest degree.

    Attributes:
        degrees, counts: int64[D]; ``counts[i]`` vertices have ``degrees[i]`` neighbours, ascending.
        cliques: int64[BINS], clustering that cliques are made for, by :func:`bin_of` the degree, in 1/ONE.
        clique_share: share of its half-edges that a vertex gives to cliques, at least.
        size, large: int64[S], vertices of each small community, and the large community that holds it.
        level: int64[S], mean degree rank of a community's vertices over N, in 1/ONE.
        spread: width of a vertex's degree rank about its community's level, in 1/ONE.
        factor: int64[S], clustering of a community against that of its degrees elsewhere, in 1/ONE.
        inside, inside_large: int64[S], int64[L], share of the edge ends that stay in the small, the large community.
        clique_small, clique_large: share of clique corners shuffled in the small, and else in the large community.
        mixing: int64[G, G], edge ends by the groups of the vertices at both ends; symmetric. A group is an octave of
            degree (:func:`octave_of`) or, in directed graphs that have them, an octave and a role.
        roles: int64[octaves, ROLES] or None, vertices of each octave by role.
        keeps_mixing: whether no step links groups that the mixing never links, and small communities keep to it too.
        seed: which graph.
    """

    degrees: np.ndarray
    counts: np.ndarray
    cliques: np.ndarray
    clique_share: int
    size: np.ndarray
    large: np.ndarray
    level: np.ndarray
    spread: int
    factor: np.ndarray
    inside: np.ndarray
    inside_large: np.ndarray
    clique_small: int
    clique_large: int
    mixing: np.ndarray
    roles: np.ndarray | None = None
    keeps_mixing: bool = False
    seed: int = 0

    @property
    def num_nodes(self) -> int:
        return int(self.counts.sum())

    @property
    def num_pairs(self) -> int:
        return int((self.degrees * self.counts).sum()) // 2

    @property
    def bits(self) -> int:
        return key_bits(self.num_nodes)


def bin_of(degrees: Any) -> np.ndarray:
    """int64 bin of each degree: the degree itself below 8, then two bins to an octave, 63 at most."""
    d = np.asarray(degrees, dtype=np.int64)
    log = octave_of(d)
    low = np.int64(1) << log
    # d >= sqrt(2) * low, in whole numbers that do not overflow: both sides are shifted to below 2**31 first.
    shift = np.maximum(log - 30, 0)
    upper = (d >> shift) ** 2 >= 2 * (low >> shift) ** 2
    return np.minimum(np.where(d < 8, d, 2 * log + upper + 2), BINS - 1)


def octave_of(degrees: Any) -> np.ndarray:
    """int64 octave of each degree: floor(log2), 0 for degrees 0 and 1."""
    d = np.asarray(degrees, dtype=np.int64)
    log = np.zeros(d.shape, dtype=np.int64)
    for k in range(1, 63):
        above = d >= np.int64(1) << k
        if not above.any():
            break
        log += above
    return log


def role_of(share: Any) -> np.ndarray:
    """int64 role of each share of in-links among all links: the first at 0, the last at 1, between them by quarters."""
    s = np.asarray(share)
    inner = 1 + np.minimum((s * (ROLES - 2)).astype(np.int64), ROLES - 3)
    return np.where(s <= 0, 0, np.where(s >= 1, ROLES - 1, inner))


def scaled_counts(degrees: np.ndarray, counts: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """The degree table of a graph of ``num_nodes`` vertices with the same distribution of degrees.

    A degree is at most half the vertices, and their sum is even.
    """
    total = int(counts.sum())
    ends = np.concatenate([[0], np.cumsum(counts)])
    if num_nodes != total:
        ends = np.array(
            [int(e) * num_nodes // total for e in ends], dtype=np.int64
        )  # exact: Python's integers
    new = np.diff(ends)
    # A scaled-down graph whose hubs kept their degrees would be denser than any original.
    limit = num_nodes - 1 if num_nodes >= total else max(1, num_nodes // 2)
    table: dict[int, int] = {}
    for d, c in zip(np.minimum(degrees, limit).tolist(), new.tolist()):
        if c:
            table[d] = table.get(d, 0) + c
    if sum(d * c for d, c in table.items()) % 2:
        odd = max(d for d in table if d > 0)
        table[odd] -= 1
        table[odd - 1] = table.get(odd - 1, 0) + 1
    kept = sorted((d, c) for d, c in table.items() if c)
    return np.array([d for d, _ in kept], dtype=np.int64), np.array([c for _, c in kept], dtype=np.int64)


def scaled_sizes(size: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """``(size, kept)``: sizes of the communities of a graph of ``num_nodes`` vertices, and which were kept.

    Large communities shrink with the graph; of small ones fewer are kept, at their size. A larger graph repeats
    nothing: its communities grow.
    """
    total = int(size.sum())
    whole = min(SCALED_COMMUNITY, max(20, num_nodes // COMMUNITIES_LEFT))
    if num_nodes == total:
        return size, np.arange(len(size))
    kept, sizes, owed, used = [], [], 0, 0  # owed is in units of 1 / total
    for c, old in enumerate(size.tolist()):
        owed += old * num_nodes
        least = min(old, whole)
        if owed >= least * total:
            now = owed // total
            kept.append(c)
            sizes.append(now)
            owed -= now * total
            used += now
    if used < num_nodes:
        if not kept:
            kept, sizes = [0], [0]
        sizes[-1] += num_nodes - used
    return np.array(sizes, dtype=np.int64), np.array(kept, dtype=np.int64)
