"""One process at a time for each file or folder that the library makes, by a lock file beside it.

The system frees the lock when its holder dies, so who holds it knows that temporary files of this target are nobody's.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock
from filelock import Timeout as Busy

QUIET_S = 2.0
"""Seconds to wait for another process before saying so."""

__all__ = ["Busy", "exclusive"]

_held = threading.local()


@contextlib.contextmanager
def exclusive(target: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of ``target``; a thread may ask again for what it holds.

    Args:
        target: a file or folder that need not exist, in a folder that can be written to.
        wait: for a process that has the lock; a warning says so when it takes long.

    Raises:
        Busy: another process has the lock, and ``wait`` is False.
        OSError: the lock file cannot be made.
    """
    paths: set[Path] = _held.__dict__.setdefault("paths", set())
    path = target.with_name(f".{target.name}.lock")
    if path in paths:
        yield
        return
    lock = _acquired(path, target, wait)
    paths.add(path)
    try:
        yield
    finally:
        paths.discard(path)
        # Removed while it is held: whoever waits for this file sees that it has no name any more and makes another.
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()


def _acquired(path: Path, target: Path, wait: bool) -> BaseFileLock:
    # Everybody who may write to the folder may take the lock, also of a file that another user made.
    lock: BaseFileLock = FileLock(path, mode=0o666)
    try:
        return _wait_for(lock, target, wait)
    except OSError as error:
        if isinstance(error, (Busy, PermissionError)):
            raise
        # A network file system without lock service: the file's existence is the lock.
        return _wait_for(SoftFileLock(path), target, wait)


def _wait_for(lock: BaseFileLock, target: Path, wait: bool) -> BaseFileLock:
    try:
        lock.acquire(timeout=QUIET_S if wait else 0)
    except Busy:
        if not wait:
            raise
        warnings.warn(f"waiting for another process that works on {target}", stacklevel=5)
        lock.acquire()
    return lock
