"""A process under Nsight Compute, with a stand-in for ``ncu``, and what is read of what it prints."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnnsample_lab.bench import profiler

METRICS = {"time": "us", "sectors": "sectors"}
HEAD = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'


def test_launches_are_read_in_their_order() -> None:
    lines = [
        "==PROF== Connected to process 1", HEAD,
        '"10","draw(Plan)","time","ns","1,200"', '"9","scan","time","ns","7"', '"9","scan","other","","1"',
        '"10","draw(Plan)","sectors","","n/a"', '"","draw","time","ns","5"', '"9","scan","sectors","","3"',
    ]  # fmt: skip
    text = "\n".join(lines)
    scan, draw = {"kernel": "scan", "us": 7, "sectors": 3}, {"kernel": "draw", "us": 1200}
    assert profiler.launches(text, METRICS) == [scan, draw]
    assert profiler.launches(text, METRICS, ["draw"]) == [draw]
    assert profiler.launches(text, ["time"]) == [
        {"kernel": "scan", "time": 7},
        {"kernel": "draw", "time": 1200},
    ]
    assert profiler.launches("==ERROR== no permission", METRICS) == []


def test_all_numbers_are_in_base_units() -> None:
    line = profiler.command("ncu", "a.module", [Path("task.npz"), 3], METRICS, ["draw", "scan"])
    assert line[line.index("--print-units") + 1] == "base"
    assert line[line.index("--metrics") + 1] == "time,sectors"
    assert line[line.index("--kernel-name") + 1] == "regex:^(draw|scan)$"
    assert line[-5:] == [sys.executable, "-m", "a.module", "task.npz", "3"]
    assert "--kernel-name" not in profiler.command("ncu", "a.module", [], METRICS)


@pytest.fixture
def ncu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Puts a script in the place of ``ncu``."""

    def stand_in(script: str) -> None:
        tool = tmp_path / "ncu"
        tool.write_text(f"#!{sys.executable}\n{script}\n")
        tool.chmod(0o755)
        monkeypatch.setattr(profiler, "find_ncu", lambda: str(tool))

    monkeypatch.setattr(profiler.tempfile, "gettempdir", lambda: str(tmp_path))
    return stand_in


def test_it_says_why_there_are_no_numbers(ncu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seconds: float = 30) -> tuple[str, str]:
        return profiler.run("a.module", [], METRICS, seconds=seconds)

    ncu(f"print({HEAD!r})")
    assert run() == (f"{HEAD}\n", "")
    ncu("import sys; print('==PROF== Connected'); sys.exit('==ERROR== ERR_NVGPUCTRPERM')")
    assert run() == ("", "ncu gave no numbers (==ERROR== ERR_NVGPUCTRPERM)")
    ncu(f"import sys; print({HEAD!r}); sys.exit('==ERROR== cut off')")
    assert run() == (f"{HEAD}\n==ERROR== cut off\n", "")
    ncu("")
    assert run() == ("", "ncu gave no numbers (no output)")
    ncu("import time; time.sleep(60)")
    assert run(0.5) == ("", "ncu did not run (TimeoutExpired)")
    monkeypatch.setattr(profiler, "find_ncu", lambda: "/no/such/tool")
    assert run() == ("", "ncu did not run (FileNotFoundError)")
    monkeypatch.setattr(profiler, "find_ncu", lambda: None)
    assert run() == ("", profiler.NO_NCU)


def test_a_process_waits_for_its_turn_and_has_its_time_then(ncu: Any) -> None:
    ncu(f"print({HEAD!r})")
    began, let_go = threading.Event(), threading.Event()

    def other() -> None:
        with profiler.turn():
            began.set()
            let_go.wait(20)

    holder = threading.Thread(target=other)
    holder.start()
    assert began.wait(20)
    found: list[tuple[str, str]] = []
    late = threading.Thread(target=lambda: found.append(profiler.run("a.module", [], METRICS, seconds=10)))
    late.start()
    time.sleep(1.0)
    waited = not found
    let_go.set()
    holder.join(20)
    late.join(30)
    assert waited and found == [(f"{HEAD}\n", "")]


def test_another_users_lock_does_not_keep_us_out(ncu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_ours(target: Path) -> Any:
        raise PermissionError(target)

    monkeypatch.setattr(profiler, "exclusive", not_ours)
    ncu(f"print({HEAD!r})")
    assert profiler.run("a.module", [], METRICS) == (f"{HEAD}\n", "")
