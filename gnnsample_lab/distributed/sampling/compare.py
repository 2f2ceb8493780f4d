"""One mini-batch by several methods: what each moves, and whether it is the sample of the whole graph.

The functions run on ranks: ``lab.distributed.run(lab.distributed.traffic_of, folder, seeds, tasks)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .capacities import WARM_UP
from .sampler import Sampler
from .traffic import Traffic

FIRST_OTHER = 1_000_000
"""Batch id of the first batch that warms ``csp-fixed`` up."""


def traffic_of(rank: Any, source: Any, seeds: Any, tasks: Iterable[Mapping[str, Any]]) -> list[Traffic]:
    """What this rank moves for its slice of a mini-batch, for each task.

    ``"csp-fixed"`` samples as many other batches before as it needs to fix its buffers, so that their padding counts.

    Args:
        rank: as ``lab.distributed.run`` gives it.
        source: as of ``lab.distributed.Sampler``.
        seeds: of the whole batch, original ids, the same on all ranks.
        tasks: arguments of a ``Sampler`` by name, ``fanouts`` and ``method`` among them; besides, ``by`` (how seeds are
            sliced, ``"equal"``), ``batch_id`` (0) and ``batches`` (1), how many with these seeds, by batch ids that
            follow on, are counted together. ``visits`` may have a row for each rank, ``[P, N]``.

    Returns:
        One :class:`Traffic` for each task.

    Raises:
        TypeError, ValueError, RuntimeError: as ``Sampler`` and ``Sampler.sample``.
    """
    found = []
    for task in tasks:
        options = {"count_reads": True, **task}
        by, batch_id = options.pop("by", "equal"), options.pop("batch_id", 0)
        batches = options.pop("batches", 1)
        if getattr(options.get("visits"), "ndim", 1) == 2:
            options["visits"] = options["visits"][rank.index]
        sampler = Sampler(source, rank=rank, **options)
        if sampler.method == "csp-fixed":
            for i in range(WARM_UP):
                sampler.sample(
                    sampler.slice(_others(sampler.part.num_nodes, len(seeds), i), by), FIRST_OTHER + i
                )
        sampler.sample_many([sampler.slice(seeds, by)] * batches, batch_id)
        found.append(sampler.traffic)
        sampler.close()
    return found


def _others(num_nodes: int, count: int, i: int) -> np.ndarray:
    """Seeds of the i-th other batch, ``int64``, distinct."""
    return np.random.default_rng(i).choice(num_nodes, min(count, num_nodes), replace=False)


def edges_of(batch: Any, indptr: Any = None) -> list[np.ndarray]:
    """The sampled edges of each hop in an order of their own, to compare samples or to unite slices.

    Args:
        batch: a mini-batch on either device.
        indptr: of the whole graph on the host, where positions are those of its edges; None where they are slots.

    Returns:
        By hop the distinct ``(destination, slot, source)``, original ids, ``int64[n, 3]``, sorted.
    """
    found = []
    for picks in batch.to_cpu().picks:
        dst = np.repeat(picks.frontier, picks.counts).astype(np.int64)
        slots = picks.positions - (0 if indptr is None else indptr[dst])
        found.append(np.unique(np.stack([dst, slots, picks.neighbors], 1).astype(np.int64), axis=0))
    return found


def united(slices: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """The edges of all ranks' slices of one mini-batch, by hop, as :func:`edges_of` gives them.

    Args:
        slices: for each rank what ``edges_of`` returned.
    """
    return [np.unique(np.concatenate(hop), axis=0) for hop in zip(*slices, strict=True)]
