"""Exercises of notebook 03: lists per warp, the sort key, the kernel of a transit, and when staging and index pay."""

from __future__ import annotations

from typing import Any

from ..feedback import Feedback, as_number, exercise, is_nothing, right, wrong
from .stepping import recorded, sectors_of

TRANSITS = ((4, 1), (4, 6), (1, 4))
"""Transits of samples 0, 1 and 2 at a step that draws two neighbours for each: a small version of figure 5."""
SIZE, WIDTH = 2, 4
"""Neighbours per pair, and threads of a warp of the GPU in the exercise."""


@exercise("Give two numbers: different lists per warp sample-parallel and transit-parallel, such as (1, 2).")
def lists_per_warp(answer: Any) -> Feedback:
    """Mean number of different lists per warp, sample-parallel and transit-parallel, for TRANSITS."""
    sample, transit = (as_number(value) for value in answer)
    if (sample, transit) == (2, 1):
        return right(
            "Sample-parallel, every warp holds one sample and both of its transits. Sorted, the six pairs are 1, 1, 4, "
            "4, 4, 6: a warp for 1, and 4 has six draws, so it fills a warp and half of another, whose other half is "
            "idle, since a block is 4's alone. 6 comes in a warp of its own. One list in each of the four."
        )
    if (sample, transit) == (1, 2):
        return wrong("The right numbers, the other way round: first sample-parallel, then transit-parallel.")
    if sample != 2:
        return wrong(
            "Sample-parallel: a warp has four threads, and a sample needs two for each of its two transits. Whose "
            "lists do the threads of sample 0 read?"
        )
    if abs(transit - 4 / 3) < 0.01:
        return wrong(
            "That is what you get when the sorted threads are cut every four. But a transit with at least a warp's "
            "worth of draws has blocks of its own: who may follow 4 in its half-empty warp?"
        )
    return wrong(
        "Transit-parallel: sort the six pairs by transit. How many draws has 4, and may 6 share its warp?"
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
        given = [(int(s), int(v)) for s, v in returned]
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
        "The key is the transit, and the sort is stable. A radix sort does just that, digit by digit from the lowest; "
        "a counting sort does it in one pass, with a counter for every vertex of the graph."
    )


@exercise('Give the kernel: "sub-warp", "block" or "grid".')
def kernel(answer: Any) -> Feedback:
    """300 samples share a transit and each draws 10 of its 40 neighbours: which kernel?"""
    given = str(answer).strip().lower()
    if given == "grid":
        return right(
            "300 · 10 = 3,000 neighbours to sample, more than the 1,024 threads of a block. How many neighbours it has "
            "does not count: the draws are the work."
        )
    if given in ("block", "thread block"):
        return wrong(
            "A block has at most 1,024 threads, one for each neighbour to sample. How many are there?"
        )
    if given in ("sub-warp", "subwarp", "warp"):
        return wrong("A sub-warp serves a transit with fewer than 32 neighbours to sample. Multiply.")
    return wrong(
        "Multiply the pairs by the neighbours that each of them samples, and look at the limits 32 and 1,024."
    )


@exercise("Give a number of draws.")
def staging(answer: Any) -> Feedback:
    """From how many draws on does copying a list of 800 ids of four bytes to shared memory read fewer sectors?"""
    given = as_number(answer)
    if given == 101:
        return right(
            "800 · 4 / 32 = 100 sectors for the copy, and each draw by itself costs one. At 100 they are even; from "
            "101 on the copy reads less, if no two draws meet in a sector, which some do. For a hub with 10,000 "
            "neighbours it takes 1,251. And where a cache holds the list already, neither matters much."
        )
    if given == 100:
        return wrong("At 100 both read 100 sectors. From when on is the copy better?")
    if given in (800, 801):
        return wrong("The copy reads whole sectors of 32 bytes. How many ids of four bytes lie in one?")
    if given in (32, 33):
        return wrong(
            "32 is the limit of the block kernel, not of the copy. How many sectors are 800 ids of four bytes?"
        )
    return wrong("How many sectors of 32 bytes has the list? A draw by itself reads one.")


@exercise("Give a number of microseconds, to one digit behind the point.")
def index_pays(answer: Any) -> Feedback:
    """A step takes 90 µs sample-parallel and 60 µs from an index: how long may building the index take at most?"""
    given = as_number(answer)
    if given == 30:
        return right(
            "90 - 60: what the index saves is all that it may cost. Built in 40 µs it would make the step slower, "
            'though sampling itself is 1.5 times as fast. That is the sum which index="auto" estimates for every step.'
        )
    if abs(given - 1.5) < 0.01:
        return wrong(
            "That is the speed-up of sampling alone. The index has to be built first, at every step."
        )
    if given == 60:
        return wrong("Then the step would take 120 µs in all.")
    return wrong("Index and sampling together must not take longer than sampling without an index.")


@exercise("Give a number of sectors.")
def dearer_reads(answer: Any) -> Feedback:
    """The stepper, *read the list per lane*: how many more sectors of ``indices`` does the whole run read?"""
    given, name = as_number(answer), "gather a transit's list"
    once = sectors_of(recorded(name), "indices")
    per_lane = sectors_of(recorded(name, "read the list per lane"), "indices")
    if given == per_lane - once:
        return right(
            f"{per_lane} sectors instead of {once}, for the same result. Registers are read once per list, lanes once "
            "per sample: the more samples stand at the transit, the wider the gap."
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
