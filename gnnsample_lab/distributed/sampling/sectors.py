# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""How many sectors of 32 bytes a GPU reads to draw from lists that lie elsewhere.

One warp draws a row, and its cache keeps what the row has read: a sector counts once a row. Arrays begin at a sector.
A uniform draw reads the picked entries alone. A weighted draw finds each pick by bisection in the list's prefix sums;
which sums that reads follows from where it ends. Of a list of 2**18 - 1 entries or more a kernel reads two words more
beside its record, which nobody counts: there are few such lists, and a cache holds their words.

Of walks a row is a step of a walk; of layers it is a look at what a list weighs, and a draw of a slot, those that are
drawn once more among them. Each reads the record of one list, which is a sector: neither asks how many edges have
weight, and the compiler leaves that load out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device.arrays import offsets_of
from gnnsample_lab.device.jit import njit
from gnnsample_lab.sampling.neighbors.spec import SampleSpec

from .traffic import SECTOR_BYTES, Traffic

_SECTOR = SECTOR_BYTES
_SUM = 8
"""Bytes of a prefix sum."""
_MOST_PROBES = 65
"""Of a bisection: a list's first sum, and one a bit of its length."""
_RECORDS = {"direct": (1, 2), "uva": (1, 3)}
"""Sectors of a row's record where it does not lie on the GPU, uniform and weighted. The record of 8 bytes says where
the list begins, and its degree. Weighted rules also read how many in-edges have positive weight and, by ``"uva"``,
where the prefix sums begin: there each vertex has an address of its own."""


def count_reads(
    traffic: Traffic, peer: Any, method: str, spec: SampleSpec, hop: int, entry_bytes: int, begins: np.ndarray,
    degrees: np.ndarray, counts: np.ndarray, slots: np.ndarray, in_host: bool,
) -> None:  # fmt: skip
    """Count what one hop's kernel reads of rows that lie with one peer, or in host memory.

    Args:
        traffic: of the reader.
        peer: whose memory, a rank of the world.
        method: ``"direct"``, ``"direct-cached"`` or ``"uva"``.
        spec: settings of the draw.
        hop: from 0.
        entry_bytes: of an entry of the lists.
        begins, degrees: where rows' lists begin among the peer's, and their lengths, ``int64[n]``.
        counts: picks of each row, ``int32[n]``.
        slots: places of the picks in their lists, ``int64[sum(counts)]``.
        in_host: whether these lists lie in host memory, as all do by ``"uva"``.
    """
    offsets = offsets_of(counts)
    positions = slots + np.repeat(begins, counts)
    sectors = {"lists": list_sectors(offsets, positions, entry_bytes)}
    if method in _RECORDS:
        sectors["records"] = counts.size * _RECORDS[method][spec.weighted]
    if spec.weighted:
        fanout = spec.fanouts[hop]
        sectors["weights"] = weight_sectors(offsets, positions, begins, degrees, fanout, spec.replace)
    for kind, n in sectors.items():
        if in_host:
            traffic.read_host(kind, n)
        else:
            traffic.read(kind, peer, n)


@njit(cache=True)
def list_sectors(offsets, positions, entry_bytes):
    """Sectors of the picked entries, each counted once a row.

    Args:
        offsets: where each row's picks begin, ``int64[n + 1]``.
        positions: entries read, indices into the array of lists, ``int64[m]``.
        entry_bytes: of an entry.
    """
    found = 0
    for i in range(offsets.size - 1):
        found += sectors_of(positions[offsets[i] : offsets[i + 1]], entry_bytes)
    return found


@njit(cache=True)
def sectors_of(entries, entry_bytes):
    """How many sectors hold these entries of an array, ``int64[n]``, of ``entry_bytes`` each."""
    found, row = 0, entries * entry_bytes // _SECTOR
    row.sort()
    for j in range(row.size):
        if j == 0 or row[j] != row[j - 1]:
            found += 1
    return found


@njit(cache=True)
def weight_sectors(offsets, positions, starts, degrees, fanout, replace):
    """Sectors of the prefix sums, ``uint64``, that weighted draws read, each counted once a row.

    Args:
        offsets, positions: picks, as for :func:`list_sectors`.
        starts, degrees: where rows' lists begin, and their lengths, ``int64[n]``.
        fanout: draws of a row, -1 for all.
        replace: whether with replacement.
    """
    found = 0
    for i in range(offsets.size - 1):
        picks = positions[offsets[i] : offsets[i + 1]]
        start, degree = starts[i], degrees[i]
        if picks.size == 0:
            continue
        if not replace and (fanout < 0 or picks.size < fanout or picks.size == degree):
            # All are taken that have weight: every sum is looked at.
            found += (start + degree) * _SUM // _SECTOR - start * _SUM // _SECTOR + 1
            continue
        probes = np.empty(2 + picks.size * (_MOST_PROBES + 1), np.int64)
        probes[0], probes[1], n = start, start + degree, 2
        for p in picks:
            n = bisected(start, degree, p - start, probes, n)
            if not replace:  # what was taken is stepped over
                probes[n], probes[n + 1] = p, p + 1
                n += 2
        found += sectors_of(probes[:n], _SUM)
    return found


@njit(cache=True)
def total_sectors(starts, degrees):
    """Sectors of the prefix sums that say what lists weigh: each one's first and last; none of an empty list.

    Args:
        starts, degrees: where lists begin, and their lengths, ``int64[n]``.
    """
    found = 0
    for i in range(starts.size):
        if degrees[i]:
            found += 1 + (starts[i] * _SUM // _SECTOR != (starts[i] + degrees[i]) * _SUM // _SECTOR)
    return found


@njit(cache=True)
def search_sectors(starts, degrees, picks):
    """Sectors of the prefix sums that bisections read which end at ``picks``, and of each list's first sum.

    Args:
        starts, degrees: where lists begin, and their lengths, ``int64[n]``.
        picks: places in the lists, ``int64[n]``.
    """
    found, probes = 0, np.empty(_MOST_PROBES, np.int64)
    for i in range(starts.size):
        probes[0] = starts[i]
        n = bisected(starts[i], degrees[i], picks[i], probes, 1)
        found += sectors_of(probes[:n], _SUM)
    return found


@njit(cache=True)
def bisected(start, degree, pick, probes, n):
    """Writes the sums that a bisection to ``pick`` looks at into ``probes`` from ``n`` on; where they end then."""
    low, high = np.int64(0), degree
    while high - low > 1:
        mid = (low + high) >> 1
        probes[n] = start + mid
        n += 1
        if mid <= pick:
            low = mid
        else:
            high = mid
    return n
