"""What the rows of GNNLab say of their records.

A verdict follows the rule of the table "Measured", and where that table has a line for it, the line's values and claim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

from gnnsample_lab.bench.measured import card_of, misses_none, most, on_card, over_tsota, scaled
from tests.notebooks.recorded import (
    Record,
    Row,
    Said,
    counted,
    listed,
    percent,
    rows,
    short,
    span,
    tenths,
    whole,
)
from tests.readme.rows import Phrases, cards, row
from tests.readme.words import became, full_size, in_full, is_unlike, labels, line, series, sizes, values


def averaged(found: Sequence[float], paper: float, unit: str = "%") -> str:
    """What became of a claim on an average."""
    form, neutral = (whole, 0.0) if unit == "%" else (tenths, 1.0)
    return (
        f"{form(mean(found))} {unit} on average (paper {form(paper)} {unit}): "
        f"{became([mean(found)], least=paper, neutral=neutral)}"
    )


def gpus(of: Record) -> str:
    """On how many GPUs an epoch was measured."""
    return f"1 GPU and {cards(of, most(of, 'gpus'))}"


def far(of: Record) -> tuple[str, ...]:
    """Graphs of which no system caches all rows."""
    return tuple(name for name in of["graphs"] if scaled(name)[0] != "products-like")


def few_models(*records: Record) -> Said:
    """Why a row is "partly" though its runs were full: the paper has three models on each graph."""
    models: dict[str, set[str]] = {}
    for each in (each for of in records for each in of["rows"] if each.get("model")):
        models.setdefault(scaled(each["graph"])[0], set()).add(each["model"])
    is_so = in_full(*records) and len(models.pop("papers100M-like")) == 3
    return Said(
        "partly, all models on papers100M, GCN alone elsewhere",
        is_so and all(found == {"gcn"} for found in models.values()),
    )


def unlike(*records: Record) -> Said:
    alike = [graph for of in records for graph in of["graphs"] if not is_unlike(of, graph)]
    apart = f", {labels(sorted({scaled(graph)[0] for graph in alike}))} apart" if alike else ""
    return Said(
        f"on twins that are not comparable in hit rates{apart}",
        len(alike) < sum(len(of["graphs"]) for of in records) / 2,
    )


def less(percents: Sequence[float]) -> str:
    """From the most that is added to the most that is taken off."""
    return f"{-min(percents):.0f} % more to {max(percents):.0f} % less"


def errors(of: Record) -> list[float]:
    """How far the schedule model is off each measured run, in percent."""
    return [abs(each["error_percent"]) for each in rows(of) if each.get("error_percent") is not None]


@row("GNNLab", "figure 10", "gnnlab-fig10")
def hit_rates(fig10: Record) -> Phrases:
    optimal, near = line(fig10, "PreSC", "optimal")
    degree, more = line(fig10, "PreSC", "degree")
    return [
        Said("done", in_full(fig10)),
        f"{sizes(fig10['graphs'])}, {percent([fig10['settings']['ratio']])} cached",
        f"{span(optimal, '%', whole)} of the optimal hit rate (paper {near.text}): {became(optimal, near)}",
        f"{span(degree, 'x')} of Degree's, {short(mean(degree))} x on average (paper {more.text}): "
        f"{became(degree, more)}",
        unlike(fig10),
    ]


@row("GNNLab", "table 2", "gnnlab-table2", "gnnlab-fig11")
def footprints(table2: Record, fig11: Record) -> Phrases:
    alike, paper = (values(of, "similarity_percent") for of in (table2, table2["paper"]))
    second, third = (
        values(fig11, "hit_percent", part="a", policy=f"presample#{epochs}") for epochs in (2, 3)
    )
    gained = max(b - a for a, b in zip(second, third, strict=True))
    (ours,), (degree,) = (
        values(fig11, "hit_percent", part="b", cache_percent=5.0, policy=name)
        for name in ("presample", "degree")
    )
    (moved,), (more,) = (
        values(fig11, "mb_per_batch", part="c", num_features=900, policy=name)
        for name in ("presample", "degree")
    )
    published = {each["policy"]: each["hit_percent"] for each in rows(fig11["paper"])}
    there = published["presample"] / published["degree"]
    return [
        Said("done", in_full(table2, fig11)),
        sizes(table2["graphs"]),
        f"two epochs are {span(alike, '%', whole)} alike",
        averaged(alike, mean(paper)),
        Said(
            "papers100M's twin alone is comparable in this",
            [name for name in table2["graphs"] if not is_unlike(table2, name)] == ["papers100M-like"],
        ),
        Said(
            f"Two epochs of pre-sampling are enough, a third adds at most {short(gained)} points: reproduced",
            gained < 1,
        ),
        f"with 5 % of papers100M cached PreSC hits {short(ours / degree)} x as often as Degree "
        f"(paper {short(there)} x): {became([ours / degree], least=there)}",
        f"with 900 columns Degree moves {short(more / moved)} x its bytes (paper about 4 x): "
        f"{became([more / moved], least=4)}",
        unlike(fig11),
    ]


@row("GNNLab", "figure 4", "gnnlab-fig4", "gnnlab-fig5", "gnnlab-fig12")
def extraction(fig4: Record, fig5: Record, fig12: Record) -> Phrases:
    def at(share: float, of: Sequence[Row]) -> Row:
        (found,) = (each for each in of if each["cache_percent"] == share and each.get("part", "a") == "a")
        return found

    few, many = at(7, rows(fig4)), at(21, rows(fig4))
    paper_few, paper_many = at(7, rows(fig4["paper"])), at(21, rows(fig4["paper"]))
    longer, there = few["extract_ms"] / many["extract_ms"], paper_few["extract_ms"] / paper_many["extract_ms"]
    uniform, weighted = (
        at(7, rows(fig5, sampler=name))["degree_over_optimal"] for name in ("k-hop", "weighted")
    )
    (published,) = rows(fig5["paper"])
    theirs = published["degree_mb"] / published["optimal_mb"]
    random, degree = (
        [100 * share for share in values(fig12, f"less_than_{name}", policy="presample")]
        for name in ("random", "degree")
    )
    return [
        f"Figure 4, {cards(fig4)}, {sizes(fig4['graphs'])}",
        f"from 21 to 7 % cached extraction takes {short(longer)} x as long",
        f"by UVA {short(few['uva_ms'] / many['uva_ms'])} x (paper {short(there)} x): {became([longer], least=there)}",
        Said(
            f"with 7 % more is hit ({whole(few['hit_percent'])} %, paper {whole(paper_few['hit_percent'])} %)",
            few["hit_percent"] > paper_few["hit_percent"],
        ),
        Said(
            "rows of more than 128 columns were not timed",
            all((each["num_features"] > 128) == ("extract_ms" not in each) for each in rows(fig4)),
        ),
        f"Figure 5, {cards(fig5)}, {sizes(fig5['graphs'])}",
        f"with 7 % cached Degree moves {whole(uniform)} x the optimal's bytes (paper {whole(theirs)} x): "
        f"{became([uniform], least=theirs)}",
        f"on Twitter with weights {short(weighted)} x",
        f"Figure 12, {cards(fig12)}, {sizes(fig12['graphs'])}",
        f"PreSC takes {span(random, '%', whole)} less than Random",
        averaged(random, 73),
        f"{less(degree)} than Degree",
        averaged(degree, 39),
        unlike(fig4, fig5, fig12),
    ]


@row("GNNLab", "factored design", "pipelines", given=["on CPU ranks and on two GPUs, on four that each"])
def handed_over(pipelines: Record) -> Phrases:
    (peer,) = rows(pipelines, part="handover", way="peer")
    return [f"an epoch {short(peer['x_first'])} x as fast, {cards(pipelines, peer['gpus'])}"]


@row("GNNLab", "AGL's batch mode", "pipelines")
def in_turns(pipelines: Record) -> Phrases:
    (turns,) = rows(pipelines, part="swap", way="in turns")
    return [
        Said("done", in_full(pipelines)),
        f"{cards(pipelines, turns['gpus'])}, {sizes(pipelines['graphs'])}",
        f"an epoch in turns takes {short(1 / turns['x_first'])} x as long as with both side by side",
    ]


@row("GNNLab", "{time sharing, factored}", "gnnlab-budget")
def one_budget(budget: Record) -> Phrases:
    ran = {step: on_card(budget, "overlapped", step) for step in ("plain", "captured")}

    def of(field: str, *executors: str) -> list[Any]:
        return [row[field] for found in ran.values() for row in found if row["executor"] in executors]

    plain, claim = line(budget, "factored, one budget")
    captured, _ = line(budget, "the same", "time sharing")
    degree, presample = (
        next(row["x_sharing"] for row in ran["plain"] if "x_sharing" in row and row["policy"] == name)
        for name in ("degree", "presample")
    )
    smaller = dict.fromkeys(values(budget, "budget_gb", card="serial"))
    fit = {step: on_card(budget, "serial", step) for step in ran}
    less, _ = line(budget, "factored, less memory:")
    less_captured, _ = line(budget, "factored, less memory, training steps")

    def holds(executor: str, of: Callable[[list[float]], float] = max) -> list[float]:
        """Percent of the rows, by kind of steps, on the smaller card."""
        found = [[r["cached_percent"] for r in each if r["executor"] == executor] for each in fit.values()]
        return [of(each) for each in found]

    beside = [
        r["cached_percent"]
        for each in fit.values()
        for r in each
        if r["executor"] == "factored" and not str(r["split"]).endswith("one after the other")
    ]
    designs = {
        factored: min(r["epoch_ms"] for r in fit["captured"] if (r["executor"] == "factored") is factored)
        for factored in (False, True)
    }
    return [
        Said(
            "partly, Products alone of the paper's graphs",
            in_full(budget)
            and len(less) == len(less_captured) == 2
            and sizes(budget["graphs"]).startswith("Products"),
        ),
        f"{sizes(budget['graphs'])}, {cards(budget, max(of('gpus', 'factored')))}",
        f"one stage after the other {span(of('cached_percent', 'serial'), '%', whole)} of the rows beside the topology",
        f"stages that overlap {span(of('cached_percent', 'streams', 'overlapped'), '%', whole)}",
        f"trainers {span(of('cached_percent', 'factored'), '%', whole)} without it",
        Said(
            f"factored is {short(degree)} (Degree) and {short(presample)} x (PreSC) of the best way of time sharing: "
            f"no verdict, since the paper's {claim.text}, are of graphs of which T_SOTA cannot cache all rows; of "
            f"Products, of which it can, the paper has {series(over_tsota(lambda percent: percent == 100))} x",
            bool(misses_none("plain")(budget)) and plain == [degree, presample],
        ),
        f"it is {series(captured)} x of time sharing with such steps",
        f"with budgets of {listed(short(size) for size in smaller)} GB",
        f"stages one after the other cache {span([*holds('serial', min), *holds('serial')], '%', whole)}",
        f"trainers that extract beside training at most {whole(max(beside))} %",
        f"trainers one stage after the other up to {series(holds('factored'), whole)} %",
        f"factored is {series(less)} x: {became(less, claim)}",
        f"replayed it is {series(less_captured)} x: {became(less_captured, claim)}",
        f"{short(designs[False] / designs[True])} x by the better policy of each design",
    ]


@row("GNNLab", "table 1", "gnnlab-table1", "gnnlab-fig3")
def stages(table1: Record, fig3: Record) -> Phrases:
    (speed,), claim = line(table1, "sampling and caching")
    dgl, paper = (
        next(each["extract_s"] / each["total_s"] for each in of if each["system"] == "DGL")
        for of in (rows(table1), rows(table1["paper"]))
    )
    alike = [each["similarity_percent"] for each in rows(fig3) if "similarity_percent" in each]
    scratch = values(fig3, "percent", stage="sample, scratch")
    return [
        f"partly, {cards(table1)}",
        f"Table 1, {sizes(table1['graphs'])}",
        f"both optimisations are {short(speed)} x of DGL (paper {claim.text}): {became([speed], claim)}",
        Said(f"extraction is {percent([dgl])} of DGL's epoch (paper {percent([paper])})", dgl < paper),
        f"Figure 3, {sizes(fig3['graphs'])}",
        f"what a stage needs is {span(alike, '%', whole)} alike in two epochs",
        f"of what all stages need, sampling takes {span(scratch, '%')} for a while",
        unlike(table1),
    ]


@row("GNNLab", "table 3", "gnnlab-table3")
def graphs(table3: Record) -> Phrases:
    off = [
        abs(ours[field] / theirs[field] - 1)
        for ours, theirs in zip(rows(table3), rows(table3["paper"]), strict=True)
        for field in ("num_nodes", "num_edges", "num_features", "train")
    ]
    return [
        Said("done", full_size(table3, 4)),
        "vertices, edges, features and training sets of the twins in full size are within "
        f"{whole(100 * max(off))} % of what the paper has",
    ]


@row("GNNLab", "table 4", "gnnlab-table4", "gnnlab-table5", given=["8 modelled"])
def epochs(table4: Record, table5: Record) -> Phrases:
    def speed(system: str, graph: str | tuple[str, ...], **wanted: object) -> list[float]:
        """Over DGL's configuration, without what has no such ratio in the paper: DGL did not fit."""
        with_ratio = {
            (each["graph"], each["model"]) for each in rows(table4["paper"], system=system) if each["speedup"]
        }
        return [
            each["speedup"]
            for each in rows(table4, system=system, graph=graph, **wanted)
            if (scaled(each["graph"])[0], each["model"]) in with_ratio
        ]

    others = far(table4)
    shared = speed("tsota", others)
    several = sorted({*values(table4, "gpus", system="gnnlab", graph=others)} - {1})
    factored = [speed("gnnlab", others, gpus=count) for count in several]
    all_cached = speed("tsota", "products-like"), speed("gnnlab", "products-like")
    _, claim = line(table4, "an epoch")
    here = {(scaled(each["graph"])[0], each["model"]) for each in rows(table4, graph=others)}
    paper = [
        each["speedup"]
        for each in rows(table4["paper"], system="tsota")
        if (each["graph"], each["model"]) in here and each["speedup"]
    ]
    training = [
        each["train_s"] / each["epoch_s"] for each in rows(table4, system="gnnlab", graph=others, gpus=2)
    ]
    switching = values(table4, "switching", system="gnnlab", graph=others, gpus=2)
    pairs = list(zip(*(rows(table5, system=name) for name in ("tsota", "gnnlab")), strict=True))
    both_ran = {(each["graph"], each["model"]) for each in rows(table5["paper"], system="tsota")}
    extracts, apart = [], {}
    for theirs, ours in pairs:
        graph, ratio = scaled(ours["graph"])[0], theirs["extract_s"] / ours["extract_s"]
        if graph == "products-like" or (graph, ours["model"]) not in both_ran:
            apart[graph] = ratio
        else:
            extracts.append(ratio)
    published = {
        (each["graph"], each["model"]): each["hit_percent"] for each in rows(table5["paper"], system="gnnlab")
    }

    def hits(*graphs: str) -> list[list[float]]:
        """T_SOTA's, GNNLab's, and what the paper has for GNNLab."""
        found = [
            (theirs["hit_percent"], ours["hit_percent"], published[scaled(ours["graph"])[0], ours["model"]])
            for theirs, ours in pairs
            if scaled(ours["graph"])[0] in graphs
        ]
        return [list(each) for each in zip(*found, strict=True)]

    low, high, there = hits("papers100M-like", "twitter-like")
    (none,), (some,), (more,) = hits("uk-like")
    return [
        few_models(table4, table5),
        f"{sizes(table4['graphs'])}; {gpus(table4)}",
        f"off by {whole(mean(errors(table4)))} % on average over the runs",
        f"T_SOTA is {span(shared, 'x')} of DGL (paper {span(paper, 'x')}, 8 GPUs): "
        f"{became(shared, least=min(paper))}",
        Said(
            f"on Products, of which it caches all rows, {series(all_cached[0])} x, ahead of it: "
            f"{became([a / b for a, b in zip(*all_cached, strict=True)])}",
            set(values(table4, "cache_percent", system="tsota", graph="products-like")) == {100.0},
        ),
        f"on {listed(map(counted, several))} GPUs, GNNLab is {listed(span(each, 'x') for each in factored)} of DGL "
        f"(paper {claim.text}): {became([each for on in factored for each in on], claim)}",
        Said("DGL does not fit on UK in the paper", not speed("gnnlab", "uk-like@0.03")),
        f"GNNLab's {series(all_cached[1])}, which alone is comparable: "
        f"{became(values(table4, 'speedup', system='gnnlab', graph='products-like', gpus=tuple(several)), claim)}",
        Said(
            "on two the sampler trains, too, once it has sampled the epoch: both together "
            f"{percent(training)} of the epoch",
            all(switching),
        ),
        f"Table 5, {cards(table5, 2)}: on papers100M and Twitter it extracts {span(extracts, 'x')} as fast as T_SOTA",
        averaged(extracts, 4.2, "x"),
        f"on UK, of which the paper has no T_SOTA, {short(apart['uk-like'])} x",
        f"on Products, of which T_SOTA caches all rows, {short(apart['products-like'])} x",
        f"on papers100M and Twitter it hits {span(high, '%', whole)} for T_SOTA's {span(low, '%', whole)}: "
        f"{became([a / b for a, b in zip(high, there, strict=True)], least=1, neutral=0)}",
        f"{whole(some)} % for {f'{whole(none)} %' if none else 'none'} on UK (paper {whole(more)} %): "
        f"{became([some], least=more, neutral=0)}",
        unlike(table4, table5),
    ]


@row("GNNLab", "table 6", "gnnlab-table6")
def preprocessing(table6: Record) -> Phrases:
    found = rows(table6)
    presampling = values(table6, "presample_over_epoch")
    loading = [(each["topology_s"] + each["cache_s"]) / each["epoch_s"] for each in found]
    reading = [
        100 * each["disk_s"] / sum(each[f"{part}_s"] for part in ("disk", "topology", "cache", "presample"))
        for each in found
    ]
    by_metis = [each["metis_s"] for each in found]
    return [
        f"partly, {cards(table6)}",
        sizes(table6["graphs"]),
        f"pre-sampling takes {span(presampling, 'epochs')} of one GPU (paper 1.4 of 8 GPUs): "
        f"{became(presampling, least=1.4, neutral=0)}",
        f"topology and cache {span(loading, 'epochs')} (paper 13.9): {became(loading, least=13.9, neutral=0)}",
        f"the disk, read at {span(values(table6, 'disk_gbps'), 'GB/s', lambda speed: f'{speed:.1f}')}, takes "
        f"{span(reading, '%', whole)} of all (paper 43 to 79 %): {became(reading, least=43, best=79, neutral=0)}",
        f"METIS into two parts takes {span(by_metis, 's')}",
    ]


@row("GNNLab", "figure 13", "gnnlab-fig13", "gnnlab-fig14", "gnnlab-fig15")
def scaling(fig13: Record, fig14: Record, fig15: Record) -> Phrases:
    records = (fig13, fig14, fig15)
    off = [whole(mean(errors(of))) for of in records]
    taken, claim = line(fig13, "time that PreSC#1 takes off")
    (walks,), said = line(fig13, "the same")
    of_random = [
        100 * each for each in values(fig13, "less_than_random", policy="presample", model=("gcn", "sage"))
    ]
    several = sorted({*values(fig14, "gpus", system="gnnlab")})
    slower_than_dgl = [
        min(values(fig14, "epoch_s", system="gnnlab", graph=graph, gpus=count))
        / values(fig14, "epoch_s", system="dgl", graph=graph, gpus=count)[0]
        for graph in fig14["graphs"]
        for count in several
    ]
    splits: dict[tuple[str, str], list[Row]] = {}
    for of in (fig14, fig15):
        for each in of["rows"]:
            if each["gpus"] == 8 and each["split"]:
                splits.setdefault((of["suite"], each["graph"]), []).append(each)
    best = {min(several, key=lambda each: float(each["epoch_s"]))["split"] for several in splits.values()}
    ours, theirs = (
        {each["split"]: each["epoch_s"] for each in of} for of in (fig15["rows"], rows(fig15["paper"]))
    )
    longer, there = (of["3S2T"] / of["2S3T"] for of in (ours, theirs))
    (by_rule,) = rows(fig15, chosen="rule", gpus=4)
    slower = by_rule["epoch_s"] / min(values(fig15, "epoch_s", gpus=4))
    elsewhere: dict[str, list[str]] = {}
    for each in fig15["rows"]:
        over = each["epoch_s"] / min(
            float(of["epoch_s"]) for of in fig15["rows"] if of["gpus"] == each["gpus"]
        )
        if over > 1 and each["chosen"] == "rule" and each["origin"] == "modelled":
            elsewhere.setdefault(short(over), []).append(f"on {each['gpus']}")
    return [
        few_models(*records),
        f"figure 13 on {sizes(fig13['graphs'])}, {cards(fig13, most(fig13, 'gpus'))}",
        f"figure 14 on {sizes(fig14['graphs'])}, {gpus(fig14)}",
        f"figure 15 on {sizes(fig15['graphs'])}, "
        f"{listed(map(counted, sorted({*values(fig15, 'gpus')})))} {card_of(fig15)}",
        f"off by {off[0]}, {off[1]} and {off[2]} % on average over the runs of figures 13, 14 and 15",
        f"{whole(max(each for of in records for each in errors(of)))} % at worst",
        f"PreSC takes {less(taken)} than Degree with GCN and GraphSAGE (paper {claim.text} less): "
        f"{became(taken, claim)}",
        f"{short(walks)} % less with PinSAGE (paper {said.text} less): {became([walks], said)}",
        f"than Random {less(of_random)} (paper 50 to 76 % less): {became(of_random, least=50, neutral=0)}",
        f"figure 14, on {listed(map(counted, several))} GPUs {span(slower_than_dgl, 'x')} as long as DGL's "
        f"(paper: less, and scaling better): {became([1 / each for each in slower_than_dgl])}",
        Said(
            "training takes longer than extraction by either",
            all(each["train_s"] > each["extract_s"] for each in rows(fig13, policy=("degree", "presample"))),
        ),
        Said("two samplers for six trainers are best on 8 GPUs", best == {"2S6T"}),
        f"on four, N_s from stage times that hold the queue's copies is {by_rule['samplers']}, which takes "
        f"{short(slower)} x as long as the best",
        *(f"modelled, N_s takes {over} x as long {' and '.join(where)}" for over, where in elsewhere.items()),
        f"3S2T takes {short(longer)} x as long as 2S3T (paper {short(there)} x): {became([longer], least=there)}",
        unlike(*records),
    ]


@row("GNNLab", "figure 16", "gnnlab-fig16")
def convergence(fig16: Record) -> Phrases:
    speed, claim = line(fig16, "time to the same accuracy")
    pairs = list(zip(rows(fig16, system="gnnlab"), rows(fig16, system="dgl"), strict=True))
    paper = {each["system"]: each["epochs_to_target"] for each in rows(fig16["paper"])}
    needed = [(ours["epochs_to_target"], theirs["epochs_to_target"]) for ours, theirs in pairs]
    longer = [ours["epoch_s"] / theirs["epoch_s"] for ours, theirs in pairs]
    over_tsota = [
        ours["speedup"] / theirs["speedup"]
        for (ours, _), theirs in zip(pairs, rows(fig16, system="tsota"), strict=True)
    ]
    best, original = next(
        (ours["best_accuracy"], ours["original"]) for ours, _ in pairs if "original" in ours
    )
    return [
        Said("partly, labels that are harder than the original's", in_full(fig16) and best < original),
        f"{cards(fig16, most(fig16, 'gpus'))} (paper 8 GPUs), {sizes(fig16['graphs'])}",
        f"epochs than DGL's, {', '.join(f'{a} for {b}' for a, b in needed)} (paper {paper['gnnlab']} for "
        f"{paper['dgl']}): no verdict",
        Said(
            "the accuracy that all are held to is the lowest of the systems' best ones, which DGL reaches in its last",
            all(theirs["epochs_to_target"] == len(theirs["accuracy"]) for _, theirs in pairs),
        ),
        f"{series(over_tsota)} x as fast as T_SOTA (paper 3.5 x): {became(over_tsota, least=3.5)}",
        f"at the same accuracy it is {series(speed)} x as fast as DGL (paper 10.2 x): {became(speed, claim)}",
        Said(
            "its one trainer makes twice the updates an epoch",
            all(ours["updates"] == 2 * theirs["updates"] for ours, theirs in pairs),
        ),
        Said(f"which takes {series(longer)} x as long", min(longer) > 1),
        Said(
            f"not learnt as far as the original's ({whole(100 * best)} for {percent([original])})",
            best < original,
        ),
    ]


@row("GNNLab", "figure 17", "gnnlab-fig17")
def switching(fig17: Record) -> Phrases:
    (taken,), claim = line(fig17, "what switching takes off")
    gains = {each["gpus"] - 1: each for each in fig17["rows"] if each.get("gain") is not None}
    more = [100 * gains[trainers]["gain"] for trainers in sorted(gains)[3:]]

    def gain(trainers: int) -> str:
        each = gains[trainers]
        said = f"{whole(100 * each['gain'])} %{' modelled' if each['origin'] == 'modelled' else ''}"
        return f"{said} with {counted(trainers)}"

    alone = rows(fig17, part="b", system="gnnlab", graph=far(fig17))
    over_dgl, over_tsota = ([each[field] for each in alone] for field in ("speedup", "over_tsota"))
    (near,) = (each for each in rows(fig17, part="b", system="gnnlab") if each["graph"] not in far(fig17))
    spent = [
        each["copy_s"] + each["get_s"] - (other["extract_s"] - each["extract_s"])
        for each, other in zip(alone, rows(fig17, part="b", system="tsota", graph=far(fig17)), strict=True)
    ]
    return [
        few_models(fig17),
        f"{sizes(fig17['graphs'])}; {gpus(fig17)}",
        f"off by {whole(mean(errors(fig17)))} % on average",
        f"Switching takes {whole(taken)} % off with one trainer",
        Said(f"{gain(2)}, {gain(3)}", taken > 100 * max(gains[n]["gain"] for n in (2, 3)) > max(more)),
        f"at most {whole(max(more))} % modelled with more: {became([taken, 100 * gains[2]['gain']], claim)}",
        # The paper leaves Products out beside T_SOTA alone.
        f"on one GPU {span(over_dgl, 'x')} of DGL (paper 1.9 to 7.7 x): {became(over_dgl, least=1.9)}",
        Said(
            f"but on Products, of which it caches all rows, {short(near['speedup'])} x: reproduced",
            near["cache_percent"] == 100 and near["speedup"] >= 1.9,
        ),
        f"{span(over_tsota, 'x')} of T_SOTA (paper 1.2 to 2.0 x): {became(over_tsota, least=1.2)}",
        Said(
            "handing samples over through host memory takes longer than its cache saves",
            min(spent) > 0,
            may_go=True,
        ),
        unlike(fig17),
    ]


@row("GNNLab", "where the factored design beats", "gnnlab-designs")
def designs(found: Record) -> Phrases:
    ran = [each for each in rows(found, part="graphs") if each.get("ran_factored_s")]
    won = [each["ran_factored_s"] / each["ran_timeshared_s"] for each in ran]
    models = counted(len({each["model"] for each in ran}))
    return [
        Said("done", in_full(found)),
        Said("the model's claim held", all(each["agrees"] == "yes" for each in ran)),
        f"{listed(map(counted, sorted({each['gpus'] for each in ran})))} {card_of(found)}, "
        f"{sizes(found['graphs'])}, {models} models",
        Said(
            f"time sharing wins in all {models}, {span(won, 'x')}, as the model says",
            all(each["favours"] == each["measured"] == "time sharing" for each in ran),
        ),
    ]
