"""What all methods on CPU ranks share: hops one after another, lists sorted by owner, and picks in order again."""

from __future__ import annotations

import abc
from dataclasses import dataclass

import numpy as np

from gnnsample_lab.device.arrays import merge_duplicates, offsets_of
from gnnsample_lab.distributed.parts.part import gather_lists
from gnnsample_lab.minibatch.cpu import Builder, CpuTables
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.sampling.neighbors.cpu import draw_rows
from gnnsample_lab.sampling.neighbors.spec import HopPicks, SampleSpec
from gnnsample_lab.sampling.weights import IntegerWeights

from ..engines import Setup


@dataclass(frozen=True, eq=False)
class Rows:
    """Picks of some lists, one list after another.

    Attributes:
        degrees: lengths of the lists, ``int32[n]``.
        counts: picks of each, ``int32[n]``.
        neighbors: original ids ``[sum(counts)]``.
        slots: places of the picks in their lists, ``int64[sum(counts)]``.
    """

    degrees: np.ndarray
    counts: np.ndarray
    neighbors: np.ndarray
    slots: np.ndarray


@dataclass(frozen=True, eq=False)
class ByOwner:
    """A frontier sorted by who has the lists, in the frontier's order within each.

    Attributes:
        order: where each entry stood, ``int64[n]``.
        vertices: the frontier in this order.
        counts: entries of each owner, ``int64[P]``.
    """

    order: np.ndarray
    vertices: np.ndarray
    counts: np.ndarray

    @property
    def bounds(self) -> np.ndarray:
        """Where each owner's entries begin, ``int64[P + 1]``."""
        bounds: np.ndarray = offsets_of(self.counts)
        return bounds


def by_owner(frontier: np.ndarray, owner: np.ndarray, num_owners: int) -> ByOwner:
    """Sort ``frontier`` by ``owner``, integers below ``num_owners``."""
    order = np.argsort(owner, kind="stable")
    return ByOwner(order, frontier[order], np.bincount(owner, minlength=num_owners).astype(np.int64))


def in_order(
    frontier: np.ndarray, order: np.ndarray, counts: np.ndarray, neighbors: np.ndarray, slots: np.ndarray
) -> HopPicks:
    """Picks of lists that were sorted by ``order``, in the frontier's order."""
    begins, placed = np.empty(frontier.size, np.int64), np.empty(frontier.size, np.int32)
    begins[order], placed[order] = offsets_of(counts)[:-1], counts
    offsets = offsets_of(placed)
    return HopPicks(
        frontier,
        placed,
        gather_lists(begins, offsets, neighbors),
        gather_lists(begins, offsets, slots),
        offsets,
    )


def totals(counts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sums of ``counts`` over consecutive runs of ``rows[p]`` entries, ``int64[P]``."""
    ends = offsets_of(rows)
    sums = offsets_of(counts)[ends]
    return np.asarray(np.diff(sums))


def draw(
    vertices: np.ndarray,
    rows: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: IntegerWeights | None,
    spec: SampleSpec,
    batch_id: int,
    hop: int,
) -> Rows:
    """Picks of ``vertices`` from their lists, which stand at ``rows``."""
    picks = draw_rows(vertices, rows, indptr, indices, weights, spec, batch_id, hop)
    slots = picks.positions - np.repeat(indptr[rows], picks.counts)
    return Rows((indptr[rows + 1] - indptr[rows]).astype(np.int32), picks.counts, picks.neighbors, slots)


def slots_of(
    vertices: np.ndarray, degrees: np.ndarray, spec: SampleSpec, batch_id: int, hop: int
) -> tuple[np.ndarray, np.ndarray]:
    """How many picks vertices have and their slots, from the degrees alone: the draw is keyed, so it can be repeated.

    Not for weighted rules, whose draws need the weights.
    """
    indptr = offsets_of(degrees)
    picks = draw_rows(
        vertices, np.arange(vertices.size), indptr, vertices[:0], None, spec, batch_id, hop, neighbors=False
    )
    return picks.counts, picks.positions - np.repeat(indptr[:-1], picks.counts)


class CpuEngine(abc.ABC):
    """Hops one after another; a method says how a hop's picks are found."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.spec, self.layout = setup, setup.spec, setup.layout
        self.part, self.partition = setup.layout.part, setup.layout.partition
        self.exchange = setup.layout.exchange
        self.weights = self.part.weights if setup.spec.weighted else None
        self.id_bytes = self.part.indices.dtype.itemsize
        self.tables = CpuTables(self.part.num_nodes)

    def sample_many(self, seeds: list[np.ndarray], first_batch_id: int) -> list[MiniBatch]:
        with self.tables.lock:
            return [self.sample(each, first_batch_id + i) for i, each in enumerate(seeds)]

    def sample(self, seeds: np.ndarray, batch_id: int) -> MiniBatch:
        batch = self.sampled(seeds, batch_id)
        self.count_ideal(batch)
        return batch

    def sampled(self, seeds: np.ndarray, batch_id: int) -> MiniBatch:
        distinct, inverse, _ = merge_duplicates(seeds)
        batch = Builder(self.part, self.tables, distinct)
        for hop in range(self.spec.num_hops):
            batch.add(self.hop(batch.frontier(False), batch_id, hop))
        return batch.finish(inverse, batch_id, self.spec, self.part)

    @abc.abstractmethod
    def hop(self, frontier: np.ndarray, batch_id: int, hop: int) -> HopPicks:
        """Picks of the frontier, with slots for positions; all ranks call it together."""

    def count_ideal(self, batch: MiniBatch) -> None:
        traffic = self.exchange.traffic
        for picks in batch.picks:
            is_remote = self.partition.owner[picks.frontier] != self.part.rank
            traffic.ideal += picks.num_picks * self.id_bytes
            traffic.ideal_remote += int(picks.counts[is_remote].sum()) * self.id_bytes

    def close(self) -> None:  # noqa: B027  (there may be nothing to give back)
        pass

    # ---- at the owner -----------------------------------------------------------------------------------------

    def draw_own(self, vertices: np.ndarray, batch_id: int, hop: int) -> Rows:
        """Picks of vertices that this rank owns."""
        rows = self.layout.rows(vertices, self.part.rank)
        part = self.part
        return draw(vertices, rows, part.indptr, part.indices, self.weights, self.spec, batch_id, hop)

    def sort(self, frontier: np.ndarray) -> ByOwner:
        return by_owner(frontier, self.partition.owner[frontier], self.partition.num_parts)
