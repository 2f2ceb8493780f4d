"""``budget_gb``: the memory pools kept to a part of the card, as a smaller card would keep them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gnnsample_lab.checks import real
from gnnsample_lab.pipeline.trainer import reset_pools


def bytes_of(budget_gb: float | None) -> int | None:
    """``budget_gb`` in bytes; None where there is none."""
    return None if budget_gb is None else int(real("budget_gb", budget_gb, None, 1e9, above=0) * 1e9)


def within_budget(what: str, num_bytes: int, budget_bytes: int) -> None:
    """Raises MemoryError, naming ``what``, where it takes more than the budget."""
    if num_bytes > budget_bytes:
        raise MemoryError(
            f"budget_gb={budget_bytes / 1e9:g} is less than {what}: {num_bytes / 1e9:.3g} GB (10^9 bytes)"
        )


@contextlib.contextmanager
def kept_to(budget_bytes: int | None, device: str) -> Iterator[None]:
    """Inside, PyTorch's and CuPy's pools hold at most ``budget_bytes`` of the GPU together; None or a CPU: no bound.

    A pool keeps blocks that it does not need while there is memory, so that its size says more of the card than of the
    work. At their limits the pools give such blocks back and try again, as they do at the end of a card. Each gets what
    it has held so far (graph, cache, the trial of a step) and half of what is then left of the budget.

    Raises:
        MemoryError: a pool cannot go on within its part; the message names which.
    """
    if budget_bytes is None or device == "cpu":
        yield
        return
    import cupy
    import torch

    pool = cupy.get_default_memory_pool()
    of_torch, of_cupy = int(torch.cuda.max_memory_reserved()), int(pool.total_bytes())
    reset_pools()
    of_torch += (budget_bytes - of_torch - of_cupy) // 2
    before = pool.get_limit()
    pool.set_limit(size=budget_bytes - of_torch)
    torch.cuda.set_per_process_memory_fraction(of_torch / torch.cuda.mem_get_info()[1])
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MemoryError(f"{_less(budget_bytes)} model, activations and gradients need: {error}") from error
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise MemoryError(f"{_less(budget_bytes)} graph, cache and samples need: {error}") from error
    finally:
        pool.set_limit(size=before)
        torch.cuda.set_per_process_memory_fraction(1.0)


def _less(budget_bytes: int) -> str:
    return f"budget_gb={budget_bytes / 1e9:g} is less than"
