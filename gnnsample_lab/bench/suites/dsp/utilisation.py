"""Figures 6 and 12: what of an epoch the stages keep a GPU busy, with DSP's pipeline and one after the other.

DSP and DSP-Seq train the same mini-batches; the executors' records say which stage ran when. Speed-ups on more GPUs
than there are come from the schedule model, fed with the measured stages, in rows of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites.fastgl.training import require_torch

from . import crew

SYSTEMS = ("dsp-seq", "dsp")
MODELLED = (1, 2, 4, 8)
STAGES = ("sample", "extract", "train")
CACHE_RATIO = 0.2
HIDDEN = 256
MODEL = "sage"


def utilisation(session: Session) -> dict[str, Any]:
    """The suite's function."""
    require_torch(session)
    names = graphs(session)
    rows: list[dict[str, Any]] = []
    errors: list[float] = []
    compared = 0
    for name in names:
        pairs = {}
        for world in trained_worlds(session):
            size = crew.batch_size(common.graph(session, name, features=True)) * world
            runs = {s: trained(session, name, s, world, 2 if session.quick else 3, size) for s in SYSTEMS}
            steps = runs["dsp"].epochs[0].num_batches
            compared += same_losses(runs["dsp-seq"], runs["dsp"], f"{name}, {world} ranks", steps)
            pairs[world] = runs
            rows += [measured(name, world, runs[s], runs["dsp-seq"]) for s in SYSTEMS]
            for row in rows[-2:]:
                session.say(
                    f"{name}, {world} ranks, {row['system']}: {row['epoch_s']:.3f} s, busy {row['busy_percent']:.0f} %"
                )
        for row in modelled(name, pairs):
            rows.append(row)
            if row["error_percent"] is not None:
                errors.append(abs(row["error_percent"]))
    return {
        "settings": settings() | {
            "busy_percent": "of an epoch's wall time, how long at least one stage's worker has work, mean over ranks; "
            "stage by stage beside it. Executors' records, not the occupancy of multiprocessors",
            "speedup": "epoch of dsp-seq over epoch of dsp",
            "modelled": "speed-up by the schedule model with the stages of dsp-seq on as many GPUs, or the most that "
            "ran; its error: against the measured speed-up",
            "model_error_percent": max(errors, default=None),
        },
        "verification": {"losses_equal": compared}, "graphs": common.facts(session, names), "rows": rows,
        "notes": crew.notes(),
    }  # fmt: skip


def settings() -> dict[str, Any]:
    return {
        "device": crew.device(), "model": MODEL, "hidden": HIDDEN, "fanouts": crew.FANOUTS,
        "batch_size": f"{crew.BATCH} seeds a rank, fewer on a small graph", "cache_ratio": CACHE_RATIO,
        "partition": "random",
    }  # fmt: skip


def graphs(session: Session) -> tuple[str, ...]:
    return crew.names(session, "products-like@0.1" if session.quick else "products-like@0.25")


def trained_worlds(session: Session) -> list[int]:
    """One rank, which a quick run leaves out, and as many as there are."""
    return sorted({crew.most_ranks() if session.quick else 1, crew.most_ranks()})


def trained(
    session: Session, name: str, system: str, world: int, epochs: int, size: int, evaluate: bool = False
) -> Any:
    """A training run of a system in steps of ``size`` seeds; parts at random, so that nobody waits for METIS."""
    from dataclasses import replace

    from gnnsample_lab.systems.table import find
    from gnnsample_lab.systems.train import train

    def make() -> Any:
        graph = common.graph(session, name, features=True)
        return train(
            graph, MODEL, replace(find(system), partition="random"), epochs=epochs, hidden=HIDDEN,
            batch_size=size, fanouts=crew.FANOUTS, evaluate=evaluate, progress=False,
            dropout=0.0, pick="floyd", cache_ratio=CACHE_RATIO if find(system).cache else None,
            ranks=crew.ranks(session) if world == crew.most_ranks() > 1 else world, device=common.device(),
        )  # fmt: skip

    return session.kept(("dsp", "trained", name, system, world, epochs, size, evaluate), make)


def same_losses(one: Any, other: Any, what: str, steps: int) -> int:
    """How many losses were compared: those of the first ``steps``; sums in another order drift apart later.

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
    """A row of one run."""
    epoch = run.steady
    tasks = max(epoch.tasks or epoch.num_batches, 1)
    return {
        "graph": name, "gpus": world, "system": run.system, "origin": "measured", "epoch_s": epoch.total_us / 1e6,
        "steps": epoch.num_batches, "step_ms": epoch.total_us / 1e3 / epoch.num_batches,
        **{f"{stage}_ms": epoch.stage_us[stage] / 1e3 / tasks for stage in STAGES},
        **busy(epoch.events, epoch.total_us, world), "speedup": base.steady.total_us / epoch.total_us,
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
    total, last_rank, until = 0.0, None, 0.0
    for rank, start, end in sorted(spans):
        if rank != last_rank:
            last_rank, until = rank, start
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def modelled(name: str, pairs: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """Speed-ups by the schedule model, from the stages of DSP-Seq on as many GPUs, or the most that ran."""
    from gnnsample_lab.pipeline.schedule import run_of, simulate, stage_times

    rows = []
    for gpus in MODELLED:
        run = pairs[gpus if gpus in pairs else max(pairs)]["dsp-seq"]
        seconds = [getattr(run_of(run).times, f"{stage}_s") for stage in STAGES]
        # Of more GPUs than ran, each mini-batch's times are drawn from those measured.
        times = stage_times(
            *seconds, batches=run.steady.num_batches * gpus, source=f"measured on {run.ranks} ranks"
        )
        spent = {
            system: simulate(times, executor, gpus=gpus, collective=gpus > 1).epoch_s
            for system, executor in zip(SYSTEMS, ("serial", "overlapped"), strict=True)
        }
        speedup = spent["dsp-seq"] / spent["dsp"]
        error = None
        if gpus in pairs:
            real = pairs[gpus]["dsp-seq"].steady.total_us / pairs[gpus]["dsp"].steady.total_us
            error = 100 * (speedup / real - 1)
        rows.append({
            "graph": name, "gpus": gpus, "system": "dsp", "origin": "modelled", "speedup": speedup,
            "epoch_s": spent["dsp"], "error_percent": error,
        })  # fmt: skip
    return rows
