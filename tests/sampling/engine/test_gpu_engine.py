"""On a GPU: every application in every parallelism grows the samples of the CPU walker."""

from __future__ import annotations

import copy
import gc
import weakref

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.sampling.engine.gpu import GpuEngine
from gnnsample_lab.sampling.engine.grouping.classes import ClassKnobs
from gnnsample_lab.sampling.engine.grouping.ranges import RangeKnobs
from gnnsample_lab.sampling.engine.language.compile import compile_operator
from gnnsample_lab.sampling.engine.run import PARALLELISMS
from gnnsample_lab.sampling.engine.shape import Shape
from gnnsample_lab.sampling.engine.steps import published, transit
from tests.sampling.engine.toy_apps import (
    APPS,
    DistinctHops,
    Ending,
    Growing,
    Hops,
    Walk,
    toy_graph,
    toy_roots,
)

pytestmark = pytest.mark.gpu

WAYS = [(way, "auto") for way in PARALLELISMS] + [
    ("transit", "radix"),
    ("transit", "counting"),
    ("transit", "ranges"),
    ("transit", "published"),
]
SEED, FIRST = 2**63 + 7, 2**33 + 1


class History(Walk):
    """Vertices from before the last two, and the sample's size, in a walk."""

    def next(self, s, transits, src_edges, step, rng):
        n = len(src_edges)
        if n == 0:
            return lab.NULL
        if s.size() % 4 == 3 and s.prev_vertex(4, 0) != lab.NULL:
            return s.prev_vertex(4, 0)
        return src_edges[rng.below(n)]


class Branching(Ending):
    """Steps without end that are no walks; transits chosen by draws, some of them none."""

    def step_transits(self, step, s, transit_idx, rng):
        if rng.chance(0.1):
            return lab.NULL
        return s.prev_vertex(1, rng.below(s.prev_count(1)))

    def num_transits(self, step):
        return 3

    def sample_size(self, step):
        return 2


class Widths(Hops):
    """All ways to share the words that are drawn first, and vector stores."""

    fanouts = (4, 1, 3, 8)


class Raises(Walk):
    def next(self, s, transits, src_edges, step, rng):
        if step == 2 and s.id() % 7 == 3:
            raise ValueError("unlucky")
        return src_edges[rng.below(len(src_edges))] if len(src_edges) else lab.NULL


ALL = {
    **APPS,
    "ending": Ending(),
    "history": History(9),
    "branching": Branching(),
    "widths": Widths(),
    "growing": Growing(2, 2),
}


def wide(graph):
    """The same graph with 64-bit ids; not through ``to``, which narrows."""
    other = copy.copy(graph)
    other._set("indices", graph.indices.astype(np.int64))
    return other


def medium_graph(weighted=True):
    """Lists long enough for every class of transit-parallel kernels, and many dead ends."""
    draw = np.random.default_rng(8)
    hub = np.concatenate([np.zeros(5000, int), np.ones(900, int), draw.integers(2, 4000, 20000)])
    src = draw.integers(0, 6000, hub.size)
    weight = draw.random(hub.size).astype(np.float32) if weighted else None
    return lab.Graph.from_edges(src, hub, 6000, edge_weight=weight)


@pytest.mark.parametrize(("way", "index"), WAYS)
@pytest.mark.parametrize("name", ALL)
def test_samples_are_those_of_the_cpu(name, way, index):
    roots = toy_roots(name, 97)
    roots[11] = -1
    for graph in (toy_graph(True), toy_graph(False)):
        wanted = lab.run_app(graph, ALL[name], roots, device="cpu", seed=SEED, first_sample=FIRST)
        for given in (graph.to("cuda"), wide(graph.to("cuda"))):
            found = lab.run_app(
                given, ALL[name], roots, way, device="cuda", seed=SEED, first_sample=FIRST, index=index
            )
            assert found.steps[0].dtype == given.indices.dtype
            assert [s.shape for s in found.steps] == [s.shape for s in wanted.steps]
            assert found == wanted
            assert len(found.schedule) == found.num_steps


@pytest.mark.parametrize(("way", "index"), WAYS)
@pytest.mark.parametrize(
    "name", ["walk", "second-order", "weighted", "ending", "distinct-hops", "widths", "history"]
)
def test_many_samples_on_a_larger_graph(name, way, index):
    graph = medium_graph()
    draw = np.random.default_rng(2)
    roots = np.where(draw.random(20000) < 0.7, draw.integers(0, 2, 20000), draw.integers(0, 6000, 20000))
    wanted = lab.run_app(graph, ALL[name], roots, device="cpu", seed=5)
    assert lab.run_app(graph.to("cuda"), ALL[name], roots, way, device="cuda", seed=5, index=index) == wanted


RANGE_KNOBS = {
    "tiny": RangeKnobs(bytes=512, item_draws=100),
    "global": RangeKnobs(factor=0),
    "few-threads": RangeKnobs(bytes=4096, threads=64, room=2048, factor=10**6),
    "held-in-part": RangeKnobs(bytes=2**20, room=40_000, factor=10**6),
    "many-stages": RangeKnobs(stage=4),
}


@pytest.mark.parametrize("knobs", RANGE_KNOBS)
@pytest.mark.parametrize(
    "name", ["second-order", "weighted", "distinct-hops", "widths", "history", "branching"]
)
def test_ranges_of_any_shape_draw_the_same(name, knobs, monkeypatch):
    graph = medium_graph()
    draw = np.random.default_rng(2)
    roots = np.where(draw.random(9000) < 0.7, draw.integers(0, 2, 9000), draw.integers(-1, 6000, 9000))
    monkeypatch.setattr(transit.KNOBS, "ranges", RANGE_KNOBS[knobs])
    wanted = lab.run_app(graph, ALL[name], roots, device="cpu", seed=6)
    for given in (graph.to("cuda"), wide(graph.to("cuda"))):
        found = lab.run_app(given, ALL[name], roots, device="cuda", seed=6, index="ranges")
        assert found == wanted
        assert "ranges" in {entry["index"] for entry in found.schedule}


PUBLISHED_KNOBS = {
    "no-cache": published.Knobs(shared_bytes=0, held=1),
    "lanes-follow-slots": published.Knobs(width=0, shared_bytes=1024),
    "no-tail": published.Knobs(tail=0),
    "short-jobs": published.Knobs(classes=ClassKnobs(few=8, many=64, job_draws=32)),
    "drawn-lists": published.Knobs(factor=1, held=4),
}


@pytest.mark.parametrize("knobs", PUBLISHED_KNOBS)
@pytest.mark.parametrize(
    "name", ["walk", "second-order", "weighted", "ending", "distinct-hops", "widths", "history", "branching"]
)
def test_published_kernels_of_any_shape_draw_the_same(name, knobs, monkeypatch):
    graph = medium_graph()
    draw = np.random.default_rng(2)
    roots = np.where(draw.random(9000) < 0.7, draw.integers(0, 2, 9000), draw.integers(-1, 6000, 9000))
    monkeypatch.setattr(published, "KNOBS", PUBLISHED_KNOBS[knobs])
    wanted = lab.run_app(graph, ALL[name], roots, device="cpu", seed=6)
    for given in (graph.to("cuda"), wide(graph.to("cuda"))):
        found = lab.run_app(given, ALL[name], roots, device="cuda", seed=6, index="published")
        assert found == wanted
        assert "published" in {entry["index"] for entry in found.schedule}


@pytest.mark.parametrize("way", PARALLELISMS)
def test_a_fault_is_the_one_that_the_cpu_reports(way):
    graph, roots = toy_graph(), np.arange(40)
    errors = []
    for device, given in (("cpu", graph), ("cuda", graph.to("cuda"))):
        with pytest.raises(lab.SamplingAppError) as caught:
            lab.run_app(given, Raises(), roots, way, device=device)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    assert "unlucky" in errors[0]
    assert "test_gpu_engine.py" in errors[0]


class Nowhere(Walk):
    def next(self, s, transits, src_edges, step, rng):
        return 10**9


@pytest.mark.parametrize("way", PARALLELISMS)
def test_what_is_no_vertex_is_told_as_on_the_cpu(way):
    graph, errors = toy_graph(), []
    for device, given in (("cpu", graph), ("cuda", graph.to("cuda"))):
        with pytest.raises(lab.SamplingAppError, match=r"neither a vertex \(0 to 39\) nor NULL") as caught:
            lab.run_app(given, Nowhere(), np.arange(40), way, device=device)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("way", PARALLELISMS)
def test_the_next_run_knows_nothing_of_a_fault(way):
    graph = toy_graph().to("cuda")
    with pytest.raises(lab.SamplingAppError):
        lab.run_app(graph, Raises(), np.arange(40), way, device="cuda")
    result = lab.run_app(graph, Walk(), np.arange(40), way, device="cuda")
    assert result == lab.run_app(toy_graph(), Walk(), np.arange(40), device="cpu")


@pytest.mark.parametrize("way", PARALLELISMS)
@pytest.mark.parametrize(
    "app", [Walk(4), Ending(), Hops(), DistinctHops(), APPS["together"]], ids=lambda a: a.name
)
def test_no_samples(app, way):
    graph = toy_graph()
    roots = np.empty((0, 1), dtype=np.int64)
    found = lab.run_app(graph.to("cuda"), app, roots, way, device="cuda")
    wanted = lab.run_app(graph, app, roots, device="cpu")
    assert [s.shape for s in found.steps] == [s.shape for s in wanted.steps]


def test_samples_that_never_end_are_an_error():
    class Circles(Ending):
        def next(self, s, transits, src_edges, step, rng):
            return src_edges[0]

    ring = lab.Graph.from_edges([0, 1, 2], [1, 2, 0], 3).to("cuda")
    with pytest.raises(RuntimeError, match="max_steps"):
        lab.run_app(ring, Circles(), [0, 1], device="cuda")
    result = lab.run_app(ring, Circles(), [0, 1], device="cuda", max_steps=70)
    assert result == lab.run_app(ring.to("cpu"), Circles(), [0, 1], device="cpu", max_steps=70)
    assert result.num_steps == 70


def test_walks_of_few_samples_go_into_one_kernel():
    result = lab.run_app(toy_graph().to("cuda"), Walk(6), np.arange(40), device="cuda")
    assert {entry["kernel"] for entry in result.schedule} == {"walk"}
    always = lab.run_app(toy_graph().to("cuda"), Walk(6), np.arange(40), device="cuda", index="always")
    assert "walk" not in {entry["kernel"] for entry in always.schedule}
    assert always == result


@pytest.mark.parametrize("select", ["degree", "uniform"])
@pytest.mark.parametrize("num_roots", [1, 5, 100])
def test_a_warp_moves_the_roots_as_one_thread_does(select, num_roots):
    graph, draw = toy_graph(), np.random.default_rng(4)
    # Few vertices, so that samples hold a root several times; NULLs, and vertices without in-edges.
    roots = draw.integers(-1, min(12, graph.num_nodes), (300, num_roots))
    app = lab.apps.MultiRW(30, num_roots, select)
    wanted = lab.run_app(graph, app, roots, device="cpu", seed=3, first_sample=2**33)
    for given in (graph.to("cuda"), wide(graph.to("cuda"))):
        found = lab.run_app(given, app, roots, device="cuda", seed=3, first_sample=2**33)
        assert found == wanted
        assert np.array_equal(found.roots.get(), roots)


def test_a_run_leaves_graph_and_roots_as_they_were():
    import cupy

    graph = toy_graph().to("cuda")
    roots = cupy.asarray(toy_roots("frontier"))
    before = [a.copy() for a in (graph.indptr, graph.indices, roots)]
    lab.run_app(graph, APPS["frontier"], roots, device="cuda")
    assert all(
        bool((a == b).all()) for a, b in zip(before, (graph.indptr, graph.indices, roots), strict=True)
    )


@pytest.mark.parametrize("way", WAYS)
def test_what_a_run_takes_comes_back_at_once(way):
    """No engine stays behind in a ring of references, which would hold its outputs until they are collected."""
    import cupy

    parallelism, index = way
    graph, app = toy_graph(True).to("cuda"), Hops()
    operator = compile_operator(app, graph)
    roots = cupy.arange(40, dtype=np.int64).reshape(-1, 1)
    gc.disable()
    try:
        engine = GpuEngine(graph, app, operator, Shape(app, 1), roots, 0, 0, parallelism, index)
        engine.run()
        seen = weakref.ref(engine)
        del engine
        assert seen() is None
    finally:
        gc.enable()


def test_a_result_keeps_its_roots_when_the_callers_array_changes():
    import cupy

    graph = toy_graph()
    roots = cupy.zeros((5, 1), dtype=graph.indices.dtype)
    result = lab.run_app(graph, Walk(), roots, device="cuda")
    roots[:] = 3
    assert (result.roots == 0).all() and (result.samples[:, 0] == 0).all()
