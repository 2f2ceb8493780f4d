"""Redraws for steps whose slots must hold distinct vertices, on the GPU (``unique.cu``).

If several slots that a step adds to one sample hold the same vertex, the lowest slot keeps it. The others call ``next``
again, round by round, with attempt 1, 2, ... in the counter of their random words. A kept vertex stays; among the new
vertices of a round the lowest slot wins. After ``max_redraws`` rounds a slot without a vertex of its own becomes NULL.
A NULL that ``next`` returned is final. Slots of individual sampling draw again from their own transit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gnnsample_lab.device import runtime
from gnnsample_lab.sampling.neighbors.sizes import power_of_two

if TYPE_CHECKING:
    from gnnsample_lab.sampling.engine.gpu import GpuEngine

SHARED_BYTES = 48 * 1024 - 64
"""Bytes of dynamic shared memory per block: every GPU grants 48 KiB without an opt-in; 64 are for the kernel's own."""
_SHARED_WIDTH = 2**26
"""Most slots for a set in shared memory: a claim there has 26 bits for the slot."""


def set_bytes(width: int, id_bytes: int, claim_bytes: int) -> tuple[int, int]:
    """Entries of the hash set for ``width`` slots, and the bytes of the set and the two lists of slots after it."""
    entries = power_of_two(2 * width, 32)
    return entries, -(-(entries * (id_bytes + claim_bytes) + 8 * width) // 16) * 16


def redraw(engine: GpuEngine, step: int, first_row: int = 0, rows: int | None = None) -> None:
    """Make the slots of step ``step`` unique within each of ``rows`` samples from ``first_row`` on; nothing waits.

    ``engine.plan`` still tells of the step, its transits and (collective) its combined neighbourhoods.

    Raises:
        ValueError: ``index="published"``, which sorts ids of 32 bits, on a graph of 2^32 vertices or more.
    """
    shape = engine.shape[step]
    rows = engine.num_samples - first_row if rows is None else rows
    rounds = int(engine.operator.max_redraws)
    if rows == 0 or shape.width < 2:
        return
    if engine.index == "published":  # in every formulation: what differs between them is how they draw
        _redraw_sorted(engine, shape.width, first_row, rows, rounds)
        return
    id_bytes = engine.graph.indices.dtype.itemsize
    entries, needed = set_bytes(shape.width, id_bytes, 4)
    shared = needed <= SHARED_BYTES and shape.width < _SHARED_WIDTH
    memory: Any = None
    if shared:
        threads = min(256, power_of_two(-(-shape.width // 2), 32))
        blocks = min(rows, runtime.num_sms() * 32)
    else:
        import cupy

        threads = 512
        entries, needed = set_bytes(shape.width, id_bytes, 8)
        blocks = max(1, min(rows, runtime.num_sms() * 4, engine.scratch_bytes // needed))
        memory = cupy.empty(blocks * needed, np.uint8)
    kernel = engine.kernel("steps/unique.cu", "redraw", {"GLOBAL_TABLE": int(not shared)})
    args = (
        engine.plan.argument(), np.int64(first_row), np.int64(rows), np.uint32(shape.width), np.uint32(rounds),
        np.uint32(entries - 1), np.uintp(0) if memory is None else memory,
    )  # fmt: skip
    kernel((blocks,), (threads,), args, shared_mem=needed if shared else 0)


def _redraw_sorted(engine: GpuEngine, width: int, first_row: int, rows: int, rounds: int) -> None:
    """As NextDoor finds duplicates, by sorting (``unique_sort.cu``)."""
    if engine.graph.num_nodes >= 2**32:
        raise ValueError(
            "index='published' finds duplicates by sorting ids of 32 bits: graph must have fewer than 2^32 vertices "
            f"(got {engine.graph.num_nodes}); take index='auto'"
        )
    needed = -(-17 * width // 16) * 16
    shared, memory = needed <= SHARED_BYTES - 512, None
    threads = min(512, power_of_two(width, 32))
    blocks = min(rows, runtime.num_sms() * 32)
    if not shared:
        import cupy

        blocks = max(1, min(rows, runtime.num_sms() * 4, engine.scratch_bytes // needed))
        memory = cupy.empty(blocks * needed, np.uint8)
    kernel = engine.kernel("steps/unique_sort.cu", "redraw_sorted", {"GLOBAL_TABLE": int(not shared)})
    args = (
        engine.plan.argument(), np.int64(first_row), np.int64(rows), np.uint32(width), np.uint32(rounds),
        np.uint32(int(engine.graph.num_nodes).bit_length()), np.uintp(0) if memory is None else memory,
    )  # fmt: skip
    kernel((blocks,), (threads,), args, shared_mem=needed if shared else 0)
