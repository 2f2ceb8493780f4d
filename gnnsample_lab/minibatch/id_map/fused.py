"""ID maps that assign local ids while they insert: FastGL's Fused-Map as published (``algorithm_2.cu``), and ours
(``fused.cu``): the same with one addition a block, and direct addressing.

One launch inserts a hop's picks. Another looks up picks, of one hop or at the end of all hops. Destinations need no
insertion: the table lives longer than a hop, so it already has them, as picks of earlier hops or as seeds.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, streams
from gnnsample_lab.sampling.neighbors.sizes import power_of_two
from gnnsample_lab.sampling.neighbors.spec import MAX_HOPS

from .gpu import GpuMap, Report, check_items, raw_argument

MAP_KINDS = ("direct", "stamped", "cleared")
"""Kinds of tables, in the order of the macro ``MAP_KIND``."""
_THREADS = 256
_COUNTERS = 32
_WORDS = 1 << 32
_PATIENT = _WORDS - 1
_MAP = struct.Struct("5Q4I")
_HOPS_BYTES = 440
_HOPS_TAIL = struct.Struct("iiq")
_OUT_AT, _COUNT_AT, _TILES_AT, _TAIL_AT = 120, 240, 360, 424


@dataclass
class MapKnobs:
    """Launch shapes and sizes. Of the results only the order of ids within a hop depends on them.

    Attributes:
        items: picks per thread, None for what was fastest: 2 in a hash, 4 in a direct table.
        impatience: probes after which an insertion into a table sized by earlier mini-batches gives up, the host
            then makes a larger table and repeats the hop.
    """

    items: int | None = None
    impatience: int = 128


def _overwritten() -> RuntimeError:
    return RuntimeError(
        "the ID map's table was full with half of its slots free: other work on the GPU has overwritten its memory"
    )


class InsertingMap(GpuMap):
    """A table of vertices that lives as long as the mini-batch, filled hop by hop.

    Args:
        published: insert as FastGL's Algorithm 2 does, a thread and an atomic addition per id, and not a block at a
            time; with ``table="cleared"``.
        table: ``"cleared"``: Fused-Map's hash, filled with ones at the start of each mini-batch. ``"direct"``: a word
            per vertex, whose value tells its mini-batch; cleared only when the stamps run out. ``"stamped"``: a hash
            whose keys contain the mini-batch's number, for graphs whose direct table would be too large.

    The size of a hash follows from the vertices of earlier mini-batches, so that it stays in the cache. The first
    mini-batch, and one that does not fit, get a hash for twice the ids that could be distinct.
    """

    def __init__(
        self, num_nodes: int, id_dtype: Any, table: str, knobs: MapKnobs | None = None,
        published: bool = False,
    ) -> None:  # fmt: skip
        import cupy

        super().__init__(num_nodes, id_dtype)
        self.kind, self.knobs, self.report = table, knobs or MapKnobs(), Report()
        items = 1 if published else self.knobs.items or (4 if table == "direct" else 2)
        macros: dict[str, int | str] = {
            "ID_T": self.id_type, "MAP_KIND": MAP_KINDS.index(table),
            "ITEMS": items,
        }  # fmt: skip
        module = kernels.load_module("minibatch/id_map/fused.cu", macros)
        self._enter, self._insert, self._look_up = (
            module.get_function(name).kernel for name in ("enter", "insert", "look_up")
        )
        if published:
            module = kernels.load_module("minibatch/id_map/algorithm_2.cu", macros)
            self._insert = module.get_function("insert").kernel
        self._tile = _THREADS * items
        self._counters = streams.leased(cupy.zeros(_COUNTERS, np.uint32), self.turns)
        self._map, self._map_arg = raw_argument(_MAP.size)
        self._hops, self._hops_arg = raw_argument(_HOPS_BYTES)
        self._bits = max(1, (num_nodes - 1).bit_length())
        self._entry_bytes = {"direct": 4, "stamped": 16, "cleared": 2 * self.ids.itemsize}[table]
        self._stamps = min(_WORDS, 1 << (64 - self._bits)) if table == "stamped" else _WORDS
        self._base, self._next = 0, 1
        self._slots, self._limit = 0, _PATIENT
        self._nodes: Any = None
        self._count, self._hop, self._room, self._most = 0, 0, 0, 0
        self.table = cupy.zeros(num_nodes * 4 if table == "direct" else 0, np.uint8)
        self.table = streams.leased(self.table, self.turns)
        self.turns.take()  # calls on other streams wait for the fills above

    @property
    def scratch_bytes(self) -> int:
        return int(self.table.nbytes + self._counters.nbytes)

    def forget(self) -> None:
        """Clear the table as if no mini-batch had been mapped; asynchronous. Stamps are not reset."""
        if self.table.nbytes:
            self.table.data.memset_async(0, self.table.nbytes)

    # ---- one mini-batch ----------------------------------------------------------------------------------------

    def begin(self, seeds: Any) -> Any:
        # Size it by the vertices of earlier mini-batches: three slots per vertex, rounded up to a power of two.
        self._most = max(self._most, self._count)
        self._start(seeds, self._room, power_of_two(3 * self._most, 1024) if self._most else 0)
        return self._view(self._count)

    def extend(self, picks: Any) -> tuple[Any, Any]:
        import cupy

        m, hop = int(picks.size), self._hop
        local = cupy.empty(m, np.int32)
        if not m:
            return self._view(self._count), local
        if hop >= MAX_HOPS:
            raise ValueError(f"a mini-batch may have at most {MAX_HOPS} hops with picks (got one more)")
        need = self._prepare(m)
        while True:
            self._launch_insert(picks, m, hop, local.data.ptr, 0)
            self._launch_look_up([picks], [local.data.ptr], hop + 2, self.report.new_tag())
            if self._taken_in(hop, need):
                return self._view(self._count), local

    def _prepare(self, m: int) -> int:
        """Make room for ``m`` more picks; returns the most vertices that there can be after them."""
        check_items(m)
        need = min(self._count + m, self.num_nodes)
        self._make_room(need)
        if self.kind != "direct":
            if not self._most and self._slots < 2 * need:
                self._grow(need)
            self._limit = _PATIENT if self._slots >= 2 * need else self.knobs.impatience
        return need

    def _taken_in(self, hop: int, need: int) -> bool:
        """Wait for the sizes after ``hop``. False: the hash was too full, is larger now, and the hop must be redone."""
        sizes, overflow = self.report.wait(hop + 2)
        if overflow:
            if self._slots >= 2 * need:
                raise _overwritten()
            self._most = 0  # as for a first mini-batch: the size follows from the ids that could be distinct
            self._grow(need)
            self._limit = _PATIENT
            return False
        self._count, self._hop = sizes[-1], hop + 1
        return True

    def map_hops(self, seeds: Any, hops: Sequence[Any]) -> tuple[Any, list[int], list[Any]]:
        if len(hops) > MAX_HOPS:
            raise ValueError(f"neighbors may hold at most {MAX_HOPS} hops (got {len(hops)})")
        return self._map_hop_by_hop(seeds, hops) if self.kind == "cleared" else self._map_at_once(seeds, hops)

    def _map_hop_by_hop(self, seeds: Any, hops: Sequence[Any]) -> tuple[Any, list[int], list[Any]]:
        """Wait once per hop, as a sampler does that needs the size for the next draw; one look-up serves all hops."""
        self.begin(seeds)
        levels = [self._count]
        for hop, picks in enumerate(hops):
            m, again = int(picks.size), bool(picks.size)
            need = self._prepare(m) if m else 0
            while again:
                self._launch_insert(picks, m, hop, 0, self.report.new_tag())
                again = not self._taken_in(hop, need)
            levels.append(self._count)
        local, addresses = self.outputs(hops)
        if addresses:
            self._launch_look_up(hops, addresses, 0, 0)
        return self._view(self._count), levels, local

    def _map_at_once(self, seeds: Any, hops: Sequence[Any]) -> tuple[Any, list[int], list[Any]]:
        """Wait once, at the end: launch all insertions, then one look-up of all picks, which reports all sizes."""
        counts = [int(picks.size) for picks in hops]
        check_items(max(counts, default=0))
        need = min(int(seeds.size) + sum(counts), self.num_nodes)
        self._start(seeds, need, power_of_two(2 * need, 1024))
        self._limit = _PATIENT
        local, addresses = self.outputs(hops)
        levels = [self._count] * (len(hops) + 1)
        if addresses:
            for hop, picks in enumerate(hops):
                if counts[hop]:
                    self._launch_insert(picks, counts[hop], hop, addresses[hop], 0)
            self._launch_look_up(hops, addresses, len(hops) + 1, self.report.new_tag())
            levels, overflow = self.report.wait(len(hops) + 1)
            if overflow:
                raise _overwritten()
        self._count = levels[-1]
        return self._view(self._count), levels, local

    # ---- tables ------------------------------------------------------------------------------------------------

    def _start(self, seeds: Any, room: int, slots: int) -> None:
        n = int(seeds.size)
        self._count, self._hop = n, 0
        self._nodes = streams.empty(max(1, n, min(room, self.num_nodes)), self.ids, self.turns)
        if self.kind == "direct":
            if self._next + self.num_nodes + 2 >= self._stamps:
                self.forget()
                self._next = 1
            self._base = self._next
            self._next += 2 + n
        else:
            self._size_table(max(slots, power_of_two(2 * n, 1024)))
            self._limit = _PATIENT
        self._pack()
        self._launch_enter(seeds, n)

    def _size_table(self, slots: int) -> None:
        """Make an empty hash of at least ``slots`` (a power of two) slots."""
        if self.table.nbytes < slots * self._entry_bytes:
            self.table = streams.empty(slots * self._entry_bytes, np.uint8, self.turns)
            if self.kind == "stamped":
                self.forget()
                self._next = 1
        if self.kind == "cleared":
            self._slots = slots
            self.table.data.memset_async(0xFF, slots * self._entry_bytes)
            return
        self._slots = self.table.nbytes // self._entry_bytes
        if self._next >= self._stamps:
            self.forget()
            self._next = 1
        self._base = self._next
        self._next += 1

    def _grow(self, need: int) -> None:
        """Make a larger hash with the vertices so far, and reset the counters to these."""
        self._size_table(power_of_two(2 * need, 1024))
        self._pack()
        self._launch_enter(self._nodes, self._count)

    def _make_room(self, need: int) -> None:
        """Make room in the list of vertices; arrays that earlier hops returned stay valid."""
        self._room = max(self._room, need)
        if self._nodes.size < need:
            grown = streams.empty(min(max(need, self._room), self.num_nodes), self.ids, self.turns)
            grown.data.copy_from_device_async(self._nodes.data, self._count * self.ids.itemsize)
            self._nodes = grown
            self._pack()

    def _view(self, count: int) -> Any:
        import cupy

        return cupy.ndarray((count,), self.ids, self._nodes.data)

    # ---- launches ----------------------------------------------------------------------------------------------

    def _pack(self) -> None:
        _MAP.pack_into(
            self._map, 0, self._nodes.data.ptr, self._counters.data.ptr, self.report.address, self.table.data.ptr,
            max(self._slots, 1) - 1, self._limit, self._base, self._bits, 0,
        )  # fmt: skip

    def _launch_enter(self, vertices: Any, n: int) -> None:
        grid = (max(1, -(-n // _THREADS)),)
        self._enter(grid, (_THREADS,), (self._map_arg, vertices, np.uint32(n)))

    def _launch_insert(self, picks: Any, m: int, hop: int, out: int, tag: int) -> None:
        if self.kind == "direct":
            self._next = min(self._next + m, self._base + self.num_nodes + 2)
        else:
            self._pack()  # the patience may have changed
        grid = (-(-m // self._tile),)
        self._insert(
            grid,
            (_THREADS,),
            (self._map_arg, picks, np.uint64(m), np.int32(hop), np.uint64(out), np.int64(tag)),
        )

    def _launch_look_up(self, hops: Sequence[Any], out: Sequence[int], levels: int, tag: int) -> None:
        tiles = self._pack_hops(hops, out, levels, tag)
        self._look_up((tiles,), (_THREADS,), (self._map_arg, self._hops_arg))

    def _pack_hops(self, hops: Sequence[Any], out: Sequence[int], levels: int, tag: int) -> int:
        """Fill in ``Hops``; returns the number of tiles."""
        count, memory, tiles = len(hops), self._hops, [0]
        sizes = [int(picks.size) for picks in hops]
        for m in sizes:
            tiles.append(tiles[-1] + -(-m // self._tile))
        struct.pack_into(f"{count}Q", memory, 0, *[picks.data.ptr for picks in hops])
        struct.pack_into(f"{count}Q", memory, _OUT_AT, *out)
        struct.pack_into(f"{count}Q", memory, _COUNT_AT, *sizes)
        struct.pack_into(f"{count + 1}I", memory, _TILES_AT, *tiles)
        _HOPS_TAIL.pack_into(memory, _TAIL_AT, count, levels, tag)
        return tiles[-1]
