"""Time sharing against the factored design: which one the model favours, and from which stage times on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from gnnsample_lab import checks

from .simulate import MAX_GPUS, simulate
from .sweeps import Sweep, _cost_notes, _counts, _origin, _times
from .timeline import Timeline
from .times import Costs, StageTimes

_SHARED = ("timeshared", "serial", "thread", "streams", "overlapped")
"""Executors of time sharing."""
_HALVINGS = 50
"""Steps by which a break-even is narrowed down: a double has no more digits."""


def best_split(
    times: StageTimes,
    *,
    gpus: int,
    samplers: Iterable[int] | None = None,
    switching: bool = False,
    staleness: int | None = 0,
    costs: Costs | None = None,
) -> Timeline:
    """The fastest epoch of the factored design over all numbers of samplers.

    Args:
        times: of the factored design.
        gpus: samplers and trainers together, at least 2.
        samplers: numbers to try; None: 1 to ``gpus`` - 1.
        switching, staleness, costs: as for ``simulate``.

    Raises:
        TypeError, ValueError: arguments that ``simulate`` refuses, or fewer than 2 GPUs.
    """
    times, gpus = _times("times", times), checks.whole("gpus", gpus, 2, MAX_GPUS)
    switching = checks.flag("switching", switching)
    counts = range(1, gpus) if samplers is None else _counts("samplers", samplers)
    runs = [
        simulate(
            times, "factored", gpus=gpus, samplers=m, switching=switching, staleness=staleness, costs=costs
        )
        for m in counts
    ]
    return min(runs, key=lambda run: run.epoch_s)


def break_even(
    times: StageTimes, *, gpus: int, staleness: int | None = 0, costs: Costs | None = None,
    shared_costs: Costs | None = None,
) -> float:  # fmt: skip
    """Extraction that makes both designs equally fast: seconds every mini-batch takes where GPUs are shared in time.

    Sampling and training take the same in both designs; extraction does not, since a GPU that keeps the topology has
    a smaller cache. Time sharing is slower wherever its extraction takes longer than this; with two GPUs and hidden
    extraction that is about training less sampling.

    Args:
        times: of the factored design, at its best split, see :func:`best_split`.
        gpus, staleness, costs: as there.
        shared_costs: of time sharing, whose GPUs exchange gradients, too, and whose stages may slow each other down.

    Returns:
        Seconds; 0 where the factored design is the faster one even if time sharing extracts for nothing.

    Raises:
        TypeError, ValueError: as :func:`best_split`.
    """
    if shared_costs is not None:
        checks.instance("shared_costs", shared_costs, Costs, "costs of schedule.Costs")
    factored_s = best_split(times, gpus=gpus, staleness=staleness, costs=costs).epoch_s
    rounds = math.ceil(times.batches / gpus)
    update_s = 0.0 if shared_costs is None else shared_costs.update_s

    def shared_s(extract_s: float) -> float:
        extracts = np.full(times.batches, extract_s)
        given = replace(times, extract_s=extracts)
        return simulate(given, "timeshared", gpus=gpus, staleness=staleness, costs=shared_costs).epoch_s

    # Rounds of mini-batches that are all alike, whose stages do not slow each other down, add up.
    found = max(0.0, factored_s / rounds - times.mean("sample") - times.mean("train") - update_s)
    if math.isclose(shared_s(found), factored_s, rel_tol=1e-9):
        return found
    low, high = 0.0, factored_s
    if shared_s(low) >= factored_s:
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if shared_s(middle) < factored_s else (low, middle)
    return low


def designs(
    times: StageTimes,
    shared: StageTimes,
    *,
    gpus: Iterable[int] = range(2, 9),
    executor: str = "timeshared",
    staleness: int | None = 0,
    costs: Costs | None = None,
    shared_costs: Costs | None = None,
) -> Sweep:
    """Epoch time of both designs against the number of GPUs, and which of them the model favours.

    Args:
        times: of the factored design. shared: where GPUs are shared in time, with the smaller cache.
        gpus: numbers of GPUs, from 2 on.
        executor: of time sharing: ``"timeshared"``, ``"serial"``, ``"thread"``, ``"streams"`` or ``"overlapped"``.
        staleness: as for ``simulate``. costs, shared_costs: likewise, of either design: only the factored one hands
            samples over.

    Returns:
        Rows with ``gpus``, ``samplers`` (of the best split), ``factored_s``, ``timeshared_s``, ``extract_s`` (of time
        sharing, a mini-batch), ``break_even_s`` (see :func:`break_even`) and ``favours``.

    Raises:
        TypeError, ValueError: arguments that ``simulate`` refuses, or an empty list.
    """
    times, shared = _times("times", times), _times("shared", shared)
    checks.choice("executor", executor, _SHARED)
    if shared_costs is not None:
        checks.instance("shared_costs", shared_costs, Costs, "costs of schedule.Costs")
    rows = []
    for n in _counts("gpus", gpus):
        best = best_split(times, gpus=n, staleness=staleness, costs=costs)
        other_s = simulate(shared, executor, gpus=n, staleness=staleness, costs=shared_costs).epoch_s
        rows.append(
            {
                "gpus": n,
                "samplers": best.settings["samplers"],
                "factored_s": best.epoch_s,
                "timeshared_s": other_s,
                "extract_s": shared.mean("extract"),
                "break_even_s": break_even(
                    times, gpus=n, staleness=staleness, costs=costs, shared_costs=shared_costs
                ),
                "favours": "factored" if best.epoch_s < other_s else "time sharing",
            }
        )
    return Sweep("designs", tuple(rows), _origin([times, shared]), _notes(costs, shared_costs))


def _notes(*costs: Costs | None) -> tuple[str, ...]:
    """Notes of both designs' costs; without contention is what neither of them has any in."""
    found = tuple(dict.fromkeys(note for each in costs for note in _cost_notes(each)))
    has_some = any(each is not None and (each.host_share or each.demand) for each in costs)
    return tuple(note for note in found if not (has_some and note == "no contention"))
