"""One way to sample on ranks: verified against the whole graph's sample, timed on all ranks at once, its bytes counted.

The functions run on ranks. A task is a dictionary: ``folder`` of parts, ``system``, ``fanouts``, ``weighted``,
``replace``, ``seeds`` (``[world][batches]``), ``expected``, the checksum of each rank's first mini-batch, and
``seconds`` for all passes. CPU systems take ``whole``, a folder of the graph in one part, and ``dgl-cpu``
``expected_reservoir``, the checksums by that draw.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gnnsample_lab.device.host import usable_cores
from gnnsample_lab.minibatch.sampler import NeighborSampler

from . import crew
from .ladder import checksum

SYSTEMS: dict[str, str] = {
    "pyg-cpu": "CPU, Floyd's draw, the host's cores divided among as many samplers as are quickest, up to 32",
    "dgl-cpu": "CPU, the quicker of Floyd's draw and the reservoir (O(degree)), where DGL rejects duplicates in long "
    "lists (O(fanout)) and takes a reservoir of short ones; cores as of pyg-cpu",
    "quiver": "uva, results in memory of cudaMalloc and cudaFree, as DSP's section 7.2 found",
    "dgl-uva": "uva: the topology in pinned host memory, read by the kernel; results from a memory pool",
    "dsp": "csp: exact sizes, synchronous stages",
}
"""The systems of DSP's table 6, as they are made here. Other names are methods of ``lab.distributed.methods()``."""
_METHOD = {"quiver": "uva", "dgl-uva": "uva", "dsp": "csp"}
_READS = ("uva", "direct", "direct-cached")
"""Methods that read memory and take seeds from the GPU."""
CPU_SYSTEMS = ("pyg-cpu", "dgl-cpu")
BY_HOST_LINK = ("quiver", "dgl-uva")
"""Those whose kernels read the topology in host memory."""


def expected(graph: Any, task: dict[str, Any], device: str, pick: str = "floyd") -> list[list[int]]:
    """Checksums of every rank's first mini-batch, drawn from the whole graph; in the parent."""
    sampler = NeighborSampler(
        graph,
        list(task["fanouts"]),
        pick=pick,
        weighted=task["weighted"],
        replace=task["replace"],
        device=device,
    )
    return [checksum(sampler.sample(given[0], 0), graph.indptr) for given in task["seeds"]]


def measured(rank: Any, task: dict[str, Any]) -> dict[str, Any]:
    """Check and time one system on one rank.

    Returns:
        ``times`` (10th percentile, median, 90th, us of a mini-batch), ``bytes`` that came to this rank, ``rows`` and
        ``edges`` of a mini-batch; or ``error`` where it draws another sample or does not run on such ranks, alike on
        all ranks.
    """
    if task["system"] in CPU_SYSTEMS:
        return _on_cpu(rank, task)
    from gnnsample_lab.distributed import Sampler

    method, given = _METHOD.get(task["system"], task["system"]), task["seeds"][rank.index]
    try:
        sampler = Sampler(
            task["folder"],
            task["fanouts"],
            method,
            rank=rank,
            weighted=task["weighted"],
            replace=task["replace"],
        )
    except RuntimeError as error:
        if "does not run on ranks" in str(error):  # on all alike, before any of them waits for another
            return {"error": str(error)}
        raise
    engine: Any = sampler.engine
    seeds = crew.on_device(rank, given) if method in _READS else given
    batch = engine.sample(seeds[0], 0)
    found = checksum(batch, None)
    good = crew.together(rank, int(found == task["expected"][rank.index]), least=True)
    if not good:
        sampler.close()
        return {"error": f"its sample differs from the whole graph's, nothing was timed: {found}"}
    del batch
    work = crew.mean_work(engine.sample(seeds[i], i) for i in range(len(seeds)))
    with _raw_memory(task["system"] == "quiver" and rank.device != "cpu"):
        times = crew.timed(rank, lambda i: engine.sample(seeds[i % len(seeds)], i), task["seconds"], 10)
    batch = sampler.sample(given[0], 0)
    if rank.device != "cpu" and hasattr(engine, "count"):
        engine.count(batch)
    traffic = sampler.traffic
    result = {
        "times": times,
        "bytes": traffic.volume,
        "by_kind": traffic.by_kind,
        "ideal": traffic.ideal,
        **work,
    }
    sampler.close()
    return result


@contextlib.contextmanager
def _raw_memory(used: bool) -> Iterator[None]:
    """Arrays of this thread come from cudaMalloc and go back by cudaFree, which waits for the GPU."""
    if not used:
        yield
        return
    import cupy

    with cupy.cuda.using_allocator(None):
        yield


def drawn(engine: Any, seeds: Any, batch_id: int) -> Any:
    """A mini-batch of an engine of one's own, as samplers call theirs."""
    from gnnsample_lab.device import runtime, streams

    with streams.call(), runtime.lock:
        return engine.sample_many([seeds], batch_id)[0]


def whole_graph(folder: str) -> Any:
    """The graph of a folder with one part, memory-mapped: ids of the part are the original ones."""
    from gnnsample_lab.distributed import open_part
    from gnnsample_lab.graph.graph import Graph

    part = open_part(folder, 0)
    return Graph(part.indptr, part.indices, edge_weight=part.edge_weight, validate=False)


_PICKS = {"floyd": "expected", "reservoir": "expected_reservoir"}
"""Draws of CPU systems, and where a task has the checksums by them."""


def _on_cpu(rank: Any, task: dict[str, Any]) -> dict[str, Any]:
    """The CPU twin on this rank's share of the cores; all ranks read one copy of the topology.

    Of several draws that which is quicker on the slowest rank, alike on all ranks: ``pick`` says which.
    """
    import numba

    graph, before = whole_graph(task["whole"]), numba.get_num_threads()
    threads = max(1, min(numba.config.NUMBA_NUM_THREADS, usable_cores() // rank.world_size))
    numba.set_num_threads(threads)
    found: dict[int, dict[str, Any]] = {}
    try:
        for pick in _PICKS if task["system"] == "dgl-cpu" else ("floyd",):
            one = _by_pick(rank, task, graph, pick)
            if "error" in one:
                return one
            found.setdefault(crew.together(rank, round(one["times"][1] * 1e3)), one)  # ns of the slowest rank
    finally:
        numba.set_num_threads(before)
    return {**found[min(found)], "bytes": 0, "by_kind": {}, "ideal": 0, "threads": threads}


def _by_pick(rank: Any, task: dict[str, Any], graph: Any, pick: str) -> dict[str, Any]:
    """Check and time one draw: ``times``, ``rows``, ``edges`` and ``pick``, or ``error``, alike on all ranks."""
    sampler = NeighborSampler(
        graph,
        list(task["fanouts"]),
        device="cpu",
        weighted=task["weighted"],
        replace=task["replace"],
        pick=pick,
    )
    given = task["seeds"][rank.index]
    good = checksum(sampler.sample(given[0], 0), graph.indptr) == task[_PICKS[pick]][rank.index]
    if not crew.together(rank, int(good), least=True):
        return {"error": f"its sample by {pick} differs from the whole graph's, nothing was timed"}
    work = crew.mean_work(sampler.sample(given[i], i) for i in range(len(given)))
    times = crew.timed(rank, lambda i: sampler.sample(given[i % len(given)], i), task["seconds"], 2)
    return {"times": times, **work, "pick": pick}


def run(pool: Any, task: dict[str, Any], world: int) -> tuple[dict[str, Any], str]:
    """The fields of one row, and what went wrong."""
    results, problem = crew.attempt(lambda: pool.run(measured, task, world=world))
    if problem:
        return {}, problem
    return {
        **crew.slowest(results), **crew.mean_over_ranks(results), **moved(results),
        **({"pick": results[0]["pick"]} if "pick" in results[0] else {}),
    }, ""  # fmt: skip


def moved(results: list[dict[str, Any]]) -> dict[str, float]:
    """``mb`` that came to all ranks together, and ``ideal_mb``."""
    return {
        "mb": sum(r["bytes"] for r in results) / 1e6, "ideal_mb": sum(r["ideal"] for r in results) / 1e6
    }  # fmt: skip


def layered(rank: Any, task: dict[str, Any]) -> dict[str, Any]:
    """Layer-wise sampling of whole mini-batches by all ranks together: ``times``, ``slots``, ``by`` (cuda or host), and
    of the first mini-batch ``bytes`` that came to this rank and the ``ideal``."""
    from gnnsample_lab.checks import is_cuda_array
    from gnnsample_lab.distributed import LayerSampler

    every = task["batches"]
    size = len(every[0]) + 2 * task["step_size"]

    def made(**options: Any) -> LayerSampler:
        return LayerSampler(
            task["folder"],
            size,
            task["step_size"],
            rank=rank,
            replace=False,
            method=task["method"],
            **options,
        )

    sampler = made()
    batch = sampler.sample(every[0], 0, "owner")
    slots = [(_host(layer.slots), _host(layer.vertices)) for layer in batch.layers]
    by = "cuda" if batch.layers and is_cuda_array(batch.layers[0].vertices) else "host"
    times = crew.timed(rank, lambda i: sampler.sample(every[i % len(every)], i, "owner"), task["seconds"], 2)
    sampler.close()
    counting = made(count_reads=True)  # another: on GPUs what counts takes its time
    counting.sample(every[0], 0, "owner")
    traffic = counting.traffic
    counting.close()
    return {"times": times, "slots": slots, "by": by, "bytes": traffic.volume, "ideal": traffic.ideal}


def walked(rank: Any, task: dict[str, Any]) -> dict[str, Any]:
    """Walks from the roots of whole mini-batches by all ranks together: ``times``, ``mine``, ``paths``, ``by``,
    ``bytes``, ``ideal``.

    ``paths`` are those of the first mini-batch from this rank's roots, which stand at ``mine``; for them walks are
    collected, which is not timed. ``bytes`` of that mini-batch came to this rank, walks that are collected apart.
    """
    import gnnsample_lab as lab
    from gnnsample_lab.checks import is_cuda_array

    app, every = lab.apps.DeepWalk(task["length"], weighted=False), task["roots"]

    def made(**options: Any) -> Any:
        return lab.distributed.Walker(task["folder"], app, rank=rank, method=task["method"], **options)

    walker = made()
    found = walker.walk(every[0], 0)
    by = "cuda" if is_cuda_array(found.vertices) else "host"
    mine, paths = _host(found.mine), _host(found.collect())
    times = crew.timed(rank, lambda i: walker.walk(every[i % len(every)], 0), task["seconds"], 2)
    walker.close()
    counting = made(count_reads=True)
    counting.walk(every[0], 0)
    traffic = counting.traffic
    counting.close()
    return {
        "times": times, "mine": mine, "paths": paths, "by": by, "bytes": traffic.volume, "ideal": traffic.ideal
    }  # fmt: skip


def _host(array: Any) -> np.ndarray:
    from gnnsample_lab.device.arrays import to_host

    return np.asarray(to_host(array))


def alone(work: Callable[[int], Any], count: int) -> dict[str, float]:
    """``us``, ``p10`` and ``p90`` of ``work(i)`` in this process, one after another, after a warm-up."""
    from gnnsample_lab.bench import timing

    work(0)
    times = [timing.pass_us(lambda i=i: work(i), 1) for i in range(count)]  # type: ignore[misc]
    p10, us, p90 = np.percentile(times, [10, 50, 90])
    return {"p10": float(p10), "us": float(us), "p90": float(p90)}
