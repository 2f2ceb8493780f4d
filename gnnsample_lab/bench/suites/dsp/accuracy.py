"""Figure 9: loss and accuracy over mini-batches are the same for all systems; over time they are not."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, convergence
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suites.fastgl.training import require_torch

from . import crew, utilisation

BASE = "tsota"
"""One device, the whole graph on it, one stage after the other."""
SYSTEMS = ("dgl-uva", "quiver", "dsp")
EPOCHS, QUICK_EPOCHS = 8, 3
NEARLY = 0.99
"""Share of the best accuracy at which a run counts as converged."""


def accuracy(session: Session) -> dict[str, Any]:
    """The suite's function."""
    require_torch(session)
    names, notes = convergence.graphs(session, "papers100M-like@0.02", cpu=("arxiv-like@0.05",))
    epochs = QUICK_EPOCHS if session.quick else EPOCHS
    curves: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    compared, worst = 0, 0.0
    for name, world in itertools.product(names, crew.several(session)):
        runs = _runs(session, name, world, epochs)
        for system, run in runs.items():
            compared += utilisation.same_losses(runs[BASE], run, name, run.epochs[0].num_batches)
            worst = max(worst, float(np.abs(np.array(run.losses) - np.array(runs[BASE].losses)).max()))
            gpus = world if system != BASE else 1
            last = convergence.curve(name, run, gpus=gpus, seeds_of=world)
            curves.append(last)
            rows += by_epoch(last, run)
            session.say(
                f"{name}, {system}, {gpus} of {world}: accuracy {last['final_accuracy']:.3f}, "
                f"loss {last['epoch_loss'][-1]:.3f}, {last['seconds'][-1]:.1f} s"
            )
    return {
        "settings": utilisation.settings(session, names) | convergence.SETTINGS | {
            "ranks": crew.most_ranks(), "epochs": epochs,
            "seeds_of": "of how many ranks a step has the seeds; one device has those of the ranks beside it",
            "compared": "losses, step by step over the first epoch; sums in another order drift apart later",
            "epoch_s": "median epoch of the run after the first, with p10 and p90; rows and picks: of each epoch",
            "largest_difference_of_a_loss": worst, "nearly": NEARLY, "accuracy": "of the validation set",
        },
        "verification": {"losses_equal_to_one_device": compared}, "graphs": common.facts(session, names),
        "rows": rows, "notes": [*notes, *crew.notes()], "converged": converged(curves),
    }  # fmt: skip


def _runs(session: Session, name: str, world: int, epochs: int) -> dict[str, Any]:
    """Runs by system on so many ranks, and of :data:`BASE` on one device: all on the same mini-batches."""
    size = crew.batch_size(common.graph(session, name, features=True)) * world
    return {
        system: utilisation.trained(
            session, name, system, 1 if system == BASE else world, epochs, size, evaluate=True
        )
        for system in (BASE, *SYSTEMS[-1 if session.quick else 0 :])
    }


def by_epoch(curve: dict[str, Any], run: Any) -> list[dict[str, Any]]:
    """A curve as rows with what each epoch's mini-batches held, and the run's median epoch with its spread."""
    seconds = common.epoch_seconds(run)
    spent = {
        "seeds_of": curve["seeds_of"], "epoch_s": curve["epoch_s"], "p10_s": seconds["p10_s"],
        "p90_s": seconds["p90_s"],
    }  # fmt: skip
    return [
        row | spent | common.work_per_batch(epoch, max(epoch.tasks or epoch.num_batches, 1))
        for row, epoch in zip(convergence.by_epoch(curve), run.epochs, strict=True)
    ]


def converged(curves: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Seconds and mini-batches until a run has nearly the best accuracy with its mini-batches; None if never."""
    found = []
    for curve in curves:
        alike = [other for other in curves if all(other[key] == curve[key] for key in ("graph", "seeds_of"))]
        best = max(max(other["accuracy"]) for other in alike)
        at = convergence.reached(curve, NEARLY * best)
        found.append({
            "graph": curve["graph"], "system": curve["system"], "seeds_of": curve["seeds_of"], "best": best,
            "seconds": None if at is None else curve["seconds"][at],
            "steps": None if at is None else curve["steps_by_epoch"][at],
        })  # fmt: skip
    return found
