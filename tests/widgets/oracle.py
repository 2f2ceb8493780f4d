"""What an explorer must show for a state, computed from the library alone, and figures as plain values."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import plotly.graph_objects as go

import gnnsample_lab as lab
from gnnsample_lab import figures
from gnnsample_lab.sampling.neighbors.schedule import replay

MODEL = "GPU model"


def seeds_for(graph: Any, state: dict[str, Any]) -> np.ndarray:
    train = graph.splits.get("train")
    pool = np.arange(graph.num_nodes) if train is None else train
    return np.random.default_rng(state["seed"]).choice(pool, state["batch_size"], replace=False)


def _fanouts(state: dict[str, Any]) -> list[int]:
    return [state[f"fanout_{hop + 1}"] for hop in range(state["hops"])]


def sample_figures(graph: Any, state: dict[str, Any]) -> dict[str, go.Figure]:
    sampler = lab.NeighborSampler(
        graph, _fanouts(state), replace=state["replace"], seed=state["seed"], device="cpu", trace=True
    )
    batch = sampler.sample([state["seed_vertex"]])
    drawing = figures.sample_drawing(
        batch, state["hops_shown"] - 1, graph=graph, label="sampled on the CPU", max_unsampled=30
    )
    return {"drawing": drawing, "work": figures.work_per_hop(batch.trace)}


def frontiers_from(graph: Any, state: dict[str, Any], seeds: Any) -> list[int]:
    """Frontier of each hop and vertices of the mini-batch, by looking at the picks themselves."""
    sampler = lab.NeighborSampler(
        graph, _fanouts(state), pick=state["pick"], seed=state["seed"], device="cpu"
    )
    picks = sampler.sample(seeds).picks
    last = np.union1d(picks[-1].frontier, picks[-1].neighbors)
    return [*(len(p.frontier) for p in picks), len(last)]


def growth_of(graph: Any, state: dict[str, Any], sizes: list[int]) -> dict[int, list[float]]:
    """Batch size -> what is counted in a sample of its own, of the first of the largest batch's seeds; up to 32 seeds
    the mean of 16 batches, none of which shares a seed with another."""
    found = {}
    largest = seeds_for(graph, {**state, "batch_size": max(sizes)})
    for size in sizes:
        number = min(16, len(largest) // size) if size <= 32 else 1
        each = [frontiers_from(graph, state, largest[i * size : (i + 1) * size]) for i in range(number)]
        found[size] = [round(float(n), 1) for n in np.mean(each, axis=0)] if size <= 32 else each[0]
    return found


def workload_figures(graph: Any, state: dict[str, Any]) -> dict[str, go.Figure]:
    seeds = seeds_for(graph, state)
    train = graph.splits.get("train")
    pool = graph.num_nodes if train is None else len(train)
    options = [2**k for k in range(14) if 2**k <= pool]
    sizes, before = sorted({1, *options[::-2]}), state["before"]
    growth = figures.frontier_growth(
        growth_of(graph, state, sizes),
        here=frontiers_from(graph, state, seeds),
        fanouts=_fanouts(state),
        batch_size=state["batch_size"],
        largest_batch=options[-1],
        num_nodes=graph.num_nodes,
        title=graph.title,
        label="counted, sampled on the CPU, lines up to 32 seeds: means",
        before=(_fanouts(before), before["batch_size"], growth_of(graph, before, sizes)) if before else None,
    )
    traces: dict[str, Any] = {}
    for name in lab.strategies():
        sampler = lab.NeighborSampler(
            graph,
            _fanouts(state),
            strategy=name,
            pick=state["pick"],
            seed=state["seed"],
            device="cpu",
            trace=True,
        )
        traces[name] = sampler.sample(seeds).trace
    traces.pop("auto")
    pair = [traces[name] for name in dict.fromkeys([state["baseline"], state["strategy"]])]
    every = [traces[state["baseline"]], *(t for name, t in traces.items() if name != state["baseline"])]
    return {
        "work": growth,
        "times": figures.hop_times(pair),
        "utilisation": figures.utilisation(pair),
        "strategies": figures.strategy_comparison(every if state["every_strategy"] else pair),
    }


def queue_figures(graph: Any, state: dict[str, Any]) -> dict[str, go.Figure]:
    """For the GPU model as the source."""
    assert state["source"] == MODEL
    fanouts = [state["fanout"]] * state["hops"]
    sampler = lab.NeighborSampler(graph, fanouts, pick=state["pick"], seed=state["seed"], device="cpu")
    picks = sampler.sample(seeds_for(graph, state)).picks
    fetching = state["strategy"] in ("persistent", "persistent-tile")
    trace, _ = replay(
        picks,
        [graph.in_degrees()[p.frontier] for p in picks],
        strategy=state["strategy"],
        pick=state["pick"],
        fanouts=fanouts,
        num_nodes=graph.num_nodes,
        fetch_size=state["fetch_size"],
        completion=state["completion"],
        num_blocks=state["num_blocks"] if fetching else None,
        seed=state["seed"],
        graph_name=graph.name,
        graph_is_synthetic=graph.is_synthetic,
    )
    percent = state["time_percent"]
    until_us = None if percent == 100 else trace.total_us * percent / 100
    return {
        "gantt": figures.run_timeline(trace, until_us=until_us),
        "slots": figures.queue_slots(trace, until_us=until_us),
    }


ORACLES = {
    "SampleExplorer": sample_figures,
    "WorkloadExplorer": workload_figures,
    "QueueExplorer": queue_figures,
}


def plain(value: Any) -> Any:
    """JSON-like data with plotly's packed arrays unpacked and NaN as None, for comparison by ``==``."""
    if isinstance(value, dict):
        if "bdata" in value:
            flat = np.frombuffer(base64.b64decode(value["bdata"]), dtype=value["dtype"])
            shape = [int(n) for n in value.get("shape", str(len(flat))).split(",")]
            return plain(flat.reshape(shape).tolist())
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return None if math.isnan(value) else (int(value) if value.is_integer() else value)
    return value


def values(figure: go.Figure) -> dict[str, Any]:
    """Everything that a figure plots: its traces, and the shapes laid over them (time cursor, host spans)."""
    parts = plain(json.loads(figure.to_json()))
    return {"data": parts["data"], "shapes": parts["layout"].get("shapes", [])}


def difference(got: Any, wanted: Any, at: str = "") -> str:
    """Where two values of :func:`plain` differ first; empty when they do not."""
    if isinstance(got, dict) and isinstance(wanted, dict):
        for key in {**wanted, **got}:
            if (key in got) != (key in wanted):
                return f"{at}.{key} is {'not wanted' if key in got else 'missing'}"
            found = difference(got[key], wanted[key], f"{at}.{key}")
            if found:
                return found
        return ""
    if isinstance(got, list) and isinstance(wanted, list):
        if len(got) != len(wanted):
            return f"{at} has {len(got)} entries, not {len(wanted)}"
        return next(
            filter(None, (difference(a, b, f"{at}[{i}]") for i, (a, b) in enumerate(zip(got, wanted)))), ""
        )
    return "" if got == wanted else f"{at} is {str(got)[:80]!r}, not {str(wanted)[:80]!r}"
