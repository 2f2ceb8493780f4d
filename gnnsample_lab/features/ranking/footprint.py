"""Footprints: how often an epoch's mini-batches need each vertex, and what caches gain (GNNLab, sections 3 and 6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.checks import (
    MAX_NODES,
    host_array,
    instance,
    integers,
    is_cuda_array,
    numbers,
    real,
    shown,
    whole,
)
from gnnsample_lab.device import kernels, runtime, streams
from gnnsample_lab.device.arrays import merge_duplicates
from gnnsample_lab.features.caching.sizing import hottest_first
from gnnsample_lab.graph.graph import Graph

WAVE = 32
"""Mini-batches that share a launch while a footprint is taken on a GPU."""


@dataclass(frozen=True, eq=False)
class Footprint:
    """How often each vertex was needed.

    Attributes:
        visits: ``int64[N]``, mini-batches whose ``node_ids`` contain the vertex.
        num_batches: mini-batches counted.
        num_rows: feature rows that they needed together, ``visits.sum()``.
    """

    visits: np.ndarray
    num_batches: int
    num_rows: int

    def __len__(self) -> int:
        return len(self.visits)

    def __add__(self, other: Footprint) -> Footprint:
        if not isinstance(other, Footprint):
            return NotImplemented
        same_length("the footprints added", len(self), len(other))
        return Footprint(
            self.visits + other.visits, self.num_batches + other.num_batches, self.num_rows + other.num_rows
        )

    def __repr__(self) -> str:
        touched = int(np.count_nonzero(self.visits))
        return f"Footprint({self.num_batches:,} batches, {self.num_rows:,} rows, {touched:,} of {len(self):,} nodes)"


class Counter:
    """Counts visits where the ids lie, without waiting for a GPU from one mini-batch to the next."""

    def __init__(self, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self.num_batches = self.num_rows = 0
        self._host: np.ndarray | None = None
        self._device: Any = None

    def add(self, ids: Any) -> None:
        """Count the vertices of one mini-batch, distinct global ids."""
        self.num_batches += 1
        self.num_rows += int(ids.size)
        if not is_cuda_array(ids):
            if self._host is None:
                self._host = np.zeros(self.num_nodes, dtype=np.int64)
            np.add.at(self._host, ids, 1)
            return
        import cupy

        if self._device is None:
            self._device = cupy.zeros(self.num_nodes, dtype=np.uint32)
        name = "int" if ids.dtype.itemsize == 4 else "long"
        module = kernels.load_module("features/ranking/hotness.cu", {"ID_T": name})
        size = int(ids.size)
        grid = (max(1, min(-(-size // 256), 32 * runtime.num_sms())),)
        module.get_function("count_visits").kernel(grid, (256,), (ids, np.uint64(size), self._device))

    def result(self) -> Footprint:
        """The counts so far; waits for the GPU."""
        visits = self._host if self._host is not None else np.zeros(self.num_nodes, dtype=np.int64)
        if self._device is not None:
            visits = visits + self._device.get()  # crosses the bus as 32 bits, becomes 64 here
        return Footprint(visits, self.num_batches, self.num_rows)


def footprint(
    source: Any,
    seeds: Any = None,
    batch_size: int = 1024,
    epochs: int = 1,
    first_epoch: int = 0,
    num_nodes: int | None = None,
) -> Footprint:
    """Count how often each vertex is needed.

    Args:
        source: mini-batches, each a :class:`~gnnsample_lab.MiniBatch` or an array of global ids (duplicates count
            once); or a sampler (anything with ``.epoch``), which then runs ``epochs`` epochs over ``seeds``. On a GPU
            32 mini-batches share a launch and are counted where they lie.
        seeds: with a sampler, its training vertices; default ``graph.splits["train"]``.
        batch_size, epochs, first_epoch: with a sampler, as in its ``epoch``; epochs are numbered from ``first_epoch``.
        num_nodes: vertices of the graph; needed when ``source`` has id arrays only.

    Raises:
        TypeError: ``source`` is neither.
        ValueError: no mini-batches, ids out of range, or ``num_nodes`` missing.
    """
    whole("batch_size", batch_size, 1, 2**31 - 1)
    whole("epochs", epochs, 1, 2**31)
    whole("first_epoch", first_epoch, 0, 2**31)
    if num_nodes is not None:
        num_nodes = whole("num_nodes", num_nodes, 0, MAX_NODES)
    if callable(getattr(source, "epoch", None)) and isinstance(getattr(source, "graph", None), Graph):
        return _of_sampler(source, seeds, batch_size, epochs, first_epoch)
    if isinstance(source, Footprint):
        return source
    return visits_of(source, num_nodes, "source")


def visits_of(source: Any, num_nodes: int | None, name: str) -> Footprint:
    """The footprint of mini-batches, the argument ``name``; see :func:`footprint`."""
    if isinstance(source, (str, bytes)) or not isinstance(source, Iterable) or hasattr(source, "dtype"):
        raise TypeError(f"{name} must be a sampler or mini-batches (got {shown(source)})")
    counter: Counter | None = None
    for batch in _each(source, name):
        graph: Any = getattr(batch, "graph", None)
        ids = _ids(batch, name)
        if counter is None:
            if num_nodes is None and graph is None:
                raise ValueError(f"num_nodes must be given when {name} has bare id arrays (got None)")
            counter = Counter(graph.num_nodes if num_nodes is None else num_nodes)
        if graph is None and ids.size and (int(ids.min()) < 0 or int(ids.max()) >= counter.num_nodes):
            raise ValueError(f"{name} must hold ids in 0..{counter.num_nodes - 1} (got one outside)")
        if graph is not None:
            same_length(f"{name}'s mini-batches", graph.num_nodes, counter.num_nodes)
        elif ids.size > 1:
            ids = merge_duplicates(ids)[0]  # those of a mini-batch are distinct
        counter.add(ids)
    if counter is None:
        raise ValueError(f"{name} must hold at least one mini-batch (got none)")
    return counter.result()


def _each(source: Iterable[Any], name: str) -> Iterator[Any]:
    """Iterate over the mini-batches of ``source`` one by one, because a loader need not hold all of them at once."""
    try:
        batches = iter(source)
    except Exception:
        raise TypeError(f"{name} must be a sampler or mini-batches (got {shown(source)})") from None
    yield from batches


def _ids(batch: Any, name: str) -> Any:
    ids = integers(name, getattr(batch, "node_ids", batch))
    streams.order(ids)
    if is_cuda_array(ids) and (ids.dtype.kind != "i" or ids.dtype.itemsize < 4 or not ids.flags.c_contiguous):
        ids = ids.astype(np.int64)
    return ids


def training_seeds(graph: Any, seeds: Any, user: str) -> Any:
    """``seeds``, else the graph's training split."""
    if seeds is not None:
        return seeds
    if "train" not in graph.splits:
        raise ValueError(f"seeds must be given for {user}: the graph has no training split (got None)")
    return graph.splits["train"]


def _of_sampler(sampler: Any, seeds: Any, batch_size: int, epochs: int, first_epoch: int) -> Footprint:
    graph = sampler.graph
    chosen = training_seeds(graph, seeds, "footprint")
    counter = Counter(graph.num_nodes)
    ahead = WAVE if getattr(sampler, "device", "cpu") == "cuda" else 2
    for epoch in range(first_epoch, first_epoch + epochs):
        for batch in sampler.epoch(chosen, batch_size, epoch=epoch, prefetch=ahead):
            counter.add(batch.node_ids)
    return counter.result()


def same_length(what: str, first: int, second: int) -> None:
    if first != second:
        raise ValueError(f"{what} must be of one graph (got {first} and {second} nodes)")


def top_accessed(visits: np.ndarray, top: float) -> np.ndarray:
    """Ids of the ``top`` share of the vertices accessed at all, most visited first, ties to the lower id."""
    accessed = np.flatnonzero(visits)
    kept = max(1, round(top * accessed.size)) if accessed.size else 0
    return accessed[np.argsort(-visits[accessed], kind="stable")[:kept]]


def epoch_similarity(f_i: Footprint, f_j: Footprint, top: float = 0.1) -> float:
    """The similarity of two epochs' hottest vertices, as GNNLab defines it (section 6.2, table 2).

    With T the ``top`` share of the vertices that an epoch accessed, by visits f: the sum of ``min(f_i, f_j)`` over the
    vertices in both T_i and T_j, over the sum of ``f_i`` over T_i. Not symmetric.

    Args:
        f_i, f_j: two :class:`Footprint` objects of one graph.
        top: share of the accessed vertices that counts as hottest, above 0 and at most 1.

    Returns:
        A share in 0..1; NaN where nothing was accessed.

    Raises:
        TypeError, ValueError: no footprints, footprints of two graphs, or no such share.
    """
    instance("f_i", f_i, Footprint, "a Footprint")
    instance("f_j", f_j, Footprint, "a Footprint")
    same_length("f_i and f_j", len(f_i), len(f_j))
    top = real("top", top, high=1, above=0)
    t_i, t_j = top_accessed(f_i.visits, top), top_accessed(f_j.visits, top)
    total = int(f_i.visits[t_i].sum())
    if not total:
        return float("nan")
    inside = np.zeros(len(f_i), dtype=bool)
    inside[t_j] = True
    both = t_i[inside[t_i]]
    return float(np.minimum(f_i.visits[both], f_j.visits[both]).sum() / total)


def hit_rate(hotness: Any, footprint: Footprint, ratio: Any) -> Any:
    """Share of a footprint's rows that a cache of the hottest vertices serves.

    Args:
        hotness: a :class:`~.hotness.Hotness`, or scores ``[N]`` (higher is hotter, ties to the lower id).
        footprint: what is needed, for instance ten epochs of training.
        ratio: cached share of all vertices, 0..1, or an array of them. ``round(ratio * N)`` rows are cached.

    Returns:
        A float, or ``float64`` of the shape of ``ratio``; NaN where nothing was needed.

    Raises:
        TypeError, ValueError: scores that are no numbers, another number of vertices, or ratios outside 0..1.
    """
    instance("footprint", footprint, Footprint, "a Footprint")
    order = hottest_first(hotness, len(footprint))
    ratios = host_array("ratio", numbers("ratio", ratio)).astype(np.float64)
    if not bool(((ratios >= 0) & (ratios <= 1)).all()):
        raise ValueError(f"ratio must lie in 0..1 (got {ratio})")
    counts = np.rint(ratios * len(order)).astype(np.int64)
    longest = int(counts.max()) if counts.size else 0
    served = np.concatenate([[0], np.cumsum(footprint.visits[order[:longest]])])[counts]
    rates = served / footprint.num_rows if footprint.num_rows else np.full(ratios.shape, np.nan)
    return float(rates) if ratios.ndim == 0 else rates
