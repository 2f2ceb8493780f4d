"""Accuracy over epochs and over time, factored and time shared: GNNLab's figure 16."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session

from . import runs
from .extraction import MODELS
from .runs import Task

MODEL, HIDDEN, LR = "sage", 64, 0.003
EPOCHS, QUICK_EPOCHS = 16, 8
SYSTEMS, QUICK_SYSTEMS = ("dgl", "tsota", "gnnlab"), ("dgl", "gnnlab")


def figure16(session: Session) -> dict[str, Any]:
    """GraphSAGE on a twin and on a real graph: epochs, updates and seconds to the accuracy that all systems reach."""
    runs.verify(session)
    wanted = common.names(session, "arxiv-like", "musae-facebook", cpu=("arxiv-like@0.1",))
    systems = QUICK_SYSTEMS if session.quick else SYSTEMS
    names, notes, rows = list[str](), list[str](), list[dict[str, Any]]()
    for name in wanted:
        try:
            runs.loaded(session, name)
        except (LookupError, OSError, ValueError, RuntimeError) as error:
            if session.chosen:
                raise
            notes.append(f"{name} is not here: {str(error).splitlines()[0]}")
            session.say(notes[-1])
            continue
        names.append(name)
        rows += judged([_curve(session, name, system) for system in systems])
    return runs.record(
        session, names, rows, notes, hidden_of_figure16=HIDDEN, lr=LR,
        target="the best accuracy of the system whose best is the lowest, on the validation split",
        seconds="of epochs without their evaluation; the first, which warms up, counts as the median of the others",
    )  # fmt: skip


def _curve(session: Session, name: str, system: str) -> dict[str, Any]:
    """Accuracy after every epoch, and the seconds up to its end."""
    gpus = min(2, max(runs.available(session)))
    task = Task(name, MODEL, system, gpus, samplers=1 if system == "gnnlab" and gpus > 1 else None)
    size = runs.batch_size(session, name)
    options: dict[str, Any] = {
        "epochs": QUICK_EPOCHS if session.quick else EPOCHS, "batch_size": size, "fanouts": MODELS[MODEL][1],
        "hidden": HIDDEN, "lr": LR, "progress": False, "executor": task.executor,
        "cache_ratio": None if system == "dgl" else 0.25,
    }  # fmt: skip
    if gpus > 1:
        options["ranks"] = runs.ranks(session, gpus)
        if task.is_factored:
            options |= {"samplers": 1, "switching": False}
        else:
            options["batch_size"] = size * gpus
    else:
        options["device"] = common.device()
    result = runs.trained(runs.loaded(session, name), MODEL, system, **options)
    times = [epoch.total_us / 1e6 for epoch in result.epochs]
    times[0] = float(np.median(times[1:] or times))
    trainers = gpus - 1 if task.is_factored and gpus > 1 else gpus
    # Trainers of the factored design have mini-batches of their own, slices of one are one update.
    steps = result.epochs[-1].num_batches
    updates = -(-steps // trainers) if task.is_factored else steps
    session.say(f"{runs.what(task)}: accuracy {max(result.accuracy):.4f}")
    return {
        **runs.described(replace(task, samplers=None)), "batch_size": size, "trainers": trainers, "updates": updates,
        "epochs": len(times), "epoch_s": float(np.median(times)), "split": result.accuracy_split,
        "accuracy": [float(a) for a in result.accuracy], "seconds": np.cumsum(times).tolist(),
        "best_accuracy": float(max(result.accuracy)), "final_loss": float(np.mean(result.losses[-steps:])),
    }  # fmt: skip


def judged(rows: list[dict[str, Any]], base: str = "dgl") -> list[dict[str, Any]]:
    """Adds when each curve reaches the accuracy that all of them reach, and how much earlier than ``base``."""
    target = min(row["best_accuracy"] for row in rows)
    for row in rows:
        reached = next(i for i, accuracy in enumerate(row["accuracy"]) if accuracy >= target)
        row |= {
            "target": target, "epochs_to_target": reached + 1, "updates_to_target": (reached + 1) * row["updates"],
            "s_to_target": row["seconds"][reached],
        }  # fmt: skip
    before = next(row["s_to_target"] for row in rows if row["system"] == base)
    for row in rows:
        row["speedup"] = before / row["s_to_target"]
    return rows
