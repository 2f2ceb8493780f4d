"""Synthetic graphs: R-MAT, and version 2 of the twins, which earlier records were measured on.

Every draw is an integer function of the seed, so a graph is the same on the CPU and on the GPU, bit for
bit. A twin has its original's vertex, edge, feature and class counts, directedness and training share, hubs
of about the same size, and labels that show in both its edges (communities) and its features (centroids),
so that a GNN beats a classifier of features alone.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from gnnsample_lab.checks import flag, items, real, text, whole
from gnnsample_lab.checks import seed as checked_seed
from gnnsample_lab.device import runtime
from gnnsample_lab.graph.catalogue import Entry
from gnnsample_lab.graph.csc import rows_of
from gnnsample_lab.graph.edgewise.assemble import assemble
from gnnsample_lab.graph.edgewise.plan import (
    ORDER,
    RANKS,
    CommunityPlan,
    Plan,
    RmatPlan,
    bijection,
    class_starts,
    most_edges,
    scatter_ids,
)
from gnnsample_lab.graph.graph import Graph

GENERATOR_VERSION = 2
"""Of these twins, whose draws stay as they are: ``lab.load(name, version=2)`` repeats what records were made on."""
FEATURE_LIMIT_BYTES = 4 * 2**30
HIDDEN_COMMUNITIES = 32
"""Communities of twins whose originals have no labels."""
MIN_NODES = 16
MAX_NODES = 2**31 - 1
_DRAWS_PER_NODE = 62_000_000 / 2**21


def check_scale(entry: Entry, scale: float) -> None:
    """ValueError where ``scale`` asks for more vertices than a generated graph can have."""
    if entry["num_nodes"] * scale > MAX_NODES:
        raise ValueError(
            f"scale must leave at most {MAX_NODES} vertices (got {scale} for {entry['num_nodes']} vertices)"
        )


def twin_plan(entry: Entry, scale: float, seed: int) -> CommunityPlan:
    """The plan of a twin at ``scale``: vertices and edges shrink alike, so the mean degree stays.

    Where the scaled graph would be denser than a quarter of all pairs, it gets that many edges instead.
    """
    check_scale(entry, scale)
    num_nodes = max(MIN_NODES, round(entry["num_nodes"] * scale))
    num_edges = min(round(entry["num_edges"] * scale), num_nodes * (num_nodes - 1) // 4)
    symmetric = not entry["directed"]
    if symmetric:
        num_edges -= num_edges % 2
    recipe = entry["version_2"]
    fixed = {k: int(recipe[k] * 2**32) for k in ("same", "dst_flat", "src_flat")}
    return CommunityPlan(
        num_nodes=num_nodes, num_edges=num_edges, symmetric=symmetric, seed=seed,
        starts=class_starts(num_nodes, entry.get("num_classes") or HIDDEN_COMMUNITIES),
        dst_power=recipe["dst_power"], src_power=recipe["src_power"], oversample=recipe["oversample"],
        **fixed,
    )  # fmt: skip


def twin(
    entry: Entry, *, scale: float, seed: int, features: bool | str, weighted: bool, device: str
) -> Graph:
    """Generate the twin described by a catalogue entry; see :func:`gnnsample_lab.load`."""
    plan = twin_plan(entry, scale, seed)
    num_features = entry.get("num_features") or 0
    with_features = wants_features(plan.num_nodes, num_features, features)
    backend = _backend(plan, device, 4 * plan.num_nodes * num_features if with_features else 0)
    with runtime.lock:
        indptr, indices = assemble(plan, backend)
        label = feat = None
        if entry.get("num_classes"):
            label = _labels(backend, plan)
            if with_features:
                feat = backend.features(label, plan.num_classes, num_features, seed)
        graph = Graph(
            indptr, indices, _weights(backend, indptr, indices, seed) if weighted else None, feat, label,
            _splits(backend, plan, entry, scale), plan.num_classes if label is not None else 0,
            entry["name"], True, version=GENERATOR_VERSION, validate=False,
        )  # fmt: skip
        return graph.to(device)


def wants_features(num_nodes: int, num_features: int, features: bool | str) -> bool:
    """Whether checked ``features`` are generated: ``"auto"`` does up to 4 GiB, on every machine alike."""
    if features == "auto":
        return 0 < 4 * num_nodes * num_features <= FEATURE_LIMIT_BYTES
    return bool(features) and num_features > 0


def rmat(
    num_nodes: int = 2**21,
    num_draws: int | None = None,
    *,
    num_edges: int | None = None,
    undirected: bool = True,
    probabilities: tuple[float, float, float] = (0.57, 0.19, 0.19),
    weighted: bool = False,
    seed: int = 0,
    device: str = "cpu",
    name: str = "rmat",
) -> Graph:
    """R-MAT graph (Chakrabarti, Zhan and Faloutsos, SDM'04) with scattered vertex ids and no parallel edges.

    Each draw descends a quadtree over (source, destination) with the probabilities of the quadrants (0, 0),
    (0, 1), (1, 0), the fourth being the rest. Self-loops are kept, duplicates are merged.

    Args:
        num_nodes: vertices; need not be a power of two.
        num_draws: drawn edges before duplicates are merged; 62 million at 2**21 vertices, in proportion
            elsewhere, when neither this nor ``num_edges`` is given.
        num_edges: ask for this many distinct directed edges instead (within one when ``undirected``). At most a quarter
            of all pairs, and no more than the quadrants give in some 64 draws an edge.
        undirected: add the reverse of each edge.
        probabilities: of the first three quadrants, in steps of 1/65536.
        weighted: give every edge a weight in [1, 5).
        seed: which graph.
        device: where the result lies, ``"cpu"``, ``"cuda"`` or ``"auto"``; it is generated on the GPU when
            there is one that can hold it, and is the same graph either way.

    Raises:
        ValueError, TypeError: naming the argument.
        MemoryError: ``device="cuda"`` and the graph is larger than the GPU's free memory.
    """
    num_nodes = whole("num_nodes", num_nodes, 2, MAX_NODES)
    undirected, weighted = flag("undirected", undirected), flag("weighted", weighted)
    text("name", name)
    if num_draws is not None and num_edges is not None:
        raise ValueError("give num_draws or num_edges, not both")
    if num_edges is not None:
        num_edges = whole("num_edges", num_edges, 1)
        if num_edges > num_nodes * (num_nodes - 1) // 4:
            raise ValueError(
                f"num_edges must be at most a quarter of all pairs, {num_nodes * (num_nodes - 1) // 4} "
                f"(got {num_edges})"
            )
        draws = 0
    else:
        draws = round(num_nodes * _DRAWS_PER_NODE) if num_draws is None else num_draws
        draws = whole("num_draws", draws, 1, 2**48)
    shares = [real("probabilities", p, 0, 1) for p in items("probabilities", probabilities, "three shares")]
    if len(shares) != 3 or sum(shares) > 1:
        raise ValueError(f"probabilities must be three shares that sum to at most 1 (got {shares})")
    a, b, c = (round(65536 * p) for p in shares)
    target = runtime.resolve_device(device)
    plan = RmatPlan(num_nodes, num_edges, undirected, checked_seed(seed), (a, a + b, a + b + c), draws)
    if num_edges is not None and num_edges > most_edges(plan):
        raise ValueError(
            f"num_edges must be at most {most_edges(plan)} with these probabilities, whose quadrants give no more "
            f"distinct edges (got num_edges={num_edges}, probabilities={tuple(shares)})"
        )
    backend = _backend(plan, target, 0)
    with runtime.lock:
        indptr, indices = assemble(plan, backend)
        if num_edges is not None and len(indices) < num_edges:
            raise ValueError(
                f"num_edges must be fewer with these probabilities: draws gave {len(indices)} distinct edges "
                f"and hardly any new ones (got num_edges={num_edges}, probabilities={tuple(shares)})"
            )
        weight = _weights(backend, indptr, indices, plan.seed) if weighted else None
        return Graph(indptr, indices, weight, num_classes=0, name=name, is_synthetic=True, validate=False).to(
            target
        )


def random_weights(graph: Graph, *, seed: int = 0, low: float = 1.0, high: float = 5.0) -> Graph:
    """``graph`` with a weight in ``[low, high)`` on every edge, a function of (seed, source, destination).

    The default interval is that of NextDoor's weighted graphs (section 8). Parallel edges get equal weights.

    Args:
        graph: on either device.
        seed: which weights.
        low, high: ends of the interval, at least 0, finite and different as float32, which weights are.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    import dataclasses

    high = real("high", high, high=float(np.finfo(np.float32).max), above=0)
    low = real("low", low, 0, below=high)
    if np.float32(low) >= np.float32(high):
        raise ValueError(f"low must be below high as float32, too (got low={low!r}, high={high!r})")
    with runtime.lock:
        backend = _placed(graph.device)
        weight = _weights(backend, graph.indptr, graph.indices, checked_seed(seed), float(low), float(high))
    return dataclasses.replace(graph, edge_weight=weight, validate=False)


def _weights(
    backend: Any,
    indptr: Any,
    indices: Any,
    seed: int,
    low: float = 1.0,
    high: float = 5.0,
    chunk: int = 1 << 26,
) -> Any:
    parts = []
    largest = np.nextafter(np.float32(high), np.float32(low))
    for start in range(0, len(indices), chunk):
        src = indices[start : start + chunk]
        part = backend.weights(src, rows_of(indptr, start, start + len(src)), seed, low, high)
        # In a narrow interval of large numbers the last steps are rounded up to its end.
        parts.append(backend.xp.minimum(part, largest, out=part))
    if len(parts) == 1:
        return parts[0]
    return backend.xp.concatenate(parts) if parts else backend.xp.empty(0, dtype=np.float32)


def _splits(backend: Any, plan: Plan, entry: Entry, scale: float) -> dict[str, Any]:
    place, result = 0, {}
    first = _first_split_rank(plan, entry)
    for name in ("train", "valid", "test"):
        listed = entry.get(f"num_{name}") or 0
        if not listed:
            continue
        # Proportions of the original's vertex count, since tiny scales round that count up.
        share = (2 * listed * plan.num_nodes + entry["num_nodes"]) // (2 * entry["num_nodes"])
        count = min(max(1, share), plan.num_nodes - first - place)
        result[name] = _places(backend, plan, place, count, first)
        place += count
    return result


def _first_split_rank(plan: Plan, entry: Entry) -> int:
    """Splits are cut from the vertices of this rank and above: all, or where the entry says so the last classes.

    The labelled vertices of ogbn-papers100M are one corner of it (arXiv within all of a citation graph). What training
    reads is then a part of the graph, and the graph's hubs are not the training's.
    """
    classes = entry["version_2"].get("split_classes")
    if not classes or not isinstance(plan, CommunityPlan):
        return 0
    return plan.starts[-1 - min(classes, plan.num_classes)]


def _labels(backend: Any, plan: CommunityPlan, chunk: int = 1 << 26) -> Any:
    """int64[N]: the class of each vertex."""
    xp = backend.xp
    constants = bijection(plan.num_nodes, plan.seed, RANKS)
    starts = xp.asarray(np.array(plan.starts, dtype=np.int64))
    labels = xp.empty(plan.num_nodes, dtype=np.int64)
    for first in range(0, plan.num_nodes, chunk):
        ranks = xp.arange(first, min(first + chunk, plan.num_nodes), dtype=np.int64)
        labels[scatter_ids(constants, ranks)] = xp.searchsorted(starts, ranks, side="right") - 1
    return labels


def _places(backend: Any, plan: Plan, place: int, count: int, first: int = 0) -> Any:
    """Vertices at places ``[place, place + count)`` of a random order of those of rank ``first`` and above; by id."""
    places = backend.xp.arange(place, place + count, dtype=np.int64)
    vertices = scatter_ids(bijection(plan.num_nodes - first, plan.seed, ORDER), places)
    if first:
        vertices = scatter_ids(bijection(plan.num_nodes, plan.seed, RANKS), vertices + first)
    vertices.sort()
    return vertices


def backend_of(xp: Any) -> Any:
    """The backend that draws on NumPy or CuPy."""
    return _placed("cpu" if xp is np else "cuda")


def uniform_weights(xp: Any, indptr: Any, indices: Any, seed: int) -> Any:
    """float32[E] in [1, 5), a function of an edge's ends."""
    return _weights(backend_of(xp), indptr, indices, seed)


def _placed(device: str) -> Any:
    if device == "cuda":
        from gnnsample_lab.graph.edgewise.backend_gpu import GpuBackend

        return GpuBackend()
    from gnnsample_lab.graph.edgewise.backend_cpu import CpuBackend

    return CpuBackend()


def _backend(plan: Plan, device: str, feature_bytes: int) -> Any:
    """The GPU when there is one that can hold the graph, unless ``LAB_DEVICE=cpu``; the CPU otherwise."""
    if device == "cpu" and (os.environ.get("LAB_DEVICE") == "cpu" or not runtime.cuda_available()):
        return _placed("cpu")
    from gnnsample_lab.graph.edgewise.backend_gpu import bytes_needed
    from gnnsample_lab.graph.graph import _gib

    edges = plan.num_edges or getattr(plan, "num_draws", 0) * (2 if plan.symmetric else 1)
    need = bytes_needed(plan.num_nodes, edges) + feature_bytes
    free, total = runtime.gpu_memory()
    if need <= free:
        return _placed("cuda")
    if device == "cuda":
        raise MemoryError(
            f"generating {plan.num_nodes:,} vertices and {edges:,} edges needs about {_gib(need)} "
            f"on the GPU, which has {_gib(free)} free of {_gib(total)}: "
            "pass a smaller scale=, features=False or device='cpu'"
        )
    return _placed("cpu")
