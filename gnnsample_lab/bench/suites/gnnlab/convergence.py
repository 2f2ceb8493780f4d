"""Accuracy over epochs and over time, factored and time shared: GNNLab's figure 16."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gnnsample_lab.bench import common
from gnnsample_lab.bench import convergence as shared
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suites.dsp import crew

from . import runs
from .extraction import MODELS
from .runs import Task

MODEL, HIDDEN, LR = "sage", 64, 0.003
EPOCHS, QUICK_EPOCHS = 16, 8
SYSTEMS, QUICK_SYSTEMS = ("dgl", "tsota", "gnnlab"), ("dgl", "gnnlab")


def figure16(session: Session) -> dict[str, Any]:
    """GraphSAGE on a twin and on a real graph: epochs, updates and seconds to the accuracy that all systems reach."""
    runs.verify(session)
    names, notes = shared.graphs(session, "papers100M-like@0.02" if session.quick else "papers100M-like@0.03")
    systems = QUICK_SYSTEMS if session.quick else SYSTEMS
    rows: list[dict[str, Any]] = []
    for name in names:
        runs.loaded(session, name)
        rows += shared.judged([_curve(session, name, system) for system in systems])
    return runs.record(
        session, names, rows, notes, hidden_of_figure16=HIDDEN, lr=LR,
        target="the best accuracy of the system whose best is the lowest, on the validation split",
        **shared.SETTINGS,
    )  # fmt: skip


def _curve(session: Session, name: str, system: str) -> dict[str, Any]:
    """Accuracy after every epoch, and the seconds up to its end."""
    gpus = min(2, crew.most_ranks())
    task = Task(name, MODEL, system, gpus, samplers=1 if system == "gnnlab" and gpus > 1 else None)
    size = runs.batch_size(session, name)
    options: dict[str, Any] = {
        "epochs": QUICK_EPOCHS if session.quick else EPOCHS, "batch_size": size, "fanouts": MODELS[MODEL][1],
        "hidden": HIDDEN, "lr": LR, "progress": False, "executor": runs.executor(session, task),
        "cache_ratio": runs.cache_ratio(session, task),
    }  # fmt: skip
    if gpus > 1:
        options["ranks"] = crew.ranks_of(session, gpus)
        if task.is_factored:
            options |= {"samplers": 1, "switching": False}
        else:
            options["batch_size"] = size * gpus
    else:
        options["device"] = common.device()
    result = runs.trained(runs.loaded(session, name), MODEL, system, **options)
    middle = common.median_epoch(result).steady
    seconds = common.epoch_seconds(result)
    trainers = gpus - 1 if task.is_factored and gpus > 1 else gpus
    # Trainers of the factored design have mini-batches of their own, slices of one are one update.
    found = shared.curve(
        name, result, trainers=trainers if task.is_factored else 1,
        cache_percent=100 * result.cache_ratio, batch_size=size,
        p10_s=seconds["p10_s"], p90_s=seconds["p90_s"],
    ) | common.work_per_batch(middle, middle.tasks or middle.num_batches)  # fmt: skip
    session.say(f"{runs.what(task)}: accuracy {found['best_accuracy']:.4f}")
    return {**found, **runs.described(replace(task, samplers=None)), "trainers": trainers}
