"""Compact a launch's rows into mini-batches with local ids (kernels in ``finish.cu``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from gnnsample_lab.device import kernels
from gnnsample_lab.sampling.launch import Launcher
from gnnsample_lab.sampling.plan import MAX_HOPS, SCAN_TILE, Workspace
from gnnsample_lab.sampling.types import HopPicks

from .types import MiniBatch


class LazyTuple(Sequence[Any]):
    """A sequence whose items are made when first asked for: a training loop touches few of a batch's arrays."""

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


class _Arena:
    """One allocation holding all arrays of a mini-batch, and where each begins.

    ``totals`` is what the device reported: status, levels[16], edges[15]. Plain integers: this runs once per
    sample, between two kernels.
    """

    __slots__ = ("id_dtype", "hops", "levels", "rows", "edges", "num_seeds", "begins", "memory")

    def __init__(self, id_dtype: np.dtype, totals: list[int], num_seeds: int, new_only: bool, hops: int) -> None:
        self.id_dtype, self.hops, self.num_seeds = id_dtype, hops, num_seeds
        self.levels = levels = totals[1 : hops + 2]
        self.rows = rows = levels[:-1]
        if new_only:
            self.rows = rows = [rows[0], *(b - a for a, b in zip(levels, levels[1:-1], strict=False))]
        self.edges = edges = totals[17 : 17 + hops]
        ids = id_dtype.itemsize
        self.begins = begins = []
        at = 0
        for size in (
            levels[-1] * ids, num_seeds * 8, *[n * 8 + 8 for n in rows], *[n * 4 for n in rows],
            *[e * ids for e in edges], *[e * 8 for e in edges], *[e * 4 for e in edges],
        ):  # fmt: skip
            begins.append(at)
            at += (size + 255) & -256
        self.memory = cupy_alloc(at)

    def words(self) -> list[int]:
        """The addresses of the arrays, in the order of the kernels' ``Out``."""
        base, hops = self.memory.ptr, self.hops
        words = [base + at for at in self.begins]
        rest = [0] * (MAX_HOPS - hops)
        ordered = words[:2]
        for begin in range(2, len(words), hops):
            ordered += words[begin : begin + hops]
            ordered += rest
        return ordered

    def view(self, which: int, size: int, dtype: Any) -> Any:
        import cupy

        return cupy.ndarray((size,), dtype, self.memory + self.begins[which])

    def picks(self, hop: int, frontier: Any) -> HopPicks:
        n, e, hops = self.rows[hop], self.edges[hop], self.hops
        at = 2 + hop
        picks = HopPicks(
            frontier, self.view(at + hops, n, np.int32), self.view(at + 2 * hops, e, self.id_dtype),
            self.view(at + 3 * hops, e, np.int64),
        )  # fmt: skip
        picks.__dict__["offsets"] = self.view(at, n + 1, np.int64)
        return picks

    def local_ids(self, hop: int) -> Any:
        return self.view(2 + hop + 4 * self.hops, self.edges[hop], np.int32)


def cupy_alloc(num_bytes: int) -> Any:
    import cupy

    return cupy.cuda.alloc(num_bytes)


class Finisher:
    """Scan, read the sizes, emit."""

    def __init__(self, launcher: Launcher, queued: bool) -> None:
        self.launcher, self.spec, self.queued = launcher, launcher.spec, queued
        self._modules: dict[int, dict[str, Any]] = {}

    def _kernels(self, table: int) -> dict[str, Any]:
        if table not in self._modules:
            macros = {"ID_T": self.launcher.id_type, "RULE": 0, "TABLE": table, "TRACE": 0, "KMAX": 8}
            module = kernels.load_module("finish.cu", "gnnsample_lab.minibatch", macros)
            names = ("reach", "map_rows", "scan_rows", "rank_words", "rank_order", "emit_one", "emit_many")
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

    def emit(self, ws: Workspace, seeds: Sequence[Any], first_batch_id: int, graph: Any) -> list[MiniBatch]:
        """Allocate exactly, write everything in one kernel; asynchronous. The totals must have been reported."""
        count, hops, new_only = len(seeds), self.spec.num_hops, self.spec.expand == "new"
        arenas = []
        for i in range(count):
            totals = ws.totals_view[i * 64 : i * 64 + 32].tolist()
            arenas.append(_Arena(graph.indices.dtype, totals, int(seeds[i].size), new_only, hops))
        grid = self._grid(ws, max(max(a.rows) for a in arenas), 8)
        k = self._kernels(ws.shape.table)
        if count == 1:
            ws.write_out(arenas[0].words())
            k["emit_one"](grid, (256,), (ws.args,))
        else:
            import cupy

            outs = cupy.asarray(np.array([a.words() for a in arenas], dtype=np.uint64))
            k["emit_many"](grid, (256,), (ws.args, outs))
        return [self._batch(arena, first_batch_id + i, graph) for i, arena in enumerate(arenas)]

    def _batch(self, arena: _Arena, batch_id: int, graph: Any) -> MiniBatch:
        levels = arena.levels
        nodes = arena.view(0, levels[-1], arena.id_dtype)

        def picks(hop: int) -> HopPicks:
            begin = levels[hop - 1] if self.spec.expand == "new" and hop else 0
            return arena.picks(hop, nodes[begin : levels[hop]])

        return MiniBatch(
            nodes, tuple(levels), LazyTuple(arena.hops, picks), LazyTuple(arena.hops, arena.local_ids),
            arena.view(1, arena.num_seeds, np.int64), batch_id, self.spec, graph,
        )  # fmt: skip
