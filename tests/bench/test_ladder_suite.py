"""The suite of sampling from a graph in parts: what it refuses to time, its rows, and its targets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.bench import runner
from gnnsample_lab.bench.configurations import test_graph as drawn_graph
from gnnsample_lab.bench.suites.dsp import ladder, targets


def test_checksums_see_every_edge_and_no_order() -> None:
    graph = drawn_graph("multi")
    batch = lab.NeighborSampler(graph, [4, 3], device="cpu").sample(np.arange(40), 5)
    whole = ladder.checksum(batch, graph.indptr)
    slots = tuple(
        replace(p, positions=p.positions - np.repeat(graph.indptr[p.frontier], p.counts)) for p in batch.picks
    )
    assert ladder.checksum(replace(batch, picks=slots), None) == whole
    # Rows in another order, as other ranks and schedules give them.
    first = slots[0]
    order = np.random.default_rng(0).permutation(len(first.frontier))
    rows = np.concatenate([np.arange(first.offsets[i], first.offsets[i + 1]) for i in order])
    turned = replace(
        first, frontier=first.frontier[order], counts=first.counts[order], neighbors=first.neighbors[rows],
        positions=first.positions[rows], known_offsets=None,
    )  # fmt: skip
    assert ladder.checksum(replace(batch, picks=(turned, slots[1])), None) == whole
    for name in ("neighbors", "positions"):
        wrong = getattr(first, name).copy()
        wrong[3] += 1
        assert (
            ladder.checksum(replace(batch, picks=(replace(first, **{name: wrong}), slots[1])), None) != whole
        )


@pytest.mark.slow
def test_rows_on_cpu_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    monkeypatch.setattr(ladder, "SETTINGS", ((40, 3, 2),))
    monkeypatch.setattr(ladder, "BUDGETS", (10.0,))
    monkeypatch.setattr(ladder, "QUICK_PASSES", 1)
    known = lab.distributed.methods()
    monkeypatch.setattr(
        lab.distributed, "methods", lambda: {name: known[name] for name in ("csp", "direct", "direct-cached")}
    )
    record = runner.run("ladder", quick=True, graphs=["arxiv-like@0.01"])
    rows = record["rows"]
    shown = [(row["world"], row["method"]) for row in rows if not row["replace"]]
    assert shown == [
        (1, ladder.WHOLE), (1, "direct"), (2, ladder.REPLICATED), (2, "csp"), (2, "direct"), (2, "direct-cached"),
    ]  # fmt: skip
    assert not any("error" in row for row in rows)
    assert all(row["p10"] <= row["us"] <= row["p90"] and row["rows"] > 0 for row in rows)
    assert record["verification"]["methods_equal_to_whole_graph"] == len(rows)
    by = {(row["world"], row["method"], row["budget_percent"]): row for row in rows if row["replace"]}
    alone, direct = by[1, "direct", None], by[2, "direct", None]
    assert alone["volume"] == 0 and alone["remote_share"] == 0 < direct["remote_share"] < 1
    cached = by[2, "direct-cached", 10.0]
    assert 0 < cached["saved_share"] < 1 and cached["volume"] < direct["volume"]
    assert "x_one" not in rows[0] and direct["x_one"] > 0
    assert record["targets"] == []  # times of CPU ranks say nothing about NVLink


def made_up(**more: Any) -> dict[str, Any]:
    return {
        "graph": "rmat", "partition": "random", "world": 2, "batch_size": 1024, "fanout": 10, "replace": True,
        "us": 40.0, "many_us": 30.0, "x_one": 1.5, "x_many": 1.9, "saved_percent": None, "saved_share": None, **more,
    }  # fmt: skip


def test_targets() -> None:
    rows = [
        made_up(method="direct-cached", saved_percent=80.0, saved_share=0.8),
        made_up(method="direct"), made_up(method="csp", us=600.0, many_us=600.0),
        made_up(method="csp-fixed", us=90.0, many_us=90.0), {"method": "pull", "error": "it failed", "world": 2},
    ]  # fmt: skip
    record = {"settings": {"device": "cuda"}, "rows": rows}
    found = {target.what: (target.measured, target.met) for target in targets.ladder(record)}
    assert list(found.values()) == [(1.9, True), (3.0, True), (600.0, True)]
    assert targets.ladder(record | {"settings": {"device": "CPU: no NVLink"}}) == []
