"""Numba for the whole package: ``from gnnsample_lab.device.jit import njit, prange``.

Three things differ from ``numba.njit``. ``cache=True`` keeps compiled functions in :mod:`.jit_cache`. Functions with
``parallel=True`` may be called from several threads at once, whatever threading layer Numba has found. And where
there are many threads, those that wait for the others of a parallel function soon sleep (:func:`start_threads`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numba
from numba import prange

from .jit_cache import FunctionStore
from .locks import Lock, check_process

__all__ = ["njit", "prange", "start_threads"]

SPINS = 10_000
"""Rounds that a thread of GNU OpenMP waits awake, half a millisecond or less; the library's own number is 300 000."""
FEW = 8
"""Threads up to which they wait as long as OpenMP lets them: few do not stand in each other's way, and mini-batches one
after the other took a fifth to a third longer on two cores where they slept in between."""

_parallel_region = Lock()


def njit(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """``numba.njit``, with this package's cache and with parallel functions that take turns if the layer demands it.

    Args:
        function: the function to compile; omitted when the decorator is given options.
        options: those of ``numba.njit``. Only Python may call a function with ``parallel=True``, not other compiled
            functions, because Numba's layer ``workqueue`` allows no parallel region inside another.
    """
    if function is None:
        return functools.partial(njit, **options)
    kept = options.pop("cache", False)
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
    """Start Numba's threads if they have not started yet; returns its layer, ``"tbb"``, ``"omp"`` or ``"workqueue"``.

    GNU OpenMP's threads wait awake for ten milliseconds and more. On a virtual machine of many cores they keep those
    from running for whom they wait: on a host of 32 cores rows that take 5 ms to gather took 34 ms when the call came
    15 ms after the one before, as calls of a training loop do. So more than :data:`FEW` wait awake for a short time
    alone, unless ``OMP_WAIT_POLICY`` or ``GOMP_SPINCOUNT`` says how long. Threads of other libraries are left as they
    are.
    """
    name = "GOMP_SPINCOUNT"
    as_it_is = {"OMP_WAIT_POLICY", name} & set(os.environ) or numba.config.NUMBA_NUM_THREADS <= FEW
    if not as_it_is:
        # OpenMP reads it when it is loaded, and it is loaded with the threads.
        os.environ[name] = str(SPINS)
    try:
        numba.get_num_threads()
    finally:
        if not as_it_is:
            os.environ.pop(name, None)
    return str(numba.threading_layer())
