"""Walks as one kernel over many steps (``individual.cu``, ``walk``): a thread per sample, no launch between steps.

This is for applications that add one vertex per step and sample. Walks that end by themselves run in chunks of steps;
after each chunk the kernel lists the walks that go on, for the next chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gnnsample_lab.sampling.engine.plan import CLEAR
from gnnsample_lab.sampling.neighbors.plan import as_argument

if TYPE_CHECKING:
    from gnnsample_lab.sampling.engine.gpu import GpuEngine

WALK = np.dtype([(name, np.int64) for name in (
    "last", "last_width", "before", "before_width", "steps", "out_stride", "count", "rows", "next_rows", "next",
)])  # fmt: skip
"""``Walk`` of ``individual.cu``."""
_THREADS = 256
_ROWS = 2**32
"""Most samples: lists of rows hold 32-bit numbers."""


def length(engine: GpuEngine, step: int, end: int) -> int:
    """Steps from ``step`` to below ``end`` that can go into one kernel: each adds one vertex per sample."""
    if engine.operator.collective:
        return 0
    for number in range(step, end):
        # Without end, the steps after one that is no walk's may have no size, and never come.
        shape = engine.shape.ahead(number)
        if shape is None or shape.transits != 1 or shape.size != 1 or shape.unique:
            return number - step
    return end - step


def launch(
    engine: GpuEngine, step: int, steps: int, rows: Any = None, next_rows: Any = None, seen: Any = None
) -> None:
    """Walk samples for ``steps`` steps from ``step`` on. The outputs of these steps are allocated, at equal distances.

    Args:
        engine: the run.
        step: number of the first step.
        steps: number of steps.
        rows: ``uint32[count]`` samples to walk, None for all.
        next_rows: ``uint32[count]`` for the samples that go on. If it is given, walks may end early; outputs must hold
            -1 before.
        seen: ``uint64[2]`` or longer, zeroed; gets the number of samples that go on, and the most steps that a sample
            took.
    """
    address, id_bytes = engine.addresses, engine.id_dtype.itemsize
    walk = np.zeros(1, WALK)
    walk["last"], walk["last_width"] = address[step], engine.widths[step]
    if step:
        walk["before"], walk["before_width"] = address[step - 1], engine.widths[step - 1]
    walk["out_stride"] = (address[step + 2] - address[step + 1]) // id_bytes if steps > 1 else 0
    count = engine.num_samples if rows is None else rows.size
    walk["steps"], walk["count"] = steps, count
    endless = next_rows is not None
    if endless:
        walk["rows"] = 0 if rows is None else rows.data.ptr
        walk["next_rows"], walk["next"] = next_rows.data.ptr, seen.data.ptr
    record = {"kernel": "walk", "index": None, "fused": steps}
    records = [dict(record), *[record] * (steps - 1)]  # the first record gets the time of all steps
    engine.schedule += records
    macros: dict[str, int | str] = {
        "WALK": 1,
        "ENDLESS": int(endless),
        "SIZES": int("lab_size" in engine.operator.uses),
    }
    if count:
        kernel = engine.kernel("steps/individual.cu", "walk", macros)
        with engine.timing(records[0], "sample_us"):
            kernel((-(-count // _THREADS),), (_THREADS,), (engine.plan.argument(), as_argument(walk)))


class Walkers:
    """The samples of an endless application whose walks go on.

    It holds no reference to the engine, which refers to it: with such a cycle, outputs would stay until the garbage
    collector runs, and the next run would take new memory from the driver.
    """

    def __init__(self) -> None:
        self.rows: Any = None

    @staticmethod
    def can(engine: GpuEngine, step: int, steps: int) -> bool:
        """Whether one kernel that stops walks at their end can run the ``steps`` steps from ``step`` on."""
        chosen = engine.operator.transits_source is not None  # a sample without a transit may have one later
        return not chosen and engine.num_samples < _ROWS and length(engine, step, step + steps) == steps

    def advance(self, engine: GpuEngine, step: int, steps: int) -> tuple[int, int, int]:
        """Walk up to ``steps`` steps; waits once.

        Returns:
            The number of walks that go on, the most steps that a walk took, and the status word.
        """
        import cupy

        first, last = engine.steps[step], engine.steps[step + steps - 1]
        num_bytes = last.data.ptr - first.data.ptr + last.nbytes
        cupy.cuda.runtime.memsetAsync(first.data.ptr, 0xFF, num_bytes, cupy.cuda.get_current_stream().ptr)
        seen = cupy.zeros(3, np.uint64)
        count = engine.num_samples if self.rows is None else self.rows.size
        next_rows = cupy.empty(count, np.uint32)
        launch(engine, step, steps, self.rows, next_rows, seen)
        seen[2:] = engine.status
        going, taken, status = map(int, seen.get())
        if status == CLEAR:
            self.rows = next_rows[:going]
        return going, taken, status
