"""Graphs whose lists lie in several memories, as the sampling kernels see them (``hops/lists.cuh``).

A packed record has 8 bytes: where a vertex's list begins, counted in entries, in the upper 46 bits and its degree in
the lower 18. A row that does not fit (a degree from 2**18 - 1 on, a start from 2**46 on) has all degree bits set, and
its start is the index of two words behind the records: start and degree in 64 bits each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gnnsample_lab.device.arrays import array_module
from gnnsample_lab.sampling.weights import IntegerWeights

DEGREE_BITS = 18
WIDE = (1 << DEGREE_BITS) - 1
"""Degree field of a row that does not fit."""
START_LIMIT = 1 << (64 - DEGREE_BITS)
LOCAL_RECORDS, OWNERS_RECORDS = 1, 2
"""Values of the macro ``LISTS``."""
_TABLE_WORDS, _PLACE_WORDS = 4, 4


def pack_records(starts: Any, degrees: Any) -> Any:
    """Packed records, and behind them two words for each row that does not fit.

    Args:
        starts: first entries of lists, integers ``[n]`` below 2**63.
        degrees: integers ``[n]`` below 2**31.

    Returns:
        ``uint64[n + 2 h]`` for h rows that do not fit, in the library of ``starts``.
    """
    xp = array_module(starts)
    starts, degrees = starts.astype(np.uint64), degrees.astype(np.uint64)
    wide = xp.flatnonzero((degrees >= WIDE) | (starts >= START_LIMIT))
    n, extra = len(starts), len(wide)
    packed = xp.empty(n + 2 * extra, dtype=np.uint64)
    packed[:n] = (starts << np.uint64(DEGREE_BITS)) | degrees
    packed[n::2], packed[n + 1 :: 2] = starts[wide], degrees[wide]
    at = n + 2 * xp.arange(extra, dtype=np.uint64)
    packed[wide] = (at << np.uint64(DEGREE_BITS)) | np.uint64(WIDE)
    return packed


def unpack_records(packed: Any, n: int) -> tuple[Any, Any]:
    """Starts and degrees of :func:`pack_records`, as kernels read them: two ``int64[n]``."""
    records = packed[:n]
    starts = (records >> np.uint64(DEGREE_BITS)).astype(np.int64)
    degrees = (records & np.uint64(WIDE)).astype(np.int64)
    wide = degrees == WIDE
    at = starts[wide]
    starts[wide], degrees[wide] = packed[at].astype(np.int64), packed[at + 1].astype(np.int64)
    return starts, degrees


class Place(NamedTuple):
    """Where a part's arrays lie: addresses that this process's kernels can read.

    Attributes:
        indices: of its lists, a multiple of an entry's bytes.
        prefix: of its prefix sums, 0 without weights.
        records: of packed records of its vertices, whose starts count from ``indices``; 0 where nobody reads them.
        available: of its vertices' in-edges of positive weight; likewise.
    """

    indices: int
    prefix: int = 0
    records: int = 0
    available: int = 0


def places_table(where: Any, place_bits: int, places: Sequence[Place], id_bytes: int) -> np.ndarray:
    """What the kernels' ``ListsTable`` holds, ``uint64``.

    Args:
        where: CuPy, ``uint32[N]`` or ``uint64[N]``: ``row << place_bits | place`` of each vertex.
        place_bits: bits of a place.
        places: of all parts.
        id_bytes: of an entry.
    """
    words = np.zeros(_TABLE_WORDS + _PLACE_WORDS * len(places), dtype=np.uint64)
    words[:3] = np.array((where.data.ptr, place_bits, where.dtype.itemsize == 8), dtype=np.uint64)
    for i, place in enumerate(places):
        entries = place.indices // id_bytes
        # The kernel adds 8 bytes an entry from address 0; the difference may wrap around, and wraps back there.
        prefix = (place.prefix - 8 * entries) % 2**64
        at = _TABLE_WORDS + _PLACE_WORDS * i
        row = (place.records, entries, prefix, place.available)
        words[at : at + _PLACE_WORDS] = np.array(row, dtype=np.uint64)
    return words


def where_rows(owner: np.ndarray, rows: np.ndarray, num_places: int) -> tuple[np.ndarray, int]:
    """Place and row of each vertex in one integer, and the bits of the place: ``uint32[N]``, uint64 where it must be.

    Args:
        owner: place of each vertex, integers ``[N]``.
        rows: row of each vertex there, integers ``[N]``.
        num_places: how many places there are.
    """
    bits = max(0, num_places - 1).bit_length()
    most = int(rows.max()) if len(rows) else 0
    dtype: Any = np.uint32 if most << bits < 2**32 - 2**bits else np.uint64
    where: np.ndarray = (rows.astype(dtype) << dtype(bits)) | owner.astype(dtype)
    return where, bits


@dataclass(frozen=True, eq=False)
class _Data:
    ptr: int = 0


@dataclass(frozen=True, eq=False)
class _Entries:
    """``indices`` of a :class:`ListsGraph`: starts count from address 0."""

    dtype: np.dtype
    data: _Data = field(default_factory=_Data)


@dataclass(frozen=True, eq=False, repr=False)
class ListsGraph:
    """Stands for a graph in :class:`~gnnsample_lab.minibatch.gpu.run.GpuEngine`; positions of its samples are slots.

    Attributes:
        num_nodes, num_edges, max_in_degree: of the whole graph.
        id_dtype: of an entry of the lists.
        lists: :data:`LOCAL_RECORDS` or :data:`OWNERS_RECORDS`, the macro of the kernels.
        indptr: what the kernels look rows up in: records, or the table of places; CuPy ``uint64``.
        weights: for weighted rules: under ``LOCAL_RECORDS`` the address of each vertex's prefix sums, ``uint64[N]``,
            and its in-edges of positive weight, ``int32[N]``; else whatever is not None, as the table has both.
        keep: what must live as long as the graph.
    """

    num_nodes: int
    num_edges: int
    max_in_degree: int
    id_dtype: np.dtype
    lists: int
    indptr: Any
    weights: IntegerWeights | None = None
    keep: tuple[Any, ...] = ()
    indices: _Entries = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", _Entries(np.dtype(self.id_dtype)))

    def __repr__(self) -> str:
        return f"ListsGraph({self.num_nodes:,} vertices, {self.num_edges:,} edges)"
