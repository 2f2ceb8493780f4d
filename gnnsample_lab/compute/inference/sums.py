"""Sums over the edges of a range of vertices: from a whole table of messages, or from one chunk after another.

On a GPU whole tables go through ``row_sums.cu``, or ``head_sums.cu`` where heads weigh rows themselves, and chunks
through ``chunk_sums.cu``. On a CPU both are one Numba function, for which a whole table is a single chunk.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# Numba infers the types of its functions; annotations would only repeat the docstrings.
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

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
from gnnsample_lab.device import runtime
from gnnsample_lab.device.jit import njit, prange

from .messages import Columns

_NO_SOURCE = 2**31 - 1
"""The source behind a row's last edge."""
_NONE, _WEIGHTS, _SOFTMAX = 0, 1, 2
"""What an edge is multiplied by, as in ``row_sums.cu`` and ``chunk_sums.cu``."""
_LEAST_PIECE, _MOST_PIECES = 256, 1 << 18
_THREADS = 256
"""Of a block of ``row_sums.cu`` and ``head_sums.cu``."""
_SHARED = 16
"""Edges per vertex from which an order of vertices is worth finding."""
ROUNDS = 10
"""Of label propagation, for that order."""
CUT_BYTES = 16
"""Per vertex, of where its edges are cut in two, and of both halves' first pieces."""
TURN_BYTES = 40
"""Per vertex while it is found."""
_TEAM, _UNROLL = 32, 4
"""Lanes per row, and edges in flight a lane: 16 lanes, 8 edges, and loads past the L1 were slower."""


@dataclass(eq=False)
class Pieces:
    """Rows with more than ``length`` edges, cut into as many at a time, so that a hub is not one team's work.

    Attributes:
        first: ``int32[N + 1]``, a row's first piece. ``row``: ``int32[count]``, a piece's row.
    """

    length: int
    first: Any
    row: Any

    @property
    def count(self) -> int:
        return len(self.row)

    @classmethod
    def of(cls, edges: Any, num_edges: int) -> Pieces:
        """Of rows with so many ``edges``, ``int64[N]`` on any device, of a graph of ``num_edges``."""
        import torch

        length = max(_LEAST_PIECE, register_tile.power_of_two(-(-num_edges // _MOST_PIECES)))
        counts = torch.where(edges > length, (edges + length - 1) // length, 0)
        first = torch.zeros(len(edges) + 1, dtype=torch.int32, device=edges.device)
        first[1:] = counts.cumsum(0)
        rows = torch.arange(len(counts), dtype=torch.int32, device=edges.device)
        return cls(length, first, rows.repeat_interleave(counts))


@dataclass(eq=False)
class Run:
    """Some edges of each vertex, which lie side by side: ``starts`` and ``stops``, ``int64[N]``, and their pieces."""

    starts: Any
    stops: Any
    pieces: Pieces


@dataclass(eq=False)
class Early:
    """Sums over the edges out of the vertices below ``cut``, made while the messages of the others were on their way.

    Attributes:
        sums: of all vertices, ``[N, columns.width]``.
    """

    cut: int
    sums: Any


def by_community(indptr: Any, indices: Any) -> Any:
    """Vertices in an order in which neighbours are near: by labels that spread along edges, ``int32[N]``."""
    import torch

    n = len(indptr) - 1
    label = torch.arange(n, dtype=torch.int32, device=indptr.device)
    other = torch.empty_like(label)
    with stream_for(label):
        kernel = function("inference/vote.cu", "vote")
        for number in range(ROUNDS):
            args = (
                pointer(indptr),
                pointer(indices),
                pointer(label),
                pointer(other),
                np.uint64(n),
                np.uint32(number),
            )
            kernel(blocks_for(n, 256), (256,), args)
            label, other = other, label
    return label.argsort(stable=True).int()


@dataclass(eq=False)
class Topology:
    """A graph's edges as tensors on the device: ``indptr`` ``int64[N + 1]``, ``indices`` ``int32[E]``, sorted by source
    within a vertex, ``weight`` ``[E]`` in the type of the features, or None.
    """

    indptr: Any
    indices: Any
    weight: Any = None
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)
    """Numbers of edges by type, the pieces, the order of vertices, and where edges are cut in two halves."""

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def on_gpu(self) -> bool:
        return bool(self.indices.is_cuda)

    @property
    def pieces(self) -> Pieces:
        """Of the long rows, made once."""
        if "pieces" not in self.kept:
            self.kept["pieces"] = Pieces.of(self.indptr[1:] - self.indptr[:-1], len(self.indices))
        return self.kept["pieces"]

    @property
    def cut_bytes(self) -> int:
        """Of what :meth:`halves` keeps."""
        return CUT_BYTES * self.num_nodes * ("halves" in self.kept)

    def halves(self, cut: int) -> tuple[Run, Run]:
        """The edges of all vertices out of the vertices below ``cut``, and the others; of the last cut they are kept.
        On a GPU."""
        import torch

        known, halves = self.kept.get("halves", (None, None))
        if known != cut:
            at = torch.empty_like(self.indptr[1:])
            with stream_for(at):
                kernel = function("inference/row_sums.cu", "cut_rows", (("SCALAR", "float"),))
                args = (
                    pointer(self.indptr),
                    pointer(self.indices),
                    pointer(at),
                    np.uint64(len(at)),
                    np.int32(cut),
                )
                kernel(blocks_for(len(at), _THREADS), (_THREADS,), args)
            begins, ends = self.indptr[:-1], self.indptr[1:]
            halves = tuple(
                Run(starts, stops, Pieces.of(stops - starts, len(self.indices)))
                for starts, stops in ((begins, at), (at, ends))
            )
            self.kept["halves"] = cut, halves
        return halves

    @property
    def run(self) -> Run:
        """All edges of all vertices."""
        return Run(self.indptr[:-1], self.indptr[1:], self.pieces)

    def has_turns(self, row_bytes: int) -> bool:
        """Whether an order of vertices pays: messages of ``row_bytes`` exceed the L2, and many share one."""
        if ROUNDS == 0 or len(self.indices) < _SHARED * self.num_nodes:
            return False
        return self.num_nodes * row_bytes > int(runtime.device_properties()["l2CacheSize"])

    def turns(self, begin: int, end: int, x: Any) -> Any:
        """In which order to sum the vertices ``begin`` to ``end`` for messages ``x``: ``int32[N]``, or None: by id."""
        if end - begin < self.num_nodes or not self.has_turns(x.shape[1] * x.element_size()):
            return None
        if "turns" not in self.kept:
            self.kept["turns"] = by_community(self.indptr, self.indices)
        return self.kept["turns"]

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
            csr = Csr(
                self.indptr[begin : end + 1], self.indices, end - begin, self.num_nodes, len(self.indices)
            )
            with stream_for(like):
                register_tile.launch(csr, self.weight.unsqueeze(1), total, direct=True)
        else:
            sums = Sums(self, begin, end, total, Columns(1, 1, 1), Scale(weighted=True))
            sums.add(0, self.num_nodes, torch.ones((self.num_nodes, 1), dtype=like.dtype))
        return total


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
    columns: Columns,
    scale: Scale,
    mean: bool,
    fold: Any = None,
    early: Early | None = None,
) -> Any:
    """Sums (or means) over the edges of the vertices ``begin`` to ``end``: ``[end - begin, heads * size]``.

    Args:
        message: of all vertices, ``[N, columns.width]``, dense.
        columns: of the messages.
        fold: what happens to the sums as they are written (:class:`~gnnsample_lab.compute.layers.Fold`), or None.
        early: what :func:`begun` has made of some of the edges, on a GPU; the others are added to it.
    """
    import torch

    if topology.on_gpu:
        out = message.new_empty((end - begin, columns.heads * columns.size))
        _RowSums(topology, begin, end, message, columns, scale, early).write(message, out, mean, fold)
        return out
    total = torch.zeros((end - begin, columns.width), dtype=message.dtype)
    Sums(topology, begin, end, total, columns, scale).add(0, topology.num_nodes, message)
    return folded(topology, begin, end, columns.cut(total), mean, fold)


def begun(topology: Topology, cut: int, message: Any, columns: Columns, scale: Scale, sums: Any) -> Early:
    """Sums of all vertices over the edges out of the first ``cut`` ones, on torch's current stream of a GPU.

    Args:
        message: as of :func:`whole`; only its first ``cut`` rows are read.
        scale: nothing or weights. ``sums``: where they go, ``[N, columns.width]``.
    """
    padded = Columns(columns.heads, columns.padded, columns.padded)
    run = topology.halves(cut)[0]
    _RowSums(topology, 0, topology.num_nodes, message, padded, scale, run=run).write(message, sums)
    return Early(cut, sums)


def per_head(topology: Topology, begin: int, end: int, x: Any, columns: Columns, scale: Scale) -> Any:
    """Rows themselves, weighted by each head's shares: ``[end - begin, heads * columns.size]``.

    Args:
        x: of all vertices, ``[N, columns.width]``, dense. ``columns``: of ``x``, which has one head.
    """
    heads = scale.source.shape[1]
    out = x.new_empty((end - begin, heads * columns.size))
    indptr, target = topology.indptr[begin : end + 1], scale.target[begin:end].contiguous()
    if not topology.on_gpu:
        found = target.new_zeros(target.shape)
        log_sums(*_arrays(indptr, topology.indices, scale.source, target, found), scale.slope)
        out.zero_()
        head_sums(
            *_arrays(indptr, topology.indices, x, scale.source, target, found, out), columns.size, scale.slope
        )
        return out
    if len(out) == 0:
        return out
    pieces, source = topology.pieces, scale.source.contiguous()
    vec = register_tile.vector_width(columns.width, columns.width, x)
    edge = int(columns.size % vec != 0 or int(pointer(out)) % 16 != 0)
    lanes, tiles = _lanes(columns.width, vec)
    macros = (("SCALAR", scalar_type(x)), ("VEC", vec), ("LANES", lanes), ("HEADS", heads), ("EDGE", edge))
    partial = x.new_empty((pieces.count, heads, columns.width))
    scales = x.new_empty((pieces.count, heads, 2))
    common = (pointer(x), pointer(source), pointer(target), pointer(partial), pointer(scales))
    after = (
        np.uint64(columns.width),
        np.uint32(columns.size),
        np.uint32(pieces.length),
        scalar(x, scale.slope),
    )
    first, order = pointer(pieces.first[begin:]), pointer(topology.turns(begin, end, x))
    with stream_for(x):
        if pieces.count:
            function("inference/head_sums.cu", "piece_head_sums", macros)(
                (*blocks_for(pieces.count * 32, _THREADS), tiles), (_THREADS,),
                (
                    pointer(indptr), pointer(topology.indices), first, pointer(pieces.row), *common,
                    np.uint64(pieces.count), np.uint64(begin), np.uint64(end - begin), *after,
                ),
            )  # fmt: skip
        function("inference/head_sums.cu", "head_sums", macros)(
            (*blocks_for(len(out) * 32, _THREADS), tiles), (_THREADS,),
            (
                pointer(indptr), pointer(topology.indices), first, order, *common, pointer(out),
                np.uint64(len(out)), *after,
            ),
        )  # fmt: skip
    return out


def _lanes(width: int, vec: int) -> tuple[int, int]:
    """Lanes that hold a row of ``width`` columns, and tiles of so many lanes."""
    lanes = max(4, min(32, register_tile.power_of_two(-(-width // vec))))
    return lanes, -(-width // (lanes * vec))


class _RowSums:
    """Sums by ``row_sums.cu`` for the vertices ``begin`` to ``end`` and messages like ``like``.

    Args:
        early: sums over some of the edges, to which the others are added. ``run``: the edges to add without it.
    """

    def __init__(
        self, topology: Topology, begin: int, end: int, like: Any, columns: Columns, scale: Scale,
        early: Early | None = None, run: Run | None = None,
    ) -> None:  # fmt: skip
        self.topology, self.begin, self.rows, self.columns = topology, begin, end - begin, columns
        self.early = None if early is None else early.sums[begin:end]
        self.run = run or (topology.run if early is None else topology.halves(early.cut)[1])
        self.indptr, self.slope = topology.indptr[begin : end + 1], scale.slope
        self.mode, self.weight = _NONE, None
        self.source = self.target = None
        if scale.source is not None:
            self.mode = _SOFTMAX
            self.source, self.target = scale.source.contiguous(), scale.target[begin:end].contiguous()
        elif scale.weighted and topology.weight is not None:
            self.mode, self.weight = _WEIGHTS, topology.weight
        pieces = self.run.pieces
        self.partial = like.new_empty((pieces.count, columns.width))
        self.scales = like.new_empty((pieces.count if self.mode == _SOFTMAX else 0, columns.heads, 2))

    def write(self, x: Any, out: Any, mean: bool = False, fold: Any = None, log_sum: Any = None) -> None:
        """Sums over all edges to ``out``, ``[rows, heads * size]``, folded."""
        if fold is not None and fold.more is not None:
            raise ValueError("fold must count own rows once (got more)")
        columns, pieces = self.columns, self.run.pieces
        if self.rows == 0 or columns.width == 0:
            return
        own, bias, loop, relu = (None, None, False, False)
        if fold is not None:
            own, bias, loop, relu = fold.own, fold.bias, fold.loop, fold.relu
            own = own if own.stride(1) == 1 else own.contiguous()
        vec = register_tile.vector_width(columns.width, columns.padded, x, self.partial)
        strides = (out.stride(0), *(() if own is None else (own.stride(0),)))
        addresses = [int(pointer(a)) for a in (out, own, bias) if a is not None]
        aligned = vec * out.element_size()
        edge = columns.size % vec or any(s % vec for s in strides) or any(a % aligned for a in addresses)
        lanes, tiles = _lanes(columns.width, vec)
        shape = (
            ("SCALAR", scalar_type(x)), ("VEC", vec), ("LANES", lanes), ("UNROLL", _UNROLL), ("COEF", self.mode),
            ("EDGE", int(bool(edge))),
        )  # fmt: skip
        starts, stops = (pointer(part[self.begin :]) for part in (self.run.starts, self.run.stops))
        run = starts, stops, pointer(self.topology.indices)
        scores = pointer(x), pointer(self.weight), pointer(self.source), pointer(self.target)
        parts = pointer(self.partial), pointer(self.scales)
        order = self.topology.turns(self.begin, self.begin + self.rows, x)
        first_piece, slope = pointer(pieces.first[self.begin :]), scalar(x, self.slope)
        heads, width = np.uint32(columns.heads), np.uint64(columns.width)
        with stream_for(x):
            if pieces.count:
                function("inference/row_sums.cu", "piece_sums", shape)(
                    (*blocks_for(pieces.count * _TEAM, _THREADS), tiles), (_THREADS,),
                    (
                        *run, first_piece, pointer(pieces.row), *scores, *parts, np.uint64(pieces.count),
                        np.uint64(self.begin), np.uint64(self.rows), width, heads, np.uint32(columns.padded),
                        np.uint32(pieces.length), slope,
                    ),
                )  # fmt: skip
            function("inference/row_sums.cu", "row_sums", shape)(
                (*blocks_for(self.rows * _TEAM, _THREADS), tiles), (_THREADS,),
                (
                    pointer(self.indptr), *run, first_piece, pointer(order), *scores, pointer(log_sum), *parts,
                    pointer(self.early), pointer(out), pointer(own), pointer(bias), np.uint64(self.rows), width,
                    np.uint64(out.stride(0)), np.uint64(0 if own is None else own.stride(0)), heads,
                    np.uint32(columns.size), np.uint32(columns.padded), np.uint32(pieces.length),
                    np.uint32(2 if loop else mean), np.uint32(relu), slope,
                ),
            )  # fmt: skip


def folded(topology: Topology, begin: int, end: int, total: Any, mean: bool, fold: Any) -> Any:
    """Sums that are complete, as :func:`whole` gives them; they may be overwritten.

    Args:
        total: ``[end - begin, heads * size]``; rows may lie apart.
    """
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
    if own is not None and own.stride(1) != 1:
        own = own.contiguous()
    features = total.shape[1]
    strides = (total.stride(0), features if own is None else own.stride(0))
    apart = [a for a in (own, bias) if a is not None]
    vec = min(register_tile.vector_width(stride, features, total, *apart) for stride in strides)
    args = (
        pointer(topology.indptr[begin : end + 1]), pointer(total), pointer(own), pointer(bias), np.uint64(len(total)),
        np.uint32(features), np.uint32(2 if loop else mean), np.uint32(relu), *map(np.uint64, strides),
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
        out: ``[end - begin, columns.width]``, zeros; it is added to.
        columns: of messages and sums.
        scale: what messages are multiplied by.
    """

    def __init__(
        self, topology: Topology, begin: int, end: int, out: Any, columns: Columns, scale: Scale
    ) -> None:
        import torch

        self.topology, self.out, self.scale, self.columns = topology, out, scale, columns
        self.indptr = topology.indptr[begin : end + 1]
        self.cursor = self.indptr[:-1].clone()
        self.log_sum = None
        self.mode = _SOFTMAX if scale.source is not None else _WEIGHTS if scale.weighted else _NONE
        if self.mode == _WEIGHTS and topology.weight is None:
            self.mode = _NONE
        if self.mode == _SOFTMAX:
            self.target = scale.target[begin:end].contiguous()
            self.log_sum = self._log_sums(begin, end)
        self.ahead = None
        if topology.on_gpu:
            if len(topology.indices) == 0:
                self.ahead = torch.full((end - begin,), _NO_SOURCE, dtype=torch.int32, device=out.device)
            else:
                first = topology.indices[self.cursor.clamp(max=len(topology.indices) - 1)]
                self.ahead = torch.where(self.indptr[1:] > self.cursor, first, _NO_SOURCE).int()

    def _log_sums(self, begin: int, end: int) -> Any:
        """Logarithm of the softmax's denominator of each row and head."""
        scale, topology = self.scale, self.topology
        found = scale.target.new_zeros(self.target.shape)
        if topology.on_gpu:
            # The scores stand in for the values: a vector of one feature per head.
            heads = scale.source.shape[1]
            sums = _RowSums(topology, begin, end, scale.source, Columns(heads, 1, 1), scale)
            sums.write(scale.source.contiguous(), self.target.new_empty(self.target.shape), log_sum=found)
            return found
        log_sums(*_arrays(self.indptr, topology.indices, scale.source, self.target, found), scale.slope)
        return found

    def add(self, begin: int, end: int, message: Any) -> None:
        """Add the edges from the sources ``begin`` to ``end``; chunks come in order.

        Args:
            message: of these sources, ``[end - begin, columns.width]``, dense.
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


@njit(parallel=True, cache=True)
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


@njit(parallel=True, cache=True)
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


@njit(parallel=True, cache=True)
def head_sums(indptr, indices, x, source, target, log_sum, out, size, slope):
    """The twin of ``head_sums.cu`` on the CPU, with the softmax's denominators at hand; ``out`` is zeros."""
    for row in prange(len(out)):
        for e in range(indptr[row], indptr[row + 1]):
            s = indices[e]
            for h in range(source.shape[1]):
                score = source[s, h] + target[row, h]
                share = np.exp((score if score > 0 else score * slope) - log_sum[row, h])
                for f in range(size):
                    out[row, h * size + f] += share * x[s, f]
