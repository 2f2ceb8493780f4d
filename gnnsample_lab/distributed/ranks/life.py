"""Signs of life of ranks that joined a job of ``torchrun``: the end of one of them becomes that of all.

Nobody started these ranks from here, so that they tell each other through the store in which they met. Rank 0 watches
all others, and they watch rank 0: a store then has a few requests a rank and second, however many ranks there are.
Whoever finds out first what went wrong writes it down, once for the whole job, and all ranks name the same.

``torchrun`` ends all ranks of a host when one has ended, before any of them was silent for long. They then stay until
they know whose end it was, and at which stage (:class:`EndRequest`).

Each process has two threads. One talks with the store, over a connection of its own; a call of it waits for ever where
the host of the store was stopped. The other one counts for how long nothing was heard, and ends the process where its
main thread does not come back from a collective whose other ranks are gone.
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
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from .errors import RankError, is_of_peers, stage_of, text_of
from .rank import flush
from .run import CAUSE_S, MOST_PASSED_S

BEAT_S = 0.5
"""Seconds between two signs of life, and between two looks at those of others."""
END_S = 2.0
"""Seconds that the main thread has to fail by itself once a rank is lost: then its process is ended."""
LINGER_S = 1.0
"""Most seconds that a process stays until the other ranks know why it ends."""
SOON_S, ASKED_S = 2.0, 6.0
"""Seconds of silence after which a rank is lost once this process was asked to end, and the most that it stays for
that; ``torchrun`` kills what is there after 30."""
LEAVE_S = 5.0
"""Most seconds that rank 0, which may hold the store, waits until the others know that it leaves."""
REST_S = 0.05
"""Least seconds between two requests to the store: stages may follow one another quickly."""
ASKED = 128 + int(signal.SIGTERM)
"""How a process ends that was asked to, as shells have it."""
SCRIPT = "script"
"""The stage of a rank that is in none."""
_FAILURE = "failure"
_HERE, _LEFT, _TOLD = "here", "left", "told"


def own_store(seconds: float) -> Any:
    """A connection of one's own to the store of the job: calls of a shared one wait for each other."""
    import torch.distributed as dist

    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, wait_for_workers=False,
        timeout=timedelta(seconds=seconds),
    )  # fmt: skip
    # What torchrun restarts must not read why it was restarted.
    return dist.PrefixStore(f"gnnsample_lab life {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)


class Life:
    """One rank's signs of life, and its watch over others; it begins at once and ends with :meth:`leave`.

    Args:
        store: with ``set``, ``check``, ``multi_get`` and ``compare_set``, used by a thread of this object alone.
        index, size, local_size: as of a :class:`~.rank.Rank`.
        heartbeat_s: seconds of silence after which a rank is lost.

    Attributes:
        stage: what this rank is at.
        end_request: what :meth:`leave` takes back.
    """

    def __init__(self, store: Any, index: int, size: int, local_size: int, heartbeat_s: float) -> None:
        self.stage = SCRIPT
        self.end_request: EndRequest | None = None
        self._store, self._index, self._size, self._local_size = store, index, size, local_size
        self._heartbeat_s = heartbeat_s
        self._watched = [rank for rank in range(size) if (rank == 0) != (index == 0)]
        self._said = 0
        self._state = _HERE
        self._heard: dict[int, dict[str, Any]] = {}  # what watched ranks said last
        self._rounds = 0
        self._found: dict[str, Any] | None = None  # what is to be written down
        self._failure: dict[str, Any] | None = None  # what all ranks name
        self._wake, self._known = threading.Event(), threading.Event()
        self._is_leaving = False
        self._is_over, self._has_come_back = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=target, daemon=True, name=name)
            for target, name in ((self._talk, "signs of life"), (self._watch, "watch over ranks"))
        ]
        for thread in self._threads:
            thread.start()

    # ---- of the main thread -----------------------------------------------------------------------------------

    def enter(self, stage: str | None) -> None:
        """Say what this rank is at from now on; None is no stage."""
        self.stage = stage or SCRIPT
        self._wake.set()

    def check(self) -> None:
        """Raise the job's error where there is one already.

        Raises:
            RankError: a rank has failed.
        """
        if self._known.is_set():
            self._has_come_back.set()
            raise self._error()

    def failed(self, error: BaseException) -> RankError | None:
        """Take in an error of this rank: what to raise in its place where another rank is the cause, else None.

        An error of this rank's own is told to the others, which end. One that only says that others are gone waits for
        what they died of.
        """
        self._has_come_back.set()
        if isinstance(error, RankError):
            return None
        if is_of_peers(error) and self._threads[0].is_alive():
            self._known.wait(self._heartbeat_s + CAUSE_S)
        if self._failure is not None:
            return None if self._failure["rank"] == self._index else self._error()
        self._tell(self._index, stage_of(error, self.stage), _first_line(error), socket.gethostname())
        return None

    def leave(self) -> bool:
        """Stop the threads and close the connection; whether the job went well. May be called twice."""
        self._has_come_back.set()
        self._is_leaving = True
        self._wake.set()
        self._threads[0].join(LEAVE_S + LINGER_S)
        self._is_over.set()
        self._threads[1].join(LINGER_S)
        self._store = None
        if self.end_request is not None:
            self.end_request.leave()
        return self._failure is None

    def asked_to_end(self) -> None:
        """End this process once it is known which rank has ended; at once where nobody is watched any more."""
        self._heartbeat_s = min(self._heartbeat_s, SOON_S)
        until = time.monotonic() + ASKED_S
        while not (self._is_over.is_set() or self._known.wait(BEAT_S)) and time.monotonic() < until:
            pass
        if self._known.is_set():  # the main thread raises what is known, or the thread that watches prints it
            time.sleep(ASKED_S)
        end_process(ASKED)

    # ---- of the thread that talks -----------------------------------------------------------------------------

    def _talk(self) -> None:
        keys = [_key(rank) for rank in range(self._size)]
        all_here = False
        store = self._store
        try:
            while True:
                self._say(store)
                all_here = all_here or store.check(keys)
                if self._taken_in(store):
                    self._linger(store, _TOLD, LINGER_S)
                    return
                if all_here:
                    self._listen(store)
                self._rounds += 1
                # What was found since is told first: an error that ends the script is followed by its leaving at once.
                may_leave = self._is_leaving and self._found is None
                if may_leave or self._heard.get(0, {}).get("state") == _LEFT:
                    self._is_over.set()  # without rank 0 there may soon be no store: nobody is watched any more
                    self._linger(store, _LEFT, LEAVE_S if self._index == 0 and all_here else 0)
                    return
                if self._wake.wait(BEAT_S):
                    time.sleep(REST_S)
                self._wake.clear()
        except RuntimeError as error:  # of the store: its connection is gone
            if not (self._is_leaving or self._is_over.is_set() or self._known.is_set()):
                self._lose(
                    [0], f"the store of all ranks is gone, which its host keeps ({_first_line(error)})"
                )

    def _say(self, store: Any) -> None:
        self._said += 1
        mine = {
            "said": self._said, "state": self._state, "stage": self.stage, "name": socket.gethostname(),
            "pid": os.getpid(),
        }  # fmt: skip
        store.set(_key(self._index), json.dumps(mine))

    def _taken_in(self, store: Any) -> bool:
        """Whether the job has failed, by what this rank has found or by what another one wrote down."""
        if self._found is not None:  # the first one counts
            written = store.compare_set(_FAILURE, "", json.dumps(self._found))
        elif store.check([_FAILURE]):
            written = store.get(_FAILURE)
        else:
            return False
        self._become_known(json.loads(written))
        return True

    def _listen(self, store: Any) -> None:
        found = store.multi_get([_key(rank) for rank in self._watched])
        self._heard = {rank: json.loads(one) for rank, one in zip(self._watched, found, strict=True)}

    def _linger(self, store: Any, state: str, most_s: float) -> None:
        """Say how this rank ends, and stay until those that live say so as well."""
        self._state, until = state, time.monotonic() + most_s
        self._say(store)
        lost = () if self._failure is None else self._failure["lost"]
        keys = [_key(rank) for rank in range(self._size) if rank not in lost]
        while time.monotonic() < until:
            if all(json.loads(one)["state"] in (_TOLD, _LEFT) for one in store.multi_get(keys)):
                return
            time.sleep(REST_S)

    # ---- of the thread that watches ---------------------------------------------------------------------------

    def _watch(self) -> None:
        silent_s = dict.fromkeys(self._watched, 0.0)
        last = dict.fromkeys(self._watched, 0)
        rounds, unanswered_s, looked = -1, 0.0, time.monotonic()
        while not self._known.wait(BEAT_S):
            if self._is_over.is_set():
                return
            now = time.monotonic()
            # A process that was itself stopped, or kept from running, has heard nothing from anybody.
            unanswered_s, looked = unanswered_s + min(now - looked, MOST_PASSED_S), now
            if rounds == self._rounds:
                if unanswered_s > self._heartbeat_s:
                    silence = f"gave no answer for {self._heartbeat_s:g} s"
                    self._lose([0], f"the store of all ranks, which its host keeps, {silence}")
                continue
            # Ranks that waited for the store, too, have a while to be heard again.
            passed = min(unanswered_s, MOST_PASSED_S)
            rounds, unanswered_s = self._rounds, 0.0
            for rank, said in self._heard.items():
                is_silent = said["said"] == last[rank] and said["state"] == _HERE
                silent_s[rank] = silent_s[rank] + passed if is_silent else 0.0
                last[rank] = said["said"]
            longest = max(silent_s.values(), default=0.0)
            if longest > self._heartbeat_s:
                lost = [rank for rank in self._watched if silent_s[rank] > longest / 2]
                silence = f"no sign of life for {self._heartbeat_s:g} s"
                self._lose(
                    sorted(lost, key=lambda rank: -silent_s[rank]),
                    f"{silence}: its process has ended or was stopped",
                )
        if not self._is_over.is_set():
            self._end()

    def _end(self) -> None:
        """End this process unless its main thread does; before it those of this host that were stopped.

        Whoever waits for these in a collective of Gloo then has an error. Calls of NCCL wait on.
        """
        assert self._failure is not None
        for pid in self._failure["pids"]:
            end_stopped_sibling(pid)
        if not self._has_come_back.wait(END_S):
            where = f"rank {self._index} is ended in stage {self.stage!r}"
            print(f"{where}: RankError: {self._error()}", file=sys.stderr)
            end_process()

    # ---- failures ---------------------------------------------------------------------------------------------

    def _lose(self, lost: Sequence[int], text: str) -> None:
        """Name the first of the ranks that are lost, with the others; known here even where no store answers."""
        rank, *others = lost
        said = self._heard.get(rank, {})
        if others:
            hosts = (f"rank {other} on host {other // self._local_size}" for other in others)
            text += f"; silent as well: {', '.join(hosts)}"
        pids = [self._heard[other]["pid"] for other in lost if other in self._heard]
        found = self._tell(rank, said.get("stage", SCRIPT), text, said.get("name", "unknown"), lost, pids)
        if threading.current_thread() is self._threads[0] or not self._known.wait(LINGER_S):
            self._become_known(found)

    def _tell(
        self, rank: int, stage: str, text: str, name: str, lost: Sequence[int] = (), pids: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Have it written down by the thread that talks."""
        self._found = found = {
            "rank": rank, "host": rank // self._local_size, "name": name, "stage": stage, "text": text,
            "lost": lost, "pids": pids,
        }  # fmt: skip
        self._wake.set()
        return found

    def _become_known(self, failure: dict[str, Any]) -> None:
        self._failure = self._failure or failure
        self._known.set()

    def _error(self) -> RankError:
        failure = self._failure
        assert failure is not None
        return RankError(
            f"rank {failure['rank']} on host {failure['host']} ({failure['name']}) failed in stage "
            f"{failure['stage']!r}: {failure['text']}\nAll ranks end.",
            failure["rank"],
            failure["stage"],
        )


class EndRequest:
    """Has SIGTERM, by which ``torchrun`` ends ranks, end this process by :meth:`Life.asked_to_end`.

    The main thread may be in a collective that nothing ends, where Python's handlers do not run. Hence a thread reads
    of the signal, too. A script that handles SIGTERM itself goes on doing so, and processes forked from this one end by
    it at once: they are no ranks.
    """

    def __init__(self, life: Life) -> None:
        self._life, self._is_heeded = life, False
        self._handler: Any = None
        self._thread: threading.Thread | None = None
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        read, write = os.pipe()
        os.set_blocking(write, False)
        before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        if before != -1:  # somebody else's, and the handler alone has to do
            signal.set_wakeup_fd(before)
            os.close(write)
            os.close(read)
        else:
            self._write = write
            self._thread = threading.Thread(
                target=self._read, args=(read,), daemon=True, name="requests to end"
            )
            self._thread.start()
        self._handler = lambda *_: self._heed()
        signal.signal(signal.SIGTERM, self._handler)
        if hasattr(os, "register_at_fork"):  # else a child's signal would be read here
            os.register_at_fork(after_in_child=self._take_back)

    def _read(self, end: int) -> None:
        while numbers := os.read(end, 64):
            if signal.SIGTERM in numbers and signal.getsignal(signal.SIGTERM) is self._handler:
                self._heed()
        os.close(end)

    def _heed(self) -> None:
        if not self._is_heeded:
            self._is_heeded = True
            threading.Thread(target=self._life.asked_to_end, daemon=True, name="asked to end").start()

    def leave(self) -> None:
        """Have SIGTERM end this process as it did before, unless it was asked already; of the main thread."""
        if not self._is_heeded:
            self._take_back()
            if self._thread is not None:
                self._thread.join(LINGER_S)

    def _take_back(self) -> None:
        if self._handler is None:
            return
        if signal.getsignal(signal.SIGTERM) is self._handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._thread is not None:
            before = signal.set_wakeup_fd(-1)
            if before != self._write:  # of somebody who came later
                signal.set_wakeup_fd(before)
            os.close(self._write)  # the thread that reads then ends
        self._handler = None


def end_process(code: int = 1) -> None:
    """End this process, whatever its threads wait for."""
    flush()
    os._exit(code)


def end_stopped_sibling(pid: int) -> None:
    """Kill a process that the parent of this one has started too, if it is stopped: it cannot end by itself."""
    # It may be of another host, or gone, and not every system has /proc.
    with contextlib.suppress(OSError, ValueError):
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        if state in "Tt" and int(parent) == os.getppid() != 1:
            os.kill(pid, signal.SIGKILL)


def _first_line(error: BaseException) -> str:
    return text_of(error).splitlines()[0]


def _key(rank: int) -> str:
    return f"rank {rank}"
