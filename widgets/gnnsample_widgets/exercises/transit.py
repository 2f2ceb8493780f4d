"""Exercises of notebook 03: lists per warp, the sort key, the kernel of a transit, and when staging and index pay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gnnsample_lab.readable import noun, percent

from ..lesson.feedback import Feedback, as_number, exercise, is_nothing, right, whole, wrong
from .stepping import recorded, sectors_of
from .trying import results_of, tried


@exercise("Put threads_explorer in place of the dots, once it stands where you want it.")
def nothing_to_share(answer: Any) -> Feedback:
    """The ThreadsExplorer in a state, 32 roots at least, where sorting by transit saves not one sector."""
    state, made = results_of(answer, "ThreadsExplorer")
    if state["roots"] < 32:
        return wrong("With so few roots it is chance. Take 32 at least.")
    sample, transit = (made["sectors"][f"{scheme}-parallel"] for scheme in ("sample", "transit"))
    said = f"{sample} sectors sample-parallel, {transit} transit-parallel"
    if transit >= sample:
        drawn = made["threads_of"][0].transit
        draws, lists = np.count_nonzero(drawn >= 0), len(np.unique(drawn[drawn >= 0]))
        if lists == draws:
            return right(f"{said}: one draw a list. What has been sorted has nothing in common.")
        return right(
            f"{said}. {draws:,} draws read {lists:,} {noun(lists, 'list')}, but sorting brings no more "
            "reads of one sector into one warp than were there before."
        )
    return wrong(
        f"{said}: something is shared. Who reads one list more than once: several samples, or several draws "
        "of one sample?"
    )


@exercise(
    "Write a function of (sample, transit) pairs that returns them in transit-parallel order, and give me it."
)
def scheduled(answer: Any) -> Feedback:
    """A function (pairs) -> pairs in the order of the index: by transit, NULL (-1) left out, samples as they came."""
    if not callable(answer):
        return wrong("Give the function itself, without calling it: exercises.scheduled(my_function).")
    for pairs in ([(0, 4), (0, 1), (1, 4), (2, 1)], [(0, 9), (1, -1), (2, 3)], [(3, 5), (1, 5), (2, 5)], []):
        returned = answer(list(pairs))
        if is_nothing(returned):
            return Feedback("blank", "The function returns nothing yet.")
        given = [(whole(s), whole(v)) for s, v in returned]
        expected = sorted((pair for pair in pairs if pair[1] >= 0), key=lambda pair: pair[1])
        if given == expected:
            continue
        case = f"For {pairs} your function gives {given}"
        if any(v < 0 for _, v in given):
            return wrong(f"{case}: -1 is no transit, and nobody draws for it. Leave it out.")
        if given == [pair for pair in pairs if pair[1] >= 0]:
            return wrong(f"{case}: that is the order of the samples, the sample-parallel one.")
        if given == sorted(expected):
            return wrong(f"{case}: sorted by sample. Which half of the pair says whose list is read?")
        if sorted(given) == sorted(expected) and [v for _, v in given] == [v for _, v in expected]:
            return wrong(
                f"{case}: sorted by transit, but pairs of one transit have changed places. A stable sort keeps them "
                "as they came, so that neighbouring threads write to neighbouring samples."
            )
        return wrong(f"{case}, and {expected} is right.")
    return right(
        "The key is the transit, and the sort is stable. A radix sort does just that, digit by digit from the "
        "lowest; a counting sort does it in one pass, with a counter for every vertex of the graph."
    )


@exercise("Put kernel_explorer in place of the dots, once it stands where you want it.")
def needs_the_grid(answer: Any) -> Feedback:
    """The KernelExplorer in a state where some transit goes to the grid kernel."""
    state, made = results_of(answer, "KernelExplorer")
    load = made["steps"][state["step"] - 1]
    transits, draws = load.by_kernel()
    if transits[2]:
        return right(
            f"{transits[2]:,} of {transits.sum():,} transits have more than 1,024 neighbours to sample, "
            f"{percent(draws[2] / draws.sum())} of all draws. How many neighbours they have does not count: the draws "
            "are the work."
        )
    return wrong(
        f"The busiest transit of step {state['step']} has {int(load.draws.max()):,} neighbours to sample; a block "
        "has 1,024 threads. In which step do many samples stand at one vertex, and what makes them draw more?"
    )


def _pays(neighbours: int, draws: int) -> bool:
    return draws > -(-4 * neighbours // 32)


@exercise("Write a function of neighbours and draws that returns True or False, and give me the function.")
def staging(answer: Any) -> Feedback:
    """A function (neighbours, draws) -> whether copying a list of four-byte ids reads fewer sectors than the
    draws do."""
    shapes = (
        (800, 101),
        (800, 100),
        (800, 40),
        (10_000, 1_250),
        (10_000, 1_251),
        (7, 2),
        (7, 1),
        (9, 2),
        (9, 3),
    )
    cases = [(f"For a list of {n:,} neighbours and {d:,} draws", (n, d)) for n, d in shapes]
    return tried(
        answer,
        "staging",
        cases,
        _pays,
        [
            (lambda n, d: d >= -(-4 * n // 32), "both read the same number of sectors. Fewer is asked for."),
            (
                lambda n, d: d > 4 * n // 32,
                "the last sector is read as a whole, even where the list ends in it.",
            ),
            (
                lambda n, d: d > n,
                "the copy reads whole sectors of 32 bytes. How many ids of four bytes lie in one?",
            ),
            (lambda n, d: d >= 32, "32 is the limit of the block kernel, not of the copy."),
            (
                lambda n, d: not _pays(n, d),
                "it is the other way round: many draws of a short list are worth a copy.",
            ),
        ],
        "A list of 800 ids has 100 sectors, so that 101 draws are enough; a hub with 10,000 neighbours takes "
        "1,251. (Some draws meet in a sector, which makes the copy look better here than it is; and a cache may "
        "hold the list already.)",
        lambda given, wanted: bool(given) == bool(wanted),
    )


def _dearest_part(sort: Mapping[str, float], sampling: float) -> str:
    """What of the sort's bytes outweighs those of sampling."""
    pairs, counters = sort["pairs sorted"], sort["counters"]
    if max(pairs, counters) <= sampling:
        return (
            f"Neither its passes over the pairs, {pairs / 1e3:,.0f} kB, nor its counters, {counters / 1e3:,.0f} kB, "
            "come to more than that alone: it is both together."
        )
    if counters >= pairs:
        return (
            f"{counters / 1e3:,.0f} kB of it go for counters: there is one for every vertex of the graph, however few "
            "pairs are sorted."
        )
    return (
        f"{pairs / 1e3:,.0f} kB of it go for passes over the pairs: with so few draws for each pair, sorting a pair "
        "moves more than drawing for it."
    )


@exercise("Put index_explorer in place of the dots, once it stands where you want it.")
def sorting_costs_more(answer: Any) -> Feedback:
    """The IndexExplorer in a state, 256 roots at least, where in step 2 a radix sort moves more bytes than
    sampling."""
    state, made = results_of(answer, "IndexExplorer")
    if state["batch"] < 256:
        return wrong("Hardly anything is sorted there: take 256 roots at least.")
    work = {name: sum(parts.values()) for name, parts in made["work"].items()}
    sampling, index = work["step 2, sampling"], work["step 2, radix sort"]
    said = f"In step 2 sampling moves {sampling / 1e3:,.0f} kB, the radix sort {index / 1e3:,.0f} kB"
    if index > sampling:
        return right(f"{said}. {_dearest_part(made['work']['step 2, radix sort'], sampling)}")
    return wrong(f"{said}. What makes sampling cheaper and leaves the pairs as they are?")


@exercise("Give a number of sectors.")
def dearer_reads(answer: Any) -> Feedback:
    """The stepper, *read the list per lane*: how many more sectors of ``indices`` does the whole run read?"""
    given, name = as_number(answer), "gather a transit's list"
    once = sectors_of(recorded(name), "indices")
    per_lane = sectors_of(recorded(name, "read the list per lane"), "indices")
    if given == per_lane - once:
        return right(
            f"{per_lane} sectors instead of {once}, for the same result. Registers are read once per list, lanes "
            "once per sample: the more samples stand at the transit, the wider the gap."
        )
    if given == per_lane:
        return wrong("That is how many it reads now. How many did the line as shipped read?")
    if given == once:
        return wrong("That is how many the line as shipped reads. How many are read per lane?")
    if given == 0:
        return wrong(
            "The result is the same, the reads are not. Go to the last line (▶|): it compares the two."
        )
    return wrong(
        "Break the line and go to the last one (▶|): the sentence above the code compares the sectors."
    )
