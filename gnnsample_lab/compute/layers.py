"""Message-passing layers on sampled blocks: PyTorch modules that call :func:`~.aggregate.aggregate`.

Every layer is ``layer(block, x) -> [num_dst, out]``, with ``x`` the rows of ``block.src``, ``[num_src, in]``; the rows
of ``block.dst`` come first, since ``dst`` is a prefix of ``src``. Under ``torch.autocast`` layers compute in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .aggregation.aggregate import aggregate
from .aggregation.csr import csr_of
from .aggregation.ladder import as_tensor
from .attention import attention
from .autocast import in_float32
from .fused.block import SummedBlock


class _Prefix(torch.autograd.Function):
    """``x`` and its first rows; the gradient of the rows is added to that of ``x`` where this lies."""

    @staticmethod
    def forward(ctx: Any, x: Any, rows: int) -> tuple[Any, Any]:
        ctx.rows = rows
        return x.view_as(x), x[:rows]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any, first: Any) -> tuple[Any, None]:
        grad[: ctx.rows] += first
        return grad, None


def with_destinations(x: Any, rows: int) -> tuple[Any, Any]:
    """``(x, x[:rows])``: sources, and the destinations among them.

    Both must be used, ``x`` by one operation that makes a gradient of its own: it is added to in place. Slices of
    PyTorch would fill as many rows as ``x`` has with zeros, copy the gradient there, and add.
    """
    if not (_with_gradients_on_gpu(x) and x.requires_grad):
        return x, x[:rows]
    return _Prefix.apply(x, rows)


class _BiasGradient(torch.autograd.Function):
    """``out`` as it is; the gradient of the bias that was added to it is a product with ones.

    PyTorch's reduction over many rows reads them at half the speed of a product.
    """

    @staticmethod
    def forward(ctx: Any, out: Any, bias: Any) -> Any:
        return out.view_as(out)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> tuple[Any, Any]:
        return grad, grad.new_ones(1, grad.shape[0]).mm(grad).squeeze(0)


def is_plain(module: Any) -> bool:
    """Whether a linear map's ``weight`` and ``bias`` say all that it does: no hook changes them (as in pruning) or sees
    the rows, and nothing stands in its place (as an adapter)."""
    return (
        getattr(type(module), "forward", None) is nn.Linear.forward
        and "forward" not in vars(module)
        and not any(getattr(module, hooks) for hooks in _HOOKS)
    )


_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def linear(layer: nn.Linear, x: Any, rows: Any = None, weight: Any = None) -> Any:
    """``layer(x)``, and ``rows @ weight.T`` added to it where it lies."""
    if not is_plain(layer):
        out = layer(x)
        return out if rows is None else out + nn.functional.linear(rows, weight)
    out, ours = _product(x, layer.weight, layer.bias)
    if rows is not None:
        out = out.addmm_(rows, weight.t())
    return _BiasGradient.apply(out, layer.bias) if ours else out


def _product(x: Any, weight: Any, bias: Any) -> tuple[Any, bool]:
    """``x @ weight.T + bias``, and whether :class:`_BiasGradient` is to give the gradient of the bias."""
    ours = _with_gradients_on_gpu(x) and bias is not None and bias.requires_grad
    return nn.functional.linear(x, weight, bias.detach() if ours else bias), ours


class _Beside(torch.autograd.Function):
    """``x @ weight.T + bias`` and ``x @ more.T`` as parts of one table that one product makes.

    PyTorch would copy both gradients into a table like it first; here each is multiplied where it lies.
    """

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, more: Any) -> Any:
        ctx.save_for_backward(x, weight, more)
        return _beside(x, weight, bias, more)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any, grad_more: Any) -> tuple[Any, ...]:
        x, weight, more = ctx.saved_tensors
        of_x, of_weight, of_bias, of_more = ctx.needs_input_grad
        return (
            grad.mm(weight).addmm_(grad_more, more) if of_x else None,
            grad.t().mm(x) if of_weight else None,
            grad.new_ones(1, grad.shape[0]).mm(grad).squeeze(0) if of_bias else None,
            grad_more.t().mm(x) if of_more else None,
        )


def _beside(x: Any, weight: Any, bias: Any, more: Any) -> Any:
    table = nn.functional.linear(x, torch.cat([weight, more]), nn.functional.pad(bias, (0, len(more))))
    return table.split([len(weight), len(more)], 1)


def linear_beside(layer: nn.Linear, x: Any, more: Any) -> tuple[Any, Any]:
    """``layer(x)`` and ``x @ more.T``, both parts of what one product makes; ``layer`` has a bias."""
    make = _Beside.apply if _with_gradients_on_gpu(x) else _beside
    root, beside = make(x, layer.weight, layer.bias, more)
    return root, beside


def side_by_side(layer: nn.Linear, other: nn.Linear, table: Any) -> Any:
    """``layer(left half of table) + right half @ other.weight.T`` as one product."""
    out, ours = _product(table, torch.cat([layer.weight, other.weight], 1), layer.bias)
    return _BiasGradient.apply(out, layer.bias) if ours else out


def _with_gradients_on_gpu(x: Any) -> bool:
    """Where passes over many rows are worth saving."""
    return bool(x.is_cuda and torch.is_grad_enabled())


def _map_first(linear: nn.Linear, x: Any) -> bool:
    """Whether to map rows before they are aggregated: the narrower side is aggregated.

    Input features need no gradient. If they are aggregated unmapped, the aggregation needs no backward pass and the map
    applies to the destinations only, which pays up to about twice the width.
    """
    return bool(linear.in_features > linear.out_features * (1 if x.requires_grad else 2))


_STEPS = ("message", "message_weight", "root", "update", "fold", "finish")
"""Of a :class:`Layer`."""


@dataclass(frozen=True)
class Fold:
    """What happens to each row of sums before anything else: ``relu((sums + own) / (edges + 1) + bias)``, or less.

    Attributes:
        own: a row of each vertex that is added, ``[n, message width]``, dense.
        more: own rows count ``1 + more`` times, a tensor of no dimension; None: once.
        loop: divide by the number of edges and one more.
        bias: ``[message width]``, or None.
        relu: whether negative numbers become zeros.
        whole: the folded rows are the layer's result.
    """

    own: Any
    loop: bool = False
    bias: Any = None
    relu: bool = False
    whole: bool = False
    more: Any = None

    def apply(self, total: Any, lengths: Any) -> Any:
        """Sums ``[n, message width]`` folded; ``lengths``: edges of each row, ``[n, 1]``, asked for with ``loop``."""
        out = total + (self.own if self.more is None else (1 + self.more) * self.own)
        if self.loop:
            out = out / (lengths + 1)
        if self.bias is not None:
            out = out + self.bias
        return torch.relu(out) if self.relu else out


class Layer(nn.Module):
    """A layer in three steps, so that it runs over a sampled block and over parts of a whole graph alike.

    ``update(root(x_dst, message_dst), aggregated message(x_src), lengths)`` is the layer's result. With ``mapped`` the
    linear map is part of the message, and otherwise of the update; the result is the same up to rounding.

    A layer may give its update as two steps, ``finish(folded sums, root)``: kernels fold sums as they write them.

    ``forward`` is quicker than the steps one after the other, and gives the same. A layer goes through the steps where
    a subclass has another step, or where its maps are not plain (:attr:`is_plain`) and have to be called.

    Attributes:
        reduce: how messages are aggregated, ``"sum"`` or ``"mean"``.
        weighted: edges have the block's weights, where it has weights; ``lengths`` are their sums then.
        narrows: whether messages are narrower if they are mapped.
        attends_rows: messages are wider than rows by so much that shares of heads better weigh the rows themselves:
            ``finish_rows(sums [n, heads * in], root)`` is the result then, with ``row_scores(x)`` as scores.
    """

    reduce = "sum"
    weighted = False
    narrows = False
    attends_rows = False
    kernel = "auto"

    @property
    def is_plain(self) -> bool:
        """Whether the parameters of the layer's maps may be read in place of calling them."""
        return True

    def is_usual(self, kind: type[Layer]) -> bool:
        """Whether the ``forward`` of ``kind`` may take its short cuts: its steps are those of ``kind``, and plain."""
        own = vars(self)
        same = (getattr(type(self), step) is getattr(kind, step) and step not in own for step in _STEPS)
        return all(same) and not self.weighted and self.is_plain

    def aggregated(self, block: Any, message: Any) -> Any:
        """Messages of a block's sources combined at its destinations, ``[num_dst, message width]``.

        Raises:
            ValueError: a :class:`~gnnsample_lab.FusedSampler` has summed the rows already, and edges have weights.
        """
        if isinstance(block, SummedBlock):
            if self.weighted:
                raise ValueError(
                    "a FusedSampler sums edges without weights: use a NeighborSampler with this layer"
                )
            return block.aggregated(self.reduce)
        weight = edge_weights(block, message) if self.weighted else None
        return aggregate(block, message, weight, self.reduce, self.kernel)

    def lengths(self, block: Any, x: Any) -> Any:
        """Edges of each destination, or the sums of their weights, ``[num_dst, 1]``."""
        if isinstance(block, SummedBlock):
            return block.lengths
        weight = edge_weights(block, x) if self.weighted else None
        if weight is None:
            return _lengths(csr_of(block), x)
        return aggregate(block, torch.ones_like(x[:, :1]), weight, "sum", self.kernel)

    def by_steps(self, block: Any, x: Any) -> Any:
        """The result ``[num_dst, out]`` from the steps alone."""
        if isinstance(block, SummedBlock):  # sums are of rows
            block.check_rows(x)
            if self.message(x, False) is not x:
                raise ValueError(
                    "a FusedSampler sums rows, not a layer's messages: use a NeighborSampler with it"
                )
            return self.update(self.root(x, x), self.aggregated(block, x), self.lengths(block, x), False)
        mapped, rows = self.narrows and self.is_plain, csr_of(block).num_rows
        message = self.message(x, mapped)
        root = self.root(x[:rows], message[:rows])
        return self.update(root, self.aggregated(block, message), self.lengths(block, x), mapped)

    def message(self, x: Any, mapped: bool) -> Any:
        """What flows along the edges of a vertex: ``[n, message width]`` for ``x``, ``[n, in]``."""
        weight = self.message_weight(mapped)
        return x if weight is None else nn.functional.linear(x, weight)

    def message_weight(self, mapped: bool) -> Any:
        """``[message width, in]``, the map that makes messages of rows; None: messages are the rows."""
        return None

    def root(self, x: Any, message: Any) -> Any:
        """What a vertex contributes to its own result, ``[n, any width]``, from its row and its message."""
        return x

    def update(self, root: Any, total: Any, lengths: Any, mapped: bool) -> Any:
        """The result ``[n, out]``; ``lengths``: edges of each vertex, or the sums of their weights, ``[n, 1]``."""
        fold = self.fold(root, mapped)
        return self.finish(total if fold is None else fold.apply(total, lengths), root, mapped)

    def fold(self, root: Any, mapped: bool) -> Fold | None:
        """What happens to sums, or means, first; None: nothing."""
        return None

    def finish(self, rows: Any, root: Any, mapped: bool) -> Any:
        """The result ``[n, out]`` from folded rows, ``[n, message width]``."""
        return rows


class GCNConv(Layer):
    """``W * mean over the edges and the vertex itself`` (Kipf and Welling, ICLR 2017).

    A sampled block has no meaningful source degree, so the symmetric normalisation becomes one by the destination's
    sampled degree plus one.
    """

    def __init__(self, in_features: int, out_features: int, kernel: str = "auto") -> None:
        super().__init__()
        self.linear, self.kernel = nn.Linear(in_features, out_features, bias=False), kernel
        self.bias = nn.Parameter(torch.zeros(out_features))
        self.narrows = out_features < in_features

    def message_weight(self, mapped: bool) -> Any:
        return self.linear.weight if mapped else None

    def root(self, x: Any, message: Any) -> Any:
        return message

    def fold(self, root: Any, mapped: bool) -> Fold:
        return Fold(root, loop=True, bias=self.bias if mapped else None, whole=mapped)

    def finish(self, rows: Any, root: Any, mapped: bool) -> Any:
        if mapped:
            return rows
        if not self.is_plain:
            return self.linear(rows) + self.bias
        return nn.functional.linear(rows, self.linear.weight, self.bias)

    @property
    def is_plain(self) -> bool:
        return is_plain(self.linear)

    @in_float32
    def forward(self, block: Any, x: Any) -> Any:
        if isinstance(block, SummedBlock) or not self.is_usual(GCNConv):
            return self.by_steps(block, x)
        csr, mapped = csr_of(block), _map_first(self.linear, x)
        x, own = with_destinations(self.message(x, mapped), csr.num_rows)
        return self.update(own, self.aggregated(block, x), _lengths(csr, x), mapped)


class SAGEConv(Layer):
    """``W_self x + W mean over the edges`` (Hamilton, Ying and Leskovec, NeurIPS 2017)."""

    reduce = "mean"

    def __init__(self, in_features: int, out_features: int, kernel: str = "auto") -> None:
        super().__init__()
        self.own = nn.Linear(in_features, out_features)
        self.linear, self.kernel = nn.Linear(in_features, out_features, bias=False), kernel
        self.narrows = out_features < in_features

    def message_weight(self, mapped: bool) -> Any:
        return self.linear.weight if mapped else None

    def root(self, x: Any, message: Any) -> Any:
        return linear(self.own, x)

    def fold(self, root: Any, mapped: bool) -> Fold | None:
        return Fold(root, whole=True) if mapped else None

    def finish(self, rows: Any, root: Any, mapped: bool) -> Any:
        if mapped:
            return rows
        if not self.is_plain:
            return root + self.linear(rows)
        ours = type(self).root is SAGEConv.root  # a table of its own, which can be added to where it lies
        return (root.addmm_ if ours else root.addmm)(rows, self.linear.weight.t())

    @property
    def is_plain(self) -> bool:
        return is_plain(self.own) and is_plain(self.linear)

    @in_float32
    def forward(self, block: Any, x: Any) -> Any:
        if not self.is_usual(SAGEConv):
            return self.by_steps(block, x)
        if isinstance(block, SummedBlock):
            block.check_rows(x)
            table = block.table(self.reduce, x)
            if table is not None:
                return side_by_side(self.own, self.linear, table)
            return linear(self.own, x, block.aggregated(self.reduce), self.linear.weight)
        x, own = with_destinations(x, csr_of(block).num_rows)
        mapped = _map_first(self.linear, x)
        total = self.aggregated(block, self.message(x, mapped))
        if mapped:
            return self.update(self.root(own, None), total, None, mapped)
        return linear(self.own, own, total, self.linear.weight)


class GINConv(Layer):
    """``MLP((1 + eps) x + sum over the edges)`` with a learnt ``eps`` (Xu et al., ICLR 2019)."""

    def __init__(self, in_features: int, out_features: int, kernel: str = "auto") -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(in_features, out_features), nn.ReLU(), nn.Linear(out_features, out_features)
        )
        self.eps, self.kernel = nn.Parameter(torch.zeros(())), kernel
        self.narrows = out_features < in_features

    def message_weight(self, mapped: bool) -> Any:
        return self.mlp[0].weight if mapped else None

    def root(self, x: Any, message: Any) -> Any:
        return (1 + self.eps) * message

    def fold(self, root: Any, mapped: bool) -> Fold:
        return Fold(root, bias=self.mlp[0].bias, relu=True) if mapped else Fold(root)

    def finish(self, rows: Any, root: Any, mapped: bool) -> Any:
        if not self.is_plain:
            return self.mlp(rows)
        first, activation, last = self.mlp
        return linear(last, rows if mapped else activation(linear(first, rows)))

    @property
    def is_plain(self) -> bool:
        """Whether the MLP is still two plain maps with a ReLU between."""
        mlp = self.mlp
        if type(mlp) is not nn.Sequential or len(mlp) != 3 or any(getattr(mlp, hooks) for hooks in _HOOKS):
            return False
        first, activation, last = mlp
        return type(activation) is nn.ReLU and is_plain(first) and is_plain(last)

    @in_float32
    def forward(self, block: Any, x: Any) -> Any:
        if not self.is_usual(GINConv):
            return self.by_steps(block, x)
        if isinstance(block, SummedBlock):
            block.check_rows(x)
        if x.is_cuda and self.reduce == "sum" and self.kernel in ("auto", "register-tile"):
            from .autograd_gin import GinLayer

            first, _, last = self.mlp
            return GinLayer.apply(x, self.eps, first.weight, first.bias, last.weight, last.bias, block)
        if isinstance(block, SummedBlock):
            return self.update(self.root(x, x), self.aggregated(block, x), None, False)
        x, own = with_destinations(x, csr_of(block).num_rows)
        return self.update(self.root(own, own), self.aggregated(block, x), None, False)


class GATConv(Layer):
    """Attention heads side by side, or averaged in the last layer (Velickovic et al., ICLR 2018).

    The vertex itself takes part through a linear map beside the heads: sampled blocks hold no self-loops.
    """

    slope = 0.2
    """Of the leaky ReLU of the scores."""

    def __init__(self, in_features: int, out_features: int, heads: int = 8, average: bool = False) -> None:
        super().__init__()
        self.heads, self.size, self.average = heads, out_features, average
        self.linear = nn.Linear(in_features, heads * out_features, bias=False)
        self.own = nn.Linear(in_features, out_features if average else heads * out_features)
        self.score_src = nn.Parameter(torch.empty(heads, out_features))
        self.score_dst = nn.Parameter(torch.empty(heads, out_features))
        nn.init.xavier_uniform_(self.score_src)
        nn.init.xavier_uniform_(self.score_dst)
        # Sums of rows have heads * in columns per vertex, which vertices with few edges must earn back.
        self.attends_rows = 2 * in_features < heads * out_features and heads <= 16

    def message_weight(self, mapped: bool) -> Any:
        return self.linear.weight

    @property
    def is_plain(self) -> bool:
        return is_plain(self.linear) and is_plain(self.own)

    def by_steps(self, block: Any, x: Any) -> Any:
        rows = csr_of(block).num_rows
        message = self.message(x, True) if is_plain(self.linear) else self.linear(x)
        source, target = self.scores(message)
        values = message.unflatten(1, (self.heads, self.size))
        out = attention(block, values, source, target[:rows], self.slope)
        return self.update(self.root(x[:rows], message[:rows]), out.flatten(1), self.lengths(block, x), True)

    def scores(self, message: Any) -> tuple[Any, Any]:
        """Of vertices as sources and as destinations, ``[n, heads]`` each, from their messages."""
        # One narrow product with a block of columns per head, in place of passes over all messages.
        weight = torch.diag_embed(
            torch.stack([self.score_src.t(), self.score_dst.t()])
        )  # [2, size, heads, heads]
        both = message @ weight.permute(2, 1, 0, 3).reshape(self.heads * self.size, 2 * self.heads)
        return both[:, : self.heads], both[:, self.heads :]

    def score_weights(self) -> tuple[Any, Any]:
        """The maps ``[heads, in]`` that make scores of rows, as sources and as destinations: scores are linear, too."""
        weight = self.linear.weight.view(self.heads, self.size, -1)
        src, dst = ((weight * score.unsqueeze(2)).sum(1) for score in (self.score_src, self.score_dst))
        return src, dst

    def row_scores(self, x: Any) -> tuple[Any, Any]:
        """:meth:`scores` from rows ``[n, in]`` in place of messages."""
        both = x @ torch.cat(self.score_weights()).t()
        return both[:, : self.heads], both[:, self.heads :]

    def root(self, x: Any, message: Any) -> Any:
        return linear(self.own, x)

    def finish(self, rows: Any, root: Any, mapped: bool) -> Any:
        return (rows.view(-1, self.heads, self.size).mean(1) if self.average else rows) + root

    def finish_rows(self, rows: Any, root: Any) -> Any:
        """The result from each head's share of the rows themselves, ``[n, heads * in]``: a head's map comes last."""
        weight = self.linear.weight.view(self.heads, self.size, -1)
        if self.average:
            return torch.addmm(root, rows, weight.transpose(1, 2).flatten(0, 1), alpha=1 / self.heads)
        mapped = torch.bmm(rows.unflatten(1, (self.heads, -1)).transpose(0, 1), weight.transpose(1, 2))
        return mapped.transpose(0, 1).flatten(1) + root

    @in_float32
    def forward(self, block: Any, x: Any) -> Any:
        if not self.is_usual(GATConv):
            return self.by_steps(block, x)
        x, own = with_destinations(x, csr_of(block).num_rows)
        # Scores are linear in x, too: columns of the product that makes the values, and of the one for the vertices
        # themselves, in place of passes over all values and their gradients.
        src, dst = self.score_weights()
        both = nn.functional.linear(x, torch.cat([self.linear.weight, src]))
        root, target = linear_beside(self.own, own, dst)
        if x.is_cuda:
            from .autograd_attention import FoldedAttention

            out = FoldedAttention.apply(both, target, block, self.heads, self.slope)
        else:
            values, scores = both.split([self.heads * self.size, self.heads], 1)
            out = attention(block, values.unflatten(1, (self.heads, self.size)), scores, target, self.slope)
        return self.update(root, out.flatten(1), None, True)


class PinSAGEConv(Layer):
    """``W [x, importance pooling]``: neighbours weighted by their visit counts (Ying et al., KDD 2018, algorithm 1).

    Weights are ``block.weight`` (visits of random walks); blocks without weights count every edge once. The neighbours
    pass a ReLU layer of their own first, and results have unit length, but for the last layer's.
    """

    weighted = True

    def __init__(self, in_features: int, out_features: int, kernel: str = "auto", last: bool = False) -> None:
        super().__init__()
        self.neighbour = nn.Linear(in_features, out_features)
        self.linear = nn.Linear(in_features + out_features, out_features)
        self.kernel, self.last = kernel, last

    @property
    def is_plain(self) -> bool:
        return is_plain(self.neighbour) and is_plain(self.linear)

    def message(self, x: Any, mapped: bool) -> Any:
        return torch.relu(linear(self.neighbour, x))

    def update(self, root: Any, total: Any, lengths: Any, mapped: bool) -> Any:
        # Sums of weights may be below 1; sums of visits are not.
        pooled = total / torch.where(lengths > 0, lengths, 1)
        out = self.linear(torch.cat([root, pooled], 1))
        return out if self.last else nn.functional.normalize(torch.relu(out), dim=1)

    @in_float32
    def forward(self, block: Any, x: Any) -> Any:
        x, own = with_destinations(x, csr_of(block).num_rows)
        values = self.message(x, True)
        return self.update(self.root(own, None), self.aggregated(block, values), self.lengths(block, x), True)


def _lengths(csr: Any, x: Any) -> Any:
    """Edges of each destination as a column of the type of ``x``; made once per block."""
    key = ("lengths", x.dtype)
    if key not in csr.kept:
        with torch.inference_mode(False):  # later calls may train
            csr.kept[key] = as_tensor(csr.lengths()).to(x.dtype).unsqueeze(1)
    return csr.kept[key]


def edge_weights(block: Any, x: Any) -> Any:
    """``block.weight`` as a tensor of the type of ``x``, or None."""
    weight = getattr(block, "weight", None)
    if weight is None:
        return None
    return as_tensor(weight).to(x.dtype)
