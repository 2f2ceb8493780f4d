"""Outputs of a run on the GPU: one block of memory for many steps; an array is made only when it is asked for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from gnnsample_lab.device import streams

ALIGNED = 32
"""Outputs in a block begin at multiples of this many ids, because kernels store four ids at once."""


class _Span(NamedTuple):
    """Consecutive steps of one width."""

    first: int
    block: Any
    begin: int
    size: int
    width: int


class Outputs(Sequence):  # type: ignore[type-arg]
    """Ids ``[S, width]`` of every step, as a sequence; the memory is leased to ``ready``.

    Arrays are made on access, because a CuPy view costs microseconds and a walk has hundreds of steps.
    """

    def __init__(self, num_samples: int, dtype: Any, ready: streams.Ready) -> None:
        self.num_samples, self.dtype, self.ready = num_samples, dtype, ready
        self._spans: list[_Span] = []
        self._views: dict[int, Any] = {}
        self._length = 0

    def reserve(self, widths: list[int]) -> list[int]:
        """Allocate the outputs of steps of these widths in one block; returns their addresses."""
        groups = [(width, len(list(same))) for width, same in itertools.groupby(widths)]
        sizes = [-(-self.num_samples * width // ALIGNED) * ALIGNED for width, _ in groups]
        total = sum(size * count for size, (_, count) in zip(sizes, groups, strict=True))
        block, begin, addresses = streams.empty(total, self.dtype, self.ready), 0, list[int]()
        start, item = block.data.ptr, block.itemsize
        for size, (width, count) in zip(sizes, groups, strict=True):
            self._spans.append(_Span(self._length, block, begin, size, width))
            addresses += [start + (begin + i * size) * item for i in range(count)]
            begin += size * count
            self._length += count
        return addresses

    def drop(self, count: int) -> None:
        """Forget the steps from ``count`` on."""
        self._length = count
        self._spans = [span for span in self._spans if span.first < count]
        self._views = {step: view for step, view in self._views.items() if step < count}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, step: Any) -> Any:
        if isinstance(step, slice):
            return [self[i] for i in range(*step.indices(len(self)))]
        step = range(self._length)[step]
        if step not in self._views:
            span = next(s for s in reversed(self._spans) if s.first <= step)
            begin = span.begin + (step - span.first) * span.size
            held = span.block[begin : begin + self.num_samples * span.width]
            self._views[step] = held.reshape(self.num_samples, span.width)
        return self._views[step]
