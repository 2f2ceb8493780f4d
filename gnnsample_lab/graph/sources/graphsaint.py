"""Flickr, Yelp and Amazon as GraphSAINT stores them, one folder each.

``adj_full.npz`` is the adjacency matrix in compressed rows as SciPy saves it, ``feats.npy`` has one row a vertex,
``class_map.json`` a class (Flickr) or a list of 0 and 1 (Yelp, Amazon) for each, and ``role.json`` the ids of the
splits. Edges are taken as they are listed, and features as they are stored: GraphSAINT's trainer standardises them by
the training vertices first. ``adj_train.npz`` is the part of ``adj_full.npz`` between training vertices, follows from
the rest, and is not read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.files import read_json, reading
from gnnsample_lab.graph.catalogue import Entry
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.graph.sources import matrices, node_data, tables

_KEY = "adj_full.npz"
_OTHERS = ("feats.npy", "class_map.json", "role.json")
_ROLES = (("tr", "train"), ("va", "valid"), ("te", "test"))


def keys(entry: Entry) -> tuple[str, ...]:
    return (_KEY,)


def files(key: Path, entry: Entry) -> list[Path]:
    return [key, *(key.with_name(name) for name in _OTHERS)]


def read(key: Path, entry: Entry, raw: bool = False) -> Graph:
    _, feats, class_map, roles = files(key, entry)
    src, dst, num_nodes = matrices.edges(key)
    feat = tables.npy(feats, dtype=np.float32)
    tables.check_shape(feat, (num_nodes, None), str(feats))
    classes = read_json(class_map)
    with reading(class_map, "a class for each vertex"):
        if len(classes) != num_nodes:
            raise ValueError(f"it has {len(classes):,} entries, the graph {num_nodes:,} vertices")
        values = np.asarray([classes[str(v)] for v in range(num_nodes)])
        label = node_data.labels(values, num_nodes, entry.get("num_classes") or -1, str(class_map))
    role = read_json(roles)
    with reading(roles, "lists of vertices"):
        splits = node_data.splits({s: (_ids(role[k]), str(roles)) for k, s in _ROLES}, num_nodes)
    return Graph.from_edges(src, dst, num_nodes, feat=feat, label=label, splits=splits, name=entry["name"])


def _ids(listed: Any) -> np.ndarray:
    ids = np.asarray(listed) if listed else np.empty(0, dtype=np.int64)
    if ids.ndim != 1 or ids.dtype.kind != "i":
        raise ValueError(f"vertex ids must be a list of integers (got dtype {ids.dtype}, shape {ids.shape})")
    return ids.astype(np.int64)
