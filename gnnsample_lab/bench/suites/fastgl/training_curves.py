"""FastGL's figure 16: does the faster path train to the same loss and accuracy?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, convergence
from gnnsample_lab.bench.session import Session
from gnnsample_lab.systems.train import train

from .papers import left_gb
from .training import CAPACITY, featured, require_torch, verify

SYSTEMS = ("dgl", "fastgl", "lab")
SEEDS = (0, 1, 2)


def figure16(session: Session) -> dict[str, Any]:
    """Loss and accuracy of three systems, two models and three seeds, on Reddit's twin and on a real graph."""
    require_torch(session)
    checked = verify(session, SYSTEMS)
    names, notes = convergence.graphs(session, "reddit-like")
    models = ("gcn",) if session.quick else ("gcn", "gin")
    epochs = 4 if session.quick else 10
    fanouts = (10, 5) if session.quick else common.FANOUTS
    rows: list[dict[str, Any]] = []
    for name in names:
        found = featured(session, name)
        placed = session.kept(
            ("curves", name), functools.partial(found.to, common.device(), features=False)
        )  # fmt: skip
        seeds = len(common.train_seeds(found))
        size = max(1, min(1024 if seeds < 50_000 else 2048, seeds // 8))
        left = left_gb(name, int(found.feat.nbytes))
        for model in models:
            for system in SYSTEMS:
                one = functools.partial(
                    train, placed, model, system, epochs=epochs, batch_size=size, fanouts=fanouts, progress=False,
                    cache_gb=None if system == "dgl" else left,
                )  # fmt: skip
                rows += session.piece((name, model, system), functools.partial(_curves, name, one, size))
                last = [row["final_accuracy"] for row in rows[-len(SEEDS) :]]
                session.say(f"{name}, {model}, {system}: accuracy {np.mean(last):.4f}")
    return {
        "settings": {
            "device": common.device(), "systems": SYSTEMS, "seeds": SEEDS, "epochs": epochs, "fanouts": fanouts,
            **CAPACITY, **convergence.UNTIMED,
        },
        "verification": checked, "graphs": common.facts(session, names), "rows": rows,
        "notes": notes,
    }  # fmt: skip


def _curves(name: str, trained: Callable[..., Any], size: int) -> list[dict[str, Any]]:
    """Rows of one graph, model and system, one of each of :data:`SEEDS`."""
    return [
        convergence.curve(name, trained(seed=seed), seed=seed, is_timed=False, batch_size=size)
        for seed in SEEDS
    ]
