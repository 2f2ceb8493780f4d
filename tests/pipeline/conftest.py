"""A small graph that a model can learn, with hubs so that caches hit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab import Graph
from gnnsample_lab.distributed.ranks.run import Ranks


def learnable_graph(num_nodes: int = 600, num_classes: int = 4, multi_label: bool = False) -> Graph:
    """Edges mostly within classes, features that are a noisy class code, all ids used."""
    rng = np.random.default_rng(7)
    label = rng.integers(0, num_classes, num_nodes)
    src = (rng.random(num_nodes * 8) ** 2 * num_nodes).astype(np.int64)
    same = rng.permutation(num_nodes)
    dst = np.array([same[label[same] == label[u]][rng.integers(0, 50)] for u in src])
    feat = rng.standard_normal((num_nodes, 10)).astype(np.float32)
    feat[np.arange(num_nodes), label] += 1.5
    order = rng.permutation(num_nodes)
    given: Any = label
    if multi_label:
        given = np.stack([label == 0, label < 2, label != 3], axis=1).astype(np.int64)
    return Graph.from_edges(
        src, dst, num_nodes, feat=feat, label=given, name="learnable", edge_weight=rng.random(src.size) + 0.1,
        splits={"train": order[:300], "valid": order[300:450], "test": order[450:]},
    )  # fmt: skip


@pytest.fixture(scope="session")
def graph() -> Graph:
    return learnable_graph()


@pytest.fixture(scope="session")
def multi_label_graph() -> Graph:
    return learnable_graph(multi_label=True)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Work this small only loses by being shared among threads."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def three_ranks() -> Iterator[Ranks]:
    """Three Gloo ranks for the tests of a process; one that fails ends them, and the next starts new ones."""
    with lab.distributed.Ranks(3, device="cpu", timeout_s=240, collective_timeout_s=60) as ranks:
        yield ranks
