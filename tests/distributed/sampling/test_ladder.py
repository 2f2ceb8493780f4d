"""Every method draws one sample: the slices of all ranks together are what one sampler draws from the whole graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.checks import is_cuda_array
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.distributed.parts.part import part_of, vertex_records
from gnnsample_lab.distributed.ranks.run import Ranks
from gnnsample_lab.distributed.sampling import methods as table
from gnnsample_lab.distributed.sampling.capacities import WARM_UP
from gnnsample_lab.distributed.sampling.gpu.direct import DirectEngine
from gnnsample_lab.distributed.sampling.layer import LayerSlice
from gnnsample_lab.distributed.sampling.sectors import weight_sectors
from gnnsample_lab.distributed.sampling.spill import records_of_kept, without
from gnnsample_lab.distributed.sampling.visits import presampled
from gnnsample_lab.sampling.weights import integer_weights
from tests.minibatch.conftest import random_graph, with_wide_ids

pytest.importorskip("torch")

KINDS: dict[str, dict[str, Any]] = {
    "floyd": {"fanouts": [3, 2, 4]},
    "reservoir": {"fanouts": [2, 3], "pick": "reservoir"},
    "replace": {"fanouts": [3, 2], "replace": True},
    "weighted": {"fanouts": [2, 3], "weighted": True},
    "weighted-replace": {"fanouts": [3, 2], "weighted": True, "replace": True},
    "all": {"fanouts": [2, -1]},
    "all-weighted": {"fanouts": [-1, 2], "weighted": True},
}
METHODS = list(lab.distributed.methods())
BATCH = 11
RNG = np.random.default_rng(7)
N = 120
HUB = 3
SEEDS = {
    "mixed": RNG.permutation(N)[:24],
    "repeated": np.array([5, HUB, 5, 100, 7, HUB, 119, 8, 5, 60]),  # across slices, too
    "one": np.array([HUB]),  # all slices but one are empty
    "dead ends": np.array([119, 118, 117, 116]),
}


def hubs_and_dead_ends() -> lab.Graph:
    """A skewed graph; vertices from 108 on have no in-edges, and vertex 3 has an edge from everyone."""
    base = random_graph(1, N, 500)
    dst = np.repeat(np.arange(N), np.diff(base.indptr))
    src, dst = np.concatenate([base.indices, np.arange(N)]), np.concatenate([dst, np.full(N, HUB)])
    weight = np.concatenate([base.edge_weight, np.arange(N) % 5 / 4])
    return lab.Graph.from_edges(src, dst, N, edge_weight=weight, name="hub")


@pytest.fixture(scope="module")
def graph() -> lab.Graph:
    return hubs_and_dead_ends()


@pytest.fixture(scope="module")
def folders(graph: lab.Graph, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Path]:
    return saved_parts(graph, tmp_path_factory)


def saved_parts(graph: lab.Graph, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Path]:
    """Saved parts, by number of parts and method of the partition."""
    made: dict[Any, Path] = {}
    for parts in (1, 2, 3, 4):
        for how in ("random", "metis"):
            found = lab.distributed.partition(
                graph, parts, how, seeds=np.arange(N), tolerance=parts, use_cache=False
            )
            folder = tmp_path_factory.mktemp(f"{how}-{parts}")
            made[parts, how] = lab.distributed.save_parts(graph, found, folder)
    return made


def shortened(batch: Any) -> dict[str, Any]:
    """What of a mini-batch is compared; local ids are read back as vertices."""
    batch = batch.to_cpu()
    hops = [(p.frontier, p.counts, p.neighbors, p.positions) for p in batch.picks]
    levels = [np.sort(batch.node_ids[:n]) for n in batch.level_sizes]
    for block, picks in zip(reversed(batch.blocks), batch.picks):
        assert (block.src[block.indices] == picks.neighbors).all()
        assert (block.dst == picks.frontier).all()
    return {"hops": hops, "levels": levels, "given": batch.seeds[batch.seed_inverse], "id": batch.batch_id}


def reference(graph: lab.Graph, seeds: np.ndarray, options: dict[str, Any], batch_id: int = BATCH) -> Any:
    options = dict(options)
    batch = lab.NeighborSampler(graph, options.pop("fanouts"), device="cpu", seed=5, **options).sample(
        seeds, batch_id
    )
    found = shortened(batch)
    found["hops"] = [
        (frontier, counts, neighbors, positions - np.repeat(graph.indptr[frontier], counts))
        for frontier, counts, neighbors, positions in found["hops"]
    ]
    return found


def rows_of(hop: Any) -> dict[int, list[tuple[int, int]]]:
    """Slots and neighbours by destination, in the order of the draws."""
    frontier, counts, neighbors, slots = hop
    ends = np.cumsum(counts)
    picks = list(zip(slots.tolist(), neighbors.tolist()))
    return {
        int(v): picks[end - count : end]
        for v, end, count in zip(frontier.tolist(), ends.tolist(), counts.tolist())
    }


def check_union(slices: list[Any], whole: Any) -> None:
    for h, hop in enumerate(whole["hops"]):
        union: dict[int, Any] = {}
        for each in slices:
            for v, picks in rows_of(each["hops"][h]).items():
                assert union.setdefault(v, picks) == picks
        assert union == rows_of(hop)
    for h, level in enumerate(whole["levels"]):
        assert np.unique(np.concatenate([s["levels"][h] for s in slices])).tolist() == level.tolist()


def warmed(sampler: Any, method: str, seeds: np.ndarray, by: str) -> Any:
    """The sampler; ``csp-fixed`` has its buffers of fixed length once it has measured mini-batches."""
    if method == "csp-fixed":
        for batch_id in range(WARM_UP):
            sampler.sample(sampler.slice(seeds, by), batch_id)
        assert sampler.engine.capacities is not None
    return sampler


def sample_all(rank: Any, folder: Path, methods: list[str], kinds: dict[str, Any], by: str) -> Any:
    """Every kind of draw with every method on one rank: its slices."""
    found = {}
    for method in methods:
        for name, options in kinds.items():
            given = dict(options)
            sampler = lab.distributed.Sampler(
                folder, given.pop("fanouts"), method, rank=rank, seed=5, cache_bytes=200, **given
            )
            warmed(sampler, method, SEEDS["one"], by)  # so that the buffers are too small for the others, too
            for seeds_name, seeds in SEEDS.items():
                mine = sampler.slice(seeds, by)
                found[method, name, seeds_name] = shortened(sampler.sample(mine, BATCH))
            sampler.close()
    return found


@pytest.mark.parametrize(
    ("world", "how", "by", "names"),
    [
        (1, "random", "equal", list(KINDS)),  # the first: alone, it compiles for the others
        (2, "metis", "owner", ["reservoir", "all-weighted"]),
        (3, "random", "equal", list(KINDS)),
        (4, "metis", "equal", ["floyd", "weighted-replace"]),
    ],
)
def test_all_methods_draw_the_sample_of_one(
    four_ranks: Ranks,
    graph: lab.Graph,
    folders: dict[Any, Path],
    world: int,
    how: str,
    by: str,
    names: list[str],
) -> None:
    kinds = {name: KINDS[name] for name in names}
    every = four_ranks.run(sample_all, folders[world, how], METHODS, kinds, by, world=world)
    for name, options in kinds.items():
        for seeds_name, seeds in SEEDS.items():
            whole = reference(graph, seeds, options)
            for method in METHODS:
                slices = [found[method, name, seeds_name] for found in every]
                check_union(slices, whole)
                given = np.concatenate([s["given"] for s in slices])
                assert sorted(given.tolist()) == sorted(seeds.tolist())
                assert {s["id"] for s in slices} == {BATCH}


def cached_by_default(rank: Any, folder: Path, seed: int) -> Any:
    sampler = lab.distributed.Sampler(
        folder, [3, 2], "direct-cached", rank=rank, seed=seed, cache_bytes=10**6, replace=True
    )
    hot = sampler.engine.hot  # type: ignore[attr-defined]
    visits = presampled(sampler._setup, sampler.engine.sampled)  # type: ignore[attr-defined]
    found = hot.ids, hot.reads_remote, visits, sampler.partition.owner, np.asarray(sampler.part.indices)
    sampler.close()
    return found


def test_lists_are_ranked_by_mini_batches_of_the_same_rank(
    four_ranks: Ranks, graph: lab.Graph, folders: dict[Any, Path]
) -> None:
    """By default: visits of mini-batches that the rank samples beforehand, each hop with its fanout."""
    results = four_ranks.run(cached_by_default, folders[3, "random"], 5, world=3)
    degrees = np.diff(graph.indptr)
    edges_out = sum(np.bincount(result[4], minlength=N) for result in results)
    for me, (ids, remote, visits, owner, _) in enumerate(results):
        counted = visits - np.stack([np.zeros(N), np.minimum(0.01 * edges_out, 1)])
        own = owner == me
        # All seeds of the part are in each of the eight mini-batches; what they reach is expanded next.
        assert np.array_equal(np.rint(counted[0]), 8.0 * own)
        assert (np.rint(counted[1])[own] == 8).all() and (counted > -1e-9).all()
        assert np.rint(counted[1])[(owner != me) & (degrees > 0)].sum() > 0
        reads = (visits * np.minimum(degrees, np.array([[3], [2]]))).sum(0) * (owner != me)
        assert remote == pytest.approx(reads.sum())
        order = np.flatnonzero(reads)
        per_byte = reads / np.maximum(degrees, 1)
        assert ids.tolist() == order[np.argsort(-per_byte[order], kind="stable")].tolist()


# ---- layers and walks ---------------------------------------------------------------------------------------------

LAYERS: dict[str, dict[str, Any]] = {
    "replace": {"final_size": 60, "step_size": 17},
    "distinct": {"final_size": 70, "step_size": 25, "replace": False},
    "weighted": {"final_size": 60, "step_size": 17, "weighted": True},
    "weighted distinct": {"final_size": 40, "step_size": 12, "weighted": True, "replace": False},
}
WALKS: dict[str, Any] = {
    "uniform": lambda: lab.apps.DeepWalk(9, weighted=False),
    "weighted": lambda: lab.apps.DeepWalk(6),
    "stopped": lambda: lab.apps.PPR(0.2, weighted=False),
    "restarts": lambda: lab.apps.PinSAGEWalk(3, 5, 0.4),
}


def layers_and_walks(rank: Any, folder: Path, by: str, method: str = "csp") -> Any:
    """Slices of layers and walks of one rank, on the host. On a GPU they are made there."""

    def fetched(*arrays: Any) -> tuple[Any, ...]:
        assert all(is_cuda_array(array) == (rank.device != "cpu") for array in arrays)
        return tuple(map(to_host, arrays))

    layers, walks = {}, {}
    for name, options in LAYERS.items():
        sampler = lab.distributed.LayerSampler(folder, rank=rank, seed=5, method=method, **options)
        for seeds_name, seeds in SEEDS.items():
            layers[name, seeds_name] = tuple(
                LayerSlice(*fetched(s.slots, s.vertices, s.transits), s.size)
                for s in sampler.sample(seeds, BATCH, by).layers
            )
        sampler.close()
    for name, make in WALKS.items():
        walker = lab.distributed.Walker(folder, make(), rank=rank, seed=5, method=method)
        for seeds_name in ("repeated", "one"):  # the latter leaves ranks without roots
            found = walker.walk(SEEDS[seeds_name], 100, by)
            drawn = fetched(found.walks, found.steps, found.vertices)
            walks[name, seeds_name] = found.mine, *fetched(found.collect()), drawn
        none = walker.walk(SEEDS["one"][:0], 100, by)
        empty = fetched(none.walks, none.steps, none.vertices, none.collect())
        assert [array.size for array in empty] == [0] * 4
        walker.close()
    return layers, walks


@pytest.mark.parametrize(
    ("world", "how", "by", "method"),
    [
        (1, "random", "equal", "csp"),  # first: it compiles alone what all others would each compile
        (3, "metis", "equal", "csp"),
        (4, "random", "owner", "csp"),
        (3, "random", "owner", "direct"),
        (4, "metis", "equal", "direct"),
    ],
)
def test_layers_and_walks_are_those_of_one(
    four_ranks: Ranks, graph: lab.Graph, folders: dict[Any, Path], world: int, how: str, by: str, method: str
) -> None:
    every = four_ranks.run(layers_and_walks, folders[world, how], by, method, world=world)
    check_layers_and_walks(every, graph)


def check_layers_and_walks(every: list[Any], graph: lab.Graph) -> None:
    """What :func:`layers_and_walks` found on all ranks is together what one draws."""
    for name, options in LAYERS.items():
        for seeds_name, seeds in SEEDS.items():
            whole = lab.run_app(
                graph, lab.apps.Layer(**options), seeds[None], device="cpu", seed=5, first_sample=BATCH
            )
            slices = [layers[name, seeds_name] for layers, _ in every]
            assert {len(layers) for layers in slices} == {len(whole.steps)}
            for step, expected in enumerate(whole.steps):
                union = np.full(expected.shape[1], -1)
                parts = [layers[step] for layers in slices]
                assert sum(part.slots.size for part in parts) == (expected >= 0).sum()
                for part in parts:
                    union[part.slots] = part.vertices
                assert union.tolist() == expected[0].tolist()
                before = seeds if step == 0 else whole.steps[step - 1][0]
                for part in parts:  # each vertex was picked from the list of the vertex that it says
                    for vertex, transit in zip(part.vertices.tolist(), part.transits.tolist()):
                        assert vertex in graph.indices[slice(*graph.indptr[before[transit] :][:2])]
    for (name, make), seeds_name in itertools.product(WALKS.items(), ("repeated", "one")):
        app, roots = make(), SEEDS[seeds_name]
        whole = lab.run_app(graph, app, roots, device="cpu", seed=5, first_sample=100)
        stacked = np.stack(whole.steps, axis=1)
        found = np.full(stacked.shape, -2)
        of_ranks = [walks[name, seeds_name] for _, walks in every]
        for mine, paths, (numbers, steps, vertices) in of_ranks:
            found[mine, : paths.shape[1]] = paths
            found[mine, paths.shape[1] :] = -1  # a longer array where one device stops later than ranks
            assert (stacked[numbers // stacked.shape[2], steps, numbers % stacked.shape[2]] == vertices).all()
            assert (np.diff(steps * (roots.size * stacked.shape[2]) + numbers) > 0).all()
        assert (found == stacked).all()
        assert sum(vertices.size for _, _, (_, _, vertices) in of_ranks) == (stacked >= 0).sum()


def walks_and_ideals(rank: Any, folder: Path, by: str) -> Any:
    """Paths of one rank's samples, and the ideals of what it drew, by walk."""
    found = []
    for app in (lab.apps.DeepWalk(6), lab.apps.PPR(0.3)):
        walker = lab.distributed.Walker(folder, app, rank=rank, seed=5)
        walks = walker.walk(SEEDS["repeated"], 100, by)
        found.append((walks.mine, walks.collect(), walker.traffic.ideal, walker.traffic.ideal_remote))
        walker.close()
    return found


def test_walkers_that_came_from_others_are_counted(four_ranks: Ranks, folders: dict[Any, Path]) -> None:
    folder = folders[3, "random"]
    owner = lab.distributed.open_partition(folder).owner
    for of_ranks in zip(*four_ranks.run(walks_and_ideals, folder, "equal", world=3), strict=True):
        picks, remote = [0] * 3, [0] * 3
        for home, (mine, paths, _, _) in enumerate(of_ranks):
            for root, path in zip(SEEDS["repeated"][mine].tolist(), paths[:, :, 0].tolist(), strict=True):
                walker, vertex = home, root
                for following in path:
                    if following < 0:
                        break
                    drawn_by = int(owner[vertex])
                    picks[drawn_by] += 1
                    remote[drawn_by] += drawn_by != walker
                    walker, vertex = drawn_by, following
        assert [ideal for _, _, ideal, _ in of_ranks] == [4 * n for n in picks]
        assert [ideal_remote for _, _, _, ideal_remote in of_ranks] == [4 * n for n in remote] != [0] * 3


# ---- bytes ------------------------------------------------------------------------------------------------------

COUNTED = {"floyd": KINDS["floyd"], "weighted": KINDS["weighted"]}
READING = ("direct", "direct-cached", "uva")


def counted_by_gpu_engine(engine: Any, batch: Any) -> Any:
    """The traffic that the engine for GPUs finds in a sample of the engine for CPUs."""
    traffic = engine.exchange.new_traffic()
    stand_in = SimpleNamespace(
        partition=engine.partition, part=engine.part, layout=engine.layout, spec=engine.spec, method=engine.method,
        exchange=SimpleNamespace(traffic=traffic, members=engine.exchange.members), id_dtype=np.dtype(np.int32),
        copies=None if engine.hot is None else SimpleNamespace(hot=engine.hot), spill=engine.spill,
    )  # fmt: skip
    DirectEngine.count(stand_in, batch)  # type: ignore[arg-type]
    return traffic


def sample_and_count(rank: Any, folder: Path, kinds: dict[str, Any], seeds: np.ndarray) -> Any:
    found = {}
    for method in METHODS:
        for name, options in kinds.items():
            given = dict(options)
            sampler = lab.distributed.Sampler(
                folder, given.pop("fanouts"), method, rank=rank, seed=5, cache_bytes=300, **given
            )
            batch = sampler.sample(sampler.slice(seeds), BATCH)
            found[method, name] = shortened(batch), sampler.traffic
            hot = getattr(sampler._engine, "hot", None)
            if hot is not None:
                found["hot", name] = hot.ids
            if method in READING:
                found["by GPU", method, name] = counted_by_gpu_engine(sampler._engine, batch)
    return found


def in_parts(graph: lab.Graph, partition: Any) -> dict[int, int]:
    """Where each vertex's list begins in its owner's ``indices``."""
    begins, ends = {}, [0] * partition.num_parts
    for v in range(graph.num_nodes):
        begins[v] = ends[partition.owner[v]]
        ends[partition.owner[v]] += int(graph.indptr[v + 1] - graph.indptr[v])
    return begins


def expected_bytes(
    graph: lab.Graph, partition: Any, method: str, hops: list[list[Any]], me: int, weighted: bool
) -> dict[str, dict[int, int]]:
    """Bytes that come to rank ``me`` by kind and peer, one entry at a time; ``hops[rank]`` are all ranks' picks."""
    out: dict[str, dict[int, int]] = {}

    def add(kind: str, peer: int, amount: int) -> None:
        if peer != me and amount:
            out.setdefault(kind, dict.fromkeys(range(len(hops)), 0))[peer] += amount

    begins = in_parts(graph, partition)
    for hop in range(len(hops[me])):
        for asker, ranks_hops in enumerate(hops):
            if method in ("csp", "pull", "csp-async"):
                add("sizes", asker, 8)
            for v, picks in rows_of(ranks_hops[hop]).items():
                owner, degree = int(partition.owner[v]), int(graph.indptr[v + 1] - graph.indptr[v])
                if owner == me and method in ("csp", "pull", "csp-async"):
                    add("ids", asker, 4)  # a peer asks this rank
                if asker != me:
                    continue
                if method in ("csp", "csp-async"):
                    add("records", owner, 4)
                    add("picks", owner, len(picks) * (8 if weighted else 4))
                elif method == "pull":
                    add("records", owner, 4)
                    add("lists", owner, degree * (8 if weighted else 4))
                elif method == "direct":
                    add("records", owner, 64 if weighted else 32)
                    add("lists", owner, 32 * len({(begins[v] + slot) * 4 // 32 for slot, _ in picks}))
    return out


def test_bytes_are_those_of_the_sample(four_ranks: Ranks, graph: lab.Graph, folders: dict[Any, Path]) -> None:
    seeds = SEEDS["mixed"]
    folder = folders[3, "random"]
    partition = lab.distributed.open_partition(folder)
    every = four_ranks.run(sample_and_count, folder, COUNTED, seeds, world=3)
    for name, options in COUNTED.items():
        weighted = options.get("weighted", False)
        hops = [found["csp", name][0]["hops"] for found in every]
        for me, found in enumerate(every):
            picks = sum(len(p) for hop in hops[me] for p in rows_of(hop).values())
            for method in METHODS:
                traffic = found[method, name][1]
                assert traffic.ideal == picks * 4
                assert traffic.rank == me and traffic.by_peer[me] == 0
                assert traffic.volume == sum(traffic.by_kind.values()) and traffic.between == 0
            for method in ("csp", "pull", "csp-async", "direct"):
                traffic = found[method, name][1]
                expected = expected_bytes(graph, partition, method, hops, me, weighted)
                counted = {k: v for k, v in traffic.received.items() if v.any() and k != "weights"}
                assert {k: list(v.values()) for k, v in expected.items()} == {
                    k: v.tolist() for k, v in counted.items()
                }, (method, name, me)
            direct, cached, uva = (found[m, name][1] for m in ("direct", "direct-cached", "uva"))
            assert "records" not in cached.received and 0 < cached.volume < direct.volume
            assert (direct.requests * 32 == direct.by_peer).all() and direct.label == "CPU: no NVLink"
            owner = partition.owner[found["hot", name]]
            assert owner.size and (owner != me).all()
            rows = sum(len(rows_of(hop)) for hop in hops[me])
            assert uva.by_peer.sum() == 0 and uva.volume == 50 * uva.host_requests
            # With weights also where prefix sums begin and how many in-edges have weight: words of their own.
            assert uva.host["records"] == 50 * rows * (3 if weighted else 1)
            for method in READING:
                one, other = found[method, name][1], found["by GPU", method, name]
                assert (one.by_kind, one.by_peer.tolist()) == (other.by_kind, other.by_peer.tolist())
                assert (one.ideal, one.ideal_remote) == (other.ideal, other.ideal_remote)
                assert one.host_requests == other.host_requests
                assert one.requests.tolist() == other.requests.tolist()
        # What is sent arrives, by peer and kind.
        for method in ("csp", "pull", "csp-async", "csp-fixed"):
            for a, one in enumerate(every):
                for b, other in enumerate(every):
                    sent, got = one[method, name][1].sent, other[method, name][1].received
                    assert {k: v[b] for k, v in sent.items()} == {k: v[a] for k, v in got.items()}


SPILLS = (None, 10**9, 400, 0)
"""Budgets for own lists; each part has more than 500 bytes of ids."""


def spilled_by_rank(
    rank: Any, folder: Path, options: dict[str, Any], cache_bytes: int, seeds: np.ndarray
) -> Any:
    found = {}
    for budget in SPILLS:
        sampler = lab.distributed.Sampler(
            folder,
            [3, 2],
            "direct-cached",
            rank=rank,
            seed=5,
            cache_bytes=cache_bytes,
            topology_bytes=budget,
            **options,
        )
        batch = sampler.sample(sampler.slice(seeds), BATCH)
        engine: Any = sampler.engine
        spilled = None if engine.spill is None else engine.spill.is_spilled
        by_gpu = counted_by_gpu_engine(engine, batch)
        found[budget] = shortened(batch), sampler.traffic, spilled, engine.hot.ids, by_gpu
        sampler.close()
    return found


@pytest.mark.parametrize("cache_bytes", [0, 300])
@pytest.mark.parametrize("weighted", [False, True])
def test_lists_beyond_the_budget_count_as_host_memory(
    four_ranks: Ranks, graph: lab.Graph, folders: dict[Any, Path], weighted: bool, cache_bytes: int
) -> None:
    folder, seeds, degrees = folders[3, "random"], SEEDS["mixed"], np.diff(graph.indptr)
    partition = lab.distributed.open_partition(folder)
    options = {"weighted": weighted}
    every = four_ranks.run(spilled_by_rank, folder, options, cache_bytes, seeds, world=3)
    whole = reference(graph, seeds, {"fanouts": [3, 2], **options})
    begins, entry = in_parts(graph, partition), 4 + 8 * weighted
    for budget in SPILLS:
        check_union([found[budget][0] for found in every], whole)
        spilled = every[0][budget][2]
        if budget is None or budget == 10**9:
            assert spilled is None
        elif budget == 0:
            assert np.array_equal(spilled, degrees > 0)
        else:
            for p in range(3):
                own = partition.owner == p
                kept, shortest = degrees[own & ~spilled].sum() * entry, degrees[own & spilled].min() * entry
                assert kept <= budget < kept + shortest, "no other list has room"
        for found in every:
            sample, traffic, mine, hot, by_gpu = found[budget]
            assert (spilled is None and mine is None) or np.array_equal(spilled, mine), "all ranks know alike"
            counted = (traffic.by_kind, traffic.by_peer.tolist(), traffic.host_requests)
            assert counted == (by_gpu.by_kind, by_gpu.by_peer.tolist(), by_gpu.host_requests)
            in_host = 0
            for hop in sample["hops"]:
                for v, picks in rows_of(hop).items():
                    if spilled is not None and spilled[v] and v not in hot:
                        in_host += len({(begins[v] + slot) * 4 // 32 for slot, _ in picks})
            assert traffic.host.get("lists", 0) == 50 * in_host
            assert (in_host > 0) == (budget in (400, 0))
            if spilled is None:
                assert counted == (found[None][1].by_kind, found[None][1].by_peer.tolist(), 0)
            elif budget == 0:
                assert not traffic.by_peer.any(), "nothing stays on a peer"


def spilled_at_owners(rank: Any, folder: Path, options: dict[str, Any], seeds: np.ndarray) -> Any:
    found = {}
    for method in ("csp", "csp-fixed"):
        for budget in SPILLS:
            sampler = lab.distributed.Sampler(
                folder, [3, 2], method, rank=rank, seed=5, topology_bytes=budget, **options
            )
            engine: Any = sampler.engine
            taken = []
            for _ in range(10 if method == "csp-fixed" else 1):  # with exact sizes, and with fixed ones
                batch = sampler.sample(sampler.slice(seeds), BATCH)
                taken.append((shortened(batch), sampler.traffic))
            other = sampler.another()
            again = shortened(other.sample(other.slice(seeds), BATCH)), other.traffic.host
            other.close()
            found[method, budget] = taken, engine.spilled, dict(engine.topology_bytes), again
            sampler.close()
    return found


@pytest.mark.parametrize("weighted", [False, True])
def test_owners_read_lists_beyond_the_budget_in_host_memory(
    four_ranks: Ranks, graph: lab.Graph, folders: dict[Any, Path], weighted: bool
) -> None:
    folder, seeds, degrees = folders[3, "random"], SEEDS["mixed"], np.diff(graph.indptr)
    partition = lab.distributed.open_partition(folder)
    options, entry = {"weighted": weighted}, 4 + 8 * weighted
    every = four_ranks.run(spilled_at_owners, folder, options, seeds, world=3)
    whole = reference(graph, seeds, {"fanouts": [3, 2], **options})
    begins, owner = in_parts(graph, partition), partition.owner
    for (method, budget), (taken, *_) in every[0].items():
        far = np.zeros(N, bool)
        for p, found in enumerate(every):
            own, spilled = np.flatnonzero(owner == p), found[method, budget][1]
            if budget in (None, 10**9):
                assert spilled is None and found[method, budget][2] == {}
                continue
            far[own] = spilled
            kept, shortest = degrees[own[~spilled]].sum() * entry, degrees[own[spilled]].min() * entry
            assert kept <= budget < kept + shortest, "no other list has room"
            assert found[method, budget][2] == {"part": kept + 8 * (own.size + 1)}
        sectors = np.zeros(3, int)  # of a sample, by the owner that reads them
        for found in every:
            for hop in found[method, budget][0][0][0]["hops"]:
                for v, picks in rows_of(hop).items():
                    sectors[owner[v]] += far[v] * len({(begins[v] + slot) * 4 // 32 for slot, _ in picks})
        assert (sectors.sum() > 0) == (budget in (400, 0))
        for number in range(len(taken)):
            check_union([found[method, budget][0][number][0] for found in every], whole)
        check_union([found[method, budget][3][0] for found in every], whole)
        for p, found in enumerate(every):
            samples, unspilled = found[method, budget][0], found[method, None][0]
            for (_, traffic), (_, without_it) in zip(samples, unspilled, strict=True):
                assert traffic.host.get("lists", 0) == 50 * sectors[p]
                assert ("weights" in traffic.host) == (weighted and sectors[p] > 0)
                assert traffic.by_peer.tolist() == without_it.by_peer.tolist(), "ranks send what they sent"
            assert found[method, budget][3][1] == samples[0][1].host


def bounded_alone(rank: Any, folder: Path) -> Any:
    """What ranks sample of which one has a bound for its lists, by method: the sample, and what it keeps on its GPU."""
    found = {}
    for method in ("csp", "direct-cached"):
        sampler = lab.distributed.Sampler(
            folder,
            [3, 2],
            method,
            rank=rank,
            seed=5,
            cache_bytes=200,
            topology_bytes=None if rank.index else 400,
        )
        batch = sampler.sample(sampler.slice(SEEDS["mixed"]), BATCH)
        found[method] = shortened(batch), dict(sampler.engine.topology_bytes)  # type: ignore[attr-defined]
        sampler.close()
    return found


def test_one_rank_alone_may_bound_its_lists(
    four_ranks: Ranks, graph: lab.Graph, folders: dict[Any, Path]
) -> None:
    every = four_ranks.run(bounded_alone, folders[2, "random"], world=2)
    whole = reference(graph, SEEDS["mixed"], {"fanouts": [3, 2]})
    part = lab.distributed.open_part(folders[2, "random"], 0)
    for method in ("csp", "direct-cached"):
        check_union([found[method][0] for found in every], whole)
        assert 0 < every[0][method][1]["part"] - part.indptr.nbytes <= 400
    assert every[1]["csp"][1] == {}


def test_a_part_without_its_spilled_lists(graph: lab.Graph) -> None:
    partition = lab.distributed.partition(graph, 2, "random", tolerance=2, use_cache=False)
    cut = [part_of(graph, partition, p) for p in range(2)]
    spilled = np.arange(N) % 2 == 0
    records = records_of_kept(vertex_records(graph, partition), [part.vertices for part in cut], spilled)
    weights = integer_weights(graph.indptr, graph.edge_weight)
    for whole in cut:
        part = without(whole, spilled)
        assert part.num_edges == np.diff(graph.indptr)[whole.vertices[~spilled[whole.vertices]]].sum()
        for row, v in enumerate(whole.vertices.tolist()):
            begin, degree = records[v].tolist()
            assert degree == graph.indptr[v + 1] - graph.indptr[v]
            if spilled[v]:
                assert part.indptr[row] == part.indptr[row + 1] and begin == whole.indptr[row]
                continue
            end = begin + degree
            assert (begin, end) == (part.indptr[row], part.indptr[row + 1])
            own = slice(graph.indptr[v], graph.indptr[v + 1])
            assert np.array_equal(part.indices[begin:end], graph.indices[own])
            sums = weights.prefix[graph.indptr[v] : graph.indptr[v + 1] + 1]
            assert np.array_equal(np.diff(part.prefix[begin : end + 1]), np.diff(sums))


@pytest.mark.parametrize("replace", [False, True])
def test_weighted_draws_read_the_sums_that_their_bisection_looks_at(graph: lab.Graph, replace: bool) -> None:
    prefix = integer_weights(graph.indptr, graph.edge_weight).prefix
    batch = lab.NeighborSampler(graph, [3], device="cpu", weighted=True, replace=replace).sample(np.arange(N))
    picks, expected = batch.picks[0], 0
    starts = graph.indptr[picks.frontier]
    degrees = graph.indptr[picks.frontier.astype(np.int64) + 1] - starts
    for i in range(picks.frontier.size):
        row = picks.positions[picks.offsets[i] : picks.offsets[i + 1]].tolist()
        begin, end = int(starts[i]), int(starts[i] + degrees[i])
        read = {begin, end} if row else set()
        if row and not replace and (len(row) < 3 or len(row) == end - begin):
            read = set(range(begin, end + 1))  # all that have weight are taken
        for position in row:
            low, high, target = begin, end, prefix[position]
            while high - low > 1:
                mid = (low + high) // 2
                read.add(mid)
                low, high = (mid, high) if prefix[mid] <= target else (low, mid)
            assert low == position
            read |= set() if replace else {position, position + 1}
        expected += len({at * 8 // 32 for at in read})
    found = weight_sectors(picks.offsets, picks.positions, starts, degrees, 3, replace)
    assert found == expected > 0


def volumes(rank: Any, folder: Path, fanout: int, num_nodes: int) -> list[int]:
    out = []
    for method in ("csp", "pull"):
        sampler = lab.distributed.Sampler(folder, [fanout], method, rank=rank, replace=True)
        sampler.sample(sampler.slice(np.arange(num_nodes)))
        out.append(sampler.traffic.volume)
    return out


@pytest.mark.parametrize(("degree", "fanout"), [(24, 6), (3, 6)])
def test_csp_moves_less_than_pull_where_degrees_exceed_the_fanout(
    four_ranks: Ranks, tmp_path: Path, degree: int, fanout: int
) -> None:
    n = 60
    dst = np.repeat(np.arange(n), degree)
    src = (dst * 7 + np.tile(np.arange(degree), n) * 11 + 1) % n
    graph = lab.Graph.from_edges(src, dst, n, name="regular")
    partition = lab.distributed.partition(graph, 2, "random", use_cache=False)
    folder = lab.distributed.save_parts(graph, partition, tmp_path / "parts")
    found = np.sum(four_ranks.run(volumes, folder, fanout, n, world=2), axis=0)
    csp, pull = found.tolist()
    assert (csp < pull) == (degree > fanout)
    # Each remote entry of a list is worth as much as each pick.
    remote = sum(int((partition.owner[s] != r).sum()) for r, s in enumerate(np.split(np.arange(n), 2)))
    assert pull - csp == 4 * remote * (degree - fanout)


# ---- fixed capacities -------------------------------------------------------------------------------------------


def overflow_one_rank(rank: Any, folder: Path, options: dict[str, Any]) -> Any:
    given = dict(options)
    fanouts = given.pop("fanouts")
    sampler = lab.distributed.Sampler(folder, fanouts, "csp-fixed", rank=rank, seed=5, **given)
    engine: Any = sampler._engine
    few = np.array([10 + rank.index])
    for batch_id in range(8):
        assert engine.capacities is None
        sampler.sample(few, batch_id)
    before = engine.capacities
    quiet = shortened(sampler.sample(few, 8)), sampler.traffic
    redone = engine.redone
    many = np.arange(rank.index * 50, 50) if rank.index == 0 else few
    loud = shortened(sampler.sample(many, BATCH))
    again = engine.redone
    sampler.sample(many, BATCH + 1)  # the buffers have grown
    small = lab.distributed.Sampler(
        folder, fanouts, "csp-fixed", rank=rank, seed=5, scratch_bytes=64, **given
    )
    error = ""
    try:
        small.sample_many([few] * 8)
    except RuntimeError as caught:
        error = str(caught)
    ids = before.ids, engine.capacities.ids
    return quiet, loud, (redone, again), ids, error


@pytest.mark.parametrize("name", ["floyd", "weighted"])
def test_one_rank_over_its_capacity_has_all_grow_and_sample_again(
    four_ranks: Ranks, graph: lab.Graph, folders: dict[Any, Path], name: str
) -> None:
    every = four_ranks.run(overflow_one_rank, folders[3, "random"], KINDS[name], world=3)
    quiet = reference(graph, np.array([10, 11, 12]), KINDS[name], 8)
    loud = reference(graph, np.concatenate([np.arange(50), [11, 12]]), KINDS[name])
    check_union([found[0][0] for found in every], quiet)
    check_union([found[1] for found in every], loud)
    assert len({found[2] for found in every}) == 1
    (redone, again) = every[0][2]
    assert again > redone
    for _, _, _, (before, after), error in every:
        assert (before == every[0][3][0]).all() and (after == every[0][3][1]).all()
        assert (after >= before).all() and (after[:, 0] > before[:, 0]).any()
        assert all(n & (n - 1) == 0 for n in after.ravel().tolist())
        assert "scratch_bytes=64" in error and error == every[0][4]
    traffic = every[0][0][1]
    assert "sizes" not in traffic.received and traffic.by_kind["padding"] > 0


def refused_again(rank: Any, folder: Path) -> list[str]:
    """Ranks were given different bounds; what they say of the 8th mini-batch and of those after it."""
    sampler = lab.distributed.Sampler(
        folder, [3, 2], "csp-fixed", rank=rank, scratch_bytes=64 if rank.index == 0 else 10**6
    )
    said = []
    for batch_id in range(10):
        try:
            sampler.sample([10 + rank.index], batch_id)
            said.append("")
        except RuntimeError as error:
            said.append(str(error))
    sampler.close()
    return said


def test_buffers_beyond_their_bound_are_refused_again(four_ranks: Ranks, folders: dict[Any, Path]) -> None:
    first, second = four_ranks.run(refused_again, folders[2, "random"], world=2)
    assert first == second
    assert first[:7] == [""] * 7 and all("scratch_bytes=64" in said for said in first[7:])


# ---- hosts ------------------------------------------------------------------------------------------------------

HOSTS = [[0, 1], [2, 3]]


def on_hosts(rank: Any, replicated: Path, spread: Path) -> Any:
    seeds, out = SEEDS["mixed"], {}
    for where, folder, methods in (
        ("replicated", replicated, METHODS),
        ("spread", spread, ["csp", "csp-fixed", "pull"]),
    ):
        for method in methods:
            for by in ("equal", "owner"):
                sampler = lab.distributed.Sampler(folder, [3, 2], method, rank=rank, seed=5, hosts=HOSTS)
                warmed(sampler, method, seeds, by)
                out[where, method, by] = (
                    shortened(sampler.sample(sampler.slice(seeds, by), BATCH)), sampler.traffic
                )  # fmt: skip
    layers = lab.distributed.LayerSampler(replicated, 60, 17, rank=rank, seed=5, hosts=HOSTS)
    out["layers"] = layers.sample(seeds, BATCH).layers, layers.traffic
    walker = lab.distributed.Walker(replicated, lab.apps.PPR(0.2), rank=rank, seed=5, hosts=HOSTS)
    walks = walker.walk(seeds, 100, "owner")
    out["walks"] = walks.mine, walks.collect(), walker.traffic
    for method in ("direct", "direct-cached", "uva"):
        try:
            lab.distributed.Sampler(spread, [3, 2], method, rank=rank, hosts=HOSTS)
        except ValueError as error:
            out["refused", method] = str(error)
    return out


def test_hosts_hold_the_topology_or_share_it(
    four_ranks: Ranks, graph: lab.Graph, folders: dict[Any, Path]
) -> None:
    seeds = SEEDS["mixed"]
    every = four_ranks.run(on_hosts, folders[2, "metis"], folders[4, "random"])
    whole = reference(graph, seeds, {"fanouts": [3, 2]})
    for key in [key for key in every[0] if key[0] in ("replicated", "spread")]:
        check_union([found[key][0] for found in every], whole)
        given = np.concatenate([found[key][0]["given"] for found in every])
        assert sorted(given.tolist()) == sorted(seeds.tolist())
        within, between = (sum(getattr(f[key][1], n) for f in every) for n in ("within", "between"))
        if key[0] == "replicated":
            assert between == 0 and (within > 0) == (key[1] not in ("uva", "direct-cached"))
        else:
            assert between > 0 and within > 0
    for method in ("direct", "direct-cached", "uva"):
        assert all(f"method={method!r}" in found["refused", method] for found in every)
    layers = lab.run_app(graph, lab.apps.Layer(60, 17), seeds[None], device="cpu", seed=5, first_sample=BATCH)
    for step, expected in enumerate(layers.steps):
        union = np.full(expected.shape[1], -1)
        for found in every:
            union[found["layers"][0][step].slots] = found["layers"][0][step].vertices
        assert union.tolist() == expected[0].tolist()
    assert all(found["layers"][1].between > 0 for found in every)  # the batch is one
    walks = np.stack(
        lab.run_app(graph, lab.apps.PPR(0.2), seeds, device="cpu", seed=5, first_sample=100).steps, 1
    )
    for found in every:
        mine, paths, traffic = found["walks"]
        longest = paths.shape[1]
        assert (paths == walks[mine, :longest]).all() and (walks[mine, longest:] == -1).all()
        assert traffic.between == 0
    assert sorted(np.concatenate([found["walks"][0] for found in every]).tolist()) == list(range(seeds.size))


# ---- the rest of the sampler ------------------------------------------------------------------------------------


def other_ways(
    rank: Any, graph: lab.Graph, wide: lab.Graph, partition: Any, wide_partition: Any, folder: Path
) -> Any:
    """Other sources, several batches at a time, an epoch, and what is refused."""
    options = {"rank": rank, "seed": 5}
    whole = lab.distributed.Sampler(graph, [3, 2], "csp", partition=partition, folder=folder, **options)
    part = lab.distributed.open_part(folder, rank.index)
    of_part = lab.distributed.Sampler(part, [3, 2], "pull", partition=partition, **options)
    both = [
        [shortened(b) for b in s.sample_many([s.slice(x) for x in (SEEDS["mixed"], SEEDS["one"])], BATCH)]
        for s in (whole, of_part)
    ]
    total = whole.total.volume, whole.traffic.volume
    epoch = whole.epoch(np.arange(50), 16, epoch=2, by="owner")
    batches = [shortened(batch) for batch in epoch]
    wides = {}
    for method in METHODS:
        sampler = lab.distributed.Sampler(
            wide, [3, 2], method, partition=wide_partition, folder=folder / "wide", weighted=True, **options
        )
        batch = sampler.sample(sampler.slice(SEEDS["mixed"]), BATCH)
        assert batch.node_ids.dtype == np.int64
        wides[method] = shortened(batch)
    errors = {}

    def refused(name: str, *args: Any, **more: Any) -> None:
        try:
            lab.distributed.Sampler(*args, **{**options, **more})
        except (TypeError, ValueError, RuntimeError) as error:
            errors[name] = f"{type(error).__name__}: {error}"

    refused("expand", folder, [3], expand="new")
    refused("method", folder, [3], "push")
    refused("rank", folder, [3], rank=0)
    refused("source", 7, [3])
    refused("folder", part, [3], "direct", partition=partition)
    refused("hosts", folder, [3], hosts=[[0], [0, 1]])
    refused("partition", graph, [3])
    refused("visits", folder, [3], "direct-cached", visits=[1.0])
    refused("topology_bytes", folder, [3], "pull", topology_bytes=100)
    refused("collectives", folder, [3], collectives="mpi")
    refused("weighted", of_part.part, [3], partition=partition, weighted="yes")
    try:
        whole.sample([N])
    except ValueError as error:
        errors["seeds"] = str(error)
    try:
        whole.slice([1], by="chance")
    except ValueError as error:
        errors["by"] = str(error)
    whole.close()
    whole.close()
    try:
        whole.sample([1])
    except RuntimeError as error:
        errors["closed"] = str(error)
    try:
        lab.distributed.Walker(folder, lab.apps.Node2Vec(3), rank=rank)
    except TypeError as error:
        errors["app"] = str(error)
    with mock.patch.object(rank, "device", "cuda:0"):
        nowhere = table.Method("", "", "", True, "", "gpu.nothing")
        with mock.patch.dict(table.METHODS, {"pull": nowhere}):
            refused("device", folder, [3], "pull")
    return both, total, (len(epoch), epoch.first_batch_id, batches), wides, errors


def refusals(makers: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """What each says that raises a ValueError, as each should."""
    errors = {}
    for name, make in makers.items():
        try:
            make()
            errors[name] = "nothing was refused"
        except ValueError as error:
            errors[name] = str(error)
    return errors


def built_differently(rank: Any, folder: Path, divided: list[Path]) -> dict[str, str]:
    """What ranks say that are given other arguments than each other; ``divided``: for each, other parts."""
    visits = [None, np.ones(N)][rank.index]
    makers: dict[str, Any] = {
        "fanouts": lambda: lab.distributed.Sampler(folder, [3, 2 + rank.index], rank=rank),
        "seed": lambda: lab.distributed.Sampler(folder, [3, 2], rank=rank, seed=rank.index),
        "pick": lambda: lab.distributed.Sampler(
            folder, [3], rank=rank, pick=["floyd", "reservoir"][rank.index]
        ),
        "method": lambda: lab.distributed.Sampler(folder, [3], ["csp", "pull"][rank.index], rank=rank),
        "walker": lambda: lab.distributed.Walker(folder, lab.apps.DeepWalk(5), rank=rank, seed=rank.index),
        "app": lambda: lab.distributed.Walker(folder, lab.apps.DeepWalk(5 + rank.index), rank=rank),
        "layers": lambda: lab.distributed.LayerSampler(folder, rank=rank, seed=rank.index),
        "step_size": lambda: lab.distributed.LayerSampler(folder, 60, 17 + rank.index, rank=rank),
        "collectives": lambda: lab.distributed.Sampler(
            folder, [3], rank=rank, collectives=["auto", "torch"][rank.index]
        ),
        "visits": lambda: lab.distributed.Sampler(folder, [3], "direct-cached", rank=rank, visits=visits),
        "partition": lambda: lab.distributed.Sampler(divided[rank.index], [3], rank=rank),
    }
    return refusals(makers)


def test_ranks_that_are_built_differently_are_refused(four_ranks: Ranks, folders: dict[Any, Path]) -> None:
    """Owners draw for others: under another key, or by another rule, a sample would be nobody's."""
    divided = [folders[2, "random"], folders[2, "metis"]]
    for index, errors in enumerate(four_ranks.run(built_differently, divided[0], divided, world=2)):
        assert "seed must be the same on all ranks (got " in errors.pop("walker")
        assert "seed must be the same on all ranks" in errors.pop("layers")
        for name, message in errors.items():
            assert message.startswith(f"{name} must be the same on all ranks (got "), message
            assert f"on rank {index}" in message


def called_differently(rank: Any, folder: Path) -> dict[str, str]:
    """What ranks say whose first calls have other arguments than each other's."""
    i, seeds = rank.index, SEEDS["mixed"]

    def made(kind: str, call: Callable[[Any], Any], *given: Any) -> Callable[[], Any]:
        return lambda: call(getattr(lab.distributed, kind)(folder, *given, rank=rank))

    makers = {
        **{
            f"batch_id, {method}": made("Sampler", lambda s: s.sample(s.slice(seeds), 4 + i), [3], method)
            for method in ("csp", "csp-async", "csp-fixed")
        },
        "batch_id, epoch": made("Sampler", lambda s: list(s.epoch(seeds, 8, i)), [3]),
        "slices of a call": made("Sampler", lambda s: s.sample_many([seeds] * (1 + i)), [3]),
        "batch_id, layers": made("LayerSampler", lambda s: s.sample(seeds, i)),
        "seeds": made("LayerSampler", lambda s: s.sample(seeds[i:])),
        "first_sample": made("Walker", lambda s: s.walk(seeds, 7 * i), lab.apps.DeepWalk(3)),
        "roots": made("Walker", lambda s: s.walk(seeds[:: 1 + i]), lab.apps.DeepWalk(3)),
        "by": made("Walker", lambda s: s.walk(seeds, by=["equal", "owner"][i]), lab.apps.DeepWalk(3)),
    }
    return refusals(makers)


def test_ranks_whose_first_calls_differ_are_refused(four_ranks: Ranks, folders: dict[Any, Path]) -> None:
    """Owners draw for others by their own batch id: such a sample, too, would be nobody's."""
    for index, errors in enumerate(
        four_ranks.run(called_differently, folders[2, "random"], world=2, timeout_s=60)
    ):
        assert len(errors) == 10
        for name, message in errors.items():
            assert message.startswith(f"{name.partition(',')[0]} must be the same on all ranks (got "), (
                message
            )
            assert f"on rank {index}" in message


def test_sources_epochs_and_refusals(four_ranks: Ranks, graph: lab.Graph, tmp_path: Path) -> None:
    wide = with_wide_ids(graph)
    partition, wide_partition = (
        lab.distributed.partition(g, 2, "random", tolerance=2, use_cache=False) for g in (graph, wide)
    )
    # First: what this compiles, ranks need not compile each.
    whole_wide = reference(wide, SEEDS["mixed"], {"fanouts": [3, 2], "weighted": True})
    every = four_ranks.run(other_ways, graph, wide, partition, wide_partition, tmp_path / "parts", world=2)
    two = [reference(graph, SEEDS[n], {"fanouts": [3, 2]}, BATCH + i) for i, n in enumerate(("mixed", "one"))]
    for source in range(2):
        for number, whole in enumerate(two):
            check_union([found[0][source][number] for found in every], whole)
    assert all(total > last > 0 or total == last for _, (total, last), *_ in every)
    epoch = lab.NeighborSampler(graph, [3, 2], device="cpu", seed=5).epoch(np.arange(50), 16, epoch=2)
    assert all(found[2][:2] == (len(epoch), epoch.first_batch_id) for found in every)
    for i, batch in enumerate(epoch):
        whole = reference(graph, batch.seeds, {"fanouts": [3, 2]}, batch.batch_id)
        check_union([found[2][2][i] for found in every], whole)
    for method in METHODS:
        check_union([found[3][method] for found in every], whole_wide)
    for *_, errors in every:
        for name, text in errors.items():
            assert {"closed": "closed", "device": "method='pull'"}.get(name, name) in text, (name, text)
        assert errors["rank"].startswith("TypeError") and errors["device"].startswith("RuntimeError")
        assert len(errors) == 16, sorted(errors)


def test_the_table_of_methods() -> None:
    assert METHODS == ["pull", "uva", "csp", "csp-async", "csp-fixed", "direct", "direct-cached"]
    assert all("\n" not in line for line in lab.distributed.methods().values())
    assert [name for name, m in table.METHODS.items() if not m.between_hosts] == [
        "uva",
        "direct",
        "direct-cached",
    ]


WALK = lab.apps.PinSAGEWalk(3, 5, 0.4)


def last_samples(rank: Any, folder: Path) -> tuple[np.ndarray, str]:
    """Walks of the samples with the largest ids, and what is said of ids beyond."""
    walker = lab.distributed.Walker(folder, WALK, rank=rank, seed=5)
    last = 2**40 - 1
    paths = walker.walk(SEEDS["mixed"], last + 1 - SEEDS["mixed"].size).collect()
    try:
        walker.walk(SEEDS["mixed"], last + 2 - SEEDS["mixed"].size)
    except ValueError as error:
        return paths, str(error)
    return paths, ""


def test_walkers_take_the_samples_that_one_takes(
    four_ranks: Ranks, graph: lab.Graph, folders: dict[Any, Path]
) -> None:
    roots = SEEDS["mixed"]
    whole = lab.run_app(graph, WALK, roots, device="cpu", seed=5, first_sample=2**40 - roots.size)
    paths, said = zip(*four_ranks.run(last_samples, folders[2, "random"], world=2))
    assert (np.concatenate(paths) == np.stack(whole.steps, axis=1)).all()
    assert all(text.startswith("first_sample must be") for text in said)


WRONG_VISITS: dict[str, Any] = {
    "shape (120,)": np.ones(3),
    "finite numbers from 0 on (got nan for vertex 5)": np.where(np.arange(N) == 5, np.nan, 1.0),
    "finite numbers from 0 on (got inf for vertex 0)": np.full(N, np.inf),
    "finite numbers from 0 on (got -1 for vertex 119)": np.where(np.arange(N) == 119, -1, 3),
    "hold numbers (got dtype bool)": np.ones(N, bool),
    "hold numbers (got dtype <U": np.full(N, "1"),
}


def wrong_visits(rank: Any, folder: Path) -> list[str]:
    """Rank 1 gives visits that cannot be taken; what each rank says."""
    said = []
    for wrong in WRONG_VISITS.values():
        try:
            visits = wrong if rank.index else np.ones(N)
            lab.distributed.Sampler(folder, [3], "direct-cached", rank=rank, visits=visits)
            said.append("nothing")
        except (TypeError, ValueError) as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def test_visits_are_refused_on_all_ranks(four_ranks: Ranks, folders: dict[Any, Path]) -> None:
    first, second = four_ranks.run(wrong_visits, folders[2, "random"], world=2)
    assert all(said.startswith("ValueError: visits must be") and "another rank" in said for said in first)
    for words, said in zip(WRONG_VISITS, second):
        assert said.startswith(("TypeError: visits must", "ValueError: visits must")) and words in said
