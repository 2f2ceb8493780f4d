"""Waiting for a word that a kernel writes to host memory: quicker than an event where nothing else wants the host.

A thread that polls holds the interpreter's lock, and gets it back each time another thread lets go of it for a moment,
as one that launches kernels does with every launch. Beside such a thread a poll has to sleep (:func:`beside_others`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SPINS = 2_000_000
_NAP_S, _NAPS = 2e-5, 200_000
_thread = threading.local()


@contextmanager
def beside_others() -> Iterator[None]:
    """Inside, this thread sleeps between its looks: others launch kernels meanwhile, and it can wait."""
    before = getattr(_thread, "naps", False)
    _thread.naps = True
    try:
        yield
    finally:
        _thread.naps = before


def arrives(view: Any, at: int, word: int) -> bool:
    """Whether ``view[at]`` becomes ``word`` within a second or a few; after that the stream should be waited for."""
    if getattr(_thread, "naps", False):
        for _ in range(_NAPS):
            if view[at] == word:
                return True
            time.sleep(_NAP_S)
        return False
    for _ in range(_SPINS):  # noqa: SIM110 (a generator costs more than the look)
        if view[at] == word:
            return True
    return False


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
