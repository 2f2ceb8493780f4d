"""Passes are timed on a core that a neighbour leaves alone; cores and their loops are made up."""

from __future__ import annotations

import math
import os
import sys
import threading

import pytest

from gnnsample_lab.bench import quick_core as module
from gnnsample_lab.bench import timing
from gnnsample_lab.bench.quick_core import cores, quick_core, quick_pass, taken_again
from gnnsample_lab.device import runtime

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="moves threads as Linux does")


class Host:
    """Four cores, and how long the loop takes on each; the thread is at ``at``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: set[int] = {0, 1, 2, 3}
        self.us = {0: 60.0, 1: 60.0, 2: 27.0, 3: 28.0}
        self.looked: list[int] = []
        monkeypatch.setattr(os, "sched_getaffinity", lambda thread: set(self.at))
        monkeypatch.setattr(os, "sched_setaffinity", self.move)
        monkeypatch.setattr(module, "loop_us", self.loop)
        monkeypatch.setattr(module, "_quickest_us", math.inf)
        monkeypatch.setattr(module, "_last", -1)
        monkeypatch.setattr(runtime, "cuda_available", lambda: True)

    def move(self, thread: int, to: set[int]) -> None:
        if thread == 0:
            self.at = set(to)

    def loop(self, turns: int) -> float:
        (core,) = self.at
        if self.looked[-1:] != [core]:
            self.looked.append(core)
        return self.us[core]

    def takes(self) -> tuple[set[int], list[int]]:
        """The core of the next pass, and those looked at for it."""
        self.looked.clear()
        with quick_core():
            core = set(self.at)
        assert self.at == {0, 1, 2, 3}
        return core, list(self.looked)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


def test_a_pass_stays_on_a_quick_core_and_leaves_it_when_it_is_slow(host: Host) -> None:
    assert host.takes() == ({2}, [0, 1, 2, 3])  # at first it knows none
    assert host.takes() == ({2}, [2])
    host.us[2] = 60.0
    assert host.takes() == ({3}, [2, 3])  # near enough
    host.us[3] = 61.0
    assert host.takes() == ({0}, [3, 0, 1, 2])  # all are slow: the quickest of them, or the first of these
    host.us[0] = 20.0
    assert host.takes() == ({0}, [0])
    host.us.update({0: 26.0, 1: 20.5})
    assert host.takes() == ({1}, [0, 1])


def test_other_threads_come_along_where_they_work_in_turn(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[tuple[int, set[int]]] = []
    threads = [{7, 8}]
    monkeypatch.setattr(module, "_threads", lambda: set(threads[-1]))
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda thread, to: (host.move(thread, to), moved.append((thread, set(to))))
    )
    assert quick_pass(lambda: threads.append({7, 9}), all_threads=True) is None
    there = [(thread, to) for thread, to in moved if thread]
    assert sorted(there[:2], key=lambda pair: pair[0]) == [(7, {2}), (8, {2})], "to the quick core"
    assert sorted(there[2:], key=lambda pair: pair[0]) == [(7, {0, 1, 2, 3}), (9, {0, 1, 2, 3})], (
        "and back, new ones too"
    )
    moved.clear()
    quick_pass(lambda: None)
    assert not [thread for thread, _ in moved if thread], "none moves unless it is asked for"


def test_a_pass_whose_core_became_slow_is_taken_again(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_again", 0)
    at: list[int] = []
    warmed: list[int] = []

    def take() -> int:
        (core,) = host.at
        at.append(core)
        if core == 2:
            host.us[2] = 60.0
        return core

    def warm() -> None:
        warmed.extend(host.at)

    assert quick_pass(take, warm) == 3 and at == warmed == [2, 3] and taken_again() == 1
    assert quick_pass(take, warm) == 3 and at == [2, 3, 3] and warmed == [2, 3], "its caches are warm"
    assert host.at == {0, 1, 2, 3}


def test_a_pass_counts_in_any_case_after_some_tries(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a host where no core stays quick, or for a pass that takes long."""
    passes: list[int] = []

    def take() -> int:
        passes.append(0)
        return len(passes)

    host.us = dict.fromkeys(host.us, 27.0)
    assert quick_pass(take) == 1  # knows how quick a core can be
    host.us = dict.fromkeys(host.us, 60.0)
    for patience, tries in ((1e9, module.TRIES), (-1.0, 1)):
        monkeypatch.setattr(module, "_again", 0)
        monkeypatch.setattr(module, "PATIENCE_S", patience)
        passes.clear()
        assert quick_pass(take) == tries and taken_again() == tries - 1


def test_passes_are_taken_once_where_no_core_is_chosen(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "cuda_available", lambda: False)
    taken: list[set[int]] = []
    quick_pass(lambda: taken.append(set(host.at)), lambda: taken.append(set()))
    assert taken == [{0, 1, 2, 3}] and not host.looked


def test_all_cores_are_there_again_after_an_error_and_for_threads_that_started(
    monkeypatch, host: Host
) -> None:
    moved: list[int] = []
    move = host.move
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda thread, to: (moved.append(thread), move(thread, to))[1]
    )
    stop = threading.Event()
    worker = threading.Thread(target=stop.wait)
    with pytest.raises(ZeroDivisionError), quick_core():
        worker.start()
        raise ZeroDivisionError
    stop.set()
    worker.join()
    assert host.at == {0, 1, 2, 3}
    assert [thread for thread in moved if thread] == [worker.native_id]


def test_the_operating_system_chooses_without_a_gpu_or_with_one_core(monkeypatch, host: Host) -> None:
    host.at = {2}
    assert not cores()
    host.at = {0, 1, 2, 3}
    assert cores() == [0, 1, 2, 3]
    monkeypatch.setattr(runtime, "cuda_available", lambda: False)
    assert not cores()
    with quick_core():
        assert host.at == {0, 1, 2, 3} and not host.looked


def test_each_pass_but_the_warm_one_looks_for_its_core(monkeypatch, host: Host) -> None:
    monkeypatch.setattr(timing, "_waiting", lambda: lambda: None)
    at: list[set[int]] = []
    timing.wall_passes(lambda i: at.append(set(host.at)), 2, passes=2)
    assert at == [{0, 1, 2, 3}] * 2 + [{2}] * 6, "and the caches of a new core are warm"


def test_threads_really_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "cuda_available", lambda: True)
    allowed = os.sched_getaffinity(0)
    with quick_core():
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == allowed
