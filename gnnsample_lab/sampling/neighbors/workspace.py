"""The device memory of a launch, and the plan that tells the kernels where it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.sampling.weights import IntegerWeights

from .plan import (
    BATCH,
    BATCH_PACK,
    COUNTERS,
    HUB,
    JOB,
    MANY_SEEDS,
    MAX_TAG,
    SCAN_TILE,
    as_argument,
    point_to_weights,
)  # fmt: skip
from .sizes import Shape, power_of_two, seed_blocks, seed_slots
from .spec import MAX_HOPS, SampleSpec

TOTALS, TOTALS_BYTES, TOTALS_FLAG = 64, 62, 63
"""Words that the scan reports of a mini-batch (``report`` in ``finish.cu``), and which of them are the bytes of its
arrays and the flag; the first is the status."""


class Workspace:
    """Device buffers of one shape and the plan that points to them.

    ``host_batches`` and ``host_totals`` are pinned host memory. The first kernel of a launch reads ``host_batches`` and
    the last kernel writes ``host_totals``, so that a launch needs no separate copies.
    """

    def __init__(
        self, graph: Any, spec: SampleSpec, weights: IntegerWeights | None, shape: Shape, queued: bool, traced: bool,
        fetch_size: int, paper: bool,
    ) -> None:  # fmt: skip
        import cupy

        self.shape, self.spec, self.queued, self.fetch_size = shape, spec, queued, fetch_size
        self.next_base, self.next_tag, self.last_base = 1, 1, 0
        self._keep: list[Any] = []
        self.graph_execs: dict[bool, Any] = {}  # of `captured`: with rows of features, and without
        self.warm = False  # set by traced runs once the kernels are compiled
        b, ids = shape.num_batches, graph.indices.dtype
        self.job = np.zeros(1, dtype=JOB)
        self.args = as_argument(self.job)
        plan = self.plan = self.job["plan"]

        def room(count: int, dtype: Any, zero: bool = False) -> Any:
            array = (cupy.zeros if zero else cupy.empty)(max(1, count), dtype)
            self._keep.append(array)
            return array

        self.batches = room(b * BATCH.itemsize, np.uint8)
        self.counters = room(b * COUNTERS, np.uint32, zero=True)
        self.nodes = room(b * shape.node_cap, ids)
        self.inverse = room(b * shape.seed_cap, np.uint32)
        self.seed_slots = seed_slots(shape.seed_cap)
        self.seed_hash = room(2 * b * self.seed_slots, np.uint64)
        self.seed_hash.fill(2**64 - 1)
        self.seed_sums = (
            room(b * seed_blocks(shape.seed_cap), np.uint32) if shape.seed_cap > MANY_SEEDS else None
        )
        self.scan_tiles = -(-shape.row_total // SCAN_TILE) + 1
        self.scan_state = room(b * self.scan_tiles, np.uint64, zero=True)
        self.queue = room(b * shape.queue_cap, np.uint64, zero=True) if queued else None
        self.enqueued = room(b * shape.queue_cap, np.uint64, zero=True) if queued and traced else None
        self.hubs = room(b * shape.hub_cap * HUB.itemsize, np.uint8) if shape.hub_cap else None
        self.row_offsets = room(b * (shape.row_total + 1), np.int64)
        self.arrived = room(MAX_HOPS + 1, np.uint32, zero=True)

        plan["indptr"], plan["indices"] = graph.indptr.data.ptr, graph.indices.data.ptr
        plan["num_nodes"], plan["seed"], plan["num_hops"] = graph.num_nodes, spec.seed, spec.num_hops
        plan["expand_new"], plan["relabel_last"] = spec.expand == "new", 1
        plan["fetch_size"], plan["paper"] = fetch_size, paper
        plan["batches"], plan["counters"] = self.batches.data.ptr, self.counters.data.ptr
        plan["nodes"], plan["node_cap"] = self.nodes.data.ptr, shape.node_cap
        plan["inverse"], plan["seed_cap"] = self.inverse.data.ptr, shape.seed_cap
        plan["seed_hash"], plan["seed_slots"] = self.seed_hash.data.ptr, self.seed_slots
        plan["scan_state"], plan["scan_tiles"] = self.scan_state.data.ptr, self.scan_tiles
        point_to_weights(plan, weights)
        if self.seed_sums is not None:
            plan["seed_sums"] = self.seed_sums.data.ptr
        if self.hubs is not None:
            plan["hubs"], plan["hub_cap"] = self.hubs.data.ptr, shape.hub_cap
            plan["hub_limit"] = shape.hub_limit
        if self.queue is not None:
            plan["queue"], plan["queue_cap"] = self.queue.data.ptr, shape.queue_cap
        if self.enqueued is not None:
            plan["enqueued"] = self.enqueued.data.ptr
        self.tables: list[dict[str, Any]] = [
            self._table(plan["table"][0], graph.num_nodes, shape.node_cap, True, room)
        ]
        self.row_map: list[Any] = []
        self.traces: list[Any] = []
        for hop in range(spec.num_hops):
            rows, picks = shape.row_caps[hop], shape.pick_caps[hop]
            entry = plan["hops"][0, hop]
            entry["fanout"], entry["stride"] = spec.fanouts[hop], shape.strides[hop]
            entry["row_cap"], entry["pick_cap"] = rows, picks
            entry["counts"] = room(b * rows, np.int32).data.ptr
            entry["starts"] = room(b * rows, np.int64).data.ptr
            if not shape.strides[hop]:
                entry["offsets"] = room(b * rows, np.int64).data.ptr
            entry["neighbors"] = room(b * picks, ids).data.ptr
            entry["slots"] = room(b * picks, np.int32).data.ptr
            if traced:
                self.traces.append(room(b * rows * 4, np.uint64))
                entry["trace"] = self.traces[-1].data.ptr
            if queued:
                vertices = room(b * rows, ids)
                entry["vertices"] = vertices.data.ptr
                self.row_map.append(room(b * rows, np.int32))
                if hop:
                    self.tables.append(
                        self._table(plan["reached"][0, hop], graph.num_nodes, rows, False, room)
                    )
        finish = self.job["finish"][0]
        finish["row_offsets"], finish["row_total"] = self.row_offsets.data.ptr, shape.row_total
        for hop, rows_of_hop in enumerate(self.row_map):
            finish["row_map"][hop] = rows_of_hop.data.ptr
        self.num_bytes = sum(a.nbytes for a in self._keep)

        pinned = cupy.cuda.alloc_pinned_memory(b * BATCH.itemsize)
        self.host_batches = np.frombuffer(pinned, BATCH, b)
        self._batch_bytes = np.frombuffer(pinned, np.uint8, b * BATCH.itemsize)
        plan["host_batches"] = pinned.ptr
        pinned_totals = cupy.cuda.alloc_pinned_memory(b * TOTALS * 8)
        self.host_totals = np.frombuffer(pinned_totals, np.int64, b * TOTALS)
        self.host_totals[:] = 0
        self.totals_view: Any = memoryview(self.host_totals)  # type: ignore[arg-type]
        finish["totals"] = pinned_totals.ptr
        self._keep += [pinned, pinned_totals]

    def totals(self) -> list[list[int]]:
        """What the scan has reported of each mini-batch: status, sizes, and at :data:`TOTALS_BYTES` bytes of arrays."""
        words: list[int] = self.totals_view.tolist()
        return [words[at : at + TOTALS] for at in range(0, len(words), TOTALS)]

    def _table(self, entry: Any, num_nodes: int, expected: int, main: bool, room: Any) -> dict[str, Any]:
        b, kind = self.shape.num_batches, self.shape.table
        arrays: dict[str, Any] = {}
        if kind == 0:
            arrays["words"] = room(b * num_nodes, np.uint32, zero=True)
            entry["stride"] = num_nodes
        elif kind == 1:
            stride = -(-num_nodes // 32)
            arrays["words"] = room(b * stride, np.uint32, zero=True)
            entry["stride"] = stride
            if main:
                arrays["early"] = room(b * stride, np.uint32)
                arrays["ranks"] = room(2 * b * stride, np.uint64)
                arrays["order"] = room(b * self.shape.node_cap, np.uint32)
                entry["order_stride"] = self.shape.node_cap
                self.rank_tiles = -(-stride // SCAN_TILE) + 1
                self.rank_state = room(b * self.rank_tiles, np.uint64)
        else:
            slots = power_of_two(2 * expected, 64)
            arrays["keys"] = room(b * slots, np.uint64, zero=True)
            arrays["words"] = room(b * slots, np.uint32)
            entry["stride"] = slots
        for name, array in arrays.items():
            entry[name] = array.data.ptr
        return arrays

    def write_batch(self, i: int, *fields: int) -> None:
        """Fill host record ``i`` with the fields of :data:`~.plan.BATCH` in their order."""
        # One ``struct`` call is several times faster than setting NumPy fields.
        BATCH_PACK(self._batch_bytes, i * BATCH.itemsize, *fields)

    def read_batches_at(self, address: int) -> None:
        """The next launches read their :data:`~.plan.BATCH` records from device memory at ``address``."""
        self.plan["host_batches"], self.plan["batches"] = 0, address

    def clear_tables(self) -> None:
        """Clear bitmaps or hashes (direct tables carry stamps instead); asynchronous, part of a captured graph."""
        if self.shape.table:
            for table in self.tables:
                _zero_async(table["keys" if self.shape.table == 2 else "words"])
            if self.shape.table == 1:
                _zero_async(self.rank_state)

    def keep_early(self) -> None:
        """Copy the bitmap as it is before the last hop; asynchronous, part of a captured graph."""
        import cupy

        table = self.tables[0]
        words, stream = table["words"], cupy.cuda.get_current_stream()
        table["early"].data.copy_from_device_async(words.data, words.nbytes, stream)

    def stamp(self) -> tuple[int, int]:
        """Base and tag for the next launch; where one would overflow, clear the tables or the queue and restart it."""
        if self.next_base + self.shape.node_cap + 2 >= 2**32:
            for table in self.tables:
                table["words"].fill(0)
            self.next_base = 1
        if self.next_tag > MAX_TAG:
            if self.queue is not None:
                self.queue.fill(0)
            # Even, since MAX_TAG is odd: the parity of the tag must alternate, because it selects the seed hash.
            self.next_tag = 2
        stamps = self.last_base, _ = self.next_base, self.next_tag
        self.next_base += self.shape.node_cap + 2
        self.next_tag += 1
        return stamps


def _zero_async(array: Any) -> None:
    import cupy

    array.data.memset_async(0, array.nbytes, cupy.cuda.get_current_stream())
