"""Mini-batches: blocks with local ids, and the canonical form in which two samples are compared."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gnnsample_lab.device import streams
from gnnsample_lab.device.arrays import array_module, offsets_of, to_host
from gnnsample_lab.sampling.neighbors.spec import HopPicks, SampleSpec


@dataclass(frozen=True, eq=False)
class Block:
    """One bipartite message-flow layer in CSR over its destinations. ``indices`` are local ids into ``src``.

    All that a layer may ask of a block. Padded blocks and whole graphs that stand in for a sampled one are Blocks, too.

    Attributes:
        src: source vertices, global ids ``[num_src]``; begins with ``dst``.
        dst: destination vertices, global ids ``[num_dst]``.
        indptr: where each destination's edges begin, ``int64[num_dst + 1]``.
        indices: source of each edge as a local id, ``int32[num_edges]``.
        edge_positions: index of each edge in ``graph.indices``, ``int64[num_edges]``; -1 where a walk and no edge
            of the graph joins the two; None where nobody asks. No layer does.
        weight: ``int32[num_edges]``, how often the walks of a :class:`~.walks.sampler.PinSAGESampler` visited the
        source,
            or None.
        kept: what layers have derived from the block, such as its transpose.
    """

    src: Any
    dst: Any
    indptr: Any
    indices: Any
    edge_positions: Any
    weight: Any = None
    kept: dict[str, Any] = field(init=False, default_factory=dict, repr=False)

    @property
    def num_src(self) -> int:
        return int(self.src.shape[0])

    @property
    def num_dst(self) -> int:
        return int(self.dst.shape[0])

    @property
    def num_edges(self) -> int:
        return int(self.indices.shape[0])

    def __repr__(self) -> str:
        return f"Block(num_src={self.num_src}, num_dst={self.num_dst}, num_edges={self.num_edges})"


@dataclass(frozen=True, eq=False)
class CanonicalSample:
    """A sample in sorted form, independent of the orders that a schedule may choose; compares by value.

    ``arrays`` holds, in fixed order: the seeds; then per hop the sorted frontier, its counts, the edge positions
    in (vertex, position) order and their neighbours; then per block the same edges as read through local ids. Visit
    counts of walks, where there are any, follow their neighbours.
    """

    arrays: tuple[np.ndarray, ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CanonicalSample):
            return NotImplemented
        return len(self.arrays) == len(other.arrays) and all(
            np.array_equal(a, b) for a, b in zip(self.arrays, other.arrays, strict=True)
        )

    def __hash__(self) -> int:
        return hash(self.sha256())

    def sha256(self) -> str:
        """Hex digest over all arrays as little-endian ``int64``."""
        digest = hashlib.sha256()
        for array in self.arrays:
            digest.update(len(array).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class MiniBatch:
    """One sampled mini-batch. Arrays are NumPy on the CPU and CuPy on the GPU.

    On the GPU the sampler returns while its last kernel runs. The arrays may be read on the streams of CuPy and torch
    that were current when the batch was sampled. :attr:`blocks`, :meth:`canonical`, :meth:`to_cpu`, :meth:`to_torch`
    and :meth:`to_pyg` also order the streams that are current when they are called. Any other stream has to wait for
    :attr:`ready` before it reads. A program may drop every array, view and tensor of the batch at any time: the memory
    is reused only after the work of the streams named here, of those that have called ``ready.wait``, and of those
    that are current when the last array is dropped.

    Attributes:
        node_ids: all vertices of the batch, global ids; the seeds first, then those that each hop reaches first, in any
            order within a hop.
        level_sizes: ``node_ids[:level_sizes[h]]`` are the vertices reached before hop ``h``; the last entry
            counts all. Length ``num_hops + 1``.
        picks: per hop, seeds' hop first (:class:`~gnnsample_lab.sampling.neighbors.spec.HopPicks`, global ids).
        local_neighbors: per hop, ``picks[h].neighbors`` as local ids, ``int32``.
        seed_inverse: position in ``seeds`` of every seed as given, ``int64``; duplicates were merged.
        batch_id: the batch id of the draw.
        spec: the settings of the draw.
        graph: the graph sampled from.
        trace: the times of all tasks (None unless the sampler was built with ``trace=True``).
        pick_weights: per hop, the visits of each pick, ``int32[picks[h].num_picks]``; None unless the picks come
            from random walks (:class:`~.walks.sampler.PinSAGESampler`). ``positions`` of such picks are -1: a walk
            joins two vertices that need not be neighbours.
        ready: an event after the sampling, for streams of CuPy and torch
            (:class:`~gnnsample_lab.device.streams.Ready`): ``batch.ready.wait(stream)``. On the CPU it is an object
            with the same methods that never waits.
    """

    node_ids: Any
    level_sizes: tuple[int, ...]
    picks: Sequence[HopPicks]
    local_neighbors: Sequence[Any]
    seed_inverse: Any
    batch_id: int
    spec: SampleSpec
    graph: Any = field(repr=False)
    trace: Any = field(default=None, repr=False)
    pick_weights: Sequence[Any] | None = field(default=None, repr=False)
    ready: Any = field(default=streams.DONE, repr=False)

    @property
    def seeds(self) -> Any:
        """The distinct seeds in first-seen order, global ids: the first entries of ``node_ids``."""
        return self.node_ids[: self.level_sizes[0]]

    @property
    def num_nodes(self) -> int:
        return self.level_sizes[-1]

    @property
    def num_edges(self) -> int:
        """Picks of all hops together."""
        return sum(self.edges_by_hop)

    @property
    def edges_by_hop(self) -> list[int]:
        """Picks of each hop."""
        return [int(local.size) for local in self.local_neighbors]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Message-flow blocks, input-most layer first: ``for layer, block in zip(layers, blocks)``.

        The current streams of CuPy and torch wait for them; the host does not.
        """
        self.ready.order()
        blocks, ready = self._blocks
        if ready is not self.ready:
            ready.order()  # the arrays of a union may have been made on another stream
        return blocks

    @cached_property
    def _blocks(self) -> tuple[tuple[Block, ...], Any]:
        """The blocks, and the event after the work that makes them."""
        return self._made_blocks()

    def _made_blocks(self) -> tuple[tuple[Block, ...], Any]:
        hops = reversed(range(self.spec.num_hops))
        if self.spec.expand != "new":
            return tuple(map(self._hop_block, hops)), self.ready
        if isinstance(self.node_ids, np.ndarray):
            return tuple(map(self._union_block, hops)), streams.DONE
        with streams.leasing() as ready:
            return tuple(map(self._union_block, hops)), ready

    def _hop_block(self, hop: int) -> Block:
        picks = self.picks[hop]
        src = self.node_ids[: self.level_sizes[hop + 1]]
        weight = None if self.pick_weights is None else self.pick_weights[hop]
        return Block(
            src,
            src[: self.level_sizes[hop]],
            picks.offsets,
            self.local_neighbors[hop],
            picks.positions,
            weight,
        )

    def _union_block(self, hop: int) -> Block:
        # Under expand="new" a vertex is expanded once, so the layer at depth d needs the edges of all hops up to it.
        xp = array_module(self.node_ids)
        hops = range(hop + 1)
        counts = xp.concatenate([self.picks[h].counts for h in hops])
        src = self.node_ids[: self.level_sizes[hop + 1]]
        indices = xp.concatenate([self.local_neighbors[h] for h in hops])
        positions = xp.concatenate([self.picks[h].positions for h in hops])
        weight = None
        if self.pick_weights is not None:
            weight = xp.concatenate([self.pick_weights[h] for h in hops])
        return Block(src, src[: self.level_sizes[hop]], offsets_of(counts), indices, positions, weight)

    def canonical(self) -> CanonicalSample:
        """The sorted form: equal exactly when two mini-batches hold the same sample. Waits for the GPU."""
        host = self.to_cpu()
        arrays: list[np.ndarray] = [host.seeds, host.seed_inverse]
        weights = host.pick_weights or (None,) * len(host.picks)
        for picks, weight in zip(host.picks, weights, strict=True):
            arrays += _canonical_rows(picks.frontier, picks.counts, picks.neighbors, picks.positions, weight)
        for block in host.blocks:
            counts, sources = np.diff(block.indptr), block.src[block.indices]
            arrays += _canonical_rows(block.dst, counts, sources, block.edge_positions, block.weight)
            arrays.append(np.sort(block.src))
        return CanonicalSample(tuple(np.asarray(a, dtype=np.int64) for a in arrays))

    def to_cpu(self) -> MiniBatch:
        """The same mini-batch in NumPy arrays; waits for the GPU."""
        if isinstance(self.node_ids, np.ndarray):
            return self
        self.ready.order()
        weights = None if self.pick_weights is None else tuple(map(to_host, self.pick_weights))
        return MiniBatch(
            to_host(self.node_ids), self.level_sizes, tuple(p.to_cpu() for p in self.picks),
            tuple(map(to_host, self.local_neighbors)), to_host(self.seed_inverse), self.batch_id, self.spec,
            self.graph, self.trace, weights,
        )  # fmt: skip

    def to_torch(self) -> Any:
        """Torch tensors on the same device (shared memory), see :class:`~.export.TorchBatch`; ``x`` are its features.

        The current streams of CuPy and torch wait for the batch. The tensors may be read on these; another stream of
        torch waits for :attr:`ready`, or for the one that was current here. They may be dropped at any time, as the
        arrays may.
        """
        from .export import to_torch

        return to_torch(self)

    def to_pyg(self) -> Any:
        """A ``torch_geometric.data.Data`` as PyTorch Geometric's NeighborLoader yields it; needs ``expand="new"``.

        Streams and memory are as in :meth:`to_torch`.

        Raises:
            ValueError: the batch was sampled with another ``expand``.
        """
        from .export import to_pyg

        return to_pyg(self)

    def __repr__(self) -> str:
        sizes = " -> ".join(str(n) for n in self.level_sizes)
        return f"MiniBatch(batch_id={self.batch_id}, nodes per hop {sizes}, edges={self.num_edges})"


def _canonical_rows(
    rows: Any, counts: Any, neighbors: Any, positions: Any, weights: Any = None
) -> list[np.ndarray]:
    # Sort by row first. In a valid sample positions grow with the vertex id anyway, but a pick in the row of a wrong
    # vertex must not be sorted into the right one. With replacement, equal positions have equal neighbours, so their
    # order does not matter. Picks of walks have no position; their neighbours, distinct within a row, order them.
    order = np.argsort(rows, kind="stable")
    by_position = np.lexsort((neighbors, positions, np.repeat(rows, counts)))
    canonical = [rows[order], counts[order], positions[by_position], neighbors[by_position]]
    return canonical if weights is None else [*canonical, weights[by_position]]
