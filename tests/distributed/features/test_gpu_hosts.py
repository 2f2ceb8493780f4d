"""Cold rows between hosts on GPUs: as on CPU ranks, row for row and byte for byte.

Without GPUs each rank has the host in place of one (``tests/host_gpu``), and Gloo carries what NCCL would. Two GPUs
play two hosts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks.run import Ranks

from .conftest import featured, saved
from .test_features import asked, told

pytest.importorskip("torch")

CASES: list[tuple[int, list[list[int]], dict[str, Any]]] = [
    (2, [[0, 1], [2, 3]], {"transport": "all-to-all"}),  # the graph twice, each host a cache of its own
    (2, [[0, 2], [3, 1]], {"transport": "all-to-all-unordered", "positions": "everywhere"}),
    (2, [[0, 1], [2, 3]], {"kind": "replicated", "transport": "direct"}),
    (4, [[0, 1], [2, 3]], {"transport": "all-to-all"}),  # parts spread over hosts: one cache of all ranks
    (4, [[1, 2], [3, 0]], {"transport": "all-to-all-unordered"}),
    (4, [[0], [1], [2], [3]], {"kind": "replicated", "transport": "all-to-all"}),
    (1, [[0], [1], [2], [3]], {"transport": "direct"}),
    (4, [[0, 1, 2, 3]], {"transport": "all-to-all"}),  # one host, whose rows are all here
]
"""Parts, hosts, and how rows travel within a host."""
RATIOS = (0.1, 0.0, 1.0)


def rows_on_hosts(rank: Any, folder: Path, hosts: Any, options: dict[str, Any]) -> Any:
    """Rows, traffic and counts of every call, by the ratio of the cache."""
    found = {}
    for ratio in RATIOS:
        cache = lab.distributed.FeatureCache(folder, ratio=ratio, rank=rank, hosts=hosts, **options)
        calls = []
        for number, ids in enumerate(asked(rank.index)):
            x, stats = cache.extract(ids, cache.mark(ids) if number % 2 else None)
            moved = told(stats.traffic)
            moved.pop("label")
            counts = stats.hits, stats.misses, stats.local, stats.tally.rows.tolist()
            calls.append((x if rank.device == "cpu" else x.get(), moved, counts))
        merged = [
            x if rank.device == "cpu" else x.get() for x in cache.extract_many(asked(rank.index)[:4])[0]
        ]
        other = cache.another()
        again = other.extract(asked(rank.index)[4])[0]
        again = again if rank.device == "cpu" else again.get()
        other.close()
        cache.close()
        found[ratio] = calls, merged, again
    return found


def on_both(rank: Any, cases: list[tuple[Path, Any, dict[str, Any]]]) -> Any:
    """Every case on the CPU, and then on a host in place of a GPU, for good: such ranks are of no other use."""
    from tests import host_gpu

    found = [rows_on_hosts(rank, *case) for case in cases]
    host_gpu.install()
    rank.device = "cuda:0"
    return list(zip(found, [rows_on_hosts(rank, *case) for case in cases], strict=True))


@pytest.fixture
def ranks_of_their_own() -> Iterator[Ranks]:
    with lab.distributed.Ranks(4, device="cpu", timeout_s=240, collective_timeout_s=60) as ranks:
        yield ranks


def check(graph: lab.Graph, rank: int, twin: Any, found: Any) -> None:
    bits = graph.feat.view(np.uint8)
    for ratio in RATIOS:
        (calls, merged, again), (expected, _, _) = found[ratio], twin[ratio]
        for ids, (x, moved, counts), (_, as_moved, as_counts) in zip(
            asked(rank), calls, expected, strict=True
        ):
            assert (x.view(np.uint8) == bits[ids]).all()
            assert moved == as_moved and counts == as_counts
        for ids, x in zip(asked(rank)[:4], merged, strict=True):
            assert (x.view(np.uint8) == bits[ids]).all()
        assert (again.view(np.uint8) == bits[asked(rank)[4]]).all()


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ compiles the kernels for the host")
def test_rows_of_other_hosts_on_a_host_in_place_of_gpus(
    ranks_of_their_own: Ranks, graph: lab.Graph, folders: dict[int, Path]
) -> None:
    cases = [(folders[parts], hosts, options) for parts, hosts, options in CASES]
    every = ranks_of_their_own.run(on_both, cases)
    for rank, found in enumerate(every):
        for case, (twin, on_gpu) in zip(CASES, found, strict=True):
            check(graph, rank, twin, on_gpu)
            far = [counts[3][-1] for ratio in RATIOS[:2] for _, _, counts in on_gpu[ratio][0]]
            assert (max(far) > 0) == (len(case[1]) > 1), "rows come from other hosts, if there are any"


@pytest.mark.gpu
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("parts", "options"), [(1, {"transport": "direct"}), (2, {"transport": "all-to-all"}),
                           (2, {"transport": "all-to-all-unordered"}), (2, {"kind": "replicated"})], ids=str,
)  # fmt: skip
def test_two_gpus_as_two_hosts(
    gpu_ranks: Any, pair: Any, tmp_path: Path, parts: int, options: dict[str, Any]
) -> None:
    graph = featured(100)
    given = saved(graph, parts, tmp_path), [[0], [1]], options
    twins, every = (ranks.run(rows_on_hosts, *given, world=2) for ranks in (pair, gpu_ranks))
    for rank, (twin, found) in enumerate(zip(twins, every, strict=True)):
        check(graph, rank, twin, found)
