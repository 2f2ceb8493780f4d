"""``pull``, ``csp``, ``csp-async`` and ``csp-fixed`` on GPU ranks: steps over NCCL.

Steps are those of :mod:`.csp_core`, :mod:`.csp_pull` and :mod:`.csp_fixed`.

Exchanges of a hop, as published (DSP, section 4.1), between which ranks wait for each other:

- ``csp``: sizes, ids, replies. Sizes go through the memory of the host where all ranks are on one, and over NCCL
  elsewhere; ids and replies go over NCCL, in messages of exactly their size.
- ``csp-async``: the same, in messages between two ranks.
- ``csp-fixed``: ids, replies; and one bit for the whole mini-batch.
- ``pull``: sizes, ids, lengths, lists, and with weights those.

Rows of any length (all neighbours of vertices of high degree) add an exchange of their lengths, and of slots with
weights. NCCL is called without torch around it where that is possible (:mod:`..nccl`); in a capture torch calls it.

CuPy's arrays and torch's tensors share their memory, and both libraries work on one stream.

Lists that exceed ``topology_bytes`` lie in page-locked host memory, where their owner's draws read them (DSP, sections
3.2 and 5). Kernels keep no account of that: with ``count_reads`` the host draws from those lists once more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnsample_lab.device import runtime, streams
from gnnsample_lab.minibatch.types import MiniBatch

from ..cpu.base import draw
from ..engines import Setup
from ..exchange import Exchange
from ..nccl import Message
from ..spill import count_host_reads, spilled_rows
from ..traffic import Traffic
from .csp_core import Core, DevicePart, Moved, Reduce, Steps, Swap, Told
from .csp_fixed import FixedCore
from .csp_kernels import reply_bytes
from .csp_pull import PullCore

_WAITING_CALLS = 64
"""Calls that are counted together, unless somebody asks earlier."""


@dataclass
class _Call:
    """What a call's mini-batches moved, with exact and with fixed messages."""

    traffic: Traffic
    exact: list[Moved] = field(default_factory=list)
    fixed: list[Moved | None] = field(default_factory=list)


class CspEngine:
    """One of the methods for one rank.

    Attributes:
        core: buffers and steps.
        fixed: capacities and the CUDA graph of ``"csp-fixed"``; None for other methods.
        spilled: own lists in host memory, by row, ``bool[n]``; None without any.
        topology_bytes: where some are, bytes of the part on this GPU; else empty.
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
        if setup.collectives == "auto":
            with one_stream():
                self.exchange.connect()
        self.setup, self._amounts = setup, int(most_amount)
        self.spilled: np.ndarray | None = None

        def placed(spilled: np.ndarray | None) -> DevicePart:
            return DevicePart(part, layout.partition, edges, int(most_degree), spilled, setup.spec.weighted)

        if setup.beside is None:
            self.spilled = spilled_rows(setup, self._drawing_from(placed))
            device_part = placed(self.spilled)
        else:  # kernels read its part and write nothing there
            self.spilled, device_part = setup.beside.spilled, setup.beside.core.part
        self.topology_bytes = {} if self.spilled is None else {"part": device_part.nbytes}
        self.core = self._core(device_part)
        self.core.notes_asked = setup.count_reads and self.spilled is not None
        self.fixed: FixedCore | None = None
        if setup.method == "csp-fixed":
            # All ranks have one bound, so that they find together that messages exceed it.
            limit = -int(self.exchange.max("flags", np.array([-self.core.scratch_limit]))[0])
            self.fixed = FixedCore(self.core, limit, lambda values: self.exchange.max("flags", values))
        self._calls: list[_Call] = []  # whose mini-batches are not counted yet
        if setup.method == "pull":
            self._steps = PullCore(self.core).steps
        else:
            self._steps = self.core.one_by_one if setup.method == "csp-async" else self.core.exact

    def _core(self, part: DevicePart) -> Core:
        core = Core(part, self.spec, self.setup.scratch_bytes)
        core.wide_amounts = self._amounts >= 2**32
        core.hosts_tell = self.exchange.mailbox is not None
        return core

    def _drawing_from(
        self, placed: Callable[[np.ndarray | None], DevicePart]
    ) -> Callable[[np.ndarray, int], MiniBatch]:
        """What samples from lists in host memory: before it is known which of them come to the GPUs."""
        made: list[Core] = []

        def draw(seeds: np.ndarray, batch_id: int) -> MiniBatch:
            with runtime.lock, streams.call(), one_stream():
                if not made:
                    made.append(self._core(placed(np.ones(len(self.graph.vertices), dtype=bool))))
                made[0].turns.take()
                batch: MiniBatch = drive(made[0].exact(seeds, batch_id, self.graph), self.exchange)
                made[0].turns.leave()
                return batch

        return draw

    def sample_many(self, seeds: list[np.ndarray], first_batch_id: int) -> list[MiniBatch]:
        if len(self._calls) >= _WAITING_CALLS:
            self.settle()
        with runtime.lock, streams.call():
            self._calls.append(_Call(self.exchange.traffic))
            with contextlib.nullcontext() if self._is_quick else one_stream():
                return [self._sample(each, first_batch_id + i) for i, each in enumerate(seeds)]

    @property
    def _is_quick(self) -> bool:
        """Whether torch has no part in a call: messages go by address, and sizes through memory of the host."""
        exchange = self.exchange
        quick = exchange.nccl is not None and self.core.hosts_tell
        return self.fixed is None and (quick or exchange.size == 1)

    def sample(self, seeds: np.ndarray, batch_id: int) -> MiniBatch:
        return self.sample_many([seeds], batch_id)[0]

    def _sample(self, seeds: np.ndarray, batch_id: int) -> MiniBatch:
        self.core.turns.take()
        fixed, batch, call = self.fixed, None, self._calls[-1]
        if fixed is not None and fixed.capacities is not None:
            self.core.moved = Moved(self.spec.num_hops, self.core.parts)
            ws = fixed.prepare(seeds, batch_id)
            fixed.replay(
                lambda steps: drive(steps, self.exchange), ws, lambda: fixed.prepare(seeds, batch_id),
                self.exchange.start,
            )  # fmt: skip
            batch = fixed.result(ws, seeds, batch_id, self.graph)
            self._count_host(call.traffic, batch_id)
            call.fixed.append(None if batch is None else self.core.moved)
        if batch is None:
            batch = drive(self._steps(seeds, batch_id, self.graph), self.exchange, by_address=True)
            call.exact.append(self.core.moved)
            self._count_host(call.traffic, batch_id)
            if fixed is not None:
                self._settle_until(call)  # before capacities change
                self._calls = [call]
                fixed.measure(self.core.moved.asked)
        self.core.turns.leave()
        found: MiniBatch = batch
        return found

    def settle(self) -> None:
        """Count what calls moved: those that nobody asked about go to the oldest one's traffic together."""
        with runtime.lock:  # another thread may be sampling
            if self._calls:
                self._settle_until(self._calls[-1])
            self._calls = []

    def _settle_until(self, last: _Call) -> None:
        """Count all calls; the last one by itself."""
        earlier = [call for call in self._calls if call is not last]
        for calls in (earlier, [last]):
            if not calls:
                continue
            traffic = calls[0].traffic
            if self.fixed is not None:
                self._count_fixed(traffic, self.fixed, [m for call in calls for m in call.fixed])
            self._count(traffic, [m for call in calls for m in call.exact])
            for call in calls:
                call.exact, call.fixed = [], []

    def close(self) -> None:
        if self.fixed is not None:
            self.fixed.close()
        self.core.close()

    # ---- traffic ----------------------------------------------------------------------------------------------

    def _count_host(self, traffic: Traffic, batch_id: int) -> None:
        """Count what the last mini-batch's draws read of lists in host memory."""
        if self.spilled is None:
            return
        if not self.core.notes_asked:
            traffic.label = "reads of host memory were not counted: count_reads=False"
            return
        layout, part = self.setup.layout, self.setup.layout.part
        weights = part.weights if self.spec.weighted else None
        for hop in range(self.spec.num_hops):
            asked = self.core.asked(hop)
            rows = layout.rows(asked, part.rank)
            asked, rows = asked[self.spilled[rows]], rows[self.spilled[rows]]
            answer = draw(asked, rows, part.indptr, part.indices, weights, self.spec, batch_id, hop)
            count_host_reads(self.setup, self.spilled, rows, answer, hop, traffic)

    def _count(self, traffic: Traffic, batches: list[Moved]) -> None:
        """Count mini-batches with exact messages; many at once, because counting takes the host's time."""
        if not batches:
            return
        weighted, ids, hops = self.spec.weighted, self.core.id_bytes, self.spec.num_hops
        each = Moved.stacked(batches)
        asked, served = each["asked"], each["served"]
        sizes = np.full(self.core.parts, 8 * hops * len(batches))
        self._both(traffic, "sizes", sizes, sizes)
        self._both(traffic, "ids", asked * ids, served * ids)
        self._both(traffic, "records", served * 4, asked * 4)
        messages = 1 + (asked > 0) + (served > 0)
        if self.method == "pull":
            entry_bytes = ids + weighted * (8 if self.core.wide_amounts else 4)
            self._both(traffic, "lists", each["lists_out"] * entry_bytes, each["lists_in"] * entry_bytes)
            messages += (each["lists_out"] > 0) * (1 + weighted)
            collectives = np.full(each["ragged"].shape, 4 + weighted)
        else:
            pick_bytes, ragged = ids + 4 * weighted, each["ragged"]
            self._both(traffic, "picks", each["given"] * pick_bytes, each["taken"] * pick_bytes)
            used_out, used_in = (
                served * 4 + each["given"] * pick_bytes,
                asked * 4 + each["taken"] * pick_bytes,
            )
            self._both(
                traffic,
                "padding",
                np.where(ragged, 0, self._replies(served) - used_out),
                np.where(ragged, 0, self._replies(asked) - used_in),
            )
            messages += ragged * (each["given"] > 0) * (1 + weighted)
            together = 0 if self.method == "csp-async" else 3
            collectives = np.where(ragged, 4 + weighted, together)
        self._messages(traffic, messages, int(collectives.sum()))
        self._count_ideal(traffic, each["taken"])

    def _count_fixed(self, traffic: Traffic, fixed: FixedCore, batches: list[Moved | None]) -> None:
        """Count mini-batches with fixed messages. None is one that overflowed: all of it is padding."""
        if not batches:
            return
        core, weighted, ids = self.core, self.spec.weighted, self.core.id_bytes
        pick_bytes, (to, source), count = ids + 4 * weighted, fixed.rows, len(batches)
        nothing = Moved(self.spec.num_hops, core.parts)
        kept = [nothing if m is None else m for m in batches]
        asked, served, given, taken = (
            sum(getattr(m, name) for m in kept) for name in ("asked", "served", "given", "taken")
        )
        self._both(traffic, "ids", asked * ids, served * ids)
        self._both(traffic, "records", served * 4, asked * 4)
        self._both(traffic, "picks", given * pick_bytes, taken * pick_bytes)
        used_out = asked * ids + served * 4 + given * pick_bytes
        used_in = served * ids + asked * 4 + taken * pick_bytes
        padding_out = count * (to * ids + self._replies(source)) - used_out
        padding_in = count * (source * ids + self._replies(to)) - used_in
        self._both(traffic, "padding", padding_out, padding_in)
        flag = np.full(core.parts, 4 * count)
        self._both(traffic, "flags", flag, flag)
        meetings = 2 * self.spec.num_hops + 1
        self._messages(traffic, np.full((1, core.parts), meetings * count), meetings * count)
        self._count_ideal(traffic, taken)

    def _replies(self, rows: np.ndarray) -> np.ndarray:
        """Bytes of replies of fixed stride for so many rows, ``int64[..., hops, P]``."""
        weighted, ids = self.spec.weighted, self.core.id_bytes
        found: np.ndarray = reply_bytes(rows, np.array(self.core.strides)[:, None], ids, weighted)
        return found

    def _both(self, traffic: Traffic, kind: str, sent: np.ndarray, received: np.ndarray) -> None:
        """Count bytes by peer; axes before the last are summed."""
        members = self.exchange.members
        traffic.send(kind, members, _by_peer(sent), is_message=False)
        traffic.receive(kind, members, _by_peer(received))

    def _messages(self, traffic: Traffic, messages: np.ndarray, collectives: int) -> None:
        traffic.messages(self.exchange.members, _by_peer(messages))
        traffic.collectives += collectives

    def _count_ideal(self, traffic: Traffic, taken: np.ndarray) -> None:
        by_peer = _by_peer(taken) * self.core.id_bytes
        traffic.ideal += int(by_peer.sum())
        traffic.ideal_remote += int(by_peer.sum() - by_peer[self.core.me])


def _by_peer(amounts: np.ndarray) -> np.ndarray:
    found: np.ndarray = amounts.reshape(-1, amounts.shape[-1]).sum(0)
    return found


def drive(steps: Steps, exchange: Exchange, by_address: bool = False) -> Any:
    """Run a rank's steps; where they meet those of other ranks, NCCL moves the bytes.

    Args:
        steps: of :class:`Core` or :class:`FixedCore`.
        exchange: of this rank.
        by_address: call NCCL without torch where that is possible; not in a capture.
    """
    alone = exchange.size == 1
    stream = _current_address() if by_address and exchange.nccl is not None else None
    try:
        while True:
            meeting = next(steps)
            if alone:
                continue
            if isinstance(meeting, Told):
                _tell(meeting, exchange)
            elif stream is not None and isinstance(meeting, Swap):
                _call_nccl(meeting, exchange, stream)
            else:
                _meet(meeting, exchange)
    except StopIteration as stop:
        return stop.value


def _current_address() -> int:
    import cupy

    return int(cupy.cuda.get_current_stream().ptr)


def _tell(meeting: Told, exchange: Exchange) -> None:
    mailbox = exchange.mailbox
    assert mailbox is not None
    if meeting.counts is not None:
        mailbox.tell(meeting.counts)
    for source in meeting.sources:
        meeting.heard[source] = mailbox.hear(source)


def _call_nccl(meeting: Swap, exchange: Exchange, stream: int) -> None:
    """The swap as messages by address; those that are empty do not travel, and a rank sends itself none."""
    give, take, width, me = meeting.give, meeting.take, meeting.given.dtype.itemsize, exchange.index
    if give is None or take is None:
        give = take = [(p, p + 1) for p in range(exchange.size)]
    to, source = (None, None) if meeting.pair is None else meeting.pair
    exchange.post_messages(
        _messages(give, meeting.given.ptr, width, me, to),
        _messages(take, meeting.out.ptr, width, me, source),
        stream,
    )


def _messages(
    ranges: Sequence[tuple[int, int]], address: int, width: int, me: int, only: int | None
) -> list[Message]:
    return [
        (p, address + begin * width, (end - begin) * width)
        for p, (begin, end) in enumerate(ranges)
        if end > begin and p != me and (only is None or p == only)
    ]


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
    import torch

    address = _current_address()
    if torch.cuda.current_stream().cuda_stream == address:
        yield
        return
    with torch.cuda.stream(torch.cuda.ExternalStream(address)):
        yield


def engine(setup: Setup) -> CspEngine:
    """The engine of ``setup.method``; collective among the ranks of its exchange."""
    return CspEngine(setup)
