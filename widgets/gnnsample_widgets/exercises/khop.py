"""Exercises of notebook 01: frontiers, probabilities, the share of preprocessing."""

from __future__ import annotations

from typing import Any

from ..feedback import Feedback, as_ids, as_number, exercise, is_nothing, right, wrong
from .stepping import culprits

PICKED = {0: (2, 3), 4: (2, 0)}
"""What hop 1 picked in notebook 01: seed -> its picks."""


@exercise("Give a set of vertices: those that hop 2 expands.")
def second_frontier(answer: Any) -> Feedback:
    """Which vertices does hop 2 expand after hop 1 picked ``PICKED``, with expand="frontier"?"""
    given = as_ids(answer)
    picks = {v for row in PICKED.values() for v in row}
    new = picks - set(PICKED)
    if given == picks | set(PICKED):
        return right(
            "The seeds and their picks, each once: 4 tasks. Vertex 2 was picked twice and is still one task."
        )
    if given == picks:
        return wrong(
            "Vertex 4 is missing: a layer also updates the vertices it already had, so the seeds are "
            "expanded again."
        )
    if given == new:
        return wrong(
            'Those are the newly reached ones, which is what expand="new" would take. Here the seeds '
            "stay in the frontier."
        )
    return wrong("Unite the seeds 0 and 4 with everything that they picked, and keep each vertex once.")


@exercise("Give a number between 0 and 1.")
def pick_probability(answer: Any) -> Feedback:
    """How likely is one given neighbour of a vertex with in-degree 40 to be picked, fanout 10, no
    replacement?"""
    given = as_number(answer)
    with_replacement = 1 - (1 - 1 / 40) ** 10
    if abs(given - 0.25) < 5e-4:
        return right(
            "Ten distinct ones out of forty, all equally likely: 10/40. Every rule of the draw has to "
            "reproduce this number."
        )
    if abs(given - with_replacement) < 2e-3:
        return wrong(
            "That is the chance with replacement, where some of the ten draws fall on the same "
            "neighbour. Without it none is wasted."
        )
    if abs(given - 1 / 40) < 1e-6:
        return wrong("1/40 is the chance of one draw. There are ten, and no two of them agree.")
    if given > 1:
        return wrong("A probability is at most 1. (25 % is 0.25.)")
    return wrong("Ten of forty neighbours are picked, and none is preferred.")


_FRONTIER_CASES = ((1, (2,)), (256, (10, 10, 10)), (8, (3, 5)), (1024, (15, 10, 5)))


def _largest(batch_size: int, fanouts: tuple[int, ...]) -> list[int]:
    sizes = [batch_size]
    for fanout in fanouts[:-1]:
        sizes.append(sizes[-1] * (fanout + 1))
    return sizes


@exercise(
    "Write a function of batch_size and fanouts that returns one number per hop, and give me the "
    "function itself."
)
def largest_frontiers(answer: Any) -> Feedback:
    """A function (batch_size, fanouts) -> the most vertices that each hop can have to expand."""
    if not callable(answer):
        return wrong(
            "Give the function itself, without calling it: exercises.largest_frontiers(my_function)."
        )
    for batch_size, fanouts in _FRONTIER_CASES:
        expected = _largest(batch_size, fanouts)
        returned = answer(batch_size, list(fanouts))
        if is_nothing(returned):
            return Feedback("blank", "The function returns nothing yet.")
        given = [int(n) for n in returned]
        if given == expected:
            continue
        case = f"For batch {batch_size} and fanouts {list(fanouts)} your function gives {given}"
        if given == [_product(batch_size, fanouts[:h]) for h in range(len(fanouts))]:
            return wrong(
                f"{case}: the vertices themselves are expanded again, too. What does that add to each fanout?"
            )
        if given == [*expected, expected[-1] * (fanouts[-1] + 1)] or given == [
            e * (f + 1) for e, f in zip(expected, fanouts)
        ]:
            return wrong(
                f"{case}: those are the vertices reached after each hop. Hop 1 expands the seeds alone."
            )
        return wrong(f"{case}, and {expected} is the most there can be.")
    return right(
        "Each hop multiplies by its fanout plus one. Real frontiers stay below it: neighbours are "
        "shared, and leaves have few."
    )


def _product(batch_size: int, fanouts: tuple[int, ...]) -> int:
    for fanout in fanouts:
        batch_size *= fanout
    return batch_size


TABLE_1 = {
    "workload": (2048, 21633, 179709),
    "preprocess_us": (129.0, 127.7, 127.0),
    "kernel_us": (13.2, 92.4, 662.0),
}
"""PGSampler, Table I: DGL on ogbn-products, batch 2048, fanouts 10, 10, 10."""


@exercise("Give a share between 0 and 1, to two digits.")
def preprocessing_share(answer: Any) -> Feedback:
    """In Table I of PGSampler, what share of hop 1 is preprocessing?"""
    given = as_number(answer)
    pre, kernel = TABLE_1["preprocess_us"], TABLE_1["kernel_us"]
    if abs(given - pre[0] / (pre[0] + kernel[0])) < 0.006:
        return right("91 %: in the first hop nearly all of the time goes by before the kernel starts.")
    if abs(given - sum(pre) / (sum(pre) + sum(kernel))) < 0.006:
        return wrong("That is the share over all three hops. Take hop 1 alone.")
    if abs(given - kernel[0] / (pre[0] + kernel[0])) < 0.006:
        return wrong("That is the kernel's share. The question is about the rest.")
    if 1 < given <= 100:
        return wrong("Give a share between 0 and 1, not percent.")
    return wrong("Divide the preprocessing time of hop 1, 129.0 µs, by the sum of its two times.")


@exercise("Give a set of vertices, such as {4, 9}.")
def taken_for_new(answer: Any) -> Feedback:
    """The stepper, *mark without an atomic*: which vertices does the failing line take for new more than once?"""
    given, double = as_ids(answer), set(culprits("grow a frontier", "mark without an atomic"))
    if given == double:
        return right(
            "Lanes of one warp run a line together: all of them have read the word before any of them writes it, so "
            "each of those that met at it believes that it came first."
        )
    if given < double:
        return wrong(
            "These, but not these alone. Go to the failure (▶|) and read the whole line above the code."
        )
    if given > double:
        return wrong(
            "Some of these are reached by one lane alone. Compare *u* in the lanes where *fresh* is 1."
        )
    return wrong(
        "Choose *mark without an atomic* under Break a line, and press ▶|: it goes to the line that fails."
    )
