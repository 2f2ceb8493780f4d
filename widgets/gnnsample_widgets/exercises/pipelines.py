"""Exercises of notebook 09: the rule, where it is not the best, the profit, the ceiling of overlap, deadlocks."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.pipeline.schedule.allocation import num_samplers, profit, trainer_time

from ..feedback import Feedback, as_number, exercise, is_nothing, right, wrong

UK = (0.56, 3.06, 3.09)
"""GNNLab, Table 5: seconds an epoch of sampling, extraction and training; GCN on UK, one sampler and one trainer."""
STAGES_MS = (3, 4, 5)
"""Sampling, extraction and training of a mini-batch in exercise 4."""


@exercise("Give a number of GPUs, 1 to 7.")
def samplers_of_uk(answer: Any) -> Feedback:
    """N_s for GCN on UK with eight GPUs, from GNNLab's Table 5."""
    given = as_number(answer)
    sample_s, extract_s, train_s = UK
    if given == num_samplers(8, sample_s, trainer_time(extract_s, train_s)):
        return right(
            "K = 3.09 / 0.56 = 5.5, and 8 / 6.5 = 1.2, rounded up: two, as the paper has it (Table 4)."
        )
    if given == 1:
        return wrong(
            "Either you rounded down, or you added extraction to training. A trainer extracts the next mini-batch "
            "while it trains: the longer of the two stages counts."
        )
    if given == 7:
        return wrong("That is the other way round: K is training over sampling.")
    return wrong("K = max(extract, train) / sample, then 8 / (K + 1), rounded up.")


@exercise("Give a number of GPUs, 1 to 7.")
def best_without_switching(answer: Any) -> Feedback:
    """Eight GPUs, K = 2.7, no switching, a long epoch: the split with the highest rate."""
    given = as_number(answer)
    if given == 2:
        return right(
            "Two samplers make 2 mini-batches in the time T_s, and six trainers take 6 / 2.7 = 2.2: the rate is 2. "
            "With three samplers the five trainers take 5 / 2.7 = 1.9. The ceiling is for samplers that can switch."
        )
    if given == 3:
        return wrong(
            "That is the rule's. Five trainers take 5 / 2.7 = 1.9 mini-batches in the time T_s; and with two samplers?"
        )
    if given == 1:
        return wrong("One sampler makes 1 mini-batch in the time T_s, and seven trainers wait for it.")
    return wrong("The rate of a split is the smaller of N_s and N_t / K, in mini-batches in the time T_s.")


_PROFITS = ((12, 5, 20.0, 36.0), (1, 5, 20.0, 36.0), (8, 2, 3.0, 5.0), (0, 1, 7.0, 2.0))


@exercise("Write a function of four numbers that returns one, and give me the function itself.")
def switching_profit(answer: Any) -> Feedback:
    """A function (remaining, trainers, trainer_s, standby_s) -> P in seconds."""
    if not callable(answer):
        return wrong("Give the function itself, without calling it: exercises.switching_profit(my_function).")
    for case in _PROFITS:
        returned = answer(*case)
        if is_nothing(returned):
            return Feedback("blank", "The function returns nothing yet.")
        given, expected = as_number(returned), profit(*case)
        if abs(given - expected) < 1e-6:
            continue
        remaining, trainers, trainer_s, standby_s = case
        said = f"For {case} your function gives {given:g}, and it should be {expected:g}"
        if abs(given + expected) < 1e-6:
            return wrong(
                f"{said}. The sign: a profit is what is gained, the time of the others less one's own."
            )
        if abs(given - (remaining * trainer_s - standby_s)) < 1e-6:
            return wrong(f"{said}. The trainers share what waits.")
        if abs(given - (remaining / trainers * trainer_s - trainer_s)) < 1e-6:
            return wrong(f"{said}. A standby trainer has another time than a trainer: its pipeline is empty.")
        return wrong(
            f"{said}. How long do the trainers need for what waits, and how long would you need for one?"
        )
    return right(
        "It is the time that the trainers still need, less that of one mini-batch on the standby trainer."
    )


@exercise("Give a number: old time divided by new time.")
def overlap_ceiling(answer: Any) -> Feedback:
    """Stages of 3, 4 and 5 ms: the most that overlapping them on one GPU can gain."""
    given = as_number(answer)
    if abs(given - sum(STAGES_MS) / max(STAGES_MS)) < 0.005:
        return right(
            "12 / 5 = 2.4: when all stages run at once and for free, the longest still takes its time."
        )
    if given == len(STAGES_MS):
        return wrong("Only if the three stages were equally long.")
    if abs(given - max(STAGES_MS) / sum(STAGES_MS)) < 0.005:
        return wrong("That is new over old.")
    if given == sum(STAGES_MS) or given == max(STAGES_MS):
        return wrong("That is a time in ms, of one of the two ways. Give their ratio.")
    return wrong("One after the other takes the sum of the stages; overlapped, the longest sets the pace.")


_STUCK = {"B", "D"}


@exercise('Give a set of letters, such as {"A"}.')
def deadlocks(answer: Any) -> Feedback:
    """Which of four plans of starting collectives, one at a time on each rank, block for ever."""
    given = {str(letter).strip().upper() for letter in answer}
    if given == _STUCK:
        return right(
            "In B each rank waits in what the other has not started; in D they wait in a ring: 0 for 1, 1 for 2, 2 for "
            "0. In C rank 2 waits as well, but b ends once rank 1 has done a: without a ring, waiting comes to an end."
        )
    if given - {"A", "B", "C", "D"}:
        return wrong("The plans are A, B, C and D.")
    if "A" in given:
        return wrong(
            "In A both ranks start the same collectives in the same order. What would they wait for?"
        )
    if "C" in given:
        return wrong("In C somebody waits, but for how long? Play it: a can end first. What can end then?")
    if "D" not in given:
        return wrong("Three ranks can block each other in a ring, too: who waits for whom at the start of D?")
    return wrong("In B each rank waits in a collective that the other has not started.")
