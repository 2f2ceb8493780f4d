"""Launches of the aggregation ladder on a GPU: every rung sums the same rows in its own way."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.checks import choice
from gnnsample_lab.device import runtime

from . import register_tile
from .csr import Csr, blocks_for, clear, dtype_name, function, is_tensor, pointer, scalar_type, stream_for

KERNELS: dict[str, str] = {
    "naive": "a thread per (row, feature); partial sums and weights in global memory (FastGL, eq. 3)",
    "memory-aware": "FastGL as published: 8 rows x 32 features a block, one of each a thread; partial sums and weights "
    "in shared memory (eq. 4)",
    "memory-aware-staged": "ours, with its sums and weights in shared memory: a warp has several rows, a thread up to "
    "four features of each, for which edges are staged once",
    "grouped": "neighbour groups alone, as GNNAdvisor makes them: a warp per group, sums in registers, then atomics",
    "gnnadvisor-style": "GNNAdvisor's groups, sums in shared memory, dimension workers; without its renumbering",
    "library": "cuSPARSE through PyTorch: the block as a sparse CSR matrix times the features",
    "register-tile": "ours: a group of lanes per row and feature tile, many loads in flight, sums in registers",
    "auto": "register-tile, in the launch shape that suits block and feature width",
}

ALIASES = {"gnnadvisor": "gnnadvisor-style"}
"""Names that rungs had before, which are taken as well. GNNAdvisor also renumbers the vertices of the whole graph,
once, so that neighbours lie close together. A block has other vertices in another order in every mini-batch: there is
no order to make once, nothing here is renumbered, and the rung is not called by the system's name."""
X_ROWS, Y_FEATURES = 8, 32
"""Rows and features of a block of `memory-aware` (FastGL, section 4.2)."""
EACH_ROWS = 8
"""Most rows that a warp of `memory-aware-staged` takes one after the other."""
LANE_CHUNKS = 4
"""Most tiles of a row that a warp of it sums at once, so that edges are staged once for all of them."""
GROUP_SIZE = 16
"""Neighbours per group of `grouped` and `gnnadvisor-style`."""
_SHARED_BYTES = 48 << 10
"""Shared memory that a block of `gnnadvisor-style` may have without being asked for."""


def kernel_name(kernel: str) -> str:
    """``kernel``, a key of :data:`KERNELS`, or the key that a former name of it has now.

    Raises:
        ValueError: no kernel has or had that name.
    """
    found: str = choice(
        "kernel", ALIASES.get(kernel, kernel) if isinstance(kernel, str) else kernel, tuple(KERNELS)
    )
    return found


def gather(
    kernel: str, csr: Csr, x: Any, out: Any, coef: Any = None, mean: bool = False, **knobs: Any
) -> None:
    """``out[r] = scale * sum of coef[e] * x[indices[e]]`` over the edges of row ``r``, on CuPy's current stream.

    Args:
        kernel: a rung of :data:`KERNELS`.
        csr: rows of edges on the GPU.
        x: ``[csr.num_sources, F]``, dense, ``float32`` or ``float64``.
        out: ``[csr.num_rows, F]``.
        coef: ``[csr.num_edges]`` or None for ones.
        mean: scale by one over the row's number of edges.
        knobs: launch shape of the rung.
    """
    if out.shape[0] == 0 or out.shape[1] == 0:
        return
    _RUNGS[kernel](csr, x, out, coef, mean, **knobs)


def _kernel(name: str, scalar: str, **shape: int) -> Any:
    macros = (("SCALAR", scalar), *((knob.upper(), value) for knob, value in shape.items()))
    return function("aggregation/ladder.cu", name, macros)


def _common(csr: Csr, coef: Any, x: Any, out: Any) -> tuple[Any, ...]:
    return pointer(csr.indptr), pointer(csr.indices), pointer(coef), pointer(x), pointer(out)


def _naive(csr: Csr, x: Any, out: Any, coef: Any, mean: bool, threads: int = 256) -> None:
    rows, features = out.shape
    args = (*_common(csr, coef, x, out), np.uint64(rows), np.uint32(features), np.uint32(mean))
    _kernel("naive", scalar_type(x))(blocks_for(rows * features, threads), (threads,), args)


def _memory_aware(
    csr: Csr, x: Any, out: Any, coef: Any, mean: bool, rows: int = X_ROWS, cols: int = Y_FEATURES, each: int = 1,
    chunks: int = 1,
) -> None:  # fmt: skip
    n, features = out.shape
    grid = (*blocks_for(n, rows * each), -(-features // (cols * chunks)))
    args = (*_common(csr, coef, x, out), np.uint64(n), np.uint32(features), np.uint32(mean))
    shape = {"rows": rows, "cols": cols, "each": each, "chunks": chunks}
    _kernel("memory_aware", scalar_type(x), **shape)(grid, (cols, rows), args)


def _memory_aware_staged(
    csr: Csr, x: Any, out: Any, coef: Any, mean: bool, rows: int = X_ROWS, cols: int = Y_FEATURES
) -> None:
    n, features = out.shape
    tiles = -(-features // cols)
    chunks = -(-tiles // -(-tiles // LANE_CHUNKS))  # as even as can be: 5 tiles are 3 and 2
    # Several rows a warp, so that their latencies overlap, where there are warps enough.
    each, warps = EACH_ROWS, n * -(-tiles // chunks) * (cols // 32)
    while each > 1 and warps < each * 64 * runtime.num_sms():
        each //= 2
    _memory_aware(csr, x, out, coef, mean, rows, cols, each, chunks)


@dataclass(frozen=True, eq=False)
class Groups:
    """The preprocessing of `grouped`: ``row`` (``int32``) and first edge (``int64``) of each group."""

    row: Any
    begin: Any
    count: int
    size: int


def make_groups(csr: Csr, size: int = GROUP_SIZE) -> Groups:
    """Cut every row into groups of at most ``size`` edges. The host waits for their number, as GNNAdvisor's does.

    GNNAdvisor does this once per graph; a sampled block is new every time, which is why its cost counts here
    (FastGL, section 6.2).
    """
    import cupy

    rows, grid = np.uint64(csr.num_rows), blocks_for(csr.num_rows, 256)
    counts = cupy.empty(csr.num_rows, np.int64)
    _kernel("group_count", "float")(grid, (256,), (pointer(csr.indptr), rows, np.int32(size), counts))
    ends = cupy.cumsum(counts)
    total = int(ends[-1]) if csr.num_rows else 0
    row, begin = cupy.empty(total, np.int32), cupy.empty(total, np.int64)
    _kernel("group_fill", "float")(
        grid, (256,), (pointer(csr.indptr), ends, rows, np.int32(size), row, begin)
    )
    return Groups(row, begin, total, size)


def _groups_of(csr: Csr, size: int) -> Groups:
    key = ("groups", size)
    if key not in csr.kept:
        csr.kept[key] = make_groups(csr, size)
    found: Groups = csr.kept[key]
    return found


def _group_args(csr: Csr, x: Any, out: Any, coef: Any, mean: bool, groups: Groups) -> tuple[Any, ...]:
    return (
        *_common(csr, coef, x, out), pointer(groups.row), pointer(groups.begin), np.uint64(groups.count),
        np.int32(groups.size), np.uint32(out.shape[1]), np.uint32(mean),
    )  # fmt: skip


def _grouped(
    csr: Csr, x: Any, out: Any, coef: Any, mean: bool, size: int = GROUP_SIZE, groups: Groups | None = None
) -> None:
    if groups is None:
        groups = _groups_of(csr, size)
    clear(out)
    if groups.count == 0:
        return
    args = _group_args(csr, x, out, coef, mean, groups)
    _kernel("grouped", scalar_type(x))(blocks_for(groups.count, 8), (256,), args)


def _gnnadvisor(
    csr: Csr, x: Any, out: Any, coef: Any, mean: bool, size: int = GROUP_SIZE, groups: Groups | None = None,
    workers: int | None = None,
) -> None:  # fmt: skip
    """GNNAdvisor's kernel on a graph that is not renumbered; see :data:`ALIASES`.

    ``workers``: lanes of a warp that share the features; None: as many as there are features, at most 32.
    """
    if groups is None:
        groups = _groups_of(csr, size)
    clear(out)
    if groups.count == 0:
        return
    features = int(out.shape[1])
    per_warp = features * out.dtype.itemsize + 4 * groups.size
    warps = _SHARED_BYTES // per_warp
    if not warps:  # the sums of one warp do not fit
        _grouped(csr, x, out, coef, mean, size, groups)
        return
    warps = min(8, warps)
    args = (*_group_args(csr, x, out, coef, mean, groups), np.uint32(workers or min(32, features)))
    launch = _kernel("advised", scalar_type(x))
    launch(blocks_for(groups.count, warps), (32 * warps,), args, shared_mem=warps * per_warp)


def library_matrix(csr: Csr, like: Any, coef: Any = None, mean: bool = False) -> Any:
    """The rows as a torch sparse CSR tensor with 32-bit indices, kept on ``csr``.

    Args:
        csr: rows of edges on the GPU.
        like: gives the element type.
        coef: values per edge; ones when None. For the same array the same matrix comes again, with what it holds now.
        mean: values are divided by the length of their row.
    """
    import torch

    key = ("library", dtype_name(like), mean)
    kept = csr.kept.get(key)
    if kept is not None and kept[0] is coef:
        return kept[1]
    indptr, indices = as_tensor(csr.indptr), as_tensor(csr.indices)
    dtype = getattr(torch, dtype_name(like))
    values = (
        torch.ones(csr.num_edges, dtype=dtype, device=indices.device) if coef is None else as_tensor(coef)
    )
    if mean:
        lengths = indptr.diff()
        values = values * (1 / lengths.to(dtype)).repeat_interleave(lengths, output_size=csr.num_edges)
    _warned_of_sparse_tensors()
    matrix = torch.sparse_csr_tensor(
        indptr.int(), indices, values, (csr.num_rows, csr.num_sources), check_invariants=False
    )
    # With means the values are of what the array held; one that is differentiated would stay with all it came from.
    if coef is None or not (mean or getattr(coef, "requires_grad", False)):
        csr.kept[key] = coef, matrix
    return matrix


@functools.cache
def _warned_of_sparse_tensors() -> None:
    """torch says once in a process that sparse CSR tensors are in beta, which no user of ours has to know."""
    import torch

    with warnings.catch_warnings():
        # The second one comes although the caller has said that nothing is to be checked.
        for text in (
            "Sparse CSR tensor support is in beta",
            "Sparse invariant checks are implicitly disabled",
        ):
            warnings.filterwarnings("ignore", message=f".*{text}")
        begins = torch.zeros(1, dtype=torch.int32)
        torch.sparse_csr_tensor(begins, begins[1:], torch.empty(0), (0, 0), check_invariants=False)


def as_tensor(array: Any) -> Any:
    from gnnsample_lab.minibatch.export import tensor

    return array if is_tensor(array) else tensor(array)


def _library(csr: Csr, x: Any, out: Any, coef: Any, mean: bool) -> None:
    import torch

    # Torch launches on its own stream; CuPy arrays come with work pending on CuPy's.
    with _on_cupy_stream(x), torch.no_grad():
        if csr.num_edges == 0:
            as_tensor(out).zero_()
            return
        matrix = library_matrix(csr, x, coef, mean)
        torch.mm(matrix, as_tensor(x)[: csr.num_sources], out=as_tensor(out))


def _on_cupy_stream(x: Any) -> Any:
    import contextlib

    import cupy
    import torch

    if is_tensor(x):
        return contextlib.nullcontext()
    address = cupy.cuda.get_current_stream().ptr
    stream = torch.cuda.ExternalStream(address) if address else torch.cuda.default_stream()
    return torch.cuda.stream(stream)


def _register_tile(csr: Csr, x: Any, out: Any, coef: Any, mean: bool, tile: Any = None) -> None:
    register_tile.launch(csr, x, out, coef, mean, tile)


_RUNGS: dict[str, Callable[..., None]] = {
    "naive": _naive,
    "memory-aware": _memory_aware,
    "memory-aware-staged": _memory_aware_staged,
    "grouped": _grouped,
    "gnnadvisor-style": _gnnadvisor,
    "library": _library,
    "register-tile": _register_tile,
    "auto": _register_tile,
}


def edge_dots(csr: Csr, grad: Any, x: Any, out: Any, mean: bool) -> None:
    """Gradient of the weights, ``out[e] = scale * <grad[row of e], x[indices[e]]>``, on CuPy's current stream."""
    if csr.num_rows == 0 or csr.num_edges == 0:
        return
    args = (
        pointer(csr.indptr), pointer(csr.indices), pointer(grad), pointer(x), pointer(out),
        np.uint64(csr.num_rows), np.uint32(x.shape[1]), np.uint32(mean),
    )  # fmt: skip
    with stream_for(x):
        _kernel("edge_dots", scalar_type(x))(blocks_for(csr.num_rows, 8), (256,), args)
