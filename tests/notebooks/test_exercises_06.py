"""The checkers of notebook 06: right answers, wrong ones with a hint of their own, blanks, nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import exercises
from gnnsample_widgets.exercises import caching
from gnnsample_widgets.feedback import Feedback

import gnnsample_lab as lab
from gnnsample_lab.features.ranking.footprint import Footprint
from tests.notebooks.answers import check_answers


def top(f: np.ndarray, share: float) -> set[int]:
    accessed = [v for v in range(len(f)) if f[v]]
    return set(sorted(accessed, key=lambda v: -f[v])[: round(share * len(accessed))])


def right_similarity(f_i: np.ndarray, f_j: np.ndarray, share: float) -> float:
    both = top(f_i, share) & top(f_j, share)
    return float(sum(min(f_i[v], f_j[v]) for v in both) / sum(f_i[v] for v in top(f_i, share)))


def shared_in_full(f_i: np.ndarray, f_j: np.ndarray, share: float) -> float:
    return float(
        sum(f_i[v] for v in top(f_i, share) & top(f_j, share)) / sum(f_i[v] for v in top(f_i, share))
    )


def over_all_visits(f_i: np.ndarray, f_j: np.ndarray, share: float) -> float:
    return float(sum(min(f_i[v], f_j[v]) for v in top(f_i, share) & top(f_j, share)) / f_i.sum())


def not_in_both(f_i: np.ndarray, f_j: np.ndarray, share: float) -> float:
    return float(sum(min(f_i[v], f_j[v]) for v in top(f_i, share)) / sum(f_i[v] for v in top(f_i, share)))


def of_all_vertices(f_i: np.ndarray, f_j: np.ndarray, share: float) -> float:
    count = round(share * len(f_i))
    first, second = (set(np.argsort(-f, kind="stable")[:count].tolist()) for f in (f_i, f_j))
    return float(sum(min(f_i[v], f_j[v]) for v in first & second) / sum(f_i[v] for v in first))


CASES: list[tuple[Callable[..., Feedback], list[Any], list[tuple[Any, str]]]] = [
    (
        exercises.ever_read,
        [{1, 3}, [3, 1], np.array([1, 3])],
        [
            ({3}, "own features"),
            ({1, 2}, "goes along"),
            ({0, 1, 2}, "goes along"),
            ({1, 2, 3}, "leads away"),
            ({0, 1, 2, 3}, "all vertices"),
            ({0}, "Which edges end at 1"),
        ],
    ),
    (
        exercises.degree_hit_rate,
        [0.1, "0.1", 1 / 10],
        [
            (0.9, "optimal policy"),
            (0.4, "cache ratio"),
            (0.7, "share of the edges"),
            (10, "not percent"),
            (0.6, "Which two"),
        ],
    ),
    (
        exercises.fewer_bytes,
        [62, "62", 62.0],
        [(99 / 38, "compares hits"), (1 / 62, "Turn it round"), (61, "difference"), (5, "How many rows")],
    ),
    (
        exercises.similarity,
        [right_similarity],
        [
            (shared_in_full, "in full"),
            (not_in_both, "in both epochs"),
            (over_all_visits, "below the line"),
            (of_all_vertices, "not of all vertices"),
            (lambda *a: 2.0, "is right"),
            (0.5, "function itself"),
            (lambda *a: 1 / 0, "could not be checked"),
        ],
    ),
]


def test_every_exercise_of_the_notebook_is_tested() -> None:
    assert [case[0] for case in CASES] == list(exercises.ALL["06"])


@pytest.mark.parametrize(("checker", "answers", "mistakes"), CASES, ids=[c[0].__name__ for c in CASES])
def test_answers(
    checker: Callable[..., Feedback], answers: list[Any], mistakes: list[tuple[Any, str]]
) -> None:
    check_answers(checker, answers, mistakes)


def test_an_empty_function_counts_as_blank() -> None:
    assert exercises.similarity(lambda f_i, f_j, top: ...).state == "blank"


def test_the_answers_agree_with_the_library() -> None:
    graph = lab.Graph.from_edges([0, 1, 3, 2, 3], [2, 2, 2, 0, 1], num_nodes=4)
    sampler = lab.NeighborSampler(graph, [-1, -1], device="cpu")
    assert exercises.ever_read(lab.footprint(sampler, [1], 1).visits.nonzero()[0])

    visits = np.array(caching.VISITS)
    counted = Footprint(visits, 6, int(visits.sum()))
    assert exercises.degree_hit_rate(lab.hit_rate(np.array(caching.OUT_DEGREE), counted, 2 / 5))

    def by_library(f_i: np.ndarray, f_j: np.ndarray, share: float) -> float:
        first, second = (Footprint(f, int(f.max()), int(f.sum())) for f in (f_i, f_j))
        return lab.epoch_similarity(first, second, share)

    assert exercises.similarity(by_library)
