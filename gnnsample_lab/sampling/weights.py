"""Edge weights as integers, so that every device draws the same edges from them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.device.arrays import array_module

_FIXED_POINT_ONE = 2.0**31
"""The largest fractional weight is scaled to this integer, so that sums over 2**32 edges still fit 64 bits."""
_LEAST = 1e-290
_COARSE = 64
"""Weights below this, as integers, are rounded by about 1 % or more."""


@dataclass(frozen=True, eq=False)
class IntegerWeights:
    """Weights of all edges as prefix sums of integers.

    Attributes:
        prefix: exclusive prefix sums over all edges in adjacency order, ``uint64[E + 1]``; edge ``e`` has
            weight ``prefix[e + 1] - prefix[e]``.
        available: in-edges of positive weight per vertex, ``int32[N]``.
        guide: on the GPU a record per edge that takes the place of searches (``sampling/neighbors/guide.py``),
            ``uint32[E, 4]``, or None.
    """

    prefix: Any
    available: Any
    guide: Any = None


def integer_weights(indptr: Any, edge_weight: Any, name: str = "edge weights") -> IntegerWeights:
    """Turn float weights into fixed point.

    Integer weights below 2**32 are used unchanged if their sum fits; others are scaled by 2**31 / max and rounded, and
    a positive weight is at least 1 afterwards. A warning says where that is coarse. ``indptr``: ``int64[N + 1]``;
    ``edge_weight``: ``float[E]``. ``name``: of the weights, for the error.

    Raises:
        ValueError: a weight is NaN, infinite or negative.
    """
    xp = array_module(indptr)
    weight = xp.asarray(edge_weight, dtype=xp.float64)
    top, least = (float(weight.max()), float(weight.min())) if weight.size else (0.0, 0.0)
    if not (least >= 0 and top < np.inf):  # NaN is neither
        raise ValueError(f"{name} must be finite and not negative (got {least:g} to {top:g})")
    if 0 < top < _LEAST:  # beside so small a number the scale would be no number
        weight, top = weight / top, 1.0
    whole = bool((weight == xp.rint(weight)).all()) and top * max(weight.size, 1) < 2.0**62
    scaled = not whole or top >= 2.0**32  # engines hold a single weight in 32 bits
    if scaled and top > 0:
        weight = xp.maximum(xp.rint(weight * (_FIXED_POINT_ONE / top)), (weight > 0).astype(xp.float64))
    prefix = xp.zeros(weight.size + 1, dtype=xp.uint64)
    xp.cumsum(weight.astype(xp.uint64), out=prefix[1:])
    positive = xp.zeros(weight.size + 1, dtype=xp.int64)
    xp.cumsum(weight > 0, out=positive[1:])
    available = xp.diff(positive[indptr])
    if scaled:
        small = xp.zeros(weight.size + 1, dtype=xp.int64)
        xp.cumsum((weight > 0) & (weight < _COARSE), out=small[1:])
        # One such edge is enough: draws without replacement come to it when the list's heavy ones are gone.
        if few := int(((available > 1) & (xp.diff(small[indptr]) > 0)).sum()):
            warnings.warn(
                f"edge_weight: beside the graph's largest, {top:.3g}, weights of {few} vertices are so small that "
                f"they are rounded to steps of {top / _FIXED_POINT_ONE:.3g}, and drawn so",
                stacklevel=3,
            )
    return IntegerWeights(prefix, available.astype(np.int32))
