"""What ranks run in the tests of the factored executor; ranks import it."""

from __future__ import annotations

import errno
import gc
import os
import signal
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnsample_lab import FeatureCache, Graph, NeighborSampler, make_model
from gnnsample_lab.distributed import peer_memory
from gnnsample_lab.pipeline.exchange import RoundExchange
from gnnsample_lab.pipeline.factored.roles import Fetched, Swaps
from gnnsample_lab.pipeline.features import CachedSource
from gnnsample_lab.pipeline.memory import Held
from gnnsample_lab.pipeline.plan import EpochPlan
from gnnsample_lab.pipeline.trainer import Trainer
from gnnsample_lab.systems.factored import train_factored
from gnnsample_lab.systems.ranks import train_slices

Marked = Callable[..., Any]


class Double(torch.nn.Module):
    """A model in float64 over features in float32."""

    def __init__(self, graph: Graph, model: str = "gcn") -> None:
        super().__init__()
        self.inner = make_model(model, graph.num_features, 16, graph.num_classes, num_layers=2).double()

    def forward(self, blocks: Any, x: Any) -> Any:
        return self.inner(blocks, x.double())


class Slow(torch.nn.Module):
    """A model that takes its time on trainers, as if sampling were quick."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.inner, self.seconds = make_model("gcn", 10, 8, 4, num_layers=2), seconds

    def forward(self, blocks: Any, x: Any) -> Any:
        if self.training:
            time.sleep(self.seconds)
        return self.inner(blocks, x)


def double_trainer(graph: Graph) -> Trainer:
    sampler = NeighborSampler(graph, [3, 4], device="cpu", seed=2)
    cache = FeatureCache(graph.feat, graph.out_degrees(), ratio=0.3, device="cpu")
    torch.manual_seed(0)
    network = Double(graph)
    return Trainer(
        graph, sampler, CachedSource(cache), network, batch_size=32, device="cpu",
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
    )  # fmt: skip


def gradient_of(trainer: Trainer, batch_ids: list[int]) -> tuple[float, list[np.ndarray]]:
    """Loss and gradients of the mean over all seeds of some mini-batches, on one device."""
    plan = trainer.plan(0)
    total: Any = 0
    weight = 0
    for batch_id in batch_ids:
        batch = plan.sample(range(batch_id, batch_id + 1))[0]
        x = torch.from_numpy(trainer.graph.feat[batch.node_ids])
        logits = trainer.model(batch.blocks, x)
        labels = trainer.labels[torch.from_numpy(np.asarray(batch.seeds)).long()]
        total = total + torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        weight += len(labels)
    trainer.model.zero_grad(set_to_none=True)
    (total / weight).backward()
    return float(total.detach()) / weight, [p.grad.numpy().copy() for p in trainer.model.parameters()]


def round_on_rank(rank: Any, graph: Graph, batch_ids: list[int]) -> tuple[list[np.ndarray], list[Any]]:
    """One update of all ranks, of which some have no mini-batch."""
    with rank.zero_first():
        trainer = double_trainer(graph)
        plan = trainer.plan(0)
    told: list[Any] = []
    exchange = RoundExchange(
        trainer.model, trainer.optimizer, rank.group, rank.another_group("gloo"), rank.index, rank.world_size,
        applied=lambda update: told.append((update.batch_ids, update.sums.tolist())),
    )  # fmt: skip
    if rank.index < len(batch_ids):
        mine = batch_ids[rank.index]
        batch = plan.sample(range(mine, mine + 1))[0]
        x = torch.from_numpy(graph.feat[batch.node_ids])
        exchange.step(mine, *trainer.gradients(batch, x))
    else:
        assert not exchange.idle(ended=True)
    gradients = [p.grad.numpy().copy() for p in trainer.model.parameters()]
    while not exchange.idle(ended=True):
        pass
    return gradients, told


def race_on_rank(
    rank: Any, staleness: int | None, steps: list[int]
) -> tuple[list[float], list[list[int]], int]:
    """Rank 0 is slow; returns weights after all updates, the updates, and how far a rank was ahead at most."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1, bias=False).double()
    updates: list[list[int]] = []
    exchange = RoundExchange(
        model, torch.optim.SGD(model.parameters(), lr=0.5), rank.group, rank.another_group("gloo"), rank.index,
        rank.world_size, staleness, lambda update: updates.append(update.batch_ids),
    )  # fmt: skip
    most = 0
    for number in range(steps[rank.index]):
        if rank.index == 0:
            time.sleep(0.05)
        model.zero_grad(set_to_none=True)
        loss = model(torch.full((1, 3), float(rank.index + number + 1)).double()).sum()
        loss.backward()
        exchange.step(10 * number + rank.index, loss.detach(), torch.tensor(1.0).double())
        most = max(most, len(exchange._pending))
    while not exchange.idle(ended=True):
        pass
    return model.weight.detach().reshape(-1).tolist(), updates, most


def _on_call(owner: Any, name: str, number: int, action: Callable[[], None]) -> None:
    """Do something when a method is called for the ``number``-th time."""
    method, calls = getattr(owner, name), []

    def watched(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            action()
        return method(*args, **options)

    setattr(owner, name, watched)


def _die(job: dict[str, Any]) -> None:
    """End this process, and say when."""
    (job["checkpoint"].parent / "died").write_text(str(time.monotonic()))
    os.kill(os.getpid(), signal.SIGKILL)


def kill_sampler(rank: Any, folder: Path, job: dict[str, Any], *args: Any) -> Any:
    if rank.index == 0:
        _on_call(EpochPlan, "sample", 7, lambda: _die(job))
    return train_factored(rank, folder, job, *args)


def kill_sampler_in_second_epoch(rank: Any, folder: Path, job: dict[str, Any], *args: Any) -> Any:
    """The sampler of ten mini-batches an epoch dies when steps are surely in the checkpoint."""
    if rank.index == 0:
        _on_call(EpochPlan, "sample", 14, lambda: _die(job))
    return train_factored(rank, folder, job, *args)


def kill_trainer(rank: Any, folder: Path, job: dict[str, Any], *args: Any) -> Any:
    if rank.index == 1:
        _on_call(Trainer, "gradients", 6, lambda: _die(job))
    return train_factored(rank, folder, job, *args)


def interrupt(rank: Any, folder: Path, job: dict[str, Any], *args: Any) -> Any:
    """The user interrupts the cell while the trainer is at work."""
    if rank.index == 1:
        _on_call(Trainer, "gradients", 6, lambda: os.kill(os.getppid(), signal.SIGINT))
    return train_factored(rank, folder, job, *args)


def stall(rank: Any, folder: Path, job: Any, *args: Any) -> Any:
    """The sampler stands still for a while, and later the trainer."""
    sample, fetch = EpochPlan.sample, Fetched.fetch
    _on_call(EpochPlan, "sample", 3, lambda: time.sleep(0.5))
    _on_call(Fetched, "fetch", 5, lambda: time.sleep(0.5))
    try:
        return train_factored(rank, folder, job, *args)
    finally:  # the ranks are used again
        EpochPlan.sample, Fetched.fetch = sample, fetch  # type: ignore[method-assign]


def small_slots(rank: Any, folder: Path, job: dict[str, Any], *args: Any) -> Any:
    """Slots that hold the smaller half of the mini-batches; the notes say which way each went."""
    from gnnsample_lab.pipeline.factored.slots import PeerSlots

    fits, ways = PeerSlots.fits, []

    def every_other(self: PeerSlots, arrays: Any) -> bool:
        found = fits(self, arrays) and len(ways) % 2 == 0
        ways.append("through the peer" if found else "through the host")
        return found

    PeerSlots.fits = every_other  # type: ignore[method-assign]
    try:
        part = train_factored(rank, folder, job, *args)
    finally:  # the ranks are used again
        PeerSlots.fits = fits  # type: ignore[method-assign]
    part["events"] = [*part["events"], *ways]
    return part


def full_disk(rank: Any, folder: Path, job: dict[str, Any], *args: Any) -> Any:
    """The checkpoint after the first update cannot be written; rank 0 does, which stands by."""

    def fail() -> None:
        raise OSError(errno.ENOSPC, "no space left")

    if rank.index == 0:
        _on_call(Trainer, "save", 1, fail)
    return train_factored(rank, folder, job, *args)


def watch_swaps(rank: Any, folder: Path, job: dict[str, Any], *args: Any) -> Any:
    """Notes say, when a cache is about to be filled, how many samplers with the topology are still there."""
    load, fill, made, notes = Swaps.load_topology, Swaps.load_cache, [], []

    def load_topology(self: Swaps, trainer: Trainer) -> None:
        load(self, trainer)
        made.append(weakref.ref(trainer.sampler))

    def load_cache(self: Swaps, trainer: Trainer) -> None:
        make = self.make_features

        def counted() -> Any:
            gc.collect()  # as on a GPU
            notes.append(f"beside the cache: {sum(one() is not None for one in made)} of {len(made)}")
            return make()

        self.make_features = counted
        try:
            fill(self, trainer)
        finally:
            self.make_features = make

    Swaps.load_topology, Swaps.load_cache = load_topology, load_cache  # type: ignore[method-assign]
    try:
        part = train_factored(rank, folder, job, *args)
    finally:  # the ranks are used again
        Swaps.load_topology, Swaps.load_cache = load, fill  # type: ignore[method-assign]
    part["events"] = [*part["events"], *notes]
    return part


def blocks_held(_: Trainer) -> Held:
    """As ``Trainer.held``, of blocks that other ranks read, which on a CPU nobody counts."""
    return Held(peers=sum(int(block.sizes[block.index]) for block in peer_memory._open))


def _counting_blocks(function: Callable[..., Any], *args: Any) -> Any:
    held, Trainer.held = Trainer.held, blocks_held  # type: ignore[method-assign]
    try:
        return function(*args)
    finally:  # the ranks are used again
        Trainer.held = held  # type: ignore[method-assign]


def train_slices_counting_blocks(*args: Any) -> Any:
    return _counting_blocks(train_slices, *args)


def train_factored_counting_blocks(*args: Any) -> Any:
    return _counting_blocks(train_factored, *args)


def lose_sampler(rank: Any, folder: Path, job: dict[str, Any], address: Any, slots: Path) -> Any:
    """Rank 0's third mini-batch cannot be sampled; what else samples does not go on before.

    Samplers take mini-batches as they come: else a quick one would leave the other fewer than three.
    """
    sample, failed = EpochPlan.sample, slots / "failed"

    def fail() -> None:
        failed.touch()
        raise ArithmeticError("no luck")

    def wait() -> None:
        end = time.monotonic() + 60
        while not failed.exists():
            if time.monotonic() > end:
                raise TimeoutError("rank 0 did not fail")
            time.sleep(0.01)

    number, action = (3, fail) if rank.index == 0 else (1, wait)
    _on_call(EpochPlan, "sample", number, action)
    try:
        return train_factored(rank, folder, job, address, slots)
    finally:  # the ranks are used again
        EpochPlan.sample = sample  # type: ignore[method-assign]
