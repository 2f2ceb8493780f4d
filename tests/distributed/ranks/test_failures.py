"""However a run ends, no process stays, and one error says which rank it was and at what."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks import crew
from gnnsample_lab.distributed.ranks.errors import RankError
from gnnsample_lab.distributed.ranks.run import Ranks, _Watch
from gnnsample_lab.distributed.ranks.worker import _described, _Worker
from gnnsample_lab.files import new_scratch_folder
from tests.distributed.conftest import left_after, runs
from tests.pipeline.conftest import learnable_graph

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow  # ranks end with every failure

LONG_S = 300
"""Longer than any of these tests may take."""


@pytest.fixture(scope="module")
def pair() -> Iterator[Ranks]:
    """Two ranks. Each failure ends them, and the next test's first call starts new ones."""
    with lab.distributed.Ranks(2, device="cpu", timeout_s=240) as ranks:
        yield ranks


def started(ranks: Ranks) -> list[int]:
    """Process ids of running ranks, each with a child of its own."""

    def pids(rank: Any) -> tuple[int, int]:
        return os.getpid(), subprocess.Popen(["sleep", str(LONG_S)]).pid

    found = [pid for both in ranks.run(pids) for pid in both]
    assert all(map(runs, found))
    return found


def test_an_exception_ends_all_with_one_error(pair: Ranks) -> None:
    pids = started(pair)

    def fail(rank: Any) -> None:
        with rank.stage("sampling"):
            if rank.index == 1:
                raise LookupError("no such vertex")
            torch.distributed.barrier(rank.group)

    with pytest.raises(RankError) as caught:
        pair.run(fail)
    error = caught.value
    assert (error.rank, error.stage) == (1, "sampling")
    assert str(error).startswith("rank 1 failed in stage 'sampling': LookupError: no such vertex")
    assert 'raise LookupError("no such vertex")' in error.remote_traceback
    assert error.remote_traceback in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None
    assert not left_after(pids)
    assert pair.pids == ()
    assert pair.run(lambda rank: rank.index) == [0, 1]  # new ones


def test_the_stage_that_is_named_was_entered_last_and_not_left(pair: Ranks) -> None:
    started(pair)

    def die(rank: Any) -> None:
        def work() -> None:
            with rank.stage("of a thread"):
                pass

        with rank.stage("outer"):
            with contextlib.suppress(LookupError), rank.stage("tried"):
                raise LookupError
            other = threading.Thread(target=work)
            other.start()
            other.join()
            if rank.index == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            torch.distributed.all_reduce(torch.zeros(4), group=rank.group)

    with pytest.raises(RankError) as caught:
        pair.run(die)
    assert (caught.value.rank, caught.value.stage) == (1, "outer")


def test_closed_ranks_do_not_start_again() -> None:
    with Ranks(1, device="cpu") as ranks:
        assert ranks.run(lambda rank: rank.index) == [0]
    with pytest.raises(RuntimeError, match="ranks were closed"):
        ranks.run(lambda rank: rank.index)
    assert ranks.pids == ()


def test_ranks_that_rest_start_again() -> None:
    with Ranks(1, device="cpu") as ranks:
        pids = ranks.pids
        for _ in range(2):
            ranks.rest()
        assert ranks.pids == () and not left_after(pids)
        assert ranks.run(lambda rank: rank.index) == [0] and ranks.pids != pids


def test_a_function_may_close_or_redirect_the_ranks_output(
    pair: Ranks, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def close(rank: Any) -> int:
        os.closerange(1, 3)
        return int(rank.index)

    def redirect(rank: Any, folder: str) -> int:
        file = os.open(f"{folder}/{rank.index}", os.O_CREAT | os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(file, descriptor)
        print("into the file")
        return int(rank.index)

    def speak(rank: Any) -> int:
        print("heard")
        return int(rank.index)

    pair.run(speak)
    pids = pair.pids
    assert pair.run(close, timeout_s=20) == pair.run(speak) == [0, 1]
    assert pair.run(redirect, str(tmp_path), timeout_s=20) == pair.run(speak) == [0, 1]
    assert [(tmp_path / name).read_text() for name in "01"] == 2 * ["into the file\n"]
    assert capfd.readouterr().out.count("heard") == 6 and pair.pids == pids


def test_a_killed_rank_ends_all_with_one_error(pair: Ranks) -> None:
    pids = started(pair)

    def die(rank: Any) -> None:
        with rank.stage("loading"):
            if rank.index == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            torch.distributed.all_reduce(torch.zeros(4), group=rank.group)

    with pytest.raises(
        RankError, match="rank 1 failed in stage 'loading': its process was ended by SIGKILL"
    ) as caught:
        pair.run(die)
    assert (caught.value.rank, caught.value.stage) == (1, "loading")
    assert not left_after(pids)


def test_a_hang_prints_all_stacks_and_ends(pair: Ranks, capfd: pytest.CaptureFixture[str]) -> None:
    pids = started(pair)

    def hang_here(rank: Any) -> None:
        if rank.index == 1:
            time.sleep(LONG_S)
        torch.distributed.all_reduce(torch.zeros(4), group=rank.group)

    capfd.readouterr()
    with pytest.raises(
        RankError, match=r"no result in time: rank 0 is in stage .*hang_here.*, rank 1 is in"
    ) as caught:
        pair.run(hang_here, timeout_s=4)
    assert "hang_here" in caught.value.stage
    shown = capfd.readouterr().out
    for rank in (0, 1):
        assert [
            line
            for line in shown.splitlines()
            if line.startswith(f"rank {rank}: ") and "in hang_here" in line
        ]
    assert not left_after(pids)


def test_a_result_that_comes_while_stacks_are_printed_is_late(pair: Ranks) -> None:
    pids = started(pair)

    def come_late(rank: Any) -> None:
        with rank.stage("dawdling"):
            time.sleep(1.3)

    with pytest.raises(RankError, match="no result in time: rank 0 is in stage 'dawdling'") as caught:
        pair.run(come_late, timeout_s=1)
    assert (caught.value.rank, caught.value.stage) == (0, "dawdling")
    assert not left_after(pids)


def test_the_last_result_counts_although_time_is_up() -> None:
    """It is taken in by the very look at which the time is found to be up."""
    said: list[tuple[int, str, dict[str, Any], bytes]] = [
        (0, "said all", {}, b""), (0, "result", {"number": 1}, pickle.dumps("found"))
    ]  # fmt: skip

    def get(timeout: float) -> tuple[int, str, dict[str, Any], bytes]:
        if len(said) == 1:
            time.sleep(0.6)
        return said.pop(0)

    process = types.SimpleNamespace(poll=lambda: None)
    member = types.SimpleNamespace(index=0, process=process, readers=[], stage="", heard=0, has_started=True)
    crew: Any = types.SimpleNamespace(events=types.SimpleNamespace(get=get), members=[member])
    assert _Watch(crew, {0: None}).results(1, "work", time.monotonic() + 0.5) == ["found"]


def test_time_begins_when_the_call_before_has_ended(pair: Ranks) -> None:
    """A slider's callback that comes while a cell's function runs waits for it, and has all of its own time then."""
    pair.run(lambda rank: None)
    pids, begun = pair.pids, threading.Event()

    def cell() -> None:
        begun.set()
        pair.run(lambda rank: time.sleep(3))

    first = threading.Thread(target=cell)
    first.start()
    begun.wait()
    time.sleep(0.5)
    assert pair.run(lambda rank: time.sleep(0.5) or rank.index, timeout_s=2) == [0, 1]
    first.join()
    assert pair.pids == pids


def test_a_late_collective_prints_all_stacks_and_says_who_was_missing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def come_late(rank: Any) -> None:
        rank.timeout_s = 4.0  # not that of the start, which may take more
        if rank.index == 1:
            with rank.stage("dawdling"):
                time.sleep(LONG_S)
        rank.barrier()

    with lab.distributed.Ranks(2, device="cpu", timeout_s=240, collective_timeout_s=30) as ranks:
        pids = started(ranks)
        with pytest.raises(RankError, match="rank 1 was still in stage 'dawdling'") as caught:
            ranks.run(come_late)
    assert caught.value.rank == 0
    shown = capfd.readouterr().out
    assert [line for line in shown.splitlines() if line.startswith("rank 1: ") and "in come_late" in line]
    assert not left_after(pids)


@pytest.fixture(scope="module")
def watched() -> Iterator[Ranks]:
    """Two ranks that may be silent for two seconds."""
    with lab.distributed.Ranks(2, device="cpu", timeout_s=240, heartbeat_s=2) as ranks:
        yield ranks


def test_a_stopped_rank_ends_all_with_one_error(watched: Ranks) -> None:
    """It neither dies nor is late: a collective would wait for it until its own limit."""
    pids = started(watched)

    def stop(rank: Any) -> None:
        with rank.stage("loading"):
            if rank.index == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            torch.distributed.all_reduce(torch.zeros(4), group=rank.group)

    began = time.monotonic()
    with pytest.raises(
        RankError, match="rank 1 failed in stage 'loading': no sign of life for 2 s"
    ) as caught:
        watched.run(stop)
    assert (caught.value.rank, caught.value.stage) == (1, "loading")
    assert 2 <= time.monotonic() - began < 60
    assert not left_after(pids)


class Stopped:
    """A start of two ranks that were stopped at work; time goes on where the parent waits for what they say.

    Once they are asked for their stacks they print for as long as anybody reads.
    """

    is_ours = True

    def __init__(self, *_: Any) -> None:
        process = types.SimpleNamespace(poll=lambda: None)
        self.members = [
            types.SimpleNamespace(
                index=index, process=process, readers=[], stage="work", heard=1, has_started=True
            )
            for index in range(2)
        ]
        self.events, self.seconds, self.prints = self, 0.0, False

    def get(self, timeout: float) -> tuple[int, str, dict[str, Any], bytes]:
        self.seconds += timeout
        assert self.seconds < 100, "nobody watches these ranks"
        if not self.prints:
            raise queue.Empty
        return 0, "line", {"text": "a line of a stack"}, b""

    def ask_for_stacks(self) -> None:
        self.prints = True

    def qsize(self) -> int:
        return 0

    def send(self, *_: Any, **__: Any) -> None: ...

    def end(self) -> None:
        self.seconds += crew.KILLED_S


@pytest.mark.parametrize(
    "start",
    [
        lambda: lab.distributed.Ranks(device="cpu").run(print),
        lambda: lab.distributed.run(print, device="cpu"),
        lambda: lab.train(learnable_graph(), ranks=2, device="cpu", progress=False),
        lambda: lab.train(
            learnable_graph(), ranks=2, device="cpu", progress=False, executor="factored", samplers=1
        ),
    ],
    ids=["Ranks", "run", "train", "factored"],
)
def test_by_default_stopped_ranks_end_within_half_a_minute(
    monkeypatch: pytest.MonkeyPatch, start: Callable[[], Any]
) -> None:
    """All that the parent waits for, by a clock of the test's."""
    module, stopped = importlib.import_module(Ranks.__module__), Stopped()
    monkeypatch.setattr(module, "Crew", lambda *_: stopped)
    monkeypatch.setattr(module, "time", types.SimpleNamespace(monotonic=lambda: stopped.seconds))
    with pytest.raises(RankError, match="rank 0 failed in stage 'work': no sign of life"):
        start()
    assert stopped.prints and stopped.seconds <= 30


def test_killed_ranks_go_within_one_wait_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many a driver holds."""

    class Held:
        stdout = stderr = None

        def wait(self, seconds: float) -> None:
            waits.append(seconds)
            now[0] += seconds
            raise subprocess.TimeoutExpired("rank", seconds)

        def join(self, seconds: float) -> None:
            self.wait_for_reader = seconds
            now[0] += seconds

    waits: list[float] = []
    now = [100.0]
    monkeypatch.setattr(crew, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(crew, "_kill", lambda process: None)
    members = [
        types.SimpleNamespace(
            index=i, process=Held(), readers=[Held(), Held()], wire=types.SimpleNamespace(close=lambda: None)
        )
        for i in range(4)
    ]
    held = types.SimpleNamespace(
        is_ours=True,
        members=members,
        events=types.SimpleNamespace(unbound=lambda index: None),
        _folder="no folder",
    )
    crew.Crew.end(held)  # type: ignore[arg-type]
    assert waits == [crew.KILLED_S, 0, 0, 0] and now[0] - 100 < crew.KILLED_S + 1


def hold_the_lock(seconds: int) -> None:
    """C code that gives nobody else the interpreter: ``PyDLL`` does not release its lock."""
    ctypes.PyDLL(None).sleep(seconds)


@pytest.mark.exhaustive
def test_an_interpreter_that_does_not_answer_ends_all(
    watched: Ranks, capfd: pytest.CaptureFixture[str]
) -> None:
    pids = started(watched)

    def hold(rank: Any) -> None:
        if rank.index == 0:
            hold_the_lock(LONG_S)

    capfd.readouterr()
    with pytest.raises(RankError, match="rank 0 failed in stage '.*hold': no sign of life") as caught:
        watched.run(hold)
    assert caught.value.rank == 0
    shown = capfd.readouterr().out
    assert [line for line in shown.splitlines() if line.startswith("rank 0: ") and "in hold_the_lock" in line]
    assert not left_after(pids)


@pytest.mark.exhaustive
def test_a_rank_that_waits_or_computes_is_not_silent(watched: Ranks) -> None:
    """For longer than it may be silent: asleep, in Python code, and with the lock held for shorter."""

    def work(rank: Any) -> int:
        time.sleep(3.5)
        until, turns = time.monotonic() + 3.5, 0
        while time.monotonic() < until:
            turns += 1
        hold_the_lock(1)
        return rank.index

    assert watched.run(work) == [0, 1]


@pytest.mark.exhaustive
def test_silence_while_the_parent_does_not_listen_does_not_count(watched: Ranks) -> None:
    holds = threading.Timer(0.5, hold_the_lock, (5,))
    holds.start()
    assert watched.run(lambda rank: time.sleep(7)) == [None, None]
    holds.join()


def test_ranks_need_not_be_watched() -> None:
    with lab.distributed.Ranks(1, device="cpu", timeout_s=240, heartbeat_s=None) as ranks:
        assert ranks.run(lambda rank: hold_the_lock(4)) == [None]


def test_an_interrupt_ends_all_ranks(pair: Ranks) -> None:
    pids, parent = started(pair), os.getpid()

    def wait(rank: Any) -> None:
        if rank.index == 0:
            os.kill(parent, signal.SIGINT)
        time.sleep(LONG_S)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            pair.run(wait)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not left_after(pids)
    assert pair.pids == ()


@pytest.mark.parametrize(
    "what", ["more than the 10000 that may travel", "exit code 3", "could not be read", "broke off"]
)
def test_what_a_rank_cannot_give_back_is_named(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnsample_lab.distributed.ranks.run.LIMIT_BYTES", 10_000)
    big = 20_000

    class Unreadable:
        def __reduce__(self) -> Any:
            return int, ("no number",)

    def work(rank: Any, unreadable: Any = None) -> Any:
        if what == "exit code 3":
            os._exit(3)
        if what == "broke off":  # a stray write into the pipe of messages is no pickle
            os.write(4, b"x" * 4096)
            time.sleep(LONG_S)
        return bytes(big)

    with lab.distributed.Ranks(1, device="cpu", timeout_s=240) as ranks:
        pids = list(ranks.pids)
        arguments = [Unreadable()] if what == "could not be read" else []
        with pytest.raises(RankError, match=f"(?s)rank 0 failed.*{what}") as caught:
            ranks.run(work, *arguments)
    assert caught.value.stage.endswith("work")
    assert not left_after(pids)


def test_a_result_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(TypeError, match=r"the result cannot be pickled \(generator: .*\): return arrays"):
        _Worker._pickled(types.SimpleNamespace(limit_bytes=100), (n for n in range(3)))  # type: ignore[arg-type]


def test_a_rank_that_died_between_calls_is_named() -> None:
    def stages(rank: Any) -> None:
        with rank.stage("outer"), rank.stage("inner"):
            pass
        if rank.world_size == 1:
            return

    with lab.distributed.Ranks(1, device="cpu", timeout_s=240) as ranks:
        ranks.run(stages)
        os.kill(ranks.pids[0], signal.SIGKILL)
        with pytest.raises(RankError, match="SIGKILL") as caught:
            ranks.run(stages)
    assert caught.value.stage == "waiting for a function"


def run_as_script(script: Path) -> subprocess.CompletedProcess[str]:
    """Run a file by a Python of its own, which imports what this one does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_ranks_end_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import os, signal, subprocess, sys, tempfile, time
import gnnsample_lab as lab

def work(rank, parent, file):
    assert "torch" in sys.modules
    child = subprocess.Popen(["sleep", "{LONG_S}"])
    with open(file, "w") as out:
        out.write(f"{{os.getpid()}} {{child.pid}}")
    os.kill(parent, signal.SIGKILL)
    time.sleep({LONG_S})

if __name__ == "__main__":
    assert "torch" not in sys.modules
    tempfile.tempdir = {str(tmp_path / "temporary")!r}
    os.mkdir(tempfile.tempdir)
    ranks = lab.distributed.Ranks(1, device="cpu")
    ranks.run(lambda rank: None)
    assert "torch" not in sys.modules  # a rank needs it, its parent does not
    forked = os.fork()  # has the pipes, too
    if not forked:
        os.closerange(1, 3)
        time.sleep({LONG_S})
    with open({str(tmp_path / "forked")!r}, "w") as out:
        out.write(str(forked))
    ranks.run(work, os.getpid(), {str(tmp_path / "pids")!r})
"""
    )
    ended = run_as_script(script)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    (folder,) = (tmp_path / "temporary").iterdir()  # of ranks that nobody could end
    new_scratch_folder("lab-ranks", tmp_path / "temporary")
    assert not folder.exists()
    assert len(pids) == 2
    try:
        assert not left_after(pids)
    finally:
        os.kill(int((tmp_path / "forked").read_text()), signal.SIGKILL)


def test_ranks_that_nobody_holds_end() -> None:
    ranks = lab.distributed.Ranks(2, device="cpu")
    pids = list(ranks.pids)
    assert all(map(runs, pids))
    del ranks
    gc.collect()
    assert not left_after(pids)


def test_a_forked_process_does_not_end_its_parents_ranks(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """
import os
import gnnsample_lab as lab

if __name__ == "__main__":
    with lab.distributed.Ranks(1, device="cpu", timeout_s=60) as ranks:
        ranks.run(lambda rank: None)
        child = os.fork()
        if not child:
            try:
                ranks.run(lambda rank: None)
            except RuntimeError as error:
                print(error, flush=True)
            ranks.close()
            ranks.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        before = ranks.pids
        print(ranks.run(lambda rank: rank.index), before == ranks.pids)
"""
    )
    ended = run_as_script(script)
    assert ended.returncode == 0, ended.stderr
    first, second = ended.stdout.splitlines()
    assert first.startswith("ranks belong to the process that started them")
    assert second == "[0] True"


def test_an_exception_that_cannot_be_shown_is_reported_by_its_type() -> None:
    class Silent(ValueError):
        def __str__(self) -> str:
            raise LookupError("no text")

    found = _described(Silent(), "work")
    assert found["text"] == "Silent" and "Silent" in found["traceback"]
    assert _described(ValueError("no rows"), "work")["text"] == "ValueError: no rows"
