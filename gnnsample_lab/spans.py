"""Spans of time."""

from __future__ import annotations

import math
from collections.abc import Iterable


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Time that lies in any of the spans, each a begin and an end; what several share counts once."""
    total, reached = 0.0, -math.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
