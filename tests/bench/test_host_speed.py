"""A record says how quick its host was, and a suite has room for its graphs whatever ran before."""

from __future__ import annotations

from typing import Any

import pytest

from gnnsample_lab.bench import host_speed, quick_core, report, runner, schema
from gnnsample_lab.bench.session import Session
from gnnsample_lab.device import runtime
from tests.bench.made_up import MadeUpSession


def test_a_host_is_as_quick_as_its_loop_and_its_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    loops = iter([900.0] * 2 + [100.0] * 11 + [1.0] * 2 + [99.0] * 15)
    monkeypatch.setattr(quick_core, "loop_us", lambda turns: next(loops))
    monkeypatch.setattr(runtime, "cuda_available", lambda: False)
    found = host_speed.host_speed()
    assert found["python_us"] == 100.0 and found["launch_us"] is None and found["p90_python_us"] > 100.0
    assert (found["quick_python_us"], found["cores"]) == (99.0, 0)

    monkeypatch.setattr(quick_core, "loop_us", lambda turns: 100.0)
    monkeypatch.setattr(quick_core, "cores", lambda: [0, 1, 2])
    monkeypatch.setattr(quick_core, "_move", lambda allowed: None)
    monkeypatch.setattr(runtime, "cuda_available", lambda: True)
    monkeypatch.setattr(host_speed, "launch_times", lambda: [9.0, 7.0, 8.0])
    found = host_speed.host_speed()
    assert (
        found["cores"] == 3
        and found["launch_us"] == 8.0
        and found["p10_launch_us"] < 8.0 < found["p90_launch_us"]
    )


def test_a_loop_of_python_takes_time() -> None:
    assert 0 < host_speed.host_speed()["python_us"] < 1e6


@pytest.mark.gpu
def test_a_launch_and_its_wait_take_microseconds() -> None:
    times = host_speed.launch_times()
    assert len(times) == 5 and 1 < min(times) < 1e4


def _record(monkeypatch: pytest.MonkeyPatch, session: Session) -> dict[str, Any]:
    """Of a suite that measures nothing."""
    nothing: dict[str, Any] = {"settings": {}, "verification": {}, "graphs": {}, "rows": []}
    monkeypatch.setattr(runner, "_function", lambda name: lambda session: nothing)
    return runner.run("verify", session=session)


def test_a_record_and_its_report_say_how_quick_the_host_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the suite and after it: a host that is shared need not stay as it was."""
    before, after = {"python_us": 321.4, "launch_us": 8.06}, {"python_us": 590.1, "launch_us": None}
    found = iter([before, after])
    monkeypatch.setattr(host_speed, "host_speed", lambda: next(found))
    record = _record(monkeypatch, MadeUpSession())
    at = record["environment"]
    assert (at["host"], at["host_after"]) == (before, after) and not schema.problems(record)
    said = "on its host a launch and its wait 8.1 us, 10 000 turns of a loop 321 us (590 after the suite)"
    assert said in report.origin(record)
    at["host"]["launch_us"] = None
    assert not schema.problems(record)
    said = "on its host 10 000 turns of a loop 321 us (590 after the suite)"
    assert f"{said}, Python" in report.origin(record)
    at["host"] |= {"cores": 16, "quick_python_us": 260.4}
    assert f"{said}, 260 on the quickest of 16 cores, Python" in report.origin(record)
    assert not schema.problems(record)
    at["host"]["quick_python_us"] = None
    assert any("host.quick_python_us" in problem for problem in schema.problems(record))
    del at["host"]["cores"]
    for when in ("host_after", "host"):
        at[when]["python_us"] = "quick"
        assert any(f"environment.{when}.python_us" in problem for problem in schema.problems(record))
        del at[when]
    assert "its host" not in report.origin(record) and not schema.problems(record)


@pytest.mark.parametrize(("free", "kept"), [(20e9, False), (40e9, True)])
def test_what_earlier_suites_keep_is_dropped_where_it_would_leave_no_room(
    monkeypatch: pytest.MonkeyPatch, free: float, kept: bool
) -> None:
    said: list[str] = []
    session = Session(say=said.append)
    session.kept("a graph", object)
    monkeypatch.setattr(runtime, "cuda_available", lambda: True)
    monkeypatch.setattr(runtime, "gpu_memory", lambda: (int(free), int(80e9)))
    forgot: list[bool] = []
    monkeypatch.setattr(session, "forget", lambda: forgot.append(True))
    session.make_room()
    assert bool(forgot) is not kept
    assert len(said) == (not kept) and all("20.0 GB of 80.0 are free" in line for line in said)


def test_a_suite_begins_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    session, asked = MadeUpSession(), list[str]()
    monkeypatch.setattr(session, "make_room", lambda: asked.append("room"))
    _record(monkeypatch, session)
    assert asked == ["room"]
