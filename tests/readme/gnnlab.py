"""What the rows of GNNLab say of their records.

A verdict follows the rule of the table "Measured", and where that table has a line for it, the line's values and claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean

from gnnsample_lab.bench.measured import LINES, MISSED, REPRODUCED, REVERSED, Claim, most, scaled, verdict
from gnnsample_lab.bench.report import title_of
from tests.notebooks.recorded import Record, Row, Said, counted, percent, rows, short, span, tenths, whole
from tests.readme.rows import Phrases, cards, row

VERDICTS = {"reproduced": REPRODUCED, "smaller": MISSED, "reversed": REVERSED}
NAMES = {
    "products-like": "Products", "arxiv-like": "arxiv", "musae-facebook": "MUSAE facebook",
    "papers100M-like": "papers100M", "twitter-like": "Twitter", "uk-like": "UK",
}  # fmt: skip


def judged(text: str, values: Sequence[float], claim: Claim) -> Said:
    """A phrase that ends in a verdict, and whether the rule of the table "Measured" gives it."""
    return Said(text, verdict(values, claim).startswith(VERDICTS[text.rpartition(" ")[2]]))


def averaged(values: Sequence[float], paper: float, word: str, unit: str = "%") -> Said:
    """The same where the paper names an average."""
    form, claim = whole if unit == "%" else tenths, Claim("", least=paper, neutral=0 if unit == "%" else 1)
    return judged(
        f"{form(mean(values))} {unit} on average (paper {form(paper)} {unit}): {word}", [mean(values)], claim
    )


def line(of: Record, what: str, against: str = "") -> tuple[list[float], Claim]:
    """Values and the paper's claim of the record's line in the table "Measured"."""
    (found,) = (
        each
        for each in LINES
        if (each.paper, each.suite) == ("GNNLab", of["suite"])
        and each.what.startswith(what)
        and against in each.against
    )
    assert found.claim, what
    return [value for value, _ in found.points(of)], found.claim(of)


def done(*records: Record) -> Said:
    """No row is done by a quick run."""
    return Said("done", not any(each["settings"]["quick"] for each in records))


def sizes(of: Record) -> str:
    """The graphs that were measured, by their scale."""
    at: dict[float, list[str]] = {}
    for name, scale in sorted(map(scaled, of["graphs"]), key=lambda each: list(NAMES).index(each[0])):
        at.setdefault(scale, []).append(NAMES[name])
    words = []
    for scale, names in at.items():
        listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        words.append(listed + (" in full size" if scale == 1 else f" x {scale:g}"))
    return ", ".join(words)


def gpus(of: Record) -> str:
    """On how many GPUs an epoch was measured."""
    return f"1 GPU and {cards(of, int(most(of, 'gpus')))}"


def far(of: Record) -> tuple[str, ...]:
    """Graphs of which no system caches all rows."""
    return tuple(name for name in of["graphs"] if scaled(name)[0] != "products-like")


def is_unlike(of: Record, graph: str) -> bool:
    """Whether the twin is not like its original in what the record rests on."""
    return title_of(of, graph).endswith("not comparable with the original")


def unlike(*records: Record) -> Said:
    return Said(
        "on twins that are not comparable in hit rates",
        all(is_unlike(of, graph) for of in records for graph in of["graphs"]),
    )


def less(percents: Sequence[float]) -> str:
    """From the most that is added to the most that is taken off."""
    return f"{-min(percents):.0f} % more to {max(percents):.0f} % less"


def errors(of: Record) -> list[float]:
    """How far the schedule model is off each measured run, in percent."""
    return [abs(each["error_percent"]) for each in rows(of) if each.get("error_percent") is not None]


def both(values: Iterable[float]) -> str:
    return " and ".join(map(short, values))


@row("GNNLab", "figure 10", "gnnlab-fig10")
def hit_rates(fig10: Record) -> Phrases:
    optimal, near = line(fig10, "PreSC", "optimal")
    degree, more = line(fig10, "PreSC", "degree")
    return [
        done(fig10),
        f"{sizes(fig10)}, {percent([fig10['settings']['ratio']])} cached",
        judged(f"{span(optimal, '%', whole)} of the optimal hit rate (paper {near.text}): reproduced", optimal, near),
        judged(f"{span(degree, 'x')} of Degree's, {short(mean(degree))} x on average (paper {more.text}): smaller",
               degree, more),
        unlike(fig10),
    ]  # fmt: skip


@row("GNNLab", "table 2", "gnnlab-table2", "gnnlab-fig11")
def footprints(table2: Record, fig11: Record) -> Phrases:
    alike = [each["similarity_percent"] for each in rows(table2)]
    paper = [each["similarity_percent"] for each in table2["paper"]["rows"]]

    def found(field: str, *policies: str, **wanted: object) -> list[list[float]]:
        return [[each[field] for each in rows(fig11, policy=name, **wanted)] for name in policies]

    hits = found("hit_percent", "presample#2", "presample#3", part="a")
    gained = max(third - second for second, third in zip(*hits, strict=True))
    (ours,), (degree,) = found("hit_percent", "presample", "degree", part="b", cache_percent=5.0)
    (moved,), (more,) = found("mb_per_batch", "presample", "degree", part="c", num_features=900)
    published = {each["policy"]: each["hit_percent"] for each in fig11["paper"]["rows"]}
    there = published["presample"] / published["degree"]
    return [
        done(table2, fig11),
        sizes(table2),
        f"two epochs are {span(alike, '%', whole)} alike",
        averaged(alike, mean(paper), "reproduced"),
        Said("papers100M's twin alone is comparable in this",
             [name for name in table2["graphs"] if not is_unlike(table2, name)] == ["papers100M-like"]),
        Said(f"Two epochs of pre-sampling are enough, a third adds at most {short(gained)} points: reproduced",
             gained < 1),
        judged(f"with 5 % of papers100M cached PreSC hits {short(ours / degree)} x as often as Degree "
               f"(paper {short(there)} x): smaller", [ours / degree], Claim("", least=there)),
        judged(f"with 900 columns Degree moves {short(more / moved)} x its bytes (paper about 4 x): smaller",
               [more / moved], Claim("", least=4)),
        unlike(fig11),
    ]  # fmt: skip


@row("GNNLab", "figure 4", "gnnlab-fig4", "gnnlab-fig5", "gnnlab-fig12")
def extraction(fig4: Record, fig5: Record, fig12: Record) -> Phrases:
    def at(share: float, of: Sequence[Row]) -> Row:
        (found,) = (each for each in of if each["cache_percent"] == share and each.get("part", "a") == "a")
        return found

    few, many = at(7, rows(fig4)), at(21, rows(fig4))
    paper_few, paper_many = at(7, fig4["paper"]["rows"]), at(21, fig4["paper"]["rows"])
    longer, there = few["extract_ms"] / many["extract_ms"], paper_few["extract_ms"] / paper_many["extract_ms"]
    uniform, weighted = (
        at(7, rows(fig5, sampler=name))["degree_over_optimal"] for name in ("k-hop", "weighted")
    )
    (published,) = fig5["paper"]["rows"]
    theirs = published["degree_mb"] / published["optimal_mb"]
    random, degree = (
        [100 * each[f"less_than_{name}"] for each in rows(fig12, policy="presample")]
        for name in ("random", "degree")
    )
    return [
        f"partly, {cards(fig4)}",
        f"Figure 4, {sizes(fig4)}",
        f"from 21 to 7 % cached extraction takes {short(longer)} x as long",
        judged(f"by UVA {short(few['uva_ms'] / many['uva_ms'])} x (paper {short(there)} x): smaller",
               [longer], Claim("", least=there)),
        Said(f"with 7 % more is hit ({whole(few['hit_percent'])} %, paper {whole(paper_few['hit_percent'])} %)",
             few["hit_percent"] > paper_few["hit_percent"]),
        Said("rows of more than 128 columns were not timed",
             all((each["num_features"] > 128) == ("extract_ms" not in each) for each in rows(fig4))),
        f"Figure 5, {sizes(fig5)}",
        judged(f"with 7 % cached Degree moves {whole(uniform)} x the optimal's bytes (paper {whole(theirs)} x): "
               "smaller", [uniform], Claim("", least=theirs)),
        f"on Twitter with weights {short(weighted)} x",
        f"Figure 12, {sizes(fig12)}",
        f"PreSC takes {span(random, '%', whole)} less than Random",
        averaged(random, 73, "smaller"),
        f"{less(degree)} than Degree",
        averaged(degree, 39, "smaller"),
        unlike(fig4, fig5, fig12),
    ]  # fmt: skip


@row("GNNLab", "factored design", "pipelines", given=["on CPU ranks, two and four GPUs"])
def handed_over(pipelines: Record) -> Phrases:
    (peer,) = rows(pipelines, part="handover", way="peer")
    return [f"an epoch {short(peer['x_first'])} x as fast, {cards(pipelines, peer['gpus'])}"]


@row("GNNLab", "AGL's batch mode", "pipelines")
def in_turns(pipelines: Record) -> Phrases:
    (turns,) = rows(pipelines, part="swap", way="in turns")
    return [
        done(pipelines),
        f"{cards(pipelines, turns['gpus'])}, {sizes(pipelines)}",
        f"an epoch in turns takes {short(1 / turns['x_first'])} x as long as with both side by side",
    ]


@row("GNNLab", "{time sharing, factored}", "pipelines")
def one_budget(pipelines: Record) -> Phrases:
    def of(field: str, executor: str, **wanted: object) -> list[float]:
        return [each[field] for each in rows(pipelines, part="budget", executor=executor, **wanted)]

    plain, claim = line(pipelines, "factored")
    captured, replayed = line(pipelines, "the same")
    (degree,), (presample,) = (
        of("x_sharing", "factored", step="plain", policy=name) for name in ("degree", "presample")
    )
    launches = of("train_ms", "factored", step="plain")
    others = [each for stage in ("sample_ms", "extract_ms") for each in of(stage, "factored", step="plain")]
    ours, theirs = (of("extract_ms", name, step="captured") for name in ("factored", "serial"))
    return [
        done(pipelines),
        f"{sizes(pipelines)}, {cards(pipelines, max(map(int, of('gpus', 'factored'))))}",
        f"{span(of('cached_percent', 'serial'), '%', whole)} of the rows beside the topology",
        f"{span(of('cached_percent', 'factored'), '%', whole)} without it",
        judged(f"factored is {short(degree)} (Degree) and {short(presample)} x (PreSC) of the better way of time "
               f"sharing (paper {claim.text}): reversed", plain, claim),
        Said(f"its one trainer takes {span(launches, 'ms', tenths)} for a step, longer than all else",
             min(launches) > max(others)),
        f"a step takes {span(of('train_ms', 'factored', step='captured'), 'ms', tenths)}",
        judged(f"factored is {both(captured)} x of time sharing with such steps: smaller", captured, replayed),
        Said(f"brings a mini-batch's rows in {span(ours, 'ms', tenths)}", max(ours) < min(theirs)),
        f"time sharing's in {span(theirs, 'ms', tenths)}",
    ]  # fmt: skip


@row("GNNLab", "table 1", "gnnlab-table1", "gnnlab-fig3")
def stages(table1: Record, fig3: Record) -> Phrases:
    (speed,), claim = line(table1, "sampling and caching")
    dgl, paper = (
        next(each["extract_s"] / each["total_s"] for each in of if each["system"] == "DGL")
        for of in (rows(table1), table1["paper"]["rows"])
    )
    alike = [each["similarity_percent"] for each in rows(fig3) if "similarity_percent" in each]
    return [
        f"partly, {cards(table1)}",
        f"Table 1, {sizes(table1)}",
        judged(f"both optimisations are {short(speed)} x of DGL (paper {claim.text}): smaller", [speed], claim),
        Said(f"extraction is {percent([dgl])} of DGL's epoch (paper {percent([paper])})", dgl < paper),
        f"Figure 3, {sizes(fig3)}",
        f"what a stage needs is {span(alike, '%', whole)} alike in two epochs",
        Said("what sampling takes for a while is missing in the record",
             not any(each["gb"] for each in rows(fig3, stage="sample, scratch"))),
        unlike(table1),
    ]  # fmt: skip


@row("GNNLab", "table 4", "gnnlab-table4", "gnnlab-table5", given=["8 modelled", "quick run on four GPUs"])
def epochs(table4: Record, table5: Record) -> Phrases:
    def speed(system: str, graph: str | tuple[str, ...], **wanted: object) -> list[float]:
        return [each["speedup"] for each in rows(table4, system=system, graph=graph, **wanted)]

    others = far(table4)
    shared, factored = speed("tsota", others), speed("gnnlab", others, gpus=2)
    all_cached = speed("tsota", "products-like"), speed("gnnlab", "products-like")
    _, claim = line(table4, "an epoch")
    here = {(scaled(each["graph"])[0], each["model"]) for each in rows(table4, graph=others)}
    paper = [
        each["speedup"]
        for each in table4["paper"]["rows"]
        if each["system"] == "tsota" and (each["graph"], each["model"]) in here and each["speedup"]
    ]
    training = [
        each["train_s"] / each["epoch_s"] for each in rows(table4, system="gnnlab", graph=others, gpus=2)
    ]
    pairs = list(zip(*(rows(table5, system=name) for name in ("tsota", "gnnlab")), strict=True))
    extracts = [theirs["extract_s"] / ours["extract_s"] for theirs, ours in pairs]
    published = {
        (each["graph"], each["model"]): each["hit_percent"]
        for each in table5["paper"]["rows"]
        if each["system"] == "gnnlab"
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
        done(table4, table5),
        f"{sizes(table4)}; {gpus(table4)}",
        f"off by {whole(mean(errors(table4)))} % on average over the runs",
        judged(f"T_SOTA is {span(shared, 'x')} of DGL (paper {span(paper, 'x')}, 8 GPUs): smaller",
               shared, Claim("", least=min(paper))),
        judged(f"on Products, where all is cached, {both(all_cached[0])} x, ahead of GNNLab's {both(all_cached[1])}: "
               "reproduced", [a / b for a, b in zip(*all_cached, strict=True)], Claim("")),
        judged(f"GNNLab on two GPUs is {span(factored, 'x')} of DGL (paper {claim.text}): reversed", factored, claim),
        f"only one of them trains, {percent(training)} of the epoch",
        f"it extracts {span(extracts, 'x')} as fast as T_SOTA",
        averaged(extracts, 4.2, "smaller", "x"),
        judged(f"on papers100M and Twitter it hits {span(high, '%', whole)} for T_SOTA's {span(low, '%', whole)}: "
               "reproduced", [a / b for a, b in zip(high, there, strict=True)], Claim("", least=1, neutral=0)),
        judged(f"{whole(some)} % for {f'{whole(none)} %' if none else 'none'} on UK (paper {whole(more)} %): smaller",
               [some], Claim("", least=more, neutral=0)),
        unlike(table4, table5),
    ]  # fmt: skip


@row("GNNLab", "table 6", "gnnlab-table6")
def preprocessing(table6: Record) -> Phrases:
    found = rows(table6)
    presampling = [each["presample_over_epoch"] for each in found]
    loading = [(each["topology_s"] + each["cache_s"]) / each["epoch_s"] for each in found]
    (small,) = (each["graph"] for each in found if each["metis_s"] is not None)
    return [
        f"partly, {cards(table6)}",
        sizes(table6),
        judged(f"pre-sampling takes {span(presampling, 'epochs')} of one GPU (paper 1.4 of 8 GPUs): smaller",
               presampling, Claim("", least=1.4, neutral=0)),
        judged(f"topology and cache {span(loading, 'epochs')} (paper 13.9): smaller",
               loading, Claim("", least=13.9, neutral=0)),
        Said("the disk was not timed", not any(each["disk_s"] for each in found)),
        f"METIS on {NAMES[small]} alone",
    ]  # fmt: skip


@row("GNNLab", "figure 13", "gnnlab-fig13", "gnnlab-fig14", "gnnlab-fig15", given=["quick runs on 4 GPUs"])
def scaling(fig13: Record, fig14: Record, fig15: Record) -> Phrases:
    records = (fig13, fig14, fig15)
    off = [whole(mean(errors(of))) for of in records]
    taken, claim = line(fig13, "time that PreSC#1 takes off")
    splits: dict[tuple[str, str], list[Row]] = {}
    for of in (fig14, fig15):
        for each in of["rows"]:
            if each["gpus"] == 8 and each["split"]:
                splits.setdefault((of["suite"], each["graph"]), []).append(each)
    best = {min(several, key=lambda each: float(each["epoch_s"]))["split"] for several in splits.values()}
    ours, theirs = (
        {each["split"]: each["epoch_s"] for each in of} for of in (fig15["rows"], fig15["paper"]["rows"])
    )
    longer, there = (of["3S2T"] / of["2S3T"] for of in (ours, theirs))
    return [
        done(*records),
        f"{sizes(fig13)}; {gpus(fig14)}",
        f"figure 14 on {sizes(fig14)}, figure 15 on {sizes(fig15)}, {cards(fig15, int(most(fig15, 'gpus')))}",
        f"off by {off[0]}, {off[1]} and {off[2]} % on average over the runs of figures 13, 14 and 15",
        f"{whole(max(each for of in records for each in errors(of)))} % at worst",
        judged(f"PreSC takes {less(taken)} than Degree (paper {claim.text} less): smaller", taken, claim),
        Said("training takes longer than extraction by either",
             all(each["train_s"] > each["extract_s"] for each in rows(fig13, policy=("degree", "presample")))),
        Said("two samplers for six trainers are best on 8 GPUs", best == {"2S6T"}),
        judged(f"3S2T takes {short(longer)} x as long as 2S3T (paper {short(there)} x): reproduced",
               [longer], Claim("", least=there)),
        unlike(*records),
    ]  # fmt: skip


@row("GNNLab", "figure 16", "gnnlab-fig16")
def convergence(fig16: Record) -> Phrases:
    speed, claim = line(fig16, "time to the same accuracy")
    pairs = list(zip(rows(fig16, system="gnnlab"), rows(fig16, system="dgl"), strict=True))
    paper = {each["system"]: each["epochs_to_target"] for each in fig16["paper"]["rows"]}
    needed = [(ours["epochs_to_target"], theirs["epochs_to_target"]) for ours, theirs in pairs]
    longer = [ours["epoch_s"] / theirs["epoch_s"] for ours, theirs in pairs]
    best, original = next(
        (ours["best_accuracy"], ours["original"]) for ours, _ in pairs if "original" in ours
    )
    return [
        done(fig16),
        f"{cards(fig16, int(most(fig16, 'gpus')))} (paper 8 GPUs), {sizes(fig16)}",
        judged(f"Fewer epochs than DGL's ({', '.join(f'{a} for {b}' for a, b in needed)}; paper {paper['gnnlab']} "
               f"for {paper['dgl']}): reproduced", [b / a for a, b in needed], Claim("")),
        judged(f"at the same accuracy it is {both(speed)} x as fast as DGL (paper 10.2 x): reversed", speed, claim),
        Said("its one trainer makes twice the updates an epoch",
             all(ours["updates"] == 2 * theirs["updates"] for ours, theirs in pairs)),
        Said(f"which takes {both(longer)} x as long", min(longer) > 1),
        Said(f"not learnt as far as the original's ({whole(100 * best)} for {percent([original])})", best < original),
    ]  # fmt: skip


@row("GNNLab", "figure 17", "gnnlab-fig17")
def switching(fig17: Record) -> Phrases:
    (taken,), claim = line(fig17, "what switching takes off")
    gains = {each["gpus"] - 1: 100 * each["gain"] for each in fig17["rows"] if each.get("gain") is not None}
    alone = rows(fig17, part="b", system="gnnlab", graph=far(fig17))
    over_dgl, over_tsota = ([each[field] for each in alone] for field in ("speedup", "over_tsota"))
    spent = [
        each["copy_s"] + each["get_s"] - (other["extract_s"] - each["extract_s"])
        for each, other in zip(alone, rows(fig17, part="b", system="tsota", graph=far(fig17)), strict=True)
    ]
    return [
        done(fig17),
        f"{sizes(fig17)}; {gpus(fig17)}",
        f"off by {whole(mean(errors(fig17)))} % on average",
        f"Switching takes {whole(taken)} % off with one trainer",
        Said("less with each more", list(gains.values()) == sorted(gains.values(), reverse=True)),
        judged(f"{whole(gains[2])} % modelled with two: reproduced", [taken, gains[2]], claim),
        judged(f"{span(over_dgl, 'x')} of DGL (paper 1.9 to 7.7 x): smaller", over_dgl, Claim("", least=1.9)),
        judged(f"{span(over_tsota, 'x')} of T_SOTA (paper 1.2 to 2.0 x): reversed", over_tsota, Claim("", least=1.2)),
        Said("handing samples over through host memory takes longer than its cache saves", min(spent) > 0),
        unlike(fig17),
    ]  # fmt: skip


@row("GNNLab", "where the factored design beats", "gnnlab-designs")
def designs(found: Record) -> Phrases:
    ran = [each for each in rows(found, part="graphs") if each.get("ran_factored_s")]
    won = [each["ran_factored_s"] / each["ran_timeshared_s"] for each in ran]
    models = counted(len({each["model"] for each in ran}))
    return [
        done(found),
        Said("the model's claim held", all(each["agrees"] == "yes" for each in ran)),
        f"{cards(found, int(most(found, 'gpus')))}, {sizes(found)}, {models} models",
        Said(f"time sharing wins in all {models}, {span(won, 'x')}, as the model says",
             all(each["favours"] == each["measured"] == "time sharing" for each in ran)),
    ]  # fmt: skip
