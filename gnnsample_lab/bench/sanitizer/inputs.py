"""What the cases work on: small graphs, seeds, and a graph as one part for a rank alone."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

import gnnsample_lab as lab
from gnnsample_lab.bench.configurations import test_graph

Pair = tuple[str, Any, Any]
"""What was computed, what it should be, what it is; arrays of either device."""
SEEDS = 60


def small_graph(name: str = "hubs", features: int = 0) -> lab.Graph:
    """A small graph of the verification, or with ``features`` one that has features, labels and a training set."""
    graph = test_graph(name)
    if not features:
        return graph
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, 700, 6000), rng.integers(0, 700, 6000)
    return lab.Graph.from_edges(
        src, dst, 700, feat=rng.random((700, features), np.float32), label=rng.integers(0, 5, 700),
        splits={"train": np.arange(0, 700, 3)}, edge_weight=rng.random(6000, np.float32), name="featured",
    )  # fmt: skip


def seeds_of(graph: lab.Graph, count: int = SEEDS) -> np.ndarray:
    """Vertices, some of them more than once."""
    return np.random.default_rng(1).integers(0, graph.num_nodes, count)


def there(array: Any, device: str) -> Any:
    """``array`` on ``device``: NumPy or CuPy."""
    if device == "cpu":
        return array
    import cupy

    return cupy.asarray(array)


def tensor(array: np.ndarray, device: str) -> Any:
    """The same as a tensor."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


@contextlib.contextmanager
def one_part(device: str, graph: lab.Graph | None = None) -> Iterator[dict[str, Any]]:
    """A graph as one part in files, and a rank alone, as samplers from parts take them."""
    from gnnsample_lab.distributed.ranks.alone import Alone

    whole = test_graph("hubs") if graph is None else graph
    with tempfile.TemporaryDirectory() as folder:
        lab.distributed.save_parts(whole, lab.distributed.partition(whole, 1, "random"), folder)
        yield {"source": folder, "rank": Alone(device), "seed": 5}
