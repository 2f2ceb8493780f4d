"""What ranks run in the tests of workers with collectives; ranks import it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from gnnsample_lab.distributed.features.cache import FeatureCache
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
