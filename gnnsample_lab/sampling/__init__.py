"""From seeds to picks: for every hop, which vertices are expanded and which of their in-neighbours are drawn.

All strategies return the same picks, because a draw is a pure function of (seed, batch, hop, vertex, slot).
They differ only in how they execute the work; this package makes these executions comparable.
"""

from __future__ import annotations

from gnnsample_lab.lazy import exports

__getattr__, __dir__ = exports(__name__, {}, modules=["apps"])  # lab.apps
