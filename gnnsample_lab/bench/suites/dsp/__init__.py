"""DSP's evaluation of sampling from a graph in parts, and the methods that were put beside its own."""

from __future__ import annotations

import functools
from typing import Any

from gnnsample_lab.bench.hardness import hardness
from gnnsample_lab.bench.record import scaled
from gnnsample_lab.bench.suite import AS_LEFT, WORK, Percent, Spread, Suite, as_recorded, usual_notes
from gnnsample_lab.bench.suites.cells import EPOCH_MS, WORK_A_BATCH, between

from . import papers, targets

_part = papers.PAPER.part


def _percent(row: dict[str, object], name: str) -> float | None:
    value = row.get(name)
    return None if value is None else 100 * float(value)  # type: ignore[arg-type]


def _method(row: dict[str, object]) -> object:
    return "csp" if row["system"] == "dsp" else row["system"]


def _parts(row: dict[str, Any]) -> str:
    """How many and how they were made; of one GPU that has the seeds of several ranks, of how many."""
    several = row.get("seeds_of") or 1  # records from before baselines had seeds of their own have none
    return f"{row['world']} {row['partition']}" + f", seeds of {several}" * (several > 1)


def _origin(row: dict[str, Any]) -> str:
    """Measured, or modelled and from which stage times: "modelled, stages alone"."""
    return ", ".join(row[name] for name in ("origin", "stages") if row.get(name))


_GCN_S = {(row["graph"], row["system"]): row["epoch_s"] for row in papers.TABLE5}


def _table5(row: dict[str, Any]) -> float | None:
    """What table 5 has of the row's system and graph, whatever the row's number of GPUs: it has 8 alone."""
    if row.get("part") not in ("systems", "systems, modelled") or row.get("model") != "gcn":
        return None
    return _GCN_S.get((scaled(row["graph"])[0], row["system"]))


def _notes(record: dict[str, Any], own_epochs: bool = False) -> list[str]:
    """As of all suites, but that mini-batches are not scaled with a graph.

    Args:
        own_epochs: epoch seconds are those of the scaled graph's own training vertices, not of its original's.
    """
    found = usual_notes(record)
    if not any(note.startswith("x SCALE") for note in found):
        return found
    said = "x SCALE: vertices and edges are scaled, mini-batches are not, and cover more of the graph."
    if not own_epochs and any("epoch_s" in row for row in record["rows"]):
        said += " Epoch seconds are for as many mini-batches as the original's training vertices make."
    return [said, *(note for note in found if not note.startswith("x SCALE"))]


_own_epochs = functools.partial(_notes, own_epochs=True)


def _crossing_notes(record: dict[str, Any]) -> list[str]:
    """Where pulling becomes the cheaper way."""
    found = []
    for at in record.get("crossings", []):
        places = [
            f"{what} at a fanout of {at[key]:.0f}"
            for what, key in (("as many bytes", "bytes"), ("as long", "time")) if at[key] is not None
        ]  # fmt: skip
        found.append(
            f"{at['graph']}: pulling and pushing take {' and '.join(places) or 'nowhere as much or as long'}."
        )
    return [*found, *hardness(record), *_notes(record)]


def _best_notes(record: dict[str, Any]) -> list[str]:
    """The best division, measured and modelled; of older records, which are of one number of GPUs, without it."""
    found = []
    for best in record.get("best", []):
        where = f"{best['graph']}, {best['gpus']} GPUs" if "gpus" in best else best["graph"]
        found.append(
            f"{where}: measured best with {best['feature_share']:.0%} of the budget for features, "
            f"{best['spilled']:.0f} % of the lists in host memory; by the bytes {best['modelled_share']:.0%}."
        )
    return [*found, *_notes(record)]


def _converged_notes(record: dict[str, Any]) -> list[str]:
    """When each system was nearly as good as the best."""
    found, groups = [], dict[str, list[dict[str, Any]]]()
    for row in record.get("converged", []):
        # Older records are of one number of GPUs, and do not say it.
        of = f", seeds of {row['seeds_of']} ranks" if "seeds_of" in row else ""
        groups.setdefault(f"{row['graph']}{of}", []).append(row)
    for name, group in groups.items():
        times = ", ".join(
            f"{row['system']} after {row['seconds']:.2f} s{' (modelled)' * (row.get('origin') == 'modelled')} "
            f"and {row['steps']} steps"
            for row in group if row["seconds"] is not None
        )  # fmt: skip
        found.append(f"{name}: {record['settings']['nearly']:.0%} of the best accuracy: {times}.")
    return [*found, *_own_epochs(record)]


SUITES = (
    Suite(
        "dsp-volume", "suites.dsp.volume.volume",
        "figure 1: bytes of a mini-batch by method, against ideal; 1 to 8 ranks, counted; needs no GPU",
        columns={
            "ranks": "ranks", "parts": "partition", "balance": "balance", "draws": "draws",
            "seeds a rank": "batch_size", "rows a batch": "rows", "picks a batch": "edges",
            "picks of all ranks": "picks", "remote lists %": "remote_percent", "mean degree": "mean_degree",
            "ideal MB": "mb.ideal", "csp x": "over_ideal.csp", "pull x": "over_ideal.pull", "uva x": "over_ideal.uva",
            "direct x": "over_ideal.direct", "pull over csp": "pull_over_csp",
        },
        paper=_part("figure 1"), targets=targets.volume, notes=_notes, needs_gpu=False, last=True,
    ),
    Suite(
        "dsp-copies", "suites.dsp.copies.copies",
        "remote draws that copied lists serve, by reads saved per byte and by degree; counted; needs no GPU",
        columns={
            "parts": lambda row: f"{row['ranks']} {row['partition']}", "balance": "balance",
            "seeds a rank": "batch_size", "rows a batch": "rows", "picks a batch": "edges",
            "cache %": "budget_percent", "ranked by": "ranking",
            "MB a rank": "copied_mb", "saved %": Percent("saved_share"), "over degree": "over_degree",
        },
        targets=targets.copies, needs_gpu=False, last=True,
    ),
    Suite(
        "dsp-pull", "suites.dsp.pulling.pulling",
        "figure 11, section 4.1: csp against pulled lists, with and without barriers, over the fanout; ranks at once",
        columns={
            "ranks": "ranks", "part": "part", "draws": "draws", "seeds a rank": "batch_size", "fanouts": "fanouts",
            "method": _method, "rows a batch": "rows", "picks a batch": "edges", "us": "us", "p10": "p10", "p90": "p90",
            "time x csp": "x_time",
            "csp takes off %": "less_percent", "MB": "mb", "MB x csp": "x_bytes", "failed": "error",
        },
        paper=_part("figure 11"), targets=targets.pulling, notes=_crossing_notes, needs_gpu=False, last=True,
        l2=AS_LEFT,
    ),
    Suite(
        "dsp-sampling", "suites.dsp.sampling.sampling",
        "tables 6 and 7: seconds to sample an epoch by system and GPUs, by vertex and by layer",
        columns=as_recorded({
            "table": "part", "system": "system", "GPUs": "gpus", "by": "by", "samplers": "samplers", "pick": "pick",
            "seeds a rank": "batch_size", "rows a batch": "rows", "picks a batch": "edges", "us": "us", "p10": "p10",
            "p90": "p90", "MB": "mb", "epoch s": "epoch_s", "over dsp": "over_dsp", "failed": "error",
        }),
        paper=_part(
            "table 6", (*papers.TABLE6, *papers.TABLE7), ("part", "graph", "system", "paper_gpus"),
            {"paper GPUs": "paper_gpus", "paper s": "epoch_s"},
        ),
        targets=targets.sampling, notes=_notes, needs_gpu=False, last=True, l2=AS_LEFT,
    ),
    Suite(
        "dsp-bandwidth", "suites.dsp.bandwidth.bandwidth",
        "table 1: bandwidths of memories and links of this host, all GPUs at work; only measured",
        columns={
            "link": "what", "GPUs": "gpus", "MB a call": "mb", "GB/s": "gbps", "p10": "p10_gbps", "p90": "p90_gbps",
            "least of a GPU": "least_of_a_gpu",
            "million reads/s": "megareads",
        },
        paper=_part("table 1", papers.TABLE1, ("link", "gpus"), {"paper GB/s (DGX-1)": "gbps"}),
        needs_gpu=False, takes_graphs=False, last=True, l2=AS_LEFT,
    ),
    Suite(
        "dsp-threads", "suites.dsp.threads.threads",
        "figure 2: speed of sampling, loading and copying over the number of threads",
        columns={
            "kernel": "kernel", "memory": "memory", "threads": "threads", "rows a batch": "rows",
            "picks a batch": "edges", "MB a call": "mb", "us": "us", "p10": "p10", "p90": "p90",
            "of best %": "of_best_percent", "90 % of best from": "enough",
        },
        paper=_part("figure 2"), notes=_notes, last=True, l2=AS_LEFT, takes_one=True,
    ),
    Suite(
        "dsp-memory", "suites.dsp.memory.memory",
        "figure 10: sampling and loading over the division of each GPU's memory between topology and features; eight "
        "GPUs modelled",
        columns=as_recorded({
            "GPUs": "gpus", "times by": "origin", "budget MB": "budget_mb", "topology MB": "topology_mb",
            "features MB": "feature_mb", "lists in host %": "spilled_percent", "rows cached %": "cached_percent",
            "rows a batch": "rows", "picks a batch": "edges", "sample us": Spread("sample_us"),
            "load us": Spread("load_us"), "both us": "us", "epoch s": "epoch_s", "from host MB": "host_mb",
            "by the bytes us": "modelled_us", "line off %": "error_percent", "failed": "error",
        }),
        paper=_part("figure 10"), notes=_best_notes, needs_gpu=False, last=True, l2=AS_LEFT,
    ),
    Suite(
        "pipelines", "suites.dsp.pipelines.pipelines",
        "training: overlapped stages and their ceiling, more GPUs, ways to hand over; tables 4 and 5, smaller",
        columns=as_recorded({
            "part": "part", "system": "system", "model": "model", "GPUs": "gpus", "executor": "executor",
            "way": "way", "step": "step", "seeds a GPU": "seeds_a_gpu", **WORK_A_BATCH,
            "ms a step": "ms", "p10": "p10", "p90": "p90", "sample ms": "sample_ms",
            "put ms": "put_ms", "get ms": "get_ms",
            "extract ms": "extract_ms", "train ms": "train_ms", "cached %": "cached_percent", "hit %": "hit_percent",
            "misses by": "transfer", "cache MB": "cache_mb", "peak MB": "peak_mb",
            "ceiling": "ceiling", "gained": "gained", "of ceiling %": "share_percent", "x one GPU": "x_one",
            "x first way": "x_first", "epoch ms": "epoch_ms", "modelled epoch ms": "modelled_ms",
            "model off by %": "model_error_percent", "over dsp": "over_dsp", "epoch s": "epoch_s",
            "sampling kernels of trainers": "trainer_kernels", "failed": "error",
            "paper epoch s (GCN, 8 GPUs)": _table5,
        }),
        paper=_part(
            "table 4", [{**row, "model": "sage"} for row in papers.TABLE4], ("graph", "system", "gpus", "model"),
            {"paper epoch s": "epoch_s"},
        ),
        targets=targets.pipelines, notes=_own_epochs, needs_gpu=False, last=True, l2=AS_LEFT,
    ),
    Suite(
        "dsp-utilisation", "suites.dsp.utilisation.utilisation",
        "figure 12: what stages keep busy with and without the pipeline, and its speed-up; more GPUs modelled",
        columns=as_recorded({
            "GPUs": "gpus", "system": "system", "origin": _origin, **WORK_A_BATCH, **EPOCH_MS,
            "sample ms": "sample_ms", "extract ms": "extract_ms", "train ms": "train_ms",
            "sampling %": "sample_percent", "extracting %": "extract_percent", "training %": "train_percent",
            "any stage %": "busy_percent", "over dsp-seq": "speedup", "model off %": "error_percent",
        }),
        paper=_part("figure 12"), notes=_own_epochs, needs_gpu=False, last=True, l2=AS_LEFT,
    ),
    Suite(
        "dsp-busy", "suites.dsp.gpu_busy.gpu_busy",
        "figure 6: for how much of an epoch a GPU runs a kernel, with and without the pipeline",
        columns=as_recorded({
            "GPUs": "gpus", "system": "system", "executor": "executor", **WORK_A_BATCH,
            "a kernel runs %": "gpu_busy_percent", "10th %": "p10_percent", "90th %": "p90_percent", "runs": "runs",
            "over dsp-seq": "over_seq", "profiled epoch s": "profiled_epoch_s",
        }),
        paper=_part("figure 6"), notes=_own_epochs, last=True, l2=AS_LEFT,
    ),
    Suite(
        "dsp-accuracy", "suites.dsp.accuracy.accuracy",
        "figure 9: loss and accuracy by system over mini-batches and seconds, eight GPUs' modelled; needs no GPU",
        columns=as_recorded({
            "system": "system", "ranks": "gpus", "seeds of ranks": "seeds_of", "seconds by": "origin", **WORK_A_BATCH,
            **EPOCH_MS, "model off %": "error_percent", "epoch": "epoch", "steps": "steps",
            "seconds": "seconds",
            "loss": "loss", "accuracy %": Percent("accuracy"), "of the original %": Percent("original"),
        }),
        paper=_part(
            "figure 9", papers.FIGURE9, ("system",), {"paper: converged after s (Papers, 8 GPUs)": "converged_s"}
        ),
        notes=_converged_notes, needs_gpu=False, last=True, l2=AS_LEFT,
    ),
    Suite(
        "dsp-deadlock", "suites.dsp.deadlock.deadlock",
        "figure 8: collectives in different orders wait for each other; in one order they end; needs no GPU",
        columns={"order": "order", "outcome": "outcome", "who waits": "waits", "s": "seconds"},
        paper=_part("figure 8"), needs_gpu=False, takes_graphs=False,
    ),
    Suite(
        "dsp-parameters", "suites.dsp.settings.parameters",
        "table 2: parameters of collective sampling, and ours; needs no GPU",
        columns={"DSP": "parameter", "ours": "ours", "type": "type", "note": "note"},
        paper=_part("table 2", papers.TABLE2, ("parameter",), {"paper": "about"}), needs_gpu=False, takes_graphs=False,
    ),
    Suite(
        "dsp-graphs", "suites.dsp.settings.graphs", "table 3: DSP's graphs beside their twins; needs no GPU",
        columns={
            "nodes": "num_nodes", "edges": "num_edges", "average degree": "average_degree", "features": "num_features",
            "topology GB": "topology_gb", "features GB": "feature_gb", "training": "train",
        },
        paper=_part(
            "table 3", papers.TABLE3, ("graph",),
            {
                "paper nodes": "num_nodes", "paper edges": "num_edges", "paper degree": "average_degree",
                "paper features": "num_features", "paper topology GB": "topology_gb",
                "paper features GB": "feature_gb",
            },
        ),
        needs_gpu=False,
    ),
    Suite(
        "ladder", "suites.dsp.ladder.ladder",
        "us of a mini-batch from a graph in parts: every method, ranks at once, against one with the whole graph",
        columns={
            "parts": _parts, "balance": "balance", **WORK,
            "draws": lambda row: "with replacement" if row["replace"] else "without", "method": "method",
            "cache %": "budget_percent", "saved %": lambda row: _percent(row, "saved_share"),
            "remote %": lambda row: _percent(row, "remote_share"), "rows a batch": "rows", "picks a batch": "edges",
            "us": "us", "p10": "p10", "p90": "p90", "x one": "x_one",
            "us, many": between("many_us", "many_p10", "many_p90"), "x one, many": "x_many",
            "GPU us": between("gpu_us", "gpu_p10", "gpu_p90"), "x one, GPU": "x_gpu", "x best": "x_best",
            "MB read": lambda row: None if row.get("volume") is None else row["volume"] / 1e6,
            "remote degree": "remote_degree", "partition s": "partition_s", "failed": "error",
        },
        targets=targets.ladder, notes=_own_epochs, needs_gpu=False, last=True, l2=AS_LEFT,
    ),
    Suite(
        "rank-features", "suites.dsp.features.features",
        "GB/s of feature rows between ranks by transport, all ranks at once, beside the copy of a peer's memory",
        columns={
            "ranks": lambda row: row.get("ranks", 2),
            "rows of": "what", "transport": "transport", "bytes of a row": "row_bytes", "rows a batch": "asked",
            "picks a batch": "edges",
            "us": "us", "p10": "p10", "p90": "p90", "GB/s": "gbps", "of the copy": "of_copy",
        },
        targets=targets.features, needs_gpu=False, takes_graphs=False, last=True, l2=AS_LEFT,
    ),
)  # fmt: skip
