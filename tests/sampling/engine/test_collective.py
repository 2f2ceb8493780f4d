"""Combined neighbourhoods: what they hold, how samples are cut into waves, and the same samples on the GPU."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.sampling.engine.language import link
from gnnsample_lab.sampling.engine.language.compile import compile_operator
from gnnsample_lab.sampling.engine.steps import combine
from tests.conftest import absent
from tests.sampling.engine import app_oracle


class Together(lab.SamplingApp):
    """Uniform over the combined neighbourhood; every ``src_edges[...]`` is returned at once."""

    def __init__(self, size=6, steps=2, distinct=False):
        self.size, self.count, self.distinct = size, steps, distinct

    def sampling_type(self):
        return lab.SamplingType.COLLECTIVE

    def next(self, s, transits, src_edges, step, rng):
        return src_edges[rng.below(len(src_edges))] if len(src_edges) else lab.NULL

    def steps(self):
        return self.count

    def sample_size(self, step):
        return self.size

    def unique(self, step):
        return self.distinct


class ByWeight(Together):
    def next(self, s, transits, src_edges, step, rng):
        total = src_edges.prefix(len(src_edges))
        if total == 0:
            return lab.NULL
        i = src_edges.search(rng.below(total))
        return src_edges[i] if src_edges.weight(i) > 0 else lab.NULL


class InOrder(Together):
    """The first entries of the neighbourhood as they stand."""

    def next(self, s, transits, src_edges, step, rng):
        return src_edges[s.slot()] if s.slot() < len(src_edges) else lab.NULL


class OnlyCounts(Together):
    def next(self, s, transits, src_edges, step, rng):
        return rng.below(len(src_edges)) % s.num_nodes() if len(src_edges) else lab.NULL


class OnlyWeights(Together):
    def next(self, s, transits, src_edges, step, rng):
        total = src_edges.prefix(len(src_edges))
        return rng.below(total) % s.num_nodes() if total > 0 else lab.NULL


class NoEdges(Together):
    def next(self, s, transits, src_edges, step, rng):
        v = rng.below(s.num_nodes())
        for t in transits:
            if t.has_edge(v):
                return v
        return v if src_edges.has(v) else lab.NULL


APPS = [
    Together(),
    Together(9, 3, True),
    ByWeight(),
    ByWeight(5, 2, True),
    InOrder(),
    OnlyCounts(),
    OnlyWeights(),
    NoEdges(),
]
NAMES = [f"{type(app).__name__}-{app.size}" for app in APPS]


def some_graph(weighted=True, num_nodes=60, num_edges=900):
    draw = np.random.default_rng(3)
    dst = (draw.integers(0, num_nodes, num_edges) * draw.random(num_edges) ** 3).astype(int)  # hubs
    weight = draw.integers(0, 4, num_edges).astype(np.float32) if weighted else None
    return lab.Graph.from_edges(draw.integers(0, num_nodes, num_edges), dst, num_nodes, edge_weight=weight)


def some_roots(samples=20, per_sample=4, num_nodes=60):
    roots = np.random.default_rng(4).integers(-1, num_nodes, (samples, per_sample))
    roots[3] = -1
    roots[5] = 0  # the largest hub, four times
    return roots


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("app", APPS, ids=NAMES)
def test_samples_are_those_of_plain_python(app, weighted):
    graph, roots = some_graph(weighted), some_roots()
    result = lab.run_app(graph, app, roots, device="cpu", seed=6)
    assert [s.tolist() for s in result.steps] == app_oracle.run(graph, app, roots, 6)
    assert (result.steps[0][3] == -1).all() and (result.steps[0] >= 0).any()


def test_lists_stand_in_the_order_of_transits():
    graph, roots = some_graph(), some_roots()
    (found,) = lab.run_app(graph, InOrder(2000, 1), roots, device="cpu").steps
    for row, transits in zip(found, roots, strict=True):
        lists = [graph.indices[graph.indptr[t] : graph.indptr[t + 1]] for t in transits if t >= 0]
        expected = np.concatenate(lists) if lists else np.empty(0, int)
        assert row[row >= 0].tolist() == expected[:2000].tolist()


@pytest.mark.parametrize("capacity", [1, 10, 37, 1000])
def test_waves_hold_every_sample_once(capacity):
    draw = np.random.default_rng(capacity)
    sizes = draw.integers(0, 30, 50) * (draw.random(50) < 0.7)
    begins = np.concatenate([[0], np.cumsum(sizes)])
    waves = list(combine.waves_of(begins, capacity))
    assert [row for w in waves for row in range(w.first_row, w.first_row + w.rows)] == list(range(50))
    for wave in waves:
        own = sizes[wave.first_row : wave.first_row + wave.rows]
        assert wave.entries == own.sum() and wave.before == begins[wave.first_row]
        assert wave.entries <= capacity or wave.rows == 1
    for one, following in pairwise(waves):  # no wave could have taken the next sample
        assert one.entries + sizes[following.first_row] > capacity
    assert len(waves) == 1 or capacity < 1000


def test_an_index_where_sharing_pays():
    assert combine.sharing_pays(1_000_000, 10**8, across_the_bus=True)
    assert not combine.sharing_pays(1_000_000, 10**8, across_the_bus=False)
    assert not combine.sharing_pays(1_000_000, 3_000_000, across_the_bus=True)  # lists are short


@pytest.mark.slow
@pytest.mark.parametrize("arch", [pytest.param("sm_75", marks=pytest.mark.exhaustive), "sm_90"])
@pytest.mark.parametrize("app", APPS, ids=NAMES)
def test_kernels_link(app, arch):
    if problem := link.missing():
        absent(f"KERNELS WERE NOT LINKED: {problem}")
    for id_type, weighted in (("int", 1), ("long", 0)):
        macros = {"ID_T": id_type, "WEIGHTED": weighted}
        assert (
            link.build(compile_operator(app, some_graph()), "steps/collective.cu", macros, arch)[:4]
            == b"\x7fELF"
        )


WAYS = [
    ("sample", "auto"), ("transit", "auto"), ("transit", "radix"), ("transit", "counting"),
    ("transit-vanilla", "auto"), ("frontier", "auto"), ("message", "auto"),
]  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("app", APPS, ids=NAMES)
def test_the_gpu_draws_the_same(app, way):
    for weighted in (True, False):
        graph, roots = some_graph(weighted, 200, 30_000), some_roots(300, 5, 200)
        expected = lab.run_app(graph, app, roots, device="cpu", seed=2, first_sample=2**35)
        parallelism, index = way
        found = lab.run_app(graph, app, roots, parallelism, "cuda", seed=2, first_sample=2**35, index=index)
        assert found == expected


@pytest.mark.gpu
@pytest.mark.parametrize("app", [Together(9, 2, True), ByWeight()], ids=["uniform", "weighted"])
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_waves_on_the_gpu(app, way, monkeypatch):
    """Neighbourhoods that do not fit into memory together, some of them not even alone."""
    waves_of = combine.Combiner.waves
    monkeypatch.setattr(combine.Combiner, "waves", lambda self, budget: waves_of(self, 4096))
    graph, roots = some_graph(), some_roots(100)
    expected = lab.run_app(graph, app, roots, device="cpu", seed=2)
    found = lab.run_app(graph, app, roots, way[0], "cuda", seed=2, index=way[1])
    assert found == expected and found.schedule[0]["waves"] > 2


@pytest.mark.gpu
def test_wide_ids_on_the_gpu():
    graph, roots = some_graph(), some_roots()
    wide = lab.Graph(graph.indptr, graph.indices, graph.edge_weight)
    object.__setattr__(wide, "indices", graph.indices.astype(np.int64))
    for app in APPS:
        expected = lab.run_app(graph, app, roots, device="cpu")
        assert all(lab.run_app(wide, app, roots, p, "cuda", index=i) == expected for p, i in WAYS)
