"""NextDoor's evaluation: eleven applications, the transit kernels and their index, memory, training, the floor."""

from __future__ import annotations

from collections.abc import Callable

from gnnsample_lab.bench.suite import AS_LEFT, Columns, Record, Spread, Suite, as_recorded

from . import by_graph, papers, targets

_part = papers.PAPER.part


def _reduced(columns: Columns) -> Callable[[Record], Columns]:
    """The columns, of which the first says what was profiled in the place of NextDoor's samples and walks."""

    def made(record: Record) -> Columns:
        words = record["settings"].get("reduced")
        return {
            f"{head} ({words})" if head == "app" and words else head: cell for head, cell in columns.items()
        }

    return made


SUITES = (
    Suite(
        "nextdoor-table3", "suites.nextdoor.tables.table3",
        "NextDoor's graphs beside the paper's; needs no GPU",
        columns={
            "nodes": "num_nodes", "edges": "num_edges", "average degree": "average_degree", "largest": "max_degree",
            "no in-edges %": "without_in_edges_percent",
        },
        paper=_part(
            "table 3", papers.TABLE3, ("graph",),
            {"paper nodes": "num_nodes", "paper edges": "num_edges", "paper degree": "average_degree"},
        ),
        needs_gpu=False,
    ),
    Suite(
        "nextdoor-fig7", "suites.nextdoor.tables.figure7",
        "eleven applications: over SP, TP and the CPU walker, one core and all",
        columns=as_recorded({
            "app": "app", "samples": "num_samples", "L2": "l2", "transit ms": Spread("published_ms"),
            "over SP": "published_over_sample", "over TP": "published_over_vanilla",
            "over all cores": "published_over_cpu_all", "ours ms": Spread("ms.transit"),
            "ours over SP": "over_sample", "ours over TP": "over_vanilla", "ours over one core": "over_cpu_core",
            "ours over all cores": "over_cpu_all",
        }),
        paper=_part("figure 7", range=papers.FIGURE7), targets=targets.figure7,
    ),
    Suite(
        "nextdoor-fig6", "suites.nextdoor.tables.figure6",
        "share of the scheduling index in the time to sample",
        columns=as_recorded({
            "app": "app", "index": "index", "L2": "l2", "ms": Spread("ms"), "index ms": Spread("index_ms"),
            "builds": "builds", "index %": "index_percent",
        }),
        paper=_part("figure 6", papers.FIGURE6, ("graph", "app"), {"paper %": "index_percent"}),
    ),
    Suite(
        "nextdoor-fig9", "suites.nextdoor.tables.figure9",
        "over the frontier and the message-passing formulation",
        columns=as_recorded({
            "app": "app", "L2": "l2", "transit ms": Spread("published_ms"), "ours ms": Spread("ms.transit"),
            "frontier ms": Spread("ms.frontier"), "message ms": Spread("ms.message"),
            "over frontier": "published_over_frontier",
            "over message": "published_over_message", "ours over frontier": "over_frontier",
            "ours over message": "over_message",
        }),
        paper=_part("figure 9"),
    ),
    Suite(
        "nextdoor-released", "suites.nextdoor.released.released",
        "as published and ours beside the kernels that the authors released, on the twin before version 3",
        columns=as_recorded({
            "app": "app", "samples": "num_samples", "L2": "l2", "transit ms": Spread("published_ms"),
            "ours ms": Spread("ms"), "released LB ms": "released_lb_ms", "released SP ms": "released_sp_ms",
            "released LB over transit": "released_over_published",
        }),
        targets=targets.released, takes_one=True,
    ),
    Suite(
        "nextdoor-table2", "suites.nextdoor.tables.table2",
        "each transit kernel's cost by draws per transit",
        columns=as_recorded({
            "draws per transit": "draws_per_transit", "transits": "transits", "L2": "l2",
            "sub-warp ms": Spread("kernel_ms.sub-warp"), "block ms": Spread("kernel_ms.block"),
            "grid ms": Spread("kernel_ms.grid"), "index ms": Spread("index_ms.block"), "best": "best",
            "paper": "paper_kernel", "with index ms": Spread("chosen_ms"), "sample-parallel ms": Spread("sample_ms"),
        }),
        paper=_part("table 2"), takes_one=True,
    ),
    Suite(
        "nextdoor-floor", "suites.nextdoor.floor.walks",
        "walks over the floor of their reads; next in Python over the same in CUDA",
        columns=as_recorded({
            "app": "app", "walkers": "num_samples", "L2": "l2", "ms": Spread("ms"),
            "floor ms": Spread("floor_ms"), "over floor": "over_floor", "CUDA ms": Spread("native_ms"),
            "over CUDA": "over_native", "FlowWalker ms": Spread("flow_ms"), "of ours": "flow_over_ours",
        }),
        targets=targets.floor,
    ),
    Suite(
        "nextdoor-fig8", "suites.nextdoor.profile.figure8",
        "L2 read transactions relative to sample-parallel",
        columns=_reduced({
            "app": "app", "index": "index", "SP M sectors": "sample_msectors",
            "transit M sectors": "transit_msectors", "transit of SP": "ratio", "index of it": "index_share",
            "origin": "origin", "recorded at": "state",
        }),
        paper=_part("figure 8"), one_by_one="suites.nextdoor.profile.graphs", merge=by_graph.merged,
        shown=by_graph.shown,
        seconds=700,  # with table 4, whose numbers come from the same runs of the profiler
    ),
    Suite(
        "nextdoor-table4", "suites.nextdoor.profile.table4", "store efficiency and multiprocessor activity",
        columns=_reduced({
            "app": "app", "index": "index", "store efficiency %": "store_percent", "SM activity %": "sm_percent",
            "origin": "origin", "recorded at": "state",
        }),
        paper=_part(
            "table 4", papers.TABLE4, ("graph", "app"),
            {"paper stores %": "store_percent", "paper SM %": "sm_percent"},
        ),
        one_by_one="suites.nextdoor.profile.graphs", merge=by_graph.merged, shown=by_graph.shown,
    ),
    Suite(
        "nextdoor-section84", "suites.nextdoor.memory.section84",
        "samples per second with a fraction of the graph on the GPU, as published and ours",
        columns=as_recorded({
            "app": "app", "index": "index", "of the graph": "fraction", "L2": "l2", "s": Spread("seconds"),
            "samples/s": "samples_per_s", "of in memory": "of_in_memory", "over CPU": "over_cpu",
            "MB streamed": "streamed_mb", "GB/s": "streamed_gbps",
        }),
        paper=_part(
            "section 8.4", papers.SECTION84, ("graph", "app"),
            {"paper samples/s": "samples_per_s", "paper over KnightKing": "over_cpu"},
        ),
        seconds=400,
    ),
    Suite(
        "nextdoor-fig10", "suites.nextdoor.gpus.figure10",
        "sampling on several GPUs, the graph on each, over one GPU, as published and ours",
        columns=as_recorded({
            "app": "app", "index": "index", "GPUs": "gpus", "samples": "num_samples", "steps": "steps",
            "rows a batch": "rows", "picks a batch": "edges", "vertices drawn": "vertices", "ms": "ms", "p10": "p10",
            "p90": "p90", "over one GPU": "over_one", "of linear %": "of_linear_percent",
        }),
        paper=_part("figure 10"), needs_gpu=False, last=True, l2=AS_LEFT,
    ),
    Suite(
        "nextdoor-table1", "suites.nextdoor.training.table1",
        "share of sampling in training, six methods, as published and ours",
        columns=as_recorded({
            "method": "method", "sampler": "sampler", "L2": "l2", "sample ms": Spread("sample_ms"),
            "train ms": Spread("train_ms"), "sampling %": "sample_percent",
        }),
        paper=_part("table 1", papers.TABLE1, ("graph", "method"), {"paper sampling %": "sample_percent"}),
    ),
    Suite(
        "nextdoor-table5", "suites.nextdoor.training.table5",
        "end to end with CPU samplers over NextDoor's as published, and over ours",
        columns=as_recorded({
            "method": "method", "CPU sampler": "reference", "L2": "l2", "sample ms": Spread("reference_sample_ms"),
            "epoch s": Spread("reference_epoch_s"), "published: sample ms": Spread("published_sample_ms"),
            "published: epoch s": Spread("published_epoch_s"), "published x": "published_speedup",
            "ours: sample ms": Spread("sample_ms"), "train ms": Spread("train_ms"),
            "ours: epoch s": Spread("epoch_s"), "ours x": "speedup", "most possible": "most_possible",
        }),
        paper=_part("table 5", papers.TABLE5, ("graph", "method"), {"paper x": "speedup"}),
    ),
)  # fmt: skip
