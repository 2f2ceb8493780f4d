"""The global queue and its scheduler: which mini-batch who samples, who trains on it, when a sampler switches.

One service in the process that started the ranks; the ranks ask it over sockets of this host. A message is a line of
JSON between ends that have proved to know the key of the run (``multiprocessing.connection``, bytes alone: nothing is
pickled); samples do not pass here, they lie in slots.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Client as connect
from multiprocessing.connection import Connection, Listener
from typing import Any

from gnnsample_lab.files import new_scratch_folder
from gnnsample_lab.pipeline.schedule.allocation import should_switch

KEY_BYTES = 32
_PATH_BYTES = 100
"""Longest path of a socket that all systems take."""
_GOODBYE_S = 5.0
"""Longest wait for the thread that takes calls."""
STILL_S = 1800.0
"""Seconds in which nobody gets on after which who waits hears of it: as long as ranks wait in a collective."""
_LOOK_S = 0.1
"""Seconds between a waiting client's looks whether it shall go on waiting."""


@dataclass(eq=False)
class Phase:
    """One pass over mini-batches: an epoch, or its evaluation.

    Attributes:
        total: mini-batches. capacity: how many may wait in the queue, None for all.
        trainers: ranks that train all the time.
        given: mini-batches handed out for sampling. taken: by trainers, as places, in order.
        open: place -> rank that is sampling it. returned: places that a lost sampler had and did not put.
        slots_of: by rank, slots of its own memory that are free.
        depths: ``(seconds of the host's monotonic clock, mini-batches that wait)``.
        switched: mini-batches that standby trainers took.
        busy: by trainer, ``[seconds between two requests for work, how often]``: T_t is their mean.
    """

    total: int
    capacity: int | None
    trainers: int
    given: int = 0
    open: dict[int, int] = field(default_factory=dict)
    returned: deque[int] = field(default_factory=deque)
    slots_of: dict[int, list[int]] = field(default_factory=dict)
    holds: dict[int, dict[str, Any]] = field(default_factory=dict)
    put: set[int] = field(default_factory=set)
    waiting: deque[dict[str, Any]] = field(default_factory=deque)
    taken: list[int] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    slots: int = 0
    depths: list[tuple[float, int]] = field(default_factory=list)
    switched: int = 0
    busy: dict[int, list[float]] = field(default_factory=dict)
    standby_busy: dict[int, list[float]] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether all has been put and taken."""
        return len(self.put) == self.total and not self.waiting

    def mean_s(self, busy: dict[int, list[float]]) -> float:
        seconds, count = (sum(column) for column in zip(*busy.values(), strict=True)) if busy else (0.0, 0)
        return seconds / count if count else 0.0


class QueueService:
    """Serves the ranks of one run; use it as a context.

    Args:
        still_s: seconds in which nobody samples or trains after which all who wait get an error that names who samples
            what: a worker may stand still while its process lives.

    Attributes:
        address: what clients are given: ``(path or address, key)``.
        phases: name -> :class:`Phase`.
        lost: ranks that sample no more.
    """

    def __init__(self, still_s: float = STILL_S) -> None:
        self._still_s, self._heard = still_s, time.monotonic()
        self._folder = new_scratch_folder("lab-queue")
        key = secrets.token_bytes(KEY_BYTES)
        place = str(self._folder / "queue")
        # Else a port of this host: temporary folders of batch systems have long names.
        is_file = hasattr(socket, "AF_UNIX") and len(os.fsencode(place)) <= _PATH_BYTES
        address, family = (place, "AF_UNIX") if is_file else (None, "AF_INET")
        self._listener = Listener(address, family, backlog=64, authkey=key)
        self.address = (self._listener.address, key)
        self.phases: dict[str, Phase] = {}
        self.lost: set[int] = set()
        self._changed = threading.Condition()
        self._ended = False
        self._connections: list[Connection] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True, name="global queue")
        self._accepting.start()

    def __enter__(self) -> QueueService:
        return self

    def __exit__(self, *_: Any) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        # A thread that waits for callers does not notice that the listener is closed, but that somebody calls: without
        # the key, for whose proof nobody may be there any more.
        with contextlib.suppress(OSError):
            connect(self.address[0]).close()
        self._accepting.join(_GOODBYE_S)
        with contextlib.suppress(OSError):
            self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while not self._ended:
            try:
                connection = self._listener.accept()
            except Exception:  # a stranger without the key, or the listener was closed
                if self._ended:
                    return
                continue
            if self._ended:
                connection.close()
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                request = json.loads(connection.recv_bytes())
                what = request.pop("ask")
                if what != "get_if_worth":  # a standby trainer asks again and again
                    self._heard = time.monotonic()
                try:
                    answer = getattr(self, f"_{what}")(**request)
                except Exception as error:
                    answer = {"error": f"{type(error).__name__}: {error}"}
                connection.send_bytes(json.dumps(answer).encode())

    def _begin(self, phase: str, total: int, capacity: int | None, trainers: int) -> dict[str, Any]:
        with self._changed:
            if phase not in self.phases:
                self.phases[phase] = made = Phase(total, capacity, trainers)
                made.depths.append((time.perf_counter(), 0))
            return {}

    def _task(self, phase: str, count: int, rank: int) -> dict[str, Any]:
        """The next mini-batches to sample, whoever asks (GNNLab, section 5.2).

        None are left when all have been put: until then a sampler may be lost, and others have its work to do.
        """
        with self._changed:
            now = self.phases[phase]
            self._wait(
                now,
                lambda: (
                    bool(now.returned)
                    or now.given < now.total
                    or all(other == rank for other in now.open.values())
                ),
            )
            if now.returned:
                first = now.returned.popleft()
                last = first + 1
            else:
                first, now.given = now.given, min(now.given + count, now.total)
                last = now.given
            now.open.update(dict.fromkeys(range(first, last), rank))
            return {"first": first, "last": last}

    def _begun(self, phase: str) -> dict[str, Any]:
        """Wait until somebody has put a mini-batch, or there is none."""
        with self._changed:
            now = self.phases[phase]
            self._wait(now, lambda: bool(now.put) or not now.total)
            return {}

    def _lost(self, phase: str, rank: int, samplers: int) -> dict[str, Any]:
        """A rank samples no more: what it was to sample is handed out again. How many samplers are left."""
        with self._changed:
            now = self.phases[phase]
            self.lost.add(rank)
            mine = sorted(place for place, other in now.open.items() if other == rank)
            for place in mine:
                del now.open[place]
            now.returned.extend(mine)
            if (slot := now.holds.pop(rank, None)) is not None:
                self._give_back(now, **slot)
            self._changed.notify_all()
            return {"left": samplers - len(self.lost), "places": len(mine)}

    def _room(self, phase: str, rank: int, own: int) -> dict[str, Any]:
        """A slot to write to; waits while the queue is full. ``own``: slots of the rank's own memory, of which one."""
        with self._changed:
            now = self.phases[phase]
            if own:
                free = now.slots_of.setdefault(rank, list(range(own)))
                # A slot is in use until its mini-batch was trained on; the queue holds those that nobody has taken.
                self._wait(
                    now,
                    lambda: (
                        bool(free)
                        and (now.capacity is None or len(now.waiting) + len(now.holds) < now.capacity)
                    ),
                )
                now.holds[rank] = {"slot": free.pop(), "owner": rank}
                return now.holds[rank]
            self._wait(now, lambda: bool(now.free) or now.capacity is None or now.slots < now.capacity)
            if not now.free:
                now.slots += 1
                now.free.append(now.slots - 1)
            now.holds[rank] = {"slot": now.free.pop(), "owner": -1}
            return now.holds[rank]

    def _put(
        self, phase: str, place: int, slot: int, header: list[Any], rank: int, owner: int
    ) -> dict[str, Any]:
        with self._changed:
            now = self.phases[phase]
            if place in now.put or now.open.get(place) != rank:
                raise ValueError(f"mini-batch {place} was sampled twice, or by nobody's order")
            now.put.add(place)
            del now.open[place]
            now.holds.pop(rank, None)
            now.waiting.append({"place": place, "slot": slot, "owner": owner, "header": header})
            self._note(now)
            return {}

    def _get(self, phase: str, rank: int, busy_s: float | None) -> dict[str, Any]:
        """The mini-batch that waits longest; none when there will be no more."""
        with self._changed:
            now = self.phases[phase]
            _add(now.busy, rank, busy_s)
            self._wait(now, lambda: bool(now.waiting) or now.is_over)
            return self._taken(now)

    def _get_if_worth(self, phase: str, rank: int, busy_s: float | None, sampling: bool) -> dict[str, Any]:
        """For a standby trainer, that never waits: a mini-batch if its profit is positive (section 5.3)."""
        with self._changed:
            now = self.phases[phase]
            _add(now.standby_busy, rank, busy_s)
            if now.is_over:
                return {"over": True}
            trainer_s = now.mean_s(now.busy)
            # Before it has trained one: its pipeline is empty, so both stages count.
            standby_s = now.mean_s(now.standby_busy) or 2 * trainer_s
            if sampling or not should_switch(len(now.waiting), now.trainers, trainer_s, standby_s):
                return {}
            now.switched += 1
            return self._taken(now)

    def _free(self, phase: str, slot: int, owner: int) -> dict[str, Any]:
        with self._changed:
            self._give_back(self.phases[phase], slot, owner)
            self._changed.notify_all()
            return {}

    @staticmethod
    def _give_back(now: Phase, slot: int, owner: int) -> None:
        (now.free if owner < 0 else now.slots_of[owner]).append(slot)

    def _taken(self, now: Phase) -> dict[str, Any]:
        if not now.waiting:
            return {"over": True}
        item = now.waiting.popleft()
        now.taken.append(item["place"])
        self._note(now)
        return item

    def _note(self, now: Phase) -> None:
        now.depths.append((time.perf_counter(), len(now.waiting)))
        self._changed.notify_all()

    def _wait(self, now: Phase, until: Callable[[], bool]) -> None:
        """Wait for ``until``. TimeoutError: nobody has asked for anything for so long that somebody stands still."""
        while not self._changed.wait_for(
            lambda: self._ended or until(), max(0.0, self._heard + self._still_s - time.monotonic())
        ):
            if time.monotonic() >= self._heard + self._still_s:
                open_ = ", ".join(f"mini-batch {place} by rank {rank}" for place, rank in now.open.items())
                raise TimeoutError(
                    f"no rank got on for {self._still_s:g} s; being sampled: {open_ or 'none'}; "
                    f"{len(now.put)} of {now.total} are sampled, {len(now.taken)} of them trainers have taken"
                )
        if self._ended:
            raise EOFError("the run has ended")


def _add(busy: dict[int, list[float]], rank: int, seconds: float | None) -> None:
    if seconds is not None:
        entry = busy.setdefault(rank, [0.0, 0])
        entry[0] += seconds
        entry[1] += 1


class Client:
    """One rank's line to the service, for one thread.

    Args:
        address: of the service. rank: index.

    Attributes:
        look: called now and then while an answer is waited for; what it raises ends the wait, and the line. Or None.
    """

    def __init__(self, address: tuple[Any, bytes], rank: int) -> None:
        self._connection = connect(address[0], authkey=address[1])
        self._rank, self._phase = rank, ""
        self._told: list[str] = []
        self._since: float | None = None
        self.look: Callable[[], None] | None = None

    def close(self) -> None:
        self._connection.close()

    def begin(self, phase: str, total: int, capacity: int | None, trainers: int) -> None:
        """Join a phase; all ranks say the same."""
        self._phase, self._since = phase, None
        self._ask("begin", total=total, capacity=capacity, trainers=trainers)

    def task(self, count: int = 1) -> range:
        """Places of the next mini-batches to sample; empty when all have been handed out."""
        answer = self._ask("task", count=count, rank=self._rank)
        return range(answer["first"], answer["last"])

    def room(self, own: int = 0) -> int:
        """A slot to write to, with ``own`` one of so many in this rank's memory; waits while the queue is full."""
        return int(self._ask("room", rank=self._rank, own=own)["slot"])

    def put(self, place: int, slot: int, header: list[Any], own: bool = False) -> None:
        """What was written is a mini-batch that may be trained on; does not wait for the answer."""
        owner = self._rank if own else -1
        self._tell("put", place=place, slot=slot, header=header, rank=self._rank, owner=owner)

    def begun(self) -> None:
        """Wait until there is a mini-batch of any sampler, or will be none."""
        self._ask("begun")

    def lost(self, samplers: int) -> tuple[int, int]:
        """This rank samples no more. Of ``samplers``, how many are left; mini-batches that they take over."""
        answer = self._ask("lost", rank=self._rank, samplers=samplers)
        return int(answer["left"]), int(answer["places"])

    def get(self) -> dict[str, Any] | None:
        """The next mini-batch to train on; waits for one; None when there will be none."""
        answer = self._ask("get", rank=self._rank, busy_s=self._busy())
        self._since = time.perf_counter()
        return None if "over" in answer else answer

    def get_if_worth(self, sampling: bool) -> dict[str, Any] | None:
        """For a standby trainer: as :meth:`get`, but ``{}`` where it should not take one now."""
        answer = self._ask("get_if_worth", rank=self._rank, busy_s=self._busy(), sampling=sampling)
        self._since = time.perf_counter() if "slot" in answer else None
        return None if "over" in answer else answer

    def free(self, slot: int, owner: int = -1) -> None:
        """A slot has been read; ``owner``: whose memory it is in, if any rank's. Does not wait for the answer."""
        self._tell("free", slot=slot, owner=owner)

    def _busy(self) -> float | None:
        return None if self._since is None else time.perf_counter() - self._since

    def _tell(self, what: str, **request: Any) -> None:
        """As :meth:`_ask`, without waiting for the answer: what went wrong is raised by the next question."""
        self._send(what, request)
        self._told.append(what)

    def _ask(self, what: str, **request: Any) -> dict[str, Any]:
        self._send(what, request)
        answers = [(asked, json.loads(self._received())) for asked in (*self._told, what)]
        self._told.clear()
        for asked, answer in answers:
            if "error" in answer:
                raise RuntimeError(f"the global queue refused {asked!r}: {answer['error']}")
        found: dict[str, Any] = answers[-1][1]
        return found

    def _received(self) -> bytes:
        while self.look is not None and not self._connection.poll(_LOOK_S):
            self.look()
        return self._connection.recv_bytes()

    def _send(self, what: str, request: dict[str, Any]) -> None:
        self._connection.send_bytes(json.dumps({"ask": what, "phase": self._phase, **request}).encode())
