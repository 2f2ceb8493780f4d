"""The passages of the notebooks that cite records: each entry works out what its cell has to say."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from gnnsample_lab.bench.measured import most, on_card, over_sharing
from gnnsample_lab.bench.suite import PUBLISHED_QUEUE
from tests.notebooks.recorded import (
    Record,
    Said,
    cards,
    change,
    counted,
    graphs_of,
    listed,
    median,
    names,
    of_card,
    passage,
    percent,
    rows,
    short,
    span,
    tenths,
    thousands,
    whole,
)

Phrases = Sequence[Said | str]


@passage("00", "why", given=["*modelled as NVIDIA H200*"])
def labels() -> Phrases:
    return [f"*measured on {of_card('H200')['name']}*"]


@passage("01", "why", given=["two thousand tasks", "16 blocks", "256 tasks"])
def room_of_a_gpu() -> Phrases:
    processors = of_card("H200")["num_sms"]
    return [
        f"an H200 has {processors} multiprocessors",
        Said("some two thousand tasks at once", 1900 <= 16 * processors < 2300),
        Said("fills an eighth of that", round(16 * processors / 256) == 8),
    ]


@passage("01", "wins", "pgsampler-fig9", given=["Notebook 02", "for 32 vertices", "ten picks"])
def hop_by_hop(fig9: Record) -> Phrases:
    every = rows(fig9)
    same = [row["speedup"]["best same pick"] for row in every]
    return [
        f"Recorded on {cards(fig9)}",
        f"{len(every)} settings on {counted(len(graphs_of(every)))} graphs",
        Said(
            "`captured` was the fastest in every setting",
            all(r["best_strategy"] == "captured" for r in every),
        ),
        f"{span(same)} as fast as `block-bsp` ({median(same)})",
        Said("again always `captured`", all(r["best_same_pick_strategy"] == "captured" for r in every)),
        f"With Floyd's rule on both sides it is {span(row['speedup']['best same pick, floyd'] for row in every)}",
        f"on our side alone it is {span(row['speedup']['best'] for row in every)}",
    ]


@passage(
    "02",
    "wins",
    "pgsampler-fig8",
    "pgsampler-fig9",
    "pgsampler-fig10",
    given=["128 threads", "Four were shown", "by the dozen"],
)
def fusion(fig8: Record, fig9: Record, fig10: Record) -> Phrases:
    queue, teams = (
        [[row["speedup"][name] for row in rows(each)] for each in (fig10, fig9, fig8)]
        for name in (PUBLISHED_QUEUE, "persistent")
    )
    tile = [row["speedup"]["persistent-tile"] for row in rows(fig8)]
    means = fig8["averages"]
    over = [mean["published_over_dgl_threads"] for mean in means]
    paper, below = fig8["paper"]["average"].values(), sum(value < 1 for value in over)
    wins = {
        hops: [
            graph
            for graph in graphs_of(rows(fig8))
            if statistics.median(r["speedup"]["persistent"] for r in rows(fig8, graph=graph, hops=hops)) > 1
        ]
        for hops in (2, 3)
    }
    return [
        Said(f"Recorded on {cards(fig8)}", cards(fig8) == cards(fig9) == cards(fig10)),
        f"{span(queue[0])} as fast in {len(queue[0])} settings",
        Said("faster in all of them, as the paper says", min(queue[0]) > 1),
        f"ours {span(teams[0])}: nobody is assigned",
        f"{span(queue[1])} as fast as by `block-bsp`",
        f"the paper: up to {fig9['paper']['best']} times",
        f"slower in {sum(value < 1 for value in queue[1])} of {len(queue[1])} settings",
        f"by ours {span(teams[1])}",
        Said("and slower in none", min(teams[1]) > 1),
        f"as published {span(queue[2])}, {median(queue[2])}",
        f"the paper has {span(paper)} on average",
        f"here the averages of its {counted(len(over))} graphs are {span(over)}, below 1 on {counted(below)}",
        Said("That claim is reversed", statistics.median(over) < 1),
        f"ours {span(teams[2])}, {median(teams[2])}",
        f"averages of {span(mean['over_dgl_threads'] for mean in means)} over DGL's blocks",
        f"of {span(mean['over_swept'] for mean in means)} over the best ones",
        f"With two hops ours is behind on every graph but {names(wins[2])}",
        f"with three it is ahead on {names(wins[3])}",
        f"behind in {sum(value < 1 for value in tile)} of {len(tile)} settings ({span(tile)})",
    ]


@passage("03", "index-text", given=["6 MB", "1.09 to 6 times", "(section 8.2", "Between the two"])
def caches() -> Phrases:
    return [Said("an H200 has ten times as much", round(of_card("H200")["l2_bytes"] / 6e6) == 10)]


@passage(
    "03", "wins", "nextdoor-fig7", "nextdoor-fig9", given=["1.09 to 6 times as fast", "two formulations"]
)
def transits(fig7: Record, fig9: Record) -> Phrases:
    walks = rows(fig7, kind="walk")
    level = [row["over_sample"] for row in walks]
    published = [1 / row["published_over_sample"] for row in walks]
    hops = rows(fig7, app=("k-hop", "k-hop 25, 16", "k-hop 32, 32"))
    ranged = [row for row in hops if any(step["index"] == "ranges" for step in row["schedule"])]
    by = {
        app: [f"{short(row['over_sample'])} times on `{row['graph']}`" for row in ranged if row["app"] == app]
        for app in ("k-hop 32, 32", "k-hop 25, 16")
    }
    rest = [row["over_sample"] for row in hops if row not in ranged]
    vanilla = [row["ms"]["transit-vanilla"] / row["ms"]["sample"] for row in hops]
    frameworks = [row[over] for row in rows(fig9) for over in ("over_frontier", "over_message")]
    lists = {graph: 4 * about["num_edges"] for graph, about in fig7["graphs"].items()}
    return [
        *dict.fromkeys(f"Recorded on {cards(each)}" for each in (fig7, fig9)),
        f"{span(level)}, {median(level)}",
        Said("level on the whole", 0.97 <= statistics.median(level) <= 1.03),
        f"{span(published)} as long as by `sample`",
        Said("The claim is reversed here", min(published) > 1),
        f"{' and '.join(by['k-hop 32, 32'])} at fanouts (32, 32)",
        f"{' and '.join(by['k-hop 25, 16'])} at (25, 16)",
        Said(
            "Their lists are several times as large as the L2",
            min(lists[graph] for graph in graphs_of(ranged)) > 3 * fig7["environment"]["gpu"]["l2_bytes"],
        ),
        Said("at (25, 10)", all(row["app"] != "k-hop" for row in ranged)),
        Said("Grouping by *ranges* wins", min(row["over_sample"] for row in ranged) > 1),
        f"{span(rest)} the speed of `sample`",
        f"`transit-vanilla` takes {span(vanilla)} as long as `sample`",
        f"{span(frameworks)} as long as `transit`",
    ]


@passage("04", "wins", "nextdoor-floor")
def ways_to_draw(floor: Record) -> Phrases:
    by_edges = sorted(floor["graphs"], key=lambda graph: int(floor["graphs"][graph]["num_edges"]))
    over = {graph: [row["over_native"] for row in rows(floor, graph=graph)] for graph in by_edges}
    small, (middle,), large = by_edges[:2], by_edges[2:-2], by_edges[-2:]

    def as_uniform(app: str) -> list[float]:
        return [
            rows(floor, graph=graph, app=app)[0]["ms"]
            / rows(floor, graph=graph, app="DeepWalk, uniform")[0]["ms"]
            for graph in by_edges
        ]

    weighted = as_uniform("DeepWalk")
    return [
        f"Recorded on {cards(floor)}",
        f"{span(over[large[0]] + over[large[1]])} as long as `next` in CUDA on {names(large[::-1])}",
        f"{span(over[middle])} on {names([middle])}",
        f"{span(over[small[0]] + over[small[1]])} on {names(small[::-1])}, the small graphs",
        f"by search, takes {span(weighted)} as long as a uniform one",
        f"by rejection, {span(as_uniform('node2vec'))}",
        Said(
            "On every graph the way to draw counts for more than the language",
            all(ratio > max(over[graph]) for graph, ratio in zip(by_edges, weighted, strict=True)),
        ),
    ]


@passage("05", "why", "fastgl-table8")
def what_a_map_takes(table8: Record) -> Phrases:
    fanouts = ", ".join(map(str, table8["settings"]["fanouts"]))
    return [f"{thousands(table8['settings']['batch_size'])} seeds and fanouts {fanouts}"]


@passage("05", "wins", "fastgl-table8", given=["three steps"])
def maps(table8: Record) -> Phrases:
    speed = {
        name: [row["speedup"] for row in rows(table8, id_map=name)]
        for name in {r["id_map"] for r in rows(table8)}
    }
    fused = rows(table8, id_map="fused-map", form="published")
    paper = [row["speedup"] for row in table8["paper"]["rows"] if row["id_map"] == "fused-map"]
    slower = [row["graph"] for row in fused if row["speedup"] < 1]
    fastest: dict[str, list[str]] = {"direct-address": [], "level-bitmap": []}
    for graph in graphs_of(rows(table8)):
        here = {row["id_map"]: row["map_us"] for row in rows(table8, graph=graph)}
        for name, graphs in fastest.items():
            graphs += [graph] if here[name] <= 1.01 * min(here.values()) else []
    large = {row["id_map"]: row["gpu_us"] for row in rows(table8, graph="papers100M-like")}
    return [
        f"Recorded on {cards(table8)}",
        f"{thousands(table8['settings']['batch_size'])} seeds",
        f"`fused-map` as published is {span(speed['fused-map'])} as fast",
        f"slower on {names(slower)}",
        f"the paper says {span(paper, form=tenths)}",
        Said("that is missed", statistics.median(speed["fused-map"]) < min(paper)),
        Said("takes less than a millisecond", max(row["map_us"] for row in fused) < 1000),
        f"on the GPU alone, {span(row['gpu_speedup'] for row in fused)}",
        f"`fused-map-block` {span(speed['fused-map-block'])}",
        f"`versioned-hash` {span(speed['versioned-hash'])}",
        f"`direct-address` {span(speed['direct-address'])}",
        f"fastest, or within 1 % of it, on {names(fastest['direct-address'])}",
        f"`level-bitmap` {span(speed['level-bitmap'])}",
        f"or within 1 %, on {names(fastest['level-bitmap'])}",
        f"`sort` {span(speed['sort'])}",
        f"which has {whole(table8['graphs']['papers100M-like']['num_nodes'] / 1e6)} million, its kernels take "
        f"{large['level-bitmap']:.0f} µs for the {large['direct-address']:.0f} of `direct-address`",
    ]


@passage("06", "shrunk-text", "extraction", given=["PCIe 5"])
def missing_rows(extraction: Record) -> Phrases:
    def rate(features: int, transfer: str) -> float:
        (row,) = rows(extraction, cache_percent=0.0, num_features=features, transfer=transfer)
        return float(row["miss_gbps"])

    copy = extraction["settings"]["pinned_copy_gbps"]
    staged = [row["miss_gbps"] for row in rows(extraction, cache_percent=0.0, transfer="staged")]
    slow = rate(128, "uva") / rate(128, "plain")

    def share(features: int) -> str:
        return f"{short(rate(features, 'uva'))} ({100 * rate(features, 'uva') / copy:.0f} %"

    return [
        f"Measured on {cards(extraction)}",
        f"reaches {short(copy)} GB/s",
        f"128 features | {share(128)} of the copy)",
        f"100 features: rows that do not fill whole lines of memory | {share(100)})",
        f"32 features: rows of one line | {share(32)})",
        f"which are copied, 32 to 1024 features | {span(staged, '|', whole)}",
        f"then a pageable copy, 128 features | {short(rate(128, 'plain'))}",
        f"slower than the first by a factor of {slow:.0f}",
        f"a hit rate of about {100 * (1 - 1 / slow):.0f} %",
    ]


@passage(
    "06",
    "wins",
    "gnnlab-fig10",
    given=["90 to 99 %", "1.5 times on average", "2.2 times", "10 %", "one epoch"],
)
def policies(fig10: Record) -> Phrases:
    ahead = rows(fig10, policy="presample")
    over = [row["over_degree"] for row in ahead]
    optimal = [row["of_optimal"] for row in ahead]

    def part(**wanted: object) -> str:
        return span(row["over_degree"] for row in rows(fig10, policy="presample", **wanted))

    below = graphs_of(row for row in ahead if row["over_degree"] < 1)
    pagerank = rows(fig10, policy="reverse-pagerank", graph="papers100M-like")
    return [
        f"reaches {percent(optimal)} of Optimal",
        Said("as the paper says", round(100 * min(optimal)) >= 90),
        f"{span(over)} the hit rate of Degree, {short(statistics.mean(over))} on average",
        Said("less than the paper's", statistics.mean(over) < 1.5 and max(over) < 2.2),
        f"{part(graph='papers100M-like')} on `papers100M-like`",
        f"{part(sampler='weighted')} with weights",
        f"*Reverse PageRank*, {span(row['over_degree'] for row in pagerank)}",
        Said(
            "is as good as a count there",
            all(
                abs(row["hit_percent"] / rows(fig10, policy="presample", graph=row["graph"], sampler=row["sampler"])[0]
                    ["hit_percent"] - 1) < 0.03
                for row in pagerank
            ),
        ),
        f"Below 1 it is on {names(below)} alone",
        f"down to {short(min(over))}",
        Said("picks are not weighted", all(r["sampler"] != "weighted" for r in ahead if r["over_degree"] < 1)),
    ]  # fmt: skip


@passage("07", "wins", "fastgl-fig10", given=["25 %", "*two-opt*"])
def matching(fig10: Record) -> Phrases:
    def one(graph: str, system: str) -> dict[str, float]:
        (row,) = rows(fig10, part="b", graph=graph, system=system)
        return row

    plain, match, tour = (one("products-like", name) for name in ("dgl", "match", "match + reorder"))
    every = graphs_of(rows(fig10, part="b"))
    gains = [one(graph, "match + reorder")["reorder_gain"] for graph in every]
    moved = [
        one(graph, "match + reorder")["mb_per_batch"] / one(graph, "match")["mb_per_batch"] - 1
        for graph in every
    ]
    times = [one(graph, "match")["speedup"] for graph in every]
    losing = sum(gain < 0 for gain in gains)
    return [
        f"Recorded on {cards(fig10)}",
        f"batches of {thousands(fig10['settings']['batch_size'])} seeds",
        f"from {plain['mb_per_batch']:.0f} to {match['mb_per_batch']:.0f} MB",
        f"copying is {short(match['speedup'])} times as fast",
        f"On the {counted(len(every))} graphs it is {span(times)}",
        Said("Match wins", min(times) > 1),
        f"from {match['mb_per_batch']:.1f} to {tour['mb_per_batch']:.1f} MB",
        f"the bytes by {change(moved)}",
        f"their time, the tour's included, by {change(-gain for gain in gains)}",
        f"longer on {counted(losing)} of {counted(len(every))}",
        f"that claim is {'reversed' if statistics.median(gains) < 0 else 'missed'} here",
    ]


@passage("08", "wins", "aggregation", given=["not ten times"])
def sums(aggregation: Record) -> Phrases:
    block = {"graph": "products-like", "layer": 0, "direction": "forward"}
    (row,) = rows(aggregation, batch_size=8000, num_features=64, **block)
    us, large = row["us"], rows(aggregation, batch_size=8000, **block)
    forward, backward = (
        [each["over_cusparse"] for each in rows(aggregation, direction=way)]
        for way in ("forward", "backward")
    )
    aware = [each["aware_over_naive"] for each in rows(aggregation, direction="forward")]
    slower = [each for each in rows(aggregation, direction="forward") if each["over_cusparse"] < 1]
    return [
        f"Recorded on {cards(aggregation)}",
        f"input block of {thousands(row['batch_size'])} seeds, {row['num_features']} features",
        f"naive {us['naive']:.0f} µs, memory-aware {us['memory-aware']:.0f}, grouped {us['grouped']:.0f}, "
        f"gnnadvisor-style {us['gnnadvisor-style']:.0f}, library {us['library']:.0f}, ours {row['ours_us']:.0f}",
        f"memory-aware is {short(row['aware_over_naive'])} times as fast as naive",
        f"several tiles and takes {us['memory-aware-staged']:.0f} µs",
        f"{span(aware)} over all blocks and widths, forward",
        Said("`register-tile` wins", min(each["over_cusparse"] for each in large) > 1),
        f"{span(each['over_cusparse'] for each in large)} as fast as the best of cuSPARSE",
        f"{percent(each['share'] for each in large)} of the bound",
        f"Over all blocks and widths it is {span(forward)} forward and {span(backward)} backward",
        f"slower in {len(slower)} of {len(forward)} cases",
        Said("all of blocks of fewer than 100 000 edges", all(each["edges"] < 100_000 for each in slower)),
        Said("backward in none", min(backward) > 1),
    ]


@passage(
    "09", "wins", "gnnlab-designs", "gnnlab-budget", "pipelines", "dsp-utilisation",
    given=["on eight GPUs", "0.03 of its size", "over 1.5 times with eight GPUs"],
)  # fmt: skip
def designs(gnnlab: Record, budget: Record, pipelines: Record, dsp: Record) -> Phrases:
    pairs = [row for row in rows(gnnlab, part="graphs") if row.get("ran_factored_s")]
    lost = [row["ran_timeshared_s"] / row["ran_factored_s"] for row in pairs]
    launched, captured = (on_card(budget, "overlapped", step) for step in ("plain", "captured"))
    won, replayed = (
        [row["x_sharing"] for row in found if "x_sharing" in row] for found in (launched, captured)
    )
    factored, shared = (
        [row["cached_percent"] / 100 for row in launched if row["executor"] == executor]
        for executor in ("factored", "serial")
    )
    smaller = {step: on_card(budget, "serial", step) for step in ("plain", "captured")}
    less = {
        step: [row["x_sharing"] for row in found if "x_sharing" in row] for step, found in smaller.items()
    }

    def held(executor: str) -> list[float]:
        """Shares of the rows on the smaller card."""
        found = [row for each in smaller.values() for row in each if row["executor"] == executor]
        return [row["cached_percent"] / 100 for row in found]

    (peer,) = rows(pipelines, part="handover", way="peer")
    came = "wins" if min(replayed) > 1 else "loses, too" if max(replayed) < 1 else "is level"
    threads = rows(pipelines, part="overlap", executor="overlapped", cached_percent=100.0, step="plain")
    reached = [row["share_percent"] / 100 for row in threads]
    replays = rows(pipelines, part="overlap", executor="overlapped", cached_percent=100.0, step="captured")
    gained = [row["speedup"] for row in rows(dsp, system="dsp")]
    larger = (
        pipelines["graphs"]["products-like"]["num_edges"] / dsp["graphs"]["products-like@0.25"]["num_edges"]
    )
    several = int(most(pipelines, "gpus"))
    full = [
        row["over_dsp"]
        for row in rows(pipelines, part="systems", system="dsp-seq", step="plain", gpus=several)
    ]
    pipelined = [
        f"{short(row['speedup'])} times on {counted(row['gpus'])}" for row in rows(dsp, system="dsp")
    ]
    published = over_sharing(budget).text.partition(" x")[0]
    return [
        f"GNNLab reports {published} times over time sharing on eight GPUs",
        f"Recorded on {cards(gnnlab, int(most(gnnlab, 'gpus')))} with `papers100M-like`",
        Said(f"it **lost**, {span(lost)}", max(lost) < 1),
        f"extraction is {percent(row['extract_over_train'] for row in pairs)} of training",
        f"Recorded on {cards(budget, int(most(budget, 'gpus')))} with `products-like`",
        f"it {'won' if min(won) > 1 else '**lost** as well' if max(won) < 1 else 'was level'}, {span(won)}",
        Said("there is no miss to save", min(shared) == 1, may_go=True),
        f"replayed as CUDA graphs it {came}, {span(replayed)}",
        f"on which time sharing caches {percent(held('serial'))} of the rows",
        f"trainers up to {percent([max(held('factored'))])}",
        f"it is {span(less['plain'])} with launched steps and {span(less['captured'], '').strip()} with replayed ones",
        Said(
            f"with {whole(peer['cached_percent'])} % of the rows cached, makes an epoch "
            f"{short(peer['x_first'])} times as fast",
            peer["x_first"] > 1.1,
            may_go=True,
        ),
        f"{percent(shared)} of the rows beside the topology and {percent(factored)} without it",
        f"on {cards(pipelines)} with every row cached",
        Said(f"reached {percent(reached)} of that ceiling", max(reached) <= 1),
        f"{span(row['gained'] for row in threads)} as fast as one stage after the other",
        f"which are one launch, it was {span(row['gained'] for row in replays)} as fast",
        f"recorded on {cards(dsp, int(most(dsp, 'gpus')))}",
        f"{listed(pipelined)} as fast",
        Said(
            f"on {cards(pipelines, several)}, with a graph {counted(round(larger))} times as large, {span(full)}",
            larger > 1,
        ),
        Said("little was gained on so few", max(*gained, *full) < 1.1),
    ]  # fmt: skip


@passage("10", "wins", "ladder", "dsp-volume")
def ranks(ladder: Record, volume: Record) -> Phrases:
    worlds = sorted({row["world"] for row in rows(ladder)} - {1})
    many = worlds[-1]

    def fastest(found: Sequence[dict[str, float]]) -> float:
        return min(min(row["us"], row.get("many_us") or row["us"]) for row in found if row.get("us"))

    def ahead(batch_size: int) -> float:
        """``direct`` over the fastest method with collectives, where it gains least: the same graph, parts, GPUs and
        rule on both sides."""
        ratios = []
        same = ("graph", "partition", "world", "replace")
        ours = rows(ladder, method="direct", batch_size=batch_size)
        for at in {tuple(row[key] for key in same) for row in ours if row["world"] > 1 and row.get("us")}:
            where = {**dict(zip(same, at, strict=True)), "batch_size": batch_size}
            collective = [row for row in rows(ladder, **where) if row["method"].startswith(("csp", "pull"))]
            ratios.append(fastest(collective) / fastest(rows(ladder, method="direct", **where)))
        return min(ratios)

    sizes = sorted({row["batch_size"] for row in rows(ladder, method="direct", world=many) if row.get("us")})
    copies = {
        world: [r["x_best"] for r in rows(ladder, method="direct-cached", world=world, saved_percent=80.0)]
        for world in worlds
    }
    ratios = [row["pull_over_csp"] for row in rows(volume) if row["pull_over_csp"]]
    return [
        Said("By bytes: `csp`", min(ratios) > 1),
        f"recorded on {listed(map(counted, worlds))} {cards(ladder, many).partition(' ')[2]}",
        Said("`direct` is ahead of the fastest collective method", all(ahead(size) > 1 for size in sizes)),
        *(f"at least {short(ahead(size))} times at {thousands(size)} seeds" for size in sizes),
        "save four fifths of the remote reads",
        *(f"at least {short(min(found))} times on {counted(world)}" for world, found in copies.items()),
        f"`pull` moved {span(ratios, 'times', whole)} the bytes of `csp`",
    ]


@passage("glossary.md", "")
def the_card() -> Phrases:
    card = of_card("H200")
    return [f"An H200 has {card['num_sms']}.", f"on an H200 {card['memory_bytes'] / 2**30:.0f} GiB"]
