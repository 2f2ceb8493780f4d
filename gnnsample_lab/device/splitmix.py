"""The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA'14): a bijection on 64 bits that mixes them well."""

from __future__ import annotations

from typing import Any

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
"""The generator's step, odd and without structure: counters are multiplied by it before they are mixed."""
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST = np.uint64(31)


def finalise(x: Any) -> Any:
    """``x``, an array of uint64 on either device, mixed in place."""
    for shift, factor in _ROUNDS:
        x ^= x >> shift
        x *= factor
    x ^= x >> _LAST
    return x


def finalised(number: int) -> int:
    """A whole number below 2**64, mixed."""
    return int(finalise(np.array([number], dtype=np.uint64))[0])
