"""Exercises of notebook 08: the cost model, shared memory, intensity, the bound, and one stage among three."""

from __future__ import annotations

import math
from typing import Any

from ..feedback import Feedback, agrees, as_number, exercise, is_nothing, right, wrong

RTX_3090 = {"shared_gbps": 12_000.0, "dram_gbps": 938.0, "peak_gflops": 29_155.0}
"""FastGL, Table 3 and Section 3.2."""


def _bytes(neighbours: int, features: int) -> tuple[float, float, float]:
    """Equation 3's bytes from global memory; equation 4's from shared and from global memory."""
    sums, weights, rows = (
        4.0 * (neighbours - 1) * features,
        4.0 * neighbours * features,
        4.0 * neighbours * features,
    )
    return (
        sums + weights + rows,
        sums + 4.0 * neighbours * (features - 1),
        rows + 4.0 * neighbours,
    )


@exercise("Give old time over new time, to one digit after the point.")
def model_speedup(answer: Any) -> Feedback:
    """t_n / t_m by equations 3 and 4 for 10 neighbours and 256 features on an RTX 3090."""
    given = as_number(answer)
    naive, shared, rest = _bytes(10, 256)
    before = naive / RTX_3090["dram_gbps"]
    after = shared / RTX_3090["shared_gbps"] + rest / RTX_3090["dram_gbps"]
    if abs(given - before / after) < 0.06:
        return right(
            "31.7 ns over 12.6 ns: 2.5 times. The paper writes of about ten times at this place; its own equations "
            "do not give that for any numbers (exercise 2)."
        )
    if abs(given - after / before) < 0.01:
        return wrong("That is new over old. A speed-up is old over new.")
    if abs(given - naive / rest) < 0.06:
        return wrong("That leaves out the time of the shared memory: small, but not nothing.")
    if abs(given - 10) < 1.0:
        return wrong("That is what the text says. Put the numbers into the two equations.")
    return wrong(
        "Equation 3 divides 29 696 bytes by B_g. Equation 4 divides 19 416 bytes by B_s and 10 280 by B_g."
    )


@exercise("Give a number: the factor that cannot be exceeded.")
def model_limit(answer: Any) -> Feedback:
    """The least upper bound of t_n / t_m over all neighbour counts, feature counts and shared-memory
    bandwidths."""
    given = as_number(answer)
    if given == 3:
        return right(
            "Of three reads from global memory one is left, x_v itself. (3N - 1) d / (N (d + 1)) stays below 3, and "
            "comes close when there are many neighbours and features."
        )
    if abs(given - 12_000 / 938) < 0.3:
        return wrong("B_s / B_g would be the factor if nothing were read from global memory. What still is?")
    if 2.4 < given < 3:
        return wrong("Nearly: that is for 10 neighbours. Let N and d grow as well.")
    if abs(given - 10) < 0.5:
        return wrong("That is what the text says. Let B_s be infinite: which terms are left?")
    return wrong("Let B_s be infinite, so that only the bytes of global memory count, before and after.")


@exercise("Give a number of bytes.")
def shared_bytes(answer: Any) -> Feedback:
    """Shared memory of a block with X = 8 rows of 15 neighbours and Y = 32 features, in bytes."""
    given = as_number(answer)
    if given == 4 * 8 * 32 + 4 * 8 * 15:
        return right(
            "1024 bytes of partial sums and 480 of weights. Little, so that it does not limit the blocks on an SM."
        )
    if given == 8 * 32 + 8 * 15:
        return wrong("Those are the numbers kept. Each takes four bytes.")
    if given == 4 * 8 * 32:
        return wrong("The weights of the eight rows lie there as well.")
    if given == 4 * 8 * 15:
        return wrong("Those are the weights. The partial sums lie there as well.")
    if given == 4 * 8 * 32 + 4 * 15:
        return wrong("Each of the eight rows has fifteen weights of its own.")
    return wrong("X times Y partial sums and X times |N(u)| weights, in float32.")


@exercise("Give a number of GFLOP/s.")
def roof(answer: Any) -> Feedback:
    """The most GFLOP/s of an aggregation that reads each neighbour's row from the 3090's global memory."""
    given = as_number(answer)
    best = 0.5 * RTX_3090["dram_gbps"]
    if abs(given - best) < 2:
        return right(
            "A multiplication and an addition for four bytes: half an operation per byte, so 469 GFLOP/s, 1.6 % of "
            "the peak. Table 2 measured 340 to 401 for DGL: close to this roof, and above what equation 3 allows."
        )
    if abs(given - RTX_3090["peak_gflops"]) < 1:
        return wrong("That is the flat part of the roof. How many operations come with each byte?")
    if abs(given - RTX_3090["dram_gbps"]) < 1 or abs(given - best / 2) < 1:
        return wrong("Count again: each float32 that is read gives one multiplication and one addition.")
    if abs(given - 0.5) < 1e-9:
        return wrong("That is the intensity, in operations per byte. Times bandwidth, it becomes a rate.")
    if abs(given - RTX_3090["dram_gbps"] / 6) < 2:
        return wrong(
            "That is equation 3's case, with weights and sums from global memory, too. Here only rows are read."
        )
    return wrong("Operations per byte read, times 938 GB/s.")


_BOUND_CASES = (
    (40_000, 15_000, 150_000, 64, 4_000.0, 10_000.0),
    (1_000, 200, 4_000, 1024, 4_000.0, 10_000.0),
    (100_000, 90_000, 100_000, 128, 900.0, 3_000.0),
)


def _bound_us(sources: int, rows: int, edges: int, features: int, dram_gbps: float, l2_gbps: float) -> float:
    once = 4 * features * (sources + rows) + 8 * edges + 8 * (rows + 1)
    return max(once / dram_gbps, 4 * edges * features / l2_gbps) / 1e3


@exercise("Write a function of U, D, E, F, dram_gbps and l2_gbps, and give me the function itself.")
def bound(answer: Any) -> Feedback:
    """A function -> the least time in microseconds: all once through global memory, rows E times through
    L2."""
    if not callable(answer):
        return wrong("Give the function itself, without calling it: exercises.bound(my_function).")
    for case in _BOUND_CASES:
        expected, returned = _bound_us(*case), answer(*case)
        if is_nothing(returned):
            return Feedback("blank", "The function returns nothing yet.")
        given = as_number(returned)
        if math.isclose(given, expected, rel_tol=1e-3):
            continue
        u, d, e, f, dram, l2 = case
        said = "U={}, D={}, E={}, F={}, {:g} and {:g} GB/s".format(*case)
        first, second = _bound_us(u, d, e, f, dram, math.inf), _bound_us(u, d, e, f, math.inf, l2)
        if math.isclose(given, 1e3 * expected, rel_tol=1e-3) or math.isclose(
            given, 1e-3 * expected, rel_tol=1e-3
        ):
            return wrong(f"Off by a thousand for {said}: a GB/s is a thousand bytes per microsecond.")
        if math.isclose(given, first + second, rel_tol=1e-3):
            return wrong(
                f"For {said} you add the two times. The memories work side by side: the slower one decides."
            )
        if math.isclose(given, min(first, second), rel_tol=1e-3):
            return wrong(f"For {said} your function takes the quicker of the two. Both have to finish.")
        return wrong(f"For {said} your function gives {given:.4g} us, and the bound is {expected:.4g} us.")
    return right(
        "A time that no kernel on this device can beat: the measure that a measured time is held against."
    )


@exercise("Give the factor by which the epoch becomes faster, to two digits.")
def stage_speedup(answer: Any) -> Feedback:
    """Memory IO is 77 % of an epoch; Match halves it. How much faster is the epoch?"""
    given = as_number(answer)
    if agrees(given, 1 / (0.23 + 0.77 / 2)):
        return right(
            "1.63 times. Even without any copy it would be 4.3, and then the computation and the sampling are what is "
            "left: the order in which the paper goes on."
        )
    if abs(given - 2) < 1e-6:
        return wrong("One stage becomes twice as fast; the other 23 % stay as they are.")
    if abs(given - 1 / 0.23) < 0.06:
        return wrong("That is the limit, with no copies at all.")
    if abs(given - 0.615) < 0.006:
        return wrong("That is the new time as a share of the old one. The speed-up is its inverse.")
    return wrong("Old time 1, new time 0.23 + 0.77 / 2.")
