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
        self._exact: list[Moved] = []  # what mini-batches of this call moved, not counted yet
        self._fixed: list[Moved | None] = []
        self._steps = {"pull": self.core.pull, "csp-async": self.core.one_by_one}.get(
            setup.method, self.core.exact
        )

    def sample_many(self, seeds: list[np.ndarray], first_batch_id: int) -> list[MiniBatch]:
        with runtime.lock, streams.call(), one_stream():
            found = [self._sample(each, first_batch_id + i) for i, each in enumerate(seeds)]
            self._count_waiting()
            return found

    def sample(self, seeds: np.ndarray, batch_id: int) -> MiniBatch:
        return self.sample_many([seeds], batch_id)[0]

    def _sample(self, seeds: np.ndarray, batch_id: int) -> MiniBatch:
        self.core.turns.take()
        fixed, batch = self.fixed, None
        if fixed is not None and fixed.capacities is not None:
            self.core.moved = Moved.nothing(self.spec.num_hops, self.core.parts)
            ws = fixed.prepare(seeds, batch_id)
            fixed.replay(self._drive, ws, lambda: fixed.prepare(seeds, batch_id))
            batch = fixed.result(ws, seeds, batch_id, self.graph)
            self._fixed.append(None if batch is None else self.core.moved)
        if batch is None:
            batch = self._drive(self._steps(seeds, batch_id, self.graph))
            self._exact.append(self.core.moved)
            if fixed is not None:
                self._count_waiting()  # before capacities change
                fixed.measure(self.core.moved.asked)
        self.core.turns.leave()
        found: MiniBatch = batch
        return found

    def _count_waiting(self) -> None:
        if self.fixed is not None:
            self._count_fixed(self.fixed, self._fixed)
        self._count(self._exact)
        self._exact, self._fixed = [], []

    def _drive(self, steps: Steps) -> Any:
        return drive(steps, self.exchange)

    def close(self) -> None:
        if self.fixed is not None:
            self.fixed.close()

    # ---- traffic ----------------------------------------------------------------------------------------------

    def _count(self, batches: list[Moved]) -> None:
        """Count mini-batches with exact messages; all of a call at once, because counting takes the host's time."""
        if not batches:
            return
        weighted, ids, hops = self.spec.weighted, self.core.id_bytes, self.spec.num_hops
        each = {name: np.stack([getattr(m, name) for m in batches]) for name in vars(batches[0])}
        asked, served = each["asked"], each["served"]
        sizes = np.full(self.core.parts, 8 * hops * len(batches))
        self._both("sizes", sizes, sizes)
        self._both("ids", asked * ids, served * ids)
        self._both("records", served * 4, asked * 4)
        messages = 1 + (asked > 0) + (served > 0)
        if self.method == "pull":
            entry_bytes = ids + weighted * (8 if self.core.wide_amounts else 4)
            self._both("lists", each["lists_out"] * entry_bytes, each["lists_in"] * entry_bytes)
            messages += (each["lists_out"] > 0) * (1 + weighted)
            collectives = np.full(each["ragged"].shape, 4 + weighted)
        else:
            pick_bytes, ragged = ids + 4 * weighted, each["ragged"]
            self._both("picks", each["given"] * pick_bytes, each["taken"] * pick_bytes)
            used_out, used_in = (
                served * 4 + each["given"] * pick_bytes,
                asked * 4 + each["taken"] * pick_bytes,
            )
            self._both(
                "padding",
                np.where(ragged, 0, each["replies_out"] - used_out),
                np.where(ragged, 0, each["replies_in"] - used_in),
            )
            messages += ragged * (each["given"] > 0) * (1 + weighted)
            together = 0 if self.method == "csp-async" else 3
            collectives = np.where(ragged, 4 + weighted, together)
        self._messages(messages, int(collectives.sum()))
        self._count_ideal(each["taken"])

    def _count_fixed(self, fixed: FixedCore, batches: list[Moved | None]) -> None:
        """Count mini-batches with fixed messages. None is one that overflowed: all of it is padding."""
        if not batches:
            return
        core, weighted, ids = self.core, self.spec.weighted, self.core.id_bytes
        pick_bytes, (to, source), count = ids + 4 * weighted, fixed.rows, len(batches)
        nothing = Moved.nothing(self.spec.num_hops, core.parts)
        kept = [nothing if m is None else m for m in batches]
        asked, served, given, taken = (
            sum(getattr(m, name) for m in kept) for name in ("asked", "served", "given", "taken")
        )
        self._both("ids", asked * ids, served * ids)
        self._both("records", served * 4, asked * 4)
        self._both("picks", given * pick_bytes, taken * pick_bytes)
        used_out = asked * ids + served * 4 + given * pick_bytes
        used_in = served * ids + asked * 4 + taken * pick_bytes
        padding_out = count * (to * ids + self._replies(source)) - used_out
        padding_in = count * (source * ids + self._replies(to)) - used_in
        self._both("padding", padding_out, padding_in)
        flag = np.full(core.parts, 4 * count)
        self._both("flags", flag, flag)
        meetings = 2 * self.spec.num_hops + 1
        self._messages(np.full((1, core.parts), meetings * count), meetings * count)
        self._count_ideal(taken)

    def _replies(self, rows: np.ndarray) -> np.ndarray:
        """Bytes of replies of fixed stride, ``int64[hops, P]``."""
        weighted, ids = self.spec.weighted, self.core.id_bytes
        found = [
            [reply_bytes(n, stride, ids, weighted) for n in of_hop]
            for of_hop, stride in zip(rows.tolist(), self.core.strides, strict=True)
        ]
        return np.array(found, dtype=np.int64)

    def _both(self, kind: str, sent: np.ndarray, received: np.ndarray) -> None:
        """Count bytes by peer; axes before the last are summed."""
        traffic, members = self.exchange.traffic, self.exchange.members
        traffic.send(kind, members, _by_peer(sent), is_message=False)
        traffic.receive(kind, members, _by_peer(received))

    def _messages(self, messages: np.ndarray, collectives: int) -> None:
        self.exchange.traffic.messages(self.exchange.members, _by_peer(messages))
        self.exchange.traffic.collectives += collectives

    def _count_ideal(self, taken: np.ndarray) -> None:
        traffic, by_peer = self.exchange.traffic, _by_peer(taken) * self.core.id_bytes
        traffic.ideal += int(by_peer.sum())
        traffic.ideal_remote += int(by_peer.sum() - by_peer[self.core.me])


def _by_peer(amounts: np.ndarray) -> np.ndarray:
    found: np.ndarray = amounts.reshape(-1, amounts.shape[-1]).sum(0)
    return found


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
