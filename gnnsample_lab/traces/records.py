"""The record of one sampled mini-batch: its tables, and the run that they belong to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gnnsample_lab.checks import (
    MAX_SEED,
    choice,
    flag,
    host_array,
    instance,
    items,
    numbers,
    optional,
    real,
    shown,
    text,
    whole,
)
from gnnsample_lab.checks import seed as checked_seed
from gnnsample_lab.traces.tables import (
    HopTable,
    LostTable,
    QueueSeries,
    SlotTable,
    TaskTable,
    queue_depth_series,
    slots_of,
)

if TYPE_CHECKING:
    import pandas as pd

#: Strategies that run all hops in one kernel without a barrier between hops, fed by a task queue.
FUSED_STRATEGIES = frozenset({"fused-static", "persistent", "persistent-tile"})

_ORIGINS = ("measured", "modelled")
TIMES_SINCE, LAUNCH = "times_since", "first launch"
"""Entry of ``meta`` of a measured trace whose time 0 is known."""
_MOST = 2**62
WHOLE = {
    "num_sms": (1, _MOST), "num_blocks": (0, _MOST), "batch_size": (0, _MOST), "batch_id": (0, _MOST),
    "fetch_size": (0, _MOST), "fanouts": (-1, _MOST), "seed": (0, MAX_SEED),
}  # fmt: skip
"""The whole numbers of a run, of ``fanouts`` each, with the least and the greatest that is allowed."""


def _per_hop(name: str, value: npt.ArrayLike, num_hops: int, kinds: str = "fiu") -> npt.NDArray[Any]:
    """One number per hop."""
    found = host_array(name, numbers(name, value, kinds=kinds))
    if found.shape != (num_hops,):
        raise ValueError(f"{name} must have one number per hop, {num_hops} (got shape {found.shape})")
    return found


def _whole(name: str, value: Any) -> int:
    return whole(name, value, *WHOLE[name])


def _scalars(meta: Any) -> dict[str, str | int | float]:
    """``meta`` of a trace: names and what JSON can hold."""
    if meta is None:
        return {}
    instance("meta", meta, Mapping, "a mapping of names to scalars")
    for key, value in meta.items():
        if not isinstance(key, str) or not isinstance(value, (str, int, float, np.generic)):
            raise TypeError(f"meta must map names to scalars (got {shown(key)}: {shown(value)})")
    return dict(meta)


def _check_times(tasks: TaskTable) -> None:
    """Every task is queued, then started, then ended: queue depths and busy times are sums of what lies between."""
    for name in ("enqueue_us", "start_us", "end_us"):
        if not np.isfinite(getattr(tasks, name)).all():
            raise ValueError(f"tasks.{name} must be finite")
    for early, late in (("enqueue_us", "start_us"), ("start_us", "end_us")):
        wrong = np.flatnonzero(getattr(tasks, late) < getattr(tasks, early))
        if wrong.size:
            raise ValueError(f"tasks.{late} must not be before tasks.{early} (it is at row {wrong[0]})")


@dataclass(frozen=True)
class SampleTrace:
    """What one sampling run did, when and where; measured on a GPU or modelled, and labelled as such.

    Build it with :meth:`from_tasks`, which derives the hop table and the queue from the tasks.

    Attributes:
        origin: "measured" or "modelled". device_name: e.g. "NVIDIA H200".
        strategy: name of the execution strategy. graph_name, graph_is_synthetic: for titles.
        num_sms: streaming multiprocessors. num_blocks: thread blocks of the widest sampling kernel.
        batch_size: distinct seeds. fanouts: per hop, -1 for all. pick, replace, weighted, expand, seed,
            batch_id: as given to the sampler. fetch_size, completion: queue strategies only, else None.
        tasks, hops, queue, lost: the tables; ``queue`` is empty for strategies without a queue.
        total_us: from the first launch until the last result is written, preprocessing included.
        copy_bandwidth_gbps: device-to-device copy bandwidth in 10**9 bytes/s, NaN if unknown.
        meta: further scalars; ``resident_workers`` is the number of tasks that can run at once, ``times_since`` what
            happened at time 0 of a measured trace.
        slots: the slots of the queue with the times of their claims, where those are known; else empty, and
            :meth:`queue_slots` derives what it can.
    """

    origin: str
    device_name: str
    strategy: str
    graph_name: str
    graph_is_synthetic: bool
    num_sms: int
    num_blocks: int
    batch_size: int
    fanouts: tuple[int, ...]
    pick: str
    replace: bool
    weighted: bool
    expand: str
    seed: int
    batch_id: int
    fetch_size: int | None
    completion: str | None
    tasks: TaskTable
    hops: HopTable
    queue: QueueSeries
    lost: LostTable
    total_us: float
    copy_bandwidth_gbps: float
    meta: dict[str, str | int | float] = field(default_factory=dict)
    slots: SlotTable = field(default_factory=SlotTable)

    def __post_init__(self) -> None:
        if self.origin not in _ORIGINS:
            raise ValueError(f"origin must be one of {', '.join(_ORIGINS)} (got {self.origin!r})")
        if self.num_sms < 1:
            raise ValueError(f"num_sms must be at least 1 (got {self.num_sms})")
        object.__setattr__(self, "fanouts", tuple(int(k) for k in self.fanouts))
        if len(self.hops) != len(self.fanouts):
            raise ValueError(
                f"hops must have a row per fanout (got {len(self.hops)}, {len(self.fanouts)} fanouts)"
            )
        if len(self.tasks):
            if int(self.tasks.hop.max()) >= len(self.fanouts):
                raise ValueError(f"tasks.hop must be below {len(self.fanouts)} (got {self.tasks.hop.max()})")
            if int(self.tasks.sm.max()) >= self.num_sms or int(self.tasks.sm.min()) < 0:
                raise ValueError(f"tasks.sm must lie in 0..{self.num_sms - 1}")

    @property
    def label(self) -> str:
        """The origin label that every figure carries: "measured on <device>" or "modelled as <device>"."""
        return f"{'measured on' if self.origin == 'measured' else 'modelled as'} {self.device_name}"

    @property
    def title(self) -> str:
        """Graph name for titles; says so when the graph is synthetic."""
        return f"{self.graph_name} (synthetic)" if self.graph_is_synthetic else self.graph_name

    @property
    def begins_at_launch(self) -> bool:
        """Whether time 0 is the first launch. Measured traces that do not say so in ``meta`` may begin with the first
        task that was ready."""
        return self.origin == "modelled" or self.meta.get(TIMES_SINCE) == LAUNCH

    @property
    def is_fused(self) -> bool:
        """Whether all hops run in one kernel without a barrier between them."""
        return self.strategy in FUSED_STRATEGIES

    @property
    def kernel_us(self) -> float:
        """Sampling kernel time, all hops together."""
        return float(self.hops.kernel_us.sum())

    @property
    def preprocess_us(self) -> float:
        """Time outside the sampling kernels that ``hops`` accounts for."""
        return float(self.hops.preprocess_us.sum())

    def queue_slots(self) -> SlotTable:
        """The slots of the queue that were written; empty for a strategy without a queue."""
        if len(self.slots) or not len(self.queue):
            return self.slots
        return slots_of(self.tasks, self.lost)

    @classmethod
    def from_tasks(
        cls,
        tasks: TaskTable,
        *,
        origin: str,
        device_name: str,
        strategy: str,
        graph_name: str,
        graph_is_synthetic: bool,
        num_sms: int,
        num_blocks: int,
        batch_size: int,
        fanouts: Sequence[int],
        pick: str = "floyd",
        replace: bool = False,
        weighted: bool = False,
        expand: str = "frontier",
        seed: int = 0,
        batch_id: int = 0,
        fetch_size: int | None = None,
        completion: str | None = None,
        preprocess_us: npt.ArrayLike | None = None,
        kernel_us: npt.ArrayLike | None = None,
        bytes_moved: npt.ArrayLike | None = None,
        lost: LostTable | None = None,
        queue: QueueSeries | None = None,
        total_us: float | None = None,
        copy_bandwidth_gbps: float = float("nan"),
        meta: Mapping[str, str | int | float] | None = None,
        slots: SlotTable | None = None,
    ) -> SampleTrace:
        """Build a trace from its tasks; whatever per-hop figure is not given is derived.

        Args:
            preprocess_us, kernel_us, bytes_moved: length L each. Missing preprocessing and bytes count as 0;
                missing kernel time is the span of the hop's tasks, or, for fused strategies, its share of the
                kernel.
            queue: missing, it follows from enqueue and start times for strategies with a queue.
            total_us: missing, the end of the last task.

        Raises:
            TypeError: an argument of the wrong kind; the message names it.
            ValueError: for tables of unequal length, an unknown origin, tasks outside ``fanouts`` or ``num_sms``, or
                that end before they start, or start before they are queued.
        """
        from gnnsample_lab.traces.analysis import hop_kernel_times

        instance("tasks", tasks, TaskTable, "a TaskTable")
        optional(instance, "lost", lost, LostTable, "a LostTable")
        optional(instance, "queue", queue, QueueSeries, "a QueueSeries")
        optional(instance, "slots", slots, SlotTable, "a SlotTable")
        choice("origin", origin, _ORIGINS)
        for name, given in (
            ("device_name", device_name), ("strategy", strategy), ("graph_name", graph_name), ("pick", pick),
            ("expand", expand),
        ):  # fmt: skip
            text(name, given)
        completion, seed = optional(text, "completion", completion), checked_seed(seed)
        graph_is_synthetic = flag("graph_is_synthetic", graph_is_synthetic)
        replace, weighted = flag("replace", replace), flag("weighted", weighted)
        num_sms, num_blocks = _whole("num_sms", num_sms), _whole("num_blocks", num_blocks)
        batch_size, batch_id = _whole("batch_size", batch_size), _whole("batch_id", batch_id)
        fetch_size = None if fetch_size is None else _whole("fetch_size", fetch_size)
        fanouts = tuple(_whole("fanouts", k) for k in items("fanouts", fanouts, "a list of integers"))
        total_us = optional(real, "total_us", total_us, 0)
        unknown = isinstance(copy_bandwidth_gbps, float) and math.isnan(copy_bandwidth_gbps)
        if not unknown:
            copy_bandwidth_gbps = real("copy_bandwidth_gbps", copy_bandwidth_gbps, 0)
        num_hops = len(fanouts)
        if not num_hops or 0 in fanouts:
            raise ValueError(f"fanouts must name at least one hop, each above 0 or -1 (got {list(fanouts)})")
        if len(tasks) and int(tasks.hop.max()) >= num_hops:
            raise ValueError(
                f"tasks.hop must be below {num_hops}, one hop per fanout (got {tasks.hop.max()})"
            )
        _check_times(tasks)
        lost = LostTable() if lost is None else lost
        fused = strategy in FUSED_STRATEGIES
        if queue is None:
            queue = queue_depth_series(tasks, lost) if fused else QueueSeries()
        kernel = hop_kernel_times(tasks, num_hops, fused)
        if kernel_us is not None:
            kernel = _per_hop("kernel_us", kernel_us, num_hops).astype(np.float64)
        prepared, moved = np.zeros(num_hops), np.zeros(num_hops, np.int64)
        if preprocess_us is not None:
            prepared = _per_hop("preprocess_us", preprocess_us, num_hops)
        if bytes_moved is not None:
            moved = _per_hop("bytes_moved", bytes_moved, num_hops, "iu").astype(np.int64)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(kernel > 0, moved / (kernel * 1e3) / copy_bandwidth_gbps, np.nan)
        hops = HopTable(
            workload=np.bincount(tasks.hop, minlength=num_hops),
            num_picks=np.bincount(tasks.hop, weights=tasks.num_picks, minlength=num_hops).astype(np.int64),
            preprocess_us=prepared,
            kernel_us=kernel,
            bytes_moved=moved,
            copy_share=share,
        )
        last_us = float(tasks.end_us.max()) if len(tasks) else 0.0
        return cls(
            origin=origin, device_name=device_name, strategy=strategy, graph_name=graph_name,
            graph_is_synthetic=graph_is_synthetic, num_sms=num_sms, num_blocks=num_blocks,
            batch_size=batch_size, fanouts=fanouts, pick=pick, replace=replace,
            weighted=weighted, expand=expand, seed=seed, batch_id=batch_id,
            fetch_size=fetch_size, completion=completion, tasks=tasks, hops=hops, queue=queue, lost=lost,
            total_us=last_us if total_us is None else total_us,
            copy_bandwidth_gbps=copy_bandwidth_gbps, meta=_scalars(meta), slots=slots or SlotTable(),
        )  # fmt: skip

    def to_frame(self) -> pd.DataFrame:
        """The tasks as a pandas DataFrame, one row per task, with ``wait_us`` and ``duration_us`` added."""
        import pandas as pd

        frame = pd.DataFrame(self.tasks.columns())
        frame["wait_us"] = frame["start_us"] - frame["enqueue_us"]
        frame["duration_us"] = frame["end_us"] - frame["start_us"]
        return frame

    def save(self, path: str | Path) -> Path:
        """Write the trace to one ``.npz`` file.

        Args:
            path: see :func:`gnnsample_lab.traces.storage.save_trace`.

        Raises:
            TypeError, ValueError, OSError: as :func:`gnnsample_lab.traces.storage.save_trace`.
        """
        from gnnsample_lab.traces.storage import save_trace

        return save_trace(self, path)

    def to_perfetto(self, path: str | Path) -> Path:
        """Write the trace as a file for Perfetto (ui.perfetto.dev) or Chrome's tracing page: trace events as JSON.

        A multiprocessor is a process of the file, tasks that ran there at once stand in threads of it. Queue depth and
        running tasks are counters, hops spans, and tasks that were queued and lost instants. Times are microseconds.

        Args:
            path: of the file; ``.json`` is appended when the name has no suffix.

        Returns:
            The path written.

        Raises:
            TypeError: ``path`` is no path.
            ValueError: ``path`` is a folder, or a time is not finite.
            OSError: the folder cannot be written.
        """
        from gnnsample_lab.traces.perfetto import sample_events

        return sample_events(self).write(path)

    @classmethod
    def load(cls, path: str | Path) -> SampleTrace:
        """Read a trace written by :meth:`save`.

        Args:
            path: see :func:`gnnsample_lab.traces.storage.load_trace`.

        Raises:
            TypeError, ValueError, FileNotFoundError: as :func:`gnnsample_lab.traces.storage.load_trace`.
        """
        from gnnsample_lab.traces.storage import load_trace

        return load_trace(path)
