"""The checkers of notebooks 07 and 08: right answers, wrong ones with a hint of their own, blanks, nonsense."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import exercises
from gnnsample_widgets.exercises import matching
from gnnsample_widgets.feedback import Feedback

import gnnsample_lab as lab
from gnnsample_lab.compute.aggregation.bound import RTX_3090, aggregation_bound_us
from tests.notebooks.answers import check_answers


def right_rows(batches: list[set[int]]) -> int:
    return sum(len(now - before) for before, now in zip([set(), *batches], batches))


def right_bound(u: int, d: int, e: int, f: int, dram: float, l2: float) -> float:
    return aggregation_bound_us(u, d, e, f, dram, l2)


CASES: list[tuple[Callable[..., Feedback], list[Any], list[tuple[Any, str]]]] = [
    (
        exercises.match_degree,
        [0.75, "0.75", 3 / 4],
        [(3, "how many"), (0.6, "larger batch"), (0.5, "Jaccard"), (0.1, "Count the common")],
    ),
    (
        exercises.rows_loaded,
        [right_rows],
        [
            (lambda b: sum(map(len, b)), "Take off"),
            (lambda b: sum(len(y - x) for x, y in itertools.pairwise(b)), "Nobody comes before"),
            (lambda b: len(set().union(*b)), "would be a cache"),
            (lambda b: 2, "Each batch loads"),
            (3, "function itself"),
            (lambda b: 1 / 0, "could not be checked"),
        ],
    ),
    (
        exercises.greedy_tour,
        [[0, 2, 3, 1], (0, 2, 3, 1), np.array([0, 2, 3, 1])],
        [
            ([0, 1, 2, 3], "best of all"),
            ([1, 0, 2, 3], "Batch 0 comes first"),
            ([0, 2, 2, 1], "trained once"),
            ([0, 3, 2, 1], "has 1.0"),
        ],
    ),
    (
        exercises.printed_third,
        [1, "1"],
        [(3, "row 2"), (4, "row 2"), (2, "is second"), (7, "four batches")],
    ),
    (
        exercises.reorder_bound,
        [0.245, 0.24, 7 / 28.6],
        [(0.07, "share of all rows"), (0.098, "what is reused"), (24.5, "not percent"), (0.5, "28.6 %")],
    ),
    (
        exercises.model_speedup,
        [2.5, 2.517],
        [(0.4, "new over old"), (2.89, "leaves out"), (10, "the text says"), (5, "29 696")],
    ),
    (
        exercises.model_limit,
        [3, "3.0"],
        [(12.8, "B_s / B_g"), (2.9, "Nearly"), (10, "the text says"), (7, "infinite")],
    ),
    (
        exercises.shared_bytes,
        [1504, "1504"],
        [
            (376, "four bytes"),
            (1024, "weights of the eight"),
            (480, "partial sums lie"),
            (1084, "of its own"),
            (5, "X times Y"),
        ],
    ),
    (
        exercises.roof,
        [469, 470],
        [
            (29155, "flat part"),
            (938, "Count again"),
            (0.5, "intensity"),
            (156.3, "equation 3"),
            (10, "per byte read"),
        ],
    ),
    (
        exercises.bound,
        [right_bound],
        [
            (lambda *a: 1e3 * right_bound(*a), "thousand"),
            (
                lambda u, d, e, f, g, h: right_bound(u, d, e, f, g, 1e30) + right_bound(u, d, e, f, 1e30, h),
                "add",
            ),
            (
                lambda u, d, e, f, g, h: min(
                    right_bound(u, d, e, f, g, 1e30), right_bound(u, d, e, f, 1e30, h)
                ),
                "quicker",
            ),
            (lambda *a: 1.0, "the bound is"),
            (3.0, "function itself"),
        ],
    ),
    (
        exercises.stage_speedup,
        [1.63, 1.6, 1 / 0.615],
        [(2, "other 23 %"), (4.35, "no copies"), (0.615, "inverse"), (3, "Old time 1")],
    ),
]


def test_every_exercise_of_these_notebooks_is_tested() -> None:
    assert [case[0] for case in CASES] == [*exercises.ALL["07"], *exercises.ALL["08"]]


@pytest.mark.parametrize(("checker", "answers", "mistakes"), CASES, ids=[c[0].__name__ for c in CASES])
def test_answers(
    checker: Callable[..., Feedback], answers: list[Any], mistakes: list[tuple[Any, str]]
) -> None:
    check_answers(checker, answers, mistakes)


def test_empty_functions_count_as_blank() -> None:
    assert exercises.rows_loaded(lambda batches: ...).state == "blank"
    assert exercises.bound(lambda U, D, E, F, dram_gbps, l2_gbps: None).state == "blank"


def test_the_answers_agree_with_the_library() -> None:
    assert exercises.match_degree(lab.match_degrees([matching.FIRST, matching.SECOND])[0, 1])
    degrees = np.array(matching.DEGREES)
    assert exercises.greedy_tour(lab.reorder(degrees))
    assert lab.path_score(degrees, lab.reorder(degrees, method="exact")) == pytest.approx(1.3)

    def by_plans(batches: list[set[int]]) -> int:
        ids = [sorted(batch) for batch in batches]
        return sum(lab.match(a, b).num_loaded for a, b in zip([[], *ids], ids))

    assert exercises.rows_loaded(by_plans)

    star = lab.Graph.from_edges(range(1, 11), [0] * 10)
    block = lab.NeighborSampler(star, [-1], device="cpu").sample([0]).blocks[0]
    naive, aware = (lab.aggregation_cost(block, 256, name) for name in ("naive", "memory-aware"))

    def time(cost: Any) -> float:
        # The equations leave out the result.
        return cost.global_bytes / RTX_3090.dram_gbps + cost.shared_bytes / RTX_3090.shared_gbps

    assert exercises.model_speedup(round(time(naive) / time(aware), 1))
