"""Exercises of notebook 01: frontiers, probabilities, the share of preprocessing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnsample_lab.readable import percent

from ..lesson.feedback import Feedback, as_ids, as_number, exercise, right, wrong
from .stepping import culprits
from .trying import ids_agree, lists_agree, results_of, tried

PICKED = {0: (2, 3), 4: (2, 0)}
"""What hop 1 picked: seed -> its picks."""


@exercise("Write a function of the frontier and the picks that returns vertices, and give me the function.")
def second_frontier(answer: Any, batch: Any = None) -> Feedback:
    """A function (frontier, picks) -> what the next hop expands; tried on ``PICKED`` and on the hops of ``batch``."""
    toy = np.array(list(PICKED)), np.array([v for row in PICKED.values() for v in row])
    cases: list[Any] = [(f"For the frontier {toy[0].tolist()} with the picks {toy[1].tolist()}", toy)]
    for hop, picks in enumerate(batch.to_cpu().picks if batch is not None else ()):
        cases.append((f"For hop {hop + 1} of the batch", (picks.frontier, picks.neighbors)))
    return tried(
        answer,
        "second_frontier",
        cases,
        np.union1d,
        [
            (
                lambda frontier, picks: np.unique(picks),
                "a layer also updates the vertices that it already had, so that the frontier is expanded again.",
            ),
            (
                lambda frontier, picks: np.setdiff1d(picks, frontier),
                'those are the newly reached ones, which is what expand="new" would take. Here the frontier stays.',
            ),
        ],
        "The frontier and its picks, each once: a vertex that was picked by many is still one task.",
        _each_once,
    )


def _each_once(given: Any, wanted: Any) -> bool:
    if len(given) != len(as_ids(given)):
        raise ValueError("a vertex is there twice, and a frontier is a set")
    return ids_agree(given, wanted)


def _share(degree: int, fanout: int) -> float:
    return min(1.0, fanout / degree)


@exercise("Write a function of degree and fanout that returns a probability, and give me the function.")
def pick_probability(answer: Any, batch: Any = None) -> Feedback:
    """A function (degree, fanout) -> how likely one given neighbour is picked, no replacement; held against ``batch``:
    the probabilities of all neighbours add up to the picks."""
    cases = [(f"For degree {d}, fanout {f}", (d, f)) for d, f in ((40, 10), (25, 1), (4, 10), (10, 10))]
    reply = tried(
        answer,
        "pick_probability",
        cases,
        _share,
        [
            (
                lambda d, f: 1 - (1 - 1 / d) ** f,
                "that is the chance with replacement, where some of the draws fall on the same neighbour. Without "
                "it none is wasted.",
            ),
            (
                lambda d, f: 1 / d,
                "that is the chance of one draw. How many are there, and can two of them agree?",
            ),
            (
                lambda d, f: f / d,
                "a probability is at most 1: where there are fewer neighbours than draws, all go.",
            ),
        ],
        "All neighbours alike, so the fanout over the degree, and 1 where there are no more than the fanout.",
    )
    if not reply or batch is None:
        return reply
    graph, fanout = batch.graph.to("cpu", features=False), batch.spec.fanouts[0]
    picks = batch.to_cpu().picks[0]
    degrees = np.asarray(graph.in_degrees())[picks.frontier]
    expected = sum(d * answer(int(d), fanout) for d in degrees.tolist() if d)
    return right(
        f"{reply.text} Summed over all neighbours of hop 1 that is {expected:,.0f} picks; the batch has "
        f"{picks.num_picks:,}."
    )


_FRONTIER_CASES = (
    (1, (2,), 100),
    (256, (10, 10, 10), 10_000_000),
    (8, (3, 5), 1_000),
    (1024, (15, 10, 5), 169_343),
    (1024, (15, 10, 5), 4_267),
)


def _largest(batch_size: int, fanouts: Sequence[int], num_nodes: int = 2**62) -> list[int]:
    sizes = [batch_size]
    for fanout in fanouts[:-1]:
        sizes.append(min(num_nodes, sizes[-1] * (fanout + 1)))
    return sizes


@exercise(
    "Write a function of batch_size, fanouts and num_nodes that returns one number per hop; give me the function."
)
def largest_frontiers(answer: Any, batch: Any = None) -> Feedback:
    """A function (batch_size, fanouts, num_nodes) -> the most vertices that each hop can have to expand; held against
    ``batch``, whose frontiers must keep below."""
    cases = [
        (f"For batch {b}, fanouts {list(f)}, {n:,} vertices", (b, list(f), n)) for b, f, n in _FRONTIER_CASES
    ]
    reply = tried(
        answer,
        "largest_frontiers",
        cases,
        _largest,
        [
            (
                lambda b, f, n: [min(n, b * math.prod(f[:h])) for h in range(len(f))],
                "the vertices themselves are expanded again, too. What does that add to each fanout?",
            ),
            (
                lambda b, f, n: [b * math.prod(f[:h]) for h in range(len(f))],
                "the vertices themselves are expanded again, too. What does that add to each fanout?",
            ),
            (
                lambda b, f, n: [min(n, e * (x + 1)) for e, x in zip(_largest(b, f, n), f, strict=True)],
                "those are the vertices reached after each hop. Hop 1 expands the seeds alone.",
            ),
            (
                lambda b, f, n: [*_largest(b, f, n), min(n, _largest(b, f, n)[-1] * (f[-1] + 1))],
                "one number for each fanout: what the last hop reaches is expanded by nobody.",
            ),
            (lambda b, f, n: _largest(b, f), "a frontier is a set of vertices, and the graph has no more."),
        ],
        "Each hop multiplies by its fanout plus one, until the graph is used up.",
        lists_agree,
    )
    if not reply or batch is None:
        return reply
    found = [picks.frontier.size for picks in batch.picks]
    most = [int(n) for n in answer(found[0], list(batch.spec.fanouts), batch.graph.num_nodes)]
    why = "" if found == most else ": vertices share neighbours, or have fewer than the fanout"
    return right(f"{reply.text} Your batch has {found} of at most {most}{why}.")


TABLE_1 = {
    "workload": (2048, 21633, 179709),
    "preprocess_us": (129.0, 127.7, 127.0),
    "kernel_us": (13.2, 92.4, 662.0),
}
"""PGSampler, Table I: DGL on ogbn-products, batch 2048, fanouts 10, 10, 10."""


@exercise("Give a share between 0 and 1, to two digits.")
def preprocessing_share(answer: Any, trace: Any = None) -> Feedback:
    """What share of hop 1 of ``trace`` is preprocessing? Of Table I of PGSampler without one."""
    given = as_number(answer)
    pre, kernel = TABLE_1["preprocess_us"], TABLE_1["kernel_us"]
    if trace is not None:
        pre, kernel = tuple(trace.hops.preprocess_us), tuple(trace.hops.kernel_us)
    share = pre[0] / (pre[0] + kernel[0])
    if abs(given - share) < 0.006:
        return right(
            f"{percent(share)} of {pre[0] + kernel[0]:.0f} µs: so much of the first hop goes by before its kernel "
            f"starts."
        )
    if abs(given - sum(pre) / (sum(pre) + sum(kernel))) < 0.006:
        return wrong("That is the share over all hops. Take hop 1 alone.")
    if abs(given - (1 - share)) < 0.006:
        return wrong("That is the kernel's share. The question is about the rest.")
    if 1 < given <= 100:
        return wrong("Give a share between 0 and 1, not percent.")
    return wrong(
        "Look at trace.hops: preprocess_us and kernel_us have an entry for each hop. Divide the first one by both."
    )


@exercise("Give a set of vertices, such as {4, 9}.")
def taken_for_new(answer: Any) -> Feedback:
    """The stepper, *mark without an atomic*: which vertices does the failing line take for new more than once?"""
    given, double = as_ids(answer), set(culprits("grow a frontier", "mark without an atomic"))
    if given == double:
        return right(
            "Lanes of one warp run a line together: all of them have read the word before any of them writes it, "
            "so each of those that met at it believes that it came first."
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


@exercise("Put the explorer in place of the dots, once it stands where you want it.")
def far_below_the_bound(answer: Any) -> Feedback:
    """The WorkloadExplorer in a state where hop 3 expands at most a twentieth of its bound."""
    state, made = results_of(answer, "WorkloadExplorer")
    if state["hops"] < 3:
        return wrong("Set Hops to 3: the question is about the third.")
    batch = made["batch"].to_cpu()
    reached = batch.picks[-1].frontier.size
    bound = _largest(batch.picks[0].frontier.size, tuple(batch.spec.fanouts))[-1]
    if reached * 20 <= bound:
        return right(
            f"{reached:,} of at most {bound:,}, {percent(reached / bound, 1)}: lists shorter than the fanout, "
            f"and vertices "
            "that many pick, take the rest."
        )
    return wrong(
        f"Hop 3 expands {reached:,} of at most {bound:,}, {percent(reached / bound, 1)}. What raises the bound "
        f"and not the "
        "number of neighbours that there are?"
    )
