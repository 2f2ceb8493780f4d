"""Keys of drawn edges -> CSC: sort, drop duplicates, trim to the exact edge count. NumPy and CuPy alike.

A graph whose keys do not fit in memory is built in passes over ranges of destinations: each pass draws all
edges again and keeps those of its range, which costs time and no memory. The result does not depend on the
passes.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from gnnsample_lab.device.splitmix import GOLDEN, finalise
from gnnsample_lab.graph import checks
from gnnsample_lab.graph.csc import key_bits, rows_of
from gnnsample_lab.graph.edgewise.plan import Plan, first_draws, more_draws, most_draws

MAX_ROUNDS = 12


class Backend(Protocol):
    """Where edges are drawn."""

    xp: Any
    chunk: int
    """Keys that are handled at once after sorting."""

    def key_budget(self, plan: Plan) -> int:
        """How many keys may exist at once."""

    def histogram(self, plan: Plan, num_draws: int, shift: int, blocks: int) -> np.ndarray:
        """int64[blocks] on the host: keys by block of 2**shift destinations."""

    def release(self) -> None:
        """Give unused memory back, once a graph is built."""

    def keys(self, plan: Plan, num_draws: int, low: int, high: int, count: int) -> Any:
        """The ``count`` keys ``dst << bits | src`` with destination in ``[low, high)``, in any order."""


def assemble(plan: Plan, backend: Backend) -> tuple[Any, Any]:
    """``(indptr int64[N+1], indices)`` of the plan's distinct edges, exactly ``plan.num_edges`` where it
    says so.

    Where even ``MAX_ROUNDS`` enlargements, or as many draws as :func:`~.plan.most_draws` says, do not find that many
    distinct edges (a graph asked to be nearly complete), the graph has the edges that were found.
    """
    draws, limit, rounds = first_draws(plan), most_draws(plan), 0
    while True:
        indptr, indices = _distinct(plan, backend, draws)
        found = len(indices)
        given_up = rounds == MAX_ROUNDS if limit is None else draws == limit
        if plan.num_edges is None or found >= plan.num_edges or given_up:
            break
        del indptr, indices
        more = more_draws(draws, found, plan.num_edges)
        if limit is not None:  # edges become rare: what is missing says less and less of what finds it
            more = min(more if rounds < MAX_ROUNDS else max(more, 2 * draws), limit)
        draws, rounds = more, rounds + 1
    if plan.num_edges is not None and len(indices) > plan.num_edges:
        indptr, indices = _trim(indptr, indices, plan, backend)
    backend.release()
    return indptr, indices


def _distinct(plan: Plan, backend: Backend, draws: int) -> tuple[Any, Any]:
    xp, bits = backend.xp, key_bits(plan.num_nodes)
    total = draws * (2 if plan.symmetric else 1)
    indices = xp.empty(total, dtype=checks.id_dtype(plan.num_nodes))
    counts = xp.zeros(plan.num_nodes, dtype=np.int64)
    used = 0
    for low, high, size in _passes(plan, backend, draws, total):
        keys = backend.keys(plan, draws, low, high, size)
        keys.sort()
        before = -1
        for start in range(0, len(keys), backend.chunk):
            part = keys[start : start + backend.chunk]
            keep = xp.empty(len(part), dtype=bool)
            keep[:1] = part[:1] != before
            keep[1:] = part[1:] != part[:-1]
            before = int(part[-1])
            part = part[keep]
            if not len(part):
                continue
            indices[used : used + len(part)] = part & ((1 << bits) - 1)
            used += len(part)
            part >>= bits
            _count_rows(part, counts, 1, xp)
        del keys
    indptr = xp.zeros(plan.num_nodes + 1, dtype=np.int64)
    xp.cumsum(counts, out=indptr[1:])
    return indptr, _shrink(indices, used)


def _passes(plan: Plan, backend: Backend, draws: int, total: int) -> list[tuple[int, int, int]]:
    """Ranges of destinations and their key counts, each within the backend's budget where possible."""
    budget = max(1, backend.key_budget(plan))
    if total <= budget:
        return [(0, plan.num_nodes, total)]
    shift = max(0, key_bits(plan.num_nodes) - 14)
    blocks = (plan.num_nodes >> shift) + 1
    sizes = backend.histogram(plan, draws, shift, blocks)
    passes, first, inside = [], 0, 0
    for block in range(blocks):
        if inside and inside + int(sizes[block]) > budget:
            passes.append((first << shift, block << shift, inside))
            first, inside = block, 0
        inside += int(sizes[block])
    passes.append((first << shift, plan.num_nodes, inside))
    return passes


def _count_rows(rows: Any, counts: Any, sign: int, xp: Any) -> None:
    """Add ``sign`` to ``counts`` for every entry of the ascending ``rows``."""
    first, last = int(rows[0]), int(rows[-1])
    counts[first : last + 1] += sign * xp.bincount(rows - first, minlength=last - first + 1)


def _shrink(indices: Any, used: int) -> Any:
    # A view would keep the unused tail alive; a copy of nearly everything would double the peak instead.
    return indices[:used].copy() if used < 0.9 * len(indices) or used < 1 << 24 else indices[:used]


def _trim(indptr: Any, indices: Any, plan: Plan, backend: Backend) -> tuple[Any, Any]:
    """Drop the surplus edges with the smallest hashes; an undirected edge goes with its reverse."""
    assert plan.num_edges is not None
    xp = backend.xp
    surplus = len(indices) - plan.num_edges
    drop = surplus // 2 if plan.symmetric else surplus
    if drop == 0:
        return indptr, indices
    pairs = max(1, len(indices) // 2 if plan.symmetric else len(indices))
    share = drop / pairs
    limit = min(2**64 - 1, int(2.0**64 * (share + 8 * math.sqrt(share / pairs) + 64 / pairs)))
    gone = _smallest(indptr, indices, plan, backend, drop, limit)
    if gone is None:
        gone = _smallest(indptr, indices, plan, backend, drop, 2**64 - 1)
    assert gone is not None
    rows = xp.searchsorted(indptr, gone, side="right") - 1
    counts = indptr[1:] - indptr[:-1]
    counts -= xp.bincount(rows, minlength=plan.num_nodes)
    used = 0
    for start in range(0, len(indices), backend.chunk):
        part = indices[start : start + backend.chunk]
        first, last = (int(x) for x in xp.searchsorted(gone, xp.asarray([start, start + len(part)])))
        keep = xp.ones(len(part), dtype=bool)
        keep[gone[first:last] - start] = False
        part = part[keep]
        indices[used : used + len(part)] = part
        used += len(part)
    xp.cumsum(counts, out=indptr[1:])
    return indptr, _shrink(indices, used)


def _smallest(indptr: Any, indices: Any, plan: Plan, backend: Backend, drop: int, limit: int) -> Any | None:
    """Positions, ascending, of the edges of the ``drop`` pairs with the smallest hashes.

    None when fewer than ``drop`` hashes lie below ``limit``. The hash is one to one, so pairs never tie.
    """
    xp = backend.xp
    positions, hashes, counted = [], [], []
    for start in range(0, len(indices), backend.chunk):
        part = indices[start : start + backend.chunk]
        rows = rows_of(indptr, start, start + len(part))
        found = _pair_hashes(rows, part, plan, xp)
        below = found < np.uint64(limit)
        if plan.symmetric:
            below &= rows != part  # a self-loop is no pair
        at = xp.flatnonzero(below)
        rows, part = rows[at], part[at]
        positions.append(at + start)
        hashes.append(found[at])
        # A pair is counted by its edge to the lower vertex.
        counted.append(rows < part if plan.symmetric else xp.ones(len(at), dtype=bool))
    position, value, once = xp.concatenate(positions), xp.concatenate(hashes), xp.concatenate(counted)
    candidates = xp.sort(value[once])
    if len(candidates) < drop:
        return None
    return position[value <= candidates[drop - 1]]


def _pair_hashes(dst: Any, src: Any, plan: Plan, xp: Any) -> Any:
    """uint64 hash of each edge; of the unordered pair when symmetric."""
    src = src.astype(np.int64)
    low, high = (xp.minimum(dst, src), xp.maximum(dst, src)) if plan.symmetric else (dst, src)
    low = low << 32
    low |= high
    x = low.view(np.uint64)
    x ^= np.uint64((plan.seed * GOLDEN + 0x5851F42D4C957F2D) & (2**64 - 1))
    return finalise(x)
