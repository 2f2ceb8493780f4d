"""The autograd function around the attention kernels. Imported when CUDA tensors attend for the first time."""

from __future__ import annotations

from typing import Any

import torch

from . import attention
from .aggregation.aggregate import check_features
from .aggregation.csr import csr_of


class Attention(torch.autograd.Function):
    """Edge softmax and aggregation, with gradients for features and both scores."""

    @staticmethod
    def forward(ctx: Any, x: Any, score_src: Any, score_dst: Any, block: Any, slope: float) -> Any:
        x, score_src, score_dst = x.contiguous(), score_src.contiguous(), score_dst.contiguous()
        out, log_sum = attention.forward(csr_of(block), x, score_src, score_dst, slope)
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(x, score_src, score_dst, out, log_sum)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        x, score_src, score_dst, out, log_sum = ctx.saved_tensors
        grads = attention.backward(
            ctx.block, x, score_src, score_dst, out, log_sum, grad.contiguous(), ctx.slope
        )
        x_grad, src_grad = (_padded(g, len(given)) for g, given in zip(grads, (x, score_src)))
        return x_grad, src_grad, grads[2], None, None


class FoldedAttention(torch.autograd.Function):
    """The same for values with their scores in one table, ``[num_src, H D + H]``: what one matrix product makes.

    Rows of ``score_dst`` may lie apart, as columns of another table do.
    """

    @staticmethod
    def forward(ctx: Any, both: Any, score_dst: Any, block: Any, heads: int, slope: float) -> Any:
        check_features("x", both, csr_of(block), 2)  # of a layer's x; kernels believe what they are told
        both = both.contiguous()
        x, score_src = attention.parts(both, heads)
        out, log_sum = attention.forward(csr_of(block), x, score_src, score_dst, slope)
        ctx.block, ctx.heads, ctx.slope = block, heads, slope
        ctx.save_for_backward(both, score_dst, out, log_sum)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        both, score_dst, out, log_sum = ctx.saved_tensors
        both_grad = both.new_empty(csr_of(ctx.block).num_sources, both.shape[1])
        given = attention.parts(both, ctx.heads)
        target_grad = attention.backward(
            ctx.block, *given, score_dst, out, log_sum, grad.contiguous(), ctx.slope, both_grad
        )[2]
        return _padded(both_grad, len(both)), target_grad, None, None, None


def _padded(grad: Any, rows: int) -> Any:
    """Rows beyond the block's sources were ignored: their gradient is zero."""
    if rows == grad.shape[0]:
        return grad
    return torch.cat([grad, grad.new_zeros(rows - grad.shape[0], *grad.shape[1:])])
