"""What the match and aggregation explorers must show for a state, computed another way than they do."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from gnnsample_widgets import training
from gnnsample_widgets.batches import draw_batches

import gnnsample_lab as lab
from gnnsample_lab import figures
from gnnsample_lab.compute.aggregation import bound
from tests.widgets.oracle import _fanouts, seeds_for


def sources(ids: list[set[int]], order: Any, cached: set[int]) -> tuple[int, int, int]:
    """Reused, in the cache, copied: by going through the window batch by batch."""
    counts = [0, 0, 0]
    before: set[int] = set()
    for number in range(len(ids)) if order is None else order:
        now = ids[number]
        reused = now & before
        counts[0] += len(reused)
        counts[1] += len((now - reused) & cached)
        counts[2] += len(now - reused - cached)
        before = now if order is not None else set()
    return counts[0], counts[1], counts[2]


def match_figures(graph: Any, state: dict[str, Any]) -> dict[str, go.Figure]:
    sampler = lab.NeighborSampler(graph, _fanouts(state), seed=state["seed"], device="cpu")
    seeds = draw_batches(
        graph, state["num_batches"], state["batch_size"], grouping=state["grouping"], seed=state["seed"]
    )
    ids = [set(sampler.sample(s, batch_id=i).node_ids.tolist()) for i, s in enumerate(seeds)]
    degrees = np.array([[len(a & b) / min(len(a), len(b)) for b in ids] for a in ids])
    method, straight = state["method"], range(len(ids))
    order = lab.reorder(degrees, method=method)
    tours = {"as sampled": straight, method: order}
    rows = {
        "each by itself": sources(ids, None, set()),
        "match": sources(ids, straight, set()),
        f"match, {method}": sources(ids, order, set()),
    }
    if state["cache_percent"]:
        hot = lab.hotness(graph, "degree").order
        cached = set(hot[: round(state["cache_percent"] / 100 * graph.num_nodes)].tolist())
        rows["cache alone"] = sources(ids, None, cached)
        rows["match, cache"] = sources(ids, straight, cached)
        rows[f"match, {method}, cache"] = sources(ids, order, cached)
    needed = ids
    if state["cache_percent"]:
        needed = [one - cached for one in ids]
    shared = [[len(a & b) for b in needed] for a in needed]
    pair = state["batch_a"] - 1, state["batch_b"] - 1
    a, b = (ids[number] for number in pair)
    width = 128 if graph.feat is None else graph.feat.shape[1]
    return {
        "degrees": figures.match_heatmap(degrees, tours, pair=pair),
        "pair": figures.shared_vertices(
            len(a),
            len(b),
            len(a & b),
            names=tuple(f"batch {number + 1}" for number in pair),
            row_bytes=4 * width,
        ),
        "strips": figures.tour_strips(shared, tours, 4 * width),
        "reordered": figures.match_heatmap(degrees, {method: order}, order=order, pair=pair),
        "bytes": figures.feature_rows(rows, 4 * width),
        "tour": figures.match_tour(degrees, tours),
    }


def aggregation_figures(graph: Any, state: dict[str, Any]) -> dict[str, go.Figure]:
    speeds = {"RTX 3090": bound.RTX_3090}[state["memory"]]
    sampler = lab.NeighborSampler(graph, _fanouts(state), seed=state["seed"], device="cpu")
    block = sampler.sample(seeds_for(graph, state)).blocks[state["layer"] - 1]
    names = [name for name in lab.aggregation_kernels() if name != "auto"]
    widths = [16, 32, 64, 128, 256, 512, 1024]
    used = len(set(block.indices.tolist()))

    def least(width: int) -> float:
        every = [lab.aggregation_cost(block, width, name).time_us(speeds) for name in names]
        shape = (used, block.num_dst, block.num_edges, width)
        return min(bound.aggregation_bound_us(*shape, speeds.dram_gbps, speeds.l2_gbps), *every)

    width = state["num_features"]
    counts = {name: lab.aggregation_cost(block, width, name) for name in names}
    levels = {
        name: {
            "global memory": c.global_bytes + c.written_bytes,
            "shared memory": c.shared_bytes,
            "registers": c.register_bytes,
        }
        for name, c in counts.items()
    }
    times = {name: {"modelled": c.time_us(speeds)} for name, c in counts.items()}
    over = {name: [lab.aggregation_cost(block, w, name).time_us(speeds) for w in widths] for name in names}
    points = [
        bound.RooflinePoint(
            name, c.intensity, c.flops / times[name]["modelled"] / 1e3, f"modelled as {state['memory']}"
        )
        for name, c in counts.items()
    ]
    return {
        "accesses": figures.access_counts(levels),
        "times": figures.aggregation_times(
            {**times, "least time possible": {"modelled": least(width)}}, base="naive"
        ),
        "features": figures.times_over_features(
            widths, over, bound_us=[least(w) for w in widths], marked=width
        ),
        "roofline": figures.roofline(
            points,
            peak_gflops=speeds.fp32_gflops,
            bandwidth_gbps={"global memory": speeds.dram_gbps, "L2": speeds.l2_gbps},
        ),
    }


def training_figures(graph: Any, state: dict[str, Any]) -> dict[str, go.Figure]:
    """What does not depend on the clock: losses, accuracies, bytes."""
    small = training.short_run(graph, state["steps"], state["batch_size"], state["seed"])
    with training.one_thread("cpu"):
        runs = [
            lab.train(
                small,
                state["model"],
                system,
                epochs=state["epochs"],
                batch_size=state["batch_size"],
                fanouts=_fanouts(state),
                lr=state["rate"] / 1e4,
                seed=state["seed"],
                device="cpu",
                pick="floyd",
                progress=False,
            )
            for system in dict.fromkeys([state["reference"], state["system"]])
        ]
    return {
        "loss": figures.loss_curves(runs),
        "accuracy": figures.accuracy_curves(runs),
        "bytes": figures.copied_bytes(runs),
    }


ORACLES = {
    "MatchExplorer": match_figures,
    "AggregationExplorer": aggregation_figures,
    "TrainingExplorer": training_figures,
}

MEASURED = {"stages"}
"""Panels that show measured times, which no oracle can know."""
