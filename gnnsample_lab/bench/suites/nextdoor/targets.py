"""Targets of NextDoor's suites: transit-parallel everywhere at least on a par, walks against CPU, floor and CUDA."""

from __future__ import annotations

from collections.abc import Callable

from gnnsample_lab.bench import peers
from gnnsample_lab.bench.suite import Record, Row
from gnnsample_lab.bench.targets import Point, Target, at_least, at_most, of_card, points_of


def _timed(record: Record, value: str, wanted: Callable[[Row], bool] = lambda row: True) -> list[Point]:
    """The points of the wanted rows that were timed on a GPU."""
    rows = (row for row in record["rows"] if row.get("device") == "cuda" and wanted(row))
    return points_of(rows, value, "graph", "app")


_NO_LISTS = ("FastGCN", "LADIES")
"""Applications that read no neighbour lists through ``src_edges``: every parallelism runs the same kernels."""


def figure7(record: Record) -> list[Target]:
    """Transit-parallel, as published and ours, against the other schedules; ours against one CPU core."""
    return [
        *at_least(
            "transit-parallel as published over sample-parallel, everywhere", 1.09, "x",
            _timed(record, "published_over_sample"),
        ),
        *at_least("transit-parallel over sample-parallel, everywhere", 0.95, "x", _timed(record, "over_sample")),
        *at_least(
            "transit-parallel over sample-parallel, k-hop, everywhere", 2.0, "x",
            _timed(record, "over_sample", lambda row: row["app"].startswith("k-hop")),
        ),
        *at_least(
            "transit-parallel over vanilla transit-parallel, where lists are read", 1.0, "x",
            _timed(record, "over_vanilla", lambda row: row["app"] not in _NO_LISTS),
        ),
        *at_least(
            "walks over one CPU core", 100.0, "x",
            _timed(record, "over_cpu_core", lambda row: row["kind"] == "walk"),
        ),
    ]  # fmt: skip


def released(record: Record) -> list[Target]:
    """A rung with the paper's name is at least as fast as what its authors released, on the card that theirs ran on."""
    found = at_least(
        "the released kernels' time over that of transit-parallel as published", 1.0, "x",
        _timed(record, "released_over_published"),
    )  # fmt: skip
    return of_card(peers.CARD, record, found)


def floor(record: Record) -> list[Target]:
    """Walks over their floor; ``next`` in Python over the same in CUDA."""
    return [
        *at_most(
            "uniform DeepWalk of 100 steps over the floor of its dependent reads", 3.0, "x",
            _timed(record, "over_floor", lambda row: row["app"] == "DeepWalk, uniform"),
        ),
        *at_most(
            "weighted DeepWalk of 100 steps over the same floor, which reads no weights", 3.0, "x",
            _timed(record, "over_floor", lambda row: row["app"] == "DeepWalk"),
        ),
        *at_most("next in Python over the same in CUDA", 1.2, "x", _timed(record, "over_native")),
    ]  # fmt: skip
