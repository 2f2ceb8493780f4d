"""Reorder: an order of mini-batches in which neighbours share much (FastGL, Algorithm 1), and how good it is.

Batch 0 stays first. The order is an open path through all batches; the sum of match degrees along it should be high.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.checks import choice, host_array, host_integers, numbers

METHODS = ("greedy", "two-opt", "exact")
MAX_EXACT = 16
_GAIN = 1e-12
"""Smallest improvement that counts: sums of degrees differ by rounding."""


def reorder(M: Any, method: str = "greedy") -> np.ndarray:
    """``int64[n]``: the order in which to train the batches, beginning with batch 0.

    Args:
        M: match degrees, symmetric ``[n, n]`` (:func:`~.match.match_degrees`).
        method: "greedy": always on to the batch that has most in common with the last one, ties to the lower index
            (FastGL's Algorithm 1, but visited batches are masked below every degree and not with zero: where nothing
            is shared with those left, zeros would send it back to a visited one). "two-opt": from there, reverse
            stretches of the path as long as that improves it. "exact": the best path, by Held and Karp's dynamic
            programme, for at most 16 batches.

    Raises:
        TypeError: not numbers.
        ValueError: not a square symmetric matrix of finite numbers, an unknown method, too many batches for
            "exact".
    """
    degrees = _check(M)
    choice("method", method, METHODS)
    n = len(degrees)
    if method == "exact":
        if n > MAX_EXACT:
            raise ValueError(f"method='exact' takes at most {MAX_EXACT} batches (got {n})")
        return _best_path(degrees) if n > 2 else np.arange(n)
    order = _greedy(degrees)
    return _two_opt(degrees, order) if method == "two-opt" else order


def path_score(M: Any, order: Any) -> float:
    """Sum of the match degrees of neighbours along ``order``.

    Args:
        M: match degrees, symmetric ``[n, n]`` (:func:`~.match.match_degrees`).
        order: numbers of batches, each at most once; those of all batches from :func:`reorder`.

    Raises:
        TypeError: not numbers, or an order that is no list of integers.
        ValueError: ``M`` as for :func:`reorder`; an order that names a batch twice or one that is not there.
    """
    degrees = _check(M)
    path = host_integers("order", order)
    if path.size and (path.min() < 0 or path.max() >= len(degrees) or np.unique(path).size != path.size):
        raise ValueError(f"order must name batches 0..{len(degrees) - 1}, each at most once (got {path})")
    return float(degrees[path[:-1], path[1:]].sum()) if path.size > 1 else 0.0


def _check(M: Any) -> np.ndarray:
    degrees = np.ascontiguousarray(host_array("M", numbers("M", M)), dtype=np.float64)
    if degrees.ndim != 2 or degrees.shape[0] != degrees.shape[1] or len(degrees) == 0:
        raise ValueError(f"M must be a square matrix of at least one batch (got shape {degrees.shape})")
    if not np.isfinite(degrees).all():
        raise ValueError("M must hold finite numbers (got NaN or infinity)")
    if not np.allclose(degrees, degrees.T):
        raise ValueError("M must be symmetric (got M[i, j] != M[j, i])")
    if not np.array_equal(degrees, degrees.T):
        # Rounded otherwise on both sides: a stretch that is reversed and reversed again would seem to gain twice.
        degrees = degrees / 2 + degrees.T / 2
    return degrees


def _greedy(degrees: np.ndarray) -> np.ndarray:
    # show: reorder the batches
    order = np.zeros(len(degrees), np.int64)
    left = degrees.copy()
    for i in range(1, len(degrees)):
        left[:, order[i - 1]] = -np.inf
        order[i] = int(np.argmax(left[order[i - 1]]))
    return order
    # end: reorder the batches


def _two_opt(degrees: np.ndarray, order: np.ndarray) -> np.ndarray:
    n, path = len(order), order.copy()
    improved = True
    while improved:
        improved = False
        for i in range(1, n - 1):
            # Reverse path[i..j], for every j > i: two edges change, only one where j is the end.
            ends = np.arange(i + 1, n)
            gain = degrees[path[i - 1], path[ends]] - degrees[path[i - 1], path[i]]
            inner, after = ends[:-1], ends[:-1] + 1
            gain[:-1] += degrees[path[i], path[after]] - degrees[path[inner], path[after]]
            best = int(np.argmax(gain))
            if gain[best] > _GAIN:
                j = i + 1 + best
                path[i : j + 1] = path[i : j + 1][::-1].copy()
                improved = True
    return path


def _best_path(degrees: np.ndarray) -> np.ndarray:
    """The best open path from batch 0 (Held and Karp): by set of visited batches and last of them.

    All sets of one size are taken at a time: 16 batches take some 30 ms, and nothing has to be compiled first.
    """
    m = len(degrees) - 1  # batches 1..m as bits 0..m-1
    between = degrees[1:, 1:]
    sets = np.arange(1 << m)
    sizes = np.bitwise_count(sets)
    score = np.full((m, 1 << m), -np.inf)  # by last batch and set
    score[np.arange(m), 1 << np.arange(m)] = degrees[0, 1:]
    for size in range(2, m + 1):
        reached = sets[sizes == size]
        for last in range(m):
            seen = reached[reached >> last & 1 == 1]
            totals = score[:, seen ^ 1 << last]
            totals += between[:, last, None]
            score[last, seen] = totals.max(axis=0)
    order, seen = np.zeros(len(degrees), np.int64), len(sets) - 1
    last = int(score[:, seen].argmax())
    for i in range(m, 1, -1):
        order[i] = last + 1
        seen ^= 1 << last
        last = int((score[:, seen] + between[:, last]).argmax())
    order[1] = last + 1
    return order
