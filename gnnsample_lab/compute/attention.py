"""``lab.attention``: edge softmax and aggregation in one pass, as in graph attention networks, differentiable."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gnnsample_lab.checks import is_cuda_array, real

from .aggregation import register_tile
from .aggregation.aggregate import check_device, check_features, check_kind, host_tensor, row_of_edge
from .aggregation.csr import (
    Csr,
    blocks_for,
    clear,
    contiguous,
    csr_of,
    dtype_name,
    empty,
    function,
    is_tensor,
    pointer,
    row_stride,
    scalar,
    scalar_type,
    stream_for,
)
from .aggregation.transpose import deterministic, transposed
from .autocast import widened


def attention(block: Any, x: Any, score_src: Any, score_dst: Any, negative_slope: float = 0.2) -> Any:
    """Attention over the edges of each destination (Velickovic et al., "Graph attention networks", ICLR 2018).

    For head ``h``, edge ``e`` from source ``s`` to destination ``r`` has the score
    ``leaky_relu(score_src[s, h] + score_dst[r, h])``; ``out[r, h]`` is the sum of ``x[s, h]`` weighted by the softmax
    of the scores over the edges of ``r``. A destination without edges gets zeros.

    Args:
        block: a :class:`~gnnsample_lab.Block` or ``TorchBlock``; local ids.
        x: ``[num_src, H, D]``, ``float32`` or ``float64``: NumPy, CuPy or torch, on the block's device.
        score_src: ``[num_src, H]``, of the kind and type of ``x``.
        score_dst: ``[num_dst, H]``, likewise.
        negative_slope: of the leaky ReLU, finite.

    Returns:
        ``[num_dst, H, D]``, of the kind of ``x``; torch tensors are differentiable in all three arguments.

    Raises:
        TypeError: ``block`` is no block, an argument is not floating point.
        ValueError: wrong shapes, arrays on different devices.
    """
    csr, slope = csr_of(block), real("negative_slope", negative_slope)
    if is_tensor(x):
        x, score_src, score_dst = widened(x), widened(score_src), widened(score_dst)
    check_features("x", x, csr, 3)
    heads, size = int(x.shape[1]), int(x.shape[2])
    if heads == 0 or size == 0:
        raise ValueError(f"x must have at least one head and one feature (got shape {tuple(x.shape)})")
    for name, scores, rows in (
        ("score_src", score_src, csr.num_sources),
        ("score_dst", score_dst, csr.num_rows),
    ):
        check_kind(name, scores)
        shape = tuple(scores.shape)
        if len(shape) != 2 or shape[0] < rows or shape[1] != heads:
            raise ValueError(f"{name} must have shape ({rows}, {heads}) (got {shape})")
        if dtype_name(scores) != dtype_name(x) or is_tensor(scores) != is_tensor(x):
            raise TypeError(
                f"{name} must be of the kind and type of x, {dtype_name(x)} (got {dtype_name(scores)})"
            )
        check_device(name, scores, csr)
    score_dst = score_dst[: csr.num_rows]
    if is_tensor(x):
        if not csr.on_gpu:
            return torch_attention(csr, x, score_src, score_dst, slope)
        from .autograd_attention import Attention

        return Attention.apply(x, score_src, score_dst, block, slope)
    if is_cuda_array(x):
        return forward(csr, contiguous(x), contiguous(score_src), contiguous(score_dst), slope)[0]
    import torch

    with torch.no_grad():
        hosts = host_tensor(x), host_tensor(score_src), host_tensor(score_dst)
        return torch_attention(csr, *hosts, slope).numpy()


def torch_attention(csr: Csr, x: Any, score_src: Any, score_dst: Any, slope: float) -> Any:
    """The same on the CPU by PyTorch's own operators."""
    import torch

    rows = row_of_edge(csr)
    sources, heads = csr.kept["sources"], x.shape[1]
    score = torch.nn.functional.leaky_relu(
        score_src.index_select(0, sources) + score_dst.index_select(0, rows), slope
    )
    index = rows.unsqueeze(1).expand(-1, heads)
    highest = score.new_full((csr.num_rows, heads), -torch.inf)
    highest = highest.scatter_reduce(0, index, score.detach(), "amax")  # shifting by it changes no gradient
    unnormalised = (score - highest.index_select(0, rows)).exp()
    total = unnormalised.new_zeros(csr.num_rows, heads).index_add(0, rows, unnormalised)
    share = unnormalised / total.index_select(0, rows)
    values = x.index_select(0, sources) * share.unsqueeze(2)
    return values.new_zeros(csr.num_rows, *x.shape[1:]).index_add(0, rows, values)


def _kernel(name: str, x: Any, vec: int, **shape: int) -> Any:
    return function("attention.cu", name, (("SCALAR", scalar_type(x)), ("VEC", vec), *shape.items()))


def _shape(x: Any, *arrays: Any) -> tuple[int, int]:
    """Scalars per load and lanes per row."""
    features, size = x.shape[1] * x.shape[2], x.shape[2]
    vec = register_tile.vector_width(math.gcd(features, row_stride(x)), size, x, *arrays)
    return vec, min(32, register_tile.power_of_two(-(-features // vec)))


def forward(csr: Csr, x: Any, score_src: Any, score_dst: Any, slope: float) -> tuple[Any, Any]:
    """Kernel ``attend``: the result and, per row and head, the logarithm of the softmax's denominator."""
    out = empty(x, (csr.num_rows, *x.shape[1:]), dtype_name(x))
    log_sum = empty(x, (csr.num_rows, x.shape[1]), dtype_name(x))
    if csr.num_rows:
        vec, lanes = _shape(x, out)
        args = (
            pointer(csr.indptr), pointer(csr.indices), pointer(x), pointer(score_src), pointer(score_dst),
            pointer(out), pointer(log_sum), np.uint64(csr.num_rows), np.uint32(x.shape[1]), np.uint32(x.shape[2]),
            scalar(x, slope), *(np.uint64(row_stride(a)) for a in (x, score_src, score_dst)),
        )  # fmt: skip
        with stream_for(x):
            _kernel("attend", x, vec, LANES=lanes)(blocks_for(csr.num_rows * lanes, 256), (256,), args)
    return out, log_sum


def backward(
    block: Any, x: Any, score_src: Any, score_dst: Any, out: Any, log_sum: Any, grad: Any, slope: float,
    into: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Gradients of ``x``, ``score_src`` and ``score_dst``; the first two as parts of the table ``into``, if given.

    One pass over the forward edges adds each edge's part to the gradients of its source. Under deterministic algorithms
    it leaves attention and score gradients at the edges' places in the transposed block, and two register-tile sums
    over that give the gradients of the sources.
    """
    csr, heads, size = csr_of(block), x.shape[1], x.shape[2]
    dtype = dtype_name(x)
    scatters = not deterministic()
    dst_grad = empty(x, (csr.num_rows, heads), dtype)
    if into is None:
        x_grad = empty(x, (csr.num_sources, heads, size), dtype)
        src_grad = empty(x, (csr.num_sources, heads), dtype)
    else:
        x_grad, src_grad = parts(into, heads)
    slots = share = score = None
    if not scatters:
        flipped = transposed(block, x)
        slots = flipped.slots
        share, score = (empty(x, (csr.num_edges, heads), dtype) for _ in range(2))
    with stream_for(x):
        if scatters:
            for target in (x_grad, src_grad) if into is None else (into,):
                clear(target)
        if csr.num_rows:
            vec, _ = _shape(x, out, grad)
            args: tuple[Any, ...] = (
                pointer(csr.indptr), pointer(csr.indices), pointer(slots), pointer(x), pointer(score_src),
                pointer(score_dst), pointer(out), pointer(log_sum), pointer(grad), pointer(share), pointer(score),
                pointer(dst_grad), np.uint64(csr.num_rows), np.uint32(heads), np.uint32(size), scalar(x, slope),
                *(np.uint64(row_stride(a)) for a in (x, score_src, score_dst)),
            )  # fmt: skip
            team = min(32, register_tile.power_of_two(-(-size // vec)))
            shape = {"TEAM": team, "STEPS": -(-size // (team * vec))}
            if scatters:
                shape["SCATTER"] = 1
                strides = (np.uint64(row_stride(a)) for a in (x_grad, src_grad))
                args = (*args, pointer(x_grad), pointer(src_grad), *strides)
            kernel = _kernel("attend_backward", x, vec, **shape)
            kernel(blocks_for(csr.num_rows * heads * team, 128), (128,), args)
        if not scatters:
            register_tile.launch(flipped.csr, grad, x_grad, share, head_size=size)
            register_tile.launch(flipped.csr, score, src_grad, direct=True)
    return x_grad, src_grad, dst_grad


def parts(both: Any, heads: int) -> tuple[Any, Any]:
    """Values ``[n, H, D]`` and scores ``[n, H]`` of one table of tensors, as views."""
    width = both.shape[1] - heads
    return both[:, :width].unflatten(1, (heads, width // heads)), both[:, width:]
