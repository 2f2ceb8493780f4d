"""Numba for the whole package: ``from gnnsample_lab.device.jit import njit, prange``.

Three things differ from ``numba.njit``. ``cache=True`` keeps compiled functions in :mod:`.jit_cache`. Functions with
``parallel=True`` may be called from several threads at once, whatever threading layer Numba has found. And compiled
functions let other Python threads run: mini-batches that a thread samples on the CPU would hold up the training beside
it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
from numba import prange

from .jit_cache import FunctionStore
from .locks import Lock, check_process

__all__ = ["njit", "num_threads", "prange", "start_threads", "threads"]

_parallel_region = Lock()


def njit(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """``numba.njit``, with this package's cache, without Python's lock, and with parallel functions that take turns if
    the layer demands it.

    Args:
        function: the function to compile; omitted when the decorator is given options.
        options: those of ``numba.njit``. Only Python may call a function with ``parallel=True``, not other compiled
            functions, because Numba's layer ``workqueue`` allows no parallel region inside another.
    """
    if function is None:
        return functools.partial(njit, **options)
    kept = options.pop("cache", False)
    options.setdefault("nogil", True)
    made = numba.njit(**options)(function)
    if made is function:  # NUMBA_DISABLE_JIT
        return function
    if kept:
        made._cache = FunctionStore(function, options)
    return _taking_turns(made) if options.get("parallel") else made


def _taking_turns(compiled: Any) -> Any:
    @functools.wraps(compiled.py_func)
    def call(*arguments: Any) -> Any:
        check_process()
        if start_threads() != "workqueue":
            return compiled(*arguments)
        # This layer has one queue of tasks, and ends the process when a second region finds the queue in use.
        with _parallel_region:
            return compiled(*arguments)

    return call


@functools.lru_cache(maxsize=1)
def start_threads() -> str:
    """Start Numba's threads if they have not started yet.

    Returns:
        Numba's layer: ``"tbb"``, ``"omp"`` or ``"workqueue"``.
    """
    numba.get_num_threads()
    return str(numba.threading_layer())


def num_threads() -> int:
    """Threads on which parallel functions run that this thread calls."""
    start_threads()
    return int(numba.get_num_threads())


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Inside, parallel functions that this thread calls run on at most ``count`` threads; None changes nothing."""
    if count is None:
        yield
        return
    before = num_threads()
    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
    try:
        yield
    finally:
        numba.set_num_threads(before)
