"""A training step: the loss of a mini-batch's seeds, its gradients, an update. :mod:`.captured` replays it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from gnnsample_lab.checks import instance, shown
from gnnsample_lab.compute.autocast import fresh_casts
from gnnsample_lab.compute.fused.block import SummedBlock
from gnnsample_lab.minibatch.export import tensor

Loss = Callable[[Any, Any], Any]


class Step:
    """``step(batch, x) -> loss``, launch by launch; nothing waits on the host.

    Args:
        model: ``model(blocks, x) -> logits`` of the seeds.
        optimizer: over its parameters, or some of them.
        labels: of all vertices, a tensor on the device of the model: ``[N]``, -1 for none, or ``[N, tasks]``.
        features: with ``extract(ids) -> (x, stats)``; None where every call is given ``x``.
        loss: ``loss(logits, target) -> scalar``; None: mean cross entropy of the seeds with a label, for labels of
            several columns binary cross entropy.
        num_classes: of the graph: columns that logits have at least; 0: any number. Labels of several columns tell
            theirs themselves.

    Raises:
        TypeError: ``model`` is no module, ``optimizer`` no optimizer of PyTorch.
        ValueError: ``optimizer`` holds no parameter of ``model``, which would never learn, or its ``step`` needs a
            closure. A call: logits of another shape, for the default loss.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        labels: Any,
        features: Any = None,
        loss: Loss | None = None,
        num_classes: int = 0,
    ) -> None:
        import torch

        self.model = instance("model", model, torch.nn.Module, "a torch module")
        self.optimizer = instance("optimizer", optimizer, torch.optim.Optimizer, "an optimizer of PyTorch")
        closure = inspect.signature(type(optimizer).step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            raise ValueError(
                "optimizer must make an update of the gradients that are there (got "
                f"{type(optimizer).__name__}, whose step needs a closure to compute them anew)"
            )
        own = {id(p) for p in model.parameters()}
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not own & held:
            raise ValueError(
                f"optimizer must hold parameters of model (got {type(optimizer).__name__} with none of its {len(own)})"
            )
        self.multi_label = labels.ndim == 2
        self.labels = labels if self.multi_label else labels.long()
        self.features, self._given_loss = features, loss
        self._columns = int(labels.shape[1]) if self.multi_label else num_classes

    def __call__(self, batch: Any, x: Any = None) -> Any:
        """One step on a mini-batch.

        Args:
            batch: a :class:`~gnnsample_lab.MiniBatch`.
            x: its rows of features, where they are at hand; those of a :class:`~gnnsample_lab.FusedSampler` are.

        Returns:
            The loss, a tensor of no dimension.
        """
        import torch

        if torch.is_grad_enabled():
            return self._run(batch, x, True)[0]
        # A step has a backward pass, wherever it is called from.
        with torch.inference_mode(False), torch.enable_grad():
            return self._run(batch, x, True)[0]

    def gradients(self, batch: Any, x: Any = None) -> tuple[Any, Any]:
        """Leave the gradients of the *sum* of the seeds' losses in the model.

        Returns:
            ``(sum, seeds with a label)``; a seed's loss is the mean over its labels where it has several.

        Raises:
            ValueError: the step was given a loss of its own.
        """
        if self._given_loss is not None:
            raise ValueError(
                "loss must be the default where gradients of a sum are wanted (got one of your own)"
            )
        return self._run(batch, x, False)

    def _run(self, batch: Any, x: Any, update: bool) -> tuple[Any, Any]:
        blocks = batch.blocks
        if x is None and not isinstance(blocks[0], SummedBlock):
            x = tensor(self.features.extract(batch.node_ids)[0])
        return self._train(blocks, x, tensor(batch.seeds), update)

    def _train(self, blocks: Any, x: Any, seeds: Any, update: bool) -> tuple[Any, Any]:
        """The loss twice after an update; without one, the sum of losses and how many seeds it counts."""
        return self._step(blocks, x, self.labels[seeds.long()], update)

    def _step(self, blocks: Any, x: Any, target: Any, update: bool, is_seed: Any = None) -> tuple[Any, Any]:
        """``is_seed``: which rows are seeds; None: all."""
        self.optimizer.zero_grad(set_to_none=True)
        self.model.zero_grad(set_to_none=True)  # those that the optimizer does not hold would add up
        with fresh_casts(self.labels.device.type):
            logits = self.model(blocks, blocks[0].own if x is None else x)
            loss = self._loss(logits, target, "mean" if update else "sum", is_seed)
        weight = None if update else self._counted(target, is_seed).sum()
        loss.backward()
        if update:
            self.optimizer.step()
        loss = loss.detach()
        return loss, loss if update else weight

    def _counted(self, target: Any, is_seed: Any) -> Any:
        """Which rows count: those with a label; with several labels all seeds."""
        if not self.multi_label:
            return target >= 0
        return target.new_ones(len(target), dtype=bool) if is_seed is None else is_seed

    def _loss(self, logits: Any, target: Any, reduction: str, is_seed: Any) -> Any:
        import torch.nn.functional as F

        if self._given_loss is not None:
            loss = self._given_loss(logits, target)
            if getattr(loss, "numel", int)() != 1:
                raise ValueError(f"loss must return a tensor of one element (got {shown(loss)})")
            return loss
        self._check_shape(logits, len(target))
        if not self.multi_label:
            return F.cross_entropy(logits, target, ignore_index=-1, reduction=reduction)
        each = F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype), reduction="none").mean(1)
        if is_seed is None:
            return each.mean() if reduction == "mean" else each.sum()
        total = each.masked_fill(~is_seed, 0).sum()
        return total / is_seed.sum() if reduction == "mean" else total

    def _check_shape(self, logits: Any, rows: int) -> None:
        """A row for each of the ``rows`` targets, those without a seed included, and enough columns. PyTorch's own
        errors name no model, and on a GPU a class without a column leaves a process that cannot use it any more."""
        shape, columns = tuple(logits.shape), self._columns
        fits = len(shape) == 2 and shape[0] == rows and shape[1] >= columns
        if fits and not (self.multi_label and shape[1] > columns):
            return
        allowed, kind = (f"{columns}", "task") if self.multi_label else (f"at least {columns}", "class")
        raise ValueError(
            f"model must return logits of {rows} rows, one a seed, and {allowed} columns, one a {kind} (got shape "
            f"{shape} from a {type(self.model).__name__})"
        )
