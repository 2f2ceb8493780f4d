"""What the rows of FastGL say of their records."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from gnnsample_lab.bench.hardness import NEAR as AS_HARD
from gnnsample_lab.bench.measured import NEAR
from gnnsample_lab.bench.noise import FAR, over_noise
from tests.notebooks.recorded import (
    Record,
    Said,
    counted,
    graphs_of,
    listed,
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
    exact,
    full_size,
    in_full,
    is_unlike,
    labels,
    ran,
    series,
    sizes,
    values,
)

LARGE = REDDIT, PRODUCTS, MAG = "reddit-like", "products-like", "mag-like"
"""Twins in full size with the largest mini-batches."""


def smaller(graphs: Iterable[str]) -> str:
    """The graphs that are smaller than the paper's, with their scales."""
    return sizes(name for name in graphs if "@" in name)


def ranges(*ends: float) -> str:
    """From least to most, of one thing or of several."""
    return listed(f"{exact(low)} to {exact(high)}" for low, high in zip(ends[::2], ends[1::2]))


def by_graph(of: Record, field: str, **wanted: Any) -> dict[str, float]:
    """A field of the one row that each graph has."""
    found = rows(of, **wanted)
    assert len(found) == len(graphs_of(found)), (field, wanted)
    return {each["graph"]: each[field] for each in found}


def stated(of: Record, pattern: str) -> list[float]:
    """The numbers of the paper's finding that stand where ``#`` stands in the pattern."""
    found = re.search(pattern.replace("#", r"(\d+(?:\.\d+)?)"), of["paper"]["finding"])
    assert found, pattern
    return [float(number) for number in found.groups()]


@row("FastGL", "table 1", "fastgl-table1", "fastgl-table9", given=["Left of 24 GB on the first three"])
def memory(table1: Record, table9: Record) -> Phrases:
    left, published = by_graph(table1, "left_of_24_gb"), by_graph(table1["paper"], "left_gb")
    ours, theirs = ([found[name] for name in LARGE] for found in (left, published))
    assert all(a > b for a, b in pairwise(theirs))
    swapped = [(a, b) for a, b in pairwise(LARGE) if left[a] <= left[b]]
    ordered = listed(f"{labels([b])} leaves more than {labels([a])}" for a, b in swapped)
    held, dgl = (values(table9["paper"], "mb", system=name) for name in ("fastgl", "dgl"))
    share, in_turn = (
        by_graph(table9, f"over_dgl{executor}", system="fastgl") for executor in ("", "_in_turn")
    )
    paper = [a / b for a, b in zip(held, dgl)]
    least, most = min(share, key=lambda name: share[name]), max(in_turn, key=lambda name: in_turn[name])
    return [
        ran(table1, table9),
        Said(sizes(left), list(left) == list(share) and list(left)[:3] == list(LARGE)),
        f"{series(ours)} (paper {series(theirs, exact)}): "
        + (f"reversed, {ordered}" if swapped else "reproduced in order"),
        Said(
            f"{series(share.values())} x of DGL, which has a mini-batch waiting (paper {series(paper)} x, comparable): "
            f"no more on any, reproduced, and less by {whole(100 - 100 * share[least])} % on {labels([least])}",
            max(share.values()) <= max(paper)
            and {*values(table9, "executor", system=("dgl", "fastgl"))} == {"thread", "serial"},
        ),
        Said(
            f"of DGL stage by stage, as FastGL runs, {series(in_turn.values())} x: "
            f"more by {whole(100 * in_turn[most] - 100)} % on {labels([most])}: reversed there",
            in_turn[most] > max(paper),
        ),
    ]


@row(
    "FastGL", "table 2", "fastgl-table2", "fastgl-table3", "fastgl-fig12",
    given=["each tile of 32 features", "equations 3 and 4 allow less than 3 x", "notebook 08"],
)  # fmt: skip
def roofline(table2: Record, table3: Record, fig12: Record) -> Phrases:
    l1, l2 = (values(table2, f"{level}_percent", kernel="library") for level in ("l1", "l2"))
    paper = [span(values(table2["paper"], f"{level}_percent"), "%", whole) for level in ("l1", "l2")]
    library = values(table2, "gflops", kernel="library")
    published, (peak,) = values(table2["paper"], "gflops"), stated(table2, "# GFLOP/s")
    of_peak, there = (
        span([100 * rate / of for rate in found], "%", tenths)
        for found, of in ((library, table2["settings"]["peak_gflops"]), (published, peak))
    )
    rates, levels = [value / 1000 for value in values(table3, "gbps")], values(table3, "level")
    gbps = values(table3["paper"], "gbps", level=tuple(levels))
    theirs = [re.sub(r"\d+", lambda number: exact(int(number[0]) / 1000), each) for each in gbps]
    times = {name: values(fig12, "us", kernel=name) for name in ("memory-aware", "naive", "gnnadvisor-style")}
    over_naive, over_style = (
        [them / us for them, us in zip(times[name], times["memory-aware"])]
        for name in ("naive", "gnnadvisor-style")
    )
    aware, staged = (
        values(fig12, "over_library", kernel=name) for name in ("memory-aware", "memory-aware-staged")
    )
    (best,) = stated(fig12, "up to # x")
    return [
        ran(table2, table3, fig12),
        f"table 2 on {sizes(graphs_of(rows(table2)))}, figure 12 on {labels(graphs_of(rows(fig12)))}",
        Said(
            f"hits {span(l1, '%', whole)} in the L1 and {span(l2, '%', whole)} in the L2 "
            f"(paper {paper[0].removesuffix(' %')} and {paper[1]}): reproduced",
            max(l1) < 10 and max(l2) < 50,
        ),
        Said(
            f"its {series(library, whole)} GFLOP/s are {of_peak} of the card's peak (paper {series(published, whole)}, "
            f"{there}): reproduced",
            100 * max(library) < 3 * table2["settings"]["peak_gflops"],
        ),
        Said(
            f"{listed(levels)} give {series(rates)} TB/s (paper {listed(theirs)}): reproduced in order",
            all(a > b for a, b in pairwise(rates)),
        ),
        f"{span(aware, 'x')} of cuSPARSE, {span(over_style, 'x')} of GNNAdvisor's style "
        f"(paper up to {exact(best)} x of DGL and GNNAdvisor): {became([*aware, *over_style], best=best)}",
        Said(f"{span(over_naive, 'x')} of our naive kernel", max(over_naive) < 1),
        Said(f"staged once (ours) {span(staged, 'x')} of cuSPARSE", min(staged) > 1),
    ]


MANY = (50.0, 80.0, 100.0)
"""Shares of the rows, in percent, beside which little is left to Match-Reorder."""


def by_graph_became(found: dict[str, float], published: list[float]) -> str:
    """Where the paper's gains were found, to a tenth, where smaller ones, and where none."""
    where: dict[str, list[str]] = {"reproduced": [], "smaller": [], "reversed": []}
    for (name, here), there in zip(found.items(), published, strict=True):
        where["reproduced" if here >= NEAR * there else "smaller" if here > 1 else "reversed"].append(name)
    words = [(word, names) for word, names in where.items() if names]
    return (
        words[0][0] if len(words) == 1 else ", ".join(f"{word} on {labels(names)}" for word, names in words)
    )


@row("FastGL", "table 4", "fastgl-table4", "fastgl-fig10", "fastgl-table7", given=["notebook 07"])
def matching(table4: Record, fig10: Record, table7: Record) -> Phrases:
    degree, spread = (by_graph(table4, f"{what}_percent") for what in ("average", "spread"))
    paper, apart = (values(table4["paper"], f"{what}_percent") for what in ("average", "spread"))
    modes = "match", "match + reorder"
    walks, ordered = (by_graph(table7, "speedup", system=mode) for mode in modes)
    walked, reordered = (values(table7["paper"], "speedup", system=mode) for mode in modes)
    off = [100 * value for value in values(fig10, "less_than_first", part="b", system="match")]
    gain = by_graph(fig10, "reorder_gain", part="b", system="match + reorder")
    before, after = (values(fig10, "mb_per_batch", part="b", system=mode) for mode in modes)
    more = [100 * (b / a - 1) for a, b in zip(before, after)]
    slower, faster = [name for name in gain if gain[name] < 0], [name for name in gain if gain[name] > 0]
    search = by_graph(fig10, "reorder_ms", part="b", system="match + reorder")
    matched = by_graph(fig10, "io_ms", part="b", system="match")
    spent = [100 * search[name] / matched[name] for name in slower]
    beside = {
        each["cache_percent"]: 100 * each["less_than_first"]
        for each in rows(fig10, part="a", system="cache + match + reorder")
    }
    few = [beside[cached] for cached in beside if cached <= 30]
    alike = [graph for graph in table7["graphs"] if not is_unlike(table7, graph)]
    (most,) = stated(fig10, "up to # %")
    return [
        ran(table4, fig10, table7),
        f"{labels(degree)} in full size, {smaller(walks)} in figure 10 and table 7",
        Said(
            f"{series(degree.values(), whole)} % (paper {series(paper, whole)} %): agrees, those of Reddit and MAG "
            "were fitted to this table",
            all(abs(a - b) < 5 for a, b in zip(degree.values(), paper, strict=True)),
        ),
        Said(
            f"on twins that are not comparable in match degrees or their spread, but for {labels(alike)} in table 7",
            all(is_unlike(of, graph) for of in (table4, fig10) for graph in of["graphs"]) and bool(alike),
        ),
        f"{series(walks.values())} x as fast (paper {series(walked, exact)} x): {by_graph_became(walks, walked)}",
        f"with the reorder {series(ordered.values())} x (paper {series(reordered, exact)} x): "
        f"{by_graph_became(ordered, reordered)}",
        f"Match takes {span(off, '%', whole)} off",
        Said(
            f"on {labels(graphs_of(rows(fig10, part='a')))} Match-Reorder takes {span(few, '%', whole)} off beside "
            f"caches of up to 30 % of the rows, {series((beside[cached] for cached in MANY), whole)} % at "
            f"{series(MANY, whole)} % (paper: most below 50 %): reproduced",
            min(few) > beside[50.0] > beside[80.0] > beside[100.0],
        ),
        Said(
            "with every row cached it takes longer than the cache alone (paper: a minor improvement): reversed",
            beside[100.0] < 0,
        ),
        f"adds {series((-100 * gain[name] for name in slower), whole)} % on {labels(slower)}, of which "
        f"finding the order is {series(spent, whole)} points, takes "
        f"{series((100 * gain[name] for name in faster), whole)} % off on {labels(faster)} "
        f"(paper up to {exact(most)} % off): {became((100 * each for each in gain.values()), best=most, neutral=0)}",
        Said(
            f"spreads by {span(spread.values(), 'points')}, the paper's by {ranges(min(apart), max(apart))}",
            all(a < b for a, b in zip(spread.values(), apart, strict=True)),
        ),
        f"moves {max(more):.0f} % more bytes to {-min(more):.1f} % fewer",
    ]


@row("FastGL", "table 8", "fastgl-table8", "fastgl-fig13", given=["notebook 05"])
def sampling(table8: Record, fig13: Record) -> Phrases:
    wall, gpu = (by_graph(table8, what, id_map="fused-map") for what in ("speedup", "gpu_speedup"))
    ours = [values(table8, what, id_map="fused-map-block") for what in ("speedup", "gpu_speedup")]
    paper = values(table8["paper"], "speedup", id_map="fused-map")
    new, us = (by_graph(table8, what, id_map="fused-map") for what in ("nodes", "gpu_us"))
    block = by_graph(table8, "gpu_us", id_map="fused-map-block")
    slower = [name for name in wall if wall[name] < 1]
    over = by_graph(fig13, "speedup", system="fastgl")
    cpu, dgl, fastgl, lab = (
        by_graph(fig13, "sample_ms", system=name) for name in ("pyg-cpu", "dgl", "fastgl", "lab")
    )
    pyg = [cpu[name] / fastgl[name] for name in over]
    best, least, most = stated(fig13, "# x faster.* # x to # x")
    igb = next(name for name in over if name.startswith("igb"))
    return [
        ran(table8, fig13),
        f"Table 8, {counted(len(wall))} graphs in full size",
        Said(
            f"Algorithm 2 as published {span(wall.values(), 'x')}, by the GPU's time {span(gpu.values(), 'x')} "
            f"(paper {ranges(min(paper), max(paper))} x): {became(wall.values(), least=min(paper))}",
            became(wall.values(), least=min(paper)) == became(gpu.values(), least=min(paper)),
        ),
        Said(
            f"reversed on {labels(slower)}, which has the most new ids, each an addition to one counter",
            slower == [max(new, key=lambda name: new[name])]
            and slower == [max(us, key=lambda name: us[name] - block[name])],
        ),
        f"with one addition a block (ours) {span(ours[0], 'x')}, by the GPU's time {span(ours[1], 'x')}",
        f"Figure 13, {counted(len(over))} graphs ({smaller(over)})",
        f"FastGL {span(over.values(), 'x')} of DGL's configuration (paper {ranges(least, most)} x): "
        f"{became(over.values(), least=least)} but on {labels(name for name in over if over[name] > 1)}",
        Said(
            f"{rows(fig13, graph=igb)[0]['batch_size']} seeds of {labels([igb])} take {short(dgl[igb])} ms with DGL's "
            f"map, {short(fastgl[igb])} with Fused-Map, {short(lab[igb])} in one launch",
            min(fastgl[igb], dgl[igb]) > 10 * lab[igb],
        ),
        f"over PyG {span(pyg, 'x')} (paper up to {exact(best)} x): {became(pyg, best=best)}",
    ]


@row(
    "FastGL", "figures 1, 3, 15", "fastgl-fig1", "fastgl-fig3", "fastgl-fig15", "fastgl-fig11",
    given=["notebook 08"],
)  # fmt: skip
def ablation(fig1: Record, fig3: Record, fig15: Record, fig11: Record) -> Phrases:
    extract = values(fig1, "extract_percent", system="dgl")
    cpu, gpu = (values(fig1, "sample_percent", system=name) for name in ("pyg-cpu", "dgl"))
    most_cpu, most_gpu, most_extract = stated(fig1, "# %.* # %.* # %")
    sampled, gathered = (
        values(fig3, f"{stage}_percent", system="+ memory-aware") for stage in ("sample", "extract")
    )
    (over,) = stated(fig3, "more than # %")
    match, aware, fused = (
        by_graph(fig15, "step_gain", system=f"+ {name}")
        for name in ("match-reorder", "memory-aware", "fused-map")
    )
    beaten = [name for name in match if aware[name] > max(match[name], fused[name])]
    (gain,) = stated(fig15, "Memory-Aware # x")
    sums = by_graph(fig11, "aggregate_speedup", system="fastgl")
    return [
        ran(fig1, fig3, fig15, fig11),
        f"{counted(len(match))} graphs ({smaller(match)})",
        Said(
            f"Memory IO is {span(extract, '%', whole)} of DGL's epoch (paper up to {exact(most_extract)} %), sampling "
            f"{span(cpu, '%', whole)} of PyG's (up to {exact(most_cpu)} %), {span(gpu, '%', whole)} of DGL's "
            f"(up to {exact(most_gpu)} %): smaller",
            max(extract) < most_extract
            and max(cpu) < most_cpu
            and max(gpu) < most_gpu
            and min(extract) > max(gpu),
        ),
        Said(
            f"sampling takes {series(sampled, whole)} % (paper more than {exact(over)} %): smaller, "
            f"memory IO is still {series(gathered, whole)} %",
            max(sampled) < over,
        ),
        Said(
            f"Match-Reorder gains most on average, {series(match.values())} x on {labels(match)}: reproduced",
            statistics.mean(match.values()) > max(statistics.mean(each.values()) for each in (aware, fused)),
        ),
        Said(f"but not on {labels(beaten)}, where Memory-Aware does", bool(beaten)),
        f"Memory-Aware as published {span(aware.values(), 'x')} (paper {exact(gain)} x): "
        f"{became(aware.values(), least=gain)}",
        Said(
            f"its sums alone are slower on {labels(LARGE)} (figure 11)",
            [name for name in sums if sums[name] < 1] == list(LARGE),
        ),
        f"Fused-Map {span(fused.values(), 'x')}",
    ]


@row(
    "FastGL", "figures 9, 11, 14", "fastgl-fig9", "fastgl-fig11", "fastgl-fig14",
    given=["(paper two GPUs)", "caches of table 1's sizes", "as in figure 12", "Figure 9 on the same graphs"],
)  # fmt: skip
def epochs(fig9: Record, fig11: Record, fig14: Record) -> Phrases:
    return [
        ran(fig9, fig11, fig14),
        *compute(fig11),
        *over_systems(fig9),
        *scaling(fig14),
    ]


def compute(fig11: Record) -> Phrases:
    sums, stage = (by_graph(fig11, what, system="fastgl") for what in ("aggregate_speedup", "speedup"))
    seeds = by_graph(fig11, "batch_size", system="fastgl")
    large, small = [sums[name] for name in LARGE], [name for name in sums if name not in LARGE]
    prepared = values(fig11, "preprocess_percent", system="gnnadvisor-style")
    least, most, share = stated(fig11, "# x to # x.*up to # %")
    return [
        f"Figure 11, {counted(len(sums))} graphs ({smaller(sums)})",
        f"by the kernel as published {span(large, 'x')} of DGL's on {labels(LARGE)} "
        f"(paper {ranges(least, most)} x): {became(large, least=least)}",
        Said(
            f"{series(sums[name] for name in small)} x on the small mini-batches of {labels(small)} "
            f"({series((seeds[name] for name in small), lambda count: thousands(int(count)))} seeds)",
            all(sums[name] > least for name in small),
        ),
        Said(
            f"the whole stage {span(stage.values(), 'x')}, launched from Python on both sides",
            {*values(fig11, "executor", system=("dgl", "fastgl"))} == {"serial"},
        ),
        f"preparing is {span(prepared, '%', whole)} of the sums in GNNAdvisor's style (paper up to {exact(share)} %): "
        f"{became(prepared, best=share, neutral=0)}",
    ]


def over_systems(fig9: Record) -> Phrases:
    ends = {each["system"]: (each["slowest"], each["fastest"]) for each in rows(fig9["paper"])}
    graphs = graphs_of(rows(fig9))
    rest = [name for name in graphs if name not in (REDDIT, PRODUCTS)]

    def over(system: str, some: Sequence[str] = graphs) -> list[float]:
        return values(fig9, "fastgl_over_it", system=system, graph=tuple(some))

    cached, less, gnnlab = over("dgl", (REDDIT, PRODUCTS)), over("dgl", rest), over("gnnlab")
    pyg, style = over("pyg-cpu"), over("gnnadvisor-style")
    held = values(fig9, "cache_percent", system="fastgl", graph=tuple(rest))
    least = ends["dgl"][0]
    return [
        f"over DGL's configuration {span(cached, 'x')} on {labels((REDDIT, PRODUCTS))} "
        f"(paper {ranges(*ends['dgl'])} x): "
        f"{became(cached, least=least)}, {span(less, 'x')} on {labels(rest)}: {became(less, least=least)}",
        Said(f"caches hold {span(held, '%')} of the rows there", max(held) < 20),
        Said(
            f"on {labels((REDDIT, PRODUCTS))} FastGL's hold every row, and Match-Reorder has nothing to load",
            {*values(fig9, "cache_percent", system="fastgl", graph=(REDDIT, PRODUCTS))} == {100.0},
        ),
        f"over GNNLab's {span(gnnlab, 'x')} (paper {ranges(*ends['gnnlab'])} x): "
        f"{became(gnnlab, least=ends['gnnlab'][0])}, "
        f"reversed in {sum(each < 1 for each in gnnlab)} of {len(gnnlab)} cases",
        Said(
            f"over PyG's {span(pyg, 'x')}, over GNNAdvisor's style {span(style, 'x')} "
            f"(paper {ranges(*ends['pyg-cpu'], *ends['gnnadvisor'])} x): smaller",
            all(
                min(found) < low and max(found) < high
                for found, (low, high) in ((pyg, ends["pyg-cpu"]), (style, ends["gnnadvisor"]))
            ),
        ),
    ]


def scaling(fig14: Record) -> Phrases:
    swept = [values(fig14, "speedup", part=part, graph=PRODUCTS, system="fastgl") for part in "bcd"]
    mag = values(fig14, "speedup", graph=MAG, system="fastgl")
    paper = stated(fig14, "# x to # x.* # x to # x.* # x to # x")
    gnnlab, fastgl = (
        {
            (each["batch_size"], each["num_features"], *each["fanouts"]): each["step_ms"]
            for each in rows(fig14, graph=PRODUCTS, system=system, cache_percent=100.0)
        }
        for system in ("gnnlab", "fastgl")
    )
    over = [gnnlab[setting] / fastgl[setting] for setting in gnnlab]
    by_seeds = {
        each["batch_size"]: each["speedup"] for each in rows(fig14, part="b", graph=PRODUCTS, system="fastgl")
    }
    return [
        f"Figure 14, {labels(graphs_of(rows(fig14)))} in full size",
        Said(
            f"{span(swept[0], 'x')} by batch size, {span(swept[1], 'x')} by features, "
            f"{span(swept[2], 'x')} by depth on {labels([PRODUCTS])}",
            min(map(min, swept)) > 1,
        ),
        Said(
            f"{short(by_seeds[12000])} x with 12 000 seeds for {short(by_seeds[6000])} with 6 000",
            abs(by_seeds[12000] / by_seeds[6000] - 1) < 0.05,
        ),
        Said(
            f"{span(mag, 'x')} on {labels([MAG])}, which the paper has not: less",
            min(mag) > 1 and max(mag) < min(map(min, swept)),
        ),
        Said(
            f"over GNNLab's, the fastest baseline, where both caches hold every row, {span(over, 'x')}, below 1 in "
            f"{sum(each < 1 for each in over)} of {len(over)} cases (paper, over all baselines, {ranges(*paper)} x): "
            "reversed, GNNLab sums by cuSPARSE",
            statistics.median(over) < 1 and len(over) == len({*gnnlab, *fastgl}),
        ),
    ]


@row("FastGL", "figure 14a", "fastgl-fig14a", given=["(paper 1 to 8)", "(paper, 8 GPUs:"])
def gpus(fig14a: Record) -> Phrases:
    most = max(values(fig14a, "gpus"))
    gained = {each["system"]: each["over_one"] for each in rows(fig14a, gpus=most)}
    paper = {each["system"]: each["over_one"] for each in rows(fig14a["paper"])}

    def ahead(over_one: Mapping[str, float]) -> float:
        return over_one["fastgl"] / over_one["dgl"]

    return [
        Said("without GNNLab's curve", "gnnlab" not in gained),
        f"{labels(graphs_of(rows(fig14a)))} in full size, 1 and {cards(fig14a, int(most))}",
        f"FastGL {short(gained['fastgl'])} x, DGL's configuration {short(gained['dgl'])} x",
        f"{short(gained['lab'])} x of one GPU",
        f"{paper['fastgl']:.1f} and {paper['dgl']:.1f} x): FastGL's gain is {short(ahead(gained))} x DGL's",
        f"(paper {short(ahead(paper))} x): {became([ahead(gained)], least=ahead(paper))}",
    ]


@row("FastGL", "figure 16", "fastgl-fig16", given=["notebook 08"])
def loss(fig16: Record) -> Phrases:
    found = {
        (each["graph"], each["model"], each["system"]): each for each in over_noise(rows(fig16), "final_loss")
    }
    settings, models = fig16["settings"], {each["model"].upper() for each in rows(fig16)}

    def farthest(system: str, *graphs: str) -> list[float]:
        return [
            each["farthest"] for (graph, _, of), each in found.items() if of == system and graph in graphs
        ]

    graphs = graphs_of(rows(fig16))
    (other,) = (graph for graph in graphs if graph != REDDIT)
    near = farthest("fastgl", REDDIT)
    reached, (original,) = (
        values(fig16, "final_accuracy", graph=REDDIT),
        {*values(fig16, "original", graph=REDDIT)},
    )
    return [
        Said(
            f"partly, a twin whose labels are learnt less far than the original's: in full on {cards(fig16)}",
            in_full(fig16) and max(reached) < original - AS_HARD,
        ),
        Said(
            f"whose twin reaches an accuracy of {percent(reached)} (original {100 * original:.1f} %, GraphSAGE)",
            max(reached) < original,
        ),
        f"{counted(settings['epochs'])} epochs of {listed(sorted(models))} on {labels(graphs)}, "
        f"{counted(len(settings['seeds']))} seeds",
        Said(
            f"the farthest final loss lies {series(near)} of what DGL's seeds differ by, or of 0.005, from "
            "DGL's mean: reproduced",
            max(near) <= FAR,
        ),
        *strayed(fig16, other),
        f"ours {span(farthest('lab', *graphs), 'of it')}",
    ]


def strayed(fig16: Record, graph: str) -> Phrases:
    """Runs of FastGL that end farther from DGL's than seeds do, and what ours of the same seed do."""
    told: list[Said | str] = []
    for each in over_noise(rows(fig16, graph=graph), "final_loss"):
        model = each["model"]
        if each["system"] != "fastgl":
            continue
        if each["farthest"] <= FAR:
            told.append(f"{model.upper()} {short(each['farthest'])} of it")
            continue
        middle = statistics.fmean(values(fig16, "final_loss", graph=graph, model=model, system="dgl"))
        run = max(
            rows(fig16, graph=graph, model=model, system="fastgl"),
            key=lambda run: abs(float(run["final_loss"]) - middle),
        )
        dgl, lab = (
            rows(fig16, graph=graph, model=model, system=name, seed=run["seed"])[0] for name in ("dgl", "lab")
        )
        level = run["accuracy"][3:]
        stuck = next(i for i, accuracy in enumerate(lab["accuracy"]) if accuracy > max(level) + 0.03)
        told += [
            f"{model.upper()} {short(each['farthest'])} of it: missed, one run of {len(rows(fig16, system='fastgl'))}, "
            f"of seed {run['seed']}, ends at a loss of {run['final_loss']:.3f} for DGL's {dgl['final_loss']:.3f} and "
            f"an accuracy of {100 * run['final_accuracy']:.1f} % for {100 * dgl['final_accuracy']:.1f}",
            Said(
                f"its accuracy stays at {span([100 * least for least in level], '%', whole)} from the fourth epoch on, "
                f"which `lab`'s with this seed leaves in the {ORDINALS[stuck]}",
                max(level) - min(level) < 0.02 and stuck > 3,
            ),
        ]
    return told


ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


@row("FastGL", "tables 5, 6", "fastgl-table6")
def graphs(table6: Record) -> Phrases:
    fields = ("num_nodes", "num_edges", "num_features", "num_classes")
    pairs = [
        (ours, theirs, field)
        for ours, theirs in zip(rows(table6), rows(table6["paper"]), strict=True)
        for field in fields
    ]
    apart = ("products-like", "num_features")
    off = [abs(ours[f] / theirs[f] - 1) for ours, theirs, f in pairs if (ours["graph"], f) != apart]
    ((narrow, wide),) = [(ours[f], theirs[f]) for ours, theirs, f in pairs if (ours["graph"], f) == apart]
    return [
        Said("done: all configurations", full_size(table6, 5)),
        "the five graphs' vertices, edges, features and classes are within "
        f"{whole(100 * max(off))} % of what the paper has",
        f"Products' features: {narrow} in the data set, {wide} in the suites",
    ]
