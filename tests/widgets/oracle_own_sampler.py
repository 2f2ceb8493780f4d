"""What the second-order explorer must show for a state, computed another way than it does: matrices and plain loops.

Expectations to nine digits, as the explorer gives them.
"""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import plotly.graph_objects as go
from gnnsample_widgets.explorers.walks.second_order import Node2Vec, small_graph

import gnnsample_lab as lab
from gnnsample_lab import figures

KINDS = ["return", "triangle", "away"]


def as_networkx(graph: Any) -> nx.Graph:
    net = nx.Graph()
    net.add_nodes_from(range(graph.num_nodes))
    for v in range(graph.num_nodes):
        net.add_edges_from((int(u), v) for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]])
    return net


def kind_of(net: nx.Graph, before: int, u: int) -> str:
    if u == before:
        return "return"
    return "triangle" if net.has_edge(before, u) else "away"


def exact(net: nx.Graph, start: int, length: int, p: float, q: float) -> tuple[np.ndarray, dict[str, float]]:
    """Shares of visits and kinds by powers of the matrix from directed edge to directed edge."""
    weight = {"return": 1 / p, "triangle": 1.0, "away": 1 / q}
    arcs = [(v, u) for v in net for u in net[v]]
    number = {arc: i for i, arc in enumerate(arcs)}
    move = np.zeros((len(arcs), len(arcs)))
    of_kind = {kind: np.zeros(len(arcs)) for kind in KINDS}
    for (t, v), i in number.items():
        total = sum(weight[kind_of(net, t, u)] for u in net[v])
        for u in net[v]:
            share = weight[kind_of(net, t, u)] / total
            move[i, number[v, u]] = share
            of_kind[kind_of(net, t, u)][i] += share
    at = np.array([1 / len(net[start]) if v == start else 0.0 for v, _ in arcs])
    visits, kinds = np.zeros(len(net)), dict.fromkeys(KINDS, 0.0)
    for step in range(length):
        if step:
            for kind in KINDS:
                kinds[kind] += float(at @ of_kind[kind]) / (length - 1)
            at = at @ move
        np.add.at(visits, [u for _, u in arcs], at)
    shares = {kind: round(share, 9) for kind, share in kinds.items()}
    return np.round(visits / max(visits.sum(), 1e-300), 9), shares


def second_order_figures(graph: Any, state: dict[str, Any]) -> dict[str, go.Figure]:
    small = small_graph(state["shape"], graph)
    net, p, q, start = as_networkx(small), state["p_percent"] / 100, state["q_percent"] / 100, state["start"]
    app = Node2Vec(p, q, state["length"])
    result = lab.run_app(small, app, [start] * state["walks"], device="cpu", seed=state["seed"])
    walks = [[int(v) for v in row if v >= 0] for row in result.samples]
    counts, met = dict.fromkeys(KINDS, 0), np.zeros(len(net))
    for walk in walks:
        for v in walk[1:]:
            met[v] += 1
        for before, after in zip(walk, walk[2:]):
            counts[kind_of(net, before, after)] += 1
    met /= max(1, met.sum())
    first = walks[0][: state["shown"] + 1]
    weight = {"return": 1 / p, "triangle": 1.0, "away": 1 / q}
    choices = {}
    if len(walks[0]) > state["shown"] + 1:
        kinds = {u: kind_of(net, first[-2], u) if len(first) > 1 else "away" for u in sorted(net[first[-1]])}
        scale = {u: weight[kind] if len(first) > 1 else 1.0 for u, kind in kinds.items()}
        choices = {u: (kinds[u], scale[u] / sum(scale.values())) for u in kinds}
    away = nx.single_source_shortest_path_length(net, start)
    order = sorted(net, key=lambda v: (away.get(v, len(net)), v))
    visits, expected = exact(net, start, state["length"], p, q)
    even_visits, even = exact(net, start, state["length"], 1, 1)
    return {
        "walk": figures.walk_drawing(small, first, choices, met),
        "kinds": figures.step_kinds(
            {k: counts[k] / max(1, sum(counts.values())) for k in KINDS}, expected, even
        ),
        "visits": figures.visit_shares(
            [str(v) for v in order],
            met[order],
            visits[order],
            even_visits[order],
            distances=[away.get(v, len(net)) for v in order],
        ),
    }


ORACLES = {"SecondOrderExplorer": second_order_figures}
