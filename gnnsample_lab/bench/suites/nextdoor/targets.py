"""Targets of NextDoor's suites: transit-parallel everywhere at least on a par, walks against CPU, floor and CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gnnsample_lab.bench.target import Target, at_least, at_most

from .cases import MORE_FANOUTS

Record = dict[str, Any]


def _points(record: Record, value: str, **only: Any) -> list[tuple[float, str]]:
    """The rows' values that were timed on a GPU."""
    return [
        (float(row[value]), f"{row['graph']}, {row.get('app', row.get('method'))}")
        for row in record["rows"]
        if row.get(value) is not None
        and row.get("device") == "cuda"
        and all(row.get(key) in wanted for key, wanted in only.items())
    ]


_NO_LISTS = ("FastGCN", "LADIES")
"""Applications that read no neighbour lists through ``src_edges``: every parallelism runs the same kernels."""


def _figure7(record: Record) -> list[Target]:
    lists = [row for row in record["rows"] if row.get("app") not in _NO_LISTS]
    return [
        *at_least("transit-parallel over sample-parallel, everywhere", 0.95, "x", _points(record, "over_sample")),
        *at_least(
            "transit-parallel over sample-parallel, k-hop, at its best", 2.0, "x",
            _points(record, "over_sample", app=("k-hop", *MORE_FANOUTS)), best=True,
        ),
        *at_least(
            "transit-parallel over vanilla transit-parallel, where lists are read", 1.0, "x",
            _points({"rows": lists}, "over_vanilla"),
        ),
        *at_least("walks over one CPU core", 100.0, "x", _points(record, "over_cpu_core", kind=("walk",))),
    ]  # fmt: skip


def _floor(record: Record) -> list[Target]:
    return [
        *at_most(
            "uniform DeepWalk of 100 steps over the floor of its dependent reads", 3.0, "x",
            _points(record, "over_floor", app=("DeepWalk, uniform",)),
        ),
        *at_most(
            "weighted DeepWalk of 100 steps over the same floor, which reads no weights", 3.0, "x",
            _points(record, "over_floor", app=("DeepWalk",)),
        ),
        *at_most("next in Python over the same in CUDA", 1.2, "x", _points(record, "over_native")),
    ]  # fmt: skip


MAKERS: dict[str, Callable[[Record], list[Target]]] = {"nextdoor-fig7": _figure7, "nextdoor-floor": _floor}
"""Suite -> its targets."""
