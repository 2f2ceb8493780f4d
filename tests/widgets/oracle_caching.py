"""What the cache explorer must show for a state, computed another way than it does: batch by batch, with sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from gnnsample_widgets.explorers.features.caching import training_set, with_weights

import gnnsample_lab as lab
from gnnsample_lab import figures

EPOCHS = 2
FANOUTS = {"3 hops: 15, 10, 5": [15, 10, 5], "2 hops: 25, 10": [25, 10], "3 hops, weighted": [15, 10, 5]}
SCORES = {
    "degree": "out-degree (count)",
    "reverse-pagerank": "reverse PageRank (probability)",
    "random": "random score",
    "presample-shrunk": "reads an epoch ahead, shrunk (mean count)",
    "presample": "reads an epoch ahead (mean count)",
    "optimal": "reads (count)",
}
AWAY = [
    "in the training set",
    "1 hop from the training set",
    "2 hops from the training set",
    "3 hops from the training set",
    "more than 3 hops from the training set",
]


def sampler_for(graph: Any, state: dict[str, Any]) -> Any:
    if state["sampler"] == "PinSAGE walks":
        return lab.PinSAGESampler(graph, device="cpu", seed=state["seed"])
    weighted = "weighted" in state["sampler"]
    graph = with_weights(graph) if weighted else graph
    return lab.NeighborSampler(
        graph, FANOUTS[state["sampler"]], weighted=weighted, device="cpu", seed=state["seed"]
    )


def visits_of(sampler: Any, seeds: Any, batch_size: int, epochs: Any) -> tuple[np.ndarray, int]:
    """Visits of every vertex, and the number of mini-batches."""
    ids = [b.node_ids for epoch in epochs for b in sampler.epoch(seeds, batch_size, epoch=epoch)]
    return np.bincount(np.concatenate(ids), minlength=sampler.graph.num_nodes), len(ids)


def hottest(order: Any, ratio: float) -> set[int]:
    return set(np.asarray(order)[: round(ratio * len(order))].tolist())


def distances(graph: Any, seeds: np.ndarray) -> list[str]:
    """How far each vertex is from the training set, in words: by going from vertex to vertex."""
    hops = dict.fromkeys(seeds.tolist(), 0)
    ring = list(hops)
    for hop in (1, 2, 3):
        lists = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist() for v in ring]
        ring = [u for u in {u for one in lists for u in one} if u not in hops]
        hops |= dict.fromkeys(ring, hop)
    return [AWAY[hops.get(v, 4)] for v in range(graph.num_nodes)]


def cache_figures(graph: Any, state: dict[str, Any]) -> dict[str, go.Figure]:
    seeds = training_set(graph, state["num_train"], state["where"], state["seed"])
    sampler, size = sampler_for(graph, state), state["batch_size"]
    visits, num_batches = visits_of(sampler, seeds, size, range(EPOCHS))
    ahead = {"sampler": sampler, "seeds": seeds, "batch_size": size, "epochs": state["presampled"]}
    policies = [
        lab.hotness(graph, "random", seed=state["seed"]),
        lab.hotness(graph, "degree"),
        lab.hotness(graph, "reverse-pagerank", seeds=seeds),
        lab.hotness(graph, "presample", **ahead),
        lab.hotness(graph, "optimal", batches=lab.footprint(sampler, seeds, size, epochs=EPOCHS)),
    ]
    if state["policy"] == "presample-shrunk":
        policies.insert(3, lab.hotness(graph, "presample-shrunk", **ahead))
    ratio, ratios = state["ratio_percent"] / 100, np.linspace(0, 1, 101)

    def rate(order: np.ndarray, share: float) -> float:
        return float(visits[sorted(hottest(order, share))].sum() / visits.sum())

    rates = {h.label: [rate(h.order, share) for share in ratios] for h in policies}
    cached = {h.label: np.isin(np.arange(len(visits)), list(hottest(h.order, ratio))) for h in policies}
    whole = visits.sum() / num_batches * state["num_features"] * 4
    beside = next(h for h in policies if h.policy == state["policy"])
    other = policies[-2] if "PreSC" in state["upright"] else policies[-1]
    holders = [[label for label, mask in cached.items() if mask[v]] for v in range(len(visits))]
    why = {
        "where": np.array(distances(graph, seeds), dtype=object),
        "out-degree": np.bincount(graph.indices, minlength=graph.num_nodes),
        f"reads an epoch sampled ahead ({policies[-2].label})": policies[-2].score,
        "reads in 2 epochs of training": visits,
        "cached by": np.array(["cached by " + (", ".join(one) or "none") for one in holders], dtype=object),
    }

    return {
        "rates": figures.hit_rates(ratios, rates, marker=ratio),
        "vertices": figures.hotness_scatter(
            beside.score,
            other.score,
            (cached[beside.label], cached[other.label]),
            names=(beside.label, other.label),
            axes=(SCORES[beside.policy], SCORES[other.policy]),
            visits=visits,
            why=why,
        ),
        "bytes": figures.bytes_per_batch(
            {h.label: (1 - rate(h.order, ratio)) * whole for h in policies}, uncached=whole
        ),
        "contents": figures.cache_contents(visits, cached["Optimal"], cached),
    }


ORACLES = {"CacheExplorer": cache_figures}
