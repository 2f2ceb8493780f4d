"""Labels, splits and sizes as files give them -> as :class:`~gnnsample_lab.graph.Graph` takes them, or an error that
names the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gnnsample_lab.device.host import free_host_bytes
from gnnsample_lab.files import CorruptDataError
from gnnsample_lab.graph.sources.hashing import hashed


def labels(values: np.ndarray, num_nodes: int, num_classes: int, where: str) -> np.ndarray:
    """int64[N], or int64[N, tasks], of class numbers that may be stored as floats.

    Where OGB has no label for a vertex, as for most of ogbn-papers100M, the number is NaN; it becomes -1. Of several
    tasks none may be missing.

    Args:
        values: one row per vertex; of one column or several tasks.
        num_nodes: rows that there must be.
        num_classes: classes of a single task must be below this; not checked when it is below 1. Tasks of a
            multi-label dataset are 0 or 1 each.
        where: the file, for messages.

    Raises:
        CorruptDataError: another shape, numbers that are not whole, or no class.
    """
    if values.ndim == 2 and values.shape[1] == 1:
        values = values.reshape(-1)
    if values.ndim not in (1, 2) or len(values) != num_nodes or 0 in values.shape[1:]:
        raise CorruptDataError(
            f"{where} must have a label for each of {num_nodes:,} vertices (got shape {values.shape})"
        )
    if values.dtype.kind not in "iufb":
        raise CorruptDataError(f"{where} must hold class numbers (got dtype {values.dtype})")
    if values.dtype.kind == "f":
        if values.ndim == 2:
            _refuse(np.isnan(values), values, "be 0 or 1 in every column, none missing", where)
        values = np.where(np.isnan(values), -1, values)
        _refuse(values != np.rint(values), values, "be whole numbers", where)
    limit = 2 if values.ndim == 2 else num_classes if num_classes > 0 else 2**62
    _refuse((values < -1) | (values >= limit), values, f"lie in [0, {limit})", where)
    return values.astype(np.int64)


def _refuse(bad: np.ndarray, values: np.ndarray, rule: str, where: str) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))[0])
        value = values.reshape(len(bad), -1)[row][bad.reshape(len(bad), -1)[row]][0]
        raise CorruptDataError(f"labels of {where} must {rule} (got {value} for vertex {row})")


def splits(parts: Mapping[str, tuple[np.ndarray, str]], num_nodes: int) -> dict[str, np.ndarray]:
    """The splits, once it is sure that every vertex exists and has at most one place in all of them.

    Args:
        parts: name -> (int64 vertex ids, the file for messages).
        num_nodes: of the graph.

    Raises:
        CorruptDataError: an id out of range, twice in a split, or in two of them.
    """
    owner = np.full(num_nodes, -1, dtype=np.int8)
    for number, (name, (ids, where)) in enumerate(parts.items()):
        outside = (ids < 0) | (ids >= num_nodes)
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            raise CorruptDataError(
                f"{where} must hold ids in [0, {num_nodes}) (got {ids[at]} at position {at})"
            )
        taken = owner[ids] >= 0
        if taken.any():
            vertex = int(ids[np.flatnonzero(taken)[0]])
            raise CorruptDataError(
                f"{where}: vertex {vertex} of split {name!r} is in split {list(parts)[owner[vertex]]!r} too"
            )
        owner[ids] = number
        if len(ids) != int((owner == number).sum()):
            unique, counts = np.unique(ids, return_counts=True)
            raise CorruptDataError(f"{where}: vertex {int(unique[counts > 1][0])} is in split {name!r} twice")
    return {name: ids for name, (ids, _) in parts.items()}


def our_splits(label: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    """Splits "ours", for sources that define none: 60, 20 and 20 percent of the vertices that have a label.

    Args:
        label: int64[N], -1 for none, or int64[N, tasks].
        seed: another seed draws other splits; the same on every machine and in every version.

    Returns:
        "train", "valid", "test" -> int64 ids, rising; of n vertices, train has ``n * 60 // 100`` and valid half the
        rest.
    """
    labelled = np.arange(len(label)) if label.ndim == 2 else np.flatnonzero(label >= 0)
    order = labelled[np.argsort(hashed(labelled, seed), kind="stable")]
    first = len(order) * 60 // 100
    second = first + (len(order) - first) // 2
    parts = {"train": order[:first], "valid": order[first:second], "test": order[second:]}
    return {name: np.sort(ids).astype(np.int64) for name, ids in parts.items()}


def count(value: int, what: str, path: Path) -> int:
    """A number of vertices that a file states, once it is sure that memory holds an offset for each.

    Raises:
        CorruptDataError: negative, or absurdly large.
    """
    if not 0 <= value * 8 < free_host_bytes():
        raise CorruptDataError(
            f"{path} states {value:,} {what}, more than fit in memory"
            if value > 0
            else f"{path} states {value} {what}"
        )
    return value
