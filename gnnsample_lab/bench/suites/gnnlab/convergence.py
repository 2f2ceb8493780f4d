"""Accuracy over epochs and over time, factored and time shared: GNNLab's figure 16.

GNNLab had eight GPUs. How many mini-batches make an update decides how many epochs it takes, so rows of eight GPUs have
the accuracies of runs on the GPUs that there are, in updates of as many seeds as eight make; seconds are modelled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gnnsample_lab.bench import common
from gnnsample_lab.bench import convergence as shared
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suites.dsp import crew
from gnnsample_lab.pipeline.records import TrainResult

from . import runs
from .extraction import MODELS
from .runs import GPUS, Task

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
        rows += shared.judged([_on_more(session, name, system) for system in systems])
    return runs.record(
        session, names, rows, notes, hidden_of_figure16=HIDDEN, lr=LR,
        target="the best accuracy of the system whose best is the lowest, on the validation split; of the modelled "
        "rows among themselves",
        modelled=MODELLED,
        **shared.SETTINGS,
    )  # fmt: skip


MODELLED = (
    f"rows of {GPUS} GPUs: accuracies by epoch are those of a run on the GPUs that there are, whose mini-batches have "
    f"as many seeds as all trainers of {GPUS} GPUs train on in an update; of the factored design that is one "
    "mini-batch, and not one of each trainer. seconds: epochs of the schedule model, see model"
)
"""What the record says of its modelled rows."""


def _task(session: Session, name: str, system: str, gpus: int) -> Task:
    """One sampler where two GPUs are factored; of more, as many as the rule says."""
    task = Task(name, MODEL, system, gpus, hidden=HIDDEN)
    if task.is_factored and gpus == 2:
        return replace(task, samplers=1)
    return runs.resolved(session, task)


def _trainers(task: Task) -> int:
    """GPUs that train at the same time."""
    return task.gpus - (task.samplers or 0) or 1 if task.is_factored else task.gpus


def _trained(session: Session, name: str, system: str, seeds: int) -> tuple[Task, TrainResult]:
    """A run on the GPUs that there are, two at most, evaluated after every epoch.

    Args:
        seeds: that are trained on together: of a step where GPUs are shared in time, else of a trainer's mini-batch.
    """
    task = _task(session, name, system, min(2, crew.most_ranks()))
    options: dict[str, Any] = {
        "epochs": QUICK_EPOCHS if session.quick else EPOCHS, "batch_size": seeds, "fanouts": MODELS[MODEL][1],
        "hidden": HIDDEN, "lr": LR, "progress": False, "executor": runs.executor(session, task),
        "cache_ratio": runs.cache_ratio(session, task),
    }  # fmt: skip
    if task.gpus > 1:
        options["ranks"] = crew.ranks_of(session, task.gpus)
        if task.is_factored:
            options |= {"samplers": 1, "switching": False}
    else:
        options["device"] = common.device()
    return task, runs.trained(runs.loaded(session, name), MODEL, system, **options)


def _curve(session: Session, name: str, system: str) -> dict[str, Any]:
    """Accuracy after every epoch, and the seconds up to its end."""
    size = runs.batch_size(session, name)
    is_shared = not Task(name, MODEL, system).is_factored
    task, result = _trained(session, name, system, size * min(2, crew.most_ranks()) if is_shared else size)
    middle = common.median_epoch(result).steady
    seconds, tasks = common.epoch_seconds(result), middle.tasks or middle.num_batches
    trainers = _trainers(task)
    # Trainers of the factored design have mini-batches of their own, slices of one are one update.
    found = shared.curve(
        name, result, trainers=trainers if task.is_factored else 1,
        cache_percent=100 * result.cache_ratio, batch_size=size, origin="measured",
        p10_s=seconds["p10_s"], p90_s=seconds["p90_s"],
    ) | common.work_per_batch(middle, tasks)  # fmt: skip
    found |= runs.beside_model(session, task, seconds["epoch_s"], tasks)
    session.say(f"{runs.what(task)}: accuracy {found['best_accuracy']:.4f}")
    return {**found, **runs.described(replace(task, samplers=None)), "trainers": trainers}


def _on_more(session: Session, name: str, system: str) -> dict[str, Any]:
    """As :func:`_curve` on :data:`.runs.GPUS`, see :data:`MODELLED`."""
    task, size = _task(session, name, system, GPUS), runs.batch_size(session, name)
    trainers = _trainers(task)
    _, result = _trained(session, name, system, size * trainers)
    epoch_s = runs.modelled(session, task).epoch_s
    curve = shared.curve(
        name, result, cache_percent=100 * (runs.cache_ratio(session, task) or 0), batch_size=size, origin="modelled",
    )  # fmt: skip
    found = shared.at_pace(curve, epoch_s) | runs.work_of(runs.fed_with(session, task).row)
    session.say(
        f"{runs.what(task)}: accuracy {found['best_accuracy']:.4f}, {epoch_s:.3f} s an epoch, modelled"
    )
    return {**found, **runs.described(replace(task, samplers=None)), "trainers": trainers}
