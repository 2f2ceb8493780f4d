"""Every method draws one sample: the slices of all ranks together are what one sampler draws from the whole graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks.run import Ranks
from tests.minibatch.conftest import random_graph

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


def sample_all(rank: Any, folder: Path, methods: list[str], kinds: dict[str, Any], by: str) -> Any:
    """Every kind of draw with every method on one rank: its slices, and their traffic."""
    found = {}
    for method in methods:
        for name, options in kinds.items():
            given = dict(options)
            sampler = lab.distributed.Sampler(
                folder, given.pop("fanouts"), method, rank=rank, seed=5, cache_bytes=200, **given
            )
            for seeds_name, seeds in SEEDS.items():
                mine = sampler.slice(seeds, by)
                found[method, name, seeds_name] = shortened(sampler.sample(mine, BATCH)), sampler.traffic
            sampler.close()
    return found


@pytest.mark.parametrize(
    ("world", "how", "by"),
    [(1, "random", "equal"), (2, "metis", "owner"), (3, "random", "equal"), (4, "metis", "equal")],
)
def test_all_methods_draw_the_sample_of_one(
    four_ranks: Ranks, graph: lab.Graph, folders: dict[Any, Path], world: int, how: str, by: str
) -> None:
    every = four_ranks.run(sample_all, folders[world, how], METHODS, KINDS, by, world=world)
    for name, options in KINDS.items():
        for seeds_name, seeds in SEEDS.items():
            whole = reference(graph, seeds, options)
            for method in METHODS:
                slices = [found[method, name, seeds_name][0] for found in every]
                check_union(slices, whole)
                given = np.concatenate([s["given"] for s in slices])
                assert sorted(given.tolist()) == sorted(seeds.tolist())
                assert {s["id"] for s in slices} == {BATCH}


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


def layers_and_walks(rank: Any, folder: Path, by: str) -> Any:
    layers, walks = {}, {}
    for name, options in LAYERS.items():
        sampler = lab.distributed.LayerSampler(folder, rank=rank, seed=5, **options)
        for seeds_name, seeds in SEEDS.items():
            layers[name, seeds_name] = sampler.sample(seeds, BATCH, by).layers
    for name, make in WALKS.items():
        walker = lab.distributed.Walker(folder, make(), rank=rank, seed=5)
        found = walker.walk(SEEDS["repeated"], 100, by)
        walks[name] = found.mine, found.collect(), (found.walks, found.steps, found.vertices)
    return layers, walks


@pytest.mark.parametrize(
    ("world", "how", "by"), [(1, "random", "equal"), (3, "metis", "equal"), (4, "random", "owner")]
)
def test_layers_and_walks_are_those_of_one(
    four_ranks: Ranks, graph: lab.Graph, folders: dict[Any, Path], world: int, how: str, by: str
) -> None:
    every = four_ranks.run(layers_and_walks, folders[world, how], by, world=world)
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
    for name, make in WALKS.items():
        app, roots = make(), SEEDS["repeated"]
        whole = lab.run_app(graph, app, roots, device="cpu", seed=5, first_sample=100)
        stacked = np.stack(whole.steps, axis=1)
        found = np.full(stacked.shape, -2)
        for mine, paths, _ in (walks[name] for _, walks in every):
            found[mine] = paths
        assert (found == stacked).all()
        assert (
            sum(vertices.size for _, walks in every for vertices in [walks[name][2][2]])
            == (stacked >= 0).sum()
        )
