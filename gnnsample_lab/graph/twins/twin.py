"""``lab.twin`` and ``lab.twin_statistics``: a synthetic graph whose samples look like those of a given graph."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gnnsample_lab.checks import flag_or, real, text
from gnnsample_lab.checks import seed as checked_seed
from gnnsample_lab.device import runtime
from gnnsample_lab.device.arrays import array_module
from gnnsample_lab.device.host import free_host_bytes
from gnnsample_lab.graph.csc import rows_of
from gnnsample_lab.graph.edgewise import synthetic
from gnnsample_lab.graph.graph import Graph, _gib, check_graph
from gnnsample_lab.graph.twins import nodes
from gnnsample_lab.graph.twins.edges import Edges, csc, vertex_ids
from gnnsample_lab.graph.twins.pairs import SEGMENT, skeleton
from gnnsample_lab.graph.twins.plan import Plan
from gnnsample_lab.graph.twins.statistics import check_statistics, plan_of
from gnnsample_lab.graph.twins.words import pair_words

VERSION = 3


def twin_statistics(graph: Graph) -> dict[str, Any]:
    """Statistics of a graph that suffice to generate a twin: degrees, clustering, communities, mixing of degrees,
    directions, difficulty of labels and features, where the training set lies. No edge and no feature is in them.

    All are structure; nothing is sampled. Self-loops and parallel edges are left out, labels of several tasks are too.
    Time is about linear in the edges: a second for 300 000, half a minute for 2 million.

    Args:
        graph: any graph, on either device.

    Returns:
        A dict that ``json.dump`` can write; keys are described in :mod:`gnnsample_lab.graph.twins.statistics`.

    Raises:
        TypeError: ``graph`` is no Graph.
    """
    from gnnsample_lab.graph.twins.measure import measure  # loads Numba, which loading a graph does not need

    return measure(check_graph(graph))


def twin(
    graph_or_statistics: Graph | Mapping[str, Any], seed: int = 0, device: str = "auto", *, scale: float = 1.0,
    features: bool | str = "auto", name: str | None = None,
) -> Graph:  # fmt: skip
    """A synthetic graph whose degrees, clustering, communities and mixing are a real one's, and so are its samples.

    The graph is the same on the CPU and on the GPU, bit for bit: a function of statistics, ``scale`` and ``seed``.

    Args:
        graph_or_statistics: a graph, or what :func:`twin_statistics` returned for it.
        seed: which of the graphs that the statistics describe.
        device: where the result lies: ``"cpu"``, ``"cuda"`` or ``"auto"``. It is generated on the GPU if there is one.
        scale: vertices for each of the original's; degrees stay as they are.
        features: generate them, where the statistics have any; ``"auto"`` does up to 4 GiB.
        name: of the graph; else the original's name and ``-twin``.

    Raises:
        TypeError: neither a graph nor a mapping.
        ValueError: statistics that do not fit together, naming the key; another argument out of range.
        MemoryError: too large for this machine, naming a ``scale`` that fits.
        RuntimeError: ``device="cuda"`` without a GPU.
    """
    features, scale = flag_or("features", features, "auto"), real("scale", scale, above=0)
    seed, device = checked_seed(seed), runtime.resolve_device(device)
    name = None if name is None else text("name", name)
    if isinstance(graph_or_statistics, Graph):
        graph_or_statistics = twin_statistics(graph_or_statistics)
    try:
        statistics = check_statistics(graph_or_statistics)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"graph_or_statistics: {error}") from None
    if statistics["num_nodes"] * scale > synthetic.MAX_NODES:
        raise ValueError(f"scale must leave at most {synthetic.MAX_NODES} vertices (got {scale})")
    name = f"{statistics.get('name', 'graph')}-twin" if name is None else name
    return generate(statistics, scale=scale, seed=seed, features=features, device=device, name=name)


def generate(
    statistics: Mapping[str, Any], *, scale: float, seed: int, features: bool | str, device: str, name: str,
    weighted: bool = False,
) -> Graph:  # fmt: skip
    """The twin of checked statistics. ``weighted`` asks for weights in [1, 5) where the statistics have none."""
    plan, kept = plan_of(statistics, scale, seed)
    described = statistics.get("features")
    count = int(described["count"]) if described else 0
    with_features = synthetic.wants_features(plan.num_nodes, count, features)

    def need(plan: Plan) -> int:
        wanted = synthetic.wants_features(plan.num_nodes, count, features)
        return _bytes_needed(plan, statistics, 4 * plan.num_nodes * count if wanted else 0)

    on_gpu = _place(plan, need, lambda scale: need(plan_of(statistics, scale, seed)[0]), device, scale)
    xp = _module(on_gpu)
    with runtime.lock:
        graph = _generate(plan, kept, statistics, with_features, name, xp, weighted)
        if on_gpu:
            # Sorting leaves several times the graph's size in CuPy's pool, where PyTorch cannot use it.
            xp.get_default_memory_pool().free_all_blocks()
    return graph.to(device)


def _generate(
    plan: Plan,
    kept: np.ndarray,
    statistics: Mapping[str, Any],
    with_features: bool,
    name: str,
    xp: Any,
    weighted: bool,
) -> Graph:
    n = plan.num_nodes
    chunk = max(1 << 20, min(n, 1 << 24)) if xp is np else 1 << 26
    made = skeleton(plan, xp, chunk)
    ids = vertex_ids(plan, xp, chunk)
    label = look = feat = None
    splits: dict[str, Any] = {}
    classes = 0
    if statistics.get("labels") and n:
        sizes = np.array(statistics["labels"]["sizes"], dtype=np.int64)
        classes = len(sizes)
        purity = statistics["labels"]["purity"]
        label = nodes.labels(plan, made.small, ids, sizes, purity, xp, chunk)
        if with_features:
            look = label if isinstance(purity, int) else nodes.looks(plan, made.small, ids, sizes, xp, chunk)
    if statistics.get("training") and n:
        splits = nodes.splits(
            plan, made.small, ids, statistics["training"], kept, int(statistics["num_nodes"]), xp, chunk
        )
    pairs, group = made.pairs, made.group
    del made
    links = sum(d * c for d, c in statistics["degrees"]) // 2
    both = max(int(statistics["num_edges"]) - links, 0) * len(pairs) // max(links, 1)
    edges = Edges(plan, pairs, ids, group, statistics.get("direction"), min(both, len(pairs)), xp, chunk)
    indptr, indices = csc(edges)
    del pairs, ids, group, edges
    if with_features:
        backend = synthetic.backend_of(xp)
        of_vertex = xp.zeros(n, dtype=np.int64) if look is None else look
        feat = backend.features(
            of_vertex, max(classes, 1), int(statistics["features"]["count"]), plan.seed,
            signal=int(statistics["features"]["signal"]),
        )  # fmt: skip
    weight = None
    if statistics.get("weights"):
        weight = _weights(indptr, indices, statistics["weights"], plan.seed, chunk)
    elif weighted:
        weight = synthetic.uniform_weights(xp, indptr, indices, plan.seed)
    return Graph(
        indptr, indices, weight, feat, label, splits, classes, name, True, version=VERSION, validate=False
    )


def _weights(indptr: Any, indices: Any, quantiles: Any, seed: int, chunk: int) -> Any:
    """float32[E]: drawn by the unordered pair, so that an edge and its reverse weigh the same."""
    xp = array_module(indptr)
    out = xp.empty(len(indices), dtype=np.float32)
    for start in range(0, len(indices), chunk):
        src = indices[start : start + chunk].astype(np.int64)
        dst = rows_of(indptr, start, start + len(src))
        keys = pair_words(xp, xp.minimum(src, dst), xp.maximum(src, dst), seed)
        out[start : start + len(src)] = nodes.quantile_weights(keys, quantiles, xp)
    return out


def _module(on_gpu: bool) -> Any:
    if not on_gpu:
        return np
    import cupy

    return cupy


def _bytes_needed(plan: Plan, statistics: Mapping[str, Any], feature_bytes: int) -> int:
    """Peak of memory: pairs twice while they are merged, half-edges of a segment with their sort, the graph itself."""
    pairs, edges = plan.num_pairs, 2 * plan.num_pairs
    more = 0
    if statistics.get("direction"):
        more = 32 * plan.num_nodes if statistics["direction"].get("mutual") is not None else 0
        edges = pairs + pairs * int(statistics["direction"]["reciprocity"]) // 65536
    segment = min(2 * pairs, SEGMENT)
    growing = 26 * pairs + 56 * segment
    building = 8 * pairs + 5 * edges + 40 * min(edges, SEGMENT)
    return max(growing, building, 5 * edges + feature_bytes) + 72 * plan.num_nodes + more + 2**26


def _place(
    plan: Plan, need: Callable[[Plan], int], need_at: Callable[[float], int], device: str, scale: float
) -> bool:
    """Whether to generate on the GPU: where there is one that can hold the graph, unless ``LAB_DEVICE=cpu``.

    Args:
        need, need_at: bytes that a plan needs, and that the plan at a scale needs.
    """
    wanted = need(plan)
    where, free = "on this machine", free_host_bytes()
    if device == "cuda" or (os.environ.get("LAB_DEVICE") != "cpu" and runtime.cuda_available()):
        on_gpu, _ = runtime.gpu_memory()
        if wanted <= on_gpu:
            return True
        if device == "cuda":
            where, free = "on the GPU", on_gpu
    if wanted > free or device == "cuda":
        fits = _scale_that_fits(need_at, free, scale)
        advice = f"pass scale={fits:g} or less" if fits else "no scale fits"
        raise MemoryError(
            f"generating {plan.num_nodes:,} vertices and {plan.num_pairs:,} links needs about {_gib(wanted)} {where}, "
            f"which has {_gib(free)} free: {advice}"
        )
    return False


def _scale_that_fits(need_at: Callable[[float], int], free: int, scale: float) -> float:
    """The largest scale of two digits, or a little less, that needs nine tenths of ``free`` bytes; 0 if none does.

    Bytes do not fall in proportion to the scale: sorting takes a segment, whatever the graph.
    """
    low, high = 1e-9, scale
    if need_at(low) > 0.9 * free:
        return 0.0
    while high > 1.02 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if need_at(middle) <= 0.9 * free else (low, middle)
    digit = 10.0 ** (math.floor(math.log10(low)) - 1)
    return math.floor(low / digit) * digit
