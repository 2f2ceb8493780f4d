"""What the explorer of notebook 09 must show for a state, from the schedule model alone."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go

import gnnsample_lab as lab
from gnnsample_lab import figures


def pipeline_figures(_: Any, state: dict[str, Any]) -> dict[str, go.Figure]:
    train_s = 0.01 * state["k_tenths"] / 10
    apart_s = train_s * state["extract_percent"] / 100
    together_s = apart_s * state["beside_tenths"] / 10
    rest: dict[str, Any] = {
        "batches": 64, "spread": state["spread_percent"] / 100, "source": "set by the sliders"
    }  # fmt: skip

    def times(extract_s: float) -> Any:
        drawn = lab.schedule.stage_times(0.01, extract_s, train_s, standby_extract_s=together_s, **rest)
        if not state["spread_percent"]:
            return drawn
        kept = {"sample_s": 0.01, "extract_s": extract_s, "train_s": train_s, "standby_extract_s": together_s}
        scaled = {}
        for name, mean in kept.items():
            seconds = getattr(drawn, name)
            scaled[name] = seconds * (mean / (seconds.sum() / 64 or 1.0))
        return type(drawn)(**scaled, source=drawn.source)

    share, gpus = state["demand_percent"] / 100, state["gpus"]
    common: dict[str, Any] = {
        "staleness": 0 if state["synchronous"] else None,
        "costs": lab.schedule.Costs(
            demand={"sample": share, "train": share}, host_share=state["host_percent"] / 100
        ),
    }
    alone = {"gpus": gpus, **common}
    factored: dict[str, Any] = dict(alone)
    if gpus > 1:
        stages = times(apart_s)
        k = max(stages.mean("train"), stages.mean("extract")) / stages.mean("sample")
        rule = min(math.ceil(round(gpus / (k + 1), 9)), gpus - 1)
        factored |= {
            "samplers": state["samplers"] or rule,
            "switching": state["switching"],
            "capacity": state["capacity"],
        }
    runs = {
        "serial": lab.schedule.simulate(times(together_s), "serial", **alone),
        "overlapped": lab.schedule.simulate(
            times(together_s), "overlapped", capacity=state["capacity"], **alone
        ),
        "timeshared": lab.schedule.simulate(times(together_s), "timeshared", **alone),
        "factored": lab.schedule.simulate(times(apart_s), "factored", **factored),
    }
    shown = {
        "gantt": figures.schedule_gantt(runs[state["executor"]]),
        "executors": figures.schedule_epochs(runs, state["executor"]),
    }
    if gpus > 1:
        sweep = lab.schedule.allocation_sweep(times(apart_s), gpus=gpus, capacity=state["capacity"], **common)
        shown["splits"] = figures.schedule_allocation(sweep)
    return shown


ORACLES = {"PipelineExplorer": pipeline_figures}
