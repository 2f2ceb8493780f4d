"""FastGL's figure 16: does the faster path train to the same loss and accuracy?"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session
from gnnsample_lab.systems.train import train

from .training import require_torch, verify

SYSTEMS = ("dgl", "fastgl", "lab")
SEEDS = (0, 1, 2)
POINTS = 200
"""Losses kept of a curve."""


def figure16(session: Session) -> dict[str, Any]:
    """Loss and accuracy of three systems, two models and three seeds."""
    require_torch(session)
    checked = verify(session, SYSTEMS)
    more = () if session.quick else ("reddit-like",)
    names = common.names(session, "products-like", *more, cpu=("arxiv-like@0.1",))
    models = ("gcn",) if session.quick else ("gcn", "gin")
    epochs = 2 if session.quick else 10
    rows: list[dict[str, Any]] = []
    for name in names:
        found = common.graph(session, name, features=True)
        placed = session.kept(
            ("curves", name), functools.partial(found.to, common.device(), features=False)
        )  # fmt: skip
        seeds = len(common.train_seeds(found))
        size = max(1, min(1024 if seeds < 50_000 else 2048, seeds // 4))
        for model in models:
            for system in SYSTEMS:
                for seed in SEEDS:
                    result = train(
                        placed, model, system, epochs=epochs, batch_size=size, fanouts=(10, 5) if session.quick else
                        common.FANOUTS, seed=seed, progress=False,
                    )  # fmt: skip
                    rows.append({
                        "graph": name, "model": model, "system": system, "seed": seed, "batch_size": size,
                        "epochs": epochs,
                        "losses": thin(result.losses), "accuracy": [float(a) for a in result.accuracy],
                        "final_loss": float(np.mean(result.losses[-max(1, len(result.losses) // 10) :])),
                        "final_accuracy": float(result.accuracy[-1]), "split": result.accuracy_split,
                    })  # fmt: skip
                last = [row["final_accuracy"] for row in rows[-len(SEEDS) :]]
                session.say(f"{name}, {model}, {system}: accuracy {np.mean(last):.4f}")
    return {
        "settings": {"device": common.device(), "systems": SYSTEMS, "seeds": SEEDS, "epochs": epochs,
                     "fanouts": (10, 5) if session.quick else common.FANOUTS,
                     "losses": f"at most {POINTS} of each run's"},
        "verification": checked, "graphs": common.facts(session, names), "rows": rows,
        "differences": differences(rows),
    }  # fmt: skip


def thin(values: list[float], points: int = POINTS) -> list[float]:
    """At most ``points`` of ``values``, evenly spread, the first and the last among them."""
    if len(values) <= points:
        return [float(v) for v in values]
    return [float(values[i]) for i in np.linspace(0, len(values) - 1, points).round().astype(int)]


def differences(rows: list[dict[str, Any]], base: str = "dgl", floor: float = 0.005) -> list[dict[str, Any]]:
    """For each graph, model and system: how far its mean final accuracy lies from the baseline's, and over the noise.

    The noise is the spread (largest minus smallest) of final accuracies over the seeds, of the baseline or of the
    system, whichever is larger, and at least ``floor``.
    """
    groups: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        group = groups.setdefault((row["graph"], row["model"]), {})
        group.setdefault(row["system"], []).append(row["final_accuracy"])
    found = []
    for (graph, model), by_system in groups.items():
        reference = by_system[base]
        for system, values in by_system.items():
            if system == base:
                continue
            noise = max(np.ptp(reference), np.ptp(values), floor)
            difference = float(np.mean(values) - np.mean(reference))
            found.append({
                "graph": graph, "model": model, "system": system, "difference": difference, "noise": float(noise),
                "over_noise": abs(difference) / float(noise),
            })  # fmt: skip
    return found
