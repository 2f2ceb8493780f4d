"""Which rows are hot, when every rank knows its own part alone (DSP: in-degree; GNNLab: PreSC)."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from gnnsample_lab.checks import choice, instance, whole
from gnnsample_lab.distributed.sampling.layout import Layout
from gnnsample_lab.distributed.sampling.sampler import Sampler
from gnnsample_lab.features.ranking.footprint import Counter
from gnnsample_lab.features.ranking.hotness import PRESAMPLE_BATCH_ID, Hotness, hottest_first

DEGREES = {
    "in-degree": "vertices of many in-edges (DSP's default)",
    "degree": "vertices of many out-edges, which samples reach often (PaGraph)",
}


def in_degrees(layout: Layout) -> np.ndarray:
    """In-degree of every vertex of the graph, ``int64[N]``; the ranks that hold the parts call it together."""
    found = np.empty(layout.num_nodes, np.int64)
    every = layout.exchange.all_gather("records", np.diff(layout.part.indptr).astype(np.int64))
    found[layout.partition.old_of] = np.concatenate(every)
    return found


def by_degree(layout: Layout, policy: str) -> Hotness:
    """The ranking by a degree, a name of :data:`DEGREES`; the ranks that hold the parts call it together."""
    choice("hotness", policy, DEGREES)
    began = time.perf_counter()
    degrees = in_degrees(layout) if policy == "in-degree" else layout.out_degrees()
    score = degrees.astype(np.float64)
    label = "In-degree" if policy == "in-degree" else "Degree"
    took_us = (time.perf_counter() - began) * 1e6
    return Hotness(policy, label, score, np.argsort(-score, kind="stable"), took_us)


def presample(
    sampler: Any, seeds: Any, batch_size: int = 1024, epochs: int = 1, *, by: str = "equal"
) -> Hotness:
    """Rank vertices by the visits of a few epochs on all ranks: PreSC#K (GNNLab, section 6); all ranks call it alike.

    A vertex counts once in the slice of each rank, since each rank loads its row. On one rank these are the counts of
    ``lab.hotness(graph, "presample", ...)``, whose batch ids, out of the reach of training, are taken here, too.

    Args:
        sampler: a :class:`lab.distributed.Sampler`.
        seeds: training vertices, the same on all ranks.
        batch_size: seeds of a global batch, as in training.
        epochs: K.
        by: how a batch is divided, as in ``Sampler.slice``.

    Returns:
        The same on all ranks; score: visits per epoch.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or out of range.
    """
    sampler = instance("sampler", sampler, Sampler, "a gnnsample_lab.distributed.Sampler")
    batch_size, epochs = whole("batch_size", batch_size, 1, 2**31 - 1), whole("epochs", epochs, 1, 1000)
    began = time.perf_counter()
    layout = sampler._layout
    counter = Counter(layout.num_nodes)
    length = max(1, len(sampler.epoch(seeds, batch_size, by=by)))
    first = -(-PRESAMPLE_BATCH_ID // length)
    for epoch in range(first, first + epochs):
        for batch in sampler.epoch(seeds, batch_size, epoch=epoch, by=by):
            counter.add(batch.node_ids)
    visits = layout.world.sum("flags", counter.result().visits)
    score = visits / epochs
    took_us = (time.perf_counter() - began) * 1e6
    return Hotness("presample", f"PreSC#{epochs}", score, hottest_first(score, layout.out_degrees()), took_us)
