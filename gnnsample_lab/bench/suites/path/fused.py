"""The last hop, its rows and the first mean or sum in one pass, beside sampling, extraction and it one after the other.

"stages": from seeds to the first layer's means (GraphSAGE) or sums (GIN), each mini-batch alone; one after the other in
two ways, rows by a call of their own, and rows with the launch that samples (``TorchBatch.x``), and ratios are over the
quicker one. "step": captured
training steps over an epoch of mini-batches, with either sampler, and the same steps replayed on inputs that stay where
they are: what is left when the stages cost nothing. Both sides draw the same picks, read the same table on the device,
and replay the same captured step.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.quick_core import quick_core
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites.fastgl import training
from gnnsample_lab.compute.aggregation.aggregate import aggregate
from gnnsample_lab.compute.fused.sampler import FusedSampler
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.features.caching.cache import FeatureCache
from gnnsample_lab.minibatch.export import tensor
from gnnsample_lab.minibatch.sampler import NeighborSampler

from .step import compared

GRAPHS = ("arxiv-like", "products-like")
SEEDS, HIDDEN = 1024, 64
FANOUTS = ((15, 10, 5), (10, 10, 10), (15, 10))
MODELS = {"sage": "mean", "gin": "sum"}
"""Model -> what its first layer asks for."""
STEPS, QUICK_STEPS = 80, 24
EPOCHS = 6
APART, FUSED, REMOVED = "one after the other", "fused", "removed"
WITH_ROWS = f"{APART}, rows with the launch"
TOLERANCE = 1e-5
"""Relative, between sums of the same rows in another order."""
COMPARED = 8
"""Losses that are compared (:func:`.step.compared`)."""


def fused_step(session: Session) -> dict[str, Any]:
    """The suite's function."""
    training.require_torch(session)
    where = common.device()
    names = session.chosen or (GRAPHS[:1] if session.quick else GRAPHS)
    rows: list[dict[str, Any]] = []
    verified = {"means_equal": 0, "sums_equal": 0, "first_losses_equal": 0}
    for name in names:
        graph, cache, seeds = _inputs(session, name, where)
        for model in MODELS:
            for fanouts in FANOUTS[:1] if session.quick else FANOUTS:
                samplers = _samplers(graph, cache, fanouts, where, model)
                verified[f"{MODELS[model]}s_equal"] += _verify(samplers, cache, seeds)
                rows += _stages(session, name, model, samplers, cache, seeds)
            for fanouts in FANOUTS[::2][: 1 if session.quick else 2]:
                samplers = _samplers(graph, cache, fanouts, where, model)
                rows += _steps(session, name, model, graph, samplers, cache)
                verified["first_losses_equal"] += 1
    return {
        "settings": {
            "seeds": SEEDS, "model": f"{', '.join(MODELS)}, hidden {HIDDEN}", "device": where,
            "features": "all rows on the device, float32, TF32 off",
            "us": "from seeds to the first layer's means, of gin sums: wall time, each mini-batch alone",
            "rows with the launch": "to_torch().x, whose launch writes lists of edges as well; not compared in steps",
            "busy_us": "time in which kernels or copies run, by the profiler",
            "kept_mb": "device memory of what the stages leave: samples, rows, means or sums",
            "l2": f"{common.AS_LEFT}: never flushed, a mini-batch finds what the one before left",
            "ms": "wall time of an epoch over its steps: sampling ahead by eight, then a captured step each",
            "removed": "the same captured step replayed on inputs that stay: no sampling, no rows, no means or sums",
        },
        "verification": verified, "graphs": common.facts(session, names), "rows": rows,
    }  # fmt: skip


def _inputs(session: Session, name: str, where: str) -> tuple[Any, FeatureCache, list[Any]]:
    """The graph with few training vertices on the device, its features there, and seeds of mini-batches."""
    host = common.graph(session, name, features=True)
    count = QUICK_STEPS if session.quick else STEPS
    size = common.batch_size(name, host, SEEDS)
    order = np.random.default_rng(0).permutation(common.train_seeds(host))[: count * size]
    feat = np.asarray(host.feat, np.float32)
    few = replace(host, edge_weight=None, feat=feat, splits={"train": np.sort(order)}, validate=False)
    cache = FeatureCache(feat, ratio=1.0, device=where)
    graph = few if few.device == where else few.to(where)
    if where == "cuda":
        import cupy

        order = cupy.asarray(order)
    return graph, cache, [order[i * size : (i + 1) * size] for i in range(max(1, len(order) // size))]


def _samplers(
    graph: Any, cache: FeatureCache, fanouts: tuple[int, ...], where: str, model: str
) -> dict[str, Any]:
    plain = replace(graph, feat=None, validate=False)
    return {
        APART: NeighborSampler(plain, fanouts, strategy="captured", device=where),
        WITH_ROWS: NeighborSampler(graph, fanouts, strategy="captured", device=where),
        FUSED: FusedSampler(plain, fanouts, cache, MODELS[model], strategy="captured", device=where),
    }


def _stage_work(
    samplers: dict[str, Any], cache: FeatureCache, seeds: list[Any]
) -> dict[str, Callable[[int], Any]]:
    reduce = samplers[FUSED].reduce

    def apart(i: int) -> Any:
        batch = samplers[APART].sample(seeds[i % len(seeds)], i)
        x = cache.extract(batch.node_ids)[0]
        return batch, x, aggregate(batch.blocks[0], x, reduce=reduce)

    def with_rows(i: int) -> Any:
        batch = samplers[WITH_ROWS].sample(seeds[i % len(seeds)], i)
        x = batch.to_torch().x
        return batch, x, aggregate(batch.blocks[0], x, reduce=reduce)

    def fused(i: int) -> Any:
        batch = samplers[FUSED].sample(seeds[i % len(seeds)], i)
        return batch, batch.x, batch.blocks[0].total

    return {APART: apart, WITH_ROWS: with_rows, FUSED: fused}


def _verify(samplers: dict[str, Any], cache: FeatureCache, seeds: list[Any]) -> int:
    """All ways have the same own rows, bit for bit, and the same means or sums."""
    work = _stage_work(samplers, cache, seeds)
    apart = (APART, APART, *(WITH_ROWS for _ in range(4)))  # of the last ones the launch has brought the rows
    for i, way in enumerate(apart):
        batch, x, combined = work[way](i)
        fused, own, total = work[FUSED](i)
        n, order, other = len(fused.node_ids), *(np.argsort(to_host(b.blocks[0].dst)) for b in (batch, fused))
        if n != len(order) or not np.array_equal(to_host(own)[other], to_host(x)[:n][order]):
            raise VerificationError("fused: vertices or their rows differ")
        if not np.allclose(to_host(total)[other], to_host(combined)[order], rtol=TOLERANCE, atol=TOLERANCE):
            what = f"{samplers[FUSED].reduce}s"
            raise VerificationError(f"fused: {what} differ from those of the sampled block")
    return len(apart)


def _stages(
    session: Session, name: str, model: str, samplers: dict[str, Any], cache: FeatureCache, seeds: list[Any]
) -> list[dict[str, Any]]:
    rows = []
    for way, work in _stage_work(samplers, cache, seeds).items():
        for i in range(16):  # until the sampler knows how much memory a mini-batch gets
            work(i)
        calls = 4 if session.quick else 32
        times = list(itertools.chain.from_iterable(timing.wall_passes(work, calls)))
        row = {
            "graph": name, "part": "stages", "l2": common.AS_LEFT, "model": model,
            "fanouts": list(samplers[APART].fanouts), "batch_size": len(seeds[0]), "way": way,
            **timing.spread(times), "busy_us": timing.busy_us(work, calls), "kept_mb": _kept_bytes(work) / 1e6,
        }  # fmt: skip
        rows.append(row)
        session.say(f"{name}, {model}, {samplers[APART].fanouts}, stages {way}: {row['us']:.0f} us")
    *apart, fused = rows
    _ratios(apart, fused, "us")
    return rows


def _ratios(apart: Sequence[dict[str, Any]], fused: dict[str, Any], key: str) -> None:
    """Over the quicker of several ways, and the memory of the first."""
    fused["x_apart"] = min(row[key] for row in apart) / fused[key]
    busy = [row["busy_us"] for row in apart if row.get("busy_us")]
    if busy and fused.get("busy_us"):
        fused["x_busy"] = min(busy) / fused["busy_us"]
    if apart[0].get("kept_mb"):
        fused["memory_share"] = fused["kept_mb"] / apart[0]["kept_mb"]


def _kept_bytes(work: Callable[[int], Any]) -> int:
    """Device memory in which the results of ``work`` lie, the most of four mini-batches."""
    if common.device() == "cpu":
        return 0
    import cupy
    import torch

    def used() -> int:
        return int(cupy.get_default_memory_pool().used_bytes()) + int(torch.cuda.memory_allocated())

    most = 0
    for i in range(4):
        before = used()
        kept = work(i)
        most = max(most, used() - before)
        del kept
    return most


def _steps(
    session: Session, name: str, model: str, graph: Any, samplers: dict[str, Any], cache: FeatureCache
) -> list[dict[str, Any]]:
    """Captured steps with either sampler in turns, epoch by epoch, so that both meet the same machine."""
    import torch

    from gnnsample_lab.compute.models import make_model
    from gnnsample_lab.pipeline.captured import captured_step

    made: dict[str, Any] = {}
    for way in (APART, FUSED):
        sampler = samplers[way]
        torch.manual_seed(0)
        network = make_model(model, cache.num_features, HIDDEN, graph.num_classes, len(sampler.fanouts))
        network = network.to(sampler.device)
        optimizer = torch.optim.Adam(network.parameters(), lr=0.003, fused=sampler.device == "cuda")
        made[way] = captured_step(network, optimizer, sampler, cache)
    seeds, size = (
        graph.splits["train"],
        SEEDS if len(graph.splits["train"]) >= SEEDS else len(graph.splits["train"]),
    )
    times: dict[str, list[float]] = {APART: [], FUSED: []}
    losses: dict[str, list[Any]] = {}
    for epoch in range(EPOCHS if not session.quick else 3):
        for way, step in made.items():
            ms, found = _each_ms(map(step, samplers[way].epoch(seeds, size, epoch=epoch)))
            times[way].append(ms)
            losses.setdefault(way, [float(loss) for loss in found[:COMPARED]])
    off = compared(f"{name}, {model}, fused", losses[APART], losses[FUSED])
    times[REMOVED] = [
        _removed_ms(made[FUSED], next(iter(samplers[FUSED].epoch(seeds, size)))) for _ in range(EPOCHS)
    ]
    rows: list[dict[str, Any]] = []
    for way, taken in times.items():
        later = taken[1:] or taken
        rows.append(
            {"graph": name, "part": "step", "l2": common.AS_LEFT, "model": model,
             "fanouts": list(samplers[APART].fanouts), "batch_size": size, "way": way, **timing.spread(later, "ms")}
        )  # fmt: skip
        session.say(
            f"{name}, {model}, {samplers[APART].fanouts}, step {way}: {statistics.median(later):.3f} ms"
        )
    apart, fused, removed = rows
    _ratios([apart], fused, "ms")
    removed["x_apart"] = apart["ms"] / removed["ms"]
    fused["of_allowed"] = fused["x_apart"] / removed["x_apart"]
    fused |= off
    return rows


def _each_ms(losses: Iterable[Any]) -> tuple[float, list[Any]]:
    """Milliseconds of each of some steps, which are taken as their losses are asked for, and these."""
    with quick_core():
        timing.synchronize()
        began = time.perf_counter()
        found = list(losses)
        timing.synchronize()
        return (time.perf_counter() - began) * 1e3 / len(found), found


def _removed_ms(step: Any, batch: Any) -> float:
    """Milliseconds of a step whose mini-batch lies where the step reads it: on a CPU one whose sums are made."""
    blocks, seeds = batch.blocks, tensor(batch.seeds)
    _ = blocks[0].own

    def again() -> Iterator[Any]:
        for _ in range(STEPS):
            yield step.replay() if step.on_gpu else step._train(blocks, None, seeds, True)[0]

    step(batch)
    return _each_ms(again())[0]
