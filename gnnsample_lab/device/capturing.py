"""What threads leave alone while one of them captures a CUDA graph."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Python collects no garbage in the block.

    Garbage may be another CUDA graph, whose end would end the capture, or page-locked memory, before whose end the host
    waits for the whole device, which no thread should do while it captures.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def wait_for_device() -> None:
    """Wait for all work of all streams of the current device, and leave other threads' captures alone.

    ``cudaDeviceSynchronize`` fails while any stream of the device captures, and what was captured is void as well.
    ``cudaFree`` waits for the same work, but only a capture in CUDA's mode ``"global"`` forbids it. Ours are relaxed.

    Raises:
        cupy.cuda.runtime.CUDARuntimeError: a kernel failed, or another thread captures in the mode ``"global"``.
    """
    import cupy

    runtime = cupy.cuda.runtime
    try:
        memory = runtime.malloc(1)
    except runtime.CUDARuntimeError:  # no byte is left, or the error of a kernel, which is raised once more
        runtime.deviceSynchronize()
    else:
        runtime.free(memory)
