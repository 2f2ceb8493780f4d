"""A training step as a whole: launched kernel by kernel from Python, and replayed as one CUDA graph.

"step": mini-batches of 1 024 seeds with everything on the GPU, wall time of an epoch over its steps, the executor that
the system uses, and beside it the sum of the kernels' own times. "epoch": FastGL's configuration (8 000 seeds, hidden
64), the lab system over DGL's.
"""

from __future__ import annotations

import functools
import statistics
from dataclasses import replace
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.quick_core import quick_pass
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites.fastgl import training
from gnnsample_lab.compute.models import make_model
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.features.caching.cache import FeatureCache
from gnnsample_lab.minibatch.export import tensor
from gnnsample_lab.minibatch.sampler import NeighborSampler
from gnnsample_lab.pipeline.captured import captured_step
from gnnsample_lab.pipeline.executors import shared_stream
from gnnsample_lab.pipeline.records import EpochRecord
from gnnsample_lab.systems.train import Prepared, prepare

GRAPHS = ("arxiv-like", "products-like")
SEEDS = 1024
STEPS, QUICK_STEPS = 80, 24
EPOCHS = 4
ROUNDS = 3
CASES = (("sage", 64), ("sage", 256), ("gcn", 64), ("gin", 64), ("gat", 64))
FIRST, LATER = 1e-5, 2e-3
"""Between losses of captured and plain steps: the first one, which no update precedes, and those after it. Atomics of
backward passes add in another order at each run, and small differences grow as training goes on."""
COMPARED = 8
"""Losses that are compared."""
NOT_REPLAYED, REPLAYED = 2, 3
"""Calls of a captured step before those that replay it: one of plain launches, one that is captured. And replays whose
losses are held to those of plain forward passes with the same weights."""
OVER_DGL = ("gcn", "gin", "gat")


def step(session: Session) -> dict[str, Any]:
    """The suite's function."""
    session.require_gpu("step")
    training.require_torch(session)
    names = session.chosen or (GRAPHS[:1] if session.quick else GRAPHS)
    rows: list[dict[str, Any]] = []
    verified = 0
    for name in names:
        found, checked = session.piece((name,), functools.partial(_steps, session, name))
        rows += found
        verified += checked
        for model in () if session.quick else OVER_DGL:
            rows += session.piece((name, model), functools.partial(_over_dgl, session, name, model))
    return {
        "settings": {
            "seeds": SEEDS, "fanouts": common.FANOUTS, "cache": "all rows", "dtype": "float32, TF32 off",
            "ms": f"wall time of an epoch over its steps, median over epochs after the first of {ROUNDS} runs, all "
            "other cases between them, each on a core that is quick before it and after it",
            "kernel_ms": "sum of the kernels' own times, by the profiler, in an epoch of its own",
            "l2": f"{common.AS_LEFT}: never flushed, a step finds what the one before left, as in training",
        },
        "verification": {
            "first_losses_equal_to_plain_steps": verified, "replayed_losses_equal_to_plain_ones": REPLAYED * verified,
        },
        "graphs": common.facts(session, names),
        "rows": rows,
    }  # fmt: skip


def _few_steps(session: Session, name: str) -> Any:
    """The graph with so many training vertices as make an epoch of a few steps."""
    whole = common.graph(session, name, features=True)
    seeds = np.random.default_rng(0).permutation(common.train_seeds(whole))
    few = np.sort(seeds[: (QUICK_STEPS if session.quick else STEPS) * SEEDS])
    return replace(whole, edge_weight=None, splits={"train": few}, validate=False)


def _steps(session: Session, name: str) -> tuple[list[dict[str, Any]], int]:
    """All cases with plain and with captured steps, in rounds: what disturbs the machine for seconds is met by one run
    of a case alone."""
    graph = _few_steps(session, name)
    cases = [
        (*case, captured) for case in (CASES[:2] if session.quick else CASES) for captured in (False, True)
    ]
    found: dict[tuple[str, int, bool], dict[str, Any]] = {}
    times: dict[tuple[str, int, bool], list[float]] = {case: [] for case in cases}
    losses: dict[tuple[str, int, bool], np.ndarray] = {}
    for turn in range(1 if session.quick else ROUNDS):
        for case in cases:
            model, hidden, captured = case
            given: dict[str, Any] = {
                "batch_size": SEEDS, "fanouts": common.FANOUTS, "hidden": hidden, "cache_ratio": 1.0,
                "device": common.device(), "captured": captured,
            }  # fmt: skip
            taken, ready = _epochs(graph, model, given)
            times[case] += [epoch.total_us / 1e3 / epoch.num_batches for epoch in taken]
            if turn == 0:
                losses[case] = np.array(ready.trainer.losses[:COMPARED])
                found[case] = {
                    "graph": name, "part": "step", "l2": common.AS_LEFT, "model": model, "hidden": hidden,
                    "batch_size": SEEDS, "system": "lab", "step": "captured" if captured else "plain",
                    "executor": ready.settings["executor"], "peak_mb": taken[-1].peak_bytes / 1e6,
                    **_kernels(graph, model, given),
                }  # fmt: skip
            del ready  # its memory is the next case's
            middle = statistics.median(times[case][-len(taken) :])
            session.say(f"{name}, {model}, hidden {hidden}, {found[case]['step']}: {middle:.3f} ms")
    for case, row in found.items():
        model, hidden, captured = case
        low, high = np.quantile(times[case], (0.1, 0.9))
        row |= {"ms": statistics.median(times[case]), "p10": float(low), "p90": float(high)}
        row["of_kernels"] = row["ms"] / row["kernel_ms"]
        if captured:
            plain = (model, hidden, False)
            row["x_plain"] = found[plain]["ms"] / row["ms"]
            row |= compared(f"{name}, {model}", losses[plain], losses[case])
            row["replayed_off"] = replayed_off(f"{name}, {model}", graph, model, hidden)
    return list(found.values()), sum(captured for *_, captured in cases)


def compared(what: str, plain: Any, losses: Any) -> dict[str, float]:
    """How far the first loss, and all of them, are from those of plain steps.

    Raises:
        VerificationError: further than :data:`FIRST` and :data:`LATER`.
    """
    difference = np.abs(np.subtract(plain, losses))
    first, most = float(difference[0]), float(difference.max())
    if not (first <= FIRST * max(1.0, abs(float(plain[0]))) and most <= LATER):
        raise VerificationError(f"{what}: losses differ by {first:.2g} at first and {most:.2g} later")
    return {"first_loss_off": first, "losses_off": most}


def replayed_off(what: str, graph: Any, model: str, hidden: int) -> float:
    """How far losses of replayed steps are from those of plain forward passes with the same weights, at most.

    Losses of a run are no measure of a replay: differences of earlier updates grow in them.

    Raises:
        VerificationError: further than :data:`FIRST`.
    """
    import torch

    device = common.device()
    torch.manual_seed(0)
    plain = replace(graph, feat=None, validate=False)
    sampler = NeighborSampler(plain if device == "cpu" else plain.to(device), common.FANOUTS, device=device)
    features = FeatureCache(graph.feat, ratio=1.0, device=device)
    network = make_model(model, features.num_features, hidden, graph.num_classes, len(common.FANOUTS)).to(
        device
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003, fused=device == "cuda")
    step = captured_step(network, optimizer, sampler, features)
    batch = sampler.sample(graph.splits["train"][:SEEDS])
    target = torch.as_tensor(np.asarray(graph.label)[to_host(batch.seeds)]).long().to(device)
    most = 0.0
    for call in range(NOT_REPLAYED + REPLAYED):
        with shared_stream(device), torch.no_grad():
            logits = network(batch.blocks, tensor(features.extract(batch.node_ids)[0]))
            wanted = float(torch.nn.functional.cross_entropy(logits, target, ignore_index=-1))
        found = float(step(batch))
        if call >= NOT_REPLAYED:
            most = max(most, abs(found - wanted) / max(1.0, abs(wanted)))
    if not most <= FIRST:
        raise VerificationError(f"{what}: losses of replayed steps differ by {most:.2g}")
    return most


def _epochs(graph: Any, model: str, given: dict[str, Any]) -> tuple[list[EpochRecord], Prepared]:
    """Epochs after a first one that compiles, each on a quick core, and what trained, which is closed."""
    ready = prepare(graph, model, "lab", **given)
    epoch = ready.trainer.epoch
    try:
        epoch(0)
        return [quick_pass(functools.partial(epoch, i), all_threads=True) for i in range(1, EPOCHS)], ready
    finally:
        ready.close()


def _kernels(graph: Any, model: str, given: dict[str, Any]) -> dict[str, Any]:
    """Summed time of the kernels and copies of a step, in milliseconds, and how often a step was captured."""
    from torch.profiler import ProfilerActivity, profile

    ready = prepare(graph, model, "lab", **given)
    trainer = ready.trainer
    trainer.epoch(0)
    trainer.epoch(1)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        trainer.epoch(2)
    spent = sum(event.self_device_time_total for event in seen.key_averages())
    captures = None if trainer.captured is None else trainer.captured.captures
    found = {"kernel_ms": spent / 1e3 / len(trainer.plan(2)), "captures": captures}
    ready.close()
    return found


def _over_dgl(session: Session, name: str, model: str) -> list[dict[str, Any]]:
    """Epochs in FastGL's configuration: DGL's system and the lab system, both at their best epoch."""
    rows = []
    for system in ("dgl", "lab"):
        found = training.run(session, name, system, model)
        around = found["spread"]["step_ms"]
        rows.append(
            {key: found[key] for key in ("graph", "system", "model", "hidden", "batch_size", "epoch_s", "peak_mb")}
            | {"part": "epoch", "l2": common.AS_LEFT, "ms": found["step_ms"], "p10": around["p10_ms"],
               "p90": around["p90_ms"], "executor": found["executor"],
               "step": "captured" if system == "lab" else "plain"}
        )  # fmt: skip
    rows[1]["x_dgl"] = rows[0]["epoch_s"] / rows[1]["epoch_s"]
    session.say(f"{name}, {model}: {rows[1]['x_dgl']:.1f} x of DGL's configuration")
    return rows
