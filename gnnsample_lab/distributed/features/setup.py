"""What the engines of a cache over ranks are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.distributed.sampling.exchange import Exchange
from gnnsample_lab.distributed.sampling.layout import Layout
from gnnsample_lab.distributed.sampling.traffic import Traffic

from .placement import Placement

TRANSPORTS = {
    "all-to-all": "ids go to the ranks that cache the rows, rows come back and are put in the order asked for (DSP)",
    "all-to-all-unordered": "the same without putting in order: rows as they arrive, with an index (ours)",
    "direct": "a kernel reads the rows in the memory of its peers: no collective (ours)",
}
POSITIONS = {
    "owner": "each rank has the positions of its vertices, and others ask for them first (DSP)",
    "everywhere": "each rank has all positions, 4 bytes a vertex",
}


@dataclass(eq=False)
class Setup:
    """Attributes:
    layout: parts and ranks.
    placement: where rows lie.
    transport, positions: names of :data:`TRANSPORTS` and :data:`POSITIONS`.
    num_features, dtype: of the rows.
    exchange: collectives among the ranks that hold the parts, on a group of this cache's own.
    world: collectives among all ranks, for cold rows of other hosts.
    knobs: launch shapes, for GPUs.
    """

    layout: Layout
    placement: Placement
    transport: str
    positions: str
    num_features: int
    dtype: np.dtype[Any]
    exchange: Exchange
    world: Exchange
    knobs: Any = None

    @property
    def row_bytes(self) -> int:
        return self.num_features * self.dtype.itemsize

    @property
    def me(self) -> int:
        """This rank's part."""
        return int(self.layout.part.rank)

    @property
    def host(self) -> int:
        """This rank's host, by its place among the hosts."""
        hosts = self.layout.hosts
        return int(np.searchsorted(np.unique(hosts), hosts[self.layout.rank.index]))

    @property
    def num_hosts(self) -> int:
        return len(self.placement.cold_bounds) - 1

    @property
    def asks_hosts(self) -> bool:
        """Whether cold rows may lie on another host."""
        return self.num_hosts > 1 and len(self.placement.cold) > 0

    @property
    def partners(self) -> np.ndarray:
        """Of each host, the rank that answers this one's requests for cold rows, ``int64[H]``."""
        hosts, rank = self.layout.hosts, self.layout.rank.index
        of_host = [np.flatnonzero(hosts == h) for h in np.unique(hosts)]
        mine = int(np.searchsorted(of_host[self.host], rank))
        return np.array([members[mine % len(members)] for members in of_host])

    def begin(self) -> Traffic:
        """A new count, which the collectives of a call go to."""
        traffic = self.exchange.new_traffic()
        self.exchange.traffic = self.world.traffic = traffic
        return traffic
