"""Compact a launch's rows into mini-batches with local ids (kernels in ``finish.cu``).

The arrays of a mini-batch lie in one arena: memory that is allocated before the launch, by the sizes of earlier
mini-batches, or after it where that was too small. Each mini-batch has an arena of its own, so that one that is kept
holds no other. Views of the arrays are made when somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, overload

import numpy as np

from gnnsample_lab.device import kernels, streams
from gnnsample_lab.minibatch.types import Block, MiniBatch
from gnnsample_lab.sampling.neighbors.launch import Launcher
from gnnsample_lab.sampling.neighbors.plan import PLACE, SCAN_TILE, WANTED_EDGES, as_argument
from gnnsample_lab.sampling.neighbors.spec import HopPicks
from gnnsample_lab.sampling.neighbors.workspace import Workspace

ROOM_WINDOW = 64
"""Mini-batches after which :class:`Room` forgets those before the last as many."""


class LazyTuple(Sequence[Any]):
    """A sequence that makes an item when it is first read, because a training loop reads few of a batch's arrays."""

    def __init__(self, length: int, make: Callable[[int], Any]) -> None:
        self._items: list[Any] = [None] * length
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        item = self._items[index]
        if item is None:
            item = self._items[index] = self._make(index % len(self._items))
        return item

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))


@dataclass(frozen=True)
class Place:
    """Where the arrays of a mini-batch lie in its arena, in bytes (``lay_out`` in ``finish.cu`` has the same rule).

    Attributes:
        nodes, inverse: node ids; the distinct seed of each given one, ``int64``.
        wide_nodes: node ids as ``int64``; None where nobody wanted them.
        offsets, positions, locals: per hop, ``int64``, ``int64`` and ``int32``. Under ``expand="new"`` those of all
            hops follow one another without a gap, and offsets count over all hops.
        edges: per hop, local sources and behind them destinations, ``int64``; under ``expand="new"`` destinations are
            behind the sources of all hops. None where nobody wanted them.
    """

    nodes: int
    inverse: int
    wide_nodes: int | None
    offsets: tuple[int, ...]
    positions: tuple[int, ...]
    locals: tuple[int, ...]
    edges: tuple[int, ...] | None
    end: int


def lay_out(
    id_bytes: int,
    new: bool,
    wanted: int,
    num_nodes: int,
    rows: Sequence[int],
    edges: Sequence[int],
    num_seeds: int,
) -> Place:
    """The places of a mini-batch with ``rows`` and ``edges`` by hop."""
    end = 0

    def array(size: int) -> int:
        nonlocal end
        begin = end
        end += (size + 255) & -256
        return begin

    def arrays(sizes: Iterable[int]) -> tuple[int, ...]:
        begins, total = [], 0
        for size in sizes:
            begins.append(total)
            total += size if new else (size + 255) & -256
        begin = array(total)
        return tuple(begin + at for at in begins)

    nodes = array(num_nodes * id_bytes)
    wide = None
    if wanted & WANTED_EDGES:
        wide = nodes if id_bytes == 8 else array(num_nodes * 8)
    inverse = array(num_seeds * 8)
    last = len(rows) - 1
    offsets = arrays((n + (not new or hop == last)) * 8 for hop, n in enumerate(rows))
    positions, local = arrays(e * 8 for e in edges), arrays(e * 4 for e in edges)
    pairs = None
    if wanted & WANTED_EDGES:
        if new:
            begin = array(sum(edges) * 16)
            pairs = tuple(begin + at * 8 for at in accumulate(edges[:-1], initial=0))
        else:
            pairs = arrays(e * 16 for e in edges)
    return Place(nodes, inverse, wide, offsets, positions, local, pairs, end)


class Room:
    """How large the arena of the next mini-batch is to be: a quarter more than the largest of the last ones."""

    def __init__(self) -> None:
        self._recent = self._before = self._seen = 0

    def bytes(self) -> int:
        """Bytes for the next mini-batch; 0 while none has been seen."""
        most = max(self._recent, self._before)
        return (most + most // 4 + 511) & -512

    def saw(self, need: int) -> None:
        """Note a mini-batch of ``need`` bytes."""
        self._recent = max(self._recent, need)
        self._seen += 1
        if self._seen == ROOM_WINDOW:
            self._before, self._recent, self._seen = self._recent, 0, 0


class Wishes:
    """What the mini-batches of an engine hold besides their usual arrays; exports set it when they miss something."""

    def __init__(self) -> None:
        self.bits = 0


@dataclass(frozen=True)
class Arenas:
    """The arenas of a launch, one for each mini-batch.

    Attributes:
        memories: the memory of each, or nothing at all where no size was known.
        room: bytes of each.
        wanted: what they hold besides the usual arrays; wishes: what later ones are to hold.
    """

    memories: Sequence[Any]
    room: int
    wanted: int
    wishes: Wishes


NO_ARENAS = Arenas((), 0, 0, Wishes())


class Arena:
    """The arrays of one mini-batch, in memory that is leased to ``ready``.

    Attributes:
        levels: sizes of the levels; rows, edges: by hop.
        bytes: of all arrays.
        wanted: what the arena holds besides the usual arrays; wishes: what later ones are to hold.
    """

    def __init__(
        self, id_dtype: Any, spec: Any, totals: list[int], num_seeds: int, wanted: int, wishes: Wishes, memory: Any,
        ready: streams.Ready,
    ) -> None:  # fmt: skip
        hops = spec.num_hops
        self.id_dtype, self.spec, self.num_seeds = id_dtype, spec, num_seeds
        self.levels, self.edges = tuple(totals[1 : hops + 2]), totals[17 : 17 + hops]
        self.new, self.bytes = spec.expand == "new", totals[62]
        self.wanted, self.wishes, self.memory, self.ready = wanted, wishes, memory, ready

    @cached_property
    def rows(self) -> list[int]:
        levels = self.levels
        return [levels[0], *(b - a for a, b in pairwise(levels[:-1]))] if self.new else list(levels[:-1])

    @cached_property
    def place(self) -> Place:
        return lay_out(
            self.id_dtype.itemsize,
            self.new,
            self.wanted,
            self.levels[-1],
            self.rows,
            self.edges,
            self.num_seeds,
        )

    def view(self, at: int, size: int, dtype: Any) -> Any:
        """``size`` elements from byte ``at`` on, a CuPy array that holds the arena."""
        import cupy

        return cupy.ndarray((size,), dtype, self.memory + at)

    def nodes(self) -> Any:
        return self.view(self.place.nodes, self.levels[-1], self.id_dtype)

    def local_ids(self, hop: int) -> Any:
        return self.view(self.place.locals[hop], self.edges[hop], np.int32)

    def picks(self, hop: int, nodes: Any) -> HopPicks:
        """The picks of a hop with their global ids, which are looked up now: the host waits for them."""
        import cupy

        n, place = self.rows[hop], self.place
        begin = self.levels[hop - 1] if self.new and hop else 0
        positions = self.view(place.positions[hop], self.edges[hop], np.int64)
        offsets = self.view(place.offsets[hop], n + 1, np.int64)
        self.ready.order()
        with streams.leasing():
            counts = cupy.diff(offsets).astype(np.int32)
            neighbors = nodes[self.local_ids(hop)]
            if self.new and hop:
                offsets = offsets - offsets[0]
        # Whoever has waited for the mini-batch may read these too, on any stream.
        cupy.cuda.get_current_stream().synchronize()
        return HopPicks(nodes[begin : begin + n], counts, neighbors, positions, offsets)

    def block(self, hop: int, nodes: Any) -> Block:
        """The block of a hop: of its own picks, or under ``expand="new"`` of all picks so far."""
        place, new = self.place, self.new
        edges = sum(self.edges[: hop + 1]) if new else self.edges[hop]
        first = 0 if new else hop
        num_dst = self.levels[hop]
        src = nodes[: self.levels[hop + 1]]
        return Block(
            src, src[:num_dst],
            self.view(place.offsets[first], num_dst + 1, np.int64),
            self.view(place.locals[first], edges, np.int32),
            self.view(place.positions[first], edges, np.int64),
        )  # fmt: skip


class ArenaBatch(MiniBatch):
    """A mini-batch in an :class:`Arena`: its arrays are made when somebody reads them."""

    # A training loop reads few of the arrays, and making all of them takes as long as a small sample.

    @classmethod
    def of(cls, arena: Arena, batch_id: int, graph: Any) -> ArenaBatch:
        made = object.__new__(cls)
        made.__dict__.update(
            arena=arena, level_sizes=arena.levels, batch_id=batch_id, spec=arena.spec, graph=graph, trace=None,
            pick_weights=None, ready=arena.ready,
        )  # fmt: skip
        return made

    def __getattr__(self, name: str) -> Any:
        arena = self.__dict__.get("arena")
        if arena is None or name not in _LAZY:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = _LAZY[name](self, arena)
        self.__dict__[name] = found
        return found

    @cached_property
    def _blocks(self) -> tuple[tuple[Block, ...], Any]:
        arena = self.__dict__.get("arena")
        if arena is None:  # a copy with other fields
            return self._made_blocks()
        nodes = self.node_ids
        return tuple(arena.block(hop, nodes) for hop in reversed(range(self.spec.num_hops))), self.ready


_LAZY: dict[str, Callable[[ArenaBatch, Arena], Any]] = {
    "node_ids": lambda batch, arena: arena.nodes(),
    "seed_inverse": lambda batch, arena: arena.view(arena.place.inverse, arena.num_seeds, np.int64),
    "picks": lambda batch, arena: LazyTuple(len(arena.edges), lambda hop: arena.picks(hop, batch.node_ids)),
    "local_neighbors": lambda batch, arena: LazyTuple(len(arena.edges), arena.local_ids),
}


class Finisher:
    """Launches the kernels of ``finish.cu``: scan, then emit."""

    def __init__(self, launcher: Launcher, queued: bool) -> None:
        self.launcher, self.spec, self.queued = launcher, launcher.spec, queued
        self._modules: dict[int, dict[str, Any]] = {}

    def _kernels(self, table: int) -> dict[str, Any]:
        if table not in self._modules:
            macros: dict[str, int | str] = {"ID_T": self.launcher.id_type, "TABLE_KIND": table}
            module = kernels.load_module("minibatch/gpu/finish.cu", macros)
            names = ("reach", "map_rows", "scan_rows", "rank_words", "rank_order", "emit", "emit_at")
            self._modules[table] = {name: module.get_function(name).kernel for name in names}
        return self._modules[table]

    def _grid(self, ws: Workspace, items: int, per_block: int) -> tuple[int, int]:
        most = max(1, self.launcher.knobs.blocks_per_sm["emit"] * self.launcher.sms // ws.shape.num_batches)
        return max(1, min(most, -(-items // per_block))), ws.shape.num_batches

    def scan(self, ws: Workspace) -> None:
        """Levels (queue strategies), local ids (bitmaps), row offsets and totals; asynchronous."""
        k = self._kernels(ws.shape.table)
        if self.queued:
            warps = 4 if self.launcher.wide_ids else 8
            for hop, cap in enumerate(ws.shape.row_caps):
                k["reach"](self._grid(ws, cap, warps), (warps * 32,), (ws.args, np.int32(hop)))
        if ws.shape.table == 1:
            words = int(ws.plan["table"]["stride"][0])
            k["rank_words"](
                self._grid(ws, words, SCAN_TILE), (256,), (ws.args, ws.rank_state, np.uint64(ws.rank_tiles))
            )
            k["rank_order"](self._grid(ws, ws.shape.node_cap, 256), (256,), (ws.args,))
        if self.queued:
            for rows in ws.row_map:
                rows.data.memset_async(0xFF, rows.nbytes)
            k["map_rows"](self._grid(ws, max(ws.shape.row_caps), 256), (256,), (ws.args,))
        k["scan_rows"](self._grid(ws, ws.shape.row_total, SCAN_TILE), (256,), (ws.args,))

    def emit(self, ws: Workspace) -> None:
        """Fill the arenas that the records of the mini-batches name, where they are large enough; asynchronous."""
        self._kernels(ws.shape.table)["emit"](self._grid(ws, max(ws.shape.row_caps), 8), (256,), (ws.args,))

    def collect(
        self, ws: Workspace, seeds: Sequence[Any], first_batch_id: int, graph: Any, arenas: Arenas = NO_ARENAS
    ) -> list[MiniBatch]:
        """The mini-batches of a launch whose totals are known; asynchronous."""
        import cupy

        view, memories, ids = ws.totals_view, list(arenas.memories), graph.indices.dtype
        totals = [view[at : at + 63].tolist() for at in range(0, len(seeds) * 64, 64)]
        missing = [i for i, found in enumerate(totals) if found[62] > arenas.room]
        if missing:
            memories = memories or [None] * len(seeds)
            for i in missing:
                memories[i] = cupy.cuda.alloc(totals[i][62])
            self._emit_at(ws, memories, totals, missing)
        ready = streams.Ready()
        batches: list[MiniBatch] = []
        for i, memory in enumerate(memories):
            arena = Arena(
                ids, self.spec, totals[i], int(seeds[i].size), arenas.wanted, arenas.wishes,
                streams.lease(memory, ready), ready,
            )  # fmt: skip
            batches.append(ArenaBatch.of(arena, first_batch_id + i, graph))
        return batches

    def _emit_at(self, ws: Workspace, memories: Sequence[Any], totals: Any, missing: Sequence[int]) -> None:
        import cupy

        count = len(memories)
        places = np.zeros(count, PLACE)
        for i in missing:
            places[i] = memories[i].ptr, totals[i][62]
        hops = self.spec.num_hops
        rows = max(
            totals[i][hops] for i in missing
        )  # vertices before the last hop, the most that a hop expands
        kernel = self._kernels(ws.shape.table)["emit_at"]
        on_gpu = cupy.asarray(places.view(np.uint64)) if count > 1 else None
        address = np.uint64(0 if on_gpu is None else on_gpu.data.ptr)
        kernel(self._grid(ws, rows, 8), (256,), (ws.args, as_argument(places[:1]), address))
