"""What the rows of DSP say of their records."""

from __future__ import annotations

from collections.abc import Sequence

from gnnsample_lab.bench.measured import most, scaled, untuned
from gnnsample_lab.bench.suites.dsp.papers import TABLE6
from gnnsample_lab.distributed.sampling.traffic import HEADER_BYTES, REQUEST_BYTES, SECTOR_BYTES
from tests.notebooks.recorded import (
    Record,
    Row,
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
from tests.readme.rows import Phrases, all_cards, row
from tests.readme.words import became, in_full, labels, line, series, sizes, values

NEAR, FAR = "products-like", "papers100M-like@0.1"
"""Graphs of table 6."""


def two(value: float) -> str:
    """Two digits, as the rows of DSP have them."""
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


@row(
    "DSP", "figures 6 and 12", "dsp-utilisation", "dsp-busy", "dsp-accuracy", "pipelines",
    given=["paper over 1.5 x with 8", "paper: more, most with 8", "papers100M x 0.02"],
)  # fmt: skip
def pipeline(busy: Record, kernels: Record, accuracy: Record, systems: Record) -> Phrases:
    gained = values(busy, "speedup", system="dsp")
    idle, piped = (values(busy, "busy_percent", system=name) for name in ("dsp-seq", "dsp"))
    modelled = {each["gpus"] for each in busy["rows"]} - {*values(busy, "gpus")}
    fewer = ", ".join(map(str, sorted({*values(busy, "gpus")})[:-1]))
    alone, overlapped = (
        [
            abs(each["error_percent"])
            for each in busy["rows"]
            if each.get("stages") == fed and each["error_percent"]
        ]
        for fed in ("stages alone", "stages as they overlapped")
    )
    full = values(
        systems, "over_dsp", part="systems", system="dsp-seq", step="plain", gpus=most(systems, "gpus")
    )
    differs = accuracy["settings"]["largest_difference_of_a_loss"]
    # Of the most GPUs that ran; older records have no others, later ones one device with the seeds of more.
    converged = [
        each for each in accuracy["converged"] if each.get("seeds_of") in (None, most(accuracy, "gpus"))
    ]
    theirs = {
        name: [each["seconds"] for each in converged if each["system"] == name]
        for name in ("dsp", "quiver", "dgl-uva")
    }
    quicker = [
        other / own for name in ("quiver", "dgl-uva") for other, own in zip(theirs[name], theirs["dsp"])
    ]
    far = next(name for name in accuracy["graphs"] if scaled(name)[0] == "papers100M-like")
    (best,) = {each["best"] for each in converged if each["graph"] == far}
    (original,) = {*values(accuracy, "original", graph=far)}
    without, ran = (values(kernels, "gpu_busy_percent", system=name) for name in ("dsp-seq", "dsp"))
    return [
        f"Figure 6: some worker of a GPU has work {span(idle, '%', tenths)} of the time without the pipeline, "
        f"{span(piped, '%', tenths)} with it",
        f"a kernel runs on {all_cards(kernels)}, {sizes(kernels['graphs'])}, {span(without, '%', whole)} of it without "
        f"and {span(ran, '%', whole)} with it, while profiled: {became(*line(kernels, 'share of time'))}",
        f"Figure 12, {sizes(busy['graphs'])}",
        Said(
            f"in full, {fewer} and {all_cards(busy)}, {listed(map(str, sorted(modelled)))} modelled",
            in_full(busy),
        ),
        f"{series(gained)} x",
        Said(
            f"{became(*line(busy, 'the queue pipeline'))}, three stages that launch from Python",
            max(gained) < 1.05,
        ),
        f"in full size, {all_cards(systems)}, {series(full)} x: {became(full, least=1.5)}",
        f"the schedule model is {series(alone, whole)} % too fast",
        f"as they overlapped it is within {short(max(overlapped))} %",
        f"figure 9, {all_cards(accuracy)}",
        Said("the same losses and accuracy, by the same draws: equal by construction", differs < 1e-3),
        f"DSP converges in {series(theirs['dsp'])} s, Quiver in {series(theirs['quiver'])} s, DGL-UVA in "
        f"{series(theirs['dgl-uva'])} s (paper 183, 629 and 698 s): {became(quicker)}",
        f"papers100M's twin at an accuracy of {percent([best])} (published {percent([original])})",
    ]


@row("DSP", "collective sampling", "ladder", given=["on two and four GPUs", "on 1, 2 and 4 GPUs"])
def methods(ladder: Record) -> Phrases:
    found = {name for name in values(ladder, "method") if "," not in name}
    return [f"{counted(len(found))} methods"]


@row(
    "DSP", "layer-wise sampling", "dsp-sampling",
    given=["100 steps", "a step waits for the host once", "checked on two GPUs"],
)  # fmt: skip
def layers_and_walks(sampling: Record) -> Phrases:
    def ms(part: str, system: str) -> str:
        found = values(sampling, "us", part=part, system=system, gpus=most(sampling, "gpus"))
        return span((us / 1e3 for us in found), "ms", two)

    (seeds,) = {*values(sampling, "batch_size", part="walks", system="dsp")}
    return [
        f"{thousands(seeds)} roots a rank, {all_cards(sampling)}",
        f"walks take {ms('walks', 'dsp')}, by `direct` {ms('walks', 'direct')}",
        f"layers {ms('table 7', 'dsp')}, by `direct` {ms('table 7', 'direct')}",
    ]


@row("DSP", "UVA's read amplification", "dsp-volume", given=["for an id of 4", "notebook 10"])
def amplified(volume: Record) -> Phrases:
    over = [
        each["over_ideal"]["uva"]
        for each in rows(volume, draws="uniform", partition="random")
        if each["ranks"] > 1
    ]
    return [
        f"{REQUEST_BYTES} bytes on PCIe, {SECTOR_BYTES} and a header of {HEADER_BYTES}",
        f"counted for every method, {span(over, 'x', two)} of ideal by UVA",
    ]


@row(
    "DSP", "queue pipeline", "pipelines", "dsp-deadlock",
    given=["two loaders waited for each other for ever on two H100"],
)  # fmt: skip
def queues(pipelines: Record, deadlock: Record) -> Phrases:
    stopped = {each["order"]: each["passed"] for each in rows(deadlock)}
    (several,) = [each for each in rows(pipelines, part="workers") if each["way"] != "1"]
    return [
        Said("the deadlock without it is reproduced", not stopped["arrival"] and stopped["central"]),
        f"on {all_cards(pipelines)} {counted(int(several['way']))} of each were {short(several['x_first'])} x as fast",
    ]


@row("DSP", "figure 1", "dsp-volume", "dsp-pull", given=["at most 64 %, 4 GPUs"])
def volumes(volume: Record, pull: Record) -> Phrases:
    uniform, divided = (
        [each for each in rows(volume, draws="uniform", partition=how) if each["ranks"] > 1]
        for how in ("random", "metis")
    )
    weighted = rows(volume, draws="weighted")

    def of(found: Sequence[Row], method: str) -> str:
        return span((each["over_ideal"][method] for each in found), "x", two)

    caveat, twins = untuned(pull), [name for name in volume["graphs"] if name != "rmat"]
    eight = [each for each in uniform if each["ranks"] == 8]
    all_ranks = most(pull, "ranks")
    (biased,) = rows(pull, part="biased", system="pull", ranks=all_ranks)
    (barriers,) = rows(pull, part="stages", system="csp-async", ranks=all_ranks)
    times = values(pull, "x_time", part="fanout", system="pull")
    fanouts = values(pull, "fanout", part="fanout")
    (same,) = [round(at["bytes"]) for at in pull["crossings"]]
    return [
        sizes(twins),
        f"by random parts UVA moves {of(uniform, 'uva')} of ideal, CSP {of(uniform, 'csp')}, "
        f"pulled lists {of(uniform, 'pull')}",
        f"with weights CSP {of(weighted, 'csp')}",
        Said(
            "UVA the most of the two, as published: reproduced",
            all(each["over_ideal"]["uva"] > each["over_ideal"]["csp"] for each in eight),
        ),
        Said(
            "CSP below ideal on 2 ranks, a little above on 8",
            all(
                (each["over_ideal"]["csp"] < 1) == (each["ranks"] < 4)
                for each in uniform
                if each["ranks"] != 4
            ),
        ),
        f"{all_cards(pull)}: CSP takes {whole(biased['less_percent'])} % off pull's time, biased",
        f"by METIS ({labels(graphs_of(divided))}) {of(divided, 'csp')} (paper: below): "
        f"{became([1 / each['over_ideal']['csp'] for each in divided])}",
        Said(f"partly, no verdict on figure 11: {caveat}", bool(caveat), may_go=True),
        Said(
            f"partly, figure 11 on {labels(pull['graphs'])} alone: figure 1 in full, {sizes(twins)}",
            not caveat and in_full(volume, pull),
            may_go=True,
        ),
        Said(f"GPUs): {became(*line(pull))}", not caveat, may_go=True),
        f"pulling takes {biased['us'] / 1e3:.1f} ms for {whole(biased['mb'])} MB",
        f"without barriers csp takes {whole(100 * barriers['x_time'] - 100)} % longer",
        f"as many bytes at a fanout of {same}",
        f"of one hop with fanouts of {min(fanouts)} to {max(fanouts)} {span(times, 'x', two)} of csp's time",
    ]


@row("DSP", "table 1", "dsp-bandwidth", "dsp-threads", "dsp-memory")
def links(bandwidth: Record, threads: Record, memory: Record) -> Phrases:
    (nvlink,), (pcie,) = rows(bandwidth, link="nvlink", gpus=2), rows(bandwidth, link="pcie", gpus=1)
    every = threads["settings"]["threads_of_gpu"]
    enough = {each["memory"]: 0 for each in rows(threads)}
    for each in rows(threads):
        enough[each["memory"]] = max(enough[each["memory"]], each["enough"])
    divided = rows(memory, gpus=most(memory, "gpus"))
    best, bytes_say = (min(divided, key=lambda each: float(each[of])) for of in ("us", "modelled_us"))
    on_two, said_of_two = (
        whole(100 * min(rows(memory, gpus=2), key=lambda each: float(each[of]))["feature_share"])
        for of in ("us", "modelled_us")
    )
    return [
        Said(f"in full, {all_cards(bandwidth)}", in_full(bandwidth, threads, memory)),
        f"figure 10 on {all_cards(memory)}",
        Said(sizes(memory["graphs"]), list(memory["graphs"]) == list(threads["graphs"])),
        f"NVLink {whole(nvlink['least_of_a_gpu'])} GB/s a GPU against {whole(pcie['gbps'])} of PCIe",
        Said("reproduced; nine tenths", nvlink["least_of_a_gpu"] > 2 * pcie["gbps"]),
        f"nine tenths of host memory's speed need 1/{every // enough['host']} of the GPU's threads or fewer",
        f"of its own memory's 1/{every // enough['GPU']}",
        f"{whole(100 * best['feature_share'])} % of the budget for features is best",
        Said("as the bytes say", best["feature_share"] == bytes_say["feature_share"]),
        f"with {whole(best['spilled_percent'])} % of the lists in host memory",
        f"on two GPUs {on_two} %, where the bytes say {said_of_two} %",
        Said("the topology first): reversed", best["spilled_percent"] > 0),
    ]


@row(
    "DSP", "table 6", "dsp-sampling",
    given=["paper 300 x, 8 GPUs", "one read of PCIe", "three collectives"],
)  # fmt: skip
def systems(sampling: Record) -> Phrases:
    def over(*systems: str, graph: str | tuple[str, ...] = (NEAR, FAR)) -> list[float]:
        return values(sampling, "over_dsp", part="table 6", system=systems, graph=graph)

    ranks = values(sampling, "gpus", part="table 6", system="dgl-uva", graph=NEAR)

    def told(system: str) -> list[float]:
        seconds = {
            (each["system"], each["paper_gpus"]): each["epoch_s"] for each in TABLE6 if each["graph"] == NEAR
        }
        return [seconds[system, gpus] / seconds["dsp", gpus] for gpus in ranks]

    samplers = values(sampling, "samplers", part="table 6", system=("pyg-cpu", "dgl-cpu"))
    (fastgcn,), (direct,) = (
        rows(sampling, part="table 7", graph=NEAR, system=name, gpus=gpus)
        for name, gpus in (("fastgcn-cpu", 0), ("direct", most(sampling, "gpus")))
    )
    return [
        Said(f"in full, {all_cards(sampling)}", in_full(sampling)),
        sizes(sampling["graphs"]),
        f"PyG and DGL on the host's cores, {min(samplers)} to {max(samplers)} samplers, take "
        f"{span(over('pyg-cpu', 'dgl-cpu', graph=NEAR), 'x', two)} of DSP's time on Products: "
        f"{became(over('pyg-cpu', 'dgl-cpu', graph=NEAR))}",
        Said(
            f"there Quiver takes {series(over('quiver', graph=NEAR), two)} x on {listed(map(str, ranks))} GPUs "
            f"(paper {series(told('quiver'), two)} x) and DGL-UVA {series(over('dgl-uva', graph=NEAR), two)} x (paper "
            f"{series(told('dgl-uva'), two)} x): smaller on two and four, and the lead falls with GPUs where the "
            "paper's grows",
            all(
                [each < theirs for each, theirs in zip(over(name, graph=NEAR), told(name), strict=True)]
                == [False, True, True]
                and over(name, graph=NEAR) == sorted(over(name, graph=NEAR), reverse=True)
                and told(name)[0] < told(name)[-1]
                for name in ("quiver", "dgl-uva")
            ),
        ),
        f"{span(over('pyg-cpu', 'dgl-cpu', graph=FAR), 'x', two)}, {span(over('quiver', graph=FAR), 'x', two)} and "
        f"{span(over('dgl-uva', graph=FAR), 'x', two)} on papers100M",
        f"{became(over('quiver', 'dgl-uva', graph=FAR))} there",
        f"FastGCN {two(fastgcn['over_dsp'])} x",
        f"paper 300 x, 8 GPUs): {became([fastgcn['over_dsp']], best=300)}",
        f"{whole(fastgcn['us'] / direct['us'])} x by kernels that read lists where they lie",
    ]


@row(
    "DSP", "tables 4 and 5", "pipelines", given=["three threads launch from one interpreter", "on eight GPUs"]
)
def epochs(pipelines: Record) -> Phrases:
    def modelled(*systems: str) -> list[float]:
        return [
            each["over_dsp"]
            for each in pipelines["rows"]
            if each.get("part") == "systems, modelled"
            and each["step"] == "plain"
            and each["system"] in systems
        ]

    def over(step: str, *systems: str) -> list[float]:
        return values(
            pipelines, "over_dsp", part="systems", system=systems, step=step, gpus=most(pipelines, "gpus")
        )

    pyg, others = over("plain", "pyg-cpu"), over("plain", "quiver", "dgl-uva")
    replayed = over("captured", "quiver", "dgl-uva")
    same = became(replayed) == became(others)
    return [
        f"`products-like`, {all_cards(pipelines)}",
        f"{series(pyg, two)} x PyG on the CPU (paper more than 10 x at best): {became(pyg, best=10)}",
        f"{span(others, 'x', two)} Quiver and DGL-UVA (paper over 2 x the fastest in most cases): "
        f"{became(others, least=2)}",
        f"replayed as CUDA graphs {span(replayed, 'x', two)}",
        Said("which changes nothing", same, may_go=True),
        f"modelled without what more of them cost each other and the host, {series(modelled('pyg-cpu'), two)} x PyG "
        f"and {span(modelled('quiver', 'dgl-uva'), 'x', two)} Quiver and DGL-UVA",
        Said(f"as CUDA graphs {span(replayed, 'x', two)}: {became(replayed)}", not same, may_go=True),
    ]
