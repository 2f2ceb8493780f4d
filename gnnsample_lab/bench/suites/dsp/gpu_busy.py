"""Figure 6: for which share of an epoch a GPU runs a kernel, with DSP's pipeline and one stage after the other.

A worker that has work (:mod:`.utilisation`) need not keep the GPU busy. So DSP and DSP-Seq train under a profiler,
which says for which share of an epoch at least one kernel ran: what a GPU's own counter of its utilisation counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suites.fastgl.training import require_torch

from . import crew
from .utilisation import SYSTEMS, graphs, same_losses, settings, trained

EPOCHS, RUNS, QUICK_RUNS = 3, 5, 1
"""The first epoch of a run warms up, the last is profiled; of an odd number of runs the median is one that ran."""


def gpu_busy(session: Session) -> dict[str, Any]:
    """The suite's function."""
    session.require_gpu("dsp-busy")
    require_torch(session)
    names = graphs(session)
    takes = QUICK_RUNS if session.quick else RUNS
    rows: list[dict[str, Any]] = []
    compared = 0
    for name in names:
        for world in crew.tried_worlds(session):
            size = crew.batch_size(common.graph(session, name, features=True)) * world
            runs: dict[str, list[Any]] = {s: [] for s in SYSTEMS}
            for take in range(takes):
                for system, found in runs.items():
                    found.append(trained(session, name, system, world, EPOCHS, size, kernels=True, take=take))
                one, other = (runs[system][take] for system in SYSTEMS)
                compared += same_losses(one, other, f"{name}, {world} ranks")
            before = float(np.median(_percents(runs["dsp-seq"])))
            for found in runs.values():
                row = measured(name, world, found, before)
                rows.append(row)
                session.say(
                    f"{name}, {world} ranks, {row['system']}: a kernel runs {row['gpu_busy_percent']:.0f} % of the time"
                )
    return {
        "settings": settings(session, names) | {
            "gpu_busy_percent": "of the last epoch, whose launches the profiler slows, how long at least one kernel "
            "runs on a GPU, one that waits for a peer as well, mean over ranks; the median run, with the 10th and 90th "
            "percentile of runs",
            "over_seq": "gpu_busy_percent over that of dsp-seq",
            "profiled_epoch_s": "the median run's last epoch",
        },
        "verification": {"losses_equal": compared}, "graphs": common.facts(session, names), "rows": rows,
        "notes": crew.notes(),
    }  # fmt: skip


def measured(name: str, world: int, runs: Sequence[Any], before: float) -> dict[str, Any]:
    """A system's row; ``before``: the share of DSP-Seq on as many GPUs, in percent."""
    percents = _percents(runs)
    run = runs[int(np.argsort(percents)[len(runs) // 2])]
    epoch, percent = run.epochs[-1], _percents([run])[0]
    p10, p90 = np.percentile(percents, (10, 90))
    return {
        "graph": name, "gpus": world, "system": run.system, "executor": run.settings["executor"],
        "steps": epoch.num_batches, **common.work_per_batch(epoch, max(epoch.tasks or epoch.num_batches, 1)),
        "gpu_busy_percent": percent, "p10_percent": float(p10), "p90_percent": float(p90), "runs": len(runs),
        "over_seq": percent / before if before else None, "profiled_epoch_s": epoch.total_us / 1e6,
    }  # fmt: skip


def _percents(runs: Sequence[Any]) -> list[float]:
    """By run, the mean over its GPUs."""
    return [100 * float(np.mean(run.gpu_busy)) for run in runs]
