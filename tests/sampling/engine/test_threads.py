"""Who reads what: calls followed in Python agree with the engine, layouts and counts with loops over threads."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.sampling.engine.grouping import index
from gnnsample_lab.sampling.engine.language.accessors import METHODS
from gnnsample_lab.sampling.explain import reads, record, threads
from gnnsample_lab.sampling.explain.threads import KERNELS, count_warps, lay_out

APPS: dict[str, tuple[Any, int]] = {
    "k-hop": (lambda: lab.apps.KHop((3, 5)), 1),
    "DeepWalk": (lambda: lab.apps.DeepWalk(6), 4),
    "node2vec": (lambda: lab.apps.Node2Vec(6), 3),
    "PPR": (lambda: lab.apps.PPR(1 / 8), 2),
    "PinSAGE": (lambda: lab.apps.PinSAGEWalk(3, 3, 0.25), 2),
    "MVS": (lambda: lab.apps.MVS(), 0),
}


class Growing(lab.SamplingApp):
    """Reads sizes, earlier steps, weights and a table."""

    def __init__(self) -> None:
        self.table: Any = np.array([0, 2, 3, 9])

    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        if len(src_edges) == 0 or s.size() > 40:
            return lab.NULL
        i = src_edges.search(rng.below(src_edges.prefix(len(src_edges))))
        if src_edges.weight(i) < transits[0].max_edge_weight() and rng.chance(0.5):
            i = self.table.search(rng.bits() % 10) % len(src_edges)
        return src_edges[i]

    def steps(self) -> int:
        return 3

    def sample_size(self, step: int) -> int:
        return 2


@pytest.fixture(scope="module", params=[False, True], ids=["unweighted", "weighted"])
def graph(request: pytest.FixtureRequest) -> Any:
    return lab.rmat(120, num_edges=700, weighted=request.param, seed=5)


def run(graph: Any, app: Any, count: int = 60, **knobs: Any) -> Any:
    return lab.run_app(graph, app, np.arange(count), device="cpu", seed=3, **knobs)


@pytest.mark.parametrize("name", [*APPS, "own"])
def test_followed_calls_draw_what_the_engine_drew(graph: Any, name: str) -> None:
    make, step = APPS.get(name, (Growing, 2))
    result = run(graph, make(), first_sample=7)
    calls = reads.follow(result, step)
    assert np.array_equal(calls.vertex, result.steps[step].ravel())
    shape = result.shape[step]
    assert calls.size == shape.size and len(calls) == result.steps[step].size
    assert np.array_equal(calls.sample, np.repeat(np.arange(60), shape.width))
    here = calls.transit >= 0
    assert np.array_equal(calls.degree[here], np.diff(graph.indptr)[calls.transit[here]])
    if name in ("k-hop", "DeepWalk", "node2vec", "PPR"):
        assert np.array_equal(calls.transit, np.repeat(result.transits(step).ravel(), shape.size))
        # The last read of an own list is the vertex that is returned.
        for call in np.flatnonzero(calls.vertex >= 0):
            address = calls.address[calls.begins[call] : calls.begins[call + 1]]
            inside = address[
                (address >= calls.begin[call]) & (address < calls.begin[call] + 4 * calls.degree[call])
            ]
            assert calls.vertex[call] in graph.indices[inside // 4]


def test_a_uniform_draw_is_one_read() -> None:
    calls = reads.follow(run(lab.rmat(120, num_edges=700), lab.apps.KHop((3, 5))), 1)
    assert np.array_equal(np.diff(calls.begins), calls.vertex >= 0)


def test_recording_objects_have_every_method() -> None:
    kinds = {
        "sample": record.Sample, "roots": record.Roots, "edges": record.Edges, "edges_of": record.Edges,
        "int": record.Vertex, "rng": record.Stream, "transits": record.Transits,
        **dict.fromkeys(("int table", "float table", "bool table"), record.Table),
    }  # fmt: skip
    for served in METHODS:
        role, _, name = served.removeprefix("len(").rstrip("[])").partition(".")
        if name:
            assert callable(getattr(kinds[role], name)), served
        else:
            assert {"__len__", "__getitem__", "__iter__"} <= set(vars(kinds[role])), served


def test_what_cannot_be_followed_is_an_error(graph: Any) -> None:
    with pytest.raises(ValueError, match="collective"):
        reads.follow(run(graph, lab.apps.Layer(4, 8)), 0)
    with pytest.raises(ValueError, match="replaces roots"):
        reads.follow(lab.run_app(graph, lab.apps.MultiRW(3, 4), num_samples=2, device="cpu"), 1)
    walked = run(graph, lab.apps.DeepWalk(2))
    with pytest.raises(ValueError, match=r"step must lie in 0..1 \(got 2\)"):
        reads.follow(walked, 2)
    many = run(graph, lab.apps.KHop((50, 50)))
    with pytest.raises(ValueError, match="150,000 calls"):
        reads.follow(many, 1)


def in_warps(calls: Any, scheme: str, width: int) -> list[list[int]]:
    """Calls of each warp, by loops."""
    if scheme == "sample":
        every = [c if calls.transit[c] >= 0 else -1 for c in range(len(calls))]
        return [every[at : at + width] for at in range(0, len(every), width)]
    wanted = defaultdict(list)
    for call in range(len(calls)):
        if calls.transit[call] >= 0:
            wanted[int(calls.transit[call])].append(call)
    small = [c for v in sorted(wanted) if len(wanted[v]) < width for c in wanted[v]]
    groups = [small]
    groups += [wanted[v] for v in sorted(wanted) if width <= len(wanted[v]) <= 1024]
    groups += [wanted[v] for v in sorted(wanted) if len(wanted[v]) > 1024]
    return [group[at : at + width] for group in groups for at in range(0, len(group), width)]


@pytest.mark.parametrize("width", [1, 4, 32])
@pytest.mark.parametrize("scheme", threads.SCHEMES)
@pytest.mark.parametrize("name", ["k-hop", "node2vec"])
def test_layout_and_counts(graph: Any, name: str, scheme: str, width: int) -> None:
    make, step = APPS[name]
    calls = reads.follow(run(graph, make()), step)
    lanes = lay_out(calls, scheme, width)
    expected = in_warps(calls, scheme, width)
    assert [[c for c in warp if c >= 0] for warp in lanes.call.tolist()] == [
        [c for c in warp if c >= 0] for warp in expected
    ]
    counts = count_warps(calls, lanes)
    for number, warp in enumerate(expected):
        mine = [c for c in warp if c >= 0]
        assert counts.threads[number] == len(mine)
        assert counts.lists[number] == len({int(calls.transit[c]) for c in mine})
        assert counts.degrees[number] == len({int(calls.degree[c]) for c in mine})
        at = [i for c in mine for i in range(calls.begins[c], calls.begins[c + 1])]
        assert counts.reads[number] == len(at)
        assert counts.loads[number] == len({calls.instruction[i] for i in at})
        assert counts.sectors[number] == len({(calls.instruction[i], calls.address[i] // 32) for i in at})
    assert threads.distinct_sectors(calls) == len(set((calls.address // 32).tolist()))
    assert (counts.busy <= 1).all()


def test_a_hub_gets_blocks_and_a_grid() -> None:
    star = lab.Graph.from_edges(np.arange(1, 101), np.zeros(100, int), 101)
    result = lab.run_app(star, lab.apps.KHop((20,)), [0] * 60 + [1] * 3, device="cpu")
    calls = reads.follow(result, 0)
    lanes = lay_out(calls, "transit")
    # 1,200 draws from the hub go to the grid, 60 for vertex 1 to a block.
    assert lanes.kernel.tolist() == [1] * 2 + [2] * 38
    assert count_warps(calls, lanes).lists.tolist() == [1] * 40
    # 100 ids of four bytes lie in 13 sectors; two blocks of 1,024 threads copy them. Vertex 1 has no list.
    assert threads.staged_sectors(calls, lanes) == 26
    assert lay_out(calls, "sample").kernel.tolist() == [-1] * 40


def test_staging_leaves_reads_of_other_lists(graph: Any) -> None:
    calls = reads.follow(run(graph, lab.apps.Node2Vec(6)), 3)
    small = lay_out(calls, "transit", 32)
    assert (small.kernel == 0).all()
    assert threads.staged_sectors(calls, small) == count_warps(calls, small).sectors.sum()
    large = lay_out(calls, "transit", 2)
    assert (large.kernel == 1).any()
    own = np.repeat(calls.begin, np.diff(calls.begins)), np.repeat(4 * calls.degree, np.diff(calls.begins))
    others = ((calls.address < own[0]) | (calls.address >= own[0] + own[1])).any()
    assert others and threads.staged_sectors(calls, large) > 0


def test_empty_steps() -> None:
    alone = lab.Graph.from_edges([], [], 4)
    result = lab.run_app(alone, lab.apps.KHop((2, 2)), [0, 1], device="cpu")
    calls = reads.follow(result, 1)
    assert (calls.transit == -1).all() and (calls.vertex == -1).all()
    for scheme in threads.SCHEMES:
        counts = count_warps(calls, lay_out(calls, scheme))
        assert counts.lists.sum() == counts.sectors.sum() == 0
    assert len(lay_out(calls, "transit").call) == 0
    load = threads.transit_load(result.transits(1), 2)
    assert len(load.vertex) == 0 and load.shared_by_pairs == 0 and load.by_kernel()[1].tolist() == [0, 0, 0]


def test_bad_layouts(graph: Any) -> None:
    calls = reads.follow(run(graph, lab.apps.DeepWalk(1), 4), 0)
    with pytest.raises(ValueError, match="scheme"):
        lay_out(calls, "vertex")
    with pytest.raises(ValueError, match="width must be at least 1"):
        lay_out(calls, "sample", 0)


def test_kernels_have_the_limits_of_table_2() -> None:
    named = [KERNELS[k] for k in threads.kernel_of([1, 31, 32, 1024, 1025])]
    assert named == ["sub-warp", "sub-warp", "block", "block", "grid"]
    assert (threads.WARP, threads.BLOCK) == (index.FEW, index.MANY) == (32, 1024)


def test_load_counts_pairs_and_samples() -> None:
    load = threads.transit_load(np.array([[4, 4, 1], [-1, 1, 9]]), 20)
    assert load.vertex.tolist() == [1, 4, 9]
    assert load.pairs.tolist() == [2, 2, 1] and load.samples.tolist() == [2, 1, 1]
    assert load.draws.tolist() == [40, 40, 20] and load.kernel.tolist() == [1, 1, 0]
    assert load.shared_by_pairs == 0.8 and load.shared_by_samples == 0.4
    transits, draws = load.by_kernel()
    assert transits.tolist() == [1, 2, 0] and draws.tolist() == [20, 80, 0]


def test_bytes_of_index_and_sampling() -> None:
    load = threads.transit_load(np.array([[4, 4, 1], [-1, 1, 9]]), 20)
    assert threads.sampling_bytes(load, 4) == {"lists read": 3200, "vertices written": 400}
    # 5 pairs, 3 transits, 1,000 vertices: two passes of 8 bits.
    assert threads.index_bytes(load, 1000, 4, "radix") == {
        "pairs sorted": 5 * (2 * 20 - 4),
        "counters": 16_000 + 5 * 4 + 3 * 4,
        "transits found": 3 * 16,
    }
    assert threads.index_bytes(load, 1000, 4, "counting") == {
        "pairs sorted": 5 * 20,
        "counters": 16_000 + 5 * 12,
        "transits found": 3 * 16,
    }
    with pytest.raises(ValueError, match="method"):
        threads.index_bytes(load, 1000, 4, "bubble")


@pytest.mark.gpu
def test_followed_calls_of_a_gpu_run() -> None:
    graph = lab.rmat(120, num_edges=700, seed=5)
    for parallelism in ("transit", "sample"):
        result = lab.run_app(graph, lab.apps.KHop((3, 5)), np.arange(60), parallelism, "cuda", index="always")
        calls = reads.follow(result, 1)
        assert np.array_equal(calls.vertex, result.steps[1].get().ravel())
