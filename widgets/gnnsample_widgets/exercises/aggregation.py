"""Exercises of notebook 08: the cost model, shared memory, intensity, the bound, and one stage among three."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import gnnsample_lab as lab
from gnnsample_lab.compute.aggregation import bound as model
from gnnsample_lab.device.arrays import to_host

from ..lesson.feedback import Feedback, exercise, right, wrong
from .trying import results_of, tried

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


def _times(neighbours: int, features: int, dram_gbps: float, shared_gbps: float) -> tuple[float, float]:
    naive, shared, rest = _bytes(neighbours, features)
    return naive / dram_gbps, shared / shared_gbps + rest / dram_gbps


def _gain(*case: Any) -> float:
    before, after = _times(*case)
    return before / after


@exercise(
    "Write a function of neighbours, features, dram_gbps and shared_gbps, and give me the function itself."
)
def model_speedup(answer: Any) -> Feedback:
    """A function (neighbours, features, dram_gbps, shared_gbps) -> t_n / t_m by equations 3 and 4."""
    cases = [
        ("For {} neighbours, {} features, {:g} and {:g} GB/s".format(*case), case)
        for case in (
            (10, 256, RTX_3090["dram_gbps"], RTX_3090["shared_gbps"]),
            (3, 16, 938.0, 1_000.0),
            (25, 64, 4_800.0, 30_000.0),
        )
    ]
    return tried(
        answer,
        "model_speedup",
        cases,
        _gain,
        [
            (lambda *c: 1 / _gain(*c), "that is new over old. A speed-up is old over new."),
            (
                lambda n, f, g, s: _bytes(n, f)[0] / _bytes(n, f)[2],
                "that leaves out the time of the shared memory: small, but not nothing.",
            ),
            (
                lambda n, f, g, s: _bytes(n, f)[0] / (_bytes(n, f)[1] + _bytes(n, f)[2]),
                "you count all bytes alike. Each memory has a bandwidth of its own.",
            ),
            (lambda n, f, g, s: _gain(n, f, s, g), "the two bandwidths have changed places."),
            (
                lambda n, f, g, s: s / g,
                "that would be the factor if nothing were read from global memory any more. What still is?",
            ),
        ],
        "On the 3090 2.5 times for ten neighbours and 256 features. The paper writes of about ten times at this "
        "place; its own equations do not give that for any numbers (exercise 2).",
    )


@exercise("Put the explorer in place of the dots, once it stands where you want it.")
def close_to_three(answer: Any) -> Feedback:
    """The AggregationExplorer in a state where memory-aware asks 2.85 times fewer bytes of global memory than
    naive."""
    state, made = results_of(answer, "AggregationExplorer")
    block, features = made["blocks"][1][state["layer"] - 1], state["num_features"]
    asked = [lab.aggregation_cost(block, features, name).global_bytes for name in ("naive", "memory-aware")]
    ratio = asked[0] / max(1, asked[1])
    said = f"{ratio:.3f} times, with {block.num_edges / block.num_dst:.1f} neighbours a row and {features} features"
    if ratio >= 2.85:
        return right(
            f"{said}. Of three reads one is left, the neighbour's row itself: (3N - 1) d / (N (d + 1)) comes close "
            "to 3 when there are many neighbours and features, and never reaches it, however fast the shared "
            "memory is."
        )
    return wrong(
        f"{said}. What is read once a row of the matrix, or once a neighbour, and weighs less when there is more of "
        "the rest?"
    )


@exercise("Write a function of rows, neighbours and features that returns bytes, and give me the function.")
def shared_bytes(answer: Any) -> Feedback:
    """A function (rows, neighbours, features) -> shared memory of a block of X rows and Y features, in bytes."""
    cases = [
        ("For X = {} rows of {} neighbours and Y = {} features".format(*case), case)
        for case in ((8, 15, 32), (1, 10, 64), (16, 5, 8))
    ]
    return tried(
        answer,
        "shared_bytes",
        cases,
        lambda x, n, y: 4 * x * (y + n),
        [
            (lambda x, n, y: x * (y + n), "those are the numbers kept. Each takes four bytes."),
            (lambda x, n, y: 4 * x * y, "the weights of the rows lie there as well."),
            (lambda x, n, y: 4 * x * n, "those are the weights. The partial sums lie there as well."),
            (lambda x, n, y: 4 * (x * y + n), "each of the rows has weights of its own."),
            (
                lambda x, n, y: 4 * x * n * y,
                "a partial sum belongs to a row and a feature, a weight to a row and a neighbour.",
            ),
            (
                lambda x, n, y: 4 * x * (y + n + n * y),
                "the neighbours' features are read and added, not kept.",
            ),
        ],
        "8 rows of 15 neighbours by 32 features need 1,504 bytes: so little that it does not limit the blocks on "
        "an SM.",
    )


def _rate(cost: Any, speeds: Any) -> float:
    return float(min(speeds.fp32_gflops, cost.intensity * speeds.dram_gbps))


@exercise("Write a function of cost and speeds that returns GFLOP/s, and give me the function.")
def roof(answer: Any, block: Any = None) -> Feedback:
    """A function (cost, speeds) -> the most GFLOP/s that the roofline allows; tried on made-up costs and on the kernels
    of ``block``."""
    speeds = model.RTX_3090
    cases: list[Any] = [
        (
            f"For an intensity of {flops / 8:g} operations a byte",
            (model.AccessCounts("made up", 8, 0, 0, 0, flops), speeds),
        )
        for flops in (4, 10_000)
    ]
    for kernel in ("naive", "register-tile") if block is not None else ():
        cases.append((f"For {kernel} on the block", (lab.aggregation_cost(block, 64, kernel), speeds)))
    return tried(
        answer,
        "roof",
        cases,
        _rate,
        [
            (
                lambda c, s: s.fp32_gflops,
                "that is the flat part of the roof. How many operations come with each byte?",
            ),
            (lambda c, s: s.dram_gbps, "that is the bandwidth. How many operations come with each byte?"),
            (
                lambda c, s: c.intensity,
                "that is the intensity, in operations per byte. Times bandwidth, it becomes a rate.",
            ),
            (
                lambda c, s: c.intensity * s.dram_gbps,
                "nothing computes faster than the arithmetic units: the roof is flat there.",
            ),
            (
                lambda c, s: c.intensity * s.shared_gbps,
                "the intensity counts bytes of global memory: take its bandwidth.",
            ),
            (
                lambda c, s: max(s.fp32_gflops, c.intensity * s.dram_gbps),
                "a roof is the lower one of the two limits.",
            ),
        ],
        "The slanted part is intensity times bandwidth, the flat part the peak. A kernel that reads a float32 for "
        "every multiplication and addition has half an operation a byte: 469 of 29,155 GFLOP/s on the 3090.",
    )


def _both_us(block: Any, features: int, speeds: Any, sources: int | None = None) -> tuple[float, float]:
    """Least times of the two memories, microseconds: all once through global memory, rows E times through the L2."""
    read = len(np.unique(block.indices)) if sources is None else sources
    once = 4 * features * (read + block.num_dst) + 8 * block.num_edges + 8 * (block.num_dst + 1)
    return once / speeds.dram_gbps / 1e3, 4 * block.num_edges * features / speeds.l2_gbps / 1e3


@exercise("Write a function of block, features and speeds, and give me the function itself.")
def bound(answer: Any, block: Any = None) -> Feedback:
    """A function (block, features, speeds) -> the least time in microseconds; tried on a star and on ``block``."""
    star = lab.Graph.from_edges(range(1, 11), [0] * 10, name="star")
    one_row = lab.NeighborSampler(star, [-1], device="cpu").sample([0]).blocks[0]
    slow_l2 = dataclasses.replace(model.RTX_3090, dram_gbps=4_000.0, l2_gbps=1_000.0)
    cases: list[Any] = [
        (
            f"For one row of ten neighbours, {features} features, {speeds.dram_gbps:g} and {speeds.l2_gbps:g} GB/s",
            given,
        )
        for features, speeds in ((64, model.RTX_3090), (256, slow_l2))
        for given in ((one_row, features, speeds),)
    ]
    if block is not None:
        cases += [
            ("For your block, 128 features", (_on_host(block), 128, s)) for s in (model.RTX_3090, slow_l2)
        ]
    return tried(
        answer,
        "bound",
        cases,
        lambda *c: max(_both_us(*c)),
        [
            (
                lambda *c: 1e3 * max(_both_us(*c)),
                "off by a thousand: a GB/s is a thousand bytes per microsecond.",
            ),
            (
                lambda *c: 1e-3 * max(_both_us(*c)),
                "off by a thousand: a GB/s is a thousand bytes per microsecond.",
            ),
            (
                lambda *c: sum(_both_us(*c)),
                "you add the two times. The memories work side by side: the slower one decides.",
            ),
            (lambda *c: min(_both_us(*c)), "that is the quicker of the two memories. Both have to finish."),
            (
                lambda b, f, s: max(_both_us(b, f, s, b.num_src)),
                "src holds the rows' own vertices, too: U counts the distinct neighbours that are read.",
            ),
            (
                lambda b, f, s: max(_both_us(b, f, s, b.num_edges)),
                "a neighbour that several rows share comes from global memory once: U counts distinct ones.",
            ),
        ],
        "A time that no kernel on this device can beat: the measure that a measured time is held against.",
    )


def _on_host(block: Any) -> Any:
    """The block's arrays on the CPU."""
    arrays = {
        name: to_host(getattr(block, name)) for name in ("src", "dst", "indptr", "indices", "edge_positions")
    }
    return dataclasses.replace(block, **arrays)


def _amdahl(stages: dict[str, float], name: str, factor: float) -> float:
    whole = sum(stages.values())
    return whole / (whole - stages[name] + stages[name] / factor)


@exercise("Write a function of stages, name and factor that returns a factor, and give me the function.")
def stage_speedup(answer: Any) -> Feedback:
    """A function (stages, name, factor) -> how much faster the epoch is when one stage becomes ``factor``
    times as fast."""
    fastgl, others = (
        {"sample": 10.0, "copy": 77.0, "train": 13.0},
        {"sample": 0.2, "copy": 0.05, "train": 0.75},
    )
    cases = [
        (f"For {stages}, {name} {factor:g} times as fast", (stages, name, factor))
        for stages, name, factor in ((fastgl, "copy", 2.0), (others, "train", 10.0), (fastgl, "sample", 4.0))
    ]
    return tried(
        answer,
        "stage_speedup",
        cases,
        _amdahl,
        [
            (lambda s, n, f: f, "one stage becomes so much faster; the others stay as they are."),
            (
                lambda s, n, f: 1 / _amdahl(s, n, f),
                "that is the new time as a share of the old one. The speed-up is its inverse.",
            ),
            (
                lambda s, n, f: sum(s.values()) / (sum(s.values()) - s[n]),
                "that is the limit, with nothing left of the stage.",
            ),
            (
                lambda s, n, f: sum(s.values()) - s[n] + s[n] / f,
                "that is the new time, in the unit of the stages. Old time over new time is asked for.",
            ),
            (
                lambda s, n, f: 1 / (1 - s[n] + s[n] / f),
                "the stages need not add up to 1: divide by their sum, or compare times.",
            ),
        ],
        "With 77 % copying, halving it makes the epoch 1.63 times as fast, and no copies at all 4.3 times: then "
        "the computation and the sampling are what is left, the order in which the paper goes on.",
    )
