"""From seeds to picks: for every hop, which vertices are expanded and which of their in-neighbours are drawn.

All strategies return the same picks, because a draw is a pure function of (seed, batch, hop, vertex, slot).
They differ only in how they execute the work; this package makes these executions comparable.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "apps":  # lab.apps
        return importlib.import_module(".apps", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
