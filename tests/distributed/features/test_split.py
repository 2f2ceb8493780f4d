"""The division of memory between topology and features: bytes recounted visit by visit, and the paper's shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab

from .conftest import N, featured

ROW = 400


@pytest.fixture(scope="module")
def setting() -> dict[str, Any]:
    graph = featured()
    rng = np.random.default_rng(1)
    return {
        "partition": lab.distributed.partition(graph, 3, "random", tolerance=3, use_cache=False),
        "degrees": np.diff(graph.indptr), "fanouts": [3, -1],
        "list_visits": np.stack([rng.integers(0, 5, N), rng.integers(0, 9, N)]),
        "row_visits": rng.integers(0, 30, N), "row_bytes": ROW,
    }  # fmt: skip


def recounted(split: Any, setting: dict[str, Any], kind: str) -> list[float]:
    owner, degree = setting["partition"].owner, setting["degrees"]
    spilled, copied = set(split.spilled.tolist()), [set(c.tolist()) for c in split.copied]
    topology_remote = topology_host = feature_remote = feature_host = 0.0
    for v in range(N):
        first, second = setting["list_visits"][:, v].tolist()
        reads = first * min(3, degree[v]) + second * degree[v]
        for rank in range(3):
            if v in copied[rank]:
                continue
            if v in spilled:
                topology_host += reads / 3 * 50
            elif owner[v] != rank:
                topology_remote += reads / 3 * 32
    order = sorted(range(N), key=lambda v: (-setting["row_visits"][v], v))
    rows = min(N, max(0, split.feature_bytes - 4 * N) // ROW)
    if kind == "replicated":
        hot = set(order[:rows])
    else:
        hot = {v for rank in range(3) for v in [v for v in order if owner[v] == rank][:rows]}
    for v in range(N):
        visits = int(setting["row_visits"][v])
        if v not in hot:
            feature_host += visits * (ROW + 4 * 18)
        elif kind == "partitioned":
            feature_remote += visits * ROW * 2 / 3
    return [topology_remote, topology_host, feature_remote, feature_host]


@pytest.mark.parametrize("kind", ["partitioned", "replicated"])
@pytest.mark.parametrize("budget", [0, 700, 4000, 60_000])
def test_bytes_of_each_split(setting: dict[str, Any], kind: str, budget: int) -> None:
    splits = lab.distributed.split_memory(budget, **setting, kind=kind, remote_gbps=100, host_gbps=10)
    owner, degree = setting["partition"].owner, setting["degrees"]
    for split in splits:
        found = [split.topology_remote, split.topology_host, split.feature_remote, split.feature_host]
        assert np.allclose(found, recounted(split, setting, kind))
        remote, host = np.array(found[::2]) / 3e11, np.array(found[1::2]) / 3e10
        assert np.isclose(split.seconds, np.maximum(remote, host).sum())
        assert split.topology_bytes + split.feature_bytes == budget
        for rank in range(3):
            kept = (owner == rank) & ~np.isin(np.arange(N), split.spilled)
            used = 4 * (degree[kept].sum() + degree[split.copied[rank]].sum())
            visited = setting["list_visits"].sum(0) > 0
            assert 4 * degree[kept & visited].sum() <= split.topology_bytes or not (kept & visited).any()
            if len(split.copied[rank]):  # peers' lists are copied into what all own lists leave
                assert used <= split.topology_bytes and kept.sum() == (owner == rank).sum()


def test_topology_comes_first_where_little_memory_holds_hot_rows(setting: dict[str, Any]) -> None:
    """The shape of the paper's figure: the best split holds the topology and gives the rest to features."""
    own = max(int(setting["degrees"][setting["partition"].owner == p].sum()) * 4 for p in range(3))
    skewed = {
        **setting,
        "row_visits": np.where(np.arange(N) < 5, 1000, 1),
        "list_visits": setting["list_visits"] * 40,
    }
    splits = lab.distributed.split_memory(own + 4 * N + 10 * ROW, **skewed, shares=[0, 0.2, 0.4, 0.6, 0.8, 1])
    best = min(splits, key=lambda s: s.seconds)
    assert 0 < best.feature_bytes < own + 4 * N + 10 * ROW
    assert splits[0].feature_host > best.feature_host and splits[-1].topology_host > best.topology_host == 0


def test_memory_for_everything_needs_neither_peers_nor_host(setting: dict[str, Any]) -> None:
    splits = lab.distributed.split_memory(10**7, **setting, kind="replicated", shares=[0.5])
    assert splits[0].remote_bytes == splits[0].host_bytes == splits[0].seconds == 0
