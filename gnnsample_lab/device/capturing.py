"""What a thread leaves alone while it captures a CUDA graph."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Python collects no garbage in the block.

    Garbage may be another CUDA graph, whose end would end the capture, or page-locked memory, before whose end the host
    waits for the whole device, which CUDA refuses during a capture.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
