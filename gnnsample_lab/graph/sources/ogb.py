"""Open Graph Benchmark folders -> Graph.

The ``ogb`` package gives the metadata (``master.csv``). Its readers are not used: its dataset classes prompt on large
downloads, call ``exit``, unpickle their cache and fail on current PyTorch, and its reader of CSV folders takes what it
finds (``1.5`` is vertex 1, missing edges are not missed). Binary (.npz) folders are streamed, because papers100M does
not fit in memory twice.
"""

from __future__ import annotations

import csv
import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnsample_lab.files import reading
from gnnsample_lab.graph import checks
from gnnsample_lab.graph.errors import CorruptDataError, UnknownDatasetError
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.graph.sources import node_data, tables


@dataclass(frozen=True)
class OgbInfo:
    """One column of an ``ogb`` master table."""

    name: str
    folder: str
    """Folder name that ogb uses: the name with underscores."""
    archive_folder: str
    """Top folder inside the archive."""
    url: str
    add_inverse_edge: bool
    is_hetero: bool
    is_binary: bool
    has_features: bool
    split: str
    """Folder of the split that ogb takes; empty for link-prediction datasets."""
    additional_edge_files: tuple[str, ...]
    num_classes: int

    @property
    def key_file(self) -> str:
        """The file whose presence makes a folder usable."""
        return "raw/data.npz" if self.is_binary else "raw/edge.csv.gz"


@functools.lru_cache(maxsize=1)
def ogb_package() -> Path:
    """Folder of the installed ``ogb`` package, found without importing it."""
    spec = importlib.util.find_spec("ogb")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("OGB datasets need the ogb package: pip install ogb")
    return Path(next(iter(spec.submodule_search_locations)))


@functools.lru_cache(maxsize=1)
def master() -> dict[str, OgbInfo]:
    """Every ogbn-* and ogbl-* dataset that the installed ``ogb`` knows."""
    result: dict[str, OgbInfo] = {}
    for task in ("nodeproppred", "linkproppred"):
        with (ogb_package() / task / "master.csv").open(newline="", encoding="utf-8") as handle:
            rows = {row[0]: row[1:] for row in csv.reader(handle) if row}
        for column, name in enumerate(rows[""]):

            def entry(key: str, column: int = column, rows: dict[str, list[str]] = rows) -> str:
                return rows[key][column] if key in rows else "None"

            extra = entry("additional edge files")
            classes = entry("num classes")
            result[name] = OgbInfo(
                name=name,
                folder=name.replace("-", "_"),
                archive_folder=entry("download_name"),
                url=entry("url"),
                add_inverse_edge=entry("add_inverse_edge") == "True",
                is_hetero=entry("is hetero") == "True",
                is_binary=entry("binary") == "True",
                has_features=entry("has_node_attr") == "True",
                split=entry("split") if task == "nodeproppred" else "",
                additional_edge_files=() if extra == "None" else tuple(extra.split(",")),
                num_classes=int(classes) if classes.isdigit() else -1,
            )
    return result


def info(name: str) -> OgbInfo:
    """Metadata of one homogeneous dataset.

    Raises:
        UnknownDatasetError: ogb has no such dataset.
        ValueError: a heterogeneous one, which this package does not load.
    """
    table = master()
    if name not in table:
        raise UnknownDatasetError(f"name {name!r} is no OGB dataset (ogb knows {', '.join(sorted(table))})")
    if table[name].is_hetero:
        raise ValueError(
            f"name {name!r} is a heterogeneous OGB dataset; only homogeneous graphs can be loaded"
        )
    return table[name]


def is_complete(folder: Path, meta: OgbInfo) -> bool:
    return (folder / meta.key_file).is_file()


def source_files(folder: Path, meta: OgbInfo) -> list[Path]:
    """Files that decide the graph, for the cache's fingerprint."""
    patterns = ("raw/*", f"split/{meta.split}/*") if meta.split else ("raw/*",)
    return sorted(path for pattern in patterns for path in folder.glob(pattern) if path.is_file())


def read(
    folder: Path, meta: OgbInfo, *, undirected: bool | None = None, scratch: Path | None = None
) -> Graph:
    """Read an unpacked OGB folder.

    Args:
        folder: holds ``raw/`` and, for node-property data, ``split/``.
        undirected: None follows ogb's ``add_inverse_edge``; True adds reverse edges where ogb would not;
            False keeps the edges as they are listed.
        scratch: folder for features that are streamed to disk instead of memory (binary datasets).

    Splits of link-prediction datasets are pickles and are not read: ``splits`` is empty there, and labels are read
    where there are any. Every other file that ogb's table promises must be there.

    Raises:
        CorruptDataError: a missing, cut-off or damaged file, or contents that disagree; names the file.
    """
    raw = folder / "raw"
    try:
        src, dst, num_nodes, feat = (
            _read_binary(raw, meta, scratch) if meta.is_binary else _read_csv(raw, meta)
        )
        weight = _read_weights(raw, len(src)) if "edge_weight" in meta.additional_edge_files else None
        label = _read_labels(raw, meta, num_nodes)
        splits = _read_splits(folder / "split" / meta.split, num_nodes) if meta.split else {}
    except FileNotFoundError as error:
        raise CorruptDataError(f"{error}: {folder} is incomplete, remove it to download it again") from error
    except CorruptDataError as error:
        raise CorruptDataError(f"{error}; remove {folder} to download it again") from error
    both = meta.add_inverse_edge if undirected is None else undirected
    if both:
        # As ogb's own reader does, self-loops included.
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
        weight = None if weight is None else np.concatenate([weight, weight])
    with reading(folder, "an OGB graph"):
        graph = Graph.from_edges(
            src, dst, num_nodes, edge_weight=weight, feat=feat, label=label, splits=splits, name=meta.name,
        )  # fmt: skip
    if meta.num_classes > graph.num_classes and graph.label is not None and graph.label.ndim == 1:
        graph._set("num_classes", meta.num_classes)
    return graph


_Parts = tuple[np.ndarray, np.ndarray, int, np.ndarray | None]
"""Sources, destinations, number of vertices, features."""


def _read_csv(raw: Path, meta: OgbInfo) -> _Parts:
    listed = {}
    for what in ("node", "edge"):
        path = raw / f"num-{what}-list.csv.gz"
        counts = tables.integers(path, 1)
        if len(counts) != 1:
            raise CorruptDataError(f"{path} must list one graph (got {len(counts)})")
        listed[what] = node_data.count(int(counts[0, 0]), {"node": "vertices", "edge": "edges"}[what], path)
    num_nodes = listed["node"]
    path = raw / "edge.csv.gz"
    edges = tables.integers(path, 2, rows=listed["edge"])
    outside = (edges < 0) | (edges >= num_nodes)
    if outside.any():
        line = int(np.flatnonzero(outside.any(axis=1))[0])
        raise CorruptDataError(
            f"{path} line {line + 1} must name two of the {num_nodes:,} vertices (got {edges[line].tolist()})"
        )
    feat = None
    path = raw / "node-feat.csv.gz"
    if meta.has_features or path.is_file():
        feat = tables.as_float32(tables.numbers(path, rows=num_nodes), str(path))
    return edges[:, 0], edges[:, 1], num_nodes, feat


def _read_binary(raw: Path, meta: OgbInfo, scratch: Path | None) -> _Parts:
    path = raw / "data.npz"
    with tables.npz(path) as archive:
        (num_nodes,) = archive.integers("num_nodes_list", 1).tolist()
        (num_edges,) = archive.integers("num_edges_list", 1).tolist()
        node_data.count(num_nodes, "vertices", path)
        edges = archive.read("edge_index", below=num_nodes, dtype=checks.id_dtype(num_nodes))
        tables.check_shape(edges, (2, num_edges), f"array 'edge_index' of {path}")
        feat = None
        if meta.has_features:
            feat = archive.read("node_feat", dtype=np.float32, scratch=scratch, kinds="fiu")
            tables.check_shape(feat, (num_nodes, None), f"array 'node_feat' of {path}")
    return edges[0], edges[1], num_nodes, feat


def _read_weights(raw: Path, num_edges: int) -> np.ndarray:
    path = raw / "edge_weight.csv.gz"
    values = tables.numbers(path, rows=num_edges)
    with reading(path, "edge weights"):
        tables.check_shape(values, (num_edges, 1), str(path))
        return np.asarray(checks.weights(values.reshape(-1), num_edges))


def _read_labels(raw: Path, meta: OgbInfo, num_nodes: int) -> np.ndarray | None:
    path = raw / ("node-label.npz" if meta.is_binary else "node-label.csv.gz")
    if not meta.split and not path.is_file():
        return None
    if meta.is_binary:
        with tables.npz(path) as archive:
            values = archive.read("node_label")
    else:
        values = tables.numbers(path, rows=num_nodes, empty_is_nan=True)
    return node_data.labels(values, num_nodes, meta.num_classes, str(path))


def _read_splits(folder: Path, num_nodes: int) -> dict[str, np.ndarray]:
    paths = {name: folder / f"{name}.csv.gz" for name in ("train", "valid", "test")}
    parts = {name: (tables.integers(path, 1).reshape(-1), str(path)) for name, path in paths.items()}
    return node_data.splits(parts, num_nodes)
