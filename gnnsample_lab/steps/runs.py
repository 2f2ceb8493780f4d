"""Runs of the mechanisms: as shipped, or with a broken line in an order of the warps that shows what fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType, ModuleType
from typing import Any

from gnnsample_lab import checks
from gnnsample_lab.graph.graph import check_graph

from . import frontier, id_map, queue, transit
from .base import Mutation, Recorded
from .example import karate_club

MECHANISMS: Mapping[str, ModuleType] = MappingProxyType(
    {
        "claim a slot": queue,
        "insert into Fused-Map": id_map,
        "gather a transit's list": transit,
        "grow a frontier": frontier,
    }
)
"""The mechanisms, by name."""
_ORDERS = 16
"""Orders of the warps that are tried."""
_AFTER = 8
"""Steps that are kept after the first violation."""


def mutations(mechanism: str) -> tuple[Mutation, ...]:
    """The lines of a mechanism that can be broken.

    Args:
        mechanism: a name of :data:`MECHANISMS`.

    Raises:
        TypeError, ValueError: another one.
    """
    return tuple(MECHANISMS[checks.choice("mechanism", mechanism, MECHANISMS)].MUTATIONS)


def run(mechanism: str, broken: str | None = None, graph: Any = None) -> Recorded:
    """Run a mechanism on a small example, and record each line of each warp.

    As shipped, the run is in the first order of the warps. With a broken line it is in the order, of 16, in which the
    first violation comes earliest, and ends a few steps after it. There warps may be delayed, to bring one about; where
    none comes, the run is in the first order without delays, as that of the kernel as shipped.

    Args:
        mechanism: a name of :data:`MECHANISMS`.
        broken: the name of one of its :func:`mutations`, or None for the kernel as shipped.
        graph: a graph that the example is taken from; Zachary's karate club when None.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, or no such name, or the graph has no vertex that the
            example could use.
    """
    known = {each.name: each for each in mutations(mechanism)}
    if broken is not None:
        checks.choice("broken", broken, known)
    if graph is not None:
        graph = check_graph(graph).to("cpu", features=False)
    module = MECHANISMS[mechanism]
    made = module.example(karate_club() if graph is None else graph)
    slow = known[broken].slow if broken else ""
    tried, failed = _ORDERS if module.ORDERS else 1, 0
    shown: Recorded = module.record(made, broken, 0, slow)
    earliest = shown.violation
    for seed in range(tried):
        # One run is kept at a time: its arrays may be as long as the graph has vertices.
        one = shown if seed == 0 else module.record(made, broken, seed, slow)
        failed += one.violation is not None
        if one.violation and (earliest is None or one.violation[0] < earliest[0]):
            shown, earliest = one, one.violation
    if slow and not earliest:
        # Delays cost sectors, too: without them the run can be compared with that of the kernel as shipped.
        shown = module.record(made, broken, 0)
        tried, failed, earliest = tried + 1, int(shown.violation is not None), shown.violation
    if earliest:
        shown = replace(shown, steps=shown.steps[: earliest[0] + 1 + _AFTER])
    return replace(shown, schedules=(tried, failed))
