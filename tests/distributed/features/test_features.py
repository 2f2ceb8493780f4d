"""Caches over ranks give the rows of the graph, bit for bit, however they travel, and count what they move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.features.placement import KINDS
from gnnsample_lab.distributed.features.setup import POSITIONS, TRANSPORTS
from gnnsample_lab.distributed.ranks.run import Ranks

from .conftest import N, featured, saved

pytest.importorskip("torch")

CASES = [
    (kind, transport, positions)
    for kind in KINDS
    for transport in TRANSPORTS
    for positions in POSITIONS
    if kind == "partitioned" or positions == "everywhere"
]
SIZES = {"all cold": 0.0, "some": 0.12, "all hot": 1.0}


def asked(rank: int) -> list[np.ndarray]:
    """What a rank asks for, call by call: any ids, none on some ranks, none at all, duplicates, everything."""
    rng = np.random.default_rng(rank)
    return [
        rng.permutation(N)[: 20 + 7 * rank],
        rng.integers(0, N, 12) if rank % 2 else np.empty(0, np.int64),
        np.empty(0, np.int64),
        np.array([3, 3, 88, 3, 0, 88]),
        np.arange(N)[::-1],
    ]


def told(traffic: Any) -> dict[str, Any]:
    """A call's traffic in plain numbers."""
    return {
        "received": {k: v.tolist() for k, v in traffic.received.items() if v.any()},
        "sent": {k: v.tolist() for k, v in traffic.sent.items() if v.any()},
        "host": {k: v for k, v in traffic.host.items() if v},
        "host_requests": traffic.host_requests, "ideal": traffic.ideal, "ideal_remote": traffic.ideal_remote,
        "label": traffic.label,
    }  # fmt: skip


def extract_all(rank: Any, folder: Path, cases: list[Any], sizes: dict[str, float], options: Any) -> Any:
    """All cases on one rank: rows and traffic of every call, and who caches what."""
    found = {}
    for kind, transport, positions in cases:
        for name, ratio in sizes.items():
            cache = lab.distributed.FeatureCache(
                folder, ratio=ratio, rank=rank, kind=kind, transport=transport, positions=positions, **options
            )
            calls = []
            for number, ids in enumerate(asked(rank.index)):
                marks = cache.mark(ids) if number % 2 else None
                x, stats = cache.extract(ids, marks)
                calls.append((x, told(stats.traffic), (stats.hits, stats.misses, stats.local)))
            rows, index, _ = cache.extract_arrived(asked(rank.index)[0])
            calls.append((rows if index is None else rows[index], index is None, None))
            merged, stats = cache.extract_many(asked(rank.index)[:4])
            calls.append((merged, stats.rows, None))
            found[kind, transport, positions, name] = cache.cached_ids, calls
            cache.close()
            cache.close()
    return found


# ---- the same in plain Python -----------------------------------------------------------------------------------


def cached_by(graph: lab.Graph, kind: str, ratio: float, owner: np.ndarray, world: int) -> list[list[int]]:
    """Vertices that each rank caches, by row, when the in-degree decides."""
    degree = np.diff(graph.indptr).tolist()
    order, rows = sorted(range(N), key=lambda v: (-degree[v], v)), round(ratio * N)
    if 0 < rows < N:
        pass
    else:
        order = list(range(N))
    if kind == "replicated":
        return [order[:rows]] * world
    return [[v for v in order if owner[v] == rank][:rows] for rank in range(world)]


def expected_traffic(
    rank: int, case: Any, caches: list[list[int]], owner: list[int], old_of: list[int], row_bytes: int, world: int
) -> list[dict[str, Any]]:  # fmt: skip
    kind, transport, positions = case
    hot = {v for cache in caches for v in cache}
    cold = [v for v in old_of if v not in hot]

    def blocks(row: int, block: int) -> int:
        return len({byte // block for byte in range(row * row_bytes, (row + 1) * row_bytes)})

    def holder(v: int, reader: int) -> int:
        return reader if kind == "replicated" else owner[v]

    found = []
    for number in range(len(asked(0))):
        received: dict[str, list[int]] = {}
        sent: dict[str, list[int]] = {}

        def add(table: dict[str, list[int]], what: str, peer: int, nbytes: int) -> None:
            if peer != rank and nbytes:
                table.setdefault(what, [0] * world)[peer] += nbytes

        host = requests = 0
        for reader in range(world):
            ids = asked(reader)[number].tolist()
            for v in ids:
                peer = holder(v, reader)
                if reader == rank:
                    if v not in hot:
                        row = cold.index(v)
                        host += 32 * blocks(row, 32) + 18 * blocks(row, 128)
                        requests += blocks(row, 128)
                    elif transport == "direct":
                        add(received, "rows", peer, 32 * blocks(caches[peer].index(v), 32))
                    if transport == "direct" and positions == "owner":
                        add(received, "positions", owner[v], 32)
                if transport == "direct":
                    continue
                # Collectives: a request of 8 bytes and an answer of 4 for a position; 4 bytes and a row for a row.
                for what, ask, answer, there, wanted in (
                    ("positions", 8, 4, owner[v], positions == "owner"),
                    ("rows", 4, row_bytes, peer, v in hot),
                ):
                    if not wanted or there == reader:
                        continue
                    if reader == rank:
                        add(sent, "ids", there, ask)
                        add(received, what, there, answer)
                    elif there == rank:
                        add(received, "ids", reader, ask)
                        add(sent, what, reader, answer)
        if transport != "direct" and kind == "partitioned" and world > 1:
            rounds = 1 + (positions == "owner")
            for table in (received, sent):
                table["sizes"] = [8 * rounds * (p != rank) for p in range(world)]
        mine = asked(rank)[number].tolist()
        remote = sum(v in hot and holder(v, rank) != rank for v in mine)
        found.append(
            {
                "received": received, "sent": sent, "host": {"rows": host} if host else {}, "host_requests": requests,
                "ideal": len(mine) * row_bytes, "ideal_remote": remote * row_bytes, "label": "CPU: no NVLink",
            }
        )  # fmt: skip
    return found


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_rows_and_traffic(four_ranks: Ranks, graph: lab.Graph, folders: dict[int, Path], world: int) -> None:
    ranks = four_ranks.run(extract_all, folders[world], CASES, SIZES, {}, world=world)
    partition = lab.distributed.open_partition(folders[world])
    row_bytes, bits = graph.feat.strides[0], graph.feat.view(np.uint8)
    for case in CASES:
        for name, ratio in SIZES.items():
            caches = cached_by(graph, case[0], ratio, partition.owner, world)
            for rank, found in enumerate(ranks):
                cached, calls = found[(*case, name)]
                assert cached.tolist() == caches[rank]
                hot = {v for cache in caches for v in cache}
                traffic = expected_traffic(
                    rank, case, caches, partition.owner.tolist(), partition.old_of.tolist(), row_bytes, world
                )
                for ids, (x, moved, counts), expected in zip(asked(rank), calls, traffic):
                    assert x.dtype == np.float32 and (x.view(np.uint8) == bits[ids]).all()
                    assert moved == expected, (case, name, rank)
                    misses = sum(v not in hot for v in ids.tolist())
                    local = sum(v in set(caches[rank]) for v in ids.tolist())
                    assert counts == (len(ids) - misses, misses, local)
                assert (calls[-2][0].view(np.uint8) == bits[asked(rank)[0]]).all()
                assert calls[-2][1] == (case[1] != "all-to-all-unordered")
                for ids, x in zip(asked(rank)[:4], calls[-1][0]):
                    assert (x.view(np.uint8) == bits[ids]).all()
                assert calls[-1][1] == len(np.unique(np.concatenate(asked(rank)[:4])))
