"""What the package asks of any array, wherever it lies: NumPy and CuPy arrays, and tensors of torch.

CuPy and torch are imported only where an array is one of theirs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.checks import is_cuda_array


def array_module(array: Any) -> Any:
    """NumPy or CuPy, whichever ``array`` belongs to."""
    if is_cuda_array(array):
        import cupy

        return cupy
    return np


def dense(array: Any) -> Any:
    """An array of NumPy or CuPy, or a copy where its entries lie apart in memory: kernels count on from its address."""
    return array if array.flags.c_contiguous else array_module(array).ascontiguousarray(array)


def to_host(array: Any) -> np.ndarray:
    """``array`` as a NumPy array: a copy of what lies on a GPU; NumPy arrays, memory-mapped ones too, as they are.

    The host waits for the current stream of the array's library.
    """
    if hasattr(array, "detach"):
        return np.asarray(array.detach().cpu())
    return array.get() if is_cuda_array(array) else np.asanyarray(array)


def is_memory_mapped(array: Any) -> bool:
    """True when the array's memory is a file's: a ``numpy.memmap``, or a view of one."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


def offsets_of(counts: Any) -> Any:
    """Where each of consecutive runs begins, and where the last one ends: ``int64[n + 1]`` for ``counts``, ``[n]``."""
    xp = array_module(counts)
    offsets = xp.empty(counts.size + 1, dtype=np.int64)
    if xp is np:
        offsets[0] = 0
    else:
        offsets.data.memset_async(0, 8)
    xp.cumsum(counts, out=offsets[1:])
    return offsets


def equal_bounds(number: int, count: int) -> np.ndarray:
    """Bounds of ``count`` consecutive shares of ``number`` entries, sizes apart by one: ``int64[count + 1]``."""
    return np.arange(count + 1) * number // count


def run_starts(ordered: Any) -> Any:
    """Where a run of equal values begins in a sorted array, ``bool``."""
    first = array_module(ordered).ones(ordered.size, dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return first


def merge_duplicates(values: Any) -> tuple[Any, Any, Any]:
    """Distinct values in first-seen order.

    Args:
        values: integers, ``[n]``, NumPy or CuPy.

    Returns:
        The ``k`` distinct values; each value's place among them, ``int64[n]``; where each of them stands first,
        ``int64[k]``. On the host the first is ``values`` itself where nothing is repeated.
    """
    xp = array_module(values)
    # Seeds of an epoch are distinct: a sort of the bare values, much faster than one of their order, finds that out.
    if xp is np and run_starts(np.sort(values)).all():
        return values, np.arange(values.size), np.arange(values.size)
    order = xp.argsort(values, kind="stable")
    first = run_starts(values[order])
    run = xp.cumsum(first) - 1
    at = order[first]
    by_place = xp.argsort(at, kind="stable")
    rank = xp.empty(at.size, dtype=np.int64)
    rank[by_place] = xp.arange(at.size)
    places = xp.empty(values.size, dtype=np.int64)
    places[order] = rank[run]
    return values[at[by_place]], places, at[by_place]


def times_changed(array: Any) -> int:
    """How often a tensor of PyTorch was changed in place; 0 for arrays and tensors that do not count it."""
    is_inference = getattr(array, "is_inference", None)
    return 0 if is_inference is None or is_inference() else int(array._version)
