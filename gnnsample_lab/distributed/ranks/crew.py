"""The processes of one start, as their parent sees them: pipes, threads that read them, and their end."""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from gnnsample_lab.files import new_scratch_folder

from .backends import environment
from .wire import KEY_BYTES, Wire, end_mark

LINE_BYTES = 8192
"""A longer line of output is shown in parts."""
QUIT_S = 5.0
"""Seconds that ranks have to leave by themselves before they are killed."""
KILLED_S = 3.0
"""Seconds for all ranks together to go that were killed: a driver may hold a process for a while."""
MOST_WAITING = 256
"""Events of a rank that wait to be taken in; its pipes are read no further then, and what it prints holds it back."""


@dataclass(eq=False)
class Member:
    """One rank: its process, the pipe of messages, and what the parent knows of it.

    ``heard`` counts its messages, signs of life among them; ``has_started``: it has met the other ranks.
    """

    index: int
    process: subprocess.Popen[bytes]
    wire: Wire
    mark: bytes
    readers: list[threading.Thread] = field(default_factory=list)
    stage: str = "start"
    heard: int = 0
    has_started: bool = False


class Events:
    """What ranks say, in order: ``(rank, kind, header, body)``. Each may be :data:`MOST_WAITING` ahead."""

    def __init__(self, ranks: int) -> None:
        self._queue: queue.Queue[tuple[int, str, dict[str, Any], bytes]] = queue.Queue()
        self._room = [threading.Semaphore(MOST_WAITING) for _ in range(ranks)]
        self._is_bounded = [True] * ranks

    def put(self, rank: int, kind: str, header: dict[str, Any], body: bytes = b"") -> None:
        """Add an event of a rank, when there is room for one."""
        if self._is_bounded[rank]:
            self._room[rank].acquire()
        self._queue.put((rank, kind, header, body))

    def get(self, timeout: float) -> tuple[int, str, dict[str, Any], bytes]:
        """Take the first event; raises ``queue.Empty`` where none comes within ``timeout`` seconds."""
        event = self._queue.get(timeout=timeout)
        self._room[event[0]].release()
        return event

    def qsize(self) -> int:
        """Events that can be taken."""
        return self._queue.qsize()

    def unbound(self, rank: int) -> None:
        """Let a rank that has ended, or is to end, say all that is left to say."""
        self._is_bounded[rank] = False
        self._room[rank].release(2)  # its readers may be waiting


class Crew:
    """Processes of one start; ``events`` has what they say."""

    def __init__(self, ranks: int, backend: str, collective_timeout_s: float, limit_bytes: int) -> None:
        self.events = Events(ranks)
        self.members: list[Member] = []
        self._owner = os.getpid()
        self._folder = new_scratch_folder("lab-ranks")
        self.ended = False
        try:
            for index in range(ranks):
                self.members.append(self._start(index, backend, ranks))
            for member in self.members:
                # An empty entry is the folder of a notebook, where the ranks start too; Python ignores what is no text.
                path = [entry for entry in sys.path if isinstance(entry, str)]
                member.wire.send(
                    "setup", index=member.index, ranks=ranks, backend=backend, path=path,
                    rendezvous=(self._folder / "meet").as_uri(), collective_timeout_s=collective_timeout_s,
                    limit_bytes=limit_bytes,
                )  # fmt: skip
        except BaseException:
            self.end()
            raise

    def _start(self, index: int, backend: str, ranks: int) -> Member:
        key = secrets.token_bytes(KEY_BYTES)
        # A session of its own: Jupyter's and the terminal's interrupts reach the parent alone, which ends all ranks.
        process = subprocess.Popen(
            [sys.executable, "-m", "gnnsample_lab.distributed.ranks.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(backend, ranks),
            start_new_session=True,
        )
        read, write = cast(BinaryIO, process.stdout), cast(BinaryIO, process.stdin)
        write.write(key)
        write.flush()
        member = Member(index, process, Wire(read, write, key, is_parent=True), end_mark(key))
        for target in (_read_messages, _read_lines):
            reader = threading.Thread(target=target, args=(member, self.events), daemon=True)
            reader.start()
            member.readers.append(reader)
        return member

    @property
    def is_ours(self) -> bool:
        """Whether this process started the ranks: one that it forked has none."""
        return os.getpid() == self._owner

    def send(self, member: Member, kind: str, body: bytes = b"", **header: Any) -> None:
        """Send without waiting: a rank that does not read its pipe must not hold the parent."""

        def write() -> None:
            with contextlib.suppress(OSError, ValueError):  # its death is found by its process
                member.wire.send(kind, body, **header)

        threading.Thread(target=write, daemon=True).start()

    def ask_for_stacks(self) -> None:
        """Have every rank print the stacks of all its threads, whatever it is at."""
        if not hasattr(signal, "SIGUSR1"):
            return
        for member in self.members:
            if member.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    member.process.send_signal(signal.SIGUSR1)

    def leave(self) -> None:
        """Let the ranks end by themselves, then end what is left."""
        if not self.is_ours:
            return
        for member in self.members:
            self.events.unbound(member.index)
            self.send(member, "quit")
        until = time.monotonic() + QUIT_S
        try:
            for member in self.members:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    member.process.wait(max(0.0, until - time.monotonic()))
        finally:
            self.end()

    def end(self) -> None:
        """Kill the ranks and their children, and wait until they are gone. May be called twice."""
        if not self.is_ours:
            return
        self.ended = True
        for member in self.members:
            _kill(member.process)
            self.events.unbound(member.index)
        until = time.monotonic() + KILLED_S
        for member in self.members:
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.process.wait(max(0.0, until - time.monotonic()))
            for reader in member.readers:
                if reader is not threading.current_thread():
                    reader.join(max(0.1, until - time.monotonic()))
            member.wire.close()
            for stream in (member.process.stdout, member.process.stderr):
                if stream is not None and not any(reader.is_alive() for reader in member.readers):
                    stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a rank with its children; the group outlives a leader that has ended but was not waited for."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _read_messages(member: Member, events: Events) -> None:
    try:
        while True:
            header, body = member.wire.receive()
            member.heard += 1
            if header["kind"] == "alive":  # of idle ranks nobody takes events
                continue
            member.has_started |= header["kind"] == "ready"
            events.put(member.index, header["kind"], header, body)
    except (EOFError, OSError, ValueError) as error:
        if not isinstance(error, EOFError):
            events.put(member.index, "garbled", {"text": str(error)})


def _read_lines(member: Member, events: Events) -> None:
    """Lines of the rank's output, and the marks that end the output of a call."""
    assert member.process.stderr
    left = b""
    while chunk := member.process.stderr.read1(65536):  # type: ignore[attr-defined]
        *lines, left = (left + chunk).split(b"\n")
        for line in lines:
            text, mark, _ = line.partition(member.mark)
            if text or not mark:
                events.put(member.index, "line", {"text": _shown(text)})
            if mark:
                events.put(member.index, "said all", {})
        if len(left) > LINE_BYTES:  # what stays may be the beginning of a mark
            events.put(member.index, "line", {"text": _shown(left[: LINE_BYTES // 2])})
            left = left[LINE_BYTES // 2 :]
    if left:
        events.put(member.index, "line", {"text": _shown(left)})


def _shown(line: bytes) -> str:
    """A carriage return overwrites, as in a terminal: the last state of a line is shown."""
    return line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]
