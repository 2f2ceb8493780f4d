"""Random words by counter: a function of (seed, stream, position), the same on NumPy and on CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def words(xp: Any, seed: int, stream: int, start: int, stop: int) -> Any:
    """uint64[stop - start]: the words at positions ``[start, stop)`` of a stream.

    The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA'14) over a counter; streams start far from one another.
    """
    base = _mixed((_mixed((seed + _GOLDEN) & _MASK) + stream * _GOLDEN) & _MASK)
    x = xp.arange(start, stop, dtype=np.uint64)
    x *= np.uint64(_GOLDEN)
    x += np.uint64(base)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def bits(xp: Any, seed: int, stream: int, start: int, stop: int, count: int) -> Any:
    """int64[stop - start] in ``[0, 2**count)``: the high bits of the words."""
    return (words(xp, seed, stream, start, stop) >> np.uint64(64 - count)).view(np.int64)


def pair_words(xp: Any, low: Any, high: Any, seed: int) -> Any:
    """int64 in ``[0, 2**32)``: a word for each pair of vertices (int64 below 2**31)."""
    x = (low << 32 | high).view(np.uint64)
    x ^= np.uint64(_mixed(seed ^ 0x5851F42D4C957F2D))
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return (x >> np.uint64(32)).view(np.int64)


def _mixed(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
