"""One mini-batch by several methods: traffic of each, and edges that slices unite to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks.run import Ranks

SEEDS = np.arange(0, 200, 5)


def edges(rank: Any, folder: Path, first: int) -> Any:
    sampler = lab.distributed.Sampler(folder, [4, 3], "csp", rank=rank, seed=2)
    found = lab.distributed.edges_of(sampler.sample(sampler.slice(SEEDS, "owner"), first))
    sampler.close()
    return found


def by_hand(rank: Any, folder: Path, options: dict[str, Any]) -> Any:
    """The traffic of two batches of this rank."""
    sampler = lab.distributed.Sampler(folder, [4, 3], rank=rank, seed=2, **options)
    for i in (7, 8):
        sampler.sample(sampler.slice(SEEDS, "owner"), i)
    total = sampler.total
    sampler.close()
    return total


def test_traffic_and_edges(four_ranks: Ranks, tmp_path: Path) -> None:
    graph = lab.load("arxiv-like", scale=0.02, use_cache=False)
    cut = lab.distributed.partition(graph, 2, "random", tolerance=2.0)
    folder = lab.distributed.save_parts(graph, cut, tmp_path / "parts", features=False)

    whole = lab.NeighborSampler(graph, [4, 3], seed=2, device="cpu").sample(SEEDS, batch_id=7)
    expected = lab.distributed.edges_of(whole, graph.indptr)
    slices = four_ranks.run(edges, folder, 7, world=2)
    united = lab.distributed.united(slices)
    assert all(np.array_equal(one, two) for one, two in zip(united, expected, strict=True))
    assert all(len(part) < len(all_) for part, all_ in zip(slices[0], expected, strict=True))
    other = lab.distributed.united(four_ranks.run(edges, folder, 8, world=2))
    assert not np.array_equal(other[0], expected[0])

    # A row of visits for each rank: rank 0 alone has a reason to copy lists.
    visits = np.zeros((2, graph.num_nodes))
    visits[0] = 1
    shared = {"fanouts": [4, 3], "seed": 2, "by": "owner", "batch_id": 7, "batches": 2}
    tasks = [
        {"method": "pull", **shared},
        {"method": "direct-cached", "cache_bytes": 10**9, "visits": visits, **shared},
        {"method": "csp-fixed", **shared},
    ]
    pull, cached, fixed = zip(
        *four_ranks.run(lab.distributed.traffic_of, folder, SEEDS, tasks, world=2), strict=True
    )
    for rank, total in enumerate(four_ranks.run(by_hand, folder, {"method": "pull"}, world=2)):
        assert pull[rank].by_kind == total.by_kind and pull[rank].volume > 0
    assert cached[0].volume == 0 < cached[1].volume
    assert all(t.by_kind["padding"] > 0 and "sizes" not in t.by_kind for t in fixed), (
        "buffers are fixed by then"
    )
