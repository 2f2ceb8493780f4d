"""Epochs by system, stage and caching policy: GNNLab's tables 4 and 5 and figure 13."""

from __future__ import annotations

import functools
from typing import Any

from gnnsample_lab.bench.record import scaled
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suites.dsp import crew

from . import runs
from .runs import GPUS, SYSTEMS, Task

POLICIES = ("random", "degree", "presample")
SWITCHING = (
    f"gnnlab's samplers that have sampled all train while that pays, on 2 to {GPUS - 1} GPUs, as in GNNLab's section "
    f"5.3; not on the modelled {GPUS}, where it hardly ever pays; one GPU always does first the one and then the other"
)


def table4(session: Session) -> dict[str, Any]:
    """Epoch time by model and system: on the GPUs that there are measured, on the paper's eight modelled."""
    runs.verify(session)
    names, rows = runs.graphs(session), list[dict[str, Any]]()
    for name in names:
        for model in runs.models(session, name):
            rows += session.piece((name, model), functools.partial(_by_system, session, name, model))
    runs.against(rows)
    return runs.record(session, names, rows, budgets=_budgets(session, rows), switching=SWITCHING)


def _by_system(session: Session, name: str, model: str) -> list[dict[str, Any]]:
    """Rows of table 4 of one graph and model."""
    rows = list[dict[str, Any]]()
    for system in SYSTEMS:
        if system == "pyg-cpu" and (name, model) != (runs.graphs(session)[0], "gcn"):
            continue  # the slowest by far, as in the paper: one row shows it
        counts = (1,) if system == "pyg-cpu" else (*crew.worlds(), GPUS)
        rows += [
            runs.row(session, Task(name, model, system, gpus, switching=_switches(system, gpus)))
            for gpus in dict.fromkeys(counts)
        ]
    return rows


def _switches(system: str, gpus: int) -> bool:
    """Whether samplers of table 4 train when they have sampled all: it matters where trainers are few."""
    return system == "gnnlab" and 1 < gpus < GPUS


def table5(session: Session) -> dict[str, Any]:
    """Stages of an epoch on two GPUs, with cache ratio and hit rate, under one budget of device memory."""
    runs.verify(session)
    names, rows = runs.graphs(session), list[dict[str, Any]]()
    gpus = min(2, crew.most_ranks())
    for name in names:
        for model in runs.models(session, name):
            budget = runs.budget_gb(session, name, model)
            for system in SYSTEMS[1:]:
                rows.append({**runs.row(session, Task(name, model, system, gpus)), "budget_gb": budget})
    return runs.record(session, names, rows)


def figure13(session: Session) -> dict[str, Any]:
    """Epochs of the factored design by caching policy: two GPUs, and modelled on eight."""
    runs.verify(session)
    # Products is left out as in the paper: all of its features are cached.
    names = tuple(name for name in runs.graphs(session) if scaled(name)[0] != "products-like")
    names, rows = names or runs.graphs(session), list[dict[str, Any]]()
    for name in names:
        for model in runs.models(session, name):
            for gpus in dict.fromkeys((*crew.worlds()[1:2], GPUS)):
                found = [
                    runs.row(
                        session,
                        Task(name, model, "gnnlab", gpus, policy=None if policy == "presample" else policy),
                    )
                    for policy in POLICIES
                ]
                times = {row["policy"]: row["epoch_s"] for row in found}
                for row in found:
                    row["less_than_degree"] = 1 - row["epoch_s"] / times["degree"]
                    row["less_than_random"] = 1 - row["epoch_s"] / times["random"]
                rows += found
    return runs.record(session, names, rows)


def _budgets(session: Session, rows: list[dict[str, Any]]) -> dict[str, float]:
    """10^9 bytes for topology and cache by graph and model."""
    pairs = dict.fromkeys((row["graph"], row["model"]) for row in rows)
    return {f"{name}, {model}": runs.budget_gb(session, name, model) for name, model in pairs}
