"""A suite that was cut off goes on where it was: what is kept, of what, and what a record then says."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gnnsample_lab.bench import report, runner, schema
from gnnsample_lab.bench.pieces import Pieces
from gnnsample_lab.bench.session import Session

OF = {"suite": "verify", "graphs": ("a", "b")}


def at(date: str) -> dict[str, Any]:
    return {
        "date": date,
        "commit": "abcdef1",
        "modified": False,
        "cpu": "a CPU",
        "cpu_cores": 2,
        "host": None,
        "gpu": 1,
    }


def test_a_piece_is_measured_once(tmp_path: Path) -> None:
    first = Pieces(tmp_path / "x.pieces", OF, at("2026-01-01"))
    rows = first.get(("graph", 3), lambda: [{"ms": 1.23456789, "sizes": (1, 2)}])
    assert rows == [{"ms": 1.23457, "sizes": [1, 2]}] and first.earlier() == []
    rows[0]["ratio"] = 7  # a caller's own
    again = Pieces(tmp_path / "x.pieces", OF, at("2026-01-02"))
    assert again.get(("graph", 3), pytest.fail) == [{"ms": 1.23457, "sizes": [1, 2]}]
    again.get(("graph", 4), lambda: None)
    assert [(run["environment"]["date"], run["pieces"]) for run in again.earlier()] == [("2026-01-01", 1)]
    assert again.earlier_seconds >= 0 and "gpu" not in again.earlier()[0]["environment"]
    third = Pieces(tmp_path / "x.pieces", OF, at("2026-01-03"))
    assert [run["pieces"] for run in third.earlier()] == [1, 1] and third.get(
        ("graph", 4), pytest.fail
    ) is None


def test_pieces_of_something_else_are_not_resumed(tmp_path: Path) -> None:
    file = tmp_path / "x.pieces"
    Pieces(file, OF, at("2026-01-01")).get(("graph",), lambda: 1)
    other = Pieces(file, {**OF, "graphs": ("a",)}, at("2026-01-01"))
    assert other.earlier() == [] and other.get(("graph",), lambda: 2) == 2
    assert Pieces(file, OF, at("2026-01-01")).earlier() == []


@pytest.mark.parametrize(
    "line",
    ["5", "[1, 2]", "{}", '{"found": 1}', '{"key": ["b"], "found": 2, "seconds": 1, "environment": {}}'],
)
def test_a_line_that_is_no_piece_is_measured_again(tmp_path: Path, line: str) -> None:
    file = tmp_path / "x.pieces"
    Pieces(file, OF, at("2026-01-01")).get(("a",), lambda: 1)
    with file.open("a", encoding="utf-8") as opened:
        opened.write(f"{line}\n")
    again = Pieces(file, OF, at("2026-01-02"))
    assert again.get(("a",), pytest.fail) == 1 and again.get(("b",), lambda: 3) == 3
    assert len(file.read_text(encoding="utf-8").splitlines()) == 3


def test_a_line_that_was_not_written_to_its_end_is_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "x.pieces"
    first = Pieces(file, OF, at("2026-01-01"))
    for name in "abc":
        first.get((name,), lambda: 1)
    text = file.read_text(encoding="utf-8")
    file.write_text(text[:-20], encoding="utf-8")
    again = Pieces(file, OF, at("2026-01-02"))
    assert again.earlier()[0]["pieces"] == 2 and again.get(("c",), lambda: 2) == 2
    for line in file.read_text(encoding="utf-8").splitlines():
        json.loads(line)
    file.write_bytes(b"\xff\xfe no text")
    assert Pieces(file, OF, at("2026-01-03")).earlier() == []


def test_a_run_that_was_cut_off_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A suite of three graphs, the second of which fails in the first run."""
    measured: list[str] = []

    def suite(session: Session) -> dict[str, Any]:
        def rows(name: str) -> list[dict[str, Any]]:
            measured.append(name)
            if measured == ["a", "b"]:
                raise MemoryError("no room")
            return [{"graph": name, "ms": 1.0}]

        found = [row for name in "abc" for row in session.piece((name,), partial(rows, name))]
        return {"settings": {}, "verification": {}, "graphs": {}, "rows": found}

    monkeypatch.setattr(runner, "_function", lambda name: suite)
    monkeypatch.setattr(report, "text", lambda record: "")
    options = ["cpu", "--out", str(tmp_path), "--resume"]
    assert runner.main(options) == 1 and measured == ["a", "b"]
    assert (tmp_path / "cpu.pieces").exists() and not (tmp_path / "cpu.json").exists()
    assert runner.main(options) == 0 and measured == ["a", "b", "b", "c"]
    assert not (tmp_path / "cpu.pieces").exists(), "the record has them"
    record = json.loads((tmp_path / "cpu.json").read_text(encoding="utf-8"))
    assert [row["graph"] for row in record["rows"]] == ["a", "b", "c"]
    assert [run["pieces"] for run in record["resumed"]] == [1] and not schema.problems(record)
    assert "in 2 runs, no ratio between two of them" in report.origin(record)
    record["resumed"][0]["pieces"] = "one"
    assert any("resumed.pieces" in problem for problem in schema.problems(record))
    assert runner.main(["cpu", "--out", str(tmp_path)]) == 0
    record = json.loads((tmp_path / "cpu.json").read_text(encoding="utf-8"))
    assert "resumed" not in record and "runs" not in report.origin(record)
