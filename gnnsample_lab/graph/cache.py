"""Our cache of graphs: one folder per graph with .npy files, opened memory-mapped, and a JSON that vouches
for them.

A folder appears under its final name in one rename, so it is complete or absent. Opening one compares format
version, fingerprint of the source, and size, header and end blocks of every file; anything else makes the
cache invalid and the graph is built again. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.graph import checks, roots
from gnnsample_lab.graph.graph import Graph

FORMAT = "gnnsample_lab csc"
VERSION = 1
_META = "graph.json"
_CHECK_BYTES = 1 << 16


def fingerprint(parts: Iterable[Any]) -> str:
    """Short hash of whatever decides the contents: names, parameters, sizes and times of source files."""
    return hashlib.sha256(json.dumps(list(parts), sort_keys=True, default=str).encode()).hexdigest()[:24]


def file_stamp(path: Path) -> list[Any]:
    """Name, size and modification time: enough to notice that a source file was replaced."""
    stat = path.stat()
    return [path.name, stat.st_size, stat.st_mtime_ns]


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name).lstrip(".") or "graph"


def open_cached(root: Path, name: str, stamp: str) -> Graph | None:
    """The cached graph, memory-mapped, or None when there is none that is valid for ``stamp``."""
    for folder in roots.cache_candidates(root):
        graph = _open(folder / f"{_safe(name)}-{stamp}", stamp)
        if graph is not None:
            return graph
    return None


def store(root: Path, name: str, stamp: str, graph: Graph) -> Graph:
    """Write ``graph`` to the cache and return it memory-mapped; or itself where nothing can be written."""
    folder = roots.cache_folder(root)
    if folder is None:
        return graph
    target = folder / f"{_safe(name)}-{stamp}"
    try:
        write(target, graph, stamp)
    except OSError:  # a full disk must not cost the user the graph that is already in memory
        return graph
    return _open(target, stamp) or graph


def write(target: Path, graph: Graph, stamp: str) -> None:
    """Write ``graph`` as the cache folder ``target``, replacing an invalid one."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        arrays = {
            "indptr": graph.indptr, "indices": graph.indices, "edge_weight": graph.edge_weight,
            "feat": graph.feat, "label": graph.label,
        }  # fmt: skip
        arrays.update({f"split_{k}": v for k, v in graph.splits.items()})
        files = {}
        for key, array in arrays.items():
            if array is None:
                continue
            file_name = f"{_safe(key)}.npy"
            save_npy(temporary / file_name, array)
            files[key] = {"file": file_name, **_check(temporary / file_name)}
        meta = {
            "format": FORMAT, "version": VERSION, "stamp": stamp, "name": graph.name,
            "num_classes": graph.num_classes, "is_synthetic": graph.is_synthetic,
            "max_in_degree": graph.max_in_degree, "files": files,
        }  # fmt: skip
        with (temporary / _META).open("w", encoding="utf-8") as handle:
            json.dump(meta, handle, indent=1)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.chmod(0o755)  # mkdtemp makes it private, but a shared data root is shared
        if target.exists():
            shutil.rmtree(target, ignore_errors=True)
        try:
            temporary.rename(target)
        except OSError:
            if not (target / _META).exists():  # unless another process was faster
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def save_npy(path: Path, array: Any) -> None:
    """Write one array in slices, so that neither a copy of a memmap nor of a GPU array exists as a whole."""
    rows = max(1, (1 << 26) // max(1, array[:1].nbytes))
    with path.open("wb") as handle:
        header = {"descr": array.dtype.str, "fortran_order": False, "shape": tuple(array.shape)}
        np.lib.format.write_array_header_2_0(handle, header)
        for start in range(0, len(array), rows):
            part = array[start : start + rows]
            handle.write(checks.host_bytes(part))


def map_npy(path: Path) -> np.ndarray:
    """Memory-map one array; an empty one is read, since nothing can be mapped of it.

    Copy on write: the file is never changed, yet Numba and PyTorch see an ordinary writable array, for which they
    need no second compilation and give no warning.
    """
    try:
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except ValueError:
        return np.load(path, allow_pickle=False)


def _check(path: Path) -> dict[str, int]:
    """Size, and CRC-32 of the first and last block: catches cut-off and swapped files in no time."""
    size = path.stat().st_size
    with path.open("rb") as handle:
        crc = zlib.crc32(handle.read(_CHECK_BYTES))
        handle.seek(max(0, size - _CHECK_BYTES))
        crc = zlib.crc32(handle.read(_CHECK_BYTES), crc)
    return {"bytes": size, "crc32": crc}


def _open(target: Path, stamp: str) -> Graph | None:
    try:
        meta = json.loads((target / _META).read_text(encoding="utf-8"))
        if (meta["format"], meta["version"], meta["stamp"]) != (FORMAT, VERSION, stamp):
            return None
        arrays: dict[str, np.ndarray] = {}
        for key, entry in meta["files"].items():
            path = target / entry["file"]
            if path.parent != target or _check(path) != {k: entry[k] for k in ("bytes", "crc32")}:
                return None
            arrays[key] = map_npy(path)
        splits = {k[len("split_") :]: v for k, v in arrays.items() if k.startswith("split_")}
        graph = Graph(
            arrays["indptr"], arrays["indices"], arrays.get("edge_weight"), arrays.get("feat"),
            arrays.get("label"), splits, int(meta["num_classes"]), str(meta["name"]),
            bool(meta["is_synthetic"]),
            validate=False,
        )  # fmt: skip
        graph._set("max_in_degree", int(meta["max_in_degree"]))
        return graph
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def cached(root: Path, name: str, stamp: str, build: Callable[[], Graph], use: bool = True) -> Graph:
    """The cached graph for ``stamp``, or ``build()``, which is then stored."""
    if not use:
        return build()
    return open_cached(root, name, stamp) or store(root, name, stamp, build())
