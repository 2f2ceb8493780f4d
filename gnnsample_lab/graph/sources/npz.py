"""Graphs that come as NumPy archives: Reddit (DGL's), Flickr and Yelp (GraphSAINT's), Coauthor
(gnn-benchmark's).

Archives may hold pickled object arrays; they are opened with pickling off, and the arrays read here are
plain.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.files import read_json, reading
from gnnsample_lab.graph.csc import undirected_union
from gnnsample_lab.graph.errors import CorruptDataError
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.graph.sources import node_data, tables


def _rows(archive: tables.Archive, indptr: str, num_rows: int, num_entries: int) -> np.ndarray:
    """int64[entries]: the row of each entry of a matrix in compressed rows."""
    offsets = archive.integers(indptr, num_rows + 1)
    if offsets[0] != 0 or offsets[-1] != num_entries or bool((offsets[1:] < offsets[:-1]).any()):
        raise CorruptDataError(
            f"array {indptr!r} of {archive.path} must rise from 0 to the number of entries, {num_entries}"
        )
    return np.repeat(np.arange(num_rows, dtype=np.int64), np.diff(offsets))


def _sparse_edges(path: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """``(src, dst, num_nodes)`` of a matrix in SciPy's .npz form; entry (i, j) is the edge i -> j."""
    with tables.npz(path) as archive:
        shape = archive.integers("shape", 2).tolist()
        if shape[0] != shape[1]:
            raise CorruptDataError(f"{path} must hold a square matrix (got shape {tuple(shape)})")
        num_nodes = node_data.count(shape[0], "vertices", path)
        form = archive.text("format") if "format" in archive.names else None
        if "row" in archive.names and form in (None, "coo"):
            src = archive.integers("row", None, below=num_nodes)
            return src, archive.integers("col", len(src), below=num_nodes), num_nodes
        if form not in (None, "csr"):
            raise CorruptDataError(f"{path} must be in format coo or csr (got {form!r})")
        dst = archive.integers("indices", None, below=num_nodes)
        return _rows(archive, "indptr", num_nodes, len(dst)), dst, num_nodes


def read_reddit(folder: Path, name: str, num_classes: int) -> Graph:
    """``reddit_graph.npz`` and ``reddit_data.npz``."""
    src, dst, num_nodes = _sparse_edges(folder / "reddit_graph.npz")
    path = folder / "reddit_data.npz"
    with tables.npz(path) as archive:
        feat = archive.read("feature")
        tables.check_shape(feat, (num_nodes, None), f"array 'feature' of {path}")
        label = node_data.labels(archive.read("label"), num_nodes, num_classes, str(path))
        kind = archive.integers("node_types", num_nodes, below=4)
    splits = {s: np.flatnonzero(kind == i) for i, s in ((1, "train"), (2, "valid"), (3, "test"))}
    return Graph.from_edges(src, dst, num_nodes, feat=feat, label=label, splits=splits, name=name)


def read_graphsaint(folder: Path, name: str, num_classes: int) -> Graph:
    """``adj_full.npz``, ``feats.npy``, ``class_map.json`` and ``role.json``."""
    src, dst, num_nodes = _sparse_edges(folder / "adj_full.npz")
    feat = tables.npy(folder / "feats.npy")
    tables.check_shape(feat, (num_nodes, None), str(folder / "feats.npy"))
    path = folder / "class_map.json"
    classes = read_json(path)
    with reading(path, "a class for each vertex"):
        if len(classes) != num_nodes:
            raise ValueError(f"it has {len(classes):,} entries, the graph {num_nodes:,} vertices")
        label = node_data.labels(
            np.asarray([classes[str(v)] for v in range(num_nodes)]), num_nodes, num_classes, str(path)
        )
    path = folder / "role.json"
    role = read_json(path)
    with reading(path, "lists of vertices"):
        parts = {s: (_ids(role[k]), str(path)) for k, s in (("tr", "train"), ("va", "valid"), ("te", "test"))}
        splits = node_data.splits(parts, num_nodes)
    return Graph.from_edges(src, dst, num_nodes, feat=feat, label=label, splits=splits, name=name)


def _ids(listed: Any) -> np.ndarray:
    ids = np.asarray(listed) if listed else np.empty(0, dtype=np.int64)
    if ids.ndim != 1 or ids.dtype.kind != "i":
        raise ValueError(f"vertex ids must be a list of integers (got dtype {ids.dtype}, shape {ids.shape})")
    return ids.astype(np.int64)


def read_gnn_benchmark(folder: Path, name: str, num_classes: int) -> Graph:
    """One ``*.npz`` with ``adj_*`` and ``attr_*`` in compressed rows; it defines no splits."""
    path = next(iter(sorted(folder.glob("*.npz"))), None)
    if path is None:
        raise CorruptDataError(f"{folder} holds no .npz")
    with tables.npz(path) as archive:
        num_nodes, num_features = archive.integers("attr_shape", 2).tolist()
        node_data.count(num_nodes, "vertices", path)
        node_data.count(num_nodes * num_features, "features", path)
        if archive.integers("adj_shape", 2).tolist() != [num_nodes, num_nodes]:
            raise CorruptDataError(
                f"array 'adj_shape' of {path} must be ({num_nodes}, {num_nodes}), as 'attr_shape' says"
            )
        dst = archive.integers("adj_indices", None, below=num_nodes)
        src = _rows(archive, "adj_indptr", num_nodes, len(dst))
        label = node_data.labels(archive.read("labels"), num_nodes, num_classes, str(path))
        column = archive.integers("attr_indices", None, below=num_features)
        values = archive.read("attr_data")
        tables.check_shape(values, (len(column),), f"array 'attr_data' of {path}")
        feat = np.zeros((num_nodes, num_features), dtype=np.float32)
        feat[_rows(archive, "attr_indptr", num_nodes, len(column)), column] = values
    between = src != dst
    src, dst = undirected_union(src[between], dst[between], num_nodes)
    return Graph.from_edges(src, dst, num_nodes, feat=feat, label=label, name=name)


READERS: dict[str, tuple[Callable[[Path, str, int], Graph], str]] = {
    "reddit": (read_reddit, "reddit_graph.npz"),
    "graphsaint": (read_graphsaint, "adj_full.npz"),
    "gnn-benchmark": (read_gnn_benchmark, "*.npz"),
}
"""Reader and the file pattern that makes a folder usable, by the catalogue's ``format``."""


def find(folders: list[Path], pattern: str) -> Path | None:
    """The first folder that holds ``pattern``, directly, under ``raw/`` or one level down."""
    for folder in folders:
        for hit in (*sorted(folder.glob(pattern)), *sorted(folder.glob(f"*/{pattern}"))):
            return hit.parent
    return None


def read(folder: Path, form: str, name: str, num_classes: int = -1) -> Graph:
    """Read ``folder`` in the catalogue's format ``form``; classes must be below ``num_classes`` where it is given.

    Raises:
        CorruptDataError: a missing, cut-off or damaged file, or contents that disagree; names the file.
    """
    try:
        with reading(folder, f"{form} data"):
            return READERS[form][0](folder, name, num_classes)
    except FileNotFoundError as error:
        raise CorruptDataError(f"{error}: {folder} is incomplete, remove it to download it again") from error
    except CorruptDataError as error:
        raise CorruptDataError(f"{error}; remove {folder} to download it again") from error
