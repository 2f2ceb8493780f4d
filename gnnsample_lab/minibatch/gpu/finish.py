"""Compact a launch's rows into mini-batches with local ids (kernels in ``finish.cu``), in arenas (``arena.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, streams
from gnnsample_lab.device.dependent import launch
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.sampling.neighbors.launch import Launcher, occupancy
from gnnsample_lab.sampling.neighbors.plan import PLACE, SCAN_TILE, WANTED_ROWS, as_argument
from gnnsample_lab.sampling.neighbors.workspace import TOTALS_BYTES, Workspace

from .arena import NO_ARENAS, Arena, ArenaBatch, Arenas
from .rows import RowTable


class Finisher:
    """Launches the kernels of ``finish.cu``: scan, then emit, and of ``rows.cu`` where mini-batches hold features.

    Args:
        table: the features that they may hold.
    """

    def __init__(self, launcher: Launcher, queued: bool, table: RowTable | None = None) -> None:
        self.launcher, self.spec, self.queued, self.table = launcher, launcher.spec, queued, table
        self._modules: dict[int, dict[str, Any]] = {}

    def _kernels(self, table: int) -> dict[str, Any]:
        if table not in self._modules:
            macros: dict[str, int | str] = {"ID_T": self.launcher.id_type, "TABLE_KIND": table}
            module = kernels.load_module("minibatch/gpu/finish.cu", macros)
            names = ("reach", "map_rows", "scan_rows", "rank_words", "rank_order", "emit", "emit_at")
            self._modules[table] = {name: module.get_function(name).kernel for name in names}
        return self._modules[table]

    def _grid(self, ws: Workspace, items: int, per_block: int, kernel: Any = None) -> tuple[int, int]:
        """As many blocks as ``items`` need, at most those that are resident at once (``kernel``: of 256 threads)."""
        per_sm = self.launcher.knobs.blocks_per_sm["emit"]
        if kernel is not None:
            per_sm = min(per_sm, occupancy(kernel, 256))
        most = max(1, per_sm * self.launcher.sms // ws.shape.num_batches)
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
            launch(
                k["rank_words"], self._grid(ws, words, SCAN_TILE), (256,),
                (ws.args, ws.rank_state, np.uint64(ws.rank_tiles)),
            )  # fmt: skip
            launch(k["rank_order"], self._grid(ws, ws.shape.node_cap, 256), (256,), (ws.args,))
        if self.queued:
            for rows in ws.row_map:
                rows.data.memset_async(0xFF, rows.nbytes)
            k["map_rows"](self._grid(ws, max(ws.shape.row_caps), 256), (256,), (ws.args,))
        launch(k["scan_rows"], self._grid(ws, ws.shape.row_total, SCAN_TILE), (256,), (ws.args,))

    def emit(self, ws: Workspace, rows: bool = False) -> None:
        """Fill the arenas that the records of the mini-batches name, where they are large enough; asynchronous.

        Args:
            rows: with rows of features, where the records want them.
        """
        kernel = self._kernels(ws.shape.table)["emit"]
        launch(kernel, self._grid(ws, max(ws.shape.row_caps), 8, kernel), (256,), (ws.args,))
        if rows and self.table is not None:
            self.table.bring(ws, self._row_blocks)

    @property
    def _row_blocks(self) -> int:
        return self.launcher.knobs.blocks_per_sm["rows"] * self.launcher.sms

    def prepare(
        self, seeds: Sequence[Any], first_batch_id: int, graph: Any, arenas: Arenas
    ) -> list[ArenaBatch]:
        """The mini-batches of a launch that is under way, in memory of their own; they learn their sizes later.

        The host does this while it has nothing to do but to wait for the sizes.
        """
        ready = streams.Ready()
        return [
            self._batch(None, seed, first_batch_id + i, graph, arenas, memory, ready)
            for i, (seed, memory) in enumerate(zip(seeds, arenas.memories, strict=True))
        ]

    def _batch(
        self, totals: list[int] | None, seeds: Any, batch_id: int, graph: Any, arenas: Arenas, memory: Any,
        ready: streams.Ready,
    ) -> ArenaBatch:  # fmt: skip
        arena = Arena(
            graph.indices.dtype, self.spec, totals, int(seeds.size), arenas.wanted, arenas.wishes,
            streams.lease(memory, ready), ready,
        )  # fmt: skip
        return ArenaBatch.at(arena, batch_id, graph)

    def collect(
        self,
        ws: Workspace,
        totals: Sequence[list[int]],
        seeds: Sequence[Any],
        first_batch_id: int,
        graph: Any,
        arenas: Arenas = NO_ARENAS,
        prepared: Sequence[ArenaBatch] = (),
    ) -> list[MiniBatch]:
        """The mini-batches of a launch whose totals are known; asynchronous.

        Args:
            totals: what the workspace's ``totals`` has returned.
            prepared: what :meth:`prepare` has made of the same arguments, if it was called.
        """
        memories = list(arenas.memories)
        missing = [i for i, found in enumerate(totals) if found[TOTALS_BYTES] > arenas.room]
        if prepared and not missing:
            for batch, found in zip(prepared, totals, strict=True):
                batch.arena.learn(found)
            return list(prepared)
        if missing:
            import cupy

            memories = memories or [None] * len(seeds)
            for i in missing:
                memories[i] = cupy.cuda.alloc(totals[i][TOTALS_BYTES])
            self._emit_at(ws, memories, totals, missing, bool(arenas.wanted & WANTED_ROWS))
        ready = streams.Ready()
        return [
            self._batch(totals[i], seeds[i], first_batch_id + i, graph, arenas, memory, ready)
            for i, memory in enumerate(memories)
        ]

    def _emit_at(
        self, ws: Workspace, memories: Sequence[Any], totals: Any, missing: Sequence[int], with_rows: bool
    ) -> None:
        import cupy

        count = len(memories)
        places = np.zeros(count, PLACE)
        for i in missing:
            places[i] = memories[i].ptr, totals[i][TOTALS_BYTES]
        # Vertices before the last hop: the most that a hop expands.
        rows = max(totals[i][self.spec.num_hops] for i in missing)
        kernel = self._kernels(ws.shape.table)["emit_at"]
        on_gpu = cupy.asarray(places.view(np.uint64)) if count > 1 else None
        address = np.uint64(0 if on_gpu is None else on_gpu.data.ptr)
        into = as_argument(places[:1]), address
        kernel(self._grid(ws, rows, 8, kernel), (256,), (ws.args, *into))
        if with_rows and self.table is not None:
            self.table.bring_at(ws, self._row_blocks, into)
