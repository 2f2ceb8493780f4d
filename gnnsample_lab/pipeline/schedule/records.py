"""Recorded runs as inputs of the schedule model, and how far the model is from them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab import checks
from gnnsample_lab.files import read_json, reading
from gnnsample_lab.resources import resource_path

from .simulate import EXECUTORS, simulate
from .times import Costs, StageTimes, stage_times

SYSTEM_EXECUTORS = {
    "dgl": "thread",
    "pyg-cpu": "thread",
    "gnnadvisor-style": "thread",
    "gnnadvisor": "thread",  # as records of before name it
    "tsota": "serial",
    "gnnlab": "serial",
    "fastgl": "serial",
    "lab": "streams",
    "pgsampler": "thread",
    "nextdoor": "serial",
    "dgl-uva": "serial",
    "quiver": "serial",
    "dsp-seq": "serial",
    "dsp": "overlapped",
}
"""Executor of a system in ``lab.systems()``, for records that name the system alone."""
_WORKERS = {"pyg-cpu": 4}
"""Samplers, and loaders, of overlapped runs whose rows do not say."""
OPTIONS = tuple(p for p in inspect.signature(simulate).parameters if p not in ("times", "executor", "gpus"))
"""Arguments of ``simulate`` that a recorded run may bring."""
_AROUND = {stage: stage.replace(" ", "_") for stage in ("put", "get", "load topology", "load cache")}
"""Recorded stages that are :class:`Costs` of the model: ``put_s`` and so on."""
_OF_EXECUTOR = {
    "factored": ("samplers", "switching", "staleness", "pipelined", "capacity"),
    "batch-mode": ("staleness", "pipelined"),  # AGL's
    "overlapped": ("workers", "capacity"),
}
"""Options of ``simulate`` that a run's settings, or a row, may bring."""
_NEEDED = ("sample_ms", "train_ms", "epoch_s", "steps_of_an_epoch")


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A measured epoch with its stage times.

    Attributes:
        name: of the run, for tables and figures.
        executor: as ``simulate`` takes it; None where the record does not say.
        times: stage times, means over the epoch.
        epoch_s: measured seconds of the epoch.
        origin: where it was measured.
        gpus: number of GPUs.
        options: further arguments of ``simulate``.
    """

    name: str
    executor: str | None
    times: StageTimes
    epoch_s: float
    origin: str
    gpus: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)


def times_of(result: Any, *, batches: int | None = None) -> StageTimes:
    """Stage times of a training run: means of its fastest epoch, for ``simulate``.

    Stages that overlapped in the run were timed while they slowed each other down.

    Args:
        result: what ``lab.train`` returns.
        batches: mini-batches of the modelled epoch; None: as many as the run's epoch has.

    Raises:
        TypeError: no such result. ValueError: ``batches`` is not positive, or the run has no mini-batch.
    """
    epoch = getattr(result, "steady", None) if getattr(result, "epochs", None) else None
    if epoch is None or not hasattr(epoch, "sample_us"):
        raise TypeError(f"result must be a training run with an epoch (got {checks.shown(result)})")
    if epoch.num_batches < 1:
        raise ValueError(f"result must have trained on mini-batches (got {epoch.num_batches})")
    tasks = getattr(epoch, "tasks", 0) or epoch.num_batches  # of several ranks: slices
    count = 1e6 * tasks
    return stage_times(
        (epoch.sample_us + epoch.reorder_us) / count,
        epoch.extract_us / count,
        epoch.train_us / count,
        batches=tasks if batches is None else batches,
        source=f"{result.system}, {result.model}, {result.graph}; {result.origin}",
    )


def run_of(result: Any) -> RecordedRun:
    """A training run as the model is fed with it: stage times and hand-overs of its fastest epoch, and its options.

    ``simulate(run.times, run.executor, gpus=run.gpus, **run.options)`` is the model's version of that epoch, and
    ``model_error([run])`` says how far it is off. Where the run kept the times of every mini-batch, so does this, else
    their means. Training that waits for other ranks' gradients was timed with that wait.

    Args:
        result: what ``lab.train`` returns.

    Raises:
        TypeError, ValueError: as ``times_of``.
    """
    means, epoch = times_of(result), result.steady
    executor, options = modelled_as(result.settings)
    spent = _spent(epoch.events)
    if around := _around_s(spent):
        options["costs"] = Costs(**around)
    return RecordedRun(
        name=f"{result.system}, {result.model}, {result.graph}",
        executor=executor,
        times=_by_batch(spent, means, by_rank=result.settings["executor"] != "factored") or means,
        epoch_s=epoch.total_us / 1e6,
        origin=result.origin,
        gpus=result.ranks,
        options=options,
    )


def modelled_as(settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Executor and options of ``simulate`` for a run of these settings (``TrainResult.settings``)."""
    executor = settings["executor"]
    if settings.get("swap"):  # the topology makes room for the cache
        executor = "batch-mode"
    return executor, {name: settings[name] for name in _OF_EXECUTOR.get(executor, ()) if name in settings}


def around_ms(events: Sequence[Any]) -> dict[str, float]:
    """Mean milliseconds of what an epoch's events name beside its stages: ``put_ms`` and so on, as a row has them."""
    return {f"{name[:-1]}ms": 1e3 * s for name, s in _around_s(_spent(events)).items()}


def _spent(events: Sequence[Any]) -> dict[str, dict[tuple[int, int], float]]:
    """Seconds by stage, and by rank and mini-batch."""
    spent: dict[str, dict[tuple[int, int], float]] = {}
    for e in events:
        of_stage, key = spent.setdefault(e.stage, {}), (e.rank, e.batch)
        # A window that is started early has two parts.
        of_stage[key] = of_stage.get(key, 0.0) + (e.end_us - e.start_us) / 1e6
    return spent


def _around_s(spent: Mapping[str, Mapping[Any, float]]) -> dict[str, Any]:
    """Arguments of :class:`Costs`: means of what was timed beside the stages."""
    return {
        f"{name}_s": float(np.mean([*spent[stage].values()]))
        for stage, name in _AROUND.items()
        if stage in spent
    }


def _by_batch(
    spent: Mapping[str, Mapping[tuple[int, int], float]], means: StageTimes, by_rank: bool
) -> StageTimes | None:
    """The times of every mini-batch in the order of their samples, or None where some were not timed by themselves."""
    if set(spent) - set(_AROUND) != {"sample", "extract", "train"}:
        return None
    # A slice of a rank is a mini-batch of its own; else who samples a mini-batch is not who trains on it.
    keys = [(batch, rank if by_rank else 0) for rank, batch in spent["sample"]]
    columns = [
        {(batch, rank if by_rank else 0): s for (rank, batch), s in spent[stage].items()}
        for stage in ("sample", "extract", "train")
    ]
    if len(keys) != means.batches or any(set(column) != set(keys) for column in columns):
        return None
    sample_s, extract_s, train_s = ([column[key] for key in sorted(keys)] for column in columns)
    return stage_times(sample_s, extract_s, train_s, source=means.source)


def recorded_runs(folder: Path | str | None = None) -> list[RecordedRun]:
    """Epochs that benchmark records hold with their stage times.

    Reordering counts as sampling; a suite without extraction has none. Rows of several GPUs name ``gpus`` and
    ``batches``, the mini-batches of all of them together, and may name ``executor``, its options (``samplers``,
    ``switching``, ``staleness``, ``pipelined``, ``capacity``, ``workers``) and what surrounds the stages (``put_ms``,
    ``get_ms``, ``load_topology_ms``, ``load_cache_ms``). Where fewer ``steps`` ran than an epoch has, the run is those:
    a pipeline fills up and runs empty in them, which the seconds of a whole epoch, multiplied, still hold.

    Args:
        folder: with benchmark records; None: ``data/measured``, which is shipped.

    Raises:
        TypeError: no path. FileNotFoundError: no such folder. CorruptDataError: a file in it is damaged.
    """
    where = resource_path("data/measured") if folder is None else checks.path("folder", folder)
    if not where.is_dir():
        raise FileNotFoundError(f"folder {where} does not exist")
    found = []
    for path in sorted(where.glob("*.json")):
        record = read_json(path, object)
        if not isinstance(record, dict) or record.get("origin") != "measured":
            continue
        with reading(path, "a benchmark record"):
            rows = [row for row in record.get("rows", ()) if all(name in row for name in _NEEDED)]
            found += [_run(record, row) for row in rows]
    return found


def _run(record: Mapping[str, Any], row: Mapping[str, Any]) -> RecordedRun:
    suite, system = record["suite"], row.get("system") or row.get("sampler", "")
    gpu = record["environment"].get("gpu") or {}
    parts = [system, row.get("model") or row.get("method", ""), row["graph"]]
    name = ", ".join(str(part) for part in parts if part)
    # Suites of samplers train one mini-batch after the other.
    executor = row.get("executor") or SYSTEM_EXECUTORS.get(system, "serial" if "sampler" in row else None)
    whole = row["steps_of_an_epoch"]
    ran = row.get("batches", min(row.get("steps", whole), whole))
    share = 1.0 if "batches" in row else ran / whole
    origin = f"measured on {gpu.get('name') or record['environment'].get('cpu', 'a CPU')}"
    times = stage_times(
        (row["sample_ms"] + row.get("reorder_ms", 0.0)) / 1e3,
        row.get("extract_ms", 0.0) / 1e3,
        row["train_ms"] / 1e3,
        batches=ran,
        source=f"{suite}: {name}; {origin}",
    )
    options: dict[str, Any] = {key: row[key] for key in _OF_EXECUTOR.get(executor or "", ()) if key in row}
    if executor == "overlapped":
        options.setdefault("workers", _WORKERS.get(system, 1))
    if around := {f"{name}_s": row[f"{name}_ms"] / 1e3 for name in _AROUND.values() if f"{name}_ms" in row}:
        options["costs"] = Costs(**around)
    return RecordedRun(
        name, executor, times, share * float(row["epoch_s"]), origin, row.get("gpus", 1), options
    )


@dataclass(frozen=True)
class Compared:
    """A run beside what the model says: ``error`` is modelled over measured, less 1."""

    name: str
    executor: str
    gpus: int
    modelled_s: float
    measured_s: float
    origin: str

    @property
    def error(self) -> float:
        return self.modelled_s / self.measured_s - 1


@dataclass(frozen=True)
class ModelError:
    """How far modelled epoch times are from recorded ones.

    Attributes:
        rows: one a run.
        left_out: runs whose executor is not known.
    """

    rows: tuple[Compared, ...]
    left_out: int

    @property
    def mean(self) -> float:
        """Mean of the errors' absolute values."""
        return float(np.mean([abs(row.error) for row in self.rows]))

    @property
    def bias(self) -> float:
        """Median error: below 0 where the model is too fast."""
        return float(np.median([row.error for row in self.rows]))

    @property
    def worst(self) -> Compared:
        return max(self.rows, key=lambda row: abs(row.error))

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row a run."""
        import pandas as pd

        names = ("name", "executor", "gpus", "modelled_s", "measured_s", "error", "origin")
        return pd.DataFrame([[getattr(row, n) for n in names] for row in self.rows], columns=list(names))

    def __str__(self) -> str:
        worst = self.worst
        return (
            f"modelled epochs of {len(self.rows)} runs are off by {self.mean:.1%} on average "
            f"(median {self.bias:+.1%}, worst {worst.error:+.1%}: {worst.executor}, {worst.name})"
        )


def model_error(runs: Sequence[Any], *, costs: Costs | None = None) -> ModelError:
    """Modelled epoch times beside recorded ones.

    Args:
        runs: :class:`RecordedRun`, or mappings with ``"executor"``, ``"times"``, ``"epoch_s"`` and, if need be,
            ``"name"``, ``"origin"``, ``"gpus"`` and ``"options"``. Runs whose executor is None are left out
            and counted.
        costs: of all runs that bring none in their options; None: nothing.

    Raises:
        TypeError, ValueError: no runs, other things than runs, or an executor that the model does not know.
    """
    found, left_out = [], 0
    for number, given in enumerate(checks.items("runs", runs, "a list of recorded runs")):
        run = _as_run(f"runs[{number}]", given)
        if run.executor is None:
            left_out += 1
            continue
        checks.choice(f"executor of runs[{number}]", run.executor, tuple(EXECUTORS))
        options = {"costs": costs, **run.options}
        modelled = simulate(run.times, run.executor, gpus=run.gpus, **options).epoch_s
        found.append(Compared(run.name, run.executor, run.gpus, modelled, run.epoch_s, run.origin))
    if not found:
        raise ValueError(f"runs must hold at least one run whose executor is known (got {left_out} without)")
    return ModelError(tuple(found), left_out)


def _as_run(name: str, given: Any) -> RecordedRun:
    if isinstance(given, Mapping):
        for key in ("executor", "times", "epoch_s"):
            if key not in given:
                raise ValueError(f"{name} must have {key!r} (got {checks.shown(given)})")
        known = {"name", "executor", "times", "epoch_s", "origin", "gpus", "options"}
        if set(given) - known:
            raise ValueError(
                f"{name} must have no other keys than {sorted(known)} (got {sorted(set(given) - known)})"
            )
        given = RecordedRun(**{"name": name, "origin": "measured", **given})
    run = checks.instance(name, given, RecordedRun, "a recorded run or a mapping")
    checks.instance(f"times of {name}", run.times, StageTimes, "stage times (see stage_times)")
    checks.real(f"epoch_s of {name}", run.epoch_s, above=0)
    options = checks.instance(f"options of {name}", run.options, Mapping, "a mapping")
    for option in options:
        checks.choice(f"an option of {name}", option, OPTIONS)
    checks.whole(f"gpus of {name}", run.gpus, 1)
    return run


def fit_host_share(runs: Sequence[Any], *, steps: int = 100) -> float:
    """The share of the host's link that one extraction takes with which the model is nearest to recorded runs.

    One number for all runs: least mean square of the logarithm of modelled over measured, on a grid.

    Args:
        runs: as for ``model_error``. steps: steps of the grid from 0 to 1.

    Raises:
        TypeError, ValueError: as ``model_error``, a grid without steps, or a run whose modelled epoch takes no time.
    """
    steps = checks.whole("steps", steps, 1, 10_000)

    def distance(share: float) -> float:
        rows = model_error(runs, costs=Costs(host_share=share)).rows
        for row in rows:
            if not row.modelled_s > 0:  # it has no logarithm
                raise ValueError(
                    f"runs must have stages that take time: an epoch of 0 s cannot be fitted (got {row.name!r})"
                )
        return float(np.mean([math.log(row.modelled_s / row.measured_s) ** 2 for row in rows]))

    return min((step / steps for step in range(steps + 1)), key=distance)
