"""Measured ceilings of this GPU: DRAM copy, L2 reads, shared-memory reads, FP32 arithmetic (``bandwidth.cu``)."""

from __future__ import annotations

import functools
import statistics
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, runtime

from .bound import MemorySpeeds

_THREADS = 256


def _median_us(kernel: Any, grid: int, threads: int, args: tuple[Any, ...], repeats: int = 7) -> float:
    """Median GPU microseconds of one launch, after two warm ones."""
    import cupy

    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    times = []
    for index in range(repeats + 2):
        begin.record()
        kernel((grid,), (threads,), args)
        end.record()
        end.synchronize()
        if index >= 2:
            times.append(cupy.cuda.get_elapsed_time(begin, end) * 1e3)
    return statistics.median(times)


@functools.lru_cache(maxsize=1)
def measured_bandwidths() -> MemorySpeeds:
    """Measure once per process; takes a few tens of milliseconds and 2 GB (less on smaller GPUs).

    Each number is the best of a few launch shapes: it stands for what the hardware gives, not for one kernel.

    Raises:
        RuntimeError: there is no GPU.
    """
    problem = runtime.cuda_problem()
    if problem:
        raise RuntimeError(f"measured_bandwidths() needs a GPU, but {problem}")
    import cupy

    sms, out = runtime.num_sms(), cupy.zeros(1, np.uint32)
    free = cupy.cuda.runtime.memGetInfo()[0]
    size = min(1 << 30, free // 8) >> 20 << 20
    source, target = cupy.zeros(size, np.uint8), cupy.empty(size, np.uint8)
    l2_bytes = int(runtime.device_properties()["l2CacheSize"])
    dram = l2 = shared = flops = 0.0
    for batch in (4, 8):
        module = kernels.load_module("compute/aggregation/bandwidth.cu", {"BATCH": batch})
        names = ("copy", "read_l2", "read_shared", "multiply_add")
        copy, read_l2, read_shared, multiply_add = (module.get_function(name).kernel for name in names)
        step, words = _THREADS * batch, size // 16
        time = _median_us(copy, -(-words // step), _THREADS, (source, target, np.uint64(words)))
        dram = max(dram, 2 * size / time / 1e3)
        for share in (6, 4):  # a part of the L2 that stays in it whatever its halves duplicate
            fits, rounds = max(step, l2_bytes // share // 16 // step * step), 64
            for grid in (4 * sms, 8 * sms):
                time = _median_us(read_l2, grid, _THREADS, (source, np.uint64(fits), np.uint32(rounds), out))
                l2 = max(l2, grid * step * 16 * rounds / time / 1e3)
        grid, rounds = 2 * sms, 512
        time = _median_us(read_shared, grid, 1024, (np.uint32(rounds), out))
        shared = max(shared, grid * 1024 * batch * 16 * rounds / time / 1e3)
        time = _median_us(multiply_add, grid, 1024, (np.uint32(rounds), out))
        flops = max(flops, grid * 1024 * 8 * 16 * 2 * rounds / time / 1e3)
    return MemorySpeeds(dram, l2, shared, flops, f"measured on {runtime.device_name()}")
