"""A system on samplers and trainers of their own: what each rank holds, and how many ranks do what."""

from __future__ import annotations

import copy
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnsample_lab.checks import seed as checked_seed
from gnnsample_lab.compute.aggregation.ladder import kernel_name
from gnnsample_lab.device.arrays import is_memory_mapped, to_host
from gnnsample_lab.features.caching.cache import FeatureCache
from gnnsample_lab.features.caching.sizing import hottest_first, rows_in, rows_of_ratio
from gnnsample_lab.pipeline.captured import is_captured
from gnnsample_lab.pipeline.clock import StageClock
from gnnsample_lab.pipeline.exchange import exchange_s
from gnnsample_lab.pipeline.executors import Stages, shared_stream
from gnnsample_lab.pipeline.factored.roles import Member, Split, Swaps
from gnnsample_lab.pipeline.factored.slots import OwnSlots, PeerSlots, header_of, pack
from gnnsample_lab.pipeline.features import CachedSource
from gnnsample_lab.pipeline.memory import NOTHING, Held, held_by_others, reset_pools
from gnnsample_lab.pipeline.plan import EpochPlan
from gnnsample_lab.pipeline.records import EpochRecord, RankMemory
from gnnsample_lab.pipeline.schedule.allocation import num_samplers, trainer_time
from gnnsample_lab.pipeline.trainer import Trainer
from gnnsample_lab.sampling.neighbors.spec import checked_fanouts

from .budget import bytes_of, cache_bytes, kept_to, within_budget
from .features import (
    CPU_RATIO,
    NO_BUDGET_NOTE,
    TRIAL_BATCHES,
    Sizing,
    _sized,
    host_features,
    no_cache_note,
    sampled_bytes,
    topology_bytes,
)
from .parts import ranked
from .ranks import Part, check_peak, kernels_into, memory_of, open_shared
from .resuming import labels_note, settings_of_run, statistics_note
from .table import System, find

if TYPE_CHECKING:
    from .train import Prepared

SLOT_TRIALS, SLOT_MARGIN = 4, 1.25
"""Mini-batches by which slots in device memory are sized, and the factor over the largest."""
TRIAL_STEPS = 4
"""Mini-batches by which stage times are measured, after one that compiles what there is to compile, or those until
steps are replayed."""
TRIAL = ("sample", "put", "get", "extract", "train")
"""Stages whose times decide how many ranks sample: a sampler hands over what it has sampled, a trainer fetches it."""
LOOK_S = 0.02
"""Seconds between looks for what rank 0 has found out."""
_groups: weakref.WeakKeyDictionary[Any, dict[tuple[int, ...], Any]] = weakref.WeakKeyDictionary()


def train_factored(
    rank: Any, folder: Path, job: dict[str, Any], address: tuple[Any, bytes], slots: Path
) -> Part:
    """On a rank: sample or train, as the split of the ranks has it."""
    import torch

    graph = open_shared(folder)
    device = "cpu" if rank.backend == "gloo" else "cuda"
    given, options = job["given"], job["factored"]
    seed = checked_seed(given["seed"])
    records: list[EpochRecord] = []
    accuracy: list[float] = []
    devices = [torch.cuda.current_device()] if device == "cuda" else ()
    with torch.random.fork_rng(devices=devices), shared_stream(device):
        begin = time.perf_counter()
        with rank.stage("prepare"):
            known = rank.world_size if options["swap"] else options["samplers"]
            times = _measured(rank, graph, given, device, known, slots, options["handover"])
            update_s = 0.0 if times is None else _exchange_s(rank, graph, given)
            split = _split(rank.world_size, options, times, update_s)
            split.check_capacity(job["batches"])
            member, ratio, kernel, notes = _member(rank, graph, given, device, split, address, slots)
        trainer = member.trainer
        # Masks of dropout differ from those of one device, and by rank.
        torch.manual_seed((seed + 1 + rank.index) % 2**64)
        if job["checkpoint"] is not None or job["resume"] is not None:
            trainer.settings = settings_of_run(graph, trainer, given)
        if job["resume"] is not None:
            trainer.resume(job["resume"])
        trainer.checkpoint, trainer.checkpoint_steps = job["checkpoint"], job["checkpoint_steps"]
        setup_us = (time.perf_counter() - begin) * 1e6
        budget = bytes_of(given["budget_gb"])
        with kept_to(budget, device, trainer.others, trainer.working, member.has_model) as trainer.given_back:
            for number in range(job["epochs"]):
                if not len(trainer.plan(number)):
                    continue
                with kernels_into(job, device, number):
                    records.append(replace(member.epoch(number), number=number))
                if budget is not None:
                    check_peak(trainer, records[-1], budget)
                if job["split"]:
                    accuracy.append(member.evaluate(job["split"], number))
        memory = _memory(member, records) if records else None  # before it is given back
        member.close()
    if not records:
        raise ValueError(f"epochs must be more than the checkpoint has trained (got {job['epochs']})")
    first = member._is_first
    settings = {
        "batch_size": trainer.batch_size, "fanouts": tuple(trainer.sampler.fanouts), "hidden": given["hidden"],
        "lr": given["lr"], "seed": seed, "reorder": None, "window": given["window"], "match": False,
        "kernel": kernel, "executor": "factored", "transfer": trainer.features.cache.transfer,
        "ranks": rank.world_size, "samplers": split.samplers, "switching": split.switching,
        "handover": split.handover, "swap": split.swap,
        "staleness": split.staleness, "pipelined": split.pipelined, "capacity": split.queue_capacity(),
        "budget_gb": given["budget_gb"], "cache_gb": given["cache_gb"],
        "trial_us": None if times is None else {
            name: s * 1e6 for name, s in zip((*TRIAL, "update"), (*times, update_s), strict=True)
        },
    }  # fmt: skip
    return {
        "records": records, "setup_us": setup_us, "ratio": ratio, "settings": settings,
        "notes": (*notes, *labels_note(trainer)), "events": member.notes, "draws": trainer.draws,
        "losses": trainer.losses if first else [], "batch_ids": trainer.batch_ids if first else [],
        "accuracy": accuracy, "resumed": trainer.resumed, "is_first": first,
        "update_sizes": trainer.sizes_of_updates() if first else [],
        "memory": memory,
        "kernels": job.get("ran"), "gpu_busy": job.get("busy"),
        "weights": {k: v.cpu() for k, v in trainer.model.state_dict().items()} if first else {},
    }  # fmt: skip


def _memory(member: Member, records: list[EpochRecord]) -> RankMemory:
    split = member.split
    role = "all stages" if not split.trainers else "sampler" if member.samples else "trainer"
    found = memory_of(member.trainer, member.rank.index, role, records)
    if member.swaps is None:
        return found
    return found._replace(topology=member.swaps.topology, cache=member.swaps.cache)


def _split(ranks: int, options: dict[str, Any], times: list[float] | None, update_s: float) -> Split:
    samplers, switching = options["samplers"], options["switching"]
    if options["swap"]:
        samplers, switching = ranks, True
    if samplers is None:
        assert times is not None
        sample_s, put_s, get_s, extract_s, train_s = times
        trainer_s = trainer_time(get_s + extract_s, train_s + update_s, options["pipelined"])
        samplers = num_samplers(ranks, sample_s + put_s, trainer_s, keep_trainer=not switching)
    if switching is None:
        switching = samplers == ranks
    return Split(
        ranks, samplers, switching, options["staleness"], options["pipelined"], options["capacity"],
        options["handover"], options["swap"],
    )  # fmt: skip


def _measured(
    rank: Any, graph: Any, given: dict[str, Any], device: str, samplers: int | None, slots: Path,
    handover: str = "host",
) -> list[float] | None:  # fmt: skip
    """Mean seconds of the stages of :data:`TRIAL` for a mini-batch, by a trial on rank 0; None where not needed."""
    if samplers is not None:
        return None
    times: list[float] = _from_zero(
        rank, slots / "trial.npy", lambda: np.array(trial_times(graph, given, device, handover))
    ).tolist()
    return times


def _exchange_s(rank: Any, graph: Any, given: dict[str, Any]) -> float:
    """Seconds in which trainers exchange gradients, where one rank samples and all others train; 0 of one trainer.

    How many train is not known yet. The time hardly depends on it: a ring sends all but the same bytes.
    """
    import torch
    import torch.distributed as dist

    from .train import _model_options, built_model

    trainers = rank.world_size - 1
    if trainers < 2:
        return 0.0
    layers = len(checked_fanouts(given["fanouts"]))
    model = built_model(given["model"], graph, given["hidden"], layers, None, _model_options(given))
    size = sum(p.numel() for p in model.parameters() if p.requires_grad)
    group, control = groups_of(rank, tuple(range(1, rank.world_size)))
    mine = 0.0
    if rank.index:
        mine = exchange_s(rank.device, size, group, control, rank.index - 1, trainers, by_rounds=True)
    longest = torch.tensor(mine, dtype=torch.float64, device=rank.device)
    dist.all_reduce(longest, dist.ReduceOp.MAX, group=rank.group)
    return float(longest)


def _from_zero(rank: Any, file: Path, make: Callable[[], np.ndarray]) -> np.ndarray:
    """What rank 0 finds out by itself, on every rank.

    The others look for its file. In a collective they would wait no longer than the ranks' start allows, a minute
    perhaps, and what rank 0 compiles, samples and trains may take longer. If it fails, the parent ends all of them.
    """
    if rank.index == 0:
        part = file.with_suffix(".part.npy")
        np.save(part, make())
        part.replace(file)
    while not file.exists():
        time.sleep(LOOK_S)
    found: np.ndarray = np.load(file, allow_pickle=False)
    return found


def on_one_device(graph: Any, given: dict[str, Any], device: str) -> Prepared:
    """All stages on this process's device, with a model's copy, and as many rows cached as on a trainer.

    Under a budget a trainer caches more rows, since it holds no topology; here the topology is beside them.
    """
    from .train import prepare

    small = {**given, "model": copy.deepcopy(given["model"]), "executor": "serial", "reorder": "none"}
    found: Prepared = prepare(graph, device=device, **small)
    is_sized = any(given.get(name) is not None for name in ("cache_ratio", "capacity_bytes", "cache_gb"))
    if given.get("budget_gb") is None or is_sized or found.system.cache is None or found.cache_ratio >= 1:
        return found
    table = host_features(graph)
    row_bytes, n = table.shape[1] * table.itemsize, len(table)
    share = min(1.0, found.cache_ratio + rows_in(topology_bytes(graph), n, row_bytes) / max(n, 1))
    del found  # its cache, before the larger one
    small |= {"model": copy.deepcopy(given["model"]), "cache_ratio": share, "budget_gb": None}
    larger: Prepared = prepare(graph, device=device, **small)
    return larger


def trial_times(graph: Any, given: dict[str, Any], device: str, handover: str = "host") -> list[float]:
    """Mean seconds of the stages of :data:`TRIAL`, one after the other on this process's device, with a model's copy.

    Samples are handed over within the process, in the way of ``handover``: to host memory and back, or by one
    copy on the device.
    """
    peers = handover == "peer"
    trainer = on_one_device(graph, given, device).trainer
    trainer.model.train()
    slots = OwnSlots(trainer.sampler.device)
    for steps in (trainer.warm_up_steps, TRIAL_STEPS):
        clock = StageClock(device)
        epoch = trainer.sampler.epoch(trainer.seeds, trainer.batch_size)
        stages = Stages(
            EpochPlan(epoch, [trainer.sampler]), trainer.plain_features, clock, 1, 1, None,
            device == "cuda" and trainer.sampler.device == "cpu", device,
        )  # fmt: skip
        done = 0
        while done < steps and (window := stages.sample_window()):
            for marked in window:
                with clock.stage("put"):
                    arrays = pack(marked.batch, marked.marks)
                    header = [array.copy() for array in arrays.values()] if peers else slots.write(0, arrays)
                if not peers:
                    with clock.stage("get"):
                        slots.read(0, header)
                ready = stages.extract(marked)
                with clock.stage("train"):
                    trainer.step(ready.batch, ready.x)
                done += 1
        spent, _ = clock.finish()
    return [spent.get(stage, 0.0) / 1e6 / max(done, 1) for stage in TRIAL]


def _member(
    rank: Any, graph: Any, given: dict[str, Any], device: str, split: Split, address: tuple[Any, bytes], slots: Path
) -> tuple[Member, float, str | None, tuple[str, ...]]:  # fmt: skip
    """This rank with what its part needs; the share of cached vertices on trainers; the model's kernel; notes."""
    import torch

    from .train import _cpu_note, _model_options, _name, built_model, make_sampler, with_policy

    chosen, model = with_policy(find(given["system"]), given["policy"]), given["model"]
    name, samples = _name(model), rank.index < split.samplers
    seed = checked_seed(given["seed"])
    others = NOTHING
    if device == "cuda":
        reset_pools()
        captures = chosen.captured if given.get("captured") is None else given["captured"]
        others = held_by_others(graph, device, rank.index in split.replicas, captures)

    def sampler_on(place: str) -> Any:
        return make_sampler(
            graph, name, chosen, given["fanouts"], place, seed, given["weighted"], given.get("pick"),
            batch_size=given["batch_size"],
        )  # fmt: skip

    # A trainer's device has no topology: its sampler stays on the host and only numbers mini-batches.
    sampler = sampler_on(device if samples and not split.swap else "cpu")
    notes = [_cpu_note("overlapped")] if device == "cpu" else []
    if chosen.match != "never" or chosen.reorder is not None:
        notes.append("rows of the mini-batch before are not reused: trainers take mini-batches as they come")
        if chosen.windows == "host":
            notes.append("mini-batches keep their order; none are sampled ahead to wait in host memory")
    elif given["reorder"] not in (None, "none"):
        notes.append("mini-batches keep their order: trainers take them as they come")
    if chosen.cache is None and (given["cache_ratio"] or given["capacity_bytes"] or given["cache_gb"]):
        notes.append(no_cache_note(chosen))
    if device == "cpu" and given["budget_gb"] is not None:
        if chosen.cache is None:
            notes.append(NO_BUDGET_NOTE)
        elif all(given[name] is None for name in ("cache_ratio", "capacity_bytes", "cache_gb")):
            notes.append("on the CPU budget_gb sizes the caches; what training needs is not counted")
    torch.manual_seed(seed)
    kernel = None
    if isinstance(model, str):
        asked = given.get("kernel")
        kernel = kernel_name(asked) if asked else chosen.kernel if device == "cuda" else "auto"
    else:
        model = copy.deepcopy(model)
    layers = len(sampler.fanouts)
    network = built_model(model, graph, given["hidden"], layers, kernel, _model_options(given)).to(device)
    notes += statistics_note(network, rank)
    table = host_features(graph)
    captured = is_captured(given.get("captured"), chosen.captured, name, kernel, device)
    ratio, standby, working = _ratios(
        rank, chosen, graph, table, sampler, network, given, device, split, others, captured
    )
    order = None
    if any(0 < rows_of_ratio(of, len(table)) < len(table) for of in (ratio, standby)):
        counting = sampler_on(device) if split.swap and rank.index == 0 else sampler
        order = _hottest(rank, chosen, graph, counting, given["batch_size"], seed, slots)
        del counting
    transfer = "auto" if chosen.transfer != "auto" and is_memory_mapped(table) else chosen.transfer
    has_model = rank.index in split.replicas
    mine = (standby if samples and not split.swap else ratio) if has_model else 0.0

    def features(share: float) -> CachedSource:
        scores = _scores(order, len(table), share)
        cache = FeatureCache(table, scores, ratio=share, device=device, transfer=transfer)
        return CachedSource(cache, chosen.cache is not None)

    source = features(0.0 if split.swap else mine)
    budget = bytes_of(given["budget_gb"])
    if device == "cpu" and budget is not None:  # on a GPU the peak is looked at, epoch by epoch
        topology = topology_bytes(graph) if samples else 0
        rows = rows_of_ratio(mine, len(table)) * table.shape[1] * table.itemsize
        held = max(topology, rows) if split.swap else topology + source.cache.nbytes
        within_budget("the topology and the cache", held, budget)
    marked = ratio if split.trainers or split.swap else standby
    marker = None
    if samples and 0 < rows_of_ratio(marked, len(table)) < len(table):
        # Only the look-up table is wanted: rows of a table that is one number wide are all but nothing.
        narrow = np.zeros((len(table), 1), dtype=np.float16)
        place = device if split.swap else sampler.device
        scores = _scores(order, len(table), marked)
        marker = FeatureCache(narrow, scores, ratio=marked, device=place, transfer="staged")
    trainer = Trainer(
        graph, sampler, source, network, batch_size=given["batch_size"], lr=given["lr"], device=device,
        captured=captured,
    )  # fmt: skip
    trainer.others, trainer.working = others, working
    trainer.follows = rank.index != split.replicas[0]
    peers = swaps = None
    if split.handover == "peer":
        peers = PeerSlots(rank, split.samplers, split.own_slots, _slot_bytes(rank, split, trainer, marker))
    if split.swap:
        swaps = Swaps(lambda: sampler_on(device), lambda: features(mine), sampler, sampled_bytes)
        notes.append(
            "each epoch puts the topology on the device, samples all of it, and puts the cache in its place"
        )
    elif standby < ratio and split.switching:
        notes.append(
            f"caches of standby trainers hold {standby:.0%} of the vertices: the topology is there, too"
        )
    groups = groups_of(rank, tuple(split.replicas))
    return (
        Member(rank, split, trainer, marker, groups, address, slots, peers, swaps),
        marked,
        kernel,
        tuple(notes),
    )


def _slot_bytes(rank: Any, split: Split, trainer: Trainer, marker: Any) -> int:
    """Bytes of a slot that holds most mini-batches, the same on all ranks; what is larger goes through the host."""
    import torch
    import torch.distributed as dist

    most = 0
    if rank.index < split.samplers:
        plan = trainer.plan(0)
        for place in range(min(SLOT_TRIALS, len(plan))):
            batch = trainer.sampler.sample(plan.seeds(plan.batch_ids[place]), TRIAL_BATCHES + place)
            marks = None if marker is None else marker.mark(batch.node_ids)
            most = max(most, header_of(pack(batch, marks))[1])
    agreed = torch.tensor([most], dtype=torch.int64, device=rank.device)
    dist.all_reduce(agreed, dist.ReduceOp.MAX, group=rank.group)
    return int(SLOT_MARGIN * int(agreed))


def _ratios(
    rank: Any, chosen: System, graph: Any, table: np.ndarray, sampler: Any, network: Any, given: dict[str, Any],
    device: str, split: Split, others: Held, captured: bool,
) -> tuple[float, float, int]:  # fmt: skip
    """Shares of the vertices that the caches of trainers and of standby trainers hold, the same on all ranks; and
    :attr:`Sources.working` of this one. ``captured``: whether steps are replayed as CUDA graphs."""
    import torch
    import torch.distributed as dist

    row_bytes, n = table.shape[1] * table.itemsize, len(table)
    topology, samples = topology_bytes(graph), rank.index < split.samplers
    budget = bytes_of(given["budget_gb"])
    if budget is not None and samples:
        within_budget("the topology", topology, budget)
    if chosen.cache is None:
        return 0.0, 0.0, 0
    size = cache_bytes(given["cache_gb"], given["cache_ratio"], given["capacity_bytes"])
    is_sized = given["cache_ratio"] is not None or size is not None
    mine, working = 1.0, 0  # of a rank without a model: the others decide
    if given["cache_ratio"] is not None:
        mine = float(given["cache_ratio"])
    elif size is not None:
        mine = rows_in(size, n, row_bytes) / max(n, 1)
    elif device == "cpu":
        mine = CPU_RATIO if budget is None else min(1.0, rows_in(budget, n, row_bytes) / max(n, 1))
    elif rank.index in split.replicas:
        # What a training step leaves here: on a standby trainer beside the topology, on a trainer without it.
        alone = replace(chosen, executor="factored", match="never", reorder=None, captured=captured)
        sizing = Sizing(None, None, budget, others, pipelined=split.pipelined)
        rows, working = _sized(alone, table, sampler, network, graph, given["batch_size"], 1, sizing, device)
        mine = rows / max(n, 1)
    standby = mine
    if device == "cpu" and not is_sized and budget is not None:  # the budget less the topology
        standby = rows_in(max(0, budget - topology), n, row_bytes) / max(n, 1)
    elif (device == "cpu" or is_sized) and split.trainers:  # a trainer's memory less the topology
        standby = rows_in(max(0, int(mine * n * row_bytes) - topology), n, row_bytes) / max(n, 1)
    if split.swap:
        standby = mine  # the topology is gone when the cache comes
    elif split.trainers == 0:
        mine = standby
    elif samples:
        mine = 1.0
    if not samples:
        standby = 1.0
    agreed = torch.tensor([mine, standby], dtype=torch.float64, device=rank.device)
    dist.all_reduce(agreed, dist.ReduceOp.MIN, group=rank.group)
    ratio, beside = agreed.tolist()
    return ratio, min(ratio, beside), working


def _hottest(
    rank: Any, chosen: System, graph: Any, sampler: Any, batch_size: int, seed: int, slots: Path
) -> np.ndarray:  # fmt: skip
    """All vertices, hottest first: rank 0, which samples, finds out and tells the others."""

    def found() -> np.ndarray:
        assert chosen.cache is not None
        hot = ranked(chosen.cache, graph, sampler, None, None, batch_size, seed)
        return to_host(hottest_first(hot, graph.num_nodes)).astype(np.int64)

    return _from_zero(rank, slots / "hottest.npy", found)


def _scores(order: np.ndarray | None, num_nodes: int, ratio: float) -> np.ndarray | None:
    """Scores whose ranking is ``order``; None where a cache of that size needs none."""
    if order is None or not 0 < rows_of_ratio(ratio, num_nodes) < num_nodes:
        return None
    scores = np.empty(num_nodes, dtype=np.float64)
    scores[order] = np.arange(num_nodes, 0, -1)
    return scores


def groups_of(rank: Any, members: tuple[int, ...]) -> tuple[Any, Any]:
    """Process groups of these ranks: for gradients, and for who trained on what. All ranks call it alike; warm ones
    keep what it made."""
    kept = _groups.setdefault(rank, {})
    if members not in kept:
        others = [r for r in range(rank.world_size) if r not in members]
        parts = [members, others] if others else [members]
        kept[members] = tuple(rank.another_group(backend, parts=parts) for backend in (None, "gloo"))
    found: tuple[Any, Any] = kept[members]
    return found


def with_queue(record: EpochRecord, depths: list[tuple[float, int]]) -> EpochRecord:
    """The record with the depth of the global queue, on the clock of its events."""
    queue = [(max(0.0, (at - record.begin_s) * 1e6), depth) for at, depth in depths]
    return replace(record, queues={"global queue": queue, **record.queues})
