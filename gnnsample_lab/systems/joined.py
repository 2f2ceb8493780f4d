"""``lab.train`` by a process that is a rank itself, such as a script that ``torchrun`` started on one host or several.

All ranks call ``lab.train`` alike, with the rank that ``lab.distributed.join`` gave them. Nobody starts processes, no
function travels, and nothing is unpickled: what ranks tell each other about the run is JSON. Each host holds all parts
of the graph between its ranks (DSP, section 3.2), unless it is given parts for all ranks of the job.
"""

from __future__ import annotations

import contextlib
import json
import numbers
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.checks import choice
from gnnsample_lab.distributed.parts.storage import open_partition
from gnnsample_lab.distributed.ranks.rank import Rank
from gnnsample_lab.distributed.ranks.run import DEVICES
from gnnsample_lab.distributed.sampling.exchange import Exchange
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.pipeline.records import EpochRecord, RankMemory, StageEvent

from .parts import overlap_problem, saved_parts
from .ranks import Part
from .resuming import checksum, contents_of
from .table import System

_TOLD = ("records", "setup_us", "memory", "kernels", "gpu_busy", "draws")
"""What each rank has of its own; the rest of a :data:`Part` is the same on all of them."""


@contextlib.contextmanager
def ending_together(rank: Rank, alike: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """An error of the block ends all ranks that joined, and has a note on whose it is: they share a terminal.

    Args:
        rank: this rank.
        alike: errors that all ranks raise alike, after which they can go on.

    Raises:
        RankError: another rank is the cause, or has failed before.
    """
    if rank.life is not None:
        rank.life.check()
    try:
        yield
    except BaseException as error:
        error.add_note(f"on rank {rank.index} of {rank.world_size}, host {rank.host}")
        found = None if rank.life is None or isinstance(error, alike) else rank.life.failed(error)
        if found is not None:
            raise found from error
        raise


def check_joined(rank: Rank, graph: Graph, chosen: System, job: dict[str, Any], device: str) -> None:
    """Name what a rank cannot do, and what ranks were not given alike: they would wait for each other for ever.

    Raises:
        ValueError: the executor, the order of collectives, the number of workers or the device is none for this rank;
            or an argument differs between ranks. All ranks raise alike.
    """
    given = job["given"]
    executor = given["executor"] or chosen.executor
    own = "cpu" if rank.backend == "gloo" else "cuda"
    problem = None
    if choice("device", device, DEVICES) not in ("auto", own):
        problem = f"device must be the rank's, {own!r} or 'auto' (got {device!r})"
    elif executor == "factored":
        problem = (
            "executor='factored' needs the process that starts the ranks, where the queue of samples is: give ranks as "
            f"a number or as lab.distributed.Ranks (got {rank!r})"
        )
    elif rank.world_size > 1:
        several_hosts = rank.local_size < rank.world_size
        problem = overlap_problem(chosen, given, rank.backend, several_hosts)
        if problem is None and several_hosts and executor == "overlapped" and _is_coordinated(chosen, given):
            problem = (
                "coordinated must be False for ranks of several hosts: rank 0 tells in which order collectives are "
                f"started through memory of its host (system {chosen.name!r}, {rank.world_size} ranks, "
                f"{rank.local_size} a host)"
            )
    found = _gathered(rank, {"problem": problem, "given": _arguments(rank, graph, chosen, job)})
    for index, one in enumerate(found):
        if one["problem"] is not None:
            raise ValueError(one["problem"])
        first = found[0]["given"]
        for name, value in one["given"].items():
            if value != first[name]:
                raise ValueError(
                    f"{name} must be the same on all ranks (got {first[name]} on rank 0, {value} on rank {index})"
                )


def _is_coordinated(chosen: System, given: dict[str, Any]) -> bool:
    asked = given["coordinated"]
    return chosen.has_parts and (chosen.coordinated if asked is None else asked)


def _arguments(rank: Rank, graph: Graph, chosen: System, job: dict[str, Any]) -> dict[str, str]:
    """What all ranks must have alike, as text."""
    from .train import _model_options

    options = _model_options(job["given"])
    given = {name: value for name, value in job["given"].items() if name not in options}
    given |= {"system": repr(chosen), "epochs": job["epochs"], "evaluate": job["split"]}
    given |= {"resume": _contents(job["resume"])}
    given |= {"options": [f"{name}={_plain(value)}" for name, value in sorted(options.items())]}
    given |= {"ranks": f"{rank.world_size} ranks, {rank.local_size} a host", "splits": _splits(graph)}
    given |= contents_of(graph)
    del given["progress"]  # a matter of each rank
    return {name: _plain(value) for name, value in given.items()}


def _contents(file: Path | None) -> str | None:
    """What tells a checkpoint from others of its name: on another host there may be one of another run, or none."""
    if file is None:
        return None
    return f"a file with checksum {zlib.crc32(file.read_bytes()):08x}" if file.is_file() else "no such file"


def _splits(graph: Graph) -> str:
    found = (f"{len(ids)} in {name!r} ({checksum(ids):08x})" for name, ids in sorted(graph.splits.items()))
    return ", ".join(found)


def _plain(value: Any) -> str:
    """Text that is the same in every process."""
    if isinstance(value, (str, numbers.Number)) or value is None:
        return str(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_plain, value))}]"
    if callable(getattr(value, "parameters", None)):
        return f"{type(value).__name__} with parameters {[list(p.shape) for p in value.parameters()]}"
    return type(value).__name__


@contextlib.contextmanager
def parts_of_host(
    rank: Rank, graph: Graph, system: System, parts: Any, weighted: bool = False
) -> Iterator[Path]:
    """The folder of the parts on this rank's host, which the host's first rank has saved.

    Args:
        rank: this rank; all of them call it together.
        graph, system, parts, weighted: as of :func:`~.parts.saved_parts`.

    Raises:
        ValueError: as of ``saved_parts``.
        RuntimeError: the first rank of this or another host could not save them.
    """
    count, problem = rank.local_size, None
    with contextlib.ExitStack() as stack:
        folder = None
        if rank.local_index == 0:
            try:
                if isinstance(parts, Path) and open_partition(parts).num_parts == rank.world_size:
                    count = rank.world_size  # spread over the hosts
                folder = os.fspath(stack.enter_context(saved_parts(graph, system, count, parts, weighted)))
            except Exception as error:  # told to the others first: they would wait
                problem = error
        told = _gathered(rank, {"host": rank.host, "folder": folder, "problem": repr(problem)})
        if problem is not None:
            raise problem
        firsts = {one["host"]: one for one in reversed(told)}
        for host, one in sorted(firsts.items()):
            if one["folder"] is None:
                raise RuntimeError(
                    f"the parts of the graph could not be saved on host {host}: {one['problem']}"
                )
        yield Path(firsts[rank.host]["folder"])
        rank.barrier()  # nobody reads them any more


def share_weights(rank: Rank, model: Any) -> None:
    """Give a ``torch.nn.Module`` of one's own the weights that it has on rank 0, as PyTorch's data parallelism does."""
    import torch
    import torch.distributed as dist

    if isinstance(model, str) or rank.world_size == 1:
        return
    with torch.no_grad():
        for tensor in model.state_dict().values():
            moved = tensor.detach().to(rank.device).contiguous()
            dist.broadcast(moved, 0, group=rank.group)
            tensor.copy_(moved)


def told_by_all(rank: Rank, part: Part) -> list[Part]:
    """What each rank has of its own, by rank, on every rank; all of them call it together."""
    mine = {name: part[name] for name in _TOLD}
    mine["records"] = [asdict(record) for record in part["records"]]
    found = _gathered(rank, mine)
    for one in found:
        one["records"] = [_record(stored) for stored in one["records"]]
        one["memory"] = RankMemory(*one["memory"])
    of_epochs = zip(*(one["records"] for one in found), strict=True)
    on_one_clock = [_on_one_clock(records, rank.local_size) for records in of_epochs]
    for one, records in zip(found, zip(*on_one_clock), strict=True):
        one["records"] = list(records)
    return found


def _on_one_clock(records: Sequence[EpochRecord], local_size: int) -> list[EpochRecord]:
    """An epoch of all ranks on the clock of the first host: others have their own, and a barrier begins it on all."""
    hosts = [index // local_size for index in range(len(records))]
    begins = {h: min(r.begin_s for host, r in zip(hosts, records) if host == h) for h in hosts}
    return [replace(r, begin_s=r.begin_s - begins[h] + begins[0]) for h, r in zip(hosts, records)]


def _record(stored: dict[str, Any]) -> EpochRecord:
    events = tuple(StageEvent(*event) for event in stored.pop("events"))
    queues = {name: [(us, depth) for us, depth in depths] for name, depths in stored.pop("queues").items()}
    return EpochRecord(**stored, events=events, queues=queues)


def _gathered(rank: Rank, value: Any) -> list[Any]:
    """The value of every rank, by rank: numbers, text, lists and dicts of them. All ranks call it together."""
    text = json.dumps(value, default=lambda number: number.item()).encode()
    exchange = Exchange(rank, rank.group, range(rank.world_size), [0] * rank.world_size)
    every = exchange.all_gather("records", np.frombuffer(text, np.uint8))
    return [json.loads(one.tobytes()) for one in every]
