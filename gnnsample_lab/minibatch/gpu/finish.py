"""Compact a launch's rows into mini-batches with local ids (kernels in ``finish.cu``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np

from gnnsample_lab.device import kernels, streams
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.sampling.neighbors.launch import Launcher
from gnnsample_lab.sampling.neighbors.plan import OUT_WORDS, SCAN_TILE
from gnnsample_lab.sampling.neighbors.spec import MAX_HOPS, HopPicks
from gnnsample_lab.sampling.neighbors.workspace import Workspace


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


def _layout(id_bytes: int, levels: Any, rows: Any, edges: Any, num_seeds: Any) -> list[Any]:
    """Bytes of each array of a mini-batch in the order of the kernels' ``Out``; per hop: integers or columns."""
    return [
        levels[-1] * id_bytes, num_seeds * 8, *[n * 8 + 8 for n in rows], *[n * 4 for n in rows],
        *[e * id_bytes for e in edges], *[e * 8 for e in edges], *[e * 4 for e in edges],
    ]  # fmt: skip


class _Arena:
    """The arrays of one mini-batch: their sizes, their offsets, and the memory that holds them, leased to ``ready``."""

    def __init__(
        self, id_dtype: np.dtype, levels: list[int], rows: list[int], edges: list[int], num_seeds: int,
        begins: list[int], memory: Any, ready: streams.Ready,
    ) -> None:  # fmt: skip
        self.id_dtype, self.hops, self.num_seeds = id_dtype, len(rows), num_seeds
        self.levels, self.rows, self.edges = levels, rows, edges
        self.begins, self.memory, self.ready = begins, memory, ready

    def view(self, which: int, size: int, dtype: Any) -> Any:
        import cupy

        return cupy.ndarray((size,), dtype, self.memory + self.begins[which])

    def picks(self, hop: int, frontier: Any) -> HopPicks:
        n, e, hops = self.rows[hop], self.edges[hop], self.hops
        at = 2 + hop
        return HopPicks(
            frontier, self.view(at + hops, n, np.int32), self.view(at + 2 * hops, e, self.id_dtype),
            self.view(at + 3 * hops, e, np.int64), self.view(at, n + 1, np.int64),
        )  # fmt: skip

    def local_ids(self, hop: int) -> Any:
        return self.view(2 + hop + 4 * self.hops, self.edges[hop], np.int32)


class Finisher:
    """Launches the kernels of ``finish.cu``: scan, then (when the host has the sizes) emit."""

    def __init__(self, launcher: Launcher, queued: bool) -> None:
        self.launcher, self.spec, self.queued = launcher, launcher.spec, queued
        self._modules: dict[int, dict[str, Any]] = {}

    def _kernels(self, table: int) -> dict[str, Any]:
        if table not in self._modules:
            macros: dict[str, int | str] = {"ID_T": self.launcher.id_type, "TABLE_KIND": table}
            module = kernels.load_module("minibatch/gpu/finish.cu", macros)
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
        """Allocate arrays of exact size and fill them by one kernel; asynchronous. The totals must be known."""
        emit = self._emit_one if len(seeds) == 1 else self._emit_many
        arenas = emit(ws, seeds, graph.indices.dtype)
        return [self._batch(arena, first_batch_id + i, graph) for i, arena in enumerate(arenas)]

    def _emit_one(self, ws: Workspace, seeds: Sequence[Any], ids: np.dtype) -> list[_Arena]:
        # Plain integers and one struct: the GPU idles during this code, and NumPy calls would double its time.
        import cupy

        hops = self.spec.num_hops
        totals = ws.totals_view[:32].tolist()
        levels, edges, num_seeds = totals[1 : hops + 2], totals[17 : 17 + hops], int(seeds[0].size)
        rows = levels[:-1]
        if self.spec.expand == "new":
            rows = [rows[0], *(b - a for a, b in pairwise(levels[:-1]))]
        begins, end = [], 0
        for size in _layout(ids.itemsize, levels, rows, edges, num_seeds):
            begins.append(end)
            end += (size + 255) & -256
        memory = cupy.cuda.alloc(end)
        addresses = [memory.ptr + at for at in begins]
        words, rest = addresses[:2], [0] * (MAX_HOPS - hops)
        for first in range(2, len(addresses), hops):
            words += addresses[first : first + hops]
            words += rest
        ws.write_out(words)
        self._kernels(ws.shape.table)["emit_one"](self._grid(ws, max(rows), 8), (256,), (ws.args,))
        ready = streams.Ready()
        return [_Arena(ids, levels, rows, edges, num_seeds, begins, streams.lease(memory, ready), ready)]

    def _emit_many(self, ws: Workspace, seeds: Sequence[Any], ids: np.dtype) -> list[_Arena]:
        # For all mini-batches at once, so that the kernel starts before any of the objects below is made.
        import cupy

        hops, count = self.spec.num_hops, len(seeds)
        totals = ws.host_totals.reshape(-1, 64)[:count].copy()
        levels, edges = totals[:, 1 : hops + 2], totals[:, 17 : 17 + hops]
        rows = levels[:, :-1].copy()
        if self.spec.expand == "new":
            rows[:, 1:] -= levels[:, :-2]
        num_seeds = np.fromiter((s.size for s in seeds), np.int64, count)
        sizes = np.stack(_layout(ids.itemsize, levels.T, rows.T, edges.T, num_seeds), axis=1)
        ends = np.cumsum((sizes + 255) & -256).reshape(sizes.shape)
        begins = np.empty_like(ends)
        begins.ravel()[0], begins.ravel()[1:] = 0, ends.ravel()[:-1]
        memory = cupy.cuda.alloc(int(ends[-1, -1]))
        words = np.zeros((count, OUT_WORDS), dtype=np.uint64)
        words[:, :2] = begins[:, :2] + memory.ptr
        words[:, 2:].reshape(count, 5, MAX_HOPS)[:, :, :hops] = (begins[:, 2:] + memory.ptr).reshape(
            count, 5, hops
        )
        outs = cupy.asarray(words)
        self._kernels(ws.shape.table)["emit_many"](
            self._grid(ws, int(rows.max()), 8), (256,), (ws.args, outs)
        )
        lists = (levels.tolist(), rows.tolist(), edges.tolist(), num_seeds.tolist(), begins.tolist())
        ready = streams.Ready()
        memory = streams.lease(memory, ready)
        return [_Arena(ids, *parts, memory, ready) for parts in zip(*lists, strict=True)]

    def _batch(self, arena: _Arena, batch_id: int, graph: Any) -> MiniBatch:
        levels = arena.levels
        nodes = arena.view(0, levels[-1], arena.id_dtype)

        def picks(hop: int) -> HopPicks:
            begin = levels[hop - 1] if self.spec.expand == "new" and hop else 0
            return arena.picks(hop, nodes[begin : levels[hop]])

        return MiniBatch(
            nodes, tuple(levels), LazyTuple(arena.hops, picks), LazyTuple(arena.hops, arena.local_ids),
            arena.view(1, arena.num_seeds, np.int64), batch_id, self.spec, graph, ready=arena.ready,
        )  # fmt: skip
