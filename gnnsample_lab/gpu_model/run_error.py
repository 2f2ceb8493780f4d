"""How far modelled times of a run are from recorded ones: one definition, the same for every strategy.

The time is that of the whole run, ``SampleTrace.total_us``, from the first launch until the last result is written. The
tasks of a recorded run are replayed, and its time over the modelled one is kept with the preset of the GPU
(``GpuModel.recorded_over_modelled``). The error of a strategy is the largest factor between the two among its runs. A
strategy that was not recorded has the largest factor of all strategies.

The error of the fit (``GpuModel.fit_error``) is another thing: it is that of the kernels alone, by the GPU's clock.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from gnnsample_lab.gpu_model.model import PLANS, GpuModel, presets
from gnnsample_lab.traces import SampleTrace

ENOUGH = 1.25
"""Largest factor between recorded and modelled runs of a strategy up to which its modelled times are shown."""


@dataclass(frozen=True)
class RunError:
    """How far recorded times of runs are from modelled ones.

    Attributes:
        ratios: recorded over modelled time, one per run, ascending.
        own: whether the runs are of the strategy itself, or else of all others.
    """

    ratios: tuple[float, ...]
    own: bool

    @property
    def factor(self) -> float:
        """The largest factor between a recorded and a modelled time, either way; at least 1."""
        return max(max(ratio, 1 / ratio) for ratio in self.ratios)


def recorded_over_modelled(model: GpuModel, traces: Iterable[SampleTrace]) -> dict[str, list[float]]:
    """Strategy -> recorded over modelled time of its runs, ascending.

    Runs of another GPU than the model's are left out, and those of the published completion rule: they end in a race.
    """
    from gnnsample_lab.gpu_model.predict import trace_workload
    from gnnsample_lab.gpu_model.run import simulate

    found: dict[str, list[float]] = {}
    for trace in traces:
        if trace.completion == "paper" or trace.device_name != model.name:
            continue
        work = trace_workload(trace, model.unit(trace.strategy))
        timeline = simulate(
            model, work, trace.strategy, pick=trace.pick, fetch_size=trace.fetch_size or 1,
            grid_tasks=_most_tasks(trace.batch_size, trace.fanouts),
        )  # fmt: skip
        found.setdefault(trace.strategy, []).append(round(float(trace.total_us / timeline.total_us), 3))
    return {name: sorted(found[name]) for name in PLANS if name in found}


def _most_tasks(num_seeds: int, fanouts: tuple[int, ...]) -> int | None:
    """Blocks that a launch without a queue needs, as the library counts them before it samples."""
    total, frontier = 0, num_seeds
    for fanout in fanouts:
        total, frontier = total + frontier, frontier * (fanout + 1)
    return None if min(fanouts) < 0 else total


@functools.lru_cache(maxsize=1)
def _recorded() -> dict[str, dict[str, list[float]]]:
    return {model.name: model.recorded_over_modelled for model in presets().values()}


def run_error(trace: SampleTrace) -> RunError | None:
    """The error of a trace's times; None for a measured trace, and for a GPU of which no run was recorded."""
    ratios = _recorded().get(trace.device_name) if trace.origin == "modelled" else None
    if not ratios:
        return None
    own = trace.strategy in ratios
    some = ratios[trace.strategy] if own else sorted(r for group in ratios.values() for r in group)
    return RunError(tuple(some), own)


def interval_us(trace: SampleTrace) -> tuple[float, float]:
    """Times within the error of a trace's ``total_us``; that time twice for a measured trace, all times if the error
    is not known."""
    if trace.origin == "measured":
        return trace.total_us, trace.total_us
    error = run_error(trace)
    if error is None:
        return 0.0, float("inf")
    return trace.total_us / error.factor, trace.total_us * error.factor


def has_times(trace: SampleTrace) -> bool:
    """Whether times of a trace may be shown as such: they were measured, or recorded runs of the strategy lay within
    :data:`ENOUGH` of the model."""
    if trace.origin == "measured":
        return True
    error = run_error(trace)
    return error is not None and error.own and error.factor <= ENOUGH


def tell_apart(one: SampleTrace, other: SampleTrace) -> bool:
    """Whether two runs differ by more than the model's error, so that one may be called the faster."""
    (low, high), (least, most) = interval_us(one), interval_us(other)
    return high < least or most < low


def in_words(trace: SampleTrace) -> str:
    """A sentence on the error of a modelled trace; empty for a measured one."""
    if trace.origin == "measured":
        return ""
    error = run_error(trace)
    if error is None:
        return f"No run was recorded on {trace.device_name}, so the model's error is not known."
    low, high = f"{error.ratios[0]:.1f}", f"{error.ratios[-1]:.1f}"
    times = f"{high} times" if low == high else f"{low} to {high} times"
    if not error.own:
        return f"{trace.strategy} was not recorded; recorded runs of other strategies took {times} the modelled time."
    runs = (
        f"A recorded run of {trace.strategy}"
        if len(error.ratios) == 1
        else f"Recorded runs of {trace.strategy}"
    )
    return f"{runs} took {times} the modelled time."


NO_SCALE = "modelled time, without a scale"
"""Title of an axis that shows modelled times of a strategy that is farther off than :data:`ENOUGH`."""


def in_short(traces: Iterable[SampleTrace]) -> str:
    """The error of modelled traces, for the line under a title; empty where none is modelled with a known error."""
    factors = sorted(error.factor for error in map(run_error, traces) if error is not None)
    if not factors:
        return ""
    low, high = f"{factors[0]:.1f}", f"{factors[-1]:.1f}"
    return f"time within a factor of {high if low == high else f'{low} to {high}'} of recorded runs"
