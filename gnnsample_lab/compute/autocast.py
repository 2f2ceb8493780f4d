"""Under ``torch.autocast`` sums over edges and whole layers compute in ``float32``, as torch's own sums and norms do.

Kernels add ``float32``, and a layer makes products that write into one another's tables, which must be of one type. The
rest of a model goes on in 16 bits.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any


def is_on(x: Any) -> bool:
    """Whether ``torch.autocast`` casts operations on ``x`` now, if that is a tensor."""
    import torch

    return isinstance(x, torch.Tensor) and torch.is_autocast_enabled(x.device.type)


def widened(x: Any) -> Any:
    """A tensor of 16 bits as ``float32`` where autocast is on; anything else as it is."""
    import torch

    return x.float() if is_on(x) and x.dtype in (torch.float16, torch.bfloat16) else x


def in_float32(forward: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """A layer's ``forward(block, x)`` without autocast, on ``x`` as ``float32``."""
    import torch

    @functools.wraps(forward)
    def wide(self: Any, block: Any, x: Any) -> Any:
        if not is_on(x):
            return forward(self, block, x)
        x = widened(x)
        with torch.autocast(x.device.type, enabled=False):
            return forward(self, block, x)

    return wide


def fresh_casts(device: str) -> contextlib.AbstractContextManager[Any]:
    """Autocast as it is on this kind of device, but for weights that it has cast before, which are cast anew.

    It keeps them until its outermost block ends. Where an update is made inside that block they are old.
    """
    import torch

    if not torch.is_autocast_enabled(device):
        return contextlib.nullcontext()
    return torch.autocast(device, torch.get_autocast_dtype(device), cache_enabled=False)


def arithmetic(device: str) -> tuple[Any, ...]:
    """How PyTorch computes now on this kind of device: what a captured step holds of it, as a key."""
    import torch

    matmul = torch.backends.cuda.matmul
    # Of PyTorch before 2.9 the one, since then the other; it refuses to tell the one once the other was set.
    products = getattr(matmul, "fp32_precision", None) or matmul.allow_tf32
    casts = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    return casts, products, torch.are_deterministic_algorithms_enabled()
