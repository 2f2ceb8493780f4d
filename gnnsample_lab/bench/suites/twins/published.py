"""Published numbers of samples, each with what was sampled and where it stands.

``GNNLab`` is the EuroSys'22 paper; ``GNNLab, artifact`` what its authors print beside it (repository
SJTU-IPADS/gnnlab: ``exp/<table or figure>/readme.md``, ``study/<name>/data.dat``), which are the bars and curves of its
figures. Where both state a number and differ, or several runs are printed, the cell is their range.

What these samples have in common: uniform without replacement unless named otherwise; a frontier is everything seen so
far, seeds included; fanouts stand with the seeds' hop first; ``degree`` is the out-degree. GNNLab counts a vertex once
a mini-batch, and an epoch with its last incomplete mini-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .judge import label_of

GNNLAB = (15, 10, 5)
TWO_HOPS = (10, 25)
"""GNNLab's GraphSAGE: a seed draws 10, each of those 25."""
LAST_COUNTS = ("hit rate", "similarity", "match degree", "match spread")
"""Quantities that were published over whole epochs: the last incomplete mini-batch counts."""


@dataclass(frozen=True)
class Published:
    """One published number.

    Attributes:
        graph: the twin that it is compared with.
        quantity, detail: as in a :class:`~.judge.Cell`.
        low, high: its value, or the range of its sources.
        source: paper and table, or file of the artifact.
        sampler: ``"k-hop"``, ``"weighted"`` (k-hop, later neighbours likelier) or ``"walks"`` (PinSAGE).
        batch_size: seeds in a mini-batch.
        fanouts: the seeds' hop first; of the walks, PinSAGE's 3 layers of 5 neighbours by 4 walks of 3 steps.
        training: ``"train"``, or ``"uniform 2 %"`` of all vertices.
    """

    graph: str
    quantity: str
    detail: str
    low: float
    high: float
    source: str
    sampler: str = "k-hop"
    batch_size: int = 8000
    fanouts: tuple[int, ...] = GNNLAB
    training: str = "train"

    @property
    def setting(self) -> str:
        """What is sampled, in words; cells of one setting are measured together."""
        if self.quantity == "clustering":
            return ""
        if self.sampler == "walks":
            return f"{self.batch_size} walks"
        fanouts = f"{self.batch_size} x ({', '.join(map(str, self.fanouts))})"
        return f"{fanouts}, weighted" if self.sampler == "weighted" else fanouts

    @property
    def label(self) -> str:
        return label_of(self.quantity, self.detail, self.training, self.setting)


def _one(value: float | tuple[float, float]) -> tuple[float, float]:
    return value if isinstance(value, tuple) else (value, value)


def _rows(graph: str, values: Mapping[int, float | tuple[float, float]]) -> Iterator[Published]:
    source = "GNNLab, artifact: study/memory-profiler, bytes of a mini-batch's features over bytes of a row"
    for batch_size, value in values.items():
        yield Published(graph, "rows", "", *_one(value), source, batch_size=batch_size)


def _similarity(graph: str, **percents: float | tuple[float, float]) -> Iterator[Published]:
    for sampler, value in percents.items():
        name = sampler.replace("_", "-")
        yield Published(
            graph, "similarity", "", *_one(value), "GNNLab, table 2 and artifact exp/table2", name
        )


def _hits(
    graph: str, policy: str, values: Mapping[Any, Any], source: str, **setting: Any
) -> Iterator[Published]:
    for percent, value in values.items():
        yield Published(graph, "hit rate", f"{policy} {percent:g} %", *_one(value), source, **setting)


def _figure10(graph: str, **rates: tuple[float | tuple[float, float], ...]) -> Iterator[Published]:
    for sampler, values in rates.items():
        for policy, value in zip(("random", "degree", "presample", "optimal"), values, strict=True):
            source = "GNNLab, figure 10 (artifact exp/fig10)"
            yield from _hits(graph, policy, {10: value}, source, sampler=sampler.replace("_", "-"))


def _match(graph: str, degree: float, spread: float) -> Iterator[Published]:
    yield Published(graph, "match degree", "", degree, degree, "FastGL, table 4")
    yield Published(graph, "match spread", "", spread, spread, "FastGL, table 4")


def _clustering(graph: str, value: float) -> Iterator[Published]:
    source = "Open Graph Benchmark, table of its node datasets"
    yield Published(graph, "clustering", "", value, value, source, training="")


_TABLE5, _FIGURE12 = "GNNLab, table 5", "GNNLab, table 5 and artifact exp/fig12"
_CURVE = "GNNLab, figures 4a, 5a and 11b (artifact)"
_TRAINSET = "GNNLab, artifact: study/impact-of-trainset-percent"


def _all() -> Iterator[Published]:
    g = "products-like"
    for hop, size in ((2, 21_633), (3, 179_709)):
        yield Published(
            g, "frontier", f"hop {hop}", size, size, "PGSampler, table I", "k-hop", 2048, (10, 10, 10)
        )
    yield from _rows(g, {8000: (1_183_476, 1_184_418), 4000: 922_642, 2000: 662_096, 1000: 434_084})
    yield from _similarity(g, k_hop=(73.92, 73.97), walks=(78.16, 78.21), weighted=(77.69, 77.70))
    yield from _figure10(
        g,
        k_hop=(10.01, 19.12, 20.37, 20.67),
        walks=(10.0, 26.0, 30.0, 31.52),
        weighted=(10.01, 21.26, 24.37, 24.95),
    )
    yield from _match(g, 71.4, 7.0)
    yield from _clustering(g, 0.411)
    yield from _clustering("arxiv-like", 0.226)

    g = "papers100M-like"
    yield from _rows(g, {8000: (564_040, 568_303), 4000: 345_437, 2000: 201_012, 1000: 112_005})
    yield from _similarity(g, k_hop=(91.29, 91.30), walks=(87.11, 87.14), weighted=(89.57, 89.58))
    degree = {5: 28.93, 7: (37.0, 38.0), 10: 49.57, 15: 63.96, 20: 75.11, 21: 76.8, 25: 82.90, 30: 88.40}
    presample = {5: 96.02, 10: 98.29, 15: 98.51, 20: 98.52, 21: (98.52, 99.0), 25: 98.53, 30: 98.70}
    yield from _hits(g, "degree", degree, _CURVE)
    yield from _hits(g, "presample", presample, _CURVE)
    yield from _hits(g, "optimal", {5: 97.16, 10: 100.0}, _CURVE)
    yield from _figure10(g, walks=(10, 52, 97, 100), weighted=(9.95, 52.17, 97.94, 100))
    for policy, values in (("degree", {11: 56.0, 25: 84.0}), ("presample", {25: 99.0})):
        yield from _hits(g, policy, values, _FIGURE12, fanouts=TWO_HOPS)
    for policy, values in (("degree", {6: 37.0, 22: 79.0}), ("presample", {22: 97.0})):
        yield from _hits(g, policy, values, _FIGURE12, sampler="walks")
    for policy, value in (("degree", 74.74), ("presample", 98.21)):
        yield from _hits(g, policy, {21: value}, _FIGURE12, sampler="weighted")
    for policy, value in (("degree", 51.25), ("presample", 63.92), ("optimal", 65.39)):
        yield from _hits(g, policy, {10: value}, _TRAINSET, training="uniform 2 %")
    yield from _match(g, 38.0, 5.3)
    yield from _clustering(g, 0.085)

    g = "twitter-like"
    yield from _rows(g, {8000: (727_848, 728_667), 4000: 435_149, 2000: 254_024, 1000: 146_534})
    yield Published(g, "rows", "", 336_806, 336_806, "GNNLab, figure 5b (artifact exp/fig5b)", "weighted")
    yield from _similarity(g, k_hop=78.89, walks=72.68, weighted=66.64)
    yield from _figure10(
        g, k_hop=(9.93, 72.72, 74.87, 79.83), walks=(10, 75, 75, 84.37),
        weighted=(9.87, (48.38, 48.40), (63.99, 64.02), (74.33, 75.41)),
    )  # fmt: skip
    yield from _hits(g, "degree", {1: (29.0, 32.0), 25: 85.46}, _FIGURE12)
    yield from _hits(g, "presample", {25: (89.0, 89.43)}, _FIGURE12)
    for policy, values in (("degree", {15: 77.0, 32: 87.0}), ("presample", {32: 89.0})):
        yield from _hits(g, policy, values, _FIGURE12, fanouts=TWO_HOPS)
    for policy, values in (("degree", {4: 60.0, 26: 87.0}), ("presample", {26: 86.0})):
        yield from _hits(g, policy, values, _FIGURE12, sampler="walks")
    weighted: dict[str, Mapping[Any, Any]] = {
        "degree": {5: 42.92, 20: 52.45, 25: (53.58, 53.59), 30: 54.52},
        "presample": {5: 52.35, 20: 80.26, 25: (81.71, 81.72), 30: 82.98},
        "optimal": {5: 59.07, 20: 91.50, 25: 95.39, 30: 99.28},
    }  # fmt: skip
    for policy, curve in weighted.items():
        source = "GNNLab, figures 5b and 11a (artifact)"
        yield from _hits(g, policy, curve, source, sampler="weighted")

    g = "uk-like"
    yield from _rows(g, {8000: (519_445, 521_493), 4000: 265_236, 2000: 134_523, 1000: 67_717})
    yield from _similarity(g, k_hop=77.46, walks=(64.02, 64.40), weighted=72.96)
    yield from _figure10(
        g, k_hop=(9.84, 28.01, 61.29, 65.23), walks=(10, 28, 50, 58.96), weighted=(9.79, 32.02, 60.81, 66.87)
    )
    yield from _hits(g, "presample", {14: (69.53, 70.0)}, _FIGURE12)
    yield from _hits(g, "degree", {14: 35.95}, _FIGURE12)
    yield from _hits(g, "presample", {18: (72.0, 73.0)}, _FIGURE12, fanouts=TWO_HOPS)
    yield from _hits(g, "degree", {18: 44.0}, _FIGURE12, fanouts=TWO_HOPS)
    yield from _hits(g, "presample", {13: 57.0}, _FIGURE12, sampler="walks")
    yield from _hits(g, "degree", {13: 33.0}, _FIGURE12, sampler="walks")

    g = "friendster-like"
    yield from _rows(g, {8000: 3.460e6, 4000: 1.877e6, 2000: 983_603, 1000: 503_439})
    source = "GNNLab, artifact: study/exp-overall-8v100-gnnlab, two epochs of pre-sampling"
    yield from _hits(g, "presample", {33: 91.1}, source, fanouts=TWO_HOPS)

    yield from _match("reddit-like", 93.2, 4.9)
    yield from _match("mag-like", 35.3, 4.2)
    yield from _hits(
        "mag-like", "degree", {13.5: (0.0, 20.0)}, "FastGL, section 3: below 20 % with 520 MB left"
    )


CELLS: tuple[Published, ...] = tuple(_all())
GRAPHS: tuple[str, ...] = tuple(dict.fromkeys(cell.graph for cell in CELLS))


def cells_of(graph: str) -> tuple[Published, ...]:
    """The published numbers of a twin, by its catalogue name without a scale."""
    return tuple(cell for cell in CELLS if cell.graph == graph)


def labels(graph: str) -> list[str]:
    """The cells of a twin in words, as the sources of its parameters name them."""
    return [cell.label for cell in cells_of(graph)]


def by_setting(cells: Iterable[Published]) -> dict[tuple[str, str], list[Published]]:
    """(setting, training set) -> the cells that are measured together."""
    found: dict[tuple[str, str], list[Published]] = {}
    for cell in cells:
        found.setdefault((cell.setting, cell.training), []).append(cell)
    return found
