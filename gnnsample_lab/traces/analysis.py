"""Numbers derived from a trace: who was busy when, how evenly, how deep the queue was."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

    from gnnsample_lab.traces.records import SampleTrace
    from gnnsample_lab.traces.tables import QueueSeries, TaskTable

FloatArray = npt.NDArray[np.float64]

SHARING_STRATEGIES = frozenset({"edge-bsp"})
"""Strategies whose tasks share workers: their threads go over the edges of all rows, a warp over those of several."""


def _covered(start_us: FloatArray, end_us: FloatArray, at_us: FloatArray) -> FloatArray:
    """Integral of the number of running tasks up to each instant of ``at_us``."""

    def elapsed(since_us: FloatArray) -> FloatArray:
        since = np.sort(since_us)
        total = np.concatenate([[0.0], np.cumsum(since)])
        count = np.searchsorted(since, at_us, side="right")
        return np.asarray(count * at_us - total[count], dtype=np.float64)

    return elapsed(start_us) - elapsed(end_us)


def busy_workers(
    trace: SampleTrace, bins: int = 200, hop: int | None = None, sm: int | None = None
) -> tuple[FloatArray, FloatArray]:
    """Mean number of tasks running at once, in equal time bins from 0 to ``total_us``.

    Args:
        trace: the trace. bins: how many bins. hop, sm: count only that hop or that SM.

    Returns:
        (edges_us float64[bins + 1], running float64[bins]).

    Raises:
        ValueError: if ``bins`` is below 1.
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1 (got {bins})")
    tasks = trace.tasks
    keep = np.ones(len(tasks), dtype=bool)
    if hop is not None:
        keep &= tasks.hop == hop
    if sm is not None:
        keep &= tasks.sm == sm
    edges = np.linspace(0.0, max(trace.total_us, 1e-9), bins + 1)
    covered = _covered(tasks.start_us[keep], tasks.end_us[keep], edges)
    return edges, np.diff(covered) / np.diff(edges)


def resident_workers(trace: SampleTrace) -> int:
    """Workers that the device can hold at once under this strategy: as many tasks run at once at most, unless they
    share workers (:data:`SHARING_STRATEGIES`).

    Taken from ``meta["resident_workers"]`` when the producer knew it, else the most tasks that ever ran at
    once.
    """
    known = trace.meta.get("resident_workers")
    if known is not None:
        return int(known)
    return max(1, _peak_overlap(trace.tasks.start_us, trace.tasks.end_us))


def _peak_overlap(start_us: FloatArray, end_us: FloatArray) -> int:
    if len(start_us) == 0:
        return 0
    time = np.concatenate([start_us, end_us])
    step = np.concatenate([np.ones(len(start_us), np.int64), np.full(len(end_us), -1, np.int64)])
    # Ends come before starts at one instant: a worker that goes on at once is one worker, not two.
    return int(np.cumsum(step[np.lexsort((step, time))]).max())


def hop_spans(trace: SampleTrace) -> FloatArray:
    """float64[L, 2]: first start and last end of each hop's tasks in us; NaN for a hop without tasks."""
    spans = np.full((len(trace.fanouts), 2), np.nan)
    for hop in range(len(trace.fanouts)):
        rows = trace.tasks.hop == hop
        if rows.any():
            spans[hop] = trace.tasks.start_us[rows].min(), trace.tasks.end_us[rows].max()
    return spans


def hop_kernel_times(tasks: TaskTable, num_hops: int, fused: bool) -> FloatArray:
    """Kernel time of each hop in us, from the tasks alone.

    With a barrier between hops it is the span of the hop's tasks. Without one, every instant of the kernel is
    divided among the hops in proportion to the tasks running then, and an instant at which none runs goes to
    the hop that starts next, so that the hops add up to the time from the first start to the last end.

    Returns:
        float64[num_hops].
    """
    result = np.zeros(num_hops)
    if len(tasks) == 0:
        return result
    if not fused:
        for hop in range(num_hops):
            rows = tasks.hop == hop
            if rows.any():
                result[hop] = tasks.end_us[rows].max() - tasks.start_us[rows].min()
        return result
    time = np.concatenate([tasks.start_us, tasks.end_us])
    hops = np.concatenate([tasks.hop, tasks.hop]).astype(np.int64)
    step = np.concatenate([np.ones(len(tasks), np.int64), np.full(len(tasks), -1, np.int64)])
    order = np.argsort(time, kind="stable")
    time, hops, step = time[order], hops[order], step[order]
    length = np.diff(time)
    running = np.empty((num_hops, len(length)))
    for hop in range(num_hops):
        running[hop] = np.cumsum(np.where(hops == hop, step, 0))[:-1]
    total = running.sum(axis=0)
    busy = total > 0
    result += (running[:, busy] / total[busy] * length[busy]).sum(axis=1)
    for i in np.flatnonzero(~busy & (length > 0)):
        result[hops[i + 1]] += length[i]
    return result


def hop_utilisation(trace: SampleTrace) -> FloatArray:
    """float64[L]: share of the resident workers running a task of the hop, averaged over its kernel time.

    The counterpart of the utilisation columns of PGSampler's Table I that can be read off a trace; NaN for a
    hop without kernel time, and for every hop of a strategy whose tasks share workers.
    """
    if trace.strategy in SHARING_STRATEGIES:
        return np.full(len(trace.fanouts), np.nan)
    busy = np.bincount(trace.tasks.hop, weights=trace.tasks.duration_us, minlength=len(trace.fanouts))
    capacity = trace.hops.kernel_us * resident_workers(trace)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(capacity > 0, np.minimum(busy / capacity, 1.0), np.nan)
    return np.asarray(share, dtype=np.float64)


def busy_us_per_sm(trace: SampleTrace) -> FloatArray:
    """float64[num_sms]: task time spent on each SM, summed over its workers."""
    busy = np.bincount(trace.tasks.sm, weights=trace.tasks.duration_us, minlength=trace.num_sms)
    return np.asarray(busy, dtype=np.float64)


def idle_us_per_sm(trace: SampleTrace) -> FloatArray:
    """float64[num_sms]: time from 0 to ``total_us`` during which no task ran on the SM."""
    tasks = trace.tasks
    idle = np.full(trace.num_sms, trace.total_us)
    if len(tasks) == 0:
        return idle
    order = np.lexsort((tasks.start_us, tasks.sm))
    sm = tasks.sm[order].astype(np.int64)
    start, end = (np.clip(times[order], 0.0, trace.total_us) for times in (tasks.start_us, tasks.end_us))
    # Shifting every SM into its own stretch of time lets one running maximum serve them all.
    shift = sm * (float(end.max()) + 1.0)
    reach = np.maximum.accumulate(end + shift)
    before = np.concatenate([[-np.inf], reach[:-1]])
    fresh = np.maximum(end + shift - np.maximum(start + shift, before), 0.0)
    return np.maximum(idle - np.bincount(sm, weights=fresh, minlength=trace.num_sms), 0.0)


def load_imbalance(trace: SampleTrace) -> float:
    """Busiest SM over the mean of all SMs, by task time; 1.0 is perfect balance, NaN without tasks."""
    busy = busy_us_per_sm(trace)
    mean = float(busy.mean())
    return float(busy.max()) / mean if mean > 0 else float("nan")


def assign_lanes(trace: SampleTrace) -> npt.NDArray[np.int64]:
    """int64[n]: a lane for every task such that tasks of one SM that share a lane do not overlap.

    Lanes are filled from 0, so the lane count of an SM is the most tasks it ever ran at once.
    """
    tasks = trace.tasks
    lanes = np.zeros(len(tasks), dtype=np.int64)
    order = np.lexsort((tasks.end_us, tasks.start_us, tasks.sm))
    starts, ends, sms = tasks.start_us[order].tolist(), tasks.end_us[order].tolist(), tasks.sm[order].tolist()
    chosen = []
    current: int | None = None
    running: list[tuple[float, int]] = []
    free: list[int] = []
    used = 0
    for start, end, sm in zip(starts, ends, sms, strict=True):
        if sm != current:
            current, running, free, used = sm, [], [], 0
        while running and running[0][0] <= start:
            heapq.heappush(free, heapq.heappop(running)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, used = used, used + 1
        heapq.heappush(running, (end, lane))
        chosen.append(lane)
    lanes[order] = chosen
    return lanes


@dataclass(frozen=True)
class QueueStats:
    """Deepest point of the queue, when that was, mean depth over the run, and mean wait of a task."""

    peak: int
    peak_time_us: float
    mean_depth: float
    mean_wait_us: float


def waiting_tasks(trace: SampleTrace) -> QueueSeries:
    """The depth of a trace's queue without lost tasks: they stay in their slots, and nobody comes for them."""
    from gnnsample_lab.traces.tables import queue_depth_series

    if not len(trace.queue) or not np.isfinite(trace.lost.enqueue_us).any():
        return trace.queue
    return queue_depth_series(trace.tasks)


def queue_stats(trace: SampleTrace) -> QueueStats:
    """Queue figures of a trace, lost tasks left out; all zero for a strategy without a queue."""
    queue = waiting_tasks(trace)
    if len(queue) == 0:
        return QueueStats(0, 0.0, 0.0, 0.0)
    at = int(queue.depth.argmax())
    until = np.append(queue.time_us[1:], max(trace.total_us, float(queue.time_us[-1])))
    span = float(until[-1] - queue.time_us[0])
    mean = float((queue.depth * (until - queue.time_us)).sum() / span) if span > 0 else float(queue.depth[-1])
    wait = trace.tasks.start_us - trace.tasks.enqueue_us
    mean_wait = float(wait.mean()) if len(wait) else 0.0
    return QueueStats(int(queue.depth[at]), float(queue.time_us[at]), mean, mean_wait)


def compare_traces(model: SampleTrace, measured: SampleTrace) -> dict[str, float]:
    """Relative errors of a modelled trace against the measured one of the same sample.

    Returns:
        ``kernel_time`` and ``queue_peak``: |model - measured| / measured; ``queue_peak`` is NaN without a
        queue.
    """

    def relative(a: float, b: float) -> float:
        return abs(a - b) / b if b > 0 else float("nan")

    return {
        "kernel_time": relative(model.kernel_us, measured.kernel_us),
        "queue_peak": relative(float(queue_stats(model).peak), float(queue_stats(measured).peak)),
    }


def summarise(traces: SampleTrace | Sequence[SampleTrace]) -> pd.DataFrame:
    """One row per trace: identity, work, times, balance, queue; units are in the column names."""
    import pandas as pd

    from gnnsample_lab.traces.records import SampleTrace

    rows: list[dict[str, Any]] = []
    for trace in [traces] if isinstance(traces, SampleTrace) else traces:
        rows.append(
            {
                "strategy": trace.strategy,
                "graph": trace.title,
                "origin": trace.label,
                "batch_size": trace.batch_size,
                "fanouts": ", ".join(map(str, trace.fanouts)),
                "tasks": len(trace.tasks),
                "picks": int(trace.hops.num_picks.sum()),
                "lost_tasks": len(trace.lost),
                "preprocess_us": trace.preprocess_us,
                "kernel_us": trace.kernel_us,
                "total_us": trace.total_us,
                "sm_imbalance": load_imbalance(trace),
                "queue_peak": trace.queue.peak,
            }
        )
    return pd.DataFrame(rows)
