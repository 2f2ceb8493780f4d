"""Samplers and trainers over numbers of GPUs, and which design wins where: GNNLab's figures 14 and 15."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suites.dsp import crew
from gnnsample_lab.pipeline.schedule.allocation import trainer_time
from gnnsample_lab.pipeline.schedule.designs import break_even, designs
from gnnsample_lab.pipeline.schedule.sweeps import splits
from gnnsample_lab.pipeline.schedule.times import Costs, stage_times

from . import runs
from .runs import GPUS, Task

SAMPLERS = (1, 2, 3)
RATIOS = (0.5, 1.0, 2.0, 4.0, 10.0)
"""K: training over sampling, for the map of both designs."""
NO_COSTS = Costs()
"""Of the map: hand-overs, the exchange of gradients and stages side by side cost nothing, in either design."""


def figure14(session: Session) -> dict[str, Any]:
    """Epoch time against the number of GPUs: time-shared systems, and 1, 2 and 3 samplers with the rest training."""
    runs.verify(session)
    names, rows = runs.graphs(session)[:2], list[dict[str, Any]]()  # papers100M and Twitter, as in the paper
    for name in names:
        for system in ("dgl", "tsota"):
            rows += [runs.row(session, Task(name, "gcn", system, gpus)) for gpus in range(1, GPUS + 1)]
        for samplers in SAMPLERS:
            rows += [
                runs.row(session, Task(name, "gcn", "gnnlab", gpus, samplers))
                for gpus in range(samplers + 1, GPUS + 1)
            ]
    for row in rows:
        row["series"] = row["system"] if row["system"] != "gnnlab" else f"gnnlab, {row['samplers']}S"
    return runs.record(session, names, rows)


def figure15(session: Session) -> dict[str, Any]:
    """m samplers and n trainers, up to eight GPUs: busy seconds a GPU by stage, the epoch, what the rule chooses."""
    runs.verify(session)
    name = runs.graphs(session)[0]
    times, _ = runs.stage_inputs(session, Task(name, "gcn", "gnnlab", GPUS))
    rows = []
    for samplers, gpus in ((m, n) for m in SAMPLERS for n in range(m + 1, GPUS + 1)):
        task = Task(name, "gcn", "gnnlab", gpus, samplers)
        # Gradients are exchanged among the trainers of this split, not among those of eight GPUs.
        _, costs = runs.stage_inputs(session, task)
        made = splits(times, gpus=gpus, samplers=(samplers,), costs=costs).rows[-1]
        # As runs choose: what a sampler spends to hand over, and a trainer to fetch, counts in the rule.
        chosen = runs.resolved(session, replace(task, samplers=None)).samplers == samplers
        row: dict[str, Any] = {
            "graph": name, "model": "gcn", "gpus": gpus, "split": runs.split(samplers, gpus), **made,
            **runs.work_of(runs.fed_with(session, task).row),
            "origin": "modelled", "chosen": "rule" if chosen else "",
        }  # fmt: skip
        if gpus in crew.worlds():
            found = runs.row(session, task)
            stages = {
                "sample_s": found["sample_s"] / samplers,
                "extract_s": found["extract_s"] / made["trainers"],
                "train_s": found["train_s"] / made["trainers"],
            }
            taken = ("origin", "epoch_s", "p10_s", "p90_s", "epochs", "model_s", "error_percent")
            row |= stages | {key: found[key] for key in taken} | runs.work_of(found)
        rows.append(row)
    k = trainer_time(times.mean("extract"), times.mean("train")) / times.mean("sample")
    return runs.record(
        session, [name], rows, [f"K = T_t / T_s = {k:.1f} here (paper, GCN on papers100M: 4.0)."],
        costs="hand-overs as measured, exchanges of gradients as measured among as many trainers, or as there are GPUs",
        chosen="by N_s = ceil(N_g / (K + 1)), T_s with what it takes to hand over, T_t with what it takes to fetch",
    )  # fmt: skip


def which_design(session: Session) -> dict[str, Any]:
    """Where the factored design beats time sharing: what the model says of stage times, and whether runs agree."""
    runs.verify(session)
    names, rows = runs.graphs(session)[:1], list[dict[str, Any]]()
    for name in names:
        for model in runs.models(session, name):
            for gpus in range(2, GPUS + 1):
                times, costs = runs.stage_inputs(session, Task(name, model, "gnnlab", gpus))
                shared, around = runs.stage_inputs(session, _shared(name, model, gpus))
                (made,) = designs(times, shared, gpus=[gpus], costs=costs, shared_costs=around).rows
                train_s = times.mean("train")
                row = {
                    "part": "graphs", "graph": name, "model": model, "k": train_s / times.mean("sample"),
                    "extract_over_train": made["extract_s"] / train_s,
                    "break_even": made["break_even_s"] / train_s, "origin": "modelled", **made,
                    **_work(
                        runs.fed_with(session, Task(name, model, "gnnlab", gpus)).row,
                        runs.fed_with(session, _shared(name, model, gpus)).row,
                    ),
                }  # fmt: skip
                if made["gpus"] in crew.worlds():
                    row |= _ran(session, Task(name, model, "gnnlab", made["gpus"], made["samplers"]))
                    row["agrees"] = "yes" if row["measured"] == row["favours"] else "no"
                rows.append(row)
    rows += _map()
    agree = [row["agrees"] for row in rows if "agrees" in row]
    claim = (
        f"Measured: {agree.count('yes')} of {len(agree)} pairs of runs have the winner that the model names."
        if agree
        else "Nothing was measured on several GPUs."
    )
    return runs.record(
        session, names, rows, [claim],
        shared="T_SOTA with PreSC beside the topology: both designs rank by the same visits, under one budget",
        break_even="extraction over training of time sharing from which on the model favours the factored design",
        map="no costs: hand-overs, the exchange of gradients and stages side by side are free in both designs; graphs: "
        "hand-overs and exchanges (of the factored design among all GPUs but one) as measured, stages side by side "
        "without contention",
    )  # fmt: skip


def _shared(name: str, model: str, gpus: int) -> Task:
    """Time sharing at its best: T_SOTA with GNNLab's ranking of the cache, so that the design alone differs."""
    return Task(name, model, "tsota", gpus, policy="presample")


def _ran(session: Session, task: Task) -> dict[str, Any]:
    """Both designs as they ran."""
    factored = runs.row(session, task)
    shared = runs.row(session, _shared(task.graph, task.model, task.gpus))
    return {
        "origin": "measured", "ran_factored_s": factored["epoch_s"], "ran_timeshared_s": shared["epoch_s"],
        **{f"ran_factored_{key}": factored[key] for key in ("p10_s", "p90_s")},
        **{f"ran_timeshared_{key}": shared[key] for key in ("p10_s", "p90_s")},
        **_work(factored, shared),
        "measured": "factored" if factored["epoch_s"] < shared["epoch_s"] else "time sharing",
    }  # fmt: skip


def _work(factored: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """Rows and picks a mini-batch of both designs: they have as many seeds, and should have about as many of these."""
    return {
        **runs.work_of(factored), "shared_rows_per_batch": shared["rows_per_batch"],
        "shared_picks_per_batch": shared["picks_per_batch"],
    }  # fmt: skip


def _map() -> list[dict[str, Any]]:
    """The break-even over K and GPUs: training takes 1, a trainer's extraction is hidden behind it."""
    rows = []
    for k in RATIOS:
        for gpus in (2, 4, 8):
            times = stage_times(1 / k, 0.1, 1.0, batches=30 * gpus, source="a map of ratios")
            rows.append({
                "part": "map", "graph": "any", "model": "-", "gpus": gpus, "k": k, "origin": "modelled",
                "break_even": break_even(times, gpus=gpus, costs=NO_COSTS, shared_costs=NO_COSTS),
            })  # fmt: skip
    return rows
