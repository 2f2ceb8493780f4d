"""What a target is, the two ways in which rows meet one, and how a row is turned into a point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

Point = tuple[float, str]
"""A measured value, and where it was measured."""


class Target(NamedTuple):
    """One target: ``measured`` is the worst (or, where the text says so, the best) row that it applies to.

    ``card``: whose limit it is, where the row was measured on another card; empty for limits of any card, and on the
    card itself.
    """

    what: str
    target: str
    measured: float
    unit: str
    met: bool
    where: str
    card: str = ""


def at_most(what: str, limit: float, unit: str, points: Iterable[Point]) -> list[Target]:
    """The largest of ``points`` may not exceed ``limit``; no target without points."""
    measured = max(points, default=None)
    if measured is None:
        return []
    return [Target(what, f"at most {limit:g}", measured[0], unit, measured[0] <= limit, measured[1])]


def at_least(
    what: str, limit: float, unit: str, points: Iterable[Point], best: bool = False
) -> list[Target]:  # fmt: skip
    """The smallest of ``points``, or with ``best`` the largest, has to reach ``limit``."""
    points = list(points)
    if not points:
        return []
    measured = max(points) if best else min(points)
    return [Target(what, f"at least {limit:g}", measured[0], unit, measured[0] >= limit, measured[1])]


def of_card(card: str, record: Mapping[str, Any], found: Iterable[Target]) -> list[Target]:
    """``found``, targets in times of one card: where ``record`` is of another, each says whose it is.

    Args:
        card: in the name of the card that the limits were chosen on.
    """
    gpu = record["environment"].get("gpu") or {}
    return [target._replace(card="" if card in gpu.get("name", "") else card) for target in found]


def on_each_graph(
    check: Callable[..., list[Target]], what: str, limit: float, unit: str, points: Iterable[Point]
) -> list[Target]:
    """``check``, :func:`at_most` or :func:`at_least`, on every graph by itself, so that no graph hides another.

    Args:
        points: placed by :func:`task`, or by another text whose first part, up to a comma, is the graph.
    """
    graphs: dict[str, list[Point]] = {}
    for value, where in points:
        graphs.setdefault(where.partition(",")[0], []).append((value, where))
    return [target for name, of in graphs.items() for target in check(f"{what}, {name}", limit, unit, of)]


def points_of(rows: Iterable[dict[str, Any]], value: str, *where: str) -> list[Point]:
    """The rows that have ``value``, placed by their fields ``where``."""
    return [
        (float(row[value]), ", ".join(str(row[key]) for key in where))
        for row in rows
        if row.get(value) is not None
    ]


def task(row: dict[str, Any]) -> str:
    """Graph, seeds and fanouts of a row of a sampling suite."""
    return f"{row['graph']}, {row['batch_size']} seeds x {tuple([row['fanout']] * row['hops'])}"
