"""The checkers of notebook 09: right answers, wrong ones with a hint of their own, blanks, nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gnnsample_widgets import exercises
from gnnsample_widgets.exercises import pipelines
from gnnsample_widgets.feedback import Feedback

import gnnsample_lab as lab
from tests.notebooks.answers import check_answers

CASES: list[tuple[Callable[..., Feedback], list[Any], list[tuple[Any, str]]]] = [
    (
        exercises.samplers_of_uk,
        [2, "2"],
        [(1, "rounded down"), (7, "other way round"), (3, "rounded up")],
    ),
    (
        exercises.best_without_switching,
        [2, 2.0],
        [(3, "That is the rule's"), (1, "wait for it"), (5, "smaller of")],
    ),
    (
        exercises.switching_profit,
        [lambda m, n, t, s: m * t / n - s],
        [
            (lambda m, n, t, s: s - m * t / n, "The sign"),
            (lambda m, n, t, s: m * t - s, "share what waits"),
            (lambda m, n, t, s: m * t / n - t, "pipeline is empty"),
            (lambda m, n, t, s: 3.0, "How long do"),
            (3.0, "function itself"),
            (lambda m, n, t, s: 1 / 0, "could not be checked"),
        ],
    ),
    (
        exercises.overlap_ceiling,
        [2.4, 12 / 5],
        [(3, "equally long"), (0.417, "new over old"), (12, "a time in ms"), (1.5, "sets the pace")],
    ),
    (
        exercises.deadlocks,
        [{"B", "D"}, ["d", "b"], "BD"],
        [
            ({"A", "B"}, "In A both"),
            ({"B", "C", "D"}, "Play it"),
            ({"B"}, "in a ring"),
            ({"D"}, "In B each"),
            ({"E"}, "plans are"),
        ],
    ),
]


def test_every_exercise_of_this_notebook_is_tested() -> None:
    assert [case[0] for case in CASES] == list(exercises.ALL["09"])


@pytest.mark.parametrize(("checker", "answers", "mistakes"), CASES, ids=[c[0].__name__ for c in CASES])
def test_answers(
    checker: Callable[..., Feedback], answers: list[Any], mistakes: list[tuple[Any, str]]
) -> None:
    check_answers(checker, answers, mistakes)


def test_an_empty_function_counts_as_blank() -> None:
    assert exercises.switching_profit(lambda *_: ...).state == "blank"


def test_the_answers_agree_with_the_library() -> None:
    assert tuple(round(x, 3) for x in pipelines.UK) == tuple(
        round(lab.schedule.gnnlab_times("GCN", "UK").mean(stage) * 125, 3)
        for stage in ("sample", "extract", "train")
    )
    assert exercises.switching_profit(lab.schedule.profit)
    long = lab.schedule.stage_times(1.0, 0.1, 2.7, batches=500)
    rows = lab.schedule.allocation_sweep(long, gpus=8, staleness=None).rows
    assert exercises.best_without_switching(min(rows, key=lambda row: row["without_s"])["samplers"])


def ends(plans: list[str], members: dict[str, set[int]]) -> bool:
    """Play the plans of exercise 5: a collective ends when it is what all its members have come to."""
    left = [list(plan) for plan in plans]
    while any(left):
        now = {plan[0] for plan in left if plan}
        done = [name for name in now if all(left[r] and left[r][0] == name for r in members[name])]
        if not done:
            return False
        for name in done:
            for rank in members[name]:
                left[rank].pop(0)
    return True


def test_the_plans_block_as_the_answer_says() -> None:
    two = {"a": {0, 1}, "b": {0, 1}}
    ring = {"a": {0, 1}, "b": {1, 2}, "c": {0, 2}}
    found = {
        "A": ends(["ab", "ab"], two),
        "B": ends(["ab", "ba"], two),
        "C": ends(["ac", "ab", "bc"], ring),
        "D": ends(["ac", "ba", "cb"], ring),
    }
    assert exercises.deadlocks({name for name, passed in found.items() if not passed})
