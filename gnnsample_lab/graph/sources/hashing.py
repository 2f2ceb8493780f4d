"""A fixed hash of integers (the finalizer of SplitMix64): the same on every machine, in every process and version."""

from __future__ import annotations

import numpy as np

from gnnsample_lab.device.splitmix import GOLDEN, finalise

_STEP = np.uint64(GOLDEN)


def hashed(values: np.ndarray, seed: int = 0) -> np.ndarray:
    """uint64 of the shape of ``values``: a hash of each integer, another one for each seed below 2**64."""
    key = finalise(np.asarray([seed], dtype=np.uint64) + _STEP)
    mixed: np.ndarray = finalise(values.astype(np.uint64) * _STEP + key)
    return mixed
