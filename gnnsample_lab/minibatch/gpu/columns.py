"""Labels, masks and ids that go with mini-batches: narrow columns, all of them for several batches in one launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gnnsample_lab.checks import is_cuda_array
from gnnsample_lab.device import kernels, runtime, streams
from gnnsample_lab.minibatch.export import tensor
from gnnsample_lab.sampling.neighbors.plan import WANTED_EDGES, as_argument

MAX_COLUMNS, MAX_BATCHES = 16, 16
PACKED_BYTES = 1 << 28
"""Most memory for a copy of the vertices' columns in records."""
_WIDTHS, _SECTOR = (1, 2, 4, 8, 16), 32
_THREADS, _IN_FLIGHT = 256, 4
_BY_NODE, _BY_POSITION, _BY_EDGE = 0, 1, 2
_COLUMN = np.dtype([("source", "u8"), ("stride", "u8"), ("width", "u4"), ("by", "i4")])
_SLICE = np.dtype(
    [("nodes", "u8"), ("positions", "u8"), ("num_nodes", "u8"), ("num_edges", "u8"), ("out", "u8")]
)
_COLUMNS = np.dtype([
    ("edge_ids", "u8"), ("count", "u8"), ("columns", _COLUMN, MAX_COLUMNS), ("slices", _SLICE, MAX_BATCHES)
])  # fmt: skip


def is_narrow(column: Any) -> bool:
    """Whether :class:`Columns` takes a tensor: on a GPU, row-major, with aligned rows of 1, 2, 4, 8 or 16 bytes, and
    without a gradient, which would end in the copy."""
    if not column.is_cuda or not column.is_contiguous() or not column.shape[0] or column.requires_grad:
        return False
    width = column.element_size() * (column.numel() // column.shape[0])
    return width in _WIDTHS and column.data_ptr() % width == 0


class Columns:
    """Takes the rows of a set of columns that belong to mini-batches.

    Args:
        by_node: columns with a row per vertex of the graph, :func:`is_narrow` tensors on the current GPU.
        by_edge: columns with a row per edge id.
        edge_ids: the id of the edge at each position of the graph, ``int64`` on the current GPU; None where positions
            are the ids. With it the mini-batches get a column ``"e_id"``.

    Raises:
        ValueError: more than :data:`MAX_COLUMNS` columns.
    """

    def __init__(self, by_node: Mapping[str, Any], by_edge: Mapping[str, Any], edge_ids: Any = None) -> None:
        self._columns: list[tuple[str, Any, int]] = [(k, v, _BY_NODE) for k, v in by_node.items()]
        if edge_ids is not None:
            self._columns.append(("e_id", tensor(edge_ids), _BY_POSITION))
        self._columns += [(k, v, _BY_EDGE) for k, v in by_edge.items()]
        if len(self._columns) > MAX_COLUMNS:
            raise ValueError(f"at most {MAX_COLUMNS} columns can be taken at once (got {len(self._columns)})")
        self._edge_ids = edge_ids
        self._record = np.zeros(1, _COLUMNS)
        record = self._record[0]
        record["edge_ids"] = 0 if edge_ids is None or not by_edge else edge_ids.data.ptr
        record["count"] = len(self._columns)
        self._plan: list[tuple[str, Any, bool, int, tuple[int, ...], tuple[int, ...]]] = []
        for i, (name, column, by) in enumerate(self._columns):
            width = column.element_size() * (column.numel() // max(1, column.shape[0]))
            record["columns"][i] = (column.data_ptr(), width, width, by)
            self._plan.append(
                (name, column.dtype, by == _BY_NODE, width, tuple(column.shape[1:]), column.stride())
            )

        self._records = self._pack([i for i, (_, _, by) in enumerate(self._columns) if by == _BY_NODE])

    def _pack(self, chosen: Sequence[int]) -> Any:
        """Put columns side by side, row by row, so that a row of all of them costs one sector; the widest first, so
        that each stays aligned."""
        import torch

        columns = self._record[0]["columns"]
        widths = [int(columns[i]["width"]) for i in chosen]
        stride = 1 << max(0, sum(widths) - 1).bit_length()
        rows = len(self._columns[chosen[0]][1]) if chosen else 0
        if len(chosen) < 2 or stride > _SECTOR or rows * stride > PACKED_BYTES:
            return None
        packed = torch.empty(rows, stride, dtype=torch.uint8, device="cuda")
        at = 0
        for i in sorted(chosen, key=lambda i: -int(columns[i]["width"])):
            width = int(columns[i]["width"])
            packed[:, at : at + width] = self._columns[i][1].view(torch.uint8).reshape(rows, width)
            columns[i]["source"], columns[i]["stride"] = packed.data_ptr() + at, stride
            at += width
        return packed

    def __len__(self) -> int:
        return len(self._columns)

    def take(self, batches: Sequence[Any]) -> list[Any]:
        """Launch for up to :data:`MAX_BATCHES` mini-batches; asynchronous.

        Args:
            batches: of :class:`~.arena.ArenaBatch`, whose arenas hold edges.

        Returns:
            For each the memory that :meth:`tensors` reads.
        """
        import cupy

        streams.order(self._edge_ids)
        slices, most, taken = [], 1, []
        ready = streams.Ready()  # of this stream, which need not be that of the mini-batches
        for batch in batches:
            arena = batch.arena
            place, nodes, edges = arena.place, arena.levels[-1], sum(arena.edges)
            size = 256  # never nothing
            for _, _, of_nodes, width, _, _ in self._plan:
                size += ((nodes if of_nodes else edges) * width + 255) & -256
            memory = streams.lease(cupy.cuda.alloc(size), ready)
            taken.append(cupy.ndarray((size,), np.uint8, memory))
            begin = arena.memory.ptr
            slices.append((begin + place.wide_nodes, begin + place.positions[0], nodes, edges, memory.ptr))
            most = max(most, nodes, edges)
        if self._columns:
            record = (
                self._record.copy()
            )  # launches under way hold copies of their own; other threads write theirs
            record[0]["slices"][: len(slices)] = slices
            blocks = min(-(-most // (_THREADS * _IN_FLIGHT)), max(1, 16 * runtime.num_sms() // len(slices)))
            kernel = kernels.load_module("minibatch/gpu/columns.cu", {}).get_function("columns").kernel
            kernel((blocks, len(slices), 2), (_THREADS,), (as_argument(record),))
        return taken

    def tensors(self, batch: Any, memory: Any) -> dict[str, Any]:
        """What :meth:`take` made for a mini-batch, column by column; torch's current stream waits for it."""
        nodes, edges, at = batch.arena.levels[-1], sum(batch.arena.edges), 0
        whole = tensor(memory)
        typed: dict[Any, Any] = {}
        found = {}
        for name, dtype, of_nodes, width, rest, strides in self._plan:
            rows = nodes if of_nodes else edges
            if dtype not in typed:
                typed[dtype] = whole.view(dtype)
            found[name] = typed[dtype].as_strided((rows, *rest), strides, at // dtype.itemsize)
            at += (rows * width + 255) & -256
        return found


def holds_edges(batch: Any) -> bool:
    """Whether a mini-batch is one that :meth:`Columns.take` can read: in an arena, with ``expand="new"`` and edges."""
    arena = getattr(batch, "arena", None)
    return (
        arena is not None
        and arena.new
        and bool(arena.wanted & WANTED_EDGES)
        and is_cuda_array(batch.node_ids)
    )
