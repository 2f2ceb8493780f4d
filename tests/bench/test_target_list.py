"""The list of targets: all of them, the missed ones first, in a file that is written from the records."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gnnsample_lab.bench import report, runner, target_list
from gnnsample_lab.bench.suites import targets_of
from gnnsample_lab.bench.targets import at_least, at_most
from gnnsample_lab.files import read_json

SHIPPED = Path(__file__).resolve().parents[2] / "data" / "measured" / "TARGETS.md"


def shipped(name: str) -> dict[str, Any]:
    """One record of those that are shipped."""
    return read_json(SHIPPED.with_name(f"{name}.json"))


def record_of(
    alone_us: float,
    fused_us: float,
    gpu: str = "NVIDIA H200",
    quick: bool = False,
    suite: str = "whole-process",
) -> dict[str, Any]:
    """Two targets, 120 and 50 us on an H200."""
    row = {
        "graph": "rmat", "batch_size": 1024, "fanout": 10, "hops": 3, "alone_us": alone_us, "fused32_us": fused_us,
    }  # fmt: skip
    return {
        "suite": suite, "rows": [row], "settings": {"quick": quick},
        "environment": {"commit": "0123456789", "modified": False, "gpu": {"name": gpu}},
    }  # fmt: skip


def lines(text: str) -> list[list[str]]:
    """The cells of every line of the tables of targets."""
    found = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in found]


def test_a_line_says_what_was_asked_for_and_what_was_measured() -> None:
    first, second = lines(target_list.markdown({"a": record_of(110.0, 55.0, quick=True)}))
    assert first == [
        "`whole-process`", "R-MAT, 1 024 x (10, 10, 10), 32 together, each", "at most 50 us", "55.0 us", "**NO**",
        "rmat, 1024 seeds x (10, 10, 10)", "H200", "0123456", "quick",
    ]  # fmt: skip
    assert second[3:5] == ["110.0 us", "yes"], "what is met stands behind what is missed"


def test_targets_stand_under_papers_in_the_order_of_the_suites() -> None:
    records = {"cpu": shipped("cpu"), "dsp-pull": shipped("dsp-pull")}
    records |= {"b": record_of(110.0, 45.0), "a": record_of(130.0, 45.0)}
    text = target_list.markdown(records)
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## PGSampler", "## DSP", "## Ours"]
    assert [cells[4] for cells in lines(text)][:4] == ["**NO**", "yes", "yes", "yes"]
    assert "| PGSampler | 4 | 3 | 1 | 0 |" in text and "| all | 7 | 6 | 1 | 0 |" in text


def test_a_time_of_another_card_is_no_miss() -> None:
    text = target_list.markdown({"a": record_of(130.0, 45.0, gpu="NVIDIA L4"), "b": record_of(130.0, 45.0)})
    assert [(cells[4], cells[6]) for cells in lines(text)] == [
        ("**NO**", "H200"), ("no: an H200's", "L4"), ("yes: an H200's", "L4"), ("yes", "H200"),
    ]  # fmt: skip
    assert "| all | 4 | 2 | 1 | 1 |" in text


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (at_least("", 1.8, "x", [(1.79835, "")]), "1.79835 x"),
        (at_most("", 120.0, "us", [(120.04, "")]), "120.04 us"),
        (at_most("", 1.2, "x", [(1.2041, "")]), "1.2041 x"),
        (at_least("", 1.8, "x", [(1.8004, "")]), "1.80 x"),
        (at_least("", 2000.0, "x", [(1500.0, "")]), "1 500 x"),
    ],
)
def test_a_limit_that_was_just_missed_does_not_read_as_kept(found: list[Any], shown: str) -> None:
    assert report.targets_table("", found).rows[0][2] == shown


def test_the_shipped_file_is_what_the_shipped_records_make() -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    records = report.load()
    assert target_list.markdown(records) == text, (
        "renew it: gnnsample-lab bench report --targets data/measured/TARGETS.md"
    )
    assert len(lines(text)) == sum(len(targets_of(record)) for record in records.values()) > 100


def test_the_file_is_written_beside_the_readme_or_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "T.md"
    assert runner.main(["report", "--targets", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == SHIPPED.read_text(encoding="utf-8")
    assert capsys.readouterr().out == f"written: {path}\n", "the tables of the report are not printed as well"
    readme = tmp_path / "R.md"
    readme.write_text("no marks")
    path.unlink()
    assert runner.main(["report", "--readme", str(readme), "--targets", str(path)]) == 1, (
        "the README has no marks"
    )
    assert path.exists() and "is not written" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "# Targets\n\nMine.\n", "import this\n"])
def test_no_other_file_is_replaced(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.md"
    path.write_text(text)
    assert runner.main(["report", "--targets", str(path)]) == 1
    assert f"{path} is not written" in capsys.readouterr().out and path.read_text() == text
    path.write_text(SHIPPED.read_text(encoding="utf-8")[:300])
    assert runner.main(["report", "--targets", str(path)]) == 0, "an older list is renewed"
    assert path.read_text(encoding="utf-8") == SHIPPED.read_text(encoding="utf-8")


def test_what_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none").mkdir()
    assert runner.main(["report", "--out", str(tmp_path / "none"), "--targets", str(tmp_path / "T.md")]) == 1
    assert "nothing is recorded yet" in capsys.readouterr().out and not (tmp_path / "T.md").exists()
    (tmp_path / "cpu.json").write_text(json.dumps(shipped("cpu")))
    assert runner.main(["report", "--out", str(tmp_path), "--targets", str(tmp_path / "none")]) == 1, (
        "a folder"
    )
    assert "none is not written" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        runner.main(["cpu", "--targets", str(tmp_path / "T.md")])
    assert "--targets goes with report" in capsys.readouterr().err


def test_a_missing_folder_is_refused_and_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--targets", "--readme"):
        path = tmp_path / "nope" / "t.md"
        assert runner.main(["report", option, str(path)]) == 1
        assert re.match(rf"{re.escape(str(path))} is not written: .*No such file", capsys.readouterr().out)
    assert not list(tmp_path.iterdir())


def test_listing_targets_imports_nothing_heavy() -> None:
    script = (
        "import sys; from gnnsample_lab.bench import report, target_list\n"
        "target_list.markdown(report.load())\n"
        "print([name for name in ('torch', 'cupy', 'numba', 'scipy', 'pandas', 'plotly') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
