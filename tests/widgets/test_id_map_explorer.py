"""The ID-map explorer: controls are moved, plotted values compared with a dictionary's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import IdMapExplorer, id_map, recorded

import gnnsample_lab as lab
from tests.widgets.checks import check_code, check_controls, check_figures
from tests.widgets.oracle import values
from tests.widgets.oracle_id_map import ORACLES

MOVES: dict[str, list[Any]] = {
    "step": [0, 1, 14],
    "count": [20, 5],
    "slots": [5, 16, 32],
    "hash": ["multiplicative", "low-bits"],
    "threads": [1, 32],
    "printed": [True],
    "load_percent": [95, 5],
    "numbering": ["consecutive", "multiples of 64"],
    "seed": [7],
}


@pytest.fixture(scope="module")
def graph() -> lab.Graph:
    return lab.load("arxiv-like", scale=0.02, use_cache=False)


def check(explorer: IdMapExplorer, graph: lab.Graph) -> None:
    check_figures(explorer, graph, ORACLES)


def test_every_control_redraws_what_a_plain_table_does(graph: lab.Graph) -> None:
    explorer = IdMapExplorer(graph, device="cpu")
    assert set(MOVES) == set(explorer.controls)
    check_controls(explorer, MOVES, lambda: check(explorer, graph))


def test_the_code_reproduces_the_figures(graph: lab.Graph) -> None:
    explorer = IdMapExplorer(graph, device="cpu")
    for _ in range(2):
        check_code(explorer, graph)
        explorer.set(step=9, hash="low-bits", printed=True, threads=2, numbering="consecutive", seed=3)


def test_every_figure_names_its_origin(graph: lab.Graph) -> None:
    shown = IdMapExplorer(graph, device="cpu").figures
    for name in ("lengths", "loads"):
        title = shown[name].layout.title.text
        assert "arxiv-like (synthetic)" in title and "sampled on the CPU" in title
    assert "made-up ids" in shown["table"].layout.title.text
    assert "replayed in lock-step" in shown["contention"].layout.title.text


def test_a_small_graph_without_splits_works() -> None:
    few = lab.Graph.from_edges([1, 2, 3, 0], [0, 0, 1, 2], num_nodes=40, name="few")
    check(IdMapExplorer(few, device="cpu"), few)


def test_the_step_keeps_within_the_ids(graph: lab.Graph) -> None:
    explorer = IdMapExplorer(graph, device="cpu")
    explorer.count = 5
    assert explorer.step == explorer.controls["step"].value == explorer.controls["step"].max == 5
    explorer.count = 20
    assert explorer.step == 20, "who looks at the full table goes on doing so"
    explorer.step = 4
    explorer.count = 10
    assert explorer.step == 4 and explorer.controls["step"].max == 10
    assert IdMapExplorer(graph, device="cpu", count=4).step == 4


def test_a_power_of_two_where_bits_are_masked(graph: lab.Graph) -> None:
    explorer = IdMapExplorer(graph, device="cpu", slots=11)
    for hash, slots in (("modulo", 11), ("low-bits", 16), ("multiplicative", 16)):
        explorer.hash = hash
        title = explorer.figures["table"].layout.title.text
        assert f"{slots} slots, {hash}" in title


def test_the_printed_flag_is_called_out(graph: lab.Graph) -> None:
    explorer = IdMapExplorer(graph, device="cpu", step=14)
    assert "Without a valid local id" not in explorer._summary.value
    explorer.printed = True
    assert "Without a valid local id" in explorer._summary.value
    assert "flag as printed" in explorer.figures["table"].layout.title.text
    explorer.step = 0
    assert "An empty table, and 14 ids to come." in explorer._summary.value
    explorer.step = 1
    assert "1 id so far" in explorer._summary.value


def test_faulty_ids() -> None:
    assert id_map.faulty_ids([]) == []
    assert id_map.faulty_ids(lab.fill_steps([3, 1, 3, 6, 3], 7)) == []
    # 3 was numbered twice, last with 1; 1 and 6 keep the 0 of the empty table.
    assert sorted(id_map.faulty_ids(lab.fill_steps([3, 1, 3, 6, 3], 7, polarity="printed"))) == [1, 6]
    # 1 has no number of its own, and its 0 is that of 3.
    assert sorted(id_map.faulty_ids(lab.fill_steps([3, 1, 3], 7, polarity="printed"))) == [1, 3]
    # Two vertices, local ids 0 and 3: nobody is number 1, and there is no row 3.
    assert sorted(id_map.faulty_ids(lab.fill_steps([3, 1, 3, 3, 3, 3], 7, polarity="printed"))) == [1, 3]


def test_made_up_ids_fit_the_table() -> None:
    for slots in id_map.SLOTS:
        for seed in range(20):
            ids = id_map.example_ids(20, slots, seed)
            assert len(ids) == 20 and len(set(ids.tolist())) < slots and ids.min() >= 0 and ids.max() < 100


def test_tables_of_all_sizes_get_the_same_ids() -> None:
    for seed in range(20):
        largest = id_map.example_ids(20, 32, seed)
        for slots in id_map.SLOTS:
            ids = id_map.example_ids(20, slots, seed)
            assert slots < 11 or np.array_equal(ids, largest)
            # A small one takes those that fit.
            assert set(ids.tolist()) <= set(id_map.example_ids(20_000, 32, seed).tolist())


def test_numberings_keep_the_batch(graph: lab.Graph) -> None:
    as_is = id_map.batch_ids(graph, device="cpu")
    run = id_map.batch_ids(graph, id_map.RUN, device="cpu")
    assert sorted(run.tolist()) == list(range(len(as_is))) and len(set(as_is.tolist())) == len(as_is)
    assert np.array_equal(np.argsort(run), np.argsort(as_is)) and not np.array_equal(run, np.sort(run))
    assert np.array_equal(id_map.batch_ids(graph, id_map.STRIDED, device="cpu"), 64 * as_is)


def test_every_map_is_timed(graph: lab.Graph) -> None:
    batch = lab.NeighborSampler(graph, [3, 3], device="cpu").sample(np.arange(8))
    times = id_map.map_times(batch, ["sort", "fused-map"], repeats=2)
    assert list(times) == ["sort", "fused-map"] and min(times.values()) > 0
    with pytest.raises(ValueError, match="in-sampler"):
        id_map.map_times(batch, ["in-sampler"])


def test_recorded_times_are_those_of_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "resource_path", lambda name: tmp_path)
    assert "nothing is shown" in recorded.id_map_times("a").layout.annotations[0].text
    rows = [
        {"graph": graph, "id_map": name, "map_us": us}
        for graph, name, us in (
            ("a", "sort", 900.0),
            ("a", "insert-count-compact", 450.0),
            ("b", "sort", 1.0),
        )
    ]
    record: dict[str, Any] = {
        "rows": rows, "graphs": {"a": {"title": "A (synthetic)"}},
        "environment": {"gpu": {"name": "NVIDIA H100"}},
    }  # fmt: skip
    (tmp_path / "fastgl-table8.json").write_text(json.dumps(record))
    figure = recorded.id_map_times("a")
    assert list(figure.data[0].x) == [900, 450] and list(figure.data[0].y) == ["sort", "insert-count-compact"]
    for words in ("A (synthetic)", "measured on NVIDIA H100", "ratios against insert-count-compact"):
        assert words in figure.layout.title.text
    assert "nothing is shown" in recorded.id_map_times("c").layout.annotations[0].text
    record["environment"] = {"gpu": None}
    (tmp_path / "fastgl-table8.json").write_text(json.dumps(record))
    assert "nothing is shown" in recorded.id_map_times("a").layout.annotations[0].text


def test_the_shipped_times_of_maps_can_be_shown() -> None:
    figure = recorded.id_map_times("products-like")
    assert set(lab.id_maps()) - {"in-sampler"} == set(figure.data[0].y)


def test_looking_does_not_sample_again(graph: lab.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = IdMapExplorer(graph, device="cpu")
    monkeypatch.setattr(lab.NeighborSampler, "sample", None)
    for name in ("step", "count", "slots", "hash", "threads", "printed", "load_percent"):
        explorer.controls[name].value = MOVES[name][0]
        assert explorer.error == ""


@pytest.mark.gpu
def test_on_a_gpu(graph: lab.Graph) -> None:
    explorer = IdMapExplorer(graph, device="cuda", raise_errors=True)
    assert "sampled on the GPU" in explorer.figures["loads"].layout.title.text
    cpu = IdMapExplorer(graph, device="cpu")
    for name in ("table", "contention"):
        assert values(explorer.figures[name]) == values(cpu.figures[name]), name
    namespace: dict[str, Any] = {"g": graph}
    exec(compile(explorer.code, "<handed over>", "exec"), namespace)
    assert list(namespace["shown"]) == list(explorer.figures)
    batch = lab.NeighborSampler(graph.to("cuda"), [3, 3], device="cuda").sample(np.arange(8))
    methods = [name for name in lab.id_maps() if name != "in-sampler"]
    assert list(id_map.map_times(batch, methods, repeats=2)) == methods
