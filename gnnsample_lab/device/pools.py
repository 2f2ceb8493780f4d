"""CuPy's pools of device memory: what they hold, and how a run is kept to so many bytes of them.

A run with a budget asks for few sizes (:func:`rounded`), so that what one mini-batch has left fits the next. Large
arrays have pools of their own, one for each octave of sizes: a pool cuts a free block up for a smaller array, and an
array of kilobytes in it keeps the block from the next mini-batch's rows, and from being given back.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

LARGE = 1 << 20
"""Arrays of so many bytes or more have the pool of their octave."""
_ROUNDED_FROM = 4096
_SIZES_AN_OCTAVE = 16
_octaves: dict[int, Any] = {}


class GivenBack:
    """What pools under a budget gave back.

    Attributes:
        times: how often unused blocks were given back at the limit, to try again. Each time the host waits for the
            GPU: a run that does so in every mini-batch is slow for want of memory.
        total_bytes: what the pools held in the end, before they gave back what they had for the run alone.
    """

    def __init__(self) -> None:
        self.times = 0
        self.total_bytes = 0


def rounded(size: int) -> int:
    """``size`` in bytes, up to the next of 16 sizes between a power of two and the next one."""
    if size < _ROUNDED_FROM:
        return size
    step = (1 << (size - 1).bit_length()) // 2 // _SIZES_AN_OCTAVE
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


@contextlib.contextmanager
def rounding(most: int | None = None, given_back: GivenBack | None = None) -> Iterator[None]:
    """Inside, CuPy asks for :func:`rounded` sizes, and for large ones the pool of their octave, on all threads.

    Args:
        most: bytes that the pools may hold together, as :func:`total_bytes` counts; None: no bound.
        given_back: is told how often unused blocks were given back for the sake of that bound.

    Raises:
        cupy.cuda.memory.OutOfMemoryError: there would be more, though no block is unused.
    """
    import cupy

    usual, given_back = cupy.get_default_memory_pool(), given_back or GivenBack()
    before, limit = cupy.cuda.get_allocator(), usual.get_limit()
    cupy.cuda.set_allocator(_Allocator(before, most, given_back))
    try:
        yield
    finally:
        given_back.total_bytes = total_bytes()
        cupy.cuda.set_allocator(before)
        for pool in _octaves.values():
            pool.set_limit(size=0)
            pool.free_all_blocks()
        usual.set_limit(size=limit)


class _Allocator:
    """Allocates for :func:`rounding`; ``usual`` is the allocator of small arrays."""

    def __init__(self, usual: Any, most: int | None, given_back: GivenBack) -> None:
        self._usual, self._most, self._given_back = usual, most, given_back
        # Of one thread again and again: an allocation may end another array, whose end may allocate.
        self._lock = threading.RLock()

    def __call__(self, size: int) -> Any:
        size = rounded(size)
        pool, allocate = _usual_pool(), self._usual
        if size >= LARGE:
            pool = _octave(size)
            allocate = pool.malloc
        most = self._most
        if most is None:
            return allocate(size)
        from cupy.cuda.memory import OutOfMemoryError

        with self._lock:
            before = _bound(pool, most)
            try:
                found = allocate(size)
            except OutOfMemoryError:
                # Some versions of CuPy do this only at the end of the card.
                free_all_blocks()
                self._given_back.times += 1
                _bound(pool, most)
                return allocate(size)
            # Other versions tell nobody, but then the pool has not grown by the block that it took.
            grown = int(pool.total_bytes()) - before
            if grown < 0 or 0 < grown < size:
                self._given_back.times += 1
            return found


def _bound(pool: Any, most: int) -> int:
    """Bound ``pool`` to what the others leave of ``most`` bytes; returns how many it holds."""
    held = int(pool.total_bytes())
    pool.set_limit(size=max(1, most - (total_bytes() - held)))  # 0 would be no limit
    return held


def _usual_pool() -> Any:
    import cupy

    return cupy.get_default_memory_pool()


def _octave(size: int) -> Any:
    import cupy

    octave = (size - 1).bit_length()
    if octave not in _octaves:
        _octaves.setdefault(octave, cupy.cuda.MemoryPool())
    return _octaves[octave]


def _pools() -> list[Any]:
    return [_usual_pool(), *list(_octaves.values())]
