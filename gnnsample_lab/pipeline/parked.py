"""Windows of samples in host memory: only the mini-batch in work, and the next, are on the GPU (FastGL, section 6.5).

FastGL samples a window of mini-batches ahead to put them in order. Of a window it keeps "the topology information of
the currently processed subgraph on the GPU and the others in the host memory", and copies the next subgraph's topology
in while the current one trains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gnnsample_lab.device import pinned, streams
from gnnsample_lab.minibatch.types import Block
from gnnsample_lab.pipeline.batches import LoadedBatch

_ALIGNMENT = 256
_FIELDS = ("indptr", "indices", "weight")


class Parked:
    """A mini-batch's vertices and blocks in host memory, one array after the other.

    Args:
        batch: a mini-batch; its arrays may be dropped.
        memory: page-locked bytes from ``begin`` of which it takes; needs :meth:`bytes_of` of them.
    """

    def __init__(self, batch: Any, memory: np.ndarray) -> None:
        self.batch_id, self.num_edges, self.num_seeds = batch.batch_id, batch.num_edges, len(batch.seeds)
        self._layout = [(name, array.dtype, int(array.size)) for name, array in _arrays(batch)]
        self._sizes = [(int(block.num_src), int(block.num_dst)) for block in batch.blocks]
        self._memory = memory[: self.bytes_of(batch)]
        at = 0
        for _, array in _arrays(batch):
            pinned.copy_out(array, self._memory[at : at + array.nbytes])
            at += _rounded(array.nbytes)

    @staticmethod
    def bytes_of(batch: Any) -> int:
        """Host memory that ``batch`` takes."""
        return sum(_rounded(array.nbytes) for _, array in _arrays(batch))

    def load(self) -> LoadedBatch:
        """The mini-batch on the GPU, copied in one piece on the current stream; the host waits for nothing."""
        return self.on(*pinned.copy_in(self._memory))

    def on(self, memory: Any, ready: Any = streams.DONE) -> LoadedBatch:
        """The mini-batch in ``memory``, bytes laid out as here."""
        at, found = 0, {}
        for name, dtype, size in self._layout:
            found[name] = memory[at : at + size * dtype.itemsize].view(dtype)
            at += _rounded(size * dtype.itemsize)
        nodes, blocks = found["node_ids"], []
        for i, (num_src, num_dst) in enumerate(self._sizes):
            indptr, indices, weight = (found.get(f"{name} {i}") for name in _FIELDS)
            blocks.append(Block(nodes[:num_src], nodes[:num_dst], indptr, indices, None, weight))
        return LoadedBatch(
            nodes, nodes[: self.num_seeds], tuple(blocks), self.batch_id, self.num_edges, ready
        )


class Parking:
    """Page-locked memory for the windows of a run, one piece a mini-batch of the window, used again and again."""

    def __init__(self) -> None:
        self._pieces: list[np.ndarray] = []

    def park(self, batch: Any, place: int) -> Parked:
        """Copy ``batch`` to the piece of its ``place`` in the window; the current stream copies."""
        self._pieces += [np.empty(0, np.uint8)] * (place + 1 - len(self._pieces))
        self._pieces[place] = pinned.grown(self._pieces[place], Parked.bytes_of(batch))
        return Parked(batch, self._pieces[place])


def fetched(window: Sequence[Any], stream: Any, on_stream: Any) -> Iterator[LoadedBatch]:
    """The parked mini-batches of ``window`` on the GPU, in order; ``stream`` copies one while the one before trains.

    Args:
        window: of :class:`Parked`, copied out on the stream that is current now.
        stream: of torch, for the copies.
        on_stream: context manager that makes a stream current.
    """
    from gnnsample_lab.device.streams import current_torch_stream

    stream.wait_stream(current_torch_stream())  # what fills the host memory

    def load(at: int) -> LoadedBatch:
        with on_stream(stream):
            return window[at].load()

    following, events = load(0), []
    for at in range(len(window)):
        batch = following
        events.append(batch.ready)
        if at + 1 < len(window):
            following = load(at + 1)
        batch.ready.order()
        yield batch
    for event in events:  # the next window is written to the same host memory
        event.synchronize()


def _arrays(batch: Any) -> Iterator[tuple[str, Any]]:
    yield "node_ids", batch.node_ids
    for i, block in enumerate(batch.blocks):
        for name in _FIELDS:
            array = getattr(block, name, None)
            if array is not None:
                yield f"{name} {i}", array


def _rounded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
