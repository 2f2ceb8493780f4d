"""GCN, GraphSAGE, GIN, GAT and PinSAGE over a list of sampled blocks, sized as in FastGL's evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnsample_lab.checks import choice, real, whole

from .aggregation.ladder import kernel_name

if TYPE_CHECKING:
    from torch import nn

MODELS: dict[str, str] = {
    "gcn": "mean over neighbours and vertex, one linear map a layer (Kipf and Welling 2017)",
    "sage": "mean over neighbours, the vertex through a map of its own (Hamilton et al. 2017)",
    "gin": "sum over neighbours and vertex, a two-layer perceptron (Xu et al. 2019)",
    "gat": "attention heads (Velickovic et al. 2018)",
    "pinsage": "neighbours weighted by random-walk visits (Ying et al. 2018)",
}


def models() -> dict[str, str]:
    """Every model name with one line on what it computes."""
    return dict(MODELS)


def make_model(
    name: str,
    num_features: int,
    hidden: int = 64,
    num_classes: int = 2,
    num_layers: int = 3,
    heads: int = 8,
    kernel: str = "auto",
    dropout: float = 0.0,
) -> nn.Module:
    """A model with ``model(blocks, x) -> logits``.

    ``blocks`` are a mini-batch's, input-most first, one per layer (:class:`~gnnsample_lab.Block` or ``TorchBlock``);
    ``x`` is a ``float32`` tensor with the rows of ``blocks[0].src``, ``[num_src, num_features]``, on their device.
    Logits are ``[num_seeds, num_classes]`` in the order of the seeds. The parameters do not depend on device or kernel,
    so a ``state_dict`` moves between them.

    Args:
        name: a key of :func:`models`.
        num_features: width of ``x``.
        hidden: width between layers (FastGL: 64).
        num_classes: width of the logits.
        num_layers: layers, and blocks that a call expects.
        heads: attention heads of ``"gat"``; ``hidden`` is their total width (FastGL: 8 heads of 8).
        kernel: aggregation kernel, a key of ``lab.aggregation_kernels()``; ``"gat"`` has one of its own.
        dropout: on the input of every layer but the first.

    Raises:
        TypeError: a size that is no integer, or a ``dropout`` that is no number.
        ValueError: an unknown name or kernel, sizes below 1, ``hidden`` not a multiple of ``heads`` for ``"gat"``.
    """
    choice("name", name, tuple(MODELS))
    kernel = kernel_name(kernel)
    most = 1 << 24
    num_features, hidden, num_classes, num_layers, heads = (
        whole(what, value, 1, most)
        for what, value in (
            ("num_features", num_features), ("hidden", hidden), ("num_classes", num_classes),
            ("num_layers", num_layers), ("heads", heads),
        )
    )  # fmt: skip
    dropout = real("dropout", dropout, 0, below=1)
    if name == "gat" and hidden % heads:
        raise ValueError(f"hidden must be a multiple of heads (got {hidden} and {heads})")
    widths = [num_features, *[hidden] * (num_layers - 1), num_classes]
    layers = [
        _layer(name, widths[i], widths[i + 1], heads, kernel, i == num_layers - 1) for i in range(num_layers)
    ]
    from .stack import STACKS, BlockModel

    return STACKS.get(name, BlockModel)(name, layers, dropout)


def _layer(name: str, inputs: int, outputs: int, heads: int, kernel: str, last: bool) -> nn.Module:
    from . import layers

    if name == "gcn":
        return layers.GCNConv(inputs, outputs, kernel)
    if name == "sage":
        return layers.SAGEConv(inputs, outputs, kernel)
    if name == "gin":
        return layers.GINConv(inputs, outputs, kernel)
    if name == "gat":
        return layers.GATConv(inputs, outputs if last else outputs // heads, heads, average=last)
    return layers.PinSAGEConv(inputs, outputs, kernel, last)
