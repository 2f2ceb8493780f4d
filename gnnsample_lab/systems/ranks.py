"""``lab.train`` on several ranks: the graph as files that all of them map, one job for each, one result."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gnnsample_lab.device.capturing import wait_for_device
from gnnsample_lab.files import scratch_folder
from gnnsample_lab.graph import cache, roots
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.pipeline.memory import apart
from gnnsample_lab.pipeline.records import EpochRecord, RankMemory, merged
from gnnsample_lab.spans import covered

from .budget import peak_within_budget
from .features import sampled_bytes

Part = dict[str, Any]
"""What a rank hands back: records, losses, weights."""


@contextlib.contextmanager
def shared_graph(graph: Graph) -> Iterator[Path]:
    """A folder from which every process of this host maps ``graph``: its cache folder, else a copy for the while."""
    folder = cache.folder_of(graph)
    if folder is not None:
        yield folder
        return
    place = roots.cache_folder(roots.data_root())
    with scratch_folder("lab-train", place) as base:
        on_host = graph.to("cpu") if graph.device != "cpu" else graph
        cache.write(base / "graph", on_host, "")
        yield base / "graph"


def open_shared(folder: Path) -> Graph:
    """The graph of :func:`shared_graph`, in a rank."""
    graph = cache.open_graph(folder)
    if graph is None:
        raise RuntimeError(f"the graph that the ranks share is not in {folder} any more")
    return graph


def train_slices(rank: Any, folder: Path, job: dict[str, Any]) -> Part:
    """On a rank that a parent started: train on its slices; the first one hands back what all ranks have alike."""
    part, network = train_rank(rank, open_shared(folder), job)
    if rank.index:
        return {**part, "losses": [], "batch_ids": []}
    return {**part, "weights": {name: value.cpu() for name, value in network.state_dict().items()}}


def train_rank(rank: Any, graph: Graph, job: dict[str, Any]) -> tuple[Part, Any]:
    """Train on this rank's slices of all mini-batches; what came of it, and the trained module."""
    from .train import run_epochs

    device = "cpu" if rank.backend == "gloo" else "cuda"
    with rank.stage("train"):
        job = {**job, "device": device}
        ready, records, accuracy = run_epochs(graph, job, rank)
        trainer = ready.trainer
        memory = memory_of(trainer, rank.index, "all stages", records)  # before it is given back
        ready.close()
    return {
        "records": records, "setup_us": ready.setup_us, "ratio": ready.cache_ratio, "notes": ready.notes,
        "settings": ready.settings, "losses": trainer.losses, "batch_ids": trainer.batch_ids, "accuracy": accuracy,
        "resumed": trainer.resumed, "update_sizes": trainer.sizes_of_updates(), "memory": memory,
        "kernels": job.get("ran"), "gpu_busy": job.get("busy"), "draws": trainer.draws,
    }, trainer.model  # fmt: skip


def memory_of(trainer: Any, rank: int, role: str, records: list[EpochRecord]) -> RankMemory:
    """What a trainer's device holds."""
    sampler, cache = trainer.sampler, trainer.plain_features.cache
    topology = 0
    if sampler.device == trainer.device and role != "trainer":  # whose sampler numbers mini-batches alone
        topology = sampled_bytes(sampler)
    held = trainer.held()
    return RankMemory(
        rank, role, topology, int(cache.nbytes), float(cache.ratio), max(held.total, *(r.peak_bytes for r in records)),
        held.cupy, held.torch, held.peers, apart(trainer.device), trainer.given_back.times,
    )  # fmt: skip


def check_peak(trainer: Any, record: EpochRecord, budget_bytes: int) -> None:
    """Raises MemoryError, naming the parts, where an epoch held more than the budget."""
    memory = memory_of(trainer, 0, "all stages", [record])
    peak_within_budget(record.peak_bytes, trainer.held(), memory.topology, memory.cache, budget_bytes)


@contextlib.contextmanager
def kernels_into(job: dict[str, Any], device: str, epoch: int) -> Iterator[None]:
    """Put the names of the kernels that run in the block, and how often, into ``job["ran"]``, if it asks for them, and
    into ``job["busy"]`` for which share of the block's time at least one of them ran.

    CUPTI sees all kernels of the process, those of CuPy too.
    """
    if not job["kernels"] or device == "cpu" or epoch + 1 < job["epochs"]:
        yield
        return
    from torch.profiler import ProfilerActivity, profile

    with tempfile.TemporaryDirectory(prefix="lab-kernels-") as folder:
        file = Path(folder) / "trace.json"
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            began = time.perf_counter()
            yield
            wait_for_device()
            us = (time.perf_counter() - began) * 1e6
        found.export_chrome_trace(str(file))
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    ran = [event for event in events if event.get("cat") == "kernel"]
    job["ran"] = dict(Counter(str(event["name"]) for event in ran))
    spans = ((float(event["ts"]), float(event["ts"]) + float(event["dur"])) for event in ran)
    job["busy"] = min(1.0, covered(spans) / us)


def merged_epochs(parts: list[Part]) -> list[EpochRecord]:
    """One record an epoch of what all ranks recorded."""
    return [merged(list(epochs)) for epochs in zip(*(part["records"] for part in parts), strict=True)]
