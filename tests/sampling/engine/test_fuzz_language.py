"""Random sampling functions: what Python makes of them on recording objects, both compilers make of them too.

Each program gives the same samples everywhere, or the same error at the same line, or the front end refuses it.
``LAB_FUZZ_PROGRAMS`` sets how many programs a test draws, ``LAB_FUZZ_SEED`` which.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings

import gnnsample_lab as lab
from gnnsample_lab.sampling.engine.language.compile import compile_operator
from tests.sampling.engine.programs import Program, of, programs
from tests.sampling.engine.recorded_run import Run

SEED, FIRST_SAMPLE = 2**35 + 11, 2**33 + 5


def drawn(count: int, body: Callable[[Program], None]) -> None:
    """Call ``body`` with random programs, the same ones every time; hypothesis makes what fails smaller."""
    count = int(os.environ.get("LAB_FUZZ_PROGRAMS", count))
    test = settings(
        max_examples=count, derandomize=True, database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )(given(programs())(body))  # fmt: skip
    seed(int(os.environ.get("LAB_FUZZ_SEED", 0)))(test)()


def python_run(program: Program, app: Any, operator: Any) -> Run:
    return Run(program.graph(), app, program.initial(), SEED, FIRST_SAMPLE, operator)


def compared(program: Program, folder: Path, device: str = "cpu", **knobs: Any) -> str:
    """ "refused", "failed" or "equal"; an ``AssertionError`` where the runs differ."""
    app = program.load(folder)
    app.prepare(program.graph())
    try:
        operator = compile_operator(app, program.graph())
    except lab.SamplingAppError as refused:
        assert '"program_' in str(refused), refused
        return "refused"
    own = python_run(program, app, operator)
    try:
        result = lab.run_app(
            program.graph(), app, program.initial(), device=device, seed=SEED, first_sample=FIRST_SAMPLE, **knobs
        )  # fmt: skip
    except lab.SamplingAppError as failed:
        assert own.fault is not None, f"compiled: {failed}"
        assert str(failed) == str(own.error())
        return "failed"
    assert own.fault is None, f"Python: {own.error()}"
    for mine, compiled in zip(own.steps, result.to_cpu().steps, strict=True):
        np.testing.assert_array_equal(compiled, mine)
    return "equal"


def test_the_cpu_runs_programs_as_python_does(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()

    def body(program: Program) -> None:
        outcomes[compared(program, tmp_path)] += 1

    drawn(300, body)
    print(dict(outcomes))
    total = outcomes.total()
    assert outcomes["refused"] <= total / 2, outcomes
    assert outcomes["equal"] >= total / 4 and outcomes["failed"] >= total / 50, outcomes


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
