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

_IN_SHARE, _BOTH, _WAY, _MUTUAL = 900, 901, 902, 903
_CORRECTIONS = 8
_MOST = 1 << 32
_UNIT = 20
"""Bits of the unit of a score for links both ways."""
_FINE = 30
"""Bits of the unit of a chance of a link both ways: the sum over all pairs stays below 2**63."""
_MOST_BOTH = 1 << _UNIT + 11
_TRIES = 6
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

    Which pairs are linked both ways is left to chance, all being alike, unless ``direction`` has ``mutual``. Then the
    chance is t[u] * t[v], times that of their groups where it is known, and the scores t are corrected alike: a vertex
    that nobody points to has no link both ways.
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
        self.scores: Any = None
        self.mutual: Any = None
        self.likely: Any = None
        self.before: dict[int, int] = {}
        self.factor, self.fill = 1 << 32, 0  # of chances, and of what they lack to 1; in 2**-32
        if direction is not None:
            self.both, self.offset = both, int(bits(np, plan.seed, _BOTH, 0, 1, 62)[0]) % max(len(pairs), 1)
            self.odds, self.groups = None, len(plan.mixing)
            roles = direction.get("roles") or {}
            if roles.get("both") is not None:
                links = np.array(roles["mixing"], dtype=np.int64)
                share = np.array(roles["both"], dtype=np.int64) * ONE // np.maximum(links, 1)
                self.likely = xp.asarray(np.minimum(share, ONE).ravel())
            if direction.get("roles"):
                one_way = np.array(direction["roles"]["towards"], dtype=np.int64)
                back = one_way + one_way.T
                share = np.where(back > 0, one_way * ONE // np.maximum(back, 1), ONE // 2)
                self.odds = xp.asarray(np.clip(share, 1, ONE - 1).ravel())
            shares = np.array(direction["in_share"], dtype=np.int64)
            if direction.get("mutual") is None:
                self.scores = self._scores(shares)
            else:
                self._fit(shares, np.array(direction["mutual"], dtype=np.int64))

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
        if self.mutual is None:
            # Every so manieth pair, so that their number is exact; pairs lie in the order of their lower degrees.
            steps = (xp.arange(start, stop + 1) * self.both + self.offset) // len(self.pairs)
        else:
            # Where the sum of chances passes a whole number.
            steps = xp.zeros(stop - start + 1, dtype=np.int64)
            xp.cumsum(self._finely(low, high), out=steps[1:])
            steps += self.before[start] + self.offset
            steps >>= _FINE
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

    def _finely(self, low: Any, high: Any) -> Any:
        """How likely, in 2**-_FINE, two ranks are linked both ways."""
        assert self.mutual is not None
        chance = self.mutual[low] * self.mutual[high] >> _UNIT
        if self.likely is not None:
            # Scores are below 2**31 and shares at most 2**16.
            group = self.group[low].astype(np.int64) * self.groups + self.group[high]
            chance = chance * self.likely[group] >> _UNIT + 16 - _FINE
        else:
            chance <<= _FINE - _UNIT
        self.xp.minimum(chance, 1 << _FINE, out=chance)
        if self.factor != 1 << 32:
            chance = self.xp.minimum(chance * self.factor >> 32, 1 << _FINE)
        if self.fill:
            some = (self.mutual[low] > 0) & (self.mutual[high] > 0)
            chance += self.xp.where(some, ((1 << _FINE) - chance) * self.fill >> 32, 0)
        return chance

    def _aims(self, in_share: np.ndarray, mutual: np.ndarray) -> tuple[Any, Any, Any]:
        """In-links one way, and links both ways, that each rank is to have, in 1/ONE; first scores for the former."""
        xp, plan, n = self.xp, self.plan, self.plan.num_nodes
        degrees = xp.asarray(plan.degrees)
        into_of, mutual_of = xp.asarray(in_share.ravel()), xp.asarray(mutual.ravel())
        columns, rows = in_share.shape[1], len(mutual)
        offsets = xp.asarray(np.concatenate([[0], np.cumsum(plan.counts)]))
        aim, aim_both, scores = (xp.empty(n, dtype=np.int64) for _ in range(3))
        for start, stop in self.spans(n):
            d = degrees[rows_of(offsets, start, stop)]
            row = self.group[start:stop].astype(np.int64) * columns
            share = _drawn(into_of, row, bits(xp, plan.seed, _IN_SHARE, start, stop, 16))
            row = row if rows > 1 else xp.zeros_like(row)
            part = _drawn(mutual_of, row, bits(xp, plan.seed, _MUTUAL, start, stop, 16))
            # A share of the links of the rarer direction has its reverse, and these are links both ways:
            # b = x (d + b), where d counts neighbours and d + b links.
            x = part * xp.minimum(share, ONE - share) >> 16
            b = x * d * ONE // (ONE - x)
            one = xp.maximum(share * d + (share * b >> 16) - b, 0)
            aim[start:stop], aim_both[start:stop] = one, b
            left = xp.maximum(d * ONE - b, 1)
            one_share = xp.minimum((one << 8) // (left >> 8 | 1), ONE)
            scores[start:stop] = xp.clip(one_share * ONE // xp.maximum(ONE - one_share, 1), 1, _MOST)
        return aim, aim_both, scores

    def _fit(self, in_share: np.ndarray, mutual: np.ndarray) -> None:
        """Scores of both kinds."""
        xp, plan, n = self.xp, self.plan, self.plan.num_nodes
        aim, aim_both, scores = self._aims(in_share, mutual)
        if self.odds is not None:
            scores[:] = ONE
        self.scores = scores
        self.mutual = xp.where(aim_both > 0, 1 << _UNIT, 0)
        if self.likely is None:
            degrees = xp.asarray(plan.degrees)
            offsets = xp.asarray(np.concatenate([[0], np.cumsum(plan.counts)]))
            for start, stop in self.spans(n):
                d = xp.maximum(degrees[rows_of(offsets, start, stop)], 1)
                first = (aim_both[start:stop] << _UNIT - 16) // d
                self.mutual[start:stop] = xp.where(aim_both[start:stop] > 0, xp.maximum(first, 1), 0)
        for _ in range(_CORRECTIONS):
            # Sums of whole numbers below 2**53 are exact in float64, in whatever order they are added.
            got, got_both = xp.zeros(n), xp.zeros(n)
            for start, stop in self.spans(len(self.pairs)):
                low, high = self.pairs[start:stop] >> plan.bits, self.pairs[start:stop] & self.mask
                both = self._finely(low, high) >> _FINE - 16
                up = self._chance(low, high) * (ONE - both) >> 16
                got += xp.bincount(high, up.astype(np.float64), n)
                got += xp.bincount(low, (ONE - both - up).astype(np.float64), n)
                both = both.astype(np.float64)
                for end in (low, high):
                    got_both += xp.bincount(end, both, n)
            for start, stop in self.spans(n):
                ratio = (aim[start:stop] << 12) // xp.maximum(got[start:stop].astype(np.int64), 1)
                scores[start:stop] = xp.clip(scores[start:stop] * xp.clip(ratio, 1024, 16384) >> 12, 1, _MOST)
                part = self.mutual[start:stop]
                ratio = (aim_both[start:stop] << 12) // xp.maximum(got_both[start:stop].astype(np.int64), 1)
                # Half a step: both ends of a pair are corrected at once.
                new = part * (xp.clip(ratio, 256, 65536) + 4096) >> 13
                self.mutual[start:stop] = xp.where(part > 0, xp.clip(new, 1, _MOST_BOTH), 0)
        self._level()

    def _level(self) -> None:
        """Scale the chances of links both ways so that they make as many as there are to be."""
        wanted = self.both << _FINE
        for _ in range(_TRIES):
            lacking = wanted - self._total()
            if 0 <= lacking < 1 << _FINE or lacking == wanted:
                break
            self.factor = min(max(self.factor * wanted // (wanted - lacking), 1), (1 << 33) - 1)
        if lacking >= 1 << _FINE:
            # Chances end at 1. What is lacking is spread over the other pairs that may be linked both ways.
            self.factor, self.fill = 1 << 32, 1 << 32
            before, most = wanted - lacking, self._total()
            self.fill = min((lacking << 32) // max(most - before, 1) + 1, 1 << 32)
            lacking = wanted - self._total()
        # A random start that carries the sum past the last whole link and not to the next.
        lacking = min(max(lacking, 0), (1 << _FINE) - 1)
        self.offset = lacking + self.offset % ((1 << _FINE) - lacking)

    def _total(self) -> int:
        """The sum of the chances of links both ways, in 2**-_FINE; where each chunk of pairs begins in it is kept."""
        total = 0
        for start, stop in self.spans(len(self.pairs)):
            low, high = self.pairs[start:stop] >> self.plan.bits, self.pairs[start:stop] & self.mask
            self.before[start] = total
            total += int(self._finely(low, high).sum())
        return total

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


def _drawn(quantiles: Any, row: Any, u: Any) -> Any:
    """What stands at ``u``, of 16 bits, between 17 quantiles, of which those of a ``row`` begin there."""
    at = row + (u >> 12)
    return quantiles[at] + ((quantiles[at + 1] - quantiles[at]) * (u & 4095) >> 12)


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
