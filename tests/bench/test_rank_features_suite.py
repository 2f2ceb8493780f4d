"""The suite of feature rows between ranks: its rows on CPU ranks, and its targets."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.bench import report, runner
from gnnsample_lab.bench.suites.dsp import features, targets


@pytest.mark.slow
def test_rows_on_cpu_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    monkeypatch.setattr(features, "ON_CPU", {"vertices": 300, "rows": 500})
    record = runner.run("rank-features", quick=True)
    rows = record["rows"]
    found = {(row["what"], row["transport"]) for row in rows}
    assert {(features.PEER_COPY, "kernel"), ("remote", "direct"), ("any", "all-to-all")} <= found
    assert {
        ("remote", "all-to-all-unordered"),
        ("remote, marked", "direct"),
        ("hot and cold", "direct"),
    } <= found
    assert all(row["p10"] <= row["us"] <= row["p90"] for row in rows)
    assert {row["asked"] for row in rows if row["what"] == "remote"} == {500}
    assert all(row["rows"] == row["asked"] and row["edges"] == 0 for row in rows if "asked" in row)
    assert "picks a batch" in report.tables(record)[0].header
    assert all(row["us"] > 0 and row["gbps"] > 0 and row["of_copy"] > 0 for row in rows)
    assert {row["row_bytes"] for row in rows if row["what"] != features.PEER_COPY} == {512}
    assert record["verification"]["transports_equal_to_parts"] == 3
    assert record["targets"] == [] and "CPU: no NVLink" in record["settings"]["device"]
    assert "all-to-all-unordered" in report.text(record)


@pytest.mark.parametrize("wrong", [False, True])
def test_wrong_rows_end_the_run(wrong: bool, tmp_path: Path) -> None:
    feat = np.random.default_rng(0).random((40, 3), dtype=np.float32)
    v = np.arange(40)
    graph = lab.Graph.from_edges(v, (v + 1) % 40, 40, feat=feat)
    cut = lab.distributed.partition(graph, 2, "random", use_cache=False)
    folder = lab.distributed.save_parts(graph, cut, tmp_path)

    class Cache:
        def extract(self, ids: Any) -> Any:
            rows = feat[ids]
            rows[7, 2] += wrong
            return rows, None

    with pytest.raises(RuntimeError, match="not the features of part") if wrong else nullcontext():
        features._check(Cache(), folder, v[::-1])


def made_up(what: str, transport: str, gbps: float, row_bytes: int = 512) -> dict[str, Any]:
    return {
        "ranks": 2,
        "what": what,
        "transport": transport,
        "row_bytes": row_bytes,
        "gbps": gbps,
        "of_copy": gbps / 400,
    }


def test_targets() -> None:
    rows = [
        made_up(features.PEER_COPY, "kernel", 400.0, 0), made_up("remote", "direct", 300.0),
        made_up("remote, marked", "direct", 350.0), made_up("remote", "all-to-all", 150.0),
        made_up("remote", "direct", 260.0, 400), made_up("remote, marked", "direct", 280.0, 400),
        made_up("remote", "all-to-all", 160.0, 400), made_up("any", "direct", 10.0), made_up("hot", "direct", 10.0),
    ]  # fmt: skip
    record = {"settings": {"device": "cuda", "ranks": 2, "rows": 10}, "rows": rows}
    assert [(t.measured, t.met) for t in targets.features(record)] == [(0.875, True), (1.625, False)]
    assert targets.features(record | {"settings": {"device": "CPU: no NVLink"}}) == []


def test_targets_name_the_rows_that_a_rank_asked_for() -> None:
    """Records hold them in each row; their settings say with the same name what rows are."""
    rows = [{**made_up("remote, marked", "direct", 350.0), "asked": 300}]
    (found,) = targets.features({"settings": {"device": "cuda", "rows": "the same: in words"}, "rows": rows})
    assert found.where == "2 GPUs, 300 rows a GPU, 512 bytes each"
    del rows[0]["asked"]
    (found,) = targets.features({"settings": {"device": "cuda", "rows": 200}, "rows": rows})
    assert found.where == "2 GPUs, 200 rows a GPU, 512 bytes each", "a record of before"
