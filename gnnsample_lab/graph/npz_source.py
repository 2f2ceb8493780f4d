"""Graphs that come as NumPy archives: Reddit (DGL's), Flickr and Yelp (GraphSAINT's), Coauthor
(gnn-benchmark's).

Archives may hold pickled object arrays; they are opened with pickling off, and the arrays read here are
plain.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.graph.csc import undirected_union
from gnnsample_lab.graph.errors import CorruptDataError
from gnnsample_lab.graph.graph import Graph


def _sparse_edges(path: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """``(src, dst, num_nodes)`` of a matrix in SciPy's .npz form; entry (i, j) is the edge i -> j."""
    with np.load(path, allow_pickle=False) as data:
        shape = tuple(int(x) for x in data["shape"])
        if len(shape) != 2 or shape[0] != shape[1]:
            raise CorruptDataError(f"{path} must hold a square matrix (got shape {shape})")
        if "row" in data:
            return data["row"], data["col"], shape[0]
        rows = np.repeat(np.arange(shape[0], dtype=np.int64), np.diff(data["indptr"]))
        return rows, data["indices"], shape[0]


def read_reddit(folder: Path, name: str) -> Graph:
    """``reddit_graph.npz`` and ``reddit_data.npz``."""
    src, dst, num_nodes = _sparse_edges(folder / "reddit_graph.npz")
    with np.load(folder / "reddit_data.npz", allow_pickle=False) as data:
        feat, label, kind = data["feature"], data["label"], data["node_types"]
    splits = {s: np.flatnonzero(kind == i) for i, s in ((1, "train"), (2, "valid"), (3, "test"))}
    return Graph.from_edges(src, dst, num_nodes, feat=feat, label=label, splits=splits, name=name)


def read_graphsaint(folder: Path, name: str) -> Graph:
    """``adj_full.npz``, ``feats.npy``, ``class_map.json`` and ``role.json``."""
    src, dst, num_nodes = _sparse_edges(folder / "adj_full.npz")
    feat = np.load(folder / "feats.npy", allow_pickle=False)
    classes = json.loads((folder / "class_map.json").read_text(encoding="utf-8"))
    label = np.asarray([classes[str(v)] for v in range(num_nodes)], dtype=np.int64)
    role = json.loads((folder / "role.json").read_text(encoding="utf-8"))
    splits = {
        s: np.asarray(role[k], dtype=np.int64) for k, s in (("tr", "train"), ("va", "valid"), ("te", "test"))
    }
    return Graph.from_edges(src, dst, num_nodes, feat=feat, label=label, splits=splits, name=name)


def read_gnn_benchmark(folder: Path, name: str) -> Graph:
    """One ``*.npz`` with ``adj_*`` and ``attr_*`` in compressed rows; it defines no splits."""
    path = next(iter(sorted(folder.glob("*.npz"))), None)
    if path is None:
        raise CorruptDataError(f"{folder} holds no .npz")
    with np.load(path, allow_pickle=False) as data:
        indptr = data["adj_indptr"]
        num_nodes = len(indptr) - 1
        src = np.repeat(np.arange(num_nodes, dtype=np.int64), np.diff(indptr))
        dst = data["adj_indices"].astype(np.int64)
        label = data["labels"].astype(np.int64)
        feat = np.zeros(tuple(data["attr_shape"]), dtype=np.float32)
        rows = np.repeat(np.arange(num_nodes), np.diff(data["attr_indptr"]))
        feat[rows, data["attr_indices"]] = data["attr_data"]
    between = src != dst
    src, dst = undirected_union(src[between], dst[between], num_nodes)
    return Graph.from_edges(src, dst, num_nodes, feat=feat, label=label, name=name)


READERS: dict[str, tuple[Callable[[Path, str], Graph], str]] = {
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


def read(folder: Path, form: str, name: str) -> Graph:
    """Read ``folder`` in the catalogue's format ``form``.

    Raises:
        CorruptDataError: a missing, cut-off or damaged file.
    """
    reader: Callable[[Path, str], Any] = READERS[form][0]
    try:
        return reader(folder, name)
    except CorruptDataError:
        raise
    except (
        EOFError,
        KeyError,
        ValueError,
        TypeError,
        FileNotFoundError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise CorruptDataError(
            f"{folder} cannot be read as {form} data ({type(error).__name__}: {error}); "
            "remove it to download it again"
        ) from error
