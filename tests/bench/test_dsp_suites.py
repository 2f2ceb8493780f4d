"""DSP's suites: bytes counted by hand and as ranks count them, rows on CPU ranks, and what is made of the times."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.bench import common, report, runner
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import Unavailable, VerificationError
from gnnsample_lab.bench.suites import SUITES
from gnnsample_lab.bench.suites.dsp import (
    accuracy,
    copies,
    counting,
    crew,
    deadlock,
    gpu_busy,
    memory,
    papers,
    pulling,
    running,
    sampling,
    targets,
    threads,
    utilisation,
    volume,
)
from gnnsample_lab.pipeline.records import EpochRecord, TrainResult
from gnnsample_lab.sampling.neighbors.spec import HopPicks

TINY = "arxiv-like@0.01"


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, pair: Any) -> Session:
    """Two warm ranks, a small draw, and times that are one pass of a few calls."""
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    monkeypatch.setattr(crew, "QUICK_S", 0.01)
    monkeypatch.setattr(crew, "FULL_S", 0.01)
    monkeypatch.setattr(crew, "FANOUTS", (4, 3))
    found = Session(True, [TINY])
    found.kept(("dsp", "ranks"), lambda: pair)
    return found


def run(name: str, session: Session) -> dict[str, Any]:
    record = runner.run(name, session=session)
    assert not [row["error"] for row in record["rows"] if row.get("error")]
    json.dumps(record, allow_nan=False)
    text = report.text(record)
    assert SUITES[name].about in text
    counted = ("dsp-volume", "dsp-copies", "dsp-deadlock", "dsp-parameters", "dsp-graphs")
    assert name in counted or crew.CPU in text, "times of CPU ranks are labelled"
    return record


# ---- figure 1 ---------------------------------------------------------------------------------------------------


def test_bytes_by_hand() -> None:
    # Rank 0 expands vertex 0 (its own, 3 picks) and vertex 5 (of rank 1, a list of 40 that begins at entry 6, 2 picks).
    hop = HopPicks(
        np.array([0, 5], np.int32), np.array([3, 2], np.int32), np.array([1, 2, 3, 7, 8], np.int32),
        np.array([0, 1, 9, 1, 30]),
    )  # fmt: skip
    records = np.zeros((10, 2), np.int64)
    records[0], records[5] = (0, 12), (6, 40)
    owner = np.array([0] * 5 + [1] * 5, np.int8)
    found = counting.counted(counting.Lists(owner, records, 2, 4), 0, [hop], (3,))
    sizes, ids, heads = 8, 4, 4
    assert found["ideal"] == 5 * 4
    assert found["csp"] == sizes + ids + heads + 2 * 4
    assert found["pull"] == sizes + ids + heads + 40 * 4
    # Eight entries a sector: entries 0, 1 and 9 lie in two, 6 + 1 and 6 + 30 in two. And a record for each list.
    assert found["uva"] == 50 * (2 + 1 + 2 + 1)
    assert found["direct"] == 32 * (2 + 1)


def test_bytes_are_those_that_ranks_count(session: Session) -> None:
    session.quick = False
    assert volume.verify(session) == {"methods_counted_as_on_ranks": 7, "ranks": 2}


def test_another_count_is_an_error(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "HEAD_BYTES", 8)
    with pytest.raises(volume.VerificationError, match="pull: ranks moved"):
        volume.verify(session)


def test_volume_from_one_to_eight_ranks(session: Session) -> None:
    record = run("dsp-volume", session)
    rows = {(r["ranks"], r["partition"], r["draws"]): r for r in record["rows"]}
    random = [rows[n, "random", "uniform"] for n in (1, 2, 4, 8)]
    assert random[0]["bytes"]["csp"] == random[0]["bytes"]["pull"] == random[0]["bytes"]["direct"] == 0
    assert random[0]["bytes"]["uva"] > random[0]["bytes"]["ideal"] > 0
    shares = [row["remote_percent"] for row in random]
    assert shares == sorted(shares) and shares[0] == 0 < shares[1]
    if (metis := rows.get((8, "metis", "uniform"))) is not None:
        assert (
            metis["remote_percent"] < shares[-1]
            and metis["over_ideal"]["csp"] < random[-1]["over_ideal"]["csp"]
        )
    assert rows[8, "random", "weighted"]["pull_over_csp"] > 1
    assert all(
        row["rows"] > 0 and row["edges"] == round(row["picks"] / row["ranks"]) for row in rows.values()
    )
    assert rows[1, "random", "uniform"]["balance"] == 1 and rows[8, "random", "uniform"]["balance"] > 1
    assert crew.cut_of(session, TINY, 8).balance["edges"] == pytest.approx(
        rows[8, "random", "uniform"]["balance"], abs=1e-3
    )
    assert metis is None or metis["balance"] <= 1.5
    assert all(t["met"] for t in record["targets"]) and record["targets"]


def test_copies_by_reads_serve_more_than_copies_by_degree(session: Session) -> None:
    record = run("dsp-copies", session)
    assert all(t["met"] for t in record["targets"]) and record["targets"]
    ways = {(row["partition"], row["ranking"]) for row in record["rows"]}
    assert {way for how, way in ways if how == "random"} == set(copies.RANKINGS)
    topology = next(iter(record["graphs"].values()))["num_edges"] * 4
    for ranking in copies.RANKINGS:
        rows = [r for r in record["rows"] if (r["partition"], r["ranking"]) == ("random", ranking)]
        assert [row["budget_percent"] for row in rows] == list(copies.BUDGETS)
        assert [row["saved_share"] for row in rows] == sorted(row["saved_share"] for row in rows)
        for row in rows:
            assert 0 < row["saved_share"] < 1 and row["rows"] > 0 and row["edges"] > 0
            assert row["copied_mb"] * 1e6 <= row["budget_percent"] / 100 * topology
            assert (row["over_degree"] is None) == (ranking != "reads")
    degrees, owner = np.array([4, 2, 2]), np.array([0, 1, 1])
    for wrong in ([0], [1, 1], [1, 2, 2]):  # its own, twice, beyond the budget
        with pytest.raises(VerificationError, match="copies of"):
            copies._verify("rank 0", np.array(wrong), degrees, 4, 16, owner, 0)
    copies._verify("rank 0", np.array([1, 2]), degrees, 4, 16, owner, 0)
    found = {
        by: copies._hottest(
            np.ones((len(crew.FANOUTS), 3)), degrees, np.array([9, 1, 5]), 8, owner, 0, by, 4
        ).tolist()
        for by in ("out-degree", "in-degree")
    }
    assert found == {"out-degree": [2], "in-degree": [1]}


def test_parts_that_were_evened_out_are_even(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suites must not switch the limits off: a part with nearly all edges is no division."""
    cut = crew.cut_of(session, TINY, 2, "streaming")
    assert cut.tolerance == 1.1 and max(cut.balance.values()) <= 1.1 and crew.loosened(TINY, cut) == []
    # A hub's list alone may exceed the mean, whatever the tolerance was.
    loose = SimpleNamespace(
        method="metis", tolerance=1.1, num_parts=8, balance={"edges": 1.999, "vertices": 1.0}
    )
    assert crew.loosened("g", loose) == ["g, 8 parts by metis: the largest has 2.00 of the mean, not 1.1."]
    monkeypatch.setattr(crew, "loosened", lambda name, cut: [f"{cut.method} stretched"] * 2)
    assert "random stretched" in report.text(run("dsp-volume", session))


# ---- figure 11, tables 6 and 7 ----------------------------------------------------------------------------------


def test_pushing_against_pulling(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "QUICK_CROSSING", (3, 60))
    record = run("dsp-pull", session)
    by = {(r["part"], r["system"], r["fanout"]): r for r in record["rows"]}
    pull = by["biased", "pull", 4]
    assert pull["x_bytes"] == pytest.approx(pull["mb"] / by["biased", "dsp", 4]["mb"]) and pull["x_bytes"] > 1
    assert by["stages", "csp-async", 4]["mb"] == by["stages", "dsp", 4]["mb"]
    # One hop with replacement: the cheaper way changes between a few draws and many.
    assert by["fanout", "pull", 3]["x_bytes"] > 1 > by["fanout", "pull", 60]["x_bytes"]
    (at,) = record["crossings"]
    assert 3 < at["bytes"] < 60 and "as many bytes at a fanout of" in report.text(record)
    assert record["verification"]["samples_equal_to_whole_graph"] == len(record["rows"])


def test_where_a_ratio_crosses_one() -> None:
    assert pulling.crossing([(10, 4.0), (40, 0.25)]) == pytest.approx(20)
    assert pulling.crossing([(10, 4.0), (40, 2.0)]) is None and pulling.crossing([]) is None


def test_epochs_by_system(session: Session) -> None:
    session.quick = False
    record = run("dsp-sampling", session)
    rows = {
        (r["part"], r["system"], r["gpus"]): r for r in record["rows"] if r["part"] != "table 6, modelled"
    }
    more = [r for r in record["rows"] if r["part"] == "table 6, modelled"]
    assert {(r["system"], r["gpus"]) for r in more} == {
        (name, 8) for name in (*running.CPU_SYSTEMS, *running.BY_HOST_LINK)
    }, "a line needs two numbers of ranks"
    assert all(r["epoch_s"] > 0 and r["rows"] == rows["table 6", r["system"], 2]["rows"] for r in more)
    names = {*running.SYSTEMS, *sampling.OURS}
    assert set(rows) == {("table 6", name, n) for name in names for n in (1, 2)} | {
        ("table 7", "fastgcn-cpu", 0), ("table 7", "lab, whole graph", 1), ("table 7", "dsp", 2),
        ("table 7", "direct", 2), ("walks", "lab, whole graph", 1), ("walks", "dsp", 2), ("walks", "direct", 2),
    }  # fmt: skip
    alone, pushed, read = (
        rows.pop(("walks", *key)) for key in (("lab, whole graph", 1), ("dsp", 2), ("direct", 2))
    )
    assert pushed["over_dsp"] == 1 and read["over_dsp"] == pytest.approx(read["us"] / pushed["us"], rel=1e-3)
    assert pushed["rows"] == read["rows"] == pushed["batch_size"] and 2 * read["rows"] == alone["rows"]
    assert 0 < read["edges"] <= read["rows"] * sampling.WALK_LENGTH and "epoch_s" not in read
    for one, other in ((pushed, read), (rows["table 7", "dsp", 2], rows["table 7", "direct", 2])):
        assert one["mb"] > 0 and other["mb"] > one["ideal_mb"] > 0, "sectors of 32 bytes for ids of 4"
        assert one["ideal_mb"] == other["ideal_mb"], "the same draws"
    graph = lab.load("arxiv-like", scale=0.01, features=False)
    train = len(graph.splits["train"])
    for (part, _, gpus), row in rows.items():
        ranks = gpus if part == "table 6" else 1  # a layer is drawn for the whole mini-batch
        batches = max(1.0, train / 0.01 / row["batch_size"] / ranks)
        assert row["epoch_s"] == pytest.approx(row["us"] / 1e6 * batches, rel=1e-3)
        assert row["over_dsp"] == pytest.approx(
            row["us"] / rows[part, "dsp", 2 if part == "table 7" else gpus]["us"], rel=1e-3
        )
    assert rows["table 7", "dsp", 2]["by"] == "host"
    for part in ("table 6", "table 7"):
        assert all(row["rows"] > 0 and row["edges"] > 0 for (where, *_), row in rows.items() if where == part)
    picks = {(s, r.get("pick")) for (part, s, _), r in rows.items() if part == "table 6"}
    assert ("pyg-cpu", "floyd") in picks and ("dsp", None) in picks
    assert {pick for s, pick in picks if s == "dgl-cpu"} <= {"floyd", "reservoir"}
    # The same samples, whichever system draws them; a reservoir draws others.
    same = {
        (r["rows"], r["edges"])
        for (part, s, n), r in rows.items()
        if (part, n) == ("table 6", 2) and s != "dgl-cpu"
    }
    assert len(same) == 1
    assert record["targets"] == []  # times of CPU ranks say nothing about NVLink
    for (_, system, gpus), row in rows.items():
        tried = system in running.CPU_SYSTEMS
        assert ("samplers" in row) == tried and (not tried or row["samplers"] in (gpus, 2))


def test_more_gpus_are_modelled_from_those_that_ran() -> None:
    """Cores stay as many, links are each GPU's own, parts lie on a line over the remote share."""
    times = {
        "pyg-cpu": {1: 50, 2: 100, 4: 220}, "dgl-uva": {1: 9, 2: 10, 4: 12}, "dsp": {1: 5, 2: 100, 4: 150},
        "direct": {2: 10}, "csp-fixed": {1: 3},
    }  # fmt: skip
    rows = [
        {"part": "table 6", "system": s, "gpus": n, "us": float(us)}
        for s, found in times.items()
        for n, us in found.items()
    ]
    rows.append({"part": "table 6", "system": "csp-fixed", "gpus": 2, "error": "it failed"})
    found = {row["system"]: row for row in sampling.on_more(rows)}
    assert {name: row["us"] for name, row in found.items()} == pytest.approx(
        {"pyg-cpu": 440, "dgl-uva": 12, "dsp": 100 + (7 / 8 - 1 / 2) / (3 / 4 - 1 / 2) * 50}
    )
    assert all((row["part"], row["gpus"]) == ("table 6, modelled", 8) for row in found.values())


def test_a_layers_time_is_over_that_of_dsp_on_as_many_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where DSP did not run on so many, as on no GPU, over the one on the most."""
    monkeypatch.setattr(crew, "batches_of_epoch", lambda *_: 1.0)
    times = {
        ("fastgcn-cpu", 0): 80.0,
        ("dsp", 2): 10.0,
        ("dsp", 4): 20.0,
        ("direct", 2): 2.0,
        ("direct", 4): 1.0,
    }
    rows = [
        {"part": "table 7", "system": s, "gpus": n, "us": us, "batch_size": 9} for (s, n), us in times.items()
    ]
    measured = sampling._with_epochs("g", None, rows, 1)
    assert [row["over_dsp"] for row in measured] == [4.0, 1.0, 1.0, 0.2, 0.05]
    modelled = sampling._with_epochs("g", None, sampling.on_more(rows), 1)
    assert [(row["part"], row["system"], row["gpus"], row["us"]) for row in modelled] == [
        ("table 7, modelled", "dsp", 8, pytest.approx(25)), ("table 7, modelled", "direct", 8, pytest.approx(0.5)),
    ]  # fmt: skip
    assert modelled[1]["over_dsp"] == pytest.approx(0.02)


def test_mini_batches_of_a_cpu_come_from_as_many_samplers_as_are_quickest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    took = {1: 20.0, 2: 24.0, 4: 64.0, 8: 1.0}
    asked = []
    pools: list[int] = []

    def run(pool: Any, task: dict[str, Any], world: int) -> tuple[dict[str, Any], str]:
        asked.append((world, task["seeds"], task["expected"]))
        return {"p10": took[world] - 1, "us": took[world], "p90": took[world] + 1, "rows": 5, "edges": 7}, ""

    monkeypatch.setattr(sampling.running, "run", run)
    monkeypatch.setattr(sampling.running, "expected", lambda found, task, *of: [len(task["seeds"])])
    tasks = {count: sampling._with_seeds(None, {}, ["others"] * count) for count in (2, 8, 4)}
    mine = {"seeds": ["mine"], "expected": ["of mine"]}
    row, problem = sampling._on_host(pools.append, "pyg-cpu", {1: mine, **tasks}, 1)
    assert problem == "" and row == {"p10": 11.5, "us": 12, "p90": 12.5, "rows": 5, "edges": 7, "samplers": 2}
    assert asked == [(1, ["mine"], ["of mine"]), (2, ["others"] * 2, [2]), (4, ["others"] * 4, [4])]
    assert pools == [1, 2, 4], "four are slower, and nobody asks eight"
    assert sampling._on_host(pools.append, "pyg-cpu", tasks, 2)[0]["us"] == 24
    monkeypatch.setattr(sampling.running, "run", lambda *of: ({}, "other samples"))
    assert sampling._on_host(pools.append, "pyg-cpu", tasks, 2) == ({}, "other samples")


def test_hosts_of_many_cores_try_more_samplers_than_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sampling.crew.samplers() == [1, 2], "CPU ranks alone"
    monkeypatch.setattr(sampling.crew, "on_gpu", lambda: True)
    monkeypatch.setattr(sampling.crew, "gpus", lambda: 4)
    for cores, wanted in ((64, [1, 2, 4, 8, 16, 32]), (16, [1, 2, 4, 8, 16]), (4, [1, 2, 4])):
        monkeypatch.setattr(sampling.crew, "usable_cores", lambda cores=cores: cores)
        assert sampling.crew.samplers() == wanted


@pytest.mark.parametrize("quicker", ["floyd", "reservoir"])
def test_dgl_on_a_cpu_keeps_the_quicker_of_two_verified_draws(
    quicker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = lab.load("arxiv-like", scale=0.01, features=False)
    task: dict[str, Any] = {
        "system": "dgl-cpu", "whole": "", "fanouts": [5, 5], "weighted": False, "replace": False, "seconds": 0,
        "seeds": [[np.arange(8), np.arange(8, 16)]],
    }  # fmt: skip
    task["expected"] = running.expected(graph, task, "cpu")
    task["expected_reservoir"] = running.expected(graph, task, "cpu", "reservoir")
    assert task["expected"] != task["expected_reservoir"]
    times = {"floyd": [[1.0, 2.0, 3.0], [1.0, 4.0, 5.0]], "reservoir": [[1.0, 4.0, 5.0], [1.0, 2.0, 3.0]]}
    left: list[list[float]] = []
    monkeypatch.setattr(running, "whole_graph", lambda folder: graph)
    monkeypatch.setattr(running.crew, "together", lambda rank, value, least=False: value)
    monkeypatch.setattr(running.crew, "timed", lambda *_: left.pop(0))
    rank: Any = SimpleNamespace(index=0, world_size=1, device="cpu")
    left[:] = times[quicker]
    found = running._on_cpu(rank, task)
    assert found["pick"] == quicker and found["times"] == [1.0, 2.0, 3.0] and found["edges"] > 0 and not left
    left[:] = times[quicker]
    assert running._on_cpu(rank, task | {"system": "pyg-cpu"})["pick"] == "floyd" and len(left) == 1
    for name in ("expected", "expected_reservoir"):
        left[:] = times[quicker]
        assert "differs from the whole graph's" in running._on_cpu(rank, task | {name: [[0]]})["error"]


def test_other_walks_are_an_error() -> None:
    drawn = np.arange(12).reshape(4, 3, 1)
    results = [
        {"mine": np.array([0, 2]), "paths": drawn[[0, 2]]},
        {"mine": np.array([1, 3]), "paths": drawn[[1, 3]]},
    ]
    sampling._check_walks("g", "dsp", results, drawn)
    for wrong in (results[:1], [results[0], {**results[1], "paths": drawn[[3, 1]]}]):
        with pytest.raises(volume.VerificationError, match="g, dsp: walks of ranks differ"):
            sampling._check_walks("g", "dsp", wrong, drawn)


def test_notes_say_what_is_scaled(session: Session) -> None:
    scaled = [{"graph": "products-like@0.1", "epoch_s": 1.0}]
    for name in ("dsp-sampling", "dsp-memory"):
        (note, *_) = SUITES[name].notes({"rows": scaled})
        assert "mini-batches are not" in note and "as the original's training vertices" in note
    for name in ("pipelines", "ladder", "dsp-utilisation"):
        (note, *_) = SUITES[name].notes({"rows": scaled})
        assert "mini-batches are not" in note and "original" not in note
    assert SUITES["dsp-sampling"].notes({"rows": [{"graph": "rmat"}]}) == []


def test_papers_seconds_stand_beside_the_same_system_and_gpus() -> None:
    row = {"graph": "products-like@0.1", "part": "table 6", "system": "dsp", "gpus": 2, "paper_gpus": 2, "by": "cuda",
           "batch_size": 1024, "us": 1.0, "epoch_s": 1.0}  # fmt: skip
    layer = row | {"part": "table 7", "paper_gpus": 8, "system": "dsp"}
    suite = SUITES["dsp-sampling"]
    record = {
        "suite": "dsp-sampling", "about": "", "rows": [row, layer], "paper": suite.paper, "graphs": {},
        "settings": {"device": "cuda"},
    }  # fmt: skip
    table = report.tables(record)[0]
    at = table.header.index("paper s")
    assert [cells[at] for cells in table.rows] == ["0.83", "0.12"]
    assert len(papers.TABLE6) == 60 and len(papers.TABLE4) == 60 and len(papers.TABLE1) == 8


# ---- figure 10, table 1, figure 2 -------------------------------------------------------------------------------


def test_memory_divided(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "QUICK_SHARES", (0.0, 0.5, 1.0))
    record = run("dsp-memory", session)
    rows, modelled = record["rows"][:3], record["rows"][3:]
    assert (
        [row["feature_share"] for row in rows]
        == [row["feature_share"] for row in modelled]
        == [0.0, 0.5, 1.0]
    )
    assert record["verification"]["samples_and_rows_equal_to_whole_graph"] == 2 + 2 + 1
    assert rows[0]["cached_percent"] == 0 == rows[0]["spilled_percent"] < rows[2]["spilled_percent"]
    assert rows[0]["cached_percent"] < rows[1]["cached_percent"] < rows[2]["cached_percent"]
    assert all(
        row["topology_mb"] + row["feature_mb"] == pytest.approx(row["budget_mb"], rel=1e-3) for row in rows
    )
    assert rows[1]["us"] == pytest.approx(rows[1]["sample_us"] + rows[1]["load_us"], rel=1e-3)
    assert rows[2]["sample_us"] is None, "on a CPU lists cannot lie elsewhere"
    assert len({(row["rows"], row["edges"]) for row in rows}) == 1, (
        "whatever the division, the same mini-batches"
    )
    around = rows[1]["spread"]["load_us"]
    assert around["p10_us"] <= rows[1]["load_us"] <= around["p90_us"]
    assert rows[1]["modelled_us"] < rows[0]["modelled_us"]
    line = np.polyfit(*([row[key] for row in rows[:2]] for key in ("modelled_us", "us")), 1)
    for row, ran in zip(modelled, rows, strict=True):
        assert (row["gpus"], row["origin"], ran["origin"]) == (8, "modelled", "measured")
        assert row["budget_mb"] == pytest.approx(ran["budget_mb"] / 4, rel=1e-3), "of all GPUs it is the same"
        assert (
            row["cached_percent"] == pytest.approx(ran["cached_percent"], abs=5)
            and row["rows"] > 0 < row["edges"]
        )
        assert not {"sample_us", "load_us", "spread", "error_percent"} & row.keys(), (
            "nothing of it was measured"
        )
        us = float(np.polyval(line, row["modelled_us"]))
        assert row.get("us", us) == pytest.approx(us, rel=1e-3) and ("us" in row) == (
            us > 0 and line[0] > 0
        ) == ("epoch_s" in row)
    assert modelled[0]["host_mb"] > modelled[1]["host_mb"]
    assert all("error_percent" not in row for row in rows), "there were no fewer ranks"


def test_several_numbers_of_gpus_stand_side_by_side(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two and four GPUs of four do; here one rank and two."""
    monkeypatch.setattr(crew, "several", lambda session: [1, 2])
    monkeypatch.setattr(memory, "QUICK_SHARES", (0.5,))
    record = run("dsp-memory", session)
    assert [row["gpus"] for row in record["rows"]] == [1, 2, 8]
    assert [best["gpus"] for best in record["best"]] == [1, 2], "a single division makes no line"
    assert "1 GPUs: measured best" in report.text(record) and "2 GPUs: measured best" in report.text(record)
    one, two, eight = record["rows"]
    assert eight["origin"] == "modelled" and "us" not in eight and eight["modelled_us"] > 0
    assert one["budget_mb"] == pytest.approx(2 * two["budget_mb"], rel=1e-3), "of all GPUs it is the same"
    monkeypatch.setattr(pulling, "QUICK_CROSSING", (3,))
    record = run("dsp-pull", session)
    found = {n: {row["part"] for row in record["rows"] if row["ranks"] == n} for n in (1, 2)}
    assert (
        found == {1: {"biased", "stages"}, 2: {"biased", "stages", "fanout"}}
        and record["settings"]["ranks"] == 2
    )
    assert all(row["x_time"] == 1 for row in record["rows"] if row["system"] == "dsp")


def test_a_line_over_bytes_and_how_far_it_is_off() -> None:
    two = [{"modelled_us": float(x), "us": 2.0 * x + 100} for x in (100, 200, 400)]
    four = [
        {"modelled_us": 100.0, "us": 600.0},
        {"modelled_us": 50.0, "us": 100.0},
        {"modelled_us": 9.0, "error": "no"},
    ]
    by_world = {2: two, 4: four}
    memory.add_errors(by_world)
    assert memory.line_through(two) == pytest.approx([2, 100])
    assert [row.get("error_percent") for row in two] == [None] * 3
    assert [row.get("error_percent") for row in four] == pytest.approx([-50, 100, None])
    assert memory.line_through(two[:1]) is None and memory.line_through([]) is None
    assert memory.line_through([two[0], two[0] | {"us": 5.0}]) is None, "of one number of bytes"
    assert crew.off_notes(four) == [
        "Modelled epochs of runs that could be made, fed with runs on fewer GPUs, are off by -50 to +100 %."
    ]
    assert crew.off_notes(two) == []


def test_how_far_the_schedule_model_of_fewer_gpus_is_off(small: Session) -> None:
    """Of a run's own stage times on twice as many GPUs half the steps are left; a run that took as long is far off."""
    import dataclasses

    run = utilisation.trained(small, TINY, "dsp-seq", 1, 3, 16)
    fed, timeline = crew.on_more_gpus(run, 2)
    assert timeline.gpus == 2 and fed.epoch_s * 0.4 < timeline.epoch_s < fed.epoch_s
    two = dataclasses.replace(run, settings=run.settings, ranks=2)
    assert crew.off_percent(run, two) == pytest.approx(100 * (timeline.epoch_s / fed.epoch_s - 1))
    assert crew.on_more_gpus(run)[1].gpus == crew.MODELLED_GPUS == 8


def test_each_number_of_gpus_has_one_device_beside_it(
    small: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "several", lambda session: [1, 2])
    monkeypatch.setattr(accuracy, "QUICK_EPOCHS", 2)
    record = run("dsp-accuracy", small)
    by = {(r["system"], r["gpus"], r["seeds_of"]): r for r in record["rows"] if r["epoch"] == 1}
    steps = {key: row["steps"] for key, row in by.items()}
    assert set(steps) == {
        ("tsota", 1, 1), ("dsp", 1, 1), ("tsota", 1, 2), ("dsp", 2, 2), ("tsota", 1, 8), ("dsp", 8, 8),
    }  # fmt: skip
    assert steps["tsota", 1, 1] > steps["tsota", 1, 2] == steps["dsp", 2, 2] > steps["dsp", 8, 8]
    off = {key: row.get("error_percent") for key, row in by.items()}
    assert [key for key, error in off.items() if error is not None] == [("dsp", 2, 2)]
    assert off["dsp", 2, 2] > -100 and any(
        note.startswith("Modelled epochs of runs") for note in record["notes"]
    )
    assert "seeds of 1 ranks" in report.text(record) and "seeds of 2 ranks" in report.text(record)


def test_walks_on_each_number_of_gpus(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "several", lambda session: [1, 2])
    rows = [row for row in run("dsp-sampling", session)["rows"] if row["part"] == "walks"]
    alone = [row for row in rows if row["system"] == "lab, whole graph"]
    assert [row["gpus"] for row in rows if row["system"] == "dsp"] == [1, 2]
    assert alone[1]["batch_size"] == 2 * alone[0]["batch_size"], (
        "the roots of all ranks that it stands beside"
    )


def test_bandwidths(session: Session) -> None:
    session.chosen = None
    rows = run("dsp-bandwidth", session)["rows"]
    assert [(row["link"], row["gpus"]) for row in rows] == [("host", 0), ("mapped", 2)], "nothing is modelled"
    assert all(0 < row["p10_gbps"] <= row["gbps"] <= row["p90_gbps"] and row["mb"] > 0 for row in rows)


def test_threads_that_suffice(session: Session) -> None:
    rows = threads.summed_up([
        {"threads": n, "us": us} for n, us in ((256, 100.0), (1024, 30.0), (4096, 10.5), (16384, 10.0))
    ])  # fmt: skip
    assert [row["of_best_percent"] for row in rows] == pytest.approx([10, 100 / 3, 1000 / 10.5, 100])
    assert {row["enough"] for row in rows} == {4096}
    if crew.gpus() == 0:
        with pytest.raises(Unavailable):
            runner.run("dsp-threads", session=session)


def test_targets() -> None:
    pull = {"part": "biased", "system": "pull", "graph": "rmat", "ranks": 2, "x_bytes": 3.0, "x_time": 0.8}
    record: dict[str, Any] = {
        "settings": {"device": "cuda"},
        "rows": [pull, pull | {"part": "stages", "x_bytes": 0.1}],
    }
    assert [(t.measured, t.met) for t in targets.pulling(record)] == [(3.0, True), (0.8, False)]
    uva = {"part": "table 6", "graph": "g", "system": "dgl-uva", "gpus": 2, "over_dsp": 1.5}
    record["rows"] = [uva, uva | {"gpus": 1, "over_dsp": 0.5}, uva | {"system": "direct", "over_dsp": 0.2}]
    assert [(t.measured, t.met) for t in targets.sampling(record)] == [(1.5, True)]
    assert targets.sampling(record | {"settings": {"device": crew.CPU}}) == []


def test_seeds_belong_to_their_rank() -> None:
    graph = SimpleNamespace(splits={"train": np.arange(100)}, num_nodes=200)
    owner = np.arange(200) % 2
    given = crew.seeds_of(graph, 2, 3, 20, owner)
    assert all(
        (owner[seeds] == rank).all() and len(set(seeds)) == 20 for rank in (0, 1) for seeds in given[rank]
    )
    assert not np.array_equal(given[0][0], given[0][1])


# ---- figures 6, 8, 9, 12, tables 2 and 3, and the other papers' rows over GPUs ----------------------------------


@pytest.fixture
def small(session: Session, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A network that trains in milliseconds."""
    monkeypatch.setattr(utilisation, "HIDDEN", 8)
    monkeypatch.setattr(utilisation, "CACHE_RATIO", 0.3)
    return session


def test_the_time_in_which_a_gpu_runs_a_kernel_is_the_median_run_of_the_mean_gpu() -> None:
    def run(*shares: float) -> Any:
        epochs = [
            SimpleNamespace(num_batches=4, tasks=8, total_us=1e6 * s, num_edges=80, rows=40)
            for s in (9, shares[0])
        ]
        return SimpleNamespace(
            system="dsp", epochs=epochs, gpu_busy=shares, settings={"executor": "overlapped"}
        )

    row = gpu_busy.measured("g", 2, [run(0.9, 0.7), run(0.5, 0.3), run(0.6, 0.6)], 30.0)
    assert (row["gpu_busy_percent"], row["over_seq"]) == (pytest.approx(60), pytest.approx(2))
    assert (row["p10_percent"], row["p90_percent"], row["runs"]) == (pytest.approx(44), pytest.approx(76), 3)
    assert row["profiled_epoch_s"] == pytest.approx(0.6)


@pytest.mark.slow
def test_pipeline_measured_and_modelled(small: Session) -> None:
    small.quick = False
    record = run("dsp-utilisation", small)
    measured = {(r["gpus"], r["system"]): r for r in record["rows"] if r["origin"] == "measured"}
    modelled = {(r["gpus"], r["stages"]): r for r in record["rows"] if r["origin"] == "modelled"}
    alone, overlapped = utilisation.ALONE, utilisation.OVERLAPPED
    assert set(measured) == {(n, s) for n in (1, 2) for s in utilisation.SYSTEMS}
    # Of more GPUs than ran nobody knows how stages overlap.
    assert set(modelled) == {*((n, alone) for n in (1, 2, 4, 8)), (1, overlapped), (2, overlapped)}
    assert {f"modelled, {stages}" for stages in (alone, overlapped)} <= set(_cells(record, "origin"))
    for gpus in (1, 2):
        one, other = (measured[gpus, s] for s in utilisation.SYSTEMS)
        assert (one["executor"], other["executor"]) == ("serial", "overlapped") and one["speedup"] == 1
        assert other["speedup"] == pytest.approx(one["epoch_s"] / other["epoch_s"], rel=1e-3)
        for stages, fed in ((alone, one), (overlapped, other)):
            row = modelled[gpus, stages]
            assert row["speedup"] == pytest.approx(one["epoch_s"] / row["epoch_s"], rel=1e-3)
            error = 100 * (row["speedup"] / other["speedup"] - 1)
            assert row["error_percent"] == pytest.approx(error, rel=1e-2, abs=0.1)
            for name in ("rows_per_batch", "picks_per_batch"):
                assert row[name] == fed[name] > 0
            assert row["train_ms"] == pytest.approx(fed["train_ms"], rel=0.05)
        stages = [one[f"{stage}_percent"] for stage in utilisation.STAGES]
        assert 0 < max(stages) <= one["busy_percent"] <= 100.5 and sum(stages) == pytest.approx(
            one["busy_percent"], rel=0.02
        )
        assert one["p10_s"] <= one["epoch_s"] <= one["p90_s"]
    assert modelled[8, alone]["error_percent"] is None and modelled[8, alone]["speedup"] > 0.9
    assert record["settings"]["model_error_percent"] == {
        stages: pytest.approx(max(abs(modelled[n, stages]["error_percent"]) for n in (1, 2)), rel=1e-3)
        for stages in (alone, overlapped)
    }
    assert record["verification"]["losses_equal"] > 0


def _cells(record: dict[str, Any], header: str) -> list[str]:
    table = report.tables(record)[0]
    at = table.header.index(header)
    return [cells[at] for cells in table.rows]


def test_the_epoch_that_counts_is_the_median_one() -> None:
    epochs = [EpochRecord(1, 1, 1, us) for us in (9e6, 3e6, 1e6, 2e6)]  # the first one compiles
    run = TrainResult("x", "gcn", "g", "cpu", "made up", [], [], [], "", epochs)
    assert [epoch.total_us for epoch in common.median_epoch(run).epochs] == [2e6]
    found = common.epoch_seconds(run)
    assert (found["epoch_s"], found["epochs"]) == (2.0, 3)
    assert found["p10_s"] == pytest.approx(1.2) and found["p90_s"] == pytest.approx(2.8)


def test_work_of_layers_counts_seeds_and_no_empty_places() -> None:
    every = [np.array([1, 2]), np.array([3, 4])]
    drawn = [[np.array([2, 5, -1]), np.array([6, -1, -1])], [np.array([5, 6, 7]), np.array([8])]]
    assert sampling.layers_work(every, drawn) == {"rows": 5, "edges": 4}  # 4 and 6 vertices, 3 and 4 drawn


def test_the_slowest_rank_has_the_spread() -> None:
    results = [{"sample": None, "load": [1.0, 2.0, 9.0]}, {"sample": None, "load": [2.0, 3.0, 4.0]}]
    assert memory._slowest(results) == {
        "sample_us": None, "load_us": 3.0, "spread": {"load_us": {"p10_us": 2.0, "p90_us": 4.0}},
    }  # fmt: skip


def test_time_that_stages_cover() -> None:
    event = SimpleNamespace
    events = [
        event(rank=0, stage="sample", start_us=0, end_us=40), event(rank=0, stage="train", start_us=20, end_us=60),
        event(rank=1, stage="train", start_us=10, end_us=30), event(rank=1, stage="train", start_us=30, end_us=50),
        event(rank=1, stage="put", start_us=0, end_us=100),
    ]  # fmt: skip
    found = utilisation.busy(events, 100.0, 2)
    assert found == {"sample_percent": 20, "extract_percent": 0, "train_percent": 40, "busy_percent": 50}


def test_other_losses_are_an_error() -> None:
    one = SimpleNamespace(system="a", losses=[1.0, 0.5, 9.0], batch_ids=[0, 1, 2])
    assert (
        utilisation.same_losses(
            one, SimpleNamespace(system="b", losses=[1.0, 0.5, 1.0], batch_ids=[0, 1, 2]), "g", 2
        )
        == 2
    )
    for losses, ids in (([1.0, 0.6, 9.0], [0, 1, 2]), ([1.0, 0.5, 9.0], [0, 2, 1])):
        with pytest.raises(volume.VerificationError, match="b trains to other losses than a"):
            utilisation.same_losses(one, SimpleNamespace(system="b", losses=losses, batch_ids=ids), "g", 2)


def test_accuracy_over_batches_and_seconds(small: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "EPOCHS", 2)
    small.quick = False
    record = run("dsp-accuracy", small)
    every = {(row["system"], row["seeds_of"], row["epoch"]): row for row in record["rows"]}
    names = (accuracy.BASE, *accuracy.SYSTEMS)
    assert set(every) == {(s, n, e) for s in names for n in (2, 8) for e in (0, 1)}
    by = {(s, e): row for (s, n, e), row in every.items() if n == 2}
    assert {row["origin"] for row in by.values()} == {"measured"}
    for system in accuracy.SYSTEMS:
        first, second = (every[system, 8, epoch] for epoch in (0, 1))
        alone = every[accuracy.BASE, 8, 1]
        assert (first["origin"], first["gpus"], alone["origin"]) == ("modelled", 8, "measured")
        # What eight ranks train to one device says; how long they take, the model.
        assert (second["loss"], second["accuracy"], second["steps"]) == (
            alone["loss"], alone["accuracy"], alone["steps"]
        )  # fmt: skip
        assert second["seconds"] == pytest.approx(2 * first["epoch_s"], rel=1e-3) and "p10_s" not in second
        assert second["rows_per_batch"] == by[system, 1]["rows_per_batch"] and first["epoch_s"] > 0
        assert first["epoch_s"] < by[system, 1]["epoch_s"], "as many slices, on four times as many GPUs"
    said = report.text(record)
    assert "s (modelled) and" in said or all(
        r["seconds"] is None for r in record["converged"] if r["seeds_of"] == 8
    )
    for system in accuracy.SYSTEMS:
        for epoch in (0, 1):
            assert by[system, epoch]["steps"] == by[accuracy.BASE, epoch]["steps"]
            assert by[system, epoch]["rows_per_batch"] > 0 < by[system, epoch]["picks_per_batch"]
            assert by[system, epoch]["loss"] == pytest.approx(by[accuracy.BASE, epoch]["loss"], rel=5e-3)
        assert 0 < by[system, 0]["seconds"] < by[system, 1]["seconds"]
    assert all(row["p10_s"] is None and row["epoch_s"] > 0 for row in by.values()), (
        "one epoch after the first"
    )
    assert "of the best accuracy" in report.text(record) and "183.0" in report.text(record)


def test_when_a_run_has_converged() -> None:
    rows = [
        {"graph": "g", "system": "a", "accuracy": [0.5, 0.8], "seconds": [1.0, 2.0], "steps_by_epoch": [10, 20]},
        {"graph": "g", "system": "b", "accuracy": [0.795], "seconds": [0.5], "steps_by_epoch": [10]},
        {"graph": "g", "system": "c", "accuracy": [0.1], "seconds": [3.0], "steps_by_epoch": [10]},
        {"graph": "other", "system": "a", "accuracy": [0.9], "seconds": [7.0], "steps_by_epoch": [30]},
    ]  # fmt: skip
    rows = [{"seeds_of": 4, **row} for row in rows]
    fewer = {**rows[0], "accuracy": [0.99, 0.99], "seeds_of": 2}  # other mini-batches
    assert accuracy.converged([fewer, *rows])[1:] == accuracy.converged(rows)
    assert [row["seconds"] for row in accuracy.converged(rows)] == [2.0, 0.5, None, 7.0]
    assert [row["steps"] for row in accuracy.converged(rows)] == [20, 10, None, 30]


def test_a_deadlock_that_ends(session: Session, pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlock, "TIMEOUT_S", 0.7)
    session.chosen = None
    session.kept(("dsp", "pair"), lambda: pair)
    rows = {row["order"]: row for row in run("dsp-deadlock", session)["rows"]}
    assert (
        rows["central"]["outcome"] == "all collectives ended" and rows["central"]["waits"] == "nobody waits"
    )
    assert rows["arrival"]["outcome"] == "a deadlock: 0 -> 1 -> 0"
    assert rows["arrival"]["waits"] == "rank 0 in the sampler's for rank 1; rank 1 in the loader's for rank 0"


def test_parameters_and_graphs(session: Session) -> None:
    session.chosen = None
    rows = run("dsp-parameters", session)["rows"]
    assert [row["parameter"] for row in rows] == ["Seed", "Scheme", "Layer", "IsBiased", "FanOut"]
    record = run("dsp-graphs", session)
    assert [row["graph"] for row in record["rows"]] == list(papers.GRAPHS)
    assert record["rows"][0]["average_degree"] == pytest.approx(50.5, abs=0.1) and "56.8" in report.text(
        record
    )
    session.chosen = ("snap:list.txt",)
    with pytest.raises(Unavailable, match="only graphs of the catalogue .*got snap:list.txt"):
        run("dsp-graphs", session)


@pytest.mark.slow
def test_fastgl_over_gpus(session: Session) -> None:
    record = run("fastgl-fig14a", session)
    rows = {(row["system"], row["gpus"]): row for row in record["rows"]}
    more = {row["system"]: row for row in record["rows"] if row["origin"] == "modelled"}
    rows = {key: row for key, row in rows.items() if row["origin"] == "measured"}
    eight = record["settings"]["modelled"]["over_one"]
    assert {name: row["over_one"] for name, row in more.items()} == pytest.approx(eight, rel=1e-3)
    for system, row in more.items():
        one, two = (rows[system, gpus] for gpus in (1, 2))
        assert row["gpus"] == 8 and row["over_one"] == pytest.approx(
            one["epoch_s"] / row["epoch_s"], rel=1e-3
        )
        assert row["over_dgl"] == pytest.approx(more["dgl"]["epoch_s"] / row["epoch_s"], rel=1e-3)
        assert row["rows_per_batch"] == two["rows_per_batch"] and row["train_ms"] == two["train_ms"]
        assert not {"p10_s", "p90_s", "error_percent"} & row.keys()
        assert one["error_percent"] is None and two["error_percent"] > -100
    assert "Modelled epochs of runs that could be made" in record["notes"][1]
    assert list(eight) == ["dgl", "fastgl", "lab"] and all(gain > 0 for gain in eight.values())
    assert record["notes"][0].startswith("Modelled, 8 GPUs over one: dgl ")
    assert set(rows) == {(s, n) for s in ("dgl", "fastgl", "lab") for n in (1, 2)}
    for (system, gpus), row in rows.items():
        assert row["over_one"] == pytest.approx(rows[system, 1]["epoch_s"] / row["epoch_s"], rel=1e-3)
        assert row["over_dgl"] == pytest.approx(rows["dgl", gpus]["epoch_s"] / row["epoch_s"], rel=1e-3)
        assert row["p10_s"] <= row["epoch_s"] <= row["p90_s"] and row["rows_per_batch"] > 0
        assert gpus == 1 or row["steps"] == -(-rows[system, 1]["steps"] // 2)


def test_nextdoor_over_gpus(session: Session) -> None:
    session.chosen = ("ppi-like@0.01",)
    record = run("nextdoor-fig10", session)
    rows = {(row["app"], row["index"], row["gpus"]): row for row in record["rows"]}
    forms = [(app, index) for app in ("DeepWalk", "k-hop") for index in ("published", "auto")]
    assert set(rows) == {(*form, n) for form in forms for n in (1, 2)}
    for (*form, gpus), row in rows.items():  # each over itself on one GPU
        assert row["over_one"] == pytest.approx(rows[*form, 1]["ms"] / row["ms"], rel=1e-3)
        assert row["of_linear_percent"] == pytest.approx(100 / gpus * row["over_one"], rel=1e-3)
    assert record["verification"]["samples_equal_to_one_gpu"] == 8 * 500
    for (_, _, gpus), row in rows.items():
        assert row["edges"] == round(row["vertices"] / gpus) and row["rows"] == row["num_samples"] // gpus
    assert crew.on_gpu() or "On the CPU an index chooses nothing" in record["notes"][-1]
    for app, index in forms:
        one, two = rows[app, index, 1], rows[app, index, 2]
        steps = {"DeepWalk": 100, "k-hop": 2}[app]
        assert (
            one["vertices"] == two["vertices"] > one["num_samples"] and one["steps"] == two["steps"] == steps
        )
        assert one["p10"] <= one["ms"] <= one["p90"]


# ---- on GPUs ----------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name",
    [
        "dsp-volume",
        "dsp-copies",
        "dsp-pull",
        "dsp-sampling",
        "dsp-bandwidth",
        "dsp-threads",
        "dsp-memory",
        "dsp-utilisation",
        "dsp-busy",
        "dsp-accuracy",
        "fastgl-fig14a",
        "nextdoor-fig10",
    ],
)
def test_suites_on_gpus(name: str, gpu_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "QUICK_S", 0.02)
    monkeypatch.setattr(memory, "QUICK_SHARES", (0.0, 0.5, 1.0))
    graph = "ppi-like@0.2" if name.startswith("nextdoor") else "arxiv-like@0.2"
    found = Session(True, [graph] if SUITES[name].takes_graphs else None)
    found.kept(("dsp", "ranks"), lambda: gpu_world)
    record = runner.run(name, session=found)
    assert record["rows"] and not [row for row in record["rows"] if row.get("error")]
    if name == "dsp-memory":
        assert any(row["spilled_percent"] > 0 and row["sample_us"] for row in record["rows"])
    if name == "dsp-bandwidth":
        by = {(row["link"], row["gpus"]): row["gbps"] for row in record["rows"]}
        assert by["gpu", 1] > by["pcie", 1] > 0
        assert gpu_world.ranks < 2 or by["nvlink", 2] > 0
