"""Sparse matrices as NumPy archives store them -> edges and dense features, checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gnnsample_lab.graph.errors import CorruptDataError
from gnnsample_lab.graph.sources import node_data, tables


def rows(archive: tables.Archive, indptr: str, num_rows: int, num_entries: int) -> np.ndarray:
    """int64[entries]: the row of each entry of a matrix in compressed rows."""
    offsets = archive.integers(indptr, num_rows + 1)
    check_offsets(offsets, num_entries, f"array {indptr!r} of {archive.path}")
    return np.repeat(np.arange(num_rows, dtype=np.int64), np.diff(offsets))


def check_offsets(offsets: np.ndarray, num_entries: int, where: str) -> None:
    """Raise CorruptDataError unless ``offsets`` rise from 0 to the number of entries."""
    if (
        len(offsets) == 0
        or offsets[0] != 0
        or offsets[-1] != num_entries
        or bool((np.diff(offsets) < 0).any())
    ):
        raise CorruptDataError(f"{where} must rise from 0 to the number of entries, {num_entries}")


def edges(path: Path) -> tuple[np.ndarray, np.ndarray, int]:
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
        return rows(archive, "indptr", num_nodes, len(dst)), dst, num_nodes


def dense(archive: tables.Archive, name: str, num_rows: int, num_columns: int) -> np.ndarray:
    """float32[rows, columns] of the arrays ``<name>_data``, ``<name>_indices`` and ``<name>_indptr``."""
    what = {"attr": "features"}.get(name, name)
    node_data.count(num_rows * num_columns, what, archive.path)
    column = archive.integers(f"{name}_indices", None, below=num_columns)
    values = archive.read(f"{name}_data", dtype=np.float32)
    tables.check_shape(values, (len(column),), f"array '{name}_data' of {archive.path}")
    matrix = np.zeros((num_rows, num_columns), dtype=np.float32)
    np.add.at(matrix, (rows(archive, f"{name}_indptr", num_rows, len(column)), column), values)
    return matrix
