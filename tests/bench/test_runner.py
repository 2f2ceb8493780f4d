"""The command ``bench`` on a machine without a GPU: records, files, tables, exit codes."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnnsample_lab import bench
from gnnsample_lab.bench import record as records
from gnnsample_lab.bench import report, runner
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suites import host, targets_of
from gnnsample_lab.bench.suites.pgsampler import papers
from gnnsample_lab.device.runtime import cuda_available
from tests.bench.made_up import MadeUpSession

TINY = "ddi-like"


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return bench.run("cpu", quick=True, graphs=[TINY])


def test_suites_are_listed_with_a_line_each() -> None:
    wanted = {
        "pgsampler-table1", "pgsampler-table2", "pgsampler-fig8", "pgsampler-fig9", "pgsampler-table3",
        "pgsampler-fig10", "sampling-floor", "whole-process", "fusing", "papers100m-rmat", "cpu", "explorers", "verify",
        "traces", "sanitize", "all", "extraction", "aggregation", "gin-layer",
    }  # fmt: skip
    wanted |= {f"fastgl-table{n}" for n in (1, 2, 3, 4, 6, 7, 8, 9)}
    wanted |= {f"fastgl-fig{n}" for n in (1, 3, 9, 10, 11, 12, 13, 14, "14a", 15, 16)}
    wanted |= {f"gnnlab-table{n}" for n in (1, 2, 3, 4, 5, 6)}
    wanted |= {f"gnnlab-fig{n}" for n in (3, 4, 5, 10, 11, 12, 13, 14, 15, 16, 17)}
    wanted |= {f"nextdoor-table{n}" for n in (1, 2, 3, 4, 5)} | {f"nextdoor-fig{n}" for n in (6, 7, 8, 9, 10)}
    wanted |= {
        "nextdoor-section84",
        "dsp-copies",
        "nextdoor-floor",
        "twins",
        "twin-graphs",
        "ladder",
        "rank-features",
        "path",
        "step",
        "fused-step",
        "inference",
        "step-sectors",
        "pipelines",
        "systems",
    }
    wanted |= {"gnnlab-budget", "nextdoor-released"}
    wanted |= {"gnnlab-designs", "gnnlab-samplers", "pgsampler-fig11", "pgsampler-throughput"} | {
        f"dsp-{what}"
        for what in (
            "accuracy", "bandwidth", "deadlock", "graphs", "memory", "parameters", "pull", "sampling", "threads",
            "utilisation", "volume", "busy",
        )
    }  # fmt: skip
    assert wanted == set(bench.list_suites())
    assert all(about and "\n" not in about for about in bench.list_suites().values())
    for name in wanted - {"all"}:
        assert callable(runner._function(name))


def test_an_unknown_suite_is_named() -> None:
    with pytest.raises(LookupError, match="'fig99'"):
        bench.run("fig99")


def test_a_record_says_where_and_how_it_was_measured(record) -> None:
    assert record["suite"] == "cpu" and record["origin"] == "measured" and record["seconds"] > 0
    at = record["environment"]
    for key in ("date", "commit", "python", "packages", "cpu", "cpu_cores", "gpu", "gnnsample_lab"):
        assert key in at
    assert (at["gpu"] is None) == (not cuda_available())
    assert at["packages"]["numba"] and at["packages"]["numpy"]
    assert record["graphs"][TINY]["is_synthetic"] is True
    assert record["graphs"][TINY]["num_edges"] == 2_135_822
    assert record["settings"]["quick"] is True and record["settings"]["fanouts"] == [10, 10, 10]
    assert record["verification"]["samples_checked"] >= 4
    assert {row["pick"] for row in record["rows"]} == {"floyd", "reservoir"}
    for row in record["rows"]:
        assert row["edges_per_s"] > 0 and row["edges"] > 10 * row["batch_size"] and row["threads"] <= 2
    json.dumps(record, allow_nan=False)


def test_the_cpu_suite_refuses_a_sampler_that_draws_wrong(monkeypatch) -> None:
    real = host.NeighborSampler

    class Wrong(real):  # type: ignore[misc,valid-type]
        def sample(self, seeds, batch_id=0):
            batch = super().sample(seeds, batch_id)
            batch.picks[0].neighbors[0] ^= 1
            return batch

    monkeypatch.setattr(host, "NeighborSampler", Wrong)
    with pytest.raises(RuntimeError, match="wrong neighbors; nothing is timed"):
        bench.run("cpu", quick=True, graphs=[TINY])


def test_the_command_writes_one_json_file_and_prints_a_table(tmp_path: Path, capsys) -> None:
    assert bench.main(["cpu", "--quick", "--graph", TINY, "--out", str(tmp_path / "mine.json")]) == 0
    printed = capsys.readouterr().out
    assert "million edges/s" in printed and f"{TINY} (synthetic)" in printed and "measured on" in printed
    (only,) = tmp_path.iterdir()
    assert only.name == "mine.json" and only.stat().st_mode & 0o777 == 0o644
    assert bench.main(["cpu", "--quick", "--graph", TINY, "--out", str(tmp_path / "folder")]) == 0
    assert [p.name for p in (tmp_path / "folder").iterdir()] == [f"cpu-{TINY}-quick.json"]
    capsys.readouterr()
    assert bench.main(["report", "--out", str(tmp_path)]) == 0
    assert "| million edges/s |" in capsys.readouterr().out


def full_record() -> dict[str, Any]:
    return {"suite": "cpu", "settings": {"quick": False}, "rows": []}


def test_a_quick_run_never_replaces_a_full_record(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(
        runner, "run", lambda name, **_: {**full_record(), "settings": {"quick": True}, "seconds": 0}
    )
    monkeypatch.setattr(report, "text", lambda record: "")
    monkeypatch.setattr(records, "measured_folder", lambda: tmp_path)
    full = records.write_json(full_record(), tmp_path / "cpu.json")
    assert bench.main(["cpu", "--quick"]) == 0
    assert json.loads(full.read_text()) == full_record()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cpu-quick.json", "cpu.json"]
    with pytest.raises(SystemExit):
        bench.main(["cpu", "--quick", "--out", str(full)])
    assert "holds the record of a full run" in capsys.readouterr().err
    assert json.loads(full.read_text()) == full_record()
    assert bench.main(["cpu", "--quick", "--out", str(tmp_path / "cpu-quick.json")]) == 0, "its own, it may"
    assert records.trace_folder(None, True) != records.trace_folder(None)


@pytest.mark.parametrize("where", ["file/below", "file/below.json", "folder.json"])
def test_what_cannot_be_written_is_noticed_before_the_run(
    where: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "folder.json").mkdir()
    monkeypatch.setattr(runner, "run", lambda *_, **__: pytest.fail("it was run"))
    with pytest.raises(SystemExit) as ended:
        bench.main(["cpu", "--out", str(tmp_path / where)])
    said = capsys.readouterr().err.splitlines()[-1]
    assert ended.value.code == 2 and "--out" in said and where in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.json"], "nothing was made"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["cpu", "--graph", "no-such-graph"], "no-such-graph"),
        (["cpu", "--graph", "arxiv-like@big"], "NAME@SCALE"),
        (["cpu", "--graph", "arxiv-like@0"], "must be positive"),
        (["cpu", "--graph", "arxiv-like@nan"], "must be positive"),
        (["cpu", "--graph", "arxiv-like", "--graph", "ogbl-ddi@0.5"], "the scale must be 1 for 'ogbl-ddi'"),
        (["cpu", "--graph", "snap:soc-Epinions1@0.5"], "scale must be 1 for 'snap:soc-Epinions1'"),
        (["dsp-parameters", "--graph", "products-like"], "--graph does not go with dsp-parameters"),
        (["cpu", "path", "verify", "--graph", "rmat"], "--graph does not go with path, verify"),
        (["report", "--graph", "products-like"], "--graph goes with suites that are named"),
        (["--stale", "--graph", "products-like"], "--graph goes with suites that are named"),
        (["all", "--skip", "fig99"], "fig99"),
        (["fig99"], "fig99"),
        (["report", "--out", "no/such/folder"], "no/such/folder"),
        (["all", "--out", "one.json"], "folder"),
        (["cpu", "gnnlab-table2", "--out", "one.json"], "folder"),
        (["cpu", "all"], "all stands alone"),
        (["report", "cpu"], "report stands alone"),
        (["cpu", "--readme", "some.md"], "--readme goes with report"),
        (["cpu", "--skip", "cpu"], "--skip goes with all"),
        (["all", "--part", "2/3"], "--part goes with --within"),
        (["--stale", "--within", "nan"], "above 0 (got 'nan')"),
        (["--stale", "--within", "0"], "above 0 (got '0')"),
        (["--stale", "--within", "soon"], "above 0 (got 'soon')"),
        (["cpu", "--out", ""], "--out: must be a file or a folder"),
    ],
)
def test_bad_arguments_are_named_before_anything_runs(arguments, word, monkeypatch, capsys) -> None:
    monkeypatch.setattr(runner, "run", lambda *_, **__: pytest.fail("it was run"))
    with pytest.raises(SystemExit) as ended:
        bench.main(arguments)
    assert ended.value.code == 2 and word in capsys.readouterr().err.splitlines()[-1]


def asks_for_graphs(function: Callable[..., Any], seen: set[str]) -> bool:
    """Whether a function of ``bench``, or one that it names, reads which graphs a session was given."""
    place = f"{function.__module__}.{function.__qualname__}"
    if place in seen:
        return False
    seen.add(place)
    module, tree = sys.modules[function.__module__], ast.parse(textwrap.dedent(inspect.getsource(function)))
    names = dict(vars(module))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = importlib.import_module("." * node.level + (node.module or ""), module.__package__)
            names |= {each.asname or each.name: getattr(base, each.name, None) for each in node.names}
    for node in ast.walk(tree):
        found = names.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if (node.value.id, node.attr) in (("session", "chosen"), ("session", "graphs")):
                return True
            found = getattr(names.get(node.value.id), node.attr, None)
        found = inspect.unwrap(found) if inspect.isfunction(found) else found
        is_code = (inspect.isfunction(found) or inspect.isclass(found)) and found is not Session
        if is_code and found.__module__.startswith("gnnsample_lab.bench.") and asks_for_graphs(found, seen):
            return True
    return False


@pytest.mark.parametrize("name", runner.SUITES)
def test_a_suite_that_passes_over_the_given_graphs_says_so(name: str) -> None:
    suite = runner.SUITES[name]
    assert suite.takes_graphs == asks_for_graphs(inspect.unwrap(suite.function()), set())


def test_graphs_are_refused_by_a_suite_that_takes_none() -> None:
    with pytest.raises(ValueError, match=r"graphs must suit 'dsp-parameters': no graph can.*got arxiv-like"):
        bench.run("dsp-parameters", graphs=["arxiv-like"])


@pytest.mark.parametrize("name", runner.SUITES)
def test_a_suite_that_runs_on_the_first_graph_alone_says_so(name: str) -> None:
    suite = runner.SUITES[name]
    code = inspect.getsource(inspect.unwrap(suite.function()))
    assert suite.takes_one == bool(re.search(r"\bname = .*\)\[0\]\n", code))


def test_several_graphs_are_refused_by_a_suite_that_takes_one(monkeypatch, capsys) -> None:
    both = ["arxiv-like", "reddit-like"]
    with pytest.raises(
        ValueError, match=r"graphs must suit 'dsp-threads': one graph at a time.*arxiv-like, red"
    ):
        bench.run("dsp-threads", graphs=both)
    given = [word for name in both for word in ("--graph", name)]
    with pytest.raises(SystemExit):
        bench.main(["dsp-threads", *given, "--no-save"])
    assert "does not go with dsp-threads: one graph at a time there" in capsys.readouterr().err
    ran: list[str] = []
    suites = {name: runner.SUITES[name] for name in ("cpu", "dsp-parameters", "dsp-threads")}
    monkeypatch.setattr(runner, "SUITES", suites)
    monkeypatch.setattr(runner, "_run_and_report", lambda name, *_: ran.append(name) or True)
    assert bench.main(["all", *given, "--no-save"]) == 0 and ran == ["cpu"]
    assert "left out, one graph at a time there: dsp-threads" in capsys.readouterr().out


def test_all_suites_on_a_graph_are_those_that_take_graphs(monkeypatch, capsys) -> None:
    ran: list[str] = []
    suites = {name: runner.SUITES[name] for name in ("cpu", "dsp-parameters", "dsp-graphs")}
    monkeypatch.setattr(runner, "SUITES", suites)
    monkeypatch.setattr(runner, "_run_and_report", lambda name, *_: ran.append(name) or True)
    assert bench.main(["all", "--graph", "arxiv-like", "--no-save"]) == 0
    assert ran == ["cpu", "dsp-graphs"] and "left out, no graph can" in capsys.readouterr().out
    assert bench.main(["all", "--no-save"]) == 0 and "dsp-parameters" in ran


def test_a_reader_that_has_gone_ends_the_whole_command(monkeypatch) -> None:
    """It is no failure of a suite: the next one would print into the same broken pipe."""

    def breaks(session: Any) -> dict[str, Any]:
        raise BrokenPipeError

    monkeypatch.setattr(runner, "_function", lambda name: breaks)
    with pytest.raises(BrokenPipeError):
        bench.main(["cpu", "--no-save"])


def test_several_suites_share_a_session(monkeypatch) -> None:
    sessions: list[Any] = []
    monkeypatch.setattr(
        runner, "run", lambda name, session, **_: sessions.append((name, session)) or full_record()
    )
    monkeypatch.setattr(
        runner, "_attempt", lambda name, options, session, may_skip: bool(runner.run(name, session))
    )
    assert bench.main(["gnnlab-table2", "cpu", "gnnlab-table2", "--no-save"]) == 0
    assert [name for name, _ in sessions] == ["gnnlab-table2", "cpu"]
    assert sessions[0][1] is sessions[1][1]


def test_no_save_writes_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(records, "measured_folder", lambda: tmp_path)
    assert bench.main(["cpu", "--quick", "--graph", TINY, "--no-save"]) == 0
    assert not list(tmp_path.iterdir())


def test_results_go_to_the_checkouts_data_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(records, "measured_folder", lambda: tmp_path)
    assert bench.main(["cpu", "--quick", "--graph", TINY]) == 0
    assert [p.name for p in tmp_path.iterdir()] == [f"cpu-{TINY}-quick.json"]


def test_a_host_without_a_gpu_replaces_no_record_of_one_unasked(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(records, "measured_folder", lambda: tmp_path)
    monkeypatch.setattr(runner, "run", lambda name, **_: {**full_record(), "seconds": 0})
    monkeypatch.setattr(report, "text", lambda record: "")
    of_gpu = {**full_record(), "environment": {"gpu": {"name": "NVIDIA H200"}}}
    kept = records.write_json(of_gpu, tmp_path / "cpu.json")
    assert bench.main(["cpu"]) == 0 and json.loads(kept.read_text()) == of_gpu
    assert "was recorded on NVIDIA H200" in capsys.readouterr().out
    assert bench.main(["cpu", "--out", str(kept)]) == 0 and json.loads(kept.read_text()) != of_gpu
    assert bench.main(["cpu"]) == 0, "no record of a GPU any more"
    assert "not written" not in capsys.readouterr().out


def test_a_record_of_another_card_says_so_when_it_is_replaced(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(records, "measured_folder", lambda: tmp_path)
    monkeypatch.setattr(report, "text", lambda record: "")

    def of(gpu: str) -> dict[str, Any]:
        return {**full_record(), "seconds": 0, "environment": {"gpu": {"name": gpu}}}

    kept = records.write_json(of("NVIDIA H200"), tmp_path / "cpu.json")
    for gpu, is_said in (("NVIDIA H200", False), ("NVIDIA L4", True)):
        monkeypatch.setattr(runner, "run", lambda name, gpu=gpu, **_: of(gpu))
        assert bench.main(["cpu"]) == 0
        assert ("was recorded on NVIDIA H200, and is now of NVIDIA L4" in capsys.readouterr().out) is is_said
    assert json.loads(kept.read_text())["environment"]["gpu"]["name"] == "NVIDIA L4"
    kept.write_text("{")
    assert bench.main(["cpu", "--out", str(kept)]) == 0, "what was measured is not lost to a damaged file"


def test_outside_a_checkout_nothing_is_written_unasked(monkeypatch, capsys) -> None:
    monkeypatch.setattr(records, "measured_folder", lambda: None)
    assert bench.main(["cpu", "--quick", "--graph", TINY]) == 0
    assert "not written" in capsys.readouterr().out
    with pytest.raises(ValueError, match="--out FOLDER"):
        records.trace_folder(None)


def test_a_failing_suite_ends_with_a_code_and_the_next_one_still_runs(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    def fails(session: Any) -> dict[str, Any]:
        raise RuntimeError("verification said no")

    real = runner._function
    monkeypatch.setattr(runner, "_function", lambda name: fails if name == "explorers" else real(name))
    monkeypatch.setattr(runner, "SUITES", {name: runner.SUITES[name] for name in ("explorers", "cpu")})
    assert bench.main(["all", "--quick", "--graph", TINY, "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "explorers FAILED: RuntimeError: verification said no" in printed
    assert "1 of 2 suites" in printed
    assert [p.name for p in tmp_path.iterdir()] == [f"cpu-{TINY}-quick.json"]


@pytest.mark.skipif(cuda_available(), reason="there is a GPU")
def test_without_a_gpu_all_skips_and_a_single_suite_fails(tmp_path: Path, capsys) -> None:
    without = [name for name, suite in runner.SUITES.items() if not suite.needs_gpu]
    skip = [word for name in without for word in ("--skip", name)]
    assert bench.main(["all", "--quick", *skip, "--out", str(tmp_path)]) == 0
    assert "sampling-floor SKIPPED" in capsys.readouterr().out
    assert bench.main(["sampling-floor", "--out", str(tmp_path)]) == 1
    assert not list(tmp_path.iterdir())


def test_a_partial_verify_is_not_recorded(tmp_path: Path, capsys) -> None:
    record = {"suite": "verify", "settings": {"complete": False}}
    runner._save(record, tmp_path, None)
    assert not list(tmp_path.iterdir()) and "only a complete run" in capsys.readouterr().out
    runner._save({"suite": "verify", "settings": {"complete": True}}, tmp_path, None)
    assert [p.name for p in tmp_path.iterdir()] == ["sample_hashes.json"]


def test_writing_replaces_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    path = records.write_json({"a": 1}, tmp_path / "x.json")
    with pytest.raises(TypeError):
        records.write_json({"a": object()}, path)
    assert json.loads(path.read_text()) == {"a": 1} and [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_the_commit_comes_from_the_environment_where_there_is_no_git(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(records, "checkout_root", lambda: tmp_path)
    monkeypatch.setenv("LAB_COMMIT", "abc123")
    assert records.commit() == {"commit": "abc123", "modified": None}
    monkeypatch.delenv("LAB_COMMIT")
    assert records.commit()["commit"] is None


def test_a_commit_that_is_none_is_refused_before_anything_runs(monkeypatch) -> None:
    monkeypatch.setenv("LAB_COMMIT", "as of Friday")
    monkeypatch.setattr(runner, "_function", lambda name: pytest.fail("it was run"))
    with pytest.raises(ValueError, match="LAB_COMMIT must be .*got 'as of Friday'"):
        runner.run("cpu")


def test_every_file_of_one_run_can_be_read_back(tmp_path: Path) -> None:
    for name in ("pgsampler-fig8", "pgsampler-fig10", "pgsampler-table3"):
        records.write_json(runner.run(name, session=MadeUpSession()), tmp_path / f"{name}.json")
    found = report.load(tmp_path)
    assert set(found) == {"pgsampler-fig8", "pgsampler-fig10", "pgsampler-table3"}
    for record in found.values():
        assert record["targets"] == [t._asdict() for t in targets_of(record)], "report and run agree"
        assert report.tables(record)


def test_published_values_are_the_papers() -> None:
    """Table I, table III and the numbers of section V-B, typed a second time from the paper."""
    keys = ("workload", "pre_us", "kernel_us", "comp_percent", "mem_percent")
    assert [tuple(row[key] for key in keys) for row in papers.TABLE1] == [
        (2048, 129.0, 13.2, 15.48, 5.97), (21633, 127.7, 92.4, 48.68, 19.49), (179709, 127.0, 662.0, 55.02, 24.79),
    ]  # fmt: skip
    assert sorted(r["speedup"] for r in papers.TABLE3) == [1.15, 1.23, 1.30, 1.36]
    assert (papers.FIGURE8["best"], papers.FIGURE9["best"]) == (1.57, 2.22)
    assert min(papers.FIGURE8["average"].values()) == 1.19


def test_without_a_suite_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main([]) == 0
    assert "ladder" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        runner.main(["no-such-suite"])
    assert "invalid choice: 'no-such-suite'" in capsys.readouterr().err
