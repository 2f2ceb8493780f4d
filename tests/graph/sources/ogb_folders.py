"""Writes small folders in OGB's format, so that every reader runs on real files."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np


def write_csv(path: Path, rows: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(",".join(map(str, np.atleast_1d(row))) for row in rows)
    with gzip.open(path, "wt") as handle:
        handle.write(text + "\n")


def node_property(
    folder: Path, split: str = "time", num_nodes: int = 30, seed: int = 0
) -> dict[str, np.ndarray]:
    """A node-property folder with edges, features, labels and a split; returns what it holds."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, num_nodes, (80, 2))
    feat = np.round(rng.normal(size=(num_nodes, 3)), 6)
    label = rng.integers(0, 4, num_nodes)
    order = rng.permutation(num_nodes)
    write_csv(folder / "raw" / "edge.csv.gz", edges)
    write_csv(folder / "raw" / "num-node-list.csv.gz", np.array([num_nodes]))
    write_csv(folder / "raw" / "num-edge-list.csv.gz", np.array([len(edges)]))
    write_csv(folder / "raw" / "node-feat.csv.gz", feat)
    write_csv(folder / "raw" / "node-label.csv.gz", label)
    parts = {"train": order[:15], "valid": order[15:20], "test": order[20:]}
    for name, ids in parts.items():
        write_csv(folder / "split" / split / f"{name}.csv.gz", ids)
    return {"edges": edges, "feat": feat.astype(np.float32), "label": label, **parts}


def binary(folder: Path, num_nodes: int = 30, seed: int = 0) -> dict[str, np.ndarray]:
    """A binary folder as papers100M has: float labels with NaN, half-precision features."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, num_nodes, (2, 80))
    feat = rng.normal(size=(num_nodes, 3)).astype(np.float16)
    label = rng.integers(0, 4, num_nodes).astype(np.float32)
    label[::3] = np.nan
    (folder / "raw").mkdir(parents=True)
    np.savez_compressed(
        folder / "raw" / "data.npz", edge_index=edges, num_nodes_list=np.array([num_nodes]),
        num_edges_list=np.array([80]), node_feat=feat, node_year=np.zeros((num_nodes, 1)),
    )  # fmt: skip
    np.savez_compressed(folder / "raw" / "node-label.npz", node_label=label.reshape(-1, 1))
    for name, ids in {"train": np.arange(5), "valid": np.arange(5, 9), "test": np.arange(9, 12)}.items():
        write_csv(folder / "split" / "time" / f"{name}.csv.gz", ids)
    return {"edges": edges.T, "feat": feat.astype(np.float32), "label": label}


def zipped(folder: Path, top: str) -> bytes:
    """The folder as an archive with ``top`` as its only top folder."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, f"{top}/{path.relative_to(folder).as_posix()}")
    return buffer.getvalue()


def in_edges(edges: np.ndarray) -> list[tuple[int, int]]:
    """(destination, source) of each edge in canonical order."""
    return sorted((int(v), int(u)) for u, v in edges)
