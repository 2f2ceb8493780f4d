"""The table "Measured" of the README: what, on which graphs, against what, result, and what became of a paper's claim.

Every number is read from the records, but for what other people's programs took, of which the line says that it was
measured separately. A line names what is compared and which published value stands beside it; whether
that claim was reproduced, missed or reversed follows from the numbers by one rule, :func:`verdict`.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import peers, report
from .noise import FAR, over_noise
from .record import card_of, commit_of, is_modelled, most, scaled, states
from .suite import PUBLISHED_QUEUE, Record, Row, capacity, markdown_table
from .suites.gnnlab import papers as gnnlab
from .suites.pgsampler.targets import unsteady

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
"""Marks of the table in the README."""
NEAR = 0.95
"""A claim counts as reached from this share of its value on: the repetition of a run differs by as much."""
REPRODUCED, MISSED, REVERSED = "reproduced", "missed", "**reversed**"
REACHED = ", the value reached"
"""Behind a verdict of "missed", where :data:`FEW` cases keep a claim that names a value from being reproduced."""
FEW = 0.1
"""The largest share of cases, all below the neutral value, that are few."""
FOREIGN = "†"
"""Stands after a twin that is not like its original in what the suite rests on, and after a verdict that rests on such
twins alone: neither agreement nor its opposite then says anything of the paper's graphs."""
PARTIAL = "°"
"""Stands after a verdict of a quick run or of graphs that were made smaller."""
LINK_GBPS = 300.0
"""What NVLink gives a GPU that pulls lists, in round numbers: ``dsp-bandwidth`` has 336 of an H100."""
MOST = object()
"""Of a row's number of GPUs: the most that any row of the record was measured on."""
Points = list[tuple[float, str]]
"""Measured values and the graphs on which they were measured."""
Rule = Callable[[Row], bool]


@dataclass(frozen=True)
class Claim:
    """What a paper says of a ratio.

    Args:
        text: as the table shows it.
        least: what it says of every case, or of their average.
        best: what it says of the best case, where it says no more.
        most: what no case exceeds; for values of which less is better, where no direction can be reversed.
        neutral: the ratio at which nothing is gained; a result below it is the opposite of the claim.
    """

    text: str
    least: float | None = None
    best: float | None = None
    most: float | None = None
    neutral: float = 1.0


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Args:
        paper: whose claim, or "ours" for what no paper claims.
        suite: of the record.
        what: is measured, with the table or figure.
        against: what it is divided by.
        points: from the record to values; a line without any is left out.
        claim: from the record to the paper's, None for ours.
        unit: behind the values.
        gpus: field of the rows that says on how many GPUs a row was measured; None where it was one.
        among: the numbers of GPUs that the line is about; none: the most that the record has.
        only_on: in the name of the only card on which a ratio makes sense, because what it is divided by was measured
            there and elsewhere; a record of another card has no values. Empty: on any.
        caveat: from the record to why its numbers say nothing of the claim, or of a gain, or to an empty text where
            they do.
        reworded: from the record to the words in place of ``what``, where these depend on the record.
        is_main: it stands in the short table, which a stranger reads first.
    """

    paper: str
    suite: str
    what: str
    against: str
    points: Callable[[Record], Points]
    claim: Callable[[Record], Claim] | None = None
    unit: str = "x"
    gpus: str | None = None
    among: tuple[int, ...] = ()
    only_on: str = ""
    caveat: Callable[[Record], str] | None = None
    reworded: Callable[[Record], str] | None = None
    is_main: bool = False

    def is_for(self, record: Record) -> bool:
        """Whether the record is of a card on which the ratio makes sense."""
        gpu = record["environment"].get("gpu") or {}
        return self.only_on in gpu.get("name", "")


def verdict(values: Sequence[float], claim: Claim) -> str:
    """:data:`REPRODUCED`, :data:`MISSED` or :data:`REVERSED`, and how many cases say the opposite where not all do.

    Reproduced: no case is below the neutral value, and the median reaches what the paper says of all cases or, where it
    names the best alone, the best does. Reversed: the median is below the neutral value. Missed: what is left, with
    :data:`REACHED` behind where no more than a few cases below the neutral value keep it from being reproduced.
    """
    if claim.most is not None:
        beyond = sum(value > claim.most for value in values)
        return MISSED + f" ({beyond} of {len(values)} beyond)" if beyond else REPRODUCED
    middle, below = statistics.median(values), sum(value < claim.neutral for value in values)
    reached = (
        middle >= NEAR * claim.least
        if claim.least is not None
        else claim.best is None or max(values) >= NEAR * claim.best
    )
    if reached and not below:
        return REPRODUCED
    if middle < claim.neutral:
        return REVERSED + (f" ({len(values) - below} of {len(values)} not)" if below < len(values) else "")
    but_few = reached and (claim.least, claim.best) != (None, None) and below <= FEW * len(values)
    return MISSED + (f" ({below} of {len(values)} reversed{REACHED * but_few})" if below else "")


# ---- values of rows --------------------------------------------------------------------------------------------------


def field(path: str, **wanted: Any) -> Callable[[Record], Points]:
    """A field (``a.b``: ``b`` of ``a``) of the measured rows whose others are as ``wanted``, a value or several."""
    first, _, rest = path.partition(".")

    def points(record: Record) -> Points:
        found: Points = []
        asked = {key: most(record, key) if value is MOST else value for key, value in wanted.items()}
        for row in record["rows"]:
            value = row.get(first)
            value = value.get(rest) if rest and isinstance(value, Mapping) else value
            if isinstance(value, (int, float)) and not is_modelled(row) and _is(row, asked):
                found.append((float(value), str(row.get("graph", ""))))
        return found

    return points


def either(*ways: Callable[[Record], Points]) -> Callable[[Record], Points]:
    """The values of the first way that finds some: older records have other fields."""
    return lambda record: next((found for points in ways if (found := points(record))), [])


def _is(row: Row, wanted: Mapping[str, Any]) -> bool:
    return all(row.get(k) in v if isinstance(v, tuple) else row.get(k) == v for k, v in wanted.items())


def times(factor: float, points: Callable[[Record], Points]) -> Callable[[Record], Points]:
    """The same values times ``factor``."""
    return lambda record: [(factor * value, graph) for value, graph in points(record)]


def _of_rows(points: Callable[[Record], Points], wanted: Callable[[Row], bool]) -> Callable[[Record], Points]:
    """The values of the wanted rows."""
    return lambda record: points({**record, "rows": list(filter(wanted, record["rows"]))})


def in_paper(points: Callable[[Record], Points], *keys: str) -> Callable[[Record], Points]:
    """The values of the rows that the paper has, too: those whose ``keys`` (a graph without its scale) it names."""

    def of(row: Row) -> tuple[Any, ...]:
        return tuple(scaled(row[key])[0] if key == "graph" else row[key] for key in keys)

    def some(record: Record) -> Points:
        known = {of(row) for row in record["paper"].get("rows", [])}
        return points({**record, "rows": [row for row in record["rows"] if of(row) in known]})

    return some


def inverted(points: Callable[[Record], Points]) -> Callable[[Record], Points]:
    """The values the other way round: of what is better where there is less of it."""
    return lambda record: [(1 / value, graph) for value, graph in points(record)]


def said(
    text: str, least: float | None = None, best: float | None = None, neutral: float = 1.0
) -> Callable[[Record], Claim]:
    """A claim that stands in a paper's text."""
    return lambda record: Claim(text, least, best, neutral=neutral)


def _figure8(record: Record) -> Claim:
    average = record["paper"]["average"].values()
    text = f"{min(average):.2f} to {max(average):.2f} x on average, at best {record['paper']['best']:.2f} x"
    return Claim(text, least=min(average))


def _averages(record: Record) -> Points:
    """Of each graph of figure 8 the mean over the baseline with as many threads as DGL's kernel has."""
    key = "published_over_dgl_threads"
    return [(mean[key], mean["graph"]) for mean in record.get("averages", []) if mean.get(key) is not None]


def _averaged(points: Callable[[Record], Points]) -> Callable[[Record], Points]:
    """The values of what figure 8 averages: all graphs but ours, 2 048 seeds and more, fanouts from 10 on."""
    return _of_rows(
        points, lambda row: row["graph"] != peers.GRAPH and row["batch_size"] >= 2048 and row["fanout"] >= 10
    )


def _but(what: str, lacks: Callable[[Record], str]) -> Callable[[Record], str]:
    """``what``, and what a record lacked of it; ``lacks`` has no words for a record that lacks nothing."""
    return lambda record: "; ".join(filter(None, (what, lacks(record))))


def _without(setting: str, words: str) -> Callable[[Record], str]:
    """``words`` for records whose settings do not speak of ``setting``."""
    return lambda record: "" if setting in record["settings"] else words


def _walked_at_once(record: Record) -> str:
    """Of PPR most steps are not NextDoor's: the suites say so of themselves in figure 7's column of schedules."""
    return "its first steps alone have an index, one launch of ours walks the others"


def _slower(record: Record) -> str:
    """In how many settings a kernel of higher throughput takes longer: it does more than the one beside it."""
    over = [
        row["kernel_us"]["block-bsp"] / row["kernel_us"][PUBLISHED_QUEUE]
        for row in record["rows"]
        if PUBLISHED_QUEUE in row["kernel_us"]
    ]
    if not over:
        return ""
    return f"it removes duplicates, too, and is slower in {sum(each < 1 for each in over)} of {len(over)} settings"


_walked_on = _without("cpu_walker", "our walker went on with walks that had ended")
_made_anew = _without("cusparse", "cuSPARSE's matrix made anew in each weighted call")


def _in_turn(record: Record) -> Points:
    """Over the floor of mini-batches in turn; records from before there were two have one floor."""
    return field("ratio", what="latency")(record) or field("best_ratio")(record)


def _published(field_: str, **wanted: Any) -> Callable[[Record], Claim]:
    """The range of a field of the published rows that stand in the record."""

    def claim(record: Record) -> Claim:
        values = [row[field_] for row in record["paper"]["rows"] if row.get(field_) and _is(row, wanted)]
        return Claim(_text_of(values), least=min(values))

    return claim


def _text_of(values: Sequence[float]) -> str:
    """Published ratios, as the table shows them."""
    return f"{min(values):.3g} to {max(values):.3g} x" if len(values) > 1 else f"{values[0]:.3g} x"


def _losses_differ(record: Record) -> Points:
    """How far FastGL's farthest final loss, the mean of the last tenth of a run, lies from the mean of DGL's, in units
    of what DGL's seeds differ by: of each graph and model."""
    differences = over_noise(record["rows"], "final_loss")
    return [(row["farthest"], row["graph"]) for row in differences if row["system"] == "fastgl"]


def _accuracies_differ(record: Record) -> Points:
    """Differences of the mean final accuracies, of the exact queue, in the same units."""
    differences = over_noise(record["rows"], "final_accuracy")
    return [(row["over_noise"], row["graph"]) for row in differences if row["system"] == "pgsampler"]


def _same_draws(record: Record) -> str:
    """Records from before DGL's sampler drew under a key of its own hold twice the same mini-batches."""
    return (
        "" if record["settings"].get("dgl_seed") else "both drew the same mini-batches: equal by construction"
    )


def _all_draw_the_same(record: Record) -> str:
    """Systems whose samples have one key train on the same mini-batches: then a difference can only be an error."""
    return "all draw the same mini-batches: equal by construction"


def _cached_rows(record: Record) -> list[Row]:
    """Of the most GPUs, whose caches save three quarters of the remote reads or more."""
    return [
        row
        for row in record["rows"]
        if _is(row, {"world": most(record, "world"), "method": "direct-cached"})
        and (row.get("saved_percent") or 0) >= 75
    ]


def _cached(record: Record) -> Points:
    """One mini-batch at a time: with several in a call ranks may settle on other numbers of them than one GPU."""
    return field("x_one")({"rows": _cached_rows(record)})


def _in_parts(record: Record) -> str:
    """What a GPU holds of the topology with the lists that it caches and the records of all vertices."""
    held = [
        sum(row["kept_bytes"].values()) / (row["world"] * row["kept_bytes"]["part"])
        for row in _cached_rows(record)
    ]
    share = f", {100 * min(held):.0f} to {100 * max(held):.0f} % of the topology on each GPU" if held else ""
    return f"sampling from parts, lists cached to save 80 % of remote reads{share}"


def _beyond_even(record: Record) -> str:
    """What the same GPUs do with all of the graph on each, and why they may seem to do more than that."""
    world = most(record, "world")
    whole = [value for value, _ in field("x_one", world=world, method="each, whole graph")(record)]
    words = (
        [f"{world} GPUs with the whole graph each: {min(whole):.3g} to {max(whole):.3g} x"] if whole else []
    )
    if any(value > world for value, _ in _cached(record)):
        words.append(f"what exceeds {world} x is how far runs of one GPU differ")
    return "; ".join(words)


def _reduced(record: Record) -> str:
    """What was profiled, in fewer samples and shorter walks than NextDoor's."""
    reduced = record["settings"].get("reduced", "").replace(",", " ").replace("  ", ", ")
    return f"{_READS}{f'; {reduced}' * bool(reduced)}"


def bytes_percent(record: Record) -> float:
    """How much of the time of pulling, biased, on the most GPUs its bytes need at :data:`LINK_GBPS`: at most, of
    several runs."""
    of = {"part": "biased", "system": "pull", "ranks": most(record, "ranks")}
    found = [row for row in record["rows"] if _is(row, of)]
    return max(
        (100 * row["mb"] * 1e6 / row["ranks"] / (LINK_GBPS * 1e9) / (row["us"] / 1e6) for row in found),
        default=0.0,
    )


def untuned(record: Record) -> str:
    """Words for records in which pulling was launched piece by piece, and bound by that, else none: where it moves
    fewer bytes than CSP it takes more than half as long again, and its bytes take less than half of its time."""
    fewer = [
        row["x_time"] for row in record["rows"] if _is(row, {"part": "fanout"}) and row.get("x_bytes", 1) < 1
    ]
    percent = bytes_percent(record)
    if percent >= 50 or (fewer and max(fewer) <= 1.5):
        return ""
    return f"pulling waits for launches here, its bytes take {percent:.0f} % of its time"


def _same_accuracy(record: Record) -> Points:
    """Of the runs on the most GPUs and of what stands beside them; older records have no others.

    A device alone also has the seeds of more GPUs than ran: those stand beside modelled rows.
    """
    last: dict[tuple[str, str], Row] = {}
    for row in record["rows"]:
        if not is_modelled(row) and row.get("seeds_of") in (None, most(record, "gpus")):
            last[row["graph"], row["system"]] = row
    found: Points = []
    for (graph, system), row in last.items():
        if system == "dsp":
            found += [
                (row["accuracy"] / other["accuracy"], graph)
                for (g, s), other in last.items()
                if g == graph and s != system
            ]
    return found


def _fused_map(record: Record) -> Claim:
    return _published("speedup", id_map="fused-map")(record)


def fitted_dgl(points: Callable[[Record], Points]) -> Callable[[Record], Points]:
    """The values without those of graphs and models that had no room for DGL in GNNLab's table 4."""

    def some(record: Record) -> Points:
        lacking = {
            (row["graph"], row["model"])
            for row in record["paper"]["rows"]
            if row["system"] == "gnnlab" and not row["speedup"]
        }
        here = [row for row in record["rows"] if (scaled(row["graph"])[0], row.get("model")) not in lacking]
        return points({**record, "rows": here})

    return some


def _factored(record: Record) -> Claim:
    """Over DGL's configuration in table 4: on the graphs and models that were measured, if it has any of them."""
    here = {(scaled(row["graph"])[0], row.get("model")) for row in record["rows"] if not is_modelled(row)}
    rows_ = [row for row in record["paper"]["rows"] if row["system"] == "gnnlab" and row["speedup"]]
    same = [row for row in rows_ if (row["graph"], row["model"]) in here]
    values = [row["speedup"] for row in same or rows_]
    return Claim(f"{_text_of(values)}, 8 GPUs", least=min(values))


def _factored_epoch(record: Record) -> str:
    """What the line of table 4 is of: measured runs of earlier records went without switching."""
    switched = any(row.get("switching") for row in record["rows"] if not is_modelled(row))
    return f"an epoch of the factored design{', without switching' * (not switched)} (table 4)"


def on_card(record: Record, card: str, step: str) -> list[Row]:
    """Rows of ``gnnlab-budget`` that ran, of one kind of steps, on the card that was looked for by the executor
    ``card``."""
    return [row for row in record["rows"] if _is(row, {"step": step, "card": card}) and "error" not in row]


def over_sharing(record: Record) -> Claim:
    """Over T_SOTA in GNNLab's table 4, where a GPU that shares its time cannot cache all rows."""
    values = over_tsota(lambda percent: percent < 100)
    return Claim(f"{_text_of(values)} over T_SOTA, 8 GPUs", least=min(values))


def over_tsota(caches: Callable[[float], bool]) -> list[float]:
    """GNNLab over T_SOTA in GNNLab's table 4, of the graphs and models of which ``caches`` holds for the percent of the
    rows that T_SOTA caches."""
    seconds = {(row["system"], row["graph"], row["model"]): row["epoch_s"] for row in gnnlab.TABLE4}
    return [
        seconds["tsota", row["graph"], row["model"]] / seconds["gnnlab", row["graph"], row["model"]]
        for row in gnnlab.TABLE5
        if row["system"] == "tsota" and caches(row["cache_percent"])
        and ("gnnlab", row["graph"], row["model"]) in seconds
    ]  # fmt: skip


def misses_none(step: str, card: str = "overlapped") -> Callable[[Record], str]:
    """Words for records of ``gnnlab-budget`` in which the quickest way of time sharing on a card caches all rows, so
    that the claim of those that cannot says nothing of them, else none."""

    def words(record: Record) -> str:
        sharing = [
            row for row in on_card(record, card, step) if row.get("executor", "factored") != "factored"
        ]
        quickest = min(sharing, key=lambda row: float(row["epoch_ms"]), default=None)
        if quickest is None or quickest["cached_percent"] < 100:
            return ""
        ahead = _text_of(over_tsota(lambda percent: percent >= 100))
        return f"time sharing caches all rows here, where the paper has it ahead as well: {ahead}"

    return words


def _over_peer(theirs_us: Mapping[tuple[int, int], float], ours: str) -> Callable[[Record], Points]:
    """Of a sampler that was measured separately, by seeds and fanout, over ours in three hops on the same graph."""

    def points(record: Record) -> Points:
        rows = [row for row in record["rows"] if _is(row, {"graph": peers.GRAPH, "hops": 3})]
        known = [(theirs_us.get((row["batch_size"], row["fanout"])), row) for row in rows]
        return [
            (theirs / row[ours], row["graph"])
            for theirs, row in known
            if theirs is not None and row.get(ours) is not None
        ]

    return points


def _over_cugraph(ours: str) -> Callable[[Record], Points]:
    """By the rule of the recorded mini-batches, which expand a vertex again in each hop."""
    theirs = peers.CUGRAPH["frontier"]
    return _over_peer({(1024, 10): theirs["fused32_us" if ours == "fused32_us" else "alone_us"]}, ours)


_PEERS = (
    ("cuGraph's sampler", "1 024 x (10, 10, 10)", _over_cugraph),
    ("DGL's GraphBolt", "1 024 and 8 192 x (10, 10, 10), 8 192 x (15, 15, 15)",
     lambda ours: _over_peer(peers.GRAPHBOLT_US, ours)),
)  # fmt: skip
"""Samplers that were measured separately, on which tasks, and the way from a field of ours to ratios."""
_KNIGHTKING = ("DeepWalk", "PPR", "node2vec")
"""Walks of which NextDoor says how it does beside KnightKing."""
INDEXED_WALKS = ("DeepWalk", "node2vec")
"""Those whose form as published builds an index in every step: PPR's has one in its first steps alone."""
_OTHER_WALKS = ("MultiRW", "PinSAGE")
_WALKS = _KNIGHTKING + _OTHER_WALKS
IN_FIGURE7 = (*_KNIGHTKING, "MultiRW", "k-hop", "Layer", "MVS", "ClusterGCN")
"""Applications of NextDoor's figure 7 that read lists; FastGCN and LADIES read none by which schedules differ."""


def _of_figure7(points: Callable[[Record], Points]) -> Callable[[Record], Points]:
    """The values of the paper's applications on twins of its graphs."""
    return _of_rows(points, lambda row: row["app"] in IN_FIGURE7 and row["graph"].endswith("-like"))


_INDEXED = "transit-parallel as published, an index in each step, PPR's last ones apart (figure 7)"
IN_EVERY_STEP = (*INDEXED_WALKS, "k-hop")
"""Applications of figure 9 of which the form as published builds an index in every step."""
_FEW_INDEXED = "PPR as published"
_OVER_CORES = "DeepWalk and node2vec, transit-parallel as published (figure 7; KnightKing ran on 32 cores)"
_OTHERS_OVER_CORES = (
    "MultiRW and PinSAGE's walks, transit-parallel as published, of which NextDoor says nothing here"
)
_ALL_WALKS = "walks: DeepWalk, PPR, node2vec, MultiRW, PinSAGE"
_RELEASED = "DeepWalk, PPR, node2vec and k-hop as published, on the twin before version 3, most likely theirs"
_STREAMED = "node2vec, a quarter of the lists on the GPU (section 8.4; KnightKing ran on 32 cores)"
_STREAMED_OURS = "node2vec, a quarter of the lists on the GPU, others read across the bus"
_END_TO_END = "training end to end, transit-parallel as published, the cases of table 5"
_READS = "L2 reads that transit-parallel as published needs fewer (figure 8)"
_OWN_SAMPLERS = "the methods' own samplers, written anew in NumPy, on one core"
_KHOP = "k-hop on several GPUs, transit-parallel as published (figure 10)"
_CAPTURED = "the same, training steps replayed as CUDA graphs, of which the paper has none"
_STAGED = "FastGL's sums in shared memory, edges staged once for up to four tiles of features"
_ON_GPUS = ("quiver", "dgl-uva")
_OVER_FASTEST = said("over 2 x the fastest in most cases", least=2)
_BY_UVA = "Quiver and DGL-UVA, by our captured kernels"
"""What DSP is held against draws by the fastest of our kernels, not by the kernels of the originals."""
_LAB = "`lab`: an epoch of GraphSAGE replayed as CUDA graphs, a quarter of the rows cached, others kept for a batch"
_REPLAYED = "an epoch replayed as CUDA graphs, cached as FastGL, on `products-like` all rows: GCN, GIN, GAT"
_BY_VERTEX = "sampling by vertex (table 6)"
_STORES = "store efficiency, k-hop, transit-parallel as published (table 4)"

_BUDGET = "factored, one budget of all GPU memory, on which stages that overlap cache a part of the rows"
_LESS = "factored, less memory: stages one after the other cache a part of the rows, too"
_LESS_CAPTURED = "factored, less memory, training steps replayed as CUDA graphs"
_SUMS = "sums of a training step, memory-aware kernel (figure 11)"
_FARTHEST_LOSS = "final loss of the run farthest from the mean of DGL's, of each graph and model (figure 16)"
_REORDERED = "memory IO that the greedy reorder takes off that of Match, the search included (figure 10)"
_RATE = "rate of the memory-aware kernel (figure 12)"
_SWEPT = "the best of four numbers of threads"
"""With which DGL's kernels of the baseline are timed; the paper's have blocks of 128 threads."""
_TEAMS = "kernels of the queue served by teams of threads"
_TEAMS_MINI_BATCH = "a mini-batch with the queue served by teams of threads, start to end"
_of_queue = field(f"speedup.{PUBLISHED_QUEUE}")

LINES: tuple[Line, ...] = (
    Line("PGSampler", "pgsampler-fig8",
         "kernels of the persistent queue, averages over 2 048 to 10 240 seeds x 10 to 20, 2 and 3 hops (figure 8)",
         "DGL's, hop by hop, blocks of 128 threads", _averages, _figure8, is_main=True),
    Line("PGSampler", "pgsampler-fig8", "the same, each setting, smaller ones too",
         f"DGL's, hop by hop, {_SWEPT}", _of_queue, _figure8),
    Line("PGSampler", "pgsampler-fig9", "a mini-batch with the queue and our ID map, start to end (figure 9)",
         f"DGL's, {_SWEPT}, with its ID map", _averaged(_of_queue), said("up to 2.22 x", best=2.22), caveat=unsteady,
         is_main=True),
    Line("PGSampler", "pgsampler-fig9", "the same, smaller settings and R-MAT too",
         f"DGL's, {_SWEPT}, with its ID map", _of_queue, said("up to 2.22 x", best=2.22), caveat=unsteady),
    Line("PGSampler", "pgsampler-fig10", "the queue (figure 10)", "fused hops without balancing", _of_queue,
         said("faster in all cases"), is_main=True),
    Line("PGSampler", "pgsampler-table3", "TurboGNN's kernel, a reconstruction from one sentence (table III)",
         "DGL's, hop by hop", field("speedup.turbo-bsp", system="TurboGNN"), _published("speedup", system="TurboGNN")),
    *(Line("PGSampler", "pgsampler-throughput", f"{what} throughput of the queue's kernel (section V-B)",
           "DGL's, blocks of 128 threads",
           field(f"published_gain.{what}_percent"), said(f"up to {best} x", best=best),
           reworded=_but(f"{what} throughput of the queue's kernel (section V-B)", _slower))
      for what, best in (("compute", 1.59), ("memory", 2.01))),
    Line("PGSampler", "pgsampler-fig11", "difference of accuracy from DGL's sampler's (figure 11)",
         "what DGL's seeds differ by, or half a point where that is less", _accuracies_differ,
         lambda record: Claim("approximately the same", most=1.0), "of it", caveat=_same_draws),
    Line("FastGL", "fastgl-table8", "Fused-Map (table 8)", "DGL's ID map",
         # Records without the form called ours, with an addition a block, by this name.
         field("speedup", id_map="fused-map", form="published"), _fused_map, is_main=True),
    Line("FastGL", "fastgl-fig13", "sampling an epoch (figure 13)", "DGL's configuration",
         field("speedup", system="fastgl"), said("2.0 to 2.5 x, 2 GPUs", least=2.0)),
    Line("FastGL", "fastgl-fig11", _SUMS, "DGL's (cuSPARSE)", field("aggregate_speedup", system="fastgl"),
         said("1.1 to 6.7 x over DGL, PyG and GNNAdvisor, 2 GPUs", least=1.1), reworded=_but(_SUMS, _made_anew)),
    Line("FastGL", "fastgl-fig12", _RATE, "cuSPARSE", field("over_library", kernel="memory-aware"),
         said("up to 4.2 x over DGL and GNNAdvisor", best=4.2), reworded=_but(_RATE, _made_anew), is_main=True),
    Line("FastGL", "fastgl-fig9", "an epoch: GCN, GIN, GAT (figure 9)", "DGL's configuration",
         field("fastgl_over_it", system="dgl"), said("1.7 to 5.1 x, 2 GPUs", least=1.7), is_main=True),
    Line("FastGL", "fastgl-fig9", "an epoch: GCN, GIN, GAT (figure 9)", "GNNLab's configuration",
         field("fastgl_over_it", system="gnnlab"),
         said("1.1 to 2.0 x, 2 GPUs", least=1.1), is_main=True),
    Line("FastGL", "fastgl-fig10", _REORDERED, "Match alone",
         times(100, field("reorder_gain", system="match + reorder")),
         said("up to 25 %", best=25, neutral=0), "%"),
    Line("FastGL", "fastgl-fig16", _FARTHEST_LOSS,
         "what DGL's seeds differ by, or 0.005 where that is less",
         _losses_differ, lambda record: Claim("about the same loss", most=FAR), "of it"),
    Line("GNNLab", "gnnlab-fig10", "PreSC#1's hit rate, 10 % cached (figure 10)", "the optimal cache",
         times(100, field("of_optimal", policy="presample")), said("90 to 99 %", least=90, neutral=0), "%"),
    Line("GNNLab", "gnnlab-fig10", "PreSC#1's hit rate, 10 % cached (figure 10)", "caching by degree",
         field("over_degree", policy="presample"),
         said("1.5 x on average, up to 2.2 x", least=1.5), is_main=True),
    Line("GNNLab", "gnnlab-fig13", "time that PreSC#1 takes off an epoch, GCN and GraphSAGE (figure 13)",
         "caching by degree", times(100, field("less_than_degree", policy="presample", model=("gcn", "sage"))),
         said("5 to 45 %", least=5, neutral=0), "%", gpus="gpus"),
    Line("GNNLab", "gnnlab-fig13", "the same, PinSAGE", "caching by degree",
         times(100, field("less_than_degree", policy="presample", model="pinsage")),
         said("1 to 40 %", least=1, neutral=0), "%", gpus="gpus"),
    Line("GNNLab", "gnnlab-table1", "sampling and caching on the GPU, one GPU (table 1)", "DGL's configuration",
         field("speedup", system="T_SOTA, both"), said("2.5 x", least=2.48)),
    Line("GNNLab", "gnnlab-table4", "an epoch of the factored design (table 4)", "DGL's configuration",
         fitted_dgl(field("speedup", system="gnnlab", gpus=(2, 4))), _factored, gpus="gpus", among=(2, 4),
         reworded=_factored_epoch, is_main=True),
    Line("GNNLab", "gnnlab-budget", _BUDGET, "time sharing", field("x_sharing", card="overlapped", step="plain"),
         over_sharing, gpus="gpus", caveat=misses_none("plain"), is_main=True),
    Line("GNNLab", "gnnlab-budget", _CAPTURED, "time sharing, replayed as well",
         field("x_sharing", card="overlapped", step="captured"), over_sharing, gpus="gpus",
         caveat=misses_none("captured")),
    Line("GNNLab", "gnnlab-budget", _LESS, "time sharing", field("x_sharing", card="serial", step="plain"),
         over_sharing, gpus="gpus", caveat=misses_none("plain", "serial")),
    Line("GNNLab", "gnnlab-budget", _LESS_CAPTURED, "time sharing, replayed as well",
         field("x_sharing", card="serial", step="captured"), over_sharing, gpus="gpus",
         caveat=misses_none("captured", "serial")),
    Line("GNNLab", "gnnlab-fig17", "what switching takes off an epoch, 1 sampler and 1 trainer (figure 17)",
         "without switching", times(100, field("gain", part="a", gpus=2)),
         said("pays with few trainers", neutral=0), "%", gpus="gpus", among=(2,), is_main=True),
    Line("GNNLab", "gnnlab-fig16", "time to the same accuracy, without switching (figure 16)", "DGL's configuration",
         field("speedup", system="gnnlab"), said("less time"), gpus="gpus"),
    Line("NextDoor", "nextdoor-fig7", _INDEXED,
         "sample-parallel", _of_figure7(either(field("published_over_sample"), field("always_over_sample"))),
         said("1.09 to 6 x", least=1.09), is_main=True),
    Line("NextDoor", "nextdoor-fig7", _OVER_CORES, "our CPU walker on all cores",
         field("published_over_cpu_all", app=INDEXED_WALKS), said("26 to 50 x", least=26.1),
         reworded=_but(_OVER_CORES, _walked_on), is_main=True),
    Line("NextDoor", "nextdoor-fig7", f"{_FEW_INDEXED} (figure 7)", "our CPU walker on all cores",
         field("published_over_cpu_all", app="PPR"), said("26 to 50 x", least=26.1), caveat=_walked_at_once),
    Line("NextDoor", "nextdoor-fig7", _OTHERS_OVER_CORES, "our CPU walker on all cores",
         field("published_over_cpu_all", app=_OTHER_WALKS), reworded=_but(_OTHERS_OVER_CORES, _walked_on)),
    Line("NextDoor", "nextdoor-released", _RELEASED,
         f"the authors' released kernels, measured separately on an {peers.CARD}",
         field("released_over_published"), said("- (what carries their name should be as fast)", least=1),
         only_on=peers.CARD, is_main=True),
    Line("NextDoor", "nextdoor-fig9", "walks but PPR, and k-hop, transit-parallel as published (figure 9)",
         "frontier-centric, as Gunrock", field("published_over_frontier", app=IN_EVERY_STEP), said("faster"),
         is_main=True),
    Line("NextDoor", "nextdoor-fig9", "the same", "message passing, as Tigr",
         field("published_over_message", app=IN_EVERY_STEP), said("faster")),
    Line("NextDoor", "nextdoor-fig9", f"{_FEW_INDEXED} (figure 9)", "frontier-centric, as Gunrock",
         field("published_over_frontier", app="PPR"), said("faster"), caveat=_walked_at_once),
    Line("NextDoor", "nextdoor-fig9", f"{_FEW_INDEXED} (figure 9)", "message passing, as Tigr",
         field("published_over_message", app="PPR"), said("faster"), caveat=_walked_at_once),
    Line("NextDoor", "nextdoor-fig8", _READS, "sample-parallel", inverted(field("ratio", index="published")),
         said("a fraction"), reworded=_reduced),
    Line("NextDoor", "nextdoor-table4", _STORES, "",
         field("store_percent", app="k-hop", index="published"), said("98.5 %", least=98.5, neutral=0), "%"),
    Line("NextDoor", "nextdoor-table5", _END_TO_END, _OWN_SAMPLERS,
         in_paper(field("published_speedup", reference="numpy"), "graph", "method"),
         said("1.03 to 4.75 x", least=1.03, best=4.75)),
    Line("NextDoor", "nextdoor-table5", _END_TO_END, "our CPU walker on all cores, which the paper has not",
         in_paper(field("published_speedup", reference="walker"), "graph", "method")),
    Line("NextDoor", "nextdoor-section84", _STREAMED, "our CPU walker on all cores",
         field("over_cpu", app="node2vec", fraction=0.25, index="published"), said("1.5 x", least=1.5)),
    Line("NextDoor", "nextdoor-fig10", _KHOP, "one GPU",
         field("over_one", app="k-hop", gpus=MOST, index="published"),
         lambda record: Claim("nearly linear", least=0.85 * most(record, "gpus")), gpus="gpus", is_main=True),
    Line("DSP", "dsp-pull", "time that CSP takes off (figure 11, biased)", "pulling lists",
         field("less_percent", part="biased", system="pull", ranks=MOST), said("up to 64 %", best=64, neutral=0), "%",
         gpus="ranks", caveat=untuned, is_main=True),
    Line("DSP", "dsp-sampling", _BY_VERTEX, f"PyG and DGL on CPUs, {_BY_UVA}",
         field("over_dsp", part="table 6", gpus=MOST, system=("pyg-cpu", "dgl-cpu", "quiver", "dgl-uva")),
         said("faster than all, more than 20 x at best", best=20), gpus="gpus", is_main=True),
    Line("DSP", "dsp-sampling", "sampling by layer (table 7)", "FastGCN on a CPU",
         field("over_dsp", part="table 7", system="fastgcn-cpu"), said("300 x, 8 GPUs", least=300), gpus="gpus"),
    Line("DSP", "dsp-utilisation", "the queue pipeline (figure 12)", "no pipeline",
         field("speedup", system="dsp", gpus=MOST), said("1.5 x, 8 GPUs", least=1.5), gpus="gpus"),
    Line("DSP", "dsp-busy", "share of time in which a GPU runs a kernel (figure 6)", "no pipeline",
         field("over_seq", system="dsp", gpus=MOST), said("more, most with 8 GPUs", least=1), gpus="gpus"),
    Line("DSP", "pipelines", "the queue pipeline (figure 12)", "no pipeline",
         field("over_dsp", part="systems", system="dsp-seq", step="plain", gpus=MOST), said("1.5 x, 8 GPUs", least=1.5),
         gpus="gpus", is_main=True),
    Line("DSP", "pipelines", _CAPTURED, "no pipeline, replayed as well",
         field("over_dsp", part="systems", system="dsp-seq", step="captured"), gpus="gpus"),
    Line("DSP", "pipelines", "a training step (tables 4 and 5)", "PyG on CPUs, one thread that samples a rank",
         field("over_dsp", part="systems", system="pyg-cpu", gpus=MOST), said("more than 10 x at best", best=10),
         gpus="gpus"),
    Line("DSP", "pipelines", "a training step (tables 4 and 5)", _BY_UVA,
         field("over_dsp", part="systems", system=_ON_GPUS, step="plain", gpus=MOST), _OVER_FASTEST, gpus="gpus",
         is_main=True),
    Line("DSP", "pipelines", _CAPTURED, f"{_BY_UVA}, replayed as well",
         field("over_dsp", part="systems", system=_ON_GPUS, step="captured"), gpus="gpus"),
    Line("DSP", "dsp-accuracy", "accuracy after as many mini-batches (figure 9)", "one GPU, Quiver and DGL-UVA",
         _same_accuracy, said("the same", least=1, neutral=0.99), gpus="gpus", caveat=_all_draw_the_same),
    *(Line("ours", "whole-process", what, f"{peer}, by its own draw, measured separately on an {peers.CARD}",
           over(ours), only_on=peers.CARD, is_main=main)
      for peer, tasks, over in _PEERS
      for main, ours, what in (
          (True, "alone_reservoir_us",
           f"a mini-batch in the host's hands, {tasks}, the same edges and seeds, vertices expanded anew in each hop "
           "as by DGL, ours drawn by the reservoir"),
          (peer != "cuGraph's sampler", "alone_us",
           f"a mini-batch in the host's hands, {tasks}, mixed: ours drawn by Floyd, the default"),
      )),
    Line("ours", "whole-process", "a mini-batch in the host's hands, each of 32 in a call, mixed: ours drawn by Floyd",
         f"cuGraph's, 32 in a call, measured separately on an {peers.CARD}",
         _over_cugraph("fused32_us"), only_on=peers.CARD),
    Line("ours", "pgsampler-fig8", _TEAMS, f"DGL's, hop by hop, {_SWEPT}", field("speedup.persistent")),
    Line("ours", "pgsampler-fig10", _TEAMS, "fused hops without balancing", field("speedup.persistent")),
    Line("ours", "pgsampler-fig9", _TEAMS_MINI_BATCH, f"DGL's, {_SWEPT}, with its ID map",
         field("speedup.persistent"), caveat=unsteady),
    Line("ours", "pgsampler-fig9", "the best strategy, a mini-batch start to end, both by the reservoir",
         "DGL's, with its ID map", field("speedup.best same pick"), caveat=unsteady, is_main=True),
    Line("ours", "pgsampler-fig9", "the same, both by Floyd", "DGL's, with its ID map",
         field("speedup.best same pick, floyd"), caveat=unsteady),
    Line("ours", "pgsampler-fig9", "the same, mixed: ours by Floyd", "DGL's by its reservoir, with its ID map",
         field("speedup.best"), caveat=unsteady),
    Line("ours", "sampling-floor", "time of the best strategy's kernels, mini-batches in turn",
         "replaying the same reads in turn", _in_turn, is_main=True),
    Line("ours", "sampling-floor", "the same, several in a launch", "replaying the same reads in one launch",
         field("ratio", what="throughput")),
    Line("ours", "fastgl-table8", "Fused-Map with one addition a block", "DGL's ID map",
         field("speedup", id_map="fused-map-block")),
    Line("ours", "fastgl-table8", "ID map by direct addresses", "DGL's ID map",
         field("speedup", id_map="direct-address"), is_main=True),
    Line("ours", "aggregation", "sums over neighbours, forward and backward", "the best of cuSPARSE",
         field("over_cusparse"), is_main=True),
    Line("ours", "aggregation", _STAGED, "a thread per row and feature", field("staged_over_naive")),
    Line("ours", "gin-layer", "a GIN layer on small blocks", "separate modules around cuSPARSE",
         field("over_library", kernel="auto")),
    Line("ours", "systems", _LAB, "DGL's configuration, without a cache",
         field("speedup", system="lab")),
    Line("ours", "step", _REPLAYED, "DGL's configuration, without a cache", field("x_dgl"), is_main=True),
    Line("ours", "ladder", "sampling from parts", "one GPU, the whole graph, one mini-batch at a time", _cached,
         gpus="world", caveat=_beyond_even, reworded=_in_parts, is_main=True),
    Line("ours", "nextdoor-fig7", "transit-parallel by ranges of vertices, where it pays", "sample-parallel",
         field("over_sample")),
    Line("ours", "nextdoor-fig7", _ALL_WALKS, "our CPU walker on one core", field("over_cpu_core", app=_WALKS),
         reworded=_but(_ALL_WALKS, _walked_on)),
    Line("ours", "nextdoor-fig7", _ALL_WALKS, "our CPU walker on all cores", field("over_cpu_all", app=_WALKS),
         reworded=_but(_ALL_WALKS, _walked_on)),
    Line("ours", "nextdoor-fig9", "walks and k-hop", "frontier-centric, as Gunrock", field("over_frontier")),
    Line("ours", "nextdoor-fig9", "walks and k-hop", "message passing, as Tigr", field("over_message")),
    Line("ours", "nextdoor-table4", "store efficiency, k-hop", "", field("store_percent", app="k-hop", index="auto"),
         unit="%"),
    Line("ours", "nextdoor-table5", "training end to end", _OWN_SAMPLERS, field("speedup", reference="numpy")),
    Line("ours", "nextdoor-table5", "training end to end", "our CPU walker on all cores",
         field("speedup", reference="walker")),
    Line("ours", "nextdoor-section84", _STREAMED_OURS, "our CPU walker on all cores",
         field("over_cpu", app="node2vec", fraction=0.25, index="auto")),
    Line("ours", "dsp-copies", "draws from remote lists that copies serve, of lists with most reads a byte",
         "of lists by degree, as many bytes", field("over_degree")),
    # Records from before there were two forms hold ours alone, without its name.
    Line("ours", "nextdoor-fig10", "k-hop on several GPUs", "one GPU",
         either(field("over_one", app="k-hop", gpus=MOST, index="auto"),
                field("over_one", app="k-hop", gpus=MOST, index=None)), gpus="gpus"),
)  # fmt: skip


UNRECORDED: frozenset[str] = frozenset()
"""Lines of which the shipped records may not know yet; whoever renews these records takes them off this list."""


# ---- the table -------------------------------------------------------------------------------------------------------


def _cell(values: Sequence[float], unit: str) -> str:
    low, high = min(values), max(values)
    if len(values) == 1 or _short(low) == _short(high):
        return f"{_short(high)} {unit}"
    middle = f", median {_short(statistics.median(values))}" if len(values) > 2 else ""
    return f"{_short(low)} to {_short(high)} {unit}{middle}"


def _short(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    if 0.995 <= value < 1:  # below what gains nothing, of which a verdict may speak
        return f"{value:.3f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


_MANY = 3


def _is_foreign(record: Record, graph: str) -> bool:
    return report.title_of(record, graph).endswith("not comparable with the original")


def _graphs(record: Record, points: Points) -> str:
    """Names of the graphs, with the mark of foreign twins."""
    marked = []
    for name in dict.fromkeys(graph for _, graph in points if graph):
        base, _, scale = name.partition("@")
        marked.append(f"`{base}`" + (f" x {scale}" if scale else "") + FOREIGN * _is_foreign(record, name))
    more = f", {len(marked) - _MANY} more" if len(marked) > _MANY else ""
    return ", ".join(marked[:_MANY]) + more if marked else "no graph"


def state_of(record: Record) -> str:
    """Commit, the beginning of the hash of the source where there is one, and whether the run was a quick one."""
    known = sorted(states(record))
    text = "; ".join(commit + (f" ({digest[:8]})" if digest else "") for commit, digest in known)
    return text + (", quick" if record["settings"].get("quick") else "")


def _capacity(record: Record) -> str:
    """Whose memory caches were kept to, and whose speed this is, where they were."""
    return f"; {capacity(record)}" if capacity(record) else ""


HEADER = ("paper", "what", "on", "against", "measured", "the paper says", "verdict", "GPU", "recorded at")


def rows(records: Mapping[str, Record], main_alone: bool = False) -> list[tuple[str, ...]]:
    """The cells of every line, or of every main one, whose record is there."""
    by_suite: dict[str, Record] = {}
    for name, each in records.items():
        if name == each["suite"] or each["suite"] not in by_suite:
            by_suite[each["suite"]] = each
    found: list[tuple[str, ...]] = []
    for line in LINES:
        record = by_suite.get(line.suite)
        if record is None or (main_alone and not line.is_main):
            continue
        points = line.points(record)
        if not points:
            continue
        what = line.reworded(record) if line.reworded else line.what
        claim = line.claim(record) if line.claim else None
        caveat = line.caveat(record) if line.caveat else ""
        measured, said_ = "-", "-"
        if line.is_for(record):
            measured = _cell([value for value, _ in points], line.unit)
            if claim and not caveat:
                judged = comparable(record, points)
                values = [value for value, _ in judged]
                if len(judged) < len(points):
                    measured += f"; judged without {FOREIGN}: {_cell(values, line.unit)}"
                said_ = verdict(values, claim) + _marks(record, judged)
        else:
            caveat = f"measured on an {line.only_on} only"
        found.append(
            (
                line.paper, what + _capacity(record) + f"; {caveat}" * bool(caveat), _graphs(record, points),
                line.against or "-", measured, claim.text if claim else "-", said_,
                _card(record, line), state_of(record),
            )
        )  # fmt: skip
    return found


def _card(record: Record, line: Line) -> str:
    """The GPU, and on how many of them the line was measured."""
    counts = {row.get(line.gpus or "") for row in record["rows"] if not is_modelled(row)}
    several = sorted(counts.intersection(line.among))
    if not several:
        return card_of(record, line.gpus)
    return f"{' and '.join(map(str, several))} x {card_of(record)}"


def comparable(record: Record, points: Points) -> Points:
    """What a verdict is on: the values on graphs that are like the paper's, or all where there is no such graph."""
    return [each for each in points if not _is_foreign(record, each[1])] or points


def _marks(record: Record, points: Points) -> str:
    """What a verdict rests on, where that is less than the paper's."""
    graphs = {graph for _, graph in points}
    alone = all(graph and _is_foreign(record, graph) for graph in graphs)
    less = record["settings"].get("quick") or any(scaled(graph)[1] < 1 for graph in graphs)
    return FOREIGN * alone + PARTIAL * bool(less)


def _origin(records: Mapping[str, Record]) -> str:
    """On what the records were made, and what was verified before."""
    commits = {commit_of(record["environment"]) for record in records.values()}
    of_gpu = collections.Counter(
        r["environment"]["gpu"]["name"] for r in records.values() if r["environment"]["gpu"]
    )
    gpus = [f"{count} on {name}" for name, count in of_gpu.most_common()]
    if count := len(records) - sum(of_gpu.values()):
        gpus.append(f"{count} on a CPU")
    parts = [
        f"{len(records)} records of {len(commits)} commits: {', '.join(gpus)}. "
        "No ratio is across two cards or two runs, but where a line says so."
    ]
    for record in records.values():
        if record["suite"] == "verify":
            checked = f"{record['verification']['samples_equal_to_cpu_twin']:,}".replace(",", " ")
            parts.append(
                f"{checked} samples of {record['settings']['configurations']} configurations, under every strategy and "
                f"kind of table, equal the CPU twin's ({commit_of(record['environment'])})."
            )
        if record["suite"] == "sanitize":
            errors = sum(sum(row[tool] for tool in record["tools"]) for row in record["rows"])
            launched = sum(row["launches"] > 0 for row in record["rows"])
            parts.append(
                f"compute-sanitizer's {len(record['tools'])} tools report {errors} errors in our {launched} kernels "
                f"that its cases launch ({commit_of(record['environment'])})."
            )
    return " ".join(parts)


_HOW_TO_READ = """\
The table below has the main lines; all of them, which the count above is of, are folded behind it. *Measured* is how
much better *what* is than *against*: above 1 x it is better, below it is worse (but for the floors, where 1 x is the
limit). The verdict is on the paper's own claim. *Reproduced*: no case says the opposite, and the
median reaches the paper's value, to 5 % (the best case does, where the paper names no other; "nearly linear" is 0.85 a
GPU). *Missed*: the same direction, but less of it or not in every case. *Reversed*: the median says the opposite.
`-like`: synthetic twins ([below](#twins-beside-their-originals)); †: not like the original in what the line rests on,
so that neither agreement nor its opposite says anything of the paper's graphs; a line that has others, too, is judged
on those alone, whose values it names. *Quick*: fewer settings and knobs; °: a
quick run, or graphs of which some are smaller than the paper's (x 0.25: a quarter)."""
_WHERE_FROM = """\
Rows of several commits stand side by side: each says where it was recorded, with the hash of its source where the
record holds one; `gnnsample-lab bench --stale` says which this checkout would not repeat. All numbers:
`gnnsample-lab bench report`; the stories behind them: [NOTES.md](data/measured/NOTES.md)."""
_TALLY = (
    "claims of",
    "in all",
    REPRODUCED,
    MISSED,
    "reversed",
    f"on twins unlike their originals ({FOREIGN})",
    f"of all these, quick or on smaller graphs ({PARTIAL})",
)


def tally(body: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """For each paper: its claims, how many were reproduced, missed, reversed, how many say nothing, and how many of
    them all rest on quick runs or smaller graphs; then all papers together. What a line asks for of itself is no claim.
    """
    told = [(line[0], line[6]) for line in body if line[6] != "-" and not line[5].startswith("-")]
    papers = list(dict.fromkeys(paper for paper, _ in told))
    rows = []
    for name in (*papers, ""):
        mine = [verdict_ for paper, verdict_ in told if name in ("", paper)]
        words = [
            sum(word in each and FOREIGN not in each for each in mine)
            for word in (REPRODUCED, MISSED, REVERSED)
        ]
        counts = (len(mine), *words, len(mine) - sum(words), sum(PARTIAL in each for each in mine))
        rows.append((name or "all", *map(str, counts)))
    return rows


def markdown(records: Mapping[str, Record]) -> str:
    """The table of main lines, before it how many claims hold and how to read a line, behind it where the numbers are
    from, and all lines, folded.

    Args:
        records: by name, as :func:`report.load` has them.
    """
    body = rows(records)
    return "\n".join([
        _origin(records), "", *markdown_table(_TALLY, tally(body)), "", _HOW_TO_READ, "",
        *markdown_table(HEADER, rows(records, main_alone=True)), "", _WHERE_FROM, "",
        f"<details><summary>All {len(body)} lines</summary>", "", *markdown_table(HEADER, body), "", "</details>",
    ])  # fmt: skip


def readme(text: str, records: Mapping[str, Record]) -> str:
    """``text`` with the table between its marks; as it is where it has none.

    Raises:
        ValueError: the marks are not there once each and in order.
    """
    if BEGIN not in text and END not in text:
        return text
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the text must have {BEGIN} and, behind it, {END}, each once")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{markdown(records)}\n{END}{rest.partition(END)[2]}"
