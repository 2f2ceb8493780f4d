"""Open Graph Benchmark folders -> Graph.

The ``ogb`` package gives the metadata (``master.csv``) and reads the raw CSV folders. Its dataset classes are
not used: they prompt on large downloads, call ``exit``, unpickle their cache and fail on current PyTorch. Its
reader is loaded from its file alone, since importing ``ogb.io`` would pull in PyTorch and a version check
over the network. Binary (.npz) folders are streamed here, because papers100M does not fit in memory twice.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import gzip
import importlib.util
import io
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from gnnsample_lab.graph.errors import CorruptDataError, UnknownDatasetError
from gnnsample_lab.graph.graph import Graph

_DAMAGE = (
    EOFError,
    gzip.BadGzipFile,
    zlib.error,
    zipfile.BadZipFile,
    UnicodeDecodeError,
    ValueError,
    KeyError,
)


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
    split: str
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

    Splits of link-prediction datasets are pickles and are not read: ``splits`` is empty there.

    Raises:
        CorruptDataError: a cut-off or damaged file, named.
    """
    try:
        raw = _read_binary(folder / "raw", scratch) if meta.is_binary else _read_csv(folder / "raw", meta)
        labels = _read_labels(folder / "raw", meta)
        splits = _read_splits(folder, meta)
    except CorruptDataError:
        raise
    except (*_DAMAGE, RuntimeError) as error:
        raise CorruptDataError(_diagnose(folder, error)) from error
    src, dst = raw["edge_index"]
    weight = raw.get("edge_weight")
    both = meta.add_inverse_edge if undirected is None else undirected
    if both:
        # As ogb's own reader does, self-loops included.
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
        weight = None if weight is None else np.concatenate([weight, weight])
    try:
        graph = Graph.from_edges(
            src, dst, int(raw["num_nodes"]), edge_weight=weight, feat=raw.get("node_feat"), label=labels,
            splits=splits, name=meta.name,
        )  # fmt: skip
    except (TypeError, ValueError) as error:
        raise CorruptDataError(f"OGB folder {folder} holds no valid graph: {error}") from error
    if meta.num_classes > graph.num_classes and graph.label is not None and graph.label.ndim == 1:
        graph._set("num_classes", meta.num_classes)
    return graph


def _reader() -> ModuleType:
    """``ogb/io/read_graph_raw.py`` as a module of its own, imported without the version look-up."""
    name = "gnnsample_lab._ogb_read_graph_raw"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, ogb_package() / "io" / "read_graph_raw.py")
    if spec is None or spec.loader is None:
        raise ImportError("the installed ogb package has no io/read_graph_raw.py")
    module = importlib.util.module_from_spec(spec)
    absent = "outdated" not in sys.modules
    if absent:
        sys.modules["outdated"] = None  # type: ignore[assignment]  # ogb then skips its network look-up
    try:
        spec.loader.exec_module(module)
    finally:
        if absent:
            del sys.modules["outdated"]
    sys.modules[name] = module
    return module


def _read_csv(raw: Path, meta: OgbInfo) -> dict[str, Any]:
    extra = [f for f in meta.additional_edge_files if f == "edge_weight"]
    reader = _reader()
    # It prints progress remarks and draws a bar for its single graph.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        graphs = reader.read_csv_graph_raw(str(raw), add_inverse_edge=False, additional_edge_files=extra)
    if len(graphs) != 1:
        raise CorruptDataError(f"{raw} must hold one graph (got {len(graphs)})")
    graph = graphs[0]
    listed = _csv(raw / "num-edge-list.csv.gz").reshape(-1)
    if graph["edge_index"].shape[1] != int(listed.sum()):
        raise CorruptDataError(
            f"{raw / 'edge.csv.gz'} must hold {int(listed.sum())} edges (got {graph['edge_index'].shape[1]})"
        )
    if extra:
        graph["edge_weight"] = graph["edge_weight"].reshape(-1)
    return dict(graph)


def _read_labels(raw: Path, meta: OgbInfo) -> np.ndarray | None:
    if meta.is_binary:
        path = raw / "node-label.npz"
        if not path.is_file():
            return None
        with np.load(path, allow_pickle=False) as data:
            values = data["node_label"]
    else:
        path = raw / "node-label.csv.gz"
        if not path.is_file():
            return None
        values = _csv(path)
    if values.dtype.kind == "f":  # papers100M marks vertices without a label as NaN
        values = np.where(np.isnan(values), -1, values)
    return values.astype(np.int64)


def _read_splits(folder: Path, meta: OgbInfo) -> dict[str, np.ndarray]:
    if not meta.split:
        return {}
    split = folder / "split" / meta.split
    if not split.is_dir():
        return {}
    return {
        name: _csv(split / f"{name}.csv.gz").reshape(-1).astype(np.int64)
        for name in ("train", "valid", "test")
    }


def _csv(path: Path) -> np.ndarray:
    import pandas

    return pandas.read_csv(path, compression="gzip", header=None).to_numpy()


def _read_binary(raw: Path, scratch: Path | None) -> dict[str, Any]:
    result: dict[str, Any] = {}
    with zipfile.ZipFile(raw / "data.npz") as archive:
        names = set(archive.namelist())
        nodes = _member(archive, "num_nodes_list.npy")
        if len(nodes) != 1:
            raise CorruptDataError(f"{raw / 'data.npz'} must hold one graph (got {len(nodes)})")
        result["num_nodes"] = int(nodes[0])
        result["edge_index"] = _member(
            archive, "edge_index.npy", np.int32 if result["num_nodes"] < 2**31 else np.int64
        )
        if "node_feat.npy" in names:
            result["node_feat"] = _member(archive, "node_feat.npy", np.float32, scratch)
    return result


def _member(
    archive: zipfile.ZipFile, name: str, dtype: Any = None, scratch: Path | None = None, chunk: int = 1 << 26
) -> np.ndarray:
    """One .npy of an .npz, converted piece by piece; above 2 GiB into a file under ``scratch``."""
    with archive.open(name) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, fortran, stored = read_header(stream)
        if stored.hasobject or fortran:
            raise CorruptDataError(f"{name} of {archive.filename} must be a plain C-ordered array")
        target = np.dtype(dtype or stored)
        count = int(np.prod(shape, dtype=np.int64))
        if scratch is not None and count * target.itemsize > 1 << 31:
            # The cache copies it and the file goes with the last reference to it.
            import tempfile

            with tempfile.TemporaryFile(dir=scratch) as handle:
                flat: np.ndarray = np.memmap(handle, dtype=target, mode="w+", shape=(count,))
        else:
            flat = np.empty(count, dtype=target)
        done = 0
        while done < count:
            want = min(chunk, (count - done) * stored.itemsize)
            data = stream.read(max(stored.itemsize, want - want % stored.itemsize))
            if not data:
                raise CorruptDataError(f"{name} of {archive.filename} is cut off")
            part = np.frombuffer(data, dtype=stored)
            flat[done : done + len(part)] = part
            done += len(part)
    return flat.reshape(shape)


def _diagnose(folder: Path, error: Exception) -> str:
    """Find the file that cannot be read, since pandas does not name it."""
    for path in sorted(folder.rglob("*.csv.gz")):
        try:
            with gzip.open(path) as handle:
                while handle.read(1 << 20):
                    pass
        except (EOFError, OSError, zlib.error) as damage:
            return f"{path} is cut off or damaged ({damage}); remove {folder} to download it again"
    problem = f"{type(error).__name__}: {error}"
    return f"OGB folder {folder} cannot be read ({problem}); remove it to download it again"
