"""Exercises of notebook 09: the rule, where it is not the best, the profit, the ceiling of overlap, deadlocks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from gnnsample_lab.pipeline.schedule.allocation import num_samplers, should_switch, trainer_time
from gnnsample_lab.readable import noun, number, percent

from ..explorers.training.pipelines import sweep_splits
from ..lesson.feedback import Feedback, exercise, right, wrong
from .trying import results_of, tried

UK = (0.56, 3.06, 3.09)
"""GNNLab, Table 5: seconds an epoch of sampling, extraction and training; GCN on UK, one sampler and one trainer."""


def _rule(gpus: int, sample_s: float, extract_s: float, train_s: float) -> int:
    return num_samplers(gpus, sample_s, trainer_time(extract_s, train_s))


@exercise(
    "Write a function of gpus, sample_s, extract_s and train_s that returns a number of GPUs; give me the function."
)
def samplers_of_uk(answer: Any) -> Feedback:
    """A function (gpus, sample_s, extract_s, train_s) -> N_s by GNNLab's rule; tried on UK and on other stage
    times."""
    rows = ((8, *UK), (8, 1.0, 0.4, 2.0), (8, 1.0, 2.0, 0.5), (4, 2.0, 0.1, 1.0), (8, 1.0, 0.4, 3.0))
    cases = [("For {} GPUs and stages of {:g}, {:g} and {:g} s".format(*row), row) for row in rows]
    return tried(
        answer,
        "samplers_of_uk",
        cases,
        _rule,
        [
            (
                lambda g, s, e, t: num_samplers(g, s, e + t),
                "you added extraction to training. A trainer extracts the next mini-batch while it trains: the "
                "longer one counts.",
            ),
            (
                lambda g, s, e, t: num_samplers(g, s, t),
                "extraction may be the longer one of a trainer's two stages.",
            ),
            (
                lambda g, s, e, t: math.floor(g * s / (s + max(e, t))),
                "the rule rounds up: a sampler too many can help training.",
            ),
            (lambda g, s, e, t: g * s / (s + max(e, t)), "a number of GPUs is whole: the rule rounds up."),
            (lambda g, s, e, t: g - _rule(g, s, e, t), "those are the trainers."),
            (
                lambda g, s, e, t: num_samplers(g, max(e, t), s),
                "that is the other way round: K is training over sampling.",
            ),
        ],
        "For UK, K = 3.09 / 0.56 = 5.5, and 8 / 6.5 = 1.2, rounded up: two, as the paper has it (Table 4).",
    )


def _beats(rows: Mapping[int, Any], one: int, other: int) -> bool:
    """Whether an epoch is shorter with ``one`` than with ``other`` samplers, by more than a trifle."""
    return bool(rows[one]["without_s"] < 0.99 * rows[other]["without_s"])


def _left_out(
    state: Mapping[str, Any], made: Mapping[str, Any], rows: Mapping[int, Any], rule: int, best: int
) -> str:
    """Why the rule is beaten in this state: by its rounding, or by what its mean stage times do not tell."""
    sample_s, extract_s, train_s = (made["times"]["apart"].mean(s) for s in ("sample", "extract", "train"))
    share = state["gpus"] * sample_s / (sample_s + trainer_time(extract_s, train_s))
    if best < rule and rule > share and _beats(rows, rule - 1, rule):
        return (
            "The ceiling is for samplers that can switch. Without switching, rounding "
            f"{share:.2f} up takes a trainer too many away."
        )
    if _link_decides(state, made, rule, best):
        follows = "a trainer more gains less" if best > rule else "extraction takes longer"
        return (
            "The rule counts T_s and T_t of a GPU by itself. Here the trainers share the link to the host, so that "
            f"{follows} than it counts."
        )
    return "The rule counts means of stage times. Here they vary, and others wait for a slow mini-batch."


def _link_decides(state: Mapping[str, Any], made: Mapping[str, Any], rule: int, best: int) -> bool:
    """Whether ``best`` samplers would not beat the rule if extractions did not slow each other down."""
    alone = dataclasses.replace(made["costs"], host_share=0.0)
    splits = sweep_splits(made["times"], alone, state["gpus"], state["capacity"], state["synchronous"])
    return not _beats({row["samplers"]: row for row in splits.rows}, best, rule)


@exercise("Put the explorer in place of the dots, once it stands where you want it.")
def rule_is_beaten(answer: Any) -> Feedback:
    """The PipelineExplorer in a state, K not 2.7, where another number of samplers than the rule's is better without
    switching."""
    state, made = results_of(answer, "PipelineExplorer")
    if made["splits"] is None:
        return wrong("One GPU has nothing to split.")
    if state["k_tenths"] == 27 and state["gpus"] == 8:
        return wrong("Eight GPUs and K = 2.7 are in the text. Find another case.")
    rows = {row["samplers"]: row for row in made["splits"].rows}
    rule = next(n for n, row in rows.items() if row["chosen"])
    best = min(rows, key=lambda n: rows[n]["without_s"])
    said = f"With K = {state['k_tenths'] / 10:g} on {state['gpus']} GPUs the rule takes {rule} {noun(rule, 'sampler')}"
    if _beats(rows, best, rule):
        return right(
            f"{said}, and {best} would end the epoch in "
            f"{percent(rows[best]['without_s'] / rows[rule]['without_s'])} of its time. "
            f"{_left_out(state, made, rows, rule, best)}"
        )
    return wrong(
        f"{said}, and nothing is better by more than 1\u00a0%. Where is N_g / (K + 1) only a little above a whole "
        "number?"
    )


def _least(trainers: int, trainer_s: float, standby_s: float) -> int:
    """The least number of waiting mini-batches with a profit above 0."""
    return next(n for n in range(1, 10_000) if should_switch(n, trainers, trainer_s, standby_s))


@exercise(
    "Write a function of trainers, trainer_s and standby_s that returns a number, and give me the function itself."
)
def switching_profit(answer: Any) -> Feedback:
    """A function (trainers, trainer_s, standby_s) -> the least number of waiting mini-batches from which a sampler
    should switch."""
    rows = ((5, 20.0, 36.0), (5, 20.0, 40.0), (2, 3.0, 5.0), (1, 7.0, 2.0), (7, 1.0, 1.5))
    cases = [("For {} trainers of {:g} s and a standby trainer of {:g} s".format(*row), row) for row in rows]
    return tried(
        answer,
        "switching_profit",
        cases,
        _least,
        [
            (
                lambda n, t, s: max(1, math.ceil(s * n / t)),
                "with so many the profit is 0, and nothing is gained. It has to be above 0.",
            ),
            (
                lambda n, t, s: s * n / t,
                "a number of mini-batches is whole, and the profit has to be above 0.",
            ),
            (
                lambda n, t, s: math.floor(s / t) + 1,
                "the trainers share what waits: more trainers, less to wait for.",
            ),
            (
                lambda n, t, s: n + 1,
                "a standby trainer has another time than a trainer: its pipeline is empty at first.",
            ),
            (lambda n, t, s: math.floor(t * n / s) + 1, "the two times have changed places."),
        ],
        "The trainers still need M T_t / N_t, you would need T_t' for one: it pays from the first M above T_t' N_t "
        "/ T_t.",
    )


def _where_from(stages: Sequence[float], gain: float, costs: Any) -> str:
    """What halves the epoch, with stages of these lengths."""
    if gain > sum(stages) / max(stages):
        return (
            "It is more than that: without overlap the GPUs also wait, for each other's updates or for the link to "
            "the host, and overlap hides these waits, too."
        )
    first, second, longest = (number(1e3 * seconds) for seconds in sorted(stages))
    fits = costs.demand["sample"] + costs.demand["train"] <= 1
    return (
        f"Beside the longest, {longest} ms, run the two others, {first} and {second} ms: no less in all"
        + (
            ", and there is room for them on the GPU."
            if fits
            else ", although sampling and training slow each other down."
        )
    )


def _slowed_down(run: Any) -> bool:
    """Whether stages took longer than they do alone."""
    alone = sum(run.times.mean(stage) for stage in ("sample", "extract", "train")) * run.times.batches
    return bool(sum(busy.sum() for busy in run.busy_s.values()) > 1.01 * alone)


@exercise("Put the explorer in place of the dots, once it stands where you want it.")
def overlap_gains(answer: Any) -> Feedback:
    """The PipelineExplorer in a state where *overlapped* takes at most half the time of *timeshared*."""
    _, made = results_of(answer, "PipelineExplorer")
    serial, overlapped = (made["runs"][name].epoch_s for name in ("timeshared", "overlapped"))
    times, gain = made["times"]["together"], serial / overlapped
    stages = [times.mean(stage) for stage in ("sample", "extract", "train")]
    ceiling = sum(stages) / max(stages)
    said = f"The epoch is {gain:.2f} times as fast; the ceiling is {ceiling:.2f}"
    if gain >= 2:
        return right(
            f"{said}, the sum of the stages over the longest. {_where_from(stages, gain, made['costs'])}"
        )
    if ceiling < 2:
        return wrong(f"{said}: no overlap can halve it. Make the stages of about one length.")
    if not _slowed_down(made["runs"]["overlapped"]):
        return wrong(
            f"{said}, and no stage slows another down. Each GPU fills its pipeline and empties it: raise the ceiling, "
            "or give a GPU more of the mini-batches."
        )
    return wrong(f"{said}. What keeps it below: how busy is the GPU, or the link, with one stage alone?")


def _ends(plans: Sequence[str], members: Mapping[str, Any]) -> bool:
    """Play the plans: a collective ends once all its members have come to it."""
    left = [list(plan) for plan in plans]
    while any(left):
        waiting = {plan[0] for plan in left if plan}
        done = [name for name in waiting if all(left[r][:1] == [name] for r in members[name])]
        if not done:
            return False
        for name in done:
            for rank in members[name]:
                left[rank].pop(0)
    return True


_TWO: dict[str, Sequence[int]] = {"a": (0, 1), "b": (0, 1)}
_THREE: dict[str, Sequence[int]] = {"a": (0, 1), "b": (1, 2), "c": (0, 2)}
PLANS: dict[str, tuple[Sequence[str], Mapping[str, Sequence[int]]]] = {
    "A": (("ab", "ab"), _TWO),
    "B": (("ab", "ba"), _TWO),
    "C": (("ac", "ab", "bc"), _THREE),
    "D": (("ac", "ba", "cb"), _THREE),
    "E": (("a", "ab", "b"), {"a": (0, 1), "b": (1, 2)}),
    "F": (("", ""), _TWO),
    "G": (("ab", "a"), {"a": (0, 1), "b": (0,)}),
}
"""Name -> what each rank starts, in order, and which ranks take part in each collective."""


@exercise("Write a function of plans and members that returns True or False, and give me the function.")
def deadlocks(answer: Any) -> Feedback:
    """A function (plans, members) -> whether all collectives end; a rank starts one at a time, in the order of
    its plan."""
    cases = [
        (f"For plan {name}, {' | '.join(plans)} with {members}", (plans, members))
        for name, (plans, members) in PLANS.items()
    ]
    return tried(
        answer,
        "deadlocks",
        cases,
        _ends,
        [
            (
                lambda plans, members: not _ends(plans, members),
                "it is the other way round: True where all of them end.",
            ),
            (
                lambda plans, members: len(set(plans)) == 1,
                "ranks with different plans need not block each other: somebody waits, but for how long?",
            ),
            (
                lambda plans, members: not (len(plans) == 2 and plans[0] != plans[1]),
                "three ranks can block each other in a ring, too: who waits for whom at the start?",
            ),
            (
                lambda plans, members: len({plan[0] for plan in plans if plan}) <= 1,
                "not all need to begin with the same collective: only its members have to come to it.",
            ),
        ],
        "In B each waits in what the other has not started; in D they wait in a ring. In C rank 2 waits as well, "
        "but b ends once rank 1 has done a: without a ring, waiting comes to an end.",
        lambda given, wanted: bool(given) == bool(wanted),
    )
