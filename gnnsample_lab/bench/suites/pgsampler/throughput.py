"""Section V-B: how much more the queue asks of multiprocessors and memory than DGL's kernels, by Nsight Compute.

``python -m gnnsample_lab.bench.suites.pgsampler.throughput FILE.npz`` is what ``ncu`` runs: for each setting one
mini-batch by ``block-bsp``, a draw kernel a hop with DGL's 128 threads, and the same by the queue as published and by
``persistent``, one kernel each; all of them in each of :data:`PASSES`.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.bench import profiler, timing
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import PUBLISHED_QUEUE, Unavailable
from gnnsample_lab.device.arrays import to_host

from .kernels import PICK
from .papers import AVERAGES
from .utilisation import METRICS

QUEUES = {PUBLISHED_QUEUE: "persistent", "persistent": "serve_teams"}
"""Each form of the queue and its kernel."""
DRAWS = "draw_blocks"
KERNELS = (DRAWS, *QUEUES.values())
TIME = "gpu__time_duration.sum"
SETTINGS: tuple[tuple[int, tuple[int, ...]], ...] = tuple(
    (batch, (fanout,) * hops) for hops in (3, 2) for batch, fanout in ((2048, 10), (10240, 10), (10240, 20))
)
"""The corners of figure 8's settings."""
PASSES = 5
"""Passes under the profiler, after one that warms up."""


def throughput(session: Session) -> dict[str, Any]:
    """The suite's function."""
    names = session.graphs(*(("products-like", "flickr-like") if session.quick else AVERAGES))
    settings = SETTINGS[:2] if session.quick else SETTINGS
    verification = session.verify(names, ("block-bsp", *QUEUES), [PICK])
    rows: list[dict[str, Any]] = []
    for name in names:
        rows += session.piece((name,), functools.partial(_profiled, session, name, settings))
    return {
        "settings": {
            "pick": PICK, "threads": "128 a block for the draws of block-bsp, as DGL's kernel; defaults for the queues",
            "compute_percent, memory_percent": "throughput of multiprocessors and memory, share of the peak, by ncu; "
            f"of several draws the mean weighted by time; medians of {PASSES} passes, as kernel_us is",
            "gain, published_gain": "of persistent, ours, and of the queue as published over block-bsp",
        },
        "verification": verification, "graphs": session.facts(names), "rows": rows,
    }  # fmt: skip


def _profiled(
    session: Session, name: str, settings: Sequence[tuple[int, tuple[int, ...]]]
) -> list[dict[str, Any]]:
    """Rows of one graph, of one child under ncu."""
    graph = session.graph(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.npz"
        task: dict[str, Any] = {"indptr": to_host(graph.indptr), "indices": to_host(graph.indices)}
        for i, (batch, fanouts) in enumerate(settings):
            task[f"seeds{i}"] = to_host(session.batches(name, batch, 1)[0])
            task[f"fanouts{i}"] = np.array(fanouts)
        np.savez(path, **task)
        module = __spec__.name if __spec__ else __name__
        text, why = profiler.run(module, [path], (*METRICS, TIME), KERNELS)
    if why:
        raise Unavailable(f"throughput of kernels is measured by ncu: {why}")
    launched = profiler.launches(text, {**METRICS, TIME: "us"}, KERNELS)
    found = by_setting(launched, [len(f) for _, f in settings])
    rows: list[dict[str, Any]] = []
    for (batch, fanout), one in zip(settings, found, strict=True):
        row = {"graph": name, "batch_size": batch, "fanout": fanout[0], "hops": len(fanout), **one}
        rows.append(row)
        session.say(
            f"{name} {batch} x {list(fanout)}: compute {row['gain']['compute_percent']:.2f} x, "
            f"memory {row['gain']['memory_percent']:.2f} x; as published "
            f"{row['published_gain']['compute_percent']:.2f} and {row['published_gain']['memory_percent']:.2f} x"
        )
    return rows


def by_setting(
    found: Sequence[dict[str, Any]], hops: Sequence[int], passes: int = PASSES
) -> list[dict[str, Any]]:
    """For each setting the shares of the peak of all three, their ``spread``, and the queues' gains, of the medians.

    Args:
        found: a launch each, in the child's order, with ``kernel``, ``us`` (here in ncu's nanoseconds) and the shares.
        hops: of each setting: as many draws, then one kernel of each queue.
        passes: in which there is all of this.

    Raises:
        Unavailable: launches are missing.
    """
    wanted = [kernel for count in hops for kernel in (*(DRAWS,) * count, *QUEUES.values())]
    if [launch["kernel"] for launch in found] != wanted * passes:
        raise Unavailable(f"ncu saw other launches than were made: {len(found)} of {len(wanted) * passes}")
    each = [_of_pass(found[i * len(wanted) :], hops) for i in range(passes)]
    return [_medians(of_setting) for of_setting in zip(*each, strict=True)]


def _of_pass(found: Sequence[dict[str, Any]], hops: Sequence[int]) -> list[dict[str, Any]]:
    """Of the pass that ``found`` begins with, for each setting the time and the shares of all three."""
    rows, at = [], 0
    for count in hops:
        queues = found[at + count : at + count + len(QUEUES)]
        parts = {"block-bsp": found[at : at + count]} | {
            queue: [launch] for queue, launch in zip(QUEUES, queues)
        }
        at += count + len(QUEUES)
        row: dict[str, Any] = {"kernel_us": {}, **{share: {} for share in METRICS.values()}}
        for strategy, launched in parts.items():
            times = [launch["us"] for launch in launched]
            row["kernel_us"][strategy] = sum(times) / 1e3
            for share in METRICS.values():
                row[share][strategy] = float(
                    np.average([launch[share] for launch in launched], weights=times)
                )
        rows.append(row)
    return rows


def _medians(of_passes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One setting's row: of all its passes."""
    row: dict[str, Any] = {field: {} for field in of_passes[0]} | {"spread": {}}
    for field, strategies in of_passes[0].items():
        unit = field.rpartition("_")[2]
        for strategy in strategies:
            found = timing.spread([one[field][strategy] for one in of_passes], unit)
            row[field][strategy] = found[unit]
            row["spread"][f"{field}.{strategy}"] = timing.around(found)
    row["gain"], row["published_gain"] = (
        {share: row[share][queue] / row[share]["block-bsp"] for share in METRICS.values()}
        for queue in ("persistent", PUBLISHED_QUEUE)
    )
    return row


def main(path: str) -> None:
    """Every setting once by each strategy to warm up, then :data:`PASSES` times under the profiler."""
    import cupy

    from gnnsample_lab.graph.graph import Graph
    from gnnsample_lab.minibatch.gpu.run import GpuEngine
    from gnnsample_lab.minibatch.sampler import NeighborSampler
    from gnnsample_lab.sampling.neighbors.launch import Knobs

    with np.load(path) as stored:
        count = sum(name.startswith("seeds") for name in stored)
        graph = Graph(cupy.asarray(stored["indptr"]), cupy.asarray(stored["indices"]), validate=False)
        seeds = [cupy.asarray(stored[f"seeds{i}"]) for i in range(count)]
        fanouts = [stored[f"fanouts{i}"].tolist() for i in range(count)]
    samplers = []
    for each in fanouts:
        three = []
        for strategy, knobs in (
            ("block-bsp", Knobs(block_threads=128)), ("persistent", Knobs(queue_teams=False)), ("persistent", Knobs()),
        ):  # fmt: skip
            sampler = NeighborSampler(graph, each, strategy=strategy, pick=PICK, device="cuda")
            sampler._engine = GpuEngine(
                sampler.graph, sampler.spec, None, strategy, "exact", 5, False, None, None, knobs
            )
            three.append(sampler)
        samplers.append(three)
    for number in range(1 + PASSES):
        cupy.cuda.runtime.deviceSynchronize()
        if number == 1:
            cupy.cuda.runtime.profilerStart()
        for three, some in zip(samplers, seeds, strict=True):
            for sampler in three:
                sampler.sample(some, 0)
                cupy.cuda.runtime.deviceSynchronize()
    cupy.cuda.runtime.profilerStop()


if __name__ == "__main__":
    main(sys.argv[1])
