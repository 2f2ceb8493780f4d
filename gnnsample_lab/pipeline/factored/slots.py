"""Samples on their way to trainers: what training needs of a mini-batch, as arrays in memory that ranks share.

A slot is used again and again. It is a file of a host (:class:`HostSlots`), host memory of this process
(:class:`OwnSlots`), or a piece of the sampler's own device memory, which trainers read where it is
(:class:`PeerSlots`). Nothing is pickled: the header that travels beside a slot names types, shapes and offsets, and is
checked against the memory.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.device import streams
from gnnsample_lab.device.arrays import array_module, is_cuda_array
from gnnsample_lab.features.caching.marks import Marks
from gnnsample_lab.files import reserve
from gnnsample_lab.minibatch.types import Block
from gnnsample_lab.pipeline.batches import LoadedBatch

from .staging import Staging

ALIGNMENT = 64
_TYPES = {"int32", "int64", "uint64", "uint32", "float32"}


def pack(batch: Any, marks: Marks | None) -> dict[str, Any]:
    """A sampled mini-batch and its marks as dense arrays where they are, but small numbers on the host.

    The host waits for the GPU where there are marks: it asks how many rows they miss.
    """
    token = -1 if marks is None or marks.token is None else marks.token
    numbers = [int(batch.batch_id), len(batch.seeds), int(batch.num_edges), len(batch.blocks), token]
    found: dict[str, Any] = {"numbers": np.array(numbers, dtype=np.int64), "node_ids": batch.node_ids}
    for number, block in enumerate(batch.blocks):
        found[f"sizes {number}"] = np.array([block.num_src, block.num_dst], dtype=np.int64)
        found[f"indptr {number}"], found[f"indices {number}"] = block.indptr, block.indices
        if block.weight is not None:
            found[f"weight {number}"] = block.weight
    if marks is not None:
        marks.ready.order()
        misses = marks.num_misses
        found["locations"], found["counts"] = marks.locations, marks.counts
        found["misses"], found["missing"] = marks.misses[:misses], marks.missing[:misses]
    return {name: array_module(array).ascontiguousarray(array) for name, array in found.items()}


def unpack(arrays: Mapping[str, Any], ready: Any = streams.DONE) -> tuple[LoadedBatch, Marks | None]:
    """The mini-batch and its marks in ``arrays``, whose small numbers are on the host.

    Args:
        ready: says when the arrays are there (:class:`~gnnsample_lab.device.streams.Ready`).
    """
    batch_id, num_seeds, num_edges, num_blocks, token = arrays["numbers"].tolist()
    nodes, blocks = arrays["node_ids"], []
    for number in range(num_blocks):
        num_src, num_dst = arrays[f"sizes {number}"].tolist()
        blocks.append(
            Block(
                nodes[:num_src], nodes[:num_dst], arrays[f"indptr {number}"], arrays[f"indices {number}"], None,
                arrays.get(f"weight {number}"),
            )
        )  # fmt: skip
    batch = LoadedBatch(nodes, nodes[:num_seeds], tuple(blocks), batch_id, num_edges, ready)
    if "locations" not in arrays:
        return batch, None
    locations, misses, missing, counts = (arrays[k] for k in ("locations", "misses", "missing", "counts"))
    # Statistics are read at the end of the epoch: in their place counts would keep all of their mini-batch in memory,
    # and in a slot be those of another one.
    with streams.leasing() if is_cuda_array(counts) else nullcontext(streams.DONE) as ready:
        counts = counts.copy()
    return batch, Marks(
        len(nodes), locations, misses, missing, counts, ready, token=None if token < 0 else token
    )


def header_of(arrays: Mapping[str, Any]) -> tuple[list[list[Any]], int]:
    """Name, type, shape and offset of each array in a slot, and the bytes of all."""
    header: list[list[Any]] = []
    at = 0
    for name, array in arrays.items():
        header.append([name, array.dtype.name, list(array.shape), at])
        at += _rounded(array.nbytes)
    return header, at


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _checked(slot: int, header: Sequence[Sequence[Any]]) -> None:
    for name, kind, shape, begin in header:
        if kind not in _TYPES or begin < 0 or any(n < 0 for n in shape):
            raise ValueError(
                f"slot {slot} has an array {name!r} of no type that samples have ({kind}, {shape})"
            )


def _is_small(name: str) -> bool:
    """Whether an array of :func:`pack` has numbers that the host asks for."""
    return name == "numbers" or name.startswith("sizes ")


class _Slots(ABC):
    """Slots in host memory, of whatever kind.

    Args:
        device: "cpu" or "cuda": where mini-batches come from and go to.
    """

    def __init__(self, device: str) -> None:
        self._staging = Staging() if device == "cuda" else None

    def write(self, slot: int, arrays: Mapping[str, Any]) -> list[list[Any]]:
        """Put ``arrays`` into a slot; returns the header: name, type, shape and offset of each."""
        header, size = header_of(arrays)
        memory = self._mapped(slot, size, True)[:size]
        if self._staging is not None:
            self._staging.leave(arrays, header, memory)
            return header
        for (*_, begin), array in zip(header, arrays.values(), strict=True):
            memory[begin : begin + array.nbytes] = array.reshape(-1).view(np.uint8)
        return header

    def read(self, slot: int, header: Sequence[Sequence[Any]]) -> tuple[LoadedBatch, Marks | None]:
        """The mini-batch of a slot and its marks, on the device; the slot may be used again.

        Raises:
            ValueError: the header does not fit the slot.
        """
        _checked(slot, header)
        sizes = [math.prod(shape) * np.dtype(kind).itemsize for _, kind, shape, _ in header]
        end = _rounded(max((header[i][3] + size for i, size in enumerate(sizes)), default=0))
        memory = self._mapped(slot, end, False)
        found: dict[str, Any] = {}
        there, ready = None, streams.DONE
        if self._staging is not None:
            import cupy

            there, ready = self._staging.enter(memory[:end])
        for (name, kind, shape, begin), size in zip(header, sizes, strict=True):
            if there is None or _is_small(name):
                found[name] = memory[begin : begin + size].copy().view(kind).reshape(shape)
            else:
                found[name] = cupy.ndarray(tuple(shape), kind, there + begin)
        return unpack(found, ready)

    @abstractmethod
    def _mapped(self, slot: int, size: int, write: bool) -> np.ndarray:
        """The memory of a slot, ``size`` bytes or more.

        Raises:
            ValueError: it is to be read and is smaller.
        """


class HostSlots(_Slots):
    """Slots as files of a folder.

    Args:
        folder: that all ranks of the host see. device: "cpu" or "cuda", of this rank.
    """

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        super().__init__(device)
        self._folder = folder
        self._maps: dict[int, np.memmap[Any, Any]] = {}

    def _mapped(self, slot: int, size: int, write: bool) -> np.ndarray:
        memory = self._maps.get(slot)
        if memory is not None and len(memory) >= size:
            return memory
        path = self._folder / f"slot-{slot}"
        if write:
            with path.open("ab") as file:
                if file.tell() < size:
                    reserve(file, max(size, file.tell() * 9 // 8), path)
        elif not path.is_file() or path.stat().st_size < size:
            raise ValueError(f"slot {slot} is smaller than its header says")
        memory = np.memmap(path, np.uint8, "r+")  # a rank may read from a slot and write to it later
        self._maps[slot] = memory
        return memory


class OwnSlots(_Slots):
    """Slots in host memory of this process, kept from epoch to epoch: fresh memory is written at a fraction of its
    speed.

    Args:
        device: "cpu" or "cuda".
    """

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._memory: dict[int, np.ndarray] = {}

    def _mapped(self, slot: int, size: int, write: bool) -> np.ndarray:
        memory = self._memory.get(slot)
        if memory is None or len(memory) < size:
            if not write:
                raise ValueError(f"slot {slot} is smaller than its header says")
            memory = self._memory[slot] = np.empty(_rounded(size + size // 8), np.uint8)
        return memory


class PeerSlots:
    """Slots in the samplers' device memory, which trainers read over NVLink; on CPU ranks in mapped files.

    All ranks make it and close it together.

    Args:
        rank: the rank. samplers: ranks 0 to ``samplers - 1`` have slots.
        count: slots of each. slot_bytes: of one.
    """

    def __init__(self, rank: Any, samplers: int, count: int, slot_bytes: int) -> None:
        from gnnsample_lab.distributed.peer_memory import PeerMemory

        self.count, self.slot_bytes = count, -(-slot_bytes // 256) * 256
        mine = self.count * self.slot_bytes if rank.index < samplers else 0
        self._memory = PeerMemory(rank, mine, method="handover='peer'")

    def fits(self, arrays: Mapping[str, Any]) -> bool:
        """Whether a slot holds the arrays; mini-batches differ in size."""
        return header_of(self._large(arrays))[1] <= self.slot_bytes

    def write(self, slot: int, arrays: Mapping[str, Any]) -> list[Any]:
        """Put ``arrays`` into a slot of this rank, and wait for the device. Small numbers travel in the header."""
        large = self._large(arrays)
        header, _ = header_of(large)
        for (_, _, _, begin), array in zip(header, large.values(), strict=True):
            if array.size:
                self._memory.array(array.dtype, array.shape, slot * self.slot_bytes + begin)[...] = array
        if self._memory.way != "file":
            import cupy

            cupy.cuda.get_current_stream().synchronize()
        small = {name: array.tolist() for name, array in arrays.items() if name not in large}
        return [header, small]

    def read(self, owner: int, slot: int, header: Sequence[Any]) -> tuple[LoadedBatch, Marks | None]:
        """The mini-batch in a slot of rank ``owner`` and its marks, where they are; valid until the slot is given back.

        Raises:
            ValueError: the header does not fit the slot.
        """
        large, small = header
        _checked(slot, large)
        found: dict[str, Any] = {name: np.array(values, dtype=np.int64) for name, values in small.items()}
        for name, kind, shape, begin in large:
            size = math.prod(shape) * np.dtype(kind).itemsize
            if slot >= self.count or begin + size > self.slot_bytes:
                raise ValueError(f"slot {slot} is smaller than its header says")
            found[name] = self._memory.array_of(owner, kind, shape, slot * self.slot_bytes + begin)
        return unpack(found)

    def close(self) -> None:
        """Free the slots; all ranks call it together."""
        self._memory.close()

    @staticmethod
    def _large(arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {name: array for name, array in arrays.items() if not _is_small(name)}
