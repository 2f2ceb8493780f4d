# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""Assigning vertices one by one, with a limit on vertices, edges and seeds of a part at once.

Streaming, the refinement of an assignment and its repair share one rule: a vertex goes to the part that holds most of
its neighbours, among the parts that have room for it. Where none has, it goes where it adds least to what is too much,
which lets a part full of edges and a part full of vertices exchange a hub for many leaves.

The loops are serial and draw nothing, so that a result is a function of the arguments on every machine.
"""

from __future__ import annotations

import numpy as np

from gnnsample_lab.device.jit import njit

QUANTITIES = ("vertices", "edges", "seeds")
"""What no part may have too much of: columns of ``loads``. An edge is its destination's."""


@njit(inline="always")
def _add(loads, p, sign, degree, is_seed):
    loads[p, 0] += sign
    loads[p, 1] += sign * degree
    loads[p, 2] += sign * is_seed


@njit(inline="always")
def _fill(loads, limits, p, degree, is_seed):
    """How full part ``p`` is with one more vertex, by its fullest quantity, and how much that adds to its excess."""
    fill = (loads[p, 0] + 1) / limits[0]
    excess = max(0.0, fill - max(1.0, loads[p, 0] / limits[0]))
    if degree > 0:
        after = (loads[p, 1] + degree) / limits[1]
        fill = max(fill, after)
        excess += max(0.0, after - max(1.0, loads[p, 1] / limits[1]))
    if is_seed > 0:
        after = (loads[p, 2] + 1) / limits[2]
        fill = max(fill, after)
        excess += max(0.0, after - max(1.0, loads[p, 2] / limits[2]))
    return fill, excess


@njit(cache=True)
def assign(begins, lists, order, indptr, is_seed, limits, penalty, owner, loads):
    """Visit vertices in ``order`` and put each where the rule says; returns how many moved.

    Args:
        begins, lists: neighbours that count, ``int64[N + 1]`` and integers.
        order: vertices, ``int64[n]``.
        indptr: of the graph, ``int64[N + 1]``: in-degrees are the edges that a vertex brings.
        is_seed: ``uint8[N]``.
        limits: the most that a part may have of each quantity, ``float64[3]``, positive.
        penalty: neighbours that a full part must have more than an empty one, as in Fennel; 0: all count alike.
        owner: the part of each vertex, -1 for none yet, ``int16[N]``; changed.
        loads: what each part has, ``int64[K, 3]``; changed.
    """
    num_parts = loads.shape[0]
    near = np.zeros(num_parts, dtype=np.int64)
    moved = 0
    for v in order:
        old = owner[v]
        degree, seed = indptr[v + 1] - indptr[v], np.int64(is_seed[v])
        if old >= 0:
            _add(loads, old, -1, degree, seed)
        near[:] = 0
        for position in range(begins[v], begins[v + 1]):
            u = lists[position]
            if u != v and owner[u] >= 0:
                near[owner[u]] += 1
        best, best_excess, best_score, best_fill = -1, 0.0, 0.0, 0.0
        for p in range(num_parts):
            fill, excess = _fill(loads, limits, p, degree, seed)
            score = near[p] - penalty * np.sqrt(fill)
            if best < 0:
                better = True
            elif excess != best_excess:
                better = excess < best_excess
            elif score != best_score:
                better = score > best_score
            elif p == old or best == old:
                better = p == old
            else:
                better = fill < best_fill
            if better:
                best, best_excess, best_score, best_fill = p, excess, score, fill
        if best != old:
            moved += 1
        owner[v] = best
        _add(loads, best, 1, degree, seed)
    return moved


@njit(cache=True)
def costs(begins, lists, indptr, is_seed, limits, owner, loads):
    """What leaving would cost each vertex of a part that has too much: edges cut, per share of the excess that leaves.

    Infinite for all other vertices; ``float64[N]``. Arguments as for :func:`assign`.
    """
    num_parts = loads.shape[0]
    near = np.zeros(num_parts, dtype=np.int64)
    out = np.full(owner.size, np.inf)
    for v in range(owner.size):
        p = owner[v]
        taken = 0.0
        if loads[p, 0] > limits[0]:
            taken += min(1.0, 1 / (loads[p, 0] - limits[0]))
        if loads[p, 1] > limits[1]:
            taken += min(1.0, (indptr[v + 1] - indptr[v]) / (loads[p, 1] - limits[1]))
        if loads[p, 2] > limits[2]:
            taken += min(1.0, is_seed[v] / (loads[p, 2] - limits[2]))
        if taken == 0.0:
            continue
        near[:] = 0
        for position in range(begins[v], begins[v + 1]):
            u = lists[position]
            if u != v:
                near[owner[u]] += 1
        other = 0
        for t in range(num_parts):
            if t != p:
                other = max(other, near[t])
        cut = near[p] - other
        out[v] = cut / taken if cut >= 0 else cut * taken
    return out


@njit(cache=True)
def count_traffic(indptr, indices, owner, num_parts):
    """Edges by the part of their destination and the part of their source, ``int64[K, K]``."""
    out = np.zeros((num_parts, num_parts), dtype=np.int64)
    for v in range(owner.size):
        for position in range(indptr[v], indptr[v + 1]):
            out[owner[v], owner[indices[position]]] += 1
    return out


@njit(cache=True)
def count_distinct(indptr, indices):
    """In-edges that are neither a self-loop nor parallel to the one before; sources are sorted within a vertex."""
    found = 0
    for v in range(indptr.size - 1):
        last = np.int64(-1)
        for position in range(indptr[v], indptr[v + 1]):
            u = np.int64(indices[position])
            if u != v and u != last:
                found += 1
            last = u
    return found
