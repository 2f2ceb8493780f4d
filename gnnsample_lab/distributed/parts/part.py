"""What one rank keeps: the in-neighbour lists of its vertices, as they are in the whole graph, and their data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnsample_lab.checks import flag, shown, whole
from gnnsample_lab.device.arrays import array_module, offsets_of, to_host
from gnnsample_lab.device.jit import njit
from gnnsample_lab.graph.graph import Graph, check_graph
from gnnsample_lab.sampling.weights import IntegerWeights, integer_weights

from .partition import Partition, check_partition


@dataclass(frozen=True, eq=False, repr=False)
class Part:
    """The share of one rank; arrays are NumPy, memory-mapped where they were opened from files.

    Draws are keyed by original ids and by the position in a list, so lists keep their original ids in their order:
    what ranks sample from their parts is what one sampler draws from the whole graph.

    Attributes:
        rank, num_parts: which part of how many.
        num_nodes: vertices of the whole graph.
        vertices: original ids of the owned vertices, ascending, ``int32[n]`` or ``int64[n]``.
        indptr: the list of ``vertices[i]`` is ``indices[indptr[i]:indptr[i+1]]``, ``int64[n+1]``.
        indices: original ids of the sources, ``int32[e]`` (int64 from 2**31 vertices on), in the graph's order.
        edge_weight: ``float32[e]`` or None.
        prefix: exclusive prefix sums of the whole graph's integer weights over this part's edges, ``uint64[e+1]``, or
            None. Weighted draws read these: the scale of the integers is one for all parts.
        available: in-edges of positive weight, ``int32[n]``, or None.
        feat: ``float32[n, F]``, rows as ``vertices``; or None.
        label: ``int64[n]`` or ``int64[n, tasks]``, or None.
        seeds: training vertices that the part owns, original ids, ``int64[t]``, in the order given to ``partition``.
        partition_digest: of the partition that this is a part of.
        digests: of the whole graph's arrays of :data:`HASHED`, by name: those that the part has, where it was opened
            from files. Older versions saved none.
    """

    rank: int
    num_parts: int
    num_nodes: int
    vertices: Any
    indptr: Any
    indices: Any
    edge_weight: Any
    prefix: Any
    available: Any
    feat: Any
    label: Any
    seeds: Any
    partition_digest: str
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    @property
    def weights(self) -> IntegerWeights | None:
        """The integer weights of this part's edges, or None."""
        return None if self.prefix is None else IntegerWeights(self.prefix, self.available)

    def arrays(self) -> dict[str, Any]:
        """All arrays that are there, by the name of their attribute."""
        named = {name: getattr(self, name) for name in ARRAYS}
        return {name: array for name, array in named.items() if array is not None}

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes of each array."""
        return {name: int(array.nbytes) for name, array in self.arrays().items()}

    def __repr__(self) -> str:
        return (
            f"Part({self.rank} of {self.num_parts}: {len(self.vertices):,} of {self.num_nodes:,} vertices, "
            f"{self.num_edges:,} edges, {len(self.seeds):,} seeds)"
        )


ARRAYS = (
    "vertices", "indptr", "indices", "edge_weight", "prefix", "available", "feat", "label", "seeds",
)  # fmt: skip
"""Attributes that are arrays or None."""
HASHED = ("edge_weight", "feat")
"""Those which a partition's digest says nothing about, and which ranks must have of one graph."""


def part_of(
    graph: Graph,
    partition: Partition,
    rank: int,
    *,
    features: bool = True,
    weights: IntegerWeights | None = None,
) -> Part:
    """Cut one rank's part out of a graph.

    Args:
        graph: the whole graph, on either device; its arrays are copied to the host.
        partition: of this graph.
        rank: which part.
        features: False leaves the feature rows out.
        weights: ``integer_weights`` of the graph, for callers that cut several parts; computed when None.

    Raises:
        TypeError, ValueError: an argument of the wrong kind; a partition of another graph; a rank out of range.
    """
    graph = check_graph(graph)
    partition = check_partition(partition, graph)
    rank = whole("rank", rank, 0, partition.num_parts - 1)
    features = flag("features", features)
    if weights is not None and not isinstance(weights, IntegerWeights):
        raise TypeError(f"weights must be IntegerWeights or None (got {shown(weights)})")
    vertices = partition.old_of[partition.boundaries[rank] : partition.boundaries[rank + 1]]
    whole_indptr = to_host(graph.indptr)
    begins = whole_indptr[vertices]
    indptr = offsets_of(whole_indptr[vertices.astype(np.int64) + 1] - begins)
    edge_weight = prefix = available = None
    if graph.edge_weight is not None:
        edge_weight = gather_lists(begins, indptr, to_host(graph.edge_weight))
        if weights is None:
            weights = integer_weights(whole_indptr, to_host(graph.edge_weight))
        amount = gather_lists(begins, indptr, np.diff(to_host(weights.prefix)))
        prefix = np.zeros(len(amount) + 1, dtype=np.uint64)
        np.cumsum(amount, out=prefix[1:])
        available = to_host(weights.available)[vertices]
    feat = graph.feat if features else None
    return Part(
        rank, partition.num_parts, graph.num_nodes, np.array(vertices), indptr,
        gather_lists(begins, indptr, to_host(graph.indices)), edge_weight, prefix, available,
        None if feat is None else _rows(feat, vertices),
        None if graph.label is None else _rows(graph.label, vertices),
        partition.seeds[partition.owner[partition.seeds] == rank], partition.digest(),
    )  # fmt: skip


def _rows(array: Any, vertices: np.ndarray) -> np.ndarray:
    return to_host(array[array_module(array).asarray(vertices)])


def vertex_records(graph: Graph, partition: Partition) -> np.ndarray:
    """Where each vertex's list begins in its owner's ``Part.indices``, and its in-degree, by original id.

    Replicated on all ranks, it saves a read of the owner's ``indptr`` for every list.

    Args:
        graph: the whole graph.
        partition: of this graph.

    Returns:
        ``int32[N, 2]``, 8 bytes a vertex; ``int64[N, 2]`` where a part has 2**31 edges or more.

    Raises:
        TypeError, ValueError: no graph, no partition, or one of another graph.
    """
    graph = check_graph(graph)
    partition = check_partition(partition, graph)
    indptr = to_host(graph.indptr)
    degree = indptr[1:] - indptr[:-1]
    records = np.empty((graph.num_nodes, 2), np.int32 if partition.edges.max() < 2**31 else np.int64)
    for rank in range(partition.num_parts):
        vertices = partition.old_of[partition.boundaries[rank] : partition.boundaries[rank + 1]]
        records[vertices, 0] = offsets_of(degree[vertices])[:-1]
    records[:, 1] = degree
    return records


def gather_lists(begins: np.ndarray, offsets: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Copies of the lists of ``values`` that begin at ``begins``; list i becomes ``offsets[i]:offsets[i+1]``."""
    out = np.empty(int(offsets[-1]), dtype=values.dtype)
    _copy_lists(begins, offsets, values, out)
    return out


@njit(cache=True)
def _copy_lists(begins, offsets, values, out):  # type: ignore[no-untyped-def]
    for i in range(begins.size):
        begin, at = begins[i], offsets[i]
        for j in range(offsets[i + 1] - at):
            out[at + j] = values[begin + j]
