"""Where the rows of a batch are: what marking hands to extraction, and what one batch leaves to the next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gnnsample_lab.device import streams


@dataclass(frozen=True, eq=False)
class Marks:
    """Where the rows of one batch are, found while sampling; on a GPU nothing waits for the counts.

    Attributes:
        rows: rows of the batch.
        locations: ``int32[rows]``: slot in the cache, -1 for a row in host memory, ``-2 - p`` for row ``p`` of the
            previous batch.
        misses: positions in the batch of the rows in host memory, ``int32``; only the first ``num_misses`` hold
            one, in any order.
        missing: their vertices, global ids, in the order of ``misses``.
        counts: ``uint64[2]``: misses, rows reused from the previous batch.
        ready: an event behind the marking (:class:`~gnnsample_lab.device.streams.Ready`).
        ids: the vertices of the batch, global ids in host memory, to tell it from another; None where nobody can look
            at them without waiting for a GPU.
        token: of the vertices that the cache holds, slot by slot: ``locations`` are right in a cache of the same token
            alone. None where nobody else gets the marks.
    """

    rows: int
    locations: Any
    misses: Any
    missing: Any
    counts: Any
    ready: Any = field(default=streams.DONE, repr=False)
    ids: Any = field(default=None, repr=False)
    token: int | None = field(default=None, repr=False)

    @property
    def num_misses(self) -> int:
        """Rows in host memory; on a GPU reading it waits for the marking."""
        self.ready.order()
        return int(self.counts[0])

    @property
    def num_reused(self) -> int:
        """Rows of the previous batch; on a GPU reading it waits for the marking."""
        self.ready.order()
        return int(self.counts[1])

    @property
    def num_hits(self) -> int:
        """Rows in the cache; on a GPU reading it waits for the marking."""
        return self.rows - self.num_misses - self.num_reused


@dataclass(eq=False)
class Previous:
    """The batch before, for :class:`~.matched.MatchedFeatures`: its rows, and which vertex has which.

    ``where[v] - base`` is the row of vertex v, for values below ``rows``.
    """

    where: Any
    base: int
    rows: int
    x: Any
