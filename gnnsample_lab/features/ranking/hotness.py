"""Hotness: which vertices' features are worth caching (GNNLab, sections 3 and 6; PaGraph's degree policy)."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.checks import choice, shown, whole
from gnnsample_lab.checks import seed as checked_seed
from gnnsample_lab.device import runtime
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.device.splitmix import GOLDEN, finalise
from gnnsample_lab.graph.graph import Graph, check_graph

from .footprint import Footprint, footprint, same_length, training_seeds, visits_of

POLICIES = {
    "random": "any vertices: the floor",
    "degree": "vertices of many out-edges: what can be reached often, whoever trains (PaGraph)",
    "presample": "what a few epochs of sampling visited: graph, training set and sampler together (GNNLab's PreSC#K)",
    "presample-shrunk": "the same, counts drawn to the mean of their out-degree as far as chance explains them (ours)",
    "optimal": "what the epochs in question visited themselves: the ceiling",
    "visits": "what the samples of an application hold (NextDoor's walks, layers, k-hop neighbourhoods)",
    "reverse-pagerank": "where walks from the training vertices against the messages come through",
}
PRESAMPLE_BATCH_ID = 2**30
"""Pre-sampling draws with batch ids from here on: a training run of fewer mini-batches never repeats its draws."""
LEAST_EPOCHS = 2
"""Epochs from which on counts tell chance from need."""

LARGE = 1 << 20
"""Vertices from which on the GPU sorts, and out-degrees are not kept."""
_SOURCES = {"optimal": "batches", "visits": "walks"}


@dataclass(frozen=True, eq=False)
class Hotness:
    """A score for every vertex and the order of caching that follows from it.

    Attributes:
        policy: a key of ``POLICIES``.
        label: name for figures: "Random", "Degree", "PreSC#1", "PreSC#1 shrunk", "Optimal", "Visits",
            "Reverse PageRank".
        score: ``float64[N]``, higher is hotter. ``presample``: visits per epoch; ``optimal``, ``visits``: in all.
        order: ``int64[N]``, vertex ids, hottest first; ties by out-degree, then to the lower id (by in-degree, which
            systems and caches of several ranks take: to the lower id).
        time_us: wall clock that finding the scores took on this machine (sampling included), without the ordering.
    """

    policy: str
    label: str
    score: np.ndarray
    order: np.ndarray
    time_us: float = float("nan")

    def __len__(self) -> int:
        return len(self.score)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.score, dtype=dtype) if copy or dtype is not None else self.score

    def __getitem__(self, ids: Any) -> Any:
        return self.score[ids]

    def __repr__(self) -> str:
        return f"Hotness({self.label!r}, {len(self):,} nodes)"


def hotness(
    graph: Any,
    policy: str = "presample",
    sampler: Any = None,
    seeds: Any = None,
    batch_size: int = 1024,
    epochs: int = 1,
    batches: Any = None,
    seed: int = 0,
    walks: Any = None,
) -> Hotness:
    """Rank the vertices of ``graph`` by how much caching their features should save.

    Args:
        graph: on either device.
        policy: a key of ``POLICIES``: ``"random"``, ``"degree"`` (out-degree), ``"presample"`` (PreSC#K with K =
            ``epochs``), ``"presample-shrunk"``, ``"optimal"``, ``"visits"`` or ``"reverse-pagerank"``.
        sampler: presample: a :class:`~gnnsample_lab.NeighborSampler` (weighted or not), a
            :class:`~gnnsample_lab.PinSAGESampler`, or anything with ``.epoch`` and ``.graph``. Its epochs are
            numbered so that batch ids begin at 2**30, which training does not reach: a policy that had seen the very
            draws of the training run would measure itself.
        seeds: training vertices, default ``graph.splits["train"]``. reverse-pagerank starts its walks there, or at
            every vertex if the graph has no such split or an empty one.
        batch_size: presample: as in training, since a vertex counts once per mini-batch.
        epochs: presample: K. ``"presample-shrunk"`` samples two at least.
        batches: optimal: mini-batches, arrays of global ids, or a :class:`~.footprint.Footprint` of the very run.
        seed: random: which permutation.
        walks: visits: the result of ``run_app``. A vertex counts once per occurrence in a sample, roots included.

    Raises:
        LookupError, ValueError, TypeError: naming the argument.
    """
    check_graph(graph)
    choice("policy", policy, POLICIES)
    whole("epochs", epochs, 1, 1000)
    whole("batch_size", batch_size, 1, 2**31 - 1)
    checked_seed(seed)
    begin = time.perf_counter()
    degrees: Any = None
    if policy == "random":
        label, score = "Random", _random(graph.num_nodes, seed)
    elif policy == "degree":
        degrees = _out_degrees(graph, sampler)
        label, score = "Degree", degrees.astype(np.float64)
    elif policy == "presample":
        label = f"PreSC#{epochs}"
        ahead = _presample(graph, sampler, seeds, batch_size, epochs)
        score = np.sum([seen.visits for seen in ahead], axis=0) / epochs
    elif policy == "presample-shrunk":
        degrees, epochs = _out_degrees(graph, sampler), max(epochs, LEAST_EPOCHS)
        label = f"PreSC#{epochs} shrunk"
        score = shrunk_visits(_presample(graph, sampler, seeds, batch_size, epochs), degrees) / epochs
    elif policy == "optimal":
        if batches is None:
            raise ValueError("batches must be given for policy='optimal' (got None)")
        seen = batches if isinstance(batches, Footprint) else visits_of(batches, graph.num_nodes, "batches")
        label, score = "Optimal", seen.visits.astype(np.float64)
    elif policy == "visits":
        label, score = "Visits", _visits(walks)
    else:
        label, score = "Reverse PageRank", _pagerank(graph, seeds)
    if len(score) != graph.num_nodes:
        raise ValueError(
            f"{_SOURCES.get(policy, 'sampler')} must be of graph's {graph.num_nodes} nodes (got {len(score)})"
        )
    took_us = (time.perf_counter() - begin) * 1e6
    if degrees is None:
        degrees = _out_degrees(graph, sampler)
    return Hotness(policy, label, score, hottest_first(score, degrees), took_us)


def _random(num_nodes: int, seed: int) -> np.ndarray:
    """A 53-bit integer hash of (seed, vertex) as the score: the same on all machines, exact in ``float64``."""
    x = finalise(np.arange(num_nodes, dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(seed))
    return (x >> np.uint64(11)).astype(np.float64)


def _presample(graph: Any, sampler: Any, seeds: Any, batch_size: int, epochs: int) -> list[Footprint]:
    """The footprint of each epoch."""
    if not callable(getattr(sampler, "epoch", None)) or not isinstance(
        getattr(sampler, "graph", None), Graph
    ):
        raise ValueError(
            f"sampler must be a sampler with .epoch and .graph for pre-sampling (got {shown(sampler)})"
        )
    chosen = training_seeds(sampler.graph if seeds is None else graph, seeds, "policy='presample'")
    length = max(1, len(sampler.epoch(chosen, batch_size, epoch=0)))
    first = -(-PRESAMPLE_BATCH_ID // length)
    return [footprint(sampler, chosen, batch_size, first_epoch=first + i) for i in range(epochs)]


def _visits(walks: Any) -> np.ndarray:
    from gnnsample_lab.sampling.engine.results.result import AppResult
    from gnnsample_lab.sampling.engine.results.votes import visits

    if not isinstance(walks, AppResult):
        raise ValueError(f"walks must be the result of run_app for policy='visits' (got {shown(walks)})")

    with runtime.lock:
        walks.ready.order()
        counts = visits(walks)
    return to_host(counts).astype(np.float64)


def shrunk_visits(epochs: Sequence[Footprint], degrees: np.ndarray) -> np.ndarray:
    """``float64[N]``: visits of all epochs with the chance of their draws taken out (empirical Bayes).

    A vertex visited three times in one epoch may be one that is visited once on average. How far chance goes is seen
    where the epochs differ. Among vertices of about the same out-degree counts vary by more than that only as far as
    the degree does not decide the hotness: that share of a count's distance from their mean is kept. So the score is
    nearly the count where weights or the training set decide, and nearly a function of the degree where that does.

    Args:
        epochs: the footprint of each epoch, two or more: a single one does not tell chance from need. (Its mini-batches
            do not either: their seeds are others, so that one needs what the next does not, and would in every epoch.)
        degrees: out-degrees, integers ``[N]``.
    """
    for seen in epochs:
        same_length("sampler and graph", len(seen), len(degrees))
    counts = [seen.visits.astype(np.float64) for seen in epochs]
    visits: np.ndarray = np.sum(counts, axis=0)
    within = sum((each - visits / len(counts)) ** 2 for each in counts) * len(counts) / (len(counts) - 1)
    degrees = degrees.astype(np.int64, copy=False)
    bits = np.frexp(degrees.astype(np.float64))[1]
    group = bits * 8 + (
        (degrees << 3 >> np.maximum(bits - 1, 0)) & 7
    )  # eight groups from a power of two to the next
    size = np.maximum(np.bincount(group), 1)
    mean = np.bincount(group, visits) / size
    noise = np.bincount(group, within) / size
    spread = np.bincount(group, visits * visits) / size - mean * mean
    kept = np.maximum(spread - noise, 0) / np.maximum(spread, np.finfo(np.float64).tiny)
    score: np.ndarray = mean[group] + kept[group] * (visits - mean[group])
    return score


def _pagerank(graph: Any, seeds: Any) -> np.ndarray:
    from .pagerank import reverse_pagerank

    chosen = seeds
    if seeds is None and len(graph.splits.get("train", ())):
        chosen = graph.splits["train"]
    if chosen is not None:
        from gnnsample_lab.minibatch.seeds import seed_array

        chosen = np.unique(to_host(seed_array(chosen, graph.num_nodes)))
    return reverse_pagerank(graph, chosen)


def _out_degrees(graph: Any, sampler: Any) -> np.ndarray:
    """``int64[N]`` on the host, counted on the GPU where the sampler has the same graph there."""
    other: Any = getattr(sampler, "graph", None)
    there = graph.device == "cpu" and getattr(other, "device", "cpu") == "cuda"
    if there and getattr(other, "_identity", None) is graph._identity:
        graph = other
    # Every policy breaks its ties by them: an explorer ranks five times a change.
    if graph.num_nodes >= LARGE:
        return to_host(graph.out_degrees())
    if graph not in _degrees:
        _degrees[graph] = to_host(graph.out_degrees())
        _degrees[graph].flags.writeable = False
    return _degrees[graph]


_degrees: weakref.WeakKeyDictionary[Any, np.ndarray] = weakref.WeakKeyDictionary()


def hottest_first(score: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    """``int64[N]``: ids by score descending, then out-degree descending, then id; on the GPU when it is large."""
    if not bool(np.isfinite(score).all()):
        raise ValueError("score must be finite (got NaN or infinity)")
    if len(score) >= LARGE and runtime.cuda_available():
        import cupy

        with runtime.lock:
            by_degree = cupy.argsort(-cupy.asarray(degrees), kind="stable")
            keys = -cupy.asarray(score)[by_degree]
            order: np.ndarray = by_degree[cupy.argsort(keys, kind="stable")].get()
            return order
    keys = _distinct_keys(score, degrees)
    if keys is not None:
        return np.argsort(keys)
    by_degree = _descending(degrees)
    return by_degree[_descending(score[by_degree])]


def _distinct_keys(score: np.ndarray, degrees: np.ndarray) -> np.ndarray | None:
    """``int64[N]``: a key for each vertex, the hottest the lowest; None where counts are sorted by radix, or keys do
    not fit into 63 bits.

    No two keys are equal, so that any sort finds the same order: the stable one takes several times as long.
    """
    n = len(score)
    if n < 2 or _is_narrow(score):
        return None
    order = np.argsort(-score)
    ranked = score[order]
    rank = np.zeros(n, dtype=np.int64)
    rank[order[1:]] = np.cumsum(ranked[1:] != ranked[:-1])
    span = int(degrees.max()) + 1
    if (int(rank[order[-1]]) + 1) * span * n >= 1 << 63:
        return None
    return (rank * span + (span - 1 - degrees)) * n + np.arange(n)


def _is_narrow(values: np.ndarray) -> bool:
    """Whether these are small whole numbers, which are sorted by radix."""
    span = values.max(initial=0) - values.min(initial=0)
    return bool(span < 1 << 16 and (values.dtype.kind in "iu" or (values == np.rint(values)).all()))


def _descending(values: np.ndarray) -> np.ndarray:
    """Positions from the highest value to the lowest, equal ones in order; small whole numbers by radix."""
    if _is_narrow(values):
        return np.argsort((values.max(initial=0) - values).astype(np.uint16), kind="stable")
    return np.argsort(-values, kind="stable")
