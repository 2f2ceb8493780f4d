"""A GIN layer on the GPU with few launches. Imported when CUDA tensors reach such a layer for the first time."""

from __future__ import annotations

from typing import Any

import torch

from .aggregation import register_tile
from .aggregation.aggregate import check_features, gradient_of_sources
from .aggregation.csr import csr_of, stream_for
from .fused.block import SummedBlock


class GinLayer(torch.autograd.Function):
    """``MLP((1 + eps) x + sum over the edges)``: own rows are added as sums are written, and nothing is made twice.

    PyTorch would make each sum and product a pass of its own, forward and backward. On small blocks their launches are
    all the time that there is.
    """

    @staticmethod
    def forward(ctx: Any, x: Any, eps: Any, w1: Any, b1: Any, w2: Any, b2: Any, block: Any) -> Any:
        rows = _rows(block, x, eps)
        hidden = torch.addmm(b1, rows, w1.t()).relu_()
        ctx.block, ctx.sources = block, x.shape[0]
        own = x[: rows.shape[0]] if ctx.needs_input_grad[1] else None
        ctx.save_for_backward(own, eps, rows, hidden, w1, w2)
        return torch.addmm(b2, hidden, w2.t())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        own, eps, rows, hidden, w1, w2 = ctx.saved_tensors
        ones = grad.new_ones(1, grad.shape[0])  # sums over rows as products: see layers.linear
        w2_grad, b2_grad = grad.t().mm(hidden), ones.mm(grad).squeeze(0)
        inner = torch.ops.aten.threshold_backward(grad.mm(w2), hidden, 0)
        w1_grad, b1_grad = inner.t().mm(rows), ones.mm(inner).squeeze(0)
        x_grad = eps_grad = None
        if ctx.needs_input_grad[0]:
            back = inner.mm(w1)
            x_grad = gradient_of_sources("auto", ctx.block, back, None, False)
            x_grad[: len(back)].add_(back).addcmul_(back, eps)
            if ctx.sources > len(x_grad):  # rows beyond the block's sources were ignored
                x_grad = torch.cat([x_grad, x_grad.new_zeros(ctx.sources - len(x_grad), x_grad.shape[1])])
            if own is not None:
                eps_grad = torch.dot(back.flatten(), own.flatten())
        elif own is not None:  # <inner W1, own> without a row of gradient for each vertex
            eps_grad = torch.dot(w1.flatten(), inner.t().mm(own).flatten())
        return x_grad, eps_grad, w1_grad, b1_grad, w2_grad, b2_grad, None


def _rows(block: Any, x: Any, eps: Any) -> Any:
    """Sums of a block with the vertices' own rows."""
    from .layers import Fold

    if isinstance(block, SummedBlock):
        return torch.add(block.aggregated("sum"), x).addcmul_(x, eps)
    csr = csr_of(block)
    # The kernel believes what it is told: numbers of another type, or fewer rows, are memory that is not x's.
    check_features("x", x, csr, 2)
    x = x.contiguous()
    rows = x.new_empty(csr.num_rows, x.shape[1])
    with stream_for(x):
        register_tile.launch(csr, x, rows, fold=Fold(x, more=eps))
    return rows
