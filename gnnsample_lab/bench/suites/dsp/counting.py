"""Bytes that methods move for a mini-batch, counted from the sample itself, for any number of ranks.

A rank's slice is sampled from the whole graph, which gives the picks that every method gives. From those, a partition
and where lists begin in their parts follow all messages and reads, as :class:`~gnnsample_lab.distributed.Traffic`
counts them on ranks that are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.device.arrays import offsets_of
from gnnsample_lab.distributed.sampling.sectors import list_sectors, weight_sectors
from gnnsample_lab.distributed.sampling.traffic import REQUEST_BYTES, SECTOR_BYTES

METHODS = ("pull", "uva", "csp", "direct")
SIZE_BYTES = 8
"""Of the number of entries that a message will have."""
HEAD_BYTES = 4
"""Of what an owner tells of a list: its length, or how many picks follow."""


@dataclass(frozen=True)
class Lists:
    """Who has which list, and where.

    Attributes:
        owner: rank of each vertex, integers ``[N]``.
        records: beginnings in the owner's entries and degrees, ``[N, 2]`` (``vertex_records``).
        ranks: how many.
        id_bytes: of a vertex.
    """

    owner: Any
    records: Any
    ranks: int
    id_bytes: int


def counted(
    lists: Lists, rank: int, picks: Iterable[Any], fanouts: Any, weighted: bool = False, replace: bool = False
) -> dict[str, int]:
    """Bytes that reach ``rank`` for its slice, by method, and what its requests have other ranks receive.

    Args:
        lists: the partition.
        rank: whose slice it is.
        picks: of its hops, in host memory; positions are slots.
        fanouts: of the hops.
        weighted, replace: as drawn. Weights travel with lists in 4 bytes, sums of weights are read in 8.

    Returns:
        Method -> bytes, of :data:`METHODS` and ``"ideal"`` (ids of the picks alone, all lists elsewhere). The ids that
        owners get of this rank count here, so that sums over ranks are the volume of a mini-batch.
    """
    id_bytes = lists.id_bytes
    found = dict.fromkeys((*METHODS, "ideal"), 0)
    for fanout, hop in zip(fanouts, picks, strict=True):
        frontier, counts = hop.frontier, hop.counts.astype(np.int64)
        owner, (begins, degrees) = lists.owner[frontier], lists.records[frontier].astype(np.int64).T
        remote = owner != rank
        asked = int(remote.sum())
        away = int(counts[remote].sum())
        found["ideal"] += int(counts.sum()) * id_bytes
        sizes = SIZE_BYTES * (lists.ranks - 1)
        request = sizes + asked * (id_bytes + HEAD_BYTES)
        # A weighted draw needs the weights, which the owner alone has: picks then come with their slots.
        found["csp"] += request + away * (id_bytes + 4 * weighted)
        found["pull"] += request + int(degrees[remote].sum()) * (id_bytes + 4 * weighted)
        everything = _sectors(hop, begins, degrees, counts, slice(None), fanout, id_bytes, weighted, replace)
        found["uva"] += everything * REQUEST_BYTES
        elsewhere = _sectors(hop, begins, degrees, counts, remote, fanout, id_bytes, weighted, replace)
        found["direct"] += elsewhere * SECTOR_BYTES
    return found


def _sectors(
    hop: Any, begins: Any, degrees: Any, counts: Any, rows: Any, fanout: int, id_bytes: int, weighted: bool,
    replace: bool,
) -> int:  # fmt: skip
    """Sectors of 32 bytes that draws of ``rows`` read: a record each (two with weights), entries, sums of weights."""
    chosen = np.zeros(counts.size, dtype=bool)
    chosen[rows] = True
    begins, degrees, counts, taken = (
        begins[chosen],
        degrees[chosen],
        counts[chosen],
        np.repeat(chosen, counts),
    )
    offsets = offsets_of(counts)
    positions = hop.positions[taken] + np.repeat(begins, counts)
    found = int(list_sectors(offsets, positions, id_bytes)) + begins.size * (1 + weighted)
    if weighted:
        found += int(weight_sectors(offsets, positions, begins, degrees, fanout, replace))
    return found


def with_slots(picks: Iterable[Any], indptr: Any) -> list[Any]:
    """Hops of a whole graph's sample with slots for positions, in host memory."""
    from dataclasses import replace

    return [
        replace(hop, positions=hop.positions - np.repeat(indptr[hop.frontier], hop.counts)) for hop in picks
    ]
