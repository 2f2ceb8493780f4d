"""Jobs of ranks that join, as ``torchrun`` starts them, each with a rank that ends in its own way.

``python joined_jobs.py FOLDER`` runs :data:`JOBS` side by side, each rank a process that is forked from this one, which
has imported PyTorch once for all. ``FOLDER/<job> <rank>`` gets what a rank prints. The last line on standard output
says how the processes of each job ended, and after how many seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks.errors import RankError
from gnnsample_lab.systems.joined import ending_together

RANKS = 3
HEARTBEAT_S = 3.0
TOLD_S = 1.0
"""Seconds after which the others know of a stage."""
LONGEST_S = 40.0
"""Processes that are there for longer stay, as the test then finds."""


def killed(rank: Any) -> None:
    """Rank 2 is killed while the others are in a collective."""
    with rank.stage("loading"):
        if rank.index == 2:
            time.sleep(TOLD_S)
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(1), group=rank.group)


def ended(rank: Any) -> None:
    """As :func:`killed`, but nobody would miss rank 2 for long: what started the ranks ends the others at once."""
    killed(rank)


def asked(rank: Any) -> None:
    """All are asked to end, and none has ended."""
    with rank.stage("loading"):
        processes: list[Any] = [None] * RANKS
        dist.all_gather_object(processes, os.getpid(), group=rank.group)
        for process in processes if rank.index == 2 else ():
            os.kill(process, signal.SIGTERM)
        time.sleep(LONGEST_S)


def stopped(rank: Any) -> None:
    """Rank 1 is stopped while the others are in a collective."""
    with rank.stage("sampling"):
        if rank.index == 1:
            time.sleep(TOLD_S)
            os.kill(os.getpid(), signal.SIGSTOP)
        rank.barrier()


def computing(rank: Any) -> None:
    """Rank 0, which holds the store, is stopped while the others do not look for it."""
    with rank.stage("extracting"):
        if rank.index == 0:
            time.sleep(TOLD_S)
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(LONGEST_S)


def interrupted(rank: Any) -> None:
    """Rank 0 is interrupted, outside of any stage."""
    if rank.index == 0:
        raise KeyboardInterrupt
    rank.barrier()


def raised(rank: Any) -> None:
    """All refuse the same and go on; then rank 1 raises, and the others are told where they wait for it."""
    with contextlib.suppress(ValueError), ending_together(rank, alike=ValueError):
        raise ValueError("of all ranks")
    rank.barrier()
    try:
        with ending_together(rank), rank.stage("training"):
            if rank.index == 1:
                raise LookupError("no such vertex\nsecond line")
            dist.all_reduce(torch.ones(1), group=rank.group)
    except RankError as error:
        print("caught", error.rank, error.stage, type(error.__cause__).__name__)
    with ending_together(rank):
        print("never")


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def left(rank: Any) -> None:
    """Ranks compute for longer than the bound, and rank 0 is through before the others: none is the worse for it."""
    until = time.monotonic() + 1.2 * HEARTBEAT_S
    while time.monotonic() < until:
        sum(range(1000))
    rank.barrier()
    if rank.index:
        time.sleep(1)
    before = open_files()
    assert rank.life.leave() and rank.life.leave()
    print("closed", before - open_files(), "threads", threading.active_count())


JOBS = [killed, ended, asked, stopped, computing, interrupted, raised, left]
BY_TORCHRUN = ("ended", "asked")
"""Jobs whose other ranks get SIGTERM once one has ended."""


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    started: dict[int, tuple[str, int]] = {}
    for job in JOBS:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        for index in range(RANKS):
            pid = os.fork()
            if not pid:
                with (folder / f"{job.__name__} {index}").open("w") as file:
                    os.dup2(file.fileno(), 1)
                    os.dup2(file.fileno(), 2)
                os.environ |= {
                    "RANK": str(index), "LOCAL_RANK": str(index), "WORLD_SIZE": str(RANKS),
                    "LOCAL_WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                }  # fmt: skip
                heartbeat_s = LONGEST_S if job.__name__ in BY_TORCHRUN else HEARTBEAT_S
                job(lab.distributed.join("cpu", timeout_s=LONGEST_S, heartbeat_s=heartbeat_s))
                return
            started[pid] = job.__name__, index
    begin, ends = time.monotonic(), {job.__name__: [None] * RANKS for job in JOBS}
    while started and time.monotonic() < begin + LONGEST_S:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            job_name, index = started.pop(pid)
            ends[job_name][index] = os.waitstatus_to_exitcode(status), time.monotonic() - begin
            for other, (name, _) in started.items():
                if name == job_name in BY_TORCHRUN:
                    os.kill(other, signal.SIGTERM)
        else:
            time.sleep(0.05)
    for pid in started:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    print(json.dumps(ends))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
