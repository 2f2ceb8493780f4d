"""Training end to end: overlapped stages against their ceiling, factored against time sharing, GPUs, and systems.

Rows of nine parts. "overlap": serial and overlapped runs of the same work, with plain steps and, on a GPU, with
captured ones. "scaling": one GPU and more of them, as many seeds a GPU. "handover": samples that go to trainers through
host memory, and such that stay in their sampler's. "swap": all ranks sample, then train, with topology and cache side
by side or in turns (AGL). "workers": one sampler and loader on each rank, and two. "merged": the rows of one mini-batch
in an extraction, of two and of four. "trace": which GPU of a factored run has sampling kernels. "systems": DSP's tables
4 and 5, smaller, and those that sample on GPUs by both kinds of steps; on fewer GPUs what table 4 has. "systems,
modelled": the same on as many GPUs as DSP had, by the schedule model. Epochs are of some mini-batches of the training
split; times are of a step, medians over epochs after the first.

A part that fails, or trains to other losses than it should, is one row with its error and no times; the others stay.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.record import graph_facts
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.pipeline.overlap import overlap, step_ms
from gnnsample_lab.pipeline.records import StageEvent, TrainResult
from gnnsample_lab.pipeline.schedule.records import model_error, run_of
from gnnsample_lab.resources import PACKAGE_ROOT
from gnnsample_lab.systems.ranks import open_shared, shared_graph
from gnnsample_lab.systems.train import train

from . import crew, papers

HIDDEN = 256
STEPS, QUICK_STEPS = 24, 12
"""Mini-batches of an epoch, of as many seeds as all ranks have together."""
EPOCHS, SCALING_EPOCHS = 6, 12
"""Of a run; of those whose steps take two milliseconds, and differ by little from one number of GPUs to the next."""
CACHED = (1.0, 0.3, 0.0)
"""Cached shares of the vertices over which stages are overlapped."""
STEPS_AS: dict[str, dict[str, Any]] = {"plain": {}, "captured": {"captured": True, "kernel": "auto"}}
"""Training steps over which stages are overlapped: launched kernel by kernel as the system does, and replayed as CUDA
graphs, which the system's own aggregation by cuSPARSE cannot be part of."""
LARGE = 8
"""Times the usual seeds, of further overlapped rows on GPUs: kernels then take longer than launching them does."""
SHARED_CACHE = 0.25
"""Share of the vertices that each rank caches in "systems"."""
SYSTEMS = ("pyg-cpu", "dgl-uva", "quiver", "dsp-seq", "dsp", "lab")
FROM_PARTS = ("dgl-uva", "quiver", "dsp-seq", "dsp")
"""Those that sample on GPUs from parts. They are compared by captured steps, too: what their samplers and loaders make
of a step that is not bound by launches from Python. "lab" has no others."""
IN_TABLE4 = tuple(name for name in SYSTEMS if name in {row["system"] for row in papers.TABLE4})
"""Systems on fewer GPUs than all, with GraphSAGE and steps of their own: what DSP's table 4 has there."""
TOLERANCE = 1e-2
"""Between losses of the first epoch of two systems, on the same mini-batches in float32."""


def graphs(session: Session) -> tuple[str, ...]:
    return session.chosen or (("products-like@0.25",) if session.quick else ("products-like",))


def pipelines(session: Session) -> dict[str, Any]:
    """The suite's function."""
    rows: list[dict[str, Any]] = []
    verified, facts, failed = 0, {}, dict[str, str]()
    for name in graphs(session):
        with contextlib.ExitStack() as stack:
            runs = Runs(session, name, stack)
            facts[name] = graph_facts(runs.graph)
            for part in PARTS:
                began, what = time.perf_counter(), part.__name__[1:]
                try:
                    found, checked = session.piece((name, what), functools.partial(_checked, runs, part))
                    verified += checked
                except Exception as error:  # minutes of other parts must not be lost with it
                    text = f"{type(error).__name__}: {first_line(error)}"
                    failed[f"{name}, {what}"] = text
                    found = [{"part": what, "error": text}]
                    session.say(f"{name}: {what} failed, {text}")
                rows += [{"graph": name, "seeds_a_gpu": runs.size, **row} for row in found]
                session.say(f"{name}: {what}, {time.perf_counter() - began:.1f} s")
    return {
        "settings": {
            "device": crew.device(), "ranks": crew.most_ranks(), "fanouts": list(crew.FANOUTS), "hidden": HIDDEN,
            "epochs": EPOCHS, "epochs_of_scaling": SCALING_EPOCHS,
            "model": "sage, and gcn", "pick": "floyd for all systems",
            "partition": f"of systems that have parts; {crew.divisions(session, graphs(session), crew.most_ranks())}",
            "ms": "wall time of a step of all ranks: median, p10 and p90 of the epochs after the first; stages: mean "
            "of a rank's slice of a mini-batch, in the median epoch of the run itself",
            "step": "plain: launched kernel by kernel, aggregation by cuSPARSE, as the systems do; captured: replayed "
            "as a CUDA graph, aggregation by our kernels. Where all rows are cached, serial and streams gather them "
            "into the graph's memory; overlapped has a worker that gathers, and the step copies them once more",
            "ceiling": "sum over longest of the serial stages (alone_ms), with steps of the same kind; share: longest "
            "serial stage over the overlapped step",
            "modelled_ms": "the schedule model fed with the stages of the same run, as they overlapped: how well the "
            "schedule explains the run, and no prediction",
            "systems, modelled": f"the same stages on {crew.MODELLED_GPUS} GPUs, as many slices an epoch: a prediction "
            f"that leaves out {crew.LEFT_OUT}",
            "trace": "has no times: the profiler was on",
            "transfer": "how missing rows came; disk: from a file in the page cache, which all ranks map; overlap has "
            "its rows in ordinary host memory",
            "way": "handover: host, through host memory; peer, read in the sampler's device memory. swap: topology and "
            "cache side by side, or in turns. workers: samplers, and loaders, of each rank. merged: "
            "mini-batches in an extraction",
            "put_ms": "of a mini-batch that is handed over: from the end of sampling until it is in the queue, with "
            "the wait for room there; get_ms: from the queue to its trainer's device",
            "x_first": "epoch of the first way of a part over this one's",
        },
        "verification": {
            "runs_with_the_losses_of_another": verified, **({"parts_that_failed": len(failed)} if failed else {}),
        },
        "graphs": facts, "rows": rows,
        "notes": [f"{what}: no times, for it failed: {text}" for what, text in failed.items()],
    }  # fmt: skip


def _checked(runs: Runs, part: Callable[[Runs], list[dict[str, Any]]]) -> tuple[list[dict[str, Any]], int]:
    """The rows of a part, and how many of its runs were compared with another."""
    before = runs.verified
    return part(runs), runs.verified - before


def first_line(error: Exception) -> str:
    """What went wrong, short enough for a cell."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


class Runs:
    """Runs on one graph with a short training split, from files that all ranks map."""

    def __init__(self, session: Session, name: str, stack: contextlib.ExitStack) -> None:
        self.session, self.name, self.quick = session, name, session.quick
        self.world = crew.most_ranks()
        whole = crew.host_graph(session, name, features=True)
        self.size = crew.batch_size(whole)
        steps = QUICK_STEPS if session.quick else STEPS
        seeds = common.train_seeds(whole)
        self.epoch_share = min(1.0, steps * self.size * self.world / len(seeds))
        few = np.sort(np.random.default_rng(0).permutation(seeds)[: steps * self.size * self.world])
        cut = replace(whole, edge_weight=None, splits={"train": few}, validate=False)
        self.graph = open_shared(stack.enter_context(shared_graph(cut)))
        self._in_memory: Any = None
        self.verified = 0

    @property
    def in_memory(self) -> Any:
        """The graph with features in ordinary host memory: one process has no need of files that others map."""
        if self._in_memory is None:
            self._in_memory = replace(self.graph, feat=np.array(self.graph.feat), validate=False)
        return self._in_memory

    def run(
        self, system: str, world: int = 1, *, per_rank: bool = True, model: str = "sage", times: int = 1,
        in_memory: bool = False, **options: Any,
    ) -> TrainResult:  # fmt: skip
        """Train on one device or on ranks; ``per_rank``: a mini-batch of (``times``) so many seeds for each."""
        size = self.size * times * (world if per_rank else 1)
        given = {
            "epochs": EPOCHS, "batch_size": size, "fanouts": crew.FANOUTS, "hidden": HIDDEN, "evaluate": False,
            "progress": False, "pick": "floyd", "device": "cuda" if crew.on_gpu() else "cpu",
            "ranks": crew.ranks_of(self.session, world) if world > 1 else 1,
        }  # fmt: skip
        graph = self.in_memory if in_memory else self.graph
        return train(graph, model, system, **{**given, **options})

    def parts(self, world: int) -> Path:
        return Path(crew.parts(self.session, self.name, world, features=True))

    def try_row(
        self, row: dict[str, Any], run: Callable[[], TrainResult]
    ) -> tuple[dict[str, Any], TrainResult | None]:
        """The row with times and cache of a run, or with what went wrong; that must not end the suite."""
        try:
            result = run()
        except Exception as error:
            self.session.say(f"{self.name}, {row}: {first_line(error)}")
            return {**row, "error": first_line(error)}, None
        found = row | measured(result)
        text = ", ".join(f"{key} {value}" for key, value in row.items() if key != "part")
        self.session.say(f"{row['part']}: {text}: {found['ms']:.2f} ms a step")
        return found, result

    def verify(self, result: TrainResult | None, reference: TrainResult | None) -> None:
        """Compare the losses of the first epoch.

        Raises:
            VerificationError: they differ: the runs did not do the same work.
        """
        if result is None or reference is None:
            return
        count = reference.epochs[0].num_batches
        mine, theirs = np.array(result.losses[:count]), np.array(reference.losses[:count])
        if result.batch_ids[:count] != reference.batch_ids[:count] or np.abs(mine - theirs).max() > TOLERANCE:
            worst = np.abs(mine - theirs).max()
            raise VerificationError(
                f"{result.system} ({result.settings['executor']}) has other losses than {reference.system}: {worst:.3g}"
            )
        self.verified += 1

    def verify_shares(self, result: TrainResult | None, reference: TrainResult | None) -> None:
        """As :meth:`verify` where both have made the same updates. Trainers take mini-batches as they come, so that
        several of them may not have: then that each mini-batch of an epoch was trained on once.

        Raises:
            VerificationError: a mini-batch is missing or was trained on twice, or losses differ.
        """
        if result is None or reference is None:
            return
        count = reference.epochs[0].num_batches
        same = result.batch_ids[:count] == reference.batch_ids[:count]
        if same and result.update_sizes == reference.update_sizes:
            self.verify(result, reference)
            return
        if sorted(result.batch_ids) != sorted(reference.batch_ids) or not np.isfinite(result.losses).all():
            raise VerificationError(f"{result.system} did not train once on each mini-batch of an epoch")
        self.verified += 1


def steps_as() -> tuple[str, ...]:
    """Kinds of training steps that the device has: nothing is captured on a CPU."""
    return tuple(STEPS_AS) if crew.on_gpu() else ("plain",)


def measured(result: TrainResult) -> dict[str, Any]:
    """Columns of a run: milliseconds of a step, stages of the median epoch, cache, bytes of each rank."""
    steps, middle = step_ms(result), common.median_epoch(result).steady
    tasks = max(middle.tasks, 1)
    memory = max(result.memory, key=lambda m: m.cache)
    return {
        "ms": statistics.median(steps), "p10": float(np.percentile(steps, 10)), "p90": float(np.percentile(steps, 90)),
        **{f"{stage}_ms": us / 1e3 / tasks for stage, us in middle.stage_us.items() if stage != "reorder"},
        **hand_over_ms(middle.events),
        "steps": middle.num_batches, **common.work_per_batch(middle, tasks), "cached_percent": 100 * result.cache_ratio,
        "hit_percent": None if middle.hit_rate != middle.hit_rate else 100 * middle.hit_rate,
        "cache_mb": memory.cache / 1e6, "topology_mb": max(m.topology for m in result.memory) / 1e6,
        "peak_mb": max(m.peak for m in result.memory) / 1e6, "memory": [m._asdict() for m in result.memory],
        "transfer": result.settings["transfer"], "setup_s": result.setup_us / 1e6, "notes": list(result.notes),
    }  # fmt: skip


def hand_over_ms(events: Iterable[StageEvent]) -> dict[str, float]:
    """``put_ms`` and ``get_ms`` of a mini-batch, means, where samples are handed over."""
    spent: dict[str, list[float]] = {"put": [], "get": []}
    for event in events:
        if event.stage in spent:
            spent[event.stage].append(event.end_us - event.start_us)
    return {f"{stage}_ms": statistics.mean(us) / 1e3 for stage, us in spent.items() if us}


# ---- parts ------------------------------------------------------------------------------------------------------


def _overlap(runs: Runs) -> list[dict[str, Any]]:
    """Serial and overlapped on one device, over the share of cached vertices, by plain steps and by captured ones."""
    rows = []
    sizes = (1, LARGE) if crew.on_gpu() else (1,)
    executors = ("serial", "overlapped", "streams") if crew.on_gpu() else ("serial", "overlapped")
    for times, cached in itertools.product(sizes, CACHED):
        plain: TrainResult | None = None
        for step in steps_as():
            serial: TrainResult | None = None
            for executor in executors:
                row = {
                    "part": "overlap", "system": "gnnlab", "gpus": 1, "executor": executor, "step": step,
                    "seeds_a_gpu": times * runs.size,
                }  # fmt: skip
                found, result = runs.try_row(
                    row, functools.partial(
                        runs.run, "gnnlab", executor=executor, cache_ratio=cached, times=times, in_memory=True,
                        **STEPS_AS[step],
                    ),
                )  # fmt: skip
                if result is not None:
                    found |= {"kernel": result.settings["kernel"]} | _gained(serial, result)
                    runs.verify(result, serial or plain)
                    plain, serial = plain or result, serial or (result if executor == "serial" else None)
                rows.append(found)
    return rows


def _gained(serial: TrainResult | None, result: TrainResult) -> dict[str, Any]:
    """What overlapping has gained over a serial run of the same kind of steps; nothing of the serial run itself."""
    if serial is None:
        return {}
    gain = overlap(serial, result)
    return {
        "miss_percent": 100 * (1 - common.median_epoch(serial).steady.hit_rate), "serial_ms": gain.serial_ms,
        "alone_ms": gain.stage_ms, "ceiling": gain.ceiling, "gained": gain.gained, "share_percent": 100 * gain.share,
    }  # fmt: skip


def _scaling(runs: Runs) -> list[dict[str, Any]]:
    """One GPU and all, as many seeds a GPU, everything in device memory: the best executor of each."""
    rows, alone = [], None
    for world in dict.fromkeys((1, *crew.worlds())):
        for executor in ("streams", "overlapped"):
            row = {"part": "scaling", "system": "lab", "gpus": world, "executor": executor}
            found, _ = runs.try_row(
                row,
                functools.partial(
                    runs.run, "lab", world, executor=executor, cache_ratio=1.0, epochs=SCALING_EPOCHS
                ),
            )
            rows.append(found)
        times = [r["ms"] for r in rows if r["gpus"] == world and "ms" in r]
        if world == 1:
            alone = min(times, default=None)
    for row in rows:
        if alone is not None and "ms" in row:
            row["x_one"] = alone / row["ms"] * row["gpus"]
    return rows


def _handover(runs: Runs) -> list[dict[str, Any]]:
    """The factored design with one sampler, whose samples go to trainers through host memory, or stay with it."""
    return _ways(
        runs, "handover", "gnnlab",
        {way: {**_FACTORED, "samplers": 1, "switching": False, "handover": way} for way in ("host", "peer")},
    )  # fmt: skip


def _swap(runs: Runs) -> list[dict[str, Any]]:
    """All ranks sample an epoch, then train: with topology and cache in device memory at once, or in turns."""
    return _ways(
        runs, "swap", "gnnlab",
        {
            "side by side": {**_FACTORED, "samplers": runs.world, "switching": True},
            "in turns": {**_FACTORED, "swap": True},
        },
    )  # fmt: skip


def _workers(runs: Runs) -> list[dict[str, Any]]:
    """DSP's pipeline with one sampler and loader on each rank, as in section 5, and with two."""
    return _of_pipeline(runs, "workers", 1, 2)


def _merged(runs: Runs) -> list[dict[str, Any]]:
    """DSP's loaders with a mini-batch's rows in an extraction, and with those of several, as in section 3.2."""
    return _of_pipeline(runs, "merged", 1, 2, 4)


def _of_pipeline(runs: Runs, what: str, *counts: int) -> list[dict[str, Any]]:
    """DSP on all ranks with so many of ``what``, an argument of ``lab.train`` and the name of the part."""
    if runs.world < 2:
        return []
    shared = {"parts": runs.parts(runs.world)}
    return _ways(runs, what, "dsp", {str(n): {**shared, what: n} for n in counts})


_FACTORED: dict[str, Any] = {"executor": "factored", "per_rank": False}


def _ways(runs: Runs, part: str, system: str, ways: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each way to do the same work on all ranks, whose losses are compared with the first one's.

    Raises:
        VerificationError: they trained on something else.
    """
    rows: list[dict[str, Any]] = []
    first: TrainResult | None = None
    for way, options in ways.items() if runs.world > 1 else ():
        row = {"part": part, "system": system, "gpus": runs.world, "way": way}
        found, result = runs.try_row(
            row,
            functools.partial(
                runs.run,
                system,
                runs.world,
                cache_ratio=SHARED_CACHE,
                **options,
            ),
        )
        if result is not None:
            found |= {"executor": result.settings["executor"], "epoch_ms": found["ms"] * found["steps"]}
            runs.verify_shares(result, first)
            first = first or result
        rows.append(found)
    if rows and "epoch_ms" in rows[0]:
        for found in rows:
            if "epoch_ms" in found:
                found["x_first"] = rows[0]["epoch_ms"] / found["epoch_ms"]
    return rows


@functools.cache
def sampling_kernels() -> frozenset[str]:
    """Names of the kernels that draw and relabel, from their sources, but for names that other kernels have as well:
    a trace of the GPU has names alone, and ``place`` is also what places rows of features."""
    own, others = (
        _kernels_of("sampling/neighbors", "minibatch"),
        _kernels_of("compute", "features", "distributed"),
    )
    return own - others


def _kernels_of(*folders: str) -> frozenset[str]:
    kernel = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\s*\(")
    files = (file for folder in folders for file in (PACKAGE_ROOT / folder).rglob("*.cu*"))
    return frozenset(name for file in files for name in kernel.findall(file.read_text(encoding="utf-8")))


def _trace(runs: Runs) -> list[dict[str, Any]]:
    """Which GPU of a factored run has kernels that sample."""
    if runs.world < 2:
        return []
    row = {"part": "trace", "system": "gnnlab", "gpus": runs.world, "executor": "factored"}
    found, result = runs.try_row(
        row, functools.partial(
            runs.run, "gnnlab", runs.world, per_rank=False, executor="factored", samplers=1, switching=False,
            cache_ratio=SHARED_CACHE, epochs=2, kernels=True,
        ),
    )  # fmt: skip
    for name in ("ms", "p10", "p90", *(f"{stage}_ms" for stage in ("sample", "extract", "train"))):
        found.pop(name, None)  # of the epoch in which the profiler was on
    if result is None or not result.kernels:
        return [found | {"traced": False}]
    names = sampling_kernels()
    counts = [sum(n for name, n in ran.items() if name in names) for ran in result.kernels]
    return [
        found | {
            "traced": True, "sampler_kernels": counts[0], "trainer_kernels": sum(counts[1:]),
            "kernels": result.kernels,
        }
    ]  # fmt: skip


def modelled_here(result: TrainResult, row: dict[str, Any]) -> dict[str, float]:
    """What the schedule model makes of a run's own stages, beside the row's milliseconds of all steps of an epoch."""
    [modelled] = model_error([run_of(common.median_epoch(result))]).rows
    epoch_ms = 1e3 * modelled.modelled_s
    return {
        "modelled_ms": epoch_ms,
        "model_error_percent": 100 * (epoch_ms / (row["ms"] * row["steps"]) - 1),
    }


def _systems(runs: Runs) -> list[dict[str, Any]]:
    """DSP's tables 4 and 5: the same model on the same mini-batches by each system, with its own steps and, where it
    samples on GPUs, with captured ones."""
    rows = []
    for model in ("sage",) if runs.quick else ("sage", "gcn"):
        reference: TrainResult | None = None
        for step in steps_as():
            pairs = _by_system(
                runs, runs.world, SYSTEMS if step == "plain" else FROM_PARTS, model, step, reference
            )
            reference = reference or next((result for _, result in pairs if result is not None), None)
            more = [_on_more(runs, row, result) for row, result in pairs if result is not None]
            rows += _over_dsp([row for row, _ in pairs]) + _over_dsp(more)
    return rows


def _systems_on_fewer(runs: Runs) -> list[dict[str, Any]]:
    """What table 4 has on fewer GPUs."""
    worlds = [world for world in crew.several(runs.session) if world < runs.world]
    every = [_by_system(runs, world, IN_TABLE4, "sage", "plain") for world in worlds]
    return [row for pairs in every for row in _over_dsp([row for row, _ in pairs])]


def _by_system(
    runs: Runs,
    world: int,
    systems: Iterable[str],
    model: str,
    step: str,
    reference: TrainResult | None = None,
) -> list[tuple[dict[str, Any], TrainResult | None]]:
    """A row and its run for each system, with losses as of ``reference``, else of the first of them."""
    found = []
    for system in systems:
        row, result = runs.try_row(*_system(runs, world, system, model, step))
        if result is not None:
            row["executor"] = result.settings["executor"]
            row["epoch_s"] = row["ms"] * row["steps"] / 1e3 / runs.epoch_share
            row |= modelled_here(result, row)
        reference = reference or result
        runs.verify(result, reference)
        found.append((row, result))
    return found


def _over_dsp(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with each step over that of dsp among them."""
    dsp = next((row["ms"] for row in rows if row["system"] == "dsp" and "ms" in row), None)
    for row in rows:
        if dsp is not None and "ms" in row:
            row["over_dsp"] = row["ms"] / dsp
    return rows


def _on_more(runs: Runs, row: dict[str, Any], result: TrainResult) -> dict[str, Any]:
    """A row of "systems" as the schedule model has it on more GPUs (:func:`.crew.on_more_gpus`)."""
    run, made = crew.on_more_gpus(result)
    steps = -(-run.times.batches // crew.MODELLED_GPUS)
    kept = ("system", "model", "step", "executor", "cached_percent", "rows_per_batch", "picks_per_batch")
    return {
        "part": "systems, modelled", "gpus": crew.MODELLED_GPUS,
        **{name: row[name] for name in kept if name in row},
        "ms": 1e3 * made.epoch_s / steps, "steps": steps, "epoch_s": made.epoch_s / runs.epoch_share,
        **{f"{stage}_ms": 1e3 * run.times.mean(stage) for stage in ("sample", "extract", "train")},
    }  # fmt: skip


def _system(
    runs: Runs, world: int, system: str, model: str, step: str
) -> tuple[dict[str, Any], Callable[[], TrainResult]]:
    """The row of a system in "systems", and its run."""
    options: dict[str, Any] = {"cache_ratio": None if system in ("pyg-cpu", "dgl-uva") else SHARED_CACHE}
    if system in FROM_PARTS:
        options["parts"] = runs.parts(world)
    if system == "lab":
        options["reorder"] = "none"
    row = {
        "part": "systems", "system": system, "model": model, "gpus": world,
        "step": "captured" if system == "lab" and crew.on_gpu() else step,
    }  # fmt: skip
    return row, functools.partial(
        runs.run, system, world, model=model, **options, **(STEPS_AS[step] if system != "lab" else {})
    )


PARTS: tuple[Callable[[Runs], list[dict[str, Any]]], ...] = (
    _overlap, _scaling, _handover, _swap, _workers, _merged, _trace, _systems, _systems_on_fewer,
)  # fmt: skip
