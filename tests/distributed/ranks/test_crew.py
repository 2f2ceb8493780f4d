"""Ranks that say much: they wait for their parent, which sees the end of others meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import pytest

from gnnsample_lab.distributed.ranks.crew import MOST_WAITING, Events
from gnnsample_lab.distributed.ranks.errors import RankError
from gnnsample_lab.distributed.ranks.run import _Watch


def printing(events: Events, goes_on: Callable[[int], bool]) -> threading.Thread:
    """A thread that puts lines of rank 0 as long as their number may go on."""

    def put() -> None:
        number = 0
        while goes_on(number):
            events.put(0, "line", {"text": str(number)})
            number += 1

    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    return thread


def test_a_rank_that_prints_hides_no_death() -> None:
    events, until = Events(2), time.monotonic() + 20
    printing(events, lambda number: time.monotonic() < until)

    def member(index: int, code: int | None) -> Any:
        process = types.SimpleNamespace(poll=lambda: code)
        return types.SimpleNamespace(
            index=index, process=process, readers=[], stage="work", heard=0, has_started=True
        )

    crew: Any = types.SimpleNamespace(events=events, members=[member(0, None), member(1, 3)])
    with pytest.raises(RankError, match="rank 1 failed in stage 'work': its process ended with exit code 3"):
        _Watch(crew, {0: None, 1: None}).results(1, "work", until)
    assert time.monotonic() < until - 10


def test_a_rank_is_held_back_until_it_is_to_end() -> None:
    events, lines = Events(1), 3 * MOST_WAITING
    thread = printing(events, lambda number: number < lines)
    while events.qsize() < MOST_WAITING:
        time.sleep(0.01)
    thread.join(0.1)
    assert thread.is_alive() and events.qsize() == MOST_WAITING
    taken = [events.get(1.0) for _ in range(MOST_WAITING)]
    thread.join(0.1)
    assert thread.is_alive() and events.qsize() <= MOST_WAITING
    events.unbound(0)
    thread.join(10)
    assert not thread.is_alive() and events.qsize() == lines - MOST_WAITING
    taken += [events.get(0) for _ in range(lines - MOST_WAITING)]
    assert [header["text"] for _, _, header, _ in taken] == [str(number) for number in range(lines)]


def test_pipes_of_ranks_that_have_ended_are_closed() -> None:
    script = (
        "import warnings, gc; warnings.simplefilter('always')\n"
        "import gnnsample_lab as lab\n"
        "from tests.distributed.ranks.test_crew import _one\n"
        "if __name__ == '__main__': print(lab.distributed.run(_one, ranks=2, device='cpu')); gc.collect()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[1, 1]" and "ResourceWarning" not in done.stderr


def _one(rank: object) -> int:
    return 1
