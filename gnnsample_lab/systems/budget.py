"""``budget_gb`` and ``cache_gb``: a run kept to the memory of a smaller card, or its cache to a size that a paper had.

Both stand for a card's capacity and not for its speed, which labels say (:func:`label`). What counts towards a budget
is in :mod:`gnnsample_lab.pipeline.memory`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gnnsample_lab.checks import real
from gnnsample_lab.device.pools import GivenBack
from gnnsample_lab.pipeline.memory import (
    NOTHING,
    Held,
    held,
    reset_pools,
    rounding,
    take_workspaces,
)
from gnnsample_lab.readable import size

_WITHOUT_MODEL = 64 << 20
"""What PyTorch's allocator gets on a GPU that samples alone."""

_GAPS = 40 << 20
"""PyTorch's allocator never fills its segments to their ends: 20 MiB, of which each stream has its own."""


def bytes_of(budget_gb: float | None) -> int | None:
    """``budget_gb`` in bytes, one at least; None where there is none."""
    if budget_gb is None:
        return None
    return max(1, round(real("budget_gb", budget_gb, None, 1e9, above=0) * 1e9))


def cache_bytes(cache_gb: float | None, ratio: float | None, capacity_bytes: int | None) -> int | None:
    """The size of the cache in bytes, as ``cache_gb`` or ``capacity_bytes`` says; None where neither does.

    Raises:
        TypeError, ValueError: no size, or more than one of the three.
    """
    if cache_gb is None:
        return capacity_bytes
    found = round(real("cache_gb", cache_gb, 0, 1e9) * 1e9)  # n / 1e9 * 1e9 may lie a little below n
    if ratio is not None or capacity_bytes is not None:
        raise ValueError("give one of cache_ratio, capacity_bytes and cache_gb (got cache_gb and another)")
    return found


def label(origin: str, budget_gb: float | None, cache_gb: float | None) -> str:
    """``origin`` of a figure, with the capacity that the run was kept to: the speed is the device's own.

    Raises:
        TypeError, ValueError: no size; the message names the argument.
    """
    kept = []
    if budget_gb is not None:
        kept.append(f"capacity of {real('budget_gb', budget_gb, None, 1e9, above=0):g} GB")
    if cache_gb is not None:
        kept.append(f"cache of {real('cache_gb', cache_gb, 0, 1e9):g} GB")
    return f"{origin} ({', '.join(kept)}; its speed)" if kept else origin


def within_budget(what: str, num_bytes: int, budget_bytes: int) -> None:
    """Raises MemoryError, naming ``what``, where it takes more than the budget."""
    if num_bytes > budget_bytes:
        raise MemoryError(f"{_budget(budget_bytes)} is less than {what}: {size(num_bytes)}")


def peak_within_budget(peak_bytes: int, parts: Held, topology: int, cache: int, budget_bytes: int) -> None:
    """Raises MemoryError where an epoch held more than the budget; the message says what held how much.

    Args:
        peak_bytes: the most that was held.
        parts: by who holds it. topology, cache: in them, bytes of the graph and of the cache.
    """
    of_graph = f"topology {size(topology)}, cache {size(cache)}, in all: {parts}"
    within_budget(f"the peak of graph, cache and pools ({of_graph})", peak_bytes, budget_bytes)


def margins(torch: int, working: int) -> tuple[int, int]:
    """Bytes that CuPy's pool, and PyTorch's allocator, may take beyond what they held in the trial of a step.

    Mini-batches differ in size. Both pools are asked for few sizes (:func:`rounding`), and what one has left fits the
    next. CuPy's held up to 1.2 times the trial's so, PyTorch's, whose blocks are cut up, 1.4 times (an H200,
    ``products-like``). At their limits they would go on with less, but wait for the GPU again and again.

    Args:
        torch: PyTorch's peak in the trial. working: what CuPy's pool held besides graph and cache.
    """
    return working // 4, torch // 2 + _GAPS


def cache_beside(budget_bytes: int, trial: Held, working: int) -> int:
    """Bytes of a budget that a cache may take beside what the trial of a step held, and the margins of both pools; a
    tenth of what is left at least stays free."""
    left = max(0, budget_bytes - trial.total)
    return max(0, left - max(left // 10, sum(margins(trial.torch, working))))


def limits(budget_bytes: int, before: Held, working: int, trains: bool = True) -> tuple[int, int]:
    """The most bytes that CuPy's pool and PyTorch's allocator may hold, which are the budget together.

    Each gets what it has held so far, and CuPy ``working`` bytes, which mini-batches took in the trial of a step. What
    is then left they share as their :func:`margins` are. Without a trial nobody knows what either needs, and each gets
    half; where nothing is trained CuPy gets nearly all.

    Args:
        before: graph and cache in CuPy's pool, PyTorch's peak in the trial, memory of peers.
        working: 0 without a trial: the size of the cache was given, or there is none.
        trains: False on a GPU that samples alone.
    """
    spare = max(0, budget_bytes - before.total - working)
    more_cupy, more_torch = margins(before.torch, working) if working else (1, 1)
    share = spare * more_torch // (more_cupy + more_torch)
    of_torch = before.torch + (share if trains else min(share, _WITHOUT_MODEL))
    return budget_bytes - before.peers - of_torch, of_torch


@contextlib.contextmanager
def kept_to(
    budget_bytes: int | None, device: str, others: Held = NOTHING, working: int = 0, trains: bool = True
) -> Iterator[GivenBack]:
    """Inside, PyTorch's and CuPy's pools hold at most ``budget_bytes`` of the GPU together; None or a CPU: no bound.

    A pool keeps blocks that it does not need while there is memory, so that its size says more of the card than of the
    work. At their limits (:func:`limits`) the pools give such blocks back and try again, as at the end of a card; what
    is yielded says, when the block is left, how often.

    Args:
        others: what was held before the run, and does not count.
        working: bytes that mini-batches took of CuPy's pool in the trial of a step; 0 where there was none.
        trains: False on a GPU that samples alone.

    Raises:
        MemoryError: there is nothing left to train with, or a pool cannot go on within its part; the message names
            which.
    """
    given_back = GivenBack()
    if budget_bytes is None or device == "cpu":
        yield given_back
        return
    import torch
    from cupy.cuda.memory import OutOfMemoryError

    if trains:
        take_workspaces()
    trial = held(device)  # PyTorch's peak is that of a step; CuPy's pool has all that building the cache took
    reset_pools()
    before = Held(held(device).cupy, trial.torch, trial.peers).less(others)
    within_budget(f"graph, cache and model ({before})", before.total, budget_bytes)
    of_cupy, of_torch = limits(budget_bytes, before, working, trains)
    whole, retried = torch.cuda.mem_get_info()[1], _torch_retries()
    try:
        with torch_kept_to((of_torch + others.torch) / whole), rounding(of_cupy + others.cupy, given_back):
            yield given_back
    except torch.OutOfMemoryError as error:
        what = f"model, activations and gradients need beside graph and cache ({before})"
        raise MemoryError(f"{_budget(budget_bytes)} is less than what {what}: {error}") from error
    except OutOfMemoryError as error:
        what = f"samples and what is made of them need beside graph and cache ({before})"
        raise MemoryError(f"{_budget(budget_bytes)} is less than what {what}: {error}") from error
    finally:
        given_back.times += _torch_retries() - retried


@contextlib.contextmanager
def torch_kept_to(fraction: float) -> Iterator[None]:
    """Inside, PyTorch's allocator holds at most this share of the GPU, or the caller's own bound, which comes back.

    A PyTorch that cannot tell its bound has none afterwards.
    """
    import torch

    told = getattr(torch.cuda, "get_per_process_memory_fraction", None)
    before = 1.0 if told is None else told()
    torch.cuda.set_per_process_memory_fraction(min(before, fraction))
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(before)


def _torch_retries() -> int:
    """How often PyTorch's allocator has given unused blocks back and tried again, in this process."""
    import torch

    return int(torch.cuda.memory_stats().get("num_alloc_retries", 0))


def _budget(budget_bytes: int) -> str:
    return f"budget_gb={budget_bytes / 1e9:g} ({size(budget_bytes)})"
