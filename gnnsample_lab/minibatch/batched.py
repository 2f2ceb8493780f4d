"""The interface of every sampler: one mini-batch, several in a call, or an epoch of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from gnnsample_lab.checks import items, whole
from gnnsample_lab.device import runtime, streams
from gnnsample_lab.device.locks import Lock
from gnnsample_lab.device.philox import MAX_BATCH_ID
from gnnsample_lab.sampling.neighbors.plan import MAX_SEEDS

from .epoch import EpochIterator
from .seeds import Unchanged, on_host, seed_array
from .types import MiniBatch


class Coming:
    """Mini-batches that were started (:meth:`BatchSampler.start_many`); call it for them.

    The memory of those that nobody has asked for is free again when the last reference to this object goes.

    Args:
        lock: held while the mini-batches are waited for.
        started: their engine's: ``result()`` gives them, ``drop()`` gives their memory back.
    """

    def __init__(self, lock: Lock, started: Any) -> None:
        self._lock, self._started = lock, started
        self._batches: list[Any] | None = None
        self._wrap: Callable[[list[Any]], list[Any]] = list

    def wrapped(self, wrap: Callable[[list[Any]], list[Any]]) -> Coming:
        """The same mini-batches, handed out as ``wrap`` makes them."""
        self._wrap = wrap
        return self

    def __call__(self) -> list[Any]:
        """Wait for the sizes. The streams of CuPy and torch that are current wait for the mini-batches."""
        if self._batches is None:
            with self._lock:
                batches = self._started.result()
            self._batches = self._wrap(batches)
        for ready in {id(batch.ready): batch.ready for batch in self._batches}.values():
            ready.order()
        return self._batches

    def __del__(self) -> None:
        started = self.__dict__.get("_started")
        if started is not None and self._batches is None and not sys.is_finalizing():
            started.drop()


class Made:
    """Mini-batches that were made at once, where an engine cannot start them."""

    def __init__(self, batches: list[MiniBatch]) -> None:
        self._batches = batches

    def result(self) -> list[MiniBatch]:
        """The mini-batches."""
        return self._batches

    def drop(self) -> None:
        """Nothing is under way."""


class BatchSampler:
    """Checks seeds and batch ids. A subclass sets the four below and implements :meth:`_run`."""

    device: str
    graph: Any
    spec: Any
    _engine: Any

    @property
    def fanouts(self) -> tuple[int, ...]:
        """Most neighbours of a vertex, one number a hop."""
        found: tuple[int, ...] = self.spec.fanouts
        return found

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch memory held now (tables, queues, staging), not counting samples handed out."""
        return int(self._engine.scratch_bytes)

    @property
    def reads_gpu_seeds(self) -> bool:
        """Whether seeds are best on the GPU: those of the host are copied there in each call."""
        return self.device == "cuda"

    @property
    def _lock(self) -> Lock:
        """The lock for a call: the library's on a GPU; on a CPU that of the tables, so that epochs can sample ahead."""
        if self.device == "cuda":
            return runtime.lock
        lock: Lock = self._engine.lock
        return lock

    def sample(self, seeds: Any, batch_id: int = 0) -> MiniBatch:
        """Sample one mini-batch.

        On a GPU the call returns while the last kernel runs. The work goes on CuPy's current stream, after what torch's
        current stream has, and torch's current stream waits for it: both may read the batch at once. Any other stream
        waits for ``batch.ready`` (:class:`~.types.MiniBatch` has the rules). One sampler serves all streams and all
        threads: a call on another stream waits, on the device, for the scratch memory of the call before. An interrupt
        leaves the sampler usable.

        Args:
            seeds: vertex ids, at most 2**30; NumPy, CuPy, torch or a list. Duplicates are merged in first-seen order.
            batch_id: 0..2**32 - 1; batches with different ids draw independently.

        Raises:
            TypeError, ValueError: seeds are not integers, empty, too many, not one-dimensional or out of range.
            RuntimeError: in a process forked from one that used the library; the message says to use ``spawn``.
        """
        return self.sample_many([seeds], whole("batch_id", batch_id, 0, MAX_BATCH_ID))[0]

    def sample_many(self, seeds: Iterable[Any], first_batch_id: int = 0) -> list[MiniBatch]:
        """Sample several mini-batches; each as if sampled alone.

        On a GPU several share a launch where that is faster. How many is measured in the first calls: they launch 1,
        2, 4, ... mini-batches at a time, and later calls keep the fastest.

        Streams and threads are as in :meth:`sample`.

        Args:
            seeds: one entry per mini-batch, each as in :meth:`sample`.
            first_batch_id: batch id of the first; the others follow on, up to 2**32 - 1.

        Returns:
            One mini-batch for each entry, in the same order.

        Raises:
            TypeError, ValueError: as in :meth:`sample`, no entry at all, or a batch id out of range.
        """
        with streams.call(self.device == "cuda"):
            arrays, first = self._checked(seeds, first_batch_id)
            with self._lock:
                return self._run(arrays, first)

    def start_many(self, seeds: Iterable[Any], first_batch_id: int = 0) -> Coming:
        """As :meth:`sample_many`, for a caller that has other things to do while a GPU samples.

        A :class:`~.sampler.NeighborSampler` launches now as many mini-batches as share a launch best, and waits for
        their sizes, and launches the others, later. It samples all of them now, as :meth:`sample_many` does, until
        earlier calls have measured how many that are; with strategies that relabel hop by hop; with traces; and on
        CUDA's per-thread default stream. A :class:`~gnnsample_lab.FusedSampler` does with the hops before the last
        what its ``NeighborSampler`` does. All other samplers, and all of them on a CPU, sample now.

        Other calls in between are fine: they first collect what was started.

        Args:
            seeds, first_batch_id: as in :meth:`sample_many`.

        Returns:
            A function that waits for the sizes and returns the mini-batches, the same at each call. The streams of
            CuPy and torch that are current in that call wait for them. If it is dropped before it is called, the
            memory of the mini-batches is free again.

        Raises:
            TypeError, ValueError: as in :meth:`sample_many`; device seeds out of range are found by the function.
        """
        on_gpu = self.device == "cuda"
        with streams.call(on_gpu):
            is_own = isinstance(seeds, Unchanged)
            arrays, first = self._checked(seeds, first_batch_id)
            if on_gpu and not is_own:  # what is launched later, or once more, reads them then
                with streams.leasing():
                    arrays = [array.copy() for array in arrays]
            with self._lock:
                return self._start(arrays, first)

    def _checked(self, seeds: Iterable[Any], first_batch_id: int) -> tuple[list[Any], int]:
        arrays = [seed_array(s, self.graph.num_nodes, MAX_SEEDS) for s in self._placed(seeds)]
        if not arrays:
            raise ValueError("seeds must hold at least one mini-batch (got an empty list)")
        return arrays, whole("first_batch_id", first_batch_id, 0, MAX_BATCH_ID - len(arrays) + 1)

    def epoch(
        self,
        seeds: Any,
        batch_size: int,
        epoch: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        prefetch: int | None = None,
        progress: bool = False,
    ) -> EpochIterator:
        """Mini-batches over all seeds; no two mini-batches of epochs of as many mini-batches share a batch id.

        Epochs of other lengths, of a validation set for example, draw apart from them with another sampler ``seed``.

        On a GPU the streams that are current when the iterator is advanced wait for the mini-batch that it yields, also
        if the mini-batch was sampled ahead on other streams.

        Args:
            seeds: the training vertices.
            batch_size: seeds per mini-batch; the last may be smaller unless ``drop_last``.
            epoch: number of the epoch, on which the shuffle and the batch ids depend.
            drop_last: leave out a last mini-batch of fewer seeds.
            shuffle: permute the seeds, the same way on every device for the same sampler seed and epoch.
            prefetch: mini-batches sampled together on a GPU, at most (default 8), ahead on a CPU (default 2). On a GPU
                those that share a launch are started (:meth:`start_many`) when the ones before them are handed out.
            progress: show a tqdm progress bar.

        Returns:
            An iterator with a length.

        Raises:
            TypeError, ValueError: seeds as in :meth:`sample`, or an argument that is not allowed; the message names it.
        """
        return EpochIterator(self, seeds, batch_size, epoch, shuffle, drop_last, prefetch, progress)

    def _placed(self, seeds: Iterable[Any]) -> Iterable[Any]:
        """Seeds of each mini-batch, copied to the host if the sampler runs on the CPU."""
        given = items("seeds", seeds, "a list of mini-batches")
        return map(on_host, given) if self.device == "cpu" else given

    def _start(self, arrays: list[Any], first: int) -> Coming:
        """:meth:`_run` in two halves, if the engine can."""
        return Coming(self._lock, Made(self._run(arrays, first)))

    def _starts(self, count: int, most_seeds: int) -> int:
        """How many of ``count`` mini-batches of up to ``most_seeds`` seeds :meth:`start_many` launches without waiting.

        0 where it would sample all of them at once: starting early then gains nothing.
        """
        return 0

    def _run(self, arrays: list[Any], first: int) -> list[MiniBatch]:
        """Mini-batches of checked seeds with batch ids from ``first`` on; :attr:`_lock` is held."""
        raise NotImplementedError
