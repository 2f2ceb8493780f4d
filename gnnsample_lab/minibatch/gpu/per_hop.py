"""The per-hop baselines. Every hop consists of degrees, scan, draw, host synchronisation and ID map.

DGL (`block-bsp`), GraphBolt (`edge-bsp`) and TurboGNN (`turbo-bsp`) execute in this way. As in DGL the draw is launched
into memory for as many picks as there can be, and the host waits for their number while it runs. The kernels are in
``sampling/neighbors/hops/per_hop.cu``; the ID map is any of :func:`~gnnsample_lab.minibatch.id_map.ladder.id_maps`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, streams
from gnnsample_lab.device.arrays import offsets_of
from gnnsample_lab.device.dependent import launch
from gnnsample_lab.minibatch.id_map.ladder import SAMPLER_DEFAULT, IdMap
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.sampling.neighbors.launch import Launcher
from gnnsample_lab.sampling.neighbors.plan import COUNTERS, HUB, PLAN, as_argument, point_to_weights
from gnnsample_lab.sampling.neighbors.sizes import hub_capacity, power_of_two
from gnnsample_lab.sampling.neighbors.spec import HopPicks, SampleSpec
from gnnsample_lab.sampling.neighbors.strategies import PER_HOP_STRATEGIES as PER_HOP_STRATEGIES
from gnnsample_lab.sampling.weights import IntegerWeights

from .arena import LazyTuple

_NOT_TRACED: Any = np.uint64(0)
_TO_HOST = 2
"""``cudaMemcpyDeviceToHost``."""
_MOST_ROOM = 1 << 26
"""Picks of a hop for which there is room before their number is known, 1 to 2 GB; beyond, the host waits first."""
_SHARE_OF_LIST = 64
"""The part of ``scratch_bytes`` that the list of hubs takes at most."""

_MET = np.dtype(
    [*((name, "<u8") for name in ("slots", "mask", "stamp", "report")), ("bits", "<u4"), ("unused", "<u4")]
)
"""``Met`` of the kernels."""


class MetSeeds:
    """Which seeds of a mini-batch are met, as ``take_seeds`` notes and reports it.

    The published samplers neither check seeds nor merge them, and do not wait for the GPU before the first hop. So
    seeds are taken for distinct vertices in the launch that copies them, and whoever waits for the first hop's total
    has :meth:`found` beside it.
    """

    def __init__(self, num_nodes: int, turns: streams.Turns) -> None:
        import cupy

        self.turns = turns
        bits = max(1, (num_nodes - 1).bit_length())
        self._stamps = 1 << min(62, 64 - bits)
        self._memory = cupy.cuda.alloc_pinned_memory(16)
        self._report = np.frombuffer(self._memory, np.int64, 2)
        self._slots = cupy.empty(0, np.uint64)
        self.struct = np.zeros(1, dtype=_MET)
        self.struct["report"], self.struct["bits"] = int(self._memory.ptr), bits
        self.argument = as_argument(self.struct)
        self._stamp = 0
        self._report[:] = 0

    @property
    def scratch_bytes(self) -> int:
        return int(self._slots.nbytes)

    def begin(self, seeds: int) -> None:
        """Before the launch for so many seeds."""
        slots = power_of_two(2 * seeds, 64)
        grown = self._slots.size < slots
        if grown:
            self._slots = streams.empty(slots, np.uint64, self.turns)
            self.struct["slots"], self.struct["mask"] = self._slots.data.ptr, slots - 1
        self._stamp += 1
        if grown or self._stamp >= self._stamps:
            self._slots.data.memset_async(0, self._slots.nbytes)
        if self._stamp >= self._stamps:
            self._stamp, self._report[:] = 1, 0
        self.struct["stamp"] = self._stamp

    def found(self) -> tuple[bool, bool]:
        """Whether a seed is no vertex, and whether one came twice; once the launch is known to have ended."""
        outside, repeated = self._report.tolist()
        return outside == self._stamp, repeated == self._stamp


class _Total:
    """The last of a hop's offsets on its way to the host, which waits for nothing else."""

    def __init__(self, offsets: Any) -> None:
        import cupy

        self._memory, stream = cupy.cuda.alloc_pinned_memory(8), cupy.cuda.get_current_stream()
        last = offsets.data.ptr + offsets.nbytes - 8
        cupy.cuda.runtime.memcpyAsync(self._memory.ptr, last, 8, _TO_HOST, stream.ptr)
        self._copied = cupy.cuda.Event(disable_timing=True)
        self._copied.record(stream)

    def wait(self) -> int:
        self._copied.synchronize()
        return int(np.frombuffer(self._memory, np.int64, 1)[0])


@dataclass(frozen=True, eq=False)
class HopWork:
    """What the draw kernels of one hop read. CuPy.

    Attributes:
        rows: vertices to expand, ids ``[n]``.
        counts: picks per row, ``int32[n]``.
        offsets: exclusive sums of the counts, ``int64[n + 1]``.
        scanned: exclusive sums of what each row costs, ``int64[n + 1]``; None under ``block-bsp``, which does not
            balance.
        room: no fewer picks than all rows have, known before the host has waited; None where only :attr:`total` tells.
        told: what :attr:`total` waits for.
    """

    rows: Any
    counts: Any
    offsets: Any
    scanned: Any
    room: int | None
    told: _Total

    @cached_property
    def total(self) -> int:
        """Picks of all rows; the host waits for them."""
        return self.told.wait()


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
        point_to_weights(self.plan, weights)
        macros: dict[str, int | str] = {
            "ID_T": launcher.id_type, "RULE": spec.rule, "TRACE": int(launcher.traced),
        }  # fmt: skip
        module = kernels.load_module("sampling/neighbors/hops/per_hop.cu", macros)
        names = (
            "take_seeds",
            "count_rows",
            "draw_blocks",
            "draw_blocks_coo",
            "edge_begin",
            "edge_draw",
            "edge_gather",
            "draw_balanced",
        )
        self.k = {name: module.get_function(name).kernel for name in names}
        self._list = self._list_of_hubs(scratch_bytes)
        if self._list:
            self.k["draw_hubs"] = module.get_function("draw_hubs").kernel
        if scratch_bytes is not None:
            scratch_bytes -= sum(array.nbytes for array in self._list)
        self.id_map = IdMap(id_map, graph.num_nodes, graph.indices.dtype, "cuda", scratch_bytes=scratch_bytes)
        self.met, self.merges = MetSeeds(graph.num_nodes, self.id_map.turns), False

    def _list_of_hubs(self, scratch_bytes: int | None) -> tuple[Any, ...]:
        """Counters and places for the hubs of a hop, where kernels share them; a list that is full costs time alone."""
        import cupy

        limit = self.launcher.hub_limit
        if not limit:
            return ()
        graph = self.graph
        places = hub_capacity(limit, int(graph.indices.size), graph.max_in_degree, graph.num_nodes)
        if scratch_bytes is not None:
            places = min(places, scratch_bytes // _SHARE_OF_LIST // HUB.itemsize)
        if not places:
            return ()
        counters, hubs = cupy.zeros(COUNTERS, np.uint32), cupy.empty(places * HUB.itemsize, np.uint8)
        self.plan["counters"], self.plan["hubs"] = counters.data.ptr, hubs.data.ptr
        self.plan["hub_cap"], self.plan["hub_limit"] = places, limit
        self.plan["delay"] = self.launcher.knobs.delay_ns
        return counters, hubs

    @property
    def scratch_bytes(self) -> int:
        held = self.id_map.scratch_bytes + self.met.scratch_bytes
        return held + sum(array.nbytes for array in self._list)

    def sample(self, seeds: Any, batch_id: int, events: Any = None) -> MiniBatch:
        """One mini-batch. ``events``, when given, records the hops' phases (see ``trace``)."""
        import cupy

        try:
            return self._sampled(seeds, batch_id, events)
        except BaseException:
            # What was launched may still write to pinned memory, which no stream protects after it is freed.
            cupy.cuda.get_current_stream().synchronize()
            raise

    def _sampled(self, seeds: Any, batch_id: int, events: Any) -> MiniBatch:
        id_map = self.id_map
        id_map.turns.take()
        nodes, inverse, hop_picks = self._first(seeds, batch_id, events)
        nodes = id_map.engine.begin(nodes)
        levels, picks, local = [int(nodes.size)], [], []
        for hop in range(self.spec.num_hops):
            begin = levels[-2] if self.spec.expand == "new" and hop else 0
            if hop:
                hop_picks = self.draw(nodes[begin:] if begin else nodes, hop, batch_id, events)
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
            arrays = (drawn.frontier, drawn.counts, drawn.neighbors, drawn.positions, drawn.offsets)
            return HopPicks(*(streams.leased(a, ready) for a in arrays))

        hops = len(picks)
        return MiniBatch(
            streams.leased(nodes, ready), tuple(levels), LazyTuple(hops, leased),
            LazyTuple(hops, lambda hop: streams.leased(local[hop], ready)),
            streams.leased(inverse, ready), batch_id, self.spec, self.graph, ready=ready,
        )  # fmt: skip

    def _first(self, given: Any, batch_id: int, events: Any) -> tuple[Any, Any, HopPicks]:
        """The distinct seeds, the place of each given one among them, and the first hop's picks.

        Seeds are merged from the first mini-batch on in which one comes twice.
        """
        nodes, inverse = self._taken(given)
        merged = self.merges
        if merged:
            nodes, inverse = self._merged(nodes)
        picks = self.draw(nodes, 0, batch_id, events)
        outside, repeated = self.met.found() if nodes.size else (False, False)
        if outside:
            raise ValueError(f"seeds must be vertex ids in 0..{self.graph.num_nodes - 1} (got one outside)")
        if repeated and not merged:
            self.merges = True
            if events is not None:
                events.restart()
            nodes, inverse = self._merged(nodes)
            picks = self.draw(nodes, 0, batch_id, events)
        return nodes, inverse, picks

    def _taken(self, given: Any) -> tuple[Any, Any]:
        """A copy of seeds as the graph's ids, and their numbers; nothing waits."""
        import cupy

        if given.dtype != np.int32 and given.dtype != np.int64:
            given = given.astype(np.int64)
        given = cupy.ascontiguousarray(cupy.asarray(given))
        n = int(given.size)
        seeds, inverse = cupy.empty(n, self.graph.indices.dtype), cupy.empty(n, np.int64)
        if n:
            self.met.begin(n)
            wide = np.int32(given.dtype.itemsize == 8)
            args = (self.args, self.met.argument, given, wide, np.uint64(n), seeds, inverse)
            self.k["take_seeds"]((-(-n // 256),), (256,), args)
        return seeds, inverse

    def _merged(self, seeds: Any) -> tuple[Any, Any]:
        nodes, places = self.id_map.merger.merge(seeds)
        return nodes, places.astype(np.int64)

    def draw(self, rows: Any, hop: int, batch_id: int, events: Any = None) -> HopPicks:
        """One hop's picks for ``rows``; the host waits for the total, beside the draw where there is room for all."""
        import cupy

        work = self.prepare(rows, hop)
        room = work.total if work.room is None else work.room
        neighbors = cupy.empty(room, self.graph.indices.dtype)
        positions = cupy.empty(room, np.int64)
        slots = cupy.empty(max(1, room), np.int32)
        trace = _NOT_TRACED if events is None else events.rows(hop, int(work.rows.size))
        if events is not None:
            events.mark("prepared", hop)
        self.launch_draw(work, hop, batch_id, (slots, neighbors, positions), trace)
        if events is not None:
            events.mark("drawn", hop)
        total = work.total  # the host waits here, as these systems do
        if total < room:
            neighbors, positions = neighbors[:total], positions[:total]
        return HopPicks(work.rows, work.counts, neighbors, positions, work.offsets)

    def prepare(self, rows: Any, hop: int) -> HopWork:
        """Count what the rows of ``hop`` need, and scan the counts; nothing waits."""
        import cupy

        n = int(rows.size)
        counts = cupy.empty(n, np.int32)
        work = cupy.empty(n, np.int64) if self.strategy != "block-bsp" else None
        if n:
            kept = np.uint64(0) if work is None else work
            args = (self.args, rows, np.uint64(n), np.int32(self.spec.fanouts[hop]), counts, kept)
            self.k["count_rows"]((-(-n // 256),), (256,), args)
        offsets = offsets_of(counts)
        scanned = None if work is None else offsets_of(work)
        fanout = self.spec.fanouts[hop]
        most = n * (fanout if self.spec.replace else min(fanout, self.graph.max_in_degree))
        room = most if fanout >= 0 and most <= _MOST_ROOM else None
        return HopWork(rows, counts, offsets, scanned, room, _Total(offsets))

    def launch_draw(
        self, work: HopWork, hop: int, batch_id: int, out: tuple[Any, Any, Any], trace: Any = _NOT_TRACED,
        coo_rows: Any = None,
    ) -> None:  # fmt: skip
        """Launch the kernels that draw one hop. Nothing waits.

        Args:
            work: of :meth:`prepare`.
            hop: which hop.
            batch_id: of the mini-batch.
            out: slots ``int32``, neighbours (ids) and positions ``int64``, room for ``work.total`` or more each.
            trace: ``uint64[4 n]``, the rows' records in a traced run.
            coo_rows: each pick's vertex (ids) is written there as well, which makes the hop's arrays COO, as DGL and
                PGSampler leave them; None: not. Under ``block-bsp``.
        """
        n = int(work.rows.size)
        if not n:
            return
        k, sms, knobs = self.k, self.launcher.sms, self.launcher.knobs
        size, fanout = np.uint64(n), np.int32(self.spec.fanouts[hop])
        head, ids = (self.args, work.rows), (np.int32(hop), np.uint32(batch_id))
        offsets, slots = work.offsets, out[0]
        args: tuple[Any, ...]
        if self.strategy == "block-bsp":
            if coo_rows is not None:
                args = (*head, fanout, *ids, offsets, slots, coo_rows, *out[1:], trace)
                k["draw_blocks_coo"]((n,), (knobs.block_threads,), args)
            else:
                args = (*head, fanout, *ids, offsets, *out, trace)
                k["draw_blocks"]((n,), (knobs.block_threads,), args)
        elif self.strategy == "turbo-bsp":
            grid = (min(n, knobs.blocks_per_sm["turbo-bsp"] * sms),)
            args = (*head, size, fanout, *ids, offsets, *out, work.scanned, trace)
            k["draw_balanced"](grid, (128,), args)
        else:
            grid = (knobs.blocks_per_sm["edge-bsp"] * sms,)
            k["edge_begin"](grid, (256,), (*head, size, fanout, *ids, offsets, slots))
            k["edge_draw"](grid, (256,), (*head, size, fanout, *ids, offsets, slots, work.scanned))
            k["edge_gather"](grid, (256,), (*head, size, offsets, *out, trace))
        if self._list:
            coo = np.uint64(0) if coo_rows is None else coo_rows
            args = (*head, fanout, *ids, offsets, slots, coo, *out[1:], trace)
            launch(k["draw_hubs"], (knobs.blocks_per_sm["hubs"] * sms,), (256,), args)
