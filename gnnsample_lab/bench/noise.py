"""How far systems lie apart, in units of what seeds differ by: of rows that are runs of one graph, model and system."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any


def over_noise(
    rows: Iterable[Mapping[str, Any]], field: str, base: str = "dgl", floor: float = 0.005
) -> list[dict[str, Any]]:
    """For each graph, model and system: how far its mean of ``field`` lies from the baseline's, and over the noise.

    The noise is the spread (largest minus smallest) of the values over the seeds, of the baseline or of the system,
    whichever is larger, and at least ``floor``.

    Args:
        rows: with ``graph``, ``model``, ``system`` and ``field``, one for each seed.
        field: ``"final_accuracy"`` or ``"final_loss"``.
        base: the system that the others are compared with.
        floor: in the unit of ``field``.

    Returns:
        Rows of ``graph``, ``model``, ``system``, ``difference``, ``noise`` and ``over_noise``; none of the baseline.
    """
    groups: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        group = groups.setdefault((row["graph"], row["model"]), {})
        group.setdefault(row["system"], []).append(float(row[field]))
    found = []
    for (graph, model), by_system in groups.items():
        reference = by_system[base]
        for system, values in by_system.items():
            if system == base:
                continue
            noise = max(max(reference) - min(reference), max(values) - min(values), floor)
            difference = statistics.fmean(values) - statistics.fmean(reference)
            found.append({
                "graph": graph, "model": model, "system": system, "difference": difference, "noise": noise,
                "over_noise": abs(difference) / noise,
            })  # fmt: skip
    return found
