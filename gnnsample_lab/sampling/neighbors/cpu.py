# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""The CPU twin: one Numba sampler for every pick rule.

A draw does not depend on the schedule, so this one twin is the reference for every GPU strategy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np

from gnnsample_lab.device import philox
from gnnsample_lab.device.arrays import offsets_of
from gnnsample_lab.device.jit import njit, prange, start_threads
from gnnsample_lab.device.locks import check_process
from gnnsample_lab.sampling.weights import IntegerWeights

from .spec import HopPicks, SampleSpec

_CHUNK = 64
"""Rows per parallel task: enough to hide the cost of scheduling, few enough to balance rows of high degree."""
_ALONE = 1 << 16
"""Steps of work up to which one thread does all. Threads that start and meet cost microseconds on quiet cores, and
milliseconds where other processes keep the cores busy: whoever waits then spins through a whole slice of time."""


@njit(cache=True)
def _floyd(out, k, degree, v, batch, hop, seed):
    r = philox.four(v, batch, hop, philox.FLOYD, 0, 0, seed)
    for i in range(k):
        if i > 0 and (i & 3) == 0:
            r = philox.four(v, batch, hop, philox.FLOYD, i >> 2, 0, seed)
        j = degree - k + i
        t = philox.bounded(v, batch, hop, philox.FLOYD, i, philox.word(r, i), j + 1, seed)
        for earlier in range(i):
            if out[earlier] == t:
                t = j
                break
        out[i] = t


@njit(cache=True)
def _reservoir(out, k, degree, v, batch, hop, seed):
    for i in range(k):
        out[i] = i
    r = philox.four(v, batch, hop, philox.RESERVOIR, k >> 2, 0, seed)
    for j in range(k, degree):
        if (j & 3) == 0:
            r = philox.four(v, batch, hop, philox.RESERVOIR, j >> 2, 0, seed)
        slot = philox.bounded(v, batch, hop, philox.RESERVOIR, j, philox.word(r, j), j + 1, seed)
        if slot < k:
            out[slot] = j


@njit(cache=True)
def _replace(out, k, degree, v, batch, hop, seed):
    for i in range(k):
        r = philox.four(v, batch, hop, philox.REPLACE, i >> 2, 0, seed)
        out[i] = philox.bounded(v, batch, hop, philox.REPLACE, i, philox.word(r, i), degree, seed)


@njit(cache=True)
def _fisher_yates(out, k, degree, v, batch, hop, seed):
    # The permutation is virtual: what the place of a slot holds follows from the draws before it (see draw.cuh).
    for i in range(k):
        r = philox.four(v, batch, hop, philox.FISHER_YATES, i >> 2, 0, seed)
        out[i] = philox.bounded(v, batch, hop, philox.FISHER_YATES, i, philox.word(r, i), degree - i, seed)
    for i in range(k - 1, 0, -1):
        at = out[i]
        for earlier in range(i - 1, -1, -1):
            if out[earlier] == at:
                at = degree - earlier - 1
        out[i] = at


@njit(inline="always")
def _search(prefix, start, degree, target):
    # The last position whose prefix is <= target. An edge of weight zero spans no interval, so it is never found.
    low, high = start, start + degree
    while high - low > 1:
        mid = (low + high) >> 1
        if prefix[mid] <= target:
            low = mid
        else:
            high = mid
    return low - start


@njit(cache=True)
def _weighted(out, k, degree, start, prefix, v, batch, hop, seed, replace):
    base = prefix[start]
    total = prefix[start + degree] - base
    for i in range(k):
        target = philox.bounded64(v, batch, hop, philox.WEIGHTED, i, total, seed)
        if replace:
            out[i] = _search(prefix, start, degree, base + target)
            continue
        # Draw from the weight that is left: step over the intervals of edges already taken, in ascending order.
        for taken in range(i):
            begin = prefix[start + out[taken]] - base
            if target < begin:
                break
            target += prefix[start + out[taken] + 1] - base - begin
        position = _search(prefix, start, degree, base + target)
        slot = i
        while slot > 0 and out[slot - 1] > position:
            out[slot] = out[slot - 1]
            slot -= 1
        out[slot] = position
        total -= prefix[start + position + 1] - prefix[start + position]


@njit(parallel=True, cache=True)
def _count(frontier, indptr, available, k, rule, counts):
    for i in prange(frontier.size):
        v = frontier[i]
        degree = indptr[v + 1] - indptr[v]
        if rule == 3 or rule == 4:
            degree = min(degree, np.int64(available[v]))
        if k < 0:
            counts[i] = degree
        elif rule == 2 or rule == 4:
            counts[i] = k if degree > 0 else 0
        else:
            counts[i] = min(degree, k)


@njit(parallel=True, cache=True)
def _draw(vertices, rows, indptr, indices, prefix, k, rule, batch, hop, seed, offsets, positions, neighbors):
    count = vertices.size
    for chunk in prange((count + _CHUNK - 1) // _CHUNK):
        for i in range(chunk * _CHUNK, min(count, (chunk + 1) * _CHUNK)):
            v = vertices[i]
            start = indptr[rows[i]]
            degree = indptr[rows[i] + 1] - start
            out = positions[offsets[i] : offsets[i + 1]]
            m = out.size
            if m == 0:
                continue
            with_replacement = rule == 2 or rule == 4
            weighted = rule == 3 or rule == 4
            if k < 0 or (m < k and not with_replacement) or (m == degree and not with_replacement):
                # Everything is taken, in adjacency order; weighted rules leave zero weights out.
                slot = 0
                for j in range(degree):
                    if not weighted or prefix[start + j + 1] > prefix[start + j]:
                        if slot < m:
                            out[slot] = j
                        slot += 1
            elif rule == 0:
                _floyd(out, k, degree, v, batch, hop, seed)
            elif rule == 1:
                _reservoir(out, k, degree, v, batch, hop, seed)
            elif rule == 2:
                _replace(out, k, degree, v, batch, hop, seed)
            elif rule == 5:
                _fisher_yates(out, k, degree, v, batch, hop, seed)
            else:
                _weighted(out, k, degree, start, prefix, v, batch, hop, seed, rule == 4)
            for slot in range(m):
                out[slot] += start
            if neighbors.size > 0:
                for slot in range(m):
                    neighbors[offsets[i] + slot] = indices[out[slot]]


@njit(cache=True)
def insert_new(vertices, table, base, nodes, count):
    """Append the vertices that this batch has not seen to ``nodes``, in order; returns the new count.

    ``table`` is ``uint32[N]``. It holds ``base + 1 + local id`` for vertices of this batch and less than ``base`` for
    all others: because ``base`` rises from batch to batch, nobody has to clear the table.
    """
    for v in vertices:
        if table[v] < base:
            table[v] = base + 1 + count
            nodes[count] = v
            count += 1
    return count


@njit(parallel=True, cache=True)
def local_ids(vertices, table, base, out):
    """Write the local id of each vertex to ``out`` (``int32``); :func:`insert_new` has put them into ``table``."""
    for i in prange(vertices.size):
        out[i] = table[vertices[i]] - base - 1


_NO_PREFIX = np.zeros(1, dtype=np.uint64)
_NO_AVAILABLE = np.zeros(1, dtype=np.int32)


@contextlib.contextmanager
def threads_for(steps: int) -> Iterator[None]:
    """Let parallel loops of this thread run on one core while there are few ``steps`` to do."""
    check_process()
    start_threads()
    before = numba.get_num_threads()
    if steps <= _ALONE:
        numba.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(before)


def draw_hop(
    frontier: Any,
    indptr: Any,
    indices: Any,
    weights: IntegerWeights | None,
    spec: SampleSpec,
    batch_id: int,
    hop: int,
) -> HopPicks:
    """Draw one hop's picks on the CPU.

    Args:
        frontier: vertices to expand, distinct, global ids ``[n]``.
        indptr, indices: in-neighbour CSC of the graph, ``int64[N + 1]`` and ids ``[E]``.
        weights: needed when ``spec.weighted``.
        hop: which hop; it selects the fanout and is part of the draw's counter.
    """
    return draw_rows(frontier, frontier, indptr, indices, weights, spec, batch_id, hop)


def draw_rows(
    vertices: Any,
    rows: Any,
    indptr: Any,
    indices: Any,
    weights: IntegerWeights | None,
    spec: SampleSpec,
    batch_id: int,
    hop: int,
    neighbors: bool = True,
) -> HopPicks:
    """As :func:`draw_hop`, from lists that stand anywhere: draws are keyed by ``vertices``, lists found by ``rows``.

    Args:
        vertices: vertices to expand, original ids ``[n]``.
        rows: where their lists are: that of ``vertices[i]`` is ``indices[indptr[rows[i]]:indptr[rows[i] + 1]]``.
        indptr, indices: lists, ``int64`` and ids.
        weights: of these lists, when ``spec.weighted``; ``available`` by row.
        hop: which hop.
        neighbors: False leaves the neighbours empty, for lists whose lengths alone are known; not when
            ``spec.weighted``.

    Returns:
        Picks whose positions are indices into ``indices``.
    """
    k = spec.fanouts[hop]
    counts = np.empty(vertices.size, dtype=np.int32)
    available = weights.available if weights is not None else _NO_AVAILABLE
    prefix = weights.prefix if weights is not None else _NO_PREFIX
    with threads_for(rows.size):
        _count(rows, indptr, available, k, spec.rule, counts)
    offsets = offsets_of(counts)
    positions = np.empty(offsets[-1], dtype=np.int64)
    found = np.empty(offsets[-1] if neighbors else 0, dtype=indices.dtype)
    steps = int(offsets[-1])
    if spec.rule == 1 and steps <= _ALONE:  # a reservoir goes through the whole list
        steps = int((indptr[rows + 1] - indptr[rows]).sum())
    with threads_for(steps):
        _draw(
            vertices, rows, indptr, indices, prefix, k, spec.rule, np.uint64(batch_id), np.uint64(hop),
            np.uint64(spec.seed), offsets, positions, found,
        )  # fmt: skip
    return HopPicks(vertices, counts, found, positions, offsets)
