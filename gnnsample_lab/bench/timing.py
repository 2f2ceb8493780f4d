"""How time is taken: CUDA graphs replayed over rotating batches, and wall time; medians over passes, and spreads."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gnnsample_lab.device import runtime
from gnnsample_lab.sampling.neighbors.launch import capture
from gnnsample_lab.spans import covered

from .quick_core import quick_pass


def capture_all(works: Sequence[Callable[[], None]]) -> list[Any]:
    """One CUDA graph per piece of work."""
    return [capture(work) for work in works]


def spread(times: Sequence[float], of: str = "us") -> dict[str, float]:
    """What stands for ``times`` in a row: the median as ``of``, ``p10_<of>``, ``p90_<of>``, and how many there were.

    Raises:
        ValueError: no times.
    """
    if not len(times):
        raise ValueError("times must hold at least one (got none)")
    low, high = np.quantile(times, (0.1, 0.9))
    middle = statistics.median(times)
    return {of: middle, f"p10_{of}": float(low), f"p90_{of}": float(high), "passes": len(times)}


def around(found: Mapping[str, Any]) -> dict[str, float]:
    """Of a :func:`spread` what a row keeps in its ``spread``: p10, p90 and the number of passes."""
    return {key: value for key, value in found.items() if key == "passes" or key.startswith(("p10_", "p90_"))}


def replay_times(
    graphs: Sequence[Any], prepare: Callable[[], None] | None = None, passes: int = 7,
    lead_in: Callable[[], None] | None = None,
) -> list[float]:  # fmt: skip
    """Microseconds of GPU time per graph, one number a pass, after two warm passes.

    Args:
        graphs: launched back to back between two events.
        prepare: host work before each pass (fresh stamps), not timed.
        passes: timed passes.
        lead_in: puts work on the stream in front of the first event. While it runs the host launches all graphs, so
            that the launch of the first is not timed; then a pass launches every graph once, else more often.
    """
    import cupy

    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    rounds = 1 if lead_in else max(1, 24 // len(graphs))
    times = []
    for _ in range(passes + 2):
        total = 0.0
        for _ in range(rounds):
            if prepare is not None:
                prepare()
            cupy.cuda.get_current_stream().synchronize()
            if lead_in is not None:
                lead_in()
            begin.record()
            for graph in graphs:
                graph.launch()
            end.record()
            end.synchronize()
            total += cupy.cuda.get_elapsed_time(begin, end) * 1e3
        times.append(total / rounds / len(graphs))
    return times[2:]


def replay_us(graphs: Sequence[Any], prepare: Callable[[], None] | None = None, passes: int = 7) -> float:
    """Microseconds of GPU time per graph: the median of :func:`replay_times`.

    Args:
        graphs: one per batch; together they should touch several times the L2 cache.
        prepare: host work before each pass (fresh stamps), not timed.
        passes: timed passes after two warm ones.
    """
    return statistics.median(replay_times(graphs, prepare, passes))


def synchronize() -> None:
    """Wait for the GPU, where there is one: for torch's stream and for CuPy's."""
    _waiting()()


def _waiting() -> Callable[[], Any]:
    """What waits for the GPU. Clocks make it before they run: looking for the GPU is not timed."""
    if not runtime.cuda_available():
        return lambda: None
    import cupy

    wait: Callable[[], Any] = cupy.cuda.Device().synchronize
    return wait


def _alone_us(work: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Wall microseconds of ``work()``, the device idle before and finished after; the result dies untimed."""
    wait()
    began = time.perf_counter()
    kept = work()
    wait()
    us = (time.perf_counter() - began) * 1e6
    del kept
    return us


def pass_times(work: Callable[[], Any], passes: int = 5) -> list[float]:
    """Wall microseconds of ``work()``, the device idle before and finished after, one a pass after a warm-up."""
    wait = _waiting()
    return [_alone_us(work, wait) for _ in range(passes + 1)][1:]


def turns(works: Sequence[Callable[[], Any]], passes: int = 5) -> list[list[float]]:
    """Wall microseconds of each of ``works``, as :func:`pass_times` finds them, but in turns: what slows the machine
    for a while slows all of them."""
    wait = _waiting()
    taken = [[_alone_us(work, wait) for work in works] for _ in range(passes + 1)][1:]
    return [list(times) for times in zip(*taken, strict=True)]


def pass_us(work: Callable[[], Any], passes: int = 3) -> float:
    """Wall microseconds of ``work()``: the median of :func:`pass_times`."""
    return statistics.median(pass_times(work, passes))


def wall_passes(work: Callable[[int], Any], count: int, passes: int = 5) -> list[list[float]]:
    """Wall microseconds of each ``work(i)``, the device idle before and after, one list a pass after a warm one.

    Each pass on a core that is quick, where a GPU works for the host's one thread.
    """
    wait = _waiting()

    def taken() -> list[float]:
        return [_alone_us(functools.partial(work, i), wait) for i in range(count)]

    taken()
    return [quick_pass(taken, taken) for _ in range(passes)]


def wall_times(work: Callable[[int], Any], count: int, passes: int = 5) -> list[float]:
    """Wall microseconds of one ``work(i)``: the median of each pass of :func:`wall_passes`."""
    return [statistics.median(times) for times in wall_passes(work, count, passes)]


def wall_us(work: Callable[[int], Any], count: int, passes: int = 3) -> float:
    """Wall microseconds of one ``work(i)``, each alone: best median of the passes after a warm one."""
    return min(wall_times(work, count, passes))


def busy_us(work: Callable[[int], Any], count: int) -> float | None:
    """Microseconds for which kernels and copies of one ``work(i)`` occupy the GPU, by PyTorch's profiler.

    What is left of its wall time is the host's. None without PyTorch, or where the profiler sees nothing.
    """
    try:
        import torch
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.cuda.init()  # else the first call would do it, under the profiler
    wait = _waiting()
    work(0)
    wait()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for i in range(count):
            kept = work(i)
            wait()
            del kept
    kernels = [e for e in seen.events() if str(e.device_type).endswith("CUDA")]
    # A kernel that waits inside for the one before overlaps it.
    spent = covered((float(e.time_range.start), float(e.time_range.end)) for e in kernels)
    return spent / count if spent else None


def gpu_times(work: Callable[[int], Any], count: int, passes: int = 5) -> list[float]:
    """GPU microseconds of one ``work(i)``, a number a pass: all of them back to back on one stream between two events.

    ``work`` may not wait for the GPU. The GPU is kept busy while the host launches, so that launches do not count.
    """
    if runtime.resolve_device("auto") == "cpu":
        return wall_times(work, count, passes)
    import cupy

    from gnnsample_lab.device.streams import torch_stream

    with torch_stream():
        stream = cupy.cuda.get_current_stream()
        flush = cupy.empty(1 << 28, cupy.uint8)
        times = []
        for index in range(passes + 1):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            stream.synchronize()
            # About a millisecond of work, and nothing of the inputs stays in the L2.
            for _ in range(8 if index else 1):
                flush.data.memset_async(0, flush.nbytes, stream)
            begin.record(stream)
            kept = [work(i) for i in range(count)]
            end.record(stream)
            end.synchronize()
            times.append(cupy.cuda.get_elapsed_time(begin, end) * 1e3 / count)
            del kept
    return times[1:]


def gpu_us(work: Callable[[int], Any], count: int, passes: int = 5) -> float:
    """GPU microseconds of one ``work(i)``: the median of :func:`gpu_times`."""
    return statistics.median(gpu_times(work, count, passes))
