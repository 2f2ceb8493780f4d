"""The walk floor: how fast any kernel could move walkers through a graph's lists, one neighbour per step."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnsample_lab.bench.timing import capture_all, replay_times
from gnnsample_lab.device import kernels

PER_THREAD = (1, 2, 4)
"""Walkers that a thread moves side by side; the committed sweep, together with :data:`THREADS`."""
THREADS = (128, 256, 512)
_SALTS = 4


def walk_floor(
    graph: Any, roots: Sequence[Any], steps: int, store: bool = False, sweep: bool = True, passes: int = 5
) -> dict[str, Any]:
    """Best time of moving walkers ``steps`` steps along ``graph.indices`` by reads alone, over the committed sweep.

    Nothing is drawn by a generator and nothing checked: a register's multiply and add choose the neighbour. Walks end
    where a vertex has no in-neighbour, as real ones do.

    Args:
        graph: on the GPU, without a vertex of 2**32 or more in-neighbours.
        roots: one or more arrays of start vertices, global ids ``int[S]``, all of one length; they are walked in turn,
            each from several salts, so that a pass touches other memory than the last one left in the cache.
        steps: steps of a walk, at least 1.
        store: write every vertex (``int[steps, S]``, walkers side by side), and not only the last.

    Returns:
        ``us`` per set of roots at its best, of each pass there as ``passes_us``, the label ``best`` (walkers per thread
        x threads of a block), ``sweep``: label -> us, ``walkers``, ``steps``, ``steps_per_s``.

    Raises:
        ValueError: no steps, no roots, or roots of different lengths; in-degrees of 2**32 or more.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1 (got {steps})")
    sizes = {int(r.size) for r in roots}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"roots must be arrays of one length, at least 1 (got lengths {sorted(sizes)})")
    if graph.max_in_degree >= 2**32:
        raise ValueError(
            f"graph has a vertex of in-degree {graph.max_in_degree}; the floor draws below 2**32"
        )
    import cupy

    walkers = sizes.pop()
    starts = [cupy.asarray(r).astype(graph.indices.dtype, copy=False).ravel() for r in roots]
    id_type = "int" if graph.indices.dtype.itemsize == 4 else "long"
    out = cupy.empty((steps if store else 1, walkers), graph.indices.dtype)
    times: dict[str, list[float]] = {}
    for each in PER_THREAD if sweep else PER_THREAD[:1]:
        macros: dict[str, int | str] = {"ID_T": id_type, "STORE": int(store), "PER_THREAD": each}
        kernel = kernels.load_module("bench/floors/walk_floor.cu", macros).get_function("walk_floor")
        for threads in THREADS if sweep else THREADS[1:2]:

            def work(
                at: Any, salt: int, kernel: Any = kernel, each: int = each, threads: int = threads
            ) -> None:
                grid = -(-walkers // (each * threads))
                args = (graph.indptr, graph.indices, at, np.uint64(walkers), np.int32(steps),
                        np.uint32(salt * 0x85EBCA6B & 0xFFFFFFFF), out)  # fmt: skip
                kernel((grid,), (threads,), args)

            works = [functools.partial(work, at, salt) for salt in range(_SALTS) for at in starts]
            times[f"{each}x{threads}"] = replay_times(capture_all(works), passes=passes)
    medians = {point: statistics.median(taken) for point, taken in times.items()}
    best = min(medians, key=medians.__getitem__)
    return {
        "us": medians[best], "passes_us": times[best], "best": best, "sweep": medians, "walkers": walkers,
        "steps": steps, "store": store, "steps_per_s": walkers * steps / (medians[best] * 1e-6),
    }  # fmt: skip
