"""Column tables of a trace: tasks, hops, queue depth, lost tasks.

Times are microseconds since the first kernel of the run was launched
(:attr:`~gnnsample_lab.traces.SampleTrace.begins_at_launch` says where that is not known). Hops count from 0 in the
records (hop 0 samples the neighbours of the seeds) and are written "hop 1", "hop 2", ... in figures, as in the
PGSampler paper. Vertex ids are global.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt


def _columns(obj: Any, dtypes: Mapping[str, Any]) -> None:
    """Coerce the columns of a frozen table to their dtypes and check that they are equally long.

    Raises:
        TypeError: a column does not hold numbers.
        ValueError: a column has not one dimension or another length than the first, or holds a number that its dtype
            does not; the message names it.
    """
    length: int | None = None
    for name, dtype in dtypes.items():
        column = exactly(f"{type(obj).__name__}.{name}", getattr(obj, name), dtype)
        if column.ndim != 1:
            raise ValueError(f"{type(obj).__name__}.{name} must be 1-D (got shape {column.shape})")
        if length is None:
            length = len(column)
        elif len(column) != length:
            raise ValueError(
                f"{type(obj).__name__}.{name} must have as many rows as the other columns "
                f"(got {len(column)}, expected {length})"
            )
        object.__setattr__(obj, name, column)


def exactly(name: str, values: Any, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """``values`` in ``dtype``, which must hold each of them: a cast alone wraps 256 to 0, or cuts 1.7 to 1.

    Raises:
        TypeError: no numbers. ValueError: one that ``dtype`` does not hold; both name ``name``.
    """
    dtype = np.dtype(dtype)
    given = np.asarray(values)
    if given.dtype == dtype or not given.size:
        return np.ascontiguousarray(given, dtype=dtype)
    if given.dtype.kind not in "iuf":
        raise TypeError(f"{name} must hold numbers (got {given.dtype})")
    with np.errstate(invalid="ignore"):  # NaN among whole numbers, which is told below
        column = np.ascontiguousarray(given, dtype=dtype)
    if not np.array_equal(column, given, equal_nan=dtype.kind == "f"):
        wrong = given[column != given]
        whole = "whole numbers" if dtype.kind in "iu" else "numbers"
        raise ValueError(f"{name} must hold {whole} that {dtype} holds (got {wrong.flat[0]})")
    return column


class _Table:
    """Shared behaviour of the column tables; equality is by value."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        theirs = other.columns()  # type: ignore[attr-defined]
        return all(
            np.array_equal(column, theirs[name], equal_nan=column.dtype.kind == "f")
            for name, column in self.columns().items()
        )

    __hash__ = None  # type: ignore[assignment]

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Column name -> array, in declaration order (no copy)."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class TaskTable(_Table):
    """One row per processed task (vertex, hop); all columns have n rows.

    Attributes:
        hop: uint8[n], 0 for the seeds' own tasks.
        vertex: int64[n], global id of the vertex whose neighbours the task samples.
        degree: int64[n], in-degree of that vertex.
        num_picks: int32[n], how many neighbours were picked.
        sm: int16[n], streaming multiprocessor that ran the task.
        block: int32[n], thread block (``blockIdx.x``) that ran the task.
        enqueue_us: float64[n], when the task became available: its slot of the queue was published, or,
            without a queue, the kernel of its hop was launched.
        start_us: float64[n], when work on the task began; never before ``enqueue_us``.
        end_us: float64[n], when its picks were written and its children were handed on.
    """

    hop: npt.NDArray[Any]
    vertex: npt.NDArray[Any]
    degree: npt.NDArray[Any]
    num_picks: npt.NDArray[Any]
    sm: npt.NDArray[Any]
    block: npt.NDArray[Any]
    enqueue_us: npt.NDArray[Any]
    start_us: npt.NDArray[Any]
    end_us: npt.NDArray[Any]

    def __post_init__(self) -> None:
        _columns(self, TASK_DTYPES)

    @property
    def duration_us(self) -> npt.NDArray[np.float64]:
        """float64[n], ``end_us - start_us``."""
        return self.end_us - self.start_us

    def take(self, rows: npt.NDArray[Any]) -> TaskTable:
        """The given rows (indices or a boolean mask) as a new table."""
        return TaskTable(**{name: column[rows] for name, column in self.columns().items()})


TASK_DTYPES: dict[str, Any] = {
    "hop": np.uint8,
    "vertex": np.int64,
    "degree": np.int64,
    "num_picks": np.int32,
    "sm": np.int16,
    "block": np.int32,
    "enqueue_us": np.float64,
    "start_us": np.float64,
    "end_us": np.float64,
}


@dataclass(frozen=True, eq=False)
class HopTable(_Table):
    """One row per hop.

    Attributes:
        workload: int64[L], tasks that were processed in the hop (the frontier size under exact completion).
        num_picks: int64[L], sampled edges.
        preprocess_us: float64[L], host work, copies and helper kernels before the sampling kernel of the hop;
            a strategy that launches once has all of it in the first row.
        kernel_us: float64[L], sampling kernel time. Where hops overlap inside one kernel, every instant is
            divided among the hops in proportion to the tasks running then, so that the rows add up to the
            kernel's time.
        bytes_moved: int64[L], device-memory traffic counted as 32-byte sectors for random accesses and plain
            bytes for streamed ones.
        copy_share: float64[L], ``bytes_moved`` over ``kernel_us`` as a share of the device's copy bandwidth;
            NaN where that bandwidth is not known.
    """

    workload: npt.NDArray[Any]
    num_picks: npt.NDArray[Any]
    preprocess_us: npt.NDArray[Any]
    kernel_us: npt.NDArray[Any]
    bytes_moved: npt.NDArray[Any]
    copy_share: npt.NDArray[Any]

    def __post_init__(self) -> None:
        _columns(self, HOP_DTYPES)


HOP_DTYPES: dict[str, Any] = {
    "workload": np.int64,
    "num_picks": np.int64,
    "preprocess_us": np.float64,
    "kernel_us": np.float64,
    "bytes_moved": np.int64,
    "copy_share": np.float64,
}


@dataclass(frozen=True, eq=False)
class QueueSeries(_Table):
    """Queue depth as a step function: ``depth[i]`` holds from ``time_us[i]`` until ``time_us[i + 1]``.

    Attributes:
        time_us: float64[m], ascending.
        depth: int64[m], tasks published and not yet started.
    """

    time_us: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0))
    depth: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        _columns(self, {"time_us": np.float64, "depth": np.int64})

    @property
    def peak(self) -> int:
        """The deepest the queue ever was; 0 for a strategy without a queue."""
        return int(self.depth.max()) if len(self) else 0


@dataclass(frozen=True, eq=False)
class LostTable(_Table):
    """Tasks that the published completion rule of PGSampler never ran (Algorithm 1; see
    ``completion="paper"``).

    Attributes:
        hop: uint8[k]. vertex: int64[k], global ids.
        slot: int64[k], the queue slot that was claimed too early and abandoned; -1 for a task that was never
            queued, because every task that would have queued it was itself lost.
        block: int32[k], the block that claimed the slot; -1 where none did or where that is not known.
        enqueue_us: float64[k], when the slot was written; NaN for tasks that were never queued.
    """

    hop: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=np.uint8))
    vertex: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    slot: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    block: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    enqueue_us: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        _columns(self, LOST_DTYPES)

    @property
    def abandoned(self) -> npt.NDArray[np.bool_]:
        """bool[k], True for tasks queued and then abandoned, False for their unreached descendants."""
        return self.slot >= 0

    @property
    def untimed(self) -> npt.NDArray[np.bool_]:
        """bool[k], True for abandoned tasks of which is not known when they were queued: no queue depth counts them."""
        return np.asarray(self.abandoned & np.isnan(self.enqueue_us))

    @classmethod
    def of(cls, hop: npt.ArrayLike, vertex: npt.ArrayLike) -> LostTable:
        """Abandoned tasks of which only hop and vertex are known; slots are numbered 0, 1, ..."""
        hops, vertices = np.asarray(hop), np.asarray(vertex)
        k = len(hops)
        return cls(hops, vertices, np.arange(k), np.full(k, -1, dtype=np.int32), np.full(k, np.nan))


LOST_DTYPES: dict[str, Any] = {
    "hop": np.uint8,
    "vertex": np.int64,
    "slot": np.int64,
    "block": np.int32,
    "enqueue_us": np.float64,
}


@dataclass(frozen=True, eq=False)
class SlotTable(_Table):
    """Slots of a task queue that were written, in order of their numbers; one row per slot, m rows.

    Attributes:
        hop: uint8[m], vertex: int64[m]: the task in the slot; vertices are global ids.
        block: int32[m], thread block that claimed the slot, -1 where none did or where that is not known.
        claim_us: float64[m], when a block took the slot for itself, written or not; NaN where not known.
        write_us: float64[m], when the task in it could be read; NaN where not known.
        read_us: float64[m], when work on the task began; NaN for a task that no one ran.
        end_us: float64[m], when its task ended; NaN likewise.
    """

    hop: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=np.uint8))
    vertex: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    block: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    claim_us: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0))
    write_us: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0))
    read_us: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0))
    end_us: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        _columns(self, SLOT_DTYPES)

    @property
    def lost(self) -> npt.NDArray[np.bool_]:
        """bool[m], True for slots whose task no one ran."""
        return np.isnan(self.end_us)


SLOT_DTYPES: dict[str, Any] = {
    "hop": np.uint8,
    "vertex": np.int64,
    "block": np.int32,
    "claim_us": np.float64,
    "write_us": np.float64,
    "read_us": np.float64,
    "end_us": np.float64,
}


def slots_of(tasks: TaskTable, lost: LostTable | None = None) -> SlotTable:
    """The slots of a queue as far as tasks tell: in the order in which they were written, by whom claimed unknown.

    When tasks were lost is not recorded on a GPU. A claim that was given up is older than those that were served, so
    that such a task stands before all others of its hop.
    """
    given = LostTable() if lost is None else lost
    left = given.abandoned
    none = np.full(int(left.sum()), np.nan)
    columns = {
        "hop": np.concatenate([tasks.hop, given.hop[left]]),
        "vertex": np.concatenate([tasks.vertex, given.vertex[left]]),
        "block": np.concatenate([tasks.block, given.block[left]]),
        "claim_us": np.full(len(tasks) + len(none), np.nan),
        "write_us": np.concatenate([tasks.enqueue_us, given.enqueue_us[left]]),
        "read_us": np.concatenate([tasks.start_us, none]),
        "end_us": np.concatenate([tasks.end_us, none]),
    }
    untimed = np.isnan(columns["write_us"])
    write_us = columns["write_us"].copy()
    for hop in np.unique(columns["hop"][untimed]):
        same = columns["hop"] == hop
        write_us[same & untimed] = np.min(write_us[same & ~untimed], initial=np.inf)
    order = np.lexsort((columns["read_us"], ~untimed, columns["hop"], write_us))
    return SlotTable(**{name: column[order] for name, column in columns.items()})


def queue_depth_series(tasks: TaskTable, lost: LostTable | None = None) -> QueueSeries:
    """Queue depth over time from enqueue and start times; a lost task enters and never leaves.

    A task taken at the instant it is published is counted: publication comes first, so that the peak is not
        missed.
    """
    entered = tasks.enqueue_us
    if lost is not None and len(lost):
        entered = np.concatenate([entered, lost.enqueue_us[np.isfinite(lost.enqueue_us)]])
    n_in, n_out = len(entered), len(tasks)
    if n_in == 0:
        return QueueSeries()
    time = np.concatenate([entered, tasks.start_us])
    step = np.concatenate([np.ones(n_in, dtype=np.int64), np.full(n_out, -1, dtype=np.int64)])
    order = np.lexsort((-step, time))
    time, step = time[order], step[order]
    depth = np.cumsum(step)
    # One row per distinct instant would hide the peak inside it, so the highest depth of the instant is kept
    # before its last one only where the two differ.
    last = np.append(time[1:] != time[:-1], True)
    turn = np.append((step[1:] < 0) & (step[:-1] > 0), False)
    keep = last | turn
    return QueueSeries(time[keep], depth[keep])
