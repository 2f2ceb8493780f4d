"""Exercises of notebook 02: what fusion gains, and who loses a task."""

from __future__ import annotations

from typing import Any

import numpy as np

import gnnsample_lab as lab

from .. import recorded
from ..lesson.feedback import Feedback, as_ids, as_number, exercise, right, wrong
from .khop import TABLE_1
from .stepping import culprits
from .trying import results_of, tried


def _gain(preprocess_us: Any, kernel_us: Any) -> float:
    before = sum(preprocess_us) + sum(kernel_us)
    return float(before / (max(preprocess_us) + sum(kernel_us)))


@exercise("Write a function of preprocess_us and kernel_us that returns a factor, and give me the function.")
def fusion_speedup(answer: Any, trace: Any = None) -> Feedback:
    """A function (preprocess_us, kernel_us) -> the gain if only the dearest preprocessing is paid and kernels stay.

    Tried on Table I and on ``trace``.
    """
    cases: list[Any] = [
        ("For Table I", (np.array(TABLE_1["preprocess_us"]), np.array(TABLE_1["kernel_us"]))),
        (
            "For two hops of 10 and 30 µs of preprocessing and kernels of 5 µs",
            (np.array([10.0, 30]), np.array([5.0, 5])),
        ),
    ]
    if trace is not None:
        hops = np.asarray(trace.hops.preprocess_us, float), np.asarray(trace.hops.kernel_us, float)
        cases.append((f"For the trace of {trace.strategy}", hops))
    before = "" if trace is None else f" On your own trace it would be {_gain(*cases[-1][1]):.1f} times."
    return tried(
        answer,
        "fusion_speedup",
        cases,
        _gain,
        [
            (lambda p, k: 1 / _gain(p, k), "that is new over old. A speed-up is old over new."),
            (
                lambda p, k: p.sum() / p.max(),
                "that is how much less preprocessing there is. The kernels take their time as before, and count as "
                "well.",
            ),
            (
                lambda p, k: (p.sum() + k.sum()) / (p.max() + k.max()),
                "the kernels gain nothing: all of them still run, not the longest alone.",
            ),
            (
                lambda p, k: (p.sum() + k.sum()) / k.sum(),
                "one preprocessing is still paid. Without any, you have the limit.",
            ),
        ],
        f"Table I becomes 1.28 times as fast, before the kernel itself has become any better.{before}",
    )


def _lost(graph: Any, seeds: Any, fanouts: list[int], **options: Any) -> int:
    _, trace = recorded.without_reuse(graph, seeds, fanouts, **options)
    return len(trace.lost)


@exercise("Give a number of slots, from 1 to 16.")
def safe_fetch_size(answer: Any) -> Feedback:
    """The largest fetch size with which a single block loses nothing on the path 0-1-2-3."""
    given = as_number(answer)
    if not 1 <= given <= 16 or given != int(given):
        return wrong("A fetch takes a whole number of slots, 1 at least; the sliders go up to 16.")
    path = lab.Graph.from_edges([1, 2, 3], [0, 1, 2], name="path")
    lost = _lost(path, [0], [1, 1, 1], num_blocks=1, fetch_size=int(given))
    if lost:
        return wrong(
            f"With {int(given)} the published rule loses {lost} of the path's tasks: slots are read that nobody has "
            "written. Run recorded.without_reuse with other fetch sizes."
        )
    if _lost(path, [0], [1, 1, 1], num_blocks=1, fetch_size=int(given) + 1) == 0:
        return wrong("Nothing is lost with it, nor with a larger one.")
    return right(
        "One slot at a time, a single block never reads ahead of what it has written itself. From two on it does, "
        "and a chain of tasks is never more than one slot ahead."
    )


@exercise("Give a number of leaves.")
def leaves_that_lose_all(answer: Any) -> Feedback:
    """A hub of ten neighbours and n leaves, a block for each seed, fetch size 1: the least n that loses all
    ten tasks."""
    given = as_number(answer)
    if not 1 <= given <= 40 or given != int(given):
        return wrong("A whole number of leaves, please, 40 at most.")
    lost = [_hub_and_leaves(n) for n in (int(given), int(given) - 1)]
    if lost[0] < 10:
        return wrong(
            f"With {int(given)} leaves {lost[0]} of the ten tasks are lost. How many slots does each block that "
            "leaves take with it?"
        )
    if lost[1] == 10:
        return wrong("All ten are lost, but fewer leaves would do.")
    return right(
        "Each leaf's block claims one slot, sees the tail behind it, and leaves: ten claims without an owner. A "
        "smaller fetch loses less a block, but only keeping the ticket loses nothing."
    )


def _hub_and_leaves(leaves: int) -> int:
    """Tasks of hop 2 that are lost with a hub, so many leaves, a block for each, and fetch size 1."""
    if leaves < 1:
        return 0
    hub = lab.Graph.from_edges(
        range(leaves + 1, leaves + 11), [0] * 10, num_nodes=leaves + 11, name="hub and leaves"
    )
    return _lost(hub, list(range(leaves + 1)), [10, 10], num_blocks=leaves + 1, fetch_size=1)


_LEAVE_CASES = (
    (
        (12, 12, 12),
        "everything queued was taken and finished: the block must leave, or the kernel never ends.",
    ),
    (
        (2, 2, 1),
        "the queue is empty, but one task is still running and may hand on ten more. The block has to stay.",
    ),
    ((7, 12, 7), "tasks are waiting: the block has to stay."),
    (
        (17, 12, 12),
        "claims beyond the tail are harmless once nothing can appear there any more: the block must leave.",
    ),
    (
        (6, 2, 1),
        "this block has run ahead of the tail while one task is still running. Its slot may yet be filled.",
    ),
    ((9, 9, 4), "everything is taken, and five tasks are still running, each of which may hand on more."),
)


def _leaves(task_index: int, tail_index: int, finished: int) -> bool:
    return finished == tail_index


@exercise(
    "Write a function of task_index, tail_index and finished that returns True or False, and give me the function."
)
def may_leave(answer: Any) -> Feedback:
    """A function (task_index, tail_index, finished) -> may a block leave without losing a task?

    ``tail_index`` tasks were queued so far, and ``finished`` of them have handed on their children.
    """
    if callable(answer):
        results = [answer(*state) for state, _ in _LEAVE_CASES]
        known = [isinstance(one, (bool, np.bool_)) for one in results]
        if all(known) and results == [state[0] >= state[1] for state, _ in _LEAVE_CASES]:
            return wrong(
                "That is the published rule. With the tail at 2 and one task finished, " + _LEAVE_CASES[1][1]
            )
    said = "With task_index={}, tail_index={}, finished={}"
    cases = [(said.format(*state), state) for state, _ in _LEAVE_CASES]
    why = dict(_LEAVE_CASES)
    reply = tried(
        answer,
        "may_leave",
        cases,
        _leaves,
        [],
        "As many finished as were ever queued: nothing is outstanding, and nothing can come. Which slots are "
        "claimed plays no part in it.",
        lambda given, wanted: bool(given) == bool(wanted),
    )
    found = next((state for text, state in cases if reply.text.startswith(f"{text}:")), None)
    return wrong(f"{said.format(*found)} {why[found]}") if found is not None else reply


@exercise("Give a set of vertices, such as {4, 9}.")
def lost_with_the_ticket(answer: Any) -> Feedback:
    """The stepper, *give up a ticket whose slot is empty*: the tasks of which vertices are lost first?"""
    given = as_ids(answer)
    lost = set(culprits("claim a slot", "give up a ticket whose slot is empty"))
    if given == lost:
        return right(
            "A warp took the tickets of these slots, found nothing in them yet, and went on. The slots were "
            "written later: no other warp will ever hold these tickets."
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


@exercise("Put the explorer in place of the dots, once it stands where you want it.")
def lost_one_by_one(answer: Any) -> Feedback:
    """The QueueExplorer in a state where the paper's rule loses tasks although a fetch takes a single slot."""
    state, made = results_of(answer, "QueueExplorer")
    trace = made["trace"]
    if trace.completion != "paper":
        return wrong(
            "Nothing is ever lost there. Choose the paper's completion rule, a strategy with a queue, and the model."
        )
    if trace.fetch_size != 1:
        return wrong(f"A fetch takes {trace.fetch_size} slots here. Take it down to 1.")
    if len(trace.lost) == 0:
        return wrong(
            f"{state['num_blocks']} blocks lose nothing. When does a block find the queue empty and leave? Who has "
            "to have nothing to do for that?"
        )
    return right(
        f"{len(trace.lost):,} tasks have no owner, and {len(trace.tasks):,} ran. The paper asks for a fetch smaller "
        "than the fanout; no fetch can be smaller than this one. It is idle blocks that lose tasks."
    )
