"""What ranks run in the tests of workers with collectives; ranks import it."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gnnsample_lab.distributed.features.cache import FeatureCache
from gnnsample_lab.distributed.sampling.cpu.base import CpuEngine
from gnnsample_lab.distributed.sampling.exchange import Exchange
from gnnsample_lab.pipeline.plan import EpochPlan
from gnnsample_lab.pipeline.queues import StageQueue
from gnnsample_lab.pipeline.trainer import Trainer
from gnnsample_lab.pipeline.turns import Turns
from gnnsample_lab.systems.ranks import train_slices

run_slices = train_slices


def opposite_orders(rank: Any, rounds: int) -> list[str]:
    """A sampler and a loader, each with a group of its own; on odd ranks the loader is always the first to ask."""
    import torch
    import torch.distributed as dist

    turns = Turns(rank)
    groups = {name: rank.another_group() for name in ("sampler", "loader")}
    order: list[str] = []
    came = [threading.Event() for _ in range(rounds)]
    first = ("sampler", "loader")[rank.index % 2]
    failed: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(rounds):
                if name == first:
                    came[number].set()
                else:
                    came[number].wait(0.01)  # on other ranks it is the other worker's to wait
                x = torch.ones(1)
                with turns.turn(name):
                    order.append(name)
                    dist.all_reduce(x, group=groups[name])
                assert int(x) == rank.world_size
        except BaseException as error:
            failed.append(error)

    workers = [threading.Thread(target=work, args=(name,)) for name in groups]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failed:
        raise failed[0]
    return order


def noted_training(rank: Any, folder: Path, job: dict[str, Any]) -> Any:
    """Train; the order of collectives of the first rank's notes is told for both."""
    import torch.distributed as dist

    order: list[str] = []
    turn = Turns.turn

    def noted(self: Turns, worker: str) -> Any:
        inner = turn(self, worker)

        class Noted:
            def __enter__(self) -> None:
                inner.__enter__()
                order.append(worker)

            def __exit__(self, *error: Any) -> Any:
                return inner.__exit__(*error)

        return Noted()

    Turns.turn = noted  # type: ignore[assignment, method-assign]
    try:
        part = run_slices(rank, folder, job)
    finally:  # the ranks are used again
        Turns.turn = turn  # type: ignore[method-assign]
    told: list[Any] = [None, None]
    dist.all_gather_object(told, " ".join(order), group=rank.group)
    part["notes"] = (*part["notes"], *told)
    return part


def failing_loader(rank: Any, folder: Path, job: dict[str, Any]) -> Any:
    """Rank 1's loader fails at its fourth mini-batch."""
    calls: list[int] = []
    extract = FeatureCache.extract

    def failing(self: FeatureCache, *args: Any, **options: Any) -> Any:
        calls.append(1)
        if rank.index == 1 and len(calls) == 5:
            raise ArithmeticError("in the loader")
        return extract(self, *args, **options)

    FeatureCache.extract = failing  # type: ignore[method-assign]
    try:
        return run_slices(rank, folder, job)
    finally:
        FeatureCache.extract = extract  # type: ignore[method-assign]


@contextmanager
def before_calls(owner: Any, name: str, act: Callable[..., None]) -> Iterator[None]:
    """``act`` gets the arguments of each call of a method before the method does."""
    method = getattr(owner, name)

    def watched(*args: Any, **options: Any) -> Any:
        act(*args, **options)
        return method(*args, **options)

    setattr(owner, name, watched)
    try:
        yield
    finally:  # the ranks are used again
        setattr(owner, name, method)


def failing_sampler(rank: Any, folder: Path, job: dict[str, Any]) -> Any:
    """Rank 1's second sampler fails at its third mini-batch."""

    def fail(plan: EpochPlan, places: range, sampler: int = 0) -> None:
        if rank.index == 1 and sampler == 1 and plan.batch_ids[places.start] == 5:
            raise ArithmeticError("in the second sampler")

    with before_calls(EpochPlan, "sample", fail):
        return run_slices(rank, folder, job)


def delayed_training(rank: Any, folder: Path, job: dict[str, Any]) -> Any:
    """Workers take pauses, other ones on each rank, so that they come to their collectives in other orders."""
    chance = random.Random(rank.index)

    def pause(*_: Any, **__: Any) -> None:
        time.sleep(chance.choice((0, 0, 0.02)))

    with (
        before_calls(EpochPlan, "sample", pause),
        before_calls(FeatureCache, "extract", pause),
        before_calls(StageQueue, "put", pause),
    ):
        return run_slices(rank, folder, job)


def locked_training(rank: Any, folder: Path, job: dict[str, Any]) -> Any:
    """As on a GPU: all samplers of a rank take one lock, and hold it while they wait for those of other ranks."""
    lock, sample, in_order = threading.Lock(), CpuEngine.sample_many, Trainer.samples_in_order

    def locked(self: CpuEngine, *args: Any) -> Any:
        with lock:
            return sample(self, *args)

    CpuEngine.sample_many = locked  # type: ignore[method-assign]
    Trainer.samples_in_order = property(lambda self: True)  # type: ignore[assignment, method-assign]
    try:
        return delayed_training(rank, folder, job)
    finally:
        CpuEngine.sample_many, Trainer.samples_in_order = sample, in_order  # type: ignore[method-assign]


def grouped_training(rank: Any, folder: Path, job: dict[str, Any]) -> Any:
    """Train; of each rank, the process groups that its threads used, are told in the notes of the first."""
    import torch.distributed as dist

    used = defaultdict[str, set[str]](set)

    def note(exchange: Exchange, *_: Any) -> None:
        used[threading.current_thread().name].add(exchange.group.group_name)

    with before_calls(Exchange, "all_to_all_tensors", note):
        part = run_slices(rank, folder, job)
    told: list[Any] = [None, None]
    found = {name: sorted(groups) for name, groups in used.items()}
    dist.all_gather_object(told, json.dumps(found), group=rank.group)
    part["notes"] = (*part["notes"], *told)
    return part
