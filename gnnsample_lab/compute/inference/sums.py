"""Sums over the edges of a range of vertices: from a whole table of messages, or from one chunk after another.

On a GPU whole tables go through the kernels of training, and chunks through ``chunk_sums.cu``. On a CPU both are one
Numba function, for which a whole table is a single chunk.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# Numba infers the types of its functions; annotations would only repeat the docstrings.
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnsample_lab.compute import attention
from gnnsample_lab.compute.aggregation import register_tile
from gnnsample_lab.compute.aggregation.csr import (
    Csr,
    blocks_for,
    function,
    pointer,
    scalar,
    scalar_type,
    stream_for,
)
from gnnsample_lab.device.jit import njit, prange

_NO_SOURCE = 2**31 - 1
"""The source behind a row's last edge."""
_NONE, _WEIGHTS, _SOFTMAX = 0, 1, 2
"""What an edge is multiplied by, as in ``chunk_sums.cu``."""


@dataclass(eq=False)
class Topology:
    """A graph's edges as tensors on the device: ``indptr`` ``int64[N + 1]``, ``indices`` ``int32[E]``, sorted by source
    within a vertex, ``weight`` ``[E]`` in the type of the features, or None.
    """

    indptr: Any
    indices: Any
    weight: Any = None
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)
    """Numbers of edges by type."""

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def on_gpu(self) -> bool:
        return bool(self.indices.is_cuda)

    def lengths(self, begin: int, end: int, like: Any, weighted: bool) -> Any:
        """Edges of the vertices ``begin`` to ``end``, or the sums of their weights: a column in ``like``'s type.

        Those of all vertices without weights are made once.
        """
        if not weighted or self.weight is None:
            found = self.kept.get(like.dtype)
            if found is not None:
                return found[begin:end]
            counts = self.indptr[begin + 1 : end + 1] - self.indptr[begin:end]
            found = counts.to(like.dtype).unsqueeze(1)
            if len(found) == self.num_nodes:
                self.kept[like.dtype] = found
            return found
        import torch

        total = torch.zeros((end - begin, 1), dtype=like.dtype, device=like.device)
        if self.on_gpu:
            with stream_for(like):
                register_tile.launch(self.rows(begin, end), self.weight.unsqueeze(1), total, direct=True)
        else:
            sums = Sums(self, begin, end, total, Scale(weighted=True))
            sums.add(0, self.num_nodes, torch.ones((self.num_nodes, 1), dtype=like.dtype))
        return total

    def rows(self, begin: int, end: int) -> Csr:
        """The edges of a range of vertices for the kernels: views, with positions of the whole graph."""
        indptr = self.indptr[begin : end + 1]
        return Csr(indptr, self.indices, end - begin, self.num_nodes, len(self.indices))


@dataclass(eq=False)
class Scale:
    """What an edge's message is multiplied by: nothing, its weight, or its share of the edge softmax.

    Attributes:
        weighted: its weight, where the graph has weights.
        source, target: scores of all vertices, ``[N, heads]``, for the softmax, or None.
        slope: of the leaky ReLU.
    """

    weighted: bool = False
    source: Any = None
    target: Any = None
    slope: float = 0.2


def whole(
    topology: Topology,
    begin: int,
    end: int,
    message: Any,
    scale: Scale,
    mean: bool,
    fold: Any = None,
) -> Any:
    """Sums (or means) over the edges of the vertices ``begin`` to ``end``: ``[end - begin, F]``.

    Args:
        message: of all vertices, ``[N, F]``, dense.
        fold: what happens to the sums as they are written (:class:`~gnnsample_lab.compute.layers.Fold`), or None.
    """
    import torch

    csr = topology.rows(begin, end)
    if topology.on_gpu and scale.source is not None:
        heads = scale.source.shape[1]
        values = message.view(len(message), heads, message.shape[1] // heads)
        return attention.forward(csr, values, scale.source, scale.target[begin:end], scale.slope)[0].flatten(
            1
        )
    if topology.on_gpu:
        out = message.new_empty((end - begin, message.shape[1]))
        with stream_for(message):
            weight = topology.weight if scale.weighted else None
            register_tile.launch(csr, message, out, weight, mean, fold=fold)
        return out
    total = torch.zeros((end - begin, message.shape[1]), dtype=message.dtype)
    Sums(topology, begin, end, total, scale).add(0, topology.num_nodes, message)
    return folded(topology, begin, end, total, mean, fold)


def folded(topology: Topology, begin: int, end: int, total: Any, mean: bool, fold: Any) -> Any:
    """Sums that are complete, as :func:`whole` gives them; they may be overwritten."""
    if len(total) == 0 or not (mean or fold):
        return total
    if not topology.on_gpu:
        lengths = topology.lengths(begin, end, total, False)
        if mean:
            total /= lengths.clamp(min=1)
        return total if fold is None else fold.apply(total, lengths)
    own, bias, loop, relu = (
        (None, None, False, False) if fold is None else (fold.own, fold.bias, fold.loop, fold.relu)
    )
    features = total.shape[1]
    vec = register_tile.vector_width(features, features, total, *(a for a in (own, bias) if a is not None))
    args = (
        pointer(topology.indptr[begin : end + 1]), pointer(total), pointer(own), pointer(bias), np.uint64(len(total)),
        np.uint32(features), np.uint32(2 if loop else mean), np.uint32(relu),
    )  # fmt: skip
    with stream_for(total):
        kernel = function(
            "inference/chunk_sums.cu", "fold_rows", (("SCALAR", scalar_type(total)), ("VEC", vec))
        )
        kernel(blocks_for(len(total) * features // vec, 256), (256,), args)
    return total


class Sums:
    """Sums over the edges of a range of vertices that grow chunk by chunk.

    Args:
        topology: of the graph.
        begin, end: the vertices.
        out: ``[end - begin, F]``, zeros; it is added to.
        scale: what messages are multiplied by.
    """

    def __init__(self, topology: Topology, begin: int, end: int, out: Any, scale: Scale) -> None:
        import torch

        self.topology, self.out, self.scale = topology, out, scale
        self.indptr = topology.indptr[begin : end + 1]
        self.cursor = self.indptr[:-1].clone()
        self.ahead, self.log_sum = None, None
        self.mode = _SOFTMAX if scale.source is not None else _WEIGHTS if scale.weighted else _NONE
        if self.mode == _WEIGHTS and topology.weight is None:
            self.mode = _NONE
        if self.mode == _SOFTMAX:
            self.target = scale.target[begin:end]
            self.log_sum = self._log_sums(begin, end)
        if topology.on_gpu:
            if len(topology.indices) == 0:
                self.ahead = torch.full((end - begin,), _NO_SOURCE, dtype=torch.int32, device=out.device)
            else:
                first = topology.indices[self.cursor.clamp(max=len(topology.indices) - 1)]
                self.ahead = torch.where(self.indptr[1:] > self.cursor, first, _NO_SOURCE).int()

    def _log_sums(self, begin: int, end: int) -> Any:
        """Logarithm of the softmax's denominator of each row and head."""
        scale, topology = self.scale, self.topology
        if topology.on_gpu:
            # The scores stand in for the values: a vector of one feature per head.
            values = scale.source.unsqueeze(2)
            return attention.forward(
                topology.rows(begin, end), values, scale.source, self.target, scale.slope
            )[1]
        found = scale.target.new_zeros(self.target.shape)
        log_sums(*_arrays(self.indptr, topology.indices, scale.source, self.target, found), scale.slope)
        return found

    def add(self, begin: int, end: int, message: Any) -> None:
        """Add the edges from the sources ``begin`` to ``end``; chunks come in order.

        Args:
            message: of these sources, ``[end - begin, F]``, dense.
        """
        if len(self.cursor) == 0:
            return
        topology, scale, features = self.topology, self.scale, self.out.shape[1]
        heads = scale.source.shape[1] if self.mode == _SOFTMAX else 1
        if not topology.on_gpu:
            nothing, nothings = self.out.new_empty(0), self.out.new_empty((0, 1))
            softmax = (scale.source, self.target, self.log_sum) if self.mode == _SOFTMAX else (nothings,) * 3
            weight = topology.weight if self.mode == _WEIGHTS else nothing
            arrays = _arrays(self.indptr, topology.indices, self.cursor, message, weight, *softmax, self.out)
            add_chunk(*arrays, begin, end, self.mode, features // heads, scale.slope)
            return
        vec = register_tile.vector_width(features, features // heads, message, self.out)
        lanes = max(4, min(32, register_tile.power_of_two(-(-features // vec))))
        softmax = (scale.source, self.target, self.log_sum) if self.mode == _SOFTMAX else (None,) * 3
        args = (
            pointer(self.indptr), pointer(topology.indices), pointer(self.cursor), pointer(self.ahead),
            np.int32(begin), np.int32(end), pointer(message), pointer(topology.weight),
            *map(pointer, softmax), pointer(self.out), np.uint64(len(self.cursor)), np.uint32(features),
            np.uint32(features // heads), scalar(self.out, scale.slope),
        )  # fmt: skip
        macros = (("SCALAR", scalar_type(self.out)), ("VEC", vec), ("LANES", lanes), ("COEF", self.mode))
        with stream_for(self.out):
            kernel = function("inference/chunk_sums.cu", "add_chunk", macros)
            kernel(blocks_for(len(self.cursor), 256), (256,), args)


def _arrays(*tensors: Any) -> tuple[np.ndarray, ...]:
    return tuple(tensor.numpy() for tensor in tensors)


@njit(parallel=True, nogil=True, cache=True)
def add_chunk(
    indptr, indices, cursor, x, weight, source, target, log_sum, out, begin, end, mode, size, slope
):
    """The twin of ``chunk_sums.cu`` on the CPU: row by row, edge by edge."""
    for row in prange(len(cursor)):
        at, stop = cursor[row], indptr[row + 1]
        while at < stop and indices[at] < end:
            s = indices[at]
            if mode == 2:
                for h in range(source.shape[1]):
                    score = source[s, h] + target[row, h]
                    share = np.exp((score if score > 0 else score * slope) - log_sum[row, h])
                    for f in range(h * size, (h + 1) * size):
                        out[row, f] += share * x[s - begin, f]
            elif mode == 1:
                for f in range(out.shape[1]):
                    out[row, f] += weight[at] * x[s - begin, f]
            else:
                for f in range(out.shape[1]):
                    out[row, f] += x[s - begin, f]
            at += 1
        cursor[row] = at


@njit(parallel=True, nogil=True, cache=True)
def log_sums(indptr, indices, source, target, out, slope):
    """``out[row, h]``: logarithm of the sum of ``exp(score)`` over the edges of the row; 0 without edges."""
    for row in prange(len(out)):
        begin, end = indptr[row], indptr[row + 1]
        for h in range(out.shape[1]):
            highest = -np.inf
            for e in range(begin, end):
                score = source[indices[e], h] + target[row, h]
                highest = max(highest, score if score > 0 else score * slope)
            total = 0.0
            for e in range(begin, end):
                score = source[indices[e], h] + target[row, h]
                total += np.exp((score if score > 0 else score * slope) - highest)
            out[row, h] = highest + np.log(total) if end > begin else 0.0
