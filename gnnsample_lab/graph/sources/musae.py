"""Facebook pages, GitHub developers and Twitch users of the MUSAE collection, as SNAP stores them.

Files of one graph, as in SNAP's archives (``musae_<which>_edges.csv``) or without that prefix (``edges.csv``), each of
them gzip-compressed or not:

- ``edges.csv``: a line ``id_1,id_2`` (Twitch: ``from,to``), then each undirected edge once. Both directions are taken,
  each once, as of other edge lists of SNAP; a self-loop (Facebook has 179) appears once.
- ``target.csv``: a row a vertex, among its columns the vertex (``id``; Twitch: ``new_id``, in any order) and what is to
  be learnt (``page_type``, ``ml_target``, ``mature``). Classes are numbered in the sorted order of their texts.
- ``features.json`` (``musae_DE.json`` in SNAP's archive of Twitch): vertex -> numbers of the features that it has, in
  any order; a number that is repeated counts once. Some copies of the GitHub graph come without it.

The thousands of sparse columns become 128 by a fixed signed hash, and rows get length 1; ``raw`` gives all columns
instead, 1 where a vertex has the feature and 0 elsewhere. The source defines no splits.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from gnnsample_lab.device.host import free_host_bytes
from gnnsample_lab.files import read_json, reading
from gnnsample_lab.graph.catalogue import Entry
from gnnsample_lab.graph.csc import undirected_union
from gnnsample_lab.graph.errors import CorruptDataError
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.graph.sources import tables
from gnnsample_lab.graph.sources.hashing import hashed

COLUMNS = 128
"""Features after hashing."""
_HEADERS = ("id_1,id_2", "from,to")


def keys(entry: Entry) -> tuple[str, ...]:
    names = (f"musae_{entry['which']}_edges.csv", "edges.csv")
    return tuple(name + packed for name in names for packed in ("", ".gz"))


def files(key: Path, entry: Entry) -> list[Path]:
    prefix = key.name.partition("edges.csv")[0]
    features = (f"{prefix}features.json", f"musae_{entry['which']}.json")
    return [key, _either(key, f"{prefix}target.csv"), _either(key, *features)]


def _either(key: Path, *names: str) -> Path:
    """The first of these files beside ``key`` that is there, packed or not; else the first, packed as ``key`` is."""
    paths = [key.with_name(name + packed) for name in names for packed in ("", ".gz")]
    return next((p for p in paths if p.exists() or p.is_symlink()), paths[int(key.suffix == ".gz")])


def read(key: Path, entry: Entry, raw: bool = False) -> Graph:
    _, target, listed = files(key, entry)
    label = _labels(target, entry)
    num_nodes = len(label)
    edges = tables.integers(key, 2, headers=_HEADERS)
    outside = ((edges < 0) | (edges >= num_nodes)).any(axis=1)
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise CorruptDataError(
            f"{key} line {tables.line_of(key, row, skip=1)} must name two of the {num_nodes:,} vertices of "
            f"{target.name} (got {edges[row].tolist()})"
        )
    feat = None
    if listed.exists() or listed.is_symlink() or not entry.get("features_optional"):
        feat = _features(listed, num_nodes, entry, raw)
    src, dst = undirected_union(edges[:, 0], edges[:, 1], num_nodes)
    return Graph.from_edges(src, dst, num_nodes, feat=feat, label=label, name=entry["name"])


def _labels(path: Path, entry: Entry) -> np.ndarray:
    """int64[N]: the class of each vertex; the file must have each vertex of ``0 .. N-1`` once."""
    numbers = {text: number for number, text in enumerate(entry["classes"])}
    found: dict[int, int] = {}
    lines: list[int] = []
    for line, (vertex, text) in tables.records(path, (entry["id_column"], entry["label_column"])):
        if text not in numbers:
            raise CorruptDataError(
                f"{path} line {line}: {entry['label_column']} must be one of {', '.join(numbers)} (got {text[:60]!r})"
            )
        if not vertex.isdecimal() or not vertex.isascii() or len(vertex) > 18 or int(vertex) in found:
            raise CorruptDataError(
                f"{path} line {line}: {entry['id_column']} must be a vertex that no line before names (got "
                f"{vertex[:60]!r})"
            )
        found[int(vertex)] = numbers[text]
        lines.append(line)
    num_nodes = len(found)
    if not found:
        raise CorruptDataError(f"{path} lists no vertex")
    for line, vertex_id in zip(lines, found):
        if vertex_id >= num_nodes:
            raise CorruptDataError(
                f"{path} line {line}: the {num_nodes:,} vertices must be 0 to {num_nodes - 1} (got {vertex_id})"
            )
    label = np.empty(num_nodes, dtype=np.int64)
    label[list(found)] = list(found.values())
    return label


def _features(path: Path, num_nodes: int, entry: Entry, raw: bool) -> np.ndarray:
    width = entry["raw_features"]
    vertex, number = _entries(path, num_nodes, width)
    if not raw:
        return hashed_features(vertex, number, num_nodes)
    need, there = num_nodes * width * 4, free_host_bytes()
    if need > there:
        raise MemoryError(
            f"features='raw' of {entry['name']!r} are {num_nodes:,} x {width:,} float32, {need / 2**30:.2f} GiB, and "
            f"{there / 2**30:.2f} GiB are free; features=True gives {COLUMNS} hashed columns"
        )
    feat = np.zeros((num_nodes, width), dtype=np.float32)
    feat[vertex, number] = 1
    return feat


def _entries(path: Path, num_nodes: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """``(vertex, feature)`` of each pair that the file lists, once each, in the order of both."""
    table = read_json(path)
    with reading(path, "a list of feature numbers for each vertex"):
        vertices = np.empty(len(table), dtype=np.int64)
        for place, (key, numbers) in enumerate(table.items()):
            known = key.isascii() and key.isdecimal() and len(key) < 19 and int(key) < num_nodes
            if not known or str(int(key)) != key:
                raise ValueError(f"it must name vertices from 0 to {num_nodes - 1} (got {key[:60]!r})")
            if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < width for n in numbers):
                raise ValueError(f"vertex {key} must have a list of feature numbers from 0 to {width - 1}")
            vertices[place] = int(key)
        lengths = [len(numbers) for numbers in table.values()]
        listed = np.fromiter(
            itertools.chain.from_iterable(table.values()), dtype=np.int64, count=sum(lengths)
        )
    pairs = np.unique(np.repeat(vertices, lengths) * width + listed)
    return pairs // width, pairs % width


def hashed_features(
    vertex: np.ndarray, feature: np.ndarray, num_nodes: int, columns: int = COLUMNS
) -> np.ndarray:
    """float32[N, columns]: each feature adds 1 or -1 to one column, both by its hash; then rows get length 1.

    Args:
        vertex, feature: int64, a vertex and the number of a feature that it has; no pair twice.
        num_nodes: rows. Vertices without features, and those whose features cancel, have rows of zeros.
        columns: a power of two.
    """
    word = hashed(feature)
    column = (word & np.uint64(columns - 1)).astype(np.int64)
    sign = np.where(word >> np.uint64(63), -1.0, 1.0)
    feat = np.bincount(vertex * columns + column, sign, minlength=num_nodes * columns).reshape(
        num_nodes, columns
    )
    length = np.sqrt((feat * feat).sum(axis=1, keepdims=True))
    return np.divide(feat, length, out=np.zeros_like(feat), where=length > 0).astype(np.float32)
