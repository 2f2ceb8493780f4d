"""The suite ``sanitize``: what its program runs, how launches are counted, and what is read from a tool's output."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gnnsample_lab.bench import record as records
from gnnsample_lab.bench import report, runner, sanitizer, schema
from gnnsample_lab.bench.sanitizer import launches, program, run
from gnnsample_lab.bench.suite import Unavailable, VerificationError
from gnnsample_lab.device import dependent, kernels
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
        self.shared, self.calls, self.ptr = 0, 0, 77

    def __call__(self, *args: Any, **options: Any) -> str:
        self.calls += 1
        return "launched"

    @property
    def kernel(self) -> Kernel:
        return self


def test_launches_are_counted_and_all_else_passes_through() -> None:
    inner, counts = Kernel(), launches.Launches()
    module = type("Module", (), {"get_function": lambda self, name: inner, "name": "m"})()
    kernel = launches.CountedModule(module, "a/b.cu", counts).get_function("k")
    assert kernel((1,), (32,), ()) == "launched" and kernel.kernel((1,), (32,), (), stream=None) == "launched"
    kernel.shared = 96
    assert (inner.calls, inner.shared, kernel.shared) == (2, 96, 96) and counts == {"a/b.cu:k": 2}


def test_launches_are_counted_whatever_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a call, by the driver's launch of an address, as collective sampling has it, and dependently."""
    inner, launched = Kernel(), []
    driver = SimpleNamespace(launchKernel=lambda function, *more: launched.append(function))
    interface = SimpleNamespace(
        cuLaunchKernelEx=lambda config, function, *_: launched.append(function), other=5
    )
    module = SimpleNamespace(get_function=lambda name: inner)
    for name, found in (
        ("cupy", SimpleNamespace(RawModule=lambda **options: module)), ("cupy_backends", SimpleNamespace()),
        ("cupy_backends.cuda", SimpleNamespace()), ("cupy_backends.cuda.api", SimpleNamespace(driver=driver)),
        ("cupy_backends.cuda.api.driver", driver),
    ):  # fmt: skip
        monkeypatch.setitem(sys.modules, name, found)  # type: ignore[arg-type]
    monkeypatch.setattr(kernels, "_load", lambda path, macros: module)
    monkeypatch.setattr(dependent, "_driver", lambda: interface)
    counts = launches.count_launches()
    kernel = kernels.load_module("compute/attention.cu").get_function("attend").kernel
    driver.launchKernel(77, 1)
    assert not counts and launched == [77], "nobody has asked for the address: the kernel is another's"
    kernel((1,), (32,), ())
    driver.launchKernel(kernel.ptr, 1)
    dependent._driver().cuLaunchKernelEx("shape", kernel.ptr, 0, 0)
    assert counts == {"compute/attention.cu:attend": 3} and launched == [77] * 3 and inner.calls == 1
    assert dependent._driver().other == 5
    monkeypatch.setattr(dependent, "_driver", lambda: None)
    launches.count_launches()
    assert dependent._driver() is None, "a GPU that is too old"


SHORT = {"extraction", "walks", "id_maps", "hops", "columns"}


@pytest.mark.parametrize("case", sorted(SHORT))
def test_the_cases_run_and_compare(case: str) -> None:
    """On the CPU both sides are the twin's: the calls are right, and a difference would be said."""
    found = program.run("cpu", [case])[case]
    least = 0 if case == "measures" else 2  # which has no twins for the CPU
    assert found["failed"] is None and found["different"] == [] and found["equal"] >= least


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", sorted(set(program.CASES) - SHORT))
def test_the_slower_cases_run_too(case: str) -> None:
    test_the_cases_run_and_compare(case)


def test_what_is_left_out_is_a_kernel_and_has_a_reason() -> None:
    assert set(launches.LEFT_OUT) <= set(run.all_kernels())
    assert all(len(reason.split()) == 1 for reason in launches.LEFT_OUT.values())


RECORD = Path(__file__).parents[2] / "data" / "measured" / "sanitizer.json"
NOT_ON_A_HOST = {
    "compute": "Torch not compiled with CUDA enabled",
    "captured_exchanges": "between instances of 'NoneType' and 'int'",  # a stream of torch's without CUDA
    "applications": "machine code of a GPU",
}  # fmt: skip
"""Cases that end early where a host stands for a GPU, and what they say. What they launch is in the record."""


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ compiles the kernels for the host")
def test_every_kernel_is_launched_by_a_case() -> None:
    """On a host in place of a GPU, or by the record where a case needs a GPU's libraries; results are the twins'."""
    said = subprocess.run(
        [sys.executable, "-m", "tests.bench.sanitized_on_host"], capture_output=True, text=True, check=False,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert program.MARK in said.stdout, said.stderr[-2000:]
    found = json.loads(said.stdout.partition(program.MARK)[2].splitlines()[0])
    assert {name: case["different"] for name, case in found["cases"].items() if case["different"]} == {}
    for name, case in found["cases"].items():
        expected = NOT_ON_A_HOST.get(name)
        assert case["failed"] is None if expected is None else expected in str(case["failed"]), (name, case)
        assert expected is not None or case["equal"] >= 2, name
    launched = {kernel for kernel, n in run.by_source(found["launches"]).items() if n}
    recorded = {row["kernel"] for row in json.loads(RECORD.read_text())["rows"] if row["launches"]}
    never = set(run.all_kernels()) - launched - recorded
    assert never == set(launches.LEFT_OUT), "a case of bench/sanitizer for each, or a word why there is none"


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
    said = run._of_sources({"report": 2, "fill": 1}, {route: 60, f"{launches.LINKED}:walk": 3})
    assert said == {route: 2, "fill": 1}
    assert run._of_sources({"report": 2}, {route: 60, walks: 6}) == {"report": 2}
    tools = {"initcheck": {"errors": said}}
    found = {row["kernel"]: row["initcheck"] for row in run.rows({route: 60, walks: 6}, tools)}
    assert found == {route: 2, walks: 0}
