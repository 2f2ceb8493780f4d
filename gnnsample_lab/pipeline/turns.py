"""One order of collectives on all ranks of a host: that of rank 0 (DSP, section 5: centralised coordination).

Workers of a rank have collectives of their own. What a collective takes of a GPU it gives back when it ends, and it
ends when all ranks have started it; ranks that start two in different orders can wait for each other for ever. Here
rank 0 starts them as its workers ask, and writes whose turn it was into memory that the ranks share; the others follow.

Each worker's collectives come in the order of mini-batches, and all ranks have queues of the same capacity. So a
follower can always get as far as rank 0 was when it started a collective, without any that comes later: nobody waits
for ever. The same holds for workers with process groups of their own and no coordination, as long as the GPU has room
for the kernels of all of them at once; that is what is done without it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from gnnsample_lab.distributed.sampling.exchange import Exchange
from gnnsample_lab.distributed.shared_memory import shared_memory

from .queues import Stopped

WORKERS = ("sampler", "loader", "trainer")
_RING = 4096
_SLEEP_S = 20e-6
_STARTS = ("all_to_all_tensors", "_reduced", "swap", "swap_evenly", "reduce_max", "post_messages")
"""Methods by which an exchange starts a collective."""


class Turns:
    """Whose collective is started next; all ranks make it together.

    Args:
        rank: the rank; all ranks are on one host.

    Attributes:
        started: how many collectives this rank has started.

    Raises:
        RuntimeError: the ranks share no memory.
    """

    def __init__(self, rank: Any) -> None:
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
        me = WORKERS.index(worker)
        if self._index == 0:
            with self._lock:
                at = self.started
                self._wait(lambda: at - int(self._far.min()) < _RING, worker)
                self._ring[at % _RING] = (at + 1) * len(WORKERS) + me
                try:
                    yield
                finally:
                    self._next()
            return
        self._wait(lambda: self._ring[self.started % _RING] == (self.started + 1) * len(WORKERS) + me, worker)
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
