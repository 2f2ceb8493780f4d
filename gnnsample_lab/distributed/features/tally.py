"""How many rows of a call lie where, and what reading them costs in sectors and lines of memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gnnsample_lab.distributed.sampling.traffic import LINE_BYTES, SECTOR_BYTES, Traffic
from gnnsample_lab.features.caching.stats import Counted, ExtractStats

from .setup import Setup


@dataclass(frozen=True, eq=False)
class Tally:
    """Rows of one call by where they lie: in the caches of the parts, then in this host's memory, then in other hosts'.

    Attributes:
        rows: rows asked for, ``int64[num_parts + 2]``.
        sectors: sectors of 32 bytes that reading them touches, ``int64[num_parts + 2]``.
        lines: lines of 128 bytes, of the rows in this host's memory.
        positions: positions read from each part's list, one sector each, ``int64[num_parts]``.
        served: sectors and lines of the rows in this host's memory that ranks of other hosts asked this one for.
    """

    rows: np.ndarray
    sectors: np.ndarray
    lines: int
    positions: np.ndarray
    served: tuple[int, int] = (0, 0)

    @property
    def misses(self) -> int:
        """Rows that no rank caches."""
        return int(self.rows[-2:].sum())


def blocks_of(rows: np.ndarray, row_bytes: int, block: int) -> np.ndarray:
    """Blocks of ``block`` bytes that each row touches in a table that begins at one, ``int64[n]``."""
    begin = rows * row_bytes
    touched: np.ndarray = (begin + row_bytes - 1) // block - begin // block + 1
    return touched


def tally(
    holders: np.ndarray, rows: np.ndarray, row_bytes: int, positions: np.ndarray, served: np.ndarray
) -> Tally:
    """Count the rows of a call.

    Args:
        holders: part that has each row; ``num_parts`` for this host's memory, ``num_parts + 1`` for another host's.
        rows: row in that part's cache, or in the host's table.
        row_bytes: of the cache.
        positions: positions read from each part, ``int64[num_parts]``.
        served: row in the host's table of each row that this rank read for other hosts, ``int64[m]``.
    """
    places = len(positions) + 2
    sectors = np.bincount(holders, blocks_of(rows, row_bytes, SECTOR_BYTES), places).astype(np.int64)
    lines = int(blocks_of(rows[holders == places - 2], row_bytes, LINE_BYTES).sum())
    sectors_served, lines_served = (
        int(blocks_of(served, row_bytes, block).sum()) for block in (SECTOR_BYTES, LINE_BYTES)
    )
    return Tally(
        np.bincount(holders, minlength=places), sectors, lines, positions, (sectors_served, lines_served)
    )


def count_reads(traffic: Traffic, found: Tally, setup: Setup) -> None:
    """Add to a call's traffic what was read without a message, and the ideal."""
    members, parts = setup.exchange.members, setup.placement.num_parts
    if setup.transport == "direct":
        traffic.read("rows", members, found.sectors[:parts])
        traffic.read("positions", members, found.positions)
    traffic.read_host_lines("rows", found.sectors[parts] + found.served[0], found.lines + found.served[1])
    traffic.ideal += int(found.rows.sum()) * setup.row_bytes
    traffic.ideal_remote += int(found.rows[:parts].sum() - found.rows[setup.me]) * setup.row_bytes


class RankStats(ExtractStats):
    """Rows, bytes, time and traffic of one extraction on one rank.

    ``hits`` are rows that some rank caches, ``misses`` those from host memory. On a GPU reading a number waits for the
    extraction, as in :class:`ExtractStats`; reading ``traffic`` does so too.
    """

    def __init__(
        self, rows: int, setup: Setup, origin: str, count: Callable[[], tuple[Tally, float, dict[str, float]]],
        traffic: Traffic, ready: Any,
    ) -> None:  # fmt: skip
        transfer = "host" if setup.layout.rank.device == "cpu" else "uva"
        self._setup, self._counting, self._messages = setup, count, traffic
        super().__init__(rows, setup.row_bytes, transfer, origin, self._as_counted, ready)

    @cached_property
    def tally(self) -> Tally:
        """Rows by where they lie."""
        return self._all[0]

    @cached_property
    def _all(self) -> tuple[Tally, float, dict[str, float]]:
        return self._counting()

    def _as_counted(self) -> Counted:
        found, time_us, stages = self._all
        return Counted(found.misses, 0, time_us, stages)

    @property
    def local(self) -> int:
        """Rows from this rank's own cache."""
        return int(self.tally.rows[self._setup.me])

    @property
    def remote(self) -> int:
        """Rows from the caches of other ranks."""
        return self.hits - self.local

    @cached_property
    def traffic(self) -> Traffic:
        """Bytes between this rank and each other, by kind, and from host memory."""
        count_reads(self._messages, self.tally, self._setup)
        return self._messages
