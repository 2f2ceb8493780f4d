"""On GPUs: lists that lie in several memories give the CPU twin's sample.

On one GPU all parts are blocks of its own memory, which kernels reach by the same tables of addresses as a peer's.
Two GPUs read each other's blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.bench.configurations import configurations
from gnnsample_lab.bench.configurations import test_graph as drawn_graph
from gnnsample_lab.bench.sanitizer.inputs import one_part
from gnnsample_lab.distributed.parts.hot import hottest_lists
from gnnsample_lab.distributed.parts.part import part_of, vertex_records
from gnnsample_lab.distributed.sampling.gpu import lists as gpu_lists
from gnnsample_lab.distributed.sampling.reading import WalkRule, walked
from gnnsample_lab.distributed.sampling.spill import records_of_kept, without
from gnnsample_lab.distributed.sampling.words import key_of
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.sampling.engine.shape import UNBOUNDED_STEPS
from gnnsample_lab.sampling.neighbors.lists import WIDE, ListsGraph, Place
from gnnsample_lab.sampling.weights import integer_weights
from tests.distributed.sampling.test_ladder import hubs_and_dead_ends

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(60)]

KINDS = ("owners", "local", "copied", "host", "spilled")
RULES: tuple[dict[str, Any], ...] = (
    {"pick": "floyd"}, {"pick": "reservoir"}, {"replace": True}, {"weighted": True},
    {"weighted": True, "replace": True},
)  # fmt: skip
PLAIN, WEIGHTED = RULES[0], RULES[3]
CASES = [(kind, rule) for kind in ("owners", "local") for rule in RULES]
"""Every rule with each kind of record; how lists of other memory are reached does not depend on the rule."""
CASES += [(kind, rule) for kind in ("copied", "host", "spilled") for rule in (PLAIN, WEIGHTED)]


def with_slots(batch: MiniBatch, indptr: np.ndarray) -> MiniBatch:
    """A sample of the whole graph, with places in lists for positions."""
    host = batch.to_cpu()
    picks = tuple(
        replace(p, positions=p.positions - np.repeat(indptr[p.frontier], p.counts), known_offsets=None)
        for p in host.picks
    )
    return replace(host, picks=picks)


def put_on_host(array: np.ndarray) -> Any:
    from gnnsample_lab.device import pinned

    copy = pinned.empty(array.nbytes).view(array.dtype)
    copy[:] = array
    return pinned.mapped(copy)


def lists_of(graph: Any, kind: str, weighted: bool, parts: int = 2) -> ListsGraph:
    """The graph in parts, each in a block of its own on this GPU or, for ``"host"``, in pinned memory."""
    import cupy

    from gnnsample_lab.device import pinned

    partition = lab.distributed.partition(graph, parts, "random", tolerance=parts, use_cache=False)
    cut = [part_of(graph, partition, p) for p in range(parts)]
    dtype, places, keep = graph.indices.dtype, [], []
    records, place_of = vertex_records(graph, partition), None
    if kind == "spilled":  # every third list is in host memory, and others among those that stay
        spilled = np.arange(graph.num_nodes) % 3 == 1
        records = records_of_kept(records, [part.vertices for part in cut], spilled)
        place_of = partition.owner + parts * spilled
        cut = [without(part, spilled) for part in cut] + cut
    for i, part in enumerate(cut):
        in_host = kind == "host" or i >= parts
        own = gpu_lists.own_records(part) if kind == "owners" else None
        words = 0 if own is None else len(own)
        room = gpu_lists.room_for(part.num_edges, len(part.vertices), words, dtype.itemsize, weighted)
        if in_host:
            block: Any = pinned.empty(max(room.nbytes, 256))
        else:
            block = cupy.zeros(max(room.nbytes, 256), cupy.uint8)

        def view(of: Any, shape: Any, at: int, block: Any = block) -> Any:
            return block[at : at + int(shape[0]) * np.dtype(of).itemsize].view(of)

        gpu_lists.fill(part, room, own, weighted, view)
        block = pinned.mapped(block) if in_host else block
        places.append(Place(*room.place(block.data.ptr)))
        keep.append(block)
    weights = integer_weights(graph.indptr, graph.edge_weight) if weighted else None
    if kind == "owners":
        return gpu_lists.graph_by_owners_records(
            partition, places, dtype, graph.max_in_degree, weighted, keep=tuple(keep)
        )
    copies = None
    if kind == "spilled":
        degrees = np.diff(graph.indptr)
        hot = hottest_lists(degrees + 1, degrees, 10, graph.num_edges, owner=partition.owner, rank=0)
        assert 0 < spilled[hot.ids].sum() < len(hot.ids), "copies are made of both"
        copies = gpu_lists.copy_lists(hot, places, place_of, records[:, 0], dtype, weighted)
    if kind == "copied":
        degrees = np.diff(graph.indptr)
        hot = hottest_lists(degrees + 1, degrees, 10, graph.num_edges, owner=partition.owner, rank=0)
        assert 0 < len(hot.ids) < graph.num_nodes
        copies = gpu_lists.copy_lists(hot, places, partition.owner, records[:, 0], dtype, weighted)
        for p in range(1, parts):  # what was copied is not read at its owner any more
            entries = keep[p][: cut[p].num_edges * dtype.itemsize].view(dtype)
            for start, degree in records[hot.ids[partition.owner[hot.ids] == p]]:
                entries[int(start) : int(start + degree)] = 0
    return gpu_lists.graph_by_local_records(
        partition, records, places, dtype, None if weights is None else weights.available, copies,
        put=put_on_host if kind == "host" else None, keep=tuple(keep), place_of=place_of,
    )  # fmt: skip


def engine_for(graph: Any, sampler: Any, kind: str, parts: int = 2) -> Any:
    from gnnsample_lab.distributed.sampling.gpu.direct import lists_engine

    return lists_engine(lists_of(graph, kind, sampler.spec.weighted, parts), sampler.spec)


def same(graph: Any, sampler: Any, engine: Any, groups: list[np.ndarray], first: int = 0) -> None:
    for i, (seeds, found) in enumerate(zip(groups, engine.sample_many(groups, first), strict=True)):
        expected = with_slots(sampler.sample(seeds, first + i), graph.indptr)
        assert found.canonical() == expected.canonical()


def recorded_cases(rule: dict[str, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Configurations of the recorded samples with one rule of the draw, their graphs, and a sampler of each."""
    wanted = {"replace": rule.get("replace", False), "weighted": rule.get("weighted", False)}
    for config in configurations():
        options = config.sampler_options()
        chosen = {name: options.get(name, False) for name in wanted}
        if options["expand"] == "frontier" and chosen == wanted and options.get("pick") == rule.get("pick"):
            graph = drawn_graph(config.graph)
            yield config, graph, lab.NeighborSampler(graph, device="cpu", **options)


@pytest.mark.parametrize(("kind", "rule"), CASES, ids=str)
def test_every_configuration(kind: str, rule: dict[str, Any]) -> None:
    """All graphs and fanouts of the recorded samples: dead ends, hubs, parallel edges, wide hops, all neighbours."""
    checked = 0
    for config, graph, sampler in recorded_cases(rule):
        same(graph, sampler, engine_for(graph, sampler, kind), [config.seeds()], config.batch_id)
        checked += 1
    assert checked == 24


@pytest.mark.parametrize(("kind", "rule"), [*CASES[:5], *CASES[10:]], ids=str)
def test_wide_ids_and_three_parts(kind: str, rule: dict[str, Any]) -> None:
    wide = replace_indices(drawn_graph("hubs"))
    sampler = lab.NeighborSampler(wide, [6, 5, 4], device="cpu", seed=5, **rule)
    engine = engine_for(wide, sampler, kind, 3)
    groups = [np.arange(i, 6000, 17) for i in range(3)]
    same(wide, sampler, engine, groups, 40)
    assert engine.sample_many(groups[:1], 0)[0].node_ids.dtype == np.int64


def replace_indices(graph: Any) -> Any:
    """The same graph with ids of 64 bits, which smaller graphs do not have by themselves."""
    src = graph.indices.astype(np.int64)
    dst = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    wide = lab.Graph.from_edges(src, dst, graph.num_nodes, edge_weight=graph.edge_weight, name="wide")
    wide._set("indices", wide.indices.astype(np.int64))
    return wide


@pytest.mark.parametrize("kind", KINDS)
def test_many_batches_share_launches(kind: str) -> None:
    graph = drawn_graph("hubs")
    sampler = lab.NeighborSampler(graph, [10, 10], device="cpu")
    engine = engine_for(graph, sampler, kind)
    groups = [np.arange(i, 6000, 60) for i in range(40)]
    for first in (0, 100, 200):  # later calls launch more at a time
        same(graph, sampler, engine, groups, first)


@pytest.mark.parametrize("kind", ["owners", "local"])
@pytest.mark.parametrize("pick", ["floyd", "reservoir"])
def test_a_hub_beyond_the_degree_field(kind: str, pick: str) -> None:
    many = WIDE + 1000
    rng = np.random.default_rng(0)
    src = np.concatenate([rng.integers(0, 5000, many), rng.integers(0, 5000, 20_000)])
    dst = np.concatenate([np.full(many, 4321), rng.integers(0, 5000, 20_000)])
    graph = lab.Graph.from_edges(src, dst, 5000, name="hub")
    assert graph.max_in_degree > WIDE
    sampler = lab.NeighborSampler(graph, [9, 7], device="cpu", pick=pick)
    same(graph, sampler, engine_for(graph, sampler, kind), [np.array([4321, 3, 4321, 17])])


def test_seeds_out_of_range_and_an_overflow_of_buffers() -> None:
    from gnnsample_lab.distributed.sampling.gpu.direct import empty_batch, lists_engine

    graph = drawn_graph("hubs")
    sampler = lab.NeighborSampler(graph, [10, 10, 10], device="cpu")
    lists = lists_of(graph, "owners", False)
    engine = lists_engine(lists, sampler.spec, 3 << 20)
    with pytest.raises(ValueError, match="seeds must be vertex ids in 0..5999"):
        engine.sample_many([np.array([6000])], 0)
    same(graph, sampler, engine, [np.arange(0, 6000, 40)])
    none = empty_batch(lists, sampler.spec, 3)
    expected = with_slots(sampler.sample(np.array([1]), 3), graph.indptr)
    assert (none.num_nodes, none.num_edges, len(none.blocks)) == (0, 0, len(expected.blocks))
    assert [b.indptr.get().tolist() for b in none.blocks] == [[0]] * 3


# ---- ranks ------------------------------------------------------------------------------------------------------


def drawn_by_rank(
    rank: Any, folder: str, method: str, options: dict[str, Any], cache_bytes: int, topology_bytes: int | None
) -> Any:
    sampler = lab.distributed.Sampler(
        folder, [10, 5, 3], method, rank=rank, seed=9, cache_bytes=cache_bytes, topology_bytes=topology_bytes,
        count_reads=True, **options
    )  # fmt: skip
    everything = np.arange(0, 6000, 13)
    found = []
    for by in ("equal", "owner"):
        for i, batch in enumerate(
            sampler.sample_many([sampler.slice(everything + j, by) for j in range(3)], 7)
        ):
            host = batch.to_cpu()
            found.append((by, i, [(p.frontier, p.counts, p.neighbors, p.positions) for p in host.picks]))
    empty = sampler.sample(np.empty(0, np.int64) if rank.index else np.arange(5), 3)
    traffic = sampler.traffic
    total = sampler.total
    kinds, volume = total.by_kind, total.volume
    sampler.close()
    return {
        "found": found, "empty": empty.num_nodes, "kinds": kinds, "volume": volume,
        "peer": total.by_peer.tolist(), "host": total.host_requests, "label": traffic.label,
    }  # fmt: skip


def edges_of(picks: list[Any]) -> list[set[tuple[int, int, int]]]:
    """Per hop: destination, slot and source of all edges."""
    return [set(zip(np.repeat(f, c).tolist(), at.tolist(), u.tolist(), strict=True)) for f, c, u, at in picks]


Parts = Callable[[int], str]
TWO_RANKS = [("direct", rule) for rule in RULES]
TWO_RANKS += [(method, rule) for method in ("direct-cached", "uva") for rule in (PLAIN, WEIGHTED)]


def check_ranks(
    world: Any, parts: Parts, ranks: int, method: str, options: dict[str, Any], cache_bytes: int,
    topology_bytes: int | None = None,
) -> Any:  # fmt: skip
    graph = drawn_graph("hubs")
    given = (method, options, cache_bytes, topology_bytes)
    results = world.run(drawn_by_rank, parts(ranks), *given, world=ranks)
    sampler = lab.NeighborSampler(graph, [10, 5, 3], device="cpu", seed=9, **options)
    everything = np.arange(0, 6000, 13)
    for n, (_, i, _) in enumerate(results[0]["found"]):
        whole = with_slots(sampler.sample(everything + i, 7 + i), graph.indptr)
        expected = edges_of([(p.frontier, p.counts, p.neighbors, p.positions) for p in whole.picks])
        union = [edges_of(result["found"][n][2]) for result in results]
        assert [set().union(*hop) for hop in zip(*union, strict=True)] == expected
    assert results[-1]["empty"] == (0 if ranks > 1 else results[0]["empty"])
    return results


@pytest.mark.parametrize(("method", "rule"), TWO_RANKS, ids=str)
def test_two_ranks_draw_what_one_draws(
    gpu_ranks: Any, hub_parts: Parts, method: str, rule: dict[str, Any]
) -> None:
    results = check_ranks(gpu_ranks, hub_parts, 2, method, rule, 40_000)
    for rank, result in enumerate(results):
        if method == "uva":
            assert result["volume"] == 50 * result["host"] > 0
        else:
            assert result["peer"][rank] == 0 < result["peer"][1 - rank] == result["volume"]
        assert ("records" in result["kinds"]) == (method != "direct-cached")
        assert result["label"] == ""


def test_a_larger_cache_reads_less(gpu_ranks: Any, hub_parts: Parts) -> None:
    volumes = [
        check_ranks(gpu_ranks, hub_parts, 2, "direct-cached", {}, budget)[0]["volume"]
        for budget in (0, 30_000, 10**6)
    ]
    assert volumes[0] > volumes[1] > volumes[2] == 0


@pytest.mark.parametrize("method", ["direct", "direct-cached", "uva"])
def test_one_rank_alone(gpu_world: Any, hub_parts: Parts, method: str) -> None:
    (result,) = check_ranks(gpu_world, hub_parts, 1, method, {}, 40_000)
    assert result["volume"] == 50 * result["host"]
    assert (result["volume"] > 0) == (method == "uva")


@pytest.mark.parametrize("rule", [PLAIN, WEIGHTED], ids=str)
def test_lists_beyond_the_budget_are_read_in_host_memory(
    gpu_world: Any, hub_parts: Parts, rule: dict[str, Any]
) -> None:
    volumes = []
    for topology_bytes in (10**9, 30_000, 0):
        (result,) = check_ranks(gpu_world, hub_parts, 1, "direct-cached", rule, 0, topology_bytes)
        assert result["volume"] == 50 * result["host"] and "records" not in result["kinds"]
        volumes.append(result["volume"])
    assert 0 == volumes[0] < volumes[1] < volumes[2]


def test_two_ranks_read_each_others_lists_in_host_memory(gpu_ranks: Any, hub_parts: Parts) -> None:
    for result in check_ranks(gpu_ranks, hub_parts, 2, "direct-cached", WEIGHTED, 20_000, 20_000):
        assert result["host"] > 0 and sum(result["peer"]) > 0


# ---- layers and walks -------------------------------------------------------------------------------------


def device_lists(graph: Any, kind: str, parts: int = 2) -> Any:
    from gnnsample_lab.distributed.sampling.gpu.apps import DeviceLists

    most = None
    if graph.edge_weight is not None:
        weights = integer_weights(graph.indptr, graph.edge_weight)
        each = np.diff(weights.prefix[1:].astype(np.int64), prepend=0)
        most = np.array([each[a:b].max(initial=0) for a, b in itertools.pairwise(graph.indptr)], np.uint64)
    return DeviceLists(lists_of(graph, kind, most is not None, parts), key_of(5), most)


SIZES = [
    lab.apps.Layer(60, 17), lab.apps.Layer(70, 25, replace=False), lab.apps.Layer(9000, 4000),
    lab.apps.Layer(6000, 2500, replace=False), lab.apps.Layer(100, 3, replace=False),
]  # fmt: skip
"""Some of more slots than a block has threads, some of more layers than a launch draws."""


@pytest.mark.parametrize("app", SIZES, ids=repr)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("kind", "parts"), [("owners", 3), ("local", 2)])
def test_layers_of_every_rank_are_those_of_one(kind: str, parts: int, weighted: bool, app: Any) -> None:
    graph = hubs_and_dead_ends() if weighted else replace(hubs_and_dead_ends(), edge_weight=None)
    app = lab.apps.Layer(app.final_size, app.step_size, weighted, app.replace)
    lists = device_lists(graph, kind, parts)
    for batch_id, seeds in (
        (7, np.arange(40)),
        (2**32 - 1, np.arange(1500) % graph.num_nodes),
        (3, np.array([5, 5])),
    ):
        one = lab.run_app(graph, app, seeds[None], device="cpu", seed=5, first_sample=batch_id)
        whose = np.arange(seeds.size) % 2
        found = [
            lists.layers(seeds.astype(graph.indices.dtype), whose, mine, app, batch_id) for mine in (0, 1)
        ]
        assert len(found[0]) == len(found[1])
        before = whose
        for step, layers in enumerate(zip(*found, strict=True)):
            united, whose_slot = np.full(app.step_size, -1), np.full(app.step_size, -1)
            for mine, layer in enumerate(layers):
                slots, vertices, transits = (array.get() for array in layer)
                assert (np.diff(slots) > 0).all() and (before[transits] == mine).all()
                assert (united[slots] == -1).all(), "no slot is of two ranks"
                united[slots], whose_slot[slots] = vertices, mine
            before = whose_slot
            expected = one.steps[step][0] if step < len(one.steps) else np.full(app.step_size, -1)
            assert np.array_equal(united[: expected.size], expected)
            assert (united[expected.size :] == -1).all()
        assert len(found[0]) >= sum((step >= 0).any() for step in one.steps)


def test_the_host_draws_once_more_to_count() -> None:
    """A rank alone reads nothing of others; what it drew is counted."""
    with one_part("cuda") as options:
        options |= {"method": "direct"}
        for app in (lab.apps.PPR(0.1, weighted=False), lab.apps.DeepWalk(5)):
            for asked in (True, False):
                walker = lab.distributed.Walker(app=app, count_reads=asked, **options)
                walks = walker.walk(np.arange(30), 3)
                assert walker.traffic.ideal == 4 * walks.vertices.size * asked and walks.vertices.size > 0
                assert (walker.traffic.label == "") == asked and walker.traffic.volume == 0
                walker.close()
        for weighted in (False, True):
            sampler = lab.distributed.LayerSampler(
                final_size=300, step_size=100, weighted=weighted, count_reads=True, **options
            )
            drawn = sum(layer.vertices.size for layer in sampler.sample(np.arange(30), 3).layers)
            assert sampler.traffic.ideal == 4 * drawn > 0 and sampler.traffic.label == ""
            sampler.close()


def test_seeds_without_neighbours_end_the_sample() -> None:
    graph = hubs_and_dead_ends()
    alone = np.flatnonzero(np.diff(graph.indptr) == 0)[:3].astype(graph.indices.dtype)
    assert alone.size == 3
    app = lab.apps.Layer(60, 17)
    lists = device_lists(replace(graph, edge_weight=None), "owners")
    layers = lists.layers(alone, np.zeros(3, np.int64), 0, app, 1)
    assert [layer.slots.size for layer in layers] == [0]
    assert lists.layers(alone[:0], np.zeros(0, np.int64), 0, app, 1) == []


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("kind", "parts"), [("owners", 3), ("local", 2)])
def test_walks_are_those_of_one(kind: str, parts: int, weighted: bool) -> None:
    graph = hubs_and_dead_ends() if weighted else replace(hubs_and_dead_ends(), edge_weight=None)
    roots = np.arange(300) % graph.num_nodes
    lists = device_lists(graph, kind, parts)
    for app, rule in (
        (lab.apps.DeepWalk(9, weighted), WalkRule(1, weighted, -1, -1, 9, key_of(5))),
        (lab.apps.PPR(0.05, weighted), WalkRule(1, weighted, 0.05, -1, UNBOUNDED_STEPS, key_of(5))),
    ):
        one = np.stack(lab.run_app(graph, app, roots, device="cpu", seed=5, first_sample=100).steps, axis=1)
        at = lists.xp.asarray(roots.astype(graph.indices.dtype))
        found, longest, goes_on = walked(lists, at, lists.xp.asarray(100 + np.arange(300)), rule)
        assert not (goes_on and app.steps() < 0) and longest >= 9
        assert np.array_equal(found.get().T, one.reshape(300, -1)[:, :longest])
