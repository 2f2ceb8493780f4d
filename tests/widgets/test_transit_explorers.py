"""The explorers of notebook 03: controls are moved, plotted values compared with counts by loops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import IndexExplorer, KernelExplorer, ThreadsExplorer, transit
from gnnsample_widgets.explorers.transit import index as transit_index
from gnnsample_widgets.shell.explorer import Explorer

import gnnsample_lab as lab
from tests.widgets.checks import check_code, check_controls, check_figures
from tests.widgets.oracle import values
from tests.widgets.oracle_transit import ORACLES

CASES: list[tuple[type[Explorer], dict[str, list[Any]]]] = [
    (
        ThreadsExplorer,
        {
            "step": [1],
            "width": [4, 16],
            "roots": [8, 64],
            "fanout": [1, 9],
            "where": ["the loaded one"],
            "app": ["DeepWalk", "node2vec"],
            "seed": [7],
        },
    ),
    (
        KernelExplorer,
        {
            "batch": [1, 256],
            "fanout_1": [3],
            "fanout_2": [25],
            "step": [1],
            "app": ["node2vec", "DeepWalk"],
            "seed": [7],
        },
    ),
    (
        IndexExplorer,
        {
            "batch": [16],
            "fanout_1": [3],
            "fanout_2": [1],
            "method": ["counting", "auto"],
            "app": ["DeepWalk"],
            "seed": [7],
            "recorded": [],
        },
    ),
]


@pytest.fixture(scope="module")
def graph() -> lab.Graph:
    return lab.load("arxiv-like", scale=0.02, use_cache=False)


def check(explorer: Explorer, graph: lab.Graph) -> None:
    check_figures(explorer, graph, ORACLES)


@pytest.mark.parametrize(("kind", "moves"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_every_control_redraws_what_loops_count(
    kind: type[Explorer], moves: dict[str, list[Any]], graph: lab.Graph
) -> None:
    explorer = kind(graph, device="cpu")
    assert set(moves) == set(explorer.controls)
    check_controls(explorer, moves, lambda: check(explorer, graph))


@pytest.mark.parametrize("kind", [case[0] for case in CASES])
def test_the_code_reproduces_the_figures(kind: type[Explorer], graph: lab.Graph) -> None:
    explorer = kind(graph, device="cpu")
    check_code(explorer, graph)
    explorer.set(app="DeepWalk", seed=3)
    check_code(explorer, graph)
    if kind is ThreadsExplorer:
        explorer.set(where="the loaded one", step=4, width=8)
        check_code(explorer, graph)


@pytest.mark.parametrize("kind", [case[0] for case in CASES])
def test_every_figure_names_its_origin(kind: type[Explorer], graph: lab.Graph) -> None:
    shown = kind(graph, device="cpu").figures
    for name, figure in shown.items():
        title = figure.layout.title.text
        if name == "share":
            assert "Time share" in title
            continue
        assert "counted from the sample, drawn on the CPU" in title
        assert "(synthetic)" in title


@pytest.mark.parametrize("kind", [case[0] for case in CASES])
def test_a_small_graph_without_splits_works(kind: type[Explorer]) -> None:
    few = lab.Graph.from_edges([1, 2, 3, 0], [0, 0, 1, 2], num_nodes=40, name="few")
    explorer = kind(few, device="cpu")
    check(explorer, few)
    if kind is ThreadsExplorer:
        explorer.set(where="the loaded one", roots=128)
        check(explorer, few)


def test_steps_follow_the_application(graph: lab.Graph) -> None:
    for kind, most in ((ThreadsExplorer, 6), (KernelExplorer, 4)):
        explorer = kind(graph, device="cpu", app="DeepWalk", step=3)
        assert explorer.error == "" and explorer.controls["step"].max == most
        assert [c.name for c in explorer.controls.values() if c.disabled and "fanout" in c.name]
        runs = explorer.run_count
        explorer.app = "k-hop"
        assert explorer.run_count == runs + 1
        assert explorer.step == 2 and explorer.controls["step"].max == 2
        assert not [c.name for c in explorer.controls.values() if c.disabled]
        explorer.set(app="node2vec", step=most)
        assert explorer.run_count == runs + 2 and explorer.error == "" and explorer.step == most


def test_a_step_that_nobody_reaches_says_so() -> None:
    alone = lab.Graph.from_edges([], [], 64, name="alone")
    for kind in (ThreadsExplorer, KernelExplorer):
        explorer = kind(
            alone, device="cpu", **({"where": "the loaded one"} if kind is ThreadsExplorer else {})
        )
        assert explorer.error == "" and "No sample has a transit at this step" in explorer._summary.value


def test_one_of_a_kind_is_not_many() -> None:
    pair = lab.Graph.from_edges([0, 1], [1, 0], 2, name="pair")
    kernels = KernelExplorer(pair, device="cpu", batch=1, fanout_1=1, fanout_2=1, step=1)
    said = kernels._summary.value
    assert "<b>1</b> pair of sample and transit wants <b>1</b> different list." in said
    assert "by <b>1</b> pair." in said
    assert "· 1 root ·" in kernels.figures["histogram"].layout.title.text
    assert "· 1 root ·" in IndexExplorer(pair, device="cpu", batch=1).figures["work"].layout.title.text
    loaded = ThreadsExplorer(pair, device="cpu", where="the loaded one", roots=4, fanout=1, step=1)
    assert (
        "sector sample-parallel" in loaded._summary.value and "of them is different" in loaded._summary.value
    )


def test_the_first_roots_of_many_are_those_of_few(graph: lab.Graph) -> None:
    many, few = transit.draw_roots(graph, 256, 5), transit.draw_roots(graph, 16, 5)
    assert np.array_equal(many[:16], few) and len(set(many.tolist())) == 256
    repeated = transit.draw_roots(transit.small_graph(), 100, 5)
    assert np.array_equal(np.sort(repeated[:48]), np.arange(48)) and len(repeated) == 100


def test_looking_at_another_step_does_not_sample_again(
    graph: lab.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    explorers = [ThreadsExplorer(graph, device="cpu"), KernelExplorer(graph, device="cpu")]
    monkeypatch.setattr(lab, "run_app", None)
    for explorer in explorers:
        explorer.controls["step"].value = 1
        assert explorer.error == ""
        explorer.seed = 9
        assert "NoneType" in explorer.error, "another seed does"


def test_recorded_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graph: lab.Graph) -> None:
    monkeypatch.setattr(transit_index, "resource_path", lambda name: tmp_path / "none.json")
    assert transit_index.recorded_shares() == ({}, "")
    assert "no recorded times" in transit_index.recorded_figure("x", "radix").layout.annotations[0].text
    rows = [
        {"graph": "orkut-like", "app": "DeepWalk", "index": "radix", "index_percent": 38.5},
        {"graph": "orkut-like", "app": "k-hop", "index": "radix", "index_percent": 12.0},
        {"graph": "orkut-like", "app": "k-hop", "index": "always", "index_percent": 9.0},
        {"graph": "orkut-like", "app": "k-hop", "index": "published", "index_percent": 31.0},
        {"graph": "arxiv-like", "app": "k-hop", "index": "radix", "index_percent": 20.0},
        {"graph": "arxiv-like", "app": "PPR", "index": "radix", "index_percent": None},
    ]
    made_up = {"origin": "measured", "environment": {"gpu": {"name": "made-up GPU"}}, "rows": rows}
    (tmp_path / "some.json").write_text(json.dumps(made_up))
    monkeypatch.setattr(transit_index, "resource_path", lambda name: tmp_path / "some.json")
    explorer = IndexExplorer(graph, device="cpu")
    assert explorer.recorded == "arxiv-like"
    explorer.controls["recorded"].value = "orkut-like"
    figure = explorer.figures["share"]
    assert figure.data[0].x == pytest.approx([38.5, 12.0]) and list(figure.data[0].y) == ["DeepWalk", "k-hop"]
    assert list(figure.data[2].x) == [40.4], "the paper's DeepWalk on Orkut"
    title = figure.layout.title.text
    assert "orkut-like (synthetic)" in title and "index radix · measured on made-up GPU, recorded" in title
    check_code(explorer, graph)
    explorer.method = "counting"
    assert explorer.figures["share"].data[0].x == pytest.approx([9.0])
    explorer.method = "published"
    assert explorer.figures["share"].data[0].x == pytest.approx([31.0])
    assert "index published" in explorer.figures["share"].layout.title.text
    explorer.method = "auto"
    assert "of orkut-like with this index" in explorer.figures["share"].layout.annotations[0].text
    (tmp_path / "some.json").write_text(json.dumps({**made_up, "environment": {"gpu": None}}))
    assert transit_index.recorded_shares() == ({}, ""), "times of a CPU are no times of an index"


@pytest.mark.gpu
def test_on_a_gpu(graph: lab.Graph) -> None:
    for kind, _ in CASES:
        explorer = kind(graph, device="cuda", raise_errors=True)
        cpu = kind(graph, device="cpu")
        for name, figure in explorer.figures.items():
            if name == "share":
                assert "measured on" in figure.layout.title.text
                assert all(0 < value < 100 for value in figure.data[0].x), "radix by default"
            else:
                assert values(figure) == values(cpu.figures[name]), name
                assert "drawn on the GPU" in figure.layout.title.text
        namespace: dict[str, Any] = {"g": graph}
        exec(compile(explorer.code, "<handed over>", "exec"), namespace)
        assert list(namespace["shown"]) == list(explorer.figures)
