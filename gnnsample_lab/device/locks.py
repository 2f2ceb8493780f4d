"""Locks that know of ``fork``, and what a forked process cannot use.

``fork`` copies the memory of a process but only one of its threads. The other threads are missing in the child: Numba's
threads do not run, and a lock that another thread held stays locked for ever. A child that waits for either would hang.
The checks here raise an error instead.
"""

from __future__ import annotations

import _thread
import os
import sys
import weakref
from typing import Any

_lost: str | None = None
"""In a forked process, what computations on the CPU would wait for without end; None if nothing is missing."""
_cuda_in_use = False
_cuda_lost = False


class Lock(_thread.RLock):  # type: ignore[misc]  # in C it is open to subclasses
    """A re-entrant lock. In a forked process, waiting for it raises if the thread that holds it does not exist there.

    An interrupt never leaves a ``with`` holding it: ``__exit__`` is that of the base class, in C, where Python does not
    look for interrupts, and ``__enter__`` gives back what it took.

    A copy (``copy.deepcopy``, ``pickle``) is a new lock, so that objects with a lock can go to other processes.
    """

    def __init__(self) -> None:
        self._lost = False
        _locks.add(self)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; False if another thread holds it now (``blocking=False``) or still after ``timeout`` seconds.

        Raises:
            RuntimeError: in a forked process that cannot compute, see :func:`check_process`.
        """
        check_process()
        if self._lost:
            raise _forked("a thread that held one of its locks")
        return super().acquire(blocking, timeout)

    def is_held(self) -> bool:
        """Whether the calling thread holds the lock."""
        return self._is_owned()  # type: ignore[attr-defined, no-any-return]

    def _depth(self) -> int:
        """How often the calling thread has taken the lock; before Python 3.11.5 only whether it has."""
        count: Any = getattr(self, "_recursion_count", None)
        return int(self.is_held() if count is None else count())

    def __enter__(self) -> Lock:  # type: ignore[override]
        before = self._depth()
        try:
            self.acquire()
            return self
        except BaseException:
            if self._depth() > before:  # an interrupt between taking the lock and entering the `with`
                self.release()
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return Lock, ()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def check_process(device: str = "cpu") -> None:
    """Raise if this process was forked from one whose threads it would need.

    Args:
        device: ``"cuda"`` asks for the GPU, too, which a forked process cannot use once its parent has.

    Raises:
        RuntimeError: the message says what is missing, and to start processes with ``spawn``.
    """
    if _lost is not None:
        raise _forked(_lost)
    if _cuda_lost and device == "cuda":
        raise _forked("its use of the GPU")


def check_same_process(pid: int, what: str) -> None:
    """Raise if this is not process ``pid``, which began ``what``.

    Raises:
        RuntimeError: the message says to start processes with ``spawn``.
    """
    if os.getpid() != pid:
        raise _forked(what)


def cuda_is_in_use() -> None:
    """Remember that this process has used CUDA."""
    global _cuda_in_use
    _cuda_in_use = True


def _forked(what: str) -> RuntimeError:
    return RuntimeError(
        "gnnsample_lab cannot go on in this forked process: the process that it was forked from had used the library, "
        f"and {what} did not survive the fork. Start processes with 'spawn': "
        "multiprocessing.get_context('spawn'), or DataLoader(..., multiprocessing_context='spawn')"
    )


def _after_fork() -> None:
    global _lost, _cuda_lost
    _cuda_lost = _cuda_lost or _cuda_in_use
    for lock in list(_locks):
        lock._lost = lock._lost or not _is_free(super(Lock, lock))
    numba = sys.modules.get("numba")
    if numba is None or _lost is not None:
        return
    try:
        layer = numba.threading_layer()
    except (AttributeError, ValueError):  # half imported, or no threads started
        layer = None
    compiler = sys.modules.get("numba.core.compiler_lock")
    compiling = getattr(getattr(compiler, "global_compiler_lock", None), "_lock", None)
    if layer not in (None, "tbb"):  # TBB starts its threads anew
        _lost = f"the threads of Numba's layer {layer!r}"
    elif compiling is not None and not _is_free(compiling):
        _lost = "a thread that compiled"


def _is_free(lock: Any) -> bool:
    """Whether the calling thread could take ``lock`` at once."""
    if not lock.acquire(blocking=False):
        return False
    lock.release()
    return True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
