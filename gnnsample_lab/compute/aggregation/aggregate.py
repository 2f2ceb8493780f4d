"""``lab.aggregate``: sum or mean of the source rows of every destination of a block, differentiable for torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.checks import choice, is_cuda_array, shown
from gnnsample_lab.compute.autocast import widened

from . import ladder
from .csr import FLOATS, Csr, contiguous, csr_of, dtype_name, empty, is_tensor, stream_for
from .scatter import scatter, scatters
from .transpose import transposed

REDUCES = ("sum", "mean")


def aggregation_kernels() -> dict[str, str]:
    """Every aggregation kernel with one line on how it executes, the baselines first. All are valid on both devices;
    on the CPU each is computed by PyTorch's operators.
    """
    return dict(ladder.KERNELS)


def aggregate(block: Any, x: Any, weight: Any = None, reduce: str = "mean", kernel: str = "auto") -> Any:
    """Combine the rows of ``x`` that flow into each destination of ``block`` (FastGL, eq. 1).

    ``out[r]`` is the sum over the edges ``e`` of destination ``r`` of ``weight[e] * x[indices[e]]``; ``"mean"``
    divides it by the number of those edges (not by the sum of the weights). A destination without edges gets zeros.

    Args:
        block: a :class:`~gnnsample_lab.Block` or ``TorchBlock``; local ids.
        x: features of ``block.src``, ``[num_src, F]``, ``float32`` or ``float64``: NumPy, CuPy or torch, on the
            block's device. Further rows are ignored. Torch tensors are differentiable, and so is ``weight``: the
            gradient of ``x`` is gathered over the transposed block by the same kernel. Under ``torch.autocast`` tensors
            of 16 bits are taken as ``float32``.
        weight: per edge ``[num_edges]``, of the type of ``x``, or None.
        reduce: ``"sum"`` or ``"mean"``.
        kernel: a key of :func:`aggregation_kernels`. ``"gnnadvisor-style"`` has GNNAdvisor's groups, shared memory and
            dimension workers, and lacks its renumbering of the whole graph: blocks of mini-batches have no order that
            lasts. ``"gnnadvisor"``, its former name, is taken as well.

    Returns:
        ``[num_dst, F]``, of the kind of ``x``.

    Raises:
        TypeError: ``block`` is no block, ``x`` or ``weight`` is not floating point.
        ValueError: wrong shapes, an unknown name, arrays on different devices.
    """
    choice("reduce", reduce, REDUCES)
    kernel = ladder.kernel_name(kernel)
    csr = csr_of(block)
    if is_tensor(x):
        x, weight = widened(x), widened(weight)
    check_features("x", x, csr, 2)
    if weight is not None:
        check_weight(weight, x, csr)
    if is_tensor(x):
        return _of_tensors(block, csr, x, weight, reduce == "mean", kernel)
    if is_cuda_array(x):
        x, weight = contiguous(x), None if weight is None else contiguous(weight)
        out = empty(x, (csr.num_rows, x.shape[1]), dtype_name(x))
        ladder.gather(kernel, csr, x, out, weight, reduce == "mean")
        return out
    import torch

    given = None if weight is None else host_tensor(weight)
    with torch.no_grad():
        return torch_gather(csr, host_tensor(x), given, reduce == "mean").numpy()


def check_features(name: str, x: Any, csr: Csr, ndim: int) -> None:
    """``x`` has one row per source, a floating type that the kernels know, and lies where the block lies."""
    check_kind(name, x)
    shape = x.shape
    if dtype_name(x) not in FLOATS:
        raise TypeError(f"{name} must be float32 or float64 (got {dtype_name(x)})")
    if len(shape) != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions (got shape {tuple(shape)})")
    if shape[0] < csr.num_sources:
        raise ValueError(f"{name} must have a row for each of {csr.num_sources} sources (got {shape[0]})")
    check_device(name, x, csr)


def check_kind(name: str, array: Any) -> None:
    """``array`` is a NumPy or CuPy array or a torch tensor."""
    if not (
        isinstance(array, np.ndarray) or is_cuda_array(array) or (is_tensor(array) and hasattr(array, "dim"))
    ):
        raise TypeError(f"{name} must be a NumPy, CuPy or torch array (got {shown(array)})")


def check_device(name: str, array: Any, csr: Csr) -> None:
    """``array`` lies on the device of the block."""
    if is_cuda_array(array) != csr.on_gpu:
        here, there = ("GPU" if flag else "CPU" for flag in (csr.on_gpu, is_cuda_array(array)))
        raise ValueError(f"{name} must be on the {here} as block is (got one on the {there})")


def check_weight(weight: Any, x: Any, csr: Csr) -> None:
    """``weight`` has one number per edge, in the type and library of ``x``."""
    check_kind("weight", weight)
    if dtype_name(weight) != dtype_name(x):
        raise TypeError(f"weight must have the element type of x, {dtype_name(x)} (got {dtype_name(weight)})")
    if is_tensor(weight) != is_tensor(x):
        raise TypeError(f"weight must be of the same kind as x (got {type(weight).__name__})")
    if tuple(weight.shape) != (csr.num_edges,):
        raise ValueError(f"weight must have shape ({csr.num_edges},) (got {tuple(weight.shape)})")
    check_device("weight", weight, csr)


def host_tensor(array: Any) -> Any:
    import torch

    array = np.ascontiguousarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def row_of_edge(csr: Csr) -> Any:
    """Destination of each edge as a host tensor, ``int64[num_edges]``; made once."""
    import torch

    if "rows" not in csr.kept:
        # Later calls may train: what is kept must not be of the inference mode in which the first call may be.
        with torch.inference_mode(False):
            indptr = csr.indptr if is_tensor(csr.indptr) else host_tensor(csr.indptr)
            lengths = indptr.diff()
            rows = torch.repeat_interleave(
                torch.arange(csr.num_rows, device="cpu"), lengths, output_size=csr.num_edges
            )
            indices = csr.indices if is_tensor(csr.indices) else host_tensor(csr.indices)
            csr.kept["sources"], csr.kept["lengths"] = indices.long(), lengths
            csr.kept["rows"] = rows
    return csr.kept["rows"]


def torch_gather(csr: Csr, x: Any, weight: Any, mean: bool) -> Any:
    """The aggregation on the CPU, by PyTorch's own operators (and its own gradients)."""
    rows = row_of_edge(csr)
    values = x.index_select(0, csr.kept["sources"])
    if weight is not None:
        values = values * weight.unsqueeze(1)
    out = x.new_zeros(csr.num_rows, x.shape[1]).index_add(0, rows, values)
    if mean:
        out = out / csr.kept["lengths"].clamp(min=1).to(x.dtype).unsqueeze(1)
    return out


def _of_tensors(block: Any, csr: Csr, x: Any, weight: Any, mean: bool, kernel: str) -> Any:
    if not csr.on_gpu:
        return torch_gather(csr, x, weight, mean)
    from .autograd import Aggregate

    return Aggregate.apply(x, weight, block, mean, kernel)


def gather_tensors(kernel: str, csr: Csr, x: Any, weight: Any, mean: bool) -> Any:
    """One launch on torch's stream into a new tensor."""
    out = empty(x, (csr.num_rows, x.shape[1]), dtype_name(x))
    with stream_for(x):
        ladder.gather(kernel, csr, x, out, weight, mean)
    return out


def gradient_of_sources(kernel: str, block: Any, grad: Any, weight: Any, mean: bool) -> Any:
    """Gradient of ``x``: the same kernel over the transposed block (FastGL, eq. 5); ``[num_src, F]``."""
    csr = csr_of(block)
    if kernel == "auto" and "transposed" not in csr.kept and scatters(csr, grad):
        return scatter(csr, grad, weight, mean)
    flipped = transposed(block, grad)
    coef = flipped.coefficients(weight, mean, grad)
    return gather_tensors(kernel, flipped.csr, grad, coef, False)
