"""How time is taken: CUDA graphs replayed over rotating batches, medians over passes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from gnnsample_lab.sampling.neighbors.launch import capture


def capture_all(works: Sequence[Callable[[], None]]) -> list[Any]:
    """One CUDA graph per piece of work."""
    return [capture(work) for work in works]


def replay_us(graphs: Sequence[Any], prepare: Callable[[], None] | None = None, passes: int = 7) -> float:
    """Microseconds of GPU time per graph: one pass launches all graphs back to back between two events.

    Args:
        graphs: one per batch; together they should touch several times the L2 cache.
        prepare: host work before each pass (fresh stamps), not timed.
        passes: timed passes after two warm ones; the median is returned.
    """
    import cupy

    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    rounds = max(1, 24 // len(graphs))
    times = []
    for index in range(passes + 2):
        total = 0.0
        for _ in range(rounds):
            if prepare is not None:
                prepare()
            cupy.cuda.get_current_stream().synchronize()
            begin.record()
            for graph in graphs:
                graph.launch()
            end.record()
            end.synchronize()
            total += cupy.cuda.get_elapsed_time(begin, end) * 1e3
        if index >= 2:
            times.append(total / rounds / len(graphs))
    return statistics.median(times)


def wall_us(work: Callable[[int], Any], count: int, passes: int = 5) -> float:
    """Wall microseconds per call of ``work(i)``, the device idle before and finished after each."""
    import cupy

    stream = cupy.cuda.get_current_stream()
    for i in range(count):
        work(i)
    medians = []
    for _ in range(passes):
        times = []
        for i in range(count):
            stream.synchronize()
            began = time.perf_counter()
            kept = work(i)
            stream.synchronize()
            times.append((time.perf_counter() - began) * 1e6)
            del kept
        medians.append(statistics.median(times))
    return min(medians)
