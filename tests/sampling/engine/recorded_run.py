"""A whole run of an application by Python on recording objects: what every engine's run must equal."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.sampling.engine.language.app import NULL
from gnnsample_lab.sampling.engine.language.compile import compile_operator
from gnnsample_lab.sampling.engine.shape import Shape
from gnnsample_lab.sampling.explain.record import Fault, Recorder


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
