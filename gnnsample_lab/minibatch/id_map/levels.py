"""The ID map as bitmaps of the hops' picks (``levels.cu``): whole mini-batches without a wait between hops."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, streams
from gnnsample_lab.sampling.neighbors.sizes import power_of_two
from gnnsample_lab.sampling.neighbors.spec import MAX_HOPS

from .fused import InsertingMap
from .gpu import GpuMap, Report, check_items, raw_argument

MOST_NODES = 2**31
"""Most vertices of a graph whose ids the kernels take apart in 32 bits."""
_ARGUMENT = struct.Struct("8Q4I")
_PICKS_AT, _OUT_AT, _COUNT_AT, _TILES_AT, _REST_AT, _BYTES = 0, 120, 240, 360, 424, 504
_SECTOR_BITS, _TILE, _SECTOR_TILE = 224, 1024, 512


class LevelMap(GpuMap):
    """A bit per vertex and hop; what a hop reaches first gets ids in ascending order.

    224 bits and their rank share a sector of 32 bytes: for graphs whose word per vertex exceeds the L2 cache.

    Args:
        table: how :class:`~.fused.InsertingMap` maps hop by hop, where not all picks are known: ``"direct"`` or
            ``"stamped"``.
    """

    def __init__(self, num_nodes: int, id_dtype: Any, table: str) -> None:
        import cupy

        super().__init__(num_nodes, id_dtype)
        self.report, self.kind, self._table = Report(), "levels", table
        self._inner: InsertingMap | None = None
        self._sectors = -(-num_nodes // _SECTOR_BITS)
        module = kernels.load_module("minibatch/id_map/levels.cu", {"ID_T": self.id_type})
        names = ("mark", "unmark", "count", "place", "look_up")
        self._kernels = tuple(module.get_function(name).kernel for name in names)
        self._memory = cupy.empty(0, np.uint8)
        self._argument, self._args = raw_argument(_BYTES)

    @property
    def scratch_bytes(self) -> int:
        inner = self._inner.scratch_bytes if self._inner is not None else 0
        return int(self._memory.nbytes) + inner

    # ---- hop by hop --------------------------------------------------------------------------------------------

    def begin(self, seeds: Any) -> Any:
        if self._inner is None:
            self._inner = InsertingMap(self.num_nodes, self.ids, self._table)
            self._inner.turns = self.turns
        return self._inner.begin(seeds)

    def extend(self, picks: Any) -> tuple[Any, Any]:
        assert self._inner is not None
        return self._inner.extend(picks)

    # ---- whole mini-batches ------------------------------------------------------------------------------------

    def map_hops(self, seeds: Any, hops: Sequence[Any]) -> tuple[Any, list[int], list[Any]]:
        if len(hops) > MAX_HOPS:
            raise ValueError(f"neighbors may hold at most {MAX_HOPS} hops (got {len(hops)})")
        n, counts = int(seeds.size), [int(picks.size) for picks in hops]
        check_items(max(counts, default=0))
        check_items(n + sum(counts))
        local, addresses = self.outputs(hops)
        nodes = streams.empty(max(1, min(n + sum(counts), self.num_nodes)), self.ids, self.turns)
        if not addresses:
            nodes[:n] = seeds
            return nodes[:n], [n] * (len(hops) + 1), local
        self._launch(seeds, hops, counts, addresses, nodes)
        levels, _ = self.report.wait(len(hops) + 1)
        return nodes[: levels[-1]], levels, local

    def _launch(self, seeds: Any, hops: Sequence[Any], counts: list[int], out: list[int], nodes: Any) -> None:
        num_hops, n = len(hops), int(seeds.size)
        slots, blocks = power_of_two(2 * n, 64), -(-self._sectors // _SECTOR_TILE)
        marked, hashed = 32 * self._sectors * num_hops, 8 * slots
        if self._memory.nbytes < marked + hashed + 4 * blocks * num_hops:
            self._memory = streams.empty(marked + hashed + 4 * blocks * num_hops, np.uint8, self.turns)
        marks = int(self._memory.data.ptr)
        tiles = [0]
        for m in counts:
            tiles.append(tiles[-1] + -(-m // _TILE))
        memory = self._argument
        struct.pack_into(f"{num_hops}Q", memory, _PICKS_AT, *[picks.data.ptr for picks in hops])
        struct.pack_into(f"{num_hops}Q", memory, _OUT_AT, *out)
        struct.pack_into(f"{num_hops}Q", memory, _COUNT_AT, *counts)
        struct.pack_into(f"{num_hops + 1}I", memory, _TILES_AT, *tiles)
        _ARGUMENT.pack_into(
            memory, _REST_AT, seeds.data.ptr, nodes.data.ptr, marks, marks + marked + hashed, marks + marked,
            self.report.address, self.report.new_tag(), slots - 1, n, self._sectors, blocks, num_hops,
        )  # fmt: skip
        self._memory.data.memset_async(0, marked + hashed)
        grids = (tiles[-1], -(-n // 256), blocks, blocks, tiles[-1])
        for kernel, grid in zip(self._kernels, grids, strict=True):
            kernel((grid,), (256,), (self._args,))
