"""NextDoor's evaluation as settings: the applications, how many samples of each, and the graphs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gnnsample_lab.bench import common
from gnnsample_lab.bench.record import graph_facts, scaled
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import Unavailable
from gnnsample_lab.graph import load
from gnnsample_lab.graph.errors import DatasetNotFoundError, DownloadError
from gnnsample_lab.sampling import apps

GRAPHS = ("ppi-like", "orkut-like", "patents-like", "livejournal-like", "snap:soc-Epinions1")
"""NextDoor's table 3 without FriendS, which is section 8.4's, and one real graph."""
QUICK_GRAPHS = ("ppi-like", "snap:soc-Epinions1")
SETTING = (
    "k-hop 25, 10; walks of 100 steps, PPR ends with 1/100; node2vec p 2, q 0.5; MultiRW 100 roots; layer 1000 a step "
    "up to 2000; FastGCN, LADIES, MVS 64 roots and 64 a step; ClusterGCN 20 random clusters; weights in [1, 5)"
)


class Case(NamedTuple):
    """One application at NextDoor's settings.

    ``samples(num_nodes)`` is how many make one epoch; with ``per_vertex`` every vertex is the root of one sample.
    """

    make: Callable[[], Any]
    kind: str
    samples: Callable[[int], int]
    per_vertex: bool = False


def _each(num_nodes: int) -> int:
    return num_nodes


def _batches(num_nodes: int) -> int:
    return max(1, num_nodes // 64)


CASES: dict[str, Case] = {
    "DeepWalk": Case(apps.DeepWalk, "walk", _each, True),
    "PPR": Case(apps.PPR, "walk", _each, True),
    "node2vec": Case(apps.Node2Vec, "walk", _each, True),
    "MultiRW": Case(apps.MultiRW, "walk", lambda n: max(1, n // 100)),
    "PinSAGE": Case(apps.PinSAGEWalk, "walk", _each, True),
    "k-hop": Case(apps.KHop, "k-hop", _each, True),
    "Layer": Case(apps.Layer, "collective", lambda n: min(n, 4096)),
    "FastGCN": Case(apps.FastGCN, "collective", _batches),
    "LADIES": Case(apps.LADIES, "collective", _batches),
    "k-hop 25, 16": Case(lambda: apps.KHop((25, 16)), "k-hop", _each, True),
    "k-hop 32, 32": Case(lambda: apps.KHop((32, 32)), "k-hop", _each, True),
    "MVS": Case(apps.MVS, "k-hop", _batches),
    "ClusterGCN": Case(
        lambda: apps.ClusterGCN(partition="random"),
        "cluster",
        lambda n: max(1, min(n, 1500, max(20, n // 150)) // 20),
    ),
}
"""Name -> application: the ten of NextDoor's section 4 and PinSAGE's walks, and k-hop with other fanouts."""
MORE_FANOUTS = ("k-hop 25, 16", "k-hop 32, 32")
QUICK_CASES = ("DeepWalk", "PPR", "node2vec", "k-hop", "k-hop 32, 32", "Layer", "LADIES")
WALKS = ("DeepWalk", "PPR", "node2vec", "MultiRW", "PinSAGE")


def names(
    session: Session, wanted: Sequence[str] = GRAPHS, quick: Sequence[str] = QUICK_GRAPHS
) -> tuple[str, ...]:
    """The chosen graphs, else NextDoor's; a line names each graph that is left out because it cannot be had."""
    chosen = session.chosen or tuple(quick if session.quick else wanted)
    found = tuple(name for name in chosen if graph(session, name) is not None)
    if not found:
        raise Unavailable(f"none of the graphs {', '.join(chosen)} is there")
    return found


def graph(session: Session, name: str, device: str | None = None) -> Any:
    """The graph with weights in [1, 5) (NextDoor, section 8), kept; None where it cannot be had."""
    device = device or common.device()

    def make() -> Any:
        began = time.perf_counter()
        if device == "cpu" and common.device() == "cuda":
            on_gpu = graph(session, name)
            return None if on_gpu is None else on_gpu.to("cpu", features=False)
        base, scale = scaled(name)
        try:
            found = load(base, scale=scale, device=device, features=False, weighted=True, progress=False)
        except (DatasetNotFoundError, DownloadError) as error:
            session.say(f"{name} is left out: {error}")
            return None
        session.say(f"{name}: {found.num_nodes:,} vertices, {time.perf_counter() - began:.1f} s")
        return found

    return session.kept(("nextdoor graph", name, device), make)


def facts(session: Session, wanted: Sequence[str]) -> dict[str, Any]:
    return {name: graph_facts(graph(session, name)) for name in wanted}


def cases(session: Session, *wanted: str) -> tuple[str, ...]:
    """The applications that a suite runs: ``wanted``, else all at the paper's settings, in a quick run fewer."""
    chosen = wanted or tuple(case for case in CASES if case not in MORE_FANOUTS)
    return tuple(c for c in chosen if not session.quick or c in QUICK_CASES)
