"""From parts that lie in several memories to a graph that the sampling kernels read (``direct`` and its kin).

A :class:`~gnnsample_lab.sampling.neighbors.lists.Place` for each part says where its arrays are: on this GPU, on a peer
whose memory is mapped here, or in pinned host memory. The sample is the same wherever they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, pinned, runtime
from gnnsample_lab.device.arrays import offsets_of
from gnnsample_lab.distributed.parts.hot import HotLists
from gnnsample_lab.distributed.parts.part import Part
from gnnsample_lab.distributed.parts.partition import Partition
from gnnsample_lab.sampling.neighbors.lists import (
    LOCAL_RECORDS,
    OWNERS_RECORDS,
    ListsGraph,
    Place,
    pack_records,
    places_table,
    where_rows,
)
from gnnsample_lab.sampling.weights import IntegerWeights

from ...peer_memory import aligned


@dataclass(frozen=True)
class Room:
    """Where a part's arrays lie in one block of memory: offsets in bytes, and how long the block is."""

    indices: int
    prefix: int
    records: int
    available: int
    nbytes: int

    def place(self, base: int) -> Place:
        """The arrays' addresses in a block at address ``base``."""
        return Place(base + self.indices, base + self.prefix, base + self.records, base + self.available)


def room_for(entries: int, rows: int, record_words: int, id_bytes: int, weighted: bool) -> Room:
    """Offsets of a part's lists, prefix sums, records and counts of positive weights; without weights both are empty.

    Args:
        entries: of all lists.
        rows: vertices of the part.
        record_words: of :func:`own_records`; 0 where each rank keeps all records.
        id_bytes: of an entry.
        weighted: whether there are weights.
    """
    sizes = (
        entries * id_bytes, 8 * (entries + 1) * weighted, 8 * record_words, 4 * rows * weighted
    )  # fmt: skip
    ends = np.cumsum([aligned(size) for size in sizes])
    return Room(0, int(ends[0]), int(ends[1]), int(ends[2]), int(ends[3]))


class FromZero:
    """In place of a part's array of lists that lie in several memories: their starts count from address 0."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype, self.data = dtype, SimpleNamespace(ptr=0)


def host_place(part: Part, weighted: bool, held: list[np.ndarray]) -> Place:
    """A part's lists, page-locked where they lie, if the host allows that for its files; else in a copy of this rank.

    Args:
        part: the part.
        weighted: whether prefix sums go along.
        held: gets what must live as long.

    Raises:
        MemoryError: the host refuses that much page-locked memory.
    """

    def address(array: np.ndarray | None) -> int:
        if array is None or not len(array):
            return 0
        held.append(pinned.locked(array))
        held.append(array)  # the copy, if it is one, lives as long as what it was made of
        return pinned.device_address(held[-2])

    return Place(address(part.indices), address(part.prefix) if weighted else 0)


def records_of_rows(
    part: Part, kept: Part, spilled: np.ndarray, here: Place, host: Place, weighted: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Where each list of a part lies whose lists are partly in host memory, in the order of its rows.

    Args:
        part: whole; its lists are at ``host``.
        kept: the part without its spilled lists, as of :func:`~..spill.without`; at ``here``.
        spilled: by row, ``bool[n]``.
        here, host: addresses.
        weighted: whether there are prefix sums.

    Returns:
        Packed records, ``uint64``, and the address of each list's prefix sums, ``uint64[n]`` or None.
    """
    id_bytes = part.indices.dtype.itemsize
    begins = np.where(spilled, part.indptr[:-1], kept.indptr[:-1]).astype(np.uint64)
    bases = np.where(spilled, host.indices // id_bytes, here.indices // id_bytes).astype(np.uint64)
    packed = np.asarray(pack_records(bases + begins, np.diff(part.indptr)))
    if not weighted:
        return packed, None
    sums = np.where(spilled, host.prefix, here.prefix).astype(np.uint64)
    return packed, sums + np.uint64(8) * begins


def own_records(part: Part) -> np.ndarray:
    """Packed records of a part's vertices, starts counted from its first entry, ``uint64``."""
    indptr = np.asarray(part.indptr)
    return np.asarray(pack_records(indptr[:-1], indptr[1:] - indptr[:-1]))


def fill(part: Part, room: Room, records: np.ndarray | None, weighted: bool, view: Any) -> None:
    """Copy a part into a block.

    Args:
        part: the part.
        room: of the block.
        records: of :func:`own_records`, or None.
        weighted: whether prefix sums go along.
        view: from ``(dtype, shape, offset)`` to an array of the block, CuPy or NumPy.
    """
    arrays = [(part.indices, room.indices), (records, room.records)]
    if weighted:
        arrays += [(part.prefix, room.prefix), (part.available, room.available)]
    for array, offset in arrays:
        if array is None or not len(array):
            continue
        target = view(array.dtype, array.shape, offset)
        if isinstance(target, np.ndarray):
            target[:] = array
        else:
            target.set(np.ascontiguousarray(array))


@dataclass(frozen=True, eq=False)
class Copies:
    """Hot lists on this GPU.

    Attributes:
        hot: which, and where each begins in ``indices``.
        indices: the lists, one after another, ids.
        prefix: their prefix sums, one more than entries for each list, ``uint64``; None without weights.
    """

    hot: HotLists
    indices: Any
    prefix: Any

    @property
    def nbytes(self) -> int:
        return int(self.indices.nbytes) + (0 if self.prefix is None else int(self.prefix.nbytes))


def copy_lists(
    hot: HotLists, places: Sequence[Place], owner: Any, starts: Any, id_dtype: Any, weighted: bool
) -> Copies:
    """Copy hot lists to this GPU from where they lie.

    Args:
        hot: which lists.
        places: of all parts, and others that ``owner`` names.
        owner: place of each vertex's list, integers ``[N]``.
        starts: of each list among its place's entries, integers ``[N]``.
        id_dtype: of an entry.
        weighted: whether prefix sums are copied too.
    """
    ids, dtype = hot.ids, np.dtype(id_dtype)
    at = np.asarray(starts)[ids].astype(np.int64)
    of = np.asarray(owner)[ids]
    degrees = np.diff(hot.offsets)

    def copied(bases: list[int], lengths: np.ndarray, kind: np.dtype) -> Any:
        source = np.array(bases, dtype=np.uint64)[of] + (at * kind.itemsize).astype(np.uint64)
        return copied_words(source, offsets_of(lengths), kind)

    indices = copied([place.indices for place in places], degrees, dtype)
    prefix = None
    if weighted:
        prefix = copied([place.prefix for place in places], degrees + (degrees > 0), np.dtype(np.uint64))
    return Copies(hot, indices, prefix)


def copied_words(source: np.ndarray, begins: np.ndarray, dtype: np.dtype) -> Any:
    """Runs of entries, copied to this GPU: ``[begins[-1]]`` of ``dtype``, at least one, CuPy.

    Args:
        source: address of each run, ``uint64[n]``.
        begins: where each begins among the copies, ``int64[n + 1]``.
        dtype: of entries, of 4 or 8 bytes.
    """
    import cupy

    out = cupy.empty(max(1, int(begins[-1])), dtype)
    if len(source):
        kernel = kernels.load_module("distributed/sampling/gpu/lists.cu").get_function("copy_lists")
        words = begins * (dtype.itemsize // 4)
        args = (cupy.asarray(source), cupy.asarray(words), np.uint64(len(source)), out)
        kernel((8 * runtime.num_sms(),), (256,), args)
        cupy.cuda.get_current_stream().synchronize()  # the arguments may go
    return out


def graph_by_local_records(
    partition: Partition, records: np.ndarray, places: Sequence[Place], id_dtype: Any, available: np.ndarray | None
        = None, copies: Copies | None = None, put: Any = None, keep: tuple[Any, ...] = (), place_of: Any = None,
) -> ListsGraph:  # fmt: skip
    """A graph whose packed records lie here: 8 bytes a vertex, with weights 20.

    Args:
        partition: who owns which vertex.
        records: of :func:`~gnnsample_lab.distributed.vertex_records`, ``[N, 2]``.
        places: of all parts, and others that ``place_of`` names.
        id_dtype: of an entry.
        available: for weighted rules: in-edges of positive weight, ``int32[N]``.
        copies: lists that are read here and not at their owner.
        put: from a NumPy array to a CuPy array that the kernels read; by default a copy on this GPU.
        keep: what must live as long as the graph.
        place_of: where each vertex's list is, an index of ``places``, integers ``[N]``; None: with its owner.
    """
    put = _on_this_gpu if put is None else put
    id_bytes = np.dtype(id_dtype).itemsize
    owner = np.asarray(partition.owner if place_of is None else place_of).astype(np.intp)
    bases = np.array([place.indices // id_bytes for place in places], dtype=np.uint64)
    starts = bases[owner] + records[:, 0].astype(np.uint64)
    if copies is not None:
        first = np.uint64(copies.indices.data.ptr // id_bytes)
        starts[copies.hot.ids] = first + copies.hot.offsets[:-1].astype(np.uint64)
    weights = None
    if available is not None:
        prefix = np.array([place.prefix for place in places], dtype=np.uint64)[owner]
        prefix += np.uint64(8) * records[:, 0].astype(np.uint64)
        if copies is not None:
            # Each copied list, none of them empty, has one prefix sum more than entries.
            begins = copies.hot.offsets[:-1] + np.arange(len(copies.hot.ids))
            prefix[copies.hot.ids] = np.uint64(copies.prefix.data.ptr) + np.uint64(8) * begins.astype(
                np.uint64
            )
        weights = IntegerWeights(put(prefix), put(np.ascontiguousarray(available, dtype=np.int32)))
    packed = put(pack_records(starts, records[:, 1]))
    return ListsGraph(
        partition.num_nodes, int(partition.traffic.sum()), _most(records), id_dtype, LOCAL_RECORDS, packed, weights,
        (*keep, copies),
    )  # fmt: skip


def graph_by_owners_records(
    partition: Partition, places: Sequence[Place], id_dtype: Any, max_in_degree: int, weighted: bool, put: Any = None,
        keep: tuple[Any, ...] = (),
) -> ListsGraph:  # fmt: skip
    """A graph of whose vertices only owner and row are known here, 4 bytes a vertex; their owners have the records.

    Args:
        partition: who owns which vertex.
        places: of all parts, with records.
        id_dtype: of an entry.
        max_in_degree: of the whole graph.
        weighted: whether weighted rules are to work.
        put: as of :func:`graph_by_local_records`.
        keep: what must live as long as the graph.
    """
    put = _on_this_gpu if put is None else put
    id_bytes = np.dtype(id_dtype).itemsize
    owner = np.asarray(partition.owner).astype(np.intp)
    rows = np.asarray(partition.new_of) - np.asarray(partition.boundaries)[owner]
    host, bits = where_rows(owner, rows, len(places))
    where = put(host)
    table = put(places_table(where, bits, places, id_bytes))
    weights = IntegerWeights(table, table) if weighted else None
    return ListsGraph(
        partition.num_nodes, int(partition.traffic.sum()), max_in_degree, id_dtype, OWNERS_RECORDS, table, weights,
        (*keep, where),
    )  # fmt: skip


def _on_this_gpu(array: np.ndarray) -> Any:
    import cupy

    return cupy.asarray(array)


def _most(records: np.ndarray) -> int:
    return int(records[:, 1].max()) if len(records) else 0
