"""The feature side of a system: host table, hotness, cache, Match, and how much memory is left for them."""

from __future__ import annotations

import contextlib
import copy
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.checks import is_cuda_array
from gnnsample_lab.compute.fused.sampler import FusedSampler
from gnnsample_lab.device.arrays import is_memory_mapped
from gnnsample_lab.device.capturing import wait_for_device
from gnnsample_lab.device.host import free_host_bytes
from gnnsample_lab.distributed.features.placement import check_positions_fit, rows_beside_positions
from gnnsample_lab.features.caching.cache import FeatureCache
from gnnsample_lab.features.caching.sizing import memory_left_by, rows_in, rows_of_ratio
from gnnsample_lab.graph.cache import is_written
from gnnsample_lab.pipeline.batches import to_gpu
from gnnsample_lab.pipeline.features import (
    CachedSource,
    FeatureSource,
    FusedSource,
    MatchedSource,
    SharedSource,
)
from gnnsample_lab.pipeline.memory import NOTHING, Held, give_back, held, rounding, take_workspaces
from gnnsample_lab.pipeline.trainer import Trainer

from .budget import cache_beside, within_budget
from .table import System

CPU_RATIO = 0.25
"""Share of the vertices that a cache holds on a CPU, unless asked otherwise: there no device memory is left over."""
HOST_SHARE = 0.7
"""Share of the available host memory that a copy of a memory-mapped feature table may take."""
TRIAL_BATCHES = 2**31 + 2**30
"""First batch id of the trial step: apart from training and evaluation."""


@dataclass(frozen=True)
class Sizing:
    """How large a cache is to be; with neither, what a trial step leaves free (of the budget, where there is one).

    ``others``: device memory that was held before the run, which the budget is not of. ``workers``: samplers, and
    loaders, of the overlapped executor, each of which holds mini-batches beside the cache. ``batches``: of an epoch, of
    which no executor holds more; None where nobody knows. ``pipelined``: whether a factored trainer extracts the next
    mini-batch while it trains.
    """

    ratio: float | None = None
    capacity_bytes: int | None = None
    budget_bytes: int | None = None
    others: Held = field(default=NOTHING, compare=False)
    workers: int = field(default=1, compare=False)
    batches: int | None = field(default=None, compare=False)
    pipelined: bool = field(default=True, compare=False)

    def __post_init__(self) -> None:
        if self.ratio is not None and self.capacity_bytes is not None:
            raise ValueError("give cache_ratio or capacity_bytes, not both")
        if self.ratio is not None and not 0 <= self.ratio <= 1:
            raise ValueError(f"cache_ratio must be between 0 and 1 (got {self.ratio!r})")

    @property
    def by_budget(self) -> bool:
        """Whether the budget alone says how large the cache is."""
        return self.ratio is None and self.capacity_bytes is None and self.budget_bytes is not None


@dataclass(frozen=True)
class Sources:
    """Where a system's features come from.

    Attributes:
        training: source of the training loop.
        plain: source that does not depend on the order of mini-batches, for evaluation.
        ratio: share of the vertices whose rows the device holds.
        matched: whether rows of the mini-batch before are reused.
        transfer: how missing rows come, as resolved.
        notes: what differs from the table of systems.
        working: bytes of CuPy's pool that mini-batches took in the trial by which the cache was sized; 0 without one.
    """

    training: FeatureSource
    plain: FeatureSource
    ratio: float
    matched: bool
    transfer: str
    notes: tuple[str, ...] = ()
    working: int = 0


_tables: weakref.WeakKeyDictionary[Any, np.ndarray] = weakref.WeakKeyDictionary()


def host_features(graph: Any) -> np.ndarray:
    """The features in host memory, where every system begins; kept as long as the graph is.

    A memory-mapped table is read into memory where it fits: otherwise each missing row would come from the disk, or the
    system's cache of it.
    """
    feat = graph.feat
    if hasattr(feat, "detach"):
        feat = feat.detach().cpu().numpy()
    on_gpu = is_cuda_array(feat)
    if not on_gpu and not is_memory_mapped(feat):
        return np.asarray(feat)
    is_large = not on_gpu and feat.nbytes >= HOST_SHARE * free_host_bytes()
    if is_written(feat):  # and who wrote once may write again: nothing is kept
        return feat if is_large else np.array(feat)
    if graph not in _tables:
        if is_large:
            return feat
        _tables[graph] = feat.get() if on_gpu else np.array(feat)
    return _tables[graph]


def topology_bytes(graph: Any) -> int:
    """Bytes of what sampling needs of a graph."""
    weights = 0 if graph.edge_weight is None else int(graph.edge_weight.nbytes)
    return int(graph.indptr.nbytes) + int(graph.indices.nbytes) + weights


def sampled_bytes(sampler: Any) -> int:
    """Bytes of topology on the device that samples."""
    known = getattr(sampler, "topology_bytes", None)
    return topology_bytes(sampler.graph) if known is None else int(known)


def no_cache_note(system: System) -> str:
    """The note of a run that was given the size of a cache which its system does not have."""
    return f"{system.name!r} has no cache: its size was not used"


NO_BUDGET_NOTE = "on the CPU budget_gb is held against the topology alone: there is no cache to size"


def budget_note(ratio: float) -> str:
    """The note of a run on a CPU whose cache has the share ``ratio`` of the vertices by its budget."""
    return (
        f"on the CPU budget_gb sizes the cache: {ratio:.0%} of the vertices fit beside the topology; "
        "what training needs is not counted"
    )


def feature_sources(
    system: System, graph: Any, sampler: Any, model: Any, batch_size: int, window: int, sizing: Sizing, seed: int,
    device: str, rank: Any = None, folder: Path | None = None,
) -> Sources:  # fmt: skip
    """Cache and Match of a system for one graph, sampler and model; ``folder``: of the parts, where there are any."""
    if system.placement == "partitioned":
        return _shared_source(
            system, graph, sampler, model, batch_size, window, sizing, seed, device, rank, folder
        )
    if isinstance(sampler, FusedSampler):
        told = []
        if sizing.ratio or sizing.capacity_bytes:
            told.append("features lie where the sampler reads them: the size of a cache was not used")
        if sampler.features.table is not graph.feat:
            told.append("rows of features are those that the sampler sums, whatever the graph has")
        fused = FusedSource(sampler)
        return Sources(fused, fused, sampler.features.ratio, False, sampler.features.transfer, tuple(told))
    table = host_features(graph)
    from .parts import ranked

    notes, working = [], 0
    transfer = system.transfer
    if transfer != "auto" and is_memory_mapped(table):
        transfer = "auto"  # too large for memory: whatever the system would do, the rows come from the disk
        notes.append("features are read from disk: they do not fit host memory")
    if system.cache is None:
        if sizing.ratio or sizing.capacity_bytes:
            notes.append(no_cache_note(system))
        if device == "cpu" and sizing.budget_bytes is not None:
            notes.append(NO_BUDGET_NOTE)
        cache = FeatureCache(table, ratio=0.0, device=device, transfer=transfer)
    else:
        size = batch_size if rank is None else -(-batch_size // rank.world_size)
        sized, working = _sized(system, table, sampler, model, graph, size, window, sizing, device)
        ratio = sized if isinstance(sized, float) else sized / max(1, len(table))
        hot = None
        if 0 < rows_of_ratio(ratio, len(table)) < len(table):  # else there is nothing to choose
            hot = ranked(system.cache, graph, sampler, rank, folder, batch_size, seed)
            if device == "cuda":
                give_back()  # what ranking has taken
        cache = FeatureCache(table, hot, ratio=ratio, device=device, transfer=transfer)
        if sizing.budget_bytes is not None:
            within_budget("the topology and the cache", _beside(cache, sampler, device), sizing.budget_bytes)
        if device == "cpu" and sizing.by_budget:
            notes.append(budget_note(cache.ratio))
        if sizing == Sizing() and device == "cpu":
            notes.append(
                f"on the CPU the cache holds {CPU_RATIO:.0%} of the vertices: no device memory is left over"
            )
    matched = system.match == "always" or (system.match == "where rows are missing" and not cache.all_cached)
    plain = CachedSource(cache, system.cache is not None)
    training: FeatureSource = plain
    if matched:
        from gnnsample_lab.features.reuse.matched import MatchedFeatures

        training = MatchedSource(MatchedFeatures(cache), system.cache is not None)
    return Sources(training, plain, cache.ratio, matched, cache.transfer, tuple(notes), working)


def _beside(cache: Any, sampler: Any, device: str) -> int:
    """Bytes of a cache and of the topology that lies beside it."""
    return int(cache.nbytes) + (sampled_bytes(sampler) if sampler.device == device else 0)


def _sized(
    system: System, table: np.ndarray, sampler: Any, model: Any, graph: Any, batch_size: int, window: int,
    sizing: Sizing, device: str, listed: int = 0,
) -> tuple[int | float, int]:  # fmt: skip
    """The size of the cache: a share of the vertices (float), or rows (int); and :attr:`Sources.working`.

    ``listed``: vertices whose positions a cache of all ranks keeps on this one, also where it has room for all rows.
    """
    if sizing.ratio is not None:
        return float(sizing.ratio), 0
    row_bytes = table.shape[1] * table.itemsize
    if sizing.capacity_bytes is not None:
        check_positions_fit("cache_gb or capacity_bytes", sizing.capacity_bytes, listed)
        return _rows_beside(sizing.capacity_bytes, listed, len(table), row_bytes), 0
    if device == "cpu":
        if sizing.budget_bytes is None:
            return CPU_RATIO, 0
        left = sizing.budget_bytes - sampled_bytes(sampler)
        return _rows_beside(left, listed, len(table), row_bytes), 0
    trial = _trial(system, table, sampler, model, graph, batch_size, window, sizing)
    with rounding() if sizing.budget_bytes is not None else contextlib.nullcontext():
        left = memory_left_by(trial, device)
        used = held(device).less(sizing.others)  # what a budget is of: the card may hold other things
    working = max(0, used.cupy - (sampled_bytes(sampler) if sampler.device == device else 0))
    if sizing.budget_bytes is not None:
        within_budget(
            f"a training step (graph, samples, activations: {used})", used.total, sizing.budget_bytes
        )
        left = min(left, cache_beside(sizing.budget_bytes, used, working))
    return _rows_beside(left, listed, len(table), row_bytes), working


def _rows_beside(left: int, listed: int, num_nodes: int, row_bytes: int) -> int:
    """Rows that fit beside the positions of ``listed`` vertices, or beside a look-up table where that is 0."""
    if listed:
        return rows_beside_positions(left, listed, num_nodes, row_bytes)
    return rows_in(left, num_nodes, row_bytes)


def _trial(
    system: System, table: np.ndarray, sampler: Any, model: Any, graph: Any, batch_size: int, window: int,
    sizing: Sizing,
) -> Callable[[], None]:  # fmt: skip
    """One training step with as many mini-batches in memory as the executor keeps; on a copy of the model."""

    def trial() -> None:
        import torch

        take_workspaces()
        transfer = "auto" if is_memory_mapped(table) else "staged"
        plain = CachedSource(FeatureCache(table, ratio=0.0, device="cuda", transfer=transfer), False)
        with torch.random.fork_rng(devices=[torch.cuda.current_device()]):
            trainer = Trainer(
                graph, sampler, plain, copy.deepcopy(model), batch_size=batch_size, device="cuda",
                executor=system.executor, captured=system.captured,
            )  # fmt: skip
            seeds = trainer.seeds[:batch_size]
            waiting, extracted = _in_memory(system, trainer.ahead, window, sizing)
            keep: list[Any] = []
            on_host = sampler.device == "cpu"
            if on_host:  # one will do: what counts is its copies on the device
                sampled = sampler.sample_many([seeds], TRIAL_BATCHES)[0]
                keep = [to_gpu(sampled) for _ in range(waiting)]
            while len(keep) < waiting:
                group = [seeds] * min(trainer.ahead, waiting - len(keep))
                keep += sampler.sample_many(group, TRIAL_BATCHES + len(keep))
            batch = keep[0]
            rows = [plain.extract(batch)[0] for _ in range(extracted)]
            trainer.model.train()
            for _ in range(trainer.warm_up_steps):
                trainer.step(batch, rows[0])
            wait_for_device()

    return trial


def _in_memory(system: System, ahead: int, window: int, sizing: Sizing) -> tuple[int, int]:
    """Mini-batches that an executor keeps, and for how many of them it has rows.

    Without a budget rows are of one mini-batch more: in CuPy's usual pool small arrays come to lie where rows were, and
    the next ones need another block. Under a budget large arrays have pools of their own.
    """
    waiting = window if system.reorder is not None and system.match != "never" else ahead
    one_by_one = waiting + 1, 1  # the next one is sampled while its predecessor is held
    waiting, rows = {
        "serial": one_by_one,
        "streams": (2 * waiting, 3),  # the next window is sampled while this one trains
        # Two queues of two, one at each worker.
        "overlapped": (waiting + 4 + 2 * sizing.workers, 4 + sizing.workers),
        # One ready, one that is loaded, one that trains, and its predecessor.
        "factored": (waiting + 3, 4) if sizing.pipelined else one_by_one,
    }.get(system.executor, (waiting, 3))
    most = waiting if sizing.batches is None else max(1, min(waiting, sizing.batches))
    return most, min(rows, most) + (sizing.budget_bytes is None)


def _shared_source(
    system: System, graph: Any, sampler: Any, model: Any, batch_size: int, window: int, sizing: Sizing, seed: int,
    device: str, rank: Any, folder: Path | None,
) -> Sources:  # fmt: skip
    """One cache of all ranks; all of them come here together."""
    from .parts import positions_listed, ranked, shared_cache

    assert system.cache is not None and folder is not None
    n, notes, hot = graph.num_nodes, [], None
    table = host_features(graph) if is_cuda_array(graph.feat) else np.asanyarray(graph.feat)
    slice_size = -(-batch_size // rank.world_size)
    listed = positions_listed(folder, system, rank)
    sized, working = _sized(system, table, sampler, model, graph, slice_size, window, sizing, device, listed)
    rows = smallest(rank, rows_of_ratio(sized, n) if isinstance(sized, float) else sized)
    if 0 < rows < n:
        hot = ranked(system.cache, graph, sampler, rank, folder, batch_size, seed)
    cache = shared_cache(folder, system, hot, rows, n, rank)
    if sizing.budget_bytes is not None:
        try:
            within_budget("the topology and the cache", _beside(cache, sampler, device), sizing.budget_bytes)
        except MemoryError:
            if rank.world_size == 1:
                cache.close()
            raise
    if device == "cpu" and sizing.by_budget:
        notes.append(budget_note(cache.ratio))
    if sizing == Sizing() and device == "cpu":
        notes.append(
            f"on the CPU each rank caches up to {CPU_RATIO:.0%} of the vertices: no device memory is left over"
        )
    source = SharedSource(cache)
    return Sources(
        source,
        source,
        1 - len(cache.placement.cold) / max(1, n),
        False,
        cache.transfer,
        tuple(notes),
        working,
    )


def smallest(rank: Any, value: int) -> int:
    """The smallest of all ranks' values; all of them call it together."""
    if rank is None or rank.world_size == 1:
        return value
    import torch
    import torch.distributed as dist

    found = torch.tensor([value], dtype=torch.int64, device=rank.device)
    dist.all_reduce(found, dist.ReduceOp.MIN, group=rank.group)
    return int(found)
