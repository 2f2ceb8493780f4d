"""Gradients of a sum's sources by additions in memory, where that is less work than transposing the block."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device import runtime

from .csr import Csr, blocks_for, clear, dtype_name, empty, function, pointer, scalar_type, stream_for
from .register_tile import power_of_two, vector_width
from .transpose import deterministic

L2_SHARE = 0.75
"""Measured on an H200, 64 features: half of the L2 is 1.7 to 5 x as fast as transposing, twice the L2 0.8 x."""


def scatters(csr: Csr, grad: Any) -> bool:
    """Whether additions are less work than a transposed block: where all sources' rows lie in the L2.

    The order of additions is that in which they are served, so not under deterministic algorithms.
    """
    made = csr.num_sources * int(grad.shape[1]) * (4 if dtype_name(grad) == "float32" else 8)
    return made <= L2_SHARE * int(runtime.device_properties()["l2CacheSize"]) and not deterministic()


def scatter(csr: Csr, grad: Any, weight: Any, mean: bool) -> Any:
    """``[num_sources, F]``: each row of ``grad`` added to its sources, times the edge's weight, over the row's length.

    Args:
        csr: rows of edges on the GPU.
        grad: ``[num_rows, F]``, dense.
        weight: per edge ``[num_edges]``, or None.
        mean: divide by the number of edges of the row.
    """
    features = int(grad.shape[1])
    out = empty(grad, (csr.num_sources, features), dtype_name(grad))
    with stream_for(grad):
        clear(out)
        if csr.num_rows and features:
            vec = vector_width(features, features, grad, out)
            lanes = min(32, power_of_two(-(-features // vec)))
            kernel = function(
                "aggregation/scatter.cu",
                "scatter_rows",
                (("SCALAR", scalar_type(grad)), ("VEC", vec), ("LANES", lanes)),
            )
            args = (
                pointer(csr.indptr), pointer(csr.indices), pointer(weight), pointer(grad), pointer(out),
                np.uint64(csr.num_rows), np.uint32(features), np.uint32(mean),
            )  # fmt: skip
            kernel(blocks_for(csr.num_rows * lanes, 256), (256,), args)
    return out
