"""Mini-batches on their way to the model: windows and their order, and CPU samples brought to the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.device import streams
from gnnsample_lab.minibatch.types import Block

Order = Callable[[Sequence[Any]], Sequence[int]]
"""Mini-batches of a window -> their positions in the order in which to train on them."""


@dataclass(frozen=True, eq=False)
class LoadedBatch:
    """What training needs of a mini-batch that was sampled on the CPU, as CuPy arrays.

    Attributes:
        node_ids: global ids of the vertices whose features are needed.
        seeds: the distinct seeds, global ids.
        blocks: input-most first; without ``edge_positions``.
        batch_id, num_edges, ready: as in :class:`~gnnsample_lab.minibatch.types.MiniBatch`.
    """

    node_ids: Any
    seeds: Any
    blocks: tuple[Block, ...]
    batch_id: int
    num_edges: int
    ready: Any


def to_gpu(batch: Any) -> LoadedBatch:
    """Copy a CPU mini-batch to the GPU on the current stream, through pinned memory."""
    import cupyx

    keep = []  # pinned memory must outlive its copy
    ready = streams.Ready()

    def copied(array: np.ndarray) -> Any:
        out = streams.empty(array.shape, array.dtype, ready)
        if array.size:
            pinned = cupyx.empty_pinned(array.shape, array.dtype)
            pinned[...] = array
            out.data.copy_from_host_async(pinned.ctypes.data, array.nbytes)
            keep.append(pinned)
        return out

    node_ids = copied(batch.node_ids)
    blocks = []
    for block in batch.blocks:
        fields = {
            "src": node_ids[: block.num_src],
            "dst": node_ids[: block.num_dst],
            "indptr": copied(np.asarray(block.indptr)),
            "indices": copied(np.asarray(block.indices)),
            "edge_positions": None,
        }
        if getattr(block, "weight", None) is not None:
            fields["weight"] = copied(np.asarray(block.weight))
        blocks.append(Block(**fields))
    ready.stream.synchronize()
    seeds = node_ids[: len(batch.seeds)]
    return LoadedBatch(node_ids, seeds, tuple(blocks), batch.batch_id, batch.num_edges, ready)


def match_order(method: str) -> Order:
    """Order of a window by match degree (FastGL, section 4.1): each batch shares much with the one before.

    Args:
        method: a name that :func:`~gnnsample_lab.features.reuse.reorder.reorder` takes.
    """

    def order(batches: Sequence[Any]) -> Sequence[int]:
        from gnnsample_lab.features.reuse.match import match_degrees
        from gnnsample_lab.features.reuse.reorder import reorder

        if len(batches) < 3:  # the first stays first, so there is nothing to choose
            return range(len(batches))
        return [int(i) for i in reorder(match_degrees([b.node_ids for b in batches]), method=method)]

    return order
