"""What makes arrays a valid graph; every error names the argument, what was got and what is allowed."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from gnnsample_lab.device.runtime import is_cuda_array

MAX_INT32_NODES = 2**31


def device_of(array: Any) -> str:
    """``"cuda"`` for CuPy arrays, ``"cpu"`` for everything else."""
    return "cuda" if is_cuda_array(array) else "cpu"


def array_module(device: str) -> Any:
    """NumPy or CuPy."""
    if device == "cuda":
        import cupy

        return cupy
    return np


def as_array(value: Any, name: str) -> Any:
    """``value`` as a NumPy or CuPy array on the device where it lies; torch tensors share their memory."""
    if type(value).__module__.split(".")[0] == "torch":
        value = value.detach()
        if value.is_cuda:
            import cupy

            return cupy.from_dlpack(value)
        return value.numpy()
    if is_cuda_array(value) or isinstance(value, np.ndarray):
        return value
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of numbers (got {type(value).__name__}: {error})") from None


def host_bytes(array: Any) -> memoryview:
    """The bytes of a contiguous copy in host memory."""
    host: Any = array.get() if device_of(array) == "cuda" else np.ascontiguousarray(array)
    return memoryview(host.reshape(-1).view(np.uint8))


def integer_vector(value: Any, name: str) -> Any:
    """``value`` as a one-dimensional integer array.

    Raises:
        TypeError: another dtype (an empty list is fine).
        ValueError: more than one dimension.
    """
    array = as_array(value, name)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional (got shape {tuple(array.shape)})")
    if array.dtype.kind not in "iu":
        if array.size == 0:
            return array.astype(np.int64)
        raise TypeError(f"{name} must hold integers (got dtype {array.dtype})")
    return array


def integer(value: Any, name: str, minimum: int = 0) -> int:
    """``value`` as a Python integer of at least ``minimum``; bool and floats are a TypeError."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be an integer (got {value!r})")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer (got {value!r})") from None
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum} (got {number})")
    return number


def positive_float(value: Any, name: str) -> float:
    """``value`` as a finite float above 0."""
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number (got {value!r})")
    number = float(value)
    if not math.isfinite(number) or number <= 0:
        raise ValueError(f"{name} must be finite and above 0 (got {value!r})")
    return number


def id_dtype(num_nodes: int) -> np.dtype:
    """The dtype of vertex ids: int32 while they fit."""
    return np.dtype(np.int32 if num_nodes < MAX_INT32_NODES else np.int64)


def ids_in_range(ids: Any, num_nodes: int, name: str) -> None:
    """Raise ValueError naming the first id outside ``[0, num_nodes)``."""
    if ids.size == 0:
        return
    # min and max first: they allocate nothing, while the mask below is built only to name the culprit.
    if int(ids.min()) >= 0 and int(ids.max()) < num_nodes:
        return
    xp = array_module(device_of(ids))
    position = int(xp.flatnonzero((ids < 0) | (ids >= num_nodes))[0])
    raise ValueError(
        f"{name} must lie in [0, {num_nodes}), the graph's vertices "
        f"(got {int(ids[position])} at position {position})"
    )


def weights(value: Any, num_edges: int) -> Any:
    """``edge_weight`` as float32[E]; NaN, infinite and negative weights are a ValueError."""
    array = as_array(value, "edge_weight")
    if array.dtype.kind not in "fiu":
        raise TypeError(f"edge_weight must hold numbers (got dtype {array.dtype})")
    if array.ndim != 1 or len(array) != num_edges:
        raise ValueError(
            f"edge_weight must have shape ({num_edges},), one per edge (got {tuple(array.shape)})"
        )
    with np.errstate(over="ignore"):  # an overflow becomes inf, which is reported below
        array = array.astype(np.float32, copy=False)
    if array.size:
        xp = array_module(device_of(array))
        bad = ~(xp.isfinite(array) & (array >= 0))
        if bool(bad.any()):
            position = int(xp.flatnonzero(bad)[0])
            raise ValueError(
                f"edge_weight must be finite and not negative "
                f"(got {float(array[position])} at position {position})"
            )
    return array


def features(value: Any, num_nodes: int) -> Any:
    """``feat`` as float32[N, F]."""
    array = as_array(value, "feat")
    if array.dtype.kind not in "fiu":
        raise TypeError(f"feat must hold numbers (got dtype {array.dtype})")
    if array.ndim != 2 or len(array) != num_nodes:
        raise ValueError(f"feat must have shape ({num_nodes}, features) (got {tuple(array.shape)})")
    return array.astype(np.float32, copy=False)


def labels(value: Any, num_nodes: int) -> Any:
    """``label`` as int64[N], or int64[N, tasks] for multi-label data; -1 marks a vertex without a label."""
    array = as_array(value, "label")
    if array.dtype.kind not in "iub":
        raise TypeError(f"label must hold integers (got dtype {array.dtype})")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array.reshape(-1)
    if array.ndim not in (1, 2) or len(array) != num_nodes:
        raise ValueError(
            f"label must have shape ({num_nodes},) or ({num_nodes}, tasks) (got {tuple(array.shape)})"
        )
    array = array.astype(np.int64, copy=False)
    if array.size and int(array.min()) < -1:
        raise ValueError(f"label must be at least -1, which means none (got {int(array.min())})")
    return array


def split_ids(value: Mapping[str, Any] | None, num_nodes: int) -> dict[str, Any]:
    """``splits`` as name -> int64 ids; boolean masks over the vertices are turned into ids."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"splits must map names to vertex ids (got {type(value).__name__})")
    result = {}
    for key, given in value.items():
        name = f"splits[{key!r}]"
        array = as_array(given, name)
        if array.dtype.kind == "b":
            if array.shape != (num_nodes,):
                raise ValueError(
                    f"{name} as a mask must have shape ({num_nodes},) (got {tuple(array.shape)})"
                )
            array = array_module(device_of(array)).flatnonzero(array)
        array = integer_vector(array, name).astype(np.int64, copy=False)
        ids_in_range(array, num_nodes, name)
        result[str(key)] = array
    return result


def topology(indptr: Any, indices: Any) -> tuple[Any, Any]:
    """Shape, dtype and device of a CSC pair, and the ends of ``indptr``; reads no edge."""
    indptr = integer_vector(indptr, "indptr")
    indices = integer_vector(indices, "indices")
    if device_of(indptr) != device_of(indices):
        raise ValueError(
            f"indptr and indices must be on one device (got {device_of(indptr)} and {device_of(indices)})"
        )
    if len(indptr) < 1:
        raise ValueError("indptr must have num_nodes + 1 entries (got none)")
    indptr = indptr.astype(np.int64, copy=False)
    if int(indptr[0]) != 0 or int(indptr[-1]) != len(indices):
        raise ValueError(
            f"indptr must start at 0 and end at the number of indices, {len(indices)} "
            f"(got {int(indptr[0])} and {int(indptr[-1])})"
        )
    return indptr, indices


def adjacency(indptr: Any, indices: Any, chunk: int = 1 << 26) -> None:
    """Monotone ``indptr``, sources in range and sorted within each vertex; reads everything, in chunks."""
    num_nodes = len(indptr) - 1
    xp = array_module(device_of(indptr))
    falls = indptr[1:] < indptr[:-1]
    if bool(falls.any()):
        vertex = int(xp.flatnonzero(falls)[0])
        raise ValueError(
            f"indptr must not decrease "
            f"(got {int(indptr[vertex])} then {int(indptr[vertex + 1])} at vertex {vertex})"
        )
    for start in range(0, len(indices), chunk):
        part = indices[max(start - 1, 0) : start + chunk]
        ids_in_range(part, num_nodes, "indices")
        drops = xp.flatnonzero(part[1:] < part[:-1]) + max(start - 1, 0) + 1
        # A drop is fine exactly where a vertex begins.
        inside = drops[indptr[xp.searchsorted(indptr, drops)] != drops]
        if inside.size:
            position = int(inside[0])
            raise ValueError(
                f"indices must be sorted by source within each vertex (position {position} is smaller than "
                "the one before it); Graph.from_csc and Graph.from_edges sort them"
            )
