"""Tables of messages: rows so wide that the widest loads may take them, whatever a layer's number of columns is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ALIGNED_BYTES = {"cuda": 16, "cpu": 1}
"""What rows of messages are multiples of: GPUs load 16 bytes at a time if rows are aligned to them."""


@dataclass(frozen=True)
class Columns:
    """Of a table of messages: ``heads`` times ``padded``, of which ``size`` are a head's and the rest are zeros."""

    heads: int
    size: int
    padded: int

    @property
    def width(self) -> int:
        """Of a row of the table."""
        return self.heads * self.padded

    @property
    def is_padded(self) -> bool:
        return self.padded != self.size

    def pad(self, rows: Any) -> Any:
        """``[n, heads * size]`` as ``[n, width]``, dense."""
        if not self.is_padded:
            return rows.contiguous()
        return self._padded(rows.unflatten(1, (self.heads, self.size)), 1).flatten(1)

    def pad_outputs(self, weight: Any) -> Any:
        """A map's weight ``[heads * size, in]`` with a row of zeros for each column of padding."""
        if not self.is_padded:
            return weight
        return self._padded(weight.view(self.heads, self.size, -1), 2).flatten(0, 1)

    def _padded(self, array: Any, behind: int) -> Any:
        import torch

        return torch.nn.functional.pad(array, (0, 0) * (behind - 1) + (0, self.padded - self.size))

    def cut(self, rows: Any) -> Any:
        """``[n, width]`` without the padding: ``[n, heads * size]``, a view if there is one head."""
        if not self.is_padded:
            return rows
        if self.heads == 1:
            return rows[:, : self.size]
        return rows.unflatten(1, (self.heads, self.padded))[:, :, : self.size].flatten(1)


def columns_of(sent: int, heads: int, device: str, itemsize: int) -> Columns:
    """Those of messages of ``sent`` columns, whose ``heads`` have shares of their own (0: there are none)."""
    heads = max(1, heads)
    size, step = sent // heads, max(1, ALIGNED_BYTES[device] // itemsize)
    return Columns(heads, size, -(-size // step) * step)


def messages(layer: Any, x: Any, mapped: bool, columns: Columns) -> Any:
    """What ``layer`` sends along the edges of the vertices with rows ``x``: ``[n, columns.width]``, dense."""
    import torch

    from gnnsample_lab.compute.layers import Layer

    if columns.is_padded and getattr(type(layer), "message", None) is Layer.message:
        weight = layer.message_weight(mapped)
        if weight is not None:
            return torch.nn.functional.linear(x, columns.pad_outputs(weight))
    return columns.pad(layer.message(x, mapped))
