"""``direct``, ``direct-cached`` and ``uva`` on GPUs: the sampling kernel reads lists where they lie.

One mechanism serves all three: the kernels of the strategy ``captured``, with the ID map in the sampler and several
mini-batches to a launch, compiled to look up rows that may lie in any memory (``sampling/neighbors/hops/lists.cuh``).
A call has no collective, so that ranks need not call in step.

- ``direct``: lists and their records stay with their owners. This GPU keeps owner and row of each vertex (4 bytes).
- ``direct-cached``: records of all vertices (8 bytes) are here, and copies of the lists that save most reads. Lists
  that exceed ``topology_bytes`` are in pinned host memory.
- ``uva``: records and all lists, one's own too, are in pinned host memory.

Ranks must not write to what others sample from; nothing here does after the setup.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from gnnsample_lab.device import pinned, runtime, streams
from gnnsample_lab.device.capturing import wait_for_device
from gnnsample_lab.minibatch.gpu.run import GpuEngine
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.sampling.neighbors.lists import ListsGraph, Place
from gnnsample_lab.sampling.neighbors.sizes import power_of_two
from gnnsample_lab.sampling.neighbors.spec import HopPicks, SampleSpec

from ...peer_memory import PeerMemory
from ..engines import Setup
from ..sectors import count_reads
from ..spill import Spill, memories, spill, without
from ..visits import hot_lists
from .csp_kernels import pinned_words
from .lists import (
    Copies,
    copy_lists,
    fill,
    graph_by_local_records,
    graph_by_owners_records,
    host_place,
    own_records,
    room_for,
)

_STRATEGY, _FETCH_SIZE = "captured", 5


class DirectEngine:
    """Samples on one GPU from lists in several memories.

    Attributes:
        memory: the blocks of all ranks; None for ``uva``.
        copies: hot lists on this GPU; None without a cache.
        spill: lists in host memory; None without any.
        graph: as kernels see it.
        topology_bytes: bytes on this GPU by what they are, the scratch memory of calls apart.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup, self.spec, self.layout = setup, setup.spec, setup.layout
        self.part, self.partition = setup.layout.part, setup.layout.partition
        self.exchange, self.method = setup.layout.exchange, setup.method
        self.memory: PeerMemory | None = None
        self.copies: Copies | None = None
        self.spill: Spill | None = None
        self.topology_bytes: dict[str, int] = {}
        self.id_dtype = self.part.indices.dtype
        with streams.call(), runtime.lock:
            self.graph = self._in_host_memory() if self.method == "uva" else self._in_peer_memory()
            self.gpu: GpuEngine | None = lists_engine(self.graph, setup.spec, setup.scratch_bytes)
            if runtime.cuda_available():  # the first call may be on another stream
                wait_for_device()
        self._staged = _Staged()

    # ---- where lists are ----------------------------------------------------------------------------------------

    def _in_peer_memory(self) -> ListsGraph:
        part, weighted, cached = self.part, self.spec.weighted, self.method == "direct-cached"
        self.spill = spill(self.setup, self._draw_from_host()) if cached else None
        if self.spill is not None:
            part = without(part, self.spill.is_spilled)
        records = None if cached else own_records(part)
        shape = (part.num_edges, len(part.vertices), 0 if records is None else len(records))
        room = room_for(*shape, self.id_dtype.itemsize, weighted)
        exchange = self.exchange
        memory = self.memory = PeerMemory(
            exchange.rank, room.nbytes, method=self.method, group=exchange.group
        )
        shapes = memory.exchanged(shape)
        fill(part, room, records, weighted, lambda dtype, n, at: memory.array(dtype, n, at))
        memory.barrier()
        places = [
            room_for(entries, rows, words, self.id_dtype.itemsize, weighted).place(base)
            for (entries, rows, words), base in zip(shapes.tolist(), memory.pointers, strict=True)
        ]
        self.topology_bytes["part"] = room.nbytes
        if not cached:
            most = int(memory.exchanged([int(np.diff(part.indptr).max(initial=0))]).max())
            graph = graph_by_owners_records(
                self.partition, places, self.id_dtype, most, weighted, keep=(memory,)
            )
            self.topology_bytes["owners"] = int(graph.keep[-1].nbytes)
            return graph
        table, available, place_of = self.layout.records, self._available(), self.partition.owner
        held: list[np.ndarray] = []
        if self.spill is not None:
            table, place_of = self.spill.records, place_of + len(places) * self.spill.is_spilled
            places += self._host_places(held)

        def graph_with(copies: Copies | None) -> ListsGraph:
            return graph_by_local_records(
                self.partition, table, places, self.id_dtype, available, copies, keep=(memory, tuple(held)),
                place_of=place_of,
            )  # fmt: skip

        drawing: list[GpuEngine] = []

        def draw(seeds: np.ndarray, batch_id: int) -> MiniBatch:
            if not drawing:
                drawing.append(lists_engine(graph_with(None), self.spec, self.setup.scratch_bytes))
            return drawing[0].sample_many([seeds], batch_id)[0]

        hot = hot_lists(self.setup, draw)
        drawing.clear()
        self.copies = copy_lists(hot, places, place_of, table[:, 0], self.id_dtype, weighted)
        memory.barrier()  # copies are made; what follows reads no more than draws do
        graph = graph_with(self.copies)
        self.topology_bytes["copies"] = self.copies.nbytes
        self.topology_bytes["records"] = _record_bytes(graph)
        return graph

    def _in_host_memory(self) -> ListsGraph:
        held: list[np.ndarray] = []
        places = self._host_places(held)

        def put(array: np.ndarray) -> Any:
            copy = pinned.empty(array.nbytes).view(array.dtype)
            copy[:] = array
            return pinned.mapped(copy)

        return graph_by_local_records(
            self.partition, self.layout.records, places, self.id_dtype, self._available(), put=put,
            keep=(tuple(held),),
        )  # fmt: skip

    def _host_places(self, held: list[np.ndarray]) -> list[Place]:
        """Lists of all parts in host memory; ``held`` gets what must live as long."""
        return [host_place(part, self.spec.weighted, held) for part in self.layout.parts]

    def _draw_from_host(self) -> Callable[[np.ndarray, int], MiniBatch]:
        """What samples from lists in host memory: before it is known which of them come to this GPU."""
        made: list[GpuEngine] = []

        def draw(seeds: np.ndarray, batch_id: int) -> MiniBatch:
            if not made:
                made.append(lists_engine(self._in_host_memory(), self.spec, self.setup.scratch_bytes))
            return made[0].sample_many([seeds], batch_id)[0]

        return draw

    def _available(self) -> np.ndarray | None:
        """In-edges of positive weight of every vertex, for weighted rules."""
        if not self.spec.weighted:
            return None
        found = np.empty(self.partition.num_nodes, dtype=np.int32)
        for part in self.layout.parts:
            found[part.vertices] = part.available
        return found

    # ---- sampling -----------------------------------------------------------------------------------------------

    def sample(self, seeds: Any, batch_id: int) -> MiniBatch:
        return self.sample_many([seeds], batch_id)[0]

    def sample_many(self, seeds: list[Any], first_batch_id: int) -> list[MiniBatch]:
        """As :class:`~..engines.Engine` says; seeds may be CuPy arrays, which are read where they are."""
        if self.gpu is None:
            raise RuntimeError("the sampler was closed")
        if not seeds:
            return []
        with streams.call(), runtime.lock:
            seeds = self._staged.put(seeds)
            if all(array.size for array in seeds):
                batches = self.gpu.sample_many(seeds, first_batch_id)
            else:
                batches = [self._one(array, first_batch_id + i) for i, array in enumerate(seeds)]
        if self.setup.count_reads:
            for batch in batches:
                self.count(batch)
        else:
            self.exchange.traffic.label = "reads were not counted: count_reads=False"
        return batches

    def _one(self, seeds: Any, batch_id: int) -> MiniBatch:
        if not seeds.size:
            return empty_batch(self.graph, self.spec, batch_id)
        assert self.gpu is not None
        return self.gpu.sample_many([seeds], batch_id)[0]

    def close(self) -> None:
        """Free what peers read, together with them; batches that were handed out stay."""
        if self.gpu is None:
            return
        self.gpu = None
        if self.memory is not None:
            self.memory.close()

    # ---- counting -----------------------------------------------------------------------------------------------

    def count(self, batch: MiniBatch) -> None:
        """Add what a sample read of other memory than this GPU's to the traffic, from the sample itself."""
        host, owner, me = batch.to_cpu(), np.asarray(self.partition.owner), self.part.rank
        traffic, id_bytes = self.exchange.traffic, self.id_dtype.itemsize
        records, is_copied = self.layout.records, None
        if self.copies is not None:
            is_copied = np.zeros(self.partition.num_nodes, dtype=bool)
            is_copied[self.copies.hot.ids] = True
        is_far = np.full(self.partition.num_nodes, self.method == "uva")
        if self.spill is not None:
            records, is_far = self.spill.records, self.spill.is_spilled
        for hop, picks in enumerate(host.picks):
            of = owner[picks.frontier]
            traffic.ideal += picks.num_picks * id_bytes
            traffic.ideal_remote += int(picks.counts[of != me].sum()) * id_bytes
            for p, in_host in itertools.product(
                range(self.partition.num_parts), memories(self.method, self.spill)
            ):
                if p == me and not in_host:
                    continue
                chosen = (of == p) & (is_far[picks.frontier] == in_host)
                if is_copied is not None:
                    chosen &= ~is_copied[picks.frontier]
                begins, degrees = records[picks.frontier[chosen]].T.astype(np.int64)
                slots = picks.positions[np.repeat(chosen, picks.counts)]
                count_reads(
                    traffic, self.exchange.members[p], self.method, self.spec, hop, id_bytes, begins, degrees,
                    picks.counts[chosen], slots, in_host,
                )  # fmt: skip


class _Staged:
    """Seeds of the host on the GPU: all of a call by one asynchronous copy from page-locked memory.

    The memory serves call after call: a call ends when the host knows the sizes of its mini-batches, and by then their
    seeds were read.
    """

    def __init__(self) -> None:
        self._room = 0

    def put(self, seeds: list[Any]) -> list[Any]:
        """The same seeds as CuPy arrays, in stream order; those that are CuPy arrays already as they are."""
        import cupy

        total = sum(array.size for array in seeds if isinstance(array, np.ndarray))
        if not total:
            return seeds
        if self._room < total:
            self._room = power_of_two(total, 1024)
            self._memory, self._words = pinned_words(self._room)
            self._array = cupy.empty(self._room, np.int64)
        at, placed = 0, []
        for array in seeds:
            if isinstance(array, np.ndarray):
                end = at + array.size
                self._words[at:end] = array
                array = cupy.ndarray((array.size,), np.int64, self._array.data + 8 * at)
                at = end
            placed.append(array)
        self._array.data.copy_from_host_async(self._memory.ptr, 8 * total)
        return placed


def lists_engine(graph: ListsGraph, spec: SampleSpec, scratch_bytes: int | None = None) -> GpuEngine:
    """The sampling engine for lists in several memories; its samples have slots for positions.

    Args:
        graph: where the lists are.
        spec: settings of the draw.
        scratch_bytes: bound of its buffers; None is the default of every sampler.
    """
    weights = graph.weights if spec.weighted else None
    return GpuEngine(
        graph, spec, weights, _STRATEGY, "exact", _FETCH_SIZE, False, scratch_bytes, id_map="in-sampler"
    )


def empty_batch(graph: Any, spec: SampleSpec, batch_id: int) -> MiniBatch:
    """The mini-batch of no seeds, CuPy."""
    import cupy

    ids, none = cupy.empty(0, graph.indices.dtype), cupy.empty(0, np.int32)
    picks = HopPicks(ids, none, ids, cupy.empty(0, np.int64), cupy.zeros(1, np.int64))
    hops = spec.num_hops
    return MiniBatch(
        ids, (0,) * (hops + 1), (picks,) * hops, (none,) * hops, cupy.empty(0, np.int64), batch_id, spec, graph,
        ready=streams.Ready(),
    )  # fmt: skip


def _record_bytes(graph: ListsGraph) -> int:
    weights = 0 if graph.weights is None else graph.weights.prefix.nbytes + graph.weights.available.nbytes
    return int(graph.indptr.nbytes + weights)


def engine(setup: Setup) -> DirectEngine:
    return DirectEngine(setup)
