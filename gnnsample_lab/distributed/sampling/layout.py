"""Who holds what: the parts of a graph among ranks, within one host or on each of several."""

from __future__ import annotations

import copy
import os
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab import checks
from gnnsample_lab.device.arrays import equal_bounds
from gnnsample_lab.distributed.parts.part import HASHED, Part
from gnnsample_lab.distributed.parts.partition import Partition
from gnnsample_lab.distributed.parts.storage import open_part, open_partition, open_records, save_parts
from gnnsample_lab.distributed.ranks.rank import Rank
from gnnsample_lab.graph.graph import Graph

from .exchange import Exchange

_UNKNOWN = -(2**62)
"""Below all checksums, of either sign."""


class Layout:
    """This rank's part, and the ways to the others'.

    Attributes:
        rank: the rank.
        part: its part.
        partition: who owns which vertex.
        folder: where all parts lie as files, or None.
        exchange: collectives among the ranks that hold the parts between them.
        world: collectives among all ranks.
        hosts: host of each rank of the world, ``int64[P]``.
        replicated: whether each of several hosts holds all parts.
        own_groups: process groups that were made for this layout alone (:meth:`apart`), for ``rank.leave_group``.
    """

    def __init__(self, rank: Rank, part: Part, partition: Partition, folder: Path | None, hosts: Any) -> None:
        self.rank, self.part, self.partition, self.folder = rank, part, partition, folder
        self.hosts = hosts
        self.own_groups: list[Any] = []
        of_host = [np.flatnonzero(hosts == h).tolist() for h in np.unique(hosts)]
        self.replicated = len(of_host) > 1 and partition.num_parts < rank.world_size
        groups = self._sharing = of_host if self.replicated else [list(range(rank.world_size))]
        mine = next(group for group in groups if rank.index in group)
        everyone = list(range(rank.world_size))
        group = rank.split(groups)
        self.exchange = Exchange(rank, group, mine, hosts)
        self.world = self.exchange if not self.replicated else Exchange(rank, rank.group, everyone, hosts)

    def apart(self) -> Layout:
        """The same part with process groups of its own, for another worker; all ranks call it alike."""
        rank, found = self.rank, copy.copy(self)
        found.own_groups = [rank.another_group(parts=self._sharing)]
        found.exchange = Exchange(rank, found.own_groups[0], self.exchange.members.tolist(), self.hosts)
        found.world = found.exchange
        if self.replicated:
            found.own_groups.append(rank.another_group())
            found.world = Exchange(rank, found.own_groups[1], range(rank.world_size), self.hosts)
        return found

    @property
    def num_nodes(self) -> int:
        return self.partition.num_nodes

    @property
    def spans_hosts(self) -> bool:
        """Whether the ranks that hold the parts are on more than one host."""
        return len(np.unique(self.hosts[self.exchange.members])) > 1

    def check_alike(
        self, given: Mapping[str, Any], among: Exchange | None = None, optional: bool = False
    ) -> None:
        """Refuse what ranks were not given alike, name -> value, on all of them; all ranks call it together.

        Who owns a list draws from it for the others: with a key or a rule of another rank nobody would notice.

        Args:
            given: the values by name.
            among: the ranks; None: all of the world.
            optional: whether None is what a rank does not know, and is not compared.

        Raises:
            ValueError: a value is another one on another rank.
        """
        mine = np.array([zlib.crc32(repr(value).encode()) for value in given.values()], dtype=np.int64)
        is_unknown = [optional and value is None for value in given.values()]
        told = np.where(is_unknown, _UNKNOWN, [mine, -mine])
        most, least = (among or self.world).max("flags", told.ravel()).reshape(told.shape)
        differ = (most != -least) & (most != _UNKNOWN)
        for (name, value), is_other in zip(given.items(), differ.tolist(), strict=True):
            if is_other:
                raise ValueError(
                    f"{name} must be the same on all ranks (got {value!r} on rank {self.rank.index}, others elsewhere)"
                )

    def rows(self, vertices: np.ndarray, part: int) -> np.ndarray:
        """Where vertices stand in the part that owns them, ``int64[n]``."""
        return np.asarray(self.partition.new_of[vertices] - self.partition.boundaries[part], dtype=np.int64)

    def shares(self, vertices: np.ndarray, by: str) -> np.ndarray:
        """Whose share each entry is of what all ranks have alike, ranks of the world, ``int64[n]``.

        ``by``: ``"equal"``: consecutive entries, as many for each rank; ``"owner"``: the rank that owns the vertex,
        after an equal share for each host where each holds all parts.
        """
        if by == "equal":
            return _in_equal_shares(vertices.size, self.rank.world_size)
        owner = self.partition.owner[vertices].astype(np.int64)
        if not self.replicated:
            return owner
        every = np.unique(self.hosts)
        members = np.stack([np.flatnonzero(self.hosts == host) for host in every])
        found: np.ndarray = members[_in_equal_shares(vertices.size, len(every)), owner]
        return found

    def share(self, vertices: np.ndarray, by: str) -> np.ndarray:
        """Places of this rank's share, ascending, ``int64[n]``; as :meth:`shares`."""
        return np.flatnonzero(self.shares(vertices, by) == self.rank.index)

    def out_degrees(self) -> np.ndarray:
        """Out-degree of every vertex of the graph, ``int64[N]``; the ranks that hold the parts call it together."""
        return self.exchange.sum("records", np.bincount(self.part.indices, minlength=self.num_nodes))

    def opened(self, part: int) -> Part:
        """A part from the folder, memory-mapped.

        Raises:
            ValueError: in its place is one of another partition, or of a graph with other edge weights or features.
        """
        assert self.folder is not None
        own, found = self.part, open_part(self.folder, part)
        wrong = [name for name, digest in found.digests.items() if own.digests.get(name, digest) != digest]
        if (found.partition_digest, found.rank) != (own.partition_digest, part):
            wrong = ["partition"]
        if wrong:
            raise ValueError(
                f"folder must hold the parts of the graph and the partition given here (got another {wrong[0]} in part "
                f"{part} in {str(self.folder)!r})"
            )
        return found

    @cached_property
    def parts(self) -> list[Part]:
        """All parts, memory-mapped for reading: one's own and those of the peers.

        Raises:
            ValueError: as of :meth:`opened`.
        """
        return [self.part if p == self.part.rank else self.opened(p) for p in range(self.partition.num_parts)]

    @cached_property
    def records(self) -> np.ndarray:
        """:func:`~gnnsample_lab.distributed.vertex_records`, memory-mapped."""
        assert self.folder is not None
        return open_records(self.folder)


def make_layout(
    source: Any, rank: Any, partition: Any, folder: Any, hosts: Any, method: str, is_local: bool
) -> Layout:
    """Find parts and check that they fit the ranks; every rank calls it alike.

    Args:
        source: a folder of ``save_parts``, this rank's :class:`Part`, or the whole graph.
        rank: the :class:`Rank`.
        partition: of the graph; with a folder it is read from there.
        folder: where all parts lie, for a Part whose method reads its peers' files.
        hosts: ranks of each host, or None for what the rank says.
        method: of the sampler, for messages.
        is_local: whether the method works within a host alone.

    Raises:
        TypeError, ValueError: an argument of the wrong kind; parts that do not fit the ranks, the partition, each other
            or those of other ranks.
    """
    checks.instance("rank", rank, Rank, "the rank that lab.distributed.run gives a function")
    host_of = _hosts(rank, hosts)
    if isinstance(source, Graph):
        checks.instance("partition", partition, Partition, "the Partition of the graph")
        with rank.zero_first():
            folder = save_parts(source, partition, folder)
        source = folder
    if isinstance(source, (str, os.PathLike)):
        part, folder = None, checks.path("source", source)
    else:
        part = checks.instance("source", source, Part, "a folder of save_parts, a Part or a Graph")
        folder = checks.optional(checks.path, "folder", folder)
    if folder is not None:
        found = open_partition(folder)
        partition = checks.optional(
            checks.instance, "partition", partition, Partition, "the Partition of the parts"
        )
        if partition is not None and partition.digest() != found.digest():
            raise ValueError(
                f"partition must be the one that is stored with the parts (got another one in folder {str(folder)!r})"
            )
        partition = found
    partition = checks.instance("partition", partition, Partition, "the Partition of the parts")
    index, digest = _part_index(rank, partition.num_parts, host_of), partition.digest()
    if part is None:
        part = open_part(folder, index)
    if part.partition_digest != digest or part.rank != index:
        raise ValueError(
            f"source must be part {index} of the partition on rank {rank.index} (got part {part.rank} of "
            f"{'this' if part.partition_digest == digest else 'another'} one)"
        )
    layout = Layout(rank, part, partition, folder, host_of)
    if isinstance(source, Part) and folder is not None:
        layout.opened(index)  # peers' parts are opened later, by some ranks only
    # Each host may have divided the graph by itself, and METIS elsewhere divides it otherwise: ranks would ask others
    # for lists that these do not have, and draw from whatever lies in their place.
    layout.check_alike({"partition": digest}, layout.exchange)
    layout.check_alike({f"{name} of source": part.digests.get(name) for name in HASHED}, optional=True)
    if is_local and layout.spans_hosts:
        raise ValueError(
            f"method={method!r} reads its peers' memory, which lies on other hosts here: give each host all parts, or "
            "take method='csp' or 'csp-fixed'"
        )
    if is_local and folder is None:
        raise ValueError(
            f"folder must name where save_parts wrote the parts for method={method!r} (got None)"
        )
    return layout


def _in_equal_shares(number: int, size: int) -> np.ndarray:
    """Which of ``size`` equal consecutive shares each of ``number`` entries is in, ``int64[number]``."""
    return np.repeat(np.arange(size), np.diff(equal_bounds(number, size)))


def _hosts(rank: Rank, hosts: Sequence[Sequence[int]] | None) -> np.ndarray:
    """Host of each rank."""
    if hosts is None:
        return np.arange(rank.world_size) // rank.local_size
    found = np.full(rank.world_size, -1, dtype=np.int64)
    for host, members in enumerate(checks.items("hosts", hosts, "a list of lists of ranks")):
        for member in checks.items("hosts", members, "a list of lists of ranks"):
            member = checks.whole("hosts", member, 0, rank.world_size - 1)
            if found[member] >= 0:
                raise ValueError(f"hosts must hold each rank once (got rank {member} twice)")
            found[member] = host
    if found.min() < 0:
        raise ValueError(f"hosts must hold each of {rank.world_size} ranks once (got {checks.shown(hosts)})")
    return found


def checksum(vertices: np.ndarray) -> str:
    """Vertices in the few words in which ranks compare them."""
    return f"{vertices.size} vertices, checksum {zlib.crc32(vertices.astype(np.int64).tobytes()):08x}"


def _part_index(rank: Rank, num_parts: int, hosts: np.ndarray) -> int:
    """Which part this rank holds: its own index, or its place on its host where each host holds all parts."""
    if num_parts == rank.world_size:
        return rank.index
    sizes = np.unique(np.bincount(hosts))
    if len(sizes) == 1 and sizes[0] == num_parts:
        return int((hosts[: rank.index] == hosts[rank.index]).sum())
    raise ValueError(
        f"parts must be as many as ranks, {rank.world_size}, or as ranks of each host, {np.bincount(hosts).tolist()} "
        f"(got {num_parts})"
    )
