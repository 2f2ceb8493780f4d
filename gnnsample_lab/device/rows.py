"""Rows of a dense table on the GPU by their numbers: what ``torch.index_select`` does in twice the time."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from . import kernels, runtime, streams

MIN_ROW_BYTES = 128
"""Shortest rows that are taken here: a warp takes a row, and shorter ones leave most of its lanes idle."""
_THREADS, _ROWS = 1024, 2
"""Of a block, and of a warp at a time."""


@functools.cache
def _kernel(ids: str, vector: int) -> Any:
    return (
        kernels.load_module("device/rows.cu", {"ID_T": ids, "VEC": vector}).get_function("take_rows").kernel
    )


def takes(table: Any) -> bool:
    """Whether :func:`taken` is for this tensor: dense ``float32`` or ``float16`` on the GPU, of wide rows."""
    import torch

    return bool(
        table.is_cuda
        and table.ndim == 2
        and table.dtype in (torch.float32, torch.float16)
        and table.is_contiguous()
        and table.shape[1] * table.element_size() >= MIN_ROW_BYTES
    )


def taken(table: Any, ids: Any) -> Any:
    """``table[ids]``, bit for bit, on torch's current stream.

    Args:
        table: a tensor that :func:`takes` accepts.
        ids: ``int32`` or ``int64`` tensor ``[n]`` on the same GPU; below ``N``, which nobody checks.

    Returns:
        A new tensor ``[n, F]``.
    """
    import torch

    with streams.torch_stream():
        ids = ids.contiguous()
        out = torch.empty((ids.numel(), table.shape[1]), dtype=table.dtype, device=table.device)
        row_bytes = table.shape[1] * table.element_size()
        launch(table.data_ptr(), ids.data_ptr(), ids.element_size(), ids.numel(), row_bytes, out.data_ptr())
    return out


def launch(table: int, ids: int, id_bytes: int, count: int, row_bytes: int, out: int) -> None:
    """The kernel on CuPy's current stream; ``table``, ``ids`` and ``out`` are addresses."""
    if not count:
        return
    kernel = _kernel("int" if id_bytes == 4 else "long", math.gcd(16, row_bytes, table, out))
    blocks = max(1, min(runtime.num_sms(), -(-count // (_THREADS // 32 * _ROWS))))
    args = (np.uint64(table), np.uint64(ids), np.uint64(count), np.uint32(row_bytes), np.uint64(out))
    kernel((blocks,), (_THREADS,), args)
