"""The second-order explorer: controls are moved, plotted values compared with matrices and loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import traitlets
from gnnsample_widgets import SecondOrderExplorer, second_order
from gnnsample_widgets.explorers.walks import own_sampler

import gnnsample_lab as lab
from tests.widgets.checks import check_code, check_controls, check_figures
from tests.widgets.oracle import values
from tests.widgets.oracle_own_sampler import ORACLES

MOVES: dict[str, list[Any]] = {
    "shape": ["grid", "part of the loaded graph", "two villages"],
    "start": [25, 1],
    "p_percent": [10, 400],
    "q_percent": [1000, 50],
    "length": [2, 20],
    "walks": [1, 10],
    "shown": [0, 1, 20],
    "seed": [7],
}


@pytest.fixture(scope="module")
def graph() -> lab.Graph:
    return lab.load("arxiv-like", scale=0.02, use_cache=False)


def check(explorer: SecondOrderExplorer, graph: lab.Graph) -> None:
    check_figures(explorer, graph, ORACLES)


def test_every_control_redraws_what_matrices_and_loops_give(graph: lab.Graph) -> None:
    explorer = SecondOrderExplorer(graph, device="cpu", raise_errors=True)
    assert set(MOVES) == set(explorer.controls)
    check_controls(explorer, MOVES, lambda: check(explorer, graph))


def test_the_code_reproduces_the_figures(graph: lab.Graph) -> None:
    explorer = SecondOrderExplorer(graph, device="cpu")
    for _ in range(2):
        check_code(explorer, graph)
        explorer.set(shape=second_order.PART, p_percent=25, q_percent=400, length=5, shown=5, seed=3, start=2)


def test_every_figure_names_graph_and_origin(graph: lab.Graph) -> None:
    explorer = SecondOrderExplorer(graph, device="cpu", shape=second_order.PART)
    for name, figure in explorer.figures.items():
        title = figure.layout.title.text
        assert "vertices of arxiv-like (synthetic)" in title and "sampled on the CPU" in title, name
    explorer.shape = second_order.KARATE
    assert (
        "karate club · p = 1, q = 0.25 · 1,000 walks of 10 steps from 0"
        in explorer.figures["kinds"].layout.title.text
    )


def test_a_tiny_graph_works() -> None:
    for edges, num_nodes in (([], 1), ([], 3), ([(1, 0), (0, 1)], 2), ([(1, 0), (2, 0), (3, 1), (0, 2)], 40)):
        src, dst = np.array(edges, dtype=np.int64).reshape(-1, 2).T
        tiny = lab.Graph.from_edges(src, dst, num_nodes, name="tiny")
        explorer = SecondOrderExplorer(tiny, device="cpu", shape=second_order.PART, raise_errors=True)
        assert explorer.error == ""
        if edges:
            check(explorer, tiny)


def test_controls_keep_within_the_graph_and_the_walk(graph: lab.Graph) -> None:
    explorer = SecondOrderExplorer(
        graph, device="cpu", shape=second_order.GRID, start=35, length=20, shown=20
    )
    assert explorer.controls["start"].max == 35
    explorer.shape = second_order.VILLAGES
    assert explorer.start == explorer.controls["start"].max == 25
    explorer.length = 5
    assert explorer.shown == explorer.controls["shown"].max == 5
    with pytest.raises(traitlets.TraitError, match="Root"):
        explorer.start = 26
    assert SecondOrderExplorer(graph, device="cpu", length=2).shown == 2


def test_looking_does_not_sample_again(graph: lab.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = SecondOrderExplorer(graph, device="cpu")
    monkeypatch.setattr(lab, "run_app", None)
    explorer.shown = 7
    assert explorer.error == ""
    explorer.seed = 1
    assert "TypeError" in explorer.error


class Even(lab.SamplingApp):
    """Forgets where it came from."""

    def __init__(self, p, q, length):
        self.length = length

    def next(self, s, transits, src_edges, step, rng):
        return src_edges[rng.below(len(src_edges))]

    def steps(self):
        return self.length

    def sample_size(self, step):
        return 1


def test_a_wrong_class_leaves_the_expectation(graph: lab.Graph) -> None:
    explorer = SecondOrderExplorer(graph, device="cpu", app=Even, p_percent=10, walks=10000)
    bars, even, expected = explorer.figures["kinds"].data
    assert np.abs(np.array(bars.y) - np.array(expected.y)).max() > 20
    assert np.abs(np.array(bars.y) - np.array(even.y)).max() < 1
    assert "your own class" in explorer.code


def test_sampled_shares_meet_the_expectation(graph: lab.Graph) -> None:
    for shape, p, q in (("karate club", 0.25, 4.0), ("two villages", 4.0, 0.25), ("grid", 0.5, 10.0)):
        small = second_order.small_graph(shape, graph)
        app = second_order.Node2Vec(p, q, 10)
        walks = lab.run_app(small, app, np.full(40_000, 3), device="cpu", seed=5).samples
        exact = second_order.expectation(small, 3, 10, p, q)
        found = second_order.count_kinds(small, walks)
        assert sum(exact.kinds.values()) == pytest.approx(1) and exact.visits.sum() == pytest.approx(1)
        # 360,000 steps, which depend on each other along a walk.
        assert [found[kind] for kind in second_order.KINDS] == pytest.approx(
            list(exact.kinds.values()), abs=0.006
        )
        shares = np.bincount(walks[:, 1:].ravel(), minlength=small.num_nodes) / walks[:, 1:].size
        assert shares == pytest.approx(exact.visits, abs=0.006)


def test_proposals_per_step() -> None:
    triangle = lab.Graph.from_edges([0, 1, 2], [1, 2, 0], undirected=True)
    # Two neighbours: back with weight 4, round with weight 1; the mean is 2.5 of 4.
    assert second_order.expectation(triangle, 0, 5, 0.25, 1).tries == pytest.approx(1.6)
    assert second_order.expectation(triangle, 0, 5, 1, 1).tries == pytest.approx(1)
    # q has nobody to send away, but the highest weight is his all the same.
    assert second_order.expectation(triangle, 0, 5, 1, 0.1).tries == pytest.approx(10)


def test_small_graphs_are_simple_and_undirected(graph: lab.Graph) -> None:
    doubled = lab.Graph.from_edges([1, 1, 0, 2, 2], [0, 0, 1, 2, 0], num_nodes=3, name="doubled")
    for name, given in ((second_order.KARATE, graph), (second_order.VILLAGES, graph), (second_order.GRID, graph),
                        (second_order.PART, graph), (second_order.PART, doubled)):  # fmt: skip
        small = second_order.small_graph(name, given)
        arcs = [(v, u) for v in range(small.num_nodes) for u in second_order.neighbours(small, v)]
        assert len(set(arcs)) == len(arcs) and {(u, v) for v, u in arcs} == set(arcs)
        assert not any(u == v for u, v in arcs) and small.num_nodes <= 36
    assert own_sampler.PERCENT[0] / 100 >= 2**-16


@pytest.mark.gpu
def test_on_a_gpu_the_same_walks_are_drawn(graph: lab.Graph) -> None:
    explorer = SecondOrderExplorer(graph, device="cuda", raise_errors=True)
    cpu = SecondOrderExplorer(graph, device="cpu")
    assert "sampled on the GPU" in explorer.figures["walk"].layout.title.text
    for name, figure in explorer.figures.items():
        assert values(figure) == values(cpu.figures[name]), name
    check_code(explorer, graph)
