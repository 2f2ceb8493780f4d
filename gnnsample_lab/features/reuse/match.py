"""Match: how much mini-batches have in common, and what the next one need not load again (FastGL, section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.checks import integers, is_cuda_array, items
from gnnsample_lab.device.arrays import array_module
from gnnsample_lab.device.runtime import num_sms
from gnnsample_lab.features.caching import gather
from gnnsample_lab.sampling.neighbors.sizes import power_of_two

_BITMAP_BYTES = 256 << 20
"""Scratch for the bitmaps of all batches; wider graphs are counted in ranges of vertices."""
_BYTES_PER_ID = 512
"""Of bitmaps that do not fit in that scratch: where they have more, ids lie far apart and are numbered anew first."""


@dataclass(frozen=True, eq=False)
class MatchPlan:
    """What batch ``ids`` takes over from batch ``prev_ids``, and what it has to load. NumPy or CuPy arrays.

    Attributes:
        reuse: ``int64[2, k]``: positions in ``prev_ids`` (of a repeated id: its first), and in ``ids``, ascending
            in the second.
        load: vertices to fetch, global ids in the type of ``ids``.
        load_positions: their positions in ``ids``, ``int64``, ascending.
    """

    reuse: Any
    load: Any
    load_positions: Any

    @property
    def num_reused(self) -> int:
        return int(self.reuse.shape[1])

    @property
    def num_loaded(self) -> int:
        return int(self.load.size)


def match(prev_ids: Any, ids: Any) -> MatchPlan:
    """Which rows of a batch lie in the previous batch, and which vertices remain to be fetched.

    Args:
        prev_ids, ids: vertices of two batches, global ids: NumPy, lists, or (either of them) on the GPU, where the
            plan then lies too. Mini-batches are taken by their ``node_ids``. Either may be empty.

    Raises:
        TypeError, ValueError: not integers, or not one-dimensional; the message names the argument.
    """
    prev, now = _ids_of(prev_ids, "prev_ids"), _ids_of(ids, "ids")
    if is_cuda_array(prev) or is_cuda_array(now):
        return _match_gpu(gather.device_ids(prev, "prev_ids"), gather.device_ids(now, "ids"))
    if prev.dtype != now.dtype:  # NumPy would compare int64 with uint64 as floats
        prev, now = prev.astype(np.uint64), now.astype(np.uint64)
    order = np.argsort(prev, kind="stable")
    at = np.searchsorted(prev, now, sorter=order)
    found = np.full(now.size, -1, np.int64)
    if prev.size:
        candidates = order[np.minimum(at, prev.size - 1)]
        found = np.where(prev[candidates] == now, candidates, found)
    reused, loaded = np.flatnonzero(found >= 0), np.flatnonzero(found < 0)
    return MatchPlan(np.stack([found[reused], reused]), now[loaded], loaded)


def _match_gpu(prev: Any, ids: Any) -> MatchPlan:
    import cupy

    if prev.dtype != ids.dtype:
        prev, ids = prev.astype(np.int64), ids.astype(np.int64)
    n, m = int(ids.size), int(prev.size)
    if n == 0 or m == 0:
        empty = cupy.empty((2, 0), np.int64)
        return MatchPlan(empty, ids.copy(), cupy.arange(n, dtype=np.int64))
    slots = power_of_two(2 * m, 64)
    keys, rows = cupy.empty(slots, np.uint64), cupy.empty(slots, np.uint32)
    keys.data.memset_async(0, keys.nbytes)
    rows.data.memset_async(0xFF, rows.nbytes)
    found = cupy.empty(n, np.int64)
    table = (keys, rows, np.uint64(slots))
    gather.match_kernel("insert", ids)(gather.blocks_for(m), (256,), (prev, np.uint64(m), *table))
    gather.match_kernel("find", ids)(gather.blocks_for(n), (256,), (ids, np.uint64(n), *table, found))
    before = cupy.cumsum((found >= 0).astype(np.int64))
    k = int(before[-1])  # the one wait for the device: array sizes
    reuse = cupy.empty((2, k), np.int64)
    load, positions = cupy.empty(n - k, ids.dtype), cupy.empty(n - k, np.int64)
    args = (ids, np.uint64(n), found, before, np.int64(k), reuse, load, positions)
    gather.match_kernel("plan", ids)(gather.blocks_for(n), (256,), args)
    return MatchPlan(reuse, load, positions)


def overlaps(batches: Sequence[Any]) -> np.ndarray:
    """``int64[n, n]`` (NumPy): vertices that batches i and j share; the diagonal holds their distinct vertices.

    Args:
        batches: mini-batches, or arrays of global ids (duplicates count once); on the GPU if one of them is there.

    Raises:
        ValueError: no batches, or a negative id.
        TypeError: a batch that is no list of integers.
    """
    ids = [_ids_of(batch, "batches") for batch in items("batches", batches, "a list of batches")]
    if not ids:
        raise ValueError("batches must name at least one batch (got none)")
    if any(is_cuda_array(a) for a in ids):
        return _overlaps_gpu([gather.device_ids(a) for a in ids])
    highest = max((int(a.max()) for a in ids if a.size), default=-1)
    if any(a.size and int(a.min()) < 0 for a in ids):
        raise ValueError("batches must hold vertex ids (got a negative one)")
    n = len(ids)
    span = max(
        64, min(highest + 64, _BITMAP_BYTES // n) // 64 * 64
    )  # vertices at a time, a byte each at first
    if _far_apart(ids, highest, n * highest):
        return overlaps(_numbered(ids))
    shared = np.zeros((n, n), np.int64)
    flags = np.empty((n, span), np.bool_)
    for low in range(0, highest + 1, span):
        flags[:] = False
        for row, a in zip(flags, ids):
            inside = a if highest < span else a[(a >= low) & (a < low + span)]
            row[inside.astype(np.int64, copy=False) - low] = True
        bits = np.packbits(flags, axis=1).view(np.uint64)
        for i in range(n):
            shared[i, i:] += np.bitwise_count(bits[i] & bits[i:]).sum(axis=1, dtype=np.int64)
    return np.triu(shared) + np.triu(shared, 1).T


def _far_apart(ids: list[Any], highest: int, bitmap_bytes: int) -> bool:
    total = sum(int(a.size) for a in ids)
    return highest > total and bitmap_bytes > max(_BITMAP_BYTES, _BYTES_PER_ID * total)


def _numbered(ids: list[Any]) -> list[Any]:
    """The batches, each id replaced by its place among all that occur: as many are shared, and none lie apart."""
    xp = array_module(ids[0])
    # Beside other types NumPy makes floats of these.
    merged = xp.concatenate([a.astype(np.uint64, copy=False) for a in ids])
    _, places = xp.unique(merged, return_inverse=True)
    ends = np.cumsum([a.size for a in ids]).tolist()
    return [places[end - a.size : end] for a, end in zip(ids, ends)]


def _overlaps_gpu(ids: list[Any]) -> np.ndarray:
    import cupy

    if len({a.dtype for a in ids}) > 1:
        ids = [a.astype(np.int64) for a in ids]
    n = len(ids)
    highest = -1
    if any(a.size for a in ids):
        # As numbers without a sign negative ids are the highest.
        highest = int(cupy.stack([a.view(f"u{a.itemsize}").max() for a in ids if a.size]).max())
        if highest > np.iinfo(ids[0].dtype).max:
            raise ValueError("batches must hold vertex ids (got a negative one)")
    words = min(-(-(highest + 1) // 32), max(1, _BITMAP_BYTES // (4 * n)))
    if _far_apart(ids, highest, n * highest // 8):
        return _overlaps_gpu(_numbered(ids))
    bits = cupy.empty((n, words), np.uint32)
    shared = cupy.zeros((n, n), np.uint64)
    set_bits, count = (gather.match_kernel(name, ids[0]) for name in ("set_bits", "count_shared"))
    side = -(-n // 16)
    slices = max(1, min(-(-words // 128), 8 * num_sms() // (side * side)))
    for low in range(0, highest + 1, max(1, words * 32)):
        bits.data.memset_async(0, bits.nbytes)
        for row, a in zip(bits, ids):
            if a.size:
                args = (a, np.uint64(a.size), np.int64(low), np.uint64(words), row)
                set_bits(gather.blocks_for(int(a.size)), (256,), args)
        count((side, side, slices), (256,), (bits, np.uint64(words), np.int32(n), shared))
    upper = np.triu(shared.get().astype(np.int64))
    return upper + np.triu(upper, 1).T


def match_degrees(batches: Sequence[Any]) -> np.ndarray:
    """``float64[n, n]`` (NumPy): ``N_o / min(N_i, N_j)`` of FastGL's section 4.1; symmetric, the diagonal 1.

    N_o counts the vertices that two batches share, N_i the distinct vertices of batch i.

    Args:
        batches: mini-batches, or arrays of global ids; counted on the GPU if one of them is there.

    Raises:
        ValueError: no batches, or one without vertices, for which the degree is not defined.
    """
    shared = overlaps(batches)
    sizes = np.diag(shared)
    if not sizes.all():
        raise ValueError(f"batches must have vertices (got batch {int(np.argmin(sizes > 0))} without any)")
    return shared / np.minimum(sizes[:, None], sizes[None, :])


def _ids_of(batch: Any, name: str) -> Any:
    return integers(name, getattr(batch, "node_ids", batch))
