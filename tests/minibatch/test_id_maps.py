"""Every rung of the ID map gives the local ids of the plain definition, and changes no sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab import NeighborSampler
from gnnsample_lab.minibatch.gpu.per_hop import PER_HOP_STRATEGIES
from gnnsample_lab.minibatch.id_map.ladder import IdMap, Relabelled

from .conftest import random_graph, with_wide_ids

METHODS = [name for name in lab.id_maps() if name != "in-sampler"]
ON_A_CPU = "direct-address"
"""Any name: on a CPU all methods are one twin, and what tells them apart is tested on a GPU."""
EACH = [
    pytest.param(ON_A_CPU, "cpu", id="cpu"),
    *(pytest.param(method, "cuda", marks=pytest.mark.gpu, id=method) for method in METHODS),
]


def by_hand(
    seeds: Sequence[int], hops: Sequence[Sequence[int]]
) -> tuple[list[int], list[int], list[list[int]]]:
    """Vertices, level sizes and local ids with a dictionary."""
    place = {int(v): i for i, v in enumerate(seeds)}
    levels, local = [len(place)], []
    for picks in hops:
        local.append([place.setdefault(int(v), len(place)) for v in picks])
        levels.append(len(place))
    return list(place), levels, local


def expected(seeds: Any, hops: Any) -> Relabelled:
    nodes, levels, local = by_hand(seeds, hops)
    return Relabelled(np.array(nodes), tuple(levels), [np.array(a, dtype=np.int32) for a in local])


def random_hops(seed: int, num_nodes: int, num_seeds: int, sizes: Sequence[int]) -> tuple[Any, list[Any]]:
    rng = np.random.default_rng(seed)
    seeds = rng.choice(min(num_nodes, 10**6), num_seeds, replace=False)
    # Squared: few vertices are picked often, as hubs are.
    return seeds, [(rng.random(m) ** 2 * num_nodes).astype(np.int64) for m in sizes]


CASES = {
    "one seed": (10, [3], []),
    "only seeds again": (10, [3, 1], [[1, 3, 3], [1]]),
    "all duplicates": (10, [3], [[7] * 500, [7] * 3]),
    "empty hops": (10, [3, 4], [[], [5], [], []]),
    "no picks at all": (10, [9, 0], [[], []]),
    "every vertex": (2000, [1999], [list(range(2000)), list(range(1999, -1, -1))]),
    "one vertex": (1, [0], [[0, 0]]),
    "small": (1000, *random_hops(0, 1000, 50, [300, 900])),
    "tile borders": (5000, *random_hops(1, 5000, 257, [1024, 1025, 255, 4096])),
    "uneven": (40_000, *random_hops(2, 40_000, 1, [1, 3, 20_000, 2])),
    "64-bit": (2**40, [2**40 - 1, 5], [[2**39, 5, 2**39 + 2**32, 2**39], [2**32 + 5, 5, 2**40 - 1]]),
    "many hops": (300, *random_hops(3, 300, 2, [10] * 15)),
}  # fmt: skip


@pytest.mark.parametrize(("method", "device"), EACH)
@pytest.mark.parametrize("case", CASES)
def test_relabel_is_the_plain_definition(case, method, device):
    num_nodes, seeds, hops = CASES[case]
    found = lab.relabel(seeds, hops, num_nodes, method=method, device=device)
    wanted = expected(seeds, hops)
    assert found == wanted
    assert found.level_sizes == wanted.level_sizes
    host = found.canonical()
    assert host.arrays[0].tolist() == [int(v) for v in seeds]
    assert found.node_ids.dtype == (np.int32 if num_nodes < 2**31 else np.int64)
    assert [(a.dtype, a.size) for a in found.local] == [(np.int32, len(hop)) for hop in hops]
    assert type(found.node_ids).__module__.split(".")[0] == ("numpy" if device == "cpu" else "cupy")


@pytest.mark.parametrize(("method", "device"), EACH)
def test_a_map_serves_many_mini_batches(method, device):
    """Large after small, small after large, hop by hop and at once: nothing of the last batch is left."""
    for dtype in (np.int32, np.int64):
        id_map = IdMap(method, 20_000, dtype, device)
        kept = []
        for seed, sizes in enumerate(
            [[30, 100], [3000, 9000], [5], [20_000, 30], [10, 10, 10], [4000, 0, 4000]]
        ):
            seeds, hops = random_hops(seed, 20_000, 20 + seed, sizes)
            found = id_map.map_hops(seeds, hops)
            assert found == expected(seeds, hops), (seed, dtype)
            kept.append((found, found.canonical()))
            nodes = id_map.begin(seeds)
            assert nodes.tolist() == seeds.tolist()
            levels, local = [nodes.size], []
            for hop in hops:
                nodes, ids = id_map.extend(hop)
                levels.append(nodes.size)
                local.append(ids)
            assert Relabelled(nodes, tuple(levels), local) == expected(seeds, hops), (seed, dtype)
        for found, before in kept:  # later mini-batches leave earlier results alone
            assert Relabelled(found.node_ids, found.level_sizes, found.local).canonical() == before
        assert id_map.scratch_bytes >= 0


@pytest.mark.gpu
@pytest.mark.parametrize("case", [name for name in CASES if name != "64-bit"])
def test_bitmaps_give_the_same_on_graphs_of_any_size(case):
    from gnnsample_lab.minibatch.id_map.levels import LevelMap

    num_nodes, seeds, hops = CASES[case]
    for dtype in (np.int32, np.int64):
        id_map = IdMap("level-bitmap", num_nodes, dtype, "cuda")
        assert id_map.engine.kind == "direct"  # a word per vertex fits the cache
        id_map.engine = LevelMap(num_nodes, dtype, "direct")
        for _ in range(2):  # the second mini-batch finds the memory of the first
            found = id_map.map_hops(np.array(seeds), [np.array(hop, dtype) for hop in hops])
            assert found == expected(seeds, hops)


@pytest.mark.gpu
def test_bitmaps_serve_graphs_whose_words_exceed_the_cache():
    id_map = IdMap("level-bitmap", 120_000_000, np.int32, "cuda")
    assert id_map.engine.kind == "levels"
    seeds, hops = random_hops(7, 120_000_000, 100, [3000, 20_000])
    assert id_map.map_hops(seeds, hops) == expected(seeds, hops)
    nodes = id_map.begin(seeds)
    for hop in hops:
        nodes, local = id_map.extend(hop)
        assert np.array_equal(nodes.get()[local.get()], hop)


@pytest.mark.parametrize(("method", "device"), EACH)
def test_merge_keeps_the_order_of_first_occurrence(method, device):
    given = np.array([9, 3, 9, 0, 119, 3, 9])
    nodes, places = IdMap(method, 120, np.int32, device).merge(given)
    assert nodes.tolist() == [9, 3, 0, 119] and places.tolist() == [0, 1, 0, 2, 3, 1, 0]


def algorithm_2(ids: Sequence[int], slots: int, rng: np.random.Generator) -> dict[int, int]:
    """FastGL's Fused-Map, a thread per id, one atomic operation at a time in any order: global id -> local id.

    As Algorithm 2 has it but for line 27, whose test is the wrong way round: who put a key in is who numbers it.
    """
    keys, values = [-1] * slots, [0] * slots
    local_id = 0
    at = [v % slots for v in ids]
    waiting, owner = list(range(len(ids))), []
    while waiting or owner:
        if owner and (not waiting or rng.random() < 0.5):
            values[owner.pop(int(rng.integers(len(owner))))] = local_id  # lines 28 and 29: one atomicAdd
            local_id += 1
            continue
        thread = waiting[int(rng.integers(len(waiting)))]
        held = keys[at[thread]]
        if held == -1:  # line 13: atomicCAS
            keys[at[thread]] = ids[thread]
            owner.append(at[thread])
        if held in (-1, ids[thread]):
            waiting.remove(thread)
        else:
            at[thread] = (at[thread] + 1) % slots  # line 20
    return {key: values[slot] for slot, key in enumerate(keys) if key != -1}


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_algorithm_2s_threads_gives_the_twins_ids(seed):
    """Orders differ in who is numbered first, and in nothing that a mini-batch rests on: the canonical form."""
    rng = np.random.default_rng(seed)
    num_seeds, num_nodes = 5, 40
    seeds = rng.choice(num_nodes, num_seeds, replace=False)
    hop = rng.integers(0, num_nodes, 60)
    new = [int(v) for v in dict.fromkeys(hop.tolist()) if v not in seeds]
    table = algorithm_2([v for v in hop.tolist() if v not in seeds], 61, rng)
    assert sorted(table) == sorted(new) and sorted(table.values()) == list(range(len(new)))
    local = {int(v): i for i, v in enumerate(seeds)} | {v: num_seeds + at for v, at in table.items()}
    nodes = np.array(sorted(local, key=local.__getitem__))
    found = Relabelled(nodes, (num_seeds, len(nodes)), [np.array([local[v] for v in hop.tolist()], np.int32)])
    assert found == lab.relabel(seeds, [hop], num_nodes, device="cpu")


def test_the_canonical_form_sees_what_is_wrong_and_nothing_else():
    seeds, hops = [4, 2], [[7, 5, 2, 7], [9, 4, 7]]
    right = expected(seeds, hops)
    swapped = Relabelled(  # 7 and 5 in the other order: as right
        np.array([4, 2, 5, 7, 9]), (2, 4, 5), [np.array([3, 2, 1, 3]), np.array([4, 0, 3])]
    )
    assert swapped == right and hash(swapped) == hash(right)
    wrong = {
        "another pick": (np.array([4, 2, 7, 5, 9]), (2, 4, 5), [np.array([2, 3, 1, 3]), np.array([4, 0, 2])]),
        "seeds permuted": (np.array([2, 4, 7, 5, 9]), (2, 4, 5), [np.array([2, 3, 0, 2]), np.array([4, 1, 2])]),
        "levels mixed": (np.array([4, 2, 9, 5, 7]), (2, 4, 5), [np.array([4, 3, 1, 4]), np.array([2, 0, 4])]),
        "an id twice": (np.array([4, 2, 7, 5, 9, 9]), (2, 4, 6), [np.array([2, 3, 1, 2]), np.array([4, 0, 2])]),
    }  # fmt: skip
    for name, (nodes, levels, local) in wrong.items():
        assert Relabelled(nodes, levels, local) != right, name
    assert right != "something else"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"seeds": [1, 1]}, ValueError, "seeds must be distinct .*got 1 repeated"),
        ({"seeds": []}, ValueError, "seeds must be distinct .*at least one .got none"),
        ({"seeds": [10]}, ValueError, r"seeds must be vertex ids in 0\.\.9 .got 10"),
        ({"neighbors": [[1], [-1]]}, ValueError, r"neighbors\[1\] must be vertex ids in 0\.\.9 .got -1"),
        ({"neighbors": [[0.5]]}, TypeError, r"neighbors\[0\] must be integers .got dtype float64"),
        ({"neighbors": [[[1]]]}, ValueError, r"neighbors\[0\] must be one-dimensional"),
        ({"neighbors": [[1]] * 16}, ValueError, "neighbors may hold at most 15 hops .got 16"),
        ({"num_nodes": 0}, ValueError, "num_nodes must be between 1 and"),
        ({"num_nodes": 2.0}, TypeError, "num_nodes must be an integer"),
        ({"method": "hash"}, ValueError, "method must be one of 'sort'.*got 'hash'"),
        ({"method": "in-sampler"}, ValueError, "method='in-sampler' relabels while it draws"),
        ({"device": "tpu"}, ValueError, "device must be .*got 'tpu'"),
    ],
)
def test_bad_arguments_of_relabel(arguments, error, message):
    with pytest.raises(error, match=message):
        lab.relabel(**{"seeds": [1], "neighbors": [[2]], "num_nodes": 10, "device": "cpu", **arguments})


def test_bad_arguments_of_a_map():
    with pytest.raises(TypeError, match="id_dtype must be int32 or int64"):
        IdMap("sort", 10, np.float32, "cpu")
    with pytest.raises(ValueError, match="id_dtype int32 holds ids below"):
        IdMap("sort", 2**40, np.int32, "cpu")
    with pytest.raises(ValueError, match="method='in-sampler'"):
        IdMap("in-sampler", 10, device="cpu")


# ---- in the sampler --------------------------------------------------------------------------------------------------


def test_every_id_map_is_listed_with_one_line():
    assert list(lab.id_maps()) == [
        "sort",
        "insert-count-compact",
        "versioned-hash",
        "fused-map",
        "fused-map-block",
        "direct-address",
        "level-bitmap",
        "in-sampler",
    ]
    assert all(len(line) > 20 and "\n" not in line for line in lab.id_maps().values())
    lab.id_maps().clear()
    assert lab.id_maps()


@pytest.mark.parametrize("strategy", lab.strategies())
@pytest.mark.parametrize("id_map", [*lab.id_maps(), "auto"])
def test_which_strategy_takes_which_map(graph, strategy, id_map):
    per_hop = strategy in PER_HOP_STRATEGIES
    fits = id_map == "auto" or per_hop == (id_map != "in-sampler")
    if not fits:
        with pytest.raises(ValueError, match=f"id_map.*got id_map='{id_map}'"):
            NeighborSampler(graph, [3], strategy=strategy, device="cpu", id_map=id_map)
        return
    sampler = NeighborSampler(graph, [3], strategy=strategy, device="cpu", id_map=id_map)
    if id_map != "auto":
        assert sampler.id_map == id_map
    else:
        resolved = "insert-count-compact" if per_hop else "auto" if strategy == "auto" else "in-sampler"
        assert sampler.id_map == resolved


def test_an_unknown_id_map(graph):
    with pytest.raises(ValueError, match="id_map must be one of 'auto', 'sort'.*got 'hash'"):
        NeighborSampler(graph, [3], device="cpu", id_map="hash")


def test_relabelling_a_samples_picks_gives_its_blocks(graph):
    batch = NeighborSampler(graph, [4, 3, 2], device="cpu").sample([9, 3, 0, 119], 3)
    hops = [picks.neighbors for picks in batch.picks]
    again = lab.relabel(batch.seeds, hops, graph.num_nodes, device="cpu")
    assert again == Relabelled(batch.node_ids, batch.level_sizes, batch.local_neighbors)


# ---- on a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("expand", ["frontier", "new"])
@pytest.mark.parametrize("strategy", PER_HOP_STRATEGIES)
@pytest.mark.parametrize("id_map", METHODS)
def test_the_sample_is_the_same_with_every_map(strategy, id_map, expand):
    g = random_graph(5, 3000, 30_000)
    rng = np.random.default_rng(0)
    for this in (g, with_wide_ids(g.to("cuda"))):
        cpu = NeighborSampler(g, [5, 4, 3], expand=expand, device="cpu")
        gpu = NeighborSampler(this, [5, 4, 3], strategy=strategy, expand=expand, device="cuda", id_map=id_map)
        for batch_id, size in enumerate((200, 3, 1500)):
            seeds = rng.integers(0, 3000, size)
            found, wanted = gpu.sample(seeds, batch_id), cpu.sample(seeds, batch_id)
            assert found.seeds.get().tolist() == wanted.seeds.tolist()
            assert found.seed_inverse.get().tolist() == wanted.seed_inverse.tolist()
            assert found.canonical() == wanted.canonical()


def engine_of(table: str, num_nodes: int, **knobs: Any) -> Any:
    """``table``: of an :class:`InsertingMap`, or "published" for Algorithm 2 as printed."""
    from gnnsample_lab.minibatch.id_map.fused import InsertingMap, MapKnobs

    published = table == "published"
    kind = "cleared" if published else table
    return InsertingMap(num_nodes, np.int32, kind, MapKnobs(**knobs), published=published)


def run(engine: Any, seeds: Any, hops: Sequence[Any]) -> Relabelled:
    import cupy

    given = cupy.asarray(seeds, dtype=np.int32), [cupy.asarray(hop, dtype=np.int32) for hop in hops]
    nodes, levels, local = engine.map_hops(*given)
    return Relabelled(nodes, tuple(levels), local)


@pytest.mark.gpu
@pytest.mark.parametrize("table", ["direct", "stamped", "cleared"])
@pytest.mark.parametrize("items", [1, 2, 8])
def test_launch_shapes_change_nothing(table, items):
    engine = engine_of(table, 30_000, items=items)
    for seed in range(3):
        seeds, hops = random_hops(seed, 30_000, 100, [3000, 20_000, 7])
        assert run(engine, seeds, hops) == expected(seeds, hops)


@pytest.mark.gpu
@pytest.mark.parametrize("table", ["direct", "stamped"])
def test_stamps_that_run_out(table):
    engine = engine_of(table, 3000)
    seeds, hops = random_hops(0, 3000, 10, [500, 4000])
    run(engine, seeds, hops)
    engine._next = engine._stamps - (7000 if table == "direct" else 2)
    for seed in range(6):
        seeds, hops = random_hops(seed, 3000, 10, [500, 4000])
        assert run(engine, seeds, hops) == expected(seeds, hops), seed
    assert engine._next < 50_000  # it did begin anew


@pytest.mark.gpu
@pytest.mark.parametrize("impatience", [0, 1, 128])
@pytest.mark.parametrize("table", ["cleared", "published", "stamped"])
def test_a_hash_that_is_too_small_grows_and_repeats_the_hop(table, impatience):
    engine = engine_of(table, 10**6, impatience=impatience)
    rng = np.random.default_rng(0)
    for size in (50, 50, 60_000, 40, 200_000):
        seeds, picks = np.arange(20), rng.integers(0, 10**6, size)
        engine.begin(_device(seeds))
        levels, local = [20], []
        for hop in (picks[: size // 3], picks):
            nodes, ids = engine.extend(_device(hop))
            levels.append(nodes.size)
            local.append(ids)
        assert Relabelled(nodes, tuple(levels), local) == expected(seeds, [picks[: size // 3], picks])


@pytest.mark.gpu
def test_a_hash_sized_by_earlier_mini_batches_is_not_grown_again(monkeypatch):
    engine = engine_of("cleared", 10**6)
    rng = np.random.default_rng(0)
    run(engine, np.arange(20), [rng.integers(0, 10**6, 9000), rng.integers(0, 10**6, 30_000)])
    slots = engine.table.nbytes // 8

    def fail(need: int) -> None:
        raise AssertionError(f"grown to {need}")

    monkeypatch.setattr(engine, "_grow", fail)
    for seed in range(3):
        seeds, hops = random_hops(seed, 10**6, 20, [9000, 28_000])
        assert run(engine, seeds, hops) == expected(seeds, hops)
        assert 3 * len(expected(seeds, hops).node_ids) < engine._slots <= slots


def _device(array: np.ndarray) -> Any:
    import cupy

    return cupy.asarray(array, dtype=np.int32)


@pytest.mark.gpu
def test_a_table_too_big_for_scratch_becomes_a_hash():
    assert IdMap("direct-address", 5000, np.int32, "cuda").engine.kind == "direct"
    small = IdMap("direct-address", 5000, np.int32, "cuda", scratch_bytes=4 * 5000 - 1)
    assert small.engine.kind == "stamped"
    seeds, hops = random_hops(0, 5000, 10, [500, 4000])
    assert small.map_hops(seeds, hops) == expected(seeds, hops)


def test_the_structures_of_host_and_kernels_have_the_same_size():
    """Kernels assert theirs (static_assert); what the host packs has to be that long."""
    import re

    from gnnsample_lab.device.kernels import PACKAGE_ROOT
    from gnnsample_lab.minibatch.id_map import fused as id_map_fused
    from gnnsample_lab.minibatch.id_map import gpu as id_map_gpu
    from gnnsample_lab.minibatch.id_map import versioned as id_map_versioned

    folder = PACKAGE_ROOT / "minibatch" / "id_map"
    sizes = {
        name: int(size)
        for source in ("insert_count_compact.cu", "versioned_hash.cu", "table.cuh")
        for name, size in re.findall(r"sizeof\((\w+)\) == (\d+)", (folder / source).read_text())
    }
    tail = id_map_fused._TAIL_AT + id_map_fused._HOPS_TAIL.size
    job = id_map_versioned._JOB.size
    assert sizes == {"Items": id_map_gpu.PACK.size, "Job": job, "Map": id_map_fused._MAP.size, "Hops": tail}
    assert tail == id_map_fused._HOPS_BYTES
