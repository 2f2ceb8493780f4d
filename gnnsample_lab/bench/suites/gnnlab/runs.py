"""Training runs of GNNLab's evaluation on the GPUs that there are, and what the schedule model says of each.

A :class:`Task` is one system on one graph, model and number of GPUs. It is measured once a session where the GPUs
allow it; the model is fed with stage times of one GPU, one stage after the other, so that it predicts every run on
several GPUs. What no GPU was there for is a row of the model alone, and says "modelled".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.record import scaled
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import Unavailable, VerificationError, kept_to
from gnnsample_lab.bench.suites.dsp import crew
from gnnsample_lab.bench.suites.fastgl.training import require_torch
from gnnsample_lab.compute.models import make_model
from gnnsample_lab.pipeline import exchange
from gnnsample_lab.pipeline.records import MeasuredTimeline, TrainResult
from gnnsample_lab.pipeline.schedule import records as schedule_records
from gnnsample_lab.pipeline.schedule.allocation import num_samplers, trainer_time
from gnnsample_lab.pipeline.schedule.simulate import simulate
from gnnsample_lab.pipeline.schedule.timeline import Timeline
from gnnsample_lab.pipeline.schedule.times import Costs, StageTimes, stage_times
from gnnsample_lab.systems.factored import groups_of
from gnnsample_lab.systems.features import topology_bytes
from gnnsample_lab.systems.table import System, find
from gnnsample_lab.systems.train import train

from . import papers
from .extraction import MODELS

STEPS = 48
"""Mini-batches of an epoch: the same share of an epoch for every graph, divisible among 2, 3, 4, 6 and 8 GPUs."""
HIDDEN = 256
EPOCHS = 6
"""Of a run; the first warms up and the median of the others counts."""
GPUS = 8
"""Of GNNLab's machine: as many as the model goes up to."""
SYSTEMS = ("pyg-cpu", "dgl", "tsota", "gnnlab")
CAPACITY = kept_to(
    papers.CAPACITY_OF,
    "as large a share of the features as in GNNLab's table 5 (of a graph that it lacks: as papers100M's), "
    "smaller where the topology lies beside them",
    budget="of topology and cache alone, by which caches are sized; what sampling and training take besides is not "
    "limited, so that it is no peak of memory",
)
SETTING = (
    f"an epoch has {STEPS} mini-batches of batch_size seeds, on any number of GPUs: a GPU trains on one at a time; "
    "epoch_s: the median epoch after the first, with the 10th and 90th percentile of all after the first; stages: "
    "seconds of all mini-batches of that epoch; executor: of a system that samples in a thread that, stage by stage, "
    f"or a worker a stage ({common.CPU_WORKERS} of a CPU's sampler), whichever is fastest on one GPU"
)
MODELLED = (
    "model_s: the schedule model, fed with stage times of one GPU, one stage after the other, with hand-overs and the "
    "exchange of gradients as each takes alone, without contention; rows and picks of a modelled row: of the run that "
    "the model is fed with; "
    "error_percent: modelled over measured, less 1"
)


@dataclass(frozen=True)
class Task:
    """One training run.

    Attributes:
        graph, model, system: names; ``model`` as in GNNLab's tables.
        gpus: of the run. samplers: of them, those that sample (``gnnlab`` on several GPUs); None: by the rule.
        switching, staleness: as ``lab.train`` takes them.
        policy: of the cache, in place of the system's.
        alone: one stage after the other, on one GPU, with a trainer's cache: what the model is fed with.
        hidden: width of the model; None: :data:`HIDDEN`.
    """

    graph: str
    model: str
    system: str
    gpus: int = 1
    samplers: int | None = None
    switching: bool = False
    staleness: int | None = 0
    policy: str | None = None
    alone: bool = False
    hidden: int | None = None

    @property
    def width(self) -> int:
        return self.hidden or HIDDEN

    @property
    def is_factored(self) -> bool:
        """Whether samplers and trainers are apart, on one GPU in time."""
        return self.system == "gnnlab" and not self.alone

    @property
    def composed(self) -> System:
        """The system, with the policy asked for."""
        found = find(self.system)
        return found if self.policy is None else replace(found, cache=self.policy)

    @property
    def executor(self) -> str:
        """The system's own; :func:`executor` knows a faster one of some."""
        if self.is_factored:
            return "factored"
        # On a CPU nothing overlaps in these systems.
        return "serial" if self.alone or common.device() == "cpu" else find(self.system).executor


@dataclass(frozen=True)
class Measured:
    """A run: its row, and the median epoch as the model takes it and as it went."""

    row: dict[str, Any]
    run: schedule_records.RecordedRun
    timeline: MeasuredTimeline


def graphs(session: Session) -> tuple[str, ...]:
    """GNNLab's four graphs, those with large features scaled down: a run's set-up reads all features."""
    quick, full = (
        ("papers100M-like@0.02",),
        ("papers100M-like@0.03", "twitter-like@0.03", "products-like", "uk-like@0.03"),
    )
    return common.names(session, *(quick if session.quick else full), cpu=("arxiv-like@0.1",))


def models(session: Session, name: str) -> tuple[str, ...]:
    """GNNLab's three models on the first graph of a full run; GCN elsewhere."""
    return ("gcn",) if session.quick or name != graphs(session)[0] else ("gcn", "sage", "pinsage")


def loaded(session: Session, name: str) -> Any:
    """The graph with features in host memory.

    Raises:
        Unavailable: it has none, or nothing to train on.
    """
    require_torch(session)
    found = common.graph(session, name, features=True)
    if found.feat is None or found.label is None or not len(found.splits.get("train", ())):
        raise Unavailable(f"{name} has no features, labels or training split to train on")
    return found


def placed(session: Session, name: str) -> Any:
    """The graph with its topology on this process's device, its features in host memory."""
    found = loaded(session, name)
    return session.kept(("placed", name), lambda: found.to(common.device(), features=False))


def batch_size(session: Session, name: str) -> int:
    """Seeds of a mini-batch: :data:`STEPS` of them are an epoch."""
    return max(1, -(-len(common.train_seeds(loaded(session, name))) // STEPS))


def ratios(session: Session, name: str, model: str) -> tuple[float, float]:
    """Shares of the vertices that a cache holds under one budget: beside the topology, and without it.

    Those of GNNLab's table 5 for a graph that it has, else those of papers100M: what a GPU of 16 GB left there.
    """
    base = scaled(name)[0]
    known = {(r["graph"], r["model"], r["system"]): r["cache_percent"] / 100 for r in papers.TABLE5}
    graph = base if (base, model, "gnnlab") in known else "papers100M-like"
    apart = known[graph, model, "gnnlab"]
    return min(known.get((graph, model, "tsota"), 0.0), apart), apart


def budget_gb(session: Session, name: str, model: str) -> float:
    """10^9 bytes of a GPU for topology and cache that :func:`ratios` are what is left of."""
    found = loaded(session, name)
    shared, apart = (ratio * found.feat.nbytes for ratio in ratios(session, name, model))
    return max(topology_bytes(found) + shared, apart) / 1e9


def cache_ratio(session: Session, task: Task) -> float | None:
    """Share of the vertices that the task's cache holds under the budget of its graph; None without a cache."""
    if task.composed.cache is None:
        return None
    shared, apart = ratios(session, task.graph, task.model)
    # Where all GPUs sample, the topology stays beside the cache; a run that feeds the model extracts as a trainer does.
    trains_apart = task.system == "gnnlab" and (task.alone or 1 < task.gpus != task.samplers)
    return apart if trains_apart else shared


def executor(session: Session, task: Task) -> str:
    """As the run and the model take it: of a system that samples in a thread, the fastest way on one GPU."""
    if task.executor != "thread":
        return task.executor
    one = replace(task, gpus=1)

    def fastest() -> str:
        times = {how: _run(session, one, how).row["epoch_s"] for how in common.executors(task.composed)}
        return min(times, key=lambda how: float(times[how]))

    return session.kept(("executor of GNNLab's", one), fastest)  # type: ignore[no-any-return]


def measured(session: Session, task: Task) -> Measured:
    """The run, measured once a session; see :data:`SETTING`."""
    return _run(session, task, executor(session, task))


def _run(session: Session, task: Task, how: str) -> Measured:
    """The run by that executor, measured once a session."""

    def make() -> Measured:
        found, size = loaded(session, task.graph), batch_size(session, task.graph)
        options: dict[str, Any] = {
            "epochs": EPOCHS, "batch_size": size, "fanouts": MODELS[task.model][1], "hidden": task.width,
            "cache_ratio": cache_ratio(session, task), "executor": how, "workers": common.workers(task.composed, how),
            "evaluate": False, "progress": False,
        }  # fmt: skip
        if task.gpus > 1:
            options["ranks"] = crew.ranks_of(session, task.gpus)
            if task.is_factored:
                more = {"samplers": task.samplers, "switching": task.switching, "staleness": task.staleness}
                options |= more
            else:
                options["batch_size"] = size * task.gpus  # each GPU's slice is a mini-batch
        else:
            found, options["device"] = placed(session, task.graph), common.device()
        result = trained(found, task.model, task.composed, **options)
        return _finished(session, task, result)

    return session.kept(("run of GNNLab", task, how), make)  # type: ignore[no-any-return]


def trained(graph: Any, model: str, system: str | System, **options: Any) -> TrainResult:
    """``lab.train``, on a CPU with one thread, as each rank has."""
    with one_thread():
        return train(graph, model, system, **options)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """On a CPU, work of this process on one thread, so that it takes the time that it takes a rank."""
    if common.device() != "cpu":
        yield
        return
    import numba
    import torch

    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


def _finished(session: Session, task: Task, result: TrainResult) -> Measured:
    one = common.median_epoch(result)
    epoch, run = one.steady, schedule_records.run_of(one)
    copied = sum(e.end_us - e.start_us for e in epoch.events if e.stage == "put") / 1e6
    fetched = sum(e.end_us - e.start_us for e in epoch.events if e.stage == "get") / 1e6
    row = {
        **described(task), "origin": "measured", "executor": result.settings["executor"],
        "batch_size": batch_size(session, task.graph),
        "steps": epoch.num_batches, "tasks": epoch.tasks, **common.work_per_batch(epoch, max(1, epoch.tasks)),
        "split": split(result.settings.get("samplers"), task.gpus) if task.is_factored else None,
        "samplers": result.settings.get("samplers"),
        **common.epoch_seconds(result),
        "sample_s": (epoch.sample_us + epoch.reorder_us) / 1e6, "copy_s": copied or None, "get_s": fetched or None,
        "extract_s": epoch.extract_us / 1e6, "train_s": epoch.train_us / 1e6,
        "cache_percent": 100 * result.cache_ratio, "hit_percent": 100 * epoch.hit_rate,
        "mb_moved": epoch.bytes_moved / 1e6,
        # Of the rank that holds most.
        "held_gb": max((m.topology + m.cache for m in result.memory), default=0) / 1e9 or None,
        # This process keeps the graphs of other suites; ranks hold what the run needs.
        "peak_gb": epoch.peak_bytes / 1e9 if epoch.peak_bytes and task.gpus > 1 else None,
        "setup_s": result.setup_us / 1e6, "notes": list(result.notes),
    }  # fmt: skip
    switched = sum(e.stage == "train" and e.worker == "standby" for e in epoch.events)
    if task.switching:
        row["switched"] = switched
    session.say(f"{what(task)}: {row['epoch_s']:.3f} s an epoch")
    return Measured(row, run, one.timeline())


def described(task: Task) -> dict[str, Any]:
    """What identifies a row."""
    return {
        "graph": task.graph, "model": task.model, "system": task.system, "gpus": task.gpus,
        "design": "factored" if task.is_factored else "time sharing",
        "policy": task.composed.cache, "switching": task.switching if task.is_factored else None,
    }  # fmt: skip


def split(samplers: int | None, gpus: int) -> str | None:
    """``"2S6T"``; of a single GPU, which does first the one and then the other, ``"1"``."""
    if gpus == 1:
        return "1"
    return None if samplers is None else f"{samplers}S{gpus - samplers}T"


def what(task: Task) -> str:
    """For lines of progress."""
    how = " alone" if task.alone else f", {task.policy}" if task.policy else ""
    place = "GPU" if common.device() == "cuda" else "CPU rank"
    where = f"{task.gpus} {place}{'s' * (task.gpus > 1)}"
    return f"{task.graph}, {task.model}, {task.system}{how}, {where}{', switching' * task.switching}"


# ---- the model ------------------------------------------------------------------------------------------------------


def stage_inputs(session: Session, task: Task) -> tuple[StageTimes, Costs]:
    """Stage times of ``task``'s system and what surrounds them, all measured in this session.

    Stages: on one GPU, one after the other; with the factored design extraction with a trainer's cache. Extraction of
    standby trainers, and what handing over takes: from the run on one GPU that stores an epoch. Exchange of gradients:
    by itself, on the ranks that there are.
    """
    alone = fed_with(session, task)
    update_s = exchange_s(session, task)
    if task.system != "gnnlab":
        return alone.run.times, Costs(update_s=update_s)
    stored = measured(
        session, replace(task, gpus=1, samplers=None, switching=False, staleness=0, policy=None)
    )
    times = replace(
        alone.run.times,
        standby_extract_s=np.full(alone.run.times.batches, stored.run.times.mean("extract")),
    )
    return times, replace(stored.run.options.get("costs", Costs()), update_s=update_s)


def fed_with(session: Session, task: Task) -> Measured:
    """The run on one GPU, one stage after the other, whose stage times the model of ``task`` is fed with."""
    return measured(session, replace(task, gpus=1, samplers=None, switching=False, staleness=0, alone=True))


def work_of(row: dict[str, Any]) -> dict[str, Any]:
    """Rows and picks a mini-batch of a measured row."""
    return {name: row[name] for name in ("rows_per_batch", "picks_per_batch")}


def exchange_s(session: Session, task: Task) -> float:
    """Seconds in which ranks add up gradients and tell each other what they trained on, with nothing else to do.

    Among as many trainers as the task has, or as there are GPUs; 0 on one GPU.
    """
    if task.gpus == 1:
        return 0.0
    world = min((n for n in crew.worlds() if n >= task.gpus), default=crew.most_ranks())
    if world == 1:
        return 0.0
    trainers = task.gpus
    if task.is_factored:  # where all sample, all of them train afterwards
        trainers = task.gpus - (task.samplers or 1) or task.gpus
    trainers = min(trainers, world)
    found = loaded(session, task.graph)
    model = make_model(
        task.model, found.num_features, task.width, found.num_classes, num_layers=len(MODELS[task.model][1])
    )  # fmt: skip
    size = sum(p.numel() for p in model.parameters())

    def make() -> float:
        times = crew.ranks_of(session, world).run(exchange_on_rank, size, trainers, task.is_factored)
        return max(s for s in times if s is not None)

    return session.kept(("exchange", world, trainers, size, task.is_factored), make)  # type: ignore[no-any-return]


def exchange_on_rank(rank: Any, size: int, trainers: int, by_rounds: bool) -> float | None:
    """Median seconds of an exchange of ``size`` gradients among the first ``trainers`` ranks; None on the others."""
    group, control = groups_of(rank, tuple(range(trainers)))
    if rank.index >= trainers:
        return None
    return exchange.exchange_s(rank.device, size, group, control, rank.index, trainers, by_rounds=by_rounds)


def modelled(session: Session, task: Task, tasks: int | None = None) -> Timeline:
    """The epoch of ``task`` as the schedule model has it.

    Args:
        tasks: mini-batches of the epoch; None: :data:`STEPS`, or fewer where there are fewer seeds.
    """
    times, costs = stage_inputs(session, task)
    if tasks is not None and tasks != times.batches:
        times = stage_times(
            times.sample_s, times.extract_s, times.train_s, batches=tasks,
            standby_extract_s=times.standby_extract_s, source=times.source,
        )  # fmt: skip
    options: dict[str, Any] = {"costs": costs}
    if task.is_factored:
        options["samplers"] = task.samplers
        if task.gpus > 1:
            options["switching"] = task.switching
    how = executor(session, task)
    if how == "overlapped":
        options["workers"] = common.workers(task.composed, how)
    return simulate(times, how, gpus=task.gpus, staleness=task.staleness, **options)


def resolved(session: Session, task: Task) -> Task:
    """The task with a number of samplers: by the rule, from the stage times that the model is fed with."""
    if not task.is_factored or task.gpus == 1 or task.samplers is not None:
        return task
    times, costs = stage_inputs(session, task)
    trainer_s = trainer_time(times.mean("extract") + costs.get_s, times.mean("train") + costs.update_s)
    sample_s = times.mean("sample") + costs.put_s
    samplers = num_samplers(task.gpus, sample_s, trainer_s, keep_trainer=not task.switching)
    return replace(task, samplers=samplers)


def row(session: Session, task: Task) -> dict[str, Any]:
    """What was measured, with the model's version and its error; the model's alone where it could not be measured."""
    task = resolved(session, task)
    if task.gpus not in crew.worlds():
        run = modelled(session, task)
        busy = {stage: float(seconds.sum()) for stage, seconds in run.busy_s.items()}
        session.say(f"{what(task)}: {run.epoch_s:.3f} s an epoch, modelled")
        return {
            **described(task), "origin": "modelled", "batch_size": batch_size(session, task.graph),
            **work_of(fed_with(session, task).row),
            "split": split(run.settings["samplers"], task.gpus) if task.is_factored else None,
            "samplers": run.settings["samplers"], "epoch_s": run.epoch_s,
            "sample_s": busy.get("sample"), "copy_s": busy.get("put"), "get_s": busy.get("get"),
            "extract_s": busy.get("extract"), "train_s": busy.get("train"),
            **({"switched": run.switched} if task.switching else {}),
        }  # fmt: skip
    found = measured(session, task).row
    return found | beside_model(session, task, found["epoch_s"], found["tasks"])


def beside_model(session: Session, task: Task, epoch_s: float, tasks: int) -> dict[str, float]:
    """The model's version of a measured epoch of so many mini-batches, and its error."""
    model_s = modelled(session, task, tasks).epoch_s
    return {"model_s": model_s, "error_percent": 100 * (model_s / epoch_s - 1)}


def reduced_notes(session: Session, rows: Sequence[dict[str, Any]]) -> list[str]:
    """What the paper has beside these rows, where some of it was left out."""
    if session.chosen or common.device() == "cpu":
        return []
    if session.quick:
        return ["Quick: one graph of the paper's four, and its models GCN or GraphSAGE alone."]
    ran = models_by_graph(rows)
    if len({model for models in ran.values() for model in models}) < 2:
        return []
    few = [f"{name} with GCN alone" for name, models in ran.items() if models == ["gcn"]]
    return [f"The paper has three models on every graph; here {', '.join(few)}."] if few else []


def models_by_graph(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """The models that ran, or were modelled, on each graph."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.get("model") in MODELS and row["model"] not in found.setdefault(row["graph"], []):
            found[row["graph"]].append(row["model"])
    return found


def error_notes(rows: Sequence[dict[str, Any]]) -> list[str]:
    """How far the model is off over all measured rows, for the line below a table."""
    errors = [row["error_percent"] for row in rows if row.get("error_percent") is not None]
    if not errors:
        return []
    worst = max(errors, key=abs)
    return [
        f"The model is off by {np.mean(np.abs(errors)):.1f} % on average over {len(errors)} measured rows "
        f"(median {np.median(errors):+.1f} %, worst {worst:+.1f} %)."
    ]


def against(rows: Sequence[dict[str, Any]], base: str = "dgl") -> None:
    """Adds ``speedup``: the epoch of ``base`` over each row's, at the same graph, model and number of GPUs."""
    times = {
        (r["graph"], r["model"], r["gpus"]): r["epoch_s"] for r in rows if r["system"] == base and r["epoch_s"]
    }  # fmt: skip
    for one in rows:
        before = times.get((one["graph"], one["model"], one["gpus"]))
        one["speedup"] = before / one["epoch_s"] if before and one["epoch_s"] else None


# ---- verification and the record ------------------------------------------------------------------------------------


def verify(session: Session) -> dict[str, Any]:
    """Do several ranks train as one device does? Losses of an epoch, time shared and factored, dropout off.

    Raises:
        VerificationError: they differ.
    """

    def make() -> dict[str, Any]:
        require_torch(session)
        small = common.graph(session, "arxiv-like@0.02", features=True)
        options: dict[str, Any] = {
            "epochs": 1, "batch_size": 256, "fanouts": (4, 3), "hidden": 16, "evaluate": False, "progress": False,
            "cache_ratio": 0.2,
        }  # fmt: skip
        expected = trained(small, "gcn", "gnnlab", device=common.device(), executor="serial", **options)
        counted = 0
        ways: dict[str, dict[str, Any]] = {"the factored design on one device": {"executor": "factored"}}
        if 2 in crew.worlds():
            pool = crew.ranks_of(session, 2)
            ways["time sharing on two ranks"] = {"executor": "serial", "ranks": pool}
            ways["one sampler, one trainer"] = {
                "executor": "factored", "ranks": pool, "samplers": 1, "switching": False,
            }  # fmt: skip
        for name, more in ways.items():
            place: dict[str, Any] = {} if "ranks" in more else {"device": common.device()}
            found = trained(small, "gcn", "gnnlab", **options, **more, **place)
            same = found.batch_ids == expected.batch_ids
            if not same or not np.allclose(found.losses, expected.losses, rtol=2e-3, atol=1e-4):
                raise VerificationError(f"{name}: other losses than one device's; nothing is timed")
            counted += len(found.losses)
        return {"losses_equal_to_one_device": counted}

    return session.kept(("verified", "ranks"), make)  # type: ignore[no-any-return]


def record(
    session: Session,
    names: Sequence[str],
    rows: list[dict[str, Any]],
    notes: Sequence[str] = (),
    **settings: Any,
) -> dict[str, Any]:
    """The record of a suite of runs."""
    on_gpu = common.device() == "cuda"
    return {
        "settings": {
            "device": "cuda" if on_gpu else "CPU: no NVLink", "gpus": crew.most_ranks(), "steps": STEPS,
            "hidden": HIDDEN, "models": {model: MODELS[model] for model in ("gcn", "sage", "pinsage")},
            "models_by_graph": models_by_graph(rows), "what": SETTING, "model": MODELLED, **CAPACITY, **settings,
        },
        "verification": verify(session), "graphs": common.facts(session, names), "rows": rows,
        "notes": [*notes, *reduced_notes(session, rows), *error_notes(rows)],
    }  # fmt: skip
