"""Estimates of the GPU model's numbers directly from measured traces, before the search of ``fit`` refines them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gnnsample_lab.gpu_model.model import PLANS, GpuModel
from gnnsample_lab.gpu_model.predict import trace_workload
from gnnsample_lab.traces import FUSED_STRATEGIES, SampleTrace, hop_spans, resident_workers

UNIT_NUMBERS = ("empty_us", "base_us", "pick_us", "floyd_us", "pass_us", "expand_us")


def host_times(model: GpuModel, traces: Sequence[SampleTrace]) -> GpuModel:
    """Host-side costs by the kind of preprocessing that each strategy has."""

    def median(host: str, pick: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]) -> float | None:
        values = [pick(t.hops.preprocess_us) for t in traces if PLANS[t.strategy][1] == host]
        joined = np.concatenate(values) if values else np.empty(0)
        joined = joined[joined > 0]  # kernels that the host was not asked about have none
        return float(np.median(joined)) if len(joined) else None

    changes: dict[str, float | None] = {
        "graph_launch_us": median("graph", lambda p: p[:1]),
        "graph_node_us": median("graph", lambda p: p[1:]),
        "grid_barrier_us": _barrier_us(traces),
    }
    launches = [
        median("launch", lambda p: p),
        median("once", lambda p: p[:1]),
        median("barrier", lambda p: p[:1]),
    ]
    known = [value for value in launches if value is not None]
    changes["launch_us"] = float(np.median(known)) if known else None
    model = replace(model, **{k: v for k, v in changes.items() if v is not None})  # type: ignore[arg-type]
    synchronous = median("sync", lambda p: p)
    if synchronous is None:
        return model
    # Traces only show the sum of the two; their ratio stays as it was.
    rest = max(synchronous - model.launch_us, 0.0)
    share = model.hop_setup_us / max(model.hop_setup_us + model.host_sync_us, 1e-9)
    return replace(model, hop_setup_us=rest * share, host_sync_us=rest * (1 - share))


def _barrier_us(traces: Sequence[SampleTrace]) -> float | None:
    """From the last task of a hop to the first of the next."""
    gaps: list[float] = []
    for t in traces:
        if PLANS[t.strategy][1] == "barrier":
            spans = hop_spans(t)
            gaps += (spans[1:, 0] - spans[:-1, 1]).tolist()
    return max(float(np.median(gaps)), 0.0) if gaps else None


def launch_shapes(model: GpuModel, traces: Sequence[SampleTrace]) -> GpuModel:
    """Resident blocks and workers as recorded, or at least as many as were seen at work at once.

    A persistent grid is resident as a whole, so its blocks are counted, and workers divided by blocks are the workers
    per block. For other grids traces only show the product of the two.
    """
    execution = dict(model.execution)
    for t in traces:
        shape, known = execution[t.strategy], "resident_workers" in t.meta
        workers = resident_workers(t)
        rows = model.units[shape.unit].rows
        shared = rows > 1  # how many tasks were seen at once then says nothing about groups of threads
        workers = -(-workers // rows) if known else workers
        before = shape.resident_per_sm(t.pick)
        if PLANS[t.strategy][0] == "queue":
            per_block = -(-workers // max(t.num_blocks, 1))
            # A grid may have been launched with fewer blocks than fit: the widest one counts.
            fit_in = max(before, -(-t.num_blocks // t.num_sms))
            if known or not shared:
                fewest = 1 if known else shape.workers_per_block
                shape = replace(shape, workers_per_block=max(per_block, fewest))
        elif known or not shared:
            per_sm = max(1, -(-workers // (t.num_sms * shape.workers_per_block)))
            fit_in = per_sm if known else max(per_sm, before)
        else:
            fit_in = before
        if t.pick == "floyd" and shape.blocks_per_sm_floyd:
            execution[t.strategy] = replace(shape, blocks_per_sm_floyd=fit_in)
        else:
            execution[t.strategy] = replace(shape, blocks_per_sm=fit_in)
    return replace(model, execution=execution)


def task_costs(model: GpuModel, traces: Sequence[SampleTrace]) -> GpuModel:
    """Cost of a task from task durations, per unit, by non-negative least squares on what tasks do."""
    by_unit: dict[str, list[SampleTrace]] = {}
    for t in traces:
        if t.strategy != "edge-bsp" and len(t.tasks):
            by_unit.setdefault(model.execution[t.strategy].unit, []).append(t)
    for name, group in by_unit.items():
        unit = model.units[name]
        rows, durations = [], []
        for t in group:
            f = trace_workload(t, unit).features
            order = np.lexsort((t.tasks.enqueue_us, t.tasks.hop))
            columns = [f.empty, f.full, f.pick_passes, f.slots, f.candidate_passes, f.expands]
            matrix, target = (
                np.column_stack(columns).astype(float),
                np.maximum(t.tasks.duration_us[order] - f.queues * unit.after_us, 0.05),
            )
            if unit.rows > 1:
                matrix, target = _grouped(t, order, matrix, target)
            rows.append(matrix)
            durations.append(target)
        matrix, target = np.concatenate(rows), np.concatenate(durations)
        guess = np.array([getattr(unit, number) for number in UNIT_NUMBERS])
        found = _non_negative(matrix, target, guess)
        model = model.with_unit(name, **dict(zip(UNIT_NUMBERS, found.tolist(), strict=True)))
    return model


def after_us(model: GpuModel, traces: Sequence[SampleTrace]) -> GpuModel:
    """Per unit, the time from the first new task that a seed's task queues to the end of that task."""
    by_unit: dict[str, list[float]] = {}
    for t in traces:
        first, second = t.tasks.hop == 0, t.tasks.hop == 1
        if t.strategy in FUSED_STRATEGIES and second.any():
            ends = np.percentile(t.tasks.end_us[first], (10, 50, 90))
            queued = np.percentile(t.tasks.enqueue_us[second], (10, 50, 90))
            by_unit.setdefault(model.execution[t.strategy].unit, []).append(float(np.median(ends - queued)))
    for name, values in by_unit.items():
        # Publication itself comes on top.
        rest = float(np.median(values)) + model.publish_us
        model = model.with_unit(name, after_us=max(rest, 0.0))
    return model


def _grouped(
    trace: SampleTrace,
    order: npt.NDArray[np.int64],
    matrix: npt.NDArray[np.float64],
    target: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Tasks that a group of threads served together, as one row: they share block, start and hop or nearly so."""
    tasks = trace.tasks
    key = np.stack([tasks.block[order], np.round(tasks.start_us[order] * 1e3).astype(np.int64)], axis=1)
    _, at = np.unique(key, axis=0, return_inverse=True)
    at = at.ravel()
    result = np.zeros((int(at.max()) + 1, matrix.shape[1]))
    longest = np.zeros(len(result))
    np.maximum.at(result, at, matrix)
    for column in (2, 4):  # picks and candidates are looked at one row after the other
        result[:, column] = np.bincount(at, weights=matrix[:, column], minlength=len(result))
    result[:, 0] *= result[:, 1] == 0
    np.maximum.at(longest, at, target)
    return result, longest


def _non_negative(
    matrix: npt.NDArray[np.float64], target: npt.NDArray[np.float64], guess: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Least squares of relative errors with coefficients >= 0."""
    weight = 1.0 / np.maximum(target, 0.1)
    a, b = matrix * weight[:, None], target * weight
    # A weak pull towards the guess decides where the data do not: the number of a rule that no trace used stays.
    pull = 1e-4 * len(target) / np.maximum(guess, 1e-3) ** 2
    gram, right = a.T @ a + np.diag(pull), a.T @ b + pull * guess
    x = guess.copy()
    for _ in range(200):
        for i in range(len(x)):
            x[i] = max(0.0, (right[i] - gram[i] @ x + gram[i, i] * x[i]) / gram[i, i])
    return x
