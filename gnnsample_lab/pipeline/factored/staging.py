"""Samples between a GPU and host memory that is not page-locked: files that ranks share, or an epoch that is stored.

The bus reaches its speed from and to page-locked memory alone; other memory the driver copies itself, array by array,
on one core. So a sample goes through one piece of page-locked memory, which is used again and again: one wait for all
its arrays, and several cores copy between that piece and where the sample is to lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gnnsample_lab.device import jit, pinned, streams
from gnnsample_lab.device.jit import njit, prange

_THREADS = 8
"""They fill the memory's bandwidth; more would take cores from other ranks."""
_CHUNK_BYTES = 1 << 18
"""Less than this is copied by the calling thread before others have woken up."""


class Staging:
    """Page-locked memory for one sample that leaves the GPU, and for two that come in."""

    def __init__(self) -> None:
        self._leaving = np.empty(0, np.uint8)
        self._coming = [np.empty(0, np.uint8)] * 2
        self._copied: list[Any] = [streams.DONE] * 2
        self._turn = 0

    def leave(self, arrays: Mapping[str, Any], header: Sequence[Sequence[Any]], target: np.ndarray) -> None:
        """Copy arrays of the GPU, or of the host, to ``target``; waits for the current stream.

        Args:
            arrays: dense, in the order of ``header``, which names where each begins.
            target: ``uint8[n]`` in host memory; n is a multiple of 8.
        """
        import cupy

        self._leaving = packed = pinned.grown(self._leaving, len(target))
        for (*_, begin), array in zip(header, arrays.values(), strict=True):
            pinned.copy_out(array, packed[begin : begin + array.nbytes])
        cupy.cuda.get_current_stream().synchronize()
        copy(packed[: len(target)], target)

    def enter(self, source: np.ndarray) -> tuple[Any, Any]:
        """Copy host memory to the GPU on the current stream; ``source`` may be used again at once.

        Args:
            source: ``uint8[n]``; n is a multiple of 8.

        Returns:
            The start of the copy, a ``MemoryPointer`` to memory of its own, and its
            :class:`~gnnsample_lab.device.streams.Ready`.
        """
        self._turn ^= 1
        turn = self._turn
        self._copied[turn].synchronize()
        self._coming[turn] = packed = pinned.grown(self._coming[turn], len(source))
        copy(source, packed[: len(source)])
        there, self._copied[turn] = pinned.copy_in(packed[: len(source)])
        return there.data, self._copied[turn]


def copy(source: np.ndarray, target: np.ndarray) -> None:
    """Copy bytes from memory to memory on several cores.

    Args:
        source, target: ``uint8[n]``, dense; n is a multiple of 8.
    """
    chunks = min(_THREADS, len(source) // _CHUNK_BYTES)
    if chunks < 2:
        target[...] = source
        return
    with jit.threads(chunks):
        _copy_words(source.view(np.int64), target.view(np.int64), chunks)


@njit(parallel=True, cache=True)
def _copy_words(source: np.ndarray, target: np.ndarray, chunks: int) -> None:
    for chunk in prange(chunks):
        for i in range(source.size * chunk // chunks, source.size * (chunk + 1) // chunks):
            target[i] = source[i]
