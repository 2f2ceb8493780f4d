"""What makes arrays a valid graph; every error names the argument, what was got and what is allowed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gnnsample_lab.checks import array as checked_array
from gnnsample_lab.checks import ids_below, integers, is_cuda_array, no_mask_of_bytes, numbers, shown, whole
from gnnsample_lab.device.arrays import array_module, to_host

MAX_INT32_NODES = 2**31
_PIECE = 1 << 24
"""Numbers that become float32 at a time."""


def device_of(array: Any) -> str:
    """``"cuda"`` for CuPy arrays, ``"cpu"`` for everything else."""
    return "cuda" if is_cuda_array(array) else "cpu"


def host_bytes(array: Any) -> memoryview:
    """The bytes of a contiguous copy in host memory."""
    host: Any = np.ascontiguousarray(to_host(array))
    return memoryview(host.reshape(-1).view(np.uint8))


def id_dtype(num_nodes: int) -> np.dtype:
    """The dtype of vertex ids: int32 while they fit."""
    return np.dtype(np.int32 if num_nodes < MAX_INT32_NODES else np.int64)


def one_per_edge(array: Any, num_edges: int, name: str) -> None:
    """``array`` has the shape ``(E,)``; its numbers are not read."""
    if tuple(array.shape) != (num_edges,):
        raise ValueError(f"{name} must have shape ({num_edges},), one per edge (got {tuple(array.shape)})")


def weights(value: Any, num_edges: int, name: str = "edge_weight") -> Any:
    """The weights ``name`` as float32[E]; NaN, infinite and negative weights are a ValueError."""
    given = array = numbers(name, value)
    one_per_edge(array, num_edges, name)
    with np.errstate(over="ignore"):  # an overflow becomes inf, which is reported below
        array = array.astype(np.float32, copy=False)
    if array.size:
        xp = array_module(array)
        if given.dtype.itemsize > 4 and bool(((given > 0) & (array == 0)).any()):
            raise ValueError(
                f"{name} must be 0 or at least {np.finfo(np.float32).smallest_subnormal:.1e}, the least that 32 "
                f"bits hold (got {float(given[given > 0].min())})"
            )
        if given.dtype.itemsize > 4 and given.dtype.kind == "f":
            coarse = (array < np.finfo(np.float32).tiny) & (array != given)
            if bool(coarse.any()):
                warnings.warn(
                    f"{name}: numbers below {np.finfo(np.float32).tiny:.1e} lose digits in 32 bits "
                    f"({float(given[coarse][0])} becomes {float(array[coarse][0])})",
                    stacklevel=5,
                )
        bad = ~(xp.isfinite(array) & (given >= 0))  # what is negative may be -0 in 32 bits
        if bool(bad.any()):
            position = int(xp.flatnonzero(bad)[0])
            got = float(given[position])
            rule = "fit 32 bits" if 0 < got < float("inf") else "be finite and not negative"
            raise ValueError(f"{name} must {rule} (got {got} at position {position})")
    return array


def features(value: Any, num_nodes: int) -> Any:
    """``feat`` as float32[N, F]; a warning says where whole numbers are rounded."""
    array = numbers("feat", value)
    if array.ndim != 2 or len(array) != num_nodes:
        raise ValueError(f"feat must have shape ({num_nodes}, features) (got {tuple(array.shape)})")
    return as_float32(array, "feat")


def as_float32(array: Any, name: str, error: type[ValueError] = ValueError) -> Any:
    """The numbers ``name`` as float32, by :func:`fill_float32`."""
    if array.dtype == np.float32:
        return array
    out = array_module(array).empty_like(array, dtype=np.float32)
    step = max(1, _PIECE * len(array) // max(1, array.size))
    parts = (array[start : start + step] for start in range(0, len(array), step))
    fill_float32(out, parts, name, error)
    return out


def fill_float32(out: Any, parts: Iterable[Any], name: str, error: type[ValueError] = ValueError) -> None:
    """Write ``parts``, one behind the other along the first axis, to ``out``, float32; a warning says where whole
    numbers are rounded.

    Raises:
        error: a finite number that 32 bits do not hold; says ``name``.
    """
    xp, done, first = array_module(out), 0, None
    for part in parts:
        narrow = out[done : done + len(part)]
        done += len(part)
        with np.errstate(over="ignore"):  # reported below
            narrow[...] = part
        if part.dtype.kind == "f" and part.dtype.itemsize > 4:
            lost = xp.isinf(narrow) & ~xp.isinf(part)
            if bool(lost.any()):
                raise error(f"{name} must fit 32 bits (got {float(part[lost][0])})")
        elif first is None and part.dtype.kind in "iu" and part.dtype.itemsize > 2:
            rounded = _rounded(part)
            first = int(part[rounded][0]) if bool(rounded.any()) else None
    if first is not None:
        warnings.warn(
            f"{name}: whole numbers beyond 2**24 are rounded to float32 ({first} among them)",
            stacklevel=7,  # where Graph.from_edges is called
        )


def _rounded(array: Any) -> Any:
    """Which whole numbers float32 does not hold: those of more than 24 bits from the first to the last that is set."""
    xp = array_module(array)
    size = array.astype(np.uint64)
    size = xp.where(array < 0, ~size + np.uint64(1), size)
    last = xp.maximum(size & (~size + np.uint64(1)), np.uint64(1))
    return size // last >= np.uint64(1 << 24)


class FoundCount(int):
    """A number of classes that nobody gave. Other labels, to which ``dataclasses.replace`` passes it on, may have more
    of them; it does not become less, since whoever takes it from another graph may mean it.
    """


def labels(value: Any, num_nodes: int) -> Any:
    """``label`` as int64[N], or int64[N, tasks] for multi-label data; -1 marks a vertex without a label."""
    array = checked_array("label", value)
    if array.dtype.kind not in "iub":
        raise TypeError(f"label must be integers (got dtype {array.dtype})")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array.reshape(-1)
    if array.ndim not in (1, 2) or len(array) != num_nodes or (array.ndim == 2 and not array.shape[1]):
        raise ValueError(
            f"label must have shape ({num_nodes},) or ({num_nodes}, tasks) (got {tuple(array.shape)})"
        )
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 1 << 63:
        raise ValueError(f"label must be below 2**63 (got {int(array.max())})")
    array = array.astype(np.int64, copy=False)
    if array.size and int(array.min()) < -1:
        raise ValueError(f"label must be at least -1, which means none (got {int(array.min())})")
    if array.ndim == 2 and array.size and not 0 <= int(array.min()) <= int(array.max()) <= 1:
        raise ValueError(
            "label of several columns must hold 0 and 1, one column per task "
            f"(got {int(array.min())}..{int(array.max())})"
        )
    return array


def class_count(value: Any, label: Any) -> int:
    """``num_classes``, found from checked labels where it is -1; every label is below it."""
    if isinstance(value, FoundCount):
        found = class_count(-1, label)
        return found if label is not None and label.ndim == 2 else FoundCount(max(value, found))
    given = whole("num_classes", value, -1, 2**31 - 1)
    if label is None or label.size == 0:
        return FoundCount(0) if given < 0 else given
    found = int(label.shape[1]) if label.ndim == 2 else int(label.max()) + 1
    if given < 0:
        return FoundCount(found)
    if found > given or (label.ndim == 2 and found != given):
        raise ValueError(f"num_classes must be the number of classes that label has, {found} (got {given})")
    return given


def split_ids(value: Mapping[str, Any] | None, num_nodes: int) -> dict[str, Any]:
    """``splits`` as name -> int64 ids; boolean masks over the vertices are turned into ids."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"splits must map names to vertex ids (got {shown(value)})")
    result = {}
    for key, given in value.items():
        if not isinstance(key, str):
            raise TypeError(f"names in splits must be strings (got {shown(key)})")
        name = f"splits[{key!r}]"
        array = checked_array(name, given)
        if array.dtype.kind == "b":
            if array.shape != (num_nodes,):
                raise ValueError(
                    f"{name} as a mask must have shape ({num_nodes},) (got {tuple(array.shape)})"
                )
            array = array_module(array).flatnonzero(array)
        else:
            no_mask_of_bytes(name, array, num_nodes)
        array = integers(name, array).astype(np.int64, copy=False)
        ids_below(name, array, num_nodes)
        result[str(key)] = array
    return result


def check_distinct(name: str, seeds: Any) -> None:
    """ValueError where vertex ids name one twice: a mini-batch samples a seed once, however often it is given."""
    given = to_host(integers(name, seeds))
    if (given[1:] > given[:-1]).all():  # as splits of data sets mostly are
        return
    found, counts = np.unique(given, return_counts=True)
    most = int(counts.argmax())
    if counts[most] > 1:
        raise ValueError(f"{name} must name each vertex once (got vertex {found[most]} {counts[most]} times)")


def topology(indptr: Any, indices: Any) -> tuple[Any, Any]:
    """Shape, dtype and device of a CSC pair, and the ends of ``indptr``; reads no edge."""
    indptr, indices = integers("indptr", indptr), integers("indices", indices)
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
    xp = array_module(indptr)
    falls = indptr[1:] < indptr[:-1]
    if bool(falls.any()):
        vertex = int(xp.flatnonzero(falls)[0])
        raise ValueError(
            f"indptr must not decrease "
            f"(got {int(indptr[vertex])} then {int(indptr[vertex + 1])} at vertex {vertex})"
        )
    for start in range(0, len(indices), chunk):
        part = indices[max(start - 1, 0) : start + chunk]
        ids_below("indices", part, num_nodes)
        drops = xp.flatnonzero(part[1:] < part[:-1]) + max(start - 1, 0) + 1
        # A drop is fine exactly where a vertex begins.
        inside = drops[indptr[xp.searchsorted(indptr, drops)] != drops]
        if inside.size:
            position = int(inside[0])
            raise ValueError(
                f"indices must be sorted by source within each vertex (position {position} is smaller than "
                "the one before it); Graph.from_csc and Graph.from_edges sort them"
            )
