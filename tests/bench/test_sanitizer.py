"""The suite ``sanitize``: what its program runs, how launches are counted, and what is read from a tool's output."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gnnsample_lab.bench import record as records
from gnnsample_lab.bench import report, runner, sanitizer, schema
from gnnsample_lab.bench.sanitizer import program, run
from gnnsample_lab.bench.suite import Unavailable, VerificationError
from tests.bench.made_up import MadeUpSession

OUTPUT = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at look_up+0x1a0
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f0000000000 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f0000000000 of size 16 bytes
=========
========= Error: Race reported between Write access at persistent_tile+0x110 in x.cu:41
=========     and Read access at persistent_tile+0x180 in x.cu:43 [16 hazards]
=========
========= Warning: Race reported between Write access at cupy_nonzero_kernel(int *, long)+0xd0
=========     and Write access at cupy_nonzero_kernel(int *, long)+0xd0 [4 hazards]
=========
========= Uninitialized __global__ memory read of size 4 bytes
=========     at 0x160 in file.cu:34:look_up(int *)
=========
========= Host API memory access error at host access to 0x7f0000000400 of size 400 bytes
=========     Uninitialized access at 0x7f0000000404 on access by cudaMemcpy source
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: cuMemcpy+0x20 in libcuda.so
=========
========= ERROR SUMMARY: 5 errors
"""


def test_what_a_tool_says_is_counted_by_kernel() -> None:
    found = run.parse(OUTPUT)
    assert found["errors"] == {
        "look_up": 2, "persistent_tile": 1, "cupy_nonzero_kernel": 1,
        f"{run.NO_KERNEL}: Host API memory access error at host access to 0x7f0000000400 of size 400 bytes": 1,
    }  # fmt: skip
    assert found["summary"] == "ERROR SUMMARY: 5 errors"
    clean = run.parse(
        "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors)\n"
    )
    assert clean == {"summary": "RACECHECK SUMMARY: 0 hazards displayed (0 errors)", "errors": {}}
    assert run.parse("no such file") == {"summary": "", "errors": {}}


def test_every_kernel_of_the_package_is_known() -> None:
    known = run.all_kernels()
    assert {
        "sampling/neighbors/queue/tile.cu:persistent_tile", "sampling/neighbors/hops/per_hop.cu:draw_blocks",
        "compute/attention.cu:attend", "minibatch/id_map/fused.cu:insert", "sampling/engine/steps/individual.cu:walk",
    } <= set(known)  # fmt: skip
    assert len(known) > 140


class Kernel:
    """As much of CuPy's as launches need."""

    def __init__(self) -> None:
        self.shared, self.calls = 0, 0

    def __call__(self, *args: Any, **options: Any) -> str:
        self.calls += 1
        return "launched"

    @property
    def kernel(self) -> Kernel:
        return self


def test_launches_are_counted_and_all_else_passes_through() -> None:
    inner, counts = Kernel(), Counter[str]()
    module = type("Module", (), {"get_function": lambda self, name: inner, "name": "m"})()
    kernel = program.CountedModule(module, "a/b.cu", counts).get_function("k")
    assert kernel((1,), (32,), ()) == "launched" and kernel.kernel((1,), (32,), (), stream=None) == "launched"
    kernel.shared = 96
    assert (inner.calls, inner.shared, kernel.shared) == (2, 96, 96) and counts == {"a/b.cu:k": 2}


@pytest.mark.parametrize("case", ["extraction", "walks", "id_maps"])
def test_the_cases_run_and_compare(case: str) -> None:
    """On the CPU both sides are the twin's: the calls are right, and a difference would be said."""
    found = program.run("cpu", [case])[case]
    assert found["failed"] is None and found["different"] == [] and found["equal"] >= 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", sorted(set(program.CASES) - {"extraction", "walks", "id_maps"}))
def test_the_slower_cases_run_too(case: str) -> None:
    test_the_cases_run_and_compare(case)


def test_a_difference_and_an_error_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(device: str) -> Any:
        yield "same", [1], [1]
        yield "other", [1], [2]
        raise ValueError("no more")

    monkeypatch.setattr(program, "CASES", {"wrong": wrong})
    assert program.run("cpu") == {
        "wrong": {"equal": 1, "different": ["other"], "failed": "ValueError: no more"}
    }


def answers(monkeypatch: pytest.MonkeyPatch, different: list[str], output: str, silent: str = "none") -> None:
    """Every process says ``output`` of the case "neighbors" under a tool, and nothing of others; ``silent`` says
    nothing at all."""

    def ran(command: list[str]) -> run._Ran:
        case, is_under = command[-1], "--tool" in command
        launches = {"compute/attention.cu:attend": 3, "linked:walk": 7} if case == "neighbors" else {}
        found = {"equal": 5, "different": different if case == "neighbors" else [], "failed": None}
        result = {"cases": {case: found}, "launches": launches}
        text = output if case == "neighbors" else "========= ERROR SUMMARY: 0 errors"
        return run._Ran(text if is_under else "", None if case == silent else result, 1.0)

    monkeypatch.setattr(run, "find_sanitizer", lambda: "/bin/echo")
    monkeypatch.setattr(run, "_run", ran)


def test_the_record_shows_launches_and_errors_by_source(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, [], OUTPUT)
    record = records.plain(runner.run("sanitize", session=MadeUpSession(quick=False)))
    assert schema.problems(record) == []
    by_kernel = {row["kernel"]: row for row in record["rows"]}
    assert by_kernel["compute/attention.cu:attend"]["launches"] == 3
    assert by_kernel["sampling/engine/steps/individual.cu:walk"]["launches"] == 7, (
        "linked with an application"
    )
    assert by_kernel["minibatch/id_map/fused.cu:look_up"]["memcheck"] == 2
    text = report.text(record)
    assert "cupy_nonzero_kernel" in text and "not ours" in text
    others = ", ".join(case for case in program.CASES if case != "neighbors")
    assert f"memcheck: ERROR SUMMARY: 5 errors (neighbors); ERROR SUMMARY: 0 errors ({others})." in text
    assert record["verification"] == {"results_equal_to_cpu_twin": 5 * len(program.CASES)}
    assert "Never launched here: " in text
    targets = {target["what"]: target for target in record["targets"]}
    assert targets["errors in a kernel"]["measured"] == 2 and not targets["errors in a kernel"]["met"]
    assert targets["tools under which every case ran to its end"]["met"]
    answers(monkeypatch, [], "========= ERROR SUMMARY: 0 errors")
    record = records.plain(runner.run("sanitize", session=MadeUpSession(quick=False)))
    assert all(target["met"] for target in record["targets"])
    assert set(record["tools"]) == set(sanitizer.TOOLS)
    assert {tool["summary"] for tool in record["tools"].values()} == {"ERROR SUMMARY: 0 errors"}


def test_nothing_is_recorded_of_a_program_that_computes_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, ["fused-map"], OUTPUT)
    with pytest.raises(VerificationError, match="fused-map"):
        runner.run("sanitize", session=MadeUpSession(quick=False))


def test_a_case_that_ends_without_a_result_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, [], OUTPUT, silent="walks")
    with pytest.raises(VerificationError, match="ended without a result: walks"):
        runner.run("sanitize", session=MadeUpSession(quick=False))


def test_without_the_tool_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "find_sanitizer", lambda: None)
    with pytest.raises(Unavailable, match="compute-sanitizer, which comes with the CUDA toolkit"):
        runner.run("sanitize", session=MadeUpSession())


def test_an_error_is_one_of_the_kernel_that_was_launched() -> None:
    """Two sources have a kernel of that name."""
    route, walks = "distributed/sampling/gpu/csp_route.cu:report", "sampling/walks/pinsage.cu:report"
    said = run._of_sources({"report": 2, "fill": 1}, {route: 60, f"{program.LINKED}:walk": 3})
    assert said == {route: 2, "fill": 1}
    assert run._of_sources({"report": 2}, {route: 60, walks: 6}) == {"report": 2}
    tools = {"initcheck": {"errors": said}}
    found = {row["kernel"]: row["initcheck"] for row in run.rows({route: 60, walks: 6}, tools)}
    assert found == {route: 2, walks: 0}
