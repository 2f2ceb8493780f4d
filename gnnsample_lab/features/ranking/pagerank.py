# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""Reverse PageRank: how often a walk from the training vertices, against the direction of messages, visits a vertex.

A hotness that needs no sampler: it takes training set and graph into account, but neither fanouts nor weights (used for
placing features by Min et al., "Graph Neural Network Training and Data Tiering", KDD'22). All sums are of integers
(units of 2**-60), so CPU and GPU agree to the bit whatever order they add in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, runtime, streams
from gnnsample_lab.device.jit import njit

ONE = 2**60
"""The mass of all vertices together."""
DAMPING, ITERATIONS = 0.85, 10


@njit(cache=True)
def _push(indptr, indices, mass, received):
    for v in range(indptr.size - 1):
        begin, end = indptr[v], indptr[v + 1]
        if begin == end:
            continue
        share = mass[v] // np.uint64(end - begin)
        if share == 0:
            continue
        for e in range(begin, end):
            received[indices[e]] += share


@njit(cache=True)
def _settle(restart, received, damping, mass):
    for v in range(mass.size):
        r = received[v]
        received[v] = np.uint64(0)
        low = ((r & np.uint64(0xFFFF)) * damping) >> np.uint64(16)
        mass[v] = restart[v] + (r >> np.uint64(16)) * damping + low


def reverse_pagerank(
    graph: Any, seeds: Any = None, damping: float = DAMPING, iterations: int = ITERATIONS
) -> np.ndarray:
    """PageRank along in-edges, from each destination to its sources.

    A walker starts at a seed; at each step it goes on with probability ``damping``, to an in-neighbour drawn
    uniformly, and else starts again. Mass at a vertex without in-neighbours is lost, which scales all scores alike.

    Args:
        graph: runs where the graph lies.
        seeds: where walks start, distinct global ids on the host; every vertex when None.
        damping: in steps of 2**-16.
        iterations: fixed, so that the result is a function of the arguments alone; longer walks are cut off.

    Returns:
        ``float64[N]``, summing to 1.
    """
    n, factor = graph.num_nodes, round(damping * 65536)
    start = np.zeros(n, dtype=np.uint64)
    chosen: Any = slice(None) if seeds is None else np.asarray(seeds)
    start[chosen] = ONE // max(1, n if seeds is None else len(chosen))
    restart = (start >> np.uint64(16)) * np.uint64(65536 - factor)
    with runtime.lock:
        if graph.device == "cuda":
            mass = _on_gpu(graph, start, restart, factor, iterations)
        else:
            mass, received = start, np.zeros(n, dtype=np.uint64)
            for _ in range(iterations):
                _push(graph.indptr, graph.indices, mass, received)
                _settle(restart, received, np.uint64(factor), mass)
    total = int(mass.sum(dtype=np.uint64))
    return mass.astype(np.float64) / max(total, 1)


def _on_gpu(graph: Any, start: np.ndarray, restart: np.ndarray, factor: int, iterations: int) -> np.ndarray:
    import cupy

    name = "int" if graph.indices.dtype.itemsize == 4 else "long"
    module = kernels.load_module("features/ranking/hotness.cu", {"ID_T": name})
    push, settle = (module.get_function(f).kernel for f in ("push", "settle"))
    streams.order(graph.indptr, graph.indices)
    mass, base = cupy.asarray(start), cupy.asarray(restart)
    received = cupy.zeros(len(start), dtype=np.uint64)
    size, grid = np.uint64(len(start)), (16 * runtime.num_sms(),)
    for _ in range(iterations):
        push(grid, (256,), (graph.indptr, graph.indices, size, mass, received))
        settle(grid, (256,), (size, base, received, np.uint64(factor), mass))
    result: np.ndarray = mass.get()
    return result
