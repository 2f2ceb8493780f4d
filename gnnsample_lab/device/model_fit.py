"""Fitting the GPU model to measured traces, and saying how far off it is on traces that it has not seen.

``python -m gnnsample_lab.device.model_fit FOLDER`` fits the traces of a folder and shows the errors of the held-out
half; with ``--write`` the result replaces the preset that it started from.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gnnsample_lab.device.model import PLANS, PRESETS_FILE, GpuModel, get_model
from gnnsample_lab.device.model_predict import errors, errors_by_trace, predict, trace_workload
from gnnsample_lab.traces import FUSED_STRATEGIES, SampleTrace, resident_workers

_UNIT_NUMBERS = ("empty_us", "base_us", "pick_us", "floyd_us", "pass_us")
_QUEUE_NUMBERS = ("queue_service_us", "queue_latency_us", "publish_us", "poll_us")
_BLOCK_NUMBERS = ("block_dispatch_us", "block_start_us")
# Factors that the search tries on each number; wide first, then fine.
_STEPS = ((0.25, 0.5, 2.0, 4.0), (0.7, 1.4), (0.85, 1.18), (0.93, 1.08))


def split_half(traces: Iterable[SampleTrace]) -> tuple[list[SampleTrace], list[SampleTrace]]:
    """(for fitting, held out): every other trace of a sorted list, so that both halves see all kinds."""

    def kind(t: SampleTrace) -> tuple[object, ...]:
        return (t.strategy, t.pick, t.graph_name, len(t.fanouts), t.fanouts, t.batch_size, t.batch_id, t.seed)

    ordered = sorted(traces, key=kind)
    return ordered[::2], ordered[1::2]


def fit(traces: Iterable[SampleTrace], base: GpuModel | str = "h200", *, rounds: int = 4) -> GpuModel:
    """Fit the numbers of a GPU to traces measured on it.

    Half of the traces fit, the other half is only predicted. First, host times are read off the traces and
    the cost of a task is estimated from task durations by least squares; then a coordinate search scales the
    numbers until kernel times and queue peaks of the first half agree best.

    Args:
        traces: measured traces of one device, at least two.
        base: where to start, and what stays as it is for strategies that no trace shows.
        rounds: passes of the search over all numbers, 1 (fine steps only) to 4 (from wide to fine).

    Returns:
        A model whose ``fit_error`` holds :func:`errors` of both halves, prefixed ``fitted_`` and
        ``held_out_``, and the numbers of traces, ``num_fitted`` and ``num_held_out``.

    Raises:
        ValueError: for fewer than two traces, or traces of several devices.
    """
    found = list(traces)
    if len(found) < 2:
        raise ValueError(f"traces must hold at least two traces to fit and to check (got {len(found)})")
    devices = sorted({t.device_name for t in found})
    if len(devices) > 1:
        raise ValueError(f"traces must come from one device (got {', '.join(devices)})")
    fitting, held_out = split_half(found)
    model = _host_times(get_model(base), fitting)
    model = replace(model, name=devices[0], num_sms=fitting[0].num_sms)
    bandwidths = [t.copy_bandwidth_gbps for t in fitting if np.isfinite(t.copy_bandwidth_gbps)]
    if bandwidths:
        model = replace(model, copy_bandwidth_gbps=float(np.median(bandwidths)))
    model = _launch_shapes(model, fitting)
    model = _task_costs(model, fitting)
    model = _search(model, fitting, rounds)
    measured = {f"fitted_{k}": v for k, v in errors(model, fitting).items()}
    measured |= {f"held_out_{k}": v for k, v in errors(model, held_out).items()}
    measured |= {"num_fitted": float(len(fitting)), "num_held_out": float(len(held_out))}
    origin = "measured" if all(t.origin == "measured" for t in found) else "not only measured"
    source = (
        f"Fitted to {len(fitting)} {origin} traces of {devices[0]}; errors are of {len(held_out)} others."
    )
    return replace(model, source=source, fit_error=measured)


def _host_times(model: GpuModel, traces: Sequence[SampleTrace]) -> GpuModel:
    """Host-side costs by the kind of preprocessing that each strategy has."""

    def median(host: str, pick: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]) -> float | None:
        values = [pick(t.hops.preprocess_us) for t in traces if PLANS[t.strategy][1] == host]
        joined = np.concatenate(values) if values else np.empty(0)
        return float(np.median(joined)) if len(joined) else None

    changes: dict[str, float | None] = {
        "graph_launch_us": median("graph", lambda p: p[:1]),
        "graph_node_us": median("graph", lambda p: p[1:]),
        "grid_barrier_us": median("barrier", lambda p: p[1:]),
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
    # Only the sum of the two shows; the ratio between them stays as it was.
    rest = max(synchronous - model.launch_us, 0.0)
    share = model.hop_setup_us / max(model.hop_setup_us + model.host_sync_us, 1e-9)
    return replace(model, hop_setup_us=rest * share, host_sync_us=rest * (1 - share))


def _launch_shapes(model: GpuModel, traces: Sequence[SampleTrace]) -> GpuModel:
    """Resident blocks and workers as recorded, or at least as many as were seen at work at once.

    A persistent grid is resident as a whole, so its blocks tell, and the workers over them are the workers of a
    block. Elsewhere only the product of the two shows.
    """
    execution = dict(model.execution)
    for t in traces:
        shape, known = execution[t.strategy], "resident_workers" in t.meta
        workers = resident_workers(t)
        if PLANS[t.strategy][0] == "queue":
            per_block = -(-workers // max(t.num_blocks, 1))
            # A grid may have been launched with fewer blocks than fit: the widest one counts.
            execution[t.strategy] = replace(
                shape,
                workers_per_block=per_block if known else max(per_block, shape.workers_per_block),
                blocks_per_sm=max(shape.blocks_per_sm, -(-t.num_blocks // t.num_sms)),
            )
        else:
            per_sm = max(1, -(-workers // (t.num_sms * shape.workers_per_block)))
            execution[t.strategy] = replace(
                shape, blocks_per_sm=per_sm if known else max(per_sm, shape.blocks_per_sm)
            )
    return replace(model, execution=execution)


def _task_costs(model: GpuModel, traces: Sequence[SampleTrace]) -> GpuModel:
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
            rows.append(
                np.column_stack([f.empty, f.full, f.pick_passes, f.slots, f.candidate_passes]).astype(float)
            )
            durations.append(t.tasks.duration_us[order])
        matrix, target = np.concatenate(rows), np.concatenate(durations)
        guess = np.array([getattr(unit, number) for number in _UNIT_NUMBERS])
        found = _non_negative(matrix, target, guess)
        model = model.with_unit(name, **dict(zip(_UNIT_NUMBERS, found.tolist(), strict=True)))
    return model


def _non_negative(
    matrix: npt.NDArray[np.float64], target: npt.NDArray[np.float64], guess: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Least squares of relative errors with coefficients >= 0."""
    weight = 1.0 / np.maximum(target, 0.1)
    a, b = matrix * weight[:, None], target * weight
    # A weak pull towards the guess decides what the data leave open: a rule that no trace used keeps its
    # number.
    pull = 1e-4 * len(target) / np.maximum(guess, 1e-3) ** 2
    gram, right = a.T @ a + np.diag(pull), a.T @ b + pull * guess
    x = guess.copy()
    for _ in range(200):
        for i in range(len(x)):
            x[i] = max(0.0, (right[i] - gram[i] @ x + gram[i, i] * x[i]) / gram[i, i])
    return x


@dataclass(frozen=True)
class _Move:
    """One number that the search scales, and which of the traces it can matter to."""

    apply: Callable[[GpuModel, float], GpuModel]
    matters: npt.NDArray[np.bool_]


def _search(model: GpuModel, traces: Sequence[SampleTrace], rounds: int) -> GpuModel:
    """Coordinate search over factors of single numbers; minimises squared logarithms of ratios."""
    units = [model.execution[t.strategy].unit for t in traces]
    works = [trace_workload(t, model.units[name]) for t, name in zip(traces, units, strict=True)]

    def loss(candidate: GpuModel, at: int) -> float:
        t = traces[at]
        expected = predict(candidate, t, works[at])
        value = np.log(max(expected.kernel_us, 1e-9) / max(t.kernel_us, 1e-9)) ** 2
        if t.queue.peak:
            value += 0.5 * np.log(max(expected.queue_peak, 1) / t.queue.peak) ** 2
        return float(value)

    moves = [
        _Move(_unit_move(name, number), np.array([unit == name for unit in units]))
        for name in sorted(set(units))
        for number in ("saturation", *_UNIT_NUMBERS)
    ]
    queued = np.array([t.strategy in FUSED_STRATEGIES for t in traces])
    moves += [_Move(_shared_move(number), queued) for number in _QUEUE_NUMBERS]
    moves += [_Move(_shared_move(number), np.ones(len(traces), dtype=bool)) for number in _BLOCK_NUMBERS]
    best = np.array([loss(model, at) for at in range(len(traces))])
    for factors in _STEPS[-rounds:]:
        for move in moves:
            affected = np.flatnonzero(move.matters).tolist()
            for factor in factors:
                candidate = move.apply(model, factor)
                values = np.array([loss(candidate, at) for at in affected])
                if values.sum() < best[affected].sum() * (1 - 1e-6):
                    model, best[affected] = candidate, values
    return model


def _unit_move(name: str, number: str) -> Callable[[GpuModel, float], GpuModel]:
    return lambda model, factor: model.with_unit(
        name, **{number: getattr(model.units[name], number) * factor}
    )


def _shared_move(number: str) -> Callable[[GpuModel, float], GpuModel]:
    return lambda model, factor: replace(model, **{number: getattr(model, number) * factor})


def load_traces(folder: str | Path) -> list[SampleTrace]:
    """All measured traces of a folder, in order of their names.

    Raises:
        FileNotFoundError: if the folder holds no measured trace.
        ValueError: if a file is damaged.
    """
    found = [SampleTrace.load(path) for path in sorted(Path(folder).glob("*.npz"))]
    measured = [t for t in found if t.origin == "measured"]
    if not measured:
        raise FileNotFoundError(f"no measured traces (*.npz) in {folder}")
    return measured


def store_preset(model: GpuModel, path: Path = PRESETS_FILE) -> None:
    """Put ``model`` in the presets file under its key, in place of the preset of that name."""
    data = json.loads(path.read_text(encoding="utf-8"))
    values = model.to_json()
    data["models"][values.pop("key")] = values
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line of the module; see its docstring."""
    parser = argparse.ArgumentParser(prog="model_fit", description="Fit the GPU model to measured traces.")
    parser.add_argument("folder", help="folder with *.npz traces of one GPU")
    parser.add_argument("--base", default="h200", help="preset to start from (default: h200)")
    parser.add_argument("--write", action="store_true", help="replace that preset by the result")
    options = parser.parse_args(arguments)
    traces = load_traces(options.folder)
    model = fit(traces, options.base)
    for row in errors_by_trace(model, split_half(traces)[1]):
        print(
            f"{row['strategy']:16} {row['pick']:10} {row['graph']:16} {row['batch_size']:6} x ({row['fanouts']})  "
            f"kernel {row['kernel_us']:8.1f} us, model {row['predicted_kernel_us']:8.1f} "
            f"({row['kernel_time_error']:.0%})  queue {row['queue_peak']}, model {row['predicted_queue_peak']}"
        )
    print(model.source)
    print({name: round(value, 3) for name, value in model.fit_error.items()})
    if options.write:
        store_preset(model)


if __name__ == "__main__":
    main()
