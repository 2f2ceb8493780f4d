"""The GPU model: what a GPU costs, as a handful of numbers, for hosts that have none.

A :class:`GpuModel` holds the machine (SMs, resident blocks, bandwidth), the cost of the host's part
(launches, synchronisation, preparation of a hop), of the shared resources (block scheduler, queue counters,
grid barrier) and of one task as a function of its degree and picks. ``run.simulate`` replays the
schedule of a strategy with them. The model serves to explain, so it is small; it is checked against measured traces,
and ``fit_error`` says how large its errors are. This module needs no graph and imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gnnsample_lab.files import read_json, reading

if TYPE_CHECKING:
    pass

PRESETS_FILE = Path(__file__).with_name("presets.json")

#: How each strategy puts tasks on workers, and what separates its hops on the host's side.
#: schedule: "dispatch" (a block per task, the hardware deals blocks out), "edges" (blocks share the candidate
# edges  evenly), "balanced" (contiguous shares of equal predicted work), "stride" (task i on worker i mod
# workers),  "ticket" (a block per task over all hops), "queue" (resident workers, shared queue).
#: host: "sync" (prepare the hop, copy its size to the host, launch), "launch" (one launch per hop), "graph"
# (one  graph launch), "barrier" (one launch, a grid barrier per hop), "once" (one launch for everything).
PLANS: dict[str, tuple[str, str]] = {
    "block-bsp": ("dispatch", "sync"),
    "edge-bsp": ("edges", "sync"),
    "turbo-bsp": ("balanced", "sync"),
    "bsp": ("stride", "launch"),
    "fused-static": ("ticket", "once"),
    "persistent": ("queue", "once"),
    "persistent-tile": ("queue", "once"),
    "grid-barrier": ("stride", "barrier"),
    "captured": ("stride", "graph"),
}


@dataclass(frozen=True)
class UnitCost:
    """What one task costs the group of threads that runs it (a block, a tile, ...), in us on an otherwise
    idle SM.

    Attributes:
        lanes: threads in the group.
        empty_us: a task whose vertex has no in-neighbours: read its two offsets, find nothing.
        base_us: the chain of dependent accesses of any other task: offsets, index, deduplication, push.
        pick_us: one pass of the group over the picks (``ceil(picks / lanes)`` of them).
        floyd_us: one slot of the O(fanout) rule, whose slots are decided one after the other.
        pass_us: one pass of the group over the candidates of the O(degree) rule (``ceil((degree - k) /
            (lanes * per_lane))``); weights are read one by a lane.
        saturation: tasks per SM beyond which groups share its throughput instead of adding to it.
        expand_us: added where the task itself deduplicates its picks, see :func:`hands_on`.
        after_us: added where the task queues new tasks: the remaining work after they are in the queue.
        per_lane: candidates that a lane tests in one pass; four come of one call of the generator.
        rows: tasks that one group serves together; 32 for a warp whose lanes draw a row each. Their slots are then
            decided in parallel, their candidates and picks one row after another.
    """

    lanes: int
    empty_us: float
    base_us: float
    pick_us: float
    floyd_us: float
    pass_us: float
    saturation: float
    expand_us: float = 0.0
    after_us: float = 0.0
    per_lane: int = 1
    rows: int = 1


@dataclass(frozen=True)
class Execution:
    """Launch shape of one strategy: which :class:`UnitCost` runs a task, and how many groups are resident.

    Attributes:
        unit: key of ``GpuModel.units``.
        workers_per_block: groups of that unit in one thread block.
        blocks_per_sm: resident blocks per SM.
        blocks_per_sm_floyd: the same for the O(fanout) rule where it runs in smaller blocks, 0 where it does not.
        hub_degree: the candidates of a vertex with more in-neighbours are shared by all groups of a block; 0 for never.
    """

    unit: str
    workers_per_block: int
    blocks_per_sm: int
    blocks_per_sm_floyd: int = 0
    hub_degree: int = 0

    def resident_per_sm(self, pick: str) -> int:
        """Resident blocks per SM under a pick rule."""
        return self.blocks_per_sm if pick == "reservoir" else self.blocks_per_sm_floyd or self.blocks_per_sm


@dataclass(frozen=True)
class GpuModel:
    """Numbers of one GPU. Times in us; bandwidth in 10**9 bytes/s.

    Attributes:
        key: short name, e.g. "h200". name: shown in labels, e.g. "NVIDIA H200".
        source: where the numbers come from, in words.
        num_sms: streaming multiprocessors.
        copy_bandwidth_gbps: device-to-device copy bandwidth.
        launch_us: one kernel launch from the host, until its first block can start.
        graph_launch_us, graph_node_us: launch of a CUDA graph, and the gap before each further kernel in it.
        host_sync_us: copying one number to the host and waiting for it.
        hop_setup_us: allocations and helper kernels of a hop with host synchronisation (degrees, scan,
            compaction).
        grid_barrier_us: one grid-wide barrier.
        block_dispatch_us: the block scheduler's time per block; it serves one block after the other.
        block_start_us: from dispatch until the first instruction of the block's task.
        queue_service_us: one atomic on a counter of the queue; requests to one address queue up.
        queue_slot_us: one new task on its way into the queue, deduplication included; all blocks share this rate.
        queue_latency_us: until the block that asked has its answer, beyond the service time.
        publish_us: from reserving a slot of the queue until the task in it can be read by others.
        poll_us: until a waiting block notices that its slot was filled.
        units, execution: see :class:`UnitCost` and :class:`Execution`; ``execution`` is keyed by strategy.
        fit_error: empty for numbers that were not fitted; see :func:`gnnsample_lab.gpu_model.fit.fit`.
        recorded_over_modelled: strategy -> recorded over modelled time of whole runs, see
            :mod:`gnnsample_lab.gpu_model.run_error`; empty where no run was recorded. Those of a preset do not hold
            for a copy with other numbers: give it its own.
    """

    key: str
    name: str
    source: str
    num_sms: int
    copy_bandwidth_gbps: float
    launch_us: float
    graph_launch_us: float
    graph_node_us: float
    host_sync_us: float
    hop_setup_us: float
    grid_barrier_us: float
    block_dispatch_us: float
    block_start_us: float
    queue_service_us: float
    queue_slot_us: float
    queue_latency_us: float
    publish_us: float
    poll_us: float
    units: dict[str, UnitCost]
    execution: dict[str, Execution]
    fit_error: dict[str, float] = field(default_factory=dict)
    recorded_over_modelled: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_sms < 1:
            raise ValueError(f"num_sms must be at least 1 (got {self.num_sms})")
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name.endswith(("_us", "_gbps")) and not value >= 0:
                raise ValueError(f"{f.name} must not be negative (got {value})")
        for strategy, ratios in self.recorded_over_modelled.items():
            if not all(0 < ratio < float("inf") for ratio in ratios):
                raise ValueError(
                    f"recorded_over_modelled[{strategy!r}] must hold ratios above 0 (got {ratios})"
                )
        missing = sorted(set(PLANS) - set(self.execution))
        if missing:
            raise ValueError(f"execution must name every strategy (missing {', '.join(missing)})")
        for strategy, execution in self.execution.items():
            if execution.unit not in self.units:
                raise ValueError(f"execution[{strategy!r}].unit must be one of {sorted(self.units)}")

    def unit(self, strategy: str) -> UnitCost:
        """The cost of a task under ``strategy``.

        Raises:
            ValueError: for an unknown strategy.
        """
        if strategy not in self.execution:
            raise ValueError(f"strategy must be one of {', '.join(self.execution)} (got {strategy!r})")
        return self.units[self.execution[strategy].unit]

    def resident_blocks(self, strategy: str, pick: str = "reservoir") -> int:
        """Thread blocks of ``strategy`` that the whole GPU holds at once."""
        self.unit(strategy)
        return self.execution[strategy].resident_per_sm(pick) * self.num_sms

    def with_unit(self, name: str, **changes: float) -> GpuModel:
        """A copy with some numbers of one unit changed."""
        unit = replace(self.units[name], **changes)  # type: ignore[arg-type]
        return replace(self, units=self.units | {name: unit})

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and numbers, as stored in the presets file."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GpuModel:
        """The model that :meth:`to_json` described.

        Raises:
            ValueError: if a number is missing, unknown or out of range.
        """
        try:
            units = {name: UnitCost(**values) for name, values in data["units"].items()}
            execution = {name: Execution(**values) for name, values in data["execution"].items()}
            return cls(**{**data, "units": units, "execution": execution})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the numbers of a GPU model: {error}") from error


def presets() -> dict[str, GpuModel]:
    """The GPU models that ship with the package, by key; ``source`` says where the numbers come from."""
    data = read_json(PRESETS_FILE)
    with reading(PRESETS_FILE, "GPU models"):
        shared = data["shared"]
        return {
            key: GpuModel.from_json({"key": key, "execution": shared["execution"], **values})
            for key, values in data["models"].items()
        }


def get_model(gpu: GpuModel | str) -> GpuModel:
    """A preset by key, or the model itself.

    Raises:
        ValueError: for an unknown key.
    """
    if isinstance(gpu, GpuModel):
        return gpu
    known = presets()
    if gpu not in known:
        raise ValueError(f"gpu must be one of {', '.join(known)} (got {gpu!r})")
    return known[gpu]


def hands_on(strategy: str, hop: int, num_hops: int) -> tuple[bool, bool]:
    """Whether tasks of a hop deduplicate their picks themselves, and whether they queue the new ones.

    With a queue, tasks of every hop but the last do both. Tasks of kernels that draw and relabel deduplicate in every
    hop. If deduplication is part of the preparation of a hop, tasks do neither.
    """
    schedule = PLANS[strategy][0]
    queues = schedule in ("queue", "ticket") and hop + 1 < num_hops
    return queues or schedule == "stride", queues


def task_costs(
    unit: UnitCost,
    degree: npt.NDArray[np.int64],
    num_picks: npt.NDArray[np.int64],
    fanout: int,
    *,
    pick: str,
    replace: bool = False,
    weighted: bool = False,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Cost of tasks for a group of threads that has its SM to itself.

    Args:
        unit: the group. degree, num_picks: int64[n] each. fanout: of the hop, -1 for all.
        pick, replace, weighted: the pick rule, as given to the sampler.

    Returns:
        (latency_us float64[n], work_us float64[n]); work is the part that other groups on the SM compete for.
    """
    return task_features(
        unit, degree, num_picks, fanout, pick=pick, replace=replace, weighted=weighted
    ).costs(unit)


@dataclass(frozen=True)
class TaskFeatures:
    """Counts of what a task does. Costs are linear in these counts, which makes fitting simple.

    Attributes:
        empty, full: bool[n], no candidates at all, or some.
        pick_passes, slots, candidate_passes: float64[n], multiples of ``pick_us``, ``floyd_us`` and
            ``pass_us``.
        expands, queues: bool[n], pays ``expand_us``, ``after_us``.
    """

    empty: npt.NDArray[np.bool_]
    full: npt.NDArray[np.bool_]
    pick_passes: npt.NDArray[np.float64]
    slots: npt.NDArray[np.float64]
    candidate_passes: npt.NDArray[np.float64]
    expands: npt.NDArray[np.bool_]
    queues: npt.NDArray[np.bool_]

    def costs(self, unit: UnitCost) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(latency_us, work_us) for a unit's numbers."""
        latency = self.empty * unit.empty_us + self.full * unit.base_us + self.expands * unit.expand_us
        latency = latency + self.queues * unit.after_us
        work = (
            self.pick_passes * unit.pick_us
            + self.slots * unit.floyd_us
            + self.candidate_passes * unit.pass_us
        )
        return latency, work

    def after(self, unit: UnitCost) -> npt.NDArray[np.float64]:
        """The part of the latency that is left when the new tasks are queued, us."""
        return np.where(self.queues, float(unit.after_us), 0.0)

    def in_turn(self, unit: UnitCost) -> npt.NDArray[np.float64]:
        """The part of the work that tasks of one group do one after the other, us."""
        return self.pick_passes * unit.pick_us + self.candidate_passes * unit.pass_us


def task_features(
    unit: UnitCost,
    degree: npt.NDArray[np.int64],
    num_picks: npt.NDArray[np.int64],
    fanout: int,
    *,
    pick: str,
    replace: bool = False,
    weighted: bool = False,
    hands_on: tuple[bool, bool] = (False, False),
) -> TaskFeatures:
    """The counts on which the cost of tasks depends linearly; arguments as in :func:`task_costs`.

    ``hands_on``: see the function of that name.
    """
    lanes = unit.lanes
    picks = np.asarray(num_picks, dtype=np.float64)
    degrees = np.asarray(degree, dtype=np.float64)
    chosen = (degrees > fanout) if fanout >= 0 else np.zeros(len(degrees), dtype=bool)
    slots = np.zeros(len(degrees))
    candidates = np.zeros(len(degrees))
    if weighted:
        # Weights are read once each to build what the draws search, whichever rule then draws.
        candidates = np.ceil(np.where(chosen | replace, degrees, 0) / lanes)
    elif replace:
        slots = np.ceil(picks / lanes)
    elif pick == "reservoir":
        candidates = np.ceil(np.where(chosen, degrees - fanout, 0) / (lanes * unit.per_lane))
    else:
        slots = np.where(chosen, float(fanout), 0.0)
    return TaskFeatures(
        empty=degrees <= 0,
        full=degrees > 0,
        # Rows that a group takes up together share its lanes, so passes add up before they are rounded.
        pick_passes=picks / lanes if unit.rows > 1 else np.ceil(picks / lanes),
        slots=slots,
        candidate_passes=candidates,
        expands=np.full(len(degrees), hands_on[0]),
        queues=np.full(len(degrees), hands_on[1]),
    )
