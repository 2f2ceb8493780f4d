"""FastGL's evaluation: ID map, aggregation, memory IO, whole training runs."""

from __future__ import annotations

from gnnsample_lab.bench.hardness import curve_notes
from gnnsample_lab.bench.suite import AS_LEFT, FLUSHED, Columns, Percent, Row, Spread, Suite, as_recorded
from gnnsample_lab.bench.suites.cells import EPOCH_MS, GRAPHS, GRAPHS_IN_PRINT, SEEDS_A_BATCH, WORK_A_BATCH

from . import papers, targets


def _whose(row: Row) -> str:
    """FastGL itself and its techniques as published, this library's own system, or what the paper compares with."""
    name = str(row["system"])
    if name.partition(",")[0] == "lab":
        return "ours"
    return "published" if name == "fastgl" or name.startswith("+ ") else "baseline"


_RUN: Columns = {
    "model": "model", "system": "system", "whose": _whose, **SEEDS_A_BATCH, "features": "num_features",
    "sample ms": "sample_ms",
    "extract ms": "extract_ms",
    "train ms": "train_ms", "step ms": Spread("step_ms"), "epoch s": "epoch_s",
}  # fmt: skip
_CACHE = {"cache GB": "cache_gb", "cached %": "cache_percent", "MB a batch": "mb_per_batch"}
_SHARES = {"sample %": "sample_percent", "extract %": "extract_percent", "train %": "train_percent"}

_part = papers.PAPER.part

SUITES = (
    Suite(
        "fastgl-table8", "suites.fastgl.id_map.table8", "ID map of the same picks by every rung",
        columns=as_recorded({
            "ID map": "id_map", "whose": "form", "picks": "picks", "nodes": "nodes", "L2": "l2",
            "us": Spread("map_us"), "epoch s": "epoch_s", "x": "speedup",
            "hop by hop us": Spread("hop_by_hop_us"), "hop by hop x": "hop_by_hop_speedup",
            "GPU us": Spread("gpu_us"), "GPU x": "gpu_speedup",
        }),
        paper=_part(
            "table 8", papers.TABLE8, ("graph", "id_map"), {"paper s": "epoch_s", "paper x": "speedup"}
        ),
        targets=targets.id_map,
    ),
    Suite(
        "aggregation", "suites.fastgl.aggregation.aggregation",
        "every rung against its bound and the best cuSPARSE algorithm",
        columns=as_recorded({
            "batch": "batch_size", "layer": "layer", "direction": "direction", "features": "num_features",
            "rows": "rows", "edges": "edges", "L2": "l2", "naive us": Spread("us.naive"),
            "memory-aware us": Spread("us.memory-aware"),
            "staged us": Spread("us.memory-aware-staged"), "grouped us": Spread("us.grouped"),
            "library us": Spread("us.library"), "ours us": Spread("ours_us"), "bound us": "bound_us",
            "of bound": "share", "rows by community us": Spread("ordered_us"),
            "of bound, by community": "ordered_share", "cuSPARSE us": Spread("cusparse_us"),
            "by": "cusparse_best", "over cuSPARSE": "over_cusparse",
        }),
        targets=targets.aggregation, l2=FLUSHED,
    ),
    Suite(
        "gin-layer", "suites.fastgl.gin.gin_layer",
        "a GIN layer on small blocks, ours, and by separate modules around other sums",
        columns=as_recorded({
            "batch": "batch_size", "layer": "layer", "direction": "direction", "rows": "rows", "edges": "edges",
            "sums by": "kernel", "L2": "l2", "us": Spread("us"), "GPU us": "gpu_us",
            "over cuSPARSE's": "over_library", "FastGL's released us": "released_us",
        }),
        targets=targets.gin, l2=AS_LEFT,
    ),
    Suite(
        "fastgl-table3", "suites.fastgl.aggregation.table3", "bandwidth of each memory level, measured",
        columns={"level": "level", "GB/s": "gbps", "capacity": "capacity"},
        paper=_part("table 3", papers.TABLE3, ("level",), {"paper GB/s": "gbps", "paper capacity": "capacity"}),
        takes_graphs=False,
    ),
    Suite(
        "fastgl-table2", "suites.fastgl.aggregation.table2",
        "cache hits and GFLOP/s of the forward aggregation",
        columns=as_recorded({
            "kernel": "kernel", "L2": "l2", "us": Spread("us"),
            "GFLOP/s": "gflops", "L1 %": "l1_percent", "L2 %": "l2_percent",
            "read before %": "repeated_percent", "hits": "hits_origin",
        }),
        paper=_part(
            "table 2", papers.TABLE2, ("graph",),
            {"paper L1 %": "l1_percent", "paper L2 %": "l2_percent", "paper GFLOP/s": "gflops"},
        ),
        l2=FLUSHED,
    ),
    Suite(
        "fastgl-fig12", "suites.fastgl.aggregation.figure12", "roofline of the aggregation kernels",
        columns=as_recorded({
            "direction": "direction", "features": "num_features", "kernel": "kernel", "L2": "l2",
            "us": Spread("us"), "FLOP/byte": "flops_per_byte", "GFLOP/s": "gflops", "roof": "roof_gflops",
            "asked GB/s": "asked_gbps", "over library": "over_library",
        }),
        paper=_part("figure 12"), l2=FLUSHED, takes_one=True,
    ),
    Suite(
        "fastgl-table4", "suites.fastgl.memory_io.table4",
        "match degrees of an epoch's mini-batches; needs no GPU",
        rests_on=("match degree", "match spread"), columns={
            "batches": "num_batches", "rows a batch": "rows_per_batch", "average %": "average_percent",
            "spread %": "spread_percent", "next, as sampled %": "neighbours_as_sampled_percent",
            "greedy %": "neighbours_greedy_percent", "two-opt %": "neighbours_two_opt_percent",
        },
        paper=_part(
            "table 4", papers.TABLE4, ("graph",),
            {"paper average %": "average_percent", "paper spread %": "spread_percent"},
        ),
        needs_gpu=False,
    ),
    Suite(
        "fastgl-table7", "suites.fastgl.memory_io.table7",
        "memory IO with random walks: all rows, Match, reorder",
        rests_on=("match degree",), columns=as_recorded({
            "system": "system", "by": "transfer", "features": "num_features", "ms a batch": Spread("io_ms"),
            "epoch s": "io_s", "x": "speedup", "MB": "mb_per_batch", "reused %": "reused_percent",
        }),
        paper=_part("table 7", papers.TABLE7, ("graph", "system"), {"paper s": "io_s", "paper x": "speedup"}),
        l2=AS_LEFT,
    ),
    Suite(
        "fastgl-fig10", "suites.fastgl.memory_io.figure10",
        "memory IO against the cache ratio, Match with and without reorder",
        rests_on=("match degree", "hit rate"), columns=as_recorded({
            "part": "part", "system": "system", "features": "num_features", "cached %": "cache_percent",
            "ms a batch": Spread("io_ms"), "x": "speedup", "MB": "mb_per_batch", "hit %": "hit_percent",
            "reused %": "reused_percent", "reorder takes off": "reorder_gain",
        }),
        paper=_part("figure 10"), l2=AS_LEFT,
    ),
    Suite(
        "fastgl-fig1", "suites.fastgl.training.figure1",
        "where an epoch's time goes in DGL's and PyG's configuration",
        columns=as_recorded({**_RUN, **_SHARES}), paper=_part("figure 1"), l2=AS_LEFT,
    ),
    Suite(
        "fastgl-fig3", "suites.fastgl.training.figure3", "where an epoch's time goes as FastGL's techniques are added",
        columns=as_recorded({**_RUN, "x": "speedup", **_SHARES}), paper=_part("figure 3"), l2=AS_LEFT,
    ),
    Suite(
        "fastgl-fig9", "suites.fastgl.training.figure9", "epoch time of three models by system, one GPU (paper: 2)",
        columns=as_recorded({
            **_RUN, "over dgl": "speedup", "fastgl over it": "fastgl_over_it", "lab over it": "lab_over_it", **_CACHE,
        }),
        paper=_part(
            "figure 9", papers.FIGURE9, ("system",),
            {"paper: FastGL x, least": "slowest", "most": "fastest", "average": "average"},
        ),
        targets=targets.epochs, l2=AS_LEFT,
    ),
    Suite(
        "fastgl-fig11", "suites.fastgl.training.figure11",
        "compute time by aggregation kernel, preprocessing included",
        columns=as_recorded({
            "system": "system", "whose": _whose, "kernel": "kernel", **SEEDS_A_BATCH, "train ms": "train_ms",
            "x": "speedup", "sums ms": "aggregate_ms", "sums x": "aggregate_speedup",
            "preprocessing %": "preprocess_percent", **_CACHE,
        }),
        paper=_part("figure 11"), l2=AS_LEFT,
    ),
    Suite(
        "fastgl-table6", "suites.fastgl.datasets.table6", "table 6: FastGL's graphs beside their twins; needs no GPU",
        columns=GRAPHS, paper=_part("table 6", papers.TABLE6, ("graph",), GRAPHS_IN_PRINT), needs_gpu=False,
    ),
    Suite(
        "fastgl-fig13", "suites.fastgl.training.figure13", "time to sample an epoch by system",
        columns=as_recorded({
            "system": "system", "whose": _whose, "strategy": "strategy", "pick": "pick", "ID map": "id_map",
            "samplers": "samplers", **SEEDS_A_BATCH, "ms a batch": Spread("sample_ms"),
            "epoch s": "epoch_s", "over dgl": "speedup",
        }),
        paper=_part("figure 13"), l2=AS_LEFT,
    ),
    Suite(
        "fastgl-fig14", "suites.fastgl.training_scale.figure14",
        "over batch size, feature dimension, fanouts and depth, one GPU (paper: 2)",
        columns=as_recorded({
            "part": "part", "batch": "batch_size", "features": "num_features", "fanouts": "fanouts",
            "system": "system", "whose": _whose, "sample ms": "sample_ms", "step ms": Spread("step_ms"),
            "epoch s": "epoch_s",
            "over dgl": "speedup", **_CACHE,
        }),
        paper=_part("figure 14"), l2=AS_LEFT,
    ),
    Suite(
        "fastgl-fig14a", "suites.fastgl.training_gpus.figure14a",
        "over the number of GPUs, up to those that are there; eight modelled",
        columns=as_recorded({
            "system": "system", "GPUs": "gpus", "by": "origin", "batch of a GPU": "batch_size",
            "features": "num_features", **WORK_A_BATCH, "sample ms": "sample_ms", "extract ms": "extract_ms",
            "train ms": "train_ms", **EPOCH_MS,
            "model off %": "error_percent", "cached %": "cache_percent", "over one GPU": "over_one",
            "over dgl": "over_dgl",
        }),
        paper=_part("figure 14a", papers.FIGURE14A, ("system",), {"paper: 8 GPUs over one": "over_one"}),
        needs_gpu=False, last=True, l2=AS_LEFT, takes_one=True,
    ),
    Suite(
        "fastgl-fig15", "suites.fastgl.training.figure15", "ablation: the gain of each technique",
        rests_on=("match degree",),
        columns=as_recorded({**_RUN, "over dgl": "speedup", "this step x": "step_gain", **_CACHE}),
        paper=_part("figure 15"), l2=AS_LEFT,
    ),
    Suite(
        "fastgl-table1", "suites.fastgl.training_scale.table1",
        "device memory left while DGL's configuration trains",
        columns={
            **SEEDS_A_BATCH, "features GB": "feature_gb", "in use MB": "peak_mb", "left GB": "left_gb",
            "of 24 GB": "left_of_24_gb",
        },
        paper=_part("table 1", papers.TABLE1, ("graph",), {"paper GB of 24": "left_gb"}),
    ),
    Suite(
        "fastgl-table9", "suites.fastgl.training_scale.table9", "device memory in use by system",
        columns={
            "system": "system", "executor": "executor", **SEEDS_A_BATCH, "MB": "mb", "over dgl": "over_dgl",
            "over dgl, stage by stage": "over_dgl_in_turn",
        },
        paper=_part("table 9", papers.TABLE9, ("graph", "system"), {"paper MB": "mb"}),
    ),
    Suite(
        "fastgl-fig16", "suites.fastgl.training_curves.figure16",
        "loss and accuracy of the fast path over DGL's, three seeds, one GPU (paper: 2); needs no GPU",
        columns=as_recorded({
            "model": "model", "system": "system", "seed": "seed", "epochs": "epochs", **SEEDS_A_BATCH,
            "final loss": "final_loss",
            "final accuracy %": Percent("final_accuracy"), "split": "split", "of the original %": Percent("original"),
        }),
        paper=_part("figure 16"), targets=targets.curves, notes=curve_notes, needs_gpu=False,
        seconds=250,
    ),
)  # fmt: skip
