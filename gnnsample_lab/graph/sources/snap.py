"""SNAP edge lists (``.txt`` or ``.txt.gz``) -> Graph.

A list has one edge per line, source then destination, separated by white space; lines that start with ``#`` are
comments. A third column of numbers is read as weights where these are asked for; further columns are not read. Ids are
compacted: the vertices that occur get ``0 .. N-1`` in the order of their ids, so a list that already uses ``0 .. N-1``
keeps them. Undirected (the default) means the union of the edges and their reverses, each once: a list that names both
directions of an edge, as directed SNAP lists do, gains no parallel edges. Of an edge that is listed several times the
first weight stays, and an edge that is listed in one direction alone has one weight in both.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gnnsample_lab.graph.csc import undirected_union, weighted_union
from gnnsample_lab.graph.errors import CorruptDataError
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.graph.sources import tables

VERSION = 2
"""Of what is made of a list; caches of another version are built again. 1 lost edges to quotation marks and to indented
comments."""
SUFFIXES = (".txt.gz", ".txt", ".ungraph.txt.gz", ".ungraph.txt")


def has_weights(path: Path) -> bool:
    """Whether a list has weights: its third column, where it has one, begins with a number.

    Raises:
        FileNotFoundError, CorruptDataError: as :func:`read`.
    """
    return tables.has_weights(path)


def read(path: Path, *, undirected: bool = True, weighted: bool = False, name: str | None = None) -> Graph:
    """Graph of one edge list.

    Args:
        path: the list, gzip-compressed when its name ends in ``.gz``.
        undirected: False keeps each edge as listed, parallel edges included.
        weighted: the third column holds weights, which every line must have then.

    Raises:
        FileNotFoundError: there is no such file.
        CorruptDataError: empty, cut off, damaged, or not a list of integer pairs, or of pairs with a weight that is
            finite and not negative; names the file and the line.
    """
    edges = tables.integers(path, 2, sep=r"\s+", spare=True)
    if not edges.size:
        raise CorruptDataError(f"edge list {path} is empty: no line names an edge")
    if int(edges.min()) < 0:
        raise CorruptDataError(f"ids of edge list {path} must not be negative (got {int(edges.min())})")
    src, dst, num_nodes = _compact(edges[:, 0], edges[:, 1])
    weight = tables.weights(path, len(edges)) if weighted else None
    if undirected and weight is not None:
        src, dst, weight = weighted_union(src, dst, num_nodes, weight)
    elif undirected:
        src, dst = undirected_union(src, dst, num_nodes)
    return Graph.from_edges(src, dst, num_nodes, edge_weight=weight, name=name or path.name)


def _compact(src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    high = int(max(src.max(), dst.max()))
    if high < 4 * len(src) + 1024:  # a table of all ids is smaller than sorting the ids
        present = np.zeros(high + 1, dtype=bool)
        present[src] = True
        present[dst] = True
        if present.all():
            return src, dst, high + 1
        renumber = np.cumsum(present, dtype=np.int64) - 1
        return renumber[src], renumber[dst], int(present.sum())
    ids, inverse = np.unique(np.concatenate([src, dst]), return_inverse=True)
    return inverse[: len(src)], inverse[len(src) :], len(ids)
