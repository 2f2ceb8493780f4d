"""Tables and targets of records written by hand."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gnnsample_lab.bench import record as records
from gnnsample_lab.bench import report
from gnnsample_lab.bench.report import Table
from gnnsample_lab.bench.suites import SUITES, targets_of

ENVIRONMENT = {
    "date": "2026-01-02T03:04:05+00:00", "commit": "0123456789abcdef", "modified": False, "python": "3.12.1",
    "packages": {}, "cpu": "a CPU", "cpu_cores": 2,
    "gpu": {"name": "NVIDIA H200", "driver": "580.1", "cupy": "14.2.0"},
}  # fmt: skip
NEEDS_NCU = {"L1 %", "L2 %", "compute %", "memory %"}
"""Columns that are empty where no profiler was installed."""
NEEDS_A_DISK = {"disk to host ms"}
"""A column that is empty for generated graphs, which come from no disk."""
NOT_YET = {("gnnlab-fig16", "model ms")}
"""Columns of suites of which the shipped records may not know yet; whoever renews these records takes them off here."""


def whole_process(alone_us: float, fused_us: float) -> dict[str, Any]:
    row = {
        "graph": "rmat", "batch_size": 1024, "fanout": 10, "hops": 3, "baseline_us": 1505.0, "alone_us": alone_us,
        "alone_strategy": "captured", "fused32_us": fused_us, "fused32_strategy": "captured", "sweep": {},
    }  # fmt: skip
    return {
        "format": 1, "suite": "whole-process", "about": "wall time", "origin": "measured", "environment": ENVIRONMENT,
        "settings": {"quick": False}, "verification": {"samples_equal_to_cpu_twin": 12}, "rows": [row], "targets": [],
        "graphs": {"rmat": {"title": "rmat (synthetic)"}}, "seconds": 1.0,
        "paper": {"alone_us": 5371.0, "fused32_us": 1103.0, "what": "cuGraph; measured separately, not in this run"},
    }  # fmt: skip


def test_a_hand_written_file_becomes_a_table_with_its_origin(tmp_path: Path) -> None:
    (tmp_path / "whole-process.json").write_text(json.dumps(whole_process(110.0, 55.0)))
    (tmp_path / "other.json").write_text('{"something": "else"}')
    (tmp_path / "notes.txt").write_text("not JSON")
    text = report.markdown(report.load(tmp_path))
    assert "| rmat (synthetic) | 1024 x 10, 3 hops | 1 505 | 110.0 | captured | 55.0 |" in text
    assert (
        "measured on NVIDIA H200, driver 580.1, CuPy 14.2.0, Python 3.12.1, recorded at 0123456, 2026-01-02"
        in text
    )
    assert "measured separately, not in this run" in text


def test_targets_of_several_states_say_where_each_was_recorded() -> None:
    later = {**ENVIRONMENT, "commit": "fedcba9876543210", "modified": True}
    one, other = whole_process(110.0, 55.0), {**whole_process(90.0, 45.0), "environment": later}
    lines = report.markdown({"a": one, "b": other}).split("**whole-process")[0].splitlines()
    assert lines[2].endswith("| GPU | recorded at |") and "**Targets**" in lines[0]
    assert [line.rsplit("|", 2)[1].strip() for line in lines[4:8]] == [
        "0123456", "0123456", "fedcba9 with changes", "fedcba9 with changes",
    ]  # fmt: skip
    assert lines[4].rsplit("|", 3)[1].strip() == "H200"


@pytest.mark.parametrize(
    ("alone_us", "fused_us", "met"), [(119.0, 49.0, [True, True]), (121.0, 51.0, [False, False])]
)
def test_targets_are_read_off_the_rows(alone_us: float, fused_us: float, met: list[bool]) -> None:
    found = targets_of(whole_process(alone_us, fused_us))
    assert [target.met for target in found] == met
    assert [target.measured for target in found] == [alone_us, fused_us]
    table = report.targets_table("t", found).text()
    assert table.count("NO") == met.count(False)


@pytest.mark.parametrize("alone_us", [119.0, 121.0])
def test_times_of_one_card_are_no_failure_of_another(alone_us: float) -> None:
    record = whole_process(alone_us, 49.0)
    assert all(target.card == "" for target in targets_of(record))
    record["environment"] = {**ENVIRONMENT, "gpu": {**ENVIRONMENT["gpu"], "name": "NVIDIA L4"}}
    assert [target.card for target in targets_of(record)] == ["H200", "H200"]
    text = report.targets_table("t", targets_of(record)).text()
    assert "NO" not in text and ("no: an H200's" if alone_us > 120 else "yes: an H200's") in text


@pytest.mark.parametrize("suite", ["path", "step"])
def test_which_targets_of_the_users_path_are_of_one_card(suite: str) -> None:
    """Those in units of time; ratios are of any card."""
    record = report.load()[suite]
    other = {**ENVIRONMENT, "gpu": {**ENVIRONMENT["gpu"], "name": "NVIDIA L4"}}
    found = targets_of({**record, "environment": other})
    assert {target.card for target in found if target.unit in ("us", "ms")} == {"H200"}
    assert {target.card for target in found if target.unit == "x"} == {""}


def test_a_target_is_judged_by_its_worst_row_and_only_where_it_applies() -> None:
    record = whole_process(100.0, 40.0)
    record["rows"].append({**record["rows"][0], "batch_size": 2048, "alone_us": 500.0})
    record["rows"].append({**record["rows"][0], "graph": "products-like", "alone_us": 500.0})
    assert [target.met for target in targets_of(record)] == [True, True]


def test_the_baseline_is_held_against_a_dgl_like_sampler_on_the_same_card_only() -> None:
    row = {
        "graph": "rmat", "batch_size": 1024, "fanout": 10, "hops": 3, "kernel_us": {"block-bsp": 700.0},
        "speedup": {"persistent": 2.0, "persistent-tile": 3.0},
    }  # fmt: skip
    record = {"suite": "pgsampler-fig8", "environment": ENVIRONMENT, "rows": [row]}
    (found,) = [t for t in targets_of(record) if "DGL-like" in t.what]
    assert found.measured == pytest.approx(700 / 605) and not found.met
    other = {**ENVIRONMENT, "gpu": {**ENVIRONMENT["gpu"], "name": "NVIDIA L4"}}
    assert not [t for t in targets_of({**record, "environment": other}) if "DGL-like" in t.what]


def test_columns_line_up_and_numbers_are_readable() -> None:
    table = Table("title", ("name", "us"), (("a", "1 234"), ("long name", "5.00")), ("a note",))
    lines = table.text().splitlines()
    assert lines[0] == "title" and lines[-1] == "a note"
    assert len({len(line) for line in lines[1:5]}) == 1
    assert table.markdown().splitlines()[2:4] == ["| name | us |", "| --- | ---: |"]
    assert [report._number(v) for v in (None, "x", 12345, 12345.6, 123.46, 1.234)] == [
        "-", "x", "12 345", "12 346", "123.5", "1.23",
    ]  # fmt: skip


def test_damaged_and_newer_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    path.write_text('{"suite": "cpu", ')
    with pytest.raises(ValueError, match=r"cpu\.json cannot be read as JSON"):
        report.load(tmp_path)
    path.write_text('{"suite": "cpu", "format": 99}')
    with pytest.raises(ValueError, match="format 99"):
        report.load(tmp_path)
    path.unlink()
    assert report.markdown(report.load(tmp_path)) == "Nothing is recorded yet."


@functools.cache
def _recorded() -> dict[str, dict[str, Any]]:
    records = report.load()
    assert len(records) > 40
    return records


@pytest.mark.parametrize("name", sorted(_recorded()))
def test_recorded_results_are_shown_in_full(name: str) -> None:
    """Every column has a value in some row, and the published values are those of the suite's paper."""
    record = _recorded()[name]
    suite = SUITES[record["suite"]]
    if suite.name == "verify":
        return
    table = report.tables(record)[0]
    shown = suite.shown(record) if suite.shown else record["rows"]
    assert table.title.startswith(f"{suite.name}: ") and len(table.rows) == len(shown)
    published = set(suite.paper.get("show", {})) | {header for header in table.header if "paper" in header}
    for header, cells in zip(table.header, zip(*table.rows, strict=True), strict=True):
        known = published | NEEDS_NCU | NEEDS_A_DISK | {late for of, late in NOT_YET if of == suite.name}
        assert set(cells) != {"-"} or header in known, header
    assert record["paper"] == json.loads(json.dumps(records.plain(suite.paper)))


def test_no_column_is_excused_longer_than_it_is_empty() -> None:
    empty = {
        (suite.name, header)
        for record in _recorded().values()
        for suite in [SUITES[record["suite"]]]
        for table in report.tables(record)[:1]
        for header, cells in zip(table.header, zip(*table.rows, strict=True), strict=True)
        if set(cells) == {"-"}
    }
    assert not NOT_YET - empty


def test_listing_and_reporting_import_nothing_heavy() -> None:
    script = (
        "import sys; from gnnsample_lab import bench; from gnnsample_lab.bench import report\n"
        "bench.list_suites(); report.markdown(report.load())\n"
        "print([name for name in ('torch', 'cupy', 'numba', 'scipy', 'pandas', 'plotly') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
