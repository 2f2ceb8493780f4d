"""GNNLab's ID map (``versioned_hash.cu``): one hash for all hops of a mini-batch, whose entries know their hop."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, streams
from gnnsample_lab.sampling.neighbors.sizes import power_of_two

from .gpu import PACK, PER_BLOCK, GpuMap, Report, check_items, raw_argument

_JOB = struct.Struct("6Q2I")
_ENTRY_BYTES = {4: 16, 8: 24}


class VersionedMap(GpuMap):
    """A hash cleared once a mini-batch: insert and count, scan, host wait, compact, look up, hop by hop.

    It has twice as many slots as vertices could be distinct, as the release has, which allocates it for the worst case;
    here a mini-batch with more picks than all before it makes a larger one.
    """

    def __init__(self, num_nodes: int, id_dtype: Any) -> None:
        import cupy

        super().__init__(num_nodes, id_dtype)
        self.report = Report()
        module = kernels.load_module("minibatch/id_map/versioned_hash.cu", {"ID_T": self.id_type})
        names = ("enter", "insert_count", "compact", "look_up")
        self.k = {name: module.get_function(name).kernel for name in names}
        counting = kernels.load_module("minibatch/id_map/insert_count_compact.cu", {"ID_T": self.id_type})
        self.k["scan"] = counting.get_function("scan").kernel
        self._job, self._job_arg = raw_argument(_JOB.size)
        self._items, self._items_arg = raw_argument(PACK.size)
        self._slots, self._per_block = cupy.empty(0, np.uint8), cupy.empty(0, np.int32)
        self._entry_bytes = _ENTRY_BYTES[self.ids.itemsize]
        self._size, self._room = 1024, 0
        self._nodes: Any = None
        self._count, self._version = 0, 0

    @property
    def scratch_bytes(self) -> int:
        return int(self._slots.nbytes + self._per_block.nbytes)

    def begin(self, seeds: Any) -> Any:
        n = int(seeds.size)
        self._version, self._count = 0, n
        self._nodes = streams.empty(max(1, n, self._room), self.ids, self.turns)
        self._restart(seeds, n)
        return self._view(n)

    def extend(self, picks: Any) -> tuple[Any, Any]:
        import cupy

        m, known = int(picks.size), self._count
        local = cupy.empty(m, np.int32)
        if not m:
            return self._view(known), local
        check_items(known + m)
        self._make_room(min(known + m, self.num_nodes))
        blocks = -(-m // PER_BLOCK)
        if self._per_block.size < blocks:
            self._per_block = streams.empty(power_of_two(blocks), np.int32, self.turns)
        self._version += 1
        self._pack(picks.data.ptr, m)
        sums, tag = self._per_block.data.ptr, self.report.new_tag()
        PACK.pack_into(self._items, 0, 0, 0, picks.data.ptr, m, 0, 0, 0, sums, self.report.address, tag)
        self.k["insert_count"]((blocks,), (256,), (self._job_arg,))
        self.k["scan"]((1,), (1024,), (self._items_arg,))
        (new,), _ = self.report.wait()  # the host waits here, as GNNLab's does
        self.k["compact"]((blocks,), (256,), (self._job_arg,))
        self.k["look_up"]((-(-m // 256),), (256,), (self._job_arg, local))
        self._count = known + new
        return self._view(self._count), local

    def _make_room(self, need: int) -> None:
        """Room for ``need`` vertices in the list and, at half full, in the hash. Arrays of earlier hops stay valid."""
        self._room = max(self._room, need)
        if self._nodes.size < need:
            grown = streams.empty(self._room, self.ids, self.turns)
            grown.data.copy_from_device_async(self._nodes.data, self._count * self.ids.itemsize)
            self._nodes = grown
        if self._size < 2 * need:
            self._size = power_of_two(2 * need)
            self._restart(self._nodes, self._count)

    def _restart(self, vertices: Any, n: int) -> None:
        """An empty hash with the first ``n`` of ``vertices``."""
        self._size = max(self._size, power_of_two(2 * n))
        if self._slots.nbytes < self._size * self._entry_bytes:
            self._slots = streams.empty(self._size * self._entry_bytes, np.uint8, self.turns)
        self._slots.data.memset_async(0xFF, self._size * self._entry_bytes)
        self._pack(0, 0)
        self.k["enter"]((max(1, -(-n // 256)),), (256,), (self._job_arg, vertices, np.uint32(n)))

    def _pack(self, picks: int, m: int) -> None:
        _JOB.pack_into(
            self._job, 0, self._slots.data.ptr, self._size - 1, picks, m, self._nodes.data.ptr,
            self._per_block.data.ptr, self._count, self._version,
        )  # fmt: skip

    def _view(self, count: int) -> Any:
        import cupy

        return cupy.ndarray((count,), self.ids, self._nodes.data)
