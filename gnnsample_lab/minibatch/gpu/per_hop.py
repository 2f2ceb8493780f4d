"""The per-hop baselines: degrees, scan, host sync, draw, ID map, and the same again for the next hop.

This is how DGL (`block-bsp`), GraphBolt (`edge-bsp`) and TurboGNN (`turbo-bsp`) run. Kernels: ``per_hop.cu``; the ID
map is any of :func:`~.id_maps.id_maps`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, streams
from gnnsample_lab.minibatch.id_map.ladder import SAMPLER_DEFAULT, IdMap
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.sampling.neighbors.launch import Launcher
from gnnsample_lab.sampling.neighbors.plan import PLAN, as_argument
from gnnsample_lab.sampling.neighbors.spec import HopPicks, SampleSpec
from gnnsample_lab.sampling.neighbors.strategies import PER_HOP_STRATEGIES as PER_HOP_STRATEGIES
from gnnsample_lab.sampling.weights import IntegerWeights

from .finish import LazyTuple


class PerHopSampler:
    """Runs one of :data:`PER_HOP_STRATEGIES` with one of the ID maps, one mini-batch at a time."""

    def __init__(
        self, graph: Any, spec: SampleSpec, weights: IntegerWeights | None, launcher: Launcher,
        id_map: str = SAMPLER_DEFAULT, scratch_bytes: int | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.spec, self.launcher = graph, spec, launcher
        self.strategy = launcher.strategy
        self.plan = np.zeros(1, dtype=PLAN)
        self.plan["indptr"], self.plan["indices"] = graph.indptr.data.ptr, graph.indices.data.ptr
        self.plan["num_nodes"], self.plan["seed"] = graph.num_nodes, spec.seed
        self.args = as_argument(self.plan)
        if weights is not None:
            self.plan["prefix"], self.plan["available"] = weights.prefix.data.ptr, weights.available.data.ptr
        macros = {"ID_T": launcher.id_type, "RULE": spec.rule, "TRACE": int(launcher.traced)}
        module = kernels.load_module("sampling/neighbors/hops/per_hop.cu", macros)
        names = ("count_rows", "draw_blocks", "edge_begin", "edge_draw", "edge_gather", "draw_balanced")
        self.k = {name: module.get_function(name).kernel for name in names}
        self.id_map = IdMap(id_map, graph.num_nodes, graph.indices.dtype, "cuda", scratch_bytes=scratch_bytes)

    def sample(self, seeds: Any, batch_id: int, events: Any = None) -> MiniBatch:
        """One mini-batch. ``events``, when given, records the hops' phases (see ``trace``)."""
        import cupy

        ids, id_map = self.graph.indices.dtype, self.id_map
        id_map.turns.take()
        given = cupy.asarray(seeds)
        # Read as unsigned a negative id is a huge one: a single reduction checks both ends.
        if int(given.view(given.dtype.str.replace("i", "u")).max()) >= self.graph.num_nodes:
            raise ValueError(f"seeds must be vertex ids in 0..{self.graph.num_nodes - 1} (got one outside)")
        nodes, inverse = id_map.merger.merge(given.astype(ids))
        nodes = id_map.engine.begin(nodes)
        levels, picks, local = [int(nodes.size)], [], []
        for hop in range(self.spec.num_hops):
            begin = levels[-2] if self.spec.expand == "new" and hop else 0
            hop_picks = self.draw(nodes, begin, hop, batch_id, events)
            nodes, ids_out = id_map.engine.extend(hop_picks.neighbors)
            local.append(ids_out)
            levels.append(int(nodes.size))
            picks.append(hop_picks)
            if events is not None:
                events.mark("id map", hop)
        id_map.turns.leave()
        ready = streams.Ready()

        def leased(hop: int) -> HopPicks:
            drawn = picks[hop]
            arrays = (drawn.frontier, drawn.counts, drawn.neighbors, drawn.positions)
            made = HopPicks(*(streams.leased(a, ready) for a in arrays))
            made.__dict__["offsets"] = streams.leased(drawn.offsets, ready)
            return made

        hops = len(picks)
        return MiniBatch(
            streams.leased(nodes, ready), tuple(levels), LazyTuple(hops, leased),
            LazyTuple(hops, lambda hop: streams.leased(local[hop], ready)),
            streams.leased(inverse.astype(np.int64), ready), batch_id, self.spec, self.graph, ready=ready,
        )  # fmt: skip

    def draw(self, nodes: Any, begin: int, hop: int, batch_id: int, events: Any = None) -> HopPicks:
        """Counts, scan, host sync for the total, draw: one hop's picks for ``nodes[begin:]``, exactly sized."""
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
        neighbors = cupy.empty(total, self.graph.indices.dtype)
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
        return picks
