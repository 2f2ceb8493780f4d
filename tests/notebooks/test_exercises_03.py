"""The checkers of notebook 03: right answers, wrong ones with a hint of their own, blanks, nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import exercises
from gnnsample_widgets.exercises import transit
from gnnsample_widgets.feedback import Feedback

import gnnsample_lab as lab
from gnnsample_lab.sampling.explain import reads, threads
from tests.notebooks.answers import check_answers

Pairs = list[tuple[int, int]]


def by_transit(pairs: Pairs) -> Pairs:
    return sorted((p for p in pairs if p[1] >= 0), key=lambda p: p[1])


CASES: list[tuple[Callable[..., Feedback], list[Any], list[tuple[Any, str]]]] = [
    (
        exercises.lists_per_warp,
        [(2, 1), [2.0, 1], np.array([2, 1]), ("2", "1")],
        [
            ((1, 2), "other way round"),
            ((1, 1), "Whose lists"),
            ((2, 4 / 3), "half-empty"),
            ((2, 2), "sort the six pairs"),
            (2, "could not be checked"),
        ],
    ),
    (
        exercises.scheduled,
        [by_transit, lambda pairs: np.array(by_transit(pairs)).reshape(-1, 2)],
        [
            (lambda pairs: sorted(pairs, key=lambda p: p[1]), "-1 is no transit"),
            (lambda pairs: [p for p in pairs if p[1] >= 0], "order of the samples"),
            (lambda pairs: sorted(p for p in pairs if p[1] >= 0), "Which half"),
            (lambda pairs: sorted(by_transit(pairs), key=lambda p: (p[1], -p[0])), "stable"),
            (lambda pairs: by_transit(pairs)[::-1], "is right"),
            (lambda pairs: 1 / 0, "could not be checked"),
            ([(0, 1)], "function itself"),
        ],
    ),
    (
        exercises.kernel,
        ["grid", "Grid ", "GRID"],
        [
            ("block", "at most 1,024"),
            ("thread block", "at most"),
            ("sub-warp", "fewer than 32"),
            ("big", "limits"),
        ],
    ),
    (
        exercises.staging,
        [101, "101", 101.0],
        [(100, "both read 100"), (800, "How many ids"), (33, "limit of the block"), (7, "How many sectors")],
    ),
    (
        exercises.index_pays,
        [30, "30", 30.0],
        [(1.5, "speed-up"), (60, "120"), (150, "must not take longer")],
    ),
    (
        exercises.dearer_reads,
        [6, "6", 6.0],
        [(17, "as shipped"), (11, "per lane"), (0, "the reads are not"), (4, "compares the sectors")],
    ),
]


def test_every_exercise_of_the_notebook_is_tested() -> None:
    assert [case[0] for case in CASES] == [*exercises.ALL["03"]]


@pytest.mark.parametrize(("checker", "answers", "mistakes"), CASES, ids=[c[0].__name__ for c in CASES])
def test_answers(
    checker: Callable[..., Feedback], answers: list[Any], mistakes: list[tuple[Any, str]]
) -> None:
    check_answers(checker, answers, mistakes)


def test_an_empty_function_counts_as_blank() -> None:
    assert exercises.scheduled(lambda pairs: ...).state == "blank"
    assert exercises.scheduled(lambda pairs: None).state == "blank"


class Two(lab.SamplingApp):
    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        return src_edges[rng.below(len(src_edges))]

    def steps(self) -> int:
        return 1

    def sample_size(self, step: int) -> int:
        return transit.SIZE


def test_the_answers_agree_with_the_library() -> None:
    ring = lab.Graph.from_edges(np.arange(10), (np.arange(10) + 1) % 10)
    calls = reads.follow(lab.run_app(ring, Two(), transit.TRANSITS, device="cpu"), 0)
    lanes = {scheme: threads.lay_out(calls, scheme, transit.WIDTH) for scheme in threads.SCHEMES}
    lists = {scheme: threads.count_warps(calls, lanes[scheme]).lists for scheme in lanes}
    assert exercises.lists_per_warp([lists[scheme].mean() for scheme in threads.SCHEMES])
    assert len(lists["transit"]) == 4

    assert exercises.kernel(threads.KERNELS[int(threads.kernel_of(300 * 10))])

    star = lab.Graph.from_edges(np.arange(800), np.full(800, 800), 801)
    for draws in (100, 101):
        result = lab.run_app(star, lab.apps.KHop((1,)), np.full(draws, 800), device="cpu")
        calls = reads.follow(result, 0)
        copied = threads.staged_sectors(calls, threads.lay_out(calls, "transit"))
        assert copied == 100 and bool(exercises.staging(draws)) == (copied < draws)
