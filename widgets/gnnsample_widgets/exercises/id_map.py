"""Exercises of notebook 05: probing, the inverted flag, the counter that is read apart, an ID map of one's own."""

from __future__ import annotations

from typing import Any

import gnnsample_lab as lab

from ..explorers.sampling.id_map import faulty_ids
from ..lesson.feedback import Feedback, as_ids, exercise, is_nothing, right, whole, wrong
from .stepping import culprits
from .trying import results_of

SLOTS = 7


@exercise("Give a list of at most four ids, such as [3, 10, 5].")
def long_way(answer: Any) -> Feedback:
    """At most four ids for a table of SLOTS slots, home ``id % SLOTS``: the last makes three probes though no other id
    shares its home."""
    ids = [whole(v) for v in answer]
    if len(ids) > 4 or len(set(ids)) < len(ids) or min(ids) < 0:
        return wrong("At most four ids, all different, none below 0.")
    last = lab.fill_steps(ids, SLOTS)[-1]
    home = ids[-1] % SLOTS
    if any(v % SLOTS == home for v in ids[:-1]):
        return wrong(f"Another id has home {home}, too. Let those that are in the way come from elsewhere.")
    if len(last.probes) < 3:
        return wrong(
            f"{ids[-1]} looks at the slots {list(last.probes)}. Which homes push ids into the slots behind its "
            "home? Behind the last slot comes the first."
        )
    return right(
        f"{ids[-1]} looks at {list(last.probes)}, though nobody shares its home: a run of taken slots grows like a "
        "traffic jam, and whoever comes to it, at whatever place, joins its end."
    )


@exercise("Give a list of ids, such as [4, 6, 2, 4, 4].")
def right_by_luck(answer: Any) -> Feedback:
    """Ids, three different ones at least, that the rule as printed (assign when the flag is False) numbers
    rightly."""
    ids = [whole(v) for v in answer]
    if len(set(ids)) < 3:
        return wrong("Three different ids at least.")
    steps = lab.fill_steps(ids, 2 * len(set(ids)) + 1, polarity="printed")
    faulty = faulty_ids(steps)
    if not faulty:
        return right(
            "Every id comes twice: its second coming gives it the number that the first should have. A test that "
            "feeds each id twice would find nothing wrong."
        )
    once = [v for v in faulty if ids.count(v) == 1]
    if once:
        return wrong(f"{once[0]} comes once, so that nobody gives it a number. What has to happen to it?")
    return wrong(
        f"{', '.join(map(str, faulty))}: no valid number of its own. An id is numbered anew each time that it comes "
        "again: how often is right?"
    )


@exercise("Give a list in which 0, 1 and 2 stand twice each, such as [0, 1, 2, 0, 1, 2].")
def race(answer: Any) -> Feedback:
    """An order in which three threads read the counter and add to it, so that two different local ids come out."""
    order = [whole(thread) for thread in answer]
    if sorted(order) != [0, 0, 1, 1, 2, 2]:
        return wrong("Each of the threads 0, 1 and 2 stands there twice: first it reads, then it adds.")
    counter, local = 0, {}
    for thread in order:
        if thread in local:
            counter += 1
        else:
            local[thread] = counter
    different = len(set(local.values()))
    if different == 2:
        return right(
            f"The threads get {[local[t] for t in range(3)]}, and the counter ends at 3. Such an order need not "
            "come for a thousand runs, and then it comes. atomicAdd makes one step of reading and adding: no order "
            "can do this to it."
        )
    if different == 3:
        return wrong("Three different ids: nobody reads between another one's reading and adding.")
    return wrong("One id for all three: all read before the first of them adds. Let one get through.")


@exercise("Put the explorer in place of the dots, once it stands where you want it.")
def load_for_two_probes(answer: Any) -> Feedback:
    """The IdMapExplorer in a state where multiplicative hashing of the graph's own ids costs 2 probes on average."""
    state, made = results_of(answer, "IdMapExplorer")
    if state["hash"] != "multiplicative" or state["numbering"] != "as in the graph":
        return wrong("Take the multiplicative hash, and the ids as they are in the graph.")
    mean, load = made["chosen"].mean, state["load_percent"]
    if abs(mean - 2) <= 0.1:
        return right(
            f"{mean:.2f} probes at {load} % full. For ids as good as random Knuth's (1 + 1 / (1 - load)) / 2 gives "
            f"{(1 + 1 / (1 - load / 100)) / 2:.2f} there. Ids that lie close together are spread more evenly than "
            "by chance."
        )
    return wrong(f"At {load} % full an id costs {mean:.2f} probes. Which way?")


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
        given, expected = [whole(v) for v in returned], _first_seen(ids)
        if given == expected:
            continue
        case = f"For {ids} your function gives {given}"
        if len(given) != len(ids):
            return wrong(f"{case}: one local id is wanted for each of the {len(ids)} ids.")
        if given == [sorted(set(ids)).index(v) for v in ids]:
            return wrong(
                f"{case}: those are ranks by size, what sorting would give. It is a valid map, but here whoever "
                "comes first has the lower number."
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
        "One pass, one table: look up, and number what is new. Fused-Map is this, with ten thousand threads in "
        "place of the loop, a compare-and-swap for the look-up and an atomic addition for the counter."
    )


@exercise("Give a set of lanes, such as {4, 9}.")
def claiming_lanes(answer: Any) -> Feedback:
    """The stepper, *insert without compare-and-swap*: which lanes claim an entry for the same vertex?"""
    given = as_ids(answer)
    lanes = set(culprits("insert into Fused-Map", "insert without compare-and-swap"))
    if given == lanes:
        return right(
            "They hold the same vertex and have all seen its entry empty. A store tells nobody whether the entry "
            "was still empty; compare-and-swap returns the old key, and only one lane gets the empty one."
        )
    if given < lanes:
        return wrong("Some are missing. Go to the failure (▶|) and find every lane whose *v* is that vertex.")
    if given > lanes:
        return wrong("Not all of these hold the vertex that the sentence names: compare their *v*.")
    return wrong(
        "Choose *insert without compare-and-swap* and press ▶|. The sentence above the code names a vertex."
    )
