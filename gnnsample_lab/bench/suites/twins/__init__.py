"""Twins beside their originals: what sampling sees of a synthetic graph, and of the graph that it stands for."""

from __future__ import annotations

from gnnsample_lab.bench.suite import Suite

from . import table

SUITES = (
    Suite(
        "twins", "suites.twins.run.twins",
        "twins beside real graphs and publications: rows, hit rates, match degrees, ...; needs no GPU",
        columns={
            "beside": "beside", "setting": "setting", "batch holds %": "batch_share_percent", "cells": "cells",
            "inside": "inside", "predicted": "predicted", "of them inside": "reproduced", "farthest": "worst",
            "in tolerances": "worst_off", "accepted": lambda row: "yes" if row["accepted"] else "NO",
        },
        targets=table.targets, notes=table.notes, shown=table.verdicts, needs_gpu=False,
        one_by_one="suites.twins.run.graphs", merge=table.merged,
    ),
)  # fmt: skip
