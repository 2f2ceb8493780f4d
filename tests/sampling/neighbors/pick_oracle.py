"""The generator and the pick rules once more, in plain Python integers: what the samplers are compared with.

Written from the published generator (Salmon et al., SC'11) and from the rules as papers state them, with sets and
lists; it shares no line with the package.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from fractions import Fraction

MASK = 2**32 - 1
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
PURPOSES = {"floyd": 1, "reservoir": 2, "weighted": 3, "replace": 4, "fisher-yates": 13}


def philox(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 on four words with a key of two."""
    c0, c1, c2, c3 = counter
    for turn in range(10):
        k0, k1 = ((key[i] + turn * WEYL[i]) & MASK for i in range(2))
        left, right = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (right >> 32) ^ c1 ^ k0, right & MASK, (left >> 32) ^ c3 ^ k1, left & MASK
    return c0, c1, c2, c3


def unphilox(words: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """The counter that gives ``words``: every round can be undone, since both multipliers are odd."""
    c0, c1, c2, c3 = words
    inverse = [pow(m, -1, 2**32) for m in MULTIPLIERS]
    for turn in reversed(range(10)):
        k0, k1 = ((key[i] + turn * WEYL[i]) & MASK for i in range(2))
        before0, before2 = c3 * inverse[0] & MASK, c1 * inverse[1] & MASK
        c0, c1, c2, c3 = (
            before0,
            (MULTIPLIERS[1] * before2 >> 32) ^ c0 ^ k0,
            before2,
            (MULTIPLIERS[0] * before0 >> 32) ^ c2 ^ k1,
        )
    return c0, c1, c2, c3


class Stream:
    """The draws of one (vertex, batch, hop) for one purpose."""

    def __init__(self, vertex: int, batch: int, hop: int, purpose: int, seed: int) -> None:
        self.vertex, self.batch, self.tag = vertex, batch, purpose << 28 | hop << 24
        self.key = (seed & MASK, seed >> 32)
        self.redraws = 0

    def words(self, group: int, attempt: int = 0) -> tuple[int, int, int, int]:
        low, high = self.vertex & MASK, self.vertex >> 32
        return philox((low, high | attempt << 24, self.batch, self.tag | group), self.key)

    def bounded(self, index: int, bound: int) -> int:
        """Uniform in [0, bound): words whose product falls below 2**32 mod bound are drawn again."""
        for attempt in range(256):
            product = self.words(index // 4, attempt)[index % 4] * bound
            if product % 2**32 >= 2**32 % bound:
                break
            self.redraws += 1
        return product >> 32

    def bounded64(self, index: int, bound: int) -> int:
        words = self.words(index // 2)
        low, high = words[2 * (index % 2)], words[2 * (index % 2) + 1]
        return (high << 32 | low) * bound >> 64


def floyd(stream: Stream, degree: int, k: int) -> list[int]:
    chosen: dict[int, None] = {}
    for top in range(degree - k, degree):
        t = stream.bounded(top - (degree - k), top + 1)
        chosen[top if t in chosen else t] = None
    return list(chosen)


def reservoir(stream: Stream, degree: int, k: int) -> list[int]:
    kept = list(range(k))
    for candidate in range(k, degree):
        slot = stream.bounded(candidate, candidate + 1)
        if slot < k:
            kept[slot] = candidate
    return kept


def fisher_yates(stream: Stream, degree: int, k: int) -> list[int]:
    """GNNLab's draw, on a permutation that is written down in full: take one of what is left, move the last there."""
    permutation, chosen = list(range(degree)), []
    for i in range(k):
        last, at = degree - i - 1, stream.bounded(i, degree - i)
        chosen.append(permutation[at])
        permutation[at] = permutation[last]
    return chosen


def replace(stream: Stream, degree: int, k: int) -> list[int]:
    return [stream.bounded(i, degree) for i in range(k)]


def successive(stream: Stream, weights: Sequence[int], k: int) -> list[int]:
    """Draw one edge after the other in proportion to the weights of those that are left; in ascending order."""
    left = {position: weight for position, weight in enumerate(weights) if weight}
    chosen = []
    for i in range(k):
        ends = list(itertools.accumulate(left.values()))
        at = list(left)[bisect.bisect_right(ends, stream.bounded64(i, ends[-1]))]
        chosen.append(at)
        del left[at]
    return sorted(chosen)


def weighted_replace(stream: Stream, weights: Sequence[int], k: int) -> list[int]:
    ends = list(itertools.accumulate(weights))
    return [bisect.bisect_right(ends, stream.bounded64(i, ends[-1])) for i in range(k)]


def pick(
    rule: str, weights: Sequence[int], fanout: int, vertex: int, batch: int, hop: int, seed: int
) -> list[int]:
    """Positions within the adjacency of one vertex, whose integer weights are ``weights``.

    ``rule``: "floyd", "reservoir", "fisher-yates", "replace", "weighted" or "weighted-replace"; all but the last two
    see the weights' number alone.
    """
    degree = len(weights)
    by_weight = rule.startswith("weighted")
    possible = [i for i in range(degree) if weights[i] or not by_weight]
    stream = Stream(vertex, batch, hop, PURPOSES["weighted" if by_weight else rule], seed)
    if fanout < 0 or not possible:
        return possible
    if rule == "replace":
        return replace(stream, degree, fanout)
    if rule == "weighted-replace":
        return weighted_replace(stream, weights, fanout)
    if len(possible) <= fanout:
        return possible
    if rule == "weighted":
        return successive(stream, weights, fanout)
    uniform = {"floyd": floyd, "reservoir": reservoir, "fisher-yates": fisher_yates}
    return uniform[rule](stream, degree, fanout)


def integer_weights(weights: Sequence[float]) -> list[int]:
    """float32 weights of a whole graph in fixed point, exactly: the largest becomes 2**31."""
    top = max(weights, default=0.0)
    whole = all(float(w).is_integer() for w in weights)
    if whole and top < 2**32 and top * max(len(weights), 1) < 2**62:
        return [int(w) for w in weights]
    return [max(round(float(w) * (2.0**31 / float(top))), int(w > 0)) for w in weights]


def subset_probabilities(weights: Sequence[int], k: int) -> dict[frozenset[int], Fraction]:
    """Exact probability of every set of ``k`` edges under successive sampling, by running through all orders."""
    found: dict[frozenset[int], Fraction] = {}
    for order in itertools.permutations([i for i, w in enumerate(weights) if w], k):
        left, p = sum(weights), Fraction(1)
        for edge in order:
            p *= Fraction(weights[edge], left)
            left -= weights[edge]
        found[frozenset(order)] = found.get(frozenset(order), Fraction(0)) + p
    return found
