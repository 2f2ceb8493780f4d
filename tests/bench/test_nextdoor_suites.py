"""NextDoor's suites: run on the CPU on a tiny graph, counted by hand, and the targets on made-up times."""

from __future__ import annotations

import copy
import json
import sys
import time
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.bench import peers, profiler, report, runner, schema, timing
from gnnsample_lab.bench.record import scaled, states
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites import SUITES, targets_of
from gnnsample_lab.bench.suites.nextdoor import by_graph, papers, released, runs, targets
from gnnsample_lab.bench.suites.nextdoor import cases as settings
from gnnsample_lab.bench.suites.nextdoor import memory as nextdoor_memory
from gnnsample_lab.bench.suites.nextdoor import profile as nextdoor_profile
from gnnsample_lab.bench.suites.nextdoor import tables as nextdoor
from gnnsample_lab.bench.suites.nextdoor import training as nextdoor_training
from gnnsample_lab.device.runtime import cuda_available
from gnnsample_lab.sampling.engine.results.result import AppResult
from gnnsample_lab.sampling.engine.shape import StepShape

TINY = "ppi-like@0.01"
NAMES = tuple(name for name in runner.list_suites() if name.startswith("nextdoor-"))


class AnySession(Session):
    """Runs suites that time something where there is no GPU: what they compute from times is what is tested."""

    def require_gpu(self, suite: str) -> None:
        return None


@pytest.fixture
def session(monkeypatch) -> AnySession:
    monkeypatch.setattr(runs, "_BUDGET_S", 0.0)
    monkeypatch.setattr(runs, "CPU_LEAST_S", 0.0)
    monkeypatch.setattr(settings, "QUICK_CASES", ("DeepWalk", "k-hop", "FastGCN", "ClusterGCN"))
    short = {"DeepWalk": lambda: lab.apps.DeepWalk(6), "PPR": lambda: lab.apps.PPR(0.5)}
    cases = {name: case._replace(make=short.get(name, case.make)) for name, case in settings.CASES.items()}
    monkeypatch.setattr(settings, "CASES", cases)
    return AnySession(True, [TINY])


def target(found: list[Any], words: str) -> Any:
    (one,) = [t for t in found if words in t.what]
    return one


def test_every_suite_has_columns_and_says_what_the_paper_has() -> None:
    assert {f"nextdoor-{part}" for part in (
        "table1", "table2", "table3", "fig6", "fig7", "fig8", "fig9", "fig10", "table4", "section84", "table5", "floor",
        "released",
    )} == set(NAMES)  # fmt: skip
    for name in NAMES:
        assert SUITES[name].columns
        if name not in ("nextdoor-floor", "nextdoor-released"):
            assert "NextDoor" in SUITES[name].paper["source"]
    assert SUITES["nextdoor-section84"].paper["source"].endswith("section 8.4")
    assert SUITES["nextdoor-fig7"].paper["source"].endswith("figure 7")
    paper = {row["kernel"]: row for row in papers.TABLE2}
    for draws in (1, 31, 32, 1024, 1025):
        row = paper[nextdoor.paper_kernel(draws)]
        assert row["least"] <= draws <= (row["most"] or draws)


def test_eleven_applications_at_the_papers_settings() -> None:
    assert len(settings.CASES) == 11 + len(settings.MORE_FANOUTS) and set(settings.WALKS) == {
        n for n, c in settings.CASES.items() if c.kind == "walk"
    }
    made = {name: case.make() for name, case in settings.CASES.items()}
    assert (
        made["DeepWalk"].length
        == made["node2vec"].length
        == made["MultiRW"].length
        == made["MultiRW"].num_roots
        == 100
    )
    assert (made["node2vec"].p, made["node2vec"].q, made["PPR"].termination) == (2.0, 0.5, 0.01)
    assert made["k-hop"].fanouts == (25, 10) and made["ClusterGCN"].clusters_per_sample == 20
    assert (made["Layer"].final_size, made["Layer"].step_size) == (2000, 1000)
    for name in ("FastGCN", "LADIES", "MVS"):
        assert (made[name].batch_size, made[name].step_size) == (64, 64)


def test_table3_counts_the_graph(session) -> None:
    (row,) = runner.run("nextdoor-table3", session=session)["rows"]
    assert (row["num_nodes"], row["scale"]) == (500, 0.01)
    # Degrees are those of the whole twin, as far as 500 vertices tell.
    assert row["average_degree"] == pytest.approx(28, rel=0.02)


def test_weights_are_the_papers(session) -> None:
    weight = settings.graph(session, TINY).edge_weight
    assert weight.min() >= 1 and weight.max() < 5 and np.unique(weight).size > 100


def test_figure7_compares_equal_samples_and_scales_the_cpu_by_vertices(session) -> None:
    record = runner.run("nextdoor-fig7", session=session)
    rows = {row["app"]: row for row in record["rows"]}
    assert set(rows) == {"DeepWalk", "k-hop", "FastGCN", "ClusterGCN"}
    for row in rows.values():
        assert row["over_sample"] == pytest.approx(row["ms"]["sample"] / row["ms"]["transit"], rel=1e-3)
        assert row["over_vanilla"] == pytest.approx(
            row["ms"]["transit-vanilla"] / row["ms"]["transit"], rel=1e-3
        )
        assert row["published_over_sample"] == pytest.approx(
            row["ms"]["sample"] / row["published_ms"], rel=1e-3
        )
        assert row["over_cpu_core"] == pytest.approx(
            row["vertices_per_s"] / row["cpu_core_vertices_per_s"], rel=1e-3
        )
        assert row["vertices_per_s"] == pytest.approx(row["vertices"] / row["ms"]["transit"] * 1e3, rel=1e-3)
    assert rows["DeepWalk"]["vertices"] == 500 * 6 and rows["DeepWalk"]["num_samples"] == 500
    assert rows["k-hop"]["vertices"] == 500 * (25 + 250)
    assert record["verification"]["samples_equal_to_cpu_walker"] > 500
    assert record["verification"].get("results_equal_across_parallelisms", 0) == 4 * 3 * cuda_available()
    assert cuda_available() or record["targets"] == [], "times without a GPU meet and miss no target"
    assert "over one core" in report.text(record)
    json.dumps(record, allow_nan=False)


def test_figure7_sorts_on_both_sides(session, monkeypatch) -> None:
    """NextDoor finds vertices that repeat by sorting; over a baseline with our hash table it would look slower."""
    made_up = {
        ("transit", "published"): 4.0,
        ("sample", "published"): 8.0,
        ("transit-vanilla", "published"): 12.0,
    }
    real = runs.Study.measure

    def measure(study: runs.Study, parallelism: str = "transit", index: str = "auto") -> dict[str, Any]:
        return {**real(study, parallelism, index), "ms": made_up.get((parallelism, index), 1.0)}

    monkeypatch.setattr(runs.Study, "measure", measure)
    monkeypatch.setattr(settings, "cases", lambda *_: ("LADIES", "k-hop"))
    fresh = type(session)(True, [TINY])
    sorts, does_not = runner.run("nextdoor-fig7", session=fresh)["rows"]
    assert sorts["sorted_ms"] == {"sample": 8.0, "transit-vanilla": 12.0} and does_not["sorted_ms"] is None
    assert (sorts["published_over_sample"], sorts["published_over_vanilla"]) == (2.0, 3.0)
    assert (does_not["published_over_sample"], does_not["published_over_vanilla"]) == (0.25, 0.25)
    assert sorts["over_sample"] == sorts["over_vanilla"] == 1.0, "ours over ours"


def test_figure9_and_section84(session) -> None:
    record = runner.run("nextdoor-fig9", session=session)
    assert {row["app"] for row in record["rows"]} == {"DeepWalk", "k-hop"}
    row = record["rows"][0]
    assert row["over_frontier"] == pytest.approx(row["ms"]["frontier"] / row["ms"]["transit"], rel=1e-3)
    record = runner.run("nextdoor-section84", session=session)
    assert {(row["app"], row["index"], row["fraction"]) for row in record["rows"]} == {
        (app, index, part)
        for app in ("DeepWalk", "k-hop")
        for index in ("published", "auto")
        for part in (1.0, 0.25)
    }
    in_memory = {(row["app"], row["index"]): row for row in record["rows"] if row["fraction"] == 1}
    for row in record["rows"]:
        assert row["samples_per_s"] == pytest.approx(row["num_samples"] / row["seconds"], rel=1e-3)
        whole = in_memory[row["app"], row["index"]]["samples_per_s"]
        assert row["of_in_memory"] == pytest.approx(row["samples_per_s"] / whole, rel=1e-3)
        assert row["graph_bytes"] is None or row["graph_bytes"] < row["list_bytes"]
    assert record["verification"]["results_equal_to_in_memory"] == 8
    assert "samples/s" in report.text(record)


def test_released_kernels_stand_beside_rows_of_the_twin_that_they_ran_on(session, monkeypatch) -> None:
    """On the twin before version 3; a ratio of two graphs or of two cards is none."""
    monkeypatch.setattr(released._PPR, "steps", lambda self: 4)
    monkeypatch.setattr(lab.apps.DeepWalk, "steps", lambda self: 4)
    monkeypatch.setattr(lab.apps.Node2Vec, "steps", lambda self: 4)
    before = settings.graph(session, TINY)
    record = runner.run("nextdoor-released", session=session)
    assert record["graphs"][TINY]["version"] == 2 != before.version
    assert [row["app"] for row in record["rows"]] == [told["app"] for told in peers.NEXTDOOR]
    assert all(row["published_ms"] > 0 and "released_over_published" not in row for row in record["rows"])
    assert record["targets"] == [] and "released LB ms" in report.text(record)
    assert settings.graph(session, TINY).version == before.version, "other suites go on with today's twin"
    assert not [key for key in session._kept if key[:2] == ("nextdoor study", TINY)]
    monkeypatch.setattr(released.common, "device", lambda: "cuda")
    assert released._is_theirs("orkut-like") and not released._is_theirs(TINY)


def test_released_kernels_are_compared_on_their_card_alone() -> None:
    row = {"graph": "orkut-like", "device": "cuda", "app": "k-hop", "released_over_published": 0.9}
    record = {"rows": [row], "environment": {"gpu": {"name": "NVIDIA H100 80GB HBM3"}}}
    assert [found.card for found in targets.released(record)] == ["H200"], "a limit of that card"
    record["environment"]["gpu"]["name"] = "NVIDIA H200"
    (found,) = targets.released(record)
    assert (found.measured, found.met, found.card) == (0.9, False, "")


def test_what_is_not_streamed_as_published_is_said(session, monkeypatch) -> None:
    """Neither what NextDoor's form would take too long for, nor what reads lists across the bus."""
    monkeypatch.setattr(settings, "QUICK_CASES", ("DeepWalk", "k-hop", "Layer"))
    edges = settings.graph(session, TINY).num_edges
    # The two steps of k-hop copy 8 bytes an edge; DeepWalk's six steps more, with weights.
    monkeypatch.setattr(nextdoor_memory, "_MOST_COPIED", 40.0 * edges)
    record = runner.run("nextdoor-section84", session=session)
    streamed = {(row["app"], row["index"]) for row in record["rows"] if row["fraction"] < 1}
    apps = ("DeepWalk", "k-hop", "Layer")
    assert streamed == {("k-hop", "published"), *((app, "auto") for app in apps)}
    notes = [note for note in record["notes"] if "index published" in note]
    assert len(notes) == 2 and "Layer" in notes[0] and "across the bus" in notes[0]
    assert "DeepWalk" in notes[1] and "6 steps would copy" in notes[1]


def test_what_an_application_reads_of_an_edge() -> None:
    graph = lab.load(scaled(TINY)[0], scale=0.01, weighted=True, features=False)
    edges = graph.num_edges * graph.indices.dtype.itemsize
    assert nextdoor_memory.list_bytes(graph, frozenset({"lab_edge"})) == edges
    assert nextdoor_memory.list_bytes(graph, frozenset({"lab_edge_weight"})) == edges + 4 * graph.num_edges
    assert (
        nextdoor_memory.list_bytes(graph, frozenset({"lab_neighbor_search"})) == edges + 8 * graph.num_edges
    )
    assert nextdoor_memory.list_bytes(graph, frozenset({"lab_table_search", "lab_max_weight"})) == edges
    assert (
        nextdoor_memory.streamed_bytes([{"copied_bytes": 5, "part_bytes": 9}, {}, {"copied_bytes": 2}]) == 7
    )


def test_other_samples_are_not_timed(session, monkeypatch) -> None:
    study = runs.study(session, TINY, "k-hop")
    study.measure("sample")
    real = runs.Study.ready

    def other(self: runs.Study, parallelism: str, index: str = "auto", **options: Any) -> Any:
        def run() -> AppResult:
            found = copy.deepcopy(real(self, parallelism, index)())
            found.steps[1][3, 4] = (found.steps[1][3, 4] + 1) % 500
            return found

        return run

    monkeypatch.setattr(runs.Study, "ready", other)
    with pytest.raises(VerificationError, match="other samples than sample's"):
        study.measure("transit")
    with pytest.raises(VerificationError, match="step 1 differs from the CPU walker's"):
        runs.Study(session, TINY, "k-hop").measure("sample")


def test_samples_are_halved_until_they_fit(session, monkeypatch) -> None:
    study = runs.Study(session, TINY, "DeepWalk")
    study.num_samples, study.__dict__["_all_roots"] = 4096, np.arange(4096) % 500
    real = runs.Study.ready

    def small(self: runs.Study, *args: Any, **options: Any) -> Any:
        if self.num_samples > 1024:
            raise MemoryError
        return real(self, *args, **options)

    monkeypatch.setattr(runs.Study, "ready", small)
    assert study.measure("sample")["num_samples"] == 1024 == study.row()["num_samples"]


def test_a_schedule_is_condensed_by_kind() -> None:
    steps = [
        {"kernel": "walk", "index": None, "step": 0, "index_us": 1.0},
        {"kernel": "walk", "index": None, "step": 1, "index_us": 2.0},
        {"kernel": "sample", "index": None, "entries": [1, 2]},
        {"kernel": "walk", "index": None, "step": 3, "index_us": 4.0},
    ]  # fmt: skip
    assert nextdoor.condensed(steps) == [
        {"steps": 2, "kernel": "walk", "index": None, "index_us": 3.0},
        {"steps": 1, "kernel": "sample", "index": None},
        {"steps": 1, "kernel": "walk", "index": None, "index_us": 4.0},
    ]


# ---- table 2, figure 8, table 4 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("draws", [1, 32, 8192])
def test_table2_gives_every_transit_its_draws(draws) -> None:
    roots = nextdoor.table2_roots(100, draws, 1 << 12)
    vertices, counts = np.unique(roots, return_counts=True)
    assert set(counts.tolist()) == {draws} and len(vertices) == max(1, min(100, 4096 // draws))


def test_sectors_counted_by_hand(session, monkeypatch) -> None:
    # Vertex 0 has in-neighbours 1 to 40, vertex 1 has 0 and 2; ids take 4 bytes, 8 to a sector.
    graph = lab.Graph.from_edges([*range(1, 41), 0, 2], [0] * 40 + [1, 1], 41)
    study = runs.Study.__new__(runs.Study)
    study.host, study.case, study.app = graph, "k-hop", lab.apps.KHop((2,))
    roots, drawn = np.array([[0], [1], [0]]), np.array([[1, 40], [0, 2], [2, -1]])
    result = AppResult(graph, study.app, roots, [drawn], [StepShape(1, 2, 2, False)], "sample", "cpu")
    monkeypatch.setattr(runs.Study, "ready", lambda *_: lambda: result)
    found = nextdoor_profile.counted(study)
    # One warp: bounds of both vertices in one sector; entries 0, 39, 40, 41, 1 in sectors 0, 4, 5.
    assert found["sample/auto"]["reads"] == 1 + 3
    # By transit: bounds of each; sectors 0 and 4 of vertex 0, sector 5 of vertex 1; three pairs of index.
    index = 3 * 8 * 3 / 32
    assert found["transit/published"] == {"reads": 2 + 3 + index, "index_reads": index}


def test_only_lists_are_counted(session) -> None:
    study = runs.Study(session, TINY, "FastGCN")
    with pytest.raises(ValueError, match="nothing to count"):
        nextdoor_profile.counted(study)


def _line(number: int, kernel: str, metric: str, value: str) -> str:
    place = '"1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","x"'
    return f'"{number}","1","python","host","{kernel}",{place},"{metric}","u","{value}"'


def test_profilers_numbers_are_summed_by_run() -> None:
    head = (
        '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
        '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
    )
    kernels = [
        ("lab_mark_0__sample__auto", (0, 0, 0, 1, 9)), ("sample", (1000, 50, 10, 5, 10)),
        ("sample", (500, 100, 30, 9, 10)), ("lab_end_mark(int *)", (0, 0, 0, 1, 9)), ("between", (9, 9, 9, 9, 9)),
        ("lab_mark_0__transit_vanilla__always(int *)", (0, 0, 0, 1, 9)), ("digit_histogram", (200, 100, 0, 1, 2)),
        ("transit_vanilla", (300, 80, 10, 3, 4)), ("lab_end_mark", (0, 0, 0, 1, 9)),
        ("lab_mark_12__sample__auto", (0, 0, 0, 1, 9)), ("sample", (70, 50, 10, 5, 10)),
        ("lab_end_mark", (0, 0, 0, 1, 9)), ("lab_mark_12__transit__auto", (0, 0, 0, 1, 9)),
        ("cut off before its end", (70, 50, 10, 5, 10)),
    ]  # fmt: skip
    lines = ["==PROF== connected", head]
    for number, (kernel, values) in enumerate(kernels):
        for metric, value in zip(nextdoor_profile.METRICS, values, strict=True):
            lines.append(_line(number, kernel, metric, f"{value:,}"))
    by_application = nextdoor_profile.parse("\n".join(lines))
    assert set(by_application) == {0, 12} and set(by_application[12]) == {"sample/auto"}
    assert by_application[12]["sample/auto"]["reads"] == 70
    found = by_application[0]
    assert found["sample/auto"] == {
        "reads": 1500, "index_reads": 0, "kernels": 2, "store_percent": 87.5, "sm_percent": 70,
    }  # fmt: skip
    assert found["transit-vanilla/always"]["index_reads"] == 200
    assert found["transit-vanilla/always"]["reads"] == 500
    assert nextdoor_profile.parse("==ERROR== no permission") == {}


NCU = """
import csv, json, os, pathlib, subprocess, sys, time
work = json.loads(pathlib.Path(sys.argv[-1], "work.json").read_text())
metrics = sys.argv[sys.argv.index("--metrics") + 1].split(",")
print("==PROF== connected")
left = RUNS
ALSO
table = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL)
table.writerow(["ID", "Kernel Name", "Metric Name", "Metric Value"])
number = 0
for i, case in enumerate(work["cases"]):
    assert pathlib.Path(sys.argv[-1], f"roots{i}.npy").exists()
    for parallelism, index in work["runs"]:
        left -= 1
        if left < 0:
            break
        for kernel in (f"lab_mark_{i}__{parallelism.replace('-', '_')}__{index}", "draw", "lab_end_mark"):
            if left or kernel != "lab_end_mark":
                for metric in metrics:
                    table.writerow([number, kernel, metric, 10 * (i + 1)])
                number += 1
sys.stdout.flush()
print("==ERROR== the last run was cut off", file=sys.stderr)
"""
"""What Nsight Compute prints of so many runs, the last without its end."""


@pytest.fixture
def ncu(monkeypatch, tmp_path) -> Any:
    """Puts a stand-in in the place of ``ncu`` that prints of ``count`` runs, and does something before."""

    def stand_in(count: int, also: str = "") -> None:
        tool = tmp_path / "ncu"
        tool.write_text(f"#!{sys.executable}\n{NCU.replace('RUNS', str(count)).replace('ALSO', also)}")
        tool.chmod(0o755)
        monkeypatch.setattr(profiler, "find_ncu", lambda: str(tool))

    return stand_in


def three(session: Session) -> list[runs.Study]:
    return [runs.Study(session, TINY, case, None, 8) for case in ("DeepWalk", "k-hop", "Layer")]


def test_a_graphs_applications_are_profiled_by_one_process(session, ncu) -> None:
    """What ended counts; of an application that was cut off, the paper's comparison comes first."""
    ncu(6)
    whole, part, none = nextdoor_profile.profile(three(session))
    why = "ncu gave no numbers (==ERROR== the last run was cut off)"
    assert set(whole[0]) == {"sample/auto", "transit/published", "transit/auto"} and whole[1] == ""
    assert set(part[0]) == {"sample/auto", "transit/published"} and part[1] == why
    assert none == ({}, why)
    assert whole[0]["transit/published"]["reads"] == 10 and part[0]["sample/auto"]["reads"] == 20
    figure8 = runner.run("nextdoor-fig8", session=session)
    origins = {(row["app"], row["index"]): row["origin"] for row in figure8["rows"]}
    assert origins == dict.fromkeys(
        (("DeepWalk", "published"), ("DeepWalk", "auto"), ("k-hop", "published")), "measured by ncu"
    )
    table4 = runner.run("nextdoor-table4", session=session)
    found = {(row["app"], row["index"]): (row["origin"], row["kernels"]) for row in table4["rows"]}
    assert found["k-hop", "published"] == ("measured by ncu", 1) and found["k-hop", "auto"] == (why, None)
    assert figure8["verification"] == table4["verification"] == {"profiled_runs": 3}
    assert "walks of 5 steps" in figure8["settings"]["reduced"]


def test_runs_without_their_base_are_counted_instead(session, ncu) -> None:
    ncu(2)
    table4 = runner.run("nextdoor-table4", session=session)
    assert {row["origin"] for row in table4["rows"]} == {
        "counted: ncu gave no numbers (==ERROR== the last run was cut off)"
    }
    assert {row["index"] for row in runner.run("nextdoor-fig8", session=session)["rows"]} == {"published"}


TARGET = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
"""A profiled process that does not come to an end."""
ALSO = f"subprocess.run([sys.executable, '-c', {TARGET!r}, sys.argv[-1] + '/pid'])"


def test_what_ended_in_time_is_kept_where_the_profiled_process_has_to_be_ended(
    session, ncu, monkeypatch
) -> None:
    monkeypatch.setattr(nextdoor_profile, "_GRACE_S", 3.0)
    ncu(4, ALSO)
    began = time.monotonic()
    whole, *others = nextdoor_profile.profile(three(session), seconds=0.0)
    assert time.monotonic() - began < 30 and len(whole[0]) == 3 and whole[1] == ""
    assert others == [({}, "not profiled within the 0 s of a graph")] * 2


def test_a_profiler_that_goes_on_is_ended_with_all_that_it_started(session, ncu, monkeypatch) -> None:
    monkeypatch.setattr(nextdoor_profile, "_GRACE_S", 1.0)
    ncu(4, f"{ALSO}; time.sleep(60)")
    began = time.monotonic()
    assert (
        nextdoor_profile.profile(three(session), seconds=0.0)
        == [({}, "not profiled within the 0 s of a graph")] * 3
    )
    assert time.monotonic() - began < 30


def test_no_run_begins_when_the_time_of_a_graph_is_up(capsys, monkeypatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(nextdoor_profile.time, "time", lambda: next(clock))
    work = {"cases": ["DeepWalk", "k-hop"], "runs": [["sample", "auto"], ["transit", "auto"]], "until": 3}
    assert list(nextdoor_profile.in_time(work)) == [
        (0, "DeepWalk", "sample", "auto"), (0, "DeepWalk", "transit", "auto"), (1, "k-hop", "sample", "auto"),
    ]  # fmt: skip
    assert capsys.readouterr().out == f"{nextdoor_profile._LATE}\n"


def test_the_profiled_process_says_when_its_time_was_up(session, ncu) -> None:
    ncu(4, f"print({nextdoor_profile._LATE!r})")
    assert [why for _, why in nextdoor_profile.profile(three(session), seconds=7)] == [
        "", *["not profiled within the 7 s of a graph"] * 2,
    ]  # fmt: skip


def test_graphs_are_profiled_in_several_runs_and_share_a_record(
    session, ncu, monkeypatch, tmp_path, capsys
) -> None:
    monkeypatch.setattr(nextdoor_profile, "QUICK", ("DeepWalk",))
    monkeypatch.setattr("gnnsample_lab.bench.session.Session.require_gpu", lambda *_: None)
    ncu(4)
    (tmp_path / "out").mkdir()
    names = ("ppi-like@0.01", "ppi-like@0.02")
    for name in names:
        arguments = ["nextdoor-fig8", "nextdoor-table4", "--quick", "--graph", name]
        assert runner.main([*arguments, "--out", str(tmp_path / "out")]) == 0, capsys.readouterr().out
    assert len(list((tmp_path / "out").iterdir())) == 2
    for suite in ("nextdoor-fig8", "nextdoor-table4"):
        record = json.loads((tmp_path / "out" / f"{suite}-quick.json").read_text())
        assert [(row["graph"], row["index"]) for row in record["rows"]] == [
            (name, index) for name in names for index in ("published", "auto")
        ]
        assert set(record["graphs"]) == set(record["compared"]) == set(names)
        assert record["verification"] == {"profiled_runs": 4} and not schema.problems(record)
        assert len(states(record)) == 1
        assert record["seconds"] == pytest.approx(
            sum(f["seconds"] for f in record["compared"].values()),
            rel=1e-4,  # records hold six digits
        )
        # Measured once more, a graph has its new rows alone; another card's are left out and named.
        new = {**record, "rows": record["rows"][2:], "graphs": {names[1]: {}}}
        del new["compared"]
        assert by_graph.merged(record, new)["rows"] == record["rows"]
        elsewhere = {**new, "environment": {**record["environment"], "gpu": {"name": "NVIDIA T4"}}}
        found = by_graph.merged(record, elsewhere)
        assert found["rows"] == new["rows"] and set(found["compared"]) == {names[1]}
        assert names[0] in found["notes"][-1] and "left out" in found["notes"][-1]
        assert found["compared"][names[1]]["environment"]["gpu"] == "NVIDIA T4"


def test_graphs_join_the_record_that_one_run_had_made() -> None:
    """Which has no list of them."""
    old = json.loads((runner.records.measured_folder() / "nextdoor-fig8.json").read_text())
    old.pop("compared", None)
    new = {
        **old,
        "rows": [{**old["rows"][0], "graph": "toy"}],
        "graphs": {"toy": {"title": "toy"}},
        "seconds": 5.0,
    }
    found = by_graph.merged(old, new)
    assert found["rows"] == [*old["rows"], *new["rows"]] and list(found["compared"]) == [
        *old["graphs"],
        "toy",
    ]
    assert found["seconds"] == pytest.approx(old["seconds"] + 5.0)
    shorter = {**new, "settings": {**new["settings"], "reduced": "walks of 1 step"}}
    assert by_graph.merged(old, shorter)["rows"] == new["rows"], "walks of another length"
    assert (
        by_graph.merged(old, {**new, "settings": {**new["settings"], "cpu_threads": 99}})["rows"]
        == found["rows"]
    )


@pytest.mark.skipif(cuda_available(), reason="there is a profiler to measure with")
def test_without_a_profiler_sectors_are_counted_and_said_to_be(session, monkeypatch) -> None:
    monkeypatch.setattr(profiler, "find_ncu", lambda: None)
    rows = runner.run("nextdoor-fig8", session=session)["rows"]
    assert {row["app"] for row in rows} == {"DeepWalk", "k-hop"}
    for row in rows:
        assert (
            row["origin"].startswith("counted") and row["index"] == "published" and row["sample_msectors"] > 0
        )
        assert row["ratio"] == pytest.approx(row["transit_msectors"] / row["sample_msectors"], rel=1e-3)
    table4 = runner.run("nextdoor-table4", session=session)
    assert all(row["store_percent"] is None and "counted" in row["origin"] for row in table4["rows"])
    assert table4["verification"]["profiled_runs"] == 0


def test_what_takes_long_is_timed_five_times_too(session) -> None:
    """The fixture leaves no time for repetitions."""
    assert runs.gpu_ms(lambda: lambda: None)["passes"] == 5 < runs._PASSES
    record = runner.run("nextdoor-fig7", session=session)
    assert {row["passes"] for row in record["rows"]} == {5}


# ---- what a GPU times, on made-up times ---------------------------------------------------------------------------


def made_up_share(study: runs.Study, index: str) -> dict[str, Any]:
    study.verified("transit", index)
    index_ms = {"auto": 0.0}.get(index, 1.0)
    around = {
        key: timing.around(timing.spread([ms], "ms")) for key, ms in (("ms", 4.0), ("index_ms", index_ms))
    }
    return {"ms": 4.0, "index_ms": index_ms, "builds": 2, "spread": around}


def test_figure6_is_the_indexs_part_of_the_whole(session, monkeypatch) -> None:
    monkeypatch.setattr(nextdoor, "index_share", made_up_share)
    record = runner.run("nextdoor-fig6", session=session)
    shares = {(row["app"], row["index"]): row["index_percent"] for row in record["rows"]}
    assert (
        shares["DeepWalk", "radix"] == shares["ClusterGCN", "published"] == 25
        and shares["k-hop", "auto"] == 0
    )
    assert "index %" in report.text(record)


def test_table2_has_each_kernel_alone_beside_whole_calls(session, monkeypatch) -> None:
    from gnnsample_lab.sampling.engine.steps import published

    def alone(study: runs.Study) -> tuple[dict[str, float], dict[str, float]]:
        bounds = published.KNOBS.classes
        which = "grid" if bounds.many == 0 else "block" if bounds.few == 1 else "sub-warp"
        study.verified("transit", "published")
        return timing.spread(draws[which], "ms"), timing.spread([0.25], "ms")

    draws = {"sub-warp": [2.0, 2.5, 1.5], "block": [1.0], "grid": [4.0]}
    monkeypatch.setattr(nextdoor, "step_alone", alone)
    monkeypatch.setattr(nextdoor, "DRAWS", (1, 2, 4, 64))
    times = [0.5, 3.0, 3.5]
    monkeypatch.setattr(runs, "gpu_ms", lambda ready, passes=1: ready() and timing.spread(times, "ms"))
    record = runner.run("nextdoor-table2", session=session)
    assert [row["draws_per_transit"] for row in record["rows"]] == [1, 64]
    for row in record["rows"]:
        assert row["num_samples"] == row["transits"] * row["draws_per_transit"]
        assert row["kernel_ms"] == {"sub-warp": 2.0, "block": 1.0, "grid": 4.0} and row["best"] == "block"
        assert row["index_ms"] == dict.fromkeys(nextdoor.KERNELS, 0.25) and row["chosen_over_best"] == 1
        assert row["paper_kernel"] == ("sub-warp" if row["draws_per_transit"] < 32 else "block")
        call = timing.around(timing.spread(times, "ms"))
        for key in ("chosen_ms", "sample_ms", *(f"ms.{kernel}" for kernel in nextdoor.KERNELS)):
            assert row["spread"][key] == pytest.approx(call), key
        assert row["spread"]["kernel_ms.sub-warp"] == pytest.approx(
            {"p10_ms": 1.6, "p90_ms": 2.4, "passes": 3}
        )
    text = report.text(record)
    assert "grid ms" in text and "2.00 (1.60-2.40)" in text and "3.00 (1.00-3.40)" in text


def test_transits_can_be_sent_to_one_kernel() -> None:
    from gnnsample_lab.sampling.engine.steps import published

    real = published.KNOBS
    for which, size, wanted in (("sub-warp", 1, 0), ("block", 50, 1), ("grid", 1, 2)):
        with nextdoor.forced(which):
            bounds = published.KNOBS.classes
            for draws in (size, 4000 * size):
                assert (0 if draws < bounds.few else 2 if draws > bounds.many else 1) == wanted
        assert published.KNOBS is real
    with pytest.raises(ZeroDivisionError), nextdoor.forced("grid"):
        assert published.KNOBS.classes.many == 0
        raise ZeroDivisionError
    assert published.KNOBS is real


def test_the_floor_stands_beside_uniform_and_weighted_walks(session, monkeypatch) -> None:
    from gnnsample_lab.bench.floors import walk_floor
    from gnnsample_lab.bench.suites.nextdoor import floor as nextdoor_floor
    from gnnsample_lab.bench.suites.nextdoor import native

    asked = []
    monkeypatch.setattr(native, "provider", lambda app, graph: asked.append(app))
    floor = {"us": 500.0, "passes_us": [490.0, 500.0, 510.0], "best": "1x128", "sweep": {"1x128": 500.0}}
    monkeypatch.setattr(walk_floor, "walk_floor", lambda graph, roots, steps, **_: floor)
    monkeypatch.setattr(runs, "gpu_ms", lambda ready, passes=1: ready() and timing.spread([2.0], "ms"))
    short = {"DeepWalk, uniform": 4, "DeepWalk": 5}
    cases = {
        name: (case, (lambda n=short[name]: lab.apps.DeepWalk(n)) if name in short else make)
        for name, (case, make) in nextdoor_floor.CASES.items()
        if name in (*short, "k-hop")
    }
    monkeypatch.setattr(nextdoor_floor, "CASES", cases)
    record = runner.run("nextdoor-floor", session=session)
    rows = {row["app"]: row for row in record["rows"]}
    assert len(asked) == 3 and rows["DeepWalk"]["over_floor"] == rows["DeepWalk, uniform"]["over_floor"] == 4
    assert "over_floor" not in rows["k-hop"] and rows["k-hop"]["over_native"] == 1
    assert {row["l2"] for row in record["rows"]} == {"as left"} and "never flushed" in record["settings"][
        "l2"
    ]
    low = rows["DeepWalk"]["spread"]["floor_ms"]
    assert (low["p10_ms"], low["p90_ms"], low["passes"]) == (pytest.approx(0.492), pytest.approx(0.508), 3)
    assert rows["DeepWalk"]["flow_over_ours"] == rows["DeepWalk, uniform"]["flow_over_ours"] == 1
    assert "flow_ms" not in rows["k-hop"]
    monkeypatch.setattr(
        nextdoor_floor, "flow_walks", lambda *_, device, **options: len(options) + np.zeros(9)
    )
    study = runs.Study(session, TINY, "DeepWalk")
    assert nextdoor_floor.flow_ms(study, {}, "walks")["ms"] == 2.0
    rng = np.random.default_rng(0)
    monkeypatch.setattr(nextdoor_floor, "flow_walks", lambda *_, device, **options: rng.random(9))
    with pytest.raises(VerificationError, match="walks differ"):
        nextdoor_floor.flow_ms(study, {}, "walks")
    assert record["verification"]["results_equal_to_next_in_cuda"] == 3


# ---- training ---------------------------------------------------------------------------------------------------


def test_tables_1_and_5_share_their_runs(session, monkeypatch) -> None:
    monkeypatch.setattr(nextdoor_training, "QUICK_TOGETHER", 1)
    monkeypatch.setattr(nextdoor_training, "_methods", lambda _: ("LADIES", "ClusterGCN"))
    first = runner.run("nextdoor-table1", session=session)
    assert [(r["method"], r["sampler"]) for r in first["rows"]] == [
        (m, s) for m in ("LADIES", "ClusterGCN") for s in ("numpy", "walker", "published", "engine")
    ]
    for row in first["rows"]:
        assert row["sample_percent"] == pytest.approx(
            100 * row["sample_ms"] / (row["sample_ms"] + row["train_ms"]), rel=1e-3
        )
        assert row["steps"] == nextdoor_training.PASSES * (2 if row["sampler"] == "numpy" else 1)
        for key, unit in (("sample_ms", "ms"), ("train_ms", "ms"), ("epoch_s", "s")):
            around = row["spread"][key]
            assert around["passes"] == nextdoor_training.PASSES
            assert 0 < around[f"p10_{unit}"] < around[f"p90_{unit}"]
        sample = row["spread"]["sample_ms"]
        assert sample["p10_ms"] <= row["sample_ms"] <= sample["p90_ms"]
    assert first["verification"]["losses_equal_to_cpu_walkers"] == 2 * 2 * nextdoor_training.PASSES
    second = runner.run("nextdoor-table5", session=session)
    row = next(r for r in second["rows"] if (r["method"], r["reference"]) == ("LADIES", "numpy"))
    own, published, ours = (first["rows"][i] for i in (0, 2, 3))
    assert row["reference_sample_ms"] == own["sample_ms"] and row["sample_ms"] == ours["sample_ms"]
    before, after = own["sample_ms"] + own["train_ms"], ours["sample_ms"] + ours["train_ms"]
    assert row["speedup"] == pytest.approx(before / after, rel=1e-3)
    after = published["sample_ms"] + published["train_ms"]
    assert row["published_speedup"] == pytest.approx(before / after, rel=1e-3)
    assert row["published_epoch_s"] == published["epoch_s"]
    assert row["spread"]["reference_sample_ms"] == own["spread"]["sample_ms"]
    assert row["spread"]["published_epoch_s"] == published["spread"]["epoch_s"]
    assert row["spread"]["train_ms"] == ours["spread"]["train_ms"]
    assert "published x" in report.text(second) and "ours x" in report.text(second)
    assert row["most_possible"] == pytest.approx(before / own["train_ms"], rel=1e-3)
    shown = report.text(first)
    assert "paper sampling %" in shown and "40.0" in shown, "the paper's share of LADIES on PPI"


@pytest.mark.parametrize("which", ["published", "engine"])
def test_other_losses_are_not_recorded(session, monkeypatch, which) -> None:
    monkeypatch.setattr(nextdoor_training, "QUICK_TOGETHER", 1)
    real = nextdoor_training.train_sampled

    def drifting(graph: Any, method: str, sampler: str, **options: Any) -> Any:
        run = real(graph, method, sampler, **options)
        run.losses[-1] += 0.1 * (sampler == which)
        return run

    monkeypatch.setattr(nextdoor_training, "train_sampled", drifting)
    with pytest.raises(VerificationError, match=f"{which}: other losses than the CPU walker's, by 0.1"):
        nextdoor_training.check(session, TINY, "ClusterGCN")


# ---- targets ----------------------------------------------------------------------------------------------------


def _figure7(**changes: Any) -> dict[str, Any]:
    row = {
        "graph": "ppi-like", "app": "DeepWalk", "kind": "walk", "device": "cuda", "over_sample": 1.0,
        "over_vanilla": 1.5, "over_cpu_core": 150.0, "published_over_sample": 0.5,
    }  # fmt: skip
    khop = {**row, "app": "k-hop", "kind": "k-hop", "over_sample": 2.5, "over_cpu_core": 80.0}
    return {"suite": "nextdoor-fig7", "rows": [row, khop, {**row, "graph": "orkut-like", **changes}]}


def test_targets_take_the_worst_row() -> None:
    found = targets_of(_figure7())
    assert len(found) == 5 and [t.met for t in found] == [False, True, True, True, True]
    assert target(found, "k-hop, everywhere").measured == 2.5
    assert target(found, "one CPU core").measured == 150, "k-hop is no walk"
    found = targets_of(_figure7(over_sample=0.9, over_vanilla=0.99, over_cpu_core=90.0))
    assert [t.met for t in found] == [False, False, True, False, False]
    assert target(found, "transit-parallel over sample-parallel, everywhere").where == "orkut-like, DeepWalk"
    assert targets_of(_figure7(device="cpu")) == targets_of({**_figure7(), "rows": _figure7()["rows"][:2]})


def test_targets_of_the_floor() -> None:
    row = {"graph": "ppi-like", "device": "cuda", "over_native": 1.1}
    rows = [
        {**row, "app": "DeepWalk, uniform", "over_floor": 2.0},
        {**row, "app": "DeepWalk", "over_floor": 3.5},
    ]
    found = targets_of({"suite": "nextdoor-floor", "rows": rows})
    assert [(t.measured, t.met) for t in found] == [(2.0, True), (3.5, False), (1.1, True)]


@pytest.mark.skipif(not cuda_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["nextdoor-fig6", "nextdoor-table2", "nextdoor-floor", "nextdoor-fig8"])
def test_suites_that_need_a_gpu(session, name) -> None:
    record = runner.run(name, session=session)
    assert record["rows"] and report.text(record)
    json.dumps(record, allow_nan=False)
