"""How even parts are: limits, what is done where a part exceeds one, and the error where nothing helps."""

from __future__ import annotations

from typing import Any

import numpy as np

from .moving import QUANTITIES, assign, costs, count_distinct

ROUNDS = 20
"""Most rounds of repair, each over all vertices of the parts that have too much."""
_AIMS = (0.8, 0.5, 0.2)
"""What repair aims for, one after another, as shares of what ``tolerance`` allows above the mean."""
PASSES = 10
"""Most passes of refinement over all vertices."""
_SETTLED = 1e-3
"""A pass that moves a smaller share of the vertices is the last one."""


class UnevenPartsError(ValueError):
    """A part has more of something than ``tolerance`` allows.

    Attributes:
        part, quantity, ratio: which part, ``"vertices"``, ``"edges"`` or ``"seeds"``, and its multiple of the mean.
    """

    def __init__(self, message: str, part: int, quantity: str, ratio: float):
        super().__init__(message)
        self.part, self.quantity, self.ratio = part, quantity, ratio


def limits_of(indptr: np.ndarray, is_seed: np.ndarray, num_parts: int, tolerance: float) -> np.ndarray:
    """The most that a part may have of vertices, edges and seeds, ``float64[3]``.

    ``tolerance`` times the mean; more only where whole vertices cannot do better, whatever the assignment: the next
    integer above the mean, and the largest in-degree.
    """
    mean = np.array([len(is_seed), int(indptr[-1]), int(is_seed.sum())]) / num_parts
    largest = max(1, int(np.diff(indptr).max(initial=0)))
    return np.maximum(tolerance * mean, np.maximum(np.ceil(mean), [1, largest, 1]))


def loads_of(indptr: np.ndarray, is_seed: np.ndarray, owner: np.ndarray, num_parts: int) -> np.ndarray:
    """Vertices, edges and seeds of each part, ``int64[K, 3]``."""
    columns = [
        np.bincount(owner, minlength=num_parts),
        # Sums of float64 are exact up to 2**53 edges.
        np.bincount(owner, weights=np.diff(indptr), minlength=num_parts),
        np.bincount(owner[is_seed.astype(bool)], minlength=num_parts),
    ]
    return np.stack(columns, 1).astype(np.int64)


def ratios_of(loads: np.ndarray) -> np.ndarray:
    """Each part's multiple of the mean, ``float64[K, 3]``; 1 where there is nothing."""
    mean = loads.mean(0)
    return np.where(mean > 0, loads / np.where(mean > 0, mean, 1), 1.0)


def repair(
    begins: np.ndarray, lists: np.ndarray, indptr: np.ndarray, is_seed: np.ndarray, tolerance: float, owner:
        np.ndarray, loads: np.ndarray,
) -> None:  # fmt: skip
    """Move vertices out of parts that have too much, those first that cost fewest cut edges; changes the last two.

    It aims below the limits: one quantity's last excess often cannot leave while others stand at theirs.
    """
    limits = limits_of(indptr, is_seed, len(loads), tolerance)
    for aim in _AIMS:
        aimed = limits_of(indptr, is_seed, len(loads), 1 + aim * (tolerance - 1))
        for _ in range(ROUNDS):
            if not (loads > limits).any():
                return
            cost = costs(begins, lists, indptr, is_seed, aimed, owner, loads)
            movable = np.flatnonzero(np.isfinite(cost))
            order = movable[np.argsort(cost[movable], kind="stable")]
            if not assign(begins, lists, order, indptr, is_seed, aimed, 0.0, owner, loads):
                break


def refine(
    begins: np.ndarray, lists: np.ndarray, indptr: np.ndarray, is_seed: np.ndarray, limits: np.ndarray, owner:
        np.ndarray, loads: np.ndarray, order: np.ndarray,
) -> None:  # fmt: skip
    """Label propagation within the limits until it has settled; changes ``owner`` and ``loads``."""
    for _ in range(PASSES):
        if assign(begins, lists, order, indptr, is_seed, limits, 0.0, owner, loads) <= _SETTLED * len(order):
            return


def compile_loops(dtype: np.dtype) -> None:
    """Compile what runs over ids of ``dtype``, and over METIS's lists, before anything is timed."""
    indptr, is_seed = np.zeros(2, dtype=np.int64), np.zeros(1, dtype=np.uint8)
    for lists in (np.zeros(0, dtype=dtype), np.zeros(0, dtype=np.int64)):
        owner, loads, limits = np.zeros(1, np.int16), np.array([[1, 0, 0]]), np.ones(3)
        costs(indptr, lists, indptr, is_seed, limits, owner, loads)
        assign(indptr, lists, np.zeros(1, np.int64), indptr, is_seed, limits, 0.0, owner, loads)
        count_distinct(indptr, lists)


def check_even(loads: np.ndarray, limits: np.ndarray, tolerance: float, method: str) -> None:
    """Raise :class:`UnevenPartsError` for the worst part that exceeds a limit."""
    over = np.where(loads > limits, loads / limits, 0.0)
    if not over.any():
        return
    part, column = (int(i) for i in np.unravel_index(int(over.argmax()), over.shape))
    quantity, ratio = QUANTITIES[column], float(ratios_of(loads)[part, column])
    way: dict[str, Any] = {
        "random": "method='metis' or 'streaming' evens parts out",
        "range": "method='metis', 'streaming' or 'random' evens parts out",
    }
    hint = way.get(method, "moving vertices between the parts did not help: take fewer parts")
    raise UnevenPartsError(
        f"part {part} of {len(loads)} has {ratio:.3f} times the mean of {quantity} ({loads[part, column]:,} against "
        f"{loads[:, column].mean():,.1f}), which exceeds tolerance={tolerance:g}; {hint}, or allow it by tolerance=",
        part, quantity, ratio,
    )  # fmt: skip
