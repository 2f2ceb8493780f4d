"""When a twin passes: tolerances, the verdict on a cell, the verdict on a graph. Pure functions of numbers.

A **cell** holds one quantity of a twin beside the same quantity of its original, measured here or published. A cell is
inside when the two differ by no more than its tolerance. A graph is accepted when nine cells of ten are inside and none
is off by more than twice its tolerance.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

GIVEN, FITTED, PREDICTED = "given", "fitted", "predicted"
STATUSES = (GIVEN, FITTED, PREDICTED)
"""``given``: a parameter of the generator, or what follows from one without a sample. ``fitted``: a parameter was set
so that this quantity comes out. ``predicted``: neither; only such a cell can confirm that the twin samples like its
original."""

RELATIVE, POINTS = "relative", "points"
TOLERANCES: dict[str, tuple[str, float]] = {
    "degree quantile": (RELATIVE, 0.10),
    "rows": (RELATIVE, 0.10),
    "frontier": (RELATIVE, 0.10),
    "top share": (POINTS, 5.0),
    "hit rate": (POINTS, 5.0),
    "match degree": (POINTS, 5.0),
    # Five points would pass batches that are all alike beside the 4 to 7 points that FastGL prints.
    "match spread": (RELATIVE, 0.50),
    "similarity": (POINTS, 5.0),
    "gini": (POINTS, 0.03),
    "clustering": (POINTS, 0.03),
}
"""Quantity -> how far a twin may be off: as a share of the original's value, or in the quantity's own unit. Shares, hit
rates, match degrees and similarities are in percent; Gini coefficients and clustering in 0..1; the rest are counts."""
STEP = {"degree quantile": 1.0}
"""Quantity -> what it may always be off by: quantiles of degrees are whole neighbours, and most vertices have few."""
SPREADS = 2.0
"""A cell may also be off by this many times the spread of the original over its own training splits."""
ENOUGH = 0.9
"""Share of a graph's cells that have to be inside."""
WORST = 2.0
"""Tolerances by which no cell may be off."""
FITTED_TO_PUBLISHED = 2
"""Published numbers of a graph to which parameters of its twin may be fitted; every other has to come out by itself."""
_SLACK = 1e-9
"""Exactly at a tolerance is inside, whatever the rounding of decimal fractions."""


@dataclass(frozen=True)
class Cell:
    """One quantity of a twin beside its original.

    Attributes:
        graph: name of the twin.
        beside: ``"real"`` (measured here on the original) or ``"published"``.
        quantity: a key of :data:`TOLERANCES`.
        detail: which one, for instance ``"presample 10 %"`` or ``"hop 2"``.
        training: training set: ``"random"``, ``"corner"``, ``"train"`` (the graph's own) or ``""`` where none matters.
        twin: the twin's value, the median over its seeds.
        low, high: the original's value; a range where sources disagree.
        spread: how far the original's own value spreads over training splits (largest minus smallest); 0 unknown.
        status: one of :data:`STATUSES`.
        twins: the twin's value for each seed.
        source: where the original's value comes from.
        setting: what was sampled: batch, fanouts, cache.
    """

    graph: str
    beside: str
    quantity: str
    detail: str
    training: str
    twin: float
    low: float
    high: float
    spread: float = 0.0
    status: str = PREDICTED
    twins: tuple[float, ...] = ()
    source: str = ""
    setting: str = ""

    def __post_init__(self) -> None:
        if self.quantity not in TOLERANCES:
            raise ValueError(f"quantity must be one of {', '.join(TOLERANCES)} (got {self.quantity!r})")
        if self.status not in STATUSES:
            raise ValueError(f"status must be one of {', '.join(STATUSES)} (got {self.status!r})")
        if not self.low <= self.high:
            raise ValueError(f"low must not exceed high (got {self.low} and {self.high})")

    @property
    def tolerance(self) -> float:
        return tolerance(self.quantity, self.low, self.high, self.spread)

    @property
    def off(self) -> float:
        """Distance from the original in tolerances; 0 inside its range, infinite for a twin without the value."""
        return off(self.twin, self.low, self.high, self.tolerance)

    @property
    def inside(self) -> bool:
        return self.off <= 1 + _SLACK

    def row(self) -> dict[str, Any]:
        """The cell as a row of a record, verdict included."""
        return {**asdict(self), "twins": list(self.twins), "tolerance": self.tolerance, "off": self.off,
                "inside": self.inside}  # fmt: skip


def tolerance(quantity: str, low: float, high: float, spread: float = 0.0) -> float:
    """How far a value may lie from ``low..high``, in the unit of the quantity."""
    kind, much = TOLERANCES[quantity]
    base = much * max(abs(low), abs(high)) if kind == RELATIVE else much
    return max(base, STEP.get(quantity, 0.0), SPREADS * spread)


def off(value: float, low: float, high: float, allowed: float) -> float:
    """Distance of ``value`` from ``low..high`` in tolerances."""
    if not math.isfinite(value):
        return math.inf
    away = max(low - value, value - high, 0.0)
    if not away:
        return 0.0
    return away / allowed if allowed else math.inf


def cell_of(row: Mapping[str, Any]) -> Cell:
    """A row of a record as the cell that it was; the verdict stored beside it is not read."""
    names = Cell.__dataclass_fields__
    values = {name: row[name] for name in names if name in row}
    values["twin"] = math.nan if row["twin"] is None else row["twin"]
    values["twins"] = tuple(math.nan if one is None else one for one in row.get("twins", ()))
    return Cell(**values)


@dataclass(frozen=True)
class Verdict:
    """What the cells of a graph say together.

    Attributes:
        cells, inside: how many were compared, and how many are inside.
        predicted, reproduced: how many of them are predicted, and how many predicted ones are inside.
        worst_off: distance of the farthest cell in tolerances; 0 without cells.
        worst: which cell that is.
        accepted: nine cells of ten are inside and none is off by more than twice its tolerance; False where no
            predicted cell was compared.
    """

    cells: int
    inside: int
    predicted: int
    reproduced: int
    worst_off: float
    worst: str
    accepted: bool


def verdict(cells: Iterable[Cell]) -> Verdict:
    """The verdict on one graph."""
    cells = list(cells)
    inside = sum(cell.inside for cell in cells)
    predicted = [cell for cell in cells if cell.status == PREDICTED]
    worst = max(cells, key=lambda cell: cell.off, default=None)
    # Given and fitted cells alone say that the generator does what it was told, not that samples are alike.
    told = worst is not None and worst.off <= WORST + _SLACK and bool(predicted)
    accepted = told and inside >= ENOUGH * len(cells) - _SLACK
    return Verdict(
        len(cells), inside, len(predicted), sum(cell.inside for cell in predicted),
        worst.off if worst else 0.0, label(worst) if worst else "", accepted,
    )  # fmt: skip


def label_of(quantity: str, detail: str, training: str, setting: str = "") -> str:
    """A cell in words: what it is, its training set unless that is the graph's own, and what was sampled."""
    words = [f"{quantity} {detail}".strip()]
    if training not in ("", "train"):
        words.append(f"{training} training set")
    return ", ".join([*words, setting] if setting else words)


def label(cell: Cell) -> str:
    """A cell in words; of a published one the setting is part of its name, beside real graphs there is one setting."""
    return label_of(
        cell.quantity, cell.detail, cell.training, cell.setting if cell.beside == "published" else ""
    )


_GIVEN_BY = {
    "degree quantile": "degrees",
    "gini": "degrees",
    "top share": "degrees",
    "clustering": "clustering",
}
"""Quantity -> the parameter of the generator that it is, or follows from."""


def status_of(
    quantity: str, detail: str, training: str, setting: str = "", sources: Mapping[str, Any] | None = None
) -> str:
    """Whether a cell is given, fitted or predicted, as the sources of the twin's parameters tell.

    A source that begins with ``fitted to`` names the cells that its parameter was fitted to, separated by semicolons,
    each as :func:`label_of` writes it, without the setting where all settings are meant; what stands in parentheses
    behind a name that it is not part of is a remark. A cache of random vertices hits as often as its ratio says, so
    that this rate is given too.

    A source such as ``fitted to clustering, by generating`` names no cell: there one parameter was set so that another,
    which was given, comes out.

    Args:
        quantity, detail, training, setting: of the cell.
        sources: parameter -> text, from the statistics that the twin was made of.
    """
    sources = sources or {}
    names = {label_of(quantity, detail, training, setting), label_of(quantity, detail, training)}
    if any(names & set(fitted_to(str(text))) for text in sources.values()):
        return FITTED
    parameter = _GIVEN_BY.get(quantity)
    if parameter and parameter in sources and not fitted_to(str(sources[parameter])):
        return GIVEN
    return GIVEN if quantity == "hit rate" and detail.startswith("random ") else PREDICTED


def fitted_to(text: str) -> list[str]:
    """The cells that a source says its parameter was fitted to; none where it was not fitted to samples."""
    start, structural = "fitted to ", ", by generating"
    if not text.startswith(start) or text.endswith(structural):
        return []
    return [
        re.sub(r"\s*\((?!\d+(, \d+)*\)).*\)$", "", part.strip()) for part in text[len(start) :].split(";")
    ]


def check_no_circle(cells: Sequence[Cell]) -> None:
    """At most two published numbers of a graph may have been fitted.

    Raises:
        ValueError: more are; the message names them.
    """
    fitted: dict[str, list[str]] = {}
    for cell in cells:
        if cell.beside == "published" and cell.status == FITTED:
            fitted.setdefault(cell.graph, []).append(label(cell))
    for graph, names in fitted.items():
        if len(names) > FITTED_TO_PUBLISHED:
            raise ValueError(
                f"{graph} may be fitted to at most {FITTED_TO_PUBLISHED} published numbers (got {len(names)}: "
                f"{'; '.join(names)})"
            )
