"""The hand-written baselines: they compile wherever the engine does; on a GPU, they return the same samples."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest

from gnnsample_lab import Graph, apps, run_app
from gnnsample_lab.bench.floors import walk_floor
from gnnsample_lab.bench.suites.nextdoor import native
from gnnsample_lab.sampling.engine.language.compile import compile_operator
from tests.conftest import absent
from tests.nvrtc_compile import load_nvrtc, missing_wheels

APPS = {
    "deepwalk": lambda weighted: apps.DeepWalk(9, weighted=weighted),
    "ppr": lambda weighted: apps.PPR(1 / 8, weighted=weighted),
    "node2vec": lambda weighted: apps.Node2Vec(9, 0.25, 4.0, weighted=weighted),
    "k-hop": lambda weighted: apps.KHop((6, 3)),
}


def graph_with(num_nodes=600, num_edges=9000, seed=0):
    rng = np.random.default_rng(seed)
    src, dst = (
        rng.integers(0, num_nodes, num_edges),
        (rng.random(num_edges) ** 3 * (num_nodes - 20)).astype(np.int64),
    )
    weight = rng.integers(1, 9, num_edges).astype(np.float32)
    weight[rng.random(num_edges) < 0.002] = 1e6  # lists on which trials end in adding up
    return Graph.from_edges(src, dst, num_nodes, edge_weight=weight)


def prepared(name, weighted, graph):
    app: Any = APPS[name](weighted)
    app.prepare(graph)
    return app, compile_operator(app, graph)


@pytest.mark.parametrize("name", APPS)
@pytest.mark.parametrize(("weighted", "architecture"), [(False, 90), (True, 70)])
def test_the_engine_compiles_with_hand_written_operators(name, weighted, architecture):
    missing = missing_wheels()
    if missing:
        absent(f"HAND-WRITTEN OPERATORS WERE NOT COMPILED: install {' '.join(missing)}")
    app, operator = prepared(name, weighted, graph_with())
    macros = {"ID_T": "long", "WEIGHTED": int(weighted), "PAIR_T": "int", "STAGED": 1}
    source, options = native.unit_of(app, operator, "streaming/streaming.cu", macros)
    options = [*options, f"--gpu-architecture=sm_{architecture}"]
    assert load_nvrtc().compile(source, options, "native.cu")[:4] == b"\x7fELF"


def test_factors_are_compared_as_words():
    graph = graph_with()
    app, _ = prepared("node2vec", False, graph)
    _, macros = native.operator_of(app)
    for factor, name in (
        (app.returns, "RETURNS"),
        (app.near, "NEAR"),
        (app.away, "AWAY"),
        (app.always, "ALWAYS"),
    ):
        threshold = int(macros[name].removesuffix("ull"))
        for word in {0, max(0, threshold - 1), threshold, 2**32 - 1} - {2**32}:
            assert (word < threshold) == (word / 2**32 < factor)
    ppr, _ = prepared("ppr", False, graph)
    assert native.operator_of(ppr)[1]["TERMINATE"] == f"{2**29}ull"


def test_what_nobody_wrote_by_hand_is_refused():
    class Mine(apps.DeepWalk):
        pass

    app = Mine(3)
    app.prepare(graph_with())
    with pytest.raises(LookupError, match="no hand-written next for Mine"):
        native.provider(app, graph_with())


def test_the_floor_refuses_what_it_cannot_time():
    graph = graph_with()
    for roots, steps, message in (
        ([np.arange(3)], 0, "steps"),
        ([], 3, "roots"),
        ([np.arange(3), np.arange(4)], 3, "roots"),
    ):
        with pytest.raises(ValueError, match=message):
            walk_floor.walk_floor(graph, roots, steps)


# ---- on a GPU ---------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("name", APPS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("parallelism", "index"), [("sample", "auto"), ("transit", "always"), ("transit-vanilla", "auto")]
)
def test_hand_written_operators_return_the_same_samples(name, weighted, parallelism, index):
    import cupy

    from gnnsample_lab.sampling.engine.gpu import GpuEngine
    from gnnsample_lab.sampling.engine.shape import Shape

    graph = graph_with()
    app, operator = prepared(name, weighted, graph)
    roots = np.random.default_rng(1).integers(0, graph.num_nodes, (300, 1))
    expected = run_app(graph, app, roots, device="cpu", seed=5, first_sample=2**33)
    engine = GpuEngine(
        graph.to("cuda"), app, operator, Shape(app, 1), cupy.asarray(roots), 5, 2**33, parallelism, index,
        kernel_provider=native.provider(app, graph),
    )  # fmt: skip
    steps = engine.run()
    assert len(steps) == len(expected.steps)
    for got, want in zip(steps, expected.steps, strict=True):
        assert np.array_equal(got.get(), want)


@pytest.mark.gpu
@pytest.mark.parametrize("store", [False, True])
def test_the_floor_walks_along_edges(store):
    graph = graph_with().to("cuda")
    found = walk_floor.walk_floor(graph, [np.arange(100), np.arange(100, 200)], 5, store, passes=1)
    assert len(found["sweep"]) == len(walk_floor.PER_THREAD) * len(walk_floor.THREADS)
    assert found["us"] == min(found["sweep"].values()) > 0 and found["walkers"] == 100
    assert statistics.median(found["passes_us"]) == found["us"]
