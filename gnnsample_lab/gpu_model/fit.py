"""Fit the GPU model to measured traces, and report its errors on traces that were held out.

``python -m gnnsample_lab.gpu_model.fit FOLDER`` fits the traces of a folder and shows the errors of the held-out
half; ``--refine`` fits the queue's latencies alone and shows the errors of each graph for a model that has not seen
it. With ``--write`` the result replaces the preset that it started from.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gnnsample_lab.files import replace_file
from gnnsample_lab.gpu_model.estimate import UNIT_NUMBERS, after_us, host_times, launch_shapes, task_costs
from gnnsample_lab.gpu_model.model import PRESETS_FILE, GpuModel, get_model
from gnnsample_lab.gpu_model.predict import (
    ErrorRow,
    course,
    errors,
    errors_by_trace,
    kernel_time,
    predict,
    summary,
    trace_workload,
)
from gnnsample_lab.gpu_model.run_error import recorded_over_modelled
from gnnsample_lab.traces import FUSED_STRATEGIES, SampleTrace

_QUEUE_NUMBERS = ("queue_service_us", "queue_slot_us", "queue_latency_us", "publish_us", "poll_us")
_BLOCK_NUMBERS = ("block_start_us",)
# Saturation and the block scheduler's time stay as set: no kernel time tells them from latencies.
# Factors that the search tries on each number; wide first, then fine.
_PULL = 0.003
_STEPS = ((0.25, 0.5, 2.0, 4.0), (0.7, 1.4), (0.85, 1.18), (0.93, 1.08))
# Refining starts from numbers that are nearly right, and few traces must not carry them far; per trace with a queue.
# With four fifths of this pull a left-out queue's peak is 33 % off at worst and not 12 %.
_REFINING_PULL = 0.012
_REFINING_PEAKS = 2.0
# How long a task waits in the queue. The time that the counters serve one request stays: few blocks contend for them.
_WAITING_NUMBERS = ("queue_latency_us", "publish_us", "poll_us")
_REFINING_STEPS = ((0.5, 2.0), (0.7, 1.4), (0.85, 1.18), (0.93, 1.08), (0.93, 1.08))


# Of traces that hold one run per strategy and pick rule, these are predicted: each has a relative among the
# others with the same unit, but another strategy, pick rule or graph.
_HELD_OUT = {
    ("block-bsp", "reservoir"), ("fused-static", "floyd"), ("grid-barrier", "floyd"),
    ("persistent", "reservoir"), ("persistent-tile", "floyd"),
}  # fmt: skip


def comparable(trace: SampleTrace) -> bool:
    """Whether the model can predict a measured trace.

    It cannot for ``edge-bsp``, whose records cover only the last of its three kernels, and for runs of the published
    completion rule, which end in a race.
    """
    return trace.strategy != "edge-bsp" and trace.completion != "paper"


def split_half(traces: Iterable[SampleTrace]) -> tuple[list[SampleTrace], list[SampleTrace]]:
    """(for fitting, held out) of the traces that are :func:`comparable`.

    Every other trace of a sorted list, so that both halves see all kinds; where there is but one trace of each
    strategy and pick rule, halves are chosen such that each has queues, hops with barriers, and both rules.
    """
    traces = [t for t in traces if comparable(t)]
    kinds = [(t.strategy, t.pick) for t in traces]
    if len(kinds) > 2 and len(set(kinds)) == len(kinds):
        fitting = [t for t, k in zip(traces, kinds, strict=True) if k not in _HELD_OUT]
        held_out = [t for t, k in zip(traces, kinds, strict=True) if k in _HELD_OUT]
        if fitting and held_out:
            return fitting, held_out

    def kind(t: SampleTrace) -> tuple[object, ...]:
        return (t.strategy, t.pick, t.graph_name, len(t.fanouts), t.fanouts, t.batch_size, t.batch_id, t.seed)

    ordered = sorted(traces, key=kind)
    return ordered[::2], ordered[1::2]


def fit(traces: Iterable[SampleTrace], base: GpuModel | str = "h200", *, rounds: int = 4) -> GpuModel:
    """Fit the numbers of a GPU to traces measured on it.

    Half of the traces fit, the other half is only predicted. First, host times are read off the traces and
    the cost of a task is estimated from task durations by least squares; then a coordinate search scales the
    numbers until kernel times, queue peaks and the course of each hop agree best in the first half.

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
    found = [t for t in traces if comparable(t)]
    if len(found) < 2:
        raise ValueError(f"traces must hold at least two traces to fit and to check (got {len(found)})")
    devices = sorted({t.device_name for t in found})
    if len(devices) > 1:
        raise ValueError(f"traces must come from one device (got {', '.join(devices)})")
    fitting, held_out = split_half(found)
    model = host_times(get_model(base), fitting)
    model = replace(model, name=devices[0], num_sms=fitting[0].num_sms)
    bandwidths = [t.copy_bandwidth_gbps for t in fitting if np.isfinite(t.copy_bandwidth_gbps)]
    if bandwidths:
        model = replace(model, copy_bandwidth_gbps=float(np.median(bandwidths)))
    model = launch_shapes(model, fitting)
    model = after_us(model, fitting)
    model = task_costs(model, fitting)
    model = _search(model, fitting, _all_moves(model, fitting), _STEPS[-rounds:], _PULL)
    measured = {f"fitted_{k}": v for k, v in errors(model, fitting).items()}
    measured |= {f"held_out_{k}": v for k, v in errors(model, held_out).items()}
    measured |= {"num_fitted": float(len(fitting)), "num_held_out": float(len(held_out))}
    origin = "measured" if all(t.origin == "measured" for t in found) else "not only measured"
    source = (
        f"Fitted to {len(fitting)} {origin} traces of {devices[0]}; errors are of {len(held_out)} others."
    )
    if held_out[0:1] and all((t.strategy, t.pick) in _HELD_OUT for t in held_out):
        source += f" Those are {', '.join(f'{t.strategy} ({t.pick})' for t in held_out)}."
    return replace(model, source=source, fit_error=measured, recorded_over_modelled={})


def refine(traces: Iterable[SampleTrace], base: GpuModel | str = "h200") -> tuple[GpuModel, list[ErrorRow]]:
    """Fit the latencies of the queue to traces of several graphs, and leave all other numbers as they are.

    Squared logarithms of ratios are minimised, and each number is pulled towards that of ``base``: what the traces do
    not determine stays. The score is not that of the result on the traces it was fitted to: each graph is predicted by
    a model that was fitted to the traces of the other graphs alone.

    Args:
        traces: measured traces of the GPU of ``base``, on two graphs at least.
        base: where to start, and what to stay close to.

    Returns:
        The model fitted to all traces, and the rows of :func:`errors_by_trace` for graphs that were left out. The
        model's ``fit_error`` holds :func:`summary` of these rows, prefixed ``held_out_``, :func:`errors` of the result
        on all traces, prefixed ``fitted_``, and the numbers of traces, ``num_fitted`` and ``num_held_out``.

    Raises:
        ValueError: traces of fewer than two graphs, or of another GPU.
    """
    start = get_model(base)
    found = _of_gpu(start, traces)
    graphs = sorted({t.graph_name for t in found})
    if len(graphs) < 2:
        raise ValueError(f"traces must be of two graphs at least (got {', '.join(graphs)})")

    def fitted(some: list[SampleTrace]) -> GpuModel:
        pull = _REFINING_PULL * sum(t.strategy in FUSED_STRATEGIES for t in some)
        return _search(
            start, some, _queue_moves(some, _WAITING_NUMBERS), _REFINING_STEPS, pull, _REFINING_PEAKS
        )

    rows: list[ErrorRow] = []
    for graph in graphs:
        without = fitted([t for t in found if t.graph_name != graph])
        rows += errors_by_trace(without, [t for t in found if t.graph_name == graph])
    model = fitted(found)
    measured = {f"held_out_{k}": v for k, v in summary(rows).items()}
    measured |= {f"fitted_{k}": v for k, v in errors(model, found).items()}
    measured |= {"num_fitted": float(len(found)), "num_held_out": float(len(found))}
    source = (
        f"Fitted: latencies of the queue, to {len(found)} measured traces of {start.name}. Errors are of the same "
        f"traces, those of each graph ({', '.join(graphs)}) as predicted by a model fitted without that graph."
    )
    return replace(model, source=source, fit_error=measured), rows


@dataclass(frozen=True)
class _Move:
    """One number that the search scales, and which of the traces it can matter to."""

    apply: Callable[[GpuModel, float], GpuModel]
    matters: npt.NDArray[np.bool_]


def _search(
    model: GpuModel, traces: Sequence[SampleTrace], moves: Sequence[_Move], steps: Sequence[Sequence[float]],
    pull_to_start: float, peaks: float = 0.5,
) -> GpuModel:  # fmt: skip
    """Coordinate search over factors of single numbers; minimises squared logarithms of ratios.

    Args:
        moves, steps: numbers, and the factors tried on each, pass by pass.
        pull_to_start: weight of a number's own squared logarithm. peaks: weight of queue peaks; kernel times have 1.
    """
    works = [trace_workload(t, model.unit(t.strategy)) for t in traces]
    courses = [
        course(t.tasks.hop.astype(np.int64), t.tasks.start_us, t.tasks.end_us, t.strategy in FUSED_STRATEGIES)
        for t in traces
    ]

    def loss(candidate: GpuModel, at: int) -> float:
        t = traces[at]
        expected = predict(candidate, t, works[at])
        value = np.log(max(expected.kernel_us, 1e-9) / max(kernel_time(t), 1e-9)) ** 2
        if t.queue.peak:
            value += peaks * np.log(max(expected.queue_peak, 1) / t.queue.peak) ** 2
        if len(expected.course_us) == len(courses[at]):
            value += np.mean(((expected.course_us - courses[at]) / max(courses[at].max(), 1e-9)) ** 2)
        return float(value)

    best = np.array([loss(model, at) for at in range(len(traces))])
    scaled = np.ones(len(moves))
    for factors in steps:
        for which, move in enumerate(moves):
            affected = np.flatnonzero(move.matters).tolist()
            for factor in factors:
                candidate = move.apply(model, factor)
                values = np.array([loss(candidate, at) for at in affected])
                # Pull numbers back to where they started, because few traces determine few numbers.
                pull = pull_to_start * (np.log(scaled[which] * factor) ** 2 - np.log(scaled[which]) ** 2)
                if values.sum() + pull < best[affected].sum() * (1 - 1e-6):
                    model, best[affected] = candidate, values
                    scaled[which] *= factor
    return model


def _all_moves(model: GpuModel, traces: Sequence[SampleTrace]) -> list[_Move]:
    units = [model.execution[t.strategy].unit for t in traces]
    moves = [
        _Move(_unit_move(name, number), np.array([unit == name for unit in units]))
        for name in sorted(set(units))
        for number in UNIT_NUMBERS
    ]
    everywhere = np.ones(len(traces), dtype=bool)
    return [
        *moves,
        *_queue_moves(traces, _QUEUE_NUMBERS),
        *(_Move(_shared_move(number), everywhere) for number in _BLOCK_NUMBERS),
    ]


def _queue_moves(traces: Sequence[SampleTrace], numbers: Sequence[str]) -> list[_Move]:
    queued = np.array([t.strategy in FUSED_STRATEGIES for t in traces])
    return [_Move(_shared_move(number), queued) for number in numbers]


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


def score(model: GpuModel, traces: Iterable[SampleTrace]) -> GpuModel:
    """The model with the errors that it has on traces which were recorded after it was fitted; no number changes.

    Args:
        model: fitted before.
        traces: of the GPU that it was fitted to; those that cannot be compared are left out.

    Returns:
        A model whose ``fit_error`` holds :func:`errors` of all traces, prefixed ``held_out_``, and ``num_fitted``,
        ``num_held_out``.

    Raises:
        ValueError: no trace is left, or one is of another GPU.
    """
    unseen = _of_gpu(model, traces)
    found = {f"held_out_{name}": value for name, value in errors(model, unseen).items()}
    found["num_fitted"] = model.fit_error.get("num_fitted", 0.0)
    found["num_held_out"] = float(len(unseen))
    source = (
        f"Fitted to {found['num_fitted']:.0f} measured traces of {model.name}. Errors are of {len(unseen)} traces that "
        f"were recorded later: neither the numbers nor the form of the model have seen them. Those are "
        f"{', '.join(f'{t.strategy} ({t.pick}, {t.graph_name})' for t in unseen)}."
    )
    return replace(model, source=source, fit_error=found)


def _of_gpu(model: GpuModel, traces: Iterable[SampleTrace]) -> list[SampleTrace]:
    """Those of the traces that can be compared, all of the model's GPU."""
    found = [trace for trace in traces if comparable(trace)]
    if not found or {trace.device_name for trace in found} != {model.name}:
        raise ValueError(
            f"traces must be of {model.name}, one at least (got {len(found)} that can be compared)"
        )
    return found


def store_preset(model: GpuModel, path: Path = PRESETS_FILE) -> None:
    """Put ``model`` in the presets file under its key, in place of the preset of that name."""
    data = json.loads(path.read_text(encoding="utf-8"))
    values = model.to_json()
    data["models"][values.pop("key")] = values
    replace_file(path, f"{json.dumps(data, indent=2)}\n".encode())


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line of the module; see its docstring."""
    parser = argparse.ArgumentParser(
        prog="gpu_model.fit", description="Fit the GPU model to measured traces."
    )
    parser.add_argument("folder", help="folder with *.npz traces of one GPU")
    parser.add_argument("--base", default="h200", help="preset to start from (default: h200)")
    parser.add_argument("--note", default="", help="what else to say about the numbers, kept with the preset")
    parser.add_argument("--write", action="store_true", help="replace that preset by the result")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--score", action="store_true", help="fit nothing: the preset's errors on these traces")
    how.add_argument(
        "--refine", action="store_true", help="fit the queue's latencies alone, close to the preset"
    )
    options = parser.parse_args(arguments)
    traces = load_traces(options.folder)
    if options.refine:
        model, rows = refine(traces, options.base)
    elif options.score:
        model = score(get_model(options.base), traces)
        rows = errors_by_trace(model, [t for t in traces if comparable(t)])
    else:
        model = fit(traces, options.base)
        rows = errors_by_trace(model, split_half(traces)[1])
    model = replace(model, source=f"{model.source} {options.note}".strip())
    for row in rows:
        print(
            f"{row['strategy']:16} {row['pick']:10} {row['graph']:16} {row['batch_size']:6} x ({row['fanouts']})  "
            f"kernel {row['kernel_us']:8.1f} us, model {row['predicted_kernel_us']:8.1f} "
            f"({row['kernel_time_error']:.0%})  queue {row['queue_peak']}, model {row['predicted_queue_peak']}"
        )
    print(model.source)
    print({name: round(value, 3) for name, value in model.fit_error.items()})
    model = replace(model, recorded_over_modelled=recorded_over_modelled(model, traces))
    for name, ratios in model.recorded_over_modelled.items():
        print(f"{name:16} whole run, recorded over modelled: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    if options.write:
        store_preset(model)


if __name__ == "__main__":
    main()
