"""A block as the kernels see it, and the few things that differ between NumPy, CuPy and torch."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnsample_lab.checks import is_cuda_array, shown
from gnnsample_lab.compute.fused.block import SummedBlock
from gnnsample_lab.device import kernels
from gnnsample_lab.device.arrays import dense
from gnnsample_lab.device.streams import torch_stream

FLOATS = ("float32", "float64")


def is_tensor(array: Any) -> bool:
    """True for torch tensors, without importing torch."""
    return type(array).__module__.split(".")[0] == "torch"


def dtype_name(array: Any) -> str:
    """``"float32"`` for the arrays and tensors of that type."""
    return str(array.dtype).removeprefix("torch.")


def address(array: Any) -> int:
    """Where a CuPy array or CUDA tensor lies; 0 for None."""
    if array is None:
        return 0
    of_tensor = getattr(array, "data_ptr", None)
    return int(array.data.ptr) if of_tensor is None else int(of_tensor())


def pointer(array: Any) -> np.uint64:
    """:func:`address` as a kernel's argument."""
    return np.uint64(address(array))


def row_stride(array: Any) -> int:
    """Elements from one row to the next."""
    if is_tensor(array):
        return int(array.stride(0))
    return int(array.strides[0]) // int(array.itemsize)


def empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Uninitialised array of the same library and device as ``like``."""
    if is_tensor(like):
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)
    if is_cuda_array(like):
        import cupy

        return cupy.empty(shape, dtype)
    return np.empty(shape, dtype)


def clear(array: Any) -> Any:
    """Fill a CUDA array or tensor with zeros on the current stream; returns it."""
    if is_tensor(array):
        return array.zero_()
    array.data.memset_async(0, array.nbytes)
    return array


def contiguous(array: Any) -> Any:
    """Row-major and dense; the same object where it is so already."""
    return array.contiguous() if is_tensor(array) else dense(array)


def stream_for(array: Any) -> contextlib.AbstractContextManager[Any]:
    """For tensors CuPy must launch on torch's stream; CuPy arrays are on CuPy's own already."""
    if is_tensor(array):
        return torch_stream()
    return contextlib.nullcontext()


_SCALARS = {"float32": "float", "float64": "double"}


def scalar_type(array: Any) -> str:
    """C name of the element type.

    Raises:
        TypeError: kernels do not read it.
    """
    name = dtype_name(array)
    if name not in _SCALARS:
        raise TypeError(f"tables must be of float32 or float64 for kernels (got {name})")
    return _SCALARS[name]


def scalar(array: Any, value: float) -> Any:
    """``value`` as a kernel argument of the element type of ``array``."""
    return np.float32(value) if dtype_name(array) == "float32" else np.float64(value)


@dataclass(eq=False)
class Csr:
    """Rows of edges: the edges of row ``r`` are ``indptr[r]`` to ``indptr[r + 1]``, and edge ``e`` reads row
    ``indices[e]`` of a table with ``num_sources`` rows.

    ``indptr``: ``int64[num_rows + 1]``, ``indices``: ``int32[num_edges]``, local ids. ``kept`` holds what has been
    derived from it (neighbour groups, library matrices).
    """

    indptr: Any
    indices: Any
    num_rows: int
    num_sources: int
    num_edges: int
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def on_gpu(self) -> bool:
        return is_cuda_array(self.indices)

    def lengths(self) -> Any:
        """Edges per row, in the library of ``indptr``."""
        return self.indptr[1:] - self.indptr[:-1]


def csr_of(block: Any) -> Csr:
    """The forward edges of a :class:`~gnnsample_lab.Block` or ``TorchBlock``, made once per block.

    Raises:
        TypeError: not a block, or one without edges, of a :class:`~gnnsample_lab.FusedSampler`.
    """
    kept = getattr(block, "kept", {})
    if "csr" in kept:
        return kept["csr"]
    if isinstance(block, SummedBlock):
        raise TypeError(
            "block must have edges for a layer that needs its neighbours one by one, as attention ('gat') and visits "
            "('pinsage') do: a FusedSampler has summed those of the first layer already; use a NeighborSampler in its "
            f"place, or a PinSAGESampler for 'pinsage' (got {block!r})"
        )
    parts = [getattr(block, name, None) for name in ("src", "indptr", "indices")]
    if isinstance(block, type) or not all(len(getattr(part, "shape", ())) == 1 for part in parts):
        raise TypeError(
            f"block must be a Block or TorchBlock, its src, indptr and indices vectors (got {shown(block)})"
        )
    kept["csr"] = csr = Csr(
        block.indptr, block.indices, int(block.indptr.shape[0]) - 1, int(block.src.shape[0]),
        int(block.indices.shape[0]),
    )  # fmt: skip
    return csr


@functools.cache
def function(source: str, name: str, macros: tuple[tuple[str, int | str], ...] = ()) -> Any:
    """A kernel of this folder, compiled on first use. The driver's function launches with half of CuPy's overhead."""
    module = kernels.load_module("compute/" + source, dict(macros))
    return module.get_function(name).kernel


def blocks_for(items: int, per_block: int) -> tuple[int]:
    """A grid that covers ``items``; at least one block."""
    return (max(1, -(-items // per_block)),)
