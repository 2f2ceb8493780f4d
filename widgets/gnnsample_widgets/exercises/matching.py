"""Exercises of notebook 07: match degree, what is loaded, the greedy tour, and what it can gain."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import gnnsample_lab as lab
from gnnsample_lab.readable import percent

from ..lesson.feedback import Feedback, as_number, exercise, is_nothing, right, wrong
from .trying import lists_agree, results_of, tried

FIRST, SECOND = (0, 3, 4, 7, 9), (0, 3, 4, 12)
"""Two batches of notebook 07, global ids."""

DEGREES = (
    (1.0, 0.4, 0.5, 0.1),
    (0.4, 1.0, 0.4, 0.2),
    (0.5, 0.4, 1.0, 0.5),
    (0.1, 0.2, 0.5, 1.0),
)
"""Match degrees of four batches of notebook 07."""


def _degree(one: Any, two: Any) -> float:
    return len({*one} & {*two}) / min(len(one), len(two))


@exercise("Write a function of two sets of vertices that returns a share, and give me the function.")
def match_degree(answer: Any, batches: Any = ()) -> Feedback:
    """A function (one, two), sets of vertices, -> their match degree; tried on ``FIRST`` and ``SECOND`` and on
    ``batches``."""
    cases: list[Any] = [
        (f"For {FIRST} and {SECOND}", ({*FIRST}, {*SECOND})),
        (f"For {SECOND} and {FIRST}", ({*SECOND}, {*FIRST})),
        ("For (1, 2) and (3, 4, 5)", ({1, 2}, {3, 4, 5})),
    ]
    sets = [set(batch.to_cpu().node_ids.tolist()) for batch in batches[:3]]
    cases += [("For two of the batches above", pair) for pair in itertools.pairwise(sets)]
    return tried(
        answer,
        "match_degree",
        cases,
        _degree,
        [
            (
                lambda a, b: len(a & b),
                "that is how many they have in common. A degree is a share: of which batch?",
            ),
            (
                lambda a, b: len(a & b) / max(len(a), len(b)),
                "you divided by the larger batch. The formula takes the smaller one.",
            ),
            (
                lambda a, b: len(a & b) / len(a | b),
                "that is the share of the union, the Jaccard index. The formula takes the smaller batch.",
            ),
            (
                lambda a, b: len(a & b) / len(a),
                "you divided by the first batch. The formula takes the smaller one.",
            ),
            (
                lambda a, b: len(a & b) / len(b),
                "you divided by the second batch. The formula takes the smaller one.",
            ),
        ],
        "What two batches share, over the smaller one. Counting through sets takes a while; lab.match_degrees does "
        "a whole window at once.",
    )


_LOAD_CASES: tuple[tuple[list[set[int]], int], ...] = (
    ([{0, 3, 4, 7, 9}, {0, 3, 4, 12}], 6),
    ([{1, 2, 6}, {3, 4}, {1, 2, 5}], 8),
    ([{1, 2, 3}, {2, 3}, {1, 2, 3}], 4),
    ([{5}], 1),
    ([], 0),
)


@exercise("Write a function of a list of sets that returns a number, and give me the function itself.")
def rows_loaded(answer: Any) -> Feedback:
    """A function (batches, as sets of ids in the order of training) -> rows copied with Match, without a
    cache."""
    if not callable(answer):
        return wrong("Give the function itself, without calling it: exercises.rows_loaded(my_function).")
    for batches, expected in _LOAD_CASES:
        returned = answer([set(batch) for batch in batches])
        if is_nothing(returned):
            return Feedback("blank", "The function returns nothing yet.")
        given = as_number(returned)
        if given == expected:
            continue
        case = f"For {batches} your function gives {given:g}, and it should be {expected}"
        if given == sum(map(len, batches)):
            return wrong(f"{case}. Take off what the batch before has left on the device.")
        if batches and given == expected - len(batches[0]):
            return wrong(f"{case}. Nobody comes before the first batch: it is loaded whole.")
        if given == len(set().union(*batches)):
            return wrong(
                f"{case}. Only the batch just before is still there. To keep all of them would be a cache."
            )
        return wrong(f"{case}. Each batch loads what is not in the batch before it.")
    return right("Match needs no memory of its own: it only looks at what happens to lie there already.")


@exercise("Give a matrix of four rows and four columns, such as [[1, 0.4, ...], ...].")
def astray(answer: Any) -> Feedback:
    """Match degrees of four batches for which greedy's tour has a smaller sum than the order as sampled."""
    degrees = np.array(answer, dtype=float)
    if degrees.shape != (4, 4):
        return wrong(f"Four rows and four columns are asked for, and this has shape {degrees.shape}.")
    if not np.allclose(degrees, degrees.T) or degrees.min() < 0 or degrees.max() > 1:
        return wrong(
            "A match degree lies between 0 and 1, and is the same from either side: the matrix is symmetric."
        )
    tour = lab.reorder(degrees)
    greedy, sampled = lab.path_score(degrees, tour), lab.path_score(degrees, range(4))
    if greedy < sampled - 1e-9:
        return right(
            f"Greedy goes {tour.tolist()} and has {greedy:.2f}; 0, 1, 2, 3 has {sampled:.2f}. It takes the good "
            "step now and pays for it at the end, where nobody else is left."
        )
    if tour.tolist() == [0, 1, 2, 3]:
        return wrong("Greedy goes 0, 1, 2, 3, too. Which batch must look better than 1 at the first step?")
    return wrong(
        f"Greedy goes {tour.tolist()} and has {greedy:.2f}, the order as sampled {sampled:.2f}. What does greedy's "
        "first step cost it later? Let its last step be a bad one."
    )


def _greedy(degrees: np.ndarray) -> list[int]:
    order = [0]
    while len(order) < len(degrees):
        row = np.array(degrees[order[-1]], dtype=float)
        row[order] = -1.0
        order.append(int(row.argmax()))
    return order


def _printed(degrees: np.ndarray) -> list[int]:
    degrees, order = degrees * (1 - np.eye(len(degrees))), [0]
    for _ in range(1, len(degrees)):
        last = order[-1]
        order.append(int(degrees[last].argmax()))
        degrees[last, :] = degrees[:, last] = 0
    return order


@exercise("Write a function of a matrix of match degrees that returns a tour, and give me the function.")
def mended(answer: Any, degrees: Any = None) -> Feedback:
    """A function (degrees) -> greedy's tour from batch 0, every batch once; tried on two islands, ``DEGREES``,
    ``degrees``."""
    islands = np.kron(np.eye(2), [[1, 0.5], [0.5, 1]])
    cases: list[Any] = [
        ("For four batches of which any two are alike", (np.ones((4, 4)),)),
        (f"For the degrees {DEGREES}", (np.array(DEGREES),)),
        ("For two pairs of batches with nothing between the pairs", (islands,)),
    ]
    if degrees is not None:
        cases.append(("For the window above", (np.array(degrees),)))
    return tried(
        answer,
        "mended",
        cases,
        _greedy,
        [
            (
                _printed,
                "that is Algorithm 1 as printed, and a batch comes twice. When all that is left shares nothing "
                "with the last batch, its row holds only zeros, those of visited batches too. What would never be "
                "the largest?",
            ),
            (lambda d: list(range(len(d))), "that is the order as sampled."),
            (
                lambda d: np.argsort(-d[0], kind="stable").tolist(),
                "that ranks all batches by how alike they are to the first. Look from the batch that came last.",
            ),
        ],
        "Marked with -1, a visited batch can never be the largest, and every batch is trained once. Nothing else "
        "has changed.",
        lists_agree,
    )


def _bound(degrees: np.ndarray) -> float:
    pairs = degrees[~np.eye(len(degrees), dtype=bool)]
    return float((pairs.max() - pairs.mean()) / (1 - pairs.mean()))


@exercise("Write a function of a matrix of match degrees that returns a share, and give me the function.")
def reorder_bound(answer: Any, degrees: Any = None) -> Feedback:
    """A function (degrees) -> the most that a tour can save, as a share of the rows that Match still loads, for batches
    of one size; tried on ``DEGREES`` and ``degrees``."""
    cases: list[Any] = [(f"For the degrees {DEGREES}", (np.array(DEGREES),))]
    if degrees is not None:
        cases.append(("For the window above", (np.array(degrees),)))

    def pairs(d: np.ndarray) -> np.ndarray:
        return np.asarray(d[~np.eye(len(d), dtype=bool)])

    return tried(
        answer,
        "reorder_bound",
        cases,
        _bound,
        [
            (
                lambda d: pairs(d).max() - pairs(d).mean(),
                "that is the share of all rows. Match has already saved the mean of them: what is left?",
            ),
            (
                lambda d: (pairs(d).max() - pairs(d).mean()) / pairs(d).mean(),
                "you divided by what is reused. The question is about what is still loaded.",
            ),
            (
                lambda d: (d.max() - d.mean()) / (1 - d.mean() + 1e-12),
                "the diagonal counts along: nobody goes from a batch to itself.",
            ),
            (
                lambda d: np.ptp(pairs(d)) / (1 - pairs(d).mean()),
                "a tour goes from the mean to the best, not from the worst.",
            ),
        ],
        "From the mean to the best pair, over what the mean leaves. No tour reaches it, since the best pair can be "
        "used once: a number to look at before writing any code."
        + ("" if degrees is None else f" Here: {percent(_bound(degrees))}."),
    )


@exercise("Put the explorer in place of the dots, once it stands where you want it.")
def nearer_and_dearer(answer: Any) -> Feedback:
    """The MatchExplorer in a state where reordering raises the sum of match degrees, and more rows are copied."""
    state, made = results_of(answer, "MatchExplorer")
    degrees, order = made["window"][1], made["order"]
    before, after = lab.path_score(degrees, range(len(order))), lab.path_score(degrees, order)
    cache = ", cache" if state["cache_percent"] else ""
    loads = [made["rows"][f"match{way}{cache}"][-1] for way in ("", f", {state['method']}")]
    said = f"The sum goes from {before:.2f} to {after:.2f}, the rows copied from {loads[0]:,} to {loads[1]:,}"
    if after > before and loads[1] > loads[0]:
        if made["rows"][f"match, {state['method']}"][-1] <= made["rows"]["match"][-1]:
            return right(
                f"{said}. Without the cache, reordering would not copy more: what batches share lies in the cache "
                "already, and saves nothing a second time."
            )
        return right(
            f"{said}. The degree divides by the smaller batch: a small batch looks near to everybody and saves few "
            "rows."
        )
    if state["grouping"] != "by degree":
        return wrong(
            f"{said}. Whom does the degree mislead? Batches have to differ in size: look at Seeds of a batch."
        )
    return wrong(f"{said}. Batches of unequal size are there now: go through some random seeds.")
