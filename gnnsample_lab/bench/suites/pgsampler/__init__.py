"""PGSampler's evaluation: kernels of the queue, whole mini-batches, several in a launch, a graph of 111 M nodes."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench import peers
from gnnsample_lab.bench.hardness import curve_notes
from gnnsample_lab.bench.suite import (
    EMPTIED,
    PUBLISHED_QUEUE,
    WORK,
    Columns,
    Percent,
    Record,
    Row,
    Spread,
    Suite,
    as_recorded,
)
from gnnsample_lab.bench.suites.cells import GRAPHS, GRAPHS_IN_PRINT

from . import papers, targets


def _table1(record: Record) -> Columns:
    # The paper's numbers belong to its own graph and its twin; beside another graph they would mislead.
    hops = {row["hop"]: row for row in record.get("paper", {}).get("rows", [])}

    def paper(key: str) -> Any:
        def cell(row: Row) -> Any:
            return hops.get(row["hop"], {}).get(key) if "products" in row["graph"] else None

        return cell

    rows = record.get("rows", [])
    profiled = any("compute_percent" in row for row in rows)
    shares: Columns = {
        "compute %": "compute_percent", "(paper: compute %)": paper("comp_percent"), "memory %": "memory_percent",
    }  # fmt: skip
    kernels: Columns = {"kernel us": Spread("kernel_us")}
    if any("coo_us" in row for row in rows):
        kernels = {
            "kernel us, ours": Spread("kernel_us"), "kernel us, published (COO)": Spread("coo_us"),
        }  # fmt: skip
    return {
        "hop": "hop", **_l2(record), "workload": "workload", "(paper)": paper("workload"),
        "pre us": Spread("pre_us"), "(paper) ": paper("pre_us"), **kernels,
        "(paper)  ": paper("kernel_us"), "% of copy bandwidth": "copy_percent", **(shares if profiled else {}),
        "(paper: % of peak)": paper("mem_percent"),
    }  # fmt: skip


def _l2(record: Record) -> Columns:
    """How rows find the L2 cache, where the record says so."""
    return {"L2": "l2"} if any("l2" in row for row in record["rows"]) else {}


def _published(record: Record, times: str = "") -> Columns:
    """The queue as published, where the record has it, and how long it takes."""
    if not any(PUBLISHED_QUEUE in row["speedup"] for row in record["rows"]):
        return {}
    taken: Columns = {"as published us": Spread(f"{times}.{PUBLISHED_QUEUE}")} if times else {}
    return {**taken, "as published x": f"speedup.{PUBLISHED_QUEUE}"}


def _figure8(record: Record) -> Columns:
    fixed: Columns = {
        "of 128 threads us": "dgl_threads_us", "persistent over it x": "over_dgl_threads.persistent",
    }  # fmt: skip
    return {
        **WORK, **_l2(record), "block-bsp us": Spread("kernel_us.block-bsp"), **_published(record, "kernel_us"),
        "persistent us": Spread("kernel_us.persistent"), "tile us": Spread("kernel_us.persistent-tile"),
        "persistent x": "speedup.persistent", **(fixed if record.get("averages") else {}),
        "tile x": "speedup.persistent-tile",
    }  # fmt: skip


def _figure9(record: Record) -> Columns:
    if not any("best same pick, floyd" in row["speedup"] for row in record["rows"]):
        return {
            **WORK, "block-bsp us": "wall_us.block-bsp", "persistent us": "wall_us.persistent",
            "best us": "wall_us.best", "best": "best_strategy", "persistent x": "speedup.persistent",
            "best, same pick x": "speedup.best same pick", "best, mixed picks x": "speedup.best",
        }  # fmt: skip
    return {
        **WORK, **_l2(record), "block-bsp, floyd us": Spread("wall_us.block-bsp, floyd"),
        "best, floyd us": Spread("wall_us.best"), "by": "best_strategy",
        "best x, both floyd": "speedup.best same pick, floyd",
        "block-bsp, reservoir us": Spread("wall_us.block-bsp"),
        "best, reservoir us": Spread("wall_us.best same pick"), "by ": "best_same_pick_strategy",
        "best x, both reservoir": "speedup.best same pick",
        **_published(record, "wall_us"), "persistent, reservoir us": Spread("wall_us.persistent"),
        "persistent x, both reservoir": "speedup.persistent", "best x, mixed: floyd over reservoir": "speedup.best",
    }  # fmt: skip


def _figure10(record: Record) -> Columns:
    return {
        **WORK, **_l2(record), "fused-static us": Spread("kernel_us.fused-static"),
        **_published(record, "kernel_us"), "persistent us": Spread("kernel_us.persistent"),
        "persistent x": "speedup.persistent",
    }  # fmt: skip


def _throughput(record: Record) -> Columns:
    published: Columns = {
        "as published, compute x": "published_gain.compute_percent",
        "as published, memory x": "published_gain.memory_percent",
    }
    return {
        **WORK, "block-bsp: compute %": Spread("compute_percent.block-bsp"),
        "persistent: compute %": Spread("compute_percent.persistent"), "compute x": "gain.compute_percent",
        "block-bsp: memory %": Spread("memory_percent.block-bsp"),
        "persistent: memory %": Spread("memory_percent.persistent"), "memory x": "gain.memory_percent",
        **(published if any("published_gain" in row for row in record["rows"]) else {}),
    }  # fmt: skip


def _table3(record: Record) -> Columns:
    return {
        **WORK, **_l2(record), "system of the setting": "system", "paper x": "paper_speedup",
        **_published(record), "persistent x": "speedup.persistent", "tile x": "speedup.persistent-tile",
        "turbo-bsp x": "speedup.turbo-bsp", "block-bsp us": Spread("kernel_us.block-bsp"),
    }  # fmt: skip


def _papers100m(record: Record) -> Columns:
    return {
        **WORK, **_l2(record), "strategy": "strategy", "in a call": "fused", "each us": Spread("wall_us"),
        "scratch MiB": lambda row: row["scratch_bytes"] / 2**20,
        "limit MiB": lambda row: row["scratch_limit_bytes"] / 2**20,
    }  # fmt: skip


def _whole(record: Record) -> Columns:
    fused: Columns = {"32 together, each us": Spread("fused32_us")}
    if not any("speedup" in row for row in record["rows"]):
        return {
            **WORK, "block-bsp (reservoir) us": "baseline_us", "alone us": "alone_us", "by": "alone_strategy", **fused,
        }  # fmt: skip
    return {
        **WORK, **_l2(record), "block-bsp, floyd us": Spread("baseline_floyd_us"),
        "alone, floyd us": Spread("alone_us"), "by": "alone_strategy", "x, both floyd": "speedup.floyd",
        "block-bsp, reservoir us": Spread("baseline_us"),
        "alone, reservoir us": Spread("alone_reservoir_us"), "by ": "alone_reservoir_strategy",
        "x, both reservoir": "speedup.reservoir", "x, mixed: floyd over reservoir": "speedup.mixed", **fused,
    }  # fmt: skip


def _fusing(record: Record) -> Columns:
    sizes = sorted({int(n) for row in record["rows"] for n in row["launches_of_us"]})
    return {
        **WORK, **_l2(record), "strategy": "strategy", "in a call": "in_a_call",
        "one by one us": Spread("one_by_one_us"),
        **{f"{n} a launch us": f"launches_of_us.{n}" for n in sizes},
        "begins with": "begin", "keeps": "chosen", "us": Spread("chosen_us"), "x": "ratio",
    }  # fmt: skip


def _notes(record: Record) -> list[str]:
    """What the paper says, in words, and where the queue becomes slower."""
    paper, notes = record["paper"], list[str]()
    if "average" in paper:
        notes.append(
            f"Paper: up to {paper['best']} x; on average 1.19 x to 1.47 x per graph ({paper['source']})."
        )
    elif "best" in paper:
        notes.append(f"Paper: up to {paper['best']} x ({paper['source']}).")
    else:
        notes.append(f"Paper: {paper.get('finding') or paper['source']}.")
    for mean in record.get("averages", []):
        over = [f"{mean['over_swept']:.2f} x over block-bsp at its best threads"]
        if mean["over_dgl_threads"] is not None:
            over.insert(0, f"{mean['over_dgl_threads']:.2f} x over block-bsp of 128 threads")
        notes.append(
            f"persistent, {mean['graph']}, mean of {mean['settings']} settings: {', '.join(over)}; the paper's average "
            f"over DGL is {mean['paper']:.2f} x."
        )
    for cross in record.get("crossovers", []):
        at = cross["slower_from_batch"]
        end = "faster at every batch" if at is None else f"slower from {at} seeds"
        notes.append(f"persistent, {cross['graph']}, fanout {cross['fanout']}, {cross['hops']} hops: {end}.")
    return notes


def _cugraph(record: Record) -> list[str]:
    paper = record["paper"]
    times = f"{paper['alone_us']:.0f} us alone, {paper['fused32_us']:.0f} us each with 32 in a call"
    return [f"cuGraph, 1 024 x (10, 10, 10): {times} ({paper['what']})."]


SUITES = (
    Suite(
        "whole-process", "suites.pgsampler.whole.whole_process",
        "wall time of a mini-batch, alone and 32 in one call",
        columns=_whole,
        paper={"source": "measured separately", **peers.CUGRAPH_TOLD}, targets=targets.whole_process, notes=_cugraph,
    ),
    Suite(
        "pgsampler-table1", "suites.pgsampler.kernels.table1",
        "per hop: workload, preprocessing, kernel time, utilisation",
        columns=_table1, paper=papers.PAPER.part("table I", papers.TABLE1), notes=_notes, rests_on=("frontier",),
    ),
    Suite(
        "pgsampler-table2", "suites.pgsampler.datasets.table2",
        "table II: PGSampler's graphs beside their twins; needs no GPU",
        columns=GRAPHS,
        paper=papers.PAPER.part("table II", papers.TABLE2, ("graph",), GRAPHS_IN_PRINT),
        needs_gpu=False,
    ),
    Suite(
        "pgsampler-fig8", "suites.pgsampler.kernels.figure8",
        "kernel speed-up of the persistent queue over block-bsp",
        columns=_figure8,
        paper=papers.PAPER.part("section V-B, figure 8", **papers.FIGURE8), targets=targets.figure8, notes=_notes,
    ),
    Suite(
        "pgsampler-fig9", "suites.pgsampler.whole.figure9",
        "whole-process speed-up over block-bsp with DGL's ID map",
        columns=_figure9,
        paper=papers.PAPER.part("section V-B, figure 9", **papers.FIGURE9), targets=targets.figure9, notes=_notes,
    ),
    Suite(
        "pgsampler-fig10", "suites.pgsampler.kernels.figure10",
        "fusion without balancing against the persistent queue",
        columns=_figure10,
        paper=papers.PAPER.part("section V-D, figure 10"), notes=_notes,
    ),
    Suite(
        "pgsampler-throughput", "suites.pgsampler.throughput.throughput",
        "throughput of multiprocessors and memory, the queue's kernel over DGL's draws, by Nsight Compute",
        columns=_throughput,
        paper=papers.PAPER.part("section V-B", compute=1.59, memory=2.01), l2=EMPTIED,
    ),
    Suite(
        "pgsampler-table3", "suites.pgsampler.kernels.table3",
        "against TurboGNN's execution, both over block-bsp",
        columns=_table3,
        paper=papers.PAPER.part("table III", papers.TABLE3), notes=_notes,
    ),
    Suite(
        "pgsampler-fig11", "suites.pgsampler.accuracy.figure11",
        "validation accuracy of GraphSAGE, the queue against DGL's sampler, by seed; needs no GPU",
        columns=as_recorded({
            "model": "model", "system": "system", "seed": "seed", "batch": "batch_size", "epochs": "epochs",
            "final loss": "final_loss", "final accuracy %": Percent("final_accuracy"),
            "best accuracy %": Percent("best_accuracy"), "split": "split", "of the original %": Percent("original"),
        }),
        paper=papers.PAPER.part("section V-E, figure 11"), targets=targets.figure11, notes=curve_notes, needs_gpu=False,
    ),
    Suite(
        "fusing", "suites.pgsampler.whole.fusing",
        "several mini-batches in a launch against one by one, and what is chosen",
        columns=_fusing, targets=targets.fusing, last=True,
    ),
    Suite(
        "papers100m-rmat", "suites.pgsampler.whole.papers100m",
        "111 M nodes, 1.6 G edges: scratch memory and wall time",
        columns=_papers100m,
        targets=targets.papers100m, last=True, takes_one=True,
    ),
)  # fmt: skip
