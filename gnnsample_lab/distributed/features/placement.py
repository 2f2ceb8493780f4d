"""Which feature rows lie in which rank's memory, and the position list that says so (DSP, sections 3.1 and 6)."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gnnsample_lab.features.caching.sizing import hottest_first

POSITION_BYTES = 4
"""Of a vertex in the position list."""


def rows_beside_positions(capacity_bytes: int, listed: int, num_nodes: int, row_bytes: int) -> int:
    """Rows that fit beside the positions of ``listed`` vertices."""
    return min(num_nodes, max(0, capacity_bytes - POSITION_BYTES * listed) // row_bytes)


def check_positions_fit(name: str, capacity_bytes: int, listed: int) -> None:
    """Refuse a size that is smaller than the position list, which a cache without rows needs as well.

    Raises:
        ValueError: neither 0 nor as much; the message begins with ``name``.
    """
    if 0 < capacity_bytes < (needed := POSITION_BYTES * listed):
        raise ValueError(
            f"{name} must be 0, for a cache without rows, or hold the {needed} bytes of the position list "
            f"(got {capacity_bytes})"
        )


KINDS = {
    "partitioned": "each rank caches the hottest rows of the vertices that it owns: one cache of all ranks (DSP)",
    "replicated": "each rank caches the same hottest rows: no row comes from a peer (GNNLab on several GPUs)",
}


@dataclass(frozen=True, eq=False)
class Placement:
    """Where every row lies. All ranks of a host have the same one.

    Attributes:
        kind: a name of :data:`KINDS`.
        place_of: the position list, ``int32[N]``: ``part << shift | row`` for row ``row`` of the cache of ``part``,
            and ``-1 - c`` for cold row ``c``. In a replicated cache the part is always 0 and means oneself.
        shift: bits of the row.
        cached: vertices of each part's cache, by row; ``int64``.
        cold: vertices whose rows no rank of a host caches, ``int64[C]``, by cold row.
        cold_bounds: host h keeps the cold rows ``cold_bounds[h]:cold_bounds[h+1]`` in its memory, ``int64[H+1]``.
    """

    kind: str
    place_of: np.ndarray
    shift: int
    cached: tuple[np.ndarray, ...]
    cold: np.ndarray
    cold_bounds: np.ndarray

    @property
    def num_parts(self) -> int:
        return len(self.cached)

    @cached_property
    def digest(self) -> int:
        """A checksum, by which ranks find out that their lists differ."""
        return zlib.crc32(self.place_of.tobytes()) << 16 | self.num_parts

    def holders(self, places: np.ndarray, me: int) -> np.ndarray:
        """Part whose cache has each row, for a rank of part ``me``, ``int64[n]``; ``num_parts`` for cold rows."""
        hot = me if self.kind == "replicated" else places.astype(np.int64) >> self.shift
        return np.where(places < 0, self.num_parts, hot)

    def rows(self, places: np.ndarray) -> np.ndarray:
        """Row in its cache, or cold row, ``int64[n]``."""
        wide = places.astype(np.int64)
        return np.where(wide < 0, -1 - wide, wide & ((1 << self.shift) - 1))


def place_rows(
    kind: str, hotness: Any, rows: int, partition: Any, num_hosts: int = 1, host_of_part: Any = None
) -> Placement:
    """Decide which rows each rank caches, and which host keeps each of the others.

    Args:
        kind: a name of :data:`KINDS`.
        hotness: as :func:`~gnnsample_lab.features.caching.sizing.hottest_first` takes it; None where no row or every
            row is cached.
        rows: rows of each rank's cache. A rank that owns fewer caches those.
        partition: who owns which vertex.
        num_hosts: hosts among which the cold rows are divided (DSP, section 3.2).
        host_of_part: host of each part's rank, integers ``[parts]``; None: each host has all parts, and the cold rows
            are divided evenly.

    Raises:
        ValueError: a position of 4 bytes cannot name that many rows; no hotness where one is needed.
    """
    n, parts, owner = partition.num_nodes, partition.num_parts, partition.owner
    if 0 < rows < n and hotness is None:
        raise ValueError(f"hotness must say which {rows} rows a rank caches (got None)")
    order = np.arange(n) if hotness is None else hottest_first(hotness, n)
    if kind == "replicated":
        mine = np.ascontiguousarray(order[:rows])
        cached, shift = (mine,) * parts, 31
    else:
        whose = owner[order]
        cached = tuple(np.ascontiguousarray(order[whose == p][:rows]) for p in range(parts))
        shift = 31 - (parts - 1).bit_length()
        if max(map(len, cached), default=0) > 1 << shift:
            raise ValueError(
                f"capacity_bytes must leave at most {1 << shift} rows a rank, so that a position of 4 bytes names them "
                f"(got {max(map(len, cached))})"
            )
    is_hot = np.zeros(n, dtype=bool)
    for ids in cached[: 1 if kind == "replicated" else parts]:
        is_hot[ids] = True
    by_owner = np.asarray(partition.old_of)
    cold = by_owner[~is_hot[by_owner]].astype(np.int64)
    if host_of_part is None:
        bounds = np.arange(num_hosts + 1) * len(cold) // num_hosts
    else:
        home = np.asarray(host_of_part, dtype=np.int64)[owner[cold]]
        cold = cold[np.argsort(home, kind="stable")]
        bounds = np.concatenate([[0], np.cumsum(np.bincount(home, minlength=num_hosts))])
    place_of = np.empty(n, dtype=np.int32)
    place_of[cold] = -1 - np.arange(len(cold))
    for p, ids in enumerate(cached[: 1 if kind == "replicated" else parts]):
        place_of[ids] = (p << shift) + np.arange(len(ids))
    return Placement(kind, place_of, shift, cached, cold, bounds.astype(np.int64))
