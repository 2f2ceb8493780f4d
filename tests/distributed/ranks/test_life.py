"""Ranks that joined: the end of one, however it comes, is that of all, and each names its rank and its stage."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gnnsample_lab.distributed.ranks import hosts, life
from gnnsample_lab.distributed.ranks.errors import RankError
from gnnsample_lab.distributed.ranks.life import Life
from gnnsample_lab.distributed.ranks.run import HEARTBEAT_S

LONG_S = 20.0
BOUND_S = 0.4


class Store:
    """What ``Life`` asks of a store, in this process."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.problem: str | None = None
        self.answers = threading.Event()
        self.answers.set()

    def _asked(self) -> None:
        self.answers.wait()
        if self.problem:
            raise RuntimeError(self.problem)

    def set(self, key: str, value: str) -> None:
        self._asked()
        self.values[key] = value

    def get(self, key: str) -> bytes:
        self._asked()
        return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        self._asked()
        return all(key in self.values for key in keys)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def compare_set(self, key: str, expected: str, value: str) -> bytes:
        self._asked()
        return self.values.setdefault(key, value).encode()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch, store: Store) -> Iterator[Callable[..., list[Life]]]:
    """Makes ranks of one host; ``ended`` of each is set where its process would have been ended."""
    for name, seconds in {
        "BEAT_S": 0.02,
        "REST_S": 0.005,
        "END_S": 0.2,
        "LINGER_S": 0.3,
        "LEAVE_S": 0.3,
    }.items():
        monkeypatch.setattr(life, name, seconds)
    ended = threading.Event()
    monkeypatch.setattr(life, "end_process", ended.set)
    lives: list[Life] = []

    def begin(size: int = 3, mine: int | None = None) -> list[Life]:
        lives.extend(
            Life(store, rank, size, 2, BOUND_S) for rank in (range(size) if mine is None else [mine])
        )
        for one in lives:
            one.ended = ended  # type: ignore[attr-defined]
        return lives

    yield begin
    store.answers.set()
    for one in lives:
        one.leave()
    assert not any(thread.is_alive() for one in lives for thread in one._threads)


def until(is_so: Callable[[], Any]) -> None:
    limit = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.005)


def say(store: Store, rank: int, number: int = 1, state: str = "here") -> None:
    said = {"said": number, "state": state, "stage": "sampling", "name": "other", "pid": 2**22 + 1}
    store.values[f"rank {rank}"] = json.dumps(said)


def named(one: Life) -> RankError:
    until(one._known.is_set)
    with pytest.raises(RankError) as caught:
        one.check()
    return caught.value


def test_an_error_is_told_and_the_first_one_counts(begun: Any) -> None:
    first, second, third = begun()
    first.enter("training")
    own = LookupError("no such vertex\nmore")
    assert second.failed(own) is None
    assert second.failed(own) is None, "of the script, after that of the block"
    for other in (first, third):
        found = other.failed(RuntimeError("gloo/transport: Connection closed by peer"))
        assert (found.rank, found.stage) == (1, "script")
        text = str(found)
        assert text.startswith("rank 1 on host 0 (") and text.splitlines()[1] == "All ranks end."
        assert "failed in stage 'script': LookupError: no such vertex" in text and "more" not in text
    assert third.failed(ValueError("its own, too late")).rank == 1
    assert third.failed(found) is None, "named already"


def test_an_error_is_told_before_its_rank_leaves(
    begun: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come, and the script end, just after the thread that talks has looked for errors."""
    one, *_ = begun()
    has_failed, look = threading.Event(), store.check

    def check(keys: list[str]) -> bool:
        found = look(keys)
        if keys == ["failure"] and threading.current_thread() is one._threads[0] and not has_failed.is_set():
            one.failed(KeyboardInterrupt())
            one._is_leaving = True
            has_failed.set()
        return found

    monkeypatch.setattr(store, "check", check)
    until(has_failed.is_set)
    one._threads[0].join(LONG_S)
    assert json.loads(store.values["failure"])["text"] == "KeyboardInterrupt"
    assert not one.leave()


def test_the_stage_of_an_error_is_where_it_was_raised(begun: Any) -> None:
    first, second = begun(2)
    error = KeyboardInterrupt()
    error._rank_stage = "extracting"  # type: ignore[attr-defined]
    assert first.failed(error) is None
    assert named(second).stage == "extracting" and "KeyboardInterrupt" in str(named(second))


def test_silent_ranks_are_named_with_their_stage(begun: Any, store: Store) -> None:
    for rank in (1, 2, 3):
        say(store, rank)
    [first] = begun(4, mine=0)
    until(lambda: 1 in first._heard)
    until(lambda: say(store, 1, first._said) or first._known.is_set())  # rank 1 goes on
    error = named(first)
    assert (error.rank, error.stage) == (2, "sampling")
    assert "rank 2 on host 1 (other) failed in stage 'sampling': no sign of life for 0.4 s" in str(error)
    assert "; silent as well: rank 3 on host 1" in str(error)


def test_by_default_a_lost_rank_ends_all_within_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    # What it said last is heard a beat later, and seen another one later; its silence is looked at every beat.
    found_s = HEARTBEAT_S + 3 * life.BEAT_S
    # The others look for what was found every beat. Where no store answers it is told in vain.
    assert found_s + max(life.BEAT_S, life.LINGER_S) + life.END_S <= 30

    class Begun(Exception):
        """With the arguments of ``Life``."""

    def begin(*args: Any) -> None:
        raise Begun(*args)

    torch = pytest.importorskip("torch")
    job = {"RANK": "1", "WORLD_SIZE": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "3"}
    job |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    # Joining sets variables of the process: a copy takes them.
    monkeypatch.setattr(os, "environ", {**os.environ, **job})
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **__: None)
    for name, value in {"_met": lambda *_: None, "own_store": lambda _: None, "Life": begin}.items():
        monkeypatch.setattr(hosts, name, value)
    with pytest.raises(Begun) as caught:
        hosts.join("cpu")
    assert caught.value.args == (None, 1, 3, 3, HEARTBEAT_S)


def test_a_rank_that_computes_or_has_left_is_not_silent(begun: Any, store: Store) -> None:
    say(store, 2, state="left")
    first, second = begun(3, mine=0)[0], begun(3, mine=1)[1]
    until(lambda: first._heard and second._heard)
    begin = time.monotonic()
    while time.monotonic() < begin + 2 * BOUND_S:
        sum(range(1000))
    assert not first._known.is_set() and not second._known.is_set()


def test_a_process_that_does_not_come_back_is_ended(
    begun: Any, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    say(store, 1)
    [first] = begun(2, mine=0)
    first.enter("training")
    assert first.ended.wait(LONG_S)
    assert "rank 0 is ended in stage 'training': RankError: rank 1 on host 0" in capsys.readouterr().err


def test_a_main_thread_that_comes_back_is_left_alone(begun: Any, store: Store) -> None:
    say(store, 1)
    [first] = begun(2, mine=0)
    assert named(first).rank == 1
    first._threads[1].join(LONG_S)
    assert not first.ended.is_set()


@pytest.mark.parametrize("problem", ["Connection reset by peer", None])
def test_a_store_without_answer_is_the_loss_of_rank_0(begun: Any, store: Store, problem: str | None) -> None:
    say(store, 0)
    [second] = begun(2, mine=1)
    until(lambda: second._heard)
    store.problem = problem
    if problem is None:
        store.answers.clear()
    error = named(second)
    assert (error.rank, error.stage) == (0, "sampling")
    assert (problem or "gave no answer for 0.4 s") in str(error)


def test_ranks_leave_in_any_order(begun: Any, store: Store) -> None:
    first, second, third = begun()
    until(lambda: first._heard and second._heard and third._heard)
    assert third.leave()
    assert first.leave()
    store.problem = "the store has ended with rank 0"
    assert second.leave()
    second.check()


def test_an_error_of_peers_waits_for_its_cause(begun: Any, store: Store) -> None:
    say(store, 1)
    [first] = begun(2, mine=0)
    until(lambda: first._heard)
    error = first.failed(RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer"))
    assert error is not None and error.rank == 1


def printed_by(*words: str, seconds: float = LONG_S, **environment: str) -> list[str]:
    """The lines that Python prints in a process of its own, which must end well."""
    places = os.pathsep.join(path for path in sys.path if path)
    ended = subprocess.run(
        [sys.executable, *words], env={**os.environ, "PYTHONPATH": places, **environment}, capture_output=True,
        text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_only_stopped_children_of_the_same_parent_are_killed() -> None:
    code = (
        "import os, sys, signal, time; from gnnsample_lab.distributed.ranks.life import end_stopped_sibling\n"
        "pids = [os.fork() or time.sleep(60) for _ in range(2)]\n"
        "os.kill(pids[0], signal.SIGSTOP); os.waitpid(pids[0], os.WUNTRACED)\n"
        "if not os.fork():\n"
        "    [end_stopped_sibling(pid) for pid in [*pids, int(sys.argv[1]), 2**22 + 1]]; os._exit(0)\n"
        "print(os.waitpid(pids[0], 0)[1], os.waitpid(pids[1], os.WNOHANG)[0]); os.kill(pids[1], signal.SIGKILL)\n"
    )
    with subprocess.Popen(["sleep", "60"]) as other:
        other.send_signal(signal.SIGSTOP)
        assert printed_by("-c", code, str(other.pid)) == [f"{int(signal.SIGKILL)} 0"]
        assert other.poll() is None, "a stopped process of another parent"
        other.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_forked_process_ends_at_once_and_its_parent_does_not() -> None:
    code = (
        "import os, signal, time; from types import SimpleNamespace\n"
        "from gnnsample_lab.distributed.ranks.life import EndRequest\n"
        "request = EndRequest(SimpleNamespace(asked_to_end=lambda: print('asked', flush=True)))\n"
        "child = os.fork()\n"
        "if not child: time.sleep(60)\n"
        "time.sleep(0.2); os.kill(child, signal.SIGTERM); print(os.waitpid(child, 0)[1])\n"
        "time.sleep(0.2); print('not asked', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.2); print(request._is_heeded)\n"
    )
    assert printed_by("-c", code) == [str(int(signal.SIGTERM)), "not asked", "asked", "True"]


# ---- jobs of processes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """How the processes of each job ended, and the folder of what they printed."""
    if sys.platform != "linux":
        pytest.skip("reads /proc, and names the loopback interface as Linux does")
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("jobs")
    script = str(Path(__file__).with_name("joined_jobs.py"))
    printed = printed_by(script, str(folder), seconds=300, GLOO_SOCKET_IFNAME="lo")
    return json.loads(printed[-1]), folder


KILLED = -int(getattr(signal, "SIGKILL", 9))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "lost", "stage", "text", "code"),
    [
        ("killed", 2, "loading", "no sign of life for 3 s", KILLED),
        ("ended", 2, "loading", "no sign of life for 2 s", KILLED),
        ("stopped", 1, "sampling", "no sign of life for 3 s", KILLED),
        ("computing", 0, "extracting", "the store of all ranks", KILLED),
        ("interrupted", 0, "script", "KeyboardInterrupt", 1),
        ("raised", 1, "training", "LookupError: no such vertex", 1),
    ],
)
def test_the_end_of_one_rank_is_that_of_all(
    jobs: tuple[dict[str, Any], Path], job: str, lost: int, stage: str, text: str, code: int
) -> None:
    ended, folder = jobs
    assert all(ended[job]), "a process stayed"
    assert [one[0] for one in ended[job]] == [code if rank == lost else 1 for rank in range(3)]
    for rank in range(3):
        printed = (folder / f"{job} {rank}").read_text()
        if rank != lost:
            assert f"RankError: rank {lost} on host 0 (" in printed
            assert f"failed in stage '{stage}': {text}" in printed
        else:
            assert "RankError" not in printed
        assert "never" not in printed
        if job == "raised":
            caught = f"caught 1 {stage} RuntimeError\n"
            assert (caught in printed) == (rank != lost)


@pytest.mark.slow
def test_ranks_that_are_asked_to_end_do_so(jobs: tuple[dict[str, Any], Path]) -> None:
    """Nobody is named, but on a busy machine where one was silent for so long that the others took it for lost."""
    ended, folder = jobs
    assert all(ended["asked"]), "a process stayed"
    for rank, (code, seconds) in enumerate(ended["asked"]):
        assert code in (life.ASKED, 1) and seconds < 30
        assert ("RankError" in (folder / f"asked {rank}").read_text()) == (code == 1)


@pytest.mark.slow
def test_ranks_that_end_well_leave_nothing(jobs: tuple[dict[str, Any], Path]) -> None:
    ended, folder = jobs
    assert [one[0] for one in ended["left"]] == [0, 0, 0]
    for rank in range(3):
        printed = (folder / f"left {rank}").read_text().split()
        assert printed[0] == "closed" and int(printed[1]) >= 1 and printed[2:] == ["threads", "1"], printed
