"""PGSampler's evaluation: kernels of the queue, whole mini-batches, several in a launch, a graph of 111 M nodes."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench.suite import WORK, Columns, Record, Row, Suite

from . import papers, targets


def _table1(record: Record) -> Columns:
    # The paper's numbers belong to its own graph and its twin; beside another graph they would mislead.
    hops = {row["hop"]: row for row in record.get("paper", {}).get("rows", [])}

    def paper(key: str) -> Any:
        def cell(row: Row) -> Any:
            return hops.get(row["hop"], {}).get(key) if "products" in row["graph"] else None

        return cell

    return {
        "hop": "hop", "workload": "workload", "(paper)": paper("workload"), "pre us": "pre_us",
        "(paper) ": paper("pre_us"), "kernel us": "kernel_us", "(paper)  ": paper("kernel_us"),
        "% of copy bandwidth": "copy_percent", "(paper: % of peak)": paper("mem_percent"),
    }  # fmt: skip


def _fusing(record: Record) -> Columns:
    sizes = sorted({int(n) for row in record["rows"] for n in row["launches_of_us"]})
    return {
        **WORK, "strategy": "strategy", "in a call": "in_a_call", "one by one us": "one_by_one_us",
        **{f"{n} a launch us": f"launches_of_us.{n}" for n in sizes},
        "begins with": "begin", "keeps": "chosen", "us": "chosen_us", "x": "ratio",
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
        columns={
            **WORK, "block-bsp us": "baseline_us", "alone us": "alone_us", "by": "alone_strategy",
            "32 together, each us": "fused32_us",
        },
        paper={"source": "measured separately", **papers.CUGRAPH}, targets=targets.whole_process, notes=_cugraph,
    ),
    Suite(
        "pgsampler-table1", "suites.pgsampler.kernels.table1",
        "per hop: workload, preprocessing, kernel time, utilisation",
        columns=_table1, paper=papers.PAPER.part("table I", papers.TABLE1), notes=_notes, rests_on=("frontier",),
    ),
    Suite(
        "pgsampler-fig8", "suites.pgsampler.kernels.figure8",
        "kernel speed-up of the persistent queue over block-bsp",
        columns={
            **WORK, "block-bsp us": "kernel_us.block-bsp", "persistent us": "kernel_us.persistent",
            "tile us": "kernel_us.persistent-tile", "persistent x": "speedup.persistent",
            "tile x": "speedup.persistent-tile",
        },
        paper=papers.PAPER.part("section V-B, figure 8", **papers.FIGURE8), targets=targets.figure8, notes=_notes,
    ),
    Suite(
        "pgsampler-fig9", "suites.pgsampler.whole.figure9",
        "whole-process speed-up over block-bsp with DGL's ID map",
        columns={
            **WORK, "block-bsp us": "wall_us.block-bsp", "persistent us": "wall_us.persistent",
            "best us": "wall_us.best", "best": "best_strategy", "persistent x": "speedup.persistent",
            "best, same pick x": "speedup.best same pick", "best x": "speedup.best",
        },
        paper=papers.PAPER.part("section V-B, figure 9", **papers.FIGURE9), targets=targets.figure9, notes=_notes,
    ),
    Suite(
        "pgsampler-fig10", "suites.pgsampler.kernels.figure10",
        "fusion without balancing against the persistent queue",
        columns={
            **WORK, "fused-static us": "kernel_us.fused-static", "persistent us": "kernel_us.persistent",
            "persistent x": "speedup.persistent",
        },
        paper=papers.PAPER.part("section V-D, figure 10"), notes=_notes,
    ),
    Suite(
        "pgsampler-table3", "suites.pgsampler.kernels.table3",
        "against TurboGNN's execution, both over block-bsp",
        columns={
            **WORK, "system of the setting": "system", "paper x": "paper_speedup",
            "persistent x": "speedup.persistent", "tile x": "speedup.persistent-tile",
            "turbo-bsp x": "speedup.turbo-bsp", "block-bsp us": "kernel_us.block-bsp",
        },
        paper=papers.PAPER.part("table III", papers.TABLE3), notes=_notes,
    ),
    Suite(
        "fusing", "suites.pgsampler.whole.fusing",
        "several mini-batches in a launch against one by one, and what is chosen",
        columns=_fusing, targets=targets.fusing, last=True,
    ),
    Suite(
        "papers100m-rmat", "suites.pgsampler.whole.papers100m",
        "111 M nodes, 1.6 G edges: scratch memory and wall time",
        columns={
            **WORK, "strategy": "strategy", "in a call": "fused", "each us": "wall_us",
            "scratch MiB": lambda row: row["scratch_bytes"] / 2**20,
            "limit MiB": lambda row: row["scratch_limit_bytes"] / 2**20,
        },
        targets=targets.papers100m, last=True,
    ),
)  # fmt: skip
