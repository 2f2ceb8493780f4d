"""Feature rows in host memory: checked tables, pinned memory, the gather that all cores share, copy bandwidth."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# Numba infers the types of its functions; annotations would only repeat the docstrings.
from __future__ import annotations

import contextlib
import math
import weakref
from typing import Any

import numpy as np

from gnnsample_lab.checks import array as checked_array
from gnnsample_lab.device import pinned
from gnnsample_lab.device.arrays import dense, is_memory_mapped
from gnnsample_lab.device.host import free_host_bytes
from gnnsample_lab.device.jit import njit, prange

from .slots import slot_of

LINE_BYTES = 128
"""Largest read that a GPU requests over PCIe at once: one cache line."""


def feature_table(feat: Any, name: str = "feat") -> Any:
    """``feat`` as a row-major NumPy array (memory maps stay mapped) or, if it lies on a GPU, CuPy array.

    Raises:
        TypeError: not float32 or float16, or None.
        ValueError: not two-dimensional, or rows of no elements.
    """
    if feat is None:
        raise TypeError(f"{name} must be a table of features (got None: has the graph features?)")
    if str(getattr(feat, "dtype", "")) == "torch.bfloat16":
        raise TypeError(f"{name} must be float32 or float16 (got torch.bfloat16)")
    table = checked_array(name, feat)
    if table.dtype not in (np.float32, np.float16):
        raise TypeError(f"{name} must be float32 or float16 (got {table.dtype})")
    if table.ndim != 2 or table.shape[1] == 0:
        raise ValueError(f"{name} must have shape (vertices, features) (got {tuple(table.shape)})")
    return dense(table)


def vector_bytes(row_bytes: int, *addresses: int) -> int:
    """Widest access (2 to 16 bytes) to which rows of ``row_bytes`` at all ``addresses`` are aligned."""
    return math.gcd(16, row_bytes, *addresses)


def words(*tables: np.ndarray) -> list[np.ndarray]:
    """Tables of equal rows as the widest unsigned words that all have: copying need not know the element type."""
    rows = [t.shape[1] * t.itemsize for t in tables]
    width = math.gcd(8, *rows, *(t.ctypes.data for t in tables if t.size), *(t.strides[0] for t in tables))
    return [t.view(f"u{width}") for t in tables]


@njit(parallel=True, cache=True)
def gather_rows(table, ids, out):
    """``out[i] = table[ids[i]]`` on all of Numba's threads, without the GIL; both as :func:`words`."""
    for i in prange(ids.size):
        v = ids[i]
        for j in range(table.shape[1]):
            out[i, j] = table[v, j]


@njit(cache=True)
def locate_rows(ids, slots, all_cached, where, base, rows, locations):
    """Location of every id as in ``gather.cuh``; returns (misses, reused rows). Empty tables stand for none."""
    misses = reused = 0
    for i in range(ids.size):
        v = ids[i]
        if where.size and where[v] >= base and where[v] < base + rows:
            locations[i] = -2 - np.int32(where[v] - base)
            reused += 1
        elif all_cached:
            locations[i] = v
        elif slots.size:
            at = slot_of(slots, v)
            locations[i] = at
            misses += at < 0
        else:
            locations[i] = -1
            misses += 1
    return misses, reused


@njit(parallel=True, cache=True)
def collect_rows(ids, locations, cache, previous, table, out):
    """The extraction on the CPU: each row from where its location says; tables and ``out`` as :func:`words`."""
    for i in prange(ids.size):
        at = locations[i]
        if at >= 0:
            for j in range(out.shape[1]):
                out[i, j] = cache[at, j]
        elif at < -1:
            for j in range(out.shape[1]):
                out[i, j] = previous[-2 - at, j]
        else:
            v = ids[i]
            for j in range(out.shape[1]):
                out[i, j] = table[v, j]


class PinnedTable:
    """A feature table in page-locked host memory, as the GPU addresses it.

    Attributes:
        rows: the table as a NumPy array, its rows ``stride`` bytes apart.
        address: where the GPU finds it.
        stride: bytes from row to row.
        how: "registered" (the given memory was page-locked where it lies) or "copied".
        tails: the last bytes of all rows, ``uint8[N, tail_bytes]`` in plain host memory, where ``rows`` lacks them and
            has bytes, ``uint8``; else None.
    """

    def __init__(
        self, rows: np.ndarray, how: str, tails: np.ndarray | None = None, locked: PinnedTable | None = None
    ) -> None:
        self.rows, self.how, self.tails, self._locked = rows, how, tails, locked
        self.stride = rows.strides[0] if len(rows) > 1 else rows.shape[1] * rows.itemsize
        if how == "registered" and locked is None:
            pinned.lock(rows, owner=self)
        self.address = pinned.device_address(rows)


_registered: weakref.WeakValueDictionary[tuple[int, int], PinnedTable] = weakref.WeakValueDictionary()


def tail_of(table: np.ndarray, how: str, longest: int) -> int:
    """Bytes at the end of each row that are better kept in device memory: what rows have over whole lines.

    A request for a few bytes costs the link about what one for a line costs. 0 where rows have no line, or where more
    than ``longest`` bytes are over, or where the table has to stay where it lies (``how`` as for :func:`pin`; "auto"
    allows a copy that half of the free memory holds).
    """
    row_bytes = table.shape[1] * table.itemsize
    rest = row_bytes % LINE_BYTES
    if row_bytes < LINE_BYTES or rest > longest or how == "register":
        return 0
    return rest if how == "copy" or table.nbytes < free_host_bytes() // 2 else 0


def pin(table: np.ndarray, how: str = "auto", pad_bytes: int = 0, tail_bytes: int = 0) -> PinnedTable:
    """Page-lock a table for reads from the GPU.

    Args:
        table: row-major NumPy array.
        how: "register" locks the memory that the table lies in (until nobody holds the result), "copy" makes a
            locked copy whose first row begins a line. "auto" copies only where rows begin lines in the copy and
            not in the table (there every row costs one request more) and half of the free memory holds it, and
            where registering fails.
        pad_bytes: pad the copy's rows to a multiple of this (0: dense). Registered tables stay as they are.
        tail_bytes: copy, and leave these bytes of each row out: :attr:`PinnedTable.tails` has them (:func:`tail_of`).

    Raises:
        MemoryError: the host refuses.
        ValueError: an unknown ``how``.
    """
    if how not in ("auto", "register", "copy"):
        raise ValueError(f"how must be 'auto', 'register' or 'copy' (got {how!r})")
    row_bytes = table.shape[1] * table.itemsize
    if tail_bytes:
        whole, lines = table.view(np.uint8), row_bytes - tail_bytes
        kept = pinned.empty(len(table) * lines).reshape(len(table), lines)
        kept[:] = whole[:, :lines]
        return PinnedTable(kept, "copied", np.ascontiguousarray(whole[:, lines:]))
    if how == "auto":
        splits = row_bytes % LINE_BYTES == 0 and table.ctypes.data % LINE_BYTES != 0
        splits = splits and table.nbytes < free_host_bytes() // 2
        if not (splits or pad_bytes or is_memory_mapped(table)):
            with contextlib.suppress(MemoryError):  # pages that another table has locked, for example
                return _register(table)
    elif how == "register":
        return _register(table)
    stride = -(-row_bytes // pad_bytes) * pad_bytes if pad_bytes else row_bytes
    memory = pinned.empty(len(table) * stride)
    rows = np.ndarray(table.shape, table.dtype, memory, strides=(stride, table.itemsize))
    rows[:] = table
    return PinnedTable(rows, "copied")


def _register(table: np.ndarray) -> PinnedTable:
    key = (table.ctypes.data, table.nbytes)
    known = _registered.get(key)
    if known is None:
        known = _registered[key] = PinnedTable(table, "registered")
    elif (known.rows.shape, known.rows.strides) != (table.shape, table.strides):
        return PinnedTable(table, "registered", locked=known)  # the same pages, in rows of another width
    return known


def copy_to_device_async(target: Any, source: np.ndarray, num_bytes: int, stream: Any) -> None:
    """Put a copy of the first ``num_bytes`` of pinned ``source`` to the CuPy array ``target`` on ``stream``."""
    import cupy

    runtime = cupy.cuda.runtime
    runtime.memcpyAsync(
        target.data.ptr, source.ctypes.data, num_bytes, runtime.memcpyHostToDevice, stream.ptr
    )


def pinned_copy_gbps(num_bytes: int = 1 << 28, repeats: int = 6) -> float:
    """Copy bandwidth from pinned host memory to this GPU, the best of ``repeats`` copies; needs CUDA.

    Extraction of missing rows is judged by its share of this.
    """
    import cupy

    source = pinned.empty(num_bytes)
    source[:] = 1
    target = cupy.empty(num_bytes, cupy.uint8)
    stream = cupy.cuda.get_current_stream()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    fastest = math.inf
    for _ in range(repeats):
        begin.record(stream)
        copy_to_device_async(target, source, num_bytes, stream)
        end.record(stream)
        end.synchronize()
        fastest = min(fastest, cupy.cuda.get_elapsed_time(begin, end))
    return num_bytes / (fastest * 1e-3) / 1e9
