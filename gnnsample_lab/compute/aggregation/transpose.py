"""The transposed block: for each source, the destinations that it feeds. What the backward pass gathers over."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .csr import (
    Csr,
    blocks_for,
    clear,
    csr_of,
    empty,
    function,
    is_tensor,
    pointer,
    scalar_type,
    stream_for,
)

_COUNTER_TILE = 4096
"""Counters per block of the scan (``COUNTER_TILE`` in transpose.cu)."""


@dataclass(eq=False)
class Transposed:
    """A block's edges grouped by source.

    Attributes:
        csr: rows are sources, ``csr.indices`` the destination of each edge.
        slots: where each edge of the forward block lies in ``csr``, ``int32[num_edges]``.
        forward: the forward edges, without what is kept with them.
    """

    csr: Csr
    slots: Any
    forward: Csr
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    def coefficients(self, weight: Any, mean: bool, like: Any) -> Any:
        """Per edge in transposed order, element type of ``like``: its weight, over the length of its forward row
        when ``mean``. None when all are 1. Without weights it is made once.
        """
        if weight is None and not mean:
            return None
        key = ("mean", scalar_type(like), is_tensor(like))
        if weight is None and key in self.kept:
            return self.kept[key]
        coef = empty(
            like, (self.forward.num_edges,), "float32" if scalar_type(like) == "float" else "float64"
        )
        kernel = function("aggregation/transpose.cu", "place_coefficients", (("SCALAR", scalar_type(like)),))
        rows = self.forward.num_rows
        args = (
            pointer(self.forward.indptr), pointer(self.slots), pointer(weight), np.uint64(rows), np.uint32(mean),
            pointer(coef),
        )  # fmt: skip
        with stream_for(like):
            kernel(blocks_for(rows, 32), (256,), args)
        if weight is None:
            self.kept[key] = coef
        return coef


def deterministic() -> bool:
    """Whether PyTorch was asked for deterministic algorithms (``torch.use_deterministic_algorithms(True)``)."""
    import sys

    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.are_deterministic_algorithms_enabled())


def transposed(block: Any, like: Any = None) -> Transposed:
    """The transposed block, made once per block (on the GPU by counting sort, kernels in ``transpose.cu``).

    Edges of one source come in the order in which atomics served them, so a gradient with several summands may differ
    between runs in its last bit. Under ``torch.use_deterministic_algorithms(True)`` a stable sort is used instead,
    which takes longer.

    Args:
        block: a :class:`~gnnsample_lab.Block` or ``TorchBlock`` in device memory.
        like: array whose library allocates; by default that of ``block.indices``.
    """
    csr = csr_of(block)
    if "transposed" not in csr.kept:
        like = csr.indices if like is None else like
        with stream_for(like):
            csr.kept["transposed"] = (stable_sort if deterministic() else counting_sort)(csr, like)
    return csr.kept["transposed"]


def counting_sort(csr: Csr, like: Any, buffers: tuple[Any, ...] | None = None) -> Transposed:
    """Transpose on the current CuPy stream. Nothing waits. ``buffers`` (of an earlier call): written in place."""
    if csr.num_edges >= 1 << 31:
        raise ValueError(f"block must have fewer than 2**31 edges (got {csr.num_edges})")
    tiles = -(-max(1, csr.num_sources) // _COUNTER_TILE)
    counts, sums, begins, slots, rows = buffers or sort_buffers(csr, like)
    k = {name: function("aggregation/transpose.cu", name, (("SCALAR", "float"),)) for name in _SORT}
    clear(counts)
    rows_given, sources = np.uint64(csr.num_rows), np.uint64(csr.num_sources)
    if csr.num_edges:
        args: tuple[Any, ...] = (
            pointer(csr.indptr), pointer(csr.indices), rows_given, pointer(counts), pointer(slots),
        )  # fmt: skip
        k["count_sources"](blocks_for(csr.num_edges, 1024), (256,), args)
    if csr.num_sources == 0:
        clear(begins)
    else:
        k["sum_tiles"]((tiles,), (256,), (pointer(counts), sources, pointer(sums)))
        k["scan_tiles"]((tiles,), (256,), (pointer(counts), sources, pointer(sums), pointer(begins)))
    if csr.num_edges:
        args = (
            pointer(csr.indptr), pointer(csr.indices), rows_given, pointer(begins), pointer(slots), pointer(rows),
        )  # fmt: skip
        k["place_edges"](blocks_for(csr.num_rows, 32), (256,), args)
    return _of(csr, Csr(begins, rows, csr.num_sources, csr.num_rows, csr.num_edges), slots)


def _of(forward: Csr, csr: Csr, slots: Any) -> Transposed:
    """The transposed edges of ``forward``, which keeps them: a reference back would be a cycle, and what lies in it
    stays in memory until Python's collector comes."""
    return Transposed(csr, slots, replace(forward, kept={}))


_SORT = ("count_sources", "sum_tiles", "scan_tiles", "place_edges")


def sort_buffers(csr: Csr, like: Any) -> tuple[Any, ...]:
    """Memory for one :func:`counting_sort`: counters, tile sums, and the three arrays of the result."""
    tiles = -(-max(1, csr.num_sources) // _COUNTER_TILE)
    return (
        empty(like, (csr.num_sources,), "int32"), empty(like, (tiles,), "int64"),
        empty(like, (csr.num_sources + 1,), "int64"), empty(like, (csr.num_edges,), "int32"),
        empty(like, (csr.num_edges,), "int32"),
    )  # fmt: skip


def stable_sort(csr: Csr, like: Any) -> Transposed:
    """Transpose with the edges of each source in the order of the forward block: the same on every run."""
    import cupy

    from gnnsample_lab.minibatch.export import tensor

    indices, indptr = (cupy.from_dlpack(a) if is_tensor(a) else a for a in (csr.indices, csr.indptr))
    order = cupy.argsort(indices)  # CuPy's sort is stable
    slots = cupy.empty(csr.num_edges, cupy.int32)
    slots[order] = cupy.arange(csr.num_edges, dtype=cupy.int32)
    row_of = cupy.searchsorted(indptr, cupy.arange(csr.num_edges), side="right").astype(cupy.int32) - 1
    begins = cupy.zeros(csr.num_sources + 1, cupy.int64)
    cupy.cumsum(cupy.bincount(indices, minlength=csr.num_sources), out=begins[1:])
    rows = row_of[order]
    if is_tensor(like):
        slots, begins, rows = tensor(slots), tensor(begins), tensor(rows)
    return _of(csr, Csr(begins, rows, csr.num_sources, csr.num_rows, csr.num_edges), slots)
