"""Figure 12: what DSP's pipeline gains over one stage after the other, and for how much of an epoch stages have work.

DSP and DSP-Seq train the same mini-batches; the executors' records say which stage ran when. Rows of their own have
what the schedule model makes of measured stages. Fed with stages that ran alone it predicts, also for more GPUs than
there are, and knows nothing of how stages that overlap on a GPU slow each other. Fed with the stages as they were
within DSP's own run it predicts nothing, but says how well the schedule explains the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites.fastgl.training import require_torch
from gnnsample_lab.spans import covered

from . import crew

SYSTEMS = ("dsp-seq", "dsp")
MODELLED = (1, 2, 4, 8)
STAGES = ("sample", "extract", "train")
ALONE, OVERLAPPED = "stages alone", "stages as they overlapped"
"""What the modelled rows are fed with."""
EPOCHS, QUICK_EPOCHS = 6, 4
"""The first warms up; of an odd number of others the median is one that ran."""
COMPARED = 16
"""Losses of a run that must be another's: after more steps sums in another order have drifted apart."""
CACHE_RATIO = 0.2
HIDDEN = 256
MODEL = "sage"


def utilisation(session: Session) -> dict[str, Any]:
    """The suite's function."""
    require_torch(session)
    names = graphs(session)
    rows: list[dict[str, Any]] = []
    compared, epochs = 0, QUICK_EPOCHS if session.quick else EPOCHS
    for name in names:
        pairs = {}
        for world in crew.tried_worlds(session):
            size = crew.batch_size(common.graph(session, name, features=True)) * world
            runs = {s: trained(session, name, s, world, epochs, size) for s in SYSTEMS}
            compared += same_losses(runs["dsp-seq"], runs["dsp"], f"{name}, {world} ranks")
            pairs[world] = runs
            for system in SYSTEMS:
                row = measured(name, world, runs[system], runs["dsp-seq"])
                rows.append(row)
                session.say(
                    f"{name}, {world} ranks, {system}: {row['epoch_s']:.3f} s, busy {row['busy_percent']:.0f} %"
                )
        rows += modelled(name, pairs)
    return {
        "settings": settings(session, names) | {
            "busy_percent": "of an epoch's wall time, how long at least one stage's worker has work, mean over ranks; "
            "stage by stage beside it. Executors' records, not the occupancy of multiprocessors",
            "epoch_s": "the median epoch after the first, with the 10th and 90th percentile of all after the first; "
            "stages and shares: of that epoch, a mini-batch of a rank",
            "speedup": "epoch of dsp-seq over epoch of dsp",
            "modelled": MODELLED_AS,
            "model_error_percent": {stages: worst_error(rows, stages) for stages in (ALONE, OVERLAPPED)},
        },
        "verification": {"losses_equal": compared}, "graphs": common.facts(session, names), "rows": rows,
        "notes": crew.notes(),
    }  # fmt: skip


MODELLED_AS = (
    "by the schedule model: the epoch of dsp that follows from stage times, queues, their capacity and collectives; no "
    "further costs, since training was timed with its exchange of gradients. speedup: the measured epoch of dsp-seq "
    f"over it. {ALONE}: as dsp-seq measured them, one after the other, without what stages that overlap cost each "
    "other: a prediction. On other numbers of GPUs than ran: with the mini-batches and stage times of the most that "
    f"ran, and dsp-seq's epoch is modelled, too. {OVERLAPPED}: as measured within the run of dsp itself, with what "
    "they cost each other and their waits for other ranks: no prediction, but how well the schedule explains the "
    "epoch; not there for numbers of GPUs that did not run. error_percent: modelled speed-up over the measured one, "
    "less 1; model_error_percent: the largest"
)
"""What the record says of its modelled rows."""


def worst_error(rows: Iterable[dict[str, Any]], stages: str) -> float | None:
    """The largest error of the rows that were modelled from such stages, without its sign; None without any."""
    errors = [row["error_percent"] for row in rows if row.get("stages") == stages]
    return max((abs(error) for error in errors if error is not None), default=None)


def settings(session: Session, names: Sequence[str]) -> dict[str, Any]:
    return {
        "device": crew.device(), "model": MODEL, "hidden": HIDDEN, "fanouts": crew.FANOUTS,
        "batch_size": f"{crew.BATCH} seeds a rank, fewer on a small graph", "cache_ratio": CACHE_RATIO,
        "partition": crew.divisions(session, names, crew.most_ranks()),
    }  # fmt: skip


def graphs(session: Session) -> tuple[str, ...]:
    return crew.names(session, "products-like@0.1" if session.quick else "products-like@0.25")


def trained(
    session: Session, name: str, system: str, world: int, epochs: int, size: int, evaluate: bool = False,
    kernels: bool = False, take: int = 0,
) -> Any:  # fmt: skip
    """A training run of a system in steps of ``size`` seeds; ``take``: which of several equal runs."""
    from dataclasses import replace

    from gnnsample_lab.systems.table import find
    from gnnsample_lab.systems.train import train

    def make() -> Any:
        graph = common.graph(session, name, features=True)
        return train(
            graph, MODEL, replace(find(system), partition=crew.division(session, name, world)), epochs=epochs,
            hidden=HIDDEN, batch_size=size, fanouts=crew.FANOUTS, evaluate=evaluate, progress=False,
            dropout=0.0, pick="floyd", cache_ratio=CACHE_RATIO if find(system).cache else None,
            ranks=crew.ranks_of(session, world) if world > 1 else 1, device=common.device(), kernels=kernels,
        )  # fmt: skip

    return session.kept(("dsp", "trained", name, system, world, epochs, size, evaluate, kernels, take), make)


def same_losses(one: Any, other: Any, what: str, steps: int = COMPARED) -> int:
    """How many losses were compared: those of the first ``steps``.

    Raises:
        VerificationError: the two runs did not train on the same mini-batches to the same losses.
    """
    a, b = (np.array(run.losses[:steps], np.float64) for run in (one, other))
    if one.batch_ids != other.batch_ids or not np.allclose(a, b, rtol=2e-3, atol=1e-4):
        worst = float(np.abs(a - b).max()) if a.shape == b.shape else float("nan")
        raise VerificationError(
            f"{what}: {other.system} trains to other losses than {one.system} (by {worst:.2g})"
        )
    return len(a)


def measured(name: str, world: int, run: Any, base: Any) -> dict[str, Any]:
    """A row of one run, of its median epoch."""
    epoch, before = (common.median_epoch(each).steady for each in (run, base))
    tasks = max(epoch.tasks or epoch.num_batches, 1)
    return {
        "graph": name, "gpus": world, "system": run.system, "origin": "measured", **common.epoch_seconds(run),
        "steps": epoch.num_batches, "step_ms": epoch.total_us / 1e3 / epoch.num_batches,
        **{f"{stage}_ms": epoch.stage_us[stage] / 1e3 / tasks for stage in STAGES},
        **busy(epoch.events, epoch.total_us, world), "speedup": before.total_us / epoch.total_us,
        "executor": run.settings["executor"], "error_percent": None,
        **common.work_per_batch(epoch, tasks),
    }  # fmt: skip


def busy(events: Iterable[Any], total_us: float, world: int) -> dict[str, float]:
    """Shares of the wall time in percent, means over ranks: of each stage, and of at least one (``busy_percent``)."""
    by_stage: dict[str, list[tuple[int, float, float]]] = {stage: [] for stage in STAGES}
    for event in events:
        if event.stage in by_stage:
            by_stage[event.stage].append((event.rank, event.start_us, event.end_us))
    every = [span for spans in by_stage.values() for span in spans]
    whole = max(total_us, 1e-9) * world
    return {
        **{f"{stage}_percent": 100 * _covered(spans) / whole for stage, spans in by_stage.items()},
        "busy_percent": 100 * _covered(every) / whole,
    }  # fmt: skip


def _covered(spans: Iterable[tuple[int, float, float]]) -> float:
    """Microseconds in which at least one span of a rank runs, added up over ranks."""
    by_rank: dict[int, list[tuple[float, float]]] = {}
    for rank, start, end in spans:
        by_rank.setdefault(rank, []).append((start, end))
    return sum(covered(each) for each in by_rank.values())


def modelled(name: str, pairs: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """What the schedule model says of the pipeline, fed with stages alone and with stages as they overlapped.

    Args:
        name: of the graph.
        pairs: runs of :data:`SYSTEMS` by number of GPUs. Of other numbers nobody knows how stages overlap.
    """
    from gnnsample_lab.pipeline.schedule import run_of, simulate

    rows = []
    for gpus in MODELLED:
        ran = gpus in pairs
        serial, overlapped = (common.median_epoch(pairs[gpus if ran else max(pairs)][s]) for s in SYSTEMS)
        real = serial.steady.total_us / overlapped.steady.total_us
        for stages, run in ((ALONE, serial), (OVERLAPPED, overlapped)) if ran else ((ALONE, serial),):
            # An epoch has the same mini-batches, each of one GPU, on any number of them.
            times, queues = run_of(run).times, run_of(overlapped).options
            epoch_s = simulate(times, "overlapped", gpus=gpus, collective=gpus > 1, **queues).epoch_s
            before_s = serial.steady.total_us / 1e6
            if not ran:
                before_s = simulate(times, "serial", gpus=gpus, collective=gpus > 1).epoch_s
            rows.append({
                "graph": name, "gpus": gpus, "system": "dsp", "origin": "modelled", "stages": stages,
                "epoch_s": epoch_s, "speedup": before_s / epoch_s,
                "error_percent": 100 * (before_s / epoch_s / real - 1) if ran else None,
                **{f"{stage}_ms": 1e3 * times.mean(stage) for stage in STAGES},
                **common.work_per_batch(run.steady, max(run.steady.tasks or run.steady.num_batches, 1)),
            })  # fmt: skip
    return rows
