"""The papers' figures about schedules, modelled from stage times: GNNLab's figures 14, 15 and 17, DSP's figure 12.

Each function returns a :class:`Sweep`; ``gnnsample_lab.figures.schedule_scaling`` and so on draw it. They run on any
machine; every row is modelled, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab import checks

from .allocation import MAX_COUNT, num_samplers, profit, trainer_time
from .simulate import MAX_GPUS, simulate
from .timeline import Timeline
from .times import Costs, StageTimes


@dataclass(frozen=True)
class Sweep:
    """Rows of a modelled figure.

    Attributes:
        kind: name of the function that made it.
        rows: one mapping a point, all with the same keys; times in seconds.
        origin: label for figures: modelled, and from which stage times.
        notes: assumptions, for the line under the title.
    """

    kind: str
    rows: tuple[Mapping[str, Any], ...]
    origin: str
    notes: tuple[str, ...] = ()

    def to_frame(self) -> Any:
        """A pandas DataFrame of the rows."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))


def _counts(name: str, value: Iterable[int]) -> list[int]:
    found = [
        checks.whole(name, n, 1, MAX_GPUS)
        for n in checks.items(name, value, "a list of numbers of GPUs", 1024)
    ]
    if not found:
        raise ValueError(f"{name} must hold at least one number (got none)")
    return found


def _times(name: str, value: Any) -> StageTimes:
    found: StageTimes = checks.instance(name, value, StageTimes, "stage times (see stage_times)")
    return found


def _systems(name: str, value: Any) -> dict[str, StageTimes]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must map names to stage times (got {checks.shown(value)})")
    return {checks.text(f"a name in {name}", k): _times(f"{name}[{k!r}]", v) for k, v in value.items()}


def _origin(times: Iterable[StageTimes]) -> str:
    sources = list(dict.fromkeys(t.source for t in times))
    more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
    return f"modelled from stage times: {sources[0]}{more}"


def _cost_notes(costs: Costs | None) -> tuple[str, ...]:
    if costs is None or costs == Costs():
        return ("no contention",)
    return (f"host link full at {1 / costs.host_share:.2g} extractions",) if costs.host_share else ()


def scaling(
    times: StageTimes,
    *,
    gpus: Iterable[int] = range(2, 9),
    samplers: Iterable[int] = (1, 2, 3),
    baselines: Mapping[str, StageTimes] | None = None,
    staleness: int | None = 0,
    costs: Costs | None = None,
) -> Sweep:
    """Epoch time against the number of GPUs, one curve for each number of samplers (GNNLab, figure 14).

    Args:
        times: of the factored design.
        gpus: numbers of GPUs. samplers: of them; where no GPU is left to train there is no point.
        baselines: name -> stage times of systems that share GPUs in time (``"timeshared"``).
        staleness, costs: as for ``simulate``.

    Returns:
        Rows with ``series``, ``gpus`` and ``epoch_s``.

    Raises:
        TypeError, ValueError: arguments that ``simulate`` refuses, or empty lists.
    """
    times, others = _times("times", times), _systems("baselines", {} if baselines is None else baselines)
    gpu_counts, sampler_counts = _counts("gpus", gpus), _counts("samplers", samplers)
    rows = [
        {
            "series": name,
            "gpus": n,
            "epoch_s": simulate(other, "timeshared", gpus=n, staleness=staleness, costs=costs).epoch_s,
        }
        for name, other in others.items()
        for n in gpu_counts
    ]
    for m in sampler_counts:
        for n in gpu_counts:
            if m < n:
                run = simulate(times, "factored", gpus=n, samplers=m, staleness=staleness, costs=costs)
                rows.append({"series": f"factored, {m}S", "gpus": n, "epoch_s": run.epoch_s})
    if not rows:
        raise ValueError(
            f"gpus must leave one to train beside {min(sampler_counts)} samplers (got {gpu_counts})"
        )
    return Sweep("scaling", tuple(rows), _origin([times, *others.values()]), _cost_notes(costs))


def splits(
    times: StageTimes,
    *,
    gpus: int = 8,
    samplers: Iterable[int] = (1, 2, 3),
    staleness: int | None = 0,
    costs: Costs | None = None,
) -> Sweep:
    """Stages and epoch time of m samplers and n trainers, up to a number of GPUs (GNNLab, figure 15).

    Args:
        times: of the factored design.
        gpus: the most GPUs, m + n. samplers: values of m.
        staleness, costs: as for ``simulate``.

    Returns:
        Rows with ``samplers``, ``trainers``, ``sample_s``, ``extract_s`` and ``train_s`` (seconds in which a GPU of
        the stage is busy, on average), ``epoch_s``, and ``chosen``: whether the formula of ``num_samplers`` chooses
        this split.

    Raises:
        TypeError, ValueError: arguments that ``simulate`` refuses, or no split that fits.
    """
    times, gpus = _times("times", times), checks.whole("gpus", gpus, 1, MAX_GPUS)
    around = _around(costs)
    sample_s = times.mean("sample") + around.put_s
    trainer_s = trainer_time(times.mean("extract") + around.get_s, times.mean("train") + around.update_s)
    rows = []
    for m in _counts("samplers", samplers):
        for n in range(1, gpus - m + 1):
            run = simulate(times, "factored", gpus=m + n, samplers=m, staleness=staleness, costs=costs)
            busy = run.busy_s
            rows.append(
                {
                    "samplers": m,
                    "trainers": n,
                    "sample_s": float(busy["sample"].sum()) / m,
                    "extract_s": float(busy["extract"].sum()) / n,
                    "train_s": float(busy["train"].sum()) / n,
                    "epoch_s": run.epoch_s,
                    "chosen": m == num_samplers(m + n, sample_s, trainer_s, keep_trainer=True),
                }
            )
    if not rows:
        raise ValueError(f"gpus must leave one to train beside the samplers (got {gpus})")
    return Sweep("splits", tuple(rows), _origin([times]), _cost_notes(costs))


def _around(costs: Costs | None) -> Costs:
    if costs is not None and not isinstance(costs, Costs):
        raise TypeError(f"costs must be Costs or None (got {checks.shown(costs)})")
    return Costs() if costs is None else costs


def allocation_sweep(
    times: StageTimes,
    *,
    gpus: int = 8,
    capacity: int | None = None,
    staleness: int | None = 0,
    costs: Costs | None = None,
) -> Sweep:
    """Epoch time of the factored design for every number of samplers, with and without dynamic switching.

    Args:
        times: of the factored design; standby trainers extract in ``standby_extract_s``.
        gpus: samplers and trainers together, at least 2.
        capacity: mini-batches that the global queue holds; None: an epoch.
        staleness, costs: as for ``simulate``.

    Returns:
        Rows with ``samplers``, ``trainers``, ``without_s``, ``with_s``, ``switched`` (mini-batches that standby
        trainers took), ``remaining`` (M_r, mini-batches that wait when sampling ends, without switching),
        ``profit_s`` (P of switching then), and ``chosen``: whether ``num_samplers`` chooses this number.

    Raises:
        TypeError, ValueError: arguments that ``simulate`` refuses, or fewer than 2 GPUs.
    """
    times, gpus = _times("times", times), checks.whole("gpus", gpus, 2, MAX_GPUS)
    around = _around(costs)
    step_s = times.mean("train") + around.update_s
    trainer_s = trainer_time(times.mean("extract") + around.get_s, step_s)
    standby_s = around.get_s + times.mean("standby_extract") + step_s
    rule = num_samplers(gpus, times.mean("sample") + around.put_s, trainer_s, keep_trainer=True)
    holds = times.batches if capacity is None else capacity
    options: dict[str, Any] = {"gpus": gpus, "staleness": staleness, "costs": costs, "capacity": holds}
    rows = []
    for m in range(1, gpus):
        plain = simulate(times, "factored", samplers=m, switching=False, **options)
        switched = simulate(times, "factored", samplers=m, switching=True, **options)
        remaining = _left_to_train(plain)
        rows.append(
            {
                "samplers": m,
                "trainers": gpus - m,
                "without_s": plain.epoch_s,
                "with_s": switched.epoch_s,
                "switched": switched.switched,
                "remaining": remaining,
                "profit_s": profit(remaining, gpus - m, trainer_s, standby_s),
                "chosen": m == rule,
            }
        )
    return Sweep("allocation_sweep", tuple(rows), _origin([times]), _cost_notes(costs))


def _left_to_train(run: Timeline) -> int:
    """Mini-batches in the global queue when sampling ends."""
    end_s = max(e.end_s for e in run.events if e.worker == "sampler")
    queue = run.queues["global queue"]
    return int(queue.depth[np.searchsorted(queue.time_s, end_s, side="right") - 1])


def switching(
    times: StageTimes,
    *,
    trainers: Iterable[int] = range(1, 8),
    samplers: int = 1,
    staleness: int | None = None,
    costs: Costs | None = None,
) -> Sweep:
    """Epoch time with and without dynamic switching, against the number of trainers (GNNLab, figure 17a).

    Args:
        times: of the factored design; standby trainers extract in ``standby_extract_s``.
        trainers: numbers of them. samplers: GPUs that sample.
        staleness: as for ``simulate``; asynchronous without a bound by default, as in section 7.8.
        costs: as for ``simulate``.

    Returns:
        Rows with ``trainers``, ``without_s``, ``with_s`` and ``switched``, mini-batches that standby trainers took.

    Raises:
        TypeError, ValueError: arguments that ``simulate`` refuses, or an empty list.
    """
    times, samplers = _times("times", times), checks.whole("samplers", samplers, 1, MAX_GPUS - 1)
    rows = []
    for n in _counts("trainers", trainers):
        options: dict[str, Any] = {
            "gpus": samplers + n,
            "samplers": samplers,
            "staleness": staleness,
            "costs": costs,
        }
        # The queue holds an epoch in both: what differs is switching alone.
        plain = simulate(times, "factored", capacity=times.batches, switching=False, **options)
        switched = simulate(times, "factored", switching=True, **options)
        rows.append(
            {
                "trainers": n,
                "without_s": plain.epoch_s,
                "with_s": switched.epoch_s,
                "switched": switched.switched,
            }
        )
    return Sweep("switching", tuple(rows), _origin([times]), (f"{samplers}S", *_cost_notes(costs)))


def one_gpu(times: StageTimes, *, baselines: Mapping[str, StageTimes], costs: Costs | None = None) -> Sweep:
    """Epoch time on one GPU: the factored design stores an epoch's samples first (GNNLab, figure 17b).

    Args:
        times: of the factored design; its one GPU extracts in ``standby_extract_s``.
        baselines: name -> stage times of systems that run one stage after the other.
        costs: as for ``simulate``.

    Returns:
        Rows with ``series`` and ``epoch_s``.

    Raises:
        TypeError, ValueError: arguments that ``simulate`` refuses.
    """
    times, others = _times("times", times), _systems("baselines", baselines)
    rows = [{"series": k, "epoch_s": simulate(v, "serial", costs=costs).epoch_s} for k, v in others.items()]
    rows.append({"series": "factored", "epoch_s": simulate(times, "factored", costs=costs).epoch_s})
    return Sweep("one_gpu", tuple(rows), _origin([*others.values(), times]), _cost_notes(costs))


def pipelining(
    times: Mapping[int, StageTimes],
    *,
    demand: Mapping[int, Mapping[str, float]] | None = None,
    capacity: int = 2,
) -> Sweep:
    """Speed-up of overlapped stages over one after the other, against the number of GPUs (DSP, figure 12).

    Args:
        times: number of GPUs -> stage times there: a stage that communicates takes longer on more GPUs.
        demand: number of GPUs -> stage -> share of a GPU that the stage takes (as in ``Costs``); left out: 0. DSP
            explains its larger gain on more GPUs by lighter kernels.
        capacity: of the queues.

    Returns:
        Rows with ``gpus``, ``serial_s``, ``overlapped_s``, ``speedup``, and ``ceiling``: the sum of the stages over
        the longest.

    Raises:
        TypeError, ValueError: arguments that ``simulate`` refuses, or no times.
    """
    for name, given in (("times", times), ("demand", {} if demand is None else demand)):
        if not isinstance(given, Mapping):
            raise TypeError(
                f"{name} must map numbers of GPUs to what holds there (got {checks.shown(given)})"
            )
    capacity = checks.whole("capacity", capacity, 1, MAX_COUNT)
    if not times:
        raise ValueError("times must hold at least one number of GPUs (got none)")
    rows = []
    for key, value in times.items():
        n = checks.whole("a number of GPUs in times", key, 1, MAX_GPUS)
        here = _times(f"times[{key!r}]", value)
        costs = Costs(demand={} if demand is None else demand.get(key, {}))
        options: dict[str, Any] = {"gpus": n, "collective": n > 1, "costs": costs}
        serial = simulate(here, "serial", **options).epoch_s
        overlapped = simulate(here, "overlapped", capacity=capacity, **options).epoch_s
        stages = [here.mean(stage) for stage in ("sample", "extract", "train")]
        rows.append(
            {
                "gpus": n,
                "serial_s": serial,
                "overlapped_s": overlapped,
                "speedup": serial / overlapped if overlapped > 0 else 1.0,
                "ceiling": sum(stages) / max(stages) if max(stages) > 0 else 1.0,
            }
        )
    notes = (f"queues of {capacity}", "stages share GPUs as told" if demand else "no contention")
    return Sweep("pipelining", tuple(rows), _origin(times.values()), notes)
