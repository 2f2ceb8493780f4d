"""Every shipped record against the schema of records, and which of them a tree would call stale.

None of this compares a record with today's source: what is older says where it was recorded, and stays true.
"""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from gnnsample_lab import bench
from gnnsample_lab.bench import record as records
from gnnsample_lab.bench import report, runner, schema, source, stale
from gnnsample_lab.bench.suites import SUITES, targets_of
from gnnsample_lab.files import read_json
from gnnsample_lab.resources import resource_path
from gnnsample_lab.traces import SampleTrace
from tests.bench.conftest import MADE_UP
from tests.bench.made_up import MadeUpSession

FOLDER = Path(resource_path("data/measured"))
FILES = {path.name: read_json(path, object) for path in sorted(FOLDER.glob("*.json"))}


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_record_is_as_records_are(name: str) -> None:
    """A file that a hand has written is none."""
    record = FILES[name]
    assert schema.problems(record) == []
    suite = SUITES[record["suite"]]
    assert name.startswith((suite.file or suite.name).removesuffix(".json"))
    # A table is of one state, or it prints that of each row.
    if len(records.states(record)) > 1:
        assert "recorded at" in report.tables(record)[0].header
    assert records.state(record) and records.state(record).partition(";")[0].partition(",")[
        0
    ] in report.origin(record)


def test_traces_and_hashes_are_those_of_their_records() -> None:
    """A trace that was put there by hand is in no record, or is not the one that it names."""
    rows = {row["file"]: row for row in FILES["traces.json"]["rows"]}
    paths = {path.name: path for path in (FOLDER / "traces").glob("*.npz")}
    assert set(paths) == set(rows)
    for name, path in paths.items():
        trace = SampleTrace.load(path)
        assert (len(trace.tasks), path.stat().st_size) == (rows[name]["tasks"], rows[name]["file_bytes"]), (
            name
        )
        assert trace.total_us == pytest.approx(rows[name]["total_us"], rel=1e-5)
    hashes = FILES["sample_hashes.json"]
    assert hashes["settings"]["complete"] and len(hashes["hashes"]) == hashes["settings"]["configurations"]


@pytest.fixture(scope="module")
def _made(request: pytest.FixtureRequest) -> dict[str, Any]:
    patch = pytest.MonkeyPatch()
    patch.setattr(source, "of_function", lambda path: MADE_UP)
    request.addfinalizer(patch.undo)
    return records.plain(runner.run("pgsampler-fig8", session=MadeUpSession()))


@pytest.fixture
def made(_made: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(_made)


def test_a_new_record_obeys_the_schema_and_holds_its_source(made: dict[str, Any]) -> None:
    assert schema.problems(made) == [] and made["format"] == 2 and made["source"] == MADE_UP
    assert f"source {MADE_UP['hash']}" in report.origin(made)
    assert made["targets"] == [target._asdict() for target in targets_of(made)]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda r: r.pop("source"), "source"),
        (lambda r: r["source"].update(hash="1" * 16), "source.hash is not that of its layers"),
        (lambda r: r["source"]["layers"].update(bench="f" * 16), "source.hash is not that of its layers"),
        (lambda r: r["environment"].update(commit="as of Friday"), "environment.commit"),
        (lambda r: r["environment"].update(date="2026-01-02"), "environment.date"),
        (lambda r: r["environment"].update(gpu={"name": "a GPU"}), "environment.gpu.driver"),
        (lambda r: r.update(suite="made by hand"), "suite"),
        (lambda r: r["settings"].pop("quick"), "settings"),
        (lambda r: r["rows"].append("a row"), "rows"),
        (lambda r: r["targets"][0].pop("met"), "targets"),
        (lambda r: r.update(format=99), "format"),
    ],
)
def test_what_a_hand_would_leave_behind_is_seen(made: dict[str, Any], change: Any, word: str) -> None:
    change(made)
    assert any(problem.startswith(word) for problem in schema.problems(made)), schema.problems(made)


def test_git_says_which_kernels_a_stale_record_was_made_by(
    made: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment is no change, a file of another suite is none of this one's; without a history nobody knows."""

    def git(*words: str) -> str:
        return records.output_of("git", "-c", "user.name=a", "-c", "user.email=a@b", *words, folder=tmp_path)

    draw, other = tmp_path / "draw.cu", tmp_path / "other.cuh"
    draw.write_text("int a = 1;  // one\n"), other.write_text("int b;\n")
    git("init"), git("add", "."), git("commit", "-m", "first")
    commit = git("rev-parse", "HEAD")
    monkeypatch.setattr(stale, "checkout_root", lambda: tmp_path)
    made["environment"] |= {"commit": commit, "modified": False}

    def changed(*files: Path) -> list[str] | None:
        stale._kernels_since.cache_clear()
        return stale.kernels_changed(made, files)

    draw.write_text("int a = 1;  // the first\n")
    assert changed(draw, other) == []
    draw.write_text("int a = 2;  // the first\n"), other.unlink()
    assert changed(draw, tmp_path / "host.py") == ["draw.cu"] and changed(draw, other) == [
        "draw.cu",
        "other.cuh",
    ]
    (tmp_path / "new.cu").write_text("int c;\n")
    git("add", ".")
    assert changed(tmp_path / "new.cu") == ["new.cu"]
    made["environment"]["modified"] = True
    assert changed(draw) is None, "its files were not those of the commit"
    made["environment"] |= {"commit": "f" * 40, "modified": False}
    assert changed(draw) is None
    monkeypatch.setattr(stale, "checkout_root", lambda: None)
    assert changed(draw) is None
    stale._kernels_since.cache_clear()


def test_what_host_code_alone_has_outdated_comes_last(
    made: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = {**MADE_UP["layers"], "sampling": "a" * 16}
    monkeypatch.setattr(source, "of_function", lambda path: {"layers": layers, "hash": source.total(layers)})
    made["settings"]["quick"] = False
    given = {name: {**made, "suite": name} for name in ("pgsampler-fig8", "pgsampler-fig9")}
    kernels: dict[str, Any] = {"pgsampler-fig8": [], "pgsampler-fig9": ["draw.cu"]}
    monkeypatch.setattr(stale, "kernels_changed", lambda record, files: kernels[record["suite"]])

    def found() -> list[tuple[str, int, str]]:
        rows = stale.by_need(stale.stale(given))
        return [(each.suite, each.need, each.why) for each in rows if each.record]

    why = "changed since: sampling"
    assert found() == [
        ("pgsampler-fig9", 3, f"{why}; kernels that differ: draw.cu"),
        ("pgsampler-fig8", 4, f"{why}; {stale.SAME_KERNELS}"),
    ]
    assert "Host code alone has changed since 1 of them" in stale.listed(stale.stale(given))
    kernels["pgsampler-fig8"] = None
    assert "Host code alone" not in stale.listed(stale.stale(given))
    assert ("pgsampler-fig8", 3, why) in found()


def test_stale_lists_what_other_source_has_made(
    made: dict[str, Any], tmp_path: Path, monkeypatch, capsys
) -> None:
    layers = {**MADE_UP["layers"], "sampling": "a" * 16}
    today = {"layers": layers, "hash": source.total(layers)}
    assert stale.reason(made, MADE_UP) == ""
    assert stale.reason(made, today) == "changed since: sampling"
    twin = {"title": "products-like (synthetic)", "statistics": records.statistics_hash("products-like@0.1")}
    assert stale.reason({**made, "graphs": {"products-like": twin}}, MADE_UP) == ""
    refitted = {
        **made,
        "graphs": {
            "products-like": {**twin, "statistics": "0" * 16},
            "yelp-like": twin | {"statistics": None},
        },
    }
    assert stale.reason(refitted, MADE_UP) == "changed since: the statistics of products-like"
    assert stale.reason(refitted, today) == "changed since: sampling, the statistics of products-like"
    old = {**made, "format": 1}
    del old["source"]
    assert stale.reason(old, MADE_UP) == stale.UNKNOWN, "without a hash nobody knows"
    records.write_json(
        {**made, "settings": {**made["settings"], "quick": True}}, tmp_path / "pgsampler-fig8.json"
    )
    assert bench.main(["--stale", "--out", str(tmp_path)]) == 0
    assert (
        f"pgsampler-fig8.json, recorded at {records.commit_of(made['environment'])} on CPU: {stale.QUICK}"
        in (capsys.readouterr().out)
    )
    made["settings"]["quick"] = False
    records.write_json(made, tmp_path / "pgsampler-fig8.json")
    records.write_json({**old, "suite": "pgsampler-fig10"}, tmp_path / "pgsampler-fig10.json")
    assert bench.main(["--stale", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "pgsampler-fig8" not in printed and "pgsampler-fig9" in printed
    commit = records.commit_of(made["environment"])
    assert f"pgsampler-fig10.json, recorded at {commit} on CPU: {stale.UNKNOWN}" in printed
    monkeypatch.setattr(source, "of_function", lambda path: today)
    assert bench.main(["--stale", "--out", str(tmp_path)]) == 0
    assert (
        f"pgsampler-fig8.json, recorded at {commit} on CPU: changed since: sampling"
        in capsys.readouterr().out
    )
    assert bench.main(["cpu", "pgsampler-fig10", "--stale", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert (
        "pgsampler-fig8" not in printed and "2 to record: gnnsample-lab bench pgsampler-fig10 cpu" in printed
    )
    with pytest.raises(SystemExit):
        bench.main(["all", "--stale"])


def test_what_nobody_knows_is_recorded_first(made: dict[str, Any], monkeypatch) -> None:
    layers = {**MADE_UP["layers"], "sampling": "a" * 16}
    monkeypatch.setattr(source, "of_function", lambda path: {"layers": layers, "hash": source.total(layers)})
    monkeypatch.setattr(stale, "kernels_changed", lambda record, files: None)
    made["settings"]["quick"] = False
    unknown = {key: value for key, value in made.items() if key != "source"}
    quick = {**made, "settings": {**made["settings"], "quick": True}, "seconds": 7.0}
    given = {
        "pgsampler-fig8": {**made, "suite": "pgsampler-fig8", "seconds": 11.0},
        "pgsampler-fig9": {**unknown, "suite": "pgsampler-fig9", "seconds": 13.0},
        "pgsampler-fig10": {**quick, "suite": "pgsampler-fig10"},
        "pgsampler-fig8-of-it": {**quick, "suite": "pgsampler-fig8"},
    }
    found = [each for each in stale.by_need(stale.stale(given)) if each.suite.startswith("pgsampler-fig")]
    assert [(each.record, each.need, each.seconds) for each in found] == [
        ("", 0, None),
        ("pgsampler-fig8", 3, 11.0), ("pgsampler-fig8-of-it", 1, 7 * stale.FULL_OVER_QUICK),
        ("pgsampler-fig10", 1, 7 * stale.FULL_OVER_QUICK), ("pgsampler-fig9", 2, 13.0),
    ]  # fmt: skip
    assert list(stale.expected(found)) == [
        "pgsampler-fig11",
        "pgsampler-fig8",
        "pgsampler-fig10",
        "pgsampler-fig9",
    ]


def test_a_suite_may_say_how_long_a_full_run_takes(made: dict[str, Any], monkeypatch) -> None:
    """Five times a quick run is a guess; of suites whose full run has more graphs it is a bad one."""
    declared = dataclasses.replace(SUITES["pgsampler-fig8"], seconds=250.0)
    monkeypatch.setitem(SUITES, "pgsampler-fig8", declared)
    settings = {**made["settings"], "quick": True}

    def seconds(record: dict[str, Any] | None) -> float | None:
        given = {} if record is None else {"pgsampler-fig8": {**record, "seconds": 7.0}}
        return next(each.seconds for each in stale.stale(given) if each.suite == "pgsampler-fig8")

    assert seconds({**made, "settings": settings}) == seconds(None) == 250.0
    unknown = {key: value for key, value in made.items() if key != "source"}
    assert seconds({**unknown, "settings": {**settings, "quick": False}}) == 7.0, "a full run was recorded"
    assert {name: SUITES[name].seconds for name in ("fastgl-fig16", "nextdoor-section84", "nextdoor-fig8")} == {
        "fastgl-fig16": 250, "nextdoor-section84": 400, "nextdoor-fig8": 700,
    }  # fmt: skip


def test_stale_records_are_made_within_the_time_there_is(tmp_path: Path, monkeypatch, capsys) -> None:
    took = {"fastgl-table1": 30.0, "fastgl-fig9": 300.0, "gnnlab-table2": 40.0, "nextdoor-fig7": 200.0}
    found = [stale.Stale(name, name, "abc", "old", seconds) for name, seconds in took.items()]
    found += [
        stale.Stale("nextdoor-fig7", "nextdoor-fig7-b", "abc", "old"),
        stale.Stale("cpu", "", "", "never"),
    ]
    seconds = stale.expected(found)
    assert seconds == {**took, "nextdoor-fig7": 260.0, "cpu": stale.UNTIMED_S}
    parts = [stale.share(seconds, part, 2) for part in (1, 2)]
    assert parts == [["fastgl-table1", "fastgl-fig9"], ["gnnlab-table2", "nextdoor-fig7", "cpu"]], (
        "folders stay whole"
    )
    assert stale.share(seconds, 1, 1) == list(seconds)

    ran: list[str] = []
    monkeypatch.setattr(stale, "stale", lambda _: found)
    monkeypatch.setattr(runner, "_run_and_report", lambda name, *_: ran.append(name) or True)
    assert (
        bench.main(["--stale", "--within", "150", "--part", "2/2", "--out", str(tmp_path), "--no-save"]) == 0
    )
    assert ran == ["gnnlab-table2", "cpu"]
    assert "nextdoor-fig7: left for another time, 260 s of 1" in capsys.readouterr().out
    assert bench.main(["--stale", "--within", "150", "--part", "7/7", "--no-save"]) == 0
    assert "nothing to record" in capsys.readouterr().out
    for wrong in (
        ["cpu", "--within", "9"],
        ["--stale", "--within", "9", "--part", "3/2"],
        ["--stale", "--part", "1"],
    ):
        with pytest.raises(SystemExit):
            bench.main(wrong)


def test_graphs_that_share_a_record_are_stale_one_by_one(made: dict[str, Any]) -> None:
    at = {**made["environment"], "source": MADE_UP["hash"]}
    shared = {
        **made,
        "compared": {"a": {"environment": at}, "b": {"environment": {**at, "source": "b" * 16}}},
    }
    assert stale.reason(shared, MADE_UP) == "changed since: the source of some of its graphs"
    assert len(records.states(shared)) == 2
    shared["compared"]["b"]["environment"] = at
    assert stale.reason(shared, MADE_UP) == ""
    assert stale.listed([]).startswith("Every record")


MANY_GPUS = (
    *(f"gnnlab-table{n}" for n in (1, 4, 5, 6)), "gnnlab-fig3", *(f"gnnlab-fig{n}" for n in range(13, 18)),
    "gnnlab-budget", "gnnlab-designs", "dsp-volume", "dsp-copies", "dsp-threads", "dsp-utilisation", "dsp-busy",
    "dsp-accuracy", "dsp-memory", "dsp-pull", "dsp-sampling", "pipelines", "fastgl-fig14a", "nextdoor-fig10", "ladder",
    "rank-features",
)  # fmt: skip
"""Suites of pipelines and many GPUs whose rows are of batches; ``dsp-deadlock``, ``-bandwidth``, ``-parameters`` and
``-graphs`` have none."""
OLDER = {("nextdoor-fig10", ""), ("dsp-threads", "loading")}
"""Rows, by suite and kernel, of which the shipped records may not know their work yet; whoever renews these records
takes them off here."""
NO_BATCH = {
    "dsp-threads": lambda row: row["kernel"] == "copying",
    "rank-features": lambda row: "copy" in row["what"],
    "gnnlab-designs": lambda row: row["part"] == "map",
}  # fmt: skip
"""Rows that are of memory in order, or of ratios alone."""


@pytest.mark.parametrize("name", MANY_GPUS)
def test_rows_of_many_gpus_say_what_a_batch_holds(name: str) -> None:
    """Times compare where the work is the same."""
    columns = SUITES[name].columns
    shown = columns({"rows": [], "settings": {}}) if callable(columns) else columns
    assert {"rows a batch", "picks a batch"} <= shown.keys()
    for row in FILES[f"{name}.json"]["rows"] if f"{name}.json" in FILES else ():
        if (
            "error" in row
            or NO_BATCH.get(name, lambda row: False)(row)
            or (name, row.get("kernel", "")) in OLDER
        ):
            continue
        assert {"rows", "edges"} <= row.keys() or {"rows_per_batch", "picks_per_batch"} <= row.keys(), row
