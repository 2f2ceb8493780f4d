"""Samples on their way to trainers: what training needs of a mini-batch, as arrays in memory that ranks share.

A slot is used again and again. It is a file of a host (:class:`HostSlots`), or a piece of the sampler's own device
memory, which trainers read where it is (:class:`PeerSlots`). Nothing is pickled: the header that travels beside a slot
names types, shapes and offsets, and is checked against the memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.device import streams
from gnnsample_lab.device.arrays import array_module, to_host
from gnnsample_lab.features.caching.marks import Marks
from gnnsample_lab.minibatch.types import Block
from gnnsample_lab.pipeline.batches import LoadedBatch, to_gpu

ALIGNMENT = 64
_TYPES = {"int32", "int64", "uint64", "uint32", "float32"}
Arrays = dict[str, np.ndarray]


def pack(batch: Any, marks: Marks | None, to_host: Callable[[Any], Any] = to_host) -> Arrays:
    """A sampled mini-batch and its marks as host arrays, or as ``to_host`` leaves them; waits for the GPU."""
    numbers = [int(batch.batch_id), len(batch.seeds), int(batch.num_edges), len(batch.blocks)]
    found: Arrays = {"numbers": np.array(numbers, dtype=np.int64), "node_ids": to_host(batch.node_ids)}
    for number, block in enumerate(batch.blocks):
        found[f"sizes {number}"] = np.array([block.num_src, block.num_dst], dtype=np.int64)
        found[f"indptr {number}"], found[f"indices {number}"] = to_host(block.indptr), to_host(block.indices)
        if block.weight is not None:
            found[f"weight {number}"] = to_host(block.weight)
    if marks is not None:
        marks.ready.order()
        misses = marks.num_misses
        found["locations"], found["counts"] = to_host(marks.locations), to_host(marks.counts)
        found["misses"], found["missing"] = to_host(marks.misses[:misses]), to_host(marks.missing[:misses])
    return {name: array_module(array).ascontiguousarray(array) for name, array in found.items()}


def unpack(
    arrays: Mapping[str, np.ndarray], device: str, in_place: bool = False
) -> tuple[LoadedBatch, Marks | None]:
    """The mini-batch and its marks, on ``device``; on a GPU on the current stream, and the arrays may be reused.

    ``in_place``: arrays are on the device, and are those of the mini-batch.
    """
    batch_id, num_seeds, num_edges, num_blocks = arrays["numbers"].tolist()
    nodes, blocks = arrays["node_ids"], []
    for number in range(num_blocks):
        num_src, num_dst = arrays[f"sizes {number}"].tolist()
        blocks.append(
            Block(
                nodes[:num_src], nodes[:num_dst], arrays[f"indptr {number}"], arrays[f"indices {number}"], None,
                arrays.get(f"weight {number}"),
            )
        )  # fmt: skip
    batch: Any = LoadedBatch(nodes, nodes[:num_seeds], tuple(blocks), batch_id, num_edges, streams.DONE)
    marks = None
    if "locations" in arrays:
        parts: list[Any] = [arrays[name] for name in ("locations", "misses", "missing", "counts")]
        ready: Any = streams.DONE
        if in_place:  # statistics are read when the slot may have another mini-batch
            with streams.leasing() if device == "cuda" else nullcontext(streams.DONE) as ready:
                parts[-1] = parts[-1].copy()
        elif device == "cuda":
            import cupy

            with streams.leasing() as ready:
                parts = [cupy.asarray(part) for part in parts]
        locations, misses, missing, counts = parts
        marks = Marks(len(nodes), locations, misses, missing, counts, ready)
    return (to_gpu(batch) if device == "cuda" and not in_place else batch), marks


def header_of(arrays: Arrays) -> tuple[list[list[Any]], int]:
    """Name, type, shape and offset of each array in a slot, and the bytes of all."""
    header: list[list[Any]] = []
    at = 0
    for name, array in arrays.items():
        header.append([name, array.dtype.name, list(array.shape), at])
        at += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return header, at


def _checked(slot: int, header: Sequence[Sequence[Any]]) -> None:
    for name, kind, shape, begin in header:
        if kind not in _TYPES or begin < 0 or any(n < 0 for n in shape):
            raise ValueError(
                f"slot {slot} has an array {name!r} of no type that samples have ({kind}, {shape})"
            )


class HostSlots:
    """Slots as files of a folder.

    Args:
        folder: that all ranks of the host see.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._maps: dict[int, np.memmap[Any, Any]] = {}

    def write(self, slot: int, arrays: Arrays) -> list[list[Any]]:
        """Put ``arrays`` into a slot; returns the header: name, type, shape and offset of each."""
        header, at = header_of(arrays)
        memory = self._mapped(slot, max(at, ALIGNMENT), True)
        for (_, _, _, begin), array in zip(header, arrays.values(), strict=True):
            memory[begin : begin + array.nbytes] = array.reshape(-1).view(np.uint8)
        return header

    def read(self, slot: int, header: Sequence[Sequence[Any]]) -> Arrays:
        """Copies of the arrays of a slot.

        Raises:
            ValueError: the header does not fit the slot.
        """
        found: Arrays = {}
        _checked(slot, header)
        for name, kind, shape, begin in header:
            size = math.prod(shape) * np.dtype(kind).itemsize
            memory = self._mapped(slot, begin + size, False)
            found[name] = memory[begin : begin + size].copy().view(kind).reshape(shape)
        return found

    def _mapped(self, slot: int, size: int, write: bool) -> np.ndarray:
        memory = self._maps.get(slot)
        if memory is not None and len(memory) >= size:
            return memory
        path = self._folder / f"slot-{slot}"
        if write:
            with path.open("ab") as file:
                if file.tell() < size:
                    file.truncate(max(size, 2 * file.tell()))
        elif not path.is_file() or path.stat().st_size < size:
            raise ValueError(f"slot {slot} is smaller than its header says")
        memory = np.memmap(path, np.uint8, "r+")  # a rank may read from a slot and write to it later
        self._maps[slot] = memory
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

    def fits(self, arrays: Arrays) -> bool:
        """Whether a slot holds the arrays; mini-batches differ in size."""
        return header_of(self._large(arrays))[1] <= self.slot_bytes

    def write(self, slot: int, arrays: Arrays) -> list[Any]:
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

    def read(self, owner: int, slot: int, header: Sequence[Any]) -> Arrays:
        """The arrays of a slot of rank ``owner``, where they are; valid until the slot is given back.

        Raises:
            ValueError: the header does not fit the slot.
        """
        large, small = header
        _checked(slot, large)
        found: Arrays = {name: np.array(values, dtype=np.int64) for name, values in small.items()}
        for name, kind, shape, begin in large:
            size = math.prod(shape) * np.dtype(kind).itemsize
            if slot >= self.count or begin + size > self.slot_bytes:
                raise ValueError(f"slot {slot} is smaller than its header says")
            found[name] = self._memory.array_of(owner, kind, shape, slot * self.slot_bytes + begin)
        return found

    def close(self) -> None:
        """Free the slots; all ranks call it together."""
        self._memory.close()

    @staticmethod
    def _large(arrays: Arrays) -> Arrays:
        return {name: array for name, array in arrays.items() if name != "numbers" and name[:6] != "sizes "}
