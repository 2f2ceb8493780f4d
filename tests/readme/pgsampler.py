"""What the rows of PGSampler say of their records."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from gnnsample_lab.bench.measured import LINES, REPRODUCED, verdict
from tests.notebooks.recorded import (
    Record,
    Said,
    counted,
    median,
    percent,
    rows,
    short,
    span,
    tenths,
    thousands,
)
from tests.readme.rows import Phrases, cards, row

CALLED = {"arxiv-like": "arXiv"}
"""Graphs whose name in prose is not the first part of their twin's."""


def verdicts(of: Record) -> list[str]:
    """What the table "Measured" says of the paper's claims that stand on a record."""
    return [
        verdict([value for value, _ in points], line.claim(of))
        for line in LINES
        if line.suite == of["suite"] and line.claim and (points := line.points(of))
    ]


def called(graph: str) -> str:
    return CALLED.get(graph, graph.removesuffix("-like").capitalize())


def listed(words: Sequence[str]) -> str:
    """ "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def full(of: Record, twins: int) -> bool:
    """Whether a run of all settings is of so many twins, none made smaller."""
    graphs = [row["graph"] for row in of["rows"]]
    return (
        not of["settings"]["quick"]
        and not any("@" in graph for graph in graphs)
        and len({graph for graph in graphs if graph.endswith("-like")}) == twins
    )


def beside_dgl(systems: Record, system: str) -> list[tuple[dict[str, float], dict[str, float]]]:
    """The rows of a system with those of DGL's configuration on the same graphs."""
    return [(row, rows(systems, system="dgl", graph=row["graph"])[0]) for row in rows(systems, system=system)]


@row("PGSampler", "the sampler in DGL's configuration", "systems")
def end_to_end(systems: Record) -> Phrases:
    pairs = beside_dgl(systems, "pgsampler")
    ours, theirs = ([row["sample_ms"] for row in each] for each in zip(*pairs, strict=True))
    return [
        Said("in full size, GraphSAGE", full(systems, 2)),
        f"batches of {thousands(systems['settings']['batch_size'])}",
        cards(systems),
        f"steps {listed([short(row['speedup']) for row, _ in pairs])} x as fast as in DGL's configuration",
        f"sampling takes {listed([short(ms) for ms in ours])} ms instead of {listed([short(ms) for ms in theirs])}",
        Said(
            "the CPU gathers all rows in both",
            all(row["cache_percent"] == 0 and row["executor"] == "thread" for pair in pairs for row in pair),
        ),
    ]


@row("PGSampler", "table 1:", "pgsampler-table1", given=["notebook 01", "the RTX 3090's"])
def hops(table1: Record) -> Phrases:
    mine, paper = rows(table1), table1["paper"]["rows"]
    pairs = list(zip(mine, paper, strict=True))
    off = max(abs(row["workload"] / told["workload"] - 1) for row, told in pairs)
    faster = [told["kernel_us"] / row["coo_us"] for row, told in pairs]
    prepared = [[row["hop"] for row in each if row["pre_us"] > row["kernel_us"]] for each in (mine, paper)]
    busy = [f"{row['compute_percent']:.0f}" for row in mine]
    theirs = [f"{told['comp_percent']:.0f}" for told in paper]
    return [
        Said("in full size", full(table1, 1)),
        Said(
            f"Work per hop within {100 * off:.1f} %, preparing takes longer than the kernel at hops "
            f"{listed([str(hop) for hop in prepared[0]])}: reproduced",
            off < 0.05 and prepared[0] == prepared[1],
        ),
        f"kernels are {span(faster, 'x', tenths)} as fast as",
        Said(
            f"{listed(busy)} % busy (paper {', '.join(theirs)} %): smaller",
            all(row["compute_percent"] < told["comp_percent"] for row, told in pairs),
        ),
    ]


@row("PGSampler", "figure 8:", "pgsampler-fig8")
def kernels(fig8: Record) -> Phrases:
    means = sorted(fig8["averages"], key=lambda mean: -float(mean["over_dgl_threads"]))
    told = {
        mean["graph"]: f"{short(mean['over_dgl_threads'])} x on {called(mean['graph'])} ({mean['paper']:.2f})"
        for mean in means
    }
    reached = [mean["graph"] for mean in means if mean["over_dgl_threads"] >= mean["paper"]]
    lost = [mean["graph"] for mean in means if mean["over_dgl_threads"] < 1]
    less = [graph for graph in told if graph not in reached + lost]
    swept = [mean["over_swept"] for mean in means]
    every = [row["speedup"]["persistent"] for row in rows(fig8)]
    there = rows(fig8, graph=tuple(lost))
    queue = min(row["kernel_us"]["persistent"] for row in there)
    blocks = min(row["sweep"]["block-bsp"][fig8["settings"]["dgl_threads"]] for row in there)
    of_settings, of_averages = verdicts(fig8)
    return [
        Said(f"all {counted(len(means))} twins in full size", full(fig8, len(means))),
        *{f"{mean['settings']} settings each" for mean in means},
        f"DGL's blocks of {fig8['settings']['dgl_threads'].partition('=')[2]} threads",
        Said("missed as a whole", of_averages.startswith("missed")),
        *(
            f"{listed([told[graph] for graph in group])}: {became}"
            for group, became in ((reached, "reproduced"), (less, "smaller"), (lost, "reversed"))
            if group
        ),
        Said(
            f"its kernel takes at least {queue:.0f} us there, DGL's {blocks:.0f}",
            bool(lost) and queue > blocks,
        ),
        f"Over blocks at their best {span(swept, 'x')}",
        Said(f"all but {counted(sum(value > 1 for value in swept))} graphs", statistics.median(swept) < 1),
        Said(
            f"in all {len(every)} settings, R-MAT's too, {span(every, 'x')}, {median(every)}: reversed",
            "reversed" in of_settings,
        ),
    ]


@row("PGSampler", "figure 9:", "pgsampler-fig9")
def whole_process(fig9: Record) -> Phrases:
    gained, best = [row["speedup"]["persistent"] for row in rows(fig9)], fig9["paper"]["best"]
    return [
        Said("all six twins in full size and R-MAT", full(fig9, 6) and "rmat" in fig9["graphs"]),
        f"{listed([str(hops) for hops in sorted({row['hops'] for row in rows(fig9)})])} hops",
        f"{len(gained)} settings",
        Said(
            f"{span(gained, 'x')}, {median(gained)} (paper up to {best} x): reproduced, larger",
            verdicts(fig9) == [REPRODUCED] and statistics.median(gained) > best,
        ),
    ]


@row("PGSampler", "throughput gains", "pgsampler-throughput")
def throughput(record: Record) -> Phrases:
    compute, memory = (
        [row["gain"][field] for row in rows(record)] for field in ("compute_percent", "memory_percent")
    )
    used, read = (
        percent(row[field]["persistent"] / 100 for row in rows(record))
        for field in ("compute_percent", "memory_percent")
    )
    return [
        Said("six twins in full size", full(record, 6)),
        f"{listed([str(hops) for hops in sorted({row['hops'] for row in rows(record)})])} hops",
        Said(
            f"compute {span(compute, 'x')}, {median(compute)}, memory {span(memory, 'x')}, {median(memory)}: "
            "reproduced",
            verdicts(record) == [REPRODUCED, REPRODUCED],
        ),
        f"{used} of the multiprocessors' peak and {read} of memory's",
    ]


@row("PGSampler", "table 3:", "pgsampler-table3")
def turbo(table3: Record) -> Phrases:
    theirs = [row["speedup"]["turbo-bsp"] for row in rows(table3, system="TurboGNN")]
    told = [row["paper_speedup"] for row in rows(table3, system="TurboGNN")]
    reddit, products = rows(table3, system="PGSampler")
    lost, won = (
        f"{short(row['speedup']['persistent'])} x on {called(row['graph'])} (paper {row['paper_speedup']} x)"
        for row in (reddit, products)
    )
    return [
        Said("both graphs in full size", full(table3, 2)),
        Said(
            f"{span(theirs, 'x')} of DGL's in its own settings (its paper {span(told, 'x')}): reversed",
            "reversed" in verdicts(table3)[0],
        ),
        Said(f"{lost}: reversed", reddit["speedup"]["persistent"] < 1),
        Said(f"{won}: reproduced", products["speedup"]["persistent"] >= products["paper_speedup"]),
    ]


@row("PGSampler", "figure 10:", "pgsampler-fig10")
def static(fig10: Record) -> Phrases:
    gained = [row["speedup"]["persistent"] for row in rows(fig10)]
    settings = {sum(row["graph"] == graph for row in rows(fig10)) for graph in fig10["graphs"]}

    def middle(**wanted: int) -> float:
        return statistics.median(row["speedup"]["persistent"] for row in rows(fig10, **wanted))

    sizes = sorted({row["batch_size"] for row in rows(fig10)})
    by_size = [middle(hops=3, batch_size=size) for size in sizes]
    return [
        Said("two graphs in full size", full(fig10, 1) and len(fig10["graphs"]) == 2),
        *(f"{count} settings each" for count in settings),
        f"{span(gained, 'x')}, {median(gained)}",
        Said(
            "faster in all cases, most with 3 hops and large batches: reproduced",
            verdicts(fig10) == [REPRODUCED]
            and middle(hops=3) > middle(hops=2)
            and min(by_size[len(sizes) // 2 :]) > max(by_size[: len(sizes) // 2]),
        ),
    ]


@row("PGSampler", "figure 11:", "pgsampler-fig11")
def accuracy(fig11: Record) -> Phrases:
    exact, published = (
        [each for each in fig11["differences"] if each["system"] == system]
        for system in ("pgsampler", "pgsampler, published completion")
    )
    most = max(exact, key=lambda each: abs(float(each["difference"])))
    products, facebook = (
        [each for each in published if each["graph"] == graph]
        for graph in ("products-like", "musae-facebook")
    )
    twin = rows(fig11, graph="products-like")
    return [
        Said("in full", full(fig11, 1)),
        f"{counted(len(fig11['settings']['seeds']))} seeds",
        Said(
            "labels about as hard as the original's",
            all(abs(row["final_accuracy"] - row["original"]) < 0.02 for row in twin),
        ),
        Said("DGL's sampler under a key of its own", bool(fig11["settings"].get("dgl_seed"))),
        Said(
            f"at most {100 * abs(most['difference']):.2f} points from DGL's, {short(most['over_noise'])} of what",
            most["over_noise"] == max(each["over_noise"] for each in exact),
        ),
        Said("or half a point, where they differ by less", {each["noise"] for each in exact} == {0.005}),
        Said("approximately the same): reproduced", verdicts(fig11) == [REPRODUCED]),
        Said("the same on Products", max(each["over_noise"] for each in products) < 1),
        Said(
            f"{listed([tenths(-100 * each['difference']) for each in facebook])} points lower",
            min(each["over_noise"] for each in facebook) > 1,
        ),
    ]
