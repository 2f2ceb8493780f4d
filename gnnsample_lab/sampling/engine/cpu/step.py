# mypy: allow-untyped-defs, no-disallow-incomplete-defs, no-check-untyped-defs
"""One step of one sample on the CPU: transits, combined neighbourhood, draws, redraws."""

from __future__ import annotations

import numpy as np

from gnnsample_lab.device.jit import njit

from . import context as c
from . import memory as mem
from . import stream as cpu_stream
from .memory import call_next, call_transits, get, put, read_i8


@njit(inline="always")
def write_id(ctx, address, i, value):
    if get(ctx, mem.ID_BYTES) == 4:
        mem.write_i4(address, i, value)
    else:
        mem.write_i8(address, i, value)


@njit(inline="always")
def _draw(ctx, function, j, attempt, deferred, line):
    """One call of ``next``: a vertex or NULL."""
    put(ctx, mem.J, j)
    put(ctx, mem.ATTEMPT, attempt)
    cpu_stream.start_stream(ctx, 0)
    v = call_next(function, ctx, get(ctx, mem.STEP))
    if get(ctx, mem.FAIL_CODE) != 0:
        return np.int64(-1)
    if deferred:
        if v < 0:
            return np.int64(-1)
        combined = get(ctx, mem.COMBINED)
        if combined != 0:
            return read_i8(combined, v)
        return c.read_id(ctx, get(ctx, mem.INDICES), get(ctx, mem.BEGIN) + v)
    if v < -1 or v >= get(ctx, mem.NUM_NODES):
        cpu_stream.fail(ctx, line, 6)
        return np.int64(-1)
    return v


@njit(inline="always")
def _aim(ctx, k, v):
    """Make the list of transit ``k``, vertex ``v``, the ``src_edges`` of the next call."""
    begin = c.begin_of(ctx, v)
    put(ctx, mem.K, k)
    put(ctx, mem.TRANSIT, v)
    put(ctx, mem.BEGIN, begin)
    put(ctx, mem.COUNT, c.begin_of(ctx, v + 1) - begin)


@njit(inline="always")
def _report(ctx, status):
    """Merge a call's failure into ``status``, which keeps that of the lowest sample, and clear it in the context."""
    code = get(ctx, mem.FAIL_CODE)
    if code != 0:
        put(ctx, mem.FAIL_CODE, np.int64(0))
        word = (np.uint64(get(ctx, mem.ROW)) << np.uint64(24)) | np.uint64(
            (get(ctx, mem.FAIL_LINE) << 4) | code
        )
        return min(status, word)
    return status


@njit(cache=True)
def _insert(table, v):
    """Put ``v`` into the set; False if it was there."""
    mask = np.int64(table.size - 1)
    at = np.int64((np.uint64(v) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
    while table[at] != -1:
        if table[at] == v:
            return False
        at = (at + 1) & mask
    table[at] = v
    return True


@njit(cache=True)
def _make_unique(ctx, function, values, transits, collective, m, deferred, rounds, line, status):
    """Redraw repeated vertices in rounds. A vertex kept in an earlier round stays, else the lowest slot keeps it."""
    size = 2
    while size < 2 * values.size:
        size *= 2
    kept = np.full(size, -1, np.int64)
    missing = np.empty(values.size, np.int64)
    n = 0
    for slot in range(values.size):
        if values[slot] >= 0 and not _insert(kept, values[slot]):
            missing[n] = slot
            n += 1
    attempt = 1
    while n > 0 and attempt <= rounds:
        still = 0
        for i in range(n):
            slot = missing[i]
            j = slot
            if not collective:
                j = slot % m
                _aim(ctx, slot // m, transits[slot // m])
            v = _draw(ctx, function, j, np.int64(attempt), deferred, line)
            status = _report(ctx, status)
            if v >= 0 and not _insert(kept, v):
                missing[still] = slot
                still += 1
            values[slot] = v
        n = still
        attempt += 1
    for i in range(n):
        values[missing[i]] = -1
    return status


@njit(cache=True)
def _combine(ctx, transits, wants_edges, wants_prefix):
    """The concatenated lists of all transits, and the prefix sums of their weights."""
    total = np.int64(0)
    for k in range(transits.size):
        if transits[k] >= 0:
            total += c.begin_of(ctx, transits[k] + 1) - c.begin_of(ctx, transits[k])
    edges = np.empty(max(total, 1) if wants_edges else 1, np.int64)
    prefix = np.empty(total + 1 if wants_prefix else 1, np.int64)
    prefix[0] = 0
    put(ctx, mem.COUNT, total)
    if not wants_edges:
        return edges, prefix
    indices, at = get(ctx, mem.INDICES), 0
    for k in range(transits.size):
        if transits[k] < 0:
            continue
        begin, end = c.begin_of(ctx, transits[k]), c.begin_of(ctx, transits[k] + 1)
        for position in range(begin, end):
            edges[at] = c.read_id(ctx, indices, position)
            if wants_prefix:
                prefix[at + 1] = prefix[at] + c.weight_at(ctx, position)
            at += 1
    return edges, prefix


@njit(cache=True)
def take_step(
    ctx, following, choosing, collective, deferred, wants_edges, wants_prefix, rounds, line, transits, values,
    size, unique, status,
):  # fmt: skip
    """One step of one sample, into ``values``; returns whether it had a transit, and the status."""
    step, previous = get(ctx, mem.STEP), read_i8(get(ctx, mem.HISTORY), get(ctx, mem.STEP))
    before = read_i8(get(ctx, mem.WIDTHS), step)
    any_transit = False
    if choosing != 0:  # the context still has the last draw of the sample before
        put(ctx, mem.J, np.int64(0))
        put(ctx, mem.ATTEMPT, np.int64(0))
    for k in range(transits.size):
        v = np.int64(-1)
        if choosing != 0:
            put(ctx, mem.K, np.int64(k))
            cpu_stream.start_stream(ctx, 1)
            v = call_transits(choosing, ctx, step, np.int64(k))
            if v < -1 or v >= get(ctx, mem.NUM_NODES):
                cpu_stream.fail(ctx, line, 6)
            if get(ctx, mem.FAIL_CODE) != 0:
                v = np.int64(-1)
                status = _report(ctx, status)
        elif k < before:
            v = c.read_id(ctx, previous, get(ctx, mem.ROW) * before + k)
        transits[k] = v
        any_transit = any_transit or v >= 0
    values[:] = -1
    if not any_transit:
        return False, status
    if collective:
        edges, prefix = _combine(ctx, transits, wants_edges, wants_prefix)
        put(ctx, mem.K, np.int64(0))
        put(ctx, mem.TRANSIT, np.int64(-2))
        put(ctx, mem.COMBINED, np.int64(edges.ctypes.data) if wants_edges else np.int64(0))
        put(ctx, mem.COMBINED_PREFIX, np.int64(prefix.ctypes.data) if wants_prefix else np.int64(0))
        for j in range(size):
            values[j] = _draw(ctx, following, np.int64(j), np.int64(0), deferred, line)
            status = _report(ctx, status)
        if unique:
            status = _make_unique(
                ctx, following, values, transits, True, size, deferred, rounds, line, status
            )
        values[0] += (
            np.int64(edges.size + prefix.size) * 0
        )  # both live until here: the context has their addresses
        return True, status
    for k in range(transits.size):
        if transits[k] < 0:
            continue
        _aim(ctx, np.int64(k), transits[k])
        for j in range(size):
            values[k * size + j] = _draw(ctx, following, np.int64(j), np.int64(0), deferred, line)
            status = _report(ctx, status)
    if unique:
        status = _make_unique(ctx, following, values, transits, False, size, deferred, rounds, line, status)
    return True, status
