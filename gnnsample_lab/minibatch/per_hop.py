"""The per-hop baselines: degrees, scan, host sync, draw, ID map, and the same again for the next hop.

This is how DGL (`block-bsp`), GraphBolt (`edge-bsp`) and TurboGNN (`turbo-bsp`) run. Kernels: ``per_hop.cu`` and,
for the insert-count-compact ID map, ``id_map.cu``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device import kernels
from gnnsample_lab.sampling.launch import Launcher
from gnnsample_lab.sampling.plan import PLAN, as_argument
from gnnsample_lab.sampling.sizes import power_of_two
from gnnsample_lab.sampling.types import HopPicks, SampleSpec
from gnnsample_lab.sampling.weights import IntegerWeights

from .types import MiniBatch

PER_HOP_STRATEGIES = ("block-bsp", "edge-bsp", "turbo-bsp")
_ITEMS = 1024
"""Ids per block of the ID map's count and compact kernels."""


class PerHopSampler:
    """Runs one of :data:`PER_HOP_STRATEGIES`, one mini-batch at a time."""

    def __init__(
        self, graph: Any, spec: SampleSpec, weights: IntegerWeights | None, launcher: Launcher
    ) -> None:
        self.graph, self.spec, self.launcher = graph, spec, launcher
        self.strategy = launcher.strategy
        self.plan = np.zeros(1, dtype=PLAN)
        self.plan["indptr"], self.plan["indices"] = graph.indptr.data.ptr, graph.indices.data.ptr
        self.plan["num_nodes"], self.plan["seed"] = graph.num_nodes, spec.seed
        self.args = as_argument(self.plan)
        if weights is not None:
            self.plan["prefix"], self.plan["available"] = weights.prefix.data.ptr, weights.available.data.ptr
        macros: dict[str, int | str] = {
            "ID_T": launcher.id_type,
            "RULE": spec.rule,
            "TABLE": 0,
            "TRACE": int(launcher.traced),
        }
        module = kernels.load_module("per_hop.cu", "gnnsample_lab.sampling", macros)
        names = ("count_rows", "draw_blocks", "edge_begin", "edge_draw", "edge_gather", "draw_balanced")
        self.k = {name: module.get_function(name).kernel for name in names}
        ids = kernels.load_module("id_map.cu", "gnnsample_lab.minibatch", {"ID_T": launcher.id_type})
        self.id_map = {
            name: ids.get_function(name).kernel for name in ("insert", "count", "compact", "look_up")
        }

    def sample(self, seeds: Any, batch_id: int, events: Any = None) -> MiniBatch:
        """One mini-batch. ``events``, when given, records the hops' phases (see ``gpu_trace``)."""
        import cupy

        ids = self.graph.indices.dtype
        given = cupy.asarray(seeds)
        # Read as unsigned a negative id is a huge one: a single reduction checks both ends.
        if int(given.view(given.dtype.str.replace("i", "u")).max()) >= self.graph.num_nodes:
            raise ValueError(f"seeds must be vertex ids in 0..{self.graph.num_nodes - 1} (got one outside)")
        items = given.astype(ids)
        nodes, inverse = self.relabel(items)
        levels, picks, local = [int(nodes.size)], [], []
        for hop in range(self.spec.num_hops):
            begin = levels[-2] if self.spec.expand == "new" and hop else 0
            hop_picks, items = self.draw(nodes, begin, hop, batch_id, events)
            nodes, ids_out = self.relabel(items)
            local.append(ids_out[levels[-1] :])
            levels.append(int(nodes.size))
            picks.append(hop_picks)
            if events is not None:
                events.mark("id map", hop)
        return MiniBatch(
            nodes, tuple(levels), tuple(picks), tuple(local), inverse.astype(np.int64), batch_id, self.spec, self.graph
        )  # fmt: skip

    def draw(
        self, nodes: Any, begin: int, hop: int, batch_id: int, events: Any = None
    ) -> tuple[HopPicks, Any]:
        """Counts, scan, host sync for the total, draw: one hop's picks for ``nodes[begin:]``, exactly sized.

        Returns the picks and what the ID map is made of, ``nodes`` followed by the picked neighbours.
        """
        import cupy

        rows = nodes[begin:] if begin else nodes
        n, fanout = int(rows.size), np.int32(self.spec.fanouts[hop])
        counts = cupy.empty(n, np.int32)
        offsets = cupy.empty(n + 1, np.int64)
        offsets.data.memset_async(0, 8)
        work = cupy.empty(n, np.int64) if self.strategy != "block-bsp" else None
        size, batch, number = np.uint64(n), np.uint32(batch_id), np.int32(hop)
        args: tuple[Any, ...]
        if n:
            args = (self.args, rows, size, fanout, counts, np.uint64(0) if work is None else work)
            self.k["count_rows"]((-(-n // 256),), (256,), args)
        cupy.cumsum(counts, out=offsets[1:])
        scanned = None
        if work is not None:
            scanned = cupy.empty(n + 1, np.int64)
            scanned.data.memset_async(0, 8)
            cupy.cumsum(work, out=scanned[1:])
        total = int(offsets[-1])  # the host waits here, as these systems do
        items = cupy.empty(nodes.size + total, self.graph.indices.dtype)
        items.data.copy_from_device_async(nodes.data, nodes.nbytes)
        neighbors = items[nodes.size :]
        positions = cupy.empty(total, np.int64)
        slots = cupy.empty(max(1, total), np.int32)
        trace: Any = np.uint64(0) if events is None else events.rows(hop, n)
        if events is not None:
            events.mark("prepared", hop)
        sms, knobs = self.launcher.sms, self.launcher.knobs
        head = (self.args, rows)
        if n and self.strategy == "block-bsp":
            args = (*head, fanout, number, batch, offsets, slots, neighbors, positions, trace)
            self.k["draw_blocks"]((n,), (knobs.block_threads,), args)
        elif n and self.strategy == "turbo-bsp":
            grid = min(n, knobs.blocks_per_sm["turbo-bsp"] * sms)
            args = (*head, size, fanout, number, batch, offsets, slots, neighbors, positions, scanned, trace)
            self.k["draw_balanced"]((grid,), (128,), args)
        elif n:
            edge_grid = (knobs.blocks_per_sm["edge-bsp"] * sms,)
            self.k["edge_begin"](edge_grid, (256,), (*head, size, fanout, number, batch, offsets, slots))
            self.k["edge_draw"](
                edge_grid, (256,), (*head, size, fanout, number, batch, offsets, slots, scanned)
            )
            self.k["edge_gather"](
                edge_grid, (256,), (*head, size, offsets, slots, neighbors, positions, trace)
            )
        if events is not None:
            events.mark("drawn", hop)
        picks = HopPicks(rows, counts, neighbors, positions)
        picks.__dict__["offsets"] = offsets
        return picks, items

    def relabel(self, items: Any) -> tuple[Any, Any]:
        """DGL's insert-count-compact: distinct ids in order of first occurrence, and every item's local id."""
        import cupy

        n = int(items.size)
        slots = power_of_two(2 * n, 64)
        keys = cupy.empty(slots, np.uint64)
        keys.data.memset_async(0, keys.nbytes)
        firsts = cupy.empty(slots, np.uint32)
        firsts.data.memset_async(0xFF, firsts.nbytes)
        blocks = -(-n // _ITEMS)
        per_block = cupy.empty(blocks, np.int32)
        size, width = np.uint64(n), np.uint64(slots)
        self.id_map["insert"]((-(-n // 256),), (256,), (items, size, keys, firsts, width))
        self.id_map["count"]((blocks,), (256,), (items, size, keys, firsts, width, per_block))
        before = cupy.cumsum(per_block, dtype=np.int32)
        nodes = cupy.empty(int(before[-1]), items.dtype)  # second host sync
        locals_ = cupy.empty(slots, np.uint32)
        args = (items, size, keys, firsts, width, per_block, before, nodes, locals_)
        self.id_map["compact"]((blocks,), (256,), args)
        out = cupy.empty(n, np.int32)
        self.id_map["look_up"]((-(-n // 256),), (256,), (items, size, keys, width, locals_, out))
        return nodes, out
