"""What the rows of PGSampler say of their records."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from gnnsample_lab.bench.measured import NEAR
from gnnsample_lab.bench.noise import over_noise
from gnnsample_lab.bench.suite import PUBLISHED_QUEUE
from gnnsample_lab.bench.suites.pgsampler.papers import AVERAGES
from gnnsample_lab.bench.suites.pgsampler.targets import unsteady
from gnnsample_lab.systems.table import find
from tests.notebooks.recorded import (
    Record,
    Row,
    Said,
    counted,
    listed,
    median,
    percent,
    rows,
    short,
    span,
    tenths,
    thousands,
    whole,
)
from tests.readme.rows import Phrases, cards, row
from tests.readme.words import (
    GRAPHS,
    became,
    beside_dgl,
    exact,
    full_size,
    labels,
    line,
    series,
    slowed_apart,
    undecided,
    values,
)

AS_PUBLISHED = f"speedup.{PUBLISHED_QUEUE}"
TEAMS = "speedup.persistent"
"""The queue as published, and ours."""


@row("PGSampler", "the sampler in DGL's configuration", "systems")
def end_to_end(systems: Record) -> Phrases:
    pairs = beside_dgl(systems, "pgsampler")
    ours, theirs = ([each["sample_ms"] for each in of] for of in zip(*pairs, strict=True))
    return [
        Said("in full size, GraphSAGE", full_size(systems, 2)),
        f"batches of {thousands(systems['settings']['batch_size'])}",
        cards(systems),
        f"steps {series(each['speedup'] for each, _ in pairs)} x as fast as in DGL's configuration",
        f"sampling takes {series(ours)} ms instead of {series(theirs)}",
        Said("by the published queue", systems["settings"]["pgsampler"] == "queue=blocks"),
        slowed_apart(pairs, "PGSampler"),
        Said(
            "the CPU gathers all rows in both",
            all(
                each["cache_percent"] == 0 and find(each["system"]).transfer == "staged"
                for pair in pairs
                for each in pair
            ),
        ),
    ]


@row("PGSampler", "table 1:", "pgsampler-table1", given=["notebook 01", "the RTX 3090's"])
def hops(table1: Record) -> Phrases:
    pairs = list(zip(rows(table1), rows(table1["paper"]), strict=True))
    off = max(abs(each["workload"] / told["workload"] - 1) for each, told in pairs)
    faster = [told["kernel_us"] / each["coo_us"] for each, told in pairs]
    prepared = [
        [each["hop"] for each in rows(of) if each["pre_us"] > each["kernel_us"]]
        for of in (table1, table1["paper"])
    ]
    busy, theirs = values(table1, "compute_percent"), values(table1["paper"], "comp_percent")
    memory, there = values(table1, "memory_percent"), values(table1["paper"], "mem_percent")
    return [
        Said("in full size", full_size(table1, 1)),
        Said(
            f"Work per hop within {100 * off:.1f} %, preparing takes longer than the kernel at hops "
            f"{series(prepared[0], str)}: reproduced",
            off < 0.05 and prepared[0] == prepared[1],
        ),
        f"kernels are {span(faster, 'x', tenths)} as fast as",
        Said(
            f"{series(busy, whole)} % busy (paper {', '.join(map(whole, theirs))} %): smaller",
            all(ours < told for ours, told in zip(busy, theirs, strict=True)),
        ),
        f"memory {series(memory, whole)} % ({', '.join(map(whole, there))} %): "
        + by_hop([ours / told for ours, told in zip(memory, there, strict=True)]),
    ]


def by_hop(ratios: Sequence[float]) -> str:
    """At which hops what was measured is larger than the paper's, and at which smaller."""
    hops: dict[str, list[str]] = {"larger": [], "smaller": []}
    for hop, ratio in enumerate(ratios, 1):
        hops["larger" if ratio > 1 else "smaller"].append(str(hop))
    told = [(word, found) for word, found in hops.items() if found]
    if len(told) == 1:
        return told[0][0]
    return ", ".join(f"{word} at hop{'s' * (len(found) > 1)} {listed(found)}" for word, found in told)


NOTABLY = 1.05
"""Times by which a median grows where the row says that it does."""


def ends(found: Sequence[float]) -> str:
    """The first and the last of some medians."""
    return f"{short(found[0])} to {short(found[-1])}"


def medians(fig8: Record, setting: str, over: str) -> list[float]:
    """Of the queue as published on the twins, at the paper's settings: a median for each value of one of them."""
    found: dict[int, list[float]] = {}
    for each in rows(fig8):
        if each["graph"] != "rmat" and each["batch_size"] >= 2048 and each["fanout"] >= 10:
            found.setdefault(each[setting], []).append(each[over][PUBLISHED_QUEUE])
    return [statistics.median(found[value]) for value in sorted(found)]


@row("PGSampler", "figure 8:", "pgsampler-fig8")
def kernels(fig8: Record) -> Phrases:
    means = sorted(fig8["averages"], key=lambda mean: -float(mean["published_over_dgl_threads"]))
    over = {mean["graph"]: mean["published_over_dgl_threads"] for mean in means}
    told = {
        mean["graph"]: f"{short(over[mean['graph']])} x on {GRAPHS[mean['graph']]} ({mean['paper']:.2f})"
        for mean in means
    }
    lost = [graph for graph in over if over[graph] < 1]
    reached = [m["graph"] for m in means if over[m["graph"]] >= NEAR * m["paper"]]
    less = [graph for graph in told if graph not in reached + lost]
    swept = [mean["published_over_swept"] for mean in means]
    every, teams = values(fig8, AS_PUBLISHED), values(fig8, TEAMS)
    queue, blocks = (
        min(values(fig8, f"kernel_us.{name}", graph=tuple(lost)), default=0.0)
        for name in (PUBLISHED_QUEUE, "block-bsp")
    )
    grows = {
        what: medians(fig8, setting, "over_dgl_threads")
        for what, setting in (("the hops", "hops"), ("the seeds", "batch_size"), ("the fanout", "fanout"))
    }
    falls = medians(fig8, "batch_size", "speedup")
    return [
        Said(f"all {counted(len(means))} twins in full size", full_size(fig8, len(means))),
        "medians grow, as published, with "
        + " and ".join(
            f"{what} {ends(found)}" for what, found in grows.items() if found[-1] > NOTABLY * found[0]
        )
        + ": reproduced",
        *(
            Said(f"with {what} hardly, {ends(found)}", found[-1] >= found[0])
            for what, found in grows.items()
            if found[-1] <= NOTABLY * found[0]
        ),
        Said(
            "grow", all(found == sorted(found) for found in grows.values() if found[-1] > NOTABLY * found[0])
        ),
        Said(
            f"with the seeds it falls, {short(falls[0])} to {short(falls[-1])}",
            falls == sorted(falls, reverse=True),
        ),
        *{f"{mean['settings']} settings each" for mean in means},
        f"DGL's blocks of {fig8['settings']['dgl_threads'].partition('=')[2]} threads",
        f"as a whole {became(*line(fig8, 'the same'))}",
        *(
            f"{listed(told[graph] for graph in group)}: {word}"
            for group, word in ((reached, "reproduced"), (less, "smaller"), (lost, "reversed"))
            if group
        ),
        Said(
            f"its kernel takes at least {queue:.0f} us there, blocks at their best {blocks:.0f}",
            queue > blocks > 0,
        ),
        f"Over blocks at their best {span(swept, 'x')}",
        Said("reversed on all six", max(swept) < 1),
        f"in all {len(every)} settings, R-MAT's too, {span(every, 'x')}, {median(every)}: "
        f"{became(*line(fig8, 'kernels'))}",
        f"ours: {span((mean['over_dgl_threads'] for mean in means), 'x')} on average",
        f"{span(teams, 'x')}, {median(teams)}, in all settings",
    ]


@row("PGSampler", "figure 9:", "pgsampler-fig9")
def whole_process(fig9: Record) -> Phrases:
    gained, teams, best = values(fig9, AS_PUBLISHED), values(fig9, TEAMS), fig9["paper"]["best"]
    return [
        *undecided(unsteady(fig9), became(*line(fig9, "the same"))),
        Said("all six twins in full size and R-MAT", full_size(fig9, 6) and "rmat" in fig9["graphs"]),
        f"{series(sorted({*values(fig9, 'hops')}), str)} hops",
        f"{len(gained)} settings",
        f"{span(gained, 'x')}, {median(gained)} (paper up to {exact(best)} x)",
        f"slower in {sum(gain < 1 for gain in gained)}",
        f"ours {span(teams, 'x')}, {median(teams)}",
    ]


@row("PGSampler", "throughput gains", "pgsampler-throughput")
def throughput(record: Record) -> Phrases:
    fields = "compute_percent", "memory_percent"
    compute, memory = (values(record, f"published_gain.{field}") for field in fields)
    ours = [values(record, f"gain.{field}") for field in fields]
    both = [f"{span(gains, 'x')}, {median(gains)}" for gains in ours]
    used, read = (
        percent(share / 100 for share in values(record, f"{field}.{PUBLISHED_QUEUE}")) for field in fields
    )
    slower = [each["kernel_us"]["block-bsp"] / each["kernel_us"][PUBLISHED_QUEUE] for each in rows(record)]
    return [
        Said("six twins in full size", full_size(record, 6)),
        f"{series(sorted({*values(record, 'hops')}), str)} hops",
        f"the queue's kernel also removes duplicates, and is slower in {sum(each < 1 for each in slower)} of "
        f"{len(slower)} settings ({short(min(slower))} x at worst): a higher throughput, not a quicker draw",
        f"compute {span(compute, 'x')}, {median(compute)}: {became(*line(record, 'compute'))}",
        f"memory {span(memory, 'x')}, {median(memory)}: {became(*line(record, 'memory'))}, "
        f"below 1 in {counted(sum(gain < 1 for gain in memory))} of {len(memory)} settings",
        f"{used} of the multiprocessors' peak and {read} of memory's",
        f"ours {' and '.join(both)}",
    ]


@row("PGSampler", "table 3:", "pgsampler-table3")
def turbo(table3: Record) -> Phrases:
    theirs, told = (
        values(table3, what, system="TurboGNN") for what in ("speedup.turbo-bsp", "paper_speedup")
    )
    reddit, products = rows(table3, system="PGSampler")
    both = [
        f"{short(each['speedup'][PUBLISHED_QUEUE])} x on {GRAPHS[each['graph']]} "
        f"(paper {exact(each['paper_speedup'])} x): {word_of(each)}"
        for each in (reddit, products)
    ]
    ours = (each["speedup"]["persistent"] for each in (reddit, products))
    return [
        Said("both graphs in full size", full_size(table3, 2)),
        f"{span(theirs, 'x')} of DGL's in its own settings (its paper {span(told, 'x')}): {became(*line(table3))}",
        *both,
        f"ours {series(ours)} x",
    ]


def word_of(row: Row) -> str:
    """What became of the queue's speed-up in a row of table 3."""
    gained, told = row["speedup"][PUBLISHED_QUEUE], row["paper_speedup"]
    return "reversed" if gained < 1 else "reproduced" if gained >= NEAR * told else "smaller"


@row("PGSampler", "figure 10:", "pgsampler-fig10")
def static(fig10: Record) -> Phrases:
    gained, teams = values(fig10, AS_PUBLISHED), values(fig10, TEAMS)
    settings = {len(rows(fig10, graph=graph)) for graph in fig10["graphs"]}
    typical = {
        graph: statistics.median(values(fig10, AS_PUBLISHED, graph=graph)) for graph in fig10["graphs"]
    }
    little = [graph for graph in typical if typical[graph] < 1.5]

    def grows(name: str) -> bool:
        """Whether the gain is largest with 3 hops and large batches."""

        def middle(**wanted: int) -> float:
            return statistics.median(values(fig10, name, **wanted))

        by_batch = [middle(hops=3, batch_size=seeds) for seeds in sorted({*values(fig10, "batch_size")})]
        half = len(by_batch) // 2
        return middle(hops=3) > middle(hops=2) and min(by_batch[half:]) > max(by_batch[:half])

    return [
        Said(
            f"done: the paper's {counted(len(AVERAGES))} graphs in full size, beside R-MAT",
            full_size(fig10, len(AVERAGES)) and {*fig10["graphs"]} == {*AVERAGES, "rmat"},
        ),
        *(f"{count} settings each" for count in settings),
        f"{span(gained, 'x')}, {median(gained)}",
        Said(f"faster in all cases: {became(*line(fig10))}", min(gained) > 1),
        f"least on {labels(little)}, medians {series(typical[graph] for graph in little)}",
        f"ours {span(teams, 'x')}, {median(teams)}",
        Said("most with 3 hops and large batches, as the paper has it", grows(TEAMS)),
        Said("the published form's gain does not grow so", not grows(AS_PUBLISHED)),
    ]


@row("PGSampler", "figure 11:", "pgsampler-fig11")
def accuracy(fig11: Record) -> Phrases:
    sampled, published = (
        [each for each in over_noise(fig11["rows"], "final_accuracy") if each["system"] == system]
        for system in ("pgsampler", "pgsampler, published completion")
    )
    most = max(sampled, key=lambda each: abs(float(each["difference"])))
    products, facebook = (
        [each for each in published if each["graph"] == graph]
        for graph in ("products-like", "musae-facebook")
    )
    twin = rows(fig11, graph="products-like")
    return [
        Said("in full", full_size(fig11, 1)),
        f"{counted(len(fig11['settings']['seeds']))} seeds",
        Said(
            "labels about as hard as the original's",
            all(abs(each["final_accuracy"] - each["original"]) < 0.02 for each in twin),
        ),
        Said("DGL's sampler under a key of its own", bool(fig11["settings"].get("dgl_seed"))),
        Said(
            f"at most {100 * abs(most['difference']):.2f} points from DGL's, {short(most['over_noise'])} of what "
            "its seeds differ by",
            most["over_noise"] == max(each["over_noise"] for each in sampled),
        ),
        Said("or half a point, where they differ by less", {each["noise"] for each in sampled} == {0.005}),
        f"approximately the same): {became(*line(fig11))}",
        Said("the same on Products", max(each["over_noise"] for each in products) < 1),
        Said(
            f"{series((-100 * each['difference'] for each in facebook), tenths)} points lower",
            min(each["over_noise"] for each in facebook) > 1,
        ),
    ]


@row("PGSampler", "table 2:", "pgsampler-table2")
def graphs(table2: Record) -> Phrases:
    fields = ("num_nodes", "num_edges", "num_features", "num_classes")
    off = {
        (ours["graph"], field): ours[field] / theirs[field]
        for ours, theirs in zip(rows(table2), rows(table2["paper"]), strict=True)
        for field in fields
    }
    twice = off.pop(("products-like", "num_edges"))
    return [
        Said(
            f"done: all {counted(len(table2['graphs']))} as twins in full size, edges, features and classes of the "
            "data sets",
            full_size(table2, len(AVERAGES)) and all(abs(each - 1) < 1e-5 for each in off.values()),
        ),
        Said("of Products the paper counts each edge once", twice == 2),
    ]
