"""What the rows of NextDoor say of their records."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from gnnsample_lab.bench.measured import IN_EVERY_STEP, IN_FIGURE7, INDEXED_WALKS, MISSED, most, verdict
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
    became,
    beside_dgl,
    exact,
    full_size,
    in_order,
    labels,
    line,
    ran,
    series,
    sizes,
    slowed_apart,
    values,
)

WALKS = ("DeepWalk", "PPR", "node2vec")
"""The paper's walks of one walker, k-hop apart."""
FRACTIONS = {2: "half", 4: "a quarter"}


def over_one(fig10: Record, index: str, graph: str, *apps: str) -> list[float]:
    return values(fig10, "over_one", index=index, graph=graph, app=apps, gpus=most(fig10, "gpus"))


def many(found: Iterable[float]) -> str:
    return span(found, "x", lambda value: thousands(round(value)) if value >= 1000 else short(value))


@row("NextDoor", "several GPUs", "nextdoor-fig10", given=["paper 4 GPUs, five graphs"])
def gpus(fig10: Record) -> Phrases:
    def walks(index: str, graph: str) -> str:
        return span(over_one(fig10, index, graph, *WALKS), "x")

    def k_hop(index: str, graph: str) -> float:
        (value,) = over_one(fig10, index, graph, "k-hop")
        return value

    ppi, orkut = "ppi-like", "orkut-like"
    every = most(fig10, "gpus")
    alone, share = (
        values(fig10, "ms", index="published", graph=ppi, app="k-hop", gpus=count)[0] for count in (1, every)
    )
    longer = "longer than" if share > 1.03 * alone else "as long as" if share > 0.97 * alone else "less than"
    return [
        ran(fig10, gpus=every),
        sizes(fig10["graphs"]),
        Said(
            f"walks {walks('published', orkut)} on Orkut and {walks('published', ppi)} on PPI "
            "(paper: they scale on all graphs but PPI): reproduced",
            # Scaling is more than a quarter gained by each further GPU, none is less than a tenth by all.
            min(over_one(fig10, "published", orkut, *WALKS)) > 1 + (every - 1) / 4
            and max(over_one(fig10, "published", ppi, *WALKS)) < 1.1,
        ),
        Said(
            f"k-hop {short(k_hop('published', orkut))} x on Orkut and {short(k_hop('published', ppi))} x on PPI "
            "(paper nearly linear): missed",
            verdict(*line(fig10)).startswith(MISSED),
        ),
        f"{FRACTIONS[every]} of PPI's samples on each of {counted(every)} GPUs takes {longer} all of them on one, "
        f"{tenths(share)} ms for {tenths(alone)}",
        f"walks {walks('auto', orkut)} and {walks('auto', ppi)}",
        f"k-hop {short(k_hop('auto', orkut))} and {short(k_hop('auto', ppi))} x",
    ]


@row(
    "NextDoor", "table 1:", "nextdoor-table1", "nextdoor-table5", given=["Table 5 in full", "table 1 in full"]
)
def training(table1: Record, table5: Record) -> Phrases:
    numpy, engine = (
        [share / 100 for share in values(table1, "sample_percent", sampler=name)]
        for name in ("numpy", "engine")
    )
    told = [share / 100 for share in values(table1["paper"], "sample_percent")]

    def over(reference: str, field: str) -> list[float]:
        return values(table5, field, reference=reference)

    def slower(field: str) -> str:
        found = over("walker", field)
        return f"{span(found, 'x')}: slower in {sum(value < 1 for value in found)} of {len(found)} cases"

    paper, published = (
        {(each["graph"], each["method"]): each[field] for each in found}
        for field, found in (
            ("speedup", rows(table5["paper"])), ("published_speedup", rows(table5, reference="numpy"))
        )
    )  # fmt: skip
    more = sum(published[case] > value for case, value in paper.items())
    below = {case for case, value in published.items() if value < 1}
    far = {each["method"] for each in rows(table5) if each["published_speedup"] > 5}
    return [
        Said(
            "PPI and Reddit", list(table1["graphs"]) == ["ppi-like", "reddit-like"] and full_size(table1, 2)
        ),
        Said(
            f"take {percent(numpy)} of a step (paper {percent(told)}): reproduced, more",
            min(numpy) > min(told) and max(numpy) > max(told),
        ),
        f"ours {percent(engine)}",
        Said(f"{counted(len(table5['graphs']))} graphs", full_size(table5, len(table5["graphs"]))),
        f"{len(over('numpy', 'speedup'))} cases",
        Said(
            f"as published {span(published.values(), 'x')} of the methods' own samplers "
            f"(paper {span(paper.values(), 'x')}): {became(*line(table5))}, more in {more} of the paper's {len(paper)} "
            "cases",
        ),
        Said(
            f"below 1 in {len(below)}, {listed(sorted({method for _, method in below}))}, which the paper lacks",
            bool(below) and not below & {*paper},
            may_go=True,
        ),
        f"of our CPU walker {slower('published_speedup')}",
        f"Ours {span(over('numpy', 'speedup'), 'x')} and {slower('speedup')}",
        Said(
            "where a CPU sampler passes over the whole graph",
            far <= {"FastGCN", "LADIES", "MVS", "ClusterGCN"},
        ),
    ]


@row("NextDoor", "transit-parallel sampling of many", "systems")
def trees(systems: Record) -> Phrases:
    pairs = beside_dgl(systems, "nextdoor")
    ours, theirs = ([each["sample_ms"] for each in of] for of in zip(*pairs, strict=True))
    more = [each["rows_per_batch"] / dgl["rows_per_batch"] for each, dgl in pairs]
    return [
        Said("in full size, GraphSAGE", full_size(systems, 2)),
        f"batches of {thousands(systems['settings']['batch_size'])}",
        cards(systems),
        f"steps {series(each['speedup'] for each, _ in pairs)} x as fast as in DGL's configuration",
        Said(
            "with the index as published",
            all(
                any("'published'" in note for note in each["notes"])
                for each in rows(systems, system="nextdoor")
            ),
        ),
        f"sampling takes {series(ours)} ms instead of {series(theirs)}",
        slowed_apart(pairs, "NextDoor"),
        f"a tree for each seed: {tenths(more[0])} and {whole(more[1])} x as many rows as merged ones",
        Said(
            "a quarter of the graph's rows cached, of which DGL's configuration caches none",
            all(round(each["cache_percent"]) == 25 and dgl["cache_percent"] == 0 for each, dgl in pairs),
        ),
    ]


@row(
    "NextDoor", "table 2:", "nextdoor-table2", "nextdoor-table3", "nextdoor-fig6",
    given=["notebook 03", "figure 6 on", "table 2 on", "table 3:", "beyond 1 024 a grid"],
)  # fmt: skip
def index(table2: Record, table3: Record, fig6: Record) -> Phrases:
    built = [each["index_percent"] for each in rows(fig6, index="published") if each["builds"]]
    without = {each["app"] for each in rows(fig6, index="published") if not each["builds"]}
    told = [
        (
            each["index_percent"],
            values(fig6, "index_percent", index="published", graph=each["graph"], app=each["app"]),
        )
        for each in rows(fig6["paper"])
    ]
    ((cluster, (our_cluster,)), (deep, (our_deep,))) = told
    small = rows(table2, paper_kernel="sub-warp")
    best = list(itertools.takewhile(lambda each: each["best"] == "sub-warp", small))
    large = [
        (each["kernel_ms"], each["paper_kernel"]) for each in rows(table2, paper_kernel=("block", "grid"))
    ]
    taken = [ms[kernel] / ms["sub-warp"] for ms, kernel in large]
    beyond = [
        each["draws_per_transit"]
        for each in rows(table2, paper_kernel=("block", "grid"))
        if each["best"] == "sub-warp"
    ]
    twins = [each for each in rows(table3) if each["graph"].partition("@")[0].endswith("-like")]
    (shrunk,) = [each for each in twins if each["scale"] < 1]
    return [
        Said(f"{counted(len(fig6['graphs']))} graphs in full size", full_size(fig6, len(fig6["graphs"]) - 1)),
        f"spend {span(built, '%', whole)} on their index, {median(built)} (paper {whole(cluster)} to {whole(deep)} %), "
        f"{sum(cluster <= each <= deep for each in built)} of {len(built)} cases within that",
        Said(
            f"ClusterGCN on LiveJournal {whole(our_cluster)} % (paper {exact(cluster)}): "
            f"{'larger' if our_cluster > cluster else 'smaller'}, DeepWalk on Orkut {whole(our_deep)} % "
            f"(paper {exact(deep)}): {'larger' if our_deep > deep else 'smaller'}",
            [(each["app"], each["graph"]) for each in rows(fig6["paper"])]
            == [("ClusterGCN", "livejournal-like"), ("DeepWalk", "orkut-like")],
        ),
        Said("FastGCN and LADIES, whose steps build none, left out", without == {"FastGCN", "LADIES"}),
        f"a sub-warp is best up to {max(each['draws_per_transit'] for each in best)} draws of a transit "
        f"(paper {max(each['draws_per_transit'] for each in small)}): "
        f"{'reproduced' if len(best) == len(small) else 'smaller'}",
        f"it is with {listed(str(draws) for draws in beyond)} as well",
        f"these take {span(taken, 'x')} of its time: {became([1 / each for each in taken])}",
        f"{counted(len(twins) - 1)} twins in full size",
        sizes([shrunk["graph"]]),
    ]


def below(of: Sequence[Row], least: float) -> str:
    """Where and how far a walk stays below the least that the paper has over the CPU."""
    under = [each for each in of if each["published_over_cpu_all"] < least]
    where = in_order({each["graph"] for each in under})
    assert {each["graph"] for each in of if each not in under}.isdisjoint(where), (
        "not all walks of these graphs"
    )
    how_far = span((each["published_over_cpu_all"] for each in under), "x")
    return f"{how_far} on {labels(where)}, below the paper's least"


@row("NextDoor", "figure 7:", "nextdoor-fig7", "nextdoor-fig9", given=["in table 5 alone"])
def speedups(fig7: Record, fig9: Record) -> Phrases:
    indexed_walks = rows(fig7, app=INDEXED_WALKS)
    walks = [each["published_over_cpu_all"] for each in indexed_walks]
    over = values(fig7, "published_over_sample", app=IN_FIGURE7)
    vanilla = values(fig7, "published_over_vanilla", app=tuple(app for app in IN_FIGURE7 if app != "PPR"))
    indexed = [
        sum(row["steps"] for row in each["published_schedule"] if row["index"])
        for each in rows(fig7, app="PPR")
    ]
    steps = values(fig7, "steps", app="PPR")
    sample, cores = fig7["paper"]["range"]["sample"], fig7["paper"]["range"]["knightking"]
    published, ours = (
        {app: values(fig7, field, graph="orkut-like", app=app)[0] for app in (*WALKS, "k-hop")}
        for field in ("published_ms", "ms.transit")
    )
    longer = {app: published[app] / ours[app] for app in ours}
    walks_longer = [longer[app] for app in WALKS]
    frontier, message = (
        values(fig9, f"published_over_{way}", app=IN_EVERY_STEP) for way in ("frontier", "message")
    )
    ppr = [values(fig9, f"published_over_{way}", app="PPR") for way in ("frontier", "message")]
    return [
        *(
            Said(
                f"{figure} in full, {counted(len(each['graphs']))} graphs",
                full_size(each, len(each["graphs"]) - 1),
            )
            for figure, each in (("Figure 7", fig7), ("figure 9", fig9))
        ),
        Said(
            f"as published {span(frontier, 'x')} of Gunrock's formulation, {span(message, 'x')} of Tigr's "
            f"(paper: faster, no number): {became(*line(fig9, 'walks'))}",
            became(*line(fig9, "walks")) == became(*line(fig9, "the same")),
        ),
        f"PPR {span(ppr[0], 'x')} and {span(ppr[1], 'x')}",
        f"ours {span(values(fig9, 'over_frontier'), 'x')} and {span(values(fig9, 'over_message'), 'x')}",
        f"{span(over, 'x')} of sample-parallel, {median(over)} "
        f"(paper {sample[0]} to {whole(sample[1])} x): {became(*line(fig7, 'transit'))}",
        f"{span(vanilla, 'x')} of vanilla transit-parallel, {median(vanilla)} (paper: faster, no number): "
        f"{became(vanilla)}",
        f"PPR {span(values(fig7, 'published_over_vanilla', app='PPR'), 'x')}, of whose "
        f"{thousands(min(steps))} to {thousands(max(steps))} steps {min(indexed)} to {max(indexed)} have an index",
        Said(
            "FastGCN and LADIES, whose functions read no lists of transits, are left out",
            not {"FastGCN", "LADIES"} & {*IN_FIGURE7},
        ),
        f"DeepWalk and node2vec {many(walks)} of our CPU walker on {fig7['settings']['cpu_threads']} cores, "
        f"{median(walks)} (paper {span(cores, 'x', whole)} of KnightKing on 32): {became(*line(fig7, 'DeepWalk'))} by "
        f"the median, {below(indexed_walks, cores[0])}",
        f"PPR {many(values(fig7, 'published_over_cpu_all', app='PPR'))}",
        f"MultiRW {span(values(fig7, 'published_over_cpu_all', app='MultiRW'), 'x')}",
        f"the published kernels take {span(walks_longer, 'x')} our time for DeepWalk, PPR and node2vec",
        f"{tenths(longer['k-hop'])} x for k-hop",
    ]


@row(
    "NextDoor", "figure 8:", "nextdoor-fig8", "nextdoor-table4",
    given=["A row of 10 ids", "fills 40 of the 64 bytes", "exceeds 62.5 %", "the second hop"],
)  # fmt: skip
def counters(fig8: Record, table4: Record) -> Phrases:
    def reads(*apps: str) -> list[float]:
        return values(fig8, "ratio", index="published", app=apps)

    def k_hop(graph: str) -> float:
        (value,) = values(fig8, "ratio", index="published", app="k-hop", graph=graph)
        return value

    def counted_of(of: Record, what: str, *apps: str, **wanted: str) -> list[float]:
        return [value for value in values(of, what, app=apps, **wanted) if value is not None]

    every, (steps,) = (
        reads("k-hop", "Layer", *WALKS),
        re.findall(r"walks of (\d+) steps", fig8["settings"]["apps"]),
    )
    samples, layer, few = (
        int(number.replace(",", ""))
        for number in re.findall(
            r"at most ([\d,]+\d).*at most ([\d,]+\d).*of (\d+)", fig8["settings"]["reduced"]
        )[0]
    )
    lost = [graph for graph in fig8["graphs"] if not rows(fig8, graph=graph, app="Layer", index="published")]
    (ours,) = {short(value) for value in counted_of(table4, "store_percent", "k-hop", index="auto")}
    busy = {
        graph: max(counted_of(table4, "sm_percent", *WALKS, index="published", graph=graph))
        for graph in table4["graphs"]
    }
    fewest = [
        graph
        for graph in in_order(busy)
        if min(values(table4, "num_samples", graph=graph, app=WALKS)) < samples
    ]
    return [
        f"partly, for the profiler's sake: walks of {few} steps (paper {steps}), at most {thousands(samples)} samples, "
        f"of Layer {thousands(layer)}",
        Said(f"{labels(lost)}'s Layer not at all", bool(lost), may_go=True),
        ran(fig8, table4),
        Said(sizes(fig8["graphs"]), [*fig8["graphs"]] == [*table4["graphs"]]),
        f"k-hop reads {series(map(k_hop, in_order(fig8['graphs'])))} x of what sample-parallel reads from the L2",
        f"walks {span(reads(*WALKS), 'x')}, Layer {span(reads('Layer'), 'x')}, more in "
        f"{sum(value > 1 for value in every)} of {len(every)} cases (paper: a fraction): {became(*line(fig8))}",
        *(
            f"{what} {compared(table4, 'store_percent', app)}"
            for what, app in (("store efficiency of k-hop is", "k-hop"), ("of Layer", "Layer"))
        ),
        *(
            f"{what} {compared(table4, 'sm_percent', *apps)}"
            for what, apps in (
                ("Multiprocessors are active in k-hop", ("k-hop",)), ("in Layer", ("Layer",)), ("in walks", WALKS),
            )
        ),
        Said(
            f"least on {labels(fewest)}, whose samples are fewest",
            max(busy[graph] for graph in fewest) < min(busy[graph] for graph in busy if graph not in fewest),
        ),
        f"{ours} and {percent(value / 100 for value in counted_of(table4, 'sm_percent', 'k-hop', index='auto'))}",
    ]  # fmt: skip


def compared(table4: Record, what: str, *apps: str) -> str:
    """A counter as published, beside the paper's, and whether it is smaller in every case that both have."""
    found = {
        (each["graph"], each["app"]): each[what]
        for each in rows(table4, index="published", app=apps)
        if each[what] is not None
    }
    paper = {(each["graph"], each["app"]): each[what] for each in rows(table4["paper"], app=apps)}
    pairs = [(value, paper[case]) for case, value in found.items() if case in paper]
    word = (
        "smaller" if all(ours < told for ours, told in pairs)
        else became([ours / told for ours, told in pairs], least=1, neutral=0)
    )  # fmt: skip
    return f"{percent(v / 100 for v in found.values())} (paper {span(paper.values(), '%', exact)}): {word}"


@row("NextDoor", "section 8.4:", "nextdoor-section84", given=["a quarter of the lists"])
def streamed(record: Record) -> Phrases:
    orkut, friendster = record["graphs"]

    def over(index: str, app: str) -> list[float]:
        """On both graphs."""
        return values(record, "over_cpu", index=index, app=app, fraction=0.25)

    def each(index: str, *apps: str) -> str:
        return ", ".join(f"{app} {series(over(index, app))} x" for app in apps)

    told = {row["app"]: row["over_cpu"] for row in rows(record["paper"]) if row["over_cpu"]}
    copied = ("DeepWalk", "node2vec")
    (too_much,) = (note for note in record["notes"] if note.startswith(f"PPR on {friendster}"))
    steps, terabytes = re.findall(r"([\d.]+) (?:steps|TB)", too_much)
    return [
        ran(record),
        Said(sizes(record["graphs"]), set(record["graphs"]) == {orkut, friendster}),
        f"times our CPU walker on {record['settings']['cpu_threads']} cores",
        each("published", "k-hop", *copied),
        Said(
            f"(paper {series((told[app] for app in copied), exact)} x of KnightKing on Friendster): smaller there",
            all(over("published", app)[1] < told[app] for app in copied),
        ),
        f"PPR's {thousands(int(steps))} steps would copy {terabytes} TB there",
        f"Ours {each('auto', 'k-hop', 'Layer', *WALKS)}",
    ]
