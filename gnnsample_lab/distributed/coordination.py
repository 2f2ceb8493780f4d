"""Centralised communication coordination (DSP, section 5 and figure 8), and the deadlock without it, shown safely.

A rank has several workers (sampler, loader, trainer) with collectives of their own, and what a collective needs on a
GPU is not given back before it ends. If rank 0 starts the sampler's collective first and rank 1 the loader's, each
waits for the other for ever. With central coordination rank 0 is the leader: it starts collectives as its workers ask
for them and tells the others whose turn it is; they start the same collectives in the same order.

Here one communication thread a rank stands for what the GPU grants: it starts one collective, waits for its end, then
starts the next. :func:`demo` runs it in processes of its own with workers that arrive in opposite orders.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from gnnsample_lab import checks

from .ranks.rank import Rank
from .ranks.run import DEVICES, Ranks, _seconds

ORDERS = ("central", "arrival")
WORKERS = ("sampler", "loader")
_POLL_S = 0.001
_END, _NOTHING_YET = -1, -2


class CollectiveTimeout(RuntimeError):
    """A collective did not end in time: some peers have not started theirs."""


class CommunicationThread:
    """Starts the collectives of one rank's workers, one at a time.

    Args:
        rank: the rank; all ranks make theirs with the same further arguments.
        workers: names; each worker has a process group of its own, ``groups[worker]``.
        order: ``"central"``: rank 0 decides and announces; ``"arrival"``: as the workers of this rank ask.
        timeout_s: longest time of one collective in seconds, and longest wait for this rank's worker to ask for one
            whose turn rank 0 has announced.

    Attributes:
        launched: workers in the order in which their collectives were started.
        stuck: the worker whose collective did not end in time, or None.

    Raises:
        TypeError: an argument of the wrong kind.
        ValueError: an argument out of range, or an unknown order.
    """

    def __init__(
        self, rank: Rank, workers: Sequence[str] = WORKERS, *, order: str = "central", timeout_s: float = 60
    ) -> None:
        checks.instance("rank", rank, Rank, "a Rank")
        self.workers = [checks.text("workers", name) for name in checks.items("workers", workers)]
        self._central = checks.choice("order", order, ORDERS) == "central"
        self._timeout_s = _seconds("timeout_s", timeout_s)
        self.groups = {name: rank.another_group() for name in self.workers}
        self.launched: list[str] = []
        self.stuck: str | None = None
        self._rank = rank
        self._error: BaseException | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._control = rank.another_group("gloo")
        self._arrived: queue.Queue[str | None] = queue.Queue()
        self._pending: dict[str, queue.Queue[Any]] = {name: queue.Queue() for name in self.workers}
        self._thread = threading.Thread(target=self._serve, daemon=True, name="communication")
        self._thread.start()

    def submit(self, worker: str, launch: Callable[[Any], Any]) -> Future[None]:
        """Ask for a collective of ``worker``; the future is done when the collective has ended.

        It has the error where the collective failed, and a RuntimeError where the thread was closed before its turn.

        Args:
            worker: one of the workers' names.
            launch: gets the worker's group, starts the collective with ``async_op=True`` and returns its work.

        Raises:
            ValueError: an unknown worker.
            TypeError: ``launch`` cannot be called.
            RuntimeError: the thread was closed.
        """
        checks.choice("worker", worker, self.workers)
        checks.function("launch", launch)
        future: Future[None] = Future()
        with self._lock:
            if self._closed:
                raise _was_closed()
            if self._error is not None:
                future.set_exception(self._error)
            else:
                self._pending[worker].put((launch, future))
                self._arrived.put(worker)
        return future

    def close(self) -> None:
        """End the thread, after all that was asked for, and leave its groups."""
        with self._lock:
            self._closed = True
            self._arrived.put(None)
        self._thread.join()
        while self.groups:
            self._rank.leave_group(self.groups.popitem()[1])
        control, self._control = self._control, None
        if control is not None:
            self._rank.leave_group(control)

    def _serve(self) -> None:
        import torch

        if self._rank.backend == "nccl":
            torch.cuda.set_device(torch.device(self._rank.device))
        try:
            while (worker := self._next()) is not None:
                self._launch(worker)
            self._end(_was_closed())  # rank 0 may have closed before a worker here asked
        except BaseException as error:
            self._end(error)

    def _end(self, error: BaseException) -> None:
        with self._lock:  # nobody asks in vain
            self._error = error
            for requests in self._pending.values():
                while not requests.empty():
                    requests.get()[1].set_exception(error)

    def _next(self) -> str | None:
        """Whose collective is to be started; None at the end."""
        if not self._central:
            return self._arrived.get()
        import torch
        import torch.distributed as dist

        turn = torch.full((1,), _NOTHING_YET)
        while int(turn) == _NOTHING_YET:
            if self._rank.index == 0:
                turn[0] = self._turn()
            dist.broadcast(turn, 0, group=self._control)
        return None if int(turn) == _END else self.workers[int(turn)]

    def _turn(self) -> int:
        """On rank 0, what to announce. The others wait for it in a collective, which does not wait for ever."""
        try:
            worker = self._arrived.get(timeout=self._rank.timeout_s / 3)
        except queue.Empty:
            return _NOTHING_YET
        return _END if worker is None else self.workers.index(worker)

    def _launch(self, worker: str) -> None:
        try:  # a follower's worker may still be on its way
            launch, future = self._pending[worker].get(timeout=self._timeout_s)
        except queue.Empty:
            raise CollectiveTimeout(
                f"the {worker} did not ask for its collective in {self._timeout_s:g} s"
            ) from None
        self.launched.append(worker)
        try:
            work, until = launch(self.groups[worker]), time.monotonic() + self._timeout_s
            while not work.is_completed():
                if time.monotonic() > until:
                    self.stuck = worker
                    raise CollectiveTimeout(f"the {worker}'s collective did not end in {self._timeout_s:g} s")
                time.sleep(_POLL_S)
            work.wait()  # raises what went wrong
        except BaseException as error:
            future.set_exception(error)
            raise
        future.set_result(None)


def _was_closed() -> RuntimeError:
    return RuntimeError("the communication thread was closed")


@dataclass(frozen=True)
class Wait:
    """``rank`` is in the collective of ``worker`` and waits for the ranks ``missing`` from it."""

    rank: int
    worker: str
    missing: tuple[int, ...]


@dataclass(frozen=True)
class Report:
    """What :func:`demo` saw.

    Attributes:
        order: ``"central"`` or ``"arrival"``.
        launched: by rank, the workers in the order in which their collectives were started.
        waits: who waits for whom; empty when all collectives ended.
    """

    order: str
    launched: tuple[tuple[str, ...], ...]
    waits: tuple[Wait, ...]

    @property
    def passed(self) -> bool:
        """Whether all collectives ended."""
        return not self.waits

    def cycle(self) -> tuple[int, ...]:
        """Ranks each of which waits for the next, and the last for the first; empty when there is no such ring."""
        waits_for = {wait.rank: wait.missing[0] for wait in self.waits if wait.missing}
        for start in waits_for:
            path = [start]
            while (after := waits_for.get(path[-1])) is not None and after not in path:
                path.append(after)
            if after is not None:
                return tuple(path[path.index(after) :])
        return ()

    def __str__(self) -> str:
        lines = [f"rank {i} started {', '.join(names)}" for i, names in enumerate(self.launched)]
        if self.passed:
            return "\n".join([f"order={self.order!r}: all collectives ended", *lines])
        lines += [
            f"rank {wait.rank} waits in the {wait.worker}'s collective for rank {', '.join(map(str, wait.missing))}"
            for wait in self.waits
        ]
        ring = self.cycle()
        lines += [f"a deadlock: {' -> '.join(map(str, [*ring, ring[0]]))}"] if ring else []
        return "\n".join([f"order={self.order!r}: stuck", *lines])


def demo(
    order: str = "central",
    *,
    ranks: int | Ranks = 2,
    device: str = "cpu",
    rounds: int = 3,
    timeout_s: float = 2.0,
) -> Report:
    """Run sampler and loader on ranks where they arrive in opposite orders, with or without central coordination.

    Args:
        order: ``"central"`` passes; ``"arrival"`` deadlocks, is found after ``timeout_s`` and reported.
        ranks: 2 or more processes to start for this, or warm Gloo :class:`~.ranks.run.Ranks` (a deadlock spoils two of
            their groups, which nobody else uses).
        device: where processes are started: ``"auto"``, ``"cpu"``, ``"cuda"``. On GPUs stuck kernels end with their
            processes, which the parent kills.
        rounds: collectives of each worker.
        timeout_s: longest time of one collective in seconds.

    Returns:
        What each rank started, and who waits for whom.

    Raises:
        TypeError: an argument of the wrong kind.
        ValueError: an argument out of range; ``ranks`` are warm ones on GPUs.
        RuntimeError: ``device="cuda"`` with fewer GPUs than ranks.
        RankError: a rank failed in another way.
    """
    checks.choice("order", order, ORDERS)
    checks.choice("device", device, DEVICES)
    checks.whole("rounds", rounds, 1, 10_000)
    seconds = _seconds("timeout_s", timeout_s)
    if isinstance(ranks, Ranks):
        if ranks.backend != "gloo" or ranks.ranks < 2:
            raise ValueError(
                "ranks must be a number, or two or more warm ranks on Gloo: stuck kernels hold a GPU"
            )
        return _report(order, ranks.run(_work, order, rounds, seconds))
    number = checks.whole("ranks", ranks, 2, 64)
    with Ranks(number, device=device, timeout_s=600) as started:
        return _report(order, started.run(_work, order, rounds, seconds))


def _report(order: str, found: list[tuple[list[str], str | None]]) -> Report:
    waits = []
    for rank, (launched, stuck) in enumerate(found):
        if stuck is not None:
            here = launched.count(stuck)
            missing = tuple(i for i, (names, _) in enumerate(found) if names.count(stuck) < here)
            waits.append(Wait(rank, stuck, missing))
    return Report(order, tuple(tuple(launched) for launched, _ in found), tuple(waits))


def _work(rank: Rank, order: str, rounds: int, timeout_s: float) -> tuple[list[str], str | None]:
    """On a rank: two workers, of which the sampler comes first on even ranks and the loader on odd ones."""
    import torch
    import torch.distributed as dist

    thread = CommunicationThread(rank, order=order, timeout_s=timeout_s)
    for group in thread.groups.values():  # what a first collective sets up would wait for peers by itself
        dist.all_reduce(torch.zeros(1, device=rank.device), group=group)
    rank.barrier()
    first = WORKERS[rank.index % 2]
    came, followed = ([threading.Event() for _ in range(rounds)] for _ in range(2))

    def work(name: str) -> None:
        x = torch.ones(1, device=rank.device)
        try:
            for index in range(rounds):
                # Neither runs ahead by a round: the order told to a rank would be one in which its workers cannot ask.
                if name != first:
                    came[index].wait()
                elif index:
                    followed[index - 1].wait()
                future = thread.submit(name, lambda group: dist.all_reduce(x, group=group, async_op=True))
                (came if name == first else followed)[index].set()
                future.result()
        except CollectiveTimeout:
            pass
        finally:
            for event in (*came, *followed):
                event.set()

    workers = [threading.Thread(target=work, args=(name,), daemon=True, name=name) for name in WORKERS]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if thread.stuck is None:
        thread.close()
    return thread.launched, thread.stuck
