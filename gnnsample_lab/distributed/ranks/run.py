"""``lab.distributed.run`` and :class:`Ranks`: a function of the notebook on several processes, and its results."""

from __future__ import annotations

import linecache
import pickle
import queue
import signal
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnnsample_lab import checks

from .backends import choose
from .crew import Crew
from .errors import RankError

DEVICES = ("auto", "cpu", "cuda")
MAX_RANKS = 64
MAX_TIMEOUT_S = 1e7
LIMIT_BYTES = 2**29
"""Largest function with its arguments, and largest result: all of it is copied several times on its way."""
IDLE = "waiting for a function"
POLL_S = 0.1
MOST_PASSED_S = 1.0
"""Most seconds of silence that count between two looks of the parent."""
CAUSE_S = 2.0
"""Seconds to wait for the rank that is the cause when a rank complains of its peers."""
HEARTBEAT_S = 22.0
"""Longest silence of a rank, in seconds: a run ends within 30 s of when a rank was stopped."""
STACKS_S = 4.0
"""Most seconds to wait for stacks, which come after the silence of a rank. With ``KILLED_S``, in which all ranks go,
the three stay below 30 s."""


def run(
    fn: Callable[..., Any], *args: Any, ranks: int = 2, device: str = "auto", timeout_s: float = 600,
    heartbeat_s: float | None = HEARTBEAT_S,
) -> list[Any]:  # fmt: skip
    """Run ``fn(rank, *args)`` on ``ranks`` processes at once, and return their results by rank.

    The processes are started for this call (never forked) and have left when it returns, however it returns. What they
    print appears here as ``rank 1: ...``. An interrupt ends them.

    Args:
        fn: gets a :class:`~.rank.Rank` and ``args``. Functions of notebook cells and closures are fine: they travel by
            cloudpickle, over pipes of this process, with a key of this call.
        args: further arguments, pickled once for all ranks.
        ranks: number of processes, 1 to 64.
        device: ``"auto"`` is NCCL where there is a GPU for each rank, else Gloo on CPUs with one thread a rank, and
            prints which; ``"cpu"`` and ``"cuda"`` demand one of them.
        timeout_s: seconds after which ranks that have not returned are ended, with the stacks of all of them printed;
            also the longest wait of a collective.
        heartbeat_s: as of :class:`Ranks`.

    Returns:
        ``[result of rank 0, result of rank 1, ...]``.

    Raises:
        TypeError: an argument of the wrong kind; ``fn`` or an argument cannot be pickled.
        ValueError: an argument out of range; ``fn`` and ``args`` are too large to travel.
        RuntimeError: ``device="cuda"`` with fewer GPUs than ranks.
        RankError: a rank raised, died, fell silent or did not return in time. It names rank and stage and has the
            rank's traceback.
        ImportError: cloudpickle is not installed.
    """
    call = _Call(fn, args)
    with Ranks(ranks, device=device, timeout_s=timeout_s, heartbeat_s=heartbeat_s) as started:
        return started._run(call, started.ranks, started._timeout_s)


class Ranks:
    """Processes that stay warm between calls, for sliders: the second call imports nothing and meets nobody anew.

    They start in the background when this is made; the first :meth:`run` waits for them. Functions find what earlier
    ones left in modules and in the caches of this package. After a failure, an interrupt or a time-out all ranks have
    ended, and the next :meth:`run` starts new ones. They end with :meth:`close`, with the ``with`` block, with this
    object, and with the process that made them, even if it is killed.

    Args:
        ranks: number of processes, 1 to 64.
        device: as in :func:`run`.
        timeout_s: seconds for each :meth:`run`, unless it says otherwise; the first one's include the start.
        collective_timeout_s: longest wait of a collective in seconds; ``timeout_s`` where it is None.
        heartbeat_s: seconds without a sign of life after which a rank that runs a function counts as lost, and all are
            ended. A thread of each rank gives one every second, whatever its function computes or waits for; it cannot
            where the process is stopped, and where C code holds the interpreter's lock. None switches it off, for
            functions that call such code for longer. The start is not watched.

    Attributes:
        ranks: number of processes.
        backend: ``"nccl"`` or ``"gloo"``.

    Raises:
        TypeError: an argument of the wrong kind.
        ValueError: an argument out of range.
        RuntimeError: ``device="cuda"`` with fewer GPUs than ranks.
        ImportError: cloudpickle is not installed.
    """

    def __init__(
        self,
        ranks: int = 2,
        *,
        device: str = "auto",
        timeout_s: float = 600,
        collective_timeout_s: float | None = None,
        heartbeat_s: float | None = HEARTBEAT_S,
    ) -> None:
        self.ranks = checks.whole("ranks", ranks, 1, MAX_RANKS)
        checks.choice("device", device, DEVICES)
        self._timeout_s = _seconds("timeout_s", timeout_s)
        given = checks.optional(_seconds, "collective_timeout_s", collective_timeout_s)
        self._collective_timeout_s = self._timeout_s if given is None else given
        self._heartbeat_s = checks.optional(_seconds, "heartbeat_s", heartbeat_s)
        _cloudpickle()
        self.backend, reason = choose(device, self.ranks)
        if device == "auto":
            what = "NCCL" if self.backend == "nccl" else "Gloo, on CPUs"
            print(f"{self.ranks} rank{'s' * (self.ranks > 1)} on {what}: {reason}", flush=True)
        self._lock = threading.Lock()
        self._number, self._is_closed = 0, False
        self._crew: Crew | None = None
        self._finalizer: Any = None
        self._start()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids by rank; empty when no ranks are running."""
        return () if self._crew is None else tuple(m.process.pid for m in self._crew.members)

    def _start(self) -> Crew:
        crew = Crew(self.ranks, self.backend, self._collective_timeout_s, LIMIT_BYTES)
        self._crew, self._finalizer = crew, weakref.finalize(self, crew.end)
        return crew

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Let the ranks leave, and end those that do not within five seconds. May be called twice.

        In a process that was forked from the one that started them it does nothing.
        """
        self._is_closed = True
        self._leave()

    def rest(self) -> None:
        """Have the ranks leave until the next call, which starts others: what they kept warm is lost.

        A call that runs in another thread ends first. May be called twice.
        """
        with self._lock:
            self._leave()

    def _leave(self) -> None:
        crew, self._crew = self._crew, None
        if crew is not None and crew.is_ours:  # a forked process has copies of queues that nobody fills
            crew.leave()
            self._finalizer.detach()
            _Watch(crew, {}).drain()

    def run(
        self, fn: Callable[..., Any], *args: Any, world: int | None = None, timeout_s: float | None = None
    ) -> list[Any]:
        """Run ``fn(rank, *args)`` on the ranks, or on the first ``world`` of them, and return the results by rank.

        Args:
            fn: as in :func:`lab.distributed.run`.
            args: further arguments, pickled once for all ranks.
            world: number of ranks that take part, with a process group of their own (``rank.group``); None is all.
            timeout_s: seconds for this call; None is what the constructor got.

        Returns:
            One result for each rank that took part.

        Raises:
            TypeError: an argument of the wrong kind; ``fn`` or an argument cannot be pickled.
            ValueError: an argument out of range; ``fn`` and ``args`` are too large to travel.
            RankError: a rank raised, died, fell silent or did not return in time; all ranks have ended.
            RuntimeError: another process started the ranks, and this one was forked from it; they were closed.
        """
        call = _Call(fn, args)
        size = self.ranks if world is None else checks.whole("world", world, 1, self.ranks)
        given = checks.optional(_seconds, "timeout_s", timeout_s)
        return self._run(call, size, self._timeout_s if given is None else given)

    def _check_process(self) -> None:
        crew = self._crew
        if crew is not None and not crew.is_ours:
            raise RuntimeError(
                "ranks belong to the process that started them (got a call in a process that was forked from it): make "
                "others there"
            )

    def _run(self, call: _Call, size: int, timeout_s: float) -> list[Any]:
        self._check_process()
        # A slider's callback may come while a cell runs: its time begins when that has ended.
        with self._lock:
            until = time.monotonic() + timeout_s
            if self._is_closed:
                raise RuntimeError("ranks were closed: make others (lab.distributed.Ranks)")
            crew = self._crew or self._start()
            self._number += 1
            watch = _Watch(crew, dict.fromkeys(range(size)), self._heartbeat_s)
            try:
                for member in crew.members:  # all agree on a smaller world's group
                    crew.send(
                        member, "run", call.body, number=self._number, world=size, name=call.name,
                        sources=call.sources,
                    )  # fmt: skip
                return watch.results(self._number, call.name, until)
            except BaseException:  # of a rank, or an interrupt
                self._crew = None
                crew.end()
                self._finalizer.detach()
                watch.drain()
                raise
            finally:
                watch.close()


class _Call:
    """A function with its arguments, as it travels."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.body = _pickled(checks.function("fn", fn), args)
        self.name = str(getattr(fn, "__qualname__", type(fn).__name__))
        self.sources = _sources(fn)


class _Watch:
    """The parent's side of one call: waits, shows what ranks print, and finds out whose failure it was."""

    def __init__(self, crew: Crew, waiting: dict[int, None], heartbeat_s: float | None = None) -> None:
        self._crew, self._waiting, self._heartbeat_s = crew, waiting, heartbeat_s
        self._looked = time.monotonic()
        self._heard: dict[int, int] = {}
        self._silent_s = dict.fromkeys(waiting, 0.0)
        self._bodies: dict[int, bytes] = {}
        self._failures: dict[int, dict[str, Any]] = {}
        self._said_all: set[int] = set()
        self._dead: set[int] = set()
        self._bars: dict[tuple[int, int], Any] = {}
        self._number, self._name = -1, ""
        self._quiet_since = time.monotonic()

    def results(self, number: int, name: str, until: float) -> list[Any]:
        """Results of call ``number`` in rank order."""
        size, self._number, self._name = len(self._waiting), number, name
        deadline_of_cause = None
        while self._waiting:
            self._step(POLL_S)
            self._bury()
            self._listen()
            if any(not f["of_peers"] for f in self._failures.values()):
                break
            if self._failures and deadline_of_cause is None:
                deadline_of_cause = time.monotonic() + CAUSE_S
            if deadline_of_cause is not None and time.monotonic() > deadline_of_cause:
                break
            if time.monotonic() > until and self._waiting and not self._failures:
                raise self._late()
        if self._failures:
            raise self._failed()
        return [self._loaded(index, name) for index in range(size)]

    def _step(self, timeout_s: float) -> bool:
        """Take in one event; False where none came."""
        try:
            index, kind, header, body = self._crew.events.get(timeout=timeout_s)
        except queue.Empty:
            return False
        member = self._crew.members[index]
        if kind == "line":
            self._quiet_since = time.monotonic()
            print(f"rank {index}: {header['text']}", flush=True)
        elif kind == "stage":
            member.stage = header["stage"] or self._name
        elif kind == "ready":
            member.stage = IDLE
        elif kind == "progress":
            self._show(index, header)
        elif kind == "result" and header["number"] == self._number:
            self._bodies[index] = body
            member.stage = IDLE
        elif kind == "said all":
            self._said_all.add(index)
        elif kind == "failure":
            self._failures[index] = header
        elif kind == "garbled":
            self._failures[index] = _failure(member.stage, f"its messages broke off: {header['text']}")
        if index in self._bodies and index in self._said_all:
            self._waiting.pop(index, None)
        return True

    def _bury(self) -> None:
        """Find ranks whose process has ended; what they said before counts first."""
        for member in self._crew.members:
            code = member.process.poll()
            if code is None or member.index in self._dead:
                continue
            self._dead.add(member.index)
            self._crew.events.unbound(member.index)
            for reader in member.readers:
                reader.join(1.0)
            self.drain()
            known = self._failures.get(member.index)
            if known is None or known["of_peers"]:
                self._failures[member.index] = _failure(member.stage, _ending(code))

    def _listen(self) -> None:
        """Find ranks that have given no sign of life for too long."""
        now = time.monotonic()
        # A parent that was itself stopped, or kept from running, has heard nothing from anybody.
        passed, self._looked = min(now - self._looked, MOST_PASSED_S), now
        if self._heartbeat_s is None:
            return
        for index in self._waiting:
            member = self._crew.members[index]
            heard = member.heard
            # While it starts it imports and loads libraries, which hold the interpreter's lock.
            if heard != self._heard.get(index) or not member.has_started:
                self._heard[index], self._silent_s[index] = heard, 0.0
                continue
            self._silent_s[index] += passed
            if self._silent_s[index] > self._heartbeat_s and index not in self._failures:
                self._failures[index] = _failure(
                    member.stage,
                    f"no sign of life for {self._heartbeat_s:g} s: its process was stopped, or C code holds its "
                    "interpreter's lock (heartbeat_s= is for how long that may be)",
                    is_silent=True,
                )  # fmt: skip

    def drain(self) -> None:
        """Take in all that has come by now; ranks that live may go on for ever."""
        for _ in range(self._crew.events.qsize()):
            self._step(0)

    def _failed(self) -> RankError:
        if any(failure["timed_out"] or failure.get("is_silent") for failure in self._failures.values()):
            self._stacks()
        rank, cause = min(self._failures.items(), key=lambda item: (item[1]["of_peers"], item[1]["at"]))
        others = "".join(
            f"\nthen rank {index} in stage {other['stage']!r}: {other['text'].splitlines()[0]}"
            for index, other in sorted(self._failures.items())
            if index != rank
        )
        if cause["of_peers"]:  # whoever has not come is the likelier culprit
            others += "".join(
                f"\nrank {index} was still in stage {self._crew.members[index].stage!r}"
                for index in self._waiting
                if index not in self._failures
            )
        trace = cause["traceback"]
        return RankError(
            f"rank {rank} failed in stage {cause['stage']!r}: {cause['text']}{others}\nAll ranks have been ended."
            + (f"\n\nTraceback of rank {rank}:\n{trace}" if trace else ""),
            rank,
            cause["stage"],
            trace,
        )

    def _late(self) -> RankError:
        stages = {i: self._crew.members[i].stage for i in self._waiting}
        rank = min(stages)
        self._stacks()  # while they are printed, results may come: they are late
        return RankError(
            f"no result in time: {', '.join(f'rank {i} is in stage {stage!r}' for i, stage in stages.items())}. "
            "All ranks have been ended; their stacks are printed above.",
            rank,
            stages[rank],
        )

    def _stacks(self) -> None:
        """Print the stacks of all ranks that still run."""
        print("stacks of all ranks:", flush=True)
        self._crew.ask_for_stacks()
        until = time.monotonic() + STACKS_S
        self._quiet_since = time.monotonic() + 1.5  # the first line may take a while on a busy machine
        while time.monotonic() < until and time.monotonic() - self._quiet_since < 0.5:
            self._step(POLL_S)

    def _loaded(self, index: int, name: str) -> Any:
        try:
            return pickle.loads(self._bodies[index])
        except Exception as error:
            raise RankError(
                f"the result of rank {index} cannot be read here ({type(error).__name__}: {error})",
                index,
                f"result of {name}",
            ) from error

    def _show(self, rank: int, header: dict[str, Any]) -> None:
        from tqdm.auto import tqdm

        key = rank, header["bar"]
        if key not in self._bars:
            text = f"rank {rank}: {header['text']}".rstrip(": ")
            self._bars[key] = tqdm(total=header["total"], desc=text)
        bar = self._bars[key]
        bar.update(header["done"] - bar.n)
        if header["ended"]:
            bar.close()

    def close(self) -> None:
        for bar in self._bars.values():
            bar.close()


def _failure(stage: str, text: str, is_silent: bool = False) -> dict[str, Any]:
    return {
        "stage": stage, "text": text, "traceback": "", "of_peers": False, "timed_out": False, "at": time.monotonic(),
        "is_silent": is_silent,
    }  # fmt: skip


def _ending(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (a system that runs out of memory does that)" if name == "SIGKILL" else ""
    return f"its process was ended by {name}{hint}"


def _seconds(name: str, value: Any) -> float:
    return checks.real(name, value, None, MAX_TIMEOUT_S, above=0)


def _cloudpickle() -> Any:
    try:
        import cloudpickle
    except ImportError:
        raise ImportError(
            "ranks need cloudpickle (pip install 'gnnsample_lab[distributed]'): functions of cells travel by it"
        ) from None
    return cloudpickle


def _pickled(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    dumps = _cloudpickle().dumps
    try:
        data: bytes = dumps((fn, args), protocol=5)
    except Exception as error:
        for name, value in [("fn", fn), *((f"args[{i}]", value) for i, value in enumerate(args))]:
            try:
                dumps(value, protocol=5)
            except Exception as reason:
                raise TypeError(
                    f"{name} must be something that can be pickled for the ranks (got {checks.shown(value)}: {reason})"
                ) from None
        raise TypeError(f"fn and args must be things that can be pickled for the ranks ({error})") from None
    if len(data) > LIMIT_BYTES:
        raise ValueError(
            f"fn and args must be at most {LIMIT_BYTES} bytes when pickled (got {len(data)}): have the ranks load or "
            "make what is large"
        )
    return data


def _sources(fn: Callable[..., Any]) -> dict[str, list[str]]:
    """Source lines of a function from a notebook's cell, for the rank's tracebacks."""
    file = getattr(getattr(fn, "__code__", None), "co_filename", None)
    if not file or Path(file).is_file():
        return {}
    lines = linecache.getlines(file)
    return {file: lines} if lines else {}
