"""Under ``torch.autocast`` sums over edges and whole layers compute in ``float32``, as torch's own sums and norms do.

Kernels add ``float32``, and a layer makes products that write into one another's tables, which must be of one type. The
rest of a model goes on in 16 bits.
"""

from __future__ import annotations

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
