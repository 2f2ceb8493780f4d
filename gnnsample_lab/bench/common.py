"""What the suites of the data side share: graphs with features and weights, seeds, samplers, recorded batches.

They run on the GPU where there is one, and those that count rather than time run on the CPU as well.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gnnsample_lab.device import runtime
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.graph import load
from gnnsample_lab.graph.recency import recency_weights
from gnnsample_lab.minibatch.sampler import NeighborSampler
from gnnsample_lab.sampling.walks.pinsage import AS_RELEASED

from .record import graph_facts, scaled
from .session import Session
from .suite import AS_LEFT as AS_LEFT

BATCH = 8000
FANOUTS = (15, 10, 5)
"""FastGL's and GNNLab's 3 layers, 15 picks next to the seeds: both count layers from the input, 5, 10, 15."""
KINDS = ("k-hop", "weighted", "walks")
"""Samplers of GNNLab's table 2: 3-hop uniform, 3-hop weighted, random walks (PinSAGE)."""
OTHER_EXECUTORS = {"gnnlab": ("factored",), "thread": ("serial", "overlapped")}
"""By system or executor, other ways to run on one GPU than the system's own: the fastest counts. GNNLab samples a whole
epoch, then extracts while it trains (its sections 5.2 and 7.9). DGL's and PyG's loaders sample beside training, and
extract in that thread or in another; where Python cannot do both at once, one stage after the other is faster."""
CPU_WORKERS = 4
"""Samplers and loaders of a system that samples on the CPU, where each stage has workers: as PyG's loader has."""


def device() -> str:
    """Where suites run: ``"cuda"`` or ``"cpu"``."""
    return runtime.resolve_device("auto")


def executors(system: Any) -> tuple[str, ...]:
    """Ways to run a system (of ``lab.systems()``) on one GPU, its own first; on a CPU nothing overlaps."""
    others = OTHER_EXECUTORS.get(system.name, OTHER_EXECUTORS.get(system.executor, ()))
    return (system.executor, *(others if device() == "cuda" else ()))


def workers(system: Any, executor: str) -> int:
    """Samplers, and loaders, of a system by that executor."""
    return CPU_WORKERS if executor == "overlapped" and system.sample_device == "cpu" else 1


def names(session: Session, *gpu: str, cpu: Sequence[str] = ("arxiv-like",)) -> tuple[str, ...]:
    """The chosen graphs, else ``gpu`` or, on a machine without one, ``cpu``."""
    return session.chosen or (gpu if device() == "cuda" else tuple(cpu))


def graph(session: Session, name: str, *, features: bool = False) -> Any:
    """A graph by name (``NAME`` or ``NAME@SCALE``), loaded once per run.

    With features it lies in host memory, where they are extracted from; without, on the device, with the edge
    weights of :func:`~gnnsample_lab.graph.recency.recency_weights`, which only weighted samplers read.
    """

    def make() -> Any:
        began = time.perf_counter()
        base, scale = scaled(name)
        where = "cpu" if features else device()
        found = load(base, scale=scale, device=where, features=features)
        if not features:
            found = recency_weights(found)
        session.say(f"{name}{' with features' if features else ''}: {time.perf_counter() - began:.1f} s")
        return found

    return session.kept(("graph", name, features), make)


def train_seeds(found: Any) -> np.ndarray:
    """Training vertices in host memory, all vertices where the graph has no split."""
    train = found.splits.get("train")
    if train is None or not len(train):
        return np.arange(found.num_nodes, dtype=np.int64)
    return to_host(train)


def batch_size(name: str, found: Any, wanted: int = BATCH) -> int:
    """``wanted``, for a scaled graph scaled alike (a mini-batch then covers the same share of the graph, and an epoch
    has as many of them), and less where an epoch would have fewer than four."""
    return max(1, min(round(wanted * scaled(name)[1]), len(train_seeds(found)) // 4))


def sampler(found: Any, kind: str, fanouts: Sequence[int] = FANOUTS, where: str | None = None) -> Any:
    """A sampler of :data:`KINDS`; the random walks are PinSAGE's: 4 walks of 3 steps, 5 neighbours, 3 layers, a walk
    ending after a step with probability 0.5, as GNNLab released them."""
    where = where or device()
    if kind == "walks":
        from gnnsample_lab.minibatch.walks.sampler import PinSAGESampler

        return PinSAGESampler(found, device=where, **AS_RELEASED)
    return NeighborSampler(found, list(fanouts), weighted=kind == "weighted", device=where)


def batches(
    session: Session, name: str, count: int, kind: str = "k-hop", fanouts: Sequence[int] = FANOUTS,
    size: int = BATCH,
) -> list[Any]:  # fmt: skip
    """At most ``count`` mini-batches of an epoch. The session keeps them; later calls sample the rest."""

    def make() -> tuple[list[Any], Iterator[Any]]:
        found = graph(session, name)
        epoch = sampler(found, kind, fanouts).epoch(
            train_seeds(found), batch_size(name, found, size), prefetch=4
        )
        return [], iter(epoch)

    taken, rest = session.kept(("batches", name, kind, tuple(fanouts), size), make)
    taken += itertools.islice(rest, max(0, count - len(taken)))
    return list(taken[:count])


def facts(session: Session, wanted: Sequence[str]) -> dict[str, Any]:
    """Names and sizes of graphs that were loaded, in this run or in the one that it resumes."""
    found = {}
    for name in wanted:
        loaded = session._kept.get(("graph", name, False)) or session._kept.get(("graph", name, True))
        if loaded is None and session.pieces is not None:
            loaded = graph(session, name)
        if loaded is not None:
            found[name] = graph_facts(loaded)
    return found


def median_epoch(result: Any) -> Any:
    """A training run with no epoch but the median one, of an even number the slower of the two in the middle.

    The first epoch, which warms up, does not count.
    """
    timed = sorted(result.epochs[1:] or result.epochs, key=lambda epoch: epoch.total_us)
    return replace(result, epochs=[timed[len(timed) // 2]])


def epoch_seconds(result: Any) -> dict[str, Any]:
    """``epoch_s`` of a training run's :func:`median_epoch`, ``p10_s`` and ``p90_s``, and of how many ``epochs``.

    A single epoch has no spread: both are None then.
    """
    times = [epoch.total_us / 1e6 for epoch in result.epochs[1:] or result.epochs]
    low, high = np.percentile(times, [10, 90]).tolist() if len(times) > 1 else (None, None)
    return {
        "epoch_s": median_epoch(result).epochs[0].total_us / 1e6, "p10_s": low, "p90_s": high, "epochs": len(times),
    }  # fmt: skip


def work_per_batch(epoch: Any, tasks: int) -> dict[str, int]:
    """Rows extracted and neighbours picked a mini-batch: what two systems must share before their times compare.

    Args:
        epoch: an :class:`~gnnsample_lab.pipeline.records.EpochRecord`.
        tasks: mini-batches of all its ranks together.
    """
    return {"rows_per_batch": round(epoch.rows / tasks), "picks_per_batch": round(epoch.num_edges / tasks)}
