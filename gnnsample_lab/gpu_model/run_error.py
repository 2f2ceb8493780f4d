"""How far modelled times of a run are from recorded ones: one definition, the same for every strategy.

The time is that of the whole run, ``SampleTrace.total_us``, from the first launch until the last result is written. The
tasks of a recorded run are replayed, and its time over the modelled one is kept with the preset of the GPU
(``GpuModel.recorded_over_modelled``). The error of a strategy is the largest factor between the two among its runs. A
strategy that was not recorded has the largest factor of all strategies.

Ratios hold for the numbers that they were found with: a preset whose numbers were changed has none, unless it was given
ratios of its own. A trace of another model than a preset carries that model's ratios in its ``meta``.

The error of the fit (``GpuModel.fit_error``) is another thing: it is that of the kernels alone, by the GPU's clock.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gnnsample_lab.gpu_model.model import PLANS, GpuModel, presets
from gnnsample_lab.traces import SampleTrace

ENOUGH = 1.25
"""Largest factor between recorded and modelled runs of a strategy up to which its modelled times are shown."""


CARRIED = "recorded_over_modelled"
"""Entry of ``meta`` of a trace that was modelled by no preset: the ratios of its model, in JSON."""


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
    """Blocks that a launch without a queue needs, as the library counts them before it samples, the graph's number of
    vertices aside, which traces do not hold."""
    total, frontier = 0, num_seeds
    for fanout in fanouts:
        total, frontier = total + frontier, frontier * (fanout + 1)
    return None if min(fanouts) < 0 else total


@functools.lru_cache(maxsize=1)
def _presets() -> dict[str, GpuModel]:
    return presets()


def _recorded() -> dict[str, dict[str, list[float]]]:
    return {model.name: model.recorded_over_modelled for model in _presets().values()}


def carried(model: GpuModel) -> dict[str, str]:
    """What ``meta`` of a trace must have for :func:`run_error` to know the model's ratios; nothing for a preset."""
    preset = _presets().get(model.key)
    if preset is not None and replace(model, source=preset.source, fit_error=preset.fit_error) == preset:
        return {}
    ratios = model.recorded_over_modelled
    # A copy of a preset with other numbers has the preset's ratios still, but they were not found with these numbers.
    inherited = any(ratios == other.recorded_over_modelled for other in _presets().values())
    return {CARRIED: json.dumps({} if inherited else ratios)}


def _ratios(trace: SampleTrace) -> dict[str, list[float]]:
    """Strategy -> recorded over modelled time, for the model of a trace."""
    text = trace.meta.get(CARRIED)
    if text is None:
        return _recorded().get(trace.device_name, {})
    try:
        found = {name: [float(ratio) for ratio in group] for name, group in json.loads(str(text)).items()}
    except (AttributeError, TypeError, ValueError):
        found = {"": [0.0]}
    if not all(0 < ratio < float("inf") for group in found.values() for ratio in group):
        raise ValueError(
            f"meta[{CARRIED!r}] must map strategies to lists of ratios above 0, in JSON (got {text!r})"
        )
    return found


def run_error(trace: SampleTrace) -> RunError | None:
    """The error of a trace's times; None for a measured trace, and for a GPU model of which no run was recorded."""
    if trace.origin != "modelled":
        return None
    ratios = {name: group for name, group in _ratios(trace).items() if group}
    if not ratios:
        return None
    own = trace.strategy in ratios
    some = ratios[trace.strategy] if own else [ratio for group in ratios.values() for ratio in group]
    return RunError(tuple(sorted(some)), own)


def interval_us(trace: SampleTrace) -> tuple[float, float]:
    """Times within the error of a trace's ``total_us``: from the modelled time to where recorded runs lie, be it on one
    side of it alone. That time twice for a measured trace, all times if the error is not known."""
    if trace.origin == "measured":
        return trace.total_us, trace.total_us
    error = run_error(trace)
    if error is None:
        return 0.0, float("inf")
    return trace.total_us * min(1.0, error.ratios[0]), trace.total_us * max(1.0, error.ratios[-1])


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
    if error is None and CARRIED in trace.meta:
        return (
            f"No recorded run was compared with this model of {trace.device_name}, so its error is not known."
        )
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
    errors = [run_error(trace) for trace in traces if trace.origin == "modelled"]
    factors = sorted(error.factor for error in errors if error is not None)
    if not factors:
        return ""
    low, high = f"{factors[0]:.1f}", f"{factors[-1]:.1f}"
    within = f"within a factor of {high if low == high else f'{low} to {high}'} of recorded runs"
    if len(factors) == len(errors):
        return f"time {within}"
    return f"time of {len(factors)} of {len(errors)} modelled runs {within}, error of the rest not known"
