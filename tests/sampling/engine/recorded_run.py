"""A whole run of an application by Python on recording objects, and the compiled runs that must equal it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gnnsample_lab as lab
from gnnsample_lab.sampling.engine.language.app import NULL
from gnnsample_lab.sampling.engine.language.compile import compile_operator
from gnnsample_lab.sampling.engine.shape import Shape
from gnnsample_lab.sampling.explain.record import Fault, Recorder
from tests.sampling.engine.programs import Program

SEED, FIRST_SAMPLE = 2**35 + 11, 2**33 + 5


class Run:
    """Grows the samples step by step; like the engines, it goes on after a failure and keeps the first one.

    Attributes:
        steps: ids ``[S, width]`` of every step.
        fault: row and :class:`Fault` of the failure that the engines report, or None.
    """

    def __init__(
        self, graph: Any, app: Any, roots: np.ndarray, seed: int = 0, first_sample: int = 0, operator: Any = None
    ) -> None:  # fmt: skip
        app.prepare(graph)
        self.app, self.shape = app, Shape(app, roots.shape[1])
        self.operator = operator if operator is not None else compile_operator(app, graph)
        self.history = [np.asarray(roots, dtype=np.int64)]
        self.recorder = Recorder(graph, app, self.operator, self.history, seed, first_sample, roots.copy())
        self.fault: tuple[int, Fault] | None = None
        for step in range(self.shape.bound):
            shape = self.shape[step]
            grown = np.full((len(roots), shape.width), NULL, dtype=np.int64)
            for row in range(len(roots)):
                grown[row] = self._sample(row, step, shape)
            self.history.append(grown)
        self.steps = self.history[1:]

    def error(self) -> Any:
        """The error that the run ends with."""
        assert self.fault is not None
        return self.recorder.error(*self.fault)

    def _guarded(self, row: int, function: Any, *arguments: Any, **more: Any) -> int:
        try:
            return int(function(row, *arguments, **more))
        except Fault as fault:
            key = (row, fault.line, fault.code)
            if self.fault is None or key < (self.fault[0], self.fault[1].line, self.fault[1].code):
                self.fault = row, fault
            return NULL

    def _sample(self, row: int, step: int, shape: Any) -> list[int]:
        call, m, collective = self.recorder, shape.size, self.app.is_collective
        transits = [self._guarded(row, call.step_transits, step, k) for k in range(shape.transits)]
        if all(v == NULL for v in transits):
            return [NULL] * shape.width

        def draw(slot: int, attempt: int) -> int:
            if collective:
                return self._guarded(row, call.next, step, 0, slot, transits, m, attempt)
            k, j = divmod(slot, m)
            if transits[k] == NULL:
                return NULL
            return self._guarded(row, call.next, step, k, j, (transits[k],), m, attempt)

        values = [draw(slot, 0) for slot in range(shape.width)]
        if not shape.unique:
            return values
        kept: set[int] = set()
        missing = []
        for slot, v in enumerate(values):
            if v in kept:
                missing.append(slot)
            kept |= {v} - {NULL}
        for attempt in range(1, self.app.max_redraws + 1):
            repeated = []
            for slot in missing:
                v = values[slot] = draw(slot, attempt)
                if v in kept:
                    repeated.append(slot)
                kept |= {v} - {NULL}
            missing = repeated
        for slot in missing:
            values[slot] = NULL
        return values


@dataclass(frozen=True)
class Outcome:
    """What a run gives: its steps, or its error's text, in which the file has no number."""

    steps: tuple[Any, ...] = ()
    error: str = ""

    def check(self, other: Outcome) -> None:
        """Raise an ``AssertionError`` where a compiled run gives something else."""
        assert other.error == self.error, (
            f"compiled: {other.error or 'no error'}\nPython: {self.error or 'none'}"
        )
        for mine, compiled in zip(self.steps, other.steps, strict=True):
            np.testing.assert_array_equal(compiled, mine)


def error_text(error: lab.SamplingAppError) -> str:
    return re.sub(r"program_\d+\.py", "program.py", str(error))


def by_python(program: Program, app: Any, operator: Any) -> Outcome:
    run = Run(program.graph(), app, program.initial(), SEED, FIRST_SAMPLE, operator)
    return Outcome(error=error_text(run.error())) if run.fault else Outcome(tuple(run.steps))


def compiled(program: Program, app: Any, device: str = "cpu", **knobs: Any) -> Outcome:
    try:
        result = lab.run_app(
            program.graph(), app, program.initial(), device=device, seed=SEED, first_sample=FIRST_SAMPLE, **knobs
        )  # fmt: skip
    except lab.SamplingAppError as failed:
        return Outcome(error=error_text(failed))
    return Outcome(tuple(result.to_cpu().steps))


def prepared(program: Program, folder: Path) -> tuple[Any, Any]:
    """The application and its operator, None where the front end refuses it, with a line."""
    app = program.load(folder)
    app.prepare(program.graph())
    try:
        return app, compile_operator(app, program.graph())
    except lab.SamplingAppError as refused:
        assert 'File "program_' in str(refused), refused
        return app, None


def compared(program: Program, folder: Path) -> str:
    """ "refused", "failed" or "equal"; an ``AssertionError`` where the CPU's run is not Python's."""
    app, operator = prepared(program, folder)
    if operator is None:
        return "refused"
    expected = by_python(program, app, operator)
    expected.check(compiled(program, app))
    return "failed" if expected.error else "equal"
