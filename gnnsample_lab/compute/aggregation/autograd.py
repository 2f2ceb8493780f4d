"""Autograd functions around the GPU kernels. Imported when a CUDA tensor is aggregated for the first time."""

from __future__ import annotations

from typing import Any

import torch

from . import ladder
from .aggregate import gather_tensors, gradient_of_sources
from .csr import csr_of


class Aggregate(torch.autograd.Function):
    """Sum or mean over the edges of a block, with gradients for features and weights."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, block: Any, mean: bool, kernel: str) -> Any:
        x = x.contiguous()
        weight = None if weight is None else weight.contiguous()
        ctx.block, ctx.mean, ctx.kernel, ctx.rows = block, mean, kernel, x.shape[0]
        # Features are needed again for the gradient of the weights only.
        kept = x if weight is not None and ctx.needs_input_grad[1] else None
        ctx.save_for_backward(kept, weight)
        return gather_tensors(kernel, csr_of(block), x, weight, mean)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        x_grad = weight_grad = None
        if ctx.needs_input_grad[0]:
            x_grad = gradient_of_sources(ctx.kernel, ctx.block, grad, weight, ctx.mean)
            if ctx.rows > x_grad.shape[0]:  # rows beyond the block's sources were ignored
                x_grad = torch.cat([x_grad, x_grad.new_zeros(ctx.rows - x_grad.shape[0], x_grad.shape[1])])
        if weight is not None and ctx.needs_input_grad[1]:
            weight_grad = torch.empty_like(weight)
            ladder.edge_dots(csr_of(ctx.block), grad, x, weight_grad, ctx.mean)
        return x_grad, weight_grad, None, None, None
