"""The event loops of strategies with a queue: exact completion, a group of tasks at a time, and as published.

See ``loops.py`` for events, shared resources and the columns of ``cost``. ``claim[j]`` is when slot j was claimed, and
``claimer[j]`` the block that claimed it.
"""

from __future__ import annotations

import numpy as np

from gnnsample_lab.device.jit import njit
from gnnsample_lab.gpu_model.loops import (
    BLOCK_START,
    DISPATCH,
    POLL,
    PUBLISH,
    QUEUE_LATENCY,
    QUEUE_SERVICE,
    QUEUE_SLOT,
    _drop,
    _push,
    _run_group,
    _run_task,
)


@njit(cache=True)
def run_queue(  # type: ignore[no-untyped-def]
    num_seeds, child_ptr, child, t0, num_workers, num_sms, workers_per_block, fetch_size, one_shot, cost, par,
    enqueue, start, end, worker, block, slot, claim, claimer,
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
    handed = np.zeros(num_workers, np.bool_)
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
        if w < num:
            claim[w], claimer[w] = scheduler + par[BLOCK_START], w if one_shot else w // workers_per_block
        size = _push(time, who, size, scheduler + par[BLOCK_START], w)
    while size > 0:
        t, w = time[0], who[0]
        size = _drop(time, who, size)
        sm = (w // workers_per_block) % num_sms
        done = running[w]
        if done >= 0 and not handed[w]:
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
                tail_free += par[QUEUE_SLOT] * new
                end[done] += tail_free - t
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
                        handed[v] = False
                        size = _push(time, who, size, end[task] - cost[task, 4], v)
                tail += new
            handed[w] = True
            if end[done] > t:
                size = _push(time, who, size, end[done], w)
                continue
        if done >= 0:
            active[sm] -= 1
            running[w] = -1
            ticket[w] += 1
            if one_shot:
                scheduler = max(scheduler, t) + par[DISPATCH]
                t = scheduler + par[BLOCK_START]
        if ticket[w] == until[w]:
            head_free = max(head_free, t) + par[QUEUE_SERVICE]
            t = head_free + par[QUEUE_LATENCY]
            ticket[w], until[w] = head, head + fetch_size
            for j in range(head, min(head + fetch_size, num)):
                claim[j], claimer[j] = head_free, j if one_shot else w // workers_per_block
            head += fetch_size
        j = ticket[w]
        if j < tail:
            task = task_in[j]
            worker[task], running[w] = w, task
            block[task] = j if one_shot else w // workers_per_block
            start[task] = max(t, enqueue[task])
            end[task] = _run_task(task, start[task], sm, cost, active, memory, par)
            handed[w] = False
            size = _push(time, who, size, end[task] - cost[task, 4], w)
        else:
            waiter[j] = w
            since[w] = t
    return tail


@njit(cache=True)
def run_queue_groups(  # type: ignore[no-untyped-def]
    num_seeds, child_ptr, child, t0, num_workers, num_sms, workers_per_block, rows, cost, par,
    enqueue, start, end, worker, block, slot, claim, claimer,
):  # fmt: skip
    """Exact completion with workers that take several tickets at once, as many as there is work for.

    A worker serves all of its published tickets together, then waits for the others. Returns the number of tasks
    queued.
    """
    num = len(start)
    task_in = np.empty(num, np.int64)
    waiter = np.full(num + num_workers * (rows + 1) + 1, -1, np.int32)
    queued = np.zeros(num, np.bool_)
    ticket = np.zeros(num_workers, np.int64)
    until = np.zeros(num_workers, np.int64)
    # Tickets before ``running`` are being served, those from there to ``until`` wait.
    running = np.zeros(num_workers, np.int64)
    handed = np.zeros(num_workers, np.bool_)
    time = np.empty(num_workers + 1)
    who = np.empty(num_workers + 1, np.int32)
    active = np.zeros(num_sms, np.int64)
    memory = np.zeros(1)
    for task in range(num_seeds):
        task_in[task], slot[task], enqueue[task], queued[task] = task, task, 0.0, True
    head, tail, size = np.int64(0), np.int64(num_seeds), 0
    head_free, tail_free, scheduler = 0.0, 0.0, t0
    for w in range(num_workers):
        if w % workers_per_block == 0:
            scheduler += par[DISPATCH]
        size = _push(time, who, size, scheduler + par[BLOCK_START], w)
    while size > 0:
        t, w = time[0], who[0]
        size = _drop(time, who, size)
        sm = (w // workers_per_block) % num_sms
        if running[w] > ticket[w]:
            new = 0
            for j in range(ticket[w], running[w] if not handed[w] else ticket[w]):
                done = task_in[j]
                for i in range(child_ptr[done], child_ptr[done + 1]):
                    task = child[i]
                    if not queued[task]:
                        queued[task] = True
                        task_in[tail + new], slot[task] = task, tail + new
                        new += 1
            if new > 0:
                tail_free = max(tail_free, t) + par[QUEUE_SERVICE]
                tail_free += par[QUEUE_SLOT] * new
                for j in range(ticket[w], running[w]):
                    end[task_in[j]] += tail_free - t
                published = tail_free + par[PUBLISH]
                for j in range(tail, tail + new):
                    enqueue[task_in[j]] = published
                    v = waiter[j]
                    if v >= 0:
                        waiter[j] = -1
                        size = _push(time, who, size, published + par[POLL], v)
                tail += new
            handed[w] = True
            if end[task_in[ticket[w]]] > t:
                size = _push(time, who, size, end[task_in[ticket[w]]], w)
                continue
            active[sm] -= running[w] - ticket[w]
            ticket[w] = running[w]
        if ticket[w] == until[w]:
            head_free = max(head_free, t) + par[QUEUE_SERVICE]
            t = head_free + par[QUEUE_LATENCY]
            tickets = min(max((tail - head) // num_workers, 1), rows)
            ticket[w], until[w] = head, head + tickets
            for j in range(head, min(head + tickets, num)):
                claim[j], claimer[j] = head_free, w // workers_per_block
            running[w] = head
            head += tickets
        j = ticket[w]
        if j >= tail:
            waiter[j] = w
            continue
        if enqueue[task_in[j]] > t:
            t = enqueue[task_in[j]] + par[POLL]
        while j < min(until[w], tail) and enqueue[task_in[j]] <= t:
            j += 1
        ends = _run_group(task_in, ticket[w], j, t, sm, cost, active, memory, par)
        for i in range(ticket[w], j):
            task = task_in[i]
            worker[task], block[task] = w, w // workers_per_block
            start[task], end[task] = t, ends
        after = 0.0
        for i in range(ticket[w], j):
            after = max(after, cost[task_in[i], 4])
        running[w], handed[w] = j, False
        size = _push(time, who, size, ends - after, w)
    return tail


@njit(cache=True)
def run_published(  # type: ignore[no-untyped-def]
    num_seeds, child_ptr, child, t0, num_workers, num_sms, workers_per_block, fetch_size, task_index_start,
    cost, par,
    enqueue, start, end, worker, slot, claimed_by, claim, claimer,
):  # fmt: skip
    """PGSampler's Algorithm 1 as printed, with the tasks that it loses (see ``run.simulate``).

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
                first_slot, take, claimed = np.int64(w), np.int64(1), t
                first[w] = False
            else:
                head_free = max(head_free, t) + par[QUEUE_SERVICE]
                claimed = head_free
                t = head_free + par[QUEUE_LATENCY]
                first_slot, take = head, np.int64(fetch_size)
                head += fetch_size
            read = 0
            leaves = first_slot >= tail
            for j in range(first_slot, first_slot + take):
                if j < num:
                    claim[j], claimer[j] = claimed, w // workers_per_block
                if not leaves and j < tail and (enqueue[task_in[j]] <= t or writer[j] == w):
                    batch[w, read] = task_in[j]
                    read += 1
                elif j < num:
                    # The slot is still empty and is never read again, so a task written there later is lost.
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
