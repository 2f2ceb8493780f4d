"""Traces for explorers: the model on a sample already drawn, and measured traces that were shipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab import MiniBatch, NeighborSampler, SampleTrace, figures
from gnnsample_lab.gpu_model.model import presets
from gnnsample_lab.gpu_model.run_error import has_times, in_words
from gnnsample_lab.resources import resource_path

TRACES = "data/measured/traces"
RECORDS = "data/measured"


def modelled(graph: Any, batch: MiniBatch, strategy: str, **knobs: Any) -> SampleTrace:
    """What ``strategy`` would do with a sample, on the GPU model.

    The sample does not depend on the strategy, so one draw serves all of them.

    Args:
        graph: the graph on the CPU.
        batch: a sample of it, arrays on the CPU.
        knobs: ``fetch_size``, ``completion``, ``num_blocks``, ... of
        :func:`gnnsample_lab.sampling.neighbors.schedule.replay`.
    """
    from gnnsample_lab.sampling.neighbors.schedule import replay

    spec = batch.spec
    trace, _ = replay(
        batch.picks,
        lambda v: np.asarray(graph.indptr[v + 1] - graph.indptr[v]),
        strategy=strategy,
        fanouts=spec.fanouts,
        pick=spec.pick,
        replace=spec.replace,
        weighted=spec.weighted,
        expand=spec.expand,
        seed=spec.seed,
        batch_id=batch.batch_id,
        num_nodes=graph.num_nodes,
        graph_name=graph.name,
        graph_is_synthetic=graph.is_synthetic,
        **knobs,
    )
    return trace


def measured_traces() -> dict[str, Path]:
    """Measured traces that came with the package: file name without ending -> path; empty when there are
    none."""
    try:
        folder = resource_path(TRACES)
    except FileNotFoundError:
        return {}
    return {path.stem: path for path in sorted(folder.glob("*.npz"))}


def times_as_fast(slow: SampleTrace, fast: SampleTrace) -> tuple[float, str]:
    """How many times as fast one run is as another, and a sentence on where that comes from.

    Where the GPU model has no times for one of the two, the runs that were recorded with the same settings take their
    place, be it on another graph: a ratio of times that are off by several times would be off as much.
    """
    pair = (slow, fast)
    if not all(map(has_times, pair)):
        pair = _recorded_like(slow, fast) or pair
    first, second = pair
    text = (
        f"{first.strategy} {first.total_us:,.0f} µs, {second.strategy} {second.total_us:,.0f} µs: "
        f"{second.title}, batch {second.batch_size:,}, {second.label}."
    )
    if not all(map(has_times, pair)):
        text = f"A ratio of times {second.label}. {in_words(first)} {in_words(second)}"
    elif first is not slow:
        text += " As recorded: the GPU model has no times for these strategies."
    return first.total_us / second.total_us, text


def _recorded_like(*runs: SampleTrace) -> tuple[SampleTrace, ...] | None:
    """Shipped traces with the settings of these runs, all of one graph, best that of the runs; None without."""
    found: dict[str, dict[str, SampleTrace]] = {}
    for trace in map(SampleTrace.load, measured_traces().values()):
        for run in runs:
            same = ("strategy", "batch_size", "fanouts", "pick", "replace", "completion")
            if all(getattr(trace, name) == getattr(run, name) for name in same):
                found.setdefault(trace.graph_name, {})[run.strategy] = trace
    whole = {graph: group for graph, group in found.items() if len(group) == len(runs)}
    if not whole:
        return None
    group = whole.get(runs[0].graph_name) or next(iter(whole.values()))
    return tuple(group[run.strategy] for run in runs)


def model_of(trace: SampleTrace) -> str | None:
    """The key of the GPU model of the GPU that a trace is of; None where there is none."""
    return next((key for key, model in presets().items() if model.name == trace.device_name), None)


def same_sample(graph: Any, trace: SampleTrace) -> MiniBatch | None:
    """The sample that a measured trace ran, drawn again on the CPU, or None when ``graph`` is another graph.

    The draw is a function of its settings alone, so the seeds in the trace are enough to repeat it. It is the
    same sample only if every hop expanded the same vertices, which is checked.
    """
    roots = trace.tasks.vertex[trace.tasks.hop == 0]
    if trace.graph_name != graph.name or len(roots) == 0 or int(roots.max()) >= graph.num_nodes:
        return None
    if trace.weighted and graph.edge_weight is None:
        return None
    sampler = NeighborSampler(
        graph,
        trace.fanouts,
        pick=trace.pick,
        replace=trace.replace,
        weighted=trace.weighted,
        expand=trace.expand,
        seed=trace.seed,
        device="cpu",
    )
    batch: MiniBatch = sampler.sample(roots, batch_id=trace.batch_id)
    if len(trace.lost):
        return batch
    for hop, picks in enumerate(batch.picks):
        ran = np.sort(trace.tasks.vertex[trace.tasks.hop == hop])
        if not np.array_equal(ran, np.sort(picks.frontier)):
            return None
    return batch


def modelled_as_measured(graph: Any, trace: SampleTrace) -> SampleTrace | None:
    """The model's version of a measured trace, or None when ``graph`` is not the one that was measured, or when there
    is no model of the GPU that it was measured on: another GPU's beside it would be no comparison.
    """
    gpu = model_of(trace)
    batch = None if gpu is None else same_sample(graph, trace)
    if batch is None:
        return None
    knobs: dict[str, Any] = {"gpu": gpu}
    if trace.completion is not None:
        knobs |= {"fetch_size": trace.fetch_size, "completion": trace.completion}
    return modelled(graph, batch, trace.strategy, **knobs)


def without_reuse(
    graph: Any,
    seeds: Any,
    fanouts: list[int],
    *,
    num_blocks: int,
    fetch_size: int = 5,
    completion: str = "paper",
) -> tuple[MiniBatch, SampleTrace]:
    """Algorithm 1 of PGSampler by itself: newly reached vertices become tasks, finished ones are not queued
    again.

    The smallest setting in which its completion rule can be followed by hand; the paper's reuse of finished
    tasks (Section IV-B) adds a task per vertex and hop, and races just the same.

    Returns:
        The complete sample, and what the GPU model does with it under ``completion``.
    """
    from gnnsample_lab.sampling.neighbors.schedule import replay

    host = graph.to("cpu", features=False)
    batch: MiniBatch = NeighborSampler(host, fanouts, expand="new", device="cpu").sample(seeds)
    trace, _ = replay(
        batch.picks,
        lambda v: np.asarray(host.indptr[v + 1] - host.indptr[v]),
        strategy="persistent",
        pick="reservoir",
        fanouts=fanouts,
        num_nodes=host.num_nodes,
        num_blocks=num_blocks,
        fetch_size=fetch_size,
        completion=completion,
        graph_name=host.name,
        graph_is_synthetic=host.is_synthetic,
    )
    return batch, trace


def overlay(graph: Any) -> go.Figure:
    """Model over measurement, for the first shipped trace of ``graph``; a figure that says so where there is
    none."""
    names, unknown = [], []
    for path in measured_traces().values():
        trace = SampleTrace.load(path)
        if model_of(trace) is None:
            unknown.append(trace.device_name)
            continue
        model = modelled_as_measured(graph.to("cpu", features=False), trace)
        if model is not None:
            return figures.model_vs_measurement(model, trace)
        names.append(trace.graph_name)
    known = ", ".join(dict.fromkeys(names))
    reason = f"There are some of {known}." if known else "None were shipped with this installation."
    if unknown and not names:
        reason = (
            f"Those that are here are of {', '.join(dict.fromkeys(unknown))}, of which there is no model."
        )
    if graph.name in names:
        reason = f"Those of {graph.name} were measured on another version, scale or seed of it."
    return figures.empty_figure(
        "Model against measurement", f"No measured trace of {graph.title} is here. {reason}"
    )


def id_map_times(graph: str) -> go.Figure:
    """Time of a mini-batch's map by every ID map, as the shipped record of FastGL's table 8 has it; a figure that says
    so where there is none.

    Args:
        graph: name of a graph of that record, such as "products-like".
    """
    try:
        record = json.loads((resource_path(RECORDS) / "fastgl-table8.json").read_text("utf-8"))
    except FileNotFoundError:
        record = {"rows": []}
    times = {row["id_map"]: row["map_us"] for row in record["rows"] if row["graph"] == graph}
    gpu = record.get("environment", {}).get("gpu")
    if not times or not gpu:
        message = f"No measured times of ID maps on {graph} came with this installation, so nothing is shown."
        return figures.empty_figure("ID map, per mini-batch", message)
    label = f"{record['graphs'][graph]['title']} · measured on {gpu['name']}"
    return figures.id_map_rungs(times, label=label, baseline="insert-count-compact")


def ladder_records() -> dict[str, dict[str, Any]]:
    """Records of sampling on several GPUs that came with the package: file name without ending -> record; may be empty.

    Those of CPU ranks are left out: their times say nothing about GPUs.
    """
    try:
        folder = resource_path(RECORDS)
    except FileNotFoundError:
        return {}
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("ladder*.json"))}
    return {
        name: record
        for name, record in found.items()
        if record.get("origin") == "measured" and record.get("settings", {}).get("device") == "cuda"
    }


def measured_scaling() -> list[go.Figure]:
    """Throughput of several GPUs over one as recorded, a figure for each graph and partition; else one that says that
    there is no record."""
    shown = []
    for name, record in ladder_records().items():
        gpu = (record.get("environment", {}).get("gpu") or {}).get("name", "GPU")
        ranks = record["settings"]["ranks"]
        for graph, parts in dict.fromkeys((row["graph"], row["partition"]) for row in record["rows"]):
            rows = [row for row in record["rows"] if (row["graph"], row["partition"]) == (graph, parts)]
            title = record.get("graphs", {}).get(graph, {}).get("title", graph)
            label = f"{title} · parts by {parts} · measured on {ranks} {gpu} · {name}.json"
            shown.append(figures.ladder_speedups(rows, label=label))
    message = "No record of several GPUs came with this installation, so nothing is shown."
    return shown or [figures.empty_figure("Measured scaling", message)]
