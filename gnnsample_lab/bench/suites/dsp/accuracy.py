"""Figure 9: loss and accuracy over mini-batches are the same for all systems; over time they are not."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suites.fastgl.training import require_torch
from gnnsample_lab.graph.errors import DatasetNotFoundError, DownloadError

from . import crew, utilisation

BASE = "tsota"
"""One device, the whole graph on it, one stage after the other."""
SYSTEMS = ("dgl-uva", "quiver", "dsp")
EPOCHS, QUICK_EPOCHS = 8, 2
NEARLY = 0.99
"""Share of the best accuracy at which a run counts as converged."""


def accuracy(session: Session) -> dict[str, Any]:
    """The suite's function."""
    require_torch(session)
    wanted = crew.names(session, "products-like@0.1", *(() if session.quick else ("musae-facebook",)))
    systems = (BASE, *SYSTEMS[-1 if session.quick else 0 :])
    world, epochs = crew.most_ranks(), QUICK_EPOCHS if session.quick else EPOCHS
    rows: list[dict[str, Any]] = []
    names, notes, compared, worst = [], [], 0, 0.0
    for name in wanted:
        try:
            graph: Any = common.graph(session, name, features=True)
        except (DatasetNotFoundError, DownloadError) as error:  # a real graph that is not on this machine
            notes.append(f"{name} is left out: {str(error).splitlines()[0]}")
            continue
        names.append(name)
        size = crew.batch_size(graph) * world  # the same mini-batches: one device has the seeds of all ranks
        runs = {
            s: utilisation.trained(session, name, s, 1 if s == BASE else world, epochs, size, evaluate=True)
            for s in systems
        }
        for system, run in runs.items():
            compared += utilisation.same_losses(runs[BASE], run, name, run.epochs[0].num_batches)
            worst = max(worst, float(np.abs(np.array(run.losses) - np.array(runs[BASE].losses)).max()))
            rows += curve(name, run, world if system != BASE else 1)
            last = rows[-1]
            session.say(
                f"{name}, {system}: accuracy {last['accuracy']:.3f}, loss {last['loss']:.3f}, {last['seconds']:.1f} s"
            )
    return {
        "settings": utilisation.settings() | {
            "seconds": "training, without evaluation, since the first epoch began", "ranks": world, "epochs": epochs,
            "losses": "compared step by step over the first epoch; sums in another order drift apart later",
            "largest_difference_of_a_loss": worst, "nearly": NEARLY, "accuracy": "of the validation set",
        },
        "verification": {"losses_equal_to_one_device": compared}, "graphs": common.facts(session, names), "rows": rows,
        "notes": [*notes, *crew.notes()], "converged": [converged(rows, n, s) for n in names for s in systems],
    }  # fmt: skip


def curve(name: str, run: Any, world: int) -> list[dict[str, Any]]:
    """A row an epoch: mini-batches and seconds so far, mean loss, accuracy."""
    found, steps, us = [], 0, 0.0
    for number, epoch in enumerate(run.epochs):
        losses = run.losses[steps : steps + epoch.num_batches]
        steps, us = steps + epoch.num_batches, us + epoch.total_us
        found.append({
            "graph": name, "system": run.system, "gpus": world, "epoch": number, "steps": steps, "seconds": us / 1e6,
            "loss": float(np.mean(losses)), "accuracy": float(run.accuracy[number]) if run.accuracy else None,
        })  # fmt: skip
    return found


def converged(rows: list[dict[str, Any]], name: str, system: str) -> dict[str, Any]:
    """Seconds and mini-batches until a run has nearly the best accuracy of all runs on the graph."""
    here = [row for row in rows if row["graph"] == name]
    best = max(row["accuracy"] or 0.0 for row in here)
    reached = next(
        (r for r in here if r["system"] == system and (r["accuracy"] or 0.0) >= NEARLY * best), None
    )
    return {
        "graph": name, "system": system, "best": best, "seconds": None if reached is None else reached["seconds"],
        "steps": None if reached is None else reached["steps"],
    }  # fmt: skip
