"""Which mini-batches of an epoch a rank samples: all of each, or its slice of the seeds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from gnnsample_lab.device import streams
from gnnsample_lab.device.arrays import equal_bounds, merge_duplicates, to_host
from gnnsample_lab.minibatch.epoch import starts
from gnnsample_lab.minibatch.seeds import Unchanged


@dataclass(frozen=True, eq=False)
class NoBatch:
    """A rank's slice of a mini-batch where the slice has no seed: nothing is sampled, and the rank goes along."""

    batch_id: int
    node_ids: Any = ()
    seeds: Any = ()
    num_edges: int = 0
    ready: Any = streams.DONE


def equal_slice(seeds: Any, index: int, count: int, are_distinct: bool = False) -> Any:
    """Slice ``index`` of ``count`` of distinct seeds; sizes differ by one at most, and some may be empty."""
    distinct = seeds if are_distinct else merge_duplicates(seeds)[0]
    begin, end = equal_bounds(len(distinct), count)[index : index + 2].tolist()
    return distinct[begin:end]


class EpochPlan:
    """Hands out the mini-batches of an epoch, in order; of several workers each has windows of its own.

    A mini-batch of several ranks has one batch id. Each rank samples its slice of the seeds, and what the ranks sample
    together is the sample of one device, since picks depend on batch id and vertex alone.

    Args:
        epoch: an :class:`~gnnsample_lab.minibatch.epoch.EpochIterator`.
        samplers: each is used by one worker.
        index, count: which of how many slices of each mini-batch; one slice is all of it.
        without: batch ids to leave out, such as those that have been trained.
        in_windows: whether mini-batches are put in order window by window. Windows are then those of the whole epoch:
            one that is trained in part is handed out whole, so that its order is the same, and whoever orders it leaves
            out those that :meth:`is_left_out` names.

    A sampler with ``sample_slices(seeds, first_batch_id)`` knows its rank: it gets whole mini-batches, and returns this
    rank's slices, with :class:`NoBatch` for those without seeds. All ranks call it alike.

    Attributes:
        batch_ids: of the mini-batches, in order; with ``in_windows`` of the whole epoch.
    """

    def __init__(
        self,
        epoch: Any,
        samplers: Sequence[Any],
        index: int = 0,
        count: int = 1,
        without: Collection[int] = (),
        in_windows: bool = False,
    ) -> None:
        self._epoch, self._samplers, self._index, self._count = epoch, samplers, index, count
        ids = range(epoch.first_batch_id, epoch.first_batch_id + len(epoch))
        left_out = set(without).intersection(ids)
        self.batch_ids = [i for i in ids if in_windows or i not in left_out]
        self._left_out = left_out if in_windows else set()
        self._taken: dict[int, int] = {}

    def __len__(self) -> int:
        """How many mini-batches are to be trained on."""
        return len(self.batch_ids) - len(self._left_out)

    def is_left_out(self, batch_id: int) -> bool:
        """Whether a mini-batch that is handed out is not to be trained on: it only belongs to the window."""
        return batch_id in self._left_out

    def left_out_before(self, place: int) -> int:
        """How many of the mini-batches before ``place`` are not to be trained on."""
        if not self._left_out:
            return 0
        return sum(batch_id in self._left_out for batch_id in self.batch_ids[:place])

    def take(self, count: int, worker: int = 0, workers: int = 1) -> range:
        """Places of the next ``count`` mini-batches; fewer, then none, at the end.

        Of several workers, each of which always takes as many, worker i has windows i, i + ``workers``, and so on: on
        all ranks the same, whoever is free there.
        """
        while True:
            first = min(self._taken.get(worker, worker * count), len(self.batch_ids))
            self._taken[worker] = first + workers * count
            places = range(first, min(first + count, len(self.batch_ids)))
            if not places or not all(map(self.is_left_out, self.batch_ids[places.start : places.stop])):
                return places

    def seeds(self, batch_id: int) -> Any:
        """Seeds that this rank samples for; may be empty."""
        if self._count == 1:
            return self._epoch.placed_seeds(batch_id - self._epoch.first_batch_id)
        return equal_slice(self._whole(batch_id), self._index, self._count, self._epoch.distinct)

    def starts(self, count: int) -> int:
        """How many of ``count`` mini-batches :meth:`start` launches without waiting, in one launch; 0: none."""
        return starts(self._samplers[0], count, self._epoch.batch_size)

    def start(self, places: range) -> Callable[[], list[Any]]:
        """Launch as much of :meth:`sample` as needs no waiting; the function that is returned does the rest.

        What was launched is let go of if that function is dropped. Both run on the same stream.
        """
        sampled, coming = self._samplers[0], None
        groups = [] if hasattr(sampled, "sample_slices") else self._groups(places)
        if groups and groups[0][0]:
            _, first = groups[0]
            most = max(len(seeds) for _, seeds in first)
            if starts(sampled, len(first), most):
                coming = sampled.start_many(Unchanged(seeds for _, seeds in first), first[0][0])
        return lambda: self._sampled(places, 0, coming)

    def sample(self, places: range, sampler: int = 0) -> list[Any]:
        """Mini-batches at ``places``, with consecutive batch ids sampled together."""
        return self._sampled(places, sampler)

    def _sampled(self, places: range, sampler: int, coming: Any = None) -> list[Any]:
        """``coming``: the first of the groups, where it was started."""
        found: list[Any] = []
        sampled = self._samplers[sampler]
        if hasattr(sampled, "sample_slices"):
            ids = self.batch_ids[places.start : places.stop]
            for _, group in _runs([(batch_id, self._whole(batch_id)) for batch_id in ids]):
                found += sampled.sample_slices([seeds for _, seeds in group], group[0][0])
        else:
            for is_some, group in self._groups(places):
                if coming is not None:
                    found += coming()
                    coming = None
                elif is_some:
                    found += sampled.sample_many([seeds for _, seeds in group], group[0][0])
                else:
                    found += [NoBatch(batch_id) for batch_id, _ in group]
        for batch in found:
            batch.ready.order()
        return found

    def _groups(self, places: range) -> list[tuple[bool, list[tuple[int, Any]]]]:
        """Ids and seeds of mini-batches at ``places``, in groups that are sampled together, or have no seeds."""
        ids = self.batch_ids[places.start : places.stop]
        return [*_runs([(batch_id, self.seeds(batch_id)) for batch_id in ids])]

    def _whole(self, batch_id: int) -> Any:
        """Seeds of all ranks."""
        return self._epoch.batch_seeds(batch_id - self._epoch.first_batch_id)


def _runs(tasks: Sequence[tuple[int, Any]]) -> Iterator[tuple[bool, list[tuple[int, Any]]]]:
    """Tasks with consecutive ids, all of which have seeds or none."""
    for (_, is_some), run in groupby(enumerate(tasks), key=lambda at: (at[1][0] - at[0], len(at[1][1]) > 0)):
        yield is_some, [task for _, task in run]


def copies_of(sampler: Any, count: int) -> list[Any]:
    """``sampler`` and ``count - 1`` like it, each with scratch memory of its own where it can be made anew.

    One that meets those of other ranks is asked for others, with collectives of their own; all ranks call this alike.
    """
    from gnnsample_lab.minibatch.sampler import NeighborSampler

    if getattr(sampler, "together", False):
        return [sampler] + [sampler.another() for _ in range(count - 1)]
    if type(sampler) is not NeighborSampler:
        return [sampler] * count
    s, spec = sampler, sampler.spec
    return [sampler] + [
        NeighborSampler(
            s.graph, spec.fanouts, strategy=s.strategy, pick=spec.pick, weighted=spec.weighted,
            replace=spec.replace, expand=spec.expand, device=s.device, seed=spec.seed, id_map=s.id_map,
            completion=s.completion, fetch_size=s.fetch_size,  # which tasks are lost, under completion="paper"
            queue=s.queue,
        )
        for _ in range(count - 1)
    ]  # fmt: skip


def labelled(label: np.ndarray, seeds: Any) -> int:
    """How many of the seeds a loss counts: those with a label, all of them for multi-label data."""
    return len(seeds) if label.ndim == 2 else int(np.count_nonzero(label[to_host(seeds)] >= 0))
