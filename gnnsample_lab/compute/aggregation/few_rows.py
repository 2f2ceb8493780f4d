"""Launches of the kernel for few rows (``few_rows.cu``): a warp per row and 128 features or fewer."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from .csr import function

ROWS_PER_SM = 16
"""Most rows, times the tiles that each is cut into, per multiprocessor: as many warps as one holds at once."""
WARP = 32
BLOCK_WARPS = 4
"""``WARPS`` of the kernel."""


@dataclass(frozen=True)
class Shape:
    """How a row is laid over a warp: ``lanes`` threads read ``vec`` scalars of it each, ``tiles`` times; the warp has
    ``32 // lanes`` such groups of threads, which read different edges."""

    vec: int
    lanes: int
    tiles: int


def shape_for(rows: int, features: int, widest: int, sms: int) -> Shape | None:
    """The shape for ``rows`` of ``features`` scalars, of which a load takes up to ``widest``; None: rows are too many.

    A row of up to 8 of the widest loads takes 8 lanes, and the rest of the warp reads three other edges. A longer row
    takes loads as narrow as leave it one tile, so that no lane is idle.
    """
    if features <= 8 * widest:
        shape = Shape(widest, 8, 1)
    else:
        vec = widest
        while vec > 1 and features <= WARP * vec // 2:
            vec //= 2
        shape = Shape(vec, WARP, -(-features // (WARP * vec)))
    return shape if rows * shape.tiles <= ROWS_PER_SM * sms else None


def grid_for(shape: Shape, rows: int) -> tuple[int, int]:
    """Blocks along the rows, and along the tiles."""
    return -(-rows // BLOCK_WARPS), shape.tiles


@functools.cache
def kernel(shape: Shape, scalar: str, coef: int, own: bool, heavy: int, parts: int) -> Any:
    """``coef``: 0 or 1; ``own``: whether a layer folds something into the rows; ``parts``: the sums that the edges of a
    row of more than ``heavy`` go round by."""
    macros = {
        "SCALAR": scalar, "VEC": shape.vec, "LANES": shape.lanes, "COEF": coef, "OWN": int(own), "HEAVY": heavy,
        "PARTS": parts,
    }  # fmt: skip
    return function("aggregation/few_rows.cu", "few_rows", tuple(macros.items()))
