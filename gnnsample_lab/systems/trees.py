"""NextDoor's samples for the training loop: trees drawn by the transit-parallel engine, many mini-batches at a time."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from gnnsample_lab.checks import choice
from gnnsample_lab.device import streams
from gnnsample_lab.device.arrays import equal_bounds, merge_duplicates, to_host
from gnnsample_lab.minibatch.epoch import EpochIterator
from gnnsample_lab.minibatch.types import Block
from gnnsample_lab.pipeline.batches import LoadedBatch
from gnnsample_lab.pipeline.plan import NoBatch, equal_slice
from gnnsample_lab.sampling.apps.khop import KHop
from gnnsample_lab.sampling.engine.run import INDEXES, MAX_SAMPLE_ID, run_app

from .sample_blocks import Trees

TOGETHER = 32
"""Mini-batches that are sampled in one run, whose transits are grouped together."""
BATCHES_OF_A_SEED = 2**30
"""Batch ids that are drawn under one seed: sample ids have 40 bits, which 1 024 seeds a mini-batch fill."""


def _seed_of(seed: int, kind: int) -> int:
    """The seed itself for training (0), others for evaluation and trials."""
    return (seed + kind * 0x9E3779B97F4A7C15) % 2**64


class TreeSampler:
    """k-hop neighbourhoods as NextDoor draws them: every pick a vertex of its own, with replacement.

    Seed ``i`` of mini-batch ``b`` is sample ``b * batch_size + i`` of ``lab.run_app(graph, lab.apps.KHop(fanouts))``,
    whichever rank draws it and however many are drawn together. That holds for training, whose batch ids lie below
    2**30; evaluation and trials, whose ids lie above, draw under seeds of their own and so never the same.

    Args:
        graph: on the device.
        fanouts: picks per vertex, the hop next to the seeds first.
        batch_size: seeds of a mini-batch.
        device: "cpu" or "cuda".
        seed: of the draws.
        index, count: which of how many equal slices of each mini-batch.
        grouped: how a GPU groups pairs of sample and transit: ``index`` of :func:`lab.run_app`. Samples are the same
            whatever it is, and on a CPU, which draws sample by sample, it chooses nothing.

    Attributes:
        ahead: mini-batches to sample together.

    Raises:
        ValueError: ``grouped`` is no such index.
    """

    ahead = TOGETHER

    def __init__(
        self, graph: Any, fanouts: Sequence[int], batch_size: int, device: str, seed: int, index: int = 0,
        count: int = 1, grouped: str = "published",
    ) -> None:  # fmt: skip
        self.app = KHop(fanouts)
        self.grouped = choice("grouped", grouped, INDEXES)
        self.graph, self.device, self.batch_size = graph, device, batch_size
        self.spec = SimpleNamespace(seed=seed, fanouts=self.app.fanouts, expand="frontier")
        self._slice, self._trees = (index, count), Trees()

    @property
    def fanouts(self) -> tuple[int, ...]:
        return self.app.fanouts

    def epoch(self, seeds: Any, batch_size: int, epoch: int = 0) -> EpochIterator:
        """The whole mini-batches of an epoch."""
        return EpochIterator(self, to_host(seeds), batch_size, epoch, True, False, None, False)

    def sample(self, seeds: Any, batch_id: int = 0) -> Any:
        """One mini-batch, all of it."""
        return self.sample_many([seeds], batch_id)[0]

    def sample_many(self, seeds: Sequence[Any], first_batch_id: int = 0) -> list[Any]:
        """Mini-batches of consecutive ids, all of each."""
        return self._drawn([merge_duplicates(to_host(some))[0] for some in seeds], first_batch_id, (0, 1))

    def sample_slices(self, seeds: Sequence[Any], first_batch_id: int = 0) -> list[Any]:
        """This rank's slices of whole mini-batches; :class:`NoBatch` for those without seeds."""
        return self._drawn(
            [merge_duplicates(to_host(some))[0] for some in seeds], first_batch_id, self._slice
        )

    def _drawn(self, seeds: list[np.ndarray], first: int, part: tuple[int, int]) -> list[Any]:
        found: list[Any] = []
        whole = part[1] == 1 and all(len(some) == self.batch_size for some in seeds[:-1])
        groups = [seeds] if whole else [[some] for some in seeds]
        for group in groups:
            slices = [equal_slice(some, *part, are_distinct=True) for some in group]
            skipped = int(equal_bounds(len(group[0]), part[1])[part[0]]) if group else 0
            number = first + len(found)
            roots = np.concatenate(slices) if slices else np.empty(0, np.int64)
            if not len(roots):
                found += [NoBatch(number + i) for i in range(len(group))]
                continue
            kind, place = divmod(number, BATCHES_OF_A_SEED)
            at = (place * self.batch_size + skipped) % (MAX_SAMPLE_ID - self.batch_size * TOGETHER * 2)
            result = run_app(
                self.graph,
                self.app,
                roots,
                device=self.device,
                seed=_seed_of(self.spec.seed, kind),
                first_sample=at,
                index=self.grouped,
            )
            begin = 0
            for i, some in enumerate(slices):
                end = begin + len(some)
                found.append(self._batch(result, begin, end, number + i))
                begin = end
        return found

    def _batch(self, result: Any, begin: int, end: int, batch_id: int) -> LoadedBatch:
        seeds = result.roots.reshape(-1)[begin:end]
        hops = [step[begin:end].reshape(-1) for step in result.steps]
        step = self._trees(seeds, [hop.astype(seeds.dtype, copy=False) for hop in hops])
        blocks = []
        for edges in step.blocks:
            rows = int(edges.indptr.size) - 1
            indptr, indices = edges.indptr.astype(np.int64), edges.indices.astype(np.int32)
            blocks.append(Block(edges.src, edges.src[:rows], indptr, indices, None))
        edges_drawn = sum(int(hop.size) for hop in hops)
        return LoadedBatch(step.node_ids, step.seeds, tuple(blocks), batch_id, edges_drawn, streams.DONE)
