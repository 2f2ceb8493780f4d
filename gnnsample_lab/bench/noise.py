"""How far systems lie apart, in units of what seeds differ by: of rows that are runs of one graph, model and system."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

FAR = 3.0
"""A run that lies farther than this from the baseline's mean is worth a look: of three seeds and normally distributed
values, 96 of 100 further runs of the baseline would lie within (95 within 2.9 times what its seeds differ by: Student's
t of two degrees of freedom, 4.30, times the root of 4/3, over the expected spread of three, 1.69 standard deviations).
It is no proof: of four cases with three runs each, in 28 of 100 records one lies beyond by chance alone (drawn 400 000
times), so that whoever reads such a verdict has to look at the run."""


def over_noise(
    rows: Iterable[Mapping[str, Any]], field: str, base: str = "dgl", floor: float = 0.005
) -> list[dict[str, Any]]:
    """For each graph, model and system: how far its mean of ``field`` lies from the baseline's, and over the noise.

    The noise is the spread (largest minus smallest) of the baseline's values over its seeds, and at least ``floor``.
    The system's own spread does not count: a run of it that went wrong would widen what it is measured by. The floor
    is there because three seeds can agree by chance, to a hundredth of a point in some records, and any difference
    would be many times such a spread. A mean hides a run among others, so the farthest run stands beside it; see
    :data:`FAR`.

    Args:
        rows: with ``graph``, ``model``, ``system`` and ``field``, one for each seed.
        field: ``"final_accuracy"`` or ``"final_loss"``.
        base: the system that the others are compared with.
        floor: in the unit of ``field``; half a point of accuracy.

    Returns:
        Rows of ``graph``, ``model``, ``system``, ``difference``, ``noise``, ``over_noise`` and ``farthest``: how far
        the run that is farthest from the baseline's mean lies from it, over the noise. None of the baseline.
    """
    groups: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        group = groups.setdefault((row["graph"], row["model"]), {})
        group.setdefault(row["system"], []).append(float(row[field]))
    found = []
    for (graph, model), by_system in groups.items():
        reference = by_system[base]
        middle, noise = statistics.fmean(reference), max(max(reference) - min(reference), floor)
        for system, values in by_system.items():
            if system == base:
                continue
            difference = statistics.fmean(values) - middle
            found.append({
                "graph": graph, "model": model, "system": system, "difference": difference, "noise": noise,
                "over_noise": abs(difference) / noise,
                "farthest": max(abs(value - middle) for value in values) / noise,
            })  # fmt: skip
    return found
