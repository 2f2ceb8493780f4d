"""Page-locked host memory, which the GPU can copy by itself and which kernels can read across the bus."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from . import streams
from .arrays import is_cuda_array, is_memory_mapped
from .capturing import wait_for_device

_PORTABLE, _MAPPED = 1, 2  # flags of cudaHostAlloc and cudaHostRegister, the same numbers in both
_READ_ONLY = 8  # cudaHostRegister only
_locked: dict[int, np.ndarray | None] = {}
"""From the ``id`` of a living array to its page-locked copy, or to None where it was locked in place."""


def empty(num_bytes: int) -> np.ndarray:
    """Uninitialised page-locked host memory that the GPU can read, ``uint8[num_bytes]``; freed with its last view.

    Raises:
        MemoryError: the host refuses that much page-locked memory.
    """
    import cupy

    try:
        memory = cupy.cuda.PinnedMemory(max(8, num_bytes), _PORTABLE | _MAPPED)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise MemoryError(f"{num_bytes} bytes of host memory could not be page-locked: {error}") from None
    return np.frombuffer(cupy.cuda.PinnedMemoryPointer(memory, 0), np.uint8, num_bytes)


def grown(memory: np.ndarray, size: int) -> np.ndarray:
    """Page-locked memory of at least ``size`` bytes: ``memory``, or a new piece that has a quarter to spare."""
    return memory if len(memory) >= size else empty(size + size // 4)


def copy_out(array: Any, target: np.ndarray) -> None:
    """Copy an array of the GPU, on the current stream, or of the host to page-locked ``target``, ``uint8[nbytes]``."""
    if not is_cuda_array(array):
        target[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    elif array.nbytes:
        import cupy

        dense = cupy.ascontiguousarray(array)
        cupy.cuda.runtime.memcpyAsync(
            target.ctypes.data, dense.data.ptr, dense.nbytes, cupy.cuda.runtime.memcpyDeviceToHost,
            cupy.cuda.get_current_stream().ptr,
        )  # fmt: skip


def copy_in(memory: np.ndarray) -> tuple[Any, Any]:
    """Copy page-locked ``memory``, ``uint8[n]``, to the GPU on the current stream; the host waits for nothing.

    Returns:
        The copy, and its :class:`~.streams.Ready`: who waits for it does not wait for later work of the stream.
    """
    ready = streams.Ready()
    copied = streams.empty(len(memory), np.uint8, ready)
    copied.data.copy_from_host_async(memory.ctypes.data, len(memory))
    ready.note()
    return copied, ready


def lock(array: np.ndarray, owner: Any = None) -> None:
    """Page-lock the memory of ``array`` where it lies, until ``owner`` is dropped (by default the array itself).

    Args:
        array: dense, not empty. ``owner`` holds it, or is it.
        owner: any object that can be referred to weakly.

    Raises:
        MemoryError: the host refuses: pages of some files, pages that are locked already, or too many.
    """
    import cupy

    # The flag is for read-only pages. A read-only array in writable pages needs none, and not every machine has it.
    read_only = is_memory_mapped(array) and not array.flags.writeable
    flags = _PORTABLE | _MAPPED | (_READ_ONLY if read_only else 0)
    try:
        cupy.cuda.runtime.hostRegister(array.ctypes.data, array.nbytes, flags)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise MemoryError(f"{array.nbytes} bytes could not be page-locked where they lie: {error}") from None
    # Unlock before the memory is freed, but not at exit, when CUDA may be gone already.
    weakref.finalize(array if owner is None else owner, _unlock, array.ctypes.data).atexit = False


def _unlock(address: int) -> None:
    import cupy

    try:
        wait_for_device()  # a kernel may still read there
    finally:
        cupy.cuda.runtime.hostUnregister(address)


def locked(array: np.ndarray) -> np.ndarray:
    """``array`` in page-locked memory: itself, locked in place until it is freed, or a copy where that fails.

    Locking is slow (a second for several GB), so an array stays locked, or its copy is kept, between runs.

    Raises:
        MemoryError: the host refuses that much page-locked memory.
    """
    key = id(array)
    if key not in _locked:
        copy = None if _locks(array) else empty(array.nbytes).view(array.dtype)
        if copy is not None:
            copy[:] = array
        _locked[key] = copy
        weakref.finalize(array, _forget, key).atexit = False
    kept = _locked[key]
    return array if kept is None else kept


def _locks(array: np.ndarray) -> bool:
    if array.nbytes == 0 or not array.flags.c_contiguous:
        return False
    try:
        lock(array)
    except MemoryError:
        return False
    return True


def _forget(key: int) -> None:
    try:
        if _locked[key] is not None:
            wait_for_device()  # a kernel may still read the copy
    finally:
        del _locked[key]


def device_address(array: np.ndarray) -> int:
    """Where the GPU finds page-locked ``array``."""
    import cupy

    pointer: int = array.ctypes.data
    return int(cupy.cuda.runtime.pointerGetAttributes(pointer).devicePointer) or pointer


def mapped(array: np.ndarray) -> Any:
    """A CuPy array over page-locked ``array``: kernels read it across the bus, nothing is copied."""
    import cupy

    memory = cupy.cuda.UnownedMemory(
        device_address(array), max(1, array.nbytes), array, cupy.cuda.Device().id
    )
    return cupy.ndarray(array.shape, array.dtype, cupy.cuda.MemoryPointer(memory, 0))
