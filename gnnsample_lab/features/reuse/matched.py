"""Match while training: keep the last batch's rows and load only what it did not have (FastGL, section 4.1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device import streams
from gnnsample_lab.features.caching import gather
from gnnsample_lab.features.caching.cache import FeatureCache
from gnnsample_lab.features.caching.host import feature_table
from gnnsample_lab.features.caching.marks import Previous
from gnnsample_lab.features.caching.stats import ExtractStats


class MatchedFeatures:
    """Extraction that takes rows over from the batch before: first from there, then from the cache, then the host.

    The previous batch's rows are in device memory anyway, so this costs one 4-byte entry per vertex of the graph.
    ``stats.reused`` counts the rows taken over; ``stats.bytes_moved`` is exactly the bytes of the rows that were
    neither in the previous batch nor in the cache.

    Args:
        source: a :class:`~.cache.FeatureCache`, or a feature table, which is then read without a cache.
        device: for a table, as in :class:`~.cache.FeatureCache`.
        transfer: likewise.

    Raises:
        TypeError, ValueError, RuntimeError: as :class:`~.cache.FeatureCache`; the message calls the table ``source``.
    """

    def __init__(self, source: Any, device: str | None = "auto", transfer: str = "auto") -> None:
        if isinstance(source, FeatureCache):
            self.cache = source
        else:
            self.cache = FeatureCache(
                feature_table(source, "source"), ratio=0.0, device=device, transfer=transfer
            )
        self._turns = streams.Turns()
        self._where = gather.library(self.cache.device).zeros(self.cache.num_nodes, np.uint32)
        if self.cache.device == "cuda":
            self._where = streams.leased(self._where, self._turns)
            self._turns.take()  # it is filled on this stream
        self._next = 1  # entries below belong to batches of the past
        self._previous: Previous | None = None

    def reset(self) -> None:
        """Forget the previous batch: the next one reuses nothing."""
        self._previous = None

    def extract(self, node_ids: Any) -> tuple[Any, ExtractStats]:
        """Rows of a batch, as :meth:`FeatureCache.extract` returns them, and keep them for the next batch.

        The rows are kept by reference: changing ``x`` in place before the next call changes the rows that it reuses.
        Streams are as there; a call on another stream than the last waits for it, on the device.

        Args:
            node_ids: as for :meth:`FeatureCache.extract`.

        Raises:
            TypeError, ValueError: as :meth:`FeatureCache.extract`.
        """
        cache = self.cache
        on_gpu = cache.device == "cuda"
        with cache._lock, streams.call(on_gpu):
            ids = cache._ids(node_ids)
            if on_gpu:
                self._turns.take()
                if self._previous is not None:
                    streams.order(self._previous.x)
            x, stats = cache._extract(ids, None, self._previous, cache._output(None, int(ids.size)))
            self._remember(ids, x)
            if on_gpu:
                self._turns.leave()
        return x, stats

    def _remember(self, ids: Any, x: Any) -> None:
        n = int(ids.size)
        if self._next + n >= 2**32:
            self._where.fill(0)
            self._next = 1
        base = self._next
        self._next += n
        if n and self.cache.device == "cpu":
            self._where[ids] = base + np.arange(n, dtype=np.uint32)
        elif n:
            args = (ids, np.uint64(n), self._where, np.uint32(base))
            gather.match_kernel("remember", ids)(gather.blocks_for(n), (256,), args)
        self._previous = Previous(self._where, base, n, x)
