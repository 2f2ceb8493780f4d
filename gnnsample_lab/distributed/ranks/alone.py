"""A rank that is alone in its process: what ranks run together, run by one without any process group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .rank import Rank


class Alone(Rank):
    """Rank 0 of 1, in the process of whoever makes it; nobody hears it, and it waits for nobody.

    Args:
        device: ``"cpu"``, or ``"cuda"`` for the current GPU.
    """

    def __init__(self, device: str) -> None:
        if device != "cpu":
            import cupy

            device = f"cuda:{cupy.cuda.Device().id}"
        nothing: Any = None
        super().__init__(
            0, 1, device=device, backend="gloo" if device == "cpu" else "nccl", group=None, groups=nothing,
            timeout_s=60.0, tell=lambda *_, **__: None,
        )  # fmt: skip

    def barrier(self) -> None:
        """Nobody else is to come."""

    def another_group(self, backend: str | None = None, parts: Sequence[Sequence[int]] | None = None) -> Any:
        """No group: one rank has no collectives."""
        return None

    def leave_group(self, group: Any) -> None:
        """No group was made."""

    def split(self, parts: Sequence[Sequence[int]]) -> Any:
        """No group: one rank has no collectives."""
        return None
