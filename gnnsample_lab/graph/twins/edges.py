"""From the skeleton of a twin to in-neighbour lists: vertex ids, directions, CSC. NumPy and CuPy alike."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gnnsample_lab.graph import checks
from gnnsample_lab.graph.csc import rows_of
from gnnsample_lab.graph.edgewise.plan import RANKS, bijection, scatter_ids
from gnnsample_lab.graph.twins.plan import ONE, Plan
from gnnsample_lab.graph.twins.words import bits

_IN_SHARE, _BOTH, _WAY = 900, 901, 902
_CORRECTIONS = 8
_MOST = 1 << 32
SORTED_AT_ONCE = 1 << 28


def vertex_ids(plan: Plan, xp: Any, chunk: int) -> Any:
    """int32[N] (int64 from 2**31 vertices on): the vertex id of each rank, a seeded bijection."""
    constants = bijection(plan.num_nodes, plan.seed, RANKS)
    ids = xp.empty(plan.num_nodes, dtype=checks.id_dtype(plan.num_nodes))
    for start in range(0, plan.num_nodes, chunk):
        stop = min(start + chunk, plan.num_nodes)
        ids[start:stop] = scatter_ids(constants, xp.arange(start, stop, dtype=np.int64))
    return ids


class Edges:
    """The directed edges of a skeleton, drawn chunk by chunk as often as they are needed.

    Args:
        pairs: as :class:`.pairs.Skeleton` has them.
        group: int16[N], as :class:`.pairs.Skeleton` has them.
        direction: of :mod:`.statistics`; None gives every pair both directions.
        both: pairs of a directed graph that are linked both ways.

    A pair that is linked one way points to v rather than to u with odds of s[v] to s[u] (Bradley and Terry's model),
    times the odds of their groups where roles are known. The scores s are corrected a few times, so that in-degrees
    come out as asked for.
    """

    def __init__(
        self,
        plan: Plan,
        pairs: Any,
        ids: Any,
        group: Any,
        direction: Mapping[str, Any] | None,
        both: int,
        xp: Any,
        chunk: int,
    ) -> None:
        self.plan, self.pairs, self.ids, self.group, self.xp, self.chunk = plan, pairs, ids, group, xp, chunk
        self.mask = (1 << plan.bits) - 1
        self.scores = None
        if direction is not None:
            self.both, self.offset = both, int(bits(np, plan.seed, _BOTH, 0, 1, 62)[0]) % max(len(pairs), 1)
            self.odds, self.groups = None, len(plan.mixing)
            if direction.get("roles"):
                one_way = np.array(direction["roles"]["towards"], dtype=np.int64)
                back = one_way + one_way.T
                share = np.where(back > 0, one_way * ONE // np.maximum(back, 1), ONE // 2)
                self.odds = xp.asarray(np.clip(share, 1, ONE - 1).ravel())
            self.scores = self._scores(np.array(direction["in_share"], dtype=np.int64))

    def spans(self, count: int) -> Iterator[tuple[int, int]]:
        for start in range(0, count, self.chunk):
            yield start, min(start + self.chunk, count)

    def between(self, start: int, stop: int) -> tuple[Any, Any]:
        """``(src, dst)``, int64 vertex ids, of the edges of the pairs ``[start, stop)``."""
        xp, seed = self.xp, self.plan.seed
        low, high = self.pairs[start:stop] >> self.plan.bits, self.pairs[start:stop] & self.mask
        if self.scores is None:
            a, b = self.ids[low].astype(np.int64), self.ids[high].astype(np.int64)
            return xp.concatenate([a, b]), xp.concatenate([b, a])
        up = bits(xp, seed, _WAY, start, stop, 16) < self._chance(low, high)
        # Every so manieth pair, so that their number is exact; pairs lie in the order of their lower degrees.
        steps = (xp.arange(start, stop + 1) * self.both + self.offset) // len(self.pairs)
        both = steps[1:] != steps[:-1]
        a, b = self.ids[low].astype(np.int64), self.ids[high].astype(np.int64)
        src, dst = xp.where(up, a, b), xp.where(up, b, a)
        return xp.concatenate([src, dst[both]]), xp.concatenate([dst, src[both]])

    def _chance(self, low: Any, high: Any) -> Any:
        """How likely, in 1/ONE, a one-way link of two ranks points to the higher one."""
        assert self.scores is not None
        one, two = self.scores[low], self.scores[high]
        if self.odds is not None:
            a, b = self.group[low].astype(np.int64), self.group[high].astype(np.int64)
            # Scores are below 2**32 and odds below 2**16: eight bits go, so that a share of them fits in 63.
            one = one * self.odds[b * self.groups + a] >> 8
            two = two * self.odds[a * self.groups + b] >> 8
        return two * ONE // self.xp.maximum(one + two, 1)

    def _scores(self, in_share: np.ndarray) -> Any:
        xp, plan, n = self.xp, self.plan, self.plan.num_nodes
        degrees = xp.asarray(plan.degrees)
        quantiles = xp.asarray(in_share.ravel())
        offsets = xp.asarray(np.concatenate([[0], np.cumsum(plan.counts)]))
        scores, aim = xp.empty(n, dtype=np.int64), xp.empty(n, dtype=np.int64)
        for start, stop in self.spans(n):
            place = rows_of(offsets, start, stop)
            u = bits(xp, plan.seed, _IN_SHARE, start, stop, 16)
            at = self.group[start:stop].astype(np.int64) * in_share.shape[1] + (u >> 12)
            share = quantiles[at] + ((quantiles[at + 1] - quantiles[at]) * (u & 4095) >> 12)
            if self.odds is None:
                scores[start:stop] = xp.clip(share * ONE // xp.maximum(ONE - share, 1), 1, _MOST)
            else:
                scores[start:stop] = ONE
            aim[start:stop] = share * degrees[place]
        self.scores = scores
        for _ in range(_CORRECTIONS):
            # Sums of whole numbers below 2**53 are exact in float64, in whatever order they are added.
            got = xp.zeros(n)
            for start, stop in self.spans(len(self.pairs)):
                low, high = self.pairs[start:stop] >> plan.bits, self.pairs[start:stop] & self.mask
                chance = self._chance(low, high)
                got += xp.bincount(high, chance.astype(np.float64), n)
                got += xp.bincount(low, (ONE - chance).astype(np.float64), n)
            for start, stop in self.spans(n):
                ratio = (aim[start:stop] << 12) // xp.maximum(got[start:stop].astype(np.int64), 1)
                scores[start:stop] = xp.clip(scores[start:stop] * xp.clip(ratio, 1024, 16384) >> 12, 1, _MOST)
        return scores


def csc(edges: Edges, sorted_at_once: int = SORTED_AT_ONCE) -> tuple[Any, Any]:
    """``(indptr int64[N+1], indices)`` of the edges, each list ascending; destinations are sorted range by range."""
    xp, n, bits_ = edges.xp, edges.plan.num_nodes, edges.plan.bits
    counts = xp.zeros(n, dtype=np.int64)
    for start, stop in edges.spans(len(edges.pairs)):
        counts += xp.bincount(edges.between(start, stop)[1], minlength=n)
    indptr = xp.zeros(n + 1, dtype=np.int64)
    xp.cumsum(counts, out=indptr[1:])
    del counts
    total = int(indptr[-1])
    indices = xp.empty(total, dtype=checks.id_dtype(n))
    ranges = -(-total // sorted_at_once)
    ends = [0, *(int(xp.searchsorted(indptr, k * total // ranges)) for k in range(1, ranges)), n]
    for low, high in itertools.pairwise(ends):
        parts = [xp.zeros(0, dtype=np.int64)]
        for start, stop in edges.spans(len(edges.pairs)):
            src, dst = edges.between(start, stop)
            if ranges > 1:
                inside = (dst >= low) & (dst < high)
                src, dst = src[inside], dst[inside]
            dst <<= bits_
            dst |= src
            parts.append(dst)
        keys = xp.concatenate(parts)
        del parts
        keys.sort()
        keys &= (1 << bits_) - 1
        indices[int(indptr[low]) : int(indptr[high])] = keys
    return indptr, indices
