"""Gradients of several ranks added up, so that a step is that of one device on all of their seeds.

Each rank computes the gradient of the *sum* of its seeds' losses. Sums of gradients, losses and seeds travel in one
all-reduce; their quotient is the gradient of the mean, however many seeds each rank has. A rank without seeds joins
with zeros. All replicas of the model make the same update and stay equal, bit for bit.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple

EXCHANGES = 24
"""Exchanges that :func:`exchange_s` times; the first quarter of them does not count."""


class Round(NamedTuple):
    """An update: batch ids, and beside each the sum of its losses and the seeds in it, a tensor ``[len(ids), 2]``."""

    batch_ids: list[int]
    sums: Any


class Packed(NamedTuple):
    """What a rank adds to a sum: one flat tensor, and whether it has a gradient of every parameter."""

    flat: Any
    is_whole: bool


class Gradients:
    """Sums over the ranks of a process group.

    Args:
        model: whose gradients; all ranks have the same parameters.
        group: process group on the device of the model.

    Attributes:
        dtype: in which everything travels, float32 at least: of the parameters, since a rank without seeds has no loss
            whose type it could take.
    """

    def __init__(self, model: Any, group: Any) -> None:
        import torch

        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.group = group
        self.dtype = functools.reduce(torch.promote_types, (p.dtype for p in self.parameters), torch.float32)

    def pack(self, loss_sum: Any, weight: Any, index: int = 0, count: int = 1) -> Packed:
        """What this rank has: gradients, and for each parameter whether there is one; the sum of losses and seeds at
        place ``index`` of ``count``."""
        import torch

        # Few launches: between the backward pass and the optimiser the GPU has nothing else to do.
        loss_sum = loss_sum.detach().to(self.dtype)
        parts = [
            (torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1).to(self.dtype)
            for p in self.parameters
        ]
        has = [p.grad is not None for p in self.parameters]
        parts.append(loss_sum.new_ones(len(has)) if all(has) else loss_sum.new_tensor(has))
        mine = [
            loss_sum.reshape(1),
            torch.as_tensor(weight, device=loss_sum.device).reshape(1).to(self.dtype),
        ]
        if count > 1:
            others = loss_sum.new_zeros(2 * (count - 1))
            mine = [others[: 2 * index], *mine, others[2 * index :]]
        return Packed(torch.cat([*parts, *mine]), all(has))

    def unpack(self, packed: Packed, count: int = 1) -> Any:
        """Put the gradients of the mean in place; returns the sums of losses and seeds, ``[count, 2]``.

        A parameter that no rank has a gradient of gets none, as on one device: an optimiser with momentum would move
        it by a gradient of zeros.
        """
        flat, number = packed.flat, len(self.parameters)
        gradients, has, sums = flat.split([len(flat) - number - 2 * count, number, 2 * count])
        sums = sums.view(count, 2)
        gradients /= sums[:, 1].sum().clamp(min=1)
        # Whoever has all of them knows without a look at the device, which would wait for it.
        exists = [True] * number if packed.is_whole else (has > 0).tolist()
        at = 0
        for p, is_there in zip(self.parameters, exists, strict=True):
            p.grad = gradients[at : at + p.numel()].view_as(p).to(p.dtype) if is_there else None
            at += p.numel()
        return sums


class SliceExchange:
    """Synchronous steps of ranks that train on slices of the same mini-batches.

    Args:
        model, optimizer: of this rank. group: process group on their device.

    Attributes:
        turns: the order of collectives, where several workers have some (:class:`.turns.Turns`), or None.
    """

    def __init__(self, model: Any, optimizer: Any, group: Any) -> None:
        self._gradients, self._optimizer = Gradients(model, group), optimizer
        self.turns: Any = None

    def step(self, loss_sum: Any, weight: Any) -> Any:
        """An update with the gradients that the model has; the loss over all ranks, a tensor."""
        import torch.distributed as dist

        packed = self._gradients.pack(loss_sum, weight)
        with contextlib.nullcontext() if self.turns is None else self.turns.turn("trainer"):
            dist.all_reduce(packed.flat, group=self._gradients.group)
        sums = self._gradients.unpack(packed)
        self._optimizer.step()
        return sums[0, 0] / sums[0, 1]  # not a number where no seed has a label, as on one device


class RoundExchange:
    """Updates of trainers each of which trains on mini-batches of its own, as they come.

    In a round each trainer contributes a mini-batch or nothing. Who contributes nothing may share its GPU with a
    sampler. A collective that waited there for mini-batches which are yet to be sampled could stop the sampler for
    good, hence such a trainer adds gradients only when the hosts of all others have joined the round. With
    ``staleness`` 0 a trainer goes on when all have contributed. Else it may be so many rounds ahead of the slowest:
    updates arrive later, in the same order everywhere. None sets no bound; all updates are made at the end of the
    epoch at the latest.

    Args:
        model, optimizer: of this rank.
        group: process group of the trainers on the model's device.
        control: their Gloo group, for who trained on what.
        index, count: of this trainer, of how many.
        staleness: see above.
        applied: is told of each update that was made.
    """

    def __init__(
        self, model: Any, optimizer: Any, group: Any, control: Any, index: int, count: int,
        staleness: int | None = 0, applied: Callable[[Round], None] | None = None,
    ) -> None:  # fmt: skip
        self._gradients, self._optimizer, self._control = Gradients(model, group), optimizer, control
        self._index, self._count, self.staleness = index, count, staleness
        self._applied = applied or (lambda _: None)
        self._pending: deque[tuple[Any, Packed, Any, Any]] = deque()
        self._like = self._gradients.parameters[0]

    def step(self, batch_id: int, loss_sum: Any, weight: Any) -> None:
        """Contribute mini-batch ``batch_id``, whose gradients the model has."""
        packed = self._gradients.pack(loss_sum, weight, self._index, self._count)
        told, told_work = self._tell(batch_id, False)
        self._add(packed, told, told_work)
        while self._pending and (
            (self.staleness is not None and len(self._pending) > self.staleness) or self._is_done()
        ):
            self._apply()

    def idle(self, ended: bool) -> bool:
        """Contribute nothing. True when all trainers have ended: then all updates have been made.

        Args:
            ended: this trainer will contribute no more.
        """
        zero = self._like.new_zeros(())
        for p in self._gradients.parameters:
            p.grad = None
        told, told_work = self._tell(-1, ended)
        told_work.wait()
        self._add(self._gradients.pack(zero, zero, self._index, self._count), told, told_work)
        over = False
        while self._pending:
            over = self._apply()
        return over

    def drain(self) -> None:
        """Make all updates that are under way; all trainers call it after the same round."""
        while self._pending:
            self._apply()

    def _tell(self, batch_id: int, ended: bool) -> tuple[Any, Any]:
        """Join a round: who contributes what, on the host. First of all, since the other half may connect GPUs."""
        import torch
        import torch.distributed as dist

        told = torch.zeros(self._count, 2, dtype=torch.int64)
        told[self._index] = torch.tensor([batch_id + 1, int(ended)])
        return told, dist.all_reduce(told, group=self._control, async_op=True)

    def _add(self, packed: Packed, told: Any, told_work: Any) -> None:
        """The other half: gradients."""
        import torch.distributed as dist

        work = dist.all_reduce(packed.flat, group=self._gradients.group, async_op=True)
        self._pending.append((work, packed, told_work, told))

    def _is_done(self) -> bool:
        work, _, told_work, _ = self._pending[0]
        return bool(work.is_completed() and told_work.is_completed())

    def _apply(self) -> bool:
        """Make the oldest update. True when all trainers had ended."""
        import torch

        work, packed, told_work, told = self._pending.popleft()
        told_work.wait()
        work.wait()
        numbers = told[:, 0].tolist()
        here = [trainer for trainer, number in enumerate(numbers) if number > 0]
        if here:
            sums = self._gradients.unpack(packed, self._count)
            self._optimizer.step()
            # Slices, since an index of the host's would make it wait for the device.
            mine = sums if len(here) == self._count else torch.cat([sums[i : i + 1] for i in here])
            self._applied(Round([numbers[i] - 1 for i in here], mine))
        return int(told[:, 1].sum()) == self._count


def exchange_s(
    device: str, size: int, group: Any, control: Any, index: int, count: int, *, by_rounds: bool
) -> float:
    """Median seconds in which trainers add up gradients and tell each other what they trained on, with nothing else
    to do; all of them call it.

    Args:
        device: of this trainer. size: gradients, fp32.
        group, control, index, count: as for :class:`RoundExchange`.
        by_rounds: mini-batches of their own (:class:`RoundExchange`), else slices of the same ones.
    """
    import torch

    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.zeros(size, device=device))
    # An optimiser that does nothing: its step is part of training, which is timed on one GPU.
    idle = SimpleNamespace(step=lambda: None)
    zero = torch.zeros((), device=device)
    exchange: Any = SliceExchange(model, idle, group)
    if by_rounds:
        exchange = RoundExchange(model, idle, group, control, index, count)
    times = []
    for number in range(EXCHANGES):
        model.weight.grad = torch.zeros_like(model.weight)
        if device != "cpu":
            torch.cuda.synchronize()
        began = time.perf_counter()
        if by_rounds:
            exchange.step(number, zero, zero + 1)
        else:
            exchange.step(zero, zero + 1)
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return median(times[EXCHANGES // 4 :])
