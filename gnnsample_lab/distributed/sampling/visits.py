"""How often a rank's own mini-batches expand each vertex: what ranks remote lists where nobody says it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.distributed.parts.hot import HotLists, hottest_lists
from gnnsample_lab.features.ranking.hotness import PRESAMPLE_BATCH_ID
from gnnsample_lab.minibatch.types import MiniBatch

from .engines import Setup

BATCHES, BATCH_SIZE = 8, 1024
"""Mini-batches that are sampled beforehand, and their seeds."""
UNSEEN, _MOST_UNSEEN = 0.01, 1.0
"""Visits for each edge out of a vertex beside those that were counted, and the most of them."""


def hot_lists(setup: Setup, draw: Callable[[np.ndarray, int], MiniBatch]) -> HotLists:
    """The remote lists that a rank copies (``"direct-cached"``); all ranks call it together.

    Args:
        setup: of the sampler; with ``visits`` these are taken, else :func:`presampled`.
        draw: samples seeds under a batch id without copies, and without the other ranks.
    """
    layout, spec = setup.layout, setup.spec
    part, visits, fanouts = layout.part, setup.visits, [spec.fanouts[-1]]
    if visits is None:
        visits, fanouts = presampled(setup, draw), list(spec.fanouts)
    return hottest_lists(
        visits, layout.records[:, 1], fanouts, setup.cache_bytes, owner=layout.partition.owner, rank=part.rank,
        entry_bytes=part.indices.dtype.itemsize + 8 * spec.weighted,
    )  # fmt: skip


def unseen(out_degrees: np.ndarray) -> np.ndarray:
    """Visits of vertices that mini-batches sampled beforehand may not have reached, ``float64[N]``."""
    return np.minimum(UNSEEN * out_degrees, _MOST_UNSEEN)


def presampled(
    setup: Setup, draw: Callable[[np.ndarray, int], MiniBatch], together: bool = False
) -> np.ndarray:
    """How often the vertices are expanded in :data:`BATCHES` mini-batches of this rank, by hop, ``float64[H, N]``.

    Seeds are training vertices of the rank's part, or any of its vertices with in-neighbours where it has none. A
    vertex that these mini-batches do not reach may be one of many edges: the last hop has a little for each edge out of
    a vertex, over all parts, so that a larger budget has an order for the rest.

    ``together``: whether ranks can draw together alone, those without seeds too.
    """
    layout, spec = setup.layout, setup.spec
    part = layout.part
    found = np.zeros((spec.num_hops, part.num_nodes))
    found[-1] = unseen(layout.out_degrees())
    seeds = np.asarray(part.seeds)
    if not seeds.size:
        seeds = np.asarray(part.vertices)[np.diff(part.indptr) > 0]
    if not seeds.size and not together:
        return found
    rng = np.random.default_rng([spec.seed, part.rank])
    for i in range(BATCHES):
        chosen = rng.choice(seeds, min(BATCH_SIZE, seeds.size), replace=False)
        batch = draw(chosen.astype(np.int64), PRESAMPLE_BATCH_ID + i)
        batch.ready.order()
        for visits, picks in zip(found, batch.picks, strict=True):
            visits[to_host(picks.frontier)] += 1  # vertices of a frontier are distinct
    return found
