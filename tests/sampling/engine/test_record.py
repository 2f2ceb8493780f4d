"""The user's own functions on recording objects: the engine's samples, its numbers and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.sampling.engine.cpu import memory
from gnnsample_lab.sampling.engine.language import accessors
from gnnsample_lab.sampling.engine.language.compile import compile_operator
from gnnsample_lab.sampling.explain import record
from tests.sampling.engine.recorded_run import Run
from tests.sampling.engine.toy_apps import APPS, toy_graph, toy_roots

SEED, FIRST = 2**40 + 7, 2**33 + 1


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", APPS)
def test_a_run_by_python_is_the_engines_run(name: str, weighted: bool) -> None:
    graph, roots = toy_graph(weighted), toy_roots(name)
    compiled = lab.run_app(graph, APPS[name], roots, device="cpu", seed=SEED, first_sample=FIRST)
    own = Run(graph, APPS[name], roots, SEED, FIRST)
    assert own.fault is None
    assert [s.tolist() for s in own.steps] == [s.tolist() for s in compiled.steps]


class One(lab.SamplingApp):
    """A call of ``next`` per sample."""

    largest = 2**63 - 1
    floats = np.array([0.5, -0.0, np.nan])
    flags = (True, False)

    def steps(self) -> int:
        return 1

    def sample_size(self, step: int) -> int:
        return 1


def value_of(app: Any, graph: Any = None) -> int:
    run = Run(graph or toy_graph(), app, np.array([[5]]))
    if run.fault:
        raise run.error()
    return int(run.steps[0][0, 0])


def test_whole_numbers_wrap_at_64_bits() -> None:
    class Wraps(One):
        def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
            x = 3037000500
            y = self.largest
            y += 1
            z = -9223372036854775807 - 1
            for _ in range(3):
                x = x * x
            return (x * 0 + (y < 0)) * 8 + (-z == z) * 4 + (z // -1 == z) * 2 + (abs(z) < 0)

    assert value_of(Wraps()) == 15


def test_flags_are_numbers_in_arithmetic_alone() -> None:
    class Flags(One):
        def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
            both = (step == 0) + self.largest
            return (
                (both < 0) * 8 + (self.flags[0] and not self.flags[1]) * 4 + (True + True) + -(~False + False)
            )

    assert value_of(Flags()) == 15


def test_whole_numbers_become_doubles_beside_doubles() -> None:
    class Compares(One):
        def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
            odd, even = 2**53 + 1, 9007199254740992.0
            return (odd == even) * 8 + (even >= odd) * 4 + (not odd > even) * 2 + (odd / 1 == even)

    class Constants(One):
        def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
            return int(self.floats[0] * 7) + (self.floats[2] != self.floats[2]) + (1 if self.floats[1] else 0)

    assert value_of(Compares()) == 15
    assert value_of(Constants()) == 4


class Fails(One):
    """``self.which`` says how."""

    table = np.array([3, 4])

    def __init__(self, which: int) -> None:
        self.which = which

    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        none = step * 0
        if self.which == 1:
            return src_edges[-1 + none]
        if self.which == 2:
            return (none + 99).degree()
        if self.which == 3:
            return rng.below(none)
        if self.which == 4:
            return 1 // none
        if self.which == 5:
            raise ValueError("no good")
        if self.which == 6:
            return 41 + none
        if self.which == 7:
            s.roots.replace(39, 1)
        if self.which == 8:
            return transits[none + 1]
        if self.which == 9:
            return self.table[2 + none]
        assert self.which != 10, "ten"
        return self.divided(none)

    def divided(self, by: int) -> Any:
        return int(1.0 / by)


@pytest.mark.parametrize("which", range(1, 12))
def test_failures_read_as_the_engines(which: int) -> None:
    graph, roots = toy_graph(), np.array([[5], [7]])
    with pytest.raises(lab.SamplingAppError) as compiled:
        lab.run_app(graph, Fails(which), roots, device="cpu", first_sample=3)
    run = Run(graph, Fails(which), roots, 0, 3)
    assert run.fault is not None and str(run.error()) == str(compiled.value)


def test_loops_without_end_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    assert record.MAX_ROUNDS == memory.MAX_ROUNDS == 2**20  # which take seconds here
    monkeypatch.setattr(record, "MAX_ROUNDS", 1000)

    class Endless(One):
        def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
            while step < 1:
                step -= 1
            return 0

    run = Run(toy_graph(), Endless(), np.array([[5]]))
    assert run.fault is not None and run.fault[1].code == accessors.ENDLESS_LOOP
    assert "while step < 1" in str(run.error())


LIMIT = 2**63 - 1


def min(a: Any, b: Any) -> Any:  # shadows the built-in
    return a + b


def test_names_are_the_programs() -> None:
    shift = 3

    class Names(One):
        def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
            return min(shift, 4) + (min(LIMIT, 1) > 0)

    assert value_of(Names()) == 7


def test_what_is_no_vertex_is_not_returned() -> None:
    class Halves(One):
        def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
            return src_edges[0] / 2

    other = compile_operator(APPS["walk"])
    recorder = record.Recorder(toy_graph(), Halves(), other, [np.array([[5]])])
    with pytest.raises(TypeError, match="which is no vertex"):
        recorder.next(0, 0, 0, 0, (5,), 1)
