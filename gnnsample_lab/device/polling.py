"""Waiting for a word that somebody else writes to host memory: a kernel, or another process.

A thread that looks again and again in Python holds the interpreter's lock, and gets it back each time another thread
lets go of it for a moment, as one that launches kernels does with every launch. That is quickest where nothing else
wants the interpreter. Beside other threads (:func:`beside_others`) the looks are compiled and hold no lock: a thread
that sleeps between looks instead is told some 70 microseconds late, and has to ask for the lock for each look.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .host import usable_cores

_SPINS = 2_000_000
_WAIT_S = 4.0
_MANY_CORES = 8
_LOOKS, _FEW_LOOKS = 100_000, 1_000
"""In one compiled call, a tenth of a millisecond or more: between calls the thread can be interrupted. Few where cores
are few: whoever is waited for needs them."""
_thread = threading.local()


@contextmanager
def beside_others() -> Iterator[None]:
    """Inside, this thread waits without the interpreter's lock: others launch kernels meanwhile."""
    before = is_beside_others()
    _thread.beside = True
    try:
        yield
    finally:
        _thread.beside = before


def is_beside_others() -> bool:
    """Whether this thread is inside :func:`beside_others`."""
    return bool(getattr(_thread, "beside", False))


def arrives(view: Any, at: int, word: int) -> bool:
    """Whether ``view[at]`` becomes ``word`` within a second or a few; after that the stream should be waited for."""
    if view[at] == word:
        return True
    if is_beside_others():
        return comes(np.asarray(view), at, word, _WAIT_S)
    for _ in range(_SPINS):  # noqa: SIM110 (a generator costs more than the look)
        if view[at] == word:
            return True
    return False


def comes(words: np.ndarray, at: int, word: int, seconds: float, shift: int = 0) -> bool:
    """Whether ``words[at] >> shift`` becomes ``word`` in that time, seen without the interpreter's lock.

    Args:
        words: ``int64[n]``, contiguous; whoever writes them, another process or a GPU, writes whole words.
    """
    from .watching import look_often

    looks, until = _LOOKS if _cores() >= _MANY_CORES else _FEW_LOOKS, time.monotonic() + seconds
    while not look_often(words, at, word, shift, looks):
        if time.monotonic() > until:
            return False
    return True


_cores = functools.cache(usable_cores)
"""Asked once: a wait must not take a call of the system."""


def await_word(view: Any, at: int, word: int, silence: str) -> None:
    """Return when ``view[at]`` is ``word``, which kernels on CuPy's current stream write.

    Raises:
        RuntimeError: the stream ends without it; ``silence`` is the message. An error of a kernel is raised as it is.
    """
    if arrives(view, at, word):
        return
    import cupy

    cupy.cuda.get_current_stream().synchronize()  # raises an error of a kernel, or waits for a slow one
    if view[at] != word:
        raise RuntimeError(silence)
