"""Layers one after another over the blocks of a mini-batch: what ``lab.make_model`` makes.

The classes are the module's own, so that models can be pickled: saved whole, or sent to another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from gnnsample_lab.checks import shown

from .aggregation.csr import csr_of


class BlockModel(nn.Module):
    """Layers over blocks, with a ReLU between them and, in training, dropout."""

    def __init__(self, name: str, layers: Sequence[nn.Module], dropout: float) -> None:
        super().__init__()
        self.name, self.layers, self.dropout = name, nn.ModuleList(layers), dropout

    def between(self, x: Any) -> Any:
        """What happens to rows between two layers."""
        return nn.functional.dropout(torch.relu(x), self.dropout, self.training)

    # In evaluation mode each row is made of that row alone, and kernels may apply a ReLU as they write rows.
    between.is_relu = between.is_by_row = True  # type: ignore[attr-defined]

    def forward(self, blocks: Sequence[Any], x: Any) -> Any:
        if not isinstance(blocks, Sequence):
            raise TypeError(f"blocks must be a list, those of a mini-batch (got {shown(blocks)})")
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"x must be a tensor of PyTorch (got {shown(x)})")
        if len(blocks) != len(self.layers):
            raise ValueError(f"blocks must be {len(self.layers)}, one per layer (got {len(blocks)})")
        for index, (layer, block) in enumerate(zip(self.layers, blocks)):
            if index:
                x = self.between(x)
                if len(x) > csr_of(block).num_sources:
                    x = x[: csr_of(block).num_sources]
            x = layer(block, x)
        return x


class GATModel(BlockModel):
    """The same with an ELU between layers."""

    def between(self, x: Any) -> Any:
        """What happens to rows between two layers."""
        return nn.functional.dropout(nn.functional.elu(x), self.dropout, self.training)

    between.is_by_row = True  # type: ignore[attr-defined]


class PinSAGEModel(BlockModel):
    """The same without an activation between layers, which have their own."""

    def between(self, x: Any) -> Any:
        """What happens to rows between two layers."""
        return nn.functional.dropout(x, self.dropout, self.training)

    between.is_by_row = True  # type: ignore[attr-defined]


STACKS = {"gat": GATModel, "pinsage": PinSAGEModel}
"""Classes of the models that have another activation than a ReLU between layers."""
