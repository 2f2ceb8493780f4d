"""``lab.distributed.partition``: which part owns which vertex, and how good the cut is (DSP, sections 3.1 and 6)."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnsample_lab.checks import choice, flag, host_integers, ids, instance, real, shown, whole
from gnnsample_lab.checks import seed as checked_seed
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.graph import cache, roots
from gnnsample_lab.graph.checks import check_distinct, host_bytes, id_dtype
from gnnsample_lab.graph.graph import Graph, check_graph

from . import methods
from .balance import UnevenPartsError, check_even, compile_loops, limits_of, loads_of, ratios_of
from .moving import QUANTITIES, count_traffic

MAX_PARTS = 2**15 - 1
VERSION = 1
"""Of the stored form, and of what the methods compute."""
TOLERANCES = (1.1, 1.25, 1.5, 2.0)
"""The largest part over the mean: what is asked of a division, and what is put up with where no method reaches that."""
BASELINES = ("random", "range")
"""Methods that even nothing out."""
_STORED = ("metis", "streaming")
"""Methods whose result is worth a file; the others are made faster than read."""


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """Who owns which vertex. An edge belongs to the part of its destination, which keeps its in-neighbour list.

    Ids are original everywhere but in ``new_of``, ``old_of`` and ``boundaries``: the renumbering gives each part
    consecutive new ids and keeps the order of the original ids inside a part.

    Attributes:
        owner: part of each vertex, ``int8[N]``, from 128 parts on ``int16[N]``; by original id.
        boundaries: new ids of part p are ``boundaries[p]:boundaries[p+1]``, ``int64[K+1]``.
        new_of, old_of: new id of an original one and the reverse, ``int32[N]`` (int64 from 2**31 vertices on).
        traffic: ``int64[K, K]``: edges by the part of their destination and the part of their source.
        seeds: the training vertices, ``int64[T]``, in the order given.
        method: ``"metis"``, ``"streaming"``, ``"random"`` or ``"range"``.
        seed, tolerance: as asked for.
        seconds: wall clock of computing ``owner``, on the machine and in the run that computed it.
        graph_hash: :func:`topology_hash` of the graph.
        name: of the graph.
    """

    owner: Any
    boundaries: Any
    new_of: Any
    old_of: Any
    traffic: Any
    seeds: Any
    method: str
    seed: int
    tolerance: float
    seconds: float
    graph_hash: str
    name: str

    @property
    def num_parts(self) -> int:
        return len(self.boundaries) - 1

    @property
    def num_nodes(self) -> int:
        return len(self.owner)

    @property
    def vertices(self) -> np.ndarray:
        """Vertices of each part, ``int64[K]``."""
        return np.diff(self.boundaries)

    @property
    def edges(self) -> np.ndarray:
        """In-edges of each part's vertices, ``int64[K]``."""
        return np.asarray(self.traffic.sum(1))

    @property
    def seed_counts(self) -> np.ndarray:
        """Training vertices of each part, ``int64[K]``."""
        return np.bincount(self.owner[self.seeds], minlength=self.num_parts)

    @property
    def cut_share(self) -> float:
        """Share of all edges whose source another part owns."""
        edges = int(self.traffic.sum())
        return 1.0 - int(np.trace(self.traffic)) / edges if edges else 0.0

    @property
    def balance(self) -> dict[str, float]:
        """The largest part's multiple of the mean, for ``"vertices"``, ``"edges"`` and ``"seeds"``."""
        ratios = ratios_of(np.stack([self.vertices, self.edges, self.seed_counts], 1))
        return {name: float(ratio) for name, ratio in zip(QUANTITIES, ratios.max(0))}

    @property
    def bytes_per_vertex(self) -> dict[str, int]:
        """Of each way to find a vertex: its owner alone, or owner and place in the part by the renumbering."""
        return {"owner": self.owner.itemsize, "renumbering": self.new_of.itemsize}

    def place(self, vertices: Any) -> tuple[np.ndarray, np.ndarray]:
        """Who owns vertices, and where they stand among the owner's.

        Args:
            vertices: original ids, integers ``[n]``.

        Returns:
            ``(part, position)``: ``int16[n]`` and ``int64[n]``; ``Part.vertices[position]`` of that part is the vertex.

        Raises:
            TypeError, ValueError: no integers; an id out of range.
        """
        found = host_integers("vertices", ids("vertices", vertices, self.num_nodes))
        part = self.owner[found].astype(np.int16)
        return part, self.new_of[found] - self.boundaries[part]

    def measures(self) -> dict[str, Any]:
        """One row of a table: graph, method, parts, share of edges cut, balance, seconds, bytes per vertex."""
        return {
            "graph": self.name, "method": self.method, "parts": self.num_parts, "cut_share": self.cut_share,
            **{f"{name}_ratio": ratio for name, ratio in self.balance.items()},
            "partition_s": self.seconds, "owner_bytes": self.bytes_per_vertex["owner"],
        }  # fmt: skip

    def digest(self) -> str:
        """SHA-256 over owners and seeds: ranks that got theirs from different files can compare it."""
        sha = hashlib.sha256(f"{self.graph_hash} {self.num_parts};".encode())
        for array in (self.owner, self.seeds):
            sha.update(host_bytes(array))
        return sha.hexdigest()

    def __repr__(self) -> str:
        uneven = ", ".join(f"{name} {ratio:.3f}" for name, ratio in self.balance.items())
        return (
            f"Partition({self.name!r}: {self.num_parts} parts by {self.method!r}, {self.cut_share:.1%} of the edges "
            f"cut, largest part against the mean: {uneven}; {self.seconds:.2f} s)"
        )


def partition(
    graph: Graph, parts: int, method: str = "metis", seeds: Any = None, seed: int = 0, *, tolerance: float = 1.1,
    root: str | os.PathLike[str] | None = None, use_cache: bool = True,
) -> Partition:  # fmt: skip
    """Divide a graph's vertices among parts, few edges between them, each even in vertices, edges and seeds.

    ``"metis"`` weighs a vertex by its in-degree, plus a mean in-degree if it is a seed: with equal weights the parts
    come out even in vertices, and where degrees are skewed one part gets nearly all edges. METIS through pymetis knows
    one weight a vertex, so parts that are even by it may be uneven in vertices or seeds. Then, and after
    ``"streaming"``, vertices are moved, cheapest first, until all three quantities keep to ``tolerance``. ``"random"``
    and ``"range"`` are baselines and stay as they are. A part that still exceeds ``tolerance`` times the mean is an
    error; where whole vertices cannot do better (few seeds, a hub with most edges) the limit is what they can do.

    All but METIS's own step is a function of the arguments on every machine. METIS draws from the C library's
    generator: the same pymetis on the same platform gives the same parts, another platform may not. Ranks must
    therefore share one result, by the cache or by :func:`save_parts`, and can compare :meth:`Partition.digest`.

    Results of ``"metis"`` and ``"streaming"`` are stored in the cache folder of the data root, found by a hash of
    topology, seeds and arguments; ``gnnsample-lab partition`` does so beforehand.

    Args:
        graph: any graph, on either device; directions are ignored by ``"metis"`` and kept by the other methods.
        parts: number of parts, at most one per vertex.
        method: ``"metis"`` (up to 150 million entries of the symmetric adjacency), ``"streaming"`` (any size),
            ``"random"`` or ``"range"``.
        seeds: training vertices, distinct; None takes the graph's training split, and none where it has no split.
        seed: of ``"metis"`` (its lowest 31 bits), and of the order in which ``"streaming"`` and ``"random"`` go.
        tolerance: the largest part over the mean, from 1 on; the number of parts switches the check off.
        root: data root whose cache folder is used; as in :func:`gnnsample_lab.load`.
        use_cache: False neither reads nor writes it.

    Raises:
        TypeError: ``graph`` is no Graph; an argument of the wrong kind.
        ValueError: an argument out of range; a graph too large for ``"metis"``, naming ``"streaming"``;
            :class:`UnevenPartsError` names the part, the quantity and its ratio to the mean.
        ImportError: ``"metis"`` without pymetis.
    """
    graph = check_graph(graph)
    parts = whole("parts", parts, 1, min(MAX_PARTS, max(1, graph.num_nodes)))
    method = choice("method", method, methods.METHODS)
    chosen = check_seeds(graph, seeds)
    seed, tolerance = checked_seed(seed), real("tolerance", tolerance, 1)
    base, use_cache = roots.data_root(root), flag("use_cache", use_cache)
    if graph.num_nodes == 0:
        raise ValueError(f"graph must have vertices to divide (got {shown(graph)})")
    request = {"method": method, "seed": seed, "tolerance": tolerance, "graph_hash": topology_hash(graph)}
    if not use_cache or method not in _STORED:
        return _computed(graph, parts, chosen, request)
    from . import storage

    stamp = cache.fingerprint([VERSION, parts, request, hashlib.sha256(host_bytes(chosen)).hexdigest()])
    found = storage.cached_partition(
        base, f"partition-{method}-{parts}", stamp, lambda: _computed(graph, parts, chosen, request)
    )
    return replace(found, name=graph.name)  # another graph of the same topology may have been the first


def evenest(graph: Graph, parts: int, method: str, seeds: Any = None) -> Partition:
    """The division by the smallest of :data:`TOLERANCES` that ``method`` keeps to; a baseline is taken as it is.

    Looser ones are tried for small graphs: few training vertices, or edges that some vertices hold, cannot always be
    even. A tolerance of as many as there are parts would allow that one of them has everything, and is not tried.

    Args:
        graph, parts, method, seeds: as of :func:`partition`.

    Raises:
        UnevenPartsError: ``method`` keeps to none of them.
        TypeError, ValueError, ImportError: as of :func:`partition`.
    """
    if method in BASELINES:
        tried: tuple[float, ...] = (TOLERANCES[0], max(TOLERANCES[0], float(parts)))
    else:
        tried = tuple(t for t in TOLERANCES if t < parts or t == TOLERANCES[0])
    for tolerance in tried:
        try:
            return partition(graph, parts, method, seeds, tolerance=tolerance)
        except UnevenPartsError as error:
            failed = error
    raise UnevenPartsError(
        f"{failed} (tried: {', '.join(f'{t:g}' for t in tried)}); parts by 'random' or 'range' are taken as uneven as "
        "they are",
        failed.part, failed.quantity, failed.ratio,
    ) from failed  # fmt: skip


def check_seeds(graph: Graph, seeds: Any) -> np.ndarray:
    """The training vertices as ``int64[T]`` on the host: ``seeds``, else the training split, else none."""
    if seeds is None:
        found = to_host(graph.splits.get("train", np.zeros(0, np.int64))).astype(np.int64, copy=False)
        check_distinct("split 'train'", found)
        return found
    found = host_integers("seeds", ids("seeds", seeds, graph.num_nodes)).astype(np.int64, copy=False)
    if len(np.unique(found)) != len(found):
        raise ValueError(
            f"seeds must be distinct (got {len(found)}, {len(np.unique(found))} of them distinct)"
        )
    return found


def topology_hash(graph: Graph) -> str:
    """SHA-256 over ``indptr`` and ``indices``, the same on every device; computed once for a graph in memory."""
    if "topology_hash" not in graph._known:
        graph._known["topology_hash"] = int(digest_of(graph.indptr, graph.indices), 16)
    return f"{graph._known['topology_hash']:064x}"


def digest_of(*arrays: Any) -> str:
    """SHA-256 over types, lengths and values of arrays, the same on every device."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(f"{array.dtype.str} {len(array)};".encode())
        flat = array.reshape(-1)
        for start in range(0, len(flat), 1 << 24):
            sha.update(host_bytes(flat[start : start + (1 << 24)]))
    return sha.hexdigest()


def _computed(graph: Graph, parts: int, seeds: np.ndarray, request: dict[str, Any]) -> Partition:
    indptr, indices = to_host(graph.indptr), to_host(graph.indices)
    is_seed = np.zeros(graph.num_nodes, dtype=np.uint8)
    is_seed[seeds] = 1
    method, seed, tolerance = request["method"], request["seed"], request["tolerance"]
    compile_loops(indices.dtype)
    began = time.perf_counter()
    if method == "random":
        owner = methods.random_parts(graph.num_nodes, parts, seed)
    elif method == "range":
        owner = methods.range_parts(indptr, parts)
    else:
        by = methods.metis_parts if method == "metis" else methods.streaming_parts
        owner = by(indptr, indices, is_seed, parts, seed, tolerance)
    seconds = time.perf_counter() - began
    limits = limits_of(indptr, is_seed, parts, tolerance)
    check_even(loads_of(indptr, is_seed, owner, parts), limits, tolerance, method)
    owner = owner.astype(np.int8 if parts <= 127 else np.int16)
    old_of = np.argsort(owner, kind="stable").astype(id_dtype(graph.num_nodes))
    new_of = np.empty_like(old_of)
    new_of[old_of] = np.arange(graph.num_nodes, dtype=old_of.dtype)
    boundaries = np.zeros(parts + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=parts), out=boundaries[1:])
    traffic = count_traffic(indptr, indices, owner, parts)
    return Partition(
        owner, boundaries, new_of, old_of, traffic, seeds, method, seed, tolerance, seconds, request["graph_hash"],
        graph.name,
    )  # fmt: skip


def check_partition(value: Any, graph: Graph, name: str = "partition") -> Partition:
    """``value``, a :class:`Partition` of this graph."""
    found: Partition = instance(name, value, Partition, "a gnnsample_lab.distributed.Partition")
    if found.num_nodes != graph.num_nodes or found.graph_hash != topology_hash(graph):
        raise ValueError(f"{name} must be of this graph, {graph!r} (got {shown(found)})")
    return found
