"""One rank's share of collective sampling on a GPU (DSP, section 4.1), as steps between which ranks exchange.

What a rank does is a generator: it launches kernels and yields a :class:`Swap` wherever ranks meet. Whoever drives it
moves the bytes: NCCL between processes (:mod:`.csp`), copies between the generators of one process in tests.

A mini-batch lies in the same buffers as a sampler's on one GPU (:class:`~gnnsample_lab.sampling.neighbors.workspace.
Workspace`), with the same ID map, and the same kernels make it compact. In place of a hop's one kernel there are

* ``bucket``: each new vertex of the frontier goes to the bucket of its owner,
* the host's one read of a hop, and sizes,
* a swap of ids, ``draw`` for all ranks in one launch, a swap of replies,
* ``merge``: picks in the frontier's order, and new vertices for the next one.

So there are three exchanges a hop, as published (DSP, section 4.1): of sizes, of ids and of replies, whose size follows
from that of the ids. Sizes go from host to host where ranks share a host's memory (:class:`Told`): each host must read
its own in any case. Elsewhere they go from GPU to GPU before the host reads.

Frontiers grow, so buckets do: an id stays in its place from hop to hop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gnnsample_lab.device import runtime, streams
from gnnsample_lab.device.arrays import offsets_of
from gnnsample_lab.device.polling import await_word
from gnnsample_lab.minibatch.gpu.finish import Finisher
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.sampling.neighbors.launch import Knobs, Launcher, capture
from gnnsample_lab.sampling.neighbors.lists import LOCAL_RECORDS, Place
from gnnsample_lab.sampling.neighbors.plan import NARROW
from gnnsample_lab.sampling.neighbors.sizes import Sizer, power_of_two, seed_capacity
from gnnsample_lab.sampling.neighbors.spec import HopPicks, SampleSpec
from gnnsample_lab.sampling.neighbors.workspace import TOTALS_FLAG, Workspace
from gnnsample_lab.sampling.weights import IntegerWeights

from ..spill import without
from .csp_kernels import (
    MAX_PEERS,
    RAGGED,
    REPLIES,
    REPORT_SENT,
    REPORT_WORDS,
    ROUTE,
    TASKS,
    Argument,
    Launch,
    Modules,
    kmax_of,
    pinned_words,
    reply_bytes,
)
from .lists import FromZero, host_place, records_of_rows

_BUCKET_ROWS = 1024
"""Rows that a block of ``bucket`` takes at a time."""
_BLOCKS_PER_SM = 4
Steps = Generator["Swap | Reduce | Told", None, Any]


class DevicePart:
    """A part on the GPU, and what its rank knows of the whole graph.

    Attributes:
        index: which part.
        parts: how many there are.
        indptr, indices, weights: of the part, as :class:`~gnnsample_lab.distributed.Part` has them; CuPy.
        new_of: ids that are consecutive within a part, by original id, ids ``[N]``.
        boundaries: new ids of part p are ``boundaries[p]:boundaries[p + 1]``; ``on_host`` is the same in NumPy.
        lower: the first new id of this part.
        new_of_ptr, boundaries_ptr: addresses, for launches.
        has_records: whether lists lie in host memory too: ``indptr`` then has packed records, and the weights' sums
            the address of each row's (``sampling/neighbors/lists.py``).
        nbytes: of lists, their records and weights on the GPU.
        num_nodes, num_edges, max_in_degree: of the whole graph, the same on all ranks.
    """

    def __init__(
        self, part: Any, partition: Any, num_edges: int, max_in_degree: int, spilled: np.ndarray | None = None,
        weighted: bool = True,
    ) -> None:  # fmt: skip
        import cupy

        if part.num_parts > MAX_PEERS:
            raise ValueError(f"parts on GPUs may be at most {MAX_PEERS} (got {part.num_parts})")
        self.index, self.parts = part.rank, part.num_parts
        self.num_nodes, self.num_edges, self.max_in_degree = part.num_nodes, num_edges, max_in_degree
        self.indptr: Any
        self.indices: Any
        self.weights: IntegerWeights | None = None
        self.has_records = spilled is not None
        if spilled is None:
            self.indptr, self.indices = cupy.asarray(part.indptr), cupy.asarray(part.indices)
            if weighted and part.weights is not None:
                self.weights = IntegerWeights(cupy.asarray(part.prefix), cupy.asarray(part.available))
        else:
            self._place(part, spilled, weighted and part.weights is not None)
        self.new_of = cupy.asarray(partition.new_of).astype(self.indices.dtype, copy=False)
        self.on_host = np.asarray(partition.boundaries, dtype=np.int64)
        self.boundaries = cupy.asarray(self.on_host)
        self.lower = int(self.on_host[self.index])
        self.new_of_ptr, self.boundaries_ptr = int(self.new_of.data.ptr), int(self.boundaries.data.ptr)

    def _place(self, part: Any, spilled: np.ndarray, weighted: bool) -> None:
        """Lists that stay go to the GPU, ``spilled`` ones are read in host memory."""
        import cupy

        by_vertex = np.zeros(part.num_nodes, dtype=bool)
        by_vertex[part.vertices] = spilled
        kept = without(part, by_vertex)
        held: list[np.ndarray] = []
        host = host_place(part, weighted, held)
        lists = cupy.asarray(kept.indices)
        sums = cupy.asarray(kept.prefix) if weighted else None
        here = Place(int(lists.data.ptr), 0 if sums is None else int(sums.data.ptr))
        packed, prefix = records_of_rows(part, kept, spilled, here, host, weighted)
        self.indptr, self.indices = cupy.asarray(packed), FromZero(part.indices.dtype)
        if prefix is not None:
            self.weights = IntegerWeights(cupy.asarray(prefix), cupy.asarray(part.available))
        self._kept = lists, sums, held

    @property
    def nbytes(self) -> int:
        held = [self.indptr, *(self._kept[:2] if self.has_records else (self.indices,))]
        if self.weights is not None:
            held += [self.weights.prefix, self.weights.available]
        return sum(int(array.nbytes) for array in held if array is not None)


class Buffer:
    """Device memory that grows. What it held is lost when it does.

    Args:
        dtype: of its entries.
        users: the turns of the calls that use it, on whatever streams; None where they are all on one.

    Attributes:
        array: CuPy, None before there is any.
        ptr: its address.
    """

    def __init__(self, dtype: Any, users: Any = None) -> None:
        self.dtype, self._users = np.dtype(dtype), users
        self.array: Any = None
        self.ptr = 0
        self._tensor: Any = None

    def room(self, entries: int) -> Buffer:
        """At least ``entries`` entries."""
        if self.array is None or self.array.size < entries:
            import cupy

            self.array = self._tensor = None  # back to the pool first
            with nullcontext() if self._users is None else streams.leasing(self._users):
                self.array = cupy.empty(power_of_two(max(entries, 64)), self.dtype)
            self.ptr = int(self.array.data.ptr)
        return self

    @property
    def nbytes(self) -> int:
        return 0 if self.array is None else int(self.array.nbytes)

    @property
    def tensor(self) -> Any:
        """The same memory as a torch tensor; unsigned integers, which NCCL does not know, as signed ones."""
        if self._tensor is None:
            import torch

            array = self.room(1).array
            if self.dtype.kind == "u" and self.dtype.itemsize > 1:
                array = array.view(np.dtype(f"i{self.dtype.itemsize}"))
            self._tensor = torch.from_dlpack(array)
        return self._tensor


@dataclass
class Swap:
    """Ranks exchange: entries ``give[p]`` of ``given`` go to rank p, what it gives goes to entries ``take[p]``.

    Attributes:
        given, out: the buffers.
        give, take: ``(begin, end)`` for each rank; None for one entry for each rank.
        pair: only ranks ``(to, source)`` are given to and taken from, by two messages that no other rank waits for.
    """

    given: Buffer
    out: Buffer
    give: Sequence[tuple[int, int]] | None = None
    take: Sequence[tuple[int, int]] | None = None
    pair: tuple[int, int] | None = None


@dataclass
class Told:
    """Hosts tell each other a number of rows, through memory.

    Attributes:
        counts: what each rank is told; None: nothing new, as when a rank is heard later than this one told.
        sources: whom to hear. Each rank hears all others before it tells again.
        heard: what each rank told this one, filled by whoever drives the steps; 0 where it was not heard.
    """

    counts: Sequence[int] | None
    sources: Sequence[int]
    heard: list[int]


@dataclass
class Reduce:
    """All ranks get the largest of their values, entry by entry."""

    values: Buffer
    entries: int


_MOVED = ("asked", "taken", "given", "served", "lists_in", "lists_out")


class Moved:
    """What a mini-batch moved, ``int64[hops, P]`` each; the own column does not leave the rank.

    Attributes:
        counts: all of the following, ``int64[6, hops, P]``.
        asked, served: rows that this rank asked each rank for, and was asked for.
        taken, given: picks in replies from and to each rank.
        lists_in, lists_out: list entries from and to each rank (``"pull"``).
        ragged: by hop, whether replies had exact sizes, ``bool[hops, 1]``.
    """

    __slots__ = ("counts", "ragged")
    asked: np.ndarray
    taken: np.ndarray
    given: np.ndarray
    served: np.ndarray
    lists_in: np.ndarray
    lists_out: np.ndarray

    def __init__(self, hops: int, parts: int) -> None:
        self.counts = np.zeros((len(_MOVED), hops, parts), dtype=np.int64)
        self.ragged = np.zeros((hops, 1), dtype=bool)

    def __getattr__(self, name: str) -> np.ndarray:
        if name not in _MOVED:
            raise AttributeError(name)
        found: np.ndarray = self.counts[_MOVED.index(name)]
        return found

    @staticmethod
    def stacked(batches: Sequence[Moved]) -> dict[str, np.ndarray]:
        """By name, what each of several mini-batches moved, ``[n, hops, P]``, and ``"ragged"``."""
        counts = np.stack([m.counts for m in batches], axis=1)
        return dict(zip(_MOVED, counts, strict=True)) | {"ragged": np.stack([m.ragged for m in batches])}


class Core:
    """The buffers and the steps of one rank.

    Args:
        part: this rank's part.
        spec: settings of the draw, ``expand="frontier"``.
        scratch_bytes: bound of the mini-batch's buffers; None is 5 % of the free memory.
        knobs: launch shapes, for tests.
    """

    def __init__(
        self, part: DevicePart, spec: SampleSpec, scratch_bytes: int | None = None, knobs: Knobs | None = None
    ) -> None:
        import cupy

        self.part, self.spec, self.me, self.parts = part, spec, part.index, part.parts
        self.weights = part.weights if spec.weighted else None
        self.scratch_limit = runtime.scratch_bytes(scratch_bytes)
        self.id_bytes = part.indices.dtype.itemsize
        self.sizer = Sizer(part, spec, self.scratch_limit, False, False)
        self.strides = tuple(map(self._stride, spec.fanouts))
        # Kernels that make a mini-batch compact expect few places a row; more are stored as rows of any length.
        self.sizer.strides = tuple(s if s <= 2 * NARROW else 0 for s in self.strides)
        self.launcher = Launcher(part, spec, "captured", False, knobs or Knobs())
        self.finisher = Finisher(self.launcher, False)
        self.sms = self.launcher.sms
        self.turns = streams.Turns()
        self.ws: Workspace | None = None
        ids, parts, hops = part.indices.dtype, self.parts, spec.num_hops
        self.send, self.requests = Buffer(ids, self.turns), Buffer(ids, self.turns)
        self.replies, self.back = Buffer(np.uint8, self.turns), Buffer(np.uint8, self.turns)
        self.places = Buffer(np.uint64, self.turns)
        self.state_words = parts * (1 + 4 * hops)
        self.state = Buffer(np.int64).room(
            self.state_words + hops
        )  # behind them: blocks of `bucket` that are done
        self._hops = np.arange(hops, dtype=np.int32)
        done = [self.state.ptr + 8 * (self.state_words + hop) for hop in range(hops)]
        self._done, self._nowhere = np.array(done, dtype=np.uint64), np.zeros(1, np.uint64)
        self._routed = (0, 0)  # addresses that the packed route has
        self.arrived = Buffer(np.int64).room(parts)
        self.arrived.array.fill(0)  # nobody sends to itself, and a report has all places
        cupy.cuda.get_current_stream().synchronize()  # the first call may be on another stream
        self.flag = Buffer(np.int32).room(1)
        self._route, self._tasks = Argument(*ROUTE), Argument(*TASKS)
        self.ragged, self._replies = Argument(*RAGGED), Argument(*REPLIES)
        self._report_memory, words = pinned_words(REPORT_WORDS)
        self._report_view: Any = memoryview(words)  # type: ignore[arg-type]
        self._notes_memory, self.notes = pinned_words(self.state_words)
        self._forced_memory, self.forced = pinned_words(1)
        self._report_at = np.array([self._report_memory.ptr], dtype=np.uint64)
        self._tag = 0
        self._launches: dict[Any, Launch] = {}  # for the buffers of `ws`
        self._graphs: dict[str, tuple[Any, Any]] = {}  # likewise: work that is the same for every mini-batch
        self._stream = 0  # address of the mini-batch's stream
        self._seeds_memory: Any = None
        # What `report` reads and writes, as its arguments.
        self._reported = (
            np.uint64(self.state.ptr), np.uint64(self.arrived.ptr), np.uint64(self._report_memory.ptr), np.int32(parts),
        )  # fmt: skip
        self.hosts_tell = False  # whether sizes go from host to host, alike on all ranks
        self.others = [p for p in range(parts) if p != self.me]
        self.send_caps: list[int] = []
        self.moved = Moved(hops, parts)
        self.served = [[0] * parts] * hops  # by hop, as `Moved.served`
        self.notes_asked = False  # whether the ids that this rank draws for are kept, for :meth:`asked`
        self._asked = [(Buffer(ids, self.turns), 0) for _ in range(hops)]
        self.wide_amounts = False  # whether integer weights need more than 32 bits, alike on all ranks
        self._kept: list[Any] = []

    def _stride(self, fanout: int) -> int:
        """Places of a row in a reply; 0 where rows have any length."""
        most = max(1, self.part.max_in_degree)  # also where there are no edges: 0 would mean any length
        if fanout < 0:
            return most if most <= 2 * NARROW else 0
        return fanout if self.spec.replace else min(fanout, most)

    # ---- a mini-batch -----------------------------------------------------------------------------------------

    def exact(self, seeds: np.ndarray, batch_id: int, graph: Any) -> Steps:
        """``csp``: messages have exactly the sizes that they need; the host reads once a hop."""
        return self.steps(seeds, batch_id, graph, self.hop)

    def one_by_one(self, seeds: np.ndarray, batch_id: int, graph: Any) -> Steps:
        """``csp-async``: each request is sent, drawn and answered by itself; no rank waits for all others."""
        return self.steps(seeds, batch_id, graph, self.hop_one_by_one)

    def steps(
        self, seeds: np.ndarray, batch_id: int, graph: Any, hop_of: Callable[[Workspace, int], Steps]
    ) -> Steps:
        """A mini-batch, whose hops are those of ``hop_of``."""
        ws = self.workspace(int(seeds.size))
        self._kept.clear()
        self.moved = Moved(self.spec.num_hops, self.parts)
        self.lay_out_send([ws.shape.row_caps[-1]] * self.parts)
        self.places.room(ws.shape.row_caps[-1])
        self.head(ws, seeds, batch_id, reports=hop_of == self.hop_one_by_one or self.hosts_tell)
        for hop in range(self.spec.num_hops):
            yield from hop_of(ws, hop)
        self.tail(ws)
        status = self.await_totals(ws)
        if status:
            raise RuntimeError(
                f"collective sampling failed with status {status}: other work on the GPU has overwritten its memory"
            )
        batch = self.emit(ws, seeds, batch_id, graph)
        self._kept.clear()  # of rows of any length
        self.moved.served[:] = self.served
        return batch

    def workspace(self, num_seeds: int) -> Workspace:
        """Buffers that no mini-batch of ``num_seeds`` seeds exceeds.

        Raises:
            MemoryError: they do not fit ``scratch_bytes``.
        """
        cap = seed_capacity(max(1, num_seeds))
        if self.ws is None or self.ws.shape.seed_cap < cap:
            self.ws = None
            shape = self.sizer.largest_shape(cap, self.strides)
            import cupy

            with streams.leasing(self.turns):
                self.ws = Workspace(self.part, self.spec, self.weights, shape, False, False, 1, False)
                self.seeds = cupy.empty(cap, np.int64)
            self._seeds_memory, self.seeds_on_host = pinned_words(cap)
            lists = LOCAL_RECORDS if self.part.has_records else 0
            self.modules = Modules(self.launcher.id_type, self.spec.rule, shape.table, lists)
            self._launches, self._graphs = {}, {}
            self._report_view[0] = 0  # stamps begin anew
        return self.ws

    def close(self) -> None:
        """Destroy the CUDA graphs now, and not when Python happens to collect them."""
        self._graphs = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        held = (self.send, self.requests, self.replies, self.back, self.places, self.state)
        return sum(b.nbytes for b in held) + (0 if self.ws is None else self.ws.num_bytes)

    def stage(self, ws: Workspace, seeds: np.ndarray, batch_id: int) -> None:
        """Write what the first kernel reads. The last mini-batch's totals are known, so nothing reads the old words."""
        n = int(seeds.size)
        self.seeds_on_host[:n] = seeds
        if n:  # not in a graph: CuPy captures no copies from the host
            self.seeds.data.copy_from_host_async(self._seeds_memory.ptr, 8 * n)
        base, tag = ws.stamp()
        ws.write_batch(0, self.seeds.data.ptr, n, True, batch_id, base, tag, 0, 0, 0)

    def begin(self, ws: Workspace) -> None:
        """Merge the staged seeds, and empty tables and counts: the same work for every mini-batch."""
        self.use_stream()
        next(self.launcher.phases(ws)).launch()
        self.state.array.data.memset_async(0, 8 * (self.state_words + self.spec.num_hops))

    def use_stream(self) -> None:
        """Launch on CuPy's current stream from here on."""
        import cupy

        self._stream = int(cupy.cuda.get_current_stream().ptr)

    def head(self, ws: Workspace, seeds: np.ndarray, batch_id: int, reports: bool) -> None:
        """From seeds to the buckets of the first hop, as one CUDA graph."""

        def work() -> None:
            self.begin(ws)
            self.bucket(ws, 0, self.send_caps, reports)

        # What the graph has from the host: where buckets are, and whether sizes are reported.
        key = (reports, self.send.ptr, self.places.ptr, *self.send_caps)
        self.stage(ws, seeds, batch_id)
        if self._replayed("head", key, work):
            # With new stamps: the run before the capture has used the first ones.
            self.stage(ws, seeds, batch_id)
            self._replayed("head", key, work)
        self.use_stream()

    def tail(self, ws: Workspace) -> None:
        """Counts to the host, and the mini-batch's sizes by a CUDA graph."""

        def work() -> None:
            self.finisher.scan(ws)

        self.take_notes()  # not in the graph: CuPy captures no copies to the host
        if not all(self.strides):
            work()  # rows of any length lie in other memory for every mini-batch
        else:
            self._replayed("tail", (), work)

    def _replayed(self, name: str, key: tuple[int, ...], work: Callable[[], None]) -> bool:
        """Launch the graph of ``work``, which does the same as long as ``key`` is the same.

        Returns:
            Whether there was none: then the work was done once, and captured.
        """
        import cupy

        known, graph = self._graphs.get(name, (None, None))
        if known == key:
            graph.launch(cupy.cuda.get_current_stream())
            return False
        self._graphs[name] = key, capture(work, dependent=False)
        return True

    def take_notes(self) -> None:
        """Copy all counts to the host, asynchronously: they are there when the totals are."""
        self.state.array.data.copy_to_host_async(self._notes_memory.ptr, 8 * self.state_words)

    def noted(self) -> np.ndarray:
        """Asked rows, picks taken, picks given and rows served, ``int64[hops, 4, P]``; a view."""
        return self.notes[self.parts :].reshape(self.spec.num_hops, 4, self.parts)

    def state_at(self, hop: int, which: int) -> int:
        """Address of a row of :meth:`noted` on the device."""
        return self.state.ptr + 8 * self.parts * (1 + 4 * hop + which)

    def await_totals(self, ws: Workspace) -> int:
        """Wait for the sizes of the mini-batch; returns its status."""
        self._poll(ws.totals_view, TOTALS_FLAG, ws.last_base)
        return int(ws.totals_view[0])

    def _poll(self, view: Any, at: int, flag: int) -> None:
        await_word(view, at, flag, "the kernels of collective sampling did not report their sizes")

    def emit(self, ws: Workspace, seeds: np.ndarray, batch_id: int, graph: Any) -> MiniBatch:
        """The mini-batch, compact; asynchronous. Notes what it moved."""
        if seeds.size:  # first, because the GPU waits for it
            batch: MiniBatch = self.finisher.collect(ws, ws.totals(), [seeds], batch_id, graph)[0]
        else:
            batch = empty_batch(self.part.indices.dtype, self.spec, batch_id, graph)
        self.moved.counts[:3] = self.noted()[:, :3].swapaxes(0, 1)
        return batch

    # ---- steps of a hop ---------------------------------------------------------------------------------------

    def lay_out_send(self, caps: Sequence[int]) -> None:
        """Where each bucket begins in ``send``, with room for ``caps[p]`` ids."""
        if self.send_caps == caps:
            return
        self._routed = (0, 0)
        ends = np.cumsum(caps).tolist()
        self.send_at, self.send_caps = [0, *ends[:-1]], list(caps)
        self.send.room(ends[-1])

    def bucket(self, ws: Workspace, hop: int, caps: Sequence[int], reports: bool = False) -> None:
        """Sort new vertices by owner; ``caps`` are rows of each bucket. The host may read the sizes afterwards."""
        addresses = self.send.ptr, self.places.ptr
        if addresses != self._routed or caps is not self.send_caps:
            self._route.pack(
                (self.part.new_of_ptr, self.part.boundaries_ptr, self.send.ptr, self.state.ptr, self.places.ptr,
                 self.parts, 0), self.send_at, caps,
            )  # fmt: skip
            self._routed = addresses if caps is self.send_caps else (0, 0)
        launch = self._launches.get(("bucket", hop, reports))
        if launch is None:
            done, out = self._done[hop : hop + 1], self._report_at if reports else self._nowhere
            args = ws.job, self._route.memory, self._hops[hop : hop + 1], done, out
            launch = Launch(self.modules.route("bucket"), 256, *args)
            self._launches["bucket", hop, reports] = launch
        rows = ws.shape.row_caps[hop] - (ws.shape.row_caps[hop - 1] // 2 if hop else 0)
        launch(self._stream, max(1, min(_BLOCKS_PER_SM * self.sms, -(-rows // _BUCKET_ROWS))))

    def _next_tag(self) -> Any:
        self._tag -= 1
        return np.int64(self._tag)

    def report(self, ws: Workspace, hop: int) -> tuple[int, list[int], list[int]]:
        """The host's read: vertices of the frontier, rows that this rank asks each rank for, and is asked for."""
        args = (ws.args, *self._reported, self._hops[hop], self._next_tag())
        self.modules.route("report")((1,), (MAX_PEERS,), args)
        return self.read_report(hop, self._tag)

    def read_report(self, hop: int, tag: int) -> tuple[int, list[int], list[int]]:
        """Wait for a report, which has the tag."""
        view = self._report_view
        self._poll(view, 0, tag)
        if view[2]:
            raise RuntimeError(f"collective sampling failed with status {view[2]} before hop {hop}")
        sent, got = self._by_rank()
        got[self.me] = 0
        return view[1], sent, got

    def read_sums(self, tag: int) -> tuple[list[int], list[int]]:
        """Wait for the report of an ``add_up``, which has the tag: sums at the ends of each rank's values."""
        self._poll(self._report_view, 0, tag)
        return self._by_rank()

    def _by_rank(self) -> tuple[list[int], list[int]]:
        """What a report has for each rank, twice."""
        view, at = self._report_view, REPORT_SENT
        sent: list[int] = view[at : at + self.parts].tolist()
        got: list[int] = view[at + MAX_PEERS : at + MAX_PEERS + self.parts].tolist()
        return sent, got

    def sizes(self, ws: Workspace, hop: int) -> Generator[Any, None, tuple[int, list[int], list[int]]]:
        """Buckets of a hop, and the exchange of their sizes; returns what :meth:`report` does."""
        if hop:  # those of the first are in `head`
            self.bucket(ws, hop, self.send_caps, reports=self.hosts_tell)
        if self.hosts_tell:
            n, sent, _ = self.read_report(hop, _bucket_tag(ws, hop))
            told = Told(sent, self.others, [0] * self.parts)
            yield told
            got = told.heard
        else:
            yield Swap(self.state, self.arrived)
            n, sent, got = self.report(ws, hop)
        return n, sent, got

    def request_ranges(
        self, sent: Sequence[int], got: Sequence[int]
    ) -> tuple[list[Any], list[Any], list[int]]:
        """Where requests are sent from, where they go, and where each rank's begin there; own ones stay."""
        give, take, begins, end = [], [], [], 0
        for at, mine, theirs in zip(self.send_at, sent, got):
            give.append((at, at + mine))
            begins.append(end)
            begin, end = end, end + theirs
            take.append((begin, end))
        give[self.me] = (0, 0)
        self.requests.room(end)
        return give, take, begins

    def draw(
        self, ws: Workspace, hop: int, rows: Sequence[int], begins: Sequence[int], replies: int,
        reply_at: Sequence[int], own_reply: int, *, seen: int = 0, pulled: Any = None,
    ) -> None:  # fmt: skip
        """Draw for all ranks into replies; ``rows`` and ``begins`` as in the kernel's ``Tasks``.

        With ``pulled``, as :meth:`pack_tasks` takes it, from lists that came.
        """
        stride = self.strides[hop]
        self.pack_tasks(hop, rows, begins, replies, reply_at, own_reply, seen, pulled, stride)
        warps, key = 8 if self.id_bytes == 4 else 4, ("draw", hop, bool(pulled))
        launch = self._launches.get(key)
        if launch is None:
            kernel = self.modules.draw("draw", kmax_of(stride), bool(pulled))
            launch = Launch(kernel, warps * 32, ws.job, self._tasks.memory, self._hops[hop : hop + 1])
            self._launches[key] = launch
        launch(self._stream, *self.grid(max(rows), warps))

    def pack_tasks(
        self, hop: int, rows: Sequence[int], begins: Sequence[int], replies: int, reply_at: Sequence[int],
        own_reply: int, seen: int, pulled: Any, stride: int,
    ) -> Any:  # fmt: skip
        """The argument of draws; ``pulled``: addresses of fetched lists' offsets, their entries and their sums."""
        part, ids, apart = self.part, self.requests.ptr, 0
        offsets = lists = sums = 0
        if pulled is not None:  # buckets of equal room
            ids, apart = self.send.ptr, self.send_caps[0]
            offsets, lists, sums = pulled
        own_ids = self.send.ptr + self.send_at[self.me] * self.id_bytes
        return self._tasks.pack(
            (ids, own_ids, replies, own_reply, part.new_of_ptr, part.lower, offsets, lists, sums, apart, seen,
             self.state_at(hop, 2), self.me, self.spec.fanouts[hop], stride), begins, rows, reply_at,
        )  # fmt: skip

    def grid(self, rows: int, warps: int) -> tuple[int, int]:
        most = max(1, _BLOCKS_PER_SM * self.sms // self.parts)
        return max(1, min(most, -(-rows // warps))), self.parts

    def merge(
        self, ws: Workspace, hop: int, rows: int, at: Sequence[int], room: Sequence[int], only: int = -1,
        offsets: int = 0, heads: int = 0,
    ) -> None:  # fmt: skip
        """Merge the replies of all owners, or of one, for a frontier of up to ``rows`` vertices."""
        ragged = bool(offsets)
        self._replies.pack(
            (self.places.ptr, self.back.ptr, offsets, heads, self.state.ptr, self.state_at(hop, 0),
             self.state_at(hop, 1), self.parts, only, self.spec.fanouts[hop], 0, self.strides[hop]), at, room,
        )  # fmt: skip
        warps, key = 8 if self.id_bytes == 4 else 4, ("merge", hop, ragged)
        launch = self._launches.get(key)
        if launch is None:
            kernel = self.modules.merge("merge_ragged" if ragged else "merge", kmax_of(self.strides[hop]))
            launch = Launch(kernel, warps * 32, ws.job, self._replies.memory, self._hops[hop : hop + 1])
            self._launches[key] = launch
        launch(self._stream, max(1, min(_BLOCKS_PER_SM * self.sms, -(-rows // warps))))

    def reply_size(self, hop: int, rows: int) -> int:
        return reply_bytes(rows, self.strides[hop], self.id_bytes, self.spec.weighted)

    def reply_ranges(
        self, hop: int, sent: Sequence[int], got: Sequence[int]
    ) -> tuple[list[Any], list[Any], list[int], list[int]]:
        """Where replies are sent from and where they go, both in bytes, and where each rank's begin."""
        give, given_at, give_end = self._reply_ranges(hop, got)
        take, taken_at, take_end = self._reply_ranges(hop, sent)
        self.replies.room(give_end)
        self.back.room(take_end)
        take[self.me] = (0, 0)
        return give, take, given_at, taken_at

    def _reply_ranges(self, hop: int, rows: Sequence[int]) -> tuple[list[Any], list[int], int]:
        """``(begin, end)`` and begin of replies that lie one after another, and their end."""
        ranges, begins, end = [], [], 0
        stride, ids, weighted = self.strides[hop], self.id_bytes, self.spec.weighted
        for n in rows:
            begins.append(end)
            begin, end = end, end + reply_bytes(n, stride, ids, weighted)
            ranges.append((begin, end))
        return ranges, begins, end

    def note_asked(self, hop: int, rows: Sequence[int], begins: Sequence[int]) -> None:
        """Keep the ids that a hop's draw is for, if anybody wants them; later hops write over requests."""
        if not self.notes_asked:
            return
        buffer, at = self._asked[hop][0].room(sum(rows)), 0
        for p, count in enumerate(rows):
            if not count:
                continue
            source, begin = (self.send, self.send_at[p]) if p == self.me else (self.requests, begins[p])
            buffer.array[at : at + count] = source.array[begin : begin + count]
            at += count
        self._asked[hop] = buffer, at

    def asked(self, hop: int) -> np.ndarray:
        """Ids that this rank drew for in a hop of the last mini-batch, those below 0 left out; the host waits."""
        buffer, count = self._asked[hop]
        ids: np.ndarray = buffer.room(1).array[:count].get()
        return ids[ids >= 0]

    # ---- csp --------------------------------------------------------------------------------------------------

    def hop(self, ws: Workspace, hop: int) -> Steps:
        """One hop with exact sizes."""
        n, sent, got = yield from self.sizes(ws, hop)
        give, take, begins = self.request_ranges(sent, got)
        yield Swap(self.send, self.requests, give, take)  # what follows is prepared while ids are under way
        self.served[hop] = got
        rows = list(got)
        rows[self.me] = sent[self.me]
        self.note_asked(hop, rows, begins)
        if not self.strides[hop]:
            yield from self._ragged_replies(ws, hop, n, sent, got, begins)
            return
        give, take, given_at, taken_at = self.reply_ranges(hop, sent, got)
        self.draw(ws, hop, rows, begins, self.replies.ptr, given_at, self.back.ptr + taken_at[self.me])
        yield Swap(self.replies, self.back, give, take)
        self.merge(ws, hop, n, taken_at, sent)

    def _ragged_replies(
        self, ws: Workspace, hop: int, n: int, sent: list[int], got: list[int], begins: list[int]
    ) -> Steps:
        """Rows of any length: heads come first, and the host reads once more to know how long messages are."""
        rows = list(got)
        rows[self.me] = sent[self.me]
        (give, _), (take, taken_at) = packed(got), packed(sent)
        heads_out, heads = self.fresh(np.int32, sum(got)), self.fresh(np.int32, sum(sent))
        own = taken_at[self.me]
        tasks = self.pack_tasks(hop, rows, begins, 0, (), 0, 0, None, 0)
        ragged = self.ragged.pack((heads_out.ptr, heads.ptr + 4 * own, 0, 0, 0, 0, 0, 0))
        warps = 8 if self.id_bytes == 4 else 4
        grid = self.grid(max(rows), warps)
        self.modules.draw("count_tasks", 0)(grid, (warps * 32,), (ws.args, tasks, ragged))
        take[self.me] = (0, 0)
        yield Swap(heads_out, heads, give, take)
        # Under "all neighbours" a head is a row's picks, for every rule.
        offsets_out, offsets = offsets_of(heads_out.array[: sum(got)]), offsets_of(heads.array[: sum(sent)])
        ends_out, ends = _at_ends(offsets_out, got), _at_ends(offsets, sent)
        neighbors_out, slots_out = (
            self.fresh(t, ends_out[-1][1]) for t in (self.part.indices.dtype, np.int32)
        )
        neighbors, slots = (self.fresh(t, ends[-1][1]) for t in (self.part.indices.dtype, np.int32))
        ragged = self.ragged.pack(
            (0, 0, offsets_out.data.ptr, offsets.data.ptr + 8 * own, neighbors_out.ptr, slots_out.ptr, neighbors.ptr,
             slots.ptr),
        )  # fmt: skip
        self.modules.draw("draw_ragged", 0)(grid, (warps * 32,), (ws.args, tasks, ragged, np.int32(hop)))
        ends[self.me] = (0, 0)
        yield Swap(neighbors_out, neighbors, ends_out, ends)
        if self.spec.weighted:
            yield Swap(slots_out, slots, ends_out, ends)
        self.moved.ragged[hop] = True
        self._note_given(hop, ends_out)
        self.merge_ragged(ws, hop, n, taken_at, sent, offsets.data.ptr, heads, neighbors, slots)
        self._kept += [offsets_out, offsets]

    def merge_ragged(
        self, ws: Workspace, hop: int, n: int, taken_at: Sequence[int], sent: Sequence[int], offsets: int,
        heads: Buffer, neighbors: Buffer, slots: Buffer,
    ) -> None:  # fmt: skip
        """Merge rows of any length; ``offsets``: the address of where each one's picks begin."""
        entry = ws.plan["hops"][0, hop]
        # Arguments are copied at a launch: from here on kernels see the new arrays.
        entry["neighbors"], entry["slots"] = neighbors.ptr, slots.ptr
        self.merge(ws, hop, n, taken_at, sent, offsets=offsets, heads=heads.ptr)

    def fresh(self, dtype: Any, entries: int) -> Buffer:
        """A buffer for this mini-batch alone."""
        made = Buffer(dtype).room(entries)
        self._kept.append(made)
        return made

    def _note_given(self, hop: int, ends: Sequence[tuple[int, int]]) -> None:
        """Ragged draws are counted by the host, which knows their totals."""
        import cupy

        given = cupy.asarray([end - begin for begin, end in ends], dtype=np.int64)
        at = self.parts * (1 + 4 * hop + 2)
        self.state.array[at : at + self.parts] = given

    # ---- csp-async --------------------------------------------------------------------------------------------

    def hop_one_by_one(self, ws: Workspace, hop: int) -> Steps:
        """One hop, rank by rank: a message, a kernel and a reply for each. Rows of any length go as in ``csp``."""
        if not self.strides[hop]:
            yield from self.hop(ws, hop)
            return
        none = [0] * self.parts
        if hop:
            self.bucket(ws, hop, self.send_caps, reports=True)
        n, sent, _ = self.read_report(hop, _bucket_tag(ws, hop))
        if self.hosts_tell:
            yield Told(sent, (), none)
        served = [0] * self.parts
        bytes_in = [self.reply_size(hop, m) for m in sent]
        _, taken_at = packed(bytes_in)
        self.back.room(sum(bytes_in))
        for step in range(self.parts):
            to, source = (self.me + step) % self.parts, (self.me - step) % self.parts
            rows = list(none)
            if not step:
                rows[self.me] = sent[self.me]
                self.draw(ws, hop, rows, none, self.replies.ptr, none, self.back.ptr + taken_at[self.me])
                self.merge(ws, hop, n, taken_at, sent, only=self.me)
                continue
            one = [(p, p + 1) for p in range(self.parts)]
            pair = (to, source)
            if self.hosts_tell:
                told = Told(None, (source,), list(none))
                yield told
                got = told.heard[source]
            else:
                yield Swap(self.state, self.arrived, one, one, pair)
                got = self.report(ws, hop)[2][source]
            served[source] = rows[source] = got
            self.requests.room(got)
            begin = self.send_at[to]
            give = [(begin, begin + sent[to])] * self.parts
            yield Swap(self.send, self.requests, give, [(0, got)] * self.parts, pair)
            nbytes, mine = self.reply_size(hop, got), bytes_in[to]
            self.replies.room(nbytes)
            self.draw(ws, hop, rows, none, self.replies.ptr, none, 0)
            take = [(taken_at[to], taken_at[to] + mine)] * self.parts
            yield Swap(self.replies, self.back, [(0, nbytes)] * self.parts, take, (source, to))
            self.merge(ws, hop, n, taken_at, sent, only=to)
        self.served[hop] = served


def _bucket_tag(ws: Workspace, hop: int) -> int:
    """Tag of the report of ``bucket``."""
    return ws.last_base << 8 | (hop + 1)


def _at_ends(offsets: Any, rows: Sequence[int]) -> list[Any]:
    """``(begin, end)`` of each rank's entries, where rank p has ``rows[p]`` rows of ``offsets``; the host waits."""
    import cupy

    ends = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
    found = offsets[cupy.asarray(ends)].get().tolist()
    return [(begin, end) for begin, end in pairwise(found)]


def packed(counts: Sequence[int]) -> tuple[list[Any], list[int]]:
    """``(begin, end)`` of consecutive pieces of ``counts[p]`` entries, and the begins alone."""
    ranges, end = [], 0
    for count in counts:
        ranges.append((end, end + count))
        end += count
    return ranges, [begin for begin, _ in ranges]


def empty_batch(ids: Any, spec: SampleSpec, batch_id: int, graph: Any) -> MiniBatch:
    """The mini-batch of no seeds."""
    import cupy

    def picks(_: int) -> HopPicks:
        return HopPicks(
            cupy.empty(0, ids), cupy.empty(0, np.int32), cupy.empty(0, ids), cupy.empty(0, np.int64),
            cupy.zeros(1, np.int64),
        )  # fmt: skip

    hops = range(spec.num_hops)
    return MiniBatch(
        cupy.empty(0, ids), (0,) * (spec.num_hops + 1), tuple(map(picks, hops)),
        tuple(cupy.empty(0, np.int32) for _ in hops), cupy.empty(0, np.int64), batch_id, spec, graph,
        ready=streams.Ready(),
    )  # fmt: skip
