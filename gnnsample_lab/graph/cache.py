"""Our cache of graphs: one folder per graph with .npy files, opened memory-mapped, and a JSON that vouches
for them.

A folder appears under its final name in one rename, so it is complete or absent. Opening one compares format
version, fingerprint of the source, and size, time and inode of every file with what the JSON says. Where those differ
(a file was written to, or the folder was copied) the file's checksum decides; a file that fails makes the cache
invalid and the graph is built again. Nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gnnsample_lab.graph import checks, roots
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.graph.sources.locks import exclusive

T = TypeVar("T")

FORMAT = "gnnsample_lab csc"
VERSION = 3
_META = "graph.json"
_CHUNK_BYTES = 1 << 24
_TRIES = 4
"""How often a header is read again after another thread has disturbed its parser."""
_OURS = "gnnsample_lab "
"""How the format of every folder begins that :func:`write_folder` writes."""
_RANDOM = re.compile(r"[a-z0-9_]{8}")
"""What ``tempfile`` adds to the name of a folder that is being written."""
_NAME_BYTES = 120
"""Of a graph's name in the name of a file or folder, which may have 255 with its stamp and while it is written."""
_passed: set[tuple[object, ...]] = set()
"""Files whose checksum was right in this process, where that could not be written down."""


def fingerprint(parts: Iterable[Any]) -> str:
    """Short hash of whatever decides the contents: names, parameters, sizes and times of source files."""
    return hashlib.sha256(json.dumps(list(parts), sort_keys=True, default=str).encode()).hexdigest()[:24]


def file_stamp(path: Path) -> list[Any]:
    """Name, size and modification time: enough to notice that a source file was replaced."""
    stat = path.stat()
    return [path.name, stat.st_size, stat.st_mtime_ns]


def _safe(name: str) -> str:
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).lstrip(".")
    # File systems count bytes, of which a letter may have four.
    return plain.encode()[:_NAME_BYTES].decode(errors="ignore") or "graph"


def folder_name(name: str, stamp: str) -> str:
    """Of the cache folder of ``name``, safe on every file system."""
    return f"{_safe(name)}-{stamp}"


def open_cached(root: Path, name: str, stamp: str) -> Graph | None:
    """The cached graph, memory-mapped, or None when there is none that is valid for ``stamp``."""
    for folder in roots.cache_candidates(root):
        graph = _open(folder / folder_name(name, stamp), stamp)
        if graph is not None:
            return graph
    return None


def store(root: Path, name: str, stamp: str, graph: Graph) -> Graph:
    """Write ``graph`` to the cache and return it memory-mapped; or itself where nothing can be written."""
    folder = roots.cache_folder(root)
    if folder is None:
        return graph
    target = folder / folder_name(name, stamp)
    try:
        write(target, graph, stamp)
    except OSError:  # a full disk must not cost the user the graph that is already in memory
        return graph
    return _open(target, stamp) or graph


def write(target: Path, graph: Graph, stamp: str) -> None:
    """Write ``graph`` as the cache folder ``target``, replacing an invalid one."""
    arrays = {
        "indptr": graph.indptr, "indices": graph.indices, "edge_weight": graph.edge_weight,
        "feat": graph.feat, "label": graph.label,
    }  # fmt: skip
    arrays.update({f"split_{k}": v for k, v in graph.splits.items()})
    write_folder(target, arrays, {
        "format": FORMAT, "version": VERSION, "stamp": stamp, "name": graph.name,
        "num_classes": graph.num_classes, "is_synthetic": graph.is_synthetic, "generator": graph.version,
        "max_in_degree": graph.max_in_degree,
    })  # fmt: skip


def write_folder(target: Path, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write arrays and what is to be known of them as the folder ``target``, replacing an invalid one.

    Args:
        target: appears whole, in a folder that can be written to.
        arrays: by name; None is left out.
        facts: for the JSON: ``format``, ``version`` and ``stamp``, which :func:`open_folder` compares, and others.

    Raises:
        FileExistsError: there is something else at ``target``, which stays as it is.
    """
    with exclusive(target):
        _remove_leftovers(target)
        if not _may_replace(target):
            raise FileExistsError(
                f"folder {str(target)!r} must be empty, missing or one that gnnsample_lab wrote "
                "(got other files there): move it away or choose another folder"
            )
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            files: dict[str, dict[str, Any]] = {}
            for key, array in arrays.items():
                if array is not None:
                    path = temporary / _file_name(key, {entry["file"] for entry in files.values()})
                    crc = save_npy(path, array)
                    # Some seconds back: a write that follows within one tick of the clock would leave the same time.
                    past = time.time_ns() - 10 * 10**9
                    os.utime(path, ns=(past, past))
                    files[key] = {"file": path.name, "crc32": crc, **_identity(path)}
            _write_meta(temporary / _META, {**facts, "files": files})
            temporary.chmod(0o755)  # mkdtemp makes it private, but a shared data root is shared
            if target.exists():
                _remove(target)
            temporary.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _file_name(key: str, used: set[str]) -> str:
    """For the array ``key``: other than those ``used``, also where upper and lower case are the same."""
    taken = {name.casefold() for name in used}
    name, number = f"{_safe(key)}.npy", 1
    while name.casefold() in taken:
        number += 1
        name = f"{_safe(key)}.{number}.npy"
    return name


def _remove(target: Path) -> None:
    """Remove a folder that may be replaced.

    It first gets the name of a leftover: where the process is killed meanwhile, no half of a folder stays at
    ``target``.
    """
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    aside.rmdir()
    target.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _remove_leftovers(target: Path) -> None:
    """Remove what killed processes left half written for ``target``, whose lock the caller holds.

    A folder is ours by its name and by its contents: other people's folders may have such a name, too.
    """
    begin = f".{target.name}."
    for path in target.parent.iterdir():
        named = path.name.startswith(begin) and _RANDOM.fullmatch(path.name.removeprefix(begin))
        if named and path.is_dir() and not path.is_symlink() and _holds_only_ours(path):
            shutil.rmtree(path, ignore_errors=True)


def _holds_only_ours(folder: Path) -> bool:
    """Whether there is nothing but arrays, the JSON and its half-written successors."""
    try:
        return all(
            path.is_file()
            and (path.suffix == ".npy" or path.name == _META or path.name.startswith(f".{_META}."))
            for path in folder.iterdir()
        )
    except OSError:
        return False


def _may_replace(target: Path) -> bool:
    """Whether ``target`` is missing, an empty folder, or one that :func:`write_folder` wrote, damaged or not."""
    if not target.exists() and not target.is_symlink():
        return True
    if not target.is_dir() or target.is_symlink():
        return False
    if not any(target.iterdir()):
        return True
    try:
        meta = json.loads((target / _META).read_text(encoding="utf-8"))
        return str(meta["format"]).startswith(_OURS)
    except (ValueError, KeyError, TypeError, RecursionError):  # a damaged JSON
        return _holds_only_ours(target)
    except OSError:
        return False


def save_npy(path: Path, array: Any) -> int:
    """Write one array in slices, so that neither a copy of a memmap nor of a GPU array exists as a whole.

    Returns:
        CRC-32 of the file, which is on the disk by then.
    """
    rows = max(1, (1 << 26) // max(1, array[:1].nbytes))
    with path.open("wb") as handle:
        header = io.BytesIO()
        np.lib.format.write_array_header_2_0(
            header, {"descr": array.dtype.str, "fortran_order": False, "shape": tuple(array.shape)}
        )
        handle.write(header.getvalue())
        crc = zlib.crc32(header.getvalue())
        for start in range(0, len(array), rows):
            part = checks.host_bytes(array[start : start + rows])
            handle.write(part)
            crc = zlib.crc32(part, crc)
        handle.flush()
        os.fsync(handle.fileno())
    return crc


def map_npy(path: Path) -> np.ndarray:
    """Memory-map one array; an empty one is read, since nothing can be mapped of it.

    Copy on write: the file is never changed, yet Numba and PyTorch see an ordinary writable array, for which they
    need no second compilation and give no warning.
    """
    try:
        return _read_npy(path, mmap_mode="c")
    except ValueError:
        return _read_npy(path)


def _read_npy(path: Path, **options: Any) -> np.ndarray:
    """``numpy.load``, which reads a header with ``ast``.

    Until Python 3.11.8 and 3.12.2, two threads that parse at the same time could disturb each other there, although
    nothing is wrong with the file (gh-106905): a SystemError, gone at the next try.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(SystemError):
            return np.load(path, allow_pickle=False, **options)  # type: ignore[no-any-return]
    return np.load(path, allow_pickle=False, **options)  # type: ignore[no-any-return]


def _identity(path: Path) -> dict[str, int]:
    """What changes when a file is written to, replaced or copied."""
    stat = path.stat()
    return {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "inode": stat.st_ino}


def _crc_of_file(path: Path) -> int:
    crc = 0
    with path.open("rb") as handle:
        while part := handle.read(_CHUNK_BYTES):
            crc = zlib.crc32(part, crc)
    return crc


def _crc_of_meta(meta: dict[str, Any]) -> int:
    rest = {key: value for key, value in meta.items() if key != "crc32"}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def _write_meta(path: Path, meta: dict[str, Any]) -> None:
    with path.open("w", encoding="utf-8") as handle:
        json.dump({**meta, "crc32": _crc_of_meta(meta)}, handle, indent=1)
        handle.flush()
        os.fsync(handle.fileno())


def _is_sound(path: Path, entry: dict[str, Any], otherwise: str) -> bool:
    """Whether the file is the one that was written; reads it only where its identity says nothing."""
    found = _identity(path)
    if found == {key: entry[key] for key in found}:
        return True
    known = (str(path), *found.values())
    if known not in _passed:
        if found["bytes"] != entry["bytes"] or _crc_of_file(path) != entry["crc32"]:
            warnings.warn(f"cached file {path} is damaged: {otherwise}", stacklevel=6)
            return False
        _passed.add(known)
    return True


def _note_identities(target: Path, meta: dict[str, Any]) -> None:
    """Write down that all files are sound as they are now, so that the next process need not read them."""
    files = {key: {**entry, **_identity(target / entry["file"])} for key, entry in meta["files"].items()}
    if files == meta["files"]:
        return
    temporary = target / f".{_META}.{os.getpid()}"
    with contextlib.suppress(OSError):
        try:
            _write_meta(temporary, {**meta, "files": files})
            temporary.replace(target / _META)
        finally:
            temporary.unlink(missing_ok=True)


def open_folder(
    target: Path,
    format_name: str,
    version: int,
    stamp: str | None,
    otherwise: str = "the graph is built again",
) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """Facts and memory-mapped arrays of a folder that :func:`write_folder` wrote; None where it is missing or invalid.

    Args:
        format_name, version: what the facts must say.
        stamp: likewise; None takes any.
        otherwise: what follows from damage, for the warning.
    """
    try:
        meta = json.loads((target / _META).read_text(encoding="utf-8"))
        if (meta["format"], meta["version"]) != (format_name, version) or stamp not in (None, meta["stamp"]):
            return None
        if meta["crc32"] != _crc_of_meta(meta):
            return None
        names = [entry["file"] for entry in meta["files"].values()]
        # Versions before gave two arrays one file where their names are alike.
        if len(set(names)) < len(names):
            return None
        arrays: dict[str, np.ndarray] = {}
        for key, entry in meta["files"].items():
            path = target / entry["file"]
            if path.parent != target or not _is_sound(path, entry, otherwise):
                return None
            arrays[key] = map_npy(path)
        _note_identities(target, meta)
        return meta, arrays
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _open(target: Path, stamp: str | None) -> Graph | None:
    found = open_folder(target, FORMAT, VERSION, stamp)
    if found is None:
        return None
    meta, arrays = found
    try:
        splits = {k[len("split_") :]: v for k, v in arrays.items() if k.startswith("split_")}
        graph = Graph(
            arrays["indptr"], arrays["indices"], arrays.get("edge_weight"), arrays.get("feat"),
            arrays.get("label"), splits, int(meta["num_classes"]), str(meta["name"]),
            bool(meta["is_synthetic"]), version=None if meta["generator"] is None else int(meta["generator"]),
            validate=False,
        )  # fmt: skip
        graph._known["max_in_degree"] = int(meta["max_in_degree"])
        return graph
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def open_graph(folder: Path) -> Graph | None:
    """The graph of a folder that :func:`write` wrote, memory-mapped; None where it is missing or invalid."""
    return _open(folder, None)


def folder_of(graph: Graph) -> Path | None:
    """The cache folder that holds ``graph`` as it is, for other processes; None where there is none.

    A slice of a mapped array, a split under another name and an array that was written to are not what the files hold.
    """
    name = getattr(graph.indptr, "filename", None)
    found = None if name is None else open_graph(Path(name).parent)
    if name is None or found is None:
        return None
    own, stored = (_arrays_of(each) for each in (graph, found))
    if own.keys() != stored.keys() or not all(_is_same_map(own[key], stored[key]) for key in own):
        return None
    facts = ("num_classes", "name", "is_synthetic", "version")
    if any(getattr(graph, fact) != getattr(found, fact) for fact in facts):
        return None
    return None if any(is_written(array) for array in own.values()) else Path(name).parent


def _arrays_of(graph: Graph) -> dict[str, Any]:
    named = {key: getattr(graph, key) for key in ("indptr", "indices", "edge_weight", "feat", "label")}
    named |= {f"split_{key}": value for key, value in graph.splits.items()}
    return {key: array for key, array in named.items() if array is not None}


def _is_same_map(array: Any, stored: np.ndarray) -> bool:
    """Whether ``array`` is all of the file that ``stored`` maps."""
    if not isinstance(array, np.memmap) or not isinstance(stored, np.memmap):
        # What is empty cannot be mapped.
        return (
            isinstance(array, np.ndarray) and array.size == stored.size == 0 and array.dtype == stored.dtype
        )
    places = [each.ctypes.data - _begin_of_map(each) for each in (array, stored)]
    same = (array.filename, array.shape, array.dtype, array.strides, places[0])
    return same == (stored.filename, stored.shape, stored.dtype, stored.strides, places[1])


def _begin_of_map(array: np.memmap) -> int:
    return int(np.frombuffer(array._mmap, np.uint8, 1).ctypes.data)  # type: ignore[attr-defined]


_MAPS = Path("/proc/self/smaps")


def is_written(array: Any) -> bool:
    """Whether a mapped array was written to, so that this process has other values than the file.

    The system keeps written pages of a private map apart from the file's, and says so. Where it does not, the values
    are compared.
    """
    if not isinstance(array, np.memmap) or not array.size:
        return False
    begin = array.ctypes.data
    end = begin + int(array.strides[0]) * len(array)
    try:
        text = _MAPS.read_text(encoding="utf-8")
    except OSError:
        return not np.array_equal(array, np.load(str(array.filename), mmap_mode="r"))
    inside = known = False
    for line in text.splitlines():
        head, _, rest = line.partition(" ")
        if not head.endswith(":"):  # the first line of a map: its addresses
            low, _, high = head.partition("-")
            inside = int(low, 16) < end and begin < int(high, 16)
            known |= inside
        elif inside and head in ("Anonymous:", "Swap:") and rest.split()[0] != "0":
            return True
    return not known


def cached(root: Path, name: str, stamp: str, build: Callable[[], Graph], use: bool = True) -> Graph:
    """The cached graph for ``stamp``, or ``build()``, which is then stored.

    Of several processes that ask for the same graph, one builds it while the others wait.
    """
    if not use:
        return build()
    return made_once(
        root,
        name,
        stamp,
        lambda: open_cached(root, name, stamp),
        lambda: store(root, name, stamp, build()),
        build,
    )


def made_once(
    root: Path,
    name: str,
    stamp: str,
    find: Callable[[], T | None],
    make: Callable[[], T],
    build: Callable[[], T],
) -> T:
    """What ``find`` finds, else what ``make`` makes; of several processes one makes it while the others wait.

    Args:
        root, name, stamp: of the thing, for the lock.
        find: opens the stored thing, or returns None.
        make: builds and stores it.
        build: builds it, where nothing can be stored.
    """
    found = find()
    if found is not None:
        return found
    folder = roots.cache_folder(root)
    if folder is None:
        return build()
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # a disk too full for a lock file must not cost the user the thing
            held.enter_context(exclusive(folder / folder_name(name, stamp)))
        found = find()
        return make() if found is None else found
