"""The guide of weighted draws on the GPU: a record per edge, so that a draw reads one in place of a search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, runtime
from gnnsample_lab.sampling.weights import IntegerWeights

RECORD_BYTES = 16
_THREADS = 256


def with_guide(graph: Any, weights: IntegerWeights, scratch_bytes: int | None = None) -> IntegerWeights:
    """``weights`` with a guide (``hops/guide.cuh``) where it fits; samples are the same with and without one.

    Args:
        graph: on the GPU.
        weights: of its edges.
        scratch_bytes: most bytes of the guide, 16 per edge; default 5 % of the free GPU memory.
    """
    import cupy

    num_edges = int(graph.indices.size)
    if not num_edges or RECORD_BYTES * num_edges > runtime.scratch_bytes(scratch_bytes):
        return weights
    guide = cupy.empty((num_edges, RECORD_BYTES // 4), np.uint32)
    module = kernels.load_module("sampling/neighbors/hops/guide.cu", {"ID_T": "int"})
    kernel = module.get_function("make_guide")
    sizes = np.uint64(graph.num_nodes), np.int64(num_edges)
    kernel((-(-num_edges // _THREADS),), (_THREADS,), (graph.indptr, weights.prefix, *sizes, guide))
    return replace(weights, guide=guide)
