"""Kernels that begin while the one before them ends: programmatic dependent launch, which CuPy does not offer.

In a chain of short kernels the time between two of them counts: the first must end and flush its writes before the next
is even launched. A kernel that is launched dependently is resident by then, and waits inside (``lab_follow`` in
``plan.cuh``). A kernel may be launched so only if it waits, and only behind a kernel on the same stream.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from . import runtime

_OLDEST = 90
"""Compute capability from which on GPUs have it."""
_state = threading.local()


@contextlib.contextmanager
def dependently(on: bool = True) -> Iterator[None]:
    """Inside, :func:`launch` of this thread launches dependently where the GPU and the installed packages can."""
    before = getattr(_state, "on", False)
    _state.on = on and _driver() is not None
    try:
        yield
    finally:
        _state.on = before


@functools.cache
def _driver() -> Any:
    """The driver's interface, None where there is none or the GPU is too old."""
    properties = runtime.device_properties()
    if properties["major"] * 10 + properties["minor"] < _OLDEST:
        return None
    try:
        from cuda.bindings import driver
    except ImportError:
        return None
    return driver if hasattr(driver, "cuLaunchKernelEx") else None


def launch(
    kernel: Any, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared_mem: int = 0
) -> None:
    """Launch a kernel on CuPy's current stream, dependently inside of :func:`dependently`.

    Args:
        kernel: CuPy's function of the driver (``RawModule.get_function(name).kernel``); anything else that can be
            called so is called.
        grid, block: up to three sizes each.
        args: NumPy scalars and one-element arrays by value, CuPy arrays by address.
        shared_mem: bytes of dynamic shared memory of a block.
    """
    if not getattr(_state, "on", False) or not hasattr(kernel, "ptr"):
        kernel(grid, block, args, shared_mem=shared_mem)
        return
    import cupy

    driver = _driver()
    values = [np.ascontiguousarray(a) if isinstance(a, (np.generic, np.ndarray)) else a for a in args]
    values = [a if isinstance(a, np.ndarray) else np.array([a.data.ptr], np.uint64) for a in values]
    addresses = (ctypes.c_void_p * len(values))(*(a.ctypes.data for a in values))
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = (*grid, 1, 1)[:3]
    config.blockDimX, config.blockDimY, config.blockDimZ = (*block, 1, 1)[:3]
    config.sharedMemBytes = shared_mem
    config.hStream = driver.CUstream(int(cupy.cuda.get_current_stream().ptr))
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config.attrs, config.numAttrs = [attribute], 1
    (status,) = driver.cuLaunchKernelEx(
        config, driver.CUfunction(int(kernel.ptr)), ctypes.addressof(addresses), 0
    )
    if int(status) != 0:
        raise RuntimeError(f"a kernel could not be launched dependently: {status}")
