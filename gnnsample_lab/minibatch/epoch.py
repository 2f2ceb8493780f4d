"""The iterator of a training loop: shuffle, batch ids, prefetch, progress."""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from gnnsample_lab.checks import flag, is_cuda_array, whole
from gnnsample_lab.device import streams
from gnnsample_lab.device.arrays import array_module, run_starts
from gnnsample_lab.device.locks import check_same_process
from gnnsample_lab.device.philox import MAX_BATCH_ID

from .seeds import Unchanged, seed_array
from .types import MiniBatch

_MOST_PLACED = 1 << 26
"""Bytes of seeds that an epoch keeps on the GPU, at most."""


def starts(sampler: Any, count: int, most_seeds: int) -> int:
    """How many of ``count`` mini-batches ``sampler.start_many`` should start at a time; 0: none, sample them in turn.

    Args:
        sampler: any; those that cannot start mini-batches without waiting for them need not know of it.
        most_seeds: seeds of the largest.
    """
    ask = getattr(sampler, "_starts", None)
    return 0 if ask is None else int(ask(count, most_seeds))


class EpochIterator:
    """Iterates one epoch's mini-batches; may be iterated again, with the same result.

    ``sampler`` is a :class:`~.sampler.NeighborSampler` or a :class:`~.walks.sampler.PinSAGESampler`.

    Batch ``i`` of epoch ``e`` has batch id ``e * len(self) + i``. On a GPU up to ``prefetch`` mini-batches are sampled
    together, and those that share a launch are started before the ones ahead of them are handed out; what was started
    is let go of where the loop is left early. On a CPU a thread samples ahead while the caller trains.
    """

    def __init__(
        self,
        sampler: Any,
        seeds: Any,
        batch_size: int,
        epoch: int,
        shuffle: bool,
        drop_last: bool,
        prefetch: int | None,
        progress: bool,
    ) -> None:
        self.sampler = sampler
        self.batch_size = whole("batch_size", batch_size, 1, 2**31 - 1)
        self.prefetch = 8 if sampler.device == "cuda" else 2
        if prefetch is not None:
            self.prefetch = whole("prefetch", prefetch, 1, 1024)
        self.progress = flag("progress", progress)
        shuffle, drop_last = flag("shuffle", shuffle), flag("drop_last", drop_last)
        array = seed_array(seeds, sampler.graph.num_nodes)
        full, rest = divmod(int(array.size), self.batch_size)
        self._length = full + (1 if rest and not drop_last else 0)
        self.epoch = whole("epoch", epoch, 0, 2**31)
        self.first_batch_id = self.epoch * max(self._length, 1)
        whole("epoch", self.epoch, 0, (MAX_BATCH_ID - self._length) // max(self._length, 1))
        if shuffle:
            order = np.random.default_rng([sampler.spec.seed, self.epoch]).permutation(array.size)
            if is_cuda_array(array):
                import cupy

                # Lease the seeds, because their slices are read on whatever streams are current later.
                with streams.leasing():
                    array = array[cupy.asarray(order)]
            else:
                array = array[order]
        elif is_cuda_array(array):
            with streams.leasing():
                array = array.copy()
        else:
            array = array.copy()  # the caller's may change before the iterator is used, or used again
        self._seeds = array

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[MiniBatch]:
        batches = self._fused() if self.sampler.device == "cuda" else self._threaded()
        if not self.progress:
            return batches
        from tqdm.auto import tqdm

        return iter(tqdm(batches, total=len(self), desc=f"epoch {self.epoch}", unit="batch"))

    def batch_seeds(self, i: int) -> Any:
        """Seeds of mini-batch ``i`` of this epoch, in its order."""
        return self._seeds[i * self.batch_size : (i + 1) * self.batch_size]

    def placed_seeds(self, i: int) -> Any:
        """:meth:`batch_seeds` where the sampler reads them best."""
        return self._placed[i * self.batch_size : (i + 1) * self.batch_size]

    @functools.cached_property
    def _placed(self) -> Any:
        """The seeds on the GPU, if the sampler reads them there: copying all takes as long as copying a mini-batch's.

        More than :data:`_MOST_PLACED` bytes, or seeds for which there is no memory, stay on the host.
        """
        seeds = self._seeds
        if is_cuda_array(seeds) or not getattr(self.sampler, "reads_gpu_seeds", False):
            return seeds
        dtype = np.dtype(np.int32 if seeds.dtype == np.int32 else np.int64)  # what kernels read
        if seeds.size * dtype.itemsize > _MOST_PLACED:
            return seeds
        import cupy

        try:
            with streams.leasing() as ready:
                placed = cupy.asarray(seeds.astype(dtype, copy=False))
        except cupy.cuda.memory.OutOfMemoryError:
            return seeds
        if streams.is_per_thread():  # no other thread's stream would wait for this one
            ready.stream.synchronize()
        ready.note()  # readers wait for the copy, and not for what this stream is given later
        return placed

    @functools.cached_property
    def distinct(self) -> bool:
        """Whether no seed comes twice in the epoch."""
        xp = array_module(self._seeds)
        return bool(run_starts(xp.sort(self._seeds)).all())

    def _fused(self) -> Iterator[MiniBatch]:
        begin = 0
        coming = self._started(begin)
        while begin < self._length:
            if coming is None:
                group = range(begin, min(begin + self.prefetch, self._length))
                batches = self.sampler.sample_many(
                    [self.placed_seeds(i) for i in group], self.first_batch_id + begin
                )
            else:
                batches = list(coming())
            begin += len(batches)
            coming = self._started(begin)  # sampled while these are handed out
            batches.reverse()  # who drops a mini-batch frees its memory
            while batches:
                batches[-1].ready.order()  # the consumer may have changed streams since the batch was sampled
                yield batches.pop()

    def _started(self, begin: int) -> Callable[[], list[MiniBatch]] | None:
        """The mini-batches from ``begin`` on that share a launch, started; None where all would be sampled at once."""
        size = min(self.prefetch, self._length - begin)
        if size > 0:
            size = starts(self.sampler, size, self.batch_size)
        if size <= 0:
            return None
        started: Callable[[], list[MiniBatch]] = self.sampler.start_many(
            Unchanged(self.placed_seeds(i) for i in range(begin, begin + size)), self.first_batch_id + begin
        )
        return started

    def _threaded(self) -> Iterator[MiniBatch]:
        # The thread takes only the sampler's own lock, so that the consumer may hold any other lock while it waits.
        waiting: deque[Future[MiniBatch]] = deque()
        process = os.getpid()

        def oldest() -> MiniBatch:
            check_same_process(process, "the thread that samples ahead")
            return waiting.popleft().result()

        with ThreadPoolExecutor(1, thread_name_prefix="sampler") as pool:
            try:
                for i in range(self._length):
                    waiting.append(
                        pool.submit(self.sampler.sample, self.batch_seeds(i), self.first_batch_id + i)
                    )
                    if len(waiting) >= self.prefetch:
                        yield oldest()
                while waiting:
                    yield oldest()
            finally:
                for future in waiting:
                    future.cancel()
