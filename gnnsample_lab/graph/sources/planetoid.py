"""Cora, Citeseer and Pubmed as Planetoid stores them: ``ind.<name>.<part>``, eight files.

``x``, ``allx`` and ``tx`` are features in compressed rows, ``y``, ``ally`` and ``ty`` their classes, one column each:
of the training vertices, of all but the test vertices (which begin with the training vertices), and of the test
vertices, whose ids ``test.index`` lists in the same order. ``graph`` has the neighbours of each vertex. All but
``test.index`` are pickles, and no pickle is unpickled (:mod:`.pickles`).

Edges are taken in both directions, each once, and self-loops are left out. The splits are the public ones: the vertices
of ``x`` (20 a class), the next 500, and the test vertices. Citeseer's ``test.index`` leaves out 15 vertices: they have
features of zeros, no class (-1) and no split.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.files import reading
from gnnsample_lab.graph.catalogue import Entry
from gnnsample_lab.graph.csc import undirected_union
from gnnsample_lab.graph.errors import CorruptDataError
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.graph.sources import matrices, node_data, pickles, tables

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "test.index", "graph")
NUM_VALID = 500


def keys(entry: Entry) -> tuple[str, ...]:
    return (f"ind.{entry['name']}.graph",)


def files(key: Path, entry: Entry) -> list[Path]:
    return [key.with_name(f"ind.{entry['name']}.{part}") for part in PARTS]


def read(key: Path, entry: Entry, raw: bool = False) -> Graph:
    path = dict(zip(PARTS, files(key, entry)))
    feat = {part: _features(path[part]) for part in ("allx", "tx", "x")}
    label = {part: _classes(path[part]) for part in ("ally", "ty", "y")}
    for rows, classes in (("x", "y"), ("allx", "ally"), ("tx", "ty")):
        if len(feat[rows]) != len(label[classes]) or feat[rows].shape[1] != feat["allx"].shape[1]:
            raise CorruptDataError(
                f"{path[rows]} must have a row for each of the {len(label[classes]):,} of {path[classes].name} and "
                f"the columns of {path['allx'].name} (got {feat[rows].shape})"
            )
        if label[classes].shape[1] != label["ally"].shape[1]:
            raise CorruptDataError(f"{path[classes]} must have the columns of {path['ally'].name}")
    num_train, known = len(label["y"]), len(label["ally"])
    if num_train > known:
        raise CorruptDataError(f"{path['y']} must have no more rows than {path['ally'].name}, {known:,}")

    test = _test_ids(path["test.index"], known, len(label["ty"]))
    num_nodes = node_data.count(int(test.max(initial=known - 1)) + 1, "vertices", path["test.index"])
    all_feat = np.zeros((num_nodes, feat["allx"].shape[1]), dtype=np.float32)
    all_feat[:known], all_feat[test] = feat["allx"], feat["tx"]
    one_hot = np.zeros((num_nodes, label["ally"].shape[1]), dtype=label["ally"].dtype)
    one_hot[:known], one_hot[test] = label["ally"], label["ty"]
    src, dst = undirected_union(*_edges(path["graph"], num_nodes), num_nodes)
    splits = {
        "train": np.arange(num_train),
        "valid": np.arange(num_train, min(num_train + NUM_VALID, known)),
        "test": np.sort(test),
    }
    labels = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    graph = Graph.from_edges(
        src, dst, num_nodes, feat=all_feat, label=labels, splits=splits, name=entry["name"]
    )
    graph._set("num_classes", one_hot.shape[1])
    return graph


def _parse(path: Path) -> Any:
    with path.open("rb") as stream:
        return pickles.parse(stream.read())


def _features(path: Path) -> np.ndarray:
    """float32[rows, columns] of a matrix in compressed rows."""
    with reading(path, "a pickled matrix"):
        data, indices, indptr, (num_rows, num_columns) = pickles.matrix(_parse(path))
        for what, part in (("indices", indices), ("indptr", indptr)):
            if part.ndim != 1 or part.dtype.kind not in "iu":
                raise ValueError(f"its {what} must be integers (got {part.dtype}, shape {part.shape})")
        indptr = indptr.astype(np.int64)
        matrices.check_offsets(indptr, len(indices), f"indptr of {path}")
        if len(indptr) != num_rows + 1 or data.shape != indices.shape:
            raise ValueError(
                f"{num_rows:,} rows have {len(indptr):,} offsets, {len(indices):,} columns {data.shape}"
            )
        if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= num_columns):
            raise ValueError(
                f"its columns must lie in [0, {num_columns}) (got {indices.min()} to {indices.max()})"
            )
        node_data.count(num_rows * num_columns, "features", path)
        matrix = np.zeros((num_rows, num_columns), dtype=np.float32)
        data = tables.as_float32(data, f"numbers of {path}")
        np.add.at(matrix, (np.repeat(np.arange(num_rows), np.diff(indptr)), indices), data)
        if not np.isfinite(matrix).all():
            raise ValueError("its numbers must be finite")
        return matrix


def _classes(path: Path) -> np.ndarray:
    """int64[rows, classes] of 0 and 1, at most one 1 a row."""
    with reading(path, "a pickled array of classes"):
        one_hot = pickles.array(_parse(path))
        if one_hot.ndim != 2 or not np.isin(one_hot, (0, 1)).all() or bool((one_hot.sum(axis=1) > 1).any()):
            raise ValueError(f"rows must have one 1 and else 0 (got {one_hot.dtype}, shape {one_hot.shape})")
        return one_hot.astype(np.int64)


def _test_ids(path: Path, known: int, count: int) -> np.ndarray:
    ids = tables.integers(path, 1, rows=count).reshape(-1)
    _, first = np.unique(ids, return_index=True)
    repeated = np.setdiff1d(np.arange(count), first)
    limit = known + 2 * count  # Citeseer leaves out 15 of 1,015
    wrong = np.union1d(np.flatnonzero((ids < known) | (ids >= limit)), repeated)
    if len(wrong):
        raise CorruptDataError(
            f"{path} line {tables.line_of(path, int(wrong[0]))} must be a test vertex, from {known} to {limit - 1}, "
            f"that no line before names (got {ids[wrong[0]]})"
        )
    return ids


def _edges(path: Path, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """``(src, dst)`` of the edges that are no self-loops."""
    with reading(path, "pickled lists of neighbours"):
        table = _parse(path)
        if not isinstance(table, dict) or not all(isinstance(ids, list) for ids in table.values()):
            raise ValueError("it must map each vertex to a list of neighbours")
        listed = map(pickles.integer, itertools.chain(table, itertools.chain.from_iterable(table.values())))
        ids = np.fromiter(listed, dtype=np.int64)
        if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= num_nodes):
            raise ValueError(f"vertices must lie in [0, {num_nodes}) (got {ids.min()} to {ids.max()})")
    src = np.repeat(ids[: len(table)], [len(neighbours) for neighbours in table.values()])
    dst = ids[len(table) :]
    between = src != dst
    return src[between], dst[between]
