"""Each rank's memory divided between topology and feature rows, and what is then read elsewhere (DSP, figure 10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab import checks
from gnnsample_lab.distributed.parts.hot import hottest_lists, list_reads
from gnnsample_lab.distributed.parts.partition import Partition
from gnnsample_lab.distributed.sampling.traffic import (
    HEADER_BYTES,
    LINE_BYTES,
    REQUEST_BYTES,
    SECTOR_BYTES,
)

from .placement import KINDS, place_rows, rows_beside_positions

SHARES = tuple(i / 8 for i in range(9))


@dataclass(frozen=True, eq=False)
class MemorySplit:
    """One way to divide each rank's budget, and the bytes that all ranks together then read elsewhere.

    Bytes are for the visits given. Reads of lists count a sector of 32 bytes in a peer's memory and a request of 50 in
    the host's; feature rows count their bytes, and in the host's memory a header of 18 for each line.

    Attributes:
        topology_bytes, feature_bytes: of a rank's budget.
        spilled: vertices whose lists lie in host memory, their owners' memory being full, ``int64[n]``.
        copied: of each rank, vertices whose lists it copies from peers: room that its own lists leave.
        rows: feature rows that each rank caches, ``int64[K]``.
        topology_remote, topology_host, feature_remote, feature_host: bytes from peers and from host memory.
        seconds: of a rank, by the bandwidths given: lists, then rows; peers and host at the same time.
    """

    topology_bytes: int
    feature_bytes: int
    spilled: np.ndarray
    copied: tuple[np.ndarray, ...]
    rows: np.ndarray
    topology_remote: float
    topology_host: float
    feature_remote: float
    feature_host: float
    seconds: float

    @property
    def remote_bytes(self) -> float:
        return self.topology_remote + self.feature_remote

    @property
    def host_bytes(self) -> float:
        return self.topology_host + self.feature_host


def split_memory(
    budget_bytes: int, partition: Partition, degrees: Any, fanouts: Any, list_visits: Any, row_visits: Any,
    row_bytes: int, *, kind: str = "partitioned", shares: Sequence[float] = SHARES, hotness: Any = None,
    entry_bytes: int = 4, remote_gbps: float = 300.0, host_gbps: float = 50.0,
) -> list[MemorySplit]:  # fmt: skip
    """What each division of the ranks' memory between topology and features costs in reads of other memories.

    A rank's topology share takes the lists that it owns, those with most reads per byte first; the rest of them spill
    to host memory. Where all fit, the room that is left takes copies of its peers' lists. Its feature share takes the
    position list and the hottest rows. Seeds are taken to be divided among the ranks at random: each asks for a part of
    all visits. The best is ``min(splits, key=lambda s: s.seconds)``.

    Args:
        budget_bytes: of each rank, for both.
        partition: who owns which vertex.
        degrees: in-degrees, integers ``[N]``.
        fanouts: as of :func:`hottest_lists`.
        list_visits: how often each vertex was sampled from, by all ranks, as of :func:`hottest_lists`.
        row_visits: how often each row was loaded, by all ranks, numbers ``[N]``.
        row_bytes: bytes of a feature row.
        kind: of the feature cache, ``"partitioned"`` or ``"replicated"``.
        shares: shares of the budget for features, each 0 to 1.
        hotness: ranking of rows, as of :class:`FeatureCache`; None ranks by ``row_visits``.
        entry_bytes: of one neighbour, as of :func:`hottest_lists`.
        remote_gbps, host_gbps: of one rank, in GB/s: from its peers and from host memory.

    Returns:
        One for each share, in their order.

    Raises:
        TypeError, ValueError: arguments of the wrong kind, shape or range.
    """
    budget = checks.num_bytes("budget_bytes", budget_bytes)
    checks.instance("partition", partition, Partition, "a gnnsample_lab.distributed.Partition")
    checks.choice("kind", kind, KINDS)
    row_bytes = checks.num_bytes("row_bytes", row_bytes, 1)
    n, parts, owner = partition.num_nodes, partition.num_parts, np.asarray(partition.owner)
    degree = checks.host_integers("degrees", degrees).astype(np.int64, copy=False)
    if len(degree) != n:
        raise ValueError(f"degrees must have one entry per vertex, {n} (got {len(degree)})")
    loads = checks.host_array("row_visits", checks.numbers("row_visits", row_visits)).astype(np.float64)
    if loads.shape != (n,) or not (np.isfinite(loads).all() and (loads >= 0).all()):
        raise ValueError(
            f"row_visits must be {n} finite numbers, none negative (got {checks.shown(row_visits)})"
        )
    given = [checks.share("shares", s) for s in checks.items("shares", shares, "a list of numbers")]
    remote_gbps = checks.real("remote_gbps", remote_gbps, above=0)
    host_gbps = checks.real("host_gbps", host_gbps, above=0)
    # One call checks what concerns lists alone.
    hottest_lists(list_visits, degree, fanouts, 0, entry_bytes=entry_bytes)
    lists = _Lists(checks.host_array("list_visits", list_visits), degree, fanouts, entry_bytes, owner)
    reads = list_reads(list_visits, degree, fanouts)
    rate = np.array([remote_gbps, host_gbps]) * 1e9 * parts
    host_row_bytes = row_bytes + HEADER_BYTES * -(-row_bytes // LINE_BYTES)
    found = []
    for share in given:
        feature_bytes = int(budget * share)
        topology_bytes = budget - feature_bytes
        spilled, copied = lists.divide(topology_bytes, parts)
        copies = np.bincount(np.concatenate([*copied, np.empty(0, np.int64)]), minlength=n)
        is_spilled = np.zeros(n, dtype=bool)
        is_spilled[spilled] = True
        elsewhere = reads * np.where(is_spilled, parts - copies, parts - 1 - copies) / parts
        topology = np.array(
            [elsewhere[~is_spilled].sum() * SECTOR_BYTES, elsewhere[is_spilled].sum() * REQUEST_BYTES]
        )
        rows = rows_beside_positions(feature_bytes, n, n, row_bytes)
        placed = place_rows(kind, loads if hotness is None else hotness, rows, partition)
        cold = loads[placed.cold].sum()
        away = (loads.sum() - cold) * (parts - 1) / parts if kind == "partitioned" else 0.0
        feature = np.array([away * row_bytes, cold * host_row_bytes])
        seconds = (topology / rate).max() + (feature / rate).max()
        found.append(
            MemorySplit(
                topology_bytes, feature_bytes, spilled, copied, np.array([len(c) for c in placed.cached]),
                *map(float, (*topology, *feature, seconds)),
            )
        )  # fmt: skip
    return found


class _Lists:
    """Which lists fit where."""

    def __init__(
        self, visits: np.ndarray, degree: np.ndarray, fanouts: Any, entry_bytes: int, owner: np.ndarray
    ) -> None:
        self.visits, self.degree, self.fanouts = visits, degree, fanouts
        self.entry_bytes, self.owner = entry_bytes, owner

    def divide(self, budget: int, parts: int) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Vertices whose lists spill to the host, and those that each rank copies."""
        spilled, copied = [], []
        for part in range(parts):
            own = self.owner == part
            kept = self._hottest(np.where(own, self.visits, 0), budget)
            nbytes = int(self.degree[own].sum()) * self.entry_bytes
            if nbytes <= budget:
                copied.append(self._hottest(self.visits, budget - nbytes, part).ids)
                continue
            # Lists that nobody visits are taken last; wherever they are, they are never read.
            stays = np.zeros(len(own), dtype=bool)
            stays[kept.ids] = True
            spilled.append(np.flatnonzero(own & ~stays & (self.degree > 0)))
            copied.append(np.empty(0, np.int64))
        return np.concatenate([*spilled, np.empty(0, np.int64)]), tuple(copied)

    def _hottest(self, visits: np.ndarray, budget: int, part: int | None = None) -> Any:
        owner = None if part is None else self.owner
        return hottest_lists(
            visits,
            self.degree,
            self.fanouts,
            budget,
            owner=owner,
            rank=part or 0,
            entry_bytes=self.entry_bytes,
        )
