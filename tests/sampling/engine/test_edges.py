"""``s.add_edge`` and attributes of vertices (NextDoor, sections 4.1 and 4.2), against loops over the samples."""

from __future__ import annotations

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.sampling import memory
from tests.sampling.engine.recorded_run import Run
from tests.sampling.engine.toy_apps import toy_graph, toy_roots


class Importance(lab.SamplingApp):
    """Figure 4b: vertices of the graph, and the edges that lead to them from the transits."""

    def next(self, s, transits, src_edges, step, rng):
        v = rng.below(s.num_nodes())
        for k in range(len(transits)):
            if transits[k] != lab.NULL and transits[k].has_edge(v):
                s.add_edge(transits[k], v)
        return v

    def sampling_type(self):
        return lab.SamplingType.COLLECTIVE

    def steps(self):
        return 3

    def sample_size(self, step):
        return (60, 3, 40)[step]


class Steps(lab.SamplingApp):
    """A walk that records what it follows, and would let the engine read the vertex."""

    def next(self, s, transits, src_edges, step, rng):
        if len(src_edges) == 0:
            return lab.NULL
        i = rng.below(len(src_edges))
        s.add_edge(transits[0], src_edges[i])
        s.add_edge(lab.NULL, 0)
        return src_edges[i]

    def steps(self):
        return 70

    def sample_size(self, step):
        return 1


class Fan(Steps):
    def steps(self):
        return 2

    def sample_size(self, step):
        return 6


def check(graph, found):
    """Every edge that the samples tell, in order, for :class:`Importance`, :class:`Steps` and :class:`Fan`."""
    collective = isinstance(found.app, Importance)
    host = found.to_cpu()
    before = host.roots
    for step, drawn in enumerate(host.steps):
        wanted = []
        for row in range(len(drawn)):
            for slot, v in enumerate(drawn[row].tolist()):
                sources = before[row] if collective else before[row, slot // found.shape[step].size :][:1]
                for u in sources.tolist():
                    entries = graph.indices[graph.indptr[u] : graph.indptr[u + 1]] if u >= 0 else ()
                    if v >= 0 and v in entries:
                        wanted.append((row, u, v))
        edges = host.edges(step)
        assert all(part.dtype == np.int64 for part in edges)
        assert list(zip(*(part.tolist() for part in edges), strict=True)) == sorted(wanted)
        before = drawn


@pytest.mark.parametrize("app", [Importance(), Steps(), Fan()], ids=lambda app: app.name)
def test_edges_are_those_that_next_records(app):
    graph, roots = toy_graph(), toy_roots("walk", 40)
    roots[7] = -1
    found = lab.run_app(graph, app, roots, device="cpu", seed=5)
    assert found.edges(0)[0].size > 0
    assert max(np.bincount(found.recorded[1], minlength=1)) > 32, "more than there is room for at first"
    check(graph, found)


def test_who_records_none_has_none():
    found = lab.run_app(toy_graph(), lab.apps.DeepWalk(3), [0, 1], device="cpu")
    with pytest.raises(ValueError, match=r"records no edges: its next calls no s\.add_edge"):
        found.edges(0)
    with pytest.raises(ValueError, match="step"):
        lab.run_app(toy_graph(), Fan(), [0, 1], device="cpu").edges(2)


def test_an_edge_of_no_vertex_is_an_error():
    class Outside(Fan):
        def next(self, s, transits, src_edges, step, rng):
            s.add_edge(0, 10**9)
            return 0

    with pytest.raises(lab.SamplingAppError, match="vertex outside the graph"):
        lab.run_app(toy_graph(), Outside(), [0], device="cpu")


class Younger(lab.SamplingApp):
    """A walk to neighbours of at least the transit's year, with an attribute of each kind."""

    vertex_attributes = ("year", "share", "open")

    def prepare(self, graph):
        draw = np.random.default_rng(1)
        self.year = draw.integers(1900, 2000, graph.num_nodes).astype(np.int16)
        self.share, self.open = draw.random(graph.num_nodes), draw.random(graph.num_nodes) < 0.8

    def next(self, s, transits, src_edges, step, rng):
        for _ in range(8):
            if len(src_edges) == 0:
                return lab.NULL
            v = src_edges[rng.below(len(src_edges))]
            if v.open and v.year >= transits[0].year and rng.uniform() < v.share:
                return v
        return lab.NULL

    def steps(self):
        return 4

    def sample_size(self, step):
        return 2


class Named(lab.SamplingApp):
    """Attributes called as those of Python's integers and as a method of vertices are."""

    vertex_attributes = ("real", "numerator", "degree", "recorder")

    def prepare(self, graph):
        ids = np.arange(graph.num_nodes)
        self.real, self.numerator, self.degree, self.recorder = ids[::-1], ids // 2, ids % 3, ids % 5

    def next(self, s, transits, src_edges, step, rng):
        v = transits[0]
        if v.degree() > 0 and v.recorder < 4:
            return v.real
        return v.numerator + v.degree + self.real[v] * 0

    def steps(self):
        return 2

    def sample_size(self, step):
        return 1


def test_vertices_have_the_users_attributes():
    graph, app = toy_graph(), Younger()
    found = lab.run_app(graph, app, np.arange(graph.num_nodes), device="cpu", seed=2)
    before, steps = found.roots, 0
    for drawn in found.steps:
        source = np.repeat(before, 2, axis=1)
        here = drawn >= 0
        assert (app.year[drawn[here]] >= app.year[source[here]]).all() and app.open[drawn[here]].all()
        steps += int(here.sum())
        before = drawn
    assert steps > 20


@pytest.mark.parametrize("app", [Importance(), Fan(), Younger(), Named()], ids=lambda app: app.name)
def test_a_run_by_python_is_the_engines_run(app):
    graph, roots = toy_graph(), np.arange(30).reshape(-1, 1)
    compiled, own = lab.run_app(graph, app, roots, device="cpu", seed=9), Run(graph, app, roots, 9)
    assert own.fault is None
    assert [s.tolist() for s in own.steps] == [s.tolist() for s in compiled.steps]


def test_an_attribute_must_be_named_and_be_an_array():
    class Unnamed(Younger):
        vertex_attributes = ("share", "open")

    with pytest.raises(lab.SamplingAppError, match="a whole number has no 'year'"):
        lab.run_app(toy_graph(), Unnamed(), [0], device="cpu")

    class Number(Younger):
        def prepare(self, graph):
            super().prepare(graph)
            self.year = 3

    with pytest.raises(lab.SamplingAppError, match=r"self\.year must be a one-dimensional array"):
        lab.run_app(toy_graph(), Number(), [0], device="cpu")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("way", "index"),
    [("sample", "auto"), ("transit", "auto"), ("transit", "published"), ("transit", "ranges"), ("frontier", "auto"),
     ("message", "auto"), ("transit-vanilla", "auto")],
)  # fmt: skip
@pytest.mark.parametrize("app", [Importance(), Steps(), Fan(), Younger()], ids=lambda app: app.name)
def test_the_gpu_records_the_same_edges(app, way, index):
    graph, roots = toy_graph(), toy_roots("walk", 40)
    roots[7] = -1
    wanted = lab.run_app(graph, app, roots, device="cpu", seed=5)
    found = lab.run_app(graph.to("cuda"), app, roots, way, device="cuda", seed=5, index=index)
    assert found == wanted
    assert (found.recorded is None) == isinstance(app, Younger)


class Hoarder(lab.SamplingApp):
    """One sample records more than there is room for at first."""

    def steps(self):
        return 1

    def sample_size(self, step):
        return 1

    def next(self, s, transits, src_edges, step, rng):
        for _ in range(100 if s.id() == 0 else 0):
            s.add_edge(1, 2)
        return 1


def test_edges_that_do_not_fit_are_an_error_that_says_what_to_do(monkeypatch):
    graph = lab.Graph.from_edges([0], [1], 10)
    assert lab.run_app(graph, Hoarder(), [0, 1], device="cpu").steps[0].tolist() == [[1], [1]]
    monkeypatch.setattr(memory, "_LITTLE", 0)
    monkeypatch.setattr(memory, "free_host_bytes", lambda: 4000)
    with pytest.raises(MemoryError, match="edges recorded by one sample .*2 x 100"):
        lab.run_app(graph, Hoarder(), [0, 1], device="cpu")


class Negative(Hoarder):
    def edge_weights(self, graph):
        return [-1.0]

    def next(self, s, transits, src_edges, step, rng):
        return src_edges[0] if src_edges.weight(0) > 0 else lab.NULL


def test_weights_of_an_application_are_named():
    with pytest.raises(ValueError, match=r"Negative.edge_weights\(\) must be finite and not negative"):
        lab.run_app(lab.Graph.from_edges([0], [1], 2), Negative(), [1], device="cpu")
