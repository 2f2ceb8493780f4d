"""Replay a strategy's schedule on the GPU model: which worker runs which task, and when.

The input is an abstract workload, tasks with costs and with the tasks that they hand on, so that the same
loops serve samples (``sampling.neighbors.schedule``) and recorded traces (``fit``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gnnsample_lab.gpu_model.model import PLANS, GpuModel, TaskFeatures, UnitCost

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Most blocks per hop of an edge-parallel schedule that are replayed one by one; more are replayed in groups.
_MAX_EDGE_BLOCKS = 1 << 17


@dataclass(frozen=True)
class Workload:
    """Tasks of one mini-batch in hop-major order; n tasks, L hops.

    Attributes:
        hop_ptr: int64[L + 1], tasks of hop h are ``hop_ptr[h]:hop_ptr[h + 1]``.
        features: what each task does, see :class:`gnnsample_lab.gpu_model.model.TaskFeatures` (n rows).
        candidates: int64[n], edges that an edge-parallel kernel looks at.
        bytes_moved: int64[n], device-memory traffic.
        child_ptr, child: int64[n + 1] and int64[m], the tasks that each task hands on. A task may be named by
            several parents: the parent that finishes first queues it.
    """

    hop_ptr: Ints
    features: TaskFeatures
    candidates: Ints
    bytes_moved: Ints
    child_ptr: Ints
    child: Ints

    @property
    def num_tasks(self) -> int:
        return int(self.hop_ptr[-1])

    @property
    def num_hops(self) -> int:
        return len(self.hop_ptr) - 1


@dataclass(frozen=True)
class Timeline:
    """Result of a replay; times in us since the first launch, NaN for tasks that were never reached.

    Attributes:
        enqueue_us, start_us, end_us: float64[n].
        block, sm: int64[n]. worker: int64[n], the group of threads; groups of one block are numbered
            consecutively.
        processed: bool[n]. slot: int64[n], place in the queue, -1 without a queue or if never queued.
        claimed_by: int64[n], block that claimed and abandoned the slot of an unprocessed task, else -1.
        claim_us: float64[n], claimer: int64[n], by number of a slot: when and by which block it was claimed; NaN and -1
            for slots that were not.
        preprocess_us: float64[L]. kernel_us: float64[L], or None where hops overlap in one kernel.
        total_us: end of the last kernel. drain_us: part of it in which only empty blocks were dispatched.
        num_blocks: blocks of the widest launch. resident_workers: tasks that can run at once.
    """

    enqueue_us: Floats
    start_us: Floats
    end_us: Floats
    block: Ints
    sm: Ints
    worker: Ints
    processed: npt.NDArray[np.bool_]
    slot: Ints
    claimed_by: Ints
    preprocess_us: Floats
    kernel_us: Floats | None
    total_us: float
    drain_us: float
    num_blocks: int
    resident_workers: int
    claim_us: Floats
    claimer: Ints


def simulate(
    model: GpuModel,
    workload: Workload,
    strategy: str,
    *,
    pick: str = "reservoir",
    fetch_size: int = 5,
    completion: str = "exact",
    num_blocks: int | None = None,
    task_index_start: int | None = None,
    grid_tasks: int | None = None,
) -> Timeline:
    """Replay ``workload`` as ``strategy`` would run it; deterministic.

    Args:
        pick: the pick rule, on which the size of blocks depends.
        fetch_size: tickets per fetch of "persistent"; "persistent-tile" takes as many as there is work for.
        completion: "exact", or "paper" for Algorithm 1 of PGSampler as printed: the tail advances before the
            slot is written, slots are read once and unchecked, a block that leaves abandons what it claimed.
        num_blocks: blocks of the persistent grid; by default all that are resident (under "paper" at most the number
            of seeds, since a block without a first task would end and never return).
        task_index_start: first value of the queue's task index under "paper"; by default ``num_blocks``
            (workers).
        grid_tasks: blocks that "fused-static" launches, an upper bound on the tasks; by default the tasks.

    Raises:
        ValueError: for an unknown strategy or completion rule, or numbers below 1.
    """
    unit = model.unit(strategy)
    if completion not in ("exact", "paper"):
        raise ValueError(f"completion must be 'exact' or 'paper' (got {completion!r})")
    for name, value in (("fetch_size", fetch_size), ("num_blocks", num_blocks)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1 (got {value})")
    schedule, host = PLANS[strategy]
    run = _Run(model, workload, strategy, unit, host, pick)
    if schedule in ("queue", "ticket"):
        if completion == "paper" and schedule == "queue":
            return run.published(fetch_size, num_blocks, task_index_start)
        return run.queue(fetch_size, num_blocks, schedule == "ticket", grid_tasks)
    return run.per_hop(schedule, num_blocks)


class _Run:
    """Arrays and parameters that the schedules share; one instance per replay."""

    def __init__(
        self, model: GpuModel, workload: Workload, strategy: str, unit: UnitCost, host: str, pick: str
    ) -> None:
        self.model, self.work, self.unit, self.host = model, workload, unit, host
        self.execution = model.execution[strategy]
        self.per_block = self.execution.workers_per_block
        self.resident = model.resident_blocks(strategy, pick)
        n = workload.num_tasks
        latency, work = workload.features.costs(unit)
        self.cost = np.empty((n, 5))
        self.cost[:, 0], self.cost[:, 1] = latency, work
        # 10**9 bytes/s are 10**3 bytes/us.
        self.cost[:, 2] = workload.bytes_moved / (max(model.copy_bandwidth_gbps, 1e-9) * 1e3)
        self.cost[:, 3] = workload.features.in_turn(unit)
        self.cost[:, 4] = workload.features.after(unit)
        if self.execution.hub_degree:
            passes = workload.features.candidate_passes
            hub = passes > self.execution.hub_degree / (unit.lanes * unit.per_lane)
            saved = passes[hub] * unit.pass_us * (1 - 1 / self.per_block)
            self.cost[hub, 1] -= saved
            self.cost[hub, 3] -= saved
        self.parameters = np.array(
            [
                model.block_dispatch_us,
                model.block_start_us,
                model.queue_service_us,
                model.queue_latency_us,
                model.publish_us,
                model.poll_us,
                max(unit.saturation, 1e-9),
                model.queue_slot_us,
            ]
        )
        self.enqueue, self.start, self.end = (np.full(n, np.nan) for _ in range(3))
        self.worker = np.full(n, -1, dtype=np.int64)
        self.claim, self.claimer = np.full(n, np.nan), np.full(n, -1, dtype=np.int64)

    def _host_us(self, hop: int) -> float:
        m = self.model
        if self.host == "sync":
            return m.hop_setup_us + m.host_sync_us + m.launch_us
        if self.host == "launch":
            return m.launch_us
        if self.host == "graph":
            return m.graph_node_us if hop else m.graph_launch_us
        if self.host == "barrier":
            return m.grid_barrier_us if hop else m.launch_us
        return 0.0 if hop else m.launch_us

    def per_hop(self, schedule: str, num_blocks: int | None) -> Timeline:
        from gnnsample_lab.gpu_model import loops

        work, num_hops = self.work, self.work.num_hops
        blocks = self.resident if num_blocks is None else min(num_blocks, self.resident)
        workers = blocks * self.per_block
        n = work.num_tasks
        block = np.zeros(n, dtype=np.int64)
        sm = np.zeros(n, dtype=np.int64)
        preprocess, kernel = np.zeros(num_hops), np.zeros(num_hops)
        now, widest = 0.0, 1
        num_sms = self.model.num_sms
        for hop in range(num_hops):
            first, last = int(work.hop_ptr[hop]), int(work.hop_ptr[hop + 1])
            preprocess[hop] = self._host_us(hop)
            now += preprocess[hop]
            rows = slice(first, last)
            self.enqueue[rows] = now
            if last == first:
                continue
            if schedule == "dispatch":
                loops.run_dispatch(
                    first, last, now, workers, num_sms, self.per_block, self.cost, self.parameters,
                    self.start, self.end, self.worker,
                )  # fmt: skip
                # blockIdx.x of a one-task-per-block grid is the task's number in the hop.
                block[rows] = np.arange(last - first) // self.per_block
                sm[rows] = self.worker[rows] // self.per_block % num_sms
            elif schedule == "edges":
                block[rows], sm[rows] = self._edges(first, last, now, workers)
            else:
                order, first_of = self._shares(schedule, first, last, workers)
                # As few rounds as full groups allow, then rows spread evenly over the groups of a round.
                rounds = -(-(last - first) // (workers * self.unit.rows))
                together = -(-(last - first) // (workers * rounds)) if self.unit.rows > 1 else 1
                loops.run_assigned(
                    first_of, order, now, num_sms, together, self.per_block, self.cost, self.parameters,
                    self.start, self.end, self.worker,
                )  # fmt: skip
                block[rows] = self.worker[rows] // self.per_block
                sm[rows] = block[rows] % num_sms
            widest = max(widest, int(block[rows].max()) + 1)
            kernel[hop] = float(self.end[rows].max()) - now
            now += kernel[hop]
        none = np.full(n, -1, dtype=np.int64)
        return Timeline(
            self.enqueue, self.start, self.end, block, sm, self.worker, np.ones(n, dtype=bool), none, none,
            preprocess, kernel, now, 0.0, widest, workers * self.unit.rows, self.claim, self.claimer,
        )  # fmt: skip

    def _shares(self, schedule: str, first: int, last: int, workers: int) -> tuple[Ints, Ints]:
        """(order of tasks, where each worker's list begins in it)."""
        num = last - first
        if schedule == "stride":
            used = min(workers, num)
            owner = np.arange(num) % used
        else:
            # Blocks get shares of equal work, counted in groups of four candidates and one for the row; that
            # needs one scan, which is what a kernel can afford. The groups of a block take its rows in turn.
            weight = np.cumsum(self.work.candidates[first:last] // 4 + 1.0)
            blocks = max(1, min(workers // self.per_block, num))
            block = np.minimum((weight - 1e-12) / weight[-1] * blocks, blocks - 1).astype(np.int64)
            begin = np.searchsorted(block, np.arange(blocks))
            used = blocks * self.per_block
            owner = block * self.per_block + (np.arange(num) - begin[block]) % self.per_block
        order = first + np.argsort(owner, kind="stable")
        return order, np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=used))])

    def _edges(self, first: int, last: int, now: float, workers: int) -> tuple[Ints, Ints]:
        """Edge-parallel: each block takes the next ``lanes`` candidate edges, whatever vertices they belong to."""
        from gnnsample_lab.gpu_model import loops

        unit, num_sms = self.unit, self.model.num_sms
        # A vertex without candidates still costs its own look-up.
        until = np.cumsum(np.maximum(self.work.candidates[first:last], 1))
        grain = unit.lanes * max(1, -(-int(until[-1]) // (unit.lanes * _MAX_EDGE_BLOCKS)))
        num = -(-int(until[-1]) // grain)
        since = np.concatenate([[0], until[:-1]])
        head, foot = since // grain, (until - 1) // grain
        cost = np.zeros((num, 5))
        cost[:, 0] = unit.base_us
        cost[:, 1] = unit.pass_us * (grain // unit.lanes) + unit.pick_us
        total_memory = float(self.cost[first:last, 2].sum())
        cost[:, 2] = total_memory / num
        start, end, worker = np.empty(num), np.empty(num), np.empty(num, dtype=np.int64)
        loops.run_dispatch(
            0, num, now, workers, num_sms, self.per_block, cost, self.parameters, start, end, worker
        )
        latest = np.maximum.accumulate(end)
        self.start[first:last] = start[head]
        # A vertex is done when the last block with one of its edges is; blocks end nearly in order.
        self.end[first:last] = np.where(head == foot, end[foot], np.maximum(latest[foot], end[head]))
        self.worker[first:last] = worker[head]
        return head, worker[head] // self.per_block % num_sms

    def _fused(self, slot: Ints, block: Ints, claimed_by: Ints, drain_us: float, blocks: int) -> Timeline:
        processed = ~np.isnan(self.end)
        sm = np.where(processed, self.worker // self.per_block % self.model.num_sms, -1)
        preprocess = np.array([self._host_us(hop) for hop in range(self.work.num_hops)])
        end = float(self.end[processed].max()) if processed.any() else float(preprocess[0])
        resident = min(blocks, self.resident) * self.per_block * self.unit.rows
        return Timeline(
            self.enqueue, self.start, self.end, block,
            sm, self.worker, processed, slot, claimed_by, preprocess, None, end + drain_us, drain_us, blocks,
            resident, self.claim, self.claimer,
        )  # fmt: skip

    def queue(
        self, fetch_size: int, num_blocks: int | None, one_shot: bool, grid_tasks: int | None
    ) -> Timeline:
        from gnnsample_lab.gpu_model import queues

        work, n = self.work, self.work.num_tasks
        seeds = int(work.hop_ptr[1])
        grid = max(n, grid_tasks or n)
        blocks = self.resident if num_blocks is None else min(num_blocks, self.resident)
        if one_shot:
            blocks = min(blocks, max(1, -(-grid // self.per_block)))
        block, slot = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
        fetch = 1 if one_shot else fetch_size
        if self.unit.rows > 1:
            tail = queues.run_queue_groups(
                seeds, work.child_ptr, work.child, self._host_us(0), blocks * self.per_block,
                self.model.num_sms, self.per_block, self.unit.rows, self.cost, self.parameters,
                self.enqueue, self.start, self.end, self.worker, block, slot, self.claim, self.claimer,
            )  # fmt: skip
        else:
            tail = queues.run_queue(
                seeds, work.child_ptr, work.child, self._host_us(0), blocks * self.per_block,
                self.model.num_sms, self.per_block, fetch, one_shot, self.cost, self.parameters,
                self.enqueue, self.start, self.end, self.worker, block, slot, self.claim, self.claimer,
            )  # fmt: skip
        drain = 0.0
        if one_shot:
            # The hardware also dispatches the blocks that get no task; they find nothing and end.
            drain = self.model.block_dispatch_us * max(0, grid - int(tail) - blocks)
            blocks = grid
        return self._fused(slot, block, np.full(n, -1, dtype=np.int64), drain, blocks)

    def published(self, fetch_size: int, num_blocks: int | None, task_index_start: int | None) -> Timeline:
        from gnnsample_lab.gpu_model import queues

        work, n = self.work, self.work.num_tasks
        seeds = int(work.hop_ptr[1])
        needed = max(1, -(-seeds // self.per_block))
        blocks = min(needed, self.resident) if num_blocks is None else min(num_blocks, self.resident)
        workers = blocks * self.per_block
        slot, claimed = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
        start = workers if task_index_start is None else task_index_start
        queues.run_published(
            seeds, work.child_ptr, work.child, self._host_us(0), workers, self.model.num_sms, self.per_block,
            fetch_size, start, self.cost, self.parameters,
            self.enqueue, self.start, self.end, self.worker, slot, claimed, self.claim, self.claimer,
        )  # fmt: skip
        block = np.where(self.worker >= 0, self.worker // self.per_block, -1)
        lost = (slot >= 0) & np.isnan(self.end)
        by = np.full(n, -1, dtype=np.int64)
        by[lost] = claimed[slot[lost]]
        return self._fused(slot, block, by, 0.0, blocks)
