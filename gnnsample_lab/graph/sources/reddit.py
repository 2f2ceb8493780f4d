"""Reddit as DGL stores it: ``reddit_graph.npz`` and ``reddit_data.npz``, edges and splits as they are listed there."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gnnsample_lab.graph.catalogue import Entry
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.graph.sources import matrices, node_data, tables

_GRAPH, _DATA = "reddit_graph.npz", "reddit_data.npz"


def keys(entry: Entry) -> tuple[str, ...]:
    return (_GRAPH,)


def files(key: Path, entry: Entry) -> list[Path]:
    return [key, key.with_name(_DATA)]


def read(key: Path, entry: Entry, raw: bool = False) -> Graph:
    src, dst, num_nodes = matrices.edges(key)
    path = key.with_name(_DATA)
    with tables.npz(path) as archive:
        feat = archive.read("feature", dtype=np.float32)
        tables.check_shape(feat, (num_nodes, None), f"array 'feature' of {path}")
        label = node_data.labels(archive.read("label"), num_nodes, entry.get("num_classes") or -1, str(path))
        kind = archive.integers("node_types", num_nodes, below=4)
    splits = {s: np.flatnonzero(kind == i) for i, s in ((1, "train"), (2, "valid"), (3, "test"))}
    return Graph.from_edges(src, dst, num_nodes, feat=feat, label=label, splits=splits, name=entry["name"])
