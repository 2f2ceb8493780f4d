"""Partitions and parts as files: memory-mapped, so that the ranks of a host share one copy and read each other's parts.

Written and vouched for as cached graphs are (:mod:`gnnsample_lab.graph.cache`): a folder is whole or absent, a JSON
holds checksums, nothing is unpickled. Files are opened for reading only; an array that is written to changes in its
own process and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.checks import flag, whole
from gnnsample_lab.checks import path as checked_path
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.graph import cache, roots
from gnnsample_lab.graph.errors import CorruptDataError
from gnnsample_lab.graph.graph import Graph, check_graph
from gnnsample_lab.graph.sources.locks import exclusive
from gnnsample_lab.sampling.weights import integer_weights

from .part import ARRAYS, HASHED, Part, part_of, vertex_records
from .partition import MAX_PARTS, VERSION, Partition, check_partition, digest_of

_PARTITION, _PART = "gnnsample_lab partition", "gnnsample_lab part"
_SMALL = ("method", "seed", "tolerance", "seconds", "graph_hash", "name")
_LARGE = ("owner", "boundaries", "new_of", "old_of", "traffic", "seeds")


def cached_partition(root: Path, name: str, stamp: str, build: Callable[[], Partition]) -> Partition:
    """The stored partition of ``stamp``, or ``build()``, which is then stored where that can be done."""

    def find() -> Partition | None:
        for folder in roots.cache_candidates(root):
            found = _open_partition(folder / cache.folder_name(name, stamp), stamp)
            if found is not None:
                return found[0]
        return None

    def make() -> Partition:
        made, folder = build(), roots.cache_folder(root)
        if folder is None:
            return made
        try:
            _write_partition(folder / cache.folder_name(name, stamp), made, stamp)
        except OSError:  # a full disk must not cost the user what took minutes
            return made
        return find() or made

    return cache.made_once(root, name, stamp, find, make, build)


def _write_partition(target: Path, partition: Partition, stamp: str, records: Any = None) -> None:
    arrays = {name: getattr(partition, name) for name in _LARGE}
    small = {name: getattr(partition, name) for name in _SMALL}
    cache.write_folder(
        target, {**arrays, "records": records},
        {"format": _PARTITION, "version": VERSION, "stamp": stamp, "values": small},
    )  # fmt: skip


def _open_partition(target: Path, stamp: str | None) -> tuple[Partition, Any] | None:
    found = cache.open_folder(target, _PARTITION, VERSION, stamp, "it is not used")
    if found is None:
        return None
    meta, arrays = found
    records = arrays.pop("records", None)
    fields: dict[str, Any] = {**arrays, **meta["values"]}
    return Partition(**fields), records


def save_parts(
    graph: Graph, partition: Partition, folder: str | os.PathLike[str] | None = None, *, root: str |
        os.PathLike[str] | None = None, features: bool = True,
) -> Path:  # fmt: skip
    """Write the partition, the vertex records and all parts as memory-mapped files; parts that are there stay.

    Args:
        graph: the whole graph, on either device.
        partition: of this graph.
        folder: where; None takes a folder of the data root's cache, named by what is in it.
        root: data root whose cache is used without ``folder``; as in :func:`gnnsample_lab.load`.
        features: False leaves feature rows out of the parts.

    Returns:
        The folder, for :func:`open_partition` and :func:`open_part` in any process of this host.

    Raises:
        TypeError, ValueError: an argument of the wrong kind; a partition of another graph.
        FileExistsError: ``folder`` has a ``partition`` or ``part-...`` that holds other files; they stay as they are.
        PermissionError: no cache folder can be written to, naming ``root``; other OSErrors of the system.
    """
    graph = check_graph(graph)
    partition = check_partition(partition, graph)
    features = flag("features", features)
    base = roots.data_root(root)
    stamp = cache.fingerprint([VERSION, partition.digest(), graph.digest(), features])
    if folder is None:
        place = roots.cache_folder(base)
        if place is None:
            roots.require_writable(base, "saving parts")
            raise PermissionError(f"root {str(base)!r} has no cache folder that can be written to")
        target = place / cache.folder_name(f"{graph.name}-parts", stamp)
    else:
        target = checked_path("folder", folder).resolve()
    target.mkdir(parents=True, exist_ok=True)
    with exclusive(target):  # of several ranks that save the same parts one writes them
        _write_missing(target, graph, partition, features, stamp)
    return target


def _write_missing(target: Path, graph: Graph, partition: Partition, features: bool, stamp: str) -> None:
    if _open_partition(target / "partition", stamp) is None:
        _write_partition(target / "partition", partition, stamp, vertex_records(graph, partition))
    weights, digests = None, None
    for rank in range(partition.num_parts):
        place = target / _part_name(rank)
        if cache.open_folder(place, _PART, VERSION, stamp, "it is written again") is not None:
            continue
        if weights is None and graph.edge_weight is not None:
            weights = integer_weights(to_host(graph.indptr), to_host(graph.edge_weight))
        part = part_of(graph, partition, rank, features=features, weights=weights)
        if digests is None:
            digests = {name: digest_of(getattr(graph, name)) for name in HASHED if name in part.arrays()}
        values = {
            name: getattr(part, name) for name in ("rank", "num_parts", "num_nodes", "partition_digest")
        }
        values["digests"] = digests
        cache.write_folder(
            place, part.arrays(), {"format": _PART, "version": VERSION, "stamp": stamp, "values": values}
        )


def _part_name(rank: int) -> str:
    return f"part-{rank:05d}"


def open_partition(folder: str | os.PathLike[str]) -> Partition:
    """The partition of a folder that :func:`save_parts` wrote, memory-mapped.

    Args:
        folder: what ``save_parts`` returned.

    Raises:
        TypeError: no path.
        FileNotFoundError, CorruptDataError: nothing is there; its files are damaged.
    """
    return _opened_partition(folder)[0]


def open_records(folder: str | os.PathLike[str]) -> np.ndarray:
    """:func:`vertex_records` of a folder that :func:`save_parts` wrote, memory-mapped, ``int32[N, 2]`` or ``int64``.

    Args:
        folder: what ``save_parts`` returned.

    Raises:
        TypeError: no path.
        FileNotFoundError, CorruptDataError: nothing is there; its files are damaged.
    """
    records: np.ndarray = _opened_partition(folder)[1]
    return records


def _opened_partition(folder: str | os.PathLike[str]) -> tuple[Partition, Any]:
    target = checked_path("folder", folder) / "partition"
    found = _open_partition(target, None)
    if found is None or found[1] is None:
        raise _missing(target, "a partition")
    return found


def open_part(folder: str | os.PathLike[str], rank: int) -> Part:
    """One part of a folder that :func:`save_parts` wrote, one's own or a peer's, memory-mapped.

    Args:
        folder: what ``save_parts`` returned.
        rank: which part.

    Raises:
        TypeError, ValueError: no path, no rank.
        FileNotFoundError, CorruptDataError: the part is not there; its files are damaged.
    """
    target = checked_path("folder", folder) / _part_name(whole("rank", rank, 0, MAX_PARTS - 1))
    found = cache.open_folder(target, _PART, VERSION, None, "it is not used")
    if found is None:
        raise _missing(target, "a part")
    meta, arrays = found
    fields: dict[str, Any] = {**{name: arrays.get(name) for name in ARRAYS}, **meta["values"]}
    return Part(**fields)


def _missing(target: Path, what: str) -> OSError | ValueError:
    if not target.is_dir():
        return FileNotFoundError(f"folder {str(target)!r} does not exist: save_parts writes it")
    return CorruptDataError(
        f"folder {str(target)!r} does not hold {what} that this version can read; save it again"
    )
