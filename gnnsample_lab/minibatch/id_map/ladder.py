"""The ID map: from global ids of seeds and picks to local ids ``0..n - 1``. All methods, the baselines first.

Local ids are positions in ``node_ids``: the seeds in their order, then, hop by hop, the vertices that the hop's
picks reach first. Within a hop any order is correct and methods differ in it, so results are compared in canonical
form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from gnnsample_lab.checks import array as checked_array
from gnnsample_lab.checks import choice, is_cuda_array, items, whole
from gnnsample_lab.checks import ids as checked_ids
from gnnsample_lab.device import runtime, streams
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.graph.checks import id_dtype
from gnnsample_lab.minibatch.types import CanonicalSample
from gnnsample_lab.sampling.neighbors.spec import MAX_HOPS

ID_MAPS: dict[str, str] = {
    "sort": "as array libraries do: sort all ids, find the runs of equal ones, number them by first occurrence",
    "insert-count-compact": "DGL's: insert into a hash, count first occurrences, scan, compact, look up, host wait",
    "versioned-hash": "GNNLab's: one hash for all hops, an entry knows its hop; insert and count, scan, wait, compact",
    "fused-map": "FastGL's, as published: whose swap claims a slot takes the local id at once, an atomic a thread",
    "fused-map-block": "ours: Fused-Map with one atomic a block, and several picks in flight per thread",
    "direct-address": "ours: a word per vertex, stamped so that nothing is cleared; no wait between hops",
    "level-bitmap": "ours: as direct-address; beyond the L2 cache a bit per vertex and hop, whose rank is the id",
    "in-sampler": "ours: the sampling kernels fill that table themselves while they draw (no map of its own)",
}
SAMPLER_DEFAULT = "insert-count-compact"
"""The default ID map of per-hop samplers: the map of DGL, which they reproduce."""
_MAX_NODES = 2**48
_DIRECT_NODES = 2**31
"""Most vertices for a word per vertex: for more, 32-bit stamps would run out too often, so a hash is used."""


def id_maps() -> dict[str, str]:
    """Every method to relabel, with one line on how it works; the baselines come first."""
    return dict(ID_MAPS)


def check_method(method: str) -> None:
    """ValueError unless ``method`` relabels given picks."""
    if isinstance(method, str) and method == "in-sampler":
        raise ValueError(
            "method='in-sampler' relabels while it draws and cannot relabel given picks: use "
            "NeighborSampler(strategy='captured'), or another method (got 'in-sampler')"
        )
    choice("method", method, [name for name in ID_MAPS if name != "in-sampler"])


@dataclass(frozen=True, eq=False)
class Relabelled:
    """Picks in local ids. Arrays are NumPy on the CPU and CuPy on the GPU.

    Attributes:
        node_ids: distinct vertices, global ids ``[n]``: the seeds, then new ones grouped by hop. On the GPU a view
            into a buffer with room for every pick.
        level_sizes: ``node_ids[:level_sizes[h]]`` are the vertices known before hop ``h``; length hops + 1.
        local: per hop, the picks as local ids, ``int32``.
        ready: an event after the work that makes them (:class:`~gnnsample_lab.device.streams.Ready`), for streams that
            were not current in the call.

    ``==`` compares canonical forms: the order of new vertices within a hop does not count.
    """

    node_ids: Any
    level_sizes: tuple[int, ...]
    local: Sequence[Any]
    ready: Any = field(default=streams.DONE, repr=False)

    def canonical(self) -> CanonicalSample:
        """The sorted form: seeds as they are, each hop's new vertices sorted, the picks read through local ids."""
        return self._canonical

    @cached_property
    def _canonical(self) -> CanonicalSample:
        self.ready.order()
        nodes, local = to_host(self.node_ids), [to_host(a) for a in self.local]
        arrays = [nodes[: self.level_sizes[0]], np.array(self.level_sizes)]
        arrays += [np.sort(nodes[begin:end]) for begin, end in pairwise(self.level_sizes)]
        arrays += [nodes[a] for a in local]
        return CanonicalSample(tuple(np.asarray(a, dtype=np.int64) for a in arrays))

    def __eq__(self, other: object) -> bool:
        return self.canonical() == other.canonical() if isinstance(other, Relabelled) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.canonical())

    def __repr__(self) -> str:
        sizes = " -> ".join(str(n) for n in self.level_sizes)
        return f"Relabelled(vertices {sizes}, picks per hop {[int(a.size) for a in self.local]})"


class IdMap:
    """Relabels mini-batches one after another; keeps scratch memory between them.

    Args:
        method: a name of :func:`id_maps` but ``"in-sampler"``. On the CPU all methods run the same twin.
        num_nodes: vertices of the graph, up to 2**48; every id given is below it (not checked here).
        id_dtype: ``int32`` or ``int64``, the type of all ids given and returned.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        scratch_bytes: above this ``direct-address`` takes a hash in place of a word per vertex; default 5 % of the
            free GPU memory.

    Only one thread at a time may use an object. On the GPU all work runs on CuPy's current stream, after the work of
    torch's current stream, and torch's current stream waits for the results. A call may use another stream than the
    call before; it then waits for that call, on the device.
    """

    def __init__(
        self, method: str, num_nodes: int, id_dtype: Any = np.int64, device: str = "auto",
        scratch_bytes: int | None = None,
    ) -> None:  # fmt: skip
        check_method(method)
        self.method, self.num_nodes = method, whole("num_nodes", num_nodes, 1, _MAX_NODES)
        self.id_dtype = np.dtype(id_dtype)
        if self.id_dtype not in (np.dtype(np.int32), np.dtype(np.int64)):
            raise TypeError(f"id_dtype must be int32 or int64 (got {id_dtype!r})")
        if self.id_dtype.itemsize == 4 and self.num_nodes > 2**31:
            raise ValueError(f"id_dtype int32 holds ids below {2**31} (got num_nodes={num_nodes})")
        self.device = runtime.resolve_device(device)
        self.engine: Any = self._gpu_engine(scratch_bytes) if self.device == "cuda" else None
        self._merger: Any = None
        if self.engine is None:
            from .cpu import CpuMap

            self.engine = self._merger = CpuMap(self.num_nodes, self.id_dtype)

    def _gpu_engine(self, scratch_bytes: int | None) -> Any:
        from . import fused as id_map_fused
        from . import gpu as id_map_gpu
        from . import levels as id_map_levels
        from . import versioned

        if self.method == "sort":
            return id_map_gpu.SortMap(self.num_nodes, self.id_dtype)
        if self.method == "insert-count-compact":
            return id_map_gpu.CompactMap(self.num_nodes, self.id_dtype)
        if self.method == "versioned-hash":
            return versioned.VersionedMap(self.num_nodes, self.id_dtype)
        if self.method == "level-bitmap" and self._bitmaps_pay(scratch_bytes):
            return id_map_levels.LevelMap(self.num_nodes, self.id_dtype, self._own_table(scratch_bytes))
        fused = self.method.startswith("fused-map")
        table = "cleared" if fused else self._own_table(scratch_bytes)
        return id_map_fused.InsertingMap(
            self.num_nodes, self.id_dtype, table, published=self.method == "fused-map"
        )

    def _bitmaps_pay(self, scratch_bytes: int | None) -> bool:
        """Whether a word per vertex exceeds the L2 cache, and bitmaps fit: of 15 hops, if a mini-batch had so many."""
        from .levels import MOST_NODES

        exceeds = 4 * self.num_nodes > int(runtime.device_properties()["l2CacheSize"])
        fits = self.num_nodes * MAX_HOPS // 7 <= runtime.scratch_bytes(scratch_bytes)
        return exceeds and fits and self.num_nodes <= MOST_NODES

    def _own_table(self, scratch_bytes: int | None) -> str:
        most = runtime.scratch_bytes(scratch_bytes)
        fits = self.num_nodes <= _DIRECT_NODES and 4 * self.num_nodes <= most
        return "direct" if fits else "stamped"

    @property
    def scratch_bytes(self) -> int:
        """Bytes of tables kept between mini-batches."""
        return int(self.engine.scratch_bytes)

    def merge(self, seeds: Any) -> tuple[Any, Any]:
        """Distinct ``seeds`` in first-seen order (ids), and the index of each given seed among them (``int32``)."""
        nodes, places, _ = self._run(lambda: self.merger.merge(self._ids(seeds)))
        return nodes, places

    @property
    def merger(self) -> Any:
        """The map that merges repeated seeds."""
        if self._merger is None:
            from .gpu import CompactMap

            own = isinstance(self.engine, CompactMap)
            self._merger = self.engine if own else CompactMap(self.num_nodes, self.id_dtype)
            self._merger.turns = self.turns  # both maps use their memory in turn
        return self._merger

    @property
    def turns(self) -> Any:
        """The users of the tables on the GPU (:class:`~gnnsample_lab.device.streams.Turns`)."""
        return self.engine.turns

    def _run(self, work: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """What ``work`` returns, with its arrays in leased memory, and the event after the work."""
        if self.device == "cpu":
            return *work(), streams.DONE
        with streams.call():
            self.turns.take()
            with streams.leasing(self.turns):
                made = work()
            self.turns.leave()
            ready = streams.Ready()

            def leased(part: Any) -> Any:
                if isinstance(part, list):
                    return [leased(p) for p in part]
                return streams.leased(part, ready) if is_cuda_array(part) else part

            return *(leased(part) for part in made), ready

    def begin(self, seeds: Any) -> Any:
        """Start a mini-batch with **distinct** seeds, global ids ``[n0]``; returns its vertices so far, the seeds."""
        return self._run(lambda: (self.engine.begin(self._ids(seeds)),))[0]

    def extend(self, neighbors: Any) -> tuple[Any, Any]:
        """Add one hop's picks, global ids ``[m]``; at most 15 hops.

        Returns:
            All vertices so far (global ids; positions are local ids) and the picks' local ids, ``int32[m]``. The
            host waits for the number of vertices, as a sampler that goes hop by hop has to.
        """
        nodes, local, _ = self._run(lambda: self.engine.extend(self._ids(neighbors)))
        return nodes, local

    def map_hops(self, seeds: Any, neighbors: Sequence[Any]) -> Relabelled:
        """Map a whole mini-batch.

        ``"direct-address"`` and ``"level-bitmap"`` wait once, at the end; the other methods wait after every hop.

        Args:
            seeds: **distinct** global ids ``[n0]``.
            neighbors: per hop, picked global ids.
        """
        nodes, levels, local, ready = self._run(
            lambda: self.engine.map_hops(self._ids(seeds), [self._ids(a) for a in neighbors])
        )
        return Relabelled(nodes, tuple(levels), local, ready)

    def _ids(self, array: Any) -> Any:
        if self.device == "cpu":
            return np.ascontiguousarray(to_host(array), dtype=self.id_dtype)
        import cupy

        streams.order(array)
        if type(array) is cupy.ndarray and array.dtype == self.id_dtype and array.flags.c_contiguous:
            return array
        return cupy.ascontiguousarray(cupy.asarray(checked_array("ids", array), dtype=self.id_dtype))

    def __repr__(self) -> str:
        return f"IdMap({self.method!r}, num_nodes={self.num_nodes}, device={self.device!r})"


def relabel(
    seeds: Any,
    neighbors: Sequence[Any],
    num_nodes: int,
    method: str = "direct-address",
    device: str = "auto",
) -> Relabelled:
    """Local ids for one mini-batch's picks. For many mini-batches use an :class:`IdMap`, which checks less.

    Args:
        seeds: distinct global ids ``[n0]``; NumPy, CuPy, torch or a list.
        neighbors: picked global ids, one array per hop (0 to 15 hops, each possibly empty), seeds' hop first.
        num_nodes: vertices of the graph; ids are below it.
        method: a name of :func:`id_maps` but ``"in-sampler"``.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.

    Returns:
        :class:`Relabelled`; ids are ``int32`` where ``num_nodes`` allows, else ``int64``. The streams of CuPy and torch
        that are current in the call may read it; others wait for its ``ready``.

    Raises:
        TypeError, ValueError: ids are not integers, not one-dimensional or out of range; seeds are empty or not
            distinct; too many hops; an unknown method. The message names the argument.
    """
    check_method(method)
    nodes = whole("num_nodes", num_nodes, 1, _MAX_NODES)
    device = runtime.resolve_device(device)
    neighbors = items("neighbors", neighbors, "a list of arrays, one per hop")
    if len(neighbors) > MAX_HOPS:
        raise ValueError(f"neighbors may hold at most {MAX_HOPS} hops (got {len(neighbors)})")
    streams.order(seeds, *neighbors)
    given = checked_ids("seeds", seeds, nodes)
    hops = [checked_ids(f"neighbors[{hop}]", picks, nodes) for hop, picks in enumerate(neighbors)]
    unique = np.unique(to_host(given))
    if not given.size or unique.size != given.size:
        problem = f"{given.size - unique.size} repeated" if given.size else "none"
        raise ValueError(f"seeds must be distinct vertex ids, at least one (got {problem})")
    with runtime.lock:
        return IdMap(method, nodes, id_dtype(nodes), device).map_hops(given, hops)
