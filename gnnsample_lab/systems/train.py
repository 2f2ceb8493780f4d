"""``lab.train``: a system of the table, put together and run on one graph."""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from gnnsample_lab.checks import (
    choice,
    flag,
    function,
    instance,
    num_bytes,
    optional,
    real,
    share,
    shown,
    whole,
)
from gnnsample_lab.checks import path as checked_path
from gnnsample_lab.checks import seed as checked_seed
from gnnsample_lab.compute.aggregation.ladder import kernel_name
from gnnsample_lab.compute.models import MODELS, make_model
from gnnsample_lab.device import runtime
from gnnsample_lab.device.arrays import is_memory_mapped
from gnnsample_lab.distributed.features.ranking import DEGREES
from gnnsample_lab.distributed.ranks.alone import Alone
from gnnsample_lab.distributed.ranks.rank import Rank
from gnnsample_lab.distributed.ranks.run import DEVICES, MAX_RANKS, Ranks
from gnnsample_lab.distributed.sampling.methods import METHODS
from gnnsample_lab.features.ranking.hotness import POLICIES
from gnnsample_lab.features.reuse.reorder import MAX_EXACT
from gnnsample_lab.files import scratch_folder
from gnnsample_lab.graph.checks import check_distinct
from gnnsample_lab.graph.graph import Graph, check_graph
from gnnsample_lab.pipeline.captured import is_captured
from gnnsample_lab.pipeline.checkpoint import check_place
from gnnsample_lab.pipeline.checkpoint import load as load_checkpoint
from gnnsample_lab.pipeline.executors import EXECUTORS, shared_stream
from gnnsample_lab.pipeline.factored.roles import Split
from gnnsample_lab.pipeline.factored.service import QueueService
from gnnsample_lab.pipeline.features import FusedSource
from gnnsample_lab.pipeline.memory import NOTHING, held_by_others, reset_pools
from gnnsample_lab.pipeline.records import EpochRecord, TrainResult
from gnnsample_lab.pipeline.trainer import Trainer
from gnnsample_lab.sampling.neighbors.spec import PICKS, checked_fanouts
from gnnsample_lab.sampling.walks.pinsage import AS_RELEASED

from . import generators, joined
from . import ranks as several
from .budget import bytes_of, cache_bytes, kept_to, label, within_budget
from .factored import train_factored, with_queue
from .features import Sizing, feature_sources, sampled_bytes
from .parts import (
    PartsSampler,
    balance_notes,
    check_count,
    check_ranks,
    checked_parts,
    checked_spill,
    coordinate,
    has_collectives,
    overlap_problem,
    saved_parts,
    spills,
)
from .resuming import dropout_note, labels_note, settings_of_run, statistics_note
from .table import System, find
from .trees import TreeSampler

_RANKED = tuple(name for name in POLICIES if name not in ("optimal", "visits"))
"""Policies that rank a cache: the other two need mini-batches or walks that were drawn before."""
CPU_NOTE = (
    "on the CPU: the CPU twins sample and mark, PyTorch's operators aggregate, "
    "and the stages run one after the other"
)
HANDOVERS = ("host", "peer")
QUEUE_CAPACITY = 2
"""Mini-batches that a queue of the overlapped executor holds (DSP, section 5)."""
RUN_S = 1e7
"""Longest run of several ranks, in seconds."""
COLLECTIVE_S = 1800.0
"""Longest wait of a rank for its peers. A rank that dies ends the run at once, one that is stopped within half a minute
(``heartbeat_s`` of ``Ranks``); this is for one that goes on and does not come."""


@dataclass(frozen=True)
class Prepared:
    """A system ready to train: ``trainer.epoch(i)`` runs it.

    Attributes:
        system: the row of the table.
        trainer: the training loop with sampler, features and model.
        setup_us: wall time of the preparation.
        cache_ratio: share of the vertices whose features the device holds.
        notes: where the run departs from the table.
        settings: the arguments.
    """

    system: System
    trainer: Trainer
    setup_us: float
    cache_ratio: float
    notes: tuple[str, ...]
    settings: dict[str, Any]

    def close(self) -> None:
        """Give back what other ranks may read; all ranks call it together, and then train no more."""
        samplers, sources = self.trainer.samplers, self.trainer.sources
        parts = [*samplers, *(getattr(source, "cache", None) for source in reversed(sources))]
        for part in {id(part): part for part in parts}.values():
            if hasattr(part, "close"):
                part.close()


def prepare(
    graph: Any,
    model: Any = "gcn",
    system: str | System = "lab",
    *,
    batch_size: int = 1024,
    fanouts: Sequence[int] = (15, 10, 5),
    hidden: int = 64,
    lr: float = 0.003,
    seed: int = 0,
    device: str = "auto",
    cache_ratio: float | None = None,
    capacity_bytes: int | None = None,
    reorder: str | None = None,
    window: int = 32,
    progress: bool = False,
    weighted: bool = False,
    sampler: Any = None,
    pick: str | None = None,
    kernel: str | None = None,
    executor: str | None = None,
    workers: int = 1,
    capacity: int | None = None,
    rank: Any = None,
    budget_gb: float | None = None,
    policy: str | None = None,
    parts: Any = None,
    coordinated: bool | None = None,
    captured: bool | None = None,
    cache_gb: float | None = None,
    topology_bytes: int | None = None,
    merged: int = 1,
    **model_options: Any,
) -> Prepared:
    """Sampler, cache, model and training loop of a system; see :func:`train` for the arguments.

    ``rank``: one of several that each run this and train together. A system with parts needs their folder as ``parts``.
    """
    import torch

    chosen, pick = with_policy(find(system), policy), optional(choice, "pick", pick, PICKS)
    topology_bytes = checked_spill(chosen, topology_bytes)
    choice("executor", executor, (None, *EXECUTORS))
    workers, capacity = whole("workers", workers, 1, 64), optional(whole, "capacity", capacity, 1, 2**31 - 1)
    merged = whole("merged", merged, 1, 64)
    check_graph(graph)
    device = runtime.resolve_device(device)
    _check_data(graph)
    batch_size, window = whole("batch_size", batch_size, 1, 2**31 - 1), whole("window", window, 1, 1024)
    hidden, seed, lr = whole("hidden", hidden, 1, 2**24), checked_seed(seed), real("lr", lr, 0)
    choice("reorder", reorder, (None, "none", "greedy", "two-opt", "exact"))
    if reorder == "exact" and window > MAX_EXACT:
        raise ValueError(f"window must be at most {MAX_EXACT} with reorder='exact' (got {window})")
    weighted, progress = flag("weighted", weighted), flag("progress", progress)
    if cache_ratio is not None:
        cache_ratio = share("cache_ratio", cache_ratio)
    if capacity_bytes is not None:
        capacity_bytes = num_bytes("capacity_bytes", capacity_bytes)
    capacity_bytes = cache_bytes(cache_gb, cache_ratio, capacity_bytes)
    if isinstance(model, str):
        choice("model", model, tuple(MODELS))
    else:
        instance("model", model, torch.nn.Module, f"a torch.nn.Module or one of {', '.join(MODELS)}")
    if kernel is not None:
        kernel = kernel_name(kernel)
    if sampler is not None and not (
        callable(getattr(sampler, "epoch", None)) and isinstance(getattr(sampler, "graph", None), Graph)
    ):
        raise TypeError(f"sampler must be a NeighborSampler or PinSAGESampler (got {shown(sampler)})")
    if sampler is not None and sampler.graph.num_nodes != graph.num_nodes:
        raise ValueError(
            f"sampler must be of a graph with the {graph.num_nodes} vertices that are trained on (got one of "
            f"{sampler.graph.num_nodes})"
        )
    others = NOTHING
    if device == "cuda":
        reset_pools()
        others = held_by_others(graph, device, captures=chosen.captured if captured is None else captured)
    begin = time.perf_counter()
    notes = [_cpu_note(executor or chosen.executor)] if device == "cpu" else []
    if sampler is not None and sampler.graph.num_edges != graph.num_edges:
        notes.append(
            f"sampler draws from {sampler.graph.num_edges:,} edges, and the graph has {graph.num_edges:,}: "
            "mini-batches are of the former"
        )
    name = model if isinstance(model, str) else type(model).__name__
    if chosen.has_parts and rank is None:
        rank = Alone(device)
    if sampler is None:
        sampler = make_sampler(
            graph, name, chosen, fanouts, device, seed, weighted, pick, batch_size=batch_size, rank=rank, folder=parts,
            topology_bytes=topology_bytes,
        )  # fmt: skip
    elif chosen.topology != "device":
        raise ValueError(f"sampler cannot be given: system {chosen.name!r} samples by {chosen.method!r}")
    elif weighted or pick:
        raise ValueError(
            "weighted and pick belong to the default sampler: set them on the sampler that is given"
        )
    if isinstance(model, str):
        kernel = kernel or (chosen.kernel if device == "cuda" else "auto")
    # Weights are drawn on the host: a parent of ranks, which only checks, leaves the GPUs' generators alone.
    with generators.weights(seed):
        model = built_model(model, graph, hidden, len(sampler.fanouts), kernel, model_options)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(
            f"model must have parameters that are trained (got a {type(model).__name__} without any)"
        )
    model = model.to(device)

    busy = workers if (executor or chosen.executor) == "overlapped" else 1
    if chosen.placement == "partitioned":
        busy *= 2 * merged - 1  # a loader holds merged rows and those of each mini-batch
    batches = -(-len(graph.splits["train"]) // batch_size)
    sizing = Sizing(cache_ratio, capacity_bytes, bytes_of(budget_gb), others, busy, batches)
    if sizing.budget_bytes is not None and sampler.device == device:
        more = " (topology_bytes bounds it: other lists lie in host memory)" if spills(chosen) else ""
        within_budget(f"the topology{more}", sampled_bytes(sampler), sizing.budget_bytes)
    captured = is_captured(captured, chosen.captured, name, kernel, device)
    working = replace(chosen, executor=executor or chosen.executor, captured=captured)
    try:
        sources = feature_sources(
            working, graph, sampler, model, batch_size, window, sizing, seed, device, rank, parts
        )
    except BaseException:
        if chosen.has_parts and rank.world_size == 1:
            sampler.close()
        raise
    notes += sources.notes
    order = chosen.reorder if sources.matched else None
    if reorder is not None:
        order = None if reorder == "none" else reorder
    given_coordinated = coordinated
    if coordinated is None:  # on GPUs there is no other way: see overlap_problem
        on_gpus = rank is not None and rank.backend == "nccl" and has_collectives(chosen)
        coordinated = chosen.coordinated or on_gpus
    trainer = Trainer(
        graph, sampler, sources.training, model, batch_size=batch_size, lr=lr, device=device,
        executor=executor or chosen.executor, reorder=order, window=window, plain_features=sources.plain,
        progress=progress, workers=workers, merged=merged, capacity=capacity or QUEUE_CAPACITY, rank=rank,
        captured=captured, parked=chosen.windows == "host",
    )  # fmt: skip
    in_turn = False
    if coordinated and trainer.rank is not None and trainer.executor == "overlapped":
        in_turn = coordinate(trainer.rank, trainer)
    if given_coordinated and trainer.executor == "overlapped" and not in_turn:
        notes.append("the trainer alone has collectives, or none: coordinated=True was not used")
    notes += _order_notes(chosen, trainer, order)
    if order is None and window != _DEFAULTS["window"].default:
        notes.append(f"mini-batches are not put in order: window={window} was not used")
    if workers > trainer.workers:
        notes.append("one loader: rows of the mini-batch before are reused, or mini-batches are reordered")
    if merged > trainer.merged == 1 and trainer.executor == "overlapped":
        notes.append("rows of each mini-batch come by themselves: a cache of all ranks alone merges them")
    if trainer.samples_in_order:
        notes.append(
            f"the {workers} samplers of a GPU sample one after the other: a call that waits for other ranks holds the "
            "library's lock"
        )
    if name in MODELS and name != "gat" and "heads" in model_options:
        notes.append(f"heads are of model='gat' alone: heads={model_options['heads']} was not used")
    if name == "pinsage" and chosen.name != "lab":
        notes.append(
            f"walks are drawn, counted and mapped by one sampler of this library, not in the way of {chosen.name!r}: "
            "pick and ID map are those of k-hop samples"
        )
    if chosen.trees:
        notes.append(
            "samples are trees, drawn with replacement: the seeds of the other systems, other samples"
        )
        # Where a sampler of one's own is given, the row of the table says nothing of how it groups.
        if isinstance(sampler, TreeSampler):
            notes.append(_index_note(sampler))
    settings = {
        "batch_size": batch_size, "fanouts": tuple(sampler.fanouts), "hidden": hidden, "lr": lr, "seed": seed,
        "reorder": order if trainer.order else None, "window": window, "match": sources.matched, "kernel": kernel,
        "executor": trainer.executor, "transfer": sources.transfer,
        "ranks": 1 if rank is None else rank.world_size, "workers": trainer.workers,
        # On one device the factored design stores an epoch.
        "capacity": None if trainer.executor == "factored" else trainer.capacity,
        "coordinated": in_turn, "captured": trainer.captured is not None, "budget_gb": budget_gb,
        "cache_gb": cache_gb, "topology_bytes": topology_bytes, "merged": trainer.merged,
    }  # fmt: skip
    trainer.others, trainer.working = others, sources.working
    notes += statistics_note(model, rank)
    setup_us = (time.perf_counter() - begin) * 1e6
    return Prepared(chosen, trainer, setup_us, sources.ratio, tuple(notes), settings)


def train(
    graph: Any,
    model: Any = "gcn",
    system: str | System = "lab",
    epochs: int = 1,
    batch_size: int = 1024,
    fanouts: Sequence[int] = (15, 10, 5),
    hidden: int = 64,
    lr: float = 0.003,
    seed: int = 0,
    device: str = "auto",
    cache_ratio: float | None = None,
    capacity_bytes: int | None = None,
    reorder: str | None = None,
    window: int = 32,
    evaluate: bool | str = True,
    progress: bool = True,
    weighted: bool = False,
    sampler: Any = None,
    executor: str | None = None,
    ranks: int | Ranks | Rank = 1,
    workers: int = 1,
    capacity: int | None = None,
    samplers: int | None = None,
    switching: bool | None = None,
    staleness: int | None = 0,
    pipelined: bool = True,
    budget_gb: float | None = None,
    policy: str | None = None,
    parts: Any = None,
    kernels: bool = False,
    coordinated: bool | None = None,
    captured: bool | None = None,
    handover: str = "host",
    swap: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_steps: int | None = None,
    resume: str | os.PathLike[str] | None = None,
    cache_gb: float | None = None,
    topology_bytes: int | None = None,
    merged: int = 1,
    on_progress: Callable[[TrainResult], None] | None = None,
    **options: Any,
) -> TrainResult:
    """Train a model by sampling, as one of ``lab.systems()`` does, on one device or on several ranks.

    For the same ``seed`` every system trains on the same seeds with the same batch ids from the same initial weights;
    with the same ``pick`` the samples are the same too. Loss curves then differ by floating-point noise only (and, for
    systems that reorder, by the order within a window). The executor decides only what overlaps.

    Several ranks take slices of every mini-batch, sample them from the whole graph, and add up their gradients: a step
    is that of one device, up to rounding. Dropout is the exception: each rank draws masks of its own, so that losses
    are not those of one device, and a note of the result says so.

    Args:
        graph: with ``feat``, ``label`` and ``splits["train"]``; the features may stay in host memory.
        model: "gcn", "sage", "gin", "gat", "pinsage", of ``float32`` whatever PyTorch's default type is, or a
            ``torch.nn.Module`` with ``model(blocks, x)`` and parameters that require gradients.
        system: a name of ``lab.systems()``, or a :class:`~gnnsample_lab.systems.table.System`.
        epochs: passes over the training vertices.
        batch_size: seeds a step.
        fanouts: neighbours a vertex and hop, ``fanouts[0]`` next to the seeds; as many layers.
        hidden: width of the hidden layers.
        lr: learning rate of Adam.
        seed: of samples, shuffles and initial weights. PyTorch's global generators are left as they were. Runs in
            several threads have the initial weights of their seeds all the same, but masks of dropout come from
            generators that they share, so that these are others at each run; the last run to end gives them back.
        device: "auto", "cpu" or "cuda".
        cache_ratio: share of the vertices to keep on the device, for systems with a cache. Default: what a trial
            step leaves of the GPU's memory; a quarter of the vertices on a CPU, where nothing is left over.
        capacity_bytes: size of the cache in bytes, instead of ``cache_ratio``. A cache in parts needs 4 bytes of it for
            each vertex of the graph, for the list of where its row lies; where ranks ask one another for places, as
            DSP's do, for each vertex of the largest part.
        reorder: method of ``lab.reorder``, "none", or None for what the system does.
        window: mini-batches that are reordered together.
        evaluate: accuracy after every epoch: True takes the split "valid", or "test" where that has no labels; or a
            name.
        progress: show progress bars.
        weighted: draw neighbours in proportion to ``graph.edge_weight``.
        sampler: a sampler of one's own, of these vertices; its seed and fanouts count then. It may draw from other
            edges than the graph's, as a pruned graph's; the result's notes say so where their number differs.
        executor: how stages overlap; None for what the system does. ``"serial"``; ``"thread"`` (one that prepares) and
            ``"streams"``, on a GPU; ``"overlapped"``: a worker a stage and queues between them (DSP, section 5), on a
            CPU too; ``"factored"``: ranks that sample and ranks that train (GNNLab, section 5), on one device first the
            one, then the other for a whole epoch.
        ranks: processes to start, each with a GPU where there are as many, else on CPUs; or warm
            ``lab.distributed.Ranks``, which keep their device; or, in a script that ``torchrun`` started on one host or
            several, the rank that this process is: ``lab.distributed.join()``. All ranks then call this alike with the
            same graph, train together on the devices that they have, and get the same result. A module of one's own
            starts from the weights of rank 0.
        workers: of ``"overlapped"``: samplers, and loaders, of each rank (DSP rejects more than 1, section 5). Each has
            mini-batches of its own, every n-th, and where ranks meet a process group of its own.
        capacity: mini-batches that a queue holds. None: 2 in ``"overlapped"`` (DSP, section 5); in ``"factored"`` an
            epoch with switching, two a trainer without and with ``handover="peer"``, whose samples wait in the memory
            of the GPU that sampled them.
        samplers: of ``"factored"``: ranks that sample; None: N_s = ceil(N_g / (K + 1)) from stage times that a trial
            measures, with those of handing samples over (GNNLab, section 5.3).
        switching: of ``"factored"``: samplers that have sampled all train while their profit is positive (GNNLab,
            section 5.3). None: where all ranks sample. With ``staleness=0`` rounds wait for the samplers that train,
            which can lengthen the epoch (``lab.schedule.profit``).
        staleness: of ``"factored"``: updates that a trainer may be ahead of the slowest; 0: all update together; None:
            no bound. Each trainer trains on mini-batches of its own, so that an update is that of as many
            mini-batches as there are trainers.
        pipelined: of ``"factored"``: whether trainers extract while they train.
        budget_gb: 10^9 bytes of device memory that each rank may take, a smaller card: graph, cache, CuPy's pool and
            PyTorch's allocator together. It sizes the cache, and a peak beyond it is an error. The CUDA context and
            NCCL are stated apart (``TrainResult.memory``). While the run lasts both allocators round sizes up, to
            sixteen an octave, CuPy's has pools for the run alone, and PyTorch's has segments that grow, in all threads.
            On a CPU the cache gets what the topology leaves of it.
        policy: what ranks the vertices of the cache, for systems with one: a policy of ``lab.hotness`` or "in-degree";
            None for what the system does.
        parts: how a system with parts divides the graph: a method of ``lab.distributed.partition``, a ``Partition``, or
            a ``pathlib.Path``, the folder of ``save_parts`` (with features, for a partitioned cache). None for what the
            system does. Where a method cannot keep a part to 1.1 times the mean of vertices, edges and seeds, 1.25, 1.5
            and 2 are tried (less than there are parts), and a note says so; "random" and "range" are taken as they are.
            On several hosts each holds all parts between its ranks (DSP, section 3.2); a ``Partition`` or a folder with
            a part for every rank of the job spreads them over the hosts. Rows that no rank caches are then split among
            the hosts.
        kernels: record which kernels ran on the GPU of each rank in the last epoch (``TrainResult.kernels``), and for
            which share of it one of them ran (``TrainResult.gpu_busy``), by PyTorch's profiler; that epoch's times are
            then not to be used.
        handover: of ``"factored"`` on ranks: ``"host"``: samples go to trainers through host memory (GNNLab);
            ``"peer"``: they stay in their sampler's device memory, where trainers read them over NVLink (ours). On CPU
            ranks mapped files stand for it.
        swap: of ``"factored"`` on ranks: all ranks sample an epoch with the topology on their devices, then swap it for
            the cache and train, every epoch (AGL's batch mode, which GNNLab's section 3 rejects).
        captured: replay training steps as CUDA graphs (:func:`gnnsample_lab.captured_step`), on a GPU. None: what the
            system does, for a model named here; a module of one's own may count rows that only fill a graph's fixed
            sizes.
        coordinated: of ``"overlapped"`` on ranks of a host, for systems whose workers have collectives: whether rank 0
            decides in which order all ranks start them (DSP, section 5). False: each worker starts its own when it is
            ready, which on GPUs can end in workers that wait for each other for ever, and is refused there. None: what
            the system does; on GPUs always True where there is something to order.
        checkpoint: file to write weights, optimiser and the trained batch ids to, after every epoch; rank 0 does.
        checkpoint_steps: steps between further checkpoints; needs ``checkpoint``.
        resume: a checkpoint to go on from: what it has trained on is not trained on again. It is written to, unless
            ``checkpoint`` names another file. ``epochs`` counts from the first epoch of all. On one device ``reorder``
            and ``window`` have to be those of the run that wrote it. Each host of joined ranks
            needs the same file, which the first one has written.
        cache_gb: 10^9 bytes of device memory for the cache alone, its look-up table included, on each rank: what a
            paper had left over; instead of ``cache_ratio``. Like ``budget_gb`` it stands for a card's capacity, not
            for its speed, and ``TrainResult.origin`` says so.
        topology_bytes: bytes that a rank's in-neighbour lists may take on its device, for systems with parts whose
            method spills, as ``lab.distributed.Sampler`` says: lists beyond it, those that save fewest reads per byte,
            lie in page-locked host memory (DSP, sections 3.2 and 5). The samples stay the same. None: all lists.
        merged: of ``"overlapped"``, for systems with one cache of all ranks: up to so many mini-batches that wait for a
            loader get their rows by one extraction, each vertex's once (DSP, section 3.2). Where ranks extract together
            a loader waits for as many. More mini-batches are then in memory.
        on_progress: called with the result so far, to show how it goes: after the first step and then ten times a
            second at most, on one device. What it raises ends the run. A GPU is waited for before each call.
        options: ``pick``, ``kernel`` (defaults by system) and what ``lab.make_model`` takes, for example ``dropout``.

    Raises:
        TypeError: an argument of the wrong kind; the message names it. With ``checkpoint`` also a module whose state a
            checkpoint cannot hold.
        ValueError: the graph lacks features, labels or a training split, no vertex of that split has a label, a module
            has no parameter to train or too few columns of logits, or an argument is not allowed; between hosts, a
            system whose ``method``, ``transport`` or ``coordinated`` needs memory of one host; on GPUs
            ``coordinated=False`` or ``method="csp-async"`` where workers would have collectives at the same time, and
            several ``workers`` with ``method="csp-fixed"``; joined ranks that were given different arguments;
            ``UnevenPartsError``: by the method of ``parts`` one part gets nearly everything.
        LookupError: no such system.
        RuntimeError: ``device="cuda"`` without a usable GPU, or without one for each rank.
        MemoryError: ``budget_gb`` is too little; the message names what does not fit.
        RankError: a rank failed, of too little ``budget_gb`` for example, died or gave no sign of life for
            ``heartbeat_s`` of ``lab.distributed.Ranks``; all have ended, and the message names rank and stage. Of
            joined ranks the one that fails raises its own error, and the others end with this one; all then have to
            be started anew.
        FileNotFoundError, CorruptDataError: ``resume`` names no checkpoint.
    """

    check_graph(graph)
    _check_data(graph)
    given = {
        "model": model, "system": system, "batch_size": batch_size, "fanouts": fanouts, "hidden": hidden, "lr": lr,
        "seed": seed, "cache_ratio": cache_ratio, "capacity_bytes": capacity_bytes, "reorder": reorder,
        "window": window, "progress": progress, "weighted": weighted, "sampler": sampler, "executor": executor,
        "workers": workers, "capacity": capacity, "budget_gb": budget_gb, "policy": policy,
        "coordinated": optional(flag, "coordinated", coordinated), "cache_gb": cache_gb,
        "captured": optional(flag, "captured", captured), "topology_bytes": topology_bytes,
        "merged": merged, **options,
    }  # fmt: skip
    chosen, parts = with_policy(find(system), policy), checked_parts(parts)
    _check_options(model, options)
    if chosen.topology != "device":
        choice("method", chosen.method, METHODS)
    checked_spill(chosen, topology_bytes)
    if chosen.has_parts and executor == "factored":
        raise ValueError(
            f"executor='factored' needs a system whose samplers have the whole topology (got {chosen.name!r})"
        )
    saving = optional(checked_path, "checkpoint", checkpoint)
    source = optional(checked_path, "resume", resume)
    steps = optional(whole, "checkpoint_steps", checkpoint_steps, 1, 2**31 - 1)
    saving = source if saving is None else saving
    # Of a file that is to be read and is not there something else is to be said, and no folder to be made.
    if saving is not None and (saving is not source or saving.exists()):
        check_place(saving.resolve(), "checkpoint" if checkpoint is not None else "resume")
    if steps is not None and saving is None:
        raise ValueError(f"checkpoint_steps needs checkpoint, the file to write to (got {steps})")
    split = _evaluation_split(graph, evaluate)
    samplers = optional(whole, "samplers", samplers, 1, MAX_RANKS)
    factored = {
        "samplers": samplers, "switching": optional(flag, "switching", switching),
        "staleness": optional(whole, "staleness", staleness, 0, 2**20), "pipelined": flag("pipelined", pipelined),
        "capacity": capacity, "handover": choice("handover", handover, HANDOVERS), "swap": flag("swap", swap),
    }  # fmt: skip
    job: dict[str, Any] = {
        "factored": factored, "batches": -(-len(graph.splits["train"]) // whole("batch_size", batch_size, 1)),
        "given": given, "epochs": whole("epochs", epochs, 1, 2**20), "split": split,
        "checkpoint": None if saving is None else saving.resolve(), "checkpoint_steps": steps or 0,
        "resume": None if source is None else source.resolve(), "kernels": flag("kernels", kernels),
    }  # fmt: skip
    count = _number_of(ranks)
    choice("executor", executor, (None, *EXECUTORS))
    workers, merged = whole("workers", workers, 1, 64), whole("merged", merged, 1, 64)
    alone = count == 1 and not isinstance(ranks, (Ranks, Rank))
    job["notes"] = _unused(
        executor or chosen.executor, alone, samplers=samplers is not None, switching=switching is not None,
        staleness=staleness != 0, pipelined=not pipelined, handover=handover != "host", workers=workers != 1,
        coordinated=bool(coordinated), capacity=capacity is not None, merged=merged != 1,
    )  # fmt: skip
    if policy is not None and chosen.cache is None:
        job["notes"] += (f"{chosen.name!r} has no cache: policy={policy!r} was not used",)
    if not isinstance(model, str) and hidden != _DEFAULTS["hidden"].default:
        job["notes"] += (f"the width of a module is its own: hidden={hidden} was not used",)
    if parts is not None and not chosen.has_parts:
        job["notes"] += (f"{chosen.name!r} samples and caches without parts: parts was not used",)
    if samplers is not None and samplers > count - (switching is False and count > 1):
        raise ValueError(
            f"samplers must leave a rank to train, unless samplers switch (got {samplers} of {count} ranks)"
        )
    if swap and (executor != "factored" or samplers not in (None, count) or switching is False):
        raise ValueError(
            f"swap=True is for executor='factored' with all ranks as samplers that switch (got executor={executor!r}, "
            f"samplers={samplers!r}, switching={switching!r})"
        )
    if (swap or handover != "host") and not isinstance(ranks, (Ranks, Rank)) and count == 1:
        raise ValueError(f"ranks must be 2 or more for swap=True and handover='peer' (got {count})")
    if on_progress is not None:
        function("on_progress", on_progress)
    if isinstance(ranks, (Ranks, Rank)) or count > 1:
        if on_progress is not None:
            raise ValueError(f"on_progress is for one device: ranks are other processes (got {count} ranks)")
        _check_sampler_for_ranks(sampler)
        if isinstance(ranks, Rank):
            return _train_joined(graph, job, ranks, device, parts)
        known = count if swap else samplers
        if known is not None and executor == "factored":
            divided = Split(count, known, switching is not False, capacity=capacity, handover=handover)
            divided.check_capacity(job["batches"])
        return _train_on_ranks(graph, job, ranks, device, parts)
    device = runtime.resolve_device(device)
    with contextlib.ExitStack() as stack:
        if chosen.has_parts:
            check_count(parts, 1)
            job["parts"] = stack.enter_context(saved_parts(graph, chosen, 1, parts, bool(weighted)))
            job["notes"] += balance_notes(job["parts"])
        job["device"] = device
        job["notes"] += _of_gpus(job) if device == "cpu" else ()
        place = runtime.device_name() if device == "cuda" else "the CPU"
        origin = label(f"measured on {place}", budget_gb, cache_gb if chosen.cache else None)

        def result(
            ready: Prepared, records: list[EpochRecord], accuracy: list[float], **rest: Any
        ) -> TrainResult:
            trainer = ready.trainer
            return TrainResult(
                ready.system.name, _name(model), graph.title, device, origin, [*trainer.losses], [*trainer.batch_ids],
                [*accuracy], job["split"] or "", [*records], ready.setup_us, ready.cache_ratio,
                (*ready.notes, *job["notes"]), ready.settings, trainer.model, resumed=trainer.resumed,
                update_sizes=trainer.sizes_of_updates(), **rest,
            )  # fmt: skip

        told = None if on_progress is None else lambda *found: on_progress(result(*found))
        ready, records, accuracy = run_epochs(graph, job, told=told)
        memory = [several.memory_of(ready.trainer, 0, "all stages", records)]  # before it is given back
        ready.close()
    ran = {"kernels": [job["ran"]], "gpu_busy": [job["busy"]]} if "ran" in job else {}
    return result(ready, records, accuracy, memory=memory, **ran)


_DEFAULTS = inspect.signature(train).parameters


def run_epochs(
    graph: Graph,
    job: dict[str, Any],
    rank: Any = None,
    told: Callable[[Prepared, list[EpochRecord], list[float]], None] | None = None,
) -> tuple[Prepared, list[EpochRecord], list[float]]:
    """Prepare a system and train it as ``job`` says, on this process's device; one of several ranks, or alone.

    ``told`` is called now and then with what is returned, as far as it is there.
    """
    import torch

    given, device = job["given"], job["device"]
    seed = checked_seed(given["seed"])
    records: list[EpochRecord] = []
    accuracy: list[float] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(generators.given_back(device))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())  # whatever the caller has switched off
        stack.enter_context(shared_stream(device))
        ready = prepare(graph, device=device, rank=rank, parts=job.get("parts"), **given)
        # Several ranks close together: where one failed, all end.
        if rank is None or rank.world_size == 1:
            stack.enter_context(_closed_on_failure(ready.close))
        trainer = ready.trainer
        if told is not None:
            trainer.told = lambda: told(ready, records, accuracy)
            # It has the trainer: a cycle, with all that this holds.
            stack.callback(setattr, trainer, "told", None)
        # Dropout does not depend on what the preparation drew; ranks have masks of their own.
        with generators.LOCK:
            torch.manual_seed((seed + (0 if rank is None else rank.index)) % 2**64)
        if job["checkpoint"] is not None or job["resume"] is not None:
            trainer.settings = settings_of_run(graph, trainer, given, _order_of(ready))
        if job["resume"] is not None:
            with generators.LOCK:
                trainer.resume(job["resume"])
        trainer.checkpoint, trainer.checkpoint_steps = job["checkpoint"], job["checkpoint_steps"]
        budget = bytes_of(given["budget_gb"])
        with kept_to(budget, device, trainer.others, trainer.working) as trainer.given_back:
            for number in range(job["epochs"]):
                if not len(trainer.plan(number)):
                    continue  # the run that is resumed had done all of it
                with several.kernels_into(job, device, number):
                    records.append(replace(trainer.epoch(number), number=number))
                if budget is not None:
                    several.check_peak(trainer, records[-1], budget)
                if job["split"]:
                    accuracy.append(trainer.evaluate(job["split"]))
    if not records:
        raise ValueError(f"epochs must be more than the checkpoint has trained (got {job['epochs']})")
    return replace(ready, notes=(*ready.notes, *labels_note(trainer))), records, accuracy


def _order_of(ready: Prepared) -> dict[str, Any]:
    """What decides the order of mini-batches, for checkpoints; several ranks keep theirs."""
    if ready.trainer.rank is not None:
        return {}
    reorder = ready.settings["reorder"]
    return {"reorder": reorder, "window": ready.trainer.window if reorder else None}


@contextlib.contextmanager
def _closed_on_failure(close: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        close()
        raise


def _train_on_ranks(
    graph: Graph, job: dict[str, Any], ranks: int | Ranks, device: str, parts: Any
) -> TrainResult:
    given = job["given"]
    chosen = with_policy(find(given["system"]), given["policy"])
    model = given["model"]
    _check_for_ranks(graph, given)
    if chosen.has_parts:
        check_ranks(graph, _number_of(ranks))
    if job["resume"] is not None:  # the ranks find out whether it is of this run
        load_checkpoint(job["resume"], {})
    with contextlib.ExitStack() as stack:
        if isinstance(ranks, Ranks):
            crew = ranks
        else:
            choice("device", device, DEVICES)
            crew = stack.enter_context(
                Ranks(ranks, device=device, timeout_s=RUN_S, collective_timeout_s=COLLECTIVE_S)
            )
        problem = overlap_problem(chosen, given, crew.backend)
        if problem is not None and crew.ranks > 1:
            raise ValueError(problem)
        folder = stack.enter_context(several.shared_graph(graph))
        if given["executor"] == "factored":
            service = stack.enter_context(QueueService())
            slots = stack.enter_context(scratch_folder("lab-slots"))
            found = crew.run(train_factored, folder, job, service.address, slots, timeout_s=RUN_S)
            first = next(part for part in found if part["is_first"])
            depths = [phase.depths for name, phase in service.phases.items() if name.startswith("epoch")]
            records = [
                with_queue(record, depth)
                for record, depth in zip(several.merged_epochs(found), depths, strict=True)
            ]
        else:
            if chosen.has_parts:
                weighted = bool(given["weighted"])
                check_count(parts, crew.ranks)
                job["parts"] = stack.enter_context(saved_parts(graph, chosen, crew.ranks, parts, weighted))
                job["notes"] += balance_notes(job["parts"])
            found = crew.run(several.train_slices, folder, job, timeout_s=RUN_S)
            first, records = found[0], several.merged_epochs(found)
    kernel = first["settings"]["kernel"]
    if isinstance(model, str):
        layers = len(first["settings"]["fanouts"])
        with generators.weights():
            network = built_model(model, graph, given["hidden"], layers, kernel, _model_options(given))
    else:
        network = model
    network.load_state_dict(first["weights"])
    return _result_of_ranks(graph, job, found, first, records, network, crew.backend)


def _train_joined(graph: Graph, job: dict[str, Any], rank: Rank, device: str, parts: Any) -> TrainResult:
    """Train in this process, which is a rank, together with the others; the same result on all."""
    given = job["given"]
    chosen = with_policy(find(given["system"]), given["policy"])
    with joined.ending_together(rank, alike=ValueError):
        joined.check_joined(rank, graph, chosen, job, device)
    with joined.ending_together(rank):
        joined.share_weights(rank, given["model"])
        with contextlib.ExitStack() as stack:
            if chosen.has_parts:
                job["parts"] = stack.enter_context(
                    joined.parts_of_host(rank, graph, chosen, parts, bool(given["weighted"]))
                )
                job["notes"] += balance_notes(job["parts"])
            first, network = several.train_rank(rank, graph, job)
            found = joined.told_by_all(rank, first)
        rank.end_left()
    records = several.merged_epochs(found)
    return _result_of_ranks(
        graph, job, found, first, records, network, rank.backend, rank.world_size // rank.local_size
    )


def _result_of_ranks(
    graph: Graph, job: dict[str, Any], found: list[several.Part], first: several.Part, records: list[EpochRecord],
    network: Any, backend: str, hosts: int = 1,
) -> TrainResult:  # fmt: skip
    """One result of what all ranks found; ``first``: of the rank that has what all have alike."""
    given, count = job["given"], len(found)
    chosen = with_policy(find(given["system"]), given["policy"])
    place = "cpu" if backend == "gloo" else "cuda"
    job["notes"] += _of_gpus(job) if place == "cpu" else ()
    where = f"{count} CPU processes" if place == "cpu" else f"{count} x {runtime.device_name()}"
    where += f" of {hosts} hosts" if hosts > 1 else ""
    return TrainResult(
        chosen.name, _name(given["model"]), graph.title, place,
        label(f"measured on {where}", given["budget_gb"], given["cache_gb"] if chosen.cache else None), first["losses"],
        first["batch_ids"], first["accuracy"], job["split"] or "", records,
        max(part["setup_us"] for part in found), first["ratio"],
        (
            *first["notes"], *dropout_note(found), *job["notes"],
            *(note for part in found for note in part.get("events", ())),
        ),
        first["settings"], network,
        ranks=count, resumed=first["resumed"], update_sizes=first.get("update_sizes", []),
        memory=[part["memory"] for part in found],
        **{what: [p[what] for p in found if p[what] is not None] for what in ("kernels", "gpu_busy")},
    )  # fmt: skip


def _number_of(ranks: Any) -> int:
    """How many ranks train: those of a number, of warm ranks, or of the job that a rank belongs to."""
    if isinstance(ranks, Ranks):
        return ranks.ranks
    return ranks.world_size if isinstance(ranks, Rank) else whole("ranks", ranks, 1, MAX_RANKS)


def _check_sampler_for_ranks(sampler: Any) -> None:
    if sampler is None:
        return
    expand = getattr(getattr(sampler, "spec", None), "expand", "frontier")
    if expand != "frontier":
        raise ValueError(
            f"ranks: slices of a mini-batch need expand='frontier' (got a sampler with expand={expand!r})"
        )
    raise ValueError(
        "sampler cannot be given with several ranks: each makes its own (set fanouts, pick, weighted)"
    )


def _check_for_ranks(graph: Graph, given: dict[str, Any]) -> None:
    """Name wrong arguments here, before any rank starts."""
    small = {**given, "capacity_bytes": None, "cache_ratio": 0.0, "cache_gb": None, "progress": False}
    if given["capacity_bytes"] is not None:
        num_bytes("capacity_bytes", given["capacity_bytes"])
    size = cache_bytes(given["cache_gb"], given["cache_ratio"], given["capacity_bytes"])
    Sizing(optional(share, "cache_ratio", given["cache_ratio"]), size, bytes_of(given["budget_gb"]))
    small["budget_gb"] = None
    chosen = find(given["system"])
    if chosen.has_parts:  # whose parts and ranks are not there yet: the other arguments are looked at
        small["system"] = replace(chosen, topology="device", placement="replicated")
        small["topology_bytes"] = None
        _check_walks(_name(given["model"]), chosen)
    if is_memory_mapped(graph.feat):
        return  # the ranks find out: reading all features for a check would take longer
    if not isinstance(given["model"], str):
        small["model"] = copy.deepcopy(given["model"])
    with generators.given_back("cpu"):
        prepare(graph.to("cpu") if graph.device != "cpu" else graph, device="cpu", **small)


def _model_options(given: dict[str, Any]) -> dict[str, Any]:
    named = set(inspect.signature(prepare).parameters)
    return {name: value for name, value in given.items() if name not in named}


def _check_options(model: Any, options: dict[str, Any]) -> None:
    """Name what is no option, before anything is made; those of a module are :func:`built_model`'s to name.

    Raises:
        TypeError: a field of a system, or neither ``pick`` nor an argument of ``lab.make_model`` that is left to give.
    """
    given = {"name", "num_features", "hidden", "num_classes", "num_layers"}
    known = ["pick", *(name for name in inspect.signature(make_model).parameters if name not in given)]
    of_systems = {field.name for field in fields(System)} - given
    for name in (name for name in options if name not in known):
        got = f"(got {name}={shown(options[name])})"
        if name in of_systems:
            among = f", one of {', '.join(map(repr, METHODS))}" if name == "method" else ""
            raise TypeError(
                f"{name} is a field of a system, not an argument: give system=dataclasses.replace(system, {name}=...)"
                f"{among} {got}"
            )
        if isinstance(model, str):
            raise TypeError(f"options must be among {', '.join(map(repr, known))} {got}")


def _name(model: Any) -> str:
    return model if isinstance(model, str) else type(model).__name__


def built_model(
    model: Any, graph: Any, hidden: int, num_layers: int, kernel: str | None, options: dict[str, Any]
) -> Any:
    """The model of that name, or ``model`` itself."""
    if isinstance(model, str):
        return make_model(
            model, graph.num_features, hidden, graph.num_classes, num_layers=num_layers, kernel=kernel or "auto",
            **options,
        )  # fmt: skip
    if options or kernel:
        unknown = ", ".join([*options, *(["kernel"] if kernel else [])])
        raise ValueError(f"{unknown} apply to models chosen by name (got a {type(model).__name__})")
    _check_takes(model, graph)
    return model


def _check_takes(model: Any, graph: Any) -> None:
    """Refuse a model of ``lab.make_model`` for other rows than the graph's: PyTorch's error names neither. What other
    modules make of their input is theirs to say."""
    import torch

    from gnnsample_lab.compute.stack import BlockModel

    if not isinstance(model, BlockModel):
        return
    first = next((each for each in model.layers[0].modules() if isinstance(each, torch.nn.Linear)), None)
    if first is None:
        return
    if first.in_features != graph.num_features:
        raise ValueError(
            f"model must take rows of {graph.num_features} features, as graph has (got one for {first.in_features})"
        )
    if str(graph.feat.dtype) == "float32" and first.weight.dtype != torch.float32:
        raise ValueError(
            f"model must be of torch.float32, as the features of graph are (got {first.weight.dtype})"
        )


def _unused(executor: str, alone: bool, **given: bool) -> tuple[str, ...]:
    """A note of arguments that were given for another executor, or, on one device ``alone``, for several ranks."""
    of = dict.fromkeys(("workers", "coordinated", "merged"), ("overlapped",)) | {
        "capacity": ("overlapped", "factored")
    }
    usual = ("factored",)
    names = [name for name, is_given in given.items() if is_given and executor not in of.get(name, usual)]
    notes = [f"not used with executor={executor!r}: {', '.join(names)}"] if names else []
    if alone and executor == "factored":
        shared = ("workers", "coordinated", "merged")
        names = [name for name, is_given in given.items() if is_given and name not in shared]
        notes += [f"not used on one device: {', '.join(names)}"] if names else []
    return tuple(notes)


def _of_gpus(job: dict[str, Any]) -> tuple[str, ...]:
    """Notes of what was asked for and only GPUs do, for a run on CPUs."""
    notes: tuple[str, ...] = ()
    if job["kernels"]:
        notes += ("kernels are recorded on GPUs: there are none on the CPU",)
    if job["given"]["captured"]:
        notes += ("steps are captured on GPUs: there are none on the CPU",)
    return notes


def _cpu_note(executor: str | None) -> str:
    if executor in ("overlapped", "factored"):
        return "on the CPU: the CPU twins sample and mark, PyTorch's operators aggregate, and threads share the cores"
    return CPU_NOTE


def make_sampler(
    graph: Any, model: str, system: System, fanouts: Sequence[int], device: str, seed: int, weighted: bool,
    pick: str | None = None, *, batch_size: int = 1024, rank: Any = None, folder: Path | None = None,
    topology_bytes: int | None = None,
) -> Any:  # fmt: skip
    """The sampler of a system: random walks for PinSAGE, else neighbours. The features stay where they are.

    ``batch_size``, ``rank``, ``folder`` of the parts and ``topology_bytes`` are for systems that sample on ranks or
    trees.
    """
    from gnnsample_lab.minibatch.sampler import NeighborSampler

    _check_walks(model, system)
    if system.topology != "device":
        if folder is None:
            raise ValueError(
                f"parts must be the folder of the graph's parts for system {system.name!r} (got None)"
            )
        return PartsSampler(
            folder, system, checked_fanouts(fanouts), rank, seed, weighted, pick, topology_bytes
        )
    place = "cpu" if device == "cpu" else system.sample_device
    topology = graph.to(place, features=False) if graph.device != place else graph
    if model == "pinsage":
        from gnnsample_lab.minibatch.walks.sampler import PinSAGESampler

        if weighted or pick:
            raise ValueError("weighted and pick do not apply to random walks (model='pinsage')")
        layers = len(checked_fanouts(fanouts))
        return PinSAGESampler(topology, num_layers=layers, device=place, seed=seed, **AS_RELEASED)
    if system.trees:
        if weighted or pick not in (None, "floyd"):
            raise ValueError(
                f"weighted and pick do not apply to system {system.name!r}: its trees are uniform"
            )
        index, count = (0, 1) if rank is None else (rank.index, rank.world_size)
        return TreeSampler(
            topology, checked_fanouts(fanouts), batch_size, place, seed, index, count, system.index
        )
    queue = system.queue if system.strategy == "persistent" else "teams"
    return NeighborSampler(
        topology, fanouts, strategy=system.strategy, pick=pick or system.pick, weighted=weighted, device=place,
        seed=seed, id_map=system.id_map, queue=queue,
    )  # fmt: skip


def _order_notes(system: System, trainer: Trainer, order: str | None) -> list[str]:
    """Where a run that was asked for the order ``order`` keeps another one, or its windows lie elsewhere."""
    if order is None:
        return []
    in_host = system.windows == "host"
    if trainer.order is None:
        note = "mini-batches keep their order: several ranks would not agree on another one"
        return [f"{note}; none are sampled ahead to wait in host memory" if in_host else note]
    # Samples made on a CPU, and all of a run on a CPU, lie in host memory anyway.
    if in_host and trainer.device == trainer.sampler.device == "cuda" and trainer.parking is None:
        fused = isinstance(trainer.features, FusedSource)
        why = "a FusedSampler's have no edges to copy" if fused else f"with executor={trainer.executor!r}"
        return [f"windows of mini-batches wait where they were sampled, {why}"]
    return []


def _index_note(sampler: TreeSampler) -> str:
    """Which form of the transit-parallel engine drew the trees."""
    if sampler.device == "cpu":
        return "on the CPU trees are drawn sample by sample: no index groups them by transit"
    whose = "NextDoor's as published" if sampler.grouped == "published" else "not NextDoor's as published"
    return f"pairs of sample and transit are grouped with index={sampler.grouped!r}, {whose}"


def _check_walks(model: str, system: System) -> None:
    if model == "pinsage" and (system.topology != "device" or system.trees):
        raise ValueError(
            f"model='pinsage' samples by random walks, which system={system.name!r} does not draw"
        )


def with_policy(system: System, policy: str | None) -> System:
    """The system with another ranking of its cache.

    Raises:
        TypeError, ValueError: no such policy.
    """
    optional(choice, "policy", policy, tuple(dict.fromkeys((*_RANKED, *DEGREES))))
    if policy is None or system.cache is None:
        return system
    return replace(system, cache=policy)


def _check_data(graph: Any) -> None:
    for attribute, what in (("feat", "features"), ("label", "labels")):
        if getattr(graph, attribute, None) is None:
            raise ValueError(
                f"graph {graph.name!r} has no {attribute}: training needs {what} of every vertex"
            )
    if len(graph.splits.get("train", ())) == 0:
        raise ValueError(f"graph {graph.name!r} has no vertices in split 'train'")
    check_distinct("split 'train'", graph.splits["train"])
    # Of several columns all seeds count: -1 is for one column alone.
    if not _is_labelled(graph, "train"):
        raise ValueError(
            f"split 'train' must have labelled vertices (got {len(graph.splits['train'])} of graph {graph.name!r}, all "
            "with label -1)"
        )


def _is_labelled(graph: Any, split: str) -> bool:
    """Whether the split has a vertex with a label. Of several columns all vertices count."""
    ids = graph.splits.get(split, ())
    if len(ids) == 0 or graph.label is None:
        return False
    return graph.label.ndim > 1 or bool((graph.label[ids] >= 0).any())


def _evaluation_split(graph: Any, evaluate: bool | str) -> str | None:
    if isinstance(evaluate, str):
        if len(graph.splits.get(evaluate, ())) == 0:
            raise ValueError(f"evaluate must name a split with vertices (got {evaluate!r})")
        if graph.label is not None and not _is_labelled(graph, evaluate):
            raise ValueError(
                f"evaluate must name a split with labelled vertices (got {evaluate!r}, all with label -1)"
            )
        return evaluate
    if not flag("evaluate", evaluate):
        return None
    return next((name for name in ("valid", "test") if _is_labelled(graph, name)), None)
