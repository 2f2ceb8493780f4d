"""What one extraction moved. On a GPU the numbers stay there until somebody reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gnnsample_lab.device import streams

TRANSFERS = ("staged", "uva", "disk")
"""Ways for a missing row to reach the GPU; "host" (CPU runs) and "device" (whole table there) are reported only."""


@dataclass(frozen=True)
class Counted:
    """The numbers behind :class:`ExtractStats`, once they are known."""

    misses: int
    reused: int = 0
    time_us: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    picks: int = 0


class ExtractStats:
    """Rows, bytes and time of one :meth:`FeatureCache.extract`.

    Reading a count or a time of a GPU extraction waits until the extraction is complete; nothing else waits.

    Attributes:
        rows: rows asked for.
        row_bytes: bytes of a row.
        transfer: how missing rows came: "staged", "uva", "disk", "host" (a copy within host memory: the CPU run),
            or "device" (the whole table is there).
        origin: "measured on <device>".
        host_row_bytes: bytes of a missing row that lie in host memory: all of them, unless device memory keeps tails
            (:class:`~.gather.ExtractKnobs`).
        ready: an event behind the extraction (:class:`~gnnsample_lab.device.streams.Ready`): what a stream that was
            not current in the call waits for before it reads the rows.
    """

    def __init__(
        self, rows: int, row_bytes: int, transfer: str, origin: str, count: Counted | Callable[[], Counted],
        ready: Any = streams.DONE, host_row_bytes: int | None = None,
    ) -> None:  # fmt: skip
        self.ready = ready
        self.host_row_bytes = row_bytes if host_row_bytes is None else host_row_bytes
        self.rows, self.row_bytes, self.transfer, self.origin = rows, row_bytes, transfer, origin
        self._count = count

    @cached_property
    def _counted(self) -> Counted:
        counted = self._count() if callable(self._count) else self._count
        self._count = counted  # lets go of the device's counters and events
        return counted

    @property
    def misses(self) -> int:
        """Rows that had to come from the host table."""
        return self._counted.misses

    @property
    def reused(self) -> int:
        """Rows taken over from the previous batch (:class:`MatchedFeatures`)."""
        return self._counted.reused

    @property
    def picks(self) -> int:
        """Rows that were added up as they were read and written nowhere (:class:`~gnnsample_lab.FusedSampler`), besides
        :attr:`rows`; hits and misses are of both."""
        return self._counted.picks

    @property
    def hits(self) -> int:
        """Rows found in the cache."""
        return self.rows + self.picks - self.misses - self.reused

    @property
    def hit_rate(self) -> float:
        """Share of the rows that the cache was asked for and had; 1 where it was asked for none."""
        asked = self.rows + self.picks - self.reused
        return self.hits / asked if asked else 1.0

    @property
    def bytes_moved(self) -> int:
        """Bytes of feature rows requested from the host table (in CPU runs: that a GPU would have requested)."""
        return self.misses * self.host_row_bytes

    @property
    def bytes_hit(self) -> int:
        """Bytes of the rows that came from the cache."""
        return self.hits * self.row_bytes

    @property
    def bytes_reused(self) -> int:
        """Bytes of the rows that came from the previous batch."""
        return self.reused * self.row_bytes

    @property
    def time_us(self) -> float:
        """From the extraction's first kernel (on the CPU: its call) to its end."""
        return self._counted.time_us

    @property
    def stages(self) -> dict[str, float]:
        """Microseconds by stage; stages of a staged transfer overlap, so they may add up to more than ``time_us``."""
        return self._counted.stages

    def __repr__(self) -> str:
        return (
            f"ExtractStats(rows={self.rows}, hits={self.hits}, misses={self.misses}, reused={self.reused}, "
            f"bytes_moved={self.bytes_moved}, bytes_hit={self.bytes_hit}, time_us={self.time_us:.1f}, "
            f"transfer={self.transfer!r}, origin={self.origin!r})"
        )
