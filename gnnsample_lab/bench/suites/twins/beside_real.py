"""Twins beside real graphs: the same samples of both, with the same training sets and the same rule for the batch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session
from gnnsample_lab.graph import load

from .judge import Cell, status_of
from .metrics import LAST, Key, Numbers, Plan, choose_plan, metrics, structural

SEEDS = (0, 1, 2)
"""Seeds of the twins, of which the median counts; the i-th one is sampled with the i-th training split."""
SPLITS = (0, 1, 2)
"""Training splits of the original: its value is their mean, its own spread the largest minus the smallest."""
REAL = {
    "snap:soc-Epinions1": (True, False), "ogbl-ddi": (None,), "musae-facebook": (None,), "musae-git": (None,),
    "musae-twitch-de": (None,),
}  # fmt: skip
"""Real graph -> ``undirected`` of each version of it that is loaded; None: as its source has it."""
QUICK = ("musae-twitch-de",)
QUICK_POLICIES = ("random", "degree", "presample", "optimal")


class Case(NamedTuple):
    """A real graph, and the name of its rows."""

    name: str
    graph: str
    undirected: bool | None


def cases(name: str) -> list[Case]:
    """The versions of a real graph that are compared."""
    return [
        Case(f"{name}, directed" if undirected is False else name, name, undirected)
        for undirected in REAL.get(name, (None,))
    ]


def original(case: Case) -> Any:
    """The real graph, on the CPU, without features."""
    more: dict[str, Any] = {} if case.undirected is None else {"undirected": case.undirected}
    return load(case.graph, device="cpu", features=False, **more)


def twins_of(graph: Any, seeds: Sequence[int]) -> tuple[Mapping[str, Any], list[Any]]:
    """Statistics of a graph, and its twins made of nothing else."""
    import gnnsample_lab as lab

    statistics = lab.twin_statistics(graph)
    return statistics, [lab.twin(statistics, seed=seed, device="cpu") for seed in seeds]


def compare(session: Session, case: Case) -> tuple[list[Cell], dict[str, Any]]:
    """The cells of one real graph, and what a reader has to know of them."""
    began = time.perf_counter()
    device = common.device()
    graph = original(case)
    plan, share = choose_plan(graph, device)
    few: dict[str, Any] = {"policies": QUICK_POLICIES, "epochs": 2} if session.quick else {}
    splits, seeds = (SPLITS[:2], SEEDS[:1]) if session.quick else (SPLITS, SEEDS)
    of_graph = structural(graph)
    originals = [
        of_graph | metrics(graph, plan, split=s, device=device, clustering=None, **few) for s in splits
    ]
    session.say(f"{case.name}: {plan}, a batch holds {100 * share:.1f} % of the vertices")
    statistics, twins = twins_of(graph, seeds)
    looks = []
    for split, twin in zip(splits, twins, strict=False):
        looks.append(
            structural(twin) | metrics(twin, plan, split=split, device=device, clustering=None, **few)
        )
    cells = cells_of(case.name, plan, originals, looks, statistics.get("sources", {}))
    about = {
        "kind": "real", "original": case.graph, "num_nodes": graph.num_nodes, "num_edges": graph.num_edges,
        "twin_edges": int(np.median([twin.num_edges for twin in twins])), "setting": str(plan),
        "batch_share_percent": 100 * share, "seeds": len(seeds), "splits": len(splits),
        "twin_share_percent": 100 * float(np.median([look[Key("rows", "", "random")] for look in looks]))
        / graph.num_nodes, "seconds": time.perf_counter() - began,
    }  # fmt: skip
    if one_way(graph):
        about["remark"] = (
            "the file lists every pair once, and all edges lead from lower to higher ids or all the other way: their "
            "direction is how the file was written, which no twin repeats"
        )
    return cells, about


def one_way(graph: Any) -> bool:
    """Whether all edges lead from lower to higher ids, or all from higher to lower: a list of pairs, not of arcs."""
    src, dst = graph.indices, np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    return bool(len(src)) and bool((src < dst).all() or (src > dst).all())


def counts(key: Key) -> bool:
    """Whether a measured number is a cell: with the last incomplete mini-batch only where papers count it."""
    return not key.detail.endswith(LAST) or key.quantity.startswith(("match", "similarity"))


def cells_of(
    name: str, plan: Plan, originals: Sequence[Numbers], twins: Sequence[Numbers], sources: Mapping[str, Any]
) -> list[Cell]:
    """The numbers of a graph and of its twins, key by key."""
    found = []
    for key in filter(counts, originals[0]):
        values = [one[key] for one in originals if key in one]
        seen = [one.get(key, float("nan")) for one in twins]
        mean = float(np.mean(values))
        found.append(Cell(
            graph=name, beside="real", quantity=key.quantity, detail=key.detail, training=key.training,
            twin=float(np.median(seen)), low=mean, high=mean, spread=max(values) - min(values), twins=tuple(seen),
            status=status_of(*key, sources=sources), source="measured here", setting=str(plan) if key.training else "",
        ))  # fmt: skip
    return found
