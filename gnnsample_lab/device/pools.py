"""CuPy's pools of device memory: what they hold, and how a run is kept to so many bytes of them.

A run with a budget asks for few sizes (:func:`rounded`), so that what one mini-batch has left fits the next. Its large
arrays have pools of their own, one for each octave of sizes: a pool cuts a free block up for a smaller array, and an
array of kilobytes in it keeps the block from the next mini-batch's rows, and from being given back.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

LARGE = 1 << 20
"""Arrays of so many bytes or more have the pool of their octave; smaller ones share one."""
_ROUNDED_FROM = 4096
SIZES_AN_OCTAVE = 16
"""What :func:`rounded` leaves of the sizes between a power of two and the next one."""


class GivenBack:
    """What pools under a budget gave back.

    Attributes:
        times: how often unused blocks were given back for the sake of another. Each time the host waits for the GPU: a
            run that does so in every mini-batch is slow for want of memory.
        total_bytes: what the pools held in the end, before they gave back what they had for the run alone.
    """

    def __init__(self) -> None:
        self.times = 0
        self.total_bytes = 0


@dataclass
class _Bound:
    """Bytes that the pools may hold together, None for any; and who is told what they gave back."""

    most: int | None = None
    given_back: GivenBack = field(default_factory=GivenBack)


_bound = _Bound()
_of_budgets: dict[int, Any] = {}
# Of one thread again and again: what is given back may end arrays whose end allocates.
_lock = threading.RLock()


def rounded(size: int) -> int:
    """``size`` in bytes, up to the next of 16 sizes between a power of two and the next one."""
    if size < _ROUNDED_FROM:
        return size
    step = (1 << (size - 1).bit_length()) // 2 // SIZES_AN_OCTAVE
    return -(-size // step) * step


def total_bytes() -> int:
    """Device memory that CuPy's pools hold, unused blocks included."""
    return sum(int(pool.total_bytes()) for pool in _pools())


def free_bytes() -> int:
    """Device memory that CuPy's pools hold unused."""
    return sum(int(pool.free_bytes()) for pool in _pools())


def free_all_blocks() -> None:
    """Give all unused blocks back."""
    for pool in _pools():
        pool.free_all_blocks()


def get_limit() -> int:
    """The most bytes that CuPy's pools may hold: of a budget, else of CuPy's usual pool; 0 for no limit."""
    return int(_usual().get_limit()) if _bound.most is None else _bound.most


@contextlib.contextmanager
def rounding(most: int | None = None, given_back: GivenBack | None = None) -> Iterator[None]:
    """Inside, CuPy asks for :func:`rounded` sizes, of pools of these runs alone, on all threads.

    Args:
        most: bytes that the pools may hold together, as :func:`total_bytes` counts; None: no bound.
        given_back: is told how often unused blocks were given back for the sake of that bound.

    Raises:
        cupy.cuda.memory.OutOfMemoryError: there would be more, though no block is unused.
    """
    import cupy

    given_back = given_back or GivenBack()
    allocate, before = cupy.cuda.get_allocator(), (_bound.most, _bound.given_back)
    _bound.most, _bound.given_back = most, given_back
    cupy.cuda.set_allocator(_allocate)
    try:
        yield
    finally:
        given_back.total_bytes = total_bytes()
        cupy.cuda.set_allocator(allocate)
        _bound.most, _bound.given_back = before
        for pool in _of_budgets.values():
            pool.free_all_blocks()


def _allocate(size: int) -> Any:
    """CuPy's allocator under a budget."""
    size = rounded(size)
    return _pool_for(size).malloc(size)


def _pool_for(size: int) -> Any:
    import cupy

    octave = (size - 1).bit_length() if size >= LARGE else 0
    if octave not in _of_budgets:
        _of_budgets.setdefault(octave, cupy.cuda.MemoryPool(_new_block))
    return _of_budgets[octave]


def _new_block(size: int) -> Any:
    """Memory of the device for a pool that has no block for ``size`` bytes and counts them as its own already.

    CuPy's own limit is one of each pool. Beyond it a pool gives back what it has itself, and then looks for unreachable
    arrays, which takes a large process 0.2 s, before anybody else can give back anything.
    """
    import cupy
    from cupy.cuda.memory import OutOfMemoryError

    with _lock:
        most = _bound.most
        if most is not None and total_bytes() > most:
            _bound.given_back.times += 1
            _give_back_to(most)
            if total_bytes() > most:
                gc.collect()
                free_all_blocks()
            if total_bytes() > most:
                raise OutOfMemoryError(size, total_bytes() - size, most)
    return cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)


def _give_back_to(most: int) -> None:
    """Give unused blocks back until no more than ``most`` bytes are held: of the pool with the fewest that suffice."""
    pools = _pools()
    while pools and (over := total_bytes() - most) > 0:
        unused = {id(pool): int(pool.free_bytes()) for pool in pools}
        enough = [pool for pool in pools if unused[id(pool)] >= over]
        pool = min(enough, key=lambda p: unused[id(p)]) if enough else max(pools, key=lambda p: unused[id(p)])
        pool.free_all_blocks()
        pools.remove(pool)  # what it still has lies beside arrays in use


def _usual() -> Any:
    import cupy

    return cupy.get_default_memory_pool()


def _pools() -> list[Any]:
    return [_usual(), *list(_of_budgets.values())]
