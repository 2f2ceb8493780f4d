"""Lists of a rank's own part that leave its GPU for page-locked host memory, where the part exceeds a budget of bytes.

DSP keeps the lists of hot vertices on the GPU and all others in host memory, and a position list says which (sections
3.2 and 5). Here vertex records hold addresses: a list is where its record says. Where ranks read each other's lists
every rank has the records of all vertices (:class:`Spill`). In collective sampling a list is read by its owner alone,
which has the records of its own (:func:`spilled_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnsample_lab.device.arrays import offsets_of
from gnnsample_lab.distributed.parts.hot import hottest_lists
from gnnsample_lab.distributed.parts.part import Part, gather_lists
from gnnsample_lab.minibatch.types import MiniBatch

from .engines import Setup
from .sectors import count_reads
from .visits import UNSEEN, presampled


@dataclass(frozen=True, eq=False)
class Spill:
    """Which lists are in host memory, of all parts.

    Attributes:
        is_spilled: by original id, ``bool[N]``.
        records: as of :func:`~gnnsample_lab.distributed.vertex_records`, ``[N, 2]``, but a list that stays begins where
            it lies among those of its part that stay. Spilled ones begin where they do in the whole part.
    """

    is_spilled: np.ndarray
    records: np.ndarray

    @property
    def num_lists(self) -> int:
        return int(self.is_spilled.sum())


def spill(setup: Setup, draw: Callable[[np.ndarray, int], MiniBatch]) -> Spill | None:
    """Decide what spills; all ranks call it together. None where no rank has to part with a list.

    A rank keeps the lists that save most reads per byte, and those that nobody visits as far as there is room.

    Args:
        setup: of the sampler, with ``topology_bytes``.
        draw: samples seeds under a batch id from lists that all lie in host memory, without the other ranks.
    """
    if setup.topology_bytes is None:
        return None
    layout = setup.layout
    part = layout.part
    is_over = part.num_edges * _entry_bytes(setup) > setup.topology_bytes
    if not layout.exchange.max("sizes", np.array([int(is_over)]))[0]:
        return None
    visits, fanouts = setup.visits, [setup.spec.fanouts[-1]]
    if visits is None:  # all ranks count: they add up out-degrees together
        visits, fanouts = presampled(setup, draw), list(setup.spec.fanouts)
    mine = np.empty(0, np.int64)
    if is_over:
        own = np.asarray(part.vertices)
        stays = _stays(
            visits[..., own], np.diff(part.indptr), fanouts, setup.topology_bytes, _entry_bytes(setup)
        )
        mine = own[~stays].astype(np.int64)
    spilled = np.zeros(layout.num_nodes, dtype=bool)
    for ids in layout.exchange.all_gather("records", mine):
        spilled[ids] = True
    return Spill(spilled, records_of_kept(layout.records, [each.vertices for each in layout.parts], spilled))


def spilled_rows(setup: Setup, draw: Callable[[np.ndarray, int], MiniBatch]) -> np.ndarray | None:
    """Which lists of this rank's part spill where it draws from them for all ranks, by row, ``bool[n]``; None: none.

    All ranks call it together. A rank keeps the lists that save most reads per byte in the mini-batches of all ranks.

    Args:
        setup: of the sampler, with ``topology_bytes``.
        draw: samples seeds under a batch id from lists that all lie in host memory; all ranks call it together.
    """
    if setup.topology_bytes is None:
        return None
    part, exchange = setup.layout.part, setup.exchange
    is_over = part.num_edges * _entry_bytes(setup) > setup.topology_bytes
    if not exchange.max("sizes", np.array([int(is_over)]))[0]:
        return None
    visits, fanouts = setup.visits, [setup.spec.fanouts[-1]]
    if visits is None:
        counted = presampled(setup, draw, together=True)
        whole = np.rint(counted / UNSEEN).astype(np.int64)  # ranks add up integers
        visits, fanouts = (
            exchange.sum("records", whole.ravel()).reshape(whole.shape),
            list(setup.spec.fanouts),
        )
    if not is_over:
        return None
    own = np.asarray(part.vertices)
    degrees = np.diff(part.indptr)
    return ~_stays(visits[..., own], degrees, fanouts, setup.topology_bytes, _entry_bytes(setup))


def count_host_reads(
    setup: Setup, spilled: np.ndarray, rows: np.ndarray, answer: Any, hop: int, traffic: Any
) -> None:
    """Add what a GPU reads of spilled lists to draw from them, in the order of the requests.

    Args:
        setup: of the sampler.
        spilled: of :func:`spilled_rows`.
        rows: of the part that were drawn from, ``int64[n]``; each draw reads for itself.
        answer: the draws of all of them (:class:`~.cpu.base.Rows`).
        hop: from 0.
        traffic: of the rank that draws.
    """
    part = setup.layout.part
    far = spilled[rows]
    count_reads(
        traffic, setup.layout.rank.index, setup.method, setup.spec, hop, int(part.indices.dtype.itemsize),
        np.asarray(part.indptr)[rows[far]], answer.degrees[far].astype(np.int64), answer.counts[far],
        answer.slots[np.repeat(far, answer.counts)], True,
    )  # fmt: skip


def kept_bytes(setup: Setup, is_spilled: np.ndarray) -> int:
    """Bytes of a rank's own lists that stay, their sums of weights included; ``is_spilled``: by row of its part."""
    degrees = np.diff(setup.layout.part.indptr)
    return int(degrees[~is_spilled].sum()) * _entry_bytes(setup)


def _entry_bytes(setup: Setup) -> int:
    """Bytes of a neighbour: its id, and its sum of weights where draws are weighted."""
    return int(setup.layout.part.indices.dtype.itemsize) + 8 * setup.spec.weighted


def _stays(
    visits: np.ndarray, degrees: np.ndarray, fanouts: list[int], budget: int, entry_bytes: int
) -> np.ndarray:
    """Which lists stay on the GPU within ``budget`` bytes, ``bool[n]``; arguments as of
    :func:`~gnnsample_lab.distributed.parts.hot.hottest_lists`."""
    hot = hottest_lists(visits, degrees, fanouts, budget, entry_bytes=entry_bytes)
    stays = degrees == 0
    stays[hot.ids] = True
    # Of lists that nobody visits the shortest stay: so most of those that a later mini-batch may read.
    idle = np.flatnonzero(~stays & (np.atleast_2d(visits).sum(axis=0) == 0))
    idle = idle[np.argsort(degrees[idle], kind="stable")]
    stays[idle[np.cumsum(degrees[idle]) * entry_bytes <= budget - hot.nbytes]] = True
    return np.asarray(stays)


def memories(method: str, spilled: Spill | None) -> tuple[bool, ...]:
    """Whether kernels of a method read lists in GPUs' memory (False), in host memory (True), or in both."""
    return (True,) if method == "uva" else (False,) if spilled is None else (False, True)


def records_of_kept(records: np.ndarray, vertices: Sequence[np.ndarray], spilled: np.ndarray) -> np.ndarray:
    """Vertex records where lists that stay lie one after another, in the order of their part.

    Args:
        records: of whole parts, ``[N, 2]``: where a list begins, and its length.
        vertices: original ids of each part, in the order of its rows.
        spilled: vertices whose records stay as they are, ``bool[N]``.
    """
    found = np.array(records)
    for ids in vertices:
        lengths = np.where(spilled[ids], 0, records[ids, 1])
        found[ids, 0] = np.where(spilled[ids], records[ids, 0], offsets_of(lengths)[:-1])
    return found


def without(part: Part, spilled: np.ndarray) -> Part:
    """The part with empty lists where they are spilled; its vertices and their rows stay.

    Args:
        part: whole.
        spilled: by original id, ``bool[N]``.
    """
    lengths = np.where(spilled[part.vertices], 0, np.diff(part.indptr))
    indptr, begins = offsets_of(lengths), np.asarray(part.indptr)[:-1]
    prefix = None
    if part.prefix is not None:
        prefix = np.zeros(int(indptr[-1]) + 1, dtype=np.uint64)
        np.cumsum(gather_lists(begins, indptr, np.diff(part.prefix)), out=prefix[1:])
    weight = None if part.edge_weight is None else gather_lists(begins, indptr, part.edge_weight)
    indices = gather_lists(begins, indptr, part.indices)
    return replace(part, indptr=indptr, indices=indices, edge_weight=weight, prefix=prefix)
