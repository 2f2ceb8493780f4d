"""What a call moved between ranks: bytes by peer and kind, requests, and the least that any method must read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

KINDS = {
    "sizes": "how many entries a message will have",
    "ids": "vertices whose lists or rows are asked for, or walkers",
    "records": "where lists begin, and degrees",
    "picks": "drawn neighbours, and their places where these are sent",
    "lists": "whole lists and their weights",
    "weights": "sums of weights that are searched, and those of a layer's candidates",
    "positions": "where feature rows lie",
    "rows": "feature rows",
    "flags": "whether all may go on",
    "padding": "buffer that carries nothing",
}
"""Kinds of traffic."""
NO_NVLINK = "CPU: no NVLink"
"""Label of what a GPU would read of its peers, counted on CPU ranks."""
SECTOR_BYTES = 32
"""What a GPU reads at a time, from its own memory, a peer's or the host's."""
LINE_BYTES = 128
"""The most that one request to host memory asks for."""
HEADER_BYTES = 18
"""Header of a request on PCIe (DSP, section 1)."""
REQUEST_BYTES = 50
"""Bytes on PCIe for a sector from host memory: 32 and a header of 18 (DSP, section 1)."""


@dataclass(eq=False)
class Traffic:
    """The bytes of one rank, by peer; what stays on the rank is not counted.

    A collective's bytes are counted by its sender in :attr:`sent` and by its receiver in :attr:`received`. Reads of a
    peer's memory are counted by the reader alone, in :attr:`received`, in sectors of 32 bytes. So the volume of a batch
    is the sum of :attr:`volume` over ranks, whatever the method.

    Attributes:
        rank: whose traffic this is, an index of the world.
        hosts: host of each rank, ``int64[P]``.
        sent: by kind, bytes sent to each rank, ``int64[P]``.
        received: by kind, bytes that came from each rank, or were read from it, ``int64[P]``.
        host: by kind, bytes read from pinned host memory, headers included (``"uva"`` and cold rows, those for
            ranks of other hosts too).
        requests: messages sent to each rank that were not empty, or sectors read from it, ``int64[P]``.
        host_requests: requests to host memory: for a sector each, of rows for a line each.
        collectives: calls that all ranks make together.
        ideal: bytes of the picked ids alone, each read once from elsewhere: DSP's Ideal (figure 1), for which all lists
            are remote. A method with local lists may need less. Of features: bytes of the rows asked for.
        ideal_remote: those of them that other ranks own; of features, that other ranks cache; of walkers who go from
            owner to owner, and whose ids are counted where they are drawn, those of such that came from other ranks.
        label: what the bytes are where they are not a GPU's own, such as ``"CPU: no NVLink"``.
    """

    rank: int
    hosts: Any
    sent: dict[str, Any] = field(default_factory=dict)
    received: dict[str, Any] = field(default_factory=dict)
    host: dict[str, int] = field(default_factory=dict)
    requests: Any = None
    host_requests: int = 0
    collectives: int = 0
    ideal: int = 0
    ideal_remote: int = 0
    label: str = ""

    def __post_init__(self) -> None:
        self.hosts = np.asarray(self.hosts, dtype=np.int64)
        if self.requests is None:
            self.requests = np.zeros(self.world_size, dtype=np.int64)

    @property
    def world_size(self) -> int:
        return len(self.hosts)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was counted."""
        return not (
            self.sent
            or self.received
            or self.host
            or self.collectives
            or self.ideal
            or self.host_requests
            or self.requests.any()
        )

    # ---- counting, for engines --------------------------------------------------------------------------------

    def send(self, kind: str, peers: Any, nbytes: Any, is_message: bool = True) -> None:
        """Count messages: ``nbytes[i]`` to ``peers[i]``, ranks of the world; empty ones are no requests.

        ``is_message``: False for bytes that travel in a message that is counted already.
        """
        peers, amount = self._others(peers, nbytes)
        np.add.at(self._of(self.sent, kind), peers, amount)
        if is_message:
            np.add.at(self.requests, peers, amount > 0)

    def messages(self, peers: Any, sent: Any) -> None:
        """Count messages alone: ``sent[i]`` to ``peers[i]``."""
        peers, amount = self._others(peers, sent)
        np.add.at(self.requests, peers, amount)

    def receive(self, kind: str, peers: Any, nbytes: Any) -> None:
        """Count what messages brought: ``nbytes[i]`` from ``peers[i]``."""
        peers, amount = self._others(peers, nbytes)
        np.add.at(self._of(self.received, kind), peers, amount)

    def read(self, kind: str, peers: Any, sectors: Any) -> None:
        """Count reads of peers' memory: ``sectors[i]`` of 32 bytes from ``peers[i]``."""
        peers, amount = self._others(peers, sectors)
        np.add.at(self._of(self.received, kind), peers, amount * SECTOR_BYTES)
        np.add.at(self.requests, peers, amount)

    def read_host(self, kind: str, sectors: int) -> None:
        """Count reads of pinned host memory, in sectors, each a request of 50 bytes."""
        _known(kind)
        self.host[kind] = self.host.get(kind, 0) + int(sectors) * REQUEST_BYTES
        self.host_requests += int(sectors)

    def read_host_lines(self, kind: str, sectors: int, lines: int) -> None:
        """Count whole rows read from pinned host memory: neighbouring sectors of a line share a request."""
        _known(kind)
        self.host[kind] = self.host.get(kind, 0) + int(sectors) * SECTOR_BYTES + int(lines) * HEADER_BYTES
        self.host_requests += int(lines)

    def _others(self, peers: Any, amounts: Any) -> tuple[np.ndarray, np.ndarray]:
        ranks, values = np.broadcast_arrays(
            np.asarray(peers, dtype=np.int64), np.asarray(amounts, dtype=np.int64)
        )
        other = ranks != self.rank
        return ranks[other], values[other]

    def _of(self, table: dict[str, Any], kind: str) -> Any:
        _known(kind)
        return table.setdefault(kind, np.zeros(self.world_size, dtype=np.int64))

    # ---- reading ----------------------------------------------------------------------------------------------

    @property
    def by_peer(self) -> Any:
        """Bytes that came from each rank, of all kinds, ``int64[P]``; 0 for this rank."""
        return sum(self.received.values(), np.zeros(self.world_size, dtype=np.int64))

    @property
    def by_kind(self) -> dict[str, int]:
        """Bytes that came to this rank from its peers and from host memory, by kind."""
        kinds = [kind for kind in KINDS if kind in self.received or kind in self.host]
        return {k: int(np.sum(self.received.get(k, 0))) + self.host.get(k, 0) for k in kinds}

    @property
    def volume(self) -> int:
        """All bytes that came to this rank, from peers and from host memory."""
        return sum(self.by_kind.values())

    @property
    def within(self) -> int:
        """Bytes that came from ranks of this host."""
        return int(self.by_peer[self.hosts == self.hosts[self.rank]].sum())

    @property
    def between(self) -> int:
        """Bytes that came from other hosts."""
        return int(self.by_peer[self.hosts != self.hosts[self.rank]].sum())

    def __add__(self, other: Traffic) -> Traffic:
        """Both together, of one rank."""
        if not isinstance(other, Traffic):
            return NotImplemented
        if other.rank != self.rank or not np.array_equal(other.hosts, self.hosts):
            raise ValueError(f"traffic of rank {self.rank} and of rank {other.rank} does not add up")
        return Traffic(
            self.rank, self.hosts, _sum(self.sent, other.sent), _sum(self.received, other.received),
            _sum(self.host, other.host), self.requests + other.requests, self.host_requests + other.host_requests,
            self.collectives + other.collectives, self.ideal + other.ideal, self.ideal_remote + other.ideal_remote,
            self.label or other.label,
        )  # fmt: skip

    def __repr__(self) -> str:
        kinds = ", ".join(f"{kind} {n:,}" for kind, n in self.by_kind.items() if n)
        label = f"; {self.label}" if self.label else ""
        return f"Traffic(rank {self.rank}: {self.volume:,} bytes ({kinds or 'none'}), ideal {self.ideal:,}{label})"


def _known(kind: str) -> None:
    if kind not in KINDS:
        raise KeyError(f"no kind of traffic: {kind!r}")


def _sum(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {kind: one.get(kind, 0) + other.get(kind, 0) for kind in {**one, **other}}
