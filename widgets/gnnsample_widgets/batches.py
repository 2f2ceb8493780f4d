"""Windows of mini-batches to look at: which seeds are in them, and what loading them would copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gnnsample_lab import checks

from .graphs import seed_pool

RUN = 4
"""Batches in a row that are cut from neighbouring places of the sorted training vertices."""

GROUPINGS = ("shuffled", "by label", "by degree")


def groupings(graph: Any) -> list[str]:
    """The ways to put seeds into batches that ``graph`` allows; labels must be one class per vertex."""
    has_labels = graph.label is not None and graph.label.ndim == 1
    return [name for name in GROUPINGS if has_labels or name != "by label"]


def draw_batches(
    graph: Any, num_batches: int, batch_size: int, *, grouping: str = "shuffled", seed: int = 0
) -> list[np.ndarray]:
    """Seeds of ``num_batches`` mini-batches, in random order; int64 global ids, no vertex twice.

    Args:
        graph: where the seeds are drawn from: its training vertices, else all.
        num_batches: a multiple of four (:data:`RUN`), or less than that.
        grouping: ``"shuffled"``, as in training; ``"by label"`` or ``"by degree"`` cut runs of
            four batches from training vertices sorted that way, so that some batches are akin.
        seed: of all that is random here.

    Raises:
        TypeError: a number that is no integer.
        ValueError: an unknown grouping, or more seeds than there are vertices to draw from.
    """
    checks.choice("grouping", grouping, groupings(graph))
    checks.whole("num_batches", num_batches, low=1)
    checks.whole("batch_size", batch_size, low=1)
    checks.seed(seed)
    rng = np.random.default_rng(seed)
    pool = rng.permutation(seed_pool(graph))
    if grouping != "shuffled":
        host = graph.to("cpu", features=False)
        key = host.label if grouping == "by label" else host.in_degrees()
        pool = pool[np.argsort(np.asarray(key)[pool], kind="stable")]
    rows = pool[: len(pool) // batch_size * batch_size].reshape(-1, batch_size)
    run = min(RUN, num_batches)
    if num_batches > len(rows) // run * run:
        raise ValueError(
            f"num_batches of batch_size seeds must fit into {len(pool)} vertices (got {num_batches} of {batch_size})"
        )
    starts = rng.choice(len(rows) // run, -(-num_batches // run), replace=False) * run
    chosen = (starts[:, None] + np.arange(run)).ravel()[:num_batches]
    return list(rows[rng.permutation(chosen)])


def feature_sources(
    batches: Sequence[Any], orders: Mapping[str, Any], cached: Any = None
) -> dict[str, tuple[int, int, int]]:
    """Rows of a window by where they come from, for each way to go through it: reused from the batch before, in
    the cache, copied.

    Counted as :class:`gnnsample_lab.MatchedFeatures` loads: first what the batch before left, then the cache.

    Args:
        batches: global ids of each mini-batch, distinct within it.
        orders: name -> order of training; None loads each batch by itself, without Match.
        cached: bool per vertex, whether its row is in the cache; None for no cache.
    """
    import gnnsample_lab as lab

    ids = [np.asarray(batch) for batch in batches]
    missing = ids if cached is None else [batch[~cached[batch]] for batch in ids]
    shared = lab.overlaps(ids)
    shared_missing = shared if cached is None else lab.overlaps(missing)
    rows, needed = int(np.trace(shared)), int(np.trace(shared_missing))
    found = {}
    for name, order in orders.items():
        steps = (np.asarray(order)[:-1], np.asarray(order)[1:]) if order is not None else ([], [])
        reused, copied = int(shared[steps].sum()), needed - int(shared_missing[steps].sum())
        found[name] = (reused, rows - reused - copied, copied)
    return found
