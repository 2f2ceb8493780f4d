"""GNNLab's evaluation: caching (similarity of epochs, hit rates, extraction), and training on several GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gnnsample_lab.bench.hardness import hardness
from gnnsample_lab.bench.suite import (
    AS_LEFT,
    Percent,
    Record,
    Row,
    Spread,
    Suite,
    as_recorded,
    usual_notes,
)
from gnnsample_lab.bench.suites.cells import EPOCH_MS, SEEDS_A_BATCH, WORK_A_BATCH, between
from gnnsample_lab.bench.suites.cells import milliseconds as _ms

from . import papers, targets

_part = papers.PAPER.part


_EPOCH: dict[str, str | Callable[[Row], Any]] = {
    **EPOCH_MS, "by": "origin", "model ms": _ms("model_s"), "error %": "error_percent",
}  # fmt: skip
"""Of a row that is measured, or modelled: the epoch, and the model's version of a measured one."""
_STAGES = {"sample ms": _ms("sample_s"), "extract ms": _ms("extract_s"), "train ms": _ms("train_s")}


def _switching(row: Row) -> str | None:
    return None if row.get("switching") is None else "yes" if row["switching"] else "no"


def _notes(record: Record) -> list[str]:
    """As :func:`usual_notes`, with mini-batches that are not scaled as the graph is."""
    found = [note for note in usual_notes(record) if not note.startswith("x SCALE")]
    if any("@" in str(row.get("graph")) for row in record["rows"]):
        steps = record["settings"]["steps"]
        found.insert(
            0, f"x SCALE: of vertices and edges; an epoch has {steps} mini-batches whatever the scale."
        )
    if record["settings"]["device"] != "cuda":
        found.insert(
            0, "CPU: no NVLink. Ranks are processes that share the cores; times say nothing of GPUs."
        )
    return found


def _curve_notes(record: Record) -> list[str]:
    return [*hardness(record), *_notes(record)]


SUITES = (
    Suite(
        "extraction", "suites.gnnlab.extraction.extraction",
        "bandwidth of missed rows by transfer, against a pinned copy",
        columns=as_recorded({
            "features": "num_features", "cached %": "cache_percent", "transfer": "transfer", "by": "resolved",
            "L2": "l2", "missed rows": "misses", "us": Spread("extract_us"), "GB/s": "miss_gbps",
            "of pinned copy": "share",
        }),
        targets=targets.extraction,
    ),
    Suite(
        "gnnlab-samplers", "suites.gnnlab.weighted.samplers",
        "weighted draws against alias tables, and PinSAGE's mini-batch beside its kernels",
        columns=as_recorded({
            "part": "part", "L2": "l2", "seeds": "seeds", "in a call": "together", "rows": "rows", "picks": "picks",
            "fanout": "fanout", "alias us": Spread("alias_us"), "ours us": Spread("guide_us"),
            "over alias": "over_alias", "alias MB": "alias_mb", "guide MB": "guide_mb", "each us": Spread("us"),
            "of it GPU us": "gpu_us", "over GPU": "over_gpu",
        }),
        targets=targets.samplers,
    ),
    Suite(
        "gnnlab-table2", "suites.gnnlab.caching.table2", "similarity of epochs' footprints; needs no GPU",
        rests_on=("similarity",), columns={
            "sampler": "sampler", "similarity %": "similarity_percent", "least %": "least_percent",
            "most %": "most_percent",
        },
        paper=_part("table 2", papers.TABLE2, ("graph", "sampler"), {"paper %": "similarity_percent"}),
        needs_gpu=False,
    ),
    Suite(
        "gnnlab-table3", "suites.gnnlab.datasets.table3", "table 3: GNNLab's graphs beside their twins; needs no GPU",
        columns={
            "nodes": "num_nodes", "edges": "num_edges", "features": "num_features", "training": "train",
            "topology GiB": "topology_gib", "features GiB": "feature_gib",
        },
        paper=_part(
            "table 3", papers.TABLE3, ("graph",),
            {
                "paper nodes": "num_nodes", "paper edges": "num_edges", "paper features": "num_features",
                "paper training": "train", "paper topology GiB": "topology_gib", "paper features GiB": "feature_gib",
            },
        ),
        needs_gpu=False,
    ),
    Suite(
        "gnnlab-fig4", "suites.gnnlab.extraction.figure4",
        "extract time and hit rate over cache ratio and dimension",
        rests_on=("hit rate",), columns=as_recorded({
            "part": "part", "features": "num_features", "cached %": "cache_percent", "hit %": "hit_percent",
            "MB": "mb_per_batch", "L2": "l2", "extract ms": Spread("extract_ms"), "misses by": "transfer",
            "by UVA, ours, ms": Spread("uva_ms"),
        }),
        paper=_part(
            "figure 4", papers.FIGURE4, ("graph", "part", "cache_percent"),
            {"paper ms (V100)": "extract_ms", "paper hit %": "hit_percent"},
        ), takes_one=True,
    ),
    Suite(
        "gnnlab-fig5", "suites.gnnlab.caching.figure5",
        "bytes moved: degree policy against the optimal; needs no GPU",
        rests_on=("hit rate",), columns={
            "sampler": "sampler", "cached %": "cache_percent", "degree MB": "degree_mb",
            "presample MB": "presample_mb", "optimal MB": "optimal_mb", "degree over optimal": "degree_over_optimal",
        },
        paper=_part(
            "figure 5", papers.FIGURE5, ("graph", "sampler", "cache_percent"),
            {"paper degree MB": "degree_mb", "paper optimal MB": "optimal_mb"},
        ),
        needs_gpu=False,
    ),
    Suite(
        "gnnlab-fig10", "suites.gnnlab.caching.figure10",
        "hit rates: policies x graphs x samplers; needs no GPU",
        rests_on=("hit rate",), columns={
            "sampler": "sampler", "policy": "policy", "hit %": "hit_percent", "of optimal": "of_optimal",
            "over degree": "over_degree",
        },
        paper=_part("figure 10"), targets=targets.hit_rates, needs_gpu=False,
    ),
    Suite(
        "gnnlab-fig11", "suites.gnnlab.caching.figure11",
        "hit rates over K and ratio, bytes over dimension; needs no GPU",
        rests_on=("hit rate",), columns={
            "part": "part", "sampler": "sampler", "policy": "policy", "features": "num_features",
            "cached %": "cache_percent", "hit %": "hit_percent", "MB": "mb_per_batch",
        },
        paper=_part(
            "figure 11", papers.FIGURE11, ("graph", "sampler", "policy", "cache_percent"),
            {"paper %": "hit_percent"},
        ),
        needs_gpu=False,
    ),
    Suite(
        "gnnlab-fig12", "suites.gnnlab.extraction.figure12", "extract time of an epoch by caching policy",
        rests_on=("hit rate",), columns=as_recorded({
            "model": "model", "policy": "policy", "cached %": "cache_percent", "hit %": "hit_percent",
            "L2": "l2", "ms a batch": Spread("extract_ms"), "misses by": "transfer",
            "by UVA, ours, ms": Spread("uva_ms"), "epoch s": "extract_s",
            "less than random": "less_than_random",
        }),
        paper=_part(
            "figure 12", papers.FIGURE12, ("graph", "model", "policy"),
            {
                "paper s (table 5)": "extract_s", "paper cache %": "cache_percent", "paper hit %": "hit_percent",
            },
        ),
    ),
    Suite(
        "gnnlab-table1", "suites.gnnlab.breakdown.table1",
        "an epoch by stage and optimisation: GPU sampling, GPU caching, both under one budget; one GPU",
        rests_on=("hit rate",), columns={
            "system": "system", **SEEDS_A_BATCH, **WORK_A_BATCH, **_STAGES, "total ms": _ms("total_s"),
            "p10": _ms("p10_s"), "p90": _ms("p90_s"), "x DGL": "speedup", "cached %": "cache_percent",
            "hit %": "hit_percent",
        },
        paper=_part(
            "table 1", papers.TABLE1, ("graph", "system"),
            {
                "paper sample s": "sample_s", "paper extract s": "extract_s", "paper train s": "train_s",
                "paper total s": "total_s", "paper x DGL": "speedup",
            },
        ),
        needs_gpu=False, notes=_notes, l2=AS_LEFT, takes_one=True,
    ),
    Suite(
        "gnnlab-fig3", "suites.gnnlab.breakdown.figure3",
        "what each stage holds on the GPU, and how alike it is from one epoch to the next",
        rests_on=("similarity",), columns={
            "stage": "stage", **SEEDS_A_BATCH, **WORK_A_BATCH, "GB": "gb", "% of all": "percent",
            "shared by epochs": "shared", "similarity of epochs %": "similarity_percent",
        },
        paper=_part("figure 3", papers.FIGURE3, ("graph", "stage"), {"paper GB (full size)": "gb"}),
        needs_gpu=False, notes=_notes,
    ),
    Suite(
        "gnnlab-table4", "suites.gnnlab.epochs.table4",
        "an epoch by model, graph (scaled down), system and GPUs; eight GPUs modelled",
        rests_on=("hit rate",), columns=as_recorded({
            "model": "model", "system": "system", "GPUs": "gpus", "split": "split", "switching": _switching,
            "switched": "switched", **SEEDS_A_BATCH, **WORK_A_BATCH, **_EPOCH, "x DGL": "speedup",
        }),
        paper=_part(
            "table 4", papers.TABLE4, ("graph", "model", "system", "gpus"),
            {"paper s (full size)": "epoch_s", "paper split": "split", "paper x DGL": "speedup"},
        ),
        needs_gpu=False, notes=_notes, l2=AS_LEFT,
    ),
    Suite(
        "gnnlab-table5", "suites.gnnlab.epochs.table5",
        "stages of an epoch on two GPUs with cache ratio and hit rate, one budget of topology and cache",
        rests_on=("hit rate",), columns=as_recorded({
            "model": "model", "system": "system", "split": "split", **SEEDS_A_BATCH, **WORK_A_BATCH,
            "budget GB": "budget_gb", "held GB": "held_gb", **_STAGES,
            "copy ms": _ms("copy_s"), "cached %": "cache_percent", "hit %": "hit_percent", **_EPOCH,
        }),
        paper=_part(
            "table 5", papers.TABLE5, ("graph", "model", "system"),
            {
                "paper sample s": "sample_s", "paper extract s": "extract_s", "paper train s": "train_s",
                "paper cached %": "cache_percent", "paper hit %": "hit_percent",
            },
        ),
        needs_gpu=False, notes=_notes, l2=AS_LEFT,
    ),
    Suite(
        "gnnlab-table6", "suites.gnnlab.preprocessing.table6",
        "preprocessing: disk to host, host to GPU, cache, pre-sampling; METIS by itself",
        columns=as_recorded({
            **SEEDS_A_BATCH, **WORK_A_BATCH, "cached %": "cache_percent", "disk to host ms": _ms("disk_s"),
            "topology to GPU ms": _ms("topology_s"),
            "cache ms": _ms("cache_s"), "pre-sampling ms": _ms("presample_s"), "epoch ms": _ms("epoch_s"),
            "METIS s": "metis_s",
        }),
        paper=_part(
            "table 6", papers.TABLE6, ("graph",),
            {
                "paper disk s": "disk_s", "paper topology s": "topology_s", "paper cache s": "cache_s",
                "paper pre-sampling s": "presample_s",
            },
        ),
        needs_gpu=False, notes=_notes,
    ),
    Suite(
        "gnnlab-fig13", "suites.gnnlab.epochs.figure13", "an epoch of the factored design by caching policy",
        rests_on=("hit rate",), columns=as_recorded({
            "model": "model", "policy": "policy", "GPUs": "gpus", "split": "split", **SEEDS_A_BATCH, **WORK_A_BATCH,
            **_EPOCH, "hit %": "hit_percent", "less than degree": "less_than_degree",
            "less than random": "less_than_random",
        }),
        paper=_part("figure 13"), needs_gpu=False, notes=_notes, l2=AS_LEFT,
    ),
    Suite(
        "gnnlab-fig14", "suites.gnnlab.scaling.figure14",
        "an epoch against the number of GPUs, by system and number of samplers",
        rests_on=("hit rate",), columns=as_recorded({
            "series": "series", "GPUs": "gpus", "split": "split", **SEEDS_A_BATCH, **WORK_A_BATCH, **_EPOCH,
        }),
        paper=_part("figure 14"), needs_gpu=False, notes=_notes, l2=AS_LEFT,
    ),
    Suite(
        "gnnlab-fig15", "suites.gnnlab.scaling.figure15", "m samplers and n trainers: stages and epoch",
        rests_on=("hit rate",), columns=as_recorded({
            "split": "split", **SEEDS_A_BATCH, **WORK_A_BATCH, "sample ms a sampler": _ms("sample_s"),
            "extract ms a trainer": _ms("extract_s"), "train ms a trainer": _ms("train_s"), **_EPOCH,
            "chosen by": "chosen",
        }),
        paper=_part("figure 15", papers.FIGURE15, ("graph", "split"), {"paper s (full size)": "epoch_s"}),
        needs_gpu=False, notes=_notes, l2=AS_LEFT, takes_one=True,
    ),
    Suite(
        "gnnlab-fig16", "suites.gnnlab.convergence.figure16",
        "accuracy over epochs and over time: the factored design against time sharing, 2 GPUs; the paper's 8 modelled",
        rests_on=("hit rate",),
        columns=as_recorded({
            "model": "model", "system": "system", "GPUs": "gpus", "trainers": "trainers",
            "updates an epoch": "updates", **SEEDS_A_BATCH, **WORK_A_BATCH, **_EPOCH,
            "accuracy %": Percent("best_accuracy"), "of the original %": Percent("original"),
            "target %": Percent("target"),
            "epochs to it": "epochs_to_target", "updates to it": "updates_to_target", "seconds to it": "s_to_target",
            "x DGL to it": "speedup",
        }),
        paper=_part(
            "figure 16", papers.FIGURE16, ("system",),
            {"paper epochs (8 GPUs)": "epochs_to_target", "paper updates": "updates_to_target"},
        ),
        needs_gpu=False, notes=_curve_notes, l2=AS_LEFT,
    ),
    Suite(
        "gnnlab-fig17", "suites.gnnlab.switching.figure17",
        "dynamic switching against none, and the factored design on one GPU",
        rests_on=("hit rate",), columns=as_recorded({
            "part": "part", "model": "model", "system": "system", "GPUs": "gpus", "split": "split",
            "switching": _switching, "switched": "switched", **SEEDS_A_BATCH, **WORK_A_BATCH, **_EPOCH, "gain": "gain",
            "x DGL": "speedup", "x T_SOTA": "over_tsota",
        }),
        paper=_part("figure 17"), needs_gpu=False, notes=_notes, l2=AS_LEFT,
    ),
    Suite(
        "gnnlab-budget", "suites.gnnlab.budget.budget",
        "time sharing and the factored design by two cache policies, under one budget of memory (section 3)",
        rests_on=("hit rate",), columns=as_recorded({
            "GPUs": "gpus", "executor": "executor", "split": "split", "step": "step", "policy": "policy",
            "seeds a GPU": "seeds_a_gpu", **WORK_A_BATCH, "card of": "card", "budget GB": "budget_gb",
            "cached %": "cached_percent", "hit %": "hit_percent", "cache MB": "cache_mb", "peak MB": "peak_mb",
            "ms a step": "ms", "p10": "p10", "p90": "p90", "sample ms": "sample_ms", "put ms": "put_ms",
            "get ms": "get_ms", "extract ms": "extract_ms", "train ms": "train_ms", "misses by": "transfer",
            "epoch ms": "epoch_ms",
            "x sharing": "x_sharing", "modelled epoch ms": "modelled_ms", "model off by %": "model_error_percent",
            "failed": "error",
        }),
        needs_gpu=False, last=True, l2=AS_LEFT,
    ),
    Suite(
        "gnnlab-designs", "suites.gnnlab.scaling.which_design",
        "where the factored design beats time sharing: the model's claim, and whether runs agree",
        rests_on=("hit rate",), columns={
            "part": "part", "model": "model", "GPUs": "gpus", "samplers": "samplers", "K": "k", **WORK_A_BATCH,
            "shared: rows a batch": "shared_rows_per_batch", "shared: picks a batch": "shared_picks_per_batch",
            "extract / train, shared": "extract_over_train", "factored wins above": "break_even",
            "model: factored ms": _ms("factored_s"), "model: shared ms": _ms("timeshared_s"),
            "model favours": "favours",
            "ran: factored ms": between("ran_factored_s", "ran_factored_p10_s", "ran_factored_p90_s", 1e3),
            "ran: shared ms": between("ran_timeshared_s", "ran_timeshared_p10_s", "ran_timeshared_p90_s", 1e3),
            "agrees": "agrees",
        },
        needs_gpu=False, notes=_notes, l2=AS_LEFT,
    ),
)  # fmt: skip
