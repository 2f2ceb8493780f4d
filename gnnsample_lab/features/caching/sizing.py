"""How many rows a feature cache holds: by ratio, by bytes, or by what a trial step leaves free."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from gnnsample_lab.checks import choice, function, host_array, num_bytes, share, shown
from gnnsample_lab.device import pools
from gnnsample_lab.device.capturing import wait_for_device
from gnnsample_lab.device.host import free_host_bytes

from .slots import table_bytes

_RESERVE = 0.05
_RESERVE_BYTES = 256 << 20


def check_sizing(ratio: Any, capacity_bytes: Any, leave_free: Any, trial: Any) -> None:
    """Exactly one way of sizing, and its value.

    Raises:
        TypeError: a ``trial`` that cannot be called, or bytes that are no integer.
        ValueError: none or several ways, a ratio outside 0..1, negative bytes, an unknown ``leave_free``.
    """
    given = [
        n
        for n, v in (("ratio", ratio), ("capacity_bytes", capacity_bytes), ("leave_free", leave_free))
        if v is not None
    ]
    if len(given) != 1:
        raise ValueError(
            f"give exactly one of ratio, capacity_bytes and leave_free (got {', '.join(given) or 'none'})"
        )
    if ratio is not None:
        share("ratio", ratio)
    if capacity_bytes is not None:
        num_bytes("capacity_bytes", capacity_bytes)
    if leave_free is not None:
        choice("leave_free", leave_free, ("trial",))
        if trial is None:
            raise ValueError("leave_free='trial' needs trial=..., a callable that runs one training step")
        function("trial", trial)
    elif trial is not None:
        raise ValueError("trial is for leave_free='trial' only")


def rows_in(capacity_bytes: int, num_nodes: int, row_bytes: int, tail_bytes: int = 0) -> int:
    """Rows that fit, the look-up table counted in: it is needed unless all rows fit or none does.

    Args:
        tail_bytes: bytes of every row that are kept besides, unless all rows fit.
    """
    if capacity_bytes >= num_nodes * row_bytes:
        return num_nodes
    beside = table_bytes(num_nodes) + tail_bytes * num_nodes
    return max(0, capacity_bytes - beside) // row_bytes


def memory_left_by(trial: Callable[[], Any], device: str) -> int:
    """Bytes that are free on ``device`` when ``trial`` has run, less a reserve of 5 % (at least 256 MiB).

    The pools of CuPy and PyTorch keep what they took at the step's peak, so that what is free afterwards was free
    all the time (GNNLab sizes its cache so, section 5.3 of the paper; FastGL calls it left-over memory). Where there
    is no GPU, host memory stands in for the device's.
    """
    if device == "cuda":
        import cupy

        gc.collect()
        pools.free_all_blocks()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()
        trial()
        wait_for_device()
        left = int(cupy.cuda.runtime.memGetInfo()[0])
    else:
        trial()
        left = free_host_bytes()
    return max(0, left - max(int(left * _RESERVE), _RESERVE_BYTES))


def hottest_first(hotness: Any, num_nodes: int) -> np.ndarray:
    """All vertices, the hottest first: ``int64[N]`` in NumPy.

    Args:
        hotness: anything with ``order`` (:class:`~gnnsample_lab.features.ranking.hotness.Hotness`), or one score per
            vertex, higher is hotter, ties to the lower id.

    Raises:
        TypeError: not numbers.
        ValueError: a wrong length, a score that is not a number, or an ``order`` that does not name every vertex once.
    """
    order = getattr(hotness, "order", None)
    score = host_array("hotness", hotness if order is None else order)
    if score.dtype.kind not in ("iu" if order is not None else "fiu"):
        raise TypeError(
            f"hotness must hold one number per vertex (got {shown(hotness)}, dtype {score.dtype})"
        )
    if score.shape != (num_nodes,):
        raise ValueError(f"hotness must have one score per vertex, {num_nodes} (got shape {score.shape})")
    if order is not None:
        _check_permutation(score)
        return score.astype(np.int64, copy=False)
    if score.dtype.kind in "iu":  # times in nanoseconds are alike as floats
        return np.argsort(~score, kind="stable")
    score = score.astype(np.float64)
    if np.isnan(score).any():
        raise ValueError(f"hotness must be numbers (got NaN for vertex {int(np.isnan(score).argmax())})")
    return np.argsort(-score, kind="stable")


def _check_permutation(order: np.ndarray) -> None:
    outside = (order < 0) | (order >= len(order))
    if outside.any():
        at = int(outside.argmax())
        raise ValueError(
            f"hotness.order must name each vertex in 0..{len(order) - 1} once (got {order[at]} at position {at})"
        )
    named = np.zeros(len(order), dtype=bool)
    named[order] = True
    if not named.all():
        raise ValueError(
            f"hotness.order must name each vertex in 0..{len(order) - 1} once (got none that is {int(named.argmin())})"
        )


def rows_of_ratio(ratio: float, num_nodes: int) -> int:
    """``round(ratio * N)``."""
    return round(ratio * num_nodes)
