"""Samples in host memory: what training needs of a mini-batch, as arrays in files that the ranks of a host map.

A slot is a file that is used again and again, so that its pages stay in memory. Nothing is pickled: the header that
travels beside a slot names types, shapes and offsets, and is checked against the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.device import streams
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.features.caching.marks import Marks
from gnnsample_lab.minibatch.types import Block
from gnnsample_lab.pipeline.batches import LoadedBatch, to_gpu

ALIGNMENT = 64
_TYPES = {"int32", "int64", "uint64", "uint32", "float32"}
Arrays = dict[str, np.ndarray]


def pack(batch: Any, marks: Marks | None) -> Arrays:
    """A sampled mini-batch and its marks as host arrays; waits for the GPU."""
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
    return {name: np.ascontiguousarray(array) for name, array in found.items()}


def unpack(arrays: Mapping[str, np.ndarray], device: str) -> tuple[LoadedBatch, Marks | None]:
    """The mini-batch and its marks, on ``device``; on a GPU on the current stream, and the arrays may be reused."""
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
        if device == "cuda":
            import cupy

            with streams.leasing() as ready:
                parts = [cupy.asarray(part) for part in parts]
        locations, misses, missing, counts = parts
        marks = Marks(len(nodes), locations, misses, missing, counts, ready)
    return (to_gpu(batch) if device == "cuda" else batch), marks


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
        header: list[list[Any]] = []
        at = 0
        for name, array in arrays.items():
            header.append([name, array.dtype.name, list(array.shape), at])
            at += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
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
        for name, kind, shape, begin in header:
            if kind not in _TYPES or begin < 0 or any(n < 0 for n in shape):
                raise ValueError(
                    f"slot {slot} has an array {name!r} of no type that samples have ({kind}, {shape})"
                )
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
