"""Mini-batches for PyTorch and PyTorch Geometric. Imports torch on first use."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from gnnsample_lab.checks import is_cuda_array
from gnnsample_lab.device import streams

from .types import Block, MiniBatch


def tensor(array: Any) -> Any:
    """A torch tensor that shares memory with a NumPy or CuPy array (read-only arrays are copied).

    Torch's current stream waits for the array. The array's memory is reused only after the work of that stream and of
    the stream that is current when the tensor is dropped. A CuPy array that is not a result of this package must have
    been made on CuPy's current stream.
    """
    import torch

    if is_cuda_array(array):
        return torch.from_dlpack(streams.exported(array))
    array = np.ascontiguousarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


@dataclass(frozen=True, eq=False)
class TorchBlock:
    """A :class:`~.types.Block` as tensors, with ``edge_index`` (``int64[2, E]``: local source, local destination).

    ``weight`` is None where the block has none. ``kept`` is as in a block.
    """

    src: Any
    dst: Any
    indptr: Any
    indices: Any
    edge_positions: Any
    edge_index: Any
    weight: Any = None
    kept: dict[str, Any] = field(init=False, default_factory=dict, repr=False)

    @property
    def size(self) -> tuple[int, int]:
        """(num_src, num_dst), the ``size`` argument of bipartite PyG layers."""
        return self.src.numel(), self.dst.numel()


@dataclass(frozen=True, eq=False)
class TorchBatch:
    """A mini-batch as tensors on the sampler's device: global ids ``int64``, blocks input-most first."""

    node_ids: Any
    seeds: Any
    seed_inverse: Any
    blocks: tuple[TorchBlock, ...]
    batch_id: int


def _torch_block(block: Block) -> TorchBlock:
    import torch

    indptr, indices = tensor(block.indptr), tensor(block.indices)
    rows = torch.arange(block.num_dst, device=indices.device)
    dst = torch.repeat_interleave(rows, indptr.diff(), output_size=block.num_edges)
    edge_index = torch.stack([indices.long(), dst])
    weight = None if block.weight is None else tensor(block.weight)
    return TorchBlock(
        tensor(block.src), tensor(block.dst), indptr, indices, tensor(block.edge_positions), edge_index, weight
    )  # fmt: skip


def to_torch(batch: MiniBatch) -> TorchBatch:
    """See :meth:`MiniBatch.to_torch`."""
    batch.ready.order()
    return TorchBatch(
        tensor(batch.node_ids).long(), tensor(batch.seeds).long(), tensor(batch.seed_inverse),
        tuple(_torch_block(b) for b in batch.blocks), batch.batch_id,
    )  # fmt: skip


def to_pyg(batch: MiniBatch) -> Any:
    """See :meth:`MiniBatch.to_pyg`."""
    if batch.spec.expand != "new":
        raise ValueError(
            f"to_pyg() needs a sampler with expand='new', as PyG expands (got expand={batch.spec.expand!r})"
        )
    from torch_geometric.data import Data

    batch.ready.order()
    graph, block = batch.graph, _torch_block(batch.blocks[0])
    sizes = batch.level_sizes
    data = Data(edge_index=block.edge_index, num_nodes=batch.num_nodes)
    data.n_id = tensor(batch.node_ids).long()
    edge_ids = getattr(graph, "edge_ids", None)
    data.e_id = block.edge_positions if edge_ids is None else _take(edge_ids, batch.blocks[0].edge_positions)
    data.batch_size = sizes[0]
    data.num_sampled_nodes = [sizes[0], *(b - a for a, b in pairwise(sizes))]
    data.num_sampled_edges = [p.num_picks for p in batch.picks]
    for name, source in (("x", graph.feat), ("y", graph.label)):
        if source is not None:
            setattr(data, name, _take(source, batch.node_ids))
    if graph.edge_weight is not None:
        data.edge_weight = _take(graph.edge_weight, batch.blocks[0].edge_positions)
    return data


def _take(source: Any, ids: Any) -> Any:
    """Rows ``ids`` of ``source`` as a tensor on the device of ``ids``; a host table is gathered on the host."""
    if is_cuda_array(ids) and not is_cuda_array(source):
        import cupy

        return tensor(np.asarray(source[cupy.asnumpy(ids)])).cuda()
    return tensor(source[ids])
