"""NextDoor's tables 1 and 5: what sampling takes of training, and what replacing the sampler gains."""

from __future__ import annotations

import dataclasses
import functools
import statistics
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.record import graph_facts, scaled
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import Unavailable, VerificationError
from gnnsample_lab.bench.suites.fastgl import training
from gnnsample_lab.graph import load
from gnnsample_lab.graph.errors import DatasetNotFoundError, DownloadError
from gnnsample_lab.systems.sampled_training import METHODS, SampledRun, train_sampled

from . import cases as settings
from . import runs

TABLE5_GRAPHS = ("ppi-like", "reddit-like", "orkut-like", "patents-like", "livejournal-like")
MADE_UP_FEATURES, MADE_UP_CLASSES = 64, 16
REFERENCES = ("numpy", "walker")
ENGINES = ("published", "engine")
"""Samplers that draw the CPU walker's samples: NextDoor's as published, and ours."""
PASSES = 5
"""Groups of mini-batches that are timed, each sampled, then trained on."""
TOGETHER, QUICK_TOGETHER = 32, 4
_NUMPY_TOGETHER, _NUMPY_WARM = 2, 4
"""NumPy samples a mini-batch at a time, and layers of a large graph take it most of a second each: small groups, and
several that are not timed."""


def graph(session: Session, name: str) -> Any:
    """The graph with features and labels on the device, made up where it has none; None where it cannot be had."""

    def make() -> Any:
        base, scale = scaled(name)
        try:
            found = load(base, scale=scale, device="cpu", progress=False)
        except (DatasetNotFoundError, DownloadError) as error:
            session.say(f"{name} is left out: {error}")
            return None
        if found.feat is None or found.label is None:
            rng = np.random.default_rng(0)
            feat = rng.standard_normal((found.num_nodes, MADE_UP_FEATURES), np.float32)
            label = rng.integers(0, MADE_UP_CLASSES, found.num_nodes)
            found = dataclasses.replace(found, feat=feat, label=label, num_classes=MADE_UP_CLASSES)
        session.say(f"{name} with {found.num_features} features")
        return found.to(common.device())

    for key in [k for k in session._kept if k[0] == "sampled training graph" and k[1] != name]:
        del session._kept[key]  # features are large
    return session.kept(("sampled training graph", name), make)


def trained(session: Session, name: str, method: str, sampler: str) -> SampledRun:
    """One run, kept for both tables."""

    def make() -> SampledRun:
        by_hand = sampler == "numpy"
        together = _NUMPY_TOGETHER if by_hand else QUICK_TOGETHER if session.quick else TOGETHER
        size = None
        if session.quick and common.device() == "cpu":
            size = 16
        found = train_sampled(
            graph(session, name), method, sampler, steps=PASSES * together, together=together,
            device=common.device(), batch_size=size, warm_up=_NUMPY_WARM if by_hand else 1,
            # As many steps in a group as the engines have.
            rounds=max(1, (QUICK_TOGETHER if session.quick else TOGETHER) // together),
        )  # fmt: skip
        medians = [statistics.median(times) for times in zip(*found.groups, strict=True)]
        found = dataclasses.replace(found, sample_ms=medians[0], train_ms=medians[1])
        session.say(
            f"{name}, {method}, {sampler}: {found.sample_ms:.2f} ms to sample, {found.train_ms:.2f} ms to train a step"
        )
        return found

    return session.kept(("sampled training", name, method, sampler), make)


def check(session: Session, name: str, method: str) -> int:
    """On the same samples both engines train to the CPU walker's losses; the NumPy sampler's losses are finite.

    Raises:
        VerificationError: a loss differs or is not finite.
    """
    twin, count = trained(session, name, method, "walker").losses, 0
    for engine in ENGINES:
        losses = trained(session, name, method, engine).losses
        if not np.allclose(twin, losses, rtol=5e-3, atol=1e-3):
            worst = float(np.abs(np.array(twin) - losses).max())
            raise VerificationError(
                f"{method} on {name}, {engine}: other losses than the CPU walker's, by {worst:.2g}; nothing counts"
            )
        count += len(losses)
    if not np.isfinite(trained(session, name, method, "numpy").losses).all():
        raise VerificationError(
            f"{method} on {name}: the NumPy sampler's losses are not finite; nothing counts"
        )
    return count


def _methods(session: Session) -> tuple[str, ...]:
    return tuple(METHODS) if not session.quick else ("GraphSAGE", "FastGCN", "LADIES", "ClusterGCN")


def _spread(run: SampledRun, prefix: str = "") -> dict[str, dict[str, float]]:
    """p10 and p90 over the groups of a run: of sampling, of training and of an epoch of both."""
    sample, train = zip(*run.groups, strict=True)
    steps_s = [sum(times) * run.epoch_steps / 1e3 for times in run.groups]
    return {
        f"{prefix}sample_ms": timing.around(timing.spread(sample, "ms")),
        f"{prefix}train_ms": timing.around(timing.spread(train, "ms")),
        f"{prefix}epoch_s": timing.around(timing.spread(steps_s, "s")),
    }


def _row(name: str, run: SampledRun) -> dict[str, Any]:
    return {
        "graph": name, "method": run.method, "sampler": run.sampler, "device": common.device(), "l2": common.AS_LEFT,
        "sample_ms": run.sample_ms, "train_ms": run.train_ms, "sample_percent": run.sample_percent,
        "steps": run.steps, "steps_of_an_epoch": run.epoch_steps, "epoch_s": run.epoch_s, "spread": _spread(run),
    }  # fmt: skip


def _body(
    session: Session, wanted: list[str], rows: list[dict[str, Any]], losses: int, **settings: Any
) -> dict[str, Any]:
    if not rows:
        raise Unavailable("none of the graphs could be trained on")
    notes = []
    if common.device() == "cpu":
        notes.append(
            "Without a GPU: training and all sampling on the CPU, where the published engine and ours are one walker."
        )
    return {
        "settings": {
            "device": common.device(), "cpu_threads": runs.all_threads(),
            "l2": f"{common.AS_LEFT}: never flushed, a step finds what the one before left, as in training",
            "hidden": 64, "batch_size": "512 GraphSAGE, "
            "64 FastGCN, LADIES, MVS; 20 random clusters; 100 walkers of whom one moves, 100 steps",
            "features": f"{MADE_UP_FEATURES}, made up, and {MADE_UP_CLASSES} classes where a graph has none",
            "numpy": "as the method's system has it, NumPy on one core, rewritten",
            "sample_ms": f"of a step, as train_ms: the median of {PASSES} groups of {TOGETHER} mini-batches "
            f"({QUICK_TOGETHER} in a quick run, {_NUMPY_TOGETHER} of numpy's) that are sampled, then trained on; "
            "epoch_s: both medians times the steps of an epoch",
            "published": "NextDoor's engine, index='published'", "engine": "ours, index='auto'", **settings,
        },
        "verification": {"losses_equal_to_cpu_walkers": losses},
        "graphs": {name: graph_facts(found) for name in wanted if (found := _known(session, name)) is not None},
        "rows": rows, "notes": notes,
    }  # fmt: skip


def _known(session: Session, name: str) -> Any:
    found = session._kept.get(("sampled training graph", name))
    return found if found is not None else settings.graph(session, name)


def _wanted(session: Session, full: tuple[str, ...], quick: tuple[str, ...]) -> tuple[str, ...]:
    training.require_torch(session)
    return session.chosen or (quick if session.quick else full)


def table1(session: Session) -> dict[str, Any]:
    """Share of sampling in training with the methods' own samplers, with NextDoor's as published, and with ours."""
    rows, losses, facts = [], 0, []
    for name in _wanted(session, ("ppi-like", "reddit-like"), ("ppi-like",)):
        if graph(session, name) is None:
            continue
        facts.append(name)
        for method in _methods(session):
            found = session.piece((name, method), functools.partial(_shares, session, name, method))
            losses += found["losses"]
            rows += found["rows"]
    return _body(session, facts, rows, losses)


def _shares(session: Session, name: str, method: str) -> dict[str, Any]:
    """Table 1's ``rows`` of a method, and how many ``losses`` were compared."""
    losses = check(session, name, method)
    samplers = (*REFERENCES, *ENGINES)
    return {"losses": losses, "rows": [_row(name, trained(session, name, method, each)) for each in samplers]}


def table5(session: Session) -> dict[str, Any]:
    """End to end: epoch time with CPU samplers over that with NextDoor's as published, and with ours.

    Features and model are on the device in all.
    """
    rows, losses, facts = [], 0, []
    for name in _wanted(session, TABLE5_GRAPHS, ("ppi-like",)):
        if graph(session, name) is None:
            continue
        facts.append(name)
        for method in _methods(session):
            found = session.piece((name, method), functools.partial(_end_to_end, session, name, method))
            losses += found["losses"]
            rows += found["rows"]
    return _body(session, facts, rows, losses, speedup="of a step: sampling and training one after the other")


def _end_to_end(session: Session, name: str, method: str) -> dict[str, Any]:
    """Table 5's ``rows`` of a method, and how many ``losses`` were compared."""
    losses, rows = check(session, name, method), []
    published, ours = (trained(session, name, method, engine) for engine in ENGINES)
    for reference in REFERENCES:
        before = trained(session, name, method, reference)
        around = _spread(ours) | _spread(before, "reference_") | _spread(published, "published_")
        rows.append({
            **_row(name, ours), "spread": around, "reference": reference,
            "reference_sample_ms": before.sample_ms,
            "reference_train_ms": before.train_ms, "reference_epoch_s": before.epoch_s,
            "published_sample_ms": published.sample_ms, "published_train_ms": published.train_ms,
            "published_epoch_s": published.epoch_s,
            "published_speedup": before.step_ms / published.step_ms,
            "speedup": before.step_ms / ours.step_ms, "most_possible": before.step_ms / before.train_ms,
            "sampling_speedup": before.sample_ms / ours.sample_ms if ours.sample_ms else None,
        })  # fmt: skip
    return {"losses": losses, "rows": rows}
