"""Caches over ranks give the rows of the graph, bit for bit, however they travel, and count what they move."""

from __future__ import annotations

from dataclasses import replace
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
                # Collectives: a request of 4 bytes, for a position of 4 and for a row.
                for what, ask, answer, there, wanted in (
                    ("positions", 4, 4, owner[v], positions == "owner"),
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


# ---- other shapes, sources and rankings -------------------------------------------------------------------------


def extract_widths(rank: Any, folders: dict[Any, Path]) -> Any:
    found = {}
    for width, folder in folders.items():
        for transport in TRANSPORTS:
            budget = 4 * N + 20 * 4 * width
            cache = lab.distributed.FeatureCache(
                folder, rank=rank, transport=transport, positions="everywhere", capacity_bytes=budget
            )
            out = np.empty((N, width), np.float32)
            x, stats = cache.extract(np.arange(N), out=out)
            assert x is out
            found[width, transport] = x, cache.num_cached, cache.nbytes, told(stats.traffic)["host"]
            cache.close()
    return found


def test_rows_of_any_width(four_ranks: Ranks, tmp_path: Path) -> None:
    graphs = {width: featured(width) for width in [1, 5, 7, 100]}
    folders = {width: saved(g, 2, tmp_path / str(width)) for width, g in graphs.items()}
    for found in four_ranks.run(extract_widths, folders, world=2):
        for (width, _), (x, cached, nbytes, host) in found.items():
            row = 4 * width
            assert (x.view(np.uint8) == graphs[width].feat.view(np.uint8)).all()
            assert cached == 20 and nbytes == 20 * row + 4 * N
            begins = row * np.arange(N - 40)
            sectors = ((begins + row - 1) // 32 - begins // 32 + 1).sum()
            lines = ((begins + row - 1) // 128 - begins // 128 + 1).sum()
            assert host == {"rows": 32 * sectors + 18 * lines}


def rank_all(rank: Any, folder: Path, seeds: np.ndarray, world: int) -> Any:
    sampler = lab.distributed.Sampler(folder, [3, 2], rank=rank, seed=5)
    hot = lab.distributed.presample(sampler, seeds, 16, epochs=2)
    for wrong in ({"sampler": 3}, {"batch_size": 0}, {"epochs": 0}, {"by": "nobody"}, {"seeds": [N]}):
        with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
            lab.distributed.presample(**{"sampler": sampler, "seeds": seeds, **wrong})
    owners = [lab.distributed.presample(sampler, seeds, 16, by=by).score for by in ("owner", "equal")]
    sampler.close()
    ids = {}
    for name, hotness in (("presample", hot), ("degree", "degree"), ("scores", -np.arange(N))):
        cache = lab.distributed.FeatureCache(folder, hotness, ratio=0.1, rank=rank, kind="replicated")
        ids[name] = cache.cached_ids
        cache.close()
    return hot, owners, ids


@pytest.mark.parametrize("world", [1, 3])
def test_rankings(four_ranks: Ranks, graph: lab.Graph, folders: dict[int, Path], world: int) -> None:
    seeds = np.random.default_rng(0).permutation(N)[:50]
    ranks = four_ranks.run(rank_all, folders[world], seeds, world, world=world)
    sampler = lab.NeighborSampler(graph, [3, 2], seed=5, device="cpu")
    alone = lab.hotness(graph, "presample", sampler, seeds, batch_size=16, epochs=2)
    degrees = np.diff(graph.indptr), np.bincount(graph.indices, minlength=N)
    for hot, owners, ids in ranks:
        assert hot.label == "PreSC#2" and (hot.score == ranks[0][0].score).all()
        assert (hot.order == np.lexsort((-degrees[1], -hot.score))).all()
        if world == 1:
            assert (hot.score == alone.score).all() and (hot.order == alone.order).all()
        # A vertex counts once in each slice that reached it.
        assert (hot.score >= alone.score).all() and (hot.score <= world * alone.score).all()
        assert all((score > 0).any() for score in owners)
        assert ids["presample"].tolist() == hot.order[:9].tolist()
        assert ids["degree"].tolist() == np.argsort(-degrees[1], kind="stable")[:9].tolist()
        assert ids["scores"].tolist() == list(range(9))


def other_sources(rank: Any, graph: lab.Graph, folder: Path, spare: Path) -> Any:
    partition = lab.distributed.open_partition(folder)
    part = lab.distributed.part_of(graph, partition, rank.index)
    half = replace(part, feat=part.feat[:, :3].astype(np.float16))
    ids, found = np.arange(0, N, 3), []
    for source, options in (
        (graph, {"partition": partition, "folder": spare}),
        (part, {"folder": folder, "kind": "replicated", "ratio": 0.2}),
        (part, {"partition": partition, "ratio": 1.0}),  # nothing is cold: no file is needed
        (folder, {"ratio": None, "capacity_bytes": 0}),
        (half, {"partition": partition, "ratio": 1.0, "transport": "all-to-all"}),
    ):
        cache = lab.distributed.FeatureCache(source, rank=rank, **{"ratio": 0.1, **options})
        found.append(cache.extract(ids)[0])
        cache.close()
    problems = []
    bare = lab.distributed.part_of(graph, partition, rank.index, features=False)
    unequal = np.arange(N) * (rank.index + 1) % 7
    without = lab.distributed.save_parts(graph, partition, spare.with_name("without"), features=False)
    for source, arguments in (
        (half, {"folder": folder, "ratio": 0.1}),
        (part, {"folder": without, "ratio": 0.1}),
        (part, {"partition": partition, "ratio": 0.1}),
        (bare, {"partition": partition, "ratio": 0.1}),
        (folder, {"ratio": 0.1, "hotness": unequal}),
        (folder, {"ratio": 0.1, "transport": ["direct", "all-to-all"][rank.index]}),
        (folder, {"ratio": 0.1, "transport": "all-to-all", "positions": ["owner", "everywhere"][rank.index]}),
        (folder, {"ratio": 0.1, "hotness": ["in-degree", "degree"][rank.index]}),
        (folder, {"ratio": 0.1 * rank.index}),
        (folder, {"ratio": 0.1, "hotness": None}),
        (folder, {"ratio": 0.1, "hotness": [1.0] * (N if rank.index else 3)}),
        (folder, {"ratio": 0.1, "hotness": "hot"}),
        (folder, {"ratio": 0.1, "kind": "replicated", "positions": "owner"}),
        (folder, {"ratio": 0.1, "capacity_bytes": 5}),
        (folder, {}),
        (folder, {"ratio": 0.1, "kind": "copied"}),
        (folder, {"ratio": 0.1, "transport": "post"}),
        (folder, {"ratio": 0.1, "positions": "nowhere"}),
        (folder, {"ratio": 0.1, "knobs": 3}),
        (folder, {"capacity_bytes": 4 * N - 1}),  # less than the positions take
    ):
        try:
            cache = lab.distributed.FeatureCache(source, rank=rank, **arguments)
            cache.extract(np.arange(N))
        except (TypeError, ValueError) as error:
            problems.append(f"{type(error).__name__}: {error}")
        else:
            problems.append("none")
            cache.close()
    cache, other = (lab.distributed.FeatureCache(folder, ratio=ratio, rank=rank) for ratio in (0.1, 0.2))
    given = np.array([1, 2])
    marks = cache.mark(given)
    given[:] = 3
    for call in (
        lambda: cache.extract([N]),
        lambda: cache.extract([0.5]),
        lambda: cache.mark([[1]]),
        lambda: cache.extract([1], cache.mark([1, 2])),
        lambda: cache.extract([1], marks=3),
        lambda: cache.extract(given, marks),
        lambda: cache.extract([1, 2], other.mark([1, 2])),
        lambda: cache.extract([1], out=np.empty((1, 2), np.float32)),
        lambda: cache.extract([1], out=[1]),
        lambda: cache.extract_many(3),
    ):
        try:
            call()
        except (TypeError, ValueError) as error:
            problems.append(f"{type(error).__name__}: {error}")
        else:
            problems.append("none")
    other.close()
    cache.close()
    try:
        cache.extract([1])
    except RuntimeError as error:
        problems.append(str(error))
    return found, problems


def test_sources_and_refusals(
    four_ranks: Ranks, graph: lab.Graph, folders: dict[int, Path], tmp_path: Path
) -> None:
    for found, problems in four_ranks.run(other_sources, graph, folders[2], tmp_path / "spare", world=2):
        for x in found[:-1]:
            assert (x.view(np.uint8) == graph.feat[::3].view(np.uint8)).all()
        assert (found[-1].view(np.uint8) == graph.feat[::3, :3].astype(np.float16).view(np.uint8)).all()
        words = (
            "(got float32[n, 6] in part", "(got none in part", "folder must", "source must", "hotness and the size",
            "transport must be the same on all ranks", "positions must be the same on all ranks",
            "hotness and the size", "hotness and the size", "hotness must", "hotness", "hotness must",
            "positions must", "give exactly one of ratio and capacity_bytes (got both)",
            "give exactly one of ratio and capacity_bytes (got none)", "kind must", "transport must", "positions must",
            "knobs must", f"hold the {4 * N} bytes of the position list (got {4 * N - 1})", "node_ids must",
            "node_ids must", "node_ids must", "marks must be of the same batch, 1 rows", "marks must",
            "marks of other vertices", "marks must be of a cache with the same placement", "out must", "out must",
            "node_ids must", "the cache was closed",
        )  # fmt: skip
        assert [word for word, problem in zip(words, problems) if word not in problem] == []
        assert len(words) == len(problems)


def train_on_ranks(rank: Any, graph: lab.Graph, folder: Path) -> Any:
    """The cache as the training loop's source of features."""
    from gnnsample_lab.pipeline.features import CachedSource

    sampler = lab.distributed.Sampler(folder, [3, 2], rank=rank, seed=5)
    cache = lab.distributed.FeatureCache(folder, ratio=0.2, rank=rank)
    source, equal = CachedSource(cache), []
    for batch in sampler.epoch(np.arange(40), 16):
        marks = source.mark(batch)
        assert (marks is None) == cache.all_cached
        x, stats = source.extract(batch, marks)
        equal.append(bool((x.numpy().view(np.uint8) == graph.feat[batch.node_ids].view(np.uint8)).all()))
        assert stats.rows == len(batch.node_ids) and stats.local + stats.remote + stats.misses == stats.rows
    source.reset()
    sampler.close()
    cache.close()
    return equal


def test_a_source_for_training(four_ranks: Ranks, graph: lab.Graph, folders: dict[int, Path]) -> None:
    assert four_ranks.run(train_on_ranks, graph, folders[2], world=2) == [[True] * 3] * 2


def read_only(rank: Any, folder: Path) -> list[str]:
    """Rank 1 gives an array that cannot be written to, then both extract together."""
    cache, said = lab.distributed.FeatureCache(folder, ratio=0.1, rank=rank, transport="all-to-all"), []
    out = np.zeros((3, 6), np.float32)
    if rank.index:
        out.flags.writeable = False
        try:
            cache.extract([1, 2, 3], out=out)
        except ValueError as error:
            said.append(str(error))
        out.flags.writeable = True
    x, _ = cache.extract([1, 2, 3], out=out)
    cache.close()
    return [*said, "filled"] if x is out and out.any() else said


def test_an_output_is_refused_before_ranks_exchange(four_ranks: Ranks, folders: dict[int, Path]) -> None:
    first, second = four_ranks.run(read_only, folders[2], world=2)
    assert first == ["filled"]
    assert second == ["out must be an array that can be written to (got a read-only one)", "filled"]
