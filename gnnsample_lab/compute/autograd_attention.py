"""The autograd function around the attention kernels. Imported when CUDA tensors attend for the first time."""

from __future__ import annotations

from typing import Any

import torch

from . import attention
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


def _padded(grad: Any, rows: int) -> Any:
    """Rows beyond the block's sources were ignored: their gradient is zero."""
    if rows == grad.shape[0]:
        return grad
    return torch.cat([grad, grad.new_zeros(rows - grad.shape[0], *grad.shape[1:])])
