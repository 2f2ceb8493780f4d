"""How many CPU cores this process may use: on a shared host fewer than there are."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Cores that the calling thread may run on now; at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
