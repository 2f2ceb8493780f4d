"""Arrays in page-locked host memory that kernels read across the bus as if they were CuPy arrays."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from gnnsample_lab.device import runtime

_PORTABLE, _MAPPED = 1, 2  # flags of cudaHostAlloc and cudaHostRegister, the same numbers in both
_READ_ONLY = 8  # cudaHostRegister only
_locked: dict[int, np.ndarray | None] = {}
"""From the ``id`` of a living array to its page-locked copy, or to None where it was locked in place."""


def pinned(array: np.ndarray) -> np.ndarray:
    """``array`` in page-locked memory: itself, locked in place until it is freed, or a copy where that fails.

    Locking is slow (a second for several GB), so an array stays locked between runs.

    Raises:
        MemoryError: the host refuses that much page-locked memory.
    """
    key = id(array)
    if key not in _locked:
        locked = _lock(array)
        _locked[key] = None if locked is array else locked
        # Unlock when the array is freed, but not at exit, when CUDA may be gone already.
        weakref.finalize(array, _unlock, key, array.ctypes.data if locked is array else 0).atexit = False
    kept = _locked[key]
    return array if kept is None else kept


def _lock(array: np.ndarray) -> np.ndarray:
    import cupy

    driver = cupy.cuda.runtime
    if array.nbytes and array.flags.c_contiguous:
        # The flag is for read-only pages. A read-only array in writable pages needs none, and not every machine has it.
        flags = (
            _PORTABLE
            | _MAPPED
            | (_READ_ONLY if runtime.is_memory_mapped(array) and not array.flags.writeable else 0)
        )
        try:
            driver.hostRegister(array.ctypes.data, array.nbytes, flags)
            return array
        except driver.CUDARuntimeError:  # pages of a file, or pages that are locked already: make a copy
            pass
    try:
        memory = cupy.cuda.PinnedMemory(max(8, array.nbytes), _PORTABLE | _MAPPED)
    except driver.CUDARuntimeError as error:
        raise MemoryError(f"{array.nbytes} bytes of the graph could not be page-locked: {error}") from None
    copy = np.frombuffer(cupy.cuda.PinnedMemoryPointer(memory, 0), array.dtype, array.size)
    copy[:] = array
    return copy


def _unlock(key: int, address: int) -> None:
    kept = _locked.pop(key)
    import cupy

    cupy.cuda.runtime.deviceSynchronize()  # a kernel may still read there
    if address:
        cupy.cuda.runtime.hostUnregister(address)
    del kept


def mapped(array: np.ndarray) -> Any:
    """A CuPy array over page-locked ``array``: kernels read it across the bus, nothing is copied."""
    import cupy

    pointer = array.ctypes.data
    address = int(cupy.cuda.runtime.pointerGetAttributes(pointer).devicePointer) or pointer
    memory = cupy.cuda.UnownedMemory(address, max(1, array.nbytes), array, cupy.cuda.Device().id)
    return cupy.ndarray(array.shape, array.dtype, cupy.cuda.MemoryPointer(memory, 0))
