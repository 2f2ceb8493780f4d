"""The skeleton of a twin: which vertices are linked, by half-edges that are shuffled and cut into cliques and pairs.

Every vertex has as many half-edges as its degree. In this order

1. a share of them goes to cliques: the corners of one community are sorted by the size of clique that gives their
   degree its clustering, shuffled, and cut into runs of that size;
2. half-edges that are to stay in their small community are shuffled there and cut into pairs;
3. those that are to stay in their large community are, by the mixing of degrees that is left to reach;
4. the rest meets anyone, first by that mixing, then freely;
5. half-edges that found no partner break up an edge and take its ends.

Loops and links that exist already are no links: their half-edges go to the next step. A step draws for what is left, so
that shares and mixing are those asked for after all steps, as far as the degrees allow. Where a plan says so, no step
links groups that the mixing never links, unless half-edges are left that no other link would take: two vertices that
nobody points to are then no neighbours, in cliques either. Links inside small communities also keep to what the mixing
has left. Those of cliques do not: they would lose a third of the triangles.

The code runs on NumPy and CuPy alike and computes with integers only, so the skeleton is the same on both. Half-edges
of a large graph are sorted in segments whose bounds depend on the plan alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from gnnsample_lab.graph.csc import rows_of
from gnnsample_lab.graph.twins.plan import (
    CLIQUE_SIZES,
    ONE,
    ONE_PART_BELOW,
    PARTS,
    ROLES,
    Plan,
    bin_of,
    octave_of,
)
from gnnsample_lab.graph.twins.words import bits

SMALL_ROUNDS, LARGE_ROUNDS, OPEN_ROUNDS, FREE_ROUNDS, SWAP_ROUNDS = 5, 5, 6, 2, 256
SEGMENT = 1 << 28
"""Half-edges that are sorted at once; part of what a graph is, since a pair lies within one segment."""

# Streams of words; a round takes three.
_NOISE, _CLIQUE_LIST, _CLIQUE_ORDER, _ROLE, _CLIQUE_SIZE, _ROUNDS, _SWAPS = 1, 2, 3, 4, 16, 64, 256
_KEPT = 40
_LEVEL_BITS = (len(CLIQUE_SIZES) - 1).bit_length()
_ORDER_BITS = 20


class Skeleton(NamedTuple):
    """``pairs``: int64[P], ``lower rank << bits | higher rank``, ascending; ``small``: int32[N], community by rank;
    ``group``: int16[N], group of degrees and roles; ``unpaired``: half-edges that found no partner."""

    pairs: Any
    small: Any
    group: Any
    unpaired: int


def skeleton(plan: Plan, xp: Any, chunk: int = 1 << 24, segment: int = SEGMENT) -> Skeleton:
    """Link the vertices of a plan. ``chunk`` half-edges are drawn at once; the result does not depend on it."""
    maker = _Maker(plan, xp, chunk, segment)
    maker.cliques()
    maker.rounds()
    maker.swaps()
    if plan.keeps_mixing:
        maker.rest()
    return Skeleton(maker.links.all(), maker.small, maker.group, int(maker.left.sum()))


def cliques_alone(plan: Plan, xp: Any, chunk: int = 1 << 24) -> Any:
    """int64, ascending: the pairs of :func:`skeleton` that cliques made."""
    maker = _Maker(plan, xp, chunk, SEGMENT)
    maker.cliques()
    return maker.links.all()


class _Links:
    """A growing set of pairs, as a few sorted runs of falling length."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.runs: list[Any] = []

    def missing(self, keys: Any) -> Any:
        """The distinct ``keys`` that are not in the set, ascending; ``keys`` is sorted in place."""
        xp = self.xp
        keys.sort()
        if len(keys):
            keep = xp.ones(len(keys), dtype=bool)
            keep[1:] = keys[1:] != keys[:-1]
            keys = keys[keep]
        for run in self.runs:
            if len(keys):
                keys = keys[~self._inside(run, keys)]
        return keys

    def contains(self, keys: Any) -> Any:
        # Searches for ascending keys go through memory in order, and take a quarter of the time.
        order = self.xp.argsort(keys)
        ordered = keys[order]
        found, result = self.xp.zeros(len(keys), dtype=bool), self.xp.empty(len(keys), dtype=bool)
        for run in self.runs:
            found |= self._inside(run, ordered)
        result[order] = found
        return result

    def _inside(self, run: Any, keys: Any) -> Any:
        at = self.xp.searchsorted(run, keys)
        at[at == len(run)] = len(run) - 1
        return run[at] == keys

    def add(self, keys: Any) -> None:
        """Put in ``keys``, ascending, none of which is in the set."""
        if not len(keys):
            return
        self.runs.append(keys)
        while len(self.runs) > 1 and 4 * len(self.runs[-1]) > len(self.runs[-2]):
            self._merge()

    def all(self) -> Any:
        """Every pair, ascending."""
        while len(self.runs) > 1:
            self._merge()
        return self.runs[0] if self.runs else self.xp.zeros(0, dtype=np.int64)

    def _merge(self) -> None:
        both = self.xp.concatenate(self.runs[-2:])
        del self.runs[-2:]
        # NumPy's stable sort merges two sorted runs in linear time; CuPy has a radix sort.
        both.sort(kind="stable") if self.xp is np else both.sort()
        self.runs.append(both)


class _Maker:
    def __init__(self, plan: Plan, xp: Any, chunk: int, segment: int) -> None:
        self.plan, self.xp, self.chunk, self.segment = plan, xp, chunk, segment
        self.n, self.bits = plan.num_nodes, plan.bits
        self.mask = (1 << self.bits) - 1
        self.num_small, self.num_large = len(plan.size), len(plan.inside_large)
        self.large_of = xp.asarray(plan.large)
        self.links = _Links(xp)
        self.degree_class = self._degree_classes()
        self.left = xp.asarray(plan.degrees.astype(np.int32))[self.degree_class]
        self.group = self._groups()
        self.small = self._communities()
        ends = xp.bincount(self.small, self.left, self.num_small).astype(np.int64)
        self.inside_aim = self._aims(ends)
        self.inside = [xp.zeros(self.num_small, np.int64), xp.zeros(self.num_large, np.int64)]
        self.mixed = np.zeros_like(plan.mixing)
        self.strict = plan.keeps_mixing

    # ---- vertices -----------------------------------------------------------------------------------------

    def _spans(self, count: int) -> Iterator[tuple[int, int]]:
        for start in range(0, count, self.chunk):
            yield start, min(start + self.chunk, count)

    def _offsets(self, counts: Any) -> Any:
        offsets = self.xp.zeros(len(counts) + 1, dtype=np.int64)
        self.xp.cumsum(counts, out=offsets[1:])
        return offsets

    def _degree_classes(self) -> Any:
        """int32[N]: place of each rank's degree in the plan's table."""
        xp = self.xp
        offsets = xp.asarray(np.concatenate([[0], np.cumsum(self.plan.counts)]))
        out = xp.empty(self.n, dtype=np.int32)
        for start, stop in self._spans(self.n):
            out[start:stop] = rows_of(offsets, start, stop)
        return out

    def _groups(self) -> Any:
        """int16[N]: the octave of each rank's degree, and where there are roles one of them in proportion."""
        xp, plan = self.xp, self.plan
        octave = xp.asarray(octave_of(plan.degrees))
        out = xp.empty(self.n, dtype=np.int16)
        if plan.roles is not None and plan.keeps_mixing:
            return self._exact_groups(out, octave_of(plan.degrees), plan.roles)
        if plan.roles is not None:
            ends = np.cumsum(plan.roles, axis=1)
            shares = ends * ONE // np.maximum(ends[:, -1:], 1) + np.arange(len(ends))[:, None] * ONE
            shares = xp.asarray(shares.ravel())
        for start, stop in self._spans(self.n):
            own = octave[self.degree_class[start:stop]]
            if plan.roles is not None:
                u = bits(xp, plan.seed, _ROLE, start, stop, 16)
                role = xp.searchsorted(shares, own * ONE + u, side="right") - own * ROLES
                own = own * ROLES + xp.minimum(role, ROLES - 1)
            out[start:stop] = own
        return out

    def _exact_groups(self, out: Any, octaves: np.ndarray, roles: np.ndarray) -> Any:
        """As many vertices of each octave in each role as there are to be; by chance, small octaves would miss some."""
        xp, plan = self.xp, self.plan
        size = np.bincount(octaves, plan.counts, len(roles)).astype(np.int64)
        ends = np.cumsum(roles, axis=1)
        # In whole numbers that do not overflow: roles count fewer than 2**31 vertices, and so do sizes.
        ends = (ends * size[:, None] + ends[:, -1:] // 2) // np.maximum(ends[:, -1:], 1)
        ends = xp.asarray((ends + (np.cumsum(size) - size)[:, None]).ravel())
        octave = xp.asarray(octaves)
        keys = xp.empty(self.n, dtype=np.int64)
        for start, stop in self._spans(self.n):
            u = bits(xp, plan.seed, _ROLE, start, stop, 57 - self.bits)
            own = octave[self.degree_class[start:stop]]
            keys[start:stop] = (own << 57 - self.bits | u) << self.bits | xp.arange(start, stop)
        keys.sort()  # ranks ascend with degrees, so that an octave keeps its places
        for start, stop in self._spans(self.n):
            own = keys[start:stop] >> 57
            role = xp.searchsorted(ends, xp.arange(start, stop), side="right") - own * ROLES
            out[keys[start:stop] & self.mask] = own * ROLES + xp.clip(role, 0, ROLES - 1)
        return out

    def _communities(self) -> Any:
        """int32[N]: the small community of each rank; places are sorted by their community's level plus noise."""
        xp, plan = self.xp, self.plan
        offsets = self._offsets(xp.asarray(plan.size))
        level = xp.asarray(plan.level)
        keys = xp.empty(self.n, dtype=np.int64)
        for start, stop in self._spans(self.n):
            noise = bits(xp, plan.seed, _NOISE, start, stop, 30) - (1 << 29)
            noise *= plan.spread
            noise >>= 16
            where = (level[rows_of(offsets, start, stop)] << 14) + noise + (1 << 30)
            keys[start:stop] = xp.maximum(where, 0) << self.bits | xp.arange(start, stop)
        keys.sort()
        out = xp.empty(self.n, dtype=np.int32)
        for start, stop in self._spans(self.n):
            out[start:stop] = xp.searchsorted(offsets, keys[start:stop] & self.mask, side="right") - 1
        return out

    def _aims(self, ends: Any) -> tuple[Any, Any]:
        """Edge ends to place inside each small and large community, less what meets there by chance in later steps."""
        xp, plan = self.xp, self.plan
        of_large = self._sum_large(ends)
        small = ends * xp.asarray(plan.inside) // ONE
        large = xp.maximum(of_large * xp.asarray(plan.inside_large) // ONE, self._sum_large(small))
        away = xp.maximum(ends * xp.asarray(plan.inside_large)[self.large_of] // ONE - small, 0)
        small = xp.maximum(small - _share_of(xp, away, away, self._sum_large(away)[self.large_of]), 0)
        out = of_large - large
        large = xp.maximum(large - _share_of(xp, out, out, out.sum()), 0)
        return small, large

    def _sum_large(self, of_small: Any) -> Any:
        return self.xp.bincount(self.large_of, of_small, self.num_large).astype(np.int64)

    # ---- links --------------------------------------------------------------------------------------------

    def _link(self, a: Any, b: Any) -> Any:
        """Keys of the pairs (a[i], b[i]) that are no loops."""
        keys = self.xp.minimum(a, b) << self.bits | self.xp.maximum(a, b)
        return keys[a != b]

    def _take(self, keys: Any, stream: int | None = None) -> None:
        """Add the pairs that are new, and account for them; with a ``stream`` those that the mixing has room for."""
        keys = self.links.missing(keys)
        if stream is not None and self.plan.keeps_mixing:
            keys = self._within_mixing(keys, stream)
        self._count(keys)

    def _within_mixing(self, keys: Any, stream: int) -> Any:
        """Of the pairs of each two groups no more than these still lack, any of them."""
        xp, groups = self.xp, len(self.mixed)
        count = xp.zeros(groups * groups, dtype=np.int64)
        for start, stop in self._spans(len(keys)):
            count += xp.bincount(self._cell(keys[start:stop]), minlength=groups * groups)
        need = np.maximum(self.plan.mixing - self.mixed, 0)
        need[np.diag_indices(groups)] //= 2  # a link within a group has both its ends there
        share = xp.asarray(np.minimum(need.ravel() * ONE // np.maximum(_host(count), 1), ONE))
        keep = xp.empty(len(keys), dtype=bool)
        for start, stop in self._spans(len(keys)):
            u = bits(xp, self.plan.seed, stream, start, stop, 16)
            keep[start:stop] = u < share[self._cell(keys[start:stop])]
        return keys[keep]

    def _possible(self, keys: Any) -> Any:
        """bool: which pairs are of groups that are linked at all, where links keep to the mixing."""
        if not self.strict:
            return self.xp.ones(len(keys), dtype=bool)
        some = self.xp.asarray(self.plan.mixing.ravel() > 0)
        out = self.xp.empty(len(keys), dtype=bool)
        for start, stop in self._spans(len(keys)):
            out[start:stop] = some[self._cell(keys[start:stop])]
        return out

    def _cell(self, keys: Any) -> Any:
        """The groups of both ends of each pair, lower group first, as one number."""
        a, b = self._group(keys >> self.bits), self._group(keys & self.mask)
        return self.xp.minimum(a, b) * len(self.mixed) + self.xp.maximum(a, b)

    def _count(self, keys: Any) -> None:
        xp, groups = self.xp, len(self.mixed)
        self.links.add(keys)
        mixed = xp.zeros(groups * groups, dtype=np.int64)
        for start, stop in self._spans(len(keys)):
            a, b = keys[start:stop] >> self.bits, keys[start:stop] & self.mask
            for end in (a, b):
                _subtract_ones(xp, self.left, end)
            of_a, of_b = self.small[a], self.small[b]
            self.inside[0] += 2 * xp.bincount(of_a[of_a == of_b], minlength=self.num_small)
            of_a, of_b = self.large_of[of_a], self.large_of[of_b]
            self.inside[1] += 2 * xp.bincount(of_a[of_a == of_b], minlength=self.num_large)
            mixed += xp.bincount(self._group(a) * groups + self._group(b), minlength=groups * groups)
        table = _host(mixed).reshape(groups, groups)
        self.mixed += table + table.T

    def _group(self, vertices: Any) -> Any:
        return self.group[vertices].astype(np.int64)

    # ---- 1: cliques ---------------------------------------------------------------------------------------

    def cliques(self) -> None:
        """Step 1."""
        xp, plan = self.xp, self.plan
        if not plan.cliques.any():
            return
        counts, levels = self._corners()
        parts = [(self._offsets(c), level) for c, level in zip(counts, levels)]
        totals = [int(offsets[-1]) for offsets, _ in parts]
        lists = 1 + self.num_large + self.num_small
        order = min(_ORDER_BITS, 63 - self.bits - lists.bit_length() - _LEVEL_BITS)

        def draw(start: int, stop: int) -> tuple[Any, Any, Any]:
            """``(list, level, vertex)`` of the corners at ``[start, stop)``, all within one part."""
            part, before = 0, 0
            while start >= before + totals[part]:
                before += totals[part]
                part += 1
            offsets, level = parts[part]
            v = rows_of(offsets, start - before, stop - before)
            small = self.small[v].astype(np.int64)
            u = bits(xp, plan.seed, _CLIQUE_LIST, start, stop, 16)
            w = bits(xp, plan.seed, _CLIQUE_LIST + 8, start, stop, 16)
            large = xp.where(w < plan.clique_large, 1 + self.large_of[small], 0)
            return (
                xp.where(u < plan.clique_small, 1 + self.num_large + small, large),
                level[v].astype(np.int64),
                v,
            )

        def keys(start: int, stop: int) -> tuple[Any, Any]:
            where, level, v = draw(start, stop)
            x = bits(xp, plan.seed, _CLIQUE_ORDER, start, stop, order)
            return where, ((where << _LEVEL_BITS | level) << order | x) << self.bits | v

        bounds = np.concatenate([[0], np.cumsum(totals)]).tolist()
        spans = [
            (low + start, low + stop)
            for low, high in itertools.pairwise(bounds)
            for start, stop in self._spans(high - low)
        ]
        found = [self._runs(k, order, lists) for k in self._segments(spans, lists, 0, keys)]
        if found:
            pairs = xp.concatenate(found)
            self._take(pairs[self._possible(pairs)])

    def _corners(self) -> tuple[list[Any], list[Any]]:
        """Corners of each vertex, int32[N], and the place of their size in CLIQUE_SIZES, int8[N]; for each part."""
        xp, plan = self.xp, self.plan
        sizes = xp.asarray(np.array(CLIQUE_SIZES, dtype=np.int64))
        asked, factor = xp.asarray(plan.cliques[bin_of(plan.degrees)]), xp.asarray(plan.factor)
        degrees = xp.asarray(plan.degrees)
        counts = [xp.zeros(self.n, dtype=np.int32) for _ in PARTS]
        levels = [xp.zeros(self.n, dtype=np.int8) for _ in PARTS]
        for start, stop in self._spans(self.n):
            cls = self.degree_class[start:stop]
            d = degrees[cls]
            want = xp.minimum(asked[cls] * factor[self.small[start:stop]] // ONE, ONE)
            share = xp.maximum(plan.clique_share, xp.minimum(want * 6 // 5, ONE))
            # A corner of a clique of s gives (s - 1) (s - 2) / 2 triangles for s - 1 half-edges.
            extra = want * xp.maximum(d - 1, 0) * ONE // share
            single = d < ONE_PART_BELOW
            free = d.copy()
            for part, factor_of_size in enumerate(PARTS):
                size = 2 * ONE + xp.where(single, extra, extra * factor_of_size // 1024)
                # The size lies between two of the list: each is taken as often as the mean asks.
                level = xp.searchsorted(sizes * ONE, size)
                lower = xp.where(level > 0, sizes[xp.maximum(level - 1, 0)], 2) * ONE
                upper = sizes[xp.minimum(level, len(CLIQUE_SIZES) - 1)] * ONE
                u = bits(xp, plan.seed, _CLIQUE_SIZE + 2 * part, start, stop, 16)
                level -= u * xp.maximum(upper - lower, 1) >= (size - lower) * ONE
                level = xp.minimum(level, xp.searchsorted(sizes, free + 1, side="right") - 1)
                links = sizes[xp.maximum(level, 0)] - 1
                budget = share * d if part == 0 else xp.zeros_like(d)
                budget = xp.where(single, budget, share * d // len(PARTS))
                u = bits(xp, plan.seed, _CLIQUE_SIZE + 2 * part + 1, start, stop, 16)
                count = xp.minimum((budget + u * links) // (links * ONE), free // links)
                count[(level < 0) | (budget == 0)] = 0
                free -= count * links
                counts[part][start:stop] = count
                levels[part][start:stop] = xp.maximum(level, 0)
        return counts, levels

    def _runs(self, keys: Any, order: int, lists: int) -> Any:
        """Pairs of the cliques that sorted corner keys are cut into."""
        xp = self.xp
        levels = len(CLIQUE_SIZES)
        v = keys & self.mask
        cell = keys >> (self.bits + order)
        level = cell & ((1 << _LEVEL_BITS) - 1)
        where = cell >> _LEVEL_BITS
        cell = where * levels + level
        count = xp.bincount(cell, minlength=lists * levels).reshape(lists, levels)
        taken, opened, runs = self._cuts(count)
        first = self._offsets(count.ravel())
        rank = xp.arange(len(v)) - first[cell]
        taken, opened = taken.ravel()[cell], opened.ravel()[cell]
        size = xp.asarray(np.array(CLIQUE_SIZES, dtype=np.int64))[level]
        run = xp.where(rank < taken, opened - 1, opened + (rank - taken) // size)
        run += (xp.cumsum(runs) - runs)[where]
        found, at, step = [xp.zeros(0, dtype=np.int64)], xp.arange(len(v)), 1
        while True:
            at = at[at + step < len(v)]
            at = at[run[at] == run[at + step]]
            if not len(at):
                return xp.concatenate(found)
            found.append(self._link(v[at], v[at + step]))
            step += 1

    def _cuts(self, count: Any) -> tuple[Any, Any, Any]:
        """How the corners of each (list, size), int64[lists, sizes], are cut into runs.

        Returns how many of them fill up the run that the sizes below left open, how many runs were opened before, and
        the runs of each list. A run is as long as its first corner asks, so later ones, of larger sizes, give no more
        half-edges than they meant to.
        """
        xp = self.xp
        room, runs = xp.zeros(len(count), np.int64), xp.zeros(len(count), np.int64)
        taken, opened = xp.zeros(count.shape, np.int64), xp.zeros(count.shape, np.int64)
        for level, size in enumerate(CLIQUE_SIZES):
            filled = xp.minimum(room, count[:, level])
            rest = count[:, level] - filled
            taken[:, level], opened[:, level] = filled, runs
            runs = runs + (rest + size - 1) // size
            room = xp.where(rest > 0, -rest % size, room - filled)
        return taken, opened, runs

    # ---- 2 to 4: pairs ------------------------------------------------------------------------------------

    def rounds(self) -> None:
        """Steps 2 to 4."""
        xp = self.xp
        steps = [(0, False)] * SMALL_ROUNDS
        steps += [(1, True)] * (LARGE_ROUNDS - 1) + [(1, False)]
        steps += [(2, True)] * OPEN_ROUNDS + [(2, False)] * FREE_ROUNDS
        for turn, (scope, mixing) in enumerate(steps):
            if int(self.left.sum()) < 2:
                return
            if scope == 2:
                self._round(None, None, mixing, turn)
                continue
            waiting = xp.bincount(self.small, self.left, self.num_small).astype(np.int64)
            if scope == 1:
                waiting = self._sum_large(waiting)
            need = xp.maximum(self.inside_aim[scope] - self.inside[scope], 0)
            chosen = xp.minimum(_share_of(xp, need, ONE, xp.maximum(waiting, 1)), ONE)
            self._round(scope, chosen, mixing, turn)

    def _round(self, scope: int | None, chosen: Any, mixing: bool, turn: int) -> None:
        """Shuffle the chosen share of what is left, within communities or among all, and link those side by side."""
        xp, seed, groups = self.xp, self.plan.seed, len(self.mixed)
        stream = _ROUNDS + 3 * turn
        offsets = self._offsets(self.left)
        total = int(offsets[-1])
        lists = {0: self.num_small, 1: self.num_large, None: 1}[scope]
        group_bits = (groups - 1).bit_length() if mixing else 0
        partner = self._partners() if mixing else None
        split = max(0, -(-total // self.segment) - 1).bit_length()
        room = 63 - self.bits - max(1, (lists - 1).bit_length()) - split - 2 * group_bits - 1
        order = max(1, min(_ORDER_BITS, room))

        def keys(start: int, stop: int) -> tuple[Any, Any]:
            v = rows_of(offsets, start, stop)
            x = bits(xp, seed, stream, start, stop, order + split)
            if scope is None:
                where = xp.zeros(len(v), dtype=np.int64)
            else:
                where = self.small[v].astype(np.int64)
                where = self.large_of[where] if scope else where
                keep = bits(xp, seed, stream + 1, start, stop, 16) < chosen[where]
                v, x, where = v[keep], x[keep], where[keep]
            where = where << split | x >> order
            x &= (1 << order) - 1
            if not mixing:
                return where, (where << order | x) << self.bits | v
            u = bits(xp, seed, stream + 2, start, stop, 16)
            own = self._group(v)
            other = xp.searchsorted(partner, own * ONE + (u if scope is None else u[keep]), side="right")
            other = xp.minimum(other - own * groups, groups - 1)
            low, high = xp.minimum(own, other), xp.maximum(own, other)
            cell = low << group_bits | high
            side = (own > other).astype(np.int64)
            key = ((where << 2 * group_bits | cell) << 1 | side) << order | x
            return where, key << self.bits | v

        found = [xp.zeros(0, dtype=np.int64)]
        for sorted_keys in self._segments(list(self._spans(total)), lists << split, split, keys):
            v = sorted_keys & self.mask
            cell = sorted_keys >> (self.bits + order)
            del sorted_keys
            found.append(self._by_mixing(v, cell, group_bits) if mixing else self._in_order(v, cell))
        pairs = xp.concatenate(found)
        if scope is None:
            pairs = pairs[self._possible(pairs)]
        self._take(pairs, None if mixing or scope is None else _KEPT + turn)

    def _partners(self) -> Any:
        """int64[G * G], ascending: where in ``own * ONE + [0, ONE)`` each group of partners ends, by what lacks."""
        need = np.maximum(self.plan.mixing - self.mixed, 0)
        ends = np.cumsum(need, axis=1)
        total = ends[:, -1:]
        # A group whose links are all made takes partners in proportion to the half-edges that others look for.
        free = np.cumsum(np.maximum(need.sum(axis=0), 1))
        ends = np.where(total > 0, ends * ONE // np.maximum(total, 1), free * ONE // free[-1])
        return self.xp.asarray((ends + np.arange(len(ends))[:, None] * ONE).ravel())

    def _in_order(self, v: Any, cell: Any) -> Any:
        """Links between the first and second of a list, the third and fourth, and so on."""
        xp = self.xp
        if len(v) < 2:
            return xp.zeros(0, dtype=np.int64)
        start, place = _starts(xp, cell)
        rank = xp.arange(len(v)) - start[place]
        one = xp.flatnonzero((rank % 2 == 0)[:-1] & (place[1:] == place[:-1]))
        return self._link(v[one], v[one + 1])

    def _by_mixing(self, v: Any, cell: Any, group_bits: int) -> Any:
        """Links between the two sides of a cell: half-edges of one group that look for the other, and the reverse."""
        xp = self.xp
        if len(v) < 2:
            return xp.zeros(0, dtype=np.int64)
        side, cell = cell & 1, cell >> 1
        start, place = _starts(xp, cell)
        size = xp.diff(xp.concatenate([start, xp.asarray([len(v)])]))
        second = xp.bincount(place, side, len(start)).astype(np.int64)
        first = size - second
        rank = xp.arange(len(v)) - start[place]
        same = (cell >> group_bits & ((1 << group_bits) - 1)) == (cell & ((1 << group_bits) - 1))
        paired = xp.where(
            same, (rank % 2 == 0) & (rank + 1 < size[place]), rank < xp.minimum(first, second)[place]
        )
        one = xp.flatnonzero(paired)
        return self._link(v[one], v[one + xp.where(same[one], 1, first[place[one]])])

    def _segments(
        self,
        spans: list[tuple[int, int]],
        lists: int,
        split: int,
        keys: Callable[[int, int], tuple[Any, Any]],
    ) -> Iterator[Any]:
        """Sorted keys, segment by segment; a list lies in one segment, and all lists of a small graph in the first."""
        xp = self.xp
        total = sum(stop - start for start, stop in spans)
        if not total:
            return
        segment_of = None
        if total > self.segment:
            count = xp.zeros(lists, dtype=np.int64)
            for start, stop in spans:
                count += xp.bincount(keys(start, stop)[0], minlength=lists)
            segment_of = (xp.cumsum(count) - count) // self.segment
        for number in range(1 if segment_of is None else int(segment_of[-1]) + 1):
            parts = []
            for start, stop in spans:
                where, key = keys(start, stop)
                parts.append(key if segment_of is None else key[segment_of[where] == number])
            both = xp.concatenate(parts)
            del parts
            both.sort()
            yield both

    def rest(self) -> None:
        """Link half-edges that no group is left for, whatever their groups."""
        self.strict = False
        if int(self.left.sum()) > 1:
            self._round(None, None, False, SMALL_ROUNDS + LARGE_ROUNDS + OPEN_ROUNDS + FREE_ROUNDS)
            self.swaps()

    # ---- 5: swaps -----------------------------------------------------------------------------------------

    def swaps(self) -> None:
        """Step 5: half-edges of a and b break up a link x - y, and become a - x and b - y."""
        xp, seed = self.xp, self.plan.seed
        middle = SWAP_ROUNDS // 2 if self.plan.keeps_mixing else SWAP_ROUNDS
        for turn in range(middle) if self.strict else range(middle % SWAP_ROUNDS, SWAP_ROUNDS):
            total = int(self.left.sum())
            if total < 2 or not self.links.runs:
                return
            stream = _SWAPS + 2 * turn
            offsets = self._offsets(self.left)
            v = rows_of(offsets, 0, total)
            place = total.bit_length()
            order = bits(xp, seed, stream, 0, total, 62 - place) << place | xp.arange(total)
            order.sort()
            v = v[order & ((1 << place) - 1)]
            a, b = v[: total // 2], v[total // 2 : total // 2 * 2]
            run = self.links.runs[0]
            at = _share_of(xp, bits(xp, seed, stream + 1, 0, len(a), 31), len(run), 1 << 31)
            # Of two that break up one link, the first does.
            order = xp.argsort(at << 31 | xp.arange(len(at)))
            at, a, b = at[order], a[order], b[order]
            once = xp.ones(len(at), dtype=bool)
            once[1:] = at[1:] != at[:-1]
            x, y = run[at] >> self.bits, run[at] & self.mask
            one = xp.minimum(a, x) << self.bits | xp.maximum(a, x)
            two = xp.minimum(b, y) << self.bits | xp.maximum(b, y)
            good = once & (a != x) & (b != y)
            if self.strict:
                good &= self._possible(one) & self._possible(two)
            good = xp.flatnonzero(good)
            # The second is looked up where the first is new, which in the last turns few are.
            for keys in (one, two):
                good = good[~self.links.contains(keys[good])]
            at, a, b, one, two = at[good], a[good], b[good], one[good], two[good]
            alone = _alone(xp, xp.concatenate([one, two]))
            good = alone[: len(one)] & alone[len(one) :]
            at, a, b, one, two = at[good], a[good], b[good], one[good], two[good]
            if not len(at):
                continue
            keep = xp.ones(len(run), dtype=bool)
            keep[at] = False
            self.links.runs[0] = run[keep]
            added = xp.concatenate([one, two])
            added.sort()
            self.links.add(added)
            for end in (a, b):
                _subtract_ones(xp, self.left, end)


def _starts(xp: Any, cell: Any) -> tuple[Any, Any]:
    """First position of each run of equal ``cell``, and the number of the run at each position."""
    new = xp.ones(len(cell), dtype=bool)
    new[1:] = cell[1:] != cell[:-1]
    return xp.flatnonzero(new), xp.cumsum(new) - 1


def _alone(xp: Any, keys: Any) -> Any:
    """bool: which keys occur once."""
    order = xp.argsort(keys)
    ordered = keys[order]
    equal = xp.zeros(len(keys) + 1, dtype=bool)
    equal[1:-1] = ordered[1:] == ordered[:-1]
    alone = xp.empty(len(keys), dtype=bool)
    alone[order] = ~(equal[1:] | equal[:-1])
    return alone


def _share_of(xp: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b // c`` for whole numbers below 2**40 whose product may pass 2**63; 0 divides as 1."""
    c = xp.maximum(xp.asarray(c), 1)
    high, low = a >> 20, a & ((1 << 20) - 1)
    whole, rest = high * b // c, high * b % c
    return (whole << 20) + ((rest << 20) + low * b) // c


def _subtract_ones(xp: Any, counts: Any, at: Any) -> None:
    """``counts[v] -= 1`` for every v of ``at``, as often as it is there."""
    counts -= xp.bincount(at, minlength=len(counts)).astype(counts.dtype)


def _host(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.get()  # type: ignore[no-any-return]
