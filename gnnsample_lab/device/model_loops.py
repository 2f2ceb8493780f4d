"""The event loops of the GPU model, compiled with Numba; see ``model_run.py`` for what they simulate and why.

Every loop keeps one pending event per worker in a binary heap ordered by (time, worker), so a replay is the
same on every machine. Three shared resources are single servers that requests pass in order of time: the
block scheduler, the queue's counters (atomics on one address are served one after the other) and device
memory (bytes over bandwidth).

``cost`` columns: 0 latency_us, 1 work_us, 2 memory_us. Work is throughput: it stretches once more workers are
busy on an SM than saturate it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Columns of the parameter vector that all loops take.
DISPATCH, BLOCK_START, QUEUE_SERVICE, QUEUE_LATENCY, PUBLISH, POLL, SATURATION, NUM_PARAMETERS = range(8)


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
def run_assigned(first_of, order, t0, num_sms, workers_per_block, cost, par, start, end, worker):  # type: ignore[no-untyped-def]
    """Every worker runs its own list: tasks ``order[first_of[w]:first_of[w + 1]]``, in that order."""
    used = len(first_of) - 1
    time = np.empty(used + 1)
    who = np.empty(used + 1, np.int32)
    position = first_of[:-1].copy()
    active = np.zeros(num_sms, np.int64)
    memory = np.zeros(1)
    size = 0
    for w in range(used):
        if position[w] == first_of[w + 1]:
            continue
        task = order[position[w]]
        worker[task] = w
        start[task] = t0 + par[DISPATCH] * (w // workers_per_block + 1) + par[BLOCK_START]
        end[task] = _run_task(
            task, start[task], (w // workers_per_block) % num_sms, cost, active, memory, par
        )
        size = _push(time, who, size, end[task], w)
    while size > 0:
        t, w = time[0], who[0]
        size = _drop(time, who, size)
        sm = (w // workers_per_block) % num_sms
        active[sm] -= 1
        position[w] += 1
        if position[w] < first_of[w + 1]:
            task = order[position[w]]
            worker[task] = w
            start[task] = t
            end[task] = _run_task(task, t, sm, cost, active, memory, par)
            size = _push(time, who, size, end[task], w)


@njit(cache=True)
def run_queue(  # type: ignore[no-untyped-def]
    num_seeds, child_ptr, child, t0, num_workers, num_sms, workers_per_block, fetch_size, one_shot, cost, par,
    enqueue, start, end, worker, block, slot,
):  # fmt: skip
    """Exact completion: tickets are kept until their slot is published, and none leaves while work is
    outstanding.

    With ``one_shot`` a worker is a block of a non-persistent grid: it serves one ticket and makes room for
    the next block. Returns the number of tasks queued.
    """
    num = len(start)
    task_in = np.empty(num, np.int64)
    waiter = np.full(num + num_workers * (fetch_size + 1) + 1, -1, np.int32)
    queued = np.zeros(num, np.bool_)
    ticket = np.zeros(num_workers, np.int64)
    until = np.zeros(num_workers, np.int64)
    running = np.full(num_workers, -1, np.int64)
    since = np.zeros(num_workers)
    time = np.empty(num_workers + 1)
    who = np.empty(num_workers + 1, np.int32)
    active = np.zeros(num_sms, np.int64)
    memory = np.zeros(1)
    for task in range(num_seeds):
        task_in[task], slot[task], enqueue[task], queued[task] = task, task, 0.0, True
    head, tail, size = np.int64(num_workers), np.int64(num_seeds), 0
    head_free, tail_free, scheduler = 0.0, 0.0, t0
    for w in range(num_workers):
        # As published: a block's first ticket is its own number, so the shared counter starts at the block
        # count.
        if w % workers_per_block == 0:
            scheduler += par[DISPATCH]
        ticket[w], until[w] = w, w + 1
        size = _push(time, who, size, scheduler + par[BLOCK_START], w)
    while size > 0:
        t, w = time[0], who[0]
        size = _drop(time, who, size)
        sm = (w // workers_per_block) % num_sms
        done = running[w]
        if done >= 0:
            active[sm] -= 1
            running[w] = -1
            new = 0
            for i in range(child_ptr[done], child_ptr[done + 1]):
                task = child[i]
                if not queued[task]:
                    queued[task] = True
                    task_in[tail + new], slot[task] = task, tail + new
                    new += 1
            if new > 0:
                # One atomic reserves the slots of all children of a task.
                tail_free = max(tail_free, t) + par[QUEUE_SERVICE]
                published = tail_free + par[PUBLISH]
                for j in range(tail, tail + new):
                    enqueue[task_in[j]] = published
                    v = waiter[j]
                    if v >= 0:
                        waiter[j] = -1
                        task = task_in[j]
                        worker[task], running[v] = v, task
                        block[task] = j if one_shot else v // workers_per_block
                        start[task] = max(published, since[v]) + par[POLL]
                        vsm = (v // workers_per_block) % num_sms
                        end[task] = _run_task(task, start[task], vsm, cost, active, memory, par)
                        size = _push(time, who, size, end[task], v)
                tail += new
            ticket[w] += 1
            if one_shot:
                scheduler = max(scheduler, t) + par[DISPATCH]
                t = scheduler + par[BLOCK_START]
        if ticket[w] == until[w]:
            head_free = max(head_free, t) + par[QUEUE_SERVICE]
            t = head_free + par[QUEUE_LATENCY]
            ticket[w], until[w] = head, head + fetch_size
            head += fetch_size
        j = ticket[w]
        if j < tail:
            task = task_in[j]
            worker[task], running[w] = w, task
            block[task] = j if one_shot else w // workers_per_block
            start[task] = max(t, enqueue[task])
            end[task] = _run_task(task, start[task], sm, cost, active, memory, par)
            size = _push(time, who, size, end[task], w)
        else:
            waiter[j] = w
            since[w] = t
    return tail


@njit(cache=True)
def run_published(  # type: ignore[no-untyped-def]
    num_seeds, child_ptr, child, t0, num_workers, num_sms, workers_per_block, fetch_size, task_index_start,
    cost, par,
    enqueue, start, end, worker, slot, claimed_by,
):  # fmt: skip
    """PGSampler's Algorithm 1 as printed, with the tasks that it loses (see ``model_run.simulate``).

    The tail advances at once and the slot is written ``PUBLISH`` later, so another block may read it empty in
    between. ``claimed_by[task]`` is the block that claimed the slot of a task that no one ran, -1 if none
    did.
    """
    num = len(start)
    task_in = np.empty(num, np.int64)
    writer = np.full(num, -1, np.int32)
    queued = np.zeros(num, np.bool_)
    batch = np.empty((num_workers, max(fetch_size, 1)), np.int64)
    batch_at = np.zeros(num_workers, np.int64)
    batch_len = np.zeros(num_workers, np.int64)
    running = np.full(num_workers, -1, np.int64)
    first = np.ones(num_workers, np.bool_)
    time = np.empty(num_workers + 1)
    who = np.empty(num_workers + 1, np.int32)
    active = np.zeros(num_sms, np.int64)
    memory = np.zeros(1)
    for task in range(num_seeds):
        task_in[task], slot[task], enqueue[task], queued[task] = task, task, 0.0, True
    head, tail, size = np.int64(task_index_start), np.int64(num_seeds), 0
    head_free, tail_free, scheduler = 0.0, 0.0, t0
    for w in range(num_workers):
        if w % workers_per_block == 0:
            scheduler += par[DISPATCH]
        size = _push(time, who, size, scheduler + par[BLOCK_START], w)
    while size > 0:
        t, w = time[0], who[0]
        size = _drop(time, who, size)
        sm = (w // workers_per_block) % num_sms
        done = running[w]
        if done >= 0:
            active[sm] -= 1
            running[w] = -1
            base = tail
            for i in range(child_ptr[done], child_ptr[done + 1]):
                task = child[i]
                if not queued[task]:
                    queued[task] = True
                    task_in[tail], slot[task], writer[tail] = task, tail, w
                    tail += 1
            if tail > base:
                tail_free = max(tail_free, t) + par[QUEUE_SERVICE]
                for j in range(base, tail):
                    enqueue[task_in[j]] = tail_free + par[PUBLISH]
        while batch_at[w] == batch_len[w]:
            if first[w]:
                claim, take = np.int64(w), np.int64(1)
                first[w] = False
            else:
                head_free = max(head_free, t) + par[QUEUE_SERVICE]
                t = head_free + par[QUEUE_LATENCY]
                claim, take = head, np.int64(fetch_size)
                head += fetch_size
            read = 0
            leaves = claim >= tail
            for j in range(claim, claim + take):
                if not leaves and j < tail and (enqueue[task_in[j]] <= t or writer[j] == w):
                    batch[w, read] = task_in[j]
                    read += 1
                elif j < num:
                    # Not there yet, and never looked at again: whatever is written here later is lost.
                    claimed_by[j] = w // workers_per_block
            batch_at[w], batch_len[w] = 0, read
            if leaves:
                break
        if batch_at[w] < batch_len[w]:
            task = batch[w, batch_at[w]]
            batch_at[w] += 1
            worker[task], running[w] = w, task
            start[task] = max(t, enqueue[task])
            end[task] = _run_task(task, start[task], sm, cost, active, memory, par)
            size = _push(time, who, size, end[task], w)
    return tail
