"""Prefix sums of edge weights on the CPU: made once, and kept no longer than the graph."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.sampling.engine import plan
from gnnsample_lab.sampling.engine.cpu import walker


def weighted(seed: int = 0) -> lab.Graph:
    rng = np.random.default_rng(seed)
    return lab.Graph.from_edges(
        rng.integers(50, size=400),
        rng.integers(50, size=400),
        50,
        edge_weight=rng.random(400, np.float32) + 0.5,
    )


class OwnWeights(lab.apps.DeepWalk):
    """Walks by weights that the test chooses."""

    def __init__(self, weights) -> None:
        super().__init__(3)
        self.given = weights

    def edge_weights(self, graph):
        return self.given() if callable(self.given) else self.given


def walk(graph: lab.Graph, app: lab.SamplingApp | None = None) -> list[list[int]]:
    result = lab.run_app(graph, app or lab.apps.DeepWalk(3), np.arange(20), device="cpu", seed=4)
    return [step.ravel().tolist() for step in result.steps]


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for every array of weights that is summed."""
    made: list[object] = []
    real = walker.integer_weights
    monkeypatch.setattr(walker, "integer_weights", lambda *given: (made.append(1), real(*given))[1])
    return made


def test_no_graph_is_kept_alive() -> None:
    graphs = [weighted(seed) for seed in range(3)]
    for graph in graphs:
        walk(graph)
    arrays = [weakref.ref(graph.edge_weight) for graph in graphs]
    watched = [weakref.ref(graph) for graph in graphs]
    del graph, graphs
    gc.collect()
    assert [w() for w in watched] == [None] * 3
    assert [a() for a in arrays] == [None] * 3
    assert not [graph for graph in walker._sums if graph.num_nodes == 50]


def test_weights_are_summed_once(summed) -> None:
    graph = weighted()
    assert walk(graph) == walk(graph)
    assert len(summed) == 1


def test_arrays_of_one_run_are_let_go_of(summed) -> None:
    graph = weighted()
    for _ in range(5):
        walk(graph, OwnWeights(lambda: np.ones(400, np.float32)))
    assert len(summed) == 5
    assert len(walker._sums[graph]) == 1


def test_arrays_that_live_are_all_found_again(summed) -> None:
    graph, apps = weighted(), [OwnWeights(np.full(400, w, np.float32)) for w in (1, 2, 3)]
    for _ in range(3):
        for app in apps:
            walk(graph, app)
    assert len(summed) == 3


def test_the_number_of_kept_sums_is_bounded(summed) -> None:
    graph, apps = weighted(), [OwnWeights(np.full(400, w, np.float32)) for w in range(1, 12)]
    for app in apps:
        walk(graph, app)
    assert len(walker._sums[graph]) == walker._MAX_SUMS


def test_a_list_of_weights_works_as_an_array_does() -> None:
    graph = weighted()
    weights = graph.edge_weight.tolist()
    assert walk(graph, OwnWeights(weights)) == walk(graph)


def test_weights_changed_where_they_lie_are_summed_anew(summed) -> None:
    """An application that learns may write its weights into one array."""
    graph, weights = weighted(), np.ones(400, np.float32)
    app = OwnWeights(weights)
    before = walk(graph, app)
    weights[:] = graph.edge_weight**4
    changed = walk(graph, app)
    assert changed == walk(graph, OwnWeights(weights.copy())) != before
    weights[:] = 1
    assert walk(graph, app) == before
    assert len(walker._sums[graph]) == 1, "the copy is gone, and one entry is left of the array"


def test_what_the_gpu_keeps_goes_with_the_numbers() -> None:
    graph, weights = weighted(), np.ones(400, np.float32)
    kept = plan.kept_with(graph, weights)
    assert plan.kept_with(graph, weights) is kept
    weights[3] = 2
    assert plan.kept_with(graph, weights) is not kept
    own = plan.kept_with(graph, graph.edge_weight)
    assert plan.kept_with(graph, graph.edge_weight) is own
