"""Exercises of notebook 02: what fusion gains, and who loses a task."""

from __future__ import annotations

from typing import Any

from ..feedback import Feedback, agrees, as_ids, as_number, exercise, is_nothing, right, wrong
from .khop import TABLE_1
from .stepping import culprits


@exercise("Give a number: old time divided by new time, to two digits.")
def fusion_speedup(answer: Any) -> Feedback:
    """By which factor is Table I's process faster if fusion pays preprocessing once (129 µs) and kernels gain
    nothing?"""
    given = as_number(answer)
    pre, kernel = TABLE_1["preprocess_us"], TABLE_1["kernel_us"]
    before = sum(pre) + sum(kernel)
    if agrees(given, before / (pre[0] + sum(kernel))):
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


@exercise("Give a set of vertices, such as {4, 9}.")
def lost_with_the_ticket(answer: Any) -> Feedback:
    """The stepper, *give up a ticket whose slot is empty*: the tasks of which vertices are lost first?"""
    given = as_ids(answer)
    lost = set(culprits("claim a slot", "give up a ticket whose slot is empty"))
    if given == lost:
        return right(
            "A warp took the tickets of these slots, found nothing in them yet, and went on. The slots were written "
            "later: no other warp will ever hold these tickets."
        )
    if given < lost:
        return wrong(
            "These too, but more than these. Go to the failure (▶|) and read the line above the code."
        )
    if given > lost:
        return wrong(
            "One of these is served: somebody still holds the ticket of its slot, or the slot is beyond head."
        )
    return wrong(
        "Choose *give up a ticket whose slot is empty*, press ▶|, and look which slots the line writes."
    )
