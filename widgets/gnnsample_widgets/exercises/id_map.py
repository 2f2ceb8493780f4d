"""Exercises of notebook 05: probing, the inverted flag, the counter that is read apart, an ID map of one's own."""

from __future__ import annotations

from typing import Any

from ..feedback import Feedback, as_ids, as_number, exercise, is_nothing, right, wrong
from .stepping import culprits

SLOTS = 5
ARRIVING = (3, 8, 1, 13)
"""Ids that arrive in this order at a table of SLOTS slots, id % SLOTS being their home."""

PRINTED = (3, 1, 3, 6, 3)
"""Ids for the rule as it is printed."""


@exercise("Give the number of a slot, from 0 to 4.")
def landing_slot(answer: Any) -> Feedback:
    """Ids 3, 8, 1, 13 go into five empty slots, home id % 5, linear probing: where does 13 end up?"""
    given = as_ids(answer)
    if given == {0}:
        return right(
            "Home is 3, where 3 lies; 4 holds 8, which was pushed there; behind the last slot comes slot 0. Three "
            "probes, though only one id shares its home: a run of taken slots grows like a traffic jam."
        )
    if given == {3}:
        return wrong("That is its home, 13 % 5. Which id lies there already?")
    if given == {4}:
        return wrong("Slot 3 is taken, so 4 is next. But where did 8 go, whose home is 3 as well?")
    if given == {5}:
        return wrong("There is no slot 5: behind the last slot, probing goes on at the first.")
    if given == {2}:
        return wrong("Linear probing goes up, not down.")
    return wrong("Put in 3, then 8, then 1, and start for 13 at slot 3, going up until a slot is free.")


@exercise("Give the set of ids that end with the same local id, such as {3, 1}.")
def sharing_ids(answer: Any) -> Feedback:
    """The rule as printed (assign when the flag is False) on 3, 1, 3, 6, 3: which ids share a local id?"""
    given = as_ids(answer)
    if given == {1, 6}:
        return right(
            "1 and 6 came once: for them the flag is True, nothing is assigned, and both keep the 0 that the table "
            "was filled with. 3 came again and again and was numbered anew each time, last with 1."
        )
    if given == {1, 3, 6}:
        return wrong(
            "3 comes back, finds itself, and gets a number then: 0 the first time, and the second time?"
        )
    if given in ({1, 3}, {3, 6}):
        return wrong(
            "At its third coming, 3 is given the counter's value, which is 1 by then. Who still has 0?"
        )
    if 8 in given or 13 in given:
        return wrong("Only 3, 1 and 6 arrive here.")
    return wrong(
        "Line 16 makes the flag True for a key that is new, and line 27 assigns where it is False. So who gets a "
        "number: the first comer, or those who come again?"
    )


@exercise("Give a number from 1 to 32.")
def fewest_local_ids(answer: Any) -> Feedback:
    """32 threads insert 32 different ids, read LocalID first and add to it afterwards: how few local ids result?"""
    given = as_number(answer)
    if given == 1:
        return right(
            "All 32 may read the counter before the first of them adds to it. The counter ends 32 higher, and all "
            "have the same number. atomicAdd returns the value from before the addition: that one is nobody else's."
        )
    if given == 32:
        return wrong(
            "That holds when reading and adding are one step. Here another thread may read between the two."
        )
    if given == 2:
        return wrong("Two threads may read the same value. May a third one, too?")
    return wrong("The warp runs in step: when do its threads read, and when do they add?")


@exercise("Give a number of probes, to one digit behind the point.")
def probes_when_full(answer: Any) -> Feedback:
    """How many probes does an id cost on average when the table is filled to 90 %, by Knuth's formula?"""
    given = as_number(answer)
    if abs(given - 5.5) < 0.06:
        return right(
            "(1 + 1 / (1 - 0.9)) / 2 = 5.5, against 1.5 at half full. Memory is what the table is bought with: twice "
            "the slots, a quarter of the probes."
        )
    if abs(given - 1.5) < 0.06:
        return wrong("That is the table at half full.")
    if abs(given - 50.5) < 0.6:
        return wrong(
            "That is what one more id, not yet in the table, would cost: (1 + 1 / (1 - load)²) / 2. Averaged over "
            "all that went in, the early ones were cheap."
        )
    if abs(given - 10) < 0.06:
        return wrong("1 / (1 - 0.9) is one part of it. Add 1 and halve.")
    return wrong("Put 0.9 into (1 + 1 / (1 - load)) / 2.")


_MAP_CASES: tuple[list[int], ...] = ([7, 7, 2], [3, 1, 3, 6], [5], [9, 4, 9, 4, 0, 9], [])


def _first_seen(ids: list[int]) -> list[int]:
    table: dict[int, int] = {}
    return [table.setdefault(v, len(table)) for v in ids]


def _printed(ids: list[int]) -> list[int]:
    table: dict[int, int] = {}
    local = 0
    for v in ids:
        if v in table:
            table[v] = local
            local += 1
        else:
            table[v] = 0
    return [table[v] for v in ids]


@exercise("Write a function of a list of global ids that returns their local ids, and give me the function.")
def relabelled(answer: Any) -> Feedback:
    """A function (ids) -> local ids, numbered in the order in which ids first come."""
    if not callable(answer):
        return wrong("Give the function itself, without calling it: exercises.relabelled(my_function).")
    for ids in _MAP_CASES:
        returned = answer(list(ids))
        if is_nothing(returned):
            return Feedback("blank", "The function returns nothing yet.")
        given, expected = [int(v) for v in returned], _first_seen(ids)
        if given == expected:
            continue
        case = f"For {ids} your function gives {given}"
        if len(given) != len(ids):
            return wrong(f"{case}: one local id is wanted for each of the {len(ids)} ids.")
        if given == [sorted(set(ids)).index(v) for v in ids]:
            return wrong(
                f"{case}: those are ranks by size, what sorting would give. It is a valid map, but here whoever comes "
                "first has the lower number."
            )
        if given == _printed(ids):
            return wrong(
                f"{case}: that is the printed rule, which numbers those who come again. Turn it round."
            )
        if given == list(range(len(ids))):
            return wrong(f"{case}: an id that comes again keeps the number it has.")
        if given == [v + 1 for v in expected]:
            return wrong(f"{case}: local ids are positions, and positions start at 0.")
        return wrong(f"{case}, and {expected} is right.")
    return right(
        "One pass, one table: look up, and number what is new. Fused-Map is this, with ten thousand threads in place "
        "of the loop, a compare-and-swap for the look-up and an atomic addition for the counter."
    )


@exercise("Give a set of lanes, such as {4, 9}.")
def claiming_lanes(answer: Any) -> Feedback:
    """The stepper, *insert without compare-and-swap*: which lanes claim an entry for the same vertex?"""
    given = as_ids(answer)
    lanes = set(culprits("insert into Fused-Map", "insert without compare-and-swap"))
    if given == lanes:
        return right(
            "They hold the same vertex and have all seen its entry empty. A store tells nobody whether the entry was "
            "still empty; compare-and-swap returns the old key, and only one lane gets the empty one."
        )
    if given < lanes:
        return wrong("Some are missing. Go to the failure (▶|) and find every lane whose *v* is that vertex.")
    if given > lanes:
        return wrong("Not all of these hold the vertex that the sentence names: compare their *v*.")
    return wrong(
        "Choose *insert without compare-and-swap* and press ▶|. The sentence above the code names a vertex."
    )
