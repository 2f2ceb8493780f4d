"""The checkers of notebook 05: right answers, wrong ones with a hint of their own, blanks, nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import exercises
from gnnsample_widgets.exercises import id_map
from gnnsample_widgets.feedback import Feedback

import gnnsample_lab as lab
from tests.notebooks.answers import check_answers


def first_come(ids: list[int]) -> list[int]:
    table: dict[int, int] = {}
    for v in ids:
        if v not in table:
            table[v] = len(table)
    return [table[v] for v in ids]


def as_printed(ids: list[int]) -> list[int]:
    table: dict[int, int] = {}
    counter = 0
    for v in ids:
        if v not in table:
            table[v] = 0
            continue
        table[v] = counter
        counter += 1
    return [table[v] for v in ids]


CASES: list[tuple[Callable[..., Feedback], list[Any], list[tuple[Any, str]]]] = [
    (
        exercises.landing_slot,
        [0, "0", {0}, np.int64(0)],
        [(3, "its home"), (4, "where did 8 go"), (5, "no slot 5"), (2, "goes up"), (1, "Put in 3")],
    ),
    (
        exercises.sharing_ids,
        [{1, 6}, [6, 1], np.array([1, 6])],
        [
            ({1, 3, 6}, "the second time"),
            ({1, 3}, "Who still has 0"),
            ({3, 6}, "Who still has 0"),
            ({1, 13}, "Only 3, 1 and 6"),
            ({3}, "who gets a"),
        ],
    ),
    (
        exercises.fewest_local_ids,
        [1, "1"],
        [(32, "one step"), (2, "a third one"), (16, "in step"), (0, "in step")],
    ),
    (
        exercises.probes_when_full,
        [5.5, "5.5"],
        [(1.5, "half full"), (50.5, "one more id"), (10, "one part"), (3, "Put 0.9")],
    ),
    (
        exercises.relabelled,
        [first_come, lambda ids: np.array(first_come(ids), dtype=np.int32)],
        [
            (lambda ids: [sorted(set(ids)).index(v) for v in ids], "ranks by size"),
            (as_printed, "printed rule"),
            (lambda ids: list(range(len(ids))), "keeps the number"),
            (lambda ids: [v + 1 for v in first_come(ids)], "start at 0"),
            (lambda ids: sorted(set(first_come(ids))), "one local id is wanted"),
            (lambda ids: [9 for _ in ids], "is right"),
            ([0, 0, 1], "function itself"),
            (lambda ids: 1 / 0, "could not be checked"),
        ],
    ),
    (
        exercises.claiming_lanes,
        [{9, 11, 15, 23}, [23, 15, 11, 9]],
        [({9}, "Some are missing"), ({9, 11, 15, 23, 2}, "compare their"), ({1}, "Choose")],
    ),
]


def test_every_exercise_of_the_notebook_is_tested() -> None:
    assert [case[0] for case in CASES] == [*exercises.ALL["05"]]


@pytest.mark.parametrize(("checker", "answers", "mistakes"), CASES, ids=[c[0].__name__ for c in CASES])
def test_answers(
    checker: Callable[..., Feedback], answers: list[Any], mistakes: list[tuple[Any, str]]
) -> None:
    check_answers(checker, answers, mistakes)


def test_empty_functions_count_as_blank() -> None:
    assert exercises.relabelled(lambda ids: ...).state == "blank"
    assert exercises.relabelled(lambda ids: None).state == "blank"


def test_the_answers_agree_with_the_library() -> None:
    steps = lab.fill_steps(id_map.ARRIVING, id_map.SLOTS)
    assert steps[-1].id == 13 and exercises.landing_slot(steps[-1].probes[-1])

    last = lab.fill_steps(id_map.PRINTED, 7, polarity="printed")[-1]
    local = {key: value for key, value in zip(last.keys, last.values, strict=True) if key >= 0}
    shared = {key for key, value in local.items() if list(local.values()).count(value) > 1}
    assert exercises.sharing_ids(shared)

    ids = np.random.default_rng(0).choice(2**40, round(0.9 * 2**16), replace=False)
    assert lab.probe_statistics(ids, slots=2**16, device="cpu").mean == pytest.approx(5.5, rel=0.05)

    def by_relabel(ids: list[int]) -> Any:
        # A seed that no pick is, and its local id taken off again.
        return lab.relabel([99], [ids], 100, device="cpu").local[0] - 1

    assert exercises.relabelled(by_relabel)
