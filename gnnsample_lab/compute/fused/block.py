"""The input layer's block after its edges are summed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from gnnsample_lab.device.arrays import times_changed


class SummedBlock:
    """The input layer's block when its picks are summed as they are drawn: no sources and no edges lie in memory.

    The work is done when one of ``own``, ``total`` and ``lengths`` is asked for, or by :meth:`write`.

    Args:
        dst: destination vertices, global ids ``[num_dst]``.
        gather: ``gather(table, lengths) -> (table, lengths)``, tensors: writes each destination's own row beside the
            sum or mean of its picks' rows, ``float32[num_dst, 2 F]``, and how many picks it has,
            ``float32[num_dst]``; into new memory where it is given None.
        reduce: which of the two, ``"sum"`` or ``"mean"``.
        width: of the table, ``2 F``.

    Attributes:
        dst, reduce, width: as given.
        kept: as in a :class:`~gnnsample_lab.Block`.
    """

    def __init__(
        self, dst: Any, gather: Callable[[Any, Any], tuple[Any, Any]], reduce: str, width: int
    ) -> None:
        self.dst, self.reduce, self.width, self._gather = dst, reduce, width, gather
        self.kept: dict[str, Any] = {}

    @property
    def num_dst(self) -> int:
        return int(self.dst.shape[0])

    @cached_property
    def _made(self) -> tuple[Any, Any]:
        import torch

        with torch.inference_mode(False):  # who asks first may evaluate, who asks later may train
            made = self._gather(None, None)
        self._version = times_changed(made[0])
        return made

    @property
    def own(self) -> Any:
        """Rows of the destinations themselves, tensor ``float32[num_dst, F]``: the model's ``x``."""
        return self._made[0][:, : self.width // 2]

    @property
    def total(self) -> Any:
        """Sum or mean of the rows of each destination's picks, tensor ``float32[num_dst, F]``; zeros without picks."""
        return self._made[0][:, self.width // 2 :]

    @property
    def lengths(self) -> Any:
        """Picks of each destination, tensor ``float32[num_dst, 1]``."""
        return self._made[1].unsqueeze(1)

    def check_rows(self, x: Any) -> None:
        """That a layer is given :attr:`own`, or a copy: sums of other rows are not those of this block.

        Raises:
            ValueError: something, a norm or dropout before the layer say, has changed the rows.
        """
        import torch

        own = self.own
        if self._is_own(x):
            if times_changed(own) == self._version:
                return
        # A captured step was made once before as it stands.
        elif (x.is_cuda and torch.cuda.is_current_stream_capturing()) or torch.equal(x, own):
            return
        raise ValueError(
            "x must be the rows that a FusedSampler gives, whose neighbours are summed already: use a NeighborSampler "
            "where the model changes rows before its first layer"
        )

    def aggregated(self, reduce: str) -> Any:
        """``"sum"`` or ``"mean"`` of each destination's rows, ``[num_dst, F]``."""
        if reduce == self.reduce:
            return self.total
        lengths = self.lengths.clamp(min=1)
        return self.total * lengths if reduce == "sum" else self.total / lengths

    def table(self, reduce: str, own: Any) -> Any:
        """``[num_dst, 2 F]``, :attr:`own` beside :meth:`aggregated`; None where ``own`` is not that very tensor."""
        return self._made[0] if reduce == self.reduce and self._is_own(own) else None

    def _is_own(self, x: Any) -> bool:
        own = self.own
        return bool(x.data_ptr() == own.data_ptr() and x.stride() == own.stride() and x.shape == own.shape)

    def empty_table(self, rows: int) -> Any:
        """A table like that of :attr:`own` beside :attr:`total`, ``float32[rows, 2 F]``, with nothing in it."""
        import torch

        return torch.empty(rows, self.width, dtype=torch.float32)

    def write(self, table: Any, lengths: Any) -> None:
        """Write to the first rows of ``table`` and ``lengths``, tensors with room for ``num_dst`` or more."""
        if "_made" not in self.__dict__:
            self._gather(table, lengths)
            return
        for target, made in zip((table, lengths), self._made, strict=True):
            target[: self.num_dst].copy_(made)

    def __repr__(self) -> str:
        return f"SummedBlock(num_dst={self.num_dst}, reduce={self.reduce!r})"
