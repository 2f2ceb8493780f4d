"""The event loops of the GPU model, compiled with Numba; see ``run.py`` for what they simulate and why.

Every loop keeps one pending event per worker in a binary heap ordered by (time, worker), so a replay is the
same on every machine. Three shared resources are single servers that requests pass in order of time: the
block scheduler, the queue's counters (atomics on one address are served one after the other) and device
memory (bytes over bandwidth).

``cost`` columns: 0 latency_us, 1 work_us, 2 memory_us, 3 the part of the work that tasks of one group of threads
do one after another (for a single task it is ordinary work), 4 the rest of the latency after a task has queued its
new tasks. Work is limited by throughput: it takes longer once more workers are busy on an SM than saturate it.
"""

from __future__ import annotations

import numpy as np

from gnnsample_lab.device.jit import njit

# Columns of the parameter vector that all loops take.
DISPATCH, BLOCK_START, QUEUE_SERVICE, QUEUE_LATENCY, PUBLISH, POLL, SATURATION, QUEUE_SLOT = range(8)


@njit(cache=True, inline="always")
def _before(time, worker, i, j):  # type: ignore[no-untyped-def]
    return time[i] < time[j] or (time[i] == time[j] and worker[i] < worker[j])


@njit(cache=True)
def _push(time, worker, size, t, w):  # type: ignore[no-untyped-def]
    i = size
    time[i] = t
    worker[i] = w
    while i > 0:
        up = (i - 1) >> 1
        if not _before(time, worker, i, up):
            break
        time[i], time[up] = time[up], time[i]
        worker[i], worker[up] = worker[up], worker[i]
        i = up
    return size + 1


@njit(cache=True)
def _drop(time, worker, size):  # type: ignore[no-untyped-def]
    """Remove the earliest event; the caller has read it from index 0."""
    size -= 1
    time[0] = time[size]
    worker[0] = worker[size]
    i = 0
    while True:
        low = 2 * i + 1
        if low >= size:
            return size
        if low + 1 < size and _before(time, worker, low + 1, low):
            low += 1
        if not _before(time, worker, low, i):
            return size
        time[i], time[low] = time[low], time[i]
        worker[i], worker[low] = worker[low], worker[i]
        i = low


@njit(cache=True, inline="always")
def _run_task(task, t, sm, cost, active, memory, par):  # type: ignore[no-untyped-def]
    """End of a task that starts at ``t``; counts its worker as busy and reserves its share of memory time."""
    active[sm] += 1
    crowding = max(1.0, active[sm] / par[SATURATION])
    memory[0] = max(memory[0], t) + cost[task, 2]
    return max(t + cost[task, 0] + cost[task, 1] * crowding, memory[0])


@njit(cache=True, inline="always")
def _run_group(tasks, first, last, t, sm, cost, active, memory, par):  # type: ignore[no-untyped-def]
    """End of tasks that one group of threads serves together from ``t``."""
    active[sm] += last - first
    latency, side_by_side, in_turn, moved = 0.0, 0.0, 0.0, 0.0
    for i in range(first, last):
        task = tasks[i]
        latency = max(latency, cost[task, 0])
        side_by_side = max(side_by_side, cost[task, 1] - cost[task, 3])
        in_turn += cost[task, 3]
        moved += cost[task, 2]
    crowding = max(1.0, active[sm] / par[SATURATION])
    memory[0] = max(memory[0], t) + moved
    return max(t + latency + (side_by_side + in_turn) * crowding, memory[0])


@njit(cache=True)
def run_dispatch(first, last, t0, num_workers, num_sms, workers_per_block, cost, par, start, end, worker):  # type: ignore[no-untyped-def]
    """One task per block; the hardware gives the next block to whichever resident slot is free first."""
    num = last - first
    used = min(num_workers, num)
    time = np.empty(used + 1)
    who = np.empty(used + 1, np.int32)
    task_of = np.empty(used, np.int64)
    active = np.zeros(num_sms, np.int64)
    memory = np.zeros(1)
    size, scheduler = 0, t0
    for w in range(used):
        scheduler += par[DISPATCH]
        task = first + w
        task_of[w], worker[task] = task, w
        start[task] = scheduler + par[BLOCK_START]
        end[task] = _run_task(
            task, start[task], (w // workers_per_block) % num_sms, cost, active, memory, par
        )
        size = _push(time, who, size, end[task], w)
    next_task = first + used
    while size > 0:
        t, w = time[0], who[0]
        size = _drop(time, who, size)
        sm = (w // workers_per_block) % num_sms
        active[sm] -= 1
        if next_task < last:
            scheduler = max(scheduler, t) + par[DISPATCH]
            task = next_task
            next_task += 1
            task_of[w], worker[task] = task, w
            start[task] = scheduler + par[BLOCK_START]
            end[task] = _run_task(task, start[task], sm, cost, active, memory, par)
            size = _push(time, who, size, end[task], w)


@njit(cache=True)
def run_assigned(  # type: ignore[no-untyped-def]
    first_of, order, t0, num_sms, together, workers_per_block, cost, par, start, end, worker
):
    """Every worker runs its own list, ``order[first_of[w]:first_of[w + 1]]``, ``together`` tasks at a time."""
    used = len(first_of) - 1
    time = np.empty(used + 1)
    who = np.empty(used + 1, np.int32)
    position = first_of[:-1].copy()
    running = np.zeros(used, np.int64)
    active = np.zeros(num_sms, np.int64)
    memory = np.zeros(1)
    size = 0
    for w in range(used):
        if position[w] < first_of[w + 1]:
            size = _push(
                time, who, size, t0 + par[DISPATCH] * (w // workers_per_block + 1) + par[BLOCK_START], w
            )
    while size > 0:
        t, w = time[0], who[0]
        size = _drop(time, who, size)
        sm = (w // workers_per_block) % num_sms
        active[sm] -= running[w]
        running[w] = 0
        if position[w] < first_of[w + 1]:
            last = min(position[w] + together, first_of[w + 1])
            ends = _run_group(order, position[w], last, t, sm, cost, active, memory, par)
            for i in range(position[w], last):
                task = order[i]
                worker[task], start[task], end[task] = w, t, ends
            running[w] = last - position[w]
            position[w] = last
            size = _push(time, who, size, ends, w)
