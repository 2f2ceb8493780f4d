"""PGSampler's figure 11: does training on the queue's samples reach the accuracy of DGL's?"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.bench import common, convergence
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites.fastgl.training import require_torch, verify
from gnnsample_lab.minibatch.sampler import NeighborSampler
from gnnsample_lab.systems.table import find
from gnnsample_lab.systems.train import make_sampler, train

MODEL, HIDDEN, LR = "sage", 256, 0.003
BATCH, FANOUT = 10240, 10
SEEDS, QUICK_SEEDS = (0, 1, 2), (0, 1)
EPOCHS, QUICK_EPOCHS = 20, 4
PUBLISHED = "pgsampler, published completion"
"""Algorithm 1 as it is printed, with the tasks that its completion rule loses; on a GPU."""
STEPS = 20
"""An epoch has no fewer mini-batches than the paper's on ogbn-products: smaller graphs have smaller ones."""
DGL_SEED = 1000
"""Added to the seed of DGL's draws alone. A draw follows from its key: under one key both systems train on the same
mini-batches, and what they reach is the same by construction."""
SAME_KEY = (
    "Under one key the samplers of dgl and pgsampler draw identical mini-batches (verified on a GPU: "
    "same_key_mini_batches); here dgl's has a key of its own. Seeds of mini-batches, their order and initial weights "
    "are the same."
)


def _sampler(graph: Any, system: str, fanouts: tuple[int, ...], seed: int) -> Any:
    return make_sampler(graph, MODEL, find(system), fanouts, common.device(), seed, weighted=False)


def same_under_one_key(graph: Any, batch_size: int, fanouts: tuple[int, ...], count: int = 2) -> int:
    """How many mini-batches of the two systems' samplers are identical under one key: all that are drawn.

    Raises:
        VerificationError: one is not.
    """
    train_seeds = common.train_seeds(graph)
    ours, theirs = (_sampler(graph, system, fanouts, 0) for system in ("pgsampler", "dgl"))
    for number in range(count):
        seeds = train_seeds[number * batch_size : (number + 1) * batch_size]
        if ours.sample(seeds, number).canonical() != theirs.sample(seeds, number).canonical():
            raise VerificationError(f"mini-batch {number} of pgsampler differs from dgl's under one key")
    return count


def figure11(session: Session) -> dict[str, Any]:
    """Validation accuracy of GraphSAGE with 2 and 3 layers, DGL's sampler under a key of its own against the queue."""
    require_torch(session)
    systems = ("dgl", "pgsampler")
    checked = verify(session, systems)
    names, notes = convergence.graphs(session, "products-like@0.1" if session.quick else "products-like")
    on_gpu = common.device() == "cuda"
    hidden = HIDDEN if on_gpu else 32
    seeds = QUICK_SEEDS if session.quick else SEEDS
    epochs = QUICK_EPOCHS if session.quick else EPOCHS
    rows: list[dict[str, Any]] = []
    same = 0
    for name in names:
        graph = common.graph(session, name, features=True).to(common.device(), features=False)
        size = min(BATCH, -(-len(common.train_seeds(graph)) // STEPS))
        for layers in (3,) if session.quick else (2, 3):
            fanouts = (FANOUT,) * layers
            if on_gpu:  # on a CPU both systems have the one twin's samples
                same += same_under_one_key(graph, size, fanouts)
            for system in (*systems, *((PUBLISHED,) if on_gpu else ())):
                for seed in seeds:
                    more: dict[str, Any] = {}
                    if system == PUBLISHED:
                        more["sampler"] = NeighborSampler(
                            graph,
                            fanouts,
                            strategy="persistent",
                            pick="reservoir",
                            completion="paper",
                            seed=seed,
                        )
                    elif system == "dgl":
                        more["sampler"] = _sampler(graph, system, fanouts, seed + DGL_SEED)
                    result = train(
                        graph, MODEL, "pgsampler" if system == PUBLISHED else system, epochs=epochs,
                        batch_size=size, fanouts=fanouts, hidden=hidden, lr=LR, seed=seed, progress=False, **more,
                    )  # fmt: skip
                    row = convergence.curve(
                        name, result, seed=seed, is_timed=False, batch_size=size, layers=layers
                    )
                    rows.append({**row, "system": system, "model": f"{MODEL}, {layers} layers"})
                last = [row["final_accuracy"] for row in rows[-len(seeds) :]]
                session.say(f"{name}, {layers} layers, {system}: accuracy {np.mean(last):.4f}")
    return {
        "settings": {
            "device": common.device(), "seeds": seeds, "epochs": epochs, "fanout": FANOUT, "hidden": hidden, "lr": LR,
            "dgl_seed": f"of dgl's draws: seed + {DGL_SEED}",
            "batch_size": f"{BATCH}, fewer where an epoch would have less than {STEPS} mini-batches",
            **convergence.UNTIMED,
        },
        "verification": {**checked, "same_key_mini_batches": same},
        "graphs": common.facts(session, names), "rows": rows,
        "notes": [*notes, SAME_KEY],
    }  # fmt: skip
