"""The ID map as bitmaps of the hops' picks (``levels.cu``): whole mini-batches without a wait between hops."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, runtime, streams
from gnnsample_lab.sampling.neighbors.sizes import power_of_two
from gnnsample_lab.sampling.neighbors.spec import MAX_HOPS

from .fused import InsertingMap
from .gpu import GpuMap, Report, check_items, raw_argument

MOST_NODES = 2**31
"""Most vertices of a graph whose ids the kernels take apart in 32 bits."""
_ARGUMENT = struct.Struct("8Q4I")
_PICKS_AT, _OUT_AT, _COUNT_AT, _TILES_AT, _REST_AT, _BYTES = 0, 120, 240, 360, 424, 504
_SECTOR_BITS, _TILE, _MARKING = 224, 1024, 1024


class LevelMap(GpuMap):
    """A bit per vertex and hop; what a hop reaches first gets ids in ascending order.

    Where the bitmaps of all hops, with a word of rank for each word, fit the shared memory of a block, no random access
    leaves the multiprocessors; else 224 bits and their rank share a sector of 32 bytes.

    Args:
        table: how :class:`~.fused.InsertingMap` maps hop by hop, where not all picks are known: ``"direct"`` or
            ``"stamped"``.
        large: True: never in shared memory. For tests.
    """

    def __init__(self, num_nodes: int, id_dtype: Any, table: str, large: bool = False) -> None:
        import cupy

        super().__init__(num_nodes, id_dtype)
        self.report, self.kind, self._table, self._always_large = Report(), "levels", table, large
        self._inner: InsertingMap | None = None
        self._words, self._sectors = -(-num_nodes // 32), -(-num_nodes // _SECTOR_BITS)
        self._blocks = runtime.num_sms()
        self._most_shared = int(runtime.device_properties()["sharedMemPerBlockOptin"]) - 1024
        self._kernels: dict[bool, tuple[Any, ...]] = {}
        self._memory, self._seeds_at = cupy.empty(0, np.uint8), cupy.empty(0, np.uint8)
        self._argument, self._args = raw_argument(_BYTES)

    @property
    def scratch_bytes(self) -> int:
        inner = self._inner.scratch_bytes if self._inner is not None else 0
        return int(self._memory.nbytes + self._seeds_at.nbytes) + inner

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
        shared = 4 * self._words * max(num_hops + 1, 2 * num_hops)
        large = self._always_large or shared > self._most_shared
        if large:
            words, blocks, slots = self._sectors, -(-self._sectors // _TILE), power_of_two(2 * n, 64)
            sizes = (32 * words * num_hops, 8 * slots, 4 * blocks * num_hops)
        else:
            words, blocks, slots = self._words, self._blocks, 1
            sizes = (4 * words * (num_hops + 1) * blocks, 0, 4 * words * num_hops)
        marks, hashed, merged = self._room(sizes)
        seeds_at = hashed if large else self._direct()
        tiles = [0]
        for m in counts:
            tiles.append(tiles[-1] + -(-m // _TILE))
        memory = self._argument
        struct.pack_into(f"{num_hops}Q", memory, _PICKS_AT, *[picks.data.ptr for picks in hops])
        struct.pack_into(f"{num_hops}Q", memory, _OUT_AT, *out)
        struct.pack_into(f"{num_hops}Q", memory, _COUNT_AT, *counts)
        struct.pack_into(f"{num_hops + 1}I", memory, _TILES_AT, *tiles)
        _ARGUMENT.pack_into(
            memory, _REST_AT, seeds.data.ptr, nodes.data.ptr, marks, merged, seeds_at, self.report.address,
            self.report.new_tag(), slots - 1, n, words, blocks, num_hops,
        )  # fmt: skip
        args, k = (self._args,), self._functions(large)
        if large:
            mark, unmark, count, place, look_up = k
            self._memory.data.memset_async(0, sizes[0] + sizes[1])
            mark((tiles[-1],), (256,), args)
            unmark((-(-n // 256),), (256,), args)
            count((blocks,), (256,), args)
            place((blocks,), (256,), args)
            look_up((tiles[-1],), (256,), args)
        else:
            mark, merge, look_up = k
            mark((blocks,), (_MARKING,), args, shared_mem=4 * words * (num_hops + 1))
            merge((-(-words // 32),), (256,), args)
            look_up((blocks,), (_MARKING,), args, shared_mem=8 * words * num_hops)

    def _room(self, sizes: Sequence[int]) -> list[int]:
        """Addresses of scratch memory of these sizes, one after the other (multiples of 8 but the last)."""
        if self._memory.nbytes < sum(sizes):
            self._memory = streams.empty(sum(sizes), np.uint8, self.turns)
        at, found = int(self._memory.data.ptr), []
        for size in sizes:
            found.append(at)
            at += size
        return found

    def _direct(self) -> int:
        if not self._seeds_at.nbytes:
            self._seeds_at = streams.empty(4 * self.num_nodes, np.uint8, self.turns)
        return int(self._seeds_at.data.ptr)

    def _functions(self, large: bool) -> tuple[Any, ...]:
        if large not in self._kernels:
            macros: dict[str, int | str] = {"ID_T": self.id_type, "LARGE": int(large)}
            module = kernels.load_module("minibatch/id_map/levels.cu", macros)
            names = ("mark", "unmark", "count", "place", "look_up") if large else ("mark", "merge", "look_up")
            functions = [module.get_function(name) for name in names]
            if not large:
                for function in (functions[0], functions[-1]):
                    function.max_dynamic_shared_size_bytes = self._most_shared
            self._kernels[large] = tuple(function.kernel for function in functions)
        return self._kernels[large]
