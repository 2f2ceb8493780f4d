"""Where Nsight Compute's command line is."""

from __future__ import annotations

import shutil


def find_ncu() -> str | None:
    """Path of ``ncu``, or None."""
    for name in ("ncu", "/usr/local/cuda/bin/ncu"):
        if found := shutil.which(name):
            return found
    return None
