"""Random sampling functions: what Python makes of them on recording objects, both compilers make of them too.

Each program gives the same samples everywhere, or the same error at the same line, or the front end refuses it.
``LAB_FUZZ_PROGRAMS`` sets how many programs a test draws, ``LAB_FUZZ_SEED`` which.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

import gnnsample_lab as lab
from gnnsample_lab.sampling.engine.language import link
from gnnsample_lab.sampling.engine.language.accessors import ACCESSORS
from tests.sampling.engine import linked_programs
from tests.sampling.engine.programs import TABLES, Program, of, programs
from tests.sampling.engine.recorded_run import FIRST_SAMPLE, SEED, Outcome, compared, error_text, prepared

PER_MODULE, PROCESSES = 50, 16
COMPILERS = link.missing()


def draw(count: int, body: Callable[[Program], None], *phases: Phase) -> None:
    """Call ``body`` with random programs, the same ones every time; hypothesis makes what fails smaller."""
    test = settings(
        max_examples=count, derandomize=True, database=None, deadline=None, phases=phases or tuple(Phase),
        suppress_health_check=list(HealthCheck),
    )(given(programs())(body))  # fmt: skip
    seed(int(os.environ.get("LAB_FUZZ_SEED", 0)))(test)()


def drawn(count: int) -> list[Program]:
    found: list[Program] = []

    def body(program: Program) -> None:
        found.append(program)

    draw(count, body, Phase.generate)
    return found


def how_many(usual: int) -> int:
    return int(os.environ.get("LAB_FUZZ_PROGRAMS", usual))


# A program that is accepted takes Numba half a second or more. The first are the same ones whatever their number.
@pytest.mark.slow
@pytest.mark.parametrize("usual", [40, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_the_cpu_runs_programs_as_python_does(usual: int, tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()

    def body(program: Program) -> None:
        outcomes[compared(program, tmp_path)] += 1

    draw(how_many(usual), body)
    total = outcomes.total()
    print(dict(outcomes))
    assert outcomes["refused"] <= total / 2, outcomes
    assert outcomes["equal"] >= total / 5 and outcomes["failed"] >= total / 50, outcomes


def test_programs_speak_the_whole_language(tmp_path: Path) -> None:
    uses, kinds, dtypes = set[str](), Counter[tuple[bool, bool, bool]](), set[Any]()
    for program in drawn(280):
        app, operator = prepared(program, tmp_path)
        if operator is not None:
            uses |= operator.uses
            kinds[operator.deferred, operator.collective, operator.transits_source is not None] += 1
            dtypes |= {name for name in TABLES if f"self.{name}" in program.source.split("largest, odd,")[0]}
    assert uses == set(ACCESSORS) - {"lab_add_edge"}  # which test_edges.py holds against loops
    assert len(kinds) == 8 and kinds.total() >= 140, kinds
    assert {np.asarray(getattr(app, name)).dtype.name for name in dtypes} == {
        "int32", "int64", "float32", "float64", "bool",
    }  # fmt: skip


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    count = min(PROCESSES, os.cpu_count() or 1)
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        yield pool


@pytest.mark.slow
@pytest.mark.skipif(COMPILERS is not None, reason=f"*** PROGRAMS WERE NOT LINKED: {COMPILERS} ***")
@pytest.mark.parametrize("count", [8, pytest.param(PER_MODULE, marks=pytest.mark.exhaustive)])
def test_programs_link_into_one_module(count: int, tmp_path: Path) -> None:
    accepted = []
    for program in drawn(2 * count + 40):
        if len(accepted) < count and prepared(program, tmp_path)[1] is not None:
            accepted.append((len(accepted), program, str(tmp_path), "sm_90"))
    assert len(accepted) == count
    # Here, not in workers: each would load Numba and the compilers anew, which takes longer than these programs.
    codes = dict(map(linked_programs.compiled_program, accepted))
    macros: dict[str, int | str] = {"DEFERRED": 0, "COLLECTIVE": 0, "TRANSITS": 1, "WEIGHTED": 1, "SLOTS": 1}
    some = prepared(accepted[0][1], tmp_path)[1]
    assert linked_programs.build(some, codes, "steps/individual.cu", macros)[:4] == b"\x7fELF"


class Missing(Exception):
    """A kernel file is wanted that is not linked yet."""


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_gpu_runs_programs_as_python_does(workers: Any, tmp_path: Path) -> None:
    """Each program on the CPU too, then sample- and transit-parallel; fifty of them share each module."""
    import cupy

    from gnnsample_lab.device import runtime
    from gnnsample_lab.sampling.engine.gpu import GpuEngine
    from gnnsample_lab.sampling.engine.shape import Shape

    properties = runtime.device_properties()
    arch = f"sm_{properties['major']}{properties['minor']}"
    texts = drawn(how_many(1000))
    jobs = [(number, program, str(tmp_path), arch) for number, program in enumerate(texts)]
    expected: dict[int, Outcome] = {}
    codes: dict[int, tuple[bytes, ...]] = {}
    for number, outcome, parts in workers.imap_unordered(linked_programs.expected_of, jobs):
        if outcome is not None:
            expected[number], codes[number] = outcome, parts
    assert len(expected) >= len(texts) / 2
    ready = {number: prepared(texts[number], tmp_path) for number in sorted(expected)}
    alike: dict[Any, list[int]] = {}
    for number, (_, operator) in ready.items():
        key = (tuple(sorted(link.operator_macros(operator).items())), texts[number].weighted)
        alike.setdefault(key, []).append(number)
    groups = [
        tuple(numbers[at : at + PER_MODULE])
        for numbers in alike.values()
        for at in range(0, len(numbers), PER_MODULE)
    ]
    graphs = {weighted: of("pass", weighted=weighted).graph().to("cuda") for weighted in (False, True)}
    modules: dict[Any, Any] = {}

    def run(number: int, group: tuple[int, ...], parallelism: str, index: str) -> Outcome:
        app, operator = ready[number]
        program = texts[number]

        def provider(source: str, macros: dict[str, int | str]) -> Any:
            key = (group, source, tuple(sorted(macros.items())))
            if key not in modules:
                raise Missing(key)
            linked_programs.choose(modules[key], number)
            return modules[key]

        roots = cupy.asarray(program.initial())
        shape = Shape(app, program.roots)
        engine = GpuEngine(
            graphs[program.weighted], app, operator, shape, roots, SEED, FIRST_SAMPLE, parallelism, index,
            kernel_provider=provider,
        )  # fmt: skip
        try:
            return Outcome(tuple(step.get() for step in engine.run()))
        except lab.SamplingAppError as failed:
            return Outcome(error=error_text(failed))

    left = [(n, g, *way) for g in groups for n in g for way in (("sample", "auto"), ("transit", "always"))]
    differences = []
    while left:
        wanted, again = set(), []
        for job in left:
            with runtime.lock:
                try:
                    expected[job[0]].check(run(*job))
                except Missing as missing:
                    wanted |= set(missing.args)
                    again.append(job)
                except AssertionError as difference:
                    differences.append(f"{job[2:]}\n{texts[job[0]]!r}\n{difference}")
        links = [
            (key, ready[key[0][0]][1], {n: codes[n] for n in key[0]}, key[1], dict(key[2]), arch)
            for key in wanted
        ]
        for key, cubin in workers.imap_unordered(linked_programs.built, links):
            path = tmp_path / f"module_{len(modules)}.cubin"
            path.write_bytes(cubin)
            modules[key] = cupy.RawModule(path=str(path))
        left = again
    assert not differences, f"{len(differences)} differ:\n" + "\n\n".join(differences[:5])


FAULTS = {
    "two lists of one name": """
        v, u = transits[0], s.prev_vertex(2, 0)
        if v > 2:
            e = v.edges()
        else:
            e = u.edges()
        return e[0] if len(e) > 0 else 0
    """,
    "a list that a loop binds anew": """
        e = src_edges
        v = 0
        for _ in range(2):
            if len(e) == 0:
                return 1
            v = e[0]
            e = v.edges()
        return v
    """,
    "two arrays of one name": """
        if transits[0] > 3:
            w = self.whole
        else:
            w = self.plain
        return w[1]
    """,
    "a local that shadows a global": """
        for i in range(2):
            if i == 1:
                return LIMIT
            LIMIT = 5
        return 0
    """,
    "a local that shadows a global and is read first": """
        x = LIMIT
        LIMIT = 5
        return x
    """,
    "search among doubles": "return self.single.search(0.2)",
    "a product that wraps": "x = BIG\nreturn x * x > 0 and 1 or 2",
    "a position that is no vertex": "return src_edges[0] / 2",
}


@pytest.mark.parametrize("name", FAULTS)
def test_known_faults(name: str, tmp_path: Path) -> None:
    compared(of(FAULTS[name], roots=2), tmp_path)
