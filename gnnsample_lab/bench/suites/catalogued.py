"""A paper's table of graphs, from the catalogue: nothing is generated."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import Unavailable
from gnnsample_lab.graph import catalogue

UNITS = {"gb": 1e9, "gib": 2**30}
"""Bytes of the units that tables have, by the ends of their fields' names."""


def table(session: Session, names: tuple[str, ...], unit: str) -> dict[str, Any]:
    """The record of a suite: sizes of twins in full, topology and features in ``unit``."""
    rows, facts = [], {}
    for name in session.graphs(*names):
        if name.startswith("snap:"):
            raise Unavailable(f"only graphs of the catalogue stand in this table (got {name})")
        found = catalogue.entry(name.partition("@")[0])
        nodes, edges, features = (int(found[f"num_{what}"]) for what in ("nodes", "edges", "features"))
        topology = edges * np.dtype(np.int32).itemsize + 8 * (nodes + 1)
        rows.append({
            "graph": name, "num_nodes": nodes, "num_edges": edges, "average_degree": edges / nodes,
            "num_features": features, "num_classes": int(found["num_classes"]), "train": int(found["num_train"]),
            f"topology_{unit}": topology / UNITS[unit],
            f"feature_{unit}": nodes * features * np.dtype(np.float32).itemsize / UNITS[unit],
        })  # fmt: skip
        facts[name] = {"name": name, "title": f"{name} (synthetic)", "is_synthetic": True, "version": None}
    return {
        "settings": {
            f"topology_{unit}": "lists of 4-byte ids and 8-byte offsets", f"feature_{unit}": "4 bytes a feature",
        },
        "verification": {"graphs_in_the_catalogue": len(rows)}, "graphs": facts, "rows": rows,
    }  # fmt: skip
