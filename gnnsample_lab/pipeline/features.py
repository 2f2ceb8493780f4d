"""Where the training loop gets features from: a cache, or a cache behind Match; and the sum of their statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from gnnsample_lab.minibatch.export import tensor


class FeatureSource(Protocol):
    """Features of a mini-batch's vertices, as a torch tensor on the device of the model.

    ``cached`` is False where no cache stands behind it, so that there is no hit rate. ``together`` is True where ranks
    have to extract together, those without rows too.
    """

    cached: bool
    together: bool

    def mark(self, batch: Any) -> Any:
        """What can be found out when the batch has just been sampled; handed to :meth:`extract`."""

    def extract(self, batch: Any, marks: Any) -> tuple[Any, Any]:
        """``(x, stats)``: float tensor ``[len(batch.node_ids), F]`` and an ``ExtractStats``."""

    def reset(self) -> None:
        """Forget earlier batches (start of an epoch)."""


class CachedSource:
    """Rows from a :class:`~gnnsample_lab.features.caching.cache.FeatureCache`, marked when they are sampled."""

    together = False

    def __init__(self, cache: Any, cached: bool = True) -> None:
        self.cache, self.cached = cache, cached

    @property
    def all_on_gpu(self) -> bool:
        """Whether every row lies on the GPU."""
        return self.cache.device == "cuda" and bool(self.cache.all_cached)

    def mark(self, batch: Any) -> Any:
        # With every row cached extraction has nothing to look up.
        return None if self.cache.all_cached else self.cache.mark(batch.node_ids)

    def extract(self, batch: Any, marks: Any = None) -> tuple[Any, Any]:
        x, stats = self.cache.extract(batch.node_ids, marks)
        return tensor(x), stats

    def reset(self) -> None:
        pass


class FusedSource:
    """Rows of a :class:`~gnnsample_lab.FusedSampler`, which reads them while it draws the last hop."""

    together = False

    def __init__(self, sampler: Any, cached: bool = True) -> None:
        self.sampler, self.cache, self.cached = sampler, sampler.features, cached

    @property
    def all_on_gpu(self) -> bool:
        """Whether the GPU reads the rows by itself, wherever they lie."""
        return bool(self.sampler.device == "cuda")

    def mark(self, batch: Any) -> Any:
        return None

    def extract(self, batch: Any, marks: Any = None) -> tuple[Any, Any]:
        x = batch.x
        return x, batch.stats

    def reset(self) -> None:
        pass


class SharedSource:
    """Rows from a :class:`gnnsample_lab.distributed.FeatureCache`, which several ranks are together."""

    def __init__(self, cache: Any, cached: bool = True) -> None:
        self.cache, self.cached, self.together = cache, cached, bool(cache.is_collective)

    def mark(self, batch: Any) -> Any:
        return self.cache.mark(batch.node_ids)

    def extract(self, batch: Any, marks: Any = None) -> tuple[Any, Any]:
        ids = batch.node_ids if len(batch.node_ids) else np.empty(0, np.int64)  # a slice without seeds
        x, stats = self.cache.extract(ids, marks)
        return tensor(x), stats

    def extract_many(self, batches: Sequence[Any]) -> tuple[list[Any], Any]:
        """Rows of several mini-batches, each vertex's fetched once: a tensor for each, and one ``ExtractStats``."""
        xs, stats = self.cache.extract_many([batch.node_ids for batch in batches])
        return list(map(tensor, xs)), stats

    def reset(self) -> None:
        pass

    def another(self) -> SharedSource:
        """The same rows with collectives of their own, for another loader; this one where a rank is alone."""
        if self.cache.rank.world_size == 1:
            return self
        cache = self.cache.another()
        cache.extract(np.empty(0, np.int64))  # communicators are connected before workers use them
        return SharedSource(cache, self.cached)


class MatchedSource:
    """Rows from the mini-batch before, then from the cache, then from the host (FastGL's Match)."""

    together = False

    def __init__(self, matched: Any, cached: bool = True) -> None:
        self.matched, self.cached = matched, cached
        self._given: tuple[Any, int] | None = None

    def mark(self, batch: Any) -> Any:
        return None

    def extract(self, batch: Any, marks: Any = None) -> tuple[Any, Any]:
        if self._given is not None and self._given[0]._version != self._given[1]:
            self.matched.reset()  # the model changed the rows in place: they are no features any more
        found, stats = self.matched.extract(batch.node_ids)
        x = tensor(found)
        self._given = x, x._version
        return x, stats

    def reset(self) -> None:
        self._given = None
        self.matched.reset()


def sources_of(features: Any, count: int) -> list[Any]:
    """``features`` for each of ``count`` loaders: where they meet those of other ranks, with collectives of their own.

    All ranks call it alike.
    """
    if not features.together:
        return [features] * count
    return [features] + [features.another() for _ in range(count - 1)]


def summed_picks(stats: Iterable[Any]) -> int:
    """Picks of :class:`~gnnsample_lab.FusedSampler` that were counted as they were summed; waits for the device."""
    return sum(int(one.picks) for one in stats)


def totals(stats: Iterable[Any], cached: bool = True) -> dict[str, Any]:
    """Rows, bytes moved, reused rows and the hit rate over many ``ExtractStats``; waits for the device.

    The hit rate is nan without a cache, and where no row was looked up.
    """
    rows = moved = reused = hits = 0
    for one in stats:
        rows += int(one.rows) + int(one.picks)
        moved += int(one.bytes_moved)
        reused += int(one.reused)
        hits += int(one.hits)
    asked = rows - reused  # rows taken over from the batch before are not looked up
    return {
        "rows": rows,
        "bytes_moved": moved,
        "reused_rows": reused,
        "hit_rate": hits / asked if cached and asked else float("nan"),
    }
