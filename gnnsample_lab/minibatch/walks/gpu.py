"""Random-walk mini-batches on the GPU: any number in one launch, one wait for their sizes (``pinsage.cu``).

All kernels are one captured CUDA graph, which reads seeds, batch ids and where to write from page-locked host memory:
each mini-batch has one block of memory, allocated before the launch by the sizes of earlier ones. The host polls for
the sizes, and makes the arrays while the GPU fills them. Where a block was too small the last kernel is launched again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, pinned, runtime, streams
from gnnsample_lab.device.arrays import merge_duplicates
from gnnsample_lab.device.polling import await_word
from gnnsample_lab.minibatch.gpu.arena import LazyTuple, Room
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.minibatch.waves import Waves
from gnnsample_lab.sampling.neighbors.launch import capture
from gnnsample_lab.sampling.neighbors.plan import as_argument
from gnnsample_lab.sampling.neighbors.sizes import power_of_two
from gnnsample_lab.sampling.neighbors.spec import HopPicks
from gnnsample_lab.sampling.walks.pinsage import WalkSpec

TOTALS = 40
"""64-bit counters of a batch: [0] vertices, [1 + h] vertices before hop h, [17 + h] picks of hop h, last the faults."""
MAX_AT_ONCE = 64
_SHARED_BYTES = 48 << 10
_BLOCKS_PER_SM = 16
"""Most blocks of the walk kernel per multiprocessor."""
_WALKS = np.dtype(
    [("indptr", "u8"), ("indices", "u8"), ("nodes", "u8"), ("keys", "u8"), ("locals", "u8"), ("totals", "u8"),
     ("counts", "u8"), ("picks", "u8"), ("votes", "u8"), ("tiles", "u8"), ("batch_ids", "u8"), ("calls", "u8"),
     ("host_totals", "u8"), ("row_begins", "u8"), ("places", "u8"), ("node_cap", "u8"), ("slots", "u8"),
     ("row_stride", "u8"), ("seed", "u8"), ("tile_stride", "u8"), ("direct", "u4"), ("keep", "u4"), ("num_walks", "u4"),
     ("walk_length", "u4"), ("restart", "u4"), ("ends", "u4"), ("num_hops", "u4"),
     ("padding", "u4"), ("num_nodes", "u8")], align=True,
)  # fmt: skip
"""``struct Walks`` of ``pinsage.cu``."""


_CALL = np.dtype([(name, np.int64) for name in (
    "seeds", "num_seeds", "batch_id", "tag", "memory", "room", "num_inverse",
)])  # fmt: skip
"""``struct Call`` of ``pinsage.cu``."""
_CALL_PACK: Any = struct.Struct("=7q").pack_into
_PLACE = np.dtype([(name, np.int64) for name in (
    "nodes", "inverse", "counts", "offsets", "neighbors", "votes", "local_ids", "num_nodes",
)])  # fmt: skip
"""``struct Place`` of ``pinsage.cu``."""
_TILE = 1024
"""Rows that a block of ``emit`` writes."""
_STRANGE, _REPEATED, _STAMP = TOTALS - 4, TOTALS - 3, TOTALS - 2


Seeds = tuple[Any, Any]
"""Seeds of a mini-batch, and the place of each given one among them; None where nobody has merged them."""


class _Shape:
    """Capacities for mini-batches of up to ``seeds`` seeds: the most that they can need, so nothing ever overflows."""

    def __init__(self, num_nodes: int, spec: WalkSpec, seeds: int, keep: int, id_bytes: int) -> None:
        self.row_caps, reached = [], min(seeds, num_nodes)
        for _ in range(spec.num_hops):
            self.row_caps.append(reached)
            reached = min(num_nodes, reached * (1 + keep))
        self.seeds = min(seeds, num_nodes)
        self.node_cap, self.rows = reached, sum(self.row_caps)
        self.slots = power_of_two(2 * reached, 64)
        self.direct = num_nodes <= self.slots
        if self.direct:
            self.slots = num_nodes
        self.num_bytes = (
            reached * id_bytes + self.slots * 12 + TOTALS * 8 + self.rows * (4 + keep * (id_bytes + 4))
        )


class _Scratch:
    """The arrays of one launch over ``count`` mini-batches, kept from launch to launch."""

    def __init__(self, graph: Any, spec: WalkSpec, shape: _Shape, count: int, keep: int) -> None:
        import cupy

        ids = graph.indices.dtype
        self.shape, self.count = shape, count
        self.nodes = cupy.empty(count * shape.node_cap, ids)
        self.keys = cupy.empty(count * shape.slots, np.uint64)
        self.locals = cupy.empty(count * shape.slots, np.uint32)
        self.totals = cupy.empty(count * TOTALS, np.uint64)
        self.counts = cupy.empty(count * shape.rows, np.int32)
        self.picks = cupy.empty(count * shape.rows * keep, ids)
        self.votes = cupy.empty(count * shape.rows * keep, np.int32)
        tiles = -(-max(shape.row_caps) // _TILE)
        self.tiles = cupy.empty(count * spec.num_hops * tiles, np.uint32)
        self.batch_ids = cupy.empty(count, np.uint32)
        self.row_begins = cupy.asarray(_exclusive(np.array(shape.row_caps)).astype(np.uint64))
        self.placed = cupy.empty(count * spec.num_hops * _PLACE.itemsize, np.uint8)
        sizes = (
            count * _CALL.itemsize,
            count * shape.seeds * 8,
            count * spec.num_hops * _PLACE.itemsize,
            count * TOTALS * 8,
        )
        parts = np.split(pinned.empty(sum(sizes)), np.cumsum(sizes)[:-1])
        self.calls, self.seeds = parts[0].view(_CALL), parts[1].view(np.int64).reshape(count, shape.seeds)
        self.call_bytes, self.places, self.host_totals = parts[0], parts[2], parts[3].view(np.int64)
        self.host_totals[:] = 0
        self.totals_view: Any = memoryview(self.host_totals)  # type: ignore[arg-type]
        self.at_home: list[int] = (self.seeds.ctypes.data + 8 * shape.seeds * np.arange(count)).tolist()
        self.stamp = 0
        self.graphs: dict[int, Any] = {}  # by number of mini-batches
        plan = np.zeros(1, dtype=_WALKS)
        plan["calls"], plan["host_totals"] = self.calls.ctypes.data, self.host_totals.ctypes.data
        plan["tile_stride"], plan["num_hops"] = tiles, spec.num_hops
        names = (
            "nodes",
            "keys",
            "locals",
            "totals",
            "counts",
            "picks",
            "votes",
            "tiles",
            "batch_ids",
            "row_begins",
        )
        for name in names:
            plan[name] = getattr(self, name).data.ptr
        plan["places"] = self.placed.data.ptr
        plan["indptr"], plan["indices"] = graph.indptr.data.ptr, graph.indices.data.ptr
        plan["node_cap"], plan["slots"], plan["row_stride"] = shape.node_cap, shape.slots, shape.rows
        plan["seed"], plan["direct"], plan["keep"] = spec.seed, shape.direct, keep
        plan["num_nodes"] = graph.num_nodes
        plan["num_walks"], plan["walk_length"] = spec.num_walks, spec.walk_length
        plan["restart"], plan["ends"] = spec.restart_below, spec.restart_ends
        self.args = as_argument(plan)

    @property
    def num_bytes(self) -> int:
        return self.count * self.shape.num_bytes


class WalkEngine:
    """Samples on the GPU for one :class:`~.sampler.PinSAGESampler`."""

    def __init__(self, graph: Any, spec: WalkSpec, scratch_bytes: int | None) -> None:
        self.graph, self.spec = graph, spec
        self.keep = min(spec.fanouts[0], spec.num_visits)
        self.id_bytes = graph.indices.dtype.itemsize
        self.lanes = min(32, power_of_two(spec.num_walks, 4))
        self.scratch_limit = runtime.scratch_bytes(scratch_bytes)
        macros: dict[str, int | str] = {"ID_T": "int" if self.id_bytes == 4 else "long", "LANES": self.lanes}
        module = kernels.load_module("sampling/walks/pinsage.cu", macros)
        names = ("begin", "close_level", "walk", "sum_tiles", "report", "emit")
        self.k = {name: module.get_function(name).kernel for name in names}
        per_row = spec.num_visits * (self.id_bytes + 4)
        fitting = _SHARED_BYTES // per_row  # at least one, because of MAX_VISITS
        self.groups = max(1, min(128 // self.lanes, fitting))
        self.shared = self.groups * per_row
        self._scratch: _Scratch | None = None
        self.waves: dict[int, Waves] = {}  # by seed capacity
        self._rooms: dict[int, Room] = {}  # likewise
        self._turns = streams.Turns(graph.indptr, graph.indices)
        self._no_position: Any = None
        self._merges = False  # until seeds were met that are not distinct

    @property
    def scratch_bytes(self) -> int:
        return 0 if self._scratch is None else self._scratch.num_bytes

    def sample_many(self, given: Sequence[Any], first_batch_id: int) -> list[MiniBatch]:
        """Sample mini-batches with consecutive batch ids; :mod:`.waves` chooses how many share a launch.

        ``given``: the seeds of each; on the host checked, on the GPU not. From the first seeds on that are not distinct
        they are merged on the host before they are launched.

        Raises:
            ValueError: seeds on the GPU that are no vertices.
        """
        seeds = [self._seeds(s) for s in given]
        most = power_of_two(max(int(s.size) for s, _ in seeds), 64)
        shape = _Shape(self.graph.num_nodes, self.spec, most, self.keep, self.id_bytes)
        if len(seeds) == 1:
            return self._wave(shape, seeds, first_batch_id)
        waves = self.waves.get(most)
        if waves is None:
            at_once = max(1, min(MAX_AT_ONCE, self.scratch_limit // shape.num_bytes))
            waves = self.waves[most] = Waves(at_once, at_once)
        result: list[MiniBatch] = []
        for size in waves.timed(len(seeds)):
            begin = len(result)
            result += self._wave(shape, seeds[begin : begin + size], first_batch_id + begin)
        return result

    def _seeds(self, given: Any) -> Seeds:
        if self._merges or given.size > self.graph.num_nodes:
            return self._merged(given)
        if given.dtype != np.int64:
            given = given.astype(np.int64)
        if not isinstance(given, np.ndarray) and not given.flags.c_contiguous:
            given = given.copy()
        return given, None

    def _merged(self, given: Any) -> Seeds:
        """Distinct seeds, on the host, and the place of each given one among them."""
        if not isinstance(given, np.ndarray):
            given = given.get()
            if not ((given >= 0) & (given < self.graph.num_nodes)).all():
                raise self._no_vertex()
        return merge_duplicates(given)[:2]

    def _no_vertex(self) -> ValueError:
        return ValueError(f"seeds must be vertex ids in 0..{self.graph.num_nodes - 1} (got one outside)")

    def _take_scratch(self, shape: _Shape, count: int) -> _Scratch:
        held = self._scratch
        if held is None or held.count < count or held.shape.row_caps[0] < shape.row_caps[0]:
            if held is not None:
                self._abandon()  # give the memory back first
            with streams.leasing(self._turns):
                held = self._scratch = _Scratch(self.graph, self.spec, shape, count, self.keep)
        return held

    def _grid(self, items: int, per_block: int, rows: int) -> tuple[int, int]:
        most = max(1, _BLOCKS_PER_SM * runtime.num_sms() // rows)
        return max(1, min(most, -(-items // per_block))), rows

    def _wave(self, shape: _Shape, seeds: Sequence[Seeds], first_batch_id: int) -> list[MiniBatch]:
        self._turns.take()
        try:
            return self._sampled(shape, seeds, first_batch_id)
        finally:
            self._turns.leave()

    def _sampled(self, shape: _Shape, seeds: Sequence[Seeds], first_batch_id: int) -> list[MiniBatch]:
        """The mini-batches of one launch; the GPU may still write them."""
        ws = self._take_scratch(shape, len(seeds))
        sizes = self._rooms.setdefault(shape.row_caps[0], Room())
        memories, room = self._memories(len(seeds), sizes.bytes())
        try:
            self._launch(ws, seeds, first_batch_id, memories, room)
            for i in range(len(seeds)):
                await_word(
                    ws.totals_view, i * TOTALS + _STAMP, ws.stamp, "random walks did not report their totals"
                )
            words: list[int] = ws.totals_view[: len(seeds) * TOTALS].tolist()
        except BaseException:
            self._abandon()
            raise
        totals = [words[at : at + TOTALS] for at in range(0, len(words), TOTALS)]
        if any(found[-1] for found in totals):
            self._scratch = None
            raise RuntimeError(
                "a random walk found no room for a vertex: other work on the GPU has overwritten its memory; "
                "no sample was made"
            )
        if any(found[_STRANGE] for found in totals):
            raise self._no_vertex()
        if any(found[_REPEATED] for found in totals):
            memories.clear()  # the next launch has memory of its own
            self._merges = True
            merged = [self._merged(s) if inverse is None else (s, inverse) for s, inverse in seeds]
            return self._sampled(shape, merged, first_batch_id)
        views = [self._view(found, given) for found, given in zip(totals, seeds, strict=True)]
        for view in views:
            sizes.saw(view.num_bytes)
        missing = [i for i, view in enumerate(views) if view.num_bytes > room]
        if missing:
            memories = memories or [None] * len(seeds)
            self._write_again(ws, views, memories, missing)
        return self._batches(views, memories, seeds, first_batch_id)

    @staticmethod
    def _memories(count: int, size: int) -> tuple[list[Any], int]:
        """Memory for the arrays of ``count`` mini-batches, and how much each has; none where no size is known."""
        import cupy

        try:
            return [cupy.cuda.alloc(size) for _ in range(count)] if size else [], size
        except cupy.cuda.memory.OutOfMemoryError:  # what the mini-batches really need may still be there
            return [], 0

    def _view(self, found: list[int], given: Seeds) -> _View:
        """The arrays of a mini-batch of these totals, which have no memory yet."""
        hops = self.spec.num_hops
        levels, edges = found[1 : 2 + hops], found[17 : 17 + hops]
        return _View(self.graph.indices.dtype, levels, edges, _num_inverse(given))

    def _abandon(self) -> None:
        """Forget the scratch memory after a failure or an interrupt, whose launch may still be under way."""
        import cupy

        try:
            cupy.cuda.get_current_stream().synchronize()  # kernels may still write to pinned memory
        finally:
            self._scratch = None

    def _launch(
        self, ws: _Scratch, seeds: Sequence[Seeds], first_batch_id: int, memories: Sequence[Any], room: int
    ) -> None:
        """Write what the kernels read from host memory, and launch them; ``memories``: of ``room`` bytes, or none."""
        import cupy

        count = len(seeds)
        for i, given in enumerate(seeds):
            distinct = given[0]
            if isinstance(distinct, np.ndarray):
                ws.seeds[i, : distinct.size] = distinct
                address = ws.at_home[i]
            else:  # the host waits for the sizes, and these are read before
                address = distinct.data.ptr
            _CALL_PACK(
                ws.call_bytes, i * _CALL.itemsize, address, distinct.size, first_batch_id + i, 0,
                memories[i].ptr if memories else 0, room, _num_inverse(given),
            )  # fmt: skip
        self._stamp(ws)
        stream = cupy.cuda.get_current_stream()
        if count not in ws.graphs:
            ws.graphs[count] = capture(lambda: self._work(ws, count), dependent=False)
            stream.synchronize()  # the first run, before the capture, has told the stamp
            self._stamp(ws)
        ws.graphs[count].launch(stream)

    @staticmethod
    def _stamp(ws: _Scratch) -> None:
        ws.stamp += 1
        ws.calls["tag"] = ws.stamp

    def _work(self, ws: _Scratch, count: int) -> None:
        k, shape, hops = self.k, ws.shape, self.spec.num_hops
        ws.keys.data.memset_async(0, count * shape.slots * 8)
        ws.totals.data.memset_async(0, count * TOTALS * 8)
        k["begin"](self._grid(shape.seeds, 128, count), (128,), (ws.args,))
        for hop, cap in enumerate(shape.row_caps):
            grid = self._grid(cap, self.groups, count)
            k["walk"](grid, (self.groups * self.lanes,), (ws.args, np.int32(hop)), shared_mem=self.shared)
            k["close_level"]((count,), (32,), (ws.args, np.int32(hop)))
        k["sum_tiles"](self._grid(max(shape.row_caps), _TILE, count * hops), (256,), (ws.args,))
        k["report"]((count,), (64,), (ws.args,))
        self._write(ws, max(shape.row_caps), count, ws.placed.data.ptr)

    def _write(self, ws: _Scratch, rows: int, count: int, places: int) -> None:
        """Launch what writes the arrays of ``count`` mini-batches, of up to ``rows`` rows a hop, to ``places``."""
        grid = self._grid(rows, _TILE, count * self.spec.num_hops)
        self.k["emit"](grid, (256,), (ws.args, np.uintp(places)))

    def _write_again(
        self, ws: _Scratch, views: Sequence[_View], memories: list[Any], missing: Sequence[int]
    ) -> None:
        """Allocate ``memories`` of exact size for the mini-batches ``missing``, and write them; asynchronous."""
        import cupy

        for i in missing:
            memories[i] = None  # what was too small, before there is more
        ws.places[:] = 0  # nowhere: the others are written
        for i in missing:
            memories[i] = cupy.cuda.alloc(views[i].num_bytes)
            views[i].write_places(ws.places, i, memories[i].ptr)
        rows = max(views[i].levels[-2] for i in missing)
        self._write(ws, rows, len(views), ws.places.ctypes.data)

    def _batches(
        self, views: Sequence[_View], memories: Sequence[Any], seeds: Sequence[Seeds], first: int
    ) -> list[MiniBatch]:
        """The mini-batches of a launch."""
        import cupy

        hops, ready = self.spec.num_hops, streams.Ready()
        longest = max(max(view.edges) for view in views)
        if self._no_position is None or self._no_position.size < longest:
            room = power_of_two(longest, 1024)
            self._no_position = streams.leased(cupy.full(room, -1, dtype=np.int64), self._turns)
        minus_one = streams.leased(self._no_position, ready)
        batches = []
        for i, (view, memory, (_, inverse)) in enumerate(zip(views, memories, seeds, strict=True)):
            view.memory, view.minus_one = streams.lease(memory, ready), minus_one
            inverted = view.inverse() if view.seeds else streams.leased(cupy.asarray(inverse), ready)
            batches.append(
                MiniBatch(
                    view.nodes(), tuple(view.levels), LazyTuple(hops, view.picks), LazyTuple(hops, view.local),
                    inverted, first + i, self.spec, self.graph, pick_weights=LazyTuple(hops, view.votes), ready=ready,
                )
            )  # fmt: skip
        return batches


def _num_inverse(given: Seeds) -> int:
    """Seeds whose inverse is their own number, which the GPU writes; 0 where the host has merged some."""
    distinct, inverse = given
    return 0 if inverse is not None and inverse.size != distinct.size else int(distinct.size)


class _View:
    """The arrays of one mini-batch, in one block of memory.

    Args:
        ids: dtype of vertex ids.
        levels, edges: vertices before each hop and of all; picks of each hop.
        seeds: seeds whose inverse lies here, 0 where the host has it.

    Attributes:
        memory: the block, told later; ``lay_out`` in ``pinsage.cu`` has the same places in it.
        minus_one: positions of picks, which have none.
    """

    memory: Any
    minus_one: Any

    def __init__(self, ids: Any, levels: list[int], edges: list[int], seeds: int) -> None:
        self.ids, self.levels, self.edges, self.seeds = ids, levels, edges, seeds
        width = ids.itemsize
        sizes = [levels[-1] * width, seeds * 8]
        for rows, picks in zip(levels, edges, strict=False):
            sizes += (rows * 4, rows * 8 + 8, picks * width, picks * 4, picks * 4)
        self._at = list(accumulate([(size + 255) & -256 for size in sizes], initial=0))
        self.num_bytes = self._at[-1]

    def write_places(self, memory: Any, number: int, begin: int) -> None:
        """Write where the arrays lie in memory at the address ``begin``: :data:`_PLACE`, an entry a hop.

        Args:
            memory: of the entries of all mini-batches, bytes. ``number``: of this one.
        """
        at, hops = [begin + place for place in self._at], len(self.edges)
        words = [begin, at[1] if self.seeds else 0, *at[2:7], self.levels[-1]]
        for hop in range(1, hops):
            words += (0, 0, *at[2 + 5 * hop : 7 + 5 * hop], 0)
        # One ``struct`` call is several times faster than setting NumPy fields.
        struct.pack_into(f"={len(words)}q", memory, number * hops * _PLACE.itemsize, *words)

    def _array(self, number: int, size: int, dtype: Any) -> Any:
        import cupy

        return cupy.ndarray((size,), dtype, self.memory + self._at[number])

    def nodes(self) -> Any:
        return self._array(0, self.levels[-1], self.ids)

    def inverse(self) -> Any:
        return self._array(1, self.seeds, np.int64)

    def picks(self, hop: int) -> HopPicks:
        rows, picks, at = self.levels[hop], self.edges[hop], 2 + 5 * hop
        return HopPicks(
            self._array(0, rows, self.ids), self._array(at, rows, np.int32), self._array(at + 2, picks, self.ids),
            self.minus_one[:picks], self._array(at + 1, rows + 1, np.int64),
        )  # fmt: skip

    def votes(self, hop: int) -> Any:
        return self._array(5 + 5 * hop, self.edges[hop], np.int32)

    def local(self, hop: int) -> Any:
        return self._array(6 + 5 * hop, self.edges[hop], np.int32)


def _exclusive(sizes: np.ndarray) -> np.ndarray:
    """Exclusive prefix sums of ``sizes`` and their total: ``int64[n + 1]``."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)])
