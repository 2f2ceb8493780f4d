"""Do the strategies return the CPU twin's sample? A strategy that does not is not timed.

Before a suite times anything, a few configurations and one mini-batch of its own graph are compared; ``bench verify``
compares every configuration, strategy and table kind and records the hashes of the samples.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnsample_lab.device import runtime
from gnnsample_lab.files import read_json, reading
from gnnsample_lab.minibatch.gpu.run import GpuEngine
from gnnsample_lab.minibatch.sampler import NeighborSampler
from gnnsample_lab.resources import resource_path
from gnnsample_lab.sampling.neighbors.launch import Knobs
from gnnsample_lab.sampling.neighbors.plan import CTR_ROWS, TABLES
from gnnsample_lab.sampling.neighbors.strategies import QUEUE_STRATEGIES, STRATEGIES

from .configurations import Configuration, configurations, test_graph
from .suite import PUBLISHED_QUEUE, VerificationError

if TYPE_CHECKING:
    from .session import Session

HASHES = "sample_hashes.json"
GPU_STRATEGIES = tuple(s for s in STRATEGIES if s != "auto")


@functools.cache
def _on_gpu(name: str) -> Any:
    return test_graph(name).to("cuda")


def gpu_sampler(
    config: Configuration, strategy: str, table: str | None = None, knobs: Knobs | None = None
) -> Any:
    """A sampler for ``config`` with a forced table kind or launch knobs; ``strategy`` may be ``PUBLISHED_QUEUE``."""
    asked = _asked(strategy)
    sampler = NeighborSampler(_on_gpu(config.graph), device="cuda", **asked, **config.sampler_options())
    strategy = asked["strategy"]
    if table is not None or knobs is not None:
        if knobs is None and "queue" in asked:
            knobs = Knobs(queue_teams=False)
        sampler._engine = GpuEngine(
            sampler.graph, sampler.spec, sampler._weights, strategy, "exact", 5, False, None, table, knobs
        )
    return sampler


def _asked(strategy: str) -> dict[str, Any]:
    """The arguments of a sampler by which it has this strategy; of ``persistent`` suites time two forms."""
    if strategy == PUBLISHED_QUEUE:
        return {"strategy": "persistent", "queue": "blocks"}
    return {"strategy": strategy}


def strategies_for(config: Configuration) -> list[str]:
    """The strategies that accept the configuration's ``expand`` and its rule."""
    if config.for_blocks:
        return ["block-bsp"]
    new = dict(config.options)["expand"] == "new"
    return [s for s in GPU_STRATEGIES if not (new and s in QUEUE_STRATEGIES)]


def cpu_hash(config: Configuration) -> str:
    """SHA-256 of the canonical sample as the CPU twin draws it."""
    sampler = NeighborSampler(
        test_graph(config.graph), strategy=strategies_for(config)[0], device="cpu", **config.sampler_options()
    )
    return sampler.sample(config.seeds(), config.batch_id).canonical().sha256()


def gpu_hash(
    config: Configuration, strategy: str, table: str | None = None, knobs: Knobs | None = None
) -> str:
    """SHA-256 of the canonical sample as ``strategy`` draws it on the GPU."""
    sampler = gpu_sampler(config, strategy, table, knobs)
    return sampler.sample(config.seeds(), config.batch_id).canonical().sha256()


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
        wanted = strategies_for(config)
        for strategy in (*wanted, *([PUBLISHED_QUEUE] if "persistent" in wanted else [])):
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


def chosen_configurations(pick: str) -> list[Configuration]:
    """A few of the configurations of ``bench verify`` under ``pick``: every graph, kernels that suites time."""
    found = []
    for config in configurations():
        options = dict(config.options)
        small = tuple(options["fanouts"]) in ((10, 10, 10), (5, 3))
        if small and options.get("pick") == pick and options["expand"] == "frontier":
            found.append(config)
    return found


def _refuse(strategy: str, what: str, found: str, expected: str) -> None:
    raise VerificationError(
        f"strategy {strategy!r} is not timed: on {what} it returned sample {found[:16]}, the CPU twin {expected[:16]}"
    )


def verify_small(strategies: Sequence[str], pick: str) -> int:
    """Compare ``strategies`` with the CPU twin on :func:`chosen_configurations`; returns the samples compared.

    Raises:
        VerificationError: a sample differs.
    """
    checked = 0
    for config in chosen_configurations(pick):
        expected = cpu_hash(config)
        for strategy in strategies:
            found = gpu_hash(config, strategy)
            checked += 1
            if found != expected:
                _refuse(strategy, config.key, found, expected)
    return checked


def verify_on_graph(
    session: Session, name: str, strategies: Sequence[str], pick: str, batch_size: int, fanouts: Sequence[int]
) -> int:
    """Compare ``strategies`` with the CPU twin on one mini-batch of a benchmark graph.

    Raises:
        VerificationError: the sample differs.
    """
    (seeds,) = session.batches(name, batch_size, 1)
    expected = sample_hash(session.host_graph(name), fanouts, pick, seeds.get(), "auto", "cpu")
    for strategy in strategies:
        found = sample_hash(session.graph(name), fanouts, pick, seeds, strategy, "cuda")
        if found != expected:
            _refuse(strategy, f"{name}, {batch_size} seeds, fanouts {list(fanouts)}, {pick}", found, expected)
    return len(strategies)


def sample_hash(graph: Any, fanouts: Sequence[int], pick: str, seeds: Any, strategy: str, device: str) -> str:
    """SHA-256 of one canonical sample, batch id 0."""
    sampler = NeighborSampler(graph, list(fanouts), pick=pick, device=device, **_asked(strategy))
    return sampler.sample(seeds).canonical().sha256()


def check_rotation(rotation: Any, recorded: Sequence[Any], what: str) -> None:
    """Did the graphs that were just timed do the recorded work? Compares the rows of every hop of the last batch.

    ``recorded`` are the mini-batches that they sample.

    Raises:
        VerificationError: they did not, or a buffer overflowed.
    """
    counters = rotation.counters()
    if int(counters[0]):
        raise VerificationError(f"{what}: status {int(counters[0])} after the timed run")
    expected = [int(rows.size) for rows in recorded[-1].frontiers]
    if rotation.engine.launcher.strategy in QUEUE_STRATEGIES:
        rows = counters[CTR_ROWS : CTR_ROWS + len(expected)].tolist()
    else:
        rows = rotation.level_sizes()[: len(expected)]
    if rows != expected:
        raise VerificationError(
            f"{what}: the timed run expanded {rows} vertices, the recorded sample {expected}"
        )


def check_sample(batch: Any) -> None:
    """Does a sample without replacement obey its definition? Independent of the code that drew it.

    Every row has min(degree, fanout) picks at distinct positions of its own adjacency, neighbours are what the
    graph holds there, and each frontier is the distinct union of the last one and its picks.

    Raises:
        VerificationError: it does not.
    """
    graph, expected = batch.graph, np.sort(batch.seeds)
    for hop, (picks, fanout) in enumerate(zip(batch.picks, batch.spec.fanouts, strict=True)):
        start, end = graph.indptr[picks.frontier], graph.indptr[picks.frontier + 1]
        counts = end - start if fanout < 0 else np.minimum(end - start, fanout)
        row = np.repeat(np.arange(picks.frontier.size), picks.counts)
        inside = (picks.positions >= start[row]) & (picks.positions < end[row])
        holds = {
            "frontier": np.array_equal(np.sort(picks.frontier), expected),
            "counts": np.array_equal(picks.counts, counts),
            "positions": bool(inside.all()) and np.unique(picks.positions).size == picks.num_picks,
            "neighbors": np.array_equal(picks.neighbors, graph.indices[picks.positions]),
        }
        if not all(holds.values()):
            wrong = ", ".join(name for name, good in holds.items() if not good)
            raise VerificationError(
                f"hop {hop} of batch {batch.batch_id} has wrong {wrong}; nothing is timed"
            )
        expected = np.union1d(picks.frontier, picks.neighbors)


def recorded_hashes() -> dict[str, str]:
    """Configuration -> SHA-256 as a GPU run recorded them; empty when none is shipped."""
    try:
        path = resource_path(f"data/measured/{HASHES}")
    except FileNotFoundError:
        return {}
    with reading(path, "recorded hashes"):
        return dict(read_json(path)["hashes"])


def with_added(record: dict[str, Any], hashes: dict[str, str], device: str, date: str) -> dict[str, Any]:
    """The record of ``bench verify`` with the hashes of configurations that it lacks, as a GPU drew them since.

    Args:
        hashes: configuration -> SHA-256, each equal to the CPU twin's.
        device: which drew them. date: of that run.

    Raises:
        VerificationError: a hash is recorded already and differs, or is not the CPU twin's.
    """
    known = {config.key: config for config in configurations()}
    for key, found in hashes.items():
        if record["hashes"].get(key, found) != found or cpu_hash(known[key]) != found:
            raise VerificationError(f"{key}: {found[:16]} is not what was recorded, or not the CPU twin's")
    new = {key: found for key, found in hashes.items() if key not in record["hashes"]}
    every = {**record["hashes"], **new}
    checked = record["verification"]["samples_equal_to_cpu_twin"] + len(new)
    return {
        **record,
        "settings": {**record["settings"], "configurations": len(every)},
        "verification": {"samples_equal_to_cpu_twin": checked},
        "hashes": {key: every[key] for key in known if key in every},
        "added": [*record.get("added", []), {"configurations": len(new), "gpu": device, "date": date}],
    }


def check_recorded_hashes(configs: Iterable[Configuration]) -> int:
    """Recompute ``configs`` on the CPU and compare with what a GPU recorded; returns how many were recorded.

    Raises:
        VerificationError: one differs.
    """
    recorded = recorded_hashes()
    known = [config for config in configs if config.key in recorded]
    for config in known:
        found = cpu_hash(config)
        if found != recorded[config.key]:
            raise VerificationError(
                f"{config.key}: the CPU drew {found[:16]}, the recorded GPU {recorded[config.key][:16]}"
            )
    return len(known)
