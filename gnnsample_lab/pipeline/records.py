"""What training leaves behind: one record an epoch, one result a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from .schedule.timeline import Epoch, Event, QueueDepth


class StageEvent(NamedTuple):
    """A stage of one mini-batch: who ran it when.

    ``worker``: "worker" runs all stages; else "sampler", "loader", "trainer", "standby", numbered where a rank has
    several. ``batch``: its id, of several that were sampled together the first one's. Times: microseconds since the
    epoch began, on one clock for all ranks.
    """

    rank: int
    worker: str
    stage: str
    batch: int
    start_us: float
    end_us: float


@dataclass(frozen=True)
class EpochRecord:
    """One epoch of training, without its evaluation.

    Stage times are sums over the epoch's mini-batches, each stage timed on its own stream (on the CPU: by the
    clock). Stages that overlap therefore add up to more than ``total_us``, which is the wall time of the epoch.

    Attributes:
        sample_us: sampling and relabelling, marking of cached rows included.
        extract_us: features of the sampled vertices brought to the device, in one array a mini-batch.
        train_us: forward, loss, backward, optimizer.
        total_us: wall time from the first sample to the end of the last step.
        reorder_us: match degrees and the order of a window; 0 where nothing is reordered.
        bytes_moved: feature bytes that were moved from host to device.
        hit_rate: share of the rows looked up in the cache that were found there; nan without a cache.
        reused_rows: rows taken over from the mini-batch before (Match).
        rows: feature rows asked for.
        num_edges: sampled edges of all mini-batches.
        num_batches: training steps.
        peak_bytes: the most device memory that PyTorch's and CuPy's pools held up to the end of the epoch, the graph
            and the cache included; 0 on a CPU. Of several ranks: of the one that held most.
        tasks: mini-batches of all ranks together, a rank's slice of one counted by itself: stage times are sums over
            so many.
        events: stages of all ranks by their start, for a Gantt chart.
        queues: name -> ``(time_us, mini-batches that wait)``, whenever that changed.
        begin_s: when the epoch began, in seconds of the host's monotonic clock.
        number: of the epoch, from 0 on; a run that is resumed begins with a later one.
    """

    sample_us: float
    extract_us: float
    train_us: float
    total_us: float
    reorder_us: float = 0.0
    bytes_moved: int = 0
    hit_rate: float = float("nan")
    reused_rows: int = 0
    rows: int = 0
    num_edges: int = 0
    num_batches: int = 0
    peak_bytes: int = 0
    tasks: int = 0
    events: tuple[StageEvent, ...] = field(default=(), repr=False, compare=False)
    queues: Mapping[str, list[tuple[float, int]]] = field(default_factory=dict, repr=False, compare=False)
    begin_s: float = field(default=0.0, repr=False, compare=False)
    number: int = field(default=0, repr=False, compare=False)

    @property
    def numbers(self) -> dict[str, Any]:
        """The fields that are single numbers."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.compare}

    @property
    def stage_us(self) -> dict[str, float]:
        """The stages in the order in which a mini-batch passes them, for figures."""
        return {
            "sample": self.sample_us,
            "reorder": self.reorder_us,
            "extract": self.extract_us,
            "train": self.train_us,
        }


def merged(records: Sequence[EpochRecord]) -> EpochRecord:
    """One epoch of several ranks: sums of what they did, the time from the first begin to the last end."""
    begin_s = min(r.begin_s for r in records)
    shift_us = [(r.begin_s - begin_s) * 1e6 for r in records]
    asked = [r.rows - r.reused_rows for r in records]
    looked_up = sum(n for n, r in zip(asked, records, strict=True) if r.hit_rate == r.hit_rate)
    hits = sum(n * r.hit_rate for n, r in zip(asked, records, strict=True) if r.hit_rate == r.hit_rate)
    sums = {
        name: sum(getattr(r, name) for r in records)
        for name in (
            "sample_us", "extract_us", "train_us", "reorder_us", "bytes_moved", "reused_rows", "rows", "num_edges",
            "tasks",
        )
    }  # fmt: skip
    events = [
        e._replace(start_us=e.start_us + shift, end_us=e.end_us + shift)
        for shift, r in zip(shift_us, records, strict=True)
        for e in r.events
    ]
    queues = {
        name if len(records) == 1 or name.startswith("global") else f"{name} of rank {index}": [
            (us + shift, depth) for us, depth in depths
        ]
        for index, (shift, r) in enumerate(zip(shift_us, records, strict=True))
        for name, depths in r.queues.items()
    }
    return EpochRecord(
        **sums,
        total_us=max(shift + r.total_us for shift, r in zip(shift_us, records, strict=True)),
        hit_rate=hits / looked_up if looked_up else float("nan"),
        num_batches=max(r.num_batches for r in records),
        peak_bytes=max(r.peak_bytes for r in records),
        events=tuple(sorted(events, key=lambda e: e.start_us)),
        queues=queues,
        begin_s=begin_s,
        number=records[0].number,
    )


@dataclass(frozen=True)
class MeasuredTimeline(Epoch):
    """An epoch that ran, as the figures of the schedule model draw it."""

    origin: str


class RankMemory(NamedTuple):
    """What a rank's device holds, in bytes.

    ``role``: "all stages", "sampler" or "trainer". ``topology``: in-neighbour lists and what finds them. ``cache``:
    feature rows and where each is. ``cached``: share of the vertices whose rows this device holds. ``peak``: the most
    that the run held, topology and cache included; 0 on a CPU. By who held it when the run was over: ``cupy`` (CuPy's
    pool: topology, cache, samples), ``torch`` (the most of PyTorch's allocator: model, activations, rows of a
    mini-batch), ``peers`` (what other ranks read, outside pools). ``apart``: in use on the GPU and counted nowhere
    here: the CUDA context, kernels, NCCL, and other processes. ``given_back``: how often pools at the limit of
    ``budget_gb`` gave unused blocks back, and waited for the GPU; where that is as often as there are mini-batches, a
    smaller cache or a larger budget is quicker.
    """

    rank: int
    role: str
    topology: int
    cache: int
    cached: float
    peak: int
    cupy: int = 0
    torch: int = 0
    peers: int = 0
    apart: int = 0
    given_back: int = 0


@dataclass(frozen=True)
class TrainResult:
    """One training run, of one rank or of several together.

    Attributes:
        system: name in ``lab.systems()``.
        model: name of the model.
        graph: title of the graph; says so when it is synthetic.
        device: ``"cpu"`` or ``"cuda"``.
        origin: label for figures, "measured on <device>".
        losses: loss of every step, in the order in which the steps ran.
        batch_ids: batch id of every step; systems that reorder run the same ids in another order.
        accuracy: after every epoch, on ``accuracy_split``; empty without evaluation. Share of right classes, or micro
            F1 for multi-label data.
        epochs: one :class:`EpochRecord` each.
        setup_us: wall time before the first epoch: hotness, filling the cache, finding the memory left over.
        cache_ratio: share of the vertices whose features a device holds, of a partitioned cache all devices together; 0
            without a cache.
        memory: what each rank's device holds (:class:`RankMemory`).
        kernels: by rank, names of the kernels that its GPU ran in the last epoch and how often; empty unless asked for.
        gpu_busy: by rank, the share of the last epoch, while it was profiled, in which at least one kernel ran on its
            GPU; empty unless kernels were asked for.
        notes: where the run departs from the system's description (on a CPU, for example).
        settings: the arguments that the run depends on.
        network: the trained ``torch.nn.Module``.
        ranks: processes that trained together.
        update_sizes: mini-batches of each update, in the order of ``batch_ids``, where each trainer has its own; empty:
            an update each.
        resumed: the first so many of ``losses`` and ``batch_ids`` are those of the run that was resumed.
    """

    system: str
    model: str
    graph: str
    device: str
    origin: str
    losses: list[float]
    batch_ids: list[int]
    accuracy: list[float]
    accuracy_split: str
    epochs: list[EpochRecord]
    setup_us: float = 0.0
    cache_ratio: float = 0.0
    notes: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    network: Any = field(default=None, repr=False, compare=False)
    ranks: int = 1
    resumed: int = 0
    update_sizes: list[int] = field(default_factory=list, repr=False)
    memory: list[RankMemory] = field(default_factory=list, repr=False)
    kernels: list[dict[str, int]] = field(default_factory=list, repr=False)
    gpu_busy: list[float] = field(default_factory=list, repr=False)

    @property
    def steady(self) -> EpochRecord:
        """The fastest whole epoch: the first one compiles kernels, captures graphs and fills memory pools.

        Of the epoch in which a run was resumed only the rest is there; it counts where there is no other.
        """
        most = max(epoch.num_batches for epoch in self.epochs)
        return min((e for e in self.epochs if e.num_batches == most), key=lambda epoch: epoch.total_us)

    def row(self) -> dict[str, Any]:
        """The fastest epoch as a row of a benchmark record, as ``lab.schedule.recorded_runs`` reads it."""
        from .schedule.records import around_ms, modelled_as

        best = self.steady
        tasks = max(best.tasks or best.num_batches, 1)
        executor, options = modelled_as(self.settings)
        row = {
            "system": self.system, "model": self.model, "graph": self.graph, "executor": executor,
            "gpus": self.ranks, "batches": tasks, "steps_of_an_epoch": best.num_batches,
            "sample_ms": best.sample_us / 1e3 / tasks, "reorder_ms": best.reorder_us / 1e3 / tasks,
            "extract_ms": best.extract_us / 1e3 / tasks, "train_ms": best.train_us / 1e3 / tasks,
            "epoch_s": best.total_us / 1e6,
        }  # fmt: skip
        return row | options | around_ms(best.events)

    def timeline(self, epoch: int = -1) -> MeasuredTimeline:
        """Who did what when in an epoch, for ``gnnsample_lab.figures.schedule.schedule_gantt``.

        Args:
            epoch: index in :attr:`epochs`.
        """
        record = self.epochs[epoch]
        events = tuple(
            Event(e.rank, e.worker, e.stage, e.batch, e.start_us / 1e6, e.end_us / 1e6, -1)
            for e in record.events
        )
        queues = {}
        factored = self.settings["executor"] == "factored"
        for name, depths in record.queues.items():
            time_s = np.array([us / 1e6 for us, _ in depths])
            depth = np.array([d for _, d in depths], dtype=np.int64)
            # A trainer of the factored design prepares one mini-batch ahead, whatever the global queue holds.
            ahead = factored and not name.startswith("global")
            capacity = 1 if ahead else self.settings.get("capacity")
            queues[name] = QueueDepth(time_s, depth, capacity, int(depth.max()))
        samplers = self.settings.get("samplers", 0)
        roles = ["sampler"] * samplers + [("trainer" if samplers else "all stages")] * (self.ranks - samplers)
        end_s = max([record.total_us / 1e6, *(e.end_s for e in events)])
        return MeasuredTimeline(
            self.settings["executor"], self.ranks, tuple(roles), events, (), queues, end_s, self.origin
        )

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row an epoch: the record's fields, mean loss and accuracy.

        The mean is of the finite losses, nan without any: a mini-batch without a labelled seed has no loss.
        """
        import pandas as pd

        rows, at = [], self.resumed
        for number, epoch in enumerate(self.epochs):
            losses = [loss for loss in self.losses[at : at + epoch.num_batches] if math.isfinite(loss)]
            at += epoch.num_batches
            row = {"system": self.system, "model": self.model, "epoch": epoch.number, **epoch.numbers}
            row["loss"] = sum(losses) / len(losses) if losses else float("nan")
            row["accuracy"] = self.accuracy[number] if number < len(self.accuracy) else float("nan")
            rows.append(row)
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        if not self.epochs:  # what ``on_progress`` of ``lab.train`` gets in the first one
            steps = f"{len(self.losses)} step{'s' * (len(self.losses) != 1)}"
            return f"{self.system}: {self.model} on {self.graph}, {steps}, loss {self.losses[-1]:.3f}, {self.origin}"
        best = self.steady
        accuracy = f", {self.accuracy_split} accuracy {self.accuracy[-1]:.3f}" if self.accuracy else ""
        return (
            f"{self.system}: {self.model} on {self.graph}, {best.total_us / 1e3:.1f} ms an epoch "
            f"({best.num_batches} steps), loss {self.losses[-1]:.3f}{accuracy}, {self._cached}{self.origin}"
        )

    @property
    def _cached(self) -> str:
        if not any(m.cache for m in self.memory):
            return ""
        held = max(self.memory, key=lambda m: m.cache)
        return f"{self.cache_ratio:.0%} of the vertices cached ({held.cache / 1e6:.3g} MB on a device), "
