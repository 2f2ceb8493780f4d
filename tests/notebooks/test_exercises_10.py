"""The checkers of notebook 10: right answers, wrong ones with a hint of their own, blanks, nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import exercises
from gnnsample_widgets.exercises import many_gpus
from gnnsample_widgets.feedback import Feedback

import gnnsample_lab as lab
from tests.notebooks.answers import check_answers


def per_byte(visits: np.ndarray, degree: np.ndarray, fanout: int) -> np.ndarray:
    return visits * np.minimum(degree, fanout) / (4 * degree)


CASES: list[tuple[Callable[..., Feedback], list[Any], list[tuple[Any, str]]]] = [
    (
        exercises.pulled_bytes,
        [168, "168", 168.0],
        [(160, "how long it is"), (164, "Something is missing"), (48, "That is csp"), (1, "One id goes")],
    ),
    (
        exercises.pushed_bytes,
        [48, "48"],
        [(40, "picks alone"), (44, "length"), (168, "That is pull"), (88, "places"), (7, "How many ids")],
    ),
    (
        exercises.random_cut,
        [0.75, 3 / 4],
        [(0.25, "inside"), (0.5, "two parts"), (75, "not percent"), (0.9, "How likely")],
    ),
    (
        exercises.list_score,
        [per_byte],
        [
            (lambda v, d, k: v * np.minimum(d, k), "What does the copy cost"),
            (lambda v, d, k: d, "longest lists"),
            (lambda v, d, k: v, "a visit to a long list"),
            (lambda v, d, k: -v, "best first"),
            (lambda v, d, k: 1.0, "one score each"),
            (0.5, "function itself"),
            (lambda *a: 1 / 0, "could not be checked"),
        ],
    ),
]


def test_every_exercise_of_the_notebook_is_tested() -> None:
    assert [case[0] for case in CASES] == list(exercises.ALL["10"])


@pytest.mark.parametrize(("checker", "answers", "mistakes"), CASES, ids=[c[0].__name__ for c in CASES])
def test_answers(
    checker: Callable[..., Feedback], answers: list[Any], mistakes: list[tuple[Any, str]]
) -> None:
    check_answers(checker, answers, mistakes)


def test_an_empty_function_counts_as_blank() -> None:
    assert exercises.list_score(lambda visits, degree, fanout: ...).state == "blank"


def test_the_answers_agree_with_the_library() -> None:
    def by_library(visits: np.ndarray, degree: np.ndarray, fanout: int) -> np.ndarray:
        hot = lab.distributed.hottest_lists(visits, degree.astype(int), fanout, 10**9)
        score = np.zeros(len(visits))
        score[hot.ids] = np.arange(len(visits), 0, -1)
        return score

    assert exercises.list_score(by_library)
    # One vertex of 40 in-neighbours, owned by the other rank; the traffic is counted by hand in tests of the ladder.
    assert exercises.pulled_bytes(many_gpus.ID_BYTES * (2 + many_gpus.DEGREE))
    assert exercises.pushed_bytes(many_gpus.ID_BYTES * (2 + many_gpus.FANOUT))
    cut = lab.distributed.partition(
        lab.load("arxiv-like", scale=0.02, use_cache=False), 4, "random", tolerance=4.0
    )
    assert abs(cut.cut_share - 0.75) < 0.02
