"""Exercises of notebook 10: what travels for one list, what chance cuts, and which lists to copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..feedback import Feedback, as_number, exercise, is_nothing, right, wrong

DEGREE, FANOUT, ID_BYTES = 40, 10, 4
"""One remote vertex: its in-neighbours, how many are picked, bytes of an id and of a length."""


@exercise("Give a number of bytes: the request, the length of the list, and the list.")
def pulled_bytes(answer: Any) -> Feedback:
    """A remote vertex with 40 in-neighbours, fanout 10, 4 bytes each for ids and lengths: bytes by pull?"""
    given = as_number(answer)
    if given == 168:
        return right(
            "4 for the id, 4 for the length, 4 x 40 for the list; of the 40 neighbours 30 are thrown away."
        )
    if given == 160:
        return wrong("That is the list. Somebody had to ask for it, and to say how long it is.")
    if given in (164, 44):
        return wrong("Something is missing: the id goes there, the length and the list come back.")
    if given == 48:
        return wrong("That is csp. With pull the rank that asks draws, so it needs all 40.")
    return wrong("One id goes to the owner. What comes back so that the asker can draw 10 of 40?")


@exercise("Give a number of bytes: the request, the length of the list, and the picks.")
def pushed_bytes(answer: Any) -> Feedback:
    """The same vertex by csp: bytes?"""
    given = as_number(answer)
    if given == 48:
        return right(
            "4 for the id, 4 for the length, 4 x 10 for the picks. Which places of the list they had follows from the "
            "length, because draws are keyed: nobody sends it. With a degree of 10 or less, csp and pull move the same."
        )
    if given == 40:
        return wrong("Those are the picks alone, the ideal. Somebody had to ask for them.")
    if given in (44,):
        return wrong("The asker also needs the length of the list, to repeat the draw.")
    if given == 168:
        return wrong("That is pull. With csp the owner draws, and only what it picked comes back.")
    if given == 88:
        return wrong(
            "The places of the picks need not be sent: draws are keyed, so the asker can repeat them."
        )
    return wrong("One id goes to the owner, who draws. How many ids come back, and what else?")


@exercise("Give a share between 0 and 1.")
def random_cut(answer: Any) -> Feedback:
    """Vertices are dealt to 4 parts at random: the expected share of the edges that are cut?"""
    given = as_number(answer)
    if abs(given - 0.75) < 6e-3:
        return right(
            "The other end lies in the same part with probability 1/4. With 8 parts it is 7/8 already."
        )
    if abs(given - 0.25) < 6e-3:
        return wrong("That is the share of the edges that stay inside a part.")
    if abs(given - 0.5) < 6e-3:
        return wrong("That holds for two parts.")
    if 1 < given <= 100:
        return wrong("Give a share between 0 and 1, not percent.")
    return wrong("One end lies in some part. How likely does the other end, dealt at random, lie in another?")


_CASES: tuple[tuple[list[int], list[int], int], ...] = (
    ([9, 12, 7, 2], [90, 4, 200, 2], 10),
    ([3, 8, 2, 6, 4], [4, 100, 2, 30, 9], 5),
    ([10, 10, 10], [5, 50, 500], 10),
)


@exercise(
    "Write a function of visits, degree and fanout that returns one score per vertex, and give me the function."
)
def list_score(answer: Any) -> Feedback:
    """A function (visits, degree, fanout) -> scores: copying lists from the highest down saves most reads a byte."""
    if not callable(answer):
        return wrong("Give the function itself, without calling it: exercises.list_score(my_function).")
    for visits, degree, fanout in _CASES:
        v, d = np.array(visits, dtype=float), np.array(degree, dtype=float)
        returned = answer(v.copy(), d.copy(), fanout)
        if is_nothing(returned):
            return Feedback("blank", "The function returns nothing yet.")
        given = np.asarray(returned, dtype=float)
        if given.shape != v.shape:
            return wrong(
                f"For {len(v)} vertices your function returns shape {given.shape}: one score each is asked for."
            )
        reads = v * np.minimum(d, fanout)
        case = f"For visits {visits}, degrees {degree} and fanout {fanout}"
        if _same_order(given, reads / d):
            continue
        if _same_order(given, reads):
            return wrong(f"{case}: those are the reads that a copy saves. What does the copy cost?")
        if _same_order(given, d):
            return wrong(
                f"{case}: the longest lists are the dearest, and a visit reads no more than the fanout of one."
            )
        if _same_order(given, v):
            return wrong(
                f"{case}: a visit to a long list saves as much as one to a short one only up to the fanout."
            )
        return wrong(
            f"{case} the order should be {np.argsort(-reads / d, kind='stable').tolist()}, best first."
        )
    return right(
        "Reads saved over bytes: visits x min(degree, fanout) / degree. It is the greedy rule for a knapsack, and it "
        "takes short lists of often visited vertices before the hubs that a ranking by degree would copy."
    )


def _same_order(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two scores rank alike."""
    return bool(np.array_equal(np.argsort(-one, kind="stable"), np.argsort(-other, kind="stable")))
