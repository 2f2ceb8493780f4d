"""The suite of layer-wise inference: a tiny run on the CPU, what its rows say, its bound and its targets."""

from __future__ import annotations

import json
from typing import Any

import pytest

import gnnsample_lab as lab
from gnnsample_lab.bench import report, runner
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites import SUITES
from gnnsample_lab.bench.suites.path import inference
from gnnsample_lab.bench.suites.path import targets as wanted
from gnnsample_lab.compute.inference.infer import LayerRun
from gnnsample_lab.compute.inference.plan import Widths

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_DEVICE", "cpu")
        patch.setattr(inference, "PASSES", 1)
        patch.setattr(inference, "HIDDEN", 16)
        return runner.run("inference", session=Session(True, ["arxiv-like@0.01"]))


@pytest.mark.slow
def test_a_run_on_the_cpu(record: dict[str, Any]) -> None:
    rows = record["rows"]
    assert [row["part"] for row in rows] == ["layer"] * 3 + ["whole"]
    assert [row["columns"] for row in rows[:3]] == ["128, 16, 16", "16, 16, 16", "16, 16, 40"]
    assert record["verification"] == {"inferences_equal_to_the_whole_graph_as_one_mini_batch": 2}
    whole = rows[-1]
    assert whole["x_sampled"] == pytest.approx(whole["sampled_us"] / whole["us"], rel=1e-3)
    assert 0 < whole["accuracy"] <= 1 and abs(whole["accuracy"] - whole["sampled_accuracy"]) < 0.2
    assert record["settings"]["l2"].startswith("as left: never flushed")
    assert {row["l2"] for row in record["rows"]} == {"as left"}
    json.dumps(record, allow_nan=False)
    assert SUITES["inference"].about in report.text(record)
    assert wanted.inference(record) == []


def test_a_wrong_inference_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    from gnnsample_lab.compute import layers

    monkeypatch.setenv("LAB_DEVICE", "cpu")
    update = layers.SAGEConv.update
    # Training and the whole graph as one mini-batch give no lengths.
    monkeypatch.setattr(
        layers.SAGEConv, "update", lambda s, r, t, n, m: update(s, r, t, n, m) * (1 if n is None else 1.01)
    )
    with pytest.raises(VerificationError, match="resident inference differs by"):
        inference.inference(Session(True, ["arxiv-like@0.01"]))


def test_a_layer_below_its_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    monkeypatch.setattr(inference, "PASSES", 1)
    graph = lab.load("arxiv-like", scale=0.01, features=True)
    network = lab.make_model("sage", graph.feat.shape[1], 16, graph.num_classes, num_layers=2)
    speeds = {"dram_gbps": 1e9, "l2_gbps": 1e9, "fp32_gflops": 1e9}
    assert len(inference._layers("g", graph, "sage", network, speeds)) == 2
    with pytest.raises(VerificationError, match="g, sage, layer 0: measured .* below the bound"):
        inference._layers("g", graph, "sage", network, speeds | {"dram_gbps": 1e-9})


def test_least_bytes_and_targets() -> None:
    from gnnsample_lab.compute.layers import SAGEConv

    class Sizes:
        num_nodes, num_edges = 10, 100

    assert inference.least_bytes(Sizes, LayerRun(None, Widths(8, 4, 4, 2))) == 10 * 4 * (8 + 2) + 400 + 88
    assert inference.map_flops(Sizes, SAGEConv(8, 4)) == 10 * 2 * (32 + 32)
    place = {"graph": "products-like", "model": "sage"}
    made = {
        "settings": {"device": "cuda"},
        "rows": [
            {**place, "part": "layer", "layer": 0, "share": 0.6}, {**place, "part": "layer", "layer": 1, "share": 0.4},
            {**place, "part": "streamed", "memory": "page-locked", "of_copy": 0.9},
            {**place, "part": "streamed", "memory": "pageable", "of_copy": 0.1},
            {**place, "part": "whole", "x_sampled": 25.0},
            {**place, "graph": "arxiv-like", "part": "whole", "x_sampled": 2.0},
        ],
    }  # fmt: skip
    assert [(t.measured, t.met) for t in wanted.inference(made)] == [(0.4, False), (25.0, True), (0.1, False)]
