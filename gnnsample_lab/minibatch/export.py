"""Mini-batches for PyTorch and PyTorch Geometric. Imports torch on first use."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from gnnsample_lab.checks import is_cuda_array
from gnnsample_lab.device import rows, streams
from gnnsample_lab.sampling.neighbors.plan import WANTED_EDGES, WANTED_ROWS

from .gpu.arena import Lazily, Made
from .types import Block, MiniBatch


def tensor(array: Any) -> Any:
    """A torch tensor that shares memory with a NumPy or CuPy array (read-only arrays are copied).

    Torch's current stream waits for the array. The array's memory is reused only after the work of that stream and of
    the stream that is current when the tensor is dropped. A CuPy array that is not a result of this package must have
    been made on CuPy's current stream.
    """
    import torch

    if is_cuda_array(array):
        array = streams.exported(array)
        if hasattr(array, "is_cuda") or array.dtype.kind == "b":
            return torch.from_dlpack(array)
        # The streams are ordered already, and asking for torch's takes longer than everything else here.
        return torch.from_dlpack(array.__dlpack__(stream=-1))
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
    """A mini-batch as tensors on the sampler's device: global ids ``int64``, blocks input-most first.

    ``x``, rows of the graph's features, is made when it is first read.
    """

    node_ids: Any
    seeds: Any
    seed_inverse: Any
    blocks: tuple[TorchBlock, ...]
    batch_id: int
    graph: Any = field(default=None, repr=False)

    @cached_property
    def x(self) -> Any:
        """``graph.feat[node_ids]``, ``[N, F]``; None where the graph has no features.

        On a GPU where these lie there, too, later mini-batches bring their rows with them (see :func:`features`), as
        they are when the mini-batch is sampled.
        """
        feat = getattr(self.graph, "feat", None)
        if feat is None:
            return None
        import torch

        with torch.inference_mode(False):  # who reads it first may evaluate, who reads it later may train
            return features(feat, self.__dict__.get("arena"), self.node_ids)


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


class ArenaTensors:
    """Tensors in the arena of a mini-batch: torch gets the memory once, and everything else are slices of it.

    Args:
        arena: a :class:`~.gpu.arena.Arena` that holds edges.
    """

    def __init__(self, arena: Any) -> None:
        import torch

        self.arena, self.place = arena, arena.place
        end = arena.bytes if arena.wanted & WANTED_ROWS else self.place.end
        self._words = tensor(arena.view(0, end // 8, np.int64))
        self._halves = self._words.view(torch.int32)

    def _int64(self, at: int, size: int) -> Any:
        return self._words[at // 8 : at // 8 + size]

    def _int32(self, at: int, size: int) -> Any:
        return self._halves[at // 4 : at // 4 + size]

    @property
    def node_ids(self) -> Any:
        """All vertices, ``int64``."""
        return self._int64(self.place.wide_nodes, self.arena.levels[-1])

    @property
    def seed_inverse(self) -> Any:
        return self._int64(self.place.inverse, self.arena.num_seeds)

    def rows(self, dtype: Any, columns: int) -> Any:
        """Rows of features of all vertices, where the arena holds them."""
        table = self._words.view(dtype)
        begin = self.place.end // table.element_size()
        return table.as_strided((self.arena.levels[-1], columns), (columns, 1), begin)

    def sums(self, columns: int) -> tuple[Any, Any]:
        """Where the arena holds them, own rows beside sums, ``float32[n, columns]``, and picks, ``float32[n]``."""
        import torch

        table, n = self.rows(torch.float32, columns), self.arena.levels[-1]
        begin = self.place.end // 4 + n * columns
        return table, self._words.view(torch.float32)[begin : begin + n]

    def edge_index(self, hop: int) -> Any:
        """``int64[2, E]`` of the block of a hop; under ``expand="new"`` a row is a part of a longer one."""
        arena = self.arena
        mine = arena.edges_of_block(hop)
        apart = sum(arena.edges) if arena.new else mine
        return self._words.as_strided((2, mine), (apart, 1), self.place.edges[arena.first_of_block(hop)] // 8)

    def positions(self, hop: int) -> Any:
        arena = self.arena
        return self._int64(self.place.positions[arena.first_of_block(hop)], arena.edges_of_block(hop))

    def ids(self, level: int) -> Any:
        """The vertices of the first levels, as the graph stores ids."""
        narrow = self.arena.id_dtype.itemsize == 4
        return (self._int32 if narrow else self._int64)(self.place.nodes, self.arena.levels[level])

    def offsets(self, hop: int) -> Any:
        """Offsets of the rows of the block of a hop."""
        return self._int64(self.place.offsets[self.arena.first_of_block(hop)], self.arena.levels[hop] + 1)

    def local_ids(self, hop: int) -> Any:
        """Local sources of the block of a hop."""
        arena = self.arena
        return self._int32(self.place.locals[arena.first_of_block(hop)], arena.edges_of_block(hop))


class ArenaTorchBlock(Lazily, TorchBlock):
    """The block of a hop as tensors in an arena (:class:`ArenaTensors`)."""

    arena: ArenaTensors
    hop: int

    src = Made(lambda block: block.arena.ids(block.hop + 1))
    dst = Made(lambda block: block.arena.ids(block.hop))
    indptr = Made(lambda block: block.arena.offsets(block.hop))
    indices = Made(lambda block: block.arena.local_ids(block.hop))
    edge_positions = Made(lambda block: block.arena.positions(block.hop))
    edge_index = Made(lambda block: block.arena.edge_index(block.hop))

    @classmethod
    def at(cls, tensors: ArenaTensors, hop: int) -> ArenaTorchBlock:
        made: ArenaTorchBlock = cls.of(arena=tensors, hop=hop, weight=None, kept={})
        return made

    @property
    def size(self) -> tuple[int, int]:
        if "arena" not in self.__dict__:  # a copy with another field
            return super().size
        levels = self.arena.arena.levels
        return levels[self.hop + 1], levels[self.hop]


class ArenaTorchBatch(Lazily, TorchBatch):
    """A mini-batch as tensors in an arena."""

    arena: ArenaTensors

    node_ids = Made(lambda batch: batch.arena.node_ids)
    seeds = Made(lambda batch: batch.node_ids[: batch.arena.arena.levels[0]])
    seed_inverse = Made(lambda batch: batch.arena.seed_inverse)
    blocks = Made(
        lambda batch: tuple(
            ArenaTorchBlock.at(batch.arena, hop) for hop in reversed(range(len(batch.arena.arena.edges)))
        )
    )


def _arena_of(batch: MiniBatch) -> ArenaTensors | None:
    """The mini-batch as tensors of its arena; None where it has none with edges, and later ones then shall."""
    arena = getattr(batch, "arena", None)
    if arena is None:
        return None
    if not arena.wanted & WANTED_EDGES:
        arena.wishes.bits |= WANTED_EDGES
        return None
    return ArenaTensors(arena)


def to_torch(batch: MiniBatch) -> TorchBatch:
    """See :meth:`MiniBatch.to_torch`."""
    found = _arena_of(batch)
    if found is not None:
        made: TorchBatch = ArenaTorchBatch.of(arena=found, batch_id=batch.batch_id, graph=batch.graph)
        return made
    batch.ready.order()
    return TorchBatch(
        tensor(batch.node_ids).long(), tensor(batch.seeds).long(), tensor(batch.seed_inverse),
        tuple(_torch_block(b) for b in batch.blocks), batch.batch_id, batch.graph,
    )  # fmt: skip


def features(feat: Any, found: ArenaTensors | None, ids: Any) -> Any:
    """Rows ``ids`` of a graph's features, those of a mini-batch: where the launch has brought them, a view.

    Otherwise they are gathered now. Launches of later mini-batches then bring them, where the features lie on the GPU
    in rows of 128 bytes or more and the rows of a launch take a sixteenth of its memory at most. Such rows live as long
    as any other array of the mini-batch.

    Args:
        found: the mini-batch in its arena, or None.
    """
    if found is not None:
        if found.arena.holds_rows:
            return found.rows(_torch_type(feat), feat.shape[1])
        if not found.arena.wishes.sums:
            found.arena.wishes.bits |= WANTED_ROWS
    return _take(feat, ids)


def _torch_type(array: Any) -> Any:
    import torch

    return getattr(torch, array.dtype.name)


def to_pyg(batch: MiniBatch) -> Any:
    """See :meth:`MiniBatch.to_pyg`."""
    if batch.spec.expand != "new":
        raise ValueError(
            f"to_pyg() needs a sampler with expand='new', as PyG expands (got expand={batch.spec.expand!r})"
        )
    from torch_geometric.data import Data

    graph, found = batch.graph, _arena_of(batch)
    values = pyg_values(batch, found=found)
    n_id, positions = values["n_id"], values["positions"]
    if graph.feat is not None:
        values["x"] = features(graph.feat, found, n_id)
    for name, source, ids in (("y", graph.label, n_id), ("edge_weight", graph.edge_weight, positions)):
        if source is not None:
            values[name] = _take(source, ids)
    del values["positions"]
    return filled(Data(), values)


def pyg_values(batch: MiniBatch, edge_ids: Any = None, found: ArenaTensors | None = None) -> dict[str, Any]:
    """The topology of a mini-batch as attributes of PyTorch Geometric's ``Data``, and ``positions`` of its edges.

    Args:
        edge_ids: ids of the mini-batch's edges where they are at hand.
        found: the mini-batch in its arena where that is at hand.
    """
    graph, sizes = batch.graph, batch.level_sizes
    found = _arena_of(batch) if found is None else found
    if found is not None:
        last = batch.spec.num_hops - 1
        edge_index, n_id, positions = found.edge_index(last), found.node_ids, found.positions(last)
    else:
        batch.ready.order()
        block = _torch_block(batch.blocks[0])
        edge_index, n_id, positions = block.edge_index, tensor(batch.node_ids).long(), block.edge_positions
    if edge_ids is None:
        named = getattr(graph, "edge_ids", None)
        edge_ids = positions if named is None else _take(named, positions)
    return {
        "edge_index": edge_index, "num_nodes": batch.num_nodes, "n_id": n_id, "e_id": edge_ids, "batch_size": sizes[0],
        "num_sampled_nodes": [sizes[0], *(b - a for a, b in pairwise(sizes))],
        "num_sampled_edges": batch.edges_by_hop, "positions": positions,
    }  # fmt: skip


def filled(data: Any, values: dict[str, Any]) -> Any:
    """A ``Data`` of PyTorch Geometric with attributes set, all at once: one by one takes as long as a small sample."""
    mapping = getattr(getattr(data, "_store", None), "_mapping", None)
    if isinstance(mapping, dict):
        mapping.update(values)
    else:
        for name, value in values.items():
            setattr(data, name, value)
    return data


def _take(source: Any, ids: Any) -> Any:
    """Rows ``ids`` (a tensor) of ``source`` on the device of ``ids``; a host table is gathered on the host."""
    import torch

    if is_cuda_array(source):
        table = tensor(source)
        return rows.taken(table, ids) if rows.takes(table) else torch.index_select(table, 0, ids)
    return tensor(np.asarray(source[ids.cpu().numpy()])).to(ids.device)
