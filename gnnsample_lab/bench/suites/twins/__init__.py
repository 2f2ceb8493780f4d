"""Twins beside their originals: what sampling sees of a synthetic graph, and of the graph that it stands for."""

from __future__ import annotations

from gnnsample_lab.bench.suite import Record, Suite
from gnnsample_lab.bench.targets import Target, at_most

from . import table


def _targets(record: Record) -> list[Target]:
    largest = max(record["rows"], key=lambda row: row["nodes"])
    where = f"{largest['graph']} x {largest['scale']:g}"
    return at_most(
        "seconds for the largest twin, on one GPU within 100 GB", 300.0, "s", [(largest["gpu_s"], where)]
    )


SUITES = (
    Suite(
        "twins", "suites.twins.run.twins",
        "twins beside real graphs and publications: rows, hit rates, match degrees, ...; needs no GPU",
        columns={
            "beside": "beside", "setting": "setting", "batch holds %": "batch_share_percent", "cells": "cells",
            "inside": "inside", "predicted": "predicted", "of them inside": "reproduced", "farthest": "worst",
            "in tolerances": "worst_off", "accepted": lambda row: "yes" if row["accepted"] else "NO",
            "recorded at": "state",
        },
        targets=table.targets, notes=table.notes, shown=table.verdicts, needs_gpu=False,
        one_by_one="suites.twins.run.graphs", merge=table.merged,
    ),
    Suite(
        "twin-graphs", "suites.twins.generating.generating",
        "generating twins: both devices make the same graph; seconds, within 100 GB",
        columns={
            "scale": "scale", "seed": "seed", "vertices": "nodes", "edges": "edges", "GPU s": "gpu_s",
            "first time s": "first_s", "CPU s": "cpu_s",
        },
        targets=_targets, last=True,
    ),
)  # fmt: skip
