"""Rows on GPU ranks: over NVLink from peers' memory, by NCCL, and over PCIe from the host at the same time."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import cupy
import numpy as np

from gnnsample_lab.device import kernels, pinned, runtime, streams
from gnnsample_lab.device.capturing import wait_for_device
from gnnsample_lab.distributed.peer_memory import PeerMemory, aligned
from gnnsample_lab.features.caching.gather import GpuExtractor, GpuRows, PeerTable, id_type

from .hostrows import cold_rows
from .parts import PartRows
from .setup import Setup
from .tally import Tally

MAX_PARTS = 64
"""Parts of a host, as in ``places.cu``."""
_BUILD_BYTES = 64 << 20
_THREADS = 256


@functools.cache
def _kernel(name: str, ids: str) -> Any:
    return kernels.load_module("distributed/features/places.cu", {"ID_T": ids}).get_function(name).kernel


def launch(name: str, n: int, args: tuple[Any, ...], ids: str = "int") -> None:
    """A kernel of ``places.cu`` over ``n`` rows, on the current stream."""
    if n:
        blocks = max(1, min(-(-n // _THREADS), 8 * runtime.num_sms()))
        _kernel(name, ids)((blocks,), (_THREADS,), args)


@contextlib.contextmanager
def _on_torch_stream() -> Iterator[None]:
    """Collectives run on torch's current stream: it becomes CuPy's, after the work of CuPy's and before its next."""
    here = cupy.cuda.get_current_stream()
    before = here.record()
    with streams.torch_stream() as there:
        if there.ptr != here.ptr:
            there.wait_event(before)
        yield
        if there.ptr != here.ptr:
            here.wait_event(there.record())


class GpuEngine:
    """The rows of one GPU rank.

    Attributes:
        mine: rows of this rank's cache, ``[rows, F]`` on the GPU.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup, self.placement, self.layout = setup, setup.placement, setup.layout
        self.num_parts = setup.placement.num_parts
        if self.num_parts > MAX_PARTS:
            raise ValueError(f"source must have at most {MAX_PARTS} parts on GPUs (got {self.num_parts})")
        if setup.num_hosts > MAX_PARTS:
            raise ValueError(f"hosts must be at most {MAX_PARTS} on GPUs (got {setup.num_hosts})")
        self._shift = self._narrowed()
        self.parts = PartRows(setup.layout)
        self._extractor = GpuExtractor(setup.row_bytes, setup.knobs)
        self._side, self._is_first = cupy.cuda.Stream(non_blocking=True), True
        self._connect()
        partition, me = self.layout.partition, setup.me
        positions = self.placement.place_of[self.layout.part.vertices]
        self._owned = setup.positions == "owner"
        self._peers: PeerMemory | None = None
        reads_peers = setup.transport == "direct" and self.placement.kind == "partitioned"
        shape = (len(self.placement.cached[me]), setup.num_features)
        self._places: Any = cupy.asarray(positions if self._owned else self.placement.place_of)
        self._new_of = cupy.asarray(partition.new_of.astype(np.int32)) if self._owned else None
        self._boundaries = cupy.asarray(np.asarray(partition.boundaries))
        # Orders of holders: one's own rows behind those of peers, and behind these what no part has.
        peers_first = [*(p for p in range(self.num_parts) if p != me), me]
        self._host_last = cupy.asarray(np.array([*peers_first, self.num_parts, self.num_parts + 1], np.int32))
        self._own_last = self._host_last[: self.num_parts]
        if setup.asks_hosts:
            by_partner = np.append(np.argsort(setup.partners), setup.num_hosts)
            self._hosts_by_partner = cupy.asarray(by_partner.astype(np.int32))
        bases, lists = np.zeros(self.num_parts, np.uint64), np.zeros(self.num_parts, np.uint64)
        if reads_peers:
            begins = [aligned(len(ids) * setup.row_bytes) for ids in self.placement.cached]
            listed = positions.nbytes if self._owned else 0
            self._peers = PeerMemory(self.layout.rank, begins[me] + listed, group=self.layout.exchange.group)
            self.mine = self._peers.array(setup.dtype, shape)
            bases[:] = self._peers.pointers
            lists[:] = [pointer + begin for pointer, begin in zip(self._peers.pointers, begins)]
            if listed:
                target = self._peers.array(np.int32, len(positions), begins[me])
                target[...] = self._places
                self._places = target
        else:
            self.mine = cupy.empty(shape, setup.dtype)
            bases[0 if self.placement.kind == "replicated" else me] = self.mine.data.ptr
        self._fill()
        self._lists = cupy.asarray(lists)
        cold = cold_rows(setup, self.parts)
        self._cold = cold
        # Behind the parts stands the one of other hosts' rows, which is out of reach.
        self._table = PeerTable(cupy.asarray(np.append(bases, np.uint64(0))), self._shift)
        self._cold_bounds = cupy.asarray(self.placement.cold_bounds)
        if cold is not None:
            self._table.host_address, self._table.host_stride = pinned.device_address(cold), setup.row_bytes
        wait_for_device()
        if self._peers is not None:
            self._peers.barrier()

    def _connect(self) -> None:
        """Find ways that are quicker than torch's calls, for those who get messages; all of them call it."""
        setup = self.setup
        with _on_torch_stream():
            if setup.transport != "direct" and setup.placement.kind == "partitioned":
                setup.exchange.connect()
            if setup.asks_hosts:
                setup.world.connect()

    def _narrowed(self) -> int:
        """Bits of a row in a position: one less where a part more stands for other hosts' rows."""
        shift, most = self.placement.shift, max(map(len, self.placement.cached), default=0)
        if not self.setup.asks_hosts:
            return shift
        if most > 1 << (shift - 1):
            raise ValueError(
                f"capacity_bytes must leave at most {1 << (shift - 1)} rows a rank between hosts, so that a position "
                f"of 4 bytes names them (got {most})"
            )
        return shift - 1

    def _fill(self) -> None:
        ids = self.placement.cached[self.setup.me]
        step = max(1, _BUILD_BYTES // self.setup.row_bytes)
        for first in range(0, len(ids), step):
            some = ids[first : first + step]
            rows = np.empty((len(some), self.setup.num_features), self.setup.dtype)
            self.parts.read(some, np.arange(len(some)), rows)
            self.mine[first : first + step].set(rows)

    def another(self, setup: Setup) -> GpuEngine:
        """The same rows with the collectives of ``setup`` and a stream of its own; closed before this one."""
        found = copy.copy(self)
        found.setup, found._side, found._is_first = setup, cupy.cuda.Stream(non_blocking=True), False
        found._connect()
        return found

    @property
    def nbytes(self) -> int:
        return int(self.mine.nbytes + self._places.nbytes)

    # ---- positions --------------------------------------------------------------------------------------------

    def find(self, ids: Any) -> tuple[Any, Any, Any, Any]:
        """Positions, those read in peers' memory, how to go on, and an event behind all that.

        How to go on: the order of reading, and of each row that another host keeps which host and which cold row; None
        where there are no cold rows here, and only one host.
        """
        with streams.leasing() as ready:
            streams.order(ids)
            n, parts = int(ids.size), self.num_parts
            places, read = cupy.empty(n, np.int32), cupy.zeros(parts, np.uint64)
            if self._owned and self._peers is None:
                with _on_torch_stream():
                    self._fetch_places(ids, places)
            else:
                everywhere = np.uint64(0 if self._owned else self._places.data.ptr)
                new_of = np.uint64(0 if self._new_of is None else self._new_of.data.ptr)
                args = (
                    ids, np.uint64(n), everywhere, new_of, self._boundaries, self._lists, np.int32(parts), places, read
                )  # fmt: skip
                launch("find", n, args, id_type(ids))
            order = homes = None
            if self.setup.asks_hosts:
                homes = self._homes(places)
            if self._cold is not None and n:
                order = self._extractor.order_placed(places, len(self._cold))
        return places, read, (order, homes), ready

    def _homes(self, places: Any) -> tuple[Any, Any]:
        """Make positions those of this host; which host keeps each row of others, and which cold row it is."""
        setup, n = self.setup, int(places.size)
        which, row = cupy.empty(n, np.int32), cupy.empty(n, np.int32)
        away = 1 if self.placement.kind == "replicated" else self.num_parts
        args = (
            places, np.uint64(n), np.uint32(self.placement.shift), np.uint32(self._shift), np.int32(away),
            self._cold_bounds, np.int32(setup.num_hosts), np.int32(setup.host), which, row,
        )  # fmt: skip
        launch("homes", n, args)
        return which, row

    def _fetch_places(self, ids: Any, places: Any) -> None:
        """Ask the owners for positions (DSP, section 6)."""
        exchange, me, n = self.setup.exchange, self.setup.me, int(ids.size)
        owner, row = cupy.empty(n, np.int32), cupy.empty(n, np.int32)
        args = (ids, np.uint64(n), self._new_of, self._boundaries, np.int32(self.num_parts), owner, row)
        launch("owners", n, args, id_type(ids))
        counts, sent, back, _ = self._buckets(owner, row, n, self._own_last)
        send = counts.copy()
        peers, send[me] = n - int(send[me]), 0
        receive = exchange.sizes(send)
        asked = exchange.all_to_all("ids", sent[:peers], send, receive)
        own = cupy.empty(asked.size, np.int32)
        launch("look_up", int(asked.size), (self._places, asked, np.uint64(asked.size), own))
        answers = exchange.all_to_all("positions", own, receive, send)
        launch("settle", n, (answers, np.uint64(peers), self._places, sent, back, np.uint64(n), places))

    def _buckets(
        self, holder: Any, value: Any, n: int, order: Any, counts: Any = None
    ) -> tuple[np.ndarray, Any, Any, Any]:
        """Requests by holder. The host waits once, for how many each holder has, while the GPU goes on.

        Args:
            holder: of each request, ``int32[n]``.
            value: what is sent, ``int32[n]``.
            order: the holders as they are to follow, ``int32[H]`` on the GPU.
            counts: how many each has, ``uint64[H]`` on the GPU, where that is known there.

        Returns:
            How many each has, ``int64[H]``; ``value`` by holder; whence each came; where each went.
        """
        size = len(order)
        if counts is None:
            counts = cupy.zeros(size, np.uint64)
            launch("count", n, (holder, np.uint64(n), np.int32(size), counts))
        begins = cupy.empty(size, np.uint64)
        _kernel("begins", "int")((1,), (1,), (counts, order, np.int32(size), begins))
        with streams.leasing():  # the index is the caller's
            sent, back, index = (cupy.empty(n, np.int32) for _ in range(3))
        launch("bucket", n, (holder, value, np.uint64(n), np.int32(size), begins, sent, back, index))
        return np.asarray(counts.get().astype(np.int64)), sent, back, index

    # ---- rows -------------------------------------------------------------------------------------------------

    def gather(self, ids: Any, marks: Any, out: Any, ordered: bool) -> tuple[Any, Callable[[], Any], Any]:
        """Rows of ``ids`` into ``out``, asynchronous but for the sizes of exact messages.

        Returns:
            ``(index, count, ready)``: without ``ordered``, ``out[index[i]]`` is the row of ``ids[i]``; ``count()``
            waits and tells tally, time and stages; an event behind the rows.
        """
        marks.ready.order()
        parts, setup = self.num_parts, self.setup
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        with streams.leasing() as counted:
            # Of this rank's rows, and of those that it reads for other hosts.
            counts = cupy.zeros((1 + setup.asks_hosts, 2 * (parts + 2) + 1), np.uint64)
        self._tally(marks.places, counts[0])
        index = None
        if setup.transport == "direct" or self.placement.kind == "replicated":
            self._read(marks.places, marks.more[0], out)
        else:
            with _on_torch_stream():
                index = self._exchange(marks, counts[0], out, ordered)
        if setup.asks_hosts:
            which, row = marks.more[1]
            with _on_torch_stream():
                self._ask_hosts(which, row, out, index, counts[1])
        end.record()
        read = marks.positions  # not the marks: stats may be kept for an epoch

        def count() -> tuple[Tally, float, dict[str, float]]:
            end.synchronize()
            counted.order()
            found = counts.get().astype(np.int64)
            rows, sectors = (found[0, k * (parts + 2) :][: parts + 2] for k in (0, 1))
            served = (int(found[1, 2 * parts + 2]), int(found[1, -1])) if setup.asks_hosts else (0, 0)
            tally = Tally(rows, sectors, int(found[0, -1]), read.get().astype(np.int64), served)
            return tally, cupy.cuda.get_elapsed_time(begin, end) * 1e3, {}

        return index, count, streams.ready_of(out) or streams.Ready()

    def _tally(self, places: Any, counts: Any) -> None:
        """Add rows and sectors by holder and lines of the host to ``counts``, ``uint64[2 * (parts + 2) + 1]``."""
        parts, address = self.num_parts, int(counts.data.ptr)
        only = self.setup.me if self.placement.kind == "replicated" else -1
        args = (
            places, np.uint64(places.size), np.int32(parts), np.uint32(self._shift), np.int32(only),
            np.uint32(self.setup.row_bytes), *(np.uint64(address + 8 * k * (parts + 2)) for k in range(3)),
        )  # fmt: skip
        launch("tally", int(places.size), args)

    def _read(self, places: Any, order: Any, out: Any) -> None:
        """What this GPU can read by itself: rows on GPUs on the current stream, the host's on another."""
        with self._reading(places, order, out):
            pass

    @contextlib.contextmanager
    def _reading(self, places: Any, order: Any, out: Any) -> Iterator[None]:
        """As :meth:`_read`; the host's rows are there at the end of the block, so that exchanges in it run beside."""
        if order is None:
            self._extractor.extract_placed(places, self._table, out)
            yield
            return
        with self._beside(lambda: self._extractor.extract_placed(places, self._table, out, order, hot=False)):
            self._extractor.extract_placed(places, self._table, out, order)
            yield

    @contextlib.contextmanager
    def _beside(self, launch_reads: Callable[[], None]) -> Iterator[None]:
        """Reads of the host's memory on a stream of their own, behind what was launched, beside what the block does."""
        main = cupy.cuda.get_current_stream()
        self._side.wait_event(main.record())
        try:
            with self._side:
                launch_reads()
            yield
        finally:
            main.wait_event(self._side.record())

    def _exchange(self, marks: Any, counts: Any, out: Any, ordered: bool) -> Any:
        """Rows of peers by all-to-all, the others meanwhile; returns the index of unordered rows."""
        setup, exchange, me, parts = self.setup, self.setup.exchange, self.setup.me, self.num_parts
        n, width = int(marks.places.size), self.setup.row_bytes
        holder, row = cupy.empty(n, np.int32), cupy.empty(n, np.int32)
        shift = np.uint32(self._shift)
        launch("holders", n, (marks.places, np.uint64(n), np.int32(parts), shift, holder, row))
        value = row if ordered else marks.places
        # Before anything is read: the host would wait for the rows, too.
        found, sent, back, index = self._buckets(holder, value, n, self._host_last, counts[: parts + 2])
        local, peers = int(found[me]), n - int(found[[me, parts, parts + 1]].sum())
        if ordered:  # the caches of peers are out of reach, and their rows are left alone
            reading = self._reading(marks.places, marks.more[0], out)
        else:
            here = n - int(found[parts + 1])
            reading = self._reading_grouped(sent[:here], out[:here], peers, local)
            sent = sent[:peers] & ((1 << self._shift) - 1)
        with reading:
            send = found[:parts].copy()
            send[me] = 0
            receive = exchange.sizes(send)
            asked = exchange.all_to_all("ids", sent[:peers], send, receive)
            answers = cupy.empty((int(receive.sum()), setup.num_features), setup.dtype)
            if len(answers):
                unused = cupy.zeros(2, np.uint64)
                self._extractor.extract(asked, asked, GpuRows(cache=self.mine), answers, unused)
            arrived = (
                cupy.empty(peers * width, np.uint8) if ordered else out[:peers].view(np.uint8).reshape(-1)
            )
            given = answers.view(np.uint8).reshape(-1)
            exchange.all_to_all("rows", given, receive * width, send * width, out=arrived)
            if ordered and peers:
                self._extractor.place(arrived, back[:peers], peers, out)
        return None if ordered else index

    def _ask_hosts(self, which: Any, row: Any, out: Any, index: Any, served: Any) -> None:
        """Cold rows that other hosts keep, from this rank's partners there; what they ask for is served meanwhile, and
        tallied in ``served``."""
        setup, world, width, n = self.setup, self.setup.world, self.setup.row_bytes, int(which.size)
        hosts, partners = setup.num_hosts, setup.partners
        counts, asked, back, _ = self._buckets(which, row, n, self._hosts_by_partner)
        away = n - int(counts[hosts])
        send = np.zeros(world.size, np.int64)
        send[partners] = counts[:hosts]
        receive = world.sizes(send)
        wanted = world.all_to_all("ids", asked[:away], send, receive)
        answers = cupy.empty((int(receive.sum()), setup.num_features), setup.dtype)
        if len(answers):
            places = int(self.placement.cold_bounds[setup.host]) - 1 - wanted
            self._tally(places, served)
            self._extractor.extract_placed(places, self._table, answers, hot=False)
        arrived, given = cupy.empty(away * width, np.uint8), answers.view(np.uint8).reshape(-1)
        world.all_to_all("rows", given, receive * width, send * width, out=arrived)
        if away:
            to = back[:away] if index is None else index[back[:away]]
            self._extractor.place(arrived, to, away, out)

    @contextlib.contextmanager
    def _reading_grouped(self, places: Any, out: Any, peers: int, local: int) -> Iterator[None]:
        """As :meth:`_reading`, of rows of one's own and the host's, which stand together behind those of the peers."""
        middle = peers + local
        with self._beside(
            lambda: self._extractor.extract_placed(places[middle:], self._table, out[middle:], hot=False)
        ):
            table = replace(self._table, host_address=0)
            self._extractor.extract_placed(places[peers:middle], table, out[peers:middle])
            yield

    def close(self) -> None:
        wait_for_device()
        peers, self._peers = self._peers, None
        if peers is not None and self._is_first:
            self.mine = self._places = cupy.empty(0, self.setup.dtype)
            peers.close()
