"""Figure 9: loss and accuracy over mini-batches are the same for all systems; over time they are not.

DSP had eight GPUs. What their mini-batches do to loss and accuracy one device says, which has the seeds of eight ranks
and trains to the same losses as they would: that is checked on as many ranks as there are. How long eight GPUs take for
an epoch is modelled.
"""

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
FEEDING = 4
"""Epochs of a run on one GPU that the model is fed with: the first warms up, and the median counts."""
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
    last_runs: dict[str, dict[str, Any]] = {}
    for name, world in itertools.product(names, crew.several(session)):
        runs = _runs(session, name, world, epochs)
        fewer = last_runs.get(name) or _on_one(session, name, world)
        for system, run in runs.items():
            compared += utilisation.same_losses(runs[BASE], run, name, run.epochs[0].num_batches)
            worst = max(worst, float(np.abs(np.array(run.losses) - np.array(runs[BASE].losses)).max()))
            gpus = world if system != BASE else 1
            last = convergence.curve(name, run, gpus=gpus, seeds_of=world, origin="measured")
            curves.append(last)
            off = crew.off_percent(fewer[system], run) if system in fewer else None
            rows += [row | {"error_percent": off} for row in by_epoch(last, run)]
            session.say(
                f"{name}, {system}, {gpus} of {world}: accuracy {last['final_accuracy']:.3f}, "
                f"loss {last['epoch_loss'][-1]:.3f}, {last['seconds'][-1]:.1f} s"
            )
        last_runs[name] = {system: run for system, run in runs.items() if system != BASE}
    for name, ran in last_runs.items():
        base = _run(session, name, BASE, crew.MODELLED_GPUS, epochs)
        alone = convergence.curve(name, base, gpus=1, seeds_of=crew.MODELLED_GPUS, origin="measured")
        curves.append(alone)
        rows += by_epoch(alone, base)
        for system, run in ran.items():
            curve, more = on_more(alone, run)
            curves.append(curve)
            rows += more
            session.say(
                f"{name}, {system}, {crew.MODELLED_GPUS} GPUs: {curve['epoch_s']:.3f} s an epoch, modelled"
            )
    return {
        "settings": utilisation.settings(session, names) | convergence.SETTINGS | {
            "ranks": crew.most_ranks(), "epochs": epochs,
            "seeds_of": "of how many ranks a step has the seeds; one device has those of the ranks beside it",
            "compared": "losses, step by step over the first epoch; sums in another order drift apart later",
            "epoch_s": "median epoch of the run after the first, with p10 and p90; rows and picks: of each epoch",
            "largest_difference_of_a_loss": worst, "nearly": NEARLY, "accuracy": "of the validation set",
            "modelled": f"{MODELLED_AS}{crew.MODELLED_FROM}",
        },
        "verification": {"losses_equal_to_one_device": compared}, "graphs": common.facts(session, names),
        "rows": rows, "notes": [*notes, *crew.off_notes(rows), *crew.notes()], "converged": converged(curves),
    }  # fmt: skip


MODELLED_AS = (
    f"rows of {crew.MODELLED_GPUS} GPUs: losses and accuracy are those of one device with as many ranks' seeds; "
    "seconds are epochs "
)
"""What the record says of its modelled rows, before how epochs are modelled."""


def _runs(session: Session, name: str, world: int, epochs: int) -> dict[str, Any]:
    """Runs by system on so many ranks, and of :data:`BASE` on one device: all on the same mini-batches."""
    return {system: _run(session, name, system, world, epochs) for system in (BASE, *_systems(session))}


def _systems(session: Session) -> tuple[str, ...]:
    return SYSTEMS[-1 if session.quick else 0 :]


def _run(session: Session, name: str, system: str, world: int, epochs: int) -> Any:
    """A run with the seeds of so many ranks, on as many; of :data:`BASE` on one device."""
    size = crew.batch_size(common.graph(session, name, features=True)) * world
    ranks = 1 if system == BASE else world
    return utilisation.trained(session, name, system, ranks, epochs, size, evaluate=True)


def _on_one(session: Session, name: str, world: int) -> dict[str, Any]:
    """Runs by system on one GPU, which the model is fed with where no smaller number of them ran; not for one."""
    if world == 1:
        return {}
    size = crew.batch_size(common.graph(session, name, features=True))
    return {
        system: utilisation.trained(session, name, system, 1, FEEDING, size) for system in _systems(session)
    }


def on_more(alone: dict[str, Any], run: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The curve of a system on :data:`.crew.MODELLED_GPUS`, and its rows.

    Args:
        alone: the curve of one device that has the seeds of so many ranks.
        run: of the system on the most GPUs that there are.
    """
    fed, timeline = crew.on_more_gpus(run)
    curve = convergence.at_pace(alone, timeline.epoch_s) | {
        "system": run.system, "gpus": crew.MODELLED_GPUS, "origin": "modelled",
    }  # fmt: skip
    epoch = common.median_epoch(run).steady
    same = common.work_per_batch(epoch, fed.times.batches)
    kept = {name: curve[name] for name in ("origin", "seeds_of", "epoch_s")}
    return curve, [row | kept | same for row in convergence.by_epoch(curve)]


def by_epoch(curve: dict[str, Any], run: Any) -> list[dict[str, Any]]:
    """A curve as rows with what each epoch's mini-batches held, and the run's median epoch with its spread."""
    seconds = common.epoch_seconds(run)
    spent = {
        "origin": curve["origin"], "seeds_of": curve["seeds_of"], "epoch_s": curve["epoch_s"],
        "p10_s": seconds["p10_s"], "p90_s": seconds["p90_s"],
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
            "origin": curve.get("origin", "measured"),
            "seconds": None if at is None else curve["seconds"][at],
            "steps": None if at is None else curve["steps_by_epoch"][at],
        })  # fmt: skip
    return found
