"""Random words by counter: a function of (seed, stream, position), the same on NumPy and on CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device.splitmix import GOLDEN, finalise, finalised

_MASK = 2**64 - 1


def words(xp: Any, seed: int, stream: int, start: int, stop: int) -> Any:
    """uint64[stop - start]: the words at positions ``[start, stop)`` of a stream.

    SplitMix64's finaliser over a counter; streams start far from one another.
    """
    base = finalised((finalised((seed + GOLDEN) & _MASK) + stream * GOLDEN) & _MASK)
    x = xp.arange(start, stop, dtype=np.uint64)
    x *= np.uint64(GOLDEN)
    x += np.uint64(base)
    return finalise(x)


def bits(xp: Any, seed: int, stream: int, start: int, stop: int, count: int) -> Any:
    """int64[stop - start] in ``[0, 2**count)``: the high bits of the words."""
    return (words(xp, seed, stream, start, stop) >> np.uint64(64 - count)).view(np.int64)


def pair_words(xp: Any, low: Any, high: Any, seed: int) -> Any:
    """int64 in ``[0, 2**32)``: a word for each pair of vertices (int64 below 2**31)."""
    x = (low << 32 | high).view(np.uint64)
    x ^= np.uint64(finalised(seed ^ 0x5851F42D4C957F2D))
    return (finalise(x) >> np.uint64(32)).view(np.int64)
