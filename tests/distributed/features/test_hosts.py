"""Several hosts: each has the hot rows, cold rows are divided among them (groups of ranks play hosts)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.features.tally import blocks_of
from gnnsample_lab.distributed.ranks.run import Ranks

from .conftest import N
from .test_features import asked, told

pytest.importorskip("torch")


def on_hosts(rank: Any, folder: Path, hosts: list[list[int]], transport: str) -> Any:
    cache = lab.distributed.FeatureCache(folder, ratio=0.1, rank=rank, transport=transport, hosts=hosts)
    found = []
    for ids in asked(rank.index):
        x, stats = cache.extract(ids)
        traffic = stats.traffic
        found.append((x, told(traffic), traffic.within, traffic.between, stats.misses))
    placement = cache.placement
    cache.close()
    return found, cache.cached_ids, placement.cold, placement.cold_bounds


@pytest.mark.parametrize(
    ("parts", "hosts", "transport"),
    [
        (2, [[0, 1], [2, 3]], "direct"),  # the graph twice, each host a cache of its own
        (2, [[0, 2], [1, 3]], "all-to-all"),
        (4, [[0, 1], [2, 3]], "all-to-all"),  # parts spread over hosts: one cache of all ranks
        (4, [[0, 2], [1, 3]], "all-to-all-unordered"),
    ],
)
def test_cold_rows_lie_on_one_host_each(
    four_ranks: Ranks, graph: lab.Graph, folders: dict[int, Path], parts: int, hosts: Any, transport: str
) -> None:
    ranks = four_ranks.run(on_hosts, folders[parts], hosts, transport)
    owner = lab.distributed.open_partition(folders[parts]).owner
    host_of = {rank: h for h, members in enumerate(hosts) for rank in members}
    row_bytes, bits = graph.feat.strides[0], graph.feat.view(np.uint8)
    for rank, (calls, cached, cold, bounds) in enumerate(ranks):
        home = {int(v): int(np.searchsorted(bounds, c, "right")) - 1 for c, v in enumerate(cold)}
        part = rank if parts == 4 else hosts[host_of[rank]].index(rank)
        assert (owner[cached] == part).all()
        if parts == 4:
            assert home == {v: host_of[int(owner[v])] for v in home}
        else:
            assert np.diff(bounds).min() >= len(cold) // 2
        assert sorted([*home, *np.unique(np.concatenate([r[1] for r in ranks]))]) == list(range(N))
        for number, (ids, (x, moved, within, between, misses)) in enumerate(zip(asked(rank), calls)):
            assert (x.view(np.uint8) == bits[ids]).all()
            missing = [int(v) for v in ids if int(v) in home]
            assert misses == len(missing)
            far = [v for v in missing if home[v] != host_of[rank]]
            partner = hosts[1 - host_of[rank]][hosts[host_of[rank]].index(rank)]
            rows = np.zeros(4, int)
            rows[partner] = len(far) * row_bytes
            if parts == 2:
                # Between hosts travel cold rows alone, and what asks for them.
                received = np.array(moved["received"].get("rows", [0] * 4))
                other = np.array([host_of[r] != host_of[rank] for r in range(4)])
                assert (received[other] == rows[other]).all()
            assert within + between == sum(np.sum(list(v)) for v in moved["received"].values())
            # Whose host has a cold row reads it, for its partner elsewhere too.
            read = [cold.tolist().index(v) - bounds[host_of[rank]] for v in [*missing, *asked(partner)[number].tolist()]
                    if home.get(v) == host_of[rank]]  # fmt: skip
            sectors, lines = (
                int(blocks_of(np.array(read, int), row_bytes, block).sum()) for block in (32, 128)
            )
            assert moved["host"] == ({"rows": 32 * sectors + 18 * lines} if read else {})
            assert moved["host_requests"] == lines


def test_direct_between_hosts_is_refused(four_ranks: Ranks, folders: dict[int, Path]) -> None:
    with pytest.raises(lab.distributed.RankError, match="transport='direct' reads its peers' memory"):
        four_ranks.run(on_hosts, folders[4], [[0, 1], [2, 3]], "direct")


def replicated(rank: Any, folder: Path, transport: str) -> Any:
    options = {"kind": "replicated", "hosts": [[0], [1]], "transport": transport}
    try:
        cache = lab.distributed.FeatureCache(folder, ratio=0.1, rank=rank, **options)
    except ValueError as error:
        return str(error)
    x, _ = cache.extract(asked(rank.index)[0])
    cache.close()
    return x


def test_a_replicated_cache_of_several_hosts(
    four_ranks: Ranks, graph: lab.Graph, folders: dict[int, Path]
) -> None:
    for said in four_ranks.run(replicated, folders[2], "direct", world=2):
        assert said.startswith("transport='direct' works where each host has all parts")
        assert "take transport='auto'" in said
    bits = graph.feat.view(np.uint8)
    for rank, x in enumerate(four_ranks.run(replicated, folders[2], "auto", world=2)):
        assert (x.view(np.uint8) == bits[asked(rank)[0]]).all()
