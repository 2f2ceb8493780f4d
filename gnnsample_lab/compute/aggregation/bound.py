"""What aggregation has to move: counted accesses per kernel, the lower bound on its time, and roofline points.

Counts are exact functions of the block; times made from them are models and are labelled so where they are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.checks import flag, whole

from .csr import csr_of
from .ladder import GROUP_SIZE, LANE_CHUNKS, Y_FEATURES, kernel_name

ELEMENT_BYTES = 4
"""Bytes of a feature, a weight or an index in the counts."""


@dataclass(frozen=True)
class MemorySpeeds:
    """Bandwidths of the levels that a cost is made of, in GB/s, and the arithmetic peak in GFLOP/s.

    ``origin`` says where they are from: a measurement on a device, or a paper.
    """

    dram_gbps: float
    l2_gbps: float
    shared_gbps: float
    fp32_gflops: float
    origin: str


RTX_3090 = MemorySpeeds(
    938.0, 4000.0, 12000.0, 29155.0, "FastGL, table 3 and section 3.2 (RTX 3090; L2: middle of 3 to 5 TB/s)"
)
"""FastGL's card as its authors give it."""


@dataclass(frozen=True)
class AccessCounts:
    """Bytes that one kernel asks of each level for one block, and its arithmetic.

    Attributes:
        kernel: rung of the ladder.
        global_bytes: asked of global memory by the threads: features, indices, weights, and partial sums where the
            rung keeps them there.
        shared_bytes: asked of shared memory.
        register_bytes: partial sums that stay in registers and so cost no access.
        written_bytes: results (and atomics' reads and writes) in global memory.
        flops: multiplications and additions.
    """

    kernel: str
    global_bytes: int
    shared_bytes: int
    register_bytes: int
    written_bytes: int
    flops: int

    @property
    def intensity(self) -> float:
        """FLOP per byte asked of global memory."""
        return self.flops / max(1, self.global_bytes + self.written_bytes)

    def time_us(self, speeds: MemorySpeeds = RTX_3090) -> float:
        """Access time in the manner of FastGL's eq. 3 and 4: each level's bytes over its bandwidth, summed. A model:
        caches and overlap are left out.
        """
        asked = (self.global_bytes + self.written_bytes) / speeds.dram_gbps
        return (asked + self.shared_bytes / speeds.shared_gbps) / 1e3


def aggregation_cost(
    block: Any, num_features: int, kernel: str = "memory-aware", weighted: bool = True
) -> AccessCounts:
    """Count what ``kernel`` asks of each memory level for ``block`` (FastGL, section 4.2).

    For a row with ``n`` edges and ``d`` features of 4 bytes, eq. 3 has `naive` read ``4 (n - 1) d`` bytes of partial
    sums, ``4 n d`` of features and ``4 n d`` of weights in global memory; eq. 4 has `memory-aware` read the partial
    sums and ``4 n (d - 1)`` of the weights in shared memory. Both leave out indices and results; ``written_bytes`` has
    the results. For the other rungs the same is counted from their code, indices included.

    Args:
        block: a :class:`~gnnsample_lab.Block` or ``TorchBlock``.
        num_features: ``d``.
        kernel: a key of ``lab.aggregation_kernels()``.
        weighted: whether each edge has a weight; the paper's equations assume so.

    Raises:
        TypeError: ``block`` is no block, ``num_features`` no integer, ``weighted`` no bool.
        ValueError: an unknown kernel, ``num_features`` below 1.
    """
    kernel = kernel_name(kernel)
    d, weighted = whole("num_features", num_features, 1, 2**31 - 1), flag("weighted", weighted)
    csr = csr_of(block)
    edges, rows, s = csr.num_edges, csr.num_rows, ELEMENT_BYTES
    lengths = csr.lengths()
    used = int((lengths > 0).sum())
    sums, features = s * (edges - used) * d, s * edges * d
    weights = s * edges if weighted else 0
    written, flops = s * rows * d, (2 if weighted else 1) * edges * d
    if kernel == "naive":
        return AccessCounts(kernel, sums + features + weights * d, 0, 0, written, flops)
    if kernel == "memory-aware":
        return AccessCounts(kernel, features + weights, sums + weights * (d - 1), 0, written, flops)
    bounds = 8 * (rows + 1)
    if kernel == "memory-aware-staged":
        # One read of shared memory gives a staged edge to all threads of a row.
        staged = (weights + s * edges) * -(-d // (Y_FEATURES * LANE_CHUNKS))
        return AccessCounts(kernel, features + staged + bounds, sums + staged, 0, written, flops)
    if kernel in ("grouped", "gnnadvisor-style"):
        groups = int((-(-lengths // GROUP_SIZE)).sum())
        # Each group adds its sum by an atomic, which reads and writes; before that the result is cleared.
        moved = 2 * s * groups * d + written
        read = features + weights + s * edges + 12 * groups + bounds
        if kernel == "gnnadvisor-style":  # partial sums and ids lie in shared memory
            return AccessCounts(kernel, read, sums + s * edges, 0, moved, flops)
        return AccessCounts(kernel, read, 0, sums, moved, flops)
    return AccessCounts(kernel, features + weights + s * edges + bounds, 0, sums, written, flops)


def aggregation_bound_us(
    num_src: int, num_dst: int, num_edges: int, num_features: int, dram_gbps: float, l2_gbps: float,
    element_bytes: int = 4, weight_bytes: int = 4,
) -> float:  # fmt: skip
    """Microseconds below which no kernel can aggregate a block: the larger of what DRAM must move and the L2 deliver.

    ``max((U F s + D F s + E (4 + w) + 8 (D + 1)) / dram, E F s / l2)``: each distinct source row (``num_src``) read
    once and each result written once through DRAM, with edges and row bounds; each edge's row delivered by the L2.

    Args:
        num_src: distinct sources of the block that have an edge (those without are never read).
        num_dst: destinations.
        num_edges: edges.
        num_features: ``F``.
        dram_gbps: measured DRAM bandwidth, GB/s.
        l2_gbps: measured bandwidth of reads that hit the L2, GB/s.
        element_bytes: ``s``.
        weight_bytes: ``w``: 4, or 0 without weights.
    """
    rows = (num_src + num_dst) * num_features * element_bytes
    dram = rows + num_edges * (4 + weight_bytes) + 8 * (num_dst + 1)
    return max(dram / dram_gbps, num_edges * num_features * element_bytes / l2_gbps) / 1e3


@dataclass(frozen=True)
class RooflinePoint:
    """One kernel under the roof: FLOP per byte of DRAM traffic, GFLOP/s, and where the numbers are from."""

    name: str
    flops_per_byte: float
    gflops: float
    origin: str


@dataclass(frozen=True)
class Roofline:
    """The roof (``intensity`` in FLOP per byte against attainable GFLOP/s) and the points beneath it."""

    intensity: np.ndarray
    attainable_gflops: np.ndarray
    points: tuple[RooflinePoint, ...]
    origin: str


def roofline(
    speeds: MemorySpeeds, times_us: dict[str, float], block: Any, num_features: int, origin: str
) -> Roofline:
    """Roofline data for kernels that took ``times_us`` on ``block`` (FastGL, figure 12).

    The intensity counts the bytes that each kernel asks of global memory (:func:`aggregation_cost`), so that a point
    may lie above the DRAM roof where the caches serve part of them.

    Args:
        speeds: peaks; measured ones (:func:`~.bandwidth.measured_bandwidths`) for measured times.
        times_us: kernel name -> microseconds.
        block: what was aggregated.
        num_features: its feature width.
        origin: of the times: "measured on ..." or "modelled as ...".
    """
    points = []
    for kernel, time_us in times_us.items():
        cost = aggregation_cost(block, num_features, kernel)
        points.append(RooflinePoint(kernel, cost.intensity, cost.flops / time_us / 1e3, origin))
    intensity = np.geomspace(0.01, 100.0, 81)
    attainable = np.minimum(speeds.fp32_gflops, intensity * speeds.dram_gbps)
    return Roofline(intensity, attainable, tuple(points), speeds.origin)
