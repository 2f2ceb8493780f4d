"""The exercises of the notebooks: one checker each, with instant feedback that explains.

Every checker takes one answer and returns a :class:`~gnnsample_widgets.feedback.Feedback`. A blank answer
(``...``) is reported as such; nothing raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .feedback import Feedback, as_ids, as_number, exercise, listed, right, wrong

# -- notebook 00 --

EDGES = ((0, 2), (1, 2), (3, 2), (2, 0), (3, 1))
"""Edges (source, destination) of the small graph of notebook 00."""


@exercise("Give a set of vertices, such as {4, 5}: those that a sampler may pick for vertex 2.")
def in_neighbours(answer: Any) -> Feedback:
    """Which vertices may be picked for vertex 2 of the graph with the edges ``EDGES``?"""
    given = as_ids(answer)
    sources = {u for u, v in EDGES if v == 2}
    targets = {v for u, v in EDGES if u == 2}
    if given == sources:
        return right(
            "Messages flow along the edges, so vertex 2 gathers from the sources of its incoming "
            "edges: 0, 1 and 3."
        )
    if given == targets:
        return wrong(
            f"{listed(targets)} is where the edges of vertex 2 lead to. A vertex gathers what flows in: "
            f"look at the edges "
            "that end at 2."
        )
    if given == sources | targets | {2}:
        return wrong(
            "A vertex is not its own neighbour unless there is a self-loop. Look at the edges that end "
            "at 2 only."
        )
    missing, extra = sources - given, given - sources
    return wrong(
        (f"Missing: {listed(missing)} has an edge into 2. " if missing else "")
        + (f"Not right: there is no edge from {listed(extra)} into 2." if extra else "")
    )


_NEUTRAL = {"strategy", "device"}
_DECISIVE = {
    "seed": "The seed is the key of the random generator: another seed, other picks.",
    "batch_id": "The batch id is part of the generator's counter, so that no two batches of a training "
    "run share their draws.",
    "fanouts": "The fanouts say how many neighbours are picked.",
    "pick": "Floyd's rule and the reservoir turn the same random numbers into different picks.",
}


@exercise('Give a set of argument names, such as {"seed", "pick"}.')
def same_sample(answer: Any) -> Feedback:
    """Which of seed, strategy, batch_id, device, fanouts and pick may change without changing the sample?"""
    given = {answer} if isinstance(answer, str) else {str(name) for name in answer}
    unknown = given - _NEUTRAL - set(_DECISIVE)
    if unknown:
        return wrong(f"{', '.join(sorted(unknown))} is not among the six names of the question.")
    harmful = sorted(given & set(_DECISIVE))
    if harmful:
        return wrong(_DECISIVE[harmful[0]])
    if given != _NEUTRAL:
        return wrong("There is one more. Which arguments say only who computes, and in what order?")
    return right("Strategy and device decide how a sample is computed, and never what is in it.")


BLOCK = {"dst": (7, 3), "src": (7, 3, 9, 1), "indptr": (0, 2, 3), "indices": (2, 1, 3)}
"""The block of notebook 00: global ids in dst and src, local ids in indices."""


@exercise("Give a set of global vertex ids, such as {4, 5}.")
def block_sources(answer: Any) -> Feedback:
    """Which vertices (global ids) were picked for vertex 7 of the block ``BLOCK``?"""
    given = as_ids(answer)
    local = BLOCK["indices"][BLOCK["indptr"][0] : BLOCK["indptr"][1]]
    expected = {BLOCK["src"][i] for i in local}
    if given == expected:
        return right("Row 0 holds the local ids 2 and 1, and src turns them into the vertices 9 and 3.")
    if given == set(local):
        return wrong(
            f"{listed(local)} are local ids, positions in src. Which vertices stand at those positions?"
        )
    if given == {BLOCK["src"][i] for i in BLOCK["indices"][BLOCK["indptr"][1] : BLOCK["indptr"][2]]}:
        return wrong("That is the row of vertex 3. Vertex 7 is dst[0]: its row is indptr[0] to indptr[1].")
    return wrong("Vertex 7 is dst[0]. Take indices[indptr[0]:indptr[1]], then look each of them up in src.")


# -- notebook 01 --

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


def is_nothing(value: Any) -> bool:
    """Whether a learner's function is still the empty one."""
    return value is None or value is Ellipsis


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


# -- notebook 02 --


@exercise("Give a number: old time divided by new time, to two digits.")
def fusion_speedup(answer: Any) -> Feedback:
    """By which factor is Table I's process faster if fusion pays preprocessing once (129 µs) and kernels gain
    nothing?"""
    given = as_number(answer)
    pre, kernel = TABLE_1["preprocess_us"], TABLE_1["kernel_us"]
    before = sum(pre) + sum(kernel)
    if abs(given - before / (pre[0] + sum(kernel))) < 0.006:
        return right(
            "1151 µs become 897 µs: 1.28 times faster, before the kernel itself has become any better."
        )
    if abs(given - (pre[0] + sum(kernel)) / before) < 0.006:
        return wrong(
            "That is new over old. A speedup is old over new, and above 1 when something was gained."
        )
    if abs(given - sum(pre) / pre[0]) < 0.01:
        return wrong(
            "That is how much less preprocessing there is. The kernels take their 768 µs as before, "
            "and count as well."
        )
    return wrong(
        "Old: all six times of the table added up. New: one preprocessing time and the three kernel times."
    )


@exercise("Give the number of the hop (counted from 1) whose task is lost, such as 2.")
def lost_hop(answer: Any) -> Feedback:
    """On the path 0-1-2-3 with fetch size 5 and one block: the tasks of which hop are lost?"""
    given = as_ids(answer)
    if given == {3}:
        return right(
            "Slot 1 holds the task of hop 2. Its block has claimed slots 1 to 5 by then, so the task "
            "of hop 3 goes into slot 2, "
            "which has already been read as empty."
        )
    if given == {2}:
        return wrong(
            "Hop 2's task was already in slot 1 when the block looked there. Which slot does the next "
            "one go to, and when was that slot read?"
        )
    if given == {1}:
        return wrong("The seed's own task is in slot 0 before the kernel starts, and the block begins there.")
    if given == {2, 3}:
        return wrong("Only one of the two: the task of hop 2 is written before slots 1 to 5 are claimed.")
    return wrong(
        "Write down the slots: what is in 0, 1 and 2, and which slots does the block claim after its "
        "first task?"
    )


@exercise("Give a number from 0 to 10.")
def lost_with_fetch_one(answer: Any) -> Feedback:
    """Ten neighbours and none, two blocks: how many of the ten tasks of hop 2 are lost with fetch size 1?"""
    given = as_number(answer)
    if given == 1:
        return right(
            "The idle block claims slot 2 alone, sees the tail at 2, and leaves with it. A smaller "
            "fetch loses less, but only "
            "keeping the ticket loses nothing."
        )
    if given == 0:
        return wrong(
            "A block that leaves takes its claim along, however small. Which slot does the block of "
            "seed 1 claim before it compares?"
        )
    if given == 5:
        return wrong("That was fetch size 5, when slots 2 to 6 were claimed. How many slots are claimed now?")
    return wrong(
        "Play it: the block of seed 1 is done first and adds 1 to taskIndex, which is 2. The tail is 2 "
        "as well."
    )


_LEAVE_CASES: tuple[tuple[tuple[int, int, int], bool, str], ...] = (
    (
        (12, 12, 0),
        True,
        "Everything queued was taken and finished: the block must leave, or the kernel never ends.",
    ),
    (
        (2, 2, 1),
        False,
        "The queue is empty, but one task is still running and may hand on ten more. The block has to stay.",
    ),
    ((7, 12, 5), False, "Tasks are waiting."),
    (
        (17, 12, 0),
        True,
        "Claims beyond the tail are harmless once nothing is outstanding: no task can appear there any more.",
    ),
    (
        (6, 2, 1),
        False,
        "This block has run ahead of the tail while one task is still running. Its slot may yet be filled.",
    ),
)


@exercise(
    "Write a function of task_index, tail_index and outstanding that returns True or False, and give "
    "me the function."
)
def may_leave(answer: Any) -> Feedback:
    """A function (task_index, tail_index, outstanding) -> may a block leave without losing a task?

    ``outstanding`` counts tasks that were queued and are not finished; it is raised before a task is
    published.
    """
    if not callable(answer):
        return wrong("Give the function itself, without calling it: exercises.may_leave(my_function).")
    results: list[tuple[Any, bool, tuple[int, int, int], str]] = []
    for state, expected, why in _LEAVE_CASES:
        value = answer(*state)
        if is_nothing(value):
            return Feedback("blank", "The function returns nothing yet.")
        results.append((bool(value), expected, state, why))
    if all(given == (state[0] >= state[1]) for given, _, state, _ in results):
        return wrong("That is the published rule. " + _LEAVE_CASES[1][2])
    for given, expected, state, why in results:
        if given != expected:
            named = "task_index={}, tail_index={}, outstanding={}".format(*state)
            return wrong(f"With {named} your block {'leaves' if given else 'stays'}. {why}")
    return right(
        "Nothing outstanding, nothing to come: that is the whole rule, and the queue's two counters "
        "are not needed for it."
    )


ALL: dict[str, tuple[Callable[..., Feedback], ...]] = {
    "00": (in_neighbours, same_sample, block_sources),
    "01": (second_frontier, pick_probability, largest_frontiers, preprocessing_share),
    "02": (fusion_speedup, lost_hop, lost_with_fetch_one, may_leave),
}
"""The checkers by notebook."""
