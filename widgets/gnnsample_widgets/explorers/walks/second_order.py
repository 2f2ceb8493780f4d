"""node2vec on graphs small enough to be drawn, and what its probabilities say exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import gnnsample_lab as lab
from gnnsample_lab import checks

KARATE, VILLAGES, GRID, PART = "karate club", "two villages", "grid", "part of the loaded graph"
KINDS = ("return", "triangle", "away")
_PART_SIZE = 36


class Node2Vec(lab.SamplingApp):
    """The second-order walk of Grover and Leskovec (2016), drawn by rejection, as notebook 04 builds it up.

    Args:
        p: return parameter, > 0: going back has weight 1/p.
        q: in-out parameter, > 0: going where the vertex before has no edge to has weight 1/q; else it is 1.
        length: steps.
    """

    def __init__(self, p: float, q: float, length: int) -> None:
        self.length = length
        # In an array, which is handed over at run time: numbers on self are compiled in.
        self.accept = np.array([1 / p, 1.0, 1 / q]) / max(1 / p, 1.0, 1 / q)

    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        if len(src_edges) == 0:
            return lab.NULL
        before = s.prev_vertex(2, 0)
        while True:
            u = src_edges[rng.below(len(src_edges))]
            kind = 2
            if u == before:
                kind = 0
            elif before.has_edge(u):
                kind = 1
            if step == 0 or rng.chance(self.accept[kind]):
                return u

    def steps(self) -> int:
        return self.length

    def sample_size(self, step: int) -> int:
        return 1


def small_graph(name: str, graph: Any) -> Any:
    """An undirected graph that can be drawn, without self-loops and parallel edges.

    Args:
        name: ``"karate club"`` (Zachary 1977), ``"two villages"``: two dense groups and a road, ``"grid"``: 6 by 6, no
            triangles, or ``"part of the loaded graph"``: up to 36 vertices around a middling one of ``graph``.

    Raises:
        ValueError: another name.
    """
    import networkx as nx

    checks.choice("name", name, [KARATE, VILLAGES, GRID, PART])
    if name == PART:
        return _part(graph)
    net = {KARATE: nx.karate_club_graph, VILLAGES: _villages, GRID: _grid}[name]()
    src, dst = np.array(net.edges()).T
    return lab.Graph.from_edges(src, dst, len(net), undirected=True, name=name)


def _grid() -> Any:
    import networkx as nx

    return nx.convert_node_labels_to_integers(nx.grid_2d_graph(6, 6))


def _villages() -> Any:
    import networkx as nx

    villages = [nx.gnp_random_graph(12, 0.45, seed=number) for number in (3, 4)]
    net = nx.disjoint_union(*villages)
    nx.add_path(net, [0, 24, 25, 12])
    return net


def _part(graph: Any) -> Any:
    """The neighbourhood of a vertex of middling degree, both directions of every edge, ids renumbered as they come."""
    degrees = np.diff(graph.indptr)
    at_least = np.flatnonzero(degrees >= min(6, degrees.max(initial=0)))
    found = [int(at_least[len(at_least) // 2])] if len(at_least) else [0]
    for v in found:
        near = graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()
        found += [u for u in dict.fromkeys(near) if u not in found][: _PART_SIZE - len(found)]
    number = {v: i for i, v in enumerate(found)}
    pairs = set()
    for v in found:
        for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist():
            if u in number and u != v:
                pairs.add((min(number[u], number[v]), max(number[u], number[v])))
    src, dst = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
    title = f"{len(found)} vertices of {graph.name}"
    return lab.Graph.from_edges(
        src, dst, len(found), undirected=True, name=title, is_synthetic=graph.is_synthetic
    )


def neighbours(graph: Any, v: int) -> list[int]:
    """In-neighbours of ``v``, ascending."""
    return [int(u) for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]]


def choices(graph: Any, before: int, now: int, p: float, q: float) -> dict[int, tuple[str, float]]:
    """Neighbour of ``now`` -> (kind, probability) of a step there, coming from ``before`` (-1: a walk begins)."""
    near = neighbours(graph, now)
    if before < 0:
        return {u: ("away", 1 / len(near)) for u in near}
    beside = set(neighbours(graph, before))
    kinds = {u: "return" if u == before else "triangle" if u in beside else "away" for u in near}
    weight = {"return": 1 / p, "triangle": 1.0, "away": 1 / q}
    total = sum(weight[kind] for kind in kinds.values())
    return {u: (kind, weight[kind] / total) for u, kind in kinds.items()}


@dataclass(frozen=True)
class Expectation:
    """Exact means over all walks: shares of the vertices sampled and of the kinds of step, candidates per step."""

    visits: np.ndarray
    kinds: dict[str, float]
    tries: float


def expectation(graph: Any, start: int, length: int, p: float, q: float) -> Expectation:
    """What a walk of ``length`` steps from ``start`` does on average, by following the probabilities.

    The state is the last edge walked: where the walk goes depends on where it came from. Kinds and candidates are those
    of steps after the first, which has no vertex before it.
    """
    visits = np.zeros(graph.num_nodes)
    kinds = dict.fromkeys(KINDS, 0.0)
    tries = 0.0
    weight = {"return": 1 / p, "triangle": 1.0, "away": 1 / q}
    at = {(-1, start): 1.0}
    options: dict[tuple[int, int], dict[int, tuple[str, float]]] = {}
    for step in range(length):
        after: dict[tuple[int, int], float] = {}
        for edge, likely in at.items():
            if edge not in options:
                options[edge] = choices(graph, *edge, p, q)
            near = options[edge]
            for u, (kind, share) in near.items():
                visits[u] += likely * share
                after[edge[1], u] = after.get((edge[1], u), 0.0) + likely * share
                kinds[kind] += likely * share * (step > 0)
            if step and near:
                mean = sum(weight[kind] for kind, _ in near.values()) / len(near)
                tries += likely * max(weight.values()) / mean
        at = after
    later = max(1, length - 1)
    total = max(visits.sum(), 1e-300)
    # Nine digits: the order of summing up must not show.
    shares = {kind: round(n / later, 9) for kind, n in kinds.items()}
    return Expectation(np.round(visits / total, 9), shares, tries / later)


def count_kinds(graph: Any, walks: np.ndarray) -> dict[str, float]:
    """Shares of return, triangle and away steps in ``walks`` ([walks, vertices], -1 behind their ends)."""
    counts = dict.fromkeys(KINDS, 0)
    linked = np.zeros((graph.num_nodes, graph.num_nodes), dtype=bool)
    linked[np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr)), graph.indices] = True
    before, after = walks[:, :-2].ravel(), walks[:, 2:].ravel()
    there = after >= 0
    before, after = before[there], after[there]
    back = before == after
    near = linked[before, after] & ~back
    counts = {"return": back.sum(), "triangle": near.sum(), "away": (~back & ~near).sum()}
    return {kind: float(n) / max(1, len(after)) for kind, n in counts.items()}


def distances(graph: Any, start: int) -> np.ndarray:
    """Steps from ``start`` to every vertex, int64; the number of vertices where there is no way."""
    found = np.full(graph.num_nodes, graph.num_nodes)
    found[start] = 0
    queue = [start]
    for v in queue:
        for u in neighbours(graph, v):
            if found[u] == graph.num_nodes:
                found[u] = found[v] + 1
                queue.append(u)
    return found
