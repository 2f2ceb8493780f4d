"""ID maps on the GPU: DGL's (``insert_count_compact.cu``), sorting, and the common base class.

A map takes one mini-batch at a time: :meth:`begin` with its distinct seeds, then :meth:`extend` hop by hop. The maps
that assign ids while they insert are in :mod:`.fused`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, streams
from gnnsample_lab.device.polling import await_word
from gnnsample_lab.sampling.neighbors.plan import as_argument
from gnnsample_lab.sampling.neighbors.sizes import power_of_two

from .cpu import HopMap

_STATUS = 31
PER_BLOCK = 1024
"""Ids per block of the count and compact kernels."""
MAX_ITEMS = 2**31 - 1
"""Most ids that a map takes at a time."""
PACK = struct.Struct("9Qq")
"""``Items`` of the kernels."""


class Report:
    """Words in pinned host memory in which kernels tell the host how many vertices there are.

    The host polls these words, so that it can allocate without a copy or a stream synchronisation.

    Attributes:
        seen: a list to which every wait adds its sizes, None (the default) to keep none.
        known: sizes to return without waiting, one list per wait. To record a mini-batch's launches in a CUDA graph,
            run it once with an empty list in ``seen``, and again with that list in ``known``.
    """

    def __init__(self) -> None:
        import cupy

        self._memory = cupy.cuda.alloc_pinned_memory(8 * (_STATUS + 1))
        words = np.frombuffer(self._memory, np.int64, _STATUS + 1)
        words[:] = 0
        self._view: Any = memoryview(words)  # type: ignore[arg-type]
        self.address = int(self._memory.ptr)
        self.tag = 0
        self.known: Iterator[list[int]] | None = None
        self.seen: list[list[int]] | None = None

    def new_tag(self) -> int:
        self.tag += 1
        return self.tag

    def wait(self, levels: int = 1) -> tuple[list[int], int]:
        """The first ``levels`` sizes and the status word of the launch with the newest tag."""
        if self.known is not None:
            return next(self.known), 0
        view, tag = self._view, self.tag
        await_word(view, 0, tag, "the ID map's kernels did not report how many vertices there are")
        sizes = view[1 : 1 + levels].tolist()
        if self.seen is not None:
            self.seen.append(sizes)
        return sizes, int(view[_STATUS])


def raw_argument(num_bytes: int) -> tuple[Any, Any]:
    """Bytes to pack into, and the same bytes as a kernel argument."""
    memory = np.zeros(num_bytes, np.uint8)
    return memory, as_argument(memory.view(np.dtype([("bytes", np.uint8, (num_bytes,))])))


def check_items(count: int) -> None:
    """Refuse more ids than 32-bit local ids and indices in kernels can express."""
    if count > MAX_ITEMS:
        raise ValueError(
            f"neighbors of a mini-batch may be at most {MAX_ITEMS} with this ID map, vertices known before "
            f"included (got {count}): lower fanouts or batch size"
        )


class GpuMap(HopMap):
    """One way to relabel on the GPU. Callers that change streams call ``turns.take()`` first."""

    def __init__(self, num_nodes: int, id_dtype: Any) -> None:
        super().__init__(num_nodes, id_dtype)
        self.turns = streams.Turns()
        self.id_type = "int" if self.ids.itemsize == 4 else "long"

    def outputs(self, hops: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """An ``int32`` array for each hop's local ids, in one block of memory, and their addresses (none if empty)."""
        import cupy

        counts, begins, end = [int(picks.size) for picks in hops], [], 0
        for m in counts:
            begins.append(end)
            end += (4 * m + 255) & -256
        if not end:
            return [cupy.empty(0, np.int32) for _ in hops], []
        memory = cupy.cuda.alloc(end)
        arrays = [cupy.ndarray((m,), np.int32, memory + at) for m, at in zip(counts, begins, strict=True)]
        return arrays, [memory.ptr + at for at in begins]


class RebuiltMap(GpuMap):
    """A map that starts anew at every hop, from the vertices so far and the hop's picks."""

    def __init__(self, num_nodes: int, id_dtype: Any) -> None:
        import cupy

        super().__init__(num_nodes, id_dtype)
        self.nodes = cupy.empty(0, self.ids)

    def begin(self, seeds: Any) -> Any:
        self.nodes = seeds
        return seeds

    def extend(self, picks: Any) -> tuple[Any, Any]:
        import cupy

        if not picks.size:
            return self.nodes, cupy.empty(0, np.int32)
        check_items(int(self.nodes.size) + int(picks.size))
        self.nodes, local = self._map(self.nodes, picks)
        return self.nodes, local

    def _map(self, nodes: Any, picks: Any) -> tuple[Any, Any]:
        """Distinct ids of ``nodes`` (distinct, ``[n]``) and ``picks`` (``[m]``), and the picks' places among them."""
        raise NotImplementedError


class CompactMap(RebuiltMap):
    """DGL's map: insert, count, scan, compact, look up, host wait; a new table for every hop over nodes and picks."""

    def __init__(self, num_nodes: int, id_dtype: Any) -> None:
        import cupy

        super().__init__(num_nodes, id_dtype)
        self.report = Report()
        module = kernels.load_module("minibatch/id_map/insert_count_compact.cu", {"ID_T": self.id_type})
        names = ("insert", "count", "scan", "compact", "look_up")
        self.k = {name: module.get_function(name).kernel for name in names}
        self._job, self._args = raw_argument(PACK.size)
        self._slots = cupy.empty(0, np.uint8)
        self._locals, self._per_block = cupy.empty(0, np.uint32), cupy.empty(0, np.int32)
        self._entry_bytes = 2 * self.ids.itemsize

    @property
    def scratch_bytes(self) -> int:
        return int(self._slots.nbytes + self._locals.nbytes + self._per_block.nbytes)

    def merge(self, items: Any) -> tuple[Any, Any]:
        """Distinct ``items`` in order of first occurrence, and the index of every item among them (``int32``)."""
        import cupy

        check_items(int(items.size))
        return self._map(cupy.empty(0, self.ids), items)

    def _map(self, nodes: Any, picks: Any) -> tuple[Any, Any]:
        import cupy

        n, m = int(nodes.size), int(picks.size)
        slots, blocks = power_of_two(2 * (n + m), 64), -(-(n + m) // PER_BLOCK)
        if self._locals.size < slots:
            self._slots = streams.empty(slots * self._entry_bytes, np.uint8, self.turns)
            self._locals = streams.empty(slots, np.uint32, self.turns)
        if self._per_block.size < blocks:
            self._per_block = streams.empty(power_of_two(blocks), np.int32, self.turns)
        self._slots.data.memset_async(0xFF, slots * self._entry_bytes)
        PACK.pack_into(
            self._job, 0, nodes.data.ptr, n, picks.data.ptr, m, self._slots.data.ptr, slots - 1,
            self._locals.data.ptr, self._per_block.data.ptr, self.report.address, self.report.new_tag(),
        )  # fmt: skip
        args, k, per_item = (self._args,), self.k, (-(-(n + m) // 256),)
        k["insert"](per_item, (256,), args)
        k["count"]((blocks,), (256,), args)
        k["scan"]((1,), (1024,), args)
        distinct, out = cupy.empty(n + m, self.ids), cupy.empty(m, np.int32)
        k["compact"]((blocks,), (256,), (self._args, distinct))
        k["look_up"]((-(-m // 256),), (256,), (self._args, out))
        (total,), _ = self.report.wait()  # the host waits here, as DGL does: beside the launches that follow
        return distinct[:total], out


class SortMap(RebuiltMap):
    """Sort all ids of nodes and picks, find where each run of equal ids begins, and number runs by first occurrence.

    Array libraries do the same (``unique`` with its inverse). The sort is stable, so a run begins with the first
    occurrence.
    """

    @property
    def scratch_bytes(self) -> int:
        return 0

    def _map(self, nodes: Any, picks: Any) -> tuple[Any, Any]:
        import cupy

        known = nodes.size
        items = cupy.concatenate([nodes, picks]) if known else picks
        order = cupy.argsort(items)
        ordered = items[order]
        begins = cupy.ones(items.size, np.int32)
        begins[1:] = ordered[1:] != ordered[:-1]
        run = cupy.cumsum(begins, dtype=np.int32) - 1
        # Find the first item of each run; items that do not begin a run write to the extra last element.
        first = cupy.empty(items.size + 1, np.int64)
        first[cupy.where(begins, run, items.size)] = order
        is_first = cupy.zeros(items.size + 1, np.int32)
        is_first[cupy.where(begins, order, items.size)] = 1
        place = cupy.cumsum(is_first[:-1], dtype=np.int32)
        local = cupy.empty(items.size, np.int32)
        local[order] = place[first[run]] - 1
        total = int(place[-1])  # the host waits here
        distinct = cupy.empty(items.size + 1, self.ids)
        distinct[cupy.where(begins, local[order], items.size)] = ordered
        return distinct[:total], local[known:]
