"""A fixed hash of integers (the finalizer of SplitMix64): the same on every machine, in every process and version."""

from __future__ import annotations

import numpy as np

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def hashed(values: np.ndarray, seed: int = 0) -> np.ndarray:
    """uint64 of the shape of ``values``: a hash of each integer, another one for each seed below 2**64."""
    key = _mixed(np.asarray([seed], dtype=np.uint64) + _STEP)
    return _mixed(values.astype(np.uint64) * _STEP + key)


def _mixed(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))
