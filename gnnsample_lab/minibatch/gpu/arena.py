"""The memory of a mini-batch: one arena for all its arrays, which the kernels of ``finish.cu`` fill.

An arena is allocated before the launch, by the sizes of earlier mini-batches, or after it where that was too small.
Each mini-batch has one of its own, so that one that is kept holds no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, overload

import numpy as np

from gnnsample_lab.device import pools, streams
from gnnsample_lab.minibatch.types import Block, MiniBatch
from gnnsample_lab.sampling.neighbors.plan import WANTED_EDGES, WANTED_ROWS
from gnnsample_lab.sampling.neighbors.spec import HopPicks
from gnnsample_lab.sampling.neighbors.workspace import TOTALS_BYTES

ROOM_WINDOW = 64
"""Mini-batches after which :class:`Room` forgets those before the last as many."""
ROOM_SETTLED = 16
"""Mini-batches that :class:`Room` has to see before it knows how far they lie apart."""
_NOTHING = 1 << 62
"""More than the least that any mini-batch needs."""


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


class Place(NamedTuple):
    """Where the arrays of a mini-batch lie in its arena, in bytes (``lay_out`` in ``finish.cu`` has the same rule).

    Attributes:
        nodes, inverse: node ids; the distinct seed of each given one, ``int64``.
        wide_nodes: node ids as ``int64``; None where nobody wanted them.
        offsets, positions, locals: per hop, ``int64``, ``int64`` and ``int32``. Under ``expand="new"`` those of all
            hops follow one another without a gap, and offsets count over all hops.
        edges: per hop, local sources and behind them destinations, ``int64``; under ``expand="new"`` destinations are
            behind the sources of all hops. None where nobody wanted them.
        end: of all these; rows of features follow where somebody wanted them.
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
    nodes, end = 0, _up(num_nodes * id_bytes)
    wide = None
    if wanted & WANTED_EDGES:
        wide = nodes if id_bytes == 8 else end
        end += 0 if id_bytes == 8 else _up(num_nodes * 8)
    inverse = end
    end += _up(num_seeds * 8)
    if new:
        return _laid_out_together(nodes, inverse, wide, end, rows, edges)
    begins = []
    # An offset more than rows.
    for sizes, item, more in (
        (rows, 8, 8),
        (edges, 8, 0),
        (edges, 4, 0),
        (edges if wide is not None else (), 16, 0),
    ):
        begin = []
        for n in sizes:
            begin.append(end)
            end += (n * item + more + 255) & -256  # as _up, which would take as long as all the rest
        begins.append(tuple(begin))
    offsets, positions, local, pairs = begins
    return Place(nodes, inverse, wide, offsets, positions, local, None if wide is None else pairs, end)


def _laid_out_together(
    nodes: int, inverse: int, wide: int | None, end: int, rows: Sequence[int], edges: Sequence[int]
) -> Place:
    """:func:`lay_out` under ``expand="new"``, from byte ``end`` on: all hops share one array of each kind."""
    # Written out, since this takes as long as making an array does.
    offsets, positions, local = [], [], []
    for n in rows:
        offsets.append(end)
        end += 8 * n
    begin = end = (end + 8 + 255) & -256
    for n in edges:
        positions.append(end)
        end += 8 * n
    num_edges = (end - begin) >> 3
    end = (end + 255) & -256
    for n in edges:
        local.append(end)
        end += 4 * n
    end = (end + 255) & -256
    pairs = None
    if wide is not None:
        pairs = tuple([end + (at - begin) for at in positions])
        end += _up(num_edges * 16)
    return Place(nodes, inverse, wide, tuple(offsets), tuple(positions), tuple(local), pairs, end)


def _up(size: int) -> int:
    """``size`` bytes, rounded up to where the next array begins."""
    return (size + 255) & -256


class Room:
    """How large the arena of the next mini-batch is to be: more than the largest of the last ones.

    It is larger by as much as those lie apart, by at least a 32nd and by at most a quarter: mini-batches of one number
    of seeds differ by a few percent, and what an arena has too much is held as long as its mini-batch. Of few sizes,
    since a pool that has none so large asks the driver, for each arena of a launch.
    """

    def __init__(self) -> None:
        self._least, self._most, self._seen = _NOTHING, 0, 0
        self._before = _NOTHING, 0  # of the window before

    def bytes(self) -> int:
        """Bytes for the next mini-batch; 0 while none has been seen."""
        least, most = self._before
        least, most = min(least, self._least), max(most, self._most)
        more = most // 4
        if self._seen >= ROOM_SETTLED or self._before[1]:
            more = min(more, max(most // 32, most - least))
        return (pools.rounded(most + more) + 511) & -512

    def saw(self, need: int) -> None:
        """Note a mini-batch of ``need`` bytes."""
        self._least, self._most = min(self._least, need), max(self._most, need)
        self._seen += 1
        if self._seen == ROOM_WINDOW:
            self._before, self._least, self._most, self._seen = (self._least, self._most), _NOTHING, 0, 0


class Wishes:
    """What the mini-batches of an engine hold besides their usual arrays; exports set it when they miss something.

    Attributes:
        bits: ``WANTED_`` ones.
        sums: rows are no features, but what a fused sampler makes of them (:attr:`.rows.RowTable.sums`).
    """

    def __init__(self) -> None:
        self.bits, self.sums = 0, False


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

    Args:
        totals: what the scan has reported; None if the scan still runs, and :meth:`learn` is called later.

    Attributes:
        levels: sizes of the levels; rows, edges: by hop.
        bytes: of all arrays.
        wanted: what the arena holds besides the usual arrays; wishes: what later ones are to hold.
    """

    def __init__(
        self, id_dtype: Any, spec: Any, totals: list[int] | None, num_seeds: int, wanted: int, wishes: Wishes,
        memory: Any, ready: streams.Ready,
    ) -> None:  # fmt: skip
        self.id_dtype, self.spec, self.num_seeds, self.new = id_dtype, spec, num_seeds, spec.expand == "new"
        self.wanted, self.wishes, self.memory, self.ready = wanted, wishes, memory, ready
        if totals is not None:
            self.learn(totals)

    def learn(self, totals: list[int]) -> None:
        """Take the sizes from what the scan has reported."""
        hops = self.spec.num_hops
        self.levels, self.edges = tuple(totals[1 : hops + 2]), totals[17 : 17 + hops]
        self.bytes = totals[TOTALS_BYTES]

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

    @property
    def holds_rows(self) -> bool:
        """Whether the rows of the graph's features lie behind the other arrays, from ``place.end`` on."""
        return bool(self.wanted & WANTED_ROWS) and not self.wishes.sums

    @property
    def holds_sums(self) -> bool:
        """Whether what a fused sampler makes of rows lies there."""
        return bool(self.wanted & WANTED_ROWS) and self.wishes.sums

    def first_of_block(self, hop: int) -> int:
        """The hop with which the arrays of the block of a hop begin."""
        return 0 if self.new else hop

    def edges_of_block(self, hop: int) -> int:
        """Edges of the block of a hop."""
        return sum(self.edges[: hop + 1]) if self.new else self.edges[hop]

    def local_ids(self, hop: int) -> Any:
        return self.view(self.place.locals[hop], self.edges[hop], np.int32)

    def picks(self, hop: int) -> HopPicks:
        """The picks of a hop with their global ids, which are looked up now: the host waits for them."""
        import cupy

        nodes = self.view(self.place.nodes, self.levels[-1], self.id_dtype)
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


class Made:
    """A field of a :class:`Lazily`, made by ``make(object)`` when somebody reads it first."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make

    def __set_name__(self, owner: Any, name: str) -> None:
        self._name = name

    def __get__(self, made: Any, owner: Any = None) -> Any:
        if made is None:
            return self
        found = made.__dict__[self._name] = self._make(made)  # which Python finds before this from now on
        return found


class Lazily:
    """A dataclass some of whose fields are :class:`Made`.

    A training loop reads few of a mini-batch's arrays, and making all of them takes as long as a small sample.
    """

    @classmethod
    def of(cls, **known: Any) -> Any:
        """An object with these fields; the others are made."""
        made = object.__new__(cls)
        made.__dict__.update(known)
        return made


class ArenaBlock(Lazily, Block):
    """The block of a hop in an :class:`Arena`: of its own picks, or under ``expand="new"`` of all picks so far."""

    arena: Arena
    hop: int
    first: int

    src = Made(lambda block: block.arena.view(block.arena.place.nodes, block.num_src, block.arena.id_dtype))
    dst = Made(lambda block: block.arena.view(block.arena.place.nodes, block.num_dst, block.arena.id_dtype))
    indptr = Made(
        lambda block: block.arena.view(block.arena.place.offsets[block.first], block.num_dst + 1, np.int64)
    )
    indices = Made(
        lambda block: block.arena.view(block.arena.place.locals[block.first], block.num_edges, np.int32)
    )
    edge_positions = Made(
        lambda block: block.arena.view(block.arena.place.positions[block.first], block.num_edges, np.int64)
    )

    @classmethod
    def at(cls, arena: Arena, hop: int) -> ArenaBlock:
        made: ArenaBlock = cls.of(arena=arena, hop=hop, first=arena.first_of_block(hop), weight=None, kept={})
        return made

    @property
    def addresses(self) -> tuple[int, int] | None:
        """Of :attr:`indptr` and :attr:`indices`, without making the arrays; None in a copy with another field."""
        arena = self.__dict__.get("arena")
        if arena is None:
            return None
        begin, place = arena.memory.ptr, arena.place
        return begin + place.offsets[self.first], begin + place.locals[self.first]

    # A copy with another field has its arrays and no arena.
    @property
    def num_src(self) -> int:
        return int(self.arena.levels[self.hop + 1]) if "arena" in self.__dict__ else super().num_src

    @property
    def num_dst(self) -> int:
        return int(self.arena.levels[self.hop]) if "arena" in self.__dict__ else super().num_dst

    @property
    def num_edges(self) -> int:
        return int(self.arena.edges_of_block(self.hop)) if "arena" in self.__dict__ else super().num_edges


class ArenaBatch(Lazily, MiniBatch):
    """A mini-batch in an :class:`Arena`."""

    arena: Arena

    # The makers leave no reference to the mini-batch behind: in a cycle its memory would wait for Python's collector.
    level_sizes = Made(lambda batch: batch.arena.levels)
    node_ids = Made(
        lambda batch: batch.arena.view(batch.arena.place.nodes, batch.arena.levels[-1], batch.arena.id_dtype)
    )
    seed_inverse = Made(
        lambda batch: batch.arena.view(batch.arena.place.inverse, batch.arena.num_seeds, np.int64)
    )
    picks = Made(lambda batch: LazyTuple(len(batch.arena.edges), batch.arena.picks))
    local_neighbors = Made(lambda batch: LazyTuple(len(batch.arena.edges), batch.arena.local_ids))

    @classmethod
    def at(cls, arena: Arena, batch_id: int, graph: Any) -> ArenaBatch:
        made: ArenaBatch = cls.of(
            arena=arena, batch_id=batch_id, spec=arena.spec, graph=graph, trace=None, pick_weights=None,
            ready=arena.ready,
        )  # fmt: skip
        return made

    @property
    def edges_by_hop(self) -> list[int]:
        arena = self.__dict__.get("arena")
        return super().edges_by_hop if arena is None else list(arena.edges)

    @cached_property
    def _blocks(self) -> tuple[tuple[Block, ...], Any]:
        arena = self.__dict__.get("arena")
        if arena is None:  # a copy with another field
            return self._made_blocks()
        hops = reversed(range(self.spec.num_hops))
        return tuple(ArenaBlock.at(arena, hop) for hop in hops), self.ready
