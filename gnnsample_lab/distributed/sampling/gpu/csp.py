"""``pull``, ``csp``, ``csp-async`` and ``csp-fixed`` on GPU ranks: the steps of :mod:`.csp_core` over NCCL.

CuPy's arrays and torch's tensors share their memory, and both libraries work on one stream.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from gnnsample_lab.device import runtime, streams
from gnnsample_lab.minibatch.types import MiniBatch

from ..engines import Setup
from ..exchange import Exchange
from .csp_core import Core, DevicePart, Moved, Reduce, Steps, Swap
from .csp_fixed import FixedCore
from .csp_kernels import reply_bytes


class CspEngine:
    """One of the methods for one rank.

    Attributes:
        core: buffers and steps.
        fixed: capacities and the CUDA graph of ``"csp-fixed"``; None for other methods.
    """

    def __init__(self, setup: Setup) -> None:
        layout, part = setup.layout, setup.layout.part
        self.exchange, self.spec, self.method, self.graph = setup.exchange, setup.spec, setup.method, part
        degree = int(np.diff(part.indptr).max(initial=0))
        amount = 0
        if setup.spec.weighted:
            amount = int(np.diff(np.asarray(part.prefix)).max(initial=0))
        most_degree, most_amount = self.exchange.max("flags", np.array([degree, amount]))
        edges = int(self.exchange.sum("flags", np.array([part.num_edges]))[0])
        device_part = DevicePart(part, layout.partition, edges, int(most_degree))
        self.core = Core(device_part, setup.spec, setup.scratch_bytes)
        self.core.wide_amounts = int(most_amount) >= 2**32
        self.fixed: FixedCore | None = None
        if setup.method == "csp-fixed":
            # All ranks have one bound, so that they find together that messages exceed it.
            limit = -int(self.exchange.max("flags", np.array([-self.core.scratch_limit]))[0])
            self.fixed = FixedCore(self.core, limit, lambda values: self.exchange.max("flags", values))
        self._steps = {"pull": self.core.pull, "csp-async": self.core.one_by_one}.get(
            setup.method, self.core.exact
        )

    def sample_many(self, seeds: list[np.ndarray], first_batch_id: int) -> list[MiniBatch]:
        with runtime.lock, streams.call(), one_stream():
            return [self._sample(each, first_batch_id + i) for i, each in enumerate(seeds)]

    def sample(self, seeds: np.ndarray, batch_id: int) -> MiniBatch:
        return self.sample_many([seeds], batch_id)[0]

    def _sample(self, seeds: np.ndarray, batch_id: int) -> MiniBatch:
        self.core.turns.take()
        fixed, batch = self.fixed, None
        if fixed is not None and fixed.capacities is not None:
            ws = fixed.prepare(seeds, batch_id)
            fixed.replay(self._drive, ws, lambda: fixed.prepare(seeds, batch_id))
            batch = fixed.result(ws, seeds, batch_id, self.graph)
            self._count_fixed(fixed, is_kept=batch is not None)
        if batch is None:
            batch = self._drive(self._steps(seeds, batch_id, self.graph))
            self._count(self.core.moved)
            if fixed is not None:
                fixed.measure(self.core.moved.asked)
        self.core.turns.leave()
        found: MiniBatch = batch
        return found

    def _drive(self, steps: Steps) -> Any:
        return drive(steps, self.exchange)

    def close(self) -> None:
        if self.fixed is not None:
            self.fixed.close()

    # ---- traffic ----------------------------------------------------------------------------------------------

    def _count(self, moved: Moved) -> None:
        """Count a mini-batch with exact messages."""
        weighted, ids = self.spec.weighted, self.core.id_bytes
        pick_bytes, pairs = ids + 4 * weighted, self.method == "csp-async"
        for hop, stride in enumerate(self.core.strides):
            asked, served = moved.asked[hop], moved.served[hop]
            sizes = np.full(self.core.parts, 8)
            self._both("sizes", sizes, sizes)
            self._both("ids", asked * ids, served * ids)
            messages = 1 + (asked > 0)
            if self.method == "pull":
                entry_bytes = ids + weighted * (8 if self.core.wide_amounts else 4)
                self._both("records", served * 4, asked * 4)
                self._both("lists", moved.lists_out[hop] * entry_bytes, moved.lists_in[hop] * entry_bytes)
                messages += (served > 0) + (moved.lists_out[hop] > 0) * (1 + weighted)
            else:
                self._both("records", served * 4, asked * 4)
                self._both("picks", moved.given[hop] * pick_bytes, moved.taken[hop] * pick_bytes)
                if moved.ragged[hop]:
                    messages += (served > 0) + (moved.given[hop] > 0) * (1 + weighted)
                else:
                    self._both(
                        "padding",
                        self._replies(served, stride) - served * 4 - moved.given[hop] * pick_bytes,
                        self._replies(asked, stride) - asked * 4 - moved.taken[hop] * pick_bytes,
                    )
                    messages += served > 0
            self._messages(messages, 0 if pairs and stride else 4 if self.method == "pull" else 3)
            if moved.ragged[hop]:
                self.exchange.traffic.collectives += 1 + weighted
        self._count_ideal(moved)

    def _count_fixed(self, fixed: FixedCore, is_kept: bool) -> None:
        """Count a mini-batch with fixed messages; all of one that overflowed is padding."""
        core, moved = self.core, self.core.moved
        weighted, ids = self.spec.weighted, core.id_bytes
        pick_bytes = ids + 4 * weighted
        for hop, stride in enumerate(core.strides):
            to, source = fixed.rows[0][hop], fixed.rows[1][hop]
            asked, served, given, taken = (
                (moved.asked[hop], moved.served[hop], moved.given[hop], moved.taken[hop])
                if is_kept
                else (np.zeros_like(to),) * 4
            )
            self._both("ids", asked * ids, served * ids)
            self._both("records", served * 4, asked * 4)
            self._both("picks", given * pick_bytes, taken * pick_bytes)
            used_out = asked * ids + served * 4 + given * pick_bytes
            used_in = served * ids + asked * 4 + taken * pick_bytes
            self._both(
                "padding",
                to * ids + self._replies(source, stride) - used_out,
                source * ids + self._replies(to, stride) - used_in,
            )
            self._messages(np.full(core.parts, 2), 2)
        flag = np.full(core.parts, 4)
        self._both("flags", flag, flag)
        self._messages(np.ones(core.parts, dtype=np.int64), 1)
        if is_kept:
            self._count_ideal(moved)

    def _replies(self, rows: np.ndarray, stride: int) -> np.ndarray:
        found = [reply_bytes(n, stride, self.core.id_bytes, self.spec.weighted) for n in rows.tolist()]
        return np.array(found, dtype=np.int64)

    def _both(self, kind: str, sent: np.ndarray, received: np.ndarray) -> None:
        traffic, members = self.exchange.traffic, self.exchange.members
        traffic.send(kind, members, sent, is_message=False)
        traffic.receive(kind, members, received)

    def _messages(self, messages: np.ndarray, collectives: int) -> None:
        self.exchange.traffic.messages(self.exchange.members, messages)
        self.exchange.traffic.collectives += collectives

    def _count_ideal(self, moved: Moved) -> None:
        traffic, taken = self.exchange.traffic, moved.taken.sum(0) * self.core.id_bytes
        traffic.ideal += int(taken.sum())
        traffic.ideal_remote += int(taken.sum() - taken[self.core.me])


def drive(steps: Steps, exchange: Exchange) -> Any:
    """Run a rank's steps; where they meet those of other ranks, NCCL moves the bytes."""
    alone = exchange.size == 1
    try:
        while True:
            meeting = next(steps)
            if not alone:
                _meet(meeting, exchange)
    except StopIteration as stop:
        return stop.value


def _meet(meeting: Swap | Reduce, exchange: Exchange) -> None:
    if isinstance(meeting, Reduce):
        exchange.reduce_max(meeting.values.tensor[: meeting.entries])
        return
    given, out = meeting.given.tensor, meeting.out.tensor
    if meeting.give is None or meeting.take is None:
        exchange.swap_evenly(out[: exchange.size], given[: exchange.size])
    elif meeting.pair is not None:
        to, source = meeting.pair
        (begin, end), (at, until) = meeting.give[to], meeting.take[source]
        exchange.swap_pair(to, given[begin:end], source, out[at:until])
    else:
        exchange.swap([out[a:b] for a, b in meeting.take], [given[a:b] for a, b in meeting.give])


@contextlib.contextmanager
def one_stream() -> Iterator[None]:
    """Make CuPy's current stream torch's, so that collectives wait for kernels and kernels for collectives."""
    import cupy
    import torch

    address = int(cupy.cuda.get_current_stream().ptr)
    if torch.cuda.current_stream().cuda_stream == address:
        yield
        return
    with torch.cuda.stream(torch.cuda.ExternalStream(address)):
        yield


def engine(setup: Setup) -> CspEngine:
    """The engine of ``setup.method``; collective among the ranks of its exchange."""
    return CspEngine(setup)
