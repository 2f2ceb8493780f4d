"""PyTorch's global generators during a run, which are the caller's again after it, also where runs go on in threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

LOCK = threading.RLock()
"""Held by whoever sets generators, or draws weights from them: they are the whole process's."""
_own = threading.local()
"""``depth``: how many blocks the thread is in."""
_kept: dict[int | None, tuple[int, Any]] = {}
"""GPU, None for the CPU -> how many runs go on, and the state before the first of them."""


@contextlib.contextmanager
def given_back(device: str) -> Iterator[None]:
    """The generators of the CPU and, for "cuda", of all GPUs are at the end as they were before the block.

    Of blocks that overlap in several threads, the last one to end gives them back. A block inside another of the same
    thread, as of a run that is started from a callback of a run, gives back what it found.
    """
    import torch

    places: list[int | None] = [None, *(range(torch.cuda.device_count()) if device == "cuda" else ())]
    outer = getattr(_own, "depth", 0)
    found = {place: _state(place) for place in places} if outer else {}
    _own.depth = outer + 1
    with LOCK:
        for place in places:
            count, state = _kept.get(place) or (0, _state(place))
            _kept[place] = count + 1, state
    try:
        yield
    finally:
        _own.depth = outer
        with LOCK:
            for place in places:
                count, state = _kept.pop(place)
                if count > 1:
                    _kept[place] = count - 1, state
                    if place in found:
                        _set_state(place, found[place])
                else:
                    _set_state(place, state)


def _set_state(place: int | None, state: Any) -> None:
    import torch

    if place is None:
        torch.set_rng_state(state)
    else:
        torch.cuda.set_rng_state(state, place)


def _state(place: int | None) -> Any:
    import torch

    return torch.get_rng_state() if place is None else torch.cuda.get_rng_state(place)


@contextlib.contextmanager
def weights(seed: int | None = None) -> Iterator[None]:
    """Weights that are drawn on the CPU inside the block, as float32, depend on ``seed`` alone.

    No other thread draws weights meanwhile, and the CPU's generator is left as it was.
    """
    import torch

    with LOCK, torch.random.fork_rng(devices=()):
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        usual = torch.get_default_dtype()
        if usual != torch.float32:
            torch.set_default_dtype(torch.float32)
        try:
            with torch.device("cpu"):  # whatever the caller has as a default
                yield
        finally:
            if usual != torch.float32:
                torch.set_default_dtype(usual)
