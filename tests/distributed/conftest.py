"""Four Gloo ranks, started once for all tests of a process; worlds of 1 to 4 ranks are subgroups of them.

``four_ranks.run(function, *args, world=3)`` runs on the first three. A collective waits 60 s at most, and the stacks of
all ranks are printed then. A test that fails ends the ranks; the next one starts new ones. Functions of test modules
are imported by the ranks; those that compile should do so under ``with rank.zero_first():``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks.run import Ranks


@pytest.fixture(scope="session")
def four_ranks() -> Iterator[Ranks]:
    with lab.distributed.Ranks(4, device="cpu", timeout_s=240, collective_timeout_s=60) as ranks:
        yield ranks


def runs(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat")
        return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def left_after(pids: Iterable[int], seconds: float = 15) -> list[int]:
    """Those of the processes that are still there after ``seconds``; none, as soon as all have gone."""
    pids, until = list(pids), time.monotonic() + seconds
    while (left := [pid for pid in pids if runs(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    return left
