"""How the frontier grows with the batch size, for all sizes from one sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnsample_lab.checks import whole

from .types import MiniBatch


def frontiers_of_first(batch: MiniBatch, sizes: Sequence[int]) -> dict[int, list[int]]:
    """What each hop would expand if the mini-batch had only its first few seeds, counted exactly.

    A draw depends on the vertex, the hop and the seed of the generator, and on no other vertex of the mini-batch. The
    sample of the first seeds is therefore the part of this sample that they reach.

    Args:
        batch: a complete sample with ``expand="frontier"``, from distinct seeds, on either device.
        sizes: how many seeds each time, from 1 to those of the mini-batch.

    Returns:
        Size -> vertices expanded by each hop, then vertices of the mini-batch.

    Raises:
        ValueError: a sample of another kind, or a size beyond it.
    """
    batch = _expanded_anew(batch)
    num_seeds = batch.level_sizes[0]
    for size in sizes:
        whole("sizes", size, 1, num_seeds)
    # Of each vertex, by local id: the position of the first seed that reaches it so far.
    first = np.full(batch.level_sizes[-1], num_seeds, dtype=np.int64)
    first[:num_seeds] = np.arange(num_seeds)
    counts = [_up_to(first, num_seeds, sizes)]
    for picks, local in zip(batch.picks, batch.local_neighbors, strict=True):
        reached_by = np.repeat(first[: picks.frontier.size], picks.counts)
        np.minimum.at(first, local, reached_by)
        counts.append(_up_to(first, num_seeds, sizes))
    return {size: [int(hop[i]) for hop in counts] for i, size in enumerate(sizes)}


def _expanded_anew(batch: MiniBatch) -> MiniBatch:
    """The mini-batch on the CPU, if each of its hops expands all that was reached before."""
    if batch.spec.expand != "frontier":
        raise ValueError(f"batch must be sampled with expand='frontier' (got {batch.spec.expand!r})")
    return batch.to_cpu()


def _up_to(first: np.ndarray, num_seeds: int, sizes: Sequence[int]) -> np.ndarray:
    """How many vertices the first seeds reach, for each size."""
    reached: np.ndarray = np.cumsum(np.bincount(first, minlength=num_seeds + 1))
    return reached[np.asarray(sizes, dtype=np.int64) - 1]


def frontiers_on_average(batch: MiniBatch, size: int, batches: int) -> list[float]:
    """What each hop expands on average in mini-batches of ``size`` seeds, each a part of this one, counted exactly.

    Of a few seeds alone one cannot tell how frontiers grow: the first of them may have no in-neighbours at all.

    Args:
        batch: as for :func:`frontiers_of_first`.
        size: seeds of a part, at least 1; no two parts share one.
        batches: how many parts, as far as there are seeds for them.

    Returns:
        Vertices expanded by each hop, then vertices of the mini-batch; to one decimal place.

    Raises:
        ValueError: a sample of another kind, or a size beyond it.
    """
    batch = _expanded_anew(batch)
    whole("size", size, 1, batch.level_sizes[0])
    number = min(whole("batches", batches, 1), batch.level_sizes[0] // size)
    hops = list(zip(batch.picks, batch.local_neighbors, strict=True))
    total = np.zeros(len(hops) + 1)
    for part in range(number):
        reached = np.arange(part * size, (part + 1) * size)
        counts = [len(reached)]
        for picks, local in hops:
            begin, length = picks.offsets[reached], picks.counts[reached]
            # Entry i of these picks stands i places behind the first one, less what the rows before it have.
            skipped = np.repeat(begin - (np.cumsum(length) - length), length)
            reached = np.union1d(reached, local[skipped + np.arange(length.sum())])
            counts.append(len(reached))
        total += counts
    return [round(float(mean), 1) for mean in total / number]
