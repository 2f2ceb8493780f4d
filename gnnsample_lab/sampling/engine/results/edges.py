"""The edges that an application records by ``s.add_edge`` (NextDoor, section 4.2): room for them, and their order."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device.arrays import array_module
from gnnsample_lab.sampling.memory import check_fits

FIRST_ROOM = 32


class Recorded:
    """Edges of all samples, written by calls of ``next`` in any order.

    Attributes:
        room: edges of a sample for which there is room.
        edges: ``int64[S, room, 3]``, step and ends. counts: of all edges of each sample, ``[S]``.
    """

    def __init__(self) -> None:
        self.room = FIRST_ROOM
        self.edges: Any = None
        self.counts: Any = None

    def begin(self, xp: Any, samples: int, counter: Any) -> tuple[Any, Any]:
        """Arrays for a run of so many samples; ``counter``: dtype of the counts.

        Raises:
            MemoryError: every sample has as much room as the one that records most, and that is more than fits.
        """
        if xp is np:
            check_fits("num_samples x edges recorded by one sample", samples, self.room, 3 * 8 + 1)
        self.edges = xp.empty((samples, self.room, 3), np.int64)
        self.counts = xp.zeros(samples, counter)
        return self.edges, self.counts

    def overflowed(self) -> bool:
        """Whether a sample recorded more than there was room for, of which the next run has enough; waits."""
        most = 0 if self.counts is None or not self.counts.size else int(self.counts.max())
        if most <= self.room:
            return False
        self.room = most
        return True

    def sorted(self) -> tuple[Any, Any, Any, Any] | None:
        """Step, sample and ends of all edges, ``int64[n]`` each, in this order; None where no run recorded any."""
        if self.counts is None:
            return None
        xp = array_module(self.counts)
        here = xp.arange(self.room) < self.counts[:, None]
        sample = xp.broadcast_to(xp.arange(len(self.counts))[:, None], here.shape)[here].astype(np.int64)
        step, u, v = (self.edges[..., i][here] for i in range(3))
        order = xp.lexsort(xp.stack([v, u, sample, step]))
        return step[order], sample[order], u[order], v[order]
