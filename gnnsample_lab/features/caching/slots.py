"""Which rows a cache holds, and where: one bit a vertex, and beside each 32 of them how many cached ones come before.

The cache keeps its rows in the order of their ids, so that the row of a vertex is the number of cached vertices below
it. That takes a quarter of a byte a vertex, and one read of 8 bytes (``slots.cuh``). A table with the row of each
vertex takes 4 bytes a vertex, for one read as well; a hash table of the cached vertices alone, as GNNLab has (section
6.1), is smaller where less than about 1 in 64 is cached, and takes more reads where keys collide.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# Numba infers the types of its functions; annotations would only repeat the docstrings.
from __future__ import annotations

import numpy as np

from gnnsample_lab.device.jit import njit

WORD_BITS, WORD_BYTES = 32, 8
NONE = np.empty((0, 2), np.uint32)
"""Stands for no table: all vertices are cached, or none is."""


def table_bytes(num_nodes: int) -> int:
    """Bytes of the table of a graph with that many vertices."""
    return WORD_BYTES * -(-num_nodes // WORD_BITS)


def slot_table(cached_ids: np.ndarray, num_nodes: int) -> np.ndarray:
    """Of each 32 vertices their bits, and how many cached ones lie below them: ``uint32[ceil(N / 32), 2]``.

    Args:
        cached_ids: global ids in ascending order, each once.
        num_nodes: N.
    """
    words = -(-num_nodes // WORD_BITS)
    is_cached = np.zeros(words * WORD_BITS, bool)
    is_cached[cached_ids] = True
    table = np.empty((words, 2), np.uint32)
    table[:, 0] = np.packbits(is_cached, bitorder="little").view("<u4")
    table[:, 1] = np.searchsorted(cached_ids, np.arange(words) * WORD_BITS)
    return table


def first_missing(cached_ids: np.ndarray) -> int:
    """The lowest id that is not among ``cached_ids``, which ascend."""
    gaps = np.flatnonzero(cached_ids != np.arange(len(cached_ids)))
    return int(gaps[0]) if gaps.size else len(cached_ids)


@njit(cache=True)
def slot_of(table, v):
    """Row of vertex ``v`` in the cache, -1 if it is not there; as ``slots.cuh``."""
    word, bit = np.int64(table[v // WORD_BITS, 0]), np.int64(1) << np.int64(v % WORD_BITS)
    if not word & bit:
        return np.int32(-1)
    ones = word & (bit - 1)  # counted two bits, four, then eight at a time
    ones -= (ones >> 1) & 0x55555555
    ones = (ones & 0x33333333) + ((ones >> 2) & 0x33333333)
    ones = (ones + (ones >> 4)) & 0x0F0F0F0F
    return np.int32(table[v // WORD_BITS, 1] + ((ones * 0x01010101 & 0xFFFFFFFF) >> 24))
