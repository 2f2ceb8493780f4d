"""Cora-full, Coauthor CS and Physics, Amazon Computers and Photo as gnn-benchmark (Shchur et al.) stores them.

One ``.npz`` each. The adjacency matrix lies in compressed rows in ``adj_*``; the features lie so in ``attr_*``, or
dense in ``attr_matrix``; ``labels`` has a class a vertex, or ``labels_*`` several in compressed rows. As the authors'
loader does without its ``standardize``, edges are taken in both directions, each once, and self-loops are left out;
all vertices stay, and features stay counts. Names and other Python objects in the archive are not read. The source
defines no splits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gnnsample_lab.graph.catalogue import Entry
from gnnsample_lab.graph.csc import undirected_union
from gnnsample_lab.graph.errors import CorruptDataError
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.graph.sources import matrices, node_data, tables


def keys(entry: Entry) -> tuple[str, ...]:
    return (entry["url"].rpartition("/")[2], "*.npz")


def files(key: Path, entry: Entry) -> list[Path]:
    return [key]


def read(key: Path, entry: Entry, raw: bool = False) -> Graph:
    with tables.npz(key) as archive:
        shape = archive.integers("adj_shape", 2).tolist()
        num_nodes = node_data.count(shape[0], "vertices", key)
        if shape != [num_nodes, num_nodes]:
            raise CorruptDataError(
                f"array 'adj_shape' of {key} must be of a square matrix (got {tuple(shape)})"
            )
        dst = archive.integers("adj_indices", None, below=num_nodes)
        src = matrices.rows(archive, "adj_indptr", num_nodes, len(dst))
        label = node_data.labels(
            _labels(archive, num_nodes), num_nodes, entry.get("num_classes") or -1, str(key)
        )
        feat = _features(archive, num_nodes)
    between = src != dst
    src, dst = undirected_union(src[between], dst[between], num_nodes)
    return Graph.from_edges(src, dst, num_nodes, feat=feat, label=label, name=entry["name"])


def _labels(archive: tables.Archive, num_nodes: int) -> np.ndarray:
    if "labels_data" not in archive.names:
        return archive.read("labels")
    return matrices.dense(archive, "labels", num_nodes, _columns(archive, "labels", num_nodes))


def _features(archive: tables.Archive, num_nodes: int) -> np.ndarray | None:
    if "attr_data" in archive.names or "attr_shape" in archive.names:
        return matrices.dense(archive, "attr", num_nodes, _columns(archive, "attr", num_nodes))
    if "attr_matrix" not in archive.names:
        return None
    feat = archive.read("attr_matrix", dtype=np.float32)
    tables.check_shape(feat, (num_nodes, None), f"array 'attr_matrix' of {archive.path}")
    return feat


def _columns(archive: tables.Archive, name: str, num_nodes: int) -> int:
    num_rows, num_columns = archive.integers(f"{name}_shape", 2).tolist()
    if num_rows != num_nodes:
        raise CorruptDataError(
            f"array '{name}_shape' of {archive.path} must have {num_nodes} rows, as 'adj_shape' says (got {num_rows})"
        )
    return int(num_columns)
