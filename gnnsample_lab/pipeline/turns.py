"""One order of collectives on all ranks of a host: that of rank 0 (DSP, section 5: centralised coordination).

Workers of a rank have collectives of their own. What a collective takes of a GPU it gives back when it ends, and it
ends when all ranks have started it; ranks that start two in different orders can wait for each other for ever. Here
rank 0 starts them as its workers ask, and writes whose turn it was into memory that the ranks share; the others follow.

Nobody waits for ever, however many samplers and loaders a rank has. Each has a process group of its own, and every
n-th mini-batch, the same on all ranks. An item enters a queue when the one ``capacity`` places before it has left, and
leaves behind its predecessor. So what a worker waits for on its rank is a step of an earlier mini-batch, or an earlier
step of the same one; which step that is does not depend on who was quick, and once it is done it stays done. (If
whoever came first took the room, a queue could be full of other mini-batches than on rank 0, and wait for one whose
turn comes later.) What rank 0 had done when it started a collective is then enough for any rank to get there, and the
collectives among it are those that rank 0 started before; whatever else a rank has done takes nothing away. So the next
collective of rank 0's order can always be started.

How many turns a mini-batch takes must be the same on all ranks. With ``csp-fixed`` it is: a replay of its CUDA graph is
one, and ranks know together that a message overflowed, and then sample and capture again, each collective in a turn.

Without coordination there is no such order. On CPUs workers then wait for earlier steps of their rank, and for the same
step of other ranks, and no circle of waits can come of that. On GPUs one can: while a kernel waits for its peers the
driver may hold up what other workers ask of the GPU, memory for example, and with it the collective that these peers
wait for. So ``lab.train`` coordinates workers of GPUs always.

A lock that a worker holds while it waits for other ranks would be one more wait, for whoever came first. Workers have
locks of their own, but for samplers on GPUs, whose calls all take the library's lock: those of a rank therefore sample
in the order of mini-batches (``Stages.sample_in_order``), and so wait for earlier steps alone.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from gnnsample_lab.device.polling import comes
from gnnsample_lab.distributed.sampling.exchange import Exchange
from gnnsample_lab.distributed.shared_memory import shared_memory

from .queues import Stopped, worker_name

_RING = 4096
_SLEEP_S = 20e-6
_STARTS = ("all_to_all_tensors", "_reduced", "swap", "swap_evenly", "reduce_max", "post_messages", "start")
"""Methods by which an exchange starts a collective, or by one launch several."""


class Turns:
    """Whose collective is started next; all ranks make it together.

    Args:
        rank: the rank; all ranks are on one host.
        workers: samplers, and loaders; with several they are "sampler 1", "loader 1", "sampler 2" and so on. There is
            one "trainer".

    Attributes:
        started: how many collectives this rank has started.

    Raises:
        RuntimeError: the ranks share no memory.
    """

    def __init__(self, rank: Any, workers: int = 1) -> None:
        numbered = itertools.product(range(workers), ("sampler", "loader"))
        self._workers = [*(worker_name(kind, i, workers) for i, kind in numbered), "trainer"]
        every = list(range(rank.world_size))
        exchange = Exchange(rank, rank.group, every, [0] * rank.world_size)
        # A word for each turn, in a ring, and how far each rank is.
        memory = None
        if rank.local_size == rank.world_size:
            memory = shared_memory(exchange, 8 * (_RING + rank.world_size))
        if memory is None:
            raise RuntimeError("coordinated=True needs ranks that share memory of one host")
        words = memory.view(np.int64)
        self._ring, self._far = words[:_RING], words[_RING : _RING + rank.world_size]
        self._index, self._timeout_s = rank.index, rank.timeout_s
        self._lock = threading.Lock()
        self._stopped: BaseException | None = None
        self.started = 0

    @contextlib.contextmanager
    def turn(self, worker: str) -> Iterator[None]:
        """Start a collective of ``worker`` in the block, when it is its turn.

        Raises:
            Stopped, or what another worker raised: the pipeline is being taken down.
            RuntimeError: the turn did not come in time.
        """
        me, size = self._workers.index(worker), len(self._workers)
        if self._index == 0:
            with self._lock:
                at = self.started
                self._wait(lambda: at - int(self._far.min()) < _RING, worker)
                self._ring[at % _RING] = (at + 1) * size + me
                try:
                    yield
                finally:
                    self._next()
            return
        # Other workers of this rank move `started` on.
        self._wait(
            lambda: comes(self._ring, self.started % _RING, (self.started + 1) * size + me, 0.0), worker
        )
        try:
            yield
        finally:
            self._next()

    def stop(self, error: BaseException | None = None) -> None:
        """Let go of all that wait: the run has failed, with ``error``, which those then raise."""
        self._stopped = self._stopped or error or Stopped()

    def coordinate(self, exchange: Any, worker: str) -> None:
        """From now on collectives of an exchange are started in turns of ``worker``."""
        for name in _STARTS:
            setattr(exchange, name, self._in_turn(getattr(exchange, name), worker))

    def _in_turn(self, start: Any, worker: str) -> Any:
        @functools.wraps(start)
        def started(*args: Any, **options: Any) -> Any:
            with self.turn(worker):
                return start(*args, **options)

        return started

    def _next(self) -> None:
        self.started += 1
        self._far[self._index] = self.started

    def _wait(self, until: Any, worker: str) -> None:
        limit = time.monotonic() + self._timeout_s
        while not until():
            if self._stopped is not None:
                raise self._stopped
            if time.monotonic() > limit:
                raise RuntimeError(f"the turn of this rank's {worker} did not come in {self._timeout_s:g} s")
            time.sleep(_SLEEP_S)
