"""The core of the host that a pass is timed on: a quick one.

On a host that others share, a core runs at half its speed while a neighbour computes on the other half of it, and that
changes within seconds. Such a pass tells the neighbour's load, not the work's time. So before each pass whose host work
is one thread's, the thread moves to a core on which a short loop is about as quick as on the quickest ever met. A pass
that can be taken again is, where the loop is slow after it: what decides is the loop, never the pass's own time.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from gnnsample_lab.device import runtime

TURNS = 1_000
"""Turns of the loop that tells how quick a core is."""
NEAR = 1.15
"""A core is quick where its loop takes at most this many times the quickest one."""
TRIES = 8
"""Times that a pass is taken until its core is quick before it and after it; the last one counts in any case."""
PATIENCE_S = 1.0
"""Seconds after which no pass is taken again: on such a host no core stays quick for a pass that takes so long."""
_LOOPS = 3

_Taken = TypeVar("_Taken")

_quickest_us = math.inf  # on any core, since the process began
_last = -1  # core that a pass was timed on
_again = 0  # passes that were taken once more


def cores() -> list[int]:
    """The cores that passes are timed on, of those that the process may use; empty where the operating system chooses:
    without a GPU, where host work is many threads', with one core, and where a thread cannot be moved."""
    if not hasattr(os, "sched_getaffinity") or not runtime.cuda_available():
        return []
    allowed = sorted(os.sched_getaffinity(0))
    return allowed if len(allowed) > 1 else []


def taken_again() -> int:
    """Passes of this process that :func:`quick_pass` did not count."""
    return _again


def quick_pass(
    take: Callable[[], _Taken], warm: Callable[[], object] = lambda: None, all_threads: bool = False
) -> _Taken:
    """What ``take()`` gives on a core of :func:`cores` that is quick before it and after it, within :data:`TRIES` and
    :data:`PATIENCE_S`.

    Args:
        take: a pass; one whose core became slow is forgotten.
        warm: called before a pass on another core than the last one's, whose caches hold nothing of the work.
        all_threads: as of :func:`quick_core`.
    """
    global _again
    if not cores():
        return take()
    left, began = TRIES, time.perf_counter()
    while True:
        left -= 1
        with quick_core(all_threads) as moved:
            if moved:
                warm()
            found = take()
            spent = not left or time.perf_counter() - began > PATIENCE_S
            if spent or _loop_here_us() <= NEAR * _quickest_us:
                return found
        del found  # what two passes hold may be too much
        _again += 1


@contextlib.contextmanager
def quick_core(all_threads: bool = False) -> Iterator[bool]:
    """Run the block on a quick core of :func:`cores`; whether that is another one than the last block's.

    The thread may use all of them again afterwards, and so may threads that the block started and that go on: inside
    the block they share its core, so that a pass whose own work is done by new threads does not belong here.

    Args:
        all_threads: the process's other threads move, too: for work that passes from one to another and is never two's
            at a time, as PyTorch's backward pass, whose thread stays from the first one on.
    """
    allowed = cores()
    if not allowed:
        yield False
        return
    before, last = _threads(), _last
    try:
        _move(allowed)
        if all_threads:
            _to(before, {_last})
        yield _last != last
    finally:
        os.sched_setaffinity(0, allowed)
        _to(_threads() if all_threads else _threads() - before, allowed)


def _to(threads: Iterable[int], allowed: Iterable[int]) -> None:
    for thread in threads:
        with contextlib.suppress(ProcessLookupError):  # it has ended since
            os.sched_setaffinity(thread, allowed)


def _threads() -> set[int]:
    """The threads of this process."""
    return {int(folder.name) for folder in Path("/proc/self/task").iterdir()}


def loop_us(turns: int) -> float:
    """Microseconds of ``turns`` additions in a loop of Python."""
    began, total = time.perf_counter_ns(), 0
    for i in range(turns):
        total += i
    return (time.perf_counter_ns() - began) / 1e3


def _loop_here_us() -> float:
    return min(loop_us(TURNS) for _ in range(_LOOPS))


def _move(allowed: list[int]) -> None:
    """Move the thread to the first quick core from the last one on, or to the quickest of all."""
    global _quickest_us, _last
    begin = allowed.index(_last) if _last in allowed else 0
    known, found = _quickest_us, dict[int, float]()
    for core in allowed[begin:] + allowed[:begin]:
        os.sched_setaffinity(0, {core})
        found[core] = _loop_here_us()
        if found[core] <= NEAR * known < math.inf:
            break
    _last = min(found, key=lambda core: found[core])
    _quickest_us = min(known, found[_last])
    os.sched_setaffinity(0, {_last})
