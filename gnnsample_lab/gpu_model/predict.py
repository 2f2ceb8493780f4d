"""Predictions of the GPU model for recorded traces, and their errors.

A trace has the tasks but not the parents that handed them on. For timing it does not matter which of the tasks that
ran at that time was the parent. So the parent of a task is taken to be the task of the hop before whose end, plus a
common lag, is closest to the time at which the task was queued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from gnnsample_lab.gpu_model.model import PLANS, GpuModel, TaskFeatures, UnitCost, hands_on, task_features
from gnnsample_lab.gpu_model.run import Timeline, Workload, simulate
from gnnsample_lab.traces import (
    FUSED_STRATEGIES,
    SampleTrace,
    TaskTable,
    hop_kernel_times,
    queue_depth_series,
)

ErrorRow = dict[str, str | int | float]

# Largest time in us between the end of a parent and the queueing of its task.
_MAX_LAG_US = 4.0


@dataclass(frozen=True)
class Prediction:
    """Kernel time and deepest queue of one trace as the model replays it; the queue is 0 without one.

    ``course_us`` is :func:`course` of the replay.
    """

    kernel_us: float
    queue_peak: int
    course_us: npt.NDArray[np.float64]


def trace_workload(trace: SampleTrace, unit: UnitCost) -> Workload:
    """The tasks of a recorded trace as a workload for the GPU model, in hop-major order.

    Raises:
        ValueError: if the trace has no tasks in its first hop.
    """
    tasks = trace.tasks
    num_hops = len(trace.fanouts)
    order = np.lexsort((tasks.enqueue_us, tasks.hop))
    tasks = tasks.take(order)
    hop_ptr = np.searchsorted(tasks.hop, np.arange(num_hops + 1)).astype(np.int64)
    if hop_ptr[1] == 0:
        raise ValueError("trace must have tasks in its first hop (got none)")
    features = [
        task_features(
            unit, tasks.degree[a:b], tasks.num_picks[a:b].astype(np.int64), trace.fanouts[hop],
            pick=trace.pick, replace=trace.replace, weighted=trace.weighted,
            hands_on=hands_on(trace.strategy, hop, num_hops),
        )
        for hop, (a, b) in enumerate(pairwise(hop_ptr.tolist()))
    ]  # fmt: skip
    per_task = np.divide(
        trace.hops.bytes_moved, np.diff(hop_ptr), out=np.zeros(num_hops), where=np.diff(hop_ptr) > 0
    )
    scans = trace.weighted or (trace.pick == "reservoir" and not trace.replace)
    child_ptr, child = _parents(tasks, hop_ptr)
    return Workload(
        hop_ptr=hop_ptr,
        features=TaskFeatures(
            *(
                np.concatenate([getattr(f, name) for f in features])
                for name in TaskFeatures.__dataclass_fields__
            )
        ),
        candidates=(tasks.degree if scans else tasks.num_picks).astype(np.int64),
        bytes_moved=np.repeat(per_task, np.diff(hop_ptr)).astype(np.int64),
        child_ptr=child_ptr,
        child=child,
    )


def _nearest(sorted_ends: npt.NDArray[np.float64], at: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Index of the end that lies closest to each instant."""
    right = np.minimum(np.searchsorted(sorted_ends, at), len(sorted_ends) - 1)
    left = np.maximum(right - 1, 0)
    return np.where(np.abs(sorted_ends[left] - at) <= np.abs(sorted_ends[right] - at), left, right)


def _lag(sorted_ends: npt.NDArray[np.float64], enqueue: npt.NDArray[np.float64]) -> float:
    """How long after its parent ends a task is queued (negative: before), by what fits the instants best."""
    some = enqueue[:: max(1, len(enqueue) // 1000)]
    lags = np.arange(-_MAX_LAG_US, _MAX_LAG_US + 1e-9, 0.05)
    misfit = [np.abs(sorted_ends[_nearest(sorted_ends, some - lag)] + lag - some).mean() for lag in lags]
    return float(lags[int(np.argmin(misfit))])


def _parents(
    tasks: TaskTable, hop_ptr: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """CSR from each task to the tasks it is taken to have handed on; one parent each."""
    n = int(hop_ptr[-1])
    parent = np.full(n, -1, dtype=np.int64)
    for hop in range(1, len(hop_ptr) - 1):
        before = np.arange(hop_ptr[hop - 1], hop_ptr[hop])
        mine = slice(int(hop_ptr[hop]), int(hop_ptr[hop + 1]))
        enqueue = tasks.enqueue_us[mine]
        if len(before) == 0 or len(enqueue) == 0:
            continue
        by_end = before[np.argsort(tasks.end_us[before], kind="stable")]
        ends = tasks.end_us[by_end]
        parent[mine] = by_end[_nearest(ends, enqueue - _lag(ends, enqueue))]
    handed = np.flatnonzero(parent >= 0)
    handed = handed[np.argsort(parent[handed], kind="stable")]
    counts = np.bincount(parent[handed], minlength=n)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), handed.astype(np.int64)


def kernel_time(trace: SampleTrace) -> float:
    """Kernel time of a trace by the GPU's own clock, us: from first start to last end, per hop where hops do
    not overlap.

    Events around a single short launch also time the host that launches it, hence not ``trace.kernel_us``.
    """
    fused = trace.strategy in FUSED_STRATEGIES
    return float(hop_kernel_times(trace.tasks, len(trace.fanouts), fused).sum())


def course(
    hop: npt.NDArray[np.int64],
    start_us: npt.NDArray[np.float64],
    end_us: npt.NDArray[np.float64],
    fused: bool,
) -> npt.NDArray[np.float64]:
    """How a run proceeded: of each hop the median start, median end and last end.

    Counted from the first start of the run, or, where a barrier separates hops, of the hop.
    """
    found: list[float] = []
    for h in range(int(hop.max()) + 1):
        rows = hop == h
        if rows.any():
            since = start_us.min() if fused else start_us[rows].min()
            found += [
                np.median(start_us[rows]) - since,
                np.median(end_us[rows]) - since,
                end_us[rows].max() - since,
            ]
    return np.array(found)


def predict(model: GpuModel, trace: SampleTrace, workload: Workload | None = None) -> Prediction:
    """Kernel time and queue peak that the model expects for the tasks of a recorded trace."""
    unit = model.unit(trace.strategy)
    work = trace_workload(trace, unit) if workload is None else workload
    timeline = simulate(
        model,
        work,
        trace.strategy,
        pick=trace.pick,
        fetch_size=trace.fetch_size or 1,
        completion=trace.completion or "exact",
        num_blocks=trace.num_blocks if PLANS[trace.strategy][0] == "queue" else None,
        grid_tasks=trace.num_blocks,
    )
    kernel = 0.0
    parts = (
        [np.arange(work.num_tasks)]
        if timeline.kernel_us is None
        else np.split(np.arange(work.num_tasks), work.hop_ptr[1:-1])
    )
    for rows in parts:
        ran = rows[timeline.processed[rows]]
        if len(ran):
            kernel += float(timeline.end_us[ran].max() - timeline.start_us[ran].min())
    fused, done = trace.strategy in FUSED_STRATEGIES, timeline.processed
    hop = np.repeat(np.arange(work.num_hops), np.diff(work.hop_ptr))
    return Prediction(
        kernel,
        _queue_peak(timeline) if fused else 0,
        course(hop[done], timeline.start_us[done], timeline.end_us[done], fused),
    )


def _queue_peak(timeline: Timeline) -> int:
    done = timeline.processed
    zero = np.zeros(int(done.sum()))
    return queue_depth_series(
        TaskTable(
            zero, zero, zero, zero, zero, zero, timeline.enqueue_us[done], timeline.start_us[done], zero
        )
    ).peak


def errors_by_trace(model: GpuModel, traces: Sequence[SampleTrace]) -> list[ErrorRow]:
    """One row per trace: what it is, measured and predicted kernel time (us) and queue peak, relative errors.

    Traces of other GPUs than the model's say nothing of it, and are left out.
    """
    rows: list[ErrorRow] = []
    for trace in traces:
        if trace.device_name != model.name:
            continue
        expected, peak = predict(model, trace), trace.queue.peak
        measured = kernel_time(trace)
        rows.append(
            {
                "strategy": trace.strategy,
                "pick": trace.pick,
                "graph": trace.graph_name,
                "batch_size": trace.batch_size,
                "fanouts": ", ".join(map(str, trace.fanouts)),
                "kernel_us": measured,
                "predicted_kernel_us": expected.kernel_us,
                "kernel_time_error": abs(expected.kernel_us - measured) / max(measured, 1e-9),
                "queue_peak": peak,
                "predicted_queue_peak": expected.queue_peak,
                "queue_peak_error": abs(expected.queue_peak - peak) / peak if peak else float("nan"),
            }
        )
    return rows


def errors(model: GpuModel, traces: Sequence[SampleTrace]) -> dict[str, float]:
    """Relative errors of the model's predictions: mean and largest, for kernel time and queue peak.

    Keys: ``kernel_time_mean``, ``kernel_time_max``, and, if a trace has a queue, ``queue_peak_mean``,
    ``queue_peak_max``; none where no trace is of the model's GPU.
    """
    return summary(errors_by_trace(model, traces))


def summary(rows: Sequence[ErrorRow]) -> dict[str, float]:
    """Mean and largest errors of the rows of :func:`errors_by_trace`, with the keys of :func:`errors`."""
    result: dict[str, float] = {}
    for name in ("kernel_time", "queue_peak"):
        values = np.array([row[f"{name}_error"] for row in rows], dtype=np.float64)
        values = values[np.isfinite(values)]
        if len(values):
            result |= {f"{name}_mean": float(values.mean()), f"{name}_max": float(values.max())}
    return result
