"""Equality of all strategies and table kinds with the CPU twin, and the record of sample hashes."""

from __future__ import annotations

import functools
import multiprocessing
import signal
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from gnnsample_lab.device import kernels, runtime
from gnnsample_lab.minibatch.gpu.run import GpuEngine
from gnnsample_lab.minibatch.sampler import NeighborSampler
from gnnsample_lab.sampling.neighbors.launch import Knobs
from gnnsample_lab.sampling.neighbors.plan import TABLES
from gnnsample_lab.sampling.neighbors.strategies import QUEUE_STRATEGIES, STRATEGIES

from .configurations import Configuration, configurations, test_graph

GPU_STRATEGIES = tuple(s for s in STRATEGIES if s != "auto")


@functools.cache
def _on_gpu(name: str) -> Any:
    return test_graph(name).to("cuda")


def gpu_sampler(
    config: Configuration, strategy: str, table: str | None = None, knobs: Knobs | None = None
) -> Any:
    """A sampler for ``config`` with a forced table kind or launch knobs."""
    sampler = NeighborSampler(
        _on_gpu(config.graph), strategy=strategy, device="cuda", **config.sampler_options()
    )
    if table is not None or knobs is not None:
        sampler._engine = GpuEngine(
            sampler.graph, sampler.spec, sampler._weights, strategy, "exact", 5, False, None, table, knobs
        )
    return sampler


def strategies_for(config: Configuration) -> list[str]:
    """The strategies that accept the configuration's ``expand``."""
    new = dict(config.options)["expand"] == "new"
    return [s for s in GPU_STRATEGIES if not (new and s in QUEUE_STRATEGIES)]


def cpu_hash(config: Configuration) -> str:
    """SHA-256 of the canonical sample as the CPU twin draws it."""
    sampler = NeighborSampler(test_graph(config.graph), device="cpu", **config.sampler_options())
    return sampler.sample(config.seeds(), config.batch_id).canonical().sha256()


def gpu_hash(
    config: Configuration, strategy: str, table: str | None = None, knobs: Knobs | None = None
) -> str:
    """SHA-256 of the canonical sample as ``strategy`` draws it on the GPU."""
    sampler = gpu_sampler(config, strategy, table, knobs)
    return sampler.sample(config.seeds(), config.batch_id).canonical().sha256()


def _compile(variant: tuple[str, tuple[tuple[str, str], ...], str]) -> None:
    path, macros, name = variant
    kernels.load_module(path, dict(macros)).get_function(name).kernel  # noqa: B018


_ANY_KERNEL = {
    "sampling/neighbors/hops/hop.cu": "hop",
    "sampling/neighbors/hops/grid_barrier.cu": "grid_barrier",
    "sampling/neighbors/hops/per_hop.cu": "draw_blocks",
    "sampling/neighbors/queue/block.cu": "persistent",
    "sampling/neighbors/queue/tile.cu": "persistent_tile",
    "minibatch/gpu/finish.cu": "emit_one",
    "minibatch/id_map/insert_count_compact.cu": "insert",
}


def warm_up(workers: int, tables: Iterable[int] = (0, 1, 2), traced: bool = False) -> int:
    """Compile the sampling kernels in parallel processes into CuPy's disk cache; returns how many there were."""
    jobs = set()
    for variant in kernels.all_variants():
        macros = dict(variant.macros)
        path = variant.path.relative_to(kernels.PACKAGE_ROOT).as_posix()
        name = _ANY_KERNEL.get(path)
        if name is None or macros.get("ID_T") == "long" or int(macros.get("TABLE_KIND", 0)) not in tables:
            continue
        if macros.get("TRACE") == "1" and not traced:
            continue
        jobs.add((path, variant.macros, name))
        wide = tuple(pair for pair in variant.macros if pair[0] != "KMAX")
        if variant.path.name != "finish.cu":
            jobs.add((path, wide, name))
    with worker_pool(workers) as pool:
        list(pool.map(_compile, sorted(jobs), chunksize=4))
    return len(jobs)


def worker_pool(workers: int) -> ProcessPoolExecutor:
    """Spawned processes that leave Ctrl-C to this one: each of them would print a traceback."""
    context = multiprocessing.get_context("spawn")
    ignored = (signal.SIGINT, signal.SIG_IGN)
    return ProcessPoolExecutor(workers, context, initializer=signal.signal, initargs=ignored)


def verify_all(limit: int | None = None) -> dict[str, Any]:
    """Compare every configuration under every strategy with the CPU twin.

    Returns:
        ``hashes`` (configuration -> SHA-256 of the GPU sample), ``checked`` (samples compared) and ``failures``.
    """
    hashes: dict[str, str] = {}
    failures: list[str] = []
    checked = 0
    for i, config in enumerate(configurations()[:limit]):
        expected = cpu_hash(config)
        for strategy in strategies_for(config):
            per_hop = strategy in ("block-bsp", "edge-bsp", "turbo-bsp")
            # Every strategy with the table that it would choose, and the three kinds in rotation.
            for table in {None, None if per_hop else TABLES[i % 3]}:
                checked += 1
                try:
                    found = gpu_hash(config, strategy, table)
                except Exception as error:
                    found = f"{type(error).__name__}: {error}"
                if found != expected:
                    failures.append(f"{config.key} {strategy} {table}: {found[:300]}")
                else:
                    hashes[config.key] = found
    return {"hashes": hashes, "checked": checked, "failures": failures, "device": runtime.device_name()}
